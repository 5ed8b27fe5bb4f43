/* terms/lookup.h -- a table read by an array of indices: table[h, indices[b,h,i,j]]. Any relation of tokens, such as
 * the distances in a graph, that has few values. Ying et al. 2021 (Graphormer), section 3.1.2.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param lookup_params[] = {
    {"entries", RP_PARAM_INT, RPI_FIELD(integer[0]), .unset = "the length of table", .min = 1, .max = 0x1p40,
     .meaning = "number of entries of the table"},
    {0},
};

static int lookup_sizes(rp_term *t, const rp_array *a)
{
    take_size(&t->integer[0], &a[0], 1, 1);
    return t->integer[0] == 0 && a[0].data ? 0 : -1;
}

static void lookup_usual_sizes(rp_term *t, int64_t len_k)
{
    (void)len_k;
    t->integer[0] = t->integer[0] ? t->integer[0] : 32;
}

static int64_t lookup_entry(const rpi_view *indices, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return rpi_integer(indices->data, indices->dtype, rpi_index(indices, b, h, i, j));
}

/* Return true if one of n numbers exceeds `last`. Vectors are compared as signed numbers, with the sign bit changed:
 * processors lack other comparisons. S is T with a sign. */
#define LOOKUP_ABOVE(NAME, T, S)                                                                                       \
    static bool NAME(const T *x, int64_t n, T last)                                                                    \
    {                                                                                                                  \
        typedef S vector __attribute__((vector_size(16)));                                                             \
        typedef S loose __attribute__((vector_size(16), aligned(sizeof(S)), may_alias));                               \
        const S sign = (S)((T)1 << (8 * sizeof(T) - 1));                                                               \
        const int64_t lanes = 16 / sizeof(T);                                                                          \
        const vector top = (vector){0} + (S)((S)last ^ sign);                                                          \
        vector above = {0};                                                                                            \
        int64_t c = 0;                                                                                                 \
        for (; c + lanes <= n; c += lanes)                                                                             \
            above |= ((*(const loose *)(x + c) ^ sign) > top);                                                         \
        bool any = false;                                                                                              \
        for (int64_t m = 0; m < lanes; m++)                                                                            \
            any |= above[m] != 0;                                                                                      \
        for (; c < n; c++)                                                                                             \
            any |= x[c] > last;                                                                                        \
        return any;                                                                                                    \
    }
LOOKUP_ABOVE(lookup_above_1, uint8_t, int8_t)
LOOKUP_ABOVE(lookup_above_2, uint16_t, int16_t)
LOOKUP_ABOVE(lookup_above_4, uint32_t, int32_t)
LOOKUP_ABOVE(lookup_above_8, uint64_t, int64_t)
#undef LOOKUP_ABOVE

/* Return true if one of n adjacent indices is no entry. Negative ones are compared as large ones. */
static bool lookup_any_wrong(const void *x, rp_dtype dtype, int64_t n, int64_t entries)
{
    const bool is_signed = dtype == RP_I8 || dtype == RP_I16 || dtype == RP_I32 || dtype == RP_I64;
    const uint64_t max = UINT64_MAX >> (64 - 8 * (int)rp_dtype_size(dtype) + is_signed),
                   last = (uint64_t)entries - 1 < max ? (uint64_t)entries - 1 : max;
    switch (rp_dtype_size(dtype)) {
    case 1: return lookup_above_1(x, n, (uint8_t)last);
    case 2: return lookup_above_2(x, n, (uint16_t)last);
    case 4: return lookup_above_4(x, n, (uint32_t)last);
    default: return lookup_above_8(x, n, last);
    }
}

/* Return the first key of row (b, h, i) whose index is no entry, or -1. */
static int64_t lookup_wrong_key(const rpi_view *v, int64_t entries, int64_t b, int64_t h, int64_t i)
{
    const int64_t n = v->len[3];
    const char *row = (const char *)v->data + rpi_index(v, b, h, i, 0) * (int64_t)rp_dtype_size(v->dtype);
    const bool maybe = (n > 1 && v->stride[3] != 1) || lookup_any_wrong(row, v->dtype, n, entries);
    for (int64_t j = 0; maybe && j < n; j++) {
        const int64_t e = lookup_entry(v, b, h, i, j);
        if (e < 0 || e >= entries)
            return j;
    }
    return -1;
}

static rp_status lookup_check_arrays(const rp_desc *d, const rp_term *t, const rpi_view *array, int32_t n)
{
    const rpi_view *v = &array[1];
    const int64_t entries = t->integer[0];
    (void)d;
    for (int64_t x = 0; x < v->len[0] * v->len[1] * v->len[2]; x++) {
        const int64_t b = x / v->len[2] / v->len[1], h = x / v->len[2] % v->len[1], i = x % v->len[2],
                      j = lookup_wrong_key(v, entries, b, h, i);
        if (j >= 0)
            return rpi_fail(RP_E_RANGE,
                            "term[%d].indices[%lld, %lld, %lld, %lld] (of lookup) is %lld; it must be 0 to %lld, "
                            "because the table has %lld entries",
                            (int)n, (long long)b, (long long)h, (long long)i, (long long)j,
                            (long long)lookup_entry(v, b, h, i, j), (long long)entries - 1, (long long)entries);
    }
    return RP_OK;
}

static int64_t lookup_entries(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return t->integer[0];
}

static int64_t lookup_index(const rpi_pair *p)
{
    return lookup_entry(&p->array[1], p->b, p->h, p->i, p->j);
}

static double lookup_value(const rpi_pair *p, int64_t e)
{
    return rpi_at(&p->array[0], p->h, e, 0, 0);
}

static void lookup_grad(const rpi_pair *p, int64_t e, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, e, 0, 0, g);
}

static int lookup_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "table[%lld, %lld]", (long long)p->h,
                    (long long)lookup_entry(&p->array[1], p->b, p->h, p->i, p->j));
}

RPI_SCHEME(LOOKUP, .form = RPI_INDEX, .index_array = 1,
           .facts = {.formula = "table[h, indices[b,h,i,j]]",
                     .about = "a table read by an array of indices",
                     .samples = {"entries=7", "entries=300"},
                     .bench = {"entries=64"}},
           .array = {{"table", .shape = "[H?, entries]", .shows = "entry"},
                     {"indices", RP_USE_INDEX, .shape = "[B?, H?, Lq, Lk]", .draw = {.over = "entries"}}},
           .params = lookup_params, .sizes = lookup_sizes, .usual_sizes = lookup_usual_sizes,
           .check_arrays = lookup_check_arrays, .entries = lookup_entries, .index = lookup_index, .entry = lookup_value,
           .entry_grad = lookup_grad, .example = lookup_example)
