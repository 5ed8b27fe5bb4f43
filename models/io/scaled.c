/* scaled.c -- finds the scales of 8-bit floats, and applies them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/scaled.h"
#include "io/formats.h"
#include "io/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 1024 };

/* A pass over the tensors of a checkpoint. */
typedef struct pass {
    io_tensor *tensors;
    size_t n;
    io_scales *list;
    bool no_memory;
} pass;

typedef enum role { NONE, SCALE, QUANT, UNUSED } role;

static const struct {
    const char *end;
    role role;
} roles[] = {{".weight_scale", SCALE}, {".scale_weight", SCALE}, {".input_scale", UNUSED},
             {".scale_input", UNUSED}, {".comfy_quant", QUANT},  {"scaled_fp8", UNUSED}};

/* The formats of comfy_quant whose numbers are 8-bit floats with scales. */
static const struct {
    const char *name;
    rp_dtype dtype;
} formats[] = {{"float8_e4m3fn", IO_F8_E4M3},
               {"float8_e5m2", IO_F8_E5M2},
               {"float8_e4m3fn_rowwise", IO_F8_E4M3},
               {"float8_e4m3fn_blockwise", IO_F8_E4M3},
               {"float8_e4m3fn_block3d", IO_F8_E4M3}};

/* ------------------------------------------------------------------------------------------------ the list */

static int by_name(const void *a, const void *b)
{
    const io_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Find the tensor with the name of `base` (of n bytes) and `end`. */
static io_tensor *find(const pass *p, const char *base, size_t n, const char *end)
{
    char name[NAME];
    if (n + strlen(end) >= NAME)
        return NULL;
    snprintf(name, NAME, "%.*s%s", (int)n, base, end);
    const io_tensor key = {.name = name};
    return bsearch(&key, p->tensors, p->n, sizeof key, by_name);
}

/* Return the role of a tensor. *n is the length of its name without the ending. */
static role role_of(const char *name, size_t *n)
{
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++) {
        const size_t length = strlen(name), end = strlen(roles[k].end);
        *n = length - end;
        if (length >= end && strcmp(name + *n, roles[k].end) == 0)
            return roles[k].role;
    }
    return NONE;
}

/* Allocate scales of n numbers. */
static io_scales *add(pass *p, int64_t n)
{
    io_scales *s = calloc(1, sizeof *s + (size_t)n * sizeof(float));
    if (s == NULL) {
        p->no_memory = true;
        return NULL;
    }
    s->n = n;
    s->next = p->list;
    p->list = s;
    return s;
}

/* Mark a weight as unusable. The first reason stays. */
__attribute__((format(printf, 3, 4))) static void refuse(pass *p, io_tensor *weight, const char *format, ...)
{
    char text[200], safe[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    io_scales *s = weight->unsupported == NULL ? add(p, 0) : NULL;
    if (s == NULL)
        return;
    s->why = strdup(io_safe(safe, sizeof safe, text));
    p->no_memory = p->no_memory || s->why == NULL;
    weight->unsupported = s->why;
    weight->dtype = IO_NO_DTYPE;
}

/* ------------------------------------------------------------------------------------------------ comfy_quant */

/* Check the description of a format: {"format": "float8_e4m3fn", …}. */
static void check_format(pass *p, io_tensor *weight, const json_t *quant)
{
    static const char *const known[] = {"format",    "full_precision_matrix_mult", "group_size", "params", "orig_dtype",
                                        "orig_shape"};
    const char *format = json_string_value(json_object_get(quant, "format")), *key;
    json_t *value;
    size_t f = 0, n_formats = sizeof formats / sizeof *formats;
    while (format != NULL && f < n_formats && strcmp(format, formats[f].name) != 0)
        f++;
    if (format == NULL)
        refuse(p, weight, "its comfy_quant names no format");
    else if (f == n_formats)
        refuse(p, weight,
               "its format %.60s is not supported (use float8_e4m3fn or float8_e5m2, by tensor, row or block)", format);
    else if (weight->dtype != formats[f].dtype)
        refuse(p, weight, "its comfy_quant says %s, but its numbers have another type", format);
    json_object_foreach((json_t *)(uintptr_t)quant, key, value)
    {
        bool found = json_is_null(value) || json_is_false(value); /* a property that the weight does not have */
        for (size_t k = 0; k < sizeof known / sizeof *known && !found; k++)
            found = strcmp(key, known[k]) == 0;
        if (!found)
            refuse(p, weight, "its comfy_quant has the key %.60s, which is not supported", key);
    }
}

/* Parse the bytes of a comfy_quant. Return NULL if they are not a JSON object. */
static json_t *parse(pass *p, const io_tensor *quant)
{
    json_error_t error;
    bool no_memory = false;
    json_t *root = NULL;
    if (quant->dtype == RP_U8 || quant->dtype == RP_I8)
        root = io_json((const char *)quant->data, quant->bytes, JSON_REJECT_DUPLICATES, &error, &no_memory);
    p->no_memory = p->no_memory || no_memory;
    if (json_is_object(root))
        return root;
    json_decref(root);
    return NULL;
}

static void read_quant(pass *p, io_tensor *weight, const io_tensor *quant)
{
    json_t *root = parse(p, quant);
    if (root != NULL)
        check_format(p, weight, root);
    else
        refuse(p, weight, "its comfy_quant is not a JSON object");
    json_decref(root);
}

/* Return the group_size that belongs to a weight; 0 if there is none. */
static int64_t group_size(pass *p, const char *base, size_t n)
{
    const io_tensor *quant = find(p, base, n, ".comfy_quant");
    json_t *root = quant != NULL ? parse(p, quant) : NULL;
    const json_t *size = json_object_get(root, "group_size");
    if (size == NULL)
        size = json_object_get(json_object_get(root, "params"), "group_size");
    const int64_t group = json_integer_value(size);
    json_decref(root);
    return group;
}

/* Check the formats that the metadata names: {"layers": {"X": {"format": …}}}. */
static void read_metadata(pass *p, const char *metadata)
{
    json_error_t error;
    bool no_memory;
    const char *name;
    json_t *layer, *root = io_json(metadata, strlen(metadata), 0, &error, &no_memory);
    p->no_memory = p->no_memory || no_memory;
    json_object_foreach(json_object_get(root, "layers"), name, layer)
    {
        io_tensor *weight = find(p, name, strlen(name), ".weight");
        if (weight != NULL && json_is_object(layer))
            check_format(p, weight, layer);
    }
    json_decref(root);
}

/* ------------------------------------------------------------------------------------------------ scales */

/* Return the size of a block along an axis of n numbers that has `scales` scales; 0 if they do not fit together. The
 * last block may be smaller, if `group` is the size of a block. Without it, 0 also if such blocks would be possible. */
static int64_t block_size(int64_t n, int64_t scales, int64_t group)
{
    if (scales == 1 || scales == n)
        return scales == 1 && n > 0 ? n : 1;
    if (group > 0 && scales == (n + group - 1) / group)
        return group;
    if (scales < 1 || n % scales != 0)
        return 0;
    for (int64_t usual = 64; usual <= 256 && group == 0; usual *= 2)
        if (usual != n / scales && scales == (n + usual - 1) / usual)
            return 0;
    return n / scales;
}

/* Read the numbers of a scale as f32. Return false if it has other types. */
static bool read_numbers(pass *p, const io_tensor *scale, float *to, int64_t n)
{
    const size_t element = io_dtype_size(scale->dtype);
    if (scale->dtype != RP_F32 && scale->dtype != RP_F64 && scale->dtype != RP_F16 && scale->dtype != RP_BF16)
        return false;
    void *aligned = malloc((size_t)n * element + 1); /* the numbers in the file may be unaligned */
    const bool read = aligned != NULL;
    if (read) {
        memcpy(aligned, scale->data, (size_t)n * element);
        rp_convert(to, RP_F32, aligned, scale->dtype, n);
    }
    p->no_memory = p->no_memory || !read;
    free(aligned);
    return true;
}

/* Give a weight its scales. `base` is the name of the layer, of n bytes. */
static void read_scale(pass *p, io_tensor *weight, const io_tensor *scale, const char *base, size_t n)
{
    int32_t axes = scale->ndim;
    while (axes > 0 && scale->shape[axes - 1] == 1)
        axes--;
    const int64_t rows = weight->ndim > 0 ? weight->shape[0] : 1, columns = weight->ndim > 1 ? weight->shape[1] : 1,
                  down = axes > 0 ? scale->shape[0] : 1, across = axes > 1 ? scale->shape[1] : 1,
                  group = axes > 0 ? group_size(p, base, n) : 0, block = block_size(rows, down, group),
                  width = block_size(columns, across, group);
    if (weight->unsupported != NULL)
        return;
    if (weight->scales != NULL) {
        refuse(p, weight, "it has two scales, weight_scale and scale_weight (remove one)");
        return;
    }
    if (weight->ndim > 2 || axes > 2 || block == 0 || width == 0 || (axes == 1 && down != rows)) {
        refuse(p, weight, "the shape of its scale is neither one number, nor one a row, nor one a block");
        return;
    }
    io_scales *s = add(p, down * across);
    if (s == NULL)
        return;
    s->rows = block;
    s->columns = width;
    s->across = across;
    if (!read_numbers(p, scale, s->values, s->n)) {
        refuse(p, weight, "its scale is not of the type F32, F16 or BF16, as that of mxfp8 or nvfp4");
        return;
    }
    for (int64_t k = 0; k < s->n; k++)
        if (!isfinite(s->values[k])) {
            refuse(p, weight, "its scale is not finite");
            return;
        }
    weight->scales = s;
}

io_status io_scales_find(io_tensor *tensors, size_t *n, const char *metadata, io_scales **made, const char *path,
                         char err[IO_ERR_MAX])
{
    pass p = {.tensors = tensors, .n = *n};
    size_t kept = 0;
    bool *drop = calloc(*n + 1, sizeof *drop);
    p.no_memory = drop == NULL;
    if (metadata != NULL && drop != NULL)
        read_metadata(&p, metadata);
    for (size_t k = 0; k < *n && !p.no_memory; k++) { /* comfy_quant comes before the scale */
        size_t length;
        const char *name = tensors[k].name;
        const role found = role_of(name, &length);
        io_tensor *weight = found != NONE ? find(&p, name, length, ".weight") : NULL;
        drop[k] = weight != NULL || (found == UNUSED && strcmp(name + length, "scaled_fp8") == 0);
        if (weight != NULL && found == QUANT)
            read_quant(&p, weight, &tensors[k]);
        else if (weight != NULL && found == SCALE)
            read_scale(&p, weight, &tensors[k], name, length);
        if (weight != NULL && found == QUANT && find(&p, name, length, ".weight_scale") == NULL &&
            find(&p, name, length, ".scale_weight") == NULL)
            refuse(&p, weight, "it has a comfy_quant, but no weight_scale");
    }
    for (size_t k = 0; k < *n && !p.no_memory; k++)
        if (!drop[k])
            tensors[kept++] = tensors[k];
    free(drop);
    *made = p.list;
    if (p.no_memory)
        return io_fail(err, path, "out of memory");
    *n = kept;
    return IO_OK;
}

void io_scales_apply(const io_tensor *t, int64_t first, int64_t n, float *to)
{
    const io_scales *s = t->scales;
    const int64_t width = t->ndim > 1 ? t->shape[1] : 1;
    for (int64_t k = 0, count; s != NULL && k < n; k += count) {
        const int64_t row = (first + k) / width, column = (first + k) % width, left = s->columns - column % s->columns;
        const float x = s->values[row / s->rows * s->across + column / s->columns];
        count = left < width - column ? left : width - column;
        count = count < n - k ? count : n - k;
        for (int64_t j = 0; j < count; j++)
            to[k + j] *= x;
    }
}

void io_scales_free(io_scales *list)
{
    for (io_scales *next; list != NULL; list = next) {
        next = list->next;
        free(list->why);
        free(list);
    }
}
