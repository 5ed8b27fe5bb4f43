/* problem.h -- a whole case in one string, for verify, bench, tests and bug reports:
 *
 *     fwd:f32:b1h8q512k512d64:t5,buckets=32+rope:causal+softcap=30
 *
 * pass : dtype : sizes : terms joined by + : masks and settings joined by +. The last two may be empty or "none".
 * Sizes    b batch, h heads, g kv heads, q queries, k keys, d width of q and k, v width of v, o q_offset (may be negative).
 * Settings causal, window=L,R, key_mask, mask, lengths, segments, scale=S, softcap=C, softcap_after=C.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PROBLEM_H
#define RELPOS_PROBLEM_H

#include <relpos/relpos.h>
#include <stdbool.h>

typedef struct problem {
    char text[512];
    rp_desc desc; /* terms and masks point into this struct: do not copy it */
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    rp_tensors t; /* filled by problem_fill */
    void *memory[8 + RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS];
    int n_memory;
} problem;

/* Read a problem; *p is ready for problem_fill and problem_free. 0, or the program's exit code with a line in err. */
int problem_parse(problem *p, const char *text, char err[512]);
/* Make inputs from a seed, and out: q, k, v normal and tables normal, masks mostly true; optional arrays
 * stay away. As above. */
int problem_fill(problem *p, uint64_t seed, char err[512]);
void problem_free(problem *p);
/* Memory that lives as long as the problem. NULL if there is none. */
void *problem_alloc(problem *p, size_t bytes);
/* Elements of an array. */
int64_t problem_size(const rp_array *a);
/* Multiply-adds of the two products, times two: what GFLOP/s counts. Pairs masked by causal and window are left out. */
double problem_flops(const problem *p);

#endif
