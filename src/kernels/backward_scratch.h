/* kernels/backward_scratch.h -- the scratch of a worker of the backward pass, in addition to its block of rows.
 * Independent of how products are computed.
 * Parameters: BACKWARD_KEYS; products_backward of the backend.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "decode.h" /* only if an editor parses this file by itself */
#endif

/* The scratch of a worker of the backward pass. */
typedef struct backward_scratch {
    block k;
    real *keys;        /* panels of the keys; with AMX tiles only if some are non-finite or large */
    void *packed_keys; /* the task's keys, packed by pack_keys */
    real *dk, *dv;     /* [BACKWARD_KEYS rounded up to MR, + MR][Dk or Dv padded]; dk: of rotated keys */
    real *dk_plain;    /* like dk, for keys before rotation; NULL: no term needs it */
    real *dout;        /* [BLOCK_ROWS][Dv padded] */
    real *dp;          /* [BLOCK_ROWS][ROW_STEP] dp, later ds, later ds times the slopes of the softcaps */
    real *dq;          /* [BLOCK_ROWS][Dk padded] contribution of the tile to dq */
    real *run_queries; /* the block's queries of one source, packed as columns */
    real *sums;        /* [BLOCK_ROWS][sums_step] sums of ds by vector */
    real *run_dq;      /* [BLOCK_ROWS][width padded] gradient of the queries of one source */
    int64_t sums_step, widest;
    double *strip;                    /* [Lq + BACKWARD_KEYS] sums of ds by offset, of one head */
    double *entries[RPI_MAX_SOURCES]; /* sums of ds of one head by entry of GATHER, or of row_grad of ROWS */
    real *vectors[RPI_MAX_SOURCES]; /* [span][width padded] sums of gradients of one head, from vector vectors_low on */
    int64_t vectors_low[RPI_MAX_SOURCES], vectors_span[RPI_MAX_SOURCES];
    double *column; /* [BACKWARD_KEYS] sums of ds over rows, for COLUMN */
    /* Sums of ds of one head for `reduce` of a scheme; NULL: no term has it. p_i is the last key that row i sees. */
    double *past, /* [BACKWARD_KEYS] by key, over the rows whose p_i is after the task's keys */
        *inside,  /* [BACKWARD_KEYS] by t, over the pairs with j < t <= p_i of the other rows */
        *rows_to; /* [Lk] by p_i, over the task's keys */
    uint8_t *large_k, *large_v, *large_dout, *large_rows;
    real *norms;                /* the largest norm of each panel of keys, if tiles may be skipped */
    products_backward products; /* scratch of the backend */
    rpi_sums *private_sums;     /* [RP_MAX_TERMS] gradients of terms computed pair by pair */
} backward_scratch;

/* Return true if the vectors of a source are found by an index, not by the offset. */
static bool gathers(const rpi_source *s)
{
    return (s->kind == RPI_RUN || s->kind == RPI_VALUES) && s->run.gather;
}

/* Return the largest number of vectors of a source that one task uses. */
static int64_t reach_of(const rpi_call *c, const rpi_source *s)
{
    const int64_t padded = rpi_vectors_of(s)->padded;
    return gathers(s) ? padded : rpi_min(padded, rpi_round_up(c->limits->len_q + BACKWARD_KEYS + NR, NR));
}

/* Return the number of sums that a source has for one head (by entry, or of row_grad), or 0. */
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
    bool plain = false, reduces = false;
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
        reduces |= s->kind == RPI_ROWS && s->scheme->reduce;
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
    w->sums_step += 2 * NR; /* room for one more group of vectors, and not a power of two */
    w->run_queries = take_reals(a, BLOCK_ROWS, w->widest);
    w->run_dq = take_reals(a, BLOCK_ROWS, w->widest);
    w->sums = take_reals(a, BLOCK_ROWS, w->sums_step);
    w->strip = rpi_arena_take(a, c->limits->len_q + BACKWARD_KEYS, 1, sizeof(double));
    w->column = rpi_arena_take(a, BACKWARD_KEYS, 1, sizeof(double));
    if (reduces) {
        w->past = rpi_arena_take(a, BACKWARD_KEYS, 1, sizeof(double));
        w->inside = rpi_arena_take(a, BACKWARD_KEYS, 1, sizeof(double));
        w->rows_to = rpi_arena_take(a, c->limits->len_k, 1, sizeof(double));
    }
    w->norms = take_reals(a, BACKWARD_KEYS / NR, 1);
    products_layout(c, w, a);
    w->large_k = rpi_arena_take(a, BACKWARD_KEYS / NR + 1, 1, 1);
    w->large_v = rpi_arena_take(a, BACKWARD_KEYS, 1, 1);
    w->large_rows = rpi_arena_take(a, BACKWARD_KEYS, 1, 1);
    w->large_dout = rpi_arena_take(a, BLOCK_ROWS, 1, 1);
}

static int64_t backward_size(const rpi_call *c)
{
    backward_scratch w;
    rpi_arena a = {0};
    backward_layout(c, &w, &a);
    return rpi_arena_size(&a);
}
