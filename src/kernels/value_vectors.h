/* kernels/value_vectors.h -- sum the weights for each vector, for terms that add vectors to the values (VALUES). Names
 * no term.
 * Parameters: MR, SUM_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "scores.h" /* lets an editor parse this file on its own */
#endif

/* Return the sum of x[from … to). Column j is added in lane j % VL, so that zeros before `from` or after `to` would not
 * change a bit. */
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

/* Add columns [from, to) of x, a row of the tile, to the row's sums for each vector. Column j uses vector at + j,
 * clamped to [0, R - 1]. sums[0] is for vector `low`. */
static void collect_run(const real *x, int64_t from, int64_t to, int64_t at, int64_t R, bool zero_outside, real *sums,
                        int64_t low)
{
    /* columns before `inside` use vector 0 (or none), columns from `outside` on use the last vector (or none) */
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

/* Add columns [from, to) of a row x to `sums`. Column j uses vector k->index[j]. */
static void collect_gather(const block *k, const real *x, int64_t from, int64_t to, real *sums)
{
    for (int64_t j = from; j < to; j++)
        if (k->index[j] >= 0)
            sums[k->index[j]] += x[j];
}

/* Multiply the summed weights by their vectors, add the products to out, and reset the sums to zero. */
static void flush_vector_weights(block *k)
{
    const rpi_call *c = k->c;
    window *w = &k->vector_weights;
    const rpi_vectors *v = &c->value_vectors->values.run.vectors;
    const real *packed = (const real *)v->columns + k->h * v->columns_step;
    for (int64_t g = 0; g < k->groups && w->low < w->high; g++)
        add_values(w->at + g * MR * w->step, w->step, 0, w->high - w->low, packed, w->low, v->padded,
                   k->o + g * MR * c->pad_v, c->pad_v, ones, -1);
    memset(w->at, 0, reals(k->groups * MR, w->step));
    w->low = w->high = 0;
}

/* Multiply the sums of each row by alpha, because its running maximum rose. */
static void rescale_vector_weights(block *k, const real *alpha)
{
    const window *w = &k->vector_weights;
    for (int64_t r = 0; r < k->rows && w->low < w->high; r++)
        for (int64_t n = 0; alpha[r] != 1 && n < w->step; n += VL)
            vf_store(w->at + r * w->step + n, vf_load(w->at + r * w->step + n) * vf_set1(alpha[r]));
}

/* Sum the weights of the tile for each vector. If all vectors fit into the window, keep the sums until the end of the
 * row. Otherwise add each tile's sums to out. Such a window begins at a multiple of SUM_KEYS, so that the order of
 * additions depends only on the row. */
static void add_vector_weights(block *k, const tile *t)
{
    const rpi_run *run = &k->c->value_vectors->values.run;
    const rpi_vectors *v = &run->vectors;
    window *w = &k->vector_weights;
    const int64_t R = v->count, last = k->groups * MR - 1;
    if (run->gather || R <= w->step) {
        w->low = 0;
        w->high = R;
    } else {
        w->low = rpi_clamp(vector_of(k, v, t, last), 0, R - 1) / SUM_KEYS * SUM_KEYS;
        w->high = rpi_clamp(vector_of(k, v, t, 0) + t->end, 1, R);
    }
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t from = t->from[r / MR], to = t->to[r / MR];
        const real *x = k->s + r * ROW_STEP;
        if (run->gather) {
            find_index(k, &run->index, t, r, rpi_min(t->end, k->c->args->desc.len_k - t->tile0));
            collect_gather(k, x, from, to, w->at + r * w->step);
        } else {
            collect_run(x, from, to, vector_of(k, v, t, r), R, v->product->zero_outside, w->at + r * w->step, w->low);
        }
    }
    if (!run->gather && R > w->step)
        flush_vector_weights(k);
}
