/* blas.c -- loads a CBLAS at run time, so the program does not depend on one, and OpenBLAS starts no threads for
 * other commands. OpenBLAS chooses its kernels while it loads, and some versions choose slow ones on newer processors.
 * Then it is loaded again with OPENBLAS_CORETYPE set. rp_isa_found detects the instruction sets of the processor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef LAYERS_F64
#define GEMM "cblas_dgemm"
#else
#define GEMM "cblas_sgemm"
#endif

static char name[256], note[256]; /* name: "" until a library is loaded */

/* Look up a function in a library. ISO C cannot cast void * to a function pointer, but POSIX allows copying it. */
static void find(void *library, const char *symbol, void *function, size_t size)
{
    void *p = library ? dlsym(library, symbol) : NULL;
    memcpy(function, &p, size);
}

/* Return the vector width that an OpenBLAS core of x86-64 uses: 0 below AVX2, 1 for AVX2, 2 above. Unknown names give
 * 2: they are newer cores or other architectures. */
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
    const int width = avx512 ? 2 : avx2 ? 1 : 0; /* width that this processor supports */
    return width_of(core) >= width ? NULL : width == 2 ? "SkylakeX" : "Haswell";
}

static char not_loaded[256]; /* dlopen's error for the first name that load() tried */

static void *load(const char *path)
{
    const char *const names[] = {path ? path : "libopenblas.so.0", path ? NULL : "libopenblas.so"};
    void *library = NULL;
    not_loaded[0] = 0;
    for (size_t n = 0; n < sizeof names / sizeof *names && names[n] && !library; n++) {
        library = dlopen(names[n], RTLD_NOW | RTLD_LOCAL);
        const char *why = library ? NULL : dlerror();
        if (why && !not_loaded[0])
            snprintf(not_loaded, sizeof not_loaded, "%s", why);
    }
    return library;
}

/* Return the name of the core whose kernels the library uses; "" if it is not OpenBLAS. */
static const char *core_of(void *library)
{
    char *(*core)(void);
    find(library, "openblas_get_corename", &core, sizeof core);
    return core ? core() : "";
}

/* Return a core with wider kernels that this processor can run; NULL if the library already uses such kernels. */
static const char *better_core(void *library)
{
    return nn_blas_core(core_of(library), rp_isa_found("avx2") == 1, rp_isa_found("avx512") == 1);
}

static const char key[] = "OPENBLAS_CORETYPE";

/* Close the library and load it again with OPENBLAS_CORETYPE set to `core`. With core = NULL the library chooses. */
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

/* Load the library with the fastest kernels that it has for this processor. An OpenBLAS older than the processor does
 * not recognize it and uses the kernels of an older core, at half the speed or less. It chooses the kernels when it is
 * loaded, so reload it with another core name. If it does not know that name either, it falls back to its slowest
 * kernels; therefore keep the best attempt. */
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
                 "OpenBLAS runs its kernels for %.40s, but this processor can run the faster ones for %s (%s)",
                 core_of(library), better,
                 chosen ? "unset OPENBLAS_CORETYPE" : "install a newer OpenBLAS, or name one in RELPOS_BLAS");
    return library;
}

int nn_blas_memory(int32_t threads, char err[NN_ERR_MAX])
{
    const size_t buffer = (size_t)160 << 20; /* OpenBLAS 0.3.21 needs 129 MB per thread */
    void **block = calloc((size_t)threads, sizeof *block);
    int32_t n = 0;
    while (block && n < threads && (block[n] = malloc(buffer)) != NULL)
        n++;
    for (int32_t x = 0; x < n; x++)
        free(block[x]);
    free(block);
    return n == threads ? 0
                        : nn_fail(err,
                                  "lab: out of memory while starting the CBLAS, which needs about %zu MB for each of "
                                  "%d threads (use --threads 1, or a larger ulimit -v)",
                                  buffer >> 20, (int)threads);
}

int nn_blas_open(char err[NN_ERR_MAX])
{
    const char *path = getenv("RELPOS_BLAS");
    layers_gemm *gemm;
    if (*name)
        return 0;
    path = path && *path ? path : NULL;
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void *library = load_best(path);
    if (!library)
        return nn_fail(
            err, "lab: %.100s cannot be loaded: %s (install Debian's libopenblas0, or name a CBLAS in RELPOS_BLAS)",
            path ? path : "libopenblas.so.0", not_loaded);
    find(library, GEMM, &gemm, sizeof gemm);
    if (!gemm)
        return nn_fail(err, "lab: %s has no " GEMM " (install Debian's libopenblas0, or name a CBLAS in RELPOS_BLAS)",
                       path ? path : "libopenblas");
    layers_multiply = gemm;
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
