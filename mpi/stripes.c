/* stripes.c -- divides the keys among the processes for gradients.
 *
 * If all rows need all keys, each process computes with its own stretches. With a causal mask the first rows need only
 * the first keys, so the process of the middle keys would wait for the middle rows, and then all would wait for it.
 * Then each stretch is divided into stripes, which go to the processes in turn: 0 1 … P-1 P-1 … 1 0 0 1 …. The stripes
 * that are being computed at the same time are neighbours, so all processes have about the same number of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "wave.h"
#include <stdlib.h>

/* More stripes balance the work better, but every row passes each of them. On two processes 1, 2, 4 and 8 give 76, 89,
 * 96 and 98 % of the ideal gain (bench/scaling_model.py). */
enum { STRIPES_PER_STRETCH = 4 };

/* Return the tiles of the shortest stretch of the keys. */
static int64_t least_tiles(const rpi_wave *w)
{
    const int32_t ranks = w->m->exchange.ranks;
    int64_t least = INT64_MAX;
    for (int64_t n = 0; n < 2 * (int64_t)ranks; n++) {
        const int64_t tiles = (rpi_length(rpi_stretch(w->m->desc.len_k, ranks, n)) + RPI_TILE - 1) / RPI_TILE;
        least = tiles < least ? tiles : least;
    }
    return least;
}

int64_t rpi_stripes_per_stretch(const rpi_wave *w, bool uneven)
{
    const int64_t least = least_tiles(w);
    return w->m->exchange.ranks == 1 || !uneven || least < 2 ? 1
           : least < STRIPES_PER_STRETCH                     ? least
                                                             : STRIPES_PER_STRETCH;
}

bool rpi_make_stripes(rpi_wave *w, int64_t parts)
{
    const int32_t ranks = w->m->exchange.ranks;
    w->stripes = 2 * (int64_t)ranks * parts;
    w->stripe = calloc((size_t)w->stripes, sizeof *w->stripe);
    for (int64_t s = 0; s < w->stripes && w->stripe != NULL; s++) {
        const rpi_span all = rpi_stretch(w->m->desc.len_k, ranks, s / parts);
        const int64_t tiles = (rpi_length(all) + RPI_TILE - 1) / RPI_TILE, x = s % parts;
        w->stripe[s] = (rpi_stripe){.keys = {all.from + tiles * x / parts * RPI_TILE,
                                             x + 1 < parts ? all.from + tiles * (x + 1) / parts * RPI_TILE : all.to},
                                    .keeper = rpi_owner_of(ranks, s / parts),
                                    .worker = rpi_owner_of(ranks, s % (2 * (int64_t)ranks))};
    }
    return w->stripe != NULL;
}
