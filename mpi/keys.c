/* keys.c -- sends keys and values to the processes that compute with them for gradients (stripes.c), and returns their
 * gradients.
 * SPDX-License-Identifier: Apache-2.0 */
#include "wave.h"
#include <limits.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------------------ messages */

/* Return array x of the whole stretch at the keeper: k, v, dk or dv. */
static const rp_array *whole_of(const rpi_wave *w, int x)
{
    const rp_array *const all[RPI_KEY_FIELDS] = {&w->local->k, &w->local->v, &w->grads->dk, &w->grads->dv};
    return all[x];
}

/* Return the keys of a stripe in an array of this process, which has them. */
static rp_array kept(const rpi_wave *w, int x, int64_t s)
{
    const int32_t ranks = w->m->exchange.ranks, rank = w->m->exchange.rank;
    const rpi_span keys = w->stripe[s].keys,
                   early = rpi_stretch(w->m->desc.len_k, ranks, rpi_stretch_of(ranks, rank, 0)),
                   late = rpi_stretch(w->m->desc.len_k, ranks, rpi_stretch_of(ranks, rank, 1));
    return rpi_slice(whole_of(w, x),
                     keys.from < early.to ? keys.from - early.from : rpi_length(early) + keys.from - late.from,
                     rpi_length(keys));
}

/* Begin to send or receive array x of a stripe. The rows of a message are counted, not its bytes, which may be more
 * than 2 GiB. */
static void start(rpi_wave *w, rpi_own_stripe *o, int x, bool send, int32_t peer)
{
    const rp_array *a = &o->array[x];
    const int rows = (int)(a->shape[0] * a->shape[1] * a->shape[2]),
              tag = rpi_wave_tag(RPI_TAG_KEYS, 4 * o->stripe + x);
    const int row = (int)(a->shape[3] * (int64_t)rp_dtype_size(a->dtype));
    MPI_Datatype type;
    rpi_wave_check(w, MPI_Type_contiguous(row, MPI_BYTE, &type));
    rpi_wave_check(w, MPI_Type_commit(&type));
    rpi_wave_check(w, send ? MPI_Isend(a->data, rows, type, peer, tag, w->m->comm, &o->request[x])
                           : MPI_Irecv(a->data, rows, type, peer, tag, w->m->comm, &o->request[x]));
    MPI_Type_free(&type);
    w->m->sent_bytes += send ? (uint64_t)rows * (uint64_t)row : 0;
}

/* Return true if array x of a stripe is there. */
static bool wanted(const rpi_own_stripe *o, int x)
{
    return o->array[x].data != NULL;
}

void rpi_keys_begin(rpi_wave *w)
{
    for (int64_t n = 0; n < w->n_own; n++) {
        rpi_own_stripe *o = &w->own[n];
        const rpi_stripe *s = &w->stripe[o->stripe];
        const bool keeps = s->keeper == w->m->exchange.rank;
        for (int x = 0; x < RPI_KEY_FIELDS && o->moves; x++) {
            const bool gradient = x >= RPI_DK;
            if (!wanted(o, x) || (gradient && !keeps))
                continue;
            if (!gradient && keeps) {
                const rp_array from = kept(w, x, o->stripe);
                rpi_copy_rows(&o->array[x], &from);
            }
            start(w, o, x, !gradient && keeps, keeps ? s->worker : s->keeper);
        }
    }
}

void rpi_keys_wait(rpi_wave *w, rpi_own_stripe *o)
{
    for (int x = 0; x < RPI_DK; x++)
        rpi_wave_check(w, MPI_Wait(&o->request[x], MPI_STATUS_IGNORE));
}

void rpi_keys_return(rpi_wave *w, rpi_own_stripe *o)
{
    for (int x = RPI_DK; x < RPI_KEY_FIELDS && o->moves; x++)
        if (wanted(o, x))
            start(w, o, x, true, w->stripe[o->stripe].keeper);
}

void rpi_keys_finish(rpi_wave *w)
{
    for (int64_t n = 0; n < w->n_own; n++) {
        rpi_own_stripe *o = &w->own[n];
        rpi_wave_check(w, MPI_Waitall(RPI_KEY_FIELDS, o->request, MPI_STATUSES_IGNORE));
        for (int x = RPI_DK; x < RPI_KEY_FIELDS; x++) {
            if (!o->moves || !wanted(o, x) || w->stripe[o->stripe].keeper != w->m->exchange.rank)
                continue;
            const rp_array to = kept(w, x, o->stripe);
            rpi_copy_rows(&to, &o->array[x]);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ preparing */

/* Find the blocks that visit a stripe. */
static void find_blocks(const rpi_wave *w, rpi_own_stripe *o)
{
    o->from = o->to = -1;
    for (int64_t r = 0; r < w->blocks; r++)
        if (rpi_wave_visits(w, r, o->stripe)) {
            o->from = o->from < 0 ? r : o->from;
            o->to = r;
        }
}

/* Find the arrays of a stripe: parts of those of this process, or memory for messages. */
static rp_status find_arrays(rpi_wave *w, rpi_own_stripe *o)
{
    const rp_desc *d = &w->m->desc;
    const int64_t n = rpi_length(w->stripe[o->stripe].keys);
    for (int x = 0; x < RPI_KEY_FIELDS; x++) {
        const rp_array *whole = whole_of(w, x);
        const int64_t shape[4] = {d->batch, d->kv_heads, n, x == RPI_K || x == RPI_DK ? d->dim_k : d->dim_v};
        o->request[x] = MPI_REQUEST_NULL;
        if (!o->moves) {
            o->array[x] = w->stripe[o->stripe].keeper == w->m->exchange.rank ? kept(w, x, o->stripe) : (rp_array){0};
            continue;
        }
        if (x >= RPI_DK && whole->data == NULL)
            continue;
        if (shape[0] * shape[1] * n > INT_MAX)
            return rpi_mpi_fail(RP_E_OVERFLOW, "a stripe of %lld keys is too long for a message; use more processes",
                                (long long)n);
        o->array[x] = rp_array_of(NULL, x >= RPI_DK ? whole->dtype : d->dtype, 4, shape);
        o->array[x].data = calloc((size_t)rpi_elements(&o->array[x]) * rp_dtype_size(o->array[x].dtype) + 1, 1);
        if (o->array[x].data == NULL)
            return rpi_mpi_fail(RP_E_NOMEM, "out of memory for keys and values; use more processes or shorter "
                                            "sequences");
    }
    return RP_OK;
}

rp_status rpi_find_own_stripes(rpi_wave *w)
{
    const int32_t rank = w->m->exchange.rank;
    rp_status status = RP_OK;
    w->own = calloc((size_t)w->stripes + 1, sizeof *w->own);
    if (w->own == NULL)
        return rpi_mpi_fail(RP_E_NOMEM, "out of memory for stripes of keys; use shorter sequences");
    for (int64_t s = 0; s < w->stripes && status == RP_OK; s++) {
        const rpi_stripe *x = &w->stripe[s];
        if (x->keeper != rank && x->worker != rank)
            continue;
        rpi_own_stripe *o = &w->own[w->n_own++];
        o->stripe = s;
        find_blocks(w, o);
        o->moves = x->keeper != x->worker && o->from >= 0;
        status = find_arrays(w, o);
    }
    return status;
}

void rpi_free_own_stripes(rpi_wave *w)
{
    for (int64_t n = 0; n < w->n_own; n++)
        for (int x = 0; x < RPI_KEY_FIELDS && w->own[n].moves; x++)
            free(w->own[n].array[x].data);
    free(w->own);
}
