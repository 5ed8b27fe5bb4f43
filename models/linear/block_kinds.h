/* block_kinds.h -- types of numbers that are stored in blocks with scales, as in .gguf files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LINEAR_BLOCK_KINDS_H
#define RELPOS_LINEAR_BLOCK_KINDS_H

#include <stdint.h>

typedef enum linear_kind {
    LINEAR_Q8_0,
    LINEAR_Q4_0,
    LINEAR_Q4_1,
    LINEAR_Q5_0,
    LINEAR_Q5_1,
    LINEAR_Q2_K,
    LINEAR_Q3_K,
    LINEAR_Q4_K,
    LINEAR_Q5_K,
    LINEAR_Q6_K,
    LINEAR_KINDS
} linear_kind;

enum {
    LINEAR_BLOCK = 256,       /* max numbers of a block; also the inputs that a product takes from each row at a time */
    LINEAR_SHARED = 16,       /* min numbers that share a scale */
    LINEAR_BLOCK_BYTES = 212, /* max bytes of a block, with `lead` */
};

/* A type of blocks. A number is scale * (q - zero) if `zero` is positive, and scale * q + offset otherwise. Every step
 * of this formula is rounded to f32. */
typedef struct linear_blocks {
    const char *name;
    linear_kind kind;
    int64_t numbers, bytes; /* of a block: 32 or 256 numbers */
    int scale, min;         /* offsets of the f16 scales in a block; -1: none */
    int zero, most;         /* the largest q */
    int group;              /* numbers that share scale and offset: 16 or 32 */
    int lead;               /* bytes to put before a block so that the words of split.h are aligned */
    void (*read)(const struct linear_blocks *b, const unsigned char *block, float *to); /* convert a block to f32 */
} linear_blocks;

#endif
