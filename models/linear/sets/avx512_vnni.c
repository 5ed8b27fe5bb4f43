/* linear/sets/avx512_vnni.c -- AVX-512 with VNNI: sums of four products of bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512vnni")
#define LINEAR_ISA avx512_vnni
extern const linear_ops linear_ops_avx512;
#define LINEAR_BASE linear_ops_avx512
#define OWNS(type)  ((type) >= LINEAR_INT8)
#define RPI_F64     0
#define SHAPES(X)   X(4, 6) X(2, 6) X(1, 6)
#define MAX_ROWS    6
#include "processor/avx512.h"
#include "processor/vector_ops.h"
#include "linear/sets/avx512_integers.h"

/* VPDPBUSD multiplies unsigned bytes by signed bytes. For int8 the inputs are the unsigned bytes; for int4 and q8 the
 * weights are. */
#define X8_BYTES          1
#define X8_UNSIGNED       1
#define w8_load(p)        held(vi_load(p))
#define x8_load(p)        vi_set1(p)
#define W8_DOT(sum, w, x) ((vi)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(x), (__m512i)(w)))
#define x4_load(p)        vi_set1(p)
#define W4_DOT(sum, w, x) ((vi)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(w), (__m512i)(x)))
#define s4_sum(sum)       (sum)
#define Q8_UNSIGNED       1
#define wq_load(p)        held(vi_load(p))
#define WQ_DOT(sum, w, x) W4_DOT(sum, w, x)
typedef vi w8, x8, w4, x4, s4, wq;
/* Tiles that cover all four columns of a panel convert sums to outputs in registers. */
#define INT8_ENDS(rows, columns) ((columns) == 4)
/* 6 x 2 sums of a group and as many of all groups take 24 of the 32 registers. */
#define Q8_HELD(rows, columns) ((rows) > 3 && (columns) <= 2)
#include "linear/kernels/template.h"
RPI_TARGET_END
#endif
