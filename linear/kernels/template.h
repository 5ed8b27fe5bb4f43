/* template.h -- the kernels of linear layers, compiled once for each instruction set by linear/isa, whose file has defined:
 *
 *   VL         floats of a vector, 4, 8 or 16; vf and the verbs of isa/verbs.h
 *   MR         the most rows of a register tile, at most 6
 *   SHAPES(X)  its widths in panels: X(panels, the most rows), widest first, the last X(1, MR)
 *   LINEAR_ISA the name, of which the table of functions gets its own
 *
 * and, where the compiler's vectors are slow, verbs of integers (integer_verbs.h). It may not know threads. */
#include "linear/kernels/integer_verbs.h"
#include "linear/kernels/tiles.h"
#include "linear/kernels/quantise.h"
#include "linear/kernels/store.h"
#include "linear/kernels/block.h"
