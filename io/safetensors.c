/* safetensors.c -- .safetensors: a length (u64, little-endian), a JSON header of that many bytes, then the data.
 *
 *     {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [3,4], "data_offsets": [0,48]}, ...}
 *
 * Offsets count from the end of the header. The tensors have to tile the data: no gap, no overlap, nothing after them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"
#include "io/checkpoint.h"
#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtype_names[] = {
    [RP_F32] = "F32", [RP_F64] = "F64", [RP_F16] = "F16", [RP_BF16] = "BF16", [RP_BOOL] = "BOOL",
    [RP_U8] = "U8",   [RP_I8] = "I8",   [RP_U16] = "U16", [RP_I16] = "I16",   [RP_U32] = "U32",
    [RP_I32] = "I32", [RP_U64] = "U64", [RP_I64] = "I64"};
enum { N_DTYPES = sizeof dtype_names / sizeof *dtype_names };

/* The range of a tensor in the data. */
typedef struct span {
    size_t begin, end, array;
} span;

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Read item n of a list, an integer >= 0. */
static io_status read_count(const json_t *list, size_t n, const char *what, int64_t *count, char why[IO_WHY_MAX])
{
    const json_t *item = json_array_get(list, n);
    if (json_is_integer(item) && json_integer_value(item) >= 0) {
        *count = json_integer_value(item);
        return IO_OK;
    }
    return io_why(why, "%s has an item that is not an integer >= 0", what);
}

/* The type of a name, N_DTYPES for none. F8_E4M3 is one only for those who read a file in place. */
static size_t find_dtype(const char *name, bool in_place)
{
    size_t type = 0;
    if (in_place && strcmp(name, "F8_E4M3") == 0)
        return IO_F8_E4M3;
    while (type < N_DTYPES && strcmp(name, dtype_names[type]) != 0)
        type++;
    return type;
}

/* Read the description of one tensor. */
static io_status read_tensor(const json_t *json, size_t data_size, bool in_place, io_array *array, span *range,
                             char why[IO_WHY_MAX])
{
    const json_t *dtype = json_object_get(json, "dtype"), *shape = json_object_get(json, "shape");
    const json_t *offsets = json_object_get(json, "data_offsets");
    int64_t begin, end;
    io_status status;

    if (json_object_size(json) != 3 || !json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets))
        return io_why(why, "it is not described by dtype, shape and data_offsets alone");
    if (json_array_size(shape) > IO_MAX_AXES)
        return io_why(why, "it has %zu axes (%d are possible)", json_array_size(shape), IO_MAX_AXES);
    array->ndim = (int32_t)json_array_size(shape);
    for (int32_t x = 0; x < array->ndim; x++)
        if ((status = read_count(shape, (size_t)x, "shape", &array->shape[x], why)) != IO_OK)
            return status;
    if (json_array_size(offsets) != 2)
        return io_why(why, "data_offsets has %zu items, not 2", json_array_size(offsets));
    if ((status = read_count(offsets, 0, "data_offsets", &begin, why)) != IO_OK ||
        (status = read_count(offsets, 1, "data_offsets", &end, why)) != IO_OK)
        return status;
    if (begin > end || (uint64_t)end > data_size)
        return io_why(why, "data_offsets [%lld, %lld] lie outside the %zu bytes of data", (long long)begin,
                      (long long)end, data_size);
    range->begin = (size_t)begin;
    range->end = (size_t)end;

    const size_t type = find_dtype(json_string_value(dtype), in_place);
    size_t bytes;
    if (!io_bytes(type < N_DTYPES ? io_dtype_size((rp_dtype)type) : 1, array->ndim, array->shape, &bytes))
        return io_why(why, "the product of the shape is too large");
    if (type == N_DTYPES) {
        char safe[64], reason[IO_WHY_MAX];
        snprintf(reason, sizeof reason, "it has the dtype '%s' (save it as F32, F64, F16, BF16 or an integer type)",
                 io_safe(safe, sizeof safe, json_string_value(dtype)));
        return io_unsupported(array, reason) ? IO_OK : io_no_memory(why);
    }
    array->dtype = (rp_dtype)type;
    if (bytes != range->end - range->begin)
        return io_why(why, "its shape asks for %zu bytes, data_offsets give it %zu", bytes, range->end - range->begin);
    return IO_OK;
}

static io_status read_metadata(const json_t *json, io_set *set, char why[IO_WHY_MAX])
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (!json_is_string(value))
            return io_why(why, "a value of __metadata__ is not a string");
        if (io_add_meta(set, key, json_string_value(value)) != 0)
            return io_no_memory(why);
    }
    return json_is_object(json) ? IO_OK : io_why(why, "__metadata__ is not an object");
}

/* Read the header into arrays without data, and their ranges. */
static io_status read_header(const json_t *root, size_t data_size, bool in_place, io_set *set, span *ranges,
                             char why[IO_WHY_MAX])
{
    const char *key;
    json_t *value;
    io_status status;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            if ((status = read_metadata(value, set, why)) != IO_OK)
                return status;
            continue;
        }
        io_array *array = io_push(set, key);
        if (array == NULL)
            return io_no_memory(why);
        ranges[set->n_arrays - 1].array = set->n_arrays - 1;
        char reason[IO_WHY_MAX], safe[80];
        status = read_tensor(value, data_size, in_place, array, &ranges[set->n_arrays - 1], reason);
        if (status != IO_OK) {
            io_why(why, "tensor '%s': %.160s", io_safe(safe, sizeof safe, key), reason);
            return status;
        }
    }
    return IO_OK;
}

/* Check that the tensors tile the data, then copy them, because a tensor may not be aligned for its type; or borrow them in place. */
static io_status read_data(const unsigned char *data, size_t data_size, bool in_place, io_set *set, span *ranges,
                           char why[IO_WHY_MAX])
{
    size_t at = 0;
    if (set->n_arrays > 0)
        qsort(ranges, set->n_arrays, sizeof *ranges, by_begin);
    for (size_t n = 0; n < set->n_arrays; n++) {
        if (ranges[n].begin != at) {
            char safe[80];
            return io_why(why, "tensor '%s' begins at byte %zu of the data, %s the end of the one before, %zu",
                          io_safe(safe, sizeof safe, set->arrays[ranges[n].array].name), ranges[n].begin,
                          ranges[n].begin < at ? "before" : "after", at);
        }
        at = ranges[n].end;
    }
    if (at != data_size)
        return io_why(why, "the tensors end at byte %zu of the data, which has %zu", at, data_size);
    for (size_t n = 0; n < set->n_arrays; n++) {
        io_array *array = &set->arrays[ranges[n].array];
        const size_t bytes = ranges[n].end - ranges[n].begin;
        if (array->unsupported != NULL || bytes == 0)
            continue;
        if (io_leave_out(set, array->name)) {
            if (!io_unsupported(array, IO_LEFT_OUT))
                return io_no_memory(why);
            continue;
        }
        array->bytes = bytes;
        if (in_place) {
            array->data = (void *)(uintptr_t)(data + ranges[n].begin);
            array->borrowed = true;
            continue;
        }
        array->data = malloc(bytes);
        if (array->data == NULL)
            return io_no_memory(why);
        memcpy(array->data, data + ranges[n].begin, bytes);
    }
    return IO_OK;
}

static io_status read_file(const char *path, const unsigned char *data, size_t size, bool in_place, io_set *set,
                           char err[IO_ERR_MAX])
{
    uint64_t length = 0;
    if (size < 8)
        return io_damaged(err, path, "cut short: a .safetensors file has at least 8 bytes, this has %zu", size);
    for (int n = 0; n < 8; n++)
        length |= (uint64_t)data[n] << 8 * n;
    if (length > IO_SAFETENSORS_HEADER_MAX)
        return io_damaged(err, path, "not a .safetensors file: its header would have %llu bytes (%d are possible)",
                          (unsigned long long)length, IO_SAFETENSORS_HEADER_MAX);
    if (length > size - 8)
        return io_damaged(err, path, "cut short: the header has %llu bytes, the file only %zu",
                          (unsigned long long)length, size);

    /* jansson reads integers exactly as int64, and refuses duplicate keys, NUL in strings and more than 2048 levels. */
    json_error_t error;
    bool no_memory;
    json_t *root = io_json((const char *)data + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error, &no_memory);
    if (no_memory)
        return io_fail(err, path, "out of memory for its header");
    if (root == NULL) {
        char safe[160];
        return io_damaged(err, path, "malformed header near byte %lld: %s", 8LL + error.position,
                          io_safe(safe, sizeof safe, error.text));
    }
    char why[IO_WHY_MAX] = "";
    const size_t data_size = size - 8 - (size_t)length;
    span *ranges = NULL;
    io_status status;
    if (!json_is_object(root)) {
        status = io_why(why, "the header is not a JSON object");
    } else if (json_object_size(root) > IO_MAX_ARRAYS) {
        status = io_why(why, "it has %zu arrays (%d are possible)", json_object_size(root), IO_MAX_ARRAYS);
    } else {
        ranges = calloc(json_object_size(root) + 1, sizeof *ranges);
        status = ranges != NULL ? read_header(root, data_size, in_place, set, ranges, why) : io_no_memory(why);
    }
    json_decref(root);
    if (status == IO_OK)
        status = read_data(data + 8 + length, data_size, in_place, set, ranges, why);
    free(ranges);
    if (status != IO_OK)
        io_fail(err, path, "%s", why);
    return status;
}

io_status io_safetensors_read(const char *path, const unsigned char *data, size_t size, io_set *set,
                              char err[IO_ERR_MAX])
{
    return read_file(path, data, size, false, set, err);
}

io_status io_safetensors_in_place(const char *path, const unsigned char *data, size_t size, io_set *set,
                                  char err[IO_ERR_MAX])
{
    return read_file(path, data, size, true, set, err);
}

/* ------------------------------------------------------------------------------------------------ writing */

/* The order in the file: wide elements first, otherwise as given. So every tensor is aligned for its element, which readers that use it in
 * place need. Returns the indices, to be freed. */
static size_t *file_order(const io_set *set)
{
    size_t *order = malloc((set->n_arrays + 1) * sizeof *order), at = 0;
    for (size_t element = 8; order != NULL && element > 0; element /= 2)
        for (size_t n = 0; n < set->n_arrays; n++)
            if (io_dtype_size(set->arrays[n].dtype) == element)
                order[at++] = n;
    return order;
}

static json_t *describe(const io_array *array, size_t begin)
{
    json_t *shape = json_array();
    bool good = shape != NULL;
    for (int32_t x = 0; good && x < array->ndim; x++)
        good = json_array_append_new(shape, json_integer(array->shape[x])) == 0;
    if (!good) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype_names[array->dtype], "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + array->bytes));
}

/* The header as text, padded with spaces so that the data after it begins at a multiple of 64, as vectors in a mapped file like it; to be freed. NULL if
 * memory runs out, and for no other reason: io_write has checked that every string is UTF-8. */
static char *header_text(const io_set *set, const size_t *order, size_t *padded)
{
    json_t *root = json_object();
    bool good = root != NULL;
    if (good && set->n_meta > 0) {
        json_t *meta = json_object();
        good = json_object_set_new(root, "__metadata__", meta) == 0;
        for (size_t n = 0; good && n < set->n_meta; n++)
            good = json_object_get(meta, set->meta_keys[n]) !=
                       NULL || /* of a key that is given twice the first value counts, as for io_meta */
                   json_object_set_new(meta, set->meta_keys[n], json_string(set->meta_values[n])) == 0;
    }
    size_t at = 0;
    for (size_t n = 0; good && n < set->n_arrays; n++) {
        const io_array *array = &set->arrays[order[n]];
        good = json_object_set_new(root, array->name, describe(array, at)) == 0;
        at += array->bytes; /* cannot overflow: all arrays are in memory */
    }
    /* Not json_dumps: jansson 2.14 omits a key without an error when its buffer cannot grow. */
    const size_t length = good ? json_dumpb(root, NULL, 0, JSON_COMPACT) : 0;
    *padded = (8 + length + 63) / 64 * 64 - 8;
    char *text = length > 0 ? malloc(*padded) : NULL;
    if (text != NULL && json_dumpb(root, text, length, JSON_COMPACT) != length) {
        free(text);
        text = NULL;
    }
    if (text != NULL)
        memset(text + length, ' ', *padded - length);
    json_decref(root);
    return text;
}

int io_safetensors_write(io_out *out, const io_set *set, char err[IO_ERR_MAX])
{
    size_t padded = 0, *order = file_order(set);
    char *text = order == NULL ? NULL : header_text(set, order, &padded);
    unsigned char start[8];
    int result = -1;
    for (int n = 0; n < 8; n++)
        start[n] = (unsigned char)((uint64_t)padded >> 8 * n);
    if (text == NULL)
        io_fail(err, out->path, "out of memory");
    else if (padded > IO_SAFETENSORS_HEADER_MAX)
        io_fail(err, out->path, "the header would have %zu bytes (%d are possible; write fewer arrays)", padded,
                IO_SAFETENSORS_HEADER_MAX);
    else if (io_put(out, start, 8, err) == 0)
        result = io_put(out, text, padded, err);
    for (size_t n = 0; result == 0 && n < set->n_arrays; n++)
        result = io_put(out, set->arrays[order[n]].data, set->arrays[order[n]].bytes, err);
    free(text);
    free(order);
    return result;
}
