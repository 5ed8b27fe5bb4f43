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

#endif
