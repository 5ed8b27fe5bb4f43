/* kernels/amx/amx_weights.h -- weights and sums of weighted values on AMX tiles, as a software pipeline: while AMX
 * tiles compute the products of one stage, vectors compute the weights of the next stage, because they use different
 * execution units. Independent of how scores are computed.
 * Parameters: VL, MR, ROW_STEP.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "amx_unpacked.h" /* lets an editor parse this file on its own */
#endif

enum { STAGE_KEYS = 64 }; /* keys of a stage: the weights of two stages fit into the L1 cache */

/* A stage: up to 32 rows and STAGE_KEYS keys. Its weights are computed while the products of the previous stage run. */
struct stage {
    block *k;
    const tile *t;
    uint32_t *to;               /* left operand [2][chunk][component] */
    int64_t r0, rows, col, end; /* rows, a multiple of 16; columns [col, end) of the tile */
    int64_t next, due, steps;   /* next row to compute; each step computes 1 / steps of the rows */
    bool kept,                  /* store the weights in k->s */
        dropout,                /* apply dropout */
        full,                   /* every row of the tile has all columns and a finite running maximum */
        plain;                  /* `full` is set and the stage has STAGE_KEYS keys */
    void (*make)(stage *p, int64_t rows);
};

/* Turn the scores of the next rows into weights, sum the weights, and store their components. Store 0 for columns that
 * a row does not compute. */
ALWAYS_INLINE void make_rows(stage *p, int64_t rows, int components)
{
    block *k = p->k;
    const int64_t past = rpi_min(p->next + rows, p->rows);
    if (p->plain) {
        for (int64_t r = p->next; r < past; r++) {
            const int64_t row = p->r0 + r;
            const real *s = k->s + row * ROW_STEP + p->col;
            uint32_t *to =
                p->to + r / TILE_SIDE * (STAGE_KEYS / CHUNK) * components * FRAGMENT + r % TILE_SIDE * TILE_SIDE;
            const vf base = vf_set1(k->running_max[row]);
            vf sum = vf_load(k->products.sums + row * VL);
            RPI_UNROLL
            for (int x = 0; x < STAGE_KEYS; x += CHUNK) {
                const vf a = vf_exp(vf_load(s + x) - base), b = vf_exp(vf_load(s + x + TILE_SIDE) - base);
                vu component[3];
                sum = sum + (a + b);
                bf16_pair_truncated(a, b, components, component);
                RPI_UNROLL
                for (int n = 0; n < components; n++)
                    store_pairs(to + (x / CHUNK * components + n) * FRAGMENT, component[n]);
            }
            vf_store(k->products.sums + row * VL, sum);
        }
        p->next = past;
        return;
    }
    for (; p->next < past; p->next++) {
        const int64_t r = p->next, row = p->r0 + r, g = row / MR;
        const bool any = g < k->groups && p->col >= p->t->from[g] && p->col < p->t->to[g];
        uint32_t *to = p->to + r / TILE_SIDE * (STAGE_KEYS / CHUNK) * components * FRAGMENT + r % TILE_SIDE * TILE_SIDE;
        real *s = k->s + row * ROW_STEP;
        vf base = vf_set1(0), sum = base;
        if (any) {
            base = score_shift(k, row);
            sum = vf_load(k->products.sums + row * VL);
        }
        for (int64_t x = p->col; x < p->end; x += CHUNK, to += components * FRAGMENT) {
            vu component[3] = {{0}, {0}, {0}};
            if (any) {
                vf a = vf_exp(vf_load(s + x) - base), b = vf_exp(vf_load(s + x + TILE_SIDE) - base);
                sum = sum + (a + b);
                if (p->kept) {
                    vf_store(s + x, a);
                    vf_store(s + x + TILE_SIDE, b);
                }
                if (p->dropout && row < k->rows) {
                    apply_dropout(k, p->t, row, x, x + CHUNK, s);
                    a = vf_load(s + x);
                    b = vf_load(s + x + TILE_SIDE);
                }
                bf16_pair_truncated(a, b, components, component);
            }
            RPI_UNROLL
            for (int n = 0; n < components; n++)
                store_pairs(to + n * FRAGMENT, component[n]);
        }
        if (any)
            vf_store(k->products.sums + row * VL, sum);
    }
}

static __attribute__((noinline)) void make_rows_2(stage *p, int64_t rows)
{
    make_rows(p, rows, 2);
}

static __attribute__((noinline)) void make_rows_3(stage *p, int64_t rows)
{
    make_rows(p, rows, 3);
}

static inline void stage_step(stage *p)
{
    int64_t rows = 0;
    for (p->due += p->rows; p->due >= p->steps; p->due -= p->steps)
        rows++;
    if (rows)
        p->make(p, rows);
}

/* Find the tile's first stage at or after row r0 and column col. Return false if there is none. */
static bool stage_find(stage *p, int64_t r0, int64_t col)
{
    const int64_t all = rpi_round_up(p->k->groups * MR, TILE_SIDE);
    for (; r0 < all; r0 += 2 * TILE_SIDE, col = 0) {
        int64_t from, to;
        p->rows = rpi_min(2 * TILE_SIDE, all - r0);
        columns_of(p->k, p->t, r0, p->rows, &from, &to);
        p->col = rpi_max(from, col);
        p->end = rpi_min(p->col + STAGE_KEYS, to);
        p->r0 = r0;
        p->next = p->due = 0;
        p->plain = p->full && p->end - p->col == STAGE_KEYS;
        if (p->col < to)
            return true;
    }
    return false;
}

/* See the contract in template.h. */
static void weigh_tile(block *k, const tile *t, const void *values, int64_t first, int64_t pad, const real *alpha,
                       real *o, int64_t step, bool kept)
{
    const rpi_call *c = k->c;
    const int components = weight_components(c->plan), v_components = value_components(c->plan);
    const int64_t columns = c->pad_v / TILE_SIDE, all = k->groups * MR, scratch_row = columns * TILE_SIDE;
    stage now = {.k = k,
                 .t = t,
                 .steps = STAGE_KEYS / CHUNK * (v_components == 1 ? components : components * (components + 1) / 2) *
                          ((columns + 1) / 2),
                 .kept = kept || c->args->desc.dropout > 0,
                 .dropout = c->args->desc.dropout > 0,
                 .make = components == 3 ? make_rows_3 : make_rows_2};
    stage after;
    int n = 0;
    (void)pad, (void)step;
    if (k->unpacked) {
        unpacked_weigh(k, t, values, alpha, o, now.kept);
        return;
    }
    memset(k->products.sums, 0, reals(rpi_round_up(all, VL), VL));
    now.full = !now.kept && all % TILE_SIDE == 0;
    for (int64_t r = 0; now.full && r < all; r++)
        now.full = t->from[r / MR] == 0 && t->to[r / MR] == t->end && k->running_max[r] != -INFINITY;
    bool more = stage_find(&now, 0, 0);
    now.to = k->products.w_operand;
    if (more)
        now.make(&now, now.rows);
    for (; more; now = after) {
        after = now;
        after.to = k->products.w_operand + (++n % 2) * (2 * TILE_SIDE * STAGE_KEYS / 2 * 3);
        more = stage_find(&after, now.r0, now.end);
        int64_t from, to;
        columns_of(k, t, now.r0, now.rows, &from, &to);
        const operand w = {now.to, STAGE_KEYS / CHUNK * components * FRAGMENT, components * FRAGMENT, components};
        for (int64_t x = 0; values && x < columns; x += 2) {
            const operand v = {(const uint32_t *)values +
                                   ((first + now.col) / CHUNK * columns + x) * v_components * FRAGMENT,
                               v_components * FRAGMENT, columns * v_components * FRAGMENT, v_components};
            const real *start[2] = {k->products.values + x * TILE_SIDE,
                                    k->products.values + TILE_SIDE * scratch_row + x * TILE_SIDE};
            const int64_t start_step[2] = {scratch_row, scratch_row};
            product(now.rows / TILE_SIDE, rpi_min(2, columns - x), &w, &v, (now.end - now.col) / CHUNK,
                    now.col > from ? start : NULL, start_step, k->products.values + x * TILE_SIDE, scratch_row,
                    more ? &after : NULL);
        }
        if (more)
            after.make(&after, after.rows);
        if (now.end < to || !values)
            continue;
        for (int64_t r = now.r0; r < rpi_min(now.r0 + now.rows, all); r++) {
            const vf factor = vf_set1(t->from[r / MR] < t->to[r / MR] ? alpha[r] : 1);
            for (int64_t x = 0; x < c->pad_v; x += VL)
                vf_store(o + r * c->pad_v + x, vf_fma(factor, vf_load(o + r * c->pad_v + x),
                                                      vf_load(k->products.values + (r - now.r0) * scratch_row + x)));
        }
    }
    for (int64_t r0 = 0; r0 < all; r0 += VL) {
        vf sums[VL];
        RPI_UNROLL
        for (int r = 0; r < VL; r++)
            sums[r] = vf_load(k->products.sums + (r0 + r) * VL);
        add_sums(k->sum + r0, sums);
    }
}
