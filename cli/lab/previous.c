/* previous.c -- how much weight the heads of a model give to the token before: when a model begins to use it, in training. It knows no option of the
 * command line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <stdlib.h>

enum { WINDOWS = 4 };

/* Add the weights that each head gives in one window to the token before, over all queries but the first. */
static int add_window(nn_net *net, const nn_model *m, const int32_t *tokens, real *logits, double *row, double *sums,
                      char err[NN_ERR_MAX])
{
    const int64_t length = m->c.length;
    if (nn_net_logits(net, length, tokens, logits, err) != 0)
        return -1;
    for (int64_t layer = 0; layer < m->c.layers; layer++) {
        rp_tensors t;
        rp_plan *plans[2];
        rp_status status = RP_OK;
        if (nn_net_attention(net, layer, &t, plans, err) != 0)
            return -1;
        for (int64_t h = 0; h < m->c.heads; h++)
            for (int64_t i = 1; i < length && status == RP_OK; i++) {
                rp_row with = {.weights = row};
                status = rp_attend_row(plans[0], &t, 0, h, i, &with);
                sums[layer * m->c.heads + h] += status == RP_OK ? row[i - 1] : 0;
            }
        rp_plan_destroy(plans[0]);
        rp_plan_destroy(plans[1]);
        if (status != RP_OK)
            return nn_fail(err, "attention of layer %lld: %s", (long long)layer, NN_WORDS(NULL));
    }
    return 0;
}

json_t *lab_previous(nn_model *m, rp_pool *pool, const nn_text *t, int64_t step, char err[NN_ERR_MAX])
{
    const int64_t length = m->c.length, heads = m->c.layers * m->c.heads;
    nn_net *net = NULL;
    int32_t *tokens = malloc((size_t)length * sizeof *tokens);
    real *logits = malloc((size_t)m->c.vocab * sizeof *logits);
    double *row = malloc((size_t)length * sizeof *row), *sums = calloc((size_t)heads, sizeof *sums);
    int code = tokens && logits && row && sums ? 0 : nn_fail(err, "lab: out of memory for a window (shorter length)");
    code = code == 0 ? lab_net(&net, m, pool, 1, length, false, 0, err) : code;
    for (int64_t w = 0; w < WINDOWS && code == 0; w++) {
        const int64_t at = (t->n - length) / (WINDOWS - 1) * w;
        for (int64_t x = 0; x < length; x++)
            tokens[x] = t->tokens[at + x];
        nn_begin_windows(&m->c, 1, length, tokens);
        code = add_window(net, m, tokens, logits, row, sums, err);
    }
    int64_t most = 0;
    for (int64_t h = 1; h < heads && code == 0; h++)
        most = sums[h] > sums[most] ? h : most;
    json_t *found = code == 0 ? json_pack("{s:I, s:o, s:I, s:I}", "step", (json_int_t)step, "weight",
                                          lab_number(sums[most] / (double)(WINDOWS * (length - 1))), "layer",
                                          (json_int_t)(most / m->c.heads), "head", (json_int_t)(most % m->c.heads))
                              : NULL;
    nn_net_destroy(net);
    free(tokens);
    free(logits);
    free(row);
    free(sums);
    return found;
}
