/* test_tokenizer_models.c -- small SentencePiece models that the test writes, the tokenizer of bytes, files beside a
 * tokenizer, limits of files and arguments, and calls that are cancelled.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/tokenizer/made.h"
#include <sys/stat.h>
#include <unistd.h>

/* Begin a model with the pieces <unk> (0), </s> (1), a (2) and b (3). */
static model begun(void)
{
    model m = {.size = 0};
    put_piece(&m, "<unk>", UNKNOWN);
    put_piece(&m, "</s>", CONTROL);
    put_piece(&m, "a", NORMAL);
    put_piece(&m, "b", NORMAL);
    return m;
}

/* Add trainer_spec so that a space ends a word. These are not T5's rules for spaces. */
static void put_suffix(model *m)
{
    put_piece(m, META, NORMAL);
    put_field(m, 2, "\xc0\x01\x01", 3);
}

/* ---- SentencePiece */

static void fields_of_a_model_are_checked(void **state)
{
    static const struct {
        int field;
        const char *bytes;
        size_t size;
        const char *why;
    } cases[] = {
        {2, "\xe0\x02\x01", 3, "a field of trainer_spec has wire type 0; it must be 2"}, /* unk_surface */
        {2, "\xf8\x02\x01", 3, "a field of trainer_spec has wire type 0; it must be 2"}, /* eos_piece */
        {2, "\x1a\x01x", 3, "a field of trainer_spec has wire type 2; it must be 0"},    /* model_type */
        {2, "\xc2\x01\x01x", 4, "a field of trainer_spec has wire type 2; it must be 0"},
        {2, "\x9a\x02\x01x", 4, "a field of trainer_spec has wire type 2; it must be 0"},
        {2, "\x18\x04", 2, "its model type is 4, char; it must be 1, Unigram"},
        {2, "\x18\x05", 2, "its model type is 5, unknown; it must be 1, Unigram"},
        {2, "\xe2\x02\x01\xff", 4, "unk_surface must be UTF-8"},
    };
    tokenizer *t;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        model m = begun();
        put_field(&m, cases[k].field, cases[k].bytes, cases[k].size);
        const tok_status status = tok_open_memory(&t, m.bytes, m.size, "made", 0, err);
        check_refused(status, t, cases[k].why);
    }
    const tok_status status = tok_open_memory(&t, "\x12\x02\x18\x01", 4, "made", 0, err);
    check_refused(status, t, "made: it has no pieces (it is not a SentencePiece model)");
}

/* More pieces than a tokenizer may have, and a piece that is too long. */
static void large_models_are_refused(void **state)
{
    enum { MOST = 1 << 22, LONG = 1 << 20 };
    char *bytes = malloc(2 * MOST + 2);
    tokenizer *t;
    (void)state;
    assert_non_null(bytes);
    for (int k = 0; k <= MOST; k++)
        memcpy(bytes + 2 * k, "\x0a", 2);
    tok_status status = tok_open_memory(&t, bytes, 2 * (MOST + 1), "made", 0, err);
    check_refused(status, t, "made: it has more than 4194304 pieces (use a model with fewer)");
    status = tok_open_memory(&t, bytes, 2 * MOST, "made", 0, err);
    check_refused(status, t, "made: piece 0 has 0 bytes");
    for (int more = 0; more < 2; more++) { /* two messages, each with a size of three bytes */
        const model m = begun();
        const int piece = LONG + more;
        const char head[] = {0x0a,
                             (char)((piece + 4) & 0x7f) | (char)0x80,
                             (char)((piece + 4) >> 7 & 0x7f) | (char)0x80,
                             (char)((piece + 4) >> 14),
                             0x0a,
                             (char)(piece & 0x7f) | (char)0x80,
                             (char)(piece >> 7 & 0x7f) | (char)0x80,
                             (char)(piece >> 14)};
        memcpy(bytes, m.bytes, (size_t)m.size);
        memcpy(bytes + m.size, head, sizeof head);
        memset(bytes + m.size + 8, 'x', (size_t)piece);
        status = tok_open_memory(&t, bytes, m.size + 8 + piece, "made", 0, err);
        if (more)
            check_refused(status, t, "made: piece 4 has 1048577 bytes; it must have 1 to 1048576");
        else
            assert_int_equal(status, TOK_OK);
        tok_close(t);
    }
    free(bytes);
}

static void unused_pieces_are_not_found(void **state)
{
    model m = begun();
    (void)state;
    put_piece(&m, META "a", NORMAL);
    put_piece(&m, "ab", UNUSED);
    put_piece(&m, "z", UNUSED);
    tokenizer *t = model_opened(&m, NULL);
    check_pieces(t, "aab", false, META "a|a|b");
    check_pieces(t, "az", false, META "a|<unk>");
    check_text(t, (int32_t[]){4, 5}, 2, false, "aab"); /* but a number gives their text */
    check_text(t, (int32_t[]){4, 1 << 30, 3}, 3, false, "ab");
    tok_close(t);
}

/* The end token must be a control piece. */
static void a_normal_piece_ends_no_text(void **state)
{
    (void)state;
    for (int control = 0; control < 2; control++) {
        model m = {.size = 0};
        put_piece(&m, "<unk>", UNKNOWN);
        put_piece(&m, META "a", NORMAL);
        put_piece(&m, "</s>", control ? CONTROL : NORMAL);
        tokenizer *t = model_opened(&m, NULL);
        check_pieces(t, "a", true, control ? META "a|</s>" : META "a");
        tok_close(t);
    }
}

/* Without escape_whitespaces, pieces contain spaces. */
static void spaces_may_stay_spaces(void **state)
{
    const tok_beside none = beside_of(NULL, NULL, NULL, TOK_RULES_T5);
    model m = begun();
    (void)state;
    put_piece(&m, " a", NORMAL);
    put_piece(&m, " ", NORMAL);
    put_field(&m, 3, "\x28", 2); /* escape_whitespaces = 0 */
    for (int beside = 0; beside < 2; beside++) {
        tokenizer *t = model_opened(&m, beside ? &none : NULL);
        assert_false(tok_has_t5_rules(t));
        check_pieces(t, "a  b a ", false, " a| |b| a"); /* spaces are joined, and removed at the end */
        tok_close(t);
    }
}

/* The decoder removes a space at the start that add_dummy_prefix or remove_extra_whitespaces may have put there. */
static void a_leading_space_is_removed(void **state)
{
    static const char *const specs[] = {"\x18\0\x20\x01", "\x18\x01\x20\0", "\x18\0\x20\0"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        model m = begun();
        put_piece(&m, META "a", NORMAL);
        put_field(&m, 3, specs[k], 4);
        tokenizer *t = model_opened(&m, NULL);
        check_text(t, (int32_t[]){4, 4}, 2, false, k < 2 ? "a a" : " a a");
        tok_close(t);
    }
}

/* With T5's rules, user-defined pieces are found before the text is split into pieces. */
static void user_defined_pieces_are_found_first(void **state)
{
    const tok_beside none = beside_of(NULL, "{`extra_ids`:0}", NULL, TOK_RULES_T5);
    model m = begun();
    (void)state;
    put_piece(&m, META "a", NORMAL);
    put_piece(&m, META "b", NORMAL);
    put_piece(&m, META "azzb", NORMAL);
    put_piece(&m, "zz", USER_DEFINED);
    put_piece(&m, "<pad>", CONTROL);
    tokenizer *t = model_opened(&m, &none);
    check_pieces(t, "azzb", true, META "a|zz|" META "b|</s>");
    assert_false(tok_is_special(t, tok_id(t, "zz", 2)));
    assert_true(tok_is_special(t, tok_id(t, "<pad>", 5)));
    tok_close(t);
    free_beside(&none);
}

/* Added tokens of a model with other rules for spaces: normalized ones are found in the normalized text. */
static void added_tokens_of_other_rules(void **state)
{
    const tok_beside added = beside_of("{`zz`:5}", "{`extra_ids`:0}", NULL, TOK_RULES_FILE);
    model m = begun();
    (void)state;
    put_suffix(&m);
    tokenizer *t = model_opened(&m, &added);
    check_pieces(t, "azzb", true, "a|" META "|zz|b|" META "|</s>");
    check_text(t, (int32_t[]){2, 4, 5, 3, 1}, 5, false, "a zzb</s>");
    check_text(t, (int32_t[]){2, 4, 5, 3, 1}, 5, true, "a zzb"); /* zz is not special */
    tok_close(t);
    model mapped = begun();
    put_suffix(&mapped);
    put_charsmap(&mapped, "zz");
    t = model_opened(&mapped, &added);
    check_pieces(t, "bab", false, "b|" META "|zz|b|" META); /* "a" becomes the token */
    tok_close(t);
    free_beside(&added);
}

/* A rule of a model that turns one byte into more than 64 and a kilobyte. */
static void models_that_grow_are_stopped(void **state)
{
    enum { GROWN = 2000 };
    const tok_beside added = beside_of("{`zz`:5}", "{`extra_ids`:0}", NULL, TOK_RULES_FILE),
                     grows = beside_of("{`za`:5}", "{`extra_ids`:0}", NULL, TOK_RULES_FILE);
    static char grown[GROWN + 1];
    model m = begun();
    int32_t *ids;
    int64_t n;
    (void)state;
    memset(grown, 'b', GROWN);
    put_suffix(&m);
    put_charsmap(&m, grown);
    tokenizer *t = model_opened(&m, &added);
    assert_int_equal(tok_encode(t, "a", 1, true, &ids, &n, err), TOK_DAMAGED);
    assert_null(ids);
    assert_non_null(strstr(err, "a text of 1 bytes: the tokenizer's normalizer turns N bytes into more than 64 N"));
    assert_int_equal(tok_encode(t, "abbbbbbbbbbbbbbbb", 17, false, &ids, &n, err), TOK_OK);
    assert_int_equal(n, GROWN + 16 + 1);
    free(ids);
    tok_close(t);
    const tok_status status = tok_open_beside(&t, m.bytes, m.size, "made", 0, &grows, err);
    check_refused(status, t, "the normalizer turns the N bytes of the added token \"za\" into more than 64 N + 1024");
    free_beside(&added);
    free_beside(&grows);
}

/* ---- files beside a tokenizer.json */

#define T5_JSON(more)                                                                                                  \
    "{" more "`model`:{`type`:`Unigram`,`unk_id`:2,`vocab`:[[`<pad>`,0],[`</s>`,0],[`<unk>`,0],[`" META                \
    "a`,-1],[`b`,-2"                                                                                                   \
    "]]}}"
#define LISTED "`added_tokens`:[{`id`:1,`content`:`</s>`,`special`:true}],"

static void files_beside_t5_add_tokens(void **state)
{
    static const struct {
        const char *json, *added, *config, *map;
        const char *piece; /* it has the number `id`, or -1 */
        int32_t id, size;
        bool special;
    } cases[] = {
        {T5_JSON(""), NULL, NULL, NULL, "<extra_id_0>", 5, 105, true},
        {T5_JSON(""), NULL, "{`eos_token`:null}", NULL, "</s>", 1, 105, true}, /* null keeps the end token */
        /* a list with one <extra_id_N> has all of them; without one, those of T5 follow */
        {T5_JSON(""), NULL, NULL, "{`additional_special_tokens`:[`<extra_id_5>`,`d`]}", "d", 6, 7, true},
        {T5_JSON(""), NULL, NULL, "{`additional_special_tokens`:[7,`c`]}", "c", 5, 106, true},
        {T5_JSON(""), NULL, NULL, "{`additional_special_tokens`:[7,`c`]}", "<extra_id_99>", 105, 106, true},
        /* numbers follow those of the tokenizer.json */
        {T5_JSON(LISTED), "{`c`:5}", NULL, NULL, "c", 5, 106, false},
        /* a list makes no token special that a file describes; a name does */
        {T5_JSON(""), NULL, "{`added_tokens_decoder`:{`5`:{`content`:`c`}},`additional_special_tokens`:[`c`]}", NULL,
         "c", 5, 6, false},
        {T5_JSON(""), NULL, "{`added_tokens_decoder`:{`5`:{`content`:`c`}},`my_token`:`c`}", NULL, "c", 5, 106, true},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const tok_beside beside = beside_of(cases[k].added, cases[k].config, cases[k].map, TOK_RULES_T5);
        tokenizer *t = json_opened(cases[k].json, &beside);
        const int32_t id = tok_id(t, cases[k].piece, (int64_t)strlen(cases[k].piece));
        if (id != cases[k].id || tok_size(t) != cases[k].size || tok_is_special(t, id) != cases[k].special)
            fail_msg("case %zu: \"%s\" is token %d of %d", k, cases[k].piece, id, tok_size(t));
        check_pieces(t, "a", true, META "a|</s>");
        tok_close(t);
        free_beside(&beside);
    }
}

static void errors_beside_t5_are_named(void **state)
{
#define WRONG "{`content`:`x`,`lstrip`:7}"
    static const struct {
        const char *json, *config, *map, *why;
    } cases[] = {
        {T5_JSON(""), NULL, "{`additional_special_tokens`:[" WRONG "]}", "map.json: \"lstrip\" must be true or false"},
        {T5_JSON(""), "{`my_token`:" WRONG ",`your_token`:`y`}", NULL, "config.json: \"lstrip\" must be true or false"},
        {T5_JSON("`added_tokens`:[{`id`:-5,`content`:`</s>`}],"), NULL, NULL,
         "tokenizer.json: \"</s>\" has the number -5; in the model it is token 1"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const tok_beside beside = beside_of(NULL, cases[k].config, cases[k].map, TOK_RULES_T5);
        refuse_json(cases[k].json, &beside, cases[k].why);
        free_beside(&beside);
    }
}

/* A tokenizer.json with its own rules keeps its numbers. */
static void files_beside_other_rules_keep_numbers(void **state)
{
#define WORDS                                                                                                          \
    "{`added_tokens`:[{`id`:0,`content`:`[PAD]`}],`model`:{`type`:`WordPiece`,`unk_token`:`[UNK]`,"                    \
    "`continuing_subword_prefix`:`##`,`max_input_chars_per_word`:100,`vocab`:{`[PAD]`:0,`[UNK]`:1,`a`:2,`b`:3}}}"
    static const struct {
        const char *added, *config;
        bool special; /* [PAD] */
    } cases[] = {{NULL, NULL, false},
                 {"{`[PAD]`:3}", NULL, false},
                 {NULL, "{`sep_token`:`[PAD]`}", true},
                 {NULL, "{`added_tokens_decoder`:{`0`:{`content`:`[PAD]`,`special`:true}}}", true}};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const tok_beside beside = beside_of(cases[k].added, cases[k].config, NULL, TOK_RULES_FILE);
        tokenizer *t = json_opened(WORDS, &beside);
        assert_int_equal(tok_id(t, "[PAD]", 5), 0);
        assert_int_equal(tok_size(t), 4);
        assert_int_equal(tok_is_special(t, 0), cases[k].special);
        check_text(t, (int32_t[]){2, 0, 3}, 3, true, cases[k].special ? "a b" : "a [PAD] b");
        tok_close(t);
        free_beside(&beside);
    }
}

/* Lines of EsmTokenizer's vocab.txt: of equal ones the last counts, and an empty one is no token. */
static void lines_of_esm_are_found(void **state)
{
    static const char vocab[] = "<cls>\n<pad>\n<eos>\n<unk>\nL\n\nA\nL\n", text[] = "LA\x01 A";
    static const int32_t wanted[] = {0, 7, 6, 3, 6, 2};
    const tok_beside esm = beside_of("{`A`:6}", "{}", NULL, TOK_RULES_ESM);
    tokenizer *t;
    int32_t *ids;
    int64_t n;
    (void)state;
    if (tok_open_beside(&t, vocab, sizeof vocab - 1, "vocab.txt", 0, &esm, err) != TOK_OK)
        fail_msg("%s", err);
    assert_int_equal(tok_encode(t, text, sizeof text - 1, true, &ids, &n, err), TOK_OK);
    assert_int_equal(n, 6);
    assert_memory_equal(ids, wanted, sizeof wanted); /* U+0001 is a word, which is unknown */
    assert_null(tok_piece(t, 4, NULL));
    assert_false(tok_is_special(t, 6));
    assert_true(tok_is_special(t, 2));
    free(ids);
    tok_close(t);
    free_beside(&esm);
}

/* ---- ByT5 */

static void check_bytes(const tok_beside *beside, const char *text, const int32_t *wanted, int64_t n_wanted)
{
    tokenizer *t;
    int32_t *ids;
    int64_t n;
    if (tok_open_bytes(&t, 0, beside, err) != TOK_OK)
        fail_msg("%s", err);
    assert_int_equal(tok_encode(t, text, (int64_t)strlen(text), true, &ids, &n, err), TOK_OK);
    assert_int_equal(n, n_wanted);
    assert_memory_equal(ids, wanted, (size_t)n * sizeof *ids);
    free(ids);
    tok_close(t);
}

/* Numbers of new tokens go on from the number of tokens, so a token may get a number that a file gave to another. */
static void later_tokens_replace_earlier_ones(void **state)
{
    static const char *const tokens[] = {"bb", "bbb"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        char config[200];
        snprintf(config, sizeof config,
                 "{`added_tokens_decoder`:{`260`:{`content`:`aa`}},`additional_special_tokens`:[`%s`]}", tokens[k]);
        const tok_beside beside = beside_of(NULL, config, NULL, TOK_RULES_FILE);
        tokenizer *t;
        if (tok_open_bytes(&t, 0, &beside, err) != TOK_OK)
            fail_msg("%s", err);
        assert_string_equal(tok_piece(t, 260, NULL), tokens[k]);
        assert_int_equal(tok_id(t, tokens[k], (int64_t)strlen(tokens[k])), 260);
        check_text(t, (int32_t[]){'x' + 3, 260}, 2, false, k == 0 ? "xbb" : "xbbb");
        assert_null(tok_piece(t, 259, NULL)); /* a number without a token */
        assert_int_equal(tok_size(t), 261);
        tok_close(t);
        free_beside(&beside);
    }
}

static void tokens_in_bytes_are_found(void **state)
{
    const tok_beside beside = beside_of(NULL,
                                        "{`added_tokens_decoder`:{`259`:{`content`:`<a>`,`single_word`:true,`lstrip`:"
                                        "true},`260`:{`content`:`<b>`,`single_word`:true}}}",
                                        NULL, TOK_RULES_FILE);
    (void)state;
    /* <a> is no single word, so it is bytes of "x", whose white space it removes; then <b> is a single word */
    check_bytes(&beside, "x\t<a><b>", (int32_t[]){'x' + 3, '<' + 3, 'a' + 3, '>' + 3, 260, 1}, 6);
    check_bytes(&beside, "x<b>", (int32_t[]){'x' + 3, '<' + 3, 'b' + 3, '>' + 3, 1}, 5);
    /* </s> removes white space before it, but no byte that is not UTF-8 */
    check_bytes(NULL, "\x85</s>", (int32_t[]){0x85 + 3, 1}, 2);
    check_bytes(NULL, "\xc2\x85</s>", (int32_t[]){1}, 1);
    free_beside(&beside);
}

/* ---- arguments and files */

static void arguments_have_limits(void **state)
{
    const tok_string longest = {"a", ((int64_t)1 << 40) + 1};
    tokenizer *t = opened("t5.json"), *other = t;
    tok_encoding e;
    int32_t *ids;
    int64_t n;
    char *text;
    (void)state;
    assert_int_equal(tok_encode(t, longest.text, longest.size, true, &ids, &n, err), TOK_ARGUMENT);
    assert_string_equal(err, "the text has 1099511627777 bytes; it must have 0 to 1099511627776 (encode it in parts)");
    assert_int_equal(tok_encode_pair(t, longest, NULL, 0, &e, err), TOK_ARGUMENT);
    assert_string_equal(err, "the text has 1099511627777 bytes; it must have 0 to 1099511627776 (encode it in parts)");
    assert_int_equal(tok_decode(t, NULL, -1, true, &text, &n, err), TOK_ARGUMENT);
    assert_string_equal(err, "the number of tokens is -1; it must be at least 0");
    assert_int_equal(tok_decode(t, (int32_t[]){-5, 3}, 2, true, &text, &n, err), TOK_ARGUMENT);
    assert_string_equal(err, "token 0 of 2 is -5; it must be at least 0");
    assert_null(text);
    assert_int_equal(tok_open_bytes(&other, (1 << 20) + 1, NULL, err), TOK_ARGUMENT);
    assert_string_equal(err, "extra_ids is 1048577; it must be 0 to 1048576 (T5 has 100, ByT5 125)");
    assert_null(other);
    other = t;
    assert_int_equal(tok_open(&other, DATA "t5.model", -1, err), TOK_ARGUMENT);
    assert_string_equal(err, "extra_ids is -1; it must be 0 to 1048576 (T5 has 100, ByT5 125)");
    assert_null(other);
    tok_close(t);
}

static void files_that_cannot_be_read_are_errors(void **state)
{
    char directory[] = "/tmp/relpos-tokenizer-XXXXXX", json[64], below[80];
    tokenizer *t;
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(json, sizeof json, "%s/tokenizer.json", directory);
    assert_int_equal(mkdir(json, 0700), 0);
    assert_int_equal(tok_open(&t, directory, 0, err), TOK_FAILED);
    assert_non_null(strstr(err, "tokenizer.json: cannot be read: Is a directory"));
    assert_int_equal(rmdir(json), 0);
    FILE *f = fopen(json, "w");
    assert_non_null(f);
    snprintf(below, sizeof below, "%s/x", json); /* below a file */
    assert_int_equal(tok_open(&t, below, 0, err), TOK_FAILED);
    assert_non_null(strstr(err, "tokenizer.json/x: cannot be opened: Not a directory"));
    assert_null(t);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(json, TOK_MAX_FILE + 1), 0); /* a file with a hole */
    assert_int_equal(tok_open(&t, json, 0, err), TOK_DAMAGED);
    assert_non_null(strstr(err, "bytes; it must have 1 to 134217728 (download it again)"));
    assert_null(t);
    unlink(json);
    rmdir(directory);
}

/* ---- cancelling */

static int cancel_later(void *context)
{
    return --*(int *)context < 0;
}

/* Cancel the encoding of a text at each call of the callback, until it is no longer cancelled. */
static void cancel_each(const tokenizer *t, const char *text, int64_t size)
{
    tok_status status = TOK_CANCELLED;
    int calls = 0;
    for (; status != TOK_OK; calls++) {
        int32_t *ids;
        int64_t n;
        int left = calls;
        status = tok_encode_watched(t, text, size, true, cancel_later, &left, &ids, &n, err);
        if (status == TOK_OK) {
            assert_true(n > 0);
        } else {
            assert_int_equal(status, TOK_CANCELLED);
            assert_int_equal(left, -1);
            assert_null(ids);
            assert_non_null(strstr(err, "the callback cancelled the call"));
        }
        free(ids);
        assert_true(calls < 100);
    }
    assert_true(calls > 1);
}

/* Fill a text with copies of a unit. */
static void fill(char *text, int64_t size, const char *unit)
{
    const int64_t n = (int64_t)strlen(unit);
    for (int64_t k = 0; k < size; k++)
        text[k] = unit[k % n];
}

static void every_step_can_be_cancelled(void **state)
{
    enum { SIZE = (1 << 20) + (1 << 12) };
    static const char *const kinds[] = {"first.json",   "never.json",      "mpnet.json",
                                        "accents.json", "modernbert.json", "bytes"};
    static const char *const units[] = {"a", "the  ", "a </s>"};
    const tok_beside added = beside_of("{`zz`:5}", "{`extra_ids`:0}", NULL, TOK_RULES_FILE);
    char *text = malloc(SIZE);
    model m = begun();
    (void)state;
    assert_non_null(text);
    put_suffix(&m);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        fill(text, SIZE, units[u]);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            tokenizer *t = opened(kinds[k]);
            cancel_each(t, text, SIZE);
            tok_close(t);
        }
        tokenizer *t = model_opened(&m, &added);
        cancel_each(t, text, SIZE);
        tok_close(t);
    }
    free(text);
    free_beside(&added);
}

/* The callback is called once per megabyte. If a tokenizer has only one step, it is called in that step. */
static void single_steps_can_be_cancelled(void **state)
{
    enum { SIZE = (1 << 21) + (1 << 12) };
#define ONE_STEP(step) "{" step ",`model`:{`type`:`Unigram`,`unk_id`:0,`vocab`:[[`<unk>`,0],[`a`,-1],[`" META "`,-1]]}}"
    static const struct {
        const char *json, *unit;
    } cases[] = {
        {ONE_STEP("`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:`" META "`,`split`:false}"), " "},
        {ONE_STEP("`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:`" META "`,`split`:true}"), " a"},
        {ONE_STEP("`normalizer`:null"), "z"},
        {ONE_STEP("`normalizer`:{`type`:`Replace`,`pattern`:{`String`:`b`},`content`:`a`}"), "ab"},
        {ONE_STEP("`normalizer`:{`type`:`Replace`,`pattern`:{`Regex`:` {2,}`},`content`:`a`}"), "a  "},
        {ONE_STEP("`normalizer`:{`type`:`Replace`,`pattern`:{`Regex`:`\\\\s{2,}|[\\\\n\\\\r\\\\t]`},`content`:`a`}"),
         "a\t"},
    };
    char *text = malloc(SIZE);
    (void)state;
    assert_non_null(text);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tokenizer *t = json_opened(cases[k].json, NULL);
        fill(text, SIZE, cases[k].unit);
        cancel_each(t, text, SIZE);
        tok_close(t);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_a_model_are_checked),
        cmocka_unit_test(large_models_are_refused),
        cmocka_unit_test(unused_pieces_are_not_found),
        cmocka_unit_test(a_normal_piece_ends_no_text),
        cmocka_unit_test(spaces_may_stay_spaces),
        cmocka_unit_test(a_leading_space_is_removed),
        cmocka_unit_test(user_defined_pieces_are_found_first),
        cmocka_unit_test(added_tokens_of_other_rules),
        cmocka_unit_test(models_that_grow_are_stopped),
        cmocka_unit_test(files_beside_t5_add_tokens),
        cmocka_unit_test(errors_beside_t5_are_named),
        cmocka_unit_test(files_beside_other_rules_keep_numbers),
        cmocka_unit_test(lines_of_esm_are_found),
        cmocka_unit_test(later_tokens_replace_earlier_ones),
        cmocka_unit_test(tokens_in_bytes_are_found),
        cmocka_unit_test(arguments_have_limits),
        cmocka_unit_test(files_that_cannot_be_read_are_errors),
        cmocka_unit_test(every_step_can_be_cancelled),
        cmocka_unit_test(single_steps_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
