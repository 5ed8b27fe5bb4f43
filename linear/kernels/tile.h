/* tile.h -- a tile: some rows of x by some columns of a panel, and where it finds both. May not know how it is
 * computed. */

typedef struct tile {
    const linear_job *j;
    int64_t row;            /* of x, the first one */
    const char *panel;      /* of `columns` columns, */
    int64_t columns, first; /* the tile's from `first` on */
    int64_t from, end;      /* lines */
    float *sums;
    float *y;             /* not NULL: int8 ends here, with j->then, and not in sums */
    int fetches;          /* how many of */
    const char *ahead[2]; /* what other tiles read later: 64 bytes are prefetched at each line */
} tile;

#define INLINE static inline __attribute__((always_inline))

/* The tile's part of a line, and from line to line. */
INLINE const char *line_at(const tile *t, int64_t k)
{
    return t->panel + linear_line_at(t->j->type, t->columns, k) + t->first * LINEAR_COLUMN_BYTES;
}

INLINE int64_t line_step(const tile *t)
{
    return t->columns * LINEAR_COLUMN_BYTES;
}

/* The inputs of a prepared row. */
INLINE const char *prepared_row(const linear_job *j, int64_t row)
{
    return j->prepared + row * j->row_bytes + LINEAR_ROW_HEAD;
}
