/* split_backward_tmpl.h -- the products of the backward pass on AMX tiles, as in fma_backward_tmpl.h.
 * Compiled once per instruction set that has AMX tiles.
 *
 *     dp = dout v^T      dv^T += dout^T p      dk^T += q^T ds      dq = ds k
 *
 * dk and dv are summed transposed, so that p and ds are right operands whose pairs are rows in their own order. Rows that are
 * extreme are 0 in the operands, and what they give is added pair by pair. */

static void products_layout(const rpi_call *c, back *task, rpi_arena *a)
{
    const rp_desc *d = &c->plan->desc;
    split_back *w = &task->split;
    const int64_t wide_k = rpi_round_up(d->dim_k, CHUNK), wide_v = rpi_round_up(d->dim_v, CHUNK), all = 3;
    task->packed_keys = rpi_arena_take(a, BKB, key_bytes(c->plan), 1);
    w->values = rpi_arena_take(a, BKB * all, wide_v, 2);
    w->key_rows = rpi_arena_take(a, BKB * all, wide_k, 2);
    w->dout = rpi_arena_take(a, QB * all, wide_v, 2);
    w->dout_transposed = rpi_arena_take(a, QB * all, wide_v, 2);
    w->q_transposed = rpi_arena_take(a, QB * all, wide_k, 2);
    w->p = rpi_arena_take(a, QB * all, BKB, 2);
    w->ds = rpi_arena_take(a, QB * all, BKB, 2);
    w->dout_scratch = take_reals(a, QB, wide_v);
    w->dk = take_reals(a, wide_k, BKB);
    w->dv = take_reals(a, wide_v, BKB);
    w->extreme_key = rpi_arena_take(a, BKB, 1, 1);
    w->extreme_value = rpi_arena_take(a, BKB, 1, 1);
    w->extreme_dout = rpi_arena_take(a, QB, 1, 1);
}

/* Keys and values j0 … j0+n-1, and no sums yet. */
static void products_begin(back *task, int64_t g, int64_t j0, int64_t n)
{
    const rpi_call *c = task->k.c;
    const rp_desc *d = &c->args->desc;
    const int64_t b = task->k.b;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const real *rope = (const real *)c->rope_k + b * c->rope_k_step;
    split_back *w = &task->split;
    uint8_t panels[BKB / NR];
    real *scratch = task->k.rows_scratch;
    pack_keys(c, b, g, j0, n, task->packed_keys, task->extreme_k, scratch);
    memset(w->extreme_value, 0, BKB);
    split_panels(&c->args->v, b, g, j0, n, d->len_k, d->dim_v, NULL, NULL, value_parts(c->plan), w->values, panels,
                 w->extreme_value, scratch);
    memcpy(task->extreme_v, w->extreme_value, BKB);
    split_columns(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, rotate, rope, key_parts(c->plan), (real)RPI_MODERATE,
                  w->key_rows, w->extreme_key, scratch);
    w->any_key = memchr(w->extreme_key, 1, (size_t)n) != NULL;
    w->any_value = memchr(w->extreme_value, 1, (size_t)n) != NULL;
    if (w->any_key)
        pack_panels(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, rotate, rope, task->keys, NULL);
    for (int64_t x = 0; x < rpi_round_up(d->dim_k, CHUNK); x++)
        memset(w->dk + x * BKB, 0, reals(n, 1));
    for (int64_t x = 0; x < rpi_round_up(d->dim_v, CHUNK); x++)
        memset(w->dv + x * BKB, 0, reals(n, 1));
}

/* A matrix [QB][STEP], of which the block has rows, as right operand of a sum over them: [chunk of rows][16 columns][part]. */
ALWAYS_INLINE void pairs_of_rows(const block *k, const real *from, int64_t columns, int parts, uint32_t *to)
{
    static const real zeros[BKB];
    const int64_t rows = k->groups * MR;
    for (int64_t c = 0; c < rows; c += CHUNK, to += BKB / SQ * parts * LEAF)
        for (int64_t r = c; r < c + SQ; r++) {
            const real *x = r < rows ? from + r * STEP : zeros, *y = r + SQ < rows ? from + (r + SQ) * STEP : zeros;
            uint32_t *at = to + (r - c) * SQ;
            for (int64_t j = 0; j < columns; j += SQ, at += parts * LEAF) {
                vu part[3];
                cut_pair(vf_load(x + j), vf_load(y + j), parts, part);
                RPI_UNROLL
                for (int n = 0; n < parts; n++)
                    store_pairs(at + n * LEAF, part[n]);
            }
        }
}

static void split_by_rows(const block *k, const real *from, int64_t columns, int parts, uint32_t *to)
{
    if (parts == 2)
        pairs_of_rows(k, from, columns, 2, to);
    else
        pairs_of_rows(k, from, columns, 3, to);
}

/* QB rows of `wide` numbers, of which `rows` count, as left operand of a sum over the rows: [16 channels][chunk of rows][part]. */
static void split_channels(const real *from, int64_t wide, int64_t rows, int parts, uint32_t *to)
{
    for (int64_t x = 0; x < wide; x += SQ, to += QB / CHUNK * parts * LEAF)
        for (int64_t c = 0; c < rows; c += CHUNK) {
            const real *row[SQ];
            vu leaf[3][SQ];
            for (int r = 0; r < SQ; r++) {
                vu part[3];
                row[r] = from + (c + r) * wide + x;
                split_pair(vf_load(row[r]), vf_load(row[r] + SQ * wide), 3, part);
                for (int n = 0; n < 3; n++)
                    leaf[n][r] = part[n];
            }
            for (int n = 0; n < parts; n++) {
                vf_transpose((vf *)leaf[n]);
                memcpy(to + (c / CHUNK * parts + n) * LEAF, leaf[n], sizeof leaf[n]);
            }
        }
}

static void load_dout(back *task)
{
    block *k = &task->k;
    split_back *w = &task->split;
    const rpi_call *c = k->c;
    const rpi_view *dout = &c->grads->dout;
    const int64_t Dv = c->args->desc.dim_v, wide = rpi_round_up(Dv, CHUNK), rows = rpi_round_up(k->groups * MR, CHUNK);
    w->dout_parts = type_parts(c->plan, dout->dtype);
    w->any_dout = false;
    for (int64_t r0 = 0; r0 < rows; r0 += CHUNK) {
        real *to = w->dout_scratch + r0 * wide;
        packing s;
        rows_at(&s, dout, k->b, k->h, k->row0 + r0, CHUNK, k->row0 + k->rows, Dv, to);
        for (int64_t r = 0; r < CHUNK; r++, to += wide) {
            watch seen = {vf_set1(0)};
            for (int64_t x = 0; x < wide; x += VL) {
                const vf y = vf_load(s.at[r] + x);
                __builtin_prefetch(s.ahead[r] + x * s.size, 0, 2);
                watch_vector(&seen, y);
                vf_store(to + x, y);
            }
            task->extreme_dout[r0 + r] = !is_finite(&seen);
            w->extreme_dout[r0 + r] = !is_moderate(&seen, (real)RPI_MODERATE);
            w->any_dout |= w->extreme_dout[r0 + r];
            if (w->extreme_dout[r0 + r])
                memset(to, 0, reals(wide, 1));
        }
    }
    split_rows(w->dout_scratch, wide, rows, wide, w->dout_parts, w->dout);
    split_channels(w->dout_scratch, wide, rows, w->dout_parts, w->dout_transposed);
    if (c->valvec.part) /* its vectors meet dout by groups */
        load_rows(k, dout, Dv, 1, task->dout, &(watch){0});
}

static void dp_products(back *task, const tile *t, const real *const *starts)
{
    block *k = &task->k;
    split_back *w = &task->split;
    const rpi_args *a = k->c->args;
    const int64_t Dv = a->desc.dim_v, chunks = rpi_round_up(Dv, CHUNK) / CHUNK,
                  g = k->h / (a->desc.heads / a->desc.kv_heads);
    const int parts = value_parts(k->c->plan);
    split_scores(k, t, (operand){w->dout, chunks * w->dout_parts * LEAF, w->dout_parts * LEAF, w->dout_parts},
                 (operand){w->values, chunks * parts * LEAF, parts * LEAF, parts}, chunks, starts, task->dp, NULL);
    for (int64_t r = 0; r < k->rows && (w->any_dout || w->any_value); r++)
        for (int64_t j = 0; j < rpi_min(t->end, a->desc.len_k - t->tile0); j++) {
            if (!w->extreme_dout[r] && !w->extreme_value[j])
                continue;
            const void *v = rpi_row_of(&a->v, k->b, g, t->tile0 + j);
            const void *dout = rpi_row_of(&k->c->grads->dout, k->b, k->h, k->row0 + r);
            real sum = starts ? starts[r][j] : 0;
            for (int64_t x = 0; x < Dv; x++)
                sum += (real)rpi_value(dout, k->c->grads->dout.dtype, x) * (real)rpi_value(v, a->v.dtype, x);
            task->dp[r * STEP + j] = sum;
        }
}

/* sums[wide][BKB] += left right for columns [0, columns). */
static void add_transposed_products(const block *k, const uint32_t *left, int left_parts, const uint32_t *right,
                                    int64_t wide, int64_t columns, real *sums)
{
    const int parts = k->c->plan->parts;
    for (int64_t x = 0; x < wide; x += 2 * SQ) {
        const operand a = {left + x / SQ * (QB / CHUNK) * left_parts * LEAF, (QB / CHUNK) * left_parts * LEAF,
                           left_parts * LEAF, left_parts};
        for (int64_t j = 0; j < columns; j += 2 * SQ) {
            const operand b = {right + j / SQ * parts * LEAF, parts * LEAF, BKB / SQ * parts * LEAF, parts};
            real *at = sums + x * BKB + j;
            const real *start[2] = {at, at + SQ * BKB};
            const int64_t step[2] = {BKB, BKB};
            product(2, 2, &a, &b, rpi_round_up(k->groups * MR, CHUNK) / CHUNK, start, step, at, BKB, NULL);
        }
    }
}

static void dv_products(back *task, const tile *t)
{
    block *k = &task->k;
    split_back *w = &task->split;
    const int64_t Dv = k->c->args->desc.dim_v;
    split_by_rows(k, k->s, t->end, k->c->plan->parts, w->p);
    add_transposed_products(k, w->dout_transposed, w->dout_parts, w->p, rpi_round_up(Dv, CHUNK), t->end, w->dv);
    for (int64_t r = 0; r < k->rows && w->any_dout; r++)
        for (int64_t j = 0; w->extreme_dout[r] && j < t->end; j++) {
            const void *dout = rpi_row_of(&k->c->grads->dout, k->b, k->h, k->row0 + r);
            const real p = k->s[r * STEP + j];
            for (int64_t x = 0; p != 0 && x < Dv; x++)
                w->dv[x * BKB + j] += p * (real)rpi_value(dout, k->c->grads->dout.dtype, x);
        }
}

static void dk_products(back *task, const tile *t)
{
    block *k = &task->k;
    split_back *w = &task->split;
    const int64_t D = k->c->args->desc.dim_k, wide = rpi_round_up(D, CHUNK);
    split_by_rows(k, task->dp, t->end, k->c->plan->parts, w->p);
    split_channels(k->q_rows, wide, rpi_round_up(k->groups * MR, CHUNK), k->q_parts, w->q_transposed);
    add_transposed_products(k, w->q_transposed, k->q_parts, w->p, wide, t->end, w->dk);
    for (int64_t r = 0; r < k->rows && k->extreme_q; r++)
        for (int64_t j = 0; k->extreme_row[r] && j < t->end; j++) {
            const real ds = task->dp[r * STEP + j];
            for (int64_t x = 0; ds != 0 && x < D; x++)
                w->dk[x * BKB + j] += ds * k->q[r / MR * MR * D + x * MR + r % MR];
        }
}

static void dq_products(back *task, const tile *t)
{
    block *k = &task->k;
    split_back *w = &task->split;
    const int parts = k->c->plan->parts, key = key_parts(k->c->plan);
    const int64_t D = k->c->args->desc.dim_k, columns = rpi_round_up(D, SQ) / SQ, chunks = t->end / CHUNK,
                  all = k->groups * MR, rows = rpi_round_up(all, SQ);
    split_rows(task->dp, STEP, all, t->end, parts, w->ds);
    for (int64_t r = all; r < rows; r++)
        for (int64_t n = 0; n < chunks * parts; n++)
            memset(w->ds + (r / SQ * chunks * parts + n) * LEAF + r % SQ * SQ, 0, SQ * sizeof *w->ds);
    for (int64_t r = 0; r < rows; r += 2 * SQ)
        for (int64_t x = 0; x < columns; x += 2) {
            const operand a = {w->ds + r / SQ * chunks * parts * LEAF, chunks * parts * LEAF, parts * LEAF, parts};
            const operand b = {w->key_rows + x * key * LEAF, key * LEAF, columns * key * LEAF, key};
            product(rpi_min(2, (rows - r) / SQ), rpi_min(2, columns - x), &a, &b, chunks, NULL, NULL,
                    task->dq + r * columns * SQ + x * SQ, columns * SQ, NULL);
        }
    for (int64_t j = 0; j < t->end && w->any_key; j++)
        for (int64_t r = 0; w->extreme_key[j] && r < k->rows; r++) {
            const real ds = task->dp[r * STEP + j], *from = task->keys + j / NR * NR * D + j % NR;
            for (int64_t x = 0; ds != 0 && x < D; x++)
                task->dq[r * columns * SQ + x] += ds * from[x * NR];
        }
}

/* to[keys][width padded] = from[channel][BKB] */
static void transpose_back(const real *from, int64_t width, int64_t keys, real *to)
{
    const int64_t wide = rpi_round_up(width, VL);
    for (int64_t j = 0; j < keys; j += VL)
        for (int64_t x = 0; x < wide; x += VL) {
            vf y[VL];
            RPI_UNROLL
            for (int n = 0; n < VL; n++)
                y[n] = vf_load(from + (x + n) * BKB + j);
            vf_transpose(y);
            RPI_UNROLL
            for (int n = 0; n < VL; n++)
                vf_store(to + (j + n) * wide + x, y[n]);
        }
}

static void products_end(back *w, int64_t keys)
{
    const rp_desc *d = &w->k.c->args->desc;
    transpose_back(w->split.dk, d->dim_k, keys, w->dk);
    transpose_back(w->split.dv, d->dim_v, keys, w->dv);
}
