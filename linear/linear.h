/* linear.h -- linear layers without gradients: y = f(x Wᵀ), with weights of f32, f16, bf16, 8 or 4 bits that are packed once
 * and may lie in a mapped file. A library above the core: it knows arrays, threads and instruction sets, and no model.
 *
 * A row of y has the same bits whatever rows stand beside it, for any number of threads: every element is summed over
 * the inputs in one order that depends on the type and on `in` alone. docs/linear.md has the order, the layout and the
 * bounds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LINEAR_H
#define RELPOS_LINEAR_H

#include <relpos/relpos.h>
#include <stdbool.h>

/* How weights are kept.
 *   LINEAR_F32   as they are; products and sums in f32
 *   LINEAR_F16   rounded to f16; products and sums as with LINEAR_F32 of the same numbers, to the bit
 *   LINEAR_BF16  rounded to bf16, and so are inputs, subnormal numbers to zero; sums in f32
 *   LINEAR_INT8  W[o, i] = scale[o] * q[o, i], q in -127 .. 127; inputs are quantised likewise, a scale for each row;
 *                sums in integers
 *   LINEAR_INT4  groups of 32 inputs: W[o, i] = scale[o, i / 32] * q[o, i], q in -8 .. 7; inputs as with int8
 * With int8 and int4 a row of x that is not finite gives NaN in its row of y, and a row of W in its output. */
typedef enum linear_type {
    LINEAR_F32 = 0,
    LINEAR_F16 = 1, /* up to here inputs are as they are, */
    LINEAR_BF16 = 2,
    LINEAR_INT8 = 3, /* and from here integers */
    LINEAR_INT4 = 4
} linear_type;
enum { LINEAR_TYPES = 5 };
const char *linear_type_name(linear_type type); /* "f32", "f16", "bf16", "int8", "int4" */

/* The layout of packed weights. A file of them names it, and gets another number here when their bytes change. */
#define LINEAR_LAYOUT "1"

enum {
    LINEAR_ALIGN = 64,          /* bytes, of packed weights */
    LINEAR_INT8_MAX_IN = 131072 /* inputs of int8: sums of 127 * 127 stay within 32 bits */
};

/* A matrix W [out, in] as torch.nn.Linear has it, packed. The layout is one for all instruction sets, so that a file of
 * packed weights is mapped and used as it lies. */
typedef struct linear_weights {
    linear_type type;
    int64_t in, out;
    const void *packed; /* linear_packed_bytes bytes, aligned to LINEAR_ALIGN */
} linear_weights;

/* The bytes of a packed matrix, a multiple of LINEAR_ALIGN; -1: a size is below 1, or the product too large. */
int64_t linear_packed_bytes(linear_type type, int64_t in, int64_t out);
/* Pack W; `w` has out rows of `in` numbers of `dtype` (RP_F32, RP_F16, RP_BF16), `stride` elements from one to the
 * next. */
rp_status linear_pack(rp_pool *pool, linear_type type, int64_t in, int64_t out, const void *w, rp_dtype dtype,
                      int64_t stride, void *packed);
/* Pack what is packed already as another type, a few rows at a time. RP_OK, RP_E_ARG, RP_E_NOMEM. */
rp_status linear_repack(rp_pool *pool, linear_type type, const linear_weights *from, void *packed);
/* Row `o` of W as f32, such as the row of an embedding that the head shares. */
void linear_row(const linear_weights *w, int64_t o, float *row);

/* What becomes of a product p = x Wᵀ. */
typedef enum linear_then {
    LINEAR_STORE = 0, /* y = p */
    LINEAR_ADD = 1,   /* y += p: a residual */
    LINEAR_RELU = 2,  /* y = max(p, 0) */
    LINEAR_GELU = 3,  /* y = p/2 (1 + tanh(√(2/π) (p + 0.044715 p³))): gelu_new */
    LINEAR_TIMES = 4  /* y *= p: the other half of a gated layer */
} linear_then;

/* x [rows, in] and y [rows, out]; ldx, ldy: elements from row to row. */
typedef struct linear_call {
    int64_t rows;
    const float *x;
    int64_t ldx;
    float *y;
    int64_t ldy;
    linear_then then;
    void *scratch;   /* linear_scratch_bytes bytes, aligned to LINEAR_ALIGN; NULL: allocated for this call */
    const char *isa; /* NULL: the fastest that this machine has, or RELPOS_ISA */
} linear_call;

/* Bytes of scratch that a call of so many rows needs (rounded inputs); 0 for types that need none; -1: too large. */
int64_t linear_scratch_bytes(linear_type type, int64_t rows, int64_t in);
/* RP_OK; RP_E_ARG; RP_E_UNSUPPORTED for an instruction set that this machine lacks; RP_E_NOMEM. y is untouched unless
 * it succeeds, and lies over nothing that is read. rows may be 0. With one row ldx and ldy mean nothing. RELPOS_ISA and
 * RELPOS_SHORT are read at the first call. rp_last_error is not set: the caller knows what its arrays are called. */
rp_status linear_apply(rp_pool *pool, const linear_weights *w, const linear_call *call);

/* Some outputs of one row x alone: y[k] = x · W[outputs[k]], with the bits that linear_apply gives. Outputs side by side
 * are read together if they follow one another in the list. In its caller's thread.
 * RP_OK, RP_E_ARG, RP_E_NOMEM, RP_E_UNSUPPORTED for int8 and int4 and for an instruction set that this machine lacks. */
rp_status linear_some(const linear_weights *w, const float *x, int64_t n, const int32_t *outputs, float *y,
                      const char *isa);

/* 8 bits of each number of W, which say between what bounds linear_apply's products lie, and read a quarter of f32. What they are
 * off by is proved in docs/linear.md. */
typedef struct linear_screen {
    linear_weights w;   /* int8; it stands for Ŵ */
    const float *norms; /* [2, out]: of each row |w|, and |w - ŵ| */
    bool rounds;        /* W was bf16, whose products round x */
    bool bounds;        /* false: a number of W is huge or not finite, and no product has bounds */
} linear_screen;

/* Bytes of a screen, a multiple of LINEAR_ALIGN; -1: too large. */
int64_t linear_screen_bytes(int64_t in, int64_t out);
/* Make the screen of W, f32 or bf16, in memory aligned to LINEAR_ALIGN. RP_OK, RP_E_ARG. */
rp_status linear_screen_make(linear_screen *s, rp_pool *pool, const linear_weights *w, void *memory);
/* bounds [rows, 2, out]: linear_apply gives row r of x products between bounds[r, 0, o] and bounds[r, 1, o];
 * from -INFINITY to INFINITY where x is zero, tiny, huge or not finite. RP_OK, RP_E_ARG, RP_E_UNSUPPORTED, RP_E_NOMEM. */
rp_status linear_screen_bounds(const linear_screen *s, rp_pool *pool, int64_t rows, const float *x, int64_t ldx,
                               float *bounds, const char *isa);

#endif
