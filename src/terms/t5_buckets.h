/* terms/t5_buckets.h -- buckets of distances: T5's, and other spacings. The form is OFFSET; strip_gradient in
 * kernels/backward_terms.h computes the sums for the gradient.
 * Raffel et al. 2020, section 2.1. delta = key - query, as relative_position in T5 (memory - context).
 * SPDX-License-Identifier: Apache-2.0 */

/* Return how many of the n buckets for one direction contain exactly one distance. Not used for uniform spacing. */
static int64_t exact_buckets(int64_t n)
{
    return n / 2;
}

int64_t rpi_bucket_exact(int64_t buckets, int32_t bidirectional, rp_strategy strategy)
{
    return strategy == RP_STRATEGY_UNIFORM ? 0 : exact_buckets(bidirectional ? buckets / 2 : buckets);
}

/* Return the bucket of a distance among n buckets for one direction. The first exact_buckets(n) contain one distance
 * each; the others divide the remaining distances up to max_distance. */
static int64_t bucket_of(int64_t distance, int64_t n, int64_t max_distance, rp_strategy strategy)
{
    const int64_t exact = exact_buckets(n), rest = n - exact;
    double d = (double)distance;
    if (strategy == RP_STRATEGY_UNIFORM) {
        if (distance >= max_distance) /* floor(d*n/M) is limited to n - 1, and the product could overflow */
            return n - 1;
        return rpi_min(distance * n / max_distance, n - 1);
    }
    if (distance < exact)
        return distance;
    if (distance >= max_distance)
        return n - 1;
    switch (strategy) {
    case RP_STRATEGY_LINEAR: return rpi_min(exact + (distance - exact) * rest / (max_distance - exact), n - 1);
    case RP_STRATEGY_QUADRATIC: {
        /* The square root may round to the wrong side of an integer. Find the exact floor with integers:
         * t^2 (M-E) <= rest^2 (d-E). */
        __extension__ typedef unsigned __int128 wide;
        const wide max = (wide)rest * (wide)rest * (wide)(distance - exact), span = (wide)(max_distance - exact);
        int64_t t = (int64_t)((double)rest * sqrt((d - (double)exact) / (double)(max_distance - exact)));
        if ((wide)t * (wide)t * span > max)
            t--;
        else if ((wide)(t + 1) * (wide)(t + 1) * span <= max)
            t++;
        return rpi_min(exact + t, n - 1);
    }
    default: {
        /* Each step rounds to f32, as in the public implementations, to get identical buckets. Their logarithm is the
         * f32 nearest to the exact value. The C library's logf sometimes is not (435 buckets in one direction, distance
         * 2231 of 3283), so compute the logarithm in double and round it. */
        volatile float ratio = (float)log((double)((float)distance / (float)exact));
        ratio = ratio / (float)log((double)max_distance / (double)exact);
        ratio = ratio * (float)rest;
        return rpi_min(exact + (int64_t)ratio, n - 1);
    }
    }
}

static int64_t bucket_signed(int64_t delta, int64_t buckets, int64_t max_distance, int32_t bidirectional,
                             rp_strategy strategy)
{
    int64_t n = buckets, first = 0;
    /* |INT64_MIN| does not fit into int64; all distances beyond max_distance share a bucket anyway */
    int64_t distance = delta < -INT64_MAX ? INT64_MAX : delta < 0 ? -delta : delta;
    if (bidirectional) {
        n /= 2;
        first = delta > 0 ? n : 0;
    } else if (delta > 0) {
        distance = 0;
    }
    return first + bucket_of(distance, n, max_distance, strategy);
}

static const char *const bucket_strategies[] = {"log", "uniform", "linear", "quadratic", NULL};

/* T5 has all of these parameters except the first. */
static const rp_param bucket_params[] = {
    {"strategy", RP_PARAM_CHOICE, RPI_FIELD(strategy), .choices = bucket_strategies,
     .meaning = "spacing of the buckets"},
    {"buckets", RP_PARAM_INT, RPI_FIELD(buckets), .value = 32, .min = 2, .max = 1 << 30,
     .meaning = "number of buckets; even and at least 4 if bidirectional"},
    {"max_distance", RP_PARAM_INT, RPI_FIELD(max_distance), .value = 128, .min = 1, .max = 0x1p32,
     .meaning = "distances of max_distance and more share the last bucket"},
    {"bidirectional", RP_PARAM_FLAG, RPI_FIELD(bidirectional), .value = 1,
     .meaning = "1: half of the buckets are for keys after the query; 0: these keys share bucket 0"},
    {0},
};

/* Check conditions that involve several parameters. */
static rp_status bucket_relations(const char *what, const rp_term *t)
{
    const int64_t exact = exact_buckets(t->bidirectional ? t->buckets / 2 : t->buckets);
    if (t->bidirectional && (t->buckets < 4 || t->buckets % 2 != 0))
        return rpi_fail(RP_E_RANGE, "%sbuckets is %lld; it must be %s if bidirectional, half for each side", what,
                        (long long)t->buckets, t->buckets < 4 ? "at least 4" : "even");
    if (t->max_distance <= exact)
        return rpi_fail(RP_E_RANGE,
                        "%smax_distance is %lld; it must be above %lld, the number of buckets with one distance", what,
                        (long long)t->max_distance, (long long)exact);
    return RP_OK;
}

int64_t rp_bucket(int64_t delta, int64_t buckets, int64_t max_distance, int32_t bidirectional, rp_strategy strategy)
{
    const rp_term t = {.kind = RP_TERM_BUCKET,
                       .buckets = buckets,
                       .max_distance = max_distance,
                       .bidirectional = bidirectional,
                       .strategy = strategy};
    if (check_params("", &t, bucket_params, false) != RP_OK || bucket_relations("", &t) != RP_OK)
        return -1;
    return bucket_signed(delta, buckets, max_distance, bidirectional, strategy);
}

static rp_status bucket_check(const rp_desc *d, rp_term *t, int32_t n)
{
    char what[32];
    (void)d;
    snprintf(what, sizeof what, "terms[%d].", (int)n);
    return bucket_relations(what, t);
}

static int64_t bucket_index(const rpi_pair *p)
{
    const rp_term *t = p->term;
    return bucket_signed(integer_of(p->delta), t->buckets, t->max_distance, t->bidirectional,
                         t->kind == RP_TERM_T5 ? RP_STRATEGY_LOG : t->strategy);
}

/* Distances from max_distance on share one bucket. If not bidirectional, all keys after the query also share a
 * bucket. */
static void bucket_reach(const rp_term *t, int64_t *left, int64_t *right)
{
    *left = t->max_distance, *right = t->bidirectional ? t->max_distance : 0;
}

/* Compute the bucket once for all heads, because its logarithm is expensive. A bucket is below 2^30, so a double
 * represents it exactly. */
static double bucket_shared(const rpi_pair *p)
{
    return (double)bucket_index(p);
}

static int64_t bucket_row(const rpi_pair *p)
{
    return p->shared ? (int64_t)*p->shared : bucket_index(p);
}

static double bucket_pair(const rpi_pair *p)
{
    return rpi_at(&p->array[0], bucket_row(p), p->h, 0, 0);
}

static int bucket_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "table[bucket(%g) = %lld, %lld]", p->delta, (long long)bucket_row(p), (long long)p->h);
}

static void bucket_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, bucket_row(p), p->h, 0, 0, g);
}

#define RPI_BUCKETS                                                                                                    \
    .form = RPI_OFFSET, .array = {{"table", .shape = "[buckets, H]", .shows = "bucket"}, RPI_TWO_POSITIONS},           \
    .positions = 1, .check = bucket_check, .pair = bucket_pair, .example = bucket_example, .shared = bucket_shared,    \
    .grad = bucket_grad, .reach = bucket_reach
RPI_SCHEME(T5, RPI_BUCKETS, .params = bucket_params + 1,
           .facts = {.formula = "table[bucket(delta), h], the buckets of T5",
                     .about = "the buckets of T5",
                     .class_name = "T5",
                     .shown = "+ table[bucket(r)]",
                     .samples = {"", "buckets=16,max_distance=64,bidirectional=0"}})
RPI_SCHEME(BUCKET, RPI_BUCKETS, .params = bucket_params,
           .facts = {.formula = "table[bucket(delta), h], buckets of the given spacing",
                     .about = "buckets with a choice of spacing",
                     .shown = "+ table[bucket(r)]",
                     .samples = {"strategy=uniform", "strategy=linear", "strategy=quadratic"},
                     .bench = {"strategy=quadratic"}})
#undef RPI_BUCKETS
