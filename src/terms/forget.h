/* terms/forget.h -- forget gates: the sum of logf[b,h,t] over j < t <= p_i; keys after the query are masked.
 * Lin et al. 2025 (Forgetting Transformer), equation 3.
 *
 * Keys are divided into segments. If key j and the last gate of the query are in different segments, the sum is that of
 * the gates after j in its segment, of the segments between, and of the first gates of the query's segment. The code
 * only adds, so the error of a sum depends on its own gates: a difference of two prefix sums would have the error of
 * all gates before. p->prepared consists of five arrays, each with one part for every (b, h):
 *   after [Lk]              sum of the gates after key j in its segment
 *   first [Lk]              sum of the gates of a segment up to gate t
 *   whole, most, size [Lk / FORGET_SEGMENT, rounded up] each
 *                           sum of the gates of a segment, largest `after`, sum of the absolute values of its gates
 * SPDX-License-Identifier: Apache-2.0 */

enum { FORGET_SEGMENT = 128 };

static int64_t forget_segments(const rp_desc *d)
{
    return (d->len_k + FORGET_SEGMENT - 1) / FORGET_SEGMENT;
}

static int64_t forget_size(const rp_desc *d, const rp_term *t)
{
    int64_t size;
    (void)t;
    return rpi_mul(d->batch, d->heads, 1, &size) && rpi_mul(size, 2 * d->len_k + 3 * forget_segments(d), 1, &size)
               ? size
               : RPI_TOO_LARGE;
}

/* The arrays of head (b, h). */
typedef struct forget_sums {
    double *after, *first, *whole, *most, *size;
} forget_sums;

static forget_sums forget_sums_of(const rp_desc *d, double *prepared, int64_t head)
{
    const int64_t heads = d->batch * d->heads, segments = forget_segments(d);
    double *const of_keys = prepared + head * d->len_k, *const of_segments =
                                                            prepared + 2 * heads * d->len_k + head * segments;
    return (forget_sums){of_keys, of_keys + heads * d->len_k, of_segments, of_segments + heads * segments,
                         of_segments + 2 * heads * segments};
}

static forget_sums forget_sums_at(const rpi_pair *p)
{
    return forget_sums_of(p->desc, (double *)(uintptr_t)p->prepared, p->b * p->desc->heads + p->h);
}

static void forget_prepare(const rp_desc *d, const rp_term *t, const rpi_view *array, double *to)
{
    (void)t;
    for (int64_t n = 0; n < d->batch * d->heads * forget_segments(d); n++) {
        const int64_t head = n / forget_segments(d), s = n % forget_segments(d), begin = s * FORGET_SEGMENT,
                      past = rpi_min(begin + FORGET_SEGMENT, d->len_k);
        const forget_sums sums = forget_sums_of(d, to, head);
        double first = 0, after = 0;
        sums.size[s] = 0, sums.most[s] = -HUGE_VAL;
        for (int64_t k = begin; k < past; k++) {
            const double x = rpi_at(&array[0], head / d->heads, head % d->heads, k, 0);
            first = sums.first[k] = rpi_bias_sum(first, x);
            sums.size[s] += fabs(x);
        }
        for (int64_t k = past - 1; k >= begin; k--) {
            sums.after[k] = after;
            sums.most[s] = fmax(sums.most[s], after);
            after = rpi_bias_sum(after, rpi_at(&array[0], head / d->heads, head % d->heads, k, 0));
        }
        sums.whole[s] = first;
    }
}

/* The sum from the last gate of a query down to the start of segment s+1. */
typedef struct forget_walk {
    forget_sums sums;
    int64_t s;
    double sum;
} forget_walk;

static void forget_walk_to(forget_walk *w, int64_t s)
{
    const double *whole = w->sums.whole;
    double sum = w->sum;
    for (int64_t x = w->s; x > s; x--)
        sum += whole[x];
    for (; !isfinite(sum) && w->s > s; w->s--) /* rare: with the rules of infinite biases */
        w->sum = rpi_bias_sum(w->sum, whole[w->s]);
    w->sum = isfinite(sum) ? sum : w->sum;
    w->s = rpi_min(w->s, s);
}

/* Write after[x] + sum for n keys, which are finite and do not overflow. */
static void forget_add(double *to, const double *after, int64_t n, double sum)
{
    int64_t x = 0;
    for (; x + 8 <= n; x += 8)
        *(eight_doubles *)(to + x) = *(const eight_doubles *)(after + x) + sum;
    for (; x < n; x++)
        to[x] = after[x] + sum;
}

/* Write the biases of keys j0 … j0+n-1. */
static void forget_row(const rpi_pair *p, int64_t j0, int64_t n, double *to)
{
    const rp_desc *d = p->desc;
    const int64_t end = rpi_min(p->position, d->len_k - 1), /* last gate that the query includes */
        seen = rpi_clamp(p->position + 1 - j0, 0, n);
    for (int64_t c = seen; c < n; c++)
        to[c] = -INFINITY;
    if (seen == 0)
        return;
    forget_walk w = {forget_sums_at(p), end / FORGET_SEGMENT - 1, 0};
    int64_t j = end;
    for (; j >= j0 && j / FORGET_SEGMENT > w.s; j--) { /* the query's own segment */
        if (j < j0 + n)
            to[j - j0] = w.sum;
        w.sum = rpi_bias_sum(w.sum, rpi_at(&p->array[0], p->b, p->h, j, 0));
    }
    if (j < j0)
        return;
    w.sum = w.sums.first[end];
    for (j = rpi_min(j, j0 + n - 1); j >= j0;) {
        const int64_t s = j / FORGET_SEGMENT, begin = rpi_max(s * FORGET_SEGMENT, j0);
        forget_walk_to(&w, s);
        if (w.sums.size[s] <= DBL_MAX / 4 && fabs(w.sum) <= DBL_MAX / 4) /* not infinite or NaN, nor the total */
            forget_add(to + begin - j0, w.sums.after + begin, j + 1 - begin, w.sum);
        else
            for (int64_t x = begin; x <= j; x++)
                to[x - j0] = rpi_bias_sum(w.sums.after[x], w.sum);
        j = begin - 1;
    }
}

static double forget_pair(const rpi_pair *p)
{
    double bias;
    forget_row(p, p->j, 1, &bias);
    return bias;
}

/* Return the largest bias of the rows for the keys, or infinity if some of them are in the same segment or a gate is
 * not finite. Rounded sums are monotone, so the largest summands give the largest sum. */
static double forget_largest(const rpi_pair *p, int64_t rows, int64_t j0, int64_t j1)
{
    const rp_desc *d = p->desc;
    const forget_sums sums = forget_sums_at(p);
    const int64_t first = rpi_clamp(p->position, 0, d->len_k - 1), /* rows after the last key include all gates */
        past = rpi_clamp(p->position + rows, first + 1, d->len_k), last = (j1 - 1) / FORGET_SEGMENT;
    double largest = -HUGE_VAL;
    for (int64_t end = first; end < past;) {
        forget_walk w = {sums, end / FORGET_SEGMENT - 1, -HUGE_VAL};
        for (; end < past && end / FORGET_SEGMENT == w.s + 1; end++)
            w.sum = fmax(w.sum, sums.first[end]);
        if (last > w.s || !(sums.size[w.s + 1] < HUGE_VAL))
            return HUGE_VAL;
        for (int64_t s = last; s >= j0 / FORGET_SEGMENT; s--) {
            forget_walk_to(&w, s);
            if (!(sums.size[s] < HUGE_VAL) || isnan(w.sum))
                return HUGE_VAL;
            largest = fmax(largest, rpi_bias_sum(sums.most[s], w.sum));
        }
    }
    return largest;
}

/* Return the number of additions of a sum of gates. */
static double forget_additions(const rp_desc *d)
{
    return 2 * FORGET_SEGMENT + (double)forget_segments(d);
}

static double forget_size_of(const rpi_pair *p, int64_t from, int64_t past)
{
    double sum = 0;
    for (int64_t t = from; t < past; t++)
        sum += fabs(rpi_at(&p->array[0], p->b, p->h, t, 0));
    return sum;
}

static double forget_roundings(const rpi_pair *p)
{
    const rp_desc *d = p->desc;
    const forget_sums sums = forget_sums_at(p);
    const int64_t end = rpi_min(p->position, d->len_k - 1), from = p->j / FORGET_SEGMENT, to = end / FORGET_SEGMENT;
    if (from == to)
        return forget_additions(d) * forget_size_of(p, p->j + 1, end + 1);
    /* if all gates of a segment have the same sign, the size of a sum is that of its summands */
    const bool same[2] = {fabs(sums.whole[from]) == sums.size[from], fabs(sums.whole[to]) == sums.size[to]};
    double size = same[0] ? fabs(sums.after[p->j]) : forget_size_of(p, p->j + 1, (from + 1) * FORGET_SEGMENT);
    for (int64_t s = from + 1; s < to; s++)
        size += sums.size[s];
    size += same[1] ? fabs(sums.first[end]) : forget_size_of(p, to * FORGET_SEGMENT, end + 1);
    return forget_additions(d) * size;
}

static void forget_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    const double size = fabs(g) * forget_additions(p->desc);
    for (int64_t t = p->j + 1; t <= rpi_min(p->position, p->desc->len_k - 1); t++)
        rpi_add_sum(to, 0, p->b, p->h, t, g, size);
}

static void forget_reduce(const rpi_pair *p, const double *between, const rpi_sums *to)
{
    for (int64_t t = 0; t < p->desc->len_k; t++)
        rpi_add(to, 0, p->b, p->h, t, 0, between[t]);
}

static int forget_example(const rpi_pair *p, char *to, size_t size)
{
    const long long first = p->j + 1, last = rpi_min(p->position, p->desc->len_k - 1);
    if (first >= last)
        return snprintf(to, size, first > last ? "0 (no gate between)" : "logf[%lld, %lld, %lld]", (long long)p->b,
                        (long long)p->h, first);
    return snprintf(to, size, "logf[%lld, %lld, %lld] + ... + logf[%lld, %lld, %lld]", (long long)p->b, (long long)p->h,
                    first, (long long)p->b, (long long)p->h, last);
}

RPI_SCHEME(FORGET, .form = RPI_TILE, .causal = true,
           .facts = {.formula = "sum of logf[b,h,t] over j < t <= p_i; keys after the query are masked",
                     .about = "forget gates (Forgetting Transformer)"},
           .array = {{"logf", .shape = "[B, H, Lk]", .draw = {.rule = RP_RULE_NEGATIVE, .a = 0.1}}},
           .pair = forget_pair, .roundings = forget_roundings, .example = forget_example, .grad = forget_grad,
           .reduce = forget_reduce, .row = forget_row, .largest = forget_largest, .prepare_size = forget_size,
           .prepare = forget_prepare)
