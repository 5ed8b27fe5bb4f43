/* answers.c -- measures how well a net answers generated lines: the loss of the answers, and how many are correct.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include <stdlib.h>

/* Scratch for one batch of windows; each array is [batch, length]. */
typedef struct windows {
    int32_t *tokens, *target;
    double *loss;
    bool *right;
} windows;

static int create_windows(windows *w, int64_t batch, int64_t length, char err[NN_ERR_MAX])
{
    const size_t n = (size_t)(batch * length);
    *w = (windows){.tokens = malloc(n * sizeof *w->tokens),
                   .target = malloc(n * sizeof *w->target),
                   .loss = malloc(n * sizeof *w->loss),
                   .right = malloc(n * sizeof *w->right)};
    return w->tokens && w->target && w->loss && w->right
               ? 0
               : nn_fail(err, "lab: out of memory while preparing a batch (use smaller sizes)");
}

static void destroy_windows(windows *w)
{
    free(w->tokens);
    free(w->target);
    free(w->loss);
    free(w->right);
}

/* Return how many of the first `lines` lines of a batch have only correct predictions. */
static int64_t count_right(const bool *right, const int32_t *target, int64_t lines, int64_t length)
{
    int64_t n = 0;
    for (int64_t b = 0; b < lines; b++) {
        bool all = true;
        for (int64_t x = b * length; x < (b + 1) * length; x++)
            all &= target[x] < 0 || right[x];
        n += all;
    }
    return n;
}

/* Compute the losses of a batch that begins with line `first`, and add those of its first `lines` lines to the sums. */
static int add_batch(nn_net *n, const windows *w, int64_t size, int64_t length, int64_t first, int64_t lines,
                     nn_answers *to, char err[NN_ERR_MAX])
{
    const uint64_t held_out = layers_random(0, 11, 0); /* a seed that no experiment can use, because it is larger */
    double mean;
    if (nn_generate_batch(&n->m->c, size, held_out, first, n->batch, length, w->tokens, w->target, err) != 0)
        return -1;
    for (int64_t x = lines * length; x < n->batch * length; x++)
        w->target[x] = -1;
    if (nn_net_loss(n, length, w->tokens, w->target, 0, w->loss, &mean, err) != 0)
        return -1;
    for (int64_t x = 0; x < lines * length; x++) {
        to->loss += w->loss[x];
        to->tokens += w->target[x] >= 0;
    }
    to->exact += count_right(w->right, w->target, lines, length);
    return 0;
}

int nn_measure_answers(nn_net *n, int64_t size, int64_t lines, nn_answers *to, char err[NN_ERR_MAX])
{
    const int64_t length = nn_generated_window(&n->m->c, size);
    windows w;
    *to = (nn_answers){.lines = lines};
    int code = create_windows(&w, n->batch, length, err);
    nn_net_record_right(n, w.right);
    for (int64_t first = 0; code == 0 && first < lines; first += n->batch)
        code = add_batch(n, &w, size, length, first, lines - first < n->batch ? lines - first : n->batch, to, err);
    nn_net_record_right(n, NULL);
    if (code == 0)
        to->loss /= (double)to->tokens;
    destroy_windows(&w);
    return code;
}
