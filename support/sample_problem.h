/* sample_problem.h -- a whole case in one string, for verify, bench, tests and bug reports:
 *
 *     fwd:f32:b1h8q512k512d64:t5,buckets=32+rope:causal+softcap=30
 *
 * pass : dtype : sizes : terms joined by + : masks and settings joined by +. The last two may be empty or "none".
 * Passes   fwd, bwd, fwdbwd.
 * Sizes    b batch, h heads, g kv heads, q queries, k keys, d width of q and k, v width of v, o q_offset (may be negative).
 * Terms    as for --bias. Arrays are made whatever they are called; optional ones that only replace a default (slopes,
 *          positions, masks of positions) where the text names them: alibi,slopes=x.
 * Masks    by their names, with whole numbers for their parameters: causal, window=40,3. Their arrays are made.
 * Settings scale=S, softcap=C, softcap_after=C, dropout=P, seed=N, q_offsets (each batch entry has its own), positions (real ones for
 *          every term that takes them), high, wild (a fifth of the numbers of q, k, v, dout and dlse are zeros, tiny or large), dlse (lse
 *          has a gradient too).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PROBLEM_H
#define RELPOS_PROBLEM_H

#include <relpos/facts.h>
#include <stdbool.h>

enum { PROBLEM_FORWARD = 1, PROBLEM_BACKWARD = 2 }; /* bits of a pass */

typedef struct problem {
    char text[512];
    int pass;
    rp_desc desc; /* terms and masks point into this struct: do not copy it */
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    bool named[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* arrays that the text names */
    bool high, q_offsets, positions, wild, dlse;
    const void *given[9]; /* fields of the settings that the text has */
    int n_given;
    rp_tensors t; /* filled by problem_fill; lse is there for a backward pass */
    rp_grads g;   /* for a backward pass, of the problem's type */
    void *memory[40 + 2 * RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS];
    int n_memory;
} problem;

/* Read a problem; *p is ready for problem_fill and problem_free. 0, or the program's exit code with a line in err. */
int problem_parse(problem *p, const char *text, char err[512]);
/* Make inputs from a seed, and places for the results: q, k, v normal and tables normal, masks mostly true. As above. */
int problem_fill(problem *p, uint64_t seed, char err[512]);
/* The calls of the pass; a backward call is given out and lse as they are. */
rp_status problem_run(const problem *p, const rp_plan *plan);
void problem_free(problem *p);
/* Memory that lives as long as the problem. NULL if there is none. */
void *problem_alloc(problem *p, size_t bytes);
/* Elements of an array. */
int64_t problem_size(const rp_array *a);
/* A mask as a problem writes it, with a sample of its parameters: "window=40,3". */
typedef struct problem_mask_text {
    char text[64];
} problem_mask_text;
problem_mask_text problem_mask(rp_mask_kind kind);
/* What the library refused, in the words of a problem string; returns text. */
const char *problem_words(const rp_desc *d, char text[512]);
/* Multiply-adds of the products, times two: what GFLOP/s counts; two products forward, five backward. Pairs masked by intervals
 * that need no array, such as causal and window, or by a term that is causal, are left out. */
double problem_flops(const problem *p);
/* Bytes of q, k, v, out and their gradients. */
double problem_bytes(const problem *p);

/* The next number of splitmix64. */
uint64_t problem_next(uint64_t *state);
/* Tokens of the grid that a text of terms names, 0 where it names none: such problems have as many queries and keys. */
int64_t problem_tokens(const char *terms);
/* A number by a rule, for an array of a term (NULL: none is needed by the rule). `last`: length of the array's last axis. */
double problem_number(const rp_values *how, const rp_term *t, int64_t last, uint64_t *state);

#endif
