/* kernels/key_tile.h -- a tile of keys as a block of queries sees it: columns to compute, masks as intervals and as
 * bytes. May not know masks by name: open_tile asks rpi_mask_keep (problem/pairs.c), which calls the function of each
 * mask (masks/pairs.h), and find_intervals asks rpi_interval.
 * Parameters: MR, NR, COLUMN_STEP, BLOCK_ROWS, TILE_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */

/* Find the keys that each row may see by the masks that are intervals. Rows that fill up the last group see none. */
static void find_intervals(block *k)
{
    const rpi_call *c = k->c;
    const int64_t first = rpi_position(c->args, k->b, 0);
    for (int64_t r = 0; r < k->groups * MR; r++) {
        k->position[r] = first + row_of(k, r);
        k->lo[r] = 0;
        k->hi[r] = r < k->rows ? c->args->desc.len_k : 0;
        if (r < k->rows && c->plan->intervals)
            rpi_interval(c->args, k->b, k->row0 + r, &k->lo[r], &k->hi[r]);
    }
}

/* A tile of keys that some row may attend to. Column j is key tile0 + j; tile0 is a multiple of TILE_KEYS. */
typedef struct tile {
    int64_t tile0,
        end; /* columns [0, end) exist: end = TILE_KEYS, or what is left of the keys, rounded up to COLUMN_STEP */
    int64_t from[16],
        to[16];        /* of each group: the columns that it computes, from whole panels, but for the columns from
                                 `end` on; from == to: none */
    bool edge;         /* some pair of the tile is masked: the rows' intervals say which, or keep does */
    bool past;         /* but these are the columns past the last key alone */
    bool pairs;        /* keep says which */
    bool check_biases; /* biases of -infinity clear keep, since some number of the tile could turn them into NaN */
    bool extreme_v;    /* some value of the tile is not finite */
    const uint8_t *extreme_k; /* of each panel: some key is extreme */
} tile;
_Static_assert(BLOCK_ROWS / MR <= 16, "a tile has room for its groups");

/* Open the tile of at most `width` keys from tile0 on; false: no row sees any of them. extreme_k has a byte for each
 * panel of the tile, extreme_v one for each key. */
static bool open_tile(block *k, tile *t, int64_t tile0, int64_t width, const uint8_t *extreme_k,
                      const uint8_t *extreme_v)
{
    const rpi_call *c = k->c;
    const rp_plan *plan = c->plan;
    const rp_desc *d = &c->args->desc;
    const int64_t last = rpi_min(tile0 + width, d->len_k);
    const int64_t keys = last - tile0;
    bool any = false, masked = plan->mask_keep;
    t->tile0 = tile0;
    t->end = rpi_round_up(keys, COLUMN_STEP);
    t->extreme_k = extreme_k;
    for (int64_t g = 0; g < k->groups; g++) {
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
    /* Numbers that are extreme can make NaN where a bias of -infinity should have masked: look at each pair. */
    t->extreme_v = memchr(extreme_v, 1, (size_t)keys) != NULL;
    t->check_biases = k->extreme_q || t->extreme_v || memchr(extreme_k, 1, (size_t)((t->end + NR - 1) / NR)) ||
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
    if (plan->mask_keep) { /* a tile without a pair is skipped, one without a hole is full */
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
