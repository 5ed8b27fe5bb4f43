/* kernels/scores.h -- the scores of a tile: biases plus products, then softcaps and masks. open_tile (key_tile.h)
 * evaluates the masks; this file applies them. Independent of the backend.
 * Parameters: VL, MR, TILE_KEYS, ROW_STEP.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "fma/fma_forward.h" /* lets an editor parse this file on its own */
#endif

/* In columns [from, to) of a row, set those outside [lo, hi) to -infinity. */
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

/* Apply a softcap to columns [from, to) of a row, and then add the biases `added`. The scores already contain the
 * biases `masks`. Either may be NULL. If a pair has a bias of -infinity in either, its score becomes -infinity. Store
 * the tanh in `kept`, unless it is NULL. */
static void cap_row(real *s, real *kept, double c, const real *added, const real *masks, int64_t from, int64_t to)
{
    const vf cap = vf_set1((real)c), inverse = vf_set1((real)(1.0 / c)), lowest = vf_set1(-REAL_MAX);
    for (int64_t j = from; j < to; j += VL) {
        const vf bent = vf_tanh(vf_load(s + j) * inverse);
        vf x = bent * cap;
        if (kept)
            vf_store(kept + j, bent);
        if (added) {
            const vf y = vf_load(added + j);
            x = vf_below(y, lowest, y, x + y);
        }
        if (masks) {
            const vf y = vf_load(masks + j);
            x = vf_below(y, lowest, y, x);
        }
        vf_store(s + j, x);
    }
}

/* Store x / c for the arguments x of a softcap in columns [from, to) of a row. Beyond CAPPED, where the slope is 0,
 * store this limit, so that no product is infinite. */
static void keep_ratios(const real *s, real *kept, double c, int64_t from, int64_t to)
{
    enum { CAPPED = 32 };
    const vf inverse = vf_set1((real)(1.0 / c)), high = vf_set1(CAPPED), low = vf_set1(-CAPPED);
    for (int64_t j = from; j < to; j += VL) {
        vf u = vf_load(s + j) * inverse;
        u = vf_below(high, u, high, u);
        vf_store(kept + j, vf_below(u, low, low, u));
    }
}

/* Return the derivative of a softcap by c, t - u (1 - t^2) with t = tanh(x / c) and u = x / c. For small t the
 * difference cancels: sum the series t^3 2/3 + t^5 2/15 + ... + t^(2n+1) 2/(4n^2-1) + ... */
static inline vf cap_by_limit(vf t, vf u)
{
    enum { SUMMANDS = RPI_F64 ? 13 : 6 };
    const vf z = t * t;
    vf p = vf_set1((real)(2.0 / (4 * SUMMANDS * SUMMANDS - 1)));
    for (int n = SUMMANDS - 1; n > 0; n--)
        p = vf_fma(p, z, vf_set1((real)(2.0 / (4 * n * n - 1))));
    return vf_below(vf_abs(t), vf_set1((real)0.25), p * z * t, t - u * (vf_set1(1) - z));
}

/* Apply the softcaps, the remaining biases and the masks to columns [from, to) of row r. */
static void finish_scores(block *k, const tile *t, const real *const *in, const real *const *out, int64_t r,
                          int64_t from, int64_t to)
{
    const rp_desc *d = &k->c->args->desc;
    real *s = k->s + r * ROW_STEP;
    uint8_t *keep = k->keep + r * TILE_KEYS;
    if (d->softcap > 0 && k->ratio)
        keep_ratios(s, k->ratio + r * ROW_STEP, d->softcap, from, to);
    if (d->softcap > 0)
        cap_row(s, k->bent ? k->bent + r * ROW_STEP : NULL, d->softcap, out ? out[r] : NULL, NULL, from, to);
    if (d->softcap_after > 0) { /* without the other softcap, all biases are in `in` */
        const real *const *biases = d->softcap > 0 ? out : in;
        if (k->ratio_after)
            keep_ratios(s, k->ratio_after + r * ROW_STEP, d->softcap_after, from, to);
        cap_row(s, k->bent_after ? k->bent_after + r * ROW_STEP : NULL, d->softcap_after, NULL,
                biases ? biases[r] : NULL, from, to);
    }
    if (!t->edge)
        return;
    if (!t->pairs) {
        mask_outside(s, from, to, k->lo[r] - t->tile0, rpi_min(k->hi[r], d->len_k) - t->tile0);
        return;
    }
    for (int64_t j = from; j < to; j += VL) {
        for (int n = 0; n < VL && t->check_biases; n++)
            keep[j + n] &= (!in || in[r][j + n] != -INFINITY) && (!out || out[r][j + n] != -INFINITY);
        vf_store(s + j, vf_keep(vf_load(s + j), keep + j));
    }
}

/* Compute the tile's scores in k->s, with softcaps and masks applied, and each row's lane maxima in k->tile_max. If
 * keys is NULL, use the caller's unpacked keys, and return false if one is non-finite or large. */
static bool tile_scores(block *k, const tile *t, const void *keys)
{
    const rpi_call *c = k->c;
    const real *const *in, *const *out;
    k->tile_keys = keys;
    biases_of(k, t, &in, &out);
    /* the FMA backend's register tiles already mask the columns past the last key */
    const bool finish =
        !keys || (t->edge && !(t->past && !RPI_AMX)) || c->plan->desc.softcap > 0 || c->plan->desc.softcap_after > 0;
    for (int64_t r = 0; r < k->groups * MR; r++)
        vf_store(k->tile_max + r * VL, vf_set1(-INFINITY));
    if (keys)
        key_scores(k, t, keys, in, finish ? NULL : k->tile_max);
    else if (!unpacked_scores(k, t, in))
        return false;
    /* AMX also computes weights for the padding rows of the last group */
    for (int64_t r = 0; finish && r < (RPI_AMX && !is_single(k) ? k->groups * MR : k->rows); r++) {
        finish_scores(k, t, in, out, r, t->from[r / MR], t->to[r / MR]);
        find_row_max(k, r, t->from[r / MR], t->to[r / MR]);
    }
    return true;
}
