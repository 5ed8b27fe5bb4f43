/* t5.h -- code shared by the commands of `relpos t5`: opening a model, lines of text or of token numbers, errors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_T5_H
#define RELPOS_CLI_T5_H

#include "cli/lines.h"
#include <relpos/t5.h>

extern const cli_command cli_t5_generate, cli_t5_encode, cli_t5_proteins, cli_t5_score, cli_t5_tokenize, cli_t5_info,
    cli_t5_pack, cli_t5_explain, cli_t5_verify, cli_t5_bench;

/* The options that all commands have, and the open model. */
typedef struct cli_t5_common {
    const char *type, *draft; /* draft: NULL if none */
    const char *tokenizer;    /* NULL: the model's */
    int64_t threads;
    rp_t5_loading load; /* parts of the model that the command needs */
    bool tokens;        /* the lines consist of token numbers */
    bool no_tokenizer;  /* open the model without its tokenizer */
    bool keep_special;  /* print special tokens too */
    rp_pool *pool;
    rp_t5 *model;
    bool catches; /* signals are caught, and reported by cli_stop_requested */
} cli_t5_common;

enum {
    T5_TYPE = CLI_FIRST_KEY,
    T5_TOKENIZER,
    T5_THREADS,
    T5_TOKENS,
    T5_TEXT,
    T5_EXACT,
    T5_DRAFT,
    T5_KEEP_SPECIAL,
    T5_OWN
};
#define T5_COMMON_OPTIONS                                                                                              \
    T5_COMMON_OPTIONS_WITH("default: the narrowest that represents the file's numbers exactly", CLI_ALL_THREADS)
#define T5_COMMON_OPTIONS_WITH(of_type, of_threads)                                                                    \
    {"type", T5_TYPE, "T", "keep weights as f32, f16, bf16, int8, int4 or q8; " of_type},                              \
        {"tokenizer", T5_TOKENIZER, "DIR|FILE", "read the tokenizer from DIR or FILE; default: the model's"},          \
    {                                                                                                                  \
        "threads", T5_THREADS, "N", "use N threads; " of_threads                                                       \
    }
#define T5_DRAFT_OPTIONS                                                                                               \
    {"exact", T5_EXACT, NULL, "write the same text and scores faster: int4 weights propose, the model checks"},        \
    {                                                                                                                  \
        "draft", T5_DRAFT, "T", "like --exact, with weights of type T for the proposals: int8 or int4"                 \
    }
#define T5_TOKENS_OPTION                                                                                               \
    {                                                                                                                  \
        "tokens", T5_TOKENS, NULL, "read and write token numbers in place of text"                                     \
    }
#define T5_KEEP_SPECIAL_OPTION                                                                                         \
    {                                                                                                                  \
        "keep-special-tokens", T5_KEEP_SPECIAL, NULL, "also print special tokens such as <extra_id_0> and </s>"        \
    }

/* How an image or video model pads the text for its text encoder. */
typedef struct cli_t5_pipeline {
    const char *name;
    int64_t length; /* tokens */
    bool attend;    /* the encoder attends to the padding; otherwise hidden states of the padding are 0 */
    rp_dtype mask;  /* type of the array prompt_attention_mask; RP_F32: there is none */
} cli_t5_pipeline;

/* Functions that return int return CLI_OK; or they print an error and return an exit code, unless noted otherwise. */

/* Find the model of --for. */
int cli_t5_find_pipeline(const char *name, const cli_t5_pipeline **found);
/* Handle one of the common options. Return -1 if `key` is not one of them. */
int cli_t5_common_option(cli_t5_common *c, int key, const char *value);
/* Open the model. From now until cli_t5_let_signals or cli_t5_close, Ctrl-C does not end the program but sets
 * cli_stop_requested. Call cli_t5_let_signals before work that does not check cli_stop_requested. */
int cli_t5_open(cli_t5_common *c, const char *path);
/* In a team, compare the model and the arguments with those of rank 0. */
int cli_t5_agree(const cli_t5_common *c);
/* Return the max tokens of the next part of the work, at most `most`. In a team, parts are smaller, so that all
 * processes end at the same time. `left`: tokens that remain; -1: unknown. */
int64_t cli_t5_part(int64_t left, int64_t most);
enum { T5_TEAM_PART = 2048 }; /* max tokens of a part in a team, unless one line is longer */
/* Lines that are computed together, as a task of a farm: their lengths, and then their tokens. */
typedef struct cli_t5_task {
    int64_t n;
    int64_t n_tokens;      /* encode: tokens of all lines */
    int64_t first, number; /* generate: index of the first line, and number of the last line, from 1 */
    int64_t lengths[];
} cli_t5_task;
/* Return the lines of a task, from malloc; NULL if out of memory. Their tokens are those of the task. */
rp_t5_tokens *cli_t5_sources(const cli_t5_task *t);
/* Replace n rows of d numbers by their mean, in place of the first. */
void cli_t5_mean(float *rows, int64_t n, int64_t d);
void cli_t5_let_signals(cli_t5_common *c);
void cli_t5_close(cli_t5_common *c);
/* Print the statistics of a draft (tokens proposed and accepted, passes), without a newline. */
void cli_t5_print_drafted(FILE *to, const rp_t5_drafted *d);
/* Print rp_t5_last_error, or that a signal stopped the command. Return CLI_FAILED. */
int cli_t5_refused(const char *command);
/* Print that a signal stopped the command. Return CLI_FAILED. */
int cli_t5_stopped(const char *command);
/* An rp_progress that shows a bar and stops on Ctrl-C. The context is a cli_progress, or NULL for no bar. */
int cli_t5_progress(void *context, double fraction);

/* A callback for rp_t5_generation.cancelled: cancel on Ctrl-C. The context is not used. */
int cli_t5_stop_asked(void *context);
/* Return settings for greedy search without penalties, ignoring generation_config.json. Ctrl-C stops the search. */
rp_t5_generation cli_t5_greedy(const rp_t5 *model);

/* Check that `output` is not a file from which the model was read. NULL means standard output. */
int cli_t5_keep_model(const cli_t5_common *c, const char *output);

/* Check the output file, open the lines and the model, check that the output file is not a file of the model, and that
 * all processes agree. output = NULL means standard output. Only rank 0 has lines. */
int cli_t5_begin(cli_t5_common *c, cli_lines *l, const char *model, const char *lines, const char *text,
                 const char *output);
/* Convert `prefix` followed by a line to tokens. Free *tokens with rp_t5_free. */
int cli_t5_read_tokens(const cli_t5_common *c, const cli_lines *l, const char *prefix, const char *line, int64_t length,
                       int32_t **tokens, int64_t *n);
/* Parse token numbers between spaces or commas. On an error, return false and write the reason to `why`. */
bool cli_t5_numbers(const char *line, int64_t length, int32_t **tokens, int64_t *n, char why[128]);
/* Convert tokens to text, with or without special tokens as c says; free *text with rp_t5_free. */
rp_status cli_t5_text(const cli_t5_common *c, const int32_t *tokens, int64_t n, char **text, int64_t *size);
/* Print tokens as numbers, or as text with line feeds written as \n. */
int cli_t5_print(FILE *to, const cli_t5_common *c, const int32_t *tokens, int64_t n);

#endif
