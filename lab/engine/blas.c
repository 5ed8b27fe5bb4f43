/* blas.c -- products of matrices by a CBLAS that is loaded when it is first used, so that the program itself needs none. It knows
 * nothing of models; of the processor it asks rp_isa_found.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* as CBLAS numbers them */
typedef void gemm_function(int order, int transa, int transb, int m, int n, int k, real alpha, const real *a, int lda,
                           const real *b, int ldb, real beta, real *c, int ldc);
#ifdef NN_DOUBLE
#define GEMM "cblas_dgemm"
#else
#define GEMM "cblas_sgemm"
#endif

static gemm_function *gemm;
static char name[256], note[256];

/* POSIX lets dlsym return functions; C alone has no cast for it. */
static void find(void *library, const char *symbol, void *function, size_t size)
{
    void *p = library ? dlsym(library, symbol) : NULL;
    memcpy(function, &p, size);
}

/* How wide the vectors of a core of x86-64 are: 0 below AVX2, 1 AVX2, 2 above. A name that is not listed is of a newer core or of
 * another architecture. */
static int width_of(const char *core)
{
    static const char *const below[] = {"Unknown",    "Generic",    "Katmai", "Coppermine",  "Northwood",
                                        "Prescott",   "Banias",     "Atom",   "Core2",       "Penryn",
                                        "Dunnington", "Nehalem",    "Athlon", "Opteron",     "Opteron_SSE3",
                                        "Barcelona",  "Bobcat",     "Nano",   "Sandybridge", "Bulldozer",
                                        "Piledriver", "Steamroller"},
                             *const with_avx2[] = {"Haswell", "Zen", "Excavator"};
    for (size_t n = 0; n < sizeof below / sizeof *below; n++)
        if (strcasecmp(core, below[n]) == 0)
            return 0;
    for (size_t n = 0; n < sizeof with_avx2 / sizeof *with_avx2; n++)
        if (strcasecmp(core, with_avx2[n]) == 0)
            return 1;
    return 2;
}

const char *nn_blas_core(const char *core, bool avx2, bool avx512)
{
    const int width = avx512 ? 2 : avx2 ? 1 : 0; /* of this processor */
    return width_of(core) >= width ? NULL : width == 2 ? "SkylakeX" : "Haswell";
}

static void *load(const char *path)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t n = 0; n < sizeof names / sizeof *names && !path && !library; n++)
        library = dlopen(names[n], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* The core whose kernels an OpenBLAS runs; "" where it does not tell, or where the CBLAS is another one. */
static const char *core_of(void *library)
{
    char *(*core)(void);
    find(library, "openblas_get_corename", &core, sizeof core);
    return core ? core() : "";
}

/* The core whose kernels it should run instead; NULL where its own are the best. */
static const char *better_core(void *library)
{
    return nn_blas_core(core_of(library), rp_isa_found("avx2") == 1, rp_isa_found("avx512") == 1);
}

static const char key[] = "OPENBLAS_CORETYPE";

/* Close `library` and load it again with a core named; NULL: with the core that it chooses by itself. */
static void *load_again(void *library, const char *path, const char *core)
{
    dlclose(library);
    if (core)
        setenv(key, core, 1);
    library = load(path);
    if (core)
        unsetenv(key);
    return library;
}

/* An OpenBLAS that is older than the processor runs kernels of an older core, at half of the speed or less. It chooses them while it is
 * loaded, so it is closed and loaded again with the core named. One that does not know the name runs the slowest kernels of all, so the
 * best of the attempts is kept. */
static void *load_best(const char *path)
{
    const char *set = getenv(key);
    void *library = load(path);
    const char *better = better_core(library), *now = NULL, *best = NULL;
    const bool chosen = set && *set;
    const char *const tries[] = {better, "Haswell"};
    int width = width_of(core_of(library));
    for (int n = 0; n < 2 && better && !chosen && better_core(library); n++) {
        now = tries[n];
        library = load_again(library, path, now);
        if (width_of(core_of(library)) > width) {
            width = width_of(core_of(library));
            best = now;
        }
    }
    if (now != best)
        library = load_again(library, path, best);
    better = better_core(library);
    if (better)
        snprintf(note, sizeof note,
                 "OpenBLAS runs its kernels for %.40s, and this processor could run those for %s (%s)",
                 core_of(library), better,
                 chosen ? "OPENBLAS_CORETYPE is set: unset it" : "a newer one, or RELPOS_BLAS, may do so");
    return library;
}

int nn_blas_memory(int32_t threads, char err[NN_ERR_MAX])
{
    const size_t buffer = (size_t)160 << 20; /* of OpenBLAS 0.3.21: 129 MB */
    void **held = calloc((size_t)threads, sizeof *held);
    int32_t n = 0;
    while (held && n < threads && (held[n] = malloc(buffer)) != NULL)
        n++;
    for (int32_t x = 0; x < n; x++)
        free(held[x]);
    free(held);
    return n == threads ? 0
                        : nn_fail(err,
                                  "lab: out of memory for the CBLAS, which takes some %zu MB for each of %d threads "
                                  "(--threads 1, or a larger ulimit -v)",
                                  buffer >> 20, (int)threads);
}

int nn_blas_open(char err[NN_ERR_MAX])
{
    const char *path = getenv("RELPOS_BLAS");
    if (gemm)
        return 0;
    path = path && *path ? path : NULL;
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = load_best(path);
    if (!library)
        return nn_fail(err, "lab: %s cannot be loaded (install Debian's libopenblas0, or name a CBLAS in RELPOS_BLAS)",
                       path ? path : "libopenblas.so.0");
    find(library, GEMM, &gemm, sizeof gemm);
    if (!gemm)
        return nn_fail(err, "lab: %s has no " GEMM " (install Debian's libopenblas0, or name a CBLAS in RELPOS_BLAS)",
                       path ? path : "libopenblas");
    void (*set_threads)(int);
    char *(*config)(void);
    find(library, "openblas_set_num_threads", &set_threads, sizeof set_threads);
    find(library, "openblas_get_config", &config, sizeof config);
    if (set_threads)
        set_threads(1);
    const char *version = config ? config() : "a CBLAS", *core = core_of(library);
    snprintf(name, sizeof name, "%.*s%s%.40s", version[0] == 'O' ? (int)(strcspn(version + 9, " ") + 9) : 60, version,
             *core ? " " : "", core);
    return 0;
}

const char *nn_blas_name(void)
{
    return name;
}

const char *nn_blas_note(void)
{
    return note;
}

/* A product that is computed in chunks of `step` rows of its result, whatever the number of threads. */
typedef struct product {
    int transa, transb;
    int64_t m, n, k, step;
    const real *a, *b;
    int64_t lda, ldb, ldc, next_a; /* next_a: elements from a row of the result to the next, in a */
    real beta, *c;
} product;

static void multiply_chunk(void *context, int64_t t, int32_t worker)
{
    const product *p = context;
    const int64_t from = t * p->step, rows = p->m - from < p->step ? p->m - from : p->step;
    (void)worker;
    gemm(ROW_MAJOR, p->transa, p->transb, (int)rows, (int)p->n, (int)p->k, 1, p->a + from * p->next_a, (int)p->lda,
         p->b, (int)p->ldb, p->beta, p->c + from * p->ldc, (int)p->ldc);
}

static void multiply(rp_pool *pool, const product *p)
{
    if (p->m > 0 && p->n > 0)
        rp_pool_run(pool, (p->m + p->step - 1) / p->step, multiply_chunk, (void *)(uintptr_t)p);
}

enum { STEP = 256, STEP_DW = 128 };

void nn_linear(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *x, int64_t ldx, const real *w, real *y,
               int64_t ldy)
{
    multiply(pool, &(product){.transa = NO_TRANS,
                              .transb = TRANS,
                              .m = rows,
                              .n = out,
                              .k = in,
                              .step = STEP,
                              .a = x,
                              .b = w,
                              .lda = ldx,
                              .ldb = in,
                              .ldc = ldy,
                              .next_a = ldx,
                              .c = y});
}

void nn_linear_dx(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *w,
                  real beta, real *dx, int64_t lddx)
{
    multiply(pool, &(product){.transa = NO_TRANS,
                              .transb = NO_TRANS,
                              .m = rows,
                              .n = in,
                              .k = out,
                              .step = STEP,
                              .a = dy,
                              .b = w,
                              .lda = lddy,
                              .ldb = in,
                              .ldc = lddx,
                              .next_a = lddy,
                              .beta = beta,
                              .c = dx});
}

void nn_linear_dw(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *x,
                  int64_t ldx, real *dw)
{
    multiply(pool, &(product){.transa = TRANS,
                              .transb = NO_TRANS,
                              .m = out,
                              .n = in,
                              .k = rows,
                              .step = STEP_DW,
                              .a = dy,
                              .b = x,
                              .lda = lddy,
                              .ldb = ldx,
                              .ldc = in,
                              .next_a = 1,
                              .beta = 1,
                              .c = dw});
}
