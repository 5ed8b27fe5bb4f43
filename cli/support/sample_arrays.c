/* sample_arrays.c -- default values for arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/sample_arrays.h"
#include "cli/support/sample_problem.h"
#include <stdlib.h>
#include <string.h>

const char *const sample_words[SAMPLE_WORDS] = {"The", "cat", "sat", "on", "mat"};
const double sample_vectors[3][SAMPLE_WORDS][SAMPLE_WIDTH] = {
    {{1, 0, 1, 0}, {0, 2, 0, 1}, {1, 1, 1, 0}, {0, 0, 1, 1}, {1, 0, 0, 1}},
    {{0, 1, 0, 1}, {1, 0, 1, 0}, {1, 1, 0, 0}, {0, 0, 1, 1}, {1, 0, 0.5, 0.5}},
    {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {0.5, 0.5, 0.5, 0.5}}};

/* splitmix64: Steele, Lea, Flood 2014 */
double sample_number(uint64_t seed, uint64_t place)
{
    uint64_t z = seed + (place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ldexp((double)((z ^ z >> 31) >> 12) + 0.5, -51) - 1.0;
}

void sample_word(const char *word, size_t length, double *q, double *k, double *v)
{
    uint64_t hash = 0xcbf29ce484222325u;
    double *const to[3] = {q, k, v};
    for (size_t c = 0; c < length; c++)
        hash = (hash ^ (unsigned char)word[c]) * 0x100000001b3u;
    for (uint64_t m = 0; m < 3; m++)
        for (uint64_t row = 0; row < WORD_WIDTH; row++) {
            to[m][row] = 0;
            for (uint64_t c = 0; c < WORD_WIDTH; c++)
                to[m][row] += sample_number(m + 1, row * WORD_WIDTH + c) * sample_number(hash, c);
        }
}

bool sample_needed(const rp_desc *desc, int32_t term, int index)
{
    const rp_array_facts *a = rp_term_array_about(desc->terms[term].kind, index);
    int32_t ndim = 0;
    int64_t shape[RP_MAX_AXES];
    return a->presence == RP_NEEDED ||
           (a->presence == RP_CONDITIONAL && rp_term_shape(desc, term, index, &ndim, shape) == RP_OK && ndim > 0);
}

const char *sample_meaning(const rp_term *t, int index)
{
    return rp_term_array_about(t->kind, index)->shows;
}

/* Return the number of entries that indices choose from. */
static uint64_t entries_of(const rp_term *t, const char *key)
{
    int x = 0;
    while (strcmp(rp_term_param(t->kind, x)->key, key) != 0)
        x++;
    const int64_t n = rp_param_integer(t, rp_term_param(t->kind, x), 0);
    return n > 0 && n <= INT32_MAX ? (uint64_t)n : 1;
}

rp_status sample_array(const rp_desc *desc, int32_t term, int index, int64_t max_elements, rp_array *a)
{
    const rp_term *t = &desc->terms[term];
    const rp_array_facts *about = rp_term_array_about(t->kind, index);
    const bool table = about->shows != NULL;
    rp_desc d = *desc;
    uint64_t state = (uint64_t)term * RP_MAX_ARRAYS + (uint64_t)index;
    int32_t ndim;
    int64_t shape[RP_MAX_AXES], n = 1;
    if (table)
        d.heads = d.kv_heads = 1;
    const rp_status status = rp_term_shape(&d, term, index, &ndim, shape);
    if (status != RP_OK)
        return status;
    for (int32_t x = 0; x < ndim; x++)
        if (__builtin_mul_overflow(n, shape[x], &n) || n > max_elements)
            return RP_E_NOMEM;
    double *value = malloc((size_t)n * sizeof *value + 1);
    if (!value)
        return RP_E_NOMEM;
    *a = rp_array_of(value, RP_F64, ndim, shape);
    if (about->use == RP_USE_INDEX) {
        const uint64_t entries = entries_of(t, about->draw.over);
        for (int64_t c = 0; c < n; c++)
            ((int32_t *)(void *)value)[c] = (int32_t)(problem_next(&state) % entries);
        a->dtype = RP_I32;
        return RP_OK;
    }
    for (int64_t c = 0; c < n; c++)
        value[c] = table ? (double)c : problem_number(&about->draw, t, ndim ? shape[ndim - 1] : 1, &state);
    return RP_OK;
}
