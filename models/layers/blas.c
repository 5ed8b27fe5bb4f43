/* blas.c -- lets a program replace the plain matrix products.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"

extern rp_sgemm *layers_multiply_f32, layers_plain_f32;
extern rp_dgemm *layers_multiply_f64, layers_plain_f64;

void rp_layers_use_blas(rp_sgemm *sgemm, rp_dgemm *dgemm)
{
    layers_multiply_f32 = sgemm ? sgemm : layers_plain_f32;
    layers_multiply_f64 = dgemm ? dgemm : layers_plain_f64;
}
