/* verify.h -- one problem under `relpos verify`, its checks, and the problems that are checked where none is named.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_VERIFY_H
#define RELPOS_CLI_VERIFY_H

#include "cli/cli.h"
#include "support/sample_problem.h"

/* One problem. What the reference path finds in double is the same for every instruction set: it is found once. */
typedef struct trial {
    problem p;
    int64_t n;      /* elements of out */
    rp_tensors own; /* the inputs in double */
    rp_desc exact;  /* the same problem in double on the reference path, and what that gives */
    rp_array out;
    rp_grads gradients;
    int64_t pairs[2]; /* that masks allow, and that were computed */
    bool both;        /* it was computed with every tile too */
    double worst;     /* the largest error / bound */
} trial;

/* A check of one instruction set, for problems with these bits of a pass. It returns NULL where it holds, or a line that says what was
 * found. It may write to `line`. */
typedef struct verify_check {
    const char *name;
    const char *(*run)(trial *t, char line[256]);
    int pass;
} verify_check;
extern const verify_check verify_checks[]; /* the last has no name */

/* What the reference path finds. NULL, or what went wrong. */
const char *verify_reference(trial *t);
/* Attention into `out`; pairs as in rp_tensors. NULL, or what went wrong. */
const char *verify_attend(const trial *t, int32_t threads, void *out, int64_t pairs[2]);

/* Problem number n of the list; false past the last. */
bool verify_problem(int n, char text[1024]);

#endif
