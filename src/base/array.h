/* base/array.h -- the arrays of a call as checked views, and their elements as numbers.
 * It may not know terms, masks or calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ARRAY_H
#define RELPOS_ARRAY_H
#include "error.h"
#include "integer.h"
#include <float.h>
#include <stdbool.h>

/* An array whose shape was checked: one stride for each axis of the shape that was asked for, 0 where it broadcasts. */
typedef struct rpi_view {
    void *data; /* NULL: absent */
    rp_dtype dtype;
    int64_t stride[RP_MAX_AXES];
    int64_t len[RP_MAX_AXES]; /* 1 where it broadcasts, and past the last axis */
    const void *const *page;  /* of k and v in pages: [B][per_batch], of page_keys keys each; NULL: none */
    int64_t page_keys, per_batch;
} rpi_view;

/* The shape an array should have. Axes whose bit is set in `ones` may be 1; an array may leave out leading axes down to
 * min_ndim, as NumPy broadcasts. */
typedef struct rpi_shape {
    int32_t ndim, min_ndim;
    uint32_t ones;
    int64_t n[RP_MAX_AXES];
} rpi_shape;

typedef enum rpi_class { RPI_FLOATS, RPI_INTEGERS, RPI_NUMBERS } rpi_class;

/* Check an array against a shape and describe it; `what` names it in errors, such as "term[0].table". */
rp_status rpi_view_of(rpi_view *view, const rp_array *a, const rpi_shape *shape, rpi_class cls, const char *what);

/* A bias rounded to the arithmetic, whose numbers have `real` bytes: a finite one stays finite, because only -infinity
 * masks. */
static inline double rpi_round_bias(double x, int64_t real)
{
    if (real == 8)
        return x;
    return x < -FLT_MAX && x > -HUGE_VAL ? -FLT_MAX : x > FLT_MAX && x < HUGE_VAL ? FLT_MAX : (double)(float)x;
}

/* A sum of biases: -infinity masks, whatever it is added to, and finite biases never make one. */
static inline double rpi_bias_sum(double a, double b)
{
    const double sum = a + b;
    if (a == -HUGE_VAL || b == -HUGE_VAL)
        return -HUGE_VAL;
    return isinf(sum) && isfinite(a) && isfinite(b) ? copysign(DBL_MAX, sum) : sum;
}

/* The element at byte level: any type, as double, as truth, as an integer. */
double rpi_value(const void *data, rp_dtype dtype, int64_t at);
bool rpi_truth(const void *data, rp_dtype dtype, int64_t at);
int64_t rpi_integer(const void *data, rp_dtype dtype, int64_t at);
void rpi_put(void *data, rp_dtype dtype, int64_t at, double value); /* a floating type, rounded once */
bool rpi_is_floating(rp_dtype dtype);
void rpi_load_f32(float *to, const void *from, rp_dtype dtype, int64_t n); /* rows of a floating type */
void rpi_load_f64(double *to, const void *from, rp_dtype dtype, int64_t n);
void rpi_store_f64(void *to, rp_dtype dtype, const double *from, int64_t n);

static inline int64_t rpi_index(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * v->stride[0] + b * v->stride[1] + c * v->stride[2] + d * v->stride[3];
}

/* Bytes of an element of q, k, v and out. */
static inline int64_t rpi_floating_size(rp_dtype dtype)
{
    return dtype == RP_F64 ? 8 : dtype == RP_F32 ? 4 : 2;
}

/* Whether the channels of a row lie `stride[3]` elements apart, and those of neighbouring rows side by side: keys as
 * [channels][keys]. The rows of every other array of a call are contiguous. */
static inline bool rpi_is_turned(const rpi_view *v)
{
    return v->stride[3] != 1;
}

/* Where row j of head h of k or v begins. */
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

/* The element [b, h, j, x] of k or v, in pages too. */
static inline double rpi_row_value(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t x)
{
    return rpi_value(rpi_row_of(v, b, h, j), v->dtype, x * v->stride[3]);
}

/* A number that the norm of a row does not exceed; infinite or NaN where that is. */
double rpi_row_norm(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t width);

/* The element [a, b, c, d] of a view, as double. */
static inline double rpi_at(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t at = rpi_index(v, a, b, c, d);
    return v->dtype == RP_F64 ? ((const double *)v->data)[at] : rpi_value(v->data, v->dtype, at);
}

#endif
