/* nn.h -- the small transformers that `relpos lab` trains, built on the public operator of relpos.h. Not part of
 * librelpos.
 *
 * There are three main types. nn_config describes a model and its training (plain data, read from text). nn_model holds
 * the weights. nn_net runs a model at one batch size and length: a list of layers with their activations, forward and
 * backward.
 *
 * Results have the same bits for any number of threads: work is cut into chunks that depend only on the shape, one
 * thread computes each chunk, and partial sums are added in order.
 *
 * Functions that can fail return 0, or -1 with one line in err: the field, its value, the bound, and what to do.
 *
 * The files of lab/engine include the public header, io/, the tokenizer's header, and three headers of src/: random
 * numbers, edit distance, and the macro that compiles a loop for wider vectors. They print nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_NN_H
#define RELPOS_NN_H

#include <relpos/relpos.h>
#include <stdbool.h>

/* The type of weights and activations. The tests also build the engine in double, because finite differences need the
 * precision. */
#ifdef NN_DOUBLE
typedef double real;
#define NN_REAL RP_F64
#else
typedef float real;
#define NN_REAL RP_F32
#endif

#define NN_ERR_MAX 512

/* ---------------------------------------------------------------------------- common: errors, random numbers, files */

/* Write a message to err and return -1. */
__attribute__((format(printf, 2, 3))) int nn_fail(char err[NN_ERR_MAX], const char *format, ...);
/* Write the library's last error to `text`, in words of the command line instead of names of C fields. desc may be
 * NULL. Return text. */
const char *nn_library_error(const rp_desc *desc, char text[NN_ERR_MAX]);
#define NN_WORDS(desc) nn_library_error(desc, (char[NN_ERR_MAX]){0})

/* Random numbers. Each depends only on the arguments. */
uint64_t nn_random(uint64_t seed, uint64_t stream, uint64_t n);
double nn_uniform(uint64_t seed, uint64_t stream, uint64_t n); /* 0 <= u < 1 */
double nn_normal(uint64_t seed, uint64_t stream, uint64_t n);

/* Read a regular file and append a NUL; an empty file is an error. The caller frees the result. Return NULL with err on
 * failure. */
unsigned char *nn_read_file(const char *path, size_t *size, char err[NN_ERR_MAX]);

/* ------------------------------------------------------------------------------------------------ configuration */

typedef enum nn_task { NN_DECODER = 0, NN_CLASSIFIER = 1, NN_ENCODER_DECODER = 2 } nn_task;
typedef enum nn_norm { NN_LAYERNORM = 0, NN_RMSNORM = 1 } nn_norm;
typedef enum nn_act { NN_GELU = 0, NN_RELU = 1, NN_SWIGLU = 2, NN_GEGLU = 3 } nn_act;

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

#define NN_TEXT_MAX 1024 /* size of a text value in a configuration, in bytes with its NUL */

/* An experiment. The table in config.c lists each key with its bounds and meaning; `relpos lab --help` prints it. */
typedef struct nn_config {
    /* the model */
    int32_t task, norm, act; /* nn_task, nn_norm, nn_act */
    int64_t layers, decoder_layers, width, heads, mlp, vocab, classes;
    int32_t tied, bos;
    int32_t generate;      /* nn_generate */
    int64_t generate_size; /* largest size in training */
    double norm_eps;
    char position[NN_TEXT_MAX];              /* terms joined by +; may include "none", "sinusoidal" and "learned" */
    char encoder_position[NN_TEXT_MAX];      /* terms of an encoder-decoder's encoder; "": same as position */
    int32_t position_layers, position_heads; /* 0: separate arrays for each layer or head; 1: shared arrays */
    int64_t nope_every;                      /* layers N, 2N, ... have no terms; 0: all layers have them */
    int64_t random_positions;                /* above 0: positions are drawn from 0 ... random_positions - 1 */
    int32_t log_scale;                       /* nn_log_scale */
    int32_t fire_scales;                     /* c and L of fire: 0: the values in `position`; 1: learned */
    double scale;                            /* factor of q k^T; 0: 1/sqrt(width / heads) */
    double dropout;
    double init, embedding_init, embedding_scale, sinusoidal_scale;
    /* the training */
    int64_t length, target_length, batch, accumulate, steps, warmup, seed;
    double lr, lr_min, lr_terms, beta1, beta2, eps, weight_decay, weight_decay_terms, clip;
    int64_t log_every, eval_every, checkpoint_every;
    int64_t eval_bytes, eval_pieces, eval_stride, eval_ngrams, eval_previous;
    char text[NN_TEXT_MAX], valid[NN_TEXT_MAX]; /* file names separated by spaces */
    char tokenizer[NN_TEXT_MAX];                /* file name of a Unigram model; "": tokens are bytes */
    char eval_lengths[NN_TEXT_MAX], eval_position[NN_TEXT_MAX];
    double valid_share, noise, noise_span;
} nn_config;

/* Return the factor of each embedding row. */
double nn_embedding_scale(const nn_config *c);
/* Return the amplitude of the sinusoids that are added to the embedding. */
double nn_sinusoidal_scale(const nn_config *c);
/* Return the standard deviation of the initial embeddings. */
double nn_embedding_init(const nn_config *c);

/* Set every key to its default. */
void nn_config_init(nn_config *c);
/* Set one key, or with the key "preset" all keys of that preset. */
int nn_config_set(nn_config *c, const char *key, const char *value, char err[NN_ERR_MAX]);
/* Check that the values of different keys fit together. */
int nn_config_check(const nn_config *c, char err[NN_ERR_MAX]);
/* Parse lines "key = value", where # begins a comment. `other` (may be NULL) is called for "seeds" and for keys that
 * begin with "vary." or "quick.". */
typedef int nn_other_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX]);
int nn_config_parse(nn_config *c, const char *name, const char *text, nn_other_key *other, void *context,
                    char err[NN_ERR_MAX]);
/* Print every key as a line that nn_config_parse reads back to the same value. */
#define NN_PRINT_MAX 10240
void nn_config_print(const nn_config *c, char text[NN_PRINT_MAX]);
/* Print x with the fewest digits that read back as x. */
enum { NN_REAL_MAX = 64 };
void nn_print_real(char to[NN_REAL_MAX], double x);
/* Get the name, default and help text of key number `index`. Return false past the last key. */
bool nn_config_key(int index, const char **key, const char **value, const char **help);

/* ------------------------------------------------------------------------------------------------ matrix products */

/* Load the CBLAS named in RELPOS_BLAS, or else the system's OpenBLAS. Set it to one thread, because the pool divides
 * the work. If OpenBLAS would choose kernels for an older core than this processor, load it with OPENBLAS_CORETYPE set
 * to a better core, unless the user has set that variable. */
int nn_blas_open(char err[NN_ERR_MAX]);
enum { NN_ROW_MAJOR = 101, NN_NO_TRANS = 111, NN_TRANS = 112 }; /* constants of the CBLAS interface */
typedef void nn_gemm(int order, int transa, int transb, int m, int n, int k, real alpha, const real *a, int lda,
                     const real *b, int ldb, real beta, real *c, int ldc);
extern nn_gemm *nn_blas_gemm; /* cblas_sgemm (cblas_dgemm with NN_DOUBLE); NULL before nn_blas_open */
/* Check that there is memory for the buffers of the CBLAS, one for each thread. When memory is short, OpenBLAS retries
 * its allocation forever. */
int nn_blas_memory(int32_t threads, char err[NN_ERR_MAX]);
const char *nn_blas_name(void); /* name and core of the loaded CBLAS, such as "OpenBLAS 0.3.21 SkylakeX" */
const char *nn_blas_note(void); /* warning that the CBLAS runs slower kernels than this processor allows; "": none */
/* Return a core with wider vectors than `core` that a processor with these instruction sets can run; NULL if `core` is
 * wide enough. */
const char *nn_blas_core(const char *core, bool avx2, bool avx512);

/* Arrays are row-major: y [rows, out], x [rows, in], w [out, in] as in torch.nn.Linear. ld: elements from one row to
 * the next. */
void nn_linear(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *x, int64_t ldx, const real *w, real *y,
               int64_t ldy); /* y = x w^T */
void nn_linear_dx(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *w,
                  real beta, real *dx, int64_t lddx); /* dx = beta dx + dy w */
void nn_linear_dw(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *x,
                  int64_t ldx, real *dw); /* dw += dy^T x */

/* ------------------------------------------------------------------------------------------------ rows */

enum { NN_ROWS = 64 }; /* rows of a chunk */

/* eps is added to the variance under the square root. stat [rows, 2] gets the mean and the factor of each row. */
void nn_norm_forward(rp_pool *pool, int32_t kind, double eps, int64_t rows, int64_t n, const real *x, const real *gamma,
                     const real *beta, real *y, real *stat);
/* dx is overwritten, or added to with `add`; dgamma and dbeta (may be NULL) are added to. partial: scratch of
 * 2 n (rows / NN_ROWS + 1) numbers. */
void nn_norm_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *x, const real *gamma,
                      const real *stat, const real *dy, bool add, real *dx, real *dgamma, real *dbeta, real *partial);
/* Return the columns of h for n columns of y: 2 n for a gated activation (the gate, then the values it multiplies),
 * else n. */
int64_t nn_act_columns(int32_t kind, int64_t n);
void nn_act_forward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, real *y);
void nn_act_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, const real *dy, real *dh);
/* Add with dropout of probability p: y = x + keep z / (1 - p), dz = keep dy / (1 - p). keep is 0 or 1 and depends on
 * seed, row and column. */
void nn_add_forward(rp_pool *pool, int64_t rows, int64_t n, const real *x, const real *z, double p, uint64_t seed,
                    real *y);
void nn_add_backward(rp_pool *pool, int64_t rows, int64_t n, double p, uint64_t seed, const real *dy, real *dz);
/* Compute the cross-entropy of each row of logits in nats, and replace the logits by their gradient times `factor`.
 * Rows with a negative target have loss 0. right (may be NULL) gets true where the target is the likeliest class; of
 * equally likely classes the first one counts. */
void nn_softmax_loss(rp_pool *pool, int64_t rows, int64_t n, real *logits, const int32_t *target, double factor,
                     double *loss, bool *right);
void nn_axpy(rp_pool *pool, int64_t n, const real *x, real *y); /* y += x */

/* ------------------------------------------------------------------------------------------------ text */

/* A Unigram model of SentencePiece. It splits text into its tokens (word pieces). */
typedef struct nn_tokenizer {
    unsigned char *model; /* bytes of the .model file */
    size_t size;
    struct tokenizer *pieces; /* of models/tokenizer */
    int32_t n;                /* number of tokens */
    char *text;               /* text of all tokens, concatenated */
    size_t *offset;           /* start of each token's text, and the end of the last [n + 1] */
} nn_tokenizer;
int nn_tokenizer_read(nn_tokenizer **t, const char *path, char err[NN_ERR_MAX]);
/* Make a tokenizer from the bytes of a .model file; `name` is used in messages. */
int nn_tokenizer_parse(nn_tokenizer **t, const void *model, size_t size, const char *name, char err[NN_ERR_MAX]);
void nn_tokenizer_free(nn_tokenizer *t);
/* Split UTF-8 text into tokens whose texts concatenate to exactly this text: at most one token per byte. The caller
 * frees the result. Return NULL with err on failure. */
int32_t *nn_tokenizer_encode(const nn_tokenizer *t, const unsigned char *text, int64_t size, int64_t *n,
                             char err[NN_ERR_MAX]);

/* A text as tokens of the tokenizer, or as bytes of UTF-8 where the tokenizer is NULL. */
typedef struct nn_text {
    int32_t *tokens;
    int64_t n;
    int64_t *end; /* end of each file, in tokens [n_files] */
    int32_t n_files;
    const nn_tokenizer *tokenizer;
} nn_text;
/* Read the files in a space-separated list of names, in order. Fail if they have fewer than min_tokens tokens in
 * total. */
int nn_text_read(nn_text *t, const char *files, const nn_tokenizer *tokenizer, int64_t min_tokens,
                 char err[NN_ERR_MAX]);
void nn_text_free(nn_text *t);
/* Move the end of the text, or with by_file the end of each file, to `held_out`. `fraction` is a fraction of the bytes,
 * so the same text is held out with any tokenizer. */
int nn_text_split(nn_text *t, bool by_file, double fraction, nn_text *held_out, char err[NN_ERR_MAX]);
/* Return the number of bytes in the text of tokens from ... to - 1. */
int64_t nn_text_bytes(const nn_text *t, int64_t from, int64_t to);
/* Return how many tokens, beginning with `from` and ending before `to`, have a text of at most `bytes` bytes. */
int64_t nn_text_within(const nn_text *t, int64_t from, int64_t to, int64_t bytes);
/* Get the windows of a step, which depend only on seed and step: tokens, and for each token the next one as its target,
 * [batch, length] each. */
void nn_text_batch(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                   int32_t *target);
/* Get the windows of a step for a classifier: from each file in turn, with the number of the file as the target
 * [batch]. */
void nn_text_batch_files(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                         int32_t *target);
/* Return the token that begins every window with bos = 1, which is vocab - 1; -1 with bos = 0. */
int32_t nn_first_token(const nn_config *c);
/* With bos = 1, replace the first token of each window by nn_first_token. The targets do not change. */
void nn_begin_windows(const nn_config *c, int64_t batch, int64_t length, int32_t *tokens);
int64_t nn_text_start(const nn_text *t, int32_t file); /* index of the file's first token */
/* Get file name number `file` from a space-separated list. Return false past the last name. */
bool nn_text_name(const char *files, int32_t file, char name[NN_TEXT_MAX]);

/* Counts of the strings of up to `order` bytes in a text of bytes. */
enum { NN_MAX_ORDER = 7 };
typedef struct nn_ngrams nn_ngrams;
int nn_ngrams_count(nn_ngrams **g, const nn_text *t, int32_t order, char err[NN_ERR_MAX]);
/* Return the interpolated Kneser-Ney probability of `byte` after the n bytes `before`; it reads the last order - 1 of
 * them. */
double nn_ngrams_probability(const nn_ngrams *g, int32_t order, const int32_t *before, int64_t n, int32_t byte);
void nn_ngrams_free(nn_ngrams *g);

/* ------------------------------------------------------------------------------------------------ generated lines */

/* Generate a line of a task, such as "abc=cba" and a line feed. It depends only on the arguments. Return the index of
 * the first byte of the answer, which follows "=" and extends to the end of the line. */
int64_t nn_generate_line(int32_t task, int64_t size, uint64_t seed, uint64_t number, char *line);
/* Return the number of bytes in a line of this size. */
int64_t nn_generated_bytes(int32_t task, int64_t size);
/* Return the largest size that the task allows. */
int64_t nn_generated_end(int32_t task);
/* Return the number of tokens in a window for lines of this size: all bytes except the last, which is only a target,
 * and one more with bos = 1. */
int64_t nn_generated_window(const nn_config *c, int64_t size);
/* Generate lines first ... first + batch - 1 as windows, with the bytes of their answers as targets, [batch, length]
 * each. All other targets are -1. size 0: draw the size of each line from 1 ... c->generate_size. */
int nn_generate_batch(const nn_config *c, int64_t size, uint64_t seed, int64_t first, int64_t batch, int64_t length,
                      int32_t *tokens, int32_t *target, char err[NN_ERR_MAX]);

/* ------------------------------------------------------------------------------------------------ pairs */

/* An encoder-decoder uses ByT5's tokens: a byte has the token byte + 3, and END ends a source and a target. Sentinels
 * mark the spans that are cut out of a source. They count down from the token of byte 255; UTF-8 never contains the
 * first 11 of these bytes. */
enum { NN_PAD = 0, NN_END = 1, NN_UNKNOWN = 2, NN_BYTE = 3, NN_TOKENS = 259, NN_SENTINEL = 258, NN_SENTINELS = 100 };

typedef struct nn_pair {
    int64_t source, target; /* index of the first token of each */
    int32_t n_source, n_target;
} nn_pair;
typedef struct nn_pairs {
    int64_t length[2]; /* largest number of tokens in a source and in a target, with their END */
    int32_t *tokens;
    int64_t n_tokens;
    nn_pair *pair; /* the lines of the files [n]; NULL: span corruption of `text` */
    int64_t n;     /* number of pairs, or of windows that do not overlap */
    nn_text text;
    int64_t window, cut, spans; /* bytes of a window, bytes that are cut out of it, and the number of spans they form */
    int32_t *order;             /* order of the pairs in this epoch: the pairs of a batch have similar lengths [n] */
    int64_t epoch;
} nn_pairs;
/* A batch of pairs: sources [batch, length[0]], where entry b has lengths[b] tokens; inputs of the decoder, and targets
 * one token ahead of them, [batch, length[1]]. A target of -1 is padding. */
typedef struct nn_batch {
    int64_t length[2], tokens; /* tokens: number of targets in the batch */
    int32_t *source, *lengths, *input, *target;
} nn_batch;
int nn_batch_create(nn_batch *b, int64_t batch, int64_t source, int64_t target, char err[NN_ERR_MAX]);
void nn_batch_destroy(nn_batch *b);
/* Read a space-separated list of files. Their lines are a source, a tab and a target; with c->noise > 0 the files are
 * plain text. */
int nn_pairs_read(nn_pairs *p, const nn_config *c, const char *files, char err[NN_ERR_MAX]);
void nn_pairs_free(nn_pairs *p);
/* Move the last `fraction` of the pairs to `held_out`. */
int nn_pairs_split(nn_pairs *p, double fraction, nn_pairs *held_out, char err[NN_ERR_MAX]);
/* Get the pairs of a step, which depend only on seed and step. An epoch uses every pair at most once: the pairs that do
 * not fill a batch are skipped. */
int nn_pairs_step(nn_pairs *p, uint64_t seed, int64_t step, int64_t batch, nn_batch *to, char err[NN_ERR_MAX]);
/* Get pairs first ... first + batch - 1 in the order of the file. Entries past the last pair have no targets. */
void nn_pairs_at(const nn_pairs *p, int64_t first, int64_t batch, nn_batch *to);
/* Return the checksum `z` continued over all tokens and the number of pairs. */
uint64_t nn_pairs_checksum(const nn_pairs *p, uint64_t z);

/* ------------------------------------------------------------------------------------------------ weights */

typedef struct nn_param {
    char name[96]; /* name as in a state_dict, such as "layers.0.attn.qkv.weight" */
    int32_t ndim;
    int64_t shape[RP_MAX_AXES];
    int64_t offset, size; /* place in the arenas w, g, m and v, in elements */
    bool decay;           /* true for matrices: weight decay shrinks them */
    bool of_term;         /* true for learned arrays of position terms: lr_terms and weight_decay_terms apply */
    double min;           /* lower bound that training keeps; -INFINITY: none */
} nn_param;

/* Where an array of a position term comes from: a parameter, or values that each call computes. */
typedef enum nn_source {
    NN_ABSENT = 0,
    NN_LEARNED,  /* a parameter */
    NN_SINUSOID, /* sinusoids of the distance times a matrix: r of xl */
    NN_COLUMNS,  /* columns of the projection that gives q, k and v: r of band */
    NN_GATE,     /* log sigmoid(column + bias), with one projection column per head: logf of forget */
    NN_QUERIES,  /* random positions of the queries */
    NN_KEYS      /* random positions of the keys */
} nn_source;
/* A position term of the attention. */
typedef struct nn_term {
    rp_term term;
    char name[24]; /* "t5", or "t5_1" for a second one */
    nn_source source[RP_MAX_ARRAYS];
    int64_t column[RP_MAX_ARRAYS]; /* NN_COLUMNS, NN_GATE: first column in the projection */
} nn_term;

/* A stack of layers over one sequence of tokens. Each stack has separate position terms. */
typedef struct nn_stack {
    const char *prefix; /* prefix of the names of its parameters */
    int64_t layers, length;
    bool causal;              /* a token attends only to itself and to earlier tokens */
    bool padded;              /* the sequences of a batch differ in length */
    bool cross;               /* the layers also attend to the output of the stack before */
    bool sinusoidal, learned; /* absolute positions */
    nn_term terms[RP_MAX_TERMS];
    int32_t n_terms;
    int64_t columns; /* columns of the projection in layers with terms: 3 width plus the columns of the terms */
} nn_stack;
enum { NN_STACKS = 2 }; /* an encoder-decoder has the encoder and then the decoder; other models have one stack */

typedef struct nn_model {
    nn_config c;
    nn_stack stack[NN_STACKS];
    int32_t n_stacks;
    nn_param *params;
    int32_t n_params;
    int64_t n_weights;
    real *w;                 /* weights [n_weights] */
    real *g, *m, *v;         /* gradients and the optimizer's averages; NULL in a model that is not trained */
    nn_tokenizer *tokenizer; /* NULL: tokens are bytes */
    double loss_mean;        /* running mean of the training loss; NAN: not known */
    uint64_t texts;          /* checksum of the training text and the held-out text; 0: not known */
    bool no_memory;          /* nn_model_plan failed because memory ran out */
} nn_model;

/* Find the names, shapes and sizes of the parameters, without weights. */
int nn_model_plan(nn_model *m, const nn_config *c, char err[NN_ERR_MAX]);
/* Plan a model, allocate its weights (with `train` also gradients and averages) and set the initial values. */
int nn_model_create(nn_model *m, const nn_config *c, bool train, char err[NN_ERR_MAX]);
void nn_model_destroy(nn_model *m);
/* Set the initial values of one parameter. */
void nn_first_values(const nn_model *m, const nn_param *p);
/* Copy a model with another `position`. Both positions need the same parameters. The copy cannot be trained. */
int nn_model_with_position(nn_model *m, const nn_model *from, const char *position, char err[NN_ERR_MAX]);
/* Copy the weights of each parameter that has the same name and shape in both models. taken [n_params] (may be NULL)
 * gets true for each copied parameter. Return how many were copied. */
int32_t nn_model_take(nn_model *m, const nn_model *from, bool *taken);
/* Return the index of a parameter; -1: none has this name. */
int32_t nn_model_find(const nn_model *m, const char *name);
/* Get the terms of a layer (terms may be NULL) with the learned c and L of fire. Return their number, which is 0 in the
 * layers that nope_every skips. */
int32_t nn_layer_terms(const nn_model *m, int32_t stack, int64_t layer, rp_term terms[RP_MAX_TERMS]);
/* Find the parameters that replace c (param[0]) and multiply L (param[1]) of a fire term. Return false if the layer has
 * none. */
bool nn_fire_scales(const nn_model *m, int32_t stack, int64_t layer, int32_t term, int32_t param[2]);
/* Return the number of positions in a stack with learned or random positions, and INT64_MAX in other stacks. */
int64_t nn_positions_end(const nn_model *m, int32_t stack);
/* Draw n different positions from 0 ... range - 1, in ascending order. They depend only on the arguments; n is at most
 * range. */
void nn_draw_positions(uint64_t seed, int64_t range, int64_t n, int64_t *to);

/* --------------------------------------------------------------------------------------------- forward and backward */

typedef struct nn_net nn_net;

/* Create a net for calls of at most batch x length tokens. With `train` it has a backward pass. With cache > 0 it keeps
 * the keys and values of up to `cache` tokens between calls. In an encoder-decoder `length` is the decoder's; the
 * encoder reads up to the length of the configuration. The model must outlive the net. *bytes (may be NULL) gets the
 * memory that the net needs; with net NULL the function only computes that. */
int nn_net_create(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
                  size_t *bytes, char err[NN_ERR_MAX]);
void nn_net_destroy(nn_net *net);

/* Compute losses, and in a net with `train` also the gradients g of the model.
 *
 * tokens [batch, length]; target [batch, length], or [batch] for a classifier. A target of -1 has no loss. seed: seed
 * of dropout; 0: no dropout. loss [batch * length] gets the loss of each target in nats (0 where the target is -1),
 * *mean the mean over the targets. length may be smaller than the net's.
 *
 * With random_positions, all windows of a call have the same positions. In training with a seed above 0, the seed draws
 * them. In other calls each loss draws the next positions of a fixed sequence. nn_net_logits always uses the same draw,
 * and a shorter text uses the beginning of it. */
int nn_net_loss(nn_net *net, int64_t length, const int32_t *tokens, const int32_t *target, uint64_t seed, double *loss,
                double *mean, char err[NN_ERR_MAX]);
/* Set how later losses treat gradients: multiply them by `factor`, and with `add` add them to the gradients of the
 * model instead of replacing those. A new net has factor 1 and add false. */
void nn_net_accumulate(nn_net *net, double factor, bool add);
/* Let later losses also set right [batch * length]: true where the target is the likeliest token. Greedy decoding
 * writes exactly the lines whose targets are all right. NULL ends this. */
void nn_net_record_right(nn_net *net, bool *right);
/* How well a net answers generated lines. */
typedef struct nn_answers {
    double loss;    /* mean loss of a token of the answers, in nats */
    int64_t tokens; /* tokens of the answers */
    int64_t lines;  /* number of lines */
    int64_t exact;  /* lines whose answer is right in every byte */
} nn_answers;
/* Measure the net of a decoder on `lines` generated lines of one size, which no training uses. The length of the net
 * must be at least nn_generated_window. */
int nn_measure_answers(nn_net *net, int64_t size, int64_t lines, nn_answers *to, char err[NN_ERR_MAX]);
/* Set the source of an encoder-decoder: tokens [batch, length], where entry b has lengths[b] of them. This empties the
 * cache. The net copies lengths, but keeps the pointer to tokens until the next nn_net_source. */
int nn_net_source(nn_net *net, int64_t length, const int32_t *tokens, const int32_t *lengths, char err[NN_ERR_MAX]);
/* Compute the logits of the last token of each batch entry [batch, vocab or classes]. In a net with a cache, the tokens
 * continue those of earlier calls. */
int nn_net_logits(nn_net *net, int64_t length, const int32_t *tokens, real *logits, char err[NN_ERR_MAX]);
/* Describe the attention of the layers of a stack that have terms. The result points to terms and mask, memory of the
 * caller. */
rp_desc nn_model_attention(const nn_model *m, int32_t stack, int64_t batch, int64_t len_q, int64_t len_k,
                           rp_term terms[RP_MAX_TERMS], rp_mask *mask);
/* Get the attention of a layer in the last call: views of q, k, v, out and the arrays of the terms, which the next call
 * overwrites. plans (may be NULL) gets a plan of this attention and a plan without its terms; the caller destroys
 * both. */
int nn_net_attention(nn_net *net, int64_t layer, rp_tensors *t, rp_plan *plans[2], char err[NN_ERR_MAX]);

/* ------------------------------------------------------------------------------------------------ training */

/* Return the learning rate of a step, counted from 0: it rises linearly to lr over `warmup` steps, then falls as a
 * cosine to lr_min at `steps`. */
double nn_rate(const nn_config *c, int64_t step);
/* Make one step of AdamW. With clip > 0, first scale the gradients so that their norm is at most clip. Return the norm
 * before scaling, or -1 if memory runs out. If the result is -1 or not finite, no weight has changed. */
double nn_adamw(nn_model *m, rp_pool *pool, int64_t step);

/* Write a checkpoint (weights, averages and step) to a .safetensors file in `dir`, completely or not at all. The
 * checkpoint before it stays beside it. */
int nn_checkpoint_write(const nn_model *m, const char *dir, int64_t step, char err[NN_ERR_MAX]);
/* Write a checkpoint to the file `path`, without averages if the model has none. With f16 or bf16 it takes half the
 * space, but it cannot be trained further. */
int nn_checkpoint_save(const nn_model *m, const char *path, int64_t step, rp_dtype type, char err[NN_ERR_MAX]);
/* Read a checkpoint from a directory or a file and create its model. If the checkpoint in a directory is damaged or
 * missing, read the one before it and say so in *warning. With `train` also rename the damaged file; otherwise the next
 * checkpoint would replace the good one by it. If the file cannot be read, or memory runs out, fail: the checkpoint may
 * be intact. */
int nn_checkpoint_read(nn_model *m, const char *path, bool train, int64_t *step, char warning[NN_ERR_MAX],
                       char err[NN_ERR_MAX]);

/* Write a model as a directory for Hugging Face's transformers, completely or not at all: an encoder-decoder as T5, a
 * decoder as GPT-2, GPT-NeoX or Llama; weights as f32, f16 or bf16. For any other model the error names the key to
 * change. */
int nn_transformers_write(const nn_model *m, const char *directory, rp_dtype type, char err[NN_ERR_MAX]);

#endif
