/* io.h -- named arrays in files: .npz (NumPy) and .safetensors. Every reader treats its file as hostile.
 * Not part of librelpos: the program links it, with jansson and libzip.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_H
#define RELPOS_IO_H

#include <relpos/relpos.h>
#include <stdbool.h>

typedef enum io_format { IO_UNKNOWN = 0, IO_NPZ, IO_SAFETENSORS } io_format;

/* One array: row-major, native byte order, owned. io_array may have up to IO_MAX_AXES axes. */
#define IO_MAX_AXES 32
#define IO_NO_DTYPE ((rp_dtype)255) /* of an array that cannot be used: it equals no type that a caller may want */
typedef struct io_array {
    char *name; /* UTF-8, NUL-terminated */
    rp_dtype dtype;
    int32_t ndim;
    int64_t shape[IO_MAX_AXES];
    size_t bytes;      /* product of shape * size of dtype */
    void *data;        /* malloc'd, NULL when bytes == 0; or borrowed, see below */
    bool borrowed;     /* the set does not free data */
    char *unsupported; /* not NULL: why this array cannot be used; dtype is IO_NO_DTYPE, data NULL and bytes 0 */
} io_array;

/* The content of one file. */
typedef struct io_set {
    io_array *arrays;
    size_t n_arrays;
    char **meta_keys, **meta_values; /* safetensors __metadata__ */
    size_t n_meta;
} io_set;

/* What a call returns: IO_OK, or another status with one line in err: "<path>: <why> (<how to mend>)". */
#define IO_ERR_MAX 512
typedef enum io_status {
    IO_OK = 0,
    IO_FAILED =
        -1, /* it could not be opened, read or written, or memory was wanting: that says nothing of what it holds */
    IO_DAMAGED = -2, /* it was read, and is not what its format asks for */
    IO_ABSENT = -3   /* there is no such file */
} io_status;

io_format io_format_of(const char *path); /* by suffix, IO_UNKNOWN for others (and for "-") */

/* Read a whole file. path "-" is standard input. The format is that of the suffix; for "-", or another suffix, by the
 * first bytes ("PK" or a safetensors header). *set is empty after a failure. *found (may be NULL) receives the format.
 * Arrays keep the file's order. Big-endian and column-major .npy arrays arrive as every other; names are unique UTF-8,
 * but may be anything, "../x" or a line feed: keys, not paths, and printed through io_safe. Devices and directories are
 * refused; a pipe gives at most 16 GiB. */
io_status io_read(const char *path, io_set *set, io_format *found, char err[IO_ERR_MAX]);

/* Write a whole file, or nothing: a temporary beside the target, flushed, then renamed over it (a symbolic link's
 * target is replaced, not the link). path "-" is standard output. A failed write leaves an existing file as it was.
 * An existing pipe or device is written straight to. Equal sets give equal bytes. No signal of a failed write gets
 * through. .npz has no place for metadata, which is left out, nor for RP_BF16, which is an error; .safetensors puts
 * the arrays of wide elements first, so that each is aligned. */
int io_write(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);

/* The same to a name that is the program's own: what lies there is replaced, also a link or a pipe, and never written to. */
int io_replace(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);

/* Write bytes the same way (for pictures and text). */
int io_write_bytes(const char *path, const void *data, size_t size, char err[IO_ERR_MAX]);

/* The array of that name, to be read: dtype and data are there. NULL with one line in err, "array "x": <why> (<how to mend>)",
 * where there is none or its type cannot be used. */
const io_array *io_take(const io_set *set, const char *name, char err[IO_ERR_MAX]);
const io_array *io_find(const io_set *set, const char *name); /* whatever its type; NULL if absent */
const char *io_meta(const io_set *set, const char *key);      /* NULL if absent */
/* Append an array whose data the set takes over (free) or, with borrowed, does not; the name is copied. 0, or -1 for
 * want of memory or a shape that has no size (the caller keeps data). Sets grow by these calls only. */
int io_add(io_set *set, const char *name, rp_dtype dtype, int32_t ndim, const int64_t *shape, void *data,
           bool borrowed);
int io_add_meta(io_set *set, const char *key, const char *value); /* both copied */
void io_free(io_set *set);

/* Bytes of the valid UTF-8 sequence at text, 0 if there is none. */
size_t io_utf8(const unsigned char *text, size_t size);

/* A name from a file made safe to print: control and non-UTF-8 bytes as \xNN, cut to fit. Returns buf. */
const char *io_safe(char *buf, size_t size, const char *name);

#endif
