/* training.h -- one training of a sweep. It continues where an earlier sweep was stopped.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAB_TRAINING_H
#define RELPOS_LAB_TRAINING_H

#include "lab/cli/lab.h"
#include "cli/progress.h"

/* The model of the last training. Experiments that differ only in eval_position share it. */
typedef struct lab_training {
    lab_run r;
    char config[NN_PRINT_MAX]; /* the experiment without eval_position; "": there is no model */
    double loss;               /* mean loss of the last tenth of the steps */
    double ms;                 /* median time of a step, in milliseconds */
    json_t *previous;          /* results of lab_previous, every eval_previous steps; NULL if that is 0 */
    double *seconds;           /* time of each step [steps] */
    double sum;                /* sum of the losses in the last tenth of the steps */
    int64_t saved;             /* step of the checkpoint in the folder; -1: none */
} lab_training;

/* Print an experiment as text that is equal for equal results: omit how often it logs, measures and saves. With
 * `training`, also omit the keys that only change how the trained model is measured. */
void lab_identify(const nn_config *c, bool training, char text[NN_PRINT_MAX]);

/* Train the model of c, unless it is the model of the last training. Continue from the state in `folder` if there is
 * one, and save the state there once a minute and at Ctrl-C (NULL: no folder). The training is `fraction` of the
 * progress bar, from `done` on. If Ctrl-C stopped the training, *stopped is true and there is no model. */
int lab_training_run(lab_training *t, const nn_config *c, rp_pool *pool, const char *folder, cli_progress *bar,
                     double done, double fraction, bool *stopped, char err[NN_ERR_MAX]);
/* Remove the folder, once the result has been written. Files of other programs stay, and then the folder stays too. */
void lab_training_done(const char *folder);
/* Free the model and reset t. */
void lab_training_end(lab_training *t);

#endif
