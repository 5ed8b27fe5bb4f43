/* t5.h -- models of the T5 family: text or tokens in, hidden states, scores or text out, on a CPU. A library of its
 * own, relpos_t5, above relpos.
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
 * For every block, with x the residual stream in f32 and n(x) = w x / sqrt(mean(x^2) + eps):
 *
 *     x += o softmax(q k^T + bias) v       of n(x): T5's buckets, two-sided in the encoder, causal in the decoder
 *     x += o softmax(q k^T) v              in the decoder: q of n(x), k and v of the encoder's output
 *     x += wo act(wi n(x))                 or wo (act(wi_0 n(x)) * wi_1 n(x))
 *
 * The same bits: what comes out for a source does not depend on the other sources of the call, on threads, nor on how
 * the target was fed (token by token, or at once). It depends on the type of the weights and on the instruction set.
 *
 * Letters   d width of the model, V rows of the vocabulary.
 * Errors    every call returns rp_status: RP_E_ARG for a file that cannot be read or is not valid and for arguments,
 *           RP_E_RANGE for a number outside its bounds, and where hidden states or logits that were computed are
 *           not finite; RP_E_UNSUPPORTED for what is valid and not supported, RP_E_NOMEM, RP_E_CANCELLED.
 *           rp_t5_last_error has one line. On an error nothing has been made.
 * Threads   a model never changes after it was opened: any number of threads may use it at once. A session belongs to
 *           one thread at a time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_H
#define RELPOS_T5_H

#include "relpos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------- errors: what failed, and memory */

/* One line about the last failure of this library on this thread; "" before any. */
RP_API const char *rp_t5_last_error(void);

/* Free what this library returned by a pointer that has no call of its own; NULL is allowed. */
RP_API void rp_t5_free(void *memory);

/* -------------------------------------------------------------------------------------- models: opening and packing */

/* A model that was opened. */
typedef struct rp_t5 rp_t5;

/* What of a model is loaded. */
typedef enum rp_t5_loading {
    RP_T5_LOAD_ALL = 0,
    RP_T5_LOAD_SIZES = 1, /* weights are checked and counted, for rp_t5_about, but not packed */
    RP_T5_LOAD_TEXT = 2   /* the configuration and the tokenizer; a folder needs no weights, layers count 0 */
} rp_t5_loading;

/* How a model is opened. Start from rp_t5_opening_init: all zero. */
typedef struct rp_t5_opening {
    size_t size; /* sizeof(rp_t5_opening) */
    /* Of weights: "f32", "f16", "bf16", "int8", "int4"; NULL: the narrowest that keeps the file's numbers. The inputs
     * of linear layers are rounded too: with bf16 to bf16, with int8 and int4 to 8 bits. With these three the decoder's
     * attention takes queries, keeps keys and values, and gives results in bf16. */
    const char *type;
    rp_pool *pool; /* threads for every call; NULL: the default pool */
    /* "int8", "int4": a draft of such weights proposes tokens, see rp_t5_generate; NULL: none. Opening packs the
     * decoder's layers again, and makes 8 bits of a large head of f32, f16 or bf16, a quarter or half of its memory. */
    const char *draft;
    /* Other than RP_T5_LOAD_ALL: text can be used, and calls that compute return RP_E_UNSUPPORTED. */
    rp_t5_loading load;
} rp_t5_opening;

/* An opening with every default. */
static inline rp_t5_opening rp_t5_opening_init(void)
{
    rp_t5_opening o = {sizeof(rp_t5_opening), NULL, NULL, NULL, RP_T5_LOAD_ALL};
    return o;
}

/* Open a model: a folder as save_pretrained leaves it (config.json; model.safetensors, or shards with their index;
 * generation_config.json; tokenizer.json, or spiece.model with added_tokens.json, tokenizer_config.json and
 * special_tokens_map.json, where there are any), or a file that rp_t5_pack wrote. Files are mapped, and have to stay as
 * they are until the model is closed.
 *
 * Edges    every tensor that is missing, unknown or of another shape is named. A checkpoint without a decoder encodes
 *          only. A tokenizer with more pieces than the embedding has rows is not used: the model takes no text. Norms
 *          and biases stay f32. With "int4" the embedding and the head are int8.
 * Returns  RP_OK and *model, or an error and *model = NULL. */
RP_API rp_status rp_t5_open(rp_t5 **model, const char *path, const rp_t5_opening *opening);

/* Close a model that no call and no session is using; NULL is allowed. */
RP_API void rp_t5_close(rp_t5 *model);

/* Write a model as one file that rp_t5_open maps without a copy: weights as they were packed, config.json,
 * generation_config.json and the tokenizer; the name of its folder, and checksums of the folder's tensors and of all
 * that the file has. The file appears whole or not at all. A file that the model was read from is refused. */
RP_API rp_status rp_t5_pack(const rp_t5 *model, const char *path);

/* Compare a packed file with its checksum, which reads all of it. rp_t5_open does not.
 *
 * Progress as in rp_t5_encode, called after each tensor.
 * Returns  RP_OK; RP_E_ARG where the file has changed since it was packed; RP_E_UNSUPPORTED where there is no checksum:
 *          of a folder, or a file of format 1. */
RP_API rp_status rp_t5_check_file(const rp_t5 *model, rp_progress *progress, void *progress_context);

/* 1: the path leads to a file that the model was read from, which a program should not write over; 0: it does not. */
RP_API int rp_t5_reads(const rp_t5 *model, const char *path);

/* What is known of a model. Grows at its end: read it through the pointer. */
typedef struct rp_t5_info {
    const char *kind;       /* "t5", "mt5", "umt5", "longt5", "switch_transformers" */
    const char *type;       /* of weights: "f32", …; "" where they are not loaded */
    int64_t vocab;          /* V */
    int64_t d_model;        /* d */
    int64_t d_kv;           /* width of a head */
    int64_t d_ff;           /* inner width of the feed-forward layers */
    int64_t heads;          /* heads of attention */
    int64_t layers;         /* of the encoder */
    int64_t decoder_layers; /* of the decoder; 0: the checkpoint has none */
    int64_t parameters;     /* numbers in all weights */
    int64_t bytes;          /* of all weights as they are kept */
    int64_t step_bytes;     /* of the decoder and the head; greedy decoding may read fewer */
    int32_t gated;          /* 1: wi_0 and wi_1 */
    int32_t tied;           /* 1: the head is the embedding */
    int32_t scaled;         /* 1: hidden states times d^-0.5 before the head */
    int32_t has_tokenizer;  /* 1: text can be used */
    int32_t start;          /* the token that begins every output */
    int32_t eos;            /* the (first) token that ends one */
    int32_t pad;            /* padding */
    const char *activation; /* "relu", "gelu_new", "gelu", "silu" */
    const char *attention;  /* of the encoder: "full", "local", "transient-global" */
    int64_t experts;        /* of Switch; 0 */
    int64_t not_finite;     /* numbers in the checkpoint's weights that are NaN or infinite: 0 of a sound model */
    int32_t packed;         /* format of the packed file: 2, or 1 of relpos 0.1, which has no checksum; 0: a folder */
    const char *source;     /* name of the folder, also of a packed file; "": a file of format 1 does not say */
    const char *source_checksum; /* of a packed file: over the tensors of that folder; "" */
} rp_t5_info;

/* What is known of a model; it belongs to the model. */
RP_API const rp_t5_info *rp_t5_about(const rp_t5 *model);

/* -------------------------------------------------------------------------------------------- text: tokens and back */

/* Tokens of one sequence, borrowed. */
typedef struct rp_t5_tokens {
    const int32_t *tokens; /* each 0 … V-1 */
    int64_t n;             /* how many */
} rp_t5_tokens;

/* The tokens of a text of `bytes` bytes (-1: up to its final 0), with the token that ends a source.
 * Memory   *tokens is the caller's: rp_t5_free.
 * Returns  RP_OK; RP_E_UNSUPPORTED where the model has no tokenizer. */
RP_API rp_status rp_t5_tokenize(const rp_t5 *model, const char *text, int64_t bytes, int32_t **tokens, int64_t *n);

/* Like rp_t5_tokenize, with a callback that is called once a megabyte: other than 0 cancels the call, which then
 * returns RP_E_CANCELLED. NULL: not called. */
RP_API rp_status rp_t5_tokenize_watched(const rp_t5 *model, const char *text, int64_t bytes,
                                        int (*cancelled)(void *context), void *context, int32_t **tokens, int64_t *n);

/* The text of tokens (each 0 … V-1), special ones left out; *bytes, which may be NULL, is its length without the
 * final 0.
 * Memory   *text is the caller's: rp_t5_free. */
RP_API rp_status rp_t5_detokenize(const rp_t5 *model, const int32_t *tokens, int64_t n, char **text, int64_t *bytes);

/* The piece of a token, such as "▁the" or "</s>"; NULL where there is none. It belongs to the model. */
RP_API const char *rp_t5_piece(const rp_t5 *model, int32_t token);

/* ------------------------------------------------------------------------------------------------ encode */

/* Hidden states of sources after the encoder's last norm.
 *
 * Shapes   out [sum of n, d] of f32: rows of the first source, then of the second, and so on, without padding. A source
 *          that is given with padding tokens attends to them: that is what text encoders of image models expect.
 * Edges    a source of no tokens has no rows.
 * Progress as rp_tensors has it: called between linear layers with the share that is done, and other than 0 ends the
 *          call. NULL: not called.
 * Returns  as above; RP_E_CANCELLED where progress said so: out is then undefined. */
RP_API rp_status rp_t5_encode(const rp_t5 *model, int64_t n_sources, const rp_t5_tokens *sources, float *out,
                              rp_progress *progress, void *progress_context);

/* ------------------------------------------------------------------------------------------------ generate */

/* When beam search ends: transformers' early_stopping. */
typedef enum rp_t5_stopping {
    RP_T5_STOP_LIKELY = 0,     /* false: when no running beam is likely to get better than the worst finished one */
    RP_T5_STOP_FIRST = 1,      /* true: when as many are finished as there are beams */
    RP_T5_STOP_NEVER_EARLY = 2 /* "never": when none can get better */
} rp_t5_stopping;

/* How targets are written. Start from rp_t5_generation_of. Names and meanings are those of transformers. */
typedef struct rp_t5_generation {
    size_t size;                   /* sizeof(rp_t5_generation) */
    int64_t max_new_tokens;        /* >= 1; 256 where the model says nothing */
    int64_t min_new_tokens;        /* the end is not written before */
    int32_t beams;                 /* 1: greedy, or sampling */
    int32_t returned;              /* num_return_sequences: results of each source; of beams, or samples */
    double length_penalty;         /* of beams: scores are divided by length to this power */
    rp_t5_stopping early_stopping; /* when beam search ends */
    int32_t sample;                /* 1: draw tokens; with one beam */
    double temperature;            /* of sampling; > 0 */
    int64_t top_k;                 /* draw among so many; 0: all */
    double top_p;                  /* draw among the likeliest that have this share; 1: all */
    uint64_t seed;                 /* the same seed gives the same samples, whatever else is in the call */
    int64_t first;                 /* number of the first source, where a caller hands them over in several calls */
    double repetition_penalty;     /* 1e-6 to 1e6; 1: none */
    int64_t no_repeat_ngram;       /* no_repeat_ngram_size; 0: none */
    int32_t forced_first;          /* token that every target begins with after the start; -1: none */
    int32_t forced_last;           /* token that is written at max_new_tokens; -1: none */
    rp_t5_tokens suppress;         /* suppress_tokens: never written; borrowed */
    rp_t5_tokens begin_suppress;   /* begin_suppress_tokens: not the first that is chosen; borrowed */
    const rp_t5_tokens *bad_words; /* bad_words_ids: sequences, none of them written whole; borrowed */
    int64_t n_bad_words;           /* how many */
    rp_t5_tokens prefix;           /* of every target, after the start token; borrowed */
    const char *const *stop;       /* texts that end a target once they are in it, none of them empty; borrowed */
    int32_t n_stop;                /* how many */
    int32_t scores;                /* 1: rp_t5_sequence.score also where there is one beam */
    const char *unsupported; /* what generation_config.json sets and this library does not do, which rp_t5_generate
                                  refuses; NULL: nothing, or write without it. It belongs to the model */
    /* Called for each new token as soon as it is final: with one beam when it is chosen, with several when its source
     * is done; index: which result of the source. Other than 0 cancels the call. NULL: not called. */
    int (*on_token)(void *context, int64_t source, int32_t index, int32_t token);
    /* Called between linear layers of the encoder and before each step, which with a draft is a pass of up to 8 tokens;
     * other than 0 cancels the call. NULL: not called. */
    int (*cancelled)(void *context);
    void *context; /* handed to both */
} rp_t5_generation;

/* For rp_t5_generation.cancelled: cancel once the int32_t that context points to is not 0. Any thread may set it. */
RP_API int rp_t5_is_set(void *context);

/* What the model's generation_config.json asks for; NULL: greedy, as without that file. */
RP_API rp_t5_generation rp_t5_generation_of(const rp_t5 *model);

/* One result. */
typedef struct rp_t5_sequence {
    int64_t source;   /* which source */
    int32_t index;    /* which of its results, the best first */
    int32_t finished; /* 1: it ended by itself; 0: max_new_tokens were written */
    int32_t *tokens;  /* after the start token: prefix, new ones, and the end where there is one */
    int64_t n;        /* how many */
    double score; /* of beams: log-probability / length^length_penalty; else the log-probability, or NaN: not asked */
} rp_t5_sequence;

/* The results of one call: `returned` for each source, in the order of sources. */
typedef struct rp_t5_results rp_t5_results;

/* Write targets: greedy, beam search or sampling, token for token as transformers does from the same logits.
 *
 * Draft    a model that was opened with one writes the same tokens and scores, sooner: where one row is left, the draft
 *          proposes up to 7 tokens and one pass checks them. Several rows and beams share passes as they are.
 * Edges    equal scores: the smaller token first. A source of no tokens attends to nothing.
 * Memory   *results is the caller's: rp_t5_results_free.
 * Returns  as above; RP_E_CANCELLED where a callback said so. */
RP_API rp_status rp_t5_generate(const rp_t5 *model, int64_t n_sources, const rp_t5_tokens *sources,
                                const rp_t5_generation *generation, rp_t5_results **results);

/* How many results there are. */
RP_API int64_t rp_t5_results_size(const rp_t5_results *results);
/* Result n; NULL past the last. It belongs to the results. */
RP_API const rp_t5_sequence *rp_t5_result(const rp_t5_results *results, int64_t n);
/* What the draft did. */
typedef struct rp_t5_drafted {
    int64_t proposed; /* tokens */
    int64_t accepted; /* of them, because the model chose them too */
    int64_t passes;   /* of the model, which checked them */
} rp_t5_drafted;
/* Of the whole call; zeros without a draft. It belongs to the results. */
RP_API const rp_t5_drafted *rp_t5_results_drafted(const rp_t5_results *results);
/* Free results; NULL is allowed. */
RP_API void rp_t5_results_free(rp_t5_results *results);

/* ------------------------------------------------------------------------------------------------ score */

/* Log-probabilities of a target's tokens given its source: log p(token t | source, start, tokens before t).
 *
 * Shapes   each [target.n] of f64, or NULL; *total is their sum.
 * Progress as for rp_t5_encode.
 * Returns  as above. */
RP_API rp_status rp_t5_score(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target, double *total, double *each,
                             rp_progress *progress, void *progress_context);

/* ------------------------------------------------------------------------------------------ steps: decoding by hand */

/* Decoding under the caller's control: encoded sources, and a cache of keys and values for each row. */
typedef struct rp_t5_session rp_t5_session;

/* Encode sources for decoding. positions: tokens that rows are expected to have; it may turn out otherwise.
 * Memory   the model has to outlive the session; sources are not kept. */
RP_API rp_status rp_t5_begin(rp_t5_session **session, const rp_t5 *model, int64_t n_sources,
                             const rp_t5_tokens *sources, int64_t positions);

/* Feed one token to each of `rows` rows, and get the logits of the next.
 *
 * Shapes   parents [rows]: the row of the step before that row r continues; in the first step its source. Rows may be
 *          dropped, copied and put in any order; all have the same number of tokens.
 *          tokens [rows]: in the first step rp_t5_info.start. logits [rows, V] of f32.
 * Memory   rows that continue one parent share its cache.
 * Returns  as above; after an error the session can only be ended. */
RP_API rp_status rp_t5_step(rp_t5_session *session, int64_t rows, const int32_t *parents, const int32_t *tokens,
                            float *logits);

/* End a session; NULL is allowed. */
RP_API void rp_t5_end(rp_t5_session *session);

/* ---------------------------------------------------------------------------------------- attention: looking inside */

/* Layers of a model that attend: of the encoder, of the decoder to itself, and of the decoder to the encoder. */
typedef enum rp_t5_part { RP_T5_ENCODER = 0, RP_T5_DECODER = 1, RP_T5_CROSS = 2 } rp_t5_part;

/* What the attention of one layer is made of, all heads: weights = softmax(<q, k> + table[bucket(key - query)]), with
 * scale 1. Grows at its end: read it through the pointer. */
typedef struct rp_t5_attention {
    int64_t heads;         /* of the layer */
    int64_t d_kv;          /* width of a head */
    int64_t len_q;         /* queries */
    int64_t len_k;         /* keys */
    const double *q;       /* [heads, len_q, d_kv] */
    const double *k;       /* [heads, len_k, d_kv] */
    const double *v;       /* likewise */
    const float *table;    /* [buckets, heads], which belongs to the model; NULL: there is no bias */
    int64_t buckets;       /* of the term T5, as are the next two */
    int64_t max_distance;  /* from where on all offsets are in one bucket */
    int32_t bidirectional; /* 1: offsets of both signs have buckets */
    int32_t causal;        /* 1: only keys at or before the query */
    int64_t window;        /* keys this far at most; -1: all */
} rp_t5_attention;

/* The attention of layer `layer` for a source and a target, by rp_t5_reference. Query i of the decoder reads token
 * i - 1 of the target, the first the start token, and its output is for token i.
 *
 * Edges    the encoder needs no target. Transient-global attention of LongT5 is not supported.
 * Memory   *attention is the caller's: rp_t5_attention_free. Progress as for rp_t5_encode.
 * Returns  as above; RP_E_RANGE for a layer that is not there, RP_E_ARG where there are no queries or no keys. */
RP_API rp_status rp_t5_attention_of(const rp_t5 *model, rp_t5_part part, int64_t layer, rp_t5_tokens source,
                                    rp_t5_tokens target, rp_t5_attention **attention, rp_progress *progress,
                                    void *progress_context);
/* Free it; NULL is allowed. */
RP_API void rp_t5_attention_free(rp_t5_attention *attention);

/* How the reference rounds, so that a bound on errors can be found by changing it. All zero: as the model does. */
typedef struct rp_t5_rounding {
    double noise;  /* each input of a linear layer is off by up to this share of it, at random */
    uint64_t seed; /* of the noise, and of which inputs are rounded the other way */
    /* 1: inputs of linear layers are not rounded, to bf16 with bf16, to 8 bits with int8 and int4, and what goes in and
     * out of the decoder's attention not to bf16 */
    int32_t exact_inputs;
    /* inputs that lie this close to the middle between two rounded values, as a share of the largest input of their
     * row, are rounded to the other one: all of them with seed 0, else about half, drawn */
    double other_way;
} rp_t5_rounding;

/* The definition of the model by plain loops in double, from the same weights as they are kept: slow, and what
 * `relpos t5 verify` and the tests compare the other calls with.
 *
 * Shapes   hidden [source.n, d] as rp_t5_encode; logits [target.n, V], of each token of the target given those before
 *          it. Either may be NULL. Experts of the encoder have their capacity, those of the decoder none.
 * Progress as for rp_t5_encode.
 * Returns  as above. */
RP_API rp_status rp_t5_reference(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target,
                                 const rp_t5_rounding *rounding, double *hidden, double *logits, rp_progress *progress,
                                 void *progress_context);

#ifdef __cplusplus
}
#endif
#endif
