/* block_tmpl.h -- a block of query rows: its scratch, its queries, the keys its rows may see.
 * Compiled once per instruction set. */

/* Products with, or sums over, the vectors of one source that the block has at hand: vectors [low, high), `step` to a row.
 * Of a RUN, rows are padded by KB on both sides. */
typedef struct window {
    real *own; /* [group][width][MR] the queries of the products, times the factor */
    real *at;  /* [QB][step] */
    int64_t step, low, high;
} window;

/* What one worker holds for the block at hand. */
typedef struct block {
    const rpi_call *c;
    int64_t b, h, kv, row0, rows, groups; /* rows of the block, in groups of MR */
    real *q, *plain_q;                    /* [group][Dk][MR] scaled; rotated, and not rotated for VEC */
    real *s;                              /* [QB][STEP] scores, then weights of the tile */
    real *max;                            /* [QB][VL] the largest scores of the tile by row, in any lane */
    real *slope;                          /* [QB][STEP] derivative of the softcap; NULL: not wanted */
    real *sum_in, *sum_out; /* [QB][STEP] where several biases are added up: inside and outside the softcap */
    real *o;                /* [QB][pad_v] */
    real *top, *sum, *entropy, *total; /* [QB] running maximum and sums; total: of the weights */
    window vec[RPI_MAX_SOURCES], mass; /* products with vectors; weights by vector of VALVEC */
    real *diagonal, *column;           /* [QB + KB], [KB]: sums of one tile */
    real *keys_scratch;                /* keys, not rotated, for KEYS: panels, or [KB][Dk padded] */
    const real *tile_keys;             /* packed keys of the tile; NULL: unpacked */
    void *unpacked;                    /* scratch where keys and values are not packed; NULL: they are packed */
    double *row;                       /* [Dk or more] one query, for definitions; [KB] biases of one row */
    uint8_t *keep_scratch;             /* [KB] keys of a row that ask the definition */
    int32_t *index;                    /* [KB] entries of one row */
    const real **in, **out;            /* [QB] where the row's biases of the tile start; in == NULL: none */
    uint8_t *keep;                     /* [QB][KB] 1: attends */
    int64_t *lo, *hi;                  /* [QB] keys the row may see */
    int64_t *position;                 /* [QB] i + q_offset */
    bool extreme_q, grouped;           /* some query is extreme; load_groups was called */
    uint8_t *extreme_row;              /* [QB] queries that are extreme */
    real *q_rows;                      /* [QB][Dk in chunks] scaled and rotated */
    real *rows_scratch;                /* [32][Dk or Dv in chunks] */
    /* where products are made on AMX tiles: kernels/split_tmpl.h */
    uint32_t *q_split, *w_split; /* operands: queries; twice weights of 32 rows and 64 keys */
    int q_parts;
    real *sums;        /* [QB][VL] of weights */
    real *amx_scratch; /* [32][Dv padded] */
} block;

static size_t reals(int64_t a, int64_t b)
{
    return (size_t)a * (size_t)b * sizeof(real);
}

static real *take_reals(rpi_arena *a, int64_t rows, int64_t columns)
{
    return rpi_arena_take(a, rows, columns, sizeof(real));
}

static bool uses_plain_q(const rpi_call *c, const rpi_source *s)
{
    const rp_term *t = &c->plan->terms[s->term];
    return !s->part->query && rpi_vec_factor(&c->plan->desc, t) == c->plan->desc.scale;
}

/* The scratch of a block: `a` adds it up, or hands it out. */
static void block_layout(const rpi_call *c, block *k, rpi_arena *a)
{
    const rp_plan *plan = c->plan;
    const rp_desc *d = &plan->desc;
    const int64_t pad_v = rpi_round_up(d->dim_v, VL);
    int64_t widest = rpi_max(d->dim_k, KB);
    bool keys = false;
    memset(k, 0, sizeof *k);
    k->q = k->plain_q = take_reals(a, QB, d->dim_k);
    if (plan->vec >= 0 && plan->rotate >= 0)
        k->plain_q = take_reals(a, QB, d->dim_k);
    k->s = take_reals(a, QB, STEP);
    k->max = take_reals(a, QB, VL);
    k->sum_in = take_reals(a, QB, STEP);
    k->sum_out = take_reals(a, QB, STEP);
    k->o = take_reals(a, QB, pad_v);
    k->top = take_reals(a, QB, 1);
    k->sum = take_reals(a, QB, 1);
    k->entropy = take_reals(a, QB, 1);
    k->total = take_reals(a, QB, 1);
    for (int n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        window *w = &k->vec[n];
        keys |= s->kind == RPI_KEYS;
        if (s->kind != RPI_RUN)
            continue;
        widest = rpi_max(widest, s->width);
        w->step = s->gather ? s->pad_count : rpi_min(s->pad_count, WINDOW) + 2 * KB;
        w->at = take_reals(a, QB, w->step);
        w->own = uses_plain_q(c, s) ? k->plain_q : take_reals(a, QB, s->width);
    }
    if (c->valvec.part) {
        k->mass.step = c->valvec.gather ? c->valvec.pad_count : rpi_min(c->valvec.pad_count, WINDOW);
        k->mass.at = take_reals(a, QB, k->mass.step);
    }
    k->diagonal = take_reals(a, QB + KB, 1);
    k->column = take_reals(a, KB, 1);
    if (keys || RPI_TILES)
        k->keys_scratch = take_reals(a, keys ? KB : NR, rpi_round_up(d->dim_k, VL));
    k->extreme_row = rpi_arena_take(a, QB, 1, 1);
    if (RPI_TILES) {
        const int64_t wide = rpi_round_up(rpi_max(d->dim_k, d->dim_v), 32);
        k->rows_scratch = take_reals(a, 32, wide);
        k->q_rows = take_reals(a, QB, rpi_round_up(d->dim_k, 32));
        k->q_split = rpi_arena_take(a, QB, rpi_round_up(d->dim_k, 32), 6);
        k->w_split = rpi_arena_take(a, 3 * 32, 64, 6);
        k->sums = take_reals(a, QB, VL);
        k->amx_scratch = take_reals(a, 32, rpi_round_up(d->dim_v, 16));
    }
    k->row = rpi_arena_take(a, widest, 1, sizeof(double));
    k->keep_scratch = rpi_arena_take(a, KB, 1, 1);
    k->index = rpi_arena_take(a, KB, 1, sizeof(int32_t));
    k->in = rpi_arena_take(a, QB, 1, sizeof(real *));
    k->out = rpi_arena_take(a, QB, 1, sizeof(real *));
    k->keep = rpi_arena_take(a, QB, KB, 1);
    k->lo = rpi_arena_take(a, QB, 1, sizeof(int64_t));
    k->hi = rpi_arena_take(a, QB, 1, sizeof(int64_t));
    k->position = rpi_arena_take(a, QB, 1, sizeof(int64_t));
}

/* Packed keys of a kv head of the group from key j on; its packed values. */
static void *keys_at(const rpi_call *c, int64_t kv, int64_t j)
{
    return (char *)c->keys + (kv * c->pad_k + j) * c->plan->ops->key_bytes(c->plan);
}

static void *values_at(const rpi_call *c, int64_t kv)
{
    return (char *)c->values + kv * c->pad_k * c->plan->ops->value_bytes(c->plan);
}

static int64_t scratch_size(const rpi_call *c)
{
    block k;
    rpi_arena a = {0};
    block_layout(c, &k, &a);
    return rpi_arena_size(&a);
}

/* The scratch of one worker, to be handed out. */
static rpi_arena scratch_of(const rpi_call *c, int32_t worker)
{
    return (rpi_arena){.base = c->scratch + worker * c->scratch_step};
}

/* Whether the block has one row alone, of unpacked keys and values: no others are made to fill up its group. */
static inline bool is_lone(const block *k)
{
    return k->unpacked && k->rows == 1;
}

/* Row r of the block, as a row of the problem: rows that fill up the last group repeat the last one. */
static inline int64_t row_of(const block *k, int64_t r)
{
    return k->row0 + rpi_min(r, k->rows - 1);
}

/* The block's rows of an array times a factor as [group][width][MR]; rows that fill up as 0. */
static void load_rows(const block *k, const rpi_view *v, int64_t width, real factor, real *to, watch *w)
{
    const int64_t rows = k->groups * MR;
    real side[PART][QB];
    for (int64_t x0 = 0; x0 < width; x0 += PART) {
        const int64_t m = rpi_min(PART, width - x0);
        for (int64_t r0 = 0; r0 < rows; r0 += VL)
            transpose_part(v, k->b, k->h, k->row0 + r0, rpi_clamp(k->rows - r0, 0, VL), k->c->args->desc.len_q, x0, m,
                           side[0] + r0, QB, w);
        for (int64_t g = 0; g < k->groups; g++)
            for (int64_t x = 0; x < m; x++)
                memcpy(to + (g * width + x0 + x) * MR, side[x] + g * MR, MR * sizeof(real));
    }
    for (int64_t x = 0; factor != 1 && x < rows * width; x += VL)
        vf_store(to + x, vf_load(to + x) * vf_set1(factor));
}

/* The queries that a source of form RUN multiplies with its vectors, times the factor. */
static void load_own(block *k, const rpi_source *s, real *own)
{
    const rpi_call *c = k->c;
    const rpi_view *q = &c->args->q;
    const double factor = rpi_vec_factor(&c->args->desc, &c->plan->terms[s->term]);
    if (!s->part->query) {
        load_rows(k, q, s->width, (real)factor, own, &(watch){0});
        return;
    }
    for (int64_t r = 0; r < k->groups * MR; r++) {
        rpi_pair p = rpi_pair_of(c->args, s->term, k->b, k->h, row_of(k, r));
        real *to = own + r / MR * MR * s->width + r % MR;
        rpi_load_f64(k->row, rpi_row_of(q, k->b, k->h, p.i), q->dtype, c->args->desc.dim_k);
        p.q = k->row;
        for (int64_t x = 0; x < s->width; x++)
            to[x * MR] = r < k->rows ? (real)(factor * s->part->query(&p, x)) : 0;
    }
}

/* Whether numbers times the scale are extreme. */
static bool is_extreme(const watch *w, real scale)
{
    return !is_finite(w) || !(vf_top(w->max) * (scale < 0 ? -scale : scale) <= (real)RPI_MODERATE);
}

/* The block's queries by groups: k->q, k->plain_q, those of the sources; and which are extreme. */
static void load_groups(block *k)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t D = d->dim_k;
    const real scale = (real)d->scale;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const real *rope = rotate ? (const real *)c->rope_q + k->b * c->rope_q_step : NULL;
    watch w = {vf_set1(0)};
    load_rows(k, &c->args->q, D, scale, k->q, &w);
    k->extreme_q = is_extreme(&w, scale);
    k->grouped = true;
    for (int64_t r = 0; k->extreme_q && r < k->groups * MR; r++) {
        k->extreme_row[r] = 0;
        for (int64_t x = 0; x < D; x++)
            k->extreme_row[r] |= !(fabs((double)k->q[r / MR * MR * D + x * MR + r % MR]) <= (double)RPI_MODERATE);
    }
    if (k->plain_q != k->q)
        memcpy(k->plain_q, k->q, reals(k->groups * MR, D));
    for (int64_t r = 0; rotate && r < k->rows; r++)
        rotate_row(rotate, rope + row_of(k, r) * rotate->dim, 1, k->q + r / MR * MR * D + r % MR, MR);
    for (int n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        if (s->kind != RPI_RUN)
            continue;
        k->vec[n].low = k->vec[n].high = 0;
        if (k->vec[n].own != k->plain_q)
            load_own(k, s, k->vec[n].own);
    }
}

/* The keys each row may see, as far as intervals go. Rows that only fill up see none. */
static void find_intervals(block *k)
{
    const rpi_call *c = k->c;
    const int64_t first = rpi_position(c->args, k->b, 0);
    for (int64_t r = 0; r < k->groups * MR; r++) {
        k->position[r] = first + row_of(k, r);
        k->lo[r] = 0;
        k->hi[r] = r < k->rows ? c->args->desc.len_k : 0;
        if (r < k->rows && c->plan->intervals)
            rpi_interval(c->plan, c->args, k->b, k->row0 + r, &k->lo[r], &k->hi[r]);
    }
}

/* One tile: keys [j0, j1) where some row may attend. Columns count from tile0, a multiple of KB. */
typedef struct tile {
    int64_t tile0, end;       /* columns [0, end) exist: end = KB, or what is left of the keys, rounded up to NR */
    int64_t from[16], to[16]; /* of each group: columns it must compute, multiples of NR; from == to: none */
    bool edge;                /* some pair of the tile is masked: the rows' intervals say which, or else keep */
    bool pairs;               /* keep says which */
    bool look;                /* biases of -infinity must clear keep: numbers at hand could make NaN of them */
    bool extreme_v;           /* some value of the tile was not finite */
    const uint8_t *extreme_k; /* of each panel: some key is extreme */
} tile;
_Static_assert(QB / MR <= 16, "a tile has room for its groups");

/* Keys tile0 … of `width` at most. extreme_k has a byte for each panel of the tile, extreme_v one for each key. */
static bool tile_open(block *k, tile *t, int64_t tile0, int64_t width, const uint8_t *extreme_k,
                      const uint8_t *extreme_v)
{
    const rpi_call *c = k->c;
    const rp_plan *plan = c->plan;
    const rp_desc *d = &c->args->desc;
    const int64_t last = rpi_min(tile0 + width, d->len_k);
    const int64_t keys = last - tile0;
    bool any = false;
    t->tile0 = tile0;
    t->end = rpi_round_up(keys, NR);
    t->edge = plan->mask_keep || keys < t->end;
    t->extreme_k = extreme_k;
    for (int64_t g = 0; g < k->groups; g++) {
        int64_t lo = INT64_MAX, hi = 0;
        for (int64_t r = g * MR; r < rpi_min((g + 1) * MR, k->rows); r++) {
            const int64_t from = rpi_max(k->lo[r], tile0), to = rpi_min(k->hi[r], last);
            if (from < to) {
                lo = rpi_min(lo, from);
                hi = rpi_max(hi, to);
            }
            t->edge |= from > tile0 || to < last;
        }
        t->from[g] = lo < hi ? (lo - tile0) / NR * NR : 0;
        t->to[g] = lo < hi ? rpi_round_up(hi - tile0, NR) : 0;
        any |= lo < hi;
    }
    if (!any)
        return false;
    /* Numbers that are extreme can make NaN where a bias of -infinity should have masked: look at each pair. */
    t->extreme_v = memchr(extreme_v, 1, (size_t)keys) != NULL;
    t->look = k->extreme_q || t->extreme_v || memchr(extreme_k, 1, (size_t)(t->end / NR)) ||
              (c->valvec.part && c->valvec.extreme);
    t->pairs = plan->mask_keep || t->look;
    t->edge |= t->look;
    if (!t->pairs)
        return true;
    for (int64_t r = 0; r < k->groups * MR; r++) {
        uint8_t *keep = k->keep + r * KB;
        const int64_t from = rpi_clamp(k->lo[r] - tile0, 0, keys), to = rpi_clamp(k->hi[r] - tile0, from, keys);
        memset(keep, 0, (size_t)t->end);
        memset(keep + from, 1, (size_t)(to - from));
        if (!plan->mask_keep || from == to)
            continue;
        if (r > 0 && !plan->mask_keep_rows && k->lo[r] == k->lo[r - 1] && k->hi[r] == k->hi[r - 1]) {
            memcpy(keep, keep - KB, (size_t)t->end);
            continue;
        }
        for (int32_t n = 0; n < d->n_masks; n++) {
            const rpi_masker *m = rpi_masker_of(d->masks[n].kind);
            if (m->keep)
                m->keep(&c->args->mask[n], k->b, k->h, row_of(k, r), tile0 + from, to - from, keep + from);
        }
    }
    if (plan->mask_keep) { /* a tile without a pair is skipped, one without a hole is full */
        any = false;
        bool all = !t->look && t->end == keys;
        for (int64_t r = 0; r < k->rows; r++) {
            any |= memchr(k->keep + r * KB, 1, (size_t)t->end) != NULL;
            all = all && memchr(k->keep + r * KB, 0, (size_t)t->end) == NULL;
        }
        t->edge = !all;
    }
    return any;
}
