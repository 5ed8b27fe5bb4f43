/* safetensors.c -- .safetensors: a length (u64, little-endian), a JSON header of that many bytes, then the data.
 *
 *     {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [3,4], "data_offsets": [0,48]}, ...}
 *
 * Offsets are relative to the end of the header. The tensors must cover the data exactly, without gaps or overlaps.
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
enum { N_DTYPES = sizeof dtype_names / sizeof *dtype_names, MAX_META = 100000 };

/* The range of bytes of a tensor, as offsets in the data. */
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

/* Return the index of the type with this name; N_DTYPES if unknown. 8-bit floats are known only for files read in
 * place. */
static size_t find_dtype(const char *name, bool in_place)
{
    size_t type = 0;
    if (in_place && strcmp(name, "F8_E4M3") == 0)
        return IO_F8_E4M3;
    if (in_place && strcmp(name, "F8_E5M2") == 0)
        return IO_F8_E5M2;
    while (type < N_DTYPES && strcmp(name, dtype_names[type]) != 0)
        type++;
    return type;
}

/* A file in memory, or an open regular file. */
typedef struct source {
    const unsigned char *data; /* NULL: read from fd, starting at offset `start` */
    int fd;
    off_t start;
    size_t size;
} source;

static io_status copy(const source *from, size_t at, void *to, size_t n, char why[IO_WHY_MAX])
{
    if (from->data == NULL)
        return io_pread(from->fd, from->start + (off_t)at, to, n, why);
    memcpy(to, from->data + at, n);
    return IO_OK;
}

/* State of reading a header. */
typedef struct reader {
    io_set *set;
    size_t data_size;
    bool in_place, metadata; /* metadata: __metadata__ has been read */
    span *ranges;            /* ranges of the set->n_arrays arrays; the capacity is the next power of two */
    const char *text;        /* the header */
} reader;

/* Read the description of one tensor. */
static io_status read_tensor(const json_t *json, const reader *r, io_array *array, span *range, char why[IO_WHY_MAX])
{
    const json_t *dtype = json_object_get(json, "dtype"), *shape = json_object_get(json, "shape");
    const json_t *offsets = json_object_get(json, "data_offsets");
    int64_t begin, end;
    io_status status;

    if (json_object_size(json) != 3 || !json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets))
        return io_why(why, "it must have exactly dtype, shape and data_offsets");
    if (json_array_size(shape) > IO_MAX_AXES)
        return io_why(why, "it has %zu axes (at most %d are supported)", json_array_size(shape), IO_MAX_AXES);
    if (!io_set_shape(array, (int32_t)json_array_size(shape), NULL))
        return io_no_memory(why);
    for (int32_t x = 0; x < array->ndim; x++)
        if ((status = read_count(shape, (size_t)x, "shape", &array->shape[x], why)) != IO_OK)
            return status;
    if (json_array_size(offsets) != 2)
        return io_why(why, "data_offsets has %zu items; it must have 2", json_array_size(offsets));
    if ((status = read_count(offsets, 0, "data_offsets", &begin, why)) != IO_OK ||
        (status = read_count(offsets, 1, "data_offsets", &end, why)) != IO_OK)
        return status;
    if (begin > end || (uint64_t)end > r->data_size)
        return io_why(why, "data_offsets [%lld, %lld] are not within the %zu bytes of data", (long long)begin,
                      (long long)end, r->data_size);
    range->begin = (size_t)begin;
    range->end = (size_t)end;

    const size_t type = find_dtype(json_string_value(dtype), r->in_place);
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
        return io_why(why, "its shape needs %zu bytes, but data_offsets have %zu", bytes, range->end - range->begin);
    return IO_OK;
}

/* Parse a piece of the header. jansson reads integers exactly as int64, and refuses duplicate keys, NUL in strings and
 * more than 2048 levels of nesting. On failure return NULL, *status and a reason. */
static json_t *parse(const reader *r, io_piece piece, io_status *status, char why[IO_WHY_MAX])
{
    json_error_t error;
    bool no_memory;
    char safe[160];
    json_t *json = io_json(piece.text, piece.size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error, &no_memory);
    if (no_memory)
        *status = io_no_memory(why);
    else if (json == NULL)
        *status = io_why(why, "malformed header near byte %lld: %s", 8LL + (piece.text - r->text) + error.position,
                         io_safe(safe, sizeof safe, error.text));
    return json;
}

typedef io_status member_reader(reader *r, const char *key, io_piece value, char why[IO_WHY_MAX]);

/* Read the members of an object in the header. */
static io_status read_members(reader *r, io_piece object, member_reader *read, const char *what, char why[IO_WHY_MAX])
{
    io_members members = {.text = object.text, .size = object.size};
    io_piece key, value;
    io_status status = IO_OK;
    int found = 0;
    while (status == IO_OK && (found = io_next_member(&members, &key, &value)) == 1) {
        json_t *name = parse(r, key, &status, why);
        if (status == IO_OK)
            status = read(r, json_string_value(name), value, why);
        json_decref(name);
    }
    if (status == IO_OK && found < 0)
        return io_why(why, "malformed header near byte %lld: %s", 8LL + (object.text - r->text) + (long long)members.at,
                      what);
    return status;
}

static io_status read_meta(reader *r, const char *key, io_piece value, char why[IO_WHY_MAX])
{
    io_status status = IO_OK;
    json_t *json = parse(r, value, &status, why);
    if (r->set->n_meta == MAX_META)
        status = io_why(why, "__metadata__ has more than %d keys", MAX_META);
    else if (status == IO_OK && !json_is_string(json))
        status = io_why(why, "a value of __metadata__ is not a string");
    else if (status == IO_OK && io_add_meta(r->set, key, json_string_value(json)) != 0)
        status = io_no_memory(why);
    json_decref(json);
    return status;
}

/* Append an array without data, and append its range. */
static io_status read_array(reader *r, const char *key, io_piece value, char why[IO_WHY_MAX])
{
    const size_t n = r->set->n_arrays;
    if (n == IO_MAX_ARRAYS)
        return io_why(why, "it has more than %d arrays", IO_MAX_ARRAYS);
    span *ranges = (n & (n - 1)) == 0 ? realloc(r->ranges, (n == 0 ? 1 : 2 * n) * sizeof *ranges) : r->ranges;
    if (ranges == NULL)
        return io_no_memory(why);
    r->ranges = ranges;
    io_array *array = io_push(r->set, key);
    if (array == NULL)
        return io_no_memory(why);
    ranges[n].array = n;
    io_status status = IO_OK;
    json_t *json = parse(r, value, &status, why);
    if (status == IO_OK) {
        char reason[IO_WHY_MAX], safe[80];
        status = read_tensor(json, r, array, &ranges[n], reason);
        if (status != IO_OK)
            io_why(why, "tensor '%s': %.160s", io_safe(safe, sizeof safe, key), reason);
    }
    json_decref(json);
    return status;
}

static io_status read_entry(reader *r, const char *key, io_piece value, char why[IO_WHY_MAX])
{
    if (strcmp(key, "__metadata__") != 0)
        return read_array(r, key, value, why);
    if (r->metadata)
        return io_why(why, "malformed header: duplicate __metadata__");
    r->metadata = true;
    while (value.size > 0 && strchr(" \t\n\r", value.text[0]) != NULL)
        value.text++, value.size--;
    return read_members(r, value, read_meta, "__metadata__ is not an object", why);
}

/* Read the header: append arrays without data, and their ranges. */
static io_status read_header(reader *r, size_t size, char why[IO_WHY_MAX])
{
    const char *twice = NULL;
    char safe[80];
    const io_status status =
        read_members(r, (io_piece){r->text, size}, read_entry, "the header is not a JSON object", why);
    if (status != IO_OK)
        return status;
    for (int metadata = 0; metadata < 2 && twice == NULL; metadata++)
        if (!io_duplicate(r->set, metadata != 0, &twice))
            return io_no_memory(why);
    return twice == NULL ? IO_OK : io_why(why, "malformed header: duplicate '%s'", io_safe(safe, sizeof safe, twice));
}

/* Check that the tensors cover the data exactly; the data begins at byte `begin`. Then borrow the tensors in place, or
 * copy the wanted ones that are not read in parts, because a tensor may be unaligned for its type. */
static io_status read_data(const reader *r, const source *from, size_t begin, char why[IO_WHY_MAX])
{
    io_set *set = r->set;
    span *ranges = r->ranges;
    size_t at = 0;
    if (set->n_arrays > 0)
        qsort(ranges, set->n_arrays, sizeof *ranges, by_begin);
    for (size_t n = 0; n < set->n_arrays; n++) {
        if (ranges[n].begin != at) {
            char safe[80];
            return io_why(why, "tensor '%s' begins at byte %zu of the data, %s the end of the previous one, %zu",
                          io_safe(safe, sizeof safe, set->arrays[ranges[n].array].name), ranges[n].begin,
                          ranges[n].begin < at ? "before" : "after", at);
        }
        at = ranges[n].end;
    }
    if (at != r->data_size)
        return io_why(why, "the tensors end at byte %zu of the data, which has %zu bytes", at, r->data_size);
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
        if (set->in_parts != NULL && from->data == NULL && set->in_parts(set->wanted_context, array->name)) {
            array->at = from->start + (off_t)(begin + ranges[n].begin);
            continue;
        }
        if (r->in_place) {
            array->data = (void *)(uintptr_t)(from->data + begin + ranges[n].begin);
            array->borrowed = true;
            continue;
        }
        array->data = malloc(bytes);
        if (array->data == NULL) {
            char safe[80];
            io_why(why, "out of memory while reading the %zu bytes of '%s'", bytes,
                   io_safe(safe, sizeof safe, array->name));
            return IO_FAILED;
        }
        const io_status status = copy(from, begin + ranges[n].begin, array->data, bytes, why);
        if (status != IO_OK)
            return status;
    }
    return IO_OK;
}

static io_status read_file(const char *path, const source *from, bool in_place, io_set *set, char err[IO_ERR_MAX])
{
    unsigned char start[8];
    uint64_t length = 0;
    char why[IO_WHY_MAX] = "";
    if (from->size < 8)
        return io_damaged(err, path, "cut short: it has %zu bytes, a .safetensors file at least 8", from->size);
    io_status status = copy(from, 0, start, sizeof start, why);
    if (status != IO_OK)
        return io_fail(err, path, "%s", why);
    for (int n = 0; n < 8; n++)
        length |= (uint64_t)start[n] << 8 * n;
    if (length > IO_SAFETENSORS_HEADER_MAX)
        return io_damaged(
            err, path,
            "not a .safetensors file: its header would have %llu bytes (at most %d are supported; give another file)",
            (unsigned long long)length, IO_SAFETENSORS_HEADER_MAX);
    if (length > from->size - 8)
        return io_damaged(err, path, "cut short: its header has %llu bytes, but the file only %zu",
                          (unsigned long long)length, from->size);

    char *text = from->data == NULL ? malloc((size_t)length + 1) : NULL;
    reader r = {.set = set,
                .data_size = from->size - 8 - (size_t)length,
                .in_place = in_place,
                .text = from->data != NULL ? (const char *)from->data + 8 : text};
    if (r.text == NULL)
        return io_fail(err, path, "out of memory while reading its header");
    if (text != NULL)
        status = copy(from, 8, text, (size_t)length, why);
    if (status == IO_OK)
        status = read_header(&r, (size_t)length, why);
    free(text);
    if (status == IO_OK)
        status = read_data(&r, from, 8 + (size_t)length, why);
    free(r.ranges);
    if (status != IO_OK)
        io_fail(err, path, "%s", why);
    return status;
}

io_status io_safetensors_read(const char *path, const unsigned char *data, size_t size, io_set *set,
                              char err[IO_ERR_MAX])
{
    return read_file(path, &(source){.data = data, .size = size}, false, set, err);
}

io_status io_safetensors_file(const char *path, int fd, off_t start, size_t size, io_set *set, char err[IO_ERR_MAX])
{
    return read_file(path, &(source){.fd = fd, .start = start, .size = size}, false, set, err);
}

io_status io_safetensors_in_place(const char *path, const unsigned char *data, size_t size, io_set *set,
                                  char err[IO_ERR_MAX])
{
    return read_file(path, &(source){.data = data, .size = size}, true, set, err);
}

/* ------------------------------------------------------------------------------------------------ writing */

/* Return the order of the arrays in the file, as indices that the caller frees. Arrays with wide elements come first;
 * otherwise the order is unchanged. This aligns every tensor for its type, for readers that use it in place. */
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

/* Return the header as text, which the caller frees. Spaces pad it until the data begins at a multiple of 64, which
 * aligns vectors in a mapped file. Return NULL only if out of memory: io_write has already checked that every string is
 * UTF-8. */
static char *header_text(const io_set *set, const size_t *order, size_t *padded)
{
    json_t *root = json_object();
    bool good = root != NULL;
    if (good && set->n_meta > 0) {
        json_t *meta = json_object();
        good = json_object_set_new(root, "__metadata__", meta) == 0;
        for (size_t n = 0; good && n < set->n_meta; n++)
            good = json_object_get(meta, set->meta_keys[n]) !=
                       NULL || /* use the first value of a duplicate key, as io_meta does */
                   json_object_set_new(meta, set->meta_keys[n], json_string(set->meta_values[n])) == 0;
    }
    size_t at = 0;
    for (size_t n = 0; good && n < set->n_arrays; n++) {
        const io_array *array = &set->arrays[order[n]];
        good = json_object_set_new(root, array->name, describe(array, at)) == 0;
        at += array->bytes; /* no overflow: all arrays are in memory */
    }
    /* json_dumps cannot be used: jansson 2.14 omits a key without an error when its buffer cannot grow. */
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

int io_safetensors_begin(io_out *out, const io_set *set, size_t **order, char err[IO_ERR_MAX])
{
    size_t padded = 0;
    *order = file_order(set);
    char *text = *order == NULL ? NULL : header_text(set, *order, &padded);
    unsigned char start[8];
    int result = -1;
    for (int n = 0; n < 8; n++)
        start[n] = (unsigned char)((uint64_t)padded >> 8 * n);
    if (text == NULL)
        io_fail(err, out->path, "out of memory");
    else if (padded > IO_SAFETENSORS_HEADER_MAX)
        io_fail(err, out->path, "the header would have %zu bytes; it must have at most %d (write fewer arrays)", padded,
                IO_SAFETENSORS_HEADER_MAX);
    else if (io_put(out, start, 8, err) == 0)
        result = io_put(out, text, padded, err);
    free(text);
    return result;
}
