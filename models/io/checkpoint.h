/* checkpoint.h -- maps the tensors of a model from .safetensors files, files of torch.save (one file, or the shards
 * listed in an index), or a .gguf file. Independent of models.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_H
#define RELPOS_CHECKPOINT_H

#include "io/gguf.h"

#define IO_F8_E4M3 ((rp_dtype)254) /* float8_e4m3fn of PyTorch; only for mapped tensors */
#define IO_F8_E5M2 ((rp_dtype)253) /* float8_e5m2 of PyTorch; only for mapped tensors */

typedef struct io_scales io_scales; /* scaled.h */

typedef struct io_tensor {
    const char *name, *file; /* file: name without folder, for messages */
    rp_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const unsigned char *data; /* in the mapped file; may be unaligned for its type; never NULL */
    size_t bytes;
    const char *unsupported; /* why it cannot be used (dtype IO_NO_DTYPE, no bytes); otherwise NULL */
    const io_scales *scales; /* io_tensor_read multiplies by them; NULL: none */
} io_tensor;

typedef struct io_checkpoint io_checkpoint;

/* Open a file, or a folder that has one of io_checkpoint_names; the first one is used. An index lists shards. The
 * contents of a file decide its format, not its name. Fail if two tensors have the same name, or if a tensor is in
 * another shard than the index says. A tensor of the index may be in no shard. */
#define IO_CHECKPOINT_NAMES 4
extern const char *const io_checkpoint_names[IO_CHECKPOINT_NAMES];
io_status io_checkpoint_open(io_checkpoint **made, const char *path, char err[IO_ERR_MAX]);
void io_checkpoint_close(io_checkpoint *c); /* c may be NULL */
/* Fail if a file was written to after it was opened: what was read since then may be wrong. */
io_status io_checkpoint_unchanged(const io_checkpoint *c, char err[IO_ERR_MAX]);

/* Rename all tensors. `rename` writes the new name of at most size - 1 bytes to `to`, or returns false to remove the
 * tensor from the list. Fail if two get the same name. `path` is for messages. Pointers to tensors become invalid. */
typedef bool io_renamer(const void *context, const char *name, char *to, size_t size);
io_status io_checkpoint_rename(io_checkpoint *c, io_renamer *rename, const void *context, const char *path,
                               char err[IO_ERR_MAX]);

size_t io_checkpoint_size(const io_checkpoint *c);
const io_tensor *io_checkpoint_at(const io_checkpoint *c, size_t n); /* sorted by name */
const io_tensor *io_checkpoint_find(const io_checkpoint *c, const char *name);
const char *io_checkpoint_note(const io_checkpoint *c); /* which tensors were left out; NULL: none, or several files */
const char *io_checkpoint_meta(const io_checkpoint *c, const char *key); /* NULL if absent or in several files */
const io_gguf *io_checkpoint_keys(const io_checkpoint *c);               /* NULL if it is no .gguf file */
/* Return true for tensors of floating-point numbers and of blocks (io/block_types.h). */
bool io_tensor_has_numbers(const io_tensor *t);
const char *io_tensor_type_name(const io_tensor *t);
static inline bool io_tensor_is_f8(const io_tensor *t)
{
    return t->dtype == IO_F8_E4M3 || t->dtype == IO_F8_E5M2;
}
/* Return true if two tensors have the same shape, type, data and scales. */
bool io_tensor_same(const io_tensor *a, const io_tensor *b);
/* Return a checksum of the data and the scales. */
uint64_t io_tensor_checksum(const io_tensor *t, uint64_t z);
/* Convert elements first … first + n - 1 of a tensor to f32. Return false if it does not have such numbers. */
bool io_tensor_read(const io_tensor *t, int64_t first, int64_t n, float *to);

/* Let the system drop the memory with a tensor's data. It is read from the file again when it is used. */
void io_tensor_drop(const io_tensor *t);

/* Return the number of NaN and infinite elements of a floating-point tensor. Blocks with a scale that is not finite
 * count with all their elements. */
int64_t io_tensor_not_finite(const io_tensor *t);

/* Map a file for reading: *size bytes at *data; free with io_unmap. An empty file is IO_DAMAGED. */
io_status io_map(const char *path, const unsigned char **data, size_t *size, char err[IO_ERR_MAX]);
void io_unmap(const unsigned char *data, size_t size);

#endif
