/* blas.c -- products of matrices by a CBLAS that is loaded when it is first wanted, so that the program itself needs none.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nn.h"
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

const char *nn_blas_core(const char *core, bool avx2, bool avx512)
{
    /* Cores of x86-64 below those of AVX2, and those of AVX2. A name that is not here is newer, or of another architecture. */
    static const char *const below[] = {"Unknown",    "Generic",    "Katmai", "Coppermine",  "Northwood",
                                        "Prescott",   "Banias",     "Atom",   "Core2",       "Penryn",
                                        "Dunnington", "Nehalem",    "Athlon", "Opteron",     "Opteron_SSE3",
                                        "Barcelona",  "Bobcat",     "Nano",   "Sandybridge", "Bulldozer",
                                        "Piledriver", "Steamroller"},
                             *const with_avx2[] = {"Haswell", "Zen", "Excavator"};
    const char *const best = avx512 ? "SkylakeX" : avx2 ? "Haswell" : NULL;
    for (size_t n = 0; best && n < sizeof below / sizeof *below; n++)
        if (strcasecmp(core, below[n]) == 0)
            return best;
    for (size_t n = 0; avx512 && n < sizeof with_avx2 / sizeof *with_avx2; n++)
        if (strcasecmp(core, with_avx2[n]) == 0)
            return best;
    return NULL;
}

static void *load(const char *own)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    void *library = own ? dlopen(own, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t n = 0; n < sizeof names / sizeof *names && !own && !library; n++)
        library = dlopen(names[n], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* The core whose kernels an OpenBLAS runs; "": it does not say, or is another CBLAS. */
static const char *core_of(void *library)
{
    char *(*core)(void);
    find(library, "openblas_get_corename", &core, sizeof core);
    return core ? core() : "";
}

static const char *wanted_core(void *library)
{
    return nn_blas_core(core_of(library), rp_isa_found("avx2") == 1, rp_isa_found("avx512") == 1);
}

/* An OpenBLAS older than a processor takes the kernels of one that it knows, at half of the speed or less. Which ones it takes is
 * settled when it is loaded: it is let go, and loaded again with the core named. */
static void *load_best(const char *own)
{
    static const char key[] = "OPENBLAS_CORETYPE";
    const char *set = getenv(key);
    void *library = load(own);
    const char *wanted = wanted_core(library);
    const bool chosen = set && *set;
    if (wanted && !chosen) {
        setenv(key, wanted, 1);
        dlclose(library);
        library = load(own);
        wanted = wanted_core(library);
        unsetenv(key);
    }
    if (wanted)
        snprintf(note, sizeof note,
                 "OpenBLAS runs its kernels for %.40s, and this processor could run those for %s (%s)",
                 core_of(library), wanted,
                 chosen ? "OPENBLAS_CORETYPE is set: unset it" : "a newer one, or RELPOS_BLAS, may do so");
    return library;
}

int nn_blas_open(char err[NN_ERR_MAX])
{
    const char *own = getenv("RELPOS_BLAS");
    if (gemm)
        return 0;
    own = own && *own ? own : NULL;
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = load_best(own);
    if (!library)
        return nn_fail(err, "lab: %s cannot be loaded (install Debian's libopenblas0, or name a CBLAS in RELPOS_BLAS)",
                       own ? own : "libopenblas.so.0");
    find(library, GEMM, &gemm, sizeof gemm);
    if (!gemm)
        return nn_fail(err, "lab: %s has no " GEMM " (install Debian's libopenblas0, or name a CBLAS in RELPOS_BLAS)",
                       own ? own : "libopenblas");
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

/* A product cut into pieces of `step` rows of its result, whatever the number of threads. */
typedef struct product {
    int transa, transb;
    int64_t m, n, k, step;
    const real *a, *b;
    int64_t lda, ldb, ldc, next_a; /* next_a: elements from a row of the result to the next, in a */
    real beta, *c;
} product;

static void piece(void *context, int64_t t, int32_t worker)
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
        rp_pool_run(pool, (p->m + p->step - 1) / p->step, piece, (void *)(uintptr_t)p);
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
