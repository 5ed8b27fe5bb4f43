/* test_layer_golden.c -- compares layers with data/, which make_golden.py computes from the formulas of texts: outputs,
 * attention weights, and gradients of all inputs and weights, in f64 and f32, within bounds on rounding errors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/layer_checks.h"

#define FOLDER "tests/layers/data/"

/* ------------------------------------------------------------------------------------------------ arrays of a file */

typedef struct golden {
    problem memory;
    io_set set;
    rp_dtype type;
    double worst; /* largest error divided by its bound */
} golden;

static void open_golden(golden *f, const char *name, rp_dtype type)
{
    char path[100], err[IO_ERR_MAX];
    memset(f, 0, sizeof *f);
    f->type = type;
    snprintf(path, sizeof path, FOLDER "%s.safetensors", name);
    if (io_read(path, &f->set, NULL, err) != IO_OK)
        fail_msg("%s", err);
}

static void close_golden(golden *f, const char *name)
{
    print_message("%s in %s: errors up to %.2g of their bounds\n", name, rp_dtype_name(f->type), f->worst);
    io_free(&f->set);
    problem_free(&f->memory);
}

/* Return an array of the file in a floating type; arrays of integers as they are; absent if the file has none. */
static rp_array array_as(golden *f, const char *name, rp_dtype type)
{
    const io_array *a = io_find(&f->set, name);
    if (!a)
        return (rp_array){.data = NULL};
    if (a->dtype != RP_F16 && a->dtype != RP_F64)
        return rp_array_of(a->data, a->dtype, a->ndim, a->shape);
    const rp_array to = array_in(&f->memory, type, a->ndim, a->shape);
    good(rp_convert(to.data, type, a->data, a->dtype, problem_size(&to)));
    return to;
}

static rp_array given(golden *f, const char *name)
{
    char full[100];
    snprintf(full, sizeof full, "in.%s", name);
    return array_as(f, full, f->type);
}

static rp_array wanted(golden *f, const char *name)
{
    char full[100];
    snprintf(full, sizeof full, "want.%s", name);
    const rp_array a = array_as(f, full, RP_F64);
    if (!a.data)
        fail_msg("the file has no %s", full);
    return a;
}

/* ------------------------------------------------------------------------------------------------ bounds of errors */

/* Bounds of an array: of its elements, of the 2-norms of its rows and columns (the last axis, and all others), and of
 * the errors of its elements to first order, in units of the type's epsilon. */
typedef struct bound {
    double max, row, column, error;
} bound;

static bound of(const rp_array *a)
{
    const int64_t columns = a->ndim ? a->shape[a->ndim - 1] : 0, n = problem_size(a);
    bound b = {0, 0, 0, 0};
    for (int64_t x = 0; x < n; x++)
        b.max = fmax(b.max, fabs(at(a, x)));
    for (int64_t r = 0; columns && r < n / columns; r++) {
        double sum = 0;
        for (int64_t c = 0; c < columns; c++)
            sum += pow(at(a, r * columns + c), 2);
        b.row = fmax(b.row, sqrt(sum));
    }
    for (int64_t c = 0; c < columns; c++) {
        double sum = 0;
        for (int64_t r = 0; r < n / columns; r++)
            sum += pow(at(a, r * columns + c), 2);
        b.column = fmax(b.column, sqrt(sum));
    }
    return b;
}

static bound computed(double max, double error, int64_t rows, int64_t columns)
{
    return (bound){max, sqrt((double)columns) * max, sqrt((double)rows) * max, error};
}

/* y = x W + b, or its gradient dx = dy W^T: sums of n products of rows of x with vectors of norm `w`. */
static bound product(int64_t n, bound x, double w, bound b, int64_t rows, int64_t columns)
{
    const double max = x.row * w + b.max;
    return computed(max, sqrt((double)n) * x.error * w + b.error + (double)(n + 1) * max, rows, columns);
}

/* dW = dy^T x: sums over the rows. */
static bound sum_over_rows(int64_t rows, bound dy, bound x)
{
    const double max = dy.column * x.column;
    return computed(max, sqrt((double)rows) * (dy.error * x.column + dy.column * x.error) + (double)(rows + 1) * max, 1,
                    1);
}

/* Bounds of all arrays of a call. */
typedef struct bounds {
    bound x[3], w[RP_PROJECTIONS], b[RP_PROJECTIONS]; /* given */
    bound bias, key_vectors, value_vectors;           /* arrays of terms, or their values */
    bound dout;
    bound out, dx[3], dw[RP_PROJECTIONS], db[RP_PROJECTIONS], dbias, dkey_vectors, dvalue_vectors; /* results */
    double weights;
} bounds;

/* Follow the errors through a layer. The sum of the weights of a row is 1, so a sum over keys of weight times number is
 * at most the largest number. */
static void follow(bounds *z, const rp_layer_desc *d, int64_t batch, int64_t lq, int64_t lk)
{
    const int64_t h = d->heads, hk = d->kv_heads, rows[3] = {batch * lq, batch * lk, batch * lk}, n = lq * (h / hk);
    const int64_t in[] = {d->width, d->key_width, d->value_width, h * d->dim_v};
    const int64_t out[] = {h * d->dim_k, hk * d->dim_k, hk * d->dim_v, d->out_width};
    const int64_t dim[] = {d->dim_k, d->dim_k, d->dim_v};
    const double keys = (double)lk, dk = (double)d->dim_k, dv = (double)d->dim_v;
    const double scale = d->scale == RP_SCALE_AUTO ? 1 / sqrt(dk) : d->scale;
    bound y[3], dy[3];
    for (int x = 0; x < 3; x++) {
        y[x] = z->x[x];
        if (d->weight[x])
            y[x] = product(in[x], z->x[x], d->transposed ? z->w[x].column : z->w[x].row, z->b[x], rows[x], dim[x]);
    }
    const bound q = y[0], k = y[1], v = y[2];
    /* scores; 8 more roundings for the scale, the bias, and a softcap, whose slope is at most 1 */
    const double key_row = k.row + z->key_vectors.row, key_max = k.max + z->key_vectors.max;
    const double value_row = v.row + z->value_vectors.row, value_max = v.max + z->value_vectors.max;
    const double score = scale * q.row * key_row + z->bias.max;
    const double score_error = scale * sqrt(dk) * (q.error * key_row + q.row * k.error) + (dk + 8) * score;
    /* relative errors of the weights: twice that of a score, those of exp and of the sum */
    const double r = 2 * score_error + keys + 10;
    z->weights = r;
    const bound o = computed(value_max, (r + keys + 4) * value_max + v.error, rows[0], in[3]);
    z->out = d->weight[RP_O] ? product(in[3], o, z->w[RP_O].row, z->b[RP_O], rows[0], out[3]) : o;

    bound go = z->dout;
    if (d->weight[RP_O]) {
        go = product(out[3], z->dout, z->w[RP_O].column, (bound){0, 0, 0, 0}, rows[0], d->dim_v);
        z->dw[RP_O] = sum_over_rows(rows[0], z->dout, o);
        z->db[RP_O] = computed((double)rows[0] * z->dout.max,
                               (double)rows[0] * (z->dout.error + (double)(rows[0] + 1) * z->dout.max), 1, 1);
    }
    /* |ds| <= w 2 max|dp|, and its error is at most w `slip` */
    const double dp = go.row * value_row, ds = 2 * dp;
    const double dp_error = sqrt(dv) * (go.error * value_row + go.row * v.error) + (dv + 2) * dp;
    const double slip = ds * r + 2 * dp_error + r * dp + (dv + keys + 8) * ds;
    const double pairs = (double)n, all = (double)(batch * h * lq);
    dy[0] = computed(scale * ds * key_max, scale * (slip * key_max + ds * k.error + (keys + 4) * ds * key_max), rows[0],
                     out[0]);
    dy[1] = computed(scale * pairs * ds * q.max,
                     scale * pairs * (slip * q.max + ds * q.error + (pairs + 4) * ds * q.max), rows[1], out[1]);
    dy[2] = computed(pairs * go.max, pairs * (r * go.max + go.error + (pairs + 4) * go.max), rows[2], out[2]);
    z->dbias = computed(all * ds, all * (slip + (all * keys + 4) * ds), 1, 1);
    z->dkey_vectors = computed(scale * all * ds * q.max,
                               scale * all * (slip * q.max + ds * q.error + (all * keys + 4) * ds * q.max), 1, 1);
    z->dvalue_vectors = computed(all * go.max, all * (r * go.max + go.error + (all * keys + 4) * go.max), 1, 1);
    for (int x = 0; x < 3; x++) {
        z->dx[x] = dy[x];
        if (!d->weight[x])
            continue;
        const double norm = d->transposed ? z->w[x].row : z->w[x].column;
        z->dx[x] = product(out[x], dy[x], norm, (bound){0, 0, 0, 0}, rows[x], in[x]);
        z->dw[x] = sum_over_rows(rows[x], dy[x], z->x[x]);
        z->db[x] = computed((double)rows[x] * dy[x].max,
                            (double)rows[x] * (dy[x].error + (double)(rows[x] + 1) * dy[x].max), 1, 1);
    }
}

static bound plus(bound a, bound b)
{
    return (bound){a.max + b.max, a.row + b.row, a.column + b.column, a.error + b.error + a.max + b.max};
}

static void compare(golden *f, const char *what, const rp_array *got, const rp_array *want, double error)
{
    const double most = error * (f->type == RP_F64 ? DBL_EPSILON : (double)FLT_EPSILON);
    assert_int_equal(problem_size(got), problem_size(want));
    for (int64_t x = 0; x < problem_size(want); x++) {
        const double e = fabs(at(got, x) - at(want, x));
        if (!(e <= most))
            fail_msg("%s in %s: element %lld is %.17g, expected %.17g; error %.3g, bound %.3g", what,
                     rp_dtype_name(f->type), (long long)x, at(got, x), at(want, x), e, most);
        f->worst = fmax(f->worst, most > 0 ? e / most : 0);
    }
}

/* ------------------------------------------------------------------------------------------------ cases */

typedef struct golden_case {
    const char *file;
    rp_layer_desc desc;
    const char *mask[RP_LAYER_MASKS]; /* arrays of the masks in the file */
    const char *term[RP_MAX_ARRAYS];  /* arrays of the first term */
    double bias;                      /* largest bias of a term without arrays */
    const rp_windows *windows;        /* query and out are windows of grids */
} golden_case;

/* The names of the weights and of the bias vector of a projection. */
static const char *weight_of(const rp_layer_desc *d, int x)
{
    static const char *const own[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"};
    return d->weight_name[x] ? d->weight_name[x] : own[x];
}

static const char *vector_of(const rp_layer_desc *d, int x)
{
    static const char *const own[] = {"q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"};
    return d->bias_name[x] ? d->bias_name[x] : own[x];
}

/* Return the bound for the gradient of a weight. */
static double gradient_error(const bounds *z, const rp_layer_desc *d, const char *name)
{
    for (int x = 0; x < RP_PROJECTIONS; x++) {
        const double w =
            x < 3 && d->packed ? fmax(z->dw[0].error, fmax(z->dw[1].error, z->dw[2].error)) : z->dw[x].error;
        const double b =
            x < 3 && d->packed ? fmax(z->db[0].error, fmax(z->db[1].error, z->db[2].error)) : z->db[x].error;
        if (strcmp(name, weight_of(d, x)) == 0)
            return w;
        if (strcmp(name, vector_of(d, x)) == 0)
            return b;
    }
    for (int t = 0; t < d->n_terms; t++)
        if (strcmp(name, d->term_name[t][0]) == 0)
            return d->term[t].kind == RP_TERM_RELKEY   ? z->dkey_vectors.error
                   : d->term[t].kind == RP_TERM_RELVAL ? z->dvalue_vectors.error
                                                       : z->dbias.error;
    fail_msg("no bound for %s", name);
    return 0;
}

/* Replace zeros that stand for defaults. */
static void resolve(rp_layer_desc *d)
{
    d->key_width = d->key_width ? d->key_width : d->width;
    d->value_width = d->value_width ? d->value_width : d->key_width;
    d->kv_heads = d->kv_heads ? d->kv_heads : d->heads;
    d->dim_k = d->dim_k ? d->dim_k : d->width / d->heads;
    d->dim_v = d->dim_v ? d->dim_v : d->dim_k;
    d->out_width = d->out_width ? d->out_width : d->weight[RP_O] ? d->width : d->heads * d->dim_v;
}

/* Set the bounds of the weights. */
static void bound_weights(bounds *z, const rp_layer_desc *d, rp_layer *layer)
{
    for (int x = 0; x < RP_PROJECTIONS; x++) {
        const int from = d->packed && x < 3 ? 0 : x;
        const rp_layer_param *w = rp_layer_param_named(layer, weight_of(d, from));
        const rp_layer_param *b = rp_layer_param_named(layer, vector_of(d, from));
        const rp_array wa = w ? data_of(d, w) : (rp_array){.ndim = 0}, ba = b ? data_of(d, b) : (rp_array){.ndim = 0};
        z->w[x] = w ? of(&wa) : (bound){0, 0, 0, 0};
        z->b[x] = b ? of(&ba) : (bound){0, 0, 0, 0};
    }
    for (int t = 0; t < d->n_terms; t++) {
        const rp_layer_param *w = d->term_name[t][0] ? rp_layer_param_named(layer, d->term_name[t][0]) : NULL;
        if (!w)
            continue;
        const rp_array a = data_of(d, w);
        *(d->term[t].kind == RP_TERM_RELKEY   ? &z->key_vectors
          : d->term[t].kind == RP_TERM_RELVAL ? &z->value_vectors
                                              : &z->bias) = of(&a);
    }
}

static void read_weights(rp_layer *layer, const char *file)
{
    char path[100];
    snprintf(path, sizeof path, FOLDER "%s.safetensors", file);
    fine(rp_layer_read(layer, path, NULL));
}

/* Check that a file written by a layer has exactly the weights that the layer read, and no other arrays. */
static void check_written(golden *f, rp_layer *layer, const char *suffix)
{
    char path[] = "/tmp/relpos_layer_XXXXXX", full[64], err[IO_ERR_MAX];
    const int fd = mkstemp(path);
    size_t n = 0;
    io_set set = {0};
    assert_true(fd >= 0);
    close(fd);
    snprintf(full, sizeof full, "%s%s", path, suffix);
    fine(rp_layer_write(layer, full));
    if (io_read(full, &set, NULL, err) != IO_OK)
        fail_msg("%s", err);
    EACH_PARAM(layer, w)
    {
        const io_array *a = io_take(&set, w->name, err);
        const rp_array read = array_as(f, w->name, f->type);
        if (!a)
            fail_msg("%s", err);
        assert_int_equal(a->dtype, f->type);
        assert_int_equal(a->ndim, read.ndim);
        assert_memory_equal(a->shape, read.shape, (size_t)read.ndim * sizeof(int64_t));
        assert_memory_equal(a->data, read.data, a->bytes);
        n++;
    }
    assert_int_equal(set.n_arrays, n);
    io_free(&set);
    unlink(full);
    unlink(path);
}

/* Turn grids into windows. */
static rp_array cut(golden *f, const rp_windows *o, const rp_array *grids)
{
    if (!o || !grids->data)
        return *grids;
    const int64_t n = o->h / o->window_h * (o->w / o->window_w);
    const rp_array to = ZEROS(&f->memory, f->type, grids->shape[0] * n, o->window_h * o->window_w, grids->shape[3]);
    fine(rp_window_partition(grids, o, &to));
    return to;
}

static rp_array uncut(golden *f, const rp_windows *o, const rp_array *windows)
{
    if (!o)
        return *windows;
    const int64_t n = o->h / o->window_h * (o->w / o->window_w);
    const rp_array to = ZEROS(&f->memory, f->type, windows->shape[0] / n, o->h, o->w, windows->shape[2]);
    fine(rp_window_reverse(windows, o, &to));
    return to;
}

/* The labels of windows let exactly those pairs attend that Swin's mask lets attend. */
static void check_labels(golden *f, const rp_array *labels)
{
    const rp_array same = array_as(f, "in.same", RP_U8);
    const int64_t n = labels->shape[0], each = labels->shape[1];
    const int32_t *label = labels->data;
    for (int64_t x = 0; x < n * each * each; x++) {
        const int64_t row = x / each, i = row % each, w = row / each, j = x % each;
        assert_int_equal(label[w * each + i] == label[w * each + j], ((const uint8_t *)same.data)[x]);
    }
}

static void run_case(golden_case c, rp_dtype type)
{
    golden f;
    bounds z = {.bias = {c.bias, 0, 0, 0}};
    rp_layer_call call = rp_layer_call_init();
    rp_layer_grads g = rp_layer_grads_init();
    rp_layer_saved *saved;
    int64_t unused;
    char path[100];
    open_golden(&f, c.file, type);
    c.desc.dtype = type;
    rp_layer *layer = layer_of(c.desc);
    snprintf(path, sizeof path, FOLDER "%s.safetensors", c.file);
    fine(rp_layer_read(layer, path, &unused));
    int64_t n = 0;
    EACH_PARAM(layer, w)
    n++;
    assert_int_equal(unused + n, f.set.n_arrays);
    check_written(&f, layer, ".safetensors");
    check_written(&f, layer, ".npz");

    const rp_array grids = given(&f, c.windows ? "grid" : "query"), dgrids = given(&f, "dout");
    call.query = cut(&f, c.windows, &grids);
    call.key = given(&f, "key");
    call.value = given(&f, "value");
    g.dout = cut(&f, c.windows, &dgrids);
    call.out = array_in(&f.memory, type, 3, g.dout.shape);
    for (int x = 0; x < RP_LAYER_MASKS && c.mask[x]; x++)
        call.mask[x] = given(&f, c.mask[x]);
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        if (c.term[x])
            call.term[0][x] = given(&f, c.term[x]);
    if (c.windows) {
        call.mask[0] = ZEROS(&f.memory, RP_I32, call.query.shape[0], call.query.shape[1]);
        fine(rp_window_labels(c.windows, &call.mask[0]));
        check_labels(&f, &call.mask[0]);
    }
    const bool mean = io_find(&f.set, "want.mean") != NULL;
    const rp_array map = wanted(&f, mean ? "mean" : "weights");
    /* the files of one head have weights [B, Lq, Lk], which the layer computes as their mean */
    call.weights = array_in(&f.memory, type, map.ndim, map.shape);
    g.dquery = array_in(&f.memory, type, 3, call.query.shape);
    if (call.key.data)
        g.dkey = array_in(&f.memory, type, 3, call.key.shape);
    if (call.value.data)
        g.dvalue = array_in(&f.memory, type, 3, call.value.shape);
    fine(rp_layer_forward(layer, &call, &saved));
    fine(rp_layer_backward(layer, &call, saved, &g));
    rp_layer_saved_free(saved);

    resolve(&c.desc);
    const rp_array *key = call.key.data ? &call.key : &call.query, *value = call.value.data ? &call.value : key;
    z.x[0] = of(&call.query), z.x[1] = of(key), z.x[2] = of(value);
    z.dout = of(&g.dout);
    bound_weights(&z, &c.desc, layer);
    follow(&z, &c.desc, call.query.shape[0], call.query.shape[1], key->shape[1]);
    const rp_array out = uncut(&f, c.windows, &call.out), dquery = uncut(&f, c.windows, &g.dquery);
    rp_array want = wanted(&f, "out");
    compare(&f, "out", &out, &want, z.out.error);
    compare(&f, "weights", &call.weights, &map, z.weights + (double)c.desc.heads);
    bound dx[3] = {z.dx[0], z.dx[1], z.dx[2]};
    if (!call.value.data)
        dx[1] = plus(dx[1], dx[2]);
    if (!call.key.data)
        dx[0] = plus(dx[0], dx[1]);
    want = wanted(&f, c.windows ? "d.grid" : "d.query");
    compare(&f, "dquery", &dquery, &want, dx[0].error);
    if (call.key.data) {
        want = wanted(&f, "d.key");
        compare(&f, "dkey", &g.dkey, &want, dx[1].error);
    }
    if (call.value.data) {
        want = wanted(&f, "d.value");
        compare(&f, "dvalue", &g.dvalue, &want, dx[2].error);
    }
    EACH_PARAM(layer, w)
    {
        char name[100];
        const rp_array got = grad_of(&c.desc, w);
        snprintf(name, sizeof name, "d.%s", w->name);
        want = wanted(&f, name);
        compare(&f, name, &got, &want, gradient_error(&z, &c.desc, w->name));
    }
    rp_layer_destroy(layer);
    close_golden(&f, c.file);
}

#define EACH_TYPE(type) for (rp_dtype type = RP_F32; type <= RP_F64; type++)

static void run_both(golden_case c)
{
    EACH_TYPE(type)
    run_case(c, type);
}

static void relative_position_bias(void **state)
{
    (void)state;
    run_both((golden_case){"position_bias", .desc = rp_layer_position_bias_attention(4, 3, 0.3), .bias = 0.3 * log(6)});
    run_both((golden_case){"position_table", .desc = rp_layer_position_table_attention(4, 3, 8, 7)});
}

static void relative_position_representations(void **state)
{
    (void)state;
    run_both((golden_case){"relative_self_attention", .desc = rp_layer_relative_self_attention(5, 4, 3, 2)});
}

static void vit_and_swin(void **state)
{
    const rp_windows shifted = {4, 6, 2, 3, 1, 2};
    golden_case swin = {"window", .desc = rp_layer_window_attention(4, 2, 3, 2), .windows = &shifted};
    (void)state;
    swin.desc.mask[swin.desc.n_masks++] = rp_mask_init(RP_MASK_SEGMENTS);
    run_both((golden_case){"vit", .desc = rp_layer_vit_attention(6, 2)});
    run_both(swin);
}

static void t5(void **state)
{
    golden_case decode = {"t5_decode", .desc = rp_layer_t5_attention(4, 2, 8, 20, 1, 0)};
    (void)state;
    decode.desc.mask[decode.desc.n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
    run_both((golden_case){"t5_cross", .desc = rp_layer_t5_attention(4, 2, 8, 6, 1, 1)});
    run_both(decode);
}

static void additive_rel(void **state)
{
    golden_case c = {"additive_rel", .desc = rp_layer_additive_rel_attention(4, 2, 2, 0, 1), .mask = {"keep"},
                     .term = {NULL, "q_positions", "k_positions", "q_position_mask", "k_position_mask"}};
    (void)state;
    c.desc.mask[c.desc.n_masks++] = rp_mask_init(RP_MASK_KEYS);
    run_both(c);
}

static void grouped_heads(void **state)
{
    golden_case c = {"grouped", .desc = rp_layer_desc_init(3, 4), .mask = {"keep"}};
    rp_layer_desc *d = &c.desc;
    (void)state;
    d->key_width = 5, d->value_width = 4, d->out_width = 6, d->kv_heads = 2, d->dim_k = 2, d->dim_v = 3;
    d->bias[RP_Q] = d->bias[RP_V] = d->bias[RP_O] = 1;
    d->scale = 0.7;
    d->softcap = 2;
    d->mask[d->n_masks++] = rp_mask_init(RP_MASK_KEYS);
    d->mask[d->n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
    run_both(c);
}

/* Return row n of an array of the file: `out` and `dout` have those of two layers. */
static rp_array one_of(const rp_array *both, int n)
{
    const int64_t size = problem_size(both) / 2 * (int64_t)rp_dtype_size(both->dtype);
    return rp_array_of((char *)both->data + n * size, both->dtype, 3, both->shape + 1);
}

/* A layer of T5 with a table, and one that uses this table, whose gradient has parts of both. */
static void t5_shares_its_table(void **state)
{
    static const char *const second[] = {"1.q_proj.weight", "1.k_proj.weight", "1.v_proj.weight", "1.o_proj.weight"};
    (void)state;
    EACH_TYPE(type)
    {
        golden f;
        rp_layer *layer[2];
        rp_layer_desc d[2];
        bounds z[2];
        memset(z, 0, sizeof z);
        open_golden(&f, "t5_layers", type);
        const rp_array outs = wanted(&f, "out"), douts = given(&f, "dout");
        for (int l = 0; l < 2; l++) {
            char name[2][20];
            rp_layer_call call = rp_layer_call_init();
            rp_layer_grads g = rp_layer_grads_init();
            rp_layer_saved *saved;
            d[l] = rp_layer_t5_attention(4, 2, 8, 6, l == 0, 1);
            d[l].dtype = type;
            for (int x = 0; l == 1 && x < RP_PROJECTIONS; x++)
                d[l].weight_name[x] = second[x];
            layer[l] = layer_of(d[l]);
            read_weights(layer[l], "t5_layers");
            resolve(&d[l]);
            bound_weights(&z[l], &d[l], layer[l]);
            snprintf(name[0], sizeof name[0], "query%d", l);
            snprintf(name[1], sizeof name[1], "weights%d", l);
            rp_array want = wanted(&f, name[1]);
            call.query = given(&f, name[0]);
            call.out = array_in(&f.memory, type, 3, call.query.shape);
            call.weights = array_in(&f.memory, type, 4, want.shape);
            call.terms_of = l ? layer[0] : NULL;
            g.dout = one_of(&douts, l);
            g.dquery = array_in(&f.memory, type, 3, call.query.shape);
            fine(rp_layer_forward(layer[l], &call, &saved));
            fine(rp_layer_backward(layer[l], &call, saved, &g));
            rp_layer_saved_free(saved);
            z[l].bias = z[0].bias;
            z[l].x[0] = z[l].x[1] = z[l].x[2] = of(&call.query);
            z[l].dout = of(&g.dout);
            follow(&z[l], &d[l], 2, 5, 5);
            compare(&f, "weights", &call.weights, &want, z[l].weights);
            want = one_of(&outs, l);
            compare(&f, "out", &call.out, &want, z[l].out.error);
            snprintf(name[0], sizeof name[0], "d.query%d", l);
            want = wanted(&f, name[0]);
            compare(&f, "dquery", &g.dquery, &want, plus(z[l].dx[0], plus(z[l].dx[1], z[l].dx[2])).error);
        }
        z[0].dbias = plus(z[0].dbias, z[1].dbias);
        for (int l = 0; l < 2; l++)
            EACH_PARAM(layer[l], w)
            {
                char name[100];
                const rp_array got = grad_of(&d[l], w);
                snprintf(name, sizeof name, "d.%s", w->name);
                const rp_array want = wanted(&f, name);
                compare(&f, name, &got, &want, gradient_error(&z[l], &d[l], w->name));
            }
        rp_layer_destroy(layer[1]);
        rp_layer_destroy(layer[0]);
        close_golden(&f, "t5_layers");
    }
}

/* Steps of decoding with a cache give the rows of the whole pass, also after tokens were dropped. */
static void t5_decodes_with_a_cache(void **state)
{
    static const int64_t steps[] = {3, 1, 1, 2, 2};
    (void)state;
    EACH_TYPE(type)
    {
        golden f;
        bounds z;
        rp_layer_cache *cache;
        memset(&z, 0, sizeof z);
        open_golden(&f, "t5_decode", type);
        rp_layer_desc d = rp_layer_t5_attention(4, 2, 8, 20, 1, 0);
        d.dtype = type;
        d.mask[d.n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
        rp_layer *layer = layer_of(d);
        read_weights(layer, "t5_decode");
        const rp_array x = given(&f, "query"), want = wanted(&f, "out");
        const int64_t batch = x.shape[0], len = x.shape[1], width = x.shape[2], size = (int64_t)rp_dtype_size(type);
        resolve(&d);
        bound_weights(&z, &d, layer);
        z.x[0] = z.x[1] = z.x[2] = of(&x);
        follow(&z, &d, batch, len, len);
        fine(rp_layer_cache_create(&cache, layer, batch, len));
        int64_t from = 0;
        for (int step = -1; step < 5; step++) {
            const int64_t n = step < 0 ? 4 : steps[step];
            rp_layer_call call = rp_layer_call_init();
            call.query = ZEROS(&f.memory, type, batch, n, width);
            call.out = ZEROS(&f.memory, type, batch, n, width);
            call.cache = cache;
            for (int64_t b = 0; b < batch; b++)
                memcpy((char *)call.query.data + b * n * width * size, (char *)x.data + (b * len + from) * width * size,
                       (size_t)(n * width * size));
            fine(rp_layer_forward(layer, &call, NULL));
            assert_int_equal(rp_layer_cache_length(cache), from + n);
            for (int64_t b = 0; b < batch; b++) {
                const rp_array got =
                    rp_array_of((char *)call.out.data + b * n * width * size, type, 2, SHAPE(n, width));
                const rp_array part =
                    rp_array_of((double *)want.data + (b * len + from) * width, RP_F64, 2, SHAPE(n, width));
                compare(&f, "a step", &got, &part, z.out.error);
            }
            from += n;
            if (step < 0) { /* begin again */
                rp_layer_cache_truncate(cache, 0);
                from = 0;
            }
        }
        assert_int_equal(from, len);
        rp_layer_cache_destroy(cache);
        rp_layer_destroy(layer);
        close_golden(&f, "t5_decode, step by step");
    }
}

static void biases_as_an_array(void **state)
{
    (void)state;
    EACH_TYPE(type)
    {
        golden f;
        open_golden(&f, "relative_positional_bias", type);
        for (int both = 0; both < 2; both++) {
            rp_layer_desc d = rp_layer_relative_positional_bias(3, 8, 6, both);
            d.dtype = type;
            rp_layer *layer = layer_of(d);
            read_weights(layer, "relative_positional_bias");
            const rp_array want = wanted(&f, both ? "bias1" : "bias0");
            const rp_array got = array_in(&f.memory, type, 4, want.shape);
            fine(rp_layer_biases(layer, 0, &got));
            compare(&f, "biases", &got, &want, 0);
            /* queries 3 … 6 */
            const rp_array part = ZEROS(&f.memory, type, 1, 3, 4, 9);
            fine(rp_layer_biases(layer, 3, &part));
            for (int64_t x = 0; x < 3 * 4 * 9; x++)
                assert_true(at(&part, x) == at(&want, (x / 36 * 7 + x / 9 % 4 + 3) * 9 + x % 9));
            rp_layer_destroy(layer);
        }
        close_golden(&f, "relative_positional_bias");
    }
}

/* ------------------------------------------------------------------------------------------------ images */

static rp_array plain(golden *f, const char *name)
{
    const rp_array a = array_as(f, name, f->type);
    if (!a.data)
        fail_msg("the file has no %s", name);
    return a;
}

static rp_array exact(golden *f, const char *name)
{
    return array_as(f, name, RP_F64);
}

/* A product of patches with the weights of a convolution equals the convolution. */
static void patches_of_images(void **state)
{
    enum { SIZE = 2, IN = 12, OUT = 5, PATCHES = 6, BATCH = 2 };
    (void)state;
    EACH_TYPE(type)
    {
        golden f;
        open_golden(&f, "images", type);
        const rp_array images = plain(&f, "images"), kernel = plain(&f, "kernel"), d = plain(&f, "dembedded");
        const rp_array patches = ZEROS(&f.memory, type, BATCH, PATCHES, IN), back = plain(&f, "images");
        const rp_array dpatches = ZEROS(&f.memory, type, BATCH, PATCHES, IN);
        const rp_array embedded = ZEROS(&f.memory, RP_F64, BATCH, PATCHES, OUT);
        const rp_array dkernel = ZEROS(&f.memory, RP_F64, OUT, IN);
        fine(rp_patches(&images, SIZE, &patches));
        for (int64_t r = 0; r < BATCH * PATCHES; r++)
            for (int64_t o = 0; o < OUT; o++)
                for (int64_t c = 0; c < IN; c++) {
                    set(&embedded, r * OUT + o,
                        at(&embedded, r * OUT + o) + at(&patches, r * IN + c) * at(&kernel, o * IN + c));
                    set(&dkernel, o * IN + c,
                        at(&dkernel, o * IN + c) + at(&d, r * OUT + o) * at(&patches, r * IN + c));
                    set(&dpatches, r * IN + c,
                        at(&dpatches, r * IN + c) + at(&d, r * OUT + o) * at(&kernel, o * IN + c));
                }
        memset(back.data, 0x7f, (size_t)problem_size(&back) * rp_dtype_size(type));
        fine(rp_patches_back(&dpatches, SIZE, &back));
        const bound p = of(&patches), w = of(&kernel), g = of(&d);
        rp_array want = exact(&f, "embedded");
        compare(&f, "embedded", &embedded, &want, IN * p.row * 12 * w.max);
        want = exact(&f, "dkernel");
        compare(&f, "dkernel", &dkernel, &want, BATCH * PATCHES * p.column * g.column);
        want = exact(&f, "dimages");
        compare(&f, "dimages", &back, &want, OUT * g.row * sqrt(OUT) * w.max);
        close_golden(&f, "patches");
    }
}

/* Both directions of interpolation, enlarging and reducing, with rows that are copied. */
static void tables_of_other_sizes(void **state)
{
    static const struct {
        const char *name;
        rp_interpolation how;
        int64_t extra, from_h, from_w, to_h, to_w;
    } cases[] = {{"linear_up", RP_BILINEAR, 1, 3, 4, 5, 7},
                 {"linear_down", RP_BILINEAR, 0, 5, 4, 2, 3},
                 {"cubic_up", RP_BICUBIC, 2, 3, 4, 7, 5},
                 {"cubic_down", RP_BICUBIC, 1, 5, 4, 3, 2}};
    (void)state;
    EACH_TYPE(type)
    {
        golden f;
        open_golden(&f, "images", type);
        for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
            char name[4][40];
            static const char *const part[] = {"table", "resized", "dresized", "dtable"};
            for (int x = 0; x < 4; x++)
                snprintf(name[x], sizeof name[x], "%s.%s", cases[n].name, part[x]);
            const rp_array table = plain(&f, name[0]), dresized = plain(&f, name[2]);
            const rp_array want = exact(&f, name[1]), dwant = exact(&f, name[3]);
            const rp_array resized = array_in(&f.memory, type, 2, want.shape);
            const rp_array dtable = array_in(&f.memory, type, 2, dwant.shape);
            fine(rp_resize_table(&table, cases[n].from_h, cases[n].from_w, cases[n].extra, cases[n].how, &resized,
                                 cases[n].to_h, cases[n].to_w));
            fine(rp_resize_table_back(&dresized, cases[n].to_h, cases[n].to_w, cases[n].extra, cases[n].how, &dtable,
                                      cases[n].from_h, cases[n].from_w));
            /* Absolute values of the four weights of an axis sum to at most 1.375 (cubic, half-way). The slope of a
             * weight is at most 2, and its argument, up to 7, has an error of 2 eps: 28 eps per weight. Then there are
             * sums of 16 products; in the gradient, of all rows. */
            const double all = (double)problem_size(&dresized);
            compare(&f, name[1], &resized, &want, 1.9 * (16 + 4 + 2 * 4 * 28) * of(&table).max);
            compare(&f, name[3], &dtable, &dwant, all * (all + 4 + 2 * 28) * of(&dresized).max);
            for (int64_t x = 0; x < cases[n].extra * 2; x++)
                assert_true(at(&resized, x) == at(&table, x) && at(&dtable, x) == at(&dresized, x));
        }
        close_golden(&f, "tables");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relative_position_bias), cmocka_unit_test(relative_position_representations),
        cmocka_unit_test(vit_and_swin),           cmocka_unit_test(t5),
        cmocka_unit_test(t5_shares_its_table),    cmocka_unit_test(t5_decodes_with_a_cache),
        cmocka_unit_test(biases_as_an_array),     cmocka_unit_test(additive_rel),
        cmocka_unit_test(grouped_heads),          cmocka_unit_test(patches_of_images),
        cmocka_unit_test(tables_of_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
