/* bias_tmpl.h -- the biases of a tile, as a pointer for each row.
 * Compiled once per instruction set. */

/* Products of the block's queries with the vectors of KEYVEC that the tile needs, in rows padded by KB on both sides with
 * the first and the last product, so that every row of a tile is a contiguous read, past the clip too. */
static void need_vectors(block *k, int64_t low, int64_t high)
{
    const rpi_call *c = k->c;
    const int64_t R = c->plan->rows_k, D = c->plan->desc.dim_k;
    const float *packed = c->vec_k + k->h * c->vec_k_step;
    if (low >= k->vec_low && high <= k->vec_high)
        return;
    const int64_t width = k->vec_step - 2 * KB;
    k->vec_low = R <= width ? 0 : low / NR * NR;
    k->vec_high = rpi_min(k->vec_low + width, rpi_round_up(R, NR));
    for (int64_t n = k->vec_low; n < k->vec_high; n += NR)
        for (int64_t g = 0; g < k->groups; g++)
            score_tile(k->plain_q + g * MR * D, packed + n * D, D, NULL, 0,
                       k->vec + g * MR * k->vec_step + KB + n - k->vec_low, k->vec_step);
    for (int64_t r = 0; r < k->groups * MR; r++) {
        float *row = k->vec + r * k->vec_step + KB;
        if (k->vec_low == 0)
            for (int64_t n = 1; n <= KB; n++)
                row[-n] = row[0];
        if (k->vec_high >= R)
            for (int64_t n = R - k->vec_low; n < R - k->vec_low + KB; n++)
                row[n] = row[R - 1 - k->vec_low];
    }
}

/* Offset of the first column of the tile for row r. */
static inline int64_t delta_of(const block *k, const tile *t, int64_t r)
{
    return t->tile0 - (row_of(k, r) + k->c->plan->desc.q_offset);
}

/* One source of biases, as a pointer for each row. n counts the sources of the plan: 0 the
 * products of KEYVEC, 1 the strip, then the terms of form TILE. Values that are not in memory as rows of f32 go to
 * scratch [QB][STEP]. */
static void source(block *k, const tile *t, int32_t n, const float **rows, float *scratch)
{
    const rpi_call *c = k->c;
    const rp_plan *plan = c->plan;
    const int64_t last = k->groups * MR - 1;
    if (n == 0) {
        const rp_term *term = &plan->terms[plan->keyvec];
        const int64_t R = plan->rows_k, first = delta_of(k, t, last) + term->left,
                      past = delta_of(k, t, 0) + term->left + t->end;
        need_vectors(k, rpi_clamp(first, 0, R - 1), rpi_clamp(past, 1, R));
        for (int64_t r = 0; r <= last; r++)
            rows[r] =
                k->vec + r * k->vec_step + KB + rpi_clamp(delta_of(k, t, r) + term->left, -KB, R - 1) - k->vec_low;
        return;
    }
    if (n == 1) {
        const float *strip = c->strips + k->h * c->strip_step;
        for (int64_t r = 0; r <= last; r++)
            rows[r] = strip + (delta_of(k, t, r) - c->strip_low);
        return;
    }
    for (int32_t m = 0; m < plan->desc.n_terms; m++) {
        const rpi_scheme *s = rpi_scheme_of(plan->terms[m].kind);
        if (s->form != RPI_TILE || n-- > 2)
            continue;
        const rpi_view *v = &c->args->term[m][0];
        const int64_t real = rpi_min(t->end, plan->desc.len_k - t->tile0);
        const bool in_place = s->in_place && v->dtype == RP_F32 && v->stride[3] == 1 && real == t->end;
        for (int64_t r = 0; r <= last; r++) {
            rpi_pair p = {.desc = &plan->desc, .term = &plan->terms[m], .array = c->args->term[m]};
            p.b = k->b, p.h = k->h, p.i = row_of(k, r);
            float *to = scratch + r * STEP;
            rows[r] = in_place ? (const float *)v->data + rpi_index(v, k->b, k->h, p.i, t->tile0) : to;
            /* the next tile's part of the row comes from memory while this one is computed */
            for (int64_t j = KB; in_place && t->tile0 + 2 * KB <= plan->desc.len_k && j < 2 * KB; j += 16)
                __builtin_prefetch(rows[r] + j, 0, 2);
            for (int64_t j = 0; !in_place && j < t->end; j++) {
                p.j = t->tile0 + j;
                p.delta = p.j - (p.i + plan->desc.q_offset);
                to[j] = j < real ? rpi_to_float(s->pair(&p)) : 0.0f;
            }
        }
        return;
    }
}

/* total[r][…] = a[r][…] + b[r][…]. Two finite biases whose sum overflows (finfo.min twice) stay finite, and
 * -infinity masks whatever it is added to. */
static void add_rows(const float **total, const float *const *a, const float *const *b, float *to, int64_t rows,
                     int64_t end)
{
    const vf lowest = vf_set1(-FLT_MAX), highest = vf_set1(FLT_MAX), none = vf_set1(-INFINITY);
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

/* Gather the biases that start the sums (in) and those added after the softcap (out); NULL where there are none. */
static void biases_of(block *k, const tile *t, const float *const **in, const float *const **out)
{
    const rp_plan *plan = k->c->plan;
    const bool split = plan->desc.softcap > 0 && !plan->desc.cap_after;
    *in = *out = NULL;
    for (int32_t n = plan->keyvec >= 0 ? 0 : 1; n < 2 + plan->n_tile; n++) {
        const bool outside = split && n > 0;
        const float **rows = outside ? k->out : k->in;
        float *sum = outside ? k->sum_out : k->sum_in;
        const float *const **have = outside ? out : in;
        if (n == 1 && plan->n_offset == 0)
            continue;
        if (*have) {
            const float *more[QB];
            source(k, t, n, more, k->s); /* k->s is free until the scores are made */
            add_rows(rows, rows, more, sum, k->groups * MR, t->end);
        } else {
            source(k, t, n, rows, sum);
            *have = rows;
        }
    }
}
