/* sweep.c -- relpos lab sweep: train and measure one experiment for each combination of values and each seed, and
 * append the results to a file. sweep_plan.c lists the experiments, training.c runs each training, and several
 * processes can share the file (sweep_results.c).
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"
#include "cli/lab/sweep.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = CLI_FIRST_KEY, LIST, STATE, SET, QUICK, KEEP, SHARD };

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
    return nn_checkpoint_save(&weights, path, step, LAYERS_REAL, err);
}

static const cli_option sweep_options[] = {
    {"output", 'o', "FILE",
     "append the results, one line of JSON per experiment; experiments with a result are skipped, and a "
     "stopped training continues"},
    {"set", SET, "KEY=VALUE", "set a key, which overrides the experiment; may be given more than once"},
    {"quick", QUICK, NULL, "apply the experiment's lines quick.KEY = VALUE, which make it short"},
    {"keep", KEEP, "DIR", "also write the weights of each model to this directory, for eval, sample and inspect"},
    {"shard", SHARD, "I/N", "run only part I of N parts, such as 1/2; run each part with a separate results file"},
    {"list", LIST, NULL, "print the experiments without running them"},
    {"state", STATE, NULL,
     "print which experiments are done, how far the current one is, and how long the others may take"},
    {"threads", THREADS, "N", "use N threads, which changes times but not losses; " CLI_ALL_THREADS},
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

/* Everything that a sweep uses. */
typedef struct sweeper {
    request q;
    nn_config base;
    lab_plan plan;
    rp_pool *pool;
    lab_experiments e;
    uint64_t texts; /* checksum of all texts */
    lab_results results;
    lab_sweep_work w;
    cli_progress bar;
    lab_experiment *claimed; /* an experiment whose training this process has claimed; NULL */
    bool stopped;
} sweeper;

/* Check that the texts of an experiment can be read and are long enough. Add them to the checksum. */
static int check_texts(const nn_config *c, uint64_t *checksum, char err[NN_ERR_MAX])
{
    int64_t lengths[LAB_MAX_LENGTHS];
    nn_tokenizer *tokenizer = NULL;
    lab_run r = {.c = *c};
    const int n = lab_sweep_lengths(c, lengths, err);
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
    const uint64_t own = code == 0 ? lab_texts_checksum(&r) : 0;
    *checksum = io_checksum(*checksum, &own, sizeof own);
    nn_text_free(&r.text);
    nn_text_free(&r.valid);
    nn_tokenizer_free(tokenizer);
    return code;
}

/* Check every experiment before training the first, because a training run may take hours. Return an exit code. */
static int check(sweeper *s)
{
    char err[NN_ERR_MAX], seen[NN_PRINT_MAX] = "", key[NN_PRINT_MAX];
    int code = CLI_OK;
    const request *q = &s->q;
    const bool train = !q->list && !q->state;
    for (int64_t x = 0; x < s->e.n && code == CLI_OK; x++) {
        nn_config c = s->base;
        nn_model m = {0};
        json_t *vary = json_object();
        if (lab_plan_choose(&s->plan, &s->e.all[x], &c, vary, err) != 0 || nn_model_plan(&m, &c, err) != 0 ||
            lab_check_memory(&c, &m, s->pool, err) != 0)
            code = cli_error(lab_code_of(err), "%s", err);
        lab_sweep_text_key(&c, key);
        if (code == CLI_OK && train && strcmp(key, seen) != 0 && check_texts(&c, &s->texts, err) != 0)
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

/* Print one line of --state, and add the steps that are left. */
static void show_experiment(const sweeper *s, const lab_experiment *e, int64_t *left)
{
    char err[NN_ERR_MAX], folder[NN_TEXT_MAX];
    nn_config c = s->base;
    json_t *vary = json_object();
    lab_plan_choose(&s->plan, e, &c, vary, err);
    lab_results_folder(&s->results, e->training, folder);
    const bool done = lab_results_has(&s->results, e->config), runs = lab_results_claimed(&s->results, e->training);
    const int64_t step = lab_training_step(folder, c.steps);
    char *label = json_dumps(vary, 0);
    printf("%s, seed %lld: ", label ? label : "", (long long)c.seed);
    if (done)
        printf("done\n");
    else if (runs || step > 0)
        printf("step %lld of %lld%s\n", (long long)step, (long long)c.steps, runs ? ", running" : "");
    else
        printf("%lld steps to do\n", (long long)c.steps);
    *left += done ? 0 : c.steps - step;
    free(label);
    json_decref(vary);
}

/* Print which experiments have a result, how far the others are, and how long they may take. Return an exit code. */
static int show_state(sweeper *s)
{
    char err[NN_ERR_MAX];
    int64_t done = 0, left = 0;
    const lab_results *r = &s->results;
    if (lab_results_read(&s->results, s->q.output, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    for (int64_t x = 0; x < s->e.n; x++) {
        show_experiment(s, &s->e.all[x], &left);
        done += lab_results_has(r, s->e.all[x].config);
    }
    printf("%lld of %lld experiments are done; %lld steps are left", (long long)done, (long long)s->e.n,
           (long long)left);
    if (r->n > 0 && left > 0)
        printf(", %.1f hours at %.0f ms per step", (double)left * r->ms / (double)r->n / 3.6e6, r->ms / (double)r->n);
    printf(left == 0                         ? "\n"
           : lab_results_in_use(s->q.output) ? "; the sweep is running\n"
                                             : "; the sweep is not running\n");
    return CLI_OK;
}

/* Write the file name of the weights of an experiment; "" without --keep. */
static void weights_path(const sweeper *s, const lab_experiment *e, char path[NN_TEXT_MAX])
{
    char err[NN_ERR_MAX];
    path[0] = 0;
    if (!s->q.keep)
        return;
    nn_config c = s->base;
    json_t *vary = json_object();
    lab_plan_choose(&s->plan, e, &c, vary, err);
    kept_path(path, s->q.keep, vary, c.seed);
    json_decref(vary);
}

/* Return true if an experiment has no result yet, or its weights are missing, and nobody has failed at it. */
static bool is_left(const sweeper *s, const lab_experiment *e)
{
    char path[NN_TEXT_MAX];
    if (e->failed || !lab_results_has(&s->results, e->config))
        return !e->failed;
    weights_path(s, e, path);
    return path[0] && access(path, F_OK) != 0;
}

/* Claim the next experiment. Set *to to NULL if there is none, and *busy to the number of experiments that other
 * processes are running. An experiment at which another process has failed counts as failed here too; this process
 * then holds the same lock, so that others see it after that process has ended. */
static int claim_next(sweeper *s, lab_experiment **to, int64_t *busy, char err[NN_ERR_MAX])
{
    *to = NULL;
    *busy = 0;
    if (lab_results_update(&s->results, err) != 0)
        return -1;
    for (int64_t x = 0; x < s->e.n; x++) {
        lab_experiment *e = &s->e.all[x];
        if (!is_left(s, e))
            continue;
        e->failed = lab_results_failed(&s->results, e->config);
        if (e->failed) {
            lab_results_fail(&s->results, e->config);
            continue;
        }
        if (!lab_results_claim(&s->results, e->training)) {
            ++*busy;
            continue;
        }
        const bool again = s->claimed && s->claimed->training == e->training;
        if (!again && lab_results_update(&s->results, err) != 0)
            return -1;
        if (again || is_left(s, e)) {
            *to = e;
            return 0;
        }
        lab_results_release(&s->results, e->training); /* its result came meanwhile */
    }
    return 0;
}

/* Set the claimed experiment. Release the previous training, and remove its state. */
static void change_claim(sweeper *s, lab_experiment *next)
{
    char folder[NN_TEXT_MAX];
    if (s->claimed && (!next || next->training != s->claimed->training)) {
        lab_results_folder(&s->results, s->claimed->training, folder);
        if (folder[0] && !s->stopped)
            lab_training_done(folder);
        lab_results_release(&s->results, s->claimed->training);
    }
    s->claimed = next;
}

/* Train and measure an experiment, and write its result. An experiment that fails gives a warning, because the others
 * can continue. Return -1 with err if nothing can be written. */
static int run_experiment(sweeper *s, lab_experiment *e, char err[NN_ERR_MAX])
{
    char folder[NN_TEXT_MAX], path[NN_TEXT_MAX];
    nn_config c = s->base;
    json_t *vary = json_object(), *line = NULL;
    io_json_lost(); /* clear the flag, which an earlier experiment may have set */
    lab_plan_choose(&s->plan, e, &c, vary, err);
    lab_results_folder(&s->results, e->training, folder);
    weights_path(s, e, path);
    const bool has_result = lab_results_has(&s->results, e->config);
    const double all = (double)s->e.n;
    int state = lab_training_run(&s->w.trained, &c, s->pool, folder[0] ? folder : NULL, &s->bar,
                                 (double)(e - s->e.all) / all, 1 / all, &s->stopped, err);
    if (state == 0 && !s->stopped && !has_result)
        state = (line = lab_sweep_measure(&s->w, &c, vary, s->pool, err)) ? 0 : -1;
    json_decref(vary);
    if (state != 0) {
        e->failed = true;
        lab_results_fail(&s->results, e->config);
        cli_error(CLI_OK, "sweep: position %s, seed %lld: %s", c.position, (long long)c.seed, err);
        return 0;
    }
    if (!s->stopped && path[0] && keep(&s->w.trained.r.m, path, s->w.trained.r.step, err) != 0)
        state = -1;
    if (state != 0)
        json_decref(line);
    else if (line)
        state = lab_results_append(&s->results, e->config, line, err);
    return state;
}

/* Return a checksum of the experiments. */
static uint64_t checksum_list(const lab_experiments *e)
{
    uint64_t sum = 1;
    for (int64_t x = 0; x < e->n; x++)
        sum = io_checksum(sum, e->all[x].config, strlen(e->all[x].config));
    return sum;
}

/* Run experiments until all have a result or failed. Processes with the same experiments end together: one that finds
 * nothing left waits until all others have found that too, so that they see its failures, and so that it takes up the
 * trainings of those that die. */
static int run_all(sweeper *s, char err[NN_ERR_MAX])
{
    const uint64_t list = checksum_list(&s->e);
    while (!s->stopped && !cli_stop_requested()) {
        lab_experiment *e;
        int64_t busy;
        if (claim_next(s, &e, &busy, err) != 0)
            return -1;
        lab_results_work(&s->results, list, e || busy > 0);
        change_claim(s, e);
        if (e && run_experiment(s, e, err) != 0)
            return -1;
        if (e)
            continue;
        if (busy == 0 && !lab_results_others_work(&s->results, list))
            break;
        usleep(100000);
        s->stopped = cli_team_check() != CLI_OK;
    }
    s->stopped |= cli_stop_requested();
    return 0;
}

/* Rank 0: check that all ranks use this file, and let them begin. Others: wait for that. Return an exit code. */
static int begin_together(const sweeper *s)
{
    int code = CLI_OK;
    if (cli_team_rank() != 0) {
        for (cli_team_message m = {0}; code == CLI_OK && m.kind != TEAM_TASK; free(m.memory)) {
            code = cli_team_receive(1, &m);
            if (code == CLI_OK && cli_stop_requested())
                code = cli_error(CLI_FAILED, "sweep: stopped (run the same command again)");
        }
        return code;
    }
    for (int32_t rank = 1; rank < cli_team_ranks(); rank++)
        if (!lab_results_shows_rank(&s->results, rank))
            return cli_error(
                CLI_FAILED,
                "-o: %s of rank %d is not the file of rank 0, or its file system has no locks (name a file "
                "in a folder that all machines share)",
                s->q.output, (int)rank);
    for (int32_t rank = 1; rank < cli_team_ranks() && code == CLI_OK; rank++)
        code = cli_team_send(rank, TEAM_TASK, 0, NULL, 0);
    return code;
}

/* Compare the experiments, the texts and the CBLAS with those of rank 0, and check that all ranks use one file. Return
 * an exit code. */
static int agree(sweeper *s)
{
    char err[NN_ERR_MAX];
    size_t size = 1;
    if (cli_team_ranks() == 1)
        return CLI_OK;
    if (!s->results.regular)
        return cli_error(CLI_FAILED, "-o: %s is not a regular file, which processes could share (name another)",
                         s->q.output);
    for (int64_t x = 0; x < s->e.n; x++)
        size += strlen(s->e.all[x].config);
    char *configs = malloc(size), *at = configs;
    if (!configs || lab_blas(s->q.threads, err) != 0) {
        free(configs);
        return cli_error(CLI_FAILED, "%s", configs ? err : "lab: out of memory while comparing the experiments");
    }
    *at = 0;
    for (int64_t x = 0; x < s->e.n; x++)
        at = stpcpy(at, s->e.all[x].config);
    lab_results_show_rank(&s->results, cli_team_rank());
    int code = lab_agree("experiments", configs, s->texts);
    free(configs);
    return code == CLI_OK ? begin_together(s) : code;
}

static int sweep(sweeper *s)
{
    char err[NN_ERR_MAX];
    int64_t failed = 0;
    const request *q = &s->q;
    int code = lab_plan_list(&s->plan, &s->base, q->part, q->parts, &s->e, err) != 0
                   ? cli_error(lab_code_of(err), "%s", err)
                   : check(s);
    if (code == CLI_OK && q->state)
        code = show_state(s);
    if (code != CLI_OK || q->list || q->state)
        return code;
    if (lab_results_open(&s->results, q->output, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    code = agree(s);
    if (code != CLI_OK)
        return code;
    s->bar = (cli_progress){.what = "sweep", .every = LAB_PROGRESS_SECONDS};
    if (run_all(s, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    cli_progress_end(&s->bar);
    for (int64_t x = 0; x < s->e.n; x++)
        failed += s->e.all[x].failed;
    if (lab_results_close(&s->results) != 0 && code == CLI_OK)
        code = cli_error(CLI_FAILED, "%s: cannot be written: %s (free space, or name another file)", q->output,
                         strerror(errno));
    if (code == CLI_OK && s->stopped)
        return cli_error(CLI_FAILED, "sweep: stopped (run the same command to continue from %s)", q->output);
    if (code == CLI_OK && failed > 0 && cli_team_rank() == 0)
        return cli_error(CLI_FAILED,
                         "sweep: %lld of %lld experiments failed (see the lines above); %s has the results of the "
                         "others",
                         (long long)failed, (long long)s->e.n, q->output);
    return code;
}

/* Read the experiment file and apply --quick and --set. Return an exit code. */
static int read_experiments(sweeper *s, const char *path)
{
    char err[NN_ERR_MAX];
    nn_config *base = &s->base;
    lab_plan *p = &s->plan;
    char *text = lab_read(path, err);
    nn_config_init(base);
    int code = text ? nn_config_parse(base, path, text, lab_plan_key, p, err) : -1;
    p->new_runs = true;
    for (int x = 0; code == 0 && s->q.quick && x < p->n_quick; x++)
        code = nn_config_parse(base, "--quick", p->quick[x], lab_plan_key, p, err);
    p->new_runs = true;
    lab_beside(path, base->text);
    lab_beside(path, base->valid);
    lab_beside(path, base->tokenizer);
    code = code == 0 ? lab_parse_sets(base, &s->q.sets, lab_plan_key, p, err) : code;
    if (code == 0 && s->q.quick && p->n_quick == 0)
        code = nn_fail(err, "--quick: %.300s has no line quick.KEY = VALUE (remove --quick, or add such lines)", path);
    const bool read = text != NULL;
    free(text);
    return code == 0 ? CLI_OK : cli_error(read ? lab_code_of(err) : CLI_FAILED, "%s", err);
}

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    sweeper s = {.q = {.part = 1, .parts = 1}, .plan = {.seeds = 1}, .results = {.fd = -1}, .texts = 1};
    const char *path;
    int n, code = cli_options(self, argc, argv, on_option, &s.q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0 || !(s.q.output || s.q.list))
        return cli_error(CLI_USAGE, "lab sweep: %s (write relpos lab sweep lab/first.lab -o out/first.jsonl)",
                         n ? "no file for the results was given" : "no experiment was given");
    s.q.threads = s.q.threads > 0 ? s.q.threads : cli_team_threads();
    code = read_experiments(&s, path);
    if (code == CLI_OK)
        code = lab_pool(&s.pool, s.q.threads);
    if (code == CLI_OK) {
        cli_catch_signals(true);
        code = sweep(&s);
        cli_catch_signals(false);
    }
    lab_training_end(&s.w.trained);
    json_decref(s.w.ngrams);
    lab_results_close(&s.results);
    lab_experiments_free(&s.e);
    lab_plan_free(&s.plan);
    rp_pool_destroy(s.pool);
    return code;
}

static int sweep_run(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command lab_sweep = {
    .name = "lab sweep",
    .summary = "train and measure an experiment for several values and seeds",
    .usage = "EXPERIMENT -o FILE [options]",
    .example =
        "  relpos lab sweep lab/length.lab --quick -o out/quick.jsonl\n"
        "  An experiment has lines such as  vary.position = none | alibi | t5,bidirectional=0  and  seeds = 3.\n",
    .options = sweep_options,
    .shared = true,
    .run = sweep_run,
};
