/* template.h -- the kernels of linear layers, compiled once for each instruction set by a file of linear/sets, which
 * defines:
 *
 *   VL            number of floats of a vector: 4, 8 or 16; also vf and the vector operations of processor/vector_ops.h
 *   MR            max rows of a register tile in a large block; optional GROUP_ROWS(type), where it depends on the type
 *   MAX_ROWS      max rows of a block that is one tile high, at most 6
 *   SHAPES(X)     shapes of register tiles: X(columns, max rows), widest first, the last X(1, MAX_ROWS)
 *   LINEAR_ISA    name of the instruction set; the table of functions is linear_ops_NAME
 *   LINEAR_BASE   optional: table of another set, used for all types that this set does not define
 *   OWNS(type)    with LINEAR_BASE: true for the types that this set defines
 *   GROUPED(type) optional: true for types whose blocks of several groups read interleaved inputs. VL must be 8 and MR
 *                 6, so that all tiles of these blocks have one column. ADD_PRODUCTS adds the products of f32,
 *                 and signs.h lists the operations for bytes
 *   INT8_ENDS(rows, columns)   optional: true for int8 tiles that convert their sums to outputs in registers
 *   Q8_HELD(rows, columns)     optional: true for q8 tiles that also hold the sums of all groups in registers
 *
 * A file may also define operations on integers (integer_vector_ops.h) if compiler vectors are slow. With LINEAR_AMX,
 * int8 uses AMX tiles, whose operations amx_block.h lists, and MR, MAX_ROWS and SHAPES are not used. */
#ifndef LINEAR_ISA
#include "linear/kernels/editor.h" /* lets an editor parse this file on its own */
#endif
#ifndef LINEAR_BASE
#define OWNS(type) true
#endif
#ifndef INT8_ENDS
#define INT8_ENDS(rows, columns) 0
#endif
#ifndef Q8_HELD
#define Q8_HELD(rows, columns) 0
#endif
#ifndef GROUP_ROWS
#define GROUP_ROWS(type) MR
#endif
#include "linear/erf.h"
#include "linear/kernels/integer_vector_ops.h"
#include "linear/kernels/tile.h"
#include "linear/kernels/prepare.h"
#include "linear/kernels/store.h"
#include "linear/kernels/signs.h"
#ifdef LINEAR_AMX
#include "linear/kernels/amx_block.h"
#else
#include "linear/kernels/tiles.h"
#include "linear/kernels/blocks.h"
#include "linear/kernels/block.h"
#endif

#ifdef LINEAR_BASE
#define STRIP NULL
#else
#define STRIP make_strip
#endif
#define LINEAR_JOIN(a, b) a##b
#define LINEAR_TABLE(isa) LINEAR_JOIN(linear_ops_, isa)
#define LINEAR_TEXT(isa)  LINEAR_TEXT_(isa)
#define LINEAR_TEXT_(isa) #isa
extern const linear_ops LINEAR_TABLE(LINEAR_ISA);
const linear_ops LINEAR_TABLE(LINEAR_ISA) = {LINEAR_TEXT(LINEAR_ISA), groups, prepare, block, column, STRIP};
