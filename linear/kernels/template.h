/* template.h -- the kernels of linear layers, compiled once for each instruction set by linear/isa, whose file has
 * defined:
 *
 *   VL         floats of a vector, 4, 8 or 16; vf and the verbs of isa/verbs.h
 *   MR         rows of a register tile in a large block; MAX_ROWS: of a block that is one tile high, at most 6
 *   SHAPES(X)  its widths in columns: X(columns, the most rows), widest first, the last X(1, MAX_ROWS)
 *   LINEAR_ISA the name, of which the table of functions gets its own
 *   LINEAR_BASE    another set's table, where this one adds to it; OWNS(type): the types that it has kernels of its own for
 *   INT8_ENDS(rows, columns)  the tiles that make outputs of their sums of int8, where that is worth its code
 *
 * and, where the compiler's vectors are slow, verbs of integers (integer_verbs.h). With LINEAR_AMX products of int8 go by
 * AMX tiles (amx_block.h has their verbs), and MR, MAX_ROWS and SHAPES mean nothing. It may not know threads. */
#ifndef LINEAR_BASE
#define OWNS(type) true
#endif
#ifndef INT8_ENDS
#define INT8_ENDS(rows, columns) 0
#endif
#include "linear/kernels/integer_verbs.h"
#include "linear/kernels/tile.h"
#include "linear/kernels/prepare.h"
#include "linear/kernels/store.h"
#ifdef LINEAR_AMX
#include "linear/kernels/amx_block.h"
#else
#include "linear/kernels/tiles.h"
#include "linear/kernels/block.h"
#endif

#define LINEAR_JOIN(a, b) a##b
#define LINEAR_TABLE(isa) LINEAR_JOIN(linear_ops_, isa)
#define LINEAR_TEXT(isa)  LINEAR_TEXT_(isa)
#define LINEAR_TEXT_(isa) #isa
extern const linear_ops LINEAR_TABLE(LINEAR_ISA);
const linear_ops LINEAR_TABLE(LINEAR_ISA) = {LINEAR_TEXT(LINEAR_ISA), prepare, block, column};
