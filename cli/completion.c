/* completion.c -- scripts by which bash, zsh and fish complete commands and options. They are made from the tables of
 * commands and options, which --help prints too.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/expand.h"
#include <string.h>

/* Print a text within single quotes of a shell: "'" as `quote`, and a backslash before the characters of `special`. */
static void print_text(const char *text, const char *special, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs(quote, stdout);
        else
            printf(strchr(special, *text) ? "\\%c" : "%c", *text);
    }
}

/* Return the last word of the name of a command: "train" of "lab train". */
static const char *last_word(const cli_command *c)
{
    const char *space = strchr(c->name, ' ');
    return space ? space + 1 : c->name;
}

static const cli_option help = {"help", 'h', NULL, "show an example and the options"},
                        version = {"version", 0, NULL, "print the version"};

/* How a shell's script gives names of commands, and options. `group` is NULL for the commands of the program. */
typedef struct shell {
    const char *name;
    const char *before, *between, *inside, *after; /* the script begins with before, the groups of commands with
                                                    * between between them, and inside; it ends with after */
    void (*names)(const cli_command *group, const cli_command *const *members);
    void (*options)(const cli_command *c, const cli_option *options);
} shell;

/* ------------------------------------------------------------------------------------------------ bash */

static void bash_names(const cli_command *group, const cli_command *const *members)
{
    printf("    '%s') names='", group ? group->name : "");
    for (; *members; members++)
        printf("%s ", last_word(*members));
    puts(group ? "--help' ;;" : "--help --version' ;;");
}

static void bash_options(const cli_command *c, const cli_option *options)
{
    printf("    '%s') options='", c->name);
    for (; options->name; options++)
        printf("--%s ", options->name);
    puts("--help' ;;");
}

#define BASH_BEFORE                                                                                                    \
    "_relpos()\n"                                                                                                      \
    "{\n"                                                                                                              \
    "    local word=${COMP_WORDS[COMP_CWORD]} command= names= options=\n"                                              \
    "    [ \"$COMP_CWORD\" -lt 2 ] || command=${COMP_WORDS[1]}\n"                                                      \
    "    case $command in "
#define BASH_INSIDE                                                                                                    \
    ") [ \"$COMP_CWORD\" -lt 3 ] || command=\"$command ${COMP_WORDS[2]}\" ;; esac\n"                                   \
    "    case $command in\n"
#define BASH_AFTER                                                                                                     \
    "    esac\n"                                                                                                       \
    "    case $word in -*) names=\"$names $options\" ;; esac # other words are names of files\n"                       \
    "    COMPREPLY=($(compgen -W \"$names\" -- \"$word\"))\n"                                                          \
    "}\n"                                                                                                              \
    "complete -o default -F _relpos relpos\n"

/* ------------------------------------------------------------------------------------------------ zsh */

static const char zsh_quote[] = "'\\''";

static void zsh_names(const cli_command *group, const cli_command *const *members)
{
    printf("'%s')\n    names=(\n", group ? group->name : "");
    for (; *members; members++) {
        printf("        '%s:", last_word(*members));
        print_text((*members)->summary, "", zsh_quote);
        puts("'");
    }
    printf("        '--help:%s'\n", help.help);
    if (!group)
        printf("        '--version:%s'\n", version.help);
    puts("    )\n    _describe command names ;;");
}

static void zsh_option(const cli_option *o, bool letter)
{
    fputs("        '*", stdout);
    if (letter)
        printf("-%c%s[", o->key, o->arg ? "+" : "");
    else
        printf("--%s%s[", o->name, o->arg ? "=" : "");
    print_text(o->help, "\\[]:", zsh_quote);
    putchar(']');
    if (o->arg) {
        fputs(cli_value_is_optional(o) ? "::" : ":", stdout);
        print_text(o->arg, "\\:", zsh_quote);
        fputs(":_files", stdout);
    }
    puts("' \\");
}

static void zsh_options(const cli_command *c, const cli_option *options)
{
    printf("'%s')\n    _arguments \\\n", c->name);
    for (const cli_option *o = options; o->name; o++) {
        zsh_option(o, false);
        if (o->key < 256)
            zsh_option(o, true);
    }
    zsh_option(&help, false);
    puts("        '*:file:_files' ;;");
}

#define ZSH_BEFORE                                                                                                     \
    "#compdef relpos\n"                                                                                                \
    "local command= names\n"                                                                                           \
    "if (( CURRENT > 2 )); then\n"                                                                                     \
    "    shift words\n"                                                                                                \
    "    (( CURRENT -= 1 ))\n"                                                                                         \
    "    command=$words[1]\n"                                                                                          \
    "    case $command in "
#define ZSH_INSIDE                                                                                                     \
    ")\n"                                                                                                              \
    "        if (( CURRENT > 2 )); then\n"                                                                             \
    "            shift words\n"                                                                                        \
    "            (( CURRENT -= 1 ))\n"                                                                                 \
    "            command=\"$command $words[1]\"\n"                                                                     \
    "        fi ;;\n"                                                                                                  \
    "    esac\n"                                                                                                       \
    "fi\n"                                                                                                             \
    "case $command in\n"
#define ZSH_AFTER "esac\n"

/* ------------------------------------------------------------------------------------------------ fish */

static void fish_line(const char *place, const char *words)
{
    printf("complete -c relpos -n '__relpos_at %s' %s", place, words);
}

static void fish_about(const char *text)
{
    fputs(" -d '", stdout);
    print_text(text, "\\", "\\'");
    puts("'");
}

static void fish_option(const char *place, const cli_option *o)
{
    fish_line(place, "-l ");
    fputs(o->name, stdout);
    if (o->key > 0 && o->key < 256 && o != &help)
        printf(" -s %c", o->key);
    if (o->arg && !cli_value_is_optional(o))
        fputs(" -r", stdout);
    fish_about(o->help);
}

static void fish_names(const cli_command *group, const cli_command *const *members)
{
    const char *place = group ? group->name : "";
    for (; *members; members++) {
        fish_line(place, "-f -a ");
        fputs(last_word(*members), stdout);
        fish_about((*members)->summary);
    }
    fish_option(place, &help);
    if (!group)
        fish_option(place, &version);
}

static void fish_options(const cli_command *c, const cli_option *options)
{
    for (; options->name; options++)
        fish_option(c->name, options);
    fish_option(c->name, &help);
}

#define FISH_BEFORE                                                                                                    \
    "function __relpos_at # the words after relpos are the command $argv, as far as they belong to a command\n"        \
    "    set -l words (commandline -opc)\n"                                                                            \
    "    set -l last 2\n"                                                                                              \
    "    contains -- \"$words[2]\" "
#define FISH_INSIDE                                                                                                    \
    "; and set last 3\n"                                                                                               \
    "    test \"$words[2..$last]\" = \"$argv\"\n"                                                                      \
    "end\n"
#define FISH_AFTER ""

/* ------------------------------------------------------------------------------------------------ all */

static const shell shells[] = {{"bash", BASH_BEFORE, " | ", BASH_INSIDE, BASH_AFTER, bash_names, bash_options},
                               {"zsh", ZSH_BEFORE, " | ", ZSH_INSIDE, ZSH_AFTER, zsh_names, zsh_options},
                               {"fish", FISH_BEFORE, " ", FISH_INSIDE, FISH_AFTER, fish_names, fish_options}};

int cli_print_completion(const char *shell_name)
{
    char safe[64];
    const char *between = "";
    const cli_command *c;
    cli_expanded whole;
    const shell *s = shells;
    while (s < shells + sizeof shells / sizeof *shells && strcmp(s->name, shell_name) != 0)
        s++;
    if (s == shells + sizeof shells / sizeof *shells)
        return cli_error(CLI_USAGE, "--completion: no script for \"%s\" (choose bash, zsh or fish)",
                         io_safe(safe, sizeof safe, shell_name));
    fputs(s->before, stdout);
    for (int n = 0; cli_commands[n]; n++)
        if (cli_commands[n]->members) {
            printf("%s%s", between, cli_commands[n]->name);
            between = s->between;
        }
    fputs(s->inside, stdout);
    s->names(NULL, cli_commands);
    for (int n = 0; cli_commands[n]; n++)
        if (cli_commands[n]->members)
            s->names(cli_commands[n], cli_commands[n]->members);
    for (int n = 0; (c = cli_command_at(n)); n++) {
        if (!cli_expand(&whole, c))
            return cli_error(CLI_FAILED, "%s: too many options (raise CLI_MAX_OPTIONS)", c->name);
        s->options(c, whole.option);
    }
    fputs(s->after, stdout);
    return CLI_OK;
}
