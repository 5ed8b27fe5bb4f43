/* base/array.h -- the arrays of a call as checked views, and access to their elements. Independent of terms, masks and
 * calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ARRAY_H
#define RELPOS_ARRAY_H
#include "error.h"
#include "integer.h"
#include <float.h>
#include <stdbool.h>

/* An array whose shape has been checked. It has one stride for each axis of the required shape, 0 on axes that
 * broadcast. */
typedef struct rpi_view {
    void *data; /* NULL: absent */
    rp_dtype dtype;
    int64_t stride[RP_MAX_AXES];
    int64_t len[RP_MAX_AXES]; /* 1 on axes that broadcast and past the last axis */
    const void *const *page;  /* k and v in pages: [B][per_batch] pages of page_keys keys; else NULL */
    int64_t page_keys, per_batch;
    /* gradients and tangents of terms' arrays: each batch entry has an array of its own, sample_step elements apart */
    bool per_sample;
    int64_t sample_step; /* 0 if per_sample is not set */
} rpi_view;

/* A required shape. Axes whose bit is set in `ones` may have length 1. An array may omit leading axes as in NumPy
 * broadcasting, but needs at least min_ndim axes. */
typedef struct rpi_shape {
    int32_t ndim, min_ndim;
    uint32_t ones;
    bool batch; /* the first axis is that of the batch; set for arrays of terms */
    int64_t n[RP_MAX_AXES];
} rpi_shape;

typedef enum rpi_class { RPI_FLOATS, RPI_INTEGERS, RPI_NUMBERS } rpi_class;

/* Check an array against a shape and make a view of it. `what` is its name in errors, such as "term[0].table". */
rp_status rpi_view_of(rpi_view *view, const rp_array *a, const rpi_shape *shape, rpi_class cls, const char *what);

/* Round a bias to the arithmetic type, which has `real` bytes. A finite bias stays finite, because -infinity would
 * mask. */
static inline double rpi_round_bias(double x, int64_t real)
{
    if (real == 8)
        return x;
    return x < -FLT_MAX && x > -HUGE_VAL ? -FLT_MAX : x > FLT_MAX && x < HUGE_VAL ? FLT_MAX : (double)(float)x;
}

/* Add two biases. If either is -infinity, so is the sum; the sum of finite biases stays finite. */
static inline double rpi_bias_sum(double a, double b)
{
    const double sum = a + b;
    if (a == -HUGE_VAL || b == -HUGE_VAL)
        return -HUGE_VAL;
    return isinf(sum) && isfinite(a) && isfinite(b) ? copysign(DBL_MAX, sum) : sum;
}

/* Return element `at` of an array of any type as double, as bool, or as integer. */
double rpi_value(const void *data, rp_dtype dtype, int64_t at);
bool rpi_truth(const void *data, rp_dtype dtype, int64_t at);
int64_t rpi_integer(const void *data, rp_dtype dtype, int64_t at);
void rpi_integers(int64_t *to, const rpi_view *v, int64_t at, int64_t n); /* n elements of the last axis from `at` on */
void rpi_put(void *data, rp_dtype dtype, int64_t at, double value);       /* round to a floating type and store */
bool rpi_is_floating(rp_dtype dtype);
void rpi_load_f32(float *to, const void *from, rp_dtype dtype, int64_t n); /* convert n elements of a floating type */
void rpi_load_f64(double *to, const void *from, rp_dtype dtype, int64_t n);
void rpi_store_f64(void *to, rp_dtype dtype, const double *from, int64_t n);

static inline int64_t rpi_index(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * v->stride[0] + b * v->stride[1] + c * v->stride[2] + d * v->stride[3];
}

/* Return the bytes of an element of a floating type. */
static inline int64_t rpi_floating_size(rp_dtype dtype)
{
    return dtype == RP_F64 ? (int64_t)sizeof(double) : dtype == RP_F32 ? 4 : 2;
}

/* Return the view of batch entry b of a gradient or tangent; the view itself if all entries share it. */
static inline rpi_view rpi_sample(const rpi_view *v, int64_t b)
{
    rpi_view one = *v;
    if (v->per_sample)
        one.data = (char *)v->data + b * v->sample_step * rpi_floating_size(v->dtype);
    return one;
}

/* Return true for keys stored as [channels][keys]: the channels of a row are stride[3] elements apart, and rows are
 * adjacent. In all other arrays of a call, rows are contiguous. */
static inline bool rpi_is_transposed(const rpi_view *v)
{
    return v->stride[3] != 1;
}

/* Return the address of row j of head h of batch entry b. The rows may be in pages. */
static inline const void *rpi_row_of(const rpi_view *v, int64_t b, int64_t h, int64_t j)
{
    const char *base = v->data;
    int64_t at;
    if (v->page) {
        base = v->page[b * v->per_batch + j / v->page_keys];
        at = h * v->stride[1] + j % v->page_keys * v->stride[2];
    } else {
        at = rpi_index(v, b, h, j, 0);
    }
    return base + at * rpi_floating_size(v->dtype);
}

/* Return element [b, h, j, x] of k or v, which may be in pages. */
static inline double rpi_row_value(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t x)
{
    return rpi_value(rpi_row_of(v, b, h, j), v->dtype, x * v->stride[3]);
}

/* Return an upper bound of the norm of a row, infinity or NaN if the norm is. */
double rpi_row_norm(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t width);

/* Return element [a, b, c, d] of a view as double. */
static inline double rpi_at(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t at = rpi_index(v, a, b, c, d);
    return v->dtype == RP_F32   ? (double)((const float *)v->data)[at]
           : v->dtype == RP_F64 ? ((const double *)v->data)[at]
                                : rpi_value(v->data, v->dtype, at);
}

/* Return element [a, b, c, d] of a view, or 0 if the array is absent. */
static inline double rpi_at_or_0(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return v->data ? rpi_at(v, a, b, c, d) : 0;
}

#endif
