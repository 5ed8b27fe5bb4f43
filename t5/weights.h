/* weights.h -- the list of a model's weights, as it is walked. For weights.c and packing.c alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_WEIGHTS_H
#define RELPOS_T5_WEIGHTS_H

#include "t5/model.h"

enum { T5_MAX_SOURCES = 3 };

/* One weight: a matrix that linear layers use, stacked of the rows of one to three tensors, or a plain array of f32. */
typedef struct t5_part {
    const char *name;                   /* in a packed file */
    const char *source[T5_MAX_SOURCES]; /* in a checkpoint */
    int n_sources;
    int64_t rows, columns;  /* of each source; columns 0: it has one axis */
    linear_weights *matrix; /* one of these two */
    const float **array;
    linear_type type; /* of a matrix */
} t5_part;

typedef rp_status t5_visitor(void *context, const t5_part *p);

/* Visit every weight, of w->type; `embedding` is the checkpoint's name of the embedding. w has its blocks. */
rp_status t5_walk_weights(t5_weights *w, const t5_config *c, const char *embedding, t5_visitor *visit, void *context);
/* Make blocks for all layers; for those of the decoder where the file has one. A description of more layers and experts than the file
 * can have is refused. */
rp_status t5_make_blocks(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path);

#endif
