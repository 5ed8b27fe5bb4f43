/* t5.h -- models of the T5 family on a CPU: from text or tokens to hidden states, scores or text. This is the interface
 * of the library relpos_t5, which uses relpos.
 *
 *     rp_t5 *model;
 *     if (rp_t5_open(&model, "flan-t5-small", NULL) != RP_OK) { puts(rp_t5_last_error()); exit(1); }
 *     int32_t *tokens; int64_t n;
 *     rp_t5_tokenize(model, "translate English to German: Good morning.", -1, &tokens, &n);
 *     rp_t5_tokens source = {tokens, n};
 *     rp_t5_generation g = rp_t5_generation_of(model);          // the defaults of the model
 *     rp_t5_results *results;
 *     rp_t5_generate(model, 1, &source, &g, &results);
 *     char *text;
 *     rp_t5_detokenize(model, rp_t5_result(results, 0)->tokens, rp_t5_result(results, 0)->n, &text, NULL);
 *     puts(text);
 *     rp_t5_free(text);  rp_t5_results_free(results);  rp_t5_free(tokens);  rp_t5_close(model);
 *
 * Each block computes the following, with x the residual stream in f32 and n(x) = w x / sqrt(mean(x^2) + eps):
 *
 *     x += o softmax(q k^T + bias) v       of n(x): T5's buckets, two-sided in the encoder, causal in the decoder
 *     x += o softmax(q k^T) v              in the decoder: q of n(x), k and v of the encoder's output
 *     x += wo act(wi n(x))                 or wo (act(wi_0 n(x)) * wi_1 n(x))
 *
 * The bits of a result do not depend on the other sources of the call, on the number of threads, or on how the target
 * was fed (token by token or all together). They depend on the type of the weights and on the instruction set.
 *
 * Letters   d width of the model, V rows of the vocabulary.
 * Errors    every call returns rp_status. RP_E_ARG: an invalid argument, or a file that is unreadable or invalid.
 *           RP_E_RANGE: a number outside its bounds, or computed hidden states or logits that are not finite.
 *           RP_E_UNSUPPORTED: valid but not supported. Also RP_E_NOMEM and RP_E_CANCELLED. rp_t5_last_error returns one
 *           line about the error. A call that fails returns nothing to free.
 * Threads   an open model never changes: any number of threads may use it concurrently. Only one thread at a time may
 *           use a session.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_H
#define RELPOS_T5_H

#include "relpos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------- errors: messages and memory */

/* Return one line about the last failure of this library on this thread, or "" before any failure. */
RP_API const char *rp_t5_last_error(void);

/* Free memory that this library returned, unless a call below frees its type. NULL is allowed. */
RP_API void rp_t5_free(void *memory);

/* -------------------------------------------------------------------------------------- models: opening and packing */

/* An open model. */
typedef struct rp_t5 rp_t5;

/* The parts of a model to load. */
typedef enum rp_t5_loading {
    RP_T5_LOAD_ALL = 0,
    RP_T5_LOAD_SIZES = 1, /* weights are checked and counted for rp_t5_about, but not packed */
    RP_T5_LOAD_TEXT = 2   /* configuration and tokenizer only, from a folder that may have no weights; layers are 0 */
} rp_t5_loading;

/* Options of rp_t5_open. Start from rp_t5_opening_init, where all are zero. */
typedef struct rp_t5_opening {
    size_t size; /* sizeof(rp_t5_opening) */
    /* Type of the weights: "f32", "f16", "bf16", "int8", "int4"; NULL: the narrowest type that keeps the values of the
     * file. Some types also round the inputs of linear layers: bf16 to bf16, int8 and int4 to 8 bits. With these three
     * types the queries, cached keys and values, and results of the decoder's attention are bf16. */
    const char *type;
    rp_pool *pool; /* threads of every call; NULL: the default pool */
    /* Weights of a draft that proposes tokens, see rp_t5_generate: "int8", "int4"; NULL: none. A draft takes memory:
     * the decoder's layers are packed a second time. A large head of f32, f16 or bf16 is also packed in 8 bits, in a
     * quarter or half of its size. */
    const char *draft;
    /* If not RP_T5_LOAD_ALL, calls for text work, and calls that compute return RP_E_UNSUPPORTED. */
    rp_t5_loading load;
} rp_t5_opening;

/* Return the default options. */
static inline rp_t5_opening rp_t5_opening_init(void)
{
    rp_t5_opening o = {sizeof(rp_t5_opening), NULL, NULL, NULL, RP_T5_LOAD_ALL};
    return o;
}

/* Open a model: a folder written by save_pretrained, or a file written by rp_t5_pack. A folder has config.json,
 * model.safetensors (or shards with their index) and optionally generation_config.json. Its tokenizer is in
 * tokenizer.json, or in spiece.model with optional added_tokens.json, tokenizer_config.json and
 * special_tokens_map.json. Files are mapped: they must not change until the model is closed.
 *
 * Edges    errors name each tensor that is missing, unknown or of another shape. A checkpoint without a decoder can
 *          only encode. A tokenizer with more pieces than the embedding has rows is ignored: the model then takes no
 *          text. Norms and biases stay f32. With "int4" the embedding and the head are int8.
 * Returns  RP_OK and *model; on an error *model = NULL. */
RP_API rp_status rp_t5_open(rp_t5 **model, const char *path, const rp_t5_opening *opening);

/* Close a model. No call or session may be using it. NULL is allowed. */
RP_API void rp_t5_close(rp_t5 *model);

/* Write a model as one file that rp_t5_open maps without a copy. The file has the packed weights, config.json,
 * generation_config.json, the tokenizer and the name of the folder. It also has two checksums, of the folder's tensors
 * and of the whole file. On failure no file is written. Overwriting a file that the model was read from is refused. */
RP_API rp_status rp_t5_pack(const rp_t5 *model, const char *path);

/* Compare a packed file with its checksum. This reads the whole file; rp_t5_open does not check it.
 *
 * Progress as in rp_t5_encode, called after each tensor.
 * Returns  RP_OK; RP_E_ARG if the file has changed since it was packed; RP_E_UNSUPPORTED for a folder or a file of
 *          format 1, which have no checksum. */
RP_API rp_status rp_t5_check_file(const rp_t5 *model, rp_progress *progress, void *progress_context);

/* Return 1 if the path leads to a file that the model was read from, which a program should not overwrite; else 0. */
RP_API int rp_t5_reads(const rp_t5 *model, const char *path);

/* Facts about a model. Later versions may add fields at the end: read it through the pointer. */
typedef struct rp_t5_info {
    const char *kind;       /* "t5", "mt5", "umt5", "longt5", "switch_transformers" */
    const char *type;       /* type of the weights: "f32", …; "" if they are not loaded */
    int64_t vocab;          /* V, rows of the vocabulary */
    int64_t d_model;        /* d, width of the model */
    int64_t d_kv;           /* width of a head */
    int64_t d_ff;           /* inner width of the feed-forward layers */
    int64_t heads;          /* number of attention heads */
    int64_t layers;         /* layers of the encoder */
    int64_t decoder_layers; /* layers of the decoder; 0: the checkpoint has none */
    int64_t parameters;     /* number of elements of all weights */
    int64_t bytes;          /* size of all weights in memory */
    int64_t step_bytes;     /* bytes of the decoder and the head, read in each step; greedy decoding may read fewer */
    int32_t gated;          /* 1: the feed-forward layers have wi_0 and wi_1 */
    int32_t tied;           /* 1: the head shares the weights of the embedding */
    int32_t scaled;         /* 1: hidden states are multiplied by d^-0.5 before the head */
    int32_t has_tokenizer;  /* 1: the model takes text */
    int32_t start;          /* token that begins every output */
    int32_t eos;            /* first token that ends an output */
    int32_t pad;            /* token of padding */
    const char *activation; /* "relu", "gelu_new", "gelu", "silu" */
    const char *attention;  /* attention of the encoder: "full", "local", "transient-global" */
    int64_t experts;        /* experts of Switch; 0: none */
    int64_t not_finite;     /* number of NaN and infinite elements in the checkpoint's weights: 0 for a sound model */
    int32_t packed;         /* format of the packed file: 2, or 1 (relpos 0.1, no checksum); 0: a folder */
    const char *source;     /* name of the folder that was opened or packed; "" for a file of format 1 */
    const char *source_checksum; /* checksum over the tensors of the packed folder; "" if there is none */
} rp_t5_info;

/* Return the facts about a model. They belong to the model. */
RP_API const rp_t5_info *rp_t5_about(const rp_t5 *model);

/* -------------------------------------------------------------------------------------------- text: tokens and back */

/* The tokens of one sequence. They stay the caller's. */
typedef struct rp_t5_tokens {
    const int32_t *tokens; /* each 0 … V-1 */
    int64_t n;             /* number of tokens */
} rp_t5_tokens;

/* Tokenize a text of `bytes` bytes (-1: up to its final 0), and append the token that ends a source.
 * Memory   free *tokens with rp_t5_free.
 * Returns  RP_OK; RP_E_UNSUPPORTED if the model has no tokenizer. */
RP_API rp_status rp_t5_tokenize(const rp_t5 *model, const char *text, int64_t bytes, int32_t **tokens, int64_t *n);

/* Like rp_t5_tokenize, with a callback. It is called once a megabyte; a result other than 0 cancels the call, which
 * then returns RP_E_CANCELLED. NULL: no callback. */
RP_API rp_status rp_t5_tokenize_watched(const rp_t5 *model, const char *text, int64_t bytes,
                                        int (*cancelled)(void *context), void *context, int32_t **tokens, int64_t *n);

/* Convert tokens (each 0 … V-1) to text, without special tokens. *bytes is the length of the text without the final 0;
 * bytes may be NULL.
 * Memory   free *text with rp_t5_free. */
RP_API rp_status rp_t5_detokenize(const rp_t5 *model, const int32_t *tokens, int64_t n, char **text, int64_t *bytes);

/* Return the piece of a token, such as "▁the" or "</s>", or NULL if there is none. It belongs to the model. */
RP_API const char *rp_t5_piece(const rp_t5 *model, int32_t token);

/* ------------------------------------------------------------------------------------------------ encode */

/* Compute the hidden states of sources after the encoder's last norm.
 *
 * Shapes   out [sum of n, d] of f32: the rows of the first source, then of the second, and so on, without padding.
 *          Padding tokens in a source are attended to, as text encoders of image models expect.
 * Edges    a source without tokens has no rows.
 * Progress a callback as in rp_tensors. It is called between linear layers with the fraction done, and a result other
 *          than 0 cancels the call. NULL: no callback.
 * Returns  see Errors above; RP_E_CANCELLED if the callback cancelled the call: out is then undefined. */
RP_API rp_status rp_t5_encode(const rp_t5 *model, int64_t n_sources, const rp_t5_tokens *sources, float *out,
                              rp_progress *progress, void *progress_context);

/* ------------------------------------------------------------------------------------------------ generate */

/* When beam search ends: early_stopping of transformers. */
typedef enum rp_t5_stopping {
    RP_T5_STOP_LIKELY = 0,     /* false: when no running beam is likely to become better than the worst finished one */
    RP_T5_STOP_FIRST = 1,      /* true: when the number of finished hypotheses equals the number of beams */
    RP_T5_STOP_NEVER_EARLY = 2 /* "never": when no running beam can become better */
} rp_t5_stopping;

/* How targets are generated. Start from rp_t5_generation_of. Names and meanings are those of transformers. */
typedef struct rp_t5_generation {
    size_t size;                   /* sizeof(rp_t5_generation) */
    int64_t max_new_tokens;        /* largest number of new tokens, >= 1; 256 if the model does not set it */
    int64_t min_new_tokens;        /* number of new tokens before which the end token is not chosen */
    int32_t beams;                 /* 1: greedy, or sampling */
    int32_t returned;              /* num_return_sequences: results of each source, from the beams or by sampling */
    double length_penalty;         /* beam search: scores are divided by length to this power */
    rp_t5_stopping early_stopping; /* when beam search ends */
    int32_t sample;                /* 1: sample tokens; requires beams = 1 */
    double temperature;            /* temperature of sampling; > 0 */
    int64_t top_k;                 /* sample among the k likeliest tokens; 0: all */
    double top_p;                  /* sample among the likeliest tokens whose probabilities sum to top_p; 1: all */
    uint64_t seed;                 /* seed of sampling; the samples of a source do not depend on the rest of the call */
    int64_t first;                 /* index of the first source, if you split the sources into several calls */
    double repetition_penalty;     /* 1e-6 to 1e6; 1: none */
    int64_t no_repeat_ngram;       /* no_repeat_ngram_size; 0: none */
    int32_t forced_first;          /* forced_bos_token_id: first token after the start token; -1: none */
    int32_t forced_last;           /* forced_eos_token_id: token number max_new_tokens; -1: none */
    rp_t5_tokens suppress;         /* suppress_tokens: never chosen; borrowed */
    rp_t5_tokens begin_suppress;   /* begin_suppress_tokens: not chosen as the first new token; borrowed */
    const rp_t5_tokens *bad_words; /* bad_words_ids: sequences that are never completed; borrowed */
    int64_t n_bad_words;           /* number of bad_words */
    rp_t5_tokens prefix;           /* tokens of every target after the start token; borrowed */
    const char *const *stop;       /* non-empty texts; a target ends when it contains one of them; borrowed */
    int32_t n_stop;                /* number of stop texts */
    int32_t scores;                /* 1: compute rp_t5_sequence.score also for beams = 1 */
    /* A setting of generation_config.json that is not supported and makes rp_t5_generate refuse the call; NULL: none.
     * Set it to NULL to generate without that setting. It belongs to the model. */
    const char *unsupported;
    /* Called for each new token as soon as it is final: when it is chosen if beams = 1, otherwise when its source is
     * finished. index is the number of the result among those of the source. A result other than 0 cancels the call.
     * NULL: no callback. */
    int (*on_token)(void *context, int64_t source, int32_t index, int32_t token);
    /* Called between linear layers of the encoder and before each step; with a draft, a step is a pass of up to 8
     * tokens. A result other than 0 cancels the call. NULL: no callback. */
    int (*cancelled)(void *context);
    void *context; /* passed to both callbacks */
} rp_t5_generation;

/* A callback for rp_t5_generation.cancelled: cancel as soon as the int32_t that context points to is not 0. Any thread
 * may set it. */
RP_API int rp_t5_is_set(void *context);

/* Return the settings of the model's generation_config.json; if model is NULL, greedy decoding, as without that
 * file. */
RP_API rp_t5_generation rp_t5_generation_of(const rp_t5 *model);

/* One result. */
typedef struct rp_t5_sequence {
    int64_t source;   /* index of the source */
    int32_t index;    /* index among the results of the source, best first */
    int32_t finished; /* 1: the target ended by itself; 0: it reached max_new_tokens */
    int32_t *tokens;  /* tokens after the start token: the prefix, the new ones, and the end token if there is one */
    int64_t n;        /* number of tokens */
    /* beam search: log-probability / length^length_penalty; else the log-probability, or NaN if not requested */
    double score;
} rp_t5_sequence;

/* The results of one call: `returned` for each source, in the order of the sources. */
typedef struct rp_t5_results rp_t5_results;

/* Generate targets by greedy decoding, beam search or sampling. The tokens are those that transformers chooses from the
 * same logits.
 *
 * Draft    a model opened with a draft generates the same tokens and scores faster. While one row is left, the draft
 *          proposes up to 7 tokens and the model checks them in one pass. Several rows or beams share passes without
 *          the draft.
 * Edges    of tokens with equal scores, the smaller one comes first. For a source without tokens, the cross-attention
 *          adds nothing.
 * Memory   free *results with rp_t5_results_free.
 * Returns  see Errors above; RP_E_CANCELLED if a callback cancelled the call. */
RP_API rp_status rp_t5_generate(const rp_t5 *model, int64_t n_sources, const rp_t5_tokens *sources,
                                const rp_t5_generation *generation, rp_t5_results **results);

/* Return the number of results. */
RP_API int64_t rp_t5_results_size(const rp_t5_results *results);
/* Return result n, or NULL past the last. It belongs to the results. */
RP_API const rp_t5_sequence *rp_t5_result(const rp_t5_results *results, int64_t n);
/* Statistics of the draft in one call. */
typedef struct rp_t5_drafted {
    int64_t proposed; /* number of proposed tokens */
    int64_t accepted; /* number of proposed tokens that the model chose too */
    int64_t passes;   /* number of passes of the model that checked them */
} rp_t5_drafted;
/* Return the statistics of the draft, zeros if there is none. They belong to the results. */
RP_API const rp_t5_drafted *rp_t5_results_drafted(const rp_t5_results *results);
/* Free results; NULL is allowed. */
RP_API void rp_t5_results_free(rp_t5_results *results);

/* ------------------------------------------------------------------------------------------------ score */

/* Compute the log-probabilities of a target's tokens given its source: log p(token t | source, start, tokens before t).
 *
 * Shapes   each [target.n] of f64, or NULL; *total is their sum.
 * Progress as in rp_t5_encode.
 * Returns  see Errors above. */
RP_API rp_status rp_t5_score(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target, double *total, double *each,
                             rp_progress *progress, void *progress_context);

/* ------------------------------------------------------------------------------------------ steps: decoding by hand */

/* Decoding under the caller's control: encoded sources, and a cache of keys and values for each row. */
typedef struct rp_t5_session rp_t5_session;

/* Encode sources for decoding. positions is an estimate of the number of tokens of a row; rows may become longer.
 * Memory   the model must outlive the session; sources are not kept. */
RP_API rp_status rp_t5_begin(rp_t5_session **session, const rp_t5 *model, int64_t n_sources,
                             const rp_t5_tokens *sources, int64_t positions);

/* Feed one token to each of `rows` rows, and compute the logits of the next.
 *
 * Shapes   parents [rows]: the row of the previous step that row r continues; in the first step its source. Rows may be
 *          dropped, duplicated and reordered; all have the same number of tokens. tokens [rows]: in the first step
 *          rp_t5_info.start. logits [rows, V] of f32.
 * Memory   rows that continue one parent share its cache.
 * Returns  see Errors above; after an error the session can only be ended. */
RP_API rp_status rp_t5_step(rp_t5_session *session, int64_t rows, const int32_t *parents, const int32_t *tokens,
                            float *logits);

/* End a session; NULL is allowed. */
RP_API void rp_t5_end(rp_t5_session *session);

/* ---------------------------------------------------------------------------------------- attention: looking inside */

/* The attention layers of a model: self-attention of the encoder and of the decoder, and cross-attention. */
typedef enum rp_t5_part { RP_T5_ENCODER = 0, RP_T5_DECODER = 1, RP_T5_CROSS = 2 } rp_t5_part;

/* The inputs of the attention of one layer, for all heads: weights = softmax(<q, k> + table[bucket(key - query)]), with
 * scale 1. Later versions may add fields at the end: read it through the pointer. */
typedef struct rp_t5_attention {
    int64_t heads;         /* heads of the layer */
    int64_t d_kv;          /* width of a head */
    int64_t len_q;         /* number of queries */
    int64_t len_k;         /* number of keys */
    const double *q;       /* [heads, len_q, d_kv] */
    const double *k;       /* [heads, len_k, d_kv] */
    const double *v;       /* [heads, len_k, d_kv] */
    const float *table;    /* [buckets, heads], belongs to the model; NULL: no bias */
    int64_t buckets;       /* parameter of the term T5 */
    int64_t max_distance;  /* parameter of the term T5: offsets from here on share one bucket */
    int32_t bidirectional; /* parameter of the term T5; 1: offsets of both signs have buckets */
    int32_t causal;        /* 1: only keys at or before the query */
    int64_t window;        /* largest distance of a key; -1: no limit */
} rp_t5_attention;

/* Compute the inputs of the attention of layer `layer` for a source and a target, by rp_t5_reference. Query i of the
 * decoder reads token i - 1 of the target (query 0 reads the start token), and its output predicts token i.
 *
 * Edges    the encoder needs no target. Transient-global attention of LongT5 is not supported.
 * Memory   free *attention with rp_t5_attention_free. Progress as in rp_t5_encode.
 * Returns  see Errors above; RP_E_RANGE for a layer that does not exist; RP_E_ARG if there are no queries or no
 * keys. */
RP_API rp_status rp_t5_attention_of(const rp_t5 *model, rp_t5_part part, int64_t layer, rp_t5_tokens source,
                                    rp_t5_tokens target, rp_t5_attention **attention, rp_progress *progress,
                                    void *progress_context);
/* Free the result of rp_t5_attention_of; NULL is allowed. */
RP_API void rp_t5_attention_free(rp_t5_attention *attention);

/* Changes to the rounding of the reference, from whose effects a bound on errors is found. All zero: rounding as in the
 * model. */
typedef struct rp_t5_rounding {
    double noise;  /* each input of a linear layer is changed at random by up to this fraction of its size */
    uint64_t seed; /* seed of the noise, and of the choice of inputs for other_way */
    /* 1: skip all rounding to bf16 or 8 bits: of inputs of linear layers, and of inputs and outputs of the decoder's
     * attention */
    int32_t exact_inputs;
    /* inputs within this distance of the middle between two rounded values, as a fraction of the largest input of their
     * row, are rounded to the other value: all of them with seed 0, else a random half */
    double other_way;
} rp_t5_rounding;

/* Compute a model from its definition, in plain loops in double, from the same packed weights. It is slow; `relpos t5
 * verify` and the tests compare the other calls with it.
 *
 * Shapes   hidden [source.n, d] as in rp_t5_encode. logits [target.n, V]: those of each token of the target, given the
 *          tokens before it. Either may be NULL. Experts of the encoder have their capacity; experts of the decoder
 *          have no limit.
 * Progress as in rp_t5_encode.
 * Returns  see Errors above. */
RP_API rp_status rp_t5_reference(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target,
                                 const rp_t5_rounding *rounding, double *hidden, double *logits, rp_progress *progress,
                                 void *progress_context);

#ifdef __cplusplus
}
#endif
#endif
