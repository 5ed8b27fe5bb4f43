/* pickle.h -- finds the tensors in a pickle of torch.save. Runs nothing: a pickle may only build dictionaries, lists,
 * tuples, texts, numbers and tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_PICKLE_H
#define RELPOS_IO_PICKLE_H

#include "io/formats.h"

/* A tensor: elements of a storage, beginning at element `offset`, in row-major order if `contiguous`. */
typedef struct io_pickle_tensor {
    const char *name, *storage; /* in the pickle; not NUL-terminated */
    size_t name_size, storage_size;
    rp_dtype dtype; /* or IO_F8_E4M3 */
    size_t storage_bytes;
    int64_t offset;
    int32_t ndim;
    int64_t shape[IO_MAX_AXES];
    bool contiguous;
} io_pickle_tensor;

typedef io_status io_pickle_visitor(void *context, const io_pickle_tensor *t, char why[IO_WHY_MAX]);

/* Visit the tensors of the dictionary that the pickle holds; or, if it holds no tensors itself, those of its member
 * "state_dict", "model", "model_state_dict" or "module", the first that has tensors. `note` receives a text about other
 * members that have tensors, "" if there are none. Memory is proportional to the size of the pickle. */
io_status io_pickle_read(const unsigned char *data, size_t size, io_pickle_visitor *visit, void *context,
                         char note[IO_WHY_MAX], char why[IO_WHY_MAX]);

/* Return the bytes of one element; 0 for an invalid type. */
size_t io_pickle_element(rp_dtype dtype);

#endif
