/* terms/rope_scaling.h -- RoPE frequencies for sequences beyond the trained length, as in Hugging Face's
 * modeling_rope_utils but computed in double. Peng et al. 2023 (NTK, YaRN); Llama 3.1; Ding et al. 2024 (LongRoPE).
 * SPDX-License-Identifier: Apache-2.0 */

/* Return the trained length. */
static int64_t rope_original(const rp_term *t)
{
    return t->original_max_position_embeddings ? t->original_max_position_embeddings : t->max_position_embeddings;
}

/* Check the parameters that each scaling reads. `what` is the prefix of field names in messages. */
static rp_status rope_scaling_check(const char *what, const rp_term *t)
{
    const rp_scaling s = t->scaling;
    const bool trained = s == RP_SCALING_YARN || s == RP_SCALING_LLAMA3 || s == RP_SCALING_LONGROPE;
    if (s == RP_SCALING_NONE && t->factor != 1)
        return rpi_fail(RP_E_ARG, "%sfactor is %g, but scaling is none; set scaling, or set factor to 1", what,
                        t->factor);
    if (s == RP_SCALING_DYNAMIC && t->max_position_embeddings == 0)
        return rpi_fail(RP_E_RANGE, "%smax_position_embeddings is 0; set it to the trained length, 1 to 2^53", what);
    if (trained && rope_original(t) < (s == RP_SCALING_LONGROPE ? 2 : 1))
        return rpi_fail(RP_E_RANGE,
                        "%soriginal_max_position_embeddings is %lld; set it to the trained length, %d to 2^53", what,
                        (long long)t->original_max_position_embeddings, s == RP_SCALING_LONGROPE ? 2 : 1);
    if (s == RP_SCALING_YARN) {
        if (t->base <= 1)
            return rpi_fail(RP_E_RANGE, "%sbase is %g; it must be above 1 for yarn", what, t->base);
        if (!(t->beta_slow > 0 && t->beta_fast >= t->beta_slow && t->beta_fast <= 1e10))
            return rpi_fail(
                RP_E_RANGE,
                "%sbeta_fast is %g and beta_slow is %g; they must satisfy 1e10 >= beta_fast >= beta_slow > 0", what,
                t->beta_fast, t->beta_slow);
        if (!(t->mscale >= 0 && t->mscale <= 1e10 && t->mscale_all_dim >= 0 && t->mscale_all_dim <= 1e10))
            return rpi_fail(RP_E_RANGE, "%smscale is %g and mscale_all_dim is %g; they must be 0 (unset) to 1e10", what,
                            t->mscale, t->mscale_all_dim);
    }
    if (s == RP_SCALING_LLAMA3 &&
        !(t->low_freq_factor > 0 && t->high_freq_factor > t->low_freq_factor && t->high_freq_factor <= 1e10))
        return rpi_fail(RP_E_RANGE,
                        "%slow_freq_factor is %g and high_freq_factor is %g; they must satisfy 0 < low < high <= 1e10",
                        what, t->low_freq_factor, t->high_freq_factor);
    return RP_OK;
}

static const double two_pi = 6.283185307179586477;

/* Return the attention factor of YaRN (Peng 2023, section 3.4). */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

/* Return the index of the pair (as a real number) that makes `rotations` rotations within the trained length. */
static double yarn_pair(const rp_term *t, double rotations)
{
    return (double)t->dim * log((double)rope_original(t) / (rotations * two_pi)) / (2 * log(t->base));
}

/* Return 1 if pair c keeps its frequency, 0 if its frequency is divided by `factor`, or a value between them on the
 * ramp. */
static double yarn_kept(const rp_term *t, int64_t c)
{
    double low = yarn_pair(t, t->beta_fast), high = yarn_pair(t, t->beta_slow);
    if (t->truncate)
        low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, (double)(t->dim - 1));
    if (low == high)
        high += 0.001;
    return 1 - fmin(fmax(((double)c - low) / (high - low), 0), 1);
}

static double llama3_kept(const rp_term *t, double frequency)
{
    const double rotations = (double)rope_original(t) * frequency / (two_pi); /* in the trained length */
    return fmin(fmax((rotations - t->low_freq_factor) / (t->high_freq_factor - t->low_freq_factor), 0), 1);
}

/* Return stretched length / trained length. This is `factor`, unless YaRN or LongRoPE has factor 1 and
 * max_position_embeddings is set; then compute it from the two lengths. */
static double rope_longer(const rp_term *t)
{
    const bool lengths = t->scaling == RP_SCALING_YARN || t->scaling == RP_SCALING_LONGROPE;
    return lengths && t->factor == 1 && t->max_position_embeddings
               ? (double)t->max_position_embeddings / (double)rope_original(t)
               : t->factor;
}

/* Return the factor by which cosines and sines are multiplied. */
static double rope_factor(const rp_term *t)
{
    const double factor = rope_longer(t);
    if (t->attention_factor > 0)
        return t->attention_factor;
    if (t->scaling == RP_SCALING_YARN)
        return t->mscale > 0 && t->mscale_all_dim > 0
                   ? yarn_mscale(factor, t->mscale) / yarn_mscale(factor, t->mscale_all_dim)
                   : yarn_mscale(factor, 1);
    if (t->scaling != RP_SCALING_LONGROPE)
        return 1.0;
    return factor <= 1 ? 1.0 : sqrt(1 + log(factor) / log((double)rope_original(t)));
}
