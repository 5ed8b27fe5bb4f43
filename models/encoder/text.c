/* text.c -- the tokenizer of a model, and texts to tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include "io/json.h"
#include "tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Record why the model has no tokenizer. This is no error: functions that need it report the reason. */
static rp_status no_tokenizer(rp_encoder *m, const char *why)
{
    m->why_no_tokenizer = strdup(why);
    return m->why_no_tokenizer != NULL ? RP_OK : encoder_no_memory();
}

/* Reject a tokenizer that has a token without a row in the embedding: it belongs to another model. Special tokens that
 * were added may have none. */
static rp_status check_rows(rp_encoder *m, const char *path)
{
    int32_t n = tok_size(m->tokenizer);
    char why[TOK_ERR_MAX], safe[200];
    while (n > 0 && (tok_piece(m->tokenizer, n - 1, NULL) == NULL || tok_is_special(m->tokenizer, n - 1)))
        n--;
    if (n <= m->config.vocab)
        return RP_OK;
    tok_close(m->tokenizer);
    m->tokenizer = NULL;
    snprintf(why, sizeof why, "%s: it has %d tokens, but the embedding has %lld rows (use the tokenizer of this model)",
             io_safe(safe, sizeof safe, path), (int)n, (long long)m->config.vocab);
    return no_tokenizer(m, why);
}

/* ------------------------------------------------------------------------------------------------ opening */

/* The files beside a tokenizer. */
enum { ADDED, CONFIG, SPECIAL, BESIDE };
static const char *const beside_names[BESIDE] = {"added_tokens.json", "tokenizer_config.json",
                                                 "special_tokens_map.json"};

/* A tokenizer that is being opened. */
typedef struct opening {
    rp_encoder *m;
    const char *folder;
    const char *name;     /* of the file with the tokens */
    char *beside[BESIDE]; /* contents; NULL: absent */
} opening;

/* The files with the tokens, and the arrays of a packed file that have their contents. */
static const char *const token_files[] = {"tokenizer.json", "vocab.txt"};
static const char *const token_arrays[] = {ENCODER_TOKENIZER, ENCODER_VOCAB};

/* Read file n of token_files, or its array in a packed file; leave m->tokenizer_text NULL if there is none. */
static rp_status read_tokens(opening *o, int n)
{
    rp_encoder *m = o->m;
    char *path = model_join(o->folder, token_files[n]);
    const io_tensor *t = m->file != NULL ? io_checkpoint_find(m->file, token_arrays[n]) : NULL;
    rp_status status = path != NULL ? RP_OK : encoder_no_memory();
    o->name = token_files[n];
    m->tokenizer_array = token_arrays[n];
    if (status == RP_OK && m->file == NULL)
        status = encoder_model_failed(
            model_read_file(&m->files, path, TOK_MAX_FILE, &m->tokenizer_text, &m->tokenizer_size));
    free(path);
    if (status != RP_OK || t == NULL)
        return status;
    return encoder_model_failed(model_copy_bytes(t, o->folder, &m->tokenizer_text, &m->tokenizer_size));
}

static rp_status read_beside(opening *o)
{
    rp_status status = RP_OK;
    for (int k = 0; k < BESIDE && status == RP_OK; k++) {
        size_t size;
        char *path = model_join(o->folder, beside_names[k]);
        status = path != NULL ? encoder_model_failed(model_read_text(&o->m->files, path, &o->beside[k], &size))
                              : encoder_no_memory();
        free(path);
    }
    return status;
}

/* Return true if model_input_names, or else the class, has token types. */
static bool names_types(const json_t *root, bool fallback)
{
    const json_t *names = json_object_get(root, "model_input_names");
    bool found = !json_is_array(names) && fallback;
    for (size_t k = 0; k < json_array_size(names); k++) {
        const char *name = json_string_value(json_array_get(names, k));
        found = found || (name != NULL && strcmp(name, "token_type_ids") == 0);
    }
    return found;
}

/* A class of tokenizers of transformers 5.24. */
typedef struct tokenizer_class {
    const char *name, *type; /* type: of the models that have this class if no file names one; "": none */
    const char *model;       /* the model that its tokenizer.json must have; NULL: any */
    tok_rules rules;
    bool types;              /* gives token types to the model */
    const char *unsupported; /* keys of tokenizer_config.json that must not be true: "key key"; NULL: none */
} tokenizer_class;

/* Classes that give the tokens of BertTokenizer and RobertaTokenizer are their aliases or subclasses. The rows without
 * a model keep the rules of a tokenizer.json. */
#define LIKE_BERT    "WordPiece", TOK_RULES_BERT
#define LIKE_ROBERTA "BPE", TOK_RULES_ROBERTA, false
static const tokenizer_class classes[] = {
    {"BertTokenizer", "bert", LIKE_BERT, true, NULL},
    {"ConvBertTokenizer", "", LIKE_BERT, true, NULL},
    {"DistilBertTokenizer", "", LIKE_BERT, false, NULL},
    {"ElectraTokenizer", "", LIKE_BERT, true, NULL},
    {"LayoutLMTokenizer", "", LIKE_BERT, true, NULL},
    {"LxmertTokenizer", "", LIKE_BERT, true, NULL},
    {"MobileBertTokenizer", "", LIKE_BERT, true, NULL},
    {"SqueezeBertTokenizer", "", LIKE_BERT, true, NULL},
    {"MPNetTokenizer", "mpnet", "WordPiece", TOK_RULES_MPNET, false, NULL},
    {"RobertaTokenizer", "roberta", LIKE_ROBERTA, NULL},
    {"BartTokenizer", "", LIKE_ROBERTA, NULL},
    {"LEDTokenizer", "", LIKE_ROBERTA, NULL},
    {"LongformerTokenizer", "", LIKE_ROBERTA, NULL},
    {"MvpTokenizer", "", LIKE_ROBERTA, NULL},
    {"XLMRobertaTokenizer", "xlm-roberta", "Unigram", TOK_RULES_FILE, false, NULL},
    {"DebertaV2Tokenizer", "deberta-v2", "Unigram", TOK_RULES_FILE, true, "do_lower_case split_by_punct"},
    {"EsmTokenizer", "esm", NULL, TOK_RULES_ESM, false, NULL},
    {"TokenizersBackend", "modernbert", NULL, TOK_RULES_FILE, false, NULL},
    {"PreTrainedTokenizer", "", NULL, TOK_RULES_FILE, false, NULL},
    {"PythonBackend", "", NULL, TOK_RULES_FILE, false, NULL}};

/* Return the class with a name, which may end in "Fast", or that of a type of models if name = NULL. */
static const tokenizer_class *find_class(const char *name, const char *type)
{
    const size_t n = name != NULL ? strlen(name) : 0, size = n > 4 && strcmp(name + n - 4, "Fast") == 0 ? n - 4 : n;
    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++)
        if (name != NULL ? strncmp(name, classes[k].name, size) == 0 && strlen(classes[k].name) == size
                         : strcmp(type, classes[k].type) == 0)
            return &classes[k];
    return NULL;
}

/* Return the first key of a class that must not be true, but is, in keys[80]; or NULL. */
static const char *find_unsupported(const tokenizer_class *class, const json_t *root, char keys[80])
{
    snprintf(keys, 80, "%s", class != NULL && class->unsupported != NULL ? class->unsupported : "");
    for (char *rest, *key = strtok_r(keys, " ", &rest); key != NULL; key = strtok_r(NULL, " ", &rest)) {
        const json_t *v = json_object_get(root, key);
        if (v != NULL && !json_is_null(v) && !json_is_false(v))
            return key;
    }
    return NULL;
}

/* Set *class to the one that AutoTokenizer of transformers 5 chooses: that of tokenizer_config.json, of config.json or
 * of the type of the model; ModernBERT's is always the same. NULL: it is not supported, and the model gets no
 * tokenizer. Set m->types to whether it gives token types to the model. */
static rp_status choose_class(const opening *o, const tokenizer_class **class)
{
    rp_encoder *m = o->m;
    json_error_t error;
    bool no_memory = false;
    const char *text = o->beside[CONFIG], *type = m->config.row->type;
    json_t *root = text != NULL ? io_json(text, strlen(text), JSON_DECODE_INT_AS_REAL, &error, &no_memory) : NULL;
    const char *named = json_string_value(json_object_get(root, "tokenizer_class")),
               *name = named != NULL ? named : m->config.tokenizer_class;
    rp_status status = no_memory ? encoder_no_memory() : RP_OK;
    *class = find_class(strcmp(type, "modernbert") != 0 ? name : NULL, type);
    m->types = *class != NULL && m->config.token_types > 1 && names_types(root, (*class)->types);
    char why[TOK_ERR_MAX], safe[96], keys[80];
    const char *key = find_unsupported(*class, root, keys);
    if (*class == NULL)
        snprintf(why, sizeof why,
                 "%s: \"tokenizer_class\" is \"%s\", which is not supported (change it to \"PreTrainedTokenizerFast\" "
                 "to use tokenizer.json as it is)",
                 named != NULL ? beside_names[CONFIG] : "config.json", io_safe(safe, sizeof safe, name));
    else if (key != NULL)
        snprintf(why, sizeof why,
                 "%s: \"%s\" is not false, which is not supported with %s (change \"tokenizer_class\" to "
                 "\"PreTrainedTokenizerFast\" to use tokenizer.json as it is)",
                 beside_names[CONFIG], key, (*class)->name);
    if ((*class == NULL || key != NULL) && status == RP_OK) {
        status = no_tokenizer(m, why);
        *class = NULL;
    }
    json_decref(root);
    return status;
}

/* Close the tokenizer if its model is not that of its class. */
static rp_status check_class(rp_encoder *m, const tokenizer_class *class, const char *file)
{
    const char *model = tok_model_name(m->tokenizer);
    char why[TOK_ERR_MAX];
    if (class->model == NULL || strcmp(class->model, model) == 0)
        return RP_OK;
    tok_close(m->tokenizer);
    m->tokenizer = NULL;
    snprintf(why, sizeof why,
             "%s: its model is %s, but that of the tokenizer's class, %s, is %s (change \"tokenizer_class\" in "
             "tokenizer_config.json to \"PreTrainedTokenizerFast\" to use tokenizer.json as it is)",
             file, model, class->name, class->model);
    return no_tokenizer(m, why);
}

static tok_file file_of(const opening *o, int k)
{
    return (tok_file){o->beside[k], o->beside[k] != NULL ? (int64_t)strlen(o->beside[k]) : 0, beside_names[k]};
}

static rp_status open_tokens(const opening *o)
{
    rp_encoder *m = o->m;
    char err[TOK_ERR_MAX] = "";
    const tokenizer_class *class;
    rp_status status = choose_class(o, &class);
    if (status != RP_OK || class == NULL)
        return status;
    const tok_beside beside = {file_of(o, ADDED), file_of(o, CONFIG), file_of(o, SPECIAL), class->rules};
    const tok_status made =
        tok_open_beside(&m->tokenizer, m->tokenizer_text, (int64_t)m->tokenizer_size, o->name, 0, &beside, err);
    if (made != TOK_OK)
        return made == TOK_FAILED ? encoder_fail(RP_E_NOMEM, "%s", err) : no_tokenizer(m, err);
    status = check_class(m, class, o->name);
    return status == RP_OK && m->tokenizer != NULL ? check_rows(m, o->name) : status;
}

rp_status encoder_find_tokenizer(rp_encoder *m, const char *folder)
{
    opening o = {.m = m, .folder = folder};
    rp_status status = read_tokens(&o, 0);
    if (status == RP_OK && m->tokenizer_text == NULL)
        status = read_tokens(&o, 1);
    if (status == RP_OK)
        status = read_beside(&o);
    if (status == RP_OK && m->tokenizer_text == NULL)
        status =
            no_tokenizer(m, "its folder has no tokenizer.json or vocab.txt (save the tokenizer with transformers)");
    else if (status == RP_OK)
        status = open_tokens(&o);
    for (int k = 0; k < BESIDE; k++)
        free(o.beside[k]);
    return status;
}

static rp_status need_tokenizer(const rp_encoder *m)
{
    return m->tokenizer != NULL ? RP_OK
                                : encoder_fail(RP_E_UNSUPPORTED, "the model has no tokenizer: %s", m->why_no_tokenizer);
}

static int64_t size_of(const char *text, int64_t bytes)
{
    return bytes < 0 ? (int64_t)strlen(text) : bytes;
}

/* Set *joined to prompt + text, which the caller frees; NULL: there is no prompt. */
static rp_status join(const char *prompt, const rp_encoder_text *t, char **joined, int64_t *bytes)
{
    const size_t before = prompt != NULL ? strlen(prompt) : 0;
    *bytes = size_of(t->text, t->bytes);
    *joined = NULL;
    if (before == 0)
        return RP_OK;
    *joined = malloc(before + (size_t)*bytes + 1);
    if (*joined == NULL)
        return encoder_no_memory();
    memcpy(*joined, prompt, before);
    memcpy(*joined + before, t->text, (size_t)*bytes);
    *bytes += (int64_t)before;
    return RP_OK;
}

rp_status encoder_tokenize(const rp_encoder *m, const char *prompt, const rp_encoder_text *t, int64_t max_tokens,
                           tok_encoding *out)
{
    char *joined, err[TOK_ERR_MAX] = "";
    tok_string a, b;
    rp_status status = join(prompt, t, &joined, &a.size);
    if (status != RP_OK)
        return status;
    a.text = joined != NULL ? joined : t->text;
    b = (tok_string){t->pair, t->pair != NULL ? size_of(t->pair, t->pair_bytes) : 0};
    const tok_status made = tok_encode_pair(m->tokenizer, a, t->pair != NULL ? &b : NULL, max_tokens, out, err);
    if (made != TOK_OK)
        status = encoder_fail(made == TOK_FAILED     ? RP_E_NOMEM
                              : made == TOK_ARGUMENT ? RP_E_RANGE
                                                     : RP_E_ARG,
                              "%s", err);
    else if (!m->types) /* the class of the tokenizer does not give them to the model */
        memset(out->types, 0, (size_t)out->n * sizeof *out->types);
    free(joined);
    return status;
}

rp_status encoder_check_text(const rp_encoder *m, int64_t n, const rp_encoder_text *texts)
{
    if (m == NULL)
        return encoder_fail(RP_E_ARG, "model is NULL; open one with rp_encoder_open");
    if (n < 0 || (n > 0 && texts == NULL))
        return encoder_fail(RP_E_ARG, "n is %lld and texts is %s", (long long)n, texts != NULL ? "given" : "NULL");
    for (int64_t k = 0; k < n; k++)
        if (texts[k].text == NULL)
            return encoder_fail(RP_E_ARG, "texts[%lld].text is NULL; pass a text, which may be empty", (long long)k);
    return need_tokenizer(m);
}

rp_status rp_encoder_tokenize(const rp_encoder *m, const rp_encoder_text *text, int64_t max_tokens, int32_t **tokens,
                              int32_t **types, int64_t *n)
{
    tok_encoding made = {0};
    if (tokens == NULL || n == NULL || text == NULL)
        return encoder_fail(RP_E_ARG, "text, tokens or n is NULL; pass all three");
    *tokens = NULL;
    *n = 0;
    if (types != NULL)
        *types = NULL;
    if (max_tokens < 0)
        return encoder_fail(RP_E_ARG, "max_tokens is %lld; it must be 0 or more", (long long)max_tokens);
    rp_status status = encoder_check_text(m, 1, text);
    if (status == RP_OK)
        status = encoder_tokenize(m, NULL, text, max_tokens, &made);
    if (status != RP_OK)
        return status;
    *tokens = made.ids;
    *n = made.n;
    made.ids = NULL;
    if (types != NULL) {
        *types = made.types;
        made.types = NULL;
    }
    tok_encoding_free(&made);
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ batches */

void encoder_batch_free(encoder_batch *b)
{
    for (int64_t k = 0; k < b->n; k++)
        tok_encoding_free(&b->made[k]);
    free(b->made);
    free(b->sequence);
    *b = (encoder_batch){0};
}

rp_status encoder_batch_read(encoder_batch *b, const rp_encoder *m, const char *prompt, int64_t first, int64_t n,
                             const rp_encoder_text *texts)
{
    const int64_t most = n - first < ENCODER_BATCH ? n - first : ENCODER_BATCH;
    *b = (encoder_batch){.place = {"texts", first}};
    b->made = calloc((size_t)most + 1, sizeof *b->made);
    b->sequence = calloc((size_t)most + 1, sizeof *b->sequence);
    rp_status status = b->made != NULL && b->sequence != NULL ? RP_OK : encoder_no_memory();
    while (status == RP_OK && b->n < most && b->rows < ENCODER_ROWS) {
        tok_encoding *made = &b->made[b->n];
        status = encoder_tokenize(m, prompt, &texts[first + b->n], m->info.vector_tokens, made);
        if (status != RP_OK)
            break;
        b->sequence[b->n++] = (rp_encoder_tokens){made->ids, m->types ? made->types : NULL, made->n};
        b->rows += made->n;
    }
    if (status == RP_OK)
        status = encoder_check(m, &b->place, b->n, b->sequence);
    return status;
}
