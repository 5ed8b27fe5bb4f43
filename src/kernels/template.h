/* kernels/template.h -- attention over tiles: the template that each file of src/isa compiles with its vectors, and f64
 * again with its own. It makes one table, rpi_ops_NAME, of the entries that the engine calls. Templates know
 * engine/call.h: sources, views, the work of a call; they know no scheme, mask or instruction set by name, and include
 * nothing but each other.
 *
 * Parameters, which the file of the instruction set gives:
 *
 *     RPI_ISA          the name; RPI_F64  1: numbers are f64; RPI_AMX  1: products go by AMX tiles, with the verbs
 *                      amx_…
 *     vf, vf_…         a vector of VL numbers (`real`), and its verbs: isa/verbs.h has those that are not given
 *     VL               numbers of a vector: 2 to 16
 *     MR x NR          rows and columns of a register tile: MR 6, NR one to four vectors; MR is also the rows of a
 *                      group, and the largest number of queries that go tile by tile
 *
 * The file of the instruction set chooses VL, MR and NR; block_sizes.h has the sizes of blocks and tiles.
 * Tested: VL 4, 8, 16 in f32 and 2, 4, 8 in f64, NR 8 to 64.
 *
 * A task is a block of BLOCK_ROWS query rows of one head. It walks over tiles of TILE_KEYS keys:
 *
 *     scores   q k^T, whose sums start at the bias (a pointer for each row into a strip, an array, a row of products or
 *              scratch)
 *     softmax  VL rows at a time: maximum, exp, sum; the running maximum rescales what came before
 *     values   w v, summed over SUM_KEYS keys from zero, then added to out
 *
 * Tiles are cut at multiples of TILE_KEYS keys from key 0, and a masked pair adds an exact zero: so the bits of a row
 * depend on its own keys and values alone.
 * SPDX-License-Identifier: Apache-2.0 */

/* The contract of the kernels.
 *
 * Memory   Arrays of scratch and packed arrays begin at a multiple of 64 bytes. Where a length is "padded", the padding
 *          is written before it is read. A row of the caller's arrays may begin anywhere and is read from its first to
 *          its last element, no further; prefetches may name any address. An output overlaps no input unless it is said
 *          here.
 *
 * Packed   by fma  keys    [panel of NR keys][Dk][NR], rotated
 *                  values  [columns of NR channels][Lk padded to NR][NR, or what is left of Dv padded to VL]
 *          by amx  keys    [16 keys][chunk of 32 channels][component][16 x 16 pairs], rotated
 *                  values  [chunk of 32 keys][16 channels][component][16 x 16 pairs]
 *          Keys and values past Lk are 0, to the next multiple of COLUMN_STEP. An extreme key is packed as it is by
 *          fma, as 0 by amx; a value that is not finite (amx: or above MAX_VALUE) is packed as 0. extreme_k has a byte
 *          for each panel with such a key, extreme_v a byte for each such value.
 *
 * Block    queries  k->q [BLOCK_ROWS][Dk padded to VL], scaled and rotated; rows that fill up the last group are 0
 *          scores   k->s [BLOCK_ROWS][ROW_STEP], then weights: columns [t->from, t->to) of a row's group are written,
 *                   others are undefined
 *          biases   in[r] inside the softcap, out[r] outside: read for those columns
 *          sums     k->o [BLOCK_ROWS][Dv padded to VL], k->sum, k->running_max: over the tiles so far
 *
 * Entries of the table. A worker runs each in scratch of its own, of scratch_size, decode_size or backward_size bytes.
 *   pack           writes panels [panel0, panel1) of a kv head: keys, values, and their bytes in extreme_k and
 *                  extreme_v
 *   attend         rows [row0, row1) of a head whose kv head is packed: writes these rows of out, lse and entropy, adds
 *                  to `partial`
 *   attend_heads   packs and attends kv heads, one after the other, in the worker's own place among packed heads
 *   decode_scores  writes the scores of one tile, and the largest of each row
 *   decode_values  writes what the tile gives once all scores are there: sums of its weights, and of each SUM_KEYS
 *                  weighted values
 *   decode_merge   adds up the sums of a head in order, and writes its rows of out and lse
 *   decode_heads   all three for kv heads whose keys are one tile
 *   backward       BACKWARD_KEYS keys of a kv head: writes their dk and dv; adds to dq and to sums of the terms, in the
 *                  order of tickets
 *
 * A family of products, fma or amx, has all of these and sees nothing of the other.
 *   key_bytes, value_bytes   size of a packed key or value
 *   pack_keys, pack_values   n rows from j0 on; both are multiples of NR, and rows may lie past Lk
 *   values_in_place          the caller's values of a kv head, where no packing is needed; NULL: it is
 *   load_queries             the block's queries in the family's layout; and as rows, where a source multiplies them
 *                            or one is extreme
 *   key_scores               k->s = in + q k^T; in NULL: 0. in[r] may point into k->sum_in, which may be overwritten.
 *                            Into max, unless it is NULL, VL numbers for each row, the largest score of a tile without
 *                            an edge among them; NaN may be passed over
 *   weigh_tile               k->s becomes weights, which stay there where `kept`; k->sum += their sums; o = o * alpha +
 *                            w v
 *   unpacked_pays            whether few rows need no packed keys and values; then
 *   unpacked_scores          is key_scores of one group from keys of the caller; false: one is extreme, and k->s is
 *                            undefined
 *   products_layout          scratch of a backward task; products_begin packs its keys and values, products_end leaves
 *                            dk and dv in w
 *   load_dout                the block's rows of dout
 *   dp_products              w->dp = starts + dout v^T; dv_products dv += p^T dout, dk_products dk += ds^T q,
 *                            dq_products w->dq = ds k */

#include "block_sizes.h"

#include "elements.h"

#include "rotate_rows.h"

#include "pack.h"

#include "register_tile.h"

#if RPI_AMX
#include "amx/bf16_sums.h"
#include "amx/amx_scratch.h"
#else
#include "fma/fma_scratch.h"
#endif

#include "query_block.h"

#include "key_tile.h"

#include "term_vectors.h"

#include "tile_biases.h"

#include "softmax.h"

#if RPI_AMX
#include "amx/amx_products.h"
#include "amx/amx_pack.h"
#include "amx/amx_scores.h"
#include "amx/amx_unpacked.h"
#include "amx/amx_weights.h"
#else
#include "fma/fma_forward.h"
#endif

#include "scores.h"

#include "value_vectors.h"

#include "nonfinite.h"

#include "summary.h"

#include "skip.h"

#include "forward.h"

#include "decode.h"

#include "backward_scratch.h"

#if RPI_AMX
#include "amx/amx_backward.h"
#include "amx/amx_peak_rate.h"
#else
#include "fma/fma_backward.h"
#endif

#include "backward_terms.h"

#include "backward_tile.h"

#include "backward_task.h"

#include "peak_rate.h"

#define RPI_STRING(x)      #x
#define RPI_NAME(x)        RPI_STRING(x)
#define RPI_JOIN3(a, b, c) a##b##c
#if RPI_F64
#define RPI_OPS(x) RPI_JOIN3(rpi_ops_, x, _f64)
#else
#define RPI_OPS(x) RPI_JOIN3(rpi_ops_, x, )
#endif

#define RPI_OPS_OF(x) RPI_OPS(x)

#if RPI_AMX
#define AMX_PEAK amx_peak
#else
#define AMX_PEAK NULL
#endif
#define OPS_TABLE(ISA, PAIRS)                                                                                          \
    const rpi_ops RPI_OPS_OF(ISA) = {                                                                                  \
        .name = RPI_NAME(ISA),                                                                                         \
        .pairs = (PAIRS),                                                                                              \
        .vl = VL,                                                                                                      \
        .nr = NR,                                                                                                      \
        .column_step = COLUMN_STEP,                                                                                    \
        .block_rows = BLOCK_ROWS,                                                                                      \
        .tile_keys = TILE_KEYS,                                                                                        \
        .sum_keys = SUM_KEYS,                                                                                          \
        .backward_keys = BACKWARD_KEYS,                                                                                \
        .real = sizeof(real),                                                                                          \
        .amx = RPI_AMX,                                                                                                \
        .key_bytes = key_bytes,                                                                                        \
        .value_bytes = value_bytes,                                                                                    \
        .scratch_size = scratch_size,                                                                                  \
        .pack = pack_kv,                                                                                               \
        .attend = attend,                                                                                              \
        .attend_heads = attend_heads,                                                                                  \
        .decode_rows = MR,                                                                                             \
        .decode_tile = sizeof(decode_tile),                                                                            \
        .decode_size = decode_size,                                                                                    \
        .decode_scores = decode_scores,                                                                                \
        .decode_values = decode_values,                                                                                \
        .decode_merge = decode_merge,                                                                                  \
        .decode_heads = decode_heads,                                                                                  \
        .backward_size = backward_size,                                                                                \
        .backward = backward,                                                                                          \
        .peak = peak,                                                                                                  \
        .amx_peak = AMX_PEAK,                                                                                          \
    }

OPS_TABLE(RPI_ISA, false);
#ifdef RPI_PAIRS_ISA
OPS_TABLE(RPI_PAIRS_ISA, true);
#endif
