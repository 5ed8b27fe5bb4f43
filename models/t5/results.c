/* results.c -- the results of a call of rp_t5_generate: a growing list of sequences.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdlib.h>
#include <string.h>

rp_status t5_add_result(rp_t5_results *r, int64_t source, int64_t index, const int32_t *tokens, int64_t n, double score,
                        bool finished)
{
    if ((r->n & (r->n - 1)) == 0) { /* full: the capacity is 0 for n = 0, else the smallest power of two >= n */
        rp_t5_sequence *more = realloc(r->sequences, (size_t)(r->n > 0 ? 2 * r->n : 1) * sizeof *more);
        if (more == NULL)
            return t5_no_memory();
        r->sequences = more;
    }
    int32_t *copy = malloc(((size_t)n + 1) * sizeof *copy);
    if (copy == NULL)
        return t5_no_memory();
    memcpy(copy, tokens, (size_t)n * sizeof *copy);
    r->sequences[r->n++] = (rp_t5_sequence){source, (int32_t)index, finished, copy, n, score};
    return RP_OK;
}

int64_t rp_t5_results_size(const rp_t5_results *r)
{
    return r != NULL ? r->n : 0;
}

const rp_t5_sequence *rp_t5_result(const rp_t5_results *r, int64_t n)
{
    return r != NULL && n >= 0 && n < r->n ? &r->sequences[n] : NULL;
}

const rp_t5_drafted *rp_t5_results_drafted(const rp_t5_results *r)
{
    return r != NULL ? &r->drafted : NULL;
}

void rp_t5_results_free(rp_t5_results *r)
{
    if (r == NULL)
        return;
    for (int64_t n = 0; n < r->n; n++)
        free(r->sequences[n].tokens);
    free(r->sequences);
    free(r);
}
