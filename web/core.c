/* core.c -- the functions that the page calls. They describe and compute one problem at a time, with arrays in the
 * memory of the module. 64-bit integers of relpos.h are passed as double, the number type of JavaScript. Terms are
 * passed as text.
 *
 *     begin(heads, kv_heads, len_q, len_k, dim_k, dim_v, RP_F64);  term("t5,buckets=16");  mask(kind, parameters);
 *     array(Q, 0, RP_F64, 4, shape, data);  fill();  bias(to);  row(h, i, to);  attend(what, to);
 *
 * Unless stated otherwise, a call returns 0, or a negative number and the message in error(). The caller owns the
 * arrays of a problem, except for arrays that fill allocates. SPDX-License-Identifier: Apache-2.0 */
#include "src/api/inspect.h"
#include "src/sources/sources.h"
#include "cli/support/sample_problem.h"
#include "cli/support/sample_arrays.h"
#include "cli/support/shift_image.h"
#include "web/export.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q = -1, K = -2, V = -3 };                                 /* passed instead of a term's number */
enum { MAX_ELEMENTS = 1 << 24 };                                 /* max elements of an array that fill allocates */
enum { OUT, LSE, WEIGHTS, PROFILE, MASS };                       /* outputs of attend */
enum { ROW_BIAS, ROW_SCORES, ROW_WEIGHTS, ROW_OUT, ROW_MASKED }; /* outputs of rows */

static rp_desc desc;
static rp_term terms[RP_MAX_TERMS];
static rp_mask masks[RP_MAX_MASKS];
static char names[RP_MAX_TERMS][RP_MAX_ARRAYS][RP_NAME_MAX];
static rp_tensors tensors;
static void *made[RP_MAX_TERMS * RP_MAX_ARRAYS];
static int n_made;
static char why[512];

/* Return 0 for RP_OK; otherwise store the library's message and return a negative number. */
static int answer(rp_status status)
{
    if (status == RP_OK)
        return 0;
    rp_last_error_in(&desc, NULL, NULL, why, sizeof why);
    return -(int)status;
}

/* Store a message and return a negative number. */
__attribute__((format(printf, 1, 2))) static int refuse(const char *format, ...)
{
    va_list given;
    va_start(given, format);
    vsnprintf(why, sizeof why, format, given);
    va_end(given);
    return -(int)RP_E_ARG;
}

EXPORT(error) const char *x_error(void)
{
    return why;
}

/* ------------------------------------------------------------------------------------------------ a problem */

/* Start a new problem and free the arrays of the old one. */
EXPORT(begin) void x_begin(int heads, int kv_heads, int len_q, int len_k, int dim_k, int dim_v, int dtype)
{
    while (n_made > 0)
        free(made[--n_made]);
    desc = rp_desc_init(1, heads, len_q, len_k, dim_k);
    desc.kv_heads = kv_heads;
    desc.dim_v = dim_v;
    desc.dtype = (rp_dtype)dtype;
    desc.terms = terms;
    desc.masks = masks;
    tensors = rp_tensors_init();
}

/* Set scale, softcap and offset of the problem. A scale of NaN means 1/sqrt(Dk). */
EXPORT(settings) void x_settings(double scale, double softcap, double q_offset)
{
    desc.scale = scale == scale ? scale : RP_SCALE_AUTO;
    desc.softcap = softcap;
    desc.q_offset = (int64_t)q_offset;
}

/* Add a term. Return its index. */
EXPORT(term) int x_term(const char *text)
{
    const int n = desc.n_terms;
    if (n == RP_MAX_TERMS)
        return refuse("more than %d terms: remove one", RP_MAX_TERMS);
    const int code = answer(rp_term_parse(text, &terms[n], names[n]));
    if (code == 0)
        desc.n_terms++;
    return code == 0 ? n : code;
}

/* Return 1 if a kind of term does not depend on the position of query 0. */
EXPORT(kind_ignores_offset) int x_kind_ignores_offset(int kind)
{
    return rpi_scheme_of((rp_term_kind)kind)->product[0].without_q_offset;
}

EXPORT(term_kind) int x_term_kind(int term)
{
    return (int)terms[term].kind;
}

/* Write to `to` the shape that a term's array has for this number of heads. Return its number of axes. */
EXPORT(term_shape) int x_term_shape(int term, int index, int heads, int32_t *to)
{
    rp_desc d = desc;
    int32_t ndim = 0;
    int64_t shape[RP_MAX_AXES];
    d.heads = d.kv_heads = heads;
    const int code = answer(rp_term_shape(&d, term, index, &ndim, shape));
    for (int x = 0; x < ndim; x++)
        to[x] = (int32_t)shape[x];
    return code < 0 ? code : ndim;
}

/* Add a mask that needs no array. `values` has one number per parameter. */
EXPORT(mask) int x_mask(int kind, const double *values)
{
    const rp_mask_info *info = rp_mask_info_of((rp_mask_kind)kind);
    const rp_mask_param *p;
    if (desc.n_masks == RP_MAX_MASKS)
        return refuse("more than %d masks: remove one", RP_MAX_MASKS);
    if (!info || info->axes)
        return refuse("mask %d does not exist, or needs an array", kind);
    rp_mask *const mask = &masks[desc.n_masks++];
    *mask = rp_mask_init((rp_mask_kind)kind);
    for (int x = 0; (p = rp_mask_param_of(mask->kind, x)); x++)
        rp_mask_set(mask, p, (int64_t)values[x]);
    return 0;
}

/* Set q, k, v, or array `index` of a term. The data must be contiguous, and stay valid while the problem is used. If q,
 * k or v has one head and the problem has more, all heads use this one. */
EXPORT(array) int x_array(int term, int index, int dtype, int ndim, const int32_t *sizes, void *data)
{
    int64_t shape[RP_MAX_AXES] = {0};
    if (ndim < 0 || ndim > RP_MAX_AXES || term < V || term >= desc.n_terms || index < 0 || index >= RP_MAX_ARRAYS)
        return refuse("array %d of term %d does not exist, or has more than %d axes", index, term, RP_MAX_AXES);
    for (int x = 0; x < ndim; x++)
        shape[x] = sizes[x];
    rp_array *const to = term == Q   ? &tensors.q
                         : term == K ? &tensors.k
                         : term == V ? &tensors.v
                                     : &tensors.term[term][index];
    *to = rp_array_of(data, (rp_dtype)dtype, ndim, shape);
    if (term < 0 && ndim == 4 && shape[1] == 1) {
        to->shape[1] = term == Q || !desc.kv_heads ? desc.heads : desc.kv_heads;
        to->stride[1] = 0;
    }
    return 0;
}

/* Set sizes that terms leave open. Fill missing arrays that terms require or name, with the same values as `relpos
 * bias`. Return 3 if the last filled array is random, 2 if it is a table of bucket numbers, 1 if it is a table of entry
 * numbers, 0 if no array was filled. */
EXPORT(fill) int x_fill(void)
{
    int shown = 0;
    for (int32_t n = 0; n < desc.n_terms; n++) {
        const int code = answer(rp_term_sizes(&terms[n], tensors.term[n]));
        if (code < 0)
            return code;
        rp_term_usual_sizes(&terms[n], desc.len_k);
    }
    for (int32_t n = 0; n < desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(terms[n].kind, x); x++) {
            const char *meaning = sample_meaning(&terms[n], x);
            if (tensors.term[n][x].data || (!sample_needed(&desc, n, x) && !*names[n][x]))
                continue;
            if (rp_term_is_array(terms[n].kind) && !*names[n][x])
                return refuse("%s: name its array (%s)", rp_term_name(terms[n].kind), rp_term_syntax(terms[n].kind));
            const rp_status status = sample_array(&desc, n, x, MAX_ELEMENTS, &tensors.term[n][x]);
            if (status == RP_E_NOMEM)
                return refuse("out of memory for the array of a term: choose smaller sizes");
            if (status != RP_OK)
                return answer(status);
            made[n_made++] = tensors.term[n][x].data;
            shown = meaning ? (strcmp(meaning, "bucket") == 0 ? 2 : 1) : 3;
        }
    return shown;
}

/* Return an array that fill allocated; write its number of axes, its shape and its type to `to`. Return NULL if fill
 * did not allocate it. */
EXPORT(filled) const void *x_filled(int term, int index, int32_t *to)
{
    const rp_array *a = &tensors.term[term][index];
    for (int n = 0; n < n_made; n++)
        if (made[n] == a->data) {
            *to = a->ndim;
            for (int x = 0; x < a->ndim; x++)
                to[x + 1] = (int32_t)a->shape[x];
            to[a->ndim + 1] = (int32_t)a->dtype;
            return a->data;
        }
    return NULL;
}

/* Create a plan for the problem, and pass it to a function. */
static int with_plan(int (*call)(rp_plan *plan, void *context), void *context)
{
    rp_plan *plan;
    int code = answer(rp_plan_create(&plan, &desc));
    if (code == 0) {
        code = call(plan, context);
        rp_plan_destroy(plan);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------ results */

static int call_bias(rp_plan *plan, void *to)
{
    const int64_t shape[3] = {desc.heads, desc.len_q, desc.len_k};
    const rp_array a = rp_array_of(to, RP_F64, 3, shape);
    return answer(rp_bias(plan, &tensors, 0, &a));
}

/* Write the biases [H, Lq, Lk]. */
EXPORT(bias) int x_bias(double *to)
{
    return with_plan(call_bias, to);
}

/* Rows for queries i ... i + n - 1 of head h; `what` is one of ROW_... */
typedef struct rows_call {
    int what, h, i, n;
    double *to;
} rows_call;

/* Return true if the bias depends only on the offset. It is then constant along each diagonal, and the library stores
 * it as a strip. */
static bool by_offset(const rpi_args *args)
{
    const uint64_t strip = rpi_strip_terms(args);
    for (int32_t n = 0; n < desc.n_terms; n++)
        if (rp_term_is_bias(terms[n].kind) && !(strip >> n & 1))
            return false;
    return true;
}

/* Compute the biases of query i. If a scheme has a row function, use it, as the kernels do; otherwise use the scheme's
 * definition. */
static void biases(rpi_rows *s, int h, int i, double *to)
{
    const int64_t len = desc.len_k;
    rpi_row *r = &s->row;
    rpi_row_at(r, 0, h, i);
    memset(to, 0, (size_t)len * sizeof *to);
    for (int32_t n = 0; n < desc.n_terms; n++) {
        const rpi_scheme *scheme = s->args.plan->scheme[n];
        const bool whole = len > 0 && scheme->row && !rpi_positions_given(scheme, s->args.term[n]);
        rpi_pair p = rpi_row_query(r, n);
        if (whole)
            scheme->row(&p, 0, len, s->raw);
        for (int64_t j = 0; j < len; j++)
            to[j] = rpi_bias_sum(to[j], whole ? s->raw[j] : rpi_row_bias(r, &p, j));
    }
}

/* Compute the rows of a bias that is constant along diagonals. Each row equals the row above, shifted right by one,
 * with one new number in front. One computed row provides the new numbers for len_k - 1 rows. */
static void diagonals(rpi_rows *s, const rows_call *c)
{
    const int len = (int)desc.len_k;
    int known = 0;
    biases(s, c->h, c->i, c->to);
    for (int n = 1; n < c->n; n++) {
        double *to = c->to + (size_t)n * len;
        if (n > known) {
            known = n + len - 1 < c->n ? n + len - 1 : c->n - 1;
            biases(s, c->h, c->i + known, c->to + (size_t)known * len);
        }
        const double first = c->to[(size_t)known * len + (known - n)];
        memmove(to + 1, to - len, (size_t)(len - 1) * sizeof *to);
        to[0] = first;
    }
}

/* Return true if the biases of a score can be added to the score without them: they depend only on the offset, there is
 * no softcap between or after, and no vectors, whose products need the term. */
static bool separable(const rpi_args *args, const rp_plan *plan)
{
    return desc.n_terms > 0 && desc.len_k > 0 && desc.softcap == 0 && desc.softcap_after == 0 && plan->vec < 0 &&
           by_offset(args);
}

/* Compute the bias of each offset that occurs in rows of a bias that is constant along diagonals, by the definition:
 * strip[n - 1 - r + j] is that of key j in row r of n. */
static void strip_of(rpi_rows *s, const rows_call *c, double *strip)
{
    rpi_row *row = &s->row;
    const int len = (int)desc.len_k;
    for (int r = 0; r < c->n; r = r < c->n - 1 && r + len >= c->n ? c->n - 1 : r + len) {
        rpi_pair pair[RP_MAX_TERMS];
        rpi_row_at(row, 0, c->h, c->i + r);
        for (int32_t n = 0; n < desc.n_terms; n++)
            pair[n] = rpi_row_query(row, n);
        for (int j = 0; j < len; j++) {
            double sum = 0;
            for (int32_t n = 0; n < desc.n_terms; n++)
                sum = rpi_bias_sum(sum, rpi_row_bias(row, &pair[n], j));
            strip[c->n - 1 - r + j] = sum;
        }
    }
}

/* Compute the n numbers of one row. bias: the biases [Lk] if the plan of the row has no terms, otherwise NULL. */
static void one_row(rpi_rows *s, const rows_call *c, int i, const double *bias, double *to, size_t n)
{
    rpi_row *r = &s->row;
    if (c->what == ROW_BIAS) {
        biases(s, c->h, i, to);
        return;
    }
    rpi_row_at(r, 0, c->h, i);
    rpi_row_scores(r);
    for (int64_t j = 0; bias && j < desc.len_k; j++) {
        if (bias[j] == -INFINITY)
            r->keep[j] = 0;
        r->score[j] = r->keep[j] ? r->score[j] + bias[j] : -INFINITY;
    }
    if (c->what != ROW_SCORES)
        rpi_row_softmax(r);
    if (c->what == ROW_OUT)
        rpi_row_mix(r);
    memcpy(to, c->what == ROW_SCORES ? r->score : c->what == ROW_OUT ? r->out : r->weight, n * sizeof *to);
    for (size_t j = 0; c->what == ROW_MASKED && j < n; j++)
        if (r->score[j] == -INFINITY)
            to[j] = -INFINITY;
}

/* Prepare to compute rows of the problem. If it has no q and k, use arrays of zeros with stride 0: a bias does not
 * depend on them. */
static int begin_rows(rpi_rows *rows, rp_plan *plan)
{
    static const double zero[1];
    const int64_t q[4] = {1, desc.heads, desc.len_q, 1}, k[4] = {1, desc.heads, desc.len_k, 1};
    rp_tensors t = tensors;
    if (!t.q.data && !t.k.data) {
        t.q = rp_array_of(zero, RP_F64, 4, q);
        t.k = rp_array_of(zero, RP_F64, 4, k);
        for (int x = 0; x < 3; x++)
            t.q.stride[x] = t.k.stride[x] = 0;
    }
    return answer(rpi_rows_begin(rows, plan, &t));
}

static bool within(int h, int i, int n)
{
    return h >= 0 && h < desc.heads && i >= 0 && n >= 0 && n <= desc.len_q - i;
}

static int call_rows(rp_plan *plan, void *context)
{
    const rows_call *c = context;
    rpi_rows rows;
    if (c->what < ROW_BIAS || c->what > ROW_MASKED)
        return refuse("row %d does not exist", c->what);
    if (!within(c->h, c->i, c->n))
        return refuse("head %d or its queries do not exist", c->h);
    if (c->what == ROW_OUT && !tensors.v.data)
        return refuse("the output needs v: set it first");
    const int code = begin_rows(&rows, plan);
    if (code < 0)
        return code;
    const size_t each = (size_t)(c->what == ROW_OUT ? rows.args.desc.dim_v : desc.len_k);
    if (c->what == ROW_BIAS && c->n > 0 && by_offset(&rows.args))
        diagonals(&rows, c);
    else {
        rp_plan bare = *plan; /* without terms, scores have no biases */
        double *strip = c->what != ROW_BIAS && c->n > 1 && separable(&rows.args, plan)
                            ? malloc((size_t)(desc.len_k + c->n - 1) * sizeof *strip)
                            : NULL;
        if (strip) {
            strip_of(&rows, c, strip);
            bare.desc.n_terms = 0;
            rows.row.plan = &bare;
        }
        for (int n = 0; n < c->n; n++)
            one_row(&rows, c, c->i + n, strip ? strip + (c->n - 1 - n) : NULL, c->to + (size_t)n * each, each);
        rows.row.plan = plan;
        free(strip);
    }
    rpi_rows_end(&rows);
    return 0;
}

/* Write rows [n, Lk], or [n, Dv] for the output. ROW_MASKED are the weights, and -infinity for masked pairs. If only
 * biases are computed, the problem may have width 1 in f64 and no q and k. */
EXPORT(rows) int x_rows(int what, int h, int i, int n, double *to)
{
    return with_plan(call_rows, &(rows_call){what, h, i, n, to});
}

typedef struct expression_call {
    int term, h, i, j;
    char text[256];
} expression_call;

static int call_expression(rp_plan *plan, void *context)
{
    expression_call *c = context;
    rpi_rows rows;
    if (c->term < 0 || c->term >= desc.n_terms || !within(c->h, c->i, 1) || c->j < 0 || c->j >= desc.len_k)
        return refuse("term %d or the pair does not exist", c->term);
    const int code = begin_rows(&rows, plan);
    if (code == 0) {
        rpi_rows_example(&rows, c->term, c->h, c->i, c->j, c->text, sizeof c->text);
        rpi_rows_end(&rows);
    }
    return code;
}

/* Return how a term's bias for a pair is computed, as text such as "-0.3 * log(1 + 4)". Return NULL after an error. */
EXPORT(expression) const char *x_expression(int term, int h, int i, int j)
{
    static expression_call call;
    call = (expression_call){.term = term, .h = h, .i = i, .j = j};
    return with_plan(call_expression, &call) == 0 ? call.text : NULL;
}

typedef struct row_call {
    int h, i;
    double *to;
} row_call;

static int call_row(rp_plan *plan, void *context)
{
    const row_call *c = context;
    const int64_t n = desc.len_k;
    rp_row row = {
        .raw = c->to, .scaled = c->to + n, .bias = c->to + 2 * n, .score = c->to + 3 * n, .weights = c->to + 4 * n};
    row.out = tensors.v.data ? c->to + 5 * n + 1 : NULL;
    const int code = answer(rp_attend_row(plan, &tensors, 0, c->h, c->i, &row));
    c->to[5 * n] = row.lse;
    return code;
}

static rp_part parts[RP_MAX_PARTS];

static int call_parts(rp_plan *plan, void *context)
{
    const row_call *c = context;
    int32_t n;
    for (int x = 0; x < RP_MAX_PARTS; x++)
        parts[x].value = NULL;
    int code = answer(rp_attend_parts(plan, &tensors, 0, c->h, c->i, parts, &n));
    if (code < 0)
        return code;
    for (int x = 0; x < n && parts[x].kind <= RP_PART_MASK; x++)
        parts[x].value = c->to + x * desc.len_k;
    code = answer(rp_attend_parts(plan, &tensors, 0, c->h, c->i, parts, &n));
    while (n > 0 && parts[n - 1].kind > RP_PART_MASK)
        n--;
    return code < 0 ? code : n;
}

/* Write the n summands of a query's scores [n, Lk] to `to`, which has space for max_parts() summands. Return n. */
EXPORT(parts) int x_parts(int h, int i, double *to)
{
    return with_plan(call_parts, &(row_call){h, i, to});
}

EXPORT(max_parts) int x_max_parts(void)
{
    return RP_MAX_PARTS;
}

/* After a call of parts: return the kind, name or formula of part n. */
EXPORT(part_kind) int x_part_kind(int n)
{
    return (int)parts[n].kind;
}

EXPORT(part_name) const char *x_part_name(int n)
{
    return parts[n].name;
}

EXPORT(part_formula) const char *x_part_formula(int n)
{
    return parts[n].formula;
}

/* Write for one query: raw, scaled, bias, score and weights [5, Lk], lse, and out [Dv]. */
EXPORT(row) int x_row(int h, int i, double *to)
{
    return with_plan(call_row, &(row_call){h, i, to});
}

typedef struct attend_call {
    int what;
    void *to;
} attend_call;

static int call_attend(rp_plan *plan, void *context)
{
    const attend_call *c = context;
    const int64_t Lq = desc.len_q, Lk = desc.len_k, H = desc.heads;
    const int64_t shape[5][4] = {
        {1, H, Lq, desc.dim_v ? desc.dim_v : desc.dim_k}, {1, H, Lq}, {1, H, Lq, Lk}, {1, H, Lq + Lk - 1}, {1, H, Lk}};
    static const int32_t ndim[5] = {4, 3, 4, 3, 3};
    rp_tensors t = tensors;
    rp_array *const of[5] = {&t.out, &t.lse, &t.weights, &t.profile, &t.key_mass};
    if (c->what < OUT || c->what > MASS)
        return refuse("output %d does not exist", c->what);
    *of[c->what] = rp_array_of(c->to,
                               c->what == OUT         ? desc.dtype
                               : desc.dtype == RP_F64 ? RP_F64
                                                      : RP_F32,
                               ndim[c->what], shape[c->what]);
    return answer(rp_attend(plan, &t, NULL));
}

/* Write one output of rp_attend. `out` has the type of the problem, other outputs f64 or f32. */
EXPORT(attend) int x_attend(int what, void *to)
{
    return with_plan(call_attend, &(attend_call){what, to});
}

static int call_work(rp_plan *plan, void *bytes)
{
    const size_t n = rp_plan_work_size(plan, NULL);
    *(double *)bytes = (double)n;
    return n ? 0 : answer(RP_E_OVERFLOW);
}

/* Return the size of the scratch memory of an attend call in bytes, or -1 after an error. */
EXPORT(work_size) double x_work_size(void)
{
    double bytes;
    return with_plan(call_work, &bytes) == 0 ? bytes : -1;
}

EXPORT(bucket) double x_bucket(double delta, double buckets, double max_distance, int bidirectional, int strategy)
{
    const int64_t b =
        rp_bucket((int64_t)delta, (int64_t)buckets, (int64_t)max_distance, bidirectional, (rp_strategy)strategy);
    return b < 0 ? answer(RP_E_RANGE) : (double)b;
}

/* Return how many distances, counted from 0, have a bucket that no other distance shares. */
EXPORT(bucket_exact) double x_bucket_exact(double buckets, int bidirectional, int strategy)
{
    return (double)rpi_bucket_exact((int64_t)buckets, bidirectional, (rp_strategy)strategy);
}

/* Write the frequencies [dim/2] of a rope term, then the factor of its cosines and sines. */
EXPORT(frequencies) int x_frequencies(const char *text, double longest, double *to)
{
    static char given[RP_MAX_ARRAYS][RP_NAME_MAX];
    rp_term t;
    const int code = answer(rp_term_parse(text, &t, given));
    return code < 0 ? code : answer(rp_rope_frequencies(&t, longest, NULL, NULL, to, to + t.dim / 2));
}

/* Move the object of `relpos shift` by some patches. For each kind of positions, write the largest change of a score,
 * the number of pairs that attend in only one place, and the scores [object^2, object^2] before and after. */
EXPORT(shift) int x_shift(int grid, int object, int window, int seed, int by, double *to)
{
    const int64_t n = (int64_t)object * object * object * object;
    shift_image image;
    rp_status status = shift_begin(&image, grid, object, window, (uint64_t)seed) ? RP_OK : RP_E_NOMEM;
    for (int kind = 0; kind < SHIFT_KINDS && status == RP_OK; kind++, to += 2 * n + 2) {
        status = shift_scores(&image, (shift_kind)kind, 0, to + 2);
        if (status == RP_OK)
            status = shift_scores(&image, (shift_kind)kind, by, to + 2 + n);
        if (status == RP_OK) {
            const shift_change change = shift_compare(n, to + 2, to + 2 + n);
            to[0] = change.largest, to[1] = (double)change.pairs;
        }
    }
    shift_end(&image);
    return status == RP_OK ? 0 : refuse("out of memory for the object: close other tabs");
}

/* Convert n elements of any floating type to doubles. */
EXPORT(doubles) int x_doubles(double *to, const void *from, int dtype, int n)
{
    return answer(rp_convert(to, RP_F64, from, (rp_dtype)dtype, n));
}
