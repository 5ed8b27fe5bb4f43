/* gguf.c -- .gguf: "GGUF", the version, the numbers of tensors and keys, the keys with their values, the descriptions
 * of the tensors, padding, and the data of the tensors, each padded to the alignment. Everything is little-endian.
 *
 *     key      string, type, value            string   u64 size, bytes; no NUL at the end
 *     tensor   string, u32 axes, u64 sizes from the fastest axis on, u32 type, u64 offset in the data
 *     array    u32 type of its elements, u64 number, elements
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/gguf.h"
#include "io/block_types.h"
#include "io/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAGIC_SIZE = 4,
    MAX_NAME = 65535, /* max bytes of a key or of the name of a tensor */
    MAX_TENSOR_AXES = 4,
    ALIGNMENT = 32, /* default of general.alignment */
    MAX_ALIGNMENT = 1 << 20
};
#define MAGIC "GGUF"

/* Type of a tensor: its number in the file, and its blocks. */
typedef struct ggml_type {
    uint32_t number;
    const char *name;
    int dtype; /* IO_NO_DTYPE: relpos does not read its numbers */
    size_t numbers, bytes;
} ggml_type;

static const ggml_type ggml_types[] = {{0, "F32", RP_F32, 1, 4},
                                       {1, "F16", RP_F16, 1, 2},
                                       {2, "Q4_0", IO_Q4_0, 32, 18},
                                       {3, "Q4_1", IO_Q4_1, 32, 20},
                                       {6, "Q5_0", IO_Q5_0, 32, 22},
                                       {7, "Q5_1", IO_Q5_1, 32, 24},
                                       {8, "Q8_0", IO_Q8_0, 32, 34},
                                       {9, "Q8_1", IO_NO_DTYPE, 32, 40},
                                       {10, "Q2_K", IO_Q2_K, 256, 84},
                                       {11, "Q3_K", IO_Q3_K, 256, 110},
                                       {12, "Q4_K", IO_Q4_K, 256, 144},
                                       {13, "Q5_K", IO_Q5_K, 256, 176},
                                       {14, "Q6_K", IO_Q6_K, 256, 210},
                                       {15, "Q8_K", IO_NO_DTYPE, 256, 292},
                                       {16, "IQ2_XXS", IO_NO_DTYPE, 256, 66},
                                       {17, "IQ2_XS", IO_NO_DTYPE, 256, 74},
                                       {18, "IQ3_XXS", IO_NO_DTYPE, 256, 98},
                                       {19, "IQ1_S", IO_NO_DTYPE, 256, 50},
                                       {20, "IQ4_NL", IO_NO_DTYPE, 32, 18},
                                       {21, "IQ3_S", IO_NO_DTYPE, 256, 110},
                                       {22, "IQ2_S", IO_NO_DTYPE, 256, 82},
                                       {23, "IQ4_XS", IO_NO_DTYPE, 256, 136},
                                       {24, "I8", RP_I8, 1, 1},
                                       {25, "I16", RP_I16, 1, 2},
                                       {26, "I32", RP_I32, 1, 4},
                                       {27, "I64", RP_I64, 1, 8},
                                       {28, "F64", RP_F64, 1, 8},
                                       {29, "IQ1_M", IO_NO_DTYPE, 256, 56},
                                       {30, "BF16", RP_BF16, 1, 2},
                                       {34, "TQ1_0", IO_NO_DTYPE, 256, 54},
                                       {35, "TQ2_0", IO_NO_DTYPE, 256, 66},
                                       {39, "MXFP4", IO_NO_DTYPE, 32, 17}};

static const ggml_type *type_of(uint32_t number)
{
    for (size_t n = 0; n < sizeof ggml_types / sizeof *ggml_types; n++)
        if (ggml_types[n].number == number)
            return &ggml_types[n];
    return NULL;
}

/* Return the bytes of a value of this type; 0 for strings, arrays and unknown types. */
static size_t value_size(uint32_t type)
{
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof sizes ? sizes[type] : 0;
}

/* ------------------------------------------------------------------------------------------------ bytes */

typedef struct reader {
    const char *path;
    char *err;
    const unsigned char *begin, *at, *end;
    bool cut; /* the file ended too early */
} reader;

static size_t left(const reader *r)
{
    return (size_t)(r->end - r->at);
}

/* Read an integer of n bytes. At the end of the file, return 0 and set r->cut. */
static uint64_t take_number(reader *r, size_t n)
{
    uint64_t x = 0;
    if (left(r) < n) {
        r->cut = true;
        return 0;
    }
    memcpy(&x, r->at, n);
    r->at += n;
    return x;
}

static io_gguf_text take_text(reader *r)
{
    const uint64_t size = take_number(r, 8);
    if (size > left(r)) {
        r->cut = true;
        return (io_gguf_text){"", 0};
    }
    const io_gguf_text text = {(const char *)r->at, (size_t)size};
    r->at += size;
    return text;
}

io_gguf_text io_gguf_next(const unsigned char **at)
{
    uint64_t size;
    memcpy(&size, *at, sizeof size);
    const io_gguf_text text = {(const char *)*at + sizeof size, (size_t)size};
    *at += sizeof size + size;
    return text;
}

static io_status is_cut(const reader *r, const char *what)
{
    return io_damaged(r->err, r->path, "the file ends within %s, at byte %zu (download it again)", what,
                      (size_t)(r->end - r->begin));
}

/* Copy a text for a message. */
static const char *safe_text(char *safe, size_t size, io_gguf_text text)
{
    char copy[128];
    const size_t n = text.size < sizeof copy ? text.size : sizeof copy - 1;
    memcpy(copy, text.at, n);
    copy[n] = 0;
    return io_safe(safe, size, copy);
}

/* ------------------------------------------------------------------------------------------------ keys */

/* Check the elements of an array of n strings, and advance past them. */
static void skip_strings(reader *r, uint64_t n)
{
    for (uint64_t k = 0; k < n && !r->cut; k++)
        take_text(r);
}

static io_status read_value(reader *r, io_gguf_value *v)
{
    char safe[96];
    uint32_t type = (uint32_t)take_number(r, 4);
    v->n = 1;
    v->array = type == GGUF_ARRAY;
    if (v->array) {
        type = (uint32_t)take_number(r, 4);
        v->n = take_number(r, 8);
    }
    v->type = (io_gguf_type)type;
    v->at = r->at;
    const size_t size = value_size(type), least = size > 0 ? size : 8; /* a string has at least its size */
    if (r->cut)
        return is_cut(r, "the keys");
    if (size == 0 && type != GGUF_STRING)
        return io_damaged(r->err, r->path, "key '%s' has values of type %u; supported are numbers and strings",
                          safe_text(safe, sizeof safe, v->key), type);
    if (v->n > left(r) / least)
        return io_damaged(r->err, r->path, "key '%s' has %llu values, but only %zu bytes follow (download it again)",
                          safe_text(safe, sizeof safe, v->key), (unsigned long long)v->n, left(r));
    if (size > 0)
        r->at += v->n * size;
    else
        skip_strings(r, v->n);
    v->bytes = (size_t)(r->at - v->at);
    return r->cut ? is_cut(r, "the keys") : IO_OK;
}

static int compare(io_gguf_text a, io_gguf_text b)
{
    const int order = memcmp(a.at, b.at, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int by_key(const void *a, const void *b)
{
    return compare(((const io_gguf_value *)a)->key, ((const io_gguf_value *)b)->key);
}

/* Check a key or the name of a tensor. */
static io_status check_name(const reader *r, io_gguf_text name, const char *what)
{
    char safe[96];
    if (name.size >= 1 && name.size <= MAX_NAME && io_utf8_all(name.at, name.size) &&
        memchr(name.at, 0, name.size) == NULL)
        return IO_OK;
    return io_damaged(r->err, r->path, "%s '%s' has %zu bytes; it must have 1 to %d, and be UTF-8 without NUL", what,
                      safe_text(safe, sizeof safe, name), name.size, MAX_NAME);
}

static io_status read_keys(reader *r, uint64_t n, io_gguf *keys)
{
    char safe[96];
    keys->values = calloc((size_t)n + 1, sizeof *keys->values);
    if (keys->values == NULL)
        return io_fail(r->err, r->path, "out of memory");
    for (; keys->n < n; keys->n++) {
        io_gguf_value *v = &keys->values[keys->n];
        v->key = take_text(r);
        io_status status = r->cut ? is_cut(r, "the keys") : check_name(r, v->key, "key");
        if (status == IO_OK)
            status = read_value(r, v);
        if (status != IO_OK)
            return status;
    }
    qsort(keys->values, keys->n, sizeof *keys->values, by_key);
    for (size_t k = 1; k < keys->n; k++)
        if (by_key(&keys->values[k - 1], &keys->values[k]) == 0)
            return io_damaged(r->err, r->path, "key '%s' occurs twice",
                              safe_text(safe, sizeof safe, keys->values[k].key));
    return IO_OK;
}

const io_gguf_value *io_gguf_find(const io_gguf *keys, const char *key)
{
    const io_gguf_value wanted = {.key = {key, strlen(key)}};
    return keys != NULL && keys->n > 0 ? bsearch(&wanted, keys->values, keys->n, sizeof *keys->values, by_key) : NULL;
}

bool io_gguf_integer(const io_gguf_value *v, int64_t *x)
{
    uint64_t bits = 0;
    if (v == NULL || v->array || v->type == GGUF_F32 || v->type == GGUF_F64 || v->type == GGUF_STRING)
        return false;
    memcpy(&bits, v->at, v->bytes);
    const int unused = 64 - 8 * (int)v->bytes;
    const bool negative = v->type == GGUF_I8 || v->type == GGUF_I16 || v->type == GGUF_I32 || v->type == GGUF_I64;
    *x = negative ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
    return negative || *x >= 0;
}

bool io_gguf_number(const io_gguf_value *v, double *x)
{
    int64_t integer;
    float single;
    if (io_gguf_integer(v, &integer)) {
        *x = (double)integer;
        return true;
    }
    if (v == NULL || v->array || (v->type != GGUF_F32 && v->type != GGUF_F64))
        return false;
    if (v->type == GGUF_F64) {
        memcpy(x, v->at, sizeof *x);
    } else {
        memcpy(&single, v->at, sizeof single);
        *x = (double)single;
    }
    return true;
}

bool io_gguf_is_text(const io_gguf_value *v, const char *text)
{
    if (v == NULL || v->array || v->type != GGUF_STRING)
        return false;
    const unsigned char *at = v->at;
    const io_gguf_text found = io_gguf_next(&at);
    return found.size == strlen(text) && memcmp(found.at, text, found.size) == 0;
}

/* ------------------------------------------------------------------------------------------------ tensors */

/* Compute the bytes of a tensor from its shape. */
static bool size_of(const ggml_type *type, const io_array *a, size_t *bytes)
{
    size_t numbers;
    if (!io_bytes(1, a->ndim, a->shape, &numbers))
        return false;
    const size_t row = a->ndim > 0 ? (size_t)a->shape[a->ndim - 1] : 1; /* blocks do not cross rows */
    return row % type->numbers == 0 && io_mul(numbers / type->numbers, type->bytes, bytes);
}

static io_status read_shape(reader *r, io_array *a, const char *safe)
{
    const uint32_t axes = (uint32_t)take_number(r, 4);
    if (axes > MAX_TENSOR_AXES)
        return io_damaged(r->err, r->path, "tensor '%s' has %u axes; it must have at most %d", safe, axes,
                          MAX_TENSOR_AXES);
    if (!io_set_shape(a, (int32_t)axes, NULL))
        return io_fail(r->err, r->path, "out of memory");
    for (uint32_t x = 0; x < axes; x++) {
        const uint64_t size = take_number(r, 8);
        if (size > INT64_MAX)
            return io_damaged(r->err, r->path, "tensor '%s' has an axis of %llu", safe, (unsigned long long)size);
        a->shape[axes - 1 - x] = (int64_t)size;
    }
    return IO_OK;
}

static size_t padded(size_t bytes, size_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

/* Read the type of a tensor and where its data begins, which must be *offset: the end of the tensor before it. */
static io_status read_place(reader *r, io_array *a, const char *safe, size_t alignment, size_t *offset)
{
    char why[IO_WHY_MAX];
    const uint32_t number = (uint32_t)take_number(r, 4);
    const uint64_t begin = take_number(r, 8);
    const ggml_type *type = type_of(number);
    size_t bytes;
    if (r->cut)
        return is_cut(r, "the tensors");
    if (type == NULL)
        return io_damaged(r->err, r->path, "tensor '%s' has the type %u, which is unknown", safe, number);
    if (!size_of(type, a, &bytes))
        return io_damaged(r->err, r->path,
                          "tensor '%s' of type %s is too large, or its rows are not whole blocks of %zu", safe,
                          type->name, type->numbers);
    if (begin != *offset)
        return io_damaged(r->err, r->path, "the data of tensor '%s' begins at %llu; it must begin at %zu", safe,
                          (unsigned long long)begin, *offset);
    if (bytes > left(r) || *offset > left(r) - bytes)
        return is_cut(r, "the data");
    *offset = padded(*offset + bytes, alignment);
    snprintf(why, sizeof why, "it has the type %s (use a file with Q8_0, Q4_K_M or F16)", type->name);
    if (type->dtype == IO_NO_DTYPE && !io_unsupported(a, why))
        return io_fail(r->err, r->path, "out of memory");
    a->dtype = (rp_dtype)type->dtype;
    a->bytes = bytes;
    a->borrowed = true;
    return IO_OK;
}

static io_status read_tensor(reader *r, io_set *set, size_t alignment, size_t *offset)
{
    char safe[96];
    const io_gguf_text name = take_text(r);
    io_status status = r->cut ? is_cut(r, "the tensors") : check_name(r, name, "tensor");
    if (status != IO_OK)
        return status;
    char *copy = strndup(name.at, name.size);
    io_array *a = copy != NULL ? io_push(set, copy) : NULL;
    free(copy);
    if (a == NULL)
        return io_fail(r->err, r->path, "out of memory");
    io_safe(safe, sizeof safe, a->name);
    status = read_shape(r, a, safe);
    return status == IO_OK ? read_place(r, a, safe, alignment, offset) : status;
}

/* Let the arrays point to their data, which follows the header. */
static io_status find_data(const reader *r, size_t alignment, io_set *set)
{
    char safe[96];
    const size_t size = (size_t)(r->end - r->begin);
    size_t at = padded((size_t)(r->at - r->begin), alignment);
    for (size_t n = 0; n < set->n_arrays; n++) {
        io_array *a = &set->arrays[n];
        if (at > size || a->bytes > size - at)
            return io_damaged(r->err, r->path,
                              "the data of tensor '%s' ends at byte %zu, but the file has %zu (download it again)",
                              io_safe(safe, sizeof safe, a->name), at + a->bytes, size);
        if (a->bytes > 0 && a->unsupported == NULL)
            a->data = (void *)(uintptr_t)(r->begin + at);
        at = padded(at + a->bytes, alignment);
        if (a->unsupported != NULL)
            a->bytes = 0;
    }
    return IO_OK;
}

static io_status read_tensors(reader *r, uint64_t n, const io_gguf *keys, io_set *set)
{
    int64_t alignment = ALIGNMENT;
    size_t offset = 0;
    const char *twice;
    char safe[96];
    const io_gguf_value *v = io_gguf_find(keys, "general.alignment");
    if (v != NULL && (!io_gguf_integer(v, &alignment) || alignment < 8 || alignment > MAX_ALIGNMENT ||
                      (alignment & (alignment - 1)) != 0))
        return io_damaged(r->err, r->path, "general.alignment must be a power of two from 8 to %d", MAX_ALIGNMENT);
    io_status status = IO_OK;
    for (uint64_t k = 0; k < n && status == IO_OK; k++)
        status = read_tensor(r, set, (size_t)alignment, &offset);
    if (status != IO_OK)
        return status;
    if (!io_duplicate(set, false, &twice))
        return io_fail(r->err, r->path, "out of memory");
    if (twice != NULL)
        return io_damaged(r->err, r->path, "tensor '%s' occurs twice", io_safe(safe, sizeof safe, twice));
    return find_data(r, (size_t)alignment, set);
}

/* ------------------------------------------------------------------------------------------------ the file */

bool io_is_gguf(const unsigned char *data, size_t size)
{
    return size >= MAGIC_SIZE && memcmp(data, MAGIC, MAGIC_SIZE) == 0;
}

io_status io_gguf_in_place(const char *path, const unsigned char *data, size_t size, io_gguf *keys, io_set *set,
                           char err[IO_ERR_MAX])
{
    enum { SMALLEST_TENSOR = 8 + 1 + 4 + 4 + 8, SMALLEST_KEY = 8 + 1 + 4 + 1 };
    reader r = {path, err, data, data + MAGIC_SIZE, data + size, false};
    const uint32_t version = (uint32_t)take_number(&r, 4);
    const uint64_t n_tensors = take_number(&r, 8), n_keys = take_number(&r, 8);
    if (r.cut)
        return is_cut(&r, "the header");
    if (version < 2 || version > 3)
        return io_damaged(err, path, "it is GGUF of version %u%s; it must be 2 or 3 (convert the model again)", version,
                          version > 0 && (version & 0xffff) == 0 ? ", or big-endian" : "");
    if (n_tensors > IO_MAX_ARRAYS || n_tensors > left(&r) / SMALLEST_TENSOR || n_keys > left(&r) / SMALLEST_KEY)
        return io_damaged(err, path, "it has %llu tensors and %llu keys, more than fit in its %zu bytes",
                          (unsigned long long)n_tensors, (unsigned long long)n_keys, size);
    const io_status status = read_keys(&r, n_keys, keys);
    return status == IO_OK ? read_tensors(&r, n_tensors, keys, set) : status;
}

void io_gguf_free(io_gguf *keys)
{
    free(keys->values);
    *keys = (io_gguf){0};
}
