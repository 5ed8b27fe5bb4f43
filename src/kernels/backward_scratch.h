/* kernels/backward_scratch.h -- what a worker of the backward pass holds beside its block of rows.
 * May not know how products are made.
 * Parameters: BACKWARD_KEYS; products_backward, which a family of products adds.
 * SPDX-License-Identifier: Apache-2.0 */

/* What a worker holds beside the block of rows. */
typedef struct backward_scratch {
    block k;
    real *keys;        /* panels of the keys; on AMX tiles only where some are extreme */
    void *packed_keys; /* as pack_keys makes them */
    real *dk, *dv;     /* [BACKWARD_KEYS and a group][Dk or Dv padded]; dk of rotated keys */
    real *dk_plain;    /* the same of keys that are not rotated; NULL: no term has any */
    real *dout;        /* [BLOCK_ROWS][Dv padded] */
    real *dp;          /* [BLOCK_ROWS][ROW_STEP] dp, then ds, then times the slopes of the softcaps */
    real *dq;          /* [BLOCK_ROWS][Dk padded] of the tile */
    real *run_queries; /* columns of BLOCK_ROWS rows of one source */
    real *sums;        /* [BLOCK_ROWS][sums_step] sums of ds by vector */
    real *run_dq;      /* [BLOCK_ROWS][width padded] gradient of one source's queries */
    int64_t sums_step, widest;
    double *strip;                    /* [Lq + BACKWARD_KEYS] sums of ds by offset, of one head */
    double *entries[RPI_MAX_SOURCES]; /* sums of ds by entry of GATHER, and of ROWS with row_grad, of one head */
    real *vectors[RPI_MAX_SOURCES]; /* [span][width padded] sums of gradients from vector vectors_low on, of one head */
    int64_t vectors_low[RPI_MAX_SOURCES], vectors_span[RPI_MAX_SOURCES];
    double *column; /* [BACKWARD_KEYS] sums of ds over rows, for COLUMN */
    /* for `fold`, of one head: sums of ds over the rows past the task's keys, by key; over the pairs with j < t <= p_i
     * of the other rows, by t; over the task's keys, by p_i, [Lk]. NULL: no term folds */
    double *past, *inside, *rows_to;
    uint8_t *extreme_k, *extreme_v, *extreme_dout, *extreme_rows;
    real *norms;                /* of the panels of keys: the largest norm, where tiles may be left out */
    products_backward products; /* of the family that makes products */
    rpi_sums *private_sums;     /* [RP_MAX_TERMS] gradients of terms that go pair by pair */
} backward_scratch;

/* Whether the vectors of a source go by an index; else by the offset. */
static bool gathers(const rpi_source *s)
{
    return (s->kind == RPI_RUN || s->kind == RPI_VALUES) && s->run.gather;
}

/* How many vectors of a source one task can reach. */
static int64_t reach_of(const rpi_call *c, const rpi_source *s)
{
    const int64_t padded = rpi_vectors_of(s)->padded;
    return gathers(s) ? padded : rpi_min(padded, rpi_round_up(c->extents->len_q + BACKWARD_KEYS + NR, NR));
}

/* How many sums of one head a source has, of entries or of row_grad; 0: none. */
static int64_t sums_of(const rpi_source *s)
{
    return s->kind == RPI_GATHER ? s->gather.index.count : s->kind == RPI_ROWS ? s->rows.sums : 0;
}

static void products_layout(const rpi_call *c, backward_scratch *w, rpi_arena *a);

static void backward_layout(const rpi_call *c, backward_scratch *w, rpi_arena *a)
{
    const rp_desc *d = &c->plan->desc;
    const int64_t wide_k = rpi_round_up(d->dim_k, VL), wide_v = rpi_round_up(d->dim_v, VL),
                  rows = rpi_round_up(BACKWARD_KEYS, MR) + MR;
    bool plain = false, folds = false;
    memset(w, 0, sizeof *w);
    block_layout(c, &w->k, a);
    w->keys = take_reals(a, BACKWARD_KEYS, d->dim_k);
    w->dk = take_reals(a, rows, wide_k);
    w->dv = take_reals(a, rows, wide_v);
    w->dout = take_reals(a, BLOCK_ROWS, wide_v);
    w->dp = take_reals(a, BLOCK_ROWS, ROW_STEP);
    w->dq = take_reals(a, BLOCK_ROWS, wide_k);
    if (d->softcap > 0)
        w->k.slope = take_reals(a, BLOCK_ROWS, ROW_STEP);
    if (d->softcap_after > 0)
        w->k.slope_after = take_reals(a, BLOCK_ROWS, ROW_STEP);
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        const rpi_vectors *v = rpi_vectors_of(s);
        if ((s->kind == RPI_KEYS || s->kind == RPI_COLUMN) && !plain) {
            plain = true;
            w->dk_plain = take_reals(a, rows, wide_k);
        }
        folds |= s->kind == RPI_ROWS && s->scheme->fold;
        if (sums_of(s))
            w->entries[n] = rpi_arena_take(a, sums_of(s), 1, sizeof(double));
        if (!v)
            continue;
        const int64_t wide = rpi_round_up(v->width, VL);
        w->widest = rpi_max(w->widest, wide);
        w->sums_step = rpi_max(
            w->sums_step, gathers(s) ? v->padded : rpi_min(v->padded, rpi_round_up(BLOCK_ROWS + BACKWARD_KEYS, NR)));
        w->vectors_span[n] = reach_of(c, s);
        w->vectors[n] = take_reals(a, w->vectors_span[n] + MR, wide);
    }
    w->sums_step += 2 * NR; /* one more group of vectors, and not a power of two */
    w->run_queries = take_reals(a, BLOCK_ROWS, w->widest);
    w->run_dq = take_reals(a, BLOCK_ROWS, w->widest);
    w->sums = take_reals(a, BLOCK_ROWS, w->sums_step);
    w->strip = rpi_arena_take(a, c->extents->len_q + BACKWARD_KEYS, 1, sizeof(double));
    w->column = rpi_arena_take(a, BACKWARD_KEYS, 1, sizeof(double));
    if (folds) {
        w->past = rpi_arena_take(a, BACKWARD_KEYS, 1, sizeof(double));
        w->inside = rpi_arena_take(a, BACKWARD_KEYS, 1, sizeof(double));
        w->rows_to = rpi_arena_take(a, c->extents->len_k, 1, sizeof(double));
    }
    w->norms = take_reals(a, BACKWARD_KEYS / NR, 1);
    products_layout(c, w, a);
    w->extreme_k = rpi_arena_take(a, BACKWARD_KEYS / NR + 1, 1, 1);
    w->extreme_v = rpi_arena_take(a, BACKWARD_KEYS, 1, 1);
    w->extreme_rows = rpi_arena_take(a, BACKWARD_KEYS, 1, 1);
    w->extreme_dout = rpi_arena_take(a, BLOCK_ROWS, 1, 1);
}

static int64_t backward_size(const rpi_call *c)
{
    backward_scratch w;
    rpi_arena a = {0};
    backward_layout(c, &w, &a);
    return rpi_arena_size(&a);
}
