/* forward_tmpl.h -- the forward pass over the tiles of a block, and the summaries.
 * Compiled once per instruction set. */

/* Panels [panel0, panel1) of kv head g of batch entry b, packed at place `at`. */
static void pack_at(block *k, int64_t b, int64_t g, int64_t at, int64_t panel0, int64_t panel1)
{
    const rpi_call *c = k->c;
    uint8_t *extreme_k = c->extreme_k + at * (c->pad_k / NR), *extreme_v = c->extreme_v + at * c->pad_k;
    memset(extreme_k + panel0, 0, (size_t)(panel1 - panel0));
    for (int64_t panel = panel0; panel < panel1; panel++) {
        const int64_t j = panel * NR;
        pack_keys(c, b, g, j, NR, keys_at(c, at, j), extreme_k + panel, k->rows_scratch);
        /* v may be absent where out is */
        pack_values(c, b, g, j, NR, values_at(c, at), j, c->pad_k, extreme_v + j, k->rows_scratch);
    }
}

static void worker_block(const rpi_call *c, block *k, int32_t worker)
{
    rpi_arena a = scratch_of(c, worker);
    block_layout(c, k, &a);
    k->c = c;
}

/* Panels [panel0, panel1) of a kv head of the group. */
static void pack_kv(const rpi_call *c, int64_t kv, int64_t panel0, int64_t panel1, int32_t worker)
{
    const int64_t heads = c->args->desc.kv_heads;
    block k;
    worker_block(c, &k, worker);
    pack_at(&k, (c->g0 + kv) / heads, (c->g0 + kv) % heads, kv, panel0, panel1);
}

/* Scores of the tile, all but the softmax, from packed keys; NULL: from unpacked keys, and false if one is extreme. */
static bool tile_scores(block *k, const tile *t, const void *keys)
{
    const rpi_call *c = k->c;
    const real *const *in, *const *out;
    k->tile_keys = keys;
    biases_of(k, t, &in, &out);
    const bool finish = !keys || t->edge || c->plan->desc.softcap > 0;
    for (int64_t r = 0; r < k->groups * MR; r++)
        vf_store(k->max + r * VL, vf_set1(-INFINITY));
    if (keys)
        key_scores(k, t, keys, in, finish ? NULL : k->max);
    else if (!unpacked_scores(k, t, in))
        return false;
    for (int64_t r = 0; finish && r < (!keys && is_lone(k) ? 1 : k->groups * MR); r++) {
        finish_scores(k, t, in, out, r, t->from[r / MR], t->to[r / MR]);
        find_max(k, r, t->from[r / MR], t->to[r / MR]);
    }
    return true;
}

static void tile_attend(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    real alpha[QB];
    tile_scores(k, t, keys_at(c, k->kv, t->tile0));
    for (int64_t r0 = 0; r0 < k->groups * MR; r0 += VL)
        raise_tops(k, r0, alpha);
    const bool extreme = t->extreme_v || (c->valvec.part && c->valvec.extreme);
    if (k->mass.low < k->mass.high)
        for (int64_t r = 0; r < k->rows; r++)
            for (int64_t n = 0; alpha[r] != 1 && n < k->mass.step; n += VL)
                vf_store(k->mass.at + r * k->mass.step + n,
                         vf_load(k->mass.at + r * k->mass.step + n) * vf_set1(alpha[r]));
    weigh_tile(k, t, c->args->out.data ? values_at(c, k->kv) : NULL, t->tile0, c->pad_k, alpha, k->o, 0,
               k->mass.at || extreme);
    if (!c->args->out.data)
        return;
    if (k->mass.at)
        add_mass(k, t);
    if (extreme)
        add_extreme(k, t);
}

/* Second visit to a tile, for the summaries: the row sums are known, so are the weights. */
static void tile_summary(block *k, const tile *t, double *profile, double *key_mass)
{
    const rp_desc *d = &k->c->args->desc;
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0), offsets = d->len_q + d->len_k - 1;
    tile_scores(k, t, keys_at(k->c, k->kv, t->tile0));
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
        const real sum = k->sum[r];
        const int64_t i = k->row0 + r;
        if (a->out.data) {
            real *row = k->o + r * c->pad_v;
            for (int64_t x = 0; sum != 0 && x < c->pad_v; x += VL)
                vf_store(row + x, vf_load(row + x) / vf_set1(sum));
            for (int64_t x = 0; sum == 0 && x < c->pad_v; x++)
                row[x] = 0;
            store_part(a->out.data, a->out.dtype, rpi_index(&a->out, k->b, k->h, i, 0), row, d->dim_v);
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

/* Rows [row0, row1) of head k->h of batch entry k->b, whose keys and values are packed at place k->kv. partial, where the
 * summaries are wanted: Lq+Lk-1 sums by offset, then Lk by key. */
static void attend_rows(block *k, int64_t row0, int64_t row1, double *partial)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const uint8_t *extreme_k = c->extreme_k + k->kv * (c->pad_k / NR), *extreme_v = c->extreme_v + k->kv * c->pad_k;
    const real sink = sink_of(c, k->h);
    for (k->row0 = row0; k->row0 < row1; k->row0 += QB) {
        tile t;
        int64_t first = d->len_k, past = 0;
        k->rows = rpi_min(QB, row1 - k->row0);
        k->groups = (k->rows + MR - 1) / MR;
        k->mass.low = k->mass.high = 0;
        load_queries(k);
        find_intervals(k);
        for (int64_t r = 0; r < k->groups * MR; r++) {
            k->top[r] = sink; /* a key without a value */
            k->sum[r] = sink == -INFINITY ? 0 : 1;
            k->entropy[r] = k->total[r] = 0;
            if (k->lo[r] < k->hi[r]) {
                first = rpi_min(first, k->lo[r]);
                past = rpi_max(past, k->hi[r]);
            }
        }
        memset(k->o, 0, (size_t)(k->groups * MR * c->pad_v) * sizeof(real));
        if (k->mass.at)
            memset(k->mass.at, 0, reals(k->groups * MR, k->mass.step));
        for (int64_t tile0 = first / KB * KB; tile0 < past; tile0 += KB)
            if (tile_open(k, &t, tile0, KB, extreme_k + tile0 / NR, extreme_v + tile0))
                tile_attend(k, &t);
        if (k->mass.at)
            flush_mass(k);
        for (int64_t tile0 = first / KB * KB; partial && tile0 < past; tile0 += KB)
            if (tile_open(k, &t, tile0, KB, extreme_k + tile0 / NR, extreme_v + tile0))
                tile_summary(k, &t, partial, partial + d->len_q + d->len_k - 1);
        write_rows(k);
    }
}

/* The same of one head, whose kv head is in the group at hand. */
static void attend(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, double *partial, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    block k;
    amx_begin();
    worker_block(c, &k, worker);
    k.b = b;
    k.h = h;
    k.kv = b * d->kv_heads + h / (d->heads / d->kv_heads) - c->g0;
    attend_rows(&k, row0, row1, partial);
    amx_end();
    rpi_float_end(before);
}

/* kv heads [kv0, kv1) from packing to the last row, one after the other in the worker's own place. */
static void attend_heads(const rpi_call *c, int64_t kv0, int64_t kv1, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const int64_t share = d->heads / d->kv_heads;
    block k;
    amx_begin();
    worker_block(c, &k, worker);
    k.kv = worker;
    for (int64_t kv = kv0; kv < kv1; kv++) {
        const int64_t g = kv % d->kv_heads;
        k.b = kv / d->kv_heads;
        pack_at(&k, k.b, g, worker, 0, c->pad_k / NR);
        for (k.h = g * share; k.h < (g + 1) * share; k.h++)
            attend_rows(&k, 0, d->len_q, NULL);
    }
    amx_end();
    rpi_float_end(before);
}
