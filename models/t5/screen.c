/* screen.c -- an int8 copy of the head, which gives bounds of every logit.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <math.h>
#include <stdlib.h>

enum {
    MIN_VOCAB = 4096, /* screening a smaller vocabulary takes longer than reading the head */
    F32_ROWS = 8,     /* the most rows for which an f32 head is screened; more rows share one read of the whole head */
    BF16_ROWS = 4,    /* same for a bf16 head */
    STEPS_BEFORE = 24 /* number of steps after which making the copy saves time */
};

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
