#!/bin/sh
# try_mask.sh -- check that one function and one line suffice to add a mask. Add a mask "every even key" to a copy of the tree in a temporary
# folder, run tools/masks.py, and check that the program, verify, the law tests, the gradient tests and the Python package include the mask.
#   tools/try_mask.sh
#   PYTHON=…              an interpreter with NumPy, pytest and scikit-build-core; by default that of tools/python.sh
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
. tools/copy_tree.sh
python=${PYTHON:-$PWD/build/python/venv/bin/python}
[ -x "$python" ] || { echo "try_mask.sh: $python is missing (run tools/python.sh, or set PYTHON to an interpreter)" >&2; exit 1; }
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
copy_tree "$T"
cd "$T"
step() {
    printf '== %s\n' "$*"
}

step 'one function with its entry, and one line'
cat >>src/masks/pairs.h <<'END'

static void even_keep(const rpi_mask_row *row, int64_t j0, int64_t count, uint8_t *keep)
{
    (void)row;
    for (int64_t n = 0; n < count; n++)
        keep[n] &= (j0 + n) % 2 == 0;
}

RPI_PAIRS(EVEN, even_keep, .same_rows = true, .info.text = "only keys with an even number")
END
echo 'RP_X(RP_MASK_EVEN, even_keys, "j % 2 == 0")' >>include/relpos/masks.def

step 'build'
tests='test_masks test_gradients test_option_words'
# shellcheck disable=SC2086
cmake --preset dev >build.log 2>&1 && cmake --build --preset dev --target relpos_program $tests >>build.log 2>&1 || { tail -n 40 build.log; exit 1; }

step 'tools/masks.py writes the other files, and then nothing is stale'
! python3 tools/masks.py --check 2>/dev/null
python3 tools/masks.py
python3 tools/masks.py --check
grep -q 'even_keys=False' python/relpos/__init__.py
grep -q 'even_keys: bool' python/relpos/__init__.pyi
for page in relpos relpos-attend relpos-explain; do grep -q '^\*--even-keys\*$' docs/man/$page.1.scd; done
grep -q 'even_keys' docs/man/relpos-verify.1.scd

step 'the program: help, info, attend, explain, problem strings'
relpos=build/dev/relpos
$relpos attend --help | grep -q -e '--even-keys  *only keys with an even number'
$relpos info | grep -q -e '--even-keys  *j % 2 == 0'
$relpos explain --even-keys --query 4 | grep -q masked
$relpos verify fwd:f32:b2h2q40k70d16:t5:even_keys+causal bwd:f32:b1h2q40k70d16:rope:even_keys >verify.log || { cat verify.log; exit 1; }

step 'the laws and the gradients'
for test in $tests; do
    build/dev/tests/$test >test.log 2>&1 || { tail -n 20 test.log; exit 1; }
done

step 'Python'
"$python" -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w dist . >wheel.log 2>&1 || { tail -n 40 wheel.log; exit 1; }
"$python" -m pip install -q --disable-pip-version-check --no-deps --target site dist/*.whl
PYTHONPATH=$T/site "$python" -P - <<'END'
import numpy as np, relpos

q, k, v = (np.random.default_rng(n).standard_normal((2, 3, 9, 4)) for n in range(3))
keys = np.arange(9) % 2 == 0
options = dict(bias=relpos.ALiBi(), causal=True)
np.testing.assert_array_equal(relpos.attention(q, k, v, even_keys=True, **options), relpos.attention(q, k, v, key_mask=keys[None], **options))
np.testing.assert_array_equal(relpos.attention(q, k, v, even_keys=False, **options), relpos.attention(q, k, v, **options))
got, want = (relpos.attention_backward(v, q, k, v, **options, **mask) for mask in (dict(even_keys=True), dict(key_mask=keys[None])))
np.testing.assert_array_equal(got.k, want.k)
assert not got.k[:, :, 1::2].any()
assert "even_keys" in relpos.attention.__doc__
plan = relpos.Plan(2, 3, 9, 9, 4, dtype="float64", even_keys=True)
np.testing.assert_array_equal(plan(q, k, v), relpos.attention(q, k, v, even_keys=True))
END
PYTHONPATH=$T/site "$python" -P -m pytest -q -p no:cacheprovider python/tests/test_errors.py python/tests/test_package.py >pytest.log 2>&1 ||
    { tail -n 20 pytest.log; exit 1; }
echo 'a mask is one function and one line'
