/* checkpoint.h -- the tensors of a model in .safetensors files, mapped and not copied: one file, or the shards that an index names.
 * It knows files and types of numbers, and no model.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_H
#define RELPOS_CHECKPOINT_H

#include "io/io.h"

#define IO_F8_E4M3                                                                                                     \
    ((rp_dtype)254) /* of a mapped tensor: 8 bits, 4 of exponent and 3 of mantissa, as PyTorch's float8_e4m3fn */

typedef struct io_tensor {
    const char *name, *file; /* the file for messages, without its folder */
    rp_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const unsigned char *data; /* in a mapped file: not aligned for its type unless the file has it so */
    size_t bytes;
} io_tensor;

typedef struct io_checkpoint io_checkpoint;

/* Open a .safetensors file; or a folder with model.safetensors or, where there is none, with model.safetensors.index.json and the shards
 * that it names. No two tensors have one name, and the index and its shards agree. */
io_status io_checkpoint_open(io_checkpoint **made, const char *path, char err[IO_ERR_MAX]);
void io_checkpoint_close(io_checkpoint *c); /* NULL too */

size_t io_checkpoint_size(const io_checkpoint *c);
const io_tensor *io_checkpoint_at(const io_checkpoint *c, size_t n); /* in the order of names */
const io_tensor *io_checkpoint_find(const io_checkpoint *c, const char *name);
const char *io_checkpoint_meta(const io_checkpoint *c, const char *key); /* of a single file; NULL if absent */

/* Elements first … first + n - 1 of a floating tensor as f32. False: it is of another type. */
bool io_tensor_read(const io_tensor *t, int64_t first, int64_t n, float *to);

/* How many elements of a floating tensor are NaN or infinite. */
int64_t io_tensor_not_finite(const io_tensor *t);

/* A file mapped for reading: *size bytes at *data, to be given to io_unmap. An empty file is damaged. */
io_status io_map(const char *path, const unsigned char **data, size_t *size, char err[IO_ERR_MAX]);
void io_unmap(const unsigned char *data, size_t size);

#endif
