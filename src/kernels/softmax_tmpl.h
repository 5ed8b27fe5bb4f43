/* softmax_tmpl.h -- from sums of products to weights: softcap, masks, running softmax.
 * Compiled once per instruction set. */

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
    for (int64_t j = from; j < to; j += VL) {
        for (int n = 0; n < VL && t->look; n++)
            keep[j + n] &= (!in || in[r][j + n] != -INFINITY) && (!out || out[r][j + n] != -INFINITY);
        vf_store(s + j, vf_keep(vf_load(s + j), keep + j));
    }
}

/* exp of one number by the kernel's own vectors. */
static inline real exp_of(real x)
{
    real lane[VL];
    vf_store(lane, vf_exp(vf_set1(x)));
    return lane[0];
}

/* The largest of columns [from, to) of a row; NaN may be passed over. */
static inline real row_top(const real *s, int64_t from, int64_t to)
{
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
    return vf_top(most[0]);
}

/* Turn the scores of row r into weights relative to the running maximum; the return value rescales what came before. */
static real softmax_row(block *k, int64_t r, int64_t from, int64_t to)
{
    real *s = k->s + r * STEP;
    vf sum[NV];
    RPI_UNROLL
    for (int n = 0; n < NV; n++)
        sum[n] = vf_set1(0);
    const real before = k->top[r], here = row_top(s, from, to), top = here > before ? here : before;
    const real alpha = top == before ? 1 : exp_of(before - top);
    const vf base = vf_set1(top == -INFINITY ? 0 : top);
    for (int64_t j = from; j < to; j += NR) {
        RPI_UNROLL
        for (int n = 0; n < NV; n++) {
            const vf w = vf_exp(vf_load(s + j + n * VL) - base);
            vf_store(s + j + n * VL, w);
            sum[n] = sum[n] + w;
        }
    }
    for (int n = 1; n < NV; n++)
        sum[0] = sum[0] + sum[n];
    k->top[r] = top;
    k->sum[r] = k->sum[r] * alpha + vf_sum(sum[0]);
    return alpha;
}
