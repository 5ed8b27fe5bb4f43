/* lab.h -- functions shared by the commands of `relpos lab` and by `relpos explain --model`. lab/engine implements the
 * models and their training.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAB_H
#define RELPOS_LAB_H

#include "cli/cli.h"
#include "io/json.h"
#include "lab/engine/nn.h"

extern const cli_command lab_train, lab_eval, lab_sample, lab_export, lab_inspect, lab_log, lab_sweep, lab_report;

enum { LAB_PROGRESS_SECONDS = 30 }; /* seconds between progress lines if standard error is not a terminal */

/* A training run. */
typedef struct lab_run {
    nn_config c;
    nn_model m;
    nn_net *net;
    rp_pool *pool;
    nn_text text, valid;         /* training text and held-out text */
    nn_pairs pairs, valid_pairs; /* training pairs and held-out pairs of an encoder-decoder */
    nn_batch batch;
    int32_t *tokens, *target;
    double *loss;
    nn_sums sums;         /* gradients of the batches of this step */
    double *batch_losses; /* loss of each batch of this step, times its fraction of the targets [accumulate] */
    bool shared;          /* the processes of a team share the batches of each step */
    int64_t step;
} lab_run;

/* Check that there is enough memory for a training run; the error states how much is needed. The model m may be one
 * from nn_model_plan, without weights. */
int lab_check_memory(const nn_config *c, const nn_model *m, rp_pool *pool, char err[NN_ERR_MAX]);
/* Check that there is enough memory for a net, then call nn_net_create. */
int lab_net(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
            char err[NN_ERR_MAX]);
/* Read the training text and the held-out text that r->c names. If r->c names a tokenizer and *tokenizer is NULL, read
 * the tokenizer too. */
int lab_texts(lab_run *r, nn_tokenizer **tokenizer, char err[NN_ERR_MAX]);
/* Return a checksum of the texts; it is never 0. A resumed run compares it with the checkpoint's to detect changed
 * texts. */
uint64_t lab_texts_checksum(const lab_run *r);
/* Read the texts and create the net for r->c. Create the model too, unless r->m already has weights. Return CLI_OK, or
 * CLI_FAILED after printing an error. */
int lab_begin(lab_run *r);
void lab_end(lab_run *r);
/* Copy the arrays of the run or model `path` that have the same name and shape into m. taken[p] (taken may be NULL)
 * becomes true for each copied parameter. *count is their number, and *step the step of that model. Fail if there are
 * none, or if the tokenizers differ; the error begins with `what`. */
int lab_take_weights(nn_model *m, const char *path, const char *what, bool *taken, int32_t *count, int64_t *step,
                     char err[NN_ERR_MAX]);
/* Run batches from … to - 1 of the current step: set r->batch_losses, and add the gradients to r->sums (batches.c). */
int lab_batches(lab_run *r, int64_t from, int64_t to, char err[NN_ERR_MAX]);
/* Run one training step. Set *loss to its loss and *norm to the norm of the gradients. If either is not finite, leave
 * the weights unchanged and return -1 with err. In a shared run, return 1 with unchanged weights if a signal or another
 * process stopped the step; errors of other processes are printed. */
int lab_step(lab_run *r, double *loss, double *norm, char err[NN_ERR_MAX]);

/* processes.c: a run that is shared by the processes of a team. Rank 0 has the run, and sends the weights of each step
 * to the others, which compute gradients. */

/* Check that each process gets a batch of each step, and set r->shared. Return an exit code. */
int lab_share(lab_run *r);
/* Compare with rank 0: a text that says what is trained, with its name in errors, the checksum of the texts, and the
 * CBLAS. Return an exit code. */
int lab_agree(const char *name, const char *config, uint64_t checksum);
/* Rank 0: like lab_batches for all batches of a step. Return 1 as lab_step does. */
int lab_share_step(lab_run *r, char err[NN_ERR_MAX]);
/* Other ranks: compute gradients until rank 0 has finished. Return an exit code. */
int lab_serve(lab_run *r);

/* The cross-entropy, in nats, over windows of a text. */
typedef struct lab_measure {
    double mean;
    double *by_position;            /* sum of the losses at each position of a window [length], or NULL */
    double *by_piece;               /* mean loss of each piece [pieces], or NULL */
    int64_t windows, tokens, bytes; /* windows; predicted tokens; bytes of their text */
    int64_t *taken;                 /* classifier: windows by true and predicted class [classes, classes], or NULL */
    int64_t right;                  /* classifier: windows with a correct prediction */
} lab_measure;
/* How to measure a loss. Predict at most `bytes` bytes, in `pieces` pieces that are spread over the text. With stride =
 * 0, windows do not overlap. With stride > 0, each window begins `stride` tokens after the previous one and predicts
 * its last `stride` tokens. Every length then predicts the same tokens, and each token has at least length - stride + 1
 * tokens of context. With context = 0, the pieces are spread over the text, and what precedes a piece is its context.
 * With context > 0, the text consists of the pieces, each with a context of so many tokens before it. */
typedef struct lab_measure_options {
    int64_t bytes, pieces, stride, context;
} lab_measure_options;
/* The parts of a text on which a model is measured. */
typedef struct lab_places {
    int64_t pieces, stride;
    int64_t longest; /* largest length */
    int64_t each;    /* tokens to predict in each piece; for a classifier, tokens to read from each file */
    int64_t before;  /* tokens of context before a piece */
    int64_t room;    /* distance from the start of the first piece to the start of the last */
    int64_t apart;   /* distance between pieces, if the text consists of pieces with contexts; otherwise 0 */
} lab_places;
/* Choose the parts of the text for n lengths. Fail if the text is too short. */
int lab_choose_places(const nn_config *c, const nn_text *t, const lab_measure_options *how, const int64_t *lengths,
                      int n, lab_places *to, char err[NN_ERR_MAX]);
/* Return the index of the token before the first predicted token of a piece. */
int64_t lab_place(const lab_places *p, int64_t piece);
/* Return the number of windows in a batch. */
int64_t lab_batch(int64_t length, int64_t windows);
/* Measure the loss with windows of `length` tokens. */
int lab_measure_text(nn_model *m, rp_pool *pool, const nn_text *t, const lab_places *p, int64_t length, lab_measure *to,
                     char err[NN_ERR_MAX]);
double lab_bits_per_byte(const lab_measure *r);
/* Check that a classifier has one file for each class, and that each file has at least `length` tokens. */
int lab_check_classes(const nn_config *c, const nn_text *t, const char *files, int64_t length, char err[NN_ERR_MAX]);
/* Measure at several lengths, predicting the same tokens at each. Return JSON: [{"length", "loss", "perplexity",
 * "bits_per_byte", "tokens", "bytes", "pieces": the loss of each piece, "positions": [{"from", "to", "perplexity"}]}];
 * for a classifier [{"length", "loss", "accuracy", "windows", "taken"}]. Return NULL with err on failure. */
json_t *lab_measure_lengths(nn_model *m, rp_pool *pool, const nn_text *t, const lab_measure_options *how,
                            const int64_t *lengths, int n, char err[NN_ERR_MAX]);
/* Measure n-gram models of up to `order` bytes on the same parts of the text. Their counts come from the training text
 * of the model's experiment. Return [{"order", "loss", "perplexity", "pieces"}]; NULL with err on failure. */
json_t *lab_measure_ngrams(const nn_model *m, const nn_text *t, const lab_measure_options *how, const int64_t *lengths,
                           int n, int32_t order, char err[NN_ERR_MAX]);
/* Run the model on one window. For each layer, call `visit` with the layer's attention and the plans of
 * nn_net_attention. Return -1 with err on failure, and if `visit` does not return RP_OK. */
typedef rp_status lab_visit(void *context, int64_t layer, const rp_tensors *t, rp_plan *plans[2]);
int lab_visit_layers(nn_net *net, const nn_model *m, const int32_t *tokens, int64_t length, lab_visit *visit,
                     void *context, char err[NN_ERR_MAX]);
/* Find the head that gives the most weight to the previous token. The weight is a mean over four windows of the trained
 * length, spread over the text; the text must be longer than a window. Return {"step", "weight", "layer", "head"}; NULL
 * with err on failure. */
json_t *lab_previous(nn_model *m, rp_pool *pool, const nn_text *t, int64_t step, char err[NN_ERR_MAX]);
/* Check that the task can generate lines of these sizes. */
int lab_check_sizes(const nn_config *c, const int64_t *sizes, int n, char err[NN_ERR_MAX]);
/* Measure on generated lines of each size, up to `bytes` bytes per size. Every model gets the same lines. Return JSON:
 * [{"length": the size, "loss", "perplexity", "tokens", "bytes", "lines", "exact": number of lines whose whole answer
 * is correct}]; NULL with err on failure. */
json_t *lab_measure_generated(nn_model *m, rp_pool *pool, int64_t bytes, const int64_t *sizes, int n,
                              char err[NN_ERR_MAX]);
/* Read the training pairs and the held-out pairs of an encoder-decoder experiment. */
int lab_read_pairs(const nn_config *c, nn_pairs *learn, nn_pairs *held_out, char err[NN_ERR_MAX]);
/* A measurement on pairs. Greedy decoding generates a target for each source. Consecutive lines with the same source
 * give alternative targets; the generated target is compared with the nearest of them, the one with the fewest
 * edits. */
typedef struct lab_pairs_measure {
    double loss;     /* mean loss per token of the targets */
    int64_t tokens;  /* tokens of the targets */
    int64_t sources; /* number of different sources; 0 if no targets were generated */
    int64_t exact;   /* sources whose generated target equals one of its targets */
    int64_t edits;   /* word edits that turn the generated targets into the nearest targets */
    int64_t words;   /* number of words in the nearest targets */
} lab_pairs_measure;
/* Check that the target of the first pair has at most `bytes` bytes. */
int lab_check_pairs(const nn_pairs *p, int64_t bytes, char err[NN_ERR_MAX]);
/* Measure on the first pairs; their targets may have at most `bytes` bytes in total. With `edits`, also generate
 * targets and compare them. */
int lab_measure_pairs(nn_model *m, rp_pool *pool, const nn_pairs *p, int64_t bytes, bool edits, lab_pairs_measure *to,
                      char err[NN_ERR_MAX]);
/* Measure on the pairs in `files` (NULL: on the held-out pairs) and print the result. Return the exit code. */
int lab_eval_pairs(nn_model *m, rp_pool *pool, const char *files, int64_t bytes, int64_t step, bool json);
/* Parse lengths such as "512 1024" or "512,1024". Return their number, or -1 with err. */
enum { LAB_MAX_LENGTHS = 16 };
int lab_lengths(const char *text, int64_t lengths[LAB_MAX_LENGTHS], char err[NN_ERR_MAX]);

/* Read the text to measure on: the text in `files` (NULL: the held-out text of the experiment). */
int lab_held_out(const nn_model *m, const char *files, nn_text *held_out, char err[NN_ERR_MAX]);
/* Load the CBLAS, and check that there is memory for its buffers. threads = 0 means all threads. Print the warning of
 * nn_blas_note once. */
int lab_blas(int64_t threads, char err[NN_ERR_MAX]);
/* Create a pool of `threads` threads. 0 means those of the default pool (RELPOS_THREADS, else every processor that the
 * process may use), or the share of this process under mpirun. Return CLI_OK, or CLI_FAILED after printing an error. */
int lab_pool(rp_pool **pool, int64_t threads);
/* Describe the machine for logs: processor, cores, version, isa, blas (with its warning, if any), threads. */
json_t *lab_machine(const rp_pool *pool);
/* Read a model from a run's folder or a file, and create a pool. Print the warning of nn_checkpoint_read. Return
 * CLI_OK, or CLI_FAILED after printing an error. */
int lab_open_any(nn_model *m, const char *path, int64_t *step, int64_t threads, rp_pool **pool);
/* Like lab_open_any, but accept only decoders whose tokens are bytes. */
int lab_open(nn_model *m, const char *path, int64_t *step, int64_t threads, rp_pool **pool);
/* A model after a forward pass over a text. nn_net_attention returns the arrays of a layer. */
typedef struct lab_inspection {
    nn_model m;
    nn_net *net;
    rp_pool *pool;
    int32_t *tokens; /* tokens of the text [n] */
    int64_t n;
    bool open;
} lab_inspection;
/* Read a model and run it on a text. With `bytes`, accept only decoders whose tokens are bytes. Return CLI_OK, or
 * CLI_FAILED after printing an error, or -1 with err. */
int lab_inspection_at(lab_inspection *look, const char *path, const char *text, bool bytes, char err[NN_ERR_MAX]);
void lab_inspection_end(lab_inspection *look);
/* Write a printable name of a byte: the character, such as "a"; "_" for a space; otherwise hexadecimal, such as
 * "\x0a". */
void lab_token(char name[8], unsigned char byte);
/* Convert a text to tokens of the model, which the caller frees. Return NULL with err on failure. */
int32_t *lab_tokens(const nn_model *m, const char *text, int64_t *n, char err[NN_ERR_MAX]);
/* Return the text of a token; it has *size bytes. If tokens are bytes, *byte holds the text. */
const unsigned char *lab_token_text(const nn_model *m, int32_t token, unsigned char *byte, size_t *size);
/* Variances of the scores of a row, over the keys that are not masked. */
typedef struct lab_spread {
    double content;  /* scores without the position terms */
    double position; /* contributions of the position terms to the scores */
    double both;     /* scores with the position terms */
} lab_spread;
lab_spread lab_spread_of(const double *with, const double *without, int64_t n);
/* Return position / (position + content), or 0 if both are 0. */
double lab_position_fraction(double position, double content);
/* Return the number of weights in position terms. */
int64_t lab_position_weights(const nn_model *m);

/* The values of all --set options (files.c). */
enum { LAB_MAX_SETS = 64 };
typedef struct lab_sets {
    const char *value[LAB_MAX_SETS];
    int n;
} lab_sets;
/* Add a value to the list. Return an exit code. */
int lab_add_set(lab_sets *sets, const char *value);
/* Apply all values to a configuration. */
int lab_parse_sets(nn_config *c, const lab_sets *sets, nn_other_key *other, void *context, char err[NN_ERR_MAX]);
/* Return the exit code for an error in an experiment: CLI_FAILED if out of memory, otherwise CLI_USAGE. */
int lab_code_of(const char *err);
/* Create a folder and its parents; with `above`, create only the parents. Existing folders are kept. */
int lab_make_folder(const char *path, bool above, char err[NN_ERR_MAX]);
/* Return the length of the shortest parent of `path`, or of `path` itself, that does not exist; 0 if all exist. */
size_t lab_missing_folder(const char *path);
/* Remove `path` and its parents of at least `from` bytes, while they are empty. from = 0 removes nothing. */
void lab_remove_empty(const char *path, size_t from);
/* Prepend the folder of the experiment `path` to each file name in `files` that is relative and exists there. */
void lab_beside(const char *path, char files[NN_TEXT_MAX]);
/* Lock an open file or folder until it is closed. Fail if another run holds the lock. */
int lab_lock(int fd, const char *path, char err[NN_ERR_MAX]);
/* Read a text file. The caller frees the result. Return NULL with err on failure. */
char *lab_read(const char *path, char err[NN_ERR_MAX]);
/* Return x as JSON, or null if x is not finite, since JSON has no such numbers. */
json_t *lab_number(double x);
/* Return `json`, or NULL with err if an allocation failed while it was built. */
json_t *lab_finished_json(json_t *json, char err[NN_ERR_MAX]);
/* Write a JSON value as one line, and free it. */
int lab_write_line(FILE *to, const char *path, json_t *line, char err[NN_ERR_MAX]);

#endif
