/* t5.h -- what the commands of `relpos t5` share: opening a model, lines of text or of token numbers, errors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_T5_H
#define RELPOS_CLI_T5_H

#include "cli/cli.h"
#include "cli/progress.h"
#include <relpos/t5.h>

extern const cli_command cli_t5_generate, cli_t5_encode, cli_t5_score, cli_t5_tokenize, cli_t5_info, cli_t5_pack,
    cli_t5_explain, cli_t5_verify, cli_t5_bench;

/* Options that every command has. */
typedef struct cli_t5_common {
    const char *type, *draft; /* draft: NULL: none */
    int64_t threads;
    rp_t5_loading load; /* what the command needs of the model */
    bool tokens;        /* lines are token numbers */
    rp_pool *pool;
    rp_t5 *model;
    bool catches; /* Ctrl-C sets cli_stop_asked */
} cli_t5_common;

enum { T5_TYPE = CLI_OWN, T5_THREADS, T5_TOKENS, T5_TEXT, T5_EXACT, T5_DRAFT, T5_OWN };
#define T5_COMMON_OPTIONS                                                                                              \
    {"type", T5_TYPE, "T", "keep weights as f32, f16, bf16, int8 or int4; without it as the file has them"},           \
    {                                                                                                                  \
        "threads", T5_THREADS, "N", "threads; without it as many as the process may use"                               \
    }
#define T5_DRAFT_OPTIONS                                                                                               \
    {"exact", T5_EXACT, NULL, "the same text and scores, sooner: weights of 4 bits propose, the model checks"},        \
    {                                                                                                                  \
        "draft", T5_DRAFT, "T", "--exact by proposals of such weights: int8 or int4"                                   \
    }
#define T5_TOKENS_OPTION                                                                                               \
    {                                                                                                                  \
        "tokens", T5_TOKENS, NULL, "lines are token numbers, in and out"                                               \
    }

/* Take one of these options. -1: it is none of them. */
int cli_t5_common_option(cli_t5_common *c, int key, const char *value);
/* Open the model; CLI_OK, or CLI_FAILED after printing. Then Ctrl-C sets cli_stop_asked, until
 * cli_t5_let_signals or cli_t5_close: it ends the program as ever where nobody asks. */
int cli_t5_open(cli_t5_common *c, const char *path);
void cli_t5_let_signals(cli_t5_common *c);
void cli_t5_close(cli_t5_common *c);
/* What a draft proposed, and how much of it was right: one line without its end, on standard error or elsewhere. */
void cli_t5_print_drafted(FILE *to, const rp_t5_drafted *d);
/* Print rp_t5_last_error, or that it was stopped, and return CLI_FAILED. */
int cli_t5_refused(const char *command);
int cli_t5_stopped(const char *command);
/* An rp_progress: a bar, and Ctrl-C. Its context is a cli_progress, or NULL: Ctrl-C alone. */
int cli_t5_progress(void *context, double share);

/* The same question for rp_t5_generation.cancelled; the context is not used. */
int cli_t5_stop_asked(void *context);
/* The likeliest token each time, until the end token or max_new_tokens, whatever generation_config.json says. Ctrl-C stops it. */
rp_t5_generation cli_t5_greedy(const rp_t5 *model);

/* Whether a file may appear at this path: asked before work that takes long. CLI_OK, or CLI_FAILED after printing. */
int cli_t5_check_output(const char *path);
/* The file of -o is none that the open model was read from; NULL: there is no -o. */
int cli_t5_keep_model(const cli_t5_common *c, const char *output);

/* Lines to be read, from a file, from one text, or from standard input. */
typedef struct cli_t5_lines {
    FILE *file;
    const char *text; /* one line, in place of a file */
    char *line;
    size_t size;
    int64_t number;
    double read, all; /* bytes; all: 0 where it is not known */
} cli_t5_lines;

int cli_t5_lines_open(cli_t5_lines *l, const char *path, const char *text);
/* The next line without its line feed, or carriage return and line feed; *length -1 at the end. CLI_OK, or CLI_FAILED after printing,
 * which Ctrl-C causes too. */
int cli_t5_lines_next(cli_t5_lines *l, const char **line, int64_t *length);
void cli_t5_lines_close(cli_t5_lines *l);

/* Tokens of a line, behind a prefix; to be freed with rp_t5_free. CLI_OK, or an exit code after printing. */
int cli_t5_read_tokens(const cli_t5_common *c, const cli_t5_lines *l, const char *prefix, const char *line,
                       int64_t length, int32_t **tokens, int64_t *n);
/* Numbers between spaces or commas. False with the reason in why. */
bool cli_t5_numbers(const char *line, int64_t length, int32_t **tokens, int64_t *n, char why[128]);
/* Print tokens as numbers, or as text in which a line feed is written \n. */
int cli_t5_print(FILE *to, const cli_t5_common *c, const int32_t *tokens, int64_t n);
/* The share of the lines that is read, shown as a bar where it is known, and `to`, where output goes, is no terminal itself. */
void cli_t5_show_lines(cli_progress *p, const cli_t5_lines *l, FILE *to);

#endif
