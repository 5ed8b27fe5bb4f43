/* verify.c -- relpos verify: the fast paths against the oracle, and the laws, on each instruction set found.
 * It may know the public headers, io, support and cli, and not the other commands.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "support/sample_problem.h"
#include "cli/progress.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ISA = CLI_OWN, SEED, JSON, LOUD };

static const cli_option options[] = {
    {"isa", ISA, "NAME", "only this instruction set"},
    {"seed", SEED, "N", "seed of the random inputs, default 7"},
    {"verbose", LOUD, NULL, "a line for each problem, not only for failures"},
    {"json", JSON, NULL, "one object a problem and instruction set"},
    {0},
};

typedef struct request {
    const char *isa;
    int64_t seed;
    bool loud, json;
    int checked, failed, total, both,
        shortened; /* both: with every tile too; shortened: of these, tiles were left out */
    cli_progress progress;
    double worst; /* largest error / bound */
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case ISA: return cli_isa(value, &r->isa);
    case SEED: return cli_integer("--seed", value, 0, INT64_MAX, &r->seed);
    case LOUD: r->loud = true; return CLI_OK;
    case JSON: r->json = true; return CLI_OK;
    default: return -1;
    }
}

/* One problem. What the reference path finds in double is the same for every instruction set: it is found once. */
typedef struct trial {
    problem p;
    int64_t n;      /* elements of out */
    rp_tensors own; /* the inputs in double */
    rp_desc exact;  /* the same problem in double on the reference path, and what that gives */
    rp_array out;
    rp_grads gradients;
    int64_t pairs[2]; /* that masks allow, and that were computed */
    bool both;        /* it was computed with every tile too */
} trial;

/* What the library refused, until the next time. */
static const char *refused(const rp_desc *d)
{
    static char said[512];
    return problem_words(d, said);
}

/* A call of the pass `pass` on so many threads. */
static const char *call(const rp_desc *d, const rp_tensors *t, const rp_grads *g, int32_t threads)
{
    rp_plan *plan = NULL;
    rp_tensors with = *t;
    rp_status status = rp_plan_create(&plan, d);
    if (status == RP_OK)
        status = rp_pool_create(&with.pool, threads);
    if (status == RP_OK) {
        status = g ? rp_backward(plan, &with, g, NULL) : rp_attend(plan, &with, NULL);
        rp_pool_destroy(with.pool);
    }
    rp_plan_destroy(plan);
    return status == RP_OK ? NULL : refused(d);
}

static const char *attend(const trial *t, int32_t threads, void *out, int64_t pairs[2])
{
    rp_tensors with = t->p.t;
    with.out.data = out;
    with.pairs = pairs;
    return call(&t->p.desc, &with, NULL, threads);
}

static double unit_of(rp_dtype type)
{
    return type == RP_F64 ? 0x1p-53 : type == RP_F32 ? 0x1p-24 : type == RP_F16 ? 0x1p-11 : 0x1p-8;
}

/* A copy of an array in another floating type. false: no memory */
static bool copy_as(problem *p, rp_array *to, rp_dtype type, const rp_array *from)
{
    const int64_t n = problem_size(from);
    void *data = problem_alloc(p, (size_t)n * rp_dtype_size(type));
    *to = rp_array_of(data, type, from->ndim, from->shape);
    if (data)
        rp_convert(data, type, from->data, from->dtype, n);
    return data != NULL;
}

/* ------------------------------------------------------------------------------------------------- what is checked */

/* A check returns NULL where it holds, or a line that says what was found. It may write to `line`. */
typedef const char *(*check)(trial *t, request *r, char line[256]);

/* The largest |found - want| / bound; NaN where the oracle has NaN and nowhere else. */
typedef struct worst {
    double share, error, bound;
    const char *where;
} worst;

static void compare(worst *w, const char *where, const rp_array *found, const double *want, const double *bound,
                    double rounding)
{
    const int64_t size = (int64_t)rp_dtype_size(found->dtype);
    for (int64_t x = 0; x < problem_size(found); x++) {
        double y;
        rp_convert(&y, RP_F64, (const char *)found->data + x * size, found->dtype, 1);
        const double error = fabs(y - want[x]),
                     max_error = bound[x] + (rounding > 0 ? rounding * (fabs(want[x]) + bound[x]) : 0);
        const double share = (isnan(y) && isnan(want[x])) || y == want[x] ? 0 : error / max_error;
        if (!(share <= w->share))
            *w = (worst){isnan(share) ? INFINITY : share, error, max_error, where};
    }
}

static const char *judge(const worst *w, request *r, char line[256])
{
    r->worst = fmax(r->worst, w->share);
    snprintf(line, 256, "%s%serror %.3g, bound %.3g, ratio %.3g", w->where ? w->where : "", w->where ? ": " : "",
             w->error, w->bound, w->share);
    return w->share <= 1 ? NULL : line;
}

/* |fast - oracle| <= bound, element by element. */
static const char *check_oracle(trial *t, request *r, char line[256])
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
    compare(&w, NULL, &p->t.out, t->out.data, bound.data, 0);
    return judge(&w, r, line);
}

/* Element x of `found`, where it is not bit for bit that of `want`; -1 where all are. */
static int64_t first_difference(const rp_array *want, const void *found)
{
    const size_t size = rp_dtype_size(want->dtype);
    for (int64_t x = 0; x < problem_size(want); x++)
        if (memcmp((const char *)want->data + (size_t)x * size, (const char *)found + (size_t)x * size, size) != 0)
            return x;
    return -1;
}

/* A second call that has to give the same bits. */
typedef struct variant {
    const char *name; /* "3 threads" */
    const char *against;
    int32_t threads;
    const char *skip; /* RELPOS_SKIP; NULL: as it is */
} variant;
static const variant with_threads = {"3 threads", "1", 3, NULL};
static const variant without_skipping = {"every tile", "tiles left out", 1, "0"};

/* Plans that are made until the next call leave no tile out, or do as they did before. */
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

static const char *check_again(trial *t, const variant *v, char line[256])
{
    void *again = problem_alloc(&t->p, (size_t)t->n * rp_dtype_size(t->p.desc.dtype));
    set_skipping(v, true);
    const char *wrong = again ? attend(t, v->threads, again, NULL) : "out of memory";
    set_skipping(v, false);
    const int64_t x = wrong ? -1 : first_difference(&t->p.t.out, again);
    if (x >= 0)
        snprintf(line, 256, "%s against %s: element %lld differs", v->name, v->against, (long long)x);
    return wrong ? wrong : x >= 0 ? line : NULL;
}

static const char *check_threads(trial *t, request *r, char line[256])
{
    (void)r;
    return check_again(t, &with_threads, line);
}

static const char *check_skipping(trial *t, request *r, char line[256])
{
    (void)r;
    t->both = true;
    return check_again(t, &without_skipping, line);
}

/* Cut an array of a shorter problem: the axis that went from `whole` to `tail` entries keeps the last. */
static void cut_rows(rp_array *a, const int64_t *before, const int64_t *after, int64_t whole, int64_t tail)
{
    for (int32_t x = 0; a->data && x < a->ndim; x++)
        if (before[x] == whole && after[x] == tail) {
            a->data = (char *)a->data + (whole - tail) * a->stride[x] * (int64_t)rp_dtype_size(a->dtype);
            a->shape[x] = tail;
        }
}

/* Whether an array's shape joins the two lengths: Lq+Lk-1, or L where both are one. */
static bool goes_by_both(rp_term_kind kind, int index)
{
    const char *shape = rp_term_array_about(kind, index)->shape;
    for (const char *c = shape; (c = strchr(c, 'L')); c++)
        if (c[1] != 'q' && c[1] != 'k')
            return true;
    return strstr(shape, "Lq+Lk");
}

/* The last queries alone, at their own offset, have the bits of the whole: decoding equals prefill. */
static const char *check_decode(trial *t, request *r, char line[256])
{
    const rp_desc *whole = &t->p.desc;
    rp_desc d = *whole;
    rp_tensors part = t->p.t;
    const int64_t tail = d.len_q < 2 ? 0 : 1 + d.len_q / 3, first = d.len_q - tail;
    const int64_t row = t->p.t.out.shape[3] * (int64_t)rp_dtype_size(d.dtype);
    (void)r;
    d.len_q = tail;
    d.q_offset += first;
    /* Not so: dropout goes by the query's number, some arrays by all of the lengths; grids, masks such as segments, and
     * positions of queries and keys alike need as many queries as keys. */
    if (tail == 0 || d.dropout > 0 || part.q_offset.data)
        return NULL;
    for (int32_t n = 0; n < d.n_masks; n++)
        if (rp_mask_info_of(d.masks[n].kind)->same_lengths)
            return NULL;
    for (int32_t n = 0; n < d.n_terms; n++)
        for (int x = 0; rp_term_array(d.terms[n].kind, x); x++)
            if (d.terms[n].grid_h > 0 || (part.term[n][x].data && goes_by_both(d.terms[n].kind, x)))
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
            snprintf(line, 256, "decode against prefill: query %lld of batch and head %lld differs",
                     (long long)(first + x % tail), (long long)(x / tail));
            wrong = line;
        }
    }
    return wrong;
}

/* With values of 1 every output is 1, or 0 where all keys are masked. */
static const char *check_rows(trial *t, request *r, char line[256])
{
    const rp_desc *d = &t->p.desc;
    const double one = 1;
    /* the same products are summed in another order: n roundings each way */
    const double tolerance =
        2 * unit_of(d->dtype == RP_F64 ? RP_F64 : RP_F32) * (300 + (double)d->len_k / 64) + unit_of(d->dtype);
    rp_tensors with = t->p.t;
    const char *wrong = NULL;
    (void)r;
    for (int32_t n = 0; n < d->n_terms; n++)
        if (rp_term_role(d->terms[n].kind) == RP_ROLE_VALUE || rp_term_role(d->terms[n].kind) == RP_ROLE_SINK)
            return NULL; /* its vectors are added to the ones; it takes its share */
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

/* The gradients of a call, one after another, and their names. */
enum { GRADIENTS = 3 + RP_MAX_TERMS * RP_MAX_ARRAYS };

static rp_array *gradient(rp_grads *g, int n)
{
    rp_array *const first[3] = {&g->dq, &g->dk, &g->dv};
    return n < 3 ? first[n] : &g->term[(n - 3) / RP_MAX_ARRAYS][(n - 3) % RP_MAX_ARRAYS];
}

static const char *gradient_name(const rp_desc *d, int n)
{
    static const char *const first[3] = {"dq", "dk", "dv"};
    return n < 3 ? first[n] : rp_term_array(d->terms[(n - 3) / RP_MAX_ARRAYS].kind, (n - 3) % RP_MAX_ARRAYS);
}

/* The same gradients with memory of their own. false: no memory */
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

/* Every gradient of one call against the oracle: given out and lse, and without them. */
static const char *check_gradients(trial *t, request *r, char line[256])
{
    problem *p = &t->p;
    rp_grads bound;
    rp_plan *plan = NULL;
    rp_tensors alone = p->t, saved = p->t;
    worst w = {0};
    alone.out = alone.lse = (rp_array){0};
    const char *wrong = gradients_like(t, &bound, RP_F64) ? NULL : "out of memory";
    if (!wrong && (rp_plan_create(&plan, &p->desc) != RP_OK || rp_gradient_bound(plan, &alone, &bound) != RP_OK))
        wrong = refused(&p->desc);
    rp_plan_destroy(plan);
    for (int given = 0; given < 2; given++) {
        if (!wrong)
            wrong = call(&p->desc, given ? &saved : &alone, &p->g, 1);
        for (int n = 0; !wrong && n < GRADIENTS; n++) {
            const rp_array *found = gradient(&p->g, n);
            if (found->data)
                compare(&w, gradient_name(&p->desc, n), found, gradient(&t->gradients, n)->data,
                        gradient(&bound, n)->data, unit_of(p->desc.dtype));
        }
    }
    return wrong ? wrong : judge(&w, r, line);
}

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

static const char *check_gradient_threads(trial *t, request *r, char line[256])
{
    (void)r;
    return check_gradients_again(t, &with_threads, line);
}

static const char *check_gradient_skipping(trial *t, request *r, char line[256])
{
    (void)r;
    t->both = true;
    return check_gradients_again(t, &without_skipping, line);
}

static const struct {
    const char *name;
    check run;
    int pass;
} checks[] = {{"oracle", check_oracle, PROBLEM_FORWARD},
              {"threads", check_threads, PROBLEM_FORWARD},
              {"skipping", check_skipping, PROBLEM_FORWARD},
              {"decode", check_decode, PROBLEM_FORWARD},
              {"rows", check_rows, PROBLEM_FORWARD},
              {"gradients", check_gradients, PROBLEM_BACKWARD},
              {"gradient threads", check_gradient_threads, PROBLEM_BACKWARD},
              {"gradient skipping", check_gradient_skipping, PROBLEM_BACKWARD}};

/* What the reference path finds. NULL, or what went wrong */
static const char *reference(trial *t)
{
    problem *p = &t->p;
    const char *wrong = NULL;
    t->exact = p->desc;
    t->exact.dtype = RP_F64;
    t->exact.isa = "reference";
    t->own = p->t;
    t->own.out = t->own.lse = (rp_array){0};
    if (!copy_as(p, &t->own.q, RP_F64, &p->t.q) || !copy_as(p, &t->own.k, RP_F64, &p->t.k) ||
        !copy_as(p, &t->own.v, RP_F64, &p->t.v))
        return "out of memory";
    if (p->pass & PROBLEM_FORWARD) {
        rp_tensors with = t->own;
        t->out = rp_array_of(problem_alloc(p, (size_t)t->n * sizeof(double)), RP_F64, 4, p->t.out.shape);
        with.out = t->out;
        wrong = t->out.data ? call(&t->exact, &with, NULL, 1) : "out of memory";
    }
    if (!wrong && (p->pass & PROBLEM_BACKWARD))
        wrong = gradients_like(t, &t->gradients, RP_F64) && copy_as(p, &t->gradients.dout, RP_F64, &p->g.dout)
                    ? call(&t->exact, &t->own, &t->gradients, 1)
                    : "out of memory";
    return wrong;
}

/* The checks of one problem on one instruction set, where `wrong` says that its reference could not be found. */
static void verify_isa(request *r, trial *t, const char *isa, const char *wrong)
{
    char line[256] = "", found[256] = "";
    const char *where = wrong ? "reference" : "attend";
    t->p.desc.isa = isa;
    t->both = false;
    if (!wrong)
        wrong = attend(t, 1, t->p.t.out.data, t->pairs);
    for (size_t n = 0; !wrong && n < sizeof checks / sizeof *checks; n++) {
        if (!(t->p.pass & checks[n].pass))
            continue;
        line[0] = 0;
        wrong = checks[n].run(t, r, line);
        where = checks[n].name;
        if (*line && !wrong)
            snprintf(found, sizeof found, "%s", line);
    }
    r->checked++;
    cli_progress_show(&r->progress, (double)r->checked / (double)r->total);
    r->failed += wrong != NULL;
    r->both += t->both;
    r->shortened += t->both && t->pairs[1] < t->pairs[0];
    if (r->json) {
        printf("{\"problem\": ");
        cli_json_string(stdout, t->p.text);
        printf(", \"isa\": \"%s\", \"seed\": %lld, \"passed\": %s, \"pairs_computed\": %.4f, \"found\": ", isa,
               (long long)r->seed, wrong ? "false" : "true",
               t->pairs[0] > 0 ? (double)t->pairs[1] / (double)t->pairs[0] : 1);
        cli_json_string(stdout, wrong ? wrong : found);
        printf("}\n");
    } else if (wrong) {
        printf("FAILED %s: %s\n       relpos verify %s --isa %s --seed %lld\n", where, wrong, t->p.text, isa,
               (long long)r->seed);
    } else if (r->loud) {
        printf("ok     %-8s %s: %s\n", isa, t->p.text, found);
    }
}

/* The next instruction set from number *x that is asked for and found; NULL at the end. */
static const char *next_isa(const request *r, int *x)
{
    const char *isa;
    while ((isa = rp_isa_name((*x)++)))
        if (rp_isa_found(isa) == 1 && (!r->isa || strcmp(r->isa, isa) == 0))
            return isa;
    return NULL;
}

static int verify(request *r, const char *text)
{
    trial t = {0};
    char err[512];
    const int code = problem_parse(&t.p, text, err);
    if (code != 0)
        return cli_error(code, "%s", err);
    if (problem_fill(&t.p, (uint64_t)r->seed, err) != 0) {
        problem_free(&t.p);
        return cli_error(CLI_FAILED, "%s", err);
    }
    t.n = problem_size(&t.p.t.out);
    const char *isa, *wrong = reference(&t);
    const int shared = t.p.n_memory;
    for (int x = 0; (isa = next_isa(r, &x));) {
        verify_isa(r, &t, isa, wrong);
        while (t.p.n_memory > shared)
            free(t.p.memory[--t.p.n_memory]);
    }
    problem_free(&t.p);
    return CLI_OK;
}

/* Sizes on the edges of tiles, each term, each mask and setting, and mixtures. */
static const char *const sizes[] = {"b1h1q1k1d2",         "b1h2q5k7d4v2",       "b2h2q7k63d8",
                                    "b1h4g2q33k65d16v24", "b1h1q25k513d40v9",   "b1h2g1q97k100d24v40",
                                    "b1h1q193k520d18v33", "b2h1q3k1100d66o900", "b1h1q50k1300d32o-7",
                                    "b1h1q95k513d64",     "b1h3q1k1300d16"};
/* Beside the samples of every term: none, and mixtures. */
static const char *const mixtures[] = {
    "", "axialkey,grid=2x50+axial,grid=2x50", "rope+t5",
    "band+fire,c=1,L=5,width=16+forget+kerple+real,max_distance=7+sandwich,dim=4+rope+xl+relval,left=3,right=3+sink",
    "rope+t5+alibi+dense+dense+relkey,left=9,right=9+relval,left=2,right=2"};
static const char *const masks[] = {"",
                                    "causal",
                                    "window=10,3",
                                    "window=0,0",
                                    "key_mask",
                                    "mask",
                                    "lengths",
                                    "causal+window=40,-1+key_mask",
                                    "softcap=3",
                                    "softcap_after=3",
                                    "mask+softcap=2",
                                    "scale=0.7",
                                    "positions",
                                    "positions+causal",
                                    "q_offsets+causal",
                                    "dropout=0.2+seed=5"};
/* Longer gradients, what asks for sizes of its own, and biases so steep that tiles are left out. */
static const char *const others[] = {"fwdbwd:f32:b1h4q100k1900d16:alibi",
                                     "fwdbwd:f64:b1h4g2q60k1900d16:alibi+sink:key_mask",
                                     "fwd:bf16:b1h2q300k1400d16o900:linear,left=0.5,right=1+t5:",
                                     "fwd:f32:b1h2q130k130d16:t5:segments+causal",
                                     "bwd:f32:b1h2q40k40d16:t5+rope:segments",
                                     "fwdbwd:f32:b1h2g1q130k600d16:t5+rope:causal",
                                     "bwd:f64:b1h1q70k1100d16v24:alibi+sink:window=60,0",
                                     "bwd:f32:b1h1q200k90d20:dense+relkey,left=9,right=9+relval,left=5,right=0:mask",
                                     "bwd:bf16:b2h1q3k1100d66o900:forget+band",
                                     "fwdbwd:f32:b1h2g1q130k600d40:t5+rope:causal+high",
                                     "fwdbwd:f32:b1h2q40k50d64v24:dense+relval,left=5,right=5:high"};
/* What each term is tried with beside fwd:f32, each time with another mask. The reference takes long for gradients. */
static const char *const passes[] = {"fwdbwd:f32", "bwd:f32",  "bwd:f32", "fwd:f64",
                                     "fwdbwd:f64", "fwd:bf16", "fwd:f16", "bwd:bf16"};

enum {
    N_MIXTURES = sizeof mixtures / sizeof *mixtures,
    N_MASKS = sizeof masks / sizeof *masks,
    N_SIZES = sizeof sizes / sizeof *sizes,
    N_SMALL = 4, /* sizes for gradients, and for some of them */
    N_MIDDLE = 6,
    N_PASSES = sizeof passes / sizeof *passes,
    N_OTHERS = sizeof others / sizeof *others,
    N_KINDS = RP_MASK_COUNT - RP_MASK_NONE - 1,
    N_EACH = N_MASKS / 2 + N_PASSES /* problems of one text */
};

/* Text number n of the list, or false past the last: the samples of every term, then mixtures. */
static bool term_text(int n, char text[512])
{
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
        const rp_term_facts *f = rp_term_about((rp_term_kind)k);
        for (int x = 0; x < RP_MAX_SAMPLES && (f->samples[x] || x == 0); x++, n--)
            if (n == 0) {
                const char *sample = f->samples[x] ? f->samples[x] : "";
                snprintf(text, 512, "%s%s%s", rp_term_name((rp_term_kind)k), *sample ? "," : "", sample);
                return true;
            }
    }
    if (n < N_MIXTURES)
        snprintf(text, 512, "%s", mixtures[n]);
    return n < N_MIXTURES;
}

/* Problem number n of the list; false past the last. Every text with half of the masks, at sizes that take turns; every text forward and
 * backward, in every type, with other masks; then the others, and every mask of the registry. */
static bool problem_text(int n, char text[1024])
{
    char terms[512];
    int term = n / N_EACH;
    n %= N_EACH;
    if (!term_text(term, terms)) {
        int last = 0;
        while (term_text(last, terms))
            last++;
        const int other = (term - last) * N_EACH + n, kind = other - N_OTHERS;
        if (other >= N_OTHERS + 2 * N_KINDS)
            return false;
        if (other < N_OTHERS)
            snprintf(text, 1024, "%s", others[other]);
        else
            snprintf(text, 1024, kind % 2 ? "bwd:f32:b1h2q70k70d16:t5:%s" : "fwd:f32:b2h4g2q150k150d16:t5:%s",
                     problem_mask((rp_mask_kind)(RP_MASK_NONE + 1 + kind / 2)).text);
        return true;
    }
    const bool first = n < N_MASKS / 2;
    const int mask = (first ? 2 * n + term : term * 3 + (n - N_MASKS / 2) * 5) % N_MASKS;
    const int among = first ? N_SIZES : (term + n) % 4 ? N_SMALL : N_MIDDLE;
    const char *pass = first ? "fwd:f32" : passes[n - N_MASKS / 2];
    char shape[64];
    const int64_t tokens = problem_tokens(terms);
    if (tokens) /* on a grid, where offsets are 0 */
        snprintf(shape, sizeof shape, n % 2 ? "b1h4g2q%lldk%lldd24v9" : "b2h2q%lldk%lldd16", (long long)tokens,
                 (long long)tokens);
    else
        snprintf(shape, sizeof shape, "%s", sizes[(term * 5 + mask * 7) % among]);
    snprintf(text, 1024, "%s:%s:%s:%s", pass, shape, terms,
             tokens && strstr(masks[mask], "q_offsets") ? "causal" : masks[mask]);
    return true;
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.seed = 7, .progress = {.what = "verify"}};
    const char *texts[64];
    char text[1024];
    int n_all = 0;
    int n, code = cli_options(self, argc, argv, on_option, &r, texts, 64, &n);
    if (code >= 0)
        return code;
    code = CLI_OK;
    while (problem_text(n_all, text))
        n_all++;
    for (int x = 0; next_isa(&r, &x);)
        r.total += n ? n : n_all;
    if (r.total == 0)
        return cli_error(CLI_USAGE, "--isa: %s judges the others and is not checked (name another)", r.isa);
    cli_progress_show(&r.progress, 0); /* the time starts here */
    for (int k = 0; code == CLI_OK && k < n; k++)
        code = verify(&r, texts[k]);
    for (int k = 0; code == CLI_OK && n == 0 && problem_text(k, text); k++)
        code = verify(&r, text);
    cli_progress_end(&r.progress);
    if (code == CLI_OK && !r.json)
        printf("%d problems checked, %d failed; largest error / bound %.3f; %d also computed with every "
               "tile: tiles are left out in %d of them\n",
               r.checked, r.failed, r.worst, r.both, r.shortened);
    return code != CLI_OK ? code : r.failed ? CLI_FAILED : CLI_OK;
}

const cli_command cmd_verify = {
    .name = "verify",
    .summary = "check the fast paths against the reference and the laws, on this machine",
    .usage = "[PROBLEM...] [options]      without a problem: a list that covers every term and mask",
    .example = "  relpos verify\n  relpos verify fwd:f32:b1h8q33k65d64:t5,buckets=32:causal --verbose\n",
    .options = options,
    .run = run,
};
