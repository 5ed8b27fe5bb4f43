/* t5.h -- models of the T5 family: text or tokens in, hidden states, scores or text out, on a CPU. The library is
 * relpos_t5; it uses relpos.
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
 * Each block computes, with x the residual stream in f32 and n(x) = w x / sqrt(mean(x^2) + eps):
 *
 *     x += o softmax(q k^T + bias) v       q, k, v from n(x); T5 buckets: two-sided (encoder), causal (decoder)
 *     x += o softmax(q k^T) v              decoder only: q from n(x), k and v from the encoder's output
 *     x += wo act(wi n(x))                 or wo (act(wi_0 n(x)) * wi_1 n(x))
 *
 * Reproducible: the bits of a result do not depend on the other sources of the call, on threads, or on whether the
 * target is processed token by token or in one step. They depend on the type of the weights and on the instruction set.
 *
 * Letters   d width of the model, V rows of the vocabulary.
 * Errors    RP_E_ARG: a file that cannot be read, is invalid or has changed, or a bad argument. RP_E_RANGE: a number or
 *           token outside its bounds, or computed hidden states or logits that are not finite. RP_E_UNSUPPORTED: valid,
 *           but not supported, also by a model that was opened without its weights. RP_E_OVERFLOW: sizes whose product
 *           is too large. RP_E_CANCELLED: a callback cancelled the call. Each function names its errors.
 *           rp_t5_last_error describes the error in one line. A call that fails creates nothing.
 * Threads   a model does not change after it is opened; any number of threads may use it concurrently. A session may be
 *           used by one thread at a time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_H
#define RELPOS_T5_H

#include "relpos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------- errors: what failed, and memory */

/* Return one line about the last failure of this library on this thread, or "" if there was none. */
RP_API const char *rp_t5_last_error(void);

/* Free memory that this library returned, unless another function of this header frees it. NULL is allowed. */
RP_API void rp_t5_free(void *memory);

/* -------------------------------------------------------------------------------------- models: opening and packing */

/* An open model. */
typedef struct rp_t5 rp_t5;

/* Which parts of a model rp_t5_open loads. */
typedef enum rp_t5_loading {
    RP_T5_LOAD_ALL = 0,   /* everything */
    RP_T5_LOAD_SIZES = 1, /* check and count the weights, for rp_t5_about, but do not pack them */
    RP_T5_LOAD_TEXT = 2   /* only configuration and tokenizer; a folder needs no weights, and rp_t5_info has 0 layers */
} rp_t5_loading;

/* Options of rp_t5_open. Start from rp_t5_opening_init, which sets every field but size to zero. */
typedef struct rp_t5_opening {
    size_t size; /* sizeof(rp_t5_opening) */
    /* Type of the weights: "f32", "f16", "bf16", "int8", "int4" or "q8"; NULL: the narrowest that represents the
     * file's numbers exactly. Blocks of a .gguf file other than Q8_0 are then used in the mapped file, and the type of
     * rp_t5_info is "gguf". bf16 also rounds the inputs of linear layers to bf16; int8, int4, q8 and blocks round them
     * to 8 bits. With these types, the queries, keys, values and results of the decoder's attention are bf16. */
    const char *type;
    rp_pool *pool; /* thread pool of every call; NULL: the default pool */
    /* Type of a draft, "int8" or "int4", which proposes tokens (see rp_t5_generate); NULL: no draft. For a draft,
     * rp_t5_open packs the decoder's layers a second time. If the head is large and f32, f16 or bf16, it also makes an
     * int8 copy of the head, which takes a quarter or half of the head's memory. */
    const char *draft;
    /* What to load. Unless this is RP_T5_LOAD_ALL, functions that run the model return RP_E_UNSUPPORTED. */
    rp_t5_loading load;
    /* The tokenizer: a folder, or a tokenizer.json or spiece.model. NULL: the one of the model. */
    const char *tokenizer;
    int32_t no_tokenizer; /* 1: use none; the model then accepts only tokens, and rp_t5_pack writes none */
} rp_t5_opening;

/* Return the default options. */
static inline rp_t5_opening rp_t5_opening_init(void)
{
    rp_t5_opening o = {sizeof(rp_t5_opening), NULL, NULL, NULL, RP_T5_LOAD_ALL, NULL, 0};
    return o;
}

/* Open a model: a folder that save_pretrained wrote, a .gguf file of llama.cpp (architecture t5 or t5encoder), a
 * file that rp_t5_pack wrote, or a single file of weights, such as a text encoder of an image model, whose tensors
 * have the names of transformers or of Wan. A folder contains config.json and model.safetensors or pytorch_model.bin
 * (or shards with their index). Optional: generation_config.json; tokenizer.json or spiece.model, with
 * added_tokens.json, tokenizer_config.json and special_tokens_map.json; the modules.json of sentence-transformers, for
 * rp_t5_vector.
 *
 * The files are mapped. Until the model is closed, do not write to them, but replace them with mv. A call that finds a
 * changed file fails. Reading past the end of one that became shorter raises SIGBUS: the program relpos catches it, the
 * library does not.
 *
 * Edges    the error lists the tensors that are missing, unknown or of the wrong shape. A checkpoint without a decoder
 *          only encodes. If the tokenizer cannot be read, or has more pieces than the embedding has rows, the model
 *          accepts tokens but no text; errors then say why. Norms and biases remain f32. With "int4" the embedding and
 *          the head are int8.
 * Returns  RP_OK and *model; on an error *model = NULL and RP_E_ARG, RP_E_UNSUPPORTED, RP_E_OVERFLOW or RP_E_NOMEM. */
RP_API rp_status rp_t5_open(rp_t5 **model, const char *path, const rp_t5_opening *opening);

/* Close a model. No call and no session may be using it. NULL is allowed. */
RP_API void rp_t5_close(rp_t5 *model);

/* Write a model to one file that rp_t5_open maps without copying. The file contains the packed weights, config.json,
 * generation_config.json, the tokenizer, the name of the model's folder, a checksum of the folder's tensors and a
 * checksum of the file's own contents. The file is either written completely or not at all. It is an error to overwrite
 * a file from which the model was read, or to pack a folder with a modules.json, with weights of the type "gguf" or
 * with a tokenizer that cannot be read (rp_t5_opening.no_tokenizer omits it).
 * Returns  RP_OK, RP_E_ARG, RP_E_UNSUPPORTED, RP_E_NOMEM. */
RP_API rp_status rp_t5_pack(const rp_t5 *model, const char *path);

/* Check the checksum of a packed file. This reads the whole file; rp_t5_open does not check it.
 *
 * Progress as in rp_t5_encode, called after each tensor.
 * Returns  RP_OK; RP_E_ARG if the file has changed since it was packed; RP_E_UNSUPPORTED if there is no checksum,
 *          because the model is a folder or a file of format 1; RP_E_CANCELLED. */
RP_API rp_status rp_t5_check_file(const rp_t5 *model, rp_progress *progress, void *progress_context);

/* Return 1 if `path` is a file from which the model was read (even under another name), else 0. Do not write to such a
 * file. */
RP_API int rp_t5_reads(const rp_t5 *model, const char *path);

/* Sizes and properties of a model. Later versions append fields, so read it only through the pointer. */
typedef struct rp_t5_info {
    const char *kind;       /* "t5", "mt5", "umt5", "longt5", "switch_transformers" */
    const char *type;       /* type of the weights: "f32", …, "gguf"; "" if they are not loaded */
    int64_t vocab;          /* V */
    int64_t d_model;        /* d */
    int64_t d_kv;           /* width of a head */
    int64_t d_ff;           /* inner width of the feed-forward layers */
    int64_t heads;          /* attention heads */
    int64_t layers;         /* layers of the encoder */
    int64_t decoder_layers; /* layers of the decoder; 0: the checkpoint has no decoder */
    int64_t parameters;     /* number of weights */
    int64_t bytes;          /* bytes of the weights in memory */
    int64_t step_bytes; /* bytes of the decoder and the head, which a decoding step reads; greedy steps may read less */
    int32_t gated;      /* 1: the feed-forward layers have wi_0 and wi_1 */
    int32_t tied;       /* 1: the head is the embedding */
    int32_t scaled;     /* 1: hidden states are multiplied by d^-0.5 before the head */
    int32_t has_tokenizer;       /* 1: the model accepts text */
    int32_t start;               /* the token that begins every target */
    int32_t eos;                 /* the token that ends a target; the first if there are several */
    int32_t pad;                 /* the padding token */
    const char *activation;      /* "relu", "gelu_new", "gelu", "silu" */
    const char *attention;       /* encoder attention: "full", "local", "transient-global" */
    int64_t experts;             /* experts of a sparse layer (Switch); 0: none */
    int64_t not_finite;          /* number of NaN or infinite weights in the checkpoint; 0 for an intact model */
    int32_t packed;              /* format of the packed file: 2, or 1 (relpos 0.1, no checksum); 0 for a folder */
    const char *source;          /* name of the model's folder, also for a packed file; "" for a file of format 1 */
    const char *source_checksum; /* packed file: checksum of the tensors of that folder; "" if there is none */
    int64_t vector_width;        /* width of a vector of rp_t5_vector; 0: the model has no modules.json */
    int64_t vector_tokens;       /* with modules.json: a source is cut to this number of tokens; 0: unlimited */
    int32_t cleans_up; /* 1: rp_t5_detokenize removes spaces before punctuation (clean_up_tokenization_spaces) */
} rp_t5_info;

/* Return the sizes and properties of a model. The model owns them. */
RP_API const rp_t5_info *rp_t5_about(const rp_t5 *model);

/* Return note n about how the model was opened, from 0 on, or NULL after the last. A note is one line about something
 * in its files that was changed or ignored, such as a prefix of the tensors' names. The model owns it. */
RP_API const char *rp_t5_note(const rp_t5 *model, int64_t n);

/* -------------------------------------------------------------------------------------------- text: tokens and back */

/* The tokens of one sequence; the array is borrowed. */
typedef struct rp_t5_tokens {
    const int32_t *tokens; /* each 0 … V-1 */
    int64_t n;             /* number of tokens */
} rp_t5_tokens;

/* Convert a text of `bytes` bytes (-1: null-terminated) to tokens and append the token that ends a source.
 * Memory   free *tokens with rp_t5_free.
 * Returns  RP_OK; RP_E_ARG; RP_E_UNSUPPORTED if the model has no tokenizer; RP_E_NOMEM. */
RP_API rp_status rp_t5_tokenize(const rp_t5 *model, const char *text, int64_t bytes, int32_t **tokens, int64_t *n);

/* A callback that can cancel a call. Return 0 to continue; any other value cancels the call, which then
 * returns RP_E_CANCELLED. */
typedef int rp_t5_cancelled(void *context);

/* Like rp_t5_tokenize, with a callback that is called once per megabyte and may be NULL.
 * Returns  as rp_t5_tokenize; also RP_E_CANCELLED. */
RP_API rp_status rp_t5_tokenize_watched(const rp_t5 *model, const char *text, int64_t bytes, rp_t5_cancelled *cancelled,
                                        void *context, int32_t **tokens, int64_t *n);

/* Convert tokens (each 0 … V-1) to text without the special tokens. *bytes is the length without the final null byte;
 * the pointer may be NULL. If rp_t5_info.cleans_up is 1, further tokens may change the text from the first space in its
 * last 22 bytes on, otherwise only an incomplete last character.
 * Memory   free *text with rp_t5_free.
 * Returns  RP_OK; RP_E_ARG; RP_E_RANGE for a token out of range; RP_E_UNSUPPORTED if the model has no tokenizer;
 *          RP_E_NOMEM. */
RP_API rp_status rp_t5_detokenize(const rp_t5 *model, const int32_t *tokens, int64_t n, char **text, int64_t *bytes);

/* Like rp_t5_detokenize, but keep the special tokens, such as the <extra_id_0> of span filling.
 * Returns  as rp_t5_detokenize. */
RP_API rp_status rp_t5_detokenize_special(const rp_t5 *model, const int32_t *tokens, int64_t n, char **text,
                                          int64_t *bytes);

/* Return the piece of a token, such as "▁the" or "</s>", or NULL if it has none. The model owns the string. */
RP_API const char *rp_t5_piece(const rp_t5 *model, int32_t token);

/* ------------------------------------------------------------------------------------------------ encode */

/* Compute the hidden states of sources after the encoder's last norm.
 *
 * Shapes   out [sum of n, d] of f32: the rows of the first source, then of the second, and so on, without padding. If a
 *          source contains padding tokens, its tokens attend to them, as text encoders of image models expect.
 * Edges    a source of no tokens has no rows.
 * Progress called between linear layers with the fraction done, as in rp_tensors. A return value other than 0 cancels
 *          the call. It may be NULL.
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE, RP_E_UNSUPPORTED, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED. After
 *          RP_E_CANCELLED the contents of out are undefined. */
RP_API rp_status rp_t5_encode(const rp_t5 *model, int64_t n_sources, const rp_t5_tokens *sources, float *out,
                              rp_progress *progress, void *progress_context);

/* Compute the vector of a text from the n hidden states of its tokens, as SentenceTransformer.encode does: by the
 * modules that modules.json lists. The text began with `prompt`; NULL means that it had none. Pooling omits the tokens
 * of the prompt if the folder says so (include_prompt). Cut the tokens to rp_t5_info.vector_tokens before rp_t5_encode,
 * with the end token kept last.
 *
 * Shapes   hidden [n, d]   vector [rp_t5_info.vector_width]
 * Edges    without tokens to pool, the pooled numbers are 0.
 * Returns  RP_OK; RP_E_ARG; RP_E_UNSUPPORTED if the model has no modules.json; RP_E_RANGE if the vector is not finite;
 *          RP_E_NOMEM. */
RP_API rp_status rp_t5_vector(const rp_t5 *model, const char *prompt, int64_t n, const float *hidden, float *vector);

/* Find the text of a prompt of config_sentence_transformers.json; with name = NULL, of the default prompt, which is ""
 * if there is none. The model owns *prompt.
 * Returns  RP_OK; RP_E_ARG if no prompt has this name; RP_E_UNSUPPORTED if the model has no modules.json. */
RP_API rp_status rp_t5_prompt(const rp_t5 *model, const char *name, const char **prompt);

/* Return the bytes that rp_t5_encode allocates for sources of `tokens` tokens in total, of which the longest has
 * `longest` (without `out`); -1 if the sizes are not valid. */
RP_API int64_t rp_t5_encode_bytes(const rp_t5 *model, int64_t tokens, int64_t longest);

/* Write a checksum of the model's tensors to `text`: 16 hexadecimal digits. A packed file has the checksum of the
 * folder it was packed from. For a folder, this reads all tensors.
 * Returns  RP_OK; RP_E_ARG if the files cannot be read or have changed. */
RP_API rp_status rp_t5_checksum(const rp_t5 *model, char text[17]);

/* ------------------------------------------------------------------------------------------------ proteins */

/* Recognize a family of protein models by the pieces of its tokenizer: "prostt5" (▁A and <AA2fold>), "prott5" (▁A) or
 * "ankh" (A). Return NULL if the model is none of these; rp_t5_last_error then lists what is missing. */
RP_API const char *rp_t5_family(const rp_t5 *model);

/* The tokens of a protein: `before` tokens (the prefix of ProstT5), one token for each residue, and the end token. */
typedef struct rp_t5_protein {
    int32_t *tokens;  /* free with rp_t5_free */
    int64_t n;        /* number of tokens: before + residues + 1 */
    int64_t before;   /* 0 or 1 */
    int64_t residues; /* number of residues */
    int64_t replaced; /* number of residues that were read as another: X for U in ProtT5 */
} rp_t5_protein;

/* Convert the residues of a protein to tokens, without the tokenizer. Lower case is upper case; '-' and white space are
 * dropped. A letter for which the family has no token, '*' and '.' are read as another letter, as the family's scripts
 * do: ProtT5 reads J, O, U, Z as X; ProstT5 reads B as D, Z as E, J as L, and O, U as X; Ankh reads J as <unk>.
 *
 * `family` is a name that rp_t5_family returns, or NULL for the family of the model. With a name, a model without a
 * tokenizer gets the token numbers that the family usually has.
 * Returns  RP_OK; RP_E_ARG for another character, with its position; RP_E_RANGE for 2^31 residues or more;
 *          RP_E_UNSUPPORTED if the model has no family; RP_E_NOMEM. */
RP_API rp_status rp_t5_residues(const rp_t5 *model, const char *family, const char *text, int64_t bytes,
                                rp_t5_protein *protein);

/* Compute the hidden states of the residues of proteins, without the rows of the prefix and the end token.
 *
 * Shapes   out [sum of residues, d] of f32. The rows of a protein do not depend on the other proteins.
 * Progress as in rp_t5_encode.
 * Returns  as rp_t5_encode. */
RP_API rp_status rp_t5_encode_residues(const rp_t5 *model, int64_t n, const rp_t5_protein *proteins, float *out,
                                       rp_progress *progress, void *progress_context);

/* Predicts the structure of a protein, as letters of Foldseek's 3Di alphabet, from the hidden states of ProstT5. */
typedef struct rp_t5_structure rp_t5_structure;

/* Read the two convolutions of ProstT5's predictor (classifier.0 and classifier.3, weight and bias) from a file of
 * tensors.
 * Returns  RP_OK and *structure; on an error *structure = NULL and RP_E_ARG or RP_E_NOMEM. */
RP_API rp_status rp_t5_structure_open(rp_t5_structure **structure, const rp_t5 *model, const char *path);
/* Close it. NULL is allowed. */
RP_API void rp_t5_structure_close(rp_t5_structure *structure);
/* Predict a letter of ACDEFGHIKLMNPQRSTVWY for each residue.
 *
 * Shapes   hidden [n, d] of one protein, from rp_t5_encode_residues; letters [n], not NUL-terminated; n >= 0.
 * Returns  RP_OK, RP_E_ARG, RP_E_NOMEM. */
RP_API rp_status rp_t5_structure_of(const rp_t5_structure *structure, const float *hidden, int64_t n, char *letters);

/* A FASTA file that is being read. */
typedef struct rp_t5_fasta rp_t5_fasta;

/* A record of a FASTA file, valid until the next call. */
typedef struct rp_t5_record {
    const char *header; /* the line without '>'; UTF-8, not empty */
    /* Upper-case letters and '*' (also for '.'), with no gaps or white space; NULL if residues are only counted. */
    const char *residues;
    int64_t n;    /* number of residues, at least 1 */
    int64_t line; /* number of the header's line */
} rp_t5_record;

/* Open a FASTA file, plain or compressed with gzip; "-" is standard input. Byte order marks are skipped.
 * Returns  RP_OK and *fasta; RP_E_ARG if it cannot be opened; RP_E_NOMEM. */
RP_API rp_status rp_t5_fasta_open(rp_t5_fasta **fasta, const char *path);
/* Read the next record, of at most `max` residues. At the end, record->header is NULL. `keep` = 0 only counts the
 * residues.
 * Returns  RP_OK; RP_E_RANGE if the record is longer; RP_E_ARG if it is bad, or the file cannot be read or is not
 *          FASTA. The message has the number of the line. */
RP_API rp_status rp_t5_fasta_next(rp_t5_fasta *fasta, int32_t keep, int64_t max, rp_t5_record *record);
/* After rp_t5_fasta_next refused a record, go on to the record after it. *record gets the line of the refused one and
 * its header, which may be empty, cut at 60,000 bytes, or not UTF-8.
 * Returns  RP_OK; RP_E_ARG if the file itself cannot be read, or is not FASTA. */
RP_API rp_status rp_t5_fasta_skip(rp_t5_fasta *fasta, rp_t5_record *record);
/* Return 1 if the file can be opened and read again (it is neither a pipe nor standard input), else 0. */
RP_API int rp_t5_fasta_again(const rp_t5_fasta *fasta);
/* Close the file. NULL is allowed. */
RP_API void rp_t5_fasta_close(rp_t5_fasta *fasta);

/* ------------------------------------------------------------------------------------------------ generate */

/* When beam search ends: early_stopping in transformers. */
typedef enum rp_t5_stopping {
    RP_T5_STOP_LIKELY = 0,     /* false: when no running beam is likely to beat the worst finished one */
    RP_T5_STOP_FIRST = 1,      /* true: when the number of finished targets equals the number of beams */
    RP_T5_STOP_NEVER_EARLY = 2 /* "never": when no running beam can beat the worst finished one */
} rp_t5_stopping;

/* A callback for each new token when it is final: with one beam, when it is chosen; with several beams, when its source
 * is finished. source is the number of the source, and index that of the result within its source. Return 0 to
 * continue; any other value cancels the call, which then returns RP_E_CANCELLED. */
typedef int rp_t5_on_token(void *context, int64_t source, int32_t index, int32_t token);

/* Settings of rp_t5_generate. Start from rp_t5_generation_of. Names and meanings follow transformers. */
typedef struct rp_t5_generation {
    size_t size;                   /* sizeof(rp_t5_generation) */
    int64_t max_new_tokens;        /* >= 1; default 256 */
    int64_t min_new_tokens;        /* minimum number of new tokens */
    int32_t beams;                 /* number of beams; 1: greedy search or sampling */
    int32_t returned;              /* num_return_sequences: results per source; above 1 only with beams or sampling */
    double length_penalty;         /* beam search divides log-probabilities by length to this power */
    rp_t5_stopping early_stopping; /* when beam search ends */
    int32_t sample;                /* 1: sample tokens; requires one beam */
    double temperature;            /* of sampling; > 0 */
    int64_t top_k;                 /* sample from the top_k likeliest tokens; 0: from all */
    /* sample from the smallest set of likeliest tokens with at least this total probability; 1: from all */
    double top_p;
    uint64_t seed;               /* the same seed gives the same samples for a source, whatever the other sources are */
    int64_t first;               /* index of the first source, if you split sources over several calls */
    double repetition_penalty;   /* 1e-6 to 1e6; 1: none */
    int64_t no_repeat_ngram;     /* no_repeat_ngram_size; 0: none */
    int32_t forced_first;        /* first token of every target after the start token; -1: none */
    int32_t forced_last;         /* token written at position max_new_tokens; -1: none */
    rp_t5_tokens suppress;       /* suppress_tokens: tokens that are never chosen; borrowed */
    rp_t5_tokens begin_suppress; /* begin_suppress_tokens: tokens that are not chosen first; borrowed */
    const rp_t5_tokens *bad_words; /* bad_words_ids: token sequences that are never completed; borrowed */
    int64_t n_bad_words;           /* number of these sequences */
    rp_t5_tokens prefix;           /* tokens that every target begins with, after the start token; borrowed */
    const char *const *stop;       /* a target ends when it contains one of these texts; none is empty; borrowed */
    int32_t n_stop;                /* number of these texts */
    int32_t scores;                /* 1: compute rp_t5_sequence.score with one beam too */
    /* Name of an unsupported key in generation_config.json, or NULL. If it is not NULL, rp_t5_generate fails; set it to
     * NULL to ignore the key. The model owns the string. */
    const char *unsupported;
    rp_t5_on_token *on_token; /* called for each new token; may be NULL */
    /* Called between linear layers of the encoder and before each step; may be NULL. With a draft, one step processes
     * up to 8 tokens. */
    rp_t5_cancelled *cancelled;
    void *context; /* passed to both callbacks */
} rp_t5_generation;

/* A callback for rp_t5_generation.cancelled: cancel if the int32_t at `context` is not 0. Any thread may set it. */
RP_API int rp_t5_is_set(void *context);

/* Return the settings of the model's generation_config.json. If model is NULL, return the defaults: greedy search. */
RP_API rp_t5_generation rp_t5_generation_of(const rp_t5 *model);

/* One result of rp_t5_generate. */
typedef struct rp_t5_sequence {
    int64_t source;   /* number of its source */
    int32_t index;    /* number of the result within its source; the best is 0 */
    int32_t finished; /* 1: it ended by itself; 0: it reached max_new_tokens */
    int32_t *tokens;  /* the prefix, the new tokens and the end token if there is one, without the start token */
    int64_t n;        /* number of tokens */
    double score;     /* log-probability, for beam search divided by length^length_penalty; NaN if not requested */
} rp_t5_sequence;

/* The results of one call: `returned` results for each source, in the order of the sources. */
typedef struct rp_t5_results rp_t5_results;

/* Generate targets by greedy search, beam search or sampling. The tokens are those that transformers generates from the
 * same logits.
 *
 * Draft    a model opened with a draft generates the same tokens and scores faster. While only one row is being
 * generated, the draft proposes up to 7 tokens, and the model checks them in one pass. With several rows or beams, the
 * draft is not used.
 * Edges    of tokens with equal scores, the smaller token comes first. If a source has no tokens, cross-attention adds
 * nothing.
 * Memory   free *results with rp_t5_results_free.
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE, RP_E_UNSUPPORTED, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED. */
RP_API rp_status rp_t5_generate(const rp_t5 *model, int64_t n_sources, const rp_t5_tokens *sources,
                                const rp_t5_generation *generation, rp_t5_results **results);

/* Return the number of results. */
RP_API int64_t rp_t5_results_size(const rp_t5_results *results);
/* Return result n, or NULL past the last one. The results own it. */
RP_API const rp_t5_sequence *rp_t5_result(const rp_t5_results *results, int64_t n);
/* Statistics of the draft. */
typedef struct rp_t5_drafted {
    int64_t proposed; /* tokens the draft proposed */
    int64_t accepted; /* proposed tokens that the model also chose */
    int64_t passes;   /* passes of the model that checked proposals */
} rp_t5_drafted;
/* Return the statistics of the whole call; zeros without a draft. The results own them. */
RP_API const rp_t5_drafted *rp_t5_results_drafted(const rp_t5_results *results);
/* Free results; NULL is allowed. */
RP_API void rp_t5_results_free(rp_t5_results *results);

/* ------------------------------------------------------------------------------------------------ score */

/* Compute log-probabilities of a target's tokens given its source: log p(token t | source, start, tokens before t).
 *
 * Shapes   each [target.n] of f64, or NULL; *total is their sum.
 * Progress as for rp_t5_encode.
 * Returns  as rp_t5_encode. */
RP_API rp_status rp_t5_score(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target, double *total, double *each,
                             rp_progress *progress, void *progress_context);

/* ------------------------------------------------------------------------------------------ steps: decoding by hand */

/* State of decoding step by step: encoded sources, and a cache of keys and values for each row. */
typedef struct rp_t5_session rp_t5_session;

/* Encode sources and create a session. `positions`, 0 … 2^31-1, is the expected number of tokens per row; rows may grow
 * longer.
 * Memory   the model must outlive the session; `sources` need not.
 * Returns  RP_OK and *session; on an error *session = NULL and RP_E_ARG, RP_E_RANGE, RP_E_UNSUPPORTED, RP_E_OVERFLOW or
 *          RP_E_NOMEM. */
RP_API rp_status rp_t5_begin(rp_t5_session **session, const rp_t5 *model, int64_t n_sources,
                             const rp_t5_tokens *sources, int64_t positions);

/* Feed one token to each of `rows` rows and compute the logits of the next token.
 *
 * Shapes   rows >= 1. parents [rows]: the row of the previous step that each row continues; in the first step, its
 *          source. You may drop, copy and reorder rows; all rows have the same number of tokens.
 *          tokens [rows]: in the first step rp_t5_info.start. logits [rows, V] of f32.
 * Memory   rows that continue the same parent share its cache.
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE, RP_E_NOMEM. After an error, only rp_t5_end may be called. */
RP_API rp_status rp_t5_step(rp_t5_session *session, int64_t rows, const int32_t *parents, const int32_t *tokens,
                            float *logits);

/* End a session; NULL is allowed. */
RP_API void rp_t5_end(rp_t5_session *session);

/* ---------------------------------------------------------------------------------------- attention: looking inside */

/* Kinds of attention layers. */
typedef enum rp_t5_part {
    RP_T5_ENCODER = 0, /* self-attention of the encoder */
    RP_T5_DECODER = 1, /* self-attention of the decoder */
    RP_T5_CROSS = 2    /* attention of the decoder to the encoder's output */
} rp_t5_part;

/* The inputs of one layer's attention, all heads: weights = softmax(<q, k> + table[bucket(key - query)]), without a
 * scale. Later versions append fields, so read it only through the pointer. */
typedef struct rp_t5_attention {
    int64_t heads;         /* number of heads */
    int64_t d_kv;          /* width of a head */
    int64_t len_q;         /* number of queries */
    int64_t len_k;         /* number of keys */
    const double *q;       /* [heads, len_q, d_kv] */
    const double *k;       /* [heads, len_k, d_kv] */
    const double *v;       /* [heads, len_k, d_kv] */
    const float *table;    /* [buckets, heads]; the model owns it. NULL: no bias */
    int64_t buckets;       /* number of buckets of the T5 term */
    int64_t max_distance;  /* distances from here on share the last bucket */
    int32_t bidirectional; /* 1: separate buckets for each sign of the offset */
    int32_t causal;        /* 1: only keys at or before the query */
    int64_t window;        /* largest distance from query to key; -1: unlimited */
} rp_t5_attention;

/* Compute the attention inputs of one layer for a source and a target, with the code of rp_t5_reference. Query i of the
 * decoder reads token i - 1 of the target (the first reads the start token), and its output predicts token i.
 *
 * Edges    the encoder needs no target. Transient-global attention of LongT5 is not supported.
 * Memory   free *attention with rp_t5_attention_free. Progress as for rp_t5_encode.
 * Returns  RP_OK; RP_E_ARG if there are no queries or no keys; RP_E_RANGE if the layer does not exist;
 *          RP_E_UNSUPPORTED, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED. */
RP_API rp_status rp_t5_attention_of(const rp_t5 *model, rp_t5_part part, int64_t layer, rp_t5_tokens source,
                                    rp_t5_tokens target, rp_t5_attention **attention, rp_progress *progress,
                                    void *progress_context);
/* Free the result of rp_t5_attention_of; NULL is allowed. */
RP_API void rp_t5_attention_free(rp_t5_attention *attention);

/* How the reference rounds. Perturb the rounding to measure how sensitive the results are. If all fields are 0, it
 * rounds like the model. */
typedef struct rp_t5_rounding {
    double noise;  /* largest relative error that is added at random to each input of a linear layer */
    uint64_t seed; /* seed of the noise and of other_way */
    /* 1: do not round inputs. 0: round them like the model: inputs of linear layers to bf16 (bf16) or 8 bits (int8,
     * int4), and with these types inputs and outputs of the decoder's attention to bf16. */
    int32_t exact_inputs;
    /* Round an input the other way if its distance from the midpoint between two rounded values is at most this
     * fraction of the largest input in its row. This applies to all such inputs if seed is 0, else to a random half. */
    double other_way;
} rp_t5_rounding;

/* Compute the model with plain loops in double, from the same packed weights. This is slow, and defines the correct
 * results: `relpos t5 verify` and the tests compare the other functions with it.
 *
 * Shapes   hidden [source.n, d] as rp_t5_encode; logits [target.n, V] for each token of the target, given the tokens
 *          before it. Either may be NULL. The capacity of experts applies to the encoder, not to the decoder.
 * Progress as for rp_t5_encode.
 * Returns  as rp_t5_encode. */
RP_API rp_status rp_t5_reference(const rp_t5 *model, rp_t5_tokens source, rp_t5_tokens target,
                                 const rp_t5_rounding *rounding, double *hidden, double *logits, rp_progress *progress,
                                 void *progress_context);

#ifdef __cplusplus
}
#endif
#endif
