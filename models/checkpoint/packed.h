/* packed.h -- files of packed models: their metadata, their checksum, and the model that they were packed from.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_PACKED_H
#define RELPOS_CHECKPOINT_PACKED_H

#include "io/checkpoint.h"
#include "linear/linear.h"
#include <stdbool.h>

enum { MODEL_CHECKSUM = 17 }; /* size of a checksum as text: 16 hexadecimal digits and a null byte */

void model_checksum_text(uint64_t sum, char text[MODEL_CHECKSUM]);

/* A kind of packed file. */
typedef struct model_packed {
    const char *format;      /* metadata "format" */
    const char *const *keys; /* [n_keys]: metadata that the checksum covers, besides that of model_describe_packed and
                                model_describe_origin */
    int n_keys;
} model_packed;

/* Add format, layout, type, config and not_finite to the metadata of a file that will be written. */
rp_status model_describe_packed(io_set *set, const model_packed *kind, linear_type type, const char *config,
                                int64_t not_finite);
/* Add the checksum, and write the file. */
rp_status model_write_packed(io_set *set, const model_packed *kind, const char *path);

/* If a file is a packed model of another kind than `own`, such as "relpos-t5", refuse it and name its commands. */
rp_status model_check_kind(const io_checkpoint *file, const char *path, const char *own);
/* Check layout and type of a packed file, and, if `has_checksum`, that it has one. type < 0: any. */
rp_status model_check_packed(const io_checkpoint *file, const char *path, int type, bool has_checksum);
/* Compare the checksum of a packed file with that in its metadata. The callback may cancel this. */
rp_status model_check_checksum(const io_checkpoint *file, const model_packed *kind, rp_progress *progress,
                               void *context);

/* Where a model comes from. */
typedef struct model_origin {
    char *folder; /* path of the folder or file; NULL: the model is a packed file */
    char *name;   /* last component of the path; NULL: unknown, in a file of relpos 0.1 */
    char
        checksum[MODEL_CHECKSUM]; /* of its tensors, if the model is a packed file; "" if it is unknown or not packed */
} model_origin;

rp_status model_note_origin(model_origin *o, const char *path); /* of a folder or file */
/* The weights are in this folder; NULL: in the folder of the origin itself. */
rp_status model_origin_inner(model_origin *o, const char *folder);
rp_status model_copy_origin(model_origin *o, const io_checkpoint *file); /* of a packed file */
/* Return the checksum of the tensors: the known one, or that of the folder, or else that of the tensors of `file`. */
rp_status model_origin_checksum(const model_origin *o, const io_checkpoint *file, char text[MODEL_CHECKSUM]);
/* Add name and checksum to the metadata of a file that will be written, if the name is known. */
rp_status model_describe_origin(const model_origin *o, const io_checkpoint *file, io_set *set);
void model_origin_free(model_origin *o);

#endif
