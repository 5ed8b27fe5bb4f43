/* generated.c -- measures a decoder on generated lines, with lab/engine/answers.c, and returns the results as JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <math.h>

int lab_check_sizes(const nn_config *c, const int64_t *sizes, int n, char err[NN_ERR_MAX])
{
    for (int x = 0; x < n; x++)
        if (sizes[x] > nn_generated_end(c->generate))
            return nn_fail(err, "lengths: size %lld is too large for this task (use at most %lld)", (long long)sizes[x],
                           (long long)nn_generated_end(c->generate));
    return 0;
}

static json_t *measure_size(nn_model *m, rp_pool *pool, int64_t bytes, int64_t size, char err[NN_ERR_MAX])
{
    const nn_config *c = &m->c;
    const int64_t each = nn_generated_bytes(c->generate, size), length = nn_generated_window(c, size);
    const int64_t lines = bytes > each ? bytes / each : 1;
    if (length > nn_positions_end(m, 0))
        return json_pack("{s:I, s:n, s:n, s:i, s:i, s:i, s:i}", "length", (json_int_t)size, "loss", "perplexity",
                         "tokens", 0, "bytes", 0, "lines", 0, "exact", 0);
    nn_net *net;
    nn_answers r;
    int code = lab_net(&net, m, pool, lab_batch(length, lines), length, false, 0, err);
    code = code == 0 ? nn_measure_answers(net, size, lines, &r, err) : code;
    nn_net_destroy(net);
    if (code != 0)
        return NULL;
    return lab_finished_json(json_pack("{s:I, s:o, s:o, s:I, s:I, s:I, s:I}", "length", (json_int_t)size, "loss",
                                       lab_number(r.loss), "perplexity", lab_number(exp(r.loss)), "tokens",
                                       (json_int_t)r.tokens, "bytes", (json_int_t)(lines * each), "lines",
                                       (json_int_t)r.lines, "exact", (json_int_t)r.exact),
                             err);
}

json_t *lab_measure_generated(nn_model *m, rp_pool *pool, int64_t bytes, const int64_t *sizes, int n,
                              char err[NN_ERR_MAX])
{
    if (lab_check_sizes(&m->c, sizes, n, err) != 0)
        return NULL;
    json_t *all = json_array();
    for (int x = 0; x < n; x++) {
        json_t *at = measure_size(m, pool, bytes, sizes[x], err);
        if (!at) {
            json_decref(all);
            return NULL;
        }
        json_array_append_new(all, at);
    }
    return lab_finished_json(all, err);
}
