/* isa/float_state.h -- the floating-point state that tasks run in, whatever the caller's is; the caller's comes back
 * after. It may not know anything else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_FLOAT_STATE_H
#define RELPOS_FLOAT_STATE_H

/* RPI_FLOAT_PLAIN: what a process starts with: round to nearest, no traps. RPI_FLOAT_FLUSH: also take numbers below
 * 2^-126 as 0. Sums of weights that far down cost a hundred times an addition on many machines and change no result. */
#if defined(__x86_64__)
#include <xmmintrin.h>
enum { RPI_FLOAT_PLAIN = 0x1f80, RPI_FLOAT_FLUSH = 0x1f80 | 0x8040 };

static inline unsigned rpi_float_begin(unsigned state)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(state);
    return before;
}

static inline void rpi_float_end(unsigned before)
{
    _mm_setcsr(before);
}
#elif defined(__aarch64__)
#include <stdint.h>
enum { RPI_FLOAT_PLAIN = 0, RPI_FLOAT_FLUSH = 1 << 24 }; /* FPCR; FZ is its bit 24 */

/* "memory": what the loops read and write stays on its side. */
static inline unsigned rpi_float_begin(unsigned state)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before)::"memory");
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)state) : "memory");
    return (unsigned)before;
}

static inline void rpi_float_end(unsigned before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)before) : "memory");
}
#else
enum { RPI_FLOAT_PLAIN, RPI_FLOAT_FLUSH }; /* elsewhere the caller's state stays */

static inline unsigned rpi_float_begin(unsigned state)
{
    return state;
}

static inline void rpi_float_end(unsigned before)
{
    (void)before;
}
#endif

#endif
