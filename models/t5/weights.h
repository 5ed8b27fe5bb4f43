/* weights.h -- visiting all weights of a model in order. Private to weights.c and packing.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_WEIGHTS_H
#define RELPOS_T5_WEIGHTS_H

#include "t5/model.h"

enum { T5_MAX_SOURCES = 3 };

/* One weight: the matrix of a linear layer, which stacks the rows of one to three tensors; or a plain array of f32. */
typedef struct t5_part {
    const char *name;                   /* name in a packed file */
    const char *source[T5_MAX_SOURCES]; /* names of its tensors in a checkpoint */
    int n_sources;
    int64_t rows, columns;  /* shape of each tensor; columns = 0: one axis */
    linear_weights *matrix; /* where to put a matrix; NULL: it is an array */
    const float **array;    /* where to put an array; NULL: it is a matrix */
    linear_type type;       /* type of a matrix */
} t5_part;

typedef rp_status t5_visitor(void *context, const t5_part *p);

/* Visit every weight. `embedding` is the name of the embedding in the checkpoint. Call t5_make_blocks first. */
rp_status t5_walk_weights(t5_weights *w, const t5_config *c, const char *embedding, t5_visitor *visit, void *context);
/* Allocate the blocks of the encoder, and of the decoder if the file has one. Fail if config.json describes more layers
 * and experts than the file has tensors for. */
rp_status t5_make_blocks(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path);

#endif
