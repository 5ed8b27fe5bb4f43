/* model.h -- declarations that the files of t5 share: the configuration of a model, its weights, and the parts of a
 * forward pass. Nothing here prints or exits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_MODEL_H
#define RELPOS_T5_MODEL_H

#include "checkpoint/files.h"
#include "checkpoint/names.h"
#include "checkpoint/notes.h"
#include "checkpoint/packed.h"
#include "checkpoint/tasks.h"
#include "checkpoint/watch.h"
#include "checkpoint/weights.h"
#include <pthread.h>
#include <relpos/t5.h>
#include <stdbool.h>

/* ------------------------------------------------------------------------------------------------ error.c */

/* Set the message of rp_t5_last_error for this thread, and return `status`. */
rp_status t5_fail(rp_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
rp_status t5_no_memory(void);
rp_status t5_not_finite(const rp_t5 *m, const char *what); /* `what` names the values that are NaN or infinite */
rp_status t5_model_failed(rp_status status);  /* report the error of a function of checkpoint/; RP_OK stays RP_OK */
rp_status t5_linear_failed(rp_status status); /* report the error of a function of linear/; RP_OK stays RP_OK */
rp_status t5_no_memory_for(const char *what, int64_t bytes);

rp_status t5_cancelled(void);
rp_status t5_check_cancelled(const rp_t5_generation *g); /* RP_E_CANCELLED if g->cancelled cancels, otherwise RP_OK */

/* Multiply two sizes; return false on overflow. */
static inline bool t5_mul(int64_t a, int64_t b, int64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* ------------------------------------------------------------------------------------------------ config.c */

typedef enum t5_kind { T5_PLAIN, T5_MT5, T5_UMT5, T5_LONG, T5_SWITCH } t5_kind;
typedef enum t5_activation { T5_RELU, T5_GELU_TANH, T5_GELU, T5_SILU } t5_activation;
typedef enum t5_encoder_attention { T5_FULL, T5_LOCAL, T5_TRANSIENT_GLOBAL } t5_encoder_attention;

enum { T5_MAX_EOS = 8 };

/* The contents of config.json. */
typedef struct t5_config {
    t5_kind kind;
    int64_t vocab, d_model, d_kv, d_ff, heads, inner; /* inner = heads * d_kv */
    int64_t layers, decoder_layers;
    int64_t buckets, max_distance;
    double eps;
    t5_activation activation;
    bool gated;
    bool tied;  /* the head may share the weights of the embedding */
    bool scale; /* multiply hidden states by d_model^-0.5 before the head */
    t5_encoder_attention encoder_attention;
    int64_t radius, global_block;               /* LongT5: local_radius and global_block_size */
    int64_t experts, capacity;                  /* Switch: experts per layer; tokens per expert and sequence */
    int64_t sparse_encoder, sparse_decoder;     /* every how many layers one has experts; 0: no layer has them */
    int32_t pad, start, eos[T5_MAX_EOS], n_eos; /* token numbers; `start` is the first token of every target */
    bool names_start;                           /* config.json has a decoder_start_token_id */
    bool only_encodes;                          /* is_encoder_decoder is false */
    int64_t max_positions;                      /* max_position_embeddings; -1: none */
    const char *advice; /* ends an error about weights that do not belong to this configuration: " (…)" */
} t5_config;

/* Return true if layer i of a stack has experts; `every` is sparse_encoder or sparse_decoder. */
static inline bool t5_is_sparse(int64_t every, int64_t i)
{
    return every == 1 || (every > 1 && i % every == 1);
}

/* Set m->config to the contents of a config.json. `path` is only used in messages. */
rp_status t5_config_read(rp_t5 *m, const char *path, const char *text, size_t size);
/* Bounds of repetition_penalty, which is applied in f32. */
#define T5_MIN_PENALTY 1e-6
#define T5_MAX_PENALTY 1e6

/* Memory that the pointers in rp_t5.generation point to. */
typedef struct t5_kept {
    char *refused;           /* name of an unsupported key: generation.unsupported */
    const char *refused_in;  /* the file that was read: generation_config.json or config.json */
    int32_t *tokens;         /* tokens of suppress, begin_suppress and bad_words */
    rp_t5_tokens *bad_words; /* generation.bad_words */
    char **stop;             /* [n_stop]: generation.stop */
    int32_t n_stop;
} t5_kept;
void t5_kept_free(t5_kept *kept);

/* Set m->generation, which has the defaults, to the contents of a generation_config.json, or of a config.json if the
 * former does not exist. `name` is the name of the file, and `path` its path or that of the packed file. */
rp_status t5_generation_read(rp_t5 *m, const char *name, const char *path, const char *text, size_t size);

/* --------------------------------------------------------------------------------------------- weights.c, packing.c */

typedef struct t5_feed {
    linear_weights wi, wi_gate, wo; /* wi_gate: only for gated layers */
} t5_feed;

typedef struct t5_block {
    const float *norm_self, *norm_cross, *norm_feed, *norm_global;
    const float *table, *global_table; /* [buckets, heads]; in every layer (UMT5) or only in the first */
    linear_weights qkv, o;             /* qkv: q, k and v in one matrix */
    linear_weights cross_q, cross_kv, cross_o;
    t5_feed feed, *experts; /* experts: used instead of feed in a sparse layer */
    linear_weights router;
} t5_block;

typedef struct t5_stack {
    int64_t layers; /* 0 if the checkpoint lacks this stack */
    t5_block *block;
    const float *norm;
} t5_stack;

typedef struct t5_weights {
    linear_type type;
    linear_weights embedding, head;
    bool tied; /* the head shares the weights of the embedding */
    t5_stack encoder, decoder;
    model_store store;
} t5_weights;

extern const model_naming t5_names; /* prefixes of the names of tensors */

/* Pack the tensors of a checkpoint. With `sizes`, only check them and add up their sizes. A negative type selects the
 * narrowest type that represents the numbers in the file exactly. */
rp_status t5_weights_pack(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path, int type,
                          bool sizes, rp_pool *pool);
/* Point to the weights in a packed file, without copying them. */
rp_status t5_weights_map(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path);
/* Count the weights, and the bytes of decoder and head that are read to generate one token. */
void t5_weights_count(const t5_weights *w, const t5_config *c, int64_t *parameters, int64_t *step_bytes);
/* Add every weight to a set that will be written. The set borrows the weights. */
rp_status t5_weights_list(const t5_weights *w, const t5_config *c, io_set *set);
void t5_weights_free(t5_weights *w);

/* ------------------------------------------------------------------------------------------------ model.c */

struct tokenizer;
struct t5_screen;
struct t5_draft;
struct model_modules;

enum { T5_BESIDE = 3 }; /* number of JSON files beside a tokenizer */

struct rp_t5 {
    t5_config config;
    t5_weights weights;
    rp_t5_generation generation;
    t5_kept kept; /* memory that `generation` points to */
    io_checkpoint *file;
    struct tokenizer *tokenizer;         /* NULL: none */
    char *why_no_tokenizer;              /* error message if tokenizer is NULL */
    bool tokenizer_refused;              /* there is a tokenizer, but it cannot be used */
    char *config_text, *generation_text; /* contents of the two JSON files, for writing them to a packed file */
    unsigned char *tokenizer_text;       /* contents of the tokenizer file, [tokenizer_size]; NULL: none */
    size_t tokenizer_size;
    char *beside_text[T5_BESIDE]; /* contents of the files in t5_beside_names; NULL: absent */
    model_origin origin;
    int32_t packed; /* rp_t5_info.packed */
    model_files files;
    rp_pool *pool;
    rp_t5_loading load;
    struct t5_screen *screen;      /* NULL: every step reads the whole head */
    struct t5_draft *draft;        /* NULL: no draft */
    struct model_modules *modules; /* NULL: no modules.json */
    rp_t5_info info;
    model_notes notes; /* rp_t5_note */
};

/* ------------------------------------------------------------------------------------------------ arguments.c */

/* Return the status of a call that read the weights, or an error if their mapped file was written to. */
rp_status t5_finish(const rp_t5 *m, rp_status status);
rp_status t5_need_weights(const rp_t5 *m); /* check that the weights are loaded; m may be NULL */
rp_status t5_need_decoder(const rp_t5 *m); /* check that the model has a decoder */
/* Check that tokens are in the vocabulary. `what` names the tokens in the message. */
rp_status t5_in_vocabulary(const rp_t5 *m, const char *what, int64_t n_sources, const rp_t5_tokens *sources);
/* Check that tokens are in the vocabulary and that the weights are loaded. */
rp_status t5_check_tokens(const rp_t5 *m, const char *what, int64_t n_sources, const rp_t5_tokens *sources);

/* ------------------------------------------------------------------------------------------------ beside.c */

/* Names of the JSON files that may accompany a tokenizer. */
extern const char *const t5_beside_names[T5_BESIDE];
#define T5_GENERATION_KEY "generation_config"
/* Metadata keys of a packed file of T5: those of these files, and T5_GENERATION_KEY. */
extern const char *const t5_packed_keys[T5_BESIDE + 1];

rp_status t5_read_beside(rp_t5 *m, const char *folder); /* read these files of a folder */
rp_status t5_copy_beside(rp_t5 *m);                     /* copy them from a packed file */
/* Check their keys and set info.cleans_up. `folder` is only used in messages. */
rp_status t5_check_beside(rp_t5 *m, const char *folder);

/* Who makes the tokens in transformers 5. */
typedef enum t5_maker {
    T5_MAKER_FILE,  /* TokenizersBackend: the rules of the tokenizer.json */
    T5_MAKER_T5,    /* T5Tokenizer: rules of its own for the pieces of the file */
    T5_MAKER_BYTES, /* ByT5Tokenizer */
} t5_maker;
/* Find out as AutoTokenizer does: by "tokenizer_class" of tokenizer_config.json, or else of config.json, or else by the
 * kind of the model. *named is false if no file names a class and there is no tokenizer_config.json. */
rp_status t5_find_maker(const rp_t5 *m, t5_maker *maker, bool *named);
/* Say that a tokenizer given as one file keeps its rules, whatever config.json names. */
rp_status t5_name_maker(rp_t5 *m);
/* Remove spaces before punctuation, as clean_up_tokenization of transformers does. Return the new size. */
int64_t t5_clean_up(char *text, int64_t size);

/* ------------------------------------------------------------------------------------------------ tokenize.c */

#define T5_TOKENIZER_ARRAY    "tokenizer"    /* name of the tokenizer's array in a packed file */
#define T5_EMBEDDED_TOKENIZER "spiece_model" /* a tensor of bytes in a single file: the contents of spiece.model */

/* Open the tokenizer of a folder, of a packed file or of a .gguf file. A missing or invalid tokenizer is no error:
 * m->tokenizer stays NULL, and functions that need it report m->why_no_tokenizer. */
rp_status t5_find_tokenizer(rp_t5 *m, const char *folder);
/* Use the tokenizer that was given: a folder, or a tokenizer.json or spiece.model. */
rp_status t5_given_tokenizer(rp_t5 *m, const char *path);
/* Use the tokenizer in tokenizer_text, or none. `path` is the model's file. */
rp_status t5_embedded_tokenizer(rp_t5 *m, const char *path);
/* Give the tensors of m->file the names of transformers, and set the configuration from their shapes (single.c). */
rp_status t5_single(rp_t5 *m, const char *path);
rp_status t5_packed_tokenizer(rp_t5 *m, const char *path);
rp_status t5_copy_tokenizer(rp_t5 *m, const io_tensor *array, const char *path); /* into m->tokenizer_text */
rp_status t5_gguf_tokenizer(rp_t5 *m, const char *path);
/* Use no tokenizer, because the caller wants none. */
rp_status t5_drop_tokenizer(rp_t5 *m);
/* Convert tokenizer_text to the form that packed files store; the caller frees *made. *made = NULL means that the text
 * is stored unchanged. */
rp_status t5_compact_tokenizer(const rp_t5 *m, char **made, int64_t *size);

/* ------------------------------------------------------------------------------------------------ layers.c */

/* Scratch memory, aligned to 64 bytes. */
typedef struct t5_buffer {
    void *data;
    size_t size;
} t5_buffer;
rp_status t5_reserve(t5_buffer *b, int64_t count, int64_t element); /* grow the buffer, without keeping its contents */
void t5_release(t5_buffer *b);

/* Compute to[c] = norm[c] * x[c] / sqrt(mean(x^2) + eps) for each of n rows. */
void t5_rms_norm(const float *x, int64_t n, int64_t d, const float *norm, double eps, float *to);

/* Scratch arrays that all layers of a pass share, with one row per token. */
typedef struct t5_work {
    const rp_t5 *m;
    int64_t rows;
    t5_buffer x;              /* [rows, d_model]: the residual stream, in f32 */
    t5_buffer normed;         /* [rows, d_model]: output of a norm */
    t5_buffer qkv, mixed;     /* [rows, 3 * inner] and [rows, inner]: input and output of attention */
    t5_buffer feed;           /* [rows processed at a time, d_ff]: inner values of a feed-forward layer */
    t5_buffer scratch, route; /* scratch of linear layers; scores of experts */
    const model_watch *watch; /* NULL: no callback */
} t5_work;
rp_status t5_work_rows(t5_work *w, const rp_t5 *m, int64_t rows);
int64_t t5_work_bytes(const rp_t5 *m, int64_t rows); /* size of these arrays; -1 on overflow */
void t5_work_free(t5_work *w);

/* Compute y = x Wᵀ for rows of x, and apply `then`. */
rp_status t5_linear(t5_work *w, const linear_weights *l, int64_t rows, const float *x, int64_t ldx, float *y,
                    int64_t ldy, linear_then then);
/* Copy the embeddings of n tokens to consecutive rows of `to`. */
void t5_embed(t5_work *w, const int32_t *tokens, int64_t n, float *to);
/* Add the feed-forward layer's output for w->x to w->x. `starts` holds the n_sequences + 1 rows where sequences begin
 * and end; the capacity of experts is counted per sequence. NULL means unlimited capacity. */
rp_status t5_feed_forward(t5_work *w, const t5_block *b, bool sparse, int64_t n_sequences, const int64_t *starts);

/* Return log(sum(exp(x))) over n numbers. */
double t5_log_sum_exp(const float *x, int64_t n);
float t5_largest(const float *x, int64_t n);
void t5_add(float *x, int64_t n, float by); /* x += by */
/* Return the index of the largest of n numbers (the first if several are equal). */
int64_t t5_argmax(const float *x, int64_t n);

/* ------------------------------------------------------------------------------------------------ attention.c */

enum { T5_MAX_TABLES = 4096 };

/* Attention for one kind of layer, up to a maximum length: the calls of its plan, and the prepared bias of each table.
 * Each call computes one sequence, so its bits do not depend on other sequences. */
typedef struct t5_attention {
    model_attention calls;
    rp_prepared **prepared; /* [n_tables]; elements are NULL without a bias or with given positions */
    int64_t n_tables;
    const float *const *tables; /* [n_tables] of [buckets, heads]; only the array of pointers is owned */
    int64_t longest_q, longest_k;
    bool positions; /* the bias uses given positions, as in transient-global attention */
} t5_attention;

/* Properties of a kind of attention layer. */
typedef struct t5_attention_kind {
    int64_t len_q, len_k; /* max lengths */
    bool both_ways;       /* buckets distinguish keys before and after the query */
    bool causal;
    bool positions;
    int64_t window; /* max distance from query to key; -1: unlimited */
    const float *const *tables;
    int64_t n_tables; /* 0: no bias */
    rp_dtype type;    /* type of queries, keys, values and results */
} t5_attention_kind;

rp_status t5_attention_make(t5_attention *a, const rp_t5 *m, const t5_attention_kind *kind);
void t5_attention_free(t5_attention *a);
/* Return the approximate size of the memory that t5_attention_make allocates; -1 on overflow. */
int64_t t5_attention_bytes(const rp_t5 *m, const t5_attention_kind *kind);
/* Compute attention. The caller has set q, k, v and out in the tensors of this worker (checkpoint/tasks.h). */
rp_status t5_attend(t5_attention *a, const rp_t5 *m, int64_t table, int32_t worker);
/* Describe n rows as an array [1, heads, n, d_kv]; `row` is the number of elements from one row to the next. */
rp_array t5_heads(const rp_t5 *m, rp_dtype type, const void *first, int64_t n, int64_t row);

/* ------------------------------------------------------------------------------------------------ encoder.c */

/* Encode sources that have already been checked. */
rp_status t5_encode_sources(const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources, float *out,
                            model_watch *watch);
/* The same, but `out` receives no rows for the first `before` and the last `after` tokens of each source, which has at
 * least before + after tokens. */
rp_status t5_encode_inner(const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources, int64_t before, int64_t after,
                          float *out, model_watch *watch);
/* Report an error if n rows of hidden states are not finite. */
rp_status t5_check_hidden(const rp_t5 *m, const float *rows, int64_t n);

/* ------------------------------------------------------------------------------------------------ decoder.c */

/* Like rp_t5_begin, but with a progress callback. Decoding also uses it, until t5_set_watch replaces it. */
rp_status t5_begin(rp_t5_session **session, const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources,
                   int64_t positions, model_watch *watch);
void t5_set_watch(rp_t5_session *s, model_watch *watch);

/* Feed n tokens to each of `rows` rows. parents[r] is the row of the previous call that row r continues; in the first
 * call it is a source. Then compute the logits [rows, vocab] of each row's last token. With `visit`, instead pass the
 * logits of every token to `visit`, which must check them. If both are NULL, compute only hidden states. */
typedef rp_status t5_visit(void *context, int64_t row, int64_t position, const float *logits);
rp_status t5_decode(rp_t5_session *s, int64_t rows, const int32_t *parents, int64_t n, const int32_t *tokens,
                    float *logits, t5_visit *visit, void *context);

/* Report an error if a row of logits has a number that is not finite. */
rp_status t5_check_logits(const rp_t5 *m, const float *logits);
/* Return the head's input for one token of row r in the last call. Consecutive tokens are d_model elements apart. */
const float *t5_hidden(const rp_t5_session *s, int64_t r, int64_t position);
/* Compute all logits for one hidden state. */
rp_status t5_logits_of(rp_t5_session *s, const float *hidden, float *logits);

/* Feed one token to the only row, through the layers of the draft, and compute the logits of the draft. */
rp_status t5_decode_draft(rp_t5_session *s, int32_t token, const rp_t5_tokens *source, float *logits);
/* Shorten every row to `length` tokens. */
void t5_rewind(rp_t5_session *s, int64_t length);
/* Drop all rows except r. */
rp_status t5_keep_row(rp_t5_session *s, int32_t r);
int64_t t5_length(const rp_t5_session *s);

/* ------------------------------------------------------------------------------------------------ screen.c */

/* An int8 copy of the head. It is made once enough steps have run for it to save time. */
typedef struct t5_screen {
    pthread_mutex_t lock; /* held while the copy is made */
    _Atomic bool made;
    _Atomic bool without; /* out of memory for the copy, so every step reads the whole head */
    linear_screen screen;
    void *memory;
    _Atomic int64_t before;           /* steps before the copy was made */
    _Atomic int64_t rows, candidates; /* since then: screened rows, and logits that were computed exactly */
    _Atomic int64_t whole;            /* since then: rows that read the whole head */
} t5_screen;

/* Create m->screen if the head is large enough; otherwise leave it NULL. */
rp_status t5_screen_open(rp_t5 *m);
void t5_screen_close(rp_t5 *m);
/* Make the copy now. If there is no memory for it, return RP_OK and set `without`. */
rp_status t5_screen_make(const rp_t5 *m);
/* Decide whether a greedy step of `rows` rows uses the screen. Make the copy if enough steps have passed. */
rp_status t5_screen_ready(const rp_t5 *m, int64_t rows, bool *ready);
/* Compute bounds [rows, 2, vocab] (lower, upper) of the logits; ld is the number of elements from one row of `hidden`
 * to the next. */
rp_status t5_screen_bounds(const rp_t5 *m, int64_t rows, const float *hidden, int64_t ld, float *bounds);
/* Compute the logits of n tokens, bit-identical to those of the whole head. Set the other logits, starting at `first`,
 * to -INFINITY. exact [n] is scratch. */
rp_status t5_some_logits(const rp_t5 *m, const float *hidden, int64_t n, const int32_t *tokens, float *exact,
                         int64_t first, float *logits);

/* ------------------------------------------------------------------------------------------------ greedy_screen.c */

/* For one hidden state, compute the logits that may be the largest after t5_process; the others become -INFINITY.
 * `bounds` [2, vocab] are the bounds of its logits, and are overwritten. */
struct t5_prefix;
rp_status t5_screen_logits(rp_t5_session *s, const rp_t5 *m, const float *hidden, const rp_t5_generation *g,
                           const struct t5_prefix *p, float *bounds, float *logits);

/* ------------------------------------------------------------------------------------------------ draft.c */

/* A copy of the decoder's layers with fewer bits. It proposes tokens; the decoder checks them. */
typedef struct t5_draft {
    linear_type type;
    t5_block *blocks; /* the norms and tables in them belong to the decoder */
    t5_feed *experts;
    unsigned char *memory;
    int64_t bytes;
    int64_t frequent; /* if the head is large, the draft considers only tokens below this, and the source's */
} t5_draft;

rp_status t5_draft_open(rp_t5 *m, linear_type type);
void t5_draft_close(rp_t5 *m);
/* Compute the logits of the draft for one hidden state; tokens that the draft does not consider get -INFINITY. */
rp_status t5_draft_logits(t5_work *w, const float *hidden, const rp_t5_tokens *source, float *logits);

/* ------------------------------------------------------------------------------------------------ logits.c */

/* The tokens of a target so far; tokens[0] is the start token. */
typedef struct t5_prefix {
    const int32_t *tokens;
    int64_t n;      /* number of tokens so far */
    int64_t forced; /* number of given tokens among them: start token and prefix */
} t5_prefix;

/* Apply the penalties and limits of g to the scores of the next token. Each score is changed independently of the
 * others by a non-decreasing function; greedy_screen.c relies on this. */
void t5_process(const rp_t5 *m, const rp_t5_generation *g, const t5_prefix *p, float *scores);
bool t5_is_eos(const rp_t5 *m, int32_t token);
/* Draw a token from softmax(scores / temperature), restricted to top_k and top_p. The random number depends only on
 * `key` and `step`. Overwrites `scores`. */
rp_status t5_draw(const rp_t5_generation *g, float *scores, int64_t vocab, uint64_t key, int64_t step, int32_t *token);
uint64_t t5_random_key(uint64_t seed, int64_t source, int64_t copy);

/* Set *stops to true if the text of the tokens after the given ones contains one of the stop strings of g. */
rp_status t5_stops(const rp_t5 *m, const rp_t5_generation *g, const t5_prefix *p, bool *stops);

/* ------------------------------------------------------------------------------------------------ results.c */

struct rp_t5_results {
    rp_t5_sequence *sequences;
    int64_t n;
    rp_t5_drafted drafted;
};
/* Append a result, copying `tokens`, which do not include the start token. */
rp_status t5_add_result(rp_t5_results *r, int64_t source, int64_t index, const int32_t *tokens, int64_t n, double score,
                        bool finished);

/* ------------------------------------------------------------------------------------------------ beam.c */

rp_status t5_beam_search(const rp_t5 *m, rp_t5_session *s, int64_t first, int64_t n_sources, const rp_t5_generation *g,
                         rp_t5_results *results);

#endif
