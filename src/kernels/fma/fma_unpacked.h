/* kernels/fma/fma_unpacked.h -- products of one group of rows with unpacked keys and values, for few queries.
 * Parameters: VL, NR, SUM_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "kernels/softmax.h" /* lets an editor parse this file on its own */
#endif

/* Return true if reading keys and values from the caller's arrays is faster than packing them: if no other query head
 * uses the same keys. */
static bool unpacked_pays(int64_t per_kv, int64_t rows)
{
    (void)rows; /* allows any number of rows up to MR */
    return per_kv == 1;
}

/* Return true if keys can be read in place: they need no rotation, have the arithmetic type or 16 bits, and are stored
 * as [channels][keys] if channel_major is set, else as rows. */
static bool keys_in_place(const rpi_call *c, bool channel_major)
{
    const rpi_view *v = &c->args->k;
    return rpi_is_transposed(v) == channel_major && c->plan->rotate < 0 &&
           (v->dtype == (RPI_F64 ? RP_F64 : RP_F32) || (!RPI_F64 && rpi_floating_size(v->dtype) == 2));
}

/* Return keys j … j+NR-1 as a panel in the caller's array, whose channels are *step elements apart. Return NULL if the
 * array has another layout. */
static const void *panel_of(const rpi_call *c, int64_t b, int64_t g, int64_t j, int64_t *step)
{
    const rpi_view *v = &c->args->k;
    if (!keys_in_place(c, true) || j + NR > c->args->desc.len_k || !on_one_page(v, j, NR))
        return NULL;
    *step = v->stride[3];
    return rpi_row_of(v, b, g, j);
}

/* SINGLE_VECTORS: the most vectors of keys that a single row processes together. CHANNELS_AHEAD: how many channels
 * ahead to prefetch. */
enum { SINGLE_VECTORS = 8, CHANNELS_AHEAD = 16 };

/* Load VL consecutive keys of one channel from an array [channels][keys]. If `some` is set, load only the first n and
 * set the other lanes to 0. */
static inline __attribute__((always_inline)) vf load_channel_major(const char *at, rp_dtype dtype, bool some, int64_t n)
{
#if !RPI_F64
    if (dtype != RP_F32) {
        const uint16_t *halves = (const uint16_t *)(const void *)at;
        return some ? load_some_halves(halves, dtype, n) : load_halves(halves, dtype);
    }
#endif
    (void)dtype;
    return some ? vf_load_some((const real *)(const void *)at, n) : vf_load((const real *)(const void *)at);
}

/* Convert a panel of f16 or bf16, whose channels are `step` elements apart, to a panel in the layout of pack_keys. */
static void widen_panel(rp_dtype dtype, const uint16_t *from, int64_t step, int64_t dim, real *to, magnitude *w)
{
#if RPI_F64
    (void)dtype, (void)from, (void)step, (void)dim, (void)to, (void)w;
#else
    magnitude all = *w;
    for (int64_t d = 0; d < dim; d++, from += step, to += NR) {
        RPI_UNROLL
        for (int n = 0; n < NR; n += 32)
            __builtin_prefetch((const void *)((uintptr_t)(from + n) + (uintptr_t)(2 * CHANNELS_AHEAD * step)), 0, 2);
        RPI_UNROLL
        for (int n = 0; n < ROW_VECTORS; n++) {
            const vf y = load_halves(from + n * VL, dtype);
            note_magnitude(&all, y);
            vf_store(to + n * VL, y);
        }
    }
    *w = all;
#endif
}

/* Compute the scores of one row with `vectors` vectors of keys in the caller's array [channels][keys], like score_rows.
 * The last vector has `last` keys. Channels are `step` bytes apart. For lanes past the last key, the result is the
 * bias. Near the last channels, the prefetch runs into the next head if that follows in memory. */
static inline __attribute__((always_inline)) void channel_major_keys(int vectors, rp_dtype dtype, const real *q,
                                                                     const char *k, int64_t step, int64_t dim,
                                                                     const real *bias, real *s, int64_t last,
                                                                     magnitude *w)
{
    const int bytes = VL * (RPI_F64 ? 8 : dtype == RP_F32 ? 4 : 2);
    vf sum[SINGLE_VECTORS];
    magnitude all = *w;
    RPI_UNROLL
    for (int n = 0; n < vectors; n++)
        sum[n] = bias ? vf_load(bias + n * VL) : vf_set1(0);
    for (int64_t d = 0; d < dim; d++, k += step) {
        const vf x = vf_set1(q[d]);
        RPI_UNROLL
        for (int n = 0; n < vectors * bytes; n += 64)
            __builtin_prefetch((const void *)((uintptr_t)(k + n) + (uintptr_t)(CHANNELS_AHEAD * step)), 0, 2);
        RPI_UNROLL
        for (int n = 0; n < vectors; n++) {
            const vf y = load_channel_major(k + n * bytes, dtype, n + 1 == vectors, last);
            note_magnitude(&all, y);
            sum[n] = vf_fma(x, y, sum[n]);
        }
    }
    RPI_UNROLL
    for (int n = 0; n < vectors; n++)
        vf_store(s + n * VL, sum[n]);
    *w = all;
}

/* Define a function that computes the scores of one row with n consecutive keys, at most SINGLE_VECTORS vectors. `at`
 * is the first key. */
#define SCORE_IN_PLACE(NAME, DTYPE)                                                                                    \
    static void NAME(const block *k, const char *at, int64_t step, int64_t n, const real *bias, real *s, magnitude *w) \
    {                                                                                                                  \
        const int64_t D = k->c->args->desc.dim_k, last = (n - 1) % VL + 1;                                             \
        switch ((n + VL - 1) / VL) {                                                                                   \
        case 1: channel_major_keys(1, DTYPE, k->q, at, step, D, bias, s, last, w); break;                              \
        case 2: channel_major_keys(2, DTYPE, k->q, at, step, D, bias, s, last, w); break;                              \
        case 3: channel_major_keys(3, DTYPE, k->q, at, step, D, bias, s, last, w); break;                              \
        case 4: channel_major_keys(4, DTYPE, k->q, at, step, D, bias, s, last, w); break;                              \
        case 5: channel_major_keys(5, DTYPE, k->q, at, step, D, bias, s, last, w); break;                              \
        case 6: channel_major_keys(6, DTYPE, k->q, at, step, D, bias, s, last, w); break;                              \
        case 7: channel_major_keys(7, DTYPE, k->q, at, step, D, bias, s, last, w); break;                              \
        default: channel_major_keys(8, DTYPE, k->q, at, step, D, bias, s, last, w); break;                             \
        }                                                                                                              \
    }
SCORE_IN_PLACE(score_in_place, RP_F32) /* or f64 */
#if RPI_F64
#define score_f16_in_place  score_in_place
#define score_bf16_in_place score_in_place
#else
SCORE_IN_PLACE(score_f16_in_place, RP_F16)
SCORE_IN_PLACE(score_bf16_in_place, RP_BF16)
#endif

/* Compute the scores of a tile for a single row from keys stored as [channels][keys], up to SINGLE_VECTORS vectors of
 * keys at a time. Return false if a key is non-finite or large; k->s is then undefined. */
static bool single_scores(block *k, const tile *t, const real *bias)
{
    const rpi_view *v = &k->c->args->k;
    const int64_t g = k->h / (k->c->args->desc.heads / k->c->args->desc.kv_heads), len_k = k->c->args->desc.len_k;
    const int64_t step = v->stride[3] * rpi_floating_size(v->dtype);
    __typeof__(&score_in_place) const score = v->dtype == RP_F16    ? score_f16_in_place
                                              : v->dtype == RP_BF16 ? score_bf16_in_place
                                                                    : score_in_place;
    magnitude w = {vf_set1(0)};
    for (int64_t col = t->from[0], n; col < t->to[0]; col += n) {
        const int64_t j = t->tile0 + col, there = rpi_min(t->to[0] - col, len_k - j);
        n = rpi_min(there, SINGLE_VECTORS * VL);
        if (v->page)
            n = rpi_min(n, v->page_keys - j % v->page_keys);
        score(k, rpi_row_of(v, k->b, g, j), step, n, bias ? bias + col : NULL, k->s + col, &w);
        n = rpi_round_up(n, VL); /* changes only the last n */
    }
    return !is_immoderate(&w);
}

#if defined(vf_columns) && !RPI_F64
/* Compute the scores of one row with `group` vectors of keys, whose rows of n words begin at `from` and are `gap` words
 * apart. Keys are transposed in registers as 32-bit words, each one f32 or two 16-bit elements. If a key may be
 * non-finite or large, a lane of *bad becomes NaN or infinite. */
static inline __attribute__((always_inline)) void transposed_group(rp_dtype dtype, int group, const real *row,
                                                                   const real *from, int64_t gap, int64_t n,
                                                                   prefetch_walk ahead, const real *bias, real *s,
                                                                   vf *bad)
{
    const int per_word = dtype == RP_F32 ? 1 : 2;
    vf sum[NR / VL], y[4];
    RPI_UNROLL
    for (int g = 0; g < group; g++)
        sum[g] = bias ? vf_load(bias + g * VL) : vf_set1(0);
    for (int64_t x = 0; x < n; x += 4) {
        RPI_UNROLL
        for (int line = 0; line < group * VL / 4; line++) /* as many bytes as the step reads */
            prefetch_next(&ahead);
        RPI_UNROLL
        for (int g = 0; g < group; g++) {
            vf_columns(from + g * VL * gap + x, gap, y);
            RPI_UNROLL
            for (int c = 0; c < 4; c++) {
                const real *q = row + (x + c) * per_word;
                if (per_word == 1) {
                    sum[g] = vf_fma(vf_set1(q[0]), y[c], sum[g]);
                } else {
                    sum[g] = vf_fma(vf_set1(q[0]), widen_halves((vu)y[c] & 0xffffu, dtype), sum[g]);
                    sum[g] = vf_fma(vf_set1(q[1]), widen_halves((vu)y[c] >> 16, dtype), sum[g]);
                }
            }
        }
    }
    RPI_UNROLL
    for (int g = 0; g < group; g++) {
        *bad = vf_below(sum[g], vf_set1(INFINITY), *bad, sum[g]);
        vf_store(s + g * VL, sum[g]);
    }
}

/* Compute the scores of one row with the NR keys from j on, or with all vectors that have a key if there are fewer.
 * Return false if the keys cannot be read in place as rows, if they are on two pages, or if 4 words do not divide their
 * width (or a word their distance). */
static inline __attribute__((always_inline)) bool transposed_keys(rp_dtype dtype, const block *k, const head_rows *rows,
                                                                  int64_t j, const real *bias, real *s, vf *bad)
{
    enum { WORD = 4, WORDS = 16 / VL, HALVES = 2 * WORDS * VL <= NR ? 2 * WORDS : NR / VL };
    /* group: vectors computed together */
    const int per_word = dtype == RP_F32 ? 1 : 2, group = dtype == RP_F32 ? WORDS : HALVES;
    _Static_assert(NR % (WORDS * VL) == 0 && NR % (HALVES * VL) == 0, "a group ends where the panel does");
    const rpi_view *v = rows->v;
    const int64_t gap = v->stride[2] / per_word, n = k->c->args->desc.dim_k / per_word,
                  there = rpi_min(NR, k->c->args->desc.len_k - j);
    if (!keys_in_place(k->c, false) || !on_one_page(v, j, there) || v->stride[2] % per_word ||
        k->c->args->desc.dim_k % (4 * per_word))
        return false;
    for (int64_t r0 = 0; r0 < there;) {
        const prefetch_walk ahead = walk_from(row_ahead(rows, j + r0), n * WORD, gap * WORD);
        const real *from = (const real *)(const void *)head_row(rows, j + r0), *at = bias ? bias + r0 : NULL;
        if (r0 + group * VL <= there) {
            transposed_group(dtype, group, k->q, from, gap, n, ahead, at, s + r0, bad);
            r0 += group * VL;
        } else if (r0 + VL <= there) {
            transposed_group(dtype, 1, k->q, from, gap, n, ahead, at, s + r0, bad);
            r0 += VL;
        } else { /* copy the last keys, and replace those of the other lanes by 0 */
            real *to = k->unpacked;
            for (int64_t r = 0; r < VL; r++)
                if (r0 + r < there)
                    memcpy(to + r * n, from + r * gap, (size_t)(n * WORD));
                else
                    memset(to + r * n, 0, (size_t)(n * WORD));
            transposed_group(dtype, 1, k->q, to, n, n, ahead, at, s + r0, bad);
            r0 += VL;
        }
    }
    return true;
}

static bool single_keys(const block *k, const head_rows *rows, int64_t j, const real *bias, real *s, vf *bad)
{
    switch (rows->v->dtype) {
    case RP_F32: return transposed_keys(RP_F32, k, rows, j, bias, s, bad);
    case RP_F16: return transposed_keys(RP_F16, k, rows, j, bias, s, bad);
    case RP_BF16: return transposed_keys(RP_BF16, k, rows, j, bias, s, bad);
    default: return false;
    }
}
#else
static bool single_keys(const block *k, const head_rows *rows, int64_t j, const real *bias, real *s, vf *bad)
{
    (void)k, (void)rows, (void)j, (void)bias, (void)s, (void)bad;
    return false;
}
#endif

/* Add n weighted values, in order, to `vectors` vectors of sums of one row. Values are `step` bytes apart. */
static inline __attribute__((always_inline)) void sum_row_values(int vectors, rp_dtype dtype, const real *w, int64_t n,
                                                                 const char *v, int64_t step, real *sums)
{
    const int bytes = VL * (RPI_F64 ? 8 : dtype == RP_F32 ? 4 : 2);
    vf sum[SINGLE_VECTORS];
    RPI_UNROLL
    for (int c = 0; c < vectors; c++)
        sum[c] = vf_load(sums + c * VL);
    for (int64_t j = 0; j < n; j++, v += step) {
        const vf x = vf_set1(w[j]);
        RPI_UNROLL
        for (int c = 0; FETCH && c < vectors * bytes; c += 64)
            __builtin_prefetch((const void *)((uintptr_t)(v + c) + (uintptr_t)(AHEAD * step)), 0, 2);
        RPI_UNROLL
        for (int c = 0; c < vectors; c++)
            sum[c] = vf_fma(x, load_channel_major(v + c * bytes, dtype, false, VL), sum[c]);
    }
    RPI_UNROLL
    for (int c = 0; c < vectors; c++)
        vf_store(sums + c * VL, sum[c]);
}

/* Run sum_row_values on 1, 2, 4 or 8 vectors of channels. */
#define ROW_VALUES(NAME, DTYPE)                                                                                        \
    static void NAME(int64_t vectors, const real *w, int64_t n, const char *v, int64_t step, real *sums)               \
    {                                                                                                                  \
        switch (vectors) {                                                                                             \
        case 1: sum_row_values(1, DTYPE, w, n, v, step, sums); break;                                                  \
        case 2: sum_row_values(2, DTYPE, w, n, v, step, sums); break;                                                  \
        case 4: sum_row_values(4, DTYPE, w, n, v, step, sums); break;                                                  \
        default: sum_row_values(8, DTYPE, w, n, v, step, sums); break;                                                 \
        }                                                                                                              \
    }
ROW_VALUES(row_values, RP_F32) /* or f64 */
#if RPI_F64
#define row_f16_values  row_values
#define row_bf16_values row_values
#else
ROW_VALUES(row_f16_values, RP_F16)
ROW_VALUES(row_bf16_values, RP_BF16)
#endif

/* Return how many of `left` vectors of channels row_values sums together. */
static int64_t vectors_together(int64_t left)
{
    return left >= SINGLE_VECTORS ? SINGLE_VECTORS : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* Return true if a single row can read values in the caller's array: no page ends within a sum of SUM_KEYS, and the
 * channels are whole vectors of the arithmetic type, f16 or bf16. */
static bool row_values_in_place(const block *k)
{
    const rpi_call *c = k->c;
    const rpi_view *v = &c->args->v;
    return is_single(k) && (!v->page || v->page_keys % SUM_KEYS == 0) && c->args->desc.dim_v == c->pad_v &&
           (v->dtype == (RPI_F64 ? RP_F64 : RP_F32) || (!RPI_F64 && rpi_floating_size(v->dtype) == 2));
}

/* Add the values of up to n keys of k->products.late. */
static void add_late_values(block *k, int64_t n)
{
    late_values *l = &k->products.late;
    const rpi_call *c = k->c;
    const rpi_view *v = &c->args->v;
    const int64_t step = v->stride[2] * rpi_floating_size(v->dtype), bytes = rpi_floating_size(v->dtype);
    __typeof__(&row_values) const add = v->dtype == RP_F16    ? row_f16_values
                                        : v->dtype == RP_BF16 ? row_bf16_values
                                                              : row_values;
    while (n > 0 && l->col < l->to) {
        const int64_t past = rpi_min((l->col / SUM_KEYS + 1) * SUM_KEYS, l->to), m = rpi_min(n, past - l->col);
        const char *at = rpi_row_of(v, l->b, l->head, l->tile0 + l->col);
        for (int64_t x = 0, vectors; x < c->pad_v; x += vectors * VL) {
            vectors = vectors_together((c->pad_v - x) / VL);
            add(vectors, l->w + l->col, m, at + x * bytes, step, l->sums + x);
        }
        l->col += m;
        n -= m;
        if (l->col < past)
            return;
        real *o = l->o + (l->col - 1) / SUM_KEYS * l->sum_step;
        for (int64_t x = 0; x < c->pad_v; x += VL) {
            const vf sum = vf_fma(vf_set1(l->alpha), vf_load(o + x), vf_load(l->sums + x));
            note_magnitude(&l->size, sum);
            vf_store(o + x, sum);
            vf_store(l->sums + x, vf_set1(0));
        }
        if (l->sum_step == 0)
            l->alpha = 1;
    }
}
/* Compute k->s = in + q k^T for one group of rows and unpacked keys; in NULL: 0. Each panel is read in place, or packed
 * into k->unpacked. Return false if a key is non-finite or large; k->s is then undefined. */
static bool unpacked_scores(block *k, const tile *t, const real *const *in)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t D = d->dim_k, g = k->h / (d->heads / d->kv_heads);
    const rpi_view *v = &c->args->k;
    const head_rows rows = rows_of_head(v, k->b, g, d->len_k);
    magnitude w = {vf_set1(0)}, bad = w;
    uint8_t large = 0;
    if (is_single(k) && keys_in_place(c, true) && (!v->page || v->page_keys % VL == 0))
        return single_scores(k, t, in ? in[0] : NULL);
    for (int64_t col = t->from[0]; col < t->to[0] && !large; col += NR) {
        int64_t step = NR;
        const void *panel = panel_of(c, k->b, g, t->tile0 + col, &step);
        if (panel && rpi_floating_size(v->dtype) == sizeof(real)) {
            const bool last = col + NR >= t->to[0]; /* last panel of the head: prefetch the next head */
            const real *next = panel_of(c, k->b, last && g + 1 < d->kv_heads ? g + 1 : g,
                                        t->tile0 + (last ? t->from[0] : col + NR), &step);
            next = next ? next : panel;
            if (is_single(k))
                score_rows(1, ROW_VECTORS, k->q, D, panel, step, D, in, col, k->s + col, ROW_STEP, NULL, next, NR, &w);
            else
                score_rows(MR, ROW_VECTORS, k->q, rpi_round_up(D, VL), panel, step, D, in, col, k->s + col, ROW_STEP,
                           NULL, next, NR, &w);
            continue;
        }
        if (is_single(k) && single_keys(k, &rows, t->tile0 + col, in ? in[0] + col : NULL, k->s + col, &bad.max)) {
            add_late_values(k, NR);
            continue;
        }
        if (panel)
            widen_panel(v->dtype, panel, step, D, k->unpacked, &w);
        else
            pack_numbers(k, k->b, g, t->tile0 + col, NR, k->unpacked, &large);
        if (is_single(k))
            single_columns(k->q, D, k->unpacked, D, in, col, k->s + col, ROW_STEP, NULL, k->q, t->to[0] - col);
        else
            score_columns(k->q, rpi_round_up(D, VL), k->unpacked, D, in, col, k->s + col, ROW_STEP, NULL, k->q,
                          t->to[0] - col);
    }
    return !large && !is_immoderate(&w) && is_finite(&bad);
}

/* Add all values that are still to be added. A value that is not finite makes a sum non-finite, and the call is then
 * repeated block by block. */
static void finish_values(block *k)
{
    late_values *l = &k->products.late;
    add_late_values(k, l->to - l->col);
    if (!is_finite(&l->size))
        atomic_store(&k->c->decode->non_finite, 1);
    l->size.max = vf_set1(0);
}

/* Return the address to prefetch once the values before key j are in use: those of key j, or of key `first` of the next
 * head if j is `end`. */
static const real *values_ahead(const block *k, int64_t head, int64_t j, int64_t first, int64_t end)
{
    const rpi_view *v = &k->c->args->v;
    if (j < end)
        return rpi_row_of(v, k->b, head, j);
    return rpi_row_of(v, k->b, head + 1 < k->c->args->desc.kv_heads ? head + 1 : head, first);
}

/* Add weighted unpacked values to o for one group of rows; weigh_tile describes the parameters. If k->defer is set,
 * values that a single row reads in place are added later. k->unpacked is scratch for SUM_KEYS values. If a value, and
 * thus a sum, is not finite, set decode->non_finite; the call is then repeated by the ordinary forward pass. */
static void unpacked_values(block *k, const tile *t, int64_t keys, const real *alpha, real *o, int64_t sum_step)
{
    const rpi_call *c = k->c;
    const rpi_view *v = &c->args->v;
    const int64_t pad_v = c->pad_v, width = c->args->desc.dim_v, step = v->stride[2];
    const int64_t head = k->h / (c->args->desc.heads / c->args->desc.kv_heads), end = rpi_min(t->to[0], keys);
    const bool one_piece = !v->page || v->page_keys % SUM_KEYS == 0; /* no page ends within a sum */
    const bool in_place = v->dtype == (RPI_F64 ? RP_F64 : RP_F32) && one_piece && width == pad_v;
    magnitude w = {vf_set1(0)};
    bool large = false;
    if (row_values_in_place(k)) {
        late_values *l = &k->products.late;
        l->w = k->s;
        l->b = k->b, l->head = head, l->tile0 = t->tile0;
        l->col = t->from[0], l->to = end;
        l->o = o, l->sum_step = sum_step, l->alpha = alpha[0];
        memset(l->sums, 0, reals(1, pad_v));
        if (!k->defer)
            finish_values(k);
        return;
    }
    for (int64_t col = t->from[0], to; col < end; col = to, alpha = ones) {
        real *sums = o + col / SUM_KEYS * sum_step;
        to = rpi_min((col / SUM_KEYS + 1) * SUM_KEYS, end);
        if (in_place) {
            const real *at = rpi_row_of(v, k->b, head, t->tile0 + col), *s = k->s + col;
            const real *ahead = values_ahead(k, head, t->tile0 + to, t->tile0 + t->from[0], t->tile0 + keys);
            for (int64_t x = 0; x < pad_v; x += NR, at += NR, ahead += NR)
                BY_WIDTH(unpacked_tile, rpi_min(NR, pad_v - x),
                         (s, ROW_STEP, to - col, at, step, sums + x, pad_v, alpha, ahead));
        } else {
            uint8_t rows[SUM_KEYS];
            pack_columns(v, k->b, head, t->tile0 + col, to - col, c->args->desc.len_k, width, k->unpacked, 0, SUM_KEYS,
                         rows);
            large |= memchr(rows, 1, (size_t)(to - col)) != NULL;
            add_values(k->s, ROW_STEP, col, to, k->unpacked, -col, SUM_KEYS, sums, pad_v, alpha, -1);
        }
        for (int64_t x = 0; x < k->rows * pad_v; x += VL)
            note_magnitude(&w, vf_load(sums + x));
    }
    if (large || !is_finite(&w))
        atomic_store(&c->decode->non_finite, 1);
}
