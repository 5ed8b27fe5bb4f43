/* problems.c -- the default list of problems. It covers every term and mask.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/verify/verify.h"
#include <string.h>

/* Sizes at and near the edges of tiles. */
static const char *const sizes[] = {"b1h1q1k1d2",         "b1h2q5k7d4v2",       "b2h2q7k63d8",
                                    "b1h4g2q33k65d16v24", "b1h1q25k513d40v9",   "b1h2g1q97k100d24v40",
                                    "b1h1q193k520d18v33", "b2h1q3k1100d66o900", "b1h1q50k1300d32o-7",
                                    "b1h1q95k513d64",     "b1h3q1k1300d16"};
/* Combinations checked in addition to the samples of each term; "" is attention without terms. */
static const char *const mixtures[] = {
    "", "axialkey,grid=2x50+axial,grid=2x50", "rope+t5",
    "band+fire,c=1,L=5,width=16+forget+kerple+real,max_distance=7+sandwich,dim=4+rope+xl+relval,left=3,right=3+sink",
    "rope+t5+alibi+dense+dense+relkey,left=9,right=9+relval,left=2,right=2"};
static const char *const masks[] = {"",
                                    "causal",
                                    "window=10,3",
                                    "window=0,0",
                                    "key_mask",
                                    "mask",
                                    "lengths",
                                    "causal+window=40,-1+key_mask",
                                    "softcap=3",
                                    "softcap_after=3",
                                    "softcap=2+softcap_after=3",
                                    "mask+softcap=2",
                                    "scale=0.7",
                                    "positions",
                                    "positions+causal",
                                    "q_offsets+causal",
                                    "dropout=0.2+seed=5"};
/* Gradients of long sequences; problems that need particular sizes; biases so steep that tiles are skipped. */
static const char *const others[] = {"fwdbwd:f32:b1h4q100k1900d16:alibi",
                                     "fwdbwd:f64:b1h4g2q60k1900d16:alibi+sink:key_mask",
                                     "fwd:bf16:b1h2q300k1400d16o900:linear,left=0.5,right=1+t5:",
                                     "fwd:bf16:b2h2q1k200d40o199:t5:lengths",
                                     "fwd:f32:b1h2q130k130d16:t5:segments+causal",
                                     "fwdbwd:f32:b2h4g2q130k330d16o100:alibi+rope:starts",
                                     "fwdbwd:f32:b2h2q230k130d16:t5:causal+ends",
                                     "bwd:f32:b1h2q40k40d16:t5+rope:segments",
                                     "fwdbwd:f32:b1h2q40k40d16o-3:relkey,left=4,right=4,q_position_mask=x:segments",
                                     "fwdbwd:f32:b1h2g1q130k600d16:t5+rope:causal",
                                     "bwd:f64:b2h2q70k1100d16v24:alibi+sink,rows=1:window=60,0",
                                     "bwd:f32:b1h1q200k90d20:dense+relkey,left=9,right=9+relval,left=5,right=0:mask",
                                     "bwd:bf16:b2h1q3k1100d66o900:forget+band",
                                     "fwdbwd:f32:b1h2g1q130k600d40:t5+rope:causal+high",
                                     "fwdbwd:f32:b1h2q40k50d64v24:dense+relval,left=5,right=5:high",
                                     "jvp:f32:b2h4g2q130k600d16v24:t5+rope+sink:causal+softcap=3",
                                     "jvp:f64:b1h2q40k50d16:dense+deberta,span=9:mask+dropout=0.2+seed=5",
                                     "jvp:bf16:b1h2q100k90d16:alibi,slopes=x+relkey,left=5,right=5:key_mask",
                                     "hvp:f32:b2h4g2q130k300d16v24:t5+rope+sink,rows=1:causal+softcap=3",
                                     "hvp:f64:b1h2q40k50d16:dense+alibi,slopes=x:mask+dropout=0.2+seed=5",
                                     "hvp:bf16:b1h2q30k40d16:kerple+relkey,left=5,right=5:key_mask",
                                     "fwdbwd:f32:b6h2q40k300d16:dense,interleave=3+dense,tile=2:causal",
                                     "jvp:f32:b4h2q40k50d16:dense,interleave=2:mask",
                                     "hvp:f64:b4h2q40k50d16:dense,tile=2+alibi,slopes=x:causal"};
/* Passes and types that are checked for each term in addition to fwd:f32, each with a different mask. Sizes are mostly
 * small, because the reference computes gradients slowly. */
static const char *const passes[] = {"fwdbwd:f32", "bwd:f32",  "bwd:f32", "fwd:f64",
                                     "fwdbwd:f64", "fwd:bf16", "fwd:f16", "bwd:bf16"};

enum {
    N_MIXTURES = sizeof mixtures / sizeof *mixtures,
    N_MASKS = sizeof masks / sizeof *masks,
    N_SIZES = sizeof sizes / sizeof *sizes,
    N_SMALL = 4,  /* most entries of `passes` use one of these first sizes */
    N_MIDDLE = 6, /* a quarter of them use one of these */
    N_PASSES = sizeof passes / sizeof *passes,
    N_OTHERS = sizeof others / sizeof *others,
    N_KINDS = RP_MASK_COUNT - RP_MASK_NONE - 1,
    N_EACH = N_MASKS / 2 + N_PASSES /* problems for each entry of the list of terms */
};

/* Write entry n of the list of terms to `text`. The list has the samples of every term, then the mixtures. Return false
 * past its end. */
static bool term_text(int n, char text[512])
{
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
        const rp_term_facts *f = rp_term_about((rp_term_kind)k);
        for (int x = 0; x < RP_MAX_SAMPLES && (f->samples[x] || x == 0); x++, n--)
            if (n == 0) {
                const char *sample = f->samples[x] ? f->samples[x] : "";
                snprintf(text, 512, "%s%s%s", rp_term_name((rp_term_kind)k), *sample ? "," : "", sample);
                return true;
            }
    }
    if (n < N_MIXTURES)
        snprintf(text, 512, "%s", mixtures[n]);
    return n < N_MIXTURES;
}

/* The list has, for each text of terms: fwd:f32 with half of the masks, in varying sizes; then every entry of `passes`,
 * with a different mask each. After all texts come `others`, and each mask of the registry forward and backward. */
bool verify_problem(int n, char text[1024])
{
    char terms[512];
    int term = n / N_EACH;
    n %= N_EACH;
    if (!term_text(term, terms)) {
        int last = 0;
        while (term_text(last, terms))
            last++;
        const int other = (term - last) * N_EACH + n, kind = other - N_OTHERS;
        if (other >= N_OTHERS + 2 * N_KINDS)
            return false;
        if (other < N_OTHERS)
            snprintf(text, 1024, "%s", others[other]);
        else
            snprintf(text, 1024, kind % 2 ? "bwd:f32:b1h2q70k70d16:t5:%s" : "fwd:f32:b2h4g2q150k150d16:t5:%s",
                     problem_mask((rp_mask_kind)(RP_MASK_NONE + 1 + kind / 2)).text);
        return true;
    }
    const bool first = n < N_MASKS / 2;
    const int mask = (first ? 2 * n + term : term * 3 + (n - N_MASKS / 2) * 5) % N_MASKS;
    const int among = first ? N_SIZES : (term + n) % 4 ? N_SMALL : N_MIDDLE;
    const char *pass = first ? "fwd:f32" : passes[n - N_MASKS / 2];
    char shape[64];
    const int64_t tokens = problem_tokens(terms);
    if (tokens) /* a grid needs one query and one key per token, and no offset */
        snprintf(shape, sizeof shape, n % 2 ? "b1h4g2q%lldk%lldd24v9" : "b2h2q%lldk%lldd16", (long long)tokens,
                 (long long)tokens);
    else
        snprintf(shape, sizeof shape, "%s", sizes[(term * 5 + mask * 7) % among]);
    snprintf(text, 1024, "%s:%s:%s:%s", pass, shape, terms,
             tokens && strstr(masks[mask], "q_offsets") ? "causal" : masks[mask]);
    return true;
}
