/* checks.c -- the checks of `relpos verify`: compare the fast paths with the reference, and test laws.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/verify/verify.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Return the library's last error as a static string, valid until the next call. */
static const char *refused(const rp_desc *d)
{
    static char message[512];
    return problem_words(d, message);
}

/* Run one call with `threads` threads: a forward pass, with g a backward pass, with x tangents, with both second
 * derivatives. Return NULL, or an error message. */
static const char *call_along(const rp_desc *d, const rp_tensors *t, const rp_grads *g, const rp_tangents *x,
                              int32_t threads)
{
    rp_plan *plan = NULL;
    rp_tensors with = *t;
    rp_status status = rp_plan_create(&plan, d);
    if (status == RP_OK)
        status = rp_pool_create(&with.pool, threads);
    if (status == RP_OK) {
        status = x && g ? rp_hvp(plan, &with, x, g)
                 : x    ? rp_jvp(plan, &with, x)
                 : g    ? rp_backward(plan, &with, g, NULL)
                        : rp_attend(plan, &with, NULL);
        rp_pool_destroy(with.pool);
    }
    rp_plan_destroy(plan);
    return status == RP_OK ? NULL : refused(d);
}

static const char *call(const rp_desc *d, const rp_tensors *t, const rp_grads *g, int32_t threads)
{
    return call_along(d, t, g, NULL, threads);
}

const char *verify_attend(const trial *t, int32_t threads, void *out, int64_t pairs[2])
{
    rp_tensors with = t->p.t;
    with.out.data = out;
    with.pairs = pairs;
    return call(&t->p.desc, &with, NULL, threads);
}

/* Return the unit roundoff of a type: half the distance from 1 to the next number. */
static double unit_of(rp_dtype type)
{
    return type == RP_F64 ? 0x1p-53 : type == RP_F32 ? 0x1p-24 : type == RP_F16 ? 0x1p-11 : 0x1p-8;
}

/* Return half of the smallest positive number of a type: the bound of the rounding error near zero. */
static double half_min_of(rp_dtype type)
{
    return type == RP_F64 ? 0x1p-1074 : type == RP_F32 ? 0x1p-150 : type == RP_F16 ? 0x1p-25 : 0x1p-134;
}

/* Copy an array to another floating type. Return false if out of memory. */
static bool copy_as(problem *p, rp_array *to, rp_dtype type, const rp_array *from)
{
    const int64_t n = problem_size(from);
    void *data = problem_alloc(p, (size_t)n * rp_dtype_size(type));
    *to = rp_array_of(data, type, from->ndim, from->shape);
    if (data)
        rp_convert(data, type, from->data, from->dtype, n);
    return data != NULL;
}

/* ------------------------------------------------------------------------------------------------- checks */

/* Return the largest finite number of a type. */
static double largest_of(rp_dtype type)
{
    return type == RP_F64 ? DBL_MAX : type == RP_F32 ? FLT_MAX : type == RP_F16 ? 65504 : 0x1.fep127;
}

/* The element with the largest |found - want| / bound. */
typedef struct worst {
    double ratio, error, bound;
    const char *where; /* name of the array; NULL: out */
} worst;

/* Compare an array with the reference, element by element, and update *w. NaN must occur exactly where the reference
 * has NaN, and may occur where the bound is infinite, because f32 sums may overflow there. With `stored`, `bound` does
 * not yet include the rounding to the type of `found`. */
static void compare(worst *w, const char *where, const rp_array *found, const double *want, const double *bound,
                    bool stored)
{
    const int64_t size = (int64_t)rp_dtype_size(found->dtype);
    for (int64_t x = 0; x < problem_size(found); x++) {
        double y;
        rp_convert(&y, RP_F64, (const char *)found->data + x * size, found->dtype, 1);
        const double rounding =
            stored ? unit_of(found->dtype) * (fabs(want[x]) + bound[x]) + half_min_of(found->dtype) : 0;
        const double error = fabs(y - want[x]), max_error = bound[x] + rounding;
        const bool beyond = (isinf(y) && fabs(want[x]) + max_error > largest_of(found->dtype)) ||
                            (isnan(y) && isinf(max_error) && found->dtype != RP_F64);
        const double ratio = (isnan(y) && isnan(want[x])) || y == want[x] || beyond ? 0 : error / max_error;
        if (!(ratio <= w->ratio))
            *w = (worst){isnan(ratio) ? INFINITY : ratio, error, max_error, where};
    }
}

/* Describe the largest error in `line`. Return NULL if it is within its bound, otherwise `line`. */
static const char *judge(const worst *w, trial *t, char line[256])
{
    t->worst = fmax(t->worst, w->ratio);
    snprintf(line, 256, "%s%serror %.3g, bound %.3g, ratio %.3g", w->where ? w->where : "", w->where ? ": " : "",
             w->error, w->bound, w->ratio);
    return w->ratio <= 1 ? NULL : line;
}

/* Check |fast - reference| <= bound for each element of the output. */
static const char *check_oracle(trial *t, char line[256])
{
    problem *p = &t->p;
    rp_plan *plan = NULL;
    rp_array bound = t->out;
    worst w = {0};
    bound.data = problem_alloc(p, (size_t)t->n * sizeof(double));
    const char *wrong = bound.data ? NULL : "out of memory";
    if (!wrong && (rp_plan_create(&plan, &p->desc) != RP_OK || rp_error_bound(plan, &p->t, &bound) != RP_OK))
        wrong = refused(&p->desc);
    rp_plan_destroy(plan);
    if (wrong)
        return wrong;
    compare(&w, NULL, &p->t.out, t->out.data, bound.data, false);
    return judge(&w, t, line);
}

/* Return the index of the first element whose bits differ, or -1 if all are equal. */
static int64_t first_difference(const rp_array *want, const void *found)
{
    const size_t size = rp_dtype_size(want->dtype);
    for (int64_t x = 0; x < problem_size(want); x++)
        if (memcmp((const char *)want->data + (size_t)x * size, (const char *)found + (size_t)x * size, size) != 0)
            return x;
    return -1;
}

/* Another way to run a call; its result must have the same bits as the first call. */
typedef struct variant {
    const char *name;    /* for messages, such as "3 threads" */
    const char *against; /* what the first call used instead, such as "1" */
    int32_t threads;
    const char *skip; /* value for RELPOS_SKIP; NULL: leave unchanged */
} variant;
static const variant with_threads = {"3 threads", "1", 3, NULL};
static const variant without_skipping = {"without skipping", "with skipping", 1, "0"};

#ifdef _WIN32
#define setenv(name, value, replace) _putenv_s(name, value)
#endif

/* With `begin`, set RELPOS_SKIP for the variant; otherwise restore it. Plans read it when they are created. */
static void set_skipping(const variant *v, bool begin)
{
    static char before[8];
    const char *now = getenv("RELPOS_SKIP");
    if (v->skip == NULL)
        return;
    if (begin) {
        snprintf(before, sizeof before, "%s", now ? now : "1");
        setenv("RELPOS_SKIP", v->skip, 1);
    } else {
        setenv("RELPOS_SKIP", before, 1);
    }
}

/* Check that the output of a variant has the same bits. */
static const char *check_again(trial *t, const variant *v, char line[256])
{
    void *again = problem_alloc(&t->p, (size_t)t->n * rp_dtype_size(t->p.desc.dtype));
    set_skipping(v, true);
    const char *wrong = again ? verify_attend(t, v->threads, again, NULL) : "out of memory";
    set_skipping(v, false);
    const int64_t x = wrong ? -1 : first_difference(&t->p.t.out, again);
    if (x >= 0)
        snprintf(line, 256, "%s against %s: element %lld differs", v->name, v->against, (long long)x);
    return wrong ? wrong : x >= 0 ? line : NULL;
}

static const char *check_threads(trial *t, char line[256])
{
    return check_again(t, &with_threads, line);
}

static const char *check_skipping(trial *t, char line[256])
{
    t->both = true;
    return check_again(t, &without_skipping, line);
}

/* Replace *a, which must be contiguous, by a copy with GAP elements of padding before each row and after the last. All
 * bits of the padding are set, which is NaN in every floating type. If *a has no data, set all bits of the rows too.
 * Return the memory and its size, or NULL if out of memory. */
enum { GAP = 3, ONES = 0xff };
static unsigned char *spread(problem *p, rp_array *a, size_t *bytes)
{
    const size_t size = rp_dtype_size(a->dtype), row = (size_t)a->shape[a->ndim - 1], stride = row + GAP;
    const int64_t rows = row ? problem_size(a) / (int64_t)row : 0;
    *bytes = (GAP + (size_t)rows * stride) * size;
    unsigned char *at = problem_alloc(p, *bytes);
    if (!at)
        return NULL;
    memset(at, ONES, *bytes);
    for (int64_t x = 0; a->data && x < rows; x++)
        memcpy(at + (GAP + (size_t)x * stride) * size, (char *)a->data + (size_t)x * row * size, row * size);
    a->data = at + GAP * size;
    for (int32_t x = a->ndim - 2, below = 1; x >= 0; x--) {
        a->stride[x] = below == 1 ? (int64_t)stride : a->stride[x + 1] * a->shape[x + 1];
        below = 0;
    }
    return at;
}

/* Run a call with padding between the rows of its arrays and with scratch memory provided by the caller. Check that the
 * bits are the same, that nothing outside the arrays is written, and that the inputs do not change. */
static const char *check_arrays(trial *t, char line[256])
{
    enum { EDGE = 64 };
    problem *p = &t->p;
    const rp_desc *d = &p->desc;
    rp_tensors with = p->t;
    rp_array *const arrays[4] = {&with.q, &with.k, &with.v, &with.out};
    static const char *const names[4] = {"q", "k", "v", "out"};
    unsigned char *from[4], *kept[4];
    size_t bytes[4] = {0};
    rp_plan *plan = NULL;
    with.lse.data = with.out.data = NULL;
    for (int x = 0; x < 4; x++) {
        from[x] = spread(p, arrays[x], &bytes[x]);
        kept[x] = from[x] && x < 3 ? problem_alloc(p, bytes[x]) : from[x];
        if (!kept[x])
            return "out of memory";
        if (x < 3)
            memcpy(kept[x], from[x], bytes[x]);
    }
    if (rp_plan_create(&plan, d) != RP_OK)
        return refused(d);
    const size_t size = rp_plan_work_size(plan, NULL);
    unsigned char *work = problem_alloc(p, size + EDGE);
    if (work)
        memset(work + size, ONES, EDGE);
    const rp_status status = work ? rp_attend(plan, &with, work) : RP_OK;
    rp_plan_destroy(plan);
    if (!work)
        return "out of memory";
    if (status != RP_OK)
        return refused(d);
    for (size_t x = 0; x < EDGE; x++)
        if (work[size + x] != ONES) {
            snprintf(line, 256, "arrays: byte %zu beyond the scratch memory was written", x);
            return line;
        }
    /* what the memory of out must contain: the first result, with the same padding */
    rp_array want = p->t.out;
    size_t n;
    kept[3] = spread(p, &want, &n);
    for (int x = 0; x < 4; x++)
        if (!kept[x] || memcmp(kept[x], from[x], bytes[x]) != 0) {
            snprintf(line, 256,
                     x < 3 ? "arrays: the input %s was changed"
                           : "arrays: with padding between its rows, %s differs, or the padding was overwritten",
                     names[x]);
            return kept[x] ? line : "out of memory";
        }
    return NULL;
}

/* Cut an array to a shorter problem. On each axis whose length changes from `whole` to `tail`, keep the last `tail`
 * entries. */
static void cut_rows(rp_array *a, const int64_t *before, const int64_t *after, int64_t whole, int64_t tail)
{
    for (int32_t x = 0; a->data && x < a->ndim; x++)
        if (before[x] == whole && after[x] == tail) {
            a->data = (char *)a->data + (whole - tail) * a->stride[x] * (int64_t)rp_dtype_size(a->dtype);
            a->shape[x] = tail;
        }
}

/* Return true if an array of a term has an axis whose length depends on both sequences: Lq+Lk-1, or L where Lq = Lk. */
static bool has_joint_axis(rp_term_kind kind, int index)
{
    const char *shape = rp_term_array_about(kind, index)->shape;
    for (const char *c = shape; (c = strchr(c, 'L')); c++)
        if (c[1] != 'q' && c[1] != 'k')
            return true;
    return strstr(shape, "Lq+Lk");
}

/* Check that decoding equals prefill: computing only the last queries in a call gives the same bits for them. */
static const char *check_decode(trial *t, char line[256])
{
    const rp_desc *whole = &t->p.desc;
    rp_desc d = *whole;
    rp_tensors part = t->p.t;
    const int64_t tail = d.len_q < 2 ? 0 : 1 + d.len_q / 3, first = d.len_q - tail;
    const int64_t row = t->p.t.out.shape[3] * (int64_t)rp_dtype_size(d.dtype);
    d.len_q = tail;
    d.q_offset += first;
    /* The law does not hold for dropout, which depends on the index of the query, or for arrays with a joint axis. It
     * cannot be tested for grids and for masks such as segments, which need as many queries as keys. */
    if (tail == 0 || d.dropout > 0 || part.q_offset.data)
        return NULL;
    for (int32_t n = 0; n < d.n_masks; n++)
        if (rp_mask_info_of(d.masks[n].kind)->same_lengths)
            return NULL;
    for (int32_t n = 0; n < d.n_terms; n++)
        for (int x = 0; rp_term_array(d.terms[n].kind, x); x++)
            if (d.terms[n].grid_h > 0 || (part.term[n][x].data && has_joint_axis(d.terms[n].kind, x)))
                return NULL;
    int32_t ndim;
    int64_t before[RP_MAX_AXES], after[RP_MAX_AXES];
    for (int32_t n = 0; n < d.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (rp_term_shape(whole, n, x, &ndim, before) == RP_OK && rp_term_shape(&d, n, x, &ndim, after) == RP_OK)
                cut_rows(&part.term[n][x], before, after, whole->len_q, tail);
    for (int32_t n = 0; n < d.n_masks; n++)
        if (rp_mask_shape(whole, n, &ndim, before) == RP_OK && rp_mask_shape(&d, n, &ndim, after) == RP_OK)
            cut_rows(&part.mask[n], before, after, whole->len_q, tail);
    cut_rows(&part.q, part.q.shape, (int64_t[4]){d.batch, d.heads, tail, d.dim_k}, whole->len_q, tail);
    part.out = rp_array_of(problem_alloc(&t->p, (size_t)(d.batch * d.heads * tail * row)), d.dtype, 4,
                           (int64_t[4]){d.batch, d.heads, tail, t->p.t.out.shape[3]});
    part.lse.data = NULL;
    const char *wrong = part.out.data ? call(&d, &part, NULL, 1) : "out of memory";
    for (int64_t x = 0; !wrong && x < d.batch * d.heads * tail; x++) {
        const int64_t at = x / tail * whole->len_q + first + x % tail;
        if (memcmp((char *)part.out.data + x * row, (char *)t->p.t.out.data + at * row, (size_t)row) != 0) {
            snprintf(line, 256, "decode against prefill: query %lld of batch entry %lld, head %lld differs",
                     (long long)(first + x % tail), (long long)(x / tail / d.heads), (long long)(x / tail % d.heads));
            wrong = line;
        }
    }
    return wrong;
}

/* Check that weights sum to one: if all values are 1, every output is 1, or 0 if all keys are masked. */
static const char *check_rows(trial *t, char line[256])
{
    const rp_desc *d = &t->p.desc;
    const double one = 1;
    /* Numerator and denominator add the same weights in different orders, each with its rounding errors. */
    const double tolerance =
        2 * unit_of(d->dtype == RP_F64 ? RP_F64 : RP_F32) * (300 + (double)d->len_k / 64) + unit_of(d->dtype);
    rp_tensors with = t->p.t;
    const char *wrong = NULL;
    for (int32_t n = 0; n < d->n_terms; n++)
        if (rp_term_role(d->terms[n].kind) == RP_ROLE_VALUE || rp_term_role(d->terms[n].kind) == RP_ROLE_SINK)
            return NULL; /* some terms add vectors to the values, and a sink takes part of the weight */
    if (d->dropout > 0)
        return NULL;
    if (!copy_as(&t->p, &with.v, d->dtype, &t->p.t.v) || !copy_as(&t->p, &with.out, d->dtype, &t->p.t.out))
        return "out of memory";
    for (int64_t x = 0; x < problem_size(&with.v); x++)
        rp_convert((char *)with.v.data + (size_t)x * rp_dtype_size(d->dtype), d->dtype, &one, RP_F64, 1);
    wrong = call(d, &with, NULL, 1);
    for (int64_t x = 0; !wrong && x < t->n; x++) {
        double y;
        rp_convert(&y, RP_F64, (char *)with.out.data + (size_t)x * rp_dtype_size(d->dtype), d->dtype, 1);
        if (y != 0 && !(fabs(y - 1) <= tolerance)) {
            snprintf(line, 256, "rows sum to one: %.9g, tolerance %.3g", y, tolerance);
            wrong = line;
        }
    }
    return wrong;
}

/* Max number of gradients: dq, dk, dv, one for each array of a term, and those of the softcaps. */
enum { SOFTCAPS = 3 + RP_MAX_TERMS * RP_MAX_ARRAYS, GRADIENTS = SOFTCAPS + 2 };

static rp_array *gradient(rp_grads *g, int n)
{
    rp_array *const first[3] = {&g->dq, &g->dk, &g->dv};
    if (n >= SOFTCAPS)
        return n == SOFTCAPS ? &g->dsoftcap : &g->dsoftcap_after;
    return n < 3 ? first[n] : &g->term[(n - 3) / RP_MAX_ARRAYS][(n - 3) % RP_MAX_ARRAYS];
}

static const char *gradient_name(const rp_desc *d, int n)
{
    static const char *const first[3] = {"dq", "dk", "dv"};
    if (n >= SOFTCAPS)
        return n == SOFTCAPS ? "softcap" : "softcap_after";
    return n < 3 ? first[n] : rp_term_array(d->terms[(n - 3) / RP_MAX_ARRAYS].kind, (n - 3) % RP_MAX_ARRAYS);
}

/* Allocate gradients with the same shapes in another type. Return false if out of memory. */
static bool gradients_like(trial *t, rp_grads *to, rp_dtype type)
{
    bool good = true;
    *to = t->p.g;
    for (int n = 0; n < GRADIENTS; n++) {
        rp_array *a = gradient(to, n);
        if (!a->data)
            continue;
        *a = rp_array_of(problem_alloc(&t->p, (size_t)problem_size(a) * rp_dtype_size(type)), type, a->ndim, a->shape);
        good = good && a->data;
    }
    return good;
}

/* Check every gradient against the reference, in one call without out and lse and in one with them. */
static const char *check_gradients(trial *t, char line[256])
{
    problem *p = &t->p;
    rp_grads bound;
    rp_plan *plan = NULL;
    rp_tensors without = p->t, saved = p->t;
    worst w = {0};
    without.out = without.lse = (rp_array){0};
    const char *wrong = gradients_like(t, &bound, RP_F64) ? NULL : "out of memory";
    if (!wrong && (rp_plan_create(&plan, &p->desc) != RP_OK || rp_gradient_bound(plan, &without, &bound) != RP_OK))
        wrong = refused(&p->desc);
    rp_plan_destroy(plan);
    for (int given = 0; given < 2; given++) {
        if (!wrong)
            wrong = call(&p->desc, given ? &saved : &without, &p->g, 1);
        for (int n = 0; !wrong && n < GRADIENTS; n++) {
            const rp_array *found = gradient(&p->g, n);
            if (found->data)
                compare(&w, gradient_name(&p->desc, n), found, gradient(&t->gradients, n)->data,
                        gradient(&bound, n)->data, true);
        }
    }
    return wrong ? wrong : judge(&w, t, line);
}

/* Check that the gradients of a variant have the same bits. */
static const char *check_gradients_again(trial *t, const variant *v, char line[256])
{
    rp_grads again;
    const char *wrong = gradients_like(t, &again, t->p.desc.dtype) ? NULL : "out of memory";
    set_skipping(v, true);
    if (!wrong)
        wrong = call(&t->p.desc, &t->p.t, &again, v->threads);
    set_skipping(v, false);
    for (int n = 0; !wrong && n < GRADIENTS; n++) {
        const rp_array *first = gradient(&t->p.g, n);
        const int64_t x = first->data ? first_difference(first, gradient(&again, n)->data) : -1;
        if (x >= 0) {
            snprintf(line, 256, "%s against %s: element %lld of the gradient %s differs", v->name, v->against,
                     (long long)x, gradient_name(&t->p.desc, n));
            wrong = line;
        }
    }
    return wrong;
}

static const char *check_gradient_threads(trial *t, char line[256])
{
    return check_gradients_again(t, &with_threads, line);
}

static const char *check_gradient_skipping(trial *t, char line[256])
{
    t->both = true;
    return check_gradients_again(t, &without_skipping, line);
}

/* Allocate tangents of out and lse in another type. Return false if out of memory. */
static bool tangents_like(trial *t, rp_tangents *to, rp_dtype type)
{
    rp_array *const out[2] = {&to->out, &to->lse};
    bool good = true;
    *to = t->p.x;
    for (int n = 0; n < 2; n++) {
        rp_array *a = out[n];
        *a = rp_array_of(problem_alloc(&t->p, (size_t)problem_size(a) * rp_dtype_size(type)), type, a->ndim, a->shape);
        good = good && a->data;
    }
    return good;
}

/* Return the tensors of a problem without outputs. */
static rp_tensors without_outputs(const problem *p)
{
    rp_tensors t = p->t;
    t.out = t.lse = (rp_array){0};
    return t;
}

/* Check the tangents of out and lse against the reference. */
static const char *check_tangents(trial *t, char line[256])
{
    problem *p = &t->p;
    rp_tangents bound;
    rp_plan *plan = NULL;
    const rp_tensors without = without_outputs(p);
    worst w = {0};
    const char *wrong = tangents_like(t, &bound, RP_F64) ? NULL : "out of memory";
    if (!wrong && (rp_plan_create(&plan, &p->desc) != RP_OK || rp_tangent_bound(plan, &without, &bound) != RP_OK))
        wrong = refused(&p->desc);
    rp_plan_destroy(plan);
    if (!wrong)
        wrong = call_along(&p->desc, &without, NULL, &p->x, 1);
    if (wrong)
        return wrong;
    compare(&w, "tangent of out", &p->x.out, t->tangents.out.data, bound.out.data, false);
    compare(&w, "tangent of lse", &p->x.lse, t->tangents.lse.data, bound.lse.data, false);
    return judge(&w, t, line);
}

/* Check that another number of threads gives tangents with the same bits. */
static const char *check_tangent_threads(trial *t, char line[256])
{
    rp_tangents again;
    const rp_tensors without = without_outputs(&t->p);
    const char *wrong = tangents_like(t, &again, t->p.desc.dtype) ? NULL : "out of memory";
    again.lse.dtype = t->p.x.lse.dtype;
    if (!wrong && again.lse.dtype != t->p.desc.dtype)
        again.lse.data = problem_alloc(&t->p, (size_t)problem_size(&again.lse) * sizeof(double));
    if (!wrong && !again.lse.data)
        wrong = "out of memory";
    if (!wrong)
        wrong = call_along(&t->p.desc, &without, NULL, &again, with_threads.threads);
    for (int n = 0; !wrong && n < 2; n++) {
        const rp_array *first = n ? &t->p.x.lse : &t->p.x.out;
        const int64_t x = first_difference(first, n ? again.lse.data : again.out.data);
        if (x >= 0) {
            snprintf(line, 256, "%s against %s: element %lld of the tangent of %s differs", with_threads.name,
                     with_threads.against, (long long)x, n ? "lse" : "out");
            wrong = line;
        }
    }
    return wrong;
}

/* Check every second derivative against the reference. */
static const char *check_second_derivatives(trial *t, char line[256])
{
    problem *p = &t->p;
    const rp_tensors without = without_outputs(p);
    rp_grads bound;
    rp_plan *plan = NULL;
    worst w = {0};
    const char *wrong = gradients_like(t, &bound, RP_F64) ? NULL : "out of memory";
    if (!wrong && (rp_plan_create(&plan, &p->desc) != RP_OK || rp_hvp_bound(plan, &without, &p->x, &bound) != RP_OK))
        wrong = refused(&p->desc);
    rp_plan_destroy(plan);
    if (!wrong)
        wrong = call_along(&p->desc, &without, &p->g, &p->x, 1);
    for (int n = 0; !wrong && n < GRADIENTS; n++) {
        const rp_array *found = gradient(&p->g, n);
        if (found->data)
            compare(&w, gradient_name(&p->desc, n), found, gradient(&t->gradients, n)->data, gradient(&bound, n)->data,
                    true);
    }
    return wrong ? wrong : judge(&w, t, line);
}

const verify_check verify_checks[] = {{"oracle", check_oracle, PROBLEM_FORWARD},
                                      {"threads", check_threads, PROBLEM_FORWARD},
                                      {"skipping", check_skipping, PROBLEM_FORWARD},
                                      {"arrays", check_arrays, PROBLEM_FORWARD},
                                      {"decode", check_decode, PROBLEM_FORWARD},
                                      {"rows", check_rows, PROBLEM_FORWARD},
                                      {"gradients", check_gradients, PROBLEM_BACKWARD},
                                      {"gradient threads", check_gradient_threads, PROBLEM_BACKWARD},
                                      {"gradient skipping", check_gradient_skipping, PROBLEM_BACKWARD},
                                      {"tangents", check_tangents, PROBLEM_TANGENTS},
                                      {"tangent threads", check_tangent_threads, PROBLEM_TANGENTS},
                                      {"second derivatives", check_second_derivatives, PROBLEM_SECOND},
                                      {0}};

const char *verify_reference(trial *t)
{
    problem *p = &t->p;
    const char *wrong = NULL;
    t->exact = p->desc;
    t->exact.dtype = RP_F64;
    t->exact.isa = "reference";
    t->inputs = p->t;
    t->inputs.out = t->inputs.lse = (rp_array){0};
    if (!copy_as(p, &t->inputs.q, RP_F64, &p->t.q) || !copy_as(p, &t->inputs.k, RP_F64, &p->t.k) ||
        !copy_as(p, &t->inputs.v, RP_F64, &p->t.v))
        return "out of memory";
    if (p->pass & PROBLEM_FORWARD) {
        rp_tensors with = t->inputs;
        t->out = rp_array_of(problem_alloc(p, (size_t)t->n * sizeof(double)), RP_F64, 4, p->t.out.shape);
        with.out = t->out;
        wrong = t->out.data ? call(&t->exact, &with, NULL, 1) : "out of memory";
    }
    const bool tangents = p->pass & (PROBLEM_TANGENTS | PROBLEM_SECOND),
               gradients = p->pass & (PROBLEM_BACKWARD | PROBLEM_SECOND);
    if (!wrong && ((gradients && !(gradients_like(t, &t->gradients, RP_F64) &&
                                   copy_as(p, &t->gradients.dout, RP_F64, &p->g.dout))) ||
                   (tangents && !tangents_like(t, &t->tangents, RP_F64))))
        wrong = "out of memory";
    if (!wrong && (gradients || tangents))
        wrong = call_along(&t->exact, &t->inputs, gradients ? &t->gradients : NULL, tangents ? &t->tangents : NULL, 1);
    return wrong;
}
