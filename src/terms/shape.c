/* terms/shape.c -- parse the shape text of a term's array, such as "[H?, left+right+1]", to steps in postfix order, and
 * evaluate them. facts.h documents the syntax.
 * SPDX-License-Identifier: Apache-2.0 */
#include "term_registry.h"
#include <ctype.h>
#include <string.h>

/* Steps: push a number, a length or a parameter; replace the two topmost numbers by a result; pop an axis; pop the
 * value of a condition; begin the second of two shapes. */
enum { NUMBER, LENGTH, PARAM, ADD, SUBTRACT, MULTIPLY, DIVIDE, AXIS, CONDITION, ELSE };
/* Bits of an AXIS: it may have length 1; it may be omitted; it is the batch. A CONDITION has the required value, or
 * ANY. */
enum { ONE = 1, OMITTED = 2, BATCH = 4, ANY = -1 };

static const char *const lengths[] = {"H", "Lq", "Lk", "B", "L", "Dk", "Dv", "Hk"};

/* State of the parser. */
typedef struct reader {
    const char *at; /* next character */
    const rp_param *params;
    rpi_shape_code *to;
    bool wrong;
} reader;

static void step(reader *r, int32_t kind, int64_t n)
{
    if (r->to->n == RPI_SHAPE_STEPS || n != (int32_t)n) {
        r->wrong = true;
        return;
    }
    r->to->step[r->to->n].kind = kind;
    r->to->step[r->to->n++].n = (int32_t)n;
}

static void skip(reader *r)
{
    while (*r->at == ' ')
        r->at++;
}

static bool take_char(reader *r, char c)
{
    skip(r);
    const bool there = *r->at == c;
    r->at += there;
    return there;
}

static bool is(const char *word, size_t n, const char *name)
{
    return strncmp(word, name, n) == 0 && !name[n];
}

/* Read a length or a parameter by its name. */
static void named(reader *r, const char *word, size_t n)
{
    for (size_t x = 0; isupper((unsigned char)*word) && x < sizeof lengths / sizeof *lengths; x++)
        if (is(word, n, lengths[x])) {
            step(r, LENGTH, (int64_t)x);
            return;
        }
    for (const rp_param *p = r->params; p && p->key; p++) {
        const bool grid = p->type == RP_PARAM_GRID;
        const bool rows = grid && is(word, n, "grid_h"), columns = grid && is(word, n, "grid_w");
        if (rows || columns || is(word, n, p->key)) {
            step(r, PARAM, 2 * (p - r->params) + columns);
            return;
        }
    }
    r->wrong = true;
}

static void sum(reader *r);

static void factor(reader *r)
{
    if (take_char(r, '(')) {
        sum(r);
        r->wrong |= !take_char(r, ')');
        return;
    }
    const char *word = r->at;
    int64_t n = 0;
    for (; isdigit((unsigned char)*r->at); r->at++)
        n = rpi_min(n * 10 + (*r->at - '0'), INT32_MAX + (int64_t)1);
    if (r->at > word) {
        step(r, NUMBER, n);
        return;
    }
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    named(r, word, (size_t)(r->at - word));
}

static void product(reader *r)
{
    factor(r);
    for (;;)
        if (take_char(r, '*')) {
            factor(r);
            step(r, MULTIPLY, 0);
        } else if (take_char(r, '/')) {
            factor(r);
            step(r, DIVIDE, 0);
        } else {
            return;
        }
}

static void sum(reader *r)
{
    product(r);
    for (;;)
        if (take_char(r, '+')) {
            product(r);
            step(r, ADD, 0);
        } else if (take_char(r, '-')) {
            product(r);
            step(r, SUBTRACT, 0);
        } else {
            return;
        }
}

/* Read "[…]" or "none". */
static void shape(reader *r)
{
    skip(r);
    if (strncmp(r->at, "none", 4) == 0) {
        r->at += 4;
        return;
    }
    int32_t axes = 0, optional = 0; /* number of axes with a question mark, which must come first */
    r->wrong |= !take_char(r, '[');
    do {
        skip(r);
        const bool heads = r->at[0] == 'H' && strchr("?],", r->at[r->at[1] == 'k' ? 2 : 1]);
        const int64_t batch = r->at[0] == 'B' ? BATCH : 0;
        sum(r);
        const bool omitted = take_char(r, '?');
        r->wrong |= omitted && optional != axes;
        optional += omitted;
        step(r, AXIS, batch | (omitted ? ONE | OMITTED : heads ? ONE : 0));
        axes++;
    } while (take_char(r, ',') && axes < RP_MAX_AXES);
    r->wrong |= !take_char(r, ']');
}

/* Read a condition, "KEY" or "KEY=CHOICE". */
static void condition(reader *r)
{
    skip(r);
    const char *word = r->at;
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    const size_t n = (size_t)(r->at - word);
    named(r, word, n);
    if (!take_char(r, '=')) {
        step(r, CONDITION, ANY);
        return;
    }
    const char *name = r->at;
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    for (const rp_param *p = r->params; p && p->key; p++)
        if (is(word, n, p->key) && p->choices)
            for (int c = 0; p->choices[c]; c++)
                if (is(name, (size_t)(r->at - name), p->choices[c])) {
                    step(r, CONDITION, c);
                    return;
                }
    r->wrong = true;
}

bool rpi_parse_shape(rpi_shape_code *to, const char *text, const rp_param *params)
{
    reader r = {.at = text ? text : "", .params = params, .to = to};
    to->n = 0;
    skip(&r);
    if (*r.at == '[' || strncmp(r.at, "none", 4) == 0) {
        shape(&r);
    } else {
        condition(&r);
        r.wrong |= !take_char(&r, '?');
        shape(&r);
        r.wrong |= !take_char(&r, ':');
        step(&r, ELSE, 0);
        shape(&r);
    }
    skip(&r);
    r.wrong |= *r.at != 0;
    if (r.wrong)
        to->n = 0;
    return !r.wrong;
}

/* Compute `a` with `b` in *to. Return false if the result is not an integer of 64 bits. */
static bool compute(int32_t kind, int64_t a, int64_t b, int64_t *to)
{
    switch (kind) {
    case ADD: return !__builtin_add_overflow(a, b, to);
    case SUBTRACT: return !__builtin_sub_overflow(a, b, to);
    case MULTIPLY: return !__builtin_mul_overflow(a, b, to);
    default: *to = b ? a / b : 0; return b != 0;
    }
}

static void add_axis(rpi_shape *to, int64_t length, int32_t bits)
{
    to->n[to->ndim] = rpi_max(length, 0);
    to->ones |= bits & ONE ? 1u << to->ndim : 0;
    to->min_ndim += !(bits & OMITTED);
    to->batch |= bits & BATCH;
    to->ndim++;
}

bool rpi_evaluate_shape(const rpi_shape_code *code, const rp_desc *d, const rp_term *term, const rp_param *params,
                        rpi_shape *to)
{
    const int64_t length[] = {d->heads, d->len_q, d->len_k, d->batch,
                              d->len_q, d->dim_k, d->dim_v, d->kv_heads > 0 ? d->kv_heads : d->heads};
    int64_t stack[RPI_SHAPE_STEPS];
    int32_t n = 0;
    bool good = true, met = false; /* met: the condition of the first of two shapes */
    rpi_shape first = {.ndim = 0};
    *to = first;
    for (const rpi_shape_step *s = code->step; s < code->step + code->n; s++)
        switch (s->kind) {
        case NUMBER: stack[n++] = s->n; break;
        case LENGTH: stack[n++] = length[s->n]; break;
        case PARAM: stack[n++] = rp_param_integer(term, &params[s->n / 2], s->n % 2); break;
        case AXIS: add_axis(to, stack[--n], s->n); break;
        case CONDITION:
            n--;
            met = s->n == ANY ? stack[n] != 0 : stack[n] == s->n;
            break;
        case ELSE:
            first = *to;
            *to = (rpi_shape){.ndim = 0};
            break;
        default: n--; good &= compute(s->kind, stack[n - 1], stack[n], &stack[n - 1]);
        }
    if (met)
        *to = first;
    if (!good)
        *to = (rpi_shape){.ndim = 0};
    return good;
}

bool rpi_read_shape(const char *text, const rp_desc *desc, const rp_term *term, const rp_param *params, rpi_shape *to)
{
    rpi_shape_code code;
    *to = (rpi_shape){.ndim = 0};
    return rpi_parse_shape(&code, text, params) && rpi_evaluate_shape(&code, desc, term, params, to);
}
