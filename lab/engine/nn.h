/* nn.h -- a small transformer over the public operator of relpos.h: what `relpos lab` trains. Not part of librelpos.
 *
 * Three nouns: nn_config says what the model is and how it is trained (plain data, read from text), nn_model has its weights,
 * nn_net is a model at one batch and length: a list of layers over activations, forward and backward.
 *
 * Every result has the same bits for any number of threads: work is cut into chunks by shape alone, each chunk is computed by
 * one thread, and partial sums are added in order.
 *
 * Functions that may fail return 0, or -1 with one line in err: the field, the value, the bound, how to mend it.
 *
 * The files of lab/engine see the public header, io, and of src/ the random numbers, the edit distance and the macro that compiles a
 * loop for wider vectors. They print nothing and know no command.
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

typedef enum nn_task { NN_DECODER = 0, NN_CLASSIFIER = 1, NN_ENCODER_DECODER = 2 } nn_task;
typedef enum nn_norm { NN_LAYERNORM = 0, NN_RMSNORM = 1 } nn_norm;
typedef enum nn_act { NN_GELU = 0, NN_RELU = 1, NN_SWIGLU = 2, NN_GEGLU = 3 } nn_act;

/* Tasks whose lines are generated: generate.c. */
typedef enum nn_generate {
    NN_GENERATE_NONE = 0,
    NN_GENERATE_COPY,
    NN_GENERATE_REVERSE,
    NN_GENERATE_RECALL,
    NN_GENERATE_PASSKEY,
    NN_GENERATE_ADDITION
} nn_generate;
typedef enum nn_log_scale { NN_LOG_NONE = 0, NN_LOG_FIXED = 1, NN_LOG_LEARNED = 2 } nn_log_scale;

#define NN_TEXT_MAX 1024 /* bytes of a text in a configuration */

/* An experiment. Keys, bounds and meanings: the table in config.c, which `relpos lab --help` prints. */
typedef struct nn_config {
    /* the model */
    int32_t task, norm, act; /* nn_task, nn_norm, nn_act */
    int64_t layers, decoder_layers, width, heads, mlp, vocab, classes;
    int32_t tied, bos;
    int32_t generate;      /* nn_generate */
    int64_t generate_size; /* the largest in training */
    double norm_eps;
    char position[NN_TEXT_MAX];              /* terms joined by +, "none", "sinusoidal" and "learned" among them */
    char encoder_position[NN_TEXT_MAX];      /* those of an encoder-decoder's encoder; "": position */
    int32_t position_layers, position_heads; /* 0: each its own; 1: shared */
    int64_t nope_every;                      /* layers N, 2N, ... have no terms; 0: all have them */
    int64_t random_positions;                /* above 0: positions are drawn out of so many */
    int32_t log_scale;                       /* nn_log_scale */
    int32_t fire_scales;                     /* c and L of fire: 0: as position says; 1: learned */
    double scale;                            /* of scores; 0: 1/sqrt(width / heads) */
    double dropout;
    double init, embedding_init, embedding_scale, sinusoidal_scale;
    /* the training */
    int64_t length, target_length, batch, accumulate, steps, warmup, seed;
    double lr, lr_min, lr_terms, beta1, beta2, eps, weight_decay, weight_decay_terms, clip;
    int64_t log_every, eval_every, checkpoint_every;
    int64_t eval_bytes, eval_pieces, eval_stride, eval_ngrams, eval_previous;
    char text[NN_TEXT_MAX], valid[NN_TEXT_MAX]; /* files, separated by blanks */
    char tokenizer[NN_TEXT_MAX];                /* a SentencePiece model; "": tokens are bytes */
    char eval_lengths[NN_TEXT_MAX], eval_position[NN_TEXT_MAX];
    double valid_share, noise, noise_span;
} nn_config;

/* What a token's row of the embedding is multiplied by, and the amplitude of the sinusoids that are added to it. */
double nn_embedding_scale(const nn_config *c);
double nn_sinusoidal_scale(const nn_config *c);
/* Standard deviation of the first embeddings. */
double nn_embedding_init(const nn_config *c);

/* Set all defaults; set one key, or the keys of a preset; check keys against each other. */
void nn_config_init(nn_config *c);
int nn_config_set(nn_config *c, const char *key, const char *value, char err[NN_ERR_MAX]);
int nn_config_check(const nn_config *c, char err[NN_ERR_MAX]);
/* Each line is "key = value", # begins a comment. `other` (may be NULL) is called for "seeds" and for keys that begin with "vary." or
 * "quick.". */
typedef int nn_other_key(void *context, const char *key, const char *value, char err[NN_ERR_MAX]);
int nn_config_parse(nn_config *c, const char *name, const char *text, nn_other_key *other, void *context,
                    char err[NN_ERR_MAX]);
/* Write all keys as such lines, which read back as the same configuration. */
#define NN_PRINT_MAX 10240
void nn_config_print(const nn_config *c, char text[NN_PRINT_MAX]);
/* The fewest digits that read back as x. */
enum { NN_REAL_MAX = 64 };
void nn_print_real(char to[NN_REAL_MAX], double x);
/* Key number `index` with its default and its help; false past the end. */
bool nn_config_key(int index, const char **key, const char **value, const char **help);

/* ------------------------------------------------------------------------------------------------ matrix products */

/* Load a CBLAS: that of RELPOS_BLAS, or the system's OpenBLAS. It is told to use one thread, because the pool divides the work. Where it
 * would run kernels for an older core than this processor, it is told the core, unless OPENBLAS_CORETYPE is set. */
int nn_blas_open(char err[NN_ERR_MAX]);
enum { NN_ROW_MAJOR = 101, NN_NO_TRANS = 111, NN_TRANS = 112 }; /* as CBLAS numbers them */
typedef void nn_gemm(int order, int transa, int transb, int m, int n, int k, real alpha, const real *a, int lda,
                     const real *b, int ldb, real beta, real *c, int ldc);
extern nn_gemm *nn_blas_gemm; /* cblas_sgemm, once it is loaded */
/* Check that there is memory for the CBLAS's buffers, one for each thread: without it, OpenBLAS would try to allocate them for ever. */
int nn_blas_memory(int32_t threads, char err[NN_ERR_MAX]);
const char *nn_blas_name(void); /* such as "OpenBLAS 0.3.21 SkylakeX", once it is loaded */
const char *nn_blas_note(void); /* a warning that it runs slower kernels than it could; "": none */
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

enum { NN_ROWS = 64 }; /* rows of a chunk */

/* eps: beneath the root */
void nn_norm_forward(rp_pool *pool, int32_t kind, double eps, int64_t rows, int64_t n, const real *x, const real *gamma,
                     const real *beta, real *y, real *stat);
/* dx = or += ; dgamma, dbeta += ; partial has 2 n (rows / NN_ROWS + 1) numbers */
void nn_norm_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *x, const real *gamma,
                      const real *stat, const real *dy, bool add, real *dx, real *dgamma, real *dbeta, real *partial);
/* The columns of h for n columns of y: a gated activation reads the gate and what it multiplies. */
int64_t nn_act_columns(int32_t kind, int64_t n);
void nn_act_forward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, real *y);
void nn_act_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, const real *dy, real *dh);
/* With dropout of probability p: y = x + keep z / (1 - p), dz = keep dy / (1 - p). keep depends on seed, row and column. */
void nn_add_forward(rp_pool *pool, int64_t rows, int64_t n, const real *x, const real *z, double p, uint64_t seed,
                    real *y);
void nn_add_backward(rp_pool *pool, int64_t rows, int64_t n, double p, uint64_t seed, const real *dy, real *dz);
/* Cross-entropy of rows of logits, in nats: loss[r]; the logits become their gradient times `share` where share > 0. right (may be NULL)
 * says whether the target is the likeliest class, the first one of several. */
void nn_softmax_loss(rp_pool *pool, int64_t rows, int64_t n, real *logits, const int32_t *target, double share,
                     double *loss, bool *right);
void nn_axpy(rp_pool *pool, int64_t n, const real *x, real *y); /* y += x */

/* ------------------------------------------------------------------------------------------------ text */

/* A SentencePiece model, whose own programs split text into its tokens (word pieces). */
typedef struct nn_tokenizer {
    unsigned char *model; /* the .model file */
    size_t size;
    int32_t n, line_feed; /* number of tokens; the token of a line feed */
    char *text;           /* the texts that the tokens stand for, one after another */
    size_t *offset;       /* where each begins [n + 1] */
} nn_tokenizer;
int nn_tokenizer_read(nn_tokenizer **t, const char *path, char err[NN_ERR_MAX]);
/* The same from the bytes of a .model file; `name` is for messages. */
int nn_tokenizer_parse(nn_tokenizer **t, const void *model, size_t size, const char *name, char err[NN_ERR_MAX]);
void nn_tokenizer_free(nn_tokenizer *t);
/* UTF-8 text as tokens that stand for exactly this text, to be freed: at most one for each byte. NULL with err. */
int32_t *nn_tokenizer_encode(const nn_tokenizer *t, const unsigned char *text, int64_t size, int64_t *n,
                             char err[NN_ERR_MAX]);

/* Text as tokens: those of the tokenizer, or bytes of UTF-8 where it is NULL. */
typedef struct nn_text {
    int32_t *tokens;
    int64_t n;
    int64_t *end; /* of each file [n_files], in tokens */
    int32_t n_files;
    const nn_tokenizer *tokenizer;
} nn_text;
/* The bytes of a regular file that is not empty, followed by a zero, to be freed; NULL with err. */
unsigned char *nn_read_file(const char *path, size_t *size, char err[NN_ERR_MAX]);
/* Read files, whose names are separated by blanks, one after another; fewer than min_tokens tokens in all are an error. */
int nn_text_read(nn_text *t, const char *files, const nn_tokenizer *tokenizer, int64_t min_tokens,
                 char err[NN_ERR_MAX]);
void nn_text_free(nn_text *t);
/* Move the end of the text, or with by_file of each file, to `held`. `share` is of the bytes, so that the same text is held out whatever
 * the tokens are. */
int nn_text_split(nn_text *t, bool by_file, double share, nn_text *held, char err[NN_ERR_MAX]);
/* The bytes that tokens from..to-1 stand for; and how many tokens, from `from` on, stand for at most `bytes` bytes. */
int64_t nn_text_bytes(const nn_text *t, int64_t from, int64_t to);
int64_t nn_text_within(const nn_text *t, int64_t from, int64_t to, int64_t bytes);
/* The windows of a step: tokens, and for each the next token as its target, [batch, length] each. They depend on seed and step alone. */
void nn_text_batch(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                   int32_t *target);
/* The same for a classifier: windows from each file in turn, and the number of the file as the target [batch]. */
void nn_text_batch_files(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                         int32_t *target);
/* With bos = 1, the token that begins every window of text, vocab - 1; -1: none. It takes the place of the window's first token, so that what
 * is predicted stays the same. */
int32_t nn_first_token(const nn_config *c);
void nn_begin_windows(const nn_config *c, int64_t batch, int64_t length, int32_t *tokens);
int64_t nn_text_start(const nn_text *t, int32_t file); /* its first token */
/* The name of a file of a list; false past the end. */
bool nn_text_name(const char *files, int32_t file, char name[NN_TEXT_MAX]);

/* Counts of the strings of up to `order` bytes in a text of bytes. nn_ngrams_probability: of `byte` after the n bytes `before`, of which it
 * reads the last order - 1, by interpolated Kneser-Ney. */
enum { NN_MAX_ORDER = 7 };
typedef struct nn_ngrams nn_ngrams;
int nn_ngrams_count(nn_ngrams **g, const nn_text *t, int32_t order, char err[NN_ERR_MAX]);
double nn_ngrams_probability(const nn_ngrams *g, int32_t order, const int32_t *before, int64_t n, int32_t byte);
void nn_ngrams_free(nn_ngrams *g);

/* ------------------------------------------------------------------------------------------------ generated lines */

/* A line of a task, such as "abc=cba" and a line feed, that depends on seed and number alone. Returns where the answer begins, behind "=": it ends
 * with the line. */
int64_t nn_generate_line(int32_t task, int64_t size, uint64_t seed, uint64_t number, char *line);
/* The bytes of a line, and the largest size that a task has. */
int64_t nn_generated_bytes(int32_t task, int64_t size);
int64_t nn_generated_end(int32_t task);
/* The tokens of a window for lines of a size: all bytes but the last, which is only predicted, and the first token of bos = 1. */
int64_t nn_generated_window(const nn_config *c, int64_t size);
/* Lines first ... first + batch - 1 as windows, and the bytes of their answers as targets, [batch, length] each; other targets are -1. size 0:
 * each line has a size of its own, 1 to c->generate_size. */
int nn_generate_batch(const nn_config *c, int64_t size, uint64_t seed, int64_t first, int64_t batch, int64_t length,
                      int32_t *tokens, int32_t *target, char err[NN_ERR_MAX]);

/* ------------------------------------------------------------------------------------------------ pairs */

/* Sources and targets of an encoder-decoder, as ByT5's tokens: a byte is 3 more than its value, and END ends both. Sentinels, which stand
 * for what is cut out of a source, go down from the last byte; no UTF-8 has the first 11 of them. */
enum { NN_PAD = 0, NN_END = 1, NN_UNKNOWN = 2, NN_BYTE = 3, NN_TOKENS = 259, NN_SENTINEL = 258, NN_SENTINELS = 100 };

typedef struct nn_pair {
    int64_t source, target; /* first tokens */
    int32_t n_source, n_target;
} nn_pair;
typedef struct nn_pairs {
    int64_t length[2]; /* the longest source and target, with their END */
    int32_t *tokens;
    int64_t n_tokens;
    nn_pair *pair; /* lines of files; NULL: a text whose windows are corrupted */
    int64_t n;     /* pairs, or windows that do not overlap */
    nn_text text;
    int64_t window, cut, spans; /* bytes of a window, those that its source lacks, and in how many spans */
    int32_t *order;             /* the pairs of an epoch: those of a batch have similar lengths */
    int64_t epoch;
} nn_pairs;
/* A batch of pairs: sources [batch, length[0]], of which entry b ends at lengths[b]; inputs of the decoder and targets, which are one
 * token ahead of them, [batch, length[1]]; a target of -1 is none. */
typedef struct nn_batch {
    int64_t length[2], tokens; /* tokens: targets in all */
    int32_t *source, *lengths, *input, *target;
} nn_batch;
int nn_batch_create(nn_batch *b, int64_t batch, int64_t source, int64_t target, char err[NN_ERR_MAX]);
void nn_batch_destroy(nn_batch *b);
/* Read the files, whose names are separated by blanks: lines of a source, a tab and a target, or text where c->noise > 0. */
int nn_pairs_read(nn_pairs *p, const nn_config *c, const char *files, char err[NN_ERR_MAX]);
void nn_pairs_free(nn_pairs *p);
/* Move the end of the pairs to `held`. */
int nn_pairs_split(nn_pairs *p, double share, nn_pairs *held, char err[NN_ERR_MAX]);
/* The pairs of a step, which depend on seed and step alone. Every pair comes once in an epoch; what does not fill a batch is left out. */
int nn_pairs_step(nn_pairs *p, uint64_t seed, int64_t step, int64_t batch, nn_batch *to, char err[NN_ERR_MAX]);
/* Pairs first … first + batch - 1 as they are in the file; beyond the last one, entries have no targets. */
void nn_pairs_at(const nn_pairs *p, int64_t first, int64_t batch, nn_batch *to);
uint64_t nn_pairs_checksum(const nn_pairs *p, uint64_t z);

/* ------------------------------------------------------------------------------------------------ weights */

typedef struct nn_param {
    char name[96]; /* as in a state_dict: "layers.0.attn.qkv.weight" */
    int32_t ndim;
    int64_t shape[RP_MAX_AXES];
    int64_t offset, size; /* in the arenas, in elements */
    bool decay;           /* a matrix, which weight decay shrinks */
    bool of_term;         /* a learned array of a position term: it has a rate and a decay of its own */
    double min;           /* training keeps weights at or above it; -INFINITY: no bound */
} nn_param;

/* A position term of the attention: its arrays come from parameters, or from a projection made in each call. */
typedef enum nn_source {
    NN_ABSENT = 0,
    NN_LEARNED,  /* a parameter */
    NN_SINUSOID, /* sinusoids of the distance times a matrix: xl's r */
    NN_COLUMNS,  /* columns of the projection that gives q, k and v: band's r */
    NN_GATE,     /* log sigmoid of such columns, one for each head, and a bias: forget's logf */
    NN_QUERIES,  /* positions that were drawn, of the queries */
    NN_KEYS      /* and of the keys */
} nn_source;
typedef struct nn_term {
    rp_term term;
    char name[24]; /* "t5", or "t5_1" for a second one */
    nn_source source[RP_MAX_ARRAYS];
    int64_t column[RP_MAX_ARRAYS]; /* NN_COLUMNS, NN_GATE: first of them */
} nn_term;

/* Layers over one sequence of tokens, with positions of their own. */
typedef struct nn_stack {
    const char *prefix; /* of its parameters' names */
    int64_t layers, length;
    bool causal;              /* a token attends to itself and those before it */
    bool padded;              /* the sequences of a batch have lengths of their own */
    bool cross;               /* its layers also attend to what the stack before it gives */
    bool sinusoidal, learned; /* absolute positions */
    nn_term terms[RP_MAX_TERMS];
    int32_t n_terms;
    int64_t columns; /* of the projection in layers with terms: 3 width, and the columns of the terms */
} nn_stack;
enum { NN_STACKS = 2 }; /* an encoder-decoder has its encoder first; other models have one stack */

typedef struct nn_model {
    nn_config c;
    nn_stack stack[NN_STACKS];
    int32_t n_stacks;
    nn_param *params;
    int32_t n_params;
    int64_t n_weights;
    real *w;                 /* weights [n_weights] */
    real *g, *m, *v;         /* gradients and the optimizer's averages; NULL where not trained */
    nn_tokenizer *tokenizer; /* NULL: tokens are bytes */
    double loss_mean;        /* running mean of the losses of training; NAN: not known */
    uint64_t texts;          /* checksum of the text that it learns from and the text that is held out; 0: not known */
    bool no_memory;          /* planning it failed only because memory ran out */
} nn_model;

/* nn_model_plan finds names, shapes and sizes alone; nn_model_create also allocates memory and sets the first values. */
int nn_model_plan(nn_model *m, const nn_config *c, char err[NN_ERR_MAX]);
int nn_model_create(nn_model *m, const nn_config *c, bool train, char err[NN_ERR_MAX]);
void nn_model_destroy(nn_model *m);
void nn_first_values(const nn_model *m, const nn_param *p); /* of one parameter: first_values.c */
/* A copy of the weights for another `position`, to use and not to train: both positions need the same parameters. */
int nn_model_with_position(nn_model *m, const nn_model *from, const char *position, char err[NN_ERR_MAX]);
/* Take the weights of the parameters that both models have, of the same name and shape; taken [n_params] (may be NULL) says which. Returns how
 * many. */
int32_t nn_model_take(nn_model *m, const nn_model *from, bool *taken);
int32_t nn_model_find(const nn_model *m, const char *name); /* -1: none */
/* The terms of a layer: those of its stack, or none as nope_every says, with c and L of fire as the layer has learned them. Returns how many;
 * terms may be NULL. */
int32_t nn_layer_terms(const nn_model *m, int32_t stack, int64_t layer, rp_term terms[RP_MAX_TERMS]);
/* The parameters, [0] and [1], by which fire's c is replaced and its L multiplied in a layer; false: it has none. */
bool nn_fire_scales(const nn_model *m, int32_t stack, int64_t layer, int32_t term, int32_t param[2]);
/* How many positions a stack has, where they are learned or drawn; INT64_MAX: there is no end to them. */
int64_t nn_positions_end(const nn_model *m, int32_t stack);
/* n positions of 0 ... range - 1, each once and in order, which depend on the arguments alone; n is at most range. */
void nn_draw_positions(uint64_t seed, int64_t range, int64_t n, int64_t *to);

/* ------------------------------------------------------------------------------------------------ forward and backward */

typedef struct nn_net nn_net;

/* A net for at most batch x length tokens; with `train` it has a backward pass; with cache > 0 it keeps keys and values of up to `cache`
 * tokens between calls. Of an encoder-decoder this is the decoder; its encoder reads up to the configuration's length. The model outlives the net. *bytes (may be NULL) gets the memory that it takes; with net NULL
 * nothing else is done. Returns -1 also if memory runs out. */
int nn_net_create(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
                  size_t *bytes, char err[NN_ERR_MAX]);
void nn_net_destroy(nn_net *net);

/* With random_positions, a seed above 0 in training draws the positions of the call, which all of its windows have; other losses draw anew in
 * each call, from the first draw of the net on, and logits have one draw, of which shorter texts are the beginning.
 *
 * tokens [batch, length]; target [batch, length], or [batch] for a classifier; -1: this one has no loss. seed: of dropout, 0: no
 * dropout. loss [batch * length] gets the loss of each target in nats (0 without one), *mean their mean. A net with `train` also sets
 * the model's gradients g. length may be below the net's. */
int nn_net_loss(nn_net *net, int64_t length, const int32_t *tokens, const int32_t *target, uint64_t seed, double *loss,
                double *mean, char err[NN_ERR_MAX]);
/* From now on the gradients of a loss are multiplied by `share`, and with `add` they are added to those that the model has. At first 1, and
 * not. */
void nn_net_accumulate(nn_net *net, double share, bool add);
/* From now on a loss also sets right [batch * length]: whether each target is the likeliest token, so that a line whose targets are all right is
 * one that the model would write. NULL: no longer. */
void nn_net_watch(nn_net *net, bool *right);
/* What an encoder-decoder reads next: tokens [batch, length], of which those of entry b end at lengths[b]. Both stay the caller's and are
 * read in each call until the next nn_net_source. The cache is emptied. */
int nn_net_source(nn_net *net, int64_t length, const int32_t *tokens, const int32_t *lengths, char err[NN_ERR_MAX]);
/* Logits of the last token of each batch entry [batch, vocab or classes]. In a net with a cache the tokens follow those of earlier
 * calls. */
int nn_net_logits(nn_net *net, int64_t length, const int32_t *tokens, real *logits, char err[NN_ERR_MAX]);
/* The attention of a stack's layers that have terms; terms and mask are the caller's memory, to which the description points. */
rp_desc nn_model_attention(const nn_model *m, int32_t stack, int64_t batch, int64_t len_q, int64_t len_k,
                           rp_term terms[RP_MAX_TERMS], rp_mask *mask);
/* The arrays of a layer's attention in the last call: q, k, v, out and those of the terms, as views that the next call overwrites.
 * plans (may be NULL) gets a plan of this attention and one of the same without its terms, to be destroyed. */
int nn_net_attention(nn_net *net, int64_t layer, rp_tensors *t, rp_plan *plans[2], char err[NN_ERR_MAX]);
void nn_net_clear(nn_net *net); /* empty the cache */
int64_t nn_net_cached(const nn_net *net);

/* ------------------------------------------------------------------------------------------------ training */

/* The learning rate of a step, counted from 0: it rises linearly to lr over `warmup` steps, then falls as a cosine to lr_min at `steps`. */
double nn_rate(const nn_config *c, int64_t step);
/* One step of AdamW with the model's gradients, scaled so that their norm is at most clip (0: not scaled). Returns the norm before that,
 * or -1 if memory runs out; where it is that or not finite, no weight has changed. */
double nn_adamw(nn_model *m, rp_pool *pool, int64_t step);

/* Write a checkpoint: weights, averages and step in a .safetensors file, completely or not at all. The one before is kept beside it. */
int nn_checkpoint_write(const nn_model *m, const char *dir, int64_t step, char err[NN_ERR_MAX]);
/* The same to a file of any name, without averages where the model has none. Stored as f16 or bf16 it takes half the space, and can be used
 * but not trained on. */
int nn_checkpoint_save(const nn_model *m, const char *path, int64_t step, rp_dtype type, char err[NN_ERR_MAX]);
/* Read a checkpoint and make its model; path is a directory or a file. In a directory, if the checkpoint is damaged or missing, *warning
 * names it and the one before it is used; with `train` the damaged one is renamed, so that the next checkpoint does not replace the good
 * one by it. If the file cannot be read, or memory runs out, that is an error, because the checkpoint may be intact. */
int nn_checkpoint_read(nn_model *m, const char *path, bool train, int64_t *step, char warning[NN_ERR_MAX],
                       char err[NN_ERR_MAX]);

/* Write a model as a directory, completely or not at all, that Hugging Face's transformers read: an encoder-decoder of T5's shape, or a decoder
 * that is a GPT-2, a GPT-NeoX or a Llama; weights as f32, f16 or bf16. Others are refused, with the key that they would need. */
int nn_transformers_write(const nn_model *m, const char *directory, rp_dtype type, char err[NN_ERR_MAX]);

/* Random numbers that depend on their arguments alone. */
uint64_t nn_random(uint64_t seed, uint64_t stream, uint64_t n);
double nn_uniform(uint64_t seed, uint64_t stream, uint64_t n); /* 0 <= u < 1 */
double nn_normal(uint64_t seed, uint64_t stream, uint64_t n);

__attribute__((format(printf, 2, 3))) int nn_fail(char err[NN_ERR_MAX], const char *format, ...);
/* What the library refused, without names of its fields; desc may be NULL. Returns text. */
const char *nn_words(const rp_desc *desc, char text[NN_ERR_MAX]);
#define NN_WORDS(desc) nn_words(desc, (char[NN_ERR_MAX]){0})

#endif
