/* batches.c -- runs the batches of a training step forward and backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"

static int generated_pass(lab_run *r, int64_t batch, uint64_t seed, double *loss, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    const int64_t length = nn_generated_window(c, c->generate_size);
    if (nn_generate_batch(c, 0, (uint64_t)c->seed, batch * c->batch, c->batch, length, r->tokens, r->target, err) != 0)
        return -1;
    return nn_net_loss(r->net, length, r->tokens, r->target, seed, r->loss, loss, err);
}

/* Run batch `batch` of the training run forward and backward. Set *loss to the mean loss of its targets. */
static int pass(lab_run *r, int64_t batch, double *loss, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    const uint64_t seed = layers_random((uint64_t)c->seed, 2, (uint64_t)batch) | 1;
    if (c->generate != NN_GENERATE_NONE)
        return generated_pass(r, batch, seed, loss, err);
    if (c->task != NN_ENCODER_DECODER) {
        (c->task == NN_CLASSIFIER ? nn_text_batch_files : nn_text_batch)(&r->text, (uint64_t)c->seed, batch, c->batch,
                                                                         c->length, r->tokens, r->target);
        nn_begin_windows(c, c->batch, c->length, r->tokens);
        return nn_net_loss(r->net, c->length, r->tokens, r->target, seed, r->loss, loss, err);
    }
    const nn_batch *b = &r->batch;
    if (nn_pairs_step(&r->pairs, (uint64_t)c->seed, batch, c->batch, &r->batch, err) != 0 ||
        nn_net_source(r->net, b->length[0], b->source, b->lengths, err) != 0)
        return -1;
    return nn_net_loss(r->net, b->length[1], b->input, b->target, seed, r->loss, loss, err);
}

/* Count the targets in all batches of a step of an encoder-decoder. For other tasks, return the number of batches
 * instead, because all batches have the same number of targets. */
static int count_targets(lab_run *r, int64_t first, int64_t *targets, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    *targets = c->accumulate;
    if (c->task != NN_ENCODER_DECODER || c->accumulate == 1)
        return 0;
    *targets = 0;
    for (int64_t k = 0; k < c->accumulate; k++) {
        if (nn_pairs_step(&r->pairs, (uint64_t)c->seed, first + k, c->batch, &r->batch, err) != 0)
            return -1;
        *targets += r->batch.tokens;
    }
    return 0;
}

int lab_batches(lab_run *r, int64_t from, int64_t to, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    const int64_t first = r->step * c->accumulate;
    int64_t targets;
    double mean;
    nn_sums_reset(&r->sums);
    if (count_targets(r, first, &targets, err) != 0)
        return -1;
    for (int64_t k = from; k < to; k++) {
        double weight = 1.0 / (double)c->accumulate; /* this batch's fraction of the targets of the step */
        if (c->task == NN_ENCODER_DECODER && c->accumulate > 1) {
            if (nn_pairs_step(&r->pairs, (uint64_t)c->seed, first + k, c->batch, &r->batch, err) != 0)
                return -1;
            weight = (double)r->batch.tokens / (double)targets;
        }
        nn_net_factor(r->net, weight);
        if (nn_sums_next(&r->sums, &r->m, err) != 0 || pass(r, first + k, &mean, err) != 0)
            return -1;
        nn_sums_add(&r->sums, &r->m, r->pool, k, 1);
        r->batch_losses[k] = weight * mean;
    }
    return 0;
}
