/* base/convert.c -- convert elements of any type to and from double, and between floating types. Independent of terms,
 * masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include "array.h"
#include "processor/clones.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* A 16-bit float format: bits of the fraction, bits of the exponent, and the smallest subnormal number (`unit`). */
typedef struct narrow {
    int fraction, exponent;
    double unit;
} narrow;
static const narrow half = {10, 5, 0x1p-24}, bfloat = {7, 8, 0x1p-133};

static double widen(uint16_t value, narrow f)
{
    const uint64_t sign = (uint64_t)(value >> 15) << 63;
    const int max_exponent = (1 << f.exponent) - 1, exponent = value >> f.fraction & max_exponent;
    const uint64_t fraction = value & ((1u << f.fraction) - 1);
    uint64_t bits;
    double result;
    if (exponent == 0) { /* zero and subnormal numbers */
        const double size = (double)fraction * f.unit;
        memcpy(&bits, &size, sizeof bits);
        bits |= sign;
    } else {
        const uint64_t wide = exponent == max_exponent ? 0x7ff : (uint64_t)(exponent - max_exponent / 2 + 1023);
        bits = sign | wide << 52 | fraction << (52 - f.fraction);
    }
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Round a double to nearest, ties to even. Converting to f32 first would round twice. */
static uint16_t narrowed(double value, narrow f)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 63 << 15);
    const int max_exponent = (1 << f.exponent) - 1;
    const unsigned infinity = (unsigned)max_exponent << f.fraction;
    const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    const int wide = (int)(bits >> 52 & 0x7ff);

    if (wide == 0x7ff && fraction != 0) /* NaN: keep the upper bits and make it quiet */
        return (uint16_t)(sign | infinity | 1u << (f.fraction - 1) | (unsigned)(fraction >> (52 - f.fraction)));
    const int exponent = wide - 1023 + max_exponent / 2;
    if (exponent >= max_exponent)
        return (uint16_t)(sign | infinity);
    int shift = 52 - f.fraction;
    if (exponent < 1)
        shift += 1 - exponent;
    if (wide == 0 || shift > 53) /* |value| is below half of the smallest subnormal number: 1.x * 2^52 < 2^(shift-1) */
        return sign;
    const uint64_t whole = fraction | UINT64_C(1) << 52;
    uint64_t kept = whole >> shift;
    const uint64_t rest = whole & ((UINT64_C(1) << shift) - 1), middle = UINT64_C(1) << (shift - 1);
    kept += rest > middle || (rest == middle && (kept & 1));
    /* kept includes the leading one, so adding it to exponent - 1 carries correctly, up to infinity. */
    if (exponent >= 1)
        kept += (uint64_t)(exponent - 1) << f.fraction;
    return (uint16_t)(sign | kept);
}

double rpi_value(const void *data, rp_dtype dtype, int64_t at)
{
    switch (dtype) {
    case RP_F32: return (double)((const float *)data)[at];
    case RP_F64: return ((const double *)data)[at];
    case RP_F16: return widen(((const uint16_t *)data)[at], half);
    case RP_BF16: return widen(((const uint16_t *)data)[at], bfloat);
    case RP_U64: return (double)((const uint64_t *)data)[at];
    default: return (double)rpi_integer(data, dtype, at);
    }
}

void rpi_put(void *data, rp_dtype dtype, int64_t at, double value)
{
    switch (dtype) {
    case RP_F32: ((float *)data)[at] = (float)value; break;
    case RP_F16: ((uint16_t *)data)[at] = narrowed(value, half); break;
    case RP_BF16: ((uint16_t *)data)[at] = narrowed(value, bfloat); break;
    default: ((double *)data)[at] = value;
    }
}

/* Convert n elements to f32, exactly unless they are f64. Subnormal halves are converted through integers, because
 * kernels treat numbers below 2^-126 as zero. */
void rpi_load_f32(float *to, const void *from, rp_dtype dtype, int64_t n)
{
    const uint16_t *h = from;
    for (int64_t x = 0; x < n; x++) {
        uint32_t bits;
        if (dtype == RP_F32) {
            to[x] = ((const float *)from)[x];
        } else if (dtype == RP_BF16) {
            bits = (uint32_t)h[x] << 16;
            memcpy(&to[x], &bits, sizeof bits);
        } else if (dtype == RP_F16 && (h[x] >> 10 & 31) != 0 && (h[x] >> 10 & 31) != 31) {
            bits = (uint32_t)(h[x] >> 15) << 31 | ((uint32_t)(h[x] & 0x7fff) + (112u << 10)) << 13;
            memcpy(&to[x], &bits, sizeof bits);
        } else {
            to[x] = (float)rpi_value(from, dtype, x);
        }
    }
}

typedef double eight __attribute__((vector_size(64)));
typedef float narrow_eight __attribute__((vector_size(32)));

void rpi_load_f64(double *to, const void *from, rp_dtype dtype, int64_t n)
{
    int64_t x = 0;
    for (; dtype == RP_F32 && x + 8 <= n; x += 8) {
        narrow_eight y;
        memcpy(&y, (const float *)from + x, sizeof y);
        const eight z = __builtin_convertvector(y, eight);
        memcpy(to + x, &z, sizeof z);
    }
    for (; x < n; x++)
        to[x] = rpi_value(from, dtype, x);
}

void rpi_store_f64(void *to, rp_dtype dtype, const double *from, int64_t n)
{
    int64_t x = 0;
    for (; dtype == RP_F32 && x + 8 <= n; x += 8) {
        eight y;
        memcpy(&y, from + x, sizeof y);
        const narrow_eight z = __builtin_convertvector(y, narrow_eight);
        memcpy((float *)to + x, &z, sizeof z);
    }
    for (; x < n; x++)
        rpi_put(to, dtype, x, from[x]);
}

/* Convert many f32 to bf16, for rp_convert. For NaN, set a fraction bit of the upper half: this makes it quiet, and
 * keeps it NaN even if its other fraction bits are in the lower half. */
RPI_CLONES static void narrow_f32(const float *restrict from, int64_t n, uint16_t *restrict to)
{
    for (int64_t x = 0; x < n; x++) {
        uint32_t bits;
        memcpy(&bits, from + x, sizeof bits);
        const uint32_t nan = (bits & 0x7fffffff) > 0x7f800000 ? 0xffffffff : 0;
        to[x] = (uint16_t)((((bits + 0x7fff + (bits >> 16 & 1)) & ~nan) | ((bits | 0x400000) & nan)) >> 16);
    }
}

RPI_CLONES static void widen_bf16(const uint16_t *restrict from, int64_t n, float *restrict to)
{
    for (int64_t x = 0; x < n; x++) {
        const uint32_t bits = (uint32_t)from[x] << 16;
        const uint32_t quiet = bits | ((bits & 0x7fffffff) > 0x7f800000 ? 0x400000 : 0);
        memcpy(to + x, &quiet, sizeof quiet);
    }
}

rp_status rp_convert(void *to, rp_dtype to_type, const void *from, rp_dtype from_type, int64_t n)
{
    if (!rpi_is_floating(to_type) || rp_dtype_size(from_type) == 0)
        return rpi_fail(RP_E_ARG, "convert: %s to %s is not supported; the target must be f32, f64, f16 or bf16",
                        rp_dtype_name(from_type), rp_dtype_name(to_type));
    if (to_type == from_type && n > 0)
        memcpy(to, from, (size_t)n * rp_dtype_size(to_type));
    else if (to_type == RP_BF16 && from_type == RP_F32)
        narrow_f32(from, n, to);
    else if (to_type == RP_F32 && from_type == RP_BF16)
        widen_bf16(from, n, to);
    else if (to_type != from_type)
        for (int64_t x = 0; x < n; x++)
            rpi_put(to, to_type, x, rpi_value(from, from_type, x));
    return RP_OK;
}

double rpi_row_norm(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t width)
{
    const char *row = rpi_row_of(v, b, h, j);
    enum { SUMS = 8 }; /* so that additions do not wait for each other */
    double x[64], sum[SUMS] = {0};
    for (int64_t x0 = 0; x0 < width; x0 += 64) {
        const int64_t n = width - x0 < 64 ? width - x0 : 64;
        if (rpi_is_transposed(v))
            for (int64_t c = 0; c < n; c++)
                x[c] = rpi_row_value(v, b, h, j, x0 + c);
        else
            rpi_load_f64(x, row + x0 * rpi_floating_size(v->dtype), v->dtype, n);
        int64_t c = 0;
        for (; c + SUMS <= n; c += SUMS)
            for (int s = 0; s < SUMS; s++)
                sum[s] += x[c + s] * x[c + s];
        for (; c < n; c++)
            sum[0] += x[c] * x[c];
    }
    for (int s = 1; s < SUMS; s++)
        sum[0] += sum[s];
    return sqrt(sum[0] + (double)width * DBL_MIN);
}
