/* io.h -- reads and writes named arrays in .npz (NumPy) and .safetensors files. Readers treat every file as hostile.
 * Not part of librelpos; the relpos program links it with jansson and libzip. It uses only the element types of relpos.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_H
#define RELPOS_IO_H

#include <relpos/relpos.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
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
    void *data;        /* from malloc, or borrowed; NULL if bytes == 0, or if it is read in parts */
    bool borrowed;     /* the set does not free data */
    off_t at;          /* for an array that is read in parts: its place in the file */
    char *unsupported; /* why the array cannot be used (dtype IO_NO_DTYPE, data NULL, bytes 0); otherwise NULL */
} io_array;

/* The contents of one file. */
typedef bool io_wanted(const void *context, const char *name);
typedef struct io_set {
    io_wanted *wanted; /* filter of io_read_wanted; NULL: read every array */
    const void *wanted_context;
    io_wanted *in_parts; /* filter of io_read_parts; NULL: none */
    int parts_file;      /* 1 + the file that io_read_part reads; 0: none */
    io_array *arrays;
    size_t n_arrays;
    char **meta_keys, **meta_values; /* __metadata__ of safetensors; strings of .npz as JSON lists */
    size_t n_meta;
    char *note; /* which tensors of a file of torch.save were left out; NULL: none */
} io_set;

/* Status of a call. On failure, err contains one line, "<path>: <reason> (<what to do>)". */
#define IO_ERR_MAX 512
typedef enum io_status {
    IO_OK = 0,
    IO_FAILED = -1,  /* the file cannot be opened, read or written, or out of memory; its contents may be valid */
    IO_DAMAGED = -2, /* the contents of the file are not valid */
    IO_ABSENT = -3   /* there is no such file */
} io_status;

/* Return the format that belongs to the suffix of a path; IO_UNKNOWN for other suffixes and for "-". */
io_format io_format_of(const char *path);

/* Read a file; path "-" is standard input. The suffix selects the format. Without a known suffix, the first bytes
 * select it ("PK" or a safetensors header). *found (may be NULL) receives the format. On failure *set is empty. Arrays
 * keep the order of the file. Big-endian and column-major .npy arrays are converted. Names are unique, valid UTF-8, and
 * otherwise arbitrary: "../x" and line feeds are possible. Use them as keys, never as paths, and print them with
 * io_safe. Devices and directories are refused; a pipe may deliver at most 16 GiB. */
io_status io_read(const char *path, io_set *set, io_format *found, char err[IO_ERR_MAX]);

/* Like io_read, but load only the arrays for which wanted(context, name) is true. Other arrays are neither inflated nor
 * copied; the set lists them as unusable. Strings, which become metadata, are always read. */
io_status io_read_wanted(const char *path, io_wanted *wanted, const void *context, io_set *set, io_format *found,
                         char err[IO_ERR_MAX]);

/* Like io_read_wanted, for a .safetensors file that is neither a pipe nor standard input. Arrays for which
 * in_parts(context, name) is true are not read: the set has their types and shapes, and `bytes`, but no data. */
io_status io_read_parts(const char *path, io_wanted *wanted, io_wanted *in_parts, const void *context, io_set *set,
                        char err[IO_ERR_MAX]);
/* Read elements first … first + n - 1 of such an array. The file stays open until io_free. */
io_status io_read_part(const io_set *set, const io_array *array, int64_t first, int64_t n, void *to,
                       char err[IO_ERR_MAX]);

/* Write a file completely or not at all; path "-" is standard output. The data goes to a temporary file beside the
 * target, which is flushed and then renamed to the target. A symbolic link is followed: its target is replaced. An
 * existing pipe or device is written directly. A failed write leaves an existing file unchanged and raises no signal.
 * Temporary files left by killed programs are removed. Equal sets give equal bytes. .npz omits metadata and refuses
 * RP_BF16; .safetensors stores arrays with wide elements first, which aligns every array. */
int io_write(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);

/* Like io_write, for a path that only this program uses, one process at a time. A link, a pipe, or a temporary file
 * left by a killed process is replaced, not written to. */
int io_replace(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);

/* Write a file whose largest array does not fit in memory. In the set, at most one array has a shape and `bytes` but no
 * data: its elements are written in parts. The set must not change until the stream is closed. Return NULL on failure.
 * As with io_write, the file appears whole or not at all. */
typedef struct io_stream io_stream;
io_stream *io_stream_open(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX]);
/* Write the next bytes of the array without data. */
int io_stream_put(io_stream *s, const void *data, size_t size, char err[IO_ERR_MAX]);
/* Complete the file, or remove it if `result` is not 0. */
int io_stream_close(io_stream *s, int result, char err[IO_ERR_MAX]);

/* Set *folder to true if path is a directory, and to false if it is something else or does not exist. Return IO_FAILED
 * if stat fails. */
io_status io_is_folder(const char *path, bool *folder, char err[IO_ERR_MAX]);

/* Flush the directory of a renamed file, which makes its new name survive a crash. Return 0 or the error number. */
int io_sync_directory(const char *file);

/* Make a temporary file or folder beside `target`, for the caller to rename to it. Return a descriptor, and set *path,
 * which the caller frees; on failure return -1 with errno. Closing the descriptor releases the lock. Temporary files
 * left for this target by killed programs are removed first. */
int io_temporary(const char *target, bool folder, mode_t mode, char **path);
/* Remove a temporary file, or a temporary folder and the files in it. Needs neither memory nor another descriptor. */
void io_remove_temporary(int fd, const char *path);

/* Write text through stdio to a file, as io_write does. *to is closed by io_text_close. Return NULL on failure. */
typedef struct io_text io_text;
io_text *io_text_open(const char *path, FILE **to, char err[IO_ERR_MAX]);
/* Complete the file, or remove it if `result` is not 0. Return 0; or -1 if `result` is not 0 or anything could not be
 * written. In the second case err says why, whatever `result` is. */
int io_text_close(io_text *t, int result, char err[IO_ERR_MAX]);

/* Write bytes (a picture or text) to a file as io_write does. */
int io_write_bytes(const char *path, const void *data, size_t size, char err[IO_ERR_MAX]);

/* Return the array with this name if it can be used. Otherwise return NULL and write to err: array "x": <reason> (<what
 * to do>). */
const io_array *io_take(const io_set *set, const char *name, char err[IO_ERR_MAX]);
const io_array *io_find(const io_set *set, const char *name); /* of any type; NULL if absent */
const char *io_meta(const io_set *set, const char *key);      /* NULL if absent */
/* Append an array; the name is copied. Unless data is borrowed, the set frees it. Return 0; or -1 if out of memory or
 * if the size overflows: then the caller still owns data. Only io_add and io_add_meta may grow a set. */
int io_add(io_set *set, const char *name, rp_dtype dtype, int32_t ndim, const int64_t *shape, void *data,
           bool borrowed);
int io_add_meta(io_set *set, const char *key, const char *value); /* copies key and value */
void io_free(io_set *set);

/* Make room for one more than n elements of `element` bytes. Return the list, or NULL if out of memory: the list is
 * then unchanged. */
void *io_grow(void *list, size_t *capacity, size_t n, size_t element);

/* Return a checksum of the data. Flipping one bit always changes it. To checksum data in parts, pass the previous
 * result as z. */
uint64_t io_checksum(uint64_t z, const void *data, size_t size);

/* Return the length in bytes of the UTF-8 sequence at text; 0 if it is not valid. */
size_t io_utf8(const unsigned char *text, size_t size);

/* Copy a name from a file to buf for printing: control characters and bytes that are not UTF-8 become \xNN, and the
 * text is cut to fit. Return buf. */
const char *io_safe(char *buf, size_t size, const char *name);
/* Format a message of up to 1,023 bytes that may contain names from files, and copy it to buf as io_safe does. The
 * arguments may include buf. Return buf. */
__attribute__((format(printf, 3, 0))) const char *io_safe_message(char *buf, size_t size, const char *format,
                                                                  va_list list);

/* Return true for f32, f64, f16 and bf16. */
static inline bool io_is_floating(rp_dtype type)
{
    return type == RP_F32 || type == RP_F64 || type == RP_F16 || type == RP_BF16;
}

#endif
