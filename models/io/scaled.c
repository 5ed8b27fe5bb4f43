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
    const json_t *layers; /* descriptions of formats in the metadata; NULL if there are none */
    bool *drop;           /* [n] the tensor belongs to a weight */
    io_scales *list;
    bool no_memory;
} pass;

/* The endings of the tensors that belong to X.weight. */
enum { QUANT, SCALE, OTHER_SCALE, PARTS = 5 };
static const char *const parts[PARTS] = {".comfy_quant", ".weight_scale", ".scale_weight", ".input_scale",
                                         ".scale_input"};
#define MARK "scaled_fp8" /* the name of a tensor, perhaps with a prefix */

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

/* Find the tensor with the name of a layer and an ending. */
static const io_tensor *find(const pass *p, const char *layer, const char *end)
{
    char name[NAME + 16];
    snprintf(name, sizeof name, "%s%s", layer, end);
    const io_tensor key = {.name = name};
    return bsearch(&key, p->tensors, p->n, sizeof key, by_name);
}

/* Return true for scaled_fp8, which may have a prefix. */
static bool is_mark(const char *name)
{
    const char *end = strrchr(name, '.');
    return strcmp(end != NULL ? end + 1 : name, MARK) == 0;
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

/* ------------------------------------------------------------------------------------------------ formats */

/* Check the description of a format: {"format": "float8_e4m3fn", …} or, in metadata, only its name. Return the
 * group_size; 0 if there is none. */
static int64_t check_format(pass *p, io_tensor *weight, const json_t *quant, const char *where)
{
    static const char *const known[] = {"format",    "full_precision_matrix_mult", "group_size", "params", "orig_dtype",
                                        "orig_shape"};
    const char *format = json_string_value(json_is_string(quant) ? quant : json_object_get(quant, "format")), *key;
    json_t *value;
    size_t f = 0, n_formats = sizeof formats / sizeof *formats;
    while (format != NULL && f < n_formats && strcmp(format, formats[f].name) != 0)
        f++;
    if (!json_is_object(quant) && format == NULL)
        refuse(p, weight, "its %s is not a JSON object", where);
    else if (format == NULL)
        refuse(p, weight, "its %s names no format", where);
    else if (f == n_formats)
        refuse(p, weight,
               "its format %.60s is not supported (use float8_e4m3fn or float8_e5m2, by tensor, row or block)", format);
    else if (weight->dtype != formats[f].dtype)
        refuse(p, weight, "its %s says %s, but its numbers have another type", where, format);
    json_object_foreach((json_t *)(uintptr_t)quant, key, value)
    {
        bool found = json_is_null(value) || json_is_false(value); /* a property that the weight does not have */
        for (size_t k = 0; k < sizeof known / sizeof *known && !found; k++)
            found = strcmp(key, known[k]) == 0;
        if (!found)
            refuse(p, weight, "its %s has the key %.60s, which is not supported", where, key);
    }
    value = json_object_get(quant, "group_size");
    return json_integer_value(value != NULL ? value : json_object_get(json_object_get(quant, "params"), "group_size"));
}

/* Check the format of a weight, whose layer has the given name. *where is set to its place, or NULL if there is none.
 * Return the group_size. */
static int64_t read_format(pass *p, io_tensor *weight, const io_tensor *quant, const char *layer, const char **where)
{
    json_error_t error;
    bool no_memory = false;
    json_t *root = quant != NULL ? NULL : json_incref(json_object_get(p->layers, layer));
    if (quant != NULL && (quant->dtype == RP_U8 || quant->dtype == RP_I8))
        root = io_json((const char *)quant->data, quant->bytes, JSON_REJECT_DUPLICATES, &error, &no_memory);
    p->no_memory = p->no_memory || no_memory;
    *where = quant != NULL ? "comfy_quant" : root != NULL ? "format in _quantization_metadata" : NULL;
    const int64_t group = *where != NULL ? check_format(p, weight, root, *where) : 0;
    json_decref(root);
    return group;
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

/* Return the first number that is no scale, in *bad: it is not positive, or products with it may not be finite. */
static bool find_bad(const io_scales *s, float *bad)
{
    for (int64_t k = 0; k < s->n; k++)
        if (!(s->values[k] > 0) || !isfinite(s->values[k] * 57344)) { /* the largest number of E5M2 */
            *bad = s->values[k];
            return true;
        }
    return false;
}

/* Give a weight its scales. */
static void read_scale(pass *p, io_tensor *weight, const io_tensor *scale, int64_t group)
{
    int32_t axes = scale->ndim;
    while (axes > 0 && scale->shape[axes - 1] == 1)
        axes--;
    const int64_t rows = weight->ndim > 0 ? weight->shape[0] : 1, columns = weight->ndim > 1 ? weight->shape[1] : 1,
                  down = axes > 0 ? scale->shape[0] : 1, across = axes > 1 ? scale->shape[1] : 1,
                  block = block_size(rows, down, axes > 0 ? group : 0),
                  width = block_size(columns, across, axes > 0 ? group : 0);
    float bad;
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
    if (!read_numbers(p, scale, s->values, s->n))
        refuse(p, weight, "its scale is not of the type F32, F16 or BF16, as that of mxfp8 or nvfp4");
    else if (find_bad(s, &bad))
        refuse(p, weight,
               "its scale has the value %g (scales must be positive, and so small that all weights are finite)",
               (double)bad);
    else
        weight->scales = s;
}

/* Return true if the file has the mark of scaled weights, with a prefix that the layer has too. */
static bool is_marked(const pass *p, const char *layer)
{
    char prefix[NAME];
    bool found = find(p, "", MARK) != NULL;
    for (const char *dot = strchr(layer, '.'); dot != NULL && !found; dot = strchr(dot + 1, '.')) {
        snprintf(prefix, NAME, "%.*s", (int)(dot + 1 - layer), layer);
        found = find(p, prefix, MARK) != NULL;
    }
    return found || find(p, layer, "." MARK) != NULL;
}

/* Read what belongs to the weight of a layer. */
static void read_layer(pass *p, io_tensor *weight, const char *layer)
{
    const io_tensor *part[PARTS];
    const char *where;
    for (int k = 0; k < PARTS; k++) {
        part[k] = find(p, layer, parts[k]);
        if (part[k] != NULL)
            p->drop[part[k] - p->tensors] = true;
    }
    const io_tensor *scale = part[part[SCALE] != NULL ? SCALE : OTHER_SCALE];
    const int64_t group = read_format(p, weight, part[QUANT], layer, &where);
    if (weight->unsupported != NULL)
        return;
    if (part[SCALE] != NULL && part[OTHER_SCALE] != NULL)
        refuse(p, weight, "it has two scales, weight_scale and scale_weight (remove one)");
    else if (scale != NULL && !io_tensor_is_f8(weight))
        refuse(p, weight,
               "its %s is for 8-bit floats, but its numbers have the type %s (remove the scale, if they are "
               "already scaled)",
               parts[part[SCALE] != NULL ? SCALE : OTHER_SCALE] + 1, rp_dtype_name(weight->dtype));
    else if (scale != NULL)
        read_scale(p, weight, scale, group);
    else if (where != NULL)
        refuse(p, weight, "it has a %s, but no weight_scale", where);
    else if (io_tensor_is_f8(weight) && is_marked(p, layer))
        refuse(p, weight, "its file has scaled_fp8, but it has no weight_scale");
}

/* Read the formats in the metadata: {"layers": {"X": {"format": …}}}. Return NULL if they are malformed. */
static json_t *read_metadata(pass *p, const char *text)
{
    json_error_t error;
    bool no_memory;
    json_t *root = io_json(text, strlen(text), JSON_REJECT_DUPLICATES, &error, &no_memory);
    p->no_memory = p->no_memory || no_memory;
    p->layers = json_object_get(root, "layers");
    if (json_is_object(p->layers))
        return root;
    json_decref(root);
    return NULL;
}

io_status io_scales_find(io_tensor *tensors, size_t *n, const char *metadata, io_scales **made, const char *path,
                         char err[IO_ERR_MAX])
{
    pass p = {.tensors = tensors, .n = *n, .drop = calloc(*n + 1, sizeof *p.drop)};
    size_t kept = 0;
    p.no_memory = p.drop == NULL;
    json_t *root = metadata != NULL ? read_metadata(&p, metadata) : NULL;
    const bool malformed = metadata != NULL && root == NULL;
    for (size_t k = 0; k < *n && !p.no_memory && !malformed; k++) {
        char layer[NAME];
        const size_t length = strlen(tensors[k].name), end = strlen(".weight");
        if (length > end && length < NAME && strcmp(tensors[k].name + length - end, ".weight") == 0) {
            snprintf(layer, NAME, "%.*s", (int)(length - end), tensors[k].name);
            read_layer(&p, &tensors[k], layer);
        }
        p.drop[k] = p.drop[k] || is_mark(tensors[k].name);
    }
    for (size_t k = 0; k < *n && !p.no_memory; k++)
        if (!p.drop[k])
            tensors[kept++] = tensors[k];
    json_decref(root);
    free(p.drop);
    *made = p.list;
    if (p.no_memory)
        return io_fail(err, path, "out of memory");
    if (malformed)
        return io_fail(err, path,
                       "its metadata _quantization_metadata is not a JSON object with layers (convert it again)");
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
