/* args.c -- what a call resolves once from its arrays: positions, frequencies, segments, prefix sums; and the pairs that
 * definitions see.
 * SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

rpi_pair rpi_pair_of(const rpi_args *args, int32_t term, int64_t b, int64_t h, int64_t i)
{
    rpi_pair p = {.desc = &args->desc,
                  .term = &args->desc.terms[term],
                  .array = args->term[term],
                  .prepared = args->prepared[term],
                  .b = b,
                  .h = h,
                  .i = i,
                  .position = b < args->desc.batch ? rpi_position(args, b, i) : i};
    const rpi_scheme *s = rpi_scheme_of(p.term->kind);
    const int32_t at = s->positions;
    const bool real = b < args->desc.batch && i < args->desc.len_q; /* not a row that only stands for a head */
    if (real && rpi_takes_positions(s) && p.array[at].data)
        p.at = rpi_at(&p.array[at], b, i, 0, 0);
    else
        p.at = (double)(real && args->segment_start ? i - args->segment_start[b * args->desc.len_k + i] : p.position);
    return p;
}

void rpi_pair_key(const rpi_args *args, rpi_pair *p, int64_t j)
{
    const rpi_scheme *s = rpi_scheme_of(p->term->kind);
    const int32_t at = s->positions;
    const bool takes = rpi_takes_positions(s), q = takes && p->array[at].data, k = takes && p->array[at + 1].data;
    p->j = j;
    if (!q && !k) {
        p->delta = (double)(j - p->position);
        return;
    }
    const int64_t start = args->segment_start ? args->segment_start[p->b * args->desc.len_k + j] : 0;
    p->delta = (k ? rpi_at(&p->array[at + 1], p->b, j, 0, 0) : (double)(j - start)) - p->at;
}

void rpi_interval(const rp_plan *plan, const rpi_args *args, int64_t b, int64_t i, int64_t *lo, int64_t *hi)
{
    const rp_desc *d = &args->desc;
    const int64_t position = rpi_position(args, b, i);
    *lo = 0;
    *hi = d->len_k;
    for (int32_t n = 0; n < d->n_masks; n++) {
        const rpi_masker *m = rpi_masker_of(d->masks[n].kind);
        if (m->interval)
            m->interval(&d->masks[n], &args->mask[n], b, position, lo, hi);
    }
    for (int32_t n = 0; n < d->n_terms && plan->n_tile; n++)
        if (rpi_scheme_of(d->terms[n].kind)->causal)
            *hi = rpi_min(*hi, position + 1);
    *lo = rpi_clamp(*lo, 0, d->len_k);
    *hi = rpi_clamp(*hi, *lo, d->len_k);
}

/* Of each token, the first token of its segment. */
static void find_segments(const rpi_args *args, const rpi_view *v, int64_t *start)
{
    const rp_desc *d = &args->desc;
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t i = 0; i < d->len_k; i++) {
            const int64_t own = rpi_integer(v->data, v->dtype, rpi_index(v, b, i, 0, 0));
            start[b * d->len_k + i] = i;
            if (i > 0 && rpi_integer(v->data, v->dtype, rpi_index(v, b, i - 1, 0, 0)) == own)
                start[b * d->len_k + i] = start[b * d->len_k + i - 1];
        }
}

/* The largest position + 1 of queries and keys, as RoPE sees them. */
static double longest(const rpi_args *args, int32_t term)
{
    const rp_desc *d = &args->desc;
    const rpi_view *array = args->term[term];
    double most = 0;
    for (int64_t b = 0; b < d->batch; b++) {
        const rpi_view *q = array[0].data ? &array[0] : &array[1], *k = array[0].data ? &array[0] : &array[2];
        if (!q->data && d->len_q && !args->segment_start)
            most = fmax(most, (double)rpi_position(args, b, d->len_q - 1) + 1);
        if (!k->data && !args->segment_start)
            most = fmax(most, (double)d->len_k);
        for (int64_t i = 0; i < d->len_q && q->data; i++)
            most = fmax(most, rpi_at(q, b, i, 0, 0) + 1);
        for (int64_t j = 0; j < d->len_k && (k->data || args->segment_start); j++)
            most = fmax(most,
                        k->data ? rpi_at(k, b, j, 0, 0) + 1 : (double)(j - args->segment_start[b * d->len_k + j]) + 1);
    }
    return most;
}

double rpi_turn_position(const rpi_args *args, int32_t term, bool key, int64_t b, int64_t n)
{
    const rpi_view *array = args->term[term], *v = array[0].data ? &array[0] : key ? &array[2] : &array[1];
    return v->data ? rpi_at(v, b, n, 0, 0) : (double)(key ? n : rpi_position(args, b, n));
}

/* Where what rpi_args_prepare makes lies in args->memory. */
static void lay_out(rpi_args *args, const rp_plan *plan, const rpi_view *segments)
{
    const rp_desc *d = &args->desc;
    rpi_arena *a = &args->memory;
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(d->terms[n].kind);
        if (s->prepare && !args->offsets_only)
            args->prepared[n] = rpi_arena_take(a, s->prepare_size(d, &d->terms[n]), 1, sizeof(double));
    }
    if (segments)
        args->segment_start = rpi_arena_take(a, d->batch, d->len_k, sizeof(int64_t));
    if (plan->rotate >= 0) /* frequencies, and the two lists of factors */
        args->frequency = rpi_arena_take(a, 3, d->terms[plan->rotate].dim / 2, sizeof(double));
}

rp_status rpi_args_prepare(rpi_args *args, const rp_plan *plan)
{
    const rp_desc *d = &args->desc;
    const rpi_view *segments = NULL;
    for (int32_t n = 0; n < d->n_masks; n++)
        if (d->masks[n].kind == RP_MASK_SEGMENTS && args->mask[n].data)
            segments = &args->mask[n];
    lay_out(args, plan, segments);
    if (args->memory.used == 0 && !args->memory.too_large)
        return RP_OK;
    rp_status status = rpi_arena_alloc(&args->memory, false, "the call");
    if (status != RP_OK)
        return status;
    lay_out(args, plan, segments);
    if (segments)
        find_segments(args, segments, args->segment_start);
    for (int32_t n = 0; n < d->n_terms; n++)
        if (args->prepared[n])
            rpi_scheme_of(d->terms[n].kind)->prepare(d, &d->terms[n], args->term[n], args->prepared[n]);
    if (plan->rotate >= 0) {
        const rpi_view *array = args->term[plan->rotate];
        const int64_t pairs = d->terms[plan->rotate].dim / 2;
        double *factor[2] = {NULL, NULL};
        for (int x = 0; x < 2; x++) {
            if (!array[3 + x].data)
                continue;
            factor[x] = args->frequency + (x + 1) * pairs;
            for (int64_t c = 0; c < pairs; c++)
                factor[x][c] = rpi_at(&array[3 + x], c, 0, 0, 0);
        }
        status = rp_rope_frequencies(&d->terms[plan->rotate], longest(args, plan->rotate), factor[0], factor[1],
                                     args->frequency, &args->turn_factor);
        if (status != RP_OK)
            rpi_args_free(args);
    }
    return status;
}

void rpi_args_free(rpi_args *args)
{
    rpi_arena_free(&args->memory);
}

/* ---------------------------------------------------------------------------------------------- sums of gradients */

rp_status rpi_sums_alloc(rpi_term_sums *sums, const rp_plan *plan, const rpi_args *args, const rpi_grads *grads)
{
    int64_t at[RP_MAX_TERMS][RP_MAX_ARRAYS];
    memset(sums, 0, sizeof *sums);
    for (int32_t n = 0; n < plan->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++) {
            int64_t count = 1;
            if (!grads->term[n][x].data)
                continue;
            for (int32_t a = RP_MAX_AXES - 1; a >= 0; a--) {
                const int64_t len = args->term[n][x].len[a];
                sums->term[n].array[x].len[a] = len;
                sums->term[n].array[x].stride[a] = len > 1 ? count : 0;
                if (!rpi_mul(count, len, 1, &count))
                    return rpi_fail(RP_E_OVERFLOW, "the gradient of an array does not fit in 63 bits");
            }
            sums->elements[n][x] = count;
            at[n][x] = rpi_arena_add(&sums->memory, count, 1, 1, sizeof(double));
        }
    const rp_status status = rpi_arena_alloc(&sums->memory, true, "the sum of the terms' gradients");
    if (status != RP_OK)
        return status;
    for (int32_t n = 0; n < plan->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (grads->term[n][x].data) {
                sums->term[n].array[x].data = sums->memory.base + at[n][x];
                sums->term[n].array[x].dtype = RP_F64;
            }
    return RP_OK;
}

void rpi_sums_store(const rpi_term_sums *sums, const rp_plan *plan, const rpi_args *args, const rpi_grads *grads)
{
    for (int32_t n = 0; n < plan->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++) {
            const rpi_view *to = &grads->term[n][x], *from = &sums->term[n].array[x];
            const int64_t *len = args->term[n][x].len;
            if (!to->data || !from->data)
                continue;
            for (int64_t a = 0; a < len[0]; a++)
                for (int64_t b = 0; b < len[1]; b++)
                    for (int64_t c = 0; c < len[2]; c++)
                        for (int64_t e = 0; e < len[3]; e++)
                            rpi_put(to->data, to->dtype, rpi_index(to, a, b, c, e), rpi_at(from, a, b, c, e));
        }
}
