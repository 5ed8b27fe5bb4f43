/* measure.c -- measures the loss of a model on text: chooses the parts of the text, and computes the mean loss in
 * total, by position and by piece.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Return the largest number of tokens to predict whose texts have at most `bytes` bytes in total; for a classifier, the
 * number of tokens to read from each file. */
static int64_t measurable(const nn_config *c, const nn_text *t, int64_t bytes)
{
    if (c->task == NN_DECODER)
        return nn_text_within(t, 1, t->n, bytes); /* no window predicts the first token */
    int64_t min = t->n;
    for (int32_t f = 0; f < t->n_files; f++) {
        const int64_t n = nn_text_within(t, nn_text_start(t, f), t->end[f], bytes / t->n_files);
        min = n < min ? n : min;
    }
    return min;
}

/* Choose the places in a text that consists of pieces with contexts of how->context tokens. */
static int choose_blocks(const nn_text *t, const lab_measure_options *how, int64_t unit, lab_places *to,
                         char err[NN_ERR_MAX])
{
    to->apart = t->n / how->pieces;
    to->each = to->apart - how->context;
    if (t->n % how->pieces != 0 || to->each <= 0 || to->each % unit != 0)
        return nn_fail(
            err,
            "text: its %lld tokens are not %lld pieces with contexts of %lld, where each piece is a multiple "
            "of %lld (use another eval_context or eval_pieces)",
            (long long)t->n, (long long)how->pieces, (long long)how->context, (long long)unit);
    if (to->longest > how->context + unit - 1)
        return nn_fail(err, "eval_context = %lld: length %lld needs a context of %lld (use shorter lengths)",
                       (long long)how->context, (long long)to->longest, (long long)(to->longest - unit + 1));
    return 0;
}

int lab_choose_places(const nn_config *c, const nn_text *t, const lab_measure_options *how, const int64_t *lengths,
                      int n, lab_places *to, char err[NN_ERR_MAX])
{
    const int64_t tokens = measurable(c, t, how->bytes);
    int64_t shortest = INT64_MAX;
    *to = (lab_places){.pieces = how->pieces, .stride = how->stride};
    for (int x = 0; x < n; x++) {
        to->longest = lengths[x] > to->longest ? lengths[x] : to->longest;
        shortest = lengths[x] < shortest ? lengths[x] : shortest;
    }
    if (c->task != NN_DECODER && (how->pieces > 1 || how->stride > 0))
        return nn_fail(err, "eval_%s: only decoders are measured in pieces or with a stride (remove it)",
                       how->pieces > 1 ? "pieces" : "stride");
    if (how->stride > shortest)
        return nn_fail(
            err, "eval_stride = %lld: it is above the shortest length, %lld (use a smaller stride or longer lengths)",
            (long long)how->stride, (long long)shortest);
    const int64_t unit = how->stride > 0 ? how->stride : to->longest;
    if (how->context > 0 && c->task == NN_DECODER)
        return choose_blocks(t, how, unit, to, err);
    to->each = tokens / how->pieces / unit * unit;
    if (to->each == 0)
        return nn_fail(err,
                       "text: there are %lld tokens%s to measure on, in at most %lld bytes%s, but the longest length "
                       "is %lld (use a larger eval_bytes or --bytes, a longer text, or shorter lengths)",
                       (long long)tokens, c->task == NN_CLASSIFIER ? " of each file" : "", (long long)how->bytes,
                       how->pieces > 1 ? " and several pieces" : "", (long long)to->longest);
    to->before = how->stride > 0 ? to->longest - how->stride : 0;
    to->room = t->n - 1 - to->before - to->each; /* the last piece ends at the end of the text */
    if (c->task == NN_DECODER && to->room < (how->pieces - 1) * to->each)
        return nn_fail(err,
                       "text: its %lld tokens are too few for %lld pieces of %lld after a context of %lld (use a "
                       "longer text, a smaller eval_bytes or --bytes, or shorter lengths)",
                       (long long)t->n, (long long)how->pieces, (long long)to->each, (long long)to->before);
    return 0;
}

int64_t lab_place(const lab_places *p, int64_t piece)
{
    if (p->apart > 0)
        return p->apart * (piece + 1) - p->each - 1;
    const int64_t gaps = p->pieces > 1 ? p->pieces - 1 : 1;
    return p->before + p->room / gaps * (p->pieces > 1 ? piece : 0) + p->room % gaps * piece / gaps;
}

double lab_bits_per_byte(const lab_measure *r)
{
    return r->mean * ((double)r->tokens / (double)r->bytes) / log(2);
}

/* Update the counts of true and predicted classes with a batch of windows. */
static void count_classes(const real *logits, const int32_t *target, int64_t batch, int64_t classes, lab_measure *to)
{
    for (int64_t b = 0; b < batch; b++) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            best = logits[b * classes + c] > logits[b * classes + best] ? c : best;
        if (target[b] < 0)
            continue;
        to->right += best == target[b];
        if (to->taken)
            to->taken[target[b] * classes + best]++;
    }
}

/* Add the losses of a batch that begins with the window `first` to their sum, and to those by position and by piece. */
static void add_losses(const double *loss, int64_t targets, int64_t length, int64_t first, int64_t windows,
                       int64_t each, double *sum, lab_measure *to)
{
    for (int64_t x = 0; x < targets; x++) {
        const int64_t w = first + x / length;
        *sum += loss[x];
        if (to->by_position)
            to->by_position[x % length] += loss[x];
        if (to->by_piece && w < windows)
            to->by_piece[w / each] += loss[x];
    }
}

int64_t lab_batch(int64_t length, int64_t windows)
{
    enum { ROWS = 2048 }; /* max tokens in a batch of several windows */
    return length >= ROWS || windows <= 1 ? 1 : ROWS / length < windows ? ROWS / length : windows;
}

int lab_measure_text(nn_model *m, rp_pool *pool, const nn_text *t, const lab_places *p, int64_t length, lab_measure *to,
                     char err[NN_ERR_MAX])
{
    const bool classifier = m->c.task == NN_CLASSIFIER;
    const int64_t step = p->stride > 0 ? p->stride : length; /* each window predicts its last `step` tokens */
    const int64_t each = p->each / step, windows = each * (classifier ? t->n_files : p->pieces), classes = m->c.classes;
    const int64_t batch = lab_batch(length, windows);
    const int64_t targets = classifier ? batch : batch * length;
    double sum = 0, mean;
    nn_net *net;
    if (windows < 1)
        return nn_fail(err,
                       "text: there are %lld tokens to measure on, fewer than the length, %lld (use a longer text or a "
                       "shorter length)",
                       (long long)p->each, (long long)length);
    int code = lab_net(&net, m, pool, batch, length, false, 0, err);
    int32_t *input = malloc((size_t)(batch * length) * sizeof *input),
            *target = malloc((size_t)targets * sizeof *target);
    double *loss = malloc((size_t)targets * sizeof *loss);
    real *logits = malloc((size_t)(classifier ? batch * classes : 1) * sizeof *logits);
    if (code == 0 && (!input || !target || !loss || !logits))
        code = nn_fail(err, "lab: out of memory while preparing a batch (use a shorter length)");
    for (int64_t x = 0; to->by_position && x < length; x++)
        to->by_position[x] = 0;
    for (int64_t x = 0; to->by_piece && x < p->pieces; x++)
        to->by_piece[x] = 0;
    for (int64_t first = 0; code == 0 && first < windows; first += batch) {
        for (int64_t b = 0; b < batch; b++) {
            const bool beyond = first + b >= windows; /* fills up the last batch, without targets */
            const int64_t w = beyond ? 0 : first + b;
            const int32_t file = classifier ? (int32_t)(w / each) : 0;
            const int64_t begin = classifier ? nn_text_start(t, file) : lab_place(p, w / each) + step - length;
            const int32_t *from = t->tokens + begin + w % each * step;
            memcpy(input + b * length, from, (size_t)length * sizeof *input);
            nn_begin_windows(&m->c, 1, length, input + b * length);
            for (int64_t i = 0; i < length && !classifier; i++)
                target[b * length + i] = beyond || i < length - step ? -1 : from[i + 1];
            if (classifier)
                target[b] = beyond ? -1 : file;
        }
        code = classifier ? nn_net_logits(net, length, input, logits, err)
                          : nn_net_loss(net, length, input, target, 0, loss, &mean, err);
        if (code == 0 && classifier) {
            count_classes(logits, target, batch, classes, to);
            layers_softmax_loss(pool, batch, classes, logits, target, 0, loss, NULL);
        }
        if (code == 0)
            add_losses(loss, targets, length, first, windows, each, &sum, to);
    }
    to->windows = windows;
    to->tokens = windows * step;
    to->bytes = 0;
    for (int64_t x = 0; x < p->pieces && !classifier; x++)
        to->bytes += nn_text_bytes(t, 1 + lab_place(p, x), 1 + lab_place(p, x) + each * step);
    to->mean = sum / (double)(classifier ? windows : to->tokens);
    for (int64_t x = 0; to->by_piece && x < p->pieces; x++)
        to->by_piece[x] /= (double)(each * step);
    free(input);
    free(target);
    free(loss);
    free(logits);
    if (net)
        nn_net_destroy(net);
    return code;
}

static json_t *classes_at(nn_model *m, rp_pool *pool, const nn_text *t, const lab_places *p, int64_t length,
                          char err[NN_ERR_MAX])
{
    const int64_t classes = m->c.classes;
    lab_measure r = {.taken = calloc((size_t)(classes * classes), sizeof(int64_t))};
    if (!r.taken || lab_measure_text(m, pool, t, p, length, &r, err) != 0) {
        free(r.taken);
        return NULL;
    }
    json_t *taken = json_array();
    for (int64_t file = 0; file < classes; file++) {
        json_t *row = json_array();
        for (int64_t c = 0; c < classes; c++)
            json_array_append_new(row, json_integer(r.taken[file * classes + c]));
        json_array_append_new(taken, row);
    }
    free(r.taken);
    return lab_finished_json(json_pack("{s:I, s:o, s:o, s:I, s:o}", "length", (json_int_t)length, "loss",
                                       lab_number(r.mean), "accuracy", lab_number((double)r.right / (double)r.windows),
                                       "windows", (json_int_t)r.windows, "taken", taken),
                             err);
}

static json_t *tokens_at(nn_model *m, rp_pool *pool, const nn_text *t, const lab_places *p, int64_t length,
                         char err[NN_ERR_MAX])
{
    lab_measure r = {.by_position = p->stride > 0 ? NULL : malloc((size_t)length * sizeof(double)),
                     .by_piece = malloc((size_t)p->pieces * sizeof(double))};
    int code =
        r.by_piece && (r.by_position || p->stride > 0)
            ? lab_measure_text(m, pool, t, p, length, &r, err)
            : nn_fail(err, "lab: out of memory while measuring %lld losses (use shorter lengths)", (long long)length);
    json_t *positions = json_array(), *pieces = json_array();
    for (int64_t from = 0, to = 64; code == 0 && r.by_position && from < length; from = to, to *= 2) {
        double sum = 0;
        to = to < length ? to : length;
        for (int64_t i = from; i < to; i++)
            sum += r.by_position[i];
        const double loss = sum / (double)((to - from) * r.windows);
        json_array_append_new(positions, json_pack("{s:I, s:I, s:o}", "from", (json_int_t)from, "to", (json_int_t)to,
                                                   "perplexity", lab_number(exp(loss))));
    }
    for (int64_t x = 0; code == 0 && x < p->pieces; x++)
        json_array_append_new(pieces, lab_number(r.by_piece[x]));
    free(r.by_position);
    free(r.by_piece);
    if (code != 0) {
        json_decref(positions);
        json_decref(pieces);
        return NULL;
    }
    return lab_finished_json(json_pack("{s:I, s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "length", (json_int_t)length, "loss",
                                       lab_number(r.mean), "perplexity", lab_number(exp(r.mean)), "bits_per_byte",
                                       lab_number(lab_bits_per_byte(&r)), "tokens", (json_int_t)r.tokens, "bytes",
                                       (json_int_t)r.bytes, "pieces", pieces, "positions", positions),
                             err);
}

json_t *lab_measure_lengths(nn_model *m, rp_pool *pool, const nn_text *t, const lab_measure_options *how,
                            const int64_t *lengths, int n, char err[NN_ERR_MAX])
{
    const bool classifier = m->c.task == NN_CLASSIFIER;
    lab_places places;
    if (lab_choose_places(&m->c, t, how, lengths, n, &places, err) != 0)
        return NULL;
    json_t *all = json_array();
    for (int x = 0; x < n; x++) {
        const bool ends = lengths[x] > nn_positions_end(m, 0); /* the model has no positions for this length */
        json_t *at = ends && classifier ? json_pack("{s:I, s:n, s:n, s:i, s:[]}", "length", (json_int_t)lengths[x],
                                                    "loss", "accuracy", "windows", 0, "taken")
                     : ends ? json_pack("{s:I, s:n, s:n, s:n, s:i, s:i, s:[]}", "length", (json_int_t)lengths[x],
                                        "loss", "perplexity", "bits_per_byte", "tokens", 0, "bytes", 0, "positions")
                            : (classifier ? classes_at : tokens_at)(m, pool, t, &places, lengths[x], err);
        if (!at) {
            json_decref(all);
            return NULL;
        }
        json_array_append_new(all, at);
    }
    return lab_finished_json(all, err);
}

int lab_lengths(const char *text, int64_t lengths[LAB_MAX_LENGTHS], char err[NN_ERR_MAX])
{
    int n = 0;
    for (const char *from = text + strspn(text, " ,"); *from; from += strspn(from, " ,")) {
        char *end;
        const long long length = strtoll(from, &end, 10);
        if (end == from || (*end && !strchr(" ,", *end)) || length < 1 || length > 1 << 24)
            return nn_fail(
                err, "lengths: \"%.40s\" is not a list of integers from 1 to 2^24 (write a list such as 512,1024)",
                from);
        if (n == LAB_MAX_LENGTHS)
            return nn_fail(err, "lengths: there are more than %d (remove some)", LAB_MAX_LENGTHS);
        lengths[n++] = length;
        from = end;
    }
    return n ? n : nn_fail(err, "lengths: the list is empty (write a list such as 512,1024)");
}

/* ------------------------------------------------------------------------------------------------ n-grams */

static json_t *count_at(const nn_ngrams *g, int32_t order, const nn_text *t, const lab_places *p)
{
    json_t *pieces = json_array();
    double all = 0;
    for (int64_t piece = 0; piece < p->pieces; piece++) {
        double sum = 0;
        for (int64_t x = 1; x <= p->each; x++) {
            const int64_t at = lab_place(p, piece) + x;
            sum -= log(nn_ngrams_probability(g, order, t->tokens, at, t->tokens[at]));
        }
        json_array_append_new(pieces, lab_number(sum / (double)p->each));
        all += sum;
    }
    all /= (double)(p->pieces * p->each);
    return json_pack("{s:i, s:o, s:o, s:o}", "order", (int)order, "loss", lab_number(all), "perplexity",
                     lab_number(exp(all)), "pieces", pieces);
}

json_t *lab_measure_ngrams(const nn_model *m, const nn_text *t, const lab_measure_options *how, const int64_t *lengths,
                           int n, int32_t order, char err[NN_ERR_MAX])
{
    nn_text text = {0}, held_out = {0};
    nn_ngrams *g = NULL;
    lab_places places;
    const nn_config *c = &m->c;
    if (c->task != NN_DECODER || m->tokenizer) {
        nn_fail(err, "ngrams: the n-gram baseline is only for decoders of bytes (remove --ngrams)");
        return NULL;
    }
    int code = lab_choose_places(c, t, how, lengths, n, &places, err);
    code = code == 0 ? nn_text_read(&text, c->text, NULL, 2, err) : code;
    if (code == 0 && !c->valid[0])
        code = nn_text_split(&text, false, c->valid_share, &held_out, err);
    code = code == 0 ? nn_ngrams_count(&g, &text, order, err) : code;
    json_t *all = code == 0 ? json_array() : NULL;
    for (int32_t k = 1; all && k <= order; k++)
        json_array_append_new(all, count_at(g, k, t, &places));
    nn_ngrams_free(g);
    nn_text_free(&text);
    nn_text_free(&held_out);
    return code == 0 ? lab_finished_json(all, err) : NULL;
}
