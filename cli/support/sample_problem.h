/* sample_problem.h -- problem strings, which describe a complete test case for verify, bench, tests and bug reports:
 *
 *     fwd:f32:b1h8q512k512d64:t5,buckets=32+rope:causal+softcap=30
 *
 * The fields are pass : dtype : sizes : terms joined by + : masks and settings joined by +. The last two may be
 * empty or "none".
 * Passes   fwd, bwd, fwdbwd; jvp (tangents of out and lse, along tangents of q, k, v and every learned array), hvp
 *          (second derivatives along these tangents).
 * Sizes    b batch, h heads, g kv heads, q queries, k keys, d width of q and k, v width of v, o q_offset (may be
 *          negative).
 * Terms    as for --bias. Required arrays are generated, so their names do not matter. Arrays that only replace a
 *          default (slopes, positions, masks of positions) are generated if the text names them: alibi,slopes=x.
 * Masks    names, with whole numbers as parameters: causal, window=40,3. Their arrays are generated.
 * Settings scale=S, softcap=C, softcap_after=C, dropout=P, seed=N, q_offsets (a different one for each batch entry),
 *          positions (real positions for every term that accepts them), high (f32 numbers as sums of two bf16 on AMX),
 *          wild (a fifth of the numbers of q, k, v, dout, … are zero, tiny or large), dlse (lse also has a gradient),
 *          dweights (the weights also have one), dsummary (profile, key_mass and entropy also have one), dsoftcap
 *          (the softcaps have gradients and tangents).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PROBLEM_H
#define RELPOS_PROBLEM_H

#include <relpos/facts.h>
#include <stdbool.h>

enum { PROBLEM_FORWARD = 1, PROBLEM_BACKWARD = 2, PROBLEM_TANGENTS = 4, PROBLEM_SECOND = 8 }; /* bits of a pass */

typedef struct problem {
    char text[512];
    int pass;
    rp_desc desc; /* terms and masks point into this struct, so do not copy it */
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    bool named[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* arrays that the text names */
    bool high, q_offsets, positions, wild, dlse, dweights, dsummary, dsoftcap;
    const void *given[13]; /* fields whose settings occur in the text */
    int n_given;
    rp_tensors t;        /* set by problem_fill; includes lse for a backward pass */
    rp_array softcap[2]; /* desc.softcap and softcap_after, as arrays */
    rp_grads g;          /* for a backward pass and second derivatives, in the problem's type */
    rp_tangents x;       /* for tangents and second derivatives, in the problem's type */
    void *memory[50 + 3 * RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS];
    int n_memory;
    bool failed; /* out of memory in problem_fill */
} problem;

/* Parse a problem string into *p, for use with problem_fill and problem_free. Return 0, or the exit code of the program
 * with a line in err. */
int problem_parse(problem *p, const char *text, char err[512]);
/* Generate inputs from a seed, and allocate the results. q, k, v and tables are normally distributed; masks are mostly
 * true. The return value is like that of problem_parse. */
int problem_fill(problem *p, uint64_t seed, char err[512]);
/* Run the calls of the pass. The backward call reads the current out and lse. */
rp_status problem_run(const problem *p, const rp_plan *plan);
void problem_free(problem *p);
/* Allocate memory, which problem_free will free. Return NULL if out of memory. */
void *problem_alloc(problem *p, size_t bytes);
/* Return the number of elements of an array. */
int64_t problem_size(const rp_array *a);
typedef struct problem_mask_text {
    char text[64];
} problem_mask_text;
/* Return a mask in the syntax of problem strings, with sample parameters, such as "window=40,3". */
problem_mask_text problem_mask(rp_mask_kind kind);
/* Write the library's last error to text, with field names as in a problem string. Return text. */
const char *problem_words(const rp_desc *d, char text[512]);
/* Return the number of floating-point operations (two per multiply-add) of the products: two products forward, five
 * backward, six for tangents, sixteen for second derivatives. Pairs that a causal term or an array-free interval mask
 * (causal, window) excludes are not counted. */
double problem_flops(const problem *p);
/* Return the size in bytes of q, k, v, out, their gradients and their tangents. */
double problem_bytes(const problem *p);

/* Return the next number of splitmix64. */
uint64_t problem_next(uint64_t *state);
/* Return the number of tokens of the grid that a text of terms needs, or 0 if there is no grid. There must be this many
 * queries and keys. */
int64_t problem_tokens(const char *terms);
/* Draw a number by a rule, for an array of term t (NULL if the rule does not depend on a term). `last` is the length of
 * the array's last axis. */
double problem_number(const rp_values *how, const rp_term *t, int64_t last, uint64_t *state);

#endif
