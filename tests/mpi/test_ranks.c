/* test_ranks.c -- attention over several processes has the bits of one call. mpirun starts this program, which
 * tests/mpi/attend.sh runs with different numbers of processes:
 *
 *     mpirun -n 3 test_ranks random SEED COUNT     compare COUNT random problems
 *     mpirun -n 3 test_ranks named                 compare the problems below
 *     mpirun -n 3 test_ranks NAME                  make the mistake NAME, and print the error of each process
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <relpos/mpi.h>
#include "cli/support/random_problem.h"
#include "cli/support/sample_problem.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, compared, refused;

static const char *const texts[] = {
    "f32:b1h2q2100k2100d16:t5:causal",
    "f32:b2h4g2q1700k1700d16:alibi:causal",
    "f32:b1h2q5000k5000d8:alibi:",
    "f32:b1h2q5000k5000d8:t5:window=600,100",
    "f32:b1h2q4100k4100d8:rope+alibi+sink:window=2000,0",
    "f32:b1h2q3600k3600d8:forget:",
    "f32:b1h2q2600k2600d8:rope,scaling=dynamic,factor=2,max_position_embeddings=400:causal",
    "f32:b1h2q2600k2600d8:rope,positions=x+t5:segments",
    "f32:b2h2q2600k2600d8:alibi:starts+ends",
    "f32:b3h2q2600k2600d8:t5+rope:lengths+key_mask",
    "f64:b1h2q1800k1800d10v5:alibi+sink+rope:causal",
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
    "f32:b1h2q40k40d16:t5:causal",
    "f32:b1h2q2600k2600d8:t5:window=5,-1+lengths",
    "f32:b1h1q600k0d8:t5:",
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
    for (int n = 0; n < 2 && status == RP_OK; n++) /* twice, because a plan may be used again */
        status = rp_mpi_attend(shared, &t);
    int failed = 0;
    if (status == RP_E_UNSUPPORTED && strstr(rp_mpi_last_error(), "score of its own key") != NULL)
        refused++;
    else if (status != RP_OK)
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

static int named(void)
{
    int failed = 0;
    for (size_t n = 0; n < sizeof texts / sizeof *texts && !failed; n++) {
        problem p;
        char text[512], err[512];
        snprintf(text, sizeof text, "fwd:%s", texts[n]);
        if (problem_parse(&p, text, err) != 0 || problem_fill(&p, n, err) != 0) {
            printf("FAILED %s: %s\n", text, err);
            return 1;
        }
        failed = any(compare(&p, n));
        problem_free(&p);
    }
    return failed;
}

static int random_problems(uint64_t seed, int count)
{
    problem_dice dice = {.seed = seed};
    int failed = 0;
    for (uint64_t n = 0; compared < count && !failed; n++) {
        problem p;
        char text[512], err[512];
        problem_draw(&dice, 1 << 22, text);
        if (problem_parse(&p, text, err) != 0 || p.desc.len_k + p.desc.len_q <= 600 || problem_fill(&p, n, err) != 0)
            continue;
        failed = any(compare(&p, n));
        problem_free(&p);
    }
    return failed;
}

int main(int argc, char **argv)
{
    int level, failed = 0;
    const char *wanted = getenv("LEVEL");
    MPI_Init_thread(NULL, NULL, wanted ? atoi(wanted) : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc == 4 && strcmp(argv[1], "random") == 0)
        failed = random_problems(strtoull(argv[2], NULL, 10), atoi(argv[3]));
    else if (argc == 2 && strcmp(argv[1], "named") == 0)
        failed = named();
    else
        failed = 1;
    if (rank == 0)
        printf("%d problems compared, %d refused\n", compared, refused);
    MPI_Finalize();
    return failed;
}
