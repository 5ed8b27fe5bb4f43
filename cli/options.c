/* options.c -- parses a table of options with getopt_long, and prints help.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/expand.h"
#include "cli/team.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* Write to `to` the keys that occur in a term's syntax, such as "table, left, right". */
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

/* Return the option for a term that is not a bias. Its strings are static. */
static cli_option option_of(rp_term_kind kind)
{
    static char help[RP_TERM_COUNT][256];
    const rp_term_facts *f = rp_term_about(kind);
    const rp_param *p;
    const rp_array_facts *a;
    char keys[128];
    bool optional = true; /* the option may have no value */
    for (int x = 0; (p = rp_term_param(kind, x)); x++)
        optional = optional && !p->required;
    for (int x = 0; (a = rp_term_array_about(kind, x)); x++)
        optional = optional && a->presence != RP_NEEDED && a->presence != RP_OPTIONAL;
    keys_of(rp_term_syntax(kind), keys, sizeof keys);
    if (rp_term_takes_name(kind))
        snprintf(help[kind], sizeof *help, "array: %s", f->about);
    else
        snprintf(help[kind], sizeof *help, "%s: %s", f->about, keys);
    return (cli_option){rp_term_name(kind), CLI_TERM + (int)kind,
                        rp_term_takes_name(kind) ? "NAME"
                        : optional               ? "[key=value]..."
                                                 : "key=value...",
                        help[kind]};
}

bool cli_expand(cli_expanded *e, const cli_command *c)
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
            if (n == CLI_MAX_OPTIONS)
                return false;
            e->option[n++] = masks   ? cli_mask_row((rp_mask_kind)k, &e->mask[k])
                             : terms ? option_of((rp_term_kind)k)
                                     : *o;
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

/* Return true if the command has an option of this long name, or of this short one if `name` is a letter. */
static bool has_option(const cli_command *command, const char *name)
{
    cli_expanded whole;
    if (!command->options || !cli_expand(&whole, command))
        return false;
    for (const cli_option *o = whole.command.options; o->name; o++)
        if (strcmp(o->name, name) == 0 || (name[0] && !name[1] && o->key == name[0]))
            return true;
    return false;
}

/* Write which other commands have the option, such as "relpos info and relpos bias have it", or "". */
static void write_owners(const cli_command *c, const char *name, char *to, size_t size)
{
    const cli_command *owner;
    const char *names[2] = {0};
    int found = 0;
    *to = 0;
    for (int n = 0; (owner = cli_command_at(n)) != NULL; n++)
        if (strcmp(owner->name, c->name) != 0 && has_option(owner, name) && found++ < 2)
            names[found - 1] = owner->name;
    if (found == 1)
        snprintf(to, size, "relpos %s has it", names[0]);
    else if (found == 2)
        snprintf(to, size, "relpos %s and relpos %s have it", names[0], names[1]);
    else if (found > 2)
        snprintf(to, size, "relpos %s, relpos %s and %d others have it", names[0], names[1], found - 2);
}

/* Names that are no options: arrays of the input file. */
static const char *const arrays[] = {"q", "k", "v", "dout", "dlse"};

static int unknown_option(const cli_command *c, const char *given)
{
    char name[64] = "", safe[128], owners[160];
    cli_nearest near = {0};
    const cli_command *other;
    cli_expanded whole;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given + strspn(given, "-"), "="), given + strspn(given, "-"));
    for (const cli_option *o = c->options; o->name; o++)
        cli_consider(&near, name, o->name);
    io_safe(safe, sizeof safe, given);
    write_owners(c, name, owners, sizeof owners);
    if (*owners && (!near.best || near.edits > 0))
        return cli_error(CLI_USAGE, "%s: no option is called %s (%s)", c->name, safe, owners);
    for (size_t n = 0; n < sizeof arrays / sizeof *arrays; n++)
        if (strcmp(name, arrays[n]) == 0)
            return cli_error(CLI_USAGE,
                             "%s: no option is called %s (relpos attend reads the array %s from its input "
                             "file%s)",
                             c->name, safe, name, name[0] == 'd' ? " with --grad" : "");
    if (near.best)
        return cli_error(CLI_USAGE, "%s: no option is called %s (did you mean --%s?)", c->name, safe, near.best);
    for (int n = 0; (other = cli_command_at(n)) != NULL; n++)
        if (cli_expand(&whole, other))
            for (const cli_option *o = whole.command.options; o->name; o++)
                if (cli_consider(&near, name, o->name))
                    snprintf(owners, sizeof owners, "did you mean --%s of relpos %s?", o->name, other->name);
    if (near.best && near.edits < CLI_A_WORD)
        return cli_error(CLI_USAGE, "%s: no option is called %s (%s)", c->name, safe, owners);
    return cli_error(CLI_USAGE, "%s: no option is called %s (relpos %s --help lists them)", c->name, safe, c->name);
}

static int one_too_many(const cli_command *c, const char *given)
{
    char safe[96];
    return cli_error(CLI_USAGE, "%s: the argument \"%s\" is one too many (see relpos %s --help)", c->name,
                     io_safe(safe, sizeof safe, given), c->name);
}

static bool is_number(const char *text)
{
    return text[0] == '-' && text[1] >= '0' && text[1] <= '9';
}

/* Return true if `word` is an option that takes the next word as its value. */
static bool takes_next(const cli_command *c, const char *word)
{
    for (const cli_option *o = c->options; o->name && word[0] == '-'; o++)
        if (o->arg &&
            (strcmp(word + strspn(word, "-"), o->name) == 0 || (o->key < 256 && word[1] == o->key && !word[2])))
            return true;
    return false;
}

/* The arguments of one getopt_long. */
typedef struct getopt_input {
    struct option longs[CLI_MAX_OPTIONS + 2];
    char shorts[64];
    const char **early; /* negative numbers, hidden from getopt */
    char **words;       /* argv with "number" in their places */
    int n_words;
} getopt_input;

enum { HELP = 'h' };

static void list_options(getopt_input *g, const cli_command *c)
{
    int n = 0;
    strcpy(g->shorts, "-:h"); /* '-': arguments in order; ':': distinguish a missing value from an unknown option */
    for (const cli_option *o = c->options; o->name; o++) {
        g->longs[n++] = (struct option){o->name,
                                        !o->arg                    ? no_argument
                                        : cli_value_is_optional(o) ? optional_argument
                                                                   : required_argument,
                                        NULL, o->key};
        if (o->key < 256)
            snprintf(g->shorts + strlen(g->shorts), sizeof g->shorts - strlen(g->shorts), "%c%s", o->key,
                     o->arg ? ":" : "");
    }
    g->longs[n++] = (struct option){"help", no_argument, NULL, HELP};
    g->longs[n] = (struct option){0};
}

/* getopt would parse -5 as an option. Give it the word "number" instead, and get the number back from `early`. */
static void hide_numbers(getopt_input *g, const cli_command *c, int argc, char **argv)
{
    for (int n = 0; n < argc; n++) {
        const bool number = n > 0 && c->negative_numbers && is_number(argv[n]) && !takes_next(c, argv[n - 1]);
        g->early[n] = number ? argv[n] : NULL;
        g->words[n] = number ? (char *)(uintptr_t) "number" : argv[n];
    }
    g->n_words = argc;
}

/* Return the value of an option for which getopt found none: the next word if its value is optional and this word has
 * the form key=value, "" if it is optional and missing, NULL if the option takes none. */
static const char *optional_value(const getopt_input *g, const cli_command *c, int key)
{
    for (const cli_option *o = c->options; o->name; o++)
        if (o->key == key && cli_value_is_optional(o)) {
            const bool next = optind < g->n_words && g->words[optind][0] != '-' && strchr(g->words[optind], '=');
            return next ? g->words[optind++] : "";
        }
    return NULL;
}

/* Pass each option to on_option, and collect the arguments. Return -1, or the exit code of a command that ends here. */
static int read_words(const getopt_input *g, const cli_command *c, char **argv,
                      int (*on_option)(void *context, int key, const char *value), void *context, const char **args,
                      int max_args, int *n_args)
{
    char safe[128];
    int key, code = -1, last = 1;
    optind = 0; /* reset getopt (GNU) */
    opterr = 0;
    while (code < 0 && (key = getopt_long(g->n_words, g->words, g->shorts, g->longs, NULL)) != -1) {
        const char *word = g->words[optind - 1];
        if (key == HELP) {
            if (cli_team_prints())
                print_help(c);
            code = CLI_OK;
        } else if (key == ':') {
            code = cli_error(CLI_USAGE, "%s: %s needs a value (see relpos %s --help)", c->name,
                             io_safe(safe, sizeof safe, word), c->name);
        } else if (key == '?') {
            code = unknown_option(c, g->words[last] && last < g->n_words ? g->words[last] : word);
        } else if (key == 1) {
            const char *value = g->early[optind - 1] ? g->early[optind - 1] : optarg;
            if (*n_args >= max_args)
                code = one_too_many(c, value);
            else
                args[(*n_args)++] = value;
        } else {
            const char *value = optarg ? optarg : optional_value(g, c, key);
            const int result = on_option(context, key, value);
            code = result == CLI_OK ? -1 : result;
        }
        last = optind;
    }
    for (int n = optind; code < 0 && n < g->n_words; n++) { /* words after "--" */
        if (*n_args >= max_args)
            code = one_too_many(c, argv[n]);
        else
            args[(*n_args)++] = argv[n];
    }
    return code;
}

int cli_options(const cli_command *command, int argc, char **argv,
                int (*on_option)(void *context, int key, const char *value), void *context, const char **args,
                int max_args, int *n_args)
{
    cli_expanded whole;
    getopt_input g = {.early = calloc((size_t)argc + 1, sizeof *g.early),
                      .words = calloc((size_t)argc + 1, sizeof *g.words)};
    int code;
    *n_args = 0;
    if (!g.early || !g.words || !cli_expand(&whole, command)) {
        code =
            cli_error(CLI_FAILED, "%s: out of memory while reading the options (close other programs)", command->name);
    } else {
        list_options(&g, &whole.command);
        hide_numbers(&g, &whole.command, argc, argv);
        code = read_words(&g, &whole.command, argv, on_option, context, args, max_args, n_args);
        code = code < 0 && !command->shared && cli_team_alone(command) != CLI_OK ? CLI_USAGE : code;
    }
    free(g.early);
    free(g.words);
    return code;
}
