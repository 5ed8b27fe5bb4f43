/* kernels/backward_terms.h -- add a tile of ds to one head's sums for each term: by offset, entry, vector, row or pair.
 * Names no scheme: sources/choose.c chooses the source of each form (OFFSET becomes STRIP, or GATHER if positions are
 * given). merge_head (backward_task.h) adds these sums to the sums of the call, and engine/reduce.c turns them into
 * gradients.
 * Parameters: MR, BLOCK_ROWS, BACKWARD_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "key_sums.h" /* lets an editor parse this file on its own */
#endif

/* STRIP: sum ds for each offset. merge_head (backward_task.h) and engine/reduce.c pass the sums to `grad` of each
 * OFFSET term. */
static void strip_gradient(backward_scratch *w, const tile *t)
{
    block *k = &w->k;
    const rp_desc *d = &k->c->args->desc;
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0);
    memset(k->diagonal + BLOCK_ROWS - k->rows, 0, reals(k->rows + t->end, 1));
    /* row r adds to the same sums as row r - 1, shifted by one element */
    for (int64_t r = 0; r < k->rows; r++) {
        const real *ds = w->dp + r * ROW_STEP;
        real *to = k->diagonal + BLOCK_ROWS - 1 - r;
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL)
            vf_store(to + j, vf_load(to + j) + vf_load(ds + j));
    }
    /* diagonal[n] is for j - i = tile0 + n - (BLOCK_ROWS - 1) - row0; strip[0] is for the call's last row and key
     * tile0 */
    for (int64_t n = BLOCK_ROWS - k->rows; n < BLOCK_ROWS - 1 + keys; n++)
        w->strip[n - (BLOCK_ROWS - 1) - k->row0 + k->c->args->row_to - 1] += (double)k->diagonal[n];
}

#ifdef __clang__
#define REVERSED(x) __builtin_shufflevector(x, x, 7, 6, 5, 4, 3, 2, 1, 0)
#else
#define REVERSED(x) __builtin_shuffle(x, (eight_bits){7, 6, 5, 4, 3, 2, 1, 0})
#endif

/* Add columns [from, to) of x, which is row r, to the sums of their entries; sums[0] is for entry `first`. If all keys
 * of a chunk have the same entry or consecutive entries, add them as vectors. */
static void sum_by_index(const block *k, const rpi_indices *s, const key_chunks *chunks, const tile *t, int64_t r,
                         const real *x, int64_t from, int64_t to, int64_t first, double *sums)
{
    typedef double eight __attribute__((vector_size(64)));
    typedef double loose __attribute__((vector_size(64), aligned(8), may_alias));
#ifndef __clang__
    typedef int64_t eight_bits __attribute__((vector_size(64)));
#endif
#if RPI_F64
    typedef loose narrow;
#else
    typedef float narrow __attribute__((vector_size(32), aligned(4), may_alias));
#endif
    const int32_t *key = s->k_int + k->b * s->k_step + t->tile0;
    const int64_t q = s->q_int[k->b * s->q_step + row_of(k, r)], max = s->count - 1;
    int64_t current = first; /* the entry whose sum is in `all` */
    eight all = {0};
    for (int64_t j = from, end; j < to; j = end) {
        const int64_t c = j / INDEX_KEYS, low = rpi_clamp(chunks->low[c] - q, 0, max),
                      high = rpi_clamp(chunks->high[c] - q, 0, max);
        const bool one = low == high;
        end = rpi_min((c + 1) * INDEX_KEYS, to);
        if (end - j < INDEX_KEYS || !(one || (chunks->step[c] && high - low == INDEX_KEYS - 1))) {
            for (; j < end; j++)
                sums[rpi_clamp(key[j] - q, 0, max) - first] += (double)x[j];
            continue;
        }
        const eight a = __builtin_convertvector(*(const narrow *)(x + j), eight),
                    b = __builtin_convertvector(*(const narrow *)(x + j + 8), eight);
        if (!one) {
            loose *at = (loose *)(sums + low - first), *past = (loose *)(sums + low - first + 8);
            *at += chunks->step[c] > 0 ? a : REVERSED(b);
            *past += chunks->step[c] > 0 ? b : REVERSED(a);
            continue;
        }
        if (low != current) {
            for (int lane = 0; lane < 8; lane++)
                sums[current - first] += all[lane];
            all = (eight){0};
            current = low;
        }
        all += a + b;
    }
    for (int lane = 0; lane < 8; lane++)
        sums[current - first] += all[lane];
}

/* Sums by entry: one for each, or, if `lane` is not NULL, four. Neighbours often have the same entry, and each addition
 * would wait for the previous one; so neighbours add to different sums. */
enum { ADDED_LANES = 4, FEW_ENTRIES = 256 };
typedef double added_lanes[ADDED_LANES];

#define ADD_EACH(index)                                                                                                \
    if (lane)                                                                                                          \
        for (int64_t j = 0; j < n; j++)                                                                                \
            lane[(index)[j]][j % ADDED_LANES] += (double)x[j];                                                         \
    else                                                                                                               \
        for (int64_t j = 0; j < n; j++)                                                                                \
        sums[(index)[j]] += (double)x[j]

/* Add n numbers x to the sums of their entries. The indices are n elements of the array v, from `at` on. */
static void add_by_index(block *k, const rpi_view *v, int64_t at, int64_t n, const real *x, double *sums,
                         added_lanes *lane)
{
    if (v->dtype == RP_U8 && v->stride[3] == 1) {
        ADD_EACH((const uint8_t *)v->data + at);
    } else if (v->dtype == RP_U16 && v->stride[3] == 1) {
        ADD_EACH((const uint16_t *)v->data + at);
    } else {
        rpi_integers(k->given_index, v, at, n);
        ADD_EACH(k->given_index);
    }
}

/* GATHER by_array: like entries_gradient. */
static void array_gradient(backward_scratch *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_source *s = &k->c->source[n];
    const rpi_view *v = rpi_source_indices(k->c->args, s);
    const int64_t count = s->gather.index.count, keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    double *sums = w->entries[n];
    added_lanes lane[FEW_ENTRIES];
    const bool few = count <= FEW_ENTRIES;
    if (few)
        memset(lane, 0, (size_t)count * sizeof *lane);
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t from = t->from[r / MR];
        add_by_index(k, v, rpi_index(v, k->b, k->h, row_of(k, r), t->tile0 + from), rpi_min(t->to[r / MR], keys) - from,
                     w->dp + r * ROW_STEP + from, sums, few ? lane : NULL);
    }
    for (int64_t e = 0; few && e < count; e++)
        sums[e] += lane[e][0] + lane[e][1] + (lane[e][2] + lane[e][3]);
}

/* GATHER: sum ds for each entry. merge_head and engine/reduce.c pass the sums to `entry_grad`. */
static void entries_gradient(backward_scratch *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_source *s = &k->c->source[n];
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    double *sums = w->entries[n];
    key_chunks chunks;
    const bool chunked = find_chunks(k, &s->gather.index, t, &chunks);
    for (int64_t r = 0; r < k->rows; r++) {
        const real *ds = w->dp + r * ROW_STEP;
        if (chunked) {
            sum_by_index(k, &s->gather.index, &chunks, t, r, ds, t->from[r / MR], rpi_min(t->to[r / MR], keys), 0,
                         sums);
            continue;
        }
        find_index(k, &s->gather.index, t, r, keys);
        for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++) {
            if (k->index[j] >= 0) {
                sums[k->index[j]] += (double)ds[j];
            } else if (s->scheme->class_token) { /* otherwise the query or key has no position, and the term adds 0 */
                rpi_pair p = pair_of_row(k, s, r);
                rpi_pair_key(k->c->args, &p, t->tile0 + j);
                sums[rpi_source_index(s, &p)] += (double)ds[j];
            }
        }
    }
}

/* ROWS of a scheme without row_grad or `reduce`: pass ds of each pair to the derivative of the definition.
 * merge_private_sums (backward_task.h) adds the workers' sums. */
static void pairs_gradient(backward_scratch *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_source *s = &k->c->source[n];
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++) {
        rpi_pair p = pair_of_row(k, s, r);
        for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++) {
            const real ds = w->dp[r * ROW_STEP + j];
            if (ds == 0)
                continue;
            rpi_pair_key(k->c->args, &p, t->tile0 + j);
            rpi_definition_grad(&p, (double)ds, &w->private_sums[s->term]);
        }
    }
}

/* ROWS of a scheme with row_grad: call row_grad for each row. merge_head and engine/reduce.c pass the sums to
 * `reduce_sums`. */
static void rows_gradient(backward_scratch *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_source *s = &k->c->source[n];
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t from = t->from[r / MR], to = rpi_min(t->to[r / MR], keys);
        const rpi_pair p = pair_of_row(k, s, r);
        for (int64_t j = from; j < to; j++)
            k->row[j] = (double)w->dp[r * ROW_STEP + j];
        if (from < to)
            s->scheme->row_grad(&p, t->tile0 + from, to - from, k->row + from, w->entries[n]);
    }
}

/* ROWS of an array with one element for each pair: the gradient is ds, so store ds as the output. If `some` is false,
 * no pair of the tile is computed; store zeros. */
static void direct_gradient(backward_scratch *w, int64_t tile0, int32_t n, bool some)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_view v = rpi_sample(&c->grads->term[c->source[n].term][0], k->b);
    const int64_t keys = rpi_min(BACKWARD_KEYS, c->args->desc.len_k - tile0);
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t at = rpi_index(&v, k->b, k->h, k->row0 + r, tile0);
        real *ds = w->dp + r * ROW_STEP;
        if (!some)
            memset(ds, 0, reals(keys, 1));
        if (v.stride[3] == 1)
            store_channels(v.data, v.dtype, at, ds, keys);
        else
            for (int64_t j = 0; j < keys; j++)
                rpi_put(v.data, v.dtype, at + j * v.stride[3], (double)ds[j]);
    }
}

/* ROWS of an array with an element for each pair that heads or batch entries share: add ds to the array's sums in the
 * order of the heads. rpi_sums_store writes them. */
static void shared_gradient(backward_scratch *w, const tile *t, int32_t n)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    const rpi_view v = rpi_sample(&bw->sums.term[c->source[n].term].array[0], k->b);
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0),
                  entry = rpi_batch_entry(c->args, c->source[n].term, k->b);
    rpi_ticket_wait(bw->ticket_pairs + row_block_of(c, k->row0) * bw->key_blocks + key_block_of(c, t->tile0),
                    k->b * d->heads + k->h);
    for (int64_t r = 0; r < k->rows; r++) {
        double *to = (double *)v.data + rpi_index(&v, entry, k->h, k->row0 + r, t->tile0);
        for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++)
            to[j] += (double)w->dp[r * ROW_STEP + j];
    }
}

/* Recompute non-finite query gradients of group g from vectors [low + from, low + to). A non-finite vector should
 * contribute only to rows whose sum for it is not 0, but the product of a group has added 0 * NaN to all its rows. */
static void repair_run_dq(const backward_scratch *w, const block *k, const rpi_vectors *v, int64_t g, int64_t from,
                          int64_t to, int64_t low, real *run_dq)
{
    const int64_t wide = rpi_round_up(v->width, VL);
    real *columns = (real *)v->columns + k->h * v->columns_step;
    for (int64_t r = g * MR; r < g * MR + MR; r++) {
        const real *sums = w->sums + r * w->sums_step;
        real *dq = run_dq + r * wide;
        magnitude size = {vf_set1(0)};
        for (int64_t x = 0; x < wide; x += VL)
            note_magnitude(&size, vf_load(dq + x));
        const bool repair = !is_finite(&size);
        for (int64_t x = 0; repair && x < wide; x++) {
            dq[x] = 0;
            for (int64_t e = from; e < to; e++)
                if (sums[e] != 0)
                    dq[x] += sums[e] * *in_column(columns, v->padded, low + e, wide, x);
        }
    }
}

/* The vectors of a RUN or VALUES source that the rows of a tile use: [low, high), and the range of each group of rows,
 * counted from `low`. */
typedef struct used_vectors {
    int64_t low, high, from[BLOCK_ROWS / MR], to[BLOCK_ROWS / MR];
    bool chunked; /* the ranges were found from `chunks` */
    key_chunks chunks;
} used_vectors;

static void find_used_vectors(used_vectors *u, const block *k, const rpi_run *run, const tile *t)
{
    const rpi_vectors *v = &run->vectors;
    const int64_t last = k->groups * MR - 1, R = v->count;
    u->low = rpi_clamp(vector_of(k, v, t, last), 0, R - 1);
    u->high = rpi_clamp(vector_of(k, v, t, 0) + t->end, 1, R);
    u->chunked = run->gather && find_chunks(k, &run->index, t, &u->chunks);
    if (run->gather)
        find_reach(k, &run->index, u->chunked ? &u->chunks : NULL, t, 0, k->rows, &u->low, &u->high);
    if (u->chunked && u->high - u->low > TILE_KEYS) { /* k->row has room for TILE_KEYS sums */
        u->chunked = false;
        find_reach(k, &run->index, NULL, t, 0, k->rows, &u->low, &u->high);
    }
    for (int64_t g = 0; g < k->groups; g++) {
        u->from[g] = u->low;
        u->to[g] = u->high;
        if (u->chunked)
            find_reach(k, &run->index, &u->chunks, t, g * MR, rpi_min(g * MR + MR, k->rows), &u->from[g], &u->to[g]);
        u->from[g] -= u->low;
        u->to[g] -= u->low;
    }
}

/* For each row, sum x over the keys that use the same vector: w->sums[row][vector - u->low]. */
static void sum_by_vector(backward_scratch *w, const tile *t, const rpi_run *run, const used_vectors *u, const real *x)
{
    block *k = &w->k;
    const rpi_vectors *v = &run->vectors;
    const int64_t n = u->high - u->low, keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    for (int64_t r = 0; r < k->groups * MR; r++) {
        real *sums = w->sums + r * w->sums_step;
        const int64_t from = t->from[r / MR], to = rpi_min(t->to[r / MR], keys);
        if (r < k->rows && u->chunked) {
            memset(k->row, 0, (size_t)n * sizeof(double));
            sum_by_index(k, &run->index, &u->chunks, t, r, x + r * ROW_STEP, from, to, u->low, k->row);
            for (int64_t e = 0; e < n; e++)
                sums[e] = (real)k->row[e];
            memset(sums + n, 0, reals(MR, 1));
            continue;
        }
        memset(sums, 0, reals(n + MR, 1));
        if (r >= k->rows)
            continue;
        if (run->gather) {
            find_index(k, &run->index, t, r, keys);
            collect_gather(k, x + r * ROW_STEP, from, to, sums);
        } else {
            collect_run(x + r * ROW_STEP, from, t->to[r / MR], vector_of(k, v, t, r), v->count,
                        v->product->zero_outside, sums, u->low);
        }
    }
}

/* RUN and VALUES: for each row, sum x over the keys that use the same vector of `run`. Set run_dq, unless it is NULL,
 * to these sums times the vectors: the gradient of the queries. If `wanted`, add the sums times `queries` to
 * w->vectors[n]: the gradient of the vectors. */
static void vectors_gradient(backward_scratch *w, const tile *t, int32_t n, const rpi_run *run, const real *x,
                             const real *queries, real *run_dq, bool wanted)
{
    block *k = &w->k;
    const rpi_vectors *v = &run->vectors;
    const int64_t wide = rpi_round_up(v->width, VL), step = w->sums_step;
    used_vectors u;
    find_used_vectors(&u, k, run, t);
    sum_by_vector(w, t, run, &u, x);
    if (run_dq) {
        memset(run_dq, 0, reals(k->groups * MR, wide));
        for (int64_t g = 0; g < k->groups; g++) {
            add_values(w->sums + g * MR * step, step, u.from[g], u.to[g],
                       (const real *)v->columns + k->h * v->columns_step, u.low, v->padded, run_dq + g * MR * wide,
                       wide, ones, -1);
            repair_run_dq(w, k, v, g, u.from[g], u.to[g], u.low, run_dq);
        }
    }
    if (wanted) {
        const real *columns =
            rows_as_columns(queries, k->groups * MR, wide, false, w->run_queries, BLOCK_ROWS, w->large_rows);
        for (int64_t e = 0; e < u.high - u.low; e += MR)
            for (int64_t g = 0, past; g < k->groups; g = past + 1) { /* groups [g, past) use some of these vectors */
                for (past = g; past < k->groups && u.from[past] < e + MR && u.to[past] > e;)
                    past++;
                if (g < past)
                    add_transposed(w->sums + e, step, g * MR, past * MR, columns, BLOCK_ROWS,
                                   w->vectors[n] + (u.low - w->vectors_low[n] + e) * wide, wide);
            }
    }
}

/* RUN: set w->run_dq to the gradient of the queries (dq), and add to that of the vectors (wanted). For second
 * derivatives, ds' times the tangents of the vectors and of the queries belong to both. */
static void run_gradient(backward_scratch *w, const tile *t, int32_t n, bool dq, bool wanted)
{
    const block *k = &w->k;
    const rpi_source *s = &k->c->source[n];
    vectors_gradient(w, t, n, &s->run, w->dp, k->vec[n].queries, dq ? w->run_dq : NULL, wanted);
    if (!w->second)
        return;
    const rpi_call *arrays = &k->c->jvp->arrays;
    const block *inputs = &w->second->inputs.k;
    const int32_t of_query = source_like(&k->c->jvp->inputs, s), of_vector = source_like(arrays, s);
    real *more = dq && of_vector >= 0 ? w->second->run_dq : NULL;
    if (!more && !(wanted && of_query >= 0))
        return;
    vectors_gradient(w, t, n, of_vector >= 0 ? &arrays->source[of_vector].run : &s->run, w->second->inputs.dp,
                     of_query >= 0 ? inputs->vec[of_query].queries : NULL, more, wanted && of_query >= 0);
    for (int64_t x = 0; more && x < k->rows * rpi_round_up(s->run.vectors.width, VL); x += VL)
        vf_store(w->run_dq + x, vf_load(w->run_dq + x) + vf_load(more + x));
}

/* KEYS: for each pair, add ds times its vector (v) to dk, and ds times its key (row of `rows`) to the gradient of the
 * vector. Either may be NULL. merge_head and engine/reduce.c use the gradients of the vectors. */
static void keys_products(backward_scratch *w, const tile *t, int32_t n, const real *dp, const rpi_vectors *v,
                          const rpi_view *rows, bool with_vectors, bool wanted)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t wide = rpi_round_up(v->width, VL), keys = rpi_min(t->end, d->len_k - t->tile0);
    const int64_t g = k->h / (d->heads / d->kv_heads);
    real scratch[CHANNELS];
    for (int64_t j = 0; j < keys && wanted; j++) {
        real *to = k->keys_scratch + j * wide;
        const void *row = rpi_row_of(rows, k->b, g, t->tile0 + j);
        for (int64_t x0 = 0; x0 < wide; x0 += CHANNELS) {
            const int64_t m = rpi_clamp(v->width - x0, 0, CHANNELS);
            const real *from = load_channels(rows, row, x0, m, scratch);
            for (int64_t x = 0; x < rpi_min(CHANNELS, wide - x0); x++)
                to[x0 + x] = x < m ? from[x] : 0;
        }
    }
    const real *vectors = (const real *)v->columns + k->h * v->columns_step;
    const real factor = (real)v->factor;
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++) {
            const real ds = dp[r * ROW_STEP + j];
            if (ds == 0)
                continue;
            const int64_t e = rpi_clamp(vector_of(k, v, t, r) + j, 0, v->count - 1);
            const vf scaled = vf_set1(ds * factor);
            real *dk = w->head.dk_plain + j * wide, *dv = w->vectors[n] + (e - w->vectors_low[n]) * wide;
            for (int64_t x0 = 0; x0 < wide; x0 += NR) {
                const int64_t step = rpi_min(NR, wide - x0);
                for (int64_t x = 0; x < step; x += VL) {
                    if (with_vectors)
                        vf_store(dk + x0 + x, vf_fma(scaled, vf_load(vectors + x0 * v->padded + e * step + x),
                                                     vf_load(dk + x0 + x)));
                    if (wanted)
                        vf_store(dv + x0 + x,
                                 vf_fma(scaled, vf_load(k->keys_scratch + j * wide + x0 + x), vf_load(dv + x0 + x)));
                }
            }
        }
}

static void keys_gradient(backward_scratch *w, const tile *t, int32_t n, bool wanted)
{
    const rpi_call *c = w->k.c;
    const rpi_source *s = &c->source[n];
    keys_products(w, t, n, w->dp, &s->keys.vectors, &c->args->k, true, wanted);
    if (!w->second)
        return;
    const rpi_call *arrays = &c->jvp->arrays;
    const rpi_view *keys = &c->jvp->inputs.args->k;
    const int32_t of_vector = source_like(arrays, s);
    if (of_vector >= 0 || keys->data)
        keys_products(w, t, n, w->second->inputs.dp,
                      of_vector >= 0 ? &arrays->source[of_vector].keys.vectors : &s->keys.vectors, keys, of_vector >= 0,
                      wanted && keys->data);
}

/* COLUMN: sum ds over the rows, for each key. use_columns (backward_task.h) and engine/reduce.c use the sums. */
static void sum_columns(const block *k, const tile *t, const real *dp, double *column)
{
    for (int64_t r = 0; r < k->rows; r++) {
        const real *ds = dp + r * ROW_STEP;
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j++)
            column[j] += (double)ds[j];
    }
}

/* Sum ds for schemes with `reduce`. merge_between (backward_task.h) and engine/reduce.c use the sums. */
static void sum_between(backward_scratch *w, const tile *t)
{
    block *k = &w->k;
    const rp_desc *d = &k->c->args->desc;
    const int64_t keys = rpi_min(BACKWARD_KEYS, d->len_k - t->tile0);
    for (int64_t r = 0; r < k->rows; r++) {
        const real *ds = w->dp + r * ROW_STEP;
        const int64_t from = t->from[r / MR], to = rpi_min(t->to[r / MR], keys),
                      last = rpi_min(k->position[r], d->len_k - 1) -
                             t->tile0; /* last key that the row may attend to, relative to tile0 */
        double sum = 0;
        if (last >= keys - 1) {
            for (int64_t j = from; j < to; j++) {
                w->past[j] += (double)ds[j];
                sum += (double)ds[j];
            }
            w->rows_to[t->tile0 + last] += sum;
            continue;
        }
        for (int64_t x = from; x <= last; x++) {
            w->inside[x] += sum;
            sum += x < to ? (double)ds[x] : 0;
        }
    }
}

static bool term_wanted(const rpi_call *c, const rpi_source *s)
{
    return c->limits->term[s->term].wanted;
}

/* Sum ds for the terms inside the softcap if `inside` is set, else for the terms outside. */
static void terms_gradient(backward_scratch *w, const tile *t, bool inside, int64_t head)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_backward *bw = c->backward;
    bool reduced = false;
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        if (s->kind == RPI_VALUES)
            continue; /* tile_backward computes its gradient from the weights */
        const bool in = s->inside || c->args->desc.softcap == 0;
        if (in != inside)
            continue;
        if (s->kind == RPI_STRIP) {
            if (bw->strips)
                strip_gradient(w, t);
            continue;
        }
        const bool wanted = term_wanted(c, s);
        switch (s->kind) {
        case RPI_RUN: {
            const bool dq = bw->run_dq[n] != NULL;
            if (!dq && !wanted)
                break;
            run_gradient(w, t, n, dq, wanted);
            const int64_t wide = rpi_round_up(s->run.vectors.width, VL);
            real *to = dq ? (real *)bw->run_dq[n] + sums_row_of(c, head, k->row0) * wide : NULL;
            if (dq)
                rpi_ticket_wait(bw->ticket_run_dq[n] + head * bw->blocks + row_block_of(c, k->row0),
                                key_block_of(c, t->tile0));
            for (int64_t x = 0; dq && x < k->rows * wide; x += VL)
                vf_store(to + x, vf_load(to + x) + vf_load(w->run_dq + x));
            if (dq)
                rpi_ticket_pass(bw->ticket_run_dq[n] + head * bw->blocks + row_block_of(c, k->row0));
            break;
        }
        case RPI_GATHER:
            if (wanted && s->gather.by_array)
                array_gradient(w, t, n);
            else if (wanted)
                entries_gradient(w, t, n);
            break;
        case RPI_KEYS: keys_gradient(w, t, n, wanted); break;
        case RPI_COLUMN:
            sum_columns(k, t, w->dp, w->column);
            if (w->second)
                sum_columns(k, t, w->second->inputs.dp, w->second->column);
            break;
        default:
            if (!wanted)
                break;
            if (bw->direct[n])
                direct_gradient(w, t->tile0, n, true);
            else if (bw->pairs[n])
                shared_gradient(w, t, n);
            else if (w->entries[n])
                rows_gradient(w, t, n);
            else if (!s->scheme->reduce)
                pairs_gradient(w, t, n);
            else if (!reduced)
                sum_between(w, t);
            reduced |= s->scheme->reduce != NULL; /* all terms with `reduce` read the same sums */
        }
    }
}
