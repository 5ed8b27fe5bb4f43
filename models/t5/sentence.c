/* sentence.c -- vectors of texts, by the modules of sentence-transformers (checkpoint/modules.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/modules.h"
#include "t5/model.h"

static rp_status need_modules(const rp_t5 *m)
{
    return m->modules != NULL ? RP_OK
                              : t5_fail(RP_E_UNSUPPORTED, "the model has no modules.json (use a model folder saved by "
                                                          "sentence-transformers)");
}

rp_status rp_t5_prompt(const rp_t5 *m, const char *name, const char **prompt)
{
    if (m == NULL || prompt == NULL)
        return t5_fail(RP_E_ARG, "model or prompt is NULL; pass both");
    *prompt = NULL;
    const rp_status status = need_modules(m);
    return status == RP_OK ? t5_model_failed(model_modules_prompt(m->modules, name, prompt)) : status;
}

/* Count the tokens of a prompt as sentence-transformers does: alone, cut like a text, without the end token. */
static rp_status count_prompt(const rp_t5 *m, const char *prompt, int64_t *n)
{
    int32_t *tokens;
    *n = 0;
    if (!model_modules_skips_prompt(m->modules) || prompt == NULL || prompt[0] == 0)
        return RP_OK;
    const rp_status status = rp_t5_tokenize(m, prompt, -1, &tokens, n);
    if (status != RP_OK)
        return status;
    const bool ends = *n > 0 && tokens[*n - 1] == m->info.eos;
    const int64_t most = model_modules_tokens(m->modules);
    if (most > 0 && *n > most)
        *n = most;
    *n -= ends;
    rp_t5_free(tokens);
    return RP_OK;
}

rp_status rp_t5_vector(const rp_t5 *m, const char *prompt, int64_t n, const float *hidden, float *vector)
{
    if (m == NULL || hidden == NULL || vector == NULL || n < 0)
        return t5_fail(RP_E_ARG, "model, hidden or vector is NULL, or n is %lld; pass all, and n >= 0", (long long)n);
    int64_t first;
    rp_status status = need_modules(m);
    if (status == RP_OK)
        status = t5_need_weights(m);
    if (status == RP_OK)
        status = count_prompt(m, prompt, &first);
    if (status != RP_OK)
        return status;
    return t5_model_failed(model_modules_apply(m->modules, hidden, m->config.d_model, first, n, vector));
}
