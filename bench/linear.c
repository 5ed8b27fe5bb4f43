/* linear.c -- times the linear layers of relpos, oneDNN (with weights reordered before timing, as relpos packs its own)
 * and OpenBLAS, alternating between them in one process. bench/linear.py sets OMP_NUM_THREADS and OPENBLAS_CORETYPE,
 * runs this program, and makes a page from its output: one line of JSON per case.
 *
 *     bench_linear THREADS TYPE ROWS IN OUT SAMPLES
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/linear.h"
#include <dlfcn.h>
#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void gemm(int order, int transa, int transb, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);

typedef struct bench {
    rp_pool *pool, *alone; /* alone: a pool of one thread */
    linear_weights w;
    linear_call call;
    float *given;
    gemm *blas;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t convert; /* converts x to the type that the products use */
    dnnl_exec_arg_t convert_args[2][2];
    dnnl_primitive_t primitive[2]; /* matmul, inner product */
    dnnl_exec_arg_t args[2][3];
    float *peer_y;
} bench;

/* The clock. With one thread it is set to processor time, which depends less on other work on the machine. */
static clockid_t timer = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(timer, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void good(int status, const char *what)
{
    if (status != 0) {
        fprintf(stderr, "bench_linear: %s: status %d\n", what, status);
        exit(1);
    }
}

static void *taken(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
    good(p == NULL, "memory");
    return p;
}

static float *numbers(int64_t n)
{
    float *x = taken(n * 4);
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        x[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
    return x;
}

/* ---- oneDNN */

static dnnl_memory_t memory(const bench *b, const dnnl_memory_desc_t *md, void *data)
{
    dnnl_memory_t m;
    good(dnnl_memory_create(&m, md, b->engine, data), "dnnl_memory_create");
    return m;
}

static void execute(const bench *b, dnnl_primitive_t p, int n, const dnnl_exec_arg_t *args)
{
    good(dnnl_primitive_execute(p, b->stream, n, args), "dnnl_primitive_execute");
    dnnl_stream_wait(b->stream);
}

static dnnl_primitive_t reorder(const bench *b, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t p;
    good(dnnl_reorder_primitive_desc_create(&pd, from, b->engine, to, b->engine, NULL), "reorder");
    good(dnnl_primitive_create(&p, pd), "reorder");
    return p;
}

/* Return an attribute with output scales. Products of integers need it. */
static dnnl_primitive_attr_t output_scales(int64_t n)
{
    dnnl_primitive_attr_t attr;
    float *scales = taken(n * 4);
    for (int64_t o = 0; o < n; o++)
        scales[o] = 1e-4f;
    good(dnnl_primitive_attr_create(&attr), "dnnl_primitive_attr_create");
    good(dnnl_primitive_attr_set_output_scales(attr, n, 2, scales), "dnnl_primitive_attr_set_output_scales");
    return attr;
}

/* Create a matmul or inner product primitive. Return false if oneDNN does not support these types. */
static bool product(bench *b, int which, const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w,
                    const dnnl_memory_desc_t *y, dnnl_memory_desc_t *packed)
{
    dnnl_primitive_attr_t attr = b->w.type == LINEAR_INT8 ? output_scales(b->w.out) : NULL;
    dnnl_primitive_desc_t pd;
    dnnl_matmul_desc_t matmul;
    dnnl_inner_product_desc_t inner;
    if (which == 0)
        dnnl_matmul_desc_init(&matmul, x, w, NULL, y);
    else
        dnnl_inner_product_forward_desc_init(&inner, dnnl_forward_inference, x, w, NULL, y);
    const void *desc = which == 0 ? (const void *)&matmul : (const void *)&inner;
    if (dnnl_primitive_desc_create(&pd, desc, attr, b->engine, NULL) != 0)
        return false;
    good(dnnl_primitive_create(&b->primitive[which], pd), "dnnl_primitive_create");
    *packed = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    return true;
}

/* x is f32, as for relpos, so each call first converts it, or quantizes it with one fixed scale. */
static void dnnl_begin(bench *b, int which)
{
    const dnnl_data_type_t type = b->w.type == LINEAR_F32 ? dnnl_f32 : b->w.type == LINEAR_BF16 ? dnnl_bf16 : dnnl_s8;
    const int64_t m = b->call.rows, k = b->w.in, n = b->w.out;
    dnnl_memory_desc_t given, x, w, any, packed, y;
    dnnl_memory_desc_init_by_tag(&given, 2, (dnnl_dims_t){m, k}, dnnl_f32, dnnl_ab);
    dnnl_memory_desc_init_by_tag(&x, 2, (dnnl_dims_t){m, k}, type == dnnl_s8 ? dnnl_u8 : type, dnnl_ab);
    dnnl_memory_desc_init_by_tag(&y, 2, (dnnl_dims_t){m, n}, dnnl_f32, dnnl_ab);
    if (which == 0) {
        dnnl_memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){k, n}, dnnl_f32, dnnl_ba);
        dnnl_memory_desc_init_by_tag(&any, 2, (dnnl_dims_t){k, n}, type, dnnl_format_tag_any);
    } else {
        dnnl_memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){n, k}, dnnl_f32, dnnl_ab);
        dnnl_memory_desc_init_by_tag(&any, 2, (dnnl_dims_t){n, k}, type, dnnl_format_tag_any);
    }
    if (!product(b, which, &x, &any, &y, &packed))
        return;
    dnnl_memory_t to = memory(b, &packed, DNNL_MEMORY_ALLOCATE), from = memory(b, &given, (void *)(uintptr_t)b->call.x);
    execute(b, reorder(b, &w, &packed), 2,
            (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, memory(b, &w, b->given)}, {DNNL_ARG_TO, to}});
    dnnl_memory_t in = from;
    if (type != dnnl_f32) {
        in = memory(b, &x, DNNL_MEMORY_ALLOCATE);
        b->convert = reorder(b, &given, &x);
    }
    b->convert_args[which][0] = (dnnl_exec_arg_t){DNNL_ARG_FROM, from};
    b->convert_args[which][1] = (dnnl_exec_arg_t){DNNL_ARG_TO, in};
    b->args[which][0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, in};
    b->args[which][1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, to};
    b->args[which][2] = (dnnl_exec_arg_t){DNNL_ARG_DST, memory(b, &y, b->peer_y)};
}

/* ---- one call of each library */

enum { OURS, MATMUL, INNER, BLAS, ALONE, SIDES };
static const char *const side_name[SIDES] = {"relpos", "dnnl_matmul", "dnnl_inner_product", "openblas", "one_thread"};

static void once(bench *b, int side)
{
    if (side == OURS || side == ALONE)
        good(linear_apply(side == OURS ? b->pool : b->alone, &b->w, &b->call), "linear_apply");
    else if (side == BLAS)
        b->blas(101, 111, 112, (int)b->call.rows, (int)b->w.out, (int)b->w.in, 1, b->call.x, (int)b->w.in, b->given,
                (int)b->w.in, 0, b->peer_y, (int)b->w.out);
    else {
        if (b->convert)
            execute(b, b->convert, 2, b->convert_args[side - MATMUL]);
        execute(b, b->primitive[side - MATMUL], 3, b->args[side - MATMUL]);
    }
}

static bool present(const bench *b, int side)
{
    return side == OURS || (side == ALONE  ? b->alone != NULL
                            : side == BLAS ? b->blas && b->w.type == LINEAR_F32
                                           : b->primitive[side - MATMUL] != NULL);
}

static double sample(bench *b, int side, int times)
{
    const double start = now();
    for (int n = 0; n < times; n++)
        once(b, side);
    return (now() - start) / times;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Print the quartiles of n numbers as JSON. */
static void print_quartiles(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    printf("[%.4g, %.4g, %.4g]", x[n / 4], x[n / 2], x[3 * n / 4]);
}

enum { MOST_SAMPLES = 1000 };

static void measure(bench *b, int samples, int threads)
{
    static double time[SIDES][MOST_SAMPLES], ratio[MOST_SAMPLES], share[MOST_SAMPLES];
    const double bytes = (double)linear_packed_bytes(b->w.type, b->w.in, b->w.out);
    const bool reads = b->call.rows == 1; /* alternate with measurements of memory bandwidth */
    int times[SIDES];
    double peak, bandwidth = 0, found, worst = 0, largest = 0;
    for (int s = SIDES - 1; s >= 0; s--)
        if (present(b, s)) {
            once(b, s);
            const double t = sample(b, s, 1);
            times[s] = t > 4e-3 ? 1 : (int)(4e-3 / t) + 1;
        }
    if (b->w.type == LINEAR_F32 && b->primitive[0])
        for (int64_t n = 0; n < b->call.rows * b->w.out; n++) {
            worst = fmax(worst, fabs((double)b->call.y[n] - (double)b->peer_y[n]));
            largest = fmax(largest, fabs((double)b->peer_y[n]));
        }
    for (int n = 0; n < samples; n++) {
        for (int s = 0; s < SIDES; s++)
            if (present(b, s))
                time[s][n] = sample(b, s, times[s]);
        if (!reads && n > 0)
            continue;
        good(rp_measure_bandwidth(b->pool, &found), "bandwidth");
        bandwidth = fmax(bandwidth, found);
        share[n] = bytes / time[OURS][n] / found;
    }
    good(rp_measure_peak(NULL, b->pool, &peak), "peak");
    printf("{\"threads\": %d, \"type\": \"%s\", \"rows\": %d, \"in\": %d, \"out\": %d, \"bytes\": %lld, "
           "\"peak_gflops\": %.1f, "
           "\"bandwidth\": %.4g, \"difference\": %.2g",
           threads, linear_type_name(b->w.type), (int)b->call.rows, (int)b->w.in, (int)b->w.out, (long long)bytes, peak,
           bandwidth, largest > 0 ? worst / largest : 0);
    if (reads) {
        printf(", \"share\": ");
        print_quartiles(share, samples);
    }
    for (int s = 1; s < SIDES; s++)
        if (present(b, s)) {
            for (int n = 0; n < samples; n++)
                ratio[n] = time[s][n] / time[OURS][n];
            printf(", \"%s/relpos\": ", side_name[s]);
            print_quartiles(ratio, samples);
        }
    for (int s = 0; s < SIDES; s++)
        if (present(b, s)) {
            printf(", \"%s\": ", side_name[s]);
            print_quartiles(time[s], samples);
        }
    printf("}\n");
}

int main(int argc, char **argv)
{
    bench b = {0};
    if (argc != 7) {
        fprintf(stderr, "usage: bench_linear THREADS TYPE ROWS IN OUT SAMPLES (bench/linear.py starts it)\n");
        return 2;
    }
    const int threads = atoi(argv[1]), samples = atoi(argv[6]);
    for (int t = 0; t < LINEAR_TYPES; t++)
        if (strcmp(argv[2], linear_type_name((linear_type)t)) == 0)
            b.w.type = (linear_type)t;
    b.w.in = atoll(argv[4]);
    b.w.out = atoll(argv[5]);
    b.call.rows = atoll(argv[3]);
    timer = threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    good(samples < 1 || samples > MOST_SAMPLES, "samples");
    good(rp_pool_create(&b.pool, threads), "rp_pool_create");
    if (threads > 1)
        good(rp_pool_create(&b.alone, 1), "rp_pool_create");
    void *packed = taken(linear_packed_bytes(b.w.type, b.w.in, b.w.out));
    b.given = numbers(b.w.in * b.w.out);
    b.w.packed = packed;
    good(linear_pack(b.pool, b.w.type, b.w.in, b.w.out, b.given, RP_F32, b.w.in, packed), "linear_pack");
    b.call.x = numbers(b.call.rows * b.w.in);
    b.call.y = taken(b.call.rows * b.w.out * 4);
    b.peer_y = taken(b.call.rows * b.w.out * 4);
    b.call.ldx = b.w.in;
    b.call.ldy = b.w.out;
    const int64_t scratch = linear_scratch_bytes(b.w.type, b.call.rows, b.w.in);
    b.call.scratch = scratch ? taken(scratch) : NULL;
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW);
    if (blas) {
        void *at = dlsym(blas, "cblas_sgemm");
        memcpy(&b.blas, &at, sizeof at);
        at = dlsym(blas, "openblas_set_num_threads");
        void (*set_threads)(int);
        memcpy(&set_threads, &at, sizeof at);
        set_threads(threads);
    }
    good(dnnl_engine_create(&b.engine, dnnl_cpu, 0), "dnnl_engine_create");
    good(dnnl_stream_create(&b.stream, b.engine, dnnl_stream_default_flags), "dnnl_stream_create");
    if (b.w.type != LINEAR_INT4)
        for (int which = 0; which < 2; which++)
            dnnl_begin(&b, which);
    measure(&b, samples, threads);
    return 0;
}
