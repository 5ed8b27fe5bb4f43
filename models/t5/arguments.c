/* arguments.c -- check the tokens that a caller gives, and that the model has the weights for a call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"

rp_status t5_finish(const rp_t5 *m, rp_status status)
{
    char err[IO_ERR_MAX];
    const bool concerns = m->file != NULL && status != RP_E_NOMEM && status != RP_E_CANCELLED;
    return concerns && io_checkpoint_unchanged(m->file, err) != IO_OK ? t5_fail(RP_E_ARG, "%s", err) : status;
}

rp_status t5_need_weights(const rp_t5 *m)
{
    if (m == NULL || m->load == RP_T5_LOAD_ALL)
        return RP_OK;
    return t5_fail(RP_E_UNSUPPORTED, "the model was opened without its weights (open it with RP_T5_LOAD_ALL)");
}

rp_status t5_need_decoder(const rp_t5 *m)
{
    if (m->weights.decoder.layers == 0)
        return t5_fail(RP_E_UNSUPPORTED,
                       "the checkpoint has no decoder, so it can only encode (use one with a decoder)");
    if (m->config.only_encodes)
        return t5_fail(RP_E_UNSUPPORTED, "\"is_encoder_decoder\" is false in config.json, so the model can only encode "
                                         "(set it to true if the decoder belongs to the model)");
    return RP_OK;
}

rp_status t5_check_tokens(const rp_t5 *m, const char *what, int64_t n_sources, const rp_t5_tokens *sources)
{
    const rp_status status = t5_need_weights(m);
    return status == RP_OK ? t5_in_vocabulary(m, what, n_sources, sources) : status;
}

rp_status t5_in_vocabulary(const rp_t5 *m, const char *what, int64_t n_sources, const rp_t5_tokens *sources)
{
    if (m == NULL)
        return t5_fail(RP_E_ARG, "model is NULL; open one with rp_t5_open");
    if (n_sources < 0 || (n_sources > 0 && sources == NULL))
        return t5_fail(RP_E_ARG, "%s is NULL, or their number is negative; pass an array and its length", what);
    for (int64_t s = 0; s < n_sources; s++) {
        if (sources[s].n > 0 && sources[s].tokens == NULL)
            return t5_fail(RP_E_RANGE, "%s[%lld].tokens is NULL; pass an array of %lld tokens", what, (long long)s,
                           (long long)sources[s].n);
        if (sources[s].n < 0 || sources[s].n > INT32_MAX)
            return t5_fail(RP_E_RANGE, "%s[%lld] has %lld tokens; it must have 0 to %d", what, (long long)s,
                           (long long)sources[s].n, INT32_MAX);
        for (int64_t k = 0; k < sources[s].n; k++)
            if (sources[s].tokens[k] < 0 || sources[s].tokens[k] >= m->config.vocab)
                return t5_fail(RP_E_RANGE, "%s[%lld]: token %lld is %d, and the vocabulary has %lld (use 0 to %lld)",
                               what, (long long)s, (long long)k, (int)sources[s].tokens[k], (long long)m->config.vocab,
                               (long long)m->config.vocab - 1);
    }
    return RP_OK;
}
