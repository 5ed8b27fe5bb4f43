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
    const float *bias;    /* of the outputs of the panel (panel_bias) */
    float *y;             /* not NULL: the tile applies j->then and stores outputs here instead of sums */
    const char *group;    /* interleaved inputs of the rows from line `from` on; NULL: rows are not interleaved */
    const char *signs;    /* with interleaved bytes: the strip of signs of the tile's lines (signs.h) */
    int fetches;          /* number of prefetch streams; with interleaved inputs, cache lines of an iteration */
    const char *ahead[2]; /* prefetch streams: memory that other tiles will read, 64 bytes for each line; with
                           * interleaved inputs, begin and end of that memory */
} tile;

enum { LANES = LINEAR_COLUMN / VL, MAX_VECTORS = LINEAR_COLUMNS * LANES }; /* vectors per column; per row of a tile */

enum { INT4_LINES = LINEAR_GROUP / 8, Q8_LINES = LINEAR_GROUP / 4 }; /* lines of a group of inputs */

/* Repeat a statement for i = 0 … n - 1, unrolled; n is a constant. */
#define FOR(i, n)                                                                                                      \
    RPI_UNROLL                                                                                                         \
    for (int i = 0; i < (n); i++)

#define INLINE static inline __attribute__((always_inline))

/* Return w, kept in a register. Otherwise gcc with -Os loads weights again for each row, and the loads limit the
 * speed. */
INLINE vi held(vi w)
{
    RPI_HOLD(w);
    return w;
}

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

/* Prefetch, at line n of a tile, lines that other tiles will read. */
INLINE void fetch(const tile *t, int64_t n)
{
    if (t->fetches > 0)
        __builtin_prefetch(t->ahead[0] + n * 64, 0, 2);
    if (t->fetches > 1)
        __builtin_prefetch(t->ahead[1] + n * 64, 0, 2);
}

#ifdef GROUPED
/* Prefetch one or two cache lines of the tile's share, from `ahead` on. Return the address of the next. */
INLINE const char *fetch_share(const tile *t, const char *ahead)
{
    if (ahead >= t->ahead[1])
        return ahead;
    __builtin_prefetch(ahead, 0, 2);
    __builtin_prefetch(ahead + 64 * (t->fetches - 1), 0, 2);
    return ahead + 64 * t->fetches;
}
#endif

#ifndef LINEAR_AMX
/* For interleaved inputs: lines of an iteration; min rows of a group, since MAX_ROWS + 1 rows are two groups. */
enum { UNROLLED = 4, MIN_GROUP_ROWS = (MAX_ROWS + 1) / 2 };

/* Return the number of groups of a block: one if registers can hold the sums of all rows, otherwise groups of at most
 * GROUP_ROWS rows. */
static int64_t groups_of(linear_type type, int64_t rows)
{
    (void)type;
    return rows <= MAX_ROWS ? 1 : linear_ceil(rows, GROUP_ROWS(type));
}

/* Return the first row of group g of a block. Groups have rows / groups rows, rounded down or up. */
static int64_t group_begin(int64_t rows, int64_t groups, int64_t g)
{
    return g * rows / groups;
}
#endif

/* Return the address of the inputs of a prepared row. */
INLINE const char *prepared_row(const linear_job *j, int64_t row)
{
    return j->prepared + row * j->row_bytes + LINEAR_ROW_HEAD;
}
