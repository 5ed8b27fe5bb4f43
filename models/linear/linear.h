/* linear.h -- linear layers without gradients: y = f(x Wᵀ + b). Weights are f32, f16, bf16, 8 or 4 bits; you pack them
 * once, and can map packed weights from a file. The library builds on the core and is independent of models.
 *
 * The bits of a row of y depend neither on the other rows nor on the number of threads. The order in which an element
 * is summed over the inputs depends only on the type and on `in`. docs/maintainers/linear.md documents this order, the
 * layout and the error bounds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LINEAR_H
#define RELPOS_LINEAR_H

#include "linear/block_kinds.h"
#include <relpos/relpos.h>
#include <stdbool.h>

/* Types of packed weights.
 *   LINEAR_F32   unchanged; products and sums in f32
 *   LINEAR_F16   rounded to f16; products and sums equal those of LINEAR_F32 with the rounded weights bit for bit
 *   LINEAR_BF16  weights and inputs rounded to bf16, with subnormal numbers as zero; sums in f32
 *   LINEAR_INT8  W[o, i] = scale[o] * q[o, i], q in -127 .. 127; inputs are quantized with one scale per row; sums in
 *                integers
 *   LINEAR_INT4  groups of 32 inputs: W[o, i] = scale[o, i / 32] * q[o, i], q in -8 .. 7; inputs as for int8
 *   LINEAR_Q8    like int4 with q in -127 .. 127; inputs are quantized with one scale per group of 32
 *   LINEAR_BLOCKS  rows of one to three tensors, each with its own type: packed, or blocks as they are in a file
 *                (block_kinds.h), whose inputs are quantized as for q8
 * For int8, int4 and q8, a row of x that is not finite gives NaN in its row of y; a row of W that is not finite gives
 * NaN in its output. */
typedef enum linear_type {
    LINEAR_F32 = 0,
    LINEAR_F16 = 1, /* the last type with unchanged inputs */
    LINEAR_BF16 = 2,
    LINEAR_INT8 = 3, /* the first type with integer inputs */
    LINEAR_INT4 = 4,
    LINEAR_Q8 = 5,
    LINEAR_BLOCKS = 6
} linear_type;
enum { LINEAR_TYPES = 6 };                      /* number of types that linear_pack makes: all before LINEAR_BLOCKS */
const char *linear_type_name(linear_type type); /* "f32", "f16", "bf16", "int8", "int4", "q8", "gguf" */
int linear_find_type(const char *name); /* the type with this name that linear_pack makes; -1: none, as for NULL */

/* Version of the layout, which is stored in files of packed weights. Change it when the bytes change. */
#define LINEAR_LAYOUT "1"

enum {
    LINEAR_ALIGN = 64,          /* alignment of packed weights in bytes */
    LINEAR_INT8_MAX_IN = 131072 /* max inputs of int8; sums of 127 * 127 fit into 32 bits */
};

/* A packed matrix W [out, in], in the orientation of torch.nn.Linear. All instruction sets use the same layout, so
 * packed weights in a file can be mapped and used in place. */
typedef struct linear_weights {
    linear_type type;
    int64_t in, out;
    const void *packed; /* linear_packed_bytes bytes, aligned to LINEAR_ALIGN; for LINEAR_BLOCKS a linear_tensors */
} linear_weights;

/* Tensors whose rows follow each other in a matrix. */
enum { LINEAR_TENSORS = 3 };
typedef struct linear_tensor {
    const linear_blocks *blocks; /* not NULL: w.packed are rows of these blocks, and w.type is LINEAR_BLOCKS */
    linear_weights w;
} linear_tensor;
typedef struct linear_tensors {
    int n;
    linear_tensor each[LINEAR_TENSORS];
} linear_tensors;

/* Return true if products can use blocks as they are stored. Those of 8 bits must be packed, as q8. */
static inline bool linear_uses(const linear_blocks *b)
{
    return b->most < 64;
}

/* Return the size of a packed matrix in bytes, a multiple of LINEAR_ALIGN; -1 if a size is below 1 or too large. */
int64_t linear_packed_bytes(linear_type type, int64_t in, int64_t out);
/* Pack W. `w` has `out` rows of `in` numbers of type `dtype` (RP_F32, RP_F16 or RP_BF16); `stride` is the number of
 * elements from one row to the next. */
rp_status linear_pack(rp_pool *pool, linear_type type, int64_t in, int64_t out, const void *w, rp_dtype dtype,
                      int64_t stride, void *packed);
/* Convert packed weights to another type, a few rows at a time. RP_OK, RP_E_ARG, RP_E_NOMEM. */
rp_status linear_repack(rp_pool *pool, linear_type type, const linear_weights *from, void *packed);
/* Unpack row `o` of W as f32: the embedding of a token, if the head uses the embedding as its weights. */
void linear_row(const linear_weights *w, int64_t o, float *row);

/* What to do with p = x Wᵀ + bias. */
typedef enum linear_then {
    LINEAR_STORE = 0,   /* y = p */
    LINEAR_ADD = 1,     /* y += p, for a residual connection */
    LINEAR_RELU = 2,    /* y = max(p, 0) */
    LINEAR_GELU = 3,    /* y = p/2 (1 + tanh(√(2/π) (p + 0.044715 p³))): gelu_new */
    LINEAR_TIMES = 4,   /* y *= p, for the second half of a gated layer */
    LINEAR_GELU_ERF = 5 /* y = p/2 (1 + erf(p/√2)): gelu of torch */
} linear_then;

/* Arguments of linear_apply: x [rows, in], y [rows, out]; ldx and ldy are the numbers of elements from one row to the
 * next. */
typedef struct linear_call {
    int64_t rows;
    const float *x;
    int64_t ldx;
    float *y;
    int64_t ldy;
    linear_then then;
    const float *bias; /* [out]; NULL: none */
    void *scratch;     /* linear_scratch_bytes bytes, aligned to LINEAR_ALIGN; NULL: allocate for this call */
    const char *isa;   /* instruction set; NULL: RELPOS_ISA, or the fastest of this machine */
} linear_call;

/* Return the scratch size in bytes for a call with `rows` rows (scratch holds prepared rows); 0 if the type needs none;
 * -1 if too large. */
int64_t linear_scratch_bytes(linear_type type, int64_t rows, int64_t in);
/* Compute y from x and W. y must not overlap any input, and is written only on success. rows may be 0; for one row, ldx
 * and ldy are ignored. The first call reads the environment variables RELPOS_ISA and RELPOS_SHORT. rp_last_error is not
 * set: only the caller has names for its arrays. RP_OK, RP_E_ARG, RP_E_NOMEM; RP_E_UNSUPPORTED if the machine lacks the
 * instruction set. */
rp_status linear_apply(rp_pool *pool, const linear_weights *w, const linear_call *call);

/* Return the name of the instruction set that calls with isa = NULL use. */
const char *linear_default_isa(void);

/* Compute only some outputs of one row x: y[k] = x · W[outputs[k]], bit-identical to linear_apply, in the caller's
 * thread. Sort the outputs: consecutive entries in the same column of 16 outputs (layout.h) are computed together.
 * RP_OK, RP_E_ARG, RP_E_NOMEM; RP_E_UNSUPPORTED for int8, int4 and q8, and if the machine lacks the instruction set. */
rp_status linear_some(const linear_weights *w, const float *x, int64_t n, const int32_t *outputs, float *y,
                      const char *isa);

/* An int8 copy of W, a quarter of the size of f32. From it, bounds of the products of linear_apply are computed.
 * docs/maintainers/linear.md proves the bounds. */
typedef struct linear_screen {
    linear_weights w;   /* int8; represents Ŵ */
    const float *norms; /* [2, out]: |w| of each row w of W, then |w - ŵ| of each row */
    bool rounds;        /* W was bf16, so linear_apply rounds x */
    bool bounds;        /* false: W has a huge or non-finite number, so all bounds are infinite */
} linear_screen;

/* Return the size of a screen in bytes, a multiple of LINEAR_ALIGN; -1 if too large. */
int64_t linear_screen_bytes(int64_t in, int64_t out);
/* Make the screen of W (f32, f16 or bf16) in `memory`, which is aligned to LINEAR_ALIGN. RP_OK, RP_E_ARG. */
rp_status linear_screen_make(linear_screen *s, rp_pool *pool, const linear_weights *w, void *memory);
/* Compute bounds [rows, 2, out]: for row r of x, output o of linear_apply is between bounds[r, 0, o] and bounds[r, 1,
 * o]. Bounds are infinite if x is zero, tiny, huge or not finite. RP_OK, RP_E_ARG, RP_E_UNSUPPORTED, RP_E_NOMEM. */
rp_status linear_screen_bounds(const linear_screen *s, rp_pool *pool, int64_t rows, const float *x, int64_t ldx,
                               float *bounds, const char *isa);

#endif
