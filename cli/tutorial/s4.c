/* s4.c -- AdditiveRelMultiheadAttention, a class of symm_learning.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/tutorial/tutorial.h"

enum { N = 5, FAR = 2 };

/* The entry of rel_bias that is subtracted, for differences query - key. */
static void entries(char *text, size_t size)
{
    static const double difference[] = {-9, -1.5, -0.99, 0, 0.99, 1, 1.5, 9};
    static const double table[2 * FAR + 1] = {0, 1, 2, 3, 4};
    const int64_t shape[2] = {1, 2 * FAR + 1}, one = 1;
    text[0] = 0;
    for (int n = 0; n < 8; n++) {
        rp_term term = rp_term_init(RP_TERM_REAL);
        rp_desc desc = rp_desc_init(1, 1, 1, 1, 1);
        rp_tensors t = rp_tensors_init();
        const double zero = 0;
        double bias = 0;
        const int64_t to_shape[3] = {1, 1, 1};
        const rp_array to = rp_array_of(&bias, RP_F64, 3, to_shape);
        rp_plan *plan;
        term.max_distance = FAR;
        desc.terms = &term;
        desc.n_terms = 1;
        t.term[0][0] = rp_array_of(table, RP_F64, 2, shape);
        t.term[0][1] = rp_array_of(&difference[n], RP_F64, 1, &one);
        t.term[0][2] = rp_array_of(&zero, RP_F64, 1, &one);
        if (rp_plan_create(&plan, &desc) == RP_OK && rp_bias(plan, &t, 0, &to) == RP_OK)
            tutorial_add(text, size, "%s%d", n ? " " : "", (int)-bias);
        rp_plan_destroy(plan);
    }
}

/* Weights of one query among keys at distances -2 to 2, if rel_bias is 0 1 2 3 4: those with a small entry gain. */
static void weights(char *text, size_t size)
{
    static const double zeros[N], table[2 * FAR + 1] = {0, 1, 2, 3, 4};
    tutorial_problem p = {.len = N,
                          .dim = 1,
                          .q = zeros,
                          .k = zeros,
                          .term = {rp_term_init(RP_TERM_REAL)},
                          .array = {table},
                          .n_terms = 1};
    double x[N * N];
    p.term[0].max_distance = FAR;
    tutorial_compute(&p, TUTORIAL_WEIGHTS, x);
    tutorial_print(text, size, x + 2 * N, 1, N, 4);
}

static const tutorial_step steps[] = {
    {"entries of rel_bias for max_distance = 2 and differences -9 -1.5 -0.99 0 0.99 1 1.5 9 of positions", NULL,
     entries, NULL, NULL},
    {"weights of equal scores around a query, if rel_bias is 0 1 2 3 4: keys after the query gain", NULL, weights, NULL,
     NULL},
    {0},
};

const tutorial tutorial_s4 = {"s4", "AdditiveRelMultiheadAttention",
                              "a class of symm_learning; its page has formulas and no numbers. The bias is subtracted, "
                              "differences are query - key, clamped, then truncated toward zero",
                              steps};
