/* backward_tmpl.h -- the backward pass of a block of keys: weights computed again from lse, then the five products.
 * Compiled once per instruction set and precision.
 *
 * A task holds BKB keys of one kv head. It walks over the query heads that share them and over their blocks of QB rows:
 *
 *     scores s, weights p = exp(s - lse)       dp = dout v^T       ds = p (dp - <dout, out>)
 *     dv += p^T dout     dk += ds^T q          dq += ds k          biases: sums of ds
 *
 * dk and dv belong to the task. What several tasks add to is added in their order: a row's dq when the key block before has
 * added its part, the sums of a head's arrays when the task before on that head has. Tasks start in their order, so the one
 * waited for is running. */

/* What products on AMX tiles work with; split_backward_tmpl.h. */
typedef struct split_back {
    uint32_t *values, *key_rows;                     /* right operands: values by channels, keys by keys */
    uint32_t *dout, *dout_transposed, *q_transposed; /* left operands: of dp, of dv, of dk */
    uint32_t *p, *ds;   /* p and then ds as right operand by rows; ds as left operand by keys */
    real *dout_scratch; /* [QB][Dv in chunks] */
    real *dk, *dv;      /* [Dk or Dv in chunks][BKB] */
    int dout_parts;
    uint8_t *extreme_key, *extreme_value,
        *extreme_dout; /* [BKB], [BKB], [QB] rows that are extreme: 0 in the operands */
    bool any_key, any_value, any_dout;
} split_back;

/* What a worker holds beside the block of rows. */
typedef struct back {
    block k;
    real *keys, *key_rows,
        *values;       /* panels and columns of the keys, panels of the values; on AMX tiles: extreme keys alone */
    void *packed_keys; /* as pack_keys has them */
    real *dk, *dv, *dk_plain; /* [BKB and a group][Dk or Dv padded]; of rotated keys, and of keys that are not */
    real *dout, *dout_rows;   /* [group][Dv][MR], columns of QB rows */
    real *q_rows;             /* columns of QB rows */
    real *dp;                 /* [QB][STEP] dp, then ds, then times the slope of the softcap */
    real *dq;                 /* [QB][Dk padded] of the tile */
    real *own_rows;           /* columns of QB rows of one source */
    real *sums;               /* [QB][sums_step] ds by vector */
    real *own_tile;           /* [QB][width padded] gradient of one source's queries */
    int64_t sums_step, widest;
    double *strip;                      /* [Lq + BKB] ds by diagonal of the head at hand */
    double *entries[RPI_MAX_SOURCES];   /* sums of GATHER, and of ROWS with row_grad */
    real *vectors[RPI_MAX_SOURCES + 1]; /* gradients of vectors [span][width padded], from vector vectors_low on */
    int64_t vectors_low[RPI_MAX_SOURCES + 1], vectors_span[RPI_MAX_SOURCES + 1];
    double *column, *fold_column; /* [BKB] sums of ds over rows: for COLUMN, and for `fold` */
    double *row_sum;              /* [QB] sums of ds over the tile's keys */
    uint8_t *extreme_k, *extreme_v, *extreme_dout, *extreme_rows;
    split_back split;
    rpi_sums *private_sums; /* [RP_MAX_TERMS] of terms that go pair by pair */
} back;

/* Vectors of a source that one task can reach. */
static int64_t reach_of(const rpi_call *c, const rpi_source *s)
{
    return s->gather ? s->pad_count : rpi_min(s->pad_count, rpi_round_up(c->args->desc.len_q + BKB + NR, NR));
}

/* The source itself, or that of VALVEC for n == n_sources; NULL: none. */
static const rpi_source *source_at(const rpi_call *c, int32_t n)
{
    const rpi_source *s = n < c->n_sources ? &c->source[n] : &c->valvec;
    return n < c->n_sources || s->part ? s : NULL;
}

/* Sums of one head that a source of entries keeps, or one whose rows fold into sums; 0: none. */
static int64_t sums_of(const rpi_call *c, const rpi_source *s)
{
    const rpi_scheme *scheme = s->kind == RPI_STRIP ? NULL : rpi_scheme_of(c->plan->terms[s->term].kind);
    if (s->kind == RPI_GATHER)
        return s->count;
    return s->kind == RPI_ROWS && s->by_row && scheme->row_grad
               ? scheme->sums_size(&c->args->desc, &c->plan->terms[s->term])
               : 0;
}

static void products_layout(const rpi_call *c, back *w, rpi_arena *a);

static void back_layout(const rpi_call *c, back *w, rpi_arena *a)
{
    const rp_desc *d = &c->args->desc;
    const int64_t wide_k = rpi_round_up(d->dim_k, VL), wide_v = rpi_round_up(d->dim_v, VL),
                  rows = rpi_round_up(BKB, MR) + MR;
    memset(w, 0, sizeof *w);
    block_layout(c, &w->k, a);
    w->keys = take_reals(a, BKB, d->dim_k);
    w->dk = take_reals(a, rows, wide_k);
    w->dv = take_reals(a, rows, wide_v);
    w->dk_plain = take_reals(a, rows, wide_k);
    w->dout = take_reals(a, QB, d->dim_v);
    w->dp = take_reals(a, QB, STEP);
    w->dq = take_reals(a, QB, wide_k);
    if (d->softcap > 0)
        w->k.slope = take_reals(a, QB, STEP);
    for (int32_t n = 0; n <= c->n_sources; n++) {
        const rpi_source *s = source_at(c, n);
        if (!s)
            continue;
        if (sums_of(c, s))
            w->entries[n] = rpi_arena_take(a, sums_of(c, s), 1, sizeof(double));
        if (!s->part)
            continue;
        const int64_t wide = rpi_round_up(s->width, VL);
        w->widest = rpi_max(w->widest, wide);
        w->sums_step =
            rpi_max(w->sums_step, s->gather ? s->pad_count : rpi_min(s->pad_count, rpi_round_up(QB + BKB, NR)));
        w->vectors_span[n] = reach_of(c, s);
        w->vectors[n] = take_reals(a, w->vectors_span[n] + MR, wide);
    }
    w->sums_step += 2 * NR; /* a group of vectors more, and not a power of two */
    w->own_rows = take_reals(a, QB, w->widest);
    w->own_tile = take_reals(a, QB, w->widest);
    w->sums = take_reals(a, QB, w->sums_step);
    w->strip = rpi_arena_take(a, d->len_q + BKB, 1, sizeof(double));
    w->column = rpi_arena_take(a, BKB, 1, sizeof(double));
    w->fold_column = rpi_arena_take(a, BKB, 1, sizeof(double));
    w->row_sum = rpi_arena_take(a, QB, 1, sizeof(double));
    products_layout(c, w, a);
    w->extreme_k = rpi_arena_take(a, BKB / NR + 1, 1, 1);
    w->extreme_v = rpi_arena_take(a, BKB, 1, 1);
    w->extreme_rows = rpi_arena_take(a, BKB, 1, 1);
    w->extreme_dout = rpi_arena_take(a, QB, 1, 1);
}

static int64_t backward_size(const rpi_call *c)
{
    back w;
    rpi_arena a = {0};
    back_layout(c, &w, &a);
    return rpi_arena_size(&a);
}

/* Rows of [group][width][`size` of a group] as columns of `pad` rows; rows that are not finite as 0, which extreme tells of. */
static inline void to_columns(const real *packed, int64_t size, int64_t rows, int64_t width, real *to, int64_t pad,
                              uint8_t *extreme)
{
    const int64_t wide = rpi_round_up(width, VL);
    watch w = {vf_set1(0)};
    for (int64_t r0 = 0; r0 < rows; r0 += rpi_min(VL, size - r0 % size)) {
        const real *from = packed + r0 / size * size * width + r0 % size;
        for (int64_t x = 0; x < wide; x += VL) {
            vf y[VL];
            RPI_UNROLL
            for (int c = 0; c < VL; c++)
                y[c] = x + c < width ? vf_load(from + (x + c) * size) : vf_set1(0);
            vf_transpose(y);
            for (int64_t r = 0; r < rpi_min(VL, size - r0 % size); r++) {
                watch_vector(&w, y[r]);
                vf_store(in_column(to, pad, r0 + r, wide, x), y[r]);
            }
        }
    }
    for (int64_t r = 0; r < rows; r++)
        extreme[r] = 0;
    if (!is_finite(&w))
        clear_extreme(to, pad, 0, rows, wide, extreme);
}

/* Products of dout with the vectors of VALVEC, as a pointer for each row: what source() does for keys. */
static void value_products(back *w, const tile *t, const real **rows)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_source *s = &c->valvec;
    const int64_t Dv = s->width, last = k->groups * MR - 1;
    const int64_t low = s->gather ? 0 : rpi_clamp(vector_of(k, s, t, last), 0, s->count - 1) / NR * NR;
    const int64_t high = s->gather ? s->count : rpi_clamp(vector_of(k, s, t, 0) + t->end, 1, s->count);
    const real *packed = (const real *)s->panels + k->h * s->panels_step;
    for (int64_t n = low; n < high; n += NR)
        for (int64_t g = 0; g < k->groups; g++)
            score_tile(w->dout + g * MR * Dv, packed + n * Dv, Dv, NULL, 0, w->sums + g * MR * w->sums_step + n - low,
                       w->sums_step, NULL, packed);
    for (int64_t r = 0; r <= last; r++) {
        const real *from = w->sums + r * w->sums_step - low;
        real *to = k->sum_in + r * STEP;
        const int64_t at = s->gather ? 0 : vector_of(k, s, t, r);
        rows[r] = to;
        if (s->gather)
            gather_index(k, s, t, r, rpi_min(t->end, c->args->desc.len_k - t->tile0));
        for (int64_t j = 0; j < t->end; j++)
            to[j] = from[s->gather ? rpi_max(k->index[j], 0) : rpi_clamp(at + j, 0, s->count - 1)];
    }
}

/* Row r: weights into s, ds into dp; both zero where nothing attends. */
static void row_gradient(back *w, const tile *t, int64_t r, const double *stats)
{
    block *k = &w->k;
    const rp_desc *d = &k->c->args->desc;
    real *s = k->s + r * STEP, *dp = w->dp + r * STEP;
    const int64_t end = rpi_round_up(t->end, MR) + MR, from = r < k->rows ? t->from[r / MR] : 0,
                  to = r < k->rows ? t->to[r / MR] : 0;
    /* in two steps: a large score and the logarithm of a sum do not fit in one number */
    const vf top = vf_set1((real)(stats[0] == -HUGE_VAL ? 0 : stats[0])), rest = vf_set1((real)stats[1]);
    const vf average = vf_set1((real)stats[2]);
    const vf lowest = vf_set1(-REAL_MAX), zero = vf_set1(0);
    if (d->dropout > 0 && from < to)
        drop(k, t, r, from, to, dp);
    for (int64_t j = from; j < to; j += VL) {
        const vf x = vf_load(s + j), p = vf_below(x, lowest, zero, vf_exp((x - top) - rest));
        vf_store(dp + j, vf_below(x, lowest, zero, p * (vf_load(dp + j) - average)));
        if (w->extreme_dout[r]) /* dout was packed as 0: its NaN reaches the values it attends to by the weights */
            vf_store(s + j, vf_below(x, lowest, zero, vf_set1(NAN)));
        else
            vf_store(s + j, p);
    }
    if (d->dropout > 0 && from < to)
        drop(k, t, r, from, to, s);
    memset(s, 0, reals(from, 1));
    memset(dp, 0, reals(from, 1));
    memset(s + to, 0, reals(end - to, 1));
    memset(dp + to, 0, reals(end - to, 1));
}

/* ---------------------------------------------------------------------------------------------- gradients of terms */

static void strip_gradient(back *w, const tile *t)
{
    block *k = &w->k;
    const rp_desc *d = &k->c->args->desc;
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0);
    memset(k->diagonal, 0, (QB + KB) * sizeof(real));
    for (int64_t r = 0; r < k->rows;
         r++) { /* the whole row before the next: neighbours overlap by all but one element */
        const real *ds = w->dp + r * STEP;
        real *to = k->diagonal + QB - 1 - r;
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL)
            vf_store(to + j, vf_load(to + j) + vf_load(ds + j));
    }
    /* column n of the diagonals is j - i = tile0 + n - (QB - 1) - row0; entry 0 of the strip is j - i = -(Lq - 1) + tile0 */
    for (int64_t n = QB - k->rows; n < QB - 1 + keys; n++)
        w->strip[n - (QB - 1) - k->row0 + d->len_q - 1] += (double)k->diagonal[n];
}

static void entries_gradient(back *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_source *s = &k->c->source[n];
    const rpi_scheme *scheme = rpi_scheme_of(k->c->plan->terms[s->term].kind);
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    double *sums = w->entries[n];
    for (int64_t r = 0; r < k->rows; r++) {
        const real *ds = w->dp + r * STEP;
        gather_index(k, s, t, r, keys);
        for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++) {
            if (k->index[j] >= 0) {
                sums[k->index[j]] += (double)ds[j];
            } else if (scheme->class_token) { /* otherwise a pair that the masks of the term leave out */
                rpi_pair p = pair_of_row(k, s, r);
                rpi_pair_key(k->c->args, &p, t->tile0 + j);
                sums[rpi_source_index(s, &p)] += (double)ds[j];
            }
        }
    }
}

/* Pair by pair: terms that have no faster form. */
static void pairs_gradient(back *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_source *s = &k->c->source[n];
    const rpi_scheme *scheme = rpi_scheme_of(k->c->plan->terms[s->term].kind);
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++) {
        rpi_pair p = pair_of_row(k, s, r);
        for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++) {
            const real ds = w->dp[r * STEP + j];
            if (ds == 0)
                continue;
            rpi_pair_key(k->c->args, &p, t->tile0 + j);
            rpi_definition_grad(scheme, &p, (double)ds, &w->private_sums[s->term]);
        }
    }
}

/* Row by row, into sums that the scheme folds at the end. */
static void rows_gradient(back *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_source *s = &k->c->source[n];
    const rpi_scheme *scheme = rpi_scheme_of(k->c->plan->terms[s->term].kind);
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t from = t->from[r / MR], to = rpi_min(t->to[r / MR], keys);
        const rpi_pair p = pair_of_row(k, s, r);
        for (int64_t j = from; j < to; j++)
            k->row[j] = (double)w->dp[r * STEP + j];
        if (from < to)
            scheme->row_grad(&p, t->tile0 + from, to - from, k->row + from, w->entries[n]);
    }
}

/* An array of biases of which each element belongs to one pair: its gradient is ds itself. */
static void direct_gradient(back *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_view *v = &c->grads->term[c->source[n].term][0];
    const int64_t keys = rpi_min(t->end, c->args->desc.len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t at = rpi_index(v, k->b, k->h, k->row0 + r, t->tile0);
        const real *ds = w->dp + r * STEP;
        if (v->dtype == (RPI_F64 ? RP_F64 : RP_F32) && v->stride[3] == 1)
            memcpy((real *)v->data + at, ds, reals(keys, 1));
        else
            for (int64_t j = 0; j < keys; j++)
                rpi_put(v->data, v->dtype, at + j * v->stride[3], (double)ds[j]);
    }
}

/* An array of biases that heads or batch entries share: one after the other they add ds to its sums. */
static void shared_gradient(back *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    const rpi_view *v = &bw->sums.term[c->source[n].term].array[0];
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0);
    rpi_ticket_wait(bw->ticket_pairs + k->row0 / QB * bw->key_blocks + t->tile0 / BKB, k->b * d->heads + k->h);
    for (int64_t r = 0; r < k->rows; r++) {
        double *to = (double *)v->data + rpi_index(v, k->b, k->h, k->row0 + r, t->tile0);
        for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++)
            to[j] += (double)w->dp[r * STEP + j];
    }
}

/* Sums of x by vector, times the vectors (the gradient of the queries) and times the queries (that of the vectors). */
static void vectors_gradient(back *w, const tile *t, int32_t n, const real *x, const real *own, bool own_wanted,
                             bool wanted)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_source *s = source_at(c, n);
    const int64_t last = k->groups * MR - 1, R = s->count, wide = rpi_round_up(s->width, VL), step = w->sums_step;
    const int64_t low = s->gather ? 0 : rpi_clamp(vector_of(k, s, t, last), 0, R - 1);
    const int64_t high = s->gather ? R : rpi_clamp(vector_of(k, s, t, 0) + t->end, 1, R);
    const int64_t keys = rpi_min(t->end, c->args->desc.len_k - t->tile0);
    for (int64_t r = 0; r <= last; r++) {
        real *sums = w->sums + r * step;
        memset(sums, 0, reals(high - low + MR, 1));
        if (r >= k->rows)
            continue;
        if (s->gather) {
            gather_index(k, s, t, r, keys);
            collect_gather(k, x + r * STEP, t->from[r / MR], rpi_min(t->to[r / MR], keys), sums);
        } else {
            collect_run(x + r * STEP, t->from[r / MR], t->to[r / MR], vector_of(k, s, t, r), R, s->part->zero_outside,
                        sums, low);
        }
    }
    if (own_wanted) {
        memset(w->own_tile, 0, reals(k->groups * MR, wide));
        for (int64_t g = 0; g < k->groups; g++)
            add_values(w->sums + g * MR * step, step, 0, high - low, (const real *)s->rows + k->h * s->rows_step, low,
                       s->pad_count, w->own_tile + g * MR * wide, wide, ones, -1);
    }
    if (wanted) {
        to_columns(own, MR, k->groups * MR, s->width, w->own_rows, QB, w->extreme_rows);
        for (int64_t e = 0; e < high - low; e += MR)
            add_transposed(w->sums + e, step, 0, k->groups * MR, w->own_rows, QB,
                           w->vectors[n] + (low - w->vectors_low[n] + e) * wide, wide);
    }
}

/* The key side: products of each pair's vector with the key, and of the key with the vector. */
static void keys_gradient(back *w, const tile *t, int32_t n, bool wanted)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rpi_source *s = &c->source[n];
    const int64_t wide = rpi_round_up(s->width, VL), keys = rpi_min(t->end, d->len_k - t->tile0);
    const int64_t g = k->h / (d->heads / d->kv_heads);
    real scratch[PART];
    for (int64_t j = 0; j < keys; j++) {
        real *to = k->keys_scratch + j * wide;
        const void *row = rpi_row_of(&c->args->k, k->b, g, t->tile0 + j);
        for (int64_t x0 = 0; x0 < wide; x0 += PART) {
            const int64_t m = rpi_clamp(s->width - x0, 0, PART);
            const real *from = load_part(&c->args->k, row, x0, m, scratch);
            for (int64_t x = 0; x < rpi_min(PART, wide - x0); x++)
                to[x0 + x] = x < m ? from[x] : 0;
        }
    }
    const real *vectors = (const real *)s->rows + k->h * s->rows_step;
    const real factor = (real)rpi_vec_factor(d, &c->plan->terms[s->term]);
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++) {
            const real ds = w->dp[r * STEP + j];
            if (ds == 0)
                continue;
            const int64_t e = rpi_clamp(vector_of(k, s, t, r) + j, 0, s->count - 1);
            const vf share = vf_set1(ds * factor);
            real *dk = w->dk_plain + j * wide, *dv = w->vectors[n] + (e - w->vectors_low[n]) * wide;
            for (int64_t x0 = 0; x0 < wide; x0 += NR) {
                const int64_t step = rpi_min(NR, wide - x0);
                for (int64_t x = 0; x < step; x += VL) {
                    vf_store(dk + x0 + x,
                             vf_fma(share, vf_load(vectors + x0 * s->pad_count + e * step + x), vf_load(dk + x0 + x)));
                    if (wanted)
                        vf_store(dv + x0 + x,
                                 vf_fma(share, vf_load(k->keys_scratch + j * wide + x0 + x), vf_load(dv + x0 + x)));
                }
            }
        }
}

/* What adds to sums over rows and over keys: forget, and the vectors of COLUMN. */
static void sum_rows_and_columns(back *w, const tile *t, double *column, double *row_sum)
{
    block *k = &w->k;
    for (int64_t r = 0; r < k->rows; r++) {
        const real *ds = w->dp + r * STEP;
        double sum = 0;
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j++) {
            column[j] += (double)ds[j];
            sum += (double)ds[j];
        }
        if (row_sum)
            row_sum[r] = sum;
    }
}

/* ---------------------------------------------------------------------------------------------- one tile, one task */

static bool term_wanted(const rpi_call *c, const rpi_source *s)
{
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        if (c->grads->term[s->term][x].data)
            return true;
    return false;
}

/* The gradients of biases that lie inside (or outside) of the softcap. Sources of products with queries add to rows later. */
static void terms_gradient(back *w, const tile *t, bool inside, int64_t head)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_backward *bw = c->backward;
    bool folded = false;
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        const bool in = s->inside || c->args->desc.cap_after || c->args->desc.softcap == 0;
        if (in != inside)
            continue;
        if (s->kind == RPI_STRIP) {
            if (bw->strips)
                strip_gradient(w, t);
            continue;
        }
        const bool wanted = term_wanted(c, s);
        const rpi_scheme *scheme = rpi_scheme_of(c->plan->terms[s->term].kind);
        switch (s->kind) {
        case RPI_RUN: {
            const bool own = bw->own[n] != NULL;
            if (!own && !wanted)
                break;
            vectors_gradient(w, t, n, w->dp, k->vec[n].own, own, wanted);
            const int64_t wide = rpi_round_up(s->width, VL);
            real *to = own ? (real *)bw->own[n] + (head * bw->pad_rows + k->row0) * wide : NULL;
            if (own)
                rpi_ticket_wait(bw->ticket_own[n] + head * bw->blocks + k->row0 / QB, t->tile0 / BKB);
            for (int64_t x = 0; own && x < k->rows * wide; x += VL)
                vf_store(to + x, vf_load(to + x) + vf_load(w->own_tile + x));
            if (own)
                rpi_ticket_pass(bw->ticket_own[n] + head * bw->blocks + k->row0 / QB);
            break;
        }
        case RPI_GATHER:
            if (wanted)
                entries_gradient(w, t, n);
            break;
        case RPI_KEYS: keys_gradient(w, t, n, wanted); break;
        case RPI_COLUMN: sum_rows_and_columns(w, t, w->column, NULL); break;
        default:
            if (!wanted)
                break;
            if (bw->direct[n])
                direct_gradient(w, t, n);
            else if (bw->pairs[n])
                shared_gradient(w, t, n);
            else if (w->entries[n])
                rows_gradient(w, t, n);
            else if (!scheme->fold)
                pairs_gradient(w, t, n);
            else if (!folded)
                sum_rows_and_columns(w, t, w->fold_column, w->row_sum);
            folded |= scheme->fold != NULL; /* several terms share the sums */
        }
    }
}

/* The products, as in fma_backward_tmpl.h. */
#if RPI_TILES
#include "split_backward_tmpl.h"
#else
#include "fma_backward_tmpl.h"
#endif

static void tile_backward(back *w, tile *t, int64_t head)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    const double *stats = bw->row_stats + 3 * ((k->b * d->heads + k->h) * d->len_q + k->row0);
    const real *products[QB];
    load_queries(k);
    if (k->extreme_q) /* now it is known: pairs that are masked by -infinity alone need a look */
        tile_open(k, t, t->tile0, BKB, w->extreme_k, w->extreme_v);
    load_dout(w);
    tile_scores(k, t, w->packed_keys);
    if (c->valvec.part)
        value_products(w, t, products);
    dp_products(w, t, c->valvec.part ? products : NULL);
    for (int64_t r = 0; r < k->groups * MR; r++)
        row_gradient(w, t, r, stats + 3 * rpi_min(r, k->rows - 1));
    if (c->grads->dv.data)
        dv_products(w, t);
    if (c->valvec.part && term_wanted(c, &c->valvec))
        vectors_gradient(w, t, c->n_sources, k->s, w->dout, false, true);
    if (d->softcap > 0 && !d->cap_after)
        terms_gradient(w, t, false, head);
    if (d->softcap > 0)
        for (int64_t r = 0; r < k->rows; r++)
            for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
                const vf ds = vf_load(w->dp + r * STEP + j), zero = vf_set1(0);
                const vf x = ds * vf_load(k->slope + r * STEP + j);
                vf_store(w->dp + r * STEP + j, vf_below(vf_abs(ds), vf_set1(REAL_TINY), zero, x));
            }
    terms_gradient(w, t, true, head);
    if (c->grads->dk.data)
        dk_products(w, t);
    if (c->grads->dq.data)
        dq_products(w, t);
}

/* Add the sums of one head to those of the call, once the tasks before have. */
static void merge_head(back *w, int64_t j0, int64_t key_block)
{
    const block *k = &w->k;
    const rpi_call *c = k->c;
    rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    rpi_ticket_wait(&bw->ticket_head[k->h], k->b * bw->key_blocks + key_block);
    for (int32_t n = 0; n <= c->n_sources; n++) {
        const rpi_source *s = source_at(c, n);
        if (!s)
            continue;
        if (s->kind == RPI_STRIP && bw->strips) {
            /* entry 0 of the task's strip is j - i = j0 - (Lq - 1) */
            const int64_t low = s->strip_batch ? -rpi_position(c->args, k->b, d->len_q - 1) : s->strip_low;
            double *to = bw->strips + (s->strip_batch ? k->b : 0) * d->heads * s->strip_len + k->h * s->strip_len;
            const int64_t at = j0 - rpi_position(c->args, k->b, d->len_q - 1) - low;
            for (int64_t e = 0; e < d->len_q - 1 + rpi_min(BKB, d->len_k - j0); e++)
                to[at + e] += w->strip[e];
        }
        if (n < c->n_sources && bw->entries[n])
            for (int64_t e = 0; e < sums_of(c, s); e++)
                bw->entries[n][k->h * sums_of(c, s) + e] += w->entries[n][e];
        if (s->part && s->kind != RPI_COLUMN && bw->vectors[n]) {
            const int64_t wide = rpi_round_up(s->width, VL);
            double *to = bw->vectors[n] + k->h * s->count * s->width;
            for (int64_t e = 0; e < w->vectors_span[n] && e + w->vectors_low[n] < s->count; e++)
                for (int64_t x = 0; x < s->width; x++)
                    to[(e + w->vectors_low[n]) * s->width + x] += (double)w->vectors[n][e * wide + x];
        }
    }
    rpi_ticket_pass(&bw->ticket_head[k->h]);
}

/* Zero what the task sums for one head. */
static void begin_head(back *w, int64_t j0)
{
    const rpi_call *c = w->k.c;
    const rp_desc *d = &c->args->desc;
    memset(w->strip, 0, (size_t)(d->len_q + BKB) * sizeof(double));
    memset(w->column, 0, BKB * sizeof(double));
    memset(w->fold_column, 0, BKB * sizeof(double));
    for (int32_t n = 0; n <= c->n_sources; n++) {
        const rpi_source *s = source_at(c, n);
        if (!s)
            continue;
        if (w->entries[n])
            memset(w->entries[n], 0, (size_t)sums_of(c, s) * sizeof(double));
        if (!s->part)
            continue;
        memset(w->vectors[n], 0, reals(w->vectors_span[n] + MR, rpi_round_up(s->width, VL)));
        const int64_t first =
            j0 - (s->part->by_index ? d->len_q - 1 : rpi_position(c->args, w->k.b, d->len_q - 1)) - s->first;
        w->vectors_low[n] = s->gather ? 0 : rpi_clamp(first, 0, s->count - 1);
        if (!s->gather && w->vectors_span[n] >= s->count)
            w->vectors_low[n] = 0;
    }
}

/* What a head's column sums give: the gradient of a key's own bias, and sums for forget. */
static void use_columns(back *w, int64_t j0, int64_t keys, int64_t g)
{
    const block *k = &w->k;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    rpi_backward *bw = c->backward;
    if (bw->sums_column)
        for (int64_t j = 0; j < keys; j++)
            bw->sums_column[(k->b * d->heads + k->h) * d->len_k + j0 + j] = w->fold_column[j];
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        if (s->kind != RPI_COLUMN)
            continue;
        const rpi_pair p = rpi_pair_of(c->args, s->term, k->b, k->h, 0);
        const double factor = rpi_vec_factor(d, p.term);
        const int64_t wide = rpi_round_up(d->dim_k, VL);
        for (int64_t x = 0; x < s->width; x++) {
            const double vec = s->part->vec(&p, 0, x);
            double sum = 0;
            for (int64_t j = 0; j < keys; j++) {
                w->dk_plain[j * wide + x] += (real)(w->column[j] * factor * vec);
                if (w->column[j] != 0)
                    sum += w->column[j] * rpi_value(rpi_row_of(&c->args->k, k->b, g, j0 + j), c->args->k.dtype, x);
            }
            if (bw->columns)
                bw->columns[((k->b * d->heads + k->h) * bw->key_blocks + j0 / BKB) * s->width + x] = sum * factor;
        }
    }
}

static void store_keys(const back *w, int64_t j0, int64_t keys, int64_t g)
{
    const rpi_call *c = w->k.c;
    const rp_desc *d = &c->args->desc;
    const rpi_view *dk = &c->grads->dk, *dv = &c->grads->dv;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const int64_t wide_k = rpi_round_up(d->dim_k, VL), wide_v = rpi_round_up(d->dim_v, VL);
    for (int64_t j = 0; j < keys; j++) {
        real *from = w->dk + j * wide_k;
        if (rotate)
            rotate_row(rotate, (const real *)c->rope_k + w->k.b * c->rope_k_step + (j0 + j) * rotate->dim, -1, from, 1);
        for (int64_t x = 0; x < d->dim_k; x++)
            from[x] += w->dk_plain[j * wide_k + x];
        if (dk->data)
            store_part(dk->data, dk->dtype, rpi_index(dk, w->k.b, g, j0 + j, 0), from, d->dim_k);
        if (dv->data)
            store_part(dv->data, dv->dtype, rpi_index(dv, w->k.b, g, j0 + j, 0), w->dv + j * wide_v, d->dim_v);
    }
}

/* Keys of one block of one kv head of the group. */
static void backward(const rpi_call *c, int64_t kv, int64_t key_block, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const int64_t b = (c->g0 + kv) / d->kv_heads, g = (c->g0 + kv) % d->kv_heads, share = d->heads / d->kv_heads;
    const int64_t j0 = key_block * BKB, keys = rpi_min(BKB, d->len_k - j0), wide_k = rpi_round_up(d->dim_k, VL);
    const int64_t padded = rpi_round_up(keys, NR);
    rpi_backward *bw = c->backward;
    back w;
    block *k = &w.k;
    amx_begin();
    rpi_arena a = scratch_of(c, worker);
    back_layout(c, &w, &a);
    w.private_sums = bw->private_sums ? bw->private_sums[worker].term : NULL;
    k->c = c;
    k->b = b;
    k->kv = kv;
    memset(w.extreme_k, 0, BKB / NR + 1);
    products_begin(&w, g, j0, padded);
    memset(w.dk_plain, 0, reals(rpi_round_up(padded, MR) + MR, wide_k));
    for (int64_t n = 0; n < share; n++) {
        const int64_t head = kv * share + n;
        k->h = g * share + n;
        begin_head(&w, j0);
        for (k->row0 = 0; k->row0 < d->len_q; k->row0 += QB) {
            const int64_t block_n = head * bw->blocks + k->row0 / QB;
            tile t;
            k->rows = rpi_min(QB, d->len_q - k->row0);
            k->groups = (k->rows + MR - 1) / MR;
            find_intervals(k);
            k->extreme_q = false;
            const bool some = tile_open(k, &t, j0, BKB, w.extreme_k, w.extreme_v);
            if (some)
                tile_backward(&w, &t, head);
            else
                for (int32_t m = 0; m < c->n_sources; m++)
                    if (bw->own[m]) {
                        rpi_ticket_wait(bw->ticket_own[m] + block_n, key_block);
                        rpi_ticket_pass(bw->ticket_own[m] + block_n);
                    }
            if (bw->any_pairs) {
                atomic_llong *at = bw->ticket_pairs + k->row0 / QB * bw->key_blocks + key_block;
                rpi_ticket_wait(at, b * d->heads + k->h);
                rpi_ticket_pass(at);
            }
            rpi_ticket_wait(&bw->ticket_rows[block_n], key_block);
            if (some && c->grads->dq.data) {
                real *to = (real *)bw->dq + (head * bw->pad_rows + k->row0) * wide_k;
                for (int64_t x = 0; x < k->rows * wide_k; x += VL)
                    vf_store(to + x, vf_load(to + x) + vf_load(w.dq + x));
            }
            if (some && bw->sums_row)
                for (int64_t r = 0; r < k->rows; r++)
                    bw->sums_row[(b * d->heads + k->h) * d->len_q + k->row0 + r] += w.row_sum[r];
            rpi_ticket_pass(&bw->ticket_rows[block_n]);
        }
        use_columns(&w, j0, keys, g);
        if (bw->any_head)
            merge_head(&w, j0, key_block);
    }
    products_end(&w, keys);
    store_keys(&w, j0, keys, g);
    if (w.private_sums) {
        rpi_ticket_wait(&bw->ticket_task, (c->g0 + kv) * bw->key_blocks + key_block);
        for (int32_t n = 0; n < d->n_terms; n++)
            for (int x = 0; x < RP_MAX_ARRAYS; x++) {
                double *from = w.private_sums[n].array[x].data, *to = bw->sums.term[n].array[x].data;
                for (int64_t e = 0; from && to && e < bw->sums.elements[n][x]; e++) {
                    to[e] += from[e];
                    from[e] = 0;
                }
            }
        rpi_ticket_pass(&bw->ticket_task);
    }
    amx_end();
    rpi_float_end(before);
}
