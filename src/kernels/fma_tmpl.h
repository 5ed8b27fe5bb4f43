/* fma_tmpl.h -- the products of a block by register tiles of multiply-adds; split_tmpl.h has the same functions on AMX tiles.
 * Compiled once per instruction set without AMX tiles, and for f64. */

#define amx_begin() ((void)0)
#define amx_end()   ((void)0)

/* Bytes of a packed key, and of a packed value. */
static int64_t key_bytes(const rp_plan *plan)
{
    return plan->desc.dim_k * (int64_t)sizeof(real);
}

static int64_t value_bytes(const rp_plan *plan)
{
    return rpi_round_up(plan->desc.dim_v, VL) * (int64_t)sizeof(real);
}

/* n rows of an array as columns of up to NR channels, so that a tile reads one row as vectors. Rows that are not finite become
 * 0; extreme[r] tells of them. */
static void pack_columns(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                         int64_t width, real *to, int64_t first, int64_t pad, uint8_t *extreme)
{
    const int64_t wide = rpi_round_up(width, VL), there = v->data ? rpi_clamp(real_rows - j0, 0, n) : 0;
    const int64_t size = rpi_floating_size(v->dtype);
    watch all = {vf_set1(0)};
    real scratch[PART];
    for (int64_t r = 0; r < there; r++) {
        const void *row = rpi_row_of(v, b, h, j0 + r);
        const char *ahead = row_ahead(v, b, h, j0 + r, real_rows);
        for (int64_t x0 = 0; x0 < width; x0 += PART) {
            const int64_t m = rpi_min(PART, width - x0);
            const real *from = load_part(v, row, x0, m, scratch);
            int64_t x = 0;
            for (; x + VL <= m; x += VL) {
                const vf y = vf_load(from + x);
                __builtin_prefetch(ahead + (x0 + x) * size, 0, 2);
                watch_vector(&all, y);
                vf_store(in_column(to, pad, first + r, wide, x0 + x), y);
            }
            if (x < m) {
                real lane[VL] = {0};
                memcpy(lane, from + x, (size_t)(m - x) * sizeof(real));
                watch_vector(&all, vf_load(lane));
                vf_store(in_column(to, pad, first + r, wide, x0 + x), vf_load(lane));
            }
        }
    }
    for (int64_t r = there; r < n; r++)
        for (int64_t x = 0; x < wide; x += VL)
            vf_store(in_column(to, pad, first + r, wide, x), vf_set1(0));
    for (int64_t r = 0; r < n; r++)
        extreme[r] = 0;
    if (!is_finite(&all))
        clear_extreme(to, pad, first, there, wide, extreme);
}

/* Keys j0 … j0+n-1 of a kv head, transposed; extreme[panel] tells of those that are extreme. */
static void pack_keys(const rpi_call *c, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, uint8_t *extreme,
                      real *scratch)
{
    const rp_desc *d = &c->args->desc;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    (void)scratch;
    pack_panels(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, rotate, (const real *)c->rope_k + b * c->rope_k_step, to,
                extreme);
}

/* Values j0 … as rows first … of `pad`; extreme[row] tells of those that are packed as 0. */
static void pack_values(const rpi_call *c, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, int64_t first,
                        int64_t pad, uint8_t *extreme, real *scratch)
{
    const rp_desc *d = &c->args->desc;
    (void)scratch;
    pack_columns(&c->args->v, b, g, j0, n, d->len_k, d->dim_v, to, first, pad, extreme);
}

/* The block's queries, and whether some are extreme. */
static void load_queries(block *k)
{
    load_groups(k);
}

/* k->s = biases + q k^T of the tile; in `max`, unless NULL, the largest of each row: VL of them, in any lane. */
static void key_scores(block *k, const tile *t, const void *keys, const real *const *in, real *max)
{
    const int64_t D = k->c->plan->desc.dim_k;
    for (int64_t col = 0; col < t->end; col += NR) /* the panel stays in L1 while the groups pass */
        for (int64_t g = 0; g < k->groups; g++)
            if (col >= t->from[g] && col < t->to[g])
                score_tile(k->q + g * MR * D, (const real *)keys + col * D, D, in ? in + g * MR : NULL, col,
                           k->s + g * MR * STEP + col, STEP, max ? max + g * MR * VL : NULL,
                           (const real *)keys + (col + NR) * D + g * (NR * D / 16));
}

/* Whether few rows read keys and values where they lie; heads that share keys share a packed copy. */
static bool unpacked_pays(int64_t share, int64_t rows)
{
    (void)rows; /* a register tile has MR of them */
    return share == 1;
}

/* k->s as key_scores makes it, of one group of rows, from unpacked keys; k->unpacked has scratch for a tile of them. false: some
 * key is extreme, and k->s is not made. */
static bool unpacked_scores(block *k, const tile *t, const real *const *in)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t D = d->dim_k;
    uint8_t extreme = 0;
    for (int64_t col = t->from[0]; col < t->to[0] && !extreme; col += NR) {
        pack_keys(c, k->b, k->h / (d->heads / d->kv_heads), t->tile0 + col, NR, k->unpacked, &extreme, NULL);
        if (is_lone(k))
            score_rows(1, k->q, k->unpacked, D, in, col, k->s + col, STEP, NULL, k->q);
        else
            score_tile(k->q, k->unpacked, D, in, col, k->s + col, STEP, NULL, k->q);
    }
    return !extreme;
}

/* Turn the scores of VL rows from r0 on into weights relative to their maxima, and add these to the rows' sums. */
static void weigh_rows(block *k, const tile *t, int64_t r0)
{
    vf sums[VL];
    for (int64_t r = r0; r < r0 + VL; r++) {
        const bool there = r < (is_lone(k) ? 1 : k->groups * MR);
        const vf base = there ? base_of(k, r) : vf_set1(0);
        real *s = k->s + r * STEP;
        vf sum[NV];
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            sum[n] = vf_set1(0);
        for (int64_t j = there ? t->from[r / MR] : 0; there && j < t->to[r / MR]; j += NR) {
            RPI_UNROLL
            for (int n = 0; n < NV; n++) {
                const vf w = vf_exp(vf_load(s + j + n * VL) - base);
                vf_store(s + j + n * VL, w);
                sum[n] = sum[n] + w;
            }
        }
        for (int n = 1; n < NV; n++)
            sum[0] = sum[0] + sum[n];
        sums[r - r0] = sum[0];
    }
    add_sums(k, r0, sums);
}
_Static_assert(QB % VL == 0, "rows are transposed VL at a time");

#define NEAR_TILE(NVW)                                                                                                 \
    (is_lone(k) ? lone_tile_##NVW : unpacked_tile_##NVW)(s, STEP, to - col, at, step, sums + x, pad_v, alpha, NULL)

/* o as weigh_tile makes it, of one group of rows, from unpacked values; k->unpacked has scratch for VB of them. One that is not
 * finite, which leaves no sum finite, ends the attempt to go tile by tile. */
static void unpacked_values(block *k, const tile *t, int64_t keys, const real *alpha, real *o, int64_t piece)
{
    const rpi_call *c = k->c;
    const rpi_view *v = &c->args->v;
    const int64_t pad_v = c->pad_v, width = c->args->desc.dim_v, step = v->stride[2];
    const int64_t head = k->h / (c->args->desc.heads / c->args->desc.kv_heads);
    const bool in_place = v->dtype == (RPI_F64 ? RP_F64 : RP_F32) && !v->page && width == pad_v;
    watch w = {vf_set1(0)};
    bool extreme = false;
    for (int64_t col = t->from[0], to; col < rpi_min(t->to[0], keys); col = to) {
        real *sums = o + col / VB * piece;
        to = rpi_min((col / VB + 1) * VB, rpi_min(t->to[0], keys));
        if (in_place) {
            const real *at = rpi_row_of(v, k->b, head, t->tile0 + col), *s = k->s + col;
            for (int64_t x = 0; x < pad_v; x += NR, at += NR)
                switch (rpi_min(NR, pad_v - x) / VL) {
                case 1: NEAR_TILE(1); break;
                case 2: NEAR_TILE(2); break;
                case 3: NEAR_TILE(3); break;
                default: NEAR_TILE(4); break;
                }
        } else {
            uint8_t rows[VB];
            pack_columns(v, k->b, head, t->tile0 + col, to - col, c->args->desc.len_k, width, k->unpacked, 0, VB, rows);
            extreme |= memchr(rows, 1, (size_t)(to - col)) != NULL;
            add_values(k->s, STEP, col, to, k->unpacked, -col, VB, sums, pad_v, alpha, -1);
        }
        for (int64_t x = 0; x < k->rows * pad_v; x += VL)
            watch_vector(&w, vf_load(sums + x));
    }
    if (extreme || !is_finite(&w))
        atomic_store(&c->decode->extreme, 1);
}

/* Scores to weights, their sums, and o[rows][pad_v] = o * alpha + w v, summed VB keys at a time from zero; the pieces of VB keys
 * go to o's `piece` apart, and a row's alpha counts in its first. Column 0 is row `first` of the packed values; NULL: no o.
 * `kept` asks for the weights in k->s. */
static void weigh_tile(block *k, const tile *t, const void *values, int64_t first, int64_t pad, const real *alpha,
                       real *o, int64_t piece, bool kept)
{
    const int64_t pad_v = k->c->pad_v, keys = k->c->args->desc.len_k - t->tile0;
    (void)kept; /* they always are */
    for (int64_t r0 = 0; r0 < k->groups * MR; r0 += VL)
        weigh_rows(k, t, r0);
    for (int64_t r = 0; k->c->args->desc.dropout > 0 && r < k->rows; r++)
        drop(k, t, r, t->from[r / MR], t->to[r / MR], k->s + r * STEP);
    if (k->unpacked && values) {
        unpacked_values(k, t, keys, alpha, o, piece);
        return;
    }
    for (int64_t col = 0; values && col < t->end; col += VB) /* these values stay in L1 while the groups pass */
        for (int64_t g = 0; g < k->groups; g++) {
            const int64_t from = rpi_max(col, t->from[g]), to = rpi_min(col + VB, rpi_min(t->to[g], keys));
            if (from < to)
                add_values(k->s + g * MR * STEP, STEP, from, to, values, first, pad,
                           o + col / VB * piece + g * MR * pad_v, pad_v, col <= t->from[g] ? alpha + g * MR : ones, g);
        }
}
