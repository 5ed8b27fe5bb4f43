/* engine/fold.c -- the end of a backward call: sums of offsets, entries, vectors and rows become gradients of arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <math.h>

/* Sums of offsets, entries, vectors and rows become gradients of arrays: one thread, in one order. */
void rpi_fold(const rpi_call *c)
{
    rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    for (int n = 0; n <= c->n_sources; n++) {
        const rpi_source *s = n < c->n_sources ? &c->source[n] : &c->valvec;
        if (n == c->n_sources && !s->part)
            break;
        for (int64_t b = 0; s->kind == RPI_STRIP && bw->strips && b < (s->strip_batch ? d->batch : 1); b++) {
            const int64_t low = s->strip_batch ? -rpi_position(c->args, b, d->len_q - 1) : s->strip_low;
            for (int64_t e = 0; e < s->strip_len; e++)
                rpi_source_entry_grads(s, c->args, low, e, bw->strips + b * d->heads * s->strip_len + e, s->strip_len,
                                       &bw->sums);
        }
        for (int64_t e = 0; s->kind == RPI_GATHER && bw->entries[n] && e < s->count; e++)
            rpi_source_entry_grads(s, c->args, s->first, e, bw->entries[n] + e, s->count, &bw->sums);
        for (int64_t h = 0; h < d->heads; h++) {
            if (s->kind == RPI_ROWS && bw->entries[n]) {
                const rpi_scheme *scheme = rpi_scheme_of(d->terms[s->term].kind);
                const rpi_pair p = rpi_pair_of(c->args, s->term, 0, h, 0);
                scheme->fold_sums(&p, bw->entries[n] + h * scheme->sums_size(d, p.term), &bw->sums.term[s->term]);
            }
            if (!s->part)
                continue;
            const rpi_pair p = rpi_pair_of(c->args, s->term, 0, h, 0);
            const rpi_sums *to = &bw->sums.term[s->term];
            for (int64_t e = 0; bw->vectors[n] && e < s->count; e++)
                for (int64_t x = 0; x < s->width; x++)
                    s->part->vec_grad(&p, e, x, bw->vectors[n][(h * s->count + e) * s->width + x], to);
            for (int64_t m = 0; s->kind == RPI_COLUMN && bw->columns && m < d->batch * bw->key_blocks; m++)
                for (int64_t x = 0; x < s->width; x++) {
                    const int64_t b = m / bw->key_blocks, block = m % bw->key_blocks;
                    s->part->vec_grad(&p, 0, x,
                                      bw->columns[((b * d->heads + h) * bw->key_blocks + block) * s->width + x], to);
                }
        }
    }
    for (int64_t head = 0; head < d->batch * d->heads; head++) {
        const int64_t b = head / d->heads, h = head % d->heads;
        for (int32_t n = 0; n < d->n_terms && bw->sums_row; n++) {
            const rpi_scheme *scheme = rpi_scheme_of(d->terms[n].kind);
            if (!scheme->fold)
                continue;
            const rpi_pair p = rpi_pair_of(c->args, n, b, h, 0);
            scheme->fold(&p, bw->sums_row + head * d->len_q, bw->sums_column + head * d->len_k, &bw->sums.term[n]);
        }
        for (int64_t i = 0; c->plan->sink >= 0 && i < d->len_q; i++) { /* a key whose value is 0 */
            const double *stats = bw->row_stats + 3 * (head * d->len_q + i);
            const double given = rpi_at(&c->args->term[c->plan->sink][0], h, 0, 0, 0),
                         sink = c->plan->ops->real == 8 ? given : (double)rpi_to_float(given); /* as forward */
            if (stats[0] != -HUGE_VAL)
                rpi_add(&bw->sums.term[c->plan->sink], 0, h, 0, 0, 0, -exp((sink - stats[0]) - stats[1]) * stats[2]);
        }
    }
}
