/* encoder.h -- code shared by the commands that run encoders: embed, classify and rerank.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_ENCODER_H
#define RELPOS_CLI_ENCODER_H

#include "cli/encoder/records.h"
#include <relpos/encoder.h>

enum { ENCODER_TYPE = CLI_FIRST_KEY, ENCODER_THREADS, ENCODER_COLUMN, ENCODER_PAIR, ENCODER_TEXT, ENCODER_OWN };
#define ENCODER_OPTIONS                                                                                                \
    {"type", ENCODER_TYPE, "T",                                                                                        \
     "keep weights as f32, f16, bf16, q8 (8 bits) or int8 (faster and less exact); default: the narrowest of the "     \
     "first "                                                                                                          \
     "three that represents the file's numbers exactly"},                                                              \
        {"column", ENCODER_COLUMN, "NAME", "of a file .jsonl, .csv or .tsv: read the text from NAME; default: text"},  \
        {"text", ENCODER_TEXT, "TEXT", "read one line from the command line instead of a file"},                       \
    {                                                                                                                  \
        "threads", ENCODER_THREADS, "N", "use N threads; " CLI_ALL_THREADS                                             \
    }
#define ENCODER_PAIR_OPTION                                                                                            \
    {                                                                                                                  \
        "pair", ENCODER_PAIR, "NAME", "of such a file: read the second text from NAME; default: pair"                  \
    }

/* A command that computes numbers for each text. Results are taken in the order of the texts. */
typedef struct cli_encoder {
    const char *command; /* "embed" */
    const char *type, *text;
    int64_t threads;
    cli_records in;
    rp_pool *pool;
    rp_encoder *model;
    cli_progress progress;
    bool catches;  /* signals are caught, and reported by cli_stop_requested */
    bool ends;     /* all records were read */
    int64_t read;  /* texts that were read */
    int64_t width; /* numbers for each text */
    int64_t known; /* texts at the start whose numbers are known; take gets them with numbers = NULL */
    /* Compute `width` numbers for each of n texts. */
    rp_status (*compute)(const struct cli_encoder *e, int64_t n, const rp_encoder_text *texts, float *out,
                         rp_progress *progress, void *context);
    /* Rank 0: take the numbers of one text. Return CLI_OK, or an exit code after printing. */
    int (*take)(struct cli_encoder *e, const rp_encoder_text *text, const float *numbers);
    void *context; /* of compute and take */
} cli_encoder;

/* Functions that return int return CLI_OK; or they print an error and return an exit code, unless noted otherwise. */

/* Handle one of the common options. Return -1 if `key` is not one of them. */
int cli_encoder_option(cli_encoder *e, int key, const char *value);
/* Check the output file (NULL: standard output), and open the model. */
int cli_encoder_open(cli_encoder *e, const char *model, const char *output);
/* Check that a file, which may be NULL or "-", is not one of the model. */
int cli_encoder_keep(const cli_encoder *e, const char *output);
/* In a team, compare the model with that of rank 0. */
int cli_encoder_agree(const cli_encoder *e);
/* Check the output file (NULL: standard output), open the records and the model, and check that all processes agree. */
int cli_encoder_begin(cli_encoder *e, const char *model, const char *records, const char *output);
/* Compute all records. */
int cli_encoder_run(cli_encoder *e);
/* Close the model. */
void cli_encoder_close(cli_encoder *e);
/* Close everything. Return `code`. */
int cli_encoder_end(cli_encoder *e, int code);
/* Print rp_encoder_last_error, or that a signal stopped the command. Return CLI_FAILED. */
int cli_encoder_refused(const cli_encoder *e);
/* Return true if a path is a model of the T5 family. */
bool cli_is_t5(const char *path);
#endif
