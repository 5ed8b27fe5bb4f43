/* verify.h -- one problem of `relpos verify`, its checks, and the default list of problems.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_VERIFY_H
#define RELPOS_CLI_VERIFY_H

#include "cli/cli.h"
#include "cli/support/sample_problem.h"

/* One problem. The reference path in double computes its results once for all instruction sets. */
typedef struct trial {
    problem p;
    int64_t n;            /* number of elements of out */
    rp_tensors inputs;    /* inputs converted to double */
    rp_desc exact;        /* the problem's description, for the reference path in double */
    rp_array out;         /* output of the reference path */
    rp_grads gradients;   /* gradients of the reference path */
    rp_tangents tangents; /* tangents in double; those of out and lse are results of the reference path */
    int64_t pairs[2];     /* pairs that masks allow; pairs whose scores were computed */
    bool both;            /* the problem was also computed without skipping tiles */
    double worst;         /* largest ratio of an error to its bound */
} trial;

/* A check. It runs on each instruction set, for problems that contain a pass listed in `pass` (bits: PROBLEM_FORWARD,
 * PROBLEM_BACKWARD, PROBLEM_TANGENTS, PROBLEM_SECOND). `run` returns NULL on success, otherwise a message, which may be
 * stored in `line`. */
typedef struct verify_check {
    const char *name;
    const char *(*run)(trial *t, char line[256]);
    int pass;
} verify_check;
extern const verify_check verify_checks[]; /* ends with an entry without a name */

/* Compute the results of the reference path. Return NULL, or an error message. */
const char *verify_reference(trial *t);
/* Compute attention into `out`; count pairs as rp_tensors describes. Return NULL, or an error message. */
const char *verify_attend(const trial *t, int32_t threads, void *out, int64_t pairs[2]);

/* Write problem n of the default list to `text`. Return false past its end. */
bool verify_problem(int n, char text[1024]);

#endif
