/* processor/processor.h -- the features of this processor, for the registries of src/isa and linear/sets.
 * RELPOS_HIDE_ISA names features, separated by commas, that are reported as missing, so that tests can simulate a
 * machine with fewer instruction sets. Hiding a feature also hides features that require it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PROCESSOR_H
#define RELPOS_PROCESSOR_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

typedef struct rpi_processor {
    bool avx2, avx2_vnni;                  /* avx2: with FMA and F16C */
    bool avx512, avx512_vnni, avx512_bf16; /* avx512: F, BW, DQ and VL */
    bool amx, amx_int8;                    /* amx: AMX-BF16 is available and Linux lets this process use tiles */
} rpi_processor;

/* The features that RELPOS_HIDE_ISA may name. */
#define RPI_FEATURES "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx", "amx_int8"

/* Return true if RELPOS_HIDE_ISA names this feature. */
static inline bool rpi_hidden(const char *feature)
{
    const size_t length = strlen(feature);
    for (const char *at = getenv("RELPOS_HIDE_ISA"); at && *at; at += *at == ',') {
        const size_t here = strcspn(at, ",");
        if (here == length && strncmp(at, feature, length) == 0)
            return true;
        at += here;
    }
    return false;
}

/* Ask Linux to let this process use the tiles of AMX. Return false if the processor has none or the kernel refuses. */
static inline bool rpi_allow_tiles(void)
{
#if defined(__x86_64__) && defined(__linux__)
    return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0;
#else
    return false;
#endif
}

/* Execute CPUID and read the environment. In a virtual machine each CPUID traps and takes 20 to 40 us, so call this
 * once per process. */
static inline rpi_processor rpi_processor_ask(void)
{
    rpi_processor p = {false, false, false, false, false, false, false};
#if defined(__x86_64__)
    /* clang 14 has no names for F16C, AVX-VNNI and AMX */
    unsigned a = 0, b = 0, c1 = 0, d7 = 0, a71 = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c1, &d))
        return p;
    __get_cpuid_count(7, 0, &a, &b, &c, &d7);
    __get_cpuid_count(7, 1, &a71, &b, &c, &d);
    __builtin_cpu_init();
#define RPI_HAS(name) (__builtin_cpu_supports(name) != 0)
    p.avx2 = RPI_HAS("avx2") && RPI_HAS("fma") && (c1 & 1u << 29) && !rpi_hidden("avx2");
    p.avx2_vnni = p.avx2 && (a71 & 1u << 4) && !rpi_hidden("avx2_vnni");
    p.avx512 = p.avx2 && RPI_HAS("avx512f") && RPI_HAS("avx512bw") && RPI_HAS("avx512dq") && RPI_HAS("avx512vl") &&
               !rpi_hidden("avx512");
    p.avx512_vnni = p.avx512 && RPI_HAS("avx512vnni") && !rpi_hidden("avx512_vnni");
    p.avx512_bf16 = p.avx512_vnni && RPI_HAS("avx512bf16") && !rpi_hidden("avx512_bf16");
#undef RPI_HAS
    p.amx = p.avx512_bf16 && (d7 & 1u << 22) && (d7 & 1u << 24) && !rpi_hidden("amx") && rpi_allow_tiles();
    p.amx_int8 = p.amx && (d7 & 1u << 25) && !rpi_hidden("amx_int8");
#endif
    return p;
}

#endif
