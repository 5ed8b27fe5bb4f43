/* api/error_names.c -- rewrite the last error in the terms of a client program, whose users see neither rp_desc nor
 * rp_tensors. Independent of plans and arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include <relpos/facts.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The notation of fields in error messages, defined in base/error.h. */
static const struct {
    const char *begin;
    rp_field_of of;
    bool indexed;
} notations[] = {{"desc.", RP_FIELD_DESC, false},      {"tensors.", RP_FIELD_TENSORS, false},
                 {"pages.", RP_FIELD_PAGES, false},    {"terms[", RP_FIELD_TERM, true},
                 {"term[", RP_FIELD_TERM_ARRAY, true}, {"masks[", RP_FIELD_MASK, true},
                 {"mask[", RP_FIELD_MASK_ARRAY, true}};

static bool in_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool of_term(rp_field_of of)
{
    return of == RP_FIELD_TERM || of == RP_FIELD_TERM_ARRAY;
}

/* Return the kind of the term or mask that has the field, or 0 without a description. The kind is the first member of
 * rp_term and rp_mask. Their sizes are the caller's, as given in the description. */
static int kind_of(const rp_desc *d, const rp_field *f)
{
    const bool term = of_term(f->of);
    int kind = 0;
    if (d)
        memcpy(&kind,
               (const char *)(term ? (const void *)d->terms : (const void *)d->masks) +
                   (size_t)f->index * (term ? d->term_size : d->mask_size),
               sizeof kind);
    return kind;
}

static const char *name_of(const rp_field *f, int kind)
{
    const bool term = of_term(f->of);
    const char *name = kind == 0 ? NULL : term ? rp_term_name((rp_term_kind)kind) : rp_mask_name((rp_mask_kind)kind);
    return name ? name : term ? "term" : "mask";
}

enum { NAME_MAX_BYTES = 64 };

/* Replace the C name of a parameter by its key in the syntax of the term: "left" for rate_left. */
static void name_parameter(rp_term_kind kind, char name[NAME_MAX_BYTES])
{
    const rp_param *p;
    for (int n = 0; (p = rp_term_param(kind, n)) != NULL; n++)
        if (strcmp(p->field, name) == 0 || (p->type == RP_PARAM_GRID && strstr(p->field, name))) /* "grid_h grid_w" */
            snprintf(name, NAME_MAX_BYTES, "%s", p->key);
}

/* Parse a field at `at`, and skip a kind after it such as " (of t5)"; f->kind comes from the description. Return the
 * number of bytes parsed, or 0 if there is no field. */
static size_t read_field(const char *at, const rp_desc *desc, rp_field *f, char name[NAME_MAX_BYTES])
{
    for (size_t n = 0; n < sizeof notations / sizeof *notations; n++) {
        const char *c = at + strlen(notations[n].begin);
        size_t length = 0;
        int kind = 0;
        if (strncmp(at, notations[n].begin, (size_t)(c - at)) != 0)
            continue;
        *f = (rp_field){.of = notations[n].of, .name = name, .kind = ""};
        if (notations[n].indexed) {
            char *end;
            f->index = (int32_t)strtol(c, &end, 10);
            const int32_t count = !desc ? INT32_MAX : of_term(f->of) ? desc->n_terms : desc->n_masks;
            if (*end != ']' || f->index < 0 || f->index >= count) /* the message was truncated */
                return 0;
            kind = kind_of(desc, f);
            f->kind = name_of(f, kind);
            c = end + 1;
            c += *c == '.' && in_word(c[1]);
        }
        if (!notations[n].indexed || c[-1] == '.')
            while (in_word(c[length]) && length + 1 < NAME_MAX_BYTES)
                length++;
        if (c[length] == '[') /* real[0] is a parameter without a named field in rp_term */
            length += strcspn(c + length, "]") + (strchr(c + length, ']') != NULL);
        if (length >= NAME_MAX_BYTES)
            return 0;
        memcpy(name, c, length);
        name[length] = 0;
        c += length;
        if (f->of == RP_FIELD_TERM)
            name_parameter((rp_term_kind)kind, name);
        if (strncmp(c, " (of ", 5) == 0) {
            c += strcspn(c, ")");
            c += *c == ')';
        }
        return (size_t)(c - at);
    }
    return 0;
}

static void default_word(const rp_field *f, char *text, size_t size)
{
    if (f->of == RP_FIELD_MASK_ARRAY || !*f->name)
        snprintf(text, size, "%s", f->kind);
    else
        snprintf(text, size, "%s%s%s", f->name, *f->kind ? " of " : "", f->kind);
}

const char *rp_last_error_in(const rp_desc *desc, rp_word *word, void *context, char *text, size_t size)
{
    const char *from = rp_last_error();
    size_t used = 0;
    bool quoted = false; /* true inside quotes, where text is not ours and is copied unchanged */
    if (!text || size == 0)
        return "";
    while (*from && used + 1 < size) {
        rp_field f;
        char name[NAME_MAX_BYTES];
        const bool begins = !quoted && (from == rp_last_error() || !in_word(from[-1]));
        const size_t length = begins ? read_field(from, desc, &f, name) : 0;
        if (length == 0) {
            quoted ^= *from == '"';
            text[used++] = *from++;
            continue;
        }
        text[used] = 0;
        if (!word || !word(context, &f, text + used, size - used))
            default_word(&f, text + used, size - used);
        used += strlen(text + used);
        from += length;
    }
    text[used] = 0;
    return text;
}
