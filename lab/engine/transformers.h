/* transformers.h -- helpers for writing a model as a directory for Hugging Face's transformers. For each model family
 * (export_t5.c, decoders.c), one function checks the model and another writes the files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TRANSFORMERS_H
#define RELPOS_TRANSFORMERS_H

#include "io/io.h"
#include "lab/engine/nn.h"

typedef struct nn_exporter {
    int (*check)(const nn_model *m, char err[NN_ERR_MAX]); /* check that transformers has a class for the model */
    int (*write)(const nn_model *m, const char *dir, rp_dtype type, char err[NN_ERR_MAX]);
} nn_exporter;
extern const nn_exporter nn_t5_family, nn_decoder_family;

/* transformers_files.c. Add a tensor to the set, converted to `type`. Errors also mention its name. */
int nn_add_tensor(io_set *set, const char *name, int32_t ndim, const int64_t *shape, const real *from, rp_dtype type,
                  char err[NN_ERR_MAX]);
/* Write the set to model.safetensors and free it. `code` is the result of building the set: if it is -1, only free the
 * set and return -1. */
int nn_write_tensors(io_set *set, const char *dir, int code, char err[NN_ERR_MAX]);
int nn_write_text(const char *dir, const char *name, const char *text, char err[NN_ERR_MAX]);
/* Return PyTorch's name of a type, such as "float32". */
const char *nn_torch_type(rp_dtype type);

#endif
