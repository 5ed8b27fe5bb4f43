/* checks_backward.h -- the products of one tile, as the engine requests them from a backend: scores, and the products
 * of the backward pass.
 * SPDX-License-Identifier: Apache-2.0 */

/* Return the error bound for a sum of n products, relative to the sum of their absolute values. */
static double product_bound(const rp_plan *plan, int64_t n)
{
#if RPI_AMX
    const int components = plan->desc.dtype == RP_F16 ? 2 : plan->components; /* bf16 is exact in one component */
    return omitted_error(components) + 3 * tile_roundings((n + CHUNK - 1) / CHUNK, components);
#else
    (void)plan;
    return (double)(2 * n + 4) * EPS;
#endif
}

/* A worker with a block of rows and a tile of keys. If `masked` is set, rows attend to windows of keys, so groups of
 * rows have different columns. */
typedef struct backward_case {
    small_block small;
    rpi_limits limits;
    rpi_grads grads;
    rp_plan *plan;
    backward_scratch w;
    tile t;
    int64_t j0, keys;
} backward_case;

static backward_case *backward_case_of(rp_dtype type, int64_t dim_k, int64_t dim_v, bool last, bool masked)
{
    backward_case *b = kernel_memory(sizeof *b);
    rp_mask mask = rp_mask_init(RP_MASK_WINDOW);
    rp_desc desc = rp_desc_init(2, 4, BLOCK_ROWS + MR + 1, BACKWARD_KEYS + 3 * NR - 5, dim_k);
    rpi_arena a = {0};
    memset(b, 0, sizeof *b);
    mask.left = 60;
    mask.right = 90;
    desc.masks = &mask;
    desc.n_masks = masked;
    desc.kv_heads = 2;
    desc.dim_v = dim_v;
    desc.dtype = type;
    desc.q_offset = last ? BACKWARD_KEYS - BLOCK_ROWS : 40;
    desc.isa = RPI_NAME(RPI_ISA);
    kernel_true(rp_plan_create(&b->plan, &desc) == RP_OK, "rp_plan_create", type, dim_k);
    b->small.args.plan = b->plan;
    b->small.args.desc = b->plan->desc;
    b->small.args.k = array_of(type, desc.len_k, dim_k, 1, 101);
    b->small.args.v = array_of(type, desc.len_k, dim_v, 0, 102);
    b->small.args.q = array_of(type, 2 * desc.len_q, dim_k, 2, 103); /* four heads, stored as two arrays of two */
    b->small.args.q.stride[1] = desc.len_q * b->small.args.q.stride[2];
    b->grads.dout = array_of(type, 2 * desc.len_q, dim_v, 0, 104);
    b->grads.dout.stride[1] = desc.len_q * b->grads.dout.stride[2];
    b->limits.len_q = desc.len_q;
    b->limits.len_k = desc.len_k;
    b->small.call.plan = b->plan;
    b->small.call.args = &b->small.args;
    b->small.call.limits = &b->limits;
    b->small.call.grads = &b->grads;
    backward_layout(&b->small.call, &b->w, &a);
    a = (rpi_arena){.base = kernel_memory((size_t)rpi_arena_size(&a))};
    backward_layout(&b->small.call, &b->w, &a);
    block *k = &b->w.k;
    k->c = &b->small.call;
    k->b = 1;
    k->h = 3; /* reads head 1 of the keys */
    k->row0 = last ? BLOCK_ROWS : 0;
    k->rows = rpi_min(BLOCK_ROWS, desc.len_q - k->row0);
    k->groups = (k->rows + MR - 1) / MR;
    b->j0 = last ? BACKWARD_KEYS : 0;
    b->keys = rpi_min(BACKWARD_KEYS, desc.len_k - b->j0);
    memset(b->w.large_k, 0, BACKWARD_KEYS / NR + 1);
    products_begin(&b->w, 1, b->j0, rpi_round_up(b->keys, NR));
    products_zero(&b->w, rpi_round_up(b->keys, COLUMN_STEP));
    find_intervals(k);
    kernel_true(open_tile(k, &b->t, b->j0, BACKWARD_KEYS, b->w.large_k, b->w.large_v), "open_tile", type, last);
    load_queries(k);
    load_dout(&b->w);
    return b;
}

/* Fill the columns that a row computes with random numbers and all others with 0, as in the tile's weights or ds. */
static void fill_columns(const backward_case *b, real *to, uint64_t seed)
{
    const int64_t end = rpi_round_up(b->t.end, MR) + MR;
    for (int64_t r = 0; r < b->w.k.groups * MR; r++)
        for (int64_t j = 0; j < end; j++) {
            const bool there = r < b->w.k.rows && j < b->keys && j >= b->t.from[r / MR] && j < b->t.to[r / MR];
            to[r * ROW_STEP + j] = there ? (real)kernel_normal(seed * 1000003 + (uint64_t)(r * ROW_STEP + j)) : 0;
        }
}

/* Compare sums [keys][wide] with factor * x^T rows. `rows` is an array; its rows starting at k->row0 are used. */
static void check_key_sums(const backward_case *b, const real *sums, const real *x, const rpi_view *rows, int64_t width,
                           double factor, const char *what)
{
    const block *k = &b->w.k;
    for (int64_t j = 0; j < b->keys; j++)
        for (int64_t e = 0; e < width; e++) {
            double want = 0, size = 0;
            for (int64_t r = 0; r < k->rows; r++) {
                const double p = factor * (double)x[r * ROW_STEP + j] * at_row(rows, 1, 3, k->row0 + r, e);
                want += p;
                size += fabs(p);
            }
            kernel_close((double)sums[j * rpi_round_up(width, VL) + e], want,
                         (product_bound(b->plan, k->rows) + 2 * EPS) * size, what, j, e);
        }
}

/* Check dq, which is computed from ds, and dp, which starts with the rows of `starts` if that is not NULL. */
static void check_row_products(const backward_case *b, const real *dp, const real *const *starts)
{
    const block *k = &b->w.k;
    const rp_desc *d = &b->plan->desc;
    const int64_t wide = rpi_round_up(d->dim_k, VL);
    for (int64_t r = 0; r < k->rows; r++) {
        for (int64_t j = b->t.from[r / MR]; j < rpi_min(b->t.to[r / MR], b->keys); j++) {
            double want = starts ? (double)starts[r][j] : 0, size = fabs(want);
            for (int64_t x = 0; x < d->dim_v; x++) {
                const double p =
                    at_row(&b->grads.dout, 1, 3, k->row0 + r, x) * at_row(&b->small.args.v, 1, 1, b->j0 + j, x);
                want += p;
                size += fabs(p);
            }
            kernel_close((double)dp[r * ROW_STEP + j], want, product_bound(b->plan, d->dim_v) * size, "dp_products", r,
                         j);
        }
        for (int64_t x = 0; x < d->dim_k; x++) {
            double want = 0, size = 0;
            for (int64_t j = 0; j < b->keys; j++) {
                const double p = (double)b->w.dp[r * ROW_STEP + j] * at_row(&b->small.args.k, 1, 1, b->j0 + j, x);
                want += p;
                size += fabs(p);
            }
            kernel_close((double)b->w.dq[r * wide + x], want, product_bound(b->plan, b->keys) * size, "dq_products", r,
                         x);
        }
    }
}

/* Check s = in + scale q k^T for the columns of each group, and the maxima of each row in VL lanes. */
CHECK(scores_of_a_tile)
{
    static const int dims[] = {1, 33, 64};
    for (int n = 0; n < COUNT(types) * COUNT(dims) * 6; n++) {
        const rp_dtype type = types[n % COUNT(types)];
        const int dim = dims[n / COUNT(types) % COUNT(dims)];
        if ((type == RP_F64) != (bool)RPI_F64)
            continue;
        backward_case *b =
            backward_case_of(type, dim, 3, n / COUNT(types) / COUNT(dims) % 2, n / COUNT(types) / COUNT(dims) % 3);
        block *k = &b->w.k;
        real *bias = random_numbers(BLOCK_ROWS * ROW_STEP, 108), *max = numbers(BLOCK_ROWS * VL);
        const real *rows[BLOCK_ROWS], *const *in = n / 2 % 2 ? rows : NULL;
        for (int64_t r = 0; r < BLOCK_ROWS; r++)
            rows[r] = bias + r * ROW_STEP;
        key_scores(k, &b->t, b->w.packed_keys, in, max);
        for (int64_t r = 0; r < k->rows; r++) {
            const int64_t from = b->t.from[r / MR], to = b->t.to[r / MR];
            real top = -REAL_MAX, found = -REAL_MAX;
            for (int64_t j = from; j < to; j++) {
                double want = in ? (double)in[r][j] : 0, size = fabs(want);
                for (int64_t x = 0; x < dim && j < b->keys; x++) {
                    const double p = b->plan->desc.scale * at_row(&b->small.args.q, 1, 3, k->row0 + r, x) *
                                     at_row(&b->small.args.k, 1, 1, b->j0 + j, x);
                    want += p;
                    size += fabs(p);
                }
                if (j >= b->keys && !RPI_AMX) /* the FMA backend masks columns past the last key */
                    want = -INFINITY;
                kernel_close((double)k->s[r * ROW_STEP + j], want, (product_bound(b->plan, dim) + 2 * EPS) * size,
                             "key_scores", r, j);
                top = k->s[r * ROW_STEP + j] > top ? k->s[r * ROW_STEP + j] : top;
            }
            for (int x = 0; x < VL; x++)
                found = max[r * VL + x] > found ? max[r * VL + x] : found;
            if (!b->t.edge || (b->t.past && !RPI_AMX)) /* otherwise find_row_max computes the maxima */
                kernel_same(&found, &top, sizeof top, "key_scores' maximum", r, dim);
        }
        rp_plan_destroy(b->plan);
        kernel_borders();
    }
}

/* Check dp = starts + dout v^T, dv += p^T dout, dk += ds^T q and dq = ds k. Compute everything twice, because the sums
 * accumulate. */
CHECK(products_of_a_backward_tile)
{
    static const int dims[][2] = {{1, 33}, {40, 5}, {64, 64}};
    for (int n = 0; n < COUNT(types) * COUNT(dims) * 2; n++) {
        const rp_dtype type = types[n % COUNT(types)];
        const int *dim = dims[n / COUNT(types) % COUNT(dims)];
        if ((type == RP_F64) != (bool)RPI_F64) /* the type of a plan determines its arithmetic */
            continue;
        backward_case *b = backward_case_of(type, dim[0], dim[1], n >= COUNT(types) * COUNT(dims), true);
        real *dp = numbers(BLOCK_ROWS * ROW_STEP), *start = random_numbers(BLOCK_ROWS * ROW_STEP, 107);
        const real *rows[BLOCK_ROWS], *const *starts = n % 2 ? rows : NULL;
        for (int64_t r = 0; r < BLOCK_ROWS; r++)
            rows[r] = start + r * ROW_STEP;
        dp_products(&b->w, &b->t, starts);
        memcpy(dp, b->w.dp, (size_t)(BLOCK_ROWS * ROW_STEP) * sizeof *dp);
        fill_columns(b, b->w.k.s, 105);
        fill_columns(b, b->w.dp, 106);
        for (int twice = 0; twice < 2; twice++) {
            dv_products(&b->w, &b->t);
            dk_products(&b->w, &b->t);
            dq_products(&b->w, &b->t);
        }
        products_end(&b->w, b->keys);
        check_row_products(b, dp, starts);
        check_key_sums(b, b->w.head.dv, b->w.k.s, &b->grads.dout, dim[1], 2, "dv_products");
        check_key_sums(b, b->w.head.dk, b->w.dp, &b->small.args.q, dim[0], 2 * b->plan->desc.scale, "dk_products");
        rp_plan_destroy(b->plan);
        kernel_borders();
    }
}
