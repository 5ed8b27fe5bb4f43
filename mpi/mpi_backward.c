/* mpi_backward.c -- gradients of attention over a sequence whose rows and keys are divided among processes. wave.h has
 * the order in which they are computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "wave.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One call of rp_mpi_backward. */
typedef struct call {
    rpi_wave wave;
    rpi_meeting *meeting;
    int64_t meetings;
    /* gradients of the arrays of terms, of this process and of one meeting */
    double *sum[RP_MAX_TERMS][RP_MAX_ARRAYS], *part[RP_MAX_TERMS][RP_MAX_ARRAYS];
    double done; /* meetings, for progress */
    bool cancelled;
} call;

/* ------------------------------------------------------------------------------------------------ computing */

/* The progress callback of the calls of rp_backward. */
static int report(void *context, double fraction)
{
    call *c = context;
    const rp_tensors *t = c->wave.local;
    rpi_wave_advance(&c->wave);
    if (t->progress != NULL && t->progress(t->progress_context, (c->done + fraction) / (double)c->meetings) != 0)
        c->cancelled = true;
    return c->cancelled;
}

/* Let a call write the gradients of terms to `part`. */
static void request_parts(const call *c, rp_grads *g)
{
    for (int32_t n = 0; n < c->wave.m->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (c->sum[n][x] != NULL)
                g->term[n][x] = rp_array_of(c->part[n][x], RP_F64, g->term[n][x].ndim, g->term[n][x].shape);
}

/* Add the gradients of terms of a call to the sums. */
static void add_parts(call *c)
{
    for (int32_t n = 0; n < c->wave.m->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            for (int64_t e = 0; c->sum[n][x] != NULL && e < rpi_elements(&c->wave.grads->term[n][x]); e++)
                c->sum[n][x][e] += c->part[n][x][e];
}

/* Compute a block of rows against a stripe of keys. */
static rp_status compute(call *c, const rpi_meeting *x, rpi_held *s, const rpi_own_stripe *k)
{
    const rp_array none = {0};
    const rpi_wave *w = &c->wave;
    const rpi_span rows = w->block[x->block].rows, keys = w->stripe[x->stripe].keys;
    const int64_t n = rpi_length(rows);
    const bool first_keys = rpi_wave_beside(w, x->block, x->stripe, -1) < 0,
               last_keys = rpi_wave_beside(w, x->block, x->stripe, 1) < 0, last_rows = x->block == k->to,
               wants_keys = c->wave.grads->dk.data != NULL || c->wave.grads->dv.data != NULL;
    rp_tensors t = *c->wave.local;
    rp_grads g = rp_grads_init();
    memcpy(&g, c->wave.grads, c->wave.grads->size); /* the caller's struct may be an older, shorter one */
    g.size = sizeof g;
    t.q = rpi_wave_view(w, RPI_Q, s, n), t.out = rpi_wave_view(w, RPI_OUT, s, n),
    t.lse = rpi_wave_view(w, RPI_LSE, s, n);
    t.k = k->array[RPI_K], t.v = k->array[RPI_V];
    t.row_from = rows.from, t.row_to = rows.to, t.key_from = keys.from, t.key_to = keys.to;
    t.pairs = NULL, t.prepared = w->m->prepared, t.progress = report, t.progress_context = c;
    g.dout = rpi_wave_view(w, RPI_DOUT, s, n), g.dlse = rpi_wave_view(w, RPI_DLSE, s, n);
    if (g.dq.data != NULL) {
        g.dq = last_keys ? rpi_wave_dq(w, s, n) : none;
        g.dq_in = first_keys ? none : rpi_wave_view(w, RPI_DQ, s, n);
        g.dq_out = last_keys ? none : rpi_wave_view(w, RPI_DQ, s, n);
    }
    g.dk = last_rows ? k->array[RPI_DK] : none;
    g.dv = last_rows ? k->array[RPI_DV] : none;
    g.dkv_in = wants_keys && x->block != k->from ? k->sums : none;
    g.dkv_out = wants_keys && !last_rows ? k->sums : none;
    request_parts(c, &g);
    const rp_status status = rp_backward(c->wave.m->plan, &t, &g, NULL);
    if (status == RP_OK)
        add_parts(c);
    return status;
}

/* Set dk and dv to zero, which has the bits 0 in every type, for keys that no row attends to. */
static void clear_keys(const call *c)
{
    for (int64_t n = 0; n < c->wave.n_own; n++)
        for (int x = RPI_DK; x < RPI_KEY_FIELDS; x++) {
            const rpi_own_stripe *k = &c->wave.own[n];
            const rp_array *a = &k->array[x]; /* of the keeper; otherwise absent, because the stripe does not move */
            const size_t size = rp_dtype_size(a->dtype);
            if (a->data == NULL || k->from >= 0)
                continue;
            for (int64_t r = 0; r < a->shape[0] * a->shape[1] * a->shape[2]; r++)
                memset((char *)a->data +
                           (r / a->shape[2] / a->shape[1] * a->stride[0] +
                            r / a->shape[2] % a->shape[1] * a->stride[1] + r % a->shape[2] * a->stride[2]) *
                               (int64_t)size,
                       0, (size_t)a->shape[3] * size);
        }
}

/* Return the stripe of a meeting. */
static rpi_own_stripe *stripe_of(const call *c, const rpi_meeting *x)
{
    rpi_own_stripe *k = c->wave.own;
    while (k->stripe != x->stripe)
        k++;
    return k;
}

/* Compute all meetings of this process. After an error, blocks are still passed on, so that no other process waits. */
static void run(call *c)
{
    rpi_wave *w = &c->wave;
    rpi_keys_begin(w);
    rpi_wave_begin(w);
    for (int64_t n = 0; n < c->meetings; n++) {
        rpi_own_stripe *k = stripe_of(c, &c->meeting[n]);
        rpi_held *s = rpi_wave_take(w, &c->meeting[n]);
        for (int64_t x = n + 1; x <= n + RPI_AHEAD && x < c->meetings && rpi_wave_expect(w, &c->meeting[x]); x++)
            continue;
        if (c->meeting[n].block == k->from)
            rpi_keys_wait(w, k);
        if (w->error == RP_OK && !w->stopped) {
            const rp_status status = compute(c, &c->meeting[n], s, k);
            rpi_wave_note(w, status,
                          status == RP_E_CANCELLED ? "the progress callback cancelled the call" : rp_last_error());
        }
        c->done++;
        rpi_wave_pass(w, &c->meeting[n], s);
        if (c->meeting[n].block == k->to)
            rpi_keys_return(w, k);
        rpi_wave_advance(w);
    }
    rpi_wave_finish(w);
    rpi_keys_finish(w);
    clear_keys(c);
}

/* Add the sums of all processes in a tree, and give them to all. */
static void add_sums(call *c, double *sum, double *other, int64_t n)
{
    const int32_t ranks = c->wave.m->exchange.ranks, rank = c->wave.m->exchange.rank;
    for (int32_t step = 1; step < ranks; step *= 2) {
        if (rank % (2 * step) == step) {
            rpi_wave_check(&c->wave, MPI_Send(sum, (int)n, MPI_DOUBLE, rank - step, 0, c->wave.m->comm));
            break;
        }
        if (rank + step >= ranks)
            continue;
        rpi_wave_check(&c->wave,
                       MPI_Recv(other, (int)n, MPI_DOUBLE, rank + step, 0, c->wave.m->comm, MPI_STATUS_IGNORE));
        for (int64_t e = 0; e < n; e++)
            sum[e] += other[e];
    }
    rpi_wave_check(&c->wave, MPI_Bcast(sum, (int)n, MPI_DOUBLE, 0, c->wave.m->comm));
}

/* Write n elements to an array with any strides. */
static void store(const rp_array *to, const double *from, int64_t n)
{
    for (int64_t e = 0; e < n; e++) {
        int64_t rest = e, at = 0;
        for (int32_t x = to->ndim - 1; x >= 0; x--) {
            at += rest % to->shape[x] * to->stride[x];
            rest /= to->shape[x];
        }
        rp_convert((char *)to->data + at * (int64_t)rp_dtype_size(to->dtype), to->dtype, &from[e], RP_F64, 1);
    }
}

/* Add up the gradients of the arrays of terms, and write them. */
static void finish_terms(call *c)
{
    for (int32_t n = 0; n < c->wave.m->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (c->sum[n][x] != NULL) {
                const rp_array *a = &c->wave.grads->term[n][x];
                add_sums(c, c->sum[n][x], c->part[n][x], rpi_elements(a));
                store(a, c->sum[n][x], rpi_elements(a));
            }
}

/* ------------------------------------------------------------------------------------------------ preparing */

/* Return true if the gradient of a sink is wanted. */
static bool wants_sink(const call *c)
{
    for (int32_t n = 0; n < c->wave.m->desc.n_terms; n++)
        if (c->wave.m->terms[n].kind == RP_TERM_SINK && c->wave.grads->term[n][0].data != NULL)
            return true;
    return false;
}

/* Return true if gradients of arrays of terms are so large, such as that of a dense bias, that adding them up after
 * each meeting takes longer than what stripes gain. */
static bool wants_large_terms(const call *c)
{
    const rp_desc *d = &c->wave.m->desc;
    const double pairs = (double)(d->batch * d->heads) * (double)d->len_q * (double)d->len_k,
                 ranks = c->wave.m->exchange.ranks;
    double elements = 0;
    for (int32_t n = 0; n < d->n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (c->wave.grads->term[n][x].data != NULL && rp_term_array(c->wave.m->terms[n].kind, x) != NULL)
                elements += (double)rpi_elements(&c->wave.grads->term[n][x]);
    return elements * 1000 * ranks * ranks > pairs;
}

/* Check the arrays whose rows are sent. rp_backward checks the others. */
static rp_status check_arrays(const call *c)
{
    const rp_desc *d = &c->wave.m->desc;
    const rp_tensors *t = c->wave.local;
    const rp_grads *g = c->wave.grads;
    const int64_t rows = rpi_own_length(c->wave.m, d->len_q), keys = rpi_own_length(c->wave.m, d->len_k);
    const struct {
        const rp_array *a;
        const char *name;
        int64_t heads, n, width;
        rp_dtype type;
        bool optional;
    } arrays[] = {{&t->q, "q", d->heads, rows, d->dim_k, d->dtype, false},
                  {&t->k, "k", d->kv_heads, keys, d->dim_k, d->dtype, false},
                  {&t->v, "v", d->kv_heads, keys, d->dim_v, d->dtype, false},
                  {&t->out, "out", d->heads, rows, d->dim_v, d->dtype, false},
                  {&t->lse, "lse", d->heads, rows, 0, RP_BOOL, false},
                  {&g->dout, "dout", d->heads, rows, d->dim_v, RP_BOOL, false},
                  {&g->dlse, "dlse", d->heads, rows, 0, RP_BOOL, true},
                  {&g->dq, "dq", d->heads, rows, d->dim_k, RP_BOOL, true},
                  {&g->dk, "dk", d->kv_heads, keys, d->dim_k, RP_BOOL, true},
                  {&g->dv, "dv", d->kv_heads, keys, d->dim_v, RP_BOOL, true}};
    for (size_t n = 0; n < sizeof arrays / sizeof *arrays; n++) {
        const int64_t shape[4] = {d->batch, arrays[n].heads, arrays[n].n, arrays[n].width};
        const rp_array *a = arrays[n].a;
        const int32_t ndim = arrays[n].width > 0 ? 4 : 3;
        const rp_status status = rpi_check_array(a, arrays[n].name, ndim, shape, arrays[n].type, arrays[n].optional);
        if (status == RP_OK && a->data != NULL && ndim == 4 && a != &t->k && a->shape[3] > 1 && a->stride[3] != 1)
            return rpi_mpi_fail(RP_E_STRIDE, "%s: the stride of the last axis is %lld; it must be 1", arrays[n].name,
                                (long long)a->stride[3]);
        if (status != RP_OK)
            return status;
    }
    return RP_OK;
}

/* Order meetings by step, then by stripe. */
static int compare_meetings(const void *a, const void *b)
{
    const rpi_meeting *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? 1 : -1;
    return (x->stripe > y->stripe) - (x->stripe < y->stripe);
}

/* List the meetings of this process. Return false if out of memory. */
static bool make_meetings(call *c)
{
    const rpi_wave *w = &c->wave;
    const rp_desc *d = &w->m->desc;
    const rp_dtype real = d->dtype == RP_F64 ? RP_F64 : RP_F32;
    int64_t before = 0; /* stripes that have keys */
    c->meeting = calloc((size_t)(w->n_own * w->blocks) + 1, sizeof *c->meeting);
    for (int64_t s = 0, n = 0; n < w->n_own && c->meeting != NULL; s++) {
        rpi_own_stripe *k = &w->own[n];
        const int64_t keys = rpi_length(w->stripe[s].keys),
                      shape[4] = {d->batch, d->heads, keys, rp_plan_dkv_width(w->m->plan)};
        before += keys > 0;
        if (k->stripe != s)
            continue;
        n++;
        if (w->stripe[s].worker != w->m->exchange.rank)
            continue;
        for (int64_t r = 0; r < w->blocks; r++)
            if (rpi_wave_visits(w, r, s))
                c->meeting[c->meetings++] = (rpi_meeting){.block = r, .stripe = s, .step = r + before};
        k->sums = rp_array_of(NULL, real, 4, shape);
        k->sums.data = malloc((size_t)rpi_elements(&k->sums) * rp_dtype_size(real) + 1);
        if (k->sums.data == NULL)
            return false;
    }
    if (c->meeting != NULL)
        qsort(c->meeting, (size_t)c->meetings, sizeof *c->meeting, compare_meetings);
    return c->meeting != NULL;
}

/* Allocate the sums of the gradients of terms. Return false if out of memory. */
static bool make_sums(call *c)
{
    bool there = true;
    for (int32_t n = 0; n < c->wave.m->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++) {
            const rp_array *a = &c->wave.grads->term[n][x];
            if (a->data == NULL || rp_term_array(c->wave.m->terms[n].kind, x) == NULL)
                continue;
            c->sum[n][x] = calloc((size_t)rpi_elements(a) + 1, sizeof(double));
            c->part[n][x] = calloc((size_t)rpi_elements(a) + 1, sizeof(double));
            there = there && c->sum[n][x] != NULL && c->part[n][x] != NULL;
        }
    return there;
}

static rp_status prepare(call *c)
{
    const rp_desc *d = &c->wave.m->desc;
    const rp_tensors *t = c->wave.local;
    const rp_grads *g = c->wave.grads;
    if (t == NULL || t->size != sizeof *t || g == NULL ||
        (g->size != sizeof *g && g->size != offsetof(rp_grads, dsoftcap) && g->size != offsetof(rp_grads, dweights)))
        return rpi_mpi_fail(RP_E_ARG, "tensors or grads are NULL or have another size; start from rp_tensors_init and "
                                      "rp_grads_init");
    if (d->len_k == 0)
        return rpi_mpi_fail(RP_E_UNSUPPORTED, "desc.len_k is 0; rp_mpi_backward needs a key");
    if (t->row_from != 0 || t->row_to != 0 || t->key_from != 0 || t->key_to != 0 || g->dq_in.data || g->dq_out.data ||
        g->dkv_in.data || g->dkv_out.data || t->pages.k != NULL)
        return rpi_mpi_fail(RP_E_UNSUPPORTED, "ranges, sums or pages were given, but rp_mpi_backward does not support "
                                              "them; omit them");
    if (g->size >= offsetof(rp_grads, dsoftcap) &&
        (g->dweights.data || g->dprofile.data || g->dkey_mass.data || g->dentropy.data))
        return rpi_mpi_fail(RP_E_UNSUPPORTED,
                            "dweights, dprofile, dkey_mass or dentropy was given, but rp_mpi_backward does not support "
                            "them; omit them, or use one process");
    if (g->size == sizeof *g && (g->dsoftcap.data || g->dsoftcap_after.data))
        return rpi_mpi_fail(RP_E_UNSUPPORTED,
                            "dsoftcap or dsoftcap_after was given, but rp_mpi_backward does not support them; omit "
                            "them, or use one process");
    const rpi_field fields[RPI_FIELDS] = {[RPI_Q] = {&t->q, d->dtype, d->dim_k},
                                          [RPI_OUT] = {&t->out, d->dtype, d->dim_v},
                                          [RPI_DOUT] = {&g->dout, g->dout.dtype, d->dim_v},
                                          [RPI_LSE] = {&t->lse, t->lse.dtype, 1},
                                          [RPI_DLSE] = {&g->dlse, g->dlse.dtype, g->dlse.data != NULL},
                                          [RPI_DQ] = {NULL, d->dtype == RP_F64 ? RP_F64 : RP_F32,
                                                      g->dq.data != NULL ? rp_plan_dq_width(c->wave.m->plan) : 0}};
    memcpy(c->wave.field, fields, sizeof fields);
    c->wave.from_first_key = wants_sink(c);
    c->wave.whole_keys = wants_large_terms(c);
    rp_status status = check_arrays(c);
    if (status == RP_OK) {
        status = rp_prepare(&c->wave.m->prepared, c->wave.m->plan, t);
        status = status == RP_OK ? rpi_wave_init(&c->wave) : rpi_mpi_fail(status, "%s", rp_last_error());
    }
    if (status == RP_OK)
        status = rpi_find_own_stripes(&c->wave);
    if (status == RP_OK && (!make_meetings(c) || !make_sums(c)))
        status =
            rpi_mpi_fail(RP_E_NOMEM, "out of memory for sums of gradients; use more processes or shorter sequences");
    return status;
}

static void free_call(call *c)
{
    for (int64_t n = 0; n < c->wave.n_own; n++)
        free(c->wave.own[n].sums.data);
    rp_prepared_destroy(c->wave.m->prepared);
    c->wave.m->prepared = NULL;
    rpi_free_own_stripes(&c->wave);
    rpi_wave_free(&c->wave);
    for (int32_t n = 0; n < RP_MAX_TERMS; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++) {
            free(c->sum[n][x]);
            free(c->part[n][x]);
        }
    free(c->meeting);
    free(c);
}

rp_status rp_mpi_backward(rp_mpi_plan *m, const rp_tensors *local, const rp_grads *grads)
{
    if (m == NULL)
        return rpi_mpi_fail(RP_E_ARG, "plan is NULL; make one with rp_mpi_plan_create");
    call *c = calloc(1, sizeof *c);
    if (c != NULL)
        c->wave = (rpi_wave){.m = m, .local = local, .grads = grads};
    int failed = 0;
    rp_status status = c != NULL ? prepare(c) : rpi_mpi_fail(RP_E_NOMEM, "out of memory for rp_mpi_backward");
    status = rpi_agree_on_gradients(m, local, grads, status);
    m->sent_bytes = 0;
    if (status == RP_OK) {
        run(c);
        status = c->wave.error == RP_E_MPI ? RP_E_MPI : rpi_agree_on_status(m, c->wave.error, &failed);
    }
    if (status == RP_OK) {
        finish_terms(c);
        status = c->wave.error;
    }
    if (c != NULL)
        free_call(c);
    return status;
}
