/* test_ranks.c -- attention over several processes has the bits of one call. mpirun starts this program, which
 * tests/mpi/attend.sh and backward.sh run with different numbers of processes:
 *
 *     mpirun -n 3 test_ranks random SEED COUNT     compare COUNT random problems
 *     mpirun -n 3 test_ranks named                 compare the problems below
 *     mpirun -n 3 test_ranks gradients SEED COUNT  compare gradients of COUNT random problems
 *     mpirun -n 3 test_ranks gradients             compare gradients of the problems below
 *     mpirun -n 3 test_ranks these TEXT...         compare gradients of problems such as f32:b1h2q9000k9000d4:t5:causal
 *     mpirun -n 3 test_ranks mistakes              compare the errors of all processes after mistakes of rank 1
 *     mpirun -n 3 test_ranks gradient_mistakes     compare errors of rp_mpi_backward
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <relpos/mpi.h>
#include "cli/support/random_problem.h"
#include "cli/support/sample_problem.h"
#include "tests/returns.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int rank, ranks, compared, imprecise; /* imprecise: problems whose lse does not serve rp_backward */

static const char *const texts[] = {
    "f32:b1h2q2100k2100d16:t5:causal",
    "f32:b2h4g2q1700k1700d16:alibi:causal",
    "f32:b1h2q5000k5000d8:alibi:",
    "f32:b1h2q5000k5000d8:t5:window=600,100",
    "f32:b1h2q4100k4100d8:rope+alibi+sink:window=2000,0",
    "f32:b1h2q3600k3600d8:forget:",
    "f32:b1h2q2600k2600d8:rope,scaling=dynamic,factor=2,max_position_embeddings=400:causal",
    "f32:b2h2q1600k1600d8:rope,scaling=dynamic,factor=2,max_position_embeddings=400:lengths+causal",
    "f32:b1h2q1600k1600d8:rope,scaling=longrope,factor=4,original_max_position_embeddings=540:segments",
    "f32:b1h2q2600k2600d8:rope,positions=x+t5:segments",
    "f32:b2h4g2q1700k1700d8:rope,frequencies=given+t5:causal",
    "f32:b1h2q1600k1600d12:rope,dim=8,axes=2,frequencies=given,positions=given:lengths",
    "f32:b2h2q2600k2600d8:alibi:starts+ends",
    "f32:b3h2q2600k2600d8:t5+rope:lengths+key_mask",
    "f64:b1h2q1800k1800d10v5:alibi+sink,rows=1+rope:causal",
    "bf16:b1h4g1q2100k2100d24v40:t5+rope:causal",
    "f16:b1h4g2q2100k2100d16:kerple:causal",
    "f32:b1h2q1800k1800d16:xl+t5:causal+dropout=0.3+seed=5",
    "f32:b1h2q2304k2304d16:swin,grid=48x48:",
    "f32:b1h2q2304k2304d16:axialkey,grid=48x48+rope:",
    "f32:b1h2q2100k2100d16:relkey,left=20,right=5+relval,left=9,right=9+band,width=3,extent=40:causal",
    "f32:b1h2q1500k1500d16:dense+fire,c=2,L=100:mask",
    "f32:b1h2q1500k1500d16:deberta,span=32,buckets=-1+real,max_distance=30,q_positions=x,k_positions=x:",
    "f32:b1h2q3k4000d16:t5:",
    "f32:b1h2q700k2900d16o-40:t5:q_offsets",
    "f32:b1h2q1300k2900d16::causal",
    "f32:b1h2q1700k3900d16o2200:alibi:causal",
    "f32:b3h4g2q2000k2900d16o-900:alibi+sink:q_offsets",
    "bf16:b1h2q3000k1700d16o-1300:forget:",
    "f32:b1h2q40k40d16:t5:causal",
    "f32:b1h2q2600k2600d8:t5:window=5,-1+lengths",
    "f32:b1h1q600k0d8:t5:",
    "f32:b1h8q1100k6000d64:t5:",                  /* stretches of many chunks */
    "f32:b2h2q1600k90d16o-17:kerple:window=16,7", /* the first rows are before the keys, and the last ones after them */
};

/* Return the rows of this process of an array whose axis 2 is the sequence, contiguous. The caller frees them. */
static rp_array local_part(const rp_array *a)
{
    const int64_t heads = a->shape[0] * a->shape[1], whole = a->shape[2], width = a->ndim > 3 ? a->shape[3] : 1,
                  size = (int64_t)rp_dtype_size(a->dtype) * width;
    int64_t from[2], to[2], shape[4] = {a->shape[0], a->shape[1], 0, width};
    for (int w = 0; w < 2; w++)
        rp_mpi_stretch(whole, ranks, rank, w, &from[w], &to[w]);
    shape[2] = to[0] - from[0] + to[1] - from[1];
    char *data = malloc((size_t)(heads * shape[2] * size) + 1), *at = data;
    for (int64_t h = 0; h < heads; h++)
        for (int w = 0; w < 2; w++) {
            const int64_t bytes = (to[w] - from[w]) * size;
            memcpy(at, (const char *)a->data + (h * whole + from[w]) * size, (size_t)bytes);
            at += bytes;
        }
    return rp_array_of(data, a->dtype, a->ndim, shape);
}

/* Store keys as [B, Hk, D, N] in memory, the other layout that rp_attend reads. */
static rp_array transposed(const rp_array *a)
{
    const int64_t *n = a->shape, size = (int64_t)rp_dtype_size(a->dtype);
    rp_array b = *a;
    b.data = malloc((size_t)(n[0] * n[1] * n[2] * n[3] * size) + 1);
    for (int64_t x = 0; x < n[0] * n[1] * n[2] * n[3]; x++)
        memcpy((char *)b.data + (x / n[3] / n[2] * n[3] * n[2] + x % n[3] * n[2] + x / n[3] % n[2]) * size,
               (const char *)a->data + x * size, (size_t)size);
    b.stride[2] = 1;
    b.stride[3] = n[2];
    return b;
}

/* Return the number of the first element that differs, or -1. Different NaNs are equal. */
static int64_t difference(const rp_array *a, const rp_array *b)
{
    const size_t size = rp_dtype_size(a->dtype);
    for (int64_t x = 0; x < problem_size(a); x++) {
        double y[2] = {0, 0};
        const char *p = (const char *)a->data + (size_t)x * size, *q = (const char *)b->data + (size_t)x * size;
        if (memcmp(p, q, size) == 0)
            continue;
        rp_convert(&y[0], RP_F64, p, a->dtype, 1);
        rp_convert(&y[1], RP_F64, q, a->dtype, 1);
        if (!isnan(y[0]) || !isnan(y[1]))
            return x;
    }
    return -1;
}

/* Return true in all processes if it is true in one. */
static int any(int flag)
{
    MPI_Allreduce(MPI_IN_PLACE, &flag, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return flag;
}

static void fail(const problem *p, const char *what, const char *text)
{
    printf("FAILED rank %d of %d: %s on %s: %s %s\n", rank, ranks, p->text, p->desc.isa, what, text);
    fflush(stdout);
}

/* Compare a problem with one call. Return true if it failed. */
static int compare(problem *p, uint64_t seed)
{
    static const char *const sets[] = {"generic", "avx2", "avx512", "neon"};
    const int64_t lse[3] = {p->desc.batch, p->desc.heads, p->desc.len_q};
    rp_plan *plan;
    rp_mpi_plan *shared = NULL;
    p->desc.isa = sets[seed % 4];
    if (rp_isa_found(p->desc.isa) != 1)
        p->desc.isa = rp_isa_default();
    p->t.lse = rp_array_of(problem_alloc(p, (size_t)(lse[0] * lse[1] * lse[2]) * 8 + 1), RP_F64, 3, lse);
    if (rp_plan_create(&plan, &p->desc) != RP_OK || rp_pool_create(&p->t.pool, 1 + (int32_t)(seed % 2)) != RP_OK ||
        rp_attend(plan, &p->t, NULL) != RP_OK) {
        fail(p, "one call:", rp_last_error());
        return 1;
    }
    rp_tensors t = p->t;
    rp_array out = local_part(&p->t.out), want_lse = local_part(&p->t.lse);
    t.q = local_part(&t.q), t.k = local_part(&t.k), t.v = local_part(&t.v);
    t.out = local_part(&t.out), t.lse = local_part(&t.lse);
    memset(t.out.data, 0x55, (size_t)problem_size(&t.out) * rp_dtype_size(t.out.dtype));
    memset(t.lse.data, 0x55, (size_t)problem_size(&t.lse) * 8);
    if (seed % 3 == 0) {
        void *old = t.k.data;
        t.k = transposed(&t.k);
        free(old);
    }
    rp_status status = rp_mpi_plan_create(&shared, MPI_COMM_WORLD, &p->desc);
    for (int n = 0; n < (seed % 4 == 1 ? 2 : 1) && status == RP_OK; n++) /* a plan may be used again */
        status = rp_mpi_attend(shared, &t);
    int failed = 0;
    if (status != RP_OK)
        fail(p, "several processes:", rp_mpi_last_error()), failed = 1;
    else if (difference(&out, &t.out) >= 0)
        fail(p, "out", "differs"), failed = 1;
    else if (difference(&want_lse, &t.lse) >= 0)
        fail(p, "lse", "differs"), failed = 1;
    else
        compared++;
    rp_mpi_plan_destroy(shared);
    rp_pool_destroy(p->t.pool);
    p->t.pool = NULL;
    rp_plan_destroy(plan);
    rp_array *made[] = {&out, &want_lse, &t.q, &t.k, &t.v, &t.out, &t.lse};
    for (size_t n = 0; n < sizeof made / sizeof *made; n++)
        free(made[n]->data);
    return failed;
}

/* Gradients: dq, dk, dv, then those of the arrays of terms. */
static rp_array *gradient(rp_grads *g, int n)
{
    rp_array *const first[3] = {&g->dq, &g->dk, &g->dv};
    return n < 3 ? first[n] : &g->term[(n - 3) / RP_MAX_ARRAYS][(n - 3) % RP_MAX_ARRAYS];
}

enum { GRADIENTS = 3 + RP_MAX_TERMS * RP_MAX_ARRAYS };

/* Allocate the gradients of the problem in f64. */
static rp_grads gradients_of(problem *p)
{
    rp_grads g = p->g;
    for (int n = 0; n < GRADIENTS; n++) {
        rp_array *a = gradient(&g, n);
        if (a->data == NULL)
            continue;
        *a = rp_array_of(NULL, RP_F64, a->ndim, a->shape);
        a->data = problem_alloc(p, (size_t)problem_size(a) * 8 + 8);
    }
    return g;
}

/* Return the largest difference of two arrays of f64, relative to the largest element or 1. */
static double error_of(const rp_array *a, const rp_array *b)
{
    double most = 1, error = 0;
    for (int64_t x = 0; x < problem_size(a); x++) {
        const double y = ((const double *)a->data)[x], z = ((const double *)b->data)[x];
        most = fmax(most, fabs(y));
        error = fmax(error, isnan(y) && isnan(z) ? 0 : isnan(y) || isnan(z) ? INFINITY : fabs(y - z));
    }
    return error / most;
}

/* Compare the gradients of a problem with one call. Gradients of terms of f64 problems are equal up to rounding. Return
 * true if it failed. */
static int compare_gradients(problem *p, uint64_t seed)
{
    const int64_t lse[3] = {p->desc.batch, p->desc.heads, p->desc.len_q};
    rp_plan *plan;
    rp_mpi_plan *shared = NULL;
    p->desc.isa = rp_isa_found("avx2") == 1 && seed % 3 != 0 ? "avx2" : "generic";
    p->t.lse = rp_array_of(problem_alloc(p, (size_t)(lse[0] * lse[1] * lse[2]) * 8 + 1), RP_F64, 3, lse);
    rp_grads one = gradients_of(p), all = gradients_of(p);
    if (rp_plan_create(&plan, &p->desc) != RP_OK || rp_pool_create(&p->t.pool, 1 + (int32_t)(seed % 2)) != RP_OK ||
        rp_attend(plan, &p->t, NULL) != RP_OK || rp_backward(plan, &p->t, &one, NULL) != RP_OK) {
        fail(p, "one call:", rp_last_error());
        return 1;
    }
    rp_tensors t = p->t;
    rp_grads g = all;
    rp_array want[3] = {local_part(&one.dq), local_part(&one.dk), local_part(&one.dv)};
    rp_array *const parts[] = {&t.q, &t.k, &t.v, &t.out, &t.lse, &g.dout, &g.dlse, &g.dq, &g.dk, &g.dv};
    const size_t n_parts = sizeof parts / sizeof *parts;
    for (size_t n = 0; n < n_parts; n++)
        if (parts[n]->data != NULL)
            *parts[n] = local_part(parts[n]);
    rp_status status = rp_mpi_plan_create(&shared, MPI_COMM_WORLD, &p->desc);
    for (int n = 0; n < 2 && status == RP_OK; n++)
        status = rp_mpi_backward(shared, &t, &g);
    int failed = 0;
    if (status == RP_E_ARG && strstr(rp_mpi_last_error(), "lse is too large") != NULL)
        imprecise++;
    else if (status != RP_OK)
        fail(p, "several processes:", rp_mpi_last_error()), failed = 1;
    else
        compared++;
    for (int n = 0; n < 3 && status == RP_OK && !failed; n++)
        if (difference(&want[n], gradient(&g, n)) >= 0)
            fail(p, n == 0 ? "dq" : n == 1 ? "dk" : "dv", "differs"), failed = 1;
    for (int n = 3; n < GRADIENTS && status == RP_OK && !failed && p->desc.dtype == RP_F64; n++)
        if (gradient(&one, n)->data != NULL && !(error_of(gradient(&one, n), gradient(&all, n)) <= 1e-12))
            fail(p, "the gradient of a term", "differs"), failed = 1;
    g.dweights = t.q;
    if (status == RP_OK &&
        (rp_mpi_backward(shared, &t, &g) != RP_E_UNSUPPORTED || !strstr(rp_mpi_last_error(), "dweights")))
        fail(p, "dweights:", rp_mpi_last_error()), failed = 1;
    g.dweights.data = NULL;
    g.dsoftcap = t.q;
    if (status == RP_OK &&
        (rp_mpi_backward(shared, &t, &g) != RP_E_UNSUPPORTED || !strstr(rp_mpi_last_error(), "dsoftcap")))
        fail(p, "dsoftcap:", rp_mpi_last_error()), failed = 1;
    rp_mpi_plan_destroy(shared);
    rp_pool_destroy(p->t.pool);
    p->t.pool = NULL;
    rp_plan_destroy(plan);
    for (size_t n = 0; n < n_parts; n++)
        free(parts[n]->data);
    for (int n = 0; n < 3; n++)
        free(want[n].data);
    return failed;
}

/* Every path of rows and keys: causal, windows, masked rows and keys, a sink whose rows skip the first keys, grouped
 * heads, fewer rows than processes. */
static const char *const gradient_texts[] = {
    "f32:b2h2q1600k1600d8:rope,scaling=dynamic,factor=2,max_position_embeddings=400:lengths+causal",
    "f32:b1h2q2100k2100d16:t5:causal",
    "f64:b1h2q2100k2100d16:t5:causal",
    "f32:b2h4g2q1700k1700d16:alibi:causal",
    "f64:b1h2q2600k2600d8:t5+sink:window=300,100",
    "f64:b2h4g2q1300k1300d8:t5+rope:lengths+key_mask+dlse",
    "bf16:b1h4g1q1500k1500d24v40:t5+rope:causal",
    "f64:b1h2q1500k1500d16:xl+t5:causal+dropout=0.3+seed=5",
    "f32:b1h2q1600k1600d16:swin,grid=40x40:",
    "f64:b1h2q1200k1200d16:relkey,left=20,right=5+relval,left=9,right=9+band,width=3,extent=40:causal",
    "f64:b1h2q700k700d16:dense+fire,c=2,L=100:mask",
    "f64:b1h2q700k700d16:deberta,span=32,buckets=-1:",
    "f32:b1h2q1500k1500d8:rope,positions=x+t5:segments",
    "f64:b2h4g2q1300k1300d8:rope,frequencies=given+t5:causal",
    "f64:b1h2q1200k1200d12:rope,dim=8,axes=2,frequencies=given,positions=given:lengths",
    "f32:b1h2q1500k1500d8:forget:",
    "f32:b1h2q3k4000d16:t5:",
    "f32:b1h2q700k2900d16o-40:t5:q_offsets",
    "f32:b1h2q2900k40d16:t5:causal",
    "f32:b1h2q40k40d16:t5:causal",
    "f64:b1h2q600k31d16o-569:t5:causal+scale=-0.5", /* dq of rows without a key is -0 */
    "f64:b1h1q40000k600d4o-900:t5:window=2,2",      /* of a block of rows, only those in the middle have keys */
    /* stretches that are divided into stripes, with up to five processes */
    "f32:b1h2g1q10500k10500d4v6:t5+rope:causal",
    "bf16:b2h1q6000k9000d4o3000:alibi+sink:causal+dlse",
    "f64:b2h1q7000k7000d4:t5:window=1500,20+lengths",
    "f32:b1h1q9300k9300d4:forget:segments",
};

/* Return a pool for calls that `cancel` cancels: only the calling thread calls it, and in a larger pool that thread may
 * get no work. */
static rp_pool *one_thread(void)
{
    rp_pool *one;
    return rp_pool_create(&one, 1) == RP_OK ? one : NULL;
}

/* Cancel the call in rank 1. */
static int cancel(void *context, double fraction)
{
    (void)context;
    return rank == 1 && fraction > 0;
}

static const struct {
    const char *name;
    rp_status status;
    const char *error;
} gradient_mistakes[] = {
    {"dq", RP_E_ARG, "rank 1: its type of dq differs from rank 0: absent, not f64"},
    {"dout", RP_E_SHAPE, "rank 1: dout: axis 3 has length 7; it must be 8"},
    {"stride", RP_E_STRIDE, "rank 1: dq: the stride of the last axis is 2; it must be 1"},
    {"lse", RP_E_ARG, "rank 1: lse is missing"},
    {"table", RP_E_ARG, "rank 1: its choice of gradients of t5 differs from rank 0"},
    {"cancel", RP_E_CANCELLED, "rank 1: the progress callback cancelled the call"},
};

/* Make mistake n in rank 1, and check that all processes get its error. Then check that the plan still works. */
static int make_gradient_mistake(size_t n)
{
    problem p;
    char err[512];
    const char *name = rank == 1 ? gradient_mistakes[n].name : "";
    rp_mpi_plan *plan = NULL;
    rp_pool *one = one_thread();
    if (one == NULL || problem_parse(&p, "fwdbwd:f32:b1h4g2q2100k2100d8:t5:causal", err) != 0 ||
        problem_fill(&p, 1, err) != 0)
        return 1;
    const int64_t lse[3] = {1, 4, 2100};
    p.t.lse = rp_array_of(problem_alloc(&p, 4 * 2100 * 8), RP_F64, 3, lse);
    rp_grads g = gradients_of(&p), wrong;
    rp_tensors t = p.t, mistaken;
    t.pool = one;
    rp_array *const parts[] = {&t.q, &t.k, &t.v, &t.out, &t.lse, &g.dout, &g.dq, &g.dk, &g.dv};
    for (size_t x = 0; x < sizeof parts / sizeof *parts; x++)
        *parts[x] = local_part(parts[x]);
    rp_status status = rp_mpi_plan_create(&plan, MPI_COMM_WORLD, &p.desc);
    if (status == RP_OK)
        status = rp_mpi_attend(plan, &t);
    mistaken = t, wrong = g;
    if (strcmp(name, "dq") == 0)
        wrong.dq.data = NULL;
    else if (strcmp(name, "dout") == 0)
        wrong.dout.shape[3] = 7;
    else if (strcmp(name, "stride") == 0)
        wrong.dq.stride[3] = 2;
    else if (strcmp(name, "lse") == 0)
        mistaken.lse.data = NULL;
    else if (strcmp(name, "table") == 0)
        wrong.term[0][0].data = NULL;
    else if (strcmp(name, "cancel") == 0)
        mistaken.progress = cancel;
    if (status == RP_OK)
        status = rp_mpi_backward(plan, &mistaken, &wrong);
    const char *error = gradient_mistakes[n].error;
    int failed = status != gradient_mistakes[n].status || strncmp(rp_mpi_last_error(), error, strlen(error)) != 0;
    if (failed)
        printf("FAILED rank %d, mistake %s: %d %s\n", rank, gradient_mistakes[n].name, (int)status,
               rp_mpi_last_error());
    if (plan != NULL && rp_mpi_backward(plan, &t, &g) != RP_OK)
        printf("FAILED rank %d, after mistake: %s\n", rank, rp_mpi_last_error()), failed = 1;
    rp_mpi_plan_destroy(plan);
    rp_pool_destroy(one);
    for (size_t x = 0; x < sizeof parts / sizeof *parts; x++)
        free(parts[x]->data);
    problem_free(&p);
    return any(failed);
}

static int all_gradient_mistakes(void)
{
    int failed = 0;
    for (size_t n = 0; n < sizeof gradient_mistakes / sizeof *gradient_mistakes && !failed; n++) {
        failed = make_gradient_mistake(n);
        compared += !failed;
    }
    return failed;
}

/* ------------------------------------------------------------------------------------------------ problems */

/* Compare a problem with one call. Return true if it failed. */
typedef int comparison(problem *p, uint64_t seed);

/* Compare n problems, whose texts follow the name of a pass, such as "fwd". */
static int compare_named(const char *pass, const char *const *list, size_t n, comparison *fails)
{
    int failed = 0;
    for (size_t x = 0; x < n && !failed; x++) {
        problem p;
        char text[512], err[512];
        snprintf(text, sizeof text, "%s:%s", pass, list[x]);
        if (problem_parse(&p, text, err) != 0 || problem_fill(&p, x, err) != 0) {
            printf("FAILED %s: %s\n", text, err);
            return 1;
        }
        failed = any(fails(&p, x));
        problem_free(&p);
    }
    return failed;
}

static bool is_long(const problem *p)
{
    return p->desc.len_k + p->desc.len_q > 600;
}

/* Return true if rp_mpi_backward supports the problem. */
static bool has_gradients(const problem *p)
{
    return is_long(p) && p->desc.len_k > 0 && p->desc.n_terms <= 4 && p->pass & PROBLEM_BACKWARD && !p->dsoftcap &&
           !p->dweights && !p->dsummary;
}

/* Compare random problems of limited `work` until `count` are compared. */
static int compare_random(char **argv, int64_t work, bool (*serves)(const problem *), comparison *fails)
{
    problem_dice dice = {.seed = strtoull(argv[0], NULL, 10)};
    const int count = atoi(argv[1]);
    int failed = 0;
    for (uint64_t n = 0; compared < count && !failed; n++) {
        problem p;
        char text[512], err[512];
        problem_draw(&dice, work, text);
        if (problem_parse(&p, text, err) != 0 || !serves(&p) || problem_fill(&p, n, err) != 0)
            continue;
        failed = any(fails(&p, n));
        problem_free(&p);
    }
    return failed;
}

/* ------------------------------------------------------------------------------------------------ mistakes */

/* What rank 1 does wrong, and the error that all processes must get. */
static const struct mistake {
    const char *name, *error;
    rp_status status;
} mistakes[] = {
    {"length", "rank 1: its desc.len_k differs from rank 0: 2101, not 2100; give all processes the same", RP_E_ARG},
    {"dtype", "rank 1: its desc.dtype differs from rank 0: f64, not f32", RP_E_ARG},
    {"scale", "rank 1: its desc.scale differs from rank 0: 0.5, not", RP_E_ARG},
    {"isa", "rank 1: its instruction set differs from rank 0: generic, not ", RP_E_ARG},
    {"term", "rank 1: its checksum of t5 differs from rank 0: ", RP_E_ARG},
    {"mask", "rank 1: its checksum of window differs from rank 0: ", RP_E_ARG},
    {"heads", "rank 1: desc.kv_heads is 3; it must divide desc.heads, which is 4", RP_E_RANGE},
    {"reference", "rank 1: the reference path computes all rows and keys in one call", RP_E_UNSUPPORTED},
    {"table", "rank 1: its checksum of the arrays of t5 differs from rank 0: ", RP_E_ARG},
    {"rows", "rank 1: q: axis 2 has length 3; it must be 1024, the lengths of both stretches of this process",
     RP_E_SHAPE},
    {"missing", "rank 1: v is missing", RP_E_ARG},
    {"type", "rank 1: k: dtype is f64; it must be f32, like desc.dtype", RP_E_ARG},
    {"stride", "rank 1: out: the stride of the last axis is 0; it must be 1", RP_E_STRIDE},
    {"weights", "rank 1: weights was given, but rp_mpi_attend does not support it", RP_E_UNSUPPORTED},
    {"cancel", "rank 1: the progress callback cancelled the call", RP_E_CANCELLED},
};

/* Change a description or arrays in rank 1. */
static void spoil(const char *name, problem *p, rp_tensors *t)
{
    const bool arrays = t != NULL;
    static double x;
    if (strcmp(name, "cancel") == 0 && arrays)
        t->progress = cancel;
    if (rank != 1)
        return;
    if (!arrays) {
        p->desc.len_k += strcmp(name, "length") == 0;
        p->desc.dtype = strcmp(name, "dtype") == 0 ? RP_F64 : RP_F32;
        p->desc.scale = strcmp(name, "scale") == 0 ? 0.5 : p->desc.scale;
        p->desc.isa = strcmp(name, "isa") == 0 ? "generic" : strcmp(name, "reference") == 0 ? "reference" : NULL;
        p->terms[0].max_distance += strcmp(name, "term") == 0;
        p->masks[0].left += strcmp(name, "mask") == 0;
        p->desc.kv_heads = strcmp(name, "heads") == 0 ? 3 : p->desc.kv_heads;
    } else if (strcmp(name, "table") == 0)
        ((float *)t->term[0][0].data)[5] += 1;
    else if (strcmp(name, "rows") == 0)
        t->q.shape[2] = 3;
    else if (strcmp(name, "missing") == 0)
        t->v.data = NULL;
    else if (strcmp(name, "type") == 0)
        t->k.dtype = RP_F64;
    else if (strcmp(name, "stride") == 0)
        t->out.stride[3] = 0;
    else if (strcmp(name, "weights") == 0)
        t->weights.data = &x;
}

/* Make a mistake in rank 1, and check that all processes get its error. Then check that the plan still works. */
static int make_mistake(const struct mistake *m)
{
    problem p;
    char err[512];
    rp_mpi_plan *plan = NULL;
    rp_pool *one = one_thread();
    if (one == NULL || problem_parse(&p, "fwd:f32:b1h4g2q2100k2100d8:t5:window=900,0", err) != 0 ||
        problem_fill(&p, 1, err) != 0)
        return 1;
    rp_tensors t = p.t;
    t.pool = one;
    t.q = local_part(&t.q), t.k = local_part(&t.k), t.v = local_part(&t.v), t.out = local_part(&t.out);
    rp_array *made[] = {&t.q, &t.k, &t.v, &t.out};
    void *data[4];
    for (int n = 0; n < 4; n++)
        data[n] = made[n]->data;
    spoil(m->name, &p, NULL);
    rp_status status = rp_mpi_plan_create(&plan, MPI_COMM_WORLD, &p.desc);
    if (status == RP_OK) {
        rp_tensors wrong = t;
        spoil(m->name, &p, &wrong);
        status = rp_mpi_attend(plan, &wrong);
    }
    int failed = status != m->status || strncmp(rp_mpi_last_error(), m->error, strlen(m->error)) != 0;
    if (failed)
        printf("FAILED rank %d, mistake %s: %d %s\n", rank, m->name, (int)status, rp_mpi_last_error());
    if (plan != NULL && strcmp(m->name, "table") != 0 && rp_mpi_attend(plan, &t) != RP_OK)
        printf("FAILED rank %d, after mistake %s: %s\n", rank, m->name, rp_mpi_last_error()), failed = 1;
    rp_mpi_plan_destroy(plan);
    rp_pool_destroy(one);
    for (int n = 0; n < 4; n++)
        free(data[n]);
    problem_free(&p);
    return any(failed);
}

static int all_mistakes(void)
{
    int failed = 0;
    for (size_t n = 0; n < sizeof mistakes / sizeof *mistakes && !failed; n++) {
        failed = strcmp(mistakes[n].name, "isa") == 0 && strcmp(rp_isa_default(), "generic") == 0
                     ? 0
                     : make_mistake(&mistakes[n]);
        compared += !failed;
    }
    return failed;
}

int main(int argc, char **argv)
{
    int level, failed = 0;
    const bool alone = getenv("WITHOUT_THREADS") != NULL; /* then the caller's thread calls MPI */
    MPI_Init_thread(NULL, NULL, alone ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc == 4 && strcmp(argv[1], "random") == 0)
        failed = compare_random(argv + 2, 1 << 21, is_long, compare);
    else if (argc == 2 && strcmp(argv[1], "named") == 0)
        failed = compare_named("fwd", texts, COUNT(texts), compare);
    else if (argc == 4 && strcmp(argv[1], "gradients") == 0)
        failed = compare_random(argv + 2, 1 << 19, has_gradients, compare_gradients);
    else if (argc == 2 && strcmp(argv[1], "gradients") == 0)
        failed = compare_named("fwdbwd", gradient_texts, COUNT(gradient_texts), compare_gradients);
    else if (argc > 2 && strcmp(argv[1], "these") == 0)
        failed = compare_named("fwdbwd", (const char *const *)argv + 2, (size_t)argc - 2, compare_gradients);
    else if (argc == 2 && strcmp(argv[1], "gradient_mistakes") == 0)
        failed = all_gradient_mistakes();
    else if (argc == 2 && strcmp(argv[1], "mistakes") == 0)
        failed = all_mistakes();
    else
        failed = 1;
    if (rank == 0)
        printf("%d compared\n", compared);
    MPI_Finalize();
    return failed;
}
