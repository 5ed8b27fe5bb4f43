/* test_dropout.c -- dropout of weights: which weights are kept, and what decides it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

/* Scores are equal, and each value identifies its key, so out shows which weights were kept. The fraction of kept
 * weights must match the rate, neighbours must be independent, and every path and type must keep the same weights. */
static void dropout_keeps_its_fraction(void **state)
{
    enum { B = 2, H = 2, Q = 64, K = 128 };
    static const double shares[] = {0.1, 0.5, 0.9};
    /* hashes of the kept pairs: they are the same in every version and on every machine, so a resumed training run
     * drops the same pairs */
    static const uint64_t known[3][2] = {{0x4384d1142081c2c7u, 0xcfd36f77b0221977u},
                                         {0x358ef9528ea7984du, 0x50647263f135232du},
                                         {0x2ffe06387a768e9u, 0x21155f61b164e0feu}};
    static uint8_t first[B * H * Q * K];
    problem p;
    (void)state;
    for (int n = 0; n < 3; n++)
        for (int seed = 1; seed < 3; seed++) {
            bool begun = false;
            EACH_PATH(path)
            for (int type = 0; type < 3; type++) {
                static const char *const types[] = {"f32", "f64", "bf16"};
                int64_t kept = 0, pairs = 0, below = 0;
                pose(&p, 6, "fwd:%s:b%dh%dq%dk%dd2v%d::dropout=%g+seed=%d", types[type], B, H, Q, K, K, shares[n],
                     seed);
                for (int64_t x = 0; x < problem_size(&p.t.q); x++)
                    set(&p.t.q, x, 0);
                for (int64_t x = 0; x < problem_size(&p.t.v); x++)
                    set(&p.t.v, x, x % K == x / K % K);
                attend(&p, path);
                for (int64_t x = 0; x < B * H * Q * K; x++) {
                    const double w = at(&p.t.out, x), want = 1.0 / (K * (1 - shares[n]));
                    if (w != 0 && !(fabs(w - want) <= want * (type == 1 ? 1e-14 : type ? 0x1p-8 : 1e-6)))
                        wrong(&p, path, "a kept weight is %.9g, not %.9g", w, want);
                    if (begun && first[x] != (w != 0))
                        wrong(&p, path, "pair %lld is %s, but not in the first run", (long long)x,
                              w != 0 ? "kept" : "dropped");
                    first[x] = w != 0;
                    kept += w != 0;
                    pairs += x % K && first[x] == first[x - 1];     /* adjacent keys */
                    below += x / K % Q && first[x] == first[x - K]; /* adjacent queries */
                }
                begun = true;
                /* counts must be within five standard deviations of the mean of independent draws */
                const double N = B * H * Q * K, share = 1 - shares[n],
                             alike = share * share + (1 - share) * (1 - share);
                if (fabs((double)kept - N * share) > 5 * sqrt(N * share * (1 - share)))
                    wrong(&p, path, "%lld of %g weights were kept", (long long)kept, N);
                const double along = N * (K - 1) / K, across = N * (Q - 1) / Q;
                if (fabs((double)pairs - along * alike) > 5 * sqrt(along) ||
                    fabs((double)below - across * alike) > 5 * sqrt(across))
                    wrong(&p, path, "neighbours are alike %lld and %lld times, of %g", (long long)pairs,
                          (long long)below, N);
                problem_free(&p);
            }
            uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
            for (size_t x = 0; x < sizeof first; x++)
                hash = (hash ^ first[x]) * 0x100000001b3u;
            if (hash != known[n][seed - 1])
                fail_msg("dropout %g, seed %d: other pairs than recorded, hash 0x%llx", shares[n], seed,
                         (unsigned long long)hash);
            /* rows with different b, h or i must drop different keys */
            for (int64_t r = 1; r < B * H * Q; r++)
                if (memcmp(first, first + r * K, K) == 0)
                    fail_msg("dropout %g, seed %d: rows 0 and %lld drop the same keys", shares[n], seed, (long long)r);
        }
}

/* Which weights a row keeps does not depend on the numbers of rows and keys. */
static void dropout_depends_only_on_the_pair(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 7, "fwd:f32:b1h2q40k300d6v5:alibi:causal+dropout=0.3+seed=8");
        also(&p, WITH_LSE, RP_F32);
        attend(&p, isa);
        float *want = copy_of(&p.t.out), *lse = copy_of(&p.t.lse);
        p.desc.len_q = p.t.q.shape[2] = p.t.out.shape[2] = p.t.lse.shape[2] = 17;
        p.desc.len_k = p.t.k.shape[2] = p.t.v.shape[2] = 17;
        attend(&p, isa);
        for (int64_t h = 0; h < 2; h++) {
            same_bits(&p, isa, "dropout with fewer rows and keys", want + h * 40 * 5,
                      (float *)p.t.out.data + h * 40 * 5, 17 * 5 * 4);
            same_bits(&p, isa, "lse", lse + h * 40, (float *)p.t.lse.data + h * 40, 17 * 4);
        }
        free(want);
        free(lse);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropout_keeps_its_fraction),
        cmocka_unit_test(dropout_depends_only_on_the_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
