/* forward_tmpl.h -- the forward pass over the tiles of a block, and the summaries.
 * Compiled once per instruction set. */

/* Scores of the tile, all but the softmax, from packed keys. */
static void tile_scores(block *k, const tile *t, const real *keys)
{
    const rpi_call *c = k->c;
    const int64_t D = c->plan->desc.dim_k;
    const real *const *in, *const *out;
    k->tile_keys = keys;
    biases_of(k, t, &in, &out);
    const bool finish = t->edge || c->plan->desc.softcap > 0;
    for (int64_t r = 0; r < k->groups * MR; r++)
        vf_store(k->most + r * VL, vf_set1(-INFINITY));
    for (int64_t col = 0; col < t->end; col += NR) /* the panel stays in L1 while the groups pass */
        for (int64_t g = 0; g < k->groups; g++)
            if (col >= t->from[g] && col < t->to[g])
                score_tile(k->q + g * MR * D, keys + col * D, D, in ? in + g * MR : NULL, col,
                           k->s + g * MR * STEP + col, STEP, finish ? NULL : k->most + g * MR * VL,
                           keys + (col + NR) * D + g * (NR * D / 16));
    for (int64_t r = 0; finish && r < k->groups * MR; r++) {
        finish_scores(k, t, in, out, r, t->from[r / MR], t->to[r / MR]);
        find_most(k, r, t->from[r / MR], t->to[r / MR]);
    }
}

/* to = from times the factors of dropout of row r: 0, or 1 / (1 - dropout). rpi_random, 16 keys at a time. */
static void drop(const block *k, const tile *t, int64_t r, const real *from, real *to)
{
    typedef uint32_t sixteen __attribute__((vector_size(64)));
    const rp_desc *d = &k->c->args->desc;
    const rpi_dropout_row row = rpi_dropout_at(d->seed, k->b, k->h, row_of(k, r));
    const uint32_t limit = rpi_dropout_limit(d->dropout), high = (uint32_t)((uint64_t)t->tile0 >> 32);
    const real factor = (real)(1 / (1 - d->dropout));
    const sixteen steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += 16) {
        /* a tile begins at a multiple of its width: its keys share the upper half of their number */
        sixteen x = ((steps + (uint32_t)(t->tile0 + j)) ^ high) + row.low;
        for (int round = 0; round < 2; round++) {
            x = (x ^ x >> 16) * RPI_MIX32_A;
            x = (x ^ x >> 15) * RPI_MIX32_B;
            x = (x ^ x >> 15) + row.high;
        }
        real_bits kept[16]; /* all bits, or none */
        const sixteen yes = (sixteen)(x >= limit);
        for (int n = 0; n < 16; n++)
            kept[n] = (real_bits)(int32_t)yes[n];
        for (int n = 0; n < 16; n += VL)
            vf_store(to + j + n, (vf)(vf_bits(kept + n) & (vi)(vf_load(from + j + n) * vf_set1(factor))));
    }
}

static void tile_attend(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    real alpha[QB];
    tile_scores(k, t, (const real *)c->keys + (k->kv * c->pad_k + t->tile0) * c->plan->desc.dim_k);
    for (int64_t r0 = 0; r0 < k->groups * MR; r0 += VL) {
        raise_tops(k, r0, alpha);
        weigh_rows(k, t, r0);
    }
    if (!c->args->out.data)
        return;
    if (d->dropout > 0)
        for (int64_t r = 0; r < k->rows; r++)
            drop(k, t, r, k->s + r * STEP, k->s + r * STEP);
    if (k->mass.low < k->mass.high)
        for (int64_t r = 0; r < k->rows; r++)
            for (int64_t n = 0; alpha[r] != 1 && n < k->mass.step; n += VL)
                vf_store(k->mass.at + r * k->mass.step + n,
                         vf_load(k->mass.at + r * k->mass.step + n) * vf_set1(alpha[r]));
    const real *values = (const real *)c->values + k->kv * c->pad_k * c->pad_v;
    for (int64_t col = 0; col < t->end; col += VB)
        for (int64_t g = 0; g < k->groups; g++) {
            const int64_t from = rpi_max(col, t->from[g]),
                          to = rpi_min(col + VB, rpi_min(t->to[g], d->len_k - t->tile0));
            if (from >= to)
                continue;
            add_values(k->s + g * MR * STEP, STEP, from, to, values, t->tile0, c->pad_k, k->o + g * MR * c->pad_v,
                       c->pad_v, col <= t->from[g] ? alpha + g * MR : ones, g);
        }
    if (k->mass.at)
        add_mass(k, t);
    if (t->wild_v || (c->valvec.part && c->valvec.wild))
        add_wild(k, t);
}

/* Second visit to a tile, for the summaries: the row sums are known, so are the weights. */
static void tile_summary(block *k, const tile *t, double *profile, double *key_mass)
{
    const rp_desc *d = &k->c->args->desc;
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0), offsets = d->len_q + d->len_k - 1;
    tile_scores(k, t, (const real *)k->c->keys + (k->kv * k->c->pad_k + t->tile0) * d->dim_k);
    memset(k->column, 0, KB * sizeof(real));
    memset(k->diagonal, 0, (QB + KB) * sizeof(real));
    for (int64_t r = 0; r < k->rows; r++) {
        real *s = k->s + r * STEP, *diagonal = k->diagonal + QB - r;
        const vf base = vf_set1(k->sum[r] == 0 ? 0 : k->top[r]), share = vf_set1(k->sum[r] == 0 ? 0 : 1 / k->sum[r]);
        const vf lowest = vf_set1(-REAL_MAX), zero = vf_set1(0);
        const vf low = vf_set1(RPI_F64 ? -750 : -104); /* weights there are 0: keep 0 * -infinity out of the sum */
        vf entropy = vf_set1(0), total = vf_set1(0);
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
            /* in a row of NaN too, a masked pair has no weight */
            const vf x = vf_load(s + j) - base, w = vf_below(vf_load(s + j), lowest, zero, vf_exp(x) * share);
            entropy = vf_fma(w, vf_below(x, low, low, x), entropy);
            total = total + w;
            vf_store(k->column + j, vf_load(k->column + j) + w);
            vf_store(diagonal + j, vf_load(diagonal + j) + w);
        }
        k->entropy[r] -= vf_sum(entropy);
        k->total[r] += vf_sum(total);
    }
    for (int64_t n = 1; n < QB + keys; n++) {
        const int64_t at = t->tile0 - k->row0 + d->len_q - 1 + n - QB;
        if (at >= 0 && at < offsets)
            profile[at] += (double)k->diagonal[n];
    }
    for (int64_t j = 0; j < keys; j++)
        key_mass[t->tile0 + j] += (double)k->column[j];
}

/* The logit beside the rows of a head; -infinity: none. */
static real sink_of(const rpi_call *c, int64_t h)
{
    return c->plan->sink >= 0 ? bias_of(rpi_at(&c->args->term[c->plan->sink][0], h, 0, 0, 0)) : (real)-INFINITY;
}

static void write_rows(block *k)
{
    const rpi_call *c = k->c;
    const rpi_args *a = c->args;
    const rp_desc *d = &c->args->desc;
    for (int64_t r = 0; r < k->rows; r++) {
        const real *o = k->o + r * c->pad_v, sum = k->sum[r];
        const int64_t i = k->row0 + r;
        if (a->out.data) {
            const int64_t at = rpi_index(&a->out, k->b, k->h, i, 0);
            if (a->out.dtype == (RPI_F64 ? RP_F64 : RP_F32)) {
                real *to = (real *)a->out.data + at;
                int64_t x = 0;
                for (; sum != 0 && x + VL <= d->dim_v; x += VL)
                    vf_store(to + x, vf_load(o + x) / vf_set1(sum));
                for (; x < d->dim_v; x++)
                    to[x] = sum == 0 ? 0 : o[x] / sum;
            } else
                for (int64_t x = 0; x < d->dim_v; x++)
                    rpi_put(a->out.data, a->out.dtype, at + x, sum == 0 ? 0 : (double)(o[x] / sum));
        }
        if (a->lse.data)
            rpi_put(a->lse.data, a->lse.dtype, rpi_index(&a->lse, k->b, k->h, i, 0),
                    sum == 0 ? -INFINITY : (double)k->top[r] + log((double)sum));
        if (a->top.data) {
            rpi_put(a->top.data, RP_F64, rpi_index(&a->top, k->b, k->h, i, 0),
                    sum == 0 ? -HUGE_VAL : (double)k->top[r]);
            rpi_put(a->log_sum.data, RP_F64, rpi_index(&a->log_sum, k->b, k->h, i, 0), sum == 0 ? 0 : log((double)sum));
        }
        if (a->entropy.data)
            rpi_put(a->entropy.data, a->entropy.dtype, rpi_index(&a->entropy, k->b, k->h, i, 0),
                    sum == 0 ? 0.0 : log((double)sum) * (double)k->total[r] + (double)k->entropy[r]);
    }
}

/* Rows [row0, row1) of one head. partial, where the summaries are wanted: Lq+Lk-1 sums by offset, then Lk by key. */
static void attend(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, double *partial, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    block k;
    block_layout(c, &k, c->scratch + (size_t)worker * c->scratch_step);
    k.c = c;
    k.b = b;
    k.h = h;
    k.kv = b * d->kv_heads + h / (d->heads / d->kv_heads) - c->g0;
    const uint8_t *wild_k = c->wild_k + k.kv * (c->pad_k / NR), *wild_v = c->wild_v + k.kv * c->pad_k;
    const real sink = sink_of(c, h);
    for (k.row0 = row0; k.row0 < row1; k.row0 += QB) {
        tile t;
        int64_t first = d->len_k, past = 0;
        k.rows = rpi_min(QB, row1 - k.row0);
        k.groups = (k.rows + MR - 1) / MR;
        k.mass.low = k.mass.high = 0;
        load_queries(&k);
        find_intervals(&k);
        for (int64_t r = 0; r < k.groups * MR; r++) {
            k.top[r] = sink; /* a key without a value */
            k.sum[r] = sink == -INFINITY ? 0 : 1;
            k.entropy[r] = k.total[r] = 0;
            if (k.lo[r] < k.hi[r]) {
                first = rpi_min(first, k.lo[r]);
                past = rpi_max(past, k.hi[r]);
            }
        }
        memset(k.o, 0, (size_t)(k.groups * MR * c->pad_v) * sizeof(real));
        if (k.mass.at)
            memset(k.mass.at, 0, reals(k.groups * MR, k.mass.step));
        for (int64_t tile0 = first / KB * KB; tile0 < past; tile0 += KB)
            if (tile_open(&k, &t, tile0, KB, wild_k + tile0 / NR, wild_v + tile0))
                tile_attend(&k, &t);
        if (k.mass.at)
            flush_mass(&k);
        for (int64_t tile0 = first / KB * KB; partial && tile0 < past; tile0 += KB)
            if (tile_open(&k, &t, tile0, KB, wild_k + tile0 / NR, wild_v + tile0))
                tile_summary(&k, &t, partial, partial + d->len_q + d->len_k - 1);
        write_rows(&k);
    }
    rpi_float_end(before);
}
