/* test_tokenizer.c -- tokens and texts equal those of SentencePiece, `tokenizers` and transformers' ByT5Tokenizer,
 * which make_data.py and make_forms.py recorded. Also tests the other promises of tokenizer.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"
#include "tests/tokenizer/files.h"
#include "tests/memory_limit.h"
#include "tokenizer/parts.h"
#include <jansson.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const char *const names[] = {"t5.model",   "fallback.model", "plain.model",     "suffix.model",
                                    "t5.json",    "white.json",     "first.json",      "fallback.json",
                                    "never.json", "mpnet.json",     "modernbert.json", "bytes"};
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static int64_t from_hex(const char *hex, char *to)
{
    int64_t n = 0;
    for (unsigned byte; sscanf(hex + 2 * n, "%2x", &byte) == 1; n++)
        to[n] = (char)byte;
    return n;
}

static void check_encoded(const tokenizer *t, const char *name, const char *hex, const json_t *ids)
{
    char *text = malloc(strlen(hex) / 2 + 1);
    const int64_t size = from_hex(hex, text);
    int32_t *found;
    int64_t n;
    if (tok_encode(t, text, size, true, &found, &n, err) != TOK_OK)
        fail_msg("%s", err);
    if (n != (int64_t)json_array_size(ids))
        fail_msg("%s: %lld tokens of %s: %zu", name, (long long)n, hex, json_array_size(ids));
    for (int64_t k = 0; k < n; k++)
        if (found[k] != json_integer_value(json_array_get(ids, (size_t)k)))
            fail_msg("%s: token %lld of %s is %d: %lld", name, (long long)k, hex, found[k],
                     (long long)json_integer_value(json_array_get(ids, (size_t)k)));
    free(found);
    free(text);
}

/* Check decoding. */
static void check_decoded(const tokenizer *t, const char *name, const char *hex, bool skip, const json_t *ids)
{
    char *wanted = malloc(strlen(hex) / 2 + 1), *text;
    const int64_t wanted_size = from_hex(hex, wanted);
    int64_t size;
    int32_t numbers[1024];
    const size_t n = json_array_size(ids);
    assert_true(n < 1024);
    for (size_t k = 0; k < n; k++)
        numbers[k] = (int32_t)json_integer_value(json_array_get(ids, k));
    assert_int_equal(tok_decode(t, numbers, (int64_t)n, skip, &text, &size, err), TOK_OK);
    char *dumped = json_dumps(ids, JSON_COMPACT);
    if (size != wanted_size || memcmp(text, wanted, (size_t)size) != 0 || text[size] != 0)
        fail_msg("%s: %s is \"%s\": \"%.*s\"", name, dumped, text, (int)wanted_size, wanted);
    free(dumped);
    free(text);
    free(wanted);
}

/* Open a tokenizer as it is; with `compact`, open the output of tok_compact for a tokenizer.json. */
static tokenizer *opened_as(const char *name, bool compact)
{
    char path[200];
    tokenizer *t;
    if (!compact)
        return opened(name);
    snprintf(path, sizeof(path), DATA "%s", name);
    file f = load(path), again;
    make_compact(&f, NULL);
    assert_int_equal(tok_open_memory(&t, f.bytes, f.size, name, 0, err), TOK_OK);
    assert_int_equal(tok_compact(f.bytes, f.size, NULL, &again.bytes, &again.size, err), TOK_OK);
    assert_true(again.bytes == NULL && again.size == 0);
    free(f.bytes);
    return t;
}

/* Check the texts and tokens of a .cases file, except texts that contain `except` (in hexadecimal). */
static void check_cases(const tokenizer *t, const char *name, const char *label, const char *except)
{
    char path[200];
    snprintf(path, sizeof(path), DATA "%s.cases", name);
    json_error_t error;
    json_t *cases = json_load_file(path, 0, &error);
    assert_non_null(cases);
    int texts = 0, numbers = 0;
    for (size_t c = 0; c < json_array_size(cases); c++) {
        const json_t *one = json_array_get(cases, c), *ids = json_object_get(one, "ids");
        const char *text = json_string_value(json_object_get(one, "text"));
        const char *decoded = json_string_value(json_object_get(one, "decoded"));
        if (text != NULL && (except == NULL || strstr(text, except) == NULL))
            check_encoded(t, name, text, ids), texts++;
        if (decoded != NULL)
            check_decoded(t, name, decoded, json_is_true(json_object_get(one, "skip")), ids), numbers++;
    }
    print_message("%s%s: %d texts, %d lists of tokens\n", name, label, texts, numbers);
    assert_true(texts > 200 && numbers > 150);
    json_decref(cases);
}

/* Check numbers of an encoding, element k of the recorded arrays. */
static void check_numbers(const char *name, const json_t *one, size_t k, const int64_t *found, int64_t n)
{
    static const char *const what[] = {"tokens", "types", "texts", "begins", "ends"};
    const json_t *wanted = json_array_get(one, 3 + k);
    bool same = (size_t)n == json_array_size(wanted);
    for (int64_t x = 0; same && x < n; x++)
        same = found[x] == json_integer_value(json_array_get(wanted, (size_t)x));
    if (!same)
        fail_msg("%s: %s of %s differ", name, what[k], json_dumps(one, JSON_COMPACT));
}

/* Check a text or pair: [a, b or null, max_tokens, tokens, types, texts, begins, ends]. */
static void check_pair(const tokenizer *t, const char *name, const json_t *one)
{
    char *bytes[2] = {NULL, NULL};
    tok_string texts[2] = {{NULL, 0}, {NULL, 0}};
    tok_encoding e;
    for (size_t k = 0; k < 2; k++) {
        const char *hex = json_string_value(json_array_get(one, k));
        bytes[k] = hex != NULL ? malloc(strlen(hex) / 2 + 1) : NULL;
        if (hex != NULL)
            texts[k] = (tok_string){bytes[k], from_hex(hex, bytes[k])};
    }
    const int64_t most = json_integer_value(json_array_get(one, 2));
    if (tok_encode_pair(t, texts[0], bytes[1] != NULL ? &texts[1] : NULL, most, &e, err) != TOK_OK)
        fail_msg("%s", err);
    assert_non_null(e.spans);
    int64_t *found = malloc(((size_t)e.n + 1) * sizeof(*found));
    for (size_t k = 0; k < 5; k++) {
        for (int64_t x = 0; x < e.n; x++)
            found[x] = k == 0   ? e.ids[x]
                       : k == 1 ? e.types[x]
                       : k == 2 ? e.texts[x]
                       : k == 3 ? e.spans[x].begin
                                : e.spans[x].end;
        check_numbers(name, one, k, found, e.n);
    }
    free(found);
    free(bytes[0]);
    free(bytes[1]);
    tok_encoding_free(&e);
    assert_true(e.ids == NULL && e.n == 0);
}

static void pairs_match_the_oracle(void **state)
{
    static const char *const pieces[] = {"mpnet.json", "bert.json",     "cased.json", "accents.json", "words.json",
                                         "t5.json",    "fallback.json", "first.json", "roberta.json", "modernbert.json",
                                         "gpt2.json",  "llama3.json",   "fused.json", "none.json"};
    (void)state;
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
        char path[200];
        json_error_t error;
        tokenizer *t = opened(pieces[k]);
        snprintf(path, sizeof(path), DATA "%s.pairs", pieces[k]);
        json_t *cases = json_load_file(path, 0, &error);
        assert_true(json_array_size(cases) >= 100);
        for (size_t c = 0; c < json_array_size(cases); c++)
            check_pair(t, pieces[k], json_array_get(cases, c));
        json_decref(cases);
        tok_close(t);
    }
}

/* Limits below the number of special tokens are refused; SentencePiece gives no spans. */
static void limits_of_pairs_are_checked(void **state)
{
    static const tok_string a = {"the a", 5}, b = {"b", 1}, negative = {"", -1};
    tokenizer *t = opened("bert.json");
    tok_encoding e;
    (void)state;
    assert_int_equal(tok_encode_pair(t, a, &b, 2, &e, err), TOK_ARGUMENT);
    assert_non_null(strstr(err, "max_tokens is 2; it must be 0, for no limit, or at least 3"));
    assert_true(e.ids == NULL && e.n == 0);
    assert_int_equal(tok_encode_pair(t, a, NULL, -1, &e, err), TOK_ARGUMENT);
    assert_int_equal(tok_encode_pair(t, negative, NULL, 0, &e, err), TOK_ARGUMENT);
    assert_int_equal(tok_encode_pair(t, a, &b, 3, &e, err), TOK_OK);
    assert_int_equal(e.n, 3);
    tok_encoding_free(&e);
    tok_close(t);
    t = opened("suffix.model");
    assert_int_equal(tok_encode_pair(t, a, &b, 0, &e, err), TOK_OK);
    assert_true(e.n > 2 && e.spans == NULL);
    tok_encoding_free(&e);
    tok_close(t);
}

static void tokens_and_texts_match_the_oracles(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * N_NAMES; n++) {
        const int k = n % N_NAMES;
        if (n >= N_NAMES && (strstr(names[k], ".json") == NULL || strcmp(names[k], "mpnet.json") == 0 ||
                             strcmp(names[k], "modernbert.json") == 0))
            continue; /* only Unigram has a compact form */
        tokenizer *t = opened_as(names[k], n >= N_NAMES);
        check_cases(t, names[k], n >= N_NAMES ? ", compact" : "", NULL);
        tok_close(t);
    }
}

/* Open a file with files beside it; a .gguf file has its own. With `compact`, open the output of tok_compact. */
static tokenizer *opened_beside(const char *name, const json_t *files, bool t5_rules, bool compact)
{
    static const char *const keys[] = {"added_tokens", "tokenizer_config", "special_tokens_map"};
    char path[200], *text[3];
    tok_file beside[3];
    tok_written made = {0};
    file f = {0};
    tokenizer *t;
    snprintf(path, sizeof(path), DATA "%s", name);
    const bool gguf = strstr(name, ".gguf") != NULL, bytes = strcmp(name, "bytes") == 0;
    if (gguf) {
        io_checkpoint *c;
        if (io_checkpoint_open(&c, path, err) != IO_OK ||
            tok_write_gguf(io_checkpoint_keys(c), path, &made, err) != TOK_OK)
            fail_msg("%s", err);
        io_checkpoint_close(c);
        f = (file){made.spiece, made.spiece_size};
        assert_null(made.added_tokens);
    } else if (!bytes) {
        f = load(path);
    }
    for (int k = 0; k < 3; k++) {
        json_t *content = json_object_get(files, keys[k]);
        text[k] = gguf ? (k == 1 ? made.tokenizer_config : NULL) : content != NULL ? json_dumps(content, 0) : NULL;
        beside[k] = (tok_file){text[k], text[k] != NULL ? (int64_t)strlen(text[k]) : 0, keys[k]};
    }
    const tok_beside all = {beside[0], beside[1], beside[2], t5_rules ? TOK_RULES_T5 : TOK_RULES_FILE};
    if (compact)
        make_compact(&f, &all);
    if ((bytes ? tok_open_bytes(&t, 125, &all, err) : tok_open_beside(&t, f.bytes, f.size, name, 100, &all, err)) !=
        TOK_OK)
        fail_msg("%s: %s", name, err);
    free(f.bytes);
    for (int k = 0; k < 3; k++)
        free(text[k]);
    return t;
}

static void check_form(const json_t *one, const char *form, bool compact)
{
    const json_t *texts = json_object_get(one, "texts"), *decoded = json_object_get(one, "decoded");
    char label[100];
    tokenizer *t =
        opened_beside(form, json_object_get(one, "files"), json_is_true(json_object_get(one, "t5_rules")), compact);
    snprintf(label, sizeof label, "%s, %s%s", json_string_value(json_object_get(one, "name")),
             compact ? "compact " : "", form);
    for (size_t k = 0; k < json_array_size(texts); k++) {
        const json_t *pair = json_array_get(texts, k);
        check_encoded(t, label, json_string_value(json_array_get(pair, 0)), json_array_get(pair, 1));
    }
    for (size_t k = 0; k < json_array_size(decoded); k++) {
        const json_t *row = json_array_get(decoded, k);
        check_decoded(t, label, json_string_value(json_array_get(row, 2)), json_is_true(json_array_get(row, 1)),
                      json_array_get(row, 0));
    }
    tok_close(t);
}

/* Check every form of the tokenizers in forms.cases, which make_forms.py wrote. */
static void every_form_has_the_tokens_of_transformers(void **state)
{
    (void)state;
    json_error_t error;
    json_t *cases = json_load_file(DATA "forms.cases", 0, &error);
    assert_non_null(cases);
    size_t texts = 0;
    for (size_t c = 0; c < json_array_size(cases); c++) {
        const json_t *one = json_array_get(cases, c), *forms = json_object_get(one, "forms");
        texts += json_array_size(json_object_get(one, "texts"));
        for (size_t k = 0; k < json_array_size(forms); k++) {
            const char *form = json_string_value(json_array_get(forms, k));
            check_form(one, form, false);
            if (strstr(form, ".json") != NULL)
                check_form(one, form, true);
        }
    }
    print_message("%zu tokenizers, %zu texts\n", json_array_size(cases), texts);
    assert_true(json_array_size(cases) == 13 && texts > 1000);
    json_decref(cases);
}

/* A .gguf file gives the tokens of the spiece.model that was converted. */
static void gguf_has_the_tokens_of_spiece_model(void **state)
{
    (void)state;
    static const char *const names_of[][3] = {{"t5.model", "t5.gguf", "t5.model.cases"},
                                              {"fallback.model", "fallback.gguf", "fallback.model.cases"},
                                              {"plain.model", "plain.gguf", "plain.model.cases"}};
    for (int k = 0; k < 3; k++) {
        char path[200];
        json_error_t error;
        const int extra = k < 2 ? 100 : 0; /* of more than 100 placeholders, the first 100 are <extra_id_N> */
        json_t *files = json_pack("{s:{s:i}}", "tokenizer_config", "extra_ids", extra);
        tokenizer *model = opened_beside(names_of[k][0], files, false, false),
                  *t = opened_beside(names_of[k][1], NULL, false, false);
        snprintf(path, sizeof(path), DATA "%s", names_of[k][2]);
        json_t *cases = json_load_file(path, 0, &error);
        assert_int_equal(tok_size(t), tok_size(model));
        for (int32_t id = 0; id < tok_size(t); id++)
            assert_string_equal(tok_piece(t, id, NULL), tok_piece(model, id, NULL));
        assert_int_equal(tok_id(t, "<extra_id_99>", 13), extra ? tok_size(model) - 100 : -1);
        for (size_t c = 0; c < json_array_size(cases); c++) {
            const char *hex = json_string_value(json_object_get(json_array_get(cases, c), "text"));
            char text[1024];
            int32_t *ids, *found;
            int64_t n, n_found;
            if (hex == NULL)
                continue;
            const int64_t size = from_hex(hex, text);
            assert_int_equal(tok_encode(model, text, size, true, &ids, &n, err), TOK_OK);
            assert_int_equal(tok_encode(t, text, size, true, &found, &n_found, err), TOK_OK);
            assert_int_equal(n, n_found);
            assert_memory_equal(ids, found, (size_t)n * sizeof *ids);
            free(ids);
            free(found);
        }
        json_decref(cases);
        json_decref(files);
        tok_close(model);
        tok_close(t);
    }
}

static void tokens_have_texts(void **state)
{
    (void)state;
    tokenizer *t = opened("fallback.model");
    static const char *const cases[][2] = {
        {"\xe2\x96\x81", " "}, {"<0x0A>", "\n"}, {"<0xFF>", "\xff"}, {"<unk>", "<unk>"}};
    for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
        char text[8] = "";
        const int64_t size = tok_token_text(t, tok_id(t, cases[k][0], (int64_t)strlen(cases[k][0])), text);
        assert_int_equal(size, strlen(cases[k][1]));
        assert_string_equal(text, cases[k][1]);
    }
    assert_int_equal(tok_token_text(t, -1, NULL), 0);
    assert_int_equal(tok_token_text(t, tok_size(t), NULL), 0);
    tok_close(t);
}

static void pieces_and_numbers_belong_together(void **state)
{
    (void)state;
    for (int k = 0; k < N_NAMES; k++) {
        tokenizer *t = opened(names[k]);
        for (int32_t id = 0; id < tok_size(t); id++) {
            int64_t size;
            const char *piece = tok_piece(t, id, &size);
            assert_non_null(piece);
            assert_int_equal(piece[size], 0);
            assert_int_equal(tok_id(t, piece, size), id);
        }
        assert_null(tok_piece(t, -1, NULL));
        assert_null(tok_piece(t, tok_size(t), NULL));
        assert_int_equal(tok_id(t, "no such piece", 13), -1);
        assert_int_equal(tok_id(t, "", 0), -1);
        if (strcmp(names[k], "modernbert.json") == 0)
            assert_true(tok_id(t, "[SEP]", 5) >= 0 && tok_id(t, "[UNK]", 5) >= 0);
        else
            assert_true(tok_id(t, "</s>", 4) >= 0 && tok_id(t, "<unk>", 5) >= 0);
        tok_close(t);
    }
}

/* T5 appends <extra_id_99> ... <extra_id_0> to its pieces. */
static void extra_ids_follow_the_pieces(void **state)
{
    (void)state;
    tokenizer *plain = opened("t5.model"), *t;
    assert_int_equal(tok_open(&t, DATA "t5.model", 100, err), TOK_OK);
    assert_int_equal(tok_size(t), tok_size(plain) + 100);
    assert_int_equal(tok_id(t, "<extra_id_0>", 12), tok_size(t) - 1);
    assert_int_equal(tok_id(t, "<extra_id_99>", 13), tok_size(plain));
    assert_int_equal(tok_id(t, "<pad>", 5), 0);
    assert_int_equal(tok_id(t, "</s>", 4), 1);
    int32_t *ids, *words;
    int64_t n, n_words;
    assert_int_equal(tok_encode(t, "the<extra_id_0>the", 18, true, &ids, &n, err), TOK_OK);
    assert_int_equal(tok_encode(plain, "the", 3, false, &words, &n_words, err), TOK_OK);
    assert_int_equal(n, 2 * n_words + 2);
    assert_memory_equal(ids, words, (size_t)n_words * 4);
    assert_int_equal(ids[n_words], tok_size(t) - 1);
    assert_memory_equal(ids + n_words + 1, words, (size_t)n_words * 4);
    assert_int_equal(ids[n - 1], 1);
    for (int skip = 0; skip < 2; skip++) {
        char *text;
        assert_int_equal(tok_decode(t, ids, n, skip, &text, &n_words, err), TOK_OK);
        assert_string_equal(text, skip ? "the the" : "the<extra_id_0> the");
        free(text);
    }
    free(ids);
    free(words);
    tok_close(plain);
    tok_close(t);
}

static void byt5_has_the_numbers_of_its_paper(void **state)
{
    (void)state;
    tokenizer *t = opened("bytes");
    int32_t *ids;
    int64_t n;
    assert_int_equal(tok_size(t), 384);
    assert_int_equal(tok_id(t, "<extra_id_0>", 12), 259);
    assert_int_equal(tok_encode(t, "a\0\xff", 3, true, &ids, &n, err), TOK_OK);
    assert_int_equal(n, 4);
    assert_memory_equal(ids, ((int32_t[]){'a' + 3, 3, 258, 1}), 16);
    free(ids);
    tok_close(t);
}

static void check_made(const char *vocab, const char *text, const int32_t *wanted, int64_t n_wanted)
{
    char json[300];
    tokenizer *t;
    int32_t *ids;
    int64_t n;
    const int size = snprintf(json, sizeof(json),
                              "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],%s]}}", vocab);
    assert_int_equal(tok_open_memory(&t, json, size, "made", 0, err), TOK_OK);
    assert_int_equal(tok_encode(t, text, (int64_t)strlen(text), true, &ids, &n, err), TOK_OK);
    assert_int_equal(n, n_wanted);
    assert_memory_equal(ids, wanted, (size_t)n * sizeof(*ids));
    free(ids);
    tok_close(t);
}

/* Compare with `tokenizers` 0.23.3. If scores were rounded to the nearest double, the first result would be 1 2 2 2
 * 2. */
static void scores_decide_as_in_tokenizers(void **state)
{
    (void)state;
    check_made("[\"a\",-11.744708061218262],[\"aa\",-10.389876365661621]", "aaaaaaaaa", (int32_t[]){2, 2, 2, 1, 2}, 5);
    /* the unknown y scores 10 below the lowest score */
    check_made("[\"z\",5],[\"yz\",-3]", "yz", (int32_t[]){2}, 1);
    check_made("[\"z\",5],[\"yz\",-9],[\"v\",-1]", "yzxxv", (int32_t[]){2, 0, 3}, 3);
    /* exactly 10: with 9 the first text would be an unknown a and b, and with 11 the second would be ab */
    check_made("[\"b\",9.5],[\"ab\",-1]", "ab", (int32_t[]){2}, 1);
    check_made("[\"b\",10.5],[\"ab\",-1]", "ab", (int32_t[]){0, 1}, 2);
}

/* A word of a megabyte. Time proportional to its square would be hours. */
static void a_long_word_is_merged(void **state)
{
    enum { SIZE = 1 << 20 };
    (void)state;
    for (int shape = 0; shape < 3; shape++) {
        tokenizer *t = opened("modernbert.json");
        char *word = malloc(SIZE), *back;
        int32_t *ids;
        int64_t n, size;
        for (int64_t k = 0; k < SIZE; k++)
            word[k] = shape == 0 ? 'a' : shape == 1 ? "the"[k % 3] : (char)('a' + k * 7919 / 13 % 26);
        assert_int_equal(tok_encode(t, word, SIZE, false, &ids, &n, err), TOK_OK);
        assert_true(n >= 1 && n <= SIZE);
        assert_int_equal(tok_decode(t, ids, n, false, &back, &size, err), TOK_OK);
        assert_int_equal(size, SIZE);
        assert_memory_equal(back, word, SIZE);
        free(back);
        free(ids);
        free(word);
        tok_close(t);
    }
}

/* Each character that stands for a byte. */
static void bytes_have_characters(void **state)
{
    int seen = 0;
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        const int byte = tok_character_byte(c);
        if (byte >= 0)
            assert_int_equal(tok_byte_character(byte), c);
        seen += byte >= 0;
    }
    assert_int_equal(seen, 256);
    assert_int_equal(tok_byte_character(' '), 0x120);
    assert_int_equal(tok_byte_character(0xad), 0x143);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    tokenizer *t = opened("t5.json"), *other = t;
    int32_t *ids = (int32_t *)err;
    int64_t n = 7;
    char *text;
    assert_int_equal(tok_encode(t, "a", -1, true, &ids, &n, err), TOK_ARGUMENT);
    assert_one_line(err);
    assert_null(ids);
    assert_int_equal(n, 0);
    assert_int_equal(tok_decode(t, (int32_t[]){3, -5}, 2, true, &text, &n, err), TOK_ARGUMENT);
    assert_string_equal(err, "token 1 of 2 is -5; it must be at least 0");
    assert_null(text);
    assert_int_equal(tok_decode(t, (int32_t[]){1 << 30}, 1, false, &text, &n, err),
                     TOK_OK); /* the number of an embedding row without a piece */
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(tok_decode(t, NULL, 0, false, &text, &n, err), TOK_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(tok_open_bytes(&other, -1, NULL, err), TOK_ARGUMENT);
    assert_null(other);
    assert_int_equal(tok_open(&other, DATA "absent", 0, err), TOK_ABSENT);
    assert_one_line(err);
    assert_int_equal(tok_open(&other, "tests", 0, err), TOK_ABSENT);
    assert_non_null(strstr(err, "spiece.model"));
    tok_close(NULL);
    tok_close(t);
}

static void copy_to(const char *name, const char *path)
{
    char from[200];
    snprintf(from, sizeof(from), DATA "%s", name);
    const file f = load(from);
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(f.bytes, 1, (size_t)f.size, to), f.size);
    assert_int_equal(fclose(to), 0);
    free(f.bytes);
}

static void a_directory_gives_tokenizer_json_before_spiece_model(void **state)
{
    (void)state;
    char directory[] = "/tmp/relpos-tokenizer-XXXXXX", json[64], model[64];
    assert_non_null(mkdtemp(directory));
    snprintf(json, sizeof(json), "%s/tokenizer.json", directory);
    snprintf(model, sizeof(model), "%s/spiece.model", directory);
    copy_to("t5.model", model);
    tokenizer *t, *only = opened("t5.model"), *wanted = opened("t5.json");
    assert_int_equal(tok_open(&t, directory, 0, err), TOK_OK);
    assert_int_equal(tok_size(t), tok_size(only));
    tok_close(t);
    copy_to("t5.json", json);
    assert_int_equal(tok_open(&t, directory, 0, err), TOK_OK);
    assert_int_equal(tok_size(t), tok_size(wanted)); /* ten more */
    tok_close(t);
    FILE *broken = fopen(json, "w"); /* a damaged file is an error even if another tokenizer is present */
    fputs("{", broken);
    fclose(broken);
    assert_int_equal(tok_open(&t, directory, 0, err), TOK_DAMAGED);
    assert_non_null(strstr(err, "tokenizer.json"));
    unlink(json);
    unlink(model);
    rmdir(directory);
    tok_close(only);
    tok_close(wanted);
}

/* Encode in a child process that may use `bytes` more memory than now. Return true if it succeeds. */
static bool encodes_within(const tokenizer *t, const char *text, int64_t size, int64_t bytes)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        limit_memory((int)(bytes >> 20) + 1);
        int32_t *ids;
        int64_t n;
        _exit(tok_encode(t, text, size, true, &ids, &n, err) != TOK_OK);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* One long line needs at most the memory that tokenizer.h states, plus the result. */
static void long_lines_take_memory_in_proportion(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    static const struct {
        const char *text;
        int64_t grows; /* max normalized bytes per byte of text */
    } units[] = {{"a", 1},
                 {" ", 3},
                 {"the ", 2},
                 {"\xef\xb7\xba", 13},
                 {"<extra_id_0>", 1},
                 {"a\xcc\x81", 1},
                 {"\xff", 3},
                 {"\xe2\x96\x81", 1},
                 {"www", 1}};
    for (int k = 0; k < N_NAMES && !SANITIZED; k++) {
        tokenizer *t = opened(names[k]);
        const int64_t each = strcmp(names[k], "modernbert.json") == 0 ? 36 : 27;
        char *text = malloc(SIZE);
        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
            const size_t length = strlen(units[u].text);
            for (size_t at = 0; at < SIZE; at++)
                text[at] = units[u].text[at % length];
            int32_t *ids;
            int64_t n;
            assert_int_equal(tok_encode(t, text, SIZE, true, &ids, &n, err), TOK_OK);
            free(ids);
            if (!encodes_within(t, text, SIZE,
                                /* the array of the result grows in steps of half its size */
                                units[u].grows * each * SIZE + 6 * n))
                fail_msg("%s: 1 MiB of \"%s\" take more than %lld bytes for each", names[k], units[u].text,
                         (long long)(units[u].grows * each));
        }
        free(text);
        tok_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_texts_match_the_oracles),
        cmocka_unit_test(tokens_have_texts),
        cmocka_unit_test(pieces_and_numbers_belong_together),
        cmocka_unit_test(every_form_has_the_tokens_of_transformers),
        cmocka_unit_test(gguf_has_the_tokens_of_spiece_model),
        cmocka_unit_test(extra_ids_follow_the_pieces),
        cmocka_unit_test(byt5_has_the_numbers_of_its_paper),
        cmocka_unit_test(scores_decide_as_in_tokenizers),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(pairs_match_the_oracle),
        cmocka_unit_test(limits_of_pairs_are_checked),
        cmocka_unit_test(a_long_word_is_merged),
        cmocka_unit_test(bytes_have_characters),
        cmocka_unit_test(a_directory_gives_tokenizer_json_before_spiece_model),
        cmocka_unit_test(long_lines_take_memory_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
