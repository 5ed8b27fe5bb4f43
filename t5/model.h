/* model.h -- what the files of t5 share: the description of a model, its weights, and the steps of a forward pass.
 * A client of the public header, of linear, of tokenizer and of io. Nothing here prints or exits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_MODEL_H
#define RELPOS_T5_MODEL_H

#include "io/checkpoint.h"
#include "linear/linear.h"
#include <pthread.h>
#include <relpos/t5.h>
#include <stdbool.h>

/* ------------------------------------------------------------------------------------------------ error.c */

/* Keep one line for rp_t5_last_error of this thread, and return the status. */
rp_status t5_fail(rp_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
rp_status t5_no_memory(void);
rp_status t5_not_finite(const rp_t5 *m, const char *what); /* such numbers were computed */
rp_status t5_core_failed(rp_status status);                /* what a call of relpos said */
rp_status t5_linear_failed(rp_status status);              /* and one of linear/; RP_OK stays RP_OK */
rp_status t5_no_memory_for(const char *what, int64_t bytes);

/* Who watches a call, and stops it: asked between linear layers, by the thread that made the call. */
typedef struct t5_watch {
    rp_progress *progress; /* NULL: nobody */
    void *context;
    double from, to, share; /* the part of the call that is running; what is done of all */
} t5_watch;
static inline t5_watch t5_watch_of(rp_progress *progress, void *context)
{
    return (t5_watch){progress, context, 0, 1, 0};
}
static inline void t5_watch_part(t5_watch *w, double from, double to)
{
    if (w != NULL)
        w->from = w->share = from, w->to = to;
}
/* A share of the part is done. */
static inline void t5_watch_at(t5_watch *w, double share)
{
    if (w != NULL)
        w->share = w->from + (w->to - w->from) * share;
}
static inline bool t5_stopped(const t5_watch *w)
{
    return w != NULL && w->progress != NULL && w->progress(w->context, w->share) != 0;
}
rp_status t5_cancelled(void);
rp_status t5_ask(const rp_t5_generation *g); /* its callback `cancelled`, if there is one */

/* A product of sizes and its sum with another; false where it does not fit. */
static inline bool t5_mul(int64_t a, int64_t b, int64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* ------------------------------------------------------------------------------------------------ config.c */

typedef enum t5_kind { T5_PLAIN, T5_MT5, T5_UMT5, T5_LONG, T5_SWITCH } t5_kind;
typedef enum t5_activation { T5_RELU, T5_GELU_TANH, T5_GELU, T5_SILU } t5_activation;
typedef enum t5_encoder_attention { T5_FULL, T5_LOCAL, T5_TRANSIENT_GLOBAL } t5_encoder_attention;

enum { T5_MAX_EOS = 8 };
#define T5_MAX_SIZE 16777216 /* of any size in config.json */

/* What config.json says. */
typedef struct t5_config {
    t5_kind kind;
    int64_t vocab, d_model, d_kv, d_ff, heads, inner; /* inner = heads * d_kv */
    int64_t layers, decoder_layers;
    int64_t buckets, max_distance;
    double eps;
    t5_activation activation;
    bool gated;
    bool tied;  /* the head may be the embedding */
    bool scale; /* hidden states times d_model^-0.5 before the head */
    t5_encoder_attention encoder_attention;
    int64_t radius, global_block;               /* LongT5 */
    int64_t experts, capacity;                  /* Switch */
    int64_t sparse_encoder, sparse_decoder;     /* every so many layers has experts; 0: none */
    int32_t pad, start, eos[T5_MAX_EOS], n_eos; /* tokens; start begins every output */
    bool bytes;                                 /* ByT5: no tokenizer file */
} t5_config;

/* Whether layer i of a stack has experts. */
static inline bool t5_is_sparse(int64_t every, int64_t i)
{
    return every == 1 || (every > 1 && i % every == 1);
}

/* Read the text of config.json; `path` for messages. */
rp_status t5_config_read(t5_config *c, const char *path, const char *text, size_t size);
/* Bounds of repetition_penalty, which is applied in f32. */
#define T5_LEAST_PENALTY 1e-6
#define T5_MOST_PENALTY  1e6

/* What settings of a model point to, to be freed. */
typedef struct t5_kept {
    char *refused;           /* what is asked for and not supported: generation.unsupported */
    int32_t *tokens;         /* of suppress, begin_suppress and bad_words */
    rp_t5_tokens *bad_words; /* likewise */
    char **stop;             /* [n_stop] */
    int32_t n_stop;
} t5_kept;
void t5_kept_free(t5_kept *kept);

/* Read the text of generation_config.json, or of config.json where there is none, over the defaults in *g. */
rp_status t5_generation_read(t5_config *c, rp_t5_generation *g, t5_kept *kept, const char *path, const char *text,
                             size_t size);

/* ------------------------------------------------------------------------------------------------ weights.c, packing.c */

typedef struct t5_feed {
    linear_weights wi, wi_gate, wo; /* wi_gate where the layer is gated */
} t5_feed;

typedef struct t5_block {
    const float *norm_self, *norm_cross, *norm_feed, *norm_global;
    const float *table, *global_table; /* [buckets, heads], of every layer or of the first */
    linear_weights qkv, o;             /* q, k and v in one matrix */
    linear_weights cross_q, cross_kv, cross_o;
    t5_feed feed, *experts; /* experts: of a sparse layer, in place of feed */
    linear_weights router;
} t5_block;

typedef struct t5_stack {
    int64_t layers; /* 0: the checkpoint has no such stack */
    t5_block *block;
    const float *norm;
} t5_stack;

typedef struct t5_weights {
    linear_type type;
    linear_weights embedding, head;
    bool tied; /* head is the embedding */
    t5_stack encoder, decoder;
    unsigned char *memory; /* of what was packed here; NULL where all lies in a mapped file */
    int64_t bytes;         /* of packed weights */
    int64_t not_finite;    /* numbers in the checkpoint that are NaN or infinite */
} t5_weights;

/* Pack the tensors of a checkpoint; with sizes, only check and count them. type < 0: the narrowest that holds the file's numbers as they
 * are. */
rp_status t5_weights_pack(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path, int type,
                          bool sizes, rp_pool *pool);
/* Find the weights of a packed file in place. */
rp_status t5_weights_map(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path);
/* How many numbers there are, and how many bytes one token reads of the decoder and the head. */
void t5_weights_count(const t5_weights *w, const t5_config *c, int64_t *parameters, int64_t *step_bytes);
/* Add every weight, borrowed, to a set that is to be written. */
rp_status t5_weights_list(const t5_weights *w, const t5_config *c, io_set *set);
void t5_weights_free(t5_weights *w);

/* ------------------------------------------------------------------------------------------------ model.c */

struct tokenizer;
struct t5_screen;
struct t5_draft;

/* A file of the system, whatever its name is. */
typedef struct t5_file_id {
    uint64_t device, number;
} t5_file_id;

enum { T5_CHECKSUM = 17 }; /* bytes of a checksum as text */
enum { T5_BESIDE = 3 };

struct rp_t5 {
    t5_config config;
    t5_weights weights;
    rp_t5_generation generation;
    t5_kept kept; /* by generation */
    io_checkpoint *file;
    struct tokenizer *tokenizer; /* NULL: there is none */
    char *why_no_tokenizer;
    char *config_text, *generation_text; /* what a packed file takes along */
    unsigned char *tokenizer_text;       /* likewise */
    size_t tokenizer_size;
    char *beside_text[T5_BESIDE];      /* of files beside a spiece.model: t5_beside_names; NULL: there is none */
    char *folder;                      /* the model's; NULL: it was packed */
    int32_t packed;                    /* rp_t5_info.packed */
    char *source;                      /* name of the folder; NULL: a file of relpos 0.1 does not say */
    char source_checksum[T5_CHECKSUM]; /* of a packed file */
    t5_file_id *files;                 /* [n_files] that were read or are mapped */
    int64_t n_files;
    rp_pool *pool;
    rp_t5_loading load;
    struct t5_screen *screen; /* NULL: the head is read as a whole */
    struct t5_draft *draft;   /* NULL: every token is a step */
    rp_t5_info info;
};

char *t5_join(const char *folder, const char *name); /* "folder/name", to be freed */
/* A whole file of the model with a 0 after it, to be freed; *text stays NULL where there is no such file. */
rp_status t5_read_text(rp_t5 *m, const char *path, char **text, size_t *size);

/* Check tokens of a source or a target against the vocabulary; `what` for the message. */
rp_status t5_in_vocabulary(const rp_t5 *m, const char *what, int64_t n_sources, const rp_t5_tokens *sources);
/* The same before they are computed with, which needs the weights. */
rp_status t5_check_tokens(const rp_t5 *m, const char *what, int64_t n_sources, const rp_t5_tokens *sources);

/* ------------------------------------------------------------------------------------------------ text.c */

/* Files beside a spiece.model that belong to the tokenizer, and their names in the metadata of a packed file. */
extern const char *const t5_beside_names[T5_BESIDE], *const t5_beside_keys[T5_BESIDE];

#define T5_TOKENIZER_ARRAY "tokenizer" /* of a packed file */

/* A model works without a tokenizer: why there is none is told when text is asked for. */
rp_status t5_find_tokenizer(rp_t5 *m, const char *folder);
rp_status t5_packed_tokenizer(rp_t5 *m, const char *path);
/* What a packed file has in place of tokenizer_text, to be freed; NULL: that. */
rp_status t5_compact_tokenizer(const rp_t5 *m, char **made, int64_t *size);

/* ------------------------------------------------------------------------------------------------ layers.c */

/* Memory that grows and is not kept: aligned to 64 bytes. */
typedef struct t5_buffer {
    void *data;
    size_t size;
} t5_buffer;
rp_status t5_reserve(t5_buffer *b, int64_t count, int64_t element); /* what it held is lost */
void t5_release(t5_buffer *b);

/* to = norm[c] * x[c] / sqrt(mean(x^2) + eps), of each of n rows. */
void t5_rms_norm(const float *x, int64_t n, int64_t d, const float *norm, double eps, float *to);

/* What all layers of a pass work in: rows of d_model. */
typedef struct t5_work {
    const rp_t5 *m;
    int64_t rows;
    t5_buffer x, normed, qkv, mixed, feed, scratch, route; /* x: the residual stream, in f32 */
    const t5_watch *watch;                                 /* NULL: nobody watches */
} t5_work;
rp_status t5_work_rows(t5_work *w, const rp_t5 *m, int64_t rows);
void t5_work_free(t5_work *w);

/* y = then(x Wᵀ) for rows of x. */
rp_status t5_linear(t5_work *w, const linear_weights *l, int64_t rows, const float *x, int64_t ldx, float *y,
                    int64_t ldy, linear_then then);
/* x = rows of the embedding. */
void t5_embed(t5_work *w, const int32_t *tokens, int64_t n, float *to);
/* w->x += feed forward of w->x. starts: n_sequences + 1 rows where sequences begin, for the capacity of experts; NULL: it has none. */
rp_status t5_feed_forward(t5_work *w, const t5_block *b, bool sparse, int64_t n_sequences, const int64_t *starts);

/* log(sum(exp(x))) of n numbers. */
double t5_log_sum_exp(const float *x, int64_t n);
float t5_largest(const float *x, int64_t n);
void t5_add(float *x, int64_t n, float by); /* x += by */
/* Where the largest of n numbers is, the first of equal ones. */
int64_t t5_argmax(const float *x, int64_t n);

/* ------------------------------------------------------------------------------------------------ attention.c */

enum { T5_MAX_TABLES = 4096 };

/* Attention of one kind of layer, for lengths up to those that it was made for: one plan, what it prepared of each layer's table, and
 * memory for each worker. One sequence a call, so that its bits depend on nothing else. */
typedef struct t5_attention {
    rp_plan *plan;
    rp_prepared **prepared; /* of each table; NULL: there is no bias, or its positions are given */
    int64_t n_tables;
    const float *const *tables; /* [n_tables] of [buckets, heads]; owned */
    int32_t workers;
    rp_tensors *tensors; /* of each worker, with what all calls share */
    unsigned char *work; /* of all workers */
    size_t work_size;    /* of one */
    int64_t longest_q, longest_k;
    bool positions; /* the bias goes by given positions: block_of and global */
} t5_attention;

/* What kind of layer it is. */
typedef struct t5_attention_kind {
    int64_t len_q, len_k; /* bounds */
    bool both_ways;       /* buckets both ways */
    bool causal;
    bool positions;
    int64_t window; /* keys this far at most; -1: all */
    const float *const *tables;
    int64_t n_tables; /* 0: no bias */
    rp_dtype type;    /* of queries, keys, values and results */
} t5_attention_kind;

rp_status t5_attention_make(t5_attention *a, const rp_t5 *m, const t5_attention_kind *kind);
void t5_attention_free(t5_attention *a);
/* One call: the worker's tensors have q, k, v and out. */
rp_status t5_attend(t5_attention *a, const rp_t5 *m, int64_t table, int32_t worker);
/* heads of `n` rows that are `row` numbers of a type apart, as [1, heads, n, d_kv]. */
rp_array t5_heads(const rp_t5 *m, rp_dtype type, const void *first, int64_t n, int64_t row);

/* The first failure of tasks that run at once, which have errors of their own threads. */
typedef struct t5_failure {
    _Atomic int status;
    char text[1024];
} t5_failure;
void t5_failed(t5_failure *f, rp_status status);
rp_status t5_failure_of(const t5_failure *f);

/* ------------------------------------------------------------------------------------------------ encoder.c */

/* rp_t5_encode, of sources that were checked. */
rp_status t5_encode_sources(const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources, float *out,
                            t5_watch *watch);

/* ------------------------------------------------------------------------------------------------ decoder.c */

/* rp_t5_begin that is watched, and decoding after it too, until it is watched by another. */
rp_status t5_begin(rp_t5_session **session, const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources,
                   int64_t positions, t5_watch *watch);
void t5_watched_by(rp_t5_session *s, t5_watch *watch);

/* Take n more tokens of each of `rows` rows, which continue rows `parents` of the call before (at first: sources), and make logits
 * [rows, vocab] of the last of them; or, with `visit`, of each; or, with neither, none: the calls below make some. */
typedef rp_status t5_visit(void *context, int64_t row, int64_t position, const float *logits);
rp_status t5_decode(rp_t5_session *s, int64_t rows, const int32_t *parents, int64_t n, const int32_t *tokens,
                    float *logits, t5_visit *visit, void *context);

/* Row r of the last call: the hidden state of one of its tokens as the head takes it; from token to token they are d_model apart. */
const float *t5_hidden(const rp_t5_session *s, int64_t r, int64_t position);
/* Its logits. */
rp_status t5_logits_of(rp_t5_session *s, const float *hidden, float *logits);

/* Take one more token of the only row by the weights of the draft, and make its logits. */
rp_status t5_decode_draft(rp_t5_session *s, int32_t token, const rp_t5_tokens *source, float *logits);
/* The rows as they were when they had so many tokens. */
void t5_rewind(rp_t5_session *s, int64_t length);
/* Drop all rows but one. */
rp_status t5_keep_row(rp_t5_session *s, int32_t r);
int64_t t5_length(const rp_t5_session *s);

/* ------------------------------------------------------------------------------------------------ screen.c */

/* 8 bits of the head beside it, which are made once enough steps were taken to pay for them. */
typedef struct t5_screen {
    pthread_mutex_t lock; /* around making it */
    _Atomic bool made;
    _Atomic bool without; /* there was no memory for it: the whole head is read from then on */
    linear_screen screen;
    void *memory;
    _Atomic int64_t before; /* steps until it was made */
    _Atomic int64_t rows, candidates,
        whole; /* rows since; exact logits that were made; rows that read the whole head */
} t5_screen;

/* A screen for a model whose head is large enough; m->screen stays NULL for others. */
rp_status t5_screen_open(rp_t5 *m);
void t5_screen_close(rp_t5 *m);
/* Make it now. Without memory for it the model goes on without. */
rp_status t5_screen_make(const rp_t5 *m);
/* Whether a step of greedy decoding of so many rows goes through the screen, which is made when it is time. */
rp_status t5_screen_ready(const rp_t5 *m, int64_t rows, bool *ready);
/* Bounds [rows, 2, vocab] of the logits of hidden states, which are ld apart. */
rp_status t5_screen_bounds(const rp_t5 *m, int64_t rows, const float *hidden, int64_t ld, float *bounds);
/* The logits of a hidden state that may be the largest once g has processed them, from its bounds, which are spoilt; -INFINITY elsewhere. */
struct t5_prefix;
rp_status t5_screen_logits(rp_t5_session *s, const rp_t5 *m, const float *hidden, const rp_t5_generation *g,
                           const struct t5_prefix *p, float *bounds, float *logits);
/* The logits of n tokens as the whole head gives them, and -INFINITY for the others from `first` on; exact [n] is room to work in. */
rp_status t5_some_logits(const rp_t5 *m, const float *hidden, int64_t n, const int32_t *tokens, float *exact,
                         int64_t first, float *logits);

/* ------------------------------------------------------------------------------------------------ draft.c */

/* The layers of the decoder with fewer bits, which propose what the decoder itself then checks. */
typedef struct t5_draft {
    linear_type type;
    t5_block *blocks; /* norms and tables are the decoder's */
    t5_feed *experts;
    unsigned char *memory;
    int64_t bytes;
    int64_t frequent; /* of a large head the first tokens are looked at, and those of the source */
} t5_draft;

rp_status t5_draft_open(rp_t5 *m, linear_type type);
void t5_draft_close(rp_t5 *m);
/* Logits of a hidden state of the draft, -INFINITY for tokens that it does not look at. */
rp_status t5_draft_logits(t5_work *w, const float *hidden, const rp_t5_tokens *source, float *logits);

/* ------------------------------------------------------------------------------------------------ logits.c */

/* A sequence that is being written: tokens[0] is the start token. */
typedef struct t5_prefix {
    const int32_t *tokens;
    int64_t n;      /* tokens so far */
    int64_t forced; /* of them given: start and prefix */
} t5_prefix;

/* What the penalties and bounds of g do with scores of the next token: with each by itself, and so that a larger value
 * of it gives no smaller one (screen.c). */
void t5_process(const rp_t5 *m, const rp_t5_generation *g, const t5_prefix *p, float *scores);
bool t5_is_eos(const rp_t5 *m, int32_t token);
/* Draw from softmax(scores / temperature) within top_k and top_p. key and step say which number is drawn, whatever else is. */
rp_status t5_draw(const rp_t5_generation *g, float *scores, int64_t vocab, uint64_t key, int64_t step, int32_t *token);
uint64_t t5_random_key(uint64_t seed, int64_t source, int64_t copy);

/* Whether the text of the tokens after the forced ones ends generation: it contains one of g's stop strings. */
rp_status t5_stops(const rp_t5 *m, const rp_t5_generation *g, const t5_prefix *p, bool *stops);

/* ------------------------------------------------------------------------------------------------ generate.c, beam.c */

struct rp_t5_results {
    rp_t5_sequence *sequences;
    int64_t n;
    rp_t5_drafted drafted;
};
/* Append a sequence whose tokens, without the start token, are copied. */
rp_status t5_add_result(rp_t5_results *r, int64_t source, int64_t index, const int32_t *tokens, int64_t n, double score,
                        bool finished);
rp_status t5_beam_search(const rp_t5 *m, rp_t5_session *s, int64_t first, int64_t n_sources, const rp_t5_generation *g,
                         rp_t5_results *results);

#endif
