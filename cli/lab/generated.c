/* generated.c -- how well a decoder answers generated lines: the loss of the answers, and how many answers are right.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <math.h>
#include <stdlib.h>

int lab_check_sizes(const nn_config *c, const int64_t *sizes, int n, char err[NN_ERR_MAX])
{
    for (int x = 0; x < n; x++)
        if (sizes[x] > nn_generated_end(c->generate))
            return nn_fail(err, "lengths: size %lld is too large (at most %lld for this task)", (long long)sizes[x],
                           (long long)nn_generated_end(c->generate));
    return 0;
}

/* Return how many of the first `lines` lines of a batch have only right targets. */
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

static json_t *measure_size(nn_model *m, rp_pool *pool, int64_t bytes, int64_t size, char err[NN_ERR_MAX])
{
    const nn_config *c = &m->c;
    const int64_t each = nn_generated_bytes(c->generate, size), length = nn_generated_window(c, size);
    const int64_t lines = bytes > each ? bytes / each : 1;
    const int64_t batch = lab_batch(length, lines);
    if (length > nn_positions_end(m, 0))
        return json_pack("{s:I, s:n, s:n, s:i, s:i, s:i, s:i}", "length", (json_int_t)size, "loss", "perplexity",
                         "tokens", 0, "bytes", 0, "lines", 0, "exact", 0);
    const uint64_t held_out = nn_random(0, 11, 0); /* larger than any seed of an experiment */
    nn_net *net;
    int code = lab_net(&net, m, pool, batch, length, false, 0, err);
    const size_t all = (size_t)(batch * length);
    int32_t *tokens = malloc(all * sizeof *tokens), *target = malloc(all * sizeof *target);
    double *loss = malloc(all * sizeof *loss), mean, sum = 0;
    bool *right = malloc(all * sizeof *right);
    int64_t exact = 0, targets = 0;
    if (code == 0 && (!tokens || !target || !loss || !right))
        code = nn_fail(err, "lab: out of memory for a batch (use smaller sizes)");
    if (code == 0)
        nn_net_watch(net, right);
    for (int64_t first = 0; code == 0 && first < lines; first += batch) {
        const int64_t count = lines - first < batch ? lines - first : batch;
        code = nn_generate_batch(c, size, held_out, first, batch, length, tokens, target, err);
        for (int64_t x = count * length; x < batch * length; x++)
            target[x] = -1;
        code = code == 0 ? nn_net_loss(net, length, tokens, target, 0, loss, &mean, err) : code;
        for (int64_t x = 0; code == 0 && x < count * length; x++) {
            sum += loss[x];
            targets += target[x] >= 0;
        }
        exact += code == 0 ? count_right(right, target, count, length) : 0;
    }
    nn_net_destroy(net);
    free(tokens);
    free(target);
    free(loss);
    free(right);
    if (code != 0)
        return NULL;
    return lab_built(json_pack("{s:I, s:o, s:o, s:I, s:I, s:I, s:I}", "length", (json_int_t)size, "loss",
                               lab_number(sum / (double)targets), "perplexity", lab_number(exp(sum / (double)targets)),
                               "tokens", (json_int_t)targets, "bytes", (json_int_t)(lines * each), "lines",
                               (json_int_t)lines, "exact", (json_int_t)exact),
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
    return lab_built(all, err);
}
