/* encoder.h -- encoders for search and classification: text or tokens in, hidden states, vectors or scores out, on a
 * CPU. The library is relpos_encoder; it uses relpos.
 *
 *     rp_encoder *model;
 *     if (rp_encoder_open(&model, "all-mpnet-base-v2", NULL) != RP_OK) { puts(rp_encoder_last_error()); exit(1); }
 *     const rp_encoder_text texts[2] = {{"A cat sleeps.", -1, NULL, 0}, {"Stocks fell.", -1, NULL, 0}};
 *     float *vectors = malloc(2 * rp_encoder_about(model)->vector_width * sizeof *vectors);
 *     if (rp_encoder_embed(model, NULL, 2, texts, vectors, NULL, NULL) != RP_OK) puts(rp_encoder_last_error());
 *     free(vectors);  rp_encoder_close(model);
 *
 * Each layer computes, with n(x) = (x - mean(x)) / sqrt(var(x) + eps) * w + b and the biases of linear layers not
 * shown:
 *
 *     x = n1(x + o softmax(scale q k^T + bias) v)     q, k, v from x      norms after layers (BERT, MPNet, DeBERTa)
 *     x = n2(x + down act(up x))
 *
 *     x += o softmax(scale q k^T + bias) v            q, k, v from n1(x)   norms before layers (ModernBERT, ESM-2)
 *     x += down act(up n2(x))
 *
 * Reproducible: the bits of a result do not depend on the other texts of the call or on threads. They depend on the
 * type of the weights and on the instruction set.
 *
 * Letters   d width of the model, V rows of the vocabulary.
 * Errors    RP_E_ARG: a file that cannot be read, is invalid or has changed, or a bad argument. RP_E_RANGE: a number or
 *           token outside its bounds, too many tokens, or computed numbers that are not finite. RP_E_UNSUPPORTED:
 *           valid, but not supported. RP_E_OVERFLOW: sizes whose product is too large. RP_E_CANCELLED: a callback
 *           cancelled the call. Each function names its errors. rp_encoder_last_error describes the error in one line.
 *           A call that fails creates nothing.
 * Threads   a model does not change after it is opened; any number of threads may use it concurrently.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ENCODER_H
#define RELPOS_ENCODER_H

#include "relpos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------- failures: the last one, and memory */

/* Return one line about the last failure of this library on this thread, or "" if there was none. */
RP_API const char *rp_encoder_last_error(void);

/* Free memory that this library returned. NULL is allowed. */
RP_API void rp_encoder_free(void *memory);

/* ------------------------------------------------------------------------------ encoders: opening, sizes and labels */

/* An open model. */
typedef struct rp_encoder rp_encoder;

/* Options of rp_encoder_open. Start from rp_encoder_opening_init, which sets every field but size to zero. */
typedef struct rp_encoder_opening {
    size_t size; /* sizeof(rp_encoder_opening) */
    /* Type of the matrices of linear layers and of the embedding: "f32", "f16", "bf16", "q8" or "int8"; NULL: the
     * narrowest of f32, f16 and bf16 that represents the file's numbers exactly. bf16 also rounds the inputs of linear
     * layers to bf16, q8 and int8 round them to 8 bits. q8 has a scale for every 32 numbers and is the type to choose
     * for 8 bits; int8 has one scale for each row, is faster, and changes vectors noticeably. */
    const char *type;
    rp_pool *pool; /* thread pool of every call; NULL: the default pool */
} rp_encoder_opening;

/* Return the default options. */
static inline rp_encoder_opening rp_encoder_opening_init(void)
{
    rp_encoder_opening o = {sizeof(rp_encoder_opening), NULL, NULL};
    return o;
}

/* Open a model: a file that rp_encoder_pack wrote, which must not be written to until the model is closed, or a folder
 * that save_pretrained of transformers or of sentence-transformers wrote. The latter contains config.json,
 * model.safetensors or pytorch_model.bin (or shards with their index), and tokenizer.json or vocab.txt. Optional: the
 * modules.json of sentence-transformers, which says how the vector of a text is made.
 *
 * Edges    the error lists the tensors that are missing, unknown or of the wrong shape. Norms, biases and tables
 *          remain f32. If there is no tokenizer, or it cannot be read, the model accepts tokens but no text; errors
 *          then say why. Without modules.json, a vector is the mean of the hidden states.
 * Returns  RP_OK and *model; on an error *model = NULL and RP_E_ARG, RP_E_UNSUPPORTED, RP_E_OVERFLOW or RP_E_NOMEM. */
RP_API rp_status rp_encoder_open(rp_encoder **model, const char *path, const rp_encoder_opening *opening);

/* Write a model to one file that rp_encoder_open maps without copying: the packed weights, those of the modules of
 * sentence-transformers, DeBERTa's vectors of positions, the JSON files of its folder, the tokenizer, the name of the
 * folder and a checksum. The file is either written completely or not at all. It is an error to overwrite a file from
 * which the model was read.
 * Returns  RP_OK, RP_E_ARG, RP_E_NOMEM. */
RP_API rp_status rp_encoder_pack(const rp_encoder *model, const char *path);

/* Check the checksum of a packed file. This reads the whole file; rp_encoder_open does not check it.
 *
 * Progress as in rp_encoder_hidden, called after each tensor.
 * Returns  RP_OK; RP_E_ARG if the file has changed since it was packed; RP_E_UNSUPPORTED if the model is a folder;
 *          RP_E_NOMEM; RP_E_CANCELLED. */
RP_API rp_status rp_encoder_check_file(const rp_encoder *model, rp_progress *progress, void *progress_context);

/* Write a checksum of the model to `text`: 16 hexadecimal digits, of its tensors, JSON files and tokenizer. A packed
 * file has the checksum of the folder it was packed from. For a folder, this reads all tensors.
 * Returns  RP_OK; RP_E_ARG if a pointer is NULL, or the files cannot be read or have changed; RP_E_NOMEM. */
RP_API rp_status rp_encoder_checksum(const rp_encoder *model, char text[17]);

/* Close a model. No call may be using it. NULL is allowed. */
RP_API void rp_encoder_close(rp_encoder *model);

/* Return 1 if `path` is a file from which the model was read (even under another name), else 0. */
RP_API int rp_encoder_reads(const rp_encoder *model, const char *path);

/* Sizes and properties of a model. Later versions append fields, so read it only through the pointer. */
typedef struct rp_encoder_info {
    const char *kind;      /* model_type of config.json: "bert", "mpnet", … */
    const char *type;      /* type of the weights: "f32", … */
    int64_t vocab;         /* V */
    int64_t width;         /* d */
    int64_t heads;         /* attention heads */
    int64_t inner;         /* inner width of the feed-forward layers */
    int64_t layers;        /* number of layers */
    int64_t max_tokens;    /* max tokens of one sequence; 0: unlimited */
    int64_t parameters;    /* number of weights */
    int64_t bytes;         /* bytes of the weights in memory */
    int64_t not_finite;    /* number of NaN or infinite weights in the checkpoint; 0 for an intact model */
    int64_t vector_width;  /* width of a vector of rp_encoder_vector */
    int64_t vector_tokens; /* a text is cut to this number of tokens; 0: unlimited */
    int64_t labels;        /* outputs of the classification head; 0: there is no head */
    int32_t has_tokenizer; /* 1: the model accepts text */
    int32_t token_types;   /* number of token types; 0: the model has none */
    int32_t pad;           /* the padding token */
    int32_t packed;        /* 1: the model is a packed file; 0: a folder */
    int32_t plain_scores;  /* 1: CrossEncoder of sentence-transformers gives logits; 0: it gives their sigmoids; -1: it
                              applies another function, which is not supported */
    const char *why_no_scores; /* why scores of pairs or all outputs of the head are not supported; NULL: they are */
} rp_encoder_info;

/* Return the sizes and properties of a model. The model owns them. */
RP_API const rp_encoder_info *rp_encoder_about(const rp_encoder *model);

/* Return note n about how the model was opened, from 0 on, or NULL after the last. A note is one line about something
 * in its files that was changed or ignored. The model owns it. */
RP_API const char *rp_encoder_note(const rp_encoder *model, int64_t n);

/* Return the name of label n of the classification head (id2label of config.json), or NULL if there is none. The model
 * owns the string. */
RP_API const char *rp_encoder_label(const rp_encoder *model, int64_t n);

/* ---------------------------------------------------------------------------------------- sequences: text to tokens */

/* A text, or a pair of texts such as a query and a document. */
typedef struct rp_encoder_text {
    const char *text;   /* may contain NUL if `bytes` is given */
    int64_t bytes;      /* -1: null-terminated */
    const char *pair;   /* the second text; NULL: none */
    int64_t pair_bytes; /* as bytes */
} rp_encoder_text;

/* The tokens of one sequence, with special tokens; the arrays are borrowed. */
typedef struct rp_encoder_tokens {
    const int32_t *tokens; /* each 0 … V-1 */
    const int32_t *types;  /* token types, each 0 … token_types-1; NULL: all 0 */
    int64_t n;             /* number of tokens */
} rp_encoder_tokens;

/* Convert a text or a pair to tokens, with the special tokens of the model. max_tokens >= 0 cuts it: a text at its end,
 * and of a pair, token by token, the text that is longer (longest_first in transformers); 0: not cut.
 * Memory   free *tokens and *types with rp_encoder_free; `types` may be NULL.
 * Returns  RP_OK; RP_E_ARG; RP_E_RANGE if max_tokens has no room for the special tokens; RP_E_UNSUPPORTED if the model
 *          has no tokenizer; RP_E_NOMEM. */
RP_API rp_status rp_encoder_tokenize(const rp_encoder *model, const rp_encoder_text *text, int64_t max_tokens,
                                     int32_t **tokens, int32_t **types, int64_t *n);

/* ----------------------------------------------------------------------- results: hidden states, vectors and scores */

/* Compute the last hidden states of sequences.
 *
 * Shapes   out [sum of n, d] of f32: the rows of the first sequence, then of the second, and so on, without padding.
 *          Every token is attended to.
 * Edges    a sequence of no tokens has no rows.
 * Progress called between layers with the fraction done, as in rp_tensors. A return value other than 0 cancels the
 *          call. It may be NULL.
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED. After an error the contents of out
 *          are undefined. */
RP_API rp_status rp_encoder_hidden(const rp_encoder *model, int64_t n, const rp_encoder_tokens *sequences, float *out,
                                   rp_progress *progress, void *progress_context);

/* Compute the vector of a text from the n hidden states of its tokens, as SentenceTransformer.encode does: by the
 * modules that modules.json lists, or by their mean if there is no modules.json. The text began with `prompt`; NULL
 * means that it had none. Pooling omits the tokens of the prompt if the folder says so (include_prompt).
 *
 * Shapes   hidden [n, d]   vector [rp_encoder_info.vector_width]
 * Edges    without tokens to pool, the pooled numbers are 0.
 * Returns  RP_OK; RP_E_ARG; RP_E_RANGE if the vector is not finite; RP_E_NOMEM. */
RP_API rp_status rp_encoder_vector(const rp_encoder *model, const char *prompt, int64_t n, const float *hidden,
                                   float *vector);

/* Find the text of a prompt of config_sentence_transformers.json; with name = NULL, of the default prompt, which is ""
 * if there is none. The model owns *prompt.
 * Returns  RP_OK; RP_E_ARG if no prompt has this name; RP_E_UNSUPPORTED if the model has no modules.json. */
RP_API rp_status rp_encoder_prompt(const rp_encoder *model, const char *name, const char **prompt);

/* Compute the vectors of texts: rp_encoder_tokenize with max_tokens = vector_tokens, rp_encoder_hidden and
 * rp_encoder_vector. `prompt` is put before every text; NULL: the default prompt.
 *
 * Shapes   vectors [n, vector_width]
 * Progress as in rp_encoder_hidden.
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE, RP_E_UNSUPPORTED, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED. */
RP_API rp_status rp_encoder_embed(const rp_encoder *model, const char *prompt, int64_t n, const rp_encoder_text *texts,
                                  float *vectors, rp_progress *progress, void *progress_context);

/* Compute the outputs (logits) of the classification head for sequences.
 *
 * Shapes   logits [n, labels]
 * Progress as in rp_encoder_hidden.
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED; RP_E_UNSUPPORTED if the model
 *          has no head. */
RP_API rp_status rp_encoder_logits(const rp_encoder *model, int64_t n, const rp_encoder_tokens *sequences,
                                   float *logits, rp_progress *progress, void *progress_context);

/* Classify texts or pairs: rp_encoder_tokenize with max_tokens = vector_tokens and rp_encoder_logits, then sigmoid if
 * there is one label or problem_type of config.json is multi_label_classification, otherwise softmax over the labels.
 * If problem_type is regression, scores are the logits. An empty second text is none, as in the text-classification
 * pipeline of transformers; rp_encoder_rerank scores it, as CrossEncoder does.
 *
 * Shapes   scores [n, labels]
 * Progress as in rp_encoder_hidden.
 * Returns  as rp_encoder_embed; also RP_E_UNSUPPORTED if the model has no head. */
RP_API rp_status rp_encoder_classify(const rp_encoder *model, int64_t n, const rp_encoder_text *texts, float *scores,
                                     rp_progress *progress, void *progress_context);

/* Score pairs of a query and a document with a model that has one label, as CrossEncoder.predict of
 * sentence-transformers does: the logit, or its sigmoid, as the activation function in config.json says; sigmoid
 * without one. Other functions are not supported.
 *
 * Shapes   scores [n]
 * Progress as in rp_encoder_hidden.
 * Returns  as rp_encoder_classify; also RP_E_UNSUPPORTED if the model has several labels. */
RP_API rp_status rp_encoder_rerank(const rp_encoder *model, int64_t n, const rp_encoder_text *pairs, float *scores,
                                   rp_progress *progress, void *progress_context);

/* ---------------------------------------------------------------------------------------- residues: protein models */

/* Convert the residues of a protein to tokens of an ESM model: <cls>, one token for each residue, and <eos>. Lower case
 * is upper case; '-' and white space are dropped. J and stops ('*' or '.') become <unk>; *unknown is the number of
 * residues for which there is no token. The hidden states of the residues are those of tokens 1 to n - 2.
 * Memory   free *tokens with rp_encoder_free.
 * Returns  RP_OK; RP_E_ARG for another character, with its position; RP_E_RANGE for 2^31 residues or more;
 *          RP_E_UNSUPPORTED if the model is no ESM or has no tokenizer; RP_E_NOMEM. */
RP_API rp_status rp_encoder_residues(const rp_encoder *model, const char *text, int64_t bytes, int32_t **tokens,
                                     int64_t *n, int64_t *unknown);

/* Return the bytes that rp_encoder_hidden allocates for sequences of `tokens` tokens in total, of which the longest has
 * `longest` (without `out`); -1 if the sizes are not valid. */
RP_API int64_t rp_encoder_hidden_bytes(const rp_encoder *model, int64_t tokens, int64_t longest);

#ifdef __cplusplus
}
#endif

#endif
