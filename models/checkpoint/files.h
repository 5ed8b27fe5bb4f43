/* files.h -- reads the files of a model, and records them, so that nothing is written over a file that a model was read
 * from.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_FILES_H
#define RELPOS_CHECKPOINT_FILES_H

#include "io/checkpoint.h"
#include <stdbool.h>

#define MODEL_MAX_JSON (8 << 20) /* max bytes of a JSON file other than a tokenizer; config.json usually has 1 kB */
#define MODEL_MAX_SIZE 16777216  /* max value of every size in a JSON file */

/* Identifies a file independently of its name. */
typedef struct model_file_id {
    uint64_t device, number;
} model_file_id;

/* The text of a JSON file. */
typedef struct model_text {
    char *key; /* in the metadata of a packed file: "file:" and the path within the model's folder */
    char *text;
} model_text;

/* All files of a model that were read or are mapped. To keep the texts of JSON files for packing the model, set `root`,
 * from malloc, before reading. A packed file has these texts in its metadata: set `root` to its path, and `packed`. */
typedef struct model_files {
    model_file_id *ids; /* [n] */
    int64_t n;
    char *root;                  /* path of the folder or of the packed file; NULL: texts are not kept */
    const io_checkpoint *packed; /* JSON files are read from the metadata of this file; NULL: from the folder */
    model_text *texts;           /* [n_texts] */
    int64_t n_texts;
} model_files;

char *model_join(const char *folder, const char *name); /* return "folder/name"; the caller frees it */
bool model_has_file(const char *folder, const char *name);
/* Read a whole file of at most `max` bytes and append a null byte; the caller frees *text. If the file does not exist,
 * *text is NULL and the status is RP_OK. */
rp_status model_read_file(model_files *f, const char *path, int64_t max, char **text, size_t *size);
/* Copy an array that has the bytes of a file, and append a null byte; the caller frees *text. An array of another type
 * is RP_E_ARG. */
rp_status model_copy_bytes(const io_tensor *array, const char *path, char **text, size_t *size);
/* Like model_read_file, for a JSON file of at most MODEL_MAX_JSON bytes. Refuse the byte 0 in it. A kept text is not
 * read again. */
rp_status model_read_text(model_files *f, const char *path, char **text, size_t *size);
rp_status model_note_file(model_files *f, const char *path); /* record a file */
/* Record the files of a checkpoint: the index, if there is one, and the files that contain tensors. */
rp_status model_note_checkpoint(model_files *f, const io_checkpoint *file, const char *folder);
/* Add the kept texts to the metadata of a file that will be written. */
rp_status model_list_texts(const model_files *f, io_set *set);
/* Return the keys of these metadata, [n_texts] and room for one more, which the caller frees; NULL: out of memory. */
const char **model_text_keys(const model_files *f);
bool model_reads(const model_files *f, const char *path); /* the file is recorded, under this name or another */
void model_files_free(model_files *f);

#endif
