/* sources/vectors.c -- pack a term's vectors for products with queries, keys or weights. Independent of tiles; names no
 * scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <math.h>

/* Pack the vectors of head h as panels (transposed, like keys) and as columns of NR channels (like values). In the
 * columns of VALUES, a non-finite vector is 0. */
void rpi_vectors_task(void *context, int64_t h, int32_t worker)
{
    const rpi_fill_job *job = context;
    const rpi_source *s = job->s;
    const rp_plan *plan = job->args->plan;
    const rpi_vectors *v = rpi_vectors_of(s);
    const rpi_run *run = s->kind == RPI_RUN || s->kind == RPI_VALUES ? &s->run : NULL;
    uint8_t *nonfinite = s->kind == RPI_VALUES ? s->values.nonfinite : NULL;
    const int32_t nr = plan->ops->nr;
    const int64_t wide = rpi_round_up(v->width, plan->ops->vl);
    const rpi_pair p = rpi_pair_of(job->args, s->term, 0, h, 0);
    (void)worker;
    for (int64_t n = 0; n < v->padded; n++) {
        bool finite = true;
        for (int64_t x = 0; x < v->width; x++) {
            const double y = n < v->count ? v->product->vec(&p, n, x) : 0;
            finite = finite && isfinite(plan->ops->real == 8 ? y : (double)(float)y);
            if (run && run->panels)
                rpi_put_real(plan, run->panels, h * run->panels_step + n / nr * nr * v->width + x * nr + n % nr, y);
        }
        for (int64_t x = 0; v->columns && x < wide; x++) {
            const double y = n < v->count && x < v->width && (finite || !nonfinite) ? v->product->vec(&p, n, x) : 0;
            const int64_t column = x / nr * nr, step = rpi_min(nr, wide - column);
            rpi_put_real(plan, v->columns, h * v->columns_step + column * v->padded + n * step + x - column, y);
        }
        if (nonfinite)
            nonfinite[h * s->values.nonfinite_step + n] = !finite;
    }
}

/* Store the vectors of head h channel by channel. Repeat the first and the last vector in the padding. */
void rpi_channels_task(void *context, int64_t h, int32_t worker)
{
    const rpi_fill_job *job = context;
    const rpi_keys *k = &job->s->keys;
    const rp_plan *plan = job->args->plan;
    const rpi_pair p = rpi_pair_of(job->args, job->s->term, 0, h, 0);
    (void)worker;
    for (int64_t x = 0; x < k->vectors.width; x++)
        for (int64_t n = 0; n < k->step; n++)
            rpi_put_real(plan, k->channels, (h * k->vectors.width + x) * k->step + n,
                         k->vectors.product->vec(&p, rpi_clamp(n - plan->ops->tile_keys, 0, k->vectors.count - 1), x));
}
