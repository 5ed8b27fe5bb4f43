/* test_nn.c -- the models of the laboratory, compiled in double. Compares every gradient with differences, for every
 * scheme and layer; compares decoding with one pass; and checks that independent parts do not affect each other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <relpos/facts.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, LENGTH = 9, VOCAB = 11 };

static void good(int code, const char *err)
{
    if (code != 0)
        fail_msg("%s", err);
}

/* Return the configuration of a small model. The arguments are pairs of key and value, followed by NULL. */
static nn_config small(const char *first, ...)
{
    char err[NN_ERR_MAX];
    nn_config c;
    va_list list;
    static const char *const base[] = {"layers", "2",     "width", "16",     "heads", "2",     "mlp",
                                       "12",     "vocab", "11",    "length", "9",     "batch", "2"};
    nn_config_init(&c);
    for (size_t n = 0; n < sizeof base / sizeof *base; n += 2)
        good(nn_config_set(&c, base[n], base[n + 1], err), err);
    va_start(list, first);
    for (const char *key = first; key; key = va_arg(list, const char *))
        good(nn_config_set(&c, key, va_arg(list, const char *), err), err);
    va_end(list);
    return c;
}

/* Move the weights away from the special values that training starts with. */
static void stir(nn_model *m)
{
    for (int32_t n = 0; n < m->n_params; n++)
        for (int64_t x = 0; x < m->params[n].size; x++) {
            real *w = &m->w[m->params[n].offset + x];
            *w += (real)(0.15 * layers_normal(7, (uint64_t)n, (uint64_t)x));
            *w = *w < m->params[n].min ? m->params[n].min : *w;
        }
}

static void fill_tokens(int32_t *tokens, int32_t *target, int64_t n, int64_t classes)
{
    for (int64_t x = 0; x < n; x++) {
        tokens[x] = (int32_t)(layers_random(3, 0, (uint64_t)x) % VOCAB);
        target[x] = (int32_t)(layers_random(3, 1, (uint64_t)x) % (uint64_t)classes);
    }
    target[1] = classes > 2 ? -1 : target[1]; /* no loss at this position */
}

/* Give an encoder-decoder its input: sources of 7 and of 4 tokens. */
static void give_source(nn_net *net, const nn_config *c)
{
    enum { SOURCE = 7 };
    static int32_t source[BATCH * SOURCE];
    const int32_t lengths[BATCH] = {SOURCE, 4};
    char err[NN_ERR_MAX];
    for (int x = 0; x < BATCH * SOURCE; x++)
        source[x] = (int32_t)(layers_random(3, 2, (uint64_t)x) % VOCAB);
    if (c->task == NN_ENCODER_DECODER)
        good(nn_net_source(net, SOURCE, source, lengths, err), err);
}

/* Compare the gradient with differences D(h), for a few elements of each parameter. The error of a difference comes
 * from the third derivative, estimated by D(h) - D(h/2) (three quarters of it remain), and from the rounding of two
 * losses. */
static double check_gradients(const nn_config *c, const char *what)
{
    enum { PICKS = 2 };
    const double h = 1e-4;
    char err[NN_ERR_MAX];
    nn_model m;
    nn_net *net;
    int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH];
    double loss[BATCH * LENGTH], mean, other, worst = 0;
    good(nn_model_create(&m, c, true, err), err);
    good(nn_net_create(&net, &m, NULL, BATCH, LENGTH, true, 0, NULL, err), err);
    stir(&m);
    fill_tokens(tokens, target, BATCH * LENGTH, c->task == NN_CLASSIFIER ? c->classes : VOCAB);
    give_source(net, c);
    good(nn_net_loss(net, LENGTH, tokens, target, 5, loss, &mean, err), err);
    assert_true(isfinite(mean));
    real *g = malloc((size_t)m.n_weights * sizeof *g);
    assert_non_null(g);
    memcpy(g, m.g, (size_t)m.n_weights * sizeof *g);
    for (int32_t n = 0; n < m.n_params; n++) {
        const nn_param *p = &m.params[n];
        for (int k = 0; k < PICKS && k < p->size; k++) {
            const int64_t some = n == 0 ? VOCAB * c->width : p->size; /* of the embedding, only tokens of the input */
            const int64_t x = p->offset + (int64_t)(layers_random(9, (uint64_t)n, (uint64_t)k) % (uint64_t)some);
            const real before = m.w[x];
            double d[2];
            for (int step = 0; step < 2; step++) {
                const double s = step ? h / 2 : h;
                m.w[x] = before + s;
                good(nn_net_loss(net, LENGTH, tokens, target, 5, loss, &mean, err), err);
                m.w[x] = before - s;
                good(nn_net_loss(net, LENGTH, tokens, target, 5, loss, &other, err), err);
                d[step] = (mean - other) / (2 * s);
            }
            m.w[x] = before;
            const double bound = fabs(d[0] - d[1]) + 1000 * DBL_EPSILON * fmax(1, fabs(mean)) / h;
            worst = fmax(worst, fabs(d[1] - g[x]) / bound);
            if (!(fabs(d[1] - g[x]) <= bound))
                fail_msg("%s: %s, number %lld: the gradient is %.12g, the difference %.12g, bound %.3g", what, p->name,
                         (long long)(x - p->offset), g[x], d[1], bound);
        }
    }
    free(g);
    nn_net_destroy(net);
    nn_model_destroy(&m);
    return worst;
}

/* ------------------------------------------------------------------------------------------------ tests */

static const char *const positions[] = {
    "none",
    "sinusoidal",
    "learned",
    "t5,buckets=8,max_distance=9,bidirectional=0",
    "bucket,strategy=uniform,buckets=8,max_distance=12",
    "bucket,strategy=linear,buckets=8,max_distance=12",
    "bucket,strategy=quadratic,buckets=8,max_distance=12,bidirectional=0",
    "table,left=4,right=2",
    "log",
    "linear",
    "alibi",
    "alibi,slopes=learned",
    "kerple",
    "kerple,kind=power",
    "sandwich,dim=8",
    "fire,c=0.5,L=4,width=6",
    "fire,c=0.5,L=4,width=6,width2=5",
    "relkey,left=3,right=1",
    "relkey,left=3,right=1+relval,left=2,right=0",
    "xl",
    "band,width=3,extent=4",
    "deberta,span=4",
    "real,max_distance=5",
    "rope",
    "rope,scaling=yarn,factor=2.0,max_position_embeddings=16,original_max_position_embeddings=8",
    "sink",
    "forget",
    "rope+forget",
    "t5,buckets=8,max_distance=9+rope,dim=4+sinusoidal",
    "alibi+band,width=2,extent=3+table,left=1,right=1+table,left=2,right=2",
};
enum { N_POSITIONS = sizeof positions / sizeof *positions };

static void gradients_of_every_position_equal_differences(void **state)
{
    double worst = 0;
    (void)state;
    for (int n = 0; n < N_POSITIONS; n++) {
        nn_config c = small("position", positions[n], NULL);
        worst = fmax(worst, check_gradients(&c, positions[n]));
        c.position_layers = 1;
        worst = fmax(worst, check_gradients(&c, positions[n]));
    }
    print_message("largest error / bound: %.3f\n", worst);
}

/* For every term of the library, with its sample text: either the laboratory can train it, or the error names the array
 * that it cannot create. */
static void gradients_of_samples_equal_differences(void **state)
{
    (void)state;
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
        const char *name = rp_term_name((rp_term_kind)k);
        const rp_term_facts *facts = rp_term_about((rp_term_kind)k);
        for (int x = 0; x < RP_MAX_SAMPLES && (facts->samples[x] || x == 0); x++) {
            char text[200], err[NN_ERR_MAX];
            const char *sample = facts->samples[x] ? facts->samples[x] : "";
            nn_model m;
            snprintf(text, sizeof text, "%s%s%s", name, *sample ? "," : "", sample);
            if (strstr(sample, "grid=") ||
                strstr(sample, "=given")) /* a text is not a grid, and arrays of given positions come from a file */
                continue;
            nn_config c = small("position", text, NULL);
            const int code = nn_model_plan(&m, &c, err);
            nn_model_destroy(&m);
            if (code == 0) {
                check_gradients(&c, text);
                continue;
            }
            bool by_text = false, given = false;
            for (int a = 0; rp_term_array((rp_term_kind)k, a); a++) {
                const rp_array_facts *array = rp_term_array_about((rp_term_kind)k, a);
                by_text |= strstr(array->shape, "Lk") || strstr(array->shape, "Lq");
                given |= array->use == RP_USE_CONSTANT || array->use == RP_USE_INDEX;
            }
            if (!(by_text && strstr(err, "is as long as the text")) && !(given && strstr(err, "must come from a file")))
                fail_msg("%s: %s", text, err);
        }
    }
}

static void gradients_of_every_layer_equal_differences(void **state)
{
    (void)state;
    for (int act = LAYERS_GELU; act <= LAYERS_GEGLU; act++)
        for (int norm = LAYERS_LAYERNORM; norm <= LAYERS_RMSNORM; norm++)
            for (int task = NN_DECODER; task <= NN_ENCODER_DECODER; task++)
                for (int drop = 0; drop < 2; drop++) {
                    nn_config c = small("position", "t5,buckets=8,max_distance=9", NULL);
                    char what[100];
                    c.act = act;
                    c.norm = norm;
                    c.task = task;
                    c.vocab = task == NN_ENCODER_DECODER ? NN_TOKENS : VOCAB;
                    c.tied = drop;
                    c.dropout = drop ? 0.3 : 0;
                    snprintf(what, sizeof what, "activation %d, norm %d, task %d, dropout %g", act, norm, task,
                             c.dropout);
                    check_gradients(&c, what);
                }
}

static void gradients_of_scaled_embeddings_equal_differences(void **state)
{
    static const char *const scales[][2] = {{"0", "0"}, {"2.5", "0.7"}};
    (void)state;
    for (int n = 0; n < 2; n++)
        for (int tied = 0; tied < 2; tied++) {
            const nn_config c = small("position", "sinusoidal+learned+rope", "embedding_scale", scales[n][0],
                                      "sinusoidal_scale", scales[n][1], "tied", tied ? "1" : "0", "bos", "1", NULL);
            check_gradients(&c, scales[n][0]);
        }
}

/* Queries scaled by log(n), for terms that read the queries and for terms that do not. */
static void gradients_of_log_scale_equal_differences(void **state)
{
    static const char *const some[] = {"none",   "rope", "alibi+relkey,left=3,right=0", "band,width=3,extent=4", "xl",
                                       "forget", "sink"};
    (void)state;
    for (size_t n = 0; n < sizeof some / sizeof *some; n++)
        for (int kind = 0; kind < 2; kind++) {
            const nn_config c =
                small("position", some[n], "log_scale", kind ? "learned" : "fixed", "dropout", "0.2", NULL);
            check_gradients(&c, some[n]);
        }
}

/* Check gradients of models whose middle layer has no terms. The other layers have separate or shared arrays; some
 * terms have projections (xl) or gates (forget). */
static void gradients_of_layers_without_terms_equal_differences(void **state)
{
    static const char *const some[] = {"rope", "t5,buckets=8,max_distance=9", "xl+learned", "band,width=3,extent=4",
                                       "forget+alibi,slopes=learned"};
    (void)state;
    for (size_t n = 0; n < sizeof some / sizeof *some; n++)
        for (int shared = 0; shared < 2; shared++) {
            const nn_config c = small("position", some[n], "nope_every", "2", "layers", "3", "position_layers",
                                      shared ? "shared" : "own", "log_scale", shared ? "learned" : "none", NULL);
            check_gradients(&c, some[n]);
        }
}

/* Return the loss of a model whose weights were changed. */
static double loss_of(const nn_config *c, bool train)
{
    char err[NN_ERR_MAX];
    nn_model m;
    nn_net *net;
    int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH];
    double loss[BATCH * LENGTH], mean;
    good(nn_model_create(&m, c, train, err), err);
    stir(&m);
    good(nn_net_create(&net, &m, NULL, BATCH, LENGTH, train, 0, NULL, err), err);
    fill_tokens(tokens, target, BATCH * LENGTH, VOCAB);
    good(nn_net_loss(net, LENGTH, tokens, target, train ? 5 : 0, loss, &mean, err), err);
    nn_net_destroy(net);
    nn_model_destroy(&m);
    return mean;
}

/* If no layer has terms, the result equals that of a model without terms. If some layers have terms, it differs from
 * both no terms and terms in all layers. */
static void layers_without_terms_equal_no_terms(void **state)
{
    static const char *const some[] = {"rope", "band,width=3,extent=4", "xl", "t5,buckets=8,max_distance=9"};
    (void)state;
    for (size_t n = 0; n < sizeof some / sizeof *some; n++) {
        nn_config c = small("position", "none", NULL);
        nn_model m;
        char err[NN_ERR_MAX];
        const double none = loss_of(&c, false);
        c = small("position", some[n], "nope_every", "1", NULL);
        assert_true(loss_of(&c, false) == none);
        c.nope_every = 2;
        const double first = loss_of(&c, false);
        good(nn_model_plan(&m, &c, err), err);
        assert_int_equal(nn_layer_terms(&m, 0, 0, NULL), 1);
        assert_int_equal(nn_layer_terms(&m, 0, 1, NULL), 0);
        assert_int_equal(m.params[nn_model_find(&m, "layers.1.attn.qkv.weight")].shape[0], 3 * c.width);
        nn_model_destroy(&m);
        c.nope_every = 3; /* there are only two layers, so all layers have terms */
        const double both = loss_of(&c, false);
        c.nope_every = 0;
        assert_true(first != none && first != both && both == loss_of(&c, false));
    }
}

/* c and L of fire are learned per layer or shared, with shared heads, other terms and drawn positions. With the chosen
 * numbers, no unit of a network switches on or off within a difference. */
static void gradients_of_fire_scales_equal_differences(void **state)
{
    static const char *const some[] = {"fire,c=0.5,L=4.3,width=6", "fire,c=0.7,L=4.3,width=6,width2=5",
                                       "fire,c=2,L=2.6,width=4+rope",
                                       "t5,buckets=8,max_distance=9+fire,c=0.1,L=40,width=4+fire,c=0.3,L=5.5,width=3"};
    double worst = 0;
    (void)state;
    for (size_t n = 0; n < sizeof some / sizeof *some; n++)
        for (int kind = 0; kind < 4; kind++) {
            nn_config c = small("position", some[n], "fire_scales", "learned", "dropout", "0.2", "nope_every", "3",
                                "layers", "4", NULL);
            c.position_layers = kind == 1;
            c.position_heads = kind == 2;
            c.random_positions = kind == 3 ? 30 : 0;
            worst = fmax(worst, check_gradients(&c, some[n]));
        }
    print_message("largest error / bound: %.3f\n", worst);
}

enum { LONG = 230 }; /* three blocks of rows */

/* Compute the gradients of a model on windows of LONG tokens. Return the loss. */
static double long_loss(nn_model *m, rp_pool *pool)
{
    static int32_t tokens[BATCH * LONG], target[BATCH * LONG];
    static double loss[BATCH * LONG];
    char err[NN_ERR_MAX];
    nn_net *net;
    double mean;
    fill_tokens(tokens, target, BATCH * LONG, VOCAB);
    good(nn_net_create(&net, m, pool, BATCH, LONG, true, 0, NULL, err), err);
    good(nn_net_loss(net, LONG, tokens, target, 5, loss, &mean, err), err);
    nn_net_destroy(net);
    return mean;
}

/* A layer with fire, its parameters, and its gradients. */
typedef struct fire_model {
    nn_model m;
    real *c, *factor, *w1, *b1, *w2, *w3;
    int64_t width, width2;
    double loss;
} fire_model;

static real *number_of(const nn_model *m, const char *name)
{
    const int32_t n = nn_model_find(m, name);
    return n >= 0 ? &m->w[m->params[n].offset] : NULL;
}

static void begin_fire(fire_model *f, const char *position, bool always)
{
    nn_config c = small("position", position, "fire_scales", "learned", "dropout", "0.2", "layers", "1", NULL);
    char err[NN_ERR_MAX];
    c.length = LONG;
    good(nn_model_create(&f->m, &c, true, err), err);
    stir(&f->m);
    f->c = number_of(&f->m, "layers.0.attn.fire.c");
    f->factor = number_of(&f->m, "layers.0.attn.fire.L_factor");
    f->w1 = number_of(&f->m, "layers.0.attn.fire.w1");
    f->b1 = number_of(&f->m, "layers.0.attn.fire.b1");
    f->w2 = number_of(&f->m, "layers.0.attn.fire.w2");
    f->w3 = number_of(&f->m, "layers.0.attn.fire.w3");
    f->width = f->m.params[nn_model_find(&f->m, "layers.0.attn.fire.w1")].size;
    f->width2 = f->w3 ? 4 : 0;
    for (int64_t u = 0; always && u < f->width; u++)
        f->b1[u] = u % 2 ? -fabs(f->w1[u]) - 0.1 : fabs(f->w1[u]) + 0.1;
    f->loss = long_loss(&f->m, NULL);
}

static double gradient_of(const fire_model *f, const real *weight)
{
    return f->m.g[weight - f->m.w];
}

/* The gradients of c and L are computed in blocks of rows. With a network whose units do not switch between inputs 0
 * and 1, they equal differences, for queries before and beyond L. */
static void gradients_of_fire_scales_in_blocks_equal_differences(void **state)
{
    fire_model f;
    const double h = 1e-4;
    double worst = 0;
    (void)state;
    begin_fire(&f, "fire,c=0.3,L=100.5,width=6", true);
    for (int x = 0; x < 2; x++) {
        real *scale = x ? f.factor : f.c, before = *scale;
        const double found = gradient_of(&f, scale);
        double d[2];
        for (int step = 0; step < 2; step++) {
            const double s = step ? h / 2 : h;
            *scale = before + s;
            const double more = long_loss(&f.m, NULL);
            *scale = before - s;
            d[step] = (more - long_loss(&f.m, NULL)) / (2 * s);
        }
        *scale = before;
        assert_true(long_loss(&f.m, NULL) == f.loss);
        const double bound = fabs(d[0] - d[1]) + 1000 * DBL_EPSILON * fmax(1, fabs(f.loss)) / h;
        worst = fmax(worst, fabs(d[1] - found) / bound);
        if (!(fabs(d[1] - found) <= bound))
            fail_msg("%s: the gradient is %.12g, the difference %.12g, bound %.3g", x ? "L" : "c", found, d[1], bound);
    }
    nn_model_destroy(&f.m);
    print_message("largest error / bound: %.3f\n", worst);
}

/* If L is beyond all queries, the gradient of its factor follows from the gradient of w1: with input x and slope f', x
 * f'(x) is the sum of w1 times the derivative by w1. The bound is that of the rounding of a sum over all pairs: each
 * term is rounded in fewer than 4 LONG additions, and the sum of |ds| is below 1, because the loss is a mean over rows.
 * The bits do not depend on the number of threads. */
static void gradients_of_fire_scales_in_blocks_equal_those_of_weights(void **state)
{
    static const char *const some[] = {"fire,c=0.3,L=400,width=6", "fire,c=0.3,L=400,width=5,width2=4"};
    const double L = 400;
    double worst = 0;
    (void)state;
    for (size_t n = 0; n < sizeof some / sizeof *some; n++) {
        fire_model f;
        rp_pool *pool;
        begin_fire(&f, some[n], false);
        const int64_t heads = f.m.c.heads;
        const double found = gradient_of(&f, f.factor), of_c = gradient_of(&f, f.c), most = *f.factor * L;
        const double of_input = -L * *f.c / (1 + *f.c * most) / (log1p(*f.c * most) + 1e-6);
        double expected = 0, size = 0;
        for (int64_t u = 0; u < f.width; u++) {
            expected += of_input * f.w1[u] * gradient_of(&f, f.w1 + u);
            for (int64_t v = 0; v < (f.w3 ? f.width2 : heads); v++)
                for (int64_t head = 0; head < (f.w3 ? heads : 1); head++)
                    size +=
                        fabs(of_input * f.w1[u] * f.w2[v * f.width + u]) * (f.w3 ? fabs(f.w3[head * f.width2 + v]) : 1);
        }
        const double bound = 4 * LONG * DBL_EPSILON * size;
        worst = fmax(worst, fabs(found - expected) / bound);
        if (!(fabs(found - expected) <= bound))
            fail_msg("%s: the gradient of L is %.15g, expected %.15g, bound %.3g", some[n], found, expected, bound);
        good(rp_pool_create(&pool, 3) == RP_OK ? 0 : -1, "no threads");
        assert_true(long_loss(&f.m, pool) == f.loss);
        assert_true(gradient_of(&f, f.factor) == found && gradient_of(&f, f.c) == of_c);
        rp_pool_destroy(pool);
        nn_model_destroy(&f.m);
    }
    print_message("largest error / bound: %.2g\n", worst);
}

/* Terms that work with drawn positions: tables, biases, rotations, vectors, positions added to the embedding, and
 * combinations with terms that read no positions. */
static const char *const with_positions[] = {
    "sinusoidal",
    "learned",
    "t5,buckets=8,max_distance=9,bidirectional=0",
    "table,left=9,right=0",
    "log",
    "alibi,slopes=learned",
    "kerple",
    "sandwich,dim=8",
    "fire,c=0.5,L=4,width=6",
    "relkey,left=9,right=1+relval,left=7,right=0",
    "rope",
    "real,max_distance=9+learned",
    "rope,dim=4+forget+sink",
};

static void gradients_with_drawn_positions_equal_differences(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof with_positions / sizeof *with_positions; n++) {
        const nn_config c = small("position", with_positions[n], "random_positions", "30", NULL);
        check_gradients(&c, with_positions[n]);
    }
}

static void drawn_positions_are_sorted_and_all_equally_likely(void **state)
{
    enum { N = 7, RANGE = 19, ROUNDS = 20000 };
    int64_t at[N], again[N], count[RANGE] = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        nn_draw_positions(seed, RANGE, N, at);
        for (int x = 0; x < N; x++) {
            assert_true(at[x] >= (x ? at[x - 1] + 1 : 0) && at[x] < RANGE);
            count[at[x]]++;
        }
    }
    const double mean = (double)ROUNDS * N / RANGE, sd = sqrt(mean * (1 - (double)N / RANGE));
    for (int x = 0; x < RANGE; x++)
        if (!(fabs((double)count[x] - mean) < 5 * sd))
            fail_msg("position %d was drawn %lld times: %.0f are expected, within %.0f", x, (long long)count[x], mean,
                     5 * sd);
    nn_draw_positions(ROUNDS, RANGE, N, again);
    assert_memory_equal(at, again, sizeof at);
    nn_draw_positions(3, N, N, at); /* range = N: all positions are drawn */
    for (int x = 0; x < N; x++)
        assert_int_equal(at[x], x);
}

/* If as many positions exist as are drawn, the only possible draw is 0, 1, 2, ..., and the losses equal the losses
 * without drawing. If more exist, the losses differ, and change from draw to draw. */
static void drawn_positions_reach_every_term(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof with_positions / sizeof *with_positions; n++) {
        nn_config c = small("position", with_positions[n], NULL);
        const double plain = loss_of(&c, true);
        char err[NN_ERR_MAX];
        c.random_positions = LENGTH;
        assert_true(fabs(loss_of(&c, true) - plain) <= 1e-12);
        c.random_positions = 4 * LENGTH;
        const double drawn = loss_of(&c, true);
        if (!(fabs(drawn - plain) > 1e-9))
            fail_msg("%s: the loss is %.17g with and without drawn positions", with_positions[n], plain);
        nn_model m;
        nn_net *net;
        int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH];
        double loss[BATCH * LENGTH], mean[5];
        good(nn_model_create(&m, &c, true, err), err);
        stir(&m);
        good(nn_net_create(&net, &m, NULL, BATCH, LENGTH, true, 0, NULL, err), err);
        fill_tokens(tokens, target, BATCH * LENGTH, VOCAB);
        for (uint64_t seed = 0; seed < 5; seed++) /* seeds 0, 5, 0, 5, 6 */
            good(nn_net_loss(net, LENGTH, tokens, target, seed == 4 ? 6 : seed % 2 * 5, loss, &mean[seed], err), err);
        assert_true(mean[1] == drawn && mean[3] == drawn && mean[4] != drawn);
        assert_true(mean[0] != mean[2] && mean[0] != drawn);
        nn_net_destroy(net);
        nn_model_destroy(&m);
    }
}

/* Every scheme in both stacks of an encoder-decoder; the stacks have different numbers of layers. */
static void gradients_of_an_encoder_decoder_equal_differences(void **state)
{
    double worst = 0;
    (void)state;
    for (int n = 0; n < N_POSITIONS; n++) {
        nn_config c = small("task", "encoder-decoder", "vocab", "259", "decoder_layers", "1", "position", positions[n],
                            "length", "9", "dropout", "0.2", NULL);
        snprintf(c.encoder_position, sizeof c.encoder_position, "%s", positions[N_POSITIONS - 1 - n]);
        worst = fmax(worst, check_gradients(&c, positions[n]));
    }
    print_message("largest error / bound: %.3f\n", worst);
}

/* An array shared by all heads has a head axis of length 1. */
static void shared_heads_keep_an_axis_of_one(void **state)
{
    static const char *const some[] = {
        "t5,buckets=8,max_distance=9", "relkey,left=2,right=0", "real,max_distance=5", "xl", "kerple",
        "table,left=3,right=0"};
    (void)state;
    for (size_t n = 0; n < sizeof some / sizeof *some; n++) {
        char err[NN_ERR_MAX];
        nn_config c = small("position", some[n], NULL);
        nn_model own, shared;
        good(nn_model_plan(&own, &c, err), err);
        c.position_heads = 1;
        good(nn_model_plan(&shared, &c, err), err);
        assert_true(shared.n_weights <= own.n_weights);
        nn_model_destroy(&own);
        nn_model_destroy(&shared);
        check_gradients(&c, some[n]);
    }
}

/* The loss of a decoder at a position does not depend on later tokens. */
static void a_decoder_sees_nothing_after_a_place(void **state)
{
    char err[NN_ERR_MAX];
    (void)state;
    for (int n = 0; n < N_POSITIONS; n++) {
        const nn_config c = small("position", positions[n], NULL);
        nn_model m;
        nn_net *net;
        int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH];
        double before[BATCH * LENGTH], after[BATCH * LENGTH], mean;
        good(nn_model_create(&m, &c, false, err), err);
        stir(&m);
        good(nn_net_create(&net, &m, NULL, BATCH, LENGTH, false, 0, NULL, err), err);
        fill_tokens(tokens, target, BATCH * LENGTH, VOCAB);
        good(nn_net_loss(net, LENGTH, tokens, target, 0, before, &mean, err), err);
        tokens[5] = (tokens[5] + 1) % VOCAB;
        good(nn_net_loss(net, LENGTH, tokens, target, 0, after, &mean, err), err);
        for (int x = 0; x < BATCH * LENGTH; x++)
            if (x < 5 || x >= LENGTH)
                assert_true(before[x] == after[x]);
        assert_true(before[5] != after[5]);
        nn_net_destroy(net);
        nn_model_destroy(&m);
    }
}

/* Check that decoding with a cache, one token at a time and in chunks, gives the logits of a single pass. */
static void check_decoding(const nn_config *config, const char *what)
{
    char err[NN_ERR_MAX];
    nn_config c = *config;
    c.length = 2 * LENGTH; /* enough learned positions */
    nn_model m;
    nn_net *whole, *steps;
    int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH];
    real want[VOCAB], got[VOCAB];
    good(nn_model_create(&m, &c, false, err), err);
    stir(&m);
    good(nn_net_create(&whole, &m, NULL, 1, LENGTH, false, 0, NULL, err), err);
    fill_tokens(tokens, target, LENGTH, VOCAB);
    for (int round = 0; round < 2; round++) {
        good(nn_net_create(&steps, &m, NULL, 1, 3, false, LENGTH, NULL, err), err);
        for (int64_t at = 0; at < LENGTH;) {
            const int64_t some = round && at == 3 ? 3 : 1;
            good(nn_net_logits(steps, some, tokens + at, got, err), err);
            at += some;
            good(nn_net_logits(whole, at, tokens, want, err), err);
            for (int x = 0; x < VOCAB; x++)
                if (!(fabs(want[x] - got[x]) <= 1e-12 * (1 + fabs(want[x]))))
                    fail_msg("%s: token %lld: logit %d is %.17g, in one pass %.17g", what, (long long)at, x,
                             (double)got[x], (double)want[x]);
        }
        assert_int_equal(nn_net_logits(steps, 1, tokens, got, err), -1); /* the cache is full */
        nn_net_destroy(steps);
    }
    nn_net_destroy(whole);
    nn_model_destroy(&m);
}

static void decoding_equals_one_pass(void **state)
{
    (void)state;
    for (int n = 0; n < N_POSITIONS; n++) {
        const nn_config c = small("position", positions[n], "log_scale", n % 2 ? "learned" : "none", "nope_every",
                                  n % 3 ? "0" : "2", NULL);
        check_decoding(&c, positions[n]);
    }
}

static void decoding_with_drawn_positions_equals_one_pass(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof with_positions / sizeof *with_positions; n++) {
        const nn_config c = small("position", with_positions[n], "random_positions", "40", NULL);
        check_decoding(&c, with_positions[n]);
    }
}

/* Neither the padding of a source nor other entries of the batch change the result. */
static void padding_of_a_source_changes_nothing(void **state)
{
    char err[NN_ERR_MAX];
    const nn_config c = small("task", "encoder-decoder", "vocab", "259", "preset", "t5", NULL);
    nn_model m;
    nn_net *net;
    int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH], source[BATCH * LENGTH], two[BATCH * 5];
    double whole[BATCH * LENGTH], cut[BATCH * LENGTH], other[BATCH * LENGTH], mean;
    (void)state;
    good(nn_model_create(&m, &c, false, err), err);
    stir(&m);
    good(nn_net_create(&net, &m, NULL, BATCH, LENGTH, false, 0, NULL, err), err);
    fill_tokens(tokens, target, BATCH * LENGTH, VOCAB);
    for (int x = 0; x < BATCH * LENGTH; x++)
        source[x] = x % VOCAB;
    for (int b = 0; b < BATCH; b++)
        memcpy(two + b * 5, source + b * LENGTH, 5 * sizeof *two);
    assert_int_equal(nn_net_loss(net, LENGTH, tokens, target, 0, whole, &mean, err), -1); /* fails without a source */
    good(nn_net_source(net, LENGTH, source, (const int32_t[]){5, 3}, err), err);
    good(nn_net_loss(net, LENGTH, tokens, target, 0, whole, &mean, err), err);
    good(nn_net_source(net, 5, two, (const int32_t[]){5, 3}, err), err);
    good(nn_net_loss(net, LENGTH, tokens, target, 0, cut, &mean, err), err);
    source[0]++;
    source[LENGTH + 3]++; /* past the end of the second source */
    good(nn_net_source(net, LENGTH, source, (const int32_t[]){5, 3}, err), err);
    good(nn_net_loss(net, LENGTH, tokens, target, 0, other, &mean, err), err);
    for (int x = 0; x < BATCH * LENGTH; x++) {
        assert_true(fabs(whole[x] - cut[x]) <= 1e-12 * (1 + fabs(whole[x])));
        assert_true(x < LENGTH ? x == 1 || other[x] != whole[x] : other[x] == whole[x]);
    }
    assert_int_equal(nn_net_source(net, LENGTH, source, (const int32_t[]){5, 0}, err), -1);
    assert_int_equal(nn_net_source(net, LENGTH, source, (const int32_t[]){LENGTH + 1, 1}, err), -1);
    nn_net_destroy(net);
    nn_model_destroy(&m);
}

/* Decode a batch with a cache, one token at a time. The encoder runs only with the first token. */
static void decoding_a_batch_equals_one_pass(void **state)
{
    char err[NN_ERR_MAX];
    nn_config c = small("task", "encoder-decoder", "vocab", "259", "preset", "t5", "tied", "0", NULL);
    nn_model m;
    nn_net *whole, *steps;
    int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH], some[BATCH * LENGTH];
    real *want = malloc(BATCH * NN_TOKENS * sizeof *want), *got = malloc(BATCH * NN_TOKENS * sizeof *got);
    (void)state;
    assert_true(want && got);
    good(nn_model_create(&m, &c, false, err), err);
    stir(&m);
    good(nn_net_create(&whole, &m, NULL, BATCH, LENGTH, false, 0, NULL, err), err);
    good(nn_net_create(&steps, &m, NULL, BATCH, 1, false, LENGTH, NULL, err), err);
    fill_tokens(tokens, target, BATCH * LENGTH, VOCAB);
    give_source(whole, &c);
    for (int round = 0; round < 2; round++) {
        give_source(steps, &c); /* empties the cache */
        for (int64_t at = 0; at < LENGTH; at++) {
            const int32_t next[BATCH] = {tokens[at], tokens[LENGTH + at]};
            good(nn_net_logits(steps, 1, next, got, err), err);
            for (int64_t b = 0; b < BATCH; b++)
                memcpy(some + b * (at + 1), tokens + b * LENGTH, (size_t)(at + 1) * sizeof *some);
            good(nn_net_logits(whole, at + 1, some, want, err), err);
            for (int x = 0; x < BATCH * NN_TOKENS; x++)
                if (!(fabs(want[x] - got[x]) <= 1e-12 * (1 + fabs(want[x]))))
                    fail_msg("token %lld: logit %d is %.17g, in one pass %.17g", (long long)at, x, (double)got[x],
                             (double)want[x]);
        }
    }
    free(want);
    free(got);
    nn_net_destroy(whole);
    nn_net_destroy(steps);
    nn_model_destroy(&m);
}

/* The gradients of two batches, weighted by their fractions of the targets and added, equal the gradient of both
 * batches together. */
static void gradients_of_batches_add_up(void **state)
{
    char err[NN_ERR_MAX];
    const nn_config c = small("position", "xl+t5,buckets=8,max_distance=9", "embedding_scale", "0", NULL);
    nn_model m;
    nn_net *both, *one;
    int32_t tokens[BATCH * LENGTH], target[BATCH * LENGTH];
    double loss[BATCH * LENGTH], mean, worst = 0;
    nn_sums sums = {0};
    (void)state;
    good(nn_model_create(&m, &c, true, err), err);
    good(nn_net_create(&both, &m, NULL, BATCH, LENGTH, true, 0, NULL, err), err);
    good(nn_net_create(&one, &m, NULL, 1, LENGTH, true, 0, NULL, err), err);
    stir(&m);
    fill_tokens(tokens, target, BATCH * LENGTH, VOCAB); /* the first batch has fewer targets, so the fractions differ */
    real *g = malloc((size_t)m.n_weights * sizeof *g);
    assert_non_null(g);
    good(nn_net_loss(both, LENGTH, tokens, target, 0, loss, &mean, err), err);
    memcpy(g, m.g, (size_t)m.n_weights * sizeof *g);
    for (int b = 0; b < BATCH; b++) {
        nn_net_factor(one, (double)(LENGTH - !b) / (BATCH * LENGTH - 1));
        good(nn_sums_next(&sums, &m, err), err);
        good(nn_net_loss(one, LENGTH, tokens + b * LENGTH, target + b * LENGTH, 0, loss, &mean, err), err);
        nn_sums_add(&sums, &m, NULL, b, 1);
    }
    nn_sums_total(&sums, &m, NULL);
    for (int64_t x = 0; x < m.n_weights; x++)
        worst = fmax(worst, fabs(g[x] - m.g[x]));
    print_message("gradients of two batches differ by at most %.2g, bound %.2g\n", worst, 1e-14);
    assert_true(worst <= 1e-14); /* for sums of a few hundred numbers below 0.1 */
    free(g);
    nn_sums_free(&sums);
    nn_net_destroy(both);
    nn_net_destroy(one);
    nn_model_destroy(&m);
}

/* Check the initial size of embeddings, and of the positions added to them, with default values and with values set by
 * keys. */
static void embeddings_have_their_initial_size(void **state)
{
    static const struct {
        const char *scale, *init, *sinusoids;
        /* standard deviation of the embeddings; amplitude of sinusoids, or standard deviation of learned positions */
        double embedding, positions;
    } cases[] = {
        {"1", "0", "0", 0.02, 0.02}, {"0", "0", "0", 0.25, 1},  {"0", "0.5", "0", 0.5, 2},
        {"3", "0", "0", 0.02, 0.06}, {"1", "0.1", "1", 0.1, 1}, {"0", "0", "0.02", 0.25, 0.02},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char err[NN_ERR_MAX];
        const nn_config c =
            small("position", "learned", "vocab", "1000", "length", "1000", "embedding_scale", cases[n].scale,
                  "embedding_init", cases[n].init, "sinusoidal_scale", cases[n].sinusoids, NULL);
        nn_model m;
        good(nn_model_create(&m, &c, false, err), err);
        for (int k = 0; k < 2; k++) {
            const nn_param *p = &m.params[k];
            const double want = k ? cases[n].positions : cases[n].embedding;
            double square = 0;
            for (int64_t x = 0; x < p->size; x++)
                square += (double)m.w[p->offset + x] * (double)m.w[p->offset + x];
            /* the standard error of 16,000 draws is 0.6 % */
            assert_true(fabs(sqrt(square / (double)p->size) - want) < 0.05 * want);
        }
        assert_true(fabs(nn_sinusoidal_scale(&c) - cases[n].positions) <= 1e-15);
        nn_model_destroy(&m);
    }
}

/* Compare AdamW with its formula for four weights: one that decays, one that does not, and one of a term and a learned
 * position, with their own rate and decay. */
static void adamw_follows_its_formula(void **state)
{
    enum { N = 4 };
    char err[NN_ERR_MAX];
    nn_config c = small("lr", "0.01", "lr_min", "0.01", "warmup", "0", "clip", "0", "weight_decay", "0.1", "position",
                        "learned+t5,buckets=8,max_distance=9", "lr_terms", "5", "weight_decay_terms", "0.3", NULL);
    nn_model m;
    (void)state;
    good(nn_model_create(&m, &c, true, err), err);
    const int64_t at[N] = {m.params[0].offset + 5, m.params[nn_model_find(&m, "norm.bias")].offset + 3,
                           m.params[nn_model_find(&m, "layers.1.attn.t5.table")].offset + 2,
                           m.params[nn_model_find(&m, "positions.weight")].offset + 7};
    const double rate[N] = {0.01, 0.01, 0.05, 0.05}, decay[N] = {0.1, 0, 0.3, 0.3};
    double w[N], mean[N] = {0}, square[N] = {0};
    for (int k = 0; k < N; k++)
        w[k] = m.w[at[k]];
    for (int step = 0; step < 4; step++) {
        for (int64_t x = 0; x < m.n_weights; x++)
            m.g[x] = 0;
        for (int k = 0; k < N; k++) {
            const double g = 0.3 * (step - 1.5) + k;
            m.g[at[k]] = g;
            mean[k] = 0.9 * mean[k] + 0.1 * g;
            square[k] = 0.95 * square[k] + 0.05 * g * g;
            w[k] -= rate[k] * decay[k] * w[k];
            w[k] -=
                rate[k] * (mean[k] / (1 - pow(0.9, step + 1))) / (sqrt(square[k] / (1 - pow(0.95, step + 1))) + 1e-8);
        }
        nn_adamw(&m, NULL, step);
        for (int k = 0; k < N; k++)
            assert_true(fabs(w[k] - m.w[at[k]]) <= 1e-14);
    }
    m.c.clip = 0.5; /* with clipping, the averages receive a gradient of norm 0.5 */
    for (int64_t x = 0; x < m.n_weights; x++)
        m.g[x] = m.m[x] = 0;
    m.g[at[0]] = 3;
    m.g[at[1]] = 4;
    assert_true(fabs(nn_adamw(&m, NULL, 4) - 5) <= 1e-14);
    assert_true(fabs(m.m[at[1]] - 0.1 * 0.4) <= 1e-15);
    nn_model_destroy(&m);
}

static void the_rate_rises_and_falls(void **state)
{
    nn_config c = small("lr", "1", "lr_min", "0.1", "warmup", "10", "steps", "110", NULL);
    (void)state;
    assert_true(fabs(nn_rate(&c, 0) - 0.1) < 1e-15 && fabs(nn_rate(&c, 9) - 1) < 1e-15 &&
                fabs(nn_rate(&c, 10) - 1) < 1e-15);
    assert_true(fabs(nn_rate(&c, 60) - 0.55) < 1e-15 && fabs(nn_rate(&c, 110) - 0.1) < 1e-15);
}

/* Impossible models are errors. */
static void impossible_models_are_refused(void **state)
{
    static const struct {
        const char *key, *value, *said;
    } cases[] = {
        {"position", "t6", "did you mean"},
        {"position", "dense", "no projection"},
        {"position", "t5,buckets=1", "buckets"},
        {"position", "rope+rope", "rope"},
        {"heads", "3", "multiple"},
        {"warmup", "1000", "above steps"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char err[NN_ERR_MAX] = "";
        nn_model m;
        nn_net *net = NULL;
        nn_config c = small(cases[n].key, cases[n].value, NULL);
        int32_t tokens[BATCH * LENGTH] = {0};
        double loss[BATCH * LENGTH], mean;
        int code = nn_model_create(&m, &c, false, err);
        if (code == 0) {
            code = nn_net_create(&net, &m, NULL, BATCH, LENGTH, false, 0, NULL, err);
            if (code == 0)
                code = nn_net_loss(net, LENGTH, tokens, tokens, 0, loss, &mean, err);
            nn_net_destroy(net);
            nn_model_destroy(&m);
        }
        if (code == 0 || !strstr(err, cases[n].said))
            fail_msg("%s = %s: \"%s\" has no \"%s\"", cases[n].key, cases[n].value, err, cases[n].said);
    }
}

int main(void)
{
    char err[NN_ERR_MAX];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_every_position_equal_differences),
        cmocka_unit_test(gradients_of_samples_equal_differences),
        cmocka_unit_test(gradients_of_every_layer_equal_differences),
        cmocka_unit_test(gradients_of_log_scale_equal_differences),
        cmocka_unit_test(gradients_of_scaled_embeddings_equal_differences),
        cmocka_unit_test(gradients_of_layers_without_terms_equal_differences),
        cmocka_unit_test(layers_without_terms_equal_no_terms),
        cmocka_unit_test(gradients_of_fire_scales_equal_differences),
        cmocka_unit_test(gradients_of_fire_scales_in_blocks_equal_differences),
        cmocka_unit_test(gradients_of_fire_scales_in_blocks_equal_those_of_weights),
        cmocka_unit_test(gradients_with_drawn_positions_equal_differences),
        cmocka_unit_test(drawn_positions_are_sorted_and_all_equally_likely),
        cmocka_unit_test(drawn_positions_reach_every_term),
        cmocka_unit_test(decoding_with_drawn_positions_equals_one_pass),
        cmocka_unit_test(gradients_of_an_encoder_decoder_equal_differences),
        cmocka_unit_test(shared_heads_keep_an_axis_of_one),
        cmocka_unit_test(a_decoder_sees_nothing_after_a_place),
        cmocka_unit_test(decoding_equals_one_pass),
        cmocka_unit_test(padding_of_a_source_changes_nothing),
        cmocka_unit_test(decoding_a_batch_equals_one_pass),
        cmocka_unit_test(gradients_of_batches_add_up),
        cmocka_unit_test(embeddings_have_their_initial_size),
        cmocka_unit_test(adamw_follows_its_formula),
        cmocka_unit_test(the_rate_rises_and_falls),
        cmocka_unit_test(impossible_models_are_refused),
    };
    if (nn_blas_open(err) != 0) {
        print_message("skipped: %s\n", err);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
