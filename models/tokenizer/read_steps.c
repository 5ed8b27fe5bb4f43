/* read_steps.c -- reads the steps in a tokenizer.json: normalizer, pre_tokenizer, post_processor and decoder. An
 * unknown step is an error, because skipping it would change the tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "tokenizer/read_json.h"

#include <stdio.h>
#include <stdlib.h>

static tok_status unknown(const tok_reader *r, const char *where, const char *type, const char *known)
{
    char safe[60];
    return tok_reader_fail(r, TOK_DAMAGED, "%s \"%s\" is not supported; %s", where, io_safe(safe, sizeof(safe), type),
                           known);
}

static char *copy(const char *text, int64_t size)
{
    char *made = malloc((size_t)size + 1);
    if (made != NULL) {
        memcpy(made, text, (size_t)size);
        made[size] = 0;
    }
    return made;
}

/* Call `one` for each step of a Sequence, or once for a single step. */
static tok_status each(tok_reader *r, const json_t *value, const char *where, const char *key,
                       tok_status (*one)(tok_reader *, const json_t *, const char *type))
{
    if (value == NULL || json_is_null(value))
        return TOK_OK;
    const char *type;
    tok_status status = tok_json_type(r, value, where, &type);
    if (status != TOK_OK || strcmp(type, "Sequence") != 0)
        return status != TOK_OK ? status : one(r, value, type);
    const json_t *list = json_object_get(value, key);
    if (!json_is_array(list))
        return tok_reader_fail(r, TOK_DAMAGED, "%s of type Sequence has no list \"%s\"", where, key);
    for (size_t k = 0; k < json_array_size(list) && status == TOK_OK; k++) {
        const json_t *step = json_array_get(list, k);
        status = tok_json_type(r, step, where, &type);
        if (status == TOK_OK)
            status = one(r, step, type);
    }
    return status;
}

/* ---- normalizer */

/* Return the six bits of a base64 digit, or -1. */
static int base64_digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Decode base64. Return false if the text does not consist of groups of four digits, has "=" other than as final
 * padding, or has bits other than 0 after the last byte. */
static bool base64(tok_text *to, const char *text, int64_t size)
{
    if (size % 4 != 0)
        return false;
    for (int64_t at = 0; at < size; at += 4) {
        const int missing = at + 4 < size ? 0 : (text[at + 3] == '=') + (text[at + 2] == '=' && text[at + 3] == '=');
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            const int digit = k < 4 - missing ? base64_digit(text[at + k]) : 0;
            if (digit < 0)
                return false;
            bits = bits << 6 | (uint32_t)digit;
        }
        if ((bits & ((1u << 8 * missing) - 1)) != 0)
            return false;
        for (int k = 0; k < 3 - missing; k++)
            tok_text_add_byte(to, (char)(bits >> (16 - 8 * k) & 0xff));
    }
    return true;
}

static tok_status read_charsmap(tok_reader *r, const json_t *step)
{
    const char *text;
    int64_t size;
    tok_status status = tok_json_string(r, step, "normalizer Precompiled", "precompiled_charsmap", &text, &size);
    if (status != TOK_OK)
        return status;
    if (r->t->charsmap.n_units > 0)
        return tok_reader_fail(r, TOK_DAMAGED, "the normalizer has two Precompiled steps; it must have at most one");
    tok_text map = {0};
    if (!base64(&map, text, size)) {
        status = tok_reader_fail(r, TOK_DAMAGED,
                                 "precompiled_charsmap, of %lld characters, is not base64 (the file is damaged)",
                                 (long long)size);
    } else if (map.failed) {
        status = tok_reader_memory(r);
    } else if (map.size == 0) {
        status = tok_reader_fail(r, TOK_DAMAGED, "precompiled_charsmap is empty; remove the Precompiled step");
    } else {
        char what[256];
        snprintf(what, sizeof(what), "%s: precompiled_charsmap", r->name);
        status = tok_charsmap_open(&r->t->charsmap, map.bytes, map.size, what, r->err);
    }
    free(map.bytes);
    if (status == TOK_OK)
        r->t->norms[r->t->n_norms++].kind = TOK_NORM_CHARSMAP;
    return status;
}

/* Read "pattern" and "content" of a Replace. Set *regex to true if the pattern is a regular expression. */
static tok_status read_replace(const tok_reader *r, const json_t *step, const char *where, char **pattern,
                               int64_t *pattern_size, char **content, int64_t *content_size, bool *regex)
{
    const json_t *given = json_object_get(step, "pattern");
    const char *text;
    *regex = json_object_get(given, "Regex") != NULL;
    tok_status status = tok_json_string(r, given, where, *regex ? "Regex" : "String", &text, pattern_size);
    if (status != TOK_OK)
        return status;
    if (*pattern_size == 0)
        return tok_reader_fail(r, TOK_DAMAGED, "%s has an empty pattern; it must have at least one character", where);
    *pattern = copy(text, *pattern_size);
    status = tok_json_string(r, step, where, "content", &text, content_size);
    if (status != TOK_OK)
        return status;
    *content = copy(text, *content_size);
    return *pattern == NULL || *content == NULL ? tok_reader_memory(r) : TOK_OK;
}

static tok_status too_many_norms(const tok_reader *r)
{
    return tok_reader_fail(r, TOK_DAMAGED, "the normalizer has too many steps; it must have at most %d", TOK_MAX_STEPS);
}

static tok_status read_bert(tok_reader *r, const json_t *step)
{
    static const char where[] = "normalizer BertNormalizer";
    tok_bert bert = {.clean = true, .ideographs = true, .lower = true};
    tok_status status = tok_json_bool(r, step, where, "clean_text", &bert.clean);
    if (status == TOK_OK)
        status = tok_json_bool(r, step, where, "handle_chinese_chars", &bert.ideographs);
    if (status == TOK_OK)
        status = tok_json_bool(r, step, where, "lowercase", &bert.lower);
    bert.strip = bert.lower; /* without a value, as lowercase */
    if (status == TOK_OK)
        status = tok_json_bool(r, step, where, "strip_accents", &bert.strip);
    return status == TOK_OK && !tok_add_bert_steps(r->t, &bert) ? too_many_norms(r) : status;
}

static tok_status one_normalizer(tok_reader *r, const json_t *step, const char *type)
{
    static const struct {
        const char *type;
        tok_norm_kind kind;
    } plain[] = {
        {"NFD", TOK_NORM_NFD}, {"NFC", TOK_NORM_NFC}, {"StripAccents", TOK_NORM_MARKS}, {"Lowercase", TOK_NORM_LOWER}};
    tokenizer *t = r->t;
    if (strcmp(type, "BertNormalizer") == 0)
        return read_bert(r, step);
    if (t->n_norms == TOK_MAX_STEPS)
        return too_many_norms(r);
    for (size_t k = 0; k < sizeof(plain) / sizeof(*plain); k++)
        if (strcmp(type, plain[k].type) == 0) {
            t->norms[t->n_norms++].kind = plain[k].kind;
            return TOK_OK;
        }
    tok_norm *norm = &t->norms[t->n_norms];
    if (strcmp(type, "Precompiled") == 0)
        return read_charsmap(r, step);
    tok_status status;
    if (strcmp(type, "Strip") == 0) {
        norm->kind = TOK_NORM_STRIP;
        status = tok_json_bool(r, step, "normalizer Strip", "strip_left", &norm->left);
        if (status == TOK_OK)
            status = tok_json_bool(r, step, "normalizer Strip", "strip_right", &norm->right);
    } else if (strcmp(type, "Replace") == 0) {
        bool regex;
        status = read_replace(r, step, "normalizer Replace", &norm->pattern, &norm->pattern_size, &norm->content,
                              &norm->content_size, &regex);
        const bool white = regex && norm->pattern != NULL && strcmp(norm->pattern, "\\s{2,}|[\\n\\r\\t]") == 0;
        norm->kind = white ? TOK_NORM_WHITE : regex ? TOK_NORM_SPACES : TOK_NORM_REPLACE;
        if (status == TOK_OK && regex && !white && strcmp(norm->pattern, " {2,}") != 0)
            return unknown(r, "the regular expression", norm->pattern,
                           "it must be \" {2,}\" or \"\\s{2,}|[\\n\\r\\t]\"");
    } else {
        return unknown(
            r, "normalizer", type,
            "it must be BertNormalizer, Precompiled, Strip, Replace, NFC, NFD, StripAccents, Lowercase or Sequence");
    }
    if (status == TOK_OK)
        t->n_norms++;
    return status;
}

tok_status tok_read_normalizer(tok_reader *r, const json_t *normalizer)
{
    return each(r, normalizer, "normalizer", "normalizers", one_normalizer);
}

static tok_status only_charsmap(tok_reader *r, const json_t *step, const char *type)
{
    return strcmp(type, "Precompiled") == 0 && r->t->charsmap.n_units == 0 ? read_charsmap(r, step) : TOK_OK;
}

tok_status tok_read_charsmap(tok_reader *r, const json_t *normalizer)
{
    return each(r, normalizer, "normalizer", "normalizers", only_charsmap);
}

/* ---- pre_tokenizer, and the decoder step of the same name */

static tok_status read_meta(const tok_reader *r, const json_t *step, const char **text, int64_t *size,
                            tok_prepend *prepend, bool *split)
{
    tok_status status = tok_json_string(r, step, "Metaspace", "replacement", text, size);
    if (status != TOK_OK)
        return status;
    uint32_t c;
    if (*size == 0 || tok_utf8(*text, *size, &c) != *size)
        return tok_reader_fail(r, TOK_DAMAGED, "replacement of Metaspace has %lld bytes; it must be one character",
                               (long long)*size);
    *prepend = TOK_PREPEND_ALWAYS;
    const json_t *scheme = json_object_get(step, "prepend_scheme");
    const char *name = json_string_value(scheme);
    if (scheme != NULL) {
        if (name == NULL || (strcmp(name, "always") != 0 && strcmp(name, "first") != 0 && strcmp(name, "never") != 0))
            return unknown(r, "prepend_scheme", name != NULL ? name : "", "it must be always, first or never");
        *prepend = name[0] == 'a' ? TOK_PREPEND_ALWAYS : name[0] == 'f' ? TOK_PREPEND_FIRST : TOK_PREPEND_NEVER;
    }
    bool space = true;
    *split = true;
    status = tok_json_bool(r, step, "Metaspace", "add_prefix_space", &space);
    if (status == TOK_OK)
        status = tok_json_bool(r, step, "Metaspace", "split", split);
    if (status == TOK_OK && !space && scheme != NULL && *prepend != TOK_PREPEND_NEVER)
        return tok_reader_fail(r, TOK_DAMAGED,
                               "add_prefix_space is false, but prepend_scheme is \"%s\"; it must be \"never\"", name);
    if (!space)
        *prepend = TOK_PREPEND_NEVER;
    return status;
}

/* Set t->split to split words further, if the pre-tokenizer does so. Return false if it is not one that is known. */
static bool read_split(tokenizer *t, const json_t *step, const char *type)
{
    static const struct {
        const char *type;
        tok_split before, split;
    } splits[] = {{"WhitespaceSplit", TOK_SPLIT_NONE, TOK_SPLIT_WHITE},
                  {"BertPreTokenizer", TOK_SPLIT_NONE, TOK_SPLIT_BERT},
                  {"Whitespace", TOK_SPLIT_NONE, TOK_SPLIT_WORDS},
                  {"Punctuation", TOK_SPLIT_NONE, TOK_SPLIT_PUNCTUATION},
                  {"Punctuation", TOK_SPLIT_WHITE, TOK_SPLIT_BERT}};
    const json_t *behavior = json_object_get(step, "behavior");
    const char *name = json_string_value(behavior);
    if (t->meta || (behavior != NULL && (name == NULL || strcmp(name, "Isolated") != 0)))
        return false;
    for (size_t k = 0; k < sizeof(splits) / sizeof(*splits); k++)
        if (strcmp(type, splits[k].type) == 0 && t->split == splits[k].before) {
            t->split = splits[k].split;
            return true;
        }
    return false;
}

static tok_status read_pattern(tok_reader *r, const json_t *step)
{
    static const char where[] = "pre_tokenizer Split";
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex, *behavior;
    int64_t size;
    bool invert = false;
    tok_status status = tok_json_string(r, pattern, where, "Regex", &regex, &size);
    if (status == TOK_OK)
        status = tok_json_string(r, step, where, "behavior", &behavior, &size);
    if (status == TOK_OK)
        status = tok_json_bool(r, step, where, "invert", &invert);
    if (status != TOK_OK)
        return status;
    r->t->split = tok_known_pattern(regex);
    if (r->t->split == TOK_SPLIT_NONE)
        return unknown(r, "the regular expression", regex, "it must be that of GPT-2, Llama 3 or Qwen 2");
    if (strcmp(behavior, invert ? "Removed" : "Isolated") != 0)
        return unknown(r, "the behavior", behavior, invert ? "with invert, it must be Removed" : "it must be Isolated");
    return TOK_OK;
}

static tok_status read_byte_level(tok_reader *r, const json_t *step)
{
    static const char where[] = "pre_tokenizer ByteLevel";
    tokenizer *t = r->t;
    bool regex = true;
    t->byte_level = t->prefix_space = true;
    tok_status status = tok_json_bool(r, step, where, "add_prefix_space", &t->prefix_space);
    if (status == TOK_OK)
        status = tok_json_bool(r, step, where, "use_regex", &regex);
    if (status == TOK_OK && t->split != TOK_SPLIT_NONE && (regex || t->prefix_space))
        return tok_reader_fail(r, TOK_DAMAGED, "%s after Split has %s true; it must be false", where,
                               regex ? "use_regex" : "add_prefix_space");
    if (regex)
        t->split = TOK_SPLIT_GPT2;
    return status;
}

static tok_status one_pre_tokenizer(tok_reader *r, const json_t *step, const char *type)
{
    tokenizer *t = r->t;
    const bool before = t->meta || t->byte_level; /* a step after which no other is allowed */
    if (!before && read_split(t, step, type))
        return TOK_OK;
    if (!before && strcmp(type, "Split") == 0 && t->split == TOK_SPLIT_NONE)
        return read_pattern(r, step);
    if (!before && strcmp(type, "ByteLevel") == 0 && (t->split == TOK_SPLIT_NONE || t->split >= TOK_SPLIT_GPT2))
        return read_byte_level(r, step);
    if (before || strcmp(type, "Metaspace") != 0)
        return unknown(
            r, "pre_tokenizer", type,
            "it must be one of WhitespaceSplit, Whitespace, BertPreTokenizer and Punctuation (with behavior "
            "Isolated; also after WhitespaceSplit), one Metaspace, or both in this order; or ByteLevel, which "
            "may follow a Split");
    const char *text;
    int64_t size;
    tok_status status = read_meta(r, step, &text, &size, &t->prepend, &t->meta_split);
    if (status == TOK_OK) {
        t->meta = true;
        t->meta_size = (int)size;
        memcpy(t->meta_text, text, (size_t)size);
    }
    return status;
}

tok_status tok_read_pre_tokenizer(tok_reader *r, const json_t *pre_tokenizer)
{
    const tokenizer *t = r->t;
    const tok_status status = each(r, pre_tokenizer, "pre_tokenizer", "pretokenizers", one_pre_tokenizer);
    bool counts = true; /* each step counts the characters that come from the first one */
    for (int k = 0; k < t->n_norms; k++)
        counts = counts && t->norms[k].kind < TOK_NORM_CLEAN;
    if (status == TOK_OK && t->meta && t->prepend == TOK_PREPEND_FIRST && !counts)
        return unknown(r, "prepend_scheme", "first",
                       "after BertNormalizer, NFC, NFD, StripAccents or Lowercase it must be \"always\" or \"never\"");
    return status;
}

/* ---- post_processor */

/* Append an item to a template. */
static tok_status add_item(tok_reader *r, tok_template *to, int32_t id, int32_t type)
{
    if (to->n == TOK_MAX_ITEMS)
        return tok_reader_fail(r, TOK_DAMAGED, "the post_processor has too many ids; it must have at most %d",
                               TOK_MAX_ITEMS - 1);
    to->items[to->n].id = id;
    to->items[to->n++].type = type;
    return TOK_OK;
}

/* Read a token number. Messages call its token "name". */
static tok_status read_number(const tok_reader *r, const json_t *value, const char *name, int32_t *id)
{
    const long long number = json_integer_value(value);
    char safe[60];
    io_safe(safe, sizeof(safe), name);
    if (!json_is_integer(value))
        return tok_reader_fail(r, TOK_DAMAGED, "\"%s\" of the post_processor has an id that is not an integer", safe);
    if (number < 0 || number > INT32_MAX)
        return tok_reader_fail(r, TOK_DAMAGED, "\"%s\" of the post_processor has id %lld; it must be 0 to %d", safe,
                               number, INT32_MAX);
    *id = (int32_t)number;
    return TOK_OK;
}

/* Append the token numbers of a special token in a template. */
static tok_status read_special(tok_reader *r, const json_t *template, const json_t *item, int32_t type,
                               tok_template *to)
{
    const char *id;
    int64_t size;
    tok_status status = tok_json_string(r, item, "a special token of the post_processor", "id", &id, &size);
    if (status != TOK_OK)
        return status;
    const json_t *ids = json_object_get(json_object_get(json_object_get(template, "special_tokens"), id), "ids");
    char safe[60];
    if (!json_is_array(ids))
        return tok_reader_fail(r, TOK_DAMAGED, "special_tokens of the post_processor has no ids for \"%s\"",
                               io_safe(safe, sizeof(safe), id));
    for (size_t k = 0; k < json_array_size(ids) && status == TOK_OK; k++) {
        int32_t number = 0;
        status = read_number(r, json_array_get(ids, k), id, &number);
        if (status == TOK_OK)
            status = add_item(r, to, number, type);
    }
    return status;
}

/* Read "single" or "pair" of a TemplateProcessing. `texts` is the number of texts in it. */
static tok_status read_template(tok_reader *r, const json_t *step, const char *key, int texts, tok_template *to)
{
    const json_t *list = json_object_get(step, key);
    tok_status status = TOK_OK;
    bool seen[2] = {false};
    to->n = 0;
    for (size_t k = 0; k < json_array_size(list) && status == TOK_OK; k++) {
        const json_t *item = json_array_get(list, k), *sequence = json_object_get(item, "Sequence"),
                     *special = json_object_get(item, "SpecialToken");
        const char *id = json_string_value(json_object_get(sequence, "id"));
        const json_int_t given = json_integer_value(json_object_get(sequence != NULL ? sequence : special, "type_id"));
        const int32_t type = given >= 0 && given <= INT32_MAX ? (int32_t)given : 0;
        const int text = id != NULL && strcmp(id, "B") == 0;
        if (sequence == NULL || text >= texts || seen[text]) {
            status = read_special(r, step, special, type, to);
            continue;
        }
        seen[text] = true;
        status = add_item(r, to, text == 0 ? TOK_FIRST_TEXT : TOK_SECOND_TEXT, type);
    }
    if (status == TOK_OK && (!seen[0] || (texts == 2 && !seen[1])))
        return tok_reader_fail(r, TOK_DAMAGED, "\"%s\" of the post_processor has %s; it must have %s", key,
                               texts == 1 ? "no Sequence" : "not the Sequences A and B", texts == 1 ? "one" : "both");
    return status;
}

/* Read a member such as ["[SEP]", 102] of BertProcessing or RobertaProcessing. */
static tok_status read_numbered(const tok_reader *r, const json_t *step, const char *where, const char *key,
                                int32_t *id)
{
    const json_t *value = json_object_get(step, key);
    const char *name = json_string_value(json_array_get(value, 0));
    if (name == NULL)
        return tok_reader_fail(r, TOK_DAMAGED,
                               "%s has no \"%s\"; it must be a token and its number, such as [\"[SEP]\", 102]", where,
                               key);
    return read_number(r, json_array_get(value, 1), name, id);
}

static tok_status read_around(tok_reader *r, const json_t *step, const char *type, bool roberta)
{
    tokenizer *t = r->t;
    int32_t cls = 0, sep = 0;
    tok_status status = read_numbered(r, step, type, "cls", &cls);
    if (status == TOK_OK)
        status = read_numbered(r, step, type, "sep", &sep);
    tok_set_around(t, cls, sep, roberta);
    t->trim = t->trim_first = roberta;
    if (status == TOK_OK && roberta)
        status = tok_json_bool(r, step, type, "trim_offsets", &t->trim);
    if (status == TOK_OK && roberta)
        status = tok_json_bool(r, step, type, "add_prefix_space", &t->trim_first);
    return status;
}

static tok_status one_post_processor(tok_reader *r, const json_t *step, const char *type)
{
    tokenizer *t = r->t;
    if (strcmp(type, "ByteLevel") == 0 && !t->has_template) {
        t->trim = t->trim_first = true;
        const tok_status status = tok_json_bool(r, step, "post_processor ByteLevel", "trim_offsets", &t->trim);
        return status == TOK_OK ? tok_json_bool(r, step, "post_processor ByteLevel", "add_prefix_space", &t->trim_first)
                                : status;
    }
    const bool bert = strcmp(type, "BertProcessing") == 0, roberta = strcmp(type, "RobertaProcessing") == 0;
    if ((strcmp(type, "TemplateProcessing") != 0 && !bert && !roberta) || t->has_template)
        return unknown(r, "post_processor", type,
                       "it must be one TemplateProcessing, BertProcessing or RobertaProcessing, which may follow a "
                       "ByteLevel");
    t->has_template = true;
    if (bert || roberta)
        return read_around(r, step, type, roberta);
    const tok_status status = read_template(r, step, "single", 1, &t->single);
    if (status == TOK_OK && json_object_get(step, "pair") == NULL)
        return TOK_OK;
    return status == TOK_OK ? read_template(r, step, "pair", 2, &t->pair) : status;
}

tok_status tok_read_post_processor(tok_reader *r, const json_t *post_processor)
{
    return each(r, post_processor, "post_processor", "processors", one_post_processor);
}

/* ---- decoder */

static tok_status one_decoder(tok_reader *r, const json_t *decoder, const char *type)
{
    tokenizer *t = r->t;
    if (t->n_steps == TOK_MAX_STEPS)
        return tok_reader_fail(r, TOK_DAMAGED, "the decoder has too many steps; it must have at most %d",
                               TOK_MAX_STEPS);
    tok_decode_step *step = &t->steps[t->n_steps];
    tok_status status = TOK_OK;
    if (strcmp(type, "Metaspace") == 0) {
        const char *text;
        tok_prepend prepend;
        bool split;
        status = read_meta(r, decoder, &text, &step->pattern_size, &prepend, &split);
        if (status != TOK_OK)
            return status;
        *step = (tok_decode_step){.kind = TOK_DECODE_META,
                                  .drop = prepend != TOK_PREPEND_NEVER,
                                  .pattern = copy(text, step->pattern_size),
                                  .content = copy(" ", 1),
                                  .pattern_size = step->pattern_size,
                                  .content_size = 1};
        if (step->pattern == NULL || step->content == NULL)
            return tok_reader_memory(r);
    } else if (strcmp(type, "Replace") == 0) {
        bool regex;
        step->kind = TOK_DECODE_REPLACE;
        status = read_replace(r, decoder, "decoder Replace", &step->pattern, &step->pattern_size, &step->content,
                              &step->content_size, &regex);
        if (status == TOK_OK && regex)
            return unknown(r, "the regular expression", step->pattern, "a decoder must not have one");
    } else if (strcmp(type, "ByteFallback") == 0) {
        for (int k = 0; k < t->n_steps; k++)
            if (t->steps[k].kind == TOK_DECODE_BYTES)
                return tok_reader_fail(r, TOK_DAMAGED,
                                       "the decoder has ByteFallback twice; it must have it at most once");
        step->kind = TOK_DECODE_BYTES;
    } else if (strcmp(type, "WordPiece") == 0) {
        const char *prefix;
        status = tok_json_string(r, decoder, "decoder WordPiece", "prefix", &prefix, &step->pattern_size);
        if (status == TOK_OK)
            status = tok_json_bool(r, decoder, "decoder WordPiece", "cleanup", &step->cleanup);
        if (status == TOK_OK && (step->pattern = copy(prefix, step->pattern_size)) == NULL)
            return tok_reader_memory(r);
        step->kind = TOK_DECODE_WORDPIECE;
    } else if (strcmp(type, "ByteLevel") == 0) {
        for (int k = 0; k < t->n_steps; k++)
            if (t->steps[k].kind == TOK_DECODE_BYTES)
                return tok_reader_fail(r, TOK_DAMAGED,
                                       "the decoder has ByteFallback and ByteLevel; it must have only one of them");
        step->kind = TOK_DECODE_BYTE_LEVEL; /* allowed only as the last step, like Fuse */
    } else if (strcmp(type, "Fuse") == 0) {
        return TOK_OK; /* allowed only as the last step, where it changes nothing */
    } else {
        return unknown(r, "decoder", type,
                       "it must be Metaspace, WordPiece, ByteLevel, Replace, ByteFallback, Fuse or Sequence");
    }
    if (status == TOK_OK)
        t->n_steps++;
    return status;
}

/* Return the type of a step that must be last, but is not; NULL: there is none. Fuse and ByteLevel join all tokens, so
 * steps after them would process a different text. */
static const char *joins_early(const json_t *decoder)
{
    const json_t *list = json_object_get(decoder, "decoders");
    for (size_t k = 0; k + 1 < json_array_size(list); k++) {
        const char *type = json_string_value(json_object_get(json_array_get(list, k), "type"));
        if (type != NULL && (strcmp(type, "Fuse") == 0 || strcmp(type, "ByteLevel") == 0))
            return type;
    }
    return NULL;
}

tok_status tok_read_decoder(tok_reader *r, const json_t *decoder)
{
    const char *early = joins_early(decoder);
    if (early != NULL)
        return tok_reader_fail(r, TOK_DAMAGED, "the decoder has steps after %s; %s must be last", early, early);
    if (decoder == NULL || json_is_null(decoder))
        r->t->steps[r->t->n_steps++].kind = TOK_DECODE_JOIN;
    return each(r, decoder, "decoder", "decoders", one_decoder);
}
