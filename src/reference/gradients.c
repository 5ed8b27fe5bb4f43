/* ref_backward.c -- the oracle's gradients in double, and the bounds on the errors of the fast paths.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ref.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where one kv head's gradients are summed: dk of the turned and of the plain keys, dv; and what rows add to arrays. */
typedef struct study {
    rpi_row row, size; /* the row, and the same with the sizes of its summands */
    bool bound;        /* sums are bounds on errors */
    double *dq_turned, *dq, *dk_turned, *dk, *dv;
    double *ds, *dw;               /* [Lk] of the scores after the softcap, of the weights as they multiply values */
    double *slope_error, *size_ds; /* of bounds: of the slope; |ds| itself */
    rpi_term_sums sums;
    rpi_arena memory;
} study;

/* The unit of rounding of the arithmetic; doubled for f64, where the oracle rounds as often. */
static double unit(const rp_desc *d)
{
    return d->dtype == RP_F64 ? 0x1p-52 : 0x1p-24;
}

/* What one rounding at the store adds, relative to the element. */
static double stored(const rp_desc *d)
{
    return d->dtype == RP_BF16 ? 0x1p-8 : d->dtype == RP_F16 ? 0x1p-11 : unit(d);
}

static double sized(const study *s, double x)
{
    return s->bound ? fabs(x) : x;
}

/* g times the derivative of a term of form VEC with respect to everything it reads. */
static void spread_vectors(study *s, int32_t term, int64_t j, double g)
{
    const rp_desc *d = &s->row.args->desc;
    const rpi_pair p = rpi_row_pair(&s->row, term, j);
    rpi_sums *to = &s->sums.term[term];
    to->absolute = s->bound;
    to->q = s->dq;
    to->k = s->dk + j * d->dim_k;
    g *= sized(s, rpi_vec_factor(d, p.term));
    for (int n = 0; n < 2; n++) {
        const rpi_part *part = &rpi_scheme_of(p.term->kind)->part[n];
        const int64_t e = part->count ? rpi_part_index(part, &p) : -1;
        for (int64_t c = 0; e >= 0 && c < rpi_part_width(part, &p); c++) {
            const double x = part->query      ? part->query(&p, c)
                             : part->key_side ? p.k[c]
                                              : p.q[c],
                         v = part->vec(&p, e, c);
            if (part->vec_grad)
                part->vec_grad(&p, e, c, g * x, to);
            if (part->query)
                part->query_grad(&p, c, g * v, to);
            else
                (part->key_side ? to->k : to->q)[c] += sized(s, g * v);
        }
    }
}

/* Add what the derivatives ds and dw of one row give to everything. */
static void spread(study *s)
{
    rpi_row *r = &s->row;
    const rp_desc *d = &r->args->desc;
    const int64_t D = d->dim_k;
    for (int64_t j = 0; j < d->len_k; j++) {
        if (r->score[j] == -INFINITY)
            continue;
        const double inside =
            s->bound ? s->ds[j] * (fabs(r->slope[j]) + s->slope_error[j]) + s->size_ds[j] * s->slope_error[j]
                     : s->ds[j] * r->slope[j];
        const double outside = d->cap_after ? inside : s->ds[j];
        for (int64_t c = 0; c < D; c++) {
            s->dq_turned[c] += sized(s, inside * d->scale * s->size.keys[j * D + c]);
            s->dk_turned[j * D + c] += sized(s, inside * d->scale * s->size.q[c]);
        }
        if (r->plan->vec >= 0)
            spread_vectors(s, r->plan->vec, j, inside);
        for (int32_t n = 0; n < d->n_terms; n++) {
            const rpi_scheme *scheme = rpi_scheme_of(d->terms[n].kind);
            rpi_sums *to = &s->sums.term[n];
            to->absolute = s->bound;
            if (scheme->form == RPI_VEC && scheme->bias) {
                spread_vectors(s, n, j, outside);
            } else if (scheme->form == RPI_INDEX && scheme->entry_grad) {
                const rpi_pair p = rpi_row_pair(r, n, j);
                scheme->entry_grad(&p, scheme->index(&p), outside, to);
            } else if ((scheme->form == RPI_OFFSET || scheme->form == RPI_TILE) && scheme->grad) {
                const rpi_pair p = rpi_row_pair(r, n, j);
                scheme->grad(&p, outside, to);
            } else if (scheme->form == RPI_VALVEC) {
                const rpi_pair p = rpi_row_pair(r, n, j);
                const int64_t e = rpi_part_index(&scheme->part[0], &p);
                for (int64_t c = 0; c < d->dim_v; c++)
                    scheme->part[0].vec_grad(&p, e, c, s->dw[j] * s->size.out[c], to);
            }
        }
        for (int64_t c = 0; c < d->dim_v; c++)
            s->dv[j * d->dim_v + c] += sized(s, s->dw[j] * s->size.out[c]);
    }
}

/* <dout_i, v_j + relval> times the factor of dropout, and the same of absolute values. */
static double weight_gradient(const study *s, const rpi_view *dout, int64_t j, double *size)
{
    const rpi_row *r = &s->row;
    const rp_desc *d = &r->args->desc;
    const double factor = rpi_row_dropout(r, j);
    double sum = 0;
    rpi_pair p = {0};
    const rpi_part *part = NULL;
    int64_t e = 0;
    *size = 0;
    if (r->plan->valvec >= 0) {
        p = rpi_row_pair(r, r->plan->valvec, j);
        part = &rpi_scheme_of(p.term->kind)->part[0];
        e = rpi_part_index(part, &p);
    }
    for (int64_t c = 0; c < d->dim_v && factor != 0; c++) {
        const double v = rpi_value(rpi_row_of(&r->args->v, r->b, r->g, j), r->args->v.dtype, c),
                     a = part ? part->vec(&p, e, c) : 0, o = rpi_at(dout, r->b, r->h, r->i, c) * factor;
        sum += o * (v + a);
        *size += fabs(o) * (fabs(v) + fabs(a));
    }
    return sum;
}

/* By how much of its size a product may be off beside rounding, where f32 is the sum of two bf16: 3/4 of this for scores, which
 * are rounded twice, 5/4 for weights, of which one part is cut off. */
static double split(const rp_desc *d)
{
    return d->dtype == RP_F32 && d->precision == RP_PRECISION_HIGH ? 0x1p-16 : 0;
}

/* The bound of out at this row: see rp_error_bound. Returns a bound on the error of lse. */
static double bound_row(rpi_row *plain, rpi_row *absolute, double *bound, double *eta_of);

/* One row: its ds and dw, or bounds on the errors of them (docs/numerics.md, "Gradients"). */
static void row_backward(study *s, const rpi_view *dout)
{
    rpi_row *r = &s->row;
    const rp_desc *d = &r->args->desc;
    const int64_t D = d->dim_k, Dv = d->dim_v;
    const double u = unit(d);
    double mean = 0, mean_error = 0, lse_error = 0;
    rpi_row_scores(r);
    rpi_row_softmax(r);
    double *size = s->slope_error; /* of <dout, v>, until slope_error is made */
    memset(s->dq, 0, (size_t)D * sizeof(double));
    memset(s->dq_turned, 0, (size_t)D * sizeof(double));
    for (int64_t j = 0; j < d->len_k; j++) {
        s->dw[j] = r->score[j] == -INFINITY ? 0 : r->weight[j] * rpi_row_dropout(r, j);
        s->ds[j] = r->score[j] == -INFINITY ? 0 : weight_gradient(s, dout, j, &size[j]);
        if (r->score[j] != -INFINITY)
            mean += r->weight[j] * s->ds[j];
    }
    if (s->bound) {
        double *bound = s->row.out, *eta = s->size.weight;
        rpi_row_scores(&s->size);
        lse_error = bound_row(r, &s->size, bound, eta);
        for (int64_t c = 0; c < Dv; c++) {
            double out = 0;
            for (int64_t j = 0; j < d->len_k; j++)
                if (s->dw[j] != 0)
                    out += fabs(s->dw[j] * rpi_value(rpi_row_of(&r->args->v, r->b, r->g, j), r->args->v.dtype, c));
            mean_error += fabs(rpi_at(dout, r->b, r->h, r->i, c)) * (bound[c] + stored(d) * out);
        }
        for (int64_t j = 0; j < d->len_k; j++) {
            if (r->score[j] == -INFINITY)
                continue;
            const double w = r->weight[j], off = w * expm1(eta[j]) + 0x1p-126, away = fabs(s->ds[j] - mean),
                         dp_error = (1.01 * u * (2 * (double)Dv + 8) + split(d)) * size[j];
            /* roundings of the sums that follow: over keys, over queries, over blocks of them */
            const double share = (double)(d->heads / d->kv_heads);
            const double n =
                1.01 * u * (2 * 512 + share * (double)(d->len_k + d->len_q) / 96 + 16 + (double)(2 * D)) + 3 * split(d);
            s->size_ds[j] = w * away;
            s->ds[j] =
                off * (away + dp_error + mean_error) + w * (dp_error + mean_error) + (4 * u + n) * w * away + 0x1p-125;
            s->slope_error[j] = d->softcap > 0 ? 2 * eta[j] * fabs(r->slope[j]) / d->softcap + 16 * u : 0;
            s->dw[j] = (off + n * w) * rpi_row_dropout(r, j);
        }
    } else {
        for (int64_t j = 0; j < d->len_k; j++)
            if (r->score[j] != -INFINITY)
                s->ds[j] = r->weight[j] * (s->ds[j] - mean);
        s->size.q = r->q, s->size.keys = r->keys;
    }
    if (r->plan->sink >= 0 && r->lse != -INFINITY) { /* a key of value 0: dp = 0 */
        rpi_sums *to = &s->sums.term[r->plan->sink];
        const double w = exp(rpi_at(&r->args->term[r->plan->sink][0], r->h, 0, 0, 0) - r->lse);
        to->absolute = s->bound;
        /* the weight of the sink is off as those of keys are, by its own score and lse */
        const double off =
            s->bound
                ? expm1(2 * u * (fabs(rpi_at(&r->args->term[r->plan->sink][0], r->h, 0, 0, 0)) + fabs(r->lse) + 4) +
                        lse_error)
                : 0;
        rpi_add(to, 0, r->h, 0, 0, 0,
                s->bound ? w * (mean_error * (1 + off) + fabs(mean) * off + 4 * u * fabs(mean)) : -w * mean);
    }
    for (int64_t c = 0; c < Dv; c++)
        s->size.out[c] = sized(s, rpi_at(dout, r->b, r->h, r->i, c));
    spread(s);
}

static void lay_out(study *s, const rp_desc *d)
{
    rpi_arena *a = &s->memory;
    const int64_t size = sizeof(double);
    s->dq_turned = rpi_arena_take(a, d->dim_k, 1, size);
    s->dq = rpi_arena_take(a, d->dim_k, 1, size);
    s->dk_turned = rpi_arena_take(a, d->len_k, d->dim_k, size);
    s->dk = rpi_arena_take(a, d->len_k, d->dim_k, size);
    s->dv = rpi_arena_take(a, d->len_k, d->dim_v, size);
    s->ds = rpi_arena_take(a, d->len_k, 1, size);
    s->dw = rpi_arena_take(a, d->len_k, 1, size);
    s->slope_error = rpi_arena_take(a, d->len_k, 1, size);
    s->size_ds = rpi_arena_take(a, d->len_k, 1, size);
}

static void study_free(study *s)
{
    rpi_arena_free(&s->memory);
    rpi_arena_free(&s->sums.memory);
    rpi_row_free(&s->row);
    rpi_row_free(&s->size);
}

static rp_status study_alloc(study *s, const rp_plan *plan, const rpi_args *args, const rpi_grads *grads, bool bound)
{
    const rp_desc *d = &args->desc;
    memset(s, 0, sizeof *s);
    s->bound = bound;
    lay_out(s, d);
    rp_status status = rpi_arena_alloc(&s->memory, false, "the backward pass of the reference path");
    if (status == RP_OK) {
        lay_out(s, d);
        status = rpi_sums_alloc(&s->sums, plan, args, grads);
    }
    if (status == RP_OK)
        status = rpi_row_alloc(&s->row, plan, args);
    if (status == RP_OK)
        status = rpi_row_alloc(&s->size, plan, args);
    s->size.absolute = bound;
    if (status != RP_OK)
        study_free(s);
    return status;
}

/* An infinite bound times a factor of 0 is no number: no bound is known. */
static double settled(bool bound, double x)
{
    return !bound ? x : isnan(x) ? INFINITY : x + 0x1p-120; /* and products below 2^-126 count as 0 */
}

static void store(const study *s, const rpi_view *v, int64_t h, int64_t n, int64_t width, const double *turned,
                  const double *plain)
{
    for (int64_t c = 0; v->data && c < width; c++)
        rpi_put(v->data, v->dtype, rpi_index(v, s->row.b, h, n, c),
                settled(s->bound, (turned ? turned[c] : 0) + plain[c]));
}

static rp_status run(const rp_plan *plan, const rpi_args *args, const rpi_grads *grads, bool bound,
                     rpi_progress *progress)
{
    const rp_desc *d = &args->desc;
    const int64_t share = d->heads / d->kv_heads, D = d->dim_k;
    study s;
    rp_status status = study_alloc(&s, plan, args, grads, bound);
    if (status != RP_OK)
        return status;
    for (int64_t kv = 0; kv < d->batch * d->kv_heads; kv++) {
        const int64_t b = kv / d->kv_heads, g = kv % d->kv_heads;
        s.row.b = b; /* where there is no query */
        memset(s.dk_turned, 0, (size_t)(d->len_k * D) * sizeof(double));
        memset(s.dk, 0, (size_t)(d->len_k * D) * sizeof(double));
        memset(s.dv, 0, (size_t)(d->len_k * d->dim_v) * sizeof(double));
        for (int64_t n = 0; n < share * d->len_q; n++) {
            const int64_t h = g * share + n / d->len_q, i = n % d->len_q;
            rpi_row_at(&s.row, b, h, i);
            rpi_row_at(&s.size, b, h, i);
            row_backward(&s, &grads->dout);
            if (plan->rotate >= 0)
                rpi_row_turn(bound ? &s.size : &s.row, s.dq_turned, rpi_turn_position(args, plan->rotate, false, b, i),
                             -1);
            store(&s, &grads->dq, h, i, D, s.dq_turned, s.dq);
        }
        for (int64_t j = 0; j < d->len_k; j++) {
            if (plan->rotate >= 0)
                rpi_row_turn(bound ? &s.size : &s.row, s.dk_turned + j * D,
                             rpi_turn_position(args, plan->rotate, true, b, j), -1);
            store(&s, &grads->dk, g, j, D, s.dk_turned + j * D, s.dk + j * D);
            store(&s, &grads->dv, g, j, d->dim_v, NULL, s.dv + j * d->dim_v);
        }
        if (progress)
            rpi_progress_step(progress, 0);
        if (progress && (status = rpi_progress_status(progress)) != RP_OK)
            break;
    }
    for (int32_t n = 0; status == RP_OK && bound && n < d->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            for (int64_t e = 0; e < s.sums.elements[n][x]; e++) {
                double *at = (double *)s.sums.term[n].array[x].data + e;
                *at = settled(true, *at);
            }
    if (status == RP_OK)
        rpi_sums_store(&s.sums, plan, args, grads);
    study_free(&s);
    return status;
}

rp_status rpi_ref_backward(const rp_plan *plan, const rpi_args *args, const rpi_grads *grads, rpi_progress *progress)
{
    progress->total += args->desc.batch * args->desc.kv_heads;
    return run(plan, args, grads, false, progress);
}

rp_status rp_gradient_bound(const rp_plan *plan, const rp_tensors *t, const rp_grads *bound)
{
    rpi_args args;
    rpi_grads grads;
    rp_status status = rpi_backward_check(&args, &grads, plan, t, bound);
    const rpi_view *views[] = {&grads.dq, &grads.dk, &grads.dv};
    for (int n = 0; status == RP_OK && n < 3; n++)
        if (views[n]->data && views[n]->dtype != RP_F64)
            status = rpi_fail(RP_E_ARG, "bounds: dtype is %s: f64 is needed", rp_dtype_name(views[n]->dtype));
    if (status == RP_OK)
        status = rpi_args_prepare(&args, plan);
    if (status != RP_OK)
        return status;
    status = run(plan, &args, &grads, true, NULL);
    rpi_args_free(&args);
    return status;
}

/* ---------------------------------------------------------------------------------------------- the bound of out */

/* docs/numerics.md derives what is evaluated here. u = 2^-24. Key j's weight is off by a factor of at most exp(eta_j):
 *     eta_j = u ((Dk + c) A_j + 2 (|top| + |s_j|) + 4 + 4 T)     A_j: the score with every summand taken absolute
 * c counts roundings beside the sum over Dk, T tiles. Then, with e_j = exp(s_j - lse + eta_j) - w_j and E = sum e_j,
 *     |error| <= (sum e_j |v_j| + S (E + u n)) / (1 - E)         S = sum w_j |v_j|, n roundings of the sums over keys.
 * eta_of, where not NULL, receives a bound on the logarithm of the factor of the weights that backward computes again,
 * whose row sum is off by E and whose lse is rounded. */
static double bound_row(rpi_row *plain, rpi_row *absolute, double *bound, double *eta_of)
{
    const rp_plan *plan = plain->plan;
    const rp_desc *d = &plain->args->desc;
    const rpi_ops *ops = plan->ops ? plan->ops : rpi_ops_named("generic", d->dtype == RP_F64);
    const double u = unit(d), tiles = ceil((double)d->len_k / ops->kb);
    const double tiny = (double)d->len_k * 0x1p-126; /* weights and values below 2^-126 count as 0 */
    /* on squares: 18 roundings within a chunk of 32, one for each of six products of a chunk, and what six leave out */
    const double chunks = ops->squares ? 20 + 6 * ceil((double)d->dim_k / 32) - fmin((double)d->dim_k, 20) : 0;
    const double c = 4 + fmax(chunks, 0) + 2 * d->n_terms + (plan->rotate >= 0 ? 8 : 0) + (d->softcap > 0 ? 12 : 0);
    const double sums =
        plan->vec >= 0 || plan->n_vec ? 2 : 1; /* products with vectors are rounded before they start the sums */
    double n = ops->vb + (double)d->len_k / ops->vb + (double)ops->kb / ops->nr + 8 + 3 * tiles;
    double top = plan->sink >= 0 ? rpi_at(&plain->args->term[plan->sink][0], plain->h, 0, 0, 0) : -INFINITY, total = 0;
    int64_t widest = d->dim_k;
    for (int32_t m = 0; m < d->n_terms; m++) {
        const rpi_part *part = rpi_scheme_of(d->terms[m].kind)->part;
        for (int x = 0; x < 2; x++)
            if (part[x].width)
                widest = rpi_max(widest, part[x].width(d, &d->terms[m]));
    }
    if (plan->valvec >= 0)
        n += (double)ops->kb / ops->vl + ops->vb + (double)d->len_k / ops->vb + 8 + tiles;
    if (d->dropout > 0)
        n += 2;
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
        const double flushed = 2 * (double)widest * 0x1p-126 * (wide + far + 1);
        const double eta = 1.01 * u * ((sums * (double)widest + c) * a + 2 * (fabs(top) + fabs(s)) + 4 + 4 * tiles) +
                           split(d) * a + flushed;
        absolute->score[j] = exp(s - plain->lse + eta) - plain->weight[j];
        total += absolute->score[j];
        if (eta_of)
            eta_of[j] = eta + 2 * u * (fabs(plain->lse) + fabs(s) + 2);
    }
    const double rest = 1 - total, lse_error = rest > 0 ? total / rest + 1.01 * u * n : INFINITY;
    for (int64_t j = 0; eta_of && j < d->len_k; j++)
        if (plain->score[j] != -INFINITY)
            eta_of[j] += lse_error;
    for (int64_t x = 0; x < d->dim_v; x++) {
        double spread = 0, sum = 0, most = 0;
        for (int64_t j = 0; j < d->len_k; j++) {
            if (plain->score[j] == -INFINITY)
                continue;
            double v = fabs(rpi_value(rpi_row_of(&plain->args->v, plain->b, plain->g, j), plain->args->v.dtype, x));
            if (plan->valvec >= 0) {
                const rpi_pair p = rpi_row_pair(plain, plan->valvec, j);
                const rpi_part *part = &rpi_scheme_of(p.term->kind)->part[0];
                v += fabs(part->vec(&p, rpi_part_index(part, &p), x));
            }
            v *= rpi_row_dropout(plain, j);
            spread += absolute->score[j] * v;
            sum += plain->weight[j] * v;
            most = fmax(most, v);
        }
        bound[x] =
            rest > 0 ? (spread + sum * (total + 1.01 * u * n + 1.5 * split(d)) + tiny * (most + 1)) / rest : INFINITY;
        bound[x] += stored(d) * (sum + bound[x]) + (d->dtype == RP_F16 ? 0x1p-25 : 0);
        if (isnan(bound[x]))
            bound[x] = INFINITY; /* an infinite bound times a value of 0 */
    }
    return lse_error;
}

rp_status rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound)
{
    rpi_args args;
    rpi_view v;
    rpi_row plain = {0}, absolute = {0};
    rp_status status = rpi_args_check(&args, plan, t);
    if (status != RP_OK)
        return status;
    const rp_desc *d = &args.desc;
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
    if ((status = rpi_args_prepare(&args, plan)) != RP_OK)
        return status;
    status = rpi_row_alloc(&plain, plan, &args);
    if (status == RP_OK)
        status = rpi_row_alloc(&absolute, plan, &args);
    absolute.absolute = true;
    for (int64_t b = 0; status == RP_OK && b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t i = 0; i < d->len_q; i++) {
                rpi_row_at(&plain, b, h, i);
                rpi_row_at(&absolute, b, h, i);
                rpi_row_scores(&plain);
                rpi_row_softmax(&plain);
                rpi_row_scores(&absolute);
                bound_row(&plain, &absolute, plain.out, NULL);
                for (int64_t x = 0; x < d->dim_v; x++)
                    rpi_put(v.data, v.dtype, rpi_index(&v, b, h, i, x), plain.out[x]);
            }
    rpi_row_free(&plain);
    rpi_row_free(&absolute);
    rpi_args_free(&args);
    return status;
}
