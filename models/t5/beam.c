/* beam.c -- beam search, separate for each source, following _beam_search of transformers. Each step considers the best
 * K = max(2, 1 + eos tokens) * beams candidates; finished hypotheses are kept in a list of their own. Scores are f32,
 * as in transformers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float LOW = -1e9f; /* added to the score of a hypothesis that must not be chosen */

/* One hypothesis. */
typedef struct beam {
    int32_t *tokens; /* large enough for the longest target */
    int64_t n;
    float score;
    bool finished;
    int32_t row; /* its row in the previous decoding step */
} beam;

typedef struct candidate {
    float score;
    int32_t from, token; /* from: index of the running beam that the candidate continues */
    bool ends;
} candidate;

/* The search for one source. Each array of beams has g->beams elements; `spare` is where the next generation is
 * built. */
typedef struct search {
    int64_t source;
    beam *running, *finished, *spare;
    candidate *candidates; /* [kept], best first */
    bool can_improve, done;
} search;

typedef struct beams {
    const rp_t5 *m;
    const rp_t5_generation *g;
    rp_t5_session *session;
    search *searches;
    int64_t n_searches, kept, forced, length; /* kept: K; length: tokens in each running beam */
    int32_t *parents, *tokens;
    float *logits;
} beams;

/* ------------------------------------------------------------------------------------------------ candidates */

/* Insert a candidate into the sorted list and drop the last one. Among equal candidates, the earlier one stays
 * first. */
static void insert(candidate *list, int64_t kept, candidate c)
{
    int64_t at = kept - 1;
    for (; at > 0 && list[at - 1].score < c.score; at--)
        list[at] = list[at - 1];
    list[at] = c;
}

/* Merge the continuations of one beam into the list. `scores` are log-probabilities plus the score of the beam. */
static void scan(candidate *list, int64_t kept, const float *scores, int64_t vocab, int32_t from)
{
    enum { BLOCK = 256 };
    for (int64_t k = 0; k < vocab; k += BLOCK) {
        const int64_t n = vocab - k < BLOCK ? vocab - k : BLOCK;
        if (!(t5_largest(scores + k, n) > list[kept - 1].score))
            continue;
        for (int64_t x = k; x < k + n; x++)
            if (scores[x] > list[kept - 1].score)
                insert(list, kept, (candidate){scores[x], from, (int32_t)x, false});
    }
}

/* Find the K best continuations of all running beams. In the first step all beams share one row. */
static rp_status find_candidates(beams *b, search *s, bool first)
{
    const int64_t vocab = b->m->config.vocab;
    for (int64_t k = 0; k < b->kept; k++)
        s->candidates[k] = (candidate){-INFINITY, 0, b->m->config.pad, false};
    for (int32_t n = 0; n < b->g->beams; n++) {
        const beam *r = &s->running[n];
        float *scores = b->logits + (int64_t)r->row * vocab;
        if (n == 0 || !first) {
            const t5_prefix p = {r->tokens, r->n, b->forced};
            const double all = t5_log_sum_exp(scores, vocab);
            t5_add(scores, vocab, (float)-all);
            t5_process(b->m, b->g, &p, scores);
        }
        t5_add(scores, vocab, n > 0 && first ? LOW : r->score); /* beam 1 reuses the scores of beam 0, lowered by LOW */
        scan(s->candidates, b->kept, scores, vocab, n);
        if (n > 0 && first)
            break; /* beams 2 and up have the same scores as beam 1, so they rank behind it */
    }
    return RP_OK;
}

static rp_status mark_ends(const beams *b, search *s)
{
    for (int64_t k = 0; k < b->kept; k++) {
        candidate *c = &s->candidates[k];
        c->ends = t5_is_eos(b->m, c->token) || b->length + 1 - b->forced >= b->g->max_new_tokens;
        if (c->ends || b->g->n_stop == 0)
            continue;
        beam *r = &s->running[c->from];
        r->tokens[r->n] = c->token; /* `tokens` has space for one more */
        const t5_prefix p = {r->tokens, r->n + 1, b->forced};
        const rp_status status = t5_stops(b->m, b->g, &p, &c->ends);
        if (status != RP_OK)
            return status;
    }
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ choices */

/* Copy a hypothesis and append a token. */
static void extend(beam *to, const beam *from, const candidate *c, float score, bool finished)
{
    memcpy(to->tokens, from->tokens, (size_t)from->n * sizeof *to->tokens);
    to->tokens[from->n] = c->token;
    to->n = from->n + 1;
    to->score = score;
    to->finished = finished;
    to->row = from->row;
}

static void swap(beam **a, beam **b)
{
    beam *was = *a;
    *a = *b;
    *b = was;
}

static bool all_finished(const beams *b, const search *s)
{
    for (int32_t n = 0; n < b->g->beams; n++)
        if (!s->finished[n].finished)
            return false;
    return true;
}

/* Merge the hypotheses that end now, among the first `beams` candidates, into the finished ones, and keep the best. */
static void update_finished(beams *b, search *s)
{
    const int32_t n_beams = b->g->beams;
    const float by = (float)pow((double)(b->length + 1 - b->forced), b->g->length_penalty);
    const bool full = all_finished(b, s) && b->g->early_stopping == RP_T5_STOP_FIRST;
    int64_t old = 0, next = 0;
    for (int32_t made = 0; made < n_beams; made++) {
        /* Both lists are sorted by score. */
        while (next < n_beams && !s->candidates[next].ends)
            next++;
        float score = -INFINITY;
        if (next < n_beams) {
            score = s->candidates[next].score / by;
            score += full ? LOW : 0;
            score += s->can_improve ? 0 : LOW;
        }
        if (next < n_beams && !(s->finished[old].score >= score)) {
            const candidate *c = &s->candidates[next++];
            extend(&s->spare[made], &s->running[c->from], c, score, true);
            continue;
        }
        const beam *was = &s->finished[old++];
        memcpy(s->spare[made].tokens, was->tokens, (size_t)was->n * sizeof *was->tokens);
        int32_t *tokens = s->spare[made].tokens;
        s->spare[made] = *was;
        s->spare[made].tokens = tokens;
    }
    swap(&s->finished, &s->spare);
}

/* Continue with the best candidates that do not end. If there are too few, use ending ones, lowered by LOW. */
static void update_running(beams *b, search *s)
{
    int32_t made = 0;
    for (int ends = 0; ends < 2; ends++)
        for (int64_t k = 0; k < b->kept && made < b->g->beams; k++) {
            const candidate *c = &s->candidates[k];
            if (c->ends == (ends == 1))
                extend(&s->spare[made++], &s->running[c->from], c, c->score + (c->ends ? LOW : 0), false);
        }
    swap(&s->running, &s->spare);
}

/* Return true if the best running beam could still beat the worst finished one. */
static bool may_improve(const beams *b, const search *s)
{
    const bool longest = b->g->early_stopping == RP_T5_STOP_NEVER_EARLY && b->g->length_penalty > 0;
    const int64_t length = longest ? b->g->max_new_tokens : b->length + 1 - b->forced;
    const float best = s->running[0].score / (float)pow((double)length, b->g->length_penalty);
    float worst = INFINITY;
    for (int32_t n = 0; n < b->g->beams; n++)
        worst = s->finished[n].score < worst ? s->finished[n].score : worst;
    return best > worst; /* worst is LOW if fewer than `beams` are finished */
}

static rp_status advance(beams *b, search *s, bool first)
{
    bool all_end = true;
    rp_status status = find_candidates(b, s, first);
    if (status == RP_OK)
        status = mark_ends(b, s);
    if (status != RP_OK)
        return status;
    for (int64_t k = 0; k < b->kept; k++)
        all_end = all_end && s->candidates[k].ends;
    update_finished(b, s);
    update_running(b, s);
    s->can_improve = s->can_improve && may_improve(b, s);
    s->done = !s->can_improve || (all_finished(b, s) && b->g->early_stopping == RP_T5_STOP_FIRST) || all_end;
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ steps */

/* List the rows of the next step: the running beams of unfinished searches. Beams of one source are consecutive. */
static int64_t next_rows(beams *b)
{
    int64_t rows = 0;
    for (int64_t n = 0; n < b->n_searches; n++) {
        search *s = &b->searches[n];
        for (int32_t k = 0; !s->done && k < b->g->beams; k++) {
            b->parents[rows] = s->running[k].row;
            b->tokens[rows] = s->running[k].tokens[s->running[k].n - 1];
            s->running[k].row = (int32_t)rows++;
        }
    }
    return rows;
}

static rp_status start(beams *b)
{
    int32_t *tokens = malloc((size_t)(b->n_searches * b->forced) * sizeof *tokens);
    if (tokens == NULL)
        return t5_no_memory();
    for (int64_t n = 0; n < b->n_searches; n++) {
        b->parents[n] = (int32_t)n;
        memcpy(tokens + n * b->forced, b->searches[n].running[0].tokens, (size_t)b->forced * sizeof *tokens);
        for (int32_t k = 0; k < b->g->beams; k++)
            b->searches[n].running[k].row = (int32_t)n;
    }
    const rp_status status = t5_decode(b->session, b->n_searches, b->parents, b->forced, tokens, b->logits, NULL, NULL);
    free(tokens);
    return status;
}

static rp_status run(beams *b)
{
    rp_status status = start(b);
    for (bool first = true; status == RP_OK; first = false) {
        for (int64_t n = 0; status == RP_OK && n < b->n_searches; n++)
            if (!b->searches[n].done)
                status = advance(b, &b->searches[n], first);
        b->length++;
        const int64_t rows = next_rows(b);
        if (status != RP_OK || rows == 0)
            break;
        status = t5_check_cancelled(b->g);
        if (status == RP_OK)
            status = t5_decode(b->session, rows, b->parents, 1, b->tokens, b->logits, NULL, NULL);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------ a call */

static beam *make_beams(const beams *b, int64_t capacity)
{
    beam *made = calloc((size_t)b->g->beams, sizeof *made);
    for (int32_t n = 0; made != NULL && n < b->g->beams; n++) {
        made[n].tokens = malloc((size_t)capacity * sizeof *made[n].tokens);
        if (made[n].tokens == NULL) {
            while (n-- > 0)
                free(made[n].tokens);
            free(made);
            return NULL;
        }
        made[n].tokens[0] = b->m->config.start;
        for (int64_t k = 0; k < b->g->prefix.n; k++)
            made[n].tokens[1 + k] = b->g->prefix.tokens[k];
        made[n].n = b->forced;
    }
    return made;
}

static rp_status make_search(const beams *b, search *s, int64_t source)
{
    const int64_t capacity = b->forced + b->g->max_new_tokens + 1;
    *s = (search){.source = source, .can_improve = true};
    s->running = make_beams(b, capacity);
    s->finished = make_beams(b, capacity);
    s->spare = make_beams(b, capacity);
    s->candidates = calloc((size_t)b->kept, sizeof *s->candidates);
    if (s->running == NULL || s->finished == NULL || s->spare == NULL || s->candidates == NULL)
        return t5_no_memory();
    for (int32_t n = 0; n < b->g->beams; n++) {
        s->running[n].score = n == 0 ? 0 : LOW;
        s->finished[n].score = LOW;
    }
    return RP_OK;
}

static void free_search(const beams *b, search *s)
{
    beam *const all[] = {s->running, s->finished, s->spare};
    for (int k = 0; k < 3; k++) {
        for (int32_t n = 0; all[k] != NULL && n < b->g->beams; n++)
            free(all[k][n].tokens);
        free(all[k]);
    }
    free(s->candidates);
}

/* Complete a result that no hypothesis filled. Like transformers, append the end token, or leave the result empty if
 * the padding token is not 0. */
static void fill_place(const beams *b, beam *f)
{
    if (!f->finished && b->m->config.pad == 0 && b->m->config.n_eos > 0)
        f->tokens[f->n++] = b->m->config.eos[0];
}

static rp_status collect(const beams *b, const search *s, rp_t5_results *results)
{
    for (int32_t n = 0; n < b->g->returned; n++) {
        beam *f = &s->finished[n];
        fill_place(b, f);
        const bool ended = t5_is_eos(b->m, f->tokens[f->n - 1]) || f->n - b->forced < b->g->max_new_tokens;
        const rp_status status = t5_add_result(results, s->source, n, f->tokens + 1, f->n - 1, (double)f->score, ended);
        if (status != RP_OK)
            return status;
        for (int64_t k = b->forced; b->g->on_token != NULL && k < f->n; k++)
            if (b->g->on_token(b->g->context, s->source, n, f->tokens[k]) != 0)
                return t5_fail(RP_E_CANCELLED, "on_token cancelled the call");
    }
    return RP_OK;
}

rp_status t5_beam_search(const rp_t5 *m, rp_t5_session *session, int64_t first, int64_t n_sources,
                         const rp_t5_generation *g, rp_t5_results *results)
{
    const int64_t ends = m->config.n_eos > 0 ? 1 + m->config.n_eos : 2, rows = n_sources * g->beams;
    beams b = {.m = m, .g = g, .session = session, .n_searches = n_sources, .kept = ends * g->beams};
    b.length = b.forced = 1 + g->prefix.n;
    b.searches = calloc((size_t)n_sources, sizeof *b.searches);
    b.parents = malloc((size_t)rows * sizeof *b.parents);
    b.tokens = malloc((size_t)rows * sizeof *b.tokens);
    b.logits = malloc((size_t)(rows * m->config.vocab) * sizeof *b.logits);
    rp_status status = b.searches && b.parents && b.tokens && b.logits ? RP_OK : t5_no_memory();
    for (int64_t n = 0; status == RP_OK && n < n_sources; n++)
        status = make_search(&b, &b.searches[n], first + n);
    if (status == RP_OK)
        status = run(&b);
    for (int64_t n = 0; status == RP_OK && n < n_sources; n++)
        status = collect(&b, &b.searches[n], results);
    for (int64_t n = 0; b.searches != NULL && n < n_sources; n++)
        free_search(&b, &b.searches[n]);
    free(b.searches);
    free(b.parents);
    free(b.tokens);
    free(b.logits);
    return status;
}
