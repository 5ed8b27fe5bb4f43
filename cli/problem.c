/* problem.c -- problem strings and the random inputs that go with them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exit codes of the program: wrong usage, and valid but not to be had. */
enum { USAGE = 2, FAILED = 1 };

static int fail(char *err, const char *what, const char *text, const char *mend)
{
    snprintf(err, 512, "problem: %s \"%.80s\" (%s)", what, text, mend);
    return USAGE;
}

static bool read_integer(const char *text, const char **end, int64_t *n)
{
    char *stop;
    errno = 0;
    if (*text != '-' && (*text < '0' || *text > '9'))
        return false;
    *n = strtoll(text, &stop, 10);
    *end = stop;
    return errno == 0 && stop != text;
}

static int read_sizes(problem *p, const char *text, char *err)
{
    rp_desc *d = &p->desc;
    *d = rp_desc_init(1, 1, 1, 0, 1);
    d->len_k = -1;
    if (!*text)
        return fail(err, "no sizes in", p->text, "write sizes as b1h8q512k512d64");
    for (const char *c = text; *c;) {
        const char letter = *c++;
        int64_t n;
        if (!read_integer(c, &c, &n))
            return fail(err, "a number is missing in", text, "write sizes as b1h8q512k512d64");
        switch (letter) {
        case 'b': d->batch = n; break;
        case 'h': d->heads = n; break;
        case 'g': d->kv_heads = n; break;
        case 'q': d->len_q = n; break;
        case 'k': d->len_k = n; break;
        case 'd': d->dim_k = n; break;
        case 'v': d->dim_v = n; break;
        case 'o': d->q_offset = n; break;
        default: return fail(err, "unknown size letter in", text, "b, h, g, q, k, d, v or o");
        }
    }
    if (d->len_k < 0)
        d->len_k = d->len_q;
    return 0;
}

static int read_setting(problem *p, char *text, char *err)
{
    rp_desc *d = &p->desc;
    char *value = strchr(text, '=');
    if (value)
        *value++ = 0;
    double *real = strcmp(text, "scale") == 0                                           ? &d->scale
                   : strcmp(text, "softcap") == 0 || strcmp(text, "softcap_after") == 0 ? &d->softcap
                                                                                        : NULL;
    if (real) {
        char *end;
        *real = value ? strtod(value, &end) : 0; /* with a point: the program sets no locale */
        d->cap_after = strcmp(text, "softcap_after") == 0;
        return value && *value && !*end && isfinite(*real)
                   ? 0
                   : fail(err, "a number is missing after", text, "such as softcap=30");
    }
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++) {
        if (strcmp(rp_mask_name((rp_mask_kind)k), text) != 0)
            continue;
        if (d->n_masks == RP_MAX_MASKS)
            return fail(err, "too many masks at", text, "at most 8");
        rp_mask *m = &p->masks[d->n_masks++];
        *m = (rp_mask){.kind = (rp_mask_kind)k, .left = -1, .right = -1};
        if (value && m->kind != RP_MASK_WINDOW)
            return fail(err, "this mask takes no value:", value, "write its name alone");
        if (m->kind == RP_MASK_WINDOW &&
            (!value || !read_integer(value, (const char **)&value, &m->left) || *value != ',' ||
             !read_integer(value + 1, (const char **)&value, &m->right) || *value))
            return fail(err, "the window needs two numbers:", text, "window=LEFT,RIGHT");
        return 0;
    }
    return fail(err, "no mask or setting is called", text,
                "causal, window=L,R, key_mask, mask, lengths, segments, scale=S, softcap=C, softcap_after=C");
}

/* Call back for each part between plus signs. A plus inside a number (1e+5) does not separate. */
static int each_part(problem *p, char *text, char *err, int (*read)(problem *, char *, char *))
{
    if (!*text || strcmp(text, "none") == 0)
        return 0;
    for (char *part = text, *next; part; part = next) {
        char *plus = strchr(part, '+');
        while (plus && plus > part && plus[-1] == 'e' && plus[1] >= '0' && plus[1] <= '9')
            plus = strchr(plus + 1, '+');
        next = plus ? plus + 1 : NULL;
        if (plus)
            *plus = 0;
        const int code = read(p, part, err);
        if (code != 0)
            return code;
    }
    return 0;
}

static int read_term(problem *p, char *text, char *err)
{
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    if (p->desc.n_terms == RP_MAX_TERMS)
        return fail(err, "too many terms at", text, "at most 16");
    const rp_status status = rp_term_parse(text, &p->terms[p->desc.n_terms], names);
    if (status != RP_OK) {
        snprintf(err, 512, "problem: %.440s (relpos info lists the terms)", rp_last_error());
        return status == RP_E_UNSUPPORTED ? FAILED : USAGE;
    }
    p->desc.n_terms++;
    return 0;
}

int problem_parse(problem *p, const char *text, char err[512])
{
    char copy[512], *field[5] = {0};
    memset(p, 0, sizeof *p);
    if (strlen(text) >= sizeof copy)
        return fail(err, "too long:", text, "at most 511 bytes");
    snprintf(p->text, sizeof p->text, "%s", text);
    snprintf(copy, sizeof copy, "%s", text);
    char *at = copy;
    for (int n = 0; n < 5; n++) {
        field[n] = at;
        at = at ? strchr(at, ':') : NULL;
        if (at)
            *at++ = 0;
        else if (n < 2)
            return fail(err, "a field is missing in", text, "write fwd:f32:b1h8q512k512d64:t5:causal");
        if (!at)
            break;
    }
    if (at)
        return fail(err, "more than five fields in", text, "write fwd:f32:b1h8q512k512d64:t5:causal");
    if (strcmp(field[0], "bwd") == 0 || strcmp(field[0], "fwdbwd") == 0) {
        fail(err, "the backward pass is not there yet:", field[0], "write fwd");
        return FAILED;
    }
    if (strcmp(field[0], "fwd") != 0)
        return fail(err, "no pass is called", field[0], "fwd");
    int code = read_sizes(p, field[2], err);
    if (strcmp(field[1], "f64") == 0)
        p->desc.dtype = RP_F64;
    else if (strcmp(field[1], "f32") != 0)
        return fail(err, "no type is called", field[1], "f32 or f64");
    if (code == 0 && field[3])
        code = each_part(p, field[3], err, read_term);
    if (code == 0 && field[4])
        code = each_part(p, field[4], err, read_setting);
    p->desc.terms = p->terms;
    p->desc.masks = p->masks;
    return code;
}

void *problem_alloc(problem *p, size_t bytes)
{
    if (p->n_memory == (int)(sizeof p->memory / sizeof *p->memory))
        return NULL;
    void *at = NULL;
    if (posix_memalign(&at, 64, bytes + 64) != 0)
        return NULL;
    memset(at, 0, bytes + 64); /* pages are there before anything is timed or measured */
    return p->memory[p->n_memory++] = at;
}

void problem_free(problem *p)
{
    for (int n = 0; n < p->n_memory; n++)
        free(p->memory[n]);
    p->n_memory = 0;
}

int64_t problem_size(const rp_array *a)
{
    int64_t n = 1;
    for (int32_t x = 0; x < a->ndim; x++)
        n *= a->shape[x];
    return n;
}

/* splitmix64: Steele, Lea, Flood 2014. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state)
{
    return ((double)(next(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    const double radius = sqrt(-2.0 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

/* An array of numbers in the problem's own type. */
static int fill(problem *p, rp_array *a, int32_t ndim, const int64_t *shape, uint64_t *state)
{
    int64_t n = 1;
    *a = rp_array_of(NULL, p->desc.dtype, ndim, shape);
    for (int32_t x = 0; x < ndim; x++)
        if (__builtin_mul_overflow(n, shape[x], &n) || n > (int64_t)1 << 56)
            return -1;
    a->data = problem_alloc(p, (size_t)n * rp_dtype_size(a->dtype));
    for (int64_t x = 0; a->data && state && x < n; x++) {
        const double y = normal(state);
        if (a->dtype == RP_F32)
            ((float *)a->data)[x] = (float)y;
        else
            ((double *)a->data)[x] = y;
    }
    return a->data ? 0 : -1;
}

static int fill_mask(problem *p, int32_t n, uint64_t *state)
{
    rp_array *a = &p->t.mask[n];
    int32_t ndim;
    int64_t shape[RP_MAX_AXES], size;
    if (rp_mask_shape(&p->desc, n, &ndim, shape) != RP_OK || ndim == 0)
        return 0;
    const rp_mask_kind kind = p->masks[n].kind;
    *a = rp_array_of(NULL, kind == RP_MASK_LENGTHS ? RP_I64 : kind == RP_MASK_SEGMENTS ? RP_I32 : RP_BOOL, ndim, shape);
    size = problem_size(a);
    a->data = problem_alloc(p, (size_t)size * rp_dtype_size(a->dtype));
    for (int64_t x = 0; a->data && x < size; x++) {
        const uint64_t r = next(state);
        switch (kind) {
        case RP_MASK_LENGTHS: ((int64_t *)a->data)[x] = (int64_t)(r % (uint64_t)(p->desc.len_k + 1)); break;
        case RP_MASK_SEGMENTS: ((int32_t *)a->data)[x] = (int32_t)(x % shape[1] * 3 / (shape[1] + 1)); break;
        default: ((uint8_t *)a->data)[x] = r % 5 != 0;
        }
    }
    return a->data ? 0 : -1;
}

int problem_fill(problem *p, uint64_t seed, char err[512])
{
    rp_desc *d = &p->desc;
    uint64_t state = seed;
    const int64_t Hk = d->kv_heads ? d->kv_heads : d->heads, Dv = d->dim_v ? d->dim_v : d->dim_k;
    const int64_t q[4] = {d->batch, d->heads, d->len_q, d->dim_k}, k[4] = {d->batch, Hk, d->len_k, d->dim_k},
                  v[4] = {d->batch, Hk, d->len_k, Dv}, out[4] = {d->batch, d->heads, d->len_q, Dv};
    rp_plan *plan; /* only to check the description before memory is asked for */
    if (rp_plan_create(&plan, d) != RP_OK) {
        snprintf(err, 512, "problem %.100s: %.360s (relpos info)", p->text, rp_last_error());
        return FAILED;
    }
    rp_plan_destroy(plan);
    p->t = rp_tensors_init();
    int bad = fill(p, &p->t.q, 4, q, &state) | fill(p, &p->t.k, 4, k, &state) | fill(p, &p->t.v, 4, v, &state) |
              fill(p, &p->t.out, 4, out, NULL);
    for (int32_t n = 0; !bad && n < d->n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS && !bad; x++) {
            int32_t ndim;
            int64_t shape[RP_MAX_AXES];
            /* an optional array stays away: its default is the case to look at */
            if (rp_term_shape(d, n, x, &ndim, shape) == RP_OK && ndim > 0 &&
                !rp_term_array_optional(d->terms[n].kind, x))
                bad |= fill(p, &p->t.term[n][x], ndim, shape, &state);
        }
    for (int32_t n = 0; !bad && n < d->n_masks; n++)
        bad |= fill_mask(p, n, &state);
    if (bad)
        fail(err, "no memory for", p->text, "smaller sizes");
    return bad ? FAILED : 0;
}

double problem_flops(const problem *p)
{
    const rp_desc *d = &p->desc;
    double pairs = 0;
    for (int64_t i = 0; i < d->len_q; i++) {
        int64_t lo = 0, hi = d->len_k;
        const int64_t at = i + d->q_offset;
        for (int32_t n = 0; n < d->n_masks; n++) {
            const rp_mask *m = &d->masks[n];
            if (m->kind == RP_MASK_CAUSAL && at + 1 < hi)
                hi = at + 1;
            if (m->kind == RP_MASK_WINDOW && m->left >= 0 && m->left < at - lo)
                lo = at - m->left;
            if (m->kind == RP_MASK_WINDOW && m->right >= 0 && m->right < hi - 1 - at)
                hi = at + m->right + 1;
        }
        pairs += hi > lo ? (double)(hi - lo) : 0;
    }
    return 2.0 * (double)d->batch * (double)d->heads * pairs * (double)(d->dim_k + (d->dim_v ? d->dim_v : d->dim_k));
}
