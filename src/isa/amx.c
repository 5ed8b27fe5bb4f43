/* isa/amx.c -- AVX-512 with tiles of 16 x 16 sums of products of bf16 (AMX-TILE, AMX-BF16).
 * It has verbs and sizes, and may not know what is computed with them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/call.h"
#include "float_state.h"
#include "target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,amx-tile,amx-bf16")
#define RPI_ISA amx
#define RPI_F64 0
#define RPI_AMX 1
#include "avx512.h"

typedef struct amx_tiles {
    char none;
} amx_tiles; /* the processor's own registers */

static inline void amx_begin(void)
{
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int n = 0; n < 8; n++) {
        shape.bytes[n] = 64;
        shape.rows[n] = 16;
    }
    __asm__ volatile("" ::"r"(&shape) : "memory"); /* all of it is written by now */
    _tile_loadconfig(&shape);
}
#define amx_end()                _tile_release()
#define amx_fence()              __asm__ volatile("" ::: "memory") /* what is loaded below was stored above */
#define amx_zero(R, t)           _tile_zero(t)
#define amx_load(R, t, p, step)  _tile_loadd(t, p, step)
#define amx_store(R, t, p, step) _tile_stored(t, p, step)
#define amx_dot(R, c, a, b)      _tile_dpbf16ps(c, a, b)
#include "verbs.h"
#include "kernels/template.h"
RPI_TARGET_END
#endif
