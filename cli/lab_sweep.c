/* lab_sweep.c -- relpos lab sweep and report: one experiment for each value and seed, and a table of what came out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab.h"
#include "progress.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = CLI_OWN, LIST, SET, QUICK, KEEP };
enum { MOST_KEYS = 8, MOST_VALUES = 32, MOST_SEEDS = 32, MOST_QUICK = 32, MOST_SETS = 64 };

/* "vary.KEY = A | B | C": every value of every key with every other, and every seed. "quick.KEY = VALUE": in place of KEY's
 * own with --quick. */
typedef struct plan {
    char key[MOST_KEYS][40];
    char *values[MOST_KEYS][MOST_VALUES];
    int n_values[MOST_KEYS], n_keys;
    int64_t seeds;
    char *quick[MOST_QUICK]; /* "KEY=VALUE" */
    int n_quick;
} plan;

static void drop_values(plan *p, int k)
{
    while (p->n_values[k] > 0)
        free(p->values[k][--p->n_values[k]]);
}

static void plan_free(plan *p)
{
    for (int k = 0; k < p->n_keys; k++)
        drop_values(p, k);
    while (p->n_quick > 0)
        free(p->quick[--p->n_quick]);
}

static int add_quick(plan *p, const char *key, const char *value, char err[NN_ERR_MAX])
{
    const size_t room = strlen(key) + strlen(value) + 2;
    char *line = p->n_quick < MOST_QUICK ? malloc(room) : NULL;
    if (!line)
        return nn_fail(err, p->n_quick == MOST_QUICK ? "quick: more than %d keys" : "lab: no memory (%d keys)",
                       p->n_quick);
    snprintf(line, room, "%s=%s", key, value);
    p->quick[p->n_quick++] = line;
    return 0;
}

static int set_values(plan *p, const char *key, const char *value, char err[NN_ERR_MAX])
{
    int k = 0;
    while (k < p->n_keys && strcmp(p->key[k], key) != 0)
        k++;
    if (k == MOST_KEYS)
        return nn_fail(err, "vary: more than %d keys", MOST_KEYS);
    drop_values(p, k); /* of the same key, given again by --quick or --set */
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
        if (p->n_values[k] == MOST_VALUES)
            return nn_fail(err, "vary.%s: more than %d values", p->key[k], MOST_VALUES);
        char *copy = strndup(from, size);
        nn_config probe;
        if (!copy)
            return nn_fail(err, "lab: no memory for the experiment");
        p->values[k][p->n_values[k]++] = copy;
        nn_config_init(&probe);
        if (nn_config_set(&probe, p->key[k], copy, err) != 0)
            return -1;
        from = next;
    }
    return 0;
}

static int on_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX])
{
    plan *p = context;
    if (strncmp(key, "quick.", strlen("quick.")) == 0)
        return add_quick(p, key + strlen("quick."), value, err);
    if (strncmp(key, "vary.", strlen("vary.")) == 0)
        return set_values(p, key + strlen("vary."), value, err);
    char *end;
    p->seeds = strtoll(value, &end, 10);
    return *value && !*end && p->seeds >= 1 && p->seeds <= MOST_SEEDS
               ? 0
               : nn_fail(err, "seeds: \"%.20s\" (1 to %d)", value, MOST_SEEDS);
}

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

/* One of all combinations: the last key goes round fastest, the seed slowest. */
static int choose(const plan *p, int64_t index, nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    const char *value[MOST_KEYS];
    for (int k = p->n_keys - 1; k >= 0; k--) {
        value[k] = p->values[k][index % p->n_values[k]];
        index /= p->n_values[k];
    }
    c->seed += index;
    for (int k = 0; k < p->n_keys; k++) {
        if (nn_config_set(c, p->key[k], value[k], err) != 0)
            return -1;
        json_object_set_new(vary, p->key[k], json_string(value[k]));
    }
    return nn_config_check(c, err);
}

/* Whether a results file has this experiment already; keys that it does not know have their defaults. */
static bool done_before(const char *text, const char *config)
{
    char then[NN_PRINT_MAX], err[NN_ERR_MAX];
    for (const char *line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
        json_t *had = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const char *its = json_string_value(json_object_get(had, "experiment"));
        nn_config c;
        nn_config_init(&c);
        bool same = its && nn_config_parse(&c, "results", its, NULL, NULL, err) == 0;
        if (same)
            nn_config_print(&c, then);
        same = same && strcmp(then, config) == 0;
        json_decref(had);
        if (same)
            return true;
    }
    return false;
}

/* A trained model, kept until another is wanted: experiments that differ in eval_position alone share it. */
typedef struct trained {
    lab_run r;
    char config[NN_PRINT_MAX]; /* without eval_position; "": none is there */
    double loss, ms;
} trained;

static void forget(trained *t)
{
    lab_end(&t->r);
    memset(t, 0, sizeof *t);
}

/* *stopped after Ctrl-C, when the model is not there. */
static int train(trained *t, const nn_config *c, rp_pool *pool, cli_progress *bar, double done, double share,
                 bool *stopped, char err[NN_ERR_MAX])
{
    nn_config own = *c;
    char config[NN_PRINT_MAX], note[96];
    own.eval_position[0] = 0;
    nn_config_print(&own, config);
    if (strcmp(t->config, config) == 0)
        return 0;
    forget(t);
    t->r = (lab_run){.c = *c, .pool = pool};
    double loss = 0, norm = 0, sum = 0, *seconds = malloc((size_t)c->steps * sizeof *seconds);
    int64_t count = 0;
    int code = !seconds                     ? nn_fail(err, "lab: no memory")
               : lab_begin(&t->r) != CLI_OK ? nn_fail(err, "lab sweep: the line above says why")
                                            : 0;
    bar->note = note;
    while (code == 0 && t->r.step < c->steps && !stop_asked) {
        const double before = cli_seconds();
        code = lab_step(&t->r, &loss, &norm, err);
        if (code == 0 && (!isfinite(loss) || !isfinite(norm)))
            code = nn_fail(err, "step %lld: the loss is %g", (long long)t->r.step, loss);
        if (code != 0)
            break;
        seconds[t->r.step - 1] = cli_seconds() - before;
        if (t->r.step > c->steps - (c->steps + 9) / 10) { /* the last tenth */
            sum += loss;
            count++;
        }
        snprintf(note, sizeof note, "%.40s, step %lld, loss %.3f", c->position, (long long)t->r.step, loss);
        cli_progress_show(bar, done + share * (double)t->r.step / (double)c->steps);
    }
    bar->note = NULL;
    *stopped = code == 0 && t->r.step < c->steps;
    if (code == 0 && !*stopped) {
        qsort(seconds, (size_t)c->steps, sizeof *seconds, cli_by_size);
        t->ms = 1e3 * seconds[c->steps / 2];
        t->loss = sum / (double)count;
        memcpy(t->config, config, sizeof config);
    } else {
        forget(t);
    }
    free(seconds);
    return code;
}

/* The line of results, or NULL with err. */
static json_t *measure(trained *t, const nn_config *c, json_t *vary, rp_pool *pool, char err[NN_ERR_MAX])
{
    char text[NN_PRINT_MAX], own[32];
    int64_t lengths[LAB_MOST_LENGTHS];
    size_t bytes = 0;
    nn_model other = {0}, *m = &t->r.m;
    snprintf(own, sizeof own, "%lld", (long long)c->length);
    const int n = lab_lengths(c->eval_lengths[0] ? c->eval_lengths : own, lengths, err);
    if (n < 0 || (c->eval_position[0] && nn_model_as(&other, m, c->eval_position, err) != 0) ||
        nn_net_create(NULL, m, pool, c->batch, c->length, true, 0, &bytes, err) != 0)
        return NULL;
    json_t *measured = lab_measure_lengths(other.w ? &other : m, pool, &t->r.valid, c->eval_bytes, lengths, n, err);
    nn_model_destroy(&other);
    if (!measured)
        return NULL;
    nn_config_print(c, text);
    return json_pack("{s:s, s:O, s:I, s:f, s:o, s:I, s:I, s:f, s:I, s:o}", "experiment", text, "vary", vary, "seed",
                     (json_int_t)c->seed, "train_loss", t->loss, "lengths", measured, "weights",
                     (json_int_t)m->n_weights, "position_weights", (json_int_t)lab_position_weights(m), "ms_per_step",
                     t->ms, "bytes", (json_int_t)bytes, "machine", lab_machine(pool));
}

/* The weights as DIR/VALUE-VALUE-SEED.safetensors, for eval, sample and inspect. */
static int keep(const nn_model *m, const char *dir, json_t *vary, int64_t step, char err[NN_ERR_MAX])
{
    char path[NN_TEXT_MAX];
    const char *key;
    json_t *value;
    nn_model bare = *m;
    bare.m = bare.v = NULL;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return nn_fail(err, "--keep: %.300s: cannot be made: %s", dir, strerror(errno));
    size_t used = (size_t)snprintf(path, sizeof path, "%.300s/", dir);
    json_object_foreach(vary, key, value) for (const char *c = json_string_value(value); *c && used < 800; c++)
        path[used++] = isalnum((unsigned char)*c) || strchr("-_.=,", *c) ? *c : '-';
    snprintf(path + used, sizeof path - used, "%s%lld.safetensors", json_object_size(vary) ? "-" : "",
             (long long)m->c.seed);
    return nn_checkpoint_save(&bare, path, step, err);
}

static const cli_option sweep_options[] = {
    {"output", 'o', "FILE", "results, a JSON line each; those that are there already are not made again"},
    {"set", SET, "KEY=VALUE", "in place of what the experiment says; may be given more than once"},
    {"quick", QUICK, NULL, "with the lines quick.KEY = VALUE of the experiment, which make it short"},
    {"keep", KEEP, "DIR", "the weights of each too, for eval, sample and inspect"},
    {"list", LIST, NULL, "check the experiments, print them and run none"},
    {"threads", THREADS, "N", "default: all this process may use; losses are the same, times are not"},
    {0},
};
typedef struct request {
    const char *output, *keep, *sets[MOST_SETS];
    int n_sets;
    int64_t threads;
    bool list, quick;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *q = context;
    switch (key) {
    case 'o': q->output = value; return CLI_OK;
    case LIST: q->list = true; return CLI_OK;
    case QUICK: q->quick = true; return CLI_OK;
    case KEEP: q->keep = value; return CLI_OK;
    case SET:
        if (q->n_sets == MOST_SETS)
            return cli_error(CLI_USAGE, "--set: more than %d (write them into the experiment)", MOST_SETS);
        q->sets[q->n_sets++] = value;
        return CLI_OK;
    case THREADS: return cli_integer("--threads", value, 1, 4096, &q->threads);
    default: return -1;
    }
}

static int sweep(const request *q, const nn_config *base, const plan *p, rp_pool *pool)
{
    char err[NN_ERR_MAX], config[NN_PRINT_MAX], why[NN_ERR_MAX];
    int64_t all = p->seeds;
    int code = CLI_OK;
    bool stopped = false;
    for (int k = 0; k < p->n_keys; k++)
        all *= p->n_values[k];
    for (int64_t x = 0; x < all && code == CLI_OK; x++) { /* what cannot be is said before hours have passed */
        nn_config c = *base;
        nn_model m = {0};
        json_t *vary = json_object();
        if (choose(p, x, &c, vary, err) != 0 || nn_model_plan(&m, &c, err) != 0 ||
            lab_check_memory(&c, &m, pool, err) != 0)
            code = cli_error(CLI_USAGE, "%s", err);
        char *text = json_dumps(vary, 0);
        if (q->list && code == CLI_OK)
            printf("%s, seed %lld: %lld weights\n", text ? text : "", (long long)c.seed, (long long)m.n_weights);
        free(text);
        nn_model_destroy(&m);
        json_decref(vary);
    }
    if (q->list)
        return code;
    char *before = code == CLI_OK && access(q->output, F_OK) == 0 ? lab_read(q->output, err) : NULL;
    FILE *to = code == CLI_OK ? fopen(q->output, "ae") : NULL;
    if (code == CLI_OK && !to)
        code = cli_error(CLI_FAILED, "%s: cannot be written: %s", q->output, strerror(errno));
    cli_progress bar = {.what = "sweep"};
    trained t = {0};
    int64_t failed = 0;
    for (int64_t x = 0; x < all && code == CLI_OK && !stopped; x++) {
        nn_config c = *base;
        json_t *vary = json_object();
        choose(p, x, &c, vary, err);
        nn_config_print(&c, config);
        if (!done_before(before, config)) {
            json_t *line = NULL;
            if (train(&t, &c, pool, &bar, (double)x / (double)all, 1 / (double)all, &stopped, err) == 0 && !stopped)
                line = measure(&t, &c, vary, pool, err);
            if (line && q->keep && keep(&t.r.m, q->keep, vary, t.r.step, why) != 0)
                code = cli_error(CLI_FAILED, "%s", why);
            if (!line && !stopped) { /* one that diverges is a result too */
                failed++;
                cli_error(CLI_OK, "sweep: position %s, seed %lld: %s", c.position, (long long)c.seed, err);
            } else if (line && lab_write_line(to, q->output, line, why) != 0) {
                code = cli_error(CLI_FAILED, "%s", why);
            }
        }
        json_decref(vary);
    }
    cli_progress_end(&bar);
    forget(&t);
    if (to && fclose(to) != 0 && code == CLI_OK)
        code = cli_error(CLI_FAILED, "%s: cannot be written: %s", q->output, strerror(errno));
    if (code == CLI_OK && (stopped || stop_asked))
        code = cli_error(CLI_FAILED, "sweep: stopped (the same command goes on after the results that are in %s)",
                         q->output);
    else if (code == CLI_OK && failed)
        code = cli_error(CLI_FAILED, "sweep: %lld of %lld failed; the others are in %s", (long long)failed,
                         (long long)all, q->output);
    free(before);
    return code;
}

static int sweep_run(const cli_command *self, int argc, char **argv)
{
    request q = {0};
    const char *path;
    char err[NN_ERR_MAX];
    int n, code = cli_options(self, argc, argv, on_option, &q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0 || !(q.output || q.list))
        return cli_error(CLI_USAGE, "lab sweep: %s (such as relpos lab sweep lab/first.lab -o out/first.jsonl)",
                         n ? "no file for the results" : "no experiment");
    nn_config base;
    plan p = {.seeds = 1};
    rp_pool *pool = NULL;
    char *text = lab_read(path, err);
    nn_config_init(&base);
    code = text ? nn_config_parse(&base, path, text, on_key, &p, err) : -1;
    for (int x = 0; code == 0 && q.quick && x < p.n_quick; x++)
        code = nn_config_parse(&base, "--quick", p.quick[x], on_key, &p, err);
    for (int x = 0; code == 0 && x < q.n_sets; x++)
        code = nn_config_parse(&base, "--set", q.sets[x], on_key, &p, err);
    if (code == 0 && q.quick && p.n_quick == 0)
        code = nn_fail(err, "--quick: %.300s has no line quick.KEY = VALUE", path);
    if (code != 0)
        code = cli_error(CLI_USAGE, "%s", err);
    else if (rp_pool_create(&pool, (int32_t)q.threads) != RP_OK)
        code = cli_error(CLI_FAILED, "lab sweep: %s", rp_last_error());
    else {
        struct sigaction on = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND}, old;
        sigaction(SIGINT, &on, &old);
        code = sweep(&q, &base, &p, pool);
        sigaction(SIGINT, &old, NULL);
    }
    free(text);
    plan_free(&p);
    rp_pool_destroy(pool);
    return code;
}

const cli_command lab_sweep = {
    .name = "lab sweep",
    .summary = "train and measure an experiment for each of several values and seeds",
    .usage = "EXPERIMENT -o FILE [options]",
    .example =
        "  relpos lab sweep lab/length.lab --quick -o out/quick.jsonl\n"
        "  The experiment has lines such as  vary.position = none | alibi | t5,bidirectional=0  and  seeds = 3.\n",
    .options = sweep_options,
    .run = sweep_run,
};

/* ------------------------------------------------------------------------------------------------ report */

/* Results of one choice of values, of all seeds. */
typedef struct group {
    char name[512];
    const char *measure; /* perplexity, or accuracy of a classifier */
    int64_t n, n_lengths, length[LAB_MOST_LENGTHS], weights, position_weights, bytes;
    double sum[LAB_MOST_LENGTHS], least[LAB_MOST_LENGTHS], most[LAB_MOST_LENGTHS], ms;
} group;

static void name_group(char name[512], json_t *vary)
{
    const char *key;
    json_t *value;
    size_t used = 0;
    name[0] = 0;
    json_object_foreach(vary, key, value) if (used < 500) used +=
        (size_t)snprintf(name + used, 512 - used, "%s%s = %s", used ? ", " : "", key, json_string_value(value));
    if (!name[0])
        snprintf(name, 512, "all");
}

static int add_result(group **groups, int64_t *n, json_t *line)
{
    char name[512];
    json_t *lengths = json_object_get(line, "lengths"), *at;
    size_t x;
    if (!json_is_array(lengths) || json_array_size(lengths) > LAB_MOST_LENGTHS)
        return -1;
    name_group(name, json_object_get(line, "vary"));
    int64_t g = 0;
    while (g < *n && strcmp((*groups)[g].name, name) != 0)
        g++;
    if (g == *n) {
        group *more = realloc(*groups, (size_t)(*n + 1) * sizeof *more);
        if (!more)
            return -1;
        *groups = more;
        memset(&more[g], 0, sizeof *more);
        memcpy(more[g].name, name, sizeof name);
        ++*n;
    }
    group *to = &(*groups)[g];
    to->measure = json_object_get(json_array_get(lengths, 0), "accuracy") ? "accuracy" : "perplexity";
    json_array_foreach(lengths, x, at)
    {
        const double p = json_number_value(json_object_get(at, to->measure));
        to->length[x] = json_integer_value(json_object_get(at, "length"));
        to->sum[x] += p;
        to->least[x] = to->n && to->least[x] < p ? to->least[x] : p;
        to->most[x] = to->n && to->most[x] > p ? to->most[x] : p;
    }
    to->n_lengths = (int64_t)json_array_size(lengths);
    to->ms += json_number_value(json_object_get(line, "ms_per_step"));
    to->weights = json_integer_value(json_object_get(line, "weights"));
    to->position_weights = json_integer_value(json_object_get(line, "position_weights"));
    to->bytes = json_integer_value(json_object_get(line, "bytes"));
    to->n++;
    return 0;
}

static int no_option(void *context, int key, const char *value)
{
    (void)context, (void)key, (void)value;
    return -1;
}

static int report_run(const cli_command *self, int argc, char **argv)
{
    const char *paths[16];
    char err[NN_ERR_MAX];
    int n, code = cli_options(self, argc, argv, no_option, NULL, paths, 16, &n);
    group *groups = NULL;
    int64_t n_groups = 0;
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "lab report: no results (such as relpos lab report out/positions.jsonl)");
    code = CLI_OK;
    for (int f = 0; f < n && code == CLI_OK; f++) {
        char *text = lab_read(paths[f], err);
        if (!text)
            code = cli_error(CLI_FAILED, "%s", err);
        int64_t number = 0;
        for (const char *at = text; at && *at && code == CLI_OK; at += strcspn(at, "\n"), at += *at == '\n') {
            json_t *line = json_loadb(at, strcspn(at, "\n"), 0, NULL);
            number++;
            if (!line || add_result(&groups, &n_groups, line) != 0)
                code = cli_error(CLI_FAILED, "%s:%lld: no result of relpos lab sweep", paths[f], (long long)number);
            json_decref(line);
        }
        free(text);
    }
    if (code == CLI_OK && n_groups > 0) {
        printf("| |");
        for (int64_t x = 0; x < groups[0].n_lengths; x++)
            printf(" %s at %lld |", groups[0].measure, (long long)groups[0].length[x]);
        printf(" weights of positions | weights | ms a step | seeds |\n|---|");
        for (int64_t x = 0; x < groups[0].n_lengths + 4; x++)
            printf("---|");
        printf("\n");
        for (int64_t g = 0; g < n_groups; g++) {
            printf("| %s |", groups[g].name);
            for (int64_t x = 0; x < groups[g].n_lengths; x++)
                printf(" %.3f (%.3f to %.3f) |", groups[g].sum[x] / (double)groups[g].n, groups[g].least[x],
                       groups[g].most[x]);
            printf(" %lld | %lld | %.1f | %lld |\n", (long long)groups[g].position_weights,
                   (long long)groups[g].weights, groups[g].ms / (double)groups[g].n, (long long)groups[g].n);
        }
    }
    free(groups);
    return code;
}

static const cli_option report_options[] = {{0}};

const cli_command lab_report = {
    .name = "lab report",
    .summary = "a table of the results of sweeps, in Markdown",
    .usage = "FILE...",
    .example = "  relpos lab report out/positions.jsonl\n",
    .options = report_options,
    .run = report_run,
};
