/* terms/rope.h -- rotary positions: pair c of channels rotates by position * base^(-2c/dim), by position times a given
 * frequency, or by a given angle.
 * Su et al. 2021, section 3.2. Channels before `first`, and from first + dim on, are not rotated (partial rotation,
 * GPT-NeoX, DeepSeek).
 * SPDX-License-Identifier: Apache-2.0 */

static const char *const rope_layouts[] = {"half", "interleaved", NULL};
static const char *const rope_scalings[] = {"none", "linear", "dynamic", "yarn", "llama3", "longrope", NULL};

static const rp_param rope_params[] = {
    {"dim", RP_PARAM_INT, RPI_FIELD(dim), .unset = "Dk", .min = 2, .max = 0x1p53,
     .meaning = "number of rotated channels, even; if it is 0, all from first on"},
    {"base", RP_PARAM_REAL, RPI_FIELD(base), .value = 10000, .above_min = 1,
     .meaning = "pair c rotates by position * base^(-2c/dim)"},
    {"layout", RP_PARAM_CHOICE, RPI_FIELD(layout), .choices = rope_layouts,
     .meaning = "pairs (c, c + dim/2) as in Llama, or (2c, 2c+1) as in GPT-J"},
    {"first", RP_PARAM_INT, RPI_FIELD(integer[1]), .max = 0x1p53, .meaning = "first rotated channel"},
    {"scaling", RP_PARAM_CHOICE, RPI_FIELD(scaling), .choices = rope_scalings, .meaning = "scaling of the frequencies"},
    {"factor", RP_PARAM_REAL, RPI_FIELD(factor), .value = 1, .min = 1, .max = 1e10,
     .meaning = "stretched length / trained length"},
    {"original_max_position_embeddings", RP_PARAM_INT, RPI_FIELD(original_max_position_embeddings),
     .unset = "max_position_embeddings", .max = 0x1p53, .meaning = "trained length of yarn, llama3, longrope"},
    {"max_position_embeddings", RP_PARAM_INT, RPI_FIELD(max_position_embeddings), .unset = "none", .max = 0x1p53,
     .meaning = "trained length of dynamic; stretched length of yarn and longrope"},
    {"beta_fast", RP_PARAM_REAL, RPI_FIELD(beta_fast), .value = 32,
     .meaning = "yarn: pairs with more rotations keep their frequency"},
    {"beta_slow", RP_PARAM_REAL, RPI_FIELD(beta_slow), .value = 1,
     .meaning = "yarn: frequencies of pairs with fewer rotations are divided by factor"},
    {"attention_factor", RP_PARAM_REAL, RPI_FIELD(attention_factor), .unset = "set by scaling", .max = 1e10,
     .meaning = "factor that multiplies cosines and sines"},
    {"mscale", RP_PARAM_REAL, RPI_FIELD(mscale), .unset = "none",
     .meaning = "yarn: 0.1 mscale ln(factor) + 1 is the numerator of the attention factor"},
    {"mscale_all_dim", RP_PARAM_REAL, RPI_FIELD(mscale_all_dim), .unset = "none",
     .meaning = "yarn: 0.1 mscale_all_dim ln(factor) + 1 is the denominator of the attention factor"},
    {"truncate", RP_PARAM_FLAG, RPI_FIELD(truncate), .value = 1,
     .meaning = "yarn: 1 = round the ends of the ramp to whole pairs"},
    {"low_freq_factor", RP_PARAM_REAL, RPI_FIELD(low_freq_factor), .value = 1,
     .meaning = "llama3: frequencies of pairs with fewer rotations are divided by factor"},
    {"high_freq_factor", RP_PARAM_REAL, RPI_FIELD(high_freq_factor), .value = 4,
     .meaning = "llama3: pairs with more rotations keep their frequency"},
    {"axes", RP_PARAM_INT, RPI_FIELD(integer[0]), .unset = "no axis", .max = 4,
     .meaning = "axes of positions and frequencies: the angle is a sum over them"},
    {"by_channel", RP_PARAM_FLAG, RPI_FIELD(choice[0]),
     .meaning = "1 = angles has one for each channel, in place of one for each pair"},
    {"length", RP_PARAM_INT, RPI_FIELD(length), .unset = "largest position + 1", .max = 0x1p53,
     .meaning = "dynamic, longrope: the length that chooses the frequencies"},
    {0},
};

/* Check conditions that involve several parameters, or dim and the width of q and k. */
static rp_status rope_relations(const char *what, const rp_term *t, int64_t width)
{
    if (t->dim > width || t->dim % 2 != 0)
        return rpi_fail(RP_E_RANGE, "%sdim is %lld; it must be even, from 2 to %lld, the width of q and k", what,
                        (long long)t->dim, (long long)width);
    if (rpi_rotation_first(t) > width - t->dim)
        return rpi_fail(RP_E_RANGE,
                        "%sinteger[1] is %lld; it must be 0 to %lld, the width of q and k minus the %lld rotated "
                        "channels",
                        what, (long long)rpi_rotation_first(t), (long long)(width - t->dim), (long long)t->dim);
    return rope_scaling_check(what, t);
}

static rp_status rope_check(const rp_desc *d, rp_term *t, int32_t n)
{
    char what[32];
    snprintf(what, sizeof what, "terms[%d].", (int)n);
    if (t->dim == 0)
        t->dim = rpi_max(d->dim_k - rpi_rotation_first(t), 2);
    return rope_relations(what, t, d->dim_k);
}

/* Frequencies up to this size times any position are finite. */
static const double rope_max_frequency = 0x1p100;

/* Set the number of axes from the frequencies, [axes, Hk, dim/2] or without axes, and the number of channels. */
static int rope_sizes(rp_term *t, const rp_array *array)
{
    if (array[RPI_ROPE_FREQUENCIES].data && array[RPI_ROPE_FREQUENCIES].ndim == 3 && t->integer[0] == 0)
        t->integer[0] = array[RPI_ROPE_FREQUENCIES].shape[0];
    return -1;
}

/* Check that no parameter of the frequencies is set, because given frequencies or angles replace them. `name` is the
 * array. */
static rp_status rope_check_unused(const rp_term *t, int32_t n, const char *name)
{
    char given[64] = "";
    if (t->scaling != RP_SCALING_NONE)
        snprintf(given, sizeof given, "scaling=%s", rope_scalings[t->scaling]);
    else if (t->base != 10000)
        snprintf(given, sizeof given, "base=%g", t->base);
    else if (t->length)
        snprintf(given, sizeof given, "length=%lld", (long long)t->length);
    return *given ? rpi_fail(RP_E_ARG, "term[%d].%s (of rope) was given with %s, which would have no effect; omit it",
                             (int)n, name, given)
                  : RP_OK;
}

/* Check given frequencies. */
static rp_status rope_check_frequencies(const rp_desc *d, const rp_term *t, const rpi_view *v, int32_t n)
{
    const int64_t per_axis = d->kv_heads * (t->dim / 2);
    const rp_status status = rope_check_unused(t, n, "frequencies");
    if (status != RP_OK)
        return status;
    for (int64_t x = 0; x < rpi_rotation_axes(t) * per_axis; x++) {
        const double f = rpi_rope_frequency_at(t, v, x / per_axis, x % per_axis / (t->dim / 2), x % (t->dim / 2));
        if (!(fabs(f) <= rope_max_frequency))
            return rpi_fail(RP_E_RANGE,
                            "term[%d].frequencies (of rope): an element of pair %lld is %g; it must be finite, from "
                            "-2^100 to 2^100",
                            (int)n, (long long)(x % (t->dim / 2)), f);
    }
    return RP_OK;
}

/* Check that array x, which is for both q and k, is the only one of its kind. */
static rp_status rope_check_both(const rp_desc *d, const rpi_view *array, int32_t n, int x)
{
    const char *name = rp_term_array(RP_TERM_ROPE, x), *of_q = rp_term_array(RP_TERM_ROPE, x + 1),
               *of_k = rp_term_array(RP_TERM_ROPE, x + 2);
    if (array[x].data && (array[x + 1].data || array[x + 2].data))
        return rpi_fail(RP_E_ARG,
                        "term[%d].%s (of rope) was given with %s, but %s is for both q and k; give only one of them",
                        (int)n, name, array[x + 1].data ? of_q : of_k, name);
    if (array[x].data && d->len_q != d->len_k)
        return rpi_fail(RP_E_SHAPE,
                        "term[%d].%s (of rope): there are %lld queries and %lld keys; give %s and %s instead", (int)n,
                        name, (long long)d->len_q, (long long)d->len_k, of_q, of_k);
    return RP_OK;
}

/* Check given angles, which replace the other arrays. */
static rp_status rope_check_angles(const rp_term *t, const rpi_view *array, int32_t n, int x)
{
    const char *name = rp_term_array(RP_TERM_ROPE, x);
    const rpi_view *v = &array[x];
    for (int other = 0; other < RPI_ROPE_ANGLES; other++)
        if (array[other].data)
            return rpi_fail(RP_E_ARG,
                            "term[%d].%s (of rope) was given with %s, which it replaces; give only one of them", (int)n,
                            name, rp_term_array(RP_TERM_ROPE, other));
    if (x > RPI_ROPE_ANGLES && !(array[RPI_ROPE_Q_ANGLES].data && array[RPI_ROPE_K_ANGLES].data))
        return rpi_fail(RP_E_ARG, "term[%d].%s (of rope) is missing; pass this array, which is needed with %s", (int)n,
                        rp_term_array(RP_TERM_ROPE, x == RPI_ROPE_Q_ANGLES ? x + 1 : x - 1), name);
    const rp_status status = rope_check_unused(t, n, name);
    if (status != RP_OK)
        return status;
    for (int64_t row = 0; row < v->len[0] * v->len[1] * v->len[2]; row++) {
        const int64_t token = row % v->len[2], head = row / v->len[2];
        for (int64_t c = 0; c < v->len[3]; c++) {
            const double angle = rpi_at(v, head / v->len[1], head % v->len[1], token, c);
            if (!(fabs(angle) < HUGE_VAL))
                return rpi_fail(RP_E_RANGE,
                                "term[%d].%s (of rope): element %lld of token %lld is %g; angles must be finite",
                                (int)n, name, (long long)c, (long long)token, angle);
        }
    }
    return RP_OK;
}

static rp_status rope_check_arrays(const rp_desc *d, const rp_term *t, const rpi_view *array, int32_t n)
{
    rp_status status = rope_check_both(d, array, n, RPI_ROPE_POSITIONS);
    if (status == RP_OK)
        status = rope_check_both(d, array, n, RPI_ROPE_ANGLES);
    for (int x = RPI_ROPE_ANGLES; x < RPI_ROPE_END && status == RP_OK; x++)
        if (array[x].data)
            status = rope_check_angles(t, array, n, x);
    const bool angles = array[RPI_ROPE_ANGLES].data || array[RPI_ROPE_Q_ANGLES].data;
    if (status == RP_OK && rpi_rotates_channels(t) && !angles)
        status = rpi_fail(RP_E_ARG,
                          "term[%d].angles (of rope) is missing; pass this array, which is needed with by_channel=1",
                          (int)n);
    if (status != RP_OK)
        return status;
    const bool both =
        array[RPI_ROPE_POSITIONS].data || (array[RPI_ROPE_Q_POSITIONS].data && array[RPI_ROPE_K_POSITIONS].data);
    if (t->integer[0] > 0 && (!array[RPI_ROPE_FREQUENCIES].data || !both))
        return rpi_fail(RP_E_ARG, "term[%d].%s (of rope) is missing; pass this array, which is needed with axes=%lld",
                        (int)n,
                        !array[RPI_ROPE_FREQUENCIES].data  ? "frequencies"
                        : array[RPI_ROPE_Q_POSITIONS].data ? "k_positions"
                        : array[RPI_ROPE_K_POSITIONS].data ? "q_positions"
                                                           : "positions",
                        (long long)t->integer[0]);
    return array[RPI_ROPE_FREQUENCIES].data ? rope_check_frequencies(d, t, &array[RPI_ROPE_FREQUENCIES], n) : RP_OK;
}

double rpi_rope_length(const rp_term *t, double longest)
{
    const double length = t->length ? (double)t->length : longest, original = (double)rope_original(t);
    if (t->scaling == RP_SCALING_DYNAMIC)
        return fmax(length, (double)t->max_position_embeddings);
    return t->scaling == RP_SCALING_LONGROPE ? original + (length > original) : 0;
}

rp_status rp_rope_frequencies_sized(const rp_term *term, size_t term_size, double longest, const double *short_factor,
                                    const double *long_factor, double *frequency, double *factor)
{
    const double *stretch = NULL;
    rp_term copy;
    if (!term || !frequency || !factor)
        return rpi_fail(RP_E_ARG, "%s is NULL; pass a valid pointer",
                        !term        ? "term"
                        : !frequency ? "frequency"
                                     : "factor");
    rp_status status = rpi_term_take(&copy, term, term_size);
    if (status != RP_OK)
        return status;
    const rp_term *t = &copy;
    if (t->kind != RP_TERM_ROPE)
        return rpi_fail(RP_E_ARG, "term.kind is %d; it must be RP_TERM_ROPE", (int)t->kind);
    if ((status = check_params("term.", t, rope_params, false)) != RP_OK ||
        (status = rope_relations("term.", t, INT64_MAX)) != RP_OK)
        return status;
    if (isnan(longest))
        return rpi_fail(RP_E_RANGE, "longest is nan; it must be the largest position + 1");
    longest = rpi_rope_length(t, longest);
    if (t->scaling == RP_SCALING_LONGROPE) {
        const bool beyond = longest > (double)rope_original(t);
        stretch = beyond ? long_factor : short_factor;
        if (!stretch)
            return rpi_fail(RP_E_ARG, "%s_factor is NULL; pass this array, which scaling=longrope reads",
                            beyond ? "long" : "short");
        for (int64_t c = 0; c < t->dim / 2; c++)
            if (!(stretch[c] > 0 && stretch[c] < HUGE_VAL))
                return rpi_fail(RP_E_RANGE, "%s_factor[%lld] is %g; it must be finite and above 0",
                                beyond ? "long" : "short", (long long)c, stretch[c]);
    }
    double base = t->base;
    if (t->scaling == RP_SCALING_DYNAMIC) {
        const double trained = (double)t->max_position_embeddings, dim = (double)t->dim;
        base *= pow(t->factor * longest / trained - (t->factor - 1), dim / (dim - 2));
    }
    for (int64_t c = 0; c < t->dim / 2; c++) {
        const double own = pow(base, -2.0 * (double)c / (double)t->dim), divided = own / rope_longer(t);
        double kept = 1;
        switch (t->scaling) {
        case RP_SCALING_LINEAR: kept = 0; break;
        case RP_SCALING_YARN: kept = yarn_kept(t, c); break;
        case RP_SCALING_LLAMA3: kept = llama3_kept(t, own); break;
        default: break;
        }
        frequency[c] = stretch ? own / stretch[c] : kept == 1 ? own : divided * (1 - kept) + own * kept;
    }
    *factor = rope_factor(t);
    return RP_OK;
}

RPI_SCHEME(
    ROPE, .form = RPI_ROTATE,
    .facts = {.formula = "rotates the first dim channels of q and k by position",
              .about = "rotate q and k by position",
              .class_name = "RoPE",
              .shown = "R rotates pairs of channels of q and k by position",
              .samples = {"", "layout=interleaved,q_angles=given,k_angles=given", "frequencies=given",
                          "scaling=dynamic,factor=2,max_position_embeddings=40",
                          "scaling=yarn,factor=8,original_max_position_embeddings=32",
                          "scaling=llama3,factor=8,original_max_position_embeddings=64",
                          "scaling=longrope,factor=4,original_max_position_embeddings=64",
                          "scaling=dynamic,factor=4,max_position_embeddings=30,length=90"}},
    .array = {{"positions", RP_USE_POSITIONS, RP_REPLACES, .shape = "axes ? [B?, axes, L] : [B?, L]"},
              {"q_positions", RP_USE_POSITIONS, RP_REPLACES, .shape = "axes ? [B?, axes, Lq] : [B?, Lq]"},
              {"k_positions", RP_USE_POSITIONS, RP_REPLACES, .shape = "axes ? [B?, axes, Lk] : [B?, Lk]"},
              {"short_factor", RP_USE_CONSTANT, RP_CONDITIONAL, .shape = "scaling=longrope ? [dim/2] : none",
               .draw = {.rule = RP_RULE_UNIFORM, .a = 1, .b = 4}},
              {"long_factor", RP_USE_CONSTANT, RP_CONDITIONAL, .shape = "scaling=longrope ? [dim/2] : none",
               .draw = {.rule = RP_RULE_UNIFORM, .a = 1, .b = 4}},
              {"frequencies", .presence = RP_REPLACES, .shape = "axes ? [axes, Hk, dim/2] : [Hk?, dim/2]",
               .draw = {.rule = RP_RULE_UNIFORM, .a = 0.01, .b = 1}},
              {"angles", .presence = RP_REPLACES, .shape = "by_channel ? [B?, Hk?, L, dim] : [B?, Hk?, L, dim/2]",
               .draw = {.rule = RP_RULE_UNIFORM, .a = -4, .b = 4}},
              {"q_angles", .presence = RP_REPLACES, .shape = "by_channel ? [B?, Hk?, Lq, dim] : [B?, Hk?, Lq, dim/2]",
               .draw = {.rule = RP_RULE_UNIFORM, .a = -4, .b = 4}},
              {"k_angles", .presence = RP_REPLACES, .shape = "by_channel ? [B?, Hk?, Lk, dim] : [B?, Hk?, Lk, dim/2]",
               .draw = {.rule = RP_RULE_UNIFORM, .a = -4, .b = 4}}},
    .positions = 1, .params = rope_params, .sizes = rope_sizes, .check = rope_check, .check_arrays = rope_check_arrays)
