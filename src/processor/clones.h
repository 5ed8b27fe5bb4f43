/* processor/clones.h -- RPI_CLONES compiles a function also for wider vectors, and chooses a version when the program
 * starts. It has no effect with sanitizers, because the choice happens before they start, or with clang, which would
 * need a special linker.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLONES_H
#define RELPOS_CLONES_H

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#if defined(RPI_TWO_CLONES) || __GNUC__ < 12 /* gcc 11 cannot choose by arch=x86-64-v4 */
#define RPI_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define RPI_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#endif
#else
#define RPI_CLONES
#endif

#endif
