/* cli.h -- what the commands of `relpos` share: options from one table, errors, terms and masks from the command line,
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

/* One option: the parser and --help are made from this table. */
typedef struct cli_option {
    const char *name; /* long name without dashes; NULL ends the table */
    int key;          /* what on_option gets; a letter is also the short option */
    const char *arg;  /* name of the value in the help; NULL: takes none */
    const char *help;
} cli_option;

typedef struct cli_command {
    const char *name, *summary; /* "attend", "compute attention over arrays in a file" */
    const char *usage;          /* what follows "relpos attend" */
    const char *example;        /* lines of examples, shown first in the help */
    const cli_option *options;  /* besides --help */
    bool negative_numbers;      /* -5 is an argument, not an option */
    int (*run)(const struct cli_command *self, int argc,
               char **argv); /* argv[0] is the command's name; the exit code */
} cli_command;

/* The program: all that main does. */
RP_API int cli_main(int argc, char **argv);

/* A command that is a group, such as `relpos lab`: help is printed, or the member that argv[1] names runs. The names of members
 * begin with the group's and a space. Returns the exit code. */
int cli_run_group(const cli_command *group, const cli_command *const *members, int n_members, void (*help)(FILE *to),
                  int argc, char **argv);

extern const cli_command cmd_attend, cmd_explain, cmd_bias, cmd_bucket, cmd_verify, cmd_bench, cmd_info, cmd_lab,
    cmd_explore, cmd_t5;

/* Exit codes. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Print "relpos: <text>" on standard error and return the code. The text is "<what>: <why> (<how to mend>)"; it goes through
 * io_safe. */
__attribute__((format(printf, 2, 3))) int cli_error(int code, const char *format, ...);

/* Where a file that comes with the program is, as installed or as built: seen from the program itself, so that both may be moved. */
bool cli_find(const char *name, char found[PATH_MAX]);
/* The path, or where nothing is there and it begins with lab/ or examples/data/, the file of this name that comes with the program. */
const char *cli_shipped(const char *path, char found[PATH_MAX]);
/* The folder of the installation with those files; false if the program is not installed. */
bool cli_installed(char folder[PATH_MAX]);

/* Flush a stream. False: something that was printed is lost, and printing more is in vain. Why standard output failed is told when
 * the program ends. */
bool cli_written(FILE *to);

/* Close a stream of open_memstream. False: memory ran out, and the text is not whole; it is to be freed all the same. */
bool cli_close_text(FILE *to, char **text);

/* The order of doubles, for qsort. */
int cli_by_size(const void *a, const void *b);

/* Read the options of a command. on_option returns CLI_OK or an exit code after printing. The arguments that are no
 * options go to args[0 … *n_args), at most max_args of them. Returns -1 to go on, or an exit code to end with at once (--help
 * gives CLI_OK). */
int cli_options(const cli_command *c, int argc, char **argv,
                int (*on_option)(void *context, int key, const char *value), void *context, const char **args,
                int max_args, int *n_args);

/* Integers, with nothing after them; errors name the option. CLI_OK or CLI_USAGE after printing. */
int cli_integer(const char *option, const char *text, int64_t min, int64_t max, int64_t *value);
int cli_real(const char *option, const char *text, double *value); /* finite, read the same under every locale */
/* Print that n lies outside min … max, and return CLI_USAGE. */
int cli_out_of_range(const char *option, int64_t n, int64_t min, int64_t max);

/* Whether standard output `f` is a terminal that may get colours: a terminal, no NO_COLOR, TERM not dumb. */
bool cli_colour(FILE *f);
/* Columns of the terminal, 80 where there is none. */
int cli_width(void);

/* Everything about one attention that options can say, as attend, explain and bias share it. Names of arrays are those in
 * the file; "" for none. */
typedef struct cli_problem {
    rp_desc desc; /* terms and masks point into this struct: do not copy it */
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    char term_text[RP_MAX_TERMS][128]; /* as the user wrote it, "rope,dim=64"; safe to print, cut to fit */
    char term_array[RP_MAX_TERMS][RP_MAX_ARRAYS][RP_NAME_MAX];
    char mask_array[RP_MAX_MASKS][RP_NAME_MAX];
    char q_offset_array[RP_NAME_MAX];
    bool softcap_given[2]; /* before and after the biases */
    bool bare;             /* biases are arguments of their own, without --bias */
} cli_problem;

enum { CLI_MASK_MAX = 64 }; /* bytes of a mask's option */

/* Keys of the options below; they lie outside the letters. CLI_TERM + kind: the option of a term that is no bias; CLI_MASK + kind: of a
 * mask. */
enum {
    CLI_TERM = 500,
    CLI_MASK = 800,
    CLI_BIAS = 1000,
    CLI_SCALE,
    CLI_SOFTCAP,
    CLI_SOFTCAP_AFTER,
    CLI_Q_OFFSET,
    CLI_OWN /* the commands' own from here */
};

/* The lines of an option table for terms, masks and settings. */
#define CLI_TERM_OPTIONS                                                                                               \
    {"bias", CLI_BIAS, "TERM[,key=value]...", "add a bias; may be given more than once. relpos info lists the terms"}, \
    {                                                                                                                  \
        "", CLI_TERM, NULL, "here cli_options puts an option for each term that is no bias"                            \
    }
/* Stands for the option of every mask: "key-mask" from key_mask of rp_mask_info_of. */
#define CLI_MASK_OPTIONS                                                                                               \
    {                                                                                                                  \
        "", CLI_MASK, NULL, NULL                                                                                       \
    }
#define CLI_SETTING_OPTIONS                                                                                            \
    {"scale", CLI_SCALE, "S", "factor of q k; default 1/sqrt(D)"},                                                     \
        {"softcap", CLI_SOFTCAP, "C", "C tanh(x/C) before the biases; 0 = none"},                                      \
        {"softcap-after", CLI_SOFTCAP_AFTER, "C", "the same after the biases"},                                        \
    {                                                                                                                  \
        "q-offset", CLI_Q_OFFSET, "N|NAME", "position of the first query, or an array (B) of them; may be negative"    \
    }

/* Start a problem, and take one of the shared options. Returns CLI_OK, an exit code after printing, or -1 if the key is none
 * of the shared ones. */
void cli_problem_init(cli_problem *p);
int cli_problem_option(cli_problem *p, int key, const char *value);

/* Check what does not depend on a file: the parameters of terms and masks. CLI_OK or an exit code after printing. */
int cli_problem_check(const cli_problem *p, const char *command);

/* An instruction set by name, or "reference". CLI_OK or CLI_USAGE after printing. */
int cli_isa(const char *text, const char **isa);

/* A type of floating numbers by name. CLI_OK or CLI_USAGE after printing. */
int cli_dtype(const char *option, const char *text, rp_dtype *type);

/* Tokens of the grid that the terms lie on, 0 where none does. */
int64_t cli_grid(const cli_problem *p);

/* An io_wanted of a problem: whether an option names the array, or it is one of q, k, v, dout and dlse. */
bool cli_problem_wants(const void *problem, const char *name);
/* Find the arrays that terms, masks and --q-offset name in a file, each in its own type; with `complete` the terms have all
 * that they need. CLI_OK or an exit code after printing. */
int cli_problem_arrays(cli_problem *p, const io_set *in, bool complete, rp_tensors *t);

/* There is no file: no array may be named, nor, with `complete`, needed. CLI_OK or CLI_USAGE after printing. */
int cli_problem_no_file(const cli_problem *p, bool complete);

/* Whether a term without its arrays still has numbers of its own for each head, as ALiBi has: worth eight heads. */
bool cli_many_heads(const cli_problem *p);

/* One batch entry is all that is looked at: its offset takes the place of an array of them. CLI_OK or CLI_FAILED after printing. */
int cli_take_offset(cli_problem *p, rp_tensors *t, int64_t batch);

#define CLI_OWN_TYPE RP_BOOL /* for cli_array: no conversion */

/* A view of an array of a file with up to 4 axes, converted to `type` where both are floating and differ (conversions are
 * added to *made, which the caller frees with io_free). CLI_OK or CLI_FAILED after printing. */
int cli_array(const io_set *in, const char *name, rp_dtype type, io_set *made, rp_array *a);

/* The option of a mask, without dashes: "key-mask". */
const char *cli_mask_option(rp_mask_kind kind, char text[CLI_MASK_MAX]);
/* The line of a mask in an option table, whose texts it writes. */
typedef struct cli_mask_text {
    char name[CLI_MASK_MAX], arg[64], help[256];
} cli_mask_text;
cli_option cli_mask_row(rp_mask_kind kind, cli_mask_text *text);
/* Take the option of a mask with its value. CLI_OK or CLI_USAGE after printing. */
int cli_add_mask(cli_problem *p, rp_mask_kind kind, const char *value);
/* The same with what it takes: "--key-mask NAME". */
const char *cli_mask_usage(rp_mask_kind kind, char text[CLI_MASK_MAX]);

/* The exit code where the library refused what options ask for: CLI_USAGE, but CLI_FAILED where memory ran out. */
int cli_code(rp_status status);

/* Print "relpos: <command>: <what the library said> (<how to mend>)", and return the code. What the library calls terms[0].left
 * or mask[0] is named as the user wrote it: --bias table: left, --key-mask m. */
int cli_refused(int code, const char *command, const cli_problem *p, const char *mend);
/* The same as text alone, which is returned; without a problem for p NULL. */
enum { CLI_WORDS_MAX = 1024 };
const char *cli_words(const cli_problem *p, char text[CLI_WORDS_MAX]);
#pragma GCC poison rp_last_error /* its fields are those of C */

/* stop.c. With true, the first Ctrl-C or SIGTERM only sets cli_stop_asked, and a second one ends the program; false restores the handlers
 * from before. */
void cli_catch_signals(bool on);
bool cli_stop_asked(void);

/* A JSON string with its quotes, on `to`; what is no UTF-8 becomes U+FFFD. */
void cli_json_string(FILE *to, const char *text);

#endif
