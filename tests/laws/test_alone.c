/* test_alone.c -- an entry gives the result of a call of its own: with padding, beside other batch entries, packed with
 * other sequences, and step by step. Runs over every term of the registry and every scaling of RoPE.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/tangents.h"

enum { ENTRIES = 3, HEADS = 4 };
static const int64_t length[ENTRIES] = {30, 70, 95}; /* below, between and above the trained lengths below */

/* ------------------------------------------------------------------------------------------------ the terms */

enum { TEXTS = 128 };
static char texts[TEXTS][160];
static int n_texts;

static void add_text(const char *term, const char *parameters)
{
    assert_true(n_texts < TEXTS);
    snprintf(texts[n_texts++], sizeof texts[0], "%s%s%s", term, *parameters ? "," : "", parameters);
}

/* List the samples of each term, and RoPE with each scaling. Terms of a grid are left out: its number of tokens is
 * fixed. */
static int list_terms(void **state)
{
    (void)state;
    const rp_param *scaling = NULL;
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
        const char *const *sample = rp_term_about((rp_term_kind)k)->samples;
        for (int n = 0; n < RP_MAX_SAMPLES && sample[n]; n++)
            if (!strstr(sample[n], "grid="))
                add_text(rp_term_name((rp_term_kind)k), sample[n]);
    }
    for (int x = 0; (scaling = rp_term_param(RP_TERM_ROPE, x)) && strcmp(scaling->key, "scaling") != 0; x++) {
    }
    for (int n = 0; scaling->choices[n]; n++)
        for (int layout = 0; layout < 2; layout++) {
            char text[160];
            snprintf(text, sizeof text, "scaling=%s,layout=%s%s", scaling->choices[n], layout ? "interleaved" : "half",
                     n ? ",factor=4,original_max_position_embeddings=40,max_position_embeddings=40" : "");
            add_text("rope", text);
        }
    return 0;
}

/* Return true if a length chooses the frequencies of this RoPE. */
static bool has_length(const char *text)
{
    return strstr(text, "scaling=dynamic") || strstr(text, "scaling=longrope");
}

/* -------------------------------------------------------------------------------------------- parts of a problem */

/* Rows and keys of one batch entry of a problem, as a call of its own. */
typedef struct part {
    int64_t b, row, rows, key, keys;
    rp_desc desc;
    rp_tensors t;
    rp_array out;
} part;

/* Return n elements of an axis, from `first` on. */
static void cut(rp_array *a, int32_t axis, int64_t first, int64_t n)
{
    a->data = (char *)a->data + first * a->stride[axis] * (int64_t)rp_dtype_size(a->dtype);
    a->shape[axis] = n;
}

/* Cut an array of a term to a part, by the axes in the text of its shape. */
static void cut_term(const problem *p, const part *c, const char *shape, rp_array *a)
{
    char copy[160];
    int32_t axis = 0;
    const char *first = strchr(shape, '['), *second = strstr(shape, ": [");
    int64_t axes = 1;
    for (const char *at = first; *at != ']'; at++)
        axes += *at == ',';
    shape = second && a->ndim < axes ? second + 2 : first; /* of two shapes, the first has more axes */
    snprintf(copy, sizeof copy, "%s", shape);
    for (char *rest = copy, *word; a->data && (word = strtok_r(rest, "[], ?", &rest)) != NULL && axis < a->ndim;) {
        const int32_t x = axis++;
        if (strcmp(word, "B") == 0)
            cut(a, x, c->b, 1);
        else if (strcmp(word, "Lq") == 0)
            cut(a, x, c->row, c->rows);
        else if (strcmp(word, "Lk") == 0)
            cut(a, x, c->key, c->keys);
        else if (strcmp(word, "Lq+Lk-1") == 0) /* by offset, from the lowest on */
            cut(a, x, p->desc.len_q - c->row - c->rows + c->key, c->rows + c->keys - 1);
    }
}

/* Make a part of a problem with the terms of the problem, and with the first `masks` of its masks. */
static void take_part(problem *p, part *c, int32_t masks)
{
    c->desc = p->desc;
    c->desc.batch = 1;
    c->desc.len_q = c->rows;
    c->desc.len_k = c->keys;
    c->desc.q_offset = c->row - c->key;
    c->desc.n_masks = masks;
    c->t = p->t;
    rp_array *const rows[3] = {&c->t.q, &c->t.k, &c->t.v};
    for (int x = 0; x < 3; x++) {
        cut(rows[x], 0, c->b, 1);
        cut(rows[x], 2, x ? c->key : c->row, x ? c->keys : c->rows);
    }
    const int64_t shape[4] = {1, HEADS, c->rows, p->t.v.shape[3]};
    c->t.out = c->out = array_in(p, p->t.out.dtype, 4, shape);
    c->t.lse = (rp_array){0};
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (c->t.term[n][x].data)
                cut_term(p, c, rp_term_array_about(p->terms[n].kind, x)->shape, &c->t.term[n][x]);
}

static void run_part(const problem *p, part *c, const char *path)
{
    rp_plan *plan;
    c->desc.isa = path;
    rp_status status = rp_plan_create(&plan, &c->desc);
    if (status == RP_OK)
        status = rp_attend(plan, &c->t, NULL);
    if (status != RP_OK)
        wrong(p, path, "rows %lld to %lld: %s", (long long)c->row, (long long)(c->row + c->rows), rp_last_error());
    rp_plan_destroy(plan);
}

/* Return element [b, h, i, x] of a result of the problem, as an index. */
static int64_t element(const rp_array *a, int64_t b, int64_t h, int64_t i)
{
    return ((b * a->shape[1] + h) * a->shape[2] + i) * a->shape[3];
}

/* Check that n rows of `all`, from row `row` of batch entry b on, have the bits of `own`. */
static void same_rows(const problem *p, const char *path, const char *what, const rp_array *all, int64_t b, int64_t row,
                      const rp_array *own)
{
    const int64_t size = (int64_t)rp_dtype_size(all->dtype);
    for (int64_t h = 0; h < own->shape[1]; h++)
        same_bits(p, path, what, (char *)all->data + element(all, b, h, row) * size,
                  (char *)own->data + element(own, 0, h, 0) * size, (size_t)(own->shape[2] * own->shape[3] * size));
}

/* -------------------------------------------------------------------------------------------- padding, neighbours */

/* Let a mask of the problem hide the keys that are not of the entry. */
static void hide_padding(problem *p, int32_t n)
{
    rp_array *a = &p->t.mask[n];
    for (int64_t x = 0; x < problem_size(a); x++) {
        const int64_t b = x / (problem_size(a) / ENTRIES), j = x % p->desc.len_k;
        if (p->masks[n].kind == RP_MASK_LENGTHS || p->masks[n].kind == RP_MASK_ENDS)
            ((int64_t *)a->data)[x] = length[b];
        else if (p->masks[n].kind != RP_MASK_STARTS)
            ((uint8_t *)a->data)[x] = j < length[b];
    }
}

/* Padding that any mask hides, and other batch entries, change no bit of an entry. */
static void padding_and_neighbours_change_no_bit(void **state)
{
    static const char *const masks[] = {"lengths", "key_mask+causal",     "ends",
                                        "mask",    "lengths+window=60,9", "ends+causal"};
    problem p;
    (void)state;
    for (int n = 0; n < n_texts; n++)
        EACH_PATH(path)
        {
            const bool given = n % 2, scaled = has_length(texts[n]);
            if (!scaled && (SLOW(path) ? n % 5 != 0 : !PART(path, n, 2)))
                continue;
            const bool tiles = n % 7 == 0 && !SLOW(path) && path_n >= 0; /* the reference has no tiles */
            const int64_t padded = tiles ? 640 : 100;
            for (int m = 0; m < (scaled ? 6 : 1); m++) {
                const char *mask = masks[scaled ? m : n % 6];
                pose(&p, 90, "fwd:f32:b%dh%dg2q%dk%dd16:%s:%s%s", ENTRIES, HEADS, (int)padded, (int)padded, texts[n],
                     mask, given ? "+positions" : "");
                hide_padding(&p, 0);
                attend(&p, path);
                for (int64_t b = 0; b < ENTRIES; b++) {
                    part c = {.b = b, .rows = length[b], .keys = length[b]};
                    take_part(&p, &c, 0);
                    c.desc.masks = p.masks + 1;
                    c.desc.n_masks = p.desc.n_masks - 1;
                    run_part(&p, &c, path);
                    same_rows(&p, path, "padding and other entries", &p.t.out, b, 0, &c.out);
                }
                problem_free(&p);
            }
        }
}

/* Cut the tangents of the inputs to those of a part, which begins at row and key 0. */
static void cut_tangents(problem *p, const part *c, rp_tangents *y)
{
    rp_array *const rows[3] = {&y->q, &y->k, &y->v};
    for (int m = 0; m < 3; m++) {
        cut(rows[m], 0, c->b, 1);
        cut(rows[m], 2, 0, m ? c->keys : c->rows);
    }
    for (int32_t m = 0; m < p->desc.n_terms; m++)
        for (int z = 0; z < RP_MAX_ARRAYS; z++)
            if (y->term[m][z].data)
                cut_term(p, c, rp_term_array_about(p->terms[m].kind, z)->shape, &y->term[m][z]);
}

/* The same for gradients of q, k and v, or for second derivatives. Rows of the padding have dout 0. */
static void compare_gradients(bool second)
{
    problem p;
    for (int n = 0; n < n_texts; n++)
        EACH_PATH(path)
        {
            if (!has_length(texts[n]) && (SLOW(path) || n % 3 || !PART(path, n / 3, 2)))
                continue;
            pose(&p, 91, "bwd:f32:b%dh%dg2q100k100d16:%s:lengths%s", ENTRIES, HEADS, texts[n], n % 2 ? "+causal" : "");
            hide_padding(&p, 0);
            for (int64_t x = 0; x < problem_size(&p.g.dout); x++)
                if (x / p.g.dout.shape[3] % 100 >= length[x / (problem_size(&p.g.dout) / ENTRIES)])
                    set(&p.g.dout, x, 0);
            rp_tangents along = tangents_of(&p, 7, RP_F32, RP_F32);
            p.t.out.data = p.t.lse.data = NULL;
            if (second)
                hvp(&p, path, &along, &p.g);
            else
                backward(&p, path, &p.g, false);
            for (int64_t b = 0; b < ENTRIES; b++) {
                part c = {.b = b, .rows = length[b], .keys = length[b]};
                rp_grads g = rp_grads_init();
                rp_tangents y = along;
                rp_array *const all[3] = {&p.g.dq, &p.g.dk, &p.g.dv}, *const own[3] = {&g.dq, &g.dk, &g.dv};
                rp_plan *plan;
                take_part(&p, &c, 0);
                c.desc.masks = p.masks + 1;
                c.desc.n_masks = p.desc.n_masks - 1;
                c.desc.isa = path;
                c.t.out = (rp_array){0};
                g.dout = p.g.dout;
                cut(&g.dout, 0, b, 1);
                cut(&g.dout, 2, 0, c.rows);
                for (int x = 0; x < 3; x++) {
                    const int64_t shape[4] = {1, all[x]->shape[1], c.rows, all[x]->shape[3]};
                    *own[x] = array_in(&p, RP_F32, 4, shape);
                }
                good(rp_plan_create(&plan, &c.desc));
                cut_tangents(&p, &c, &y);
                y.out.data = y.lse.data = NULL;
                good(second ? rp_hvp(plan, &c.t, &y, &g) : rp_backward(plan, &c.t, &g, NULL));
                rp_plan_destroy(plan);
                for (int x = 0; x < 3; x++)
                    same_rows(&p, path, gradient_name(&p, x), all[x], b, 0, own[x]);
            }
            problem_free(&p);
        }
}

static void padding_changes_no_gradient(void **state)
{
    (void)state;
    compare_gradients(false);
}

static void padding_changes_no_second_derivative(void **state)
{
    (void)state;
    compare_gradients(true);
}

/* The same for tangents of out and lse. */
static void padding_changes_no_tangent(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < n_texts; n++)
        EACH_PATH(path)
        {
            if (!has_length(texts[n]) && (SLOW(path) ? n % 5 != 0 : !PART(path, n, 2)))
                continue;
            const int padded = n % 7 == 0 && !SLOW(path) && path_n >= 0 ? 530 : 100;
            pose(&p, 94, "bwd:f32:b%dh%dg2q%dk%dd16:%s:%s%s", ENTRIES, HEADS, padded, padded, texts[n],
                 n % 3 ? "lengths" : "key_mask", n % 2 ? "+causal" : "+dropout=0.2");
            hide_padding(&p, 0);
            rp_tangents x = tangents_of(&p, 7, RP_F32, RP_F32);
            p.t.out = array_in(&p, RP_F32, 4, x.out.shape);
            const rp_array whole = x.out, lse = x.lse;
            p.t.lse.data = NULL;
            rp_plan *plan;
            p.desc.isa = path;
            good(rp_plan_create(&plan, &p.desc));
            rp_tensors t = p.t;
            t.out.data = NULL;
            good(rp_jvp(plan, &t, &x));
            rp_plan_destroy(plan);
            for (int64_t b = 0; b < ENTRIES; b++) {
                part c = {.b = b, .rows = length[b], .keys = length[b]};
                rp_tangents y = x;
                take_part(&p, &c, 0);
                c.desc.masks = p.masks + 1;
                c.desc.n_masks = p.desc.n_masks - 1;
                c.desc.isa = path;
                if (p.desc.dropout > 0 && b > 0) /* dropout depends on the number of the batch entry */
                    continue;
                cut_tangents(&p, &c, &y);
                y.out = c.out;
                const int64_t shape[4] = {1, HEADS, c.rows, 1};
                y.lse = array_in(&p, RP_F32, 3, shape);
                c.t.out.data = NULL;
                good(rp_plan_create(&plan, &c.desc));
                good(rp_jvp(plan, &c.t, &y));
                rp_plan_destroy(plan);
                same_rows(&p, path, "the tangent of out", &whole, b, 0, &y.out);
                for (int64_t h = 0; h < HEADS; h++)
                    same_bits(&p, path, "the tangent of lse", (float *)lse.data + (b * HEADS + h) * padded,
                              (float *)y.lse.data + h * c.rows, (size_t)c.rows * sizeof(float));
            }
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ packed sequences */

/* Return the bound on the errors of a call. */
static rp_array bound_of(problem *p, const rp_desc *d, const rp_tensors *t)
{
    rp_array bound = array_in(p, RP_F64, 4, t->out.shape);
    rp_plan *plan;
    good(rp_plan_create(&plan, d));
    good(rp_error_bound(plan, t, &bound));
    rp_plan_destroy(plan);
    return bound;
}

/* Sequences packed one after the other, with padding at the end, agree with calls of their own up to rounding. */
static void packed_sequences_agree_with_calls_of_their_own(void **state)
{
    const int64_t tokens = length[0] + length[1] + length[2] + 20;
    problem p;
    (void)state;
    for (int n = 0; n < n_texts; n++)
        EACH_PATH(path)
        {
            if (!has_length(texts[n]) && (path_n < 0 || SLOW(path) || !PART(path, n, 4))) /* the bounds take time */
                continue;
            pose(&p, 92, "fwd:f32:b1h%dg2q%dk%dd16:%s:segments+key_mask%s%s", HEADS, (int)tokens, (int)tokens, texts[n],
                 n % 3 ? "+causal" : "", n % 2 ? "+positions" : "");
            for (int64_t j = 0; j < tokens; j++) {
                const int64_t s = (j >= length[0]) + (j >= length[0] + length[1]) + (j >= tokens - 20);
                ((int32_t *)p.t.mask[0].data)[j] = (int32_t)(7 - 5 * s);
                ((uint8_t *)p.t.mask[1].data)[j] = s < 3;
            }
            attend(&p, path);
            const rp_array bound = bound_of(&p, &p.desc, &p.t);
            for (int64_t s = 0, start = 0; s < ENTRIES; start += length[s++]) {
                part c = {.row = start, .key = start, .rows = length[s], .keys = length[s]};
                take_part(&p, &c, 0);
                c.desc.masks = p.masks + 2;
                c.desc.n_masks = p.desc.n_masks - 2;
                run_part(&p, &c, path);
                const rp_array own = bound_of(&p, &c.desc, &c.t);
                for (int64_t x = 0; x < problem_size(&c.out); x++) {
                    const int64_t width = c.out.shape[3], row = x / width,
                                  all = element(&p.t.out, 0, row / c.rows, start + row % c.rows) + x % width;
                    const double error = fabs(at(&c.out, x) - at(&p.t.out, all));
                    if (!(error <= at(&bound, all) + at(&own, x)))
                        wrong(&p, path, "sequence %d, row %d: %g beside %g in a call of its own; bounds %g and %g",
                              (int)s, (int)(row % c.rows), at(&p.t.out, all), at(&c.out, x), at(&bound, all),
                              at(&own, x));
                }
            }
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ step by step */

/* Steps with one query and the keys so far have the bits of one pass; scalings with a length get the final one. */
static void steps_equal_one_pass(void **state)
{
    enum { TOKENS = 70 };
    problem p;
    (void)state;
    for (int n = 0; n < n_texts; n++)
        EACH_PATH(path)
        {
            if (SLOW(path) && n % 5 && !has_length(texts[n]))
                continue;
            const bool lacks = has_length(texts[n]) && !strstr(texts[n], "length=");
            pose(&p, 93, "fwd:f32:b1h%dg2q%dk%dd16:%s%s:causal%s", HEADS, TOKENS, TOKENS, texts[n],
                 lacks ? ",length=70" : "", n % 2 ? "+positions" : "");
            attend(&p, path);
            rp_plan *plan;
            rp_prepared *prepared;
            rp_desc d = p.desc;
            d.flexible = 1;
            d.isa = path;
            good(rp_plan_create(&plan, &d));
            good(rp_prepare(&prepared, plan, &p.t));
            const int64_t one = 1;
            for (int64_t i = 0; i < TOKENS; i++) {
                part c = {.row = i, .rows = 1, .keys = i + 1};
                take_part(&p, &c, 1);
                c.t.q_offset = rp_array_of(&i, RP_I64, 1, &one);
                c.t.prepared = i % 2 ? prepared : NULL;
                good(rp_attend(plan, &c.t, NULL));
                same_rows(&p, path, "step by step", &p.t.out, 0, i, &c.out);
                free(p.memory[--p.n_memory]); /* the output of the part */
            }
            rp_prepared_destroy(prepared);
            rp_plan_destroy(plan);
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ the length itself */

static void none(problem *p)
{
    (void)p;
}

static void keys_with_holes(problem *p)
{
    for (int64_t j = 0; j < 60; j++)
        ((uint8_t *)p->t.mask[0].data)[j] = j % 9 == 2; /* the last is key 56 */
}

static void intervals_of_rows(problem *p)
{
    for (int64_t i = 0; i < 60; i++) {
        ((int64_t *)p->t.mask[0].data)[i] = i;                       /* starts */
        ((int64_t *)p->t.mask[1].data)[i] = i < 9 ? 45 : 12 + i % 3; /* ends: those of rows from 14 on are empty */
    }
}

static void some_head_has_key_50(problem *p)
{
    uint8_t *keep = p->t.mask[0].data;
    memset(keep, 0, 4 * 60 * 60);
    for (int64_t x = 0; x < 4 * 60; x++)
        memset(keep + x * 60, 1, 20);
    keep[(2 * 60 + 7) * 60 + 50] = 1;
}

static void biases_of_minus_infinity(problem *p)
{
    for (int64_t x = 0; x < problem_size(&p->t.term[1][0]); x++)
        if (x % 60 >= 44)
            ((float *)p->t.term[1][0].data)[x] = x % 60 == 47 && x / 60 == 65 ? -1e30f : -INFINITY;
}

static void positions_of_left_padding(problem *p) /* 8 tokens of padding, then the text */
{
    for (int64_t j = 0; j < 60; j++) {
        ((int32_t *)p->t.term[0][0].data)[j] = j < 8 ? 99 : (int32_t)j - 8;
        ((uint8_t *)p->t.mask[0].data)[j] = j >= 8;
    }
}

static void real_positions(problem *p)
{
    for (int64_t j = 0; j < 60; j++)
        ((double *)p->t.term[0][2].data)[j] = j == 13 ? 87.25 : (double)(60 - j) / 4; /* 13 is the only key above 15 */
}

static void nothing_is_left(problem *p)
{
    memset(p->t.mask[0].data, 0, 60);
}

static void label_in_two_places(problem *p) /* 47 tokens, one token of another sequence, 12 tokens */
{
    for (int64_t j = 0; j < 60; j++)
        ((int32_t *)p->t.mask[0].data)[j] = j == 47;
}

/* A call has the bits of a call with the length given, and other bits with another length (the trained one is 40). */
static void the_length_is_that_of_the_keys_that_queries_attend_to(void **state)
{
    static const struct {
        const char *sizes, *more, *masks;
        void (*change)(problem *p);
        double length;
    } cases[] = {
        {"q60k60", "", "", none, 60},
        {"q60k60", "", "causal", none, 60},
        {"q1k60", "", "causal", none, 1},         /* the query attends to key 0 only */
        {"q3k60o44", "", "causal", none, 47},     /* a cache of which 47 keys are filled */
        {"q5k60o300", "", "causal", none, 60},    /* queries beyond the keys */
        {"q5k60o40", "", "window=3,4", none, 49}, /* keys 37 … 48 */
        {"q5k60o-90", "", "window=3,4", none, 0}, /* queries before the keys */
        {"q60k60", "", "key_mask", keys_with_holes, 57},
        {"q60k60", "", "key_mask+causal", keys_with_holes, 57},
        {"q60k60", "", "starts+ends", intervals_of_rows, 45},
        {"q60k60", "", "mask", some_head_has_key_50, 51},
        {"q60k60", "+dense", "", biases_of_minus_infinity, 48},
        {"q60k60", "+forget", "", none, 60},
        {"q60k60", ",positions=x", "key_mask", positions_of_left_padding, 52},
        {"q60k60", ",positions=x", "key_mask+causal", positions_of_left_padding, 52},
        {"q6k60", ",k_positions=x", "positions", real_positions, 88.25},
        {"q60k60", "", "key_mask", nothing_is_left, 0},
        {"q60k60", "", "segments", label_in_two_places, 47},
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int longrope = 0; longrope < 2; longrope++)
            EACH_PATH(path)
            {
                if (cases[n].length != floor(cases[n].length) && !longrope)
                    continue; /* a given length is a whole number */
                rp_array out[3];
                for (int x = 0; x < 3; x++) {
                    const char *extra = cases[n].more;
                    char given[40] = "";
                    const int other = cases[n].length > 40 ? 40 : 41;
                    if (x)
                        snprintf(given, sizeof given, ",length=%d", x > 1 ? other : (int)fmax(cases[n].length, 1));
                    pose(&p, 94, "fwd:f32:b1h4%sd16:rope,base=20,scaling=%s,factor=3,max_position_embeddings=40%s%s:%s",
                         cases[n].sizes, longrope ? "longrope" : "dynamic", given, extra, cases[n].masks);
                    cases[n].change(&p);
                    attend(&p, path);
                    out[x] = p.t.out;
                    out[x].data = copy_of(&p.t.out);
                    if (x == 1)
                        same_numbers(&p, path, "the length is given", &out[0], &out[1]);
                    const size_t bytes = (size_t)problem_size(&out[0]) * 4;
                    const bool pairs = cases[n].length > 1; /* some query attends to several keys */
                    if (x == 2 && pairs && memcmp(out[0].data, out[2].data, bytes) == 0)
                        wrong(&p, path, "another length gives the same bits");
                    problem_free(&p);
                }
                for (int x = 0; x < 3; x++)
                    free(out[x].data);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_and_neighbours_change_no_bit),
        cmocka_unit_test(padding_changes_no_gradient),
        cmocka_unit_test(padding_changes_no_second_derivative),
        cmocka_unit_test(padding_changes_no_tangent),
        cmocka_unit_test(packed_sequences_agree_with_calls_of_their_own),
        cmocka_unit_test(steps_equal_one_pass),
        cmocka_unit_test(the_length_is_that_of_the_keys_that_queries_attend_to),
    };
    return cmocka_run_group_tests(tests, list_terms, NULL);
}
