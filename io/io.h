/* io.h -- named arrays in files: .npz (NumPy) and .safetensors. Every reader treats its file as hostile.
 * Not part of librelpos: the program links it, with jansson and libzip. Of relpos it knows types of elements, and no attention.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_H
#define RELPOS_IO_H

#include <relpos/relpos.h>
#include <stdbool.h>
#include <sys/types.h>

typedef enum io_format { IO_UNKNOWN = 0, IO_NPZ, IO_SAFETENSORS } io_format;

/* One array: row-major, native byte order, owned. io_array may have up to IO_MAX_AXES axes. */
#define IO_MAX_AXES 32
#define IO_NO_DTYPE ((rp_dtype)255) /* of an array that cannot be used; it is not equal to any type */
typedef struct io_array {
    char *name; /* UTF-8, NUL-terminated */
    rp_dtype dtype;
    int32_t ndim;
    int64_t *shape;    /* of ndim sizes, owned by the set; NULL where an array that cannot be used has none */
    size_t bytes;      /* product of shape * size of dtype */
    void *data;        /* from malloc, NULL when bytes == 0; or borrowed */
    bool borrowed;     /* the set does not free data */
    char *unsupported; /* not NULL: why this array cannot be used; dtype is IO_NO_DTYPE, data NULL and bytes 0 */
} io_array;

/* The content of one file. */
typedef bool io_wanted(const void *context, const char *name);
typedef struct io_set {
    io_wanted *wanted; /* of io_read_wanted; NULL: every array is */
    const void *wanted_context;
    io_array *arrays;
    size_t n_arrays;
    char **meta_keys, **meta_values; /* __metadata__ of safetensors; strings of .npz as JSON lists */
    size_t n_meta;
} io_set;

/* What a call returns: IO_OK, or another status with one line in err: "<path>: <why> (<how to mend>)". */
#define IO_ERR_MAX 512
typedef enum io_status {
    IO_OK = 0,
    IO_FAILED = -1,  /* the file could not be opened, read or written, or memory ran out; its content may be valid */
    IO_DAMAGED = -2, /* the file was read, and its content is not valid */
    IO_ABSENT = -3   /* there is no such file */
} io_status;

io_format io_format_of(const char *path); /* by suffix, IO_UNKNOWN for others (and for "-") */

/* Read a file. path "-" is standard input. The format is that of the suffix; for "-", or another suffix, by the
 * first bytes ("PK" or a safetensors header). *set is empty after a failure. *found (may be NULL) receives the format.
 * Arrays keep the file's order. Big-endian and column-major .npy arrays are converted. Names are unique UTF-8, and may
 * be anything, such as "../x" or a line feed: they are keys, not paths, and are printed through io_safe. Devices and
 * directories are refused; a pipe may give at most 16 GiB. */
io_status io_read(const char *path, io_set *set, io_format *found, char err[IO_ERR_MAX]);

/* The same, and arrays for whose names wanted(context, name) says no are neither inflated nor copied: they are there, and cannot be used.
 * Strings, which are metadata, are read as ever. */
io_status io_read_wanted(const char *path, io_wanted *wanted, const void *context, io_set *set, io_format *found,
                         char err[IO_ERR_MAX]);

/* Write a file completely or not at all: a temporary file beside the target is written, flushed and renamed over it (for a
 * symbolic link its target is replaced, not the link); what killed programs left of it is removed. path "-" is standard output. A failed write leaves an existing file
 * as it was, and sends no signal. An existing pipe or device is written directly. Equal sets give equal bytes. .npz cannot
 * hold metadata, which is left out, nor RP_BF16, which is an error; .safetensors has arrays of wide elements first, so
 * that each is aligned. */
int io_write(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);

/* The same to a name that only this program uses, one at a time: a link or a pipe of that name is replaced too, and never written
 * to, and so is what a killed program left of it. */
int io_replace(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);

/* Whether a path is a folder; what is not there is none. IO_FAILED where the system does not tell. */
io_status io_is_folder(const char *path, bool *folder, char err[IO_ERR_MAX]);

/* Flush the directory of a file that was renamed, so that its name survives a crash. Returns 0, or the error number. */
int io_sync_directory(const char *file);

/* Make a temporary file or folder beside `target`, to be renamed to it; its path, to be freed, is in *path. It is locked until the descriptor
 * that is returned is closed, and what killed programs left of the same target is removed first. -1 with errno. */
int io_temporary(const char *target, bool folder, mode_t mode, char **path);
void io_remove_temporary(int fd,
                         const char *path); /* a folder with the files in it; it needs no memory and no descriptor */

/* Write bytes the same way (for pictures and text). */
int io_write_bytes(const char *path, const void *data, size_t size, char err[IO_ERR_MAX]);

/* The array of that name, with a type that can be used. If there is none, NULL with one line in err: array "x": <why> (<how to
 * mend>). */
const io_array *io_take(const io_set *set, const char *name, char err[IO_ERR_MAX]);
const io_array *io_find(const io_set *set, const char *name); /* of any type; NULL if absent */
const char *io_meta(const io_set *set, const char *key);      /* NULL if absent */
/* Append an array; the name is copied. The set will free data, unless it is borrowed. Returns 0; or -1 if memory runs out or
 * the size of the shape does not fit, and then the caller keeps data. Sets grow by these calls only. */
int io_add(io_set *set, const char *name, rp_dtype dtype, int32_t ndim, const int64_t *shape, void *data,
           bool borrowed);
int io_add_meta(io_set *set, const char *key, const char *value); /* both copied */
void io_free(io_set *set);

/* A checksum that every changed bit of the data changes; z: the checksum of the data before it. */
uint64_t io_checksum(uint64_t z, const void *data, size_t size);

/* Bytes of the valid UTF-8 sequence at text, 0 if there is none. */
size_t io_utf8(const unsigned char *text, size_t size);

/* Make a name from a file safe to print: control characters and bytes that are not UTF-8 become \xNN, and it is cut to fit. Returns buf. */
const char *io_safe(char *buf, size_t size, const char *name);

#endif
