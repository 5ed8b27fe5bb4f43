/* files.c -- reads and writes the weights of a layer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "layers/layer.h"
#include <stdlib.h>
#include <string.h>

/* Find the array of each weight, and check its type and shape. */
static rp_status find_arrays(const rp_layer *l, const char *path, const io_set *set, const io_array **found)
{
    char err[IO_ERR_MAX];
    for (int32_t x = 0; x < l->n_params; x++) {
        const rp_layer_param *p = &l->params[x];
        const io_array *a = io_take(set, p->name, err);
        if (!a)
            return layers_fail(RP_E_SHAPE, "%s: %s", path, err);
        if (!io_is_floating(a->dtype))
            return layers_fail(RP_E_SHAPE, "%s: %s is of type %s; expected f32, f64, f16 or bf16", path, p->name,
                               rp_dtype_name(a->dtype));
        if (a->ndim != p->ndim || memcmp(a->shape, p->shape, (size_t)p->ndim * sizeof *p->shape) != 0) {
            char has[128], wants[128];
            return layers_fail(RP_E_SHAPE, "%s: %s has shape %s; expected %s", path, p->name,
                               layers_print_shape(has, a->ndim, a->shape),
                               layers_print_shape(wants, p->ndim, p->shape));
        }
        found[x] = a;
    }
    return RP_OK;
}

rp_status rp_layer_read(rp_layer *layer, const char *path, int64_t *unused)
{
    char err[IO_ERR_MAX];
    io_set set = {0};
    if (!layer || !path)
        return layers_fail(RP_E_ARG, "layer or path is NULL; pass both");
    if (io_read(path, &set, NULL, err) != IO_OK)
        return layers_fail(RP_E_ARG, "%s", err);
    const io_array **found = calloc((size_t)layer->n_params + 1, sizeof *found);
    rp_status status = found ? find_arrays(layer, path, &set, found) : layers_no_memory("the arrays of a file");
    for (int32_t x = 0; status == RP_OK && x < layer->n_params; x++)
        rp_convert(layer->params[x].data, layer->d.dtype, found[x]->data, found[x]->dtype, layer->params[x].n);
    if (status == RP_OK && unused)
        *unused = (int64_t)set.n_arrays - layer->n_params;
    free(found);
    io_free(&set);
    return status;
}

rp_status rp_layer_write(const rp_layer *layer, const char *path)
{
    char err[IO_ERR_MAX];
    io_set set = {0};
    if (!layer || !path)
        return layers_fail(RP_E_ARG, "layer or path is NULL; pass both");
    if (io_format_of(path) == IO_UNKNOWN)
        return layers_fail(RP_E_ARG, "%s: unknown format (end the name with .safetensors or .npz)", path);
    rp_status status = RP_OK;
    for (int32_t x = 0; x < layer->n_params && status == RP_OK; x++) {
        const rp_layer_param *p = &layer->params[x];
        if (io_add(&set, p->name, layer->d.dtype, p->ndim, p->shape, p->data, true) != 0)
            status = layers_no_memory("the list of weights");
    }
    if (status == RP_OK && io_write(path, io_format_of(path), &set, err) != 0)
        status = layers_fail(RP_E_ARG, "%s", err);
    io_free(&set);
    return status;
}
