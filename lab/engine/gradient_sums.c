/* gradient_sums.c -- adds the gradients of the batches of a step, in the order of one binary tree.
 *
 *     batches  0   1   2   3   4   5   6
 *              └─┬─┘   └─┬─┘   └─┬─┘   │      Two ranges of equal size are added if together they are a node of the
 *                └───┬───┘       └──┬──┘      tree. What remains at the end is added from right to left.
 *                    └──────┬───────┘
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <stdlib.h>
#include <string.h>

/* Add the last complete range to the gradients of the model. */
static void add_last(nn_sums *s, nn_model *m, rp_pool *pool)
{
    const nn_sum *last = &s->before[--s->n_before];
    layers_axpy(pool, m->n_weights, last->g, m->g);
    s->first = last->first;
    s->count += last->count;
    s->spare[s->n_spare++] = last->g;
}

int nn_sums_next(nn_sums *s, nn_model *m, char err[NN_ERR_MAX])
{
    if (s->count == 0)
        return 0;
    real *g = s->n_spare > 0 ? s->spare[--s->n_spare] : calloc((size_t)m->n_weights, sizeof *g);
    if (g == NULL)
        return nn_fail(err, "lab: out of memory while adding the gradients of several batches (use accumulate = 1)");
    s->before[s->n_before++] = (nn_sum){s->first, s->count, m->g};
    s->count = 0;
    m->g = g;
    return 0;
}

void nn_sums_add(nn_sums *s, nn_model *m, rp_pool *pool, int64_t first, int64_t count)
{
    s->first = first;
    s->count = count;
    while (s->n_before > 0) {
        const nn_sum *last = &s->before[s->n_before - 1];
        if (last->count != s->count || last->first % (2 * s->count) != 0)
            break;
        add_last(s, m, pool);
    }
}

void nn_sums_total(nn_sums *s, nn_model *m, rp_pool *pool)
{
    while (s->n_before > 0)
        add_last(s, m, pool);
}

void nn_sums_reset(nn_sums *s)
{
    while (s->n_before > 0)
        s->spare[s->n_spare++] = s->before[--s->n_before].g;
    s->count = 0;
}

void nn_sums_free(nn_sums *s)
{
    nn_sums_reset(s);
    while (s->n_spare > 0)
        free(s->spare[--s->n_spare]);
}
