/* measure_pairs.c -- measures an encoder-decoder on pairs: the loss of the given targets, and how far generated targets
 * differ from them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64 };

/* Return the number of pairs, counted from the first, whose targets have at most `bytes` bytes in total. */
static int64_t pairs_within(const nn_pairs *p, int64_t bytes)
{
    int64_t n = 0;
    while (n < p->n && (bytes -= p->pair ? p->pair[n].n_target - 1 : p->cut) >= 0)
        n++;
    return n;
}

/* Compute the mean loss per target token over the first n pairs, and the number of these tokens. */
static int measure_loss(nn_model *m, rp_pool *pool, const nn_pairs *p, int64_t n, lab_pairs_measure *to,
                        char err[NN_ERR_MAX])
{
    const int64_t target = m->stack[1].length;
    nn_batch batch = {0};
    nn_net *net = NULL;
    double *loss = malloc((size_t)(BATCH * target) * sizeof *loss), sum = 0, mean;
    int code = loss ? 0 : nn_fail(err, "lab: out of memory while preparing a batch (use shorter targets)");
    if (code == 0)
        code = nn_batch_create(&batch, BATCH, m->stack[0].length, target, err);
    if (code == 0)
        code = lab_net(&net, m, pool, BATCH, target, false, 0, err);
    to->tokens = 0;
    for (int64_t first = 0; code == 0 && first < n; first += BATCH) {
        nn_pairs_at(p, first, BATCH, &batch);
        for (int64_t b = n - first; b < BATCH; b++) /* entries past the first n pairs have no targets */
            for (int64_t x = 0; x < batch.length[1]; x++)
                batch.target[b * batch.length[1] + x] = -1;
        code = nn_net_source(net, batch.length[0], batch.source, batch.lengths, err);
        if (code == 0)
            code = nn_net_loss(net, batch.length[1], batch.input, batch.target, 0, loss, &mean, err);
        for (int64_t x = 0; code == 0 && x < BATCH * batch.length[1]; x++) {
            sum += loss[x];
            to->tokens += batch.target[x] >= 0;
        }
    }
    to->loss = to->tokens ? sum / (double)to->tokens : 0;
    nn_net_destroy(net);
    nn_batch_destroy(&batch);
    free(loss);
    return code;
}

/* ------------------------------------------------------------------------------------------------ writing targets */

/* Generate a target for each source by greedy decoding: out [BATCH, length] receives its tokens, and n [BATCH] their
 * number, without END. */
static int write_targets(nn_net *net, const nn_model *m, const nn_batch *batch, real *logits, int32_t *out, int32_t *n,
                         char err[NN_ERR_MAX])
{
    const int64_t vocab = m->c.vocab, length = m->stack[1].length;
    int32_t next[BATCH];
    bool ended[BATCH] = {false};
    int left = BATCH;
    for (int b = 0; b < BATCH; b++) {
        next[b] = NN_PAD;
        n[b] = 0;
    }
    if (nn_net_source(net, batch->length[0], batch->source, batch->lengths, err) != 0)
        return -1;
    for (int64_t x = 0; x < length && left > 0; x++) {
        if (nn_net_logits(net, 1, next, logits, err) != 0)
            return -1;
        for (int b = 0; b < BATCH; b++) {
            const real *z = logits + b * vocab;
            int32_t best = 0;
            for (int32_t v = 1; v < vocab; v++)
                best = z[v] > z[best] ? v : best;
            next[b] = best;
            if (!ended[b] && best != NN_END)
                out[b * length + n[b]++] = best;
            left -= !ended[b] && best == NN_END;
            ended[b] |= best == NN_END;
        }
    }
    return 0;
}

/* A word in a text. Words are separated by spaces. */
typedef struct word {
    const int32_t *at;
    int64_t n;
} word;

static int64_t split_words(const int32_t *text, int64_t n, word *to)
{
    const int32_t space = ' ' + NN_BYTE;
    int64_t words = 0;
    for (int64_t x = 0, from; x < n; x++) {
        for (from = x; x < n && text[x] != space; x++)
            ;
        if (x > from)
            to[words++] = (word){text + from, x - from};
    }
    return words;
}

/* Return the smallest number of words to change, insert or delete that turns a into b. `row` is scratch for m + 1
 * numbers. */
static int64_t word_edits(const word *a, int64_t n, const word *b, int64_t m, int64_t *row)
{
    for (int64_t j = 0; j <= m; j++)
        row[j] = j;
    for (int64_t i = 1; i <= n; i++) {
        int64_t diagonal = row[0];
        row[0] = i;
        for (int64_t j = 1; j <= m; j++) {
            const word *x = &a[i - 1], *y = &b[j - 1];
            const bool same = x->n == y->n && memcmp(x->at, y->at, (size_t)x->n * sizeof *x->at) == 0;
            int64_t best = diagonal + !same;
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[m];
}

static bool same_source(const nn_pairs *p, int64_t a, int64_t b)
{
    const nn_pair *x = &p->pair[a], *y = &p->pair[b];
    return x->n_source == y->n_source &&
           memcmp(p->tokens + x->source, p->tokens + y->source, (size_t)x->n_source * sizeof *p->tokens) == 0;
}

/* Compare a generated target with the targets of pairs from ... to - 1, which all have the same source. Add the
 * smallest number of edits to `sum`. */
static void count_edits(const nn_pairs *p, int64_t from, int64_t to, const int32_t *written, int32_t n, word *words,
                        int64_t *row, lab_pairs_measure *sum)
{
    int64_t fewest = INT64_MAX, count = 0;
    bool exact = false;
    word *theirs = words + p->length[1];
    const int64_t ours = split_words(written, n, words);
    for (int64_t x = from; x < to; x++) {
        const int32_t *target = p->tokens + p->pair[x].target;
        const int32_t size = p->pair[x].n_target - 1;
        const int64_t m = split_words(target, size, theirs), edits = word_edits(words, ours, theirs, m, row);
        exact |= size == n && memcmp(target, written, (size_t)n * sizeof *target) == 0;
        if (edits < fewest) {
            fewest = edits;
            count = m;
        }
    }
    sum->sources++;
    sum->exact += exact;
    sum->edits += fewest;
    sum->words += count;
}

/* Let the model generate a target for each source of the first n pairs, and compare it with their targets. */
static int measure_edits(nn_model *m, rp_pool *pool, const nn_pairs *p, int64_t n, lab_pairs_measure *to,
                         char err[NN_ERR_MAX])
{
    const int64_t target = m->stack[1].length, longest = target > p->length[1] ? target : p->length[1];
    nn_batch batch = {0};
    nn_net *net = NULL;
    real *logits = malloc((size_t)(BATCH * m->c.vocab) * sizeof *logits);
    int32_t *out = malloc((size_t)(BATCH * target) * sizeof *out), written[BATCH];
    word *words = malloc(2 * (size_t)longest * sizeof *words);
    int64_t *row = malloc((size_t)(longest + 1) * sizeof *row), first[BATCH + 1];
    int code = logits && out && words && row
                   ? 0
                   : nn_fail(err, "lab: out of memory while preparing a batch (use shorter targets)");
    if (code == 0)
        code = nn_batch_create(&batch, BATCH, m->stack[0].length, target, err);
    if (code == 0)
        code = lab_net(&net, m, pool, BATCH, 1, false, target, err);
    for (int64_t at = 0; code == 0 && at < n;) {
        int sources = 0;
        nn_pairs_at(p, at, BATCH, &batch);
        for (int64_t x = at; x < n && x < at + BATCH; x++) /* alternatives with the same source share one entry */
            if (x == at || !same_source(p, x, x - 1))
                first[sources++] = x;
        first[sources] = n < at + BATCH ? n : at + BATCH;
        while (first[sources] < n && same_source(p, first[sources], first[sources] - 1))
            first[sources]++;
        code = write_targets(net, m, &batch, logits, out, written, err);
        for (int s = 0; code == 0 && s < sources; s++)
            count_edits(p, first[s], first[s + 1], out + (first[s] - at) * target, written[first[s] - at], words, row,
                        to);
        at = first[sources];
    }
    nn_net_destroy(net);
    nn_batch_destroy(&batch);
    free(logits);
    free(out);
    free(words);
    free(row);
    return code;
}

int lab_check_pairs(const nn_pairs *p, int64_t bytes, char err[NN_ERR_MAX])
{
    return pairs_within(p, bytes) > 0 ? 0
                                      : nn_fail(err,
                                                "text: there is no pair to measure on in %lld bytes (use a larger "
                                                "eval_bytes or --bytes, or more pairs)",
                                                (long long)bytes);
}

int lab_measure_pairs(nn_model *m, rp_pool *pool, const nn_pairs *p, int64_t bytes, bool edits, lab_pairs_measure *to,
                      char err[NN_ERR_MAX])
{
    const int64_t n = pairs_within(p, bytes);
    *to = (lab_pairs_measure){0};
    if (lab_check_pairs(p, bytes, err) != 0 || measure_loss(m, pool, p, n, to, err) != 0)
        return -1;
    return edits && p->pair ? measure_edits(m, pool, p, n, to, err) : 0;
}

/* --------------------------------------------------------------------------------------------- reading and printing */

/* Read the pairs in `files` (NULL: the held-out pairs of the experiment). */
static int read_held_out(const nn_config *c, const char *files, nn_pairs *held_out, char err[NN_ERR_MAX])
{
    nn_pairs learn = {0};
    const int code = files ? nn_pairs_read(held_out, c, files, err) : lab_read_pairs(c, &learn, held_out, err);
    nn_pairs_free(&learn);
    return code;
}

int lab_eval_pairs(nn_model *m, rp_pool *pool, const char *files, int64_t bytes, int64_t step, bool json)
{
    char err[NN_ERR_MAX];
    nn_pairs held_out = {0};
    lab_pairs_measure r;
    int code = read_held_out(&m->c, files, &held_out, err);
    if (code == 0)
        code = lab_measure_pairs(m, pool, &held_out, bytes, true, &r, err);
    nn_pairs_free(&held_out);
    if (code != 0)
        return cli_error(CLI_FAILED, "%s", err);
    if (json) {
        json_t *line = json_pack("{s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "step", (json_int_t)step, "loss",
                                 lab_number(r.loss), "perplexity", lab_number(exp(r.loss)), "tokens",
                                 (json_int_t)r.tokens, "sources", (json_int_t)r.sources, "exact", (json_int_t)r.exact,
                                 "edits", (json_int_t)r.edits, "words", (json_int_t)r.words);
        return lab_write_line(stdout, "standard output", line, err) == 0 ? CLI_OK : cli_error(CLI_FAILED, "%s", err);
    }
    printf("trained for %lld steps; loss %.4f, perplexity %.3f per token of %lld\n", (long long)step, r.loss,
           exp(r.loss), (long long)r.tokens);
    if (r.sources > 0)
        printf("%lld sources, %.2f %% with an exact target; %lld edits to correct all %lld words, %.2f %%\n",
               (long long)r.sources, 100 * (double)r.exact / (double)r.sources, (long long)r.edits, (long long)r.words,
               100 * (double)r.edits / (double)r.words);
    return CLI_OK;
}
