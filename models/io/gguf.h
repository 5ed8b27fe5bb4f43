/* gguf.h -- the keys of a .gguf file, the format of llama.cpp. io_checkpoint_open maps its tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_GGUF_H
#define RELPOS_GGUF_H

#include "io/io.h"

typedef enum io_gguf_type { /* numbered as in the format */
                            GGUF_U8 = 0,
                            GGUF_I8 = 1,
                            GGUF_U16 = 2,
                            GGUF_I16 = 3,
                            GGUF_U32 = 4,
                            GGUF_I32 = 5,
                            GGUF_F32 = 6,
                            GGUF_BOOL = 7,
                            GGUF_STRING = 8,
                            GGUF_ARRAY = 9,
                            GGUF_U64 = 10,
                            GGUF_I64 = 11,
                            GGUF_F64 = 12
} io_gguf_type;

/* A string in the mapped file. It is not terminated by NUL. */
typedef struct io_gguf_text {
    const char *at;
    size_t size;
} io_gguf_text;

typedef struct io_gguf_value {
    io_gguf_text key;
    io_gguf_type type; /* for an array, the type of its elements */
    bool array;
    uint64_t n;              /* number of elements; 1 if it is no array */
    const unsigned char *at; /* the elements; unaligned */
    size_t bytes;
} io_gguf_value;

typedef struct io_gguf {
    io_gguf_value *values; /* sorted by key */
    size_t n;
} io_gguf;

bool io_is_gguf(const unsigned char *data, size_t size);
/* Read the header without copying: the values and the arrays of *set borrow `data`. Axes are in the order of NumPy.
 * Tensors of blocks get the types of io/block_types.h. */
io_status io_gguf_in_place(const char *path, const unsigned char *data, size_t size, io_gguf *keys, io_set *set,
                           char err[IO_ERR_MAX]);
void io_gguf_free(io_gguf *keys);

/* Return the value of a key, or NULL. keys may be NULL. */
const io_gguf_value *io_gguf_find(const io_gguf *keys, const char *key);
/* Read an integer, a boolean or a float. Return false for other values and integers above INT64_MAX. */
bool io_gguf_integer(const io_gguf_value *v, int64_t *x);
bool io_gguf_number(const io_gguf_value *v, double *x);
bool io_gguf_is_text(const io_gguf_value *v, const char *text);
/* Read the string at *at, and advance *at past it. io_gguf_in_place has checked the strings of a value. */
io_gguf_text io_gguf_next(const unsigned char **at);

#endif
