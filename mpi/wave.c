/* wave.c -- blocks of rows on their way along the keys. See wave.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "wave.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Fewer blocks in a stretch waste more steps at the start and end, in which not all processes have work; more blocks
 * repeat the packing of keys more often. */
enum { BLOCKS_PER_STRETCH = 8 };

/* ------------------------------------------------------------------------------------------------ arrays */

static rpi_span overlap(rpi_span a, rpi_span b)
{
    const rpi_span s = {a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
    return s.from < s.to ? s : (rpi_span){0, 0};
}

/* Return where array x of n rows begins in a block or piece; x = RPI_FIELDS: its size. */
static size_t offset_of(const rpi_wave *w, int x, int64_t n)
{
    const rp_desc *d = &w->m->desc;
    size_t at = 0;
    for (int k = 0; k < x; k++) {
        const rpi_field *f = &w->field[k];
        at += ((size_t)(d->batch * d->heads * n * f->width) * rp_dtype_size(f->dtype) + 63) / 64 * 64;
    }
    return at;
}

/* Return array x of the n rows at data. */
static rp_array view_at(const rpi_wave *w, int x, char *data, int64_t n)
{
    const int64_t shape[4] = {w->m->desc.batch, w->m->desc.heads, n, w->field[x].width};
    rp_array a =
        rp_array_of(data + offset_of(w, x, n), w->field[x].dtype, x == RPI_LSE || x == RPI_DLSE ? 3 : 4, shape);
    if (w->field[x].width == 0)
        a.data = NULL;
    return a;
}

rp_array rpi_wave_view(const rpi_wave *w, int x, const rpi_held *s, int64_t n)
{
    return view_at(w, x, s->data, n);
}

/* Return the index of a row of the sequence in the arrays of this process. */
static int64_t local_row(const rpi_wave *w, int64_t row)
{
    const int32_t ranks = w->m->exchange.ranks, rank = w->m->exchange.rank;
    const rpi_span early = rpi_stretch(w->m->desc.len_q, ranks, rpi_stretch_of(ranks, rank, 0)),
                   late = rpi_stretch(w->m->desc.len_q, ranks, rpi_stretch_of(ranks, rank, 1));
    return row < early.to ? row - early.from : rpi_length(early) + row - late.from;
}

/* Copy arrays Q … RPI_DLSE of some rows, from the arrays of this process or from a piece, to memory for `all` rows. */
static void put_rows(const rpi_wave *w, char *to, rpi_span all, char *piece, rpi_span rows)
{
    for (int x = 0; x < RPI_DQ; x++) {
        if (w->field[x].width == 0)
            continue;
        const rp_array whole = view_at(w, x, to, rpi_length(all)),
                       target = rpi_slice(&whole, rows.from - all.from, rpi_length(rows));
        const rp_array from = piece != NULL ? view_at(w, x, piece, rpi_length(rows))
                                            : rpi_slice(w->field[x].local, local_row(w, rows.from), rpi_length(rows));
        rpi_copy_rows(&target, &from);
    }
}

/* ---------------------------------------------------------------------------------------------- the path of a block */

bool rpi_wave_visits(const rpi_wave *w, int64_t r, int64_t s)
{
    const rpi_span needed = w->block[r].needed;
    return s >= needed.from && s < needed.to && rpi_length(w->stripe[s].keys) > 0;
}

int64_t rpi_wave_beside(const rpi_wave *w, int64_t r, int64_t s, int step)
{
    for (s += step; s >= 0 && s < w->stripes; s += step)
        if (rpi_wave_visits(w, r, s))
            return s;
    return -1;
}

static int32_t first_worker(const rpi_wave *w, int64_t r)
{
    return w->stripe[rpi_wave_beside(w, r, -1, 1)].worker;
}

static int32_t last_worker(const rpi_wave *w, int64_t r)
{
    return w->stripe[rpi_wave_beside(w, r, w->stripes, -1)].worker;
}

/* Return the rows of block r in stretch n of the rows. */
static rpi_span piece_of(const rpi_wave *w, int64_t r, int64_t n)
{
    return overlap(w->block[r].rows, rpi_stretch(w->m->desc.len_q, w->m->exchange.ranks, n));
}

/* ------------------------------------------------------------------------------------------------ messages */

void rpi_wave_note(rpi_wave *w, rp_status status, const char *text)
{
    if (status != RP_OK && w->error == RP_OK)
        w->error = rpi_mpi_fail(status, "%s", text);
}

int rpi_wave_tag(int kind, int64_t number)
{
    return kind * RPI_TAG_NUMBERS + (int)(number % RPI_TAG_NUMBERS);
}

void rpi_wave_check(rpi_wave *w, int code)
{
    if (code != MPI_SUCCESS)
        rpi_wave_note(w, RP_E_MPI, "a message of rp_mpi_backward could not be sent or received");
}

/* Return the bytes of a block of n rows. It ends with a flag: a process on its way has failed. */
static size_t block_size(const rpi_wave *w, int64_t n)
{
    return offset_of(w, RPI_FIELDS, n) + 1;
}

/* Return the bytes of dq of n rows. */
static size_t dq_size(const rpi_wave *w, int64_t n)
{
    const rp_desc *d = &w->m->desc;
    return (size_t)(d->batch * d->heads * n * d->dim_k) * rp_dtype_size(w->grads->dq.dtype);
}

/* Return dq of the n rows at data. */
static rp_array dq_at(const rpi_wave *w, char *data, int64_t n)
{
    const int64_t shape[4] = {w->m->desc.batch, w->m->desc.heads, n, w->m->desc.dim_k};
    return rp_array_of(data, w->grads->dq.dtype, 4, shape);
}

rp_array rpi_wave_dq(const rpi_wave *w, const rpi_held *s, int64_t n)
{
    return dq_at(w, s->spare, n);
}

/* Return the bytes of a piece of n rows. */
static size_t piece_size(const rpi_wave *w, int64_t n)
{
    return offset_of(w, RPI_DQ, n);
}

/* Forget the blocks whose messages are sent. Wait for them if `all`. */
static void forget_sent(rpi_wave *w, bool all)
{
    for (int n = 0; n < w->n_held; n++) {
        rpi_held *s = &w->held[n];
        int done = 1;
        if (s->block < 0 || !s->sending)
            continue;
        rpi_wave_check(w, all ? MPI_Waitall(s->requests, s->request, MPI_STATUSES_IGNORE)
                              : MPI_Testall(s->requests, s->request, &done, MPI_STATUSES_IGNORE));
        if (done)
            *s = (rpi_held){.block = -1, .data = s->data, .spare = s->spare, .request = s->request};
    }
}

/* Return the block that meets a stripe next; r = -1: memory for another block, or NULL. */
static rpi_held *held_of(rpi_wave *w, int64_t r, int64_t stripe)
{
    for (int n = 0; n < w->n_held; n++)
        if (w->held[n].block == r && !w->held[n].sending && (r < 0 || w->held[n].stripe == stripe))
            return &w->held[n];
    return NULL;
}

/* Begin to send `size` bytes. */
static void send_bytes(rpi_wave *w, const char *data, size_t size, int32_t to, int tag, MPI_Request *request)
{
    rpi_wave_check(w, MPI_Isend(data, (int)size, MPI_BYTE, to, tag, w->m->comm, request));
    w->m->sent_bytes += size;
}

void rpi_wave_begin(rpi_wave *w)
{
    const int32_t ranks = w->m->exchange.ranks, rank = w->m->exchange.rank;
    char *out = w->outgoing, *back = w->returning;
    for (int64_t r = 0; r < w->blocks; r++)
        for (int which = 0; which < 2; which++) {
            const rpi_span rows = piece_of(w, r, rpi_stretch_of(ranks, rank, which));
            const int32_t to = first_worker(w, r), from = last_worker(w, r);
            if (rpi_length(rows) == 0)
                continue;
            if (to != rank) {
                put_rows(w, out, rows, NULL, rows);
                const size_t size = piece_size(w, rpi_length(rows));
                send_bytes(w, out, size, to, rpi_wave_tag(RPI_TAG_PIECE, r), &w->out_request[w->outs++]);
                out += size;
            }
            if (from != rank && w->grads->dq.data != NULL) {
                rpi_wave_check(w, MPI_Irecv(back, (int)dq_size(w, rpi_length(rows)), MPI_BYTE, from,
                                            rpi_wave_tag(RPI_TAG_DQ, r), w->m->comm, &w->return_request[w->returns++]));
                back += dq_size(w, rpi_length(rows));
            }
        }
}

/* Wait for dq of the rows of this process, in the order of rpi_wave_begin, and for the pieces to be sent. */
static void receive_dq(rpi_wave *w)
{
    const int32_t ranks = w->m->exchange.ranks, rank = w->m->exchange.rank;
    char *back = w->returning;
    rpi_wave_check(w, MPI_Waitall((int)w->outs, w->out_request, MPI_STATUSES_IGNORE));
    rpi_wave_check(w, MPI_Waitall((int)w->returns, w->return_request, MPI_STATUSES_IGNORE));
    for (int64_t r = 0; r < w->blocks && w->grads->dq.data != NULL; r++)
        for (int which = 0; which < 2; which++) {
            const rpi_span rows = piece_of(w, r, rpi_stretch_of(ranks, rank, which));
            if (rpi_length(rows) == 0 || last_worker(w, r) == rank)
                continue;
            const rp_array to = rpi_slice(&w->grads->dq, local_row(w, rows.from), rpi_length(rows)),
                           from = dq_at(w, back, rpi_length(rows));
            rpi_copy_rows(&to, &from);
            back += dq_size(w, rpi_length(rows));
        }
}

/* Put a new block together from its pieces. */
static void join_pieces(rpi_wave *w, rpi_held *s)
{
    const rpi_span all = w->block[s->block].rows;
    char *at = s->spare;
    for (int64_t k = 0; k < w->stretches; k++) {
        const rpi_span rows = piece_of(w, s->block, k);
        const bool own = rpi_owner_of(w->m->exchange.ranks, k) == w->m->exchange.rank;
        if (rpi_length(rows) == 0)
            continue;
        put_rows(w, s->data, all, own ? NULL : at, rows);
        at += own ? 0 : piece_size(w, rpi_length(rows));
    }
    s->data[block_size(w, rpi_length(all)) - 1] = 0;
}

/* Begin to receive the pieces of a block from other processes. */
static void receive_pieces(rpi_wave *w, rpi_held *s)
{
    const int32_t ranks = w->m->exchange.ranks, rank = w->m->exchange.rank;
    char *at = s->spare;
    for (int64_t k = 0; k < w->stretches; k++) {
        const rpi_span rows = piece_of(w, s->block, k);
        if (rpi_length(rows) == 0 || rpi_owner_of(ranks, k) == rank)
            continue;
        rpi_wave_check(w, MPI_Irecv(at, (int)piece_size(w, rpi_length(rows)), MPI_BYTE, rpi_owner_of(ranks, k),
                                    rpi_wave_tag(RPI_TAG_PIECE, s->block), w->m->comm, &s->request[s->requests++]));
        at += piece_size(w, rpi_length(rows));
    }
}

bool rpi_wave_expect(rpi_wave *w, rpi_meeting *x)
{
    const int32_t rank = w->m->exchange.rank;
    const int64_t before = rpi_wave_beside(w, x->block, x->stripe, -1), n = rpi_length(w->block[x->block].rows);
    if (x->expected || (before >= 0 && w->stripe[before].worker == rank))
        return true; /* this process already has the block, or will have it */
    rpi_held *s = held_of(w, -1, 0);
    if (s == NULL)
        return false;
    s->block = x->block;
    s->stripe = x->stripe;
    x->expected = true;
    if (before >= 0) {
        rpi_wave_check(w, MPI_Irecv(s->data, (int)block_size(w, n), MPI_BYTE, w->stripe[before].worker,
                                    rpi_wave_tag(RPI_TAG_BLOCK, x->block), w->m->comm, &s->request[s->requests++]));
        return true;
    }
    receive_pieces(w, s);
    return true;
}

rpi_held *rpi_wave_take(rpi_wave *w, rpi_meeting *x)
{
    while (!rpi_wave_expect(w, x)) /* the sends end, because the receivers compute earlier steps first */
        forget_sent(w, true);
    rpi_held *s = held_of(w, x->block, x->stripe);
    rpi_wave_check(w, MPI_Waitall(s->requests, s->request, MPI_STATUSES_IGNORE));
    s->requests = 0;
    if (rpi_wave_beside(w, x->block, x->stripe, -1) < 0)
        join_pieces(w, s);
    w->stopped |= s->data[block_size(w, rpi_length(w->block[s->block].rows)) - 1] != 0;
    return s;
}

/* Return dq, which is in s->spare, to the owners of the rows. */
static void return_dq(rpi_wave *w, rpi_held *s)
{
    const rpi_span all = w->block[s->block].rows;
    const rp_array dq = dq_at(w, s->spare, rpi_length(all));
    char *at = s->data; /* not needed any more */
    for (int64_t k = 0; k < w->stretches; k++) {
        const rpi_span rows = piece_of(w, s->block, k);
        const int32_t to = rpi_owner_of(w->m->exchange.ranks, k);
        if (rpi_length(rows) == 0)
            continue;
        const bool own = to == w->m->exchange.rank;
        const rp_array from = rpi_slice(&dq, rows.from - all.from, rpi_length(rows)),
                       target = own ? rpi_slice(&w->grads->dq, local_row(w, rows.from), rpi_length(rows))
                                    : dq_at(w, at, rpi_length(rows));
        rpi_copy_rows(&target, &from);
        if (own)
            continue;
        const size_t size = dq_size(w, rpi_length(rows));
        send_bytes(w, at, size, to, rpi_wave_tag(RPI_TAG_DQ, s->block), &s->request[s->requests++]);
        at += size;
    }
}

void rpi_wave_pass(rpi_wave *w, const rpi_meeting *x, rpi_held *s)
{
    const int64_t next = rpi_wave_beside(w, x->block, x->stripe, 1);
    const size_t size = block_size(w, rpi_length(w->block[x->block].rows));
    s->data[size - 1] |= w->stopped || w->error != RP_OK;
    s->stripe = next;
    if (next >= 0 && w->stripe[next].worker == w->m->exchange.rank)
        return; /* this process keeps it */
    s->sending = true;
    if (next >= 0)
        send_bytes(w, s->data, size, w->stripe[next].worker, rpi_wave_tag(RPI_TAG_BLOCK, x->block),
                   &s->request[s->requests++]);
    else if (w->grads->dq.data != NULL)
        return_dq(w, s);
}

void rpi_wave_advance(rpi_wave *w)
{
    int done;
    forget_sent(w, false);
    for (int n = 0; n < w->n_held; n++)
        if (w->held[n].requests > 0 && !w->held[n].sending)
            rpi_wave_check(w, MPI_Test(w->held[n].request, &done, MPI_STATUS_IGNORE));
}

void rpi_wave_finish(rpi_wave *w)
{
    forget_sent(w, true);
    receive_dq(w);
}

/* ------------------------------------------------------------------------------------------------ preparing */

/* Cut the rows into blocks, and find the keys that they need: block.needed has keys until the stripes are known. */
static rp_status cut_rows(rpi_wave *w, bool *uneven)
{
    const rp_desc *d = &w->m->desc;
    const int64_t step = rp_plan_row_step(w->m->plan), parts = w->stretches * BLOCKS_PER_STRETCH;
    const int64_t rows = ((d->len_q + parts - 1) / parts + step - 1) / step * step;
    w->blocks = rows > 0 ? (d->len_q + rows - 1) / rows : 0;
    w->block = calloc((size_t)w->blocks + 1, sizeof *w->block);
    if (w->block == NULL)
        return rpi_mpi_fail(RP_E_NOMEM, "out of memory for blocks of rows; use shorter sequences");
    for (int64_t r = 0; r < w->blocks; r++) {
        rpi_block *b = &w->block[r];
        b->rows = (rpi_span){r * rows, r + 1 < w->blocks ? (r + 1) * rows : d->len_q};
        const rp_status status = rpi_keys_of(w->m, w->local, b->rows, &b->needed);
        if (status != RP_OK)
            return status;
        *uneven = *uneven || b->needed.from > 0 || b->needed.to < d->len_k;
    }
    return RP_OK;
}

/* Cut the rows into blocks and the keys into stripes, and find which blocks visit which stripes. */
static rp_status make_blocks(rpi_wave *w)
{
    bool uneven = false;
    int64_t first = 0;
    const rp_status status = cut_rows(w, &uneven);
    if (status != RP_OK)
        return status;
    if (!rpi_make_stripes(w, rpi_stripes_per_stretch(w, uneven && !w->whole_keys)))
        return rpi_mpi_fail(RP_E_NOMEM, "out of memory for stripes of keys; use shorter sequences");
    while (rpi_length(w->stripe[first].keys) == 0)
        first++;
    for (int64_t r = 0; r < w->blocks; r++) {
        rpi_block *b = &w->block[r];
        const rpi_span keys = b->needed;
        b->needed = (rpi_span){0, 0};
        for (int64_t s = 0; s < w->stripes; s++)
            if (rpi_length(overlap(keys, w->stripe[s].keys)) > 0)
                b->needed = (rpi_span){b->needed.to == 0 ? s : b->needed.from, s + 1};
        /* rows that may attend to no key also need a call, because their dq may be -0 */
        if (w->from_first_key || b->needed.to == 0)
            b->needed = (rpi_span){first, b->needed.to > first ? b->needed.to : first + 1};
        int64_t pieces = 0;
        for (int64_t k = 0; k < w->stretches; k++)
            pieces += rpi_length(piece_of(w, r, k)) > 0;
        w->most_pieces = pieces > w->most_pieces ? pieces : w->most_pieces;
    }
    return w->blocks == 0 || block_size(w, rpi_length(w->block[0].rows)) <= INT_MAX
               ? RP_OK
               : rpi_mpi_fail(RP_E_OVERFLOW, "a block of rows has more than 2 GiB; use a smaller batch");
}

/* Allocate everything that the messages need. Return false if out of memory. */
static bool make_memory(rpi_wave *w)
{
    const int64_t rows = w->blocks > 0 ? rpi_length(w->block[0].rows) : 0, own = rpi_own_length(w->m, w->m->desc.len_q);
    /* arrays of pieces are padded to 64 bytes each */
    const size_t padding = RPI_FIELDS * 64, dq = w->grads->dq.data != NULL ? dq_size(w, rows) : 0,
                 size = block_size(w, rows) + dq + (size_t)w->most_pieces * padding;
    w->n_held = (int)(w->stripes / w->m->exchange.ranks) + RPI_SPARE_BLOCKS;
    w->held = calloc((size_t)w->n_held, sizeof *w->held);
    bool there = w->held != NULL;
    for (int n = 0; n < w->n_held && there; n++) {
        w->held[n] = (rpi_held){.block = -1, .data = malloc(size), .spare = malloc(size)};
        w->held[n].request = calloc((size_t)w->most_pieces + 1, sizeof(MPI_Request));
        there = there && w->held[n].data != NULL && w->held[n].spare != NULL && w->held[n].request != NULL;
    }
    w->outgoing = malloc(piece_size(w, own) + 2 * ((size_t)w->blocks + 1) * padding);
    w->returning = malloc(w->grads->dq.data != NULL ? dq_size(w, own) + 1 : 1);
    w->out_request = calloc(2 * (size_t)w->blocks + 1, sizeof(MPI_Request));
    w->return_request = calloc(2 * (size_t)w->blocks + 1, sizeof(MPI_Request));
    return there && w->outgoing != NULL && w->returning != NULL && w->out_request != NULL && w->return_request != NULL;
}

rp_status rpi_wave_init(rpi_wave *w)
{
    w->stretches = 2 * (int64_t)w->m->exchange.ranks;
    const rp_status status = make_blocks(w);
    if (status == RP_OK && !make_memory(w))
        return rpi_mpi_fail(RP_E_NOMEM, "out of memory for blocks of rows; use more processes or shorter sequences");
    return status;
}

void rpi_wave_free(rpi_wave *w)
{
    for (int n = 0; n < w->n_held && w->held != NULL; n++) {
        free(w->held[n].data);
        free(w->held[n].spare);
        free(w->held[n].request);
    }
    free(w->held);
    free(w->stripe);
    free(w->block);
    free(w->outgoing);
    free(w->returning);
    free(w->out_request);
    free(w->return_request);
}
