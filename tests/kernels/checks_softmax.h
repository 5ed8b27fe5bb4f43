/* checks_softmax.h -- from scores to weights: biases, masks, softcaps, the running maximum, dropout, and sums of the
 * weights that belong to each vector.
 * SPDX-License-Identifier: Apache-2.0 */

CHECK(biases_are_added_and_infinity_masks)
{
    static const double odd[] = {0.5, -0.0, -INFINITY, INFINITY, NAN, -1, 1};
    enum { N = COUNT(odd) * COUNT(odd) };
    const int64_t end = rpi_round_up(N, NR);
    real *a = numbers(end), *b = numbers(end), *to = numbers(ROW_STEP);
    const real *rows_a[1] = {a}, *rows_b[1] = {b}, *total[1];
    for (int64_t x = 0; x < end; x++) {
        const double p = odd[x % N / COUNT(odd)], q = odd[x % N % COUNT(odd)];
        a[x] = p == 1 || p == -1 ? (real)p * REAL_MAX : (real)p;
        b[x] = q == 1 || q == -1 ? (real)q * REAL_MAX : (real)q;
    }
    add_rows(total, rows_a, rows_b, to, 1, end);
    kernel_true(total[0] == to, "add_rows says where the sums are", 0, 0);
    for (int64_t x = 0; x < end; x++) {
        const double p = (double)a[x], q = (double)b[x];
        double want = (double)(real)(p + q);
        if (p == -INFINITY || q == -INFINITY)
            want = -INFINITY;
        else if (isfinite(p) && isfinite(q) && isinf(want))
            want = copysign((double)REAL_MAX, want);
        kernel_close((double)to[x], want, 0, "add_rows", x / COUNT(odd), x % COUNT(odd));
    }
}

CHECK(columns_outside_an_interval_are_masked)
{
    const int64_t from = VL, to = 4 * VL;
    for (int64_t lo = -2; lo <= 5 * VL; lo++)
        for (int64_t hi = -1; hi <= 5 * VL; hi += 3) {
            const real *before = random_numbers(5 * VL, 20);
            real *s = numbers(5 * VL);
            memcpy(s, before, (size_t)(5 * VL) * sizeof *s);
            mask_outside(s, from, to, lo, hi);
            for (int64_t j = from; j < to; j++) /* columns outside of this range are never read */
                kernel_close((double)s[j], j >= lo && j < hi ? (double)before[j] : -INFINITY, 0, "mask_outside", lo, j);
            for (int64_t j = to; j < 5 * VL; j++)
                kernel_same(&s[j], &before[j], sizeof *s, "mask_outside past its columns", lo, j);
            kernel_borders();
        }
}

/* A block with one group of rows, and the data that the softmax kernels read. */
typedef struct small_block {
    rpi_args args;
    rpi_call call;
    block k;
    tile t;
} small_block;

static small_block *block_of(void)
{
    small_block *b = kernel_memory(sizeof *b);
    memset(b, 0, sizeof *b);
    b->args.desc = rp_desc_init(1, 1, MR, 1000, 4);
    b->call.args = &b->args;
    b->k.c = &b->call;
    b->k.rows = BLOCK_ROWS;
    b->k.groups = BLOCK_ROWS / MR;
    b->k.s = random_numbers(BLOCK_ROWS * ROW_STEP, 21);
    b->k.keep = kernel_memory((size_t)BLOCK_ROWS * TILE_KEYS);
    b->k.tile_max = numbers(BLOCK_ROWS * VL);
    b->k.running_max = numbers(BLOCK_ROWS);
    b->k.sum = numbers(BLOCK_ROWS);
    b->k.lo = kernel_memory(BLOCK_ROWS * sizeof *b->k.lo);
    b->k.hi = kernel_memory(BLOCK_ROWS * sizeof *b->k.hi);
    for (int64_t r = 0; r < BLOCK_ROWS; r++) {
        b->k.lo[r] = 3 + r;
        b->k.hi[r] = TILE_KEYS - 5 + r;
        memset(b->k.keep + r * TILE_KEYS, 1, TILE_KEYS);
    }
    b->t.end = TILE_KEYS;
    return b;
}

/* Check finish_scores for one case. Bits of `form`: 1 biases already in the scores, 2 biases added after the first
 * softcap, 4 masks, 8 pairs. Bits of `where`: 1 a softcap before the biases, 2 a softcap after them. */
static void finish_with(int form, int where)
{
    small_block *b = block_of();
    const bool inside = form & 1, outside = form & 2, masks = form & 4, pairs = form & 8;
    const int64_t r = form % MR, from = NR, to = 3 * NR, lo = b->k.lo[r], hi = b->k.hi[r];
    const double before_cap = where & 1 ? 1.5 : 0, after_cap = where & 2 ? 1.25 : 0;
    real *in_row = random_numbers(TILE_KEYS, 22), *out_row = random_numbers(TILE_KEYS, 23);
    const real *in[BLOCK_ROWS] = {0}, *out[BLOCK_ROWS] = {0}, *before = random_numbers(BLOCK_ROWS * ROW_STEP, 21);
    in[r] = in_row;
    out[r] = out_row;
    /* inside a softcap, biases come only from products with vectors, so they are never -infinity */
    in_row[from + 1] = where & 1 ? (real)0 : (real)-INFINITY;
    out_row[from + 2] = (real)-INFINITY;
    b->args.desc.softcap = before_cap;
    b->args.desc.softcap_after = after_cap;
    b->k.bent = where & 1 ? numbers(BLOCK_ROWS * ROW_STEP) : NULL;
    b->k.bent_after = where & 2 ? numbers(BLOCK_ROWS * ROW_STEP) : NULL;
    b->t.edge = masks;
    b->t.pairs = b->t.check_biases = pairs;
    for (int64_t j = 0; j < TILE_KEYS; j++)
        b->k.keep[r * TILE_KEYS + j] = j % 5 != 2;
    finish_scores(&b->k, &b->t, inside ? in : NULL, outside ? out : NULL, r, from, to);
    for (int64_t j = from; j < to; j++) {
        double x = (double)before[r * ROW_STEP + j], bent = 0, bent_after = 0, error = 0, bent_after_error = 16 * EPS;
        bool open = !(inside && in_row[j] == (real)-INFINITY) && !(outside && out_row[j] == (real)-INFINITY);
        if (where & 1) {
            bent = tanh(x / before_cap);
            x = before_cap * bent + (outside ? (double)out_row[j] : 0);
            error = 12 * EPS * (before_cap + fabs(x));
        }
        if (where & 2) {
            bent_after = tanh(x / after_cap);
            bent_after_error += error / after_cap;
            x = after_cap * bent_after;
            error += 12 * EPS * (after_cap + fabs(x));
        }
        if (masks)
            open &= pairs ? j % 5 != 2 : j >= lo && j < hi;
        kernel_close((double)b->k.s[r * ROW_STEP + j], open ? x : -INFINITY, open ? error : 0, "finish_scores", form,
                     j);
        if (where & 1)
            kernel_close((double)b->k.bent[r * ROW_STEP + j], bent, 16 * EPS, "the tanh of the softcap", form, j);
        if (where & 2 && open)
            kernel_close((double)b->k.bent_after[r * ROW_STEP + j], bent_after, bent_after_error,
                         "the tanh of the second softcap", form, j);
    }
    kernel_borders();
}

CHECK(softcap_and_masks_finish_the_scores)
{
    for (int where = 1; where <= 3; where++)
        for (int form = 0; form < 16; form++)
            if (where & 1 || !(form & 2)) /* otherwise the scores already include all biases */
                finish_with(form, where);
}

CHECK(the_running_maximum_rescales_the_sum)
{
    small_block *b = block_of();
    real *alpha = numbers(BLOCK_ROWS), *first = numbers(BLOCK_ROWS), *sum = numbers(BLOCK_ROWS);
    vf sums[VL];
    for (int64_t r = 0; r < BLOCK_ROWS; r++) {
        const int64_t end = NR + r % 3 * NR;
        double top = -INFINITY, found = -INFINITY;
        if (r % 4 == 1) /* a masked row */
            for (int64_t j = 0; j < end; j++)
                b->k.s[r * ROW_STEP + j] = (real)-INFINITY;
        b->k.running_max[r] = first[r] = r % 5 == 2 ? (real)-INFINITY : (real)(r % 7) - 3;
        b->k.sum[r] = sum[r] = (real)(1 + r % 3);
        find_row_max(&b->k, r, 0, end);
        for (int64_t j = 0; j < end; j++)
            top = fmax(top, (double)b->k.s[r * ROW_STEP + j]);
        for (int64_t x = 0; x < VL; x++)
            found = fmax(found, (double)b->k.tile_max[r * VL + x]);
        kernel_close(found, top, 0, "find_row_max", r, 0);
    }
    for (int64_t r0 = 0; r0 < BLOCK_ROWS; r0 += VL)
        raise_running_max(&b->k, r0, alpha);
    for (int64_t r = 0; r < BLOCK_ROWS; r++) {
        const int64_t end = NR + r % 3 * NR;
        double top = (double)first[r], factor;
        for (int64_t j = 0; j < end; j++)
            top = fmax(top, (double)b->k.s[r * ROW_STEP + j]);
        factor = top > (double)first[r] ? exp((double)first[r] - top) : 1;
        kernel_close((double)b->k.running_max[r], top, 0, "raise_running_max", r, 0);
        kernel_close((double)alpha[r], factor, 6 * EPS * factor, "raise_running_max's factor", r, 0);
        kernel_close((double)b->k.sum[r], (double)sum[r] * factor, 8 * EPS * (double)sum[r] * factor,
                     "raise_running_max's sum", r, 0);
        kernel_close((double)vf_sum(score_shift(&b->k, r)), top == -INFINITY ? 0 : VL * top, 0, "score_shift", r, 0);
        sum[r] = b->k.sum[r];
    }
    const real *x = random_numbers(VL * VL, 24);
    for (int r = 0; r < VL; r++)
        sums[r] = vf_load(x + r * VL);
    add_sums(b->k.sum, sums);
    for (int64_t r = 0; r < VL; r++) {
        double want = (double)sum[r], size = fabs(want);
        for (int64_t c = 0; c < VL; c++) {
            want += (double)x[r * VL + c];
            size += fabs((double)x[r * VL + c]);
        }
        kernel_close((double)b->k.sum[r], want, (VL + 1) * EPS * size, "add_sums", r, 0);
    }
}

CHECK(dropout_depends_on_the_pair)
{
    small_block *b = block_of();
    const int64_t r = 4, from = NR, to = 3 * NR;
    real *row = random_numbers(TILE_KEYS, 25);
    const real *before = random_numbers(TILE_KEYS, 25);
    b->args.desc.dropout = 0.3;
    b->args.desc.seed = 77;
    b->k.b = 2, b->k.h = 3, b->k.row0 = 50;
    b->t.tile0 = ((int64_t)5 << 32) + 512; /* the index of a key is split into two 32-bit halves */
    apply_dropout(&b->k, &b->t, r, from, to, row);
    for (int64_t j = 0; j < TILE_KEYS; j++) { /* 16 columns at a time; the last columns are padding */
        const bool kept = rpi_random(rpi_dropout_at(77, 2, 3, 54), b->t.tile0 + j) >= rpi_dropout_limit(0.3);
        const double want = j < from || j >= to ? (double)before[j] : kept ? (double)before[j] / (1 - 0.3) : 0;
        if (j >= to && j < from + rpi_round_up(to - from, 16))
            continue;
        kernel_close((double)row[j], want, 2 * EPS * fabs(want), "drop", r, j);
    }
}

/* Check the sums of weights for each vector. A column before the first vector is added to the first vector or to none;
 * a column after the last is added to the last or to none. */
CHECK(weights_of_a_run_are_collected)
{
    enum { R = 40, LOW = 2, FROM = VL, TO = 3 * VL };
    for (int64_t at = -4 * VL; at <= R + 4; at++)
        for (int zero = 0; zero < 2; zero++) {
            const real *x = random_numbers(4 * VL, 26), *before = random_numbers(R, 27);
            real *sums = numbers(R - LOW);
            double want[R], size[R];
            if (LOW > 0 && at + FROM < LOW)
                continue; /* the window begins at LOW */
            for (int64_t e = LOW; e < R; e++) {
                sums[e - LOW] = before[e];
                want[e] = (double)before[e];
                size[e] = fabs(want[e]);
            }
            collect_run(x, FROM, TO, at, R, zero, sums, LOW);
            for (int64_t j = FROM; j < TO; j++) {
                const int64_t e = rpi_clamp(at + j, 0, R - 1);
                if (zero && e != at + j)
                    continue;
                want[e] += (double)x[j];
                size[e] += fabs((double)x[j]);
            }
            for (int64_t e = LOW; e < R; e++)
                kernel_close((double)sums[e - LOW], want[e], 3 * VL * EPS * size[e], "collect_run", at, e);
            kernel_borders();
        }
    for (int64_t from = 0; from < 3 * VL; from++)
        for (int64_t to = from; to <= 4 * VL; to++) {
            const real *x = random_numbers(4 * VL, 28);
            double want = 0, size = 0;
            for (int64_t j = from; j < to; j++) {
                want += (double)x[j];
                size += fabs((double)x[j]);
            }
            kernel_close((double)range_sum(x, from, to), want, 4 * VL * EPS * size, "range_sum", from, to);
            kernel_borders();
        }
}
