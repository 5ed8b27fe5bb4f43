/* exact.h -- the reference path in arithmetic with 113 bits. librelpos_exact has the files of src that define a call,
 * compiled again with `double` as __float128 (quad.h); nothing is written twice. All its symbols but these are local.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_EXACT_H
#define RELPOS_TESTS_EXACT_H

#include "cli/support/sample_problem.h"

enum {
    EXACT_RESULTS = 8 + RP_MAX_TERMS * RP_MAX_ARRAYS,
    EXACT_ARRAYS = 20 + 2 * RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS
};

/* The inputs and results of a problem. `text` is its text. Input n is given as numbers (as double) if its type is
 * floating, else as its bytes; results are in the order of exact_results. */
typedef struct exact_call {
    const char *text;
    const void *input[EXACT_ARRAYS];
    int64_t input_size[EXACT_ARRAYS];
    const __float128 *result[EXACT_RESULTS];
    char err[512];
    void *memory;
} exact_call;

/* An input number, in double also where `double` is __float128. */
#ifdef RELPOS_TESTS_QUAD_H
typedef plain_double exact_number;
#else
typedef double exact_number;
#endif

/* Compute the results. Return 0; another number, with a line in err, if the problem is refused. */
__attribute__((visibility("default"))) int exact_run(exact_call *c);
__attribute__((visibility("default"))) void exact_end(exact_call *c);

/* List the input arrays of a problem that problem_fill may have made; some are absent. Return their number. */
static inline int exact_inputs(problem *p, rp_array *to[EXACT_ARRAYS])
{
    rp_array *const first[] = {&p->t.q,    &p->t.k,        &p->t.v,        &p->t.q_offset,  &p->g.dout,
                               &p->g.dlse, &p->g.dweights, &p->g.dprofile, &p->g.dkey_mass, &p->g.dentropy,
                               &p->x.q,    &p->x.k,        &p->x.v,        &p->x.softcap,   &p->x.softcap_after};
    int n = 0;
    for (size_t x = 0; x < sizeof first / sizeof *first; x++)
        to[n++] = first[x];
    for (int32_t t = 0; t < p->desc.n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            to[n++] = &p->t.term[t][x];
            to[n++] = &p->x.term[t][x];
        }
    for (int32_t t = 0; t < p->desc.n_masks; t++)
        to[n++] = &p->t.mask[t];
    return n;
}

/* List the arrays of results: tangents of out and lse and out itself come first. Return their number. */
static inline int exact_results(problem *p, rp_array *to[EXACT_RESULTS])
{
    rp_array *const first[] = {&p->t.out, &p->x.out, &p->x.lse,      &p->g.dq,
                               &p->g.dk,  &p->g.dv,  &p->g.dsoftcap, &p->g.dsoftcap_after};
    int n = 0;
    for (size_t x = 0; x < sizeof first / sizeof *first; x++)
        to[n++] = first[x];
    for (int32_t t = 0; t < p->desc.n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            to[n++] = &p->g.term[t][x];
    return n;
}

#endif
