/* cli.h -- code shared by the commands of `relpos`: option parsing, errors, terms and masks from the command line,
 * arrays from files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_H
#define RELPOS_CLI_H

#include "io/io.h"
#include <relpos/facts.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

/* One option. A table of these defines both what the parser accepts and what --help prints. */
typedef struct cli_option {
    const char *name; /* long name without dashes; NULL ends the table */
    int key;          /* passed to on_option; a letter is also the short option */
    const char *arg;  /* name of the value in the help; NULL: the option has no value */
    const char *help;
} cli_option;

typedef struct cli_command {
    const char *name, *summary; /* "attend", "compute attention over arrays in a file" */
    const char *usage;          /* text after "relpos attend" in the usage line */
    const char *example;        /* example lines, printed before the usage line */
    const cli_option *options;  /* all options except --help */
    bool negative_numbers;      /* treat -5 as an argument, not as an option */
    int (*run)(const struct cli_command *self, int argc,
               char **argv); /* argv[0] is the command's name; returns the exit code */
} cli_command;

/* Run the program with the arguments of main. Return the exit code. */
RP_API int cli_main(int argc, char **argv);

/* Run a group of commands such as `relpos lab`: print its help, or run the member that argv[1] names. The name of a
 * member is the group's name, a space and one word. Return the exit code. */
int cli_run_group(const cli_command *group, const cli_command *const *members, int n_members, void (*help)(FILE *to),
                  int argc, char **argv);

extern const cli_command cmd_attend, cmd_explain, cmd_bias, cmd_bucket, cmd_verify, cmd_bench, cmd_info, cmd_lab,
    cmd_explore, cmd_t5;

/* Exit codes. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Print "relpos: <text>" on standard error and return `code`. The text reads "<what the user gave>: <what is wrong>
 * (<what to do>)". Control characters are printed as \xNN. */
__attribute__((format(printf, 2, 3))) int cli_error(int code, const char *format, ...);

/* Find a file shipped with the program, in the installation or in the build folder. The search starts from the
 * program's own folder, so you can move either. Return false if there is no such file. */
bool cli_find(const char *name, char found[PATH_MAX]);
/* Return `path`. If no such file exists and the path begins with lab/ or examples/data/, return the shipped file
 * instead. */
const char *cli_find_shipped(const char *path, char found[PATH_MAX]);
/* Find the installed folder of the shipped files. Return false if the program is not installed. */
bool cli_installed(char folder[PATH_MAX]);

/* Flush a stream. Return false if output was lost; stop printing then. When the program ends, it reports why
 * standard output failed. */
bool cli_flush(FILE *to);

/* Close a stream of open_memstream. Return false if memory ran out and the text is incomplete. Free *text in both
 * cases. */
bool cli_close_text(FILE *to, char **text);

/* Compare two doubles, for qsort. */
int cli_by_size(const void *a, const void *b);

/* Parse the options of a command. on_option returns CLI_OK, or prints an error and returns an exit code. The other
 * arguments are stored in args[0 … *n_args), at most max_args of them. Return -1 to continue, or the exit code to
 * end with (CLI_OK after --help). */
int cli_options(const cli_command *c, int argc, char **argv,
                int (*on_option)(void *context, int key, const char *value), void *context, const char **args,
                int max_args, int *n_args);

/* Parse an integer from min to max; the text must contain nothing else. Errors name the option. Return CLI_OK, or
 * CLI_USAGE after printing. */
int cli_integer(const char *option, const char *text, int64_t min, int64_t max, int64_t *value);
int cli_real(const char *option, const char *text, double *value); /* parse a finite number, the same in every locale */
/* Print that n is outside min … max, and return CLI_USAGE. */
int cli_out_of_range(const char *option, int64_t n, int64_t min, int64_t max);

/* Return true if `f` is a terminal, NO_COLOR is unset or empty, and TERM is set and not "dumb". */
bool cli_colour(FILE *f);
/* Return the number of columns of the terminal, or 80 if there is none. */
int cli_width(void);

/* One attention problem as set by the options that attend, explain and bias share. Names of arrays are those in the
 * input file; "" means no array. */
typedef struct cli_problem {
    rp_desc desc; /* terms and masks point into this struct: do not copy it */
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    char term_text[RP_MAX_TERMS][128]; /* as the user wrote it, "rope,dim=64"; safe to print, may be truncated */
    char term_array[RP_MAX_TERMS][RP_MAX_ARRAYS][RP_NAME_MAX];
    char mask_array[RP_MAX_MASKS][RP_NAME_MAX];
    char q_offset_array[RP_NAME_MAX];
    bool softcap_given[2]; /* --softcap and --softcap-after were given */
    bool bare;             /* biases are arguments, without --bias */
} cli_problem;

enum { CLI_MASK_MAX = 64 }; /* bytes of the text of a mask's option */

/* Keys of the shared options, beyond the range of letters. CLI_TERM + kind is the option of a term other than a bias,
 * CLI_MASK + kind the option of a mask. */
enum {
    CLI_TERM = 500,
    CLI_MASK = 800,
    CLI_BIAS = 1000,
    CLI_SCALE,
    CLI_SOFTCAP,
    CLI_SOFTCAP_AFTER,
    CLI_Q_OFFSET,
    CLI_FIRST_KEY /* first key for the options of one command */
};

/* Entries of an option table for terms, masks and settings. */
#define CLI_TERM_OPTIONS                                                                                               \
    {"bias", CLI_BIAS, "TERM[,key=value]...", "add a bias; repeat it for several. relpos info lists the terms"},       \
    {                                                                                                                  \
        "", CLI_TERM, NULL, "cli_options replaces this entry by one option for each term other than a bias"            \
    }
/* cli_options replaces this entry by one option for each mask, such as "key-mask" for key_mask. */
#define CLI_MASK_OPTIONS                                                                                               \
    {                                                                                                                  \
        "", CLI_MASK, NULL, NULL                                                                                       \
    }
#define CLI_SETTING_OPTIONS                                                                                            \
    {"scale", CLI_SCALE, "S", "multiply q k by S; default 1/sqrt(D)"},                                                 \
        {"softcap", CLI_SOFTCAP, "C", "cap scores x to C tanh(x/C) before adding biases; default 0 (no cap)"},         \
        {"softcap-after", CLI_SOFTCAP_AFTER, "C", "cap scores x to C tanh(x/C) after adding biases; default 0"},       \
    {                                                                                                                  \
        "q-offset", CLI_Q_OFFSET, "N|NAME",                                                                            \
            "set the position of the first query (may be negative), or name an array (B) of positions; default 0"      \
    }

/* Initialize a problem. */
void cli_problem_init(cli_problem *p);
/* Apply one of the shared options. Return CLI_OK, an exit code after printing, or -1 if the key is not one of the
 * shared options. */
int cli_problem_option(cli_problem *p, int key, const char *value);

/* Check the parameters of terms and masks, without a file. Return CLI_OK, or an exit code after printing. */
int cli_problem_check(const cli_problem *p, const char *command);

/* Look up an instruction set by name; "reference" is also valid. Return CLI_OK, or CLI_USAGE after printing. */
int cli_isa(const char *text, const char **isa);

/* Look up a floating-point type by name. Return CLI_OK, or CLI_USAGE after printing. */
int cli_dtype(const char *option, const char *text, rp_dtype *type);

/* Return the number of tokens in the grid of the terms, or 0 if no term has a grid. */
int64_t cli_grid(const cli_problem *p);

/* Return true if the problem needs the array: an option names it, or it is q, k, v, dout or dlse. Callback of type
 * io_wanted. */
bool cli_problem_wants(const void *problem, const char *name);
/* Look up the arrays that terms, masks and --q-offset name in a file, without converting them. If `complete`, every
 * array that a term requires must be named. Return CLI_OK, or an exit code after printing. */
int cli_problem_arrays(cli_problem *p, const io_set *in, bool complete, rp_tensors *t);

/* Check that the problem works without a file: options name no array and, if `complete`, no term requires one.
 * Return CLI_OK, or CLI_USAGE after printing. */
int cli_problem_no_file(const cli_problem *p, bool complete);

/* Return true if a term without its array has a built-in number for each head, such as the slopes of ALiBi. Commands
 * then use eight heads by default. */
bool cli_many_heads(const cli_problem *p);

/* Replace the array of query offsets by the offset of one batch entry, for commands that show only this entry.
 * Return CLI_OK, or CLI_FAILED after printing. */
int cli_take_offset(cli_problem *p, rp_tensors *t, int64_t batch);

#define CLI_KEEP_TYPE RP_BOOL /* for cli_array: no conversion */

/* View an array of a file that has at most RP_MAX_AXES axes. If its type and `type` are floating and differ, convert
 * it; the converted array is added to *made, which the caller frees with io_free. Return CLI_OK, or CLI_FAILED after
 * printing. */
int cli_array(const io_set *in, const char *name, rp_dtype type, io_set *made, rp_array *a);

/* Write a mask's option without dashes, such as "key-mask", to `text`. Return `text`. */
const char *cli_mask_option(rp_mask_kind kind, char text[CLI_MASK_MAX]);
/* Strings of a mask's entry in an option table. */
typedef struct cli_mask_text {
    char name[CLI_MASK_MAX], arg[64], help[256];
} cli_mask_text;
/* Return a mask's entry of an option table. Its strings are stored in *text. */
cli_option cli_mask_row(rp_mask_kind kind, cli_mask_text *text);
/* Add the mask of an option with its value. Return CLI_OK, or CLI_USAGE after printing. */
int cli_add_mask(cli_problem *p, rp_mask_kind kind, const char *value);
/* Write a mask's option with its value, such as "--key-mask NAME", to `text`. Return `text`. */
const char *cli_mask_usage(rp_mask_kind kind, char text[CLI_MASK_MAX]);

/* Return the exit code for an error of the library: CLI_FAILED if memory ran out, else CLI_USAGE. */
int cli_code(rp_status status);

/* Print "relpos: <command>: <the library's last error> (<what to do>)" and return `code`. Fields such as
 * terms[0].left or mask[0] are named as the user wrote them: "--bias table: left", "--key-mask m". If `fix` is NULL,
 * refer to --help. */
int cli_refused(int code, const char *command, const cli_problem *p, const char *fix);
/* Write the library's last error, with its fields named in the same way, to `text`, and return it. Without a
 * problem, p is NULL. */
enum { CLI_WORDS_MAX = 1024 };
const char *cli_words(const cli_problem *p, char text[CLI_WORDS_MAX]);
#pragma GCC poison rp_last_error /* it names fields of C structs; use cli_words */

/* stop.c */
/* Catch signals if `on`: the first Ctrl-C or SIGTERM sets a flag, and a second one ends the program. Otherwise
 * restore the previous handlers. */
void cli_catch_signals(bool on);
/* Return true after the first caught signal. */
bool cli_stop_requested(void);

/* Print `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD. */
void cli_json_string(FILE *to, const char *text);

#endif
