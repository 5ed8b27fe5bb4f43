/* mpi_attend.c -- attention over a sequence whose rows and keys are divided among processes.
 *
 * Every process computes its rows over all stretches of the keys that they need, in the order of the keys, with the
 * states of rp_attend. So the bits are those of one call, for any number of processes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"
#include <stdlib.h>
#include <string.h>

/* Which rows of the call a process computes together: one of its two stretches. */
typedef struct rows {
    rpi_span at;     /* in the sequence */
    int64_t first;   /* in the arrays of the process */
    rpi_span needed; /* stretches of the keys */
    rp_array state;  /* [B, H, rows, width] */
    void *memory;    /* of the state */
    char *own;       /* [B, Hk, rows, Dk] the keys at their positions, or NULL if these are the packed keys */
} rows;

/* One call of rp_mpi_attend. */
typedef struct call {
    rp_mpi_plan *m;
    const rp_tensors *local;
    rows rows[2];
    char *packed[2];   /* the keys and values of this process by stretches */
    int64_t pairs[2];  /* as in rp_tensors */
    double done, part; /* progress: work that is done, and work of the current part, out of 1 */
    double work;       /* pairs of rows and keys in all parts */
    bool cancelled;    /* the caller's callback cancelled the call */
    bool stopped;      /* another process failed */
    rp_status error;   /* of this process */
} call;

/* ------------------------------------------------------------------------------------------------ arrays */

static size_t bytes_of_keys(const rp_desc *d, int64_t n, int64_t width)
{
    return (size_t)(d->batch * d->kv_heads * n * width) * rp_dtype_size(d->dtype);
}

/* Copy an array [B, Hk, n, width] to contiguous memory. */
static void pack(char *to, const rp_array *a)
{
    const rp_array packed = rp_array_of(to, a->dtype, 4, a->shape);
    rpi_copy_rows(&packed, a);
}

/* ------------------------------------------------------------------------------------------------ checks */

/* Return the name of a field that this call does not support, or NULL. */
static const char *unsupported(const rp_tensors *t)
{
    return t->weights.data                      ? "weights"
           : t->profile.data                    ? "profile"
           : t->key_mass.data                   ? "key_mass"
           : t->entropy.data                    ? "entropy"
           : t->pages.k != NULL                 ? "pages"
           : t->key_norms.data                  ? "key_norms"
           : t->prepared != NULL                ? "prepared"
           : t->state_in.data                   ? "state_in"
           : t->state_out.data                  ? "state_out"
           : t->own_keys.data                   ? "own_keys"
           : t->key_from != 0 || t->key_to != 0 ? "key_from or key_to"
           : t->row_from != 0 || t->row_to != 0 ? "row_from or row_to"
                                                : NULL;
}

static rp_status check_arrays(const call *c)
{
    const rp_desc *d = &c->m->desc;
    const rp_tensors *t = c->local;
    if (t == NULL || t->size != sizeof *t)
        return rpi_mpi_fail(RP_E_ARG, "tensors %s; start from rp_tensors_init", t ? "has another size" : "is NULL");
    if (unsupported(t) != NULL)
        return rpi_mpi_fail(RP_E_UNSUPPORTED, "%s was given, but rp_mpi_attend does not support it; omit it",
                            unsupported(t));
    const rp_array *o = &t->q_offset;
    if (o->data != NULL &&
        (o->ndim < 0 || o->ndim > 1 || (o->ndim == 1 && o->shape[0] != 1 && o->shape[0] != d->batch)))
        return rpi_mpi_fail(RP_E_SHAPE, "tensors.q_offset: it must have one axis of length %lld", (long long)d->batch);
    const int64_t n_q = rpi_own_length(c->m, d->len_q), n_k = rpi_own_length(c->m, d->len_k);
    const int64_t q[4] = {d->batch, d->heads, n_q, d->dim_k}, k[4] = {d->batch, d->kv_heads, n_k, d->dim_k},
                  v[4] = {d->batch, d->kv_heads, n_k, d->dim_v}, out[4] = {d->batch, d->heads, n_q, d->dim_v};
    rp_status status = rpi_check_array(&t->q, "q", 4, q, d->dtype, false);
    if (status == RP_OK)
        status = rpi_check_array(&t->k, "k", 4, k, d->dtype, false);
    if (status == RP_OK)
        status = rpi_check_array(&t->v, "v", 4, v, d->dtype, false);
    if (status == RP_OK)
        status = rpi_check_array(&t->out, "out", 4, out, d->dtype, t->lse.data != NULL);
    return status == RP_OK ? rpi_check_array(&t->lse, "lse", 3, q, RP_BOOL, true) : status;
}

/* ------------------------------------------------------------------------------------------------ preparing */

/* Find the neighbours of this process in the chain of a part. Chains of the first half of the stretches go up the
 * ranks, and those of the second half down: the owner of the next stretch then comes second, not last. The last process
 * of a chain has the part late, and must not hold up the next chain. */
static void link_part(const rp_mpi_plan *m, int64_t n, rpi_part *p)
{
    const int32_t ranks = m->exchange.ranks, rank = m->exchange.rank, owner = rpi_owner_of(ranks, n);
    int32_t before = owner;
    bool found = owner == rank;
    p->from = p->to = -1;
    for (int32_t k = 1; k < ranks && p->to < 0; k++) {
        const int32_t next = (n < ranks ? owner + k : owner + ranks - k) % ranks;
        if (!rpi_needs(m, m->needed, next, n))
            continue;
        if (found)
            p->to = next;
        else if (next == rank)
            p->from = before, found = true;
        before = next;
    }
}

/* List the parts, and pack the keys and values of this process. Return false if out of memory. */
static bool make_parts(call *c)
{
    rp_mpi_plan *m = c->m;
    const rp_desc *d = &m->desc;
    const int32_t ranks = m->exchange.ranks, rank = m->exchange.rank;
    size_t largest = 0;
    int64_t first = 0;
    for (int64_t n = 0; n < 2 * (int64_t)ranks; n++) {
        const int64_t keys = rpi_length(rpi_stretch(d->len_k, ranks, n));
        m->parts[n] = (rpi_part){.size = bytes_of_keys(d, keys, d->dim_k + d->dim_v)};
        link_part(m, n, &m->parts[n]);
        if (m->parts[n].from >= 0 && m->parts[n].size > largest)
            largest = m->parts[n].size;
    }
    for (int w = 0; w < 2; w++) {
        const int64_t n = rpi_stretch_of(ranks, rank, w), keys = rpi_length(rpi_stretch(d->len_k, ranks, n));
        const rp_array k = rpi_slice(&c->local->k, first, keys), v = rpi_slice(&c->local->v, first, keys);
        first += keys;
        c->packed[w] = malloc(m->parts[n].size + 1);
        if (c->packed[w] == NULL)
            return false;
        m->parts[n].own = c->packed[w];
        if (m->parts[n].size == 0)
            continue;
        pack(c->packed[w], &k);
        pack(c->packed[w] + bytes_of_keys(d, keys, d->dim_k), &v);
    }
    return rpi_exchange_alloc(&m->exchange, largest);
}

/* Find the rows of this process, and allocate their states. Return false if out of memory. */
static bool make_rows(call *c)
{
    const rp_mpi_plan *m = c->m;
    const rp_desc *d = &m->desc;
    const int32_t ranks = m->exchange.ranks, rank = m->exchange.rank;
    const rp_dtype real = d->dtype == RP_F64 ? RP_F64 : RP_F32;
    const bool own = rpi_needs_own_keys(m, c->local);
    int64_t first = 0;
    for (int w = 0; w < 2; w++) {
        rows *r = &c->rows[w];
        const int64_t n = rpi_stretch_of(ranks, rank, w);
        r->at = rpi_stretch(d->len_q, ranks, n);
        r->needed = m->needed[n];
        r->first = first;
        first += rpi_length(r->at);
        const int64_t shape[4] = {d->batch, d->heads, rpi_length(r->at), rp_plan_state_width(m->plan)};
        r->memory = malloc((size_t)(shape[0] * shape[1] * shape[2] * shape[3]) * rp_dtype_size(real) + 1);
        if (r->memory == NULL)
            return false;
        r->state = rp_array_of(r->memory, real, 4, shape);
        if (own && (r->own = calloc(bytes_of_keys(d, rpi_length(r->at), d->dim_k) + 1, 1)) == NULL)
            return false;
        for (int64_t s = r->needed.from; s < r->needed.to; s++)
            c->work += (double)rpi_length(r->at) * (double)rpi_length(rpi_stretch(d->len_k, ranks, s));
    }
    return true;
}

/* Return the arrays of a call of rp_attend for some rows, without keys, values and outputs. */
static rp_tensors tensors_of(const call *c, const rows *r)
{
    const rp_desc *d = &c->m->desc;
    const rp_array none = {0};
    const int64_t shape[4] = {d->batch, d->kv_heads, rpi_length(r->at), d->dim_k};
    rp_tensors t = *c->local;
    t.q = rpi_slice(&t.q, r->first, rpi_length(r->at));
    t.k = t.v = t.out = t.lse = none;
    t.row_from = rpi_length(r->at) > 0 ? r->at.from : d->len_q; /* from 0 to 0 would be all rows */
    t.row_to = rpi_length(r->at) > 0 ? r->at.to : d->len_q;
    if (r->own != NULL || rpi_has_own_keys(c->m, c->local))
        t.own_keys = rp_array_of(r->own != NULL ? r->own : c->packed[r - c->rows], d->dtype, 4, shape);
    t.prepared = c->m->prepared;
    t.pairs = NULL;
    t.progress = NULL;
    return t;
}

/* Check the arrays with calls that have no keys. */
static rp_status try_rows(call *c)
{
    const rp_desc *d = &c->m->desc;
    for (int w = 0; w < 2; w++) {
        rows *r = &c->rows[w];
        rp_tensors t = tensors_of(c, r);
        t.key_from = t.key_to = d->len_k;
        t.state_out = r->state;
        const rp_status status = rp_attend(c->m->plan, &t, NULL);
        if (status != RP_OK)
            return rpi_mpi_fail(status, "%s", rp_last_error());
    }
    return RP_OK;
}

static rp_status prepare(call *c)
{
    rp_mpi_plan *m = c->m;
    rp_status status = check_arrays(c);
    if (status != RP_OK)
        return status;
    rp_tensors t = *c->local;
    status = rp_prepare(&m->prepared, m->plan, &t);
    if (status != RP_OK)
        return rpi_mpi_fail(status, "%s", rp_last_error());
    status = rpi_find_needed(m, &t, m->needed);
    if (status == RP_OK && (!make_parts(c) || !make_rows(c)))
        status = rpi_mpi_fail(RP_E_NOMEM, "out of memory for keys and states; use more processes or shorter sequences");
    return status == RP_OK ? try_rows(c) : status;
}

/* ------------------------------------------------------------------------------------------------ computing */

/* The progress callback of the calls of rp_attend. */
static int report(void *context, double fraction)
{
    call *c = context;
    const rp_tensors *t = c->local;
    if (t->progress != NULL && !c->cancelled && t->progress(t->progress_context, c->done + c->part * fraction) != 0)
        c->cancelled = true;
    return c->cancelled || rpi_exchange_stopped(&c->m->exchange);
}

/* Compute rows over a stretch of the keys; n < 0: rows that need no keys. */
static rp_status attend_rows(call *c, rows *r, int64_t n, const char *data)
{
    const rp_desc *d = &c->m->desc;
    const rpi_span keys = n >= 0 ? rpi_stretch(d->len_k, c->m->exchange.ranks, n) : (rpi_span){d->len_k, d->len_k};
    const int64_t k[4] = {d->batch, d->kv_heads, rpi_length(keys), d->dim_k},
                  v[4] = {d->batch, d->kv_heads, rpi_length(keys), d->dim_v};
    rp_tensors t = tensors_of(c, r);
    int64_t pairs[2] = {0, 0};
    const bool last = n < 0 || n + 1 == r->needed.to;
    if (data != NULL) {
        t.k = rp_array_of(data, d->dtype, 4, k);
        t.v = rp_array_of(data + bytes_of_keys(d, rpi_length(keys), d->dim_k), d->dtype, 4, v);
    }
    t.key_from = keys.from;
    t.key_to = keys.to;
    if (n > r->needed.from)
        t.state_in = r->state;
    if (!last)
        t.state_out = r->state;
    else
        t.out = rpi_slice(&c->local->out, r->first, rpi_length(r->at)),
        t.lse = rpi_slice(&c->local->lse, r->first, rpi_length(r->at));
    t.pairs = pairs;
    t.progress = report;
    t.progress_context = c;
    c->part = c->work > 0 ? (double)rpi_length(r->at) * (double)rpi_length(keys) / c->work : 0;
    const rp_status status = rp_attend(c->m->plan, &t, NULL);
    c->done += c->part;
    for (int x = 0; x < 2; x++)
        c->pairs[x] += pairs[x];
    return status;
}

/* Compute the rows of this process over one stretch. */
static rp_status attend_part(call *c, int64_t n, const char *data)
{
    rp_status status = RP_OK;
    for (int w = 0; w < 2 && status == RP_OK; w++) {
        rows *r = &c->rows[w];
        if (rpi_length(r->at) > 0 && n >= r->needed.from && n < r->needed.to)
            status = attend_rows(c, r, n, data);
    }
    return status;
}

/* Record an error of this process, and let the others stop. */
static void note(call *c, rp_status status)
{
    if (status == RP_OK || c->error != RP_OK)
        return;
    if (status == RP_E_CANCELLED && !c->cancelled) { /* another process failed, and says why */
        c->stopped = true;
        return;
    }
    c->error = rpi_mpi_fail(status, "%s",
                            status == RP_E_CANCELLED ? "the progress callback cancelled the call" : rp_last_error());
    rpi_exchange_stop(&c->m->exchange);
}

/* Compute all stretches that this process needs. After an error, parts are still passed on, so that no other process
 * waits for them. */
static void run(call *c)
{
    rp_mpi_plan *m = c->m;
    rpi_exchange *x = &m->exchange;
    rpi_exchange_begin(x, m->parts, 2 * (int64_t)x->ranks);
    for (int w = 0; w < 2; w++)
        if (rpi_length(c->rows[w].at) > 0 && c->rows[w].needed.to == 0)
            note(c, attend_rows(c, &c->rows[w], -1, NULL));
    for (int64_t n = 0; n < 2 * (int64_t)x->ranks; n++) {
        const rpi_part *p = &m->parts[n];
        const char *data = p->own != NULL || p->from >= 0 ? rpi_exchange_wait(x, n) : NULL;
        if (data == NULL)
            continue;
        if (c->error == RP_OK && !c->stopped)
            note(c, attend_part(c, n, data));
        rpi_exchange_release(x, n);
    }
    rpi_exchange_finish(x);
}

static void free_call(call *c)
{
    for (int w = 0; w < 2; w++) {
        free(c->rows[w].memory);
        free(c->rows[w].own);
        free(c->packed[w]);
    }
    rp_prepared_destroy(c->m->prepared);
    c->m->prepared = NULL;
}

rp_status rp_mpi_attend(rp_mpi_plan *m, const rp_tensors *local)
{
    if (m == NULL)
        return rpi_mpi_fail(RP_E_ARG, "plan is NULL; make one with rp_mpi_plan_create");
    call c = {.m = m, .local = local};
    int failed = 0;
    rp_status status = rpi_agree_on_arrays(m, local, prepare(&c));
    if (status == RP_OK && rpi_needs_own_keys(m, local))
        status = rpi_get_own_keys(m, local, c.packed, (char *const[2]){c.rows[0].own, c.rows[1].own});
    if (status == RP_OK) {
        run(&c);
        status = rpi_agree_on_status(m, c.error, &failed);
        rpi_exchange_end(&m->exchange, failed);
        m->sent_bytes = m->exchange.sent_bytes;
    }
    if (status == RP_OK && local->pairs != NULL)
        memcpy(local->pairs, c.pairs, sizeof c.pairs);
    free_call(&c);
    return status;
}
