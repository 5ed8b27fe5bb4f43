/* test_tokenizer_damage.c -- a damaged tokenizer is an error of one line, or still a valid tokenizer. Also lets every
 * allocation fail once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/tokenizer/files.h"
#include "tests/starve.h"
#include "tokenizer/charsmap.h"

static const char text[] =
    " The  \xef\xbd\x81 e\xcc\x81 \xf0\x9f\x98\x80\xff <extra_id_0>\t<e>  Ab c \0 </s> \xea\xb0\x81www";

/* Encode and decode with a tokenizer that was read successfully. */
static void use(const tokenizer *t)
{
    int32_t *ids;
    int64_t n, size;
    char *back;
    assert_int_equal(tok_encode(t, text, sizeof(text) - 1, true, &ids, &n, err), TOK_OK);
    assert_int_equal(tok_decode(t, ids, n, false, &back, &size, err), TOK_OK);
    free(back);
    free(ids);
    int32_t all[64];
    for (int32_t k = 0; k < 64; k++)
        all[k] = (int32_t)((int64_t)k * tok_size(t) / 64);
    assert_int_equal(tok_decode(t, all, 64, true, &back, &size, err), TOK_OK);
    free(back);
    const tok_string whole = {text, sizeof(text) - 1};
    tok_encoding e;
    assert_int_equal(tok_encode_pair(t, whole, &whole, 0, &e, err), TOK_OK);
    for (int64_t k = 0; k < e.n; k++) {
        assert_true(e.texts[k] >= -1 && e.texts[k] <= 1);
        if (e.spans != NULL)
            assert_true(e.spans[k].begin >= 0 && e.spans[k].begin <= e.spans[k].end && e.spans[k].end <= whole.size);
    }
    tok_encoding_free(&e);
}

/* Return true if the bytes can be read as a tokenizer. */
static bool try(const char *bytes, int64_t size)
{
    char *exact = malloc((size_t)size + (size == 0)); /* exact size: a sanitizer detects reads past the end */
    assert_non_null(exact);
    memcpy(exact, bytes, (size_t)size);
    tokenizer *t;
    strcpy(err, "");
    const tok_status status = tok_open_memory(&t, exact, size, "damaged", 3, err);
    free(exact);
    if (status != TOK_OK) {
        assert_int_equal(status, TOK_DAMAGED);
        assert_null(t);
        assert_one_line(err);
        assert_memory_equal(err, "damaged: ", 9);
        return false;
    }
    use(t);
    tok_close(t);
    return true;
}

static const char *const names[] = {"t5.model",   "fallback.model", "suffix.model",    "t5.json",
                                    "first.json", "fallback.json",  "compact t5.json", "mpnet.json",
                                    "words.json", "roberta.json",   "llama3.json"};
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static file load_data(const char *name)
{
    char path[200];
    const bool compact = strncmp(name, "compact ", 8) == 0;
    snprintf(path, sizeof(path), DATA "%s", compact ? name + 8 : name);
    file f = load(path);
    if (compact)
        make_compact(&f, NULL);
    return f;
}

static uint64_t number_state = 1;

static uint64_t below(uint64_t n)
{
    number_state = number_state * 6364136223846793005u + 1442695040888963407u;
    return (number_state >> 33) % n;
}

static void truncated_files_are_refused(void **state)
{
    (void)state;
    for (int k = 0; k < N_NAMES; k++) {
        const file f = load_data(names[k]);
        int read = 0, n = 0;
        for (int64_t size = 0; size < f.size - 2; size += size < 200 ? 1 : f.size / 150, n++)
            read += try(f.bytes, size);
        print_message("%s: %d of %d truncated files are tokenizers\n", names[k], read, n);
        if (strstr(names[k], "json"))
            assert_int_equal(read, 0);
        else
            assert_true(read < n / 10); /* protocol buffers may end after any field */
        free(f.bytes);
    }
}

static void changed_bytes_do_no_harm(void **state)
{
    (void)state;
    for (int k = 0; k < N_NAMES; k++) {
        const file f = load_data(names[k]);
        int read = 0, n = 0;
        for (int64_t at = 0; at < f.size; at += at < 60 ? 1 : 1 + (int64_t)below((uint64_t)f.size / 60)) {
            const char kept = f.bytes[at];
            for (int change = 0; change < 4; change++, n++) {
                f.bytes[at] = (char)(change == 0 ? kept ^ 1 << below(8) : change == 1 ? ~kept : change == 2 ? 0x7f : 0);
                read += try(f.bytes, f.size);
            }
            f.bytes[at] = kept;
        }
        print_message("%s: %d of %d changed files are tokenizers\n", names[k], read, n);
        free(f.bytes);
    }
}

/* Change several bytes, and remove, duplicate and move parts. */
static void mutated_files_do_no_harm(void **state)
{
    (void)state;
    for (int k = 0; k < N_NAMES; k++) {
        const file f = load_data(names[k]);
        char *bytes = malloc((size_t)f.size * 2);
        int read = 0;
        const int n = SANITIZED ? 120 : 400;
        for (int round = 0; round < n; round++) {
            int64_t size = f.size;
            memcpy(bytes, f.bytes, (size_t)size);
            const int64_t at = (int64_t)below((uint64_t)size),
                          length = (int64_t)below((uint64_t)(size - at) < 64 ? (uint64_t)(size - at) : 64);
            if (round % 3 == 0) {
                memmove(bytes + at, bytes + at + length, (size_t)(size - at - length));
                size -= length;
            } else if (round % 3 == 1) {
                memmove(bytes + at + length, bytes + at, (size_t)(size - at));
                size += length;
            }
            for (uint64_t change = below(4); change > 0; change--)
                bytes[below(below(2) ? (uint64_t)size : 400)] = (char)below(256);
            read += try(bytes, size);
        }
        print_message("%s: %d of %d mutated files are tokenizers\n", names[k], read, n);
        free(bytes);
        free(f.bytes);
    }
}

/* Replace a text in a tokenizer.json, and check that the error contains `why`. */
static void refused(const char *name, const char *old, const char *new, const char *why)
{
    const file f = load_data(name);
    char *found = strstr(f.bytes, old);
    if (found == NULL)
        fail_msg("%s has no %s", name, old);
    const size_t before = (size_t)(found - f.bytes), after = (size_t)f.size - before - strlen(old);
    char *bytes = malloc((size_t)f.size + strlen(new) + 1);
    memcpy(bytes, f.bytes, before);
    memcpy(bytes + before, new, strlen(new));
    memcpy(bytes + before + strlen(new), found + strlen(old), after);
    if (try(bytes, (int64_t)(before + strlen(new) + after)))
        fail_msg("%s with %s in place of %s was read", name, new, old);
    if (strstr(err, why) == NULL)
        fail_msg("%s with %s: \"%s\" has no \"%s\"", name, new, err, why);
    free(bytes);
    free(f.bytes);
}

static void errors_in_a_json_are_named(void **state)
{
    (void)state;
    refused("t5.json", "\"1.0\"", "\"2.0\"", "version");
    refused("t5.json", "\"Unigram\"", "\"WordLevel\"", "model \"WordLevel\" is not supported; it must be Unigram");
    refused("t5.json", "\"unk_id\":2", "\"unk_id\":null", "unk_id is not an integer; it must be");
    refused("t5.json", "\"unk_id\":2", "\"unk_id\":100000", "unk_id is 100000");
    refused("t5.json", "[\"<pad>\",0.0]", "[\"<pad>\"]", "vocab[0]");
    refused("t5.json", "[\"<pad>\",0.0]", "[\"<pad>\",\"0\"]", "vocab[0]");
    refused("t5.json", "[\"<pad>\",0.0]", "[\"<pad>\",0.0,1]", "vocab[0]");
    refused("t5.json", "[\"<pad>\",0.0]", "[0.0,\"<pad>\"]", "vocab[0]");
    refused("t5.json", "\"unk_id\":2", "\"unk_id\":-1", "unk_id is -1");
    refused("t5.json", "\"unk_id\":2", "\"unk\":2", "unk_id is missing");
    refused("t5.json", "\"id\":1,", "\"id\":-1,", "added_tokens[1] has id -1; it must be 1");
    refused("t5.json", "\"id\":1,", "\"id\":2147483648,", "added_tokens[1] has id 2147483648; it must be 1");
    refused("t5.json", "\"id\":1,", "\"id\":1.0,", "added_tokens[1] has no integer id; it must be 1");
    refused("t5.json", "\"content\":\"</s>\"", "\"content\":\"<new>\"", "added_tokens[1] has id 1; it must be 910");
    refused("t5.json", "[\"<pad>\",0.0]", "[\"<pad>\",NaN]", "line 1");
    refused("t5.json", "[\"<pad>\",0.0]", "[\"<pad>\",1e999]", "line 1");
    refused("t5.json", "[\"a\",", "[\"b\",", "both \"b\"");
    refused("t5.json", "\"vocab\":[[", "\"vocab\":[[[", "line 1");
    refused("t5.json", "charsmap\":\"", "charsmap\":\"*", "base64");
    refused("t5.json", "charsmap\":\"", "charsmap\":\"====", "base64");
    refused("t5.json", "charsmap\":\"", "charsmap\":\"AAAA", "trie of 0 bytes");
    refused("t5.json", "charsmap\":\"", "charsmap\":\"////", "trie of 16777215");
    refused("t5.json", "\"Strip\"", "\"NFKD\"", "normalizer \"NFKD\" is not supported");
    refused("t5.json", " {2,}", "\\\\s+", "regular expression");
    refused("t5.json", "\"Metaspace\"", "\"ByteLevel\"",
            "pre_tokenizer ByteLevel or Split is not supported with this model; the model must be BPE");
    refused("t5.json", "\"replacement\":\"\xe2\x96\x81\"", "\"replacement\":\"__\"", "one character");
    refused("t5.json", "\"always\"", "\"often\"", "prepend_scheme \"often\"");
    refused("t5.json", "\"TemplateProcessing\"", "\"Processing\"", "post_processor \"Processing\"");
    refused("t5.json", "\"single\":[{\"Sequence\"", "\"single\":[{\"Sequenze\"", "special token");
    refused("t5.json", "\"ids\":[1]", "\"ids\":[-1]", "id -1");
    refused("t5.json", "\"id\":1,", "\"id\":3,", "added_tokens[1] has id 3; it must be 1");
    refused("t5.json", "\"single_word\":false", "\"single_word\":7", "single_word");
    refused("t5.json", "\"type\":\"Unigram\"", "\"type\":null", "model has no text \"type\"");
    refused("t5.json", "\"type\":\"Unigram\",\"unk_id\":2,\"vocab\":[[", "\"unk_id\":2,\"vocab\":{},\"x\":[[",
            "model has no \"type\", and its vocab is not a list");
    refused("t5.json", "\"special\":true", "\"special\":7", "\"special\"");
    refused("t5.json", "{\"version\"", "{\"version\":\"1.0\",\"version\"", "line 1");
    refused("fallback.json", "\"Fuse\"", "\"CTC\"", "decoder \"CTC\"");
    refused("fallback.json", "\"ByteFallback\"},{\"type\":\"Fuse\"", "\"Fuse\"},{\"type\":\"ByteFallback\"",
            "after Fuse");
}

static void errors_in_wordpiece_are_named(void **state)
{
    (void)state;
    refused("bert.json", "\"unk_token\":\"[UNK]\"", "\"unk_token\":\"[NO]\"",
            "model.unk_token is \"[NO]\", which model.vocab does not have");
    refused("bert.json", "\"unk_token\"", "\"unk\"", "model has no text \"unk_token\"");
    refused("bert.json", "\"continuing_subword_prefix\"", "\"prefix\"", "\"continuing_subword_prefix\"");
    refused("bert.json", "per_word\":100", "per_word\":1e2", "max_input_chars_per_word is no such number");
    refused("bert.json", "per_word\":100", "per_word\":-1", "max_input_chars_per_word is no such number");
    refused("bert.json", "max_input_chars_per_word", "max", "max_input_chars_per_word is missing");
    refused("bert.json", "\"[PAD]\":0", "\"[PAD]\":1", "both \"[PAD]\" and \"[UNK]\"");
    refused("bert.json", "\"[PAD]\":0", "\"[PAD]\":-1", "model.vocab has -1 for \"[PAD]\"; it must be 0 to");
    refused("bert.json", "\"[PAD]\":0", "\"[PAD]\":4000000", "has 4000000 for \"[PAD]\"; it must be 0 to");
    refused("bert.json", "\"[PAD]\":0", "\"[PAD]\":\"0\"", "has no integer for \"[PAD]\"; it must be 0 to");
    refused("bert.json", "\"vocab\":{", "\"vocab\":{},\"x\":{", "vocab has 0 pieces");
    refused("bert.json", "\"lowercase\":true", "\"lowercase\":1", "\"lowercase\" that is not true or false");
    refused("bert.json", "\"strip_accents\":null", "\"strip_accents\":1", "\"strip_accents\"");
    refused("bert.json", "\"BertPreTokenizer\"", "\"Split\"", "pre_tokenizer Split has no text \"Regex\"");
    refused("bert.json", "\"pair\":[", "\"pair\":[],\"x\":[", "\"pair\" of the post_processor has not the Sequences A");
    refused("bert.json", "\"ids\":[2]", "\"ids\":[2000000]",
            "an id of the post_processor is 2000000; it must be below");
    refused("first.json", "\"Strip\"", "\"Lowercase\"",
            "prepend_scheme \"first\" is not supported; after BertNormalizer");
    refused("words.json", "\"Whitespace\"", "\"Punctuation\",\"behavior\":\"Removed\"",
            "pre_tokenizer \"Punctuation\"");
    refused("words.json", "\"NFD\"", "\"NFKD\"", "normalizer \"NFKD\" is not supported");
    refused("cased.json", "\"sep\":[", "\"sep\":[[],", "BertProcessing has no \"sep\"");
    refused("mpnet.json", "\"cls\":", "\"class\":", "RobertaProcessing has no \"cls\"");
    refused("mpnet.json", "\"trim_offsets\":true", "\"trim_offsets\":1", "trim_offsets");
    refused("mpnet.json", "\"prefix\":\"##\"", "\"prefix\":2", "decoder WordPiece has no text \"prefix\"");
}

static void errors_in_bpe_are_named(void **state)
{
    (void)state;
    refused("roberta.json", "\"dropout\":null", "\"dropout\":0.1", "model.dropout is 0.1, which is not supported");
    refused("roberta.json", "\"byte_fallback\":false", "\"byte_fallback\":true", "model.byte_fallback is true");
    refused("roberta.json", "\"fuse_unk\":false", "\"fuse_unk\":0", "\"fuse_unk\" that is not true or false");
    refused("roberta.json", "prefix\":null", "prefix\":\"##\"", "continuing_subword_prefix is \"##\"");
    refused("roberta.json", "suffix\":null", "suffix\":\"</w>\"", "end_of_word_suffix is \"</w>\"");
    refused("roberta.json", "suffix\":null", "suffix\":1", "end_of_word_suffix is \"no text\"");
    refused("roberta.json", "\"merges\":[[", "\"merges\":{},\"x\":[[", "it must be a list");
    refused("roberta.json", "\"merges\":[[", "\"merges\":[\"a\",[", "model.merges[0] is not a pair of pieces");
    refused("roberta.json", "\"merges\":[[", "\"merges\":[\"a b c\",[", "model.merges[0] is not a pair of pieces");
    refused("roberta.json", "\"merges\":[[", "\"merges\":[[\"a\",\"b\",\"c\"],[", "model.merges[0] is not a pair");
    refused("roberta.json", "\"merges\":[[", "\"merges\":[\"a xyz\",[", "must have its second piece");
    refused("roberta.json", "\"merges\":[[", "\"merges\":[[\"xyz\",\"a\"],[", "must have its first piece");
    refused("roberta.json", "\"merges\":[[", "\"merges\":[\"q q\",[",
            "is \"q q\"; model.vocab must have what it makes");
    refused("roberta.json", "\"unk_token\":null", "\"unk_token\":1", "model.unk_token is not a text");
    refused("none.json", "\"unk_token\":null", "\"unk_token\":\"no\"", "nor the unk_token \"no\"");
    refused("roberta.json", "\"vocab\":{", "\"vocab\":{},\"x\":{", "vocab has 0 pieces");
    refused("roberta.json", "\"pre_tokenizer\":{", "\"pre_tokenizer\":null,\"x\":{",
            "model \"BPE\" without the pre_tokenizer ByteLevel is not supported");
    refused("roberta.json", "\"use_regex\":true", "\"use_regex\":1", "pre_tokenizer ByteLevel has a \"use_regex\"");
    refused("llama3.json", "{1,3}", "{1,4}", "it must be that of GPT-2, Llama 3 or Qwen 2");
    refused("llama3.json", "\"Isolated\"", "\"Removed\"", "behavior \"Removed\" is not supported");
    refused("llama3.json", "\"invert\":false", "\"invert\":true", "with invert, it must be Removed");
    refused("llama3.json", "\"use_regex\":false", "\"use_regex\":true", "after Split has use_regex true");
    refused("llama3.json", "\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space true");
    refused("llama3.json", "{\"type\":\"Split\"", "{\"type\":\"ByteLevel\"},{\"type\":\"Split\"",
            "pre_tokenizer \"Split\" is not supported");
    refused("llama3.json", "{\"type\":\"TemplateProcessing\"", "{\"type\":\"ByteLevel\"},{\"type\":\"Other\"",
            "post_processor \"Other\" is not supported");
    refused("roberta.json", "\"decoder\":{",
            "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},{\"type\":\"Fuse\"}]},\"x\":{",
            "the decoder has steps after ByteLevel; ByteLevel must be last");
    refused("roberta.json", "\"decoder\":{",
            "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"ByteLevel\"}]},"
            "\"x\":{",
            "the decoder has ByteFallback and ByteLevel");
}

/* Open a vocab.txt with the rules of a class. */
static tok_status open_vocab(tokenizer **t, tok_rules rules, const char *bytes, int64_t size, const char *config)
{
    const tok_file none = {NULL, 0, "none"};
    const tok_beside beside = {none, {config, (int64_t)strlen(config), "config.json"}, none, rules};
    return tok_open_beside(t, bytes, size, "vocab.txt", 0, &beside, err);
}

static const char small_vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\n",
                  residues[] = "<cls>\n<pad>\n<eos>\n<unk>\nL\nA\n<mask>";
enum { SMALL = sizeof(small_vocab) - 1, RESIDUES = sizeof(residues) - 1 };

static void errors_in_a_vocab_are_named(void **state)
{
    static const struct {
        tok_rules rules;
        const char *bytes;
        int64_t size;
        const char *config, *why;
    } cases[] = {
        {TOK_RULES_BERT, "[UNK]\n\xff\n", 8, "{}", "vocab.txt: it is no vocab.txt, which must be UTF-8 without NUL"},
        {TOK_RULES_BERT, "[UNK]\n\0\n", 8, "{}", "vocab.txt: it is no vocab.txt, which must be UTF-8 without NUL"},
        {TOK_RULES_BERT, "a\nb\n", 4, "{}",
         "config.json: unk_token must be a token of the vocabulary, such as \"[UNK]\""},
        {TOK_RULES_BERT, "\n", 1, "{}", "vocab.txt: the vocabulary has only an empty piece"},
        {TOK_RULES_BERT, small_vocab, SMALL, "{\"unk_token\": null}",
         "config.json: unk_token must be a token of the vocabulary"},
        {TOK_RULES_BERT, small_vocab, SMALL, "{\"unk_token\": \"<no>\"}",
         "config.json: unk_token must be a token of the vocabulary"},
        {TOK_RULES_BERT, small_vocab, SMALL, "{\"cls_token\": null}",
         "config.json: cls_token must be a token, such as \"[CLS]\""},
        {TOK_RULES_BERT, small_vocab, SMALL, "{\"do_lower_case\": 1}",
         "config.json: \"do_lower_case\" must be true or false"},
        {TOK_RULES_BERT, small_vocab, SMALL, "{\"strip_accents\": \"\"}",
         "config.json: \"strip_accents\" must be true or false"},
        {TOK_RULES_ESM, "L\n\xff", 3, "{}", "vocab.txt: it is no vocab.txt"},
        {TOK_RULES_ESM, "L\n", 2, "{}", "unk_token must be a token of the vocabulary, such as \"<unk>\""},
        {TOK_RULES_ESM, residues, RESIDUES, "{\"unk_token\": \"J\"}", "unk_token must be a token of the vocabulary"},
        {TOK_RULES_ESM, residues, RESIDUES, "{\"cls_token\": null}", "cls_token must be a token, such as \"<cls>\""},
        {TOK_RULES_ESM, residues, RESIDUES, "{\"eos_token\": null}", "eos_token must be a token, such as \"<eos>\""},
    };
    tokenizer *t;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        assert_int_equal(open_vocab(&t, cases[k].rules, cases[k].bytes, cases[k].size, cases[k].config), TOK_DAMAGED);
        assert_null(t);
        assert_one_line(err);
        if (strstr(err, cases[k].why) == NULL)
            fail_msg("\"%s\" has no \"%s\"", err, cases[k].why);
    }
    for (int esm = 0; esm < 2; esm++)
        for (long left = 1, more = 1; STARVES && more; left++) {
            starve(left, true);
            const tok_status status = esm ? open_vocab(&t, TOK_RULES_ESM, residues, RESIDUES, "{}")
                                          : open_vocab(&t, TOK_RULES_BERT, small_vocab, SMALL, "{}");
            more = starve_end() >= left;
            assert_int_equal(status, more ? TOK_FAILED : TOK_OK);
            tok_close(t);
        }
}

/* White space at the end of a line is removed; of equal lines, the last counts. */
static void lines_of_a_vocab_are_pieces(void **state)
{
    static const char lines[] = "[UNK]\n[CLS]\n[SEP]\na\r\n##a \n\n\xc3\xa9\na\n";
    static const int32_t wanted[] = {1, 7, 4, 6, 0, 2};
    tokenizer *t;
    int32_t *ids;
    int64_t n;
    (void)state;
    if (open_vocab(&t, TOK_RULES_BERT, lines, sizeof lines - 1, "{\"strip_accents\": false}") != TOK_OK)
        fail_msg("%s", err);
    assert_int_equal(tok_encode(t, "Aa \xc3\x89 aab", 9, true, &ids, &n, err), TOK_OK);
    assert_int_equal(n, 6);
    assert_memory_equal(ids, wanted, sizeof wanted);
    free(ids);
    tok_close(t);
}

/* Very long scores and pieces. A score must be a finite number; a piece has at most 1 MB. */
static void long_parts_are_bounded(void **state)
{
    enum { DIGITS = 100000, MOST = 1 << 20 };
    static char part[MOST + 100];
    (void)state;
    memset(part, '9', DIGITS);
    memcpy(part, "[\"<pad>\",", 9);
    strcpy(part + DIGITS, "]");
    refused("t5.json", "[\"<pad>\",0.0]", part, "line 1"); /* an integer too large for every integer type */
    strcpy(part + DIGITS, ".0]");
    refused("t5.json", "[\"<pad>\",0.0]", part, "line 1");
    for (int more = 0; more < 2; more++) {
        memset(part, 'x', MOST + 20);
        memcpy(part, "[[\"", 3);
        strcpy(part + 3 + MOST + more, "\",0.0],[\"<pad>\",0.0]");
        const char *const why = more ? "model.vocab[0] has 1048577 bytes" : "added_tokens[0] has id 0; it must be 1";
        refused("t5.json", "[[\"<pad>\",0.0]", part, why);
    }
}

/* Write a tokenizer.json in which a text has been replaced, and open it. */
static tokenizer *opened_with(const char *name, const char *old, const char *new)
{
    const file f = load_data(name);
    const char *found = strstr(f.bytes, old);
    assert_non_null(found);
    const size_t before = (size_t)(found - f.bytes), size = (size_t)f.size + strlen(new) - strlen(old);
    char *bytes = malloc(size);
    tokenizer *t;
    memcpy(bytes, f.bytes, before);
    memcpy(bytes + before, new, strlen(new));
    memcpy(bytes + before + strlen(new), found + strlen(old), (size_t)f.size - before - strlen(old));
    if (tok_open_memory(&t, bytes, (int64_t)size, "grows", 0, err) != TOK_OK)
        fail_msg("%s", err);
    free(bytes);
    free(f.bytes);
    return t;
}

/* Steps: a member of each that is missing or has another type, steps that occur twice, and too many of them. */
static void errors_in_steps_are_named(void **state)
{
    static const struct {
        const char *name, *old, *new, *why;
    } cases[] = {
        /* normalizer */
        {"t5.json", "\"normalizer\":{", "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":{}},\"x\":{",
         "normalizer of type Sequence has no list \"normalizers\""},
        {"t5.json", "\"normalizers\":[{", "\"normalizers\":[{\"x\":1},{", "normalizer has no text \"type\""},
        {"t5.json", "\"precompiled_charsmap\"", "\"map\"",
         "normalizer Precompiled has no text \"precompiled_charsmap\""},
        {"t5.json", "charsmap\":\"", "charsmap\":\"\",\"x\":\"", "precompiled_charsmap is empty"},
        {"t5.json", "charsmap\":\"", "charsmap\":\"AAA\",\"x\":\"", "of 3 characters, is not base64"},
        {"t5.json", "charsmap\":\"", "charsmap\":\"AB==\",\"x\":\"", "of 4 characters, is not base64"},
        {"t5.json", "charsmap\":\"", "charsmap\":\"AAB=\",\"x\":\"", "of 4 characters, is not base64"},
        {"t5.json", "charsmap\":\"", "charsmap\":\"AA=A\",\"x\":\"", "of 4 characters, is not base64"},
        {"t5.json", "charsmap\":\"", "charsmap\":\"A===\",\"x\":\"", "of 4 characters, is not base64"},
        {"t5.json", "charsmap\":\"", "charsmap\":\"+/==\",\"x\":\"", "of 4 characters, is not base64"},
        {"t5.json", "charsmap\":\"", "charsmap\":\"AA==\",\"x\":\"", "charsmap has 1 bytes"},
        {"t5.json", "charsmap\":\"", "charsmap\":\"AAA=\",\"x\":\"", "charsmap has 2 bytes"},
        {"t5.json", "\"strip_left\":false", "\"strip_left\":0", "normalizer Strip has a \"strip_left\""},
        {"t5.json", "\"strip_right\":true", "\"strip_right\":1", "normalizer Strip has a \"strip_right\""},
        {"t5.json", "{\"Regex\":\" {2,}\"}", "{\"String\":\"\"}", "normalizer Replace has an empty pattern"},
        {"t5.json", "{\"Regex\":\" {2,}\"}", "{\"String\":7}", "normalizer Replace has no text \"String\""},
        {"t5.json", "\"pattern\":{\"Regex\"", "\"x\":{\"Regex\"", "normalizer Replace has no text \"String\""},
        {"t5.json", "{\"Regex\":\" {2,}\"},\"content\"", "{\"Regex\":\" {2,}\"},\"with\"",
         "normalizer Replace has no text \"content\""},
        {"bert.json", "\"clean_text\":true", "\"clean_text\":1", "BertNormalizer has a \"clean_text\""},
        {"bert.json", "\"handle_chinese_chars\":true", "\"handle_chinese_chars\":1", "\"handle_chinese_chars\""},
        {"roberta.json", "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFC\"},"
         "{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},"
         "{\"type\":\"NFC\"},{\"type\":\"NFC\"}]}",
         "the normalizer has too many steps; it must have at most 8"},
        {"roberta.json", "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFC\"},"
         "{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},"
         "{\"type\":\"BertNormalizer\"}]}",
         "the normalizer has too many steps; it must have at most 8"},
        /* pre_tokenizer */
        {"t5.json", "\"replacement\"", "\"x\"", "Metaspace has no text \"replacement\""},
        {"t5.json", "\"replacement\":\"\xe2\x96\x81\"", "\"replacement\":\"\"", "replacement of Metaspace has 0 bytes"},
        {"t5.json", "\"prepend_scheme\":\"always\"", "\"prepend_scheme\":1", "prepend_scheme \"\" is not supported"},
        {"t5.json", "\"split\":true", "\"split\":1", "Metaspace has a \"split\""},
        {"t5.json", "\"split\":true", "\"add_prefix_space\":1", "Metaspace has a \"add_prefix_space\""},
        {"t5.json", "\"split\":true", "\"add_prefix_space\":false",
         "add_prefix_space is false, but prepend_scheme is \"always\"; it must be \"never\""},
        {"words.json", "{\"type\":\"Whitespace\"", "{\"type\":\"Whitespace\",\"behavior\":1", "\"Whitespace\" is not"},
        {"llama3.json", "\"behavior\":\"Isolated\"", "\"x\":1", "pre_tokenizer Split has no text \"behavior\""},
        {"llama3.json", "\"invert\":false", "\"invert\":0", "pre_tokenizer Split has a \"invert\""},
        {"roberta.json", "\"add_prefix_space\":false", "\"add_prefix_space\":0",
         "ByteLevel has a \"add_prefix_space\""},
        {"llama3.json", "\"pretokenizers\":[{", "\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{",
         "pre_tokenizer \"Split\" is not supported"},
        {"roberta.json", "\"pre_tokenizer\":{",
         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"WhitespaceSplit\"},{\"type\":\"ByteLevel\"}]},\"x\":{",
         "\"ByteLevel\" is not supported"},
        {"t5.json", "\"pre_tokenizer\":{",
         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"Metaspace\",\"replacement\":\"_\"}]},\"x\":{",
         "pre_tokenizer \"Metaspace\" is not supported"},
        {"t5.json", "\"pre_tokenizer\":{",
         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"WhitespaceSplit\"}]},\"x\":{",
         "pre_tokenizer \"WhitespaceSplit\" is not supported"},
        /* post_processor */
        {"bert.json", "\"ids\":[2]", "\"ids\":[2147483648]", "\"[CLS]\" of the post_processor has id 2147483648"},
        {"bert.json", "\"ids\":[2]", "\"ids\":[\"2\"]", "\"[CLS]\" of the post_processor has an id that is not an"},
        {"bert.json", "\"ids\":[2]", "\"ids\":2", "special_tokens of the post_processor has no ids for \"[CLS]\""},
        {"bert.json", "\"ids\":[2]", "\"ids\":[2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2]",
         "the post_processor has too many ids; it must have at most 32"},
        {"bert.json", "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", "{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}",
         "a special token of the post_processor has no text \"id\""},
        {"bert.json", "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}",
         "{\"Sequence\":{\"id\":\"A\"}},{\"Sequence\":{\"id\":\"A\"}}", "a special token of the post_processor"},
        {"bert.json", "\"single\":[", "\"single\":[],\"x\":[", "\"single\" of the post_processor has no Sequence"},
        {"bert.json", "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}},", "", "has not the Sequences A and B"},
        {"cased.json", "\"cls\":[\"[CLS]\",2]", "\"cls\":[\"[CLS]\"]", "\"[CLS]\" of the post_processor has an id"},
        {"cased.json", "\"sep\":[\"[SEP]\",3]", "\"sep\":[\"[SEP]\",-3]", "\"[SEP]\" of the post_processor has id -3"},
        {"mpnet.json", "\"trim_offsets\":true,\"add_prefix_space\":true", "\"add_prefix_space\":1",
         "RobertaProcessing has a \"add_prefix_space\""},
        {"llama3.json", "\"processors\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":true",
         "\"processors\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":1", "post_processor ByteLevel"},
        {"llama3.json", "\"processors\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true",
         "\"processors\":[{\"type\":\"ByteLevel\",\"trim_offsets\":1",
         "post_processor ByteLevel has a \"trim_offsets\""},
        {"cased.json", "\"post_processor\":{",
         "\"post_processor\":{\"type\":\"Sequence\",\"processors\":["
         "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]},"
         "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]}]},\"x\":{",
         "post_processor \"BertProcessing\" is not supported; it must be one"},
        /* decoder */
        {"fallback.json", "{\"type\":\"ByteFallback\"}", "{\"type\":\"ByteFallback\"},{\"type\":\"ByteFallback\"}",
         "the decoder has ByteFallback twice"},
        {"fallback.json", "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\"",
         "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Regex\"", "a decoder must not have one"},
        {"fallback.json", "\"decoders\":[{\"type\":\"Replace\",\"pattern\"",
         "\"decoders\":[{\"type\":\"Replace\",\"x\"", "decoder Replace has no text \"String\""},
        {"fallback.json", "\"decoders\":[{\"type\":\"Replace\"", "\"decoders\":[{\"type\":1",
         "decoder has no text \"type\""},
        {"fallback.json", "\"decoders\":[{", "\"decoders\":[{\"type\":\"ByteLevel\"},{\"type\":\"Fuse\"},{",
         "the decoder has steps after ByteLevel"},
        {"fallback.json", "{\"type\":\"ByteFallback\"}",
         "{\"type\":\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"Metaspace\",\"replacement\":\"_\"},"
         "{\"type\":\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"Metaspace\",\"replacement\":\"_\"},"
         "{\"type\":\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"Metaspace\",\"replacement\":\"_\"},"
         "{\"type\":\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"Metaspace\",\"replacement\":\"_\"}",
         "the decoder has too many steps; it must have at most 8"},
        {"bert.json", "\"cleanup\":true", "\"cleanup\":1", "decoder WordPiece has a \"cleanup\""},
        /* the model and its added tokens */
        {"t5.json", "\"unk_id\":2", "\"unk_id\":2,\"byte_fallback\":1", "byte_fallback"},
        {"t5.json", "\"added_tokens\":[", "\"added_tokens\":{},\"x\":[", "added_tokens"},
        {"t5.json", "\"content\":\"<pad>\"", "\"content\":7", "added_tokens[0]"},
        {"bert.json", "\"unk_token\":\"[UNK]\"", "\"unk_token\":7", "model has no text \"unk_token\""},
        {"bert.json", "per_word\":100", "per_word\":\"100\"", "max_input_chars_per_word is no such number"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        refused(cases[k].name, cases[k].old, cases[k].new, cases[k].why);
}

/* Members that may be missing or null, or have another value that is supported. */
static void other_steps_are_read(void **state)
{
    static const struct {
        const char *name, *old, *new, *text;
        int64_t n; /* tokens of the text without special tokens */
    } cases[] = {
        {"t5.json", "\"prepend_scheme\":\"always\",\"split\":true", "\"add_prefix_space\":false", "s", 1},
        {"t5.json", "\"prepend_scheme\":\"always\",\"split\":true", "\"add_prefix_space\":true", " ", 0},
        {"t5.json", "\"prepend_scheme\":\"always\"", "\"prepend_scheme\":\"never\",\"add_prefix_space\":false", "s", 1},
        {"bert.json", "\"pre_tokenizer\":{", "\"pre_tokenizer\":null,\"x\":{", "[PAD]", 1},
        {"bert.json", "\"decoder\":{", "\"decoder\":null,\"x\":{", "[PAD]", 1},
        {"bert.json", "\"pair\":[{", "\"x\":[{", "[PAD]", 1},
    };
    int32_t *ids;
    int64_t n, size;
    char *back;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tokenizer *t = opened_with(cases[k].name, cases[k].old, cases[k].new);
        assert_int_equal(tok_encode(t, cases[k].text, (int64_t)strlen(cases[k].text), false, &ids, &n, err), TOK_OK);
        if (n != cases[k].n)
            fail_msg("%s with %s: %d tokens", cases[k].name, cases[k].new, (int)n);
        assert_int_equal(tok_decode(t, ids, n, false, &back, &size, err), TOK_OK);
        free(back);
        free(ids);
        tok_close(t);
    }
}

/* The rules of T5Tokenizer are recognized by every step: with another one, they are those of the file. */
static void other_rules_are_told_from_those_of_t5(void **state)
{
#define META  "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":true}"
#define WHITE "{\"type\":\"WhitespaceSplit\"}"
    static const struct {
        const char *split, *meta, *decoder;
        bool t5;
    } cases[] = {
        {WHITE, META, META, true},
        {WHITE, META, "null", false},
        {WHITE, META, WHITE, false}, /* replaced by ByteFallback below */
        {"{\"type\":\"Whitespace\"}", META, META, false},
        {WHITE, "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\",\"split\":true}", META,
         false},
        {WHITE, "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x82\",\"prepend_scheme\":\"always\"}", META, false},
        {WHITE, "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"never\"}", META, false},
        {WHITE, "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"split\":false}", META, false},
        {WHITE, META, "{\"type\":\"Metaspace\",\"replacement\":\"_\"}", false},
        {WHITE, META, "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x82\"}", false},
        {WHITE, META, "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"never\"}", false},
    };
    static const char *const ends[] = {"[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"</s>\"}}]",
                                       "[{\"Sequence\":{\"id\":\"A\"}}]",
                                       "[{\"SpecialToken\":{\"id\":\"</s>\"}},{\"Sequence\":{\"id\":\"A\"}}]"};
    (void)state;
    const file f = load(DATA "t5.json");
    const char *from = strstr(f.bytes, "\"normalizer\":"), *to = strstr(f.bytes, "\"model\":{");
    assert_non_null(from);
    assert_non_null(to);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (size_t end = 0; end < sizeof ends / sizeof *ends; end++) {
            char steps[2000], *bytes = malloc((size_t)f.size + sizeof steps);
            tokenizer *t;
            snprintf(steps, sizeof steps,
                     "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s,%s]},"
                     "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":%s,\"special_tokens\":{\"</s>\":"
                     "{\"ids\":[1]}}},\"decoder\":%s,",
                     cases[k].split, cases[k].meta, ends[end],
                     k == 2 ? "{\"type\":\"ByteFallback\"}" : cases[k].decoder);
            const int size = sprintf(bytes, "%.*s%s%s", (int)(from - f.bytes), f.bytes, steps, to);
            if (tok_open_memory(&t, bytes, size, "rules", 0, err) != TOK_OK)
                fail_msg("case %zu: %s", k, err);
            if (tok_has_t5_rules(t) != (cases[k].t5 && end == 0))
                fail_msg("case %zu with end %zu: %d", k, end, tok_has_t5_rules(t));
            tok_close(t);
            free(bytes);
        }
    free(f.bytes);
}

/* Pieces of bytes have two hexadecimal digits, or a plus sign and one; others stand for themselves. */
static void pieces_of_bytes_are_decoded(void **state)
{
    static const struct {
        const char *piece, *text;
    } cases[] = {{"<0x6a>", "j"},      {"<0x4f>", "O"},      {"<0x+A>", "\n"},     {"<0xg0>", "<0xg0>"},
                 {"<0x0g>", "<0x0g>"}, {"<0x0A]", "<0x0A]"}, {"<0X0A>", "<0X0A>"}, {"<0x0 >", "<0x0 >"},
                 {"<0x:1>", "<0x:1>"}, {"<0x@1>", "<0x@1>"}, {"<0x`1>", "<0x`1>"}};
    const int32_t id = 5; /* "ab" in the file */
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char new[40], *back;
        int64_t size;
        snprintf(new, sizeof new, "[\"%s\",", cases[k].piece);
        tokenizer *t = opened_with("fallback.json", "[\"ab\",", new);
        assert_int_equal(tok_decode(t, &id, 1, true, &back, &size, err), TOK_OK);
        assert_string_equal(back, cases[k].text);
        free(back);
        tok_close(t);
    }
}

/* Each of three steps replaces two spaces by many; together they would turn 4 bytes into 54 million. The result of a
 * step on a text or token is limited. */
static void steps_that_grow_are_stopped(void **state)
{
    enum { TIMES = 300, STEPS = 3 };
    static const char space_step[] = ",{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"",
                      letter_step[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"";
    char *steps = malloc(STEPS * (sizeof space_step + 3 * TIMES + 3) + 100), *at = steps, *back;
    int32_t *ids;
    int64_t n, size;
    (void)state;
    at += sprintf(at, "\"strip_right\":true}");
    for (int s = 0; s < STEPS; s++) {
        at += sprintf(at, "%s", space_step);
        for (int k = 0; k < TIMES; k++)
            at += sprintf(at, "  x");
        at += sprintf(at, "\"}");
    }
    tokenizer *t = opened_with("t5.json", "\"strip_right\":true}", steps);
    assert_int_equal(tok_encode(t, "a  b", 4, true, &ids, &n, err), TOK_DAMAGED);
    assert_null(ids);
    assert_one_line(err);
    assert_non_null(
        strstr(err, "a text of 4 bytes: the tokenizer's normalizer turns N bytes into more than 64 N + 1024"));
    assert_int_equal(tok_encode(t, "a b", 3, true, &ids, &n, err), TOK_OK); /* a text that does not grow is accepted */
    free(ids);
    tok_close(t);

    at = steps + sprintf(steps, "\"decoders\":[");
    for (int s = 0; s < STEPS; s++) {
        at += sprintf(at, "%s", letter_step);
        for (int k = 0; k < TIMES; k++)
            at += sprintf(at, "aa");
        at += sprintf(at, "\"},");
    }
    t = opened_with("fallback.json", "\"decoders\":[", steps);
    const int32_t letter = tok_id(t, "a", 1);
    assert_true(letter >= 0);
    assert_int_equal(tok_decode(t, &letter, 1, true, &back, &size, err), TOK_DAMAGED);
    assert_null(back);
    assert_one_line(err);
    assert_non_null(strstr(err, "the tokenizer's decoder turns a piece of N bytes into more than 64 N + 1024"));
    tok_close(t);
    free(steps);
}

static int cancel_later(void *context)
{
    return --*(int *)context < 0;
}

/* For every kind of tokenizer, encoding a long text calls the cancel callback from time to time. */
static void a_long_text_can_be_cancelled(void **state)
{
    enum { SIZE = 4 << 20 };
    static const char *const kinds[] = {"t5.json",    "white.json",      "fallback.json", "t5.model", "suffix.model",
                                        "mpnet.json", "modernbert.json", "llama3.json",   "bytes"};
    char *long_text = malloc(SIZE);
    (void)state;
    for (int shape = 0; shape < 3; shape++) {
        for (int k = 0; k < SIZE; k++)
            long_text[k] = shape == 0 ? 'a' : shape == 1 ? "the  "[k % 5] : (char)(k % 3 == 0 ? 0xff : ' ');
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            for (int calls = 0; calls < 3; calls++) {
                tokenizer *t = opened(kinds[k]);
                int32_t *ids;
                int64_t n;
                int left = calls;
                assert_int_equal(tok_encode_watched(t, long_text, SIZE, true, cancel_later, &left, &ids, &n, err),
                                 TOK_CANCELLED);
                assert_int_equal(left, -1); /* after cancelling, the callback is not called again */
                assert_null(ids);
                assert_one_line(err);
                tok_close(t);
            }
    }
    free(long_text);
}

/* Steps nested far less deeply than JSON allows are already an error of one line. */
static void nested_steps_are_refused(void **state)
{
    static const char open[] = "{\"type\":\"Sequence\",\"normalizers\":[";
    enum { MOST = 10000 };
    char *nested = malloc((sizeof(open) + 2) * MOST + 40);
    (void)state;
    for (int depth = 10; depth <= MOST; depth *= 10) {
        char *at = nested + sprintf(nested, "\"normalizer\":");
        for (int k = 0; k < depth; k++)
            at += sprintf(at, "%s", open);
        for (int k = 0; k < depth; k++)
            at += sprintf(at, "]}");
        strcpy(at, ",\"other\":");
        refused("t5.json", "\"normalizer\":", nested, depth <= 1000 ? "\"Sequence\" is not supported" : "line 1");
    }
    free(nested);
}

static void deep_json_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    char *deep = malloc(DEPTH + 10);
    memset(deep, '[', DEPTH + 10);
    memcpy(deep, "{\"a\":", 5);
    assert_false(try(deep, DEPTH));
    memset(deep + 5, '{', DEPTH);
    assert_false(try(deep, DEPTH));
    free(deep);
    assert_false(try("{}", 2));
    assert_false(try("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[]}}", 49));
    assert_false(try("", 0));
}

/* Handmade protocol buffer messages. A piece is field 1 of the message, with a text (1), a score (2) and a type (3). */
static void errors_in_a_model_are_named(void **state)
{
    (void)state;
#define UNK         "\x0a\x09\x0a\x05<unk>\x18\x02"
#define PIECE(text) "\x0a\x08\x0a\x01" text "\x15\0\0\x80\xbf"
#define MODEL(bytes, why)                                                                                              \
    do {                                                                                                               \
        if (try(bytes, sizeof(bytes) - 1))                                                                             \
            fail_msg("read although %s", why);                                                                         \
        if (strstr(err, why) == NULL)                                                                                  \
            fail_msg("\"%s\" has no \"%s\"", err, why);                                                                \
    } while (0)
    assert_true(try(UNK PIECE("a"), sizeof(UNK PIECE("a")) - 1));
    MODEL(UNK, "no piece has type normal");
    MODEL(PIECE("a"), "has type unknown");
    MODEL(UNK UNK PIECE("a"), "pieces 0 and 1 both have type unknown");
    MODEL(UNK PIECE("a") PIECE("a"), "both \"a\"");
    MODEL(UNK PIECE("\xff"), "piece 1 must be UTF-8");
    MODEL(UNK PIECE("\0"), "piece 1 must be UTF-8 without NUL");
    MODEL(UNK "\x0a\x02\x0a\0", "piece 1 has 0 bytes");
    MODEL(UNK "\x0a\x08\x0a\x01z\x15\0\0\xc0\x7f", "score nan");
    MODEL(UNK "\x0a\x08\x0a\x01z\x15\0\0\x80\x7f", "score inf");
    MODEL(UNK "\x0a\x05\x0a\x01z\x18\x09", "type 9");
    MODEL(UNK "\x0a\x05\x0a\x01z\x18\x06", "type byte");
    MODEL(UNK "\x0a\x09\x0a\x01z\x0a\xff\xff\xff\xff\x0f", "piece 1 is damaged");
    MODEL(UNK PIECE("a") "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "the file is damaged");
    MODEL(UNK PIECE("a") "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "the file is damaged");
    MODEL(UNK PIECE("a") "\x08\x01", "wire type 0");
    MODEL(UNK PIECE("a") "\x0b", "the file is damaged");
    MODEL(UNK PIECE("a") "\x12\x02\x18\x02", "type is 2, BPE; it must be 1, Unigram");
    MODEL(UNK PIECE("a") "\x12\x02\xa8\x02", "trainer_spec");
    MODEL(UNK PIECE("a") "\x12\x03\x98\x02\x01", "byte_fallback");
    MODEL(UNK PIECE("a") "\x1a\x03\x12\x01x", "charsmap has 1 bytes");
    MODEL(UNK PIECE("a") "\x1a\x06\x12\x04\x08\0\0\0",
          "trie of 8 bytes; it must be a positive multiple of 4, at most 0");
    MODEL(UNK PIECE("a") "\x2a\x03\x12\x01x", "denormalizer");
    static char surface[1100] =
        UNK PIECE("a") "\x12\x84\x08\xe2\x02\x80\x08"; /* trainer_spec with an unk_surface of 1024 bytes */
    const size_t start = sizeof(UNK PIECE("a")) - 1;
    memset(surface + start + 7, 'x', 1026);
    assert_true(try(surface, (int64_t)start + 7 + 1024));
    surface[start + 1]++, surface[start + 5]++;
    assert_false(try(surface, (int64_t)start + 7 + 1025));
    assert_non_null(strstr(err, "unk_surface has 1025 bytes; it must have at most 1024"));
    MODEL("\x7f"
          "ELF\x02\x01\x01",
          "damaged");
}

/* Open the amino-acid model with these files beside it. */
static tok_status open_beside(tokenizer **t, const char *added, const char *config, const char *map)
{
    const file model = load(DATA "added/spiece.model");
    const tok_beside beside = {{added, added != NULL ? (int64_t)strlen(added) : 0, "added.json"},
                               {config, config != NULL ? (int64_t)strlen(config) : 0, "config.json"},
                               {map, map != NULL ? (int64_t)strlen(map) : 0, "map.json"},
                               TOK_RULES_FILE};
    const tok_status status = tok_open_beside(t, model.bytes, model.size, "model", 4, &beside, err);
    free(model.bytes);
    return status;
}

static void errors_beside_a_model_are_named(void **state)
{
    static const struct {
        const char *added, *config, *why;
    } cases[] = {
        {"{", NULL, "added.json: line 1"},
        {"[]", NULL, "added.json: it is not a JSON object (it must begin with {)"},
        {"{\"a\": 32, \"a\": 33}", NULL, "added.json: line 1"},
        {"{\"a\": \"32\"}", NULL, "added.json: the number of \"a\" must be an integer"},
        {"{\"\": 32}", NULL, "added.json: \"\" has the number 32; the token is empty"},
        {"{\"a\": 31}", NULL, "\"a\" has the number 31; new tokens must have consecutive numbers, and the next is 32"},
        {"{\"a\": -1}", NULL, "\"a\" has the number -1; it must be at least 0"},
        {"{\"a\": 4294967328}", NULL, "\"a\" has the number 4294967328; new tokens must have"},
        {"{\"a\": 32, \"b\": 32}", NULL,
         "has the number 32; new tokens must have consecutive numbers, and the next is 33"},
        {"{\"a\": 33}", NULL, "\"a\" has the number 33; new tokens must have"},
        {"{\"a\": 33, \"</s>\": 1}", NULL, "\"a\" has the number 33; new tokens must have consecutive numbers"},
        {"{\"<unk>\": 32}", NULL, "\"<unk>\" has the number 32; in the model it is token 2"},
        {"{\"<extra_id_0>\": 32}", NULL, "\"<extra_id_0>\" has the number 32; in the model it is token 31"},
        {"{}", "{\"extra_ids\": -1}", "config.json: extra_ids must be an integer from 0"},
        {"{}", "{\"extra_ids\": 1.5}", "config.json: extra_ids must be an integer from 0"},
        {"{}", "{\"extra_ids\": 1048577}", "config.json: extra_ids must be an integer from 0"},
        {"{}", "{\"extra_ids\"", "config.json: line 1"},
        {NULL, "[", "config.json: line 1"},
    };
    tokenizer *t;
    int32_t *ids;
    int64_t n;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        if (open_beside(&t, cases[k].added, cases[k].config, NULL) != TOK_DAMAGED)
            fail_msg("%s with %s was read", cases[k].added, cases[k].config);
        assert_null(t);
        assert_one_line(err);
        if (strstr(err, cases[k].why) == NULL)
            fail_msg("\"%s\" has no \"%s\"", err, cases[k].why);
    }
    static const char added[] = "{\"b\": 33, \"<extra_id_0>\": 31, \"\\u2581A\": 3, \"<s>\": 32}";
    assert_int_equal(open_beside(&t, added, NULL, "{\"sep_token\": {\"content\": \"<s>\"}, \"pad_token\": 7}"), TOK_OK);
    assert_int_equal(tok_size(t), 34);
    char *decoded;
    assert_int_equal(tok_decode(t, (int32_t[]){32, 33}, 2, true, &decoded, &n, err), TOK_OK);
    assert_string_equal(decoded, "b"); /* <s> is special, b is not */
    free(decoded);
    assert_int_equal(tok_id(t, "<s>", 3), 32);
    assert_int_equal(tok_encode(t,
                                "<s>b\xe2\x96\x81"
                                "A",
                                8, false, &ids, &n, err),
                     TOK_OK);
    assert_int_equal(n, 3);
    assert_true(ids[0] == 32 && ids[1] == 33 && ids[2] == 3);
    free(ids);
    tok_close(t);
    tok_status status = TOK_FAILED;
    for (long k = 1; status != TOK_OK && STARVES; k++) { /* let every allocation fail once */
        const file model = load(DATA "added/spiece.model");
        const tok_file map = {"{\"sep_token\": \"<s>\"}", 20, "map.json"};
        const tok_beside beside = {{added, sizeof added - 1, "added.json"}, map, map, TOK_RULES_FILE};
        starve(k, true);
        status = tok_open_beside(&t, model.bytes, model.size, "model", 4, &beside, err);
        starve_end();
        assert_true(status == TOK_OK || (status == TOK_FAILED && t == NULL));
        free(model.bytes);
        if (status == TOK_OK)
            tok_close(t);
    }
}

static tok_file text_file(const char *text_or_null, const char *name)
{
    return (tok_file){text_or_null, text_or_null != NULL ? (int64_t)strlen(text_or_null) : 0, name};
}

/* Files beside a tokenizer of each kind, with `old` replaced by `new` in the tokenizer's own file. */
typedef struct beside_case {
    const char *name; /* NULL: ByT5 */
    tok_rules rules;
    const char *old, *new, *added, *config, *map;
    const char *why; /* NULL: they are read, and `piece` is token `id` */
    const char *piece;
    int32_t id;
} beside_case;

static tok_status open_case(tokenizer **t, const beside_case *c)
{
    const tok_beside beside = {text_file(c->added, "added.json"), text_file(c->config, "config.json"),
                               text_file(c->map, "map.json"), c->rules};
    if (c->name == NULL)
        return tok_open_bytes(t, 3, &beside, err);
    char path[200];
    snprintf(path, sizeof path, DATA "%s", c->name);
    file f = load(path);
    if (c->old != NULL) {
        const char *found = strstr(f.bytes, c->old);
        assert_non_null(found);
        const size_t before = (size_t)(found - f.bytes), size = (size_t)f.size + strlen(c->new) - strlen(c->old);
        char *bytes = malloc(size + 1);
        memcpy(bytes, f.bytes, before);
        memcpy(bytes + before, c->new, strlen(c->new));
        strcpy(bytes + before + strlen(c->new), found + strlen(c->old));
        free(f.bytes);
        f = (file){bytes, (int64_t)size};
    }
    const tok_status status = tok_open_beside(t, f.bytes, f.size, "model", 4, &beside, err);
    free(f.bytes);
    return status;
}

#define SPIECE    "added/spiece.model", TOK_RULES_T5, NULL, NULL
#define JSON      "t5.json", TOK_RULES_T5, NULL, NULL
#define BERT      "bert.json", TOK_RULES_BERT, NULL, NULL
#define BYT5      NULL, TOK_RULES_FILE, NULL, NULL
#define FLAG(key) "{\"" key "\": {\"content\": \"x\", \"lstrip\": 7}}"
#define LSTRIP    ".json: \"lstrip\" must be true or false"

static void files_beside_any_tokenizer_are_read_or_refused(void **state)
{
    static const beside_case cases[] = {
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"x\": {\"content\": \"a\"}}}", NULL,
         "config.json: added_tokens_decoder has the key \"x\"; it must have a number as key", NULL, 0},
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"\": {\"content\": \"a\"}}}", NULL, "has the key \"\"", NULL, 0},
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"-1\": {\"content\": \"a\"}}}", NULL, "has the key \"-1\"", NULL,
         0},
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"5\": 7}}", NULL, "has the key \"5\"", NULL, 0},
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"5\": {\"content\": \"x\", \"special\": 7}, \"6\": 7}}", NULL,
         "config.json: \"special\" must be true or false", NULL, 0},
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"5\": {\"content\": \"x\", \"rstrip\": 7}}}", NULL,
         "config.json: \"rstrip\" must be true or false", NULL, 0},
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"5\": {\"content\": \"x\", \"single_word\": 7}}}", NULL,
         "config.json: \"single_word\" must be true or false", NULL, 0},
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"5\": {\"content\": \"x\", \"normalized\": 7}}}", NULL,
         "config.json: \"normalized\" must be true or false", NULL, 0},
        {SPIECE, NULL, "{\"added_tokens_decoder\": {\"32\": {\"content\": \"x\", \"special\": null}}}", NULL, NULL, "x",
         32},
        {SPIECE, NULL, FLAG("pad_token"), NULL, "config" LSTRIP, NULL, 0},
        {SPIECE, NULL, FLAG("my_token"), NULL, "config" LSTRIP, NULL, 0},
        {SPIECE, NULL, NULL, FLAG("my_token"), "map" LSTRIP, NULL, 0},
        {SPIECE, NULL, "{\"model_specific_special_tokens\": " FLAG("a") "}", NULL, "config" LSTRIP, NULL, 0},
        {SPIECE, NULL, "{\"extra_special_tokens\": " FLAG("a") "}", NULL, "config" LSTRIP, NULL, 0},
        {SPIECE, NULL, NULL, "{\"extra_special_tokens\": " FLAG("a") "}", "map" LSTRIP, NULL, 0},
        {SPIECE, NULL, "{\"extra_special_tokens\": [{\"content\": \"x\", \"lstrip\": 7}]}", NULL, "config" LSTRIP, NULL,
         0},
        {SPIECE, NULL, NULL, "{\"extra_special_tokens\": [{\"content\": \"x\", \"lstrip\": 7}]}", "map" LSTRIP, NULL,
         0},
        {SPIECE, NULL, "{\"extra_ids\": 1e300}", NULL, "config.json: extra_ids must be an integer from 0", NULL, 0},
        {SPIECE, NULL, "{\"extra_ids\": \"4\"}", NULL, "config.json: extra_ids must be an integer from 0", NULL, 0},
        {SPIECE, NULL, "{\"extra_ids\": null}", NULL, NULL, "<extra_id_0>", 31},
        {SPIECE, NULL, NULL, "7", "map.json: line 1, column 1", NULL, 0},
        {SPIECE, "{\"a\": 1e300}", NULL, NULL, "added.json: the number of \"a\" must be an integer", NULL, 0},
        {SPIECE, "{\"a\": 32.5}", NULL, NULL, "added.json: the number of \"a\" must be an integer", NULL, 0},
        {SPIECE, "{\"a\": 32}", NULL, "{\"eos_token\": \"a\"}", NULL, "a", 32},
        {SPIECE, "{\"a\": 32}", NULL, "{\"extra_special_tokens\": [7, \"a\"]}", NULL, "a", 32},
        {SPIECE, "{\"a\": 32}", "{\"additional_special_tokens\": [\"a\"], \"extra_special_tokens\": {}}", NULL, NULL,
         "a", 32},
        {SPIECE, "{\"a\": 32}", "{\"additional_special_tokens\": [\"a\"], \"extra_special_tokens\": [\"b\"]}", NULL,
         NULL, "b", 33},
        {SPIECE, "{\"a\": 32}", "{\"additional_special_tokens\": [\"a\"], \"extra_special_tokens\": {\"n\": \"b\"}}",
         NULL, NULL, "b", 33},
        /* a tokenizer.json */
        {"t5.json", TOK_RULES_T5, "\"id\":1,", "\"id\":1.5,", NULL, NULL, NULL,
         "tokenizer.json: added_tokens[1], \"</s>\", must have an integer id", NULL, 0},
        {"t5.json", TOK_RULES_T5, "\"content\":\"</s>\"", "\"content\":7", NULL, NULL, NULL,
         "tokenizer.json: added_tokens[1], \"\", must have an integer id, and \"content\"", NULL, 0},
        {"t5.json", TOK_RULES_T5, "\"content\":\"</s>\"", "\"content\":\"</s>\\u0000\"", NULL, NULL, NULL,
         "tokenizer.json: added_tokens[1], \"</s>\", must have", NULL, 0},
        {"t5.json", TOK_RULES_T5, "\"single_word\":false", "\"single_word\":7", NULL, NULL, NULL,
         "tokenizer.json: \"single_word\" must be true or false", NULL, 0},
        {"t5.json", TOK_RULES_T5, "\"content\":\"<pad>\"", "\"content\":\"\"", NULL, NULL, NULL, NULL, "<pad>", 0},
        {"t5.json", TOK_RULES_T5, "\"added_tokens\":[", "\"added_tokens\":7,\"x\":[", NULL, NULL, NULL, "added_tokens",
         NULL, 0},
        {JSON, "{\"zz\": 1}", NULL, NULL, NULL, "zz", -1}, /* the number 1 keeps the token of tokenizer.json */
        {BERT, NULL, "{\"tokenize_chinese_chars\": 1}", NULL,
         "config.json: \"tokenize_chinese_chars\" must be true or false", NULL, 0},
        {"roberta.json", TOK_RULES_ROBERTA, NULL, NULL, NULL, "{\"add_prefix_space\": 1}", NULL,
         "config.json: \"add_prefix_space\" must be true or false", NULL, 0},
        {"roberta.json", TOK_RULES_ROBERTA, NULL, NULL, NULL, "{\"trim_offsets\": 1}", NULL,
         "config.json: \"trim_offsets\" must be true or false", NULL, 0},
        {"t5.json", TOK_RULES_ROBERTA, NULL, NULL, NULL, "{\"trim_offsets\": 1}", NULL, NULL, "<pad>", 0},
        {"mpnet.json", TOK_RULES_MPNET, NULL, NULL, NULL, "{\"mask_token\": {\"content\": \"<mask>\"}}", NULL, NULL,
         "<pad>", 1},
        /* ByT5 */
        {BYT5, "{\"a\": 5}", NULL, NULL, "\"a\" has the number 5; tokens 3 to 258 are bytes", NULL, 0},
        {BYT5, "{\"a\": 2000000}", NULL, NULL, "\"a\" has the number 2000000; it must be at most", NULL, 0},
        {BYT5, "{\"a\": 1}", NULL, NULL, NULL, "a", 1},
        {BYT5, "{\"a\": 262}", NULL, NULL, NULL, "a", 262},
        {BYT5, NULL, "{\"added_tokens_decoder\": {\"259\": {\"content\": \"a\", \"special\": true}}}", NULL, NULL, "a",
         259},
        {BYT5, NULL, NULL, "{\"additional_special_tokens\": [\"<extra_id_0>\", \"b\"]}", NULL, "b", 260},
        {BYT5, NULL, "{\"extra_special_tokens\": {}}", "{\"additional_special_tokens\": [\"b\"]}", NULL, "b", 259},
    };
    tokenizer *t;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const beside_case *c = &cases[k];
        const tok_status status = open_case(&t, c);
        if (status != (c->why != NULL ? TOK_DAMAGED : TOK_OK))
            fail_msg("case %zu: status %d, %s", k, status, status == TOK_OK ? c->why : err);
        if (c->why != NULL) {
            assert_null(t);
            assert_one_line(err);
            if (strstr(err, c->why) == NULL)
                fail_msg("case %zu: \"%s\" has no \"%s\"", k, err, c->why);
            continue;
        }
        if (tok_id(t, c->piece, (int64_t)strlen(c->piece)) != c->id)
            fail_msg("case %zu: \"%s\" is token %d", k, c->piece, tok_id(t, c->piece, (int64_t)strlen(c->piece)));
        tok_close(t);
    }
    static char longest[(1 << 20) + 100];
    strcpy(longest, "{\"");
    memset(longest + 2, 'x', (1 << 20) + 1);
    strcpy(longest + 2 + (1 << 20) + 1, "\": 32}");
    const beside_case too_long = {SPIECE, longest, NULL, NULL, NULL, NULL, 0};
    assert_int_equal(open_case(&t, &too_long), TOK_DAMAGED);
    assert_non_null(strstr(err, "the token is too long; its length in bytes must be 1 to 1048576"));
}

/* A trie of random units. */
static void a_random_charsmap_does_no_harm(void **state)
{
    (void)state;
    static unsigned char model[4096];
    for (int round = 0; round < 2000; round++) {
        const size_t start = sizeof(UNK PIECE("a")) - 1, units = 64 + below(200), bytes = 4 + 4 * units + 6;
        memcpy(model, UNK PIECE("a"), start);
        unsigned char *p = model + start;
        *p++ = 0x1a, *p++ = (unsigned char)((bytes + 3) & 0x7f) | 0x80, *p++ = (unsigned char)((bytes + 3) >> 7);
        *p++ = 0x12, *p++ = (unsigned char)(bytes & 0x7f) | 0x80, *p++ = (unsigned char)(bytes >> 7);
        const uint32_t size = (uint32_t)(4 * units);
        memcpy(p, &size, 4), p += 4;
        for (size_t k = 0; k < units; k++) {
            const uint32_t unit = (uint32_t)(below(256) | below(2) << 8 | below(round % 2 ? 256 : 1u << 22) << 10);
            memcpy(p, &unit, 4), p += 4;
        }
        memcpy(p, "x\0\xc3\xa9\0y", 6), p += 6;
        assert_true(try((char *)model, p - model));
    }
}

/* A rule for "a" points to each position in the replacements, and past them. Bytes after the map do not belong to
 * it. */
static void replacements_end_with_the_map(void **state)
{
    enum { UNITS = 98, SIZE = 4 + 4 * UNITS + 3 };
    static const char *const want[] = {"xy", "y", "", ""}; /* the last two: at the NUL; at the end */
    char bytes[SIZE + 8];
    (void)state;
    for (uint32_t place = 0; place < 12; place++) {
        uint32_t units[1 + UNITS] = {4 * UNITS};
        units[1 + 'a'] = 'a' | 1u << 8 | 1u << 10; /* 'a' has a leaf, at 'a' ^ 1 */
        units[1 + ('a' ^ 1)] = place | 1u << 31;
        memcpy(bytes, units, sizeof units);
        memcpy(bytes + sizeof units, "xy\0ZZZZZZZZ", 11);
        tok_charsmap map;
        assert_int_equal(tok_charsmap_open(&map, bytes, SIZE, "it", err), TOK_OK);
        const tok_rule rule = tok_charsmap_find(&map, "ab", 2, true);
        assert_int_equal(rule.length, place < 4 ? 1 : 0);
        if (place < 4)
            assert_string_equal(rule.text, want[place]);
        tok_charsmap_free(&map);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    if (!STARVES)
        skip();
    static const char *const small[] = {"suffix.model", "never.json", "compact never.json", "mpnet.json", "bytes"};
    for (int k = 0; k < 5; k++) {
        const bool bytes = k == 4;
        const file f = bytes ? (file){0} : load_data(small[k]);
        long n_allocations = 1;
        for (long n = 1; n <= n_allocations; n += 1 + n / 40) {
            tokenizer *t;
            starve(n, true);
            const tok_status status =
                bytes ? tok_open_bytes(&t, 3, NULL, err) : tok_open_memory(&t, f.bytes, f.size, "x", 3, err);
            const long count = starve_end();
            if (status == TOK_OK)
                tok_close(t);
            else
                assert_int_equal(status, TOK_FAILED);
            n_allocations = status == TOK_OK ? 0 : count > n ? count : n + 1;
        }
        for (long n = 1, more = 1; more && !bytes; n += 1 + n / 40) {
            file made;
            starve(n, true);
            const tok_status status = tok_compact(f.bytes, f.size, NULL, &made.bytes, &made.size, err);
            more = starve_end() >= n;
            assert_true(status == (more ? TOK_FAILED : TOK_OK));
            free(made.bytes);
        }
        tokenizer *t;
        assert_int_equal(bytes ? tok_open_bytes(&t, 3, NULL, err) : tok_open_memory(&t, f.bytes, f.size, "x", 3, err),
                         TOK_OK);
        tok_status status = TOK_FAILED;
        for (long n = 1; status != TOK_OK; n++) {
            int32_t *ids;
            int64_t count;
            starve(n, true);
            status = tok_encode(t, text, sizeof(text) - 1, true, &ids, &count, err);
            starve_end();
            assert_true(status == TOK_OK || (status == TOK_FAILED && ids == NULL && count == 0));
            free(ids);
        }
        status = TOK_FAILED;
        for (long n = 1; status != TOK_OK; n++) {
            const tok_string whole = {text, sizeof(text) - 1};
            tok_encoding e;
            starve(n, true);
            status = tok_encode_pair(t, whole, &whole, 0, &e, err);
            starve_end();
            assert_true(status == TOK_OK || (status == TOK_FAILED && e.ids == NULL && e.n == 0));
            tok_encoding_free(&e);
        }
        status = TOK_FAILED;
        for (long n = 1; status != TOK_OK; n++) {
            char *back;
            int64_t size;
            int32_t ids[200];
            for (int i = 0; i < 200; i++)
                ids[i] = i % tok_size(t);
            starve(n, true);
            status = tok_decode(t, ids, 200, false, &back, &size, err);
            starve_end();
            assert_true(status == TOK_OK || (status == TOK_FAILED && back == NULL));
            free(back);
        }
        tok_close(t);
        free(f.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(changed_bytes_do_no_harm),
        cmocka_unit_test(mutated_files_do_no_harm),
        cmocka_unit_test(errors_in_a_json_are_named),
        cmocka_unit_test(errors_in_wordpiece_are_named),
        cmocka_unit_test(errors_in_bpe_are_named),
        cmocka_unit_test(errors_in_steps_are_named),
        cmocka_unit_test(other_steps_are_read),
        cmocka_unit_test(other_rules_are_told_from_those_of_t5),
        cmocka_unit_test(pieces_of_bytes_are_decoded),
        cmocka_unit_test(errors_in_a_vocab_are_named),
        cmocka_unit_test(lines_of_a_vocab_are_pieces),
        cmocka_unit_test(long_parts_are_bounded),
        cmocka_unit_test(nested_steps_are_refused),
        cmocka_unit_test(deep_json_is_refused),
        cmocka_unit_test(errors_in_a_model_are_named),
        cmocka_unit_test(a_random_charsmap_does_no_harm),
        cmocka_unit_test(replacements_end_with_the_map),
        cmocka_unit_test(errors_beside_a_model_are_named),
        cmocka_unit_test(files_beside_any_tokenizer_are_read_or_refused),
        cmocka_unit_test(steps_that_grow_are_stopped),
        cmocka_unit_test(a_long_text_can_be_cancelled),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
