/* test_array_forms.c -- short forms of arrays that have the same meaning as the full arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"
#include <signal.h>
#include <sys/wait.h>

/* Arrays that broadcast give bit-identical results to the full arrays. */
static void broadcast_arrays_equal_full_ones(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 3, "%s", EVERY_FORM);
        /* make the full arrays constant along the axes that will be omitted, then omit these axes */
        float *dense = p.t.term[1][0].data, *relkey = p.t.term[2][0].data;
        uint8_t *mask = p.t.mask[1].data, *keys = p.t.mask[0].data;
        int64_t *lengths = p.t.mask[2].data;
        for (int64_t x = 0; x < 2 * 4 * 5 * 7; x++) {
            dense[x] = dense[x % 7];
            mask[x] = mask[x / 7 % 5];
        }
        for (int64_t x = 0; x < 14; x++)
            keys[x] = keys[x % 7];
        lengths[1] = lengths[0] = 6;
        attend(&p, isa);
        const float *want = copy_of(&p.t.out);
        static const int64_t seven[1] = {7}, wide[4] = {1, 1, 1, 7}, column[3] = {1, 5, 1}, two[2] = {5, 1},
                             one[1] = {1};
        static const int64_t with_heads[3] = {1, 4, 8};
        uint8_t few[5];
        int32_t six = 6;
        for (int n = 0; n < 5; n++)
            few[n] = mask[n];
        for (int form = 0; form < 2; form++) {
            p.t.term[1][0] = form ? rp_array_of(dense, RP_F32, 4, wide) : rp_array_of(dense, RP_F32, 1, seven);
            p.t.mask[1] = form ? rp_array_of(few, RP_BOOL, 3, column) : rp_array_of(few, RP_I8, 2, two);
            p.t.mask[0] = rp_array_of(keys, RP_U8, 1, seven);
            /* an array without axes gives one length to all batch entries */
            p.t.mask[2] = rp_array_of(&six, RP_I32, form ? 1 : 0, one);
            p.t.term[2][0] = form ? rp_array_of(relkey, RP_F32, 3, with_heads) : p.t.term[2][0];
            attend(&p, isa);
            same_bits(&p, isa, "broadcast forms", want, p.t.out.data, (size_t)problem_size(&p.t.out) * 4);
        }
        free((void *)(uintptr_t)want);
        problem_free(&p);
    }
}

/* Every integer type can be a mask, and every non-zero value is true. */
static void every_integer_type_is_a_mask(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 4, "fwd:f32:b2h2q9k11d4::key_mask+lengths");
        uint8_t *keys = copy_of(&p.t.mask[0]);
        int64_t *lengths = copy_of(&p.t.mask[1]);
        attend(&p, isa);
        const float *want = copy_of(&p.t.out);
        for (int type = RP_BOOL; type <= RP_I64; type++) {
            uint64_t room[22] = {0}, lens[2] = {0};
            const size_t size = rp_dtype_size((rp_dtype)type);
            for (int n = 0; n < 22; n++)
                if (keys[n]) /* set only the highest byte: truth must not depend on the lowest bit */
                    ((uint8_t *)room)[(size_t)n * size + size - 1] = n % 2 ? 0x80 : 2;
            for (int n = 0; n < 2; n++)
                memcpy((char *)lens + (size_t)n * size, &lengths[n], size);
            p.t.mask[0].data = room;
            p.t.mask[1].data = lens;
            p.t.mask[0].dtype = p.t.mask[1].dtype = (rp_dtype)type;
            attend(&p, isa);
            same_bits(&p, isa, rp_dtype_name((rp_dtype)type), want, p.t.out.data, (size_t)problem_size(&p.t.out) * 4);
        }
        /* lengths below 0 and beyond all keys */
        const int64_t ends[2] = {INT64_MIN, INT64_MAX};
        const uint64_t huge[2] = {UINT64_MAX, 0};
        memset(keys, 1, 22);
        p.t.mask[0].data = keys;
        p.t.mask[0].dtype = RP_U8;
        p.t.mask[1].data = (void *)(uintptr_t)ends;
        p.t.mask[1].dtype = RP_I64;
        attend(&p, isa);
        for (int64_t x = 0; x < 2 * 2 * 9 * 4; x++)
            assert_int_equal(at(&p.t.out, x) != 0, x >= 2 * 9 * 4);
        p.t.mask[1].data = (void *)(uintptr_t)huge;
        p.t.mask[1].dtype = RP_U64;
        attend(&p, isa);
        for (int64_t x = 0; x < 2 * 2 * 9 * 4; x++)
            assert_int_equal(at(&p.t.out, x) != 0, x < 2 * 9 * 4);
        free(keys);
        free(lengths);
        free((void *)(uintptr_t)want);
        problem_free(&p);
    }
}

/* A call that computes only lse, or only summaries, needs no v. It runs in a child process, because reading a missing v
 * would crash. */
static void lse_and_summaries_need_no_values(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 6, "fwd:f32:b2h2q7k9d4");
        also(&p, WITH_ALL, RP_F64);
        good(rp_pool_create(&p.t.pool, 1));
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            static const int ends[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
            for (int n = 0; n < 5; n++)
                signal(ends[n], SIG_DFL);
            if (attempt(&p, isa, NULL) != RP_OK)
                _exit(1);
            const double *lse = copy_of(&p.t.lse);
            p.t.out.data = p.t.v.data = NULL;
            for (int round = 0; round < 2; round++) {
                memset(p.t.lse.data, 0, 8 * 28);
                if (attempt(&p, isa, NULL) != RP_OK)
                    _exit(2);
                if (memcmp(lse, p.t.lse.data, 8 * 28) != 0)
                    _exit(3);
                p.t.weights.data = p.t.profile.data = p.t.key_mass.data = p.t.entropy.data = NULL;
            }
            _exit(0);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            wrong(&p, isa, "lse without out and v: the child ended with %s %d", WIFEXITED(how) ? "status" : "signal",
                  WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
        rp_pool_destroy(p.t.pool);
        problem_free(&p);
    }
}

/* Without elements, no stride matters: gradients of empty tensors in torch have the stride 0. */
static void empty_arrays_have_any_stride(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{0, 3, 4}, {1, 0, 4}, {0, 0, 4}}; /* B, Lq, Lk */
    static float memory[64], dout[64], out[64], dq[64];
    EACH_ISA(isa)
    for (int n = 0; n < (int)(sizeof sizes / sizeof *sizes); n++) {
        rp_desc d = rp_desc_init(sizes[n][0], 2, sizes[n][1], sizes[n][2], 5);
        d.isa = isa;
        const int64_t q[4] = {sizes[n][0], 2, sizes[n][1], 5}, k[4] = {sizes[n][0], 2, sizes[n][2], 5};
        rp_plan *plan = NULL;
        rp_tensors t = rp_tensors_init();
        rp_grads g = rp_grads_init();
        t.q = rp_array_of(memory, RP_F32, 4, q);
        t.k = t.v = rp_array_of(memory, RP_F32, 4, k);
        t.out = rp_array_of(out, RP_F32, 4, q);
        g.dout = rp_array_of(dout, RP_F32, 4, q);
        g.dq = rp_array_of(dq, RP_F32, 4, q);
        memset(t.q.stride, 0, sizeof t.q.stride);
        memset(g.dout.stride, 0, sizeof g.dout.stride);
        assert_int_equal(rp_plan_create(&plan, &d), RP_OK);
        assert_int_equal(rp_attend(plan, &t, NULL), RP_OK);
        assert_int_equal(rp_backward(plan, &t, &g, NULL), RP_OK);
        rp_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcast_arrays_equal_full_ones),
        cmocka_unit_test(every_integer_type_is_a_mask),
        cmocka_unit_test(lse_and_summaries_need_no_values),
        cmocka_unit_test(empty_arrays_have_any_stride),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
