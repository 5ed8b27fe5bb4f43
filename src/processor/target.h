/* processor/target.h -- compile the code between RPI_TARGET_BEGIN and RPI_TARGET_END for an instruction set that the
 * rest of the file does not require; unroll loops of constant length. Independent of instruction sets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TARGET_H
#define RELPOS_TARGET_H

#define RPI_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define RPI_TARGET_BEGIN(set) RPI_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define RPI_TARGET_END        RPI_PRAGMA(clang attribute pop)
#define RPI_UNROLL            RPI_PRAGMA(clang loop unroll(full))
#define RPI_SOURCE_ORDER
#else
#define RPI_TARGET_BEGIN(set) RPI_PRAGMA(GCC push_options) RPI_PRAGMA(GCC target(set))
#define RPI_TARGET_END        RPI_PRAGMA(GCC pop_options)
#define RPI_UNROLL            RPI_PRAGMA(GCC unroll 32)
/* From here to the end of the file, stop gcc from moving loads ahead before it assigns registers. Place it before the
 * include of the intrinsics. Without it, if sums leave few registers free, gcc loads all elements of q first and keeps
 * two sums of a tile in memory. */
#define RPI_SOURCE_ORDER      RPI_PRAGMA(GCC optimize("no-schedule-insns"))
#endif

/* Keep a vector in a register from here on: compilers cannot use it from memory. */
#if defined(__x86_64__)
#define RPI_HOLD(x) __asm__("" : "+v"(x))
#elif defined(__aarch64__)
#define RPI_HOLD(x) __asm__("" : "+w"(x))
#else
#define RPI_HOLD(x) ((void)0)
#endif

#endif
