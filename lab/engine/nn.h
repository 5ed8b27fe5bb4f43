/* nn.h -- the small transformers that `relpos lab` trains, built on the public operator of relpos.h. Not part of
 * librelpos.
 *
 * There are three main types. nn_config describes a model and its training (plain data, read from text). nn_model holds
 * the weights. nn_net runs a model forward and backward at one batch size and length; it is a list of layers with their
 * activations.
 *
 * Results have the same bits for any number of threads. Work is divided into chunks that depend only on the shape; one
 * thread computes each chunk, and partial sums are added in order.
 *
 * Functions that can fail return 0, or -1 with one line in err: the field, its value, the bound, and what to do.
 *
 * The files of lab/engine include the public header, models/layers (arithmetic and random numbers), models/io, the
 * tokenizer's header, and headers of src/base: random numbers and edit distance. They print nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_NN_H
#define RELPOS_NN_H

#include "layers/normal.h"
#include "layers/numeric.h"

#define NN_ERR_MAX 512

/* -------------------------------------------------------------------------------------------- common: errors, files */

/* Write a message to err and return -1. */
__attribute__((format(printf, 2, 3))) int nn_fail(char err[NN_ERR_MAX], const char *format, ...);
/* Write the library's last error to `text`, using the words of the command line instead of names of C fields. desc may
 * be NULL. Return text. */
const char *nn_library_error(const rp_desc *desc, char text[NN_ERR_MAX]);
#define NN_WORDS(desc) nn_library_error(desc, (char[NN_ERR_MAX]){0})

/* Read a regular file and append a NUL. An empty file is an error. The caller frees the result. Return NULL with err on
 * failure. */
unsigned char *nn_read_file(const char *path, size_t *size, char err[NN_ERR_MAX]);

/* ------------------------------------------------------------------------------------------------ configuration */

typedef enum nn_task { NN_DECODER = 0, NN_CLASSIFIER = 1, NN_ENCODER_DECODER = 2 } nn_task;

/* Tasks with generated lines (task_lines.c). */
typedef enum nn_generate {
    NN_GENERATE_NONE = 0,
    NN_GENERATE_COPY,
    NN_GENERATE_REVERSE,
    NN_GENERATE_RECALL,
    NN_GENERATE_PASSKEY,
    NN_GENERATE_ADDITION
} nn_generate;
typedef enum nn_log_scale { NN_LOG_NONE = 0, NN_LOG_FIXED = 1, NN_LOG_LEARNED = 2 } nn_log_scale;

#define NN_TEXT_MAX 1024 /* max bytes of a text value in a configuration, including the NUL */

/* An experiment. The table in config.c lists all keys, their bounds and their meaning; `relpos lab --help` prints
 * it. */
typedef struct nn_config {
    /* the model */
    int32_t task, norm, act; /* nn_task, layers_norm, layers_act */
    int64_t layers, decoder_layers, width, heads, mlp, vocab, classes;
    int32_t tied, bos;
    int32_t generate;      /* nn_generate */
    int64_t generate_size; /* max size of lines in training */
    double norm_eps;
    char position[NN_TEXT_MAX];              /* terms joined by +; may include "none", "sinusoidal" and "learned" */
    char encoder_position[NN_TEXT_MAX];      /* terms of the encoder; "": as in `position`. Only for encoder-decoders */
    int32_t position_layers, position_heads; /* 0: separate arrays for each layer or head; 1: shared arrays */
    int64_t nope_every;                      /* layers N, 2N, ... have no terms; 0: all layers have them */
    int64_t random_positions;                /* above 0: draw positions from 0 ... random_positions - 1 */
    int32_t log_scale;                       /* nn_log_scale */
    int32_t fire_scales;                     /* c and L of FIRE: 0: the values in `position`; 1: learned */
    double scale;                            /* factor of q k^T; 0: 1/sqrt(width / heads) */
    double dropout;
    double init, embedding_init, embedding_scale, sinusoidal_scale;
    /* the training */
    int64_t length, target_length, batch, accumulate, steps, warmup, seed;
    double lr, lr_min, lr_terms, beta1, beta2, eps, weight_decay, weight_decay_terms, clip;
    int64_t log_every, eval_every, checkpoint_every;
    int64_t eval_bytes, eval_pieces, eval_stride, eval_context, eval_ngrams, eval_previous;
    char text[NN_TEXT_MAX], valid[NN_TEXT_MAX]; /* file names separated by spaces */
    char init_from[NN_TEXT_MAX];                /* run or model whose arrays a training begins with; "": none */
    char tokenizer[NN_TEXT_MAX];                /* file name of a Unigram model; "": tokens are bytes */
    char eval_lengths[NN_TEXT_MAX], eval_position[NN_TEXT_MAX];
    double valid_share, noise, noise_span;
} nn_config;

/* Return the factor that multiplies each embedding row. */
double nn_embedding_scale(const nn_config *c);
/* Return the amplitude of the sinusoids that are added to the embedding. */
double nn_sinusoidal_scale(const nn_config *c);
/* Return the standard deviation of the initial embeddings. */
double nn_embedding_init(const nn_config *c);

/* Set every key to its default. */
void nn_config_init(nn_config *c);
/* Set one key, or with the key "preset" all keys of that preset. */
int nn_config_set(nn_config *c, const char *key, const char *value, char err[NN_ERR_MAX]);
/* Check that the keys are consistent with each other. */
int nn_config_check(const nn_config *c, char err[NN_ERR_MAX]);
/* Parse lines "key = value", in which # begins a comment. For the keys "seeds" and "run" and for keys that begin with
 * "vary." or "quick.", call `other` (may be NULL). "run" may occur several times. */
typedef int nn_other_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX]);
int nn_config_parse(nn_config *c, const char *name, const char *text, nn_other_key *other, void *context,
                    char err[NN_ERR_MAX]);
/* Print every key as a line. nn_config_parse reads each line back to the same value. */
#define NN_PRINT_MAX 12288
void nn_config_print(const nn_config *c, char text[NN_PRINT_MAX]);
/* Print x with the fewest digits that read back as x. */
enum { NN_REAL_MAX = 64 };
void nn_print_real(char to[NN_REAL_MAX], double x);
/* Get the name, default and help text of key number `index`. Return false past the last key. */
bool nn_config_key(int index, const char **key, const char **value, const char **help);

/* ------------------------------------------------------------------------------------------------ matrix products */

/* Load the CBLAS named in RELPOS_BLAS, by default the system's OpenBLAS. Set it to one thread, because the pool divides
 * the work. If OpenBLAS would choose kernels for an older core than this processor, set OPENBLAS_CORETYPE to a better
 * core and load it again, unless the user has set that variable. */
int nn_blas_open(char err[NN_ERR_MAX]);
/* Check that there is memory for the CBLAS buffers, one per thread. Without this check OpenBLAS, when memory is short,
 * would retry its allocation forever. */
int nn_blas_memory(int32_t threads, char err[NN_ERR_MAX]);
const char *nn_blas_name(void); /* name and core of the loaded CBLAS, such as "OpenBLAS 0.3.21 SkylakeX" */
const char *nn_blas_note(void); /* warning that the CBLAS uses slower kernels than possible; "" if it does not */
/* Return a core with wider vectors than `core` that a processor with these instruction sets can run; NULL if `core` is
 * already wide enough. */
const char *nn_blas_core(const char *core, bool avx2, bool avx512);

/* ------------------------------------------------------------------------------------------------ text */

/* A Unigram model of SentencePiece, which splits text into tokens (word pieces). */
typedef struct nn_tokenizer {
    unsigned char *model; /* bytes of the .model file */
    size_t size;
    struct tokenizer *pieces; /* tokenizer from models/tokenizer */
    int32_t n;                /* number of tokens */
    char *text;               /* texts of all tokens, concatenated */
    size_t *offset;           /* start of each token's text, and end of the last text [n + 1] */
} nn_tokenizer;
int nn_tokenizer_read(nn_tokenizer **t, const char *path, char err[NN_ERR_MAX]);
/* Make a tokenizer from the bytes of a .model file; `name` is used in messages. */
int nn_tokenizer_parse(nn_tokenizer **t, const void *model, size_t size, const char *name, char err[NN_ERR_MAX]);
void nn_tokenizer_free(nn_tokenizer *t);
/* Split UTF-8 text into tokens. The texts of the tokens concatenate to exactly this text, and there is at most one
 * token per byte. The caller frees the result. Return NULL with err on failure. */
int32_t *nn_tokenizer_encode(const nn_tokenizer *t, const unsigned char *text, int64_t size, int64_t *n,
                             char err[NN_ERR_MAX]);

/* A text as tokens; without a tokenizer (NULL), its tokens are the bytes of its UTF-8 form. */
typedef struct nn_text {
    int32_t *tokens;
    int64_t n;
    int64_t *end; /* end of each file, in tokens [n_files] */
    int32_t n_files;
    const nn_tokenizer *tokenizer;
} nn_text;
/* Read files in order; `files` lists their names, separated by spaces. Fail if they have fewer than min_tokens tokens
 * in total. */
int nn_text_read(nn_text *t, const char *files, const nn_tokenizer *tokenizer, int64_t min_tokens,
                 char err[NN_ERR_MAX]);
void nn_text_free(nn_text *t);
/* Move the last part of the text to `held_out`; with by_file, move the last part of each file. `fraction` is a fraction
 * of the bytes, so the same text is held out with every tokenizer. */
int nn_text_split(nn_text *t, bool by_file, double fraction, nn_text *held_out, char err[NN_ERR_MAX]);
/* Return the number of bytes that tokens from ... to - 1 have as text. */
int64_t nn_text_bytes(const nn_text *t, int64_t from, int64_t to);
/* Return how many tokens, counted from `from` and ending before `to`, have together at most `bytes` bytes of text. */
int64_t nn_text_within(const nn_text *t, int64_t from, int64_t to, int64_t bytes);
/* Get the windows of a step, which depend only on seed and step. tokens and target are [batch, length]; the target of
 * each token is the token after it. */
void nn_text_batch(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                   int32_t *target);
/* Get the windows of a step for a classifier, from each file in turn. target [batch] is the number of the file. */
void nn_text_batch_files(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                         int32_t *target);
/* Return the token that begins every window if bos = 1; it is vocab - 1. Return -1 if bos = 0. */
int32_t nn_first_token(const nn_config *c);
/* If bos = 1, replace the first token of each window by nn_first_token. The targets do not change. */
void nn_begin_windows(const nn_config *c, int64_t batch, int64_t length, int32_t *tokens);
int64_t nn_text_start(const nn_text *t, int32_t file); /* index of the file's first token */
/* Get the file name with number `file` from a space-separated list. Return false past the last name. */
bool nn_text_name(const char *files, int32_t file, char name[NN_TEXT_MAX]);

/* Counts of all strings of up to `order` bytes in a text. */
enum { NN_MAX_ORDER = 7 };
typedef struct nn_ngrams nn_ngrams;
int nn_ngrams_count(nn_ngrams **g, const nn_text *t, int32_t order, char err[NN_ERR_MAX]);
/* Return the interpolated Kneser-Ney probability of `byte` after the n bytes `before`. Only the last order - 1 of them
 * matter. */
double nn_ngrams_probability(const nn_ngrams *g, int32_t order, const int32_t *before, int64_t n, int32_t byte);
void nn_ngrams_free(nn_ngrams *g);

/* ------------------------------------------------------------------------------------------------ generated lines */

/* Generate a line of a task, such as "abc=cba" and a line feed. It depends only on the arguments. Return the index of
 * the first byte of the answer, which follows "=" and extends to the end of the line. */
int64_t nn_generate_line(int32_t task, int64_t size, uint64_t seed, uint64_t number, char *line);
/* Return the number of bytes in a line of this size. */
int64_t nn_generated_bytes(int32_t task, int64_t size);
/* Return the largest size that the task allows for a line. */
int64_t nn_generated_end(int32_t task);
/* Return the number of tokens in a window for lines of this size: all bytes except the last, which is only a target,
 * plus the first token if bos = 1. */
int64_t nn_generated_window(const nn_config *c, int64_t size);
/* Generate lines first ... first + batch - 1 as windows. tokens and target are [batch, length]; the targets are the
 * bytes of the answers, and -1 elsewhere. With size = 0, the size of each line is drawn from 1 ... c->generate_size. */
int nn_generate_batch(const nn_config *c, int64_t size, uint64_t seed, int64_t first, int64_t batch, int64_t length,
                      int32_t *tokens, int32_t *target, char err[NN_ERR_MAX]);

/* ------------------------------------------------------------------------------------------------ pairs */

/* Encoder-decoders use the tokens of ByT5: a byte has the token byte + 3, and END ends each source and target.
 * Sentinels replace the spans that are cut out of a source. They count down from the token of byte 255; the first 11 of
 * these bytes never occur in UTF-8. */
enum { NN_PAD = 0, NN_END = 1, NN_UNKNOWN = 2, NN_BYTE = 3, NN_TOKENS = 259, NN_SENTINEL = 258, NN_SENTINELS = 100 };

typedef struct nn_pair {
    int64_t source, target; /* index of the first token of source and target */
    int32_t n_source, n_target;
} nn_pair;
typedef struct nn_pairs {
    int64_t length[2]; /* max tokens of a source and of a target, including END */
    int32_t *tokens;
    int64_t n_tokens;
    nn_pair *pair; /* lines of the files [n]; NULL: span corruption of `text` */
    int64_t n;     /* number of pairs, or of non-overlapping windows */
    nn_text text;
    int64_t window, cut, spans; /* bytes in a window, bytes cut out of it, and number of spans cut out */
    int32_t *order;             /* order of the pairs in this epoch; pairs in a batch have similar lengths [n] */
    int64_t epoch;
} nn_pairs;
/* A batch of pairs: sources [batch, length[0]], in which entry b has lengths[b] tokens; inputs of the decoder and
 * targets, both [batch, length[1]]. The target is one token ahead of the input; -1 is padding. */
typedef struct nn_batch {
    int64_t length[2], tokens; /* tokens: number of targets in the batch */
    int32_t *source, *lengths, *input, *target;
} nn_batch;
int nn_batch_create(nn_batch *b, int64_t batch, int64_t source, int64_t target, char err[NN_ERR_MAX]);
void nn_batch_destroy(nn_batch *b);
/* Read the files in a space-separated list. Each line has a source, a tab and a target; if c->noise > 0, the files are
 * plain text. */
int nn_pairs_read(nn_pairs *p, const nn_config *c, const char *files, char err[NN_ERR_MAX]);
void nn_pairs_free(nn_pairs *p);
/* Move the last `fraction` of the pairs to `held_out`. */
int nn_pairs_split(nn_pairs *p, double fraction, nn_pairs *held_out, char err[NN_ERR_MAX]);
/* Get the pairs of a step, which depend only on seed and step. An epoch uses every pair at most once: pairs that do not
 * fill a batch are skipped. */
int nn_pairs_step(nn_pairs *p, uint64_t seed, int64_t step, int64_t batch, nn_batch *to, char err[NN_ERR_MAX]);
/* Get pairs first ... first + batch - 1 in the order of the file. Entries past the last pair have no targets. */
void nn_pairs_at(const nn_pairs *p, int64_t first, int64_t batch, nn_batch *to);
/* Return the checksum of all tokens and the number of pairs, continuing from checksum `z`. */
uint64_t nn_pairs_checksum(const nn_pairs *p, uint64_t z);

/* ------------------------------------------------------------------------------------------------ weights */

typedef struct nn_param {
    char name[96]; /* name as in a state_dict, such as "layers.0.attn.qkv.weight" */
    int32_t ndim;
    int64_t shape[RP_MAX_AXES];
    int64_t offset, size; /* position in the arenas w, g, m and v, and size, in elements */
    bool decay;           /* weight decay applies; true for matrices */
    /* lr_terms and weight_decay_terms apply; true for learned positions and for learned arrays of terms */
    bool of_term;
    double min; /* training keeps the values at or above this; -INFINITY: no bound */
} nn_param;

/* Where an array of a position term comes from: it is a parameter, or each call computes it. */
typedef enum nn_source {
    NN_ABSENT = 0,
    NN_LEARNED,  /* a parameter */
    NN_SINUSOID, /* sinusoids of the distance times a matrix: r of xl */
    NN_COLUMNS,  /* columns of the projection that also gives q, k and v: r of band */
    NN_GATE,     /* log sigmoid(column + bias), with one projection column per head: logf of forget */
    NN_QUERIES,  /* random positions of the queries */
    NN_KEYS      /* random positions of the keys */
} nn_source;
/* A position term of a stack. */
typedef struct nn_term {
    rp_term term;
    char name[24]; /* "t5", or "t5_1" for a second one */
    nn_source source[RP_MAX_ARRAYS];
    int64_t column[RP_MAX_ARRAYS]; /* NN_COLUMNS, NN_GATE: first column in the projection */
} nn_term;

/* A stack of layers that processes one sequence of tokens. Each stack has its own position terms. */
typedef struct nn_stack {
    const char *prefix; /* prefix of the names of its parameters */
    int64_t layers, length;
    bool causal;              /* tokens attend only to themselves and to earlier tokens */
    bool padded;              /* the sequences of a batch differ in length */
    bool cross;               /* layers also attend to the output of the previous stack */
    bool sinusoidal, learned; /* absolute positions added to the embedding */
    nn_term terms[RP_MAX_TERMS];
    int32_t n_terms;
    int64_t columns; /* columns of the projection in layers with terms: 3 width, plus the columns of the terms */
} nn_stack;
enum { NN_STACKS = 2 }; /* encoder and decoder of an encoder-decoder; other models have one stack */

typedef struct nn_model {
    nn_config c;
    nn_stack stack[NN_STACKS];
    int32_t n_stacks;
    nn_param *params;
    int32_t n_params;
    int64_t n_weights;
    real *w;                 /* weights [n_weights] */
    real *g, *m, *v;         /* gradients and the optimizer's moving averages; NULL if the model is not trained */
    nn_tokenizer *tokenizer; /* NULL: tokens are bytes */
    double loss_mean;        /* running mean of the training loss; NAN: unknown */
    uint64_t texts;          /* checksum of the training and held-out texts; 0: unknown */
    bool no_memory;          /* nn_model_plan failed because it ran out of memory */
} nn_model;

/* Determine the names, shapes and sizes of the parameters, without allocating weights. */
int nn_model_plan(nn_model *m, const nn_config *c, char err[NN_ERR_MAX]);
/* Plan a model, allocate its weights (with `train`, also gradients and averages), and set initial values. */
int nn_model_create(nn_model *m, const nn_config *c, bool train, char err[NN_ERR_MAX]);
void nn_model_destroy(nn_model *m);
/* Set the initial values of one parameter. */
void nn_first_values(const nn_model *m, const nn_param *p);
/* Copy a model, but replace `position`. The new value may need only parameters that the model has. The copy cannot be
 * trained. */
int nn_model_with_position(nn_model *m, const nn_model *from, const char *position, char err[NN_ERR_MAX]);
/* Copy the weights of each parameter that has the same name and shape in both models. taken[p] (taken may be NULL)
 * becomes true for each copied parameter. Return the number of copied parameters. */
int32_t nn_model_take(nn_model *m, const nn_model *from, bool *taken);
/* Return the index of the parameter with this name; -1 if there is none. */
int32_t nn_model_find(const nn_model *m, const char *name);
/* Get the terms of a layer (terms may be NULL), with the learned c and L of FIRE. Return their number, which is 0 in
 * layers that have no terms because of nope_every. */
int32_t nn_layer_terms(const nn_model *m, int32_t stack, int64_t layer, rp_term terms[RP_MAX_TERMS]);
/* Find the parameters of a FIRE term that replace c (param[0]) and multiply L (param[1]). Return false if the layer has
 * none. */
bool nn_fire_scales(const nn_model *m, int32_t stack, int64_t layer, int32_t term, int32_t param[2]);
/* Return the number of positions in a stack with learned or random positions; INT64_MAX for other stacks. */
int64_t nn_positions_end(const nn_model *m, int32_t stack);
/* Draw n distinct positions from 0 ... range - 1, in ascending order. n must be at most range. The result depends only
 * on the arguments. */
void nn_draw_positions(uint64_t seed, int64_t range, int64_t n, int64_t *to);

/* --------------------------------------------------------------------------------------------- forward and backward */

typedef struct nn_net nn_net;

/* Create a net for calls of at most batch x length tokens. With `train` it can run backward. With cache > 0 it keeps
 * the keys and values of up to `cache` tokens between calls. In an encoder-decoder, `length` is the length of the
 * decoder; the encoder accepts up to the length in the configuration. The model must outlive the net. *bytes (may be
 * NULL) receives the memory size of the net; with net = NULL the function computes only this size. */
int nn_net_create(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
                  size_t *bytes, char err[NN_ERR_MAX]);
void nn_net_destroy(nn_net *net);

/* Compute losses; in a net with `train`, also compute the gradients g of the model.
 *
 * tokens [batch, length]; target [batch, length], or [batch] for a classifier. A target of -1 has no loss. seed: seed
 * of dropout; 0: no dropout. loss [batch * length] receives the loss of each target in nats (0 where the target is -1),
 * *mean the mean over the targets. length may be smaller than the net's.
 *
 * With random_positions, all windows of a call have the same positions. In training with a seed above 0, the seed
 * determines them. In other calls, each loss draws new positions, from a fixed sequence. nn_net_logits always uses the
 * same positions; a shorter text uses the first of them. */
int nn_net_loss(nn_net *net, int64_t length, const int32_t *tokens, const int32_t *target, uint64_t seed, double *loss,
                double *mean, char err[NN_ERR_MAX]);
/* Multiply the gradients of later losses by `factor`, which is 1 in a new net. */
void nn_net_factor(nn_net *net, double factor);
/* Make later losses also set right [batch * length]: true where the target is the likeliest token. If all targets of a
 * line are right, greedy decoding generates exactly this line. NULL ends recording. */
void nn_net_record_right(nn_net *net, bool *right);
/* How well a net answers generated lines. */
typedef struct nn_answers {
    double loss;    /* mean loss per token of the answers, in nats */
    int64_t tokens; /* number of tokens in the answers */
    int64_t lines;  /* number of lines */
    int64_t exact;  /* number of lines whose whole answer is correct */
} nn_answers;
/* Measure the net of a decoder on `lines` generated lines of one size, which are never used in training. The length of
 * the net must be at least nn_generated_window. */
int nn_measure_answers(nn_net *net, int64_t size, int64_t lines, nn_answers *to, char err[NN_ERR_MAX]);
/* Set the source of an encoder-decoder: tokens [batch, length]; entry b uses its first lengths[b] tokens. This empties
 * the cache. The net copies lengths, but keeps the pointer to tokens until the next nn_net_source. */
int nn_net_source(nn_net *net, int64_t length, const int32_t *tokens, const int32_t *lengths, char err[NN_ERR_MAX]);
/* Compute the logits of the last token of each batch entry [batch, vocab or classes]. In a net with a cache, the tokens
 * continue the tokens of earlier calls. */
int nn_net_logits(nn_net *net, int64_t length, const int32_t *tokens, real *logits, char err[NN_ERR_MAX]);
/* Like nn_net_logits, but for every token [batch, length, vocab]; for a classifier [batch, classes]. */
int nn_net_all_logits(nn_net *net, int64_t length, const int32_t *tokens, real *logits, char err[NN_ERR_MAX]);
/* Describe the attention of those layers of a stack that have terms. The result points to `terms` and `mask`, which the
 * caller provides. */
rp_desc nn_model_attention(const nn_model *m, int32_t stack, int64_t batch, int64_t len_q, int64_t len_k,
                           rp_term terms[RP_MAX_TERMS], rp_mask *mask);
/* Get the attention of a layer in the last call: views of q, k, v, out and of the arrays of the terms. The next call
 * overwrites them. plans (may be NULL) receives a plan of this attention and a plan without its terms; the caller
 * destroys both. */
int nn_net_attention(nn_net *net, int64_t layer, rp_tensors *t, rp_plan *plans[2], char err[NN_ERR_MAX]);

/* ------------------------------------------------------------------------------------------------ training */

/* The sum of the gradients of batches first … first + count - 1 of a step. */
typedef struct nn_sum {
    int64_t first, count;
    real *g; /* [n_weights] */
} nn_sum;
/* Sums of gradients, of ascending ranges of batches. The gradients of the model are the last sum. Sums are added as the
 * nodes of one binary tree over all batches, so the bits of the total do not depend on who computed which ranges. Zero
 * is the state without sums. */
enum { NN_SUMS_MAX = 40 }; /* a range of 2^16 batches or less consists of at most 32 nodes of the tree */
typedef struct nn_sums {
    nn_sum before[NN_SUMS_MAX]; /* the sums before the last one */
    int32_t n_before;
    int64_t first, count; /* range of the last sum; count = 0: there is none */
    real *spare[NN_SUMS_MAX];
    int32_t n_spare;
} nn_sums;
/* Keep the gradients of the model, and give it other memory for the gradients of the next range. */
int nn_sums_next(nn_sums *s, nn_model *m, char err[NN_ERR_MAX]);
/* Take the gradients of the model as the sum of a range, and add sums that are siblings in the tree. */
void nn_sums_add(nn_sums *s, nn_model *m, rp_pool *pool, int64_t first, int64_t count);
/* Set the gradients of the model to the total. */
void nn_sums_total(nn_sums *s, nn_model *m, rp_pool *pool);
/* Forget all sums, before the next step. */
void nn_sums_reset(nn_sums *s);
void nn_sums_free(nn_sums *s);

/* Return the learning rate of a step, counted from 0. It rises linearly to lr over `warmup` steps, then falls along a
 * cosine to lr_min at step `steps`. */
double nn_rate(const nn_config *c, int64_t step);
/* Run one step of AdamW. With clip > 0, first scale the gradients to a norm of at most clip. Return the norm before
 * scaling, or -1 if out of memory. If the result is -1 or not finite, the weights have not changed. */
double nn_adamw(nn_model *m, rp_pool *pool, int64_t step);

/* Write a checkpoint (weights, averages and step) to a .safetensors file in `dir`, completely or not at all. The
 * previous checkpoint stays beside it. */
int nn_checkpoint_write(const nn_model *m, const char *dir, int64_t step, char err[NN_ERR_MAX]);
/* Write a checkpoint to the file `path`, without averages if the model has none. A checkpoint in f16 or bf16 takes half
 * the space, but training cannot continue from it. */
int nn_checkpoint_save(const nn_model *m, const char *path, int64_t step, rp_dtype type, char err[NN_ERR_MAX]);
/* Read a checkpoint from a directory or a file, and create its model. If the checkpoint in a directory is damaged or
 * missing, read the previous one and say so in *warning. With `train`, also rename the damaged file; otherwise the next
 * checkpoint would replace the good one with it. Fail if the file cannot be read or memory runs out, because the
 * checkpoint may be intact. */
int nn_checkpoint_read(nn_model *m, const char *path, bool train, int64_t *step, char warning[NN_ERR_MAX],
                       char err[NN_ERR_MAX]);

/* Write a model as a directory for Hugging Face's transformers, completely or not at all: an encoder-decoder as T5; a
 * decoder as GPT-2, GPT-NeoX or Llama. Weights are written as f32, f16 or bf16. For any other model the error names the
 * key to change. */
int nn_transformers_write(const nn_model *m, const char *directory, rp_dtype type, char err[NN_ERR_MAX]);

#endif
