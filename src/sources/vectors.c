/* sources/vectors.c -- pack a term's vectors for products with queries, keys or weights. Independent of tiles; names no
 * scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <math.h>
#include <string.h>

/* Vectors are transposed in blocks of this many vectors and channels. */
enum { BLOCK_VECTORS = 16, BLOCK_CHANNELS = 64 };
typedef double vector_block[BLOCK_VECTORS][BLOCK_CHANNELS];

/* Load channels [x, x+m) of vectors [e, e+n). */
static void load_vectors(const rpi_pair *p, const rpi_vectors *vectors, int64_t e, int64_t n, int64_t x, int64_t m,
                         double to[][BLOCK_CHANNELS])
{
    const rpi_product *product = vectors->product;
    const rpi_view *v = &p->array[product->array];
    const bool contiguous = product->row && v->stride[2] == 1 && rpi_is_floating(v->dtype);
    e += vectors->skip;
    for (int64_t i = 0; i < n; i++)
        if (contiguous)
            rpi_load_f64(to[i],
                         (const char *)v->data +
                             rpi_index(v, p->h, product->row(p, e + i), x, 0) * rpi_floating_size(v->dtype),
                         v->dtype, m);
        else
            for (int64_t c = 0; c < m; c++)
                to[i][c] = product->vec(p, e + i, x + c);
}

/* Store a block transposed: channel c of vector i at to[at + c * step + i]. */
static void store_transposed(const rp_plan *plan, double from[][BLOCK_CHANNELS], int64_t n, int64_t m, void *to,
                             int64_t at, int64_t step)
{
    for (int64_t c = 0; c < m; c++)
        for (int64_t i = 0; i < n; i++)
            rpi_put_real(plan, to, at + c * step + i, from[i][c]);
}

/* Pack the vectors of the head of p as panels, transposed like keys. */
static void fill_panels(const rp_plan *plan, const rpi_pair *p, const rpi_vectors *v, void *to, int64_t at)
{
    const int32_t nr = plan->ops->nr;
    for (int64_t e = 0, n; e < v->padded; e += n) {
        n = rpi_min(BLOCK_VECTORS, nr - e % nr);
        for (int64_t x = 0; x < v->width; x += BLOCK_CHANNELS) {
            const int64_t m = rpi_min(BLOCK_CHANNELS, v->width - x);
            const int64_t there = rpi_clamp(v->count - e, 0, n);
            vector_block block;
            load_vectors(p, v, e, there, x, m, block);
            if (there < n) /* vectors from count to padded are 0 */
                memset(block[there], 0, (size_t)(n - there) * sizeof *block);
            store_transposed(plan, block, n, m, to, at + e / nr * nr * v->width + x * nr + e % nr, nr);
        }
    }
}

/* Pack the vectors of the head of p as columns of NR channels, like values. Unless `nonfinite` is NULL, a vector that
 * is not finite is packed as 0 and marked there. */
static void fill_columns(const rp_plan *plan, const rpi_pair *p, const rpi_vectors *v, uint8_t *nonfinite)
{
    const int32_t nr = plan->ops->nr;
    const int64_t wide = rpi_round_up(v->width, plan->ops->vl);
    for (int64_t n = 0; n < v->padded; n++) {
        bool finite = true;
        for (int64_t x = 0; nonfinite && x < v->width && n < v->count; x++) {
            const double y = v->product->vec(p, v->skip + n, x);
            finite = finite && isfinite(plan->ops->real == 8 ? y : (double)(float)y);
        }
        for (int64_t x = 0; x < wide; x++) {
            const double y = n < v->count && x < v->width && finite ? v->product->vec(p, v->skip + n, x) : 0;
            const int64_t column = x / nr * nr, step = rpi_min(nr, wide - column);
            rpi_put_real(plan, v->columns, p->h * v->columns_step + column * v->padded + n * step + x - column, y);
        }
        if (nonfinite)
            nonfinite[n] = !finite;
    }
}

/* Pack the vectors of head h as panels and as columns, where the source has them. */
void rpi_vectors_task(void *context, int64_t h, int32_t worker)
{
    const rpi_fill_job *job = context;
    const rpi_source *s = job->s;
    const rpi_vectors *v = rpi_vectors_of(s);
    const rpi_run *run = s->kind == RPI_RUN || s->kind == RPI_VALUES ? &s->run : NULL;
    const rpi_pair p = rpi_pair_of(job->args, s->term, 0, h, 0);
    (void)worker;
    if (run && run->panels)
        fill_panels(job->args->plan, &p, v, run->panels, h * run->panels_step);
    if (v->columns)
        fill_columns(job->args->plan, &p, v,
                     s->kind == RPI_VALUES ? s->values.nonfinite + h * s->values.nonfinite_step : NULL);
}

/* Store the vectors of head h channel by channel. Repeat the first and the last vector in the padding. */
void rpi_channels_task(void *context, int64_t h, int32_t worker)
{
    const rpi_fill_job *job = context;
    const rpi_keys *k = &job->s->keys;
    const rpi_vectors *v = &k->vectors;
    const rp_plan *plan = job->args->plan;
    const rpi_pair p = rpi_pair_of(job->args, job->s->term, 0, h, 0);
    const int64_t pad = plan->ops->tile_keys;
    (void)worker;
    for (int64_t x = 0; x < v->width; x += BLOCK_CHANNELS) {
        const int64_t m = rpi_min(BLOCK_CHANNELS, v->width - x), at = (h * v->width + x) * k->step;
        vector_block block, ends;
        for (int64_t e = 0; e < v->count; e += BLOCK_VECTORS) {
            const int64_t n = rpi_min(BLOCK_VECTORS, v->count - e);
            load_vectors(&p, v, e, n, x, m, block);
            store_transposed(plan, block, n, m, k->channels, at + pad + e, k->step);
        }
        load_vectors(&p, v, 0, 1, x, m, ends);
        load_vectors(&p, v, v->count - 1, 1, x, m, ends + 1);
        for (int64_t c = 0; c < m; c++) {
            for (int64_t n = 0; n < pad; n++)
                rpi_put_real(plan, k->channels, at + c * k->step + n, ends[0][c]);
            for (int64_t n = pad + v->count; n < k->step; n++)
                rpi_put_real(plan, k->channels, at + c * k->step + n, ends[1][c]);
        }
    }
}
