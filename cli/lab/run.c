/* run.c -- a training run: reads the texts, checks memory and runs the steps. Also describes the machine for logs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include "cli/progress.h"
#include "cli/team.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int check_available(double activations, double weights, char err[NN_ERR_MAX])
{
    const double available = (double)cli_memory(true);
    if (activations + weights <= available)
        return 0;
    return nn_fail(
        err,
        "lab: out of memory: %.1f GB are needed, %.1f for activations and %.1f for weights, but %.1f GB are free "
        "(use a smaller batch, length or width, or fewer layers)",
        (activations + weights) * 1e-9, activations * 1e-9, weights * 1e-9, available * 1e-9);
}

int lab_check_memory(const nn_config *c, const nn_model *m, rp_pool *pool, char err[NN_ERR_MAX])
{
    size_t bytes;
    nn_model copy = *m; /* nn_net_create takes a non-const model, but only reads sizes here */
    if (nn_net_create(NULL, &copy, pool, c->batch, m->stack[m->n_stacks - 1].length, true, 0, &bytes, err) != 0)
        return -1;
    int sums = 0; /* of batches that wait for others: at most log2(accumulate) */
    for (int64_t n = c->accumulate; n > 1; n /= 2)
        sums++;
    return check_available((double)bytes, (4.0 + sums) * (double)m->n_weights * sizeof(real),
                           err); /* 4: weights, gradients and two moving averages */
}

int lab_net(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
            char err[NN_ERR_MAX])
{
    size_t bytes;
    *net = NULL;
    if (nn_net_create(NULL, m, pool, batch, length, train, cache, &bytes, err) != 0 ||
        check_available((double)bytes, 0, err) != 0)
        return -1;
    return nn_net_create(net, m, pool, batch, length, train, cache, NULL, err);
}

int lab_check_classes(const nn_config *c, const nn_text *t, const char *files, int64_t length, char err[NN_ERR_MAX])
{
    char name[NN_TEXT_MAX];
    if (t->n_files < 2)
        return nn_fail(err, "text: it names one file (name two or more for a classifier)");
    if (t->n_files != c->classes)
        return nn_fail(
            err, "classes = %lld: text names %d files, and each file is a class (set classes to the number of files)",
            (long long)c->classes, (int)t->n_files);
    for (int32_t f = 0; f < t->n_files; f++)
        if (t->end[f] - nn_text_start(t, f) < length) {
            nn_text_name(files, f, name);
            return nn_fail(err,
                           "text: %.200s has %lld tokens for training or held out, fewer than length, %lld (use a "
                           "longer text or a shorter length)",
                           name, (long long)(t->end[f] - nn_text_start(t, f)), (long long)length);
        }
    return 0;
}

/* Read the training text and the held-out text. */
static int read_texts(lab_run *r, const nn_tokenizer *tokenizer, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    const bool classifier = c->task == NN_CLASSIFIER;
    if (nn_text_read(&r->text, c->text, tokenizer, c->length + 2, err) != 0)
        return -1;
    const int64_t all = r->text.n;
    if (c->valid[0] ? nn_text_read(&r->valid, c->valid, tokenizer, c->length + 1, err) != 0
                    : nn_text_split(&r->text, classifier, c->valid_share, &r->valid, err) != 0)
        return -1;
    if (classifier)
        return lab_check_classes(c, &r->text, c->text, c->length, err) != 0 ||
                       (r->valid.n > 0 &&
                        lab_check_classes(c, &r->valid, c->valid[0] ? c->valid : c->text, c->length, err) != 0)
                   ? -1
                   : 0;
    if (r->text.n < c->length + 2 || (c->valid_share > 0 && r->valid.n < c->length + 1))
        return nn_fail(err,
                       "text: it has %lld %s, of which %lld are held out; the training text must have at least %lld, "
                       "length + 2, and the held-out text one less (use a longer text or a shorter length)",
                       (long long)all, tokenizer ? "word pieces" : "bytes", (long long)r->valid.n,
                       (long long)c->length + 2);
    return 0;
}

int lab_read_pairs(const nn_config *c, nn_pairs *learn, nn_pairs *held_out, char err[NN_ERR_MAX])
{
    if (nn_pairs_read(learn, c, c->text, err) != 0)
        return -1;
    return c->valid[0] ? nn_pairs_read(held_out, c, c->valid, err)
                       : nn_pairs_split(learn, c->valid_share, held_out, err);
}

int lab_texts(lab_run *r, nn_tokenizer **tokenizer, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    if (c->task == NN_ENCODER_DECODER)
        return lab_read_pairs(c, &r->pairs, &r->valid_pairs, err);
    if (!c->tokenizer[0] && c->vocab != 256 + c->bos)
        return nn_fail(err, "vocab = %lld: without a tokenizer%s, tokens are bytes (set vocab = %d)",
                       (long long)c->vocab, c->bos ? " and with bos = 1" : "", 256 + (int)c->bos);
    if (c->generate != NN_GENERATE_NONE)
        return 0;
    if (c->tokenizer[0] && !*tokenizer && nn_tokenizer_read(tokenizer, c->tokenizer, err) != 0)
        return -1;
    if (*tokenizer && (*tokenizer)->n + c->bos > c->vocab)
        return nn_fail(err, "vocab = %lld: %.200s has %d word pieces (set vocab = %d or more)", (long long)c->vocab,
                       c->tokenizer, (int)(*tokenizer)->n, (int)((*tokenizer)->n + c->bos));
    return read_texts(r, *tokenizer, err);
}

uint64_t lab_texts_checksum(const lab_run *r)
{
    if (r->c.task == NN_ENCODER_DECODER)
        return nn_pairs_checksum(&r->valid_pairs, nn_pairs_checksum(&r->pairs, 1)) | 1;
    const uint64_t sum = io_checksum(1, r->text.tokens, (size_t)r->text.n * sizeof *r->text.tokens);
    return io_checksum(sum, r->valid.tokens, (size_t)r->valid.n * sizeof *r->valid.tokens) | 1;
}

int lab_take_weights(nn_model *m, const char *path, const char *what, bool *taken, int32_t *count, int64_t *step,
                     char err[NN_ERR_MAX])
{
    char warning[NN_ERR_MAX], place[PATH_MAX];
    nn_model from;
    path = cli_find_shipped(path, place);
    if (nn_checkpoint_read(&from, path, false, step, warning, err) != 0)
        return -1;
    if (warning[0])
        cli_error(CLI_OK, "%s", warning);
    const nn_tokenizer *a = m->tokenizer, *b = from.tokenizer;
    int code = 0;
    if (!a != !b || (a && (a->size != b->size || memcmp(a->model, b->model, a->size) != 0)))
        code = nn_fail(err, "%s: %.300s has another tokenizer (use the same tokenizer, or another model)", what, path);
    else if ((*count = nn_model_take(m, &from, taken)) == 0)
        code =
            nn_fail(err, "%s: no array of %.300s has the name and shape of an array of this model (use another model)",
                    what, path);
    nn_model_destroy(&from);
    return code;
}

static int start(lab_run *r, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    nn_model plan;
    nn_tokenizer *tokenizer = r->m.tokenizer; /* NULL if the checkpoint has no tokenizer */
    int code = nn_model_plan(&plan, c, err);
    code = code == 0 ? lab_check_memory(c, &plan, r->pool, err) : code;
    nn_model_destroy(&plan);
    if (code != 0 || lab_blas(rp_pool_threads(r->pool), err) != 0)
        return -1;
    code = lab_texts(r, &tokenizer, err);
    const bool begins = !r->m.w;
    if (code == 0 && begins)
        code = nn_model_create(&r->m, c, true, err);
    r->m.tokenizer = tokenizer;
    int32_t count;
    int64_t step;
    if (code == 0 && begins && c->init_from[0] && (!r->shared || cli_team_rank() == 0))
        code = lab_take_weights(&r->m, c->init_from, "init_from", NULL, &count, &step, err);
    const int64_t length = code == 0 ? r->m.stack[r->m.n_stacks - 1].length : 0, rows = c->batch * length;
    if (code != 0 || lab_net(&r->net, &r->m, r->pool, c->batch, length, true, 0, err) != 0)
        return -1;
    const uint64_t sum = lab_texts_checksum(r);
    if (r->m.texts != 0 && r->m.texts != sum)
        return nn_fail(err, "text: it has changed since the run was started (use the same text, or another directory)");
    r->m.texts = sum;
    r->tokens = malloc((size_t)rows * sizeof *r->tokens);
    r->target = malloc((size_t)rows * sizeof *r->target);
    r->loss = malloc((size_t)rows * sizeof *r->loss);
    r->batch_losses = malloc((size_t)c->accumulate * sizeof *r->batch_losses);
    if (c->task == NN_ENCODER_DECODER && nn_batch_create(&r->batch, c->batch, c->length, length, err) != 0)
        return -1;
    return r->tokens && r->target && r->loss && r->batch_losses
               ? 0
               : nn_fail(err, "lab: out of memory while preparing a batch (use a smaller batch)");
}

int lab_begin(lab_run *r)
{
    char err[NN_ERR_MAX];
    return start(r, err) == 0 ? CLI_OK : cli_error(CLI_FAILED, "%s", err);
}

void lab_end(lab_run *r)
{
    nn_net_destroy(r->net);
    nn_model_destroy(&r->m);
    nn_text_free(&r->text);
    nn_text_free(&r->valid);
    nn_pairs_free(&r->pairs);
    nn_pairs_free(&r->valid_pairs);
    nn_batch_destroy(&r->batch);
    free(r->tokens);
    free(r->target);
    free(r->loss);
    free(r->batch_losses);
    nn_sums_free(&r->sums);
}

static int diverged(const lab_run *r, const char *what, double x, char err[NN_ERR_MAX])
{
    return nn_fail(err, "step %lld: the %s is %g (use a lower lr, or clip = 1)", (long long)r->step, what, x);
}

/* Set *loss to the mean loss of all targets of a step, and the gradients in the model. */
static int gradients(lab_run *r, double *loss, char err[NN_ERR_MAX])
{
    const int code = r->shared ? lab_share_step(r, err) : lab_batches(r, 0, r->c.accumulate, err);
    if (code != 0)
        return code;
    nn_sums_total(&r->sums, &r->m, r->pool);
    *loss = 0;
    for (int64_t k = 0; k < r->c.accumulate; k++)
        *loss += r->batch_losses[k];
    return 0;
}

/* loss_mean is the plain mean until MEAN_STEPS steps have run; from then on, each new step has weight 1 /
 * MEAN_STEPS. */
enum { MEAN_STEPS = 100 };

int lab_step(lab_run *r, double *loss, double *norm, char err[NN_ERR_MAX])
{
    const int code = gradients(r, loss, err);
    if (code != 0)
        return code;
    if (!isfinite(*loss))
        return diverged(r, "loss", *loss, err);
    *norm = nn_adamw(&r->m, r->pool, r->step);
    if (*norm < 0)
        return nn_fail(err, "step %lld: out of memory while updating the weights (close other programs)",
                       (long long)r->step);
    if (!isfinite(*norm))
        return diverged(r, "norm of the gradients", *norm, err);
    r->step++;
    const double seen = (double)(r->step < MEAN_STEPS ? r->step : MEAN_STEPS);
    r->m.loss_mean = isnan(r->m.loss_mean) ? *loss : r->m.loss_mean + (*loss - r->m.loss_mean) / seen;
    return 0;
}

/* ------------------------------------------------------------------------------------------ CBLAS, machine, weights */

int lab_blas(int64_t threads, char err[NN_ERR_MAX])
{
    static bool warned;
    if (nn_blas_open(err) != 0 || nn_blas_memory(threads > 0 ? (int32_t)threads : rp_pool_threads(NULL), err) != 0)
        return -1;
    if (*nn_blas_note() && !warned && cli_team_rank() == 0)
        cli_error(CLI_OK, "lab: %s", nn_blas_note());
    warned = true;
    return 0;
}

int lab_pool(rp_pool **pool, int64_t threads)
{
    const int64_t n = threads > 0 ? threads : cli_team_threads();
    if (rp_pool_create(pool, n > 0 ? (int32_t)n : rp_pool_threads(NULL)) == RP_OK)
        return CLI_OK;
    return cli_refused(CLI_FAILED, "lab", NULL, "use fewer --threads");
}

json_t *lab_machine(const rp_pool *pool)
{
    char line[256], cpu[200] = "";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && !*cpu && fgets(line, sizeof line, f)) {
        const char *name = strncmp(line, "model name", strlen("model name")) == 0 ? strstr(line, ": ") : NULL;
        if (name)
            snprintf(cpu, sizeof cpu, "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
    }
    if (f)
        fclose(f);
    return json_pack("{s:s, s:I, s:s, s:s, s:s, s:s*, s:i}", "cpu", cpu, "cores",
                     (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "version", rp_version(), "isa", rp_isa_default(),
                     "blas", nn_blas_name(), "blas_note", *nn_blas_note() ? nn_blas_note() : NULL, "threads",
                     (int)rp_pool_threads(pool));
}

int64_t lab_position_weights(const nn_model *m)
{
    int64_t n = 0;
    for (int32_t p = 0; p < m->n_params; p++) {
        bool of_position = strstr(m->params[p].name, "positions.weight") != NULL;
        for (int32_t k = 0; k < m->n_stacks; k++)
            for (int32_t t = 0; t < m->stack[k].n_terms; t++) {
                char part[32];
                snprintf(part, sizeof part, "attn.%s.", m->stack[k].terms[t].name);
                of_position |= strstr(m->params[p].name, part) != NULL;
            }
        n += of_position ? m->params[p].size : 0;
        if (strstr(m->params[p].name, ".qkv.weight")) /* rows of the projection that compute columns for the terms */
            n += (m->params[p].shape[0] - 3 * m->c.width) * m->c.width;
    }
    return n;
}
