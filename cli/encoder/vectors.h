/* vectors.h -- the output of `relpos embed`. Vectors go to OUT.part, an .npz archive with an array for every few texts.
 * At the end they are copied to OUT, and OUT.part is removed. The next run after an interrupted one continues OUT.part.
 * Functions return CLI_OK, or an exit code after printing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_VECTORS_H
#define RELPOS_CLI_VECTORS_H

#include "cli/cli.h"
#include "io/append.h"
#include <relpos/encoder.h>

enum { VECTORS_BLOCK = 64 }; /* texts of an array of OUT.part */

/* An array of OUT.part. */
typedef struct vectors_block {
    uint64_t tag; /* checksum of its texts */
    bool stored;
} vectors_block;

/* Set the first fields, and leave the others zero. */
typedef struct vectors_file {
    const char *path;
    const char *settings; /* options that change the vectors, as text for messages */
    const rp_encoder *model;
    int64_t width;
    bool json; /* OUT has lines of JSON, otherwise the array vectors [n, width] */
    char *part;
    io_append *archive;    /* NULL: OUT.part does not exist yet */
    vectors_block *blocks; /* [n_blocks] */
    size_t capacity;
    int64_t n_blocks;
    int64_t n;    /* texts so far */
    uint64_t tag; /* of the texts that do not fill a block */
    float *rows;  /* [VECTORS_BLOCK, width]: their vectors */
} vectors_file;

/* Open OUT.part if it exists. *known receives how many of the first texts have their vectors in it. */
int vectors_begin(vectors_file *v, int64_t *known);
/* Check that a text is the one whose vector is in OUT.part. */
int vectors_known(vectors_file *v, const rp_encoder_text *text);
int vectors_put(vectors_file *v, const rp_encoder_text *text, const float *vector);
/* With code CLI_OK, write OUT and remove OUT.part. Otherwise OUT.part stays, if it has vectors, and a line says so.
 * Return the exit code. */
int vectors_end(vectors_file *v, int code);

#endif
