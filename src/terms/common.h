/* terms/common.h -- code shared by several schemes: check parameters, take sizes from arrays, truncate offsets.
 * SPDX-License-Identifier: Apache-2.0 */

/* Eight doubles; the compiler maps them to the vectors of the target. */
typedef double eight_doubles __attribute__((vector_size(64), aligned(8), may_alias));

/* Print a bound. Print a power of two above 2^15 like "2^40". */
static const char *bound_text(char text[32], double bound)
{
    int exponent;
    if (frexp(bound, &exponent) == 0.5 && exponent > 16)
        snprintf(text, 32, "2^%d", exponent - 1);
    else
        snprintf(text, 32, "%.17g", bound);
    return text;
}

static rp_status check_choice(const char *what, const rp_param *p, int64_t value)
{
    char list[160] = "0 or 1";
    int last = 1;
    if (p->type == RP_PARAM_SIGN)
        return value == 1 || value == -1
                   ? RP_OK
                   : rpi_fail(RP_E_RANGE, "%s%s is %lld; it must be 1 or -1", what, p->field, (long long)value);
    for (int n = 0, used = 0; p->choices && p->choices[n] && used < (int)sizeof list; last = n++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%d (%s)", n ? ", " : "", n, p->choices[n]);
    return value >= 0 && value <= last ? RP_OK
                                       : rpi_fail(p->choices ? RP_E_ARG : RP_E_RANGE, "%s%s is %lld; it must be %s%s",
                                                  what, p->field, (long long)value, p->choices ? "one of " : "", list);
}

static rp_status check_number(const char *what, const rp_param *p, const char *field, double value)
{
    const bool bounded = p->min != 0 || p->max != 0;
    char min[32], max[32];
    if (!isfinite(value))
        return rpi_fail(RP_E_RANGE, "%s%s is %g; it must be a finite number", what, field, value);
    if (value == 0 && p->unset && value < p->min) /* unset, and nothing has determined it */
        return rpi_fail(RP_E_RANGE, "%s%s is 0; set it to %s (%s)", what, field, p->unset, p->meaning);
    if (p->above_min && !(value > p->min && (!bounded || value <= p->max)))
        return rpi_fail(RP_E_RANGE, "%s%s is %.17g; it must be above %s%s%s (%s)", what, field, value,
                        bound_text(min, p->min), bounded ? " and at most " : "", bounded ? bound_text(max, p->max) : "",
                        p->meaning);
    if (bounded && !(value >= p->min && value <= p->max))
        return rpi_fail(RP_E_RANGE, "%s%s is %.17g; it must be %s to %s (%s)", what, field, value,
                        bound_text(min, p->min), bound_text(max, p->max), p->meaning);
    return RP_OK;
}

/* Check every parameter against its bounds. If `open` is set, a parameter with rp_param.unset may still be 0. `what` is
 * the prefix of field names in messages, such as "terms[0].". */
static rp_status check_params(const char *what, const rp_term *t, const rp_param *params, bool open)
{
    rp_status status = RP_OK;
    for (const rp_param *p = params; status == RP_OK && p && p->key; p++) {
        if (open && p->unset && rp_param_number(t, p, 0) == 0)
            continue;
        if (p->type == RP_PARAM_FLAG || p->type == RP_PARAM_CHOICE || p->type == RP_PARAM_SIGN)
            status = check_choice(what, p, rp_param_integer(t, p, 0));
        else if (p->type == RP_PARAM_GRID)
            for (int x = 0; status == RP_OK && x < 2; x++)
                status = check_number(what, p, x ? "grid_w" : "grid_h", rp_param_number(t, p, x));
        else
            status = check_number(what, p, p->field, rp_param_number(t, p, 0));
    }
    return status;
}

/* If *size is unset (0), set it to the length of an axis of the array, divided by `per`. from_end = 1 is the last
 * axis. */
static void take_size(int64_t *size, const rp_array *a, int32_t from_end, int64_t per)
{
    if (*size == 0 && a->data && a->ndim >= from_end && a->ndim <= RP_MAX_AXES)
        *size = a->shape[a->ndim - from_end] / per;
}

/* Truncate toward zero, and limit the result to -2^62 … 2^62. */
static int64_t integer_of(double x)
{
    const double max = 0x1p62;
    return x >= max ? (int64_t)1 << 62 : x > -max ? (int64_t)x : -((int64_t)1 << 62);
}

/* Add g to channel c of the gradient of q_i, as rpi_add does for arrays. */
static void add_query(const rpi_sums *to, int64_t c, double g)
{
    if (to->q && to->along)
        *to->along += g * to->q[c];
    else if (to->q)
        to->q[c] += to->absolute ? fabs(g) : g;
}
