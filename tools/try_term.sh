#!/bin/sh
# try_term.sh -- check that the steps in docs/contributing.md suffice to add a term. Add two terms to a copy of the tree, each with one file in
# src/terms, one line in terms.def and one text in docs/terms, run `tools/terms.py --write`, and run the tests for every term.
#   tools/try_term.sh [PLACE]     PLACE: an empty folder for the copy and its build; by default a temporary one, which is removed
#   PYTHON=…                      an interpreter with scikit-build-core, numpy and pytest; tests the Python package too
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/copy_tree.sh
place=${1:-$(mktemp -d)}
[ -n "${1:-}" ] || trap 'rm -rf "$place"' EXIT
copy_tree "$place"
cd "$place"
git init -q . # scripts of the tree call git

# A bias with a learned array, a parameter and a derivative. The parameter is stored in a general-purpose field of rp_term.
cat >src/terms/slowlog.h <<'C'
/* terms/slowlog.h -- a logarithm of distance with a learned strength for each head: -a_h log(1 + p |delta|).
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param slowlog_params[] = {
    {"p", RP_PARAM_REAL, RPI_FIELD(real[0]), .value = 0.5, .min = 0, .max = 1e6, .meaning = "how fast it falls"},
    {0},
};

static double slowlog_pair(const rpi_pair *p)
{
    return -rpi_at(&p->array[0], p->h, 0, 0, 0) * log1p(p->term->real[0] * fabs(p->delta));
}

static void slowlog_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, 0, 0, 0, -g * log1p(p->term->real[0] * fabs(p->delta)));
}

RPI_SCHEME(SLOWLOG, .form = RPI_OFFSET,
           .facts = {.formula = "-a_h log(1 + p |delta|)",
                     .about = "a logarithm with a learned strength",
                     .shown = "- a log(1 + {p} d)",
                     .samples = {"", "p=2"}},
           .array = {{"a", .shape = "[H]", .draw = {.rule = RP_RULE_UNIFORM, .a = 0.1, .b = 0.5},
                      .start = {.rule = RP_RULE_UNIFORM, .b = 1}},
                     RPI_TWO_POSITIONS},
           .positions = 1, .params = slowlog_params, .pair = slowlog_pair, .grad = slowlog_grad)
C
cat >docs/terms/slowlog.md <<'TEXT'
# A logarithm of distance with a learned strength
family: Biases by offset
python: bias=relpos.Slowlog(np.array([1.0, 2.0]), p=0.25)
picture: slowlog --q 32 --k 32

Adds −a_h log(1 + p d).

**In NumPy.**

    bias = -a[h] * log1p(p * distance)

**Gradients.** da[h] = −(sum of ds log(1 + p d)).
TEXT

# Vectors for the nearest keys: a term of another form.
cat >src/terms/nearby.h <<'C'
/* terms/nearby.h -- scale <q_i, table[h, delta + 1]> for keys at most one step away, 0 for others.
 * SPDX-License-Identifier: Apache-2.0 */

static int64_t nearby_count(const rp_desc *d, const rp_term *t)
{
    (void)d, (void)t;
    return 3;
}

static int64_t nearby_first(const rp_desc *d, const rp_term *t)
{
    (void)d, (void)t;
    return -1;
}

static double nearby_vec(const rpi_pair *p, int64_t e, int64_t c)
{
    return rpi_at(&p->array[0], p->h, e, c, 0);
}

static void nearby_vec_grad(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, e, c, 0, g);
}

RPI_SCHEME(NEARBY, .form = RPI_VEC,
           .facts = {.formula = "scale <q_i, table[h, delta + 1]> where |delta| <= 1, else 0",
                     .about = "vectors for the nearest keys"},
           .array = {{"table", .shape = "[H?, 3, Dk]"}},
           .product = {{.shown = "scale * q . table",
                        .zero_outside = true,
                        .count = nearby_count,
                        .first = nearby_first,
                        .vec = nearby_vec,
                        .vec_grad = nearby_vec_grad}})
C
cat >docs/terms/nearby.md <<'TEXT'
# Vectors for the nearest keys
family: Products with vectors
python: relkey=relpos.Nearby(rng.normal(size=(3, 16)))

Adds scale ⟨q_i, table[r + 1]⟩ where abs(r) is at most 1.

**In NumPy.**

    found = (q[:, :, :, None] * table[h, clip(delta, -1, 1).astype(int) + 1]).sum(-1)
    product = scale * where(distance <= 1, found, 0)

**Gradients.** dtable[r + 1] = scale · (sum of ds' q_i over the pairs of r).
TEXT
cat >>include/relpos/terms.def <<'DEF'
RP_X(RP_TERM_SLOWLOG, slowlog, "slowlog,a=NAME[,p=0.5]", "an example of docs/contributing.md")
RP_X(RP_TERM_NEARBY, nearby, "nearby,table=NAME", "an example of docs/contributing.md")
DEF

say() {
    printf '\n== try_term: %s\n' "$*"
}
say "build"
cmake --preset dev >cmake.log
cmake --build --preset dev -j 2 >build.log 2>&1 || { tail -n 40 build.log; exit 1; }
relpos=build/dev/relpos
say "a term without its derivative, and one without pair"
try() { # build the program, and verify slowlog as it is now in a forward or a backward pass
    cmake --build --preset dev -j 2 --target relpos_program >build.log 2>&1 || { tail -n 40 build.log; exit 1; }
    $relpos verify "$1:f32:b1h2q8k8d8:slowlog" 2>&1
}
cp src/terms/slowlog.h whole.h
sed -i 's/, \.grad = slowlog_grad//; /^static void slowlog_grad/,/^}/d' src/terms/slowlog.h
try fwd | grep 'problems checked, 0 failed'
try bwd | grep 'slowlog.*form OFFSET requires grad'
sed -i 's/, \.pair = slowlog_pair//; /^static double slowlog_pair/,/^}/d' src/terms/slowlog.h
try fwd | grep 'slowlog.*form OFFSET requires pair'
cat whole.h >src/terms/slowlog.h
cmake --build --preset dev -j 2 >build.log 2>&1 || { tail -n 40 build.log; exit 1; }
say "generated files"
python3 tools/terms.py --write $relpos
python3 tools/terms.py --check $relpos
cmake --build --preset dev -j 2 >build.log 2>&1 || { tail -n 40 build.log; exit 1; }
say "commands"
$relpos info --json | grep -q '"name": "slowlog", "class": "Slowlog"'
$relpos bias slowlog,p=2 --q 4 --k 4
! $relpos bias slowlog,p=-1 --q 4 --k 4 2>refused
grep -q 'slowlog: p is -1' refused || { cat refused; exit 1; }
$relpos explain --nearby 'table=t' 2>&1 | grep -q 'comes from a file'
$relpos explain --help | grep -e '--nearby'
$relpos bench --seconds 0.2 fwdbwd:f32:b1h2q64k64d16:slowlog fwdbwd:f32:b1h2q64k64d16:nearby
for term in slowlog slowlog,p=3 nearby; do
    for pass in fwd:f32 fwdbwd:f64 bwd:f32 fwd:bf16; do
        for setting in causal softcap=2 positions; do
            set -- "$@" "$pass:b2h4g2q33k65d16:$term:$setting"
        done
    done
done
[ $# -le 36 ] || shift # PLACE
$relpos verify "$@"
say "the library tests that loop over all terms"
ctest --preset dev -R '^(test_schemes|test_gradients|test_term_text|test_out_of_memory|old_client|cli_(bias|explain|gradients|help|info|verify))$'
say "the laboratory"
cat >try.lab <<'LAB'
layers = 1
width = 16
heads = 2
mlp = 16
length = 16
batch = 2
steps = 4
warmup = 1
position = slowlog+nearby
text = lab/data/vim.txt
LAB
$relpos lab train try.lab -o out.run
if [ -n "${PYTHON:-}" ]; then
    say "the Python package"
    "$PYTHON" -m pip wheel -q --no-build-isolation --no-deps -w dist . >wheel.log 2>&1 || { tail -n 40 wheel.log; exit 1; }
    "$PYTHON" -m pip install -q --no-deps --target site dist/*.whl
    PYTHONPATH=site "$PYTHON" -P -m pytest -p no:cacheprovider python/tests/test_definitions.py python/tests/test_package.py
fi
if command -v clang-19 >/dev/null && command -v node >/dev/null; then
    say "the explorer"
    cmake --build build/dev -j 2 --target explorer >build.log 2>&1 || { tail -n 40 build.log; exit 1; }
    test -s build/dev/web/relpos-explorer.html
    python3 tools/terms.py --json | grep -q '"slowlog": {' # the input of the explorer's page
fi
say "done"
