/* lab_sweep.c -- relpos lab sweep and report: one experiment for each value and seed, and a table of what came out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab.h"
#include "progress.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = CLI_OWN, LIST };
enum { MOST_KEYS = 8, MOST_VALUES = 32, MOST_SEEDS = 32 };

/* "vary.KEY = A | B | C": every value of every key with every other, and every seed. */
typedef struct plan {
    char key[MOST_KEYS][40];
    char *values[MOST_KEYS][MOST_VALUES];
    int n_values[MOST_KEYS], n_keys;
    int64_t seeds;
} plan;

static void plan_free(plan *p)
{
    for (int k = 0; k < p->n_keys; k++)
        for (int v = 0; v < p->n_values[k]; v++)
            free(p->values[k][v]);
}

static int on_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX])
{
    plan *p = context;
    if (strcmp(key, "seeds") == 0) {
        char *end;
        p->seeds = strtoll(value, &end, 10);
        return *value && !*end && p->seeds >= 1 && p->seeds <= MOST_SEEDS
                   ? 0
                   : nn_fail(err, "seeds: \"%.20s\" (1 to %d)", value, MOST_SEEDS);
    }
    if (p->n_keys == MOST_KEYS)
        return nn_fail(err, "vary: more than %d keys", MOST_KEYS);
    const int k = p->n_keys++;
    snprintf(p->key[k], sizeof p->key[k], "%.39s", key + strlen("vary."));
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

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

/* One of all combinations: the seed goes round fastest. */
static int choose(const plan *p, int64_t index, nn_config *c, json_t *vary, char err[NN_ERR_MAX])
{
    c->seed += index % p->seeds;
    index /= p->seeds;
    for (int k = p->n_keys - 1; k >= 0; k--) {
        const char *value = p->values[k][index % p->n_values[k]];
        index /= p->n_values[k];
        if (nn_config_set(c, p->key[k], value, err) != 0)
            return -1;
        json_object_set_new(vary, p->key[k], json_string(value));
    }
    return nn_config_check(c, err);
}

/* Whether a results file has this experiment already. */
static bool done_before(const char *text, const char *config)
{
    for (const char *line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
        json_t *had = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const char *its = json_string_value(json_object_get(had, "experiment"));
        const bool same = its && strcmp(its, config) == 0;
        json_decref(had);
        if (same)
            return true;
    }
    return false;
}

/* Train and measure one; the line of results, or NULL with err. 1 in *stopped after Ctrl-C. */
static json_t *run_one(const nn_config *c, json_t *vary, rp_pool *pool, cli_progress *bar, double done, double share,
                       bool *stopped, char err[NN_ERR_MAX])
{
    lab_run r = {.c = *c, .pool = pool};
    char text[NN_PRINT_MAX], own[32], note[96];
    int64_t lengths[LAB_MOST_LENGTHS];
    double loss = 0, norm = 0, *seconds = malloc((size_t)c->steps * sizeof *seconds);
    json_t *line = NULL, *measured = NULL;
    snprintf(own, sizeof own, "%lld", (long long)c->length);
    const int n = lab_lengths(c->eval_lengths[0] ? c->eval_lengths : own, lengths, err);
    size_t bytes = 0;
    int code = n < 0 ? -1 : !seconds ? nn_fail(err, "lab: no memory") : 0;
    if (code == 0 && lab_begin(&r) != CLI_OK)
        code = nn_fail(err, "lab sweep: the line above says why");
    bar->note = note;
    double loss_sum = 0;
    int64_t loss_count = 0;
    while (code == 0 && r.step < c->steps && !stop_asked) {
        const double before = cli_seconds();
        code = lab_step(&r, &loss, &norm, err);
        if (code == 0 && (!isfinite(loss) || !isfinite(norm)))
            code = nn_fail(err, "step %lld: the loss is %g", (long long)r.step, loss);
        if (code != 0)
            break;
        seconds[r.step - 1] = cli_seconds() - before;
        if (r.step > c->steps - (c->steps + 9) / 10) { /* the last tenth */
            loss_sum += loss;
            loss_count++;
        }
        snprintf(note, sizeof note, "%.40s, step %lld, loss %.3f", c->position, (long long)r.step, loss);
        cli_progress_show(bar, done + share * (double)r.step / (double)c->steps);
    }
    *stopped = code == 0 && r.step < c->steps;
    if (code == 0 && !*stopped)
        measured = lab_measure_lengths(&r.m, pool, &r.valid, c->eval_bytes, lengths, n, err);
    if (measured) {
        qsort(seconds, (size_t)c->steps, sizeof *seconds, cli_by_size);
        nn_net_create(NULL, &r.m, pool, c->batch, c->length, true, 0, &bytes, err);
        nn_config_print(c, text);
        line = json_pack("{s:s, s:O, s:I, s:f, s:o, s:I, s:I, s:f, s:I, s:o}", "experiment", text, "vary", vary, "seed",
                         (json_int_t)c->seed, "train_loss", loss_sum / (double)loss_count, "lengths", measured,
                         "weights", (json_int_t)r.m.n_weights, "position_weights",
                         (json_int_t)lab_position_weights(&r.m), "ms_per_step", 1e3 * seconds[c->steps / 2], "bytes",
                         (json_int_t)bytes, "machine", lab_machine(pool));
    }
    bar->note = NULL;
    lab_end(&r);
    free(seconds);
    return line;
}

static const cli_option sweep_options[] = {
    {"output", 'o', "FILE", "results, a JSON line each; those that are there already are not made again"},
    {"list", LIST, NULL, "check the experiments, print them and run none"},
    {"threads", THREADS, "N", "default: all this process may use; losses are the same, times are not"},
    {0},
};
typedef struct request {
    const char *output;
    int64_t threads;
    bool list;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *q = context;
    switch (key) {
    case 'o': q->output = value; return CLI_OK;
    case LIST: q->list = true; return CLI_OK;
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
    int64_t failed = 0;
    for (int64_t x = 0; x < all && code == CLI_OK && !stopped; x++) {
        nn_config c = *base;
        json_t *vary = json_object();
        choose(p, x, &c, vary, err);
        nn_config_print(&c, config);
        if (!done_before(before, config)) {
            json_t *line = run_one(&c, vary, pool, &bar, (double)x / (double)all, 1 / (double)all, &stopped, err);
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
    if (!text || nn_config_parse(&base, path, text, on_key, &p, err) != 0)
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
        "  relpos lab sweep lab/positions.lab -o out/positions.jsonl\n"
        "  The experiment has lines such as  vary.position = none | alibi | t5,bidirectional=0  and  seeds = 3.\n",
    .options = sweep_options,
    .run = sweep_run,
};

/* ------------------------------------------------------------------------------------------------ report */

/* Results of one choice of values, of all seeds. */
typedef struct group {
    char name[512];
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
    json_array_foreach(lengths, x, at)
    {
        const double p = json_number_value(json_object_get(at, "perplexity"));
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
            printf(" perplexity at %lld |", (long long)groups[0].length[x]);
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
