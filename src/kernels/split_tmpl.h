/* split_tmpl.h -- products on AMX tiles of sums (AMX): numbers of f32 as sums of up to three bf16.
 * Compiled once per instruction set that has AMX tiles, in f32.
 *
 * x = x0 + x1 + x2, each the bf16 nearest to what is left; of f32 nothing is left after three. With n parts a product
 * is the sum of x_i y_j for i + j < n: one product for n = 1, three for 2, six for 3 (docs/numerics.md has the bounds).
 *
 * An operand lies in leaves of 16 x 16 pairs of bf16. Of a sum over x, a chunk is 32 of it, and pair p of a chunk is
 * (x = p, x = p + 16): two vectors make 16 pairs by a shift and an or. Leaves of the left operand have a row for each row
 * and a column for each pair; those of the right one a row for each pair and a column for each column. */

enum {
    SQ = 16,
    CHUNK = 2 * SQ,
    LEAF = SQ * SQ,
    PIECE = 64, /* keys whose weights are made while the products of the 64 before run: both stay in L1 */
};
#define MAX_VALUE 1e38 /* larger ones may not split */
_Static_assert((int)VL == (int)SQ, "a vector is a row of a leaf");

/* Leaves from `at` on: `tile` between neighbours along rows or columns, `chunk` between chunks, the parts one after the other. */
typedef struct operand {
    const uint32_t *at;
    int64_t tile, chunk;
    int parts;
} operand;

/* Parts of numbers of a type; of values; of keys, which a rotation makes numbers of f32; of queries times the scale; of weights. */
static inline int type_parts(const rp_plan *plan, rp_dtype type)
{
    return type == RP_BF16 ? 1 : type == RP_F16 ? 2 : plan->parts;
}

static inline int value_parts(const rp_plan *plan)
{
    return type_parts(plan, plan->desc.dtype);
}

static inline int key_parts(const rp_plan *plan)
{
    return plan->rotate >= 0 ? plan->parts : value_parts(plan);
}

static inline int query_parts(const rp_plan *plan)
{
    int exponent;
    /* bf16 times a power of two is bf16 */
    const bool exact = plan->rotate < 0 && frexp(fabs(plan->desc.scale), &exponent) == 0.5;
    return exact && plan->desc.dtype == RP_BF16 ? 1 : plan->parts;
}

static inline int weight_parts(const rp_plan *plan)
{
    return plan->desc.dtype == RP_F32 ? plan->parts : 2;
}

#define ALWAYS_INLINE static inline __attribute__((always_inline)) /* so that `parts` is a constant */

/* The parts of 16 pairs (x, y). */
ALWAYS_INLINE void split_pair(vf x, vf y, int parts, vu *to)
{
    const vu high = (vu){0} + 0xffff0000u, half = (vu){0} + 0x8000u;
    RPI_UNROLL
    for (int n = 0; n < parts; n++) {
        const vu add = n == 2 ? (vu){0} : half, a = (vu)x + add, b = (vu)y + add;
        to[n] = vu_highs(a, b);
        x = x - (vf)(a & high);
        y = y - (vf)(b & high);
    }
}

/* The same, cheaper: all parts but the last are cut off, not rounded. Of three parts nothing is left either. */
ALWAYS_INLINE void cut_pair(vf x, vf y, int parts, vu *to)
{
    const vu high = (vu){0} + 0xffff0000u, half = (vu){0} + 0x8000u;
    RPI_UNROLL
    for (int n = 0; n < parts; n++) {
        const bool round = n == parts - 1 && n < 2;
        const vu add = round ? half : (vu){0};
        to[n] = vu_highs((vu)x + add, (vu)y + add);
        x = x - (vf)((vu)x & high);
        y = y - (vf)((vu)y & high);
    }
}

static inline void store_pairs(uint32_t *to, vu pairs)
{
    memcpy(to, &pairs, sizeof pairs);
}

/* What goes on beside the products, a step at a time; see below. */
typedef struct piece piece;
static inline void piece_step(piece *p);

/* Squares 0 … 3 += A B of one chunk: 4 and 5 hold parts of A, 6 and 7 of B. Parts i and j meet where i + j < max(PA, PB). */
#define DOT_CHUNK(MT, NT, PA, PB)                                                                                      \
    for (int64_t c = 0; c < chunks; c++, x += a->chunk, y += b->chunk) {                                               \
        RPI_UNROLL                                                                                                     \
        for (int i = PA - 1; i >= 0; i--) {                                                                            \
            amx_load(R, 4, x + i * LEAF, 64);                                                                          \
            if (MT > 1)                                                                                                \
                amx_load(R, 5, x + a->tile + i * LEAF, 64);                                                            \
            RPI_UNROLL                                                                                                 \
            for (int j = (PA > PB ? PA : PB) - 1; j >= 0; j--) {                                                       \
                if (j >= PB || i + j >= (PA > PB ? PA : PB))                                                           \
                    continue;                                                                                          \
                amx_load(R, 6, y + j * LEAF, 64);                                                                      \
                amx_dot(R, 0, 4, 6);                                                                                   \
                if (MT > 1)                                                                                            \
                    amx_dot(R, 2, 5, 6);                                                                               \
                if (NT > 1) {                                                                                          \
                    amx_load(R, 7, y + b->tile + j * LEAF, 64);                                                        \
                    amx_dot(R, 1, 4, 7);                                                                               \
                    if (MT > 1)                                                                                        \
                        amx_dot(R, 3, 5, 7);                                                                           \
                }                                                                                                      \
                if (beside)                                                                                            \
                    piece_step(beside);                                                                                \
            }                                                                                                          \
        }                                                                                                              \
    }

/* DOT with the parts of both operands as constants. */
#define BY_PARTS(DOT, MT, NT, a_parts, b_parts)                                                                        \
    switch (4 * (a_parts) + (b_parts)) {                                                                               \
    case 5: DOT(MT, NT, 1, 1) break;                                                                                   \
    case 6: DOT(MT, NT, 1, 2) break;                                                                                   \
    case 9: DOT(MT, NT, 2, 1) break;                                                                                   \
    case 7: DOT(MT, NT, 1, 3) break;                                                                                   \
    case 11: DOT(MT, NT, 2, 3) break;                                                                                  \
    case 13: DOT(MT, NT, 3, 1) break;                                                                                  \
    case 14: DOT(MT, NT, 3, 2) break;                                                                                  \
    case 10: DOT(MT, NT, 2, 2) break;                                                                                  \
    default: DOT(MT, NT, 3, 3) break;                                                                                  \
    }

/* out = from + A B over chunks, MT x NT AMX tiles, rows `out_step` apart; from NULL: zero. */
#define PRODUCT(MT, NT)                                                                                                \
    static void product_##MT##_##NT(const operand *a, const operand *b, int64_t chunks, const real *const *from,       \
                                    const int64_t *from_step, real *out, int64_t out_step, piece *beside)              \
    {                                                                                                                  \
        const uint32_t *x = a->at, *y = b->at;                                                                         \
        amx_tiles scratch, *R = &scratch;                                                                              \
        (void)R;                                                                                                       \
        amx_fence();                                                                                                   \
        if (from) {                                                                                                    \
            amx_load(R, 0, from[0], from_step[0] * 4);                                                                 \
            if (NT > 1)                                                                                                \
                amx_load(R, 1, from[0] + SQ, from_step[0] * 4);                                                        \
            if (MT > 1)                                                                                                \
                amx_load(R, 2, from[1], from_step[1] * 4);                                                             \
            if (MT * NT > 2)                                                                                           \
                amx_load(R, 3, from[1] + SQ, from_step[1] * 4);                                                        \
        } else {                                                                                                       \
            amx_zero(R, 0);                                                                                            \
            amx_zero(R, 1);                                                                                            \
            amx_zero(R, 2);                                                                                            \
            amx_zero(R, 3);                                                                                            \
        }                                                                                                              \
        BY_PARTS(DOT_CHUNK, MT, NT, a->parts, b->parts)                                                                \
        amx_store(R, 0, out, out_step * 4);                                                                            \
        if (NT > 1)                                                                                                    \
            amx_store(R, 1, out + SQ, out_step * 4);                                                                   \
        if (MT > 1)                                                                                                    \
            amx_store(R, 2, out + SQ * out_step, out_step * 4);                                                        \
        if (MT * NT > 2)                                                                                               \
            amx_store(R, 3, out + SQ * out_step + SQ, out_step * 4);                                                   \
    }
PRODUCT(1, 1)
PRODUCT(1, 2)
PRODUCT(2, 1)
PRODUCT(2, 2)

static inline void product(int64_t mt, int64_t nt, const operand *a, const operand *b, int64_t chunks,
                           const real *const *from, const int64_t *from_step, real *out, int64_t out_step,
                           piece *beside)
{
    if (mt > 1 && nt > 1)
        product_2_2(a, b, chunks, from, from_step, out, out_step, beside);
    else if (mt > 1)
        product_2_1(a, b, chunks, from, from_step, out, out_step, beside);
    else if (nt > 1)
        product_1_2(a, b, chunks, from, from_step, out, out_step, beside);
    else
        product_1_1(a, b, chunks, from, from_step, out, out_step, beside);
}

/* ---------------------------------------------------------------------------------------------- packing */

/* Row j as f32, padded with zeros to whole chunks: where it lies, or in `scratch`. Rows past the last are 0. */
static inline const real *row_at(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t real_rows, int64_t width,
                                 real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK);
    if (j >= real_rows || !v->data) {
        memset(scratch, 0, reals(wide, 1));
        return scratch;
    }
    const void *row = rpi_row_of(v, b, h, j);
    if (v->dtype == RP_F32 && width == wide)
        return row;
    for (int64_t x0 = 0; x0 < width; x0 += PART) {
        const int64_t m = rpi_min(PART, width - x0);
        const real *from = load_part(v, row, x0, m, scratch + x0);
        if (from != scratch + x0)
            memcpy(scratch + x0, from, reals(m, 1));
    }
    memset(scratch + width, 0, reals(wide - width, 1));
    return scratch;
}

/* Rows that are packed together: where they lie as f32, what to fetch meanwhile, the numbers seen on the way. */
typedef struct packing {
    const real *at[CHUNK];
    const char *ahead[CHUNK];
    int64_t size; /* bytes of an element there */
    watch seen;
} packing;

/* n rows from j0 on, as row_at gives them. scratch: n rows. */
static inline void rows_at(packing *s, const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n,
                           int64_t real_rows, int64_t width, real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK);
    s->size = rpi_floating_size(v->dtype);
    if (j0 + n + AHEAD <= real_rows && !v->page && v->dtype == RP_F32 && width == wide) {
        const real *at = rpi_row_of(v, b, h, j0);
        for (int64_t r = 0; r < n; r++, at += v->stride[2]) {
            s->at[r] = at;
            s->ahead[r] = (const char *)(at + AHEAD * v->stride[2]);
        }
        return;
    }
    for (int64_t r = 0; r < n; r++) {
        s->at[r] = row_at(v, b, h, j0 + r, real_rows, width, scratch + r * wide);
        s->ahead[r] = (const char *)s->at[r];
        if (j0 + r < real_rows && v->data)
            s->ahead[r] = row_ahead(v, b, h, j0 + r, real_rows);
    }
}

static inline void watch_row(watch *w, const real *row, int64_t wide)
{
    for (int64_t x = 0; x < wide; x += VL)
        watch_vector(w, vf_load(row + x));
}

/* Whether numbers are finite and none is larger than `limit`. */
static inline bool is_moderate(const watch *w, real limit)
{
    return is_finite(w) && vf_top(w->max) <= limit;
}

/* Put zeros in place of rows that are extreme, and tell which they are: extreme[r]; true if any. */
static bool clear_rows(packing *s, int64_t n, int64_t wide, real limit, real *scratch, uint8_t *extreme)
{
    bool any = false;
    for (int64_t r = 0; r < n; r++) {
        watch w = {vf_set1(0)};
        watch_row(&w, s->at[r], wide);
        extreme[r] = !is_moderate(&w, limit);
        any |= extreme[r];
        if (extreme[r])
            s->at[r] = memset(scratch + r * wide, 0, reals(wide, 1));
    }
    return any;
}

/* Rotated copies in scratch in place of rows j0 … */
static void rotated_copies(packing *s, int64_t n, int64_t wide, const rp_term *rotate, const real *rope, int64_t j0,
                           int64_t real_rows, real *scratch)
{
    for (int64_t r = 0; r < n && j0 + r < real_rows; r++) {
        if (s->at[r] != scratch + r * wide)
            s->at[r] = memcpy(scratch + r * wide, s->at[r], reals(wide, 1));
        rotate_row(rotate, rope + (j0 + r) * rotate->dim, 1, scratch + r * wide, 1);
    }
}

/* 16 pairs (x, y) in parts; the numbers are watched, and a later row is fetched. */
ALWAYS_INLINE void take_pair(watch *seen, const real *x, const real *y, const char *ahead_x, const char *ahead_y,
                             int parts, vu *to)
{
    const vf a = vf_load(x), b = vf_load(y);
    __builtin_prefetch(ahead_x, 0, 2);
    __builtin_prefetch(ahead_y, 0, 2);
    watch_vector(seen, a);
    watch_vector(seen, b);
    split_pair(a, b, parts, to);
}

/* A chunk of channels of 16 rows, one row in each column of the leaves. */
ALWAYS_INLINE void transposed_leaves(packing *s, int64_t x, int parts, uint32_t *to)
{
    vu leaf[3][SQ];
    watch seen = s->seen;
    RPI_UNROLL
    for (int r = 0; r < SQ; r++) {
        vu part[3];
        const char *ahead = s->ahead[r] + x * s->size;
        take_pair(&seen, s->at[r] + x, s->at[r] + x + SQ, ahead, ahead + SQ * s->size, parts, part);
        RPI_UNROLL
        for (int p = 0; p < parts; p++)
            leaf[p][r] = part[p];
    }
    s->seen = seen;
    RPI_UNROLL
    for (int p = 0; p < parts; p++) {
        vf_transpose((vf *)leaf[p]);
        memcpy(to + p * LEAF, leaf[p], sizeof leaf[p]);
    }
}

static void split_transposed(packing *s, int64_t x, int parts, uint32_t *to)
{
    switch (parts) {
    case 1: transposed_leaves(s, x, 1, to); break;
    case 2: transposed_leaves(s, x, 2, to); break;
    default: transposed_leaves(s, x, 3, to); break;
    }
}

/* n rows of an array as right operand of a sum over their channels: [16 rows][chunk][part]. Rows that are extreme become 0;
 * extreme[panel of NR] tells of them, and extreme_rows unless it is NULL. scratch: 16 rows. */
static void split_panels(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                         int64_t width, const rp_term *rotate, const real *rope, int parts, uint32_t *to,
                         uint8_t *extreme, uint8_t *extreme_rows, real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK);
    for (int64_t r0 = 0; r0 < n; r0 += SQ, to += wide / CHUNK * parts * LEAF) {
        uint8_t cleared[SQ];
        packing s;
        bool look = rotate; /* else the numbers are seen on the way */
        rows_at(&s, v, b, h, j0 + r0, SQ, real_rows, width, scratch);
        do {
            if (look &&
                clear_rows(&s, SQ, wide, (real)RPI_MODERATE, scratch, extreme_rows ? extreme_rows + r0 : cleared))
                extreme[r0 / NR] = 1;
            if (rotate)
                rotated_copies(&s, SQ, wide, rotate, rope, j0 + r0, real_rows, scratch);
            s.seen = (watch){vf_set1(0)};
            for (int64_t x = 0; x < wide; x += CHUNK)
                split_transposed(&s, x, parts, to + x / CHUNK * parts * LEAF);
        } while (!look && (look = !is_moderate(&s.seen, (real)RPI_MODERATE)));
    }
}

/* n times 16 pairs (x, y), `step` apart, each a row of leaves. */
ALWAYS_INLINE void run_leaves(const real *x, const real *y, int64_t step, int64_t n, int parts, uint32_t *to)
{
    for (; n > 0; n--, x += step, y += step, to += parts * LEAF) {
        vu part[3];
        split_pair(vf_load(x), vf_load(y), parts, part);
        RPI_UNROLL
        for (int p = 0; p < parts; p++)
            store_pairs(to + p * LEAF, part[p]);
    }
}

static void split_run(const real *x, const real *y, int64_t step, int64_t n, int parts, uint32_t *to)
{
    switch (parts) {
    case 1: run_leaves(x, y, step, n, 1, to); break;
    case 2: run_leaves(x, y, step, n, 2, to); break;
    default: run_leaves(x, y, step, n, 3, to); break;
    }
}

/* Pairs of 32 rows of an array, r and r + 16: [16 channels][part]. */
ALWAYS_INLINE void across_leaves(packing *s, int64_t columns, int parts, uint32_t *to)
{
    const int64_t size = s->size;
    watch seen = s->seen;
    for (int64_t r = 0; r < SQ; r++) {
        const real *x = s->at[r], *y = s->at[r + SQ];
        const char *a = s->ahead[r], *b = s->ahead[r + SQ];
        uint32_t *leaf = to + r * SQ;
        for (int64_t m = 0; m < columns; m++, leaf += parts * LEAF) {
            vu part[3];
            take_pair(&seen, x + m * SQ, y + m * SQ, a + m * SQ * size, b + m * SQ * size, parts, part);
            RPI_UNROLL
            for (int p = 0; p < parts; p++)
                store_pairs(leaf + p * LEAF, part[p]);
        }
    }
    s->seen = seen;
}

static void split_across(packing *s, int64_t columns, int parts, uint32_t *to)
{
    switch (parts) {
    case 1: across_leaves(s, columns, 1, to); break;
    case 2: across_leaves(s, columns, 2, to); break;
    default: across_leaves(s, columns, 3, to); break;
    }
}

/* n rows of an array as right operand of a sum over the rows: [chunk of rows][16 channels][part]. Rows that are not finite, or
 * larger than `limit`, become 0; extreme[r] tells of them. scratch: 32 rows. */
static void split_columns(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                          int64_t width, const rp_term *rotate, const real *rope, int parts, real limit, uint32_t *to,
                          uint8_t *extreme, real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK), columns = rpi_round_up(width, SQ) / SQ;
    for (int64_t r0 = 0; r0 < n; r0 += CHUNK, to += columns * parts * LEAF) {
        packing s;
        bool look = rotate; /* else the numbers are seen on the way */
        rows_at(&s, v, b, h, j0 + r0, CHUNK, real_rows, width, scratch);
        memset(extreme + r0, 0, CHUNK);
        do {
            if (look)
                clear_rows(&s, CHUNK, wide, limit, scratch, extreme + r0);
            if (rotate)
                rotated_copies(&s, CHUNK, wide, rotate, rope, j0 + r0, real_rows, scratch);
            s.seen = (watch){vf_set1(0)};
            split_across(&s, columns, parts, to);
        } while (!look && (look = !is_moderate(&s.seen, limit)));
    }
}

/* Rows of numbers as left operand of a sum along them: [16 rows][chunk][part], from rows `step` apart. */
static inline void split_rows(const real *from, int64_t step, int64_t rows, int64_t width, int parts, uint32_t *to)
{
    const int64_t chunks = width / CHUNK;
    for (int64_t r = 0; r < rows; r++)
        split_run(from + r * step, from + r * step + SQ, CHUNK, chunks, parts,
                  to + r / SQ * chunks * parts * LEAF + r % SQ * SQ);
}

/* ---------------------------------------------------------------------------------------------- what fma_tmpl.h has too */

static int64_t key_bytes(const rp_plan *plan)
{
    return rpi_round_up(plan->desc.dim_k, CHUNK) * 2 * key_parts(plan);
}

static int64_t value_bytes(const rp_plan *plan)
{
    return rpi_round_up(plan->desc.dim_v, SQ) * 2 * value_parts(plan);
}

static void pack_keys(const rpi_call *c, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, uint8_t *extreme,
                      real *scratch)
{
    const rp_desc *d = &c->args->desc;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    split_panels(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, rotate, (const real *)c->rope_k + b * c->rope_k_step,
                 key_parts(c->plan), to, extreme, NULL, scratch);
}

static void pack_values(const rpi_call *c, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, int64_t first,
                        int64_t pad, uint8_t *extreme, real *scratch)
{
    const rp_desc *d = &c->args->desc;
    const int parts = value_parts(c->plan);
    (void)pad;
    split_columns(&c->args->v, b, g, j0, n, d->len_k, d->dim_v, NULL, NULL, parts, (real)MAX_VALUE,
                  (uint32_t *)to + first / CHUNK * (c->pad_v / SQ) * parts * LEAF, extreme, scratch);
}

/* The block's queries as left operand; by groups too where a source multiplies them, or some are extreme. */
static void load_queries(block *k)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t wide = rpi_round_up(d->dim_k, CHUNK), rows = rpi_round_up(k->groups * MR, CHUNK);
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const real *rope = rotate ? (const real *)c->rope_q + k->b * c->rope_q_step : NULL;
    const vf scale = vf_set1((real)d->scale);
    watch seen = {vf_set1(0)};
    bool groups = false;
    k->q_parts = query_parts(c->plan);
    for (int64_t r0 = 0; r0 < rows; r0 += SQ) {
        real *to = k->q_rows + r0 * wide;
        packing s;
        rows_at(&s, &c->args->q, k->b, k->h, k->row0 + r0, SQ, k->row0 + k->rows, d->dim_k, to);
        for (int64_t r = 0; r < SQ; r++, to += wide)
            for (int64_t x = 0; x < wide; x += VL) {
                const vf y = vf_load(s.at[r] + x);
                __builtin_prefetch(s.ahead[r] + x * s.size, 0, 2);
                watch_vector(&seen, y);
                vf_store(to + x, y * scale);
            }
    }
    for (int n = 0; n < c->n_sources; n++)
        groups |= c->source[n].kind == RPI_RUN;
    k->extreme_q = is_extreme(&seen, (real)d->scale);
    k->grouped = false;
    if (k->extreme_q || groups)
        load_groups(k);
    for (int64_t r = 0; k->extreme_q && r < k->rows; r++)
        if (k->extreme_row[r])
            memset(k->q_rows + r * wide, 0, reals(wide, 1));
    for (int64_t r = 0; rotate && r < k->rows; r++)
        rotate_row(rotate, rope + (k->row0 + r) * rotate->dim, 1, k->q_rows + r * wide, 1);
    split_rows(k->q_rows, wide, rows, wide, k->q_parts, k->q_split);
}

/* Columns of the tile that some of rows [r0, r0 + n) computes. */
static void columns_of(const block *k, const tile *t, int64_t r0, int64_t n, int64_t *from, int64_t *to)
{
    *from = KB;
    *to = 0;
    for (int64_t g = r0 / MR; g < k->groups && g * MR < r0 + n; g++)
        if (t->from[g] < t->to[g]) {
            *from = rpi_min(*from, t->from[g]);
            *to = rpi_max(*to, t->to[g]);
        }
}

/* Where 16 rows of biases from r0 on start, at one distance from each other: in place, or copied for columns [from, to). */
static const real *even_rows(block *k, const real *const *in, int64_t r0, int64_t from, int64_t to, int64_t *step)
{
    const int64_t last = k->groups * MR - 1;
    bool even = r0 + SQ - 1 <= last;
    *step = even ? in[r0 + 1] - in[r0] : 0;
    for (int64_t r = r0 + 1; even && r < r0 + SQ - 1; r++)
        even = in[r + 1] - in[r] == *step;
    if (even)
        return in[r0];
    *step = STEP;
    for (int64_t r = r0; r < r0 + SQ; r++)
        memmove(k->sum_in + r * STEP + from, in[rpi_min(r, last)] + from, reals(to - from, 1));
    return k->sum_in + r0 * STEP;
}

/* Scores of the keys, and of the queries, that are extreme: by multiply-adds in f32. */
static void extreme_scores(block *k, const tile *t, const real *const *in)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t head = k->h / (d->heads / d->kv_heads);
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    if (!k->grouped)
        load_groups(k);
    for (int64_t col = 0; col < t->end; col += NR) {
        if (!k->extreme_q && !t->extreme_k[col / NR])
            continue;
        pack_panels(&c->args->k, k->b, head, t->tile0 + col, NR, d->len_k, d->dim_k, rotate,
                    (const real *)c->rope_k + k->b * c->rope_k_step, k->keys_scratch, NULL);
        bool extreme[NR]; /* those that were packed as 0 */
        for (int64_t j = 0; j < NR; j++) {
            watch w = {vf_set1(0)};
            watch_row(&w, row_at(&c->args->k, k->b, head, t->tile0 + col + j, d->len_k, d->dim_k, k->rows_scratch),
                      rpi_round_up(d->dim_k, CHUNK));
            extreme[j] = !is_moderate(&w, (real)RPI_MODERATE);
        }
        for (int64_t g = 0; g < k->groups; g++) {
            real s[MR * NR];
            if (col < t->from[g] || col >= t->to[g])
                continue;
            score_tile(k->q + g * MR * d->dim_k, k->keys_scratch, d->dim_k, in ? in + g * MR : NULL, col, s, NR, NULL,
                       k->q);
            for (int64_t r = 0; r < MR; r++)
                for (int64_t j = 0; j < NR; j++)
                    if (extreme[j] || (k->extreme_q && k->extreme_row[g * MR + r]))
                        k->s[(g * MR + r) * STEP + col + j] = s[r * NR + j];
        }
    }
}

/* The largest of two vectors of each of `rows` rows, or what was larger. */
static inline void raise_max(real *max, const real *s, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        const real *x = s + r * STEP;
        vf_store(max + r * VL, vf_max(vf_max(vf_load(max + r * VL), vf_load(x)), vf_load(x + VL)));
    }
}

/* s[QB][STEP] = starts + left right^T for the rows and columns of the tile; in `max`, unless NULL, the largest of each row. */
static void split_scores(block *k, const tile *t, operand left, operand right, int64_t chunks, const real *const *in,
                         real *s, real *max)
{
    const int64_t rows = rpi_round_up(k->groups * MR, SQ);
    const uint32_t *const a = left.at, *const b = right.at;
    const real *start[QB / SQ];
    int64_t step[QB / SQ];
    for (int64_t r = 0; in && r < rows; r += SQ) {
        int64_t from, to;
        columns_of(k, t, r, SQ, &from, &to);
        step[r / SQ] = STEP;
        start[r / SQ] = from < to ? even_rows(k, in, r, from, to, &step[r / SQ]) : s + r * STEP;
    }
    for (int64_t r = 0; r < rows; r += 2 * SQ) { /* the rows stay in L1 while the columns pass */
        const int64_t mt = rpi_min(2, (rows - r) / SQ);
        int64_t from, to;
        columns_of(k, t, r, mt * SQ, &from, &to);
        left.at = a + r / SQ * left.tile;
        for (int64_t x = from; x < to; x += 2 * SQ) {
            const real *init[2] = {in ? start[r / SQ] + x : NULL, in && mt > 1 ? start[r / SQ + 1] + x : NULL};
            right.at = b + x / SQ * right.tile;
            product(mt, 2, &left, &right, chunks, in ? init : NULL, step + r / SQ, s + r * STEP + x, STEP, NULL);
            if (max && x > from) /* what the product before left */
                raise_max(max + r * VL, s + r * STEP + x - 2 * SQ, mt * SQ);
        }
        if (max && from < to)
            raise_max(max + r * VL, s + r * STEP + to - 2 * SQ, mt * SQ);
    }
}

/* As in fma_tmpl.h. */
static void key_scores(block *k, const tile *t, const void *keys, const real *const *in, real *max)
{
    const int64_t chunks = rpi_round_up(k->c->plan->desc.dim_k, CHUNK) / CHUNK;
    const int parts = key_parts(k->c->plan);
    bool extreme = k->extreme_q;
    split_scores(k, t, (operand){k->q_split, chunks * k->q_parts * LEAF, k->q_parts * LEAF, k->q_parts},
                 (operand){keys, chunks * parts * LEAF, parts * LEAF, parts}, chunks, in, k->s, max);
    for (int64_t n = 0; n < t->end / NR; n++)
        extreme |= t->extreme_k[n];
    if (extreme)
        extreme_scores(k, t, in);
    for (int64_t r = 0; extreme && max && r < k->groups * MR; r++)
        find_max(k, r, t->from[r / MR], t->to[r / MR]);
}

#include "unpacked_tmpl.h"

/* A piece of the weights of 32 rows: made while the products of the piece before run. */
struct piece {
    block *k;
    const tile *t;
    uint32_t *to;                  /* left operand [2][chunk][part] */
    int64_t r0, rows, col, end;    /* rows, a multiple of 16; columns [col, end) of the tile */
    int64_t next, due, steps;      /* row to make next; 1 / steps of the rows is due at each step */
    bool kept, drops, full, plain; /* full: every row has every column, and a maximum; plain: and so has the piece */
    void (*make)(piece *p, int64_t rows);
};

/* Scores of the next rows to weights, their sums, and their parts; columns outside a row's own as 0. */
ALWAYS_INLINE void make_rows(piece *p, int64_t rows, int parts)
{
    block *k = p->k;
    const int64_t past = rpi_min(p->next + rows, p->rows);
    if (p->plain) {
        for (int64_t r = p->next; r < past; r++) {
            const int64_t row = p->r0 + r;
            const real *s = k->s + row * STEP + p->col;
            uint32_t *to = p->to + r / SQ * (PIECE / CHUNK) * parts * LEAF + r % SQ * SQ;
            const vf base = vf_set1(k->top[row]);
            vf sum = vf_load(k->sums + row * VL);
            RPI_UNROLL
            for (int x = 0; x < PIECE; x += CHUNK) {
                const vf a = vf_exp(vf_load(s + x) - base), b = vf_exp(vf_load(s + x + SQ) - base);
                vu part[3];
                sum = sum + (a + b);
                cut_pair(a, b, parts, part);
                RPI_UNROLL
                for (int n = 0; n < parts; n++)
                    store_pairs(to + (x / CHUNK * parts + n) * LEAF, part[n]);
            }
            vf_store(k->sums + row * VL, sum);
        }
        p->next = past;
        return;
    }
    for (; p->next < past; p->next++) {
        const int64_t r = p->next, row = p->r0 + r, g = row / MR;
        const bool any = g < k->groups && p->col >= p->t->from[g] && p->col < p->t->to[g];
        uint32_t *to = p->to + r / SQ * (PIECE / CHUNK) * parts * LEAF + r % SQ * SQ;
        real *s = k->s + row * STEP;
        vf base = vf_set1(0), sum = base;
        if (any) {
            base = base_of(k, row);
            sum = vf_load(k->sums + row * VL);
        }
        for (int64_t x = p->col; x < p->end; x += CHUNK, to += parts * LEAF) {
            vu part[3] = {{0}, {0}, {0}};
            if (any) {
                vf a = vf_exp(vf_load(s + x) - base), b = vf_exp(vf_load(s + x + SQ) - base);
                sum = sum + (a + b);
                if (p->kept) {
                    vf_store(s + x, a);
                    vf_store(s + x + SQ, b);
                }
                if (p->drops && row < k->rows) {
                    drop(k, p->t, row, x, x + CHUNK, s);
                    a = vf_load(s + x);
                    b = vf_load(s + x + SQ);
                }
                cut_pair(a, b, parts, part);
            }
            RPI_UNROLL
            for (int n = 0; n < parts; n++)
                store_pairs(to + n * LEAF, part[n]);
        }
        if (any)
            vf_store(k->sums + row * VL, sum);
    }
}

static __attribute__((noinline)) void make_rows_2(piece *p, int64_t rows)
{
    make_rows(p, rows, 2);
}

static __attribute__((noinline)) void make_rows_3(piece *p, int64_t rows)
{
    make_rows(p, rows, 3);
}

static inline void piece_step(piece *p)
{
    int64_t rows = 0;
    for (p->due += p->rows; p->due >= p->steps; p->due -= p->steps)
        rows++;
    if (rows)
        p->make(p, rows);
}

/* The first piece of the tile from rows r0 and column col on; false: none. */
static bool piece_find(piece *p, int64_t r0, int64_t col)
{
    const int64_t all = rpi_round_up(p->k->groups * MR, SQ);
    for (; r0 < all; r0 += 2 * SQ, col = 0) {
        int64_t from, to;
        p->rows = rpi_min(2 * SQ, all - r0);
        columns_of(p->k, p->t, r0, p->rows, &from, &to);
        p->col = rpi_max(from, col);
        p->end = rpi_min(p->col + PIECE, to);
        p->r0 = r0;
        p->next = p->due = 0;
        p->plain = p->full && p->end - p->col == PIECE;
        if (p->col < to)
            return true;
    }
    return false;
}

/* As in fma_tmpl.h. */
static void weigh_tile(block *k, const tile *t, const void *values, int64_t first, int64_t pad, const real *alpha,
                       real *o, int64_t step, bool kept)
{
    const rpi_call *c = k->c;
    const int parts = weight_parts(c->plan), v_parts = value_parts(c->plan);
    const int64_t columns = c->pad_v / SQ, all = k->groups * MR, scratch_row = columns * SQ;
    piece now = {.k = k,
                 .t = t,
                 .steps = PIECE / CHUNK * (v_parts == 1 ? parts : parts * (parts + 1) / 2) * ((columns + 1) / 2),
                 .kept = kept || c->args->desc.dropout > 0,
                 .drops = c->args->desc.dropout > 0,
                 .make = parts == 3 ? make_rows_3 : make_rows_2};
    piece after;
    int n = 0;
    (void)pad, (void)step;
    if (k->unpacked) {
        unpacked_weigh(k, t, values, alpha, o, now.kept);
        return;
    }
    memset(k->sums, 0, reals(rpi_round_up(all, VL), VL));
    now.full = !now.kept && all % SQ == 0;
    for (int64_t r = 0; now.full && r < all; r++)
        now.full = t->from[r / MR] == 0 && t->to[r / MR] == t->end && k->top[r] != -INFINITY;
    bool more = piece_find(&now, 0, 0);
    now.to = k->w_split;
    if (more)
        now.make(&now, now.rows);
    for (; more; now = after) {
        after = now;
        after.to = k->w_split + (++n % 2) * (2 * SQ * PIECE / 2 * 3);
        more = piece_find(&after, now.r0, now.end);
        int64_t from, to;
        columns_of(k, t, now.r0, now.rows, &from, &to);
        const operand w = {now.to, PIECE / CHUNK * parts * LEAF, parts * LEAF, parts};
        for (int64_t x = 0; values && x < columns; x += 2) {
            const operand v = {(const uint32_t *)values + ((first + now.col) / CHUNK * columns + x) * v_parts * LEAF,
                               v_parts * LEAF, columns * v_parts * LEAF, v_parts};
            const real *start[2] = {k->amx_scratch + x * SQ, k->amx_scratch + SQ * scratch_row + x * SQ};
            const int64_t start_step[2] = {scratch_row, scratch_row};
            product(now.rows / SQ, rpi_min(2, columns - x), &w, &v, (now.end - now.col) / CHUNK,
                    now.col > from ? start : NULL, start_step, k->amx_scratch + x * SQ, scratch_row,
                    more ? &after : NULL);
        }
        if (more)
            after.make(&after, after.rows);
        if (now.end < to || !values)
            continue;
        for (int64_t r = now.r0; r < rpi_min(now.r0 + now.rows, all); r++) {
            const vf factor = vf_set1(t->from[r / MR] < t->to[r / MR] ? alpha[r] : 1);
            for (int64_t x = 0; x < c->pad_v; x += VL)
                vf_store(o + r * c->pad_v + x, vf_fma(factor, vf_load(o + r * c->pad_v + x),
                                                      vf_load(k->amx_scratch + (r - now.r0) * scratch_row + x)));
        }
    }
    for (int64_t r0 = 0; r0 < all; r0 += VL) {
        vf sums[VL];
        RPI_UNROLL
        for (int r = 0; r < VL; r++)
            sums[r] = vf_load(k->sums + (r0 + r) * VL);
        add_sums(k, r0, sums);
    }
}
