/* terms/facts.c -- describe a term as a JSON object, which `relpos info`, the Python package and tools/terms.py read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "term_registry.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Output buffer. `used` is the full length of the text, of which at most `size` bytes are stored. */
typedef struct writer {
    char *text;
    size_t size, used;
} writer;

static void put(writer *w, const char *text)
{
    for (; *text; text++, w->used++)
        if (w->used + 1 < w->size)
            w->text[w->used] = *text;
}

/* Write a JSON string. Texts of schemes are ASCII without control characters. */
static void put_string(writer *w, const char *text)
{
    char c[3] = {0};
    put(w, "\"");
    for (; *text; text++) {
        const bool escaped = *text == '"' || *text == '\\';
        c[0] = escaped ? '\\' : *text;
        c[1] = escaped ? *text : 0;
        put(w, c);
    }
    put(w, "\"");
}

static void put_key(writer *w, const char *key, const char *value)
{
    put(w, ", ");
    put_string(w, key);
    put(w, ": ");
    if (value)
        put_string(w, value);
    else
        put(w, "null");
}

static void put_number(writer *w, const char *key, double x)
{
    char text[40];
    rpi_print_real(text, sizeof text, x);
    put(w, ", ");
    put_string(w, key);
    put(w, ": ");
    put(w, text);
}

static void put_flag(writer *w, const char *key, bool yes)
{
    put(w, ", ");
    put_string(w, key);
    put(w, yes ? ": true" : ": false");
}

static const char *const roles[] = {"bias", "product", "value", "rotation", "sink"};
static const char *const keywords[] = {"bias", "relkey", "relval", "rope", "sink"}; /* arguments of relpos.attention */
static const char *const types[] = {"int", "real", "flag", "sign", "choice", "grid"};
static const char *const uses[] = {"learned", "constant", "positions", "truth", "index"};
static const char *const presences[] = {"needed", "conditional", "optional", "replaces"};
static const char *const rules[] = {"normal", "uniform", "negative", "normal_fan", "factor",   "uniform_fan",
                                    "xavier", "zero",    "slopes",   "sinusoids",  "projected"};

static void put_texts(writer *w, const char *key, const char *const *texts, int max_texts)
{
    put(w, ", ");
    put_string(w, key);
    put(w, ": [");
    for (int n = 0; n < max_texts && (texts[n] || n == 0); n++) {
        put(w, n ? ", " : "");
        put_string(w, texts[n] ? texts[n] : "");
    }
    put(w, "]");
}

static void put_param(writer *w, const rp_term *t, const rp_param *p)
{
    char value[64];
    put(w, "{\"key\": ");
    put_string(w, p->key);
    put_key(w, "type", types[p->type]);
    put_key(w, "field", p->field);
    put_flag(w, "required", p->required);
    put_key(w, "default", !p->required && rpi_print_param(value, sizeof value, t, p) ? value : NULL);
    put_key(w, "unset", p->unset);
    if (p->min != 0 || p->max != 0) {
        put_number(w, "min", p->min);
        put_number(w, "max", p->max);
    }
    if (p->above_min)
        put_number(w, "above", p->min);
    if (p->choices) {
        int n = 0;
        while (p->choices[n])
            n++;
        put_texts(w, "choices", p->choices, n);
    }
    put_key(w, "meaning", p->meaning);
    put(w, "}");
}

static void put_values(writer *w, const char *key, const rp_values *v)
{
    put(w, ", ");
    put_string(w, key);
    put(w, ": {\"rule\": ");
    put_string(w, rules[v->rule]);
    put_number(w, "a", v->a);
    put_number(w, "b", v->b);
    put_key(w, "over", v->over);
    put(w, "}");
}

static void put_array(writer *w, const rp_array_facts *a)
{
    put(w, "{\"name\": ");
    put_string(w, a->name);
    put_key(w, "use", uses[a->use]);
    put_key(w, "presence", presences[a->presence]);
    put_key(w, "shape", a->shape);
    put_key(w, "shows", a->shows);
    if (a->use != RP_USE_POSITIONS && a->use != RP_USE_TRUTH)
        put_values(w, "draw", &a->draw);
    if (a->use == RP_USE_LEARNED) {
        put_values(w, "start", &a->start);
        put_number(w, "min", a->min);
    }
    put(w, "}");
}

/* Write the name of the Python class: class_name, or the term's name with a capital first letter. */
static void put_class(writer *w, rp_term_kind kind, const rp_term_facts *f)
{
    char name[64];
    snprintf(name, sizeof name, "%s", f->class_name ? f->class_name : rp_term_name(kind));
    name[0] = (char)toupper((unsigned char)name[0]);
    put_key(w, "class", name);
}

/* Print "--bias TERM", "--rope key=value" or "--sink NAME", depending on the term. */
size_t rp_term_option(rp_term_kind kind, char *text, size_t size)
{
    const char *name = rp_term_name(kind), *syntax = rp_term_syntax(kind);
    if (!name)
        return 0;
    const char *keys = syntax + strlen(name); /* "", ",key=value" or "[,key=value]" */
    int used;
    if (rp_term_is_bias(kind))
        used = snprintf(text, size, "--bias %s", syntax);
    else if (rp_term_takes_name(kind))
        used = snprintf(text, size, "--%s NAME", name);
    else if (*keys == '[')
        used = snprintf(text, size, "--%s [%s", name, keys + 2);
    else
        used = snprintf(text, size, "--%s%s%s", name, *keys ? " " : "", *keys ? keys + 1 : "");
    return (size_t)used;
}

size_t rp_term_json(rp_term_kind kind, char *text, size_t size)
{
    writer w = {.text = text, .size = text ? size : 0};
    const rpi_scheme *s = rpi_scheme_of(kind);
    if (!s)
        return 0;
    const rp_term t = rp_term_init(kind);
    const rp_role role = rp_term_role(kind);
    char option[256];
    rp_term_option(kind, option, sizeof option);
    put(&w, "{\"name\": ");
    put_string(&w, rp_term_name(kind));
    put_class(&w, kind, &s->facts);
    put_key(&w, "role", roles[role]);
    put_key(&w, "keyword", keywords[role]);
    put_key(&w, "option", option);
    put_key(&w, "form", rpi_form_name(s->form));
    put_key(&w, "syntax", rp_term_syntax(kind));
    put_key(&w, "source", rp_term_source(kind));
    put_key(&w, "formula", s->facts.formula);
    put_key(&w, "about", s->facts.about);
    put_flag(&w, "causal", s->causal);
    put_flag(&w, "grid", s->grid);
    put_texts(&w, "samples", s->facts.samples, RP_MAX_SAMPLES);
    put_texts(&w, "bench", s->facts.bench, 2);
    put(&w, ", \"parameters\": [");
    for (const rp_param *p = s->params; p && p->key; p++) {
        put(&w, p == s->params ? "" : ", ");
        put_param(&w, &t, p);
    }
    put(&w, "], \"arrays\": [");
    for (int x = 0; x < rpi_count_arrays(s); x++) {
        put(&w, x ? ", " : "");
        put_array(&w, &s->array[x]);
    }
    put(&w, "]}");
    if (w.size)
        w.text[w.used < w.size ? w.used : w.size - 1] = 0;
    return w.used;
}
