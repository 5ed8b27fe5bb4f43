/* test_inspection.c -- inspecting a call: summaries of its weights, the trace of a row, and biases alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/definition.h"

/* Compare profile, mass and entropy with sums over the weights from the same call. */
static void summaries_equal_sums_of_weights(void **state)
{
    static const char *const texts[] = {
        "b2h2q40k70d8:t5:causal",
        "b1h4g2q210k300d5:alibi:window=40,20",
        "b1h2q7k1100d6o500:dense:",
        "b1h1q130k9d4o-50:table,left=3,right=3:causal",
        "b1h1q1k1d3::",
        "b1h2q97k513d4:relkey,left=3,right=3:mask+softcap=2",
        "b2h1q20k20d4:rope:segments",
        "b1h1q800k40d4::lengths",
    };
    problem p;
    double worst = 0;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_PATH(isa)
        {
            pose(&p, 80, "fwd:f32:%s", texts[n]);
            also(&p, WITH_ALL, RP_F64);
            attend(&p, isa);
            const int64_t Lq = p.desc.len_q, Lk = p.desc.len_k, heads = p.desc.batch * p.desc.heads, T = Lq + Lk - 1;
            double *profile = calloc((size_t)T, 8), *mass = calloc((size_t)Lk, 8), *pairs = calloc((size_t)T, 8);
            for (int64_t h = 0; h < heads; h++) {
                memset(profile, 0, (size_t)T * 8);
                memset(pairs, 0, (size_t)T * 8);
                memset(mass, 0, (size_t)Lk * 8);
                for (int64_t r = 0; r < Lq; r++) {
                    double entropy = 0;
                    for (int64_t j = 0; j < Lk; j++) {
                        const double w = at(&p.t.weights, (h * Lq + r) * Lk + j);
                        /* profile[t] is for delta = t - (Lq-1+q_offset), and delta = j - (r + q_offset) */
                        profile[j - r + Lq - 1] += w;
                        pairs[j - r + Lq - 1]++;
                        mass[j] += w;
                        entropy -= w > 0 ? w * log(w) : 0;
                    }
                    const double error = fabs(at(&p.t.entropy, h * Lq + r) - entropy);
                    worst = fmax(worst, error);
                    if (!(error <= 2e-5))
                        wrong(&p, isa, "entropy of row %lld of head %lld is %.9g, not %.9g", (long long)r, (long long)h,
                              at(&p.t.entropy, h * Lq + r), entropy);
                }
                for (int64_t t = 0; t < T; t++) {
                    const double want = profile[t] / pairs[t], got = at(&p.t.profile, h * T + t);
                    if (!(fabs(got - want) <= 4e-6 * want + 1e-12))
                        wrong(&p, isa, "profile[%lld] of head %lld is %.9g, not %.9g", (long long)t, (long long)h, got,
                              want);
                }
                for (int64_t j = 0; j < Lk; j++)
                    if (!(fabs(at(&p.t.key_mass, h * Lk + j) - mass[j]) <= 4e-6 * mass[j] + 1e-12))
                        wrong(&p, isa, "key_mass[%lld] of head %lld is %.9g, not %.9g", (long long)j, (long long)h,
                              at(&p.t.key_mass, h * Lk + j), mass[j]);
            }
            free(profile);
            free(mass);
            free(pairs);
            problem_free(&p);
        }
    print_message("entropy: error %.3g, tolerance %.3g\n", worst, 2e-5);
}

/* The trace of a row matches the reference's row, and rp_bias matches the part of the score that comes from biases. */
static void traced_rows_equal_the_reference(void **state)
{
    static const char *const texts[] = {
        "b2h4g2q9k13d6v5o4:t5+dense+alibi+rope:causal",
        "b1h2q8k11d4:relkey,left=2,right=3+relval,left=1,right=1+log:mask",
        "b1h2q8k11d4o-3:table,left=2,right=3+linear,left=0.5,right=2:window=5,2+softcap=2",
        "b1h2q8k11d4:dense+bucket,strategy=linear,buckets=8,max_distance=9:key_mask+softcap_after=2",
        "b1h2q8k11d4:dense+alibi:softcap=1.5+softcap_after=2",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        pose(&p, 90, "fwd:f64:%s", texts[n]);
        const rp_desc *d = &p.desc;
        const int64_t Lq = d->len_q, Lk = d->len_k, Dv = d->dim_v ? d->dim_v : d->dim_k;
        rp_plan *plan;
        const int64_t shape[3] = {d->heads, Lq, Lk};
        rp_array bias = array_in(&p, RP_F64, 3, shape), bias32 = array_in(&p, RP_F32, 3, shape);
        also(&p, WITH_LSE | WITH_WEIGHTS, RP_F64);
        attend(&p, "reference");
        good(rp_plan_create(&plan, d));
        for (int64_t b = 0; b < d->batch; b++) {
            good(rp_bias(plan, &p.t, b, &bias));
            good(rp_bias(plan, &p.t, b, &bias32));
            for (int64_t h = 0; h < d->heads; h++)
                for (int64_t i = 0; i < Lq; i++) {
                    double raw[64], scaled[64], own[64], score[64], weights[64], out[16];
                    rp_row row = {raw, scaled, own, score, weights, out, 0};
                    const int64_t r = (b * d->heads + h) * Lq + i;
                    good(rp_attend_row(plan, &p.t, b, h, i, &row));
                    same_bits(&p, "reference", "weights of a row", (double *)p.t.weights.data + r * Lk, weights,
                              (size_t)Lk * 8);
                    same_bits(&p, "reference", "out of a row", (double *)p.t.out.data + r * Dv, out, (size_t)Dv * 8);
                    same_bits(&p, "reference", "lse of a row", (double *)p.t.lse.data + r, &row.lse, 8);
                    same_bits(&p, "reference", "bias of a row", (double *)bias.data + (h * Lq + i) * Lk, own,
                              (size_t)Lk * 8);
                    for (int64_t j = 0; j < Lk; j++) {
                        const bool open = allowed(&p, b, h, i, j);
                        const double plain = cap(d->softcap_after, cap(d->softcap, scaled[j]) + own[j]);
                        if (open ? n != 1 && fabs(score[j] - plain) > 1e-12
                                 : score[j] != -INFINITY) /* problem 1 has relkey */
                            wrong(&p, "reference", "score %lld of a row is %g, not %g", (long long)j, score[j], plain);
                        if (at(&bias32, (h * Lq + i) * Lk + j) != (double)(float)own[j])
                            wrong(&p, "reference", "rp_bias in f32 is not the one in f64");
                        double product = 0; /* raw is the product of the rotated vectors; without rope, of q and k */
                        const int64_t g = h / (d->heads / (d->kv_heads ? d->kv_heads : d->heads)),
                                      Hk = d->kv_heads ? d->kv_heads : d->heads;
                        for (int64_t c = 0; c < d->dim_k; c++)
                            product +=
                                at(&p.t.q, r * d->dim_k + c) * at(&p.t.k, ((b * Hk + g) * Lk + j) * d->dim_k + c);
                        if (n > 0 && fabs(product - raw[j]) > 1e-12)
                            wrong(&p, "reference", "raw %lld of a row is %g, not %g", (long long)j, raw[j], product);
                    }
                    double weight[64], want[16], lse;
                    naive(&p, b, h, i, weight, want, &lse);
                    for (int64_t j = 0; j < Lk; j++)
                        if (fabs(weight[j] - weights[j]) > 1e-12)
                            wrong(&p, "reference", "weight %lld of row %lld: %g, and %g by the definition",
                                  (long long)j, (long long)r, weights[j], weight[j]);
                }
        }
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summaries_equal_sums_of_weights),
        cmocka_unit_test(traced_rows_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
