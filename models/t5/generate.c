/* generate.c -- generates targets token by token: greedy search and sampling, for many sources together. beam.c
 * implements beam search. A finished row leaves the batch. The target of a source does not depend on the other sources.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Limits of a batch: rows, and tokens of all its sources. */
enum { MAX_ROWS = 64, MAX_SOURCE_TOKENS = 16384 };

/* ------------------------------------------------------------------------------------------------ one row */

/* A target that is being generated. */
typedef struct target {
    int64_t source, index;
    int32_t *tokens; /* start token, prefix, and new tokens */
    int64_t n;
    double score;
    uint64_t key;        /* key of the random numbers of this target */
    bool done, finished; /* done: no more tokens; finished: the target ended by itself */
} target;

/* The state of one batch of sources. The rows of a step are the unfinished targets. */
typedef struct run {
    const rp_t5 *m;
    const rp_t5_generation *g;
    const rp_t5_tokens *sources; /* all sources of the call */
    rp_t5_drafted *drafted;
    rp_t5_session *session;
    target *targets;
    int64_t n_targets, forced; /* forced: number of tokens given before generation: start token and prefix */
    int32_t *parents, *tokens;
    int64_t *row_target; /* the target of each row */
    float *logits;
    bool screened;    /* this step uses the screen, and computes only logits that may be the largest */
    t5_buffer bounds; /* [rows, 2, vocab] */
} run;

/* Choose the next token of a row from its processed scores: the likeliest token, or a sample. */
static rp_status pick(const run *r, const target *t, int64_t n, const float *scores, int32_t *token)
{
    const int64_t vocab = r->m->config.vocab;
    if (!r->g->sample) {
        *token = (int32_t)t5_argmax(scores, vocab);
        return RP_OK;
    }
    float *drawn = malloc((size_t)vocab * sizeof *drawn); /* a copy: target.score needs the scores before temperature */
    if (drawn == NULL)
        return t5_no_memory();
    memcpy(drawn, scores, (size_t)vocab * sizeof *drawn);
    const rp_status status = t5_draw(r->g, drawn, vocab, t->key, n, token);
    free(drawn);
    return status;
}

/* Choose the next token of a target from its logits, and append the token. */
static rp_status choose(run *r, target *t, float *scores)
{
    const t5_prefix p = {t->tokens, t->n, r->forced};
    int32_t token;
    t5_process(r->m, r->g, &p, scores);
    const double all = r->g->scores ? t5_log_sum_exp(scores, r->m->config.vocab) : 0;
    if (isnan(all))
        return t5_not_finite(r->m, "logits");
    rp_status status = pick(r, t, t->n, scores, &token);
    if (status != RP_OK)
        return status;
    t->score += r->g->scores ? (double)scores[token] - all : NAN;
    t->tokens[t->n++] = token;
    t->finished = t5_is_eos(r->m, token);
    if (!t->finished && r->g->n_stop > 0) {
        const t5_prefix longer = {t->tokens, t->n, r->forced};
        if ((status = t5_stops(r->m, r->g, &longer, &t->finished)) != RP_OK)
            return status;
    }
    t->done = t->finished || t->n - r->forced == r->g->max_new_tokens;
    if (r->g->on_token != NULL && r->g->on_token(r->g->context, t->source, (int32_t)t->index, token) != 0)
        return t5_fail(RP_E_CANCELLED, "on_token cancelled the call");
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ steps */

/* List the rows of the next step: the unfinished targets. Each continues the row that it has in this step. */
static int64_t next_rows(run *r, int64_t rows)
{
    int64_t n = 0;
    for (int64_t k = 0; k < rows; k++) {
        const target *t = &r->targets[r->row_target[k]];
        if (t->done)
            continue;
        r->parents[n] = (int32_t)k;
        r->tokens[n] = t->tokens[t->n - 1];
        r->row_target[n++] = r->row_target[k];
    }
    return n;
}

/* Decide whether a step of `rows` rows uses the screen. Only greedy decoding can use it, because it needs only the
 * largest score. */
static rp_status decide_screen(run *r, int64_t rows)
{
    r->screened = false;
    return r->g->sample || r->g->scores ? RP_OK : t5_screen_ready(r->m, rows, &r->screened);
}

static rp_status decode(run *r, int64_t rows, int64_t n, const int32_t *tokens)
{
    const rp_status status = decide_screen(r, rows);
    if (status != RP_OK)
        return status;
    return t5_decode(r->session, rows, r->parents, n, tokens, r->screened ? NULL : r->logits, NULL, NULL);
}

/* Compute bounds of the logits; ld is the number of elements from one row of `hidden` to the next. */
static rp_status bound_rows(run *r, int64_t rows, const float *hidden, int64_t ld)
{
    const rp_status status = t5_reserve(&r->bounds, rows * 2, r->m->config.vocab * 4);
    return status == RP_OK ? t5_screen_bounds(r->m, rows, hidden, ld, r->bounds.data) : status;
}

/* Compute those logits of a target's next token that may be the largest, using row k of the bounds. */
static rp_status screen_row(run *r, const target *t, int64_t k, const float *hidden, float *logits)
{
    const t5_prefix p = {t->tokens, t->n, r->forced};
    float *bounds = (float *)r->bounds.data + k * 2 * r->m->config.vocab;
    return t5_screen_logits(r->session, r->m, hidden, r->g, &p, bounds, logits);
}

static rp_status screen_rows(run *r, int64_t rows, int64_t n)
{
    rp_status status = bound_rows(r, rows, t5_hidden(r->session, 0, n - 1), n * r->m->config.d_model);
    for (int64_t k = 0; status == RP_OK && k < rows; k++)
        status = screen_row(r, &r->targets[r->row_target[k]], k, t5_hidden(r->session, k, n - 1),
                            r->logits + k * r->m->config.vocab);
    return status;
}

/* ------------------------------------------------------------------------------------------------ drafts */

enum { MAX_PROPOSED = 7 /* with the token before them 8 rows, the most that the screen accepts */ };
#define MIN_PROBABILITY 0.6 /* stop proposing when the draft's joint probability of the proposals is lower */

/* Proposals for the only row, and the number of accepted ones. */
typedef struct draft {
    run *r;
    target *t;
    int32_t tokens[1 + MAX_PROPOSED]; /* the last token of the row, then the proposals */
    int64_t proposed, accepted;
    bool over; /* the last chosen token differs from its proposal, or ends the target */
} draft;

/* Propose tokens with the layers of the draft. They extend the row's cache and are then removed from it. Sampling uses
 * the random numbers that the model will use at the same positions. */
static rp_status propose(draft *d, int64_t max)
{
    const run *r = d->r;
    const int64_t had = t5_length(r->session);
    int32_t *tokens = d->t->tokens; /* large enough for the longest target */
    double probability = 1;
    rp_status status = RP_OK;
    for (bool end = false; status == RP_OK && d->proposed < max && !end; d->proposed++) {
        const t5_prefix p = {tokens, d->t->n + d->proposed, r->forced};
        int32_t *token = &tokens[p.n];
        status = t5_decode_draft(r->session, tokens[p.n - 1], &r->sources[d->t->source], r->logits);
        if (status != RP_OK)
            break;
        t5_process(r->m, r->g, &p, r->logits);
        status = pick(r, d->t, p.n, r->logits, token);
        if (status == RP_OK && !r->g->sample)
            probability *= exp((double)r->logits[*token] - t5_log_sum_exp(r->logits, r->m->config.vocab));
        d->tokens[1 + d->proposed] = *token;
        end = t5_is_eos(r->m, *token) || !(probability >= MIN_PROBABILITY);
    }
    t5_rewind(r->session, had);
    return status;
}

/* Choose the next token and compare it with its proposal. All earlier proposals have been accepted. */
static rp_status check(draft *d, float *logits)
{
    const rp_status status = choose(d->r, d->t, logits);
    const bool right = d->accepted < d->proposed && d->t->tokens[d->t->n - 1] == d->tokens[1 + d->accepted];
    d->accepted += right;
    d->over = d->t->done || !right;
    return status;
}

static rp_status visit_check(void *context, int64_t row, int64_t position, const float *logits)
{
    draft *d = context;
    (void)row, (void)position;
    if (d->over)
        return RP_OK;
    const rp_status status = t5_check_logits(d->r->m, logits);
    if (status != RP_OK)
        return status;
    memcpy(d->r->logits, logits, (size_t)d->r->m->config.vocab * sizeof *logits);
    return check(d, d->r->logits);
}

static rp_status check_screened(draft *d)
{
    run *r = d->r;
    rp_status status = bound_rows(r, d->proposed + 1, t5_hidden(r->session, 0, 0), r->m->config.d_model);
    while (status == RP_OK && !d->over) {
        status = screen_row(r, d->t, d->accepted, t5_hidden(r->session, 0, d->accepted), r->logits);
        if (status == RP_OK)
            status = check(d, r->logits);
    }
    return status;
}

/* Generate several tokens of the only row in one pass of the model: the accepted proposals and one more token. The
 * logits have the bits that single steps would give. */
static rp_status pass(run *r, target *t)
{
    draft d = {.r = r, .t = t, .tokens = {t->tokens[t->n - 1]}};
    const int64_t left = r->forced + r->g->max_new_tokens - t->n - 1;
    const int32_t only = 0;
    rp_status status = propose(&d, left < MAX_PROPOSED ? left : MAX_PROPOSED);
    if (status == RP_OK)
        status = decide_screen(r, d.proposed + 1);
    if (status == RP_OK)
        status = t5_decode(r->session, 1, &only, d.proposed + 1, d.tokens, NULL, r->screened ? NULL : visit_check, &d);
    if (status == RP_OK && r->screened)
        status = check_screened(&d);
    if (status == RP_OK)
        t5_rewind(r->session, t->n - 1);
    r->drafted->proposed += d.proposed;
    r->drafted->accepted += d.accepted;
    r->drafted->passes++;
    return status;
}

/* ------------------------------------------------------------------------------------------------ steps of all rows */

static rp_status run_steps(run *r, int64_t n_sources)
{
    const int64_t returned = r->n_targets / n_sources, vocab = r->m->config.vocab;
    int64_t rows = r->n_targets;
    int32_t *first = malloc((size_t)(rows * r->forced) * sizeof *first);
    if (first == NULL)
        return t5_no_memory();
    for (int64_t k = 0; k < rows; k++) {
        r->parents[k] = (int32_t)(k / returned);
        r->row_target[k] = k;
        memcpy(first + k * r->forced, r->targets[k].tokens, (size_t)r->forced * sizeof *first);
    }
    /* Without a prefix, the draft starts right after the start token. A prefix is first fed to the model. */
    const bool only_passes = rows == 1 && r->forced == 1 && r->m->draft != NULL;
    rp_status status = only_passes ? RP_OK : decode(r, rows, r->forced, first);
    free(first);
    for (int64_t n = r->forced; status == RP_OK && rows > 0 && !only_passes; n = 1) {
        if (r->screened)
            status = screen_rows(r, rows, n);
        for (int64_t k = 0; status == RP_OK && k < rows; k++)
            status = choose(r, &r->targets[r->row_target[k]], r->logits + k * vocab);
        rows = next_rows(r, rows);
        if (rows == 1 && r->m->draft != NULL)
            break;
        if (status == RP_OK && rows > 0)
            status = t5_check_cancelled(r->g);
        if (status == RP_OK && rows > 0)
            status = decode(r, rows, 1, r->tokens);
    }
    if (status == RP_OK && rows == 1) /* one unfinished row is left: use the draft */
        status = t5_keep_row(r->session, r->parents[0]);
    for (target *t = &r->targets[r->row_target[0]]; status == RP_OK && rows == 1 && !t->done;)
        if ((status = t5_check_cancelled(r->g)) == RP_OK)
            status = pass(r, t);
    return status;
}

/* ------------------------------------------------------------------------------------------------ a call */

static rp_status make_targets(run *r, int64_t first, int64_t n_sources)
{
    const int64_t returned = r->g->sample ? r->g->returned : 1;
    int64_t length;
    r->n_targets = n_sources * returned;
    r->targets = calloc((size_t)r->n_targets, sizeof *r->targets);
    r->parents = calloc((size_t)r->n_targets, sizeof *r->parents);
    r->tokens = calloc((size_t)r->n_targets, sizeof *r->tokens);
    r->row_target = calloc((size_t)r->n_targets, sizeof *r->row_target);
    r->logits = malloc((size_t)(r->n_targets * r->m->config.vocab) * sizeof *r->logits);
    if (r->targets == NULL || r->parents == NULL || r->tokens == NULL || r->row_target == NULL || r->logits == NULL ||
        __builtin_add_overflow(r->forced, r->g->max_new_tokens, &length))
        return t5_no_memory();
    for (int64_t k = 0; k < r->n_targets; k++) {
        target *t = &r->targets[k];
        t->source = first + k / returned;
        t->index = k % returned;
        t->key = t5_random_key(r->g->seed, r->g->first + t->source, t->index);
        t->tokens = malloc((size_t)length * sizeof *t->tokens);
        if (t->tokens == NULL)
            return t5_no_memory();
        t->tokens[t->n++] = r->m->config.start;
        for (int64_t x = 0; x < r->g->prefix.n; x++)
            t->tokens[t->n++] = r->g->prefix.tokens[x];
    }
    return RP_OK;
}

static void free_run(run *r)
{
    for (int64_t k = 0; r->targets != NULL && k < r->n_targets; k++)
        free(r->targets[k].tokens);
    free(r->targets);
    free(r->parents);
    free(r->tokens);
    free(r->row_target);
    free(r->logits);
    t5_release(&r->bounds);
}

static rp_status write_targets(const rp_t5 *m, rp_t5_session *session, int64_t first, int64_t n_sources,
                               const rp_t5_tokens *sources, const rp_t5_generation *g, rp_t5_results *results)
{
    run r = {.m = m, .g = g, .sources = sources, .session = session, .forced = 1 + g->prefix.n};
    r.drafted = &results->drafted;
    rp_status status = make_targets(&r, first, n_sources);
    if (status == RP_OK)
        status = run_steps(&r, n_sources);
    for (int64_t k = 0; status == RP_OK && k < r.n_targets; k++) {
        const target *t = &r.targets[k];
        status = t5_add_result(results, t->source, t->index, t->tokens + 1, t->n - 1, t->score, t->finished);
    }
    free_run(&r);
    return status;
}

int rp_t5_is_set(void *context)
{
    return __atomic_load_n((const int32_t *)context, __ATOMIC_RELAXED) != 0;
}

static rp_status out_of_range(const char *field, double value, const char *bound)
{
    return t5_fail(RP_E_RANGE, "%s is %g; it must be %s", field, value, bound);
}

/* The same for a setting that a file of the model may have, with the value `own`: name the file and the key. */
static rp_status out_of_range_of(const rp_t5 *m, const char *key, const char *field, double value, double own,
                                 const char *bound)
{
    if (value != own || m->kept.refused_in == NULL)
        return out_of_range(field, value, bound);
    return t5_fail(RP_E_RANGE, "%s: \"%s\" is %g; it must be %s (give another value, or change it there)",
                   m->kept.refused_in, key, value, bound);
}

static rp_status check_generation(const rp_t5 *m, const rp_t5_generation *g)
{
    const rp_t5_generation *own = &m->generation;
    if (g == NULL || g->size != sizeof *g)
        return t5_fail(RP_E_ARG,
                       "generation is NULL, or was not created by rp_t5_generation_of; create it with that function");
    if (g->unsupported != NULL)
        return t5_fail(RP_E_UNSUPPORTED,
                       "%s sets \"%s\" to a value that is not supported (remove it there; a packed file must then be "
                       "packed again)",
                       m->kept.refused_in != NULL ? m->kept.refused_in : "generation_config.json", g->unsupported);
    if (g->max_new_tokens < 1 || g->max_new_tokens > INT32_MAX / 2)
        return out_of_range("max_new_tokens", (double)g->max_new_tokens, "1 to 1073741823");
    if (g->min_new_tokens < 0 || g->min_new_tokens > g->max_new_tokens)
        return out_of_range("min_new_tokens", (double)g->min_new_tokens, "0 to max_new_tokens");
    if (g->beams < 1 || g->beams > 4096 || 2 * (int64_t)g->beams > m->config.vocab)
        return out_of_range_of(m, "num_beams", "beams", g->beams, own->beams,
                               "1 to 4096, and at most half of the vocabulary");
    if (g->returned < 1 || g->returned > 4096 || (!g->sample && g->returned > g->beams))
        return out_of_range_of(m, "num_return_sequences", "returned", g->returned, own->returned,
                               "1 to 4096, and without sampling at most the number of beams");
    if (g->sample && g->beams > 1)
        return t5_fail(RP_E_UNSUPPORTED, "sampling with %d beams is not supported (use one beam)", (int)g->beams);
    if (!(g->length_penalty >= -100 && g->length_penalty <= 100))
        return out_of_range("length_penalty", g->length_penalty, "-100 to 100");
    if ((unsigned)g->early_stopping > RP_T5_STOP_NEVER_EARLY)
        return out_of_range("early_stopping", (double)g->early_stopping, "one of rp_t5_stopping");
    /* without sampling, temperature and top_p of the model have no effect, and transformers accepts them */
    if ((g->sample || g->temperature != own->temperature) && !(g->temperature > 0 && g->temperature <= 1e6))
        return out_of_range_of(m, "temperature", "temperature", g->temperature, own->temperature,
                               "above 0 and at most 1e6; without sampling, the likeliest token is chosen");
    if (g->top_k < 0)
        return out_of_range("top_k", (double)g->top_k, "at least 0");
    if ((g->sample || g->top_p != own->top_p) && !(g->top_p > 0 && g->top_p <= 1))
        return out_of_range_of(m, "top_p", "top_p", g->top_p, own->top_p, "above 0 and at most 1");
    if (!(g->repetition_penalty >= T5_MIN_PENALTY && g->repetition_penalty <= T5_MAX_PENALTY))
        return out_of_range("repetition_penalty", g->repetition_penalty, "1e-6 to 1e6");
    if (g->no_repeat_ngram < 0)
        return out_of_range("no_repeat_ngram", (double)g->no_repeat_ngram, "at least 0");
    if (g->forced_first >= m->config.vocab || g->forced_last >= m->config.vocab)
        return t5_fail(RP_E_RANGE, "forced_first or forced_last is not in the vocabulary (use 0 to %lld)",
                       (long long)m->config.vocab - 1);
    if (g->n_bad_words < 0 || (g->n_bad_words > 0 && g->bad_words == NULL))
        return t5_fail(RP_E_ARG, "bad_words is NULL, or n_bad_words is negative; pass an array and its length");
    for (int64_t k = 0; k < g->n_bad_words; k++)
        if (g->bad_words[k].n == 0)
            return t5_fail(RP_E_ARG, "bad_words[%lld] has no tokens; it must have at least one", (long long)k);
    if (g->n_stop < 0 || (g->n_stop > 0 && g->stop == NULL))
        return t5_fail(RP_E_ARG, "stop is NULL, or n_stop is negative; pass an array and its length");
    if (g->n_stop > 0 && m->tokenizer == NULL)
        return t5_fail(RP_E_ARG, "stop was given, but stop texts need a tokenizer and the model has none (omit stop, "
                                 "remove stop_strings from "
                                 "generation_config.json, or add tokenizer.json to the folder)");
    for (int32_t k = 0; k < g->n_stop; k++)
        if (g->stop[k] == NULL || *g->stop[k] == 0)
            return t5_fail(RP_E_ARG, "stop[%d] is %s; it must be a text that is not empty", (int)k,
                           g->stop[k] == NULL ? "NULL" : "empty");
    rp_status status = t5_check_tokens(m, "prefix", 1, &g->prefix);
    if (status == RP_OK)
        status = t5_check_tokens(m, "suppress", 1, &g->suppress);
    if (status == RP_OK)
        status = t5_check_tokens(m, "begin_suppress", 1, &g->begin_suppress);
    return status == RP_OK ? t5_check_tokens(m, "bad_words", g->n_bad_words, g->bad_words) : status;
}

/* Return the end of the batch of sources that begins at `first`. */
static int64_t batch_end(const rp_t5_tokens *sources, int64_t first, int64_t n, int64_t rows_each)
{
    int64_t end = first, tokens = 0;
    while (end < n && (end == first ||
                       ((end + 1 - first) * rows_each <= MAX_ROWS && tokens + sources[end].n <= MAX_SOURCE_TOKENS)))
        tokens += sources[end++].n;
    return end;
}

/* Let the caller also cancel between layers of the encoder. */
static int check_caller(void *context, double fraction)
{
    (void)fraction;
    return t5_check_cancelled(context) != RP_OK;
}

rp_status rp_t5_generate(const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources, const rp_t5_generation *g,
                         rp_t5_results **results)
{
    if (results == NULL)
        return t5_fail(RP_E_ARG, "results is NULL; pass the address of a pointer");
    *results = NULL;
    rp_status status = t5_check_tokens(m, "sources", n_sources, sources);
    if (status == RP_OK)
        status = check_generation(m, g);
    rp_t5_results *r = status == RP_OK ? calloc(1, sizeof *r) : NULL;
    if (status == RP_OK && r == NULL)
        status = t5_no_memory();
    const int64_t rows_each = status != RP_OK ? 1 : g->beams > 1 ? g->beams : g->sample ? g->returned : 1;
    for (int64_t s = 0, end; status == RP_OK && s < n_sources; s = end) {
        rp_t5_session *session;
        end = batch_end(sources, s, n_sources, rows_each);
        const int64_t positions = 1 + g->prefix.n + (g->max_new_tokens < 256 ? g->max_new_tokens : 256);
        model_watch watch = model_watch_of(check_caller, (void *)(uintptr_t)g);
        status = t5_begin(&session, m, end - s, sources + s, positions, &watch);
        if (status != RP_OK)
            break;
        t5_set_watch(session, NULL); /* from here on, t5_check_cancelled is called before each step */
        if (g->beams > 1)
            status = t5_beam_search(m, session, s, end - s, g, r);
        else
            status = write_targets(m, session, s, end - s, sources, g, r);
        status = t5_finish(m, status);
        rp_t5_end(session);
    }
    if (status != RP_OK) {
        rp_t5_results_free(r);
        return status;
    }
    *results = r;
    return RP_OK;
}
