/* io_internal.h -- what the files of src/io share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_INTERNAL_H
#define RELPOS_IO_INTERNAL_H

#include "io.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file layer of relpos has been written for little-endian machines only"
#endif

#define IO_MAX_ARRAYS 1000000           /* of one file; each costs about 330 bytes before its data */
#define IO_MAX_PIPE   ((size_t)1 << 34) /* bytes read from a pipe: 16 GiB */
#define IO_WHY_MAX    256

/* The one checked product of sizes: false if a * b does not fit in PTRDIFF_MAX, the most that an object can have. */
static inline bool io_mul(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product) && *product <= PTRDIFF_MAX;
}

size_t io_dtype_size(rp_dtype dtype); /* 0 for a number that is no type */

/* Bytes of an array. A zero among the axes does not excuse the others: their product has to fit as well, so that
 * strides do. false if it does not, or for a negative axis. */
bool io_bytes(size_t element, int32_t ndim, const int64_t *shape, size_t *bytes);

bool io_utf8_all(const void *text, size_t size);

/* Say "<path>: ..." in err; returns IO_FAILED, or IO_DAMAGED. */
io_status io_fail(char err[IO_ERR_MAX], const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
io_status io_damaged(char err[IO_ERR_MAX], const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same without the path, for what reads a part of a file. */
io_status io_why(char why[IO_WHY_MAX], const char *format, ...) __attribute__((format(printf, 2, 3))); /* IO_DAMAGED */
io_status io_no_memory(char why[IO_WHY_MAX]);                                                          /* IO_FAILED */

io_array *io_push(io_set *set, const char *name);      /* append an empty array, name copied; NULL for want of memory */
bool io_unsupported(io_array *array, const char *why); /* copied; false for want of memory */
/* The name of which two arrays exist, *twice = NULL if there is none. false for want of memory. */
bool io_duplicate(const io_set *set, const char **twice);

/* Whether a path means standard input or output: "-", or the device. */
bool io_is_standard(const char *path, const char *device);

/* A file being written. */
typedef struct io_out {
    const char *path;
    char *target, *temp; /* the file behind all links, and its replacement; NULL when writing straight to a device */
    int fd;
    bool keep_open; /* fd is standard output */
} io_out;
int io_put(io_out *out, const void *data, size_t size, char err[IO_ERR_MAX]);

/* The formats, on a file in memory. The readers leave what they have in the set when they fail. */
io_status io_parse(const char *path, io_format format, const unsigned char *data, size_t size, io_set *set,
                   char err[IO_ERR_MAX]);
io_status io_npz_read(const char *path, const unsigned char *data, size_t size, io_set *set, char err[IO_ERR_MAX]);
int io_npz_write(io_out *out, const io_set *set, char err[IO_ERR_MAX]);
io_status io_safetensors_read(const char *path, const unsigned char *data, size_t size, io_set *set,
                              char err[IO_ERR_MAX]);
int io_safetensors_write(io_out *out, const io_set *set, char err[IO_ERR_MAX]);
#define IO_SAFETENSORS_HEADER_MAX 100000000 /* bytes, as in the reference implementation */

/* The header of an .npy file. */
typedef struct io_npy {
    rp_dtype dtype;
    bool swap;    /* the elements are big-endian */
    bool fortran; /* the first axis is the fastest */
    int32_t ndim;
    int64_t shape[IO_MAX_AXES];
    size_t bytes;                 /* of the elements; unknown (0) when unsupported */
    char unsupported[IO_WHY_MAX]; /* "" if the type can be used */
} io_npy;
#define IO_NPY_START      12    /* a valid file is longer than this */
#define IO_NPY_HEADER_MAX 65536 /* bytes of the dictionary, as much as version 1.0 can say */

/* From the first IO_NPY_START bytes: where the dictionary begins and ends. false with a reason. */
bool io_npy_extent(const unsigned char *start, size_t *begin, size_t *end, char why[IO_WHY_MAX]);
/* Read the dictionary header[begin..end) of a file of the version in header[6]. false with a reason. */
bool io_npy_header(const unsigned char *header, size_t begin, size_t end, io_npy *npy, char why[IO_WHY_MAX]);
/* Bring elements as they stand in the file into row-major order and native bytes. false for want of memory. */
bool io_npy_settle(const io_npy *npy, void **data);
/* The header of an array, as NumPy writes it; returns its size, 0 for a type that NumPy lacks. */
#define IO_NPY_TEXT_MAX 1024
size_t io_npy_text(const io_array *array, char text[IO_NPY_TEXT_MAX]);

#endif
