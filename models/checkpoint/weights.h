/* weights.h -- packs the weights of a checkpoint for linear layers, or finds the weights in a packed file and uses them
 * in place. A model says which weights it has in a function that visits them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_WEIGHTS_H
#define RELPOS_CHECKPOINT_WEIGHTS_H

#include "io/checkpoint.h"
#include "linear/linear.h"
#include <stdbool.h>

enum { MODEL_MAX_SOURCES = LINEAR_TENSORS };

/* One weight: the matrix of a linear layer, or a plain array of f32. It stacks the rows of one to three tensors, such
 * as those of q, k and v. */
typedef struct model_part {
    const char *name;                      /* name in a packed file */
    const char *source[MODEL_MAX_SOURCES]; /* names of its tensors in a checkpoint */
    int n_sources;
    int64_t rows, columns;  /* shape of each tensor; columns = 0: one axis */
    int64_t depth;          /* the third axis of an array; 0: there is none */
    linear_weights *matrix; /* where to put a matrix; NULL: it is an array */
    const float **array;    /* where to put an array; NULL: it is a matrix */
    linear_type type;       /* type of a matrix */
} model_part;

typedef rp_status model_visitor(void *context, const model_part *p);
/* Visit every weight of a model, always in the same order, until a call fails. */
typedef rp_status model_walk(void *model, model_visitor *visit, void *context);

/* The memory of a model's weights. */
typedef struct model_store {
    unsigned char *memory;   /* memory with the packed weights; NULL if they are mapped from a file */
    linear_tensors *tensors; /* of matrices of type LINEAR_BLOCKS; their blocks are mapped from a file */
    int64_t bytes;           /* size of the weights */
    int64_t not_finite;      /* number of NaN or infinite weights in the checkpoint */
} model_store;

/* A checkpoint whose tensors are packed. */
typedef struct model_source {
    const io_checkpoint *file;
    const char *path;   /* for messages */
    const char *advice; /* ends an error about tensors that do not belong to the model: " (…)" */
    /* Returns true for a tensor that the model does not need; NULL: there are none. */
    bool (*stray)(const void *model, const char *name);
    const char *const *equal; /* [n_equal]: names of tensors that must be equal if the file has several */
    int n_equal;
    const char *why_equal; /* for messages */
} model_source;

/* Pack the tensors of a checkpoint. With `sizes`, only check them and add up their sizes. One message reports as many
 * errors as fit. Types of parts must not be LINEAR_BLOCKS unless model_type_of says so. */
rp_status model_pack(model_store *s, const model_source *from, model_walk *walk, void *model, bool sizes,
                     rp_pool *pool);
/* Return the narrowest type that represents every number of the matrices exactly. Both bf16 and f16 represent every f8
 * exactly. Numbers of f8 with a scale are rounded to that type: they have 4 significant bits, so this loses little. q8
 * represents Q8_0 exactly; other blocks are used as they are. no_matrix returns true for the name of a tensor with two
 * axes that is not a matrix of a linear layer; NULL: there are none. */
linear_type model_type_of(const io_checkpoint *file, bool (*no_matrix)(const char *name));

/* Read the type of the weights in a packed file. */
rp_status model_packed_type(const io_checkpoint *file, const char *path, linear_type *type);
/* Point to the weights in a packed file, without copying them. */
rp_status model_map(model_store *s, const io_checkpoint *file, const char *path, model_walk *walk, void *model);
/* Add every weight to a set that will be written. The set borrows the weights. */
rp_status model_list(model_walk *walk, void *model, io_set *set);

int64_t model_part_numbers(const model_part *p); /* numbers of a weight */
int64_t model_part_bytes(const model_part *p);   /* size of a weight in memory; -1 on overflow */
void model_store_free(model_store *s);

#endif
