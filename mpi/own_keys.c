/* own_keys.c -- gets the keys at the positions of the rows, where these belong to other processes. A row whose biases
 * fall far starts from the score of its own key (rp_tensors.own_keys).
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"
#include <stdlib.h>
#include <string.h>

/* Keys that one process sends to another: those at the positions of a stretch of rows, in a stretch of keys. */
typedef struct block {
    rpi_span rows, keys; /* the stretches */
    rpi_span both;       /* keys that are at the positions of the rows */
    int64_t offset;      /* of the rows of this batch entry */
} block;

/* Find the block of batch entry b for stretches `which_rows` of the receiver and `which_keys` of the sender. */
static block block_of(const rp_mpi_plan *m, const rp_tensors *t, int32_t receiver, int32_t sender, int64_t b, int n)
{
    const int32_t ranks = m->exchange.ranks;
    block k = {.offset = rpi_offset_of(m, t, b)};
    k.rows = rpi_stretch(m->desc.len_q, ranks, rpi_stretch_of(ranks, receiver, n / 2));
    k.keys = rpi_stretch(m->desc.len_k, ranks, rpi_stretch_of(ranks, sender, n % 2));
    const int64_t far = m->desc.len_q + m->desc.len_k, offset = k.offset > far    ? far
                                                                : k.offset < -far ? -far
                                                                                  : k.offset;
    k.both.from = k.rows.from + offset > k.keys.from ? k.rows.from + offset : k.keys.from;
    k.both.to = k.rows.to + offset < k.keys.to ? k.rows.to + offset : k.keys.to;
    if (k.both.to < k.both.from)
        k.both.to = k.both.from;
    return k;
}

/* Return the number of rows of keys that `sender` sends to `receiver`. */
static int64_t count(const rp_mpi_plan *m, const rp_tensors *t, int32_t receiver, int32_t sender)
{
    int64_t n = 0;
    for (int64_t b = 0; b < m->desc.batch; b++)
        for (int x = 0; x < 4; x++) {
            const block k = block_of(m, t, receiver, sender, b, x);
            n += (k.both.to - k.both.from) * m->desc.kv_heads;
        }
    return n;
}

/* Copy the keys that `sender` sends to `receiver`: from packed[] to `message`, or from `message` to own[]. Return the
 * end of the message. */
static char *copy(const rp_mpi_plan *m, const rp_tensors *t, int32_t receiver, int32_t sender, char *const packed[2],
                  char *const own[2], char *message)
{
    const rp_desc *d = &m->desc;
    const size_t row = (size_t)d->dim_k * rp_dtype_size(d->dtype);
    for (int64_t b = 0; b < d->batch; b++)
        for (int x = 0; x < 4; x++) {
            const block k = block_of(m, t, receiver, sender, b, x);
            const size_t bytes = (size_t)(k.both.to - k.both.from) * row;
            for (int64_t g = 0; g < d->kv_heads && bytes > 0; g++, message += bytes) {
                const int64_t head = b * d->kv_heads + g,
                              key = head * (k.keys.to - k.keys.from) + k.both.from - k.keys.from,
                              at = head * (k.rows.to - k.rows.from) + k.both.from - k.offset - k.rows.from;
                if (own == NULL)
                    memcpy(message, packed[x % 2] + (size_t)key * row, bytes);
                else
                    memcpy(own[x / 2] + (size_t)at * row, message, bytes);
            }
        }
    return message;
}

bool rpi_has_own_keys(const rp_mpi_plan *m, const rp_tensors *t)
{
    return m->desc.len_q == m->desc.len_k && m->desc.q_offset == 0 && t->q_offset.data == NULL;
}

bool rpi_needs_own_keys(const rp_mpi_plan *m, const rp_tensors *t)
{
    const rp_desc *d = &m->desc;
    if (rpi_has_own_keys(m, t))
        return false;
    for (int32_t n = 0; n < d->n_terms; n++)
        if (rp_term_is_bias(d->terms[n].kind))
            return true;
    return false;
}

rp_status rpi_get_own_keys(rp_mpi_plan *m, const rp_tensors *t, char *const packed[2], char *const own[2])
{
    rpi_exchange *x = &m->exchange;
    const size_t row = (size_t)m->desc.dim_k * rp_dtype_size(m->desc.dtype), ranks = (size_t)x->ranks;
    int *counts = calloc(4 * ranks, sizeof *counts);
    size_t total[2] = {0, 0};
    for (size_t n = 0; n < 2 * ranks && counts != NULL; n++) {
        const int32_t other = (int32_t)(n % ranks);
        int *at = counts + n / ranks * 2 * ranks;
        at[other] = (int)(n < ranks ? count(m, t, other, x->rank) : count(m, t, x->rank, other));
        at[ranks + (size_t)other] = (int)total[n / ranks];
        total[n / ranks] += (size_t)at[other];
    }
    char *send = malloc(total[0] * row + 1), *receive = malloc(total[1] * row + 1), *at = send;
    rp_status status = counts != NULL && send != NULL && receive != NULL ? RP_OK : RP_E_NOMEM;
    for (int32_t k = 0; k < x->ranks && status == RP_OK; k++)
        at = copy(m, t, k, x->rank, packed, NULL, at);
    int failed;
    status = rpi_agree_on_status(
        m, status == RP_OK ? RP_OK : rpi_mpi_fail(status, "out of memory for the keys of its rows; use more processes"),
        &failed);
    if (status == RP_OK && !rpi_exchange_rows(x, send, receive, counts, (int)row))
        status = rpi_mpi_fail(RP_E_MPI, "%s", x->failure);
    at = receive;
    for (int32_t k = 0; k < x->ranks && status == RP_OK; k++)
        at = copy(m, t, x->rank, k, packed, own, at);
    free(counts);
    free(send);
    free(receive);
    return status;
}
