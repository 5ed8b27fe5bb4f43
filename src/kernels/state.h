/* kernels/state.h -- the state of a row between calls over ranges of its keys (rp_tensors.state_in and state_out).
 * Independent of the backend.
 * Parameters: MR.
 *
 * A block keeps the running maximum, the sum of weights and the sum of weighted values of its rows between two tiles,
 * and nothing else. Ranges begin at tiles, so a block that starts from these numbers computes what it would have
 * computed without the cut.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "summary.h" /* lets an editor parse this file on its own */
#endif

/* The elements of a state: the running maximum, the sum of weights, Dv sums of weighted values, and the sums of weights
 * for each vector of VALUES (rpi_state_vectors), if a row keeps them. */
enum { STATE_MAX, STATE_SUM, STATE_OUT };

/* Return true if the call sums weighted values. */
static inline bool makes_out(const rpi_call *c)
{
    return c->args->out.data || c->args->state_out.data;
}

/* Return the state from which row r starts, or NULL if it starts without one. */
static inline const real *state_of(const block *k, int64_t r)
{
    const rpi_view *v = &k->c->args->state_in;
    return v->data && r < k->rows ? (const real *)v->data + rpi_index(v, k->b, k->h, k->row0 + r, 0) : NULL;
}

/* Initialize the sums of weighted values, and of weights for each vector, from the states of the rows or to zero. */
static void start_sums(block *k)
{
    const rpi_call *c = k->c;
    window *w = &k->vector_weights;
    const int64_t width = c->plan->desc.dim_v, vectors = w->at ? rpi_state_vectors(c->plan) : 0;
    memset(k->o, 0, reals(k->groups * MR, c->pad_v));
    if (w->at)
        memset(w->at, 0, reals(k->groups * MR, w->step));
    for (int64_t r = 0; r < k->rows && c->args->state_in.data; r++) {
        const real *from = state_of(k, r) + STATE_OUT;
        memcpy(k->o + r * c->pad_v, from, reals(width, 1));
        if (vectors)
            memcpy(w->at + r * w->step, from + width, reals(vectors, 1));
        w->high = vectors;
    }
}

/* Write the states of the block's rows. */
static void save_state(const block *k)
{
    const rpi_call *c = k->c;
    const rpi_view *v = &c->args->state_out;
    const window *w = &k->vector_weights;
    const int64_t width = c->plan->desc.dim_v, vectors = w->at ? rpi_state_vectors(c->plan) : 0;
    for (int64_t r = 0; r < k->rows; r++) {
        real *to = (real *)v->data + rpi_index(v, k->b, k->h, k->row0 + r, 0);
        to[STATE_MAX] = k->running_max[r];
        to[STATE_SUM] = k->sum[r];
        memcpy(to + STATE_OUT, k->o + r * c->pad_v, reals(width, 1));
        if (vectors)
            memcpy(to + STATE_OUT + width, w->at + r * w->step, reals(vectors, 1));
    }
}
