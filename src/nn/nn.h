/* nn.h -- a small transformer over the public operator of relpos.h: what `relpos lab` trains. Not part of librelpos.
 *
 * Three nouns: nn_config says what the model is and how it is trained (plain data, read from text), nn_model has its weights,
 * nn_net is a model at one batch and length: a list of layers over activations, forward and backward.
 *
 * Every result has the same bits for any number of threads: work is cut into pieces by shape alone, each piece is computed by
 * one thread, and partial sums are added in order.
 *
 * Functions that may fail return 0, or -1 with one line in err: the field, the value, the bound, how to mend it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_NN_H
#define RELPOS_NN_H

#include <relpos/relpos.h>
#include <stdbool.h>

/* The type of weights and activations. The tests build all of this in double too: differences need the digits. */
#ifdef NN_DOUBLE
typedef double real;
#define NN_REAL RP_F64
#else
typedef float real;
#define NN_REAL RP_F32
#endif

#define NN_ERR_MAX 512

/* ------------------------------------------------------------------------------------------------ what: the configuration */

typedef enum nn_task { NN_DECODER = 0, NN_CLASSIFIER = 1 } nn_task;
typedef enum nn_norm { NN_LAYERNORM = 0, NN_RMSNORM = 1 } nn_norm;
typedef enum nn_act { NN_GELU = 0, NN_RELU = 1, NN_SWIGLU = 2 } nn_act;

#define NN_TEXT_MAX 1024 /* bytes of a text in a configuration */

/* An experiment. Keys, bounds and meanings: the table in config.c, which `relpos lab --help` prints. */
typedef struct nn_config {
    /* the model */
    int32_t task, norm, act; /* nn_task, nn_norm, nn_act */
    int64_t layers, width, heads, mlp, vocab, classes;
    int32_t tied;
    char position[NN_TEXT_MAX];              /* terms joined by +, "none", "sinusoidal" and "learned" among them */
    int32_t position_layers, position_heads; /* 0: each its own; 1: shared */
    double scale;                            /* of scores; 0: 1/sqrt(width / heads) */
    double dropout;
    /* the training */
    int64_t length, batch, steps, warmup, seed;
    double lr, lr_min, beta1, beta2, eps, weight_decay, clip;
    int64_t log_every, eval_every, checkpoint_every;
    int64_t eval_bytes;
    char text[NN_TEXT_MAX], valid[NN_TEXT_MAX]; /* files, separated by blanks */
    char tokenizer[NN_TEXT_MAX];                /* a SentencePiece model; "": tokens are bytes */
    char eval_lengths[NN_TEXT_MAX], eval_position[NN_TEXT_MAX];
    double valid_share;
} nn_config;

/* Defaults, those of a preset, one key, a whole text with a line for each key; and back to text, which reads as the same. */
void nn_config_init(nn_config *c);
int nn_config_set(nn_config *c, const char *key, const char *value, char err[NN_ERR_MAX]);
int nn_config_check(const nn_config *c, char err[NN_ERR_MAX]);
/* line by line: "key = value", # begins a comment. `other` (may be NULL) gets "seeds" and keys that begin
 * with "vary." or "quick.". */
typedef int nn_other_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX]);
int nn_config_parse(nn_config *c, const char *name, const char *text, nn_other_key *other, void *context,
                    char err[NN_ERR_MAX]);
#define NN_PRINT_MAX 8192
void nn_config_print(const nn_config *c, char text[NN_PRINT_MAX]);
/* The fewest digits that read back as x. */
enum { NN_REAL_MAX = 64 };
void nn_print_real(char to[NN_REAL_MAX], double x);
/* The keys one after another, for help: false past the end. */
bool nn_config_key(int index, const char **key, const char **value, const char **help);

/* ------------------------------------------------------------------------------------------------ matrix products */

/* Load a CBLAS: RELPOS_BLAS, or OpenBLAS where the system has it. It is told to use one thread: ours share the work out; and which core's
 * kernels to run, where it would take slower ones than this processor has, unless OPENBLAS_CORETYPE is set. */
int nn_blas_open(char err[NN_ERR_MAX]);
/* Whether there is memory for the buffers of so many threads: where there is none, OpenBLAS asks again for ever. */
int nn_blas_memory(int32_t threads, char err[NN_ERR_MAX]);
const char *nn_blas_name(void); /* "OpenBLAS 0.3.21 … SkylakeX" once it is there */
const char *nn_blas_note(void); /* a line about kernels that are slower than they could be; "": they are not */
/* The core that OpenBLAS should name in place of `core` on a processor with these instruction sets; NULL: none is better. */
const char *nn_blas_core(const char *core, bool avx2, bool avx512);

/* Row-major, y [rows, out], x [rows, in], w [out, in] as torch.nn.Linear has it; ld: elements between rows. */
void nn_linear(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *x, int64_t ldx, const real *w, real *y,
               int64_t ldy); /* y = x w^T */
void nn_linear_dx(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *w,
                  real beta, real *dx, int64_t lddx); /* dx = beta dx + dy w */
void nn_linear_dw(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *x,
                  int64_t ldx, real *dw); /* dw += dy^T x */

/* ------------------------------------------------------------------------------------------------ rows */

enum { NN_ROWS = 64 }; /* rows of a piece of work */

void nn_norm_forward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *x, const real *gamma,
                     const real *beta, real *y, real *stat);
/* dx = or += ; dgamma, dbeta += ; partial has 2 n (rows / NN_ROWS + 1) numbers */
void nn_norm_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *x, const real *gamma,
                      const real *stat, const real *dy, bool add, real *dx, real *dgamma, real *dbeta, real *partial);
void nn_act_forward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, real *y);
void nn_act_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, const real *dy, real *dh);
/* y = x + keep z / (1 - p); row and column say what is kept. dz = keep dy / (1 - p) */
void nn_add_forward(rp_pool *pool, int64_t rows, int64_t n, const real *x, const real *z, double p, uint64_t seed,
                    real *y);
void nn_add_backward(rp_pool *pool, int64_t rows, int64_t n, double p, uint64_t seed, const real *dy, real *dz);
/* Cross-entropy of rows of logits, in nats: loss[r]; the logits become their gradient times `share` where share > 0. */
void nn_softmax_loss(rp_pool *pool, int64_t rows, int64_t n, real *logits, const int32_t *target, double share,
                     double *loss);
void nn_axpy(rp_pool *pool, int64_t n, const real *x, real *y); /* y += x */

/* ------------------------------------------------------------------------------------------------ text */

/* Word pieces of a SentencePiece model, whose own programs split text into them. */
typedef struct nn_pieces {
    unsigned char *model; /* the .model file */
    size_t size;
    int32_t n, line_feed; /* how many; which of them is a line feed */
    char *text;           /* what they stand for, one after another */
    size_t *at;           /* where each begins [n + 1] */
} nn_pieces;
int nn_pieces_read(nn_pieces **p, const char *path, char err[NN_ERR_MAX]);
/* The same from the bytes of a .model file; `name` is for messages. */
int nn_pieces_of(nn_pieces **p, const void *model, size_t size, const char *name, char err[NN_ERR_MAX]);
void nn_pieces_free(nn_pieces *p);
/* UTF-8 as pieces that stand for all of it, to be freed: at most one a byte. NULL with err. */
int32_t *nn_pieces_encode(const nn_pieces *p, const unsigned char *text, int64_t size, int64_t *n,
                          char err[NN_ERR_MAX]);

/* Text as tokens: pieces, or bytes of UTF-8 where pieces is NULL. */
typedef struct nn_text {
    int32_t *tokens;
    int64_t n;
    int64_t *end; /* of each file [n_files], in tokens */
    int32_t n_files;
    const nn_pieces *pieces;
} nn_text;
/* The bytes of a regular file that is not empty, and a zero behind them, to be freed; NULL with err. */
unsigned char *nn_read_file(const char *path, size_t *size, char err[NN_ERR_MAX]);
/* Files separated by blanks, one after another. At least `least` tokens in all. */
int nn_text_read(nn_text *t, const char *files, const nn_pieces *pieces, int64_t least, char err[NN_ERR_MAX]);
void nn_text_free(nn_text *t);
/* Move the last share of a text, or with by_file of each file, to `held`: a share of the bytes, so that the same text is held
 * out whatever the tokens. */
int nn_text_split(nn_text *t, bool by_file, double share, nn_text *held, char err[NN_ERR_MAX]);
/* Bytes that tokens from..to-1 stand for, and how many of them, from `from` on, stand for so many bytes at most. */
int64_t nn_text_bytes(const nn_text *t, int64_t from, int64_t to);
int64_t nn_text_within(const nn_text *t, int64_t from, int64_t to, int64_t bytes);
/* The windows of a step: tokens and the next ones, [batch, length] each; they depend on seed and step alone. */
void nn_text_batch(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                   int32_t *target);
/* The same of a classifier: from each file in turn, and which file it is [batch]. */
void nn_text_batch_files(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                         int32_t *target);
int64_t nn_text_start(const nn_text *t, int32_t file); /* its first token */
/* The name of a file of a list; false past the end. */
bool nn_text_name(const char *files, int32_t file, char name[NN_TEXT_MAX]);

/* ------------------------------------------------------------------------------------------------ weights */

typedef struct nn_param {
    char name[96]; /* as in a state_dict: "layers.0.attn.qkv.weight" */
    int32_t ndim;
    int64_t shape[RP_MAX_AXES];
    int64_t offset, size; /* in the arenas, in elements */
    bool decay;           /* a matrix, which weight decay shrinks */
    double least;         /* never below this; -INFINITY: no bound */
} nn_param;

/* A position term of the attention: its arrays come from parameters, or from a projection made in each call. */
typedef enum nn_source {
    NN_ABSENT = 0,
    NN_LEARNED,  /* a parameter */
    NN_SINUSOID, /* sinusoids of the distance times a matrix: xl's r */
    NN_COLUMNS   /* columns of the projection that gives q, k and v: band's r */
} nn_source;
typedef struct nn_term {
    rp_term term;
    char name[24]; /* "t5", or "t5_1" for a second one */
    nn_source source[RP_MAX_ARRAYS];
    int64_t column[RP_MAX_ARRAYS]; /* NN_COLUMNS: first of them */
} nn_term;

typedef struct nn_model {
    nn_config c;
    bool sinusoidal, learned; /* absolute positions */
    nn_term terms[RP_MAX_TERMS];
    int32_t n_terms;
    int64_t columns; /* of the projection: 3 width, and what the terms want */
    nn_param *params;
    int32_t n_params;
    int64_t n_weights;
    real *w;           /* weights [n_weights] */
    real *g, *m, *v;   /* gradients and the optimizer's averages; NULL where not trained */
    nn_pieces *pieces; /* what its tokens are; NULL: bytes */
    uint64_t texts;    /* a sum of what it learns from and what it holds out; 0: not known */
    bool no_memory;    /* planning it failed for that alone */
} nn_model;

/* Shapes alone; then memory and first values. nn_model_plan may be called to learn the sizes. */
int nn_model_plan(nn_model *m, const nn_config *c, char err[NN_ERR_MAX]);
int nn_model_create(nn_model *m, const nn_config *c, bool train, char err[NN_ERR_MAX]);
void nn_model_destroy(nn_model *m);
/* The same weights with another `position`, to look at and not to train: both have to have the same parameters. */
int nn_model_as(nn_model *m, const nn_model *from, const char *position, char err[NN_ERR_MAX]);
int32_t nn_model_find(const nn_model *m, const char *name); /* -1: none */

/* ------------------------------------------------------------------------------------------------ a model at work */

typedef struct nn_net nn_net;

/* Batch x length tokens at most; with `train` a backward pass; with cache > 0 keys and values of up to so many tokens are
 * kept between calls (batch 1). The model outlives the net. *bytes (may be NULL) gets the memory; with net NULL that is all.
 * Returns -1 also where memory is wanting. */
int nn_net_create(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
                  size_t *bytes, char err[NN_ERR_MAX]);
void nn_net_destroy(nn_net *net);

/* tokens [batch, length]; target [batch, length], or [batch] of a classifier; -1: no loss there. seed: of dropout, 0 for
 * none. loss [batch * length] in nats for each target (0 where none); a train net fills the model's g (set to 0 first).
 * length may be below the net's. *mean: over the targets. */
int nn_net_loss(nn_net *net, int64_t length, const int32_t *tokens, const int32_t *target, uint64_t seed, double *loss,
                double *mean, char err[NN_ERR_MAX]);
/* Logits of the last row of each batch entry [batch, vocab or classes]; of a net with a cache: of tokens that follow those
 * of the calls before. */
int nn_net_logits(nn_net *net, int64_t length, const int32_t *tokens, real *logits, char err[NN_ERR_MAX]);
/* The attention of every layer; terms and mask hold what the description points to. */
rp_desc nn_model_attention(const nn_model *m, int64_t batch, int64_t len_q, int64_t len_k, rp_term terms[RP_MAX_TERMS],
                           rp_mask *mask);
/* What the attention of a layer read and wrote in the last call: q, k, v, out and the arrays of the terms, as views that the next
 * call overwrites. plans (may be NULL): the attention itself, and the same without its terms, to be destroyed. */
int nn_net_attention(nn_net *net, int64_t layer, rp_tensors *t, rp_plan *plans[2], char err[NN_ERR_MAX]);
void nn_net_forget(nn_net *net); /* empty the cache */
int64_t nn_net_cached(const nn_net *net);

/* ------------------------------------------------------------------------------------------------ training */

/* The learning rate of a step, from 0 on: linear to lr over warmup steps, then a cosine down to lr_min at steps. */
double nn_rate(const nn_config *c, int64_t step);
/* One step of AdamW from the model's gradients, scaled so that their norm is at most clip (0: any). Returns the norm before. */
double nn_adamw(nn_model *m, rp_pool *pool, int64_t step);

/* A sum in which every changed bit of the data shows; z: of what comes before. */
uint64_t nn_checksum(uint64_t z, const void *data, size_t size);
/* A checkpoint: weights, averages and step in a .safetensors file, whole or not at all; the one before is kept beside it. */
int nn_checkpoint_write(const nn_model *m, const char *dir, int64_t step, char err[NN_ERR_MAX]);
/* The same to a file of its own; without averages where the model has none. Weights of f16 or bf16 halve it: it can be used, and
 * not trained on. */
int nn_checkpoint_save(const nn_model *m, const char *path, int64_t step, rp_dtype type, char err[NN_ERR_MAX]);
/* Read the configuration and step, make the model. A file that is damaged or not there is named in *warning and the one before is used;
 * to train on, the damaged one is renamed, so that it takes no place of a good one. A file that could not be read, or for want of
 * memory, is an error: it may be whole. path is a directory or a file. */
int nn_checkpoint_read(nn_model *m, const char *path, bool train, int64_t *step, char warning[NN_ERR_MAX],
                       char err[NN_ERR_MAX]);

/* Numbers that depend on their arguments alone. */
uint64_t nn_random(uint64_t seed, uint64_t stream, uint64_t n);
double nn_uniform(uint64_t seed, uint64_t stream, uint64_t n); /* 0 <= u < 1 */
double nn_normal(uint64_t seed, uint64_t stream, uint64_t n);

__attribute__((format(printf, 2, 3))) int nn_fail(char err[NN_ERR_MAX], const char *format, ...);

#endif
