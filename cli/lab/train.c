/* train.c -- relpos lab train: train a model, with a log and checkpoints. A run that is stopped and resumed gives the
 * same bits as an uninterrupted one. run.c runs the steps.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include "cli/progress.h"
#include "cli/team.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = CLI_FIRST_KEY, SET, RESUME, UNTIL, INIT };

static const cli_option options[] = {
    {"output", 'o', "DIR", "write checkpoints and log.jsonl to this directory, which is created if necessary"},
    {"set", SET, "KEY=VALUE", "set a key, which overrides the experiment; may be given more than once"},
    {"resume", RESUME, NULL, "continue from the last checkpoint in DIR, as if the run had not stopped"},
    {"init", INIT, "DIR|FILE",
     "copy the arrays with the same name and shape from another run or model, and list the others, which keep their "
     "initial values"},
    {"until", UNTIL, "STEP", "stop at this step and write a checkpoint; 0: write the initial weights"},
    {"threads", THREADS, "N", "use N threads, which does not change the results; " CLI_ALL_THREADS},
    {0},
};

typedef struct request {
    const char *dir, *init;
    lab_sets sets;
    bool resume;
    int64_t threads, until;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *q = context;
    switch (key) {
    case 'o': q->dir = value; return CLI_OK;
    case INIT: q->init = value; return CLI_OK;
    case RESUME: q->resume = true; return CLI_OK;
    case UNTIL: return cli_integer("--until", value, 0, INT64_MAX, &q->until);
    case THREADS: return cli_integer("--threads", value, 1, RP_MAX_THREADS, &q->threads);
    case SET: return lab_add_set(&q->sets, value);
    default: return -1;
    }
}

static int refuse_sweep_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX])
{
    (void)context, (void)value;
    return nn_fail(err, "%.40s: relpos lab train makes only one run (use relpos lab sweep for this experiment)", key);
}

/* Read the experiment file, then apply the --set options. Return an exit code, with a line in err. */
static int read_experiment(nn_config *c, const char *path, const request *q, char err[NN_ERR_MAX])
{
    nn_model plan;
    char *text = lab_read(path, err);
    if (!text)
        return CLI_FAILED;
    nn_config_init(c);
    int code = nn_config_parse(c, path, text, refuse_sweep_key, NULL, err);
    free(text);
    lab_beside(path, c->text);
    lab_beside(path, c->valid);
    lab_beside(path, c->tokenizer);
    code = code == 0 ? lab_parse_sets(c, &q->sets, refuse_sweep_key, NULL, err) : code;
    if (code != 0 || nn_config_check(c, err) != 0)
        return lab_code_of(err);
    code = nn_model_plan(&plan, c, err) == 0 ? CLI_OK : lab_code_of(err);
    nn_model_destroy(&plan);
    return code;
}

/* Check that a resumed run has the configuration of its checkpoint. Only log_every, eval_every, checkpoint_every and
 * eval_lengths may differ. */
static int same_experiment(const nn_config *now, const nn_config *then, char err[NN_ERR_MAX])
{
    nn_config a = *now, b = *then;
    char x[NN_PRINT_MAX], y[NN_PRINT_MAX];
    a.log_every = b.log_every;
    a.eval_every = b.eval_every;
    a.checkpoint_every = b.checkpoint_every;
    snprintf(a.eval_lengths, sizeof a.eval_lengths, "%s", b.eval_lengths);
    nn_config_print(&a, x);
    nn_config_print(&b, y);
    size_t line = 0;
    for (size_t n = 0; x[n] || y[n]; n++) {
        if (x[n] != y[n])
            return nn_fail(err,
                           "--resume: the run was started with \"%.*s\", but the experiment has \"%.*s\" (use the same "
                           "experiment, or another directory)",
                           (int)strcspn(y + line, "\n"), y + line, (int)strcspn(x + line, "\n"), x + line);
        if (x[n] == '\n')
            line = n + 1;
    }
    return 0;
}

/* Remove damaged lines from the log, and lines about steps after the checkpoint, because those steps will be repeated.
 * Set *measured to true if the log has a measurement at the checkpoint's step. */
static int cut_log(const char *path, int64_t step, bool *measured, char err[NN_ERR_MAX])
{
    struct stat st;
    char *text = NULL, why[IO_ERR_MAX];
    size_t kept = 0;
    const int state = lstat(path, &st) == 0 ? 0 : errno;
    if (state == 0 && !S_ISREG(st.st_mode))
        return 0; /* open_log reports the error */
    if (state != 0 && state != ENOENT)
        return nn_fail(err, "%.300s: cannot be read: %s", path, strerror(state));
    if (state == 0 && st.st_size > 0 && !(text = lab_read(path, err)))
        return -1;
    for (size_t from = 0; text && text[from];) {
        const size_t size = strcspn(text + from, "\n"), all = size + (text[from + size] == '\n');
        bool no_memory;
        json_t *line = io_json(text + from, size, 0, NULL, &no_memory), *number = json_object_get(line, "step");
        if (no_memory) { /* the line may be valid, so it must stay */
            free(text);
            return nn_fail(err, "%.300s: out of memory while reading its lines (close other programs)", path);
        }
        const bool keep = line && (!number || json_integer_value(number) <= step);
        *measured |= keep && json_integer_value(number) == step && json_object_get(line, "valid_loss") != NULL;
        json_decref(line);
        if (keep) {
            memmove(text + kept, text + from, all);
            kept += all;
        }
        from += all;
    }
    const int code = text && io_write_bytes(path, text, kept, why) != 0 ? nn_fail(err, "%.400s", why) : 0;
    free(text);
    return code;
}

/* Open the log for appending: a new file or, with `resume`, the existing one. Only regular files are accepted, and
 * symbolic links are not followed. Return NULL with err on failure. */
static FILE *open_log(const char *path, bool resume, char err[NN_ERR_MAX])
{
    struct stat st;
    const bool there = lstat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) {
        nn_fail(err, "%.300s: it is %s, but the log must be a regular file (remove it, or name another directory)",
                path, S_ISLNK(st.st_mode) ? "a symbolic link" : "not a regular file");
        return NULL;
    }
    if (there && !resume)
        unlink(path); /* remove, not truncate: other links to the file may exist. If this fails, O_EXCL fails too */
    const int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | (resume ? 0 : O_EXCL), 0666);
    FILE *log = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (log == NULL)
        nn_fail(err, "%.300s: cannot be written: %s (free space, or name another directory)", path, strerror(errno));
    if (log == NULL && fd >= 0)
        close(fd);
    return log;
}

typedef struct trainer {
    lab_run r;
    const request *q;
    const char *log_path;
    FILE *log;
    int dir;       /* descriptor of the locked directory */
    bool measured; /* the log has a measurement at the first step of this run */
    int64_t saved; /* step of the last checkpoint; -1: none */
    bool stopped;  /* another process stopped the run */
    cli_progress bar;
    char note[128];
    json_t *init; /* report of --init for the log; NULL without --init */
} trainer;

static int save(trainer *t, char err[NN_ERR_MAX])
{
    if (t->saved == t->r.step)
        return 0;
    if (nn_checkpoint_write(&t->r.m, t->q->dir, t->r.step, err) != 0)
        return -1;
    t->saved = t->r.step;
    return 0;
}

static int measure_pairs(trainer *t, char err[NN_ERR_MAX])
{
    lab_pairs_measure m;
    if (lab_measure_pairs(&t->r.m, t->r.pool, &t->r.valid_pairs, t->r.c.eval_bytes, false, &m, err) != 0)
        return -1;
    json_t *line = json_pack("{s:I, s:o, s:o, s:I}", "step", (json_int_t)t->r.step, "valid_loss", lab_number(m.loss),
                             "valid_perplexity", lab_number(exp(m.loss)), "valid_tokens", (json_int_t)m.tokens);
    return lab_write_line(t->log, t->log_path, line, err);
}

static int measure_generated(trainer *t, char err[NN_ERR_MAX])
{
    const nn_config *c = &t->r.c;
    json_t *all = lab_measure_generated(&t->r.m, t->r.pool, c->eval_bytes, &c->generate_size, 1, err);
    if (!all)
        return -1;
    json_t *at = json_array_get(all, 0), *loss = json_object_get(at, "loss");
    json_t *line =
        json_pack("{s:I, s:O, s:O, s:O, s:O, s:O}", "step", (json_int_t)t->r.step, "valid_loss", loss,
                  "valid_perplexity", json_object_get(at, "perplexity"), "valid_tokens", json_object_get(at, "tokens"),
                  "valid_lines", json_object_get(at, "lines"), "valid_exact", json_object_get(at, "exact"));
    json_decref(all);
    return lab_write_line(t->log, t->log_path, line, err);
}

static int measure(trainer *t, char err[NN_ERR_MAX])
{
    lab_measure m = {0};
    if (t->r.valid_pairs.n > 0)
        return measure_pairs(t, err);
    if (t->r.c.generate != NN_GENERATE_NONE)
        return measure_generated(t, err);
    if (t->r.valid.n == 0)
        return 0;
    const nn_text *text = &t->r.valid;
    const lab_measure_options how = {t->r.c.eval_bytes, t->r.c.eval_pieces, 0, t->r.c.eval_context};
    lab_places places;
    if (lab_choose_places(&t->r.c, text, &how, &t->r.c.length, 1, &places, err) != 0 ||
        lab_measure_text(&t->r.m, t->r.pool, text, &places, t->r.c.length, &m, err) != 0)
        return -1;
    json_t *line =
        t->r.c.task == NN_CLASSIFIER
            ? json_pack("{s:I, s:o, s:o, s:I}", "step", (json_int_t)t->r.step, "valid_loss", lab_number(m.mean),
                        "valid_accuracy", lab_number((double)m.right / (double)m.windows), "valid_windows",
                        (json_int_t)m.windows)
            : json_pack("{s:I, s:o, s:o, s:o, s:I}", "step", (json_int_t)t->r.step, "valid_loss", lab_number(m.mean),
                        "valid_perplexity", lab_number(exp(m.mean)), "valid_bits_per_byte",
                        lab_number(lab_bits_per_byte(&m)), "valid_tokens", (json_int_t)m.tokens);
    return lab_write_line(t->log, t->log_path, line, err);
}

/* Train until the last step, a signal, or a failure. Return 0; 1 if a signal, another process or --until ended it
 * early; -1 with err on failure. */
static int train(trainer *t, char err[NN_ERR_MAX])
{
    const nn_config *c = &t->r.c;
    const int64_t end = t->q->until < c->steps ? t->q->until : c->steps;
    const double begun = cli_seconds();
    const int64_t first = t->r.step;
    const bool pairs = c->task == NN_ENCODER_DECODER;
    double loss = 0, norm = 0, logged = begun;
    char why[NN_ERR_MAX];
    int64_t logged_step = t->r.step;
    const int64_t between = c->checkpoint_every < 0 ? (c->steps + 9) / 10 : c->checkpoint_every;
    t->bar.every = LAB_PROGRESS_SECONDS;
    t->bar.what = "train";
    t->bar.note = t->note;
    while (t->r.step < end && !cli_stop_requested()) {
        const int64_t step = t->r.step;
        const int state = lab_step(&t->r, &loss, &norm, why);
        t->stopped = state > 0;
        if (t->stopped)
            break;
        if (state < 0)
            return t->saved >= 0
                       ? nn_fail(err, "train: %.300s; the last checkpoint is of step %lld", why, (long long)t->saved)
                       : nn_fail(err, "train: %.300s; there is no checkpoint yet", why);
        const double now = cli_seconds(), tokens = (double)(c->batch * c->accumulate * (pairs ? 1 : c->length));
        if (t->r.step % c->log_every == 0 || t->r.step == c->steps) {
            const double rate = tokens * (double)(t->r.step - logged_step) / fmax(now - logged, 1e-9);
            if (lab_write_line(t->log, t->log_path,
                               json_pack("{s:I, s:o, s:o, s:o, s:o, s:I, s:o}", "step", (json_int_t)t->r.step, "loss",
                                         lab_number(loss), "loss_mean", lab_number(t->r.m.loss_mean), "norm",
                                         lab_number(norm), "lr", lab_number(nn_rate(c, step)),
                                         pairs ? "pairs" : "tokens", (json_int_t)(tokens * (double)t->r.step),
                                         pairs ? "pairs_per_s" : "tokens_per_s", lab_number(rate)),
                               err) != 0)
                return -1;
            logged = now;
            logged_step = t->r.step;
        }
        if (c->eval_every > 0 && t->r.step % c->eval_every == 0 && t->r.step < c->steps && measure(t, err) != 0)
            return -1;
        if (between > 0 && t->r.step % between == 0 && save(t, err) != 0)
            return -1;
        snprintf(t->note, sizeof t->note, "step %lld of %lld, loss %.3f, mean %.3f, %.0f %s/s", (long long)t->r.step,
                 (long long)c->steps, loss, t->r.m.loss_mean,
                 tokens * (double)(t->r.step - first) / fmax(now - begun, 1e-9), pairs ? "pairs" : "tokens");
        cli_progress_show(&t->bar, (double)(t->r.step - first) / (double)(end - first));
    }
    if (save(t, err) != 0)
        return -1;
    if (t->r.step == c->steps && (first < c->steps || !t->measured) && measure(t, err) != 0)
        return -1;
    return t->r.step < c->steps;
}

/* Open and lock the run's folder. With --resume, read its checkpoint. */
static int open_run(trainer *t, char err[NN_ERR_MAX])
{
    char path[NN_TEXT_MAX], warning[NN_ERR_MAX];
    const char *dir = t->q->dir;
    nn_config now = t->r.c;
    if (strlen(dir) + 40 > NN_TEXT_MAX)
        return nn_fail(err, "--output: the name has %zu bytes; it must have at most %d (use a shorter one)",
                       strlen(dir), NN_TEXT_MAX - 40);
    if (lab_make_folder(dir, false, err) != 0)
        return -1;
    t->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->dir < 0)
        return nn_fail(err, "%.300s: cannot be opened: %s (name another directory)", dir, strerror(errno));
    if (lab_lock(t->dir, dir, err) != 0)
        return -1;
    int exists = ENOENT; /* 0 if a checkpoint exists, otherwise the error of access() */
    static const char *const names[] = {"checkpoint", "previous"};
    for (int n = 0; n < 2 && exists == ENOENT; n++) {
        snprintf(path, sizeof path, "%s/%s.safetensors", dir, names[n]);
        exists = access(path, F_OK) == 0 ? 0 : errno;
    }
    if (exists != ENOENT && !t->q->resume)
        return nn_fail(err, "%.300s: it already has a run%s%s (continue it with --resume, or name another directory)",
                       dir, exists == 0 ? "" : ", or one that cannot be read: ", exists == 0 ? "" : strerror(exists));
    t->saved = -1;
    if (!t->q->resume)
        return 0;
    if (nn_checkpoint_read(&t->r.m, dir, true, &t->r.step, warning, err) != 0)
        return -1;
    if (warning[0])
        cli_error(CLI_OK, "%s", warning);
    if (same_experiment(&now, &t->r.m.c, err) != 0)
        return -1;
    t->r.m.c = now;
    t->saved = warning[0] ? -1 : t->r.step;
    return 0;
}

/* Copy the weights from the model of --init, and print which parameters it lacks. */
static int take_weights(trainer *t, char err[NN_ERR_MAX])
{
    const char *path = t->q->init;
    nn_model *m = &t->r.m;
    int64_t step;
    bool *taken = calloc((size_t)m->n_params, sizeof *taken);
    int32_t count = 0;
    int code =
        taken ? 0
              : nn_fail(err, "lab: out of memory while comparing %d names (close other programs)", (int)m->n_params);
    code = code == 0 ? lab_take_weights(m, path, "--init", taken, &count, &step, err) : code;
    if (code == 0) {
        json_t *anew = json_array();
        const char *between = "; with initial values: ";
        printf("%s: %d arrays of %s", t->q->dir, (int)count, path);
        for (int32_t n = 0; n < m->n_params; n++)
            if (!taken[n]) {
                printf("%s%s", between, m->params[n].name);
                between = ", ";
                json_array_append_new(anew, json_string(m->params[n].name));
            }
        putchar('\n');
        t->init = json_pack("{s:s, s:I, s:i, s:o}", "file", path, "step", (json_int_t)step, "taken", (int)count, "anew",
                            anew);
    }
    free(taken);
    return code;
}

/* Open the run's folder, read what it needs, and check that the held-out text can be measured. Return an exit code. */
static int prepare(trainer *t)
{
    char err[NN_ERR_MAX] = "";
    const nn_config *c = &t->r.c;
    const lab_measure_options how = {c->eval_bytes, c->eval_pieces, 0, c->eval_context};
    lab_places places;
    if (open_run(t, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    const int code = lab_begin(&t->r);
    if (code != CLI_OK)
        return code;
    if ((t->q->init && take_weights(t, err) != 0) ||
        (t->r.valid_pairs.n > 0 && lab_check_pairs(&t->r.valid_pairs, c->eval_bytes, err) != 0) ||
        (t->r.valid.n > 0 && lab_choose_places(c, &t->r.valid, &how, &c->length, 1, &places, err) != 0))
        return cli_error(CLI_FAILED, "%s", err);
    return CLI_OK;
}

/* Write the first line of the log: the experiment and the machine. */
static int write_experiment(const trainer *t, char err[NN_ERR_MAX])
{
    char text[NN_PRINT_MAX];
    nn_config_print(&t->r.c, text);
    return lab_write_line(t->log, t->log_path,
                          json_pack("{s:s, s:I, s:I, s:O*, s:o}", "experiment", text, "weights",
                                    (json_int_t)t->r.m.n_weights, "position_weights",
                                    (json_int_t)lab_position_weights(&t->r.m), "init", t->init, "machine",
                                    lab_machine(t->r.pool)),
                          err);
}

/* Open the log, and train. Return as train() does. */
static int train_with_log(trainer *t, char err[NN_ERR_MAX])
{
    int state = t->q->resume ? cut_log(t->log_path, t->r.step, &t->measured, err) : 0;
    t->log = state == 0 ? open_log(t->log_path, t->q->resume, err) : NULL;
    if (!t->log)
        return -1;
    state = t->q->resume ? 0 : write_experiment(t, err);
    state = state == 0 ? train(t, err) : state;
    if (fclose(t->log) != 0 && state >= 0)
        state = nn_fail(err, "%.300s: cannot be written: %s (free space, or name another directory)", t->log_path,
                        strerror(errno));
    cli_progress_end(&t->bar);
    return state;
}

/* Compare the run with that of rank 0. Return an exit code. */
static int agree(const lab_run *r)
{
    char config[NN_PRINT_MAX];
    nn_config_print(&r->c, config);
    return lab_agree("experiment", config, r->m.texts);
}

/* Make the run, in rank 0 or without a team. Return an exit code. */
static int lead(trainer *t)
{
    char err[NN_ERR_MAX] = "";
    const size_t missing = lab_missing_folder(t->q->dir);
    int code = prepare(t);
    cli_catch_signals(true);
    code = code == CLI_OK ? agree(&t->r) : code;
    if (code == CLI_OK) {
        const int state = train_with_log(t, err);
        if (state < 0)
            code = cli_error(CLI_FAILED, "%s", err);
        else if (state > 0 && (cli_stop_requested() || t->stopped))
            code = cli_error(CLI_FAILED,
                             "train: stopped at step %lld of %lld, with a checkpoint (run the same command with "
                             "--resume to continue)",
                             (long long)t->r.step, (long long)t->r.c.steps);
        else
            printf("%s: step %lld of %lld\n", t->q->dir, (long long)t->r.step, (long long)t->r.c.steps);
    }
    cli_catch_signals(false);
    if (t->dir >= 0)
        close(t->dir);
    if (code != CLI_OK)
        lab_remove_empty(t->q->dir, missing);
    return code;
}

/* Compute gradients for rank 0. Return an exit code. */
static int follow(lab_run *r)
{
    int code = lab_begin(r);
    cli_catch_signals(true);
    code = code == CLI_OK ? agree(r) : code;
    code = code == CLI_OK ? lab_serve(r) : code;
    cli_catch_signals(false);
    return code;
}

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    request q = {.until = INT64_MAX};
    const char *experiment;
    char err[NN_ERR_MAX] = "", log_path[NN_TEXT_MAX];
    int n, code = cli_options(self, argc, argv, on_option, &q, &experiment, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE,
                         "lab train: no experiment was given (write relpos lab train lab/first.lab -o out/run)");
    if (!q.dir)
        return cli_error(CLI_USAGE, "lab train: no directory for the run was given (give one with -o DIR)");
    if (q.init && q.resume)
        return cli_error(CLI_USAGE, "--init: --resume continues with the weights of the run (remove one of them)");
    trainer t = {.q = &q, .log_path = log_path, .dir = -1};
    snprintf(log_path, sizeof log_path, "%s/log.jsonl", q.dir);
    if ((code = read_experiment(&t.r.c, experiment, &q, err)) != CLI_OK)
        return cli_error(code, "%s", err);
    if ((code = lab_share(&t.r)) != CLI_OK)
        return code;
    if ((code = lab_pool(&t.r.pool, q.threads)) != CLI_OK)
        return code;
    code = cli_team_rank() == 0 ? lead(&t) : follow(&t.r);
    json_decref(t.init);
    lab_end(&t.r);
    rp_pool_destroy(t.r.pool);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command lab_train = {
    .name = "lab train",
    .summary = "train a model on text",
    .usage = "EXPERIMENT -o DIR [options]",
    .example = "  relpos lab train lab/first.lab -o out/run\n"
               "  relpos lab train lab/first.lab -o out/alibi --set position=alibi --set seed=2\n"
               "  relpos lab train lab/first.lab -o out/run --resume\n"
               "  relpos lab train lab/first.lab -o out/longer --init out/run --set length=256\n"
               "  relpos lab --help lists the keys of an experiment.\n",
    .options = options,
    .shared = true,
    .run = run,
};
