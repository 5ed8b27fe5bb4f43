/* terms/forget.h -- forget gates: the sum of logf[b,h,t] over j < t <= p_i; keys after the query are masked.
 * Lin et al. 2025 (Forgetting Transformer), equation 3.
 *
 * A sum of gates is computed as a difference of prefix sums. A large gate (NaN, infinite or above 1024 in absolute
 * value) would destroy the precision of all later prefix sums. Prefix sums therefore skip large gates, and these are
 * added one by one. p->prepared consists of three arrays, each with one part for every (b, h):
 *   sums  [Lk+1]                               sums[t+1] = logf[0] + … + logf[t] without large gates
 *   large [Lk+1]                               large[t+1] = index of the last large gate among 0 … t, or -1
 *   least [Lk / FORGET_SEGMENT, rounded up]    minimum of sums[j+1] over a segment of keys j
 * SPDX-License-Identifier: Apache-2.0 */

enum { FORGET_SEGMENT = 64 };

static int64_t forget_segments(const rp_desc *d)
{
    return (d->len_k + FORGET_SEGMENT - 1) / FORGET_SEGMENT;
}

static int64_t forget_size(const rp_desc *d, const rp_term *t)
{
    int64_t size;
    (void)t;
    return rpi_mul(d->batch, d->heads, 1, &size) && rpi_mul(size, 2 * (d->len_k + 1) + forget_segments(d), 1, &size)
               ? size
               : RPI_TOO_LARGE;
}

static void forget_prepare(const rp_desc *d, const rp_term *t, const rpi_view *array, double *to)
{
    (void)t;
    for (int64_t n = 0; n < d->batch * d->heads; n++) {
        const int64_t heads = d->batch * d->heads;
        double *sums = to + n * (d->len_k + 1), *large = sums + heads * (d->len_k + 1),
               *least = to + 2 * heads * (d->len_k + 1) + n * forget_segments(d);
        sums[0] = 0, large[0] = -1;
        for (int64_t k = 0; k < d->len_k; k++) {
            const double x = rpi_at(&array[0], n / d->heads, n % d->heads, k, 0);
            const bool moderate = fabs(x) <= 1024;
            sums[k + 1] = sums[k] + (moderate ? x : 0.0);
            large[k + 1] = moderate ? large[k] : (double)k;
            least[k / FORGET_SEGMENT] = k % FORGET_SEGMENT ? fmin(least[k / FORGET_SEGMENT], sums[k + 1]) : sums[k + 1];
        }
    }
}

/* State for computing biases of one query, key by key in descending order. */
typedef struct forget_walk {
    const double *sums, *large;
    int64_t end;  /* last gate that the query includes */
    int64_t next; /* last large gate that `far` does not include yet, or -1 */
    double far;   /* sum of the large gates so far */
} forget_walk;

static forget_walk forget_begin(const rpi_pair *p)
{
    const int64_t step = p->desc->len_k + 1;
    forget_walk w = {.sums = p->prepared + (p->b * p->desc->heads + p->h) * step, .next = -1};
    w.large = w.sums + p->desc->batch * p->desc->heads * step;
    w.end = rpi_min(p->position, p->desc->len_k - 1);
    if (w.end >= 0)
        w.next = (int64_t)w.large[w.end + 1];
    return w;
}

static double forget_sum(forget_walk *w, const rpi_pair *p, int64_t j)
{
    if (j > p->position)
        return -INFINITY;
    for (; w->next > j; w->next = (int64_t)w->large[w->next])
        w->far = rpi_bias_sum(w->far, rpi_at(&p->array[0], p->b, p->h, w->next, 0));
    return rpi_bias_sum(w->sums[w->end + 1] - w->sums[j + 1], w->far);
}

static double forget_pair(const rpi_pair *p)
{
    forget_walk w = forget_begin(p);
    return forget_sum(&w, p, p->j);
}

static void forget_row(const rpi_pair *p, int64_t j0, int64_t n, double *to)
{
    forget_walk w = forget_begin(p);
    const int64_t seen = rpi_clamp(p->position + 1 - j0, 0, n);
    for (int64_t c = seen; c < n; c++)
        to[c] = -INFINITY;
    if (w.next > j0) { /* there is a large gate after key j0 */
        for (int64_t c = seen - 1; c >= 0; c--)
            to[c] = forget_sum(&w, p, j0 + c);
        return;
    }
    const double all = seen > 0 ? w.sums[w.end + 1] : 0;
    for (int64_t c = 0; c < seen; c++)
        to[c] = all - w.sums[j0 + c + 1];
}

/* Return the largest prefix sum of the rows minus the smallest prefix sum of the keys, or infinity if there may be a
 * large gate between them. */
static double forget_largest(const rpi_pair *p, int64_t rows, int64_t j0, int64_t j1)
{
    const rp_desc *d = p->desc;
    const int64_t heads = d->batch * d->heads, n = p->b * d->heads + p->h;
    const double *sums = p->prepared + n * (d->len_k + 1), *large = sums + heads * (d->len_k + 1),
                 *least = p->prepared + 2 * heads * (d->len_k + 1) + n * forget_segments(d);
    const int64_t past = rpi_min(p->position + rows, d->len_k);
    double high = -HUGE_VAL, low = HUGE_VAL;
    if (past > 0 && large[past] > (double)j0)
        return HUGE_VAL;
    for (int64_t t = rpi_max(p->position, 0); t < rpi_max(past, 1);
         t++) /* a row after the last key includes all gates */
        high = fmax(high, sums[rpi_min(t, d->len_k - 1) + 1]);
    if (p->position >= d->len_k)
        high = sums[d->len_k];
    for (int64_t s = j0 / FORGET_SEGMENT; s * FORGET_SEGMENT < j1; s++)
        low = fmin(low, least[s]);
    return high - low;
}

static void forget_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    for (int64_t t = p->j + 1; t <= rpi_min(p->position, p->desc->len_k - 1); t++)
        rpi_add(to, 0, p->b, p->h, t, 0, g);
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
           .pair = forget_pair, .example = forget_example, .grad = forget_grad, .reduce = forget_reduce,
           .row = forget_row, .largest = forget_largest, .prepare_size = forget_size, .prepare = forget_prepare)
