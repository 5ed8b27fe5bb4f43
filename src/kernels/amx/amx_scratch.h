/* kernels/amx/amx_scratch.h -- scratch memory of the AMX backend, for a block and for a backward task. fma/ has the
 * same types.
 * Parameters: VL, NR, BLOCK_ROWS, BACKWARD_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "bf16_sums.h" /* lets an editor parse this file on its own */
#endif

typedef struct products_block {
    uint32_t *q_operand, /* left operand: queries */
        *w_operand;      /* left operand: weights of two stages, each of 32 rows and 64 keys */
    int q_components;
    real *q_rows;       /* [BLOCK_ROWS][Dk rounded up to chunks] queries, scaled and rotated */
    real *rows_scratch; /* [32][Dk or Dv rounded up to chunks] */
    real *panel;        /* [NR][Dk padded] panel of keys, used if a key or query is non-finite or large */
    real *sums;         /* [BLOCK_ROWS][VL] sums of weights */
    real *values;       /* [32][Dv padded] sums of weighted values */
} products_block;

typedef struct products_backward {
    uint32_t *values,     /* right operand of dp: values, for sums over channels */
        *key_rows;        /* right operand of dq: keys, for sums over keys */
    uint32_t *dout,       /* left operand of dp */
        *dout_transposed, /* left operand of dv */
        *q_transposed;    /* left operand of dk */
    uint32_t *p,          /* right operand of dv and dk: p, then ds, for sums over rows */
        *ds;              /* left operand of dq: ds, for sums over keys */
    real *dout_scratch;   /* [BLOCK_ROWS][Dv rounded up to chunks] */
    real *dk, *dv;        /* [Dk or Dv rounded up to chunks][BACKWARD_KEYS] */
    int dout_components;
    uint8_t *large_key, /* [BACKWARD_KEYS] 1: the key is non-finite or large, and was packed as 0 */
        *large_value,   /* [BACKWARD_KEYS] 1: the value is non-finite or large, and was packed as 0 */
        *large_dout;    /* [BLOCK_ROWS] 1: the row of dout is non-finite or large, and was packed as 0 */
    bool any_key, any_value, any_dout;
} products_backward;

/* Return false: packed keys are bf16 components, not panels of f32. */
static inline bool plain_panels(const rp_plan *plan)
{
    (void)plan;
    return false;
}

static void products_block_layout(const rpi_call *c, products_block *p, rpi_arena *a)
{
    const rp_desc *d = &c->plan->desc;
    const int64_t wide_k = rpi_round_up(d->dim_k, CHUNK), wide_v = rpi_round_up(d->dim_v, CHUNK);
    p->rows_scratch = rpi_arena_take(a, CHUNK, rpi_max(wide_k, wide_v), sizeof(real));
    p->q_rows = rpi_arena_take(a, BLOCK_ROWS, wide_k, sizeof(real));
    p->q_operand = rpi_arena_take(a, BLOCK_ROWS, wide_k, 6);
    p->w_operand = rpi_arena_take(a, 3 * 32, 64, 6);
    p->panel = rpi_arena_take(a, NR, rpi_round_up(d->dim_k, VL), sizeof(real));
    p->sums = rpi_arena_take(a, BLOCK_ROWS, VL, sizeof(real));
    p->values = rpi_arena_take(a, CHUNK, rpi_round_up(d->dim_v, TILE_SIDE), sizeof(real));
}
