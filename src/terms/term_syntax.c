/* terms/term_syntax.c -- parse and print terms in the syntax of the command line: "t5,table=NAME,buckets=32".
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/edits.h"
#include "term_registry.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return `name` if it is at most 2 edits from `word` and nearer than `best`, else `best`, which may be NULL. */
static const char *nearer(const char *word, const char *best, const char *name)
{
    const size_t d = rpi_edits(word, name);
    return d <= 2 && d < strlen(name) && (!best || d < rpi_edits(word, best)) ? name : best;
}

/* Read a decimal integer. Blanks, other bases and trailing characters are errors. */
static bool read_int(const char *text, int64_t *value)
{
    const char *digit = text + (*text == '-' || *text == '+');
    char *end;
    if (!isdigit((unsigned char)*digit))
        return false;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    *value = n;
    return *end == 0 && errno == 0;
}

/* Read a decimal number with a point in every locale: replace the point by the locale's decimal point, then call
 * strtod. */
static bool read_real(const char *text, double *value)
{
    char copy[64], point[8], *end;
    size_t used = 0;
    snprintf(point, sizeof point, "%.1f", 0.5); /* "0.5", or "0,5" */
    for (const char *c = text; *c; c++) {
        if (!strchr("0123456789+-.eE", *c) || used + 8 > sizeof copy)
            return false;
        if (*c == '.')
            for (const char *p = point + 1; *p && *p != '5'; p++)
                copy[used++] = *p;
        else
            copy[used++] = *c;
    }
    copy[used] = 0;
    *value = strtod(copy, &end);
    return used > 0 && *end == 0 && isfinite(*value);
}

/* Read rows and columns, as in "7x7". */
static bool read_grid(const char *text, int64_t *grid)
{
    char rows[24];
    const char *x = strchr(text, 'x');
    if (!x || x - text >= (ptrdiff_t)sizeof rows)
        return false;
    memcpy(rows, text, (size_t)(x - text));
    rows[x - text] = 0;
    return read_int(rows, &grid[0]) && read_int(x + 1, &grid[1]);
}

static rp_status set_param(rp_term *term, const char *name, const rp_param *p, const char *value)
{
    char *field = (char *)term + p->offset;
    int64_t n;
    double x;
    switch (p->type) {
    case RP_PARAM_INT:
        if (!read_int(value, &n))
            return rpi_fail(RP_E_ARG, "%s: %s is \"%.40s\"; it must be a whole number", name, p->key, value);
        memcpy(field, &n, sizeof n);
        return RP_OK;
    case RP_PARAM_REAL:
        if (!read_real(value, &x))
            return rpi_fail(RP_E_ARG, "%s: %s is \"%.40s\"; it must be a decimal number", name, p->key, value);
        memcpy(field, &x, sizeof x);
        return RP_OK;
    case RP_PARAM_FLAG: {
        if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
            return rpi_fail(RP_E_ARG, "%s: %s is \"%.40s\"; it must be 0 or 1", name, p->key, value);
        const int32_t flag = *value == '1';
        memcpy(field, &flag, sizeof flag);
        return RP_OK;
    }
    case RP_PARAM_SIGN: {
        if (strcmp(value, "1") != 0 && strcmp(value, "-1") != 0)
            return rpi_fail(RP_E_ARG, "%s: %s is \"%.40s\"; it must be 1 or -1", name, p->key, value);
        const int32_t sign = *value == '1' ? 1 : -1;
        memcpy(field, &sign, sizeof sign);
        return RP_OK;
    }
    case RP_PARAM_GRID: {
        int64_t grid[2];
        if (!read_grid(value, grid))
            return rpi_fail(RP_E_ARG, "%s: %s is \"%.40s\"; it must be rows x columns, such as 7x7", name, p->key,
                            value);
        memcpy(field, grid, sizeof grid);
        return RP_OK;
    }
    default: {
        char list[128];
        size_t used = 0;
        for (int c = 0; p->choices[c]; c++) {
            if (strcmp(p->choices[c], value) == 0) {
                memcpy(field, &c, sizeof c); /* enumerations are ints */
                return RP_OK;
            }
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", c ? ", " : "", p->choices[c]);
        }
        return rpi_fail(RP_E_ARG, "%s: %s is \"%.40s\"; it must be one of %s", name, p->key, value, list);
    }
    }
}

void rpi_print_real(char *to, size_t size, double x)
{
    char digits[40];
    size_t used = 0;
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, x);
        if (strtod(digits, NULL) == x)
            break;
    }
    for (const char *c = digits; *c && used + 1 < size; c++) {
        const bool point = !strchr("0123456789+-eE", *c);
        if (!point || used == 0 || to[used - 1] != '.') /* the decimal point of a locale may have several bytes */
            to[used++] = point ? '.' : *c;
    }
    to[used] = 0;
}

bool rpi_print_param(char *to, size_t size, const rp_term *term, const rp_param *p)
{
    if (p->type == RP_PARAM_REAL) {
        const double x = rp_param_number(term, p, 0);
        rpi_print_real(to, size, x);
        if (!strpbrk(to, ".e") && strlen(to) + 3 <= size)
            strcat(to, ".0");
        return isfinite(x);
    }
    const long long n = rp_param_integer(term, p, 0);
    if (p->type == RP_PARAM_GRID)
        return snprintf(to, size, "%lldx%lld", n, (long long)rp_param_integer(term, p, 1)) > 0;
    if (p->type != RP_PARAM_CHOICE)
        return snprintf(to, size, "%lld", n) > 0;
    for (int c = 0; p->choices[c]; c++)
        if (c == n)
            return snprintf(to, size, "%s", p->choices[c]) > 0;
    return false;
}

rp_status rp_term_print_sized(const rp_term *given, size_t term_size, char *text, size_t size)
{
    rp_term own;
    if (!given || !text)
        return rpi_fail(RP_E_ARG, "%s is NULL; pass a valid pointer", !given ? "term" : "text");
    const rp_status status = rpi_term_take(&own, given, term_size);
    if (status != RP_OK)
        return status;
    const rp_term *term = &own;
    const rpi_scheme *s = rpi_scheme_of(term->kind);
    if (!s)
        return rpi_fail(RP_E_ARG, "term.kind is %d; it must be a value of rp_term_kind", (int)term->kind);
    size_t used = (size_t)snprintf(text, size, "%s", rp_term_name(term->kind));
    for (const rp_param *p = s->params; p && p->key && used < size; p++) {
        char value[64];
        if (!rpi_print_param(value, sizeof value, term, p))
            return rpi_fail(RP_E_RANGE,
                            "%s: the value of %s cannot be printed; it must be a finite number or a valid choice",
                            rp_term_name(term->kind), p->key);
        used += (size_t)snprintf(text + used, size - used, ",%s=%s", p->key, value);
    }
    return used < size ? RP_OK : rpi_fail(RP_E_RANGE, "size is %zu, too small for the text; use 1024", size);
}

static rp_status unknown_term(const char *name)
{
    const char *best = NULL;
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++)
        best = nearer(name, best, rp_term_name((rp_term_kind)k));
    return best ? rpi_fail(RP_E_ARG, "no term is called \"%.40s\"; did you mean \"%s\"?", name, best)
                : rpi_fail(RP_E_ARG, "no term is called \"%.40s\"", name);
}

/* Set one key=value. `seen` has a bit for each array and parameter given so far. */
static rp_status read_pair(rp_term *term, char names[][RP_NAME_MAX], const char *key, const char *value, uint64_t *seen)
{
    const rpi_scheme *s = rpi_scheme_of(term->kind);
    const char *name = rp_term_name(term->kind), *best = NULL;
    uint64_t bit = 1;
    for (int x = 0; x < RP_MAX_ARRAYS; x++, bit <<= 1) {
        if (!s->array[x].name)
            continue;
        if (strcmp(s->array[x].name, key) == 0) {
            if (*seen & bit)
                return rpi_fail(RP_E_ARG, "%s: %s was given twice; give it once", name, key);
            *seen |= bit;
            snprintf(names[x], RP_NAME_MAX, "%s", value);
            return RP_OK;
        }
        best = nearer(key, best, s->array[x].name);
    }
    for (const rp_param *p = s->params; p && p->key; p++, bit <<= 1) {
        if (strcmp(p->key, key) == 0) {
            if (*seen & bit)
                return rpi_fail(RP_E_ARG, "%s: %s was given twice; give it once", name, key);
            *seen |= bit;
            return set_param(term, name, p, value);
        }
        best = nearer(key, best, p->key);
    }
    const char *syntax = rp_term_syntax(term->kind);
    return best ? rpi_fail(RP_E_ARG, "%s has no key \"%.40s\" (did you mean \"%s\"?); the syntax is %s", name, key,
                           best, syntax)
                : rpi_fail(RP_E_ARG, "%s has no key \"%.40s\"; the syntax is %s", name, key, syntax);
}

static rp_status parse(const char *text, rp_term *term, char names[][RP_NAME_MAX])
{
    char word[2 * RP_NAME_MAX];
    uint64_t seen = 0;
    *term = rp_term_init(RP_TERM_NONE);
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        names[x][0] = 0;
    for (const char *from = text; from;) {
        const char *comma = strchr(from, ',');
        const size_t length = comma ? (size_t)(comma - from) : strlen(from);
        if (length >= RP_NAME_MAX)
            return rpi_fail(RP_E_ARG, "term \"%.40s…\": a name or value is longer than %d bytes; shorten it", text,
                            RP_NAME_MAX - 1);
        memcpy(word, from, length);
        word[length] = 0;
        from = comma ? comma + 1 : NULL;
        if (term->kind == RP_TERM_NONE) {
            rp_term_kind kind = RP_TERM_NONE;
            for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++)
                if (strcmp(rp_term_name((rp_term_kind)k), word) == 0)
                    kind = (rp_term_kind)k;
            if (kind == RP_TERM_NONE)
                return unknown_term(word);
            *term = rp_term_init(kind);
            continue;
        }
        char *value = strchr(word, '=');
        if (!value || value == word || !value[1])
            return rpi_fail(RP_E_ARG, "%s: \"%.40s\" is not key=value; the syntax is %s", rp_term_name(term->kind),
                            word, rp_term_syntax(term->kind));
        *value++ = 0;
        const rp_status status = read_pair(term, names, word, value, &seen);
        if (status != RP_OK)
            return status;
    }
    uint64_t bit = (uint64_t)1 << RP_MAX_ARRAYS;
    for (const rp_param *p = rpi_scheme_of(term->kind)->params; p && p->key; p++, bit <<= 1)
        if (p->required && !(seen & bit))
            return rpi_fail(RP_E_ARG, "%s: %s is missing; the syntax is %s", rp_term_name(term->kind), p->key,
                            rp_term_syntax(term->kind));
    return RP_OK;
}

rp_status rp_term_parse_sized(const char *text, rp_term *term, size_t term_size, char names[][RP_NAME_MAX])
{
    rp_term own;
    if (!text || !term || !names)
        return rpi_fail(RP_E_ARG, "%s is NULL; pass a valid pointer", !text ? "text" : !term ? "term" : "names");
    const rp_status status = parse(text, &own, names);
    return status == RP_OK ? rpi_term_give(term, term_size, &own) : status;
}
