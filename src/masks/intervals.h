/* masks/intervals.h -- masks that limit a row to an interval of keys: causal, window, lengths, starts, ends.
 * Independent of terms and kernels.
 * SPDX-License-Identifier: Apache-2.0 */

static void causal_interval(const rpi_mask_row *row, int64_t *lo, int64_t *hi)
{
    (void)lo;
    *hi = rpi_min(*hi, row->position + 1);
}

RPI_INTERVAL(CAUSAL, causal_interval, .info.text = "only keys at or before the query")

static void window_interval(const rpi_mask_row *row, int64_t *lo, int64_t *hi)
{
    const int64_t far =
        (int64_t)1 << 61; /* larger than any |position|, yet small enough that the sums below do not overflow */
    const int64_t left = row->mask->left, right = row->mask->right;
    if (left >= 0)
        *lo = rpi_max(*lo, row->position - rpi_min(left, far));
    if (right >= 0)
        *hi = rpi_min(*hi, row->position + rpi_min(right, far) + 1);
}

static const rp_mask_param window_params[] = {
    {"left", offsetof(rp_mask, left), .value = -1, .min = -1, .max = INT64_MAX},
    {"right", offsetof(rp_mask, right), .value = -1, .min = -1, .max = INT64_MAX},
    {0}};
RPI_INTERVAL(WINDOW, window_interval, .params = window_params, .info.sample = "40,3",
             .info.text = "only keys from LEFT before to RIGHT after the query; -1 = no limit")

/* Return element [b, i] of the array. Unsigned values of 2^63 or more become INT64_MAX, which is beyond every key. */
static int64_t key_of(const rpi_mask_row *row, int64_t i)
{
    const rpi_view *a = row->array;
    const int64_t n = rpi_integer(a->data, a->dtype, rpi_index(a, row->b, i, 0, 0));
    return n < 0 && a->dtype == RP_U64 ? INT64_MAX : n;
}

static void lengths_interval(const rpi_mask_row *row, int64_t *lo, int64_t *hi)
{
    (void)lo;
    *hi = rpi_min(*hi, key_of(row, 0));
}

RPI_INTERVAL(LENGTHS, lengths_interval, .info.axes = "B", .info.holds = RP_HOLDS_COUNTS,
             .info.text = "the number of valid keys of each batch entry")

static void starts_interval(const rpi_mask_row *row, int64_t *lo, int64_t *hi)
{
    (void)hi;
    *lo = rpi_max(*lo, key_of(row, row->i));
}

RPI_INTERVAL(STARTS, starts_interval, .info.axes = "B, Lq", .info.holds = RP_HOLDS_COUNTS,
             .info.text = "the first key of each query, for chunks or windows that differ by query")

static void ends_interval(const rpi_mask_row *row, int64_t *lo, int64_t *hi)
{
    (void)lo;
    *hi = rpi_min(*hi, key_of(row, row->i));
}

RPI_INTERVAL(ENDS, ends_interval, .info.axes = "B, Lq", .info.holds = RP_HOLDS_COUNTS,
             .info.text = "one past the last key of each query, for prefixes or images within causal text")
