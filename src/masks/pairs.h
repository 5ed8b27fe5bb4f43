/* masks/pairs.h -- masks that are not intervals and decide pair by pair: keys, pairs, segments. mask.h describes how to
 * add one. Independent of terms and kernels.
 * SPDX-License-Identifier: Apache-2.0 */

/* Clear keep[n] if element at + n * step is zero. */
static void and_truth(const rpi_view *a, int64_t at, int64_t step, int64_t count, uint8_t *keep)
{
    typedef uint8_t sixteen __attribute__((vector_size(16), aligned(1), may_alias));
    int64_t n = 0;
    if (rp_dtype_size(a->dtype) == 1 && step == 1)
        for (const uint8_t *x = (const uint8_t *)a->data + at; n + 16 <= count; n += 16)
            *(sixteen *)(keep + n) &= (sixteen)(*(const sixteen *)(x + n) != 0) & 1;
    for (; n < count; n++)
        keep[n] &= rpi_truth(a->data, a->dtype, at + n * step);
}

static void keys_keep(const rpi_mask_row *row, int64_t j0, int64_t count, uint8_t *keep)
{
    const rpi_view *a = row->array;
    and_truth(a, rpi_index(a, row->b, j0, 0, 0), a->stride[1], count, keep);
}

RPI_PAIRS(KEYS, keys_keep, .same_rows = true, .info.axes = "B, Lk", .info.text = "non-zero keys are attended to")

static void pairs_keep(const rpi_mask_row *row, int64_t j0, int64_t count, uint8_t *keep)
{
    const rpi_view *a = row->array;
    and_truth(a, rpi_index(a, row->b, row->h, row->i, j0), a->stride[3], count, keep);
}

RPI_PAIRS(PAIRS, pairs_keep, .info.axes = "B, H, Lq, Lk", .info.text = "non-zero pairs are attended to")

static void segments_keep(const rpi_mask_row *row, int64_t j0, int64_t count, uint8_t *keep)
{
    const rpi_view *a = row->array;
    const int64_t own = rpi_integer(a->data, a->dtype, rpi_index(a, row->b, row->i, 0, 0));
    for (int64_t n = 0; n < count; n++)
        keep[n] &= rpi_integer(a->data, a->dtype, rpi_index(a, row->b, j0 + n, 0, 0)) == own;
}

/* Terms need no change for segments: an offset within a segment is the same whether or not positions restart. */
RPI_PAIRS(SEGMENTS, segments_keep, .info.axes = "B, Lk", .info.holds = RP_HOLDS_LABELS, .info.same_lengths = 1,
          .info.text = "labels of packed sequences; a token attends only to its own sequence")
