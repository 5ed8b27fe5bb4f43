/* forward_tmpl.h -- the forward pass over the tiles of a block, and the summaries.
 * Compiled once per instruction set. */

/* Scores of the tile, all but the softmax. */
static void tile_scores(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    const int64_t D = c->plan->desc.dim_k;
    const float *keys = c->keys + k->kv * c->pad_k * D + t->tile0 * D;
    const float *const *in, *const *out;
    biases_of(k, t, &in, &out);
    for (int64_t col = 0; col < t->end; col += NR) /* the panel stays in L1 while the groups pass */
        for (int64_t g = 0; g < k->groups; g++)
            if (col >= t->from[g] && col < t->to[g])
                score_tile(k->q + g * MR * D, keys + col * D, D, in ? in + g * MR : NULL, col,
                           k->s + g * MR * STEP + col, STEP);
    if (t->edge || c->plan->desc.softcap > 0)
        for (int64_t r = 0; r < k->groups * MR; r++)
            finish_scores(k, t, in, out, r, t->from[r / MR], t->to[r / MR]);
}

static void tile_attend(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    float alpha[QB];
    tile_scores(k, t);
    for (int64_t r = 0; r < k->groups * MR; r++)
        alpha[r] = t->from[r / MR] < t->to[r / MR] ? softmax_row(k, r, t->from[r / MR], t->to[r / MR]) : 1.0f;
    if (!c->args->out.data)
        return;
    if (k->mass_low < k->mass_high)
        for (int64_t r = 0; r < k->rows; r++)
            for (int64_t n = 0; alpha[r] != 1.0f && n < k->mass_step; n += VL)
                vf_store(k->mass + r * k->mass_step + n, vf_load(k->mass + r * k->mass_step + n) * vf_set1(alpha[r]));
    for (int64_t col = 0; col < t->end; col += VB)
        for (int64_t g = 0; g < k->groups; g++) {
            const int64_t from = rpi_max(col, t->from[g]), to = rpi_min(col + VB, t->to[g]);
            if (from < to)
                add_values(k->s + g * MR * STEP, STEP, from, to, c->values + k->kv * c->pad_k * c->pad_v, t->tile0,
                           c->pad_k, k->o + g * MR * c->pad_v, c->pad_v, col <= t->from[g] ? alpha + g * MR : ones);
        }
    if (k->mass)
        add_mass(k, t);
    if (t->wild_v || c->wild_vec)
        add_wild(k, t);
}

/* Second visit to a tile, for the summaries: the row sums are known, so are the weights. */
static void tile_summary(block *k, const tile *t, double *profile, double *key_mass)
{
    const rp_desc *d = &k->c->plan->desc;
    const int64_t real = rpi_min(t->end, d->len_k - t->tile0), offsets = d->len_q + d->len_k - 1;
    tile_scores(k, t);
    memset(k->column, 0, KB * sizeof(float));
    memset(k->diagonal, 0, (QB + KB) * sizeof(float));
    for (int64_t r = 0; r < k->rows; r++) {
        float *s = k->s + r * STEP, *diagonal = k->diagonal + QB - r;
        const vf base = vf_set1(k->sum[r] == 0.0f ? 0.0f : k->top[r]),
                 share = vf_set1(k->sum[r] == 0.0f ? 0.0f : 1.0f / k->sum[r]);
        const vf lowest = vf_set1(-FLT_MAX), zero = vf_set1(0.0f);
        const vf low = vf_set1(-104.0f); /* weights there are 0: keep 0 * -infinity out of the sum */
        vf entropy = vf_set1(0.0f);
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
            /* in a row of NaN too, a masked pair has no weight */
            const vf x = vf_load(s + j) - base, w = vf_below(vf_load(s + j), lowest, zero, vf_exp(x) * share);
            entropy = vf_fma(w, vf_below(x, low, low, x), entropy);
            vf_store(k->column + j, vf_load(k->column + j) + w);
            vf_store(diagonal + j, vf_load(diagonal + j) + w);
        }
        k->entropy[r] -= vf_sum(entropy);
    }
    for (int64_t n = 1; n < QB + real; n++) {
        const int64_t at = t->tile0 - k->row0 + d->len_q - 1 + n - QB;
        if (at >= 0 && at < offsets)
            profile[at] += (double)k->diagonal[n];
    }
    for (int64_t j = 0; j < real; j++)
        key_mass[t->tile0 + j] += (double)k->column[j];
}

static void write_rows(block *k)
{
    const rpi_call *c = k->c;
    const rpi_args *a = c->args;
    const rp_desc *d = &c->plan->desc;
    for (int64_t r = 0; r < k->rows; r++) {
        const float *o = k->o + r * c->pad_v, sum = k->sum[r];
        const int64_t i = k->row0 + r;
        if (a->out.data) {
            float *to = (float *)a->out.data + rpi_index(&a->out, k->b, k->h, i, 0);
            for (int64_t x = 0; x < d->dim_v; x++)
                to[x] = sum == 0.0f ? 0.0f : o[x] / sum;
        }
        if (a->lse.data)
            rpi_put(a->lse.data, a->lse.dtype, rpi_index(&a->lse, k->b, k->h, i, 0),
                    sum == 0.0f ? -INFINITY : (double)k->top[r] + log((double)sum));
        if (a->entropy.data)
            rpi_put(a->entropy.data, a->entropy.dtype, rpi_index(&a->entropy, k->b, k->h, i, 0),
                    sum == 0.0f ? 0.0 : log((double)sum) + (double)k->entropy[r]);
    }
}

/* Rows [row0, row1) of one head. partial, where the summaries are wanted: Lq+Lk-1 sums by offset, then Lk by key. */
static void attend(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, double *partial, int32_t worker)
{
    const rp_desc *d = &c->plan->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    block k;
    block_layout(c->plan, &k, c->scratch + (size_t)worker * c->scratch_step);
    k.c = c;
    k.b = b;
    k.h = h;
    k.kv = b * d->kv_heads + h / (d->heads / d->kv_heads) - c->g0;
    for (k.row0 = row0; k.row0 < row1; k.row0 += QB) {
        tile t;
        int64_t first = d->len_k, past = 0;
        k.rows = rpi_min(QB, row1 - k.row0);
        k.groups = (k.rows + MR - 1) / MR;
        k.vec_low = k.vec_high = k.mass_low = k.mass_high = 0;
        load_queries(&k);
        find_intervals(&k);
        for (int64_t r = 0; r < k.groups * MR; r++) {
            k.top[r] = -INFINITY;
            k.sum[r] = k.entropy[r] = 0;
            if (k.lo[r] < k.hi[r]) {
                first = rpi_min(first, k.lo[r]);
                past = rpi_max(past, k.hi[r]);
            }
        }
        memset(k.o, 0, (size_t)(k.groups * MR * c->pad_v) * sizeof(float));
        if (k.mass)
            memset(k.mass, 0, (size_t)(k.groups * MR * k.mass_step) * sizeof(float));
        for (int64_t tile0 = first / KB * KB; tile0 < past; tile0 += KB)
            if (tile_open(&k, &t, tile0))
                tile_attend(&k, &t);
        if (k.mass)
            flush_mass(&k);
        for (int64_t tile0 = first / KB * KB; partial && tile0 < past; tile0 += KB)
            if (tile_open(&k, &t, tile0))
                tile_summary(&k, &t, partial, partial + d->len_q + d->len_k - 1);
        write_rows(&k);
    }
    rpi_float_end(before);
}
