/* terms/common.h -- what several schemes share: bounds of parameters, whole numbers of offsets. */

static rp_status check_finite(int32_t n, const char *field, double x)
{
    if (!isfinite(x))
        return rpi_fail(RP_E_RANGE, "terms[%d].%s is %g: a finite number", (int)n, field, x);
    return RP_OK;
}

/* A size the caller takes from an array: 0 says that it was forgotten; `of` names what to set it to. */
static rp_status check_size(int32_t n, const char *field, int64_t x, int64_t max, const char *of)
{
    if (x == 0)
        return rpi_fail(RP_E_RANGE, "terms[%d].%s is 0: set it to %s", (int)n, field, of);
    if (x < 0 || x > max)
        return rpi_fail(RP_E_RANGE, "terms[%d].%s is %lld: 1 to %lld, %s", (int)n, field, (long long)x, (long long)max,
                        of);
    return RP_OK;
}

/* A size left open takes the length of an axis, counted from the last; the array has it `per` times. */
static void take_size(int64_t *size, const rp_array *a, int32_t from_end, int64_t per)
{
    if (*size == 0 && a->data && a->ndim >= from_end && a->ndim <= RP_MAX_AXES)
        *size = a->shape[a->ndim - from_end] / per;
}

/* Truncated toward zero; what int64 does not hold saturates. */
static int64_t integer_of(double x)
{
    const double max = 0x1p62;
    return x >= max ? (int64_t)1 << 62 : x > -max ? (int64_t)x : -((int64_t)1 << 62);
}

/* Add g to the gradient of q_i. */
static void add_query(const rpi_sums *to, int64_t c, double g)
{
    if (to->q)
        to->q[c] += to->absolute ? fabs(g) : g;
}
