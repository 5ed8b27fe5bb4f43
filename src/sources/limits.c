/* sources/limits.c -- the limits of a call: upper bounds from its plan, exact sizes from its arrays. Independent of
 * kernels; names no scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <math.h>
#include <string.h>

void rpi_limits_bound(rpi_limits *e, const rp_plan *plan)
{
    const rp_desc *d = &plan->desc;
    memset(e, 0, sizeof *e);
    e->len_q = e->rows = d->len_q;
    e->len_k = d->len_k;
    e->strip_past = INT64_MAX;
    e->rope_heads = 1;
    e->min_offset = e->max_offset = d->q_offset;
    e->strip_per_head = e->summary = e->dq = true;
    e->softcap = d->softcap > 0 || d->softcap_after > 0;
    e->rope_wanted[0] = e->rope_wanted[1] = true;
    if (d->flexible || d->len_q <= plan->ops->decode_rows)
        e->decode_queries = rpi_min(d->len_q, plan->ops->decode_rows);
    for (int32_t n = 0; n < d->n_terms; n++)
        e->term[n] = (rpi_term_limits){.present = {true, true},
                                       .per_head = {true, true},
                                       .shares_batch = true,
                                       .wanted = true,
                                       .count = d->len_q + d->len_k};
}

void rpi_positions_of(const rpi_args *args, int32_t term, bool key, int64_t b, int64_t first, int64_t n, double *to)
{
    const rpi_scheme *s = args->plan->scheme[term];
    const rpi_view *given = &args->term[term][s->positions + (key ? 1 : 0)];
    const int32_t masks = rpi_position_masks(s);
    const rpi_view *mask = masks < 0 ? NULL : &args->term[term][masks + (key ? 1 : 0)];
    const bool either = given->data || args->term[term][s->positions + (key ? 0 : 1)].data;
    /* if only one side has positions, the other side's positions start from 0 in each segment */
    const bool restart = args->segment_start && either;
    for (int64_t x = 0; x < n; x++) {
        const int64_t at = first + x, start = restart ? args->segment_start[b * args->desc.len_k + at] : 0;
        to[x] = given->data ? rpi_at(given, b, at, 0, 0)
                : key       ? (double)(at - start)
                            : (double)(restart ? at - start : rpi_position(args, b, at));
        if (mask && rpi_no_position(mask, b, at))
            to[x] = NAN;
    }
}

/* Find the range of key position minus query position in the call. Return true if all positions are integers. */
static bool range_of(const rpi_args *args, int32_t term, double *low, double *high)
{
    const rp_desc *d = &args->desc;
    bool integral = true;
    *low = INFINITY, *high = -INFINITY;
    for (int64_t b = 0; b < d->batch; b++) {
        double min[2] = {INFINITY, INFINITY}, max[2] = {-INFINITY, -INFINITY}, at[128];
        for (int key = 0; key < 2; key++) {
            const int64_t len = key ? d->len_k : d->len_q;
            for (int64_t first = 0; first < len; first += 128) {
                const int64_t n = rpi_min(128, len - first);
                rpi_positions_of(args, term, key, b, first, n, at);
                for (int64_t x = 0; x < n; x++) {
                    if (isnan(at[x]))
                        continue;
                    min[key] = fmin(min[key], at[x]);
                    max[key] = fmax(max[key], at[x]);
                    integral = integral && at[x] == trunc(at[x]);
                }
            }
        }
        if (min[0] <= max[0] && min[1] <= max[1]) {
            *low = fmin(*low, min[1] - max[0]);
            *high = fmax(*high, max[1] - min[0]);
        }
    }
    return integral;
}

/* Choose which offsets the list of a term with given positions covers. Leave count at 0 if the list would be too
 * long. */
static void tabulate(rpi_term_limits *e, const rpi_args *args, int32_t term)
{
    const rpi_scheme *scheme = args->plan->scheme[term];
    double low, high;
    const bool integral = range_of(args, term, &low, &high);
    if (!(low <= high))
        low = high = 0;
    low = trunc(low), high = trunc(high);
    if (scheme->reach) {
        int64_t left, right;
        scheme->reach(&args->desc.terms[term], &left, &right);
        low = fmax(fmin(low, (double)right), (double)-left);
        high = fmin(fmax(high, (double)-left), (double)right);
    } else if (!integral) {
        return;
    }
    if (!(high - low < 0x1p30) ||
        (!scheme->reach && high - low > (double)(RPI_WIDEST + 8 * (args->desc.len_q + args->desc.len_k))))
        return;
    e->first = (int64_t)low;
    e->count = (int64_t)(high - low) + 1;
}

/* Return true if the biases of a term of form OFFSET differ between batch entries, because an array has an axis for the
 * batch. */
static bool differs_by_entry(const rpi_args *args, int32_t n)
{
    const rpi_scheme *s = args->plan->scheme[n];
    bool differs = false;
    for (int x = 0; x < rpi_count_arrays(s); x++) {
        rpi_shape shape;
        rpi_array_shape(args->plan, &args->desc, n, x, &shape);
        differs |= s->array[x].use == RP_USE_LEARNED && args->term[n][x].data && shape.batch;
    }
    return differs;
}

/* Return true if the heads have different vectors. */
static bool vectors_per_head(const rpi_args *args, int32_t term, const rpi_product *product)
{
    rpi_shape shape;
    rpi_array_shape(args->plan, &args->desc, term, product->array, &shape);
    return shape.ndim == 3 && args->term[term][product->array].len[0] > 1;
}

static void term_limits(rpi_term_limits *e, const rpi_args *args, const rpi_grads *grads, int32_t n)
{
    const rpi_scheme *s = args->plan->scheme[n];
    const rpi_view *array = args->term[n];
    e->by_position = rpi_positions_given(s, array);
    e->shares_batch = s->in_place && rpi_source_array(args, n)->stride[0] == 0;
    for (int x = 0; x < 2 && (s->form == RPI_VEC || s->form == RPI_VALVEC); x++) {
        e->present[x] = s->product[x].count && (!s->product[x].present || s->product[x].present(array));
        e->per_head[x] = e->present[x] && vectors_per_head(args, n, &s->product[x]);
    }
    if ((s->form == RPI_INDEX && rpi_takes_positions(s)) ||
        (s->form == RPI_OFFSET && e->by_position && !differs_by_entry(args, n)))
        tabulate(e, args, n);
    for (int x = 0; grads && x < RP_MAX_ARRAYS; x++)
        e->wanted |= grads->term[n][x].data != NULL;
}

/* Return true if the strip includes this term. */
static bool in_strip(const rpi_args *args, int32_t n)
{
    return args->plan->scheme[n]->form == RPI_OFFSET && !rpi_positions_given(args->plan->scheme[n], args->term[n]);
}

uint64_t rpi_strip_terms(const rpi_args *args)
{
    uint64_t terms = 0;
    for (int32_t n = 0; n < args->desc.n_terms; n++)
        terms |= (uint64_t)in_strip(args, n) << n;
    return terms;
}

/* Return the tables of rp_prepare if their strip has the same terms as the call and all its offsets, else NULL. */
static const rp_prepared *prepared_strip(const rpi_args *args, const rpi_limits *e)
{
    const rp_prepared *p = args->ready;
    const bool serves = p && p->strip.entry && p->terms == rpi_strip_terms(args) && e->min_offset >= 0 &&
                        e->max_offset + e->len_q <= p->positions;
    return serves ? p : NULL;
}

/* Set the limits of the angles of RoPE of the queries or keys. */
static void angle_limits(rpi_limits *e, const rpi_args *args, const rpi_grads *grads, bool key)
{
    const int given = rpi_rope_angles_given(args, key), x = given >= 0 ? given : RPI_ROPE_FREQUENCIES;
    const rpi_view *array = &args->term[args->plan->rotate][x],
                   *gradient = grads ? &grads->term[args->plan->rotate][x] : NULL;
    e->rope_wanted[key] = gradient && gradient->data;
    if (given < 0)
        return;
    e->rope_angles = true;
    e->rope_same = given == RPI_ROPE_ANGLES;
    e->rope_per_batch[key] = array->len[0] > 1;
    e->rope_heads = rpi_max(e->rope_heads, array->len[1]);
    if (given == RPI_ROPE_ANGLES && e->rope_wanted[key])
        e->rope_shared = (gradient->per_sample ? args->desc.batch : 1) * array->len[0] * array->len[1];
}

void rpi_limits_of(rpi_limits *e, const rpi_args *args, const rpi_grads *grads)
{
    const rp_plan *plan = args->plan;
    const rp_desc *d = &args->desc;
    memset(e, 0, sizeof *e);
    e->len_q = d->len_q;
    e->len_k = d->len_k;
    e->rows = args->row_to - args->row_from;
    e->strip_past = INT64_MAX;
    if (grads && !args->along && args->row_from < args->row_to && args->key_from < args->key_to) {
        e->strip_from = d->len_q - args->row_to + args->key_from;
        e->strip_past = args->key_to < d->len_k ? d->len_q - 1 - args->row_from + args->key_to : INT64_MAX;
    }
    e->summary = args->profile.data || args->key_mass.data || args->entropy.data;
    if (!e->summary && d->len_q <= plan->ops->decode_rows && !rpi_is_row_range(args))
        e->decode_queries = d->len_q;
    for (int64_t b = 0; b < (args->q_offset.data ? d->batch : rpi_min(d->batch, 1)); b++) {
        const int64_t offset = rpi_position(args, b, 0);
        e->min_offset = b == 0 ? offset : rpi_min(e->min_offset, offset);
        e->max_offset = b == 0 ? offset : rpi_max(e->max_offset, offset);
    }
    for (int32_t n = 0; n < d->n_terms; n++) {
        term_limits(&e->term[n], args, grads, n);
        e->strip_per_head |= in_strip(args, n) && !plan->scheme[n]->same_heads;
        e->strip_per_entry |= in_strip(args, n) && differs_by_entry(args, n);
    }
    if (!grads && !args->along)
        e->strip = prepared_strip(args, e);
    if (plan->rotate >= 0) {
        e->rope_per_batch[0] = args->q_offset.data || rpi_rope_positions_given(args, false) || args->rope_set;
        e->rope_per_batch[1] = rpi_rope_positions_given(args, true) || args->rope_set;
        e->rope_heads = rpi_max(args->rope_heads, 1);
        for (int key = 0; key < 2; key++)
            angle_limits(e, args, grads, key);
        e->rope = args->ready && args->ready->rope_k && rpi_rope_table_is_fixed(args, true) ? args->ready : NULL;
    }
    e->dq = grads && (grads->dq.data || grads->dq_out.data || (plan->rotate >= 0 && e->term[plan->rotate].wanted));
    e->softcap = grads && (grads->softcap[RPI_BEFORE].data || grads->softcap[RPI_AFTER].data);
    for (int32_t n = 0; grads && n < d->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            e->per_sample |= grads->term[n][x].per_sample;
}
