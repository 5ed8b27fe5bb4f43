/* ref.c -- the oracle: every definition in double, in plain loops. It judges the kernels and uses nothing of theirs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One query row under study. */
typedef struct row {
    const rp_plan *plan;
    const rpi_args *args;
    int64_t b, h, g, i, lo, hi; /* keys [lo, hi) may attend, as far as intervals go */
    double *q;                  /* [Dk] turned */
    double *keys;               /* [Lk][Dk] turned keys of batch entry keys_b and kv head keys_g */
    int64_t keys_b, keys_g;
    double *score, *weight; /* [Lk] */
    uint8_t *keep;          /* [Lk] */
    double *out;            /* [Dv] */
    double lse;
    /* where a caller wants to look: NULL or [Lk] */
    double *raw, *scaled, *bias;
    /* for the error bound: sums of absolute values instead of sums */
    bool absolute;
} row;

static double element(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return rpi_value(v->data, v->dtype, rpi_index(v, a, b, c, d));
}

static rpi_pair pair_at(const row *r, int32_t term, int64_t j)
{
    const rp_desc *d = &r->plan->desc;
    return (rpi_pair){.desc = d,
                      .term = &r->plan->terms[term],
                      .array = r->args->term[term],
                      .b = r->b,
                      .h = r->h,
                      .i = r->i,
                      .j = j,
                      .delta = j - (r->i + d->q_offset)};
}

/* Turn the channels of x by position p. With absolute set, x becomes a bound on what each turned channel is made of. */
static void turn(const row *r, double *x, int64_t p)
{
    if (r->plan->rotate < 0)
        return;
    const rp_term *t = &r->plan->terms[r->plan->rotate];
    for (int64_t c = 0; c < t->dim / 2; c++) {
        const double angle = (double)p * rpi_scheme_of(t->kind)->frequency(&r->plan->desc, t, c);
        int64_t u, v;
        rpi_rotate_channels(t, c, &u, &v);
        const double a = x[u], b = x[v], cosine = cos(angle), sine = sin(angle);
        x[u] = r->absolute ? fabs(a) + fabs(b) : a * cosine - b * sine;
        x[v] = r->absolute ? fabs(a) + fabs(b) : a * sine + b * cosine;
    }
}

static double cap(const rp_desc *d, double x)
{
    return d->softcap > 0 ? d->softcap * tanh(x / d->softcap) : x;
}

/* <q, k> plain, or of absolute values. */
static double dot(const row *r, const double *q, const double *k)
{
    double sum = 0;
    for (int64_t c = 0; c < r->plan->desc.dim_k; c++)
        sum += r->absolute ? fabs(q[c] * k[c]) : q[c] * k[c];
    return sum;
}

static double keyvec(const row *r, int64_t j)
{
    const rp_desc *d = &r->plan->desc;
    double sum = 0;
    if (r->plan->keyvec < 0)
        return 0;
    rpi_pair p = pair_at(r, r->plan->keyvec, j);
    const rpi_scheme *s = rpi_scheme_of(p.term->kind);
    for (int64_t c = 0; c < d->dim_k; c++) {
        const double x = element(&r->args->q, r->b, r->h, r->i, c) * s->vec(&p, c);
        sum += r->absolute ? fabs(x) : x;
    }
    return (r->absolute ? fabs(d->scale) : d->scale) * sum;
}

static double biases(const row *r, int64_t j)
{
    double sum = 0;
    for (int32_t n = 0; n < r->plan->desc.n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(r->plan->terms[n].kind);
        if (s->form != RPI_OFFSET && s->form != RPI_TILE)
            continue;
        rpi_pair p = pair_at(r, n, j);
        const double x = s->pair(&p);
        sum = rpi_bias_sum(sum, r->absolute && x != -INFINITY ? fabs(x) : x);
    }
    return sum;
}

/* Which keys the row may see. */
static void masks(row *r)
{
    const rp_desc *d = &r->plan->desc;
    r->lo = 0;
    r->hi = d->len_k;
    memset(r->keep, 1, (size_t)d->len_k);
    for (int32_t n = 0; n < d->n_masks; n++) {
        const rpi_masker *m = rpi_masker_of(d->masks[n].kind);
        if (m->interval)
            m->interval(d, &d->masks[n], &r->args->mask[n], r->b, r->i, &r->lo, &r->hi);
        if (m->keep)
            m->keep(&r->args->mask[n], r->b, r->h, r->i, 0, d->len_k, r->keep);
    }
    for (int64_t j = 0; j < d->len_k; j++)
        if (j < r->lo || j >= r->hi)
            r->keep[j] = 0;
}

/* score[j] for every key; -infinity where masked. */
static void scores(row *r)
{
    const rp_desc *d = &r->plan->desc;
    masks(r);
    for (int64_t c = 0; c < d->dim_k; c++)
        r->q[c] = element(&r->args->q, r->b, r->h, r->i, c);
    turn(r, r->q, r->i + d->q_offset);
    for (int64_t j = 0; j < d->len_k && (r->keys_b != r->b || r->keys_g != r->g); j++) {
        for (int64_t c = 0; c < d->dim_k; c++)
            r->keys[j * d->dim_k + c] = element(&r->args->k, r->b, r->g, j, c);
        turn(r, r->keys + j * d->dim_k, j);
    }
    r->keys_b = r->b;
    r->keys_g = r->g;
    for (int64_t j = 0; j < d->len_k; j++) {
        if (!r->keep[j] && !r->raw) { /* a trace shows masked pairs too */
            r->score[j] = -INFINITY;
            continue;
        }
        const double raw = dot(r, r->q, r->keys + j * d->dim_k);
        const double scaled = (r->absolute ? fabs(d->scale) : d->scale) * raw + keyvec(r, j);
        const double bias = biases(r, j);
        const double plain = d->cap_after ? cap(d, scaled + bias) : cap(d, scaled) + bias;
        if (r->raw)
            r->raw[j] = raw;
        if (r->scaled)
            r->scaled[j] = scaled;
        if (r->bias)
            r->bias[j] = bias;
        r->score[j] = !r->keep[j] || bias == -INFINITY ? -INFINITY : r->absolute ? fabs(scaled) + bias : plain;
    }
}

/* Weights from scores, and lse. A row without keys: weights 0, lse -infinity. */
static void softmax(row *r)
{
    const int64_t n = r->plan->desc.len_k;
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (r->score[j] > top)
            top = r->score[j];
    for (int64_t j = 0; j < n; j++) {
        r->weight[j] = r->score[j] == -INFINITY ? 0 : exp(r->score[j] - top);
        sum += r->weight[j];
    }
    r->lse = sum == 0 ? -INFINITY : top + log(sum);
    for (int64_t j = 0; j < n; j++)
        if (r->score[j] != -INFINITY)
            r->weight[j] /= sum;
}

/* out = sum_j w_j (v_j + relval_j); with absolute, the sum of w |v| + w |relval|. */
static void mix(row *r)
{
    const rp_desc *d = &r->plan->desc;
    memset(r->out, 0, (size_t)d->dim_v * sizeof *r->out);
    for (int64_t j = 0; j < d->len_k; j++) {
        if (r->score[j] == -INFINITY)
            continue;
        rpi_pair p = {0};
        if (r->plan->valvec >= 0)
            p = pair_at(r, r->plan->valvec, j);
        for (int64_t c = 0; c < d->dim_v; c++) {
            const double v = element(&r->args->v, r->b, r->g, j, c);
            const double a = p.term ? rpi_scheme_of(p.term->kind)->vec(&p, c) : 0;
            r->out[c] += r->weight[j] * (r->absolute ? fabs(v) + fabs(a) : v + a);
        }
    }
}

/* Memory of one row: allocated together, freed as r->q. */
static bool row_alloc(row *r, const rp_plan *plan, const rpi_args *args)
{
    const rp_desc *d = &plan->desc;
    const size_t doubles = (size_t)(d->dim_k * (1 + d->len_k) + 2 * d->len_k + d->dim_v);
    memset(r, 0, sizeof *r);
    r->plan = plan;
    r->args = args;
    r->q = malloc(doubles * sizeof(double) + (size_t)d->len_k + 1);
    if (!r->q) {
        rpi_fail(RP_E_NOMEM, "a row of the reference path needs %zu bytes",
                 doubles * sizeof(double) + (size_t)d->len_k);
        return false;
    }
    r->keys = r->q + d->dim_k;
    r->keys_b = r->keys_g = -1;
    r->score = r->keys + d->dim_k * d->len_k;
    r->weight = r->score + d->len_k;
    r->out = r->weight + d->len_k;
    r->keep = (uint8_t *)(r->out + d->dim_v);
    return true;
}

static void row_at(row *r, int64_t b, int64_t h, int64_t i)
{
    const rp_desc *d = &r->plan->desc;
    r->b = b;
    r->h = h;
    r->g = h / (d->heads / d->kv_heads);
    r->i = i;
}

static void put(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d, double x)
{
    rpi_put(v->data, v->dtype, rpi_index(v, a, b, c, d), x);
}

/* What the tasks of a parallel run share: rows of one head each, so that sums over rows have one order. */
typedef struct job {
    const rp_plan *plan;
    const rpi_args *args;
    rpi_progress *progress;
    row *rows;       /* one for each worker */
    double *profile; /* and key mass, one for each worker; NULL if not wanted */
} job;

/* Queries of a task: heads are cut into pieces where no sum runs over queries. */
#define PIECE 16

static void attend_row(const job *j, row *r)
{
    const rp_desc *d = &j->plan->desc;
    const rpi_args *a = j->args;
    scores(r);
    softmax(r);
    if (a->weights.data)
        for (int64_t n = 0; n < d->len_k; n++)
            put(&a->weights, r->b, r->h, r->i, n, r->weight[n]);
    if (a->out.data) {
        mix(r);
        for (int64_t c = 0; c < d->dim_v; c++)
            put(&a->out, r->b, r->h, r->i, c, r->out[c]);
    }
    if (a->lse.data)
        put(&a->lse, r->b, r->h, r->i, 0, r->lse);
    if (a->entropy.data) {
        double sum = 0;
        for (int64_t n = 0; n < d->len_k; n++)
            sum += r->weight[n] != 0 ? r->weight[n] * (r->lse - r->score[n]) : 0; /* -w log w */
        put(&a->entropy, r->b, r->h, r->i, 0, sum);
    }
}

static void piece_task(void *context, int64_t n, int32_t worker)
{
    const job *j = context;
    const rp_desc *d = &j->plan->desc;
    const int64_t pieces = (d->len_q + PIECE - 1) / PIECE, first = n % pieces * PIECE;
    for (int64_t i = first; i < rpi_min(first + PIECE, d->len_q); i++) {
        row_at(&j->rows[worker], n / pieces / d->heads, n / pieces % d->heads, i);
        attend_row(j, &j->rows[worker]);
    }
    rpi_progress_step(j->progress, worker);
}

static void summary_task(void *context, int64_t n, int32_t worker)
{
    const job *j = context;
    const rp_desc *d = &j->plan->desc;
    const int64_t b = n / d->heads, h = n % d->heads, offsets = rpi_max(d->len_q + d->len_k - 1, 0);
    double *profile = j->profile + (offsets + d->len_k) * worker, *key_mass = profile + offsets;
    row *r = &j->rows[worker];
    memset(profile, 0, (size_t)(offsets + d->len_k) * sizeof *profile);
    for (int64_t i = 0; i < d->len_q; i++) {
        row_at(r, b, h, i);
        attend_row(j, r);
        for (int64_t c = 0; c < d->len_k; c++) {
            profile[c - i + d->len_q - 1] += r->weight[c];
            key_mass[c] += r->weight[c];
        }
    }
    for (int64_t t = 0; t < offsets && j->args->profile.data; t++) {
        /* pairs with delta index t: i from max(0, Lq-1-t) to min(Lq-1, Lq+Lk-2-t) */
        const int64_t pairs = rpi_min(d->len_q - 1, offsets - 1 - t) - rpi_max(0, d->len_q - 1 - t) + 1;
        put(&j->args->profile, b, h, t, 0, pairs > 0 ? profile[t] / (double)pairs : 0);
    }
    for (int64_t c = 0; c < d->len_k && j->args->key_mass.data; c++)
        put(&j->args->key_mass, b, h, c, 0, key_mass[c]);
    rpi_progress_step(j->progress, worker);
}

rp_status rpi_ref_attend(const rp_plan *plan, const rpi_args *args, rp_pool *pool, rpi_progress *progress)
{
    const rp_desc *d = &plan->desc;
    const int32_t threads = rp_pool_threads(pool);
    const bool summary = args->profile.data || args->key_mass.data;
    job j = {.plan = plan, .args = args, .progress = progress};
    rp_status status = RP_OK;
    j.rows = calloc((size_t)threads, sizeof *j.rows);
    if (summary)
        j.profile = malloc((size_t)threads * (size_t)(d->len_q + 2 * d->len_k) * sizeof(double) + 1);
    if (!j.rows || (summary && !j.profile))
        status = rpi_fail(RP_E_NOMEM, "the reference path has no memory for %d threads", (int)threads);
    for (int32_t n = 0; status == RP_OK && n < threads; n++)
        if (!row_alloc(&j.rows[n], plan, args))
            status = RP_E_NOMEM;
    if (status == RP_OK) {
        const int64_t tasks = d->batch * d->heads * (summary ? 1 : (d->len_q + PIECE - 1) / PIECE);
        progress->total += tasks;
        rpi_pool_run(pool, tasks, summary ? summary_task : piece_task, &j);
    }
    for (int32_t n = 0; j.rows && n < threads; n++)
        free(j.rows[n].q);
    free(j.rows);
    free(j.profile);
    return status;
}

rp_status rp_attend_row(const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i, rp_row *want)
{
    rpi_args args;
    row r;
    rp_status status = rpi_args_check(&args, plan, t);
    if (status != RP_OK)
        return status;
    const rp_desc *d = &plan->desc;
    if (!want)
        return rpi_fail(RP_E_ARG, "row is NULL");
    if (b < 0 || b >= d->batch || h < 0 || h >= d->heads || i < 0 || i >= d->len_q)
        return rpi_fail(RP_E_RANGE, "row (b %lld, h %lld, i %lld) is outside (%lld, %lld, %lld)", (long long)b,
                        (long long)h, (long long)i, (long long)d->batch, (long long)d->heads, (long long)d->len_q);
    if (want->out && !args.v.data && d->len_k)
        return rpi_fail(RP_E_ARG, "v is absent: out of a row needs it");
    if (!row_alloc(&r, plan, &args))
        return RP_E_NOMEM;
    row_at(&r, b, h, i);
    double *raw = malloc((size_t)d->len_k * sizeof *raw + 1); /* asks scores() for masked pairs too */
    if (!raw) {
        free(r.q);
        return rpi_fail(RP_E_NOMEM, "a row of %lld keys has no memory", (long long)d->len_k);
    }
    r.raw = want->raw ? want->raw : raw;
    r.scaled = want->scaled;
    r.bias = want->bias;
    scores(&r);
    softmax(&r);
    if (want->out) {
        mix(&r);
        memcpy(want->out, r.out, (size_t)d->dim_v * sizeof *r.out);
    }
    if (want->score)
        memcpy(want->score, r.score, (size_t)d->len_k * sizeof *r.score);
    if (want->weights)
        memcpy(want->weights, r.weight, (size_t)d->len_k * sizeof *r.weight);
    want->lse = r.lse;
    free(raw);
    free(r.q);
    return RP_OK;
}

rp_status rp_bias(const rp_plan *plan, const rp_tensors *t, int64_t b, const rp_array *bias)
{
    rpi_args args;
    rpi_view v;
    if (!plan || !t || !bias || !bias->data)
        return rpi_fail(RP_E_ARG, "%s is NULL", !plan ? "plan" : !t ? "tensors" : "bias");
    if (t->size != sizeof *t)
        return rpi_fail(RP_E_ARG, "tensors of another size: start from rp_tensors_init");
    const rp_desc *d = &plan->desc;
    /* The biases need neither q nor k: stand in for them so that one check serves all. */
    rp_tensors with = *t;
    const int64_t one[4] = {d->batch, d->heads, d->len_q, d->dim_k},
                  two[4] = {d->batch, d->kv_heads, d->len_k, d->dim_k};
    static const double somewhere = 0; /* aligned for any type; never read */
    with.q = rp_array_of(&somewhere, d->dtype, 4, one);
    with.k = rp_array_of(&somewhere, d->dtype, 4, two);
    rp_status status = rpi_args_check(&args, plan, &with);
    if (status != RP_OK)
        return status;
    with.q.data = with.k.data = NULL;
    rpi_shape shape = {.ndim = 3, .min_ndim = 3, .n = {d->heads, d->len_q, d->len_k}};
    if ((status = rpi_view_of(&v, bias, &shape, RPI_FLOATS, "bias")) != RP_OK ||
        (status = rpi_check_output(bias, "bias")) != RP_OK || (status = rpi_output_overlap(plan, &with, bias)) != RP_OK)
        return status;
    if (b < 0 || b >= d->batch)
        return rpi_fail(RP_E_RANGE, "b is %lld: 0 to %lld", (long long)b, (long long)d->batch - 1);
    row r = {.plan = plan, .args = &args};
    for (int64_t h = 0; h < d->heads; h++)
        for (int64_t i = 0; i < d->len_q; i++) {
            row_at(&r, b, h, i);
            for (int64_t j = 0; j < d->len_k; j++)
                put(&v, h, i, j, 0, biases(&r, j));
        }
    return RP_OK;
}

/* ---------------------------------------------------------------------------------------------- the error bound */

/* docs/numerics.md derives what is evaluated here. u = 2^-24. Key j's weight is off by a factor of at most exp(eta_j):
 *     eta_j = u ((Dk + c) A_j + 2 (|top| + |s_j|) + 4 + 4 T)     A_j: the score with every summand taken absolute
 * c counts roundings beside the sum over Dk, T tiles. Then, with e_j = exp(s_j - lse + eta_j) - w_j and E = sum e_j,
 *     |error| <= (sum e_j |v_j| + S (E + u n)) / (1 - E)         S = sum w_j |v_j|, n roundings of the sums over keys. */
static void bound_row(row *plain, row *absolute, const rpi_view *bound)
{
    const rp_plan *plan = plain->plan;
    const rp_desc *d = &plan->desc;
    const rpi_ops *ops = plan->ops ? plan->ops : rpi_ops_named("generic");
    const double u = 0x1p-24, tiles = ceil((double)d->len_k / ops->kb);
    const double tiny = (double)d->len_k * 0x1p-126; /* weights and values below 2^-126 count as 0 */
    const double c = 4 + plan->n_tile + (plan->rotate >= 0 ? 8 : 0) + (d->softcap > 0 ? 12 : 0);
    const double sums = plan->keyvec >= 0 ? 2 : 1; /* products with vectors are rounded before they start the sums */
    double n = ops->vb + (double)d->len_k / ops->vb + (double)ops->kb / ops->nr + 8 + 3 * tiles;
    double top = -INFINITY, total = 0;
    if (plan->valvec >= 0)
        n += (double)ops->kb / ops->vl + ops->vb + (double)plan->rows_v / ops->vb + 8 + tiles;
    scores(plain);
    softmax(plain);
    scores(absolute);
    for (int64_t j = 0; j < d->len_k; j++)
        if (plain->score[j] > top)
            top = plain->score[j];
    for (int64_t j = 0; j < d->len_k; j++) { /* e_j takes the place of the absolute scores */
        const double s = plain->score[j], a = absolute->score[j];
        if (s == -INFINITY) {
            absolute->score[j] = 0;
            continue;
        }
        double wide = 0, far = 0; /* channels below 2^-126 count as 0 too */
        for (int64_t x = 0; x < d->dim_k; x++) {
            wide = fmax(wide, fabs(absolute->q[x] * d->scale));
            far = fmax(far, fabs(absolute->keys[j * d->dim_k + x]));
        }
        const double flushed = 2 * (double)d->dim_k * 0x1p-126 * (wide + far + 1);
        const double eta =
            1.01 * u * ((sums * (double)d->dim_k + c) * a + 2 * (fabs(top) + fabs(s)) + 4 + 4 * tiles) + flushed;
        absolute->score[j] = exp(s - plain->lse + eta) - plain->weight[j];
        total += absolute->score[j];
    }
    for (int64_t x = 0; x < d->dim_v; x++) {
        double spread = 0, sum = 0, most = 0;
        for (int64_t j = 0; j < d->len_k; j++) {
            if (plain->score[j] == -INFINITY)
                continue;
            double v = fabs(element(&plain->args->v, plain->b, plain->g, j, x));
            if (plan->valvec >= 0) {
                const rpi_pair p = pair_at(plain, plan->valvec, j);
                v += fabs(rpi_scheme_of(p.term->kind)->vec(&p, x));
            }
            spread += absolute->score[j] * v;
            sum += plain->weight[j] * v;
            most = fmax(most, v);
        }
        const double rest = 1 - total;
        put(bound, plain->b, plain->h, plain->i, x,
            rest > 0 ? (spread + sum * (total + 1.01 * u * n) + tiny * (most + 1)) / rest : INFINITY);
    }
}

rp_status rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound)
{
    rpi_args args;
    rpi_view v;
    row plain = {0}, absolute = {0};
    rp_status status = rpi_args_check(&args, plan, t);
    if (status != RP_OK)
        return status;
    const rp_desc *d = &plan->desc;
    const rpi_shape shape = {.ndim = 4, .min_ndim = 4, .n = {d->batch, d->heads, d->len_q, d->dim_v}};
    if (!bound || !bound->data)
        return rpi_fail(RP_E_ARG, "bound is NULL or absent");
    if ((status = rpi_view_of(&v, bound, &shape, RPI_FLOATS, "bound")) != RP_OK ||
        (status = rpi_check_output(bound, "bound")) != RP_OK || (status = rpi_output_overlap(plan, t, bound)) != RP_OK)
        return status;
    if (v.dtype != RP_F64)
        return rpi_fail(RP_E_ARG, "bound: dtype is %s: f64 is needed", rp_dtype_name(v.dtype));
    if (!args.v.data && d->len_k)
        return rpi_fail(RP_E_ARG, "v is absent (data is NULL): the bound needs it");
    if (!row_alloc(&plain, plan, &args) || !row_alloc(&absolute, plan, &args)) {
        free(plain.q);
        return RP_E_NOMEM;
    }
    absolute.absolute = true;
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t i = 0; i < d->len_q; i++) {
                row_at(&plain, b, h, i);
                row_at(&absolute, b, h, i);
                bound_row(&plain, &absolute, &v);
            }
    free(plain.q);
    free(absolute.q);
    return RP_OK;
}
