/* bias_tmpl.h -- the biases of a tile, as a pointer for each row.
 * Compiled once per instruction set. */

/* Of a source, the vector of key 0 of the tile for row r, before it is clamped. */
static inline int64_t vector_of(const block *k, const rpi_source *s, const tile *t, int64_t r)
{
    return t->tile0 - (s->part->by_index ? row_of(k, r) : k->position[r]) - s->first;
}

/* Products of the block's queries with the vectors that the tile needs, in rows padded by KB on both sides with the first
 * and the last product (or zeros), so that every row of a tile is a contiguous read, past the clip too. */
static void need_vectors(block *k, int32_t n, const rpi_source *s, int64_t low, int64_t high)
{
    window *w = &k->vec[n];
    const int64_t R = s->count, D = s->width, pad = s->gather ? 0 : KB, width = w->step - 2 * pad;
    const real *packed = (const real *)s->panels + k->h * s->panels_step;
    if (low >= w->low && high <= w->high)
        return;
    w->low = R <= width ? 0 : low / NR * NR;
    w->high = R <= width ? rpi_round_up(R, NR) : rpi_round_up(high, NR);
    for (int64_t v = w->low; v < w->high; v += NR)
        for (int64_t g = 0; g < k->groups; g++)
            score_tile(w->own + g * MR * D, packed + v * D, D, NULL, 0, w->at + g * MR * w->step + pad + v - w->low,
                       w->step, NULL, packed);
    for (int64_t r = 0; r < k->groups * MR && pad; r++) {
        real *row = w->at + r * w->step + pad;
        if (w->low == 0)
            for (int64_t v = 1; v <= KB; v++)
                row[-v] = s->part->zero_outside ? 0 : row[0];
        if (w->high >= R)
            for (int64_t v = R - w->low; v < R - w->low + KB; v++)
                row[v] = s->part->zero_outside ? 0 : row[R - 1 - w->low];
    }
}

/* Offset of the first column of the tile for row r. */
static inline int64_t delta_of(const block *k, const tile *t, int64_t r)
{
    return t->tile0 - k->position[r];
}

/* The entries or vectors of row r for the keys of the tile, from q_at and k_at, into k->index; -1: ask the definition. */
static void gather_index(block *k, const rpi_source *s, const tile *t, int64_t r, int64_t real_keys)
{
    const int64_t keys = k->b * s->k_step + t->tile0, query = k->b * s->q_step + row_of(k, r);
    const double *key = s->k_at + keys, q = s->q_at[query];
    int64_t j = 0;
    if (s->k_int) {
        typedef int32_t sixteen __attribute__((vector_size(64)));
        typedef int32_t loose __attribute__((vector_size(64), aligned(4), may_alias));
        const int32_t *key_int = s->k_int + keys, q_int = s->q_int[query], max = (int32_t)(s->count - 1);
        for (; j + 16 <= t->end; j += 16) {
            sixteen e = *(const loose *)(key_int + j) - q_int;
            const sixteen above = e > max;
            e = (above & max) | (~above & e);
            *(loose *)(k->index + j) = e & ~(e < 0);
        }
        for (; j < t->end; j++)
            k->index[j] = (int32_t)rpi_clamp((int64_t)key_int[j] - q_int, 0, max);
        for (j = 0; s->special && j < real_keys; j++)
            if (isnan(key[j] - q))
                k->index[j] = -1;
    } else {
        const double low = (double)s->first, high = (double)(s->first + s->count - 1);
        for (; j < t->end; j++) {
            const double x = key[j] - q;
            k->index[j] = isnan(x) ? -1 : (int32_t)((int64_t)(x < low ? low : x > high ? high : x) - s->first);
        }
    }
    for (j = real_keys; j < t->end; j++)
        k->index[j] = 0;
}

/* Entries of row r where no index needs a bound, added to what there is; add NULL: none. */
static void gather_plain(const block *k, const rpi_source *s, const tile *t, int64_t r, const real *entry,
                         const real *add, real *to)
{
    const int32_t *key = s->k_int + k->b * s->k_step + t->tile0, q = s->q_int[k->b * s->q_step + row_of(k, r)];
    const real *from = (const real *)((uintptr_t)entry - (uintptr_t)((int64_t)q * (int64_t)sizeof(real)));
    if (add)
        for (int64_t j = 0; j < t->end; j += VL)
            vf_store(to + j, vf_load(add + j) + vf_gather(from, key + j));
    else
        for (int64_t j = 0; j < t->end; j += VL)
            vf_store(to + j, vf_gather(from, key + j));
}

/* A pair of a source and a row of the block. */
static rpi_pair pair_of_row(const block *k, const rpi_source *s, int64_t r)
{
    return rpi_pair_of(k->c->args, s->term, k->b, k->h, row_of(k, r));
}

/* Products of the tile's keys, not rotated, with the vectors of each pair: a register tile whose vectors lie one further
 * for each row. */
static void key_products(block *k, const rpi_source *s, const tile *t, const real **rows, real *scratch)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t D = s->width, g = k->h / (d->heads / d->kv_heads), step = s->transposed_step;
    const vf factor = vf_set1((real)rpi_vec_factor(d, &c->plan->terms[s->term]));
    const real *vectors = (const real *)s->transposed + (s->transposed_heads ? k->h : 0) * D * step;
    const real *keys = k->tile_keys;
    if (c->plan->rotate >= 0 || RPI_TILES || !keys) {
        pack_panels(&c->args->k, k->b, g, t->tile0, t->end, d->len_k, D, NULL, NULL, k->keys_scratch, NULL);
        keys = k->keys_scratch;
    }
    for (int64_t group = 0; group < k->groups; group++) {
        const real *from[MR];
        for (int r = 0; r < MR; r++) {
            rows[group * MR + r] = scratch + (group * MR + r) * STEP;
            from[r] = vectors + KB + rpi_clamp(vector_of(k, s, t, group * MR + r), -KB, s->count - 1);
        }
        for (int64_t j = t->from[group]; j < t->to[group]; j += VL) {
            const real *key = keys + j / NR * NR * D + j % NR;
            vf sum[MR];
            RPI_UNROLL
            for (int r = 0; r < MR; r++)
                sum[r] = vf_set1(0);
            for (int64_t x = 0; x < D; x++) {
                const vf y = vf_load(key + x * NR);
                RPI_UNROLL
                for (int r = 0; r < MR; r++)
                    sum[r] = vf_fma(y, vf_load(from[r] + x * step + j), sum[r]);
            }
            RPI_UNROLL
            for (int r = 0; r < MR; r++)
                vf_store(scratch + (group * MR + r) * STEP + j, sum[r] * factor);
        }
    }
}

/* A bias in the type of the arithmetic: a finite one stays finite, because only -infinity masks. */
static inline real bias_of(double x)
{
    return RPI_F64 ? (real)x : (real)rpi_to_float(x);
}

/* n biases, as bias_of has them. */
static void biases_to(real *to, const double *from, int64_t n)
{
    int64_t j = 0;
#if !RPI_F64
    typedef double eight __attribute__((vector_size(64)));
    typedef double loose __attribute__((vector_size(64), aligned(8), may_alias));
    typedef int64_t wide __attribute__((vector_size(64)));
    typedef float narrow __attribute__((vector_size(32)));
    typedef float narrow_loose __attribute__((vector_size(32), aligned(4), may_alias));
    const eight max = (eight){0} + (double)FLT_MAX;
    for (; j + 8 <= n; j += 8) {
        eight x = *(const loose *)(from + j);
        const wide high = (x > max) & (x < (double)INFINITY), low = (x < -max) & (x > -(double)INFINITY);
        x = (eight)((high & (wide)max) | (~high & (wide)x));
        x = (eight)((low & (wide)-max) | (~low & (wide)x));
        *(narrow_loose *)(to + j) = __builtin_convertvector(x, narrow);
    }
#endif
    for (; j < n; j++)
        to[j] = bias_of(from[j]);
}

/* One source of biases, as a pointer for each row. Values that are not in memory as rows go to scratch [QB][STEP]. */
static void source(block *k, const tile *t, int32_t n, const real **rows, real *scratch)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rpi_source *s = &c->source[n];
    const int64_t last = k->groups * MR - 1, keys = rpi_min(t->end, d->len_k - t->tile0);
    switch (s->kind) {
    case RPI_RUN:
        if (s->gather) {
            need_vectors(k, n, s, 0, s->count);
            break;
        }
        const int64_t R = s->count, max = s->part->zero_outside ? R : R - 1;
        need_vectors(k, n, s, rpi_clamp(vector_of(k, s, t, last), 0, R - 1),
                     rpi_clamp(vector_of(k, s, t, 0) + t->end, 1, R));
        for (int64_t r = 0; r <= last; r++)
            rows[r] =
                k->vec[n].at + r * k->vec[n].step + KB + rpi_clamp(vector_of(k, s, t, r), -KB, max) - k->vec[n].low;
        return;
    case RPI_STRIP: {
        const real *strip = (const real *)s->strip + k->b * s->strip_batch + k->h * s->strip_step;
        const int64_t low = s->strip_batch ? -rpi_position(c->args, k->b, d->len_q - 1) : s->strip_low;
        for (int64_t r = 0; r <= last; r++)
            rows[r] = strip + (delta_of(k, t, r) - low);
        return;
    }
    case RPI_COLUMN:
        for (int64_t r = 0; r <= last; r++)
            rows[r] = (const real *)s->column +
                      (k->kv * (d->heads / d->kv_heads) + k->h % (d->heads / d->kv_heads)) * c->pad_k + t->tile0;
        return;
    case RPI_KEYS: key_products(k, s, t, rows, scratch); return;
    default:
        if (!s->table)
            break;
        for (int64_t r = 0; r <= last; r++)
            rows[r] = (const real *)s->table + (k->h * d->len_q + row_of(k, r)) * c->pad_k + t->tile0;
        return;
    }
    /* filled row by row */
    const rpi_scheme *scheme = rpi_scheme_of(c->plan->terms[s->term].kind);
    const rpi_view *v = &c->args->term[s->term][0];
    const bool memory = scheme->in_place && v->dtype == (RPI_F64 ? RP_F64 : RP_F32) && v->stride[3] == 1;
    for (int64_t r = 0; r <= last; r++) {
        real *to = scratch + r * STEP;
        const real *row = memory ? (const real *)v->data + rpi_index(v, k->b, k->h, row_of(k, r), t->tile0) : NULL;
        rows[r] = memory && keys == t->end ? row : to;
        if (rows[r] == row) { /* the next tile's part of the row comes from memory while this one is computed */
            for (int64_t j = KB; t->tile0 + 2 * KB <= d->len_k && j < 2 * KB; j += 16)
                __builtin_prefetch(row + j, 0, 2);
            continue;
        }
        if (memory) { /* a whole panel of it may lie past its end */
            memcpy(to, row, reals(keys, 1));
            memset(to + keys, 0, reals(t->end - keys, 1));
            continue;
        }
        rpi_pair p = pair_of_row(k, s, r);
        if (s->kind == RPI_GATHER || s->kind == RPI_RUN) {
            const real *entry =
                s->kind == RPI_RUN ? k->vec[n].at + r * k->vec[n].step : (const real *)s->strip + k->h * s->strip_step;
            gather_index(k, s, t, r, keys);
            for (int64_t j = 0; j < keys && s->special; j++)
                if (k->index[j] < 0) { /* none is asked for below */
                    k->index[j] = 0;
                    k->keep_scratch[j] = 1;
                } else {
                    k->keep_scratch[j] = 0;
                }
            for (int64_t j = 0; j < t->end; j += VL)
                vf_store(to + j, vf_gather(entry, k->index + j));
            for (int64_t j = 0; j < keys && s->special; j++)
                if (k->keep_scratch[j]) {
                    rpi_pair_key(c->args, &p, t->tile0 + j);
                    to[j] = bias_of(rpi_definition(scheme, &p));
                }
        } else if (s->by_row) {
            scheme->row(&p, t->tile0, keys, k->row);
            biases_to(to, k->row, keys);
        } else {
            for (int64_t j = 0; j < keys; j++) {
                rpi_pair_key(c->args, &p, t->tile0 + j);
                to[j] = bias_of(rpi_definition(scheme, &p));
            }
        }
        for (int64_t j = keys; j < t->end; j++)
            to[j] = 0;
    }
}

/* total[r][…] = a[r][…] + b[r][…]. Two finite biases whose sum overflows (finfo.min twice) stay finite, and
 * -infinity masks whatever it is added to. */
static void add_rows(const real **total, const real *const *a, const real *const *b, real *to, int64_t rows,
                     int64_t end)
{
    const vf lowest = vf_set1(-REAL_MAX), highest = vf_set1(REAL_MAX), none = vf_set1(-INFINITY);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < end; j += VL) {
            const vf x = vf_load(a[r] + j), y = vf_load(b[r] + j), z = x + y;
            const vf larger = vf_max(x, y);
            vf kept = vf_below(highest, z, vf_below(highest, larger, larger, highest), z);
            kept = vf_below(z, lowest, lowest, kept);
            kept = vf_below(x, lowest, none, kept);
            vf_store(to + r * STEP + j, vf_below(y, lowest, none, kept));
        }
        total[r] = to + r * STEP;
    }
}

/* total[r][…] = a[r][…] + the products of source n that the indices of row r name. Products are numbers like others: none
 * of them masks. */
static void add_gathered(block *k, const tile *t, int32_t n, const real **total, const real *const *a, real *to)
{
    const rpi_source *s = &k->c->source[n];
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    need_vectors(k, n, s, 0, s->count);
    for (int64_t r = 0; r < k->groups * MR; r++) {
        const real *entry = k->vec[n].at + r * k->vec[n].step;
        if (s->unclamped) {
            gather_plain(k, s, t, r, entry, a[r], to + r * STEP);
        } else {
            gather_index(k, s, t, r, keys);
            for (int64_t j = 0; j < t->end; j += VL)
                vf_store(to + r * STEP + j, vf_load(a[r] + j) + vf_gather(entry, k->index + j));
        }
        total[r] = to + r * STEP;
    }
}

/* Gather the biases that start the sums (in) and those added after the softcap (out); NULL where there are none. */
static void biases_of(block *k, const tile *t, const real *const **in, const real *const **out)
{
    const rpi_call *c = k->c;
    const bool split = c->plan->desc.softcap > 0 && !c->plan->desc.cap_after;
    *in = *out = NULL;
    for (int32_t n = 0; n < c->n_sources; n++) {
        const bool outside = split && !c->source[n].inside;
        const real **rows = outside ? k->out : k->in;
        real *sum = outside ? k->sum_out : k->sum_in;
        const real *const **have = outside ? out : in;
        if (*have && c->source[n].kind == RPI_RUN && c->source[n].gather && !c->source[n].special) {
            add_gathered(k, t, n, rows, rows, sum);
        } else if (*have) {
            const real *more[QB];
            source(k, t, n, more, k->s); /* k->s is free until the scores are made */
            add_rows(rows, rows, more, sum, k->groups * MR, t->end);
        } else {
            source(k, t, n, rows, sum);
            *have = rows;
        }
    }
}
