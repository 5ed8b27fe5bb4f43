/* logits.c -- from scores to the next token: penalties and limits as in transformers, and sampling.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include "src/base/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------- penalties and limits */

bool t5_is_eos(const rp_t5 *m, int32_t token)
{
    for (int32_t k = 0; k < m->config.n_eos; k++)
        if (m->config.eos[k] == token)
            return true;
    return false;
}

static void never(float *scores, int32_t token)
{
    scores[token] = -INFINITY;
}

/* Penalize every distinct token of the target so far, including the start token. */
static void penalize_repetition(const t5_prefix *p, double penalty, float *scores)
{
    const float by = (float)penalty;
    for (int64_t k = 0; k < p->n; k++) {
        bool seen = false;
        for (int64_t before = 0; before < k && !seen; before++)
            seen = p->tokens[before] == p->tokens[k];
        float *score = &scores[p->tokens[k]];
        if (!seen)
            *score = *score < 0 ? *score * by : *score / by;
    }
}

/* Forbid tokens that would repeat a sequence of n tokens of the target so far. */
static void forbid_ngrams(const t5_prefix *p, int64_t n, float *scores)
{
    const int32_t *last = p->tokens + p->n - (n - 1);
    for (int64_t k = 0; k + n <= p->n; k++)
        if (memcmp(p->tokens + k, last, (size_t)(n - 1) * sizeof *last) == 0)
            never(scores, p->tokens[k + n - 1]);
}

static void forbid(const rp_t5_tokens *tokens, float *scores)
{
    for (int64_t k = 0; k < tokens->n; k++)
        never(scores, tokens->tokens[k]);
}

/* For each bad sequence whose other tokens were just generated, forbid its last token. Ignore a bad sequence that
 * consists only of an end token. */
static void forbid_words(const rp_t5 *m, const rp_t5_generation *g, const t5_prefix *p, float *scores)
{
    for (int64_t k = 0; k < g->n_bad_words; k++) {
        const rp_t5_tokens *w = &g->bad_words[k];
        const int64_t before = w->n - 1;
        if (before == 0 ? !t5_is_eos(m, *w->tokens)
                        : before <= p->n &&
                              memcmp(p->tokens + p->n - before, w->tokens, (size_t)before * sizeof *w->tokens) == 0)
            never(scores, w->tokens[before]);
    }
}

/* Allow only one token. */
static void force(float *scores, int64_t vocab, int32_t token)
{
    for (int64_t k = 0; k < vocab; k++)
        scores[k] = -INFINITY;
    scores[token] = 0;
}

void t5_process(const rp_t5 *m, const rp_t5_generation *g, const t5_prefix *p, float *scores)
{
    if (g->repetition_penalty != 1)
        penalize_repetition(p, g->repetition_penalty, scores);
    if (g->no_repeat_ngram > 0 && p->n >= g->no_repeat_ngram)
        forbid_ngrams(p, g->no_repeat_ngram, scores);
    forbid_words(m, g, p, scores);
    if (p->n - p->forced < g->min_new_tokens)
        for (int32_t k = 0; k < m->config.n_eos; k++)
            never(scores, m->config.eos[k]);
    if (g->forced_first >= 0 && p->n == 1)
        force(scores, m->config.vocab, g->forced_first);
    if (g->forced_last >= 0 && p->n - p->forced == g->max_new_tokens - 1)
        force(scores, m->config.vocab, g->forced_last);
    forbid(&g->suppress, scores);
    if (p->n == p->forced + (p->forced == 1 && g->forced_first >= 0)) /* the first token that is not forced */
        forbid(&g->begin_suppress, scores);
}

/* ------------------------------------------------------------------------------------------------ sampling */

typedef struct choice {
    float score;
    int32_t token;
} choice;

/* Order by descending score; among equal scores, the smaller token comes first. */
static int by_score(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* Return the k-th largest of n scores, k <= n. `heap` [k] becomes a min-heap of the k largest scores. */
static float kth_largest(const float *scores, int64_t n, int64_t k, float *heap)
{
    int64_t size = 0;
    for (int64_t x = 0; x < n; x++) {
        int64_t at;
        if (size < k) { /* append, and sift up */
            for (at = size++; at > 0 && heap[(at - 1) / 2] > scores[x]; at = (at - 1) / 2)
                heap[at] = heap[(at - 1) / 2];
            heap[at] = scores[x];
        } else if (scores[x] > heap[0]) { /* replace the minimum, and sift down */
            for (at = 0;;) {
                int64_t child = 2 * at + 1;
                if (child >= k)
                    break;
                if (child + 1 < k && heap[child + 1] < heap[child])
                    child++;
                if (heap[child] >= scores[x])
                    break;
                heap[at] = heap[child];
                at = child;
            }
            heap[at] = scores[x];
        }
    }
    return heap[0];
}

/* Compute the weights of the sorted choices. Return the number of choices that together reach the fraction top_p of the
 * total weight. */
static int64_t within_top_p(const choice *choices, int64_t n, double top_p, double *weights)
{
    double total = 0, tail = 0;
    for (int64_t k = n - 1; k >= 0; k--)
        total += weights[k] = exp((double)choices[k].score - (double)choices[0].score);
    for (int64_t k = n - 1; k > 0; k--) {
        tail += weights[k];
        if (tail > (1 - top_p) * total)
            return k + 1;
    }
    return 1;
}

rp_status t5_draw(const rp_t5_generation *g, float *scores, int64_t vocab, uint64_t key, int64_t step, int32_t *token)
{
    choice *choices = malloc((size_t)vocab * sizeof *choices);
    double *weights = malloc((size_t)vocab * sizeof *weights), sum = 0;
    int64_t n = 0;
    if (choices == NULL || weights == NULL) {
        free(choices);
        free(weights);
        return t5_no_memory();
    }
    for (int64_t k = 0; k < vocab; k++)
        scores[k] = (float)((double)scores[k] / g->temperature);
    const bool some = g->top_k > 0 && g->top_k < vocab;
    const float min = some ? kth_largest(scores, vocab, g->top_k, (float *)(void *)weights) : -INFINITY;
    for (int64_t k = 0; k < vocab; k++)
        if (scores[k] >= min)
            choices[n++] = (choice){scores[k], (int32_t)k};
    if (n == 0) /* all are NaN: choose token 0, as t5_argmax does */
        choices[n++] = (choice){0, 0};
    qsort(choices, (size_t)n, sizeof *choices, by_score);
    n = within_top_p(choices, n, g->top_p, weights);
    for (int64_t k = 0; k < n; k++)
        sum += weights[k];
    const double at = (double)(rpi_mix64(key + (uint64_t)step * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53 * sum;
    int64_t chosen = 0;
    for (double passed = weights[0]; chosen < n - 1 && passed <= at; passed += weights[chosen])
        chosen++;
    *token = choices[chosen].token;
    free(choices);
    free(weights);
    return RP_OK;
}

uint64_t t5_random_key(uint64_t seed, int64_t source, int64_t copy)
{
    const uint64_t z = rpi_mix64(rpi_mix64(seed + 0x9e3779b97f4a7c15u) ^ ((uint64_t)source + 0xd1b54a32d192ed03u));
    return rpi_mix64(z ^ ((uint64_t)copy + 0x8cb92ba72f3d8dd7u));
}

/* ------------------------------------------------------------------------------------------------ stop strings */

rp_status t5_stops(const rp_t5 *m, const rp_t5_generation *g, const t5_prefix *p, bool *stops)
{
    char *text;
    *stops = false;
    if (g->n_stop == 0)
        return RP_OK;
    const rp_status status = rp_t5_detokenize(m, p->tokens + p->forced, p->n - p->forced, &text, NULL);
    if (status != RP_OK)
        return status;
    for (int32_t k = 0; k < g->n_stop; k++)
        *stops = *stops || strstr(text, g->stop[k]) != NULL;
    rp_t5_free(text);
    return RP_OK;
}
