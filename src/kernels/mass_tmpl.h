/* mass_tmpl.h -- vectors added to values by offset, and numbers that are not finite.
 * Compiled once per instruction set. */

/* Sum of x[from … to), lane by lane from column 0, so that zeros before and after change no bit. */
static real range_sum(const real *x, int64_t from, int64_t to)
{
    vf sum = vf_set1(0);
    for (int64_t j = from / VL * VL; j < to; j += VL) {
        if (j >= from && j + VL <= to) {
            sum = sum + vf_load(x + j);
        } else {
            real lane[VL];
            for (int n = 0; n < VL; n++)
                lane[n] = j + n >= from && j + n < to ? x[j + n] : 0;
            sum = sum + vf_load(lane);
        }
    }
    return vf_sum(sum);
}

/* Add the row's values x of the tile, columns [from, to), to the sums by vector of row r: a run of vectors from `at` on,
 * clamped to [0, R), or the vectors in k->index. */
static void collect_run(const real *x, int64_t from, int64_t to, int64_t at, int64_t R, bool zero_outside, real *sums,
                        int64_t low)
{
    /* columns before `inside` belong to vector 0 (or to none), those from `outside` on to the last */
    const int64_t inside = rpi_clamp(-at, from, to), outside = rpi_clamp(R - at, inside, to);
    if (from == to)
        return;
    if (from < inside && !zero_outside)
        sums[-low] += range_sum(x, from, inside);
    for (int64_t j = inside; j < outside;) {
        real *to_here = sums + at - low + j;
        if (j + VL <= outside) {
            vf_store(to_here, vf_load(to_here) + vf_load(x + j));
            j += VL;
        } else {
            *to_here += x[j];
            j++;
        }
    }
    if (outside < to && !zero_outside)
        sums[R - 1 - low] += range_sum(x, outside, to);
}

static void collect_gather(const block *k, const real *x, int64_t from, int64_t to, real *sums)
{
    for (int64_t j = from; j < to; j++)
        if (k->index[j] >= 0)
            sums[k->index[j]] += x[j];
}

/* Add mass * vectors to out and start again at zero. */
static void flush_mass(block *k)
{
    const rpi_call *c = k->c;
    window *w = &k->mass;
    const real *packed = (const real *)c->valvec.rows + k->h * c->valvec.rows_step;
    for (int64_t g = 0; g < k->groups && w->low < w->high; g++)
        add_values(w->at + g * MR * w->step, w->step, 0, w->high - w->low, packed, w->low, c->valvec.pad_count,
                   k->o + g * MR * c->pad_v, c->pad_v, ones, -1);
    memset(w->at, 0, reals(k->groups * MR, w->step));
    w->low = w->high = 0;
}

/* Collect the weights of the tile by vector of VALVEC: to the end of the row where all vectors fit the window, else tile
 * by tile, from a multiple of VB on, so that the order of a row's sums depends on the row alone. */
static void add_mass(block *k, const tile *t)
{
    const rpi_source *s = &k->c->valvec;
    window *w = &k->mass;
    const int64_t R = s->count, last = k->groups * MR - 1;
    if (s->gather || R <= w->step) {
        w->low = 0;
        w->high = R;
    } else {
        w->low = rpi_clamp(vector_of(k, s, t, last), 0, R - 1) / VB * VB;
        w->high = rpi_clamp(vector_of(k, s, t, 0) + t->end, 1, R);
    }
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t from = t->from[r / MR], to = t->to[r / MR];
        const real *x = k->s + r * STEP;
        if (s->gather) {
            gather_index(k, s, t, r, rpi_min(t->end, k->c->args->desc.len_k - t->tile0));
            collect_gather(k, x, from, to, w->at + r * w->step);
        } else {
            collect_run(x, from, to, vector_of(k, s, t, r), R, s->part->zero_outside, w->at + r * w->step, w->low);
        }
    }
    if (!s->gather && R > w->step)
        flush_mass(k);
}

/* Values, and vectors of VALVEC, that are not finite were packed as 0: add them to the rows that attend to them. */
static void add_extreme(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rpi_view *v = &c->args->v;
    const rpi_source *s = &c->valvec;
    const uint8_t *extreme_vec = s->part && s->extreme ? s->extreme + k->h * s->extreme_step : NULL;
    const int64_t g = k->h / (d->heads / d->kv_heads), keys = rpi_min(t->end, d->len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t j = 0; j < keys; j++) {
            const real w = k->s[r * STEP + j];
            if (!k->keep[r * KB + j] || (d->dropout > 0 && rpi_random(rpi_dropout_at(d->seed, k->b, k->h, row_of(k, r)),
                                                                      t->tile0 + j) < rpi_dropout_limit(d->dropout)))
                continue;
            if (c->extreme_v[k->kv * c->pad_k + t->tile0 + j])
                for (int64_t n = 0; n < d->dim_v; n++)
                    k->o[r * c->pad_v + n] += w * (real)rpi_value(rpi_row_of(v, k->b, g, t->tile0 + j), v->dtype, n);
            if (!extreme_vec)
                continue;
            rpi_pair p = pair_of_row(k, s, r);
            rpi_pair_key(c->args, &p, t->tile0 + j);
            const int64_t e = rpi_source_index(s, &p);
            for (int64_t n = 0; extreme_vec[e] && n < d->dim_v; n++)
                k->o[r * c->pad_v + n] += w * (real)s->part->vec(&p, e, n);
        }
}
