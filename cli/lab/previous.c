/* previous.c -- how much attention weight the heads of a model give to the previous token. Measured during training,
 * this shows when the model begins to use that token.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <stdlib.h>

enum { WINDOWS = 4 };

typedef struct summing {
    double *sums; /* weight on the previous token, summed over queries [layers, heads] */
    double *row;  /* scratch for the attention weights of a row [length] */
    int64_t heads, length;
} summing;

/* Add the weights of a layer, for every query except the first, which has no previous token. */
static rp_status add_layer(void *context, int64_t layer, const rp_tensors *t, rp_plan *plans[2])
{
    const summing *s = context;
    rp_row with = {.weights = s->row};
    rp_status status = RP_OK;
    for (int64_t h = 0; h < s->heads; h++)
        for (int64_t i = 1; i < s->length && status == RP_OK; i++) {
            status = rp_attend_row(plans[0], t, 0, h, i, &with);
            s->sums[layer * s->heads + h] += status == RP_OK ? s->row[i - 1] : 0;
        }
    return status;
}

json_t *lab_previous(nn_model *m, rp_pool *pool, const nn_text *t, int64_t step, char err[NN_ERR_MAX])
{
    const int64_t length = m->c.length, heads = m->c.layers * m->c.heads;
    nn_net *net = NULL;
    int32_t *tokens = malloc((size_t)length * sizeof *tokens);
    double *row = malloc((size_t)length * sizeof *row), *sums = calloc((size_t)heads, sizeof *sums);
    int code =
        tokens && row && sums ? 0 : nn_fail(err, "lab: out of memory while measuring a window (use a shorter length)");
    code = code == 0 ? lab_net(&net, m, pool, 1, length, false, 0, err) : code;
    for (int64_t w = 0; w < WINDOWS && code == 0; w++) {
        const int64_t at = (t->n - length) / (WINDOWS - 1) * w;
        for (int64_t x = 0; x < length; x++)
            tokens[x] = t->tokens[at + x];
        nn_begin_windows(&m->c, 1, length, tokens);
        code = lab_visit_layers(net, m, tokens, length, add_layer, &(summing){sums, row, m->c.heads, length}, err);
    }
    int64_t best = 0;
    for (int64_t h = 1; h < heads && code == 0; h++)
        best = sums[h] > sums[best] ? h : best;
    json_t *found = code == 0 ? json_pack("{s:I, s:o, s:I, s:I}", "step", (json_int_t)step, "weight",
                                          lab_number(sums[best] / (double)(WINDOWS * (length - 1))), "layer",
                                          (json_int_t)(best / m->c.heads), "head", (json_int_t)(best % m->c.heads))
                              : NULL;
    nn_net_destroy(net);
    free(tokens);
    free(row);
    free(sums);
    return code == 0 ? lab_finished_json(found, err) : NULL;
}
