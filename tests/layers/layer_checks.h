/* layer_checks.h -- helpers of the tests of layers: arrays of files and of random numbers, and errors with bounds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_LAYER_CHECKS_H
#define RELPOS_TESTS_LAYER_CHECKS_H
#include "io/io.h"
#include "tests/helpers.h"
#include <relpos/layers.h>

HELPER void fine(rp_status status)
{
    if (status != RP_OK)
        fail_msg("%s: %s", rp_status_name(status), rp_layer_last_error());
}

HELPER rp_layer *layer_of(rp_layer_desc d)
{
    rp_layer *layer;
    fine(rp_layer_create(&layer, &d));
    return layer;
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})
/* Return an array of zeros with the given axes, freed with the problem p. */
#define ZEROS(p, type, ...)                                                                                            \
    array_in(p, type, (int32_t)(sizeof SHAPE(__VA_ARGS__) / sizeof(int64_t)), SHAPE(__VA_ARGS__))

/* Fill an array with normal numbers. */
HELPER void fill_normal(const rp_array *a, uint64_t *state)
{
    const rp_values normal = {RP_RULE_NORMAL, 1, 0, NULL};
    for (int64_t x = 0; x < problem_size(a); x++)
        set(a, x, problem_number(&normal, NULL, 1, state));
}

HELPER rp_array normal_like(problem *p, const rp_array *shape, uint64_t *state)
{
    rp_array a = array_in(p, shape->dtype, shape->ndim, shape->shape);
    fill_normal(&a, state);
    return a;
}

/* Return a weight as an array. */
HELPER rp_array data_of(const rp_layer_desc *d, const rp_layer_param *w)
{
    return rp_array_of(w->data, d->dtype, w->ndim, w->shape);
}

HELPER rp_array grad_of(const rp_layer_desc *d, const rp_layer_param *w)
{
    return rp_array_of(w->grad, d->dtype, w->ndim, w->shape);
}

/* Loop with w = each weight of a layer. */
#define EACH_PARAM(layer, w)                                                                                           \
    for (int w##_n = 0; w##_n >= 0; w##_n = -1)                                                                        \
        for (rp_layer_param * w; ((w) = rp_layer_param_at(layer, w##_n)) != NULL; w##_n++)

#endif
