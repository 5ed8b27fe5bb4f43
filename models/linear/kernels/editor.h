/* editor.h -- parameters with which an editor can parse a template without an instruction set. A template includes the
 * one before it, and the first ones this file, only if LINEAR_ISA is undefined. No build includes it. */
#include "linear/erf.h"
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#define LINEAR_ISA editor
#define RPI_F64    0
#define SHAPES(X)  X(2, 1) X(1, 3)
#define MAX_ROWS   3
enum { VL = 4, MR = 3 };
typedef float vf __attribute__((vector_size(16), may_alias));
#include "processor/vector_ops.h"

/* The parameters of amx_block.h. */
extern const linear_ops linear_ops_generic;
#define LINEAR_BASE linear_ops_generic
#define OWNS(type)  true
#define FEWEST_ROWS 1
typedef struct amx_tiles {
    char none;
} amx_tiles;
void amx_begin(amx_tiles *R, int rows);
void amx_end(amx_tiles *R);
void amx_fence(void);
void amx_load(amx_tiles *R, int t, const void *from, int64_t step);
void amx_store(const amx_tiles *R, int t, void *to, int64_t step);
void amx_dot(amx_tiles *R, int c, int a, int b);
