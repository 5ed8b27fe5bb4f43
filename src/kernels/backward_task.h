/* kernels/backward_task.h -- the backward pass of a block of keys: recompute the weights from lse, then compute the
 * five products. Independent of the backend; names no scheme.
 * Parameters: BLOCK_ROWS, BACKWARD_KEYS.
 *
 * A task computes the gradients of BACKWARD_KEYS keys of one kv head. It visits each query head of the kv head, in
 * blocks of BLOCK_ROWS rows:
 *
 *     scores s, weights p = exp(s - lse)       dp = dout v^T       ds = p (dp - <dout, out>)
 *     dv += p^T dout     dk += ds^T q          dq += ds k          biases: sums of ds
 *
 * If the caller gives gradients of weights or their summaries, dp has more summands (weight_gradients.h). Then the
 * tasks run twice: first to add sum_j w dp of these summands to row_stats (bw->sums_only), then for the gradients.
 *
 * Only this task writes dk and dv of its keys. Several tasks add to dq, to the sums of a head and to the sums of pairs.
 * Tickets make them add in the order of the tasks. Tasks start in the same order, so a task only waits for tasks that
 * have already started.
 *
 * How the gradient of a term is computed: engine/backward.c starts the tasks. `backward` below opens tiles.
 * tile_backward (backward_tile.h) computes ds of each tile. terms_gradient (backward_terms.h) sums ds for each term.
 * merge_head below adds a head's sums to the sums of the call. rpi_reduce (engine/reduce.c) passes these to the
 * derivatives in the definitions of the schemes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "second_tile.h" /* lets an editor parse this file on its own */
#endif

/* Add the task's contribution to the sums `between`. For one of the task's keys t, add sums from `past` and `inside`.
 * For a later key t, add rows_to of the rows that may attend to t. The code only adds, so a small gradient is not lost
 * to cancellation. */
static void merge_between(const backward_scratch *w, int64_t j0)
{
    const block *k = &w->k;
    const rp_desc *d = &k->c->args->desc;
    const int64_t keys = rpi_min(BACKWARD_KEYS, d->len_k - j0);
    double *to = k->c->backward->between + (k->b * d->heads + k->h) * d->len_k, sum = 0;
    for (int64_t x = 1; x < keys; x++) {
        sum += w->past[x - 1];
        to[j0 + x] += sum + w->inside[x];
    }
    sum = 0;
    for (int64_t t = d->len_k - 1; t >= j0 + keys; t--) {
        sum += w->rows_to[t];
        to[t] += sum;
    }
}

/* Wait until the earlier tasks have added their sums for the head (of the batch entry, if each entry has sums of its
 * own), then add this task's sums to the sums of the call, which rpi_reduce (engine/reduce.c) reads. */
static void merge_head(backward_scratch *w, int64_t j0, int64_t key_block)
{
    const block *k = &w->k;
    const rpi_call *c = k->c;
    rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    const int64_t rows = c->args->row_to - c->args->row_from, sample = c->limits->per_sample ? k->b : 0,
                  head = sample * d->heads + k->h;
    rpi_ticket_wait(&bw->ticket_head[head], (k->b - sample) * bw->key_blocks + key_block);
    if (bw->between)
        merge_between(w, j0);
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        const rpi_vectors *v = rpi_vectors_of(s);
        if (s->kind == RPI_STRIP && bw->strips) {
            /* entry 0 of the task's strip is for the call's last row and key j0 */
            double *to = bw->strips + ((s->strip.batch_step ? k->b : sample) * d->heads + k->h) * s->strip.len;
            const int64_t at =
                j0 - rpi_position(c->args, k->b, c->args->row_to - 1) - rpi_strip_low(&s->strip, c->args, k->b);
            for (int64_t e = 0; e < rows - 1 + rpi_min(BACKWARD_KEYS, d->len_k - j0); e++)
                to[at + e] += w->strip[e];
        }
        if (bw->entries[n])
            for (int64_t e = 0; e < sums_of(s); e++)
                bw->entries[n][head * sums_of(s) + e] += w->entries[n][e];
        if (bw->vectors[n]) {
            const int64_t wide = rpi_round_up(v->width, VL);
            double *to = bw->vectors[n] + head * v->count * v->width;
            for (int64_t e = 0; e < w->vectors_span[n] && e + w->vectors_low[n] < v->count; e++)
                for (int64_t x = 0; x < v->width; x++)
                    to[(e + w->vectors_low[n]) * v->width + x] += (double)w->vectors[n][e * wide + x];
        }
    }
    rpi_ticket_pass(&bw->ticket_head[head]);
}

/* Reset the sums of one head to zero. */
static void begin_head(backward_scratch *w, int64_t j0)
{
    const rpi_call *c = w->k.c;
    const rp_desc *d = &c->args->desc;
    const size_t keys = (size_t)rpi_round_up(rpi_min(BACKWARD_KEYS, d->len_k - j0), VL);
    if (c->backward->strips)
        memset(w->strip, 0, ((size_t)(c->args->row_to - c->args->row_from) + keys) * sizeof(double));
    memset(w->column, 0, keys * sizeof(double));
    memset(w->softcap, 0, sizeof w->softcap);
    if (w->second)
        memset(w->second->column, 0, keys * sizeof(double));
    if (c->backward->between) {
        memset(w->past, 0, BACKWARD_KEYS * sizeof(double));
        memset(w->inside, 0, BACKWARD_KEYS * sizeof(double));
        memset(w->rows_to, 0, (size_t)d->len_k * sizeof(double));
    }
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        const rpi_vectors *v = rpi_vectors_of(s);
        if (w->entries[n])
            memset(w->entries[n], 0, (size_t)sums_of(s) * sizeof(double));
        if (!v)
            continue;
        memset(w->vectors[n], 0, reals(w->vectors_span[n] + MR, rpi_round_up(v->width, VL)));
        const int64_t last = c->args->row_to - 1,
                      first =
                          j0 - (v->product->without_q_offset ? last : rpi_position(c->args, w->k.b, last)) - v->first;
        w->vectors_low[n] = gathers(s) ? 0 : rpi_clamp(first, 0, v->count - 1);
        if (!gathers(s) && w->vectors_span[n] >= v->count)
            w->vectors_low[n] = 0;
    }
}

/* Add the products of the sums of ds over the rows of a head with a vector to the gradients of the keys. Return those
 * with channel x of the keys: the gradient of the vector. p.array has the vector's array, absent if the vector is 0; so
 * may `rows` be. */
static double column_products(backward_scratch *w, const double *column, const rpi_vectors *v, const rpi_pair *p,
                              const rpi_view *rows, int64_t j0, int64_t keys, int64_t g, int64_t x)
{
    const int64_t wide = rpi_round_up(w->k.c->args->desc.dim_k, VL);
    const double vec = p->array[v->product->array].data ? v->product->vec(p, 0, x) : 0;
    double sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        if (column[j] == 0) /* masked key: it must not become NaN if the vector has a NaN */
            continue;
        w->head.dk_plain[j * wide + x] += (real)(column[j] * v->factor * vec);
        sum += rows->data ? column[j] * rpi_row_value(rows, w->k.b, g, j0 + j, x) : 0;
    }
    return sum;
}

/* Compute the gradients of COLUMN terms from the sums of ds over the rows of a head: add to the gradient of the keys,
 * and store the gradient of the vector. */
static void use_columns(backward_scratch *w, int64_t j0, int64_t keys, int64_t g)
{
    const block *k = &w->k;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    rpi_backward *bw = c->backward;
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        if (s->kind != RPI_COLUMN)
            continue;
        const rpi_vectors *v = &s->column.vectors;
        const rpi_args *inputs = c->jvp ? c->jvp->inputs.args : c->args;
        const rpi_pair p = rpi_pair_of(c->args, s->term, k->b, k->h, 0),
                       tangents = rpi_pair_of(inputs, s->term, k->b, k->h, 0);
        for (int64_t x = 0; x < v->width; x++) {
            double sum = column_products(w, w->column, v, &p, &c->args->k, j0, keys, g, x);
            if (w->second)
                sum += column_products(w, w->second->column, v, &tangents, &inputs->k, j0, keys, g, x);
            if (bw->columns)
                bw->columns[((k->b * d->heads + k->h) * bw->key_blocks + key_block_of(c, j0)) * v->width + x] =
                    sum * v->factor;
        }
    }
}

/* Add the gradient of the angles of key j to the sums for given angles or for RoPE's frequencies. dk is that of the
 * unrotated key. */
static void add_angles(const backward_scratch *w, int64_t j0, int64_t j, int64_t g, const real *dk)
{
    const rpi_call *c = w->k.c;
    const rp_term *rotate = &c->plan->terms[c->plan->rotate];
    const int64_t pairs = rotate->dim / 2;
    const rpi_angle_sums *angles = &c->backward->angles[1];
    double *to = angles->array.data
                     ? rpi_angles_of(angles, w->k.b, g, j0 + j)
                     : c->backward->rope_k +
                           ((w->k.b * c->args->desc.kv_heads + g) * c->backward->key_blocks + key_block_of(c, j0)) *
                               rpi_rope_axes(c->args) * pairs;
    for (int64_t p = 0; p < pairs; p++) {
        int64_t u, v;
        rpi_rotate_channels(rotate, p, &u, &v);
        const double x = rpi_row_value(&c->args->k, w->k.b, g, j0 + j, u),
                     y = rpi_row_value(&c->args->k, w->k.b, g, j0 + j, v);
        const double by = rpi_rotation_grad(x, y, (double)dk[u], (double)dk[v]);
        if (angles->array.data)
            to[p] += by;
        else
            rpi_rope_angle_sums(c->args, true, w->k.b, j0 + j, by, to + p, pairs);
    }
}

/* Add the gradient of the angles of each channel of key j. dk is that of the turned key, `rope` has its cosines and
 * sines. */
static void add_channels(const backward_scratch *w, int64_t j, int64_t g, const real *rope, const real *dk)
{
    const rpi_call *c = w->k.c;
    const rp_term *rotate = &c->plan->terms[c->plan->rotate];
    double *to = rpi_angles_of(&c->backward->angles[1], w->k.b, g, j);
    for (int64_t p = 0; p < rotate->dim / 2; p++) {
        int64_t u, v;
        double at[4], by[2];
        rpi_rotate_channels(rotate, p, &u, &v);
        for (int64_t x = 0; x < 4; x++)
            at[x] = (double)rope[4 * p + x];
        rpi_turn_grad(rpi_row_value(&c->args->k, w->k.b, g, j, u), rpi_row_value(&c->args->k, w->k.b, g, j, v),
                      (double)dk[u], (double)dk[v], at, by);
        to[u - rpi_rotation_first(rotate)] += by[0];
        to[v - rpi_rotation_first(rotate)] += by[1];
    }
}

/* Rotate dk back, and write dk and dv of the task's keys. */
static void store_keys(const backward_scratch *w, int64_t j0, int64_t keys, int64_t g)
{
    const rpi_call *c = w->k.c;
    const rp_desc *d = &c->args->desc;
    const rpi_view *dk = &c->grads->dk, *dv = &c->grads->dv;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const int64_t wide_k = rpi_round_up(d->dim_k, VL), wide_v = rpi_round_up(d->dim_v, VL);
    const real *rope = rpi_rope_of(c, true, w->k.b, g), *plain = w->all.dk_plain;
    const rpi_angle_sums *angles = &c->backward->angles[1];
    const bool channels = rotate && rpi_rotates_channels(rotate);
    if (angles->array.data)
        rpi_angles_wait(angles, key_block_of(c, j0), w->k.b, g, d->kv_heads, d->kv_heads);
    for (int64_t j = 0; j < keys; j++) {
        real *from = w->all.dk + j * wide_k, *value = w->all.dv + j * wide_v;
        const real *turn = rotate ? rope + (j0 + j) * rpi_rotation_width(rotate) : NULL;
        if (channels && c->limits->rope_wanted[1])
            add_channels(w, j0 + j, g, turn, from);
        if (rotate)
            rotate_row(rotate, turn, -1, from, 1);
        if (rotate && !channels && c->limits->rope_wanted[1])
            add_angles(w, j0, j, g, from);
        for (int64_t x = 0; x < wide_k;
             x += VL) /* adding 0 turns -0 into 0, as it would be if another tile had added a 0 */
            vf_store(from + x, vf_load(from + x) + (plain ? vf_load(plain + j * wide_k + x) : vf_set1(0)));
        if (dk->data)
            store_channels(dk->data, dk->dtype, rpi_index(dk, w->k.b, g, j0 + j, 0), from, d->dim_k);
        for (int64_t x = 0; x < wide_v; x += VL)
            vf_store(value + x, vf_load(value + x) + vf_set1(0));
        if (dv->data)
            store_channels(dv->data, dv->dtype, rpi_index(dv, w->k.b, g, j0 + j, 0), value, d->dim_v);
    }
    if (angles->array.data)
        rpi_angles_pass(angles, key_block_of(c, j0), w->k.b, g, d->kv_heads, d->kv_heads);
}

/* Compute the largest key norm of each panel. Use infinity if a key or value of the panel is non-finite or large,
 * because ds or its sums could then be NaN. */
static void find_key_norms(backward_scratch *w, int64_t g, int64_t j0, int64_t keys)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_view *v = &c->args->v;
    for (int64_t panel = 0; panel * NR < keys; panel++) {
        bool large = w->large_k[panel] || memchr(w->large_v + panel * NR, 1, NR);
        for (int64_t j = panel * NR; j < rpi_min(panel * NR + NR, keys); j++)
            large |= !(row_norm(v, rpi_row_of(v, k->b, g, j0 + j), c->args->desc.dim_v) <= (double)RPI_MODERATE);
        w->norms[panel] = panel_norm(c, k->b, g, j0 + panel * NR, large);
    }
    k->key_norms = w->norms;
    k->norms_from = j0;
    k->moderate = true; /* k->bounds already account for non-finite or large queries */
}

/* Pass the tickets of a block of rows for which this task computes no pairs. If ds itself is an output, write zeros
 * there. */
static inline void pass_empty_tickets(backward_scratch *w, int64_t j0, int64_t block_n, int64_t key_block)
{
    const rpi_call *c = w->k.c;
    rpi_backward *bw = c->backward;
    for (int32_t n = 0; n < c->n_sources; n++) {
        if (bw->direct[n])
            direct_gradient(w, j0, n, false);
        if (bw->run_dq[n]) {
            rpi_ticket_wait(bw->ticket_run_dq[n] + block_n, key_block);
            rpi_ticket_pass(bw->ticket_run_dq[n] + block_n);
        }
    }
}

/* Begin a block of rows of query head k->h, and open the tile of the task's keys. Return false if no row attends to
 * them. */
static inline bool open_block(backward_scratch *w, int64_t row0, int64_t j0, int64_t keys, tile *t)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    k->row0 = row0;
    k->rows = rpi_min(BLOCK_ROWS, c->args->row_to - row0);
    k->groups = (k->rows + MR - 1) / MR;
    k->large_q = false;
    k->bounds = c->skips ? c->backward->bounds +
                               2 * ((k->b * c->args->desc.heads + k->h) * c->backward->blocks + row_block_of(c, row0))
                         : NULL;
    if (c->skips && is_far(k, j0, j0 + keys))
        return false;
    find_intervals(k);
    return open_tile(k, t, j0, BACKWARD_KEYS, w->large_k, w->large_v) && !(c->skips && narrow_tile(k, t));
}

/* Add the sums of all blocks of rows of query head k->h over the task's keys to row_stats, in the order of tasks. */
static inline void head_sums(backward_scratch *w, int64_t head, int64_t j0, int64_t keys, int64_t key_block)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    for (int64_t row0 = c->args->row_from; row0 < c->args->row_to; row0 += BLOCK_ROWS) {
        atomic_llong *ticket = &c->backward->ticket_rows[head * c->backward->blocks + row_block_of(c, row0)];
        tile t;
        const bool some = open_block(w, row0, j0, keys, &t);
        if (some)
            tile_sums(w, &t);
        rpi_ticket_wait(ticket, key_block);
        for (int64_t r = 0; some && r < k->rows; r++)
            rpi_row_stats(c, k->b * c->args->desc.heads + k->h, row0 + r)[2] += (double)k->weight_sum[r];
        rpi_ticket_pass(ticket);
    }
}

/* Compute all blocks of rows of query head k->h against the task's keys, with one call of tile_backward
 * (backward_tile.h) for each tile. `head` is the head's index in the group. */
static inline void head_blocks(backward_scratch *w, int64_t head, int64_t j0, int64_t keys, int64_t key_block)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    const int64_t wide_k = rpi_round_up(d->dim_k, VL);
    for (int64_t row0 = c->args->row_from; row0 < c->args->row_to; row0 += BLOCK_ROWS) {
        const int64_t row_block = row_block_of(c, row0), block_n = head * bw->blocks + row_block;
        tile t;
        const bool some = open_block(w, row0, j0, keys, &t);
        if (some)
            (c->jvp ? tile_second : tile_backward)(w, &t, head);
        else
            pass_empty_tickets(w, j0, block_n, key_block);
        if (bw->any_pairs) {
            atomic_llong *at = bw->ticket_pairs + row_block * bw->key_blocks + key_block;
            rpi_ticket_wait(at, k->b * d->heads + k->h);
            rpi_ticket_pass(at);
        }
        rpi_ticket_wait(&bw->ticket_rows[block_n], key_block);
        if (some && c->limits->dq) {
            real *to = (real *)bw->dq + sums_row_of(c, head, k->row0) * wide_k;
            for (int64_t x = 0; x < k->rows * wide_k; x += VL)
                vf_store(to + x, vf_load(to + x) + vf_load(w->dq + x));
        }
        rpi_ticket_pass(&bw->ticket_rows[block_n]);
    }
}

/* Wait until `ticket` tasks have merged the sums of terms that are computed pair by pair. Then add the worker's sums to
 * the sums of the call, and reset the worker's sums to zero. */
static inline void merge_private_sums(const backward_scratch *w, int64_t ticket)
{
    const rpi_call *c = w->k.c;
    rpi_backward *bw = c->backward;
    rpi_ticket_wait(&bw->ticket_task, ticket);
    for (int32_t n = 0; n < c->args->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            const rpi_view sums = rpi_sample(&bw->sums.term[n].array[x], w->k.b);
            double *from = w->private_sums[n].array[x].data, *to = sums.data;
            for (int64_t e = 0; from && to && e < bw->sums.elements[n][x]; e++) {
                to[e] += from[e];
                from[e] = 0;
            }
        }
    rpi_ticket_pass(&bw->ticket_task);
}

/* Run a task: compute the gradients of BACKWARD_KEYS keys of one kv head of the group. */
static void backward(const rpi_call *c, int64_t kv, int64_t key_block, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const int64_t b = (c->g0 + kv) / d->kv_heads, g = (c->g0 + kv) % d->kv_heads, per_kv = d->heads / d->kv_heads;
    const int64_t j0 = c->args->key_from + key_block * BACKWARD_KEYS, keys = rpi_min(BACKWARD_KEYS, d->len_k - j0),
                  padded = rpi_round_up(keys, COLUMN_STEP);
    rpi_backward *bw = c->backward;
    backward_scratch w;
    second_scratch second;
    block *k = &w.k;
    amx_begin();
    rpi_arena a = scratch_of(c, worker);
    task_layout(c, &w, &second, &a);
    w.private_sums = bw->private_sums ? bw->private_sums[worker].term : NULL;
    k->c = c;
    k->b = b;
    k->kv = kv;
    memset(w.large_k, 0, BACKWARD_KEYS / NR + 1);
    products_begin(&w, g, j0, padded);
    if (c->jvp)
        begin_tangents(&w, g, j0, padded);
    if (c->skips)
        find_key_norms(&w, g, j0, keys);
    for (int64_t n = 0; n < per_kv; n++) {
        k->h = g * per_kv + n;
        if (bw->sums_only) {
            head_sums(&w, kv * per_kv + n, j0, keys, key_block);
            continue;
        }
        begin_head(&w, j0);
        begin_key_sums(&w, j0, keys);
        second.inputs.head = w.head;
        head_blocks(&w, kv * per_kv + n, j0, keys, key_block);
        products_end(&w, keys);
        if (!c->grads->dkv_out.data) /* the call over the last rows uses the sums of all rows */
            use_columns(&w, j0, keys, g);
        end_key_sums(&w, j0, keys, n == 0);
        if (bw->softcap)
            memcpy(bw->softcap + RPI_SOFTCAPS * ((b * d->heads + k->h) * bw->key_blocks + key_block), w.softcap,
                   sizeof w.softcap);
        if (bw->any_head)
            merge_head(&w, j0, key_block);
    }
    if (!c->grads->dkv_out.data && !bw->sums_only)
        store_keys(&w, j0, keys, g);
    if (w.private_sums && !bw->sums_only)
        merge_private_sums(&w, (c->g0 + kv) * bw->key_blocks + key_block);
    amx_end();
    rpi_float_end(before);
}
