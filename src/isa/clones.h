/* isa/clones.h -- loops of plain C compiled once more for wider vectors, where compiler and C library can choose when
 * the program starts. It knows nothing of the library, and the laboratory's loops use it. The sanitizers run before
 * what chooses, and clang's choice needs a linker of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLONES_H
#define RELPOS_CLONES_H

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#ifdef RPI_TWO_CLONES
#define RPI_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define RPI_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#endif
#else
#define RPI_CLONES
#endif

#endif
