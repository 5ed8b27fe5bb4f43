/* modules.h -- model folders saved by sentence-transformers: modules.json lists the modules that make a vector of a
 * text.
 *
 *     Transformer, Pooling, then Dense and Normalize in any order; each in a folder with its config.json
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_MODULES_H
#define RELPOS_CHECKPOINT_MODULES_H

#include "checkpoint/files.h"
#include "checkpoint/notes.h"
#include "checkpoint/weights.h"

typedef struct model_modules model_modules;

/* Read the modules.json of a folder, if there is one, and set *inner to the folder of its Transformer, which the caller
 * frees. Without modules.json, *made and *inner are NULL. The caller also frees *made after a failure. */
rp_status model_modules_find(model_modules **made, model_files *files, const char *folder, char **inner);

/* What model_modules_read needs from the model. */
typedef struct model_reading {
    model_files *files; /* records the files that are read */
    model_notes *notes;
    int64_t width;         /* of its hidden states */
    int64_t max_positions; /* max_position_embeddings of its config.json; -1: none */
    bool weights;          /* read the weights of the modules */
    bool scores;           /* of a CrossEncoder: keys about the outputs of its Transformer are not checked */
} model_reading;

/* Read the other modules and the prompts, once the configuration is known. `inner` is the folder of the Transformer. */
rp_status model_modules_read(model_modules *s, const model_reading *r, const char *folder, const char *inner);
/* Make the modules of a folder without modules.json: one way to pool, "mean", "cls" or "last". The longest text is that
 * of the folder's tokenizer. The caller also frees *made after a failure. */
rp_status model_modules_default(model_modules **made, const char *mode, const model_reading *r, const char *folder);

/* s may be NULL in these three. */
int64_t model_modules_width(const model_modules *s);  /* width of a vector; 0 for NULL */
int64_t model_modules_tokens(const model_modules *s); /* longest text, in tokens; 0: not limited */
void model_modules_free(model_modules *s);

/* Find the text of a prompt; name = NULL: the default prompt, or "". */
rp_status model_modules_prompt(const model_modules *s, const char *name, const char **prompt);
/* Visit the weights of the modules, for packing; a model_walk. The arrays of a packed file are used in place. */
rp_status model_modules_walk(void *modules, model_visitor *visit, void *context);
uint64_t model_modules_checksum(const model_modules *s, uint64_t sum); /* go on with a checksum over the weights */
bool model_modules_skips_prompt(const model_modules *s);               /* pooling leaves out the tokens of the prompt */
/* Make the vector of a text, whose n hidden states have the width d. Pooling begins at token `first`. Fail if the
 * vector is not finite. */
rp_status model_modules_apply(const model_modules *s, const float *hidden, int64_t d, int64_t first, int64_t n,
                              float *vector);

#endif
