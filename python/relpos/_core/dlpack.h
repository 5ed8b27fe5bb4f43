/* dlpack.h -- the part of DLPack 1.3 that arrays.c uses: the tensor structs, and the table of functions in the
 * attribute __dlpack_c_exchange_api__ of a tensor type. Layouts match the official dlpack.h; names are ours.
 * https://dmlc.github.io/dlpack/latest/c_api.html
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_DLPACK_H
#define RELPOS_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA_HOST = 3 /* pinned memory of the CPU */ };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

typedef struct dl_device {
    int32_t type, id;
} dl_device;

typedef struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
} dl_type;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_type dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

/* The content of a capsule named "dltensor". */
typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_managed_versioned {
    dl_version version;
    void *context;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

typedef struct dl_header {
    dl_version version;
    struct dl_header *previous; /* the table of an older major version */
} dl_header;

typedef struct dl_exchange {
    dl_header header;
    int (*allocate)(dl_tensor *prototype, dl_managed_versioned **out, void *context,
                    void (*failed)(void *context, const char *type, const char *message));
    int (*from_object)(void *object, dl_managed_versioned **out);
    int (*to_object)(dl_managed_versioned *tensor, void **out);
    int (*view)(void *object, dl_tensor *out); /* keeps no reference; valid while the object lives */
    int (*current_stream)(int32_t device, int32_t id, void **out);
} dl_exchange;

#endif
