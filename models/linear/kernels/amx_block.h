/* amx_block.h -- multiplies a block of rows of x by some panels of int8, on the eight tiles of AMX. Other types, and
 * blocks of fewer than FEWEST_ROWS rows, go to LINEAR_BASE. It reads the same prepared rows, and its sums of integers
 * are exact too, so both give the same bits.
 * Parameters: FEWEST_ROWS, and operations on the tiles R: amx_begin(R, rows) and amx_end(R) around a task; amx_fence();
 * amx_load and amx_store(R, tile, address, bytes from row to row); amx_dot(R, c, a, b): c += a b, where each sum adds
 * the products of 64 unsigned bytes in a row of a and the signed bytes in a column of b. Tile numbers are constants.
 *
 * Tiles 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 weights (16 lines of a column each). For 32 rows, tiles 0 and 1
 * belong to the first 16 rows and two columns, 2 and 3 to the second 16 rows: each loaded tile is used by two products.
 * For 16 rows, tiles 0 to 3 are four columns, which keeps four products in flight. */
#ifndef LINEAR_ISA
#include "linear/kernels/store.h" /* lets an editor parse this file on its own */
#endif

enum { TILE_ROWS = 16, TILE_LINES = 16 };

/* One or two tiles of rows, times some columns of a panel. */
typedef struct strip {
    tile t;
    const char *x[2];    /* inputs of each tile of rows; x[1] is NULL if there is only one */
    float *sums[4];      /* destination of each tile of sums; NULL: unused tile */
    const char *bias[4]; /* initial sums, -128 Σ q, equal for all rows */
    const char *rest;    /* last lines of the panel, padded with zeros to 16 */
} strip;

/* Set up sum tile n. Its column is n if there is one tile of rows, and n % 2 if there are two. */
INLINE void strip_sum(strip *s, int n, int64_t columns, float *sums)
{
    const int64_t c = s->x[1] ? n % 2 : n;
    s->sums[n] = c < columns ? sums + c * LINEAR_COLUMN : NULL;
    s->bias[n] = s->t.panel + (s->t.columns + s->t.first + c) * LINEAR_COLUMN_BYTES;
}

/* Multiply 16 lines, starting at line k; their weights are at w. */
INLINE void strip_lines(amx_tiles *R, const strip *s, int64_t k, const char *w)
{
    const int64_t step = line_step(&s->t), row = s->t.j->row_bytes;
    (void)R;
    amx_load(R, 4, s->x[0] + 4 * k, row);
    amx_load(R, 6, w, step);
    amx_dot(R, 0, 4, 6);
    if (s->sums[1]) {
        amx_load(R, 7, w + LINEAR_COLUMN_BYTES, step);
        amx_dot(R, 1, 4, 7);
    }
    if (s->x[1]) {
        amx_load(R, 5, s->x[1] + 4 * k, row);
        amx_dot(R, 2, 5, 6);
        if (s->sums[3])
            amx_dot(R, 3, 5, 7);
        return;
    }
    if (s->sums[2]) {
        amx_load(R, 6, w + 2 * LINEAR_COLUMN_BYTES, step);
        amx_dot(R, 2, 4, 6);
    }
    if (s->sums[3]) {
        amx_load(R, 7, w + 3 * LINEAR_COLUMN_BYTES, step);
        amx_dot(R, 3, 4, 7);
    }
}

#define EACH_SUM(X) X(0) X(1) X(2) X(3)
#define SUM_LOAD(n)                                                                                                    \
    if (s->sums[n])                                                                                                    \
        amx_load(R, n, s->bias[n], 0);
#define SUM_STORE(n)                                                                                                   \
    if (s->sums[n])                                                                                                    \
        amx_store(R, n, s->sums[n], LINEAR_PANEL *(int64_t)sizeof(float));
static void strip_sums(amx_tiles *R, const strip *s)
{
    const int64_t lines = s->t.j->lines, whole = lines / TILE_LINES * TILE_LINES;
    EACH_SUM(SUM_LOAD)
    for (int64_t k = 0; k < whole; k += TILE_LINES)
        strip_lines(R, s, k, line_at(&s->t, k));
    if (whole < lines)
        strip_lines(R, s, whole, s->rest + s->t.first * LINEAR_COLUMN_BYTES);
    EACH_SUM(SUM_STORE)
}

/* Return the number of tiles for a block. All tiles have the same height. The last one ends with the block and may
 * overlap the one before it; the shared rows are computed twice. */
static int64_t tiles_of(int64_t rows)
{
    return linear_ceil(rows, TILE_ROWS);
}

static int64_t tile_rows(int64_t rows)
{
    return linear_ceil(rows, tiles_of(rows));
}

static int64_t tile_begin(int64_t rows, int64_t n)
{
    const int64_t begin = n * tile_rows(rows), last = rows - tile_rows(rows);
    return begin < last ? begin : last;
}

/* Compute the sums of a panel: two tiles of rows by two columns at a time, or one tile of rows by all columns. */
static void panel_sums(amx_tiles *R, strip *s, int64_t rows)
{
    const int64_t tiles = tiles_of(rows);
    for (int64_t m = 0; m < tiles; m += 2) {
        const bool two = m + 1 < tiles;
        const int64_t begin = tile_begin(rows, m), next = tile_begin(rows, m + 1), width = two ? 2 : LINEAR_COLUMNS;
        s->x[0] = prepared_row(s->t.j, s->t.row + begin);
        s->x[1] = two ? prepared_row(s->t.j, s->t.row + next) : NULL;
        for (s->t.first = 0; s->t.first < s->t.columns; s->t.first += width) {
            float *sums = s->t.sums + s->t.first * LINEAR_COLUMN;
            for (int n = 0; n < 4; n++)
                strip_sum(s, n, s->t.columns - s->t.first, sums + (two && n >= 2 ? next : begin) * LINEAR_PANEL);
            strip_sums(R, s);
        }
    }
    s->t.first = 0;
}

static void amx_panel(amx_tiles *R, const linear_job *j, int64_t row, int64_t rows, int64_t panel, float *sums)
{
    char rest[TILE_LINES * LINEAR_COLUMNS * LINEAR_COLUMN_BYTES] __attribute__((aligned(64))) = {0};
    float bias[LINEAR_PANEL] __attribute__((aligned(64)));
    const int64_t lines = j->lines % TILE_LINES, left = j->out - panel * LINEAR_PANEL;
    const tile t = {.j = j,
                    .row = row,
                    .panel = j->packed + panel * j->panel_bytes,
                    .columns = linear_columns(j->out, panel),
                    .sums = sums,
                    .bias = panel_bias(j, panel, bias)};
    strip s = {.t = t, .rest = rest};
    memcpy(rest, line_at(&t, j->lines - lines), (size_t)(lines * line_step(&t)));
    amx_fence();
    panel_sums(R, &s, rows);
    amx_fence();
    store(&t, (int)rows, j->y + row * j->ldy + panel * LINEAR_PANEL, left < LINEAR_PANEL ? left : LINEAR_PANEL);
}

static void block(const linear_job *j, int64_t row, int64_t rows, int64_t panel, int64_t panels)
{
    float sums[LINEAR_MAX_ROWS * LINEAR_PANEL] __attribute__((aligned(64)));
    amx_tiles R;
    if (!OWNS(j->type) || rows < FEWEST_ROWS) {
        LINEAR_BASE.block(j, row, rows, panel, panels);
        return;
    }
    const unsigned before = rpi_float_begin(RPI_FLOAT_PLAIN);
    amx_begin(&R, (int)tile_rows(rows));
    for (int64_t n = panel; n < panel + panels; n++)
        amx_panel(&R, j, row, rows, n, sums);
    amx_end(&R);
    rpi_float_end(before);
}

static void column(const linear_job *j, int64_t panel, int64_t n, float *sums)
{
    LINEAR_BASE.column(j, panel, n, sums);
}
