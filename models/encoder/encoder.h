/* encoder.h -- declarations that the files of models/encoder share: the description of a model, its weights, and the
 * parts of a forward pass. Nothing here prints or exits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ENCODER_PRIVATE_H
#define RELPOS_ENCODER_PRIVATE_H

#include "checkpoint/error.h"
#include "checkpoint/files.h"
#include "checkpoint/modules.h"
#include "checkpoint/notes.h"
#include "checkpoint/packed.h"
#include "checkpoint/tasks.h"
#include "checkpoint/watch.h"
#include "checkpoint/weights.h"
#include "linear/linear.h"
#include <relpos/encoder.h>
#include <stdbool.h>

/* --------------------------------------------------------------------------------------------- error.c */

/* Set the message of rp_encoder_last_error for this thread, and return `status`. */
rp_status encoder_fail(rp_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
rp_status encoder_no_memory(void);
rp_status encoder_model_failed(rp_status status);  /* report the error of checkpoint/; RP_OK stays RP_OK */
rp_status encoder_linear_failed(rp_status status); /* report the error of linear/; RP_OK stays RP_OK */
/* Report that computed numbers are NaN or infinite. */
rp_status encoder_not_finite(const rp_encoder *m, const char *what);

/* --------------------------------------------------------------------------------------------- architectures.c */

struct model_reader;
struct encoder_config;

/* How positions enter. A table of positions is added to the embedding in any case if the model has one. */
typedef enum encoder_scheme {
    ENCODER_ABSOLUTE,   /* only the table of positions */
    ENCODER_T5_BUCKETS, /* a bias for each bucket of distances and head, the same in all layers */
    ENCODER_DEBERTA,    /* products of queries and keys with vectors for each bucket of distances */
    ENCODER_ROPE        /* rotated queries and keys; some layers may have a window */
} encoder_scheme;

/* The tables of keys.def. */
typedef enum encoder_keys {
    ENCODER_KEYS_COMMON,
    ENCODER_KEYS_BERT,
    ENCODER_KEYS_DEBERTA,
    ENCODER_KEYS_MODERNBERT,
    ENCODER_KEYS_ESM
} encoder_keys;

typedef enum encoder_activation {
    ENCODER_GELU,
    ENCODER_GELU_TANH,
    ENCODER_RELU, /* linear layers apply these three */
    ENCODER_TANH,
    ENCODER_LOGISTIC,
    ENCODER_SILU,
    ENCODER_QUICK_GELU,
    ENCODER_MISH,
    ENCODER_RELU2,
    ENCODER_RELU6,
    ENCODER_LEAKY_RELU,
    ENCODER_HARDSWISH,
    ENCODER_LINEAR
} encoder_activation;

/* Names of tensors. "#" is the number of the layer; ".weight" and ".bias" are added. Names begin with the prefix of
 * the architecture in files of models with a head, except where they begin with "/". NULL: there is no such tensor. */
typedef struct encoder_names {
    const char *word, *position, *token_type, *embedding_norm, *final_norm;
    const char *frequencies; /* of RoPE, one for each pair of channels; a file may lack it. Without ".weight" */
    const char *q, *k, *v, *o, *attention_norm, *up, *down, *feed_norm; /* k = v = NULL: q has all three */
    const char *table, *table_norm; /* of T5 buckets [buckets, heads]; of DeBERTa [2 span, width], and its norm */
    const char *convolution, *convolution_norm; /* after the first layer, if config.json says so */
    const char *table_k, *table_q;              /* DeBERTa without share_att_key: layers that project its table */
    const char *head_dense, *head_norm, *head_out;
} encoder_names;

/* One architecture: what its files are like. */
typedef struct encoder_architecture {
    const char *type;   /* model_type of config.json */
    const char *prefix; /* "bert." */
    encoder_names names;
    encoder_keys keys;     /* the keys of its config.json */
    encoder_scheme scheme; /* `read` may choose another */
    bool pre_norm;         /* norms before the layers; otherwise after them */
    bool gated;            /* feed-forward layers multiply act(first half) by the second half */
    bool residues;         /* a model of proteins: a text is residues */
    bool no_first_norm;    /* the first layer has no norm before attention */
    bool after_pad;        /* the first position is pad_token_id + 1, and padding tokens do not count */
    encoder_activation head_activation;
    const char *const *strays; /* tensors that the model does not need: names, or beginnings that end with "*" */
    const char *eps_key, *activation_key; /* activation_key = NULL: always ENCODER_GELU */
    double eps;                           /* default of eps_key */
    int64_t max_positions, token_types;   /* defaults of max_position_embeddings and type_vocab_size */
    int64_t pad;                          /* default of pad_token_id */
    void (*read)(struct model_reader *r, struct encoder_config *c); /* reads keys that only it has; NULL: none */
} encoder_architecture;

/* Return the row of a model_type, or NULL. `names` is set to a list of all, for messages. */
const encoder_architecture *encoder_find_architecture(const char *type, const char **names);

/* --------------------------------------------------------------------------------------------- config.c */

#define ENCODER_MAX_LAYERS 4096

/* What rp_encoder_classify makes of logits. */
typedef enum encoder_function { ENCODER_SOFTMAX, ENCODER_SIGMOID, ENCODER_LOGITS } encoder_function;

/* A model, as its architecture and config.json describe it. */
typedef struct encoder_config {
    const encoder_architecture *row;
    encoder_scheme scheme;
    int64_t vocab, width, heads, head_width, inner, layers;
    int64_t positions;                                    /* rows of the table of positions; 0: none */
    int64_t first;                                        /* row of the first token */
    int64_t padded;                                       /* row of padding tokens, if they do not count */
    int64_t token_types;                                  /* rows of the table of token types; 0: none */
    bool norm_bias, attention_bias, feed_bias, head_bias; /* which norms and linear layers have a bias */
    bool embedding_norm;                                  /* the embedding is normed */
    bool token_dropout;            /* ESM: embeddings are scaled as encoder_token_scale says; those of `mask` are 0 */
    int32_t mask;                  /* ESM: the token <mask> */
    int64_t buckets, max_distance; /* of T5 buckets and DeBERTa; DeBERTa: buckets -1 = none */
    int64_t span;                  /* DeBERTa: half the number of vectors */
    bool c2p, p2c;                 /* DeBERTa: queries with vectors of keys; keys with vectors of queries */
    bool own_tables;               /* DeBERTa: not share_att_key */
    bool table_norm;               /* DeBERTa: the table is normed */
    int64_t kernel, groups;        /* of the convolution after the first layer; kernel 0: there is none */
    encoder_activation convolution_activation;
    double theta[2];                /* RoPE: base of layers without and with a window */
    int64_t window;                 /* |i - j| <= window */
    bool local[ENCODER_MAX_LAYERS]; /* layers with a window */
    double eps, scale;
    encoder_activation activation, head_activation;
    bool head_mean; /* the head takes the mean of all rows; otherwise the first */
    int32_t pad;
    int64_t labels;          /* of the classification head; 0: no head */
    char **label;            /* [labels] */
    encoder_function scores; /* of rp_encoder_classify */
    bool plain_score;        /* CrossEncoder gives logits, not their sigmoids */
    bool cross;              /* config_sentence_transformers.json is that of a CrossEncoder */
    bool cross_activation;   /* that file names the activation of scores */
    bool other_activation;   /* the activation of scores is not supported */
    char *head_fault;        /* why logits are not supported; NULL: they are */
    char *score_fault;       /* why scores of pairs are not supported; NULL: they are */
    int64_t named_positions; /* max_position_embeddings; -1: not given */
    char *tokenizer_class;   /* of config.json; NULL: not given */
} encoder_config;

/* Set m->config to the contents of a config.json. `path` is only used in messages. */
rp_status encoder_config_read(rp_encoder *m, const char *path, const char *text, size_t size);
/* Read config_sentence_transformers.json, if the folder has one, before config.json: whether the model is a
 * CrossEncoder, and what scores are made of. */
rp_status encoder_read_cross(rp_encoder *m, const char *folder);
void encoder_config_free(encoder_config *c);
/* Return the factor of the embeddings of a sequence. ESM scales them for the share of masked tokens. */
double encoder_token_scale(const encoder_config *c, const rp_encoder_tokens *s);
/* Return the max number of tokens of a sequence; 0: unlimited. */
int64_t encoder_max_tokens(const encoder_config *c);

/* --------------------------------------------------------------------------------------------- readers.c */

/* Read the keys that only one architecture has; the others are already in `c`. */
void encoder_read_deberta(struct model_reader *r, encoder_config *c);
void encoder_read_modernbert(struct model_reader *r, encoder_config *c);
void encoder_read_esm(struct model_reader *r, encoder_config *c);
encoder_activation encoder_read_activation(struct model_reader *r, const char *key);
/* Let an error of the reader, which had none before, concern only the part of the model that cannot be used. */
void encoder_keep_fault(struct model_reader *r, char **fault);

/* --------------------------------------------------------------------------------------------- weights.c */

/* A linear layer y = x Wᵀ + b. */
typedef struct encoder_linear {
    linear_weights w;
    const float *bias; /* NULL: none */
} encoder_linear;

typedef struct encoder_norm {
    const float *weight, *bias; /* [width]; weight = NULL: there is no norm; bias = NULL: it has no bias */
} encoder_norm;

typedef struct encoder_layer {
    encoder_linear qkv, o, up, down; /* qkv: q, k and v in one matrix; up: both halves of a gated layer */
    encoder_norm attention_norm, feed_norm;
    encoder_linear table_k, table_q; /* DeBERTa without share_att_key */
    const float *vectors[2];         /* DeBERTa: keys and queries of the table [2 span, width]; NULL: none */
} encoder_layer;

/* The convolution after the first layer, and the same as a linear layer of `kernel` tokens for each group. */
typedef struct encoder_convolution {
    const float *weight, *bias; /* [width, width / groups, kernel] and [width] */
    encoder_norm norm;
    linear_weights *group; /* [groups]: each [width / groups, kernel * width / groups] */
    void *memory;          /* of the groups */
    int64_t bytes;
} encoder_convolution;

typedef struct encoder_weights {
    linear_type type;
    linear_weights word;
    const float *position, *token_type; /* [positions, width] and [token_types, width]; NULL: none */
    const float *table;                 /* as encoder_names.table says */
    bool has_frequencies;               /* the file has those of RoPE */
    const float *frequencies;           /* [head_width / 2]; NULL: theta gives them */
    double *stretch;                    /* [head_width / 2]: frequencies of theta, divided by them; NULL: none */
    encoder_norm embedding_norm, final_norm, table_norm;
    encoder_layer *layer; /* [config.layers] */
    encoder_linear head_dense, head_out;
    encoder_norm head_norm;
    encoder_convolution convolution;
    const char *prefix; /* of the names in this file: that of the row, or "" */
    model_store store;
    bool vectors_mapped; /* the vectors of the layers are in a packed file */
} encoder_weights;

/* Visit every weight of a model; `model` is the rp_encoder. */
rp_status encoder_walk(void *model, model_visitor *visit, void *context);
/* Return true if layers have DeBERTa's vectors of keys (n = 0) or queries (n = 1). */
static inline bool encoder_has_vectors(const encoder_config *c, int n)
{
    return c->scheme == ENCODER_DEBERTA && (n == 0 ? c->c2p : c->p2c);
}
/* Visit these vectors; a model_walk. */
rp_status encoder_walk_vectors(void *model, model_visitor *visit, void *context);
/* Allocate the layers. Fail if config.json describes more layers than the file has tensors for. */
rp_status encoder_make_layers(rp_encoder *m, const io_checkpoint *file, const char *path);
void encoder_weights_free(rp_encoder *m);
bool encoder_is_stray(const void *model, const char *name);

/* --------------------------------------------------------------------------------------------- open.c */

struct rp_encoder {
    encoder_config config;
    encoder_weights weights;
    model_files files;
    io_checkpoint *file;         /* a packed file, which is mapped; NULL: the weights are in memory */
    model_origin origin;         /* of the folder, also for a packed file */
    char *tokenizer_text;        /* contents of tokenizer.json or vocab.txt, [tokenizer_size]; NULL: none */
    const char *tokenizer_array; /* its name in a packed file */
    bool types;                  /* texts have token types */
    size_t tokenizer_size;
    rp_pool *pool;
    rp_encoder_info info;
    model_notes notes;           /* rp_encoder_note */
    struct tokenizer *tokenizer; /* NULL: none */
    char *why_no_tokenizer;      /* error message if tokenizer is NULL */
    model_modules *modules;
    bool has_modules; /* the folder has a modules.json; otherwise vectors are means */
};

/* --------------------------------------------------------------------------------------------- packed.c */

#define ENCODER_PACKED    "relpos-encoder 1" /* metadata "format" of a packed file */
#define ENCODER_TOKENIZER "tokenizer"        /* its array with the contents of tokenizer.json */
#define ENCODER_VOCAB     "vocab"            /* or of vocab.txt */
#define ENCODER_VECTORS   "vectors_isa"      /* metadata: the instruction set that computed DeBERTa's vectors */

/* Return the status of a call that read the weights, or an error if their mapped file was written to. */
rp_status encoder_finish(const rp_encoder *m, rp_status status);

/* What the caller named the sequences of a batch, for messages: name[first], name[first + 1], … */
typedef struct encoder_place {
    const char *name;
    int64_t first;
} encoder_place;
extern const encoder_place encoder_sequences; /* sequences[0], … */

/* --------------------------------------------------------------------------------------------- text.c */

struct tok_encoding;

/* Open the tokenizer of a folder. A missing or invalid one is no error: m->tokenizer stays NULL. */
rp_status encoder_find_tokenizer(rp_encoder *m, const char *folder);
/* Check the texts of a call, and that the model has a tokenizer. m may be NULL. */
rp_status encoder_check_text(const rp_encoder *m, int64_t n, const rp_encoder_text *texts);
/* Convert prompt + text, or a pair, to tokens; prompt = NULL: none. */
rp_status encoder_tokenize(const rp_encoder *m, const char *prompt, const rp_encoder_text *t, int64_t max_tokens,
                           struct tok_encoding *out);

/* Texts that are computed together. */
enum {
    ENCODER_ROWS = 8192, /* max rows of a pass, unless one sequence is longer; from so many on, no text is added */
    ENCODER_BATCH = 1024 /* max texts */
};
typedef struct encoder_batch {
    encoder_place place;
    int64_t n, rows;
    struct tok_encoding *made;   /* [n] */
    rp_encoder_tokens *sequence; /* [n] */
} encoder_batch;
/* Convert texts first, first + 1, … of n to tokens, each cut to info.vector_tokens; first < n. The caller also frees
 * the batch after a failure. */
rp_status encoder_batch_read(encoder_batch *b, const rp_encoder *m, const char *prompt, int64_t first, int64_t n,
                             const rp_encoder_text *texts);
void encoder_batch_free(encoder_batch *b);

/* --------------------------------------------------------------------------------------------- rows.c */

/* Operations on rows of width n, in parallel over the pool. Each row is computed in a fixed order. */

/* to = norm(x), row by row; `to` may be x. */
typedef struct encoder_normed {
    const float *x;
    const encoder_norm *norm;
    float *to;
    int64_t n;
    double eps;
} encoder_normed;
void encoder_norm_rows(rp_pool *pool, int64_t rows, const encoder_normed *call);
/* x = act(x) for rows of n numbers; gated: x[0 … n/2-1] = act(x[0 … n/2-1]) * x[n/2 … n-1]. */
typedef struct encoder_activated {
    float *x;
    int64_t n;
    encoder_activation activation;
    bool gated;
} encoder_activated;
void encoder_activate_rows(rp_pool *pool, int64_t rows, const encoder_activated *call);
/* Allocate [rows, n] floats for the caller to free; NULL if there is no memory. */
float *encoder_take(int64_t rows, int64_t n);

/* --------------------------------------------------------------------------------------------- attention.c */

/* Attention of one kind of layer up to a maximum length: the calls of its plan, and its prepared bias. */
typedef struct encoder_attention {
    model_attention calls;
    rp_prepared *prepared;
} encoder_attention;

/* Return the approximate size of the memory that encoder_attention_make allocates; -1 on overflow. */
int64_t encoder_attention_bytes(const rp_encoder *m, bool local, int64_t longest);
/* local: of layers with a window. */
rp_status encoder_attention_make(encoder_attention *a, const rp_encoder *m, bool local, int64_t longest);
/* Use the arrays of a layer. */
void encoder_attention_of(encoder_attention *a, const rp_encoder *m, const encoder_layer *l);
void encoder_attention_free(encoder_attention *a);
/* Compute attention for n rows of q, k and v, [n, 3 width], and write [n, width]. */
rp_status encoder_attend(encoder_attention *a, const rp_encoder *m, const float *qkv, int64_t n, float *out,
                         int32_t worker);

/* --------------------------------------------------------------------------------------------- convolution.c */

/* Make the linear layers of the convolution, if the model has one. */
rp_status encoder_make_convolution(rp_encoder *m);
void encoder_convolution_free(encoder_convolution *v);
/* x = norm(x + act(convolution of `embedded` + b)) for n sequences, of which starts[k] is the first row. */
rp_status encoder_convolve(const rp_encoder *m, int64_t n, const int64_t *starts, const float *embedded, float *x);
/* Return the bytes that encoder_convolve allocates. */
int64_t encoder_convolution_bytes(const rp_encoder *m, int64_t rows);

/* ----------------------------------------------------------------------------- vectors.c, forward.c, reference.c */

/* Compute the vectors of DeBERTa's layers, once when a model is opened; or use those of a packed file if they were
 * computed with this instruction set. */
rp_status encoder_make_vectors(rp_encoder *m);
/* Compute the hidden states of sequences that were checked. They are finite, unless the call fails. */
rp_status encoder_run(const rp_encoder *m, int64_t n, const rp_encoder_tokens *sequences, float *out,
                      model_watch *watch);
/* Check tokens and types. */
rp_status encoder_check(const rp_encoder *m, const encoder_place *place, int64_t n, const rp_encoder_tokens *sequences);
/* Check that the model has a head that is supported; m may be NULL. */
rp_status encoder_need_head(const rp_encoder *m);
/* Compute the logits of sequences that were checked. */
rp_status encoder_logits(const rp_encoder *m, const encoder_place *place, int64_t n, const rp_encoder_tokens *sequences,
                         float *logits, model_watch *watch);
/* Compute x Wᵀ + b, and do with it as `then` says. */
rp_status encoder_multiply(const rp_encoder *m, const encoder_linear *l, int64_t rows, const float *x, int64_t ldx,
                           float *y, linear_then then, void *scratch);
/* y = act(x Wᵀ + b); gated: as encoder_activate_rows. */
rp_status encoder_activate(const rp_encoder *m, const encoder_linear *l, encoder_activation activation, bool gated,
                           int64_t rows, const float *x, float *y, void *scratch);

/* The same by plain loops in double, from the packed weights: hidden [n, width] of one sequence. The inputs of linear
 * layers are not rounded, so compare types f32 and f16 only. */
rp_status encoder_reference(const rp_encoder *m, const rp_encoder_tokens *sequence, double *hidden);
double encoder_activate_double(encoder_activation activation, double x);

#endif
