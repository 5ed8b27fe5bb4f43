/* stretches.c -- divides rows and keys among the processes, and finds the keys that can matter for a row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"
#include <relpos/facts.h>
#include <stdlib.h>
#include <string.h>

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

rpi_span rpi_stretch(int64_t length, int32_t ranks, int64_t n)
{
    const int64_t tiles = (length + RPI_TILE - 1) / RPI_TILE, stretches = 2 * (int64_t)ranks;
    return (rpi_span){min64(tiles * n / stretches * RPI_TILE, length),
                      min64(tiles * (n + 1) / stretches * RPI_TILE, length)};
}

int64_t rpi_stretch_of(int32_t ranks, int32_t rank, int which)
{
    return which == 0 ? rank : 2 * (int64_t)ranks - 1 - rank;
}

int32_t rpi_owner_of(int32_t ranks, int64_t n)
{
    return (int32_t)(n < ranks ? n : 2 * (int64_t)ranks - 1 - n);
}

void rp_mpi_stretch(int64_t length, int32_t ranks, int32_t rank, int32_t which, int64_t *from, int64_t *to)
{
    const bool valid = length >= 0 && ranks >= 1 && rank >= 0 && rank < ranks && (which == 0 || which == 1);
    const rpi_span s = valid ? rpi_stretch(length, ranks, rpi_stretch_of(ranks, rank, which)) : (rpi_span){0, 0};
    *from = s.from;
    *to = s.to;
}

int64_t rpi_offset_of(const rp_mpi_plan *m, const rp_tensors *t, int64_t b)
{
    const rp_array *a = &t->q_offset;
    const int64_t at = a->ndim == 1 && a->shape[0] > 1 ? b * a->stride[0] : 0;
    double x = 0;
    int64_t n = 0;
    if (a->data == NULL)
        return m->desc.q_offset;
    if (a->dtype == RP_I64 || a->dtype == RP_U64)
        memcpy(&n, (const char *)a->data + at * 8, sizeof n);
    else
        rp_convert(&x, RP_F64, (const char *)a->data + at * (int64_t)rp_dtype_size(a->dtype), a->dtype, 1);
    return a->dtype == RP_I64 || a->dtype == RP_U64 ? n : (int64_t)x;
}

/* Narrow *keys to the keys that mask n lets rows [rows.from, rows.to) of batch entry b attend to. */
static rp_status narrow_by_mask(const rp_mpi_plan *m, const rp_tensors *t, int32_t n, int64_t b, rpi_span rows,
                                rpi_span *keys)
{
    const rp_mask_info *info = rp_mask_info_of(m->desc.masks[n].kind);
    /* Without an array over Lq, neither end decreases from row to row, so the first row has the smallest `first`, and
     * the last row the largest `end`. This holds for empty rows too: rp_mask_row clamps them to [0, 0) before the keys
     * and to [Lk, Lk) after them. */
    const bool by_row = info->axes != NULL && strstr(info->axes, "Lq") != NULL;
    const int64_t step = by_row ? 1 : max64(rows.to - rows.from - 1, 1);
    rp_mask mask = m->desc.masks[n];
    rp_desc d = m->desc;
    rpi_span hull = {d.len_k, 0};
    if (info->by_pair)
        return RP_OK;
    d.terms = NULL;
    d.n_terms = 0;
    d.masks = &mask;
    d.n_masks = 1;
    d.mask_size = sizeof mask;
    d.q_offset = rpi_offset_of(m, t, b);
    for (int64_t i = rows.from; i < rows.to; i += step) {
        int64_t first, end;
        const rp_status status = rp_mask_row(&d, 0, &t->mask[n], b, 0, i, &first, &end, NULL);
        if (status != RP_OK)
            return rpi_mpi_fail(status, "%s", rp_last_error());
        if (first < end || !by_row)
            hull = (rpi_span){min64(hull.from, first), max64(hull.to, end)};
    }
    *keys = (rpi_span){max64(keys->from, hull.from), min64(keys->to, hull.to)};
    return RP_OK;
}

rp_status rpi_keys_of(const rp_mpi_plan *m, const rp_tensors *t, rpi_span rows, rpi_span *keys)
{
    const rp_desc *d = &m->desc;
    rp_status status = RP_OK;
    *keys = (rpi_span){d->len_k, 0};
    for (int64_t b = 0; b < d->batch && rows.from < rows.to; b++) {
        rpi_span own = {0, d->len_k};
        for (int32_t n = 0; n < d->n_masks && status == RP_OK; n++)
            status = narrow_by_mask(m, t, n, b, rows, &own);
        for (int32_t n = 0; n < d->n_terms; n++)
            if (rp_term_is_causal(d->terms[n].kind))
                own.to = min64(own.to, max64(rows.to + rpi_offset_of(m, t, b), 0));
        if (own.from < own.to)
            *keys = (rpi_span){min64(keys->from, own.from), max64(keys->to, own.to)};
    }
    return status;
}

rp_status rpi_find_needed(const rp_mpi_plan *m, const rp_tensors *t, rpi_span *span)
{
    const int32_t ranks = m->exchange.ranks;
    rp_status status = RP_OK;
    for (int64_t n = 0; n < 2 * (int64_t)ranks && status == RP_OK; n++)
        status = rpi_needed_by(m, t, rpi_stretch(m->desc.len_q, ranks, n), &span[n]);
    return status;
}

bool rpi_needs(const rp_mpi_plan *m, const rpi_span *span, int32_t rank, int64_t n)
{
    for (int which = 0; which < 2; which++) {
        const rpi_span *s = &span[rpi_stretch_of(m->exchange.ranks, rank, which)];
        if (n >= s->from && n < s->to)
            return true;
    }
    return false;
}

rp_status rpi_needed_by(const rp_mpi_plan *m, const rp_tensors *t, rpi_span rows, rpi_span *span)
{
    const int64_t stretches = 2 * (int64_t)m->exchange.ranks;
    rpi_span keys;
    const rp_status status = rpi_keys_of(m, t, rows, &keys);
    *span = (rpi_span){0, 0};
    for (int64_t s = 0; s < stretches && status == RP_OK; s++) {
        const rpi_span stretch = rpi_stretch(m->desc.len_k, m->exchange.ranks, s);
        if (max64(stretch.from, keys.from) >= min64(stretch.to, keys.to))
            continue;
        span->from = span->to == 0 ? s : span->from;
        span->to = s + 1;
    }
    return status;
}
