/* sources/vectors.c -- the vectors of a term, packed for products with queries and keys, and for sums with weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill.h"
#include <math.h>

/* The vectors of head h as panels of NR, transposed, like keys; and as columns of NR channels, like values, those that
 * are not finite as 0. */
void rpi_vectors_task(void *context, int64_t h, int32_t worker)
{
    const rpi_fill_job *j = context;
    const rpi_source *s = j->s;
    const int32_t nr = j->plan->ops->nr, vl = j->plan->ops->vl;
    const int64_t wide = rpi_round_up(s->width, vl);
    rpi_pair p = rpi_pair_of(j->args, s->term, 0, h, 0);
    (void)worker;
    for (int64_t n = 0; n < s->pad_count; n++) {
        bool finite = true;
        for (int64_t x = 0; x < s->width; x++) {
            const double v = n < s->count ? s->part->vec(&p, n, x) : 0;
            finite = finite && isfinite(j->plan->ops->real == 8 ? v : (double)(float)v);
            if (s->panels)
                rpi_put_real(j->plan, s->panels, h * s->panels_step + n / nr * nr * s->width + x * nr + n % nr, v);
        }
        for (int64_t x = 0; s->rows && x < wide; x++) {
            const double v = n < s->count && x < s->width && (finite || !s->extreme) ? s->part->vec(&p, n, x) : 0;
            const int64_t column = x / nr * nr, step = rpi_min(nr, wide - column);
            rpi_put_real(j->plan, s->rows, h * s->rows_step + column * s->pad_count + n * step + x - column, v);
        }
        if (s->extreme)
            s->extreme[h * s->extreme_step + n] = !finite;
    }
}

/* The vectors of head h channel by channel, the first and the last repeated past the ends. */
void rpi_transposed_task(void *context, int64_t h, int32_t worker)
{
    const rpi_fill_job *j = context;
    const rpi_source *s = j->s;
    const rpi_pair p = rpi_pair_of(j->args, s->term, 0, h, 0);
    (void)worker;
    for (int64_t x = 0; x < s->width; x++)
        for (int64_t n = 0; n < s->transposed_step; n++)
            rpi_put_real(j->plan, s->transposed, (h * s->width + x) * s->transposed_step + n,
                         s->part->vec(&p, rpi_clamp(n - j->plan->ops->kb, 0, s->count - 1), x));
}
