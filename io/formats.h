/* formats.h -- functions that the files of io share, and the readers and writers of the two formats.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_FORMATS_H
#define RELPOS_IO_FORMATS_H

#include "io/io.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the file layer of relpos has been written for little-endian machines only"
#endif

#define IO_MAX_ARRAYS 1000000           /* of one file; each costs about 330 bytes before its data */
#define IO_MAX_PIPE   ((size_t)1 << 34) /* bytes read from a pipe: 16 GiB */
#define IO_WHY_MAX    256

/* The product of two sizes; false if it is above PTRDIFF_MAX, the largest size of an object. All sizes of io are multiplied by it. */
static inline bool io_mul(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product) && *product <= PTRDIFF_MAX;
}

size_t io_dtype_size(rp_dtype dtype); /* 0 if it is not a type */

/* Bytes of an array; false if they do not fit, or for a negative axis. Where an axis is 0, the product of the others has to fit too, because
 * strides are computed from it. */
bool io_bytes(size_t element, int32_t ndim, const int64_t *shape, size_t *bytes);

bool io_utf8_all(const void *text, size_t size);

/* Write "<path>: ..." to err; they return IO_FAILED and IO_DAMAGED. */
io_status io_fail(char err[IO_ERR_MAX], const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
io_status io_damaged(char err[IO_ERR_MAX], const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same without the path, for functions that read a part of a file. */
io_status io_why(char why[IO_WHY_MAX], const char *format, ...) __attribute__((format(printf, 2, 3))); /* IO_DAMAGED */
/* Read n bytes of a file from `at` on, all of them: IO_FAILED where the system cannot, or the file ends before. */
io_status io_pread(int fd, off_t at, void *to, size_t n, char why[IO_WHY_MAX]);
io_status io_no_memory(char why[IO_WHY_MAX]); /* IO_FAILED */

io_array *io_push(io_set *set,
                  const char *name); /* append an empty array, with a copy of the name; NULL: out of memory */
/* Give an array its axes, from `shape`, or with NULL to be filled. false: out of memory. */
bool io_set_shape(io_array *array, int32_t ndim, const int64_t *shape);
bool io_unsupported(io_array *array, const char *why); /* `why` is copied; false: out of memory */
/* Whether the array of this name is not to be read; then it gets IO_LEFT_OUT. */
#define IO_LEFT_OUT "it was not read"
bool io_leave_out(const io_set *set, const char *name);
/* Find a name that two arrays have, or a key that is there twice in the metadata; *twice = NULL if there is none. false: out of memory. */
bool io_duplicate(const io_set *set, bool metadata, const char **twice);

/* Whether a path is standard input or output: "-", or `device`. */
bool io_is_standard(const char *path, const char *device);

/* A file that is being written. */
typedef struct io_out {
    const char *path;
    char *target,
        *temp; /* the file that all links lead to, and its replacement; NULL when a device is written directly */
    int fd;
    bool keep_open; /* fd is standard output */
} io_out;
int io_put(io_out *out, const void *data, size_t size, char err[IO_ERR_MAX]);

/* The formats, on a file in memory. When a reader fails, the set has what was read before. */
io_status io_parse(const char *path, io_format format, const unsigned char *data, size_t size, io_set *set,
                   char err[IO_ERR_MAX]);
io_status io_npz_read(const char *path, const unsigned char *data, size_t size, io_set *set, char err[IO_ERR_MAX]);
/* The same from a regular file of `size` bytes, which begins at `start` of fd: only the directory and the arrays that are wanted are read. */
io_status io_npz_file(const char *path, int fd, off_t start, size_t size, io_set *set, char err[IO_ERR_MAX]);
int io_npz_write(io_out *out, const io_set *set, char err[IO_ERR_MAX]);
io_status io_safetensors_read(const char *path, const unsigned char *data, size_t size, io_set *set,
                              char err[IO_ERR_MAX]);
/* Likewise from a regular file. */
io_status io_safetensors_file(const char *path, int fd, off_t start, size_t size, io_set *set, char err[IO_ERR_MAX]);
/* From memory, but the arrays borrow `data`, wherever in it they lie: they need not be aligned. F8_E4M3 has the type IO_F8_E4M3. */
io_status io_safetensors_in_place(const char *path, const unsigned char *data, size_t size, io_set *set,
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
    size_t bytes;                 /* of the elements; 0 (unknown) when unsupported */
    char unsupported[IO_WHY_MAX]; /* "" if the type can be used */
    size_t text_width;            /* not 0: strings of at most so many characters, which is no type that can be used */
} io_npy;
#define IO_NPY_START      12    /* a valid file is longer than this */
#define IO_NPY_HEADER_MAX 65536 /* bytes of the dictionary: the limit of version 1.0 */

/* Read from the first IO_NPY_START bytes where the dictionary begins and ends. false with a reason. */
bool io_npy_extent(const unsigned char *start, size_t *begin, size_t *end, char why[IO_WHY_MAX]);
/* Read the dictionary header[begin..end) of a file of the version in header[6]. false with a reason. */
bool io_npy_header(const unsigned char *header, size_t begin, size_t end, io_npy *npy, char why[IO_WHY_MAX]);
/* Convert the elements from the file's order of axes and bytes to row-major and native; *data may be replaced. false: out of memory. */
bool io_npy_to_native(const io_npy *npy, void **data);
/* Strings of one axis as a JSON list, from malloc; `data` has their text_width characters each, in UTF-32 and the file's order of
 * bytes. NULL if one is not Unicode, or memory runs out, which *no_memory says. */
char *io_npy_strings(const io_npy *npy, const unsigned char *data, bool *no_memory);
/* The header of an array, as NumPy writes it; returns its size, 0 for a type that NumPy lacks. */
#define IO_NPY_TEXT_MAX 1024
size_t io_npy_text(const io_array *array, char text[IO_NPY_TEXT_MAX]);

#endif
