/* terms/deberta.h -- disentangled attention: scale (<q_i, k_pos[h,c]> + <k_j, q_pos[h,c]>).
 * He et al. 2021, equation 4, with the buckets of DeBERTa-v2: c = clamp(bucket(i - j) + span, 0, 2 span-1).
 * With delta = j - i, c falls from 2 span-1 at delta = -left to 0 at delta = right, and is constant outside this range.
 * deberta_check computes left and right; the two arrays then act as clipped tables of left+right+1 vectors.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param deberta_params[] = {
    {"span", RP_PARAM_INT, RPI_FIELD(span), .unset = "buckets, or max_position without buckets", .min = 1,
     .max = 1 << 24, .meaning = "half the number of vectors in a table"},
    {"buckets", RP_PARAM_INT, RPI_FIELD(buckets), .value = -1, .min = -1, .max = 1 << 20,
     .meaning = "number of buckets of distances, 4 or more; -1: no buckets"},
    {"max_position", RP_PARAM_INT, RPI_FIELD(max_position), .unset = "span", .min = 1, .max = 1 << 24,
     .meaning = "distances of max_position - 1 and more share the last bucket"},
    {0},
};

/* Return the bucket of r >= 0; bucket(-r) = -bucket(r). Each distance up to buckets/2 has its own bucket. */
static int64_t deberta_bucket(const rp_term *t, int64_t r)
{
    const int64_t mid = t->buckets / 2;
    if (t->buckets < 0 || r <= mid)
        return r;
    /* round to f32 after each step, as make_log_bucket_position in transformers does; bucket_of explains the log */
    volatile float ratio = (float)log((double)((float)r / (float)mid));
    ratio = ratio / (float)log((double)(float)((double)(t->max_position - 1) / (double)mid));
    ratio = ratio * (float)(mid - 1);
    return (int64_t)ceilf(ratio) + mid;
}

/* Return the smallest r >= 0 whose bucket is at least `bucket`, or 2^24 if there is none below 2^24. */
static int64_t deberta_reach(const rp_term *t, int64_t bucket)
{
    int64_t low = 0, high = 1 << 24;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (deberta_bucket(t, middle) >= bucket)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static rp_status deberta_check(const rp_desc *d, rp_term *t, int32_t n)
{
    const int64_t max = 1 << 24;
    (void)d;
    if (t->buckets != -1 && t->buckets < 4)
        return rpi_fail(RP_E_RANGE, "terms[%d].buckets is %lld; it must be 4 to 2^20, or -1 for none", (int)n,
                        (long long)t->buckets);
    if (t->max_position == 0)
        t->max_position = t->span;
    if (t->max_position == 0)
        return rpi_fail(RP_E_RANGE, "terms[%d].max_position is 0; set it%s", (int)n,
                        t->buckets < 0 ? ", or set span, which is equal to it without buckets" : "");
    if (t->span == 0)
        t->span = t->buckets > 0 ? t->buckets : t->max_position;
    if (t->buckets > 0 && t->max_position <= t->buckets / 2 + 1)
        return rpi_fail(RP_E_RANGE, "terms[%d].max_position is %lld; it must be above %lld and at most 2^24", (int)n,
                        (long long)t->max_position, (long long)(t->buckets / 2 + 1));
    t->left = deberta_reach(t, t->span - 1);
    t->right = deberta_reach(t, t->span);
    if (t->right >= max && t->buckets > 0)
        return rpi_fail(RP_E_RANGE,
                        "terms[%d].span is %lld; with %lld buckets and max_position %lld the last vectors belong to "
                        "distances of 2^24 or more (span is usually equal to buckets)",
                        (int)n, (long long)t->span, (long long)t->buckets, (long long)t->max_position);
    return RP_OK;
}

static rp_status deberta_check_arrays(const rp_desc *d, const rp_term *t, const rpi_view *array, int32_t n)
{
    (void)d, (void)t;
    if (!array[0].data && !array[1].data)
        return rpi_fail(RP_E_ARG, "terms[%d] (of deberta) has neither k_pos nor q_pos; pass at least one of them",
                        (int)n);
    return RP_OK;
}

/* Store c, the index of a vector in k_pos and q_pos, for each delta from -left to right. */
static void deberta_prepare(const rp_desc *d, const rp_term *t, const rpi_view *array, double *to)
{
    (void)d, (void)array;
    for (int64_t delta = -t->left; delta <= t->right; delta++) {
        const int64_t bucket = delta > 0 ? -deberta_bucket(t, delta) : deberta_bucket(t, -delta);
        to[delta + t->left] = (double)rpi_clamp(bucket + t->span, 0, 2 * t->span - 1);
    }
}

static int64_t deberta_row(const rpi_pair *p, int64_t e)
{
    return (int64_t)p->prepared[e];
}

#define RPI_SIDE(side, number)                                                                                         \
    static bool deberta_has_##side(const rpi_view *array)                                                              \
    {                                                                                                                  \
        return array[number].data != NULL;                                                                             \
    }                                                                                                                  \
    static double deberta_##side(const rpi_pair *p, int64_t e, int64_t c)                                              \
    {                                                                                                                  \
        return rpi_at(&p->array[number], p->h, deberta_row(p, e), c, 0);                                               \
    }                                                                                                                  \
    static void deberta_##side##_grad(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to)           \
    {                                                                                                                  \
        rpi_add(to, number, p->h, deberta_row(p, e), c, 0, g);                                                         \
    }
RPI_SIDE(k_pos, 0)
RPI_SIDE(q_pos, 1)
#undef RPI_SIDE

static int deberta_sizes(rp_term *t, const rp_array *a)
{
    const int tells = a[0].data ? 0 : 1;
    take_size(&t->span, &a[tells], 2, 2);
    return t->span == 0 && a[tells].data ? tells : -1;
}

static void deberta_usual_sizes(rp_term *t, int64_t len_k)
{
    (void)len_k;
    if (t->span == 0 && t->max_position == 0)
        t->span = t->buckets > 0 ? t->buckets : 64;
}

RPI_SCHEME(
    DEBERTA, .form = RPI_VEC,
    .facts = {.formula = "scale (<q_i, k_pos[h,c]> + <k_j, q_pos[h,c]>), c = clamp(bucket(-delta) + span, 0, 2 span-1)",
              .about = "disentangled positions (DeBERTa)",
              .samples = {"span=12", "buckets=16,max_position=64"},
              .bench = {"span=256"}},
    .array = {{"k_pos", .presence = RP_OPTIONAL, .shape = "[H?, 2*span, Dk]"},
              {"q_pos", .presence = RP_OPTIONAL, .shape = "[H?, 2*span, Dk]"}},
    .params = deberta_params, .sizes = deberta_sizes, .usual_sizes = deberta_usual_sizes, .check = deberta_check,
    .check_arrays = deberta_check_arrays, .prepare_size = clip_count, .prepare = deberta_prepare,
    .product = {{.shown = "scale * q . k_pos",
                 .present = deberta_has_k_pos,
                 .count = clip_count,
                 .first = clip_first,
                 .vec = deberta_k_pos,
                 .row = deberta_row,
                 .vec_grad = deberta_k_pos_grad},
                {.array = 1,
                 .shown = "scale * k . q_pos",
                 .key_side = true,
                 .present = deberta_has_q_pos,
                 .count = clip_count,
                 .first = clip_first,
                 .vec = deberta_q_pos,
                 .row = deberta_row,
                 .vec_grad = deberta_q_pos_grad}})
