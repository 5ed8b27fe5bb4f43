/* kernels/key_sums.h -- the sums of dk and dv of a task's keys: of each query head, from call to call over ranges of
 * rows (rp_grads.dkv_in and dkv_out), and of the kv head. Independent of the backend.
 * Parameters: VL.
 *
 * Each query head of a kv head has sums of its own, which are added up at the end, in the order of the heads. So a call
 * can continue the sums of every head over the next range of rows, and the order of additions does not depend on the
 * cuts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "fma/fma_backward.h" /* lets an editor parse this file on its own */
#endif

/* Return true if the call sums dk or dv. */
static inline bool makes_dk(const rpi_call *c)
{
    return c->grads->dk.data || c->grads->dkv_out.data || c->limits->rope_wanted[1];
}

static inline bool makes_dv(const rpi_call *c)
{
    return c->grads->dv.data || c->grads->dkv_out.data;
}

/* Copy the sums of the head from dkv_in (in) or to dkv_out: for each key dk, dk_plain, dv, and the sum of ds over the
 * rows, in double, if a COLUMN source needs it. */
static void copy_key_sums(backward_scratch *w, int64_t j0, int64_t keys, bool in)
{
    const rpi_call *c = w->k.c;
    const rpi_view *v = in ? &c->grads->dkv_in : &c->grads->dkv_out;
    const int64_t dim_k = c->args->desc.dim_k, dim_v = c->args->desc.dim_v;
    const struct {
        real *sums;
        int64_t width;
    } part[] = {{w->head.dk, dim_k}, {w->head.dk_plain, dim_k}, {w->head.dv, dim_v}};
    bool column = false;
    for (int32_t n = 0; n < c->n_sources; n++)
        column |= c->source[n].kind == RPI_COLUMN;
    for (int64_t j = 0; j < keys; j++) {
        real *state = (real *)v->data + rpi_index(v, w->k.b, w->k.h, j0 + j, 0);
        for (size_t n = 0; n < sizeof part / sizeof *part; n++) {
            if (!part[n].sums)
                continue;
            real *row = part[n].sums + j * rpi_round_up(part[n].width, VL);
            memcpy(in ? row : state, in ? state : row, reals(part[n].width, 1));
            state += part[n].width;
        }
        if (column)
            memcpy(in ? (void *)(w->column + j) : state, in ? state : (void *)(w->column + j), sizeof *w->column);
    }
}

/* Set the sums of the head to zero or to dkv_in. */
static void begin_key_sums(backward_scratch *w, int64_t j0, int64_t keys)
{
    const rpi_call *c = w->k.c;
    products_zero(w, rpi_round_up(keys, COLUMN_STEP));
    if (w->head.dk_plain)
        memset(w->head.dk_plain, 0, reals(key_sums_rows, rpi_round_up(c->args->desc.dim_k, VL)));
    if (c->grads->dkv_in.data) {
        copy_key_sums(w, j0, keys, true);
        products_resume(w, keys);
    }
}

/* Add n sums of the head to those of the kv head. */
static void add_head_sums(real *all, const real *head, int64_t n)
{
    for (int64_t x = 0; x < n; x += VL)
        vf_store(all + x, vf_load(all + x) + vf_load(head + x));
}

/* Write the sums of the head to dkv_out, or add them to the sums of the kv head. The first head's sums become those of
 * the kv head. */
static void end_key_sums(backward_scratch *w, int64_t j0, int64_t keys, bool first)
{
    const rpi_call *c = w->k.c;
    const rp_desc *d = &c->args->desc;
    const int64_t wide_k = rpi_round_up(d->dim_k, VL), wide_v = rpi_round_up(d->dim_v, VL);
    if (c->grads->dkv_out.data) {
        copy_key_sums(w, j0, keys, false);
    } else if (first) {
        const key_sums swap = w->all;
        w->all = w->head;
        w->head = swap;
    } else {
        add_head_sums(w->all.dk, w->head.dk, keys * wide_k);
        add_head_sums(w->all.dv, w->head.dv, keys * wide_v);
        if (w->all.dk_plain)
            add_head_sums(w->all.dk_plain, w->head.dk_plain, keys * wide_k);
    }
}
