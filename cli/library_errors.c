/* library_errors.c -- prints errors of the library, replacing the fields of C structs by option and array names.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <string.h>

/* Sizes that come from the arrays; no option sets them. */
static const char *const sizes[][2] = {{"batch", "the number of batch entries"},
                                       {"heads", "the number of heads"},
                                       {"kv_heads", "the number of heads of k"},
                                       {"len_q", "the number of queries"},
                                       {"len_k", "the number of keys"},
                                       {"dim_k", "the width of q and k"},
                                       {"dim_v", "the width of v"},
                                       {"n_terms", "the number of terms"},
                                       {"n_masks", "the number of masks"}};

static void field_word(const char *name, char *text, size_t size)
{
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        if (strcmp(sizes[n][0], name) == 0) {
            snprintf(text, size, "%s", sizes[n][1]);
            return;
        }
    snprintf(text, size, "--%s", name); /* --q-offset */
    for (char *c = text; *c; c++)
        *c = *c == '_' ? '-' : *c;
}

static void term_word(const cli_problem *p, const rp_field *f, char *text, size_t size)
{
    const rp_term_kind kind = p->terms[f->index].kind;
    const bool bias = rp_term_is_bias(kind);
    const char *array = "", *option = !bias ? "--" : p->bare ? "" : "--bias ";
    for (int x = 0; f->of == RP_FIELD_TERM_ARRAY && x < RP_MAX_ARRAYS && rp_term_array(kind, x); x++)
        if (strcmp(rp_term_array(kind, x), f->name) == 0)
            array = p->term_array[f->index][x];
    if (*array && rp_term_takes_name(kind)) /* the value of the option is just the name */
        snprintf(text, size, "--%s %s", f->kind, array);
    else if (*array)
        snprintf(text, size, "%s%s%s%s=%s", option, f->kind, bias ? "," : " ", f->name, array);
    else if (*f->name)
        snprintf(text, size, "%s%s: %s", option, f->kind, f->name);
    else
        snprintf(text, size, "%s%s", option, f->kind);
}

static int word(void *context, const rp_field *f, char *text, size_t size)
{
    const cli_problem *p = context;
    char option[CLI_MASK_MAX];
    switch (f->of) {
    case RP_FIELD_TERM:
    case RP_FIELD_TERM_ARRAY: term_word(p, f, text, size); return 1;
    case RP_FIELD_MASK:
        cli_mask_option(p->masks[f->index].kind, option);
        snprintf(text, size, "--%s%s%s", option, *f->name ? ": " : "", f->name);
        return 1;
    case RP_FIELD_MASK_ARRAY:
        cli_mask_option(p->masks[f->index].kind, option);
        snprintf(text, size, "--%s %s", option, p->mask_array[f->index]);
        return 1;
    case RP_FIELD_TENSORS:
        if (strcmp(f->name, "q_offset") == 0)
            snprintf(text, size, "--q-offset %s", p->q_offset_array);
        return strcmp(f->name, "q_offset") == 0;
    case RP_FIELD_DESC: field_word(f->name, text, size); return 1;
    default: return 0;
    }
}

const char *cli_words_of(cli_last_error_in *last, const cli_problem *p, char text[CLI_WORDS_MAX])
{
    return last(p ? &p->desc : NULL, p ? word : NULL, (void *)(uintptr_t)p, text, CLI_WORDS_MAX);
}

const char *cli_words(const cli_problem *p, char text[CLI_WORDS_MAX])
{
    return cli_words_of(rp_last_error_in, p, text);
}

int cli_code(rp_status status)
{
    return status == RP_E_NOMEM ? CLI_FAILED : CLI_USAGE;
}

int cli_refused(int code, const char *command, const cli_problem *p, const char *fix)
{
    char message[CLI_WORDS_MAX], help[64];
    snprintf(help, sizeof help, "see relpos %s --help", command);
    return cli_error(code, "%s: %s (%s)", command, cli_words(p, message), fix ? fix : help);
}
