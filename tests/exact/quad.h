/* quad.h -- included before every file of the library that is compiled again for arithmetic with 113 bits: `double`
 * becomes __float128, so every definition of the reference path is evaluated in it, and arrays of f64 have elements of
 * 16 bytes. The files themselves know nothing of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_QUAD_H
#define RELPOS_TESTS_QUAD_H

/* Every header of the system that these files include, while `double` still means double. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <quadmath.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef double plain_double;
#define double __float128
#undef DBL_MAX
#undef DBL_MIN
#undef isfinite
#undef isinf
#undef isnan
#define DBL_MAX  FLT128_MAX
#define DBL_MIN  FLT128_MIN
#define ceil     ceilq
#define copysign copysignq
#define cos      cosq
#define exp      expq
#define exp2     exp2q
#define expm1    expm1q
#define fabs     fabsq
#define floor    floorq
#define fmax     fmaxq
#define fmin     fminq
#define frexp    frexpq
#define isfinite finiteq
#define isinf    isinfq
#define isnan    isnanq
#define ldexp    ldexpq
#define log      logq
#define log1p    log1pq
#define log2     log2q
#define pow      powq
#define sin      sinq
#define sqrt     sqrtq
#define tanh     tanhq
#define trunc    truncq

#endif
