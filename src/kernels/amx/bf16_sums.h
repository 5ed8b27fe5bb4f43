/* kernels/amx/bf16_sums.h -- represent an f32 number as a sum of up to three bf16 components, for products on AMX
 * tiles, and choose the number of components for each array.
 * Parameters: VL, which must be 16.
 *
 * x = x0 + x1 + x2: each component is the bf16 nearest to x minus the earlier components (components of weights are
 * truncated instead). Three components represent an f32 exactly, except for the part below 2^-126. With n components, a
 * product is the sum of x_i y_j for i + j < n: one product for n = 1, three for 2, six for 3
 * (docs/maintainers/numerics.md has the bounds).
 *
 * An operand consists of fragments of 16 x 16 pairs of bf16; a fragment fills an AMX tile. A chunk is 32 summands. Pair
 * p of a chunk holds summands p and p + 16, so a shift and an OR combine two vectors into 16 pairs. In a fragment of a
 * left operand, rows are rows of the operand and columns are pairs. In a fragment of a right operand, rows are pairs
 * and columns are columns of the operand.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "kernels/amx/amx_editor.h" /* lets an editor parse this file on its own */
#endif

enum {
    TILE_SIDE = 16,
    CHUNK = 2 * TILE_SIDE,
    FRAGMENT = TILE_SIDE * TILE_SIDE,
};
#define MAX_VALUE 1e38 /* larger values could round to infinity in the first component */
_Static_assert((int)VL == (int)TILE_SIDE, "a vector is a row of a fragment");

/* Return the number of components for elements of a type. The functions below return it for values, keys (f32 after
 * rotation), scaled queries and weights. */
static inline int type_components(const rp_plan *plan, rp_dtype type)
{
    return type == RP_BF16 ? 1 : type == RP_F16 ? 2 : plan->components;
}

static inline int value_components(const rp_plan *plan)
{
    return type_components(plan, plan->desc.dtype);
}

static inline int key_components(const rp_plan *plan)
{
    return plan->rotate >= 0 ? plan->components : value_components(plan);
}

static inline int query_components(const rp_plan *plan)
{
    int exponent;
    /* bf16 times a power of two is still bf16 */
    const bool exact = plan->rotate < 0 && frexp(fabs(plan->desc.scale), &exponent) == 0.5;
    return exact && plan->desc.dtype == RP_BF16 ? 1 : plan->components;
}

static inline int weight_components(const rp_plan *plan)
{
    return plan->desc.dtype == RP_F32 ? plan->components : 2;
}

#define ALWAYS_INLINE                                                                                                  \
    static inline __attribute__((always_inline)) /* inlining turns the number of components into a constant */

/* Run CALL with N as a compile-time constant equal to `components`, so that its loops can be unrolled. */
#define BY_COMPONENTS(N, components, CALL)                                                                             \
    do {                                                                                                               \
        switch (components) {                                                                                          \
        case 1: {                                                                                                      \
            enum { N = 1 };                                                                                            \
            CALL;                                                                                                      \
            break;                                                                                                     \
        }                                                                                                              \
        case 2: {                                                                                                      \
            enum { N = 2 };                                                                                            \
            CALL;                                                                                                      \
            break;                                                                                                     \
        }                                                                                                              \
        default: {                                                                                                     \
            enum { N = 3 };                                                                                            \
            CALL;                                                                                                      \
            break;                                                                                                     \
        }                                                                                                              \
        }                                                                                                              \
    } while (0)

/* Split 16 pairs (x, y) into components. */
ALWAYS_INLINE void bf16_pair(vf x, vf y, int components, vu *to)
{
    const vu high = (vu){0} + 0xffff0000u, half = (vu){0} + 0x8000u;
    RPI_UNROLL
    for (int n = 0; n < components; n++) {
        const vu add = n == 2 ? (vu){0} : half, a = (vu)x + add, b = (vu)y + add;
        to[n] = vu_highs(a, b);
        x = x - (vf)(a & high);
        y = y - (vf)(b & high);
    }
}

/* Split 16 pairs like bf16_pair, but truncate all components except the last one, which is faster. Three components are
 * still exact. */
ALWAYS_INLINE void bf16_pair_truncated(vf x, vf y, int components, vu *to)
{
    const vu high = (vu){0} + 0xffff0000u, half = (vu){0} + 0x8000u;
    RPI_UNROLL
    for (int n = 0; n < components; n++) {
        const bool round = n == components - 1 && n < 2;
        const vu add = round ? half : (vu){0};
        to[n] = vu_highs((vu)x + add, (vu)y + add);
        x = x - (vf)((vu)x & high);
        y = y - (vf)((vu)y & high);
    }
}

static inline void store_pairs(uint32_t *to, vu pairs)
{
    memcpy(to, &pairs, sizeof pairs);
}

/* Split x into rounded components (a third component is exact), each stored as f32. bf16_pair computes the same
 * components for pairs. */
ALWAYS_INLINE void bf16_vector(vf x, int components, vf *to)
{
    const vu high = (vu){0} + 0xffff0000u, half = (vu){0} + 0x8000u;
    RPI_UNROLL
    for (int n = 0; n < components; n++) {
        to[n] = (vf)(((vu)x + (n == 2 ? (vu){0} : half)) & high);
        x = x - to[n];
    }
}

/* Split x into truncated components, each stored as f32; the last of one or two components is rounded.
 * bf16_pair_truncated computes the same components for pairs. */
ALWAYS_INLINE void bf16_vector_truncated(vf x, int components, vf *to)
{
    const vu high = (vu){0} + 0xffff0000u, half = (vu){0} + 0x8000u;
    RPI_UNROLL
    for (int n = 0; n < components; n++) {
        to[n] = (vf)(((vu)x + (n == components - 1 && n < 2 ? half : (vu){0})) & high);
        x = x - (vf)((vu)x & high);
    }
}
