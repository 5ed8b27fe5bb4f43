/* test_layer_laws.c -- laws of layers: equal bits for any threads, batch and steps of decoding; sums of gradients; rows
 * that attend to nothing; inverse and adjoint operations on images; memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/trial.h"
#include "tests/memory_limit.h"
#include <pthread.h>
#include <sys/wait.h>

#define EACH_TYPE(type) for (rp_dtype type = RP_F32; type <= RP_F64; type++)

static void same(const char *name, const char *what, const void *a, const void *b, size_t bytes)
{
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s: the bits of %s differ", name, what);
}

/* ------------------------------------------------------------------------------------------------ equal bits */

/* All results of a trial: out, gradients of inputs, and gradients of weights. */
enum { RESULTS = 4 + 16 };
typedef struct results {
    rp_array all[RESULTS];
    int n;
} results;

static results results_of(trial *t)
{
    results r = {.all = {t->call.out, t->g.dquery, t->g.dkey, t->g.dvalue}, .n = 4};
    rp_layer *const layers[] = {t->layer, t->shared};
    for (int l = 0; l < 2; l++)
        EACH_PARAM(layers[l], w)
        {
            assert_true(r.n < RESULTS);
            r.all[r.n++] = grad_of(&t->d, w);
        }
    return r;
}

static size_t bytes_of(const rp_array *a)
{
    return a->ndim ? (size_t)problem_size(a) * rp_dtype_size(a->dtype) : 0;
}

/* Run a trial on 1, 2 and 5 threads. */
static void same_on_all_pools(trial *t)
{
    static const int32_t threads[] = {1, 2, 5};
    void *kept[RESULTS] = {NULL};
    for (int n = 0; n < 3; n++) {
        rp_pool *pool;
        good(rp_pool_create(&pool, threads[n]));
        t->call.pool = pool;
        rp_layer_zero_grad(t->layer);
        rp_layer_zero_grad(t->shared);
        run_trial(t);
        const results r = results_of(t);
        for (int x = 0; x < r.n; x++) {
            if (n == 0 && r.all[x].ndim)
                kept[x] = copy_of(&r.all[x]);
            else if (r.all[x].ndim)
                same(t->name, "a result on several threads", kept[x], r.all[x].data, bytes_of(&r.all[x]));
        }
        rp_pool_destroy(pool);
    }
    for (int x = 0; x < RESULTS; x++)
        free(kept[x]);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    EACH_TYPE(type)
    {
        trial t;
        for (int n = 0; n < 2 * TRIALS; n++) {
            published(&t, n / 2, type);
            if (n % 2)
                with_weights(&t, n % 4 == 3);
            same_on_all_pools(&t);
            end_trial(&t);
        }
        /* projections of several chunks of rows */
        rp_layer_desc d = rp_layer_t5_attention(264, 2, 8, 50, 1, 1);
        d.transposed = type == RP_F64;
        begin_trial(&t, "long", d, type, 2, 300, 0, false);
        same_on_all_pools(&t);
        end_trial(&t);
    }
}

/* Return entry b of an array whose first axis is the batch, else the array. */
static rp_array entry(const rp_array *a, int64_t batch, int64_t b)
{
    rp_array one = *a;
    if (a->ndim >= 2 && a->shape[0] == batch) {
        one.shape[0] = 1;
        one.data = (char *)a->data + b * a->stride[0] * (int64_t)rp_dtype_size(a->dtype);
    }
    return one;
}

/* Each batch entry alone has the bits that it has in the batch. */
static void other_entries_do_not_matter(void **state)
{
    (void)state;
    EACH_TYPE(type)
    {
        for (int n = 0; n < 2 * TRIALS; n++) {
            trial t;
            published(&t, n / 2, type);
            t.call.train = 0; /* dropout depends on the index in the batch */
            if (n % 2)
                with_weights(&t, n % 4 == 3);
            run_trial(&t);
            const int64_t batch = t.call.query.shape[0];
            trial alone = t;
            for (int64_t b = 0; b < batch; b++) {
                alone.call.query = entry(&t.call.query, batch, b);
                alone.call.key = entry(&t.call.key, batch, b);
                alone.call.value = entry(&t.call.value, batch, b);
                alone.g.dout = entry(&t.g.dout, batch, b);
                alone.g.dweights = entry(&t.g.dweights, batch, b);
                alone.call.weights = entry(&t.call.weights, batch, b);
                for (int x = 0; x < RP_MAX_ARRAYS; x++)
                    alone.call.term[0][x] = entry(&t.call.term[0][x], batch, b);
                for (int x = 0; x < RP_LAYER_MASKS; x++)
                    alone.call.mask[x] = entry(&t.call.mask[x], batch, b);
                rp_array *const to[] = {&alone.call.out, &alone.g.dquery, &alone.g.dkey, &alone.g.dvalue};
                rp_array *const whole[] = {&t.call.out, &t.g.dquery, &t.g.dkey, &t.g.dvalue};
                for (int x = 0; x < 4; x++) {
                    const rp_array one = entry(whole[x], batch, b);
                    if (one.ndim)
                        *to[x] = array_in(&t.memory, type, one.ndim, one.shape);
                }
                run_trial(&alone);
                for (int x = 0; x < 4; x++) {
                    const rp_array one = entry(whole[x], batch, b);
                    if (one.ndim)
                        same(t.name, "an entry of the batch", one.data, to[x]->data, bytes_of(&one));
                }
            }
            end_trial(&t);
        }
    }
}

/* Decoding with a cache, in steps of several lengths, has the bits of one pass. Then cross-attention reads a cache
 * without appending to it. */
static void decoding_equals_one_pass(void **state)
{
    static const int64_t steps[] = {4, 1, 2, 1, 1, 3};
    enum { B = 2, L = 12, WIDTH = 6 };
    (void)state;
    EACH_TYPE(type)
    {
        for (int kind = 0; kind < 4; kind++) {
            const int64_t size = (int64_t)rp_dtype_size(type);
            trial t;
            rp_layer_cache *cache;
            rp_layer_desc d = rp_layer_t5_attention(WIDTH, 2, 8, 5, kind == 0, 0);
            if (kind == 1)
                d.term[d.n_terms++] = rp_term_init(RP_TERM_ROPE), d.dim_k = 4;
            if (kind == 2)
                d.term[d.n_terms++] = rp_term_init(RP_TERM_ALIBI), d.kv_heads = 1;
            if (kind == 3)
                d.weight[RP_K] = d.weight[RP_V] = 0; /* keys and values are copied into the cache */
            d.mask[d.n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
            begin_trial(&t, "decoding", d, type, B, L, 0, false);
            fine(rp_layer_forward(t.layer, &t.call, NULL));
            fine(rp_layer_cache_create(&cache, t.layer, B, L));
            int64_t from = 0;
            rp_layer_call call = t.call;
            call.cache = cache;
            for (int n = 0; n < 6; n++) {
                call.query = ZEROS(&t.memory, type, B, steps[n], WIDTH);
                call.out = ZEROS(&t.memory, type, B, steps[n], WIDTH);
                const int64_t bytes = steps[n] * WIDTH * size;
                for (int64_t b = 0; b < B; b++)
                    memcpy((char *)call.query.data + b * bytes,
                           (char *)t.call.query.data + (b * L + from) * WIDTH * size, (size_t)bytes);
                fine(rp_layer_forward(t.layer, &call, NULL));
                for (int64_t b = 0; b < B; b++)
                    same(t.name, "a step", (char *)call.out.data + b * bytes,
                         (char *)t.call.out.data + (b * L + from) * WIDTH * size, (size_t)bytes);
                from += steps[n];
            }
            assert_int_equal(rp_layer_cache_length(cache), L);
            /* a key without tokens appends nothing: queries again see the last position's keys */
            rp_array again = ZEROS(&t.memory, type, B, 3, WIDTH);
            memcpy(again.data, call.out.data, bytes_of(&again));
            memset(call.out.data, 0, bytes_of(&again));
            call.key = rp_array_of(NULL, type, 3, SHAPE(B, 0, WIDTH));
            call.q_offset = -3;
            fine(rp_layer_forward(t.layer, &call, NULL));
            assert_int_equal(rp_layer_cache_length(cache), L);
            same(t.name, "the last step again", again.data, call.out.data, bytes_of(&again));
            rp_layer_cache_destroy(cache);
            end_trial(&t);
        }
    }
}

/* Calls with `train` drop weights, by the seed, and divide the others by 1 - p. */
static void dropout_depends_on_the_seed(void **state)
{
    trial t;
    (void)state;
    published(&t, TRIALS - 1, RP_F64);
    const rp_array plain = ZEROS(&t.memory, RP_F64, 2, 3, 6, 6);
    const rp_array dropped[] = {ZEROS(&t.memory, RP_F64, 2, 3, 6, 6), ZEROS(&t.memory, RP_F64, 2, 3, 6, 6)};
    t.call.train = 0;
    t.call.weights = plain;
    fine(rp_layer_forward(t.layer, &t.call, NULL));
    t.call.train = 1;
    for (int n = 0; n < 2; n++) {
        int64_t zeros = 0;
        t.call.seed = (uint64_t)n;
        t.call.weights = dropped[n];
        fine(rp_layer_forward(t.layer, &t.call, NULL));
        for (int64_t x = 0; x < problem_size(&plain); x++) {
            const double w = at(&dropped[n], x), want = at(&plain, x) / 0.7;
            zeros += w == 0;
            assert_true(at(&plain, x) > 0 && (w == 0 || fabs(w - want) <= 4 * DBL_EPSILON * want));
        }
        /* of 216 weights, 65 are dropped on average, with a deviation of 6.7 */
        assert_true(zeros >= 65 - 34 && zeros <= 65 + 34);
    }
    assert_true(memcmp(dropped[0].data, dropped[1].data, bytes_of(&plain)) != 0);
    end_trial(&t);
}

typedef struct caller {
    const trial *t;
    pthread_barrier_t *failed; /* all threads have made their mistake */
    rp_array out;
    int n;
    bool right;
} caller;

static void *call_often(void *data)
{
    caller *c = data;
    rp_layer_call call = c->t->call, wrong = rp_layer_call_init();
    char line[80];
    call.out = c->out;
    snprintf(line, sizeof line, "query has %d axes; expected 3", c->n + 10);
    wrong.query.ndim = c->n + 10;
    c->right = rp_layer_forward(c->t->layer, &wrong, NULL) == RP_E_SHAPE;
    pthread_barrier_wait(c->failed);
    for (int n = 0; n < 50; n++)
        c->right = c->right && rp_layer_forward(c->t->layer, &call, NULL) == RP_OK;
    c->right = c->right && strcmp(rp_layer_last_error(), line) == 0;
    return NULL;
}

/* Threads that call one layer at the same time get the same bits, and each has its own error. */
static void threads_share_a_layer(void **state)
{
    enum { CALLERS = 4 };
    pthread_t threads[CALLERS];
    pthread_barrier_t failed;
    caller callers[CALLERS];
    trial t;
    (void)state;
    assert_int_equal(pthread_barrier_init(&failed, NULL, CALLERS), 0);
    published(&t, 5, RP_F32);
    fine(rp_layer_forward(t.layer, &t.call, NULL));
    for (int n = 0; n < CALLERS; n++) {
        callers[n] = (caller){&t, &failed, array_in(&t.memory, RP_F32, 3, t.call.out.shape), n, false};
        assert_int_equal(pthread_create(&threads[n], NULL, call_often, &callers[n]), 0);
    }
    for (int n = 0; n < CALLERS; n++) {
        assert_int_equal(pthread_join(threads[n], NULL), 0);
        assert_true(callers[n].right);
        same(t.name, "out on several threads", t.call.out.data, callers[n].out.data, bytes_of(&t.call.out));
    }
    pthread_barrier_destroy(&failed);
    end_trial(&t);
}

/* ------------------------------------------------------------------------------------------------ gradients */

/* A gradient of 0 adds nothing, a small step lowers the loss by what the gradient says, and clears the gradients. */
static void steps_of_descent(void **state)
{
    (void)state;
    for (int n = 0; n < TRIALS; n++) {
        trial t;
        published(&t, n, RP_F64);
        run_trial(&t);
        const results before = results_of(&t);
        void *kept[RESULTS];
        for (int x = 4; x < before.n; x++)
            kept[x] = copy_of(&before.all[x]);
        const rp_array dout = t.g.dout;
        t.g.dout = array_in(&t.memory, RP_F64, 3, dout.shape);
        run_trial(&t);
        for (int x = 4; x < before.n; x++) {
            same(t.name, "a gradient after adding 0", kept[x], before.all[x].data, bytes_of(&before.all[x]));
            free(kept[x]);
        }
        t.g.dout = dout;
        double square = 0;
        EACH_PARAM(t.layer, w)
        for (int64_t x = 0; x < w->n; x++)
            square += pow(((const double *)w->grad)[x], 2);
        if (square > 0) {
            const double first = loss_of(&t), rate = 1e-5 / sqrt(square);
            rp_layer_step(t.layer, rate);
            const double fall = first - loss_of(&t);
            if (!(fall > 0.9 * rate * square && fall < 1.1 * rate * square))
                fail_msg("%s: a step lowers the loss by %g, not %g", t.name, fall, rate * square);
            EACH_PARAM(t.layer, w)
            for (int64_t x = 0; x < w->n; x++)
                assert_true(((const double *)w->grad)[x] == 0);
        }
        end_trial(&t);
    }
}

/* Round the sum of two numbers of a type, which was computed in double, to the type. */
static double rounded(double x, rp_dtype type)
{
    return type == RP_F32 ? (double)(float)x : x;
}

/* Without keys and values of their own, their gradients are added to that of the query, or of the key. */
static void absent_inputs_add_up(void **state)
{
    (void)state;
    EACH_TYPE(type)
    {
        trial t;
        begin_trial(&t, "no projections", rp_layer_position_bias_attention(4, 4, 0.3), type, 2, 6, 6, true);
        memcpy(t.call.key.data, t.call.query.data, bytes_of(&t.call.query));
        memcpy(t.call.value.data, t.call.query.data, bytes_of(&t.call.query));
        run_trial(&t);
        rp_layer_call call = t.call;
        rp_layer_grads g = t.g;
        rp_layer_saved *saved;
        for (int absent = 1; absent <= 3; absent++) { /* 1: the value, 2: the key, 3: both */
            call.value.ndim = absent & 1 ? 0 : 3;
            call.key.ndim = absent & 2 ? 0 : 3;
            g.dquery = array_in(&t.memory, type, 3, t.g.dquery.shape);
            g.dkey = absent & 2 ? (rp_array){.ndim = 0} : array_in(&t.memory, type, 3, t.g.dquery.shape);
            g.dvalue = absent & 1 ? (rp_array){.ndim = 0} : array_in(&t.memory, type, 3, t.g.dquery.shape);
            fine(rp_layer_forward(t.layer, &call, &saved));
            fine(rp_layer_backward(t.layer, &call, saved, &g));
            rp_layer_saved_free(saved);
            for (int64_t x = 0; x < problem_size(&t.g.dquery); x++) {
                const double q = at(&t.g.dquery, x), k = at(&t.g.dkey, x), v = at(&t.g.dvalue, x);
                const double q_k = rounded(q + k, type);
                const double dquery = absent == 1 ? q : absent == 2 ? q_k : rounded(q_k + v, type);
                assert_true(at(&g.dquery, x) == dquery);
                assert_true(absent != 1 || at(&g.dkey, x) == rounded(k + v, type));
                assert_true(absent != 2 || at(&g.dvalue, x) == v);
            }
        }
        end_trial(&t);
    }
}

/* A row that attends to nothing has out = bo and a gradient of 0. */
static void masked_rows(void **state)
{
    (void)state;
    EACH_TYPE(type)
    {
        trial t;
        published(&t, ALL_SETTINGS, type);
        const rp_array bo = data_of(&t.d, rp_layer_param_named(t.layer, "o_proj.bias"));
        with_weights(&t, false);
        memset(t.call.weights.data, 0xff, bytes_of(&t.call.weights));
        run_trial(&t);
        same(t.name, "a masked row", t.call.out.data, bo.data, bytes_of(&bo));
        for (int64_t x = 0; x < t.d.width; x++)
            assert_true(at(&t.g.dquery, x) == 0);
        for (int64_t h = 0; h < 4; h++)
            for (int64_t j = 0; j < 5; j++)
                assert_true(at(&t.call.weights, h * 25 + j) == 0);
        end_trial(&t);
        /* no keys at all, without an output projection */
        rp_layer_desc d = rp_layer_desc_init(4, 2);
        d.weight[RP_O] = 0;
        begin_trial(&t, "no keys", d, type, 2, 3, 0, false);
        t.call.key = t.g.dkey = rp_array_of(NULL, type, 3, SHAPE(2, 0, 4));
        memset(t.call.out.data, 0xff, bytes_of(&t.call.out));
        memset(t.g.dquery.data, 0xff, bytes_of(&t.g.dquery));
        run_trial(&t);
        for (int64_t x = 0; x < 24; x++)
            assert_true(at(&t.call.out, x) == 0 && at(&t.g.dquery, x) == 0);
        end_trial(&t);
        /* no queries, and no batch */
        for (int n = 0; n < 2; n++) {
            begin_trial(&t, "nothing", rp_layer_t5_attention(4, 2, 8, 5, 1, 1), type, n ? 0 : 2, n ? 3 : 0, 3, false);
            run_trial(&t);
            for (int64_t x = 0; x < problem_size(&t.g.dkey); x++)
                assert_true(at(&t.g.dkey, x) == 0);
            end_trial(&t);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ weights */

/* The numbers of rp_layer_random depend on the seed, have the documented deviations, and are valid for every term. */
static void random_weights(void **state)
{
    (void)state;
    rp_layer_desc d = rp_layer_relative_self_attention(64, 32, 32, 100);
    d.weight[RP_O] = d.bias[RP_Q] = 1;
    d.term[d.n_terms] = rp_term_init(RP_TERM_T5);
    d.term[d.n_terms].buckets = 512, d.term[d.n_terms++].max_distance = 1000;
    rp_layer *a = layer_of(d), *b = layer_of(d);
    rp_layer_random(a, 1);
    rp_layer_random(b, 1);
    EACH_PARAM(a, w)
    {
        const rp_layer_param *other = rp_layer_param_at(b, w_n);
        double square = 0, want = 0.0004;
        for (int64_t x = 0; x < w->n; x++)
            square += pow(((const double *)w->data)[x], 2);
        if (w->ndim == 1)
            want = 0;
        else if (!strstr(w->name, "term2"))
            want = 2.0 / (double)(w->shape[w->ndim - 2] + w->shape[w->ndim - 1]);
        /* n squares of normal numbers: the deviation of the sum is sqrt(2 n) */
        if (!(fabs(square - (double)w->n * want) <= 5 * sqrt(2 * (double)w->n) * want))
            fail_msg("%s: the mean square is %g, expected %g", w->name, square / (double)w->n, want);
        same(w->name, "equal seeds", w->data, other->data, (size_t)w->n * sizeof(double));
        rp_layer_random(b, 2);
        assert_true(w->ndim == 1 || memcmp(w->data, other->data, (size_t)w->n * sizeof(double)) != 0);
        rp_layer_random(b, 1);
    }
    rp_layer_destroy(a);
    rp_layer_destroy(b);
    for (rp_term_kind kind = 1; kind < RP_TERM_COUNT; kind++) {
        trial t;
        for (int sample = 0; one_term(&t, kind, sample, RP_F32); sample++) {
            rp_layer_random(t.layer, 3);
            run_trial(&t);
            end_trial(&t);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ images */

static void fill_integers(const rp_array *a, uint64_t *random)
{
    for (int64_t x = 0; x < problem_size(a); x++)
        set(a, x, (double)(int64_t)(problem_next(random) % 200) - 100);
}

static double inner(const rp_array *a, const rp_array *b)
{
    double sum = 0;
    for (int64_t x = 0; x < problem_size(a); x++)
        sum += at(a, x) * at(b, x);
    return sum;
}

/* Windows and patches are permutations: there and back is the identity, and <P x, y> = <x, P^T y>, exactly. */
static void permutations_of_images(void **state)
{
    uint64_t random = 1;
    (void)state;
    EACH_TYPE(type)
    {
        problem p = {.n_memory = 0};
        for (int64_t wh = 1; wh <= 3; wh++)
            for (int64_t ww = 1; ww <= 3; ww++)
                for (int64_t shift = 0; shift < wh * ww; shift++) {
                    const rp_windows o = {wh * 2, ww * 3, wh, ww, shift / ww, shift % ww};
                    const rp_array x = ZEROS(&p, type, 2, o.h, o.w, 2), back = ZEROS(&p, type, 2, o.h, o.w, 2);
                    const rp_array y = ZEROS(&p, type, 12, wh * ww, 2), cut = ZEROS(&p, type, 12, wh * ww, 2);
                    const rp_array labels = ZEROS(&p, RP_I32, 12, wh * ww);
                    fill_integers(&x, &random);
                    fill_integers(&y, &random);
                    fine(rp_window_partition(&x, &o, &cut));
                    fine(rp_window_reverse(&cut, &o, &back));
                    same("windows", "there and back", x.data, back.data, bytes_of(&x));
                    fine(rp_window_reverse(&y, &o, &back));
                    assert_true(inner(&cut, &y) == inner(&x, &back));
                    fine(rp_window_labels(&o, &labels));
                    for (int64_t n = 0; shift == 0 && n < problem_size(&labels); n++)
                        assert_int_equal(((const int32_t *)labels.data)[n], 0);
                    problem_free(&p);
                    p.n_memory = 0;
                }
        for (int64_t size = 1; size <= 4; size++) {
            const rp_array x = ZEROS(&p, type, 2, 3, 2 * size, 3 * size),
                           back = ZEROS(&p, type, 2, 3, 2 * size, 3 * size);
            const rp_array y = ZEROS(&p, type, 2, 6, 3 * size * size), cut = ZEROS(&p, type, 2, 6, 3 * size * size);
            fill_integers(&x, &random);
            fill_integers(&y, &random);
            fine(rp_patches(&x, size, &cut));
            fine(rp_patches_back(&cut, size, &back));
            same("patches", "there and back", x.data, back.data, bytes_of(&x));
            fine(rp_patches_back(&y, size, &back));
            assert_true(inner(&cut, &y) == inner(&x, &back));
        }
        problem_free(&p);
    }
}

/* <R x, y> = <x, R^T y> for all sizes up to 5 x 5. Interpolation to the same size is the identity. */
static void interpolation(void **state)
{
    uint64_t random = 1;
    (void)state;
    for (int how = RP_BILINEAR; how <= RP_BICUBIC; how++)
        for (int64_t from = 1; from <= 5; from++)
            for (int64_t to = 1; to <= 5; to++) {
                enum { D = 3, W = 4, V = 3, EXTRA = 2 };
                problem p = {.n_memory = 0};
                const rp_array x = ZEROS(&p, RP_F64, EXTRA + from * W, D), rx = ZEROS(&p, RP_F64, EXTRA + to * V, D);
                const rp_array y = ZEROS(&p, RP_F64, EXTRA + to * V, D), ry = ZEROS(&p, RP_F64, EXTRA + from * W, D);
                const rp_array same_size = ZEROS(&p, RP_F64, EXTRA + from * W, D);
                double most = 0, sum = 0;
                fill_normal(&x, &random);
                fill_normal(&y, &random);
                fine(rp_resize_table(&x, from, W, EXTRA, how, &rx, to, V));
                fine(rp_resize_table_back(&y, to, V, EXTRA, how, &ry, from, W));
                for (int64_t n = 0; n < problem_size(&x); n++)
                    most = fmax(most, fabs(at(&x, n)));
                for (int64_t n = 0; n < problem_size(&y); n++)
                    sum += fabs(at(&y, n));
                /* both sides sum the same products, whose absolute values sum to at most 1.375^2 most sum */
                const double bound =
                    DBL_EPSILON * (double)(problem_size(&x) + problem_size(&y) + 64) * 1.9 * most * sum;
                const double a = inner(&rx, &y), b = inner(&x, &ry);
                if (!(fabs(a - b) <= bound))
                    fail_msg("%d, %d to %d: %.17g and %.17g, bound %g", how, (int)from, (int)to, a, b, bound);
                fine(rp_resize_table(&x, from, W, EXTRA, how, &same_size, from, W));
                same("interpolation", "the same size", x.data, same_size.data, bytes_of(&x));
                problem_free(&p);
            }
}

/* ------------------------------------------------------------------------------------------------ other */

static int calls_of_blas;

/* The definition of a matrix product, in the order of plain loops. */
static void own_dgemm(int order, int transa, int transb, int m, int n, int k, double alpha, const double *a, int lda,
                      const double *b, int ldb, double beta, double *c, int ldc)
{
    assert_int_equal(order, 101);
    assert_true(alpha == 1);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = beta == 0 ? 0 : beta * c[i * ldc + j];
            for (int t = 0; t < k; t++)
                sum += a[transa == 112 ? t * lda + i : i * lda + t] * b[transb == 112 ? j * ldb + t : t * ldb + j];
            c[i * ldc + j] = sum;
        }
    calls_of_blas++;
}

static void products_of_a_blas(void **state)
{
    trial t;
    (void)state;
    published(&t, ALL_SETTINGS, RP_F64);
    rp_pool *pool;
    good(rp_pool_create(&pool, 1));
    t.call.pool = pool;
    run_trial(&t);
    void *const out = copy_of(&t.call.out), *const dquery = copy_of(&t.g.dquery);
    rp_layers_use_blas(NULL, own_dgemm);
    run_trial(&t);
    same(t.name, "out", out, t.call.out.data, bytes_of(&t.call.out));
    same(t.name, "dquery", dquery, t.g.dquery.data, bytes_of(&t.g.dquery));
    assert_int_equal(calls_of_blas, 12); /* four products forward, twice as many backward */
    rp_layers_use_blas(NULL, NULL);
    run_trial(&t);
    assert_int_equal(calls_of_blas, 12);
    free(out);
    free(dquery);
    rp_pool_destroy(pool);
    end_trial(&t);
}

/* A forward and a backward pass over 16,384 tokens need less memory than a byte for each pair, 256 MB. */
static void memory_is_linear(void **state)
{
    enum { L = 16384, WIDTH = 16, MEGABYTES = 96 };
    (void)state;
    if (SANITIZED || EMULATED)
        return; /* memory limits have no effect there */
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        trial t;
        rp_pool *pool;
        rp_layer_desc d = rp_layer_t5_attention(WIDTH, 2, 32, 128, 1, 1);
        d.mask[d.n_masks] = rp_mask_init(RP_MASK_WINDOW);
        d.mask[d.n_masks].left = d.mask[d.n_masks].right = 64;
        d.n_masks++;
        begin_trial(&t, "memory", d, RP_F32, 1, L, 0, false);
        if (rp_pool_create(&pool, 2) != RP_OK)
            _exit(2);
        t.call.pool = pool;
        limit_memory(MEGABYTES);
        run_trial(&t);
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(other_entries_do_not_matter),
        cmocka_unit_test(decoding_equals_one_pass),
        cmocka_unit_test(dropout_depends_on_the_seed),
        cmocka_unit_test(threads_share_a_layer),
        cmocka_unit_test(steps_of_descent),
        cmocka_unit_test(absent_inputs_add_up),
        cmocka_unit_test(masked_rows),
        cmocka_unit_test(random_weights),
        cmocka_unit_test(permutations_of_images),
        cmocka_unit_test(interpolation),
        cmocka_unit_test(products_of_a_blas),
        cmocka_unit_test(memory_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
