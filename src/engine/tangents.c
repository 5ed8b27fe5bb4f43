/* engine/tangents.c -- a call that computes tangents of out and lse in one pass, like a forward call: three calls with
 * the same tasks, for the arrays, for the tangents of q, k and v, and for the tangents of the terms' arrays
 * (kernels/tangent_tile.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <stdlib.h>
#include <string.h>

/* Panels of keys that one task packs. */
#define PANELS_PER_TASK 8

typedef struct tangents {
    rp_plan plan;  /* with the instruction set that computes tangents */
    rpi_args args; /* the arrays of the call, for this plan */
    rpi_forward f;
    rpi_limits limits;
    rpi_tangent_calls calls;
} tangents;

static bool has_tangents(const rpi_tangents *given, int32_t term)
{
    bool some = false;
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        some |= given->term[term][x].data != NULL;
    return some;
}

static bool adds_vectors(const rpi_scheme *s)
{
    return s->form == RPI_VEC || s->form == RPI_VALVEC;
}

/* Return true if the biases of a term are linear in its arrays and computed row by row. Their tangents are then biases
 * of the tangents. */
static bool linear_rows(const rpi_scheme *s)
{
    return s->form == RPI_TILE && s->row && !s->tangent_grad;
}

/* Replace the learned arrays of a term by their tangents. Those without one have the tangent 0. */
static void turn_arrays(rpi_args *args, const rpi_tangents *given, int32_t term)
{
    static double zero = 0;
    const rpi_scheme *s = args->plan->scheme[term];
    for (int x = 0; x < RP_MAX_ARRAYS && s->array[x].name; x++) {
        rpi_view *v = &args->term[term][x];
        if (given->term[term][x].data)
            *v = given->term[term][x];
        else if (v->data && s->array[x].use == RP_USE_LEARNED) {
            v->data = &zero;
            v->dtype = RP_F64;
            memset(v->stride, 0, sizeof v->stride);
        }
    }
}

/* Remove the sources whose terms have no tangents: theirs are 0. */
static void remove_constant(rpi_sources *l, const rpi_args *args)
{
    const uint64_t strip = rpi_strip_terms(args);
    int32_t kept = 0;
    for (int32_t n = 0; n < l->n; n++) {
        const int32_t term = l->source[n].term;
        bool some = term >= 0 && has_tangents(args->along, term);
        for (int32_t m = 0; m < args->desc.n_terms; m++)
            some |= term < 0 && (strip >> m & 1) && has_tangents(args->along, m);
        if (l->source[n].kind == RPI_ROWS)
            l->source[n].rows.by_row = l->source[n].rows.by_row && linear_rows(l->source[n].scheme);
        if (some)
            l->source[kept++] = l->source[n];
    }
    l->n = kept;
}

static const rpi_source *value_vectors(const rpi_source *source, int32_t n)
{
    return n && source[n - 1].kind == RPI_VALUES ? &source[n - 1] : NULL;
}

/* List the sources whose vectors are multiplied with tangents of queries, keys or weights. */
static void choose_vectors(rpi_tangent_calls *x)
{
    const rpi_tangents *given = x->given;
    for (int32_t n = 0; n < x->call->n_sources; n++) {
        const rpi_source *s = &x->call->source[n];
        const rpi_vectors *v = rpi_vectors_of(s);
        const bool row = v && (given->q.data || (v->product->query && has_tangents(given, s->term)));
        if (s->kind == RPI_VALUES ? x->jvp.scores : v && v->product->key_side ? given->k.data != NULL : row)
            x->source_of[x->vectors.n++] = n;
    }
}

/* Copy these sources from those of the call, except for the products of COLUMN sources. */
static void copy_vectors(rpi_tangent_calls *x)
{
    for (int32_t n = 0; n < x->vectors.n; n++) {
        rpi_source *to = &x->vectors.source[n];
        void *const product = to->kind == RPI_COLUMN ? to->column.product : NULL;
        *to = x->call->source[x->source_of[n]];
        if (to->kind == RPI_COLUMN)
            to->column.product = product;
    }
}

/* Let a call have the sources of a list. */
static void set_sources(rpi_call *c, const rpi_sources *l)
{
    c->source = l->source;
    c->n_sources = l->n;
    c->value_vectors = value_vectors(l->source, l->n);
}

/* Set the terms' arrays of all calls to those of the call or their tangents, of batch entry b if there is a tangent for
 * each. */
static void turn_terms(rpi_tangent_calls *x, int64_t b)
{
    const rpi_args *args = x->call->args;
    rpi_args *const turned[3] = {&x->inputs, &x->arrays, &x->arrays_fill};
    for (int32_t n = 0; n < args->desc.n_terms; n++) {
        const rpi_scheme *s = args->plan->scheme[n];
        for (int m = 0; m < RP_MAX_ARRAYS; m++)
            x->one.term[n][m] = rpi_sample(&x->given->term[n][m], b);
        const bool some = has_tangents(x->given, n);
        const bool turns[3] = {s->form == RPI_VEC, some && linear_rows(s), some && (linear_rows(s) || adds_vectors(s))};
        for (int m = 0; m < 3; m++) {
            memcpy(turned[m]->term[n], args->term[n], sizeof args->term[n]);
            if (turns[m])
                turn_arrays(turned[m], &x->one, n);
        }
    }
}

void rpi_tangents_begin(rpi_tangent_calls *x, rpi_call *c, const rpi_tangents *given)
{
    const rp_plan *plan = c->plan;
    x->call = c;
    x->filled = false;
    x->vectors.n = 0;
    x->given = given;
    x->one = *given;
    x->inputs = x->columns = x->arrays = *c->args;
    x->inputs.q = given->q;
    x->inputs.v = given->v;
    x->inputs.k = x->columns.k = given->k;
    x->arrays.along = &x->one;
    x->arrays_fill = x->arrays;
    turn_terms(x, 0);
    rpi_limits_of(&x->along_limits, &x->arrays_fill, NULL);
    rpi_sources_describe(&x->along, plan, &x->along_limits);
    remove_constant(&x->along, &x->arrays);
    x->jvp = (rpi_jvp){.given = given, .tangents = &x->one, .inputs = *c, .arrays = *c};
    x->jvp.scores = given->q.data || given->k.data ||
                    x->along.n > (value_vectors(x->along.source, x->along.n) ? 1 : 0) ||
                    (plan->sink >= 0 && has_tangents(given, plan->sink)) || given->softcap[RPI_BEFORE].data ||
                    given->softcap[RPI_AFTER].data;
    for (int32_t n = 0; n < plan->desc.n_terms; n++) /* also vectors that are added to queries */
        x->jvp.scores |= plan->scheme[n]->form == RPI_VEC && has_tangents(given, n);
    choose_vectors(x);
    copy_vectors(x);
    x->jvp.inputs.args = &x->inputs;
    set_sources(&x->jvp.inputs, &x->vectors);
    x->jvp.arrays.args = &x->arrays;
    x->jvp.arrays.limits = &x->along_limits;
    set_sources(&x->jvp.arrays, &x->along);
    c->jvp = &x->jvp;
}

int64_t rpi_tangent_entries(const rpi_tangent_calls *x)
{
    const rp_desc *d = &x->arrays.desc;
    bool samples = false;
    for (int32_t n = 0; n < d->n_terms; n++)
        for (int m = 0; m < RP_MAX_ARRAYS; m++)
            samples |= x->given->term[n][m].per_sample;
    return samples ? 1 : d->batch;
}

/* If a vector that a term adds to the values is not finite, it is packed as 0, and any row may use it. */
static void mark_nonfinite(const rpi_tangent_calls *x)
{
    const rp_desc *d = &x->arrays.desc;
    const rpi_source *const vectors[2] = {x->call->value_vectors, x->jvp.arrays.value_vectors};
    for (int n = 0; n < 2; n++)
        if (x->jvp.plain && vectors[n] && vectors[n]->values.nonfinite)
            for (int64_t r = 0; r < d->batch * d->heads * d->len_q; r++)
                x->jvp.plain[r] |= RPI_PLAIN_OUT;
}

void rpi_tangents_fill(rpi_tangent_calls *x, int64_t b, rp_pool *pool)
{
    const rp_desc *d = &x->arrays.desc;
    if (x->filled)
        x->along = x->placed;
    x->placed = x->along;
    x->filled = true;
    copy_vectors(x);
    turn_terms(x, b);
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *s = x->call->plan->scheme[n];
        if (linear_rows(s) && s->prepare && has_tangents(x->given, n))
            s->prepare(d, &d->terms[n], x->arrays.term[n], x->arrays.prepared[n]);
    }
    rpi_sources_fill(&x->along, &x->arrays_fill, &x->along_limits, pool);
    mark_nonfinite(x);
}

void rpi_tangents_place(rpi_tangent_calls *x, rpi_arena *a, int64_t heads, bool backward)
{
    const rp_plan *plan = x->call->plan;
    const rp_desc *d = &x->arrays.desc;
    rpi_sources_place(&x->along, a, plan, &x->along_limits, heads, backward);
    for (int32_t n = 0; n < x->vectors.n; n++)
        if (x->vectors.source[n].kind == RPI_COLUMN)
            x->vectors.source[n].column.product = rpi_arena_take3(a, heads, x->call->pad_k, plan->ops->real, 1);
    for (int32_t n = 0; n < d->n_terms; n++)
        if (linear_rows(plan->scheme[n]) && plan->scheme[n]->prepare)
            x->arrays.prepared[n] =
                rpi_arena_take(a, plan->scheme[n]->prepare_size(d, &d->terms[n]), 1, sizeof(double));
}

void rpi_tangents_columns(rpi_tangent_calls *x, rp_pool *pool)
{
    rpi_call calls[3] = {*x->call, x->jvp.inputs, x->jvp.arrays};
    const rpi_args *const args[3] = {x->call->args, &x->columns, &x->arrays_fill};
    for (int n = 0; n < 3; n++) {
        calls[n].args = args[n];
        calls[n].g0 = x->call->g0;
        calls[n].groups = x->call->groups;
        rpi_columns_fill(&calls[n], pool);
    }
}

void rpi_use_ops(rp_plan *plan, rpi_args *args, const rpi_args *given, const rpi_ops *ops)
{
    *plan = *given->plan;
    plan->ops = ops;
    *args = *given;
    args->plan = plan;
    if (ops != given->plan->ops)
        args->ready = NULL; /* its tables are those of the other instruction set */
}

/* Lay out the memory of the calls; runs twice, as in forward.c. */
static void place(tangents *x)
{
    rpi_call *c = &x->f.call, *inputs = &x->calls.jvp.inputs, *arrays = &x->calls.jvp.arrays;
    const rp_plan *plan = c->plan;
    const rpi_ops *ops = plan->ops;
    rpi_arena *a = &x->f.memory;
    const int64_t heads = x->f.groups * (plan->desc.heads / plan->desc.kv_heads);
    rpi_call *const packs[2] = {c, inputs};
    for (int n = 0; n < 2; n++) {
        packs[n]->keys = rpi_arena_take3(a, x->f.groups, c->packed_k, ops->key_bytes(plan), 1);
        packs[n]->values = rpi_arena_take3(a, x->f.groups, c->packed_k, ops->value_bytes(plan), 1);
        packs[n]->large_k = rpi_arena_take(a, x->f.groups, c->packed_k / ops->nr, 1);
        packs[n]->large_v = rpi_arena_take(a, x->f.groups, c->packed_k, 1);
    }
    rpi_sources_place(&x->f.sources, a, plan, &x->limits, heads, false);
    rpi_tangents_place(&x->calls, a, heads, false);
    rpi_rope_tables_place(&c->rope, a, plan, &x->limits);
    inputs->rope = arrays->rope = c->rope;
    c->scratch = inputs->scratch = rpi_arena_take(a, x->f.threads, c->scratch_step, 1);
}

/* Describe the calls, without memory addresses, and add up the size of their memory. */
static void begin(tangents *x, const rpi_args *args, const rpi_ops *ops, const rpi_tangents *given, int32_t threads,
                  uint8_t *plain)
{
    rpi_call *c = &x->f.call;
    x->f.threads = threads;
    rpi_use_ops(&x->plan, &x->args, args, ops);
    rpi_limits_of(&x->limits, &x->args, NULL);
    x->limits.decode_queries = 0;
    rpi_call_begin(c, &x->f.sources, &x->plan, &x->limits, &x->args);
    c->starts = false;
    rpi_tangents_begin(&x->calls, c, given);
    x->calls.jvp.plain = plain;
    rpi_forward_split(&x->f);
    c->scratch_step = x->calls.jvp.inputs.scratch_step = ops->jvp_size(c);
    place(x);
}

/* Pack some panels of a kv head, and of its tangents. A value counts as not finite if its tangent is not. */
static void pack_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rpi_ops *ops = c->plan->ops;
    const int64_t panels = c->packed_k / ops->nr, tasks = (panels + PANELS_PER_TASK - 1) / PANELS_PER_TASK,
                  kv = n / tasks, first = n % tasks * PANELS_PER_TASK, past = rpi_min(first + PANELS_PER_TASK, panels);
    ops->pack(c, kv, first, past, worker);
    ops->pack(&c->jvp->inputs, kv, first, past, worker);
    for (int64_t j = kv * c->packed_k + first * ops->nr; j < kv * c->packed_k + past * ops->nr; j++)
        c->large_v[j] |= c->jvp->inputs.large_v[j];
}

/* Return the number of tasks of a head. */
static int64_t row_tasks(const rpi_call *c)
{
    return (c->args->desc.len_q + c->rows_per_task - 1) / c->rows_per_task;
}

static void rows_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const int64_t tasks = row_tasks(c), row0 = (tasks - 1 - n % tasks) * c->rows_per_task; /* later rows first */
    int64_t b, h;
    rpi_head_at(c, n / tasks, &b, &h);
    c->plan->ops->jvp(c, b, h, row0, rpi_min(row0 + c->rows_per_task, c->args->desc.len_q), worker);
    rpi_progress_step(c->progress);
}

/* Compute kv heads [kv0, kv1), counted over the batch. */
static void run_heads(tangents *x, int64_t kv0, int64_t kv1, rp_pool *pool)
{
    rpi_call *c = &x->f.call;
    const rp_desc *d = &c->args->desc;
    const atomic_bool *stop = &c->progress->stop;
    const int64_t panels = c->packed_k / c->plan->ops->nr;
    for (c->g0 = kv0; c->g0 < kv1 && !atomic_load(stop); c->g0 += x->f.groups) {
        c->groups = rpi_min(x->f.groups, kv1 - c->g0);
        x->calls.jvp.inputs.g0 = c->g0;
        rpi_pool_run(pool, c->groups * ((panels + PANELS_PER_TASK - 1) / PANELS_PER_TASK), pack_task, c);
        rpi_tangents_columns(&x->calls, pool);
        rpi_pool_run_until(pool, c->groups * (d->heads / d->kv_heads) * row_tasks(c), rows_task, c, stop);
    }
}

/* Compute all heads or, if some array has a tangent for each batch entry, one entry after the other. */
static void run(tangents *x, rp_pool *pool)
{
    const rp_desc *d = &x->args.desc;
    const int64_t entries = rpi_tangent_entries(&x->calls);
    rpi_call_fill(&x->f.call, &x->f.sources, pool);
    for (int64_t b = 0; b < d->batch; b += entries) {
        rpi_tangents_fill(&x->calls, b, pool);
        run_heads(x, b * d->kv_heads, (b + entries) * d->kv_heads, pool);
    }
}

/* Run a call without tangents of RoPE's frequencies. */
static rp_status jvp(const rpi_args *args, const rpi_ops *ops, const rpi_tangents *given, rp_pool *pool,
                     rpi_progress *progress, uint8_t *plain)
{
    tangents *x = rpi_arguments_alloc(sizeof *x);
    if (!x)
        return RP_E_NOMEM;
    memset(x, 0, sizeof *x);
    begin(x, args, ops, given, rp_pool_threads(pool), plain);
    x->f.call.progress = progress;
    progress->total += args->desc.batch * args->desc.heads * row_tasks(&x->f.call);
    rp_status status = rpi_arena_alloc(&x->f.memory, false, "the call");
    if (status == RP_OK) {
        place(x);
        run(x, pool);
        status = rpi_progress_status(progress);
    }
    rpi_arena_free(&x->f.memory);
    free(x);
    return status;
}

rp_status rpi_fast_jvp(const rpi_args *args, const rpi_ops *ops, const rpi_tangents *given, rp_pool *pool,
                       rpi_progress *progress, uint8_t *plain)
{
    rpi_turns_data *turns = NULL;
    if (!rpi_turns(args, given, NULL))
        return jvp(args, ops, given, pool, progress, plain);
    rp_status status = rpi_turns_begin(&turns, args, given, NULL, pool);
    if (status == RP_OK)
        status = jvp(args, ops, &turns->tangents, pool, progress, plain);
    rpi_turns_end(turns);
    return status;
}
