/* fma_backward_tmpl.h -- the products of the backward pass by register tiles of multiply-adds; split_backward_tmpl.h has the
 * same functions on squares.
 * Compiled once per instruction set without squares, and for f64. */

static void split_back_layout(const rpi_call *c, split_back *w, char **base, size_t *used)
{
    (void)c, (void)w, (void)base, (void)used;
}

static void split_back_pack(const rpi_call *c, back *w, int64_t b, int64_t g, int64_t j0, int64_t n)
{
    (void)c, (void)w, (void)b, (void)g, (void)j0, (void)n;
}

static void split_back_end(const rpi_call *c, back *w)
{
    (void)c, (void)w;
}

/* The groups of rows [*g0, *g1) that computed something for keys j … j+MR-1. */
static void groups_of(const block *k, const tile *t, int64_t j, int64_t *g0, int64_t *g1)
{
    *g0 = k->groups;
    *g1 = 0;
    for (int64_t g = 0; g < k->groups; g++)
        if (t->from[g] < j + MR && t->to[g] > j) {
            *g0 = rpi_min(*g0, g);
            *g1 = g + 1;
        }
}

/* dp = starts + dout v^T; starts NULL: zero */
static void dp_products(back *w, const tile *t, const real *const *starts)
{
    const block *k = &w->k;
    const int64_t Dv = k->c->args->desc.dim_v;
    for (int64_t col = 0; col < t->end; col += NR)
        for (int64_t g = 0; g < k->groups; g++)
            if (col >= t->from[g] && col < t->to[g])
                score_tile(w->dout + g * MR * Dv, w->values + col * Dv, Dv, starts ? starts + g * MR : NULL, col,
                           w->dp + g * MR * STEP + col, STEP, NULL, w->dout);
}

/* sums[keys][wide] += x^T rows: x are weights or their derivatives, rows those of dout or q. */
static void add_keys(const block *k, const tile *t, const real *x, const real *rows, int64_t wide, real *sums)
{
    for (int64_t j = 0; j < t->end; j += MR) {
        int64_t g0, g1;
        groups_of(k, t, j, &g0, &g1);
        if (g0 < g1)
            add_turned(x + j, STEP, g0 * MR, g1 * MR, rows, QB, sums + j * wide, wide);
    }
}

/* dv += p^T dout */
static void dv_products(back *w, const tile *t)
{
    add_keys(&w->k, t, w->k.s, w->dout_rows, rpi_round_up(w->k.c->args->desc.dim_v, VL), w->dv);
}

/* dk += ds^T q */
static void dk_products(back *w, const tile *t)
{
    const block *k = &w->k;
    const int64_t D = k->c->args->desc.dim_k;
    to_columns(k->q, MR, k->groups * MR, D, w->q_rows, QB, w->wild_rows);
    add_keys(k, t, w->dp, w->q_rows, rpi_round_up(D, VL), w->dk);
}

/* dq = ds k */
static void dq_products(back *w, const tile *t)
{
    const block *k = &w->k;
    const int64_t wide = rpi_round_up(k->c->args->desc.dim_k, VL);
    memset(w->dq, 0, reals(k->groups * MR, wide));
    for (int64_t g = 0; g < k->groups; g++)
        if (t->from[g] < t->to[g])
            add_values(w->dp + g * MR * STEP, STEP, t->from[g], t->to[g], w->key_rows, 0, BKB, w->dq + g * MR * wide,
                       wide, ones, -1);
}
