/* attend.c -- one call: lay out the work, make strips and packed arrays, hand blocks of rows to the pool.
 * SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* kv heads are packed in groups: as many as keep every thread busy, but no more memory than MOST_BYTES unless one head
 * needs it; and short heads by FEW_BYTES, so that threads meet seldom. */
#define MOST_BYTES       ((int64_t)32 << 20)
#define FEW_BYTES        ((int64_t)2 << 20)
#define TASKS_PER_THREAD 16
/* Entries of a strip, and panels of keys, that one task makes. */
#define PIECE  4096
#define PANELS 8
/* Partial sums of a summary, added in order: enough to share a kv head among threads. */
#define CHUNKS 8

/* Where everything lies in the work of a call. */
typedef struct layout {
    int64_t pad_k, pad_v, strip_len, strip_heads, groups, chunks, pad_rows_k, pad_rows_v;
    int64_t scratch_step;
    size_t keys, values, wild_k, wild_v, strips, turn_q, turn_k, vec_k, vec_v, wild_vec, scratch, partial; /* offsets */
    int64_t total;
    bool fits; /* in 63 bits */
} layout;

/* Append a * b * c elements of `size` bytes, aligned to 64; the return value is their offset. */
static size_t append(layout *l, int64_t a, int64_t b, int64_t c, int64_t size)
{
    const size_t at = (size_t)l->total;
    int64_t n = 0;
    l->fits = l->fits && rpi_mul(a, b, c, &n) && rpi_mul(n, size, 1, &n) && n < INT64_MAX - 64 - l->total;
    l->total += l->fits ? rpi_round_up(n, 64) : 0;
    return at;
}

/* Whether one strip serves every head. */
static bool strip_is_shared(const rp_plan *plan)
{
    for (int32_t n = 0; n < plan->desc.n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(plan->terms[n].kind);
        if (s->form == RPI_OFFSET && !s->same_heads)
            return false;
    }
    return true;
}

static void lay_out(layout *l, const rp_plan *plan, int32_t threads, bool summary)
{
    const rp_desc *d = &plan->desc;
    const rpi_ops *ops = plan->ops;
    const int64_t kv = d->batch * d->kv_heads, share = d->heads / d->kv_heads, f = (int64_t)sizeof(float);
    *l = (layout){.fits = true, .pad_k = rpi_round_up(d->len_k, ops->nr), .pad_v = rpi_round_up(d->dim_v, ops->vl)};
    int64_t bytes = MOST_BYTES; /* of one kv head */
    if (!rpi_mul(l->pad_k, d->dim_k + l->pad_v + 1, f, &bytes))
        l->fits = false;
    const int64_t blocks = rpi_max((d->len_q + ops->qb - 1) / ops->qb * share, 1);
    l->groups = rpi_max((TASKS_PER_THREAD * threads + blocks - 1) / blocks, FEW_BYTES / rpi_max(bytes, 1));
    l->groups = rpi_clamp(rpi_min(l->groups, MOST_BYTES / rpi_max(bytes, 1)), 1, rpi_max(kv, 1));
    l->keys = append(l, l->groups, l->pad_k, d->dim_k, f);
    l->values = append(l, l->groups, l->pad_k, l->pad_v, f);
    l->wild_k = append(l, l->groups, l->pad_k / ops->nr, 1, 1);
    l->wild_v = append(l, l->groups, l->pad_k, 1, 1);
    if (plan->n_offset) {
        l->strip_heads = strip_is_shared(plan) ? 1 : d->heads;
        l->strip_len = rpi_max(d->len_q - 1 + l->pad_k, 0);
        l->strips = append(l, l->strip_heads, l->strip_len, 1, f);
    }
    if (plan->rotate >= 0) {
        l->turn_q = append(l, d->len_q, plan->terms[plan->rotate].dim, 1, f);
        l->turn_k = append(l, d->len_k, plan->terms[plan->rotate].dim, 1, f);
    }
    if (plan->keyvec >= 0) {
        l->pad_rows_k = rpi_round_up(plan->rows_k, ops->nr);
        l->vec_k = append(l, d->heads, l->pad_rows_k, d->dim_k, f);
    }
    if (plan->valvec >= 0) {
        l->pad_rows_v = rpi_round_up(plan->rows_v, ops->nr);
        l->vec_v = append(l, d->heads, l->pad_rows_v, l->pad_v, f);
        l->wild_vec = append(l, d->heads, l->pad_rows_v, 1, 1);
    }
    l->scratch_step = rpi_round_up((int64_t)ops->scratch_size(plan), 64);
    l->scratch = append(l, threads, l->scratch_step, 1, 1);
    if (summary) {
        l->chunks = rpi_clamp((d->len_q + ops->qb - 1) / ops->qb, 1, rpi_max(CHUNKS / share, 1));
        l->partial = append(l, l->groups * share, l->chunks, d->len_q + 2 * d->len_k, (int64_t)sizeof(double));
    }
}

static rp_status does_not_fit(void)
{
    return rpi_fail(RP_E_OVERFLOW,
                    "the work of this call does not fit in 63 bits: fewer heads, shorter sequences or tables");
}

size_t rpi_fast_work_size(const rp_plan *plan, int32_t threads)
{
    layout l;
    lay_out(&l, plan, threads, true);
    if (!l.fits)
        does_not_fit();
    return l.fits ? (size_t)l.total : 0;
}

/* ---------------------------------------------------------------------------------------------- made once for a call */

/* Entry e of the strip of head h: the sum of the OFFSET terms at delta = e + strip_low, in double, rounded once. A finite
 * sum beyond the range of f32 stays finite: only -infinity masks, only what was not finite makes NaN. */
static void strip_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->plan->desc;
    const int64_t pieces = (c->strip_len + PIECE - 1) / PIECE, h = n / pieces;
    float *strip = c->strips + h * c->strip_step;
    (void)worker;
    for (int64_t e = n % pieces * PIECE; e < rpi_min((n % pieces + 1) * PIECE, c->strip_len); e++) {
        rpi_pair p = {.desc = d, .h = h, .delta = e + c->strip_low};
        double sum = 0;
        /* entries past the last key fill up its panel */
        for (int32_t m = 0; m < d->n_terms && p.delta <= d->len_k - 1 - d->q_offset; m++) {
            const rpi_scheme *scheme = rpi_scheme_of(d->terms[m].kind);
            p.term = &d->terms[m];
            p.array = c->args->term[m];
            if (scheme->form == RPI_OFFSET)
                sum = rpi_bias_sum(sum, scheme->pair(&p));
        }
        strip[e] = rpi_to_float(sum);
    }
}

/* Cosines and sines for 64 positions from a multiple of 64 on: those of the first position and of the step, multiplied in
 * double. A position has the same turn wherever a call starts. */
typedef struct turn_job {
    const rp_plan *plan;
    float *to;
    int64_t first, n; /* positions first … first+n-1 */
} turn_job;

static int64_t floor_64(int64_t position)
{
    return position - (position % 64 + 64) % 64;
}

static void turn_task(void *context, int64_t block, int32_t worker)
{
    const turn_job *j = context;
    const rp_term *t = &j->plan->terms[j->plan->rotate];
    const int64_t from = floor_64(j->first) + 64 * block, past = rpi_min(from + 64, j->first + j->n);
    (void)worker;
    for (int64_t c = 0; c < t->dim / 2; c++) {
        const double turn = rpi_scheme_of(t->kind)->frequency(&j->plan->desc, t, c), angle = (double)from * turn;
        const double cosine = cos(angle), sine = sin(angle), step_cosine = cos(turn), step_sine = sin(turn);
        double x = 1, y = 0; /* cosine and sine of (p - from) * turn: 63 products err by less than 63 * 2^-52 */
        for (int64_t p = from; p < past; p++) {
            const double z = x * step_cosine - y * step_sine;
            if (p >= j->first) {
                float *at = j->to + (p - j->first) * t->dim + 2 * c;
                at[0] = (float)(cosine * x - sine * y);
                at[1] = (float)(sine * x + cosine * y);
            }
            y = x * step_sine + y * step_cosine;
            x = z;
        }
    }
}

static void make_turns(const rp_plan *plan, rp_pool *pool, float *to, int64_t first, int64_t n)
{
    turn_job j = {.plan = plan, .to = to, .first = first, .n = n};
    rpi_pool_run(pool, n > 0 ? (first + n - 1 - floor_64(first)) / 64 + 1 : 0, turn_task, &j);
}

/* The vectors of KEYVEC for head h as panels of NR, transposed, like keys. */
static void vec_k_task(void *context, int64_t h, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->plan->desc;
    const int32_t nr = c->plan->ops->nr;
    rpi_pair p = {.desc = d, .term = &d->terms[c->plan->keyvec], .array = c->args->term[c->plan->keyvec], .h = h};
    float *to = c->vec_k + h * c->vec_k_step;
    (void)worker;
    for (int64_t n = 0; n < c->pad_rows_k; n++)
        for (int64_t x = 0; x < d->dim_k; x++) {
            p.delta = n - p.term->left;
            to[n / nr * nr * d->dim_k + x * nr + n % nr] =
                n < c->plan->rows_k ? (float)rpi_scheme_of(p.term->kind)->vec(&p, x) : 0.0f;
        }
}

/* The vectors of VALVEC for head h as columns of NR channels, like values; those that are not finite as 0. */
static void vec_v_task(void *context, int64_t h, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->plan->desc;
    const int32_t nr = c->plan->ops->nr;
    rpi_pair p = {.desc = d, .term = &d->terms[c->plan->valvec], .array = c->args->term[c->plan->valvec], .h = h};
    float *to = c->vec_v + h * c->vec_v_step;
    (void)worker;
    for (int64_t n = 0; n < c->pad_rows_v; n++) {
        bool finite = true;
        p.delta = n - p.term->left;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t x = 0; x < c->pad_v; x++) {
                const double v = n < c->plan->rows_v && x < d->dim_v ? rpi_scheme_of(p.term->kind)->vec(&p, x) : 0;
                const int64_t column = x / nr * nr, width = rpi_min(nr, c->pad_v - column);
                if (pass == 0)
                    finite = finite && isfinite((float)v);
                else
                    to[column * c->pad_rows_v + n * width + x - column] = finite ? (float)v : 0.0f;
            }
        c->wild_vec[h * c->wild_vec_step + n] = !finite;
    }
}

/* ---------------------------------------------------------------------------------------------- a group of kv heads */

static void pack_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const int64_t panels = c->pad_k / c->plan->ops->nr, pieces = (panels + PANELS - 1) / PANELS, piece = n % pieces;
    (void)worker;
    c->plan->ops->pack(c, n / pieces, piece * PANELS, rpi_min((piece + 1) * PANELS, panels));
}

/* Batch entry and query head of head number `head` of the group. */
static void head_at(const rpi_call *c, int64_t head, int64_t *b, int64_t *h)
{
    const rp_desc *d = &c->plan->desc;
    const int64_t share = d->heads / d->kv_heads, kv = c->g0 + head / share;
    *b = kv / d->kv_heads;
    *h = kv % d->kv_heads * share + head % share;
}

static void attend_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->plan->desc;
    const int64_t rows = c->chunk_rows, pieces = (d->len_q + rows - 1) / rows;
    /* later rows first: under a causal mask they are the long ones */
    const int64_t head = n / pieces, piece = pieces - 1 - n % pieces;
    int64_t b, h;
    double *partial = NULL;
    head_at(c, head, &b, &h);
    if (c->partial) {
        const int64_t sums = d->len_q + 2 * d->len_k - 1;
        partial = c->partial + (head * c->chunks + piece) * sums;
        memset(partial, 0, (size_t)sums * sizeof *partial);
    }
    c->plan->ops->attend(c, b, h, piece * rows, rpi_min((piece + 1) * rows, d->len_q), partial, worker);
    rpi_progress_step(c->progress, worker);
}

/* Add up the partial sums of one head in order, and write its summaries. */
static void summary_task(void *context, int64_t head, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->plan->desc;
    const int64_t offsets = d->len_q + d->len_k - 1, sums = offsets + d->len_k;
    const int64_t pieces = (d->len_q + c->chunk_rows - 1) / c->chunk_rows;
    const rpi_view *profile = &c->args->profile, *key_mass = &c->args->key_mass;
    int64_t b, h;
    (void)worker;
    head_at(c, head, &b, &h);
    for (int64_t n = 0; n < sums; n++) {
        double sum = 0;
        for (int64_t piece = 0; piece < pieces; piece++)
            sum += c->partial[(head * c->chunks + piece) * sums + n];
        if (n < offsets && profile->data) {
            const int64_t pairs = rpi_min(d->len_q - 1, offsets - 1 - n) - rpi_max(0, d->len_q - 1 - n) + 1;
            rpi_put(profile->data, profile->dtype, rpi_index(profile, b, h, n, 0), pairs > 0 ? sum / (double)pairs : 0);
        } else if (n >= offsets && key_mass->data) {
            rpi_put(key_mass->data, key_mass->dtype, rpi_index(key_mass, b, h, n - offsets, 0), sum);
        }
    }
}

/* Query rows of a task: a block; with summaries, one of the head's chunks, whole blocks each. */
static int64_t rows_of_task(const rp_plan *plan, const layout *l)
{
    const int64_t qb = plan->ops->qb;
    return l->chunks ? rpi_round_up((rpi_max(plan->desc.len_q, 1) + l->chunks - 1) / l->chunks, qb) : qb;
}

static int64_t count_tasks(const rp_plan *plan, const layout *l)
{
    const int64_t rows = rows_of_task(plan, l);
    return plan->desc.batch * plan->desc.heads * ((plan->desc.len_q + rows - 1) / rows);
}

/* Nothing in here fails: the caller has the memory already. */
static void attend(const rp_plan *plan, const rpi_args *args, rp_pool *pool, rpi_progress *progress, const layout *l,
                   char *work)
{
    const rp_desc *d = &plan->desc;
    const rpi_ops *ops = plan->ops;
    const int64_t kv = d->batch * d->kv_heads, share = d->heads / d->kv_heads;
    rpi_call c = {
        .plan = plan,
        .args = args,
        .progress = progress,
        .pad_k = l->pad_k,
        .pad_v = l->pad_v,
        .keys = (float *)(void *)(work + l->keys),
        .values = (float *)(void *)(work + l->values),
        .wild_k = (uint8_t *)work + l->wild_k,
        .wild_v = (uint8_t *)work + l->wild_v,
        .strips = (float *)(void *)(work + l->strips),
        .strip_len = l->strip_len,
        .strip_low = -(d->len_q - 1 + d->q_offset),
        .strip_step = l->strip_heads > 1 ? l->strip_len : 0,
        .turn_q = (float *)(void *)(work + l->turn_q),
        .turn_k = (float *)(void *)(work + l->turn_k),
        .vec_k = (float *)(void *)(work + l->vec_k),
        .vec_v = (float *)(void *)(work + l->vec_v),
        .wild_vec = (uint8_t *)work + l->wild_vec,
        .pad_rows_k = l->pad_rows_k,
        .pad_rows_v = l->pad_rows_v,
        .scratch = work + l->scratch,
        .scratch_step = (size_t)l->scratch_step,
        .partial = l->chunks ? (double *)(void *)(work + l->partial) : NULL,
        .chunks = l->chunks,
    };
    if (plan->keyvec >= 0 && args->term[plan->keyvec][0].stride[0]) /* else the heads share their vectors */
        c.vec_k_step = l->pad_rows_k * d->dim_k;
    if (plan->valvec >= 0 && args->term[plan->valvec][0].stride[0]) {
        c.vec_v_step = l->pad_rows_v * l->pad_v;
        c.wild_vec_step = l->pad_rows_v;
    }
    c.chunk_rows = rows_of_task(plan, l);
    if (plan->n_offset)
        rpi_pool_run(pool, l->strip_heads * ((l->strip_len + PIECE - 1) / PIECE), strip_task, &c);
    if (plan->rotate >= 0) {
        make_turns(plan, pool, c.turn_q, d->q_offset, d->len_q);
        make_turns(plan, pool, c.turn_k, 0, d->len_k);
    }
    if (plan->keyvec >= 0) /* vectors shared by the heads are packed once */
        rpi_pool_run(pool, c.vec_k_step ? d->heads : 1, vec_k_task, &c);
    if (plan->valvec >= 0)
        rpi_pool_run(pool, c.vec_v_step ? d->heads : 1, vec_v_task, &c);
    if (plan->valvec < 0 || !memchr(c.wild_vec, 1, (size_t)((c.vec_v_step ? d->heads : 1) * l->pad_rows_v)))
        c.wild_vec = NULL;
    for (c.g0 = 0; c.g0 < kv; c.g0 += l->groups) {
        c.groups = rpi_min(l->groups, kv - c.g0);
        rpi_pool_run(pool, c.groups * ((l->pad_k / ops->nr + PANELS - 1) / PANELS), pack_task, &c);
        rpi_pool_run(pool, c.groups * share * ((d->len_q + c.chunk_rows - 1) / c.chunk_rows), attend_task, &c);
        if (c.partial)
            rpi_pool_run(pool, c.groups * share, summary_task, &c);
    }
}

rp_status rp_attend(const rp_plan *plan, const rp_tensors *t, void *work)
{
    rpi_args args;
    rp_status status = rpi_args_check(&args, plan, t);
    if (status == RP_OK)
        status = rpi_args_overlap(plan, t);
    if (status != RP_OK)
        return status;
    const bool some =
        t->out.data || t->lse.data || t->weights.data || t->profile.data || t->key_mass.data || t->entropy.data;
    if (!some && plan->desc.batch && plan->desc.len_q)
        return rpi_fail(RP_E_ARG, "tensors has no output: set out, or another of its outputs");
    if (t->out.data && !t->v.data && plan->desc.batch && plan->desc.len_k)
        return rpi_fail(RP_E_ARG, "v is absent (data is NULL): out needs it");
    if ((uintptr_t)work % 64 != 0)
        return rpi_fail(RP_E_ARG, "work: the address is not a multiple of 64");
    rp_pool *pool = rpi_pool_or_default(t->pool);
    rpi_progress progress = {.report = t->progress, .context = t->progress_context};
    if (!plan->ops)
        return rpi_ref_attend(plan, &args, pool, &progress);
    /* Memory comes first: a call that cannot be finished writes nothing. */
    char *own = NULL;
    layout l;
    lay_out(&l, plan, rp_pool_threads(pool), args.profile.data || args.key_mass.data || args.entropy.data);
    if (!l.fits)
        return does_not_fit();
    progress.total = count_tasks(plan, &l);
    if (!work) {
        own = malloc((size_t)l.total + 64);
        if (!own)
            return rpi_fail(RP_E_NOMEM, "the call needs %lld bytes of work", (long long)l.total);
        work = own + (64 - (uintptr_t)own % 64) % 64;
    }
    if (args.weights.data) {
        const rpi_view none = {0};
        rpi_args only = args;
        only.out = only.lse = only.profile = only.key_mass = only.entropy = none;
        status = rpi_ref_attend(plan, &only, pool, &progress);
    }
    if (status == RP_OK && plan->desc.batch > 0)
        attend(plan, &args, pool, &progress, &l, work);
    free(own);
    return status;
}
