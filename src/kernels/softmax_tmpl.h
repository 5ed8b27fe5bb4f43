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
static void find_max(block *k, int64_t r, int64_t from, int64_t to)
{
    const real *s = k->s + r * STEP;
    vf max[NV];
    RPI_UNROLL
    for (int n = 0; n < NV; n++)
        max[n] = vf_set1(-INFINITY);
    for (int64_t j = from; j < to; j += NR) {
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            max[n] = vf_max(max[n], vf_load(s + j + n * VL));
    }
    for (int n = 1; n < NV; n++)
        max[0] = vf_max(max[0], max[n]);
    vf_store(k->max + r * VL, max[0]);
}

/* Raise the running maxima of VL rows from r0 on to the largest of the tile; alpha rescales what came before. */
static void raise_tops(block *k, int64_t r0, real *alpha)
{
    const vf before = vf_load(k->top + r0);
    vf max[VL];
    RPI_UNROLL
    for (int r = 0; r < VL; r++)
        max[r] = vf_load(k->max + (r0 + r) * VL);
    vf_transpose(max);
    RPI_UNROLL
    for (int half = VL / 2; half > 0; half /= 2)
        for (int c = 0; c < half; c++)
            max[c] = vf_max(max[c], max[c + half]);
    const vf top = vf_below(before, max[0], max[0], before), one = vf_set1(1);
    const vf factor = vf_below(before, top, vf_exp(before - top), one);
    vf_store(k->top + r0, top);
    vf_store(k->sum + r0, vf_load(k->sum + r0) * factor);
    vf_store(alpha + r0, factor);
}

/* Add the lanes of each of VL vectors, by a fixed tree, to the sums of rows r0 … */
static inline void add_sums(block *k, int64_t r0, vf *sums)
{
    vf_transpose(sums);
    RPI_UNROLL
    for (int half = VL / 2; half > 0; half /= 2)
        for (int c = 0; c < half; c++)
            sums[c] = sums[c] + sums[c + half];
    vf_store(k->sum + r0, vf_load(k->sum + r0) + sums[0]);
}

/* The number that is taken off the scores of row r. */
static inline vf base_of(const block *k, int64_t r)
{
    return vf_set1(k->top[r] == -INFINITY ? 0 : k->top[r]);
}

/* Columns [from, to) of row r times the factors of dropout: 0, or 1 / (1 - dropout). rpi_random, 16 keys at a time. */
static void drop(const block *k, const tile *t, int64_t r, int64_t from, int64_t to, real *row)
{
    typedef uint32_t sixteen __attribute__((vector_size(64)));
    const rp_desc *d = &k->c->args->desc;
    const rpi_dropout_row key = rpi_dropout_at(d->seed, k->b, k->h, row_of(k, r));
    const uint32_t limit = rpi_dropout_limit(d->dropout), high = (uint32_t)((uint64_t)t->tile0 >> 32);
    const real factor = (real)(1 / (1 - d->dropout));
    const sixteen steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int64_t j = from; j < to; j += 16) {
        /* a tile begins at a multiple of its width: its keys share the upper half of their number */
        sixteen x = ((steps + (uint32_t)(t->tile0 + j)) ^ high) + key.low;
        for (int round = 0; round < 2; round++) {
            x = (x ^ x >> 16) * RPI_MIX32_A;
            x = (x ^ x >> 15) * RPI_MIX32_B;
            x = (x ^ x >> 15) + key.high;
        }
        real_bits kept[16]; /* all bits, or none */
        const sixteen yes = (sixteen)(x >= limit);
        for (int n = 0; n < 16; n++)
            kept[n] = (real_bits)(int32_t)yes[n];
        for (int n = 0; n < 16; n += VL)
            vf_store(row + j + n, (vf)(vf_bits(kept + n) & (vi)(vf_load(row + j + n) * vf_set1(factor))));
    }
}
