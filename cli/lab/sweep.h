/* sweep.h -- the parts of relpos lab sweep: the plan (sweep_plan.c), the results file that several processes share
 * (sweep_results.c), the measurements (sweep_measure.c), and the command (sweep.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAB_SWEEP_H
#define RELPOS_LAB_SWEEP_H

#include "cli/lab/training.h"

/* ------------------------------------------------------------------------------------------------ sweep_plan.c */

enum { MAX_KEYS = 8, MAX_VALUES = 32, MAX_SEEDS = 32, MAX_QUICK = 32, MAX_RUNS = 256 };

/* The plan of a sweep. A line "vary.KEY = A | B | C" lists values for KEY; every combination of values is run with
 * every seed. A line "run = KEY=VALUE KEY=VALUE ..." sets several keys; if there are such lines, every combination is
 * run with each of them. A line "quick.KEY = VALUE" replaces the value of KEY if --quick is given. */
typedef struct lab_plan {
    char key[MAX_KEYS][40];
    char *values[MAX_KEYS][MAX_VALUES];
    int n_values[MAX_KEYS], n_keys;
    int64_t seeds;
    char *run[MAX_RUNS]; /* "KEY=VALUE KEY=VALUE ..." */
    int n_runs;
    bool new_runs;          /* the next line "run" replaces all of them, because --quick and --set override the file */
    char *quick[MAX_QUICK]; /* "KEY=VALUE" */
    int n_quick;
} lab_plan;

/* Add a line of an experiment file to the plan: an nn_other_key, whose context is the plan. */
int lab_plan_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX]);
void lab_plan_free(lab_plan *p);

/* An experiment of a sweep. */
typedef struct lab_experiment {
    int64_t index;     /* number of the combination */
    char *config;      /* as lab_identify prints it */
    uint64_t training; /* checksum of its training, which it may share with others */
    bool failed;       /* this process or another has tried it */
} lab_experiment;
/* The experiments of a sweep. */
typedef struct lab_experiments {
    lab_experiment *all;
    int64_t n;
} lab_experiments;

/* Set the values of experiment `e` in c and list them in `vary`. */
int lab_plan_choose(const lab_plan *p, const lab_experiment *e, nn_config *c, json_t *vary, char err[NN_ERR_MAX]);
/* List the experiments of part `part` of `parts` (--shard), each distinct experiment once. Experiments that share a
 * training are in the same part. */
int lab_plan_list(const lab_plan *p, const nn_config *base, int64_t part, int64_t parts, lab_experiments *to,
                  char err[NN_ERR_MAX]);
void lab_experiments_free(lab_experiments *e);

/* ------------------------------------------------------------------------------------------------ sweep_results.c */

/* A results file, which several processes may share. They hold locks on bytes beyond its end: one for each training
 * that runs, one for each experiment that failed, and one while a process reads and appends. The system releases the
 * locks of a process that dies. */
typedef struct lab_results {
    const char *path;
    int fd;            /* -1: not open */
    bool regular;      /* a regular file: not a pipe */
    int64_t read;      /* bytes of the results that were read */
    int lines;         /* their number */
    char **config;     /* experiments with a result, as lab_identify prints them */
    int64_t n, memory; /* their number, and the number that `config` has memory for */
    double ms;         /* sum of ms_per_step of the results that were read */
} lab_results;

/* Open a file for appending, and read its results. Remove an incomplete last line, which a killed sweep may leave. */
int lab_results_open(lab_results *r, const char *path, char err[NN_ERR_MAX]);
/* Read the results in a file without locking it; it may be missing. */
int lab_results_read(lab_results *r, const char *path, char err[NN_ERR_MAX]);
/* Read the results that other processes have appended. */
int lab_results_update(lab_results *r, char err[NN_ERR_MAX]);
/* Append the result of an experiment, unless the file has one. Takes the reference to `line`. */
int lab_results_append(lab_results *r, const char *config, json_t *line, char err[NN_ERR_MAX]);
bool lab_results_has(const lab_results *r, const char *config);
/* Claim a training. Return false if another process has claimed it. Claiming one's own training again succeeds. */
bool lab_results_claim(const lab_results *r, uint64_t training);
void lab_results_release(const lab_results *r, uint64_t training);
/* Return true if another process trains it. */
bool lab_results_claimed(const lab_results *r, uint64_t training);
/* Note that an experiment failed, so that processes which run at the same time do not try it again. */
void lab_results_fail(const lab_results *r, const char *config);
bool lab_results_failed(const lab_results *r, const char *config);
/* Show, or stop to show, that this process has work in a list of experiments, or waits for the work of others. */
void lab_results_work(const lab_results *r, uint64_t list, bool has);
bool lab_results_others_work(const lab_results *r, uint64_t list);
/* Hold a lock that shows others of a team that this rank uses the file. */
void lab_results_show_rank(const lab_results *r, int32_t rank);
bool lab_results_shows_rank(const lab_results *r, int32_t rank);
/* Return true if some process has the file open. */
bool lab_results_in_use(const char *path);
/* Write the name of the folder with the state of a training to `folder`; "" if the file is not a regular file. */
void lab_results_folder(const lab_results *r, uint64_t training, char folder[NN_TEXT_MAX]);
/* Close the file and free the list. Return 0, or -1 with errno if results may be lost. */
int lab_results_close(lab_results *r);

/* ------------------------------------------------------------------------------------------------ sweep_measure.c */

/* State that a sweep keeps from one experiment to the next. */
typedef struct lab_sweep_work {
    lab_training trained;
    char counted[NN_PRINT_MAX]; /* lab_sweep_text_key of the experiment for which `ngrams` was measured */
    json_t *ngrams;             /* results of lab_measure_ngrams; NULL if eval_ngrams is 0 */
} lab_sweep_work;
/* Get the lengths at which a sweep measures: eval_lengths or, if that is empty, the length used in training. */
int lab_sweep_lengths(const nn_config *c, int64_t lengths[LAB_MAX_LENGTHS], char err[NN_ERR_MAX]);
/* Print the keys that determine on which parts of which text a model is measured. */
void lab_sweep_text_key(const nn_config *c, char key[NN_PRINT_MAX]);
/* Measure a trained model and return its results as one line; NULL with err on failure. */
json_t *lab_sweep_measure(lab_sweep_work *w, const nn_config *c, json_t *vary, rp_pool *pool, char err[NN_ERR_MAX]);

#endif
