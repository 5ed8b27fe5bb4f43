/* kernels/backward_scratch.h -- the scratch memory of one worker in the backward pass, in addition to its `block`.
 * Independent of the backend.
 * Parameters: BACKWARD_KEYS; the backend's products_backward.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "decode.h" /* lets an editor parse this file on its own */
#endif

/* Rows of key_sums: a register tile may also add to rows past the last key. */
enum { key_sums_rows = (BACKWARD_KEYS + MR - 1) / MR * MR + MR };

/* Sums for the gradients of a task's keys: [key_sums_rows][Dk or Dv padded]. */
typedef struct key_sums {
    real *dk;       /* the gradient of the rotated keys */
    real *dk_plain; /* the gradient of the keys before rotation; NULL if no term needs it */
    real *dv;
} key_sums;

typedef struct backward_scratch {
    block k;
    real *keys;         /* panels of the keys; AMX packs them only if a key is non-finite or large */
    void *packed_keys;  /* the task's keys, packed by pack_keys */
    key_sums head, all; /* sums of a query head, and of the kv head; key_sums.h */
    real *dout;         /* [BLOCK_ROWS][Dv padded] */
    real *dp;           /* [BLOCK_ROWS][ROW_STEP] dp, then ds, then ds times the slopes of the softcaps */
    real *dq;           /* [BLOCK_ROWS][Dk padded] the tile's contribution to dq */
    real *run_queries;  /* the block's queries for one source, packed as columns */
    real *sums;         /* [BLOCK_ROWS][sums_step] sums of ds for each vector */
    real *run_dq;       /* [BLOCK_ROWS][width padded] one source's gradient of the queries */
    int64_t sums_step, widest;
    double *strip;                    /* [rows + BACKWARD_KEYS] one head's sums of ds for each offset */
    double *entries[RPI_MAX_SOURCES]; /* one head's sums of ds: for each entry (GATHER), or from row_grad (ROWS) */
    real *vectors[RPI_MAX_SOURCES];   /* [span][width padded] one head's gradients, starting at vector vectors_low */
    int64_t vectors_low[RPI_MAX_SOURCES], vectors_span[RPI_MAX_SOURCES];
    double *column; /* [BACKWARD_KEYS] sums of ds over rows, for COLUMN sources */
    /* One head's sums of ds for schemes with a `reduce` function; NULL if no term has such a scheme. p_i is the last
     * key that row i may attend to. */
    double *past, /* [BACKWARD_KEYS] sum for each key over the rows whose p_i is the task's last key or later */
        *inside,  /* [BACKWARD_KEYS] sum for each key t over the pairs of the other rows with j < t <= p_i */
        *rows_to; /* [Lk] sum over the task's keys and all rows with the same p_i, stored at p_i */
    double softcap[RPI_SOFTCAPS]; /* one head's gradients of the softcaps */
    uint8_t *large_k, *large_v, *large_dout, *large_rows;
    real *norms;                   /* the largest key norm of each panel, for skipping tiles */
    products_backward products;    /* scratch of the backend */
    rpi_sums *private_sums;        /* [RP_MAX_TERMS] gradients of the terms that are computed pair by pair */
    struct second_scratch *second; /* second derivatives only; else NULL */
} backward_scratch;

/* The scratch of a task with second derivatives, in addition (second_tile.h). */
typedef struct second_scratch {
    backward_scratch inputs; /* of the call with the tangents of q, k and v; shares the sums of the task */
    block arrays;            /* the queries, with the tangents of the biases; shares inputs.k.s */
    real *run_dq;            /* like backward_scratch.run_dq, from the derivatives by the tangents */
    double *column;          /* like backward_scratch.column, likewise */
} second_scratch;

/* Return the number of the source of a call that is like source s of another one, or -1. */
static int32_t source_like(const rpi_call *c, const rpi_source *s)
{
    for (int32_t n = 0; n < c->n_sources; n++)
        if (c->source[n].term == s->term && c->source[n].kind == s->kind &&
            rpi_vectors_of(&c->source[n])->product == rpi_vectors_of(s)->product)
            return n;
    return -1;
}

/* Return true if the source finds its vectors by an index, not by the offset. */
static bool gathers(const rpi_source *s)
{
    return (s->kind == RPI_RUN || s->kind == RPI_VALUES) && s->run.gather;
}

/* Return the largest number of a source's vectors that one task uses. */
static int64_t reach_of(const rpi_call *c, const rpi_source *s)
{
    const int64_t padded = rpi_vectors_of(s)->padded;
    return gathers(s) ? padded : rpi_min(padded, rpi_round_up(c->limits->rows + BACKWARD_KEYS + NR, NR));
}

/* Return the number of sums that a source keeps for one head: one for each entry (GATHER), those of row_grad (ROWS),
 * else 0. */
static int64_t sums_of(const rpi_source *s)
{
    return s->kind == RPI_GATHER ? s->gather.index.count : s->kind == RPI_ROWS ? s->rows.sums : 0;
}

static void products_layout(const rpi_call *c, backward_scratch *w, rpi_arena *a);

static void key_sums_layout(const rpi_call *c, key_sums *s, bool plain, rpi_arena *a)
{
    const int64_t wide_k = rpi_round_up(c->plan->desc.dim_k, VL), wide_v = rpi_round_up(c->plan->desc.dim_v, VL);
    s->dk = take_reals(a, key_sums_rows, wide_k);
    s->dv = take_reals(a, key_sums_rows, wide_v);
    if (plain)
        s->dk_plain = take_reals(a, key_sums_rows, wide_k);
}

/* Return the number of the block of keys that begins at key j0, counted from the call's first key. */
static inline int64_t key_block_of(const rpi_call *c, int64_t j0)
{
    return (j0 - c->args->key_from) / BACKWARD_KEYS;
}

/* Return the number of the block that begins at row row0, counted from the call's first row. */
static inline int64_t row_block_of(const rpi_call *c, int64_t row0)
{
    return (row0 - c->args->row_from) / BLOCK_ROWS;
}

/* Return the index of row row0 of a head of the group in rpi_backward.dq and run_dq. */
static inline int64_t sums_row_of(const rpi_call *c, int64_t head, int64_t row0)
{
    return head * c->backward->rows + row0 - c->args->row_from;
}

static void backward_layout(const rpi_call *c, backward_scratch *w, rpi_arena *a)
{
    const rp_desc *d = &c->plan->desc;
    const int64_t wide_k = rpi_round_up(d->dim_k, VL), wide_v = rpi_round_up(d->dim_v, VL);
    bool plain = false, reduces = false;
    memset(w, 0, sizeof *w);
    block_layout(c, &w->k, a);
    w->keys = take_reals(a, BACKWARD_KEYS, d->dim_k);
    w->dout = take_reals(a, BLOCK_ROWS, wide_v);
    w->dp = take_reals(a, BLOCK_ROWS, ROW_STEP);
    w->dq = take_reals(a, BLOCK_ROWS, wide_k);
    caps_layout(c, &w->k, c->limits->softcap, a);
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        const rpi_vectors *v = rpi_vectors_of(s);
        plain |= s->kind == RPI_KEYS || s->kind == RPI_COLUMN;
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
    key_sums_layout(c, &w->head, plain, a);
    w->all = w->head; /* the sums of a single head are those of the kv head */
    if (d->heads > d->kv_heads)
        key_sums_layout(c, &w->all, plain, a);
    w->sums_step += 2 * NR; /* room for one more group of vectors, and not a power of two */
    w->run_queries = take_reals(a, BLOCK_ROWS, w->widest);
    w->run_dq = take_reals(a, BLOCK_ROWS, w->widest);
    w->sums = take_reals(a, BLOCK_ROWS, w->sums_step);
    w->strip = rpi_arena_take(a, c->limits->rows + BACKWARD_KEYS, 1, sizeof(double));
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

/* Lay out the scratch of a task and, for second derivatives, the scratch of its tangents. */
static void task_layout(const rpi_call *c, backward_scratch *w, second_scratch *second, rpi_arena *a)
{
    const rp_desc *d = &c->plan->desc;
    backward_layout(c, w, a);
    if (!c->jvp)
        return;
    w->second = second;
    backward_layout(&c->jvp->inputs, &second->inputs, a);
    block_layout(&c->jvp->arrays, &second->arrays, a);
    second->arrays.s = second->inputs.k.s;
    second->run_dq = take_reals(a, BLOCK_ROWS, w->widest);
    second->column = rpi_arena_take(a, BACKWARD_KEYS, 1, sizeof(double));
    if (d->softcap > 0)
        second->inputs.k.slope_tangent = take_reals(a, BLOCK_ROWS, ROW_STEP);
    if (d->softcap_after > 0)
        second->inputs.k.slope_after_tangent = take_reals(a, BLOCK_ROWS, ROW_STEP);
}

static int64_t backward_size(const rpi_call *c)
{
    backward_scratch w;
    second_scratch second;
    rpi_arena a = {0};
    task_layout(c, &w, &second, &a);
    return rpi_arena_size(&a);
}
