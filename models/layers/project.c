/* project.c -- the arithmetic of layers in one type: projections, sums and random numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"
#include "layers/normal.h"
#include "layers/numeric.h"
#include <string.h>

static void project(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const void *x, const void *w, bool transposed,
                    const void *bias, void *y)
{
    for (int64_t r = 0; bias && r < rows; r++)
        memcpy((real *)y + r * out, bias, (size_t)out * sizeof(real));
    layers_matmul(pool, LAYERS_NO_TRANS, transposed ? LAYERS_NO_TRANS : LAYERS_TRANS, rows, out, in, x, in, w,
                  transposed ? out : in, bias ? 1 : 0, y, out);
}

static void project_dx(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const void *dy, const void *w,
                       bool transposed, bool add, void *dx)
{
    layers_matmul(pool, LAYERS_NO_TRANS, transposed ? LAYERS_TRANS : LAYERS_NO_TRANS, rows, in, out, dy, out, w,
                  transposed ? out : in, add ? 1 : 0, dx, in);
}

static void project_dw(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const void *x, const void *dy,
                       bool transposed, void *dw, void *dbias)
{
    if (transposed)
        layers_matmul(pool, LAYERS_TRANS, LAYERS_NO_TRANS, in, out, rows, x, in, dy, out, 1, dw, out);
    else
        layers_linear_dw(pool, rows, in, out, dy, out, x, in, dw);
    for (int64_t r = 0; dbias && r < rows; r++)
        for (int64_t c = 0; c < out; c++)
            ((real *)dbias)[c] += ((const real *)dy)[r * out + c];
}

static void add(int64_t n, double factor, const void *x, void *y)
{
    for (int64_t i = 0; i < n; i++)
        ((real *)y)[i] += (real)factor * ((const real *)x)[i];
}

static void set(int64_t n, uint64_t seed, uint64_t stream, double deviation, void *x)
{
    for (int64_t i = 0; i < n; i++)
        ((real *)x)[i] = (real)(deviation * layers_normal(seed, stream, (uint64_t)i));
}

static void mean(int64_t batch, int64_t heads, int64_t n, const void *x, void *y)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < n; i++) {
            real sum = 0;
            for (int64_t h = 0; h < heads; h++)
                sum += ((const real *)x)[(b * heads + h) * n + i];
            ((real *)y)[b * n + i] = sum / (real)heads;
        }
}

const layers_ops LAYERS_TYPED(layers_ops) = {sizeof(real), project, project_dx, project_dw, add, set, mean};
