/* training.c -- one training run of a sweep. Its state (weights, and the times and losses of its steps) is saved in a
 * folder beside the results. If the sweep is stopped or killed, the next sweep continues from that state and gives the
 * same bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/training.h"
#include "cli/team.h"
#include "io/io.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SAVE_SECONDS = 60 };

void lab_training_end(lab_training *t)
{
    lab_end(&t->r);
    json_decref(t->previous);
    json_decref(t->curve);
    free(t->seconds);
    free(t->cpu);
    free(t->losses);
    memset(t, 0, sizeof *t);
}

void lab_identify(const nn_config *c, bool training, char text[NN_PRINT_MAX])
{
    nn_config own = *c;
    if (training)
        own.eval_position[0] = 0;
    own.log_every = own.eval_every = own.checkpoint_every = 0;
    nn_config_print(&own, text);
}

/* ---------------------------------------------------------------------------------------------- the folder */

/* Remove all files steps-N.json except those of the two given steps. */
static void clean(const char *folder, int64_t step, int64_t before)
{
    char kept[2][40], path[NN_TEXT_MAX];
    DIR *d = opendir(folder);
    snprintf(kept[0], sizeof kept[0], "steps-%lld.json", (long long)step);
    snprintf(kept[1], sizeof kept[1], "steps-%lld.json", (long long)before);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "steps-", 6) == 0 && strcmp(e->d_name, kept[0]) != 0 &&
            strcmp(e->d_name, kept[1]) != 0) {
            snprintf(path, sizeof path, "%.700s/%.250s", folder, e->d_name);
            unlink(path);
        }
    if (d)
        closedir(d);
}

int64_t lab_training_step(const char *folder, int64_t steps)
{
    DIR *d = opendir(folder);
    int64_t found = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        const long long step = strncmp(e->d_name, "steps-", 6) == 0 ? strtoll(e->d_name + 6, NULL, 10) : 0;
        found = step > found && step <= steps ? step : found;
    }
    if (d)
        closedir(d);
    return found;
}

/* Return true if a file belongs to the state of a training, or is an unfinished file of a process that was killed. */
static bool is_own(const char *name)
{
    static const char *const names[] = {"checkpoint.safetensors", "previous.safetensors", "damaged.safetensors",
                                        "next.safetensors", ".previous.tmp"};
    const size_t size = strlen(name);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (strcmp(name, names[n]) == 0)
            return true;
    return strncmp(name, "steps-", 6) == 0 ||
           (strncmp(name, ".relpos-", 8) == 0 && size > 12 && strcmp(name + size - 4, ".tmp") == 0);
}

void lab_training_done(const char *folder)
{
    char path[NN_TEXT_MAX];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_own(e->d_name)) {
            snprintf(path, sizeof path, "%.700s/%.250s", folder, e->d_name);
            unlink(path);
        }
    if (d)
        closedir(d);
    rmdir(folder);
    snprintf(path, sizeof path, "%.*s", (int)(strrchr(folder, '/') - folder), folder);
    rmdir(path);
}

uint64_t lab_training_checksum(const nn_config *c)
{
    char text[NN_PRINT_MAX];
    lab_identify(c, true, text);
    return io_checksum(1, text, strlen(text));
}

bool lab_training_old(const char *parent, uint64_t *training)
{
    char path[NN_TEXT_MAX], warning[NN_ERR_MAX], err[NN_ERR_MAX];
    nn_model m;
    int64_t step;
    snprintf(path, sizeof path, "%.900s/checkpoint.safetensors", parent);
    if (access(path, F_OK) != 0 || nn_checkpoint_read(&m, path, false, &step, warning, err) != 0)
        return false;
    *training = lab_training_checksum(&m.c);
    nn_model_destroy(&m);
    return true;
}

int lab_training_move(const char *parent, const char *folder, char err[NN_ERR_MAX])
{
    char from[NN_TEXT_MAX], to[NN_TEXT_MAX];
    if (lab_make_folder(folder, false, err) != 0)
        return -1;
    DIR *d = opendir(parent);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strstr(e->d_name, ".safetensors") || strncmp(e->d_name, "steps-", 6) == 0) {
            snprintf(from, sizeof from, "%.700s/%.250s", parent, e->d_name);
            snprintf(to, sizeof to, "%.700s/%.250s", folder, e->d_name);
            rename(from, to); /* if it fails, the training begins again */
        }
    if (d)
        closedir(d);
    return 0;
}

static int save(lab_training *t, const char *folder, char err[NN_ERR_MAX])
{
    char path[NN_TEXT_MAX], why[IO_ERR_MAX];
    json_t *seconds = json_array(), *cpu = json_array(), *losses = json_array();
    int code = lab_make_folder(folder, false, err);
    if (code != 0) /* another process may have removed the parent when that was empty */
        code = lab_make_folder(folder, false, err);
    for (int64_t n = 0; n < t->r.step; n++) {
        json_array_append_new(seconds, lab_number(t->seconds[n]));
        json_array_append_new(cpu, lab_number(t->cpu[n]));
        json_array_append_new(losses, lab_number(t->losses[n]));
    }
    json_t *all = json_pack("{s:o, s:o, s:o, s:o, s:O*, s:O*}", "seconds", seconds, "cpu", cpu, "losses", losses,
                            "loss", lab_number(t->sum), "previous", t->previous, "curve", t->curve);
    char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    snprintf(path, sizeof path, "%.700s/steps-%lld.json", folder, (long long)t->r.step);
    if (code == 0 && (!text || io_json_lost()))
        code =
            nn_fail(err, "lab: out of memory while recording %lld steps (close other programs)", (long long)t->r.step);
    if (code == 0 && io_write_bytes(path, text, strlen(text), why) != 0)
        code = nn_fail(err, "%.400s", why);
    free(text);
    if (code == 0) /* written last, because its step selects the steps-N.json to read */
        code = nn_checkpoint_write(&t->r.m, folder, t->r.step, err);
    if (code == 0) {
        clean(folder, t->r.step, t->saved);
        t->saved = t->r.step;
    }
    return code;
}

/* Read the times and losses of the steps before t->r.step. Return false if they are missing. */
static bool take_steps(lab_training *t, const char *folder)
{
    char path[NN_TEXT_MAX], err[NN_ERR_MAX];
    bool no_memory;
    snprintf(path, sizeof path, "%.700s/steps-%lld.json", folder, (long long)t->r.step);
    char *text = lab_read(path, err);
    json_t *all = text ? io_json(text, strlen(text), 0, NULL, &no_memory) : NULL;
    json_t *seconds, *cpu, *losses, *previous = NULL, *curve = NULL;
    const size_t steps = (size_t)t->r.step;
    const bool valid = all &&
                       json_unpack(all, "{s:o, s:o, s:o, s:F, s?o, s?o}", "seconds", &seconds, "cpu", &cpu, "losses",
                                   &losses, "loss", &t->sum, "previous", &previous, "curve", &curve) == 0 &&
                       json_array_size(seconds) == steps && json_array_size(cpu) == steps &&
                       json_array_size(losses) == steps && (previous != NULL) == (t->previous != NULL);
    for (size_t n = 0; valid && n < steps; n++) {
        t->seconds[n] = json_number_value(json_array_get(seconds, n));
        t->cpu[n] = json_number_value(json_array_get(cpu, n));
        t->losses[n] = json_number_value(json_array_get(losses, n));
    }
    if (valid && previous)
        json_array_extend(t->previous, previous);
    if (valid && curve && t->curve)
        json_array_extend(t->curve, curve);
    json_decref(all);
    free(text);
    return valid;
}

/* Load the state in the folder if it belongs to this training run. Otherwise remove it and begin at step 0. */
static int go_on(lab_training *t, const nn_config *c, const char *folder, char err[NN_ERR_MAX])
{
    char path[NN_TEXT_MAX], now[NN_PRINT_MAX], then[NN_PRINT_MAX], warning[NN_ERR_MAX], why[NN_ERR_MAX];
    snprintf(path, sizeof path, "%.700s/checkpoint.safetensors", folder);
    if (access(path, F_OK) != 0)
        return 0;
    if (nn_checkpoint_read(&t->r.m, folder, true, &t->r.step, warning, why) != 0)
        return nn_fail(err, "%.600s; remove %.300s to begin this training again", why, folder);
    if (warning[0])
        cli_error(CLI_OK, "%s", warning);
    lab_identify(c, true, now);
    lab_identify(&t->r.m.c, true, then);
    if (strcmp(now, then) == 0 && t->r.step <= c->steps && take_steps(t, folder)) {
        t->r.m.c = *c;
        t->saved = warning[0] ? -1 : t->r.step;
        cli_error(CLI_OK, "sweep: position %s, seed %lld continues at step %lld", c->position, (long long)c->seed,
                  (long long)t->r.step);
        return 0;
    }
    nn_model_destroy(&t->r.m); /* the state belongs to another experiment, or its steps-N.json is damaged */
    memset(&t->r.m, 0, sizeof t->r.m);
    t->r.step = 0;
    t->sum = 0;
    lab_training_done(folder);
    return 0;
}

/* ---------------------------------------------------------------------------------------------- the training */

static int64_t last_tenth(const nn_config *c)
{
    return (c->steps + 9) / 10;
}

/* Return the processor time of all threads of this process. */
static double processor_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0 ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec : 0;
}

/* Measure the loss on the held-out text at the trained length, and add it to t->curve. */
static int add_to_curve(lab_training *t, const nn_config *c, char err[NN_ERR_MAX])
{
    const lab_measure_options how = {c->eval_bytes, c->eval_pieces, c->eval_stride, c->eval_context};
    lab_measure m = {0};
    lab_places places;
    if (lab_choose_places(c, &t->r.valid, &how, &c->length, 1, &places, err) != 0 ||
        lab_measure_text(&t->r.m, t->r.pool, &t->r.valid, &places, c->length, &m, err) != 0)
        return -1;
    return json_array_append_new(
               t->curve, json_pack("{s:I, s:o}", "step", (json_int_t)t->r.step, "loss", lab_number(m.mean))) == 0
               ? 0
               : nn_fail(err, "lab: out of memory while recording a loss (close other programs)");
}

static int train(lab_training *t, const nn_config *c, const char *folder, cli_progress *bar, double done,
                 double fraction, char err[NN_ERR_MAX])
{
    double loss = 0, norm = 0, saved = cli_seconds();
    char note[96];
    int code = 0;
    bar->note = note;
    while (code == 0 && t->r.step < c->steps && !cli_stop_requested() && cli_team_check() == CLI_OK) {
        const double before = cli_seconds(), cpu_before = processor_seconds();
        code = lab_step(&t->r, &loss, &norm, err);
        if (code != 0)
            break;
        t->seconds[t->r.step - 1] = cli_seconds() - before;
        t->cpu[t->r.step - 1] = processor_seconds() - cpu_before;
        t->losses[t->r.step - 1] = loss;
        if (t->previous && t->r.step % c->eval_previous == 0) {
            json_t *found = lab_previous(&t->r.m, t->r.pool, &t->r.valid, t->r.step, err);
            code = found ? json_array_append_new(t->previous, found) : -1;
        }
        if (code == 0 && t->curve && t->r.step % c->eval_every == 0)
            code = add_to_curve(t, c, err);
        if (t->r.step > c->steps - last_tenth(c))
            t->sum += loss;
        if (code == 0 && folder && (cli_seconds() - saved > SAVE_SECONDS || cli_stop_requested())) {
            code = save(t, folder, err);
            saved = cli_seconds();
        }
        snprintf(note, sizeof note, "%.40s, step %lld, loss %.3f", c->position, (long long)t->r.step, loss);
        cli_progress_show(bar, done + fraction * (double)t->r.step / (double)c->steps);
    }
    bar->note = NULL;
    if (code == 0 && t->saved >= 0 && t->saved < t->r.step) /* the sweep may be stopped while it measures the model */
        code = save(t, folder, err);
    return code;
}

int lab_training_run(lab_training *t, const nn_config *c, rp_pool *pool, const char *folder, cli_progress *bar,
                     double done, double fraction, bool *stopped, char err[NN_ERR_MAX])
{
    char config[NN_PRINT_MAX];
    lab_identify(c, true, config);
    if (strcmp(t->config, config) == 0)
        return 0;
    lab_training_end(t);
    t->r = (lab_run){.c = *c, .pool = pool};
    t->saved = -1;
    t->previous = c->eval_previous > 0 ? json_array() : NULL;
    t->curve = c->eval_every > 0 && c->task == NN_DECODER && c->generate == NN_GENERATE_NONE ? json_array() : NULL;
    t->seconds = malloc((size_t)c->steps * sizeof *t->seconds);
    t->cpu = malloc((size_t)c->steps * sizeof *t->cpu);
    t->losses = malloc((size_t)c->steps * sizeof *t->losses);
    int code = t->seconds && t->cpu && t->losses
                   ? 0
                   : nn_fail(err, "lab: out of memory while preparing the training (use fewer steps)");
    if (code == 0 && folder)
        code = go_on(t, c, folder, err);
    if (code == 0 && lab_begin(&t->r) != CLI_OK)
        code = nn_fail(err, "lab sweep: the run cannot start (see the line above)");
    if (code == 0)
        code = train(t, c, folder, bar, done, fraction, err);
    *stopped = code == 0 && t->r.step < c->steps;
    if (code != 0 || *stopped) {
        lab_training_end(t);
        return code;
    }
    double cpu = 0, all = 0;
    for (int64_t n = 0; n < c->steps; n++) {
        cpu += t->cpu[n];
        all += t->seconds[n];
    }
    t->processor_share = all > 0 ? cpu / all : 0;
    qsort(t->seconds, (size_t)c->steps, sizeof *t->seconds, cli_by_size);
    t->ms = 1e3 * t->seconds[c->steps / 2];
    t->loss = t->sum / (double)last_tenth(c);
    memcpy(t->config, config, sizeof config);
    return 0;
}
