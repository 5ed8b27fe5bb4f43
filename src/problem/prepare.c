/* problem/prepare.c -- data that a call computes once from its arrays: starts of segments, data of schemes with a
 * `prepare` function, and RoPE's frequencies (rope.c). Independent of sources, kernels and the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"

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
}

rp_status rpi_args_prepare(rpi_args *args)
{
    const rp_plan *plan = args->plan;
    const rp_desc *d = &args->desc;
    const rpi_view *segments = NULL;
    for (int32_t n = 0; n < d->n_masks; n++)
        if (plan->mask_entry[n]->info.holds == RP_HOLDS_LABELS && args->mask[n].data)
            segments = &args->mask[n];
    lay_out(args, segments);
    rp_status status = RP_OK;
    if (args->memory.used != 0 || args->memory.too_large)
        status = rpi_arena_alloc(&args->memory, false, "the call");
    if (status != RP_OK)
        return status;
    lay_out(args, segments);
    if (segments)
        find_segments(args, segments, args->segment_start);
    for (int32_t n = 0; n < d->n_terms; n++)
        if (args->prepared[n])
            plan->scheme[n]->prepare(d, &d->terms[n], args->term[n], args->prepared[n]);
    if (plan->rotate >= 0)
        status = rpi_rope_prepare(args, segments);
    if (status != RP_OK)
        rpi_args_free(args);
    return status;
}

void rpi_args_free(rpi_args *args)
{
    rpi_arena_free(&args->memory);
    rpi_arena_free(&args->frequencies);
}
