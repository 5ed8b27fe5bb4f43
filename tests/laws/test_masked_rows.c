/* test_masked_rows.c -- rows without any key, rows with one key, and calls that have nothing to compute.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/definition.h"

/* If masks or biases mask all keys of a row, the row has out 0, lse -infinity, entropy 0 and no weights. */
static void rows_without_keys_are_zero(void **state)
{
    static const char *const cases[] = {
        "b2h2q30k70d6:alibi:lengths",
        "b2h2q30k70d6:alibi:key_mask",
        "b2h2q30k70d6:t5:mask",
        "b2h2q30k70d6o-12:relkey,left=2,right=2:causal",
        "b2h2q100k70d6:relval,left=2,right=2:window=5,3",
        "b2h2q100k40d6o60:dense:window=5,-1",
        "b2h2q30k70d6:dense:",
        "b2h2q30k70d6:dense:softcap=2",
        "b2h2q30k70d6:dense:softcap_after=2",
        "b2h2q30k70d6:dense:softcap=3+softcap_after=2",
        "b2h2q30k70d6:table,left=40,right=80:",
        "b2h2q30k70d6:table,left=40,right=80:softcap_after=2",
        "b1h1q7k1030d6o1020:dense:window=2,-1+mask",
        /* register tiles write rows of whole vectors to out: some rows, groups or blocks have no key */
        "b2h2q30k70d6v16:alibi:key_mask",
        "b2h2q30k70d6v16:t5:mask",
        "b2h2q100k70d6v16o-12:t5:causal",
        "b2h2q30k70d6v16o-40:t5:causal",
        "b2h2q30k70d6v16:dense:",
    };
    problem p;
    int64_t empty = 0;
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        pose(&p, 30, "fwd:f32:%s", cases[n]);
        const rp_desc *d = &p.desc;
        const int64_t Lq = d->len_q, Lk = d->len_k;
        also(&p, WITH_ALL, RP_F64);
        if (p.t.mask[0].data && p.masks[0].kind == RP_MASK_LENGTHS)
            ((int64_t *)p.t.mask[0].data)[1] = 0;
        if (p.t.mask[0].data && p.masks[0].kind == RP_MASK_KEYS)
            memset(p.t.mask[0].data, 0, (size_t)Lk);
        if (p.t.mask[0].data && p.masks[0].kind == RP_MASK_PAIRS)
            for (int64_t i = 0; i < Lq; i += 4)
                memset((char *)p.t.mask[0].data + i * Lk, 0, (size_t)Lk);
        if (p.terms[0].kind == RP_TERM_DENSE)
            for (int64_t r = 0; r < d->batch * d->heads * Lq; r++)
                for (int64_t j = 0; j < Lk; j++)
                    if (r % 3 == 0 || (r % 3 == 1 && j != r % Lk)) /* mask all keys, or all but one */
                        ((float *)p.t.term[0][0].data)[r * Lk + j] = -INFINITY;
        if (p.terms[0].kind == RP_TERM_TABLE) /* head 0 attends only to keys before the query, so query 0 has none */
            for (int64_t e = 40; e < 121; e++)
                ((float *)p.t.term[0][0].data)[e] = -INFINITY;
        double *weight = malloc((size_t)Lk * 8), row[16], lse;
        judged(&p); /* afterwards p holds the outputs of the best instruction set */
        EACH_ISA(isa)
        {
            memset(p.t.out.data, 0x7f, (size_t)problem_size(&p.t.out) * 4);
            attend(&p, isa);
            for (int64_t r = 0; r < d->batch * d->heads * Lq; r++) {
                naive(&p, r / Lq / d->heads, r / Lq % d->heads, r % Lq, weight, row, &lse);
                if (lse != -INFINITY)
                    continue;
                empty++;
                for (int64_t c = 0; c < d->dim_v; c++)
                    if (memcmp((float *)p.t.out.data + r * d->dim_v + c, &(float){0}, 4) != 0)
                        wrong(&p, isa, "row %lld is masked, but its out is %g", (long long)r,
                              at(&p.t.out, r * d->dim_v + c));
                if (at(&p.t.lse, r) != -INFINITY || at(&p.t.entropy, r) != 0)
                    wrong(&p, isa, "row %lld is masked: lse %g, entropy %g", (long long)r, at(&p.t.lse, r),
                          at(&p.t.entropy, r));
                for (int64_t j = 0; j < Lk; j++)
                    if (at(&p.t.weights, r * Lk + j) != 0)
                        wrong(&p, isa, "row %lld is masked, but has a weight", (long long)r);
            }
        }
        free(weight);
        problem_free(&p);
    }
    print_message("masked rows seen: %lld\n", (long long)empty);
    assert_true(empty > 500); /* on the machine with the fewest instruction sets */
    show("empty rows");
}

/* If only the first or only the last key is left, out is exactly its value. */
static void one_key_gives_its_value(void **state)
{
    static const int keys[] = {1, 2, 8, 9, 64, 65, 512, 513, 1024, 1030};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        for (int last = 0; last < 2; last++)
            EACH_ISA(isa)
            {
                pose(&p, 31, "fwd:f32:b1h1q13k%dd5v3:alibi:key_mask", keys[n]);
                const int64_t j = last ? keys[n] - 1 : 0;
                memset(p.t.mask[0].data, 0, (size_t)keys[n]);
                ((uint8_t *)p.t.mask[0].data)[j] = 1;
                attend(&p, isa);
                for (int r = 0; r < 13; r++)
                    same_bits(&p, isa, "one key", (float *)p.t.v.data + j * 3, (float *)p.t.out.data + r * 3, 12);
                problem_free(&p);
            }
}

/* With no batch entries, queries or keys, those outputs that have elements are zero, and lse is -infinity. A missing
 * array is treated like an empty one. */
static void empty_arrays_give_zeros(void **state)
{
    static const char *const texts[] = {
        "b0h2q5k7d4",
        "b2h2q0k7d4",
        "b2h2q5k0d4",
        "b2h2q0k0d4",
        "b1h2q1k0d4",
        "b0h2q0k0d4",
        "b2h2q5k0d4:alibi+t5+dense+rope+relkey,left=1,right=1+relval,left=1,right=1:causal+key_mask+mask+lengths",
        "b2h2q0k5d4:alibi+t5+dense+rope+relkey,left=1,right=1+relval,left=1,right=1:causal+key_mask+mask+lengths",
        "b0h2q5k5d4:alibi+t5+dense+rope+relkey,left=1,right=1+relval,left=1,right=1:causal+segments",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_PATH(isa)
        {
            pose(&p, 70, "fwd:f32:%s", texts[n]);
            also(&p, WITH_ALL, RP_F32);
            rp_array *out[] = {&p.t.out, &p.t.lse, &p.t.profile, &p.t.key_mass, &p.t.entropy, &p.t.weights};
            static const char *const names[] = {"out", "lse", "profile", "key_mass", "entropy", "weights"};
            for (int o = 0; o < 6; o++)
                memset(out[o]->data, 0x11, (size_t)problem_size(out[o]) * 4);
            attend(&p, isa);
            for (int o = 0; o < 6; o++)
                for (int64_t x = 0; x < problem_size(out[o]); x++)
                    if (at(out[o], x) != (o == 1 ? -INFINITY : 0.0))
                        wrong(&p, isa, "%s[%lld] is %g", names[o], (long long)x, at(out[o], x));
            /* a missing array is treated like an empty one */
            if (p.desc.batch * p.desc.len_q == 0)
                p.t.q.data = NULL;
            if (p.desc.batch * p.desc.len_k == 0)
                p.t.k.data = p.t.v.data = NULL;
            attend(&p, isa);
            problem_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_without_keys_are_zero),
        cmocka_unit_test(one_key_gives_its_value),
        cmocka_unit_test(empty_arrays_give_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
