/* block_tmpl.h -- a block of query rows: its scratch, its queries, the keys its rows may see.
 * Compiled once per instruction set. */

/* What one worker holds for the block at hand. */
typedef struct block {
    const rpi_call *c;
    int64_t b, h, kv, row0, rows, groups; /* rows of the block, in groups of MR */
    float *q, *plain_q;                   /* [group][Dk][MR] scaled; turned, and not turned for KEYVEC */
    float *s;                             /* [QB][STEP] scores, then weights of the tile */
    float *sum_in, *sum_out;    /* [QB][STEP] where several biases are added up: inside and outside the softcap */
    float *o;                   /* [QB][pad_v] */
    float *top, *sum, *entropy; /* [QB] running maximum and sums */
    float *vec, *mass;          /* [QB][vec_step], [QB][mass_step]: products with, and weights of, vectors */
    float *diagonal, *column;   /* [QB + KB], [KB]: sums of one tile for the summaries */
    int64_t vec_step, mass_step, vec_low, vec_high, mass_low, mass_high; /* windows, in vectors */
    const float **in, **out; /* [QB] where the row's biases of the tile start; in == NULL: none */
    uint8_t *keep;           /* [QB][KB] 1: attends */
    int64_t *lo, *hi;        /* [QB] keys the row may see */
    bool wild_q;
} block;

/* Hand out scratch: with base NULL it only counts. */
static void *take(char **base, size_t *used, size_t bytes)
{
    void *at = *base ? *base + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

static size_t block_layout(const rp_plan *plan, block *k, char *base)
{
    const rp_desc *d = &plan->desc;
    const size_t pad_v = (size_t)rpi_round_up(d->dim_v, VL), tile = (size_t)QB * STEP * sizeof(float);
    size_t used = 0;
    memset(k, 0, sizeof *k);
    k->q = k->plain_q = take(&base, &used, (size_t)QB * (size_t)d->dim_k * sizeof(float));
    if (plan->keyvec >= 0 && plan->rotate >= 0)
        k->plain_q = take(&base, &used, (size_t)QB * (size_t)d->dim_k * sizeof(float));
    k->s = take(&base, &used, tile);
    k->sum_in = take(&base, &used, tile);
    k->sum_out = take(&base, &used, tile);
    k->o = take(&base, &used, QB * pad_v * sizeof(float));
    k->top = take(&base, &used, QB * sizeof(float));
    k->sum = take(&base, &used, QB * sizeof(float));
    k->entropy = take(&base, &used, QB * sizeof(float));
    if (plan->keyvec >= 0) {
        k->vec_step = rpi_min(rpi_round_up(plan->rows_k, NR), WINDOW) + 2 * KB;
        k->vec = take(&base, &used, (size_t)QB * (size_t)k->vec_step * sizeof(float));
    }
    if (plan->valvec >= 0) {
        k->mass_step = rpi_min(rpi_round_up(plan->rows_v, NR), WINDOW);
        k->mass = take(&base, &used, (size_t)QB * (size_t)k->mass_step * sizeof(float));
    }
    k->diagonal = take(&base, &used, (QB + KB) * sizeof(float));
    k->column = take(&base, &used, KB * sizeof(float));
    k->in = take(&base, &used, QB * sizeof(float *));
    k->out = take(&base, &used, QB * sizeof(float *));
    k->keep = take(&base, &used, (size_t)QB * KB);
    k->lo = take(&base, &used, QB * sizeof(int64_t));
    k->hi = take(&base, &used, QB * sizeof(int64_t));
    return used;
}

static size_t scratch_size(const rp_plan *plan)
{
    block k;
    return block_layout(plan, &k, NULL);
}

/* Row r of the block, as a row of the problem: rows that fill up the last group repeat the last one. */
static inline int64_t row_of(const block *k, int64_t r)
{
    return k->row0 + rpi_min(r, k->rows - 1);
}

static void load_queries(block *k)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->plan->desc;
    const rpi_view *q = &c->args->q;
    const int64_t D = d->dim_k;
    const float scale = (float)d->scale;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    k->wild_q = false;
    for (int64_t r = 0; r < k->groups * MR; r++) {
        const float *from = (const float *)q->data + rpi_index(q, k->b, k->h, row_of(k, r), 0);
        const int64_t at = r / MR * MR * D + r % MR;
        for (int64_t x = 0; x < D; x++) {
            const float y = r < k->rows ? from[x] * scale : 0.0f;
            k->q[at + x * MR] = k->plain_q[at + x * MR] = y;
            k->wild_q |= !(fabsf(y) <= RPI_TAME);
        }
        if (rotate && r < k->rows)
            turn_row(rotate, c->turn_q + row_of(k, r) * rotate->dim, from, scale, k->q + at, MR);
    }
}

/* The keys each row may see, as far as intervals go. Rows that only fill up see none. */
static void find_intervals(block *k)
{
    const rp_desc *d = &k->c->plan->desc;
    for (int64_t r = 0; r < k->groups * MR; r++) {
        int64_t lo = 0, hi = r < k->rows ? d->len_k : 0;
        for (int32_t n = 0; n < d->n_masks; n++) {
            const rpi_masker *m = rpi_masker_of(d->masks[n].kind);
            if (m->interval)
                m->interval(d, &d->masks[n], &k->c->args->mask[n], k->b, k->row0 + r, &lo, &hi);
        }
        k->lo[r] = rpi_max(lo, 0);
        k->hi[r] = rpi_max(hi, k->lo[r]);
    }
}

/* One tile: keys [j0, j1) where some row may attend. Columns count from tile0, a multiple of KB. */
typedef struct tile {
    int64_t tile0, end;       /* columns [0, end) exist: end = KB, or what is left of the keys, rounded up to NR */
    int64_t from[16], to[16]; /* of each group: columns it must compute, multiples of NR; from == to: none */
    bool edge;                /* some pair of the tile is masked: keep says which */
    bool look;                /* biases of -infinity must clear keep: numbers at hand could make NaN of them */
    bool wild_v;              /* some value of the tile was not finite */
} tile;
_Static_assert(QB / MR <= 16, "a tile has room for its groups");

static bool tile_open(block *k, tile *t, int64_t tile0)
{
    const rpi_call *c = k->c;
    const rp_plan *plan = c->plan;
    const rp_desc *d = &plan->desc;
    const int64_t panels = c->pad_k / NR, last = rpi_min(tile0 + KB, d->len_k);
    bool any = false, wild = k->wild_q;
    t->tile0 = tile0;
    t->end = rpi_round_up(last - tile0, NR);
    t->edge = plan->mask_keep || last - tile0 < t->end;
    t->wild_v = false;
    t->look = false;
    for (int64_t n = tile0 / NR; n < (tile0 + t->end) / NR; n++)
        wild |= c->wild_k[k->kv * panels + n];
    for (int64_t j = tile0; j < last; j++)
        t->wild_v |= c->wild_v[k->kv * c->pad_k + j];
    for (int64_t g = 0; g < k->groups; g++) {
        int64_t lo = INT64_MAX, hi = 0;
        for (int64_t r = g * MR; r < (g + 1) * MR; r++) {
            const int64_t from = rpi_max(k->lo[r], tile0), to = rpi_min(k->hi[r], last);
            if (from < to) {
                lo = rpi_min(lo, from);
                hi = rpi_max(hi, to);
            }
            t->edge |= r < k->rows && (from > tile0 || to < last);
        }
        t->from[g] = lo < hi ? (lo - tile0) / NR * NR : 0;
        t->to[g] = lo < hi ? rpi_round_up(hi - tile0, NR) : 0;
        any |= lo < hi;
    }
    if (!any)
        return false;
    /* Numbers that are not tame can make NaN where a bias of -infinity should have masked: look at each pair. */
    t->look = wild || t->wild_v || c->wild_vec;
    if (!t->edge && !t->look)
        return true;
    t->edge = true;
    for (int64_t r = 0; r < k->groups * MR; r++) {
        uint8_t *keep = k->keep + r * KB;
        const int64_t from = rpi_clamp(k->lo[r] - tile0, 0, last - tile0),
                      to = rpi_clamp(k->hi[r] - tile0, from, last - tile0);
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
        bool all = !t->look && t->end == last - tile0;
        for (int64_t r = 0; r < k->rows; r++) {
            any |= memchr(k->keep + r * KB, 1, (size_t)t->end) != NULL;
            all = all && memchr(k->keep + r * KB, 0, (size_t)t->end) == NULL;
        }
        t->edge = !all;
    }
    return any;
}
