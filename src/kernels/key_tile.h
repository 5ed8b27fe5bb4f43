/* kernels/key_tile.h -- a tile of keys for a block of queries: which columns to compute, and the masks as intervals and
 * as bytes. Names no mask: find_intervals calls rpi_interval, and open_tile calls rpi_mask_keep (problem/positions.c),
 * which calls the function of each mask (masks/pairs.h).
 * Parameters: MR, NR, COLUMN_STEP, BLOCK_ROWS, TILE_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "query_block.h" /* lets an editor parse this file on its own */
#endif

/* Find the interval of keys that each row may attend to, from the masks that are intervals. It is empty for padding
 * rows of the last group. */
static void find_intervals(block *k)
{
    const rpi_call *c = k->c;
    const int64_t first = rpi_position(c->args, k->b, 0) + k->row0, rows = k->rows, len_k = c->args->desc.len_k;
    int64_t *position = k->position, *lo = k->lo, *hi = k->hi;
    for (int64_t r = 0; r < k->groups * MR; r++) {
        position[r] = first + rpi_min(r, rows - 1);
        lo[r] = 0;
        hi[r] = r < rows ? len_k : 0;
    }
    for (int64_t r = 0; r < rows && c->plan->intervals; r++)
        rpi_interval(c->args, k->b, k->row0 + r, &lo[r], &hi[r]);
}

/* A tile of keys that some row may attend to. Column j is key tile0 + j, and tile0 is a multiple of TILE_KEYS. */
typedef struct tile {
    int64_t tile0, end;       /* number of columns: TILE_KEYS, or the remaining keys rounded up to COLUMN_STEP */
    int64_t from[16], to[16]; /* columns [from, to) of each group, in whole panels up to `end`; none if from == to */
    bool edge;                /* some pair may be masked: by the interval of its row, by `keep` if `pairs` is set, or
                                 because its column is past the last key */
    bool past;                /* edge is set only because of the columns past the last key */
    bool pairs;               /* k->keep says which pairs are masked */
    /* a bias of -infinity must clear `keep`, because a large element could turn its score into NaN */
    bool check_biases;
    bool large_v;           /* some value of the tile is not finite */
    const uint8_t *large_k; /* [panel] 1: some key of the panel is non-finite or large */
} tile;
_Static_assert(BLOCK_ROWS / MR <= 16, "a tile has room for its groups");

/* Open the tile of at most `width` keys that starts at key tile0. Return false if no row may attend to any of them.
 * large_k has a byte for each panel of the tile, large_v a byte for each key. */
static bool open_tile(block *k, tile *t, int64_t tile0, int64_t width, const uint8_t *large_k, const uint8_t *large_v)
{
    const rpi_call *c = k->c;
    const rp_plan *plan = c->plan;
    const rp_desc *d = &c->args->desc;
    const int64_t last = rpi_min(tile0 + width, d->len_k);
    const int64_t keys = last - tile0;
    bool any = false, masked = plan->mask_keep;
    t->tile0 = tile0;
    t->end = rpi_round_up(keys, COLUMN_STEP);
    t->large_k = large_k;
    for (int64_t g = 0; g < k->groups && !plan->intervals; g++) {
        t->from[g] = 0;
        t->to[g] = t->end;
        any = keys > 0;
    }
    for (int64_t g = 0; g < k->groups && plan->intervals; g++) {
        int64_t lo = INT64_MAX, hi = 0;
        for (int64_t r = g * MR; r < rpi_min((g + 1) * MR, k->rows); r++) {
            const int64_t from = rpi_max(k->lo[r], tile0), to = rpi_min(k->hi[r], last);
            if (from < to) {
                lo = rpi_min(lo, from);
                hi = rpi_max(hi, to);
            }
            masked |= from > tile0 || to < last;
        }
        t->from[g] = lo < hi ? (lo - tile0) / NR * NR : 0;
        t->to[g] = lo < hi ? rpi_min(rpi_round_up(hi - tile0, NR), t->end) : 0;
        any |= lo < hi;
    }
    if (!any)
        return false;
    /* Next to a non-finite or large element, a bias of -infinity can give NaN instead of masking, so check each
     * pair. */
    t->large_v = memchr(large_v, 1, (size_t)keys) != NULL;
    t->check_biases = k->large_q || t->large_v || memchr(large_k, 1, (size_t)((t->end + NR - 1) / NR)) ||
                      (c->value_vectors && c->value_vectors->values.nonfinite);
    t->pairs = plan->mask_keep || t->check_biases;
    masked |= t->check_biases;
    t->edge = masked || keys < t->end;
    t->past = t->edge && !masked;
    if (!t->pairs)
        return true;
    for (int64_t r = 0; r < k->groups * MR; r++) {
        uint8_t *keep = k->keep + r * TILE_KEYS;
        const int64_t from = rpi_clamp(k->lo[r] - tile0, 0, keys), to = rpi_clamp(k->hi[r] - tile0, from, keys);
        memset(keep, 0, (size_t)t->end);
        memset(keep + from, 1, (size_t)(to - from));
        if (!plan->mask_keep || from == to)
            continue;
        if (r > 0 && !plan->mask_keep_rows && k->lo[r] == k->lo[r - 1] && k->hi[r] == k->hi[r - 1]) {
            memcpy(keep, keep - TILE_KEYS, (size_t)t->end);
            continue;
        }
        rpi_mask_keep(c->args, k->b, k->h, row_of(k, r), tile0 + from, to - from, keep + from);
    }
    if (plan->mask_keep) { /* skip the tile if all its pairs are masked; there is no edge if none is */
        any = false;
        bool all = !t->check_biases && t->end == keys;
        for (int64_t r = 0; r < k->rows; r++) {
            any |= memchr(k->keep + r * TILE_KEYS, 1, (size_t)t->end) != NULL;
            all = all && memchr(k->keep + r * TILE_KEYS, 0, (size_t)t->end) == NULL;
        }
        t->edge = !all;
    }
    return any;
}
