/* isa/wasm.c -- WebAssembly's SIMD128, or relaxed SIMD if the module is built for it. The name of the instruction set
 * says which.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__wasm_simd128__)
#include <wasm_simd128.h>
#define RPI_ISA wasm
#define RPI_F64 0
enum { VL = 4, MR = 6, NR = 8 }; /* 6 x 8 sums take 12 of the 16 registers of most machines */
typedef float vf __attribute__((vector_size(16), may_alias));
#ifdef __wasm_relaxed_simd__
#define vf_fma(a, b, c)                                                                                                \
    ((vf)wasm_f32x4_relaxed_madd(a, b, c)) /* rounds once or twice, always the same way within a program */
#endif
#define vf_set1(x)                  ((vf)wasm_f32x4_splat(x))
#define vf_max(a, b)                ((vf)wasm_f32x4_pmax(b, a)) /* b < a ? a : b */
#define vf_larger(a, b)             ((vf)wasm_i32x4_max(a, b))
#define vf_below(x, limit, yes, no) ((vf)wasm_v128_bitselect(yes, no, wasm_f32x4_lt(x, limit)))
#define vf_product(x, limit, a, b)  ((vf)wasm_v128_andnot(wasm_f32x4_mul(a, b), wasm_f32x4_lt(x, limit)))
#define vf_keep(x, keep)            keep_lanes(x, keep)
#define vf_transpose(x)             transpose(x)

static inline vf keep_lanes(vf x, const uint8_t *keep)
{
    const v128_t wide = wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(keep)));
    return (vf)wasm_v128_bitselect(x, wasm_f32x4_splat(-INFINITY), wasm_i32x4_gt(wide, wasm_i32x4_splat(0)));
}

static inline void transpose(vf *x)
{
    const v128_t a = wasm_i32x4_shuffle(x[0], x[1], 0, 4, 1, 5), b = wasm_i32x4_shuffle(x[2], x[3], 0, 4, 1, 5);
    const v128_t c = wasm_i32x4_shuffle(x[0], x[1], 2, 6, 3, 7), d = wasm_i32x4_shuffle(x[2], x[3], 2, 6, 3, 7);
    x[0] = (vf)wasm_i64x2_shuffle(a, b, 0, 2);
    x[1] = (vf)wasm_i64x2_shuffle(a, b, 1, 3);
    x[2] = (vf)wasm_i64x2_shuffle(c, d, 0, 2);
    x[3] = (vf)wasm_i64x2_shuffle(c, d, 1, 3);
}
#include "processor/vector_ops.h"
#include "kernels/template.h"
#endif
