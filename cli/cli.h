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

/* One option. The parser and --help both use a table of these. */
typedef struct cli_option {
    const char *name; /* long name without dashes; NULL ends the table */
    int key;          /* passed to on_option; a letter is also the short option */
    const char *arg;  /* name of the option's value in the help; NULL if it takes none */
    const char *help;
} cli_option;

typedef struct cli_command {
    const char *name, *summary;               /* "attend", "compute attention over arrays in a file" */
    const char *usage;                        /* text after "relpos attend" in the usage line of the help */
    const char *example;                      /* example lines, printed before the usage line */
    const cli_option *options;                /* all options except --help */
    bool shared;                              /* cli_team_run shares its work among the processes of mpirun */
    bool negative_numbers;                    /* treat -5 as an argument, not as an option */
    const struct cli_command *const *members; /* commands of a group, such as lab, ended by NULL; else NULL */
    int (*run)(const struct cli_command *self, int argc,
               char **argv); /* run the command; argv[0] is its name; return the exit code */
} cli_command;

/* Run the program with the arguments of main. Return the exit code. */
RP_API int rp_cli_main(int argc, char **argv);

/* Run a command, on a stack of its own if that of the process is small. Return the exit code. */
int cli_run(const cli_command *command, int argc, char **argv);

/* Run a group of commands such as `relpos lab`: print its help, or run the member that argv[1] names. A member's full
 * name is the group's name, a space and one word. Return the exit code. */
int cli_run_group(const cli_command *group, void (*help)(FILE *to), int argc, char **argv);

/* The name that is most like a given one. */
typedef struct cli_nearest {
    const char *best; /* NULL: no name is similar */
    size_t edits;
} cli_nearest;
enum {
    CLI_A_WORD = 4
}; /* the edits of names that only have a word or their beginning in common: --num-beams, --beams */

/* Take a name if it is more like the given one than those before. Return true if it was taken. */
bool cli_consider(cli_nearest *n, const char *given, const char *name);

/* Return command n of all commands that have options, members of groups included, or NULL after the last. */
const cli_command *cli_command_at(int n);

/* The commands of the program, ended by NULL; defined in cli/commands/commands.c. */
extern const cli_command *const cli_commands[];

/* Exit codes. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Print "relpos: <text>" on standard error and return `code`. The text reads "<what the user gave>: <what is wrong>
 * (<what to do>)". Control characters are printed as \xNN. */
__attribute__((format(printf, 2, 3))) int cli_error(int code, const char *format, ...);

/* Find a file that is shipped with the program, in the installation or in the build folder. The search starts at the
 * folder of the program itself, so it works after moving the installation or build. Return false, and set errno, if
 * the file does not exist or cannot be read. */
bool cli_find(const char *name, char found[PATH_MAX]);
/* Return `path`. But if no such file exists and the path begins with lab/ or examples/data/, return the path of the
 * shipped file. */
const char *cli_find_shipped(const char *path, char found[PATH_MAX]);
/* Find the folder with the installed files. Return false if the program is not installed. */
bool cli_installed(char folder[PATH_MAX]);
/* Find the build folder of a program that is not installed. Return false if it has none. */
bool cli_built(char folder[PATH_MAX]);

/* Flush a stream. Return false if output was lost; the caller should then stop printing. On exit the program reports
 * why standard output failed. */
bool cli_flush(FILE *to);

/* Close a stream of open_memstream. Return false if memory ran out; the text is then incomplete. In both cases the
 * caller frees *text. */
bool cli_close_text(FILE *to, char **text);

/* Scale a vector of n numbers to length 1; zeros stay. */
void cli_normalize(float *x, int64_t n);

/* Compare two doubles, for qsort. */
int cli_by_size(const void *a, const void *b);

/* Parse the options of a command. on_option returns CLI_OK, or it prints an error and returns an exit code. Arguments
 * that are not options are stored in args[0 … *n_args), at most max_args of them. Return -1 if the command should
 * continue, or the exit code to end with (CLI_OK after --help). */
int cli_options(const cli_command *c, int argc, char **argv,
                int (*on_option)(void *context, int key, const char *value), void *context, const char **args,
                int max_args, int *n_args);

/* Parse an integer from min to max. The whole text must be the number. Errors name the option. Return CLI_OK, or
 * CLI_USAGE after printing. */
int cli_integer(const char *option, const char *text, int64_t min, int64_t max, int64_t *value);
int cli_real(const char *option, const char *text, double *value); /* parse a finite number; the locale has no effect */
/* Print that n is outside min … max, and return CLI_USAGE. */
int cli_out_of_range(const char *option, int64_t n, int64_t min, int64_t max);

/* Parse a number of bytes, such as 512M or 2G (powers of 1024), at least 1. Return CLI_OK, or CLI_USAGE after
 * printing. */
int cli_bytes(const char *option, const char *text, int64_t *value);

/* Return the bytes of memory that this process may use: of the machine, its control group and its limits. `now`: only
 * those that are free. INT64_MAX if unknown. */
int64_t cli_memory(bool now);

/* Return the ending of a noun after a number: "s", or "" after 1. */
static inline const char *cli_s(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Return true if `f` is a terminal that shows colours: NO_COLOR is unset or empty, and TERM is set and not "dumb". */
bool cli_colour(FILE *f);
/* Return the width of the terminal in columns, or 80 if there is no terminal. */
int cli_width(void);

/* An attention problem, set by the options that attend, explain and bias share. Array names refer to the input file; ""
 * means no array. */
typedef struct cli_problem {
    rp_desc desc; /* terms and masks point into this struct, so do not copy it */
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    char term_text[RP_MAX_TERMS][128]; /* the user's text, such as "rope,dim=64"; safe to print, may be truncated */
    char term_array[RP_MAX_TERMS][RP_MAX_ARRAYS][RP_NAME_MAX];
    char mask_array[RP_MAX_MASKS][RP_NAME_MAX];
    char q_offset_array[RP_NAME_MAX];
    bool softcap_given[2]; /* --softcap, --softcap-after were given */
    bool bare;             /* biases are given as arguments, not with --bias */
} cli_problem;

enum { CLI_MASK_MAX = 64 }; /* max bytes of the text of a mask's option */

/* Keys of the shared options, above all letters. CLI_TERM + kind is the option for a term that is not a bias; CLI_MASK
 * + kind is the option for a mask. */
enum {
    CLI_TERM = 500,
    CLI_MASK = 800,
    CLI_BIAS = 1000,
    CLI_SCALE,
    CLI_SOFTCAP,
    CLI_SOFTCAP_AFTER,
    CLI_Q_OFFSET,
    CLI_FIRST_KEY /* every command numbers its own options from here */
};

/* Entries of an option table for terms, masks and settings. */
#define CLI_TERM_OPTIONS                                                                                               \
    {"bias", CLI_BIAS, "TERM[,key=value]...", "add a bias; repeat it for several. relpos info lists the terms"},       \
    {                                                                                                                  \
        "", CLI_TERM, NULL, "cli_options replaces this entry by one option for each term other than a bias"            \
    }
/* The default of --threads, for help texts. */
#define CLI_ALL_THREADS "default: RELPOS_THREADS, else all that the process may use"
/* cli_options replaces this entry by one option for each mask, for example "key-mask" for the mask key_mask. */
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

/* Return the number of tokens in the grid that terms use, or 0 if no term uses a grid. */
int64_t cli_grid(const cli_problem *p);

/* Return true if the problem needs the array: it is named in an option, or it is q, k, v, dout or dlse. A callback of
 * type io_wanted. */
bool cli_problem_wants(const void *problem, const char *name);
/* Look up in a file the arrays that terms, masks and --q-offset name, without converting them. If `complete`, every
 * required array of a term must be named. Return CLI_OK, or an exit code after printing. */
int cli_problem_arrays(cli_problem *p, const io_set *in, bool complete, rp_tensors *t);

/* Check that the problem needs no file: no option names an array and, if `complete`, no term requires one. Return
 * CLI_OK, or CLI_USAGE after printing. */
int cli_problem_no_file(const cli_problem *p, bool complete);

/* Return true if a term has a different built-in number for each head, such as the slopes of ALiBi. Commands then show
 * eight heads by default. */
bool cli_many_heads(const cli_problem *p);

/* Replace the array of query offsets by the offset of one batch entry. Used by commands that show only this entry.
 * Return CLI_OK, or CLI_FAILED after printing. */
int cli_take_offset(cli_problem *p, rp_tensors *t, int64_t batch);

#define CLI_KEEP_TYPE RP_BOOL /* type for cli_array: do not convert */

/* View an array of a file with at most RP_MAX_AXES axes. If its type and `type` are different floating types, convert
 * it: the converted array is added to *made, which the caller frees with io_free. Return CLI_OK, or CLI_FAILED after
 * printing. */
int cli_array(const io_set *in, const char *name, rp_dtype type, io_set *made, rp_array *a);

/* ranges.c */
/* An array [B, H, L, D] of a file that is read in parts: rows along the axis L. */
typedef struct cli_reader {
    const io_set *in;
    const io_array *from;
    rp_dtype type; /* type of the computation */
    void *raw;     /* memory for the rows of one head, if the type of the file differs */
} cli_reader;
/* Read rows [first, first + n) of every head to `to`, whose heads are `step` rows apart. Return CLI_OK, or CLI_FAILED
 * after printing. */
int cli_read_rows(const cli_reader *r, int64_t first, int64_t n, void *to, int64_t step);
/* Check that k and v of the file have the same axes except the last, and that k fits q. Return CLI_OK, or CLI_FAILED
 * after printing. */
int cli_check_keys(const rp_desc *d, const io_array *k, const io_array *v);
/* Compute attention over ranges of keys and values that are read from the file, so that the process needs at most
 * `memory` bytes. `used` bytes are allocated already. t->k and t->v have only types and shapes. Return CLI_OK, or an
 * exit code after printing. */
int cli_attend_ranges(const cli_problem *p, const rp_plan *plan, const io_set *in, int64_t memory, int64_t used,
                      rp_tensors *t);

/* commands/bench_ranks.c */
/* Time problems over the processes of a team. Return CLI_OK, or an exit code after printing. */
int cli_bench_ranks(const char *const *texts, int n, int64_t threads, const char *isa, double seconds, bool json);

/* attend_ranks.c */
/* Compute attention over the processes of a team, each of which reads its rows, keys and values from the file. Rank 0
 * writes the result to `path`, in type `type`, with lse if `lse`. t->q, t->k and t->v have only types and shapes.
 * Return CLI_OK, or an exit code after printing. */
int cli_attend_ranks(const cli_problem *p, const io_set *in, const char *path, io_format format, rp_dtype type,
                     bool lse, rp_tensors *t);

/* Convert the arrays, which were computed in f32, to bf16 or f16. This is the only rounding to the output type. Return
 * CLI_OK, or CLI_FAILED after printing. */
int cli_narrow(io_set *out, rp_dtype type);

/* Write a mask's option without dashes, such as "key-mask", to `text`. Return `text`. */
const char *cli_mask_option(rp_mask_kind kind, char text[CLI_MASK_MAX]);
/* Memory for the strings in a mask's option. */
typedef struct cli_mask_text {
    char name[CLI_MASK_MAX], arg[64], help[256];
} cli_mask_text;
/* Return the option of a mask, for a table of options. Its strings are stored in *text. */
cli_option cli_mask_row(rp_mask_kind kind, cli_mask_text *text);
/* Add the mask of an option that has this value. Return CLI_OK, or CLI_USAGE after printing. */
int cli_add_mask(cli_problem *p, rp_mask_kind kind, const char *value);
/* Write how to use a mask's option, such as "--key-mask NAME", to `text`. Return `text`. */
const char *cli_mask_usage(rp_mask_kind kind, char text[CLI_MASK_MAX]);

/* Return the exit code for an error of the library: CLI_FAILED if out of memory, otherwise CLI_USAGE. */
int cli_code(rp_status status);

/* Print "relpos: <command>: <the library's last error> (<what to do>)" and return `code`. Fields such as terms[0].left
 * or mask[0] are replaced by what the user wrote: "--bias table: left", "--key-mask m". If `fix` is NULL, the advice is
 * to read --help. */
int cli_refused(int code, const char *command, const cli_problem *p, const char *fix);
/* Write the library's last error to `text` and return it, with fields replaced as in cli_refused. p may be NULL. */
enum { CLI_WORDS_MAX = 1024 };
const char *cli_words(const cli_problem *p, char text[CLI_WORDS_MAX]);
/* The same with rp_last_error_in of another copy of the library. */
typedef const char *cli_last_error_in(const rp_desc *desc, rp_word *word, void *context, char *text, size_t size);
const char *cli_words_of(cli_last_error_in *last, const cli_problem *p, char text[CLI_WORDS_MAX]);
#pragma GCC poison rp_last_error /* its messages name fields of C structs; use cli_words */

/* bus_error.c */
/* From now on, SIGBUS for a mapped file prints an error, removes the temporary files of this process and ends it. */
void cli_catch_bus_errors(void);

/* stop.c */
/* If `on`, catch signals: the first Ctrl-C or SIGTERM sets a flag, and a second one ends the program. Otherwise restore
 * the previous handlers. */
void cli_catch_signals(bool on);
/* Return true after the first caught signal. */
bool cli_stop_requested(void);

/* Print n bytes of text within a line: a line feed as \n, a carriage return as \r, and other control characters except
 * tabs as \xNN. */
void cli_put_text(FILE *to, const char *text, int64_t n);
/* Print `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD. */
void cli_json_string(FILE *to, const char *text);
/* Print a number as JSON in a format such as "%.9g". JSON has no NaN and no infinity: they become null. */
void cli_json_number(FILE *to, const char *format, double x);
/* Print members of an object, each as , "name": number. The list ends with a name that is NULL. */
typedef struct cli_json_member {
    const char *name;
    const char *format;
    double x;
} cli_json_member;
void cli_json_numbers(FILE *to, const cli_json_member *members);

#endif
