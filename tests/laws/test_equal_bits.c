/* test_equal_bits.c -- changes that must not change a bit: threads, scratch memory, the position in a batch, the number
 * of queries in a call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

/* AMX tiles of the processor, if it has them, give the same bits as their emulation in C. */
static void amx_equals_its_emulation(void **state)
{
    static const char *const texts[] = {
        "fwd:f32:b1h2q40k70d8v6:t5:causal",
        "fwd:f32:b1h1q200k1100d64:alibi+relkey,left=9,right=9",
        "fwd:bf16:b1h2q100k130d40v24:t5+rope:causal",
        "fwd:f16:b1h1q33k600d66",
        "fwd:f32:b1h2q100k700d64:t5:high",
        "fwd:f32:b1h2q3k1300d16:t5:dropout=0.2",
    };
    problem p;
    (void)state;
    if (rp_isa_found("amx") != 1) {
        print_message("this machine has no AMX\n");
        skip();
    }
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        pose(&p, 61, "%s", texts[n]);
        attend(&p, "amx_emulated");
        void *want = copy_of(&p.t.out);
        attend(&p, "amx");
        same_bits(&p, "amx", "beside amx_emulated", want, p.t.out.data,
                  (size_t)problem_size(&p.t.out) * rp_dtype_size(p.t.out.dtype));
        free(want);
        problem_free(&p);
    }
}

/* Sums of bf16 pairs have the same bits as multiply-adds: with packed and unpacked operands, few and many queries,
 * numbers of any size, and NaN or infinity in a key. Gradients are checked too. */
static void pairs_equal_multiply_adds(void **state)
{
    static const char *const texts[] = {
        "b1h2q40k70d8v6:t5:causal",
        "b2h4g2q230k1300d64:alibi+relkey,left=9,right=9:key_mask",
        "b1h2q100k130d41v24:t5:window=50,9",
        "b1h1q33k600d66v65:xl:scale=4",
        "b1h2q200k200d80:t5+axialkey,grid=10x20:scale=1+softcap=3",
        "b1h2q1k1300d16:t5:dropout=0.2",
        "b1h4g1q3k700d64v16:dense+relval,left=3,right=3",
        "b1h2q6k600d64:t5+rope",
        "b1h1q64k64d128::scale=-2",
        "b1h1q64k64d32",
    };
    problem p;
    (void)state;
    if (rp_isa_found("avx512_bf16") != 1) {
        print_message("this machine has no AVX512-BF16\n");
        skip();
    }
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (int size = 0; size < 4; size++)
            for (int is_turned = 0; is_turned < 2; is_turned++) {
                pose(&p, 63 + n, "fwdbwd:bf16:%s", texts[n]);
                also(&p, WITH_LSE, RP_F32);
                for (int64_t x = size; size && x < problem_size(&p.t.k); x += 7) {
                    static const double factors[3] = {1e-38, 1e-30, 1e20};
                    set(&p.t.k, x, at(&p.t.k, x) * factors[size - 1]);
                    set(&p.t.q, x % problem_size(&p.t.q), size == 1 ? 1e-39 * (double)(x % 9) : 1e-20);
                }
                if (size == 3)
                    set(&p.t.k, 5, INFINITY);
                if (is_turned)
                    p.t.k = transposed(&p, &p.t.k);
                const rp_array fast[2] = {p.t.out, p.t.lse};
                rp_grads plain = gradients_like(&p, p.desc.dtype);
                backward(&p, "avx512_bf16", &p.g, true);
                p.t.out = array_in(&p, fast[0].dtype, fast[0].ndim, fast[0].shape);
                p.t.lse = array_in(&p, fast[1].dtype, fast[1].ndim, fast[1].shape);
                backward(&p, "avx512", &plain, true);
                same_numbers(&p, "avx512_bf16", "out beside avx512", &fast[0], &p.t.out);
                same_numbers(&p, "avx512_bf16", "lse beside avx512", &fast[1], &p.t.lse);
                for (int g = 0; g < GRADIENTS; g++)
                    if (gradient(&plain, g)->data)
                        same_numbers(&p, "avx512_bf16", gradient_name(&p, g), gradient(&p.g, g), gradient(&plain, g));
                problem_free(&p);
            }
}

/* No bit of any output depends on the number of threads, on whether the caller or the call provides scratch memory, or
 * on the position in the batch. */
static void threads_work_and_batch_change_no_bit(void **state)
{
    static const char *const texts[] = {
        "b3h2q40k70d8v6:t5+relkey,left=3,right=3:causal",
        "b3h4g2q230k300d5v9:relval,left=3,right=3+dense:key_mask+window=200,20",
        "b3h1q800k64d4:alibi:",
        "b3h2q100k1100d4:relval,left=900,right=900+rope:mask+softcap=4",
    };
    static const int32_t threads[] = {1, 2, 3, 7};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_ISA(isa)
        {
            pose(&p, 60, "fwd:f32:%s", texts[n]);
            also(&p, WITH_LSE | WITH_SUMMARY | (n == 0 ? WITH_WEIGHTS : 0), RP_F64);
            /* all batch entries have the same inputs */
            rp_array *in[] = {&p.t.q, &p.t.k, &p.t.v};
            for (int x = 0; x < 3; x++) {
                const size_t one = (size_t)problem_size(in[x]) / 3 * 4;
                memcpy((char *)in[x]->data + one, in[x]->data, one);
                memcpy((char *)in[x]->data + 2 * one, in[x]->data, one);
            }
            for (int32_t t = 0; t < p.desc.n_terms; t++)
                if (p.terms[t].kind == RP_TERM_DENSE)
                    p.t.term[t][0].stride[0] = 0;
            if (p.t.mask[0].data)
                p.t.mask[0].stride[0] = 0;
            rp_array *out[] = {&p.t.out, &p.t.lse, &p.t.profile, &p.t.key_mass, &p.t.entropy, &p.t.weights};
            void *want[6] = {0};
            for (int x = 0; x < 4; x += SLOW(isa) ? 2 : 1)
                for (int own = 0; own < 2; own++) {
                    rp_plan *plan;
                    good(rp_pool_create(&p.t.pool, threads[x]));
                    assert_int_equal(rp_pool_threads(p.t.pool), threads[x]);
                    p.desc.isa = isa;
                    good(rp_plan_create(&plan, &p.desc));
                    const size_t bytes = rp_plan_work_size(plan, p.t.pool);
                    void *work = own ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
                    if (own)
                        memset(work, 0x7f, bytes); /* its contents must not matter */
                    for (int o = 0; o < 6; o++)
                        if (out[o]->data)
                            memset(out[o]->data, 0x11, (size_t)problem_size(out[o]) * rp_dtype_size(out[o]->dtype));
                    good(rp_attend(plan, &p.t, work));
                    rp_plan_destroy(plan);
                    free(work);
                    rp_pool_destroy(p.t.pool);
                    for (int o = 0; o < 6; o++) {
                        if (!out[o]->data)
                            continue;
                        const size_t size = (size_t)problem_size(out[o]) * rp_dtype_size(out[o]->dtype);
                        char line[80];
                        snprintf(line, sizeof line, "output %d on %d threads, %s work", o, (int)threads[x],
                                 own ? "given" : "own");
                        if (!want[o]) {
                            want[o] = copy_of(out[o]);
                            same_bits(&p, isa, "batch entries 0 and 1", want[o], (char *)want[o] + size / 3, size / 3);
                            same_bits(&p, isa, "batch entries 0 and 2", want[o], (char *)want[o] + size / 3 * 2,
                                      size / 3);
                        }
                        same_bits(&p, isa, line, want[o], out[o]->data, size);
                    }
                }
            /* as a batch of one, without the summaries */
            p.t.pool = NULL;
            p.t.profile.data = p.t.key_mass.data = p.t.entropy.data = p.t.weights.data = NULL;
            same_out(&p, isa, "without summaries", want[0]);
            p.desc.batch = 1;
            for (int x = 0; x < 3; x++)
                in[x]->shape[0] = 1;
            p.t.out.shape[0] = p.t.lse.shape[0] = 1;
            for (int32_t t = 0; t < p.desc.n_terms; t++)
                if (p.terms[t].kind == RP_TERM_DENSE)
                    p.t.term[t][0].shape[0] = 1;
            if (p.t.mask[0].data)
                p.t.mask[0].shape[0] = 1;
            same_out(&p, isa, "a batch of one", want[0]);
            for (int o = 0; o < 6; o++)
                free(want[o]);
            problem_free(&p);
        }
}

/* If each query runs in a call of its own, with its offset, it has the same bits as in one call for all queries. */
static void a_single_query_equals_itself_in_the_call(void **state)
{
    static const char *const terms[] = {"",
                                        "t5",
                                        "alibi+table,left=5,right=5",
                                        "dense",
                                        "relkey,left=3,right=3",
                                        "relval,left=3,right=3",
                                        "relval,left=700,right=700+relkey,left=700,right=700",
                                        "rope,dim=4+log",
                                        "dense+alibi+relkey,left=2,right=2"};
    static const char *const masks[] = {"causal", "", "mask+softcap=3", "window=30,4", "key_mask+causal", "lengths"};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof terms / sizeof *terms; n++)
        for (int big = 0; big < 2; big++)
            EACH_ISA(isa)
            {
                pose(&p, 61, "fwd:f32:b1h2g1q%dk%dd6v5o%d:%s:%s", big ? 101 : 23, big ? 640 : 23, big ? 530 : 0,
                     terms[n], masks[(n + (size_t)big) % 6]);
                also(&p, WITH_LSE, RP_F64);
                attend(&p, isa);
                const rp_desc whole = p.desc;
                const rp_tensors kept = p.t;
                const int64_t Lk = whole.len_k;
                for (int64_t i = 0; i < whole.len_q; i += big ? 7 : 1) {
                    float out[2][5];
                    double lse[2];
                    p.desc.len_q = 1;
                    p.desc.q_offset = whole.q_offset + i;
                    p.t.q.shape[2] = 1;
                    p.t.q.data = (float *)kept.q.data + i * 6;
                    const int64_t shape[4] = {1, 2, 1, 5};
                    p.t.out = rp_array_of(out, RP_F32, 4, shape);
                    p.t.lse = rp_array_of(lse, RP_F64, 3, shape);
                    for (int32_t t = 0; t < whole.n_terms; t++)
                        if (p.terms[t].kind == RP_TERM_DENSE) {
                            p.t.term[t][0].shape[2] = 1;
                            p.t.term[t][0].data = (float *)kept.term[t][0].data + i * Lk;
                        }
                    for (int32_t m = 0; m < whole.n_masks; m++)
                        if (p.masks[m].kind == RP_MASK_PAIRS) {
                            p.t.mask[m].shape[2] = 1;
                            p.t.mask[m].data = (uint8_t *)kept.mask[m].data + i * Lk;
                        }
                    attend(&p, isa);
                    for (int64_t h = 0; h < 2; h++) {
                        same_bits(&p, isa, "one query alone", (float *)kept.out.data + (h * whole.len_q + i) * 5,
                                  out[h], 20);
                        same_bits(&p, isa, "lse of one query alone", (double *)kept.lse.data + h * whole.len_q + i,
                                  &lse[h], 8);
                    }
                }
                p.desc = whole;
                p.t = kept;
                problem_free(&p);
            }
}

/* How a position is rotated does not depend on the first query of the call. Run each query again with fewer queries
 * before it. */
static void rotations_do_not_depend_on_the_first_query(void **state)
{
    problem p;
    (void)state;
    for (int dim = 16; dim <= 40; dim += 8)
        EACH_ISA(isa)
        {
            enum { L = 4096 };
            pose(&p, 62, "fwd:f32:b1h1q%dk1d%do50000:rope,base=500000", L, dim);
            also(&p, WITH_LSE, RP_F32);
            attend(&p, isa);
            float *want = copy_of(&p.t.lse);
            for (int less = 1; less < 64; less += 31) {
                p.desc.len_q = p.t.q.shape[2] = p.t.out.shape[2] = p.t.lse.shape[2] = L - less;
                p.desc.q_offset = 50000 + less;
                const rp_array q = p.t.q;
                p.t.q.data = (float *)q.data + less * dim;
                attend(&p, isa);
                p.t.q = q;
                same_bits(&p, isa, "positions rotated from another start", want + less, p.t.lse.data,
                          (size_t)(L - less) * 4);
            }
            free(want);
            problem_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amx_equals_its_emulation),
        cmocka_unit_test(pairs_equal_multiply_adds),
        cmocka_unit_test(threads_work_and_batch_change_no_bit),
        cmocka_unit_test(a_single_query_equals_itself_in_the_call),
        cmocka_unit_test(rotations_do_not_depend_on_the_first_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
