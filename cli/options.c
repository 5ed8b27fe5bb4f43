/* options.c -- options from one table over getopt_long, errors, and what attend, explain and bias share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "src/base/edits.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int cli_error(int code, const char *format, ...)
{
    char text[2048], safe[3072]; /* what users and files said is in it: no control character gets to the terminal */
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "relpos: %s\n", io_safe(safe, sizeof safe, text));
    return code;
}

/* ------------------------------------------------------------------------------------------------- options */

enum { MOST_OPTIONS = 63 }; /* of a command, those of masks among them */

/* A command whose options of masks are written out. */
typedef struct expanded {
    cli_command command;
    cli_option option[MOST_OPTIONS + 1];
    char name[RP_MASK_COUNT][CLI_MASK_MAX], arg[RP_MASK_COUNT][64], help[RP_MASK_COUNT][256];
} expanded;

const char *cli_mask_option(rp_mask_kind kind, char text[CLI_MASK_MAX])
{
    snprintf(text, CLI_MASK_MAX, "%s", rp_mask_name(kind));
    for (char *c = text; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return text;
}

/* "LEFT,RIGHT" */
static const char *param_names(const rp_mask_info *info, char text[64])
{
    *text = 0;
    for (const rp_mask_param *p = info->params; p && p->name; p++) {
        strncat(text, p == info->params ? "" : ",", 63 - strlen(text));
        strncat(text, p->name, 63 - strlen(text));
    }
    for (char *c = text; *c; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    return text;
}

const char *cli_mask_usage(rp_mask_kind kind, char text[CLI_MASK_MAX])
{
    const rp_mask_info *info = rp_mask_info_of(kind);
    char option[CLI_MASK_MAX], names[64];
    const char *value = info->axes ? "NAME" : param_names(info, names);
    snprintf(text, CLI_MASK_MAX, "--%.30s%s%.30s", cli_mask_option(kind, option), *value ? " " : "", value);
    return text;
}

static cli_option mask_option(expanded *e, rp_mask_kind kind)
{
    const rp_mask_info *info = rp_mask_info_of(kind);
    char *arg = e->arg[kind], *help = e->help[kind];
    param_names(info, arg);
    if (info->axes)
        snprintf(help, sizeof *e->help, "array, broadcast to (%s): %s", info->axes, info->text);
    else
        snprintf(help, sizeof *e->help, "%s", info->text);
    return (cli_option){cli_mask_option(kind, e->name[kind]), CLI_MASK + (int)kind,
                        info->axes     ? "NAME"
                        : info->params ? arg
                                       : NULL,
                        help};
}

/* Keys of a term, as its syntax names them: "table, left, right". */
static void keys_of(const char *syntax, char *to, size_t size)
{
    size_t used = 0;
    *to = 0;
    for (const char *c = syntax; (c = strchr(c, ',')) && used < size; c++) {
        const size_t n = strcspn(c + 1, "=,[]");
        if (c[1 + n] == '=')
            used += (size_t)snprintf(to + used, size - used, "%s%.*s", used ? ", " : "", (int)n, c + 1);
    }
}

/* The option of a term that is no bias. Its texts live as long as the program. */
static cli_option option_of(rp_term_kind kind)
{
    static char help[RP_TERM_COUNT][256];
    const rp_term_facts *f = rp_term_about(kind);
    const rp_param *p;
    const rp_array_facts *a;
    char keys[128];
    bool alone = true; /* nothing has to be said */
    for (int x = 0; (p = rp_term_param(kind, x)); x++)
        alone = alone && !p->required;
    for (int x = 0; (a = rp_term_array_about(kind, x)); x++)
        alone = alone && a->presence != RP_NEEDED && a->presence != RP_OPTIONAL;
    keys_of(rp_term_syntax(kind), keys, sizeof keys);
    if (rp_term_takes_name(kind))
        snprintf(help[kind], sizeof *help, "array: %s", f->about);
    else
        snprintf(help[kind], sizeof *help, "%s: %s", f->about, keys);
    return (cli_option){rp_term_name(kind), CLI_TERM + (int)kind,
                        rp_term_takes_name(kind) ? "NAME"
                        : alone                  ? "[key=value]..."
                                                 : "key=value...",
                        help[kind]};
}

/* False: there are too many. */
static bool expand(expanded *e, const cli_command *c)
{
    int n = 0;
    memset(e, 0, sizeof *e);
    for (const cli_option *o = c->options; o->name; o++) {
        const bool masks = o->key == CLI_MASK, terms = o->key == CLI_TERM;
        const int first = masks   ? RP_MASK_NONE + 1
                          : terms ? RP_TERM_NONE + 1
                                  : 0,
                  past = masks   ? RP_MASK_COUNT
                         : terms ? RP_TERM_COUNT
                                 : 1;
        for (int k = first; k < past; k++) {
            if (terms && rp_term_is_bias((rp_term_kind)k))
                continue;
            if (n == MOST_OPTIONS)
                return false;
            e->option[n++] = masks ? mask_option(e, (rp_mask_kind)k) : terms ? option_of((rp_term_kind)k) : *o;
        }
    }
    e->command = *c;
    e->command.options = e->option;
    return true;
}

static void print_help(const cli_command *c)
{
    printf("relpos %s -- %s\n\nExample:\n%s\nUsage: relpos %s %s\n\nOptions:\n", c->name, c->summary, c->example,
           c->name, c->usage);
    for (const cli_option *o = c->options; o->name; o++) {
        char left[96];
        snprintf(left, sizeof left, "%s%c%s--%s%s%s", o->key < 256 ? "-" : "  ", o->key < 256 ? o->key : ' ',
                 o->key < 256 ? ", " : " ", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        printf(strlen(left) > 30 ? "  %s\n%34s%s\n" : "  %-32s%s%s\n", left, "", o->help);
    }
    printf("      --help                      show this text\n");
}

static int unknown_option(const cli_command *c, const char *given)
{
    char name[64] = "", safe[128];
    const char *best = NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given + strspn(given, "-"), "="), given + strspn(given, "-"));
    const size_t n = strlen(name);
    size_t least = 4; /* edits that are no longer a slip */
    for (const cli_option *o = c->options; o->name; o++) {
        const bool begun = n > 1 && strncmp(name, o->name, n) == 0; /* getopt refuses the beginning of several */
        const size_t slips = begun ? 0 : rpi_edits(name, o->name);
        if (slips < least) {
            least = slips;
            best = o->name;
        }
    }
    io_safe(safe, sizeof safe, given);
    if (best)
        return cli_error(CLI_USAGE, "%s: no option is called %s (did you mean --%s?)", c->name, safe, best);
    return cli_error(CLI_USAGE, "%s: no option is called %s (relpos %s --help lists them)", c->name, safe, c->name);
}

static int one_too_many(const cli_command *c, const char *given)
{
    char safe[96];
    return cli_error(CLI_USAGE, "%s: one argument too many: \"%s\" (relpos %s --help)", c->name,
                     io_safe(safe, sizeof safe, given), c->name);
}

static bool is_number(const char *text)
{
    return text[0] == '-' && text[1] >= '0' && text[1] <= '9';
}

/* Whether the word before this one is an option that still wants its value. */
static bool takes_next(const cli_command *c, const char *word)
{
    for (const cli_option *o = c->options; o->name && word[0] == '-'; o++)
        if (o->arg &&
            (strcmp(word + strspn(word, "-"), o->name) == 0 || (o->key < 256 && word[1] == o->key && !word[2])))
            return true;
    return false;
}

/* "[key=value]...": the option may stand alone, and takes the next word only if that is key=value. */
static bool may_stay_away(const cli_option *o)
{
    return o->arg && o->arg[0] == '[';
}

int cli_options(const cli_command *command, int argc, char **argv,
                int (*on_option)(void *context, int key, const char *value), void *context, const char **args,
                int max_args, int *n_args)
{
    enum { HELP = 'h' };
    expanded whole;
    const cli_command *c = &whole.command;
    struct option longs[MOST_OPTIONS + 2];
    char shorts[64] = "-:h"; /* arguments in order; a missing value is told from an unknown option */
    int n_longs = 0, key, code = -1, last = 1;
    char safe[128];
    const char **early = calloc((size_t)argc + 1, sizeof *early); /* negative numbers, kept from getopt */
    char **words = calloc((size_t)argc + 1, sizeof *words);
    int n_words = 0;
    *n_args = 0;
    if (!early || !words || !expand(&whole, command)) {
        free(early);
        free(words);
        return cli_error(CLI_FAILED, "%s: out of memory (close other programs)", command->name);
    }
    for (const cli_option *o = c->options; o->name; o++) {
        longs[n_longs++] = (struct option){o->name,
                                           !o->arg            ? no_argument
                                           : may_stay_away(o) ? optional_argument
                                                              : required_argument,
                                           NULL, o->key};
        if (o->key < 256)
            snprintf(shorts + strlen(shorts), sizeof shorts - strlen(shorts), "%c%s", o->key, o->arg ? ":" : "");
    }
    longs[n_longs++] = (struct option){"help", no_argument, NULL, HELP};
    longs[n_longs] = (struct option){0};
    /* getopt would take -5 for an option: leave a place for it, and look it up again when the place comes. */
    for (int n = 0; n < argc; n++) {
        const bool number = n > 0 && c->negative_numbers && is_number(argv[n]) && !takes_next(c, argv[n - 1]);
        early[n_words] = number ? argv[n] : NULL;
        words[n_words++] = number ? (char *)(uintptr_t) "number" : argv[n];
    }
    optind = 0; /* GNU: start afresh */
    opterr = 0;
    while (code < 0 && (key = getopt_long(n_words, words, shorts, longs, NULL)) != -1) {
        const char *word = words[optind - 1];
        if (key == HELP) {
            print_help(c);
            code = CLI_OK;
        } else if (key == ':') {
            code = cli_error(CLI_USAGE, "%s: %s needs a value (relpos %s --help)", c->name,
                             io_safe(safe, sizeof safe, word), c->name);
        } else if (key == '?') {
            code = unknown_option(c, words[last] && last < n_words ? words[last] : word);
        } else if (key == 1) {
            const char *value = early[optind - 1] ? early[optind - 1] : optarg;
            if (*n_args >= max_args)
                code = one_too_many(c, value);
            else
                args[(*n_args)++] = value;
        } else {
            const char *value = optarg;
            for (const cli_option *o = c->options; o->name && !value; o++)
                if (o->key == key && may_stay_away(o)) {
                    const bool next = optind < n_words && words[optind][0] != '-' && strchr(words[optind], '=');
                    value = next ? words[optind++] : "";
                }
            const int result = on_option(context, key, value);
            code = result == CLI_OK ? -1 : result;
        }
        last = optind;
    }
    for (int n = optind; code < 0 && n < n_words; n++) { /* after "--" */
        if (*n_args >= max_args)
            code = one_too_many(c, argv[n]);
        else
            args[(*n_args)++] = argv[n];
    }
    free(early);
    free(words);
    return code;
}

int cli_integer(const char *option, const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end, safe[96];
    const char *digit = text + (*text == '-');
    errno = 0;
    const long long n = *digit >= '0' && *digit <= '9' ? strtoll(text, &end, 10) : (end = (char *)(uintptr_t) "x", 0);
    if (*end == 0 && errno == ERANGE)
        return cli_error(CLI_USAGE, "%s: \"%s\" is too large (%lld to %lld)", option, io_safe(safe, sizeof safe, text),
                         (long long)least, (long long)most);
    if (*end || errno)
        return cli_error(CLI_USAGE, "%s: \"%s\" is not a whole number (write digits only)", option,
                         io_safe(safe, sizeof safe, text));
    if (n < least || n > most)
        return cli_error(CLI_USAGE, "%s: %lld is out of range (%lld to %lld)", option, n, (long long)least,
                         (long long)most);
    *value = n;
    return CLI_OK;
}

int cli_real(const char *option, const char *text, double *value)
{
    /* The library reads decimal numbers the same under every locale; a term with one number serves. */
    char term[96], names[RP_MAX_ARRAYS][RP_NAME_MAX], safe[96];
    rp_term t;
    snprintf(term, sizeof term, "log,lambda=%s", text);
    if (strlen(text) > 64 || strchr(text, ',') || rp_term_parse(term, &t, names) != RP_OK)
        return cli_error(CLI_USAGE, "%s: \"%s\" is not a finite number (write it like 0.125 or 1e-3)", option,
                         io_safe(safe, sizeof safe, text));
    *value = t.lambda;
    return CLI_OK;
}

bool cli_colour(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(f)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

int cli_width(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20)
        return w.ws_col;
    return 80;
}

void cli_json_string(FILE *to, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    fputc('"', to);
    for (size_t left = strlen(text), n; left > 0; c += n, left -= n) {
        n = io_utf8(c, left);
        if (*c == '"' || *c == '\\')
            fprintf(to, "\\%c", *c);
        else if (n == 1 && (*c < 0x20 || *c == 0x7f))
            fprintf(to, "\\u%04x", *c);
        else if (n == 2 && *c == 0xc2 && c[1] < 0xa0) /* control characters too */
            fprintf(to, "\\u%04x", c[1]);
        else if (n > 0)
            fwrite(c, 1, n, to);
        else
            fputs("\\ufffd", to), n = 1; /* JSON is UTF-8 throughout */
    }
    fputc('"', to);
}

/* ------------------------------------------------------------------------------------------------- a problem */

void cli_problem_init(cli_problem *p)
{
    memset(p, 0, sizeof *p);
    p->desc = rp_desc_init(0, 1, 0, 0, 1);
    p->desc.terms = p->terms;
    p->desc.masks = p->masks;
}

static int add_term(cli_problem *p, const char *prefix, const char *text)
{
    char whole[1024], safe[96], said[CLI_WORDS_MAX];
    const int32_t n = p->desc.n_terms;
    if (n == RP_MAX_TERMS)
        return cli_error(CLI_USAGE, "too many terms: \"%s\" (at most %d)", io_safe(safe, sizeof safe, text),
                         RP_MAX_TERMS);
    /* --rope dim=64 means the term rope,dim=64 */
    const int used = snprintf(whole, sizeof whole, "%s%s%s", prefix, *prefix && *text ? "," : "", text);
    if (used < 0 || (size_t)used >= sizeof whole)
        return cli_error(CLI_USAGE, "term: longer than %zu bytes: \"%s\" (shorten the names of its arrays)",
                         sizeof whole - 1, io_safe(safe, 48, text));
    const rp_status status = rp_term_parse(whole, &p->terms[n], p->term_array[n]);
    if (status != RP_OK)
        return cli_error(status == RP_E_UNSUPPORTED ? CLI_FAILED : CLI_USAGE, "%s%s (relpos info lists the terms)",
                         p->bare   ? ""
                         : *prefix ? "--"
                                   : "--bias ",
                         cli_words(NULL, said));
    if (!*prefix && !rp_term_is_bias(p->terms[n].kind))
        return cli_error(CLI_USAGE, "--bias %s: this term is no bias (write --%s key=value,...)",
                         io_safe(safe, sizeof safe, text), rp_term_name(p->terms[n].kind));
    io_safe(p->term_text[n], sizeof p->term_text[n], whole);
    p->desc.n_terms++;
    return CLI_OK;
}

/* Its one key is the option itself: --sink NAME. */
static int add_named(cli_problem *p, rp_term_kind kind, const char *name)
{
    char text[2 * RP_NAME_MAX];
    if (!*name || strlen(name) >= RP_NAME_MAX || strchr(name, ','))
        return cli_error(CLI_USAGE, "--%s: the name of an array is needed, of up to %d bytes (as in the file)",
                         rp_term_name(kind), RP_NAME_MAX - 1);
    snprintf(text, sizeof text, "%s=%s", rp_term_array(kind, 0), name);
    return add_term(p, rp_term_name(kind), text);
}

/* Whole numbers between commas, one for each parameter. */
static int read_params(const rp_mask_info *info, rp_mask *m, const char *option, const char *value)
{
    char word[32], what[96], names[64], safe[64];
    int64_t n;
    const char *at = value;
    param_names(info, names);
    for (const rp_mask_param *p = info->params; p->name; p++) {
        const size_t length = strcspn(at, ",");
        if (length >= sizeof word || (at[length] == ',') != (p[1].name != NULL))
            return cli_error(CLI_USAGE, "--%s: \"%s\" is not %s (whole numbers, such as --%s %s)", option,
                             io_safe(safe, sizeof safe, value), names, option, info->sample);
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        snprintf(what, sizeof what, "--%s %s", option, p->name);
        const int code = cli_integer(what, word, p->least, p->most, &n);
        if (code != CLI_OK)
            return code;
        rp_mask_set(m, p, n);
        at += length + 1;
    }
    return CLI_OK;
}

static int add_mask(cli_problem *p, rp_mask_kind kind, const char *value)
{
    const rp_mask_info *info = rp_mask_info_of(kind);
    const int32_t n = p->desc.n_masks;
    char option[CLI_MASK_MAX];
    cli_mask_option(kind, option);
    if (n == RP_MAX_MASKS)
        return cli_error(CLI_USAGE, "too many masks (at most %d)", RP_MAX_MASKS);
    if (info->axes && (!*value || strlen(value) >= RP_NAME_MAX))
        return cli_error(CLI_USAGE, "--%s: the name of an array is needed, of up to %d bytes (as in the file)", option,
                         RP_NAME_MAX - 1);
    p->masks[n] = rp_mask_init(kind);
    snprintf(p->mask_array[n], RP_NAME_MAX, "%s", info->axes ? value : "");
    const int code = info->params ? read_params(info, &p->masks[n], option, value) : CLI_OK;
    p->desc.n_masks += code == CLI_OK;
    return code;
}

/* A number, or the name of an array: names begin with a letter. */
static int set_offset(cli_problem *p, const char *value)
{
    const bool name = (*value >= 'a' && *value <= 'z') || (*value >= 'A' && *value <= 'Z') || *value == '_';
    p->desc.q_offset = 0;
    if (name && strlen(value) >= RP_NAME_MAX)
        return cli_error(CLI_USAGE, "--q-offset: a name of more than %d bytes (as in the file)", RP_NAME_MAX - 1);
    snprintf(p->q_offset_array, RP_NAME_MAX, "%s", name ? value : "");
    return name ? CLI_OK : cli_integer("--q-offset", value, -((int64_t)1 << 60), (int64_t)1 << 60, &p->desc.q_offset);
}

int cli_problem_option(cli_problem *p, int key, const char *value)
{
    const char *option = key == CLI_SOFTCAP ? "--softcap" : "--softcap-after";
    int code;
    if (key > CLI_TERM && key < CLI_TERM + RP_TERM_COUNT) {
        const rp_term_kind kind = (rp_term_kind)(key - CLI_TERM);
        return rp_term_takes_name(kind) ? add_named(p, kind, value) : add_term(p, rp_term_name(kind), value);
    }
    if (key > CLI_MASK && key < CLI_MASK + RP_MASK_COUNT)
        return add_mask(p, (rp_mask_kind)(key - CLI_MASK), value);
    switch (key) {
    case CLI_BIAS: return add_term(p, "", value);
    case CLI_SCALE: return cli_real("--scale", value, &p->desc.scale);
    case CLI_SOFTCAP:
    case CLI_SOFTCAP_AFTER:
        if (p->softcap_given)
            return cli_error(CLI_USAGE, "%s: a softcap is given already (one, before or after the biases)", option);
        p->softcap_given = true;
        code = cli_real(option, value, &p->desc.softcap);
        if (code == CLI_OK && p->desc.softcap < 0)
            return cli_error(CLI_USAGE, "%s: %g is below 0 (0 = none, or a positive cap such as 50)", option,
                             p->desc.softcap);
        p->desc.cap_after = key == CLI_SOFTCAP_AFTER;
        return code;
    case CLI_Q_OFFSET: return set_offset(p, value);
    default: return -1;
    }
}

int64_t cli_grid(const cli_problem *p)
{
    const int64_t most = 1 << 20; /* a side beyond that is refused anyway */
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_term *t = &p->terms[n];
        if (t->grid_h > 0 && t->grid_w > 0 && t->grid_h <= most && t->grid_w <= most)
            return t->grid_h * t->grid_w + (t->extra == 1);
    }
    return 0;
}

int cli_problem_check(const cli_problem *p, const char *command)
{
    /* Sizes that fit any parameter: what is refused here is refused for every file. */
    const int64_t length = cli_grid(p) ? cli_grid(p) : 1 << 20;
    rp_desc d = rp_desc_init(1, p->desc.heads, length, length, 1 << 20);
    rp_term terms[RP_MAX_TERMS];
    rp_plan *plan;
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        terms[n] = p->terms[n];
        rp_term_usual_sizes(&terms[n], length); /* the arrays will tell */
    }
    d.scale = p->desc.scale;
    d.softcap = p->desc.softcap;
    d.dropout = p->desc.dropout;
    d.q_offset = p->desc.q_offset;
    d.terms = terms;
    d.n_terms = p->desc.n_terms;
    d.masks = p->masks;
    d.n_masks = p->desc.n_masks;
    if (rp_plan_create(&plan, &d) != RP_OK)
        return cli_refused(CLI_USAGE, command, p, NULL);
    rp_plan_destroy(plan);
    return CLI_OK;
}

int cli_isa(const char *text, const char **isa)
{
    if (rp_isa_found(text) != 1)
        return cli_error(CLI_USAGE, "--isa: \"%.40s\" is %s (relpos info lists those found)", text,
                         rp_isa_found(text) < 0 ? "no instruction set" : "not on this machine");
    *isa = text;
    return CLI_OK;
}

static bool is_floating(rp_dtype type)
{
    return type <= RP_BF16;
}

int cli_dtype(const char *option, const char *text, rp_dtype *type)
{
    for (int n = 0; is_floating((rp_dtype)n); n++)
        if (strcmp(text, rp_dtype_name((rp_dtype)n)) == 0) {
            *type = (rp_dtype)n;
            return CLI_OK;
        }
    return cli_error(CLI_USAGE, "%s: \"%.40s\" is no type (f32, f64, bf16 or f16)", option, text);
}

int cli_array(const io_set *in, const char *name, rp_dtype type, io_set *made, rp_array *a)
{
    char safe[128], err[IO_ERR_MAX];
    const io_array *from = io_take(in, name, err);
    if (!from)
        return cli_error(CLI_FAILED, "%s", err);
    io_safe(safe, sizeof safe, name);
    if (from->ndim > RP_MAX_AXES)
        return cli_error(CLI_FAILED, "array \"%s\": %d axes (at most %d)", safe, (int)from->ndim, RP_MAX_AXES);
    static const double nothing = 0; /* an empty array still has an address */
    if (!is_floating(from->dtype) || !is_floating(type) || from->dtype == type) {
        *a = rp_array_of(from->data ? from->data : &nothing, from->dtype, from->ndim, from->shape);
        return CLI_OK;
    }
    int64_t n = 1;
    for (int32_t x = 0; x < from->ndim; x++)
        n *= from->shape[x]; /* the reader has checked the product */
    void *data = malloc((size_t)n * rp_dtype_size(type) + 1);
    if (!data || io_add(made, name, type, from->ndim, from->shape, data, false) != 0) {
        free(data);
        return cli_error(CLI_FAILED, "array \"%s\": out of memory, converting it (needs %lld bytes)", safe,
                         (long long)n * (long long)rp_dtype_size(type));
    }
    rp_convert(data, type, from->data, from->dtype, n);
    *a = rp_array_of(data, type, from->ndim, from->shape);
    return CLI_OK;
}

int cli_problem_no_file(const cli_problem *p, bool whole)
{
    char option[CLI_MASK_MAX];
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_term_kind kind = p->terms[n].kind;
        for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(kind, x); x++)
            if (*p->term_array[n][x] || (whole && !rp_term_array_optional(kind, x)))
                return cli_error(CLI_USAGE, "%s: its array %s comes from a file (needs --input FILE, and %s=ARRAYNAME)",
                                 rp_term_name(kind), rp_term_array(kind, x), rp_term_array(kind, x));
    }
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        if (*p->mask_array[n])
            return cli_error(CLI_USAGE, "--%s: its array comes from a file (needs --input FILE)",
                             cli_mask_option(p->masks[n].kind, option));
    if (*p->q_offset_array)
        return cli_error(CLI_USAGE, "--q-offset: its array comes from a file (needs --input FILE)");
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

int cli_problem_arrays(cli_problem *p, const io_set *in, bool whole, rp_tensors *t)
{
    char said[CLI_WORDS_MAX];
    int code = CLI_OK;
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        rp_term *term = &p->terms[n];
        for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(term->kind, x); x++) {
            const char *name = p->term_array[n][x];
            if (!*name && (!whole || rp_term_array_optional(term->kind, x)))
                continue;
            if (!*name)
                return cli_error(CLI_USAGE, "%s: %s names no array (it is written %s)", rp_term_name(term->kind),
                                 rp_term_array(term->kind, x), rp_term_syntax(term->kind));
            if ((code = cli_array(in, name, CLI_OWN_TYPE, NULL, &t->term[n][x])) != CLI_OK)
                return code;
        }
        if (rp_term_sizes(term, t->term[n]) != RP_OK)
            return cli_error(CLI_FAILED, "%s%s (relpos(1) says what it is)",
                             p->bare                       ? ""
                             : rp_term_is_bias(term->kind) ? "--bias "
                                                           : "--",
                             cli_words(p, said));
    }
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        if (*p->mask_array[n] && (code = cli_array(in, p->mask_array[n], CLI_OWN_TYPE, NULL, &t->mask[n])) != CLI_OK)
            return code;
    if (!*p->q_offset_array)
        return CLI_OK;
    code = cli_array(in, p->q_offset_array, CLI_OWN_TYPE, NULL, &t->q_offset);
    if (code == CLI_OK && is_floating(t->q_offset.dtype))
        code = cli_error(CLI_FAILED, "--q-offset: array \"%.80s\" is %s (whole numbers are needed)", p->q_offset_array,
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
        return cli_error(CLI_FAILED, "--q-offset: array \"%.80s\" has no entry %lld (one for each batch entry)",
                         p->q_offset_array, (long long)batch);
    const int64_t at = a.ndim == 1 && a.shape[0] > 1 ? batch : 0;
    rp_convert(&offset, RP_F64, (const char *)a.data + (size_t)at * rp_dtype_size(a.dtype), a.dtype, 1);
    if (!(fabs(offset) <= 0x1p53))
        return cli_error(CLI_FAILED, "--q-offset: %g is out of range (at most 2^53 in size)", offset);
    p->desc.q_offset = (int64_t)offset;
    t->q_offset.data = NULL;
    return CLI_OK;
}

int cli_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
