/* block.h -- a block of rows of x by some panels: groups of at most MR rows, whose tiles are as wide as registers allow.
 * May not know threads or calls.
 * Parameters: MR, SHAPES: X(panels of a tile, the most rows), widest first, the last with one panel and MR rows. */

/* Lines between two visits of a tile's sums: those of 4 panels stay in the second cache while all groups pass over them. */
enum { STEP = 512 };

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

typedef void tiles(int rows, const tile *p);

/* A tile for each number of rows. */
#define TILES(TYPE, PANELS, MOST)                                                                                      \
    static void TYPE##_tiles_##PANELS(int rows, const tile *p)                                                         \
    {                                                                                                                  \
        switch (rows) {                                                                                                \
        case 1: TYPE##_tile(1, PANELS, p); break;                                                                      \
        case 2: TYPE##_tile((MOST) < 2 ? 1 : 2, PANELS, p); break;                                                     \
        case 3: TYPE##_tile((MOST) < 3 ? 1 : 3, PANELS, p); break;                                                     \
        case 4: TYPE##_tile((MOST) < 4 ? 1 : 4, PANELS, p); break;                                                     \
        case 5: TYPE##_tile((MOST) < 5 ? 1 : 5, PANELS, p); break;                                                     \
        default: TYPE##_tile((MOST) < 6 ? 1 : 6, PANELS, p); break;                                                    \
        }                                                                                                              \
    }
#define EACH_TYPE(PANELS, MOST)                                                                                        \
    TILES(f32, PANELS, MOST) TILES(bf16, PANELS, MOST) TILES(int8, PANELS, MOST) TILES(int4, PANELS, MOST)
SHAPES(EACH_TYPE)

/* Sums begin at zero, or where inputs are unsigned at what takes 128 Σ q away. */
static void sums_begin(const linear_job *j, int64_t rows, const char *panel, int64_t n, float *sums)
{
    for (int64_t c = 0; c < n; c += VL) {
        const linear_int8_head *head = (const void *)(panel + c / LINEAR_PANEL * j->panel_bytes);
        const vi first = j->type == LINEAR_INT8 && X8_UNSIGNED ? vi_load(head->bias + c % LINEAR_PANEL) : (vi){0};
        for (int64_t r = 0; r < rows; r++)
            vi_store(sums + r * n + c, first);
    }
}

/* Rows of y that are written next come into the cache while their sums are made. */
static void fetch_rows(const linear_job *j, int64_t row, int64_t rows, int64_t first, int64_t n)
{
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t c = 0; c < n; c += LINEAR_LINE / (int64_t)sizeof(float))
            __builtin_prefetch(j->y + r * j->ldy + first + c, 1, 3);
}

/* A block's rows by the panels of one tile's width. */
static void column(const linear_job *j, tiles *const each, int64_t row, int64_t rows, int64_t panel, int width)
{
    float sums[LINEAR_MAX_ROWS * 4 * LINEAR_PANEL] __attribute__((aligned(64)));
    const int64_t full = width * LINEAR_PANEL, groups = linear_ceil(rows, MR), first = panel * LINEAR_PANEL;
    const int64_t n = smaller(full, j->out - first), step = groups > 1 ? STEP : j->lines;
    tile t = {.j = j, .panel = j->packed + panel * j->panel_bytes};
    sums_begin(j, rows, t.panel, full, sums);
    for (t.from = 0; t.from < j->lines; t.from = t.end) {
        t.end = smaller(t.from + step, j->lines);
        for (int64_t g = 0; g < groups; g++) { /* of rows / groups rows, or one more */
            const int64_t begin = g * rows / groups, end = (g + 1) * rows / groups;
            t.row = row + begin;
            t.sums = sums + begin * full;
            t.ahead = t.panel + (g < width ? g : 0) * j->panel_bytes + t.end * LINEAR_LINE;
            if (t.end == j->lines) {
                fetch_rows(j, t.row, end - begin, first, n);
                t.ahead = t.panel + (width + (g < width ? g : 0)) * j->panel_bytes;
            }
            each((int)(end - begin), &t);
            if (t.end == j->lines)
                store(&t, (int)(end - begin), full, first, n);
        }
    }
}

static void block(const linear_job *j, int64_t row, int64_t rows, int64_t panel, int64_t panels)
{
    const int64_t most = linear_ceil(rows, linear_ceil(rows, MR)), end = panel + panels;
#define SHAPE(PANELS, MOST)                                                                                            \
    if (most <= (MOST)) {                                                                                              \
        static tiles *const each[LINEAR_TYPES] = {f32_tiles_##PANELS, bf16_tiles_##PANELS, int8_tiles_##PANELS,        \
                                                  int4_tiles_##PANELS};                                                \
        for (; panel + (PANELS) <= end; panel += (PANELS))                                                             \
            column(j, each[j->type], row, rows, panel, PANELS);                                                        \
    }
    SHAPES(SHAPE)
}

#define LINEAR_JOIN(a, b) a##b
#define LINEAR_TABLE(isa) LINEAR_JOIN(linear_ops_, isa)
#define LINEAR_TEXT(isa)  LINEAR_TEXT_(isa)
#define LINEAR_TEXT_(isa) #isa
extern const linear_ops LINEAR_TABLE(LINEAR_ISA);
const linear_ops LINEAR_TABLE(LINEAR_ISA) = {LINEAR_TEXT(LINEAR_ISA), quantise, block};
