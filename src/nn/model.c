/* model.c -- the weights: their names, shapes and first values, and the position terms that the configuration names.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nn.h"
#include "base/random.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ numbers */

uint64_t nn_random(uint64_t seed, uint64_t stream, uint64_t n)
{
    return rpi_mix64(rpi_mix64(rpi_mix64(seed + 0x9e3779b97f4a7c15u) ^ (stream + 0xd1b54a32d192ed03u)) ^
                     (n + 0x8cb92ba72f3d8dd7u));
}

double nn_uniform(uint64_t seed, uint64_t stream, uint64_t n)
{
    return (double)(nn_random(seed, stream, n) >> 11) * 0x1p-53;
}

double nn_normal(uint64_t seed, uint64_t stream, uint64_t n)
{
    const double u = 1 - nn_uniform(seed, stream, 2 * n),
                 v = nn_uniform(seed, stream, 2 * n + 1); /* Box, Muller 1958 */
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* A parameter's numbers depend on its name and the seed alone, so that models which differ in their position terms start from
 * the same weights otherwise. */
static uint64_t stream_of(const char *name)
{
    uint64_t z = 0;
    for (; *name; name++)
        z = rpi_mix64(z ^ (uint64_t)(unsigned char)*name) + 0x9e3779b97f4a7c15u;
    return z;
}

/* ------------------------------------------------------------------------------------------------ first values */

typedef enum start_rule {
    START_NORMAL,
    START_ONE,
    START_ZERO,
    START_UNIFORM,
    START_XAVIER,
    START_FAN_IN,
    START_SLOPES
} start_rule;

/* How the learned arrays of a term begin, and what they may not fall below. What is not here begins as normal(0.02). */
static const struct start_line {
    rp_term_kind kind;
    const char *array;
    start_rule rule;
    double size, least;
} starts[] = {
    {RP_TERM_ALIBI, "slopes", START_SLOPES, 0, -INFINITY}, /* the paper's */
    {RP_TERM_KERPLE, "p", START_UNIFORM, 2, 0.01}, /* positive, as the paper asks; bounds of its published code */
    {RP_TERM_KERPLE, "a", START_UNIFORM, 1, 0.01},
    {RP_TERM_RELKEY, "table", START_XAVIER, 0, -INFINITY}, /* Glorot, Bengio 2010 */
    {RP_TERM_RELVAL, "table", START_XAVIER, 0, -INFINITY},
    {RP_TERM_FIRE, "w1", START_FAN_IN, 1, -INFINITY}, /* as torch.nn.Linear begins */
    {RP_TERM_FIRE, "b1", START_FAN_IN, 1, -INFINITY},
    {RP_TERM_FIRE, "w2", START_FAN_IN, 0, -INFINITY},
    {RP_TERM_FIRE, "b2", START_ZERO, 0, -INFINITY},
    {RP_TERM_FIRE, "w3", START_FAN_IN, 0, -INFINITY},
    {RP_TERM_FIRE, "b3", START_ZERO, 0, -INFINITY},
    {RP_TERM_XL, "u", START_ZERO, 0, -INFINITY},
    {RP_TERM_XL, "v", START_ZERO, 0, -INFINITY},
    {RP_TERM_SINK, "sink", START_ZERO, 0, -INFINITY},
};

static void fill(const nn_model *m, const nn_param *p, start_rule rule, double size)
{
    const uint64_t stream = stream_of(p->name), seed = (uint64_t)m->c.seed;
    const int64_t last = p->ndim ? p->shape[p->ndim - 1] : 1, before = p->ndim > 1 ? p->shape[p->ndim - 2] : 1;
    const double fan =
        rule == START_XAVIER ? sqrt(6.0 / (double)(last + before)) : 1 / sqrt(size > 0 ? size : (double)last);
    for (int64_t x = 0; x < p->size; x++) {
        double y = 0;
        switch (rule) {
        case START_NORMAL: y = size * nn_normal(seed, stream, (uint64_t)x); break;
        case START_ONE: y = 1; break;
        case START_ZERO: break;
        case START_UNIFORM: y = fmax(p->least, size * nn_uniform(seed, stream, (uint64_t)x)); break;
        case START_XAVIER:
        case START_FAN_IN: y = fan * (2 * nn_uniform(seed, stream, (uint64_t)x) - 1); break;
        case START_SLOPES: y = rp_alibi_slope(x, p->size); break;
        }
        m->w[p->offset + x] = (real)y;
    }
}

static void fill_param(const nn_model *m, const nn_param *p)
{
    const size_t n = strlen(p->name);
    const char *array = strrchr(p->name, '.') + 1;
    for (int32_t t = 0; t < m->n_terms; t++) { /* "….t5.table" */
        const size_t name = strlen(m->terms[t].name), tail = name + 1 + strlen(array);
        if (n <= tail || p->name[n - tail - 1] != '.' || strncmp(p->name + n - tail, m->terms[t].name, name) != 0)
            continue;
        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
            if (starts[s].kind == m->terms[t].term.kind && strcmp(starts[s].array, array) == 0) {
                fill(m, p, starts[s].rule, starts[s].size);
                return;
            }
    }
    const bool into_stream = strstr(p->name, ".out.weight") || strstr(p->name, ".down.weight");
    if (strstr(p->name, "norm.weight"))
        fill(m, p, START_ONE, 0);
    else if (strstr(p->name, "norm.bias"))
        fill(m, p, START_ZERO, 0);
    else /* what is added to the stream 2 x layers times is smaller: Radford 2019 */
        fill(m, p, START_NORMAL, into_stream ? 0.02 / sqrt(2.0 * (double)m->c.layers) : 0.02);
}

/* ------------------------------------------------------------------------------------------------ parameters */

static int add_param(nn_model *m, char err[NN_ERR_MAX], bool decay, int32_t ndim, const int64_t *shape,
                     const char *format, ...) __attribute__((format(printf, 6, 7)));

static int add_param(nn_model *m, char err[NN_ERR_MAX], bool decay, int32_t ndim, const int64_t *shape,
                     const char *format, ...)
{
    nn_param p = {.ndim = ndim, .offset = m->n_weights, .size = 1, .decay = decay, .least = -INFINITY};
    va_list list;
    va_start(list, format);
    vsnprintf(p.name, sizeof p.name, format, list);
    va_end(list);
    for (int32_t x = 0; x < ndim; x++) {
        p.shape[x] = shape[x];
        if (__builtin_mul_overflow(p.size, shape[x], &p.size) || p.size > (int64_t)1 << 48)
            return nn_fail(err, "%s: more than 2^48 numbers (smaller sizes)", p.name);
    }
    if (m->n_params % 64 == 0) {
        nn_param *more = realloc(m->params, ((size_t)m->n_params + 64) * sizeof *more);
        m->no_memory = !more;
        if (!more)
            return nn_fail(err, "lab: no memory for the list of weights (fewer layers)");
        m->params = more;
    }
    m->params[m->n_params++] = p;
    m->n_weights += (p.size + 15) / 16 * 16; /* each begins on a cache line */
    return 0;
}

int32_t nn_model_find(const nn_model *m, const char *name)
{
    for (int32_t n = 0; n < m->n_params; n++)
        if (strcmp(m->params[n].name, name) == 0)
            return n;
    return -1;
}

/* Sizes that the text leaves open. */
static void default_sizes(rp_term *t)
{
    if (t->kind == RP_TERM_FIRE && t->width == 0)
        t->width = 32;
    if (t->kind == RP_TERM_BAND && t->width == 0)
        t->width = 8;
    if (t->kind == RP_TERM_BAND && t->extent == 0)
        t->extent = 64;
    if (t->kind == RP_TERM_DEBERTA && t->span == 0 && t->max_position == 0)
        t->span = t->buckets > 0 ? t->buckets : 64;
}

static int add_term(nn_model *m, const char *text, bool named[RP_MAX_TERMS][RP_MAX_ARRAYS], char err[NN_ERR_MAX])
{
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    if (strcmp(text, "none") == 0 || strcmp(text, "sinusoidal") == 0 || strcmp(text, "learned") == 0) {
        m->sinusoidal |= *text == 's';
        m->learned |= *text == 'l';
        return 0;
    }
    if (m->n_terms == RP_MAX_TERMS)
        return nn_fail(err, "position: more than %d terms", RP_MAX_TERMS);
    nn_term *t = &m->terms[m->n_terms];
    if (rp_term_parse(text, &t->term, names) != RP_OK)
        return nn_fail(err, "position: %s (none, sinusoidal, learned, or a term of relpos info)", rp_last_error());
    default_sizes(&t->term);
    int same = 0;
    for (int32_t n = 0; n < m->n_terms; n++)
        same += m->terms[n].term.kind == t->term.kind;
    snprintf(t->name, sizeof t->name, same ? "%s_%d" : "%s", rp_term_name(t->term.kind), same);
    for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(t->term.kind, x); x++) {
        const bool learned = rp_term_array_learned(t->term.kind, x);
        named[m->n_terms][x] = *names[x] != 0;
        if (*names[x] && !learned)
            return nn_fail(err, "position: %s: %s is no learned array (the lab counts positions from 0)", t->name,
                           rp_term_array(t->term.kind, x));
    }
    m->n_terms++;
    return 0;
}

/* "sinusoidal+t5,buckets=16": a plus sign before a letter begins another, so that 1e+3 may be written. */
static int read_terms(nn_model *m, bool named[RP_MAX_TERMS][RP_MAX_ARRAYS], char err[NN_ERR_MAX])
{
    char word[NN_TEXT_MAX];
    for (const char *from = m->c.position; from;) {
        const char *plus = from;
        while ((plus = strchr(plus, '+')) && !isalpha((unsigned char)plus[1]))
            plus++;
        snprintf(word, sizeof word, "%.*s", plus ? (int)(plus - from) : (int)strlen(from), from);
        for (size_t n = strlen(word); n > 0 && word[n - 1] == ' '; n--)
            word[n - 1] = 0;
        if (add_term(m, word + strspn(word, " "), named, err) != 0)
            return -1;
        from = plus ? plus + 1 : NULL;
    }
    return 0;
}

/* The shape of an array of a term at other sizes than the model's: the axes that move with them tell what they are. */
static int shape_at(const nn_model *m, int32_t term, int x, int64_t batch, int64_t heads, int64_t more, int32_t *ndim,
                    int64_t *shape, char err[NN_ERR_MAX])
{
    rp_term terms[RP_MAX_TERMS];
    rp_desc d = rp_desc_init(batch, heads, m->c.length + more, m->c.length + more, m->c.width / m->c.heads);
    for (int32_t n = 0; n < m->n_terms; n++)
        terms[n] = m->terms[n].term;
    d.terms = terms;
    d.n_terms = m->n_terms;
    d.dtype = NN_REAL;
    if (rp_term_shape(&d, term, x, ndim, shape) != RP_OK)
        return nn_fail(err, "position: %s", rp_last_error());
    return 0;
}

/* Where the arrays of term n come from; parameters are named "PREFIX.t5.table". */
static int add_arrays(nn_model *m, int32_t n, const char *prefix, const bool *named, char err[NN_ERR_MAX])
{
    nn_term *t = &m->terms[n];
    const rp_term_kind kind = t->term.kind;
    for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(kind, x); x++) {
        const char *array = rp_term_array(kind, x);
        int32_t ndim, other_ndim;
        int64_t shape[RP_MAX_AXES], other[RP_MAX_AXES], heads[RP_MAX_AXES], columns = 0;
        const bool optional = rp_term_array_optional(kind, x);
        /* xl and deberta are nothing without the arrays that they may do without */
        const bool taken = !optional || named[x] || kind == RP_TERM_XL || kind == RP_TERM_DEBERTA ||
                           (kind == RP_TERM_FIRE && x >= 4 && t->term.width2 > 0);
        t->source[x] = NN_ABSENT;
        if (!taken || !rp_term_array_learned(kind, x))
            continue;
        if (shape_at(m, n, x, 1, m->c.heads, 0, &ndim, shape, err) != 0 ||
            shape_at(m, n, x, 2, m->c.heads, 1, &other_ndim, other, err) != 0 ||
            shape_at(m, n, x, 1, 2 * m->c.heads, 0, &other_ndim, heads, err) != 0)
            return -1;
        bool moves = false;
        for (int32_t a = 0; a < ndim; a++)
            moves |= shape[a] != other[a];
        if (ndim == 0 && named[x]) /* such as w3 of fire */
            return nn_fail(err, "position: %s: %s is given, and its size is 0 (fire has a third layer with width2=N)",
                           t->name, array);
        if (ndim == 0)
            continue;
        if (moves && kind == RP_TERM_XL) {
            t->source[x] = NN_SINUSOID;
            if (add_param(m, err, true, 2, (int64_t[]){m->c.width, m->c.width}, "%s.%s.%s.weight", prefix, t->name,
                          array) != 0)
                return -1;
            continue;
        }
        if (moves && kind == RP_TERM_BAND) {
            t->source[x] = NN_COLUMNS;
            columns = m->c.heads * t->term.width;
            t->column[x] = m->columns;
            m->columns += columns;
            continue;
        }
        if (moves)
            return nn_fail(
                err, "position: %s: its array %s is as long as the text (the lab has no projection that makes it)",
                t->name, array);
        t->source[x] = NN_LEARNED;
        for (int32_t a = 0; a < ndim; a++)
            if (m->c.position_heads && shape[a] != heads[a])
                shape[a] = 1;
        if (add_param(m, err, false, ndim, shape, "%s.%s.%s", prefix, t->name, array) != 0)
            return -1;
        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
            if (starts[s].kind == kind && strcmp(starts[s].array, array) == 0)
                m->params[m->n_params - 1].least = starts[s].least;
    }
    return 0;
}

static int add_norm(nn_model *m, const char *name, char err[NN_ERR_MAX])
{
    const int64_t d = m->c.width;
    if (add_param(m, err, false, 1, &d, "%s.weight", name) != 0)
        return -1;
    return m->c.norm == NN_LAYERNORM ? add_param(m, err, false, 1, &d, "%s.bias", name) : 0;
}

int nn_model_plan(nn_model *m, const nn_config *c, char err[NN_ERR_MAX])
{
    bool named[RP_MAX_TERMS][RP_MAX_ARRAYS] = {{false}};
    const int64_t d = c->width;
    memset(m, 0, sizeof *m);
    m->c = *c;
    m->columns = 3 * d;
    if (nn_config_check(c, err) != 0 || read_terms(m, named, err) != 0 ||
        add_param(m, err, true, 2, (int64_t[]){c->vocab, d}, "embedding.weight") != 0)
        return -1;
    if (m->learned && add_param(m, err, true, 2, (int64_t[]){c->length, d}, "positions.weight") != 0)
        return -1;
    for (int32_t n = 0; n < m->n_terms && c->position_layers; n++)
        if (add_arrays(m, n, "attn", named[n], err) != 0)
            return -1;
    for (int64_t l = 0; l < c->layers; l++) {
        char name[64];
        int code = 0;
        snprintf(name, sizeof name, "layers.%lld.attn_norm", (long long)l);
        code = add_norm(m, name, err);
        snprintf(name, sizeof name, "layers.%lld.attn", (long long)l);
        if (!c->position_layers)
            m->columns = 3 * d;
        for (int32_t n = 0; n < m->n_terms && !c->position_layers && code == 0; n++)
            code = add_arrays(m, n, name, named[n], err);
        if (code == 0)
            code = add_param(m, err, true, 2, (int64_t[]){m->columns, d}, "%s.qkv.weight", name);
        if (code == 0)
            code = add_param(m, err, true, 2, (int64_t[]){d, d}, "%s.out.weight", name);
        snprintf(name, sizeof name, "layers.%lld.mlp_norm", (long long)l);
        if (code == 0)
            code = add_norm(m, name, err);
        if (code == 0)
            code = add_param(m, err, true, 2, (int64_t[]){c->act == NN_SWIGLU ? 2 * c->mlp : c->mlp, d},
                             "layers.%lld.mlp.up.weight", (long long)l);
        if (code == 0)
            code = add_param(m, err, true, 2, (int64_t[]){d, c->mlp}, "layers.%lld.mlp.down.weight", (long long)l);
        if (code != 0)
            return -1;
    }
    if (add_norm(m, "norm", err) != 0)
        return -1;
    if (c->task == NN_CLASSIFIER || !c->tied)
        return add_param(m, err, true, 2, (int64_t[]){c->task == NN_CLASSIFIER ? c->classes : c->vocab, d},
                         "head.weight");
    return 0;
}

int nn_model_create(nn_model *m, const nn_config *c, bool train, char err[NN_ERR_MAX])
{
    if (nn_model_plan(m, c, err) != 0) {
        nn_model_destroy(m);
        return -1;
    }
    const size_t bytes = ((size_t)m->n_weights * sizeof(real) + 63) / 64 * 64;
    real **const arenas[] = {&m->w, &m->g, &m->m, &m->v};
    for (int n = 0; n < (train ? 4 : 1); n++) {
        *arenas[n] = aligned_alloc(64, bytes);
        if (!*arenas[n]) {
            nn_model_destroy(m);
            return nn_fail(err, "lab: no memory for %lld weights (smaller width or fewer layers)",
                           (long long)m->n_weights);
        }
        memset(*arenas[n], 0, bytes);
    }
    for (int32_t n = 0; n < m->n_params; n++)
        fill_param(m, &m->params[n]);
    return 0;
}

int nn_model_as(nn_model *m, const nn_model *from, const char *position, char err[NN_ERR_MAX])
{
    nn_config c = from->c;
    memset(m, 0, sizeof *m);
    if (nn_config_set(&c, "position", position, err) != 0 || nn_model_create(m, &c, false, err) != 0)
        return -1;
    bool same = m->n_params == from->n_params;
    for (int32_t n = 0; n < m->n_params && same; n++)
        same = strcmp(m->params[n].name, from->params[n].name) == 0 && m->params[n].size == from->params[n].size;
    if (!same) {
        nn_model_destroy(m);
        return nn_fail(err, "position: %.100s has other weights than %.100s, with which the model was trained",
                       position, from->c.position);
    }
    memcpy(m->w, from->w, (size_t)m->n_weights * sizeof *m->w);
    return 0;
}

void nn_model_destroy(nn_model *m)
{
    free(m->params);
    free(m->w);
    free(m->g);
    free(m->m);
    free(m->v);
    nn_pieces_free(m->pieces);
    memset(m, 0, sizeof *m);
}
