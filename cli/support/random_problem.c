/* random_problem.c -- generates random problem strings. It asks the library for the parameters and arrays of terms and
 * masks, so it mentions none of them by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/random_problem.h"
#include "cli/support/sample_problem.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 512 };

/* Return a random integer from 0 to n - 1. */
static int64_t below(problem_dice *d, int64_t n)
{
    uint64_t x = 0;
    if (d->size > 0) {
        for (int64_t left = n; left > 1 && d->size > 0; left = (left + 255) / 256, d->size--)
            x = x << 8 | *d->bytes++;
    } else {
        x = problem_next(&d->seed) >> 11;
    }
    return n > 0 ? (int64_t)(x % (uint64_t)n) : 0;
}

static bool once_in(problem_dice *d, int64_t n)
{
    return below(d, n) == 0;
}

/* Return a random integer from low to high; numbers near low are likelier. */
static int64_t whole(problem_dice *d, int64_t low, int64_t high)
{
    const int64_t span = high - low + 1, near = span < 40 ? span : 40;
    return low + below(d, once_in(d, 8) ? span : near);
}

static double real(problem_dice *d, double low, double high)
{
    return low + (high - low) * (double)below(d, 1001) / 1000;
}

static void add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char *text, const char *format, ...)
{
    const size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, TEXT - n, format, args);
    va_end(args);
}

/* Properties that all terms of a problem have to share. */
typedef struct tokens {
    int64_t rows, columns; /* size of the grid; 0: no grid */
    bool extra;            /* the grid has a class token, for terms with the parameter `extra` */
    bool same;             /* there are as many queries as keys */
    int64_t batch;         /* number of batch entries */
} tokens;

static void draw_value(problem_dice *d, const rp_param *p, const tokens *g, char *text)
{
    const bool bounded = p->min != 0 || p->max != 0;
    int n = 0;
    switch (p->type) {
    case RP_PARAM_INT:
        add(text, "%lld",
            (long long)whole(d, bounded ? (int64_t)fmax(p->min, -40) : 0, bounded ? (int64_t)fmin(p->max, 500) : 40));
        return;
    case RP_PARAM_REAL:
        if (p->above_min && !bounded) {
            add(text, "%.4g", p->min + real(d, 0.01, 10));
            return;
        }
        add(text, "%.4g", bounded ? real(d, fmax(p->min, -10), fmin(p->max, fmax(p->min, 0) + 10)) : real(d, -3, 3));
        return;
    case RP_PARAM_FLAG: add(text, "%d", (int)below(d, 2)); return;
    case RP_PARAM_SIGN: add(text, "%d", once_in(d, 2) ? 1 : -1); return;
    case RP_PARAM_CHOICE:
        while (p->choices[n])
            n++;
        add(text, "%s", p->choices[below(d, n)]);
        return;
    case RP_PARAM_GRID: add(text, "%lldx%lld", (long long)g->rows, (long long)g->columns); return;
    }
}

static bool takes_grid(rp_term_kind kind)
{
    const rp_param *p;
    for (int x = 0; (p = rp_term_param(kind, x)); x++)
        if (p->type == RP_PARAM_GRID)
            return true;
    return false;
}

/* Draw a term with its parameters and, sometimes, with arrays that replace defaults. */
static void draw_term(problem_dice *d, const tokens *g, unsigned *roles, char *text)
{
    const rp_term_kind kind = (rp_term_kind)(RP_TERM_NONE + 1 + below(d, RP_TERM_COUNT - RP_TERM_NONE - 1));
    const rp_role role = rp_term_role(kind);
    const rp_param *p;
    const rp_array_facts *a;
    if ((role != RP_ROLE_BIAS && *roles & 1u << role) || (takes_grid(kind) && g->rows == 0))
        return;
    *roles |= 1u << role;
    add(text, "%s%s", *text ? "+" : "", rp_term_name(kind));
    for (int x = 0; (p = rp_term_param(kind, x)); x++) {
        const bool extra = strcmp(p->key, "extra") == 0;
        if (strcmp(p->key, "axes") == 0 || strcmp(p->key, "by_channel") == 0 || strcmp(p->key, "first") == 0 ||
            kind == RP_TERM_DENSE) /* drawn below */
            continue;
        if (!(p->required || p->type == RP_PARAM_GRID || extra || once_in(d, 3)))
            continue;
        add(text, ",%s=", p->key);
        if (extra)
            add(text, "%d", g->extra);
        else
            draw_value(d, p, g, text);
    }
    problem_dice copy = *d; /* not *d itself, so that all other choices are those of earlier versions */
    copy.seed = ~copy.seed;
    if (kind == RP_TERM_DENSE && once_in(&copy, 2)) /* batch entries share one of the array */
        add(text, ",%s=%lld", once_in(&copy, 2) ? "interleave" : "tile", (long long)g->batch);
    const char *own = strrchr(text, '+') ? strrchr(text, '+') : text; /* the text of this term */
    const char *scaling = strstr(own, ",scaling=");
    const bool scaled = (scaling && strncmp(scaling, ",scaling=none", 13) != 0) || strstr(own, ",base=") ||
                        strstr(own, ",length="); /* excludes given frequencies */
    if (kind == RP_TERM_ROPE && !scaled && once_in(d, 5)) {
        add(text, ",axes=%d,frequencies=x,q_positions=x,k_positions=x", 1 + (int)below(d, 4));
        return;
    }
    if (kind == RP_TERM_ROPE && once_in(&copy, 4))
        add(text, ",first=%d", (int)below(&copy, 6));
    if (kind == RP_TERM_ROPE && !scaled && once_in(&copy, 4)) {
        add(text, "%s%s", once_in(&copy, 2) ? ",by_channel=1" : "",
            g->same && once_in(&copy, 2) ? ",angles=x" : ",q_angles=x,k_angles=x");
        return;
    }
    bool both = false; /* `positions` was drawn, which excludes q_positions and k_positions */
    for (int x = 0; (a = rp_term_array_about(kind, x)); x++)
        if (a->presence == RP_REPLACES && !strstr(a->name, "angles") && once_in(d, 4)) {
            const bool alike = strcmp(a->name, "positions") == 0;
            if (alike ? !g->same : both && strstr(a->name, "_positions"))
                continue;
            if (strcmp(a->name, "batch_slopes") == 0 && strstr(own, ",slopes"))
                continue; /* only one of them may be given */
            if (strcmp(a->name, "frequencies") == 0 && scaled)
                continue;
            both |= alike;
            add(text, ",%s=x", a->name);
        }
}

static void draw_mask(problem_dice *d, char *text)
{
    const rp_mask_kind kind = (rp_mask_kind)(RP_MASK_NONE + 1 + below(d, RP_MASK_COUNT - RP_MASK_NONE - 1));
    add(text, "%s%s", *text ? "+" : "", rp_mask_name(kind));
    for (int x = 0; rp_mask_param_of(kind, x); x++)
        add(text, "%s%lld", x ? "," : "=", (long long)whole(d, once_in(d, 6) ? -1 : 0, 60));
}

static void draw_settings(problem_dice *d, const tokens *g, const char *terms, char *text)
{
    for (int64_t n = once_in(d, 2) ? 0 : 1 + below(d, 2); n > 0; n--)
        draw_mask(d, text);
    if (once_in(d, 5))
        add(text, "%sscale=%.4g", *text ? "+" : "", real(d, -1, 1));
    if (once_in(d, 5))
        add(text, "%ssoftcap%s=%lld", *text ? "+" : "", once_in(d, 2) ? "_after" : "", (long long)whole(d, 1, 50));
    if (once_in(d, 10) && !strstr(text, "softcap_after"))
        add(text, "%ssoftcap_after=%lld", *text ? "+" : "", (long long)whole(d, 1, 50));
    if (once_in(d, 8))
        add(text, "%sdropout=%.3g+seed=%lld", *text ? "+" : "", real(d, 0, 0.9), (long long)below(d, 1000));
    if (!g->rows && once_in(d, 8))
        add(text, "%sq_offsets", *text ? "+" : "");
    if (!strstr(terms, ",positions=") && !strstr(terms, "angles=") && once_in(d, 8))
        add(text, "%spositions", *text ? "+" : "");
    if (once_in(d, 8))
        add(text, "%shigh", *text ? "+" : "");
    if (once_in(d, 3))
        add(text, "%swild", *text ? "+" : "");
    if (once_in(d, 3))
        add(text, "%sdlse", *text ? "+" : "");
    problem_dice copy = *d; /* not *d itself, so that all other choices are those of earlier versions */
    copy.seed = ~copy.seed;
    if (once_in(&copy, 6))
        add(text, "%sdweights", *text ? "+" : "");
    if (once_in(&copy, 6))
        add(text, "%sdsummary", *text ? "+" : "");
    if (strstr(text, "softcap") && once_in(&copy, 3))
        add(text, "+dsoftcap");
}

void problem_draw(problem_dice *d, int64_t work, char text[512])
{
    static const char *const passes[] = {"fwd", "fwd", "fwdbwd", "bwd"};
    static const char *const types[] = {"f32", "f32", "f32", "f64", "bf16", "f16"};
    static const int64_t widths[] = {1,  2,  3,  4,  5,  7,  8,  9,  15, 16, 17,  24,  31, 32,
                                     33, 40, 48, 63, 64, 65, 66, 80, 96, 97, 127, 128, 129};
    static const int64_t lengths[] = {1,   1,   2,   3,   4,   5,   7,   8,   13,  16,  17,   24,   31,
                                      32,  33,  47,  48,  63,  64,  65,  95,  96,  97,  100,  127,  128,
                                      129, 200, 255, 256, 257, 300, 511, 512, 513, 600, 1025, 2048, 5000};
    enum { WIDTHS = sizeof widths / sizeof *widths, LENGTHS = sizeof lengths / sizeof *lengths };
    char terms[TEXT] = "", settings[TEXT] = "";
    tokens g = {0};
    unsigned roles = 0;
    const int pass = (int)below(d, 4);
    const char *type = types[below(d, 6)];
    int64_t batch = 1 + below(d, 3), groups = 1 + below(d, 2), heads = groups * (1 + below(d, 3));
    int64_t rows = lengths[below(d, LENGTHS)], keys = lengths[below(d, LENGTHS)];
    const int64_t width = widths[below(d, WIDTHS)], values = once_in(d, 3) ? widths[below(d, WIDTHS)] : width;
    if (once_in(d, 5)) {
        g = (tokens){.rows = 1 + below(d, 9), .columns = 1 + below(d, 9), .extra = once_in(d, 3), .same = true};
        rows = keys = g.rows * g.columns + g.extra;
    } else if (once_in(d, 3)) {
        keys = rows;
    }
    while (!g.rows && batch * heads * rows * keys * (width + values) > work) /* halve the larger of rows and keys */
        *(rows > keys ? &rows : &keys) /= 2;
    g.same = rows == keys;
    g.batch = batch;
    for (int64_t n = once_in(d, 6) ? 0 : 1 + below(d, 3); n > 0; n--)
        draw_term(d, &g, &roles, terms);
    draw_settings(d, &g, terms, settings);
    snprintf(text, TEXT, "%s:%s:b%lldh%lldg%lldq%lldk%lldd%lldv%lld", passes[pass], type, (long long)batch,
             (long long)heads, (long long)groups, (long long)rows, (long long)keys, (long long)width,
             (long long)values);
    if (!g.rows && once_in(d, 2))
        add(text, "o%lld", (long long)(once_in(d, 3) ? below(d, 41) - 20 : keys - rows));
    add(text, ":%s:%s", terms, settings);
}
