/* training.h -- one training run of a sweep, which can continue from the state that a stopped sweep saved.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAB_TRAINING_H
#define RELPOS_LAB_TRAINING_H

#include "cli/lab/lab.h"
#include "cli/progress.h"

/* The model of the last training run. Experiments that differ only in eval_position share it. */
typedef struct lab_training {
    lab_run r;
    char config[NN_PRINT_MAX]; /* the experiment without eval_position; "" if there is no model */
    double loss;               /* mean loss of the last tenth of the steps */
    double ms;                 /* median time of a step, in milliseconds */
    json_t *previous;          /* results of lab_previous, one per eval_previous steps; NULL if eval_previous is 0 */
    double processor_share;    /* processor time of the steps as a fraction of their time */
    json_t *curve;   /* held-out losses at the trained length, one per eval_every steps; NULL if not measured */
    double *seconds; /* time of each step [steps] */
    double *cpu;     /* processor time of each step, in seconds [steps] */
    double *losses;  /* training loss of each step [steps] */
    double sum;      /* sum of the losses in the last tenth of the steps */
    int64_t saved;   /* step of the checkpoint in the folder; -1: none */
} lab_training;

/* Print an experiment as text. Experiments with equal results give equal text: the keys that set how often to log,
 * measure and save are omitted. With `training`, also omit the keys that only affect how the trained model is
 * measured. */
void lab_identify(const nn_config *c, bool training, char text[NN_PRINT_MAX]);

/* Train the model of c, unless the last training run was the same. Continue from the state in `folder` if there is one.
 * Save the state there once a minute and on Ctrl-C; folder = NULL saves nothing. In the progress bar, the training goes
 * from `done` to `done + fraction`. If Ctrl-C stopped it, *stopped is true and there is no model. */
int lab_training_run(lab_training *t, const nn_config *c, rp_pool *pool, const char *folder, cli_progress *bar,
                     double done, double fraction, bool *stopped, char err[NN_ERR_MAX]);
/* Remove the folder after the result has been written, and its parent if that is empty. If it contains files of other
 * programs, keep these and the folder. */
void lab_training_done(const char *folder);
/* Versions up to 0.2 ran one training at a time and saved its state in the parent of today's folders. Return true if
 * `parent` has such a state, after reading the checksum of its training. */
bool lab_training_old(const char *parent, uint64_t *training);
/* Move the files of that state to the folder of its training. */
int lab_training_move(const char *parent, const char *folder, char err[NN_ERR_MAX]);
/* Return the checksum that identifies a training. */
uint64_t lab_training_checksum(const nn_config *c);
/* Return the step of the saved state in the folder, at most `steps`; 0 if there is none. */
int64_t lab_training_step(const char *folder, int64_t steps);
/* Free the model and reset t. */
void lab_training_end(lab_training *t);

#endif
