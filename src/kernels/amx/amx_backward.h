/* kernels/amx/amx_backward.h -- the products of the backward pass on AMX tiles. fma/ has the same functions.
 * Parameters: VL, NR, MR, BLOCK_ROWS, BACKWARD_KEYS.
 *
 *     dp = dout v^T      dv^T += dout^T p      dk^T += q^T ds      dq = ds k
 *
 * The sums of dk and dv are stored transposed. p and ds are then right operands, which need no transposition. A
 * non-finite or large row is 0 in the operands; its products are added one pair at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
/* lets an editor parse this file on its own */
#include "amx_weights.h"
#include "kernels/scores.h"
#include "kernels/value_vectors.h"
#include "kernels/nonfinite.h"
#include "kernels/summary.h"
#include "kernels/state.h"
#include "kernels/skip.h"
#include "kernels/forward.h"
#include "kernels/decode.h"
#include "kernels/backward_scratch.h"
#endif

static void products_layout(const rpi_call *c, backward_scratch *task, rpi_arena *a)
{
    const rp_desc *d = &c->plan->desc;
    products_backward *w = &task->products;
    const int64_t wide_k = rpi_round_up(d->dim_k, CHUNK), wide_v = rpi_round_up(d->dim_v, CHUNK), all = 3;
    task->packed_keys = rpi_arena_take(a, BACKWARD_KEYS, key_bytes(c->plan), 1);
    w->values = rpi_arena_take(a, BACKWARD_KEYS * all, wide_v, 2);
    w->key_rows = rpi_arena_take(a, BACKWARD_KEYS * all, wide_k, 2);
    w->dout = rpi_arena_take(a, BLOCK_ROWS * all, wide_v, 2);
    w->dout_transposed = rpi_arena_take(a, BLOCK_ROWS * all, wide_v, 2);
    w->q_transposed = rpi_arena_take(a, BLOCK_ROWS * all, wide_k, 2);
    w->p = rpi_arena_take(a, BLOCK_ROWS * all, BACKWARD_KEYS, 2);
    w->ds = rpi_arena_take(a, BLOCK_ROWS * all, BACKWARD_KEYS, 2);
    w->dout_scratch = take_reals(a, BLOCK_ROWS, wide_v);
    w->dk = take_reals(a, wide_k, BACKWARD_KEYS);
    w->dv = take_reals(a, wide_v, BACKWARD_KEYS);
    w->large_key = rpi_arena_take(a, BACKWARD_KEYS, 1, 1);
    w->large_value = rpi_arena_take(a, BACKWARD_KEYS, 1, 1);
    w->large_dout = rpi_arena_take(a, BLOCK_ROWS, 1, 1);
}

/* Pack keys and values j0 … j0+n-1. */
static void products_begin(backward_scratch *task, int64_t g, int64_t j0, int64_t n)
{
    const rpi_call *c = task->k.c;
    const rp_desc *d = &c->args->desc;
    const int64_t b = task->k.b;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const real *rope = rpi_rope_of(c, true, b, g);
    products_backward *w = &task->products;
    uint8_t panels[BACKWARD_KEYS / NR];
    real *scratch = task->k.products.rows_scratch;
    pack_keys(&task->k, b, g, j0, n, task->packed_keys, task->large_k);
    memset(w->large_value, 0, BACKWARD_KEYS);
    amx_pack_panels(&c->args->v, b, g, j0, n, d->len_k, d->dim_v, NULL, NULL, value_components(c->plan), w->values,
                    panels, w->large_value, scratch);
    memcpy(task->large_v, w->large_value, BACKWARD_KEYS);
    amx_pack_columns(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, rotate, rope, key_components(c->plan),
                     (real)RPI_MODERATE, w->key_rows, w->large_key, scratch);
    w->any_key = memchr(w->large_key, 1, (size_t)n) != NULL;
    w->any_value = memchr(w->large_value, 1, (size_t)n) != NULL;
    if (w->any_key)
        pack_panels(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, rotate, rope, task->keys, NULL);
}

/* Set the sums of n keys to zero. */
static void products_zero(backward_scratch *task, int64_t n)
{
    const rp_desc *d = &task->k.c->args->desc;
    const products_backward *w = &task->products;
    for (int64_t x = 0; x < rpi_round_up(d->dim_k, CHUNK); x++)
        memset(w->dk + x * BACKWARD_KEYS, 0, reals(n, 1));
    for (int64_t x = 0; x < rpi_round_up(d->dim_v, CHUNK); x++)
        memset(w->dv + x * BACKWARD_KEYS, 0, reals(n, 1));
}

/* Pack the block's rows of a matrix [BLOCK_ROWS][ROW_STEP] as the right operand of a sum over rows: [chunk of rows][16
 * columns][component]. */
ALWAYS_INLINE void pairs_of_rows(const block *k, const real *from, int64_t columns, int components, uint32_t *to)
{
    static const real zeros[BACKWARD_KEYS];
    const int64_t rows = k->groups * MR;
    for (int64_t c = 0; c < rows; c += CHUNK, to += BACKWARD_KEYS / TILE_SIDE * components * FRAGMENT)
        for (int64_t r = c; r < c + TILE_SIDE; r++) {
            const real *x = r < rows ? from + r * ROW_STEP : zeros,
                       *y = r + TILE_SIDE < rows ? from + (r + TILE_SIDE) * ROW_STEP : zeros;
            uint32_t *at = to + (r - c) * TILE_SIDE;
            for (int64_t j = 0; j < columns; j += TILE_SIDE, at += components * FRAGMENT) {
                vu component[3];
                bf16_pair_truncated(vf_load(x + j), vf_load(y + j), components, component);
                RPI_UNROLL
                for (int n = 0; n < components; n++)
                    store_pairs(at + n * FRAGMENT, component[n]);
            }
        }
}

static void pack_by_rows(const block *k, const real *from, int64_t columns, int components, uint32_t *to)
{
    BY_COMPONENTS(COMPONENTS, components, pairs_of_rows(k, from, columns, COMPONENTS, to));
}

/* Pack `rows` rows of `wide` elements as the left operand of a sum over rows:
 * [16 channels][chunk of rows][component]. */
static void pack_channels(const real *from, int64_t wide, int64_t rows, int components, uint32_t *to)
{
    for (int64_t x = 0; x < wide; x += TILE_SIDE, to += BLOCK_ROWS / CHUNK * components * FRAGMENT)
        for (int64_t c = 0; c < rows; c += CHUNK) {
            const real *row[TILE_SIDE];
            vu fragment[3][TILE_SIDE];
            for (int r = 0; r < TILE_SIDE; r++) {
                vu component[3];
                row[r] = from + (c + r) * wide + x;
                bf16_pair(vf_load(row[r]), vf_load(row[r] + TILE_SIDE * wide), 3, component);
                for (int n = 0; n < 3; n++)
                    fragment[n][r] = component[n];
            }
            for (int n = 0; n < components; n++) {
                vf_transpose((vf *)fragment[n]);
                memcpy(to + (c / CHUNK * components + n) * FRAGMENT, fragment[n], sizeof fragment[n]);
            }
        }
}

static void load_dout(backward_scratch *task)
{
    block *k = &task->k;
    products_backward *w = &task->products;
    const rpi_call *c = k->c;
    const rpi_view *dout = &c->grads->dout;
    const int64_t Dv = c->args->desc.dim_v, wide = rpi_round_up(Dv, CHUNK), rows = rpi_round_up(k->groups * MR, CHUNK);
    w->dout_components = type_components(c->plan, dout->dtype);
    w->any_dout = false;
    for (int64_t r0 = 0; r0 < rows; r0 += CHUNK) {
        real *to = w->dout_scratch + r0 * wide;
        packing s;
        rows_at(&s, dout, k->b, k->h, k->row0 + r0, CHUNK, k->row0 + k->rows, Dv, to);
        for (int64_t r = 0; r < CHUNK; r++, to += wide) {
            magnitude seen = {vf_set1(0)};
            for (int64_t x = 0; x < wide; x += VL) {
                const vf y = vf_load(s.at[r] + x);
                __builtin_prefetch(s.ahead[r] + x * s.size, 0, 2);
                note_magnitude(&seen, y);
                vf_store(to + x, y);
            }
            task->large_dout[r0 + r] = !is_finite(&seen);
            w->large_dout[r0 + r] = !is_moderate(&seen, (real)RPI_MODERATE);
            w->any_dout |= w->large_dout[r0 + r];
            if (w->large_dout[r0 + r])
                memset(to, 0, reals(wide, 1));
        }
    }
    pack_rows(w->dout_scratch, wide, rows, wide, w->dout_components, w->dout);
    pack_channels(w->dout_scratch, wide, rows, w->dout_components, w->dout_transposed);
    if (c->value_vectors) /* value_products needs dout as rows */
        load_rows(k, dout, Dv, 1, task->dout, &(magnitude){0});
}

static void dp_products(backward_scratch *task, const tile *t, const real *const *starts)
{
    block *k = &task->k;
    products_backward *w = &task->products;
    const rpi_args *a = k->c->args;
    const int64_t Dv = a->desc.dim_v, chunks = rpi_round_up(Dv, CHUNK) / CHUNK, g = rpi_kv_head(&a->desc, k->h);
    const int components = value_components(k->c->plan);
    amx_scores(
        k, t,
        (operand){w->dout, chunks * w->dout_components * FRAGMENT, w->dout_components * FRAGMENT, w->dout_components},
        (operand){w->values, chunks * components * FRAGMENT, components * FRAGMENT, components}, chunks, starts,
        task->dp, NULL);
    for (int64_t r = 0; r < k->rows && (w->any_dout || w->any_value); r++)
        for (int64_t j = 0; j < rpi_min(t->end, a->desc.len_k - t->tile0); j++) {
            if (!w->large_dout[r] && !w->large_value[j])
                continue;
            const void *v = rpi_row_of(&a->v, k->b, g, t->tile0 + j);
            const void *dout = rpi_row_of(&k->c->grads->dout, k->b, k->h, k->row0 + r);
            real sum = starts ? starts[r][j] : 0;
            for (int64_t x = 0; x < Dv; x++)
                sum += (real)rpi_value(dout, k->c->grads->dout.dtype, x) * (real)rpi_value(v, a->v.dtype, x);
            task->dp[r * ROW_STEP + j] = sum;
        }
}

/* Add the matrix product left · right to sums[wide][BACKWARD_KEYS], for columns [0, columns). */
static void add_transposed_products(const block *k, const uint32_t *left, int left_components, const uint32_t *right,
                                    int64_t wide, int64_t columns, real *sums)
{
    const int components = k->c->plan->components;
    for (int64_t x = 0; x < wide; x += 2 * TILE_SIDE) {
        const operand a = {left + x / TILE_SIDE * (BLOCK_ROWS / CHUNK) * left_components * FRAGMENT,
                           (BLOCK_ROWS / CHUNK) * left_components * FRAGMENT, left_components * FRAGMENT,
                           left_components};
        for (int64_t j = 0; j < columns; j += 2 * TILE_SIDE) {
            const operand b = {right + j / TILE_SIDE * components * FRAGMENT, components * FRAGMENT,
                               BACKWARD_KEYS / TILE_SIDE * components * FRAGMENT, components};
            real *at = sums + x * BACKWARD_KEYS + j;
            const real *start[2] = {at, at + TILE_SIDE * BACKWARD_KEYS};
            const int64_t step[2] = {BACKWARD_KEYS, BACKWARD_KEYS};
            product(2, 2, &a, &b, rpi_round_up(k->groups * MR, CHUNK) / CHUNK, start, step, at, BACKWARD_KEYS, NULL);
        }
    }
}

static void dv_products(backward_scratch *task, const tile *t)
{
    block *k = &task->k;
    products_backward *w = &task->products;
    const int64_t Dv = k->c->args->desc.dim_v;
    pack_by_rows(k, k->s, t->end, k->c->plan->components, w->p);
    add_transposed_products(k, w->dout_transposed, w->dout_components, w->p, rpi_round_up(Dv, CHUNK), t->end, w->dv);
    for (int64_t r = 0; r < k->rows && w->any_dout; r++)
        for (int64_t j = 0; w->large_dout[r] && j < t->end; j++) {
            const void *dout = rpi_row_of(&k->c->grads->dout, k->b, k->h, k->row0 + r);
            const real p = k->s[r * ROW_STEP + j];
            for (int64_t x = 0; p != 0 && x < Dv; x++)
                w->dv[x * BACKWARD_KEYS + j] += p * (real)rpi_value(dout, k->c->grads->dout.dtype, x);
        }
}

static void dk_products(backward_scratch *task, const tile *t)
{
    block *k = &task->k;
    products_backward *w = &task->products;
    const int64_t D = k->c->args->desc.dim_k, wide = rpi_round_up(D, CHUNK);
    pack_by_rows(k, task->dp, t->end, k->c->plan->components, w->p);
    pack_channels(k->products.q_rows, wide, rpi_round_up(k->groups * MR, CHUNK), k->products.q_components,
                  w->q_transposed);
    add_transposed_products(k, w->q_transposed, k->products.q_components, w->p, wide, t->end, w->dk);
    for (int64_t r = 0; r < k->rows && k->large_q; r++)
        for (int64_t j = 0; k->large_row[r] && j < t->end; j++) {
            const real ds = task->dp[r * ROW_STEP + j];
            for (int64_t x = 0; ds != 0 && x < D; x++)
                w->dk[x * BACKWARD_KEYS + j] += ds * k->q[r * rpi_round_up(D, VL) + x];
        }
}

static void dq_products(backward_scratch *task, const tile *t)
{
    block *k = &task->k;
    products_backward *w = &task->products;
    const int components = k->c->plan->components, key = key_components(k->c->plan);
    const int64_t D = k->c->args->desc.dim_k, columns = rpi_round_up(D, TILE_SIDE) / TILE_SIDE, chunks = t->end / CHUNK,
                  all = k->groups * MR, rows = rpi_round_up(all, TILE_SIDE);
    pack_rows(task->dp, ROW_STEP, all, t->end, components, w->ds);
    for (int64_t r = all; r < rows; r++)
        for (int64_t n = 0; n < chunks * components; n++)
            memset(w->ds + (r / TILE_SIDE * chunks * components + n) * FRAGMENT + r % TILE_SIDE * TILE_SIDE, 0,
                   TILE_SIDE * sizeof *w->ds);
    for (int64_t r = 0; r < rows; r += 2 * TILE_SIDE)
        for (int64_t x = 0; x < columns; x += 2) {
            const operand a = {w->ds + r / TILE_SIDE * chunks * components * FRAGMENT, chunks * components * FRAGMENT,
                               components * FRAGMENT, components};
            const operand b = {w->key_rows + x * key * FRAGMENT, key * FRAGMENT, columns * key * FRAGMENT, key};
            product(rpi_min(2, (rows - r) / TILE_SIDE), rpi_min(2, columns - x), &a, &b, chunks, NULL, NULL,
                    task->dq + r * columns * TILE_SIDE + x * TILE_SIDE, columns * TILE_SIDE, NULL);
        }
    for (int64_t j = 0; j < t->end && w->any_key; j++)
        for (int64_t r = 0; w->large_key[j] && r < k->rows; r++) {
            const real ds = task->dp[r * ROW_STEP + j], *from = task->keys + j / NR * NR * D + j % NR;
            for (int64_t x = 0; ds != 0 && x < D; x++)
                task->dq[r * columns * TILE_SIDE + x] += ds * from[x * NR];
        }
}

/* Transpose from[channel][BACKWARD_KEYS] to to[keys][width padded]. */
static void transpose_back(const real *from, int64_t width, int64_t keys, real *to)
{
    const int64_t wide = rpi_round_up(width, VL);
    for (int64_t j = 0; j < keys; j += VL)
        for (int64_t x = 0; x < wide; x += VL) {
            vf y[VL];
            RPI_UNROLL
            for (int n = 0; n < VL; n++)
                y[n] = vf_load(from + (x + n) * BACKWARD_KEYS + j);
            vf_transpose(y);
            RPI_UNROLL
            for (int n = 0; n < VL; n++)
                vf_store(to + (j + n) * wide + x, y[n]);
        }
}

static void products_end(backward_scratch *w, int64_t keys)
{
    const rp_desc *d = &w->k.c->args->desc;
    transpose_back(w->products.dk, d->dim_k, keys, w->head.dk);
    transpose_back(w->products.dv, d->dim_v, keys, w->head.dv);
}

/* Transpose from[keys][width padded] to to[channel][BACKWARD_KEYS]. */
static void transpose_sums(const real *from, int64_t width, int64_t keys, real *to)
{
    for (int64_t j = 0; j < keys; j++)
        for (int64_t x = 0; x < width; x++)
            to[x * BACKWARD_KEYS + j] = from[j * rpi_round_up(width, VL) + x];
}

static void products_resume(backward_scratch *w, int64_t keys)
{
    const rp_desc *d = &w->k.c->args->desc;
    transpose_sums(w->head.dk, d->dim_k, keys, w->products.dk);
    transpose_sums(w->head.dv, d->dim_v, keys, w->products.dv);
}
