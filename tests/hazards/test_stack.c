/* test_stack.c -- stack use of calls: measured on a thread whose stack was filled with a pattern, and tested with
 * stacks of 128 KB for all threads and the program itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/tangents.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SIZE = 1 << 20, PAINT = 0xAA, MOST = 32 << 10, MOST_EMULATED = 40 << 10 };

typedef struct job {
    const rp_plan *plan;
    problem *p;
    rp_grads bounds;
    rp_tangents tangents;
    rp_array bound, bias;
    double *sums;
    rp_status status;
} job;

static void nothing(job *j)
{
    j->status = RP_OK;
}

static void run_attend(job *j)
{
    j->status = rp_attend(j->plan, &j->p->t, NULL);
}

static void run_backward(job *j)
{
    j->status = rp_backward(j->plan, &j->p->t, &j->p->g, NULL);
}

static void run_jvp(job *j)
{
    j->status = rp_jvp(j->plan, &j->p->t, &j->tangents);
}

static void run_hvp(job *j)
{
    j->status = rp_hvp(j->plan, &j->p->t, &j->tangents, &j->p->g);
}

static void work_size(job *j)
{
    j->status = rp_plan_work_size(j->plan, j->p->t.pool) > 0 ? RP_OK : RP_E_ARG;
}

static void error_bound(job *j)
{
    j->status = rp_error_bound(j->plan, &j->p->t, &j->bound);
}

static void gradient_bound(job *j)
{
    j->status = rp_gradient_bound(j->plan, &j->p->t, &j->bounds);
}

static void tangent_bound(job *j)
{
    rp_tangents bounds = j->tangents;
    bounds.lse.data = NULL;
    bounds.out = j->bound;
    j->status = rp_tangent_bound(j->plan, &j->p->t, &bounds);
}

static void hvp_bound(job *j)
{
    j->status = rp_hvp_bound(j->plan, &j->p->t, &j->tangents, &j->bounds);
}

static void one_row(job *j)
{
    rp_row row = {0};
    j->status = rp_attend_row(j->plan, &j->p->t, 0, 0, 0, &row);
}

static void parts_of_a_row(job *j)
{
    static rp_part part[RP_MAX_PARTS];
    int32_t n;
    j->status = rp_attend_parts(j->plan, &j->p->t, 0, 0, 0, part, &n);
}

static void biases(job *j)
{
    j->status = rp_bias(j->plan, &j->p->t, 0, &j->bias);
}

static void prepare(job *j)
{
    rp_prepared *prepared;
    j->status = rp_prepare(&prepared, j->plan, &j->p->t);
    rp_prepared_destroy(prepared);
}

static void make_plan(job *j)
{
    rp_plan *plan;
    j->status = rp_plan_create(&plan, &j->p->desc);
    rp_plan_destroy(plan);
}

static const struct {
    const char *name;
    void (*run)(job *);
    bool forward_only;
} calls[] = {{"nothing", nothing, false},
             {"rp_attend", run_attend, true},
             {"rp_backward", run_backward, false},
             {"rp_jvp", run_jvp, false},
             {"rp_hvp", run_hvp, false},
             {"rp_plan_work_size", work_size, false},
             {"rp_error_bound", error_bound, true},
             {"rp_gradient_bound", gradient_bound, false},
             {"rp_hvp_bound", hvp_bound, false},
             {"rp_tangent_bound", tangent_bound, false},
             {"rp_attend_row", one_row, true},
             {"rp_attend_parts", parts_of_a_row, true},
             {"rp_bias", biases, true},
             {"rp_prepare", prepare, true},
             {"rp_plan_create", make_plan, true}};
enum { CALLS = sizeof calls / sizeof *calls };

typedef struct order {
    job *j;
    int call;
} order;

static void *obey(void *data)
{
    const order *o = data;
    calls[o->call].run(o->j);
    if (o->j->status != RP_OK)
        print_error("%s: %s\n", calls[o->call].name, rp_last_error());
    return NULL;
}

/* Return how many bytes of stack a call wrote to. */
static long used(job *j, int call)
{
    unsigned char *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    order o = {j, call};
    long n = 0;
    assert_true(stack != MAP_FAILED);
    memset(stack, PAINT, SIZE);
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, SIZE), 0);
    assert_int_equal(pthread_create(&thread, &attributes, obey, &o), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    while (n < SIZE && stack[n] == PAINT)
        n++;
    munmap(stack, SIZE);
    good(j->status);
    return SIZE - n;
}

/* Measure every call of one problem on every path. most[call] receives the largest stack use. */
static void measure(const char *text, long *most)
{
    long nothing_at_all = 0;
    EACH_PATH(isa)
    {
        problem p;
        rp_plan *plan;
        rp_pool *pool;
        pose(&p, 1, "%s", text);
        p.desc.isa = isa;
        good(rp_plan_create(&plan, &p.desc));
        good(rp_pool_create(&pool, 1));
        p.t.pool = pool;
        const bool forward = strncmp(text, "fwd", 3) == 0;
        const int64_t out[4] = {p.desc.batch, p.desc.heads, p.desc.len_q, p.t.v.shape[3]},
                      q[4] = {p.desc.batch, p.desc.heads, p.desc.len_q, p.desc.dim_k},
                      pairs[3] = {p.desc.heads, p.desc.len_q, p.desc.len_k};
        double *numbers =
            calloc((size_t)(out[0] * out[1] * out[2] * (out[3] + q[3]) + pairs[0] * pairs[1] * pairs[2]), 8);
        job j = {.plan = plan, .p = &p, .bounds = rp_grads_init(), .sums = numbers};
        j.bound = rp_array_of(numbers, RP_F64, 4, out);
        j.bounds.dout = p.g.dout;
        j.tangents = tangents_of(&p, 3, RP_F32, RP_F32);
        j.bounds.dq = rp_array_of(numbers + out[0] * out[1] * out[2] * out[3], RP_F64, 4, q);
        j.bias = rp_array_of(numbers + out[0] * out[1] * out[2] * (out[3] + q[3]), RP_F64, 3, pairs);
        for (int call = 0; call < CALLS; call++)
            if (call == 0 || calls[call].forward_only == forward) {
                const long n = used(&j, call);
                if (call == 0)
                    nothing_at_all = n;
                const long own = n - nothing_at_all;
                most[call] = own > most[call] ? own : most[call];
                if (!SANITIZED && own > (SLOW(isa) ? MOST_EMULATED : MOST)) /* sanitizers make frames larger */
                    wrong(&p, isa, "%s takes %ld bytes of stack", calls[call].name, own);
            }
        free(numbers);
        rp_pool_destroy(pool);
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

static void no_call_takes_more_than_32_KB(void **state)
{
    static const char *const problems[] = {"fwd:f32:b1h2q100k140d64:t5:causal",
                                           "fwd:f64:b1h2q100k140d64:t5:",
                                           "fwd:bf16:b1h2q40k600d40:relkey,left=3,right=3+rope:softcap=20",
                                           "fwd:f32:b1h2q1k700d64:alibi:causal",
                                           "fwd:f32:b1h2q50k100d16:fire,c=1,L=20,width=4+forget:",
                                           "fwd:f32:b1h2q60k60d16:swin,grid=6x10+relval,left=3,right=3:key_mask",
                                           "bwd:f32:b1h2q100k140d64:t5:causal",
                                           "bwd:f64:b1h2q40k70d16:xl+fire,c=1,L=20,width=4:",
                                           "bwd:bf16:b1h2q30k300d40:relkey,left=3,right=3+forget:softcap=20"};
    long most[CALLS] = {0};
    (void)state;
    for (size_t n = 0; n < sizeof problems / sizeof *problems; n++)
        measure(problems[n], most);
    for (int call = 1; call < CALLS; call++)
        printf("%-18s %ld bytes of stack\n", calls[call].name, most[call]);
}

/* Run the program again with a stack limit of 128 KB for all threads; it then tests calls on the threads of a pool. */
static int in_little_stack(void)
{
    problem p;
    rp_plan *plan;
    rp_pool *pool;
    int wrong = 0;
    for (int backward = 0; backward < 2; backward++) {
        pose(&p, 1, "%s:f32:b2h4q200k300d64:t5:causal", backward ? "bwd" : "fwd");
        wrong |= rp_plan_create(&plan, &p.desc) != RP_OK || rp_pool_create(&pool, 3) != RP_OK;
        p.t.pool = pool;
        wrong |= backward ? rp_backward(plan, &p.t, &p.g, NULL) : rp_attend(plan, &p.t, NULL);
        rp_pool_destroy(pool);
        rp_plan_destroy(plan);
        problem_free(&p);
    }
    return wrong;
}

static void calls_run_in_128_KB(void **state)
{
    (void)state;
    if (SANITIZED || EMULATED) /* sanitizers and qemu themselves need more stack */
        return;
    assert_int_equal(system("ulimit -s 128 && exec /proc/$PPID/exe little"), 0);
}

int main(int argc, char **argv)
{
    (void)argv;
    setenv("RELPOS_SHORT", "0", 1);
    if (argc > 1)
        return in_little_stack();
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_call_takes_more_than_32_KB),
                                       cmocka_unit_test(calls_run_in_128_KB)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
