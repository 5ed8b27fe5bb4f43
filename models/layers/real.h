/* real.h -- the type of the numbers in a file that is compiled for f32 and, with LAYERS_F64, for f64. Names of
 * functions end with the type, so one program may contain both.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAYERS_REAL_H
#define RELPOS_LAYERS_REAL_H

#include <relpos/relpos.h>

#ifdef LAYERS_F64
typedef double real;
#define LAYERS_REAL        RP_F64
#define LAYERS_TYPED(name) name##_f64
#else
typedef float real;
#define LAYERS_REAL        RP_F32
#define LAYERS_TYPED(name) name##_f32
#endif

#endif
