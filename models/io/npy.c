/* npy.c -- parses and writes the header of NumPy's .npy format, and reorders elements in memory.
 *
 *     byte 0  \x93NUMPY   6  version (1,0) (2,0) (3,0)   8  length of the dictionary, u16 (from 2.0 on: u32)
 *          10 or 12  {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } spaces \n   then the elements
 *
 * The dictionary is a Python literal. NumPy evaluates it; this parser accepts only the forms that NumPy writes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const unsigned char *p, *end;
    const unsigned char *base; /* start of the header, for offsets in messages */
    char *why;
} cursor;

static bool fail(const cursor *c, const char *what)
{
    snprintf(c->why, IO_WHY_MAX, "malformed .npy header at byte %td: %s", c->p - c->base, what);
    return false;
}

static void skip_space(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
        c->p++;
}

/* Skip spaces, and the next character if it is `expected`. */
static bool take_char(cursor *c, char expected)
{
    skip_space(c);
    if (c->p == c->end || *c->p != expected)
        return false;
    c->p++;
    return true;
}

/* Match a word that is not followed by a letter or digit. */
static bool take_word(cursor *c, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(c->end - c->p) <= n || memcmp(c->p, word, n) != 0) /* at least '}' must follow */
        return false;
    const unsigned char next = c->p[n];
    if (next != ' ' && next != ',' && next != '}' && next != '\n')
        return false;
    c->p += n;
    return true;
}

/* Match a string in single or double quotes, without escapes; *text points into the header. */
static bool take_string(cursor *c, const unsigned char **text, size_t *size)
{
    skip_space(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return fail(c, "expected a string");
    const unsigned char quote = *c->p++;
    *text = c->p;
    while (c->p < c->end && *c->p != quote) {
        if (*c->p < ' ' || *c->p == '\\')
            return fail(c, "a control character or an escape in a string");
        c->p++;
    }
    if (c->p == c->end)
        return fail(c, "a string does not end");
    *size = (size_t)(c->p++ - *text);
    return true;
}

/* Skip the list that describes a structured dtype. Such dtypes are not supported. */
static bool skip_brackets(cursor *c)
{
    size_t depth = 0;
    while (c->p < c->end) {
        const unsigned char ch = *c->p++;
        if (ch == '[' || ch == '(') {
            depth++;
        } else if (ch == ']' || ch == ')') {
            if (--depth == 0) /* depth cannot underflow: the first character is an opening bracket */
                return true;
        } else if (ch == '\'' || ch == '"') {
            while (c->p < c->end && *c->p != ch)
                c->p += *c->p == '\\' && c->end - c->p > 1 ? 2 : 1;
            if (c->p == c->end)
                break;
            c->p++;
        } else if (ch < ' ' && ch != '\n' && ch != '\t') {
            return fail(c, "a control character");
        }
    }
    return fail(c, "a list does not end");
}

/* Read a dtype string such as "<f4". */
static void read_dtype(const unsigned char *text, size_t size, io_npy *npy)
{
    static const struct {
        char kind[3];
        rp_dtype dtype;
    } types[] = {{"f4", RP_F32}, {"f8", RP_F64}, {"f2", RP_F16}, {"b1", RP_BOOL}, {"u1", RP_U8},  {"i1", RP_I8},
                 {"u2", RP_U16}, {"i2", RP_I16}, {"u4", RP_U32}, {"i4", RP_I32},  {"u8", RP_U64}, {"i8", RP_I64}};
    const bool has_order = size > 0 && (text[0] == '<' || text[0] == '>' || text[0] == '=' || text[0] == '|');
    const unsigned char *kind = text + has_order;
    const size_t kind_size = size - has_order;

    npy->swap = has_order && text[0] == '>';
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        if (kind_size == 2 && memcmp(kind, types[n].kind, 2) == 0) {
            npy->dtype = types[n].dtype;
            return;
        }
    }
    if (kind_size > 1 && kind_size < 8 && kind[0] == 'U') {
        for (size_t n = 1; n < kind_size; n++)
            npy->text_width = kind[n] < '0' || kind[n] > '9' || (n > 1 && npy->text_width == 0)
                                  ? 0
                                  : npy->text_width * 10 + (size_t)(kind[n] - '0');
    }
    char copy[64], safe[100];
    const size_t n = size < sizeof copy - 1 ? size : sizeof copy - 1;
    memcpy(copy, text, n);
    copy[n] = 0;
    const char *hint = "save it as float32, float64 or an integer type";
    if (kind_size > 0 && kind[0] == 'O')
        hint = "Python objects; relpos never reads pickles";
    else if (kind_size == 2 && memcmp(kind, "V2", 2) == 0)
        hint = "if this is bfloat16, save it in a .safetensors file";
    snprintf(npy->unsupported, sizeof npy->unsupported, "it has the dtype '%s' (%s)", io_safe(safe, sizeof safe, copy),
             hint);
}

/* Write a character of a JSON string to `to`, in at most 6 bytes. Return the end of the output, or NULL if the
 * character is not Unicode. */
static char *put_character(char *to, uint32_t c)
{
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return NULL;
    if (c < ' ' || c == '"' || c == '\\')
        return to + sprintf(to, "\\u%04x", (unsigned)c);
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes of UTF-8 after the first */
    *to++ = (char)((0xf00 >> (more + 1) & 0xff) | c >> 6 * more);
    for (int n = more - 1; n >= 0; n--)
        *to++ = (char)(0x80 | (c >> 6 * n & 0x3f));
    return to;
}

char *io_npy_strings(const io_npy *npy, const unsigned char *data, bool *no_memory)
{
    const size_t n = (size_t)npy->shape[0], width = npy->text_width;
    char *const json = malloc(n * (6 * width + 4) + 3), *to = json; /* 4 extra bytes per string: quotes, comma, space */
    *no_memory = json == NULL;
    if (json == NULL)
        return NULL;
    *to++ = '[';
    for (size_t s = 0; s < n; s++, data += 4 * width) {
        size_t length = width; /* NumPy pads shorter strings with zeros */
        while (length > 0 && memcmp(data + 4 * (length - 1), "\0\0\0\0", 4) == 0)
            length--;
        to += sprintf(to, s ? ", \"" : "\"");
        for (size_t x = 0; to != NULL && x < length; x++) {
            const unsigned char *p = data + 4 * x;
            const unsigned char b[4] = {p[npy->swap ? 3 : 0], p[npy->swap ? 2 : 1], p[npy->swap ? 1 : 2],
                                        p[npy->swap ? 0 : 3]};
            to = put_character(to, b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
        }
        if (to == NULL) {
            free(json);
            return NULL;
        }
        *to++ = '"';
    }
    *to++ = ']';
    *to = 0;
    return json;
}

static bool take_axis(cursor *c, int64_t *axis)
{
    const unsigned char *start = c->p;
    int64_t value = 0;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *c->p - '0', &value))
            return fail(c, "an axis does not fit in 63 bits");
        c->p++;
    }
    if (c->p == start)
        return fail(c, *start == '-' ? "a negative axis" : "expected the length of an axis");
    if (*start == '0' && c->p - start > 1)
        return fail(c, "an axis with leading zeros");
    if (c->p < c->end && *c->p == 'L') /* written by Python 2 */
        c->p++;
    *axis = value;
    return true;
}

static bool take_shape(cursor *c, io_npy *npy)
{
    if (!take_char(c, '('))
        return fail(c, "the shape is not a tuple");
    npy->ndim = 0;
    bool comma = true;
    while (!take_char(c, ')')) {
        if (!comma)
            return fail(c, "a comma is missing in the shape");
        if (c->p == c->end)
            return fail(c, "the shape does not end");
        if (npy->ndim == IO_MAX_AXES)
            return fail(c, "more than 32 axes");
        if (!take_axis(c, &npy->shape[npy->ndim++]))
            return false;
        comma = take_char(c, ',');
    }
    if (npy->ndim == 1 && !comma)
        return fail(c, "the shape is a number, not a tuple");
    return true;
}

bool io_npy_extent(const unsigned char *start, size_t *begin, size_t *end, char why[IO_WHY_MAX])
{
    if (memcmp(start, "\x93NUMPY", 6) != 0) {
        snprintf(why, IO_WHY_MAX, "it does not begin like an .npy file");
        return false;
    }
    if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
        snprintf(why, IO_WHY_MAX, "it has .npy version %d.%d (supported: 1.0, 2.0, 3.0)", start[6], start[7]);
        return false;
    }
    size_t length = start[8] | (size_t)start[9] << 8;
    if (start[6] > 1)
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    if (length > IO_NPY_HEADER_MAX) {
        snprintf(why, IO_WHY_MAX, "its .npy header has %zu bytes (at most %d are supported)", length,
                 IO_NPY_HEADER_MAX);
        return false;
    }
    *begin = start[6] > 1 ? 12 : 10;
    *end = *begin + length;
    if (*end < IO_NPY_START) {
        snprintf(why, IO_WHY_MAX, "its .npy header is empty");
        return false;
    }
    return true;
}

bool io_npy_header(const unsigned char *header, size_t begin, size_t end, io_npy *npy, char why[IO_WHY_MAX])
{
    enum { DESCR = 1, FORTRAN = 2, SHAPE = 4 };
    static const struct {
        const char *name;
        unsigned flag;
    } keys[] = {{"descr", DESCR}, {"fortran_order", FORTRAN}, {"shape", SHAPE}};
    cursor c = {header + begin, header + end, header, why};
    unsigned seen = 0;
    bool comma = true;

    memset(npy, 0, sizeof *npy);
    if (header[6] == 3 && !io_utf8_all(c.p, end - begin))
        return fail(&c, "version 3.0 must be UTF-8");
    if (!take_char(&c, '{'))
        return fail(&c, "expected a dictionary");
    while (!take_char(&c, '}')) {
        const unsigned char *text;
        size_t size;
        unsigned flag = 0;
        if (!comma)
            return fail(&c, "a comma is missing");
        if (!take_string(&c, &text, &size))
            return false;
        for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
            if (size == strlen(keys[n].name) && memcmp(text, keys[n].name, size) == 0)
                flag = keys[n].flag;
        if (flag == 0)
            return fail(&c, "a key other than descr, fortran_order and shape");
        if (seen & flag)
            return fail(&c, "a key occurs twice");
        seen |= flag;
        if (!take_char(&c, ':'))
            return fail(&c, "a colon is missing");
        skip_space(&c);
        if (flag == DESCR && c.p < c.end && *c.p == '[') {
            if (!skip_brackets(&c))
                return false;
            snprintf(npy->unsupported, sizeof npy->unsupported,
                     "it is a structured array (save each field as a separate array)");
        } else if (flag == DESCR) {
            if (!take_string(&c, &text, &size))
                return false;
            read_dtype(text, size, npy);
        } else if (flag == FORTRAN) {
            npy->fortran = take_word(&c, "True");
            if (!npy->fortran && !take_word(&c, "False"))
                return fail(&c, "fortran_order is neither True nor False");
        } else if (!take_shape(&c, npy)) {
            return false;
        }
        comma = take_char(&c, ',');
    }
    skip_space(&c);
    if (c.p != c.end)
        return fail(&c, "text after the dictionary");
    if (seen != (DESCR | FORTRAN | SHAPE))
        return fail(&c, "descr, fortran_order or shape is missing");
    const size_t element = npy->unsupported[0] ? 1 : io_dtype_size(npy->dtype);
    if (!io_bytes(element, npy->ndim, npy->shape, &npy->bytes))
        return fail(&c, "the product of the shape is too large");
    if (npy->unsupported[0])
        npy->bytes = 0;
    return true;
}

static void swap_bytes(unsigned char *data, size_t bytes, size_t element)
{
    for (size_t at = 0; at < bytes; at += element) {
        for (size_t n = 0; n < element / 2; n++) {
            const unsigned char low = data[at + n];
            data[at + n] = data[at + element - 1 - n];
            data[at + element - 1 - n] = low;
        }
    }
}

bool io_npy_to_native(const io_npy *npy, void **data)
{
    const size_t element = io_dtype_size(npy->dtype);
    if (npy->bytes == 0)
        return true;
    if (npy->swap)
        swap_bytes(*data, npy->bytes, element);
    if (!npy->fortran || npy->ndim < 2)
        return true;

    unsigned char *to = malloc(npy->bytes);
    if (to == NULL)
        return false;
    /* Visit the elements of the result in order with a multi-index. `from` is the offset of the current element in the
     * file. */
    size_t stride[IO_MAX_AXES], from = 0;
    int64_t index[IO_MAX_AXES] = {0};
    stride[0] = element;
    for (int32_t x = 1; x < npy->ndim; x++)
        stride[x] = stride[x - 1] * (size_t)npy->shape[x - 1]; /* no overflow: it divides npy->bytes */
    for (size_t at = 0; at < npy->bytes; at += element) {
        memcpy(to + at, (const unsigned char *)*data + from, element);
        for (int32_t x = npy->ndim - 1; x >= 0; x--) {
            from += stride[x];
            if (++index[x] < npy->shape[x])
                break;
            from -= stride[x] * (size_t)npy->shape[x];
            index[x] = 0;
        }
    }
    free(*data);
    *data = to;
    return true;
}

size_t io_npy_text(const io_array *array, char text[IO_NPY_TEXT_MAX])
{
    static const char *const descr[] = {
        [RP_F32] = "<f4", [RP_F64] = "<f8", [RP_F16] = "<f2", [RP_BF16] = NULL, [RP_BOOL] = "|b1",
        [RP_U8] = "|u1",  [RP_I8] = "|i1",  [RP_U16] = "<u2", [RP_I16] = "<i2", [RP_U32] = "<u4",
        [RP_I32] = "<i4", [RP_U64] = "<u8", [RP_I64] = "<i8"};
    if (io_dtype_size(array->dtype) == 0 || descr[array->dtype] == NULL)
        return 0;
    /* 32 axes of at most 19 digits and ", " take at most 672 bytes, the other words less than 80, and the spaces and
     * newline at most 85: less than IO_NPY_TEXT_MAX. */
    size_t n = 10;
    n += (size_t)sprintf(text + n, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr[array->dtype]);
    for (int32_t x = 0; x < array->ndim; x++)
        n += (size_t)sprintf(text + n, x == 0 ? "%lld" : ", %lld", (long long)array->shape[x]);
    n += (size_t)sprintf(text + n, array->ndim == 1 ? ",), }" : "), }");
    /* Like NumPy, leave space for 21 digits of the first axis, which can then grow in place. Then pad to a multiple of
     * 64 with at least one space and the newline. */
    if (array->ndim > 0) {
        char first[24];
        for (int digits = sprintf(first, "%lld", (long long)array->shape[0]); digits < 21; digits++)
            text[n++] = ' ';
    }
    do
        text[n++] = ' ';
    while ((n + 1) % 64 != 0);
    text[n++] = '\n';
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)((n - 10) & 0xff);
    text[9] = (char)((n - 10) >> 8);
    return n;
}
