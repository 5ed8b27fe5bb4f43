/* verify.h -- one problem of `relpos verify`, its checks, and the default list of problems.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_VERIFY_H
#define RELPOS_CLI_VERIFY_H

#include "cli/cli.h"
#include "cli/support/sample_problem.h"

/* One problem with the results of the reference path in double, which are computed once for all instruction sets. */
typedef struct trial {
    problem p;
    int64_t n;          /* elements of out */
    rp_tensors inputs;  /* inputs converted to double */
    rp_desc exact;      /* description of the problem in double on the reference path */
    rp_array out;       /* output of the reference path */
    rp_grads gradients; /* gradients of the reference path */
    int64_t pairs[2];   /* pairs that masks allow; pairs whose scores were computed */
    bool both;          /* the problem was also computed without skipping tiles */
    double worst;       /* largest error / bound */
} trial;

/* A check. It runs on each instruction set, for problems with at least one of the passes in `pass` (bits:
 * PROBLEM_FORWARD, PROBLEM_BACKWARD). `run` returns NULL if the check succeeds, else a message, which may be in `line`.
 * */
typedef struct verify_check {
    const char *name;
    const char *(*run)(trial *t, char line[256]);
    int pass;
} verify_check;
extern const verify_check verify_checks[]; /* ends with an entry without a name */

/* Compute the results of the reference path. Return NULL, or an error message. */
const char *verify_reference(trial *t);
/* Compute attention into `out` and count pairs as in rp_tensors. Return NULL, or an error message. */
const char *verify_attend(const trial *t, int32_t threads, void *out, int64_t pairs[2]);

/* Write problem n of the default list to `text`. Return false if the list is shorter. */
bool verify_problem(int n, char text[1024]);

#endif
