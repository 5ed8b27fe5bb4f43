/* test_gradient_laws.c -- laws that follow from the formulas: sums that vanish, masked pairs, shared heads, broadcast
 * arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/gradients.h"

/* The sum of ds over a row is 0, because adding a constant to every bias does not change the loss. */
static void gradients_of_all_biases_sum_to_zero(void **state)
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

enum { L = 70, KEY = 33, ROW = 41 };

/* A key without a query, or a query without a key, gets a gradient of exactly 0. NaN in it affects no other
 * gradient. */
static void masked_pairs_have_zero_gradients(void **state)
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
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_PATH(path)
        {
            pose(&p, 11, "bwd:f32:b1h2q%dk%dd6v5:%s:mask%s", L, L, texts[n],
                 n % 2 ? "+softcap=2" : "+dlse+dweights+dsummary");
            uint8_t *mask = p.t.mask[0].data;
            for (int64_t x = 0; x < 2 * L * L; x++)
                if (x % L == KEY || x / L % L == ROW) {
                    mask[x] = 0;
                    if (p.g.dweights.data)
                        ((float *)p.g.dweights.data)[x] = x % 2 ? NAN : INFINITY;
                }
            rp_grads first = gradients_like(&p, RP_F32);
            for (int given = 0; given < 2; given++) {
                backward(&p, path, &first, given);
                float *q = copy_of(&p.t.q), *k = copy_of(&p.t.k), *v = copy_of(&p.t.v), *dout = copy_of(&p.g.dout);
                for (int64_t h = 0; h < 2; h++) {
                    for (int64_t c = 0; c < 6; c++) {
                        ((float *)p.t.q.data)[(h * L + ROW) * 6 + c] = c % 2 ? NAN : INFINITY;
                        ((float *)p.t.k.data)[(h * L + KEY) * 6 + c] = c % 2 ? NAN : -INFINITY;
                    }
                    if (p.g.dlse.data && strcmp(texts[n], "sink") != 0) /* in this case lse is the lse of the sink */
                        ((float *)p.g.dlse.data)[h * L + ROW] = NAN;
                    if (p.dsummary) {
                        ((float *)p.g.dentropy.data)[h * L + ROW] = INFINITY;
                        ((float *)p.g.dkey_mass.data)[h * L + KEY] = NAN;
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
}

static void a_bias_of_minus_infinity_masks(void **state)
{
    problem p;
    (void)state;
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
}

/* No keys, no queries, or no batch entries. */
static void empty_arrays_give_zero_gradients(void **state)
{
    problem p;
    (void)state;
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

/* NaN in an attended element affects the gradients of its row and of the keys that this row attends to, and no
 * others. */
static void nan_reaches_only_its_row_and_keys(void **state)
{
    enum { N = 40, AT = 13 };
    problem p;
    (void)state;
    EACH_PATH(path)
    for (int where = 0; where < 2; where++) {
        pose(&p, 14, "bwd:f32:b1h2q%dk%dd4:alibi:causal", N, N);
        rp_grads clean = gradients_like(&p, RP_F32);
        backward(&p, path, &clean, false);
        float *data = where ? p.g.dout.data : p.t.q.data;
        data[AT * 4 + 1] = NAN; /* of head 0 */
        backward(&p, path, &p.g, false);
        for (int64_t x = 0; x < 2 * N * 4; x++) {
            const int64_t i = x / 4 % N, h = x / 4 / N;
            const bool key = h == 0 && i <= AT, row = h == 0 && i == AT;
            if (!row && at(&p.g.dq, x) != at(&clean.dq, x))
                wrong(&p, path, "NaN in row %d of %s reaches row %lld of dq", AT, where ? "dout" : "q", (long long)i);
            if (!key && (at(&p.g.dk, x) != at(&clean.dk, x) || at(&p.g.dv, x) != at(&clean.dv, x)))
                wrong(&p, path, "NaN in row %d of %s reaches key %lld", AT, where ? "dout" : "q", (long long)i);
            if (row && !isnan(at(&p.g.dq, x)))
                wrong(&p, path, "NaN in row %d of %s is lost: dq is %g", AT, where ? "dout" : "q", at(&p.g.dq, x));
            if (key && (!isnan(at(&p.g.dk, x)) || (!isnan(at(&p.g.dv, x)) && (x % 4 == 1 || !where))))
                wrong(&p, path, "NaN in row %d of %s is lost: dk is %g, dv %g", AT, where ? "dout" : "q",
                      at(&p.g.dk, x), at(&p.g.dv, x));
        }
        problem_free(&p);
    }
}

/* Copy the keys or values of each head, once for each of the two query heads that share it. */
static rp_array repeated(problem *p, const rp_array *a)
{
    const int64_t shape[4] = {a->shape[0], 2 * a->shape[1], a->shape[2], a->shape[3]}, head = a->stride[1];
    rp_array to = array_in(p, RP_F64, 4, shape);
    for (int64_t n = 0; n < shape[0] * shape[1]; n++)
        memcpy((double *)to.data + n * head, (double *)a->data + n / 2 * head, (size_t)head * 8);
    return to;
}

/* Add the gradients of each two adjacent heads, in place. */
static void add_pairs(rp_array *a)
{
    double *data = a->data;
    for (int64_t n = 0; n < a->shape[0] * a->shape[1] / 2; n++)
        for (int64_t x = 0; x < a->stride[1]; x++)
            data[n * a->stride[1] + x] = data[2 * n * a->stride[1] + x] + data[(2 * n + 1) * a->stride[1] + x];
}

/* Shared heads give the sum of the gradients that separate copies of them would get. */
static void shared_heads_add_their_gradients(void **state)
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

/* Sum over the axes that have length 1 in `to`. */
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

/* A dense bias may have sixteen shapes. Its gradient is the gradient of the full bias, summed over the broadcast
 * axes. */
static void broadcast_biases_sum_the_gradient(void **state)
{
    problem p;
    const int64_t full[4] = {2, 3, 11, 70};
    (void)state;
    EACH_PATH(path)
    for (int ones = 0; ones < 32; ones++) { /* if the highest bit is set, add a second, full bias */
        int64_t shape[4];
        for (int x = 0; x < 4; x++)
            shape[x] = ones >> x & 1 ? 1 : full[x];
        pose(&p, 16, "bwd:f64:b2h3q11k70d4v3:dense%s:causal", ones & 16 ? "+dense" : "");
        /* the narrow array; the same array, broadcast to the full shape */
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
}

/* Batch entries that share an entry of a bias have the results of a bias that has it for each of them, and its gradient
 * is their sum, with the same bits for any number of threads. */
static void shared_entries_sum_the_gradient(void **state)
{
    static const struct {
        int64_t interleave, tile, heads, rows; /* heads and rows of the bias: 1 broadcasts */
    } cases[] = {{3, 1, 2, 11}, {1, 3, 2, 11}, {2, 1, 2, 11}, {1, 2, 2, 11}, {3, 2, 2, 11},
                 {2, 3, 1, 11}, {1, 2, 1, 11}, {2, 1, 2, 1},  {1, 3, 1, 1},  {6, 1, 2, 11}};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        EACH_PATH(path)
        {
            const int64_t r = cases[n].interleave, entries = 6 / (r * cases[n].tile), full[4] = {6, 2, 11, 270},
                          shape[4] = {entries, cases[n].heads, cases[n].rows, 270};
            pose(&p, 18, "bwd:f64:b6h2q11k270d4v3:dense:causal");
            rp_array narrow = rp_array_of(p.t.term[0][0].data, RP_F64, 4, shape), wide = array_in(&p, RP_F64, 4, full);
            for (int64_t x = 0; x < problem_size(&wide); x++)
                ((double *)wide.data)[x] = at(&narrow, x / (2 * 11 * 270) / r % entries * narrow.stride[0] +
                                                           x / (11 * 270) % 2 % shape[1] * narrow.stride[1] +
                                                           x / 270 % 11 % shape[2] * narrow.stride[2] + x % 270);
            p.t.term[0][0] = wide;
            backward(&p, path, &p.g, false);
            rp_grads g = gradients_like(&p, RP_F64), again = gradients_like(&p, RP_F64);
            p.t.term[0][0] = narrow;
            p.terms[0].integer[0] = r;
            p.terms[0].integer[1] = cases[n].tile;
            g.term[0][0] = array_in(&p, RP_F64, 4, shape);
            again.term[0][0] = array_in(&p, RP_F64, 4, shape);
            backward(&p, path, &g, n % 2);
            double *want = calloc((size_t)problem_size(&narrow), 8);
            for (int64_t x = 0; x < problem_size(&wide); x++)
                want[x / (2 * 11 * 270) / r % entries * narrow.stride[0] +
                     x / (11 * 270) % 2 % shape[1] * narrow.stride[1] + x / 270 % 11 % shape[2] * narrow.stride[2] +
                     x % 270] += at(&p.g.term[0][0], x);
            near(&p, path, "the gradient of a bias that batch entries share", g.term[0][0].data, want,
                 problem_size(&narrow), 1);
            free(want);
            for (int m = 0; m < 3; m++)
                near(&p, path, gradient_name(&p, m), gradient(&g, m)->data, gradient(&p.g, m)->data,
                     problem_size(gradient(&g, m)), 0);
            good(rp_pool_create(&p.t.pool, 3));
            backward(&p, path, &again, n % 2);
            rp_pool_destroy(p.t.pool);
            same_gradients(&p, path, "three threads", &g, &again);
            rp_grads each = gradients_like(&p, RP_F64); /* of each batch entry */
            const int64_t samples[4] = {6, shape[1], shape[2], 270}, per_entry = shape[1] * shape[2] * 270;
            each.term[0][0] = array_in(&p, RP_F64, 4, samples);
            p.t.pool = NULL;
            backward(&p, path, &each, false);
            want = calloc((size_t)problem_size(&narrow), 8);
            for (int64_t x = 0; x < 6 * per_entry; x++)
                want[x / per_entry / r % entries * per_entry + x % per_entry] += at(&each.term[0][0], x);
            near(&p, path, "the sum of the gradients of batch entries", g.term[0][0].data, want, problem_size(&narrow),
                 1);
            free(want);
            problem_free(&p);
        }
}

/* A bias without axes is a single number, which does not change the loss. */
static void one_bias_for_all_pairs_has_no_gradient(void **state)
{
    problem p;
    (void)state;
    EACH_PATH(path)
    {
        pose(&p, 16, "bwd:f64:b2h3q11k70d4v3:dense:");
        p.t.term[0][0].ndim = p.g.term[0][0].ndim = 0;
        backward(&p, path, &p.g, false);
        if (!(fabs(at(&p.g.term[0][0], 0)) <= 1e-12))
            wrong(&p, path, "one bias for all pairs: the gradient is %g", at(&p.g.term[0][0], 0));
        problem_free(&p);
    }
}

/* A table that all heads share gets the sum of the gradients of all heads. */
static void shared_tables_sum_over_heads(void **state)
{
    static const struct {
        const char *text;
        int axis, array; /* axis of the heads, or 2 if the array has none; index of the array */
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
            int64_t shape[3] = {3, a->shape[0], a->shape[1]}; /* vectors are computed without the axis of heads */
            if (cases[n].axis < 2)
                memcpy(shape, a->shape, sizeof shape), narrow.shape[cases[n].axis] = 1;
            wide = rp_array_of(a->data, RP_F64, a->ndim + (cases[n].axis == 2), shape);
            wide.stride[cases[n].axis % 2] = 0; /* every head reads the table of head 0 */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_all_biases_sum_to_zero), cmocka_unit_test(masked_pairs_have_zero_gradients),
        cmocka_unit_test(a_bias_of_minus_infinity_masks),      cmocka_unit_test(empty_arrays_give_zero_gradients),
        cmocka_unit_test(nan_reaches_only_its_row_and_keys),   cmocka_unit_test(shared_heads_add_their_gradients),
        cmocka_unit_test(broadcast_biases_sum_the_gradient),   cmocka_unit_test(one_bias_for_all_pairs_has_no_gradient),
        cmocka_unit_test(shared_tables_sum_over_heads),        cmocka_unit_test(shared_entries_sum_the_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
