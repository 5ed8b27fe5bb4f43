/* reference/row.c -- the reference path: every definition in double, in plain loops. The fast path is tested against it
 * and shares only the definitions with it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "row.h"
#include "base/random.h"
#include "bounds.h"
#include "reference.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

rpi_pair rpi_row_query(const rpi_row *r, int32_t term)
{
    rpi_pair p = rpi_pair_of(r->args, term, r->b, r->h, r->i);
    p.q = r->plain_q;
    return p;
}

static void row_key(const rpi_row *r, rpi_pair *p, int64_t j)
{
    rpi_pair_key(r->args, p, j);
    p->k = r->plain_keys ? r->plain_keys + j * r->args->desc.dim_k : NULL;
}

rpi_pair rpi_row_pair(const rpi_row *r, int32_t term, int64_t j)
{
    rpi_pair p = rpi_row_query(r, term);
    row_key(r, &p, j);
    return p;
}

double rpi_row_dropout(const rpi_row *r, int64_t j)
{
    const rp_desc *d = &r->args->desc;
    if (d->dropout == 0)
        return 1;
    const rpi_dropout_row row = rpi_dropout_at(d->seed, r->b, r->h, r->i);
    return rpi_random(row, j) < rpi_dropout_limit(d->dropout) ? 0 : 1 / (1 - d->dropout);
}

void rpi_row_turn(const rpi_row *r, bool key, int64_t n, int64_t c, double at[4])
{
    const rp_term *t = &r->plan->terms[r->plan->rotate];
    int64_t u[2];
    rpi_rotate_channels(t, c, &u[0], &u[1]);
    for (int x = 0; x < 2; x++) {
        const double angle = rpi_rope_angle(r->args, key, r->b, r->g, n, u[x] - rpi_rotation_first(t));
        at[2 * x] = r->args->rope_factor * cos(angle);
        at[2 * x + 1] = r->args->rope_factor * sin(angle);
    }
}

/* If r->absolute is set, compute for each rotated channel a bound on the sum of the absolute values of its summands. */
void rpi_row_rotate(const rpi_row *r, double *x, bool key, int64_t n, double sign)
{
    if (r->plan->rotate < 0)
        return;
    const rp_term *t = &r->plan->terms[r->plan->rotate];
    const double factor = r->args->rope_factor;
    for (int64_t c = 0; c < t->dim / 2; c++) {
        int64_t u, v;
        rpi_rotate_channels(t, c, &u, &v);
        if (rpi_rotates_channels(t) && !r->absolute) {
            double at[4];
            rpi_row_turn(r, key, n, c, at);
            rpi_turn(&x[u], &x[v], at, sign < 0);
            continue;
        }
        const double angle = rpi_rotates_channels(t) ? 0 : sign * rpi_rope_angle(r->args, key, r->b, r->g, n, c);
        x[u] *= factor;
        x[v] *= factor;
        if (r->absolute)
            x[u] = x[v] = fabs(x[u]) + fabs(x[v]);
        else
            rpi_rotate(&x[u], &x[v], cos(angle), sin(angle));
    }
}

/* Return <q, k>, or the sum of |q_c k_c| if r->absolute is set. */
double rpi_row_dot(const rpi_row *r, const double *q, const double *k)
{
    double sum = 0;
    for (int64_t c = 0; c < r->args->desc.dim_k; c++)
        sum += r->absolute ? fabs(q[c] * k[c]) : q[c] * k[c];
    return sum;
}

/* Return the product of the pair's query or key with vector e. If `absolute` is set, sum absolute values. */
static double vector_product(const rpi_row *r, const rpi_product *product, const rpi_pair *p, int64_t e)
{
    const double *row = product->key_side ? p->k : p->q;
    const int64_t width = rpi_product_width(product, p);
    double sum = 0;
    for (int64_t c = 0; c < width; c++) {
        const double x = (product->query ? product->query(p, c) : row[c]) * product->vec(p, e, c);
        sum += r->absolute ? fabs(x) : x;
    }
    return sum;
}

double rpi_row_product(rpi_row *r, const rpi_pair *p, int n)
{
    const rpi_product *product = &p->scheme->product[n];
    const int64_t e = product->count ? rpi_product_index(product, p) : -1;
    if (e < 0)
        return 0;
    if (product->key_side || r->product[n].term != p->term || r->product[n].e != e) {
        r->product[n].term = p->term;
        r->product[n].e = e;
        r->product[n].sum = vector_product(r, product, p, e);
    }
    return r->product[n].sum;
}

/* Return the sum of the products of a term of form VEC, times its factor (times |factor| if `absolute` is set). */
static double vectors(rpi_row *r, const rpi_pair *p)
{
    const double sum = rpi_row_product(r, p, 0) + rpi_row_product(r, p, 1);
    const double factor = rpi_vec_factor(p->scheme, &r->args->desc);
    return (r->absolute ? fabs(factor) : factor) * sum;
}

double rpi_row_bias(rpi_row *r, rpi_pair *p, int64_t j)
{
    const rpi_scheme *s = p->scheme;
    const bool products = s->form == RPI_VEC && s->bias;
    if (!products && s->form != RPI_OFFSET && s->form != RPI_TILE && s->form != RPI_INDEX)
        return 0;
    row_key(r, p, j);
    return products ? vectors(r, p) : rpi_definition(p);
}

static void row_queries(const rpi_row *r, rpi_pair pair[RP_MAX_TERMS])
{
    for (int32_t n = 0; n < r->plan->desc.n_terms; n++)
        pair[n] = rpi_row_query(r, n);
}

/* Return the size of a bias whose roundings have the errors that those of a term's definition in double have. */
static double rounding_errors(const rpi_row *r, const rpi_pair *p)
{
    const rpi_scheme *s = p->scheme;
    const bool computed = s->roundings && !p->absent;
    return computed ? 0x1p-53 / rpi_unit(&r->plan->desc) * s->roundings(p) : 0;
}

/* Return the sum of the biases of key j, or of their absolute values if `absolute` is set. pair[n] is the query as a
 * pair for term n. */
static double biases(rpi_row *r, rpi_pair pair[RP_MAX_TERMS], int64_t j)
{
    double sum = 0;
    for (int32_t n = 0; n < r->plan->desc.n_terms; n++) {
        const double x = rpi_row_bias(r, &pair[n], j);
        if (r->absolute && x != -INFINITY)
            sum = rpi_bias_sum(sum, fabs(x) + rounding_errors(r, &pair[n]));
        else
            sum = rpi_bias_sum(sum, x);
    }
    return sum;
}

/* Set keep[j] to 1 for the keys that the row may attend to, else 0. */
static void masks(rpi_row *r)
{
    const rp_desc *d = &r->args->desc;
    int64_t lo, hi;
    memset(r->keep, 0, (size_t)d->len_k);
    rpi_interval(r->args, r->b, r->i, &lo, &hi);
    memset(r->keep + lo, 1, (size_t)(hi - lo));
    rpi_mask_keep(r->args, r->b, r->h, r->i, 0, d->len_k, r->keep);
}

double rpi_row_cap(double cap, double x, double *slope, double *curve)
{
    const double t = cap > 0 ? tanh(x / cap) : 0;
    if (slope)
        *slope = 1 - t * t;
    if (curve)
        *curve = cap > 0 ? -2 * t * (1 - t * t) / cap : 0;
    return cap > 0 ? cap * t : x;
}

double rpi_cap_ratio(double cap, double x)
{
    const double u = x / cap;
    return u > RPI_CAPPED ? RPI_CAPPED : u < -RPI_CAPPED ? -RPI_CAPPED : u;
}

double rpi_cap_by_limit(double cap, double x)
{
    if (cap == 0)
        return 0;
    const double u = rpi_cap_ratio(cap, x), t = tanh(u), z = t * t;
    double sum = 0;
    if (!(fabs(t) < 0.25))
        return t - u * (1 - z);
    /* the difference cancels: sum the series t^3 2/3 + t^5 2/15 + ... + t^(2n+1) 2/(4n^2-1) + ... */
    for (int n = 14; n > 0; n--)
        sum = sum * z + 2.0 / (4 * n * n - 1);
    return sum * z * t;
}

enum { DOTS = 4 }; /* independent sums: their additions do not wait for each other */

/* Write <q, k_j> of up to DOTS keys, from key j on. Each sum has the order of rpi_row_dot. */
static void dots(const rpi_row *r, int64_t j, double to[DOTS])
{
    const int64_t D = r->args->desc.dim_k, n = r->args->desc.len_k - j;
    const double *k = r->keys + j * D;
    if (n < DOTS || r->absolute) {
        for (int m = 0; m < DOTS && m < n; m++)
            to[m] = rpi_row_dot(r, r->q, k + m * D);
        return;
    }
    double sum[DOTS] = {0};
    for (int64_t c = 0; c < D; c++)
        for (int m = 0; m < DOTS; m++)
            sum[m] += r->q[c] * k[m * D + c];
    memcpy(to, sum, sizeof sum);
}

/* Compute score[j] for every key, -infinity where masked. Clear keep[j] if a mask or a bias of -infinity masks the key.
 * slope[j] and slope_after[j] are the derivatives of the softcaps. */
void rpi_row_scores(rpi_row *r)
{
    const rp_desc *d = &r->args->desc;
    const int64_t D = d->dim_k;
    masks(r);
    for (int64_t c = 0; c < D; c++)
        r->plain_q[c] = r->q[c] = rpi_at(&r->args->q, r->b, r->h, r->i, c);
    rpi_row_rotate(r, r->q, false, r->i, 1);
    for (int64_t j = 0; j < d->len_k && (r->keys_b != r->b || r->keys_g != r->g); j++) {
        for (int64_t c = 0; c < D; c++)
            r->plain_keys[j * D + c] = r->keys[j * D + c] = rpi_row_value(&r->args->k, r->b, r->g, j, c);
        rpi_row_rotate(r, r->keys + j * D, true, j, 1);
    }
    r->keys_b = r->b;
    r->keys_g = r->g;
    rpi_pair pair[RP_MAX_TERMS];
    row_queries(r, pair);
    double product[DOTS];
    int64_t done = 0; /* product has those of the DOTS keys before this one */
    for (int64_t j = 0; j < d->len_k; j++) {
        if (!r->keep[j] && !r->raw) { /* with r->raw, the scores of masked pairs are also computed */
            r->score[j] = -INFINITY;
            continue;
        }
        if (j >= done)
            dots(r, j, product), done = j + DOTS;
        const double raw = product[j - done + DOTS];
        const double scaled = (r->absolute ? fabs(d->scale) : d->scale) * raw;
        double inside = scaled;
        if (r->plan->vec >= 0) {
            row_key(r, &pair[r->plan->vec], j);
            inside += vectors(r, &pair[r->plan->vec]);
        }
        const double bias = biases(r, pair, j);
        const double capped = rpi_row_cap(d->softcap, inside, &r->slope[j], r->curve ? &r->curve[j] : NULL);
        const double plain = rpi_row_cap(d->softcap_after, capped + bias, &r->slope_after[j],
                                         r->curve_after ? &r->curve_after[j] : NULL);
        r->inside[j] = inside;
        r->biased[j] = capped + bias;
        if (r->raw)
            r->raw[j] = raw;
        if (r->scaled)
            r->scaled[j] = scaled;
        if (r->bias)
            r->bias[j] = bias;
        if (bias == -INFINITY)
            r->keep[j] = 0;
        r->score[j] = !r->keep[j] ? -INFINITY : r->absolute ? fabs(inside) + bias : plain;
    }
}

/* Compute weights from scores, and lse. A row without keys has weights 0 and lse -infinity. A sink acts as a key
 * without a value. */
void rpi_row_softmax(rpi_row *r)
{
    const int64_t n = r->args->desc.len_k;
    const double sink = rpi_sink(r->args, r->b, r->h, r->i);
    double max = sink, sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (r->score[j] > max)
            max = r->score[j];
    if (sink != -INFINITY)
        sum = exp(sink - max);
    for (int64_t j = 0; j < n; j++) {
        r->weight[j] = r->score[j] == -INFINITY ? 0 : exp(r->score[j] - max);
        sum += r->weight[j];
    }
    r->lse = sum == 0 ? -INFINITY : max + log(sum);
    for (int64_t j = 0; j < n; j++)
        if (r->score[j] != -INFINITY)
            r->weight[j] /= sum;
}

double rpi_row_sink_weight(const rpi_row *r)
{
    return r->plan->sink < 0 ? 0 : exp(rpi_sink(r->args, r->b, r->h, r->i) - r->lse);
}

rpi_row_vector rpi_row_vector_of(const rpi_row *r, int64_t j)
{
    rpi_row_vector v = {.e = -1};
    if (r->plan->valvec < 0)
        return v;
    v.pair = rpi_row_pair(r, r->plan->valvec, j);
    v.product = &v.pair.scheme->product[0];
    v.e = rpi_product_index(v.product, &v.pair);
    return v;
}

/* Compute out = sum_j w_j (v_j + relval_j), or only the part with v_j or with relval_j. Include every key that is not
 * masked, even if its weight is 0, because 0 times an infinite value is NaN. If every score is -infinity, out = 0. If
 * r->absolute is set, sum w_j |v_j| + w_j |relval_j|. */
void rpi_row_sums(const rpi_row *r, bool values, bool vectors, double *out)
{
    const rp_desc *d = &r->args->desc;
    memset(out, 0, (size_t)d->dim_v * sizeof *out);
    for (int64_t j = 0; j < d->len_k && r->lse != -INFINITY; j++) {
        const double factor = rpi_row_dropout(r, j);
        if (!r->keep[j] || factor == 0)
            continue;
        const rpi_row_vector vector = vectors ? rpi_row_vector_of(r, j) : (rpi_row_vector){.e = -1};
        for (int64_t c = 0; c < d->dim_v; c++) {
            const double v = values ? rpi_value(rpi_row_of(&r->args->v, r->b, r->g, j), r->args->v.dtype, c) : 0,
                         a = rpi_row_vector_channel(&vector, c);
            out[c] += r->weight[j] * factor * (r->absolute ? fabs(v) + fabs(a) : v + a);
        }
    }
}

void rpi_row_mix(rpi_row *r)
{
    rpi_row_sums(r, true, true, r->out);
}

static void lay_out_row(rpi_row *r, const rp_desc *d)
{
    rpi_arena *a = &r->memory;
    const int64_t size = sizeof(double);
    r->q = rpi_arena_take(a, d->dim_k, 1, size);
    r->plain_q = rpi_arena_take(a, d->dim_k, 1, size);
    r->keys = rpi_arena_take(a, d->len_k, d->dim_k, size);
    r->plain_keys = rpi_arena_take(a, d->len_k, d->dim_k, size);
    r->score = rpi_arena_take(a, d->len_k, 1, size);
    r->weight = rpi_arena_take(a, d->len_k, 1, size);
    r->inside = rpi_arena_take(a, d->len_k, 1, size);
    r->biased = rpi_arena_take(a, d->len_k, 1, size);
    r->slope = rpi_arena_take(a, d->len_k, 1, size);
    r->slope_after = rpi_arena_take(a, d->len_k, 1, size);
    r->out = rpi_arena_take(a, d->dim_v, 1, size);
    r->keep = rpi_arena_take(a, d->len_k, 1, 1);
}

rp_status rpi_row_alloc(rpi_row *r, const rp_plan *plan, const rpi_args *args)
{
    memset(r, 0, sizeof *r);
    r->plan = plan;
    r->args = args;
    r->keys_b = r->keys_g = -1;
    lay_out_row(r, &args->desc);
    const rp_status status = rpi_arena_alloc(&r->memory, false, "a row of the reference path");
    if (status == RP_OK)
        lay_out_row(r, &args->desc);
    return status;
}

void rpi_row_free(rpi_row *r)
{
    rpi_arena_free(&r->memory);
}

void rpi_row_at(rpi_row *r, int64_t b, int64_t h, int64_t i)
{
    const rp_desc *d = &r->args->desc;
    r->b = b;
    r->h = h;
    r->g = h / (d->heads / d->kv_heads);
    r->i = i;
    r->product[0].term = r->product[1].term = NULL;
}

static void put(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d, double x)
{
    rpi_put(v->data, v->dtype, rpi_index(v, a, b, c, d), x);
}

/* Data shared by the tasks of a run. A task computes some rows of one head. If an output sums over rows, it computes
 * all rows of the head, so that the order of the sum is fixed. */
struct rpi_ref {
    int32_t threads;
    const rp_plan *plan;
    const rpi_args *args;
    rpi_progress *progress;
    rpi_row *rows;   /* [threads] */
    double *profile; /* [threads] profile and key mass; NULL if not requested */
    rpi_arena memory;
};

/* Query rows in a task, if no output sums over rows. */
#define ROWS_PER_TASK 16

static void attend_row(const rpi_ref *j, rpi_row *r)
{
    const rpi_args *a = j->args;
    const rp_desc *d = &a->desc;
    rpi_row_scores(r);
    rpi_row_softmax(r);
    if (a->weights.data)
        for (int64_t n = 0; n < d->len_k; n++)
            put(&a->weights, r->b, r->h, r->i, n, r->weight[n] * rpi_row_dropout(r, n));
    if (a->out.data) {
        rpi_row_mix(r);
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

static void rows_task(void *context, int64_t n, int32_t worker)
{
    const rpi_ref *j = context;
    const rp_desc *d = &j->args->desc;
    const int64_t tasks = (d->len_q + ROWS_PER_TASK - 1) / ROWS_PER_TASK, first = n % tasks * ROWS_PER_TASK;
    for (int64_t i = first; i < rpi_min(first + ROWS_PER_TASK, d->len_q); i++) {
        rpi_row_at(&j->rows[worker], n / tasks / d->heads, n / tasks % d->heads, i);
        attend_row(j, &j->rows[worker]);
    }
    rpi_progress_step(j->progress);
}

static void summary_task(void *context, int64_t n, int32_t worker)
{
    const rpi_ref *j = context;
    const rp_desc *d = &j->args->desc;
    const int64_t b = n / d->heads, h = n % d->heads, offsets = rpi_max(d->len_q + d->len_k - 1, 0);
    double *profile = j->profile + (offsets + d->len_k) * worker, *key_mass = profile + offsets;
    rpi_row *r = &j->rows[worker];
    memset(profile, 0, (size_t)(offsets + d->len_k) * sizeof *profile);
    for (int64_t i = 0; i < d->len_q; i++) {
        rpi_row_at(r, b, h, i);
        attend_row(j, r);
        for (int64_t c = 0; c < d->len_k; c++) {
            profile[c - i + d->len_q - 1] += r->weight[c];
            key_mass[c] += r->weight[c];
        }
    }
    for (int64_t t = 0; t < offsets && j->args->profile.data; t++) {
        const int64_t pairs = rpi_offset_pairs(d, t);
        put(&j->args->profile, b, h, t, 0, pairs > 0 ? profile[t] / (double)pairs : 0);
    }
    for (int64_t c = 0; c < d->len_k && j->args->key_mass.data; c++)
        put(&j->args->key_mass, b, h, c, 0, key_mass[c]);
    rpi_progress_step(j->progress);
}

static void lay_out_workers(rpi_ref *j, const rp_desc *d, bool summary)
{
    j->rows = rpi_arena_take(&j->memory, j->threads, 1, sizeof *j->rows);
    if (summary)
        j->profile = rpi_arena_take(&j->memory, j->threads, d->len_q + 2 * d->len_k, sizeof(double));
}

rp_status rpi_ref_begin(rpi_ref **ref, const rp_plan *plan, const rpi_args *args, rp_pool *pool)
{
    const rp_desc *d = &args->desc;
    const int32_t threads = rp_pool_threads(pool);
    const bool summary = args->profile.data || args->key_mass.data;
    rpi_ref *j = *ref = calloc(1, sizeof *j);
    if (!j)
        return rpi_fail(RP_E_NOMEM, "out of memory: the reference path needs %zu bytes", sizeof *j);
    j->plan = plan;
    j->args = args;
    j->threads = threads;
    lay_out_workers(j, d, summary);
    /* zeroed, so that rpi_row_free is safe for rows that were not allocated */
    rp_status status = rpi_arena_alloc(&j->memory, true, "the reference path");
    if (status == RP_OK)
        lay_out_workers(j, d, summary);
    for (int32_t n = 0; status == RP_OK && n < threads; n++)
        status = rpi_row_alloc(&j->rows[n], plan, args);
    return status;
}

rp_status rpi_ref_run(rpi_ref *j, rp_pool *pool, rpi_progress *progress)
{
    const rp_desc *d = &j->args->desc;
    const bool summary = j->args->profile.data || j->args->key_mass.data;
    const int64_t tasks = d->batch * d->heads * (summary ? 1 : (d->len_q + ROWS_PER_TASK - 1) / ROWS_PER_TASK);
    j->progress = progress;
    progress->total += tasks;
    rpi_pool_run_until(pool, tasks, summary ? summary_task : rows_task, j, &progress->stop);
    return rpi_progress_status(progress);
}

void rpi_ref_end(rpi_ref *j)
{
    for (int32_t n = 0; j && j->rows && n < j->threads; n++)
        rpi_row_free(&j->rows[n]);
    if (j)
        rpi_arena_free(&j->memory);
    free(j);
}

void rpi_ref_bias(const rp_plan *plan, const rpi_args *args, int64_t b, const rpi_view *bias)
{
    const rp_desc *d = &args->desc;
    rpi_row r = {.plan = plan, .args = args};
    for (int64_t h = 0; h < d->heads; h++)
        for (int64_t i = 0; i < d->len_q; i++) {
            rpi_pair pair[RP_MAX_TERMS];
            rpi_row_at(&r, b, h, i);
            row_queries(&r, pair);
            for (int64_t j = 0; j < d->len_k; j++)
                put(bias, h, i, j, 0, biases(&r, pair, j));
        }
}
