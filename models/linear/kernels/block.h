/* block.h -- multiplies a block of rows of x by some panels, in groups of rows whose tiles are as wide as the registers
 * allow.
 * Parameters: MR, max rows of a group in a large block; MAX_ROWS, max rows of a block that is a single group; SHAPES:
 * X(columns of a tile, max rows), widest first, the last X(1, MAX_ROWS). */
#ifndef LINEAR_ISA
#include "linear/kernels/blocks.h" /* lets an editor parse this file on its own */
#endif

/* Lines per step. These lines of a panel stay in the L2 cache while all groups of rows use them. */
enum { STEP = 512 };

typedef void tiles(int rows, const tile *t);

/* Define TYPE_tiles_COLUMNS, which calls the tile for a given number of rows. */
#define ROWS(TYPE, N, COLUMNS, MOST)                                                                                   \
    if ((N) <= (MOST))                                                                                                 \
    TYPE##_tile((N) <= (MOST) ? (N) : 1, COLUMNS, t)
#define TILES(TYPE, COLUMNS, MOST)                                                                                     \
    static void TYPE##_tiles_##COLUMNS(int rows, const tile *t)                                                        \
    {                                                                                                                  \
        switch (rows) {                                                                                                \
        case 1: TYPE##_tile(1, COLUMNS, t); break;                                                                     \
        case 2: ROWS(TYPE, 2, COLUMNS, MOST); break;                                                                   \
        case 3: ROWS(TYPE, 3, COLUMNS, MOST); break;                                                                   \
        case 4: ROWS(TYPE, 4, COLUMNS, MOST); break;                                                                   \
        case 5: ROWS(TYPE, 5, COLUMNS, MOST); break;                                                                   \
        case 6: ROWS(TYPE, 6, COLUMNS, MOST); break;                                                                   \
        }                                                                                                              \
    }
#define EACH_TYPE(COLUMNS, MOST)                                                                                       \
    TILES(f32, COLUMNS, MOST)                                                                                          \
    TILES(f16, COLUMNS, MOST)                                                                                          \
    TILES(bf16, COLUMNS, MOST)                                                                                         \
    TILES(int8, COLUMNS, MOST)                                                                                         \
    TILES(int4, COLUMNS, MOST) TILES(q8, COLUMNS, MOST) TILES(blocks, COLUMNS, MOST)
SHAPES(EACH_TYPE)
#define TILE(TYPE, NAME, COLUMNS) (OWNS(TYPE) ? NAME##_tiles_##COLUMNS : NULL) /* NULL for types of another set */

/* Return true if tiles of this type with `rows` rows may have `columns` columns. */
static bool fits(linear_type type, int64_t rows, int64_t columns)
{
    if (type == LINEAR_Q8)
        return !Q8_HELD(rows, 2) || Q8_HELD(rows, columns);
    (void)rows;
    return type != LINEAR_BLOCKS || columns != 2;
}

/* Return the widest tile for `rows` rows that has at most `columns` columns; set *width to its number of columns. */
static tiles *widest(linear_type type, int64_t rows, int64_t columns, int64_t *width)
{
#define SHAPE(COLUMNS, MOST)                                                                                           \
    if (columns >= (COLUMNS) && rows <= (MOST) && fits(type, rows, COLUMNS)) {                                         \
        static tiles *const each[] = {TILE(LINEAR_F32, f32, COLUMNS),      TILE(LINEAR_F16, f16, COLUMNS),             \
                                      TILE(LINEAR_BF16, bf16, COLUMNS),    TILE(LINEAR_INT8, int8, COLUMNS),           \
                                      TILE(LINEAR_INT4, int4, COLUMNS),    TILE(LINEAR_Q8, q8, COLUMNS),               \
                                      TILE(LINEAR_BLOCKS, blocks, COLUMNS)};                                           \
        *width = COLUMNS;                                                                                              \
        return each[type];                                                                                             \
    }
    SHAPES(SHAPE)
    *width = 1; /* not reached: the last shape fits all */
    return NULL;
}

/* Set sums to zero. For int8 with unsigned inputs, int8_begin provides the initial sums instead. */
static void sums_begin(const tile *t, int64_t rows, float *sums)
{
    if (t->j->type == LINEAR_INT8 && X8_UNSIGNED)
        return;
    for (int64_t r = 0; r < rows; r++)
        memset(sums + r * LINEAR_PANEL, 0, (size_t)t->columns * LINEAR_COLUMN * sizeof *sums);
}

/* Prefetch the rows of y that the tile will write after computing its sums. */
static void fetch_rows(const linear_job *j, int64_t rows, const float *y, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c += LINEAR_COLUMN)
            __builtin_prefetch(y + r * j->ldy + c, 1, 3);
}

/* Return true if a tile of this size converts its sums to outputs in registers. */
static bool ends_itself(const tile *t, int64_t rows, int64_t columns)
{
    const linear_job *j = t->j;
    (void)rows;
    (void)columns;
    return ((j->type == LINEAR_INT8 && INT8_ENDS(rows, columns)) || (j->type == LINEAR_F32 && t->group) ||
            (j->type == LINEAR_Q8 && Q8_HELD(rows, columns))) &&
           (j->then == LINEAR_STORE || j->then == LINEAR_ADD || j->then == LINEAR_RELU);
}

#ifdef GROUPED
enum { BLOCK_STRIP = (int)STRIP_BYTES > (int)SIGN_BYTES ? (int)STRIP_BYTES : (int)SIGN_BYTES };
#else
enum { BLOCK_STRIP = STRIP_BYTES };
#endif

/* A block of rows and a panel. */
typedef struct part {
    const linear_job *j;
    int64_t row, rows, groups, panel;
    float *sums;
    char *strip; /* of blocks, or of signs */
} part;

/* Return the interleaved inputs of the `rows` rows from row `begin` of the block on, from line k on; NULL if the rows
 * are not interleaved. */
static const char *group_of(const part *p, int64_t begin, int64_t rows, int64_t k)
{
    const linear_job *j = p->j;
    if (!j->grouped || p->groups == 1)
        return NULL;
    return j->grouped + (p->row + begin) * linear_grouped_bytes(j->type, j->in) + k * rows * 4;
}

#ifdef GROUPED
/* Return true if the tiles of a block use strips of signs. */
static bool uses_signs(const part *p)
{
    return p->j->grouped && p->groups > 1 && has_signs(p->j->type);
}
#endif

/* Multiply all groups by `width` columns of the lines of a step. The step has `of` tiles in total, and `before` of them
 * are already done. The tiles share the prefetching of the next step, which may be in the next panel. */
static void columns_step(const part *p, tile *t, tiles *each, int64_t width, int64_t before, int64_t of)
{
    const linear_job *j = p->j;
    const int64_t lines = t->end - t->from, first = p->panel * LINEAR_PANEL + t->first * LINEAR_COLUMN;
    const int64_t n = linear_min(width * LINEAR_COLUMN, j->out - first);
    const char *next = t->panel + linear_line_at(j->type, t->columns, t->end);
    const int64_t share = lines * t->columns * LINEAR_COLUMN_BYTES / of; /* bytes that each tile prefetches */
#ifdef GROUPED
    if (uses_signs(p)) {
        make_signs(t, p->strip);
        t->signs = p->strip;
    }
#endif
    for (int64_t g = 0; g < p->groups; g++) {
        const int64_t begin = group_begin(p->rows, p->groups, g), end = group_begin(p->rows, p->groups, g + 1);
        const int64_t number = before + g;
        float *y = j->y + (p->row + begin) * j->ldy + first;
        t->row = p->row + begin;
        t->sums = p->sums + begin * LINEAR_PANEL + t->first * LINEAR_COLUMN;
        t->group = group_of(p, begin, end - begin, t->from);
        if (t->group) {
            t->fetches = share > lines / UNROLLED * 64 ? 2 : 1;
            t->ahead[0] = next + number * share;
            t->ahead[1] = t->ahead[0] + share;
        } else {
            t->fetches = of == 1 || number >= LINEAR_COLUMNS ? 0 : of == 2 ? 2 : 1;
            t->ahead[0] = next + linear_min(number, LINEAR_COLUMNS - 1) * lines * 64;
            t->ahead[1] = next + linear_min(number + of, LINEAR_COLUMNS - 1) * lines * 64;
        }
        if (t->end == j->lines)
            fetch_rows(j, end - begin, y, n);
        t->y = t->end == j->lines && ends_itself(t, end - begin, width) && n == width * LINEAR_COLUMN ? y : NULL;
        each((int)(end - begin), t);
        if (t->end == j->lines && !t->y)
            store(t, (int)(end - begin), y, n);
    }
}

static void panel_of_block(const part *p)
{
    const linear_job *j = p->j;
    const int64_t most = linear_ceil(p->rows, p->groups);
    float bias[LINEAR_PANEL] __attribute__((aligned(64)));
    tile t = {.j = j,
              .panel = j->packed + p->panel * j->panel_bytes,
              .columns = linear_columns(j->out, p->panel),
              .bias = panel_bias(j, p->panel, bias)};
    sums_begin(&t, p->rows, p->sums);
    for (; t.from < j->lines; t.from = t.end) {
        int64_t width, before = 0;
        widest(j->type, most, t.columns, &width);
        const int64_t of = p->groups * linear_ceil(t.columns, width);
        t.end = of > 1 ? linear_min(t.from + STEP, j->lines) : j->lines;
#ifdef GROUPED
        if (uses_signs(p))
            t.end = linear_min(t.from + SIGN_LINES, j->lines);
#endif
        if (OWNS(LINEAR_BLOCKS) && j->type == LINEAR_BLOCKS) {
            t.end = linear_min(t.from + LINEAR_BLOCK, j->lines);
            make_strip(j, p->panel, t.columns, t.from, t.end - t.from, p->strip);
            t.panel = p->strip;
        }
        for (t.first = 0; t.first < t.columns; t.first += width, before += p->groups) {
            tiles *each = widest(j->type, most, t.columns - t.first, &width);
            columns_step(p, &t, each, width, before, of);
        }
    }
}

/* For bf16, flush subnormal sums to zero, as the bf16 instructions do. */
static unsigned sums_state(const linear_job *j)
{
    return rpi_float_begin(j->type == LINEAR_BF16 ? RPI_FLOAT_FLUSH : RPI_FLOAT_PLAIN);
}

static void block(const linear_job *j, int64_t row, int64_t rows, int64_t panel, int64_t panels)
{
    float sums[LINEAR_MAX_ROWS * LINEAR_PANEL] __attribute__((aligned(64)));
    char strip[BLOCK_STRIP] __attribute__((aligned(64)));
#ifdef LINEAR_BASE
    if (!OWNS(j->type)) {
        LINEAR_BASE.block(j, row, rows, panel, panels);
        return;
    }
#endif
    const unsigned before = sums_state(j);
    for (int64_t n = panel; n < panel + panels; n++)
        panel_of_block(&(part){j, row, rows, groups_of(j->type, rows), n, sums, strip});
    rpi_float_end(before);
}

/* Multiply one row by one column of a panel, for linear_some. */
static void column(const linear_job *j, int64_t panel, int64_t n, float *sums)
{
#ifdef LINEAR_BASE
    if (!OWNS(j->type)) {
        LINEAR_BASE.column(j, panel, n, sums);
        return;
    }
#endif
    float aligned[LINEAR_COLUMN] __attribute__((aligned(64))) = {0};
    int64_t width;
    const tile t = {.j = j,
                    .panel = j->packed + panel * j->panel_bytes,
                    .columns = linear_columns(j->out, panel),
                    .first = n,
                    .end = j->lines,
                    .sums = aligned};
    const unsigned before = sums_state(j);
    widest(j->type, 1, 1, &width)(1, &t);
    rpi_float_end(before);
    memcpy(sums, aligned, sizeof aligned);
}
