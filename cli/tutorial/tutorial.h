/* tutorial.h -- texts on relative positions, replayed step by step: what each prints, and what librelpos computes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TUTORIAL_H
#define RELPOS_TUTORIAL_H

#include <relpos/relpos.h>
#include <stdbool.h>
#include <stddef.h>

/* One step of a text. Numbers are written as the text writes them: rows separated by line feeds. */
typedef struct tutorial_step {
    const char *what;
    const char *printed;                      /* what the text says, with its numbers; NULL: it says nothing */
    void (*compute)(char *text, size_t size); /* write the right numbers */
    const char *why;                          /* why printed numbers are wrong; NULL: they are right */
    const char *command; /* a command that prints these numbers (of a matrix, at least the first row), or the C program
                            that computes them; NULL: there is none */
} tutorial_step;

/* A text. */
typedef struct tutorial {
    const char *name, *title, *about;
    const tutorial_step *steps; /* ended by a step without `what` */
} tutorial;
extern const tutorial tutorial_s0, tutorial_s1, tutorial_s2, tutorial_s3, tutorial_s4;

/* A problem of one head: arrays of f64, [len, dim] without gaps. */
typedef struct tutorial_problem {
    int64_t len, dim;
    const double *q, *k, *v;
    rp_term term[2];
    const double *array[2];  /* the first array of each term */
    const double *positions; /* of RoPE; NULL: 0, 1, … */
    int32_t n_terms;
} tutorial_problem;

typedef enum tutorial_row {
    TUTORIAL_RAW,
    TUTORIAL_SCALED,
    TUTORIAL_BIAS,
    TUTORIAL_SCORE,
    TUTORIAL_WEIGHTS,
    TUTORIAL_OUT
} tutorial_row;

/* Compute one array of a problem in double, from the definition: `to` is [len, len], or [len, dim] for OUT. */
void tutorial_compute(const tutorial_problem *p, tutorial_row which, double *to);
/* Return the number of elements of the first array of a term, for heads of width dim; -1 if the term is invalid. */
int64_t tutorial_elements(const rp_term *term, int64_t heads, int64_t dim);
/* Write numbers with `digits` digits after the point; -0 is written as 0. */
void tutorial_print(char *text, size_t size, const double *x, int64_t rows, int64_t columns, int digits);
/* Append formatted text, as far as it fits. */
__attribute__((format(printf, 3, 4))) void tutorial_add(char *text, size_t size, const char *format, ...);

#endif
