/* training.h -- one training of a sweep, which goes on where an earlier sweep was stopped.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAB_TRAINING_H
#define RELPOS_LAB_TRAINING_H

#include "cli/lab/lab.h"
#include "cli/progress.h"

/* The model that was trained last. Experiments that differ in eval_position alone share it. */
typedef struct lab_training {
    lab_run r;
    char config[NN_PRINT_MAX]; /* without eval_position; "": there is no model */
    double loss, ms;           /* the mean of the last tenth of the steps; the median of a step */
    json_t *previous;     /* the head that looks at the token before, every eval_previous steps; NULL: none asked for */
    double *seconds, sum; /* of each step; losses of the last tenth */
    int64_t saved;        /* the step of the folder's checkpoint, or -1 */
} lab_training;

/* An experiment as text, without what changes no result: how often it logs, measures and saves; with `training` also without what changes
 * only how the trained model is measured. */
void lab_identify(const nn_config *c, bool training, char text[NN_PRINT_MAX]);

/* Train c's model, unless it is the one that was trained last; on from `folder`, where that has a part of this training, and once a minute and at
 * Ctrl-C the folder gets what is done (NULL: there is no folder). *stopped: Ctrl-C ended it, and there is no model. */
int lab_training_run(lab_training *t, const nn_config *c, rp_pool *pool, const char *folder, cli_progress *bar,
                     double done, double share, bool *stopped, char err[NN_ERR_MAX]);
/* The result is written: remove the folder. */
void lab_training_done(const char *folder);
void lab_training_end(lab_training *t);

#endif
