/* tile.h -- a tile: a few rows of x times a few columns of a panel, over a range of the panel's lines. */
#ifndef LINEAR_ISA
#include "linear/kernels/integer_vector_ops.h" /* lets an editor parse this file on its own */
#endif

typedef struct tile {
    const linear_job *j;
    int64_t row; /* first row of x */
    const char *panel;
    int64_t columns, first; /* columns of the panel; first column of the tile */
    int64_t from, end;      /* range of lines */
    float *sums;
    float *y;             /* if not NULL: int8 applies j->then and stores the outputs here, instead of storing sums */
    int fetches;          /* number of prefetch streams */
    const char *ahead[2]; /* prefetch streams: memory that other tiles will read, 64 bytes for each line */
} tile;

#define INLINE static inline __attribute__((always_inline))

/* Return the address of line k, at the tile's first column. */
INLINE const char *line_at(const tile *t, int64_t k)
{
    return t->panel + linear_line_at(t->j->type, t->columns, k) + t->first * LINEAR_COLUMN_BYTES;
}

/* Return the number of bytes from one line to the next. */
INLINE int64_t line_step(const tile *t)
{
    return t->columns * LINEAR_COLUMN_BYTES;
}

/* Return the address of the inputs of a prepared row. */
INLINE const char *prepared_row(const linear_job *j, int64_t row)
{
    return j->prepared + row * j->row_bytes + LINEAR_ROW_HEAD;
}
