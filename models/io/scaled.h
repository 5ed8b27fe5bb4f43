/* scaled.h -- scales of 8-bit floats, as text encoders of image models are published: tensors beside X.weight.
 *
 *     X.weight_scale, X.scale_weight   the scale: one number, one for each row, or one for each block
 *     X.input_scale, X.scale_input     a scale of the layer's inputs, for products of 8-bit floats; not used here
 *     X.comfy_quant                    bytes of JSON with the format; also in the metadata "_quantization_metadata"
 *     scaled_fp8                       says that all 8-bit floats have scales
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_SCALED_H
#define RELPOS_IO_SCALED_H

#include "io/checkpoint.h"

/* What belongs to a tensor besides its data: its scales, or the reason why it cannot be used. */
struct io_scales {
    io_scales *next; /* in the list of the checkpoint */
    char *why;
    int64_t rows, columns, across; /* of a block; blocks side by side */
    int64_t n;
    float values[]; /* [n] row by row */
};

/* Give each tensor its scales, and remove the tensors of scales from the list, which is sorted by name. A weight is
 * marked as unusable if its format is not supported, or if its type or the mark scaled_fp8 contradict its scale.
 * `metadata` may be NULL. The caller frees *made with io_scales_free. */
io_status io_scales_find(io_tensor *tensors, size_t *n, const char *metadata, io_scales **made, const char *path,
                         char err[IO_ERR_MAX]);
/* Multiply elements first … first + n - 1 of a tensor by their scales. */
void io_scales_apply(const io_tensor *t, int64_t first, int64_t n, float *to);
void io_scales_free(io_scales *list);

#endif
