/* linear/sets/neon.c -- AdvSIMD (NEON), which every AArch64 machine has.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__aarch64__)
RPI_SOURCE_ORDER
#include <arm_neon.h>
#define LINEAR_ISA neon
#define RPI_F64    0
#define SHAPES(X)  X(4, 1) X(2, 3) X(1, 6)
#define MAX_ROWS   6
#include "processor/neon.h"
#include "processor/vector_ops.h"
#define vf_of_vi(x) vcvtq_f32_s32((int32x4_t)(x))

/* Products of bytes have 16 bits. With 8-bit weights, pairs of products are added to 32-bit sums; with 4-bit weights,
 * 16 bits can hold the sum of eight products. */
#define X8_BYTES          1
#define X8_UNSIGNED       0
#define w8_load(p)        vld1q_s8((const int8_t *)(p))
#define x8_load(p)        four_inputs(p)
#define W8_DOT(sum, w, x) dot_int8(sum, w, x)
#define x4_load(p)        four_inputs(p)
#define W4_DOT(sum, w, x) dot_int4(sum, (int8x16_t)(w), x)
#define wq_load(p)        veorq_s8(vld1q_s8((const int8_t *)(p)), vdupq_n_s8(-128))
#define WQ_DOT(sum, w, x) dot_int8(sum, w, x)
typedef int8x16_t w8, wq;
typedef int8x8_t x8, x4;
typedef vi w4;
typedef struct s4 {
    int16x8_t low, high;
} s4;

static inline int8x8_t four_inputs(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return vreinterpret_s8_s32(vdup_n_s32(x));
}

static inline vi dot_int8(vi sum, int8x16_t w, int8x8_t x)
{
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), x)), high = vpaddlq_s16(vmull_s8(vget_high_s8(w), x));
    return sum + (vi)vpaddq_s32(low, high);
}

static inline s4 dot_int4(s4 sum, int8x16_t w, int8x8_t x)
{
    return (s4){vmlal_s8(sum.low, vget_low_s8(w), x), vmlal_s8(sum.high, vget_high_s8(w), x)};
}

static inline vi s4_sum(s4 sum)
{
    return (vi)vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high));
}
#include "linear/kernels/template.h"
#endif
