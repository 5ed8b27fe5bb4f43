/* formats.h -- functions shared by the files of io, and the readers and writers of .npz and .safetensors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_FORMATS_H
#define RELPOS_IO_FORMATS_H

#include "io/io.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the io library of relpos supports only little-endian machines"
#endif

#define IO_MAX_ARRAYS 1000000           /* max arrays in a file; each needs about 330 bytes besides its data */
#define IO_MAX_PIPE   ((size_t)1 << 34) /* max bytes read from a pipe: 16 GiB */
#define IO_WHY_MAX    256

/* Multiply two sizes. Return false if the product exceeds PTRDIFF_MAX, the largest size of an object. */
static inline bool io_mul(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product) && *product <= PTRDIFF_MAX;
}

size_t io_dtype_size(rp_dtype dtype); /* 0 for an invalid type */

/* Compute the size of an array in bytes. Return false on overflow or if an axis is negative. If an axis is 0, the
 * product of the other axes must not overflow either, because strides are computed from it. */
bool io_bytes(size_t element, int32_t ndim, const int64_t *shape, size_t *bytes);

bool io_utf8_all(const void *text, size_t size);

/* Write "<path>: ..." to err. io_fail returns IO_FAILED, io_damaged returns IO_DAMAGED. */
io_status io_fail(char err[IO_ERR_MAX], const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
io_status io_damaged(char err[IO_ERR_MAX], const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Write a message without a path, for functions that read only part of a file. Return IO_DAMAGED. */
io_status io_why(char why[IO_WHY_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Read n bytes at offset `at`. Return IO_FAILED if reading fails or the file is too short. */
io_status io_pread(int fd, off_t at, void *to, size_t n, char why[IO_WHY_MAX]);
io_status io_no_memory(char why[IO_WHY_MAX]); /* write "out of memory"; return IO_FAILED */

/* Append an empty array with a copy of the name. Return NULL if out of memory. */
io_array *io_push(io_set *set, const char *name);
/* Allocate the shape of an array, and copy it from `shape` unless that is NULL. Return false if out of memory. */
bool io_set_shape(io_array *array, int32_t ndim, const int64_t *shape);
/* Mark an array as unusable, with a copy of the reason `why`. Return false if out of memory. */
bool io_unsupported(io_array *array, const char *why);
/* Return true if the array with this name should be skipped. It is then marked as unsupported for the reason
 * IO_LEFT_OUT. */
#define IO_LEFT_OUT "it was not read"
bool io_leave_out(const io_set *set, const char *name);
/* Find a name that two arrays share, or a metadata key that occurs twice; *twice = NULL if there is none. Return false
 * if out of memory. */
bool io_duplicate(const io_set *set, bool metadata, const char **twice);

/* Return true if a path is standard input or output: "-" or `device`. */
bool io_is_standard(const char *path, const char *device);

/* Resolve the symbolic links of `path`; the file need not exist. Return the path, which the caller frees, or NULL with
 * errno. */
char *io_follow_links(const char *path);

/* A file that is being written. */
typedef struct io_out {
    const char *path;
    char *target, *temp; /* both NULL if a device is written directly; target: path with links resolved */
    int fd;
    bool keep_open; /* fd is standard output */
} io_out;
/* Open the output. `own` means that only this program uses path: links are then not followed, and pipes and devices are
 * not written to. */
int io_open_out(io_out *out, const char *path, bool own, char err[IO_ERR_MAX]);
int io_put(io_out *out, const void *data, size_t size, char err[IO_ERR_MAX]);
/* Replace bytes of a regular file that were written before. */
int io_put_at(io_out *out, const void *data, size_t size, off_t at, char err[IO_ERR_MAX]);
/* Rename the temporary file to the target, or remove it after a failure (result -1). */
int io_close_out(io_out *out, int result, char err[IO_ERR_MAX]);

/* Read a format from memory, or write it. If a reader fails, the set keeps the arrays read so far. */
io_status io_parse(const char *path, io_format format, const unsigned char *data, size_t size, io_set *set,
                   char err[IO_ERR_MAX]);
io_status io_npz_read(const char *path, const unsigned char *data, size_t size, io_set *set, char err[IO_ERR_MAX]);
/* Read a regular file whose `size` bytes begin at offset `start` of fd. Read only the directory and the wanted
 * arrays. */
io_status io_npz_file(const char *path, int fd, off_t start, size_t size, io_set *set, char err[IO_ERR_MAX]);
io_status io_safetensors_read(const char *path, const unsigned char *data, size_t size, io_set *set,
                              char err[IO_ERR_MAX]);
/* Like io_npz_file, for a .safetensors file. */
io_status io_safetensors_file(const char *path, int fd, off_t start, size_t size, io_set *set, char err[IO_ERR_MAX]);
/* Read from memory without copying: the arrays borrow `data` and may be unaligned. Arrays of F8_E4M3 and
 * F8_E5M2 get the types IO_F8_E4M3 and IO_F8_E5M2. */
io_status io_safetensors_in_place(const char *path, const unsigned char *data, size_t size, io_set *set,
                                  char err[IO_ERR_MAX]);
/* Files of torch.save, by their contents. Those of PyTorch before 1.6 are recognized, but cannot be read. */
bool io_torch_is(const unsigned char *data, size_t size);
bool io_torch_is_old(const unsigned char *data, size_t size);
io_status io_torch_in_place(const char *path, const unsigned char *data, size_t size, io_set *set,
                            char err[IO_ERR_MAX]);
io_status io_torch_refuse_old(const char *path, const unsigned char *data, size_t size, io_set *set,
                              char err[IO_ERR_MAX]);
/* Write the header of a .safetensors file. *order receives the indices of the arrays in the order of their data; the
 * caller frees it. */
int io_safetensors_begin(io_out *out, const io_set *set, size_t **order, char err[IO_ERR_MAX]);
#define IO_SAFETENSORS_HEADER_MAX 100000000 /* max size of the header in bytes, as in the reference implementation */

/* The header of an .npy file. */
typedef struct io_npy {
    rp_dtype dtype;
    bool swap;    /* the elements are big-endian */
    bool fortran; /* the first axis is the fastest */
    int32_t ndim;
    int64_t shape[IO_MAX_AXES];
    size_t bytes;                 /* size of the elements in bytes; 0 (unknown) if unsupported */
    char unsupported[IO_WHY_MAX]; /* reason why the type cannot be used; "" if it can */
    size_t text_width;            /* for an (unsupported) array of strings, characters per string; otherwise 0 */
} io_npy;
#define IO_NPY_START      12    /* every valid file is longer than this */
#define IO_NPY_HEADER_MAX 65536 /* max bytes of the dictionary: the limit of version 1.0 */

/* Find where the dictionary begins and ends, from the first IO_NPY_START bytes. Return false and a reason if they are
 * not valid. */
bool io_npy_extent(const unsigned char *start, size_t *begin, size_t *end, char why[IO_WHY_MAX]);
/* Parse the dictionary header[begin..end); header[6] is the version. Return false and a reason if it is not valid. */
bool io_npy_header(const unsigned char *header, size_t begin, size_t end, io_npy *npy, char why[IO_WHY_MAX]);
/* Convert the elements to row-major order and native byte order; *data may be replaced. Return false if out of
 * memory. */
bool io_npy_to_native(const io_npy *npy, void **data);
/* Convert an array of strings with one axis to a JSON list, allocated with malloc. Each string in `data` has text_width
 * characters in UTF-32, in the byte order of the file. Return NULL if a string is not Unicode, or if out of memory
 * (*no_memory is then true). */
char *io_npy_strings(const io_npy *npy, const unsigned char *data, bool *no_memory);
/* Write the header of an array as NumPy does. Return its size; 0 if NumPy does not have the type. */
#define IO_NPY_TEXT_MAX 1024
size_t io_npy_text(const io_array *array, char text[IO_NPY_TEXT_MAX]);

#endif
