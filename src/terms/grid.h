/* terms/grid.h -- code shared by terms on a grid of tokens in row-major order. Signs differ: axial uses key - query,
 * swin and axialkey use query - key.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param grid_params[] = {
    {"extra", RP_PARAM_INT, RPI_FIELD(extra), .max = 1, .meaning = "1: token 0 is a class token"}, /* only for swin */
    {"grid", RP_PARAM_GRID, offsetof(rp_term, grid_h), "grid_h grid_w", .required = true, .min = 1, .max = 1 << 20,
     .meaning = "rows and columns of tokens"},
    {0},
};

static rp_status grid_lengths(const rp_desc *d, const rp_term *t, int32_t n, int64_t extra)
{
    const int64_t tokens = t->grid_h * t->grid_w + extra;
    if (d->len_q != tokens || d->len_k != tokens)
        return rpi_fail(RP_E_SHAPE,
                        "terms[%d].grid is %lldx%lld, which has %lld tokens%s, but there are %lld queries and %lld "
                        "keys; the numbers must be equal",
                        (int)n, (long long)t->grid_h, (long long)t->grid_w, (long long)tokens,
                        extra ? " with the class token" : "", (long long)d->len_q, (long long)d->len_k);
    if (d->q_offset != 0)
        return rpi_fail(RP_E_RANGE, "terms[%d].grid: desc.q_offset is %lld; it must be 0 with a grid", (int)n,
                        (long long)d->q_offset);
    return RP_OK;
}

static rp_status grid_check(const rp_desc *d, rp_term *t, int32_t n)
{
    return grid_lengths(d, t, n, t->kind == RP_TERM_SWIN ? t->extra : 0);
}

/* Check again at each call, because a flexible plan gets its lengths from the call. */
static rp_status grid_check_arrays(const rp_desc *d, const rp_term *t, const rpi_view *array, int32_t n)
{
    (void)array;
    return grid_lengths(d, t, n, t->kind == RP_TERM_SWIN ? t->extra : 0);
}

/* Return the row of token i minus the row of token j, shifted to start at 0. */
static int64_t grid_rows(const rp_term *t, int64_t i, int64_t j)
{
    return i / t->grid_w - j / t->grid_w + t->grid_h - 1;
}

/* Return the column of token i minus the column of token j, shifted to start at 0. */
static int64_t grid_columns(const rp_term *t, int64_t i, int64_t j)
{
    return i % t->grid_w - j % t->grid_w + t->grid_w - 1;
}

static int64_t grid_entries(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return (2 * t->grid_h - 1) * (2 * t->grid_w - 1) + (t->kind == RP_TERM_SWIN ? 3 * t->extra : 0);
}
