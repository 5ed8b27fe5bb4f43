/* greedy_screen.c -- greedy decoding without reading the whole head. An int8 copy of the head gives bounds for every
 * logit. Only logits that may be the largest are computed exactly, with the bits that the whole head would give. So the
 * chosen tokens are the same.
 *
 * Why this also holds after t5_process: it changes each score independently, by a non-decreasing function. So the
 * processed bounds enclose the processed logit. A token with the largest processed logit has an upper bound that is at
 * least the largest lower bound; hence it is among the candidates. If several tokens share the largest logit, the first
 * wins.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include "src/isa/clones.h"
#include <math.h>
#include <stdlib.h>

enum {
    MIN_VOCAB = 4096,  /* screening a smaller vocabulary takes longer than reading the head */
    F32_ROWS = 8,      /* the most rows for which an f32 head is screened; more rows share one read of the whole head */
    BF16_ROWS = 4,     /* the most rows for which a bf16 head is screened */
    STEPS_BEFORE = 24, /* number of steps after which making the copy saves time */
    MIN_CANDIDATES = 16 /* a row reads the whole head if it has more than max(this, vocab / CANDIDATES_IN) */
};
/* The logit of one candidate costs more than one row of the head, because the 16 rows packed together are read. */
#define CANDIDATES_IN 64

/* Return the smallest vocabulary that is screened. RELPOS_SCREEN overrides it, for tests and measurements. */
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
    const int64_t vocab = m->config.vocab, fraction = vocab / CANDIDATES_IN;
    const int64_t max = fraction > MIN_CANDIDATES ? fraction : MIN_CANDIDATES;
    t5_process(m, g, p, bounds);
    t5_process(m, g, p, bounds + vocab);
    int32_t *tokens = malloc((size_t)max * (sizeof(int32_t) + sizeof(float)));
    if (tokens == NULL)
        return t5_no_memory();
    const int64_t n = candidates(bounds, bounds + vocab, vocab, max, tokens);
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
