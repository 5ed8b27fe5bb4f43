/* parameters.c -- determines the parameters of a model (their names and shapes) and the position terms of its
 * configuration. first_values.c sets the initial values.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <relpos/facts.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_param(nn_model *m, char err[NN_ERR_MAX], bool decay, int32_t ndim, const int64_t *shape,
                     const char *format, ...) __attribute__((format(printf, 6, 7)));

static int add_param(nn_model *m, char err[NN_ERR_MAX], bool decay, int32_t ndim, const int64_t *shape,
                     const char *format, ...)
{
    nn_param p = {.ndim = ndim, .offset = m->n_weights, .size = 1, .decay = decay, .min = -INFINITY};
    va_list list;
    va_start(list, format);
    vsnprintf(p.name, sizeof p.name, format, list);
    va_end(list);
    for (int32_t x = 0; x < ndim; x++) {
        p.shape[x] = shape[x];
        if (__builtin_mul_overflow(p.size, shape[x], &p.size) || p.size > (int64_t)1 << 48)
            return nn_fail(err, "%s: more than 2^48 numbers (use smaller sizes)", p.name);
    }
    if (m->n_params % 64 == 0) {
        nn_param *more = realloc(m->params, ((size_t)m->n_params + 64) * sizeof *more);
        m->no_memory = !more;
        if (!more)
            return nn_fail(err, "lab: out of memory while creating the list of weights (use fewer layers)");
        m->params = more;
    }
    m->params[m->n_params++] = p;
    m->n_weights += (p.size + 15) / 16 * 16; /* align each parameter to a cache line */
    return 0;
}

static const char *const fire_scale_names[2] = {"c", "L_factor"};

/* Write the prefix of the parameter names of a layer's terms, such as "layers.3.attn". */
static void term_prefix(const nn_model *m, int32_t stack, int64_t layer, char name[64])
{
    if (m->c.position_layers)
        snprintf(name, 64, "%sattn", m->stack[stack].prefix);
    else
        snprintf(name, 64, "%slayers.%lld.attn", m->stack[stack].prefix, (long long)layer);
}

bool nn_fire_scales(const nn_model *m, int32_t stack, int64_t layer, int32_t term, int32_t param[2])
{
    const nn_term *t = &m->stack[stack].terms[term];
    char prefix[64], name[128];
    if (!m->c.fire_scales || t->term.kind != RP_TERM_FIRE)
        return false;
    term_prefix(m, stack, layer, prefix);
    for (int x = 0; x < 2; x++) {
        snprintf(name, sizeof name, "%s.%s.%s", prefix, t->name, fire_scale_names[x]);
        param[x] = nn_model_find(m, name);
    }
    return param[0] >= 0 && param[1] >= 0;
}

int32_t nn_layer_terms(const nn_model *m, int32_t stack, int64_t layer, rp_term terms[RP_MAX_TERMS])
{
    const bool none = m->c.nope_every > 0 && (layer + 1) % m->c.nope_every == 0;
    const int32_t n_terms = none ? 0 : m->stack[stack].n_terms;
    for (int32_t n = 0; n < n_terms && terms; n++) {
        int32_t param[2];
        terms[n] = m->stack[stack].terms[n].term;
        if (m->w && nn_fire_scales(m, stack, layer, n, param)) {
            terms[n].c = (double)m->w[m->params[param[0]].offset];
            terms[n].L *= (double)m->w[m->params[param[1]].offset];
        }
    }
    return n_terms;
}

int64_t nn_positions_end(const nn_model *m, int32_t stack)
{
    const nn_stack *s = &m->stack[stack];
    return m->c.random_positions > 0 ? m->c.random_positions : s->learned ? s->length : INT64_MAX;
}

int32_t nn_model_find(const nn_model *m, const char *name)
{
    for (int32_t n = 0; n < m->n_params; n++)
        if (strcmp(m->params[n].name, name) == 0)
            return n;
    return -1;
}

static int add_term(nn_stack *s, const char *text, bool named[RP_MAX_TERMS][RP_MAX_ARRAYS], char err[NN_ERR_MAX])
{
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    if (strcmp(text, "none") == 0 || strcmp(text, "sinusoidal") == 0 || strcmp(text, "learned") == 0) {
        s->sinusoidal |= *text == 's';
        s->learned |= *text == 'l';
        return 0;
    }
    if (s->n_terms == RP_MAX_TERMS)
        return nn_fail(err, "position: it has more than %d terms (remove some)", RP_MAX_TERMS);
    nn_term *t = &s->terms[s->n_terms];
    if (rp_term_parse(text, &t->term, names) != RP_OK)
        return nn_fail(err, "position: %s (use none, sinusoidal, learned, or a term that relpos info lists)",
                       NN_WORDS(NULL));
    rp_term_usual_sizes(&t->term, s->length);
    int same = 0;
    for (int32_t n = 0; n < s->n_terms; n++)
        same += s->terms[n].term.kind == t->term.kind;
    snprintf(t->name, sizeof t->name, same ? "%s_%d" : "%s", rp_term_name(t->term.kind), same);
    for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(t->term.kind, x); x++) {
        const bool learned = rp_term_array_learned(t->term.kind, x);
        named[s->n_terms][x] = *names[x] != 0;
        if (*names[x] && !learned)
            return nn_fail(err, "position: %s: %s is not a learned array (remove it; the lab counts positions from 0)",
                           t->name, rp_term_array(t->term.kind, x));
    }
    s->n_terms++;
    return 0;
}

/* Read the terms of a text such as "sinusoidal+t5,buckets=16". A plus sign separates terms only before a letter: in
 * 1e+3 it belongs to a number. */
static int read_terms(nn_stack *s, const char *position, bool named[RP_MAX_TERMS][RP_MAX_ARRAYS], char err[NN_ERR_MAX])
{
    char word[NN_TEXT_MAX];
    for (const char *from = position; from;) {
        const char *plus = from;
        while ((plus = strchr(plus, '+')) && !isalpha((unsigned char)plus[1]))
            plus++;
        snprintf(word, sizeof word, "%.*s", plus ? (int)(plus - from) : (int)strlen(from), from);
        for (size_t n = strlen(word); n > 0 && word[n - 1] == ' '; n--)
            word[n - 1] = 0;
        if (add_term(s, word + strspn(word, " "), named, err) != 0)
            return -1;
        from = plus ? plus + 1 : NULL;
    }
    return 0;
}

/* Get the shape of an array of a term for this batch size, this number of heads, and a length that is larger by
 * `longer`. Comparing the shapes of two calls shows on which of the three an axis depends. */
static int shape_at(const nn_model *m, const nn_stack *s, int32_t term, int x, int64_t batch, int64_t heads,
                    int64_t longer, int32_t *ndim, int64_t *shape, char err[NN_ERR_MAX])
{
    rp_term terms[RP_MAX_TERMS];
    rp_desc d = rp_desc_init(batch, heads, s->length + longer, s->length + longer, m->c.width / m->c.heads);
    for (int32_t n = 0; n < s->n_terms; n++)
        terms[n] = s->terms[n].term;
    d.terms = terms;
    d.n_terms = s->n_terms;
    d.dtype = LAYERS_REAL;
    if (rp_term_shape(&d, term, x, ndim, shape) != RP_OK)
        return nn_fail(err, "position: %s", NN_WORDS(&d));
    return 0;
}

/* Connect the position arrays of a term to random positions. */
static int add_positions(nn_term *t, char err[NN_ERR_MAX])
{
    bool found = t->term.kind == RP_TERM_SINK || t->term.kind == RP_TERM_FORGET; /* these terms do not use positions */
    for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(t->term.kind, x); x++) {
        const char *array = rp_term_array(t->term.kind, x);
        const bool queries = strcmp(array, "q_positions") == 0, keys = strcmp(array, "k_positions") == 0;
        if (queries || keys)
            t->source[x] = queries ? NN_QUERIES : NN_KEYS;
        found |= queries;
    }
    return found
               ? 0
               : nn_fail(
                     err,
                     "random_positions: %s takes no positions, because it counts tokens (set random_positions = 0, or "
                     "use another term)",
                     t->name);
}

/* The shape of an array of a term. */
typedef struct array_shape {
    int32_t ndim; /* 0: no array with these settings */
    int64_t n[RP_MAX_AXES];
    bool per_head[RP_MAX_AXES]; /* the length depends on the number of heads */
    bool grows;                 /* a length depends on batch or length: not a parameter, each call computes the array */
} array_shape;

static int shape_of(const nn_model *m, const nn_stack *s, int32_t term, int x, array_shape *to, char err[NN_ERR_MAX])
{
    int32_t ndim;
    int64_t other[RP_MAX_AXES], heads[RP_MAX_AXES];
    *to = (array_shape){.ndim = 0};
    if (shape_at(m, s, term, x, 1, m->c.heads, 0, &to->ndim, to->n, err) != 0 ||
        shape_at(m, s, term, x, 2, m->c.heads, 1, &ndim, other, err) != 0 ||
        shape_at(m, s, term, x, 1, 2 * m->c.heads, 0, &ndim, heads, err) != 0)
        return -1;
    for (int32_t a = 0; a < to->ndim; a++) {
        to->grows |= to->n[a] != other[a];
        to->per_head[a] = to->n[a] != heads[a];
    }
    return 0;
}

/* Decide how each call computes array x of a term, and add the parameters from which it does. */
static int add_computed(nn_model *m, nn_stack *s, nn_term *t, int x, const array_shape *shape, const char *prefix,
                        char err[NN_ERR_MAX])
{
    const char *array = rp_term_array(t->term.kind, x);
    const rp_array_facts *about = rp_term_array_about(t->term.kind, x);
    if (about->start.rule == RP_RULE_SINUSOIDS) {
        t->source[x] = NN_SINUSOID;
        return add_param(m, err, true, 2, (int64_t[]){m->c.width, m->c.width}, "%s.%s.%s.weight", prefix, t->name,
                         array);
    }
    if (about->start.rule == RP_RULE_PROJECTED) {
        t->source[x] = NN_COLUMNS;
        t->column[x] = s->columns;
        s->columns += m->c.heads * shape->n[shape->ndim - 1];
        return 0;
    }
    if (shape->ndim == 3 && about->draw.rule == RP_RULE_NEGATIVE) { /* log gates, one per key */
        t->source[x] = NN_GATE;
        t->column[x] = s->columns;
        s->columns += m->c.heads;
        if (add_param(m, err, false, 1, &m->c.heads, "%s.%s.%s.bias", prefix, t->name, array) != 0)
            return -1;
        m->params[m->n_params - 1].of_term = true;
        return 0;
    }
    return nn_fail(err,
                   "position: %s: its array %s is as long as the text, and the lab has no projection to compute it "
                   "(use another term)",
                   t->name, array);
}

/* Add array x of a term as a parameter. */
static int add_learned(nn_model *m, nn_term *t, int x, array_shape *shape, const char *prefix, char err[NN_ERR_MAX])
{
    const rp_array_facts *about = rp_term_array_about(t->term.kind, x);
    t->source[x] = NN_LEARNED;
    for (int32_t a = 0; a < shape->ndim; a++)
        if (m->c.position_heads && shape->per_head[a])
            shape->n[a] = 1;
    if (add_param(m, err, false, shape->ndim, shape->n, "%s.%s.%s", prefix, t->name, about->name) != 0)
        return -1;
    m->params[m->n_params - 1].of_term = true;
    if (about->min != 0)
        m->params[m->n_params - 1].min = about->min;
    return 0;
}

static int add_fire_scales(nn_model *m, const nn_term *t, const char *prefix, char err[NN_ERR_MAX])
{
    for (int x = 0; x < 2; x++) {
        if (add_param(m, err, false, 1, (int64_t[]){1}, "%s.%s.%s", prefix, t->name, fire_scale_names[x]) != 0)
            return -1;
        m->params[m->n_params - 1].of_term = true;
        m->params[m->n_params - 1].min = 1e-4; /* the formula uses |c| and ignores L below 0 */
    }
    return 0;
}

/* Decide where each array of term n comes from. Add a parameter for each learned array, with a name such as
 * "PREFIX.t5.table". */
static int add_arrays(nn_model *m, nn_stack *s, int32_t n, const char *prefix, const bool *named, char err[NN_ERR_MAX])
{
    nn_term *t = &s->terms[n];
    const rp_term_kind kind = t->term.kind;
    for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(kind, x); x++) {
        const char *array = rp_term_array(kind, x);
        const rp_array_facts *about = rp_term_array_about(kind, x);
        array_shape shape;
        t->source[x] = NN_ABSENT;
        const bool given =
            (about->use == RP_USE_CONSTANT || about->use == RP_USE_INDEX) && about->presence <= RP_CONDITIONAL;
        if (!given && (about->use != RP_USE_LEARNED || (about->presence == RP_REPLACES && !named[x])))
            continue;
        if (shape_of(m, s, n, x, &shape, err) != 0)
            return -1;
        if (shape.ndim == 0 && named[x]) /* an optional array, such as w3 of fire */
            return nn_fail(
                err,
                "position: %s: %s was given, but with these settings it has no elements (remove it; its shape is %s)",
                t->name, array, about->shape);
        if (shape.ndim == 0)
            continue;
        if (given)
            return nn_fail(err,
                           "position: %s: its array %s is not learned and must come from a file, which the lab does "
                           "not support (use another term)",
                           t->name, array);
        if (shape.grows ? add_computed(m, s, t, x, &shape, prefix, err) : add_learned(m, t, x, &shape, prefix, err))
            return -1;
    }
    if (kind == RP_TERM_FIRE && m->c.fire_scales && add_fire_scales(m, t, prefix, err) != 0)
        return -1;
    return m->c.random_positions > 0 ? add_positions(t, err) : 0;
}

static int add_norm(nn_model *m, const char *name, char err[NN_ERR_MAX])
{
    const int64_t d = m->c.width;
    if (add_param(m, err, false, 1, &d, "%s.weight", name) != 0)
        return -1;
    return m->c.norm == LAYERS_LAYERNORM ? add_param(m, err, false, 1, &d, "%s.bias", name) : 0;
}

/* Add the parameters of cross-attention, which has no position terms: queries from the decoder's tokens, keys and
 * values from the encoder's. */
static int add_cross(nn_model *m, const char *layer, char err[NN_ERR_MAX])
{
    const int64_t d = m->c.width;
    char name[96];
    snprintf(name, sizeof name, "%scross_norm", layer);
    if (add_norm(m, name, err) != 0 || add_param(m, err, true, 2, (int64_t[]){d, d}, "%scross.q.weight", layer) != 0 ||
        add_param(m, err, true, 2, (int64_t[]){2 * d, d}, "%scross.kv.weight", layer) != 0)
        return -1;
    return add_param(m, err, true, 2, (int64_t[]){d, d}, "%scross.out.weight", layer);
}

static int add_layer(nn_model *m, nn_stack *s, int64_t layer, bool named[][RP_MAX_ARRAYS], char err[NN_ERR_MAX])
{
    const nn_config *c = &m->c;
    const int64_t d = c->width;
    const int32_t n_terms = nn_layer_terms(m, (int32_t)(s - m->stack), layer, NULL);
    char name[64];
    int code;
    snprintf(name, sizeof name, "%slayers.%lld.attn_norm", s->prefix, (long long)layer);
    code = add_norm(m, name, err);
    snprintf(name, sizeof name, "%slayers.%lld.attn", s->prefix, (long long)layer);
    if (!c->position_layers && n_terms > 0)
        s->columns = 3 * d;
    for (int32_t n = 0; n < n_terms && !c->position_layers && code == 0; n++)
        code = add_arrays(m, s, n, name, named[n], err);
    if (code == 0)
        code = add_param(m, err, true, 2, (int64_t[]){n_terms > 0 ? s->columns : 3 * d, d}, "%s.qkv.weight", name);
    if (code == 0 && c->log_scale == NN_LOG_LEARNED) {
        code = add_param(m, err, false, 1, &c->heads, "%s.log_scale", name);
        m->params[m->n_params - 1].of_term |= code == 0;
    }
    if (code == 0)
        code = add_param(m, err, true, 2, (int64_t[]){d, d}, "%s.out.weight", name);
    snprintf(name, sizeof name, "%slayers.%lld.", s->prefix, (long long)layer);
    if (code == 0 && s->cross)
        code = add_cross(m, name, err);
    snprintf(name, sizeof name, "%slayers.%lld.mlp_norm", s->prefix, (long long)layer);
    if (code == 0)
        code = add_norm(m, name, err);
    snprintf(name, sizeof name, "%slayers.%lld.mlp", s->prefix, (long long)layer);
    if (code == 0)
        code = add_param(m, err, true, 2, (int64_t[]){layers_act_columns(c->act, c->mlp), d}, "%s.up.weight", name);
    return code == 0 ? add_param(m, err, true, 2, (int64_t[]){d, c->mlp}, "%s.down.weight", name) : -1;
}

/* Add the parameters of a stack: positions, layers and the last norm. */
static int add_stack(nn_model *m, nn_stack *s, const char *position, char err[NN_ERR_MAX])
{
    bool named[RP_MAX_TERMS][RP_MAX_ARRAYS] = {{false}};
    const nn_config *c = &m->c;
    char name[64];
    s->columns = 3 * c->width;
    if (read_terms(s, position, named, err) != 0)
        return -1;
    if (s->learned) {
        if (add_param(m, err, false, 2, (int64_t[]){nn_positions_end(m, (int32_t)(s - m->stack)), c->width},
                      "%spositions.weight", s->prefix) != 0)
            return -1;
        m->params[m->n_params - 1].of_term = true;
    }
    snprintf(name, sizeof name, "%sattn", s->prefix);
    for (int32_t n = 0; n < s->n_terms && c->position_layers; n++)
        if (add_arrays(m, s, n, name, named[n], err) != 0)
            return -1;
    for (int64_t l = 0; l < s->layers; l++)
        if (add_layer(m, s, l, named, err) != 0)
            return -1;
    snprintf(name, sizeof name, "%snorm", s->prefix);
    return add_norm(m, name, err);
}

static void choose_stacks(nn_model *m)
{
    const nn_config *c = &m->c;
    const bool pairs = c->task == NN_ENCODER_DECODER;
    m->n_stacks = pairs ? 2 : 1;
    m->stack[0] = (nn_stack){.prefix = pairs ? "encoder." : "",
                             .layers = c->layers,
                             .length = c->length,
                             .causal = c->task == NN_DECODER,
                             .padded = pairs};
    if (pairs)
        m->stack[1] = (nn_stack){.prefix = "decoder.",
                                 .layers = c->decoder_layers > 0 ? c->decoder_layers : c->layers,
                                 .length = c->target_length > 0 ? c->target_length : c->length,
                                 .causal = true,
                                 .cross = true};
}

int nn_model_plan(nn_model *m, const nn_config *c, char err[NN_ERR_MAX])
{
    memset(m, 0, sizeof *m);
    m->c = *c;
    choose_stacks(m);
    if (nn_config_check(c, err) != 0 ||
        add_param(m, err, true, 2, (int64_t[]){c->vocab, c->width}, "embedding.weight") != 0)
        return -1;
    for (int32_t k = 0; k < m->n_stacks; k++)
        if (add_stack(m, &m->stack[k], m->stack[k].padded && c->encoder_position[0] ? c->encoder_position : c->position,
                      err) != 0)
            return -1;
    bool fire = !c->fire_scales;
    for (int32_t n = 0; n < m->n_params; n++)
        fire |= strstr(m->params[n].name, ".L_factor") != NULL;
    if (!fire)
        return nn_fail(err, "fire_scales = learned: no layer has the term fire (set fire_scales = fixed, or use fire)");
    if (c->task == NN_CLASSIFIER || !c->tied)
        return add_param(m, err, true, 2, (int64_t[]){c->task == NN_CLASSIFIER ? c->classes : c->vocab, c->width},
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
            return nn_fail(err, "lab: out of memory while creating %lld weights (use a smaller width or fewer layers)",
                           (long long)m->n_weights);
        }
        memset(*arenas[n], 0, bytes);
    }
    for (int32_t n = 0; n < m->n_params; n++)
        nn_first_values(m, &m->params[n]);
    return 0;
}

int32_t nn_model_take(nn_model *m, const nn_model *from, bool *taken)
{
    int32_t count = 0;
    for (int32_t n = 0; n < m->n_params; n++) {
        const nn_param *to = &m->params[n];
        const int32_t x = nn_model_find(from, to->name);
        bool same = x >= 0 && from->params[x].ndim == to->ndim;
        for (int32_t a = 0; same && a < to->ndim; a++)
            same = from->params[x].shape[a] == to->shape[a];
        if (same)
            memcpy(m->w + to->offset, from->w + from->params[x].offset, (size_t)to->size * sizeof *m->w);
        if (taken)
            taken[n] = same;
        count += same;
    }
    return count;
}

int nn_model_with_position(nn_model *m, const nn_model *from, const char *position, char err[NN_ERR_MAX])
{
    nn_config c = from->c;
    memset(m, 0, sizeof *m);
    if (nn_config_set(&c, "position", position, err) != 0 || nn_model_create(m, &c, false, err) != 0)
        return -1;
    if (nn_model_take(m, from, NULL) < m->n_params) {
        nn_model_destroy(m);
        return nn_fail(err,
                       "position = %.100s: it has other weights than %.100s, which the model was trained with (use "
                       "a position with the same weights, or one without weights)",
                       position, from->c.position);
    }
    return 0;
}

void nn_model_destroy(nn_model *m)
{
    free(m->params);
    free(m->w);
    free(m->g);
    free(m->m);
    free(m->v);
    nn_tokenizer_free(m->tokenizer);
    memset(m, 0, sizeof *m);
}
