/* sample_problem.c -- parses problem strings and generates random inputs for them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/sample_problem.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <unistd.h>
#endif

/* Exit codes of the program: wrong usage; not supported. */
enum { USAGE = 2, FAILED = 1 };

static int fail(char *err, const char *what, const char *text, const char *mend)
{
    snprintf(err, 512, "problem: %s \"%.80s\" (%s)", what, text, mend);
    return USAGE;
}

static int word(void *context, const rp_field *f, char *text, size_t size)
{
    static const char *const letters[][2] = {{"batch", "b"}, {"heads", "h"}, {"kv_heads", "g"}, {"len_q", "q"},
                                             {"len_k", "k"}, {"dim_k", "d"}, {"dim_v", "v"},    {"q_offset", "o"}};
    (void)context;
    for (size_t n = 0; n < sizeof letters / sizeof *letters && f->of == RP_FIELD_DESC; n++)
        if (strcmp(letters[n][0], f->name) == 0)
            return snprintf(text, size, "size %s", letters[n][1]) > 0;
    return 0;
}

const char *problem_words(const rp_desc *d, char text[512])
{
    return rp_last_error_in(d, word, NULL, text, 512);
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
    const char *sizes = "bhgqkdvo";
    bool given[8] = {false};
    for (const char *c = text; *c;) {
        const char letter = *c++, *known = strchr(sizes, letter);
        int64_t n;
        if (!read_integer(c, &c, &n))
            return fail(err, "a number is missing in", text, "write sizes as b1h8q512k512d64");
        if (!known)
            return fail(err, "unknown size letter in", text, "use b, h, g, q, k, d, v or o");
        if (given[known - sizes])
            return fail(err, "a size is given twice in", text, "give each letter once");
        given[known - sizes] = true;
        switch (letter) {
        case 'b': d->batch = n; break;
        case 'h': d->heads = n; break;
        case 'g': d->kv_heads = n; break;
        case 'q': d->len_q = n; break;
        case 'k': d->len_k = n; break;
        case 'd': d->dim_k = n; break;
        case 'v': d->dim_v = n; break;
        case 'o': d->q_offset = n; break;
        }
    }
    if (d->len_k < 0)
        d->len_k = d->len_q;
    return 0;
}

problem_mask_text problem_mask(rp_mask_kind kind)
{
    const rp_mask_info *info = rp_mask_info_of(kind);
    problem_mask_text to;
    snprintf(to.text, sizeof to.text, "%s%s%s", info->name, info->sample ? "=" : "", info->sample ? info->sample : "");
    return to;
}

static int read_mask(problem *p, rp_mask_kind kind, const char *text, const char *value, char *err)
{
    const rp_mask_info *info = rp_mask_info_of(kind);
    rp_desc *d = &p->desc;
    if (d->n_masks == RP_MAX_MASKS)
        return fail(err, "too many masks at", text, "at most 8");
    if (value && !info->sample)
        return fail(err, "this mask takes no value:", value, "write only its name");
    rp_mask *m = &p->masks[d->n_masks++];
    *m = rp_mask_init(kind);
    const char *end = value;
    const rp_mask_param *q;
    for (int x = 0; (q = rp_mask_param_of(kind, x)); x++) {
        int64_t n;
        if (!end || !read_integer(end, &end, &n) || *end != (rp_mask_param_of(kind, x + 1) ? ',' : 0))
            return fail(err, "needs whole numbers:", text, problem_mask(kind).text);
        rp_mask_set(m, q, n);
        end += *end == ',';
    }
    return 0;
}

/* Return true if the setting for this field was already given; mark it as given. */
static bool is_given(problem *p, const void *field)
{
    for (int n = 0; n < p->n_given; n++)
        if (p->given[n] == field)
            return true;
    p->given[p->n_given++] = field;
    return false;
}

static int read_setting(problem *p, char *text, char *err)
{
    rp_desc *d = &p->desc;
    char *value = strchr(text, '=');
    const char *end = value;
    if (value)
        *value++ = 0;
    const struct {
        const char *name;
        double *to;
    } reals[] = {
        {"scale", &d->scale}, {"softcap", &d->softcap}, {"softcap_after", &d->softcap_after}, {"dropout", &d->dropout}};
    const struct {
        const char *name;
        bool *to;
    } flags[] = {{"q_offsets", &p->q_offsets}, {"positions", &p->positions}, {"high", &p->high},
                 {"wild", &p->wild},           {"dlse", &p->dlse},           {"dweights", &p->dweights},
                 {"dsummary", &p->dsummary},   {"dsoftcap", &p->dsoftcap}};
    for (size_t n = 0; n < sizeof reals / sizeof *reals; n++) {
        char *stop;
        if (strcmp(text, reals[n].name) != 0)
            continue;
        if (is_given(p, reals[n].to))
            return fail(err, "given twice:", text, "give each setting once");
        *reals[n].to = value ? strtod(value, &stop) : 0; /* the decimal point is ".": the program sets no locale */
        return value && *value && !*stop && isfinite(*reals[n].to)
                   ? 0
                   : fail(err, "a number is missing after", text, "such as softcap=30");
    }
    for (size_t n = 0; n < sizeof flags / sizeof *flags; n++)
        if (strcmp(text, flags[n].name) == 0) {
            if (is_given(p, flags[n].to))
                return fail(err, "given twice:", text, "give each setting once");
            *flags[n].to = true;
            d->precision = p->high ? RP_PRECISION_HIGH : RP_PRECISION_HIGHEST;
            return value ? fail(err, "this setting takes no value:", value, "write only its name") : 0;
        }
    if (strcmp(text, "seed") == 0) {
        int64_t seed = -1;
        if (is_given(p, &d->seed))
            return fail(err, "given twice:", text, "give each setting once");
        const bool good = value && read_integer(value, &end, &seed) && !*end && seed >= 0;
        d->seed = (uint64_t)seed;
        return good ? 0 : fail(err, "a whole number is missing after", text, "such as seed=7");
    }
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++)
        if (strcmp(rp_mask_name((rp_mask_kind)k), text) == 0)
            return read_mask(p, (rp_mask_kind)k, text, value, err);
    char names[512] = "scale=S, softcap=C, softcap_after=C, dropout=P, seed=N, q_offsets, positions, high, wild, dlse, "
                      "dweights, dsummary, dsoftcap";
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++) {
        strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, problem_mask((rp_mask_kind)k).text, sizeof names - strlen(names) - 1);
    }
    return fail(err, "no mask or setting is called", text, names);
}

/* Call `read` for each part between plus signs. A plus sign inside a number (1e+5) does not separate parts. */
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
        snprintf(err, 512, "problem: %.440s (relpos info lists the terms)", problem_words(&p->desc, (char[512]){0}));
        return status == RP_E_UNSUPPORTED ? FAILED : USAGE;
    }
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        p->named[p->desc.n_terms][x] = *names[x] != 0;
    rp_term_usual_sizes(&p->terms[p->desc.n_terms++], p->desc.len_k);
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
    static const struct {
        const char *name;
        int pass;
    } passes[] = {{"fwd", PROBLEM_FORWARD},
                  {"bwd", PROBLEM_BACKWARD},
                  {"fwdbwd", PROBLEM_FORWARD | PROBLEM_BACKWARD},
                  {"jvp", PROBLEM_TANGENTS},
                  {"hvp", PROBLEM_SECOND}};
    for (size_t n = 0; n < sizeof passes / sizeof *passes; n++)
        if (strcmp(field[0], passes[n].name) == 0)
            p->pass = passes[n].pass;
    if (!p->pass)
        return fail(err, "no pass is called", field[0], "fwd, bwd, fwdbwd, jvp or hvp");
    int code =
        field[2] ? read_sizes(p, field[2], err) : fail(err, "no sizes in", text, "write sizes as b1h8q512k512d64");
    int type = RP_F32;
    while (type <= RP_BF16 && strcmp(field[1], rp_dtype_name((rp_dtype)type)) != 0)
        type++;
    if (code == 0 && type > RP_BF16)
        return fail(err, "no type is called", field[1], "f32, f64, bf16 or f16");
    p->desc.dtype = (rp_dtype)type;
    if (code == 0 && field[3])
        code = each_part(p, field[3], err, read_term);
    if (code == 0 && field[4])
        code = each_part(p, field[4], err, read_setting);
    p->desc.terms = p->terms;
    p->desc.masks = p->masks;
    return code;
}

#ifdef _WIN32 /* freeing aligned memory would need a different function; the library accepts any address */
#define posix_memalign(at, alignment, size) ((*(at) = malloc(size)) ? 0 : -1)
#endif

/* Return the memory of this machine in bytes. Linux may promise more than this, and end the process when it is used. */
static size_t physical_memory(void)
{
#ifdef _SC_PHYS_PAGES
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
#else
    return SIZE_MAX;
#endif
}

void *problem_alloc(problem *p, size_t bytes)
{
    if (p->n_memory == (int)(sizeof p->memory / sizeof *p->memory))
        return NULL;
    void *at = NULL;
    if (bytes > physical_memory() || posix_memalign(&at, 64, bytes + 64) != 0)
        return NULL;
    memset(at, 0, bytes + 64); /* touch the pages before anything is timed or measured */
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
uint64_t problem_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state)
{
    return ((double)(problem_next(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    const double radius = sqrt(-2.0 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

int64_t problem_tokens(const char *terms)
{
    const char *grid = strstr(terms, "grid=");
    int64_t rows, columns;
    if (!grid || !read_integer(grid + 5, &grid, &rows) || *grid != 'x' || !read_integer(grid + 1, &grid, &columns))
        return 0;
    return rows * columns + (strstr(terms, "extra=1") != NULL);
}

/* Return the value of the integer parameter with this key; 1 if there is none. */
static int64_t whole_number(const rp_term *t, const char *key)
{
    const rp_param *p;
    for (int x = 0; (p = rp_term_param(t->kind, x)); x++)
        if (strcmp(p->key, key) == 0)
            return rp_param_integer(t, p, 0);
    return 1;
}

double problem_number(const rp_values *how, const rp_term *t, int64_t last, uint64_t *state)
{
    switch (how->rule) {
    case RP_RULE_UNIFORM: return how->a + (how->b - how->a) * uniform(state);
    case RP_RULE_NEGATIVE: return -how->a * fabs(normal(state));
    case RP_RULE_NORMAL_FAN: return normal(state) / sqrt((double)last);
    case RP_RULE_FACTOR: return normal(state) / sqrt(sqrt((double)whole_number(t, how->over)));
    default: return how->a > 0 ? how->a * normal(state) : normal(state);
    }
}

/* Allocate an array of zeros. Return false, and set p->failed, if there is no memory now, or was none before. */
static bool make(problem *p, rp_array *a, rp_dtype type, int32_t ndim, const int64_t *shape)
{
    int64_t n = 1;
    *a = rp_array_of(NULL, type, ndim, shape);
    for (int32_t x = 0; x < ndim; x++)
        p->failed |= __builtin_mul_overflow(n, shape[x], &n);
    a->data = p->failed || n > (int64_t)1 << 56 ? NULL : problem_alloc(p, (size_t)n * rp_dtype_size(type));
    p->failed |= !a->data;
    return a->data;
}

static const rp_values plain = {.rule = RP_RULE_NORMAL}; /* for q, k, v and dout */

/* For the setting "wild", replace a fifth of the numbers: by zeros of both signs, numbers that are subnormal or 0 in
 * f16 or f32, and large numbers that f16 can represent. */
static double made_wild(double x, uint64_t *state)
{
    static const double factors[] = {0, -0.0, 1e-5, 1e-30, 1e-42, 30, 1e3, 1e4};
    const uint64_t r = problem_next(state);
    return r % 5 ? x : fmax(fmin(x * factors[r / 5 % 8], 6e4), -6e4);
}

/* Fill an array with random numbers according to a rule, in the type of the problem. */
static void fill(problem *p, rp_array *a, int32_t ndim, const int64_t *shape, const rp_values *how, const rp_term *t,
                 uint64_t *state)
{
    double some[256];
    const int64_t size = (int64_t)rp_dtype_size(p->desc.dtype), max_elements = sizeof some / sizeof *some;
    if (!make(p, a, p->desc.dtype, ndim, shape))
        return;
    for (int64_t x = 0, left = problem_size(a); left > 0; x += max_elements, left -= max_elements) {
        const int64_t n = left < max_elements ? left : max_elements;
        for (int64_t k = 0; k < n; k++) {
            some[k] = problem_number(how, t, ndim ? shape[ndim - 1] : 1, state);
            if (p->wild && how == &plain)
                some[k] = made_wild(some[k], state);
        }
        rp_convert((char *)a->data + x * size, a->dtype, some, RP_F64, n);
    }
}

/* Generate positions with steps of 0 to 2, so their differences are not the differences of the indices. With
 * p->positions, add a random fraction to each. */
static void fill_positions(problem *p, rp_array *a, int32_t ndim, const int64_t *shape, uint64_t *state)
{
    if (!make(p, a, p->positions ? RP_F64 : RP_I32, ndim, shape))
        return;
    for (int64_t x = 0, at = 0; x < problem_size(a); x++) {
        at = x % shape[ndim - 1] ? at + (int64_t)(problem_next(state) % 3) : 0;
        if (p->positions)
            ((double *)a->data)[x] = (double)at + uniform(state);
        else
            ((int32_t *)a->data)[x] = (int32_t)at;
    }
}

static void fill_indices(problem *p, rp_array *a, int32_t ndim, const int64_t *shape, int64_t count, uint64_t *state)
{
    if (!make(p, a, count > 256 ? RP_U16 : RP_U8, ndim, shape))
        return;
    for (int64_t k = 0; k < problem_size(a); k++) {
        const uint64_t index = problem_next(state) % (uint64_t)(count < 65536 ? count : 65536);
        if (count > 256)
            ((uint16_t *)a->data)[k] = (uint16_t)index;
        else
            ((uint8_t *)a->data)[k] = (uint8_t)index;
    }
}

/* Return true if the array should be generated. Arrays that replace a default are not, so problems test the default
 * too. With p->positions, q_positions and k_positions are, but not `positions` of rope, or if angles replace them. */
static bool wanted(const problem *p, int32_t n, int x)
{
    const rp_array_facts *a = rp_term_array_about(p->terms[n].kind, x);
    bool positions = p->positions && strstr(a->name, "_positions");
    for (int y = 0; positions && y < RP_MAX_ARRAYS; y++)
        positions = !(p->named[n][y] && strstr(rp_term_array(p->terms[n].kind, y), "angles"));
    return a->presence != RP_REPLACES || p->named[n][x] || positions;
}

static void fill_term(problem *p, int32_t n, int x, uint64_t *state)
{
    rp_array *a = &p->t.term[n][x];
    const rp_term *t = &p->terms[n];
    const rp_array_facts *about = rp_term_array_about(t->kind, x);
    int32_t ndim;
    int64_t shape[RP_MAX_AXES];
    if (!about || !wanted(p, n, x) || rp_term_shape(&p->desc, n, x, &ndim, shape) != RP_OK ||
        (ndim == 0 && about->presence == RP_CONDITIONAL))
        return;
    switch (about->use) {
    case RP_USE_LEARNED: fill(p, a, ndim, shape, &about->draw, t, state); return;
    case RP_USE_POSITIONS: fill_positions(p, a, ndim, shape, state); return;
    case RP_USE_INDEX: fill_indices(p, a, ndim, shape, whole_number(t, about->draw.over), state); return;
    default: break;
    }
    const bool truth = about->use == RP_USE_TRUTH;
    if (!make(p, a, truth ? RP_BOOL : RP_F64, ndim, shape))
        return;
    for (int64_t k = 0; k < problem_size(a); k++)
        if (truth)
            ((uint8_t *)a->data)[k] = problem_next(state) % 5 != 0;
        else
            ((double *)a->data)[k] = problem_number(&about->draw, t, shape[ndim - 1], state);
}

static void fill_mask(problem *p, int32_t n, uint64_t *state)
{
    rp_array *a = &p->t.mask[n];
    int32_t ndim;
    int64_t shape[RP_MAX_AXES];
    if (rp_mask_shape(&p->desc, n, &ndim, shape) != RP_OK || ndim == 0)
        return;
    static const rp_dtype type[] = {[RP_HOLDS_TRUTH] = RP_BOOL, [RP_HOLDS_COUNTS] = RP_I64, [RP_HOLDS_LABELS] = RP_I32};
    const rp_mask_holds holds = rp_mask_info_of(p->masks[n].kind)->holds;
    if (!make(p, a, type[holds], ndim, shape))
        return;
    for (int64_t x = 0, size = problem_size(a); x < size; x++) {
        const uint64_t r = problem_next(state);
        const int64_t last = shape[ndim - 1];
        switch (holds) {
        case RP_HOLDS_COUNTS: ((int64_t *)a->data)[x] = (int64_t)(r % (uint64_t)(p->desc.len_k + 1)); break;
        case RP_HOLDS_LABELS: ((int32_t *)a->data)[x] = (int32_t)(x % last * 3 / (last + 1)); break;
        case RP_HOLDS_TRUTH: ((uint8_t *)a->data)[x] = r % 5 != 0; break;
        }
    }
}

static void fill_offsets(problem *p)
{
    const rp_desc *d = &p->desc;
    if (!make(p, &p->t.q_offset, RP_I64, 1, &d->batch))
        return;
    for (int64_t b = 0; b < d->batch; b++)
        ((int64_t *)p->t.q_offset.data)[b] = d->batch > 1 ? b * d->len_k / (d->batch - 1) : d->len_k / 2;
}

/* Return true if softcap n has a gradient and a tangent. */
static bool has_softcap(const problem *p, int n)
{
    return p->dsoftcap && (n ? p->desc.softcap_after : p->desc.softcap) > 0;
}

static void make_gradients(problem *p, uint64_t *state)
{
    const rp_dtype type = p->desc.dtype;
    const rp_array *const of[3] = {&p->t.q, &p->t.k, &p->t.v};
    rp_array *const to[3] = {&p->g.dq, &p->g.dk, &p->g.dv};
    const rp_desc *d = &p->desc;
    const int64_t pairs[4] = {d->batch, d->heads, d->len_q, d->len_k}, keys[3] = {d->batch, d->heads, d->len_k},
                  offsets[3] = {d->batch, d->heads, d->len_q + d->len_k > 0 ? d->len_q + d->len_k - 1 : 0};
    fill(p, &p->g.dout, 4, p->t.out.shape, &plain, NULL, state);
    make(p, &p->t.lse, type == RP_F64 ? RP_F64 : RP_F32, 3, p->t.out.shape);
    if (p->dlse)
        fill(p, &p->g.dlse, 3, p->t.out.shape, &plain, NULL, state);
    if (p->dweights)
        fill(p, &p->g.dweights, 4, pairs, &plain, NULL, state);
    if (p->dsummary) {
        fill(p, &p->g.dprofile, 3, offsets, &plain, NULL, state);
        fill(p, &p->g.dkey_mass, 3, keys, &plain, NULL, state);
        fill(p, &p->g.dentropy, 3, p->t.out.shape, &plain, NULL, state);
    }
    for (int n = 0; n < 3; n++)
        make(p, to[n], type, of[n]->ndim, of[n]->shape);
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            const rp_array *a = &p->t.term[n][x];
            if (a->data && rp_term_array_learned(p->terms[n].kind, x))
                make(p, &p->g.term[n][x], type, a->ndim, a->shape);
        }
    rp_array *const of_softcap[2] = {&p->g.dsoftcap, &p->g.dsoftcap_after};
    for (int n = 0; n < 2; n++)
        if (has_softcap(p, n))
            make(p, of_softcap[n], type, 0, NULL);
}

/* Generate tangents of q, k, v and every learned array, and allocate those of out and lse. */
static void make_tangents(problem *p, uint64_t *state)
{
    const rp_dtype type = p->desc.dtype;
    const rp_array *const of[3] = {&p->t.q, &p->t.k, &p->t.v};
    rp_array *const to[3] = {&p->x.q, &p->x.k, &p->x.v};
    make(p, &p->x.out, type, 4, p->t.out.shape);
    make(p, &p->x.lse, type == RP_F64 ? RP_F64 : RP_F32, 3, p->t.out.shape);
    for (int n = 0; n < 3; n++)
        fill(p, to[n], of[n]->ndim, of[n]->shape, &plain, NULL, state);
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            const rp_array *a = &p->t.term[n][x];
            if (a->data && rp_term_array_learned(p->terms[n].kind, x))
                fill(p, &p->x.term[n][x], a->ndim, a->shape, &plain, NULL, state);
        }
    rp_array *const of_softcap[2] = {&p->x.softcap, &p->x.softcap_after};
    for (int n = 0; n < 2; n++)
        if (has_softcap(p, n))
            fill(p, of_softcap[n], 0, NULL, &plain, NULL, state);
}

int problem_fill(problem *p, uint64_t seed, char err[512])
{
    rp_desc *d = &p->desc;
    uint64_t state = seed;
    const int64_t Hk = d->kv_heads ? d->kv_heads : d->heads, Dv = d->dim_v ? d->dim_v : d->dim_k;
    const int64_t q[4] = {d->batch, d->heads, d->len_q, d->dim_k}, k[4] = {d->batch, Hk, d->len_k, d->dim_k},
                  v[4] = {d->batch, Hk, d->len_k, Dv}, out[4] = {d->batch, d->heads, d->len_q, Dv};
    rp_plan *plan; /* created only to check the description before allocating memory */
    if (rp_plan_create(&plan, d) != RP_OK) {
        snprintf(err, 512, "problem %.100s: %.360s (relpos info)", p->text, problem_words(&p->desc, (char[512]){0}));
        return FAILED;
    }
    rp_plan_destroy(plan);
    p->failed = false;
    p->t = rp_tensors_init();
    p->g = rp_grads_init();
    p->x = rp_tangents_init();
    p->softcap[0] = rp_array_of(&d->softcap, RP_F64, 0, NULL);
    p->softcap[1] = rp_array_of(&d->softcap_after, RP_F64, 0, NULL);
    fill(p, &p->t.q, 4, q, &plain, NULL, &state);
    fill(p, &p->t.k, 4, k, &plain, NULL, &state);
    fill(p, &p->t.v, 4, v, &plain, NULL, &state);
    make(p, &p->t.out, d->dtype, 4, out);
    for (int32_t n = 0; n < d->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            fill_term(p, n, x, &state);
    for (int32_t n = 0; n < d->n_masks; n++)
        fill_mask(p, n, &state);
    if (p->q_offsets)
        fill_offsets(p);
    if (p->pass & (PROBLEM_BACKWARD | PROBLEM_SECOND))
        make_gradients(p, &state);
    if (p->pass & (PROBLEM_TANGENTS | PROBLEM_SECOND))
        make_tangents(p, &state);
    if (!p->failed)
        return 0;
    fail(err, "out of memory while creating", p->text, "use smaller sizes");
    return FAILED;
}

rp_status problem_run(const problem *p, const rp_plan *plan)
{
    rp_status status = RP_OK;
    if (p->pass & PROBLEM_FORWARD)
        status = rp_attend(plan, &p->t, NULL);
    if (status == RP_OK && p->pass & PROBLEM_BACKWARD)
        status = rp_backward(plan, &p->t, &p->g, NULL);
    if (p->pass & PROBLEM_TANGENTS)
        status = rp_jvp(plan, &p->t, &p->x);
    if (p->pass & PROBLEM_SECOND)
        status = rp_hvp(plan, &p->t, &p->x, &p->g);
    return status;
}

/* Return the number of pairs per batch entry and head that remain after masks without arrays, and after causal
 * terms. */
static double pairs_of(const problem *p, int64_t q_offset)
{
    rp_desc d = p->desc;
    double pairs = 0;
    bool causal = false;
    d.q_offset = q_offset;
    for (int32_t n = 0; n < d.n_terms; n++)
        causal |= rp_term_is_causal(d.terms[n].kind);
    d.n_terms = 0; /* masks do not need the terms */
    for (int64_t i = 0; i < d.len_q; i++) {
        int64_t lo = 0, hi = causal && i + q_offset + 1 < d.len_k ? i + q_offset + 1 : d.len_k, first, end;
        for (int32_t n = 0; n < d.n_masks; n++) {
            if (rp_mask_info_of(d.masks[n].kind)->axes ||
                rp_mask_row(&d, n, NULL, 0, 0, i, &first, &end, NULL) != RP_OK)
                continue;
            lo = first > lo ? first : lo;
            hi = end < hi ? end : hi;
        }
        pairs += hi > lo ? (double)(hi - lo) : 0;
    }
    return pairs;
}

double problem_flops(const problem *p)
{
    const rp_desc *d = &p->desc;
    const double Dk = (double)d->dim_k, Dv = (double)(d->dim_v ? d->dim_v : d->dim_k);
    const int64_t *offsets = p->t.q_offset.data;
    double pairs = offsets ? 0 : (double)d->batch * pairs_of(p, d->q_offset), widths = 0;
    for (int64_t b = 0; offsets && b < d->batch; b++)
        pairs += pairs_of(p, offsets[b]);
    if (p->pass & PROBLEM_FORWARD)
        widths += Dk + Dv; /* q k, w v */
    if (p->pass & PROBLEM_BACKWARD)
        widths += 3 * Dk + 2 * Dv; /* q k, ds k, ds q; dout v, w dout */
    if (p->pass & PROBLEM_TANGENTS)
        widths += 3 * (Dk + Dv); /* q k, q' k, q k'; w v, w s' v, w v' */
    if (p->pass & PROBLEM_SECOND)
        widths += 10 * Dk + 6 * Dv; /* those of tangents; q k, q' k, q k', dout v, dout v', and of dq 2, dk 2, dv 1 */
    return 2.0 * (double)d->heads * pairs * widths;
}

double problem_bytes(const problem *p)
{
    const rp_array *const of[] = {&p->t.q,  &p->t.k,  &p->t.v, &p->t.out, &p->g.dout, &p->g.dq,
                                  &p->g.dk, &p->g.dv, &p->x.q, &p->x.k,   &p->x.v,    &p->x.out};
    double bytes = 0;
    for (size_t n = 0; n < sizeof of / sizeof *of; n++)
        if (of[n]->data)
            bytes += (double)problem_size(of[n]) * (double)rp_dtype_size(of[n]->dtype);
    return bytes;
}
