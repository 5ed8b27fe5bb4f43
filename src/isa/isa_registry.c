/* isa/isa_registry.c -- find instruction sets by name, and whether this machine supports them. Also measure the
 * machine's peak rates of multiply-adds and of reading memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "base/pool.h"
#include "base/error.h"
#include "problem/ops.h"
#include "processor/processor.h"
#include "processor/target.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RPI_X(name, wide, found) extern const rpi_ops rpi_ops_##name, rpi_ops_##wide##_f64;
#include "isa.def"
#undef RPI_X

typedef struct isa_entry {
    const rpi_ops *f32, *f64;
    bool found;
} isa_entry;

enum {
#define RPI_X(name, wide, found) AT_##name,
#include "isa.def"
#undef RPI_X
    COUNT
};

/* Filled once per process: CPUID is slow in a virtual machine, and every plan looks up its instruction set. */
static isa_entry list[COUNT];

static void fill_list(void)
{
    const rpi_processor p = rpi_processor_ask();
    (void)p; /* unused on some architectures */
#define RPI_X(name, wide, has) list[AT_##name] = (isa_entry){&rpi_ops_##name, &rpi_ops_##wide##_f64, has};
#include "isa.def"
#undef RPI_X
}

/* Return the entry with this name, or NULL. */
static const isa_entry *entry(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_list);
    for (int n = 0; n < COUNT; n++) {
        if (strcmp(list[n].f32->name, name) == 0)
            return &list[n];
    }
    return NULL;
}

const char *rp_isa_name(int index)
{
    static const char *const names[] = {
#define RPI_X(name, wide, found) #name,
#include "isa.def"
#undef RPI_X
    };
    return index >= 0 && index < COUNT ? names[index] : NULL;
}

int rp_isa_found(const char *name)
{
    if (!name)
        return -1;
    if (strcmp(name, "reference") == 0)
        return 1;
    const isa_entry *e = entry(name);
    return e ? e->found : -1;
}

const rpi_ops *rpi_ops_named(const char *name, bool f64)
{
    const isa_entry *e = entry(name);
    return !e || !e->found ? NULL : f64 ? e->f64 : e->f32;
}

/* Return the instruction set that RELPOS_ISA names, or NULL if it names none of this machine. */
static const char *wanted(void)
{
    const char *name = getenv("RELPOS_ISA");
    if (!name || !*name || rp_isa_found(name) != 1)
        return NULL;
    return strcmp(name, "reference") == 0 ? "reference" : entry(name)->f32->name;
}

static const char *best(void)
{
    for (int n = COUNT - 1; n > 0; n--) {
        if (entry(rp_isa_name(n))->found && strcmp(rp_isa_name(n), "amx_emulated") != 0)
            return rp_isa_name(n);
    }
    return "generic";
}

const char *rp_isa_default(void)
{
    const char *name = wanted();
    return name ? name : best();
}

const char *rpi_isa_for(rp_dtype dtype, rp_precision precision)
{
    const char *name = wanted();
    if (name)
        return name;
    name = best();
    const bool many = dtype == RP_F16 || (dtype == RP_F32 && precision != RP_PRECISION_HIGH);
    return many && strcmp(name, "amx") == 0 ? "avx512_bf16" : name;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct peak_job {
    double (*peak)(int64_t rounds);
    double done[RP_MAX_THREADS]; /* multiply-adds of each task */
} peak_job;

static void peak_task(void *context, int64_t n, int32_t worker)
{
    peak_job *j = context;
    (void)worker;
    j->done[n] = j->peak(200000);
}

static rp_status measure(double (*peak)(int64_t), rp_pool *pool, double *gflops)
{
    peak_job *j = calloc(1, sizeof *j);
    if (!j)
        return rpi_fail(RP_E_NOMEM, "out of memory: the measurement needs %zu bytes", sizeof *j);
    j->peak = peak;
    pool = rpi_pool_or_default(pool);
    const double began = now();
    /* several runs, because the clock frequency rises during the first ones */
    for (int run = 0; run < 12 && (run == 0 || now() < began + 0.25); run++) {
        const double start = now();
        rpi_pool_run(pool, rp_pool_threads(pool), peak_task, j);
        const double seconds = now() - start;
        double sum = 0;
        for (int32_t n = 0; n < rp_pool_threads(pool); n++)
            sum += j->done[n];
        if (seconds > 0 && 2e-9 * sum / seconds > *gflops)
            *gflops = 2e-9 * sum / seconds;
    }
    free(j);
    return RP_OK;
}

rp_status rp_measure_tile_peak(rp_pool *pool, double *gflops)
{
    const rpi_ops *ops = rpi_ops_named("amx", false);
    if (!gflops)
        return rpi_fail(RP_E_ARG, "gflops is NULL; pass the address of a number");
    *gflops = 0;
    return ops ? measure(ops->amx_peak, pool, gflops)
               : rpi_fail(RP_E_UNSUPPORTED, "AMX is not available on this machine; call rp_measure_tile_peak only if "
                                            "rp_isa_found(\"amx\") returns 1");
}

rp_status rp_measure_peak(const char *isa, rp_pool *pool, double *gflops)
{
    const char *name = isa ? isa : rp_isa_default();
    if (!gflops)
        return rpi_fail(RP_E_ARG, "gflops is NULL; pass the address of a number");
    *gflops = 0;
    if (rp_isa_found(name) < 0 || strcmp(name, "reference") == 0)
        return rpi_fail(RP_E_ARG, "isa is \"%.32s\"; it must be an instruction set that rp_isa_name lists", name);
    const rpi_ops *ops = rpi_ops_named(name, false);
    return ops ? measure(ops->peak, pool, gflops)
               : rpi_fail(
                     RP_E_UNSUPPORTED,
                     "isa is \"%.32s\", which this machine does not have; use one for which rp_isa_found returns 1",
                     name);
}

typedef uint64_t sixteen_bytes __attribute__((vector_size(16)));

/* Read memory in a few streams, alternately one line of 64 bytes from each. */
enum { LINE = 64 / sizeof(sixteen_bytes), STREAMS = 4, STREAM = (256 << 20) / sizeof(sixteen_bytes) / STREAMS };

typedef struct bandwidth_job {
    sixteen_bytes *data; /* [threads][STREAMS][STREAM] */
    bool fill;           /* write instead of read, so that each thread first writes the part that it will read */
    uint64_t seen[RP_MAX_THREADS];
} bandwidth_job;

static void bandwidth_task(void *context, int64_t n, int32_t worker)
{
    bandwidth_job *j = context;
    sixteen_bytes *p = j->data + n * STREAMS * STREAM, sum[LINE] = {{0}};
    (void)worker;
    if (j->fill)
        memset(p, 1, STREAMS * STREAM * sizeof *p);
    for (int64_t x = 0; x < STREAM; x += LINE) {
        RPI_UNROLL
        for (int s = 0; s < STREAMS; s++) {
            RPI_UNROLL
            for (int c = 0; c < LINE; c++)
                sum[c] ^= p[s * STREAM + x + c];
        }
    }
    for (int c = 0; c < LINE; c++)
        j->seen[n] ^= sum[c][0] ^ sum[c][1]; /* use the sum, so that the compiler does not remove the reads */
}

rp_status rp_measure_bandwidth(rp_pool *pool, double *bytes_per_second)
{
    if (!bytes_per_second)
        return rpi_fail(RP_E_ARG, "bytes_per_second is NULL; pass the address of a number");
    *bytes_per_second = 0;
    pool = rpi_pool_or_default(pool);
    const size_t threads = (size_t)rp_pool_threads(pool), bytes = threads * STREAMS * STREAM * sizeof(sixteen_bytes);
    bandwidth_job *j = calloc(1, sizeof *j);
    if (j)
        j->data = malloc(bytes);
    if (!j || !j->data) {
        free(j);
        return rpi_fail(RP_E_NOMEM, "out of memory: the measurement needs %zu bytes", bytes);
    }
    for (int run = 0; run < 8; run++) {
        j->fill = run == 0;
        const double start = now();
        rpi_pool_run(pool, (int64_t)threads, bandwidth_task, j);
        *bytes_per_second = fmax(*bytes_per_second, (double)bytes / (now() - start));
    }
    free(j->data);
    free(j);
    return RP_OK;
}
