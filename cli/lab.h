/* lab.h -- what the commands of `relpos lab` share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAB_H
#define RELPOS_LAB_H

#include "cli.h"
#include "io/json.h"
#include "nn/nn.h"

extern const cli_command lab_train, lab_eval, lab_sample, lab_export, lab_inspect, lab_sweep, lab_report;

/* A training run under way. */
typedef struct lab_run {
    nn_config c;
    nn_model m;
    nn_net *net;
    rp_pool *pool;
    nn_text text, valid; /* to learn from, and held out */
    int32_t *tokens, *target;
    double *loss;
    int64_t step;
} lab_run;

/* Whether there is memory for a run: if not, a line says how much it needs. m may be a plan. */
int lab_check_memory(const nn_config *c, const nn_model *m, rp_pool *pool, char err[NN_ERR_MAX]);
/* nn_net_create, after the same question. */
int lab_net(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
            char err[NN_ERR_MAX]);
/* What c learns from and what it holds out; *pieces is read where it is NULL and c has a tokenizer. */
int lab_texts(lab_run *r, nn_pieces **pieces, char err[NN_ERR_MAX]);
/* Texts, model (unless m is there already) and net from c. CLI_OK or CLI_FAILED after printing. */
int lab_begin(lab_run *r);
void lab_end(lab_run *r);
/* One step: *loss, the norm of the gradients. -1 with err, also where one of them is not finite: then no weight has changed. */
int lab_step(lab_run *r, double *loss, double *norm, char err[NN_ERR_MAX]);

/* Cross-entropy in nats over windows of `length` of a text, of so many of its tokens: mean, and for each position where by_position
 * (of `length` sums) is not NULL. Of a classifier, so many tokens of each file, and which files its windows were taken for. */
typedef struct lab_measure {
    double mean, *by_position;
    int64_t windows, tokens, bytes; /* predicted; bytes that the tokens stand for */
    int64_t *taken, right;          /* taken [classes][classes] for each file, or NULL; windows whose file was found */
} lab_measure;
int lab_measure_text(nn_model *m, rp_pool *pool, const nn_text *t, int64_t most, int64_t length, lab_measure *to,
                     char err[NN_ERR_MAX]);
/* How many tokens can be predicted, or classified of each file, of so many bytes at most. */
int64_t lab_measurable(const nn_config *c, const nn_text *t, int64_t bytes);
/* Whether that is as much as the longest of n lengths. */
int lab_check_measure(const nn_config *c, const nn_text *t, int64_t bytes, const int64_t *lengths, int n,
                      char err[NN_ERR_MAX]);
double lab_bits_per_byte(const lab_measure *r);
/* Whether a classifier's files are as many as its classes, and none shorter than so many tokens. */
int lab_check_classes(const nn_config *c, const nn_text *t, const char *files, int64_t length, char err[NN_ERR_MAX]);
/* What is measured at several lengths, as JSON: [{"length", "loss", "perplexity", "bits_per_byte", "tokens", "bytes", "positions":
 * [{"from", "to", "perplexity"}]}], or of a classifier [{"length", "loss", "accuracy", "windows", "taken"}]. All lengths see the same
 * tokens. NULL with err. */
json_t *lab_measure_lengths(nn_model *m, rp_pool *pool, const nn_text *t, int64_t bytes, const int64_t *lengths, int n,
                            char err[NN_ERR_MAX]);
/* "512 1024" or "512,1024": how many, or -1 with err. */
enum { LAB_MOST_LENGTHS = 16 };
int lab_lengths(const char *text, int64_t lengths[LAB_MOST_LENGTHS], char err[NN_ERR_MAX]);

/* Text to look at: of files, or where NULL what the experiment held out. -1 with err. */
int lab_held_out(const nn_model *m, const char *files, nn_text *held, char err[NN_ERR_MAX]);
/* nn_blas_open and nn_blas_memory, threads 0 for all; and once a line about its note. */
int lab_blas(int64_t threads, char err[NN_ERR_MAX]);
/* What the machine is, for logs: isa, blas and its note where there is one, threads, version. */
json_t *lab_machine(const rp_pool *pool);
/* The model of a run or a file, on a pool, with a line about what is odd; lab_open takes decoders of bytes alone. CLI_OK or
 * CLI_FAILED after printing. */
int lab_open_any(nn_model *m, const char *path, int64_t *step, int64_t threads, rp_pool **pool);
int lab_open(nn_model *m, const char *path, int64_t *step, int64_t threads, rp_pool **pool);
/* A model that has read a text; nn_net_attention says what a layer saw. bytes: only
 * where its tokens are bytes and it predicts the next. CLI_OK, CLI_FAILED after printing, or -1 with err. */
typedef struct lab_look {
    nn_model m;
    nn_net *net;
    rp_pool *pool;
    int32_t *tokens; /* of the text */
    int64_t n;
    bool open;
} lab_look;
int lab_look_at(lab_look *look, const char *path, const char *text, bool bytes, char err[NN_ERR_MAX]);
void lab_look_end(lab_look *look);
/* The name of a byte. */
void lab_token(char name[8], unsigned char byte);
/* A text as the model's tokens, to be freed; NULL with err. */
int32_t *lab_tokens(const nn_model *m, const char *text, int64_t *n, char err[NN_ERR_MAX]);
/* What a token stands for, of *size bytes; where tokens are bytes it is written to *byte. */
const unsigned char *lab_token_text(const nn_model *m, int32_t token, unsigned char *byte, size_t *size);
/* Variances of a row's scores over the keys that are not masked: without the position terms, of what these add, and with them. */
typedef struct lab_spread {
    double content, position, both;
} lab_spread;
lab_spread lab_spread_of(const double *with, const double *without, int64_t n);
/* Position's share of the sum of its variance and content's; 0 where both are. */
double lab_share(double position, double content);
/* Weights that belong to positions. */
int64_t lab_position_weights(const nn_model *m);

/* lab_files.c. From watch(true) on, Ctrl-C and SIGTERM ask to stop, the second one at once; watch(false) leaves it as it was. */
void lab_watch(bool on);
bool lab_stop_asked(void);
/* What --set gave. */
enum { LAB_MOST_SETS = 64 };
typedef struct lab_sets {
    const char *value[LAB_MOST_SETS];
    int n;
} lab_sets;
int lab_add_set(lab_sets *sets, const char *value); /* an exit code */
int lab_parse_sets(nn_config *c, const lab_sets *sets, nn_other_key *other, void *context, char err[NN_ERR_MAX]);
/* A folder and those above it, or only those above, where they are not there. */
int lab_make_folder(const char *path, bool above, char err[NN_ERR_MAX]);
/* A lock on an open file or folder for as long as it is open; -1 with err where another run has it. */
int lab_lock(int fd, const char *path, char err[NN_ERR_MAX]);
/* Read a whole text file, to be freed; NULL with err. */
char *lab_read(const char *path, char err[NN_ERR_MAX]);
/* x, or null where it is not finite, which JSON has no word for. */
json_t *lab_number(double x);
/* One JSON value as a line; -1 with err. */
int lab_write_line(FILE *to, const char *path, json_t *line, char err[NN_ERR_MAX]);

#endif
