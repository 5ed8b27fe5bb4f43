/* example.h -- attention of one head on a few tokens, computed by the public interface and by plain loops.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_EXAMPLE_H
#define RELPOS_TESTS_EXAMPLE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "relpos/relpos.h"

#define TINY           1e-12                          /* for f64: a few roundings of numbers near 1 */
#define HALF(decimals) (0.5 * pow(10.0, -(decimals))) /* half a unit of the last printed digit */
#define F32            1e-6                           /* additional error in f32: about 8 roundings of numbers near 1 */
#define PI             3.14159265358979323846

enum { MOST = 8 }; /* max tokens and max channels of an example */

/* Print the largest |got - want| of n numbers and the tolerance. Fail if it exceeds the tolerance. */
static void near(const char *what, const double *got, const double *want, size_t n, double tolerance)
{
    double worst = 0.0;
    size_t at = 0;
    for (size_t x = 0; x < n; x++) {
        const double error = fabs(got[x] - want[x]);
        if (!(error <= worst)) { /* NaN is treated as the largest error */
            worst = error;
            at = x;
        }
    }
    print_message("%-52s error %.3g at %zu, tolerance %.3g\n", what, worst, at, tolerance);
    if (!(worst <= tolerance))
        fail_msg("%s: [%zu] is %.17g, not %.17g", what, at, got[at], want[at]);
}

static void good(rp_status status)
{
    if (status != RP_OK)
        fail_msg("%s: %s", rp_status_name(status), rp_last_error());
}

/* Attention of one head on n tokens. Arrays are f64; they are converted if a call needs f32. */
struct example {
    int64_t lq, lk, dk, dv;
    const double *q, *k, *v;
    rp_term terms[2];
    const double *array[2]; /* first array of each term, or NULL */
    int32_t n_terms;
    rp_mask masks[1];
    int32_t n_masks;
    double scale;
    int64_t q_offset;
};

struct result {
    double raw[MOST * MOST], scaled[MOST * MOST], bias[MOST * MOST], score[MOST * MOST]; /* from rp_attend_row */
    double row_weights[MOST * MOST], row_out[MOST * MOST];
    double weights[MOST * MOST], out[MOST * MOST], profile[2 * MOST - 1]; /* from rp_attend */
    double only_bias[MOST * MOST];                                        /* from rp_bias */
};

static struct example example_of(const double *q, const double *k, const double *v, int64_t length, int64_t dim)
{
    struct example e;
    memset(&e, 0, sizeof e);
    e.lq = e.lk = length;
    e.dk = e.dv = dim;
    e.q = q;
    e.k = k;
    e.v = v;
    e.scale = RP_SCALE_AUTO;
    return e;
}

static void example_add(struct example *e, rp_term term, const double *array)
{
    e->terms[e->n_terms] = term;
    e->array[e->n_terms++] = array;
}

/* Convert n numbers to dtype, store them at `room`, and return them as an array. */
static rp_array array_of(const double *from, void *room, rp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int32_t x = 0; x < ndim; x++)
        n *= shape[x];
    assert_true(n <= 2 * MOST * MOST);
    for (int64_t x = 0; from && x < n; x++) {
        if (dtype == RP_F32)
            ((float *)room)[x] = (float)from[x];
        else
            ((double *)room)[x] = from[x];
    }
    return rp_array_of(room, dtype, ndim, shape);
}

/* Convert back to f64. */
static void back(double *to, const void *from, rp_dtype dtype, int64_t n)
{
    for (int64_t x = 0; x < n; x++)
        to[x] = dtype == RP_F32 ? (double)((const float *)from)[x] : ((const double *)from)[x];
}

/* Run an example: rp_attend in `dtype`, and in f64 the trace of every row and the biases. */
static void run(const struct example *e, rp_dtype dtype, struct result *r)
{
    double room[10][2 * MOST * MOST];
    rp_desc d = rp_desc_init(1, 1, e->lq, e->lk, e->dk);
    rp_tensors t = rp_tensors_init();
    rp_plan *plan = NULL;
    const int64_t q_shape[4] = {1, 1, e->lq, e->dk}, k_shape[4] = {1, 1, e->lk, e->dk};
    const int64_t v_shape[4] = {1, 1, e->lk, e->dv}, out_shape[4] = {1, 1, e->lq, e->dv};
    const int64_t w_shape[4] = {1, 1, e->lq, e->lk}, profile_shape[3] = {1, 1, e->lq + e->lk - 1};
    const int64_t bias_shape[3] = {1, e->lq, e->lk};
    memset(r, 0, sizeof *r);
    d.dim_v = e->dv;
    d.dtype = dtype;
    d.scale = e->scale;
    d.q_offset = e->q_offset;
    d.terms = e->terms;
    d.n_terms = e->n_terms;
    d.masks = e->masks;
    d.n_masks = e->n_masks;
    good(rp_plan_create(&plan, &d));
    t.q = array_of(e->q, room[0], dtype, 4, q_shape);
    t.k = array_of(e->k, room[1], dtype, 4, k_shape);
    t.v = array_of(e->v, room[2], dtype, 4, v_shape);
    t.out = array_of(NULL, room[3], dtype, 4, out_shape);
    t.weights = array_of(NULL, room[4], dtype, 4, w_shape);
    t.profile = array_of(NULL, room[5], dtype, 3, profile_shape);
    for (int32_t n = 0; n < e->n_terms; n++) {
        int64_t shape[RP_MAX_AXES];
        int32_t ndim = 0;
        if (!e->array[n])
            continue;
        good(rp_term_shape(&d, n, 0, &ndim, shape));
        t.term[n][0] = array_of(e->array[n], room[6 + n], dtype, ndim, shape);
    }
    good(rp_attend(plan, &t, NULL));
    back(r->out, room[3], dtype, e->lq * e->dv);
    back(r->weights, room[4], dtype, e->lq * e->lk);
    back(r->profile, room[5], dtype, e->lq + e->lk - 1);
    for (int64_t i = 0; i < e->lq; i++) {
        rp_row row = {.raw = r->raw + i * e->lk,
                      .scaled = r->scaled + i * e->lk,
                      .bias = r->bias + i * e->lk,
                      .score = r->score + i * e->lk,
                      .weights = r->row_weights + i * e->lk,
                      .out = r->row_out + i * e->dv};
        good(rp_attend_row(plan, &t, 0, 0, i, &row));
    }
    rp_array bias = rp_array_of(r->only_bias, RP_F64, 3, bias_shape);
    good(rp_bias(plan, &t, 0, &bias));
    rp_plan_destroy(plan);
}

/* Compute weights = softmax of each row of `score`. */
static void plain_softmax(const double *score, double *weights, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++) {
        double top = -HUGE_VAL, sum = 0.0;
        for (int64_t j = 0; j < columns; j++)
            top = fmax(top, score[i * columns + j]);
        for (int64_t j = 0; j < columns; j++)
            sum += weights[i * columns + j] = exp(score[i * columns + j] - top);
        for (int64_t j = 0; j < columns; j++)
            weights[i * columns + j] /= sum;
    }
}

static double plain_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t d = 0; d < n; d++)
        sum += a[d] * b[d];
    return sum;
}

static int64_t plain_clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

static rp_term term_of(rp_term_kind kind, int64_t left, int64_t right)
{
    rp_term t = rp_term_init(kind);
    t.left = left;
    t.right = right;
    return t;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
