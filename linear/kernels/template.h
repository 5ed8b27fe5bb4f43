/* template.h -- the kernels of linear layers, compiled once for each instruction set by linear/isa, whose file has
 * defined:
 *
 *   VL         floats of a vector, 4, 8 or 16; vf and the verbs of isa/verbs.h
 *   MR         rows of a register tile in a large block; MAX_ROWS: of a block that is one tile high, at most 12
 *   SHAPES(X)  its widths in columns: X(columns, the most rows), widest first, the last X(1, MAX_ROWS)
 *   LINEAR_ISA the name, of which the table of functions gets its own
 *   LINEAR_BASE    another set's table, where this one adds to it; OWNS(type): the types that it has kernels of its own for
 *
 * and, where the compiler's vectors are slow, verbs of integers (integer_verbs.h). It may not know threads. */
#ifndef LINEAR_BASE
#define OWNS(type) true
#endif
#include "linear/kernels/integer_verbs.h"
#include "linear/kernels/tiles.h"
#include "linear/kernels/prepare.h"
#include "linear/kernels/store.h"
#include "linear/kernels/block.h"
