/* names.h -- prefixes of the names of tensors, which wrappers of a model leave in its files: torch.compile, data
 * parallelism, and modules that contain the model.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_NAMES_H
#define RELPOS_CHECKPOINT_NAMES_H

#include "checkpoint/notes.h"
#include "io/checkpoint.h"

/* The names of a kind of model. */
typedef struct model_naming {
    const char *const *prefixes; /* [n_prefixes]: removed if all tensors have them; a name may have several */
    int n_prefixes;
    const char *tensor; /* a tensor of every such model */
    const char *other;  /* a tensor beside the model, which needs no prefix; NULL: none */
    const char *kind;   /* for messages: "T5" */
} model_naming;

/* Add a note about tensors of the file that are left out. Remove the prefixes that the names of all tensors share, and
 * add a note about them. */
rp_status model_strip_prefixes(io_checkpoint *file, const model_naming *names, model_notes *notes, const char *path);
/* Refuse tensors of an adapter, names with another prefix, and a prefix that only some names have. Packing reports
 * other missing tensors. */
rp_status model_check_names(const io_checkpoint *file, const model_naming *names, const char *path);

#endif
