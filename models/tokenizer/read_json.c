/* read_json.c -- reads a tokenizer.json: the model, its pieces and the added tokens. read_steps.c reads the normalizer
 * and the other steps. A file is refused if the library `tokenizers` refuses it or if it uses features that T5,
 * BERT, MPNet, RoBERTa and ModernBERT do not need. "truncation" and "padding" are ignored.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/read_json.h"
#include "io/io.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model */

/* Return the double that serde_json, the parser of `tokenizers`, reads from the shortest digits of x. serde_json
 * divides an integer by a power of ten, so the result may be a neighbour of x. The difference decides between
 * segmentations with nearly equal scores. */
static double as_serde_reads(double x)
{
    char text[40];
    int digits = 15;
    do
        snprintf(text, sizeof(text), "%.*e", digits - 1, fabs(x));
    while (strtod(text, NULL) != fabs(x) && ++digits <= 17);
    uint64_t significand = 0;
    int exponent = atoi(strchr(text, 'e') + 1);
    const char *end = strchr(text, 'e');
    while (end[-1] == '0' && end - text > 1) /* drop trailing zeros */
        end--;
    for (const char *p = text; p < end; p++) {
        if (*p < '0' || *p > '9')
            continue;
        significand = significand * 10 + (uint64_t)(*p - '0');
        exponent -= p > text; /* count the digits after the decimal point */
    }
    if (exponent < -300 || exponent > 300)
        return x;
    char power[16];
    snprintf(power, sizeof(power), "1e%d", abs(exponent));
    const double scale = strtod(power, NULL),
                 read = exponent < 0 ? (double)significand / scale : (double)significand * scale;
    return x < 0 ? -read : read;
}

double tok_json_score(const json_t *score)
{
    return as_serde_reads(json_number_value(score));
}

static tok_status set_piece(tok_reader *r, int32_t id, const char *piece, int64_t size, double score)
{
    if (size < 0 || size > TOK_MAX_PIECE)
        return tok_reader_fail(r, TOK_DAMAGED, "model.vocab[%d] has %lld bytes; it must have at most %d", id,
                               (long long)size, TOK_MAX_PIECE);
    if (!isfinite(score))
        return tok_reader_fail(r, TOK_DAMAGED, "model.vocab[%d] has the score %g; it must be finite", id, score);
    r->t->min_score = fmin(r->t->min_score, score);
    return tok_token_set(r->t, id, piece, size, TOK_NORMAL, score) ? TOK_OK : tok_reader_memory(r);
}

static tok_status read_piece(tok_reader *r, const json_t *pair, int32_t id)
{
    const json_t *piece = json_array_get(pair, 0), *score = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_string(piece) || !json_is_number(score))
        return tok_reader_fail(r, TOK_DAMAGED, "model.vocab[%d] must be a piece and its score, such as [\"the\", -3.5]",
                               id);
    return set_piece(r, id, json_string_value(piece), (int64_t)json_string_length(piece), tok_json_score(score));
}

/* Set all pieces from r->vocab. read_compact.c has already checked the sizes. */
static tok_status take_pieces(tok_reader *r)
{
    tok_status status = TOK_OK;
    int64_t at = 0;
    for (int32_t k = 0; k < r->vocab->n && status == TOK_OK; k++) {
        double score;
        int32_t size;
        memcpy(&score, r->vocab->scores + 8 * (size_t)k, sizeof(score));
        memcpy(&size, r->vocab->sizes + 4 * (size_t)k, sizeof(size));
        status = set_piece(r, k, r->vocab->pieces + at, size, score);
        at += size;
    }
    return status;
}

static bool is_piece(const tok_entry *token)
{
    return token->type == TOK_NORMAL;
}

static tok_status read_pieces(tok_reader *r, const json_t *vocab)
{
    tokenizer *t = r->t;
    const size_t n = r->vocab != NULL ? (size_t)r->vocab->n : json_array_size(vocab);
    if (!json_is_array(vocab) || n < 1 || n > TOK_MAX_TOKENS)
        return tok_reader_fail(r, TOK_DAMAGED, "model.vocab has %zu pieces; it must have 1 to %d", n, TOK_MAX_TOKENS);
    if (!tok_tokens_make(t, (int32_t)n))
        return tok_reader_memory(r);
    t->min_score = INFINITY;
    tok_status status = r->vocab != NULL ? take_pieces(r) : TOK_OK;
    for (size_t k = 0; k < n && r->vocab == NULL && status == TOK_OK; k++)
        status = read_piece(r, json_array_get(vocab, k), (int32_t)k);
    if (status != TOK_OK)
        return status;
    if (!tok_pieces_trie(t, &t->pieces, is_piece))
        return tok_reader_memory(r);
    if (t->pieces.units == NULL)
        return tok_reader_fail(r, TOK_DAMAGED, "model.vocab has only empty pieces; at least one must have a byte");
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        t->byte_ids[byte] = tok_trie_exact(&t->pieces, text, sprintf(text, "<0x%02X>", (unsigned)byte));
    }
    return TOK_OK;
}

#define KNOWN_MODELS                                                                                                   \
    "it must be Unigram, as in T5, mT5 and UMT5, WordPiece, as in BERT and MPNet, or byte-level BPE, as in RoBERTa "   \
    "and "                                                                                                             \
    "ModernBERT"

/* Return the type of the model. Old files do not name it. */
static tok_status model_type(tok_reader *r, const json_t *model, const char **type)
{
    const json_t *vocab = json_object_get(model, "vocab");
    if (json_object_get(model, "type") != NULL || !json_is_object(model))
        return tok_json_type(r, model, "model", type);
    const bool bpe = json_object_get(model, "merges") != NULL;
    *type = bpe ? "BPE" : json_is_array(vocab) ? "Unigram" : "WordPiece";
    if (!json_is_array(vocab) && !bpe && json_object_get(model, "max_input_chars_per_word") == NULL)
        return tok_reader_fail(
            r, TOK_DAMAGED, "model has no \"type\", and its vocab is not a list, as it is in Unigram; " KNOWN_MODELS);
    return TOK_OK;
}

static tok_status read_model(tok_reader *r, const json_t *model)
{
    const char *type;
    char safe[60];
    const tok_status status = model_type(r, model, &type);
    if (status != TOK_OK)
        return status;
    if (strcmp(type, "WordPiece") == 0)
        return tok_read_wordpiece(r, model);
    if (strcmp(type, "BPE") == 0)
        return tok_read_bpe(r, model);
    if (strcmp(type, "Unigram") != 0)
        return tok_reader_fail(r, TOK_DAMAGED, "model \"%s\" is not supported; " KNOWN_MODELS,
                               io_safe(safe, sizeof(safe), type));
    return read_pieces(r, json_object_get(model, "vocab"));
}

/* Read how unknown characters become tokens. */
static tok_status read_unknown(const tok_reader *r, const json_t *model)
{
    const tok_status status = tok_json_bool(r, model, "model", "byte_fallback", &r->t->byte_fallback);
    if (status != TOK_OK)
        return status;
    const json_t *unk = json_object_get(model, "unk_id");
    const long long id = json_integer_value(unk);
    if (!json_is_integer(unk))
        return tok_reader_fail(r, TOK_DAMAGED, "model.unk_id is %s; it must be an integer from 0 to %d",
                               unk == NULL ? "missing" : "not an integer", r->t->n_tokens - 1);
    if (id < 0 || id >= r->t->n_tokens)
        return tok_reader_fail(r, TOK_DAMAGED, "model.unk_id is %lld; it must be from 0 to %d", id, r->t->n_tokens - 1);
    r->t->unk = (int32_t)id;
    return TOK_OK;
}

/* ---- added tokens */

static tok_status add_token(tok_reader *r, const json_t *token, int32_t index, int32_t *next_id)
{
    tokenizer *t = r->t;
    char where[40];
    snprintf(where, sizeof(where), "added_tokens[%d]", index);
    tok_listed listed = {0};
    tok_status status = tok_json_string(r, token, where, "content", &listed.content, &listed.size);
    if (status == TOK_OK)
        status = tok_json_bool(r, token, where, "special", &listed.special);
    if (status == TOK_OK)
        status = tok_json_bool(r, token, where, "single_word", &listed.single_word);
    if (status == TOK_OK)
        status = tok_json_bool(r, token, where, "lstrip", &listed.lstrip);
    if (status == TOK_OK)
        status = tok_json_bool(r, token, where, "rstrip", &listed.rstrip);
    if (status == TOK_OK)
        status = tok_json_bool(r, token, where, "normalized", &listed.normalized);
    if (status != TOK_OK || listed.size == 0)
        return status;
    if (listed.size > TOK_MAX_PIECE)
        return tok_reader_fail(r, TOK_DAMAGED, "%s is too long", where);
    const int32_t known = tok_trie_exact(&t->pieces, listed.content, listed.size),
                  number = known >= 0 ? known : *next_id;
    const json_t *id = json_object_get(token, "id");
    if (!json_is_integer(id))
        return tok_reader_fail(r, TOK_DAMAGED,
                               "%s has no integer id; it must be %d, the number of its piece or the next number", where,
                               number);
    if (json_integer_value(id) != number)
        return tok_reader_fail(r, TOK_DAMAGED,
                               "%s has id %lld; it must be %d, the number of its piece or the next number", where,
                               (long long)json_integer_value(id), number);
    if (known < 0 && ++*next_id > TOK_MAX_TOKENS)
        return tok_reader_memory(r);
    return tok_add(t, number, &listed, r->name, r->err);
}

static tok_status read_added(tok_reader *r, const json_t *list)
{
    tokenizer *t = r->t;
    const size_t n = json_array_size(list);
    if (list != NULL && !json_is_array(list))
        return tok_reader_fail(r, TOK_DAMAGED, "added_tokens must be a list");
    if (n > TOK_MAX_TOKENS - (size_t)t->n_tokens)
        return tok_reader_fail(r, TOK_DAMAGED, "there are %zu added_tokens and %d pieces; the total must be at most %d",
                               n, t->n_tokens, TOK_MAX_TOKENS);
    int32_t next_id = t->n_tokens;
    if (!tok_added_make(t, (int64_t)n) || !tok_tokens_make(t, t->n_tokens + (int32_t)n))
        return tok_reader_memory(r);
    tok_status status = TOK_OK;
    for (size_t k = 0; k < n && status == TOK_OK; k++)
        status = add_token(r, json_array_get(list, k), (int32_t)k, &next_id);
    t->n_tokens = next_id;
    return status;
}

/* ---- the file */

/* Read the rules of the file: all but the pieces. */
static tok_status read_rules(tok_reader *r, const json_t *root)
{
    tok_status status = r->t->model != TOK_UNIGRAM ? TOK_OK : read_unknown(r, json_object_get(root, "model"));
    if (status == TOK_OK)
        status = tok_read_normalizer(r, json_object_get(root, "normalizer"));
    if (status == TOK_OK)
        status = tok_read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer"));
    if (status == TOK_OK)
        status = tok_check_byte_level(r);
    if (status == TOK_OK)
        status = tok_read_post_processor(r, json_object_get(root, "post_processor"));
    if (status == TOK_OK)
        status = tok_read_decoder(r, json_object_get(root, "decoder"));
    return status == TOK_OK ? read_added(r, json_object_get(root, "added_tokens")) : status;
}

/* Give the tokenizer the rules of T5Tokenizer, where token 2 is <unk>. */
static tok_status set_t5_rules(tok_reader *r, const json_t *root)
{
    const json_t *added = json_object_get(root, "added_tokens");
    if (r->t->n_tokens < 3)
        return tok_reader_fail(r, TOK_DAMAGED, "model.vocab has %d pieces; T5Tokenizer needs at least 3",
                               r->t->n_tokens);
    if (added != NULL && !json_is_array(added))
        return tok_reader_fail(r, TOK_DAMAGED, "added_tokens must be a list");
    const tok_status status = tok_read_charsmap(r, json_object_get(root, "normalizer"));
    r->t->unk = 2;
    return status == TOK_OK && !tok_set_t5_rules(r->t) ? tok_reader_memory(r) : status;
}

/* Return true if some piece begins a word. */
static bool begins_words(const tokenizer *t)
{
    for (int32_t id = 0; id < t->n_tokens; id++)
        if (t->tokens[id].size >= TOK_META_SIZE &&
            memcmp(tok_named(t, t->tokens[id].piece), TOK_META, TOK_META_SIZE) == 0)
            return true;
    return false;
}

/* Return the rules that the tokenizer gets. */
static tok_rules rules_for(const tokenizer *t, const tok_beside *beside)
{
    const tok_rules wanted = beside != NULL ? beside->rules : TOK_RULES_FILE;
    const bool fits = wanted == TOK_RULES_T5 ? t->model == TOK_UNIGRAM && begins_words(t)
                                             : tok_is_bert(wanted) && t->model == TOK_WORDPIECE;
    return fits ? wanted : TOK_RULES_FILE;
}

/* Add the tokens of the files beside a tokenizer.json. */
static tok_status add_beside(const tok_reader *r, const tok_beside *beside, tok_rules rules, const json_t *root)
{
    tokenizer *t = r->t;
    const bool t5 = rules == TOK_RULES_T5;
    int32_t extra = t5 ? TOK_T5_EXTRA_IDS : 0; /* other files list their <extra_id_N> */
    tok_status status = t5 ? tok_read_extra_ids(beside, &extra, r->err) : TOK_OK;
    if (status == TOK_OK)
        status =
            tok_add_beside(t, beside, extra, rules != TOK_RULES_FILE ? TOK_FROM_JSON : TOK_FROM_FILE, root, r->err);
    if (status == TOK_OK && t5 && t->eos >= 0)
        tok_set_end(t, t->eos);
    return status;
}

/* Check that the tokenizer has the special tokens around a text. */
static tok_status check_template(const tok_reader *r, const tok_template *template)
{
    for (int k = 0; k < template->n; k++)
        if (template->items[k].id >= r->t->n_tokens)
            return tok_reader_fail(r, TOK_DAMAGED, "an id of the post_processor is %d; it must be below %d",
                                   template->items[k].id, r->t->n_tokens);
    return TOK_OK;
}

static tok_status read_parts(tok_reader *r, const json_t *root, const tok_beside *beside)
{
    tokenizer *t = r->t;
    const json_t *version = json_object_get(root, "version");
    if (version != NULL && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return tok_reader_fail(r, TOK_DAMAGED, "version must be \"1.0\"");
    if (!tok_graphemes_open(&t->graphemes))
        return tok_reader_memory(r);
    tok_status status = read_model(r, json_object_get(root, "model"));
    const tok_rules rules = status == TOK_OK ? rules_for(t, beside) : TOK_RULES_FILE;
    if (status == TOK_OK && rules == TOK_RULES_FILE)
        status = read_rules(r, root);
    if (status == TOK_OK && rules == TOK_RULES_T5)
        status = set_t5_rules(r, root);
    if (status == TOK_OK)
        status = tok_tokens_sort(t, r->name, r->err);
    t->eos = status == TOK_OK ? tok_id(t, "</s>", 4) : -1;
    if (status == TOK_OK && beside != NULL)
        status = add_beside(r, beside, rules, root);
    if (status == TOK_OK)
        status = check_template(r, &t->single);
    return status == TOK_OK ? check_template(r, &t->pair) : status;
}

tok_status tok_read_json(tokenizer *t, const char *data, int64_t size, const char *name, const tok_beside *beside,
                         char err[TOK_ERR_MAX])
{
    return tok_read_json_with(t, data, size, NULL, name, beside, err);
}

tok_status tok_read_json_with(tokenizer *t, const char *data, int64_t size, const tok_vocab *vocab, const char *name,
                              const tok_beside *beside, char err[TOK_ERR_MAX])
{
    tok_reader r = {t, name, err, vocab};
    json_error_t error;
    bool no_memory;
    json_t *root = io_json(data, (size_t)size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error, &no_memory);
    char fault[IO_JSON_FAULT];
    if (no_memory)
        return tok_reader_memory(&r);
    if (root == NULL) {
        io_json_fault(data, (size_t)size, &error, fault);
        return tok_reader_fail(&r, TOK_DAMAGED, "%s", fault);
    }
    const tok_status status = read_parts(&r, root, beside);
    json_decref(root);
    return status;
}
