/* transformers.h -- what the writers of models for Hugging Face's transformers share (transformers.c): tensors of other names and shapes,
 * files of a directory. A family of models (t5.c, decoders.c) is a check of the shape, and a function that writes its files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TRANSFORMERS_H
#define RELPOS_TRANSFORMERS_H

#include "io/io.h"
#include "lab/engine/nn.h"

typedef struct nn_family {
    int (*check)(const nn_model *m, char err[NN_ERR_MAX]); /* whether its configuration can describe the model */
    int (*write)(const nn_model *m, const char *dir, rp_dtype type, char err[NN_ERR_MAX]);
} nn_family;
extern const nn_family nn_t5_family, nn_decoder_family;

/* Add an array, converted to `type`; `name` is for both errors and the file. */
int nn_add_tensor(io_set *set, const char *name, int32_t ndim, const int64_t *shape, const real *from, rp_dtype type,
                  char err[NN_ERR_MAX]);
/* Write a set as model.safetensors, and free it; code is that of the calls before. */
int nn_write_tensors(io_set *set, const char *dir, int code, char err[NN_ERR_MAX]);
int nn_write_text(const char *dir, const char *name, const char *text, char err[NN_ERR_MAX]);
const char *nn_torch_type(rp_dtype type); /* such as "float32" */

#endif
