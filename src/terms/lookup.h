/* terms/lookup.h -- a table read by an array of indices: table[h, indices[b,h,i,j]]. Any relation of tokens, such as
 * the distances in a graph, that has few values. Ying et al. 2021 (Graphormer), section 3.1.2.
 * p->prepared is the table of each head: [H][entries].
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

/* For n keys, let e be their indices, the elements at `at` and on of an array. `T` is the type of the indices. */
#define LOOKUP_EACH(T, work)                                                                                           \
    for (int64_t c = 0; c < n; c++) {                                                                                  \
        const int64_t e = (int64_t)((const T *)v->data)[at + c * v->stride[3]];                                        \
        work;                                                                                                          \
    }                                                                                                                  \
    break

/* One loop for each type that indices usually have. */
#define LOOKUP_ROW(work)                                                                                               \
    switch (v->dtype) {                                                                                                \
    case RP_U8: LOOKUP_EACH(uint8_t, work);                                                                            \
    case RP_U16: LOOKUP_EACH(uint16_t, work);                                                                          \
    case RP_I32: LOOKUP_EACH(int32_t, work);                                                                           \
    case RP_I64: LOOKUP_EACH(int64_t, work);                                                                           \
    default:                                                                                                           \
        for (int64_t c = 0; c < n; c++) {                                                                              \
            const int64_t e = rpi_integer(v->data, v->dtype, at + c * v->stride[3]);                                   \
            work;                                                                                                      \
        }                                                                                                              \
    }

/* Return the first key of row (b, h, i) whose index is no entry, or -1. */
static int64_t lookup_wrong_key(const rpi_view *v, int64_t entries, int64_t b, int64_t h, int64_t i)
{
    const int64_t at = rpi_index(v, b, h, i, 0), n = v->len[3];
    bool wrong = false;
    LOOKUP_ROW(wrong |= e < 0 || e >= entries)
    for (int64_t j = 0; wrong && j < n; j++) {
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

static int64_t lookup_size(const rp_desc *d, const rp_term *t)
{
    int64_t size;
    return rpi_mul(d->heads, t->integer[0], 1, &size) ? size : RPI_TOO_LARGE;
}

static void lookup_prepare(const rp_desc *d, const rp_term *t, const rpi_view *array, double *to)
{
    for (int64_t h = 0; h < d->heads; h++)
        for (int64_t e = 0; e < t->integer[0]; e++)
            *to++ = rpi_at(&array[0], h, e, 0, 0);
}

static double lookup_pair(const rpi_pair *p)
{
    return p->prepared[p->h * p->term->integer[0] + lookup_entry(&p->array[1], p->b, p->h, p->i, p->j)];
}

static void lookup_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, lookup_entry(&p->array[1], p->b, p->h, p->i, p->j), 0, 0, g);
}

static void lookup_row(const rpi_pair *p, int64_t j0, int64_t n, double *to)
{
    const double *table = p->prepared + p->h * p->term->integer[0];
    const rpi_view *v = &p->array[1];
    const int64_t at = rpi_index(v, p->b, p->h, p->i, j0);
    LOOKUP_ROW(to[c] = table[e])
}

static int64_t lookup_sums_size(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return t->integer[0];
}

static void lookup_row_grad(const rpi_pair *p, int64_t j0, int64_t n, const double *g, double *sums)
{
    const rpi_view *v = &p->array[1];
    const int64_t at = rpi_index(v, p->b, p->h, p->i, j0);
    LOOKUP_ROW(sums[e] += g[c])
}

static void lookup_reduce_sums(const rpi_pair *p, const double *sums, const rpi_sums *to)
{
    for (int64_t e = 0; e < p->term->integer[0]; e++)
        rpi_add(to, 0, p->h, e, 0, 0, sums[e]);
}

static int lookup_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "table[%lld, %lld]", (long long)p->h,
                    (long long)lookup_entry(&p->array[1], p->b, p->h, p->i, p->j));
}

RPI_SCHEME(LOOKUP, .form = RPI_TILE,
           .facts = {.formula = "table[h, indices[b,h,i,j]]",
                     .about = "a table read by an array of indices",
                     .samples = {"entries=7", "entries=300"},
                     .bench = {"entries=64"}},
           .array = {{"table", .shape = "[H?, entries]", .shows = "entry"},
                     {"indices", RP_USE_INDEX, .shape = "[B?, H?, Lq, Lk]", .draw = {.over = "entries"}}},
           .params = lookup_params, .sizes = lookup_sizes, .usual_sizes = lookup_usual_sizes,
           .check_arrays = lookup_check_arrays, .pair = lookup_pair, .grad = lookup_grad, .row = lookup_row,
           .sums_size = lookup_sums_size, .row_grad = lookup_row_grad, .reduce_sums = lookup_reduce_sums,
           .prepare_size = lookup_size, .prepare = lookup_prepare, .example = lookup_example)
