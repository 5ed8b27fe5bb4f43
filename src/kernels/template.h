/* kernels/template.h -- attention over tiles: the template of the kernels, which the files of src/isa compile once for
 * each instruction set and type. It defines one table, rpi_ops_NAME, with the functions that the engine calls. The
 * templates use call/call.h and include only each other. They name no scheme, mask or instruction set.
 *
 * Parameters, defined by the file of the instruction set:
 *
 *     RPI_SINGLES      with AMX: the set that computes tangents
 *     RPI_ISA          the name; RPI_F64  1: `real` is double; RPI_AMX  1: products use AMX tiles, by operations amx_…
 *     vf, vf_…         a vector of VL elements (`real`) and its operations; vector_ops.h defines the missing ones
 *     VL               elements of a vector: 2 to 16
 *     MR x NR          rows and columns of a register tile: MR is 6, NR is one to four vectors. A group has MR rows,
 *                      and a decoding call has at most MR queries.
 *
 * block_sizes.h has the sizes of blocks and tiles. Tested: VL 4, 8, 16 in f32 and 2, 4, 8 in f64, NR 8 to 64.
 *
 * A task computes blocks of BLOCK_ROWS query rows of one head. For each block, it visits tiles of TILE_KEYS keys:
 *
 *     scores   compute q k^T plus biases. Each row has a pointer to its biases (in a strip, an array, a row of
 *              products, or scratch), from which its sums start
 *     softmax  for VL rows at a time, raise the running maximum, rescale the earlier sums, compute exp, add the weights
 *     values   sum w v over SUM_KEYS keys, starting from zero, then add the sum to out
 *
 * Tiles begin at multiples of TILE_KEYS keys from key 0, and a masked pair adds an exact zero. Therefore the bits of a
 * row depend only on its keys and values.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "editor.h" /* lets an editor parse this file on its own */
#endif

/* The contract of the kernels.
 *
 * Memory   Scratch arrays and packed arrays begin at a multiple of 64 bytes. If a length is "padded", the padding is
 *          written before it is read. A row of the caller's arrays may begin at any address. Kernels read nothing
 *          before its first or after its last element, but may prefetch any address. An output overlaps no input
 *          unless this contract says so.
 *
 * Packed   by fma  keys    [panel of NR keys][Dk][NR], rotated
 *                  values  [columns of NR channels][Lk padded to NR][NR, or the rest of Dv padded to VL]
 *          by amx  keys    [16 keys][chunk of 32 channels][component][16 x 16 pairs], rotated
 *                  values  [chunk of 32 keys][16 channels][component][16 x 16 pairs]
 *          Keys and values from Lk up to the next multiple of COLUMN_STEP are 0. A non-finite or large key sets the
 *          byte of its panel in large_k to 1; fma packs the key unchanged, amx packs it as 0. Both backends pack a
 *          non-finite value as 0 and set its byte in large_v to 1; amx does this also for values above MAX_VALUE.
 *
 * Block    queries  k->q [BLOCK_ROWS][Dk padded to VL], scaled and rotated; padding rows of the last group are 0
 *          scores   k->s [BLOCK_ROWS][ROW_STEP], later the weights; columns [t->from, t->to) of a row's group are
 *                   written, all others are undefined
 *          biases   in[r] is added before the softcap, out[r] after it; the same columns are read
 *          sums     k->o [BLOCK_ROWS][Dv padded to VL], k->sum and k->running_max cover the tiles so far
 *
 * Functions of the table. Each worker has scratch of scratch_size, decode_size or backward_size bytes.
 *   pack           pack keys and values of panels [panel0, panel1) of a kv head, and set large_k and large_v
 *   attend         write rows [row0, row1) of out, lse and entropy of a head whose kv head is packed; add to `partial`
 *   attend_heads   pack each kv head into the worker's slot of the packed heads, then compute all its rows
 *   decode_scores  write the scores of one tile, and the largest score of each row
 *   decode_values  write the sums of one tile's weights and weighted values; runs once all scores are written
 *   decode_merge   add the sums of a head in order, and write its rows of out and lse
 *   decode_heads   run all three steps for whole kv heads
 *   jvp            write rows [row0, row1) of the tangents of out and lse of a head whose kv head is packed, and mark
 *                  those that plain loops must compute; fma only
 *   backward       write dk and dv of BACKWARD_KEYS keys of a kv head; add to dq and to the sums of the terms in the
 *                  order of the tickets
 *
 * Each backend (fma or amx) defines all functions below and uses nothing of the other backend.
 *   key_bytes, value_bytes   return the size of a packed key or value
 *   pack_keys, pack_values   pack rows j0 … j0+n-1, which may be past Lk; j0 is a multiple of NR, n of COLUMN_STEP
 *   is_whole                 return true if one tile has all keys, and weigh_tile can write rows of out
 *   values_in_place          return the caller's values of a kv head if they need no packing, else NULL
 *   load_queries             load the block's queries in the backend's layout, and also as rows if a source multiplies
 *                            them or one is non-finite or large
 *   key_scores               compute k->s = in + q k^T; in NULL: 0. in[r] may point into k->sum_in, which may be
 *                            overwritten. If max is not NULL, store VL lane maxima of each row there, which may ignore
 *                            NaN and masks
 *   weigh_tile               turn k->s into weights, stored in k->s if `kept`; k->sum += their sums;
 *                            o = o * alpha + w v. If k->whole is set, write rows of out instead: w v / k->sum
 *   finish_values            add the values that weigh_tile has left for later, which it may do if k->defer is set
 *   unpacked_pays            return true if reading keys and values from the caller's arrays is faster than packing
 *   unpacked_scores          if unpacked_pays, compute k->s for one group of rows from the caller's keys. Return
 *                            false if a key is non-finite or large; k->s is then undefined
 *   products_layout          lay out scratch of a backward task; products_begin packs its keys and values
 *   products_zero            set the sums of a query head to zero, products_resume to w->head; products_end leaves them
 *                            in w->head
 *   load_dout                load the block's rows of dout
 *   dp_products              compute w->dp = starts + dout v^T; dv_products dv += p^T dout, dk_products dk += ds^T q,
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
#include "amx/amx_single.h"
#include "amx/amx_unpacked.h"
#include "amx/amx_weights.h"
#else
#include "fma/fma_forward.h"
#endif

#include "scores.h"

#include "value_vectors.h"

#include "nonfinite.h"

#include "summary.h"

#include "state.h"

#include "skip.h"

#include "forward.h"

#include "decode.h"

#if !RPI_AMX
#include "tangent_tile.h"

#include "tangents.h"
#endif

#include "backward_scratch.h"

#if RPI_AMX
#include "amx/amx_backward.h"
#include "amx/amx_peak_rate.h"
#else
#include "fma/fma_backward.h"
#endif

#include "key_sums.h"

#include "backward_terms.h"

#include "weight_gradients.h"

#include "backward_tile.h"

#if RPI_AMX
#define begin_tangents products_begin /* placeholders: this backend computes no second derivatives */
#define tile_second    tile_backward
#else
#include "second_tile.h"
#endif

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

#ifndef RPI_SINGLES
#define RPI_SINGLES RPI_ISA
#endif

#if RPI_AMX
#define AMX_PEAK amx_peak
#define JVP_SIZE NULL
#define JVP      NULL
#else
#define AMX_PEAK NULL
#define JVP_SIZE jvp_size
#define JVP      jvp_rows
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
        .window_vectors = WINDOW_VECTORS,                                                                              \
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
        .singles = RPI_NAME(RPI_SINGLES),                                                                              \
        .jvp_size = JVP_SIZE,                                                                                          \
        .jvp = JVP,                                                                                                    \
        .peak = peak,                                                                                                  \
        .amx_peak = AMX_PEAK,                                                                                          \
    }

OPS_TABLE(RPI_ISA, false);
#ifdef RPI_PAIRS_ISA
OPS_TABLE(RPI_PAIRS_ISA, true);
#endif
