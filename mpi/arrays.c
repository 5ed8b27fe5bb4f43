/* arrays.c -- the arrays of a process: parts of them, and checks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"
#include <string.h>

rp_array rpi_slice(const rp_array *a, int64_t first, int64_t n)
{
    rp_array part = *a;
    if (a->data != NULL)
        part.data = (char *)a->data + first * a->stride[2] * (int64_t)rp_dtype_size(a->dtype);
    part.shape[2] = n;
    return part;
}

int64_t rpi_elements(const rp_array *a)
{
    int64_t n = 1;
    for (int32_t x = 0; x < a->ndim; x++)
        n *= a->shape[x];
    return n;
}

void rpi_copy_rows(const rp_array *to, const rp_array *from)
{
    const int64_t size = (int64_t)rp_dtype_size(to->dtype), width = to->ndim > 3 ? to->shape[3] : 1, *n = to->shape,
                  *s = from->stride, *t = to->stride, step = from->ndim > 3 ? s[3] : 1;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++) {
                char *row = (char *)to->data + (b * t[0] + h * t[1] + i * t[2]) * size;
                const char *of = (const char *)from->data + (b * s[0] + h * s[1] + i * s[2]) * size;
                if (step == 1)
                    memcpy(row, of, (size_t)(width * size));
                for (int64_t x = 0; x < width && step != 1; x++)
                    memcpy(row + x * size, of + x * step * size, (size_t)size);
            }
}

int64_t rpi_own_length(const rp_mpi_plan *m, int64_t length)
{
    const int32_t ranks = m->exchange.ranks, rank = m->exchange.rank;
    return rpi_length(rpi_stretch(length, ranks, rpi_stretch_of(ranks, rank, 0))) +
           rpi_length(rpi_stretch(length, ranks, rpi_stretch_of(ranks, rank, 1)));
}

rp_status rpi_check_array(const rp_array *a, const char *name, int32_t ndim, const int64_t *shape, rp_dtype type,
                          bool optional)
{
    int64_t elements = 1;
    for (int32_t x = 0; x < ndim; x++)
        elements *= shape[x];
    if (a->data == NULL)
        return optional || elements == 0 ? RP_OK : rpi_mpi_fail(RP_E_ARG, "%s is missing; pass this array", name);
    if (type != RP_BOOL && a->dtype != type)
        return rpi_mpi_fail(RP_E_ARG, "%s: dtype is %s; it must be %s, like desc.dtype", name, rp_dtype_name(a->dtype),
                            rp_dtype_name(type));
    if (type == RP_BOOL && a->dtype > RP_BF16)
        return rpi_mpi_fail(RP_E_ARG, "%s: dtype is %s; it must be f32, f64, f16 or bf16", name,
                            rp_dtype_name(a->dtype));
    if (a->ndim != ndim)
        return rpi_mpi_fail(RP_E_SHAPE, "%s: it has %d axes; it must have %d", name, (int)a->ndim, (int)ndim);
    for (int32_t x = 0; x < ndim; x++)
        if (a->shape[x] != shape[x])
            return rpi_mpi_fail(RP_E_SHAPE, "%s: axis %d has length %lld; it must be %lld%s", name, (int)x,
                                (long long)a->shape[x], (long long)shape[x],
                                x == 2 ? ", the lengths of both stretches of this process" : "");
    return RP_OK;
}
