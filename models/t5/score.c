/* score.c -- log-probabilities of a given target, computed in one step for all of its tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdlib.h>
#include <string.h>

typedef struct scoring {
    const rp_t5 *m;
    const int32_t *target;
    int64_t vocab;
    double total, *each;
} scoring;

static rp_status visit_score(void *context, int64_t r, int64_t position, const float *logits)
{
    scoring *k = context;
    (void)r;
    const rp_status status = t5_check_logits(k->m, logits);
    if (status != RP_OK)
        return status;
    const double p = (double)logits[k->target[position]] - t5_log_sum_exp(logits, k->vocab);
    k->total += p;
    if (k->each != NULL)
        k->each[position] = p;
    return RP_OK;
}

rp_status rp_t5_score(const rp_t5 *m, rp_t5_tokens source, rp_t5_tokens target, double *total, double *each,
                      rp_progress *progress, void *context)
{
    model_watch watch = model_watch_of(progress, context);
    rp_t5_session *s = NULL;
    const int32_t first_source = 0;
    rp_status status = t5_check_tokens(m, "target", 1, &target);
    if (status == RP_OK)
        status = t5_begin(&s, m, 1, &source, target.n, &watch);
    scoring k = {m, target.tokens, status == RP_OK ? m->config.vocab : 0, 0, each};
    int32_t *in = status == RP_OK ? malloc(((size_t)target.n + 1) * sizeof *in) : NULL;
    if (status == RP_OK && in == NULL)
        status = t5_no_memory();
    if (status == RP_OK && target.n > 0) {
        in[0] = m->config.start;
        memcpy(in + 1, target.tokens, (size_t)(target.n - 1) * sizeof *in);
        status = t5_finish(m, t5_decode(s, 1, &first_source, target.n, in, NULL, visit_score, &k));
    }
    if (status == RP_OK && total != NULL)
        *total = k.total;
    free(in);
    rp_t5_end(s);
    return status;
}
