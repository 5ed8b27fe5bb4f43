/* base/array.c -- element types, and checks of arrays against a required shape. Independent of terms, masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include "array.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t size;
    bool floating;
} types[] = {
    [RP_F32] = {"f32", 4, true},    [RP_F64] = {"f64", sizeof(double), true},
    [RP_F16] = {"f16", 2, true},    [RP_BF16] = {"bf16", 2, true},
    [RP_BOOL] = {"bool", 1, false}, [RP_U8] = {"u8", 1, false},
    [RP_I8] = {"i8", 1, false},     [RP_U16] = {"u16", 2, false},
    [RP_I16] = {"i16", 2, false},   [RP_U32] = {"u32", 4, false},
    [RP_I32] = {"i32", 4, false},   [RP_U64] = {"u64", 8, false},
    [RP_I64] = {"i64", 8, false},
};

static bool is_type(rp_dtype dtype)
{
    return (unsigned)dtype < sizeof types / sizeof *types;
}

bool rpi_is_floating(rp_dtype dtype)
{
    return is_type(dtype) && types[dtype].floating;
}

size_t rp_dtype_size(rp_dtype dtype)
{
    return is_type(dtype) ? types[dtype].size : 0;
}

const char *rp_dtype_name(rp_dtype dtype)
{
    return is_type(dtype) ? types[dtype].name : "?";
}

/* Format a shape for messages: "(2, 3)". */
static const char *shape_text(char *buf, size_t size, int32_t ndim, const int64_t *n)
{
    size_t used = (size_t)snprintf(buf, size, "(");
    for (int32_t x = 0; x < ndim && used < size; x++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", x ? ", " : "", (long long)n[x]);
    if (used < size)
        snprintf(buf + used, size - used, ")");
    return buf;
}

/* Write what lengths a shape allows other than its own: those that broadcast, on all axes or on some. */
static const char *broadcasts_text(char *buf, size_t size, const rpi_shape *shape)
{
    size_t used = 0;
    bool all = true;
    *buf = '\0';
    for (int32_t x = 0; x < shape->ndim; x++)
        all = all && (shape->n[x] == 1 || (shape->ones >> x & 1));
    if (all && shape->ndim > 0)
        return ", or one that broadcasts to it";
    for (int32_t x = 0; x < shape->ndim && used < size; x++)
        if (shape->n[x] != 1 && (shape->ones >> x & 1))
            used += (size_t)snprintf(buf + used, size - used, "%s %d", used ? "," : ", or 1 on axis", (int)x);
    if (shape->min_ndim < shape->ndim && used < size)
        snprintf(buf + used, size - used, ", without the first %d or fewer", (int)(shape->ndim - shape->min_ndim));
    return buf;
}

/* Return true if length n is allowed for axis x of the required shape. */
static bool axis_fits(const rpi_shape *shape, int32_t x, int64_t n)
{
    return n == shape->n[x] || (n == 1 && (shape->ones >> x & 1));
}

rp_status rpi_view_of(rpi_view *view, const rp_array *a, const rpi_shape *shape, rpi_class cls, const char *what)
{
    char got[128], want[128], more[128];
    int64_t size = 1, reach = 0;
    memset(view, 0, sizeof *view);
    if (!is_type(a->dtype))
        return rpi_fail(RP_E_ARG, "%s: dtype is %d; it must be a value of rp_dtype", what, (int)a->dtype);
    if (cls == RPI_FLOATS && !types[a->dtype].floating)
        return rpi_fail(RP_E_ARG, "%s: dtype is %s; it must be f32, f64, f16 or bf16", what, rp_dtype_name(a->dtype));
    if (cls == RPI_INTEGERS && types[a->dtype].floating)
        return rpi_fail(RP_E_ARG, "%s: dtype is %s; it must be bool or an integer type", what, rp_dtype_name(a->dtype));
    if (a->ndim < 0 || a->ndim > RP_MAX_AXES)
        return rpi_fail(RP_E_SHAPE, "%s: the number of axes is %d; it must be 0 to %d", what, (int)a->ndim,
                        RP_MAX_AXES);
    for (int32_t x = 0; x < RP_MAX_AXES; x++)
        view->len[x] = 1;
    bool fits = a->ndim >= shape->min_ndim && a->ndim <= shape->ndim;
    for (int32_t x = 0; fits && x < a->ndim; x++)
        fits = axis_fits(shape, shape->ndim - a->ndim + x, a->shape[x]);
    if (!fits)
        return rpi_fail(
            RP_E_SHAPE, "%s: shape is %s; it must be %s%s", what, shape_text(got, sizeof got, a->ndim, a->shape),
            shape_text(want, sizeof want, shape->ndim, shape->n), broadcasts_text(more, sizeof more, shape));
    for (int32_t x = 0; x < a->ndim; x++) {
        int64_t step = a->shape[x] > 1 ? a->stride[x] : 0, span; /* the stride of a single element is never used */
        if (!rpi_mul(size, a->shape[x], (int64_t)rp_dtype_size(a->dtype), &span) || step == INT64_MIN ||
            !rpi_mul(rpi_max(a->shape[x] - 1, 0), step < 0 ? -step : step, (int64_t)rp_dtype_size(a->dtype), &span) ||
            __builtin_add_overflow(reach, span, &reach))
            return rpi_fail(
                RP_E_OVERFLOW,
                "%s: shape %s with stride %lld on axis %d does not fit in 63 bits; use smaller sizes or strides", what,
                shape_text(got, sizeof got, a->ndim, a->shape), (long long)step, (int)x);
        size *= a->shape[x];
        view->len[shape->ndim - a->ndim + x] = a->shape[x];
        if (a->shape[x] > 1)
            view->stride[shape->ndim - a->ndim + x] = step;
    }
    if (size > 0 && (uintptr_t)a->data % rp_dtype_size(a->dtype) != 0)
        return rpi_fail(RP_E_ARG, "%s: the address is not a multiple of %zu, the size of %s; align it", what,
                        rp_dtype_size(a->dtype), rp_dtype_name(a->dtype));
    view->data = a->data;
    view->dtype = a->dtype;
    return RP_OK;
}

void rpi_integers(int64_t *to, const rpi_view *v, int64_t at, int64_t n)
{
    const int64_t step = v->stride[3];
#define EACH(T)                                                                                                        \
    for (int64_t x = 0; x < n; x++)                                                                                    \
        to[x] = ((const T *)v->data)[at + x * step];                                                                   \
    return
    switch (v->dtype) { /* a loop for each type that indices usually have */
    case RP_U8: EACH(uint8_t);
    case RP_U16: EACH(uint16_t);
    case RP_I32: EACH(int32_t);
    case RP_I64: EACH(int64_t);
    default:
        for (int64_t x = 0; x < n; x++)
            to[x] = rpi_integer(v->data, v->dtype, at + x * step);
    }
#undef EACH
}

bool rpi_truth(const void *data, rp_dtype dtype, int64_t at)
{
    switch (rp_dtype_size(dtype)) {
    case 1: return ((const uint8_t *)data)[at] != 0;
    case 2: return ((const uint16_t *)data)[at] != 0;
    case 4: return ((const uint32_t *)data)[at] != 0;
    default: return ((const uint64_t *)data)[at] != 0;
    }
}

int64_t rpi_integer(const void *data, rp_dtype dtype, int64_t at)
{
    switch (dtype) {
    case RP_I8: return ((const int8_t *)data)[at];
    case RP_U16: return ((const uint16_t *)data)[at];
    case RP_I16: return ((const int16_t *)data)[at];
    case RP_U32: return ((const uint32_t *)data)[at];
    case RP_I32: return ((const int32_t *)data)[at];
    case RP_U64: return (int64_t)((const uint64_t *)data)[at]; /* 2^63 and above become negative */
    case RP_I64: return ((const int64_t *)data)[at];
    default: return ((const uint8_t *)data)[at];
    }
}
