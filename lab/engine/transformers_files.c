/* transformers_files.c -- tensors and files in the format of Hugging Face's transformers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/transformers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int nn_add_tensor(io_set *set, const char *name, int32_t ndim, const int64_t *shape, const real *from, rp_dtype type,
                  char err[NN_ERR_MAX])
{
    int64_t size = 1;
    for (int32_t a = 0; a < ndim; a++)
        size *= shape[a];
    for (int64_t x = 0; type == RP_F16 && x < size; x++)
        if (!(from[x] > -65520 && from[x] < 65520)) /* f16 rounds 65520 and above to infinity */
            return nn_fail(err, "%s: %g does not fit in f16, whose values are below 65520 (use bf16)", name,
                           (double)from[x]);
    void *to = malloc((size_t)size * rp_dtype_size(type) + 1);
    if (to && rp_convert(to, type, from, LAYERS_REAL, size) == RP_OK &&
        io_add(set, name, type, ndim, shape, to, false) == 0)
        return 0;
    free(to);
    return nn_fail(err, "lab: out of memory while writing %s (close other programs)", name);
}

int nn_write_tensors(io_set *set, const char *dir, int code, char err[NN_ERR_MAX])
{
    char path[NN_TEXT_MAX], why[IO_ERR_MAX];
    snprintf(path, sizeof path, "%.900s/model.safetensors", dir);
    if (code == 0 && io_add_meta(set, "format", "pt") != 0)
        code = nn_fail(err, "lab: out of memory while writing the header of the weights (close other programs)");
    if (code == 0 && io_write(path, IO_SAFETENSORS, set, why) != 0)
        code = nn_fail(err, "%.400s", why);
    io_free(set);
    return code;
}

int nn_write_text(const char *dir, const char *name, const char *text, char err[NN_ERR_MAX])
{
    char path[NN_TEXT_MAX], why[IO_ERR_MAX];
    snprintf(path, sizeof path, "%.900s/%s", dir, name);
    return io_write_bytes(path, text, strlen(text), why) == 0 ? 0 : nn_fail(err, "%.400s", why);
}

const char *nn_torch_type(rp_dtype type)
{
    return type == RP_BF16 ? "bfloat16" : type == RP_F16 ? "float16" : "float32";
}
