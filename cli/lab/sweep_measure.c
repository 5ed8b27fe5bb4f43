/* sweep_measure.c -- the result of an experiment of a sweep, as a line of JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/sweep.h"
#include <stdlib.h>
#include <string.h>

int lab_sweep_lengths(const nn_config *c, int64_t lengths[LAB_MAX_LENGTHS], char err[NN_ERR_MAX])
{
    char own[32];
    snprintf(own, sizeof own, "%lld", (long long)(c->generate != NN_GENERATE_NONE ? c->generate_size : c->length));
    return lab_lengths(c->eval_lengths[0] ? c->eval_lengths : own, lengths, err);
}

void lab_sweep_text_key(const nn_config *c, char key[NN_PRINT_MAX])
{
    snprintf(key, NN_PRINT_MAX, "%d|%lld|%s|%s|%s|%s|%g|%d|%lld|%lld|%lld|%lld|%lld|%lld|%lld|%d|%lld",
             (int)c->generate, (long long)c->generate_size, c->text, c->valid, c->tokenizer, c->eval_lengths,
             c->valid_share, (int)c->task, (long long)c->vocab, (long long)c->classes, (long long)c->length,
             (long long)c->eval_bytes, (long long)c->eval_pieces, (long long)c->eval_stride, (long long)c->eval_context,
             (int)c->bos, (long long)c->eval_ngrams);
}

/* Measure the n-gram baseline, unless w->ngrams was already measured on the same parts of the same text. */
static int count_bytes(lab_sweep_work *w, const nn_config *c, const lab_measure_options *how, const int64_t *lengths,
                       int n, char err[NN_ERR_MAX])
{
    char key[NN_PRINT_MAX];
    lab_sweep_text_key(c, key);
    if (w->ngrams && strcmp(key, w->counted) == 0)
        return 0;
    json_decref(w->ngrams);
    w->ngrams = NULL;
    memcpy(w->counted, key, sizeof key);
    if (c->eval_ngrams > 0)
        w->ngrams =
            lab_measure_ngrams(&w->trained.r.m, &w->trained.r.valid, how, lengths, n, (int32_t)c->eval_ngrams, err);
    return c->eval_ngrams > 0 && !w->ngrams ? -1 : 0;
}

/* Return the mean training loss of 50 equal parts of the training, or of each step if there are fewer. */
static json_t *losses_of(const lab_training *t, int64_t steps)
{
    enum { PARTS = 50 };
    const int64_t parts = steps < PARTS ? steps : PARTS;
    json_t *all = json_array();
    for (int64_t n = 0; n < parts; n++) {
        const int64_t from = steps * n / parts, to = steps * (n + 1) / parts;
        double sum = 0;
        for (int64_t x = from; x < to; x++)
            sum += t->losses[x];
        json_array_append_new(all, lab_number(sum / (double)(to - from)));
    }
    return all;
}

/* If the held-out text consists of pieces with contexts (eval_context), return the number of pieces in each of its
 * files; otherwise NULL. */
static json_t *pieces_of_files(const nn_config *c, const nn_text *valid)
{
    if (c->eval_context == 0 || c->task != NN_DECODER || valid->n == 0)
        return NULL;
    json_t *all = json_array();
    const int64_t apart = valid->n / c->eval_pieces;
    for (int32_t f = 0; f < valid->n_files; f++)
        json_array_append_new(all, json_integer((valid->end[f] - nn_text_start(valid, f)) / apart));
    return all;
}

json_t *lab_sweep_measure(lab_sweep_work *w, const nn_config *c, json_t *vary, rp_pool *pool, char err[NN_ERR_MAX])
{
    char text[NN_PRINT_MAX];
    int64_t lengths[LAB_MAX_LENGTHS];
    size_t bytes = 0;
    const lab_training *t = &w->trained;
    nn_model other = {0}, *m = &w->trained.r.m;
    const int n = lab_sweep_lengths(c, lengths, err);
    if (n < 0 || (c->eval_position[0] && nn_model_with_position(&other, m, c->eval_position, err) != 0) ||
        nn_net_create(NULL, m, pool, c->batch, c->length, true, 0, &bytes, err) != 0)
        return NULL;
    const lab_measure_options how = {c->eval_bytes, c->eval_pieces, c->eval_stride, c->eval_context};
    nn_model *with = other.w ? &other : m;
    json_t *measured = c->generate != NN_GENERATE_NONE
                           ? lab_measure_generated(with, pool, c->eval_bytes, lengths, n, err)
                           : lab_measure_lengths(with, pool, &t->r.valid, &how, lengths, n, err);
    nn_model_destroy(&other);
    if (!measured || count_bytes(w, c, &how, lengths, n, err) != 0) {
        json_decref(measured);
        return NULL;
    }
    nn_config_print(c, text);
    return lab_finished_json(
        json_pack("{s:s, s:O, s:I, s:o, s:o, s:o*, s:o, s:I, s:I, s:o, s:o, s:I, s:o, s:O*, s:O*, s:O*}", "experiment",
                  text, "vary", vary, "seed", (json_int_t)c->seed, "train_loss", lab_number(t->loss), "losses",
                  losses_of(t, c->steps), "pieces_of_files", pieces_of_files(c, &t->r.valid), "lengths", measured,
                  "weights", (json_int_t)m->n_weights, "position_weights", (json_int_t)lab_position_weights(m),
                  "ms_per_step", lab_number(t->ms), "processor_share", lab_number(t->processor_share), "bytes",
                  (json_int_t)bytes, "machine", lab_machine(pool), "ngrams", w->ngrams, "previous", t->previous,
                  "curve", t->curve),
        err);
}
