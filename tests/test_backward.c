/* test_backward.c -- gradients, on the reference path and every instruction set of this machine.
 *
 * Two judges: central differences of the loss sum(dout * out), taken by the reference in double, hold the gradients in f64;
 * the reference, with rp_gradient_bound as tolerance, holds f32, f16 and bf16. Where a law promises equal bits, bits are
 * compared.
 * SPDX-License-Identifier: Apache-2.0 */
#include "helpers.h"

/* ------------------------------------------------------------------------------------------------ differences */

/* A direction in one array: one element, or all of them at random. */
typedef struct probe {
    int n;           /* number of the gradient */
    int64_t element; /* -1: all */
    uint64_t seed;
    double slope; /* the loss along it, by differences */
} probe;

static double along(const probe *r, int64_t x, int64_t size)
{
    uint64_t state = r->seed + (uint64_t)x * 0x2545f4914f6cdd1du;
    if (r->element >= 0)
        return x == r->element;
    return ((double)(draw(&state) >> 11) * 0x1p-52 - 1) * sqrt(3 / (double)size);
}

/* The sum of dout * out, and in *size that of its summands' sizes. */
static double loss(problem *p, const rp_plan *plan, double *size)
{
    double sum = 0;
    good(rp_attend(plan, &p->t, NULL));
    *size = 0;
    for (int64_t x = 0; x < problem_size(&p->t.out); x++) {
        const double part = at(&p->g.dout, x) * at(&p->t.out, x);
        sum += part;
        *size += fabs(part);
    }
    return sum;
}

/* The slope of the loss at 0 along r: differences over h and h/2, extrapolated. */
static double slope_along(problem *p, const rp_plan *plan, const probe *r, double h, double *size)
{
    rp_array *a = source_of(&p->t, r->n);
    double *kept = copy_of(a), *data = a->data, slope[2];
    for (int half = 0; half < 2; half++, h /= 2) {
        double side[2];
        for (int s = 0; s < 2; s++) {
            for (int64_t x = 0; x < problem_size(a); x++)
                data[x] = kept[x] + (s ? -h : h) * along(r, x, problem_size(a));
            side[s] = loss(p, plan, size);
        }
        slope[half] = (side[0] - side[1]) / (2 * h);
    }
    memcpy(data, kept, (size_t)problem_size(a) * sizeof *data);
    free(kept);
    return (4 * slope[1] - slope[0]) / 3;
}

enum { PROBES = 3 };       /* of each array: all elements, and two single ones */
static double worst_slope; /* share of the tolerance */

/* Gradients in double of one problem against differences, on every path, with and without out and lse. */
static void differences_of(problem *p)
{
    probe all[PROBES * 32];
    int n_all = 0;
    rp_plan *plan;
    double size = 0, h = 0x1p-10;
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        if (p->terms[n].kind == RP_TERM_FIRE) /* is smooth between the kinks of its ReLU only */
            h = 0x1p-15;
    p->desc.isa = "reference";
    good(rp_plan_create(&plan, &p->desc));
    for (int n = 0; n < GRADIENTS; n++) {
        const int64_t elements = problem_size(gradient(&p->g, n));
        if (!gradient(&p->g, n)->data || elements == 0)
            continue;
        for (int k = 0; k < PROBES; k++, n_all++) {
            assert_true(n_all < PROBES * 32);
            all[n_all] = (probe){n, k ? (k * 7919 + 3) % elements : -1, (uint64_t)n + 1, 0};
            all[n_all].slope = slope_along(p, plan, &all[n_all], h, &size);
        }
    }
    rp_plan_destroy(plan);
    EACH_PATH(path)
    for (int given = 0; given < 2; given++) {
        for (int n = 0; n < GRADIENTS; n++)
            if (gradient(&p->g, n)->data)
                memset(gradient(&p->g, n)->data, 0x7f, (size_t)problem_size(gradient(&p->g, n)) * 8);
        backward(p, path, &p->g, given);
        for (int k = 0; k < n_all; k++) {
            const rp_array *g = gradient(&p->g, all[k].n);
            double sum = 0, squares = 0;
            for (int64_t x = 0; x < problem_size(g); x++) {
                sum += at(g, x) * along(&all[k], x, problem_size(g));
                squares += at(g, x) * at(g, x);
            }
            /* what the differences lose: a rounding of each summand of the loss, divided by h */
            const double scale = fabs(all[k].slope) + sqrt(squares / (double)problem_size(g)),
                         error = fabs(sum - all[k].slope), lost = 8 * 0x1p-53 * size / h;
            if (!(error <= 1e-7 * scale + lost))
                wrong(p, path, "%s%s, probe %lld: %.12g, by differences %.12g (scale %.3g, lost %.3g)",
                      gradient_name(p, all[k].n), given ? ", out and lse given" : "", (long long)all[k].element, sum,
                      all[k].slope, scale, lost);
            worst_slope = fmax(worst_slope, error / (1e-7 * scale + lost));
        }
    }
}

static const struct {
    const char *text, *sizes; /* NULL: they take turns */
} terms[] = {
    {"", NULL},
    {"table,left=3,right=2", NULL},
    {"t5,buckets=8,max_distance=9", NULL},
    {"t5,buckets=6,max_distance=20,bidirectional=0,q_positions=x,k_positions=y", NULL},
    {"bucket,strategy=uniform,buckets=8,max_distance=10+bucket,strategy=linear,buckets=8,max_distance=10", NULL},
    {"bucket,strategy=quadratic,buckets=8,max_distance=10", NULL},
    {"log+linear,left=0.2,right=0.4+sandwich,dim=4", NULL},
    {"alibi", NULL},
    {"alibi,slopes=given", NULL},
    {"alibi,slopes=given,q_positions=x", NULL},
    {"kerple", NULL},
    {"kerple,kind=power", NULL},
    {"fire,c=1,L=4,width=5", NULL},
    {"fire,c=0.5,L=2,width=4,width2=3", NULL},
    {"swin,grid=2x3", "b2h4g2q6k6d4v3"},
    {"swin,grid=2x4,extra=1", "b1h2q9k9d6v5"},
    {"axial,grid=3x2", "b2h2q6k6d4"},
    {"real,max_distance=3", NULL},
    {"real,max_distance=9,sign=1,q_position_mask=given,k_position_mask=given", NULL},
    {"real,max_distance=4,k_positions=x", NULL},
    {"band,width=3,extent=4", NULL},
    {"forget", NULL},
    {"dense", NULL},
    {"rope", NULL},
    {"rope,layout=interleaved,dim=2+t5,buckets=8,max_distance=9", NULL},
    {"rope,scaling=linear,factor=4,q_positions=x,k_positions=y", NULL},
    {"rope,scaling=dynamic,factor=2,max_position_embeddings=5,positions=x", "b2h4g2q6k6d4v3"},
    {"rope,scaling=yarn,factor=8,original_max_position_embeddings=16", NULL},
    {"rope,scaling=llama3,factor=8,original_max_position_embeddings=16", NULL},
    {"rope,scaling=longrope,factor=4,original_max_position_embeddings=6", NULL},
    {"relkey,left=2,right=3", NULL},
    {"relkey,left=2,right=3,q_positions=x,k_positions=y", NULL},
    {"relval,left=3,right=2", NULL},
    {"relval,left=3,right=2,k_positions=y", NULL},
    {"xl", NULL},
    {"axialkey,grid=2x4+axial,grid=2x4", "b2h2q8k8d4v3"},
    {"deberta,span=4", NULL},
    {"deberta,buckets=8,max_position=16", NULL},
    {"sink", NULL},
    {"sink+relval,left=1,right=1+relkey,left=1,right=1+rope+dense", NULL},
    {"band,width=2,extent=3+fire,c=1,L=5,width=3+forget+kerple+real,max_distance=2+rope+xl+relval,left=1,right=1+sink",
     NULL},
    {"rope+t5,buckets=4,max_distance=4+alibi,slopes=x+dense+dense+deberta,span=3", NULL},
};
static const char *const settings[] = {"",
                                       "causal",
                                       "softcap=1.5",
                                       "positions",
                                       "mask",
                                       "dropout=0.3+seed=5",
                                       "q_offsets+causal",
                                       "softcap_after=2+window=3,2",
                                       "key_mask",
                                       "positions+causal+softcap=2",
                                       "lengths+scale=0.6",
                                       "mask+dropout=0.2+seed=9+softcap_after=3",
                                       "window=4,-1+key_mask+q_offsets"};
static const char *const small[] = {"b2h4g2q5k7d4v3o2", "b1h2q6k9d6v5o-2", "b2h2q7k4d8v2", "b1h3g1q1k8d2o6"};
enum {
    TERMS = sizeof terms / sizeof *terms,
    SETTINGS = sizeof settings / sizeof *settings,
    SMALL = sizeof small / sizeof *small
};

static void differences(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < TERMS; n++)
        for (int k = 0; k < 3; k++) {
            const char *set = settings[(n * 3 + k * 5) % SETTINGS];
            if (terms[n].sizes && (strstr(set, "q_offsets") || strstr(set, "positions"))) /* grids need offset 0 */
                set = "mask+softcap=1.2";
            pose(&p, (uint64_t)(n * 3 + k) + 1, "bwd:f64:%s:%s:%s",
                 terms[n].sizes ? terms[n].sizes : small[(n + k) % SMALL], terms[n].text, set);
            differences_of(&p);
            problem_free(&p);
        }
    static const char *const packed[] = {"t5,buckets=8,max_distance=9+rope:segments+causal",
                                         "fire,c=1,L=2,width=3+real,max_distance=3,q_positions=x:segments",
                                         "relkey,left=2,right=1,k_positions=x+sink:segments+softcap=2"};
    for (int n = 0; n < 3; n++) {
        pose(&p, 7, "bwd:f64:b2h2q9k9d4v3:%s", packed[n]);
        differences_of(&p);
        problem_free(&p);
    }
    print_message("against differences: largest error / tolerance %.3g; it is 1e-7 of the slope\n", worst_slope);
}

/* ------------------------------------------------------------------------------------------------ bounds */

static double worst_share;

static void show(const char *what)
{
    print_message("%-40s largest error / bound %.3f\n", what, worst_share);
    worst_share = 0;
}

static double rounding_of(rp_dtype type)
{
    return type == RP_F64 ? 0x1p-53 : type == RP_F32 ? 0x1p-24 : type == RP_F16 ? 0x1p-11 : 0x1p-8;
}

static rp_array in_double(problem *p, const rp_array *a)
{
    rp_array to = array_in(p, RP_F64, a->ndim, a->shape);
    good(rp_convert(to.data, RP_F64, a->data, a->dtype, problem_size(a)));
    return to;
}

/* Gradients of a problem's own type on every instruction set against the reference in double on the same inputs. */
static void judged(problem *p)
{
    rp_grads want = gradients_like(p, RP_F64), bound = gradients_like(p, RP_F64);
    rp_tensors exact = p->t;
    rp_desc d = p->desc;
    rp_plan *plan;
    exact.q = in_double(p, &p->t.q);
    exact.k = in_double(p, &p->t.k);
    exact.v = in_double(p, &p->t.v);
    exact.out.data = exact.lse.data = NULL;
    d.dtype = RP_F64;
    d.isa = "reference";
    good(rp_plan_create(&plan, &d));
    good(rp_backward(plan, &exact, &want, NULL));
    rp_plan_destroy(plan);
    EACH_ISA(isa)
    {
        if (isa_n == 0) { /* the bounds of the others differ in the smallest of their summands */
            rp_tensors t = p->t;
            t.out.data = t.lse.data = NULL;
            p->desc.isa = isa;
            good(rp_plan_create(&plan, &p->desc));
            good(rp_gradient_bound(plan, &t, &bound));
            rp_plan_destroy(plan);
        }
        for (int given = 0; given < 2; given++) {
            backward(p, isa, &p->g, given);
            for (int n = 0; n < GRADIENTS; n++) {
                const rp_array *g = gradient(&p->g, n), *w = gradient(&want, n), *b = gradient(&bound, n);
                for (int64_t x = 0; g->data && x < problem_size(g); x++) {
                    const double exact_x = at(w, x), error = fabs(at(g, x) - exact_x), last = rounding_of(g->dtype);
                    const double most =
                        at(b, x) + last * (fabs(exact_x) + at(b, x)) + (g->dtype == RP_F16 ? 0x1p-25 : 0);
                    if (error != 0 && !(error <= most))
                        wrong(p, isa, "%s[%lld]%s is %.9g, not %.9g: error %.3g, bound %.3g", gradient_name(p, n),
                              (long long)x, given ? ", out and lse given," : "", at(g, x), exact_x, error, most);
                    if (fabs(exact_x) > 1e-20) /* below, the last place is most of the bound */
                        worst_share = fmax(worst_share, error / most);
                }
            }
        }
    }
}

/* Edges of MR = 6, NR, QB = 96, BKB = 256 in queries, keys and widths. */
static void sizes(void **state)
{
    static const int queries[] = {1, 5, 6, 7, 95, 96, 97, 193}, keys[] = {1, 63, 64, 65, 255, 256, 257, 600},
                     widths[] = {1, 3, 16, 17, 64, 65};
    static const char *const of_any_width[] = {"t5,buckets=8,max_distance=20",
                                               "dense",
                                               "relkey,left=4,right=2+alibi,slopes=x",
                                               "relval,left=200,right=3",
                                               "sink+band,width=3,extent=20",
                                               "xl",
                                               "forget",
                                               "real,max_distance=9",
                                               "deberta,span=12",
                                               "fire,c=1,L=20,width=4"};
    problem p;
    (void)state;
    for (int n = 0; n < 8; n++)
        for (int m = 0; m < 2; m++) {
            const int q = queries[n], k = keys[m ? 7 - n : (n * 3 + 2) % 8], turn = n * 2 + m;
            pose(&p, (uint64_t)turn + 1, "bwd:f32:b1h2g1q%dk%dd%dv%do%d:%s:%s", q, k, widths[turn % 6],
                 widths[(turn * 5 + 3) % 6],
                 turn % 3 == 1 ? k - q
                 : turn % 3    ? -3
                               : 0,
                 of_any_width[turn % 10], settings[turn % SETTINGS]);
            judged(&p);
            problem_free(&p);
        }
    show("sizes");
}

/* Windows of a picture: many heads of 49 tokens. */
static void windows(void **state)
{
    problem p;
    (void)state;
    pose(&p, 3, "bwd:f32:b36h3q49k49d8:swin,grid=7x7+dense:");
    p.t.term[1][0].shape[0] = p.g.term[1][0].shape[0] = 1; /* (1, 3, 49, 49): a bias that all windows share */
    judged(&p);
    problem_free(&p);
    show("windows");
}

/* Logits in the hundreds; and some that no f32 logarithm of a sum can hold. */
static void large(void **state)
{
    static const char *const texts[] = {"b1h2q20k70d6v5:t5,buckets=8,max_distance=20+sink:causal",
                                        "b1h2q7k70d16:rope:", "b1h2q20k70d6:relkey,left=9,right=9+dense:softcap=90"};
    problem p;
    (void)state;
    for (int n = 0; n < 3; n++) {
        pose(&p, 4, "bwd:f32:%s", texts[n]);
        for (int64_t x = 0; x < problem_size(&p.t.q); x++)
            set(&p.t.q, x, 300 * at(&p.t.q, x));
        judged(&p);
        problem_free(&p);
    }
    /* two keys of one score beside lower ones: each has half of the weight, whatever lse can hold */
    EACH_PATH(path)
    for (int given = 0; given < 2; given++) {
        pose(&p, 4, "bwd:f32:b1h1q9k20d4:");
        for (int64_t x = 0; x < 80; x++)
            set(&p.t.k, x, x / 4 == 3 || x / 4 == 11 ? 1e9 : 1);
        for (int64_t x = 0; x < 36; x++)
            set(&p.t.q, x, 1e9);
        backward(&p, path, &p.g, given);
        for (int64_t j = 0; j < 20; j++)
            for (int64_t c = 0; c < 4; c++) {
                double want = 0;
                for (int64_t i = 0; i < 9; i++)
                    want += j == 3 || j == 11 ? 0.5 * at(&p.g.dout, i * 4 + c) : 0;
                if (!(fabs(at(&p.g.dv, j * 4 + c) - want) <= 1e-6))
                    wrong(&p, path, "dv of key %lld is %g, not %g", (long long)j, at(&p.g.dv, j * 4 + c), want);
            }
        problem_free(&p);
    }
    show("large");
}

/* An lse of fewer digits than the arithmetic is made again: with it and without it, the gradients have the same bits. */
static void narrow_lse(void **state)
{
    static const rp_dtype types[] = {RP_F64, RP_F32, RP_F16, RP_BF16};
    problem p;
    (void)state;
    for (int data = 0; data < 4; data++)
        for (int type = 0; type < 4; type++) {
            pose(&p, 9, "bwd:%s:b1h2q33k40d16:t5,buckets=8,max_distance=20:", rp_dtype_name(types[data]));
            const bool narrow = rp_dtype_size(types[type]) < (types[data] == RP_F64 ? 8u : 4u);
            also(&p, WITH_LSE, types[type]);
            EACH_ISA(isa)
            {
                const rp_grads without = gradients_like(&p, types[data]);
                backward(&p, isa, &p.g, true);
                backward(&p, isa, &without, false);
                for (int n = 0; narrow && n < GRADIENTS; n++) {
                    const rp_array *a = gradient(&p.g, n), *b = gradient((rp_grads *)&without, n);
                    if (a->data && memcmp(a->data, b->data, (size_t)problem_size(a) * rp_dtype_size(a->dtype)) != 0)
                        wrong(&p, isa, "%s depends on a given lse of %s", gradient_name(&p, n),
                              rp_dtype_name(types[type]));
                }
            }
            if (!narrow)
                judged(&p);
            problem_free(&p);
        }
    show("lse of other types");
}

/* Every term in the types of storage; gradients in another type than the inputs. */
static void storage(void **state)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    problem p;
    (void)state;
    for (int n = 0; n < TERMS; n++)
        for (int k = 0; k < 3; k++) {
            const char *set = settings[(n + k * 4 + 1) % SETTINGS];
            if (terms[n].sizes && (strstr(set, "q_offsets") || strstr(set, "positions")))
                set = "causal";
            pose(&p, (uint64_t)(n + k) + 1, "bwd:%s:%s:%s:%s", types[k],
                 terms[n].sizes ? terms[n].sizes : small[(n * 3 + k) % SMALL], terms[n].text, set);
            if (k == 2 && n % 2)
                p.g = gradients_like(&p, RP_F32);
            judged(&p);
            problem_free(&p);
        }
    show("storage");
}

/* ------------------------------------------------------------------------------------------------ equal bits */

/* One for each way a gradient is summed; two kv heads, several blocks of keys and rows, sums over heads and batch. */
static const char *const sums[] = {
    "b2h4g2q97k300d8v5:t5,buckets=8,max_distance=20+rope:causal",
    "b2h2g1q97k260d5v8o200:relkey,left=9,right=2+relval,left=2,right=9+alibi,slopes=x:",
    "b2h2g1q97k260d6v6:dense+sink:mask+softcap=2",
    "b2h2g1q20k260d6v6:fire,c=1,L=9,width=3+real,max_distance=9:positions",
    "b2h2g1q97k260d6v6o250:forget+band,width=3,extent=9:",
    "b2h2g1q97k260d6v6:xl:key_mask+lengths",
    "b2h2g1q97k260d6v6:deberta,span=9:window=100,20",
    "b2h2g1q99k99d6v6:swin,grid=9x11+axialkey,grid=9x11:dropout=0.2+seed=3",
    "b2h2g1q20k260d6v6:relkey,left=9,right=9+t5,buckets=8,max_distance=20:positions+softcap_after=3",
};
enum { SUMS = sizeof sums / sizeof *sums };

/* The head axis of an array becomes 1 where it has one: its gradient then sums over all heads. */
static void share_heads(problem *p)
{
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            rp_array *a = &p->t.term[n][x], *g = &p->g.term[n][x];
            const rp_term_kind kind = p->terms[n].kind;
            if (!g->data || kind == RP_TERM_RELKEY || kind == RP_TERM_RELVAL || kind == RP_TERM_DENSE ||
                kind == RP_TERM_BAND || kind == RP_TERM_FORGET || kind == RP_TERM_FIRE || kind == RP_TERM_AXIALKEY)
                continue;
            for (int axis = 0; axis < a->ndim; axis++)
                if (a->shape[axis] == p->desc.heads)
                    a->shape[axis] = g->shape[axis] = 1;
            *a = rp_array_of(a->data, a->dtype, a->ndim, a->shape);
            *g = rp_array_of(g->data, g->dtype, g->ndim, g->shape);
        }
}

static void same_gradients(problem *p, const char *isa, const char *what, rp_grads *a, rp_grads *b)
{
    char line[128];
    for (int n = 0; n < GRADIENTS; n++) {
        const rp_array *x = gradient(a, n), *y = gradient(b, n);
        if (!x->data || !y->data)
            continue;
        snprintf(line, sizeof line, "%s: %s", what, gradient_name(p, n));
        same_bits(p, isa, line, x->data, y->data, (size_t)problem_size(x) * rp_dtype_size(x->dtype));
    }
}

static void threads(void **state)
{
    static const int32_t counts[] = {2, 3, 7};
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_ISA(isa)
        {
            pose(&p, 5, "bwd:%s:%s", n % 2 ? "f32" : "f64", sums[n]); /* f64 shows any other order of sums in double */
            if (n % 3 == 0)
                share_heads(&p);
            rp_grads again = gradients_like(&p, p.desc.dtype);
            for (int t = -1; t < 3; t++) {
                rp_pool *pool;
                good(rp_pool_create(&pool, t < 0 ? 1 : counts[t]));
                p.t.pool = pool;
                backward(&p, isa, t < 0 ? &p.g : &again, n % 2);
                if (t >= 0)
                    same_gradients(&p, isa, "more threads than one", &p.g, &again);
                p.t.pool = NULL;
                rp_pool_destroy(pool);
            }
            problem_free(&p);
        }
}

/* The same elements elsewhere: rows apart, batch entries from last to first, and for arrays of terms elements apart. */
static rp_array scattered(problem *p, const rp_array *a, bool last_contiguous)
{
    const int64_t size = (int64_t)rp_dtype_size(a->dtype);
    rp_array to = *a;
    int64_t step = last_contiguous ? 1 : 2;
    if (!a->data || a->ndim == 0)
        return *a;
    for (int32_t x = a->ndim - 1; x >= 0; x--) {
        to.stride[x] = step;
        step = step * a->shape[x] + 3;
    }
    char *base = problem_alloc(p, (size_t)(step * size));
    assert_non_null(base);
    memset(base, 0x7f, (size_t)(step * size)); /* NaN between them */
    to.stride[0] = -to.stride[0];
    to.data = base + (a->shape[0] - 1) * -to.stride[0] * size;
    int64_t at_axis[RP_MAX_AXES] = {0};
    for (int64_t x = 0; x < problem_size(a); x++) {
        int64_t rest = x, from = 0, where = 0;
        for (int32_t axis = a->ndim - 1; axis >= 0; axis--) {
            at_axis[axis] = rest % a->shape[axis];
            rest /= a->shape[axis];
            from += at_axis[axis] * a->stride[axis];
            where += at_axis[axis] * to.stride[axis];
        }
        memcpy((char *)to.data + where * size, (char *)a->data + from * size, (size_t)size);
    }
    return to;
}

/* The elements of any view, in order. */
static void gathered(const rp_array *a, char *to)
{
    const int64_t size = (int64_t)rp_dtype_size(a->dtype);
    for (int64_t x = 0; x < problem_size(a); x++) {
        int64_t rest = x, from = 0;
        for (int32_t axis = a->ndim - 1; axis >= 0; axis--) {
            from += rest % a->shape[axis] * a->stride[axis];
            rest /= a->shape[axis];
        }
        memcpy(to + x * size, (char *)a->data + from * size, (size_t)size);
    }
}

static void strides(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_PATH(path)
        {
            if (path_n < 0 && n % 3)
                continue;
            pose(&p, 6, "bwd:%s:%s", n % 2 ? "bf16" : "f32", sums[n]);
            backward(&p, path, &p.g, true);
            rp_grads apart = p.g, kept = p.g, packed = gradients_like(&p, p.desc.dtype);
            rp_tensors t = p.t;
            apart.dout = scattered(&p, &p.g.dout, true);
            p.t.q = scattered(&p, &t.q, true);
            p.t.k = scattered(&p, &t.k, true);
            p.t.v = scattered(&p, &t.v, true);
            p.t.out = scattered(&p, &t.out, true);
            p.t.lse = scattered(&p, &t.lse, false);
            for (int m = 0; m < GRADIENTS; m++) {
                if (gradient(&kept, m)->data)
                    *gradient(&apart, m) = scattered(&p, gradient(&kept, m), m < 3);
                if (m >= 3)
                    *source_of(&p.t, m) = scattered(&p, source_of(&t, m), false);
            }
            for (int32_t m = 0; m < p.desc.n_masks; m++)
                p.t.mask[m] = scattered(&p, &t.mask[m], false);
            good(attempt_backward(&p, path, &apart, true));
            for (int m = 0; m < GRADIENTS; m++)
                if (gradient(&packed, m)->data)
                    gathered(gradient(&apart, m), gradient(&packed, m)->data);
            same_gradients(&p, path, "other strides", &kept, &packed);
            problem_free(&p);
        }
}

/* One batch entry alone: the axis that has as many entries as the batch keeps one. */
static void batch_alone(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_ISA(isa)
        {
            if (strstr(sums[n], "dropout")) /* goes by the number of the entry */
                continue;
            pose(&p, 7, "bwd:f32:%s", sums[n]);
            backward(&p, isa, &p.g, true);
            rp_grads alone = gradients_like(&p, RP_F32);
            const rp_desc whole = p.desc;
            const rp_tensors t = p.t;
            for (int64_t b = 0; b < whole.batch; b++) {
                int32_t ndim;
                int64_t before[RP_MAX_AXES], after[RP_MAX_AXES];
                rp_array *const fixed[] = {&p.t.q, &p.t.k, &p.t.v, &p.t.out, &p.t.lse, &alone.dout};
                const rp_array *const from[] = {&t.q, &t.k, &t.v, &t.out, &t.lse, &p.g.dout};
                for (int x = 0; x < 6; x++) {
                    *fixed[x] = *from[x];
                    fixed[x]->shape[0] = 1;
                    fixed[x]->data = (char *)from[x]->data + b * from[x]->stride[0] * 4;
                }
                p.desc.batch = 1;
                for (int m = 0; m < GRADIENTS; m++) {
                    rp_array *g = gradient(&alone, m), *a = source_of(&p.t, m);
                    const int32_t term = (m - 3) / RP_MAX_ARRAYS, x = (m - 3) % RP_MAX_ARRAYS;
                    if (m < 3)
                        g->shape[0] = 1;
                    else if (a->data) {
                        good(rp_term_shape(&whole, term, x, &ndim, before));
                        good(rp_term_shape(&p.desc, term, x, &ndim, after));
                        *a = t.term[term][x];
                        for (int32_t axis = 0; axis < ndim; axis++)
                            if (before[axis] != after[axis]) {
                                a->shape[axis] = 1;
                                a->data = (char *)a->data + b * a->stride[axis] * (int64_t)rp_dtype_size(a->dtype);
                                g->shape[axis] = 1;
                            }
                    }
                }
                for (int32_t m = 0; m < whole.n_masks; m++)
                    if (t.mask[m].data) {
                        p.t.mask[m] = t.mask[m];
                        p.t.mask[m].shape[0] = 1;
                        p.t.mask[m].data =
                            (char *)t.mask[m].data + b * t.mask[m].stride[0] * (int64_t)rp_dtype_size(t.mask[m].dtype);
                    }
                good(attempt_backward(&p, isa, &alone, true));
                for (int m = 0; m < 3; m++) {
                    const rp_array *g = gradient(&p.g, m);
                    same_bits(&p, isa, gradient_name(&p, m), (float *)g->data + b * g->stride[0],
                              gradient(&alone, m)->data, (size_t)g->stride[0] * 4);
                }
                p.desc = whole;
                p.t = t;
            }
            problem_free(&p);
        }
}

/* A gradient that is not wanted changes no bit of another. */
static void switches(void **state)
{
    problem p;
    const rp_array none = {0};
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_PATH(path)
        {
            if ((path_n + n) % 2 == 0 || path_n < 0)
                continue;
            pose(&p, 8, "bwd:f32:%s", sums[n]);
            backward(&p, path, &p.g, true);
            for (int m = 0; m < GRADIENTS; m++) {
                if (!gradient(&p.g, m)->data)
                    continue;
                rp_grads one = gradients_like(&p, RP_F32), others = one;
                for (int x = 0; x < GRADIENTS; x++)
                    *gradient(x == m ? &others : &one, x) = none;
                good(attempt_backward(&p, path, &one, true));
                same_gradients(&p, path, "alone", &one, &p.g);
                good(attempt_backward(&p, path, &others, true));
                same_gradients(&p, path, "all but one", &others, &p.g);
            }
            rp_grads nothing = rp_grads_init();
            nothing.dout = p.g.dout;
            good(attempt_backward(&p, path, &nothing, true));
            problem_free(&p);
        }
}

/* A flexible plan gives the bits of a plan for just these lengths. */
static void flexible(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_PATH(path)
        {
            if (strstr(sums[n], "grid") || (path_n < 0 && n % 3))
                continue;
            pose(&p, 9, "bwd:f32:%s", sums[n]);
            backward(&p, path, &p.g, true);
            rp_grads again = gradients_like(&p, RP_F32);
            p.desc.flexible = 1;
            p.desc.len_q += 70;
            p.desc.len_k += 400;
            backward(&p, path, &again, true);
            same_gradients(&p, path, "a flexible plan", &p.g, &again);
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ laws */

/* The sum of ds over a row is 0: along a constant added to every bias the loss does not change. */
static void constants(void **state)
{
    static const char *const texts[] = {
        "table,left=20,right=20", "t5,buckets=8,max_distance=20", "dense", "real,max_distance=30", "swin,grid=7x10",
        "axial,grid=10x7"};
    problem p;
    double worst = 0;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_PATH(path)
        {
            pose(&p, 10, "bwd:f64:b2h2q70k70d4v3:%s:%s", texts[n], n % 2 ? "mask" : "causal");
            backward(&p, path, &p.g, n % 2);
            for (int x = 0; x < RP_MAX_ARRAYS; x++) {
                const rp_array *g = &p.g.term[0][x];
                double sum = 0, size = 0;
                for (int64_t e = 0; g->data && e < problem_size(g); e++) {
                    sum += at(g, e);
                    size += fabs(at(g, e));
                }
                worst = fmax(worst, size > 0 ? fabs(sum) / size : 0);
                if (!(fabs(sum) <= 1e-13 * size))
                    wrong(&p, path, "%s sums to %.3g, of %.3g", gradient_name(&p, 3 + x), sum, size);
            }
            problem_free(&p);
        }
    print_message("sums over all biases: error %.3g, tolerance 1e-13\n", worst);
}

/* Keys that nobody attends to and queries that attend to nothing: exact zeros, and their NaN reach no other gradient. */
static void masked(void **state)
{
    static const char *const texts[] = {"t5,buckets=8,max_distance=20+dense",
                                        "relkey,left=3,right=3+relval,left=3,right=3",
                                        "rope+alibi,slopes=x",
                                        "xl",
                                        "deberta,span=5",
                                        "real,max_distance=9",
                                        "fire,c=1,L=4,width=3",
                                        "axialkey,grid=10x7+swin,grid=10x7",
                                        "sink"};
    enum { L = 70, KEY = 33, ROW = 41, D = 5 };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_PATH(path)
        {
            pose(&p, 11, "bwd:f32:b1h2q%dk%dd6v5:%s:mask%s", L, L, texts[n], n % 2 ? "+softcap=2" : "");
            uint8_t *mask = p.t.mask[0].data;
            for (int64_t x = 0; x < 2 * L * L; x++)
                if (x % L == KEY || x / L % L == ROW)
                    mask[x] = 0;
            rp_grads first = gradients_like(&p, RP_F32);
            for (int given = 0; given < 2; given++) {
                backward(&p, path, &first, given);
                float *q = copy_of(&p.t.q), *k = copy_of(&p.t.k), *v = copy_of(&p.t.v), *dout = copy_of(&p.g.dout);
                for (int64_t h = 0; h < 2; h++) {
                    for (int64_t c = 0; c < 6; c++) {
                        ((float *)p.t.q.data)[(h * L + ROW) * 6 + c] = c % 2 ? NAN : INFINITY;
                        ((float *)p.t.k.data)[(h * L + KEY) * 6 + c] = c % 2 ? NAN : -INFINITY;
                    }
                    for (int64_t c = 0; c < 5; c++) {
                        ((float *)p.t.v.data)[(h * L + KEY) * 5 + c] = c % 2 ? INFINITY : NAN;
                        ((float *)p.g.dout.data)[(h * L + ROW) * 5 + c] = c ? NAN : INFINITY;
                    }
                }
                backward(&p, path, &p.g, given);
                same_gradients(&p, path, "NaN in what is masked", &first, &p.g);
                for (int64_t h = 0; h < 2; h++)
                    for (int64_t c = 0; c < 6; c++)
                        if (at(&p.g.dq, (h * L + ROW) * 6 + c) != 0 || at(&p.g.dk, (h * L + KEY) * 6 + c) != 0 ||
                            (c < 5 && at(&p.g.dv, (h * L + KEY) * 5 + c) != 0))
                            wrong(&p, path, "a gradient of a masked row or key is not 0");
                memcpy(p.t.q.data, q, 2 * L * 6 * 4);
                memcpy(p.t.k.data, k, 2 * L * 6 * 4);
                memcpy(p.t.v.data, v, 2 * L * 5 * 4);
                memcpy(p.g.dout.data, dout, 2 * L * 5 * 4);
                free(q), free(k), free(v), free(dout);
            }
            problem_free(&p);
        }
    /* a bias of -infinity masks as a mask does */
    EACH_PATH(path)
    {
        pose(&p, 12, "bwd:f64:b1h2q%dk%dd4:dense:mask", L, L);
        backward(&p, path, &p.g, false);
        rp_grads by_bias = gradients_like(&p, RP_F64);
        for (int64_t x = 0; x < 2 * L * L; x++)
            if (!((uint8_t *)p.t.mask[0].data)[x])
                ((double *)p.t.term[0][0].data)[x] = -INFINITY;
        p.desc.n_masks = 0;
        backward(&p, path, &by_bias, false);
        for (int m = 0; m < 4; m++)
            near(&p, path, "masked by a bias", gradient(&by_bias, m)->data, gradient(&p.g, m)->data,
                 problem_size(gradient(&p.g, m)), 0);
        for (int64_t x = 0; x < 2 * L * L; x++)
            if (!((uint8_t *)p.t.mask[0].data)[x] && at(&by_bias.term[0][0], x) != 0)
                wrong(&p, path, "the gradient of a bias of -infinity is not 0");
        problem_free(&p);
    }
    /* no keys, no queries, nothing at all */
    static const char *const empty[] = {"b2h2q5k0d4", "b2h2q0k5d4", "b0h2q5k5d4"};
    for (int n = 0; n < 3; n++)
        EACH_PATH(path)
        {
            pose(&p, 13, "bwd:f32:%s:t5+dense+relkey,left=1,right=1+relval,left=1,right=1+sink+forget:causal",
                 empty[n]);
            for (int m = 0; m < GRADIENTS; m++)
                memset(gradient(&p.g, m)->data ? gradient(&p.g, m)->data : &p.pass, 0x7f,
                       gradient(&p.g, m)->data ? (size_t)problem_size(gradient(&p.g, m)) * 4 : 0);
            backward(&p, path, &p.g, n % 2);
            for (int m = 0; m < GRADIENTS; m++)
                for (int64_t x = 0; gradient(&p.g, m)->data && x < problem_size(gradient(&p.g, m)); x++)
                    if (at(gradient(&p.g, m), x) != 0)
                        wrong(&p, path, "%s[%lld] of nothing is %g", gradient_name(&p, m), (long long)x,
                              at(gradient(&p.g, m), x));
            problem_free(&p);
        }
}

/* NaN in what is attended reaches the row, the keys it attends to, and no other. */
static void reach(void **state)
{
    enum { L = 40, ROW = 13 };
    problem p;
    (void)state;
    EACH_PATH(path)
    for (int where = 0; where < 2; where++) {
        pose(&p, 14, "bwd:f32:b1h2q%dk%dd4:alibi:causal", L, L);
        rp_grads clean = gradients_like(&p, RP_F32);
        backward(&p, path, &clean, false);
        float *data = where ? p.g.dout.data : p.t.q.data;
        data[ROW * 4 + 1] = NAN; /* of head 0 */
        backward(&p, path, &p.g, false);
        for (int64_t x = 0; x < 2 * L * 4; x++) {
            const int64_t i = x / 4 % L, h = x / 4 / L;
            const bool key = h == 0 && i <= ROW, row = h == 0 && i == ROW;
            if (!row && at(&p.g.dq, x) != at(&clean.dq, x))
                wrong(&p, path, "NaN in row %d of %s reaches row %lld of dq", ROW, where ? "dout" : "q", (long long)i);
            if (!key && (at(&p.g.dk, x) != at(&clean.dk, x) || at(&p.g.dv, x) != at(&clean.dv, x)))
                wrong(&p, path, "NaN in row %d of %s reaches key %lld", ROW, where ? "dout" : "q", (long long)i);
            if (row && !isnan(at(&p.g.dq, x)))
                wrong(&p, path, "NaN in row %d of %s is lost: dq is %g", ROW, where ? "dout" : "q", at(&p.g.dq, x));
            if (key && (!isnan(at(&p.g.dk, x)) || (!isnan(at(&p.g.dv, x)) && (x % 4 == 1 || !where))))
                wrong(&p, path, "NaN in row %d of %s is lost: dk is %g, dv %g", ROW, where ? "dout" : "q",
                      at(&p.g.dk, x), at(&p.g.dv, x));
        }
        problem_free(&p);
    }
}

/* Each head's keys or values, once for each of the two query heads that share them. */
static rp_array repeated(problem *p, const rp_array *a)
{
    const int64_t shape[4] = {a->shape[0], 2 * a->shape[1], a->shape[2], a->shape[3]}, head = a->stride[1];
    rp_array to = array_in(p, RP_F64, 4, shape);
    for (int64_t n = 0; n < shape[0] * shape[1]; n++)
        memcpy((double *)to.data + n * head, (double *)a->data + n / 2 * head, (size_t)head * 8);
    return to;
}

/* The gradients of two neighbouring heads added, in place. */
static void add_pairs(rp_array *a)
{
    double *data = a->data;
    for (int64_t n = 0; n < a->shape[0] * a->shape[1] / 2; n++)
        for (int64_t x = 0; x < a->stride[1]; x++)
            data[n * a->stride[1] + x] = data[2 * n * a->stride[1] + x] + data[(2 * n + 1) * a->stride[1] + x];
}

/* Shared heads are repeated heads whose gradients are added. */
static void shared_heads(void **state)
{
    problem p;
    double worst = 0;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_PATH(path)
        {
            if (path_n < 0 && n % 3)
                continue;
            pose(&p, 15, "bwd:f64:%s", sums[n]);
            rp_grads each = gradients_like(&p, RP_F64);
            backward(&p, path, &p.g, false);
            p.t.k = repeated(&p, &p.t.k);
            p.t.v = repeated(&p, &p.t.v);
            p.desc.kv_heads = p.desc.heads;
            each.dk = array_in(&p, RP_F64, 4, p.t.k.shape);
            each.dv = array_in(&p, RP_F64, 4, p.t.v.shape);
            backward(&p, path, &each, false);
            add_pairs(&each.dk);
            add_pairs(&each.dv);
            for (int m = 0; m < GRADIENTS; m++) {
                const rp_array *g = gradient(&p.g, m);
                if (g->data)
                    worst = fmax(worst, near(&p, path, gradient_name(&p, m), gradient(&each, m)->data, g->data,
                                             problem_size(g), 0));
            }
            problem_free(&p);
        }
    print_message("shared heads: error %.3g, tolerance 1e-12\n", worst);
}

/* The sum over the axes where `to` has one entry. */
static void reduce(const rp_array *from, const rp_array *to, double *sum)
{
    memset(sum, 0, (size_t)problem_size(to) * 8);
    for (int64_t x = 0; x < problem_size(from); x++) {
        int64_t rest = x, where = 0;
        for (int32_t axis = 3; axis >= 0; axis--) {
            where += to->shape[axis] == 1 ? 0 : rest % from->shape[axis] * to->stride[axis];
            rest /= from->shape[axis];
        }
        sum[where] += at(from, x);
    }
}

/* A dense bias in all sixteen shapes: the reduced gradient of the full one. */
static void broadcast(void **state)
{
    problem p;
    const int64_t full[4] = {2, 3, 11, 70};
    (void)state;
    EACH_PATH(path)
    for (int ones = 0; ones < 32; ones++) { /* the last bit: two biases, this one and a full one */
        int64_t shape[4];
        for (int x = 0; x < 4; x++)
            shape[x] = ones >> x & 1 ? 1 : full[x];
        pose(&p, 16, "bwd:f64:b2h3q11k70d4v3:dense%s:causal", ones & 16 ? "+dense" : "");
        /* the narrow array, and the same spread over the full shape */
        rp_array narrow = rp_array_of(p.t.term[0][0].data, RP_F64, 4, shape), wide = array_in(&p, RP_F64, 4, full);
        for (int64_t x = 0; x < problem_size(&wide); x++) {
            int64_t rest = x, from = 0;
            for (int axis = 3; axis >= 0; axis--) {
                from += shape[axis] == 1 ? 0 : rest % full[axis] * narrow.stride[axis];
                rest /= full[axis];
            }
            ((double *)wide.data)[x] = at(&narrow, from);
        }
        p.t.term[0][0] = wide;
        backward(&p, path, &p.g, false);
        rp_grads g = gradients_like(&p, RP_F64);
        p.t.term[0][0] = narrow;
        g.term[0][0] = array_in(&p, RP_F64, 4, shape);
        backward(&p, path, &g, ones & 1);
        double *want = malloc((size_t)problem_size(&narrow) * 8);
        reduce(&p.g.term[0][0], &narrow, want);
        near(&p, path, "the gradient of a bias that broadcasts", g.term[0][0].data, want, problem_size(&narrow), 1);
        free(want);
        for (int m = 0; m < 3; m++)
            near(&p, path, gradient_name(&p, m), gradient(&g, m)->data, gradient(&p.g, m)->data,
                 problem_size(gradient(&g, m)), 0);
        problem_free(&p);
    }
    /* fewer axes align right; no axes at all is one number, along which the loss does not change */
    EACH_PATH(path)
    {
        pose(&p, 16, "bwd:f64:b2h3q11k70d4v3:dense:");
        p.t.term[0][0].ndim = p.g.term[0][0].ndim = 0;
        backward(&p, path, &p.g, false);
        if (!(fabs(at(&p.g.term[0][0], 0)) <= 1e-12))
            wrong(&p, path, "one bias for all pairs has the gradient %g", at(&p.g.term[0][0], 0));
        problem_free(&p);
    }
}

/* A table that heads share has the sum of their gradients. */
static void shared_tables(void **state)
{
    static const struct {
        const char *text;
        int axis, array; /* of the heads; 2: it is not there */
    } cases[] = {{"table,left=5,right=5", 0, 0}, {"t5,buckets=8,max_distance=20", 1, 0},
                 {"alibi,slopes=x", 0, 0},       {"kerple", 0, 1},
                 {"real,max_distance=9", 0, 0},  {"swin,grid=10x7", 1, 0},
                 {"axial,grid=10x7", 0, 1},      {"xl", 2, 0},
                 {"deberta,span=5", 2, 1},       {"sink", 0, 0}};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        EACH_PATH(path)
        {
            pose(&p, 17, "bwd:f64:b2h3q70k70d4:%s:causal", cases[n].text);
            rp_array *a = &p.t.term[0][cases[n].array], *g = &p.g.term[0][cases[n].array], narrow = *a, wide;
            int64_t shape[3] = {3, a->shape[0], a->shape[1]}; /* vectors are made without the axis of heads */
            if (cases[n].axis < 2)
                memcpy(shape, a->shape, sizeof shape), narrow.shape[cases[n].axis] = 1;
            wide = rp_array_of(a->data, RP_F64, a->ndim + (cases[n].axis == 2), shape);
            wide.stride[cases[n].axis % 2] = 0; /* every head reads the first */
            *a = wide;
            *g = array_in(&p, RP_F64, wide.ndim, wide.shape);
            backward(&p, path, &p.g, false);
            rp_grads one = gradients_like(&p, RP_F64);
            rp_array *sum = &one.term[0][cases[n].array];
            *sum = array_in(&p, RP_F64, narrow.ndim, narrow.shape);
            *a = narrow;
            backward(&p, path, &one, true);
            const int64_t m = problem_size(sum);
            double *want = calloc((size_t)m, 8);
            for (int64_t x = 0; x < problem_size(g); x++)
                want[cases[n].axis == 1 ? x / 3 : x % m] += at(g, x);
            near(&p, path, gradient_name(&p, 3 + cases[n].array), sum->data, want, m, 0);
            free(want);
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ slips */

static const char *const slip_text =
    "bwd:f32:b2h4g2q5k7d8v6:t5,buckets=8,q_positions=x+dense+relkey,left=2,right=1+alibi:"
    "mask";

static void refused(problem *p, rp_grads *g, void *work, rp_status want, const char *field)
{
    EACH_PATH(path)
    {
        rp_plan *plan;
        p->desc.isa = path;
        for (int n = 0; n < GRADIENTS; n++)
            if (gradient(&p->g, n)->data)
                memset(gradient(&p->g, n)->data, 0xa5, (size_t)problem_size(gradient(&p->g, n)) * 4);
        good(rp_plan_create(&plan, &p->desc));
        const rp_status status = rp_backward(plan, &p->t, g, work);
        if (status != want || !strstr(rp_last_error(), field) || strchr(rp_last_error(), '\n'))
            wrong(p, path, "%s \"%s\", not %s that names %s", rp_status_name(status),
                  status == RP_OK ? "" : rp_last_error(), rp_status_name(want), field);
        for (int n = 0; n < GRADIENTS; n++)
            for (int64_t x = 0; gradient(&p->g, n)->data && x < 4 * problem_size(gradient(&p->g, n)); x++)
                if (((unsigned char *)gradient(&p->g, n)->data)[x] != 0xa5)
                    wrong(p, path, "%s: %s was written", rp_last_error(), gradient_name(p, n));
        rp_plan_destroy(plan);
    }
    problem_free(p);
}

#define SLIP(change, status, field)                                                                                    \
    do {                                                                                                               \
        problem p;                                                                                                     \
        pose(&p, 1, "%s", slip_text);                                                                                  \
        rp_grads grads = p.g, *g = &grads;                                                                             \
        rp_tensors *t = &p.t;                                                                                          \
        void *work = NULL;                                                                                             \
        (void)t, (void)g, (void)work;                                                                                  \
        change;                                                                                                        \
        refused(&p, g, work, status, field);                                                                           \
    } while (0)

static void slips(void **state)
{
    static double room[4096];
    const int64_t three[4] = {2, 4, 5, 7}, slopes[1] = {4}, positions[1] = {5};
    (void)state;
    SLIP(g->size--, RP_E_ARG, "grads");
    SLIP(t->size--, RP_E_ARG, "tensors");
    SLIP(g->dout.data = NULL, RP_E_ARG, "dout");
    SLIP(t->q.data = NULL, RP_E_ARG, "q");
    SLIP(t->v.data = NULL, RP_E_ARG, "v is absent");
    SLIP(t->term[0][0].data = NULL, RP_E_ARG, "term[0].table");
    SLIP(t->mask[0].data = NULL, RP_E_ARG, "mask[0]");
    SLIP(t->weights = rp_array_of(room, RP_F32, 4, three), RP_E_ARG, "output beside out and lse");
    SLIP(t->entropy = rp_array_of(room, RP_F32, 3, three), RP_E_ARG, "output beside out and lse");
    /* gradients that do not exist */
    SLIP(g->term[0][1] = rp_array_of(room, RP_F32, 1, positions), RP_E_ARG, "term[0].q_positions");
    SLIP(g->term[3][0] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "term[3].slopes");
    /* each gradient and dout: shape, axes, type, strides, address */
    static const struct {
        const char *name;
        size_t offset;
    } all[] = {
        {"dout", offsetof(rp_grads, dout)},
        {"dq", offsetof(rp_grads, dq)},
        {"dk", offsetof(rp_grads, dk)},
        {"dv", offsetof(rp_grads, dv)},
        {"term[0].table", offsetof(rp_grads, term)},
        {"term[1].bias", offsetof(rp_grads, term) + sizeof(rp_array) * RP_MAX_ARRAYS},
        {"term[2].table", offsetof(rp_grads, term) + 2 * sizeof(rp_array) * RP_MAX_ARRAYS},
    };
#define ARRAY ((rp_array *)(void *)((char *)g + all[n].offset))
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const char *name = all[n].name;
        const int output = n > 0;
        SLIP(ARRAY->shape[0]++, RP_E_SHAPE, name);
        SLIP(ARRAY->shape[1]--, RP_E_SHAPE, name);
        SLIP(ARRAY->ndim--, RP_E_SHAPE, name);
        SLIP(ARRAY->ndim = 5, RP_E_SHAPE, name);
        SLIP(ARRAY->dtype = RP_I32, RP_E_ARG, name);
        SLIP(ARRAY->dtype = (rp_dtype)13, RP_E_ARG, name);
        SLIP(ARRAY->data = (char *)ARRAY->data + 2, RP_E_ARG, name);
        SLIP(ARRAY->stride[0] = INT64_MAX, RP_E_OVERFLOW, name);
        if (n < 4)
            SLIP(ARRAY->stride[3] = 2, RP_E_STRIDE, name);
        if (!output)
            continue;
        SLIP(ARRAY->stride[0] = 0, RP_E_STRIDE, name);
        SLIP(ARRAY->shape[0] = 1, RP_E_SHAPE, name);
        SLIP(ARRAY->data = t->q.data, RP_E_OVERLAP, "lies over");
        SLIP(ARRAY->data = (char *)t->term[1][0].data + 4, RP_E_OVERLAP, "lies over");
        SLIP(ARRAY->data = t->out.data, RP_E_OVERLAP, "lies over");
        SLIP(ARRAY->data = g->dout.data, RP_E_OVERLAP, "lies over");
        SLIP(ARRAY->data = t->mask[0].data, RP_E_OVERLAP, "lies over");
        SLIP(ARRAY->data = n == 1 ? g->dk.data : g->dq.data, RP_E_OVERLAP, "lies over");
    }
#undef ARRAY
    SLIP(work = (char *)room + 4, RP_E_ARG, "work");
    problem p;
    rp_plan *plan;
    pose(&p, 1, "%s", slip_text);
    good(rp_plan_create(&plan, &p.desc));
    assert_int_equal(rp_backward(NULL, &p.t, &p.g, NULL), RP_E_ARG);
    assert_int_equal(rp_backward(plan, NULL, &p.g, NULL), RP_E_ARG);
    assert_int_equal(rp_backward(plan, &p.t, NULL, NULL), RP_E_ARG);
    assert_int_equal(rp_gradient_bound(plan, &p.t, NULL), RP_E_ARG);
    assert_int_equal(rp_plan_backward_size(NULL, NULL), 0);
    /* work of the size that was said, between pages that may not be touched */
    const size_t bytes = rp_plan_backward_size(plan, NULL);
    assert_true(bytes > 0);
    fence f = fence_of((bytes + 63) / 64 * 64, true);
    good(rp_backward(plan, &p.t, &p.g, f.data));
    assert_true(fence_intact(&f, (bytes + 63) / 64 * 64));
    fence_free(&f);
    rp_plan_destroy(plan);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences),   cmocka_unit_test(sizes),     cmocka_unit_test(windows),
        cmocka_unit_test(large),         cmocka_unit_test(storage),   cmocka_unit_test(threads),
        cmocka_unit_test(narrow_lse),    cmocka_unit_test(strides),   cmocka_unit_test(batch_alone),
        cmocka_unit_test(switches),      cmocka_unit_test(flexible),  cmocka_unit_test(constants),
        cmocka_unit_test(masked),        cmocka_unit_test(reach),     cmocka_unit_test(shared_heads),
        cmocka_unit_test(shared_tables), cmocka_unit_test(broadcast), cmocka_unit_test(slips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
