/* test_offsets.c -- offsets that differ between batch entries.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include "tests/memory_limit.h"
#include <sys/wait.h>

static const char *const by_offset[] = {
    "t5,buckets=8,max_distance=20+rope:causal",
    "alibi+table,left=9,right=9+dense:window=60,5",
    "relkey,left=9,right=4+relval,left=4,right=9:",
    "band,width=2,extent=30+real,max_distance=9+fire,c=1,L=9,width=3:",
    "deberta,span=9+sink+sandwich,dim=4:causal+softcap=2",
    "forget+kerple:",
};

enum { BY_OFFSET = sizeof by_offset / sizeof *by_offset };

/* Restrict each array that has a batch axis to batch entry b. */
static void cut(const problem *p, rp_tensors *t, int64_t b)
{
    rp_desc one = p->desc;
    int32_t ndim;
    int64_t before[RP_MAX_AXES], after[RP_MAX_AXES];
    rp_array *const fixed[] = {&t->q, &t->k, &t->v, &t->out};
    one.batch = 1;
    for (int n = 0; n < 4; n++) {
        fixed[n]->shape[0] = 1;
        fixed[n]->data = (char *)fixed[n]->data + b * fixed[n]->stride[0] * (int64_t)rp_dtype_size(fixed[n]->dtype);
    }
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            rp_array *a = &t->term[n][x];
            if (!a->data)
                continue;
            good(rp_term_shape(&p->desc, n, x, &ndim, before));
            good(rp_term_shape(&one, n, x, &ndim, after));
            for (int32_t axis = 0; axis < ndim; axis++)
                if (before[axis] != after[axis]) {
                    a->shape[axis] = 1;
                    a->data = (char *)a->data + b * a->stride[axis] * (int64_t)rp_dtype_size(a->dtype);
                }
        }
    t->q_offset.data = NULL;
}

/* Equal offsets give bit-identical results to a scalar offset. So does a call with one batch entry and its offset,
 * compared with the same entry in the batch. */
static void a_single_entry_equals_itself_in_the_batch(void **state)
{
    static const int64_t entries[][3] = {{7, 7, 7}, {0, 25, -3}, {0, 1000000000, -1000000000}};
    problem p;
    (void)state;
    for (int n = 0; n < BY_OFFSET; n++)
        for (int set = 0; set < 3; set++)
            EACH_PATH(path)
            {
                int64_t offset[3];
                const int64_t three[1] = {3};
                pose(&p, 4, "fwd:f32:b3h2q20k70d6v5:%s", by_offset[n]);
                memcpy(offset, entries[set], sizeof offset);
                p.t.q_offset = rp_array_of(offset, RP_I64, 1, three);
                attend(&p, path);
                float *want = copy_of(&p.t.out);
                const rp_tensors t = p.t;
                if (set == 0) { /* offsets are equal for all entries: compare with the scalar */
                    p.t.q_offset.data = NULL;
                    p.desc.q_offset = 7;
                    attend(&p, path);
                    same_bits(&p, path, "an offset for each entry", want, p.t.out.data, 3 * 2 * 20 * 5 * 4);
                    p.desc.q_offset = -77; /* ignored, because an array of offsets is given */
                    p.t = t;
                    attend(&p, path);
                    same_bits(&p, path, "an offset beside those of the entries", want, p.t.out.data,
                              3 * 2 * 20 * 5 * 4);
                }
                const rp_desc whole = p.desc;
                for (int64_t b = 0; b < 3; b++) {
                    p.t = t;
                    cut(&p, &p.t, b);
                    p.desc.batch = 1;
                    p.desc.q_offset = entries[set][b];
                    attend(&p, path);
                    same_bits(&p, path, "an entry alone, at its offset", want + b * 200, p.t.out.data, 200 * 4);
                    p.desc = whole;
                }
                free(want);
                problem_free(&p);
            }
}

/* If offsets are far apart, the distance between them takes no memory. Run this in a child process with little
 * memory. */
static void far_offsets_need_no_memory(void **state)
{
    problem p;
    (void)state;
    if (SANITIZED) {
        print_message("far_apart: not run, because sanitizers need more memory\n");
        return;
    }
    EACH_ISA(isa)
    for (int n = 0; n < BY_OFFSET; n++) {
        int64_t offset[2] = {0, 1000000000};
        const int64_t two[1] = {2};
        pose(&p, 4, "fwdbwd:f32:b2h2q20k70d6v5:%s", by_offset[n]);
        p.t.q_offset = rp_array_of(offset, RP_I64, 1, two);
        good(rp_pool_create(&p.t.pool, 1));
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            limit_memory(64);
            const rp_status status = attempt(&p, isa, NULL);
            _exit(status != RP_OK ? (int)status : (int)attempt_backward(&p, isa, &p.g, true));
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            wrong(&p, isa, "offsets far apart: the child ended with %s %s", WIFEXITED(how) ? "status" : "a signal and",
                  rp_status_name((rp_status)WEXITSTATUS(how)));
        rp_pool_destroy(p.t.pool);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_entry_equals_itself_in_the_batch),
        cmocka_unit_test(far_offsets_need_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
