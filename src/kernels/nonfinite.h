/* kernels/nonfinite.h -- add non-finite values, which were packed as 0, to the rows that attend to them. Independent of
 * the backend.
 * Parameters: TILE_KEYS, ROW_STEP.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "value_vectors.h" /* lets an editor parse this file on its own */
#endif

/* Add the non-finite values of the tile, and the non-finite vectors of VALUES, to the rows that attend to them. */
static void add_nonfinite(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rpi_view *v = &c->args->v;
    const rpi_source *s = c->value_vectors;
    const uint8_t *nonfinite_vector =
        s && s->values.nonfinite ? s->values.nonfinite + k->h * s->values.nonfinite_step : NULL;
    const int64_t g = k->h / (d->heads / d->kv_heads), keys = rpi_min(t->end, d->len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t j = 0; j < keys; j++) {
            const real w = k->s[r * ROW_STEP + j];
            if (!k->keep[r * TILE_KEYS + j] ||
                (d->dropout > 0 && rpi_random(rpi_dropout_at(d->seed, k->b, k->h, row_of(k, r)), t->tile0 + j) <
                                       rpi_dropout_limit(d->dropout)))
                continue;
            if (c->large_v[k->kv * c->packed_k + t->tile0 - c->args->key_from + j])
                for (int64_t n = 0; n < d->dim_v; n++)
                    k->o[r * c->pad_v + n] += w * (real)rpi_value(rpi_row_of(v, k->b, g, t->tile0 + j), v->dtype, n);
            if (!nonfinite_vector)
                continue;
            rpi_pair p = pair_of_row(k, s, r);
            rpi_pair_key(c->args, &p, t->tile0 + j);
            const int64_t e = rpi_source_index(s, &p);
            for (int64_t n = 0; e >= 0 && nonfinite_vector[e] && n < d->dim_v; n++)
                k->o[r * c->pad_v + n] += w * (real)s->values.run.vectors.product->vec(&p, e, n);
        }
}
