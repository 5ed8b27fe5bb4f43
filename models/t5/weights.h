/* weights.h -- visiting all weights of a model in order. Private to weights.c and packing.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_WEIGHTS_H
#define RELPOS_T5_WEIGHTS_H

#include "t5/model.h"

/* The model whose weights t5_walk_weights visits. */
typedef struct t5_walked {
    t5_weights *w;
    const t5_config *c;
    const char *embedding; /* name of the embedding in the checkpoint */
} t5_walked;

/* A model_walk of a t5_walked. Call t5_make_blocks first. */
rp_status t5_walk_weights(void *model, model_visitor *visit, void *context);
/* Allocate the blocks of the encoder, and of the decoder if the file has one. Fail if config.json describes more layers
 * and experts than the file has tensors for. */
rp_status t5_make_blocks(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path);

#endif
