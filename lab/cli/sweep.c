/* sweep.c -- relpos lab sweep: train and measure one experiment for each combination of values and each seed, and
 * append the results to a file. training.c runs each training.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/cli/training.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = CLI_FIRST_KEY, LIST, STATE, SET, QUICK, KEEP, SHARD };
enum { MAX_KEYS = 8, MAX_VALUES = 32, MAX_SEEDS = 32, MAX_QUICK = 32, MAX_RUNS = 256 };

/* The plan of a sweep. A line "vary.KEY = A | B | C" lists values for KEY; every combination of values is run with
 * every seed. A line "run = KEY=VALUE KEY=VALUE ..." sets several keys; if there are such lines, every combination is
 * run with each of them. A line "quick.KEY = VALUE" replaces the value of KEY if --quick is given. */
typedef struct plan {
    char key[MAX_KEYS][40];
    char *values[MAX_KEYS][MAX_VALUES];
    int n_values[MAX_KEYS], n_keys;
    int64_t seeds;
    char *run[MAX_RUNS]; /* "KEY=VALUE KEY=VALUE ..." */
    int n_runs;
    bool new_runs;          /* the next line "run" replaces all of them, because --quick and --set override the file */
    char *quick[MAX_QUICK]; /* "KEY=VALUE" */
    int n_quick;
} plan;

static void free_values(plan *p, int k)
{
    while (p->n_values[k] > 0)
        free(p->values[k][--p->n_values[k]]);
}

static void free_runs(plan *p)
{
    while (p->n_runs > 0)
        free(p->run[--p->n_runs]);
}

static void plan_free(plan *p)
{
    free_runs(p);
    for (int k = 0; k < p->n_keys; k++)
        free_values(p, k);
    while (p->n_quick > 0)
        free(p->quick[--p->n_quick]);
}

static int add_quick(plan *p, const char *key, const char *value, char err[NN_ERR_MAX])
{
    const size_t size = strlen(key) + strlen(value) + 2;
    char *line = p->n_quick < MAX_QUICK ? malloc(size) : NULL;
    if (!line)
        return nn_fail(err,
                       p->n_quick == MAX_QUICK ? "quick: there are more than %d keys (remove some)"
                                               : "lab: out of memory while reading the experiment, after %d keys "
                                                 "(close other programs)",
                       p->n_quick);
    snprintf(line, size, "%s=%s", key, value);
    p->quick[p->n_quick++] = line;
    return 0;
}

static int set_values(plan *p, const char *key, const char *value, char err[NN_ERR_MAX])
{
    int k = 0;
    while (k < p->n_keys && strcmp(p->key[k], key) != 0)
        k++;
    if (k == MAX_KEYS)
        return nn_fail(err, "vary: there are more than %d keys (remove some)", MAX_KEYS);
    free_values(p, k); /* --quick and --set override the values in the file */
    p->n_keys += k == p->n_keys;
    snprintf(p->key[k], sizeof p->key[k], "%.39s", key);
    for (const char *from = value; from;) {
        const char *end = strchr(from, '|');
        size_t size = end ? (size_t)(end - from) : strlen(from);
        const char *next = end ? end + 1 : NULL;
        for (; size > 0 && *from == ' '; size--)
            from++;
        for (; size > 0 && from[size - 1] == ' '; size--)
            continue;
        if (p->n_values[k] == MAX_VALUES)
            return nn_fail(err, "vary.%s: there are more than %d values (remove some)", p->key[k], MAX_VALUES);
        char *copy = strndup(from, size);
        nn_config probe;
        if (!copy)
            return nn_fail(err, "lab: out of memory while reading the experiment (close other programs)");
        p->values[k][p->n_values[k]++] = copy;
        nn_config_init(&probe);
        if (nn_config_set(&probe, p->key[k], copy, err) != 0)
            return -1;
        from = next;
    }
    return 0;
}

/* Set the keys of a line "run", and list their values in `vary` (may be NULL). */
static int set_run(const plan *p, const char *run, nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    for (const char *from = run + strspn(run, " "); *from; from += strspn(from, " ")) {
        char key[NN_TEXT_MAX];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(from, " "), from);
        from += strcspn(from, " ");
        char *value = strchr(key, '=');
        if (!value)
            return nn_fail(err, "run: \"%.60s\" is not KEY=VALUE (write run = position=rope lr=0.004)", key);
        *value++ = 0;
        for (int k = 0; k < p->n_keys; k++)
            if (strcmp(p->key[k], key) == 0)
                return nn_fail(err, "run: %.40s also has a line vary.%.40s (remove one of them)", key, key);
        if (nn_config_set(c, key, value, err) != 0)
            return -1;
        if (vary)
            json_object_set_new(vary, key, json_string(value));
    }
    return 0;
}

static int add_run(plan *p, const char *value, char err[NN_ERR_MAX])
{
    nn_config probe;
    if (p->new_runs)
        free_runs(p);
    p->new_runs = false;
    if (p->n_runs == MAX_RUNS)
        return nn_fail(err, "run: there are more than %d lines (remove some)", MAX_RUNS);
    char *copy = strdup(value);
    if (!copy)
        return nn_fail(err, "lab: out of memory while reading the experiment (close other programs)");
    p->run[p->n_runs++] = copy;
    nn_config_init(&probe);
    return set_run(p, value, &probe, NULL, err);
}

static int on_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX])
{
    plan *p = context;
    if (strncmp(key, "quick.", strlen("quick.")) == 0)
        return add_quick(p, key + strlen("quick."), value, err);
    if (strncmp(key, "vary.", strlen("vary.")) == 0)
        return set_values(p, key + strlen("vary."), value, err);
    if (strcmp(key, "run") == 0)
        return add_run(p, value, err);
    char *end;
    p->seeds = strtoll(value, &end, 10);
    return *value && !*end && p->seeds >= 1 && p->seeds <= MAX_SEEDS
               ? 0
               : nn_fail(err, "seeds: \"%.20s\" is not a number of seeds (use 1 to %d)", value, MAX_SEEDS);
}

/* If the model has no learned arrays in position terms, reset lr_terms and weight_decay_terms to their defaults,
 * because they have no effect. */
static int reset_unused(nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    static const char *const unused[][2] = {{"lr_terms", "1"}, {"weight_decay_terms", "0"}};
    nn_model m;
    bool arrays = false;
    const int code = nn_model_plan(&m, c, err);
    for (int32_t n = 0; code == 0 && n < m.n_params; n++)
        arrays |= m.params[n].of_term;
    nn_model_destroy(&m);
    for (int k = 0; code == 0 && !arrays && k < 2; k++) {
        nn_config_set(c, unused[k][0], unused[k][1], err);
        if (json_object_get(vary, unused[k][0]))
            json_object_set_new(vary, unused[k][0], json_string(unused[k][1]));
    }
    return code;
}

/* Set the values of combination `index`. The last key changes fastest, then come the lines "run"; the seed changes
 * slowest. */
static int choose(const plan *p, int64_t index, nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    const char *value[MAX_KEYS];
    for (int k = p->n_keys - 1; k >= 0; k--) {
        value[k] = p->values[k][index % p->n_values[k]];
        index /= p->n_values[k];
    }
    const int run = p->n_runs > 0 ? (int)(index % p->n_runs) : -1;
    c->seed += p->n_runs > 0 ? index / p->n_runs : index;
    if (run >= 0 && set_run(p, p->run[run], c, vary, err) != 0)
        return -1;
    for (int k = 0; k < p->n_keys; k++) {
        if (nn_config_set(c, p->key[k], value[k], err) != 0)
            return -1;
        json_object_set_new(vary, p->key[k], json_string(value[k]));
    }
    return nn_config_check(c, err) == 0 ? reset_unused(c, vary, err) : -1;
}

/* A set of experiments, each as lab_identify prints it. */
typedef struct known {
    char **config;
    size_t n;
    double ms; /* sum of ms_per_step of the results that were read */
} known;

static int add_known(known *k, const char *config, char err[NN_ERR_MAX])
{
    char **more = realloc(k->config, (k->n + 1) * sizeof *more);
    char *copy = more ? strdup(config) : NULL;
    k->config = more ? more : k->config;
    if (!copy)
        return nn_fail(err, "lab: out of memory while reading %zu results (close other programs)", k->n + 1);
    k->config[k->n++] = copy;
    return 0;
}

static bool is_known(const known *k, const char *config)
{
    for (size_t n = 0; n < k->n; n++)
        if (strcmp(k->config[n], config) == 0)
            return true;
    return false;
}

static void free_known(known *k)
{
    while (k->n > 0)
        free(k->config[--k->n]);
    free(k->config);
}

/* Read the results in a file, one per line. Keys that a result lacks get their defaults. Ignore an incomplete last
 * line. */
static int read_results(known *k, const char *path, const char *text, char err[NN_ERR_MAX])
{
    int number = 1;
    for (const char *line = text; strchr(line, '\n'); line = strchr(line, '\n') + 1, number++) {
        char config[NN_PRINT_MAX], why[NN_ERR_MAX];
        bool no_memory;
        json_t *result = io_json(line, strcspn(line, "\n"), 0, NULL, &no_memory);
        const char *text_of = json_string_value(json_object_get(result, "experiment"));
        nn_config c;
        nn_config_init(&c);
        const bool valid = text_of && nn_config_parse(&c, "results", text_of, NULL, NULL, why) == 0;
        k->ms += json_number_value(json_object_get(result, "ms_per_step"));
        json_decref(result);
        if (no_memory)
            return nn_fail(err, "lab: out of memory while reading %d results (close other programs)", number);
        if (!valid)
            return nn_fail(err, "%.300s:%d: not a result of relpos lab sweep (name another file)", path, number);
        lab_identify(&c, false, config);
        if (add_known(k, config, err) != 0)
            return -1;
    }
    return 0;
}

/* Open and lock the results file for appending, and read its results. Remove an incomplete last line, which a killed
 * sweep may leave. */
static FILE *open_results(known *k, const char *path, char err[NN_ERR_MAX])
{
    struct stat st;
    int code = lab_make_folder(path, true, err);
    const int fd = code == 0 ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666) : -1;
    FILE *to = NULL;
    if (code == 0 && fd < 0)
        code = nn_fail(err, "%.300s: cannot be written: %s (free space, or name another file)", path, strerror(errno));
    code = code == 0 ? lab_lock(fd, path, err) : code;
    if (code == 0 && fstat(fd, &st) != 0)
        code = nn_fail(err, "%.300s: cannot be read: %s", path, strerror(errno));
    if (code == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        char *text = lab_read(path, err);
        const char *end = text ? strrchr(text, '\n') : NULL, *unfinished = end ? end + 1 : text;
        static const char start[] = "{\"experiment\":";
        code = text ? read_results(k, path, text, err) : -1;
        if (code == 0 && strncmp(unfinished, start, strlen(unfinished)) != 0 &&
            strncmp(unfinished, start, strlen(start)) != 0)
            code = nn_fail(err, "%.300s: its last line is not a result of relpos lab sweep (name another file)", path);
        if (code == 0 && ftruncate(fd, unfinished - text) != 0)
            code =
                nn_fail(err, "%.300s: cannot be written: %s (free space, or name another file)", path, strerror(errno));
        free(text);
    }
    if (code == 0 && !(to = fdopen(fd, "a")))
        code = nn_fail(err, "%.300s: cannot be written: %s (free space, or name another file)", path, strerror(errno));
    if (!to && fd >= 0)
        close(fd);
    return to;
}

/* State that a sweep keeps from one experiment to the next. */
typedef struct work {
    lab_training trained;
    char counted[NN_PRINT_MAX]; /* text_key of the experiment for which `ngrams` was measured */
    json_t *ngrams;             /* results of lab_measure_ngrams; NULL if eval_ngrams is 0 */
} work;

/* Get the lengths at which a sweep measures: eval_lengths or, if that is empty, the length used in training. */
static int lengths_of(const nn_config *c, int64_t lengths[LAB_MAX_LENGTHS], char err[NN_ERR_MAX])
{
    char own[32];
    snprintf(own, sizeof own, "%lld", (long long)(c->generate != NN_GENERATE_NONE ? c->generate_size : c->length));
    return lab_lengths(c->eval_lengths[0] ? c->eval_lengths : own, lengths, err);
}

/* Print the keys that determine on which parts of which text a model is measured. */
static void text_key(const nn_config *c, char key[NN_PRINT_MAX])
{
    snprintf(key, NN_PRINT_MAX, "%d|%lld|%s|%s|%s|%s|%g|%d|%lld|%lld|%lld|%lld|%lld|%lld|%lld|%d|%lld",
             (int)c->generate, (long long)c->generate_size, c->text, c->valid, c->tokenizer, c->eval_lengths,
             c->valid_share, (int)c->task, (long long)c->vocab, (long long)c->classes, (long long)c->length,
             (long long)c->eval_bytes, (long long)c->eval_pieces, (long long)c->eval_stride, (long long)c->eval_context,
             (int)c->bos, (long long)c->eval_ngrams);
}

/* Measure the n-gram baseline, unless w->ngrams was already measured on the same parts of the same text. */
static int count_bytes(work *w, const nn_config *c, const lab_measure_options *how, const int64_t *lengths, int n,
                       char err[NN_ERR_MAX])
{
    char key[NN_PRINT_MAX];
    text_key(c, key);
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

/* Measure a trained model and return its results as one line; NULL with err on failure. */
static json_t *measure(work *w, const nn_config *c, json_t *vary, rp_pool *pool, char err[NN_ERR_MAX])
{
    char text[NN_PRINT_MAX];
    int64_t lengths[LAB_MAX_LENGTHS];
    size_t bytes = 0;
    const lab_training *t = &w->trained;
    nn_model other = {0}, *m = &w->trained.r.m;
    const int n = lengths_of(c, lengths, err);
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
        json_pack("{s:s, s:O, s:I, s:f, s:o, s:o*, s:o, s:I, s:I, s:f, s:f, s:I, s:o, s:O*, s:O*, s:O*}", "experiment",
                  text, "vary", vary, "seed", (json_int_t)c->seed, "train_loss", t->loss, "losses",
                  losses_of(t, c->steps), "pieces_of_files", pieces_of_files(c, &t->r.valid), "lengths", measured,
                  "weights", (json_int_t)m->n_weights, "position_weights", (json_int_t)lab_position_weights(m),
                  "ms_per_step", t->ms, "processor_share", t->processor_share, "bytes", (json_int_t)bytes, "machine",
                  lab_machine(pool), "ngrams", w->ngrams, "previous", t->previous, "curve", t->curve),
        err);
}

/* Write to `path` where --keep stores the weights: DIR/VALUE+VALUE-SEED.safetensors. */
static void kept_path(char path[NN_TEXT_MAX], const char *dir, json_t *vary, int64_t seed)
{
    const char *key, *between = "";
    json_t *value;
    size_t used = (size_t)snprintf(path, NN_TEXT_MAX, "%.300s/", dir);
    json_object_foreach(vary, key, value)
    {
        for (const char *c = between; *c; c++)
            path[used++] = *c;
        for (const char *c = json_string_value(value); *c && used < 800; c++)
            path[used++] = isalnum((unsigned char)*c) || strchr("-_.=,", *c) ? *c : '-';
        between = "+";
    }
    snprintf(path + used, NN_TEXT_MAX - used, "%s%lld.safetensors", json_object_size(vary) ? "-" : "", (long long)seed);
}

static int keep(const nn_model *m, const char *path, int64_t step, char err[NN_ERR_MAX])
{
    nn_model weights = *m; /* without the optimizer's moving averages */
    weights.m = weights.v = NULL;
    return nn_checkpoint_save(&weights, path, step, NN_REAL, err);
}

static const cli_option sweep_options[] = {
    {"output", 'o', "FILE",
     "append the results, one line of JSON per experiment; experiments with a result are skipped, and a stopped "
     "training "
     "continues"},
    {"set", SET, "KEY=VALUE", "set a key, which overrides the experiment; may be given more than once"},
    {"quick", QUICK, NULL, "apply the experiment's lines quick.KEY = VALUE, which make it short"},
    {"keep", KEEP, "DIR", "also write the weights of each model to this directory, for eval, sample and inspect"},
    {"shard", SHARD, "I/N", "run only part I of N parts, such as 1/2; run each part with a separate results file"},
    {"list", LIST, NULL, "print the experiments without running them"},
    {"state", STATE, NULL,
     "print which experiments are done, how far the current one is, and how long the others may take"},
    {"threads", THREADS, "N", "use N threads, which changes times but not losses; default: all available"},
    {0},
};
typedef struct request {
    const char *output, *keep;
    lab_sets sets;
    int64_t threads, part, parts;
    bool list, quick, state;
} request;

static int read_part(request *q, const char *value)
{
    char *slash, *end;
    q->part = strtoll(value, &slash, 10);
    q->parts = *slash == '/' ? strtoll(slash + 1, &end, 10) : 0;
    return q->parts >= 1 && q->parts <= 1000 && *end == 0 && q->part >= 1 && q->part <= q->parts
               ? CLI_OK
               : cli_error(CLI_USAGE,
                           "--shard: \"%.40s\" is not I/N with 1 <= I <= N <= 1000 (write a part such as 1/2)", value);
}

static int on_option(void *context, int key, const char *value)
{
    request *q = context;
    switch (key) {
    case 'o': q->output = value; return CLI_OK;
    case LIST: q->list = true; return CLI_OK;
    case STATE: q->state = true; return CLI_OK;
    case QUICK: q->quick = true; return CLI_OK;
    case SHARD: return read_part(q, value);
    case KEEP: q->keep = value; return CLI_OK;
    case SET: return lab_add_set(&q->sets, value);
    case THREADS: return cli_integer("--threads", value, 1, RP_MAX_THREADS, &q->threads);
    default: return -1;
    }
}

/* Choose the combinations for this part of the sweep (--shard), each distinct experiment once. Experiments that share a
 * training run go to the same part. Return their number, or -1 with err. */
static int64_t choose_runs(const request *q, const nn_config *base, const plan *p, int64_t **index,
                           char err[NN_ERR_MAX])
{
    int64_t all = p->seeds * (p->n_runs > 0 ? p->n_runs : 1), n = 0, trainings = 0;
    char config[NN_PRINT_MAX], before[NN_PRINT_MAX] = "";
    known seen = {0};
    for (int k = 0; k < p->n_keys; k++)
        all *= p->n_values[k];
    *index = malloc((size_t)all * sizeof **index);
    int code =
        *index ? 0
               : nn_fail(err, "lab: out of memory while listing %lld experiments (use fewer values)", (long long)all);
    for (int64_t x = 0; x < all && code == 0; x++) {
        nn_config c = *base;
        json_t *vary = json_object();
        code = choose(p, x, &c, vary, err);
        json_decref(vary);
        lab_identify(&c, false, config);
        if (code != 0 || is_known(&seen, config))
            continue;
        code = add_known(&seen, config, err);
        lab_identify(&c, true, config);
        trainings += strcmp(config, before) != 0;
        memcpy(before, config, sizeof before);
        if ((trainings - 1) % q->parts == q->part - 1)
            (*index)[n++] = x;
    }
    free_known(&seen);
    return code == 0 ? n : -1;
}

/* Check that the texts of an experiment can be read and are long enough. */
static int check_texts(const nn_config *c, char err[NN_ERR_MAX])
{
    int64_t lengths[LAB_MAX_LENGTHS];
    nn_tokenizer *tokenizer = NULL;
    lab_run r = {.c = *c};
    const int n = lengths_of(c, lengths, err);
    if (c->eval_ngrams > 0 && (c->task != NN_DECODER || c->tokenizer[0] || c->generate != NN_GENERATE_NONE))
        return nn_fail(err, "eval_ngrams: the n-gram baseline is only for decoders of bytes (set eval_ngrams = 0)");
    if (c->eval_previous > 0 && (c->task != NN_DECODER || c->length < 2 || c->generate != NN_GENERATE_NONE))
        return nn_fail(err, "eval_previous: only decoders of text with length 2 or more can be measured (set "
                            "eval_previous = 0)");
    if (c->task == NN_ENCODER_DECODER)
        return nn_fail(err, "task = encoder-decoder: a sweep cannot measure it (use relpos lab train)");
    int code = n < 0 ? -1 : lab_texts(&r, &tokenizer, err);
    if (c->generate != NN_GENERATE_NONE)
        return code == 0 ? lab_check_sizes(c, lengths, n, err) : -1;
    if (code == 0 && r.valid.n == 0)
        code = nn_fail(
            err, "valid_share = 0: a sweep needs a held-out text (set valid_share above 0, or set valid to files)");
    const lab_measure_options how = {c->eval_bytes, c->eval_pieces, c->eval_stride, c->eval_context};
    lab_places places;
    code = code == 0 ? lab_choose_places(c, &r.valid, &how, lengths, n, &places, err) : code;
    nn_text_free(&r.text);
    nn_text_free(&r.valid);
    nn_tokenizer_free(tokenizer);
    return code;
}

/* Check every experiment before training the first, because a training run may take hours. Return an exit code. */
static int check(const request *q, const nn_config *base, const plan *p, rp_pool *pool, const int64_t *index,
                 int64_t all)
{
    char err[NN_ERR_MAX], seen[NN_PRINT_MAX] = "", key[NN_PRINT_MAX];
    int code = CLI_OK;
    const bool train = !q->list && !q->state;
    for (int64_t x = 0; x < all && code == CLI_OK; x++) {
        nn_config c = *base;
        nn_model m = {0};
        json_t *vary = json_object();
        if (choose(p, index[x], &c, vary, err) != 0 || nn_model_plan(&m, &c, err) != 0 ||
            lab_check_memory(&c, &m, pool, err) != 0)
            code = cli_error(lab_code_of(err), "%s", err);
        text_key(&c, key);
        if (code == CLI_OK && train && strcmp(key, seen) != 0 && check_texts(&c, err) != 0)
            code = cli_error(CLI_FAILED, "%s", err);
        memcpy(seen, key, sizeof seen);
        char *text = json_dumps(vary, 0);
        if (q->list && code == CLI_OK)
            printf("%s, seed %lld: %lld weights\n", text ? text : "", (long long)c.seed, (long long)m.n_weights);
        free(text);
        nn_model_destroy(&m);
        json_decref(vary);
    }
    if (code == CLI_OK && train && q->keep) {
        if (lab_make_folder(q->keep, false, err) != 0)
            code = cli_error(CLI_FAILED, "--keep: %s", err);
        else if (access(q->keep, W_OK) != 0)
            code = cli_error(CLI_FAILED, "--keep: %.300s: cannot be written: %s (free space, or name another folder)",
                             q->keep, strerror(errno));
    }
    return code;
}

/* Return true if a sweep has locked its results file. */
static bool is_locked(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char err[NN_ERR_MAX];
    const bool locked = fd >= 0 && lab_lock(fd, path, err) != 0;
    if (fd >= 0)
        close(fd);
    return locked;
}

/* Print which experiments have a result, how far the current training is, and how long the others may take. Return an
 * exit code. */
static int show_state(const request *q, const nn_config *base, const plan *p, const int64_t *index, int64_t all)
{
    char err[NN_ERR_MAX], config[NN_PRINT_MAX], folder[NN_TEXT_MAX];
    known done = {0};
    char *text = access(q->output, F_OK) == 0 ? lab_read(q->output, err) : NULL;
    int64_t n_done = 0, left = 0, step = -1;
    int code = text && read_results(&done, q->output, text, err) != 0 ? cli_error(CLI_FAILED, "%s", err) : CLI_OK;
    snprintf(folder, sizeof folder, "%.900s.training", q->output);
    for (int64_t x = 0; x < all && code == CLI_OK; x++) {
        nn_config c = *base;
        json_t *vary = json_object();
        choose(p, index[x], &c, vary, err);
        lab_identify(&c, false, config);
        char *label = json_dumps(vary, 0);
        printf("%s, seed %lld: ", label ? label : "", (long long)c.seed);
        if (is_known(&done, config)) {
            n_done++;
            printf("done\n");
        } else if (step < 0) { /* experiments run in this order, so the state belongs to the first without a result */
            step = lab_training_step(folder, c.steps);
            left += c.steps - step;
            printf("step %lld of %lld\n", (long long)step, (long long)c.steps);
        } else {
            left += c.steps;
            printf("%lld steps to do\n", (long long)c.steps);
        }
        free(label);
        json_decref(vary);
    }
    if (code == CLI_OK)
        printf("%lld of %lld experiments are done; %lld steps are left", (long long)n_done, (long long)all,
               (long long)left);
    if (code == CLI_OK && done.n > 0 && left > 0)
        printf(", %.1f hours at %.0f ms per step", (double)left * done.ms / (double)done.n / 3.6e6,
               done.ms / (double)done.n);
    if (code == CLI_OK)
        printf(left == 0 ? "\n" : is_locked(q->output) ? "; the sweep is running\n" : "; the sweep is not running\n");
    free_known(&done);
    free(text);
    return code;
}

static int sweep(const request *q, const nn_config *base, const plan *p, rp_pool *pool)
{
    char err[NN_ERR_MAX], config[NN_PRINT_MAX], path[NN_TEXT_MAX], folder[NN_TEXT_MAX] = "";
    int64_t *index = NULL;
    struct stat st;
    const int64_t all = choose_runs(q, base, p, &index, err);
    bool stopped = false;
    int code = all < 0 ? cli_error(lab_code_of(err), "%s", err) : check(q, base, p, pool, index, all);
    if (code == CLI_OK && q->state)
        code = show_state(q, base, p, index, all);
    if (q->list || q->state) {
        free(index);
        return code;
    }
    known done = {0};
    FILE *to = code == CLI_OK ? open_results(&done, q->output, err) : NULL;
    if (code == CLI_OK && !to)
        code = cli_error(CLI_FAILED, "%s", err);
    if (to && fstat(fileno(to), &st) == 0 && S_ISREG(st.st_mode))
        snprintf(folder, sizeof folder, "%.900s.training", q->output);
    cli_progress bar = {.what = "sweep", .every = LAB_PROGRESS_SECONDS};
    work w = {0};
    int64_t failed = 0;
    for (int64_t x = 0; x < all && code == CLI_OK && !stopped; x++) {
        nn_config c = *base;
        io_json_lost(); /* clear the flag, which an earlier experiment may have set */
        json_t *vary = json_object(), *line = NULL;
        choose(p, index[x], &c, vary, err);
        lab_identify(&c, false, config);
        kept_path(path, q->keep ? q->keep : "", vary, c.seed);
        const bool has_result = is_known(&done, config), needs_weights = q->keep && access(path, F_OK) != 0;
        if (!has_result || needs_weights) {
            int state = lab_training_run(&w.trained, &c, pool, folder[0] ? folder : NULL, &bar, (double)x / (double)all,
                                         1 / (double)all, &stopped, err);
            if (state == 0 && !stopped && !has_result)
                state = (line = measure(&w, &c, vary, pool, err)) ? 0 : -1;
            if (state != 0) { /* one experiment may just diverge: continue with the others */
                failed++;
                cli_error(CLI_OK, "sweep: position %s, seed %lld: %s", c.position, (long long)c.seed, err);
            } else if (!stopped && ((q->keep && keep(&w.trained.r.m, path, w.trained.r.step, err) != 0) ||
                                    (line && (lab_write_line(to, q->output, json_incref(line), err) != 0 ||
                                              add_known(&done, config, err) != 0)))) {
                code = cli_error(CLI_FAILED, "%s", err);
            }
        }
        json_decref(line);
        json_decref(vary);
    }
    cli_progress_end(&bar);
    if (code == CLI_OK && folder[0] && !stopped && !cli_stop_requested())
        lab_training_done(folder);
    lab_training_end(&w.trained);
    json_decref(w.ngrams);
    free_known(&done);
    free(index);
    if (to && fclose(to) != 0 && code == CLI_OK)
        code = cli_error(CLI_FAILED, "%s: cannot be written: %s (free space, or name another file)", q->output,
                         strerror(errno));
    if (code == CLI_OK && (stopped || cli_stop_requested()))
        code = cli_error(CLI_FAILED, "sweep: stopped (run the same command to continue from %s)", q->output);
    else if (code == CLI_OK && failed)
        code =
            cli_error(CLI_FAILED,
                      "sweep: %lld of %lld experiments failed (see the lines above); %s has the results of the others",
                      (long long)failed, (long long)all, q->output);
    return code;
}

static int sweep_run(const cli_command *self, int argc, char **argv)
{
    request q = {.part = 1, .parts = 1};
    const char *path;
    char err[NN_ERR_MAX];
    int n, code = cli_options(self, argc, argv, on_option, &q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0 || !(q.output || q.list))
        return cli_error(CLI_USAGE, "lab sweep: %s (write relpos lab sweep lab/first.lab -o out/first.jsonl)",
                         n ? "no file for the results was given" : "no experiment was given");
    nn_config base;
    plan p = {.seeds = 1};
    rp_pool *pool = NULL;
    char *text = lab_read(path, err);
    nn_config_init(&base);
    code = text ? nn_config_parse(&base, path, text, on_key, &p, err) : -1;
    p.new_runs = true;
    for (int x = 0; code == 0 && q.quick && x < p.n_quick; x++)
        code = nn_config_parse(&base, "--quick", p.quick[x], on_key, &p, err);
    p.new_runs = true;
    lab_beside(path, base.text);
    lab_beside(path, base.valid);
    lab_beside(path, base.tokenizer);
    code = code == 0 ? lab_parse_sets(&base, &q.sets, on_key, &p, err) : code;
    if (code == 0 && q.quick && p.n_quick == 0)
        code = nn_fail(err, "--quick: %.300s has no line quick.KEY = VALUE (remove --quick, or add such lines)", path);
    if (code != 0)
        code = cli_error(text ? lab_code_of(err) : CLI_FAILED, "%s", err);
    else if (rp_pool_create(&pool, (int32_t)q.threads) != RP_OK)
        code = cli_refused(CLI_FAILED, "lab sweep", NULL, "use fewer --threads");
    else {
        cli_catch_signals(true);
        code = sweep(&q, &base, &p, pool);
        cli_catch_signals(false);
    }
    free(text);
    plan_free(&p);
    rp_pool_destroy(pool);
    return code;
}

const cli_command lab_sweep = {
    .name = "lab sweep",
    .summary = "train and measure an experiment for several values and seeds",
    .usage = "EXPERIMENT -o FILE [options]",
    .example =
        "  relpos lab sweep lab/length.lab --quick -o out/quick.jsonl\n"
        "  An experiment has lines such as  vary.position = none | alibi | t5,bidirectional=0  and  seeds = 3.\n",
    .options = sweep_options,
    .run = sweep_run,
};
