/* softmax_tmpl.h -- from sums of products to weights: softcap, masks, running softmax.
 * Compiled once per instruction set. */

/* Columns [from, to) of row r of the tile: the softcap, the biases outside it, the masks. */
static void finish_scores(block *k, const tile *t, const float *const *in, const float *const *out, int64_t r,
                          int64_t from, int64_t to)
{
    const rp_desc *d = &k->c->plan->desc;
    float *s = k->s + r * STEP;
    uint8_t *keep = k->keep + r * KB;
    if (d->softcap > 0) {
        const vf cap = vf_set1((float)d->softcap), inverse = vf_set1((float)(1.0 / d->softcap));
        for (int64_t j = from; j < to; j += VL) {
            vf x = vf_tanh(vf_load(s + j) * inverse) * cap;
            if (in && d->cap_after) { /* a cap would lift a mask */
                const vf y = vf_load(in[r] + j);
                x = vf_below(y, vf_set1(-FLT_MAX), y, x);
            }
            if (out) { /* -infinity masks, whatever it is added to */
                const vf y = vf_load(out[r] + j);
                x = vf_below(y, vf_set1(-FLT_MAX), y, x + y);
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
static inline float exp_of(float x)
{
    float lane[VL];
    vf_store(lane, vf_exp(vf_set1(x)));
    return lane[0];
}

/* Turn the scores of row r into weights relative to the running maximum; the return value rescales what came before. */
static float softmax_row(block *k, int64_t r, int64_t from, int64_t to)
{
    float *s = k->s + r * STEP;
    vf most[NV], sum[NV];
    RPI_UNROLL
    for (int n = 0; n < NV; n++)
        most[n] = vf_set1(-INFINITY), sum[n] = vf_set1(0.0f);
    for (int64_t j = from; j < to; j += NR) {
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            most[n] = vf_max(most[n], vf_load(s + j + n * VL));
    }
    for (int n = 1; n < NV; n++)
        most[0] = vf_max(most[0], most[n]);
    const float before = k->top[r], here = vf_top(most[0]), top = here > before ? here : before;
    const float alpha = top == before ? 1.0f : exp_of(before - top);
    const vf base = vf_set1(top == -INFINITY ? 0.0f : top);
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
