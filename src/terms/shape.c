/* terms/shape.c -- evaluate the shape text of a term's array, such as "[H?, left+right+1]". facts.h documents the
 * syntax.
 * SPDX-License-Identifier: Apache-2.0 */
#include "term_registry.h"
#include <ctype.h>
#include <string.h>

/* State of the parser. */
typedef struct reader {
    const char *at; /* next character */
    const rp_desc *desc;
    const rp_term *term;
    const rp_param *params;
    bool wrong;
} reader;

static void skip(reader *r)
{
    while (*r->at == ' ')
        r->at++;
}

static bool take(reader *r, char c)
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

/* Return the value of a length or a parameter by its name. */
static int64_t named(reader *r, const char *word, size_t n)
{
    const rp_desc *d = r->desc;
    const struct {
        const char *name;
        int64_t value;
    } lengths[] = {{"H", d->heads}, {"Lq", d->len_q}, {"Lk", d->len_k}, {"B", d->batch},
                   {"L", d->len_q}, {"Dk", d->dim_k}, {"Dv", d->dim_v}};
    for (size_t x = 0; isupper((unsigned char)*word) && x < sizeof lengths / sizeof *lengths; x++)
        if (is(word, n, lengths[x].name))
            return lengths[x].value;
    for (const rp_param *p = r->params; p && p->key; p++) {
        const bool grid = p->type == RP_PARAM_GRID;
        const bool rows = grid && is(word, n, "grid_h"), columns = grid && is(word, n, "grid_w");
        if (rows || columns || is(word, n, p->key))
            return rp_param_integer(r->term, p, columns);
    }
    r->wrong = true;
    return 0;
}

static int64_t sum(reader *r);

static int64_t factor(reader *r)
{
    if (take(r, '(')) {
        const int64_t x = sum(r);
        r->wrong |= !take(r, ')');
        return x;
    }
    const char *word = r->at;
    int64_t n = 0;
    for (; isdigit((unsigned char)*r->at); r->at++)
        n = n * 10 + (*r->at - '0');
    if (r->at > word)
        return n;
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    return named(r, word, (size_t)(r->at - word));
}

static int64_t product(reader *r)
{
    int64_t x = factor(r);
    for (;;)
        if (take(r, '*')) {
            r->wrong |= __builtin_mul_overflow(x, factor(r), &x);
        } else if (take(r, '/')) {
            const int64_t by = factor(r);
            x = by ? x / by : 0;
            r->wrong |= by == 0;
        } else {
            return x;
        }
}

static int64_t sum(reader *r)
{
    int64_t x = product(r);
    for (;;)
        if (take(r, '+'))
            r->wrong |= __builtin_add_overflow(x, product(r), &x);
        else if (take(r, '-'))
            r->wrong |= __builtin_sub_overflow(x, product(r), &x);
        else
            return x;
}

/* Read "[…]" or "none". */
static void shape(reader *r, rpi_shape *to)
{
    *to = (rpi_shape){.ndim = 0};
    skip(r);
    if (strncmp(r->at, "none", 4) == 0) {
        r->at += 4;
        return;
    }
    int32_t optional = 0; /* number of axes with a question mark, which must come first */
    r->wrong |= !take(r, '[');
    do {
        skip(r);
        const bool heads = r->at[0] == 'H' && strchr("?],", r->at[1]);
        to->n[to->ndim] = rpi_max(sum(r), 0);
        if (take(r, '?')) {
            r->wrong |= optional != to->ndim;
            optional++;
            to->ones |= 1u << to->ndim;
        }
        to->ones |= heads ? 1u << to->ndim : 0;
        to->ndim++;
    } while (take(r, ',') && to->ndim < RP_MAX_AXES);
    to->min_ndim = to->ndim - optional;
    r->wrong |= !take(r, ']');
}

/* Read a condition, "KEY" or "KEY=CHOICE", and return true if it is met. */
static bool condition(reader *r)
{
    skip(r);
    const char *word = r->at;
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    const size_t n = (size_t)(r->at - word);
    const int64_t value = named(r, word, n);
    if (!take(r, '='))
        return value != 0;
    const char *name = r->at;
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    for (const rp_param *p = r->params; p && p->key; p++)
        if (is(word, n, p->key) && p->choices)
            for (int c = 0; p->choices[c]; c++)
                if (is(name, (size_t)(r->at - name), p->choices[c]))
                    return value == c;
    r->wrong = true;
    return false;
}

bool rpi_read_shape(const char *text, const rp_desc *desc, const rp_term *term, const rp_param *params, rpi_shape *to)
{
    reader r = {.at = text ? text : "", .desc = desc, .term = term, .params = params};
    *to = (rpi_shape){.ndim = 0};
    skip(&r);
    if (*r.at == '[' || strncmp(r.at, "none", 4) == 0) {
        shape(&r, to);
    } else {
        const bool first = condition(&r);
        rpi_shape one, two;
        r.wrong |= !take(&r, '?');
        shape(&r, &one);
        r.wrong |= !take(&r, ':');
        shape(&r, &two);
        *to = first ? one : two;
    }
    skip(&r);
    r.wrong |= *r.at != 0;
    if (r.wrong)
        *to = (rpi_shape){.ndim = 0};
    return !r.wrong;
}
