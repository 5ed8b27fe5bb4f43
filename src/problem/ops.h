/* problem/ops.h -- the table of an instruction set: sizes of its tiles, and its kernels, whose contract is in
 * kernels/template.h. It may know the public header alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_OPS_H
#define RELPOS_OPS_H
#include <relpos/relpos.h>
#include <stdbool.h>

typedef struct rpi_call rpi_call; /* engine/call.h */

typedef struct rpi_ops {
    const char *name;
    int32_t vl, nr;                             /* elements of a vector; columns of a register tile */
    int32_t column_step;                        /* columns of a tile are computed in multiples of this */
    int32_t block_rows;                         /* queries of a block */
    int32_t tile_keys, sum_keys;                /* keys of a tile; keys between two additions to out */
    int32_t backward_keys;                      /* keys of a task of the backward pass */
    int32_t real;                               /* bytes of an element of the arithmetic */
    bool amx;                                   /* products are made of bf16: kernels/amx */
    bool pairs;                                 /* scores of bf16 add two products an instruction: same bits */
    int64_t (*scratch_size)(const rpi_call *c); /* bytes, or RPI_TOO_LARGE; decode_size and backward_size likewise */
    int64_t (*key_bytes)(const rp_plan *plan), (*value_bytes)(const rp_plan *plan); /* of a packed key or value */
    void (*pack)(const rpi_call *c, int64_t kv, int64_t panel0, int64_t panel1, int32_t worker);
    void (*attend)(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, double *partial,
                   int32_t worker);
    void (*attend_heads)(const rpi_call *c, int64_t kv0, int64_t kv1, int32_t worker);
    /* the largest number of queries that go tile by tile; bytes of what a tile leaves */
    int32_t decode_rows, decode_tile;
    int64_t (*decode_size)(const rpi_call *c);
    void (*decode_scores)(const rpi_call *c, int64_t kv, int64_t tile, int32_t worker);
    void (*decode_values)(const rpi_call *c, int64_t kv, int64_t tile, int32_t worker);
    void (*decode_merge)(const rpi_call *c, int64_t head, int32_t worker);
    void (*decode_heads)(const rpi_call *c, int64_t kv0, int64_t kv1, int32_t worker);
    int64_t (*backward_size)(const rpi_call *c);
    void (*backward)(const rpi_call *c, int64_t kv, int64_t key_block, int32_t worker);
    double (*peak)(int64_t rounds);     /* multiply-adds done, on one thread */
    double (*amx_peak)(int64_t rounds); /* of bf16 on AMX tiles; NULL: there are none */
} rpi_ops;

const rpi_ops *rpi_ops_named(const char *name, bool f64); /* NULL: no such set, or not on this machine */

#endif
