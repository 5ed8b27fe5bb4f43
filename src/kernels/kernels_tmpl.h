/* kernels_tmpl.h -- attention over tiles, compiled once per instruction set, which gave VL, MR, NR and the verbs.
 *
 * A task is a block of QB query rows of one head. It walks over tiles of KB keys:
 *
 *     scores   MR x NR register tiles of q k^T, whose sums start at the bias (a pointer per row into a strip, an array,
 *              a row of products or a scratch tile)
 *     softmax  VL rows at a time: maximum, exp, sum; the running maximum rescales what came before
 *     values   MR x NR register tiles of w v, summed over VB keys from zero, then added to out
 *
 * Tiles are cut at multiples of KB keys from key 0, and a masked pair adds an exact zero: so the bits of a row depend on
 * its own keys and values alone. */

enum {
    NV = NR / VL, /* vectors of a register tile's row */
    QB = 16 * MR, /* rows of a block: their scores of one tile stay in L2 with the tile's keys and values */
    KB = 512,     /* keys of a tile */
    STEP = KB +
           16, /* between rows of a tile in scratch: a power of two would crowd the rows into a few sets of the cache */
    VB = RPI_TILES ? KB : 128, /* keys between two additions to out: bounds the error, and their values stay in L1 */
    BKB = 256,                 /* keys of a task of the backward pass: their gradients stay in L2 */
    WINDOW = RPI_TILES ? 1280 : 1024, /* vectors of RUN and VALVEC at hand at a time */
};
/* A window holds what a block can reach in one tile, from a multiple of VB on. */
_Static_assert(WINDOW >= QB + KB + VB + NR, "a window must cover the offsets of one tile");
_Static_assert(KB % VB == 0 && VB % NR == 0 && NR % VL == 0, "tiles nest");

#include "pack_tmpl.h"

#include "tile_tmpl.h"

#include "block_tmpl.h"

#include "bias_tmpl.h"

#include "softmax_tmpl.h"

#if RPI_TILES
#include "split_tmpl.h"
#else
#include "fma_tmpl.h"
#endif

#include "mass_tmpl.h"

#include "forward_tmpl.h"

#include "decode_tmpl.h"

#include "backward_tmpl.h"

/* As many independent multiply-adds as a register tile has, from registers alone. */
static double peak(int64_t rounds)
{
    vf sum[MR * NV];
    volatile real seed = (real)0.5;
    const vf x = vf_set1(seed), y = vf_set1(1 - seed);
    real lane[VL];
    RPI_UNROLL
    for (int n = 0; n < MR * NV; n++)
        sum[n] = vf_set1((real)n);
    for (int64_t r = 0; r < rounds; r++) {
        RPI_UNROLL
        for (int n = 0; n < MR * NV; n++)
            sum[n] = vf_fma(x, y, sum[n]);
    }
    RPI_UNROLL
    for (int n = 1; n < MR * NV; n++)
        sum[0] = sum[0] + sum[n];
    vf_store(lane, sum[0]);
    seed = lane[0];
    return (double)rounds * MR * NV * VL;
}

#if RPI_TILES
static double amx_peak(int64_t rounds)
{
    static const uint32_t zeros[LEAF];
    amx_tiles scratch, *R = &scratch;
    (void)R;
    amx_begin();
    amx_zero(R, 0);
    amx_zero(R, 1);
    amx_zero(R, 2);
    amx_zero(R, 3);
    amx_load(R, 4, zeros, 64);
    amx_load(R, 5, zeros, 64);
    amx_load(R, 6, zeros, 64);
    amx_load(R, 7, zeros, 64);
    for (int64_t r = 0; r < rounds; r++) {
        amx_dot(R, 0, 4, 6);
        amx_dot(R, 1, 4, 7);
        amx_dot(R, 2, 5, 6);
        amx_dot(R, 3, 5, 7);
    }
    amx_end();
    return (double)rounds * 4 * SQ * SQ * CHUNK;
}
#endif

#define RPI_STRING(x)      #x
#define RPI_NAME(x)        RPI_STRING(x)
#define RPI_JOIN3(a, b, c) a##b##c
#if RPI_F64
#define RPI_OPS(x) RPI_JOIN3(rpi_ops_, x, _f64)
#else
#define RPI_OPS(x) RPI_JOIN3(rpi_ops_, x, )
#endif

#define RPI_OPS_OF(x) RPI_OPS(x)

const rpi_ops RPI_OPS_OF(RPI_ISA) = {
    .name = RPI_NAME(RPI_ISA),
    .vl = VL,
    .nr = NR,
    .qb = QB,
    .kb = KB,
    .vb = VB,
    .bkb = BKB,
    .real = sizeof(real),
    .amx = RPI_TILES,
    .key_bytes = key_bytes,
    .value_bytes = value_bytes,
    .scratch_size = scratch_size,
    .pack = pack_kv,
    .attend = attend,
    .attend_heads = attend_heads,
    .decode_rows = MR,
    .decode_tile = sizeof(decode_tile),
    .decode_size = decode_size,
    .decode_scores = decode_scores,
    .decode_values = decode_values,
    .decode_merge = decode_merge,
    .backward_size = backward_size,
    .backward = backward,
    .peak = peak,
#if RPI_TILES
    .amx_peak = amx_peak,
#endif
};
