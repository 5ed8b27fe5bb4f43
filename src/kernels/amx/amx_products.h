/* kernels/amx/amx_products.h -- products of two operands on AMX tiles, computed with the operations of isa/amx.c.
 * docs/maintainers/numerics.md derives error bounds for this order of operations.
 * Parameters: VL.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
/* lets an editor parse this file on its own */
#include "amx_scratch.h"
#include "kernels/query_block.h"
#include "kernels/key_tile.h"
#include "kernels/term_vectors.h"
#include "kernels/tile_biases.h"
#include "kernels/softmax.h"
#endif

/* The fragments of an operand. The components of a chunk are contiguous. */
typedef struct operand {
    const uint32_t *at; /* first fragment */
    int64_t tile,       /* words from 16 rows (or columns) to the next 16 */
        chunk;          /* words from one chunk of the sum to the next */
    int components;
} operand;

/* Vector work that runs during the products, one step after each product (amx_weights.h). */
typedef struct stage stage;
static inline void stage_step(stage *p);

/* Add A B, summed over chunks, to tiles 0 … 3, of which mt x nt are used. Tiles 4 and 5 hold components of A, tiles 6
 * and 7 components of B. Multiply components i and j if i + j < max(a_components, b_components). */
ALWAYS_INLINE void dot_chunks(amx_tiles *R, const operand *a, const operand *b, int64_t chunks, int mt, int nt,
                              int a_components, int b_components, stage *beside)
{
    const int max = a_components > b_components ? a_components : b_components;
    const uint32_t *x = a->at, *y = b->at;
    (void)R;
    for (int64_t c = 0; c < chunks; c++, x += a->chunk, y += b->chunk) {
        RPI_UNROLL
        for (int i = a_components - 1; i >= 0; i--) {
            amx_load(R, 4, x + i * FRAGMENT, 64);
            if (mt > 1)
                amx_load(R, 5, x + a->tile + i * FRAGMENT, 64);
            RPI_UNROLL
            for (int j = max - 1; j >= 0; j--) {
                if (j >= b_components || i + j >= max)
                    continue;
                amx_load(R, 6, y + j * FRAGMENT, 64);
                amx_dot(R, 0, 4, 6);
                if (mt > 1)
                    amx_dot(R, 2, 5, 6);
                if (nt > 1) {
                    amx_load(R, 7, y + b->tile + j * FRAGMENT, 64);
                    amx_dot(R, 1, 4, 7);
                    if (mt > 1)
                        amx_dot(R, 3, 5, 7);
                }
                if (beside)
                    stage_step(beside);
            }
        }
    }
}

/* Compute out = from + A B, summed over chunks, as mt x nt AMX tiles. Rows of out are `out_step` elements apart. If
 * from is NULL, sums start at zero. */
ALWAYS_INLINE void product_of(int mt, int nt, const operand *a, const operand *b, int64_t chunks,
                              const real *const *from, const int64_t *from_step, real *out, int64_t out_step,
                              stage *beside)
{
    amx_tiles scratch, *R = &scratch;
    (void)R;
    amx_fence();
    if (from) {
        amx_load(R, 0, from[0], from_step[0] * 4);
        if (nt > 1)
            amx_load(R, 1, from[0] + TILE_SIDE, from_step[0] * 4);
        if (mt > 1)
            amx_load(R, 2, from[1], from_step[1] * 4);
        if (mt * nt > 2)
            amx_load(R, 3, from[1] + TILE_SIDE, from_step[1] * 4);
    } else {
        amx_zero(R, 0);
        amx_zero(R, 1);
        amx_zero(R, 2);
        amx_zero(R, 3);
    }
    BY_COMPONENTS(PA, a->components,
                  BY_COMPONENTS(PB, b->components, dot_chunks(R, a, b, chunks, mt, nt, PA, PB, beside)));
    amx_store(R, 0, out, out_step * 4);
    if (nt > 1)
        amx_store(R, 1, out + TILE_SIDE, out_step * 4);
    if (mt > 1)
        amx_store(R, 2, out + TILE_SIDE * out_step, out_step * 4);
    if (mt * nt > 2)
        amx_store(R, 3, out + TILE_SIDE * out_step + TILE_SIDE, out_step * 4);
}

#define PRODUCT(MT, NT)                                                                                                \
    static void product_##MT##_##NT(const operand *a, const operand *b, int64_t chunks, const real *const *from,       \
                                    const int64_t *from_step, real *out, int64_t out_step, stage *beside)              \
    {                                                                                                                  \
        product_of(MT, NT, a, b, chunks, from, from_step, out, out_step, beside);                                      \
    }
PRODUCT(1, 1)
PRODUCT(1, 2)
PRODUCT(2, 1)
PRODUCT(2, 2)

static inline void product(int64_t mt, int64_t nt, const operand *a, const operand *b, int64_t chunks,
                           const real *const *from, const int64_t *from_step, real *out, int64_t out_step,
                           stage *beside)
{
    if (mt > 1 && nt > 1)
        product_2_2(a, b, chunks, from, from_step, out, out_step, beside);
    else if (mt > 1)
        product_2_1(a, b, chunks, from, from_step, out, out_step, beside);
    else if (nt > 1)
        product_1_2(a, b, chunks, from, from_step, out, out_step, beside);
    else
        product_1_1(a, b, chunks, from, from_step, out, out_step, beside);
}
