/* ngrams.c -- an n-gram baseline for models of bytes: interpolated Kneser-Ney (Kneser, Ney 1995; Chen, Goodman 1999,
 * section 3.1.7).
 *
 * For every length up to the order, a sorted list holds the distinct strings of that length in the text. Each string
 * has two counts: how often it occurs (used for the longest strings), and how many distinct bytes precede it (used for
 * shorter strings).
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct level {
    uint64_t *key;      /* [n]: the bytes of each string as a number; the first byte is the most significant */
    uint32_t *count[2]; /* [n] each: number of occurrences; number of distinct preceding bytes */
    double discount[2];
    int64_t n;
} level;

struct nn_ngrams {
    int32_t order;
    level of[NN_MAX_ORDER + 1]; /* [k]: strings of k bytes */
};

void nn_ngrams_free(nn_ngrams *g)
{
    for (int32_t k = 1; g && k <= g->order; k++) {
        free(g->of[k].key);
        free(g->of[k].count[0]);
        free(g->of[k].count[1]);
    }
    free(g);
}

/* Sort n keys of `bytes` bytes each by radix sort. `other` is scratch for n keys. Return whichever array holds the
 * result, key or other. */
static uint64_t *sort(uint64_t *key, uint64_t *other, int64_t n, int32_t bytes)
{
    for (int32_t b = 0; b < bytes; b++) {
        int64_t from[257] = {0};
        for (int64_t x = 0; x < n; x++)
            from[(key[x] >> 8 * b & 255) + 1]++;
        for (int c = 0; c < 256; c++)
            from[c + 1] += from[c];
        for (int64_t x = 0; x < n; x++)
            other[from[key[x] >> 8 * b & 255]++] = key[x];
        uint64_t *swap = key;
        key = other;
        other = swap;
    }
    return key;
}

/* Return the index of the first string that is at least `key`. */
static int64_t first_of(const level *l, uint64_t key)
{
    int64_t from = 0, to = l->n;
    while (from < to) {
        const int64_t middle = from + (to - from) / 2;
        if (l->key[middle] < key)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Return the discount n1 / (n1 + 2 n2), where n1 strings have count 1 and n2 strings have count 2. */
static double discount_of(const uint32_t *count, int64_t n)
{
    double once = 0, twice = 0;
    for (int64_t x = 0; x < n; x++) {
        once += count[x] == 1;
        twice += count[x] == 2;
    }
    return once > 0 ? once / (once + 2 * twice) : 0;
}

static int count_level(level *l, const nn_text *t, int32_t k, uint64_t *scratch[2])
{
    const uint64_t mask = ((uint64_t)1 << 8 * k) - 1;
    const int64_t all = t->n - k + 1;
    uint64_t key = 0;
    for (int64_t x = 0; x < t->n; x++) {
        key = (key << 8 | (uint64_t)t->tokens[x]) & mask;
        if (x >= k - 1)
            scratch[0][x - k + 1] = key;
    }
    const uint64_t *sorted = sort(scratch[0], scratch[1], all, k);
    for (int64_t x = 0; x < all; x++)
        l->n += x == 0 || sorted[x] != sorted[x - 1];
    l->key = malloc((size_t)l->n * sizeof *l->key);
    for (int c = 0; c < 2; c++)
        l->count[c] = calloc((size_t)l->n, sizeof *l->count[c]);
    if (!l->key || !l->count[0] || !l->count[1])
        return -1;
    for (int64_t x = 0, n = -1; x < all; x++) {
        n += x == 0 || sorted[x] != sorted[x - 1];
        l->key[n] = sorted[x];
        l->count[0][n]++;
    }
    return 0;
}

int nn_ngrams_count(nn_ngrams **to, const nn_text *t, int32_t order, char err[NN_ERR_MAX])
{
    *to = NULL;
    if (order < 1 || order > NN_MAX_ORDER)
        return nn_fail(err, "ngrams: order %d is out of range (1 to %d)", (int)order, NN_MAX_ORDER);
    if (t->tokenizer || t->n < order || t->n > UINT32_MAX)
        return nn_fail(
            err,
            t->tokenizer
                ? "ngrams: the model reads word pieces, but n-grams are counted only for bytes (use a model of bytes)"
                : "ngrams: the text has %lld bytes; it must have at least the order and at most 2^32 - 1",
            (long long)t->n);
    nn_ngrams *g = calloc(1, sizeof *g);
    uint64_t *scratch[2] = {malloc((size_t)t->n * sizeof *scratch[0]), malloc((size_t)t->n * sizeof *scratch[0])};
    bool enough = g && scratch[0] && scratch[1];
    if (g)
        g->order = order;
    for (int32_t k = 1; enough && k <= order; k++)
        enough = count_level(&g->of[k], t, k, scratch) == 0;
    for (int32_t k = 1; enough && k <= order; k++) {
        level *l = &g->of[k];
        const uint64_t mask = ((uint64_t)1 << 8 * k) - 1;
        for (int64_t x = 0; k < order && x < g->of[k + 1].n; x++)
            l->count[1][first_of(l, g->of[k + 1].key[x] & mask)]++;
        for (int c = 0; c < 2; c++)
            l->discount[c] = discount_of(l->count[c], l->n);
    }
    free(scratch[0]);
    free(scratch[1]);
    if (!enough) {
        nn_ngrams_free(g);
        return nn_fail(err, "ngrams: out of memory while counting the n-grams of %lld bytes (use a lower order)",
                       (long long)t->n);
    }
    *to = g;
    return 0;
}

double nn_ngrams_probability(const nn_ngrams *g, int32_t order, const int32_t *before, int64_t n, int32_t byte)
{
    double p = 1.0 / 256;
    uint64_t context = 0;
    for (int32_t k = 1; k <= order && k - 1 <= n; k++) {
        if (k > 1)
            context |= (uint64_t)before[n - (k - 1)] << 8 * (k - 2);
        const level *l = &g->of[k];
        const int c = k < order;
        const int64_t from = first_of(l, context << 8), to = first_of(l, (context + 1) << 8);
        double all = 0, kinds = 0, own = 0;
        for (int64_t x = from; x < to; x++) {
            all += l->count[c][x];
            kinds += l->count[c][x] > 0;
            if ((int32_t)(l->key[x] & 255) == byte)
                own = l->count[c][x];
        }
        if (all > 0)
            p = (fmax(own - l->discount[c], 0) + l->discount[c] * kinds * p) / all;
    }
    return p;
}
