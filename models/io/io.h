/* io.h -- reads and writes named arrays in .npz (NumPy) and .safetensors files. Readers treat every file as hostile.
 * Not part of librelpos: the program links it with jansson and libzip. Of relpos it uses only the types of elements.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_H
#define RELPOS_IO_H

#include <relpos/relpos.h>
#include <stdbool.h>
#include <sys/types.h>

typedef enum io_format { IO_UNKNOWN = 0, IO_NPZ, IO_SAFETENSORS } io_format;

/* One array of up to IO_MAX_AXES axes: row-major, in native byte order. */
#define IO_MAX_AXES 32
#define IO_NO_DTYPE ((rp_dtype)255) /* dtype of an array that cannot be used; not equal to any type */
typedef struct io_array {
    char *name; /* UTF-8, NUL-terminated */
    rp_dtype dtype;
    int32_t ndim;
    int64_t *shape;    /* ndim sizes, owned by the set; may be NULL if the array cannot be used */
    size_t bytes;      /* product of shape * size of dtype */
    void *data;        /* from malloc, or borrowed; NULL if bytes == 0 */
    bool borrowed;     /* the set does not free data */
    char *unsupported; /* reason why this array cannot be used (dtype IO_NO_DTYPE, data NULL, bytes 0); NULL: it can */
} io_array;

/* The contents of one file. */
typedef bool io_wanted(const void *context, const char *name);
typedef struct io_set {
    io_wanted *wanted; /* filter of io_read_wanted; NULL: read every array */
    const void *wanted_context;
    io_array *arrays;
    size_t n_arrays;
    char **meta_keys, **meta_values; /* __metadata__ of safetensors; strings of .npz as JSON lists */
    size_t n_meta;
} io_set;

/* Status of a call. On failure err has one line, "<path>: <reason> (<what to do>)". */
#define IO_ERR_MAX 512
typedef enum io_status {
    IO_OK = 0,
    IO_FAILED = -1,  /* the file cannot be opened, read or written, or out of memory; its contents may be valid */
    IO_DAMAGED = -2, /* the contents of the file are not valid */
    IO_ABSENT = -3   /* there is no such file */
} io_status;

/* Return the format for the suffix of a path; IO_UNKNOWN for other suffixes and for "-". */
io_format io_format_of(const char *path);

/* Read a file; path "-" is standard input. The suffix determines the format; without a known suffix the first bytes
 * do ("PK" or a safetensors header). *set is empty after a failure. *found (may be NULL) receives the format. Arrays
 * are in the order of the file. Big-endian and column-major .npy arrays are converted. Names are unique UTF-8 of any
 * content, such as "../x" or a line feed. They are keys, not paths; print them with io_safe. Devices and directories
 * are refused; a pipe may have at most 16 GiB. */
io_status io_read(const char *path, io_set *set, io_format *found, char err[IO_ERR_MAX]);

/* Like io_read, but read only arrays for which wanted(context, name) is true. The others are neither inflated nor
 * copied: they are in the set and cannot be used. Strings, which become metadata, are always read. */
io_status io_read_wanted(const char *path, io_wanted *wanted, const void *context, io_set *set, io_format *found,
                         char err[IO_ERR_MAX]);

/* Write a file completely or not at all; path "-" is standard output. A temporary file beside the target is written,
 * flushed and renamed over it. Temporary files that killed programs left there are removed. For a symbolic link the
 * file that it leads to is replaced. An existing pipe or device is written directly. A failed write leaves an
 * existing file unchanged and sends no signal. Equal sets give equal bytes. .npz omits metadata, and refuses
 * RP_BF16; .safetensors stores arrays of wide elements first, so that each array is aligned. */
int io_write(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);

/* Like io_write, for a path that only this program uses, one process at a time. A link or pipe at path is replaced
 * instead of written to, as is a temporary file that a killed process left. */
int io_replace(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);

/* Set *folder to true if path is a directory, to false if it is not or does not exist. IO_FAILED if stat fails. */
io_status io_is_folder(const char *path, bool *folder, char err[IO_ERR_MAX]);

/* Flush the directory of a renamed file, so that its name survives a crash. Return 0 or the error number. */
int io_sync_directory(const char *file);

/* Make a temporary file or folder beside `target`, which the caller later renames to it. Return a descriptor, and
 * its path, to be freed, in *path; -1 with errno on failure. Closing the descriptor unlocks it. Temporary files that
 * killed programs left for the same target are removed first. */
int io_temporary(const char *target, bool folder, mode_t mode, char **path);
/* Remove a temporary file, or a temporary folder with its files. Needs neither memory nor a descriptor. */
void io_remove_temporary(int fd, const char *path);

/* Write bytes (a picture or text) to a file as io_write does. */
int io_write_bytes(const char *path, const void *data, size_t size, char err[IO_ERR_MAX]);

/* Return the array of that name if it can be used; otherwise NULL with a line in err: array "x": <reason> (<what to
 * do>). */
const io_array *io_take(const io_set *set, const char *name, char err[IO_ERR_MAX]);
const io_array *io_find(const io_set *set, const char *name); /* of any type; NULL if absent */
const char *io_meta(const io_set *set, const char *key);      /* NULL if absent */
/* Append an array; the name is copied. The set will free data unless it is borrowed. Return 0; or -1 if out of
 * memory or the size of the shape overflows, in which case the caller still owns data. Sets must grow only by io_add
 * and io_add_meta. */
int io_add(io_set *set, const char *name, rp_dtype dtype, int32_t ndim, const int64_t *shape, void *data,
           bool borrowed);
int io_add_meta(io_set *set, const char *key, const char *value); /* copies both */
void io_free(io_set *set);

/* Return a checksum, which changes with every bit of the data. z is the checksum of the preceding data. */
uint64_t io_checksum(uint64_t z, const void *data, size_t size);

/* Return the bytes of the valid UTF-8 sequence at text; 0 if it is not valid. */
size_t io_utf8(const unsigned char *text, size_t size);

/* Copy a name from a file to buf for printing: control characters and bytes that are not UTF-8 become \xNN, and the
 * text is cut to fit. Return buf. */
const char *io_safe(char *buf, size_t size, const char *name);

#endif
