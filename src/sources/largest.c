/* sources/largest.c -- bounds of the biases of a call. The largest bias of a tile comes from segments of the strip or
 * from a scheme's `largest` function. kernels/skip.h uses it to skip tiles whose weights are all 0. Names no scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <math.h>

/* Return the index of the first entry of batch entry b and head h. */
static int64_t entries_at(const rpi_strip *s, int64_t b, int64_t h)
{
    return (s->batch_step ? b * s->batch_step : 0) + h * s->head_step;
}

/* Return the index of the first segment of batch entry b and head h. */
static int64_t segments_at(const rpi_strip *s, const rp_desc *d, int64_t b, int64_t h)
{
    const int64_t heads = s->head_step ? d->heads : 1;
    return ((s->batch_step ? b : 0) * heads + (s->head_step ? h : 0)) * rpi_segments_of(s->len);
}

/* Return the distance, in elements of s->largest, from a segment's largest entry to its smallest entry. */
static int64_t min_after(const rpi_strip *s, const rp_desc *d)
{
    return (s->batch_step ? d->batch : 1) * (s->head_step ? d->heads : 1) * rpi_segments_of(s->len);
}

/* Find the largest and the smallest of n entries, with vectors of LANES TYPE. INT has the size of TYPE. */
#define SEGMENT_BOUND(NAME, TYPE, INT, LANES)                                                                          \
    static void NAME(const TYPE *entry, int64_t n, double *max, double *min)                                           \
    {                                                                                                                  \
        typedef TYPE vector __attribute__((vector_size(16)));                                                          \
        typedef TYPE loose __attribute__((vector_size(16), aligned(sizeof(TYPE)), may_alias));                         \
        typedef INT mask __attribute__((vector_size(16)));                                                             \
        vector high = (vector){0} - (TYPE)HUGE_VAL, low = (vector){0} + (TYPE)HUGE_VAL;                                \
        mask nan = {0};                                                                                                \
        for (int64_t e = 0; e < n; e += LANES) {                                                                       \
            TYPE last[LANES];                                                                                          \
            for (int l = 0; e + LANES > n && l < LANES; l++)                                                           \
                last[l] = entry[rpi_min(e + l, n - 1)];                                                                \
            const vector x = *(const loose *)(e + LANES > n ? last : entry + e);                                       \
            const mask above = x > high, below = x < low;                                                              \
            nan |= x != x;                                                                                             \
            high = (vector)((above & (mask)x) | (~above & (mask)high));                                                \
            low = (vector)((below & (mask)x) | (~below & (mask)low));                                                  \
        }                                                                                                              \
        *max = -HUGE_VAL, *min = HUGE_VAL;                                                                             \
        for (int l = 0; l < LANES; l++) {                                                                              \
            *max = nan[l] ? HUGE_VAL : fmax(*max, (double)high[l]); /* a sum with NaN has no bound */                  \
            *min = fmin(*min, (double)low[l]);                                                                         \
        }                                                                                                              \
    }
SEGMENT_BOUND(segment_bound, float, int32_t, 4)
SEGMENT_BOUND(segment_bound_f64, double, int64_t, 2)

void rpi_strip_bound(const rpi_strip *s, const rpi_args *args, int64_t b, int64_t from, int64_t to)
{
    const rp_plan *plan = args->plan;
    for (int64_t h = 0; h < (s->head_step ? args->desc.heads : 1); h++)
        for (int64_t e0 = from; e0 < to; e0 += RPI_SEGMENT) {
            const int64_t at = segments_at(s, &args->desc, b, h) + e0 / RPI_SEGMENT, entry = entries_at(s, b, h) + e0,
                          n = rpi_min(RPI_SEGMENT, to - e0);
            double max, min;
            if (plan->ops->real == 8)
                segment_bound_f64((const double *)s->entry + entry, n, &max, &min);
            else
                segment_bound((const float *)s->entry + entry, n, &max, &min);
            rpi_put_real(plan, s->largest, at, max);
            rpi_put_real(plan, s->largest, at + min_after(s, &args->desc), min);
        }
}

/* Return the largest entry of the segments that contain offsets low … high. */
static double largest_of_strip(const rpi_strip *s, const rpi_args *args, int64_t b, int64_t h, int64_t low,
                               int64_t high)
{
    const int64_t first = rpi_strip_low(s, args, b), at = segments_at(s, &args->desc, b, h);
    double max = -HUGE_VAL;
    for (int64_t n = (low - first) / RPI_SEGMENT; n <= (high - first) / RPI_SEGMENT; n++) {
        const double x = rpi_real_at(args->plan, s->largest, at + n);
        max = x > max ? x : max;
    }
    return max;
}

bool rpi_biases_bounded(const rpi_source *source, int32_t n)
{
    for (int32_t x = 0; x < n; x++)
        if (source[x].kind != RPI_STRIP &&
            !(source[x].kind == RPI_ROWS && source[x].scheme->largest && source[x].rows.by_row))
            return false;
    return n > 0;
}

double rpi_bias_of_pair(const rpi_source *source, int32_t n, const rpi_args *args, int64_t b, int64_t h, int64_t i,
                        int64_t j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int32_t x = 0; x < n; x++) {
        const rpi_strip *s = &source[x].strip;
        double bias;
        if (source[x].kind == RPI_STRIP) {
            const int64_t delta = j - rpi_position(args, b, i);
            bias = rpi_real_at(args->plan, s->entry, entries_at(s, b, h) + delta - rpi_strip_low(s, args, b));
        } else {
            rpi_pair p = rpi_pair_of(args, source[x].term, b, h, i);
            rpi_pair_key(args, &p, j);
            bias = rpi_round_bias(rpi_definition(&p), args->plan->ops->real);
        }
        sum = rpi_bias_sum(sum, bias);
        *size += fabs(bias);
    }
    return sum;
}

double rpi_largest_bias(const rpi_source *source, int32_t n, const rpi_args *args, int64_t b, int64_t h, int64_t i0,
                        int64_t rows, int64_t j0, int64_t j1, double *size)
{
    double sum = 0;
    *size = 0;
    for (int32_t x = 0; x < n; x++) {
        double max;
        if (source[x].kind == RPI_STRIP) {
            const int64_t position = rpi_position(args, b, i0);
            max = largest_of_strip(&source[x].strip, args, b, h, j0 - (position + rows - 1), j1 - 1 - position);
        } else {
            const rpi_pair p = rpi_pair_of(args, source[x].term, b, h, i0);
            max = source[x].scheme->largest(&p, rows, j0, j1);
        }
        if (max == HUGE_VAL || isnan(max))
            return HUGE_VAL;
        sum = rpi_bias_sum(sum, max);
        *size += fabs(max);
    }
    return sum;
}

bool rpi_biases_fall(const rpi_source *source, int32_t n, const rpi_args *args, double far)
{
    const rp_desc *d = &args->desc;
    if (d->len_q == 0 || d->len_k == 0)
        return false;
    for (int32_t x = 0; x < n; x++)
        for (int64_t b = 0; b < d->batch; b++)
            for (int64_t h = 0; h < d->heads; h++) {
                double low = HUGE_VAL, high = -HUGE_VAL;
                const rpi_strip *s = &source[x].strip;
                if (source[x].kind != RPI_STRIP) /* for a scheme with `largest`, assume that biases fall */
                    return true;
                if ((b && !s->batch_step) || (h && !s->head_step))
                    continue;
                for (int64_t e = segments_at(s, d, b, h), past = e + rpi_segments_of(s->len); e < past; e++) {
                    high = fmax(high, rpi_real_at(args->plan, s->largest, e));
                    low = fmin(low, rpi_real_at(args->plan, s->largest, e + min_after(s, d)));
                }
                if (high - low > far)
                    return true;
            }
    return false;
}
