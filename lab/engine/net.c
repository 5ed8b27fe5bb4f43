/* net.c -- a net: a model for one batch size and length. It consists of a list of layers (net_list.c), which run
 * forward and then backward, and of memory for their activations.
 *
 * The output of each layer is called a slot. Gradients of slots are kept in buffers. Buffers are assigned when the net
 * is created; gradients that are never needed at the same time share a buffer. net_layers.c and net_attention.c
 * implement the layers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 0x706f73 }; /* random stream that draws positions */

/* ------------------------------------------------------------------------------------------------ memory */

/* Return the number of elements of a slot in the longest call. */
static int64_t numbers_of(const nn_net *n, const slot *s)
{
    return n->batch * (s->pooled ? 1 : n->of[s->stack].capacity) * s->width;
}

/* Return a buffer for the gradient of a slot. No other gradient needs the buffer at the same time. */
static int32_t acquire_buffer(nn_net *n, const slot *s)
{
    const int64_t numbers = numbers_of(n, s);
    for (int32_t b = 0; b < n->n_buffers; b++)
        if (n->refs[b] == 0 && n->buffer_size[b] == numbers) {
            n->refs[b] = 1;
            return b;
        }
    n->buffer_size[n->n_buffers] = numbers;
    n->refs[n->n_buffers] = 1;
    return n->n_buffers++;
}

/* Assign buffers to gradients in the order of the backward pass. */
static void plan_gradients(nn_net *n)
{
    const bool dropout = n->m->c.dropout > 0;
    for (int32_t x = n->n_nodes - 1; x >= 0; x--) {
        node *e = &n->nodes[x];
        slot *in = e->in >= 0 ? &n->slots[e->in] : NULL;
        if (e->kind == ADD) {
            const int32_t b = n->slots[e->out].grad;
            in->grad = b;
            n->refs[b]++;
            n->slots[e->in2].grad = dropout ? acquire_buffer(n, &n->slots[e->in2]) : b;
            n->refs[b] += !dropout;
        } else if (in) {
            e->add = in->grad >= 0;
            if (!e->add)
                in->grad = acquire_buffer(n, in);
            if (e->in2 >= 0)
                n->slots[e->in2].grad = acquire_buffer(n, &n->slots[e->in2]);
        }
        if (e->out >= 0)
            n->refs[n->slots[e->out].grad]--;
    }
}

/* Add the size of `numbers` numbers to n->bytes. With `allocate`, also allocate them. */
static void *reserve(nn_net *n, bool allocate, int64_t numbers, bool *enough)
{
    const size_t bytes = ((size_t)(numbers > 0 ? numbers : 1) * sizeof(real) + 63) / 64 * 64;
    n->bytes += bytes;
    if (!allocate)
        return NULL;
    void *p =
        *enough && n->n_blocks < (int32_t)(sizeof n->blocks / sizeof *n->blocks) ? aligned_alloc(64, bytes) : NULL;
    if (p)
        n->blocks[n->n_blocks++] = p;
    else
        *enough = false;
    return p;
}

static bool reserve_all(nn_net *n, bool allocate)
{
    const nn_model *m = n->m;
    const int64_t d = m->c.width;
    int64_t longest = 0, scratch = 0, pairs = 0;
    bool enough = true;
    int32_t param;
    for (int32_t x = 0; x < n->n_slots; x++)
        n->slots[x].data = reserve(n, allocate, numbers_of(n, &n->slots[x]), &enough);
    n->n_scratch = 0;
    for (int32_t x = 0; x < n->n_nodes; x++) {
        node *e = &n->nodes[x];
        const nn_stack *s = &m->stack[e->stack];
        const sequence *q = &n->of[e->stack];
        const int64_t rows = n->batch * q->capacity;
        if (e->kind == NORM)
            e->aux = reserve(n, allocate, 2 * rows, &enough);
        if ((e->kind == ATTENTION || e->kind == CROSS) && n->train)
            e->aux = reserve(n, allocate, rows * m->c.heads, &enough);
        if (e->kind != ATTENTION)
            continue;
        if (nn_uses_sinusoids(s, e, &param))
            e->r = reserve(n, allocate, (n->cache + 2 * q->capacity) * d, &enough);
        if (n->cache > 0 && s->causal)
            e->cache = reserve(n, allocate, n->batch * (n->cache + q->capacity) * 2 * d, &enough);
        int64_t all = 0;
        for (int32_t t = 0; t < e->n_terms; t++)
            for (int y = 0; y < RP_MAX_ARRAYS; y++)
                if (s->terms[t].source[y] == NN_LEARNED) {
                    all += m->params[e->array[t][y]].size;
                } else if (s->terms[t].source[y] == NN_GATE) {
                    e->gate = reserve(n, allocate, n->batch * m->c.heads * nn_cache_rows(n, e), &enough);
                    all += rows * m->c.heads;
                }
        n->n_scratch = all > n->n_scratch ? all : n->n_scratch;
        const int64_t in_rows = rows * m->c.heads * nn_fire_rows(n, e->stack);
        pairs = n->train && nn_has_fire_scales(n, e) && in_rows > pairs ? in_rows : pairs;
    }
    for (int32_t b = 0; b < n->n_buffers && n->train; b++)
        n->buffer[b] = reserve(n, allocate, n->buffer_size[b], &enough);
    for (int32_t k = 0; k < m->n_stacks; k++) {
        sequence *q = &n->of[k];
        longest = q->capacity > longest ? q->capacity : longest;
        if (m->c.random_positions > 0) {
            q->positions =
                reserve(n, allocate, (n->cache + q->capacity) * (int64_t)(sizeof(int64_t) / sizeof(real)), &enough);
        }
        if (m->stack[k].padded)
            q->lengths = reserve(n, allocate, n->batch, &enough);
        if (!nn_uses_sinusoids(&m->stack[k], NULL, &param))
            continue;
        const int64_t numbers = (n->cache + 2 * q->capacity) * d;
        q->sinusoids = reserve(n, allocate, numbers, &enough);
        scratch = numbers > scratch ? numbers : scratch;
    }
    const int64_t rows = n->batch * longest, vocab = m->params[n->nodes[n->n_nodes - 1].param[0]].shape[0];
    if (n->train) {
        n->scratch = reserve(n, allocate, n->n_scratch + scratch, &enough);
        n->partial = reserve(n, allocate, 2 * d * (rows / LAYERS_ROWS + 1), &enough);
    }
    if (pairs > 0)
        n->pairs = reserve(n, allocate, pairs, &enough);
    if (m->c.log_scale != NN_LOG_NONE)
        n->scaled = reserve(n, allocate, rows * d, &enough);
    n->logits = reserve(n, allocate, (rows < HEAD_ROWS ? rows : HEAD_ROWS) * vocab, &enough);
    return enough;
}

/* Check the sizes of a net, and set the capacity of each stack. */
static int set_sizes(nn_net *n, int64_t length, char err[NN_ERR_MAX])
{
    const nn_model *m = n->m;
    const int32_t last = m->n_stacks - 1;
    for (int32_t k = 0; k <= last; k++) {
        const nn_stack *s = &m->stack[k];
        const int64_t tokens = k == last ? length : s->length,
                      longest = s->causal && n->cache > tokens ? n->cache : tokens;
        int64_t numbers;
        if (longest > nn_positions_end(m, k))
            return nn_fail(err,
                           m->c.random_positions > 0
                               ? "random_positions = %lld, but the length is %lld; it must not be larger (use a "
                                 "shorter text, or train with a larger random_positions)"
                               : "position: there are %lld learned positions, but the length is %lld (use a shorter "
                                 "text, train with a greater length, or use another position)",
                           (long long)nn_positions_end(m, k), (long long)longest);
        if (__builtin_mul_overflow(n->batch, tokens, &numbers) || numbers > (int64_t)1 << 31)
            return nn_fail(
                err,
                "lab: %lld windows of %lld tokens have more than 2^31 tokens in total (use a smaller batch or length)",
                (long long)n->batch, (long long)tokens);
        n->of[k].capacity = tokens;
    }
    return 0;
}

/* Create the plan of the longest call of each attention layer. This finds calls that the library would reject before
 * the first step, and adds the size of their scratch to n->bytes. */
static int count_work(nn_net *n, char err[NN_ERR_MAX])
{
    size_t most = 0;
    for (int32_t k = 0; k < n->m->n_stacks; k++)
        n->of[k].length = n->of[k].capacity;
    n->cached = n->cache;
    for (int32_t x = 0; x < n->n_nodes; x++) {
        const node *e = &n->nodes[x];
        rp_term terms[RP_MAX_TERMS];
        rp_mask mask;
        rp_plan *plan;
        if ((e->kind != ATTENTION && e->kind != CROSS) || e->layer > 0)
            continue;
        rp_desc desc = nn_layer_desc(n, e, terms, &mask);
        const bool scales = n->train && e->kind == ATTENTION && nn_has_fire_scales(n, e);
        for (int pairs = 0; pairs <= scales; pairs++) {
            if (pairs && nn_add_pairs(&desc, terms, err) != 0)
                return -1;
            if (rp_plan_create(&plan, &desc) != RP_OK)
                return nn_fail(err, "position: %s", NN_WORDS(&desc));
            const size_t work = n->train ? rp_plan_backward_size(plan, n->pool) : rp_plan_work_size(plan, n->pool);
            rp_plan_destroy(plan);
            if (work == 0)
                return nn_fail(err, "position: %s", NN_WORDS(&desc));
            most = work > most ? work : most;
        }
    }
    for (int32_t k = 0; k < n->m->n_stacks; k++)
        n->of[k].length = 0;
    n->cached = 0;
    n->bytes += most;
    return 0;
}

int nn_net_create(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
                  size_t *bytes, char err[NN_ERR_MAX])
{
    nn_net *n = calloc(1, sizeof *n);
    size_t max_nodes = 8;
    for (int32_t k = 0; k < m->n_stacks; k++)
        max_nodes += (size_t)m->stack[k].layers * 16 + 2;
    if (net)
        *net = NULL;
    if (!n || !(n->nodes = calloc(max_nodes, sizeof *n->nodes)) || !(n->slots = calloc(max_nodes, sizeof *n->slots))) {
        nn_net_destroy(n);
        return nn_fail(err, "lab: out of memory while creating the list of layers (use fewer layers)");
    }
    n->m = m;
    n->pool = pool;
    n->batch = batch;
    n->cache = cache;
    n->train = train;
    n->factor = 1;
    if (set_sizes(n, length, err) != 0) {
        nn_net_destroy(n);
        return -1;
    }
    nn_make_list(n);
    if (train)
        plan_gradients(n);
    reserve_all(n, false);
    if (count_work(n, err) != 0) {
        nn_net_destroy(n);
        return -1;
    }
    if (bytes)
        *bytes = n->bytes;
    if (!net) {
        nn_net_destroy(n);
        return 0;
    }
    const double size = (double)n->bytes;
    if (!reserve_all(n, true)) {
        nn_net_destroy(n);
        return nn_fail(
            err, "lab: out of memory while creating %.1f GB of activations (use a smaller batch, length or width)",
            size * 1e-9);
    }
    *net = n;
    return 0;
}

void nn_net_destroy(nn_net *n)
{
    if (!n)
        return;
    for (int32_t x = 0; x < n->n_blocks; x++)
        free(n->blocks[x]);
    free(n->work);
    free(n->nodes);
    free(n->slots);
    free(n);
}

/* ------------------------------------------------------------------------------------------------ calls */

void nn_draw_positions(uint64_t seed, int64_t range, int64_t n, int64_t *to)
{
    int64_t left = n;
    for (int64_t at = 0; left > 0; at++) /* Knuth's algorithm S: all sets of n positions are equally likely */
        if (layers_uniform(seed, DRAWS, (uint64_t)at) * (double)(range - at) < (double)left)
            to[n - left--] = at;
}

/* Set the tokens of a stack for this call. Compute sinusoids if a term needs them. */
static int start_stack(nn_net *n, int32_t stack, int64_t length, const int32_t *tokens, char err[NN_ERR_MAX])
{
    const int64_t d = n->m->c.width;
    sequence *q = &n->of[stack];
    int32_t param;
    if (length < 1 || length > q->capacity)
        return nn_fail(err, "lab: length %lld is out of range (1 to %lld)", (long long)length, (long long)q->capacity);
    for (int64_t x = 0; x < n->batch * length; x++)
        if (tokens[x] < 0 || tokens[x] >= n->m->c.vocab)
            return nn_fail(err, "lab: token %d is out of range (0 to %lld)", (int)tokens[x],
                           (long long)n->m->c.vocab - 1);
    const bool same = q->length == length && n->cache == 0;
    q->tokens = tokens;
    q->length = length;
    if (!nn_uses_sinusoids(&n->m->stack[stack], NULL, &param) || same)
        return 0;
    const int64_t before = nn_before(n, stack);
    for (int64_t t = 0; t < nn_offsets(n, stack); t++) /* row t belongs to delta = t - (length - 1 + before) */
        for (int64_t c = 0; c < d; c++)
            q->sinusoids[t * d + c] = (real)nn_sinusoid((double)(length - 1 + before - t), c, d);
    return 0;
}

/* Prepare a call. `draw` is the seed of the random positions; 0 selects the positions that nn_net_logits always
 * uses. */
static int start_call(nn_net *n, int64_t length, const int32_t *tokens, uint64_t draw, char err[NN_ERR_MAX])
{
    n->err = err;
    if (n->cache > 0 && n->cached + length > n->cache)
        return nn_fail(err, "lab: the cache has %lld tokens; it must have at most %lld (use a shorter text)",
                       (long long)(n->cached + length), (long long)n->cache);
    if (n->of[0].length == 0 && n->m->n_stacks > 1)
        return nn_fail(err, "lab: the encoder-decoder has no source (call nn_net_source first)");
    if (start_stack(n, n->m->n_stacks - 1, length, tokens, err) != 0)
        return -1;
    sequence *q = &n->of[n->m->n_stacks - 1];
    if (q->positions)
        nn_draw_positions(draw ? draw : layers_random((uint64_t)n->m->c.seed, DRAWS, 0), n->m->c.random_positions,
                          draw           ? length
                          : n->cache > 0 ? n->cache
                                         : q->capacity,
                          q->positions);
    return 0;
}

int nn_net_source(nn_net *n, int64_t length, const int32_t *tokens, const int32_t *lengths, char err[NN_ERR_MAX])
{
    n->err = err;
    n->cached = 0;
    if (n->m->n_stacks < 2)
        return nn_fail(err, "lab: the model has no encoder for a source (train with task = encoder-decoder)");
    for (int64_t b = 0; b < n->batch; b++) {
        if (lengths[b] < 1 || lengths[b] > length)
            return nn_fail(err, "lab: the source has %d tokens; it must have 1 to %lld (use another source)",
                           (int)lengths[b], (long long)length);
        n->of[0].lengths[b] = lengths[b];
    }
    return start_stack(n, 0, length, tokens, err);
}

/* Run the first `count` layers. If the cache already holds tokens, skip the encoder: its output is still valid. */
static int forward(nn_net *n, int32_t count)
{
    for (int32_t x = 0; x < count; x++)
        if ((n->cached == 0 || n->nodes[x].stack == n->m->n_stacks - 1) &&
            nn_forward[n->nodes[x].kind](n, &n->nodes[x]) != 0)
            return -1;
    return 0;
}

void nn_net_factor(nn_net *n, double factor)
{
    n->factor = factor;
}

void nn_net_record_right(nn_net *n, bool *right)
{
    n->right = right;
}

int nn_net_loss(nn_net *n, int64_t length, const int32_t *tokens, const int32_t *target, uint64_t seed, double *loss,
                double *mean, char err[NN_ERR_MAX])
{
    const int64_t classes = n->m->params[n->nodes[n->n_nodes - 1].param[0]].shape[0];
    int64_t targets = 0;
    double sum = 0;
    if (start_call(n, length, tokens,
                   n->train && seed ? seed : layers_random((uint64_t)n->m->c.seed, DRAWS, ++n->draws), err) != 0)
        return -1;
    const int64_t rows = n->batch * (n->m->c.task == NN_CLASSIFIER ? 1 : length);
    for (int64_t r = 0; r < rows; r++)
        if (target[r] >= classes)
            return nn_fail(err, "lab: target %d is out of range (below %lld)", (int)target[r], (long long)classes);
    n->target = target;
    n->seed = n->train ? seed : 0;
    n->loss = loss;
    if (n->train)
        memset(n->m->g, 0, (size_t)n->m->n_weights * sizeof(real));
    if (forward(n, n->n_nodes) != 0)
        return -1;
    for (int64_t r = 0; r < rows; r++) {
        sum += loss[r];
        targets += target[r] >= 0;
    }
    *mean = targets ? sum / (double)targets : 0;
    for (int32_t x = n->n_nodes - 1; x >= 0 && n->train; x--)
        if (nn_backward[n->nodes[x].kind](n, &n->nodes[x]) != 0)
            return -1;
    return 0;
}

/* Run all layers except the head. Return the input of the head: one row per token, or per batch entry if it is pooled.
 * Return NULL on failure. */
static const slot *run_body(nn_net *n, int64_t length, const int32_t *tokens, char err[NN_ERR_MAX])
{
    if (start_call(n, length, tokens, 0, err) != 0)
        return NULL;
    n->seed = 0;
    if (forward(n, n->n_nodes - 1) != 0)
        return NULL;
    if (n->cache > 0)
        n->cached += length;
    return &n->slots[n->nodes[n->n_nodes - 1].in];
}

/* Compute the logits of `rows` rows of the head's input, which are `ld` numbers apart. */
static void logits_of(nn_net *n, int64_t rows, const slot *in, const real *from, int64_t ld, real *logits)
{
    const nn_param *p = &n->m->params[n->nodes[n->n_nodes - 1].param[0]];
    layers_linear(n->pool, rows, in->width, p->shape[0], from, ld, n->m->w + p->offset, logits, p->shape[0]);
}

int nn_net_logits(nn_net *n, int64_t length, const int32_t *tokens, real *logits, char err[NN_ERR_MAX])
{
    const slot *in = run_body(n, length, tokens, err);
    if (!in)
        return -1;
    const int64_t d = in->width, step = in->pooled ? 1 : length;
    logits_of(n, n->batch, in, in->data + (step - 1) * d, step * d, logits);
    return 0;
}

int nn_net_all_logits(nn_net *n, int64_t length, const int32_t *tokens, real *logits, char err[NN_ERR_MAX])
{
    const slot *in = run_body(n, length, tokens, err);
    if (!in)
        return -1;
    logits_of(n, nn_rows(n, in), in, in->data, in->width, logits);
    return 0;
}

int nn_net_attention(nn_net *n, int64_t layer, rp_tensors *t, rp_plan *plans[2], char err[NN_ERR_MAX])
{
    rp_plan *plan;
    n->err = err;
    for (int32_t x = 0; x < n->n_nodes; x++)
        if (n->nodes[x].kind == ATTENTION && n->nodes[x].layer == layer) {
            if (nn_attention_call(n, &n->nodes[x], &plan, t, NULL) != 0)
                return -1;
            if (!plans) {
                rp_plan_destroy(plan);
                return 0;
            }
            rp_term terms[RP_MAX_TERMS];
            rp_mask causal;
            rp_desc plain = nn_layer_desc(n, &n->nodes[x], terms, &causal);
            plain.n_terms = 0;
            plans[0] = plan;
            if (rp_plan_create(&plans[1], &plain) == RP_OK)
                return 0;
            rp_plan_destroy(plan);
            return nn_fail(err, "attention: %s", NN_WORDS(NULL));
        }
    return nn_fail(err, "layer: %lld is out of range (0 to %lld)", (long long)layer, (long long)n->m->c.layers - 1);
}
