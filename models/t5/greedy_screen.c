/* greedy_screen.c -- greedy decoding without reading the whole head. An int8 copy of the head gives bounds for every
 * logit. Only logits that may be the largest are computed exactly, bit-identical to those of the whole head. So the
 * chosen tokens are the same.
 *
 * Why this also holds after t5_process: it changes each score independently, by a non-decreasing function. So the
 * processed bounds enclose the processed logit. A token with the largest processed logit has an upper bound that is at
 * least the largest lower bound; hence it is among the candidates. If several tokens share the largest logit, the first
 * wins.
 *
 * Where the bounds are finite, so are all logits. Where they are not, the whole head is read, which checks the logits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include "src/processor/clones.h"
#include <math.h>
#include <stdlib.h>

enum {
    MIN_CANDIDATES = 16 /* a row reads the whole head if it has more than max(this, vocab / CANDIDATES_IN) */
};
/* The logit of one candidate costs more than one row of the head, because the 16 rows packed together are read. */
#define CANDIDATES_IN 64

/* List the tokens whose upper bound is at least the largest lower bound. Return their number, or max + 1 if there are
 * more than max. */
RPI_CLONES static int64_t candidates(const float *low, const float *high, int64_t vocab, int64_t max, int32_t *tokens)
{
    enum { BLOCK = 64 };
    const float reached = t5_largest(low, vocab);
    int64_t n = 0;
    for (int64_t from = 0; from < vocab && n <= max; from += BLOCK) {
        const int64_t end = vocab - from < BLOCK ? vocab : from + BLOCK;
        int found = end - from < BLOCK;
        for (int k = 0; k < BLOCK && end - from == BLOCK; k++)
            found |= high[from + k] >= reached;
        for (int64_t t = from; found && t < end && n <= max; t++)
            if (high[t] >= reached) {
                if (n < max)
                    tokens[n] = (int32_t)t;
                n++;
            }
    }
    return n;
}

rp_status t5_screen_logits(rp_t5_session *s, const rp_t5 *m, const float *hidden, const rp_t5_generation *g,
                           const t5_prefix *p, float *bounds, float *logits)
{
    const int64_t vocab = m->config.vocab, fraction = vocab / CANDIDATES_IN;
    const int64_t max = fraction > MIN_CANDIDATES ? fraction : MIN_CANDIDATES;
    const bool bounded = isfinite(*bounds); /* if not, no bound of the row is finite (linear_screen_bounds) */
    t5_process(m, g, p, bounds);
    t5_process(m, g, p, bounds + vocab);
    int32_t *tokens = malloc((size_t)max * (sizeof(int32_t) + sizeof(float)));
    if (tokens == NULL)
        return t5_no_memory();
    const int64_t n = bounded ? candidates(bounds, bounds + vocab, vocab, max, tokens) : max + 1;
    m->screen->rows++;
    rp_status status;
    if (n > max) {
        m->screen->whole++;
        status = t5_logits_of(s, hidden, logits);
    } else {
        m->screen->candidates += n;
        status = t5_some_logits(m, hidden, n, tokens, (float *)(void *)(tokens + max), 0, logits);
    }
    free(tokens);
    return status;
}
