/* checks_tiles.h -- tiles of keys as a block of rows sees them: intervals, columns, biases by row, non-finite values.
 * SPDX-License-Identifier: Apache-2.0 */

/* Check the rows of a block against every tile. Rows attend to windows of keys; with `holes`, there is also a mask of
 * keys. */
CHECK(tiles_have_the_columns_that_rows_see)
{
    static const int64_t lefts[] = {-1, 0, 7, 200}, rights[] = {-1, 0, 30};
    for (int n = 0; n < COUNT(lefts) * COUNT(rights) * 4; n++) {
        const int64_t left = lefts[n % COUNT(lefts)], right = rights[n / COUNT(lefts) % COUNT(rights)];
        const bool holes = n / COUNT(lefts) / COUNT(rights) % 2, odd = n / COUNT(lefts) / COUNT(rights) / 2;
        const int64_t rows = n % 5 ? BLOCK_ROWS : MR + 1, row0 = n % 3 * BLOCK_ROWS, offset = n % 2 * 100;
        const int64_t len_k = 2 * TILE_KEYS - 3 * (n % 4);
        rp_mask masks[2] = {rp_mask_init(RP_MASK_WINDOW), rp_mask_init(RP_MASK_KEYS)};
        rp_desc desc = rp_desc_init(1, 1, row0 + rows, len_k, 4);
        rp_plan *plan;
        small_block *b = block_of();
        block *k = &b->k;
        uint8_t *kept = kernel_memory((size_t)len_k), *large_k = kernel_memory(TILE_KEYS / NR),
                *large_v = kernel_memory(TILE_KEYS);
        masks[0].left = left;
        masks[0].right = right;
        desc.masks = masks;
        desc.n_masks = 1 + holes;
        desc.q_offset = offset;
        kernel_true(rp_plan_create(&plan, &desc) == RP_OK, "rp_plan_create", n, 0);
        for (int64_t j = 0; j < len_k; j++)
            kept[j] = j % 11 != 4;
        memset(large_k, 0, TILE_KEYS / NR);
        memset(large_v, 0, TILE_KEYS);
        large_v[5] = odd;
        b->args.plan = plan;
        b->args.desc = plan->desc;
        b->args.mask[1] = (rpi_view){.dtype = RP_U8, .data = kept, .stride = {0, 1, 0, 0}, .len = {1, len_k, 1, 1}};
        b->call.plan = plan;
        k->row0 = row0;
        k->rows = rows;
        k->groups = (rows + MR - 1) / MR;
        k->position = kernel_memory(BLOCK_ROWS * sizeof *k->position);
        find_intervals(k);
        for (int64_t tile0 = 0; tile0 < len_k; tile0 += TILE_KEYS) {
            const int64_t keys = rpi_min(TILE_KEYS, len_k - tile0),
                          end = (keys + COLUMN_STEP - 1) / COLUMN_STEP * COLUMN_STEP;
            bool any = false, all = true, inside = true;
            tile t = {0};
            const bool opened = open_tile(k, &t, tile0, TILE_KEYS, large_k, large_v);
            for (int64_t g = 0; g < k->groups; g++) {
                int64_t first = INT64_MAX, last = -1;
                for (int64_t r = g * MR; r < (g + 1) * MR; r++)
                    for (int64_t j = 0; j < end; j++) {
                        const int64_t delta = tile0 + j - (row0 + r + offset);
                        const bool within = r < rows && j < keys && (left < 0 || delta >= -left) &&
                                            (right < 0 || delta <= right),
                                   sees = within && !(holes && !kept[tile0 + j]);
                        kernel_true(r >= rows || within == (j < keys && tile0 + j >= k->lo[r] && tile0 + j < k->hi[r]),
                                    "find_intervals", r, tile0 + j);
                        kernel_true(!opened || !t.pairs || k->keep[r * TILE_KEYS + j] == sees, "open_tile's keep", r,
                                    tile0 + j);
                        any |= sees;
                        all &= sees || r >= rows;
                        inside &= sees || r >= rows || j >= keys;
                        first = within ? rpi_min(first, j) : first;
                        last = within ? rpi_max(last, j) : last;
                    }
                kernel_true(!opened || last < 0 ||
                                (t.from[g] == first / NR * NR && t.to[g] == rpi_min((last / NR + 1) * NR, end)),
                            "open_tile's columns", g, tile0);
                kernel_true(!opened || last >= 0 || t.from[g] == t.to[g], "open_tile's columns where no row sees any",
                            g, tile0);
            }
            kernel_true(opened == any, "open_tile", tile0, n);
            kernel_true(!opened || (t.tile0 == tile0 && t.end == end && t.edge == (!all || odd) &&
                                    t.past == (t.edge && inside && !odd && !holes) && t.pairs == (holes || odd) &&
                                    t.large_v == odd && t.check_biases == odd),
                        "open_tile's facts", tile0, n);
        }
        rp_plan_destroy(plan);
        kernel_borders();
    }
}

/* Check three strips and a table. Bit n of `form` says whether source n is added inside or outside the softcap. */
CHECK(biases_match_their_sources)
{
    static const rpi_scheme plain;
    for (int form = 0; form < 32; form++) {
        small_block *b = block_of();
        block *k = &b->k;
        rp_plan *plan = kernel_memory(sizeof *plan);
        rpi_source *s = kernel_memory(4 * sizeof *s);
        const int64_t tile0 = TILE_KEYS, end = 3 * NR, rows = BLOCK_ROWS - 2, low = -40, len = 2 * TILE_KEYS + 80,
                      pad_k = 2 * TILE_KEYS;
        const real *strip[3] = {random_numbers(2 * len, 91), random_numbers(len, 92), random_numbers(len, 96)},
                   *table = random_numbers(2 * rows * pad_k, 93), *const * in, *const * out;
        const bool apart = form & 16;
        memset(plan, 0, sizeof *plan);
        memset(s, 0, 4 * sizeof *s);
        for (int n = 0; n < 4; n++)
            s[n].inside = form >> n & 1;
        for (int n = 0; n < 3; n++) { /* the first strip differs by head */
            s[n].kind = RPI_STRIP;
            s[n].strip =
                (rpi_strip){.entry = (void *)(uintptr_t)strip[n], .len = len, .head_step = n ? 0 : len, .low = low};
        }
        s[3].kind = RPI_ROWS;
        s[3].scheme = &plain;
        s[3].rows.table = (void *)(uintptr_t)table;
        plan->desc.softcap = apart;
        b->args.desc = rp_desc_init(1, 2, rows, pad_k, 4);
        b->call.plan = plan;
        b->call.source = s;
        b->call.n_sources = 4;
        b->call.pad_k = b->call.packed_k = pad_k;
        k->h = 1;
        k->rows = rows;
        k->in = kernel_memory(BLOCK_ROWS * sizeof *k->in);
        k->out = kernel_memory(BLOCK_ROWS * sizeof *k->out);
        k->sum_in = numbers(BLOCK_ROWS * ROW_STEP);
        k->sum_out = numbers(BLOCK_ROWS * ROW_STEP);
        k->position = kernel_memory(BLOCK_ROWS * sizeof *k->position);
        for (int64_t r = 0; r < BLOCK_ROWS; r++)
            k->position[r] = rpi_min(r, rows - 1) + 30;
        b->t.tile0 = tile0;
        b->t.end = end;
        biases_of(k, &b->t, &in, &out);
        kernel_true((in != NULL) == (!apart || form % 16 != 0), "biases_of inside", form, 0);
        kernel_true((out != NULL) == (apart && form % 16 != 15), "biases_of outside", form, 0);
        for (int64_t r = 0; r < BLOCK_ROWS; r++)
            for (int64_t j = 0; j < end; j++) {
                const int64_t at = tile0 + j - k->position[r] - low, row = rpi_min(r, rows - 1);
                const double bias[4] = {(double)strip[0][len + at], (double)strip[1][at], (double)strip[2][at],
                                        (double)table[(rows + row) * pad_k + tile0 + j]};
                double sum[2] = {0}, size[2] = {0};
                for (int n = 0; n < 4; n++) {
                    const bool outside = apart && !(form >> n & 1);
                    sum[outside] += bias[n];
                    size[outside] += fabs(bias[n]);
                }
                if (in)
                    kernel_close((double)in[r][j], sum[0], 4 * EPS * size[0], "biases_of inside", r, j);
                if (out)
                    kernel_close((double)out[r][j], sum[1], 4 * EPS * size[1], "biases_of outside", r, j);
            }
        kernel_borders();
    }
}

/* Mark some values as non-finite or large, and set some to NaN. Check that each affects exactly the rows that attend to
 * it. */
CHECK(non_finite_values_reach_their_rows)
{
    for (int n = 0; n < COUNT(types); n++) {
        if (!is_read(types[n]))
            continue;
        enum { KEYS = 3 * NR - 2, WIDTH = 5 };
        const int64_t tile0 = TILE_KEYS, pad_v = rpi_round_up(WIDTH, VL), pad_k = 2 * TILE_KEYS;
        small_block *b = block_of();
        block *k = &b->k;
        const real *before = random_numbers(BLOCK_ROWS * pad_v, 94);
        rpi_view v = array_of(types[n], tile0 + KEYS, WIDTH, 1, 95);
        uint8_t *large = kernel_memory((size_t)(4 * pad_k));
        memset(large, 0, (size_t)(4 * pad_k));
        b->args.desc = rp_desc_init(2, 4, BLOCK_ROWS, tile0 + KEYS, 4);
        b->args.desc.kv_heads = 2;
        b->args.desc.dim_v = WIDTH;
        b->args.v = v;
        b->call.large_v = large;
        b->call.pad_k = b->call.packed_k = pad_k;
        b->call.pad_v = pad_v;
        b->t.tile0 = tile0;
        b->t.end = rpi_round_up(KEYS, COLUMN_STEP);
        k->b = 1;
        k->h = 3; /* reads head 1 of the values, which is packed third */
        k->kv = 2;
        k->o = numbers(BLOCK_ROWS * pad_v);
        memcpy(k->o, before, (size_t)(BLOCK_ROWS * pad_v) * sizeof *before);
        large[2 * pad_k + tile0 + 4] = large[2 * pad_k + tile0 + KEYS - 1] = 1;
        rpi_put(v.data, types[n], rpi_index(&v, 1, 1, tile0 + 4, 2), NAN);
        for (int64_t r = 0; r < BLOCK_ROWS; r++)
            k->keep[r * TILE_KEYS + 4] = r % 3 == 0;
        add_nonfinite(k, &b->t);
        for (int64_t r = 0; r < BLOCK_ROWS; r++)
            for (int64_t x = 0; x < pad_v; x++) {
                double want = (double)before[r * pad_v + x], size = fabs(want);
                for (int64_t j = 0; j < KEYS && x < WIDTH; j++)
                    if ((j == 4 && r % 3 == 0) || j == KEYS - 1) {
                        const double product = (double)k->s[r * ROW_STEP + j] * at_row(&v, 1, 1, tile0 + j, x);
                        want += product;
                        size += fabs(product);
                    }
                kernel_close((double)k->o[r * pad_v + x], want, 4 * EPS * size, "add_nonfinite", r, x);
            }
        kernel_borders();
    }
}
