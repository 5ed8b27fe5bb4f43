/* checks_amx.h -- numbers as sums of bf16 components, and their products on AMX tiles.
 * SPDX-License-Identifier: Apache-2.0 */

/* Return the relative error of a product that leaves out the products of components i and j with i + j >= components.
 * Each component is at most 2^-8 of the previous one. */
static double omitted_error(int components)
{
    return components == 1 ? 0x1p-8 : components == 2 ? 0x1p-15 : 0x1p-23;
}

/* Return random numbers that are exactly the sum of this many components. */
static real *exact_numbers(int64_t n, uint64_t seed, int components)
{
    real *x = random_numbers(n, seed);
    for (int64_t c = 0; c < n && components < 3; c++) {
        const rp_dtype type = components == 1 ? RP_BF16 : RP_F16;
        uint16_t half;
        rpi_put(&half, type, 0, (double)x[c]);
        x[c] = (real)rpi_value(&half, type, 0);
    }
    return x;
}

/* Return the sum of the components of the first number (second = 0) or second number of a pair. Each component is a
 * vector of 16 pairs. */
static double component_sum(const vu *component, int components, int lane, int second)
{
    double sum = 0;
    for (int n = 0; n < components; n++) {
        uint32_t pairs[VL];
        float x;
        memcpy(pairs, &component[n], sizeof pairs);
        const uint32_t bits = second ? pairs[lane] & 0xffff0000u : pairs[lane] << 16;
        memcpy(&x, &bits, 4);
        sum += (double)x;
    }
    return sum;
}

CHECK(numbers_are_sums_of_bf16)
{
    for (int turn = 0; turn < 200; turn++)
        for (int components = 1; components <= 3; components++) {
            const real *x = random_numbers(2 * VL, (uint64_t)turn + 40);
            const double bound = components == 1 ? 0x1p-8 : components == 2 ? 0x1p-16 : 0;
            vu split[3], cut[3];
            vf as_vector[3], cut_vectors[3];
            switch (components) {
            case 1: bf16_pair(vf_load(x), vf_load(x + VL), 1, split), bf16_vector(vf_load(x), 1, as_vector); break;
            case 2:
                bf16_pair(vf_load(x), vf_load(x + VL), 2, split), bf16_vector(vf_load(x), 2, as_vector);
                bf16_pair_truncated(vf_load(x), vf_load(x + VL), 2, cut),
                    bf16_vector_truncated(vf_load(x), 2, cut_vectors);
                break;
            default:
                bf16_pair(vf_load(x), vf_load(x + VL), 3, split), bf16_vector(vf_load(x), 3, as_vector);
                bf16_pair_truncated(vf_load(x), vf_load(x + VL), 3, cut),
                    bf16_vector_truncated(vf_load(x), 3, cut_vectors);
            }
            for (int c = 0; c < 2 * VL; c++) {
                const double want = (double)x[c];
                kernel_close(component_sum(split, components, c % VL, c >= VL), want, bound * fabs(want), "bf16_pair",
                             components, c);
                if (components > 1)
                    kernel_close(component_sum(cut, components, c % VL, c >= VL), want, 2 * bound * fabs(want),
                                 "bf16_pair_truncated", components, c);
            }
            for (int n = 0; n < components; n++)
                for (int c = 0; c < VL; c++) {
                    const double one = component_sum(split + n, 1, c, 0),
                                 other = component_sum(cut + (components > 1 ? n : 0), 1, c, 0);
                    kernel_close((double)as_vector[n][c], one, 0, "bf16_vector", n, c);
                    if (components > 1)
                        kernel_close((double)cut_vectors[n][c], other, 0, "bf16_vector_truncated", n, c);
                }
        }
}

/* Return a bound on the relative rounding error of a sum on tiles: 18 roundings, and 2 for each chunk and each of the
 * components * (components + 1) / 2 products of components. */
static double tile_roundings(int64_t chunks, int components)
{
    return (double)(18 + 2 * chunks * components * (components + 1) / 2) * EPS;
}

/* Check out [mt * 16][nt * 16] = start + left right^T, for operands packed from rows and from an array. */
CHECK(tiles_multiply_packed_rows)
{
    static const int widths[] = {1, 16, 31, 32, 33, 64, 97};
    const int64_t n_rows = 2 * TILE_SIDE, columns = NR, step = columns + 4;
    for (int n = 0; n < COUNT(widths); n++)
        for (int components = 1; components <= 3; components++) {
            const rp_dtype type = components == 1 ? RP_BF16 : components == 2 ? RP_F16 : RP_F32;
            const int64_t width = widths[n], wide = rpi_round_up(width, CHUNK), chunks = wide / CHUNK,
                          there = columns - 3;
            rpi_view v = array_of(type, there, width, 1, (uint64_t)n + 51);
            const real *q = exact_numbers(n_rows * wide, 52, components), *start = random_numbers(n_rows * step, 53);
            uint32_t *left = kernel_memory((size_t)(n_rows * wide * components) * 2),
                     *right = kernel_memory((size_t)(columns * wide * components) * 2);
            real *scratch = numbers(TILE_SIDE * wide), *out = numbers(n_rows * step);
            uint8_t *large = kernel_memory(1);
            *large = 0;
            pack_rows(q, wide, n_rows, wide, components, left);
            amx_pack_panels(&v, 1, 1, 0, columns, there, width, NULL, NULL, components, right, large, NULL, scratch);
            kernel_true(*large == 0, "amx_pack_panels finds no huge number", n, components);
            for (int mt = 1; mt <= 2; mt++)
                for (int nt = 1; nt <= 2; nt++) {
                    const operand a = {left, chunks * components * FRAGMENT, components * FRAGMENT, components},
                                  b = {right, chunks * components * FRAGMENT, components * FRAGMENT, components};
                    const real *from[2] = {start, start + TILE_SIDE * step};
                    const int64_t from_step[2] = {step, step};
                    for (int64_t x = 0; x < n_rows * step; x++)
                        out[x] = (real)-77;
                    product(mt, nt, &a, &b, chunks, n % 2 ? from : NULL, from_step, out, step, NULL);
                    for (int64_t r = 0; r < n_rows; r++)
                        for (int64_t j = 0; j < step; j++) {
                            double want = n % 2 ? (double)start[r * step + j] : 0, size = fabs(want), lost = 0;
                            for (int64_t x = 0; x < width && j < there; x++) {
                                const double p = (double)q[r * wide + x] * at_row(&v, 1, 1, j, x);
                                want += p;
                                lost += fabs(p);
                            }
                            if (r >= mt * TILE_SIDE || j >= nt * TILE_SIDE)
                                kernel_close((double)out[r * step + j], -77, 0, "product writes its tiles alone", r, j);
                            else
                                kernel_close((double)out[r * step + j], want,
                                             (components == 1 ? 0 : omitted_error(components)) * lost +
                                                 tile_roundings(chunks, components) * (size + 2 * lost),
                                             "product of packed rows", r, j);
                        }
                }
            kernel_borders();
        }
}

/* Check sums over rows, with values as the right operand and weights as the left one, as weigh_tile computes them. */
CHECK(tiles_multiply_across_rows)
{
    static const int widths[] = {1, 16, 17, 40};
    const int64_t n_rows = TILE_SIDE, keys = 2 * CHUNK;
    for (int n = 0; n < COUNT(widths); n++)
        for (int components = 1; components <= 3; components++) {
            const rp_dtype type = components == 1 ? RP_BF16 : components == 2 ? RP_F16 : RP_F32;
            const int64_t width = widths[n], wide = rpi_round_up(width, CHUNK),
                          columns = rpi_round_up(width, TILE_SIDE) / TILE_SIDE, there = keys - 7, odd = 9;
            rpi_view v = array_of(type, there, width, 2, (uint64_t)n + 61);
            const real *w = exact_numbers(n_rows * keys, 62, components);
            uint32_t *left = kernel_memory((size_t)(n_rows * keys * components) * 2),
                     *right = kernel_memory((size_t)(keys * columns * TILE_SIDE * components) * 2);
            real *scratch = numbers(CHUNK * wide), *out = numbers(n_rows * columns * TILE_SIDE);
            uint8_t *large = kernel_memory((size_t)keys);
            if (n % 2)
                rpi_put(v.data, type, rpi_index(&v, 0, 1, odd, width - 1), NAN);
            pack_rows(w, keys, n_rows, keys, components, left);
            amx_pack_columns(&v, 0, 1, 0, keys, there, width, NULL, NULL, components, (real)MAX_VALUE, right, large,
                             scratch);
            for (int64_t x = 0; x < columns; x++) {
                const operand a = {left, keys / CHUNK * components * FRAGMENT, components * FRAGMENT, components},
                              b = {right + x * components * FRAGMENT, components * FRAGMENT,
                                   columns * components * FRAGMENT, components};
                product(1, 1, &a, &b, keys / CHUNK, NULL, NULL, out + x * TILE_SIDE, columns * TILE_SIDE, NULL);
            }
            for (int64_t j = 0; j < keys; j++)
                kernel_true(large[j] == (n % 2 && j == odd), "amx_pack_columns marks a row", n, j);
            for (int64_t r = 0; r < n_rows; r++)
                for (int64_t x = 0; x < columns * TILE_SIDE; x++) {
                    double want = 0, size = 0;
                    for (int64_t j = 0; j < there && x < width; j++) {
                        const double p = n % 2 && j == odd ? 0 : (double)w[r * keys + j] * at_row(&v, 0, 1, j, x);
                        want += p;
                        size += fabs(p);
                    }
                    kernel_close((double)out[r * columns * TILE_SIDE + x], want,
                                 ((components == 1 ? 0 : omitted_error(components)) +
                                  3 * tile_roundings(keys / CHUNK, components)) *
                                     size,
                                 "product across rows", r, x);
                }
            kernel_borders();
        }
}

/* Check sums [channels][keys] += q^T ds and their transposition to [keys][channels], as used in the backward pass. */
CHECK(tiles_multiply_transposed_rows)
{
    static const int groups[] = {1, 3, 6, 16};
    for (int n = 0; n < COUNT(groups); n++)
        for (int components = 2; components <= 3; components++) {
            const int64_t wide = 2 * CHUNK, rows = groups[n] * MR, padded = rpi_round_up(rows, CHUNK), keys = 2 * NR;
            const real *q = random_numbers(BLOCK_ROWS * wide, 71);
            real *ds = random_numbers(BLOCK_ROWS * ROW_STEP, 72);
            real *q_padded = numbers(BLOCK_ROWS * wide), *sums = numbers(wide * BACKWARD_KEYS),
                 *by_key = numbers(keys * wide);
            uint32_t *left = kernel_memory((size_t)(BLOCK_ROWS * wide * 3) * 2),
                     *right = kernel_memory((size_t)(BLOCK_ROWS * BACKWARD_KEYS * 3) * 2);
            rp_plan *plan = kernel_memory(sizeof *plan);
            small_block *b = block_of();
            memset(plan, 0, sizeof *plan);
            plan->components = components;
            b->call.plan = plan;
            b->k.groups = groups[n];
            for (int64_t x = 0; x < BLOCK_ROWS * wide; x++)
                q_padded[x] = x < rows * wide ? q[x] : 0;
            for (int64_t x = rows * ROW_STEP; x < BLOCK_ROWS * ROW_STEP; x++)
                ds[x] = (real)NAN; /* past the last row */
            for (int64_t x = 0; x < wide * BACKWARD_KEYS; x++)
                sums[x] = (real)0.5;
            pack_by_rows(&b->k, ds, keys, components, right);
            pack_channels(q_padded, wide, padded, components, left);
            add_transposed_products(&b->k, left, components, right, wide, keys, sums);
            transpose_back(sums, wide, keys, by_key);
            for (int64_t j = 0; j < keys; j++)
                for (int64_t x = 0; x < wide; x++) {
                    double want = 0.5, size = 0.5;
                    for (int64_t r = 0; r < rows; r++) {
                        want += (double)q[r * wide + x] * (double)ds[r * ROW_STEP + j];
                        size += fabs((double)q[r * wide + x] * (double)ds[r * ROW_STEP + j]);
                    }
                    kernel_close((double)sums[x * BACKWARD_KEYS + j], want,
                                 (omitted_error(components) + 3 * tile_roundings(padded / CHUNK, components)) * size,
                                 "add_transposed_products", j, x);
                    kernel_same(&by_key[j * wide + x], &sums[x * BACKWARD_KEYS + j], sizeof(real), "transpose_back", j,
                                x);
                }
            for (int64_t x = 0; x < wide; x++)
                for (int64_t j = keys; j < BACKWARD_KEYS; j++)
                    kernel_close((double)sums[x * BACKWARD_KEYS + j], 0.5, 0, "add_transposed_products past its keys",
                                 j, x);
            kernel_borders();
        }
}

/* Check that products whose left operand is unpacked keys have the same bits as products whose left operand is
 * queries. */
CHECK(tiles_meet_keys_in_place)
{
    static const int widths[] = {1, 32, 33, 64};
    for (int n = 0; n < COUNT(widths); n++)
        for (int components = 1; components <= 3; components++) {
            const int64_t width = widths[n], wide = rpi_round_up(width, CHUNK), chunks = wide / CHUNK;
            real *keys = exact_numbers(NR * wide, 81, components), *q = exact_numbers(TILE_SIDE * wide, 82, components);
            uint32_t *keys_left = kernel_memory((size_t)(NR * wide * components) * 2),
                     *q_right = kernel_memory((size_t)(TILE_SIDE * wide * components) * 2);
            uint32_t *q_left = kernel_memory((size_t)(TILE_SIDE * wide * components) * 2),
                     *keys_right = kernel_memory((size_t)(NR * wide * components) * 2);
            real *s = numbers(NR * TILE_SIDE), *want = numbers(TILE_SIDE * NR), *scratch = numbers(TILE_SIDE * wide);
            uint8_t *large = kernel_memory(1);
            for (int64_t x = 0; x < NR * wide; x++)
                keys[x] = x % wide < width ? keys[x] : 0;
            for (int64_t x = 0; x < TILE_SIDE * wide; x++)
                q[x] = x % wide < width ? q[x] : 0;
            rpi_view k = {.dtype = RP_F32, .data = keys, .stride = {0, 0, wide, 1}, .len = {1, 1, NR, wide}};
            packing rows;
            for (int64_t j = 0; j < NR; j += CHUNK) {
                rows_at(&rows, &k, 0, 0, j, CHUNK, NR, wide, scratch);
                rows.seen = (magnitude){vf_set1(0)};
                pack_along(&rows, chunks, components, keys_left + j / TILE_SIDE * chunks * components * FRAGMENT);
            }
            for (int64_t r = 0; r < TILE_SIDE; r++)
                rows.at[r] = q + r * wide, rows.ahead[r] = (const char *)rows.at[r];
            for (int64_t x = 0; x < chunks; x++)
                pack_transposed(&rows, x * CHUNK, components, q_right + x * components * FRAGMENT);
            for (int64_t x = 0; x < NR * TILE_SIDE; x++)
                s[x] = 0;
            const operand left = {keys_left, chunks * components * FRAGMENT, components * FRAGMENT, components},
                          right = {q_right, 0, components * FRAGMENT, components};
            key_product(&left, &right, chunks, s);
            *large = 0;
            pack_rows(q, wide, TILE_SIDE, wide, components, q_left);
            amx_pack_panels(&k, 0, 0, 0, NR, NR, wide, NULL, NULL, components, keys_right, large, NULL, scratch);
            for (int64_t j = 0; j < NR; j += 2 * TILE_SIDE) {
                const operand a = {q_left, chunks * components * FRAGMENT, components * FRAGMENT, components},
                              b = {keys_right + j / TILE_SIDE * chunks * components * FRAGMENT,
                                   chunks * components * FRAGMENT, components * FRAGMENT, components};
                product(1, 2, &a, &b, chunks, NULL, NULL, want + j, NR, NULL);
            }
            for (int64_t r = 0; r < TILE_SIDE; r++)
                for (int64_t j = 0; j < NR; j++)
                    kernel_same(&s[j * TILE_SIDE + r], &want[r * NR + j], sizeof *s, "key_product", r, j);
            kernel_borders();
        }
}
