/* target.h -- compile what lies between RPI_TARGET_BEGIN and RPI_TARGET_END for an instruction set that the rest of the
 * file does not assume, and have its loops of constant length unrolled. */
#ifndef RELPOS_TARGET_H
#define RELPOS_TARGET_H

#define RPI_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define RPI_TARGET_BEGIN(set) RPI_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define RPI_TARGET_END        RPI_PRAGMA(clang attribute pop)
#define RPI_UNROLL            RPI_PRAGMA(clang loop unroll(full))
#else
#define RPI_TARGET_BEGIN(set) RPI_PRAGMA(GCC push_options) RPI_PRAGMA(GCC target(set))
#define RPI_TARGET_END        RPI_PRAGMA(GCC pop_options)
#define RPI_UNROLL            RPI_PRAGMA(GCC unroll 32)
#endif

/* While a kernel runs: round to nearest, no floating-point traps, and numbers below 2^-126 taken as 0. Sums of weights that
 * far down cost a hundred times an addition on many machines and change no result. The caller's state comes back after. */
#if defined(__x86_64__)
#include <xmmintrin.h>
static inline unsigned rpi_float_begin(void)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0x1f80u | 0x8040u); /* the state a process starts with; flush results and operands */
    return before;
}

static inline void rpi_float_end(unsigned before)
{
    _mm_setcsr(before);
}
#else
static inline unsigned rpi_float_begin(void)
{
    return 0;
}

static inline void rpi_float_end(unsigned before)
{
    (void)before;
}
#endif

#endif
