/* problem.c -- an attention problem given on the command line: terms, masks and settings, and the arrays of a file that
 * they name. Shared by attend, explain, bias and the laboratory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void cli_problem_init(cli_problem *p)
{
    memset(p, 0, sizeof *p);
    p->desc = rp_desc_init(0, 1, 0, 0, 1);
    p->desc.terms = p->terms;
    p->desc.masks = p->masks;
}

/* Return the option text before a term on the command line, or "" if terms are given as arguments. */
static const char *option_prefix(const cli_problem *p, bool bias)
{
    return p->bare ? "" : bias ? "--bias " : "--";
}

/* Write to `text` how a term is written on the command line. Return `text`. */
static const char *syntax_words(const cli_problem *p, rp_term_kind kind, char text[CLI_WORDS_MAX])
{
    if (p->bare)
        snprintf(text, CLI_WORDS_MAX, "%s", rp_term_syntax(kind));
    else
        rp_term_option(kind, text, CLI_WORDS_MAX);
    return text;
}

/* Parse a term and add it. `kind` is the kind that the option names, or RP_TERM_NONE for a bias. Return CLI_OK, or an
 * exit code after printing. */
static int add_term(cli_problem *p, rp_term_kind kind, const char *text)
{
    char whole[1024], safe[96], message[CLI_WORDS_MAX], written[CLI_WORDS_MAX];
    const char *prefix = kind ? rp_term_name(kind) : "";
    const int32_t n = p->desc.n_terms;
    if (n == RP_MAX_TERMS)
        return cli_error(CLI_USAGE, "there are too many terms: \"%s\" (give at most %d)",
                         io_safe(safe, sizeof safe, text), RP_MAX_TERMS);
    /* --rope dim=64 means the term rope,dim=64 */
    const int used = snprintf(whole, sizeof whole, "%s%s%s", prefix, *prefix && *text ? "," : "", text);
    if (used < 0 || (size_t)used >= sizeof whole)
        return cli_error(CLI_USAGE, "the term is longer than %zu bytes: \"%s\" (shorten the names of its arrays)",
                         sizeof whole - 1, io_safe(safe, 48, text));
    const rp_status status = rp_term_parse(whole, &p->terms[n], p->term_array[n]);
    if (status != RP_OK) {
        cli_words(NULL, message);
        char *syntax = kind ? strstr(message, rp_term_syntax(kind)) : NULL;
        if (syntax) /* the message ends in the syntax of the term: replace it by the syntax of the option */
            *syntax = 0;
        return cli_error(status == RP_E_UNSUPPORTED ? CLI_FAILED : CLI_USAGE, "%s%s%s (relpos info lists the terms)",
                         !kind && !p->bare && !p->terms[n].kind ? "--bias: " : option_prefix(p, !kind), message,
                         syntax ? syntax_words(p, kind, written) : "");
    }
    if (!*prefix && !rp_term_is_bias(p->terms[n].kind))
        return cli_error(CLI_USAGE, "--bias %s: this term is not a bias (write --%s key=value,...)",
                         io_safe(safe, sizeof safe, text), rp_term_name(p->terms[n].kind));
    io_safe(p->term_text[n], sizeof p->term_text[n], whole);
    p->desc.n_terms++;
    return CLI_OK;
}

/* Add a term whose option takes only the name of an array: --sink NAME. */
static int add_named(cli_problem *p, rp_term_kind kind, const char *name)
{
    char text[2 * RP_NAME_MAX];
    if (!*name || strlen(name) >= RP_NAME_MAX || strchr(name, ','))
        return cli_error(
            CLI_USAGE, "--%s: it needs the name of an array in the file (give one of at most %d bytes, without commas)",
            rp_term_name(kind), RP_NAME_MAX - 1);
    snprintf(text, sizeof text, "%s=%s", rp_term_array(kind, 0), name);
    return add_term(p, kind, text);
}

/* Set the query offset to a number, or to the array with this name. Names begin with a letter or '_'. */
static int set_offset(cli_problem *p, const char *value)
{
    const bool name = (*value >= 'a' && *value <= 'z') || (*value >= 'A' && *value <= 'Z') || *value == '_';
    p->desc.q_offset = 0;
    if (name && strlen(value) >= RP_NAME_MAX)
        return cli_error(CLI_USAGE, "--q-offset: the name is longer than %d bytes (rename the array in the file)",
                         RP_NAME_MAX - 1);
    snprintf(p->q_offset_array, RP_NAME_MAX, "%s", name ? value : "");
    return name ? CLI_OK : cli_integer("--q-offset", value, -((int64_t)1 << 60), (int64_t)1 << 60, &p->desc.q_offset);
}

static int set_softcap(const char *option, const char *value, bool *given, double *cap)
{
    if (*given)
        return cli_error(CLI_USAGE, "%s: it was given twice (give it once)", option);
    *given = true;
    const int code = cli_real(option, value, cap);
    if (code == CLI_OK && *cap < 0)
        return cli_error(CLI_USAGE, "%s: %g is below 0 (give a positive cap such as 50, or 0 for none)", option, *cap);
    return code;
}

int cli_problem_option(cli_problem *p, int key, const char *value)
{
    if (key > CLI_TERM && key < CLI_TERM + RP_TERM_COUNT) {
        const rp_term_kind kind = (rp_term_kind)(key - CLI_TERM);
        return rp_term_takes_name(kind) ? add_named(p, kind, value) : add_term(p, kind, value);
    }
    if (key > CLI_MASK && key < CLI_MASK + RP_MASK_COUNT)
        return cli_add_mask(p, (rp_mask_kind)(key - CLI_MASK), value);
    switch (key) {
    case CLI_BIAS: return add_term(p, RP_TERM_NONE, value);
    case CLI_SCALE: return cli_real("--scale", value, &p->desc.scale);
    case CLI_SOFTCAP: return set_softcap("--softcap", value, &p->softcap_given[0], &p->desc.softcap);
    case CLI_SOFTCAP_AFTER: return set_softcap("--softcap-after", value, &p->softcap_given[1], &p->desc.softcap_after);
    case CLI_Q_OFFSET: return set_offset(p, value);
    default: return -1;
    }
}

int64_t cli_grid(const cli_problem *p)
{
    const int64_t max_side = 1 << 20; /* the library refuses larger values */
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_term *t = &p->terms[n];
        if (t->grid_h > 0 && t->grid_w > 0 && t->grid_h <= max_side && t->grid_w <= max_side)
            return t->grid_h * t->grid_w + (t->extra == 1);
    }
    return 0;
}

int cli_problem_check(const cli_problem *p, const char *command)
{
    /* These sizes fit all valid parameters. So a term that is refused here would be refused with every file. */
    const int64_t length = cli_grid(p) ? cli_grid(p) : 1 << 20;
    rp_desc d = rp_desc_init(1, p->desc.heads, length, length, 1 << 20);
    rp_term terms[RP_MAX_TERMS];
    rp_plan *plan;
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        terms[n] = p->terms[n];
        rp_term_usual_sizes(&terms[n], length); /* sizes that will come from the arrays */
    }
    d.scale = p->desc.scale;
    d.softcap = p->desc.softcap;
    d.softcap_after = p->desc.softcap_after;
    d.dropout = p->desc.dropout;
    d.q_offset = p->desc.q_offset;
    d.terms = terms;
    d.n_terms = p->desc.n_terms;
    d.masks = p->masks;
    d.n_masks = p->desc.n_masks;
    const rp_status status = rp_plan_create(&plan, &d);
    if (status != RP_OK)
        return cli_refused(cli_code(status), command, p, status == RP_E_NOMEM ? "close other programs" : NULL);
    rp_plan_destroy(plan);
    return CLI_OK;
}

bool cli_problem_wants(const void *problem, const char *name)
{
    const cli_problem *p = problem;
    bool wants = strcmp(name, "q") == 0 || strcmp(name, "k") == 0 || strcmp(name, "v") == 0 ||
                 strcmp(name, "dout") == 0 || strcmp(name, "dlse") == 0 || strcmp(name, p->q_offset_array) == 0;
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            wants |= strcmp(name, p->term_array[n][x]) == 0;
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        wants |= strcmp(name, p->mask_array[n]) == 0;
    return wants;
}

int cli_array(const io_set *in, const char *name, rp_dtype type, io_set *made, rp_array *a)
{
    char safe[128], err[IO_ERR_MAX];
    const io_array *from = io_take(in, name, err);
    if (!from)
        return cli_error(CLI_FAILED, "%s", err);
    io_safe(safe, sizeof safe, name);
    if (from->ndim > RP_MAX_AXES)
        return cli_error(CLI_FAILED, "array \"%s\" has %d axes (reshape it to at most %d)", safe, (int)from->ndim,
                         RP_MAX_AXES);
    static const double nothing = 0; /* address for arrays without elements */
    if (!io_is_floating(from->dtype) || !io_is_floating(type) || from->dtype == type) {
        *a = rp_array_of(from->data ? from->data : &nothing, from->dtype, from->ndim, from->shape);
        return CLI_OK;
    }
    int64_t n = 1;
    for (int32_t x = 0; x < from->ndim; x++)
        n *= from->shape[x]; /* no overflow: the reader has checked the shape */
    void *data = malloc((size_t)n * rp_dtype_size(type) + 1);
    if (!data || io_add(made, name, type, from->ndim, from->shape, data, false) != 0) {
        free(data);
        return cli_error(CLI_FAILED,
                         "array \"%s\": out of memory while converting it (free %lld bytes, or store it as %s)", safe,
                         (long long)n * (long long)rp_dtype_size(type), rp_dtype_name(type));
    }
    rp_convert(data, type, from->data, from->dtype, n);
    *a = rp_array_of(data, type, from->ndim, from->shape);
    return CLI_OK;
}

int cli_problem_no_file(const cli_problem *p, bool complete)
{
    char option[CLI_MASK_MAX];
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_term_kind kind = p->terms[n].kind;
        for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(kind, x); x++)
            if (*p->term_array[n][x] || (complete && !rp_term_array_optional(kind, x)))
                return cli_error(CLI_USAGE, "%s%s: its array %s comes from a file (give --input FILE and %s%s)",
                                 option_prefix(p, rp_term_is_bias(kind)), rp_term_name(kind), rp_term_array(kind, x),
                                 rp_term_takes_name(kind) ? "" : rp_term_array(kind, x),
                                 rp_term_takes_name(kind) ? "the array's name" : "=ARRAYNAME");
    }
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        if (*p->mask_array[n])
            return cli_error(CLI_USAGE, "--%s: its array comes from a file (give --input FILE)",
                             cli_mask_option(p->masks[n].kind, option));
    if (*p->q_offset_array)
        return cli_error(CLI_USAGE, "--q-offset: its array comes from a file (give --input FILE)");
    return CLI_OK;
}

bool cli_many_heads(const cli_problem *p)
{
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_term_kind kind = p->terms[n].kind;
        if (rp_term_is_bias(kind) && rp_term_array_optional(kind, 0) && rp_term_array_learned(kind, 0) &&
            !*p->term_array[n][0])
            return true;
    }
    return false;
}

int cli_problem_arrays(cli_problem *p, const io_set *in, bool complete, rp_tensors *t)
{
    char message[CLI_WORDS_MAX];
    int code = CLI_OK;
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        rp_term *term = &p->terms[n];
        for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(term->kind, x); x++) {
            const char *name = p->term_array[n][x];
            if (!*name && (!complete || rp_term_array_optional(term->kind, x)))
                continue;
            if (!*name)
                return cli_error(CLI_USAGE, "%s%s: %s is missing (write %s)",
                                 option_prefix(p, rp_term_is_bias(term->kind)), rp_term_name(term->kind),
                                 rp_term_array(term->kind, x), syntax_words(p, term->kind, message));
            if ((code = cli_array(in, name, CLI_KEEP_TYPE, NULL, &t->term[n][x])) != CLI_OK)
                return code;
        }
        if (rp_term_sizes(term, t->term[n]) != RP_OK)
            return cli_error(CLI_FAILED, "%s%s (see relpos(1) for the shape)",
                             option_prefix(p, rp_term_is_bias(term->kind)), cli_words(p, message));
    }
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        if (*p->mask_array[n] && (code = cli_array(in, p->mask_array[n], CLI_KEEP_TYPE, NULL, &t->mask[n])) != CLI_OK)
            return code;
    if (!*p->q_offset_array)
        return CLI_OK;
    code = cli_array(in, p->q_offset_array, CLI_KEEP_TYPE, NULL, &t->q_offset);
    if (code == CLI_OK && io_is_floating(t->q_offset.dtype))
        code = cli_error(CLI_FAILED, "--q-offset: array \"%.80s\" is %s (use whole numbers)", p->q_offset_array,
                         rp_dtype_name(t->q_offset.dtype));
    return code;
}

int cli_take_offset(cli_problem *p, rp_tensors *t, int64_t batch)
{
    const rp_array a = t->q_offset;
    double offset;
    if (!a.data)
        return CLI_OK;
    if (a.ndim > 1 || (a.ndim == 1 && a.shape[0] != 1 && batch >= a.shape[0]))
        return cli_error(CLI_FAILED, "--q-offset: array \"%.80s\" has no entry %lld (give one for each batch entry)",
                         p->q_offset_array, (long long)batch);
    const int64_t at = a.ndim == 1 && a.shape[0] > 1 ? batch : 0;
    rp_convert(&offset, RP_F64, (const char *)a.data + (size_t)at * rp_dtype_size(a.dtype), a.dtype, 1);
    if (!(fabs(offset) <= 0x1p53))
        return cli_error(CLI_FAILED, "--q-offset: %g is out of range (-2^53 to 2^53)", offset);
    p->desc.q_offset = (int64_t)offset;
    t->q_offset.data = NULL;
    return CLI_OK;
}
