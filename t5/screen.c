/* screen.c -- greedy decoding without reading the whole head: 8 bits of it bound every logit, and the logits that may
 * be the largest are made exactly, with the bits that the whole head gives. So the tokens are the same.
 *
 * t5_process changes each score by itself and keeps the order of any two values of it. So processed bounds hold the
 * processed logit. The largest of those is no less than the largest lower bound, and the upper bound of every token
 * that has it is no less either: all such tokens are candidates, and the first of them is found as in a whole row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include "src/isa/clones.h"
#include <math.h>
#include <stdlib.h>

enum {
    MIN_VOCAB = 4096, /* a smaller head is read in less time than is won */
    F32_ROWS = 8,     /* more rows share one reading of the whole head, and gain less or nothing */
    BF16_ROWS = 4,
    STEPS_BEFORE = 24,  /* what a screen takes to make is won back in about so many */
    MIN_CANDIDATES = 16 /* of which the head is read as a whole no sooner, or if more than one in */
};
#define CANDIDATES_IN 64 /* a candidate reads 16 rows of the head, in small pieces */

/* RELPOS_SCREEN: the smallest vocabulary whose head gets a screen, for tests and measurements. */
static int64_t min_vocab(void)
{
    const char *text = getenv("RELPOS_SCREEN");
    char *end = NULL;
    const long long n = text != NULL && *text != 0 ? strtoll(text, &end, 10) : -1;
    return end != NULL && *end == 0 && n >= 0 ? n : MIN_VOCAB;
}

rp_status t5_screen_open(rp_t5 *m)
{
    const linear_weights *head = &m->weights.head;
    if (m->weights.decoder.layers == 0 || head->type >= LINEAR_INT8 || head->out < min_vocab() ||
        linear_screen_bytes(head->in, head->out) < 0)
        return RP_OK;
    m->screen = calloc(1, sizeof *m->screen);
    if (m->screen == NULL)
        return t5_no_memory();
    pthread_mutex_init(&m->screen->lock, NULL);
    return RP_OK;
}

void t5_screen_close(rp_t5 *m)
{
    if (m->screen == NULL)
        return;
    pthread_mutex_destroy(&m->screen->lock);
    free(m->screen->memory);
    free(m->screen);
    m->screen = NULL;
}

static rp_status make(const rp_t5 *m, t5_screen *k)
{
    const linear_weights *head = &m->weights.head;
    const int64_t bytes = linear_screen_bytes(head->in, head->out);
    void *memory = aligned_alloc(LINEAR_ALIGN, (size_t)bytes);
    const rp_status status = memory != NULL ? linear_screen_make(&k->screen, m->pool, head, memory) : RP_E_NOMEM;
    if (status != RP_OK) {
        free(memory);
        k->without = status == RP_E_NOMEM;
        return k->without ? RP_OK : t5_linear_failed(status);
    }
    k->memory = memory;
    k->made = true;
    return RP_OK;
}

rp_status t5_screen_make(const rp_t5 *m)
{
    rp_status status = RP_OK;
    pthread_mutex_lock(&m->screen->lock);
    if (!m->screen->made && !m->screen->without)
        status = make(m, m->screen);
    pthread_mutex_unlock(&m->screen->lock);
    return status;
}

rp_status t5_screen_ready(const rp_t5 *m, int64_t rows, bool *ready)
{
    t5_screen *k = m->screen;
    rp_status status = RP_OK;
    *ready = false;
    if (k == NULL || rows > (m->weights.head.type == LINEAR_F32 ? F32_ROWS : BF16_ROWS))
        return RP_OK;
    if (!k->made && !k->without && ++k->before > STEPS_BEFORE)
        status = t5_screen_make(m);
    *ready = k->made && k->screen.bounds;
    return status;
}

rp_status t5_screen_bounds(const rp_t5 *m, int64_t rows, const float *hidden, int64_t ld, float *bounds)
{
    return t5_linear_failed(linear_screen_bounds(&m->screen->screen, m->pool, rows, hidden, ld, bounds, NULL));
}

/* Tokens whose upper bound reaches the largest lower one; more than `most`: how many does not matter. */
RPI_CLONES static int64_t candidates(const float *low, const float *high, int64_t vocab, int64_t most, int32_t *tokens)
{
    enum { BLOCK = 64 };
    const float reached = t5_largest(low, vocab);
    int64_t n = 0;
    for (int64_t from = 0; from < vocab && n <= most; from += BLOCK) {
        const int64_t end = vocab - from < BLOCK ? vocab : from + BLOCK;
        int found = end - from < BLOCK;
        for (int k = 0; k < BLOCK && end - from == BLOCK; k++)
            found |= high[from + k] >= reached;
        for (int64_t t = from; found && t < end && n <= most; t++)
            if (high[t] >= reached) {
                if (n < most)
                    tokens[n] = (int32_t)t;
                n++;
            }
    }
    return n;
}

rp_status t5_some_logits(const rp_t5 *m, const float *hidden, int64_t n, const int32_t *tokens, float *exact,
                         int64_t first, float *logits)
{
    const rp_status status = t5_linear_failed(linear_some(&m->weights.head, hidden, n, tokens, exact, NULL));
    for (int64_t t = first; t < m->config.vocab; t++)
        logits[t] = -INFINITY;
    for (int64_t k = 0; status == RP_OK && k < n; k++)
        logits[tokens[k]] = exact[k];
    return status;
}

rp_status t5_screen_logits(rp_t5_session *s, const rp_t5 *m, const float *hidden, const rp_t5_generation *g,
                           const t5_prefix *p, float *bounds, float *logits)
{
    const int64_t vocab = m->config.vocab, share = vocab / CANDIDATES_IN;
    const int64_t most = share > MIN_CANDIDATES ? share : MIN_CANDIDATES;
    t5_process(m, g, p, bounds);
    t5_process(m, g, p, bounds + vocab);
    int32_t *tokens = malloc((size_t)most * (sizeof(int32_t) + sizeof(float)));
    if (tokens == NULL)
        return t5_no_memory();
    const int64_t n = candidates(bounds, bounds + vocab, vocab, most, tokens);
    m->screen->rows++;
    rp_status status;
    if (n > most) {
        m->screen->whole++;
        status = t5_logits_of(s, hidden, logits);
    } else {
        m->screen->candidates += n;
        status = t5_some_logits(m, hidden, n, tokens, (float *)(void *)(tokens + most), 0, logits);
    }
    free(tokens);
    return status;
}
