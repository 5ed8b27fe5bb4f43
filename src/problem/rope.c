/* problem/rope.c -- RoPE's frequencies in a call. With scaling dynamic or longrope they depend on a length, which is
 * found here for each batch entry, or for each segment: the largest position of a key that some query attends to,
 * plus 1. Keys that are masked for every query therefore have no effect, and neither have other batch entries.
 * Independent of sources, kernels and the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct labelled {
    int64_t label, token;
} labelled;

/* Queries or keys that share a length, in ascending order: tokens of list, or 0 … n-1 if list is NULL. */
typedef struct tokens {
    const labelled *list;
    int64_t n;
} tokens;

static int64_t token_at(const tokens *t, int64_t x)
{
    return t->list ? t->list[x].token : x;
}

double rpi_rope_angle(const rpi_args *args, bool key, int64_t b, int64_t g, int64_t n, int64_t c)
{
    const int given = rpi_rope_angles_given(args, key);
    if (given >= 0)
        return rpi_at(&args->term[args->plan->rotate][given], b, g, n, c);
    double angle = rpi_rope_position(args, key, b, 0, n) * rpi_rope_frequency(args, b, n, g, 0)[c];
    for (int64_t axis = 1; axis < rpi_rope_axes(args); axis++)
        angle += rpi_rope_position(args, key, b, axis, n) * rpi_rope_frequency(args, b, n, g, axis)[c];
    return angle;
}

void rpi_rope_add(const rpi_args *args, const rpi_sums *to, int64_t axis, int64_t g, int64_t c, double x)
{
    if (args->plan->terms[args->plan->rotate].integer[0] > 0)
        rpi_add(to, RPI_ROPE_FREQUENCIES, axis, g, c, 0, x);
    else
        rpi_add(to, RPI_ROPE_FREQUENCIES, g, c, 0, 0, x);
}

void rpi_rope_angle_grad(const rpi_args *args, bool key, int64_t b, int64_t g, int64_t n, int64_t c, double x,
                         const rpi_sums *to)
{
    const int given = rpi_rope_angles_given(args, key);
    if (given >= 0) {
        rpi_add(to, given, b, g, n, c, x);
        return;
    }
    for (int64_t axis = 0; axis < rpi_rope_axes(args); axis++)
        rpi_rope_add(args, to, axis, g, c, x * rpi_rope_position(args, key, b, axis, n));
}

enum { KEYS = 64 }; /* keys that are checked together */

/* Return the position of key j that counts for the length. */
static double position_of(const rpi_args *args, int64_t b, int64_t j)
{
    const bool restarts = args->segment_start && !rpi_rope_positions_given(args, true);
    return rpi_rope_position(args, true, b, 0, j) -
           (double)(restarts ? args->segment_start[b * args->desc.len_k + j] : 0);
}

/* Set keep[n] to 1 for the keys j0 + n that query i of head h attends to, else to 0. */
static void keys_of_row(const rpi_args *args, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, uint8_t *keep)
{
    int64_t lo, hi;
    rpi_interval(args, b, i, &lo, &hi);
    lo = rpi_clamp(lo - j0, 0, count);
    hi = rpi_clamp(hi - j0, lo, count);
    memset(keep, 0, (size_t)count);
    if (lo == hi)
        return;
    memset(keep + lo, 1, (size_t)(hi - lo));
    rpi_mask_keep(args, b, h, i, j0, count, keep);
    for (int32_t t = 0; t < args->desc.n_terms; t++)
        for (int64_t n = lo; args->plan->scheme[t]->in_place && n < hi; n++)
            if (keep[n] && rpi_at(&args->term[t][0], rpi_batch_entry(args, t, b), h, i, j0 + n) == -INFINITY)
                keep[n] = 0;
}

/* Return one past the last key that intervals let some query attend to. */
static int64_t end_of(const rpi_args *args, int64_t b, const tokens *queries)
{
    int64_t lo, hi, end = 0;
    if (!args->plan->intervals)
        return args->desc.len_k;
    for (int64_t x = 0; x < queries->n; x++) {
        rpi_interval(args, b, token_at(queries, x), &lo, &hi);
        end = rpi_max(end, lo < hi ? hi : 0);
    }
    return end;
}

/* Clear wanted[n] where a mask hides key j0 + n from all queries in the same way. */
static void hide_same(const rpi_args *args, int64_t b, int64_t j0, int64_t count, uint8_t *wanted)
{
    for (int32_t n = 0; n < args->desc.n_masks; n++) {
        const rpi_mask_row row = {.mask = &args->desc.masks[n], .array = &args->mask[n], .b = b};
        if (args->plan->mask_entry[n]->same_rows)
            args->plan->mask_entry[n]->pairs(&row, j0, count, wanted);
    }
}

/* Raise *largest to the largest position among the wanted keys of j0 … j0+count-1 that some query attends to. The
 * queries at these keys come first, because they usually attend to all of them. */
static void attended(const rpi_args *args, int64_t b, const tokens *queries, int64_t first, int64_t j0, int64_t count,
                     uint8_t *wanted, double *largest)
{
    const rp_desc *d = &args->desc;
    uint8_t keep[KEYS];
    int64_t left = 0;
    for (int64_t n = 0; n < count; n++)
        left += wanted[n];
    for (int64_t x = 0; x < queries->n * d->heads && left > 0; x++) {
        const int64_t at = first - x / d->heads, i = token_at(queries, at < 0 ? at + queries->n : at);
        keys_of_row(args, b, x % d->heads, i, j0, count, keep);
        for (int64_t n = 0; n < count; n++)
            if (keep[n] && wanted[n]) {
                wanted[n] = 0;
                left--;
                *largest = fmax(*largest, position_of(args, b, j0 + n));
            }
    }
}

/* Return the length of some keys of batch entry b, to which only these queries may attend. */
static double length_of(const rpi_args *args, int64_t b, const tokens *queries, const tokens *keys)
{
    const int64_t end = end_of(args, b, queries);
    double largest = -1; /* smaller positions do not matter */
    for (int64_t to = keys->n, from; to > 0; to = from) {
        uint8_t wanted[KEYS] = {0};
        const int64_t last = token_at(keys, to - 1), j0 = rpi_max(last - KEYS + 1, 0), count = last - j0 + 1;
        for (from = to; from > 0 && token_at(keys, from - 1) >= j0; from--) {
            const int64_t j = token_at(keys, from - 1);
            wanted[j - j0] = j < end && position_of(args, b, j) > largest;
        }
        hide_same(args, b, j0, count, wanted);
        const int64_t own = keys->list ? to - 1 : last - rpi_position(args, b, 0);
        attended(args, b, queries, rpi_clamp(own, 0, queries->n - 1), j0, count, wanted, &largest);
    }
    return largest + 1;
}

static int by_label(const void *a, const void *b)
{
    const labelled *x = a, *y = b;
    return x->label != y->label ? (x->label < y->label ? -1 : 1) : (x->token > y->token) - (x->token < y->token);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lengths of a call: those of batch entries [B], or of segments in [B][Lk] numbers, and memory to find them. */
typedef struct lengths {
    double *of, *sorted;
    int64_t n;
    labelled *order; /* [Lk] the tokens of a batch entry, by segment; NULL without segments */
} lengths;

/* Find the length of each segment of batch entry b, and let rope_set of its tokens refer to it. */
static void lengths_of_segments(const rpi_args *args, const rpi_view *segments, int64_t b, lengths *l)
{
    const int64_t n = args->desc.len_k;
    for (int64_t j = 0; j < n; j++)
        l->order[j] = (labelled){rpi_integer(segments->data, segments->dtype, rpi_index(segments, b, j, 0, 0)), j};
    qsort(l->order, (size_t)n, sizeof *l->order, by_label);
    for (int64_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && l->order[to].label == l->order[from].label; to++) {
        }
        const tokens own = {l->order + from, to - from};
        for (int64_t x = from; x < to; x++)
            args->rope_set[b * n + l->order[x].token] = l->n;
        l->of[l->n++] = rpi_rope_length(&args->plan->terms[args->plan->rotate], length_of(args, b, &own, &own));
    }
}

/* Sort the lengths, each once, and let rope_set refer to them. */
static void number_sets(const rpi_args *args, int64_t n_sets, lengths *l)
{
    int64_t unique = 0;
    memcpy(l->sorted, l->of, (size_t)l->n * sizeof *l->of);
    qsort(l->sorted, (size_t)l->n, sizeof *l->sorted, by_size);
    for (int64_t x = 0; x < l->n; x++)
        if (x == 0 || l->sorted[x] != l->sorted[unique - 1])
            l->sorted[unique++] = l->sorted[x];
    for (int64_t x = 0; x < n_sets; x++) {
        const double *found = bsearch(&l->of[args->rope_set[x]], l->sorted, (size_t)unique, sizeof *l->sorted, by_size);
        args->rope_set[x] = found - l->sorted;
    }
    l->n = unique;
}

/* Return a limit of all lengths of the call. */
static double longest_possible(const rpi_args *args)
{
    const rp_desc *d = &args->desc;
    double longest = (double)d->len_k;
    for (int64_t n = 0; n < d->batch * d->len_k && rpi_rope_positions_given(args, true); n++)
        longest = fmax(longest, rpi_rope_position(args, true, n / d->len_k, 0, n % d->len_k) + 1);
    return longest;
}

static void lay_out(rpi_args *args, rpi_arena *a, const rpi_view *segments, lengths *l)
{
    const int64_t batch = args->desc.batch, per_entry = segments ? args->desc.len_k : 1;
    args->rope_set = rpi_arena_take(a, batch, per_entry, sizeof *args->rope_set);
    l->of = rpi_arena_take(a, batch, per_entry, sizeof *l->of);
    l->sorted = rpi_arena_take(a, batch, per_entry, sizeof *l->sorted);
    l->order = segments ? rpi_arena_take(a, per_entry, 1, sizeof *l->order) : NULL;
}

/* Find the lengths of a call whose frequencies depend on them. */
static rp_status find_lengths(rpi_args *args, rpi_arena *a, const rpi_view *segments, lengths *l)
{
    const rp_desc *d = &args->desc;
    lay_out(args, a, segments, l);
    const rp_status status = rpi_arena_alloc(a, false, "the lengths of RoPE");
    if (status != RP_OK)
        return status;
    lay_out(args, a, segments, l);
    for (int64_t b = 0; b < d->batch; b++) {
        if (segments) {
            lengths_of_segments(args, segments, b, l);
            continue;
        }
        args->rope_set[b] = l->n;
        l->of[l->n++] = rpi_rope_length(&args->plan->terms[args->plan->rotate],
                                        length_of(args, b, &(tokens){NULL, d->len_q}, &(tokens){NULL, d->len_k}));
    }
    number_sets(args, d->batch * (segments ? d->len_k : 1), l);
    return RP_OK;
}

/* Lay out the memory of the call: frequencies, short_factor, long_factor, and rope_set if there are several sets. */
static int64_t *take_memory(rpi_args *args, int64_t rows, int64_t n_sets, double *factor[2])
{
    rpi_arena *a = &args->frequencies;
    const int64_t pairs = args->plan->terms[args->plan->rotate].dim / 2;
    args->frequency = rpi_arena_take(a, rows, pairs, sizeof(double));
    factor[0] = rpi_arena_take(a, pairs, 1, sizeof(double));
    factor[1] = rpi_arena_take(a, pairs, 1, sizeof(double));
    return rpi_arena_take(a, n_sets, 1, sizeof *args->rope_set);
}

static rp_status compute(rpi_args *args, const double *length, int64_t sets, int64_t n_sets)
{
    const rp_term *t = &args->desc.terms[args->plan->rotate];
    const rpi_view *array = args->term[args->plan->rotate];
    double *factor[2];
    const rpi_view *given = rpi_rope_frequencies_given(args);
    const int64_t heads = t->integer[0] > 0 ? given->len[1] : given->len[0];
    args->rope_heads = given->data ? heads : 1;
    const int64_t rows = rpi_max(sets, given->data ? rpi_rope_axes(args) * args->rope_heads : 1);
    take_memory(args, rows, n_sets, factor);
    rp_status status = rpi_arena_alloc(&args->frequencies, false, "the frequencies of RoPE");
    if (status != RP_OK)
        return status;
    int64_t *set = take_memory(args, rows, n_sets, factor);
    if (n_sets > 0)
        memcpy(set, args->rope_set, (size_t)n_sets * sizeof *set);
    args->rope_set = n_sets > 0 ? set : NULL;
    for (int x = 0; x < 2; x++)
        for (int64_t c = 0; c < t->dim / 2 && array[RPI_ROPE_SHORT_FACTOR + x].data; c++)
            factor[x][c] = rpi_at(&array[RPI_ROPE_SHORT_FACTOR + x], c, 0, 0, 0);
    for (int64_t s = 0; s < sets && status == RP_OK; s++)
        status = rp_rope_frequencies(t, length[s], array[RPI_ROPE_SHORT_FACTOR].data ? factor[0] : NULL,
                                     array[RPI_ROPE_LONG_FACTOR].data ? factor[1] : NULL,
                                     args->frequency + s * (t->dim / 2), &args->rope_factor);
    if (given->data)
        for (int64_t x = 0; x < rows * (t->dim / 2); x++)
            args->frequency[x] = rpi_rope_frequency_at(t, given, x / (t->dim / 2) / args->rope_heads,
                                                       x / (t->dim / 2) % args->rope_heads, x % (t->dim / 2));
    return status;
}

rp_status rpi_rope_prepare(rpi_args *args, const rpi_view *segments)
{
    const rp_term *t = &args->desc.terms[args->plan->rotate];
    const bool fixed = args->prepared_only || rpi_rope_is_fixed(t);
    const double longest = fixed ? 0 : longest_possible(args);
    const bool same = rpi_rope_length(t, 0) == rpi_rope_length(t, longest);
    rpi_arena scratch = {0};
    lengths l = {0};
    rp_status status = same ? RP_OK : find_lengths(args, &scratch, segments, &l);
    if (status == RP_OK)
        status = l.n > 1 ? compute(args, l.sorted, l.n, args->desc.batch * (segments ? args->desc.len_k : 1))
                         : compute(args, l.n == 1 ? l.sorted : &longest, 1, 0);
    rpi_arena_free(&scratch);
    return status;
}
