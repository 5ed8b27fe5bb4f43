/* run.c -- a training run: reading texts, checking memory, steps, and measuring on text. It knows no option of the command line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include "cli/progress.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A number in a file, after `label` where it is not NULL; -1 where there is none. */
static double number_in(const char *path, const char *label)
{
    char line[256];
    double found = -1;
    FILE *f = fopen(path, "re");
    while (f && found < 0 && fgets(line, sizeof line, f)) {
        const size_t n = label ? strlen(label) : 0;
        char *end;
        if (n && strncmp(line, label, n) != 0)
            continue;
        const long long x = strtoll(line + n, &end, 10);
        found = end > line + n ? (double)x : -1;
    }
    if (f)
        fclose(f);
    return found;
}

/* Bytes of memory that this process may still use: the kernel's estimate, limited by the control group; -1: not known. */
static double available_memory(void)
{
    const double kib = number_in("/proc/meminfo", "MemAvailable:"), max = number_in("/sys/fs/cgroup/memory.max", NULL),
                 used = number_in("/sys/fs/cgroup/memory.current", NULL), free = kib < 0 ? -1 : kib * 1024;
    return max >= 0 && used >= 0 && (free < 0 || max - used < free) ? fmax(max - used, 0) : free;
}

static int check_available(double activations, double weights, char err[NN_ERR_MAX])
{
    const double available = available_memory();
    if (available < 0 || activations + weights <= available)
        return 0;
    return nn_fail(
        err,
        "lab: out of memory: %.1f GB are needed, %.1f for activations and %.1f for weights, and %.1f GB are free "
        "(smaller batch, length, width or fewer layers)",
        (activations + weights) * 1e-9, activations * 1e-9, weights * 1e-9, available * 1e-9);
}

int lab_check_memory(const nn_config *c, const nn_model *m, rp_pool *pool, char err[NN_ERR_MAX])
{
    size_t bytes;
    nn_model copy = *m; /* only its sizes are used */
    if (nn_net_create(NULL, &copy, pool, c->batch, m->stack[m->n_stacks - 1].length, true, 0, &bytes, err) != 0)
        return -1;
    return check_available((double)bytes, 4.0 * (double)m->n_weights * sizeof(real),
                           err); /* gradients and averages too */
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
        return nn_fail(err, "text: one file is named (a classifier needs two or more)");
    if (t->n_files != c->classes)
        return nn_fail(err, "classes: %lld, but text names %d files (each file is a class)", (long long)c->classes,
                       (int)t->n_files);
    for (int32_t f = 0; f < t->n_files; f++)
        if (t->end[f] - nn_text_start(t, f) < length) {
            nn_text_name(files, f, name);
            return nn_fail(
                err,
                "text: %.200s: %lld tokens to learn from or held out, fewer than length, %lld (a longer text, "
                "or a shorter length)",
                name, (long long)(t->end[f] - nn_text_start(t, f)), (long long)length);
        }
    return 0;
}

/* Read the text to learn from, and the text that is held out. */
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
                       "text: %lld %s, of which %lld are held out; the rest and these must both be more than length, "
                       "%lld (a longer text, or a shorter "
                       "length)",
                       (long long)all, tokenizer ? "word pieces" : "bytes", (long long)r->valid.n,
                       (long long)c->length);
    return 0;
}

int lab_texts(lab_run *r, nn_tokenizer **tokenizer, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    if (c->task == NN_ENCODER_DECODER)
        return lab_read_pairs(c, &r->pairs, &r->valid_pairs, err);
    if (!c->tokenizer[0] && c->vocab != 256 + c->bos)
        return nn_fail(err, "vocab: %lld without a tokenizer%s (vocab = %d: tokens are bytes)", (long long)c->vocab,
                       c->bos ? " and with bos = 1" : "", 256 + (int)c->bos);
    if (c->tokenizer[0] && !*tokenizer && nn_tokenizer_read(tokenizer, c->tokenizer, err) != 0)
        return -1;
    if (*tokenizer && (*tokenizer)->n + c->bos > c->vocab)
        return nn_fail(err, "vocab: %lld, but %.200s has %d word pieces (vocab = %d, or more)", (long long)c->vocab,
                       c->tokenizer, (int)(*tokenizer)->n, (int)((*tokenizer)->n + c->bos));
    return read_texts(r, *tokenizer, err);
}

/* A checksum of the texts, by which a resumed run knows that they are the same; never 0. */
static uint64_t checksum_texts(const lab_run *r)
{
    if (r->c.task == NN_ENCODER_DECODER)
        return nn_pairs_checksum(&r->valid_pairs, nn_pairs_checksum(&r->pairs, 1)) | 1;
    const uint64_t sum = nn_checksum(1, r->text.tokens, (size_t)r->text.n * sizeof *r->text.tokens);
    return nn_checksum(sum, r->valid.tokens, (size_t)r->valid.n * sizeof *r->valid.tokens) | 1;
}

static int start(lab_run *r, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    nn_model plan;
    nn_tokenizer *tokenizer = r->m.tokenizer; /* that of the checkpoint, if there is one */
    int code = nn_model_plan(&plan, c, err);
    code = code == 0 ? lab_check_memory(c, &plan, r->pool, err) : code;
    nn_model_destroy(&plan);
    if (code != 0 || lab_blas(rp_pool_threads(r->pool), err) != 0)
        return -1;
    code = lab_texts(r, &tokenizer, err);
    if (code == 0 && !r->m.w)
        code = nn_model_create(&r->m, c, true, err);
    r->m.tokenizer = tokenizer;
    const int64_t length = code == 0 ? r->m.stack[r->m.n_stacks - 1].length : 0, rows = c->batch * length;
    if (code != 0 || lab_net(&r->net, &r->m, r->pool, c->batch, length, true, 0, err) != 0)
        return -1;
    const uint64_t sum = checksum_texts(r);
    if (r->m.texts != 0 && r->m.texts != sum)
        return nn_fail(err, "text: it has changed since the run was begun (use that text, or another directory)");
    r->m.texts = sum;
    r->tokens = malloc((size_t)rows * sizeof *r->tokens);
    r->target = malloc((size_t)rows * sizeof *r->target);
    r->loss = malloc((size_t)rows * sizeof *r->loss);
    if (c->task == NN_ENCODER_DECODER && nn_batch_create(&r->batch, c->batch, c->length, length, err) != 0)
        return -1;
    return r->tokens && r->target && r->loss ? 0 : nn_fail(err, "lab: out of memory for a batch (smaller batch)");
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
}

static int diverged(const lab_run *r, const char *what, double x, char err[NN_ERR_MAX])
{
    return nn_fail(err, "step %lld: the %s is %g (a lower lr, or clip = 1)", (long long)r->step, what, x);
}

/* Forward and backward over batch number `batch` of the training. Returns the mean loss of its targets. */
static int pass(lab_run *r, int64_t batch, double *loss, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    const uint64_t seed = nn_random((uint64_t)c->seed, 2, (uint64_t)batch) | 1;
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

/* How many targets the batches of a step have; those of a decoder's, or a classifier's, all have as many. */
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

/* Forward and backward over the batches of a step: the mean loss of all of their targets, and its gradients. */
static int passes(lab_run *r, double *loss, char err[NN_ERR_MAX])
{
    const nn_config *c = &r->c;
    const int64_t first = r->step * c->accumulate;
    int64_t targets;
    double sum = 0, mean;
    if (count_targets(r, first, &targets, err) != 0)
        return -1;
    for (int64_t k = 0; k < c->accumulate; k++) {
        double share = 1.0 / (double)c->accumulate;
        if (c->task == NN_ENCODER_DECODER && c->accumulate > 1) {
            if (nn_pairs_step(&r->pairs, (uint64_t)c->seed, first + k, c->batch, &r->batch, err) != 0)
                return -1;
            share = (double)r->batch.tokens / (double)targets;
        }
        nn_net_accumulate(r->net, share, k > 0);
        if (pass(r, first + k, &mean, err) != 0)
            return -1;
        sum += share * mean;
    }
    *loss = sum;
    return 0;
}

enum { MEAN_STEPS = 100 }; /* of the running mean: each step counts as much, and later the last one a hundredth */

int lab_step(lab_run *r, double *loss, double *norm, char err[NN_ERR_MAX])
{
    if (passes(r, loss, err) != 0)
        return -1;
    if (!isfinite(*loss))
        return diverged(r, "loss", *loss, err);
    *norm = nn_adamw(&r->m, r->pool, r->step);
    if (!isfinite(*norm))
        return diverged(r, "norm of the gradients", *norm, err);
    r->step++;
    const double seen = (double)(r->step < MEAN_STEPS ? r->step : MEAN_STEPS);
    r->m.loss_mean = isnan(r->m.loss_mean) ? *loss : r->m.loss_mean + (*loss - r->m.loss_mean) / seen;
    return 0;
}

/* ------------------------------------------------------------------------------------------------ measuring */

int64_t lab_measurable(const nn_config *c, const nn_text *t, int64_t bytes)
{
    if (c->task == NN_DECODER)
        return nn_text_within(t, 1, t->n, bytes); /* the first token is not predicted */
    int64_t min = t->n;
    for (int32_t f = 0; f < t->n_files; f++) {
        const int64_t n = nn_text_within(t, nn_text_start(t, f), t->end[f], bytes / t->n_files);
        min = n < min ? n : min;
    }
    return min;
}

int lab_check_measure(const nn_config *c, const nn_text *t, int64_t bytes, const int64_t *lengths, int n,
                      char err[NN_ERR_MAX])
{
    int64_t longest = 0;
    for (int x = 0; x < n; x++)
        longest = lengths[x] > longest ? lengths[x] : longest;
    const int64_t tokens = lab_measurable(c, t, bytes);
    return tokens >= longest
               ? 0
               : nn_fail(err,
                         "text: %lld tokens%s to measure on, in at most %lld bytes, but the longest length "
                         "is %lld (a larger eval_bytes or --bytes, a longer text, or shorter lengths)",
                         (long long)tokens, c->task == NN_CLASSIFIER ? " of each file" : "", (long long)bytes,
                         (long long)longest);
}

double lab_bits_per_byte(const lab_measure *r)
{
    return r->mean * ((double)r->tokens / (double)r->bytes) / log(2);
}

/* Count for which classes windows are taken, by their logits. */
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

int lab_measure_text(nn_model *m, rp_pool *pool, const nn_text *t, int64_t tokens, int64_t length, lab_measure *to,
                     char err[NN_ERR_MAX])
{
    enum { ROWS = 2048 }; /* tokens at a time */
    const bool classifier = m->c.task == NN_CLASSIFIER;
    const int64_t each = tokens / length, windows = classifier ? each * t->n_files : each, classes = m->c.classes;
    const int64_t batch = length >= ROWS || windows <= 1 ? 1 : ROWS / length < windows ? ROWS / length : windows;
    const int64_t targets = classifier ? batch : batch * length;
    double sum = 0, mean;
    nn_net *net;
    if (windows < 1)
        return nn_fail(
            err, "text: %lld tokens to measure on, fewer than the length, %lld (a longer text, or a shorter length)",
            (long long)tokens, (long long)length);
    int code = lab_net(&net, m, pool, batch, length, false, 0, err);
    int32_t *input = malloc((size_t)(batch * length) * sizeof *input),
            *target = malloc((size_t)targets * sizeof *target);
    double *loss = malloc((size_t)targets * sizeof *loss);
    real *logits = malloc((size_t)(classifier ? batch * classes : 1) * sizeof *logits);
    if (code == 0 && (!input || !target || !loss || !logits))
        code = nn_fail(err, "lab: out of memory for a batch (shorter length)");
    for (int64_t x = 0; to->by_position && x < length; x++)
        to->by_position[x] = 0;
    for (int64_t first = 0; code == 0 && first < windows; first += batch) {
        for (int64_t b = 0; b < batch; b++) {
            const bool beyond = first + b >= windows; /* the last batch is filled up with windows that do not count */
            const int64_t w = beyond ? 0 : first + b;
            const int32_t file = classifier ? (int32_t)(w / each) : 0;
            const int32_t *from = t->tokens + nn_text_start(t, file) + w % each * length;
            memcpy(input + b * length, from, (size_t)length * sizeof *input);
            nn_begin_windows(&m->c, 1, length, input + b * length);
            for (int64_t i = 0; i < length && !classifier; i++)
                target[b * length + i] = beyond ? -1 : from[i + 1];
            if (classifier)
                target[b] = beyond ? -1 : file;
        }
        code = classifier ? nn_net_logits(net, length, input, logits, err)
                          : nn_net_loss(net, length, input, target, 0, loss, &mean, err);
        if (code == 0 && classifier) {
            count_classes(logits, target, batch, classes, to);
            nn_softmax_loss(pool, batch, classes, logits, target, 0, loss);
        }
        for (int64_t x = 0; code == 0 && x < targets; x++) {
            sum += loss[x];
            if (to->by_position)
                to->by_position[x % length] += loss[x];
        }
    }
    to->windows = windows;
    to->tokens = windows * length;
    to->bytes = nn_text_bytes(t, 1, classifier ? 1 : 1 + to->tokens);
    to->mean = sum / (double)(classifier ? windows : to->tokens);
    free(input);
    free(target);
    free(loss);
    free(logits);
    if (net)
        nn_net_destroy(net);
    return code;
}

static json_t *classes_at(nn_model *m, rp_pool *pool, const nn_text *t, int64_t same, int64_t length,
                          char err[NN_ERR_MAX])
{
    const int64_t classes = m->c.classes;
    lab_measure r = {.taken = calloc((size_t)(classes * classes), sizeof(int64_t))};
    if (!r.taken || lab_measure_text(m, pool, t, same, length, &r, err) != 0) {
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
    return json_pack("{s:I, s:o, s:f, s:I, s:o}", "length", (json_int_t)length, "loss", lab_number(r.mean), "accuracy",
                     (double)r.right / (double)r.windows, "windows", (json_int_t)r.windows, "taken", taken);
}

static json_t *tokens_at(nn_model *m, rp_pool *pool, const nn_text *t, int64_t same, int64_t length,
                         char err[NN_ERR_MAX])
{
    lab_measure r = {.by_position = malloc((size_t)length * sizeof(double))};
    if (!r.by_position || lab_measure_text(m, pool, t, same, length, &r, err) != 0) {
        free(r.by_position);
        return NULL;
    }
    json_t *positions = json_array();
    for (int64_t from = 0, to = 64; from < length; from = to, to *= 2) {
        double sum = 0;
        to = to < length ? to : length;
        for (int64_t i = from; i < to; i++)
            sum += r.by_position[i];
        const double loss = sum / (double)((to - from) * r.windows);
        json_array_append_new(positions, json_pack("{s:I, s:I, s:o}", "from", (json_int_t)from, "to", (json_int_t)to,
                                                   "perplexity", lab_number(exp(loss))));
    }
    free(r.by_position);
    return json_pack("{s:I, s:o, s:o, s:o, s:I, s:I, s:o}", "length", (json_int_t)length, "loss", lab_number(r.mean),
                     "perplexity", lab_number(exp(r.mean)), "bits_per_byte", lab_number(lab_bits_per_byte(&r)),
                     "tokens", (json_int_t)r.tokens, "bytes", (json_int_t)r.bytes, "positions", positions);
}

json_t *lab_measure_lengths(nn_model *m, rp_pool *pool, const nn_text *t, int64_t bytes, const int64_t *lengths, int n,
                            char err[NN_ERR_MAX])
{
    const bool classifier = m->c.task == NN_CLASSIFIER;
    int64_t longest = 0;
    if (lab_check_measure(&m->c, t, bytes, lengths, n, err) != 0)
        return NULL;
    for (int x = 0; x < n; x++)
        longest = lengths[x] > longest ? lengths[x] : longest;
    const int64_t same = lab_measurable(&m->c, t, bytes) / longest * longest;
    json_t *all = json_array();
    for (int x = 0; x < n; x++) {
        const bool ends = m->stack[0].learned && lengths[x] > m->c.length; /* beyond the positions that were learned */
        json_t *at = ends && classifier ? json_pack("{s:I, s:n, s:n, s:i, s:[]}", "length", (json_int_t)lengths[x],
                                                    "loss", "accuracy", "windows", 0, "taken")
                     : ends ? json_pack("{s:I, s:n, s:n, s:n, s:i, s:i, s:[]}", "length", (json_int_t)lengths[x],
                                        "loss", "perplexity", "bits_per_byte", "tokens", 0, "bytes", 0, "positions")
                            : (classifier ? classes_at : tokens_at)(m, pool, t, same, lengths[x], err);
        if (!at) {
            json_decref(all);
            return NULL;
        }
        json_array_append_new(all, at);
    }
    return all;
}

int lab_lengths(const char *text, int64_t lengths[LAB_MAX_LENGTHS], char err[NN_ERR_MAX])
{
    int n = 0;
    for (const char *from = text + strspn(text, " ,"); *from; from += strspn(from, " ,")) {
        char *end;
        const long long length = strtoll(from, &end, 10);
        if (end == from || (*end && !strchr(" ,", *end)) || length < 1 || length > 1 << 24)
            return nn_fail(err, "lengths: \"%.40s\" is not a list of integers from 1 to 2^24 (such as 512,1024)", from);
        if (n == LAB_MAX_LENGTHS)
            return nn_fail(err, "lengths: more than %d (leave some out)", LAB_MAX_LENGTHS);
        lengths[n++] = length;
        from = end;
    }
    return n ? n : nn_fail(err, "lengths: the list is empty (such as 512,1024)");
}

/* ------------------------------------------------------------------------------------------------ for logs */

int lab_blas(int64_t threads, char err[NN_ERR_MAX])
{
    static bool warned;
    if (nn_blas_open(err) != 0 || nn_blas_memory(threads > 0 ? (int32_t)threads : rp_pool_threads(NULL), err) != 0)
        return -1;
    if (*nn_blas_note() && !warned)
        cli_error(CLI_OK, "lab: %s", nn_blas_note());
    warned = true;
    return 0;
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
    }
    for (int32_t k = 0; k < m->n_stacks; k++)
        n += (m->stack[k].columns - 3 * m->c.width) * m->c.width * m->stack[k].layers;
    return n;
}
