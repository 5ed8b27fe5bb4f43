/* reference/tangents.c -- the tangents of a row, and of out and lse, in double. Every product is differentiated by its
 * two factors, and every other definition by its derivative (rpi_sums.along). Shares only definitions with the fast
 * path.
 *
 * For tangents s' of the scores, with the weights w and dropout's factors f:
 *     lse' = sum_j w_j s'_j     out' = sum_j w_j f_j ((s'_j - lse') (v_j + relval_j) + v'_j + relval'_j)
 * A sink is a key without a value.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tangents.h"
#include "bounds.h"
#include "reference.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

rpi_channel rpi_tangent_channel(rpi_tangent_row *t, const rpi_pair *p, const rpi_product *product, int64_t e, int64_t c)
{
    rpi_sums *to = &t->term[p->term - t->row.args->desc.terms];
    rpi_channel x = {.vec = product->vec(p, e, c)};
    t->sum = 0;
    if (product->vec_grad)
        product->vec_grad(p, e, c, 1, to);
    x.vec_tangent = t->sum;
    if (!product->query) {
        x.row = (product->key_side ? p->k : p->q)[c];
        x.row_tangent = product->key_side ? t->plain_keys[p->j * p->desc->dim_k + c] : t->plain_q[c];
        return x;
    }
    t->sum = 0;
    x.row = product->query(p, c);
    product->query_grad(p, c, 1, to);
    x.row_tangent = t->sum;
    return x;
}

/* Return the tangent of the products of a term of form VEC, times its factor, or its size. */
static double vectors(rpi_tangent_row *t, int32_t term, int64_t j)
{
    const rpi_pair p = rpi_row_pair(&t->row, term, j);
    double sum = 0;
    for (int n = 0; n < 2; n++) {
        const rpi_product *product = &p.scheme->product[n];
        const int64_t e = product->count ? rpi_product_index(product, &p) : -1;
        for (int64_t c = 0; e >= 0 && c < rpi_product_width(product, &p); c++) {
            const rpi_channel x = rpi_tangent_channel(t, &p, product, e, c);
            const double left = x.row_tangent * x.vec, right = x.row * x.vec_tangent;
            sum += t->row.absolute ? fabs(left) + fabs(right) : left + right;
        }
    }
    const double factor = rpi_vec_factor(p.scheme, p.desc);
    return (t->row.absolute ? fabs(factor) : factor) * sum;
}

static bool has_tangents(const rpi_sums *term)
{
    bool some = false;
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        some |= term->array[x].data != NULL;
    return some;
}

/* Return the tangent of the bias of a term, 0 if the term is not a bias. */
static double bias(rpi_tangent_row *t, int32_t term, int64_t j)
{
    const rpi_scheme *scheme = t->row.plan->scheme[term];
    if (scheme->form == RPI_VEC)
        return scheme->bias ? vectors(t, term, j) : 0;
    if ((scheme->form != RPI_OFFSET && scheme->form != RPI_INDEX && scheme->form != RPI_TILE) ||
        !has_tangents(&t->term[term]))
        return 0;
    const rpi_pair p = rpi_row_pair(&t->row, term, j);
    t->sum = 0;
    rpi_definition_grad(&p, 1, &t->term[term]);
    return t->sum;
}

/* Add to the tangent of query or key n, before its rotation, what the tangents of RoPE's angles add: the row, turned by
 * 90 degrees, times the tangent of each pair's angle. */
static void add_turn(rpi_tangent_row *t, bool key, int64_t n, const double *row, double *tangent)
{
    const rpi_row *r = &t->row;
    if (r->plan->rotate < 0 || !has_tangents(&t->term[r->plan->rotate]))
        return;
    const rp_term *term = &r->plan->terms[r->plan->rotate];
    if (rpi_rotates_channels(term))
        return;
    for (int64_t c = 0; c < term->dim / 2; c++) {
        int64_t u, v;
        rpi_rotate_channels(term, c, &u, &v);
        t->sum = 0;
        rpi_rope_angle_grad(r->args, key, r->b, r->g, n, c, 1, &t->term[r->plan->rotate]);
        if (r->absolute) {
            tangent[u] = fabs(tangent[u]) + fabs(t->sum * row[v]);
            tangent[v] = fabs(tangent[v]) + fabs(t->sum * row[u]);
        } else {
            tangent[u] -= t->sum * row[v];
            tangent[v] += t->sum * row[u];
        }
    }
}

/* Add to the tangent of query or key n, after its rotation, what the tangents of the angles of channels add. */
static void add_channels(rpi_tangent_row *t, bool key, int64_t n, const double *row, double *tangent)
{
    const rpi_row *r = &t->row;
    if (r->plan->rotate < 0 || !has_tangents(&t->term[r->plan->rotate]))
        return;
    const rp_term *term = &r->plan->terms[r->plan->rotate];
    for (int64_t c = 0; rpi_rotates_channels(term) && c < term->dim / 2; c++) {
        int64_t u[2];
        double at[4], by[2];
        rpi_rotate_channels(term, c, &u[0], &u[1]);
        rpi_row_turn(r, key, n, c, at);
        rpi_turn_grad(row[u[0]], row[u[1]], 1, 1, at, by);
        const double size = r->args->rope_factor * (fabs(row[u[0]]) + fabs(row[u[1]]));
        for (int x = 0; x < 2; x++) {
            t->sum = 0;
            rpi_rope_angle_grad(r->args, key, r->b, r->g, n, u[x] - rpi_rotation_first(term), 1,
                                &t->term[r->plan->rotate]);
            tangent[u[x]] += r->absolute ? fabs(t->sum) * size : t->sum * by[x];
        }
    }
}

/* Read and rotate the tangents of the query, and those of the keys unless they are of this head already. Find the
 * tangents of the terms' arrays that belong to the batch entry. */
static void read_tangents(rpi_tangent_row *t)
{
    const rpi_row *r = &t->row;
    const int64_t D = r->args->desc.dim_k;
    for (int32_t n = 0; n < r->args->desc.n_terms && t->keys_b != r->b; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            t->term[n].array[x] = rpi_sample(&t->given->term[n][x], r->b);
    for (int64_t c = 0; c < D; c++)
        t->plain_q[c] = t->q[c] = rpi_at_or_0(&t->given->q, r->b, r->h, r->i, c);
    add_turn(t, false, r->i, r->plain_q, t->q);
    rpi_row_rotate(r, t->q, false, r->i, 1);
    add_channels(t, false, r->i, r->plain_q, t->q);
    for (int64_t j = 0; j < r->args->desc.len_k && (t->keys_b != r->b || t->keys_g != r->g); j++) {
        for (int64_t c = 0; c < D; c++)
            t->plain_keys[j * D + c] = t->keys[j * D + c] = rpi_at_or_0(&t->given->k, r->b, r->g, j, c);
        add_turn(t, true, j, r->plain_keys + j * D, t->keys + j * D);
        rpi_row_rotate(r, t->keys + j * D, true, j, 1);
        add_channels(t, true, j, r->plain_keys + j * D, t->keys + j * D);
    }
    t->keys_b = r->b;
    t->keys_g = r->g;
}

/* Return the tangent of a softcap with argument x, as far as it comes from the tangent of its limit; or its size. */
static double by_limit(const rpi_tangent_row *t, int n, double x)
{
    const rpi_row *r = &t->row;
    const rpi_view *given = &t->given->softcap[n];
    if (!given->data)
        return 0;
    const double by = rpi_cap_by_limit(rpi_softcap(&r->args->desc, n), x) * rpi_at(given, r->b, 0, 0, 0);
    return r->absolute ? fabs(by) : by;
}

/* Compute inside[j], biased[j] and score[j], with the slopes of `plain`. */
static void tangent_scores(rpi_tangent_row *t, const rpi_row *plain)
{
    const rpi_row *r = &t->row;
    const rp_desc *d = &r->args->desc;
    const int64_t D = d->dim_k;
    const double scale = r->absolute ? fabs(d->scale) : d->scale;
    read_tangents(t);
    for (int64_t j = 0; j < d->len_k; j++) {
        t->inside[j] = t->biased[j] = t->score[j] = 0;
        if (!plain->keep[j] || plain->score[j] == -INFINITY)
            continue;
        t->inside[j] = scale * (rpi_row_dot(r, t->q, r->keys + j * D) + rpi_row_dot(r, r->q, t->keys + j * D));
        if (r->plan->vec >= 0)
            t->inside[j] += vectors(t, r->plan->vec, j);
        t->biased[j] = plain->slope[j] * t->inside[j] + by_limit(t, RPI_BEFORE, plain->inside[j]);
        for (int32_t n = 0; n < d->n_terms; n++)
            t->biased[j] += bias(t, n, j);
        t->score[j] = plain->slope_after[j] * t->biased[j] + by_limit(t, RPI_AFTER, plain->biased[j]);
    }
}

void rpi_tangent_sizes(rpi_tangent_row *absolute, const rpi_tangent_row *plain)
{
    const rp_desc *d = &plain->row.args->desc;
    for (int32_t n = 0; n < d->n_terms; n++) {
        absolute->term[n].absolute = true;
        absolute->term[n].rounding = 0x1p-53 / (4 * rpi_unit(d)); /* a bound includes at least 4 roundings */
    }
    tangent_scores(absolute, &plain->row);
}

void rpi_tangent_row_at(rpi_tangent_row *t, int64_t b, int64_t h, int64_t i)
{
    rpi_row *r = &t->row;
    const rp_desc *d = &r->args->desc;
    rpi_row_at(r, b, h, i);
    rpi_row_scores(r);
    rpi_row_softmax(r);
    tangent_scores(t, r);
    t->lse = t->sink = 0;
    for (int64_t j = 0; j < d->len_k; j++)
        if (r->keep[j] && r->score[j] != -INFINITY)
            t->lse += r->weight[j] * t->score[j];
    if (r->plan->sink >= 0 && r->lse != -INFINITY) {
        t->sink = rpi_sink_tangent(r->args, b, h, i, t->term[r->plan->sink].array);
        t->lse += rpi_row_sink_weight(r) * t->sink;
    }
}

double rpi_row_vector_tangent(rpi_tangent_row *t, const rpi_row_vector *v, int64_t j, int64_t c)
{
    t->sum = rpi_at_or_0(&t->given->v, t->row.b, t->row.g, j, c);
    if (v->e >= 0)
        v->product->vec_grad(&v->pair, v->e, c, 1, &t->term[t->row.plan->valvec]);
    return t->sum;
}

/* Compute the tangent of out [Dv]. */
static void tangent_out(rpi_tangent_row *t, double *out)
{
    const rpi_row *r = &t->row;
    const rp_desc *d = &r->args->desc;
    memset(out, 0, (size_t)d->dim_v * sizeof *out);
    for (int64_t j = 0; j < d->len_k && r->lse != -INFINITY; j++) {
        const double factor = rpi_row_dropout(r, j), ahead = r->score[j] == -INFINITY ? 0 : t->score[j] - t->lse;
        if (!r->keep[j] || factor == 0)
            continue;
        const rpi_row_vector v = rpi_row_vector_of(r, j);
        for (int64_t c = 0; c < d->dim_v; c++)
            out[c] += r->weight[j] * factor *
                      (ahead * (rpi_row_value(&r->args->v, r->b, r->g, j, c) + rpi_row_vector_channel(&v, c)) +
                       rpi_row_vector_tangent(t, &v, j, c));
    }
}

void rpi_tangent_row_store(rpi_tangent_row *t, bool of_out, bool of_lse)
{
    rpi_row *r = &t->row;
    const rpi_view *out = &t->given->out, *lse = &t->given->lse;
    if (of_out && out->data)
        tangent_out(t, r->out);
    for (int64_t c = 0; of_out && out->data && c < r->args->desc.dim_v; c++)
        rpi_put(out->data, out->dtype, rpi_index(out, r->b, r->h, r->i, c), r->out[c]);
    if (of_lse && lse->data)
        rpi_put(lse->data, lse->dtype, rpi_index(lse, r->b, r->h, r->i, 0), t->lse);
}

static void lay_out(rpi_tangent_row *t, const rp_desc *d)
{
    rpi_arena *a = &t->memory;
    const int64_t size = sizeof(double);
    t->plain_q = rpi_arena_take(a, d->dim_k, 1, size);
    t->q = rpi_arena_take(a, d->dim_k, 1, size);
    t->plain_keys = rpi_arena_take(a, d->len_k, d->dim_k, size);
    t->keys = rpi_arena_take(a, d->len_k, d->dim_k, size);
    t->inside = rpi_arena_take(a, d->len_k, 1, size);
    t->biased = rpi_arena_take(a, d->len_k, 1, size);
    t->score = rpi_arena_take(a, d->len_k, 1, size);
    t->row.curve = rpi_arena_take(a, d->len_k, 1, size);
    t->row.curve_after = rpi_arena_take(a, d->len_k, 1, size);
    t->term = rpi_arena_take(a, d->n_terms, 1, sizeof *t->term);
}

rp_status rpi_tangent_row_alloc(rpi_tangent_row *t, const rp_plan *plan, const rpi_args *args,
                                const rpi_tangents *given)
{
    const rp_desc *d = &args->desc;
    memset(t, 0, sizeof *t);
    rp_status status = rpi_row_alloc(&t->row, plan, args);
    if (status != RP_OK)
        return status;
    lay_out(t, d);
    status = rpi_arena_alloc(&t->memory, true, "a row of tangents");
    if (status != RP_OK) {
        rpi_row_free(&t->row);
        return status;
    }
    lay_out(t, d);
    t->given = given;
    t->keys_b = t->keys_g = -1;
    for (int32_t n = 0; n < d->n_terms; n++) {
        t->term[n].q = t->plain_q;
        t->term[n].along = &t->sum;
    }
    return status;
}

void rpi_tangent_row_free(rpi_tangent_row *t)
{
    rpi_arena_free(&t->memory);
    rpi_row_free(&t->row);
}

/* Data shared by the tasks of a run. A task computes some rows of one head. */
struct rpi_ref_tangents {
    const rpi_args *args;
    rpi_progress *progress;
    const uint8_t *only; /* [B * H][Lq] the tangents to compute, or NULL */
    int32_t threads;
    rpi_tangent_row *rows; /* [threads] */
    rpi_arena memory;
};

enum { ROWS_PER_TASK = 16, OUT_AND_LSE = 3 };

static int64_t tasks_of_head(const rp_desc *d)
{
    return (d->len_q + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

static void jvp_task(void *context, int64_t n, int32_t worker)
{
    const rpi_ref_tangents *all = context;
    const rp_desc *d = &all->args->desc;
    rpi_tangent_row *t = &all->rows[worker];
    const int64_t tasks = tasks_of_head(d), head = n / tasks, first = n % tasks * ROWS_PER_TASK;
    for (int64_t i = first; i < rpi_min(first + ROWS_PER_TASK, d->len_q); i++) {
        const int which = all->only ? all->only[head * d->len_q + i] : OUT_AND_LSE;
        if (!which)
            continue;
        rpi_tangent_row_at(t, head / d->heads, head % d->heads, i);
        rpi_tangent_row_store(t, which & 1, which & 2);
    }
    rpi_progress_step(all->progress);
}

rp_status rpi_ref_jvp_begin(rpi_ref_tangents **ref, const rp_plan *plan, const rpi_args *args,
                            const rpi_tangents *tangents, rp_pool *pool)
{
    const int32_t threads = rp_pool_threads(pool);
    rpi_ref_tangents *all = *ref = calloc(1, sizeof *all);
    if (!all)
        return rpi_fail(RP_E_NOMEM, "out of memory: the tangents of the reference path need %zu bytes", sizeof *all);
    all->args = args;
    all->rows = rpi_arena_take(&all->memory, threads, 1, sizeof *all->rows);
    /* zeroed, so that rows that were not allocated can be freed */
    rp_status status = rpi_arena_alloc(&all->memory, true, "the tangents of the reference path");
    if (status != RP_OK)
        return status;
    all->rows = rpi_arena_take(&all->memory, threads, 1, sizeof *all->rows);
    all->threads = threads;
    for (int32_t n = 0; status == RP_OK && n < threads; n++)
        status = rpi_tangent_row_alloc(&all->rows[n], plan, args, tangents);
    return status;
}

rp_status rpi_ref_jvp_run(rpi_ref_tangents *all, const uint8_t *rows, rp_pool *pool, rpi_progress *progress)
{
    const rp_desc *d = &all->args->desc;
    const int64_t tasks = d->batch * d->heads * tasks_of_head(d);
    all->progress = progress;
    all->only = rows;
    progress->total += tasks;
    rpi_pool_run_until(pool, tasks, jvp_task, all, &progress->stop);
    return rpi_progress_status(progress);
}

void rpi_ref_jvp_end(rpi_ref_tangents *all)
{
    for (int32_t n = 0; all && n < all->threads; n++)
        rpi_tangent_row_free(&all->rows[n]);
    if (all)
        rpi_arena_free(&all->memory);
    free(all);
}
