/* softmax_tmpl.h -- from sums of products to weights: softcap, masks, running softmax.
 * Compiled once per instruction set. */

/* Columns [from, to) of a row outside [lo, hi) get -infinity. */
static void mask_outside(real *s, int64_t from, int64_t to, int64_t lo, int64_t hi)
{
    static const real steps[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vf lane = vf_load(steps), none = vf_set1(-INFINITY);
    lo = lo < hi ? rpi_clamp(lo, from, to) : to;
    hi = rpi_clamp(hi, from, to);
    for (int64_t j = from; j < lo; j += VL)
        vf_store(s + j, vf_below(lane, vf_set1((real)(lo - j)), none, vf_load(s + j)));
    for (int64_t j = hi / VL * VL; j < to; j += VL)
        vf_store(s + j, vf_below(lane, vf_set1((real)(hi - j)), vf_load(s + j), none));
}

/* Columns [from, to) of row r of the tile: the softcap, the biases outside it, the masks. */
static void finish_scores(block *k, const tile *t, const real *const *in, const real *const *out, int64_t r,
                          int64_t from, int64_t to)
{
    const rp_desc *d = &k->c->args->desc;
    real *s = k->s + r * STEP;
    uint8_t *keep = k->keep + r * KB;
    if (d->softcap > 0) {
        const vf cap = vf_set1((real)d->softcap), inverse = vf_set1((real)(1.0 / d->softcap));
        for (int64_t j = from; j < to; j += VL) {
            const vf bent = vf_tanh(vf_load(s + j) * inverse);
            vf x = bent * cap;
            if (k->slope)
                vf_store(k->slope + r * STEP + j, vf_set1(1) - bent * bent);
            if (in && d->cap_after) { /* a cap would lift a mask */
                const vf y = vf_load(in[r] + j);
                x = vf_below(y, vf_set1(-REAL_MAX), y, x);
            }
            if (out) { /* -infinity masks, whatever it is added to */
                const vf y = vf_load(out[r] + j);
                x = vf_below(y, vf_set1(-REAL_MAX), y, x + y);
            }
            vf_store(s + j, x);
        }
    }
    if (!t->edge)
        return;
    if (!t->pairs) {
        mask_outside(s, from, to, k->lo[r] - t->tile0, rpi_min(k->hi[r], d->len_k) - t->tile0);
        return;
    }
    for (int64_t j = from; j < to; j += VL) {
        for (int n = 0; n < VL && t->look; n++)
            keep[j + n] &= (!in || in[r][j + n] != -INFINITY) && (!out || out[r][j + n] != -INFINITY);
        vf_store(s + j, vf_keep(vf_load(s + j), keep + j));
    }
}

/* The largest of columns [from, to) of row r, in any lane; NaN may be passed over. */
static void find_most(block *k, int64_t r, int64_t from, int64_t to)
{
    const real *s = k->s + r * STEP;
    vf most[NV];
    RPI_UNROLL
    for (int n = 0; n < NV; n++)
        most[n] = vf_set1(-INFINITY);
    for (int64_t j = from; j < to; j += NR) {
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            most[n] = vf_max(most[n], vf_load(s + j + n * VL));
    }
    for (int n = 1; n < NV; n++)
        most[0] = vf_max(most[0], most[n]);
    vf_store(k->most + r * VL, most[0]);
}

/* Raise the running maxima of VL rows from r0 on to the largest of the tile; alpha rescales what came before. */
static void raise_tops(block *k, int64_t r0, real *alpha)
{
    const vf before = vf_load(k->top + r0);
    vf most[VL];
    RPI_UNROLL
    for (int r = 0; r < VL; r++)
        most[r] = vf_load(k->most + (r0 + r) * VL);
    vf_transpose(most);
    RPI_UNROLL
    for (int half = VL / 2; half > 0; half /= 2)
        for (int c = 0; c < half; c++)
            most[c] = vf_max(most[c], most[c + half]);
    const vf top = vf_below(before, most[0], most[0], before), one = vf_set1(1);
    const vf factor = vf_below(before, top, vf_exp(before - top), one);
    vf_store(k->top + r0, top);
    vf_store(k->sum + r0, vf_load(k->sum + r0) * factor);
    vf_store(alpha + r0, factor);
}

/* Turn the scores of VL rows from r0 on into weights relative to their maxima, and add these to the rows' sums. */
static void weigh_rows(block *k, const tile *t, int64_t r0)
{
    vf sums[VL];
    for (int64_t r = r0; r < r0 + VL; r++) {
        const bool there = r < k->groups * MR;
        const vf base = vf_set1(!there || k->top[r] == -INFINITY ? 0 : k->top[r]);
        real *s = k->s + r * STEP;
        vf sum[NV];
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            sum[n] = vf_set1(0);
        for (int64_t j = there ? t->from[r / MR] : 0; there && j < t->to[r / MR]; j += NR) {
            RPI_UNROLL
            for (int n = 0; n < NV; n++) {
                const vf w = vf_exp(vf_load(s + j + n * VL) - base);
                vf_store(s + j + n * VL, w);
                sum[n] = sum[n] + w;
            }
        }
        for (int n = 1; n < NV; n++)
            sum[0] = sum[0] + sum[n];
        sums[r - r0] = sum[0];
    }
    vf_transpose(sums);
    RPI_UNROLL
    for (int half = VL / 2; half > 0; half /= 2) /* a fixed tree */
        for (int c = 0; c < half; c++)
            sums[c] = sums[c] + sums[c + half];
    vf_store(k->sum + r0, vf_load(k->sum + r0) + sums[0]);
}
_Static_assert(QB % VL == 0, "rows are turned VL at a time");
