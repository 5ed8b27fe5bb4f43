/* lab.h -- the functions that the commands of `relpos lab`, and `relpos explain --model`, share. They print errors as the command line
 * does; models and training are lab/engine's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAB_H
#define RELPOS_LAB_H

#include "cli/cli.h"
#include "io/json.h"
#include "lab/engine/nn.h"

extern const cli_command lab_train, lab_eval, lab_sample, lab_export, lab_inspect, lab_log, lab_sweep, lab_report;

enum { LAB_TELL = 30 }; /* seconds between lines of progress where there is no terminal */

/* A training run. */
typedef struct lab_run {
    nn_config c;
    nn_model m;
    nn_net *net;
    rp_pool *pool;
    nn_text text, valid;         /* to learn from, and held out */
    nn_pairs pairs, valid_pairs; /* the same of an encoder-decoder */
    nn_batch batch;
    int32_t *tokens, *target;
    double *loss;
    int64_t step;
} lab_run;

/* Check that there is memory for a run; the error says how much it needs. m may come from nn_model_plan. */
int lab_check_memory(const nn_config *c, const nn_model *m, rp_pool *pool, char err[NN_ERR_MAX]);
/* nn_net_create, after the same check. */
int lab_net(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
            char err[NN_ERR_MAX]);
/* Read the text that r->c learns from and the text that it holds out. *tokenizer is read too where it is NULL and r->c names one. */
int lab_texts(lab_run *r, nn_tokenizer **tokenizer, char err[NN_ERR_MAX]);
/* Make texts, model (unless r->m has weights already) and net from r->c. CLI_OK, or CLI_FAILED after printing. */
int lab_begin(lab_run *r);
void lab_end(lab_run *r);
/* One step; *loss and *norm, that of the gradients. -1 with err, also where one of them is not finite: then no weight has changed. */
int lab_step(lab_run *r, double *loss, double *norm, char err[NN_ERR_MAX]);

/* Cross-entropy in nats over windows of `length` tokens of a text: the mean, and where they are not NULL for each position of a window,
 * by_position [length], and for each piece. For a classifier: also for which files its windows were taken. */
typedef struct lab_measure {
    double mean, *by_position;
    double *by_piece;               /* means [pieces], or NULL */
    int64_t windows, tokens, bytes; /* tokens predicted; bytes that they stand for */
    int64_t *taken,
        right; /* windows of each file taken for each [classes][classes], or NULL; windows whose file was found */
} lab_measure;
/* How to measure: at most `bytes` bytes are predicted, in `pieces` that are spread over the text. stride 0: in windows that do not overlap.
 * Above 0: each window moves on by so many tokens and predicts as many, its last ones, so that every length predicts the same tokens and all
 * but the first of them have length - stride + 1 tokens of context at least. */
typedef struct lab_how {
    int64_t bytes, pieces, stride;
} lab_how;
/* Where that is: tokens that are predicted in each piece (or by a classifier, that are read of each file), and the tokens of context before
 * them. */
typedef struct lab_places {
    int64_t pieces, stride, longest, each, before, room;
} lab_places;
/* Choose the places for n lengths, or say what the text is too short for. */
int lab_choose_places(const nn_config *c, const nn_text *t, const lab_how *how, const int64_t *lengths, int n,
                      lab_places *to, char err[NN_ERR_MAX]);
/* The token before the first one that is predicted in a piece. */
int64_t lab_place(const lab_places *p, int64_t piece);
/* How many windows are computed at once. */
int64_t lab_batch(int64_t length, int64_t windows);
int lab_measure_text(nn_model *m, rp_pool *pool, const nn_text *t, const lab_places *p, int64_t length, lab_measure *to,
                     char err[NN_ERR_MAX]);
double lab_bits_per_byte(const lab_measure *r);
/* Check that a classifier has as many files as classes, and that each has at least `length` tokens. */
int lab_check_classes(const nn_config *c, const nn_text *t, const char *files, int64_t length, char err[NN_ERR_MAX]);
/* Measurements at several lengths, as JSON: [{"length", "loss", "perplexity", "bits_per_byte", "tokens", "bytes", "pieces": the loss of each,
 * "positions": [{"from", "to", "perplexity"}]}], or of a classifier [{"length", "loss", "accuracy", "windows", "taken"}]. All lengths read the same
 * tokens. NULL with err. */
json_t *lab_measure_lengths(nn_model *m, rp_pool *pool, const nn_text *t, const lab_how *how, const int64_t *lengths,
                            int n, char err[NN_ERR_MAX]);
/* What counts of up to `order` neighbouring bytes reach at the same places, learned from the text that the model's experiment learns from:
 * [{"order", "loss", "perplexity", "pieces"}]. NULL with err. */
json_t *lab_measure_ngrams(const nn_model *m, const nn_text *t, const lab_how *how, const int64_t *lengths, int n,
                           int32_t order, char err[NN_ERR_MAX]);
/* Run the model on one window and visit the attention of its layers: plans as nn_net_attention gives them. -1 with err, also where a visit does
 * not return RP_OK. */
typedef rp_status lab_visit(void *context, int64_t layer, const rp_tensors *t, rp_plan *plans[2]);
int lab_visit_layers(nn_net *net, const nn_model *m, const int32_t *tokens, int64_t length, lab_visit *visit,
                     void *context, char err[NN_ERR_MAX]);
/* The head whose queries give the most weight to the token before, as a mean over four windows of the trained length, spread over a text that is
 * longer: {"step", "weight", "layer", "head"}. NULL with err. */
json_t *lab_previous(nn_model *m, rp_pool *pool, const nn_text *t, int64_t step, char err[NN_ERR_MAX]);
/* Check that lines of a task have such sizes. Then: generated lines of each size, as JSON: [{"length": the size, "loss", "perplexity", "tokens", "bytes", "lines", "exact": those whose answer is
 * right to the byte}]. Every model gets the same lines, `bytes` bytes of each size at most. NULL with err. */
int lab_check_sizes(const nn_config *c, const int64_t *sizes, int n, char err[NN_ERR_MAX]);
json_t *lab_measure_generated(nn_model *m, rp_pool *pool, int64_t bytes, const int64_t *sizes, int n,
                              char err[NN_ERR_MAX]);
/* Read the pairs that an encoder-decoder learns from, and those that it holds out. */
int lab_read_pairs(const nn_config *c, nn_pairs *learn, nn_pairs *held, char err[NN_ERR_MAX]);
/* Of pairs: the mean loss of a token of the targets; and with `edits`, of the sources, what the model writes for them with the likeliest
 * token each time: how many are a target to the byte, the edits of words that turn them into the nearest target, and the words of these
 * targets. Lines with the same source that follow one another are alternatives. */
typedef struct lab_pairs_measure {
    double loss;
    int64_t tokens, sources, exact, edits, words;
} lab_pairs_measure;
/* Check that the first pair's target has at most `bytes` bytes. */
int lab_check_pairs(const nn_pairs *p, int64_t bytes, char err[NN_ERR_MAX]);
int lab_measure_pairs(nn_model *m, rp_pool *pool, const nn_pairs *p, int64_t bytes, bool edits, lab_pairs_measure *to,
                      char err[NN_ERR_MAX]);
/* Measure on files, or on what was held out where files is NULL, and print it; the exit code. */
int lab_eval_pairs(nn_model *m, rp_pool *pool, const char *files, int64_t bytes, int64_t step, bool json);
/* Read lengths such as "512 1024" or "512,1024"; returns how many, or -1 with err. */
enum { LAB_MAX_LENGTHS = 16 };
int lab_lengths(const char *text, int64_t lengths[LAB_MAX_LENGTHS], char err[NN_ERR_MAX]);

/* Read the text to measure on: that of `files`, or where it is NULL what the experiment held out. -1 with err. */
int lab_held_out(const nn_model *m, const char *files, nn_text *held, char err[NN_ERR_MAX]);
/* nn_blas_open and nn_blas_memory, threads 0 for all; prints nn_blas_note the first time. */
int lab_blas(int64_t threads, char err[NN_ERR_MAX]);
/* A description of the machine for logs: processor, cores, version, isa, blas with its note if it has one, threads. */
json_t *lab_machine(const rp_pool *pool);
/* Read the model of a run or a file, and make a pool; prints a warning of nn_checkpoint_read. lab_open accepts only decoders of bytes.
 * CLI_OK, or CLI_FAILED after printing. */
int lab_open_any(nn_model *m, const char *path, int64_t *step, int64_t threads, rp_pool **pool);
int lab_open(nn_model *m, const char *path, int64_t *step, int64_t threads, rp_pool **pool);
/* A model after a forward pass over a text: nn_net_attention gives the arrays of a layer. With `bytes`, lab_look_at accepts only decoders
 * of bytes. CLI_OK, CLI_FAILED after printing, or -1 with err. */
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
/* A printable name for a byte, such as a or \x0a. */
void lab_token(char name[8], unsigned char byte);
/* A text as the model's tokens, to be freed; NULL with err. */
int32_t *lab_tokens(const nn_model *m, const char *text, int64_t *n, char err[NN_ERR_MAX]);
/* The text of a token, *size bytes; where tokens are bytes it is written to *byte. */
const unsigned char *lab_token_text(const nn_model *m, int32_t token, unsigned char *byte, size_t *size);
/* Variances of a row's scores over the keys that are not masked: of the scores without the position terms (content), of what the terms
 * add (position), and of the scores with them (both). */
typedef struct lab_spread {
    double content, position, both;
} lab_spread;
lab_spread lab_spread_of(const double *with, const double *without, int64_t n);
/* position / (position + content); 0 where both are 0. */
double lab_share(double position, double content);
/* The number of weights that belong to positions. */
int64_t lab_position_weights(const nn_model *m);

/* files.c. The values of --set. */
enum { LAB_MAX_SETS = 64 };
typedef struct lab_sets {
    const char *value[LAB_MAX_SETS];
    int n;
} lab_sets;
int lab_add_set(lab_sets *sets, const char *value); /* an exit code */
int lab_parse_sets(nn_config *c, const lab_sets *sets, nn_other_key *other, void *context, char err[NN_ERR_MAX]);
/* The exit code of what was said of an experiment: of memory that ran out, or of what it says. */
int lab_code_of(const char *err);
/* Make a folder and its parents, or with `above` only the parents, as far as they do not exist. */
int lab_make_folder(const char *path, bool above, char err[NN_ERR_MAX]);
/* Lock an open file or folder until it is closed; -1 with err where another run holds the lock. */
int lab_lock(int fd, const char *path, char err[NN_ERR_MAX]);
/* Read a text file, to be freed; NULL with err. */
char *lab_read(const char *path, char err[NN_ERR_MAX]);
/* x, or null where it is not finite: JSON has no such numbers. */
json_t *lab_number(double x);
/* The JSON, or NULL with a line in err where memory ran out while it was built. */
json_t *lab_built(json_t *json, char err[NN_ERR_MAX]);
/* Write a JSON value as a line, and free it; -1 with err. */
int lab_write_line(FILE *to, const char *path, json_t *line, char err[NN_ERR_MAX]);

#endif
