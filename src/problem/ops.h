/* problem/ops.h -- the operations of an instruction set: the sizes of its tiles, and its kernels. kernels/template.h
 * has their contract. Includes only the public header.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_OPS_H
#define RELPOS_OPS_H
#include <relpos/relpos.h>
#include <stdbool.h>

typedef struct rpi_call rpi_call; /* call/call.h */

typedef struct rpi_ops {
    const char *name;
    int32_t vl, nr;              /* vl: elements of a vector; nr: columns of a register tile */
    int32_t column_step;         /* the number of computed columns of a tile is a multiple of this */
    int32_t block_rows;          /* queries in a block */
    int32_t tile_keys, sum_keys; /* keys in a tile; keys summed before each addition to out */
    int32_t backward_keys;       /* keys in a task of the backward pass */
    int32_t window_vectors;      /* most vectors of relval for which a row keeps sums of weights from tile to tile */
    int32_t real;                /* bytes of an element in arithmetic: 4 or 8 */
    bool amx;                    /* true for the AMX backend, which multiplies bf16 tiles */
    bool pairs;                  /* scores of bf16 arrays are computed from pairs of products, with equal results */
    int64_t (*scratch_size)(const rpi_call *c); /* sizes are in bytes, or RPI_TOO_LARGE */
    int64_t (*key_bytes)(const rp_plan *plan), (*value_bytes)(const rp_plan *plan); /* bytes of a packed key or value */
    void (*pack)(const rpi_call *c, int64_t kv, int64_t panel0, int64_t panel1, int32_t worker);
    void (*attend)(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, double *partial,
                   int32_t worker);
    void (*attend_heads)(const rpi_call *c, int64_t kv0, int64_t kv1, int32_t worker);
    /* decode_rows: the most queries of a decoding call; decode_tile: bytes of the struct decode_tile */
    int32_t decode_rows, decode_tile;
    int64_t (*decode_size)(const rpi_call *c);
    void (*decode_scores)(const rpi_call *c, int64_t kv, int64_t tile, int32_t worker);
    void (*decode_values)(const rpi_call *c, int64_t kv, int64_t tile, int32_t worker);
    void (*decode_merge)(const rpi_call *c, int64_t head, int32_t worker);
    void (*decode_heads)(const rpi_call *c, int64_t kv0, int64_t kv1, int32_t worker);
    int64_t (*backward_size)(const rpi_call *c);
    void (*backward)(const rpi_call *c, int64_t kv, int64_t key_block, int32_t worker);
    const char *singles; /* the set that computes tangents, because it multiplies single numbers; often this one */
    int64_t (*jvp_size)(const rpi_call *c); /* both NULL if this is another set */
    void (*jvp)(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, int32_t worker);
    double (*peak)(int64_t rounds);     /* run multiply-adds on one thread, return their number */
    double (*amx_peak)(int64_t rounds); /* like peak, with bf16 on AMX tiles; NULL without AMX */
} rpi_ops;

/* Return the default instruction set of calls with this type and precision: RELPOS_ISA if valid, else the best of this
 * machine. For f16, and for f32 at the highest precision, it is AVX-512 instead of AMX: five or six products of bf16
 * for each product pay only for hundreds of queries, and take two to three times as long for decoding. The number of
 * queries must not decide, because decoding gives the bits of prefilling. */
const char *rpi_isa_for(rp_dtype dtype, rp_precision precision);

/* Return the operations of an instruction set, or NULL if it is unknown or this machine does not support it. */
const rpi_ops *rpi_ops_named(const char *name, bool f64);

#endif
