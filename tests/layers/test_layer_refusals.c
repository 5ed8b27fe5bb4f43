/* test_layer_refusals.c -- every mistake in a call of layers.h has a status and one line that names it, and leaves the
 * outputs, the layer and the cache as they were; so does running out of memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/layer_checks.h"
#include "tests/starve.h"
#include <fcntl.h>
#include <sys/stat.h>

#if SANITIZED
/* Make malloc of AddressSanitizer return NULL for impossible sizes, like the normal malloc. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
#endif

#define BIG ((int64_t)1 << 31)

/* Check a status, and that the error is one line with these words. */
static void said(rp_status got, rp_status want, const char *first, const char *second)
{
    const char *line = rp_layer_last_error();
    if (got != want)
        fail_msg("%s \"%s\", not %s (%s, %s)", rp_status_name(got), got == RP_OK ? "" : line, rp_status_name(want),
                 first, second);
    if (!strstr(line, first) || !strstr(line, second))
        fail_msg("\"%s\" does not name %s and %s", line, first, second);
    assert_null(strchr(line, '\n'));
}

/* ------------------------------------------------------------------------------------------------ descriptions */

#define REFUSE(from, change, status, first, second)                                                                    \
    do {                                                                                                               \
        rp_layer_desc d = from;                                                                                        \
        rp_layer *layer = (rp_layer *)&d;                                                                              \
        change;                                                                                                        \
        said(rp_layer_create(&layer, &d), status, first, second);                                                      \
        assert_null(layer);                                                                                            \
    } while (0)

static void descriptions(void **state)
{
    char long_name[300];
    rp_layer *none = (rp_layer *)state;
    (void)state;
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    said(rp_layer_create(NULL, NULL), RP_E_ARG, "layer is NULL", "pass");
    said(rp_layer_create(&none, NULL), RP_E_ARG, "desc is NULL", "rp_layer_desc_init");
    assert_null(none);
#define PLAIN rp_layer_desc_init(6, 2)
    REFUSE(PLAIN, d.size--, RP_E_ARG, "version", "rp_layer_desc_init");
    REFUSE(PLAIN, d.dtype = RP_F16, RP_E_UNSUPPORTED, "dtype", "f16");
    REFUSE(PLAIN, d.dtype = (rp_dtype)77, RP_E_UNSUPPORTED, "dtype", "?");
    REFUSE(PLAIN, d.width = 0, RP_E_RANGE, "width", "0");
    REFUSE(PLAIN, d.width = -6, RP_E_RANGE, "width", "-6");
    REFUSE(PLAIN, d.width = BIG, RP_E_RANGE, "width", "2147483648");
    REFUSE(PLAIN, d.width = 7, RP_E_SHAPE, "width is 7", "heads, 2");
    REFUSE(PLAIN, d.heads = 0, RP_E_RANGE, "heads", "0");
    REFUSE(PLAIN, d.heads = -2, RP_E_RANGE, "heads", "-2");
    REFUSE(PLAIN, d.heads = BIG, RP_E_SHAPE, "heads", "2147483648");
    REFUSE(PLAIN, d.heads = INT64_MIN, RP_E_RANGE, "heads", "-9223372036854775808");
    REFUSE(PLAIN, d.kv_heads = 4, RP_E_RANGE, "kv_heads", "4");
    REFUSE(PLAIN, d.kv_heads = -1, RP_E_RANGE, "kv_heads", "-1");
    REFUSE(PLAIN, d.key_width = -1, RP_E_RANGE, "key_width", "-1");
    REFUSE(PLAIN, d.key_width = BIG, RP_E_RANGE, "key_width", "2147483648");
    REFUSE(PLAIN, d.value_width = -1, RP_E_RANGE, "value_width", "-1");
    REFUSE(PLAIN, d.out_width = -1, RP_E_RANGE, "o_proj", "-1");
    REFUSE(PLAIN, d.dim_k = -1, RP_E_RANGE, "dim_k", "-1");
    REFUSE(PLAIN, d.dim_k = INT32_MAX, RP_E_RANGE, "q_proj", "4294967294");
    REFUSE(PLAIN, d.dim_v = -1, RP_E_RANGE, "dim_v", "-1");
    REFUSE(rp_layer_desc_init(BIG / 2, 1), (void)0, RP_E_OVERFLOW, "q_proj.weight", "63 bits");
    REFUSE(PLAIN, d.weight[RP_V] = 0; d.dim_v = 5, RP_E_SHAPE, "v_proj", "10");
    REFUSE(PLAIN, d.weight[RP_O] = 0; d.out_width = 5, RP_E_SHAPE, "o_proj", "5");
    REFUSE(PLAIN, d.weight[RP_K] = 0; d.bias[RP_K] = 1, RP_E_UNSUPPORTED, "k_proj", "bias");
    REFUSE(PLAIN, d.packed = d.transposed = 1, RP_E_UNSUPPORTED, "packed", "[out, in]");
    REFUSE(PLAIN, d.packed = 1; d.weight[RP_K] = 0, RP_E_UNSUPPORTED, "packed", "Q, K and V");
    REFUSE(PLAIN, d.packed = d.bias[RP_Q] = 1, RP_E_UNSUPPORTED, "packed", "bias");
    REFUSE(PLAIN, d.packed = 1; d.key_width = 5, RP_E_SHAPE, "packed", "5");
    REFUSE(PLAIN, d.scale = NAN, RP_E_RANGE, "scale", "nan");
    REFUSE(PLAIN, d.scale = 1e30, RP_E_RANGE, "scale", "1e+30");
    REFUSE(PLAIN, d.softcap = -1, RP_E_RANGE, "softcap", "-1");
    REFUSE(PLAIN, d.dropout = 1, RP_E_RANGE, "dropout", "1");
    REFUSE(PLAIN, d.n_terms = -1, RP_E_RANGE, "n_terms", "-1");
    REFUSE(PLAIN, d.n_terms = RP_LAYER_TERMS + 1, RP_E_RANGE, "n_terms", "5");
    REFUSE(PLAIN, d.n_masks = -1, RP_E_RANGE, "n_masks", "-1");
    REFUSE(PLAIN, d.n_masks = RP_LAYER_MASKS + 1, RP_E_RANGE, "n_masks", "5");
    REFUSE(PLAIN, d.n_terms = 1, RP_E_ARG, "kind of term", "0");
    REFUSE(PLAIN, d.n_masks = 1, RP_E_ARG, "kind of mask", "0");
    REFUSE(PLAIN, d.weight_name[RP_Q] = d.weight_name[RP_V] = "w", RP_E_ARG, "\"w\"", "two");
    REFUSE(PLAIN, d.weight_name[RP_Q] = "", RP_E_RANGE, "name", "0 bytes");
    REFUSE(PLAIN, d.weight_name[RP_Q] = long_name, RP_E_RANGE, "name", "299");
    REFUSE(rp_layer_t5_attention(6, 2, 1, 8, 1, 1), (void)0, RP_E_RANGE, "buckets", "1");
    REFUSE(rp_layer_t5_attention(6, 2, 8, 2, 1, 1), (void)0, RP_E_RANGE, "max_distance", "2");
    REFUSE(rp_layer_t5_attention(6, 4, 8, 9, 1, 1), (void)0, RP_E_SHAPE, "width is 6", "4");
    REFUSE(rp_layer_relative_positional_bias(0, 8, 9, 1), (void)0, RP_E_RANGE, "width", "0");
    REFUSE(rp_layer_window_attention(6, 0, 3, 2), (void)0, RP_E_RANGE, "grid", "0");
    REFUSE(rp_layer_window_attention(6, BIG, BIG, 2), (void)0, RP_E_RANGE, "grid", "2147483648");
    REFUSE(rp_layer_relative_self_attention(6, 4, 3, -1), (void)0, RP_E_RANGE, "left", "-1");
    REFUSE(rp_layer_position_bias_attention(0, 3, 0.3), (void)0, RP_E_RANGE, "width", "0");
    REFUSE(rp_layer_position_bias_attention(4, -3, 0.3), (void)0, RP_E_RANGE, "value_width", "-3");
    REFUSE(rp_layer_position_bias_attention(4, 3, NAN), (void)0, RP_E_RANGE, "lambda", "nan");
    REFUSE(rp_layer_additive_rel_attention(6, 2, -1, 0, 1), (void)0, RP_E_RANGE, "max_distance", "-1");
    REFUSE(rp_layer_additive_rel_attention(6, 2, 3, -0.5, 1), (void)0, RP_E_RANGE, "dropout", "-0.5");
    REFUSE(rp_layer_vit_attention(0, 0), (void)0, RP_E_RANGE, "width", "0");
}

/* ------------------------------------------------------------------------------------------------ calls */

/* A correct call of a layer with a table over real positions, a mask of keys, and all outputs. */
typedef struct setting {
    problem memory;
    rp_layer *layer, *other;
    rp_layer_call call;
    rp_layer_grads g;
    rp_layer_saved *saved;
} setting;

enum { B = 2, LQ = 3, LK = 4, WIDTH = 6, HEADS = 2, OUTPUTS = 6 };

static rp_layer_desc real_desc(void)
{
    rp_layer_desc d = rp_layer_additive_rel_attention(WIDTH, HEADS, 2, 0, 1);
    d.mask[d.n_masks++] = rp_mask_init(RP_MASK_KEYS);
    return d;
}

static rp_array *output_of(setting *s, int n)
{
    rp_array *const all[OUTPUTS] = {&s->call.out, &s->call.weights, &s->g.dquery,
                                    &s->g.dkey,   &s->g.dvalue,     &s->g.term[0][1]};
    return all[n];
}

static void set_up(setting *s)
{
    uint64_t random = 1;
    memset(s, 0, sizeof *s);
    problem *p = &s->memory;
    rp_layer_desc wide = real_desc();
    wide.dim_k = 4;
    s->layer = layer_of(real_desc());
    s->other = layer_of(wide);
    rp_layer_random(s->layer, 1);
    s->call = rp_layer_call_init();
    s->g = rp_layer_grads_init();
    s->call.query = ZEROS(p, RP_F32, B, LQ, WIDTH);
    s->call.key = ZEROS(p, RP_F32, B, LK, WIDTH);
    s->call.value = ZEROS(p, RP_F32, B, LK, WIDTH);
    fill_normal(&s->call.query, &random);
    fill_normal(&s->call.key, &random);
    fill_normal(&s->call.value, &random);
    s->call.out = ZEROS(p, RP_F32, B, LQ, WIDTH);
    s->call.weights = ZEROS(p, RP_F32, B, HEADS, LQ, LK);
    s->call.term[0][1] = ZEROS(p, RP_F64, B, LQ);
    s->call.term[0][2] = ZEROS(p, RP_F64, LK);
    s->call.mask[0] = ZEROS(p, RP_U8, B, LK);
    memset(s->call.mask[0].data, 1, B * LK);
    s->g.dout = ZEROS(p, RP_F32, B, LQ, WIDTH);
    s->g.dquery = ZEROS(p, RP_F32, B, LQ, WIDTH);
    s->g.dkey = ZEROS(p, RP_F32, B, LK, WIDTH);
    s->g.dvalue = ZEROS(p, RP_F32, B, LK, WIDTH);
    fine(rp_layer_forward(s->layer, &s->call, &s->saved));
    for (int n = 0; n < OUTPUTS; n++)
        if (output_of(s, n)->data)
            memset(output_of(s, n)->data, 0xa5, (size_t)problem_size(output_of(s, n)) * 4);
}

/* Check that a failed call changed nothing, and free everything. */
static void tear_down(setting *s, setting *intact)
{
    for (int n = 0; n < OUTPUTS; n++) {
        const unsigned char *c = output_of(intact, n)->data;
        for (int64_t x = 0; c && x < problem_size(output_of(intact, n)) * 4; x++)
            if (c[x] != 0xa5)
                fail_msg("\"%s\": output %d was written", rp_layer_last_error(), n);
    }
    EACH_PARAM(s->layer, w)
    for (int64_t x = 0; x < w->n; x++)
        if (((const float *)w->grad)[x] != 0)
            fail_msg("\"%s\": the gradient of %s was written", rp_layer_last_error(), w->name);
    rp_layer_saved_free(s->saved);
    rp_layer_destroy(s->layer);
    rp_layer_destroy(s->other);
    problem_free(&s->memory);
}

/* One mistake in the call `c` of a forward pass; `s` has the rest. */
#define SLIP(change, status, first, second)                                                                            \
    do {                                                                                                               \
        setting s, intact;                                                                                             \
        set_up(&s);                                                                                                    \
        intact = s;                                                                                                    \
        rp_layer_call *c = &s.call;                                                                                    \
        rp_layer_saved *kept = (rp_layer_saved *)&s;                                                                   \
        change;                                                                                                        \
        said(rp_layer_forward(s.layer, c, &kept), status, first, second);                                              \
        assert_null(kept);                                                                                             \
        tear_down(&s, &intact);                                                                                        \
    } while (0)

static rp_array shaped(const rp_array *a, int64_t b, int64_t l, int64_t w)
{
    return rp_array_of(a->data, a->dtype, 3, SHAPE(b, l, w));
}

static void forward_calls(void **state)
{
    rp_layer_saved *saved = (rp_layer_saved *)state;
    const rp_layer_call empty = rp_layer_call_init();
    (void)state;
    said(rp_layer_forward(NULL, &empty, &saved), RP_E_ARG, "layer", "NULL");
    assert_null(saved);
    SLIP(c = NULL, RP_E_ARG, "call", "NULL");
    SLIP(c->size++, RP_E_ARG, "call", "rp_layer_call_init");
    SLIP(*c = empty, RP_E_SHAPE, "query", "0 axes");
    SLIP(c->query.ndim = 0, RP_E_SHAPE, "query", "0 axes");
    SLIP(c->query.ndim = -1, RP_E_SHAPE, "query", "-1 axes");
    SLIP(c->query.ndim = 1000000, RP_E_SHAPE, "query", "1000000 axes");
    SLIP(c->query.dtype = RP_F64, RP_E_ARG, "query", "f64");
    SLIP(c->query.dtype = (rp_dtype)99, RP_E_ARG, "query", "?");
    SLIP(c->query.data = NULL, RP_E_ARG, "query", "no data");
    SLIP(c->key.data = NULL, RP_E_ARG, "key", "no data");
    SLIP(c->value.data = NULL, RP_E_ARG, "value", "no data");
    SLIP(c->out.data = NULL, RP_E_ARG, "out", "no data");
    SLIP(c->weights.data = NULL, RP_E_ARG, "weights", "no data");
    SLIP(c->query.shape[2] = 5, RP_E_SHAPE, "query", "5");
    SLIP(c->query.shape[0] = 3, RP_E_SHAPE, "key", "(2, 4, 6)");
    SLIP(c->query = shaped(&c->query, -1, -1, WIDTH), RP_E_SHAPE, "query", "-1");
    SLIP(c->query = shaped(&c->query, -BIG, -BIG, WIDTH), RP_E_SHAPE, "query", "-2147483648");
    SLIP(c->query = shaped(&c->query, 1, BIG << 30, WIDTH), RP_E_OVERFLOW, "query", "63 bits");
    SLIP(c->query = shaped(&c->query, 1, INT64_MIN, WIDTH), RP_E_SHAPE, "query", "-9223372036854775808");
    SLIP(c->query.stride[0]++, RP_E_STRIDE, "query", "19");
    SLIP(c->query.stride[2] = 0, RP_E_STRIDE, "query", "axis 2");
    SLIP(c->key.stride[1] = -6, RP_E_STRIDE, "key", "-6");
    SLIP(c->key.shape[1] = 5, RP_E_STRIDE, "key", "24");
    SLIP(c->value.shape[1] = 3, RP_E_SHAPE, "value", "(2, 4, 6)");
    SLIP(c->value.ndim = 2, RP_E_SHAPE, "value", "2 axes");
    SLIP(c->out.shape[1] = 2, RP_E_SHAPE, "out", "(2, 2, 6)");
    SLIP(c->out.dtype = RP_F64, RP_E_ARG, "out", "f64");
    SLIP(c->out.ndim = c->weights.ndim = 0, RP_E_ARG, "out", "weights");
    SLIP(c->weights.ndim = 2, RP_E_SHAPE, "weights", "2 axes");
    SLIP(c->weights.shape[1] = 1, RP_E_SHAPE, "weights", "(2, 1, 3, 4)");
    SLIP(c->weights.stride[3] = 2, RP_E_STRIDE, "weights", "axis 3");
    SLIP(c->mask[0].data = NULL, RP_E_ARG, "mask", "key_mask");
    SLIP(c->mask[0].shape[1] = 3, RP_E_SHAPE, "mask", "3");
    SLIP(c->mask[0].dtype = RP_F32, RP_E_ARG, "mask", "f32");
    SLIP(c->mask[1] = c->mask[0], RP_E_ARG, "mask[1]", "1 mask");
    SLIP(c->term[0][0] = c->query, RP_E_ARG, "term[0][0]", "rel_bias");
    SLIP(c->term[0][7] = c->query, RP_E_ARG, "term[0][7]", "no such array");
    SLIP(c->term[1][0] = c->query, RP_E_ARG, "term[1][0]", "no such array");
    SLIP(c->term[7][7] = c->query, RP_E_ARG, "term[7][7]", "no such array");
    SLIP(c->term[0][2].shape[0] = 3, RP_E_SHAPE, "k_positions", "3");
    SLIP(c->terms_of = s.layer; c->term[1][0] = c->query, RP_E_ARG, "term[1][0]", "rel_bias");
    SLIP(c->q_offset = INT64_MAX, RP_E_RANGE, "q_offset", "9223372036854775807");
    SLIP(c->q_offset = INT64_MIN, RP_E_RANGE, "q_offset", "-9223372036854775808");
    /* outputs that overlap other arrays */
    SLIP(c->out.data = c->query.data, RP_E_OVERLAP, "out", "query");
    SLIP(c->out.data = (char *)c->query.data + 68, RP_E_OVERLAP, "out", "query");
    SLIP(c->out.data = c->key.data, RP_E_OVERLAP, "out", "key");
    SLIP(c->out.data = c->value.data, RP_E_OVERLAP, "out", "value");
    SLIP(c->out.data = c->weights.data, RP_E_OVERLAP, "out", "weights");
    SLIP(c->weights.data = (char *)c->query.data - 188, RP_E_OVERLAP, "weights", "query");
    SLIP(c->term[0][1].data = c->out.data, RP_E_OVERLAP, "out", "term[0][1]");
    SLIP(c->mask[0].data = c->weights.data, RP_E_OVERLAP, "weights", "mask[0]");
}

/* Layers whose terms are added, and sizes beyond 32 bits. */
static void sizes_and_shared_terms(void **state)
{
    static float one[1];
    rp_layer_desc d = rp_layer_t5_attention(WIDTH, 3, 8, 9, 1, 1);
    rp_layer *three = layer_of(d);
    (void)state;
    SLIP(c->terms_of = three, RP_E_ARG, "terms_of", "3 heads");
    rp_layer_destroy(three);
    d = rp_layer_t5_attention(WIDTH, HEADS, 8, 9, 1, 1);
    d.dtype = RP_F64;
    rp_layer *wide = layer_of(d);
    SLIP(c->terms_of = wide, RP_E_ARG, "terms_of", "f64");
    rp_layer_destroy(wide);

    d = rp_layer_desc_init(1, 1);
    d.dim_k = 1 << 20;
    rp_layer *narrow = layer_of(d);
    rp_layer_call c = rp_layer_call_init();
    c.query = c.out = rp_array_of(one, RP_F32, 3, SHAPE(BIG, 1, 1)); /* never read */
    said(rp_layer_forward(narrow, &c, NULL), RP_E_RANGE, "2147483648 sequences", "smaller batch");
    c.query = rp_array_of(one, RP_F32, 3, SHAPE(1, BIG, 1));
    said(rp_layer_forward(narrow, &c, NULL), RP_E_RANGE, "2147483648 tokens", "smaller batch");
    c.query = rp_array_of(one, RP_F32, 3, SHAPE(1, BIG << 20, 1));
    said(rp_layer_forward(narrow, &c, NULL), RP_E_OVERFLOW, "2251799813685248 tokens", "63 bits");
    c.query = rp_array_of(one, RP_F32, 3, SHAPE(0, BIG << 31, 1));
    said(rp_layer_forward(narrow, &c, NULL), RP_E_OVERFLOW, "query", "63 bits");
    rp_layer_destroy(narrow);
}

/* One mistake in a backward pass. */
#define BACK(change, status, first, second)                                                                            \
    do {                                                                                                               \
        setting s, intact;                                                                                             \
        set_up(&s);                                                                                                    \
        intact = s;                                                                                                    \
        rp_layer_call *c = &s.call;                                                                                    \
        rp_layer_grads *g = &s.g;                                                                                      \
        rp_layer *layer = s.layer;                                                                                     \
        const rp_layer_saved *saved = s.saved;                                                                         \
        (void)c;                                                                                                       \
        change;                                                                                                        \
        said(rp_layer_backward(layer, c, saved, g), status, first, second);                                            \
        tear_down(&s, &intact);                                                                                        \
    } while (0)

static void backward_calls(void **state)
{
    (void)state;
    BACK(layer = NULL, RP_E_ARG, "layer", "NULL");
    BACK(c = NULL, RP_E_ARG, "call", "NULL");
    BACK(saved = NULL, RP_E_ARG, "saved", "NULL");
    BACK(g = NULL, RP_E_ARG, "g ", "NULL");
    BACK(g->size--, RP_E_ARG, "version", "rp_layer_grads_init");
    BACK(layer = s.other, RP_E_ARG, "saved", "another layer");
    BACK(c->query = c->out = shaped(&c->query, 1, 6, WIDTH), RP_E_SHAPE, "key", "(1, 4, 6)");
    BACK(c->key.shape[1] = c->value.shape[1] = 3; c->key.shape[0] = c->value.shape[0] = 2, RP_E_STRIDE, "key", "24");
    BACK(c->query = shaped(&c->query, B, 2, WIDTH); c->out = shaped(&c->out, B, 2, WIDTH);
         c->weights.ndim = 0, RP_E_ARG, "saved", "other sizes");
    BACK(g->dout.ndim = 0, RP_E_SHAPE, "dout", "0 axes");
    BACK(g->dout.data = NULL, RP_E_ARG, "dout", "no data");
    BACK(g->dout.dtype = RP_F64, RP_E_ARG, "dout", "f64");
    BACK(g->dout.shape[2] = 5, RP_E_SHAPE, "dout", "(2, 3, 5)");
    BACK(g->dweights = c->weights; g->dweights.ndim = 2, RP_E_SHAPE, "dweights", "2 axes");
    BACK(g->dweights = c->weights; g->dweights.shape[1] = 1, RP_E_SHAPE, "dweights", "(2, 1, 3, 4)");
    BACK(g->dweights = c->weights; g->dweights.dtype = RP_F64, RP_E_ARG, "dweights", "f64");
    BACK(g->dweights = c->weights; g->dweights.stride[0] = 0, RP_E_STRIDE, "dweights", "axis 0");
    BACK(g->dweights = c->weights; g->dweights.data = NULL, RP_E_ARG, "dweights", "no data");
    BACK(g->dweights = c->weights; g->dweights.data = g->dquery.data, RP_E_OVERLAP, "dquery", "dweights");
    BACK(g->dquery.shape[1] = 4, RP_E_SHAPE, "dquery", "(2, 4, 6)");
    BACK(g->dquery.data = NULL, RP_E_ARG, "dquery", "no data");
    BACK(g->dkey.stride[0] = 0, RP_E_STRIDE, "dkey", "axis 0");
    BACK(g->dvalue.ndim = 4, RP_E_SHAPE, "dvalue", "4 axes");
    BACK(c->value.ndim = 0, RP_E_ARG, "dvalue", "does not have");
    BACK(g->term[0][0] = g->dquery, RP_E_ARG, "term[0][0]", "rel_bias");
    BACK(g->term[0][1] = c->term[0][1]; g->term[0][1].data = g->dvalue.data, RP_E_ARG, "q_positions", "learned");
    BACK(g->term[3][0] = g->dquery, RP_E_ARG, "term[3][0]", "no such array");
    BACK(g->dquery.data = c->query.data, RP_E_OVERLAP, "dquery", "query");
    BACK(g->dquery.data = g->dout.data, RP_E_OVERLAP, "dquery", "dout");
    BACK(g->dquery.data = c->out.data, RP_E_OVERLAP, "dquery", "out");
    BACK(g->dkey.data = g->dvalue.data, RP_E_OVERLAP, "dvalue", "dkey");
    BACK(g->dkey.data = c->value.data, RP_E_OVERLAP, "dkey", "value");
    BACK(g->dvalue.data = c->mask[0].data, RP_E_OVERLAP, "dvalue", "mask[0]");
    rp_layer_grads g = rp_layer_grads_init();
    rp_layer_call empty = rp_layer_call_init();
    said(rp_layer_backward(NULL, &empty, NULL, &g), RP_E_ARG, "layer", "NULL");
}

/* ------------------------------------------------------------------------------------------------ caches, biases */

static void caches(void **state)
{
    rp_layer *layer = layer_of(PLAIN);
    rp_layer_cache *cache = (rp_layer_cache *)state, *none = (rp_layer_cache *)state;
    problem p = {.n_memory = 0};
    rp_layer_call c = rp_layer_call_init();
    rp_layer_saved *saved = (rp_layer_saved *)state;
    rp_layer_desc d = PLAIN;
    d.dim_k = 4;
    rp_layer *wide = layer_of(d);
    d = PLAIN;
    d.dtype = RP_F64;
    rp_layer *double_layer = layer_of(d);
    (void)state;
    said(rp_layer_cache_create(NULL, layer, 1, 1), RP_E_ARG, "cache", "NULL");
    said(rp_layer_cache_create(&none, NULL, 1, 1), RP_E_ARG, "layer", "NULL");
    assert_null(none);
    none = (rp_layer_cache *)state;
    said(rp_layer_cache_create(&none, layer, -1, 1), RP_E_RANGE, "batch", "-1");
    assert_null(none);
    none = (rp_layer_cache *)state;
    said(rp_layer_cache_create(&none, layer, 1, -7), RP_E_RANGE, "capacity", "-7");
    assert_null(none);
    said(rp_layer_cache_create(&none, layer, BIG, BIG << 20), RP_E_OVERFLOW, "2147483648", "63 bits");
    said(rp_layer_cache_create(&none, layer, BIG, BIG >> 6), RP_E_NOMEM, "cache", "memory");
    assert_null(none);
    assert_int_equal(rp_layer_cache_length(NULL), 0);
    rp_layer_cache_truncate(NULL, 0);
    rp_layer_cache_destroy(NULL);

    fine(rp_layer_cache_create(&cache, layer, 2, 4));
    c.query = ZEROS(&p, RP_F32, 2, 3, 6);
    c.out = ZEROS(&p, RP_F32, 2, 3, 6);
    c.cache = cache;
    said(rp_layer_forward(layer, &c, &saved), RP_E_UNSUPPORTED, "cache", "gradients");
    assert_null(saved);
    said(rp_layer_forward(wide, &c, NULL), RP_E_ARG, "cache", "another type or width");
    fine(rp_layer_forward(layer, &c, NULL));
    assert_int_equal(rp_layer_cache_length(cache), 3);
    memset(c.out.data, 0xa5, 36 * 4);
    said(rp_layer_forward(layer, &c, NULL), RP_E_RANGE, "3 tokens and a capacity of 4", "larger");
    c.q_offset = INT64_MAX;
    c.query = c.out = shaped(&c.query, 2, 1, 6);
    c.out.data = (char *)c.query.data + 48;
    said(rp_layer_forward(layer, &c, NULL), RP_E_RANGE, "q_offset", "9223372036854775807");
    c.q_offset = INT64_MAX - 3;
    said(rp_layer_forward(layer, &c, NULL), RP_E_RANGE, "q_offset", "9223372036854775807");
    c.q_offset = 0;
    c.query = shaped(&c.query, 1, 1, 6), c.out = shaped(&c.out, 1, 1, 6);
    said(rp_layer_forward(layer, &c, NULL), RP_E_SHAPE, "1 batch", "2");
    assert_int_equal(rp_layer_cache_length(cache), 3);
    rp_layer_cache_truncate(cache, -1); /* no effect */
    rp_layer_cache_truncate(cache, 4);
    rp_layer_cache_truncate(cache, 9);
    assert_int_equal(rp_layer_cache_length(cache), 3);
    rp_layer_cache_truncate(cache, 2);
    assert_int_equal(rp_layer_cache_length(cache), 2);
    c.query = ZEROS(&p, RP_F64, 2, 1, 6);
    c.out = ZEROS(&p, RP_F64, 2, 1, 6);
    said(rp_layer_forward(double_layer, &c, NULL), RP_E_ARG, "cache", "another type or width");
    rp_layer_cache_destroy(cache);
    rp_layer_destroy(layer);
    rp_layer_destroy(wide);
    rp_layer_destroy(double_layer);
    problem_free(&p);
}

static void biases(void **state)
{
    static float data[2 * 3 * 4];
    rp_layer *layer = layer_of(rp_layer_relative_positional_bias(2, 8, 9, 1));
    rp_array a = rp_array_of(data, RP_F32, 4, SHAPE(1, 2, 3, 4)), bad = a;
    (void)state;
    said(rp_layer_biases(NULL, 0, &a), RP_E_ARG, "layer", "NULL");
    said(rp_layer_biases(layer, 0, NULL), RP_E_ARG, "bias", "NULL");
    said((bad.shape[1] = 3, rp_layer_biases(layer, 0, &bad)), RP_E_SHAPE, "bias", "(1, 2, 3, 4)");
    bad = a;
    said((bad.ndim = 3, rp_layer_biases(layer, 0, &bad)), RP_E_SHAPE, "bias", "3 axes");
    bad = a;
    said((bad.data = NULL, rp_layer_biases(layer, 0, &bad)), RP_E_ARG, "bias", "no data");
    bad = a;
    said((bad.shape[2] = -3, rp_layer_biases(layer, 0, &bad)), RP_E_SHAPE, "bias", "-3");
    bad = a;
    said((bad.dtype = RP_F64, rp_layer_biases(layer, 0, &bad)), RP_E_ARG, "bias", "f64");
    said(rp_layer_biases(layer, INT64_MAX, &a), RP_E_RANGE, "q_offset", "9223372036854775807");
    rp_layer_desc d = PLAIN;
    d.term[d.n_terms++] = rp_term_init(RP_TERM_DENSE);
    rp_layer *dense = layer_of(d);
    said(rp_layer_biases(dense, 0, &a), RP_E_ARG, "dense", "bias");
    for (int x = 0; x < 24; x++)
        assert_true(data[x] == 0);
    rp_layer_destroy(dense);
    rp_layer_destroy(layer);
    rp_layer_random(NULL, 1);
    rp_layer_zero_grad(NULL);
    rp_layer_step(NULL, 1);
    rp_layer_destroy(NULL);
    rp_layer_saved_free(NULL);
    assert_null(rp_layer_param_at(NULL, 0));
    assert_null(rp_layer_param_named(NULL, "x"));
}

/* ------------------------------------------------------------------------------------------------ files */

static char folder[] = "/tmp/relpos_layers_XXXXXX";

/* Write a file with the weights of rp_layer_desc_init(2, 1), of which number `n` (-1: none) is missing or has another
 * name, type or shape. */
static const char *write_weights(int n, const char *name, rp_dtype type, int32_t ndim, const int64_t *shape)
{
    static const char *const names[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"};
    static double numbers[64];
    static char path[100];
    char err[IO_ERR_MAX];
    io_set set = {0};
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    for (int x = 0; x < 4; x++)
        if (x != n)
            assert_int_equal(io_add(&set, names[x], RP_F32, 2, SHAPE(2, 2), numbers, true), 0);
    if (name)
        assert_int_equal(io_add(&set, name, type, ndim, shape, numbers, true), 0);
    assert_int_equal(io_write(path, IO_SAFETENSORS, &set, err), 0);
    io_free(&set);
    return path;
}

static void files(void **state)
{
    char path[100];
    int64_t unused = -5;
    rp_layer *layer = layer_of(rp_layer_desc_init(2, 1));
    (void)state;
    assert_non_null(mkdtemp(folder));
    EACH_PARAM(layer, w)
    for (int64_t x = 0; x < w->n; x++)
        ((float *)w->data)[x] = 7;
    said(rp_layer_read(NULL, "x.npz", NULL), RP_E_ARG, "layer", "NULL");
    said(rp_layer_read(layer, NULL, NULL), RP_E_ARG, "path", "NULL");
    said(rp_layer_write(NULL, "x.npz"), RP_E_ARG, "layer", "NULL");
    said(rp_layer_write(layer, NULL), RP_E_ARG, "path", "NULL");
    snprintf(path, sizeof path, "%s/none.npz", folder);
    said(rp_layer_read(layer, path, &unused), RP_E_ARG, "none.npz", ":");
    said(rp_layer_read(layer, folder, &unused), RP_E_ARG, folder, ":");
    snprintf(path, sizeof path, "%s/weights.bin", folder);
    said(rp_layer_write(layer, path), RP_E_ARG, "weights.bin", ".safetensors");
    snprintf(path, sizeof path, "%s/no/weights.npz", folder);
    said(rp_layer_write(layer, path), RP_E_ARG, "weights.npz", ":");
#define FILE_SLIP(first, second, ...)                                                                                  \
    said(rp_layer_read(layer, write_weights(__VA_ARGS__), &unused), RP_E_SHAPE, first, second)
    FILE_SLIP("v_proj.weight", "weights.safetensors", 2, NULL, RP_F32, 0, NULL);
    FILE_SLIP("o_proj.weight", "not in the file", 3, "proj.weight", RP_F32, 2, SHAPE(2, 2));
    FILE_SLIP("o_proj.weight", "(2, 3); expected (2, 2)", 3, "o_proj.weight", RP_F32, 2, SHAPE(2, 3));
    FILE_SLIP("o_proj.weight", "(4); expected (2, 2)", 3, "o_proj.weight", RP_F32, 1, SHAPE(4));
    FILE_SLIP("o_proj.weight", "(1, 1, 1, 2, 2); expected", 3, "o_proj.weight", RP_F32, 5, SHAPE(1, 1, 1, 2, 2));
    FILE_SLIP("o_proj.weight", "i32", 3, "o_proj.weight", RP_I32, 2, SHAPE(2, 2));
    FILE_SLIP("o_proj.weight", "bool", 3, "o_proj.weight", RP_BOOL, 2, SHAPE(2, 2));
    assert_int_equal(unused, -5);
    EACH_PARAM(layer, w)
    for (int64_t x = 0; x < w->n; x++)
        assert_true(((const float *)w->data)[x] == 7);
    fine(rp_layer_read(layer, write_weights(3, "o_proj.weight", RP_BF16, 2, SHAPE(2, 2)), NULL));
    fine(rp_layer_read(layer, write_weights(-1, "more", RP_I32, 2, SHAPE(2, 2)), &unused));
    assert_int_equal(unused, 1);
    EACH_PARAM(layer, w)
    for (int64_t x = 0; x < w->n; x++)
        assert_true(((const float *)w->data)[x] == 0);
    unlink(write_weights(-1, NULL, RP_F32, 0, NULL));
    assert_int_equal(rmdir(folder), 0); /* no other file was left */
    rp_layer_destroy(layer);
}

/* ------------------------------------------------------------------------------------------------ images */

static void images(void **state)
{
    static float a[64], b[64];
    static int32_t i[64];
    const rp_array image = rp_array_of(a, RP_F32, 4, SHAPE(1, 2, 4, 4)),
                   patch = rp_array_of(b, RP_F32, 3, SHAPE(1, 4, 8));
    const rp_array grid = rp_array_of(a, RP_F32, 4, SHAPE(1, 4, 4, 2)), window = patch;
    const rp_array small = rp_array_of(a, RP_F32, 2, SHAPE(5, 2)), large = rp_array_of(b, RP_F32, 2, SHAPE(10, 2));
    const rp_windows w = {4, 4, 2, 2, 1, 1};
    rp_windows o;
    rp_array x;
    (void)state;
    memset(b, 0xa5, sizeof b);
#define BAD(array, ...)     (x = array, __VA_ARGS__, &x)
#define BAD_WINDOWS(change) (o = w, change, &o)
    said(rp_patches(NULL, 2, &patch), RP_E_ARG, "images", "NULL");
    said(rp_patches_back(NULL, 2, &image), RP_E_ARG, "patches", "NULL");
    said(rp_patches(&image, 0, &patch), RP_E_SHAPE, "size", "0");
    said(rp_patches(&image, -2, &patch), RP_E_SHAPE, "size", "-2");
    said(rp_patches(&image, 3, &patch), RP_E_SHAPE, "size", "3");
    said(rp_patches(&image, BIG, &patch), RP_E_SHAPE, "size", "2147483648");
    said(rp_patches(BAD(image, x.ndim = 3), 2, &patch), RP_E_SHAPE, "3 axes", "4");
    said(rp_patches(BAD(image, x.dtype = RP_F16), 2, &patch), RP_E_ARG, "images", "f16");
    said(rp_patches(BAD(image, x.data = NULL), 2, &patch), RP_E_ARG, "images", "no data");
    said(rp_patches(BAD(image, x.shape[0] = -1), 2, &patch), RP_E_SHAPE, "-1", "images");
    said(rp_patches(BAD(image, x.stride[2] = 5), 2, &patch), RP_E_STRIDE, "images", "5");
    said(rp_patches(&image, 2, BAD(patch, x.shape[1] = 5)), RP_E_SHAPE, "patches", "(1, 4, 8)");
    said(rp_patches(&image, 2, BAD(patch, x.dtype = RP_F64)), RP_E_ARG, "patches", "f64");
    said(rp_patches(&image, 2, BAD(patch, x.data = a + 31)), RP_E_OVERLAP, "images", "patches");
    x = rp_array_of(a, RP_F32, 4, SHAPE(1, BIG << 20, 0, 0));
    said(rp_patches(&x, INT32_MAX, &patch), RP_E_SHAPE, "63 bits", "2251799813685248");
    x = rp_array_of(a, RP_F32, 4, SHAPE(1, 0, BIG << 30, BIG << 30));
    said(rp_patches(&x, 2, &patch), RP_E_SHAPE, "63 bits", "2305843009213693952");

    said(rp_resize_table(NULL, 2, 2, 1, RP_BILINEAR, &large, 3, 3), RP_E_ARG, "table", "NULL");
    said(rp_resize_table(&small, 2, 2, 1, RP_BILINEAR, NULL, 3, 3), RP_E_ARG, "resized", "NULL");
    said(rp_resize_table(&small, 0, 2, 1, RP_BILINEAR, &large, 3, 3), RP_E_RANGE, "0 rows", "1 or more");
    said(rp_resize_table(&small, 2, BIG, 1, RP_BILINEAR, &large, 3, 3), RP_E_RANGE, "2147483648", "grid");
    said(rp_resize_table(&small, 2, 2, -1, RP_BILINEAR, &large, 3, 3), RP_E_RANGE, "extra", "-1");
    said(rp_resize_table(&small, 2, 2, 1, (rp_interpolation)2, &large, 3, 3), RP_E_ARG, "how", "2");
    said(rp_resize_table(&small, 2, 2, 0, RP_BILINEAR, &large, 3, 3), RP_E_SHAPE, "table", "(4, 2)");
    said(rp_resize_table(&small, 2, 2, 1, RP_BILINEAR, &large, 3, 4), RP_E_SHAPE, "resized", "(13, 2)");
    said(rp_resize_table(&small, 2, 2, 1, RP_BILINEAR, BAD(large, x.data = a), 3, 3), RP_E_OVERLAP, "table", "resized");
    said(rp_resize_table(BAD(small, x.dtype = RP_I32), 2, 2, 1, RP_BILINEAR, &large, 3, 3), RP_E_ARG, "table", "i32");
    said(rp_resize_table_back(&small, 2, 2, 0, RP_BICUBIC, &large, 3, 3), RP_E_SHAPE, "dresized", "(4, 2)");
    said(rp_resize_table_back(&small, 2, 2, 1, RP_BICUBIC, NULL, 3, 3), RP_E_ARG, "dtable", "NULL");

    said(rp_window_partition(NULL, &w, &window), RP_E_ARG, "grids", "NULL");
    said(rp_window_reverse(NULL, &w, &grid), RP_E_ARG, "windows", "NULL");
    said(rp_window_partition(&grid, NULL, &window), RP_E_ARG, "windows", "NULL");
    said(rp_window_labels(NULL, &window), RP_E_ARG, "windows", "NULL");
    said(rp_window_labels(&w, NULL), RP_E_ARG, "labels", "NULL");
    said(rp_window_partition(&grid, BAD_WINDOWS(o.window_h = 0), &window), RP_E_SHAPE, "window_h", "0");
    said(rp_window_partition(&grid, BAD_WINDOWS(o.window_w = 3), &window), RP_E_SHAPE, "window_w", "3");
    said(rp_window_partition(&grid, BAD_WINDOWS(o.h = -4), &window), RP_E_SHAPE, "h is -4", "multiple");
    said(rp_window_partition(&grid, BAD_WINDOWS(o.h = BIG), &window), RP_E_SHAPE, "h is 2147483648", "multiple");
    said(rp_window_partition(&grid, BAD_WINDOWS(o.shift_h = 2), &window), RP_E_RANGE, "shift_h is 2", "window_h");
    said(rp_window_partition(&grid, BAD_WINDOWS(o.shift_w = -1), &window), RP_E_RANGE, "shift_w is -1", "window_w");
    said(rp_window_partition(&grid, BAD_WINDOWS(o.w = 8), &window), RP_E_SHAPE, "grids", "(1, 4, 8, 2)");
    said(rp_window_partition(BAD(grid, x.shape[0] = INT64_MAX), &w, &window), RP_E_SHAPE, "9223372036854775807",
         "63 bits");
    said(rp_window_partition(BAD(grid, x.shape[0] = -1), &w, &window), RP_E_SHAPE, "-1", "0 or more");
    said(rp_window_reverse(BAD(window, x.shape[0] = 1, x.shape[1] = 5), &w, &grid), RP_E_SHAPE, "windows", "(4, 4, 2)");
    x = rp_array_of(i, RP_I32, 2, SHAPE(5, 4));
    said(rp_window_labels(&w, &x), RP_E_SHAPE, "5 rows", "4");
    said(rp_window_labels(&w, BAD(x, x.shape[0] = 4, x.dtype = RP_I64)), RP_E_ARG, "labels", "i64");
    said(rp_window_labels(&w, BAD(x, x.dtype = RP_I32, x.data = NULL)), RP_E_ARG, "labels", "no data");
    for (int n = 0; n < 64; n++)
        assert_true(memcmp(&b[n], "\xa5\xa5\xa5\xa5", 4) == 0 && a[n] == 0 && i[n] == 0);
}

/* ------------------------------------------------------------------------------------------------ out of memory */

/* Let every allocation fail in turn, alone or with all later ones, until `call` succeeds without a failure. Each time,
 * as many blocks are allocated after clean_up as before the call. */
#define EACH_FAILURE(call, clean_up)                                                                                   \
    for (int ever = 0; ever < 2 && STARVES; ever++)                                                                    \
        for (long n = 1, done = 0; !done; n++) {                                                                       \
            const long blocks = starve_blocks;                                                                         \
            starve(n, ever);                                                                                           \
            const rp_status status = (call);                                                                           \
            done = starve_end() < n;                                                                                   \
            if (done)                                                                                                  \
                fine(status);                                                                                          \
            else if (status != RP_OK)                                                                                  \
                said(status, status, "memory", "");                                                                    \
            clean_up;                                                                                                  \
            if (starve_blocks != blocks)                                                                               \
                fail_msg("%s: %ld blocks were not freed after allocation %ld failed", #call, starve_blocks - blocks,   \
                         n);                                                                                           \
        }

static void out_of_memory(void **state)
{
    static float from[18], to[8];
    char path[120];
    rp_layer *made;
    rp_layer_cache *cache;
    rp_layer_saved *saved;
    rp_layer_desc d = real_desc();
    setting s, intact;
    (void)state;
    EACH_FAILURE(rp_layer_create(&made, &d), {
        assert_true((status == RP_OK) == (made != NULL));
        rp_layer_destroy(made);
    });
    set_up(&s);
    rp_pool *pool;
    good(rp_pool_create(&pool, 1));
    s.call.pool = pool;
    intact = s;
    rp_layer_call one_head = s.call;
    one_head.weights = ZEROS(&s.memory, RP_F32, B, LQ, LK);
    EACH_FAILURE(rp_layer_cache_create(&cache, s.layer, 2, 4), {
        assert_true((status == RP_OK) == (cache != NULL));
        rp_layer_cache_destroy(cache);
    });
    EACH_FAILURE(rp_layer_forward(s.layer, &one_head, &saved), {
        assert_true((status == RP_OK) == (saved != NULL));
        assert_true(status == RP_OK || *(const unsigned char *)one_head.out.data == 0xa5);
        rp_layer_saved_free(saved);
        memset(one_head.out.data, 0xa5, B * LQ * WIDTH * 4);
        memset(one_head.weights.data, 0xa5, B * LQ * LK * 4);
    });
    s.g.dweights = ZEROS(&s.memory, RP_F32, B, LQ, LK);
    EACH_FAILURE(rp_layer_backward(s.layer, &s.call, s.saved, &s.g), {
        if (status == RP_OK) { /* undo it */
            rp_layer_zero_grad(s.layer);
            for (int o = 2; o < 5; o++)
                memset(output_of(&s, o)->data, 0xa5, (size_t)problem_size(output_of(&s, o)) * 4);
        }
    });
    tear_down(&s, &intact);
    rp_pool_destroy(pool);
    const rp_array small = rp_array_of(to, RP_F32, 2, SHAPE(4, 2)), large = rp_array_of(from, RP_F32, 2, SHAPE(9, 2));
    EACH_FAILURE(rp_resize_table_back(&large, 3, 3, 0, RP_BICUBIC, &small, 2, 2), (void)0);
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/weights.safetensors", folder); /* libzip loses blocks when an allocation fails */
    rp_layer *layer = layer_of(d);
    EACH_FAILURE(rp_layer_write(layer, path), {
        assert_true((access(path, F_OK) == 0) == (status == RP_OK));
        unlink(path);
    });
    fine(rp_layer_write(layer, path));
    EACH_FAILURE(rp_layer_read(layer, path, NULL), (void)0);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    rp_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptions),   cmocka_unit_test(forward_calls), cmocka_unit_test(sizes_and_shared_terms),
        cmocka_unit_test(backward_calls), cmocka_unit_test(caches),        cmocka_unit_test(biases),
        cmocka_unit_test(files),          cmocka_unit_test(images),        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
