/* processor/float_state.h -- set the floating-point state for a task, whatever the caller's state is, and restore the
 * caller's state afterwards.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_FLOAT_STATE_H
#define RELPOS_FLOAT_STATE_H

/* RPI_FLOAT_PLAIN is the state of a new process: round to nearest, no traps. RPI_FLOAT_FLUSH also treats magnitudes
 * below 2^-126 as 0, because adding such small weights takes a hundred times as long on many machines and changes no
 * result. */
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
enum { RPI_FLOAT_PLAIN = 0, RPI_FLOAT_FLUSH = 1 << 24 }; /* FPCR, whose bit 24 is FZ */

/* "memory" keeps the compiler from moving loads and stores of the task across this. */
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
enum { RPI_FLOAT_PLAIN, RPI_FLOAT_FLUSH }; /* other machines keep the caller's state */

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
