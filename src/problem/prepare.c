/* problem/prepare.c -- data that a call computes once from its arrays: starts of segments, RoPE frequencies, and data
 * of schemes with a `prepare` function. Independent of sources, kernels and the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"
#include <math.h>

/* Find the first token of each token's segment. */
static void find_segments(const rpi_args *args, const rpi_view *v, int64_t *start)
{
    const rp_desc *d = &args->desc;
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t i = 0; i < d->len_k; i++) {
            const int64_t own = rpi_integer(v->data, v->dtype, rpi_index(v, b, i, 0, 0));
            start[b * d->len_k + i] = i;
            if (i > 0 && rpi_integer(v->data, v->dtype, rpi_index(v, b, i - 1, 0, 0)) == own)
                start[b * d->len_k + i] = start[b * d->len_k + i - 1];
        }
}

/* Return 1 + the largest position by which RoPE rotates a query or key. */
static double longest(const rpi_args *args)
{
    const rp_desc *d = &args->desc;
    const rpi_view *array = args->term[args->plan->rotate];
    double max = 0;
    for (int64_t b = 0; b < d->batch; b++) {
        const rpi_view *q = array[0].data ? &array[0] : &array[1], *k = array[0].data ? &array[0] : &array[2];
        if (!q->data && d->len_q && !args->segment_start)
            max = fmax(max, (double)rpi_position(args, b, d->len_q - 1) + 1);
        if (!k->data && !args->segment_start)
            max = fmax(max, (double)d->len_k);
        for (int64_t i = 0; i < d->len_q && q->data; i++)
            max = fmax(max, rpi_at(q, b, i, 0, 0) + 1);
        for (int64_t j = 0; j < d->len_k && (k->data || args->segment_start); j++)
            max = fmax(max,
                       k->data ? rpi_at(k, b, j, 0, 0) + 1 : (double)(j - args->segment_start[b * d->len_k + j]) + 1);
    }
    return max;
}

/* Lay out the memory of rpi_args_prepare. The first run adds up sizes; once the arena has memory, the second run sets
 * addresses. */
static void lay_out(rpi_args *args, const rpi_view *segments)
{
    const rp_plan *plan = args->plan;
    const rp_desc *d = &args->desc;
    rpi_arena *a = &args->memory;
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *s = plan->scheme[n];
        if (s->prepare && !args->prepared_only)
            args->prepared[n] = rpi_arena_take(a, s->prepare_size(d, &d->terms[n]), 1, sizeof(double));
    }
    if (segments)
        args->segment_start = rpi_arena_take(a, d->batch, d->len_k, sizeof(int64_t));
    if (plan->rotate >= 0) /* frequencies, short_factor, long_factor */
        args->frequency = rpi_arena_take(a, 3, d->terms[plan->rotate].dim / 2, sizeof(double));
}

rp_status rpi_args_prepare(rpi_args *args)
{
    const rp_plan *plan = args->plan;
    const rp_desc *d = &args->desc;
    const rpi_view *segments = NULL;
    for (int32_t n = 0; n < d->n_masks; n++)
        if (plan->mask_entry[n]->info.holds == RP_MASK_LABELS && args->mask[n].data)
            segments = &args->mask[n];
    lay_out(args, segments);
    if (args->memory.used == 0 && !args->memory.too_large)
        return RP_OK;
    rp_status status = rpi_arena_alloc(&args->memory, false, "the call");
    if (status != RP_OK)
        return status;
    lay_out(args, segments);
    if (segments)
        find_segments(args, segments, args->segment_start);
    for (int32_t n = 0; n < d->n_terms; n++)
        if (args->prepared[n])
            plan->scheme[n]->prepare(d, &d->terms[n], args->term[n], args->prepared[n]);
    if (plan->rotate >= 0) {
        const rpi_view *array = args->term[plan->rotate];
        const int64_t pairs = d->terms[plan->rotate].dim / 2;
        double *factor[2] = {NULL, NULL};
        for (int x = 0; x < 2; x++) {
            if (!array[3 + x].data)
                continue;
            factor[x] = args->frequency + (x + 1) * pairs;
            for (int64_t c = 0; c < pairs; c++)
                factor[x][c] = rpi_at(&array[3 + x], c, 0, 0, 0);
        }
        status = rp_rope_frequencies(&d->terms[plan->rotate], longest(args), factor[0], factor[1], args->frequency,
                                     &args->rope_factor);
        if (status != RP_OK)
            rpi_args_free(args);
    }
    return status;
}

void rpi_args_free(rpi_args *args)
{
    rpi_arena_free(&args->memory);
}
