/* test_tokenizer_gguf.c -- keys of a .gguf file that describe a tokenizer: each wrong one is named, each allocation may
 * fail, and the files that are written have the tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/tokenizer/files.h"
#include "io/gguf.h"
#include "tests/starve.h"

enum { PREFIX, EOS, MODEL, CHARSMAP, SPACES, SCORES, TYPES, TOKENS, KEYS };

/* The keys tokenizer.ggml.*, sorted. */
static const char *const names[KEYS] = {
    "add_space_prefix",         "eos_token_id", "model",      "precompiled_charsmap",
    "remove_extra_whitespaces", "scores",       "token_type", "tokens"};

/* Bytes of the values, with room for 300 tokens. */
typedef struct keys {
    io_gguf_value values[KEYS];
    io_gguf gguf;
    char full[KEYS][48];
    unsigned char texts[300 * 40];
    size_t size;
    float scores[300];
    int32_t types[300];
} keys;

static void put_text(keys *k, const char *text, size_t size)
{
    const uint64_t n = size;
    memcpy(k->texts + k->size, &n, 8);
    memcpy(k->texts + k->size + 8, text, size);
    k->size += 8 + size;
}

static void put_token(keys *k, const char *text, int32_t type, float score)
{
    const uint64_t n = k->values[TOKENS].n++;
    put_text(k, text, strlen(text));
    k->types[n] = type;
    k->scores[n] = score;
    k->values[SCORES].n = k->values[TYPES].n = n + 1;
    k->values[SCORES].bytes = k->values[TYPES].bytes = 4 * (n + 1);
    k->values[TOKENS].bytes = k->size;
}

/* Six tokens: four of spiece.model, of which one was user-defined, and two that were added. */
static void make_keys(keys *k)
{
    static const int64_t one = 1;
    static const unsigned char text[] = "\2\0\0\0\0\0\0\0t5";
    memset(k, 0, sizeof *k);
    k->values[PREFIX] = (io_gguf_value){.type = GGUF_BOOL, .n = 1, .at = (const void *)&one, .bytes = 1};
    k->values[SPACES] = k->values[PREFIX];
    k->values[EOS] = (io_gguf_value){.type = GGUF_U32, .n = 1, .at = (const void *)&one, .bytes = 4};
    k->values[MODEL] = (io_gguf_value){.type = GGUF_STRING, .n = 1, .at = text, .bytes = 10};
    k->values[CHARSMAP] = (io_gguf_value){.type = GGUF_U8, .array = true, .at = text};
    k->values[SCORES] = (io_gguf_value){.type = GGUF_F32, .array = true, .at = (const void *)k->scores};
    k->values[TYPES] = (io_gguf_value){.type = GGUF_I32, .array = true, .at = (const void *)k->types};
    k->values[TOKENS] = (io_gguf_value){.type = GGUF_STRING, .array = true, .at = k->texts};
    for (int n = 0; n < KEYS; n++) {
        snprintf(k->full[n], sizeof k->full[n], "tokenizer.ggml.%s", names[n]);
        k->values[n].key = (io_gguf_text){k->full[n], strlen(k->full[n])};
    }
    k->gguf = (io_gguf){k->values, KEYS};
    put_token(k, "<pad>", 3, 0);
    put_token(k, "</s>", 3, 0);
    put_token(k, "<unk>", 2, 0);
    put_token(k, "<extra_id_7>", 1, -1);
    put_token(k, "new", 4, -1000);
    put_token(k, "newer", 4, -1000);
}

static tok_status write_keys(const keys *k, tok_written *made)
{
    strcpy(err, "");
    return tok_write_gguf(&k->gguf, "it", made, err);
}

static void free_written(tok_written *made)
{
    free(made->spiece);
    free(made->added_tokens);
    free(made->tokenizer_config);
}

/* Open what was written. */
static tokenizer *open_written(const tok_written *made)
{
    tokenizer *t;
    if (tok_open_memory(&t, made->spiece, made->spiece_size, "it", 0, err) != TOK_OK)
        fail_msg("%s", err);
    return t;
}

static void files_have_the_tokens(void **state)
{
    static keys k;
    tok_written made;
    (void)state;
    make_keys(&k);
    assert_int_equal(write_keys(&k, &made), TOK_OK);
    assert_string_equal(made.added_tokens, "{\"new\":4,\"newer\":5}");
    assert_string_equal(made.tokenizer_config, "{\"extra_ids\":0}");
    tokenizer *t = open_written(&made);
    assert_int_equal(tok_size(t), 4);
    tok_close(t);
    free_written(&made);

    /* rows that become <extra_id_0> to <extra_id_99>: placeholders, or texts of this kind */
    for (int placeholders = 0; placeholders < 3; placeholders++) {
        make_keys(&k);
        k.values[TOKENS].n = 4;
        k.size = k.values[TOKENS].bytes = 4 * 8 + 5 + 4 + 5 + 12;
        put_token(&k, "[PAD4]", 5, 0);
        for (int n = 1; n < (placeholders == 1 ? 50 : 100); n++) {
            char text[24];
            snprintf(text, sizeof text, placeholders == 2 ? "<extra_id_%d>" : "[PAD%d]", n);
            put_token(&k, text, placeholders == 2 ? 4 : 5, -1000);
        }
        assert_int_equal(write_keys(&k, &made), TOK_OK);
        assert_string_equal(made.tokenizer_config, placeholders == 1 ? "{\"extra_ids\":0}" : "{\"extra_ids\":100}");
        assert_null(made.added_tokens);
        free_written(&made);
    }
}

/* Change one value. */
static void wrong_keys_are_named(void **state)
{
    enum { NO_ARRAY, COUNT, TYPE, ABSENT };
    static const struct {
        int key, change;
        int64_t to;
        const char *words; /* NULL: it is accepted */
    } cases[] = {
        {MODEL, ABSENT, 0, "it has no tokenizer"},
        {MODEL, TYPE, GGUF_U8, "model must be \"t5\""},
        {TOKENS, ABSENT, 0, "tokens must be an array of strings"},
        {TOKENS, NO_ARRAY, 0, "tokens must be an array of strings"},
        {TOKENS, TYPE, GGUF_U8, "tokens must be an array of strings"},
        {TOKENS, COUNT, 0, "tokens must have 1 to 4,194,304"},
        {TOKENS, COUNT, 4194305, "tokens must have 1 to 4,194,304"},
        {SCORES, ABSENT, 0, "scores must be an array of as many F32"},
        {SCORES, NO_ARRAY, 0, "scores must be an array of as many F32"},
        {SCORES, TYPE, GGUF_F64, "scores must be an array of as many F32"},
        {SCORES, COUNT, 5, "scores must be an array of as many F32"},
        {TYPES, ABSENT, 0, "token_type must be an array of as many I32"},
        {TYPES, NO_ARRAY, 0, "token_type must be an array of as many I32"},
        {TYPES, TYPE, GGUF_I64, "token_type must be an array of as many I32"},
        {TYPES, COUNT, 7, "token_type must be an array of as many I32"},
        {TYPES, TYPE, GGUF_U32, NULL},
        {CHARSMAP, NO_ARRAY, 0, "precompiled_charsmap must be an array of bytes"},
        {CHARSMAP, TYPE, GGUF_F32, "precompiled_charsmap must be an array of bytes"},
        {CHARSMAP, TYPE, GGUF_I8, NULL},
        {CHARSMAP, ABSENT, 0, NULL},
        {PREFIX, ABSENT, 0, NULL},
        {SPACES, ABSENT, 0, NULL},
        {EOS, ABSENT, 0, NULL},
    };
    static keys k;
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        make_keys(&k);
        io_gguf_value *v = &k.values[cases[n].key];
        switch (cases[n].change) {
        case NO_ARRAY: v->array = false; break;
        case COUNT: v->n = (uint64_t)cases[n].to; break;
        case TYPE: v->type = (io_gguf_type)cases[n].to; break;
        default: memmove(v, v + 1, (size_t)(k.values + KEYS - 1 - v) * sizeof *v); k.gguf.n--;
        }
        tok_written made;
        const tok_status status = write_keys(&k, &made);
        if (cases[n].words == NULL ? status != TOK_OK : status == TOK_OK || strstr(err, cases[n].words) == NULL)
            fail_msg("case %zu: status %d: %s", n, (int)status, err);
        free_written(&made);
    }
    static const struct {
        const char *text;
        size_t size;
    } bad[] = {{"a\xff", 2}, {"a\0b", 3}};
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) { /* texts of added tokens become keys of JSON */
        make_keys(&k);
        put_token(&k, "xx", 4, -1000);
        k.size -= 2 + 8;
        put_text(&k, bad[n].text, bad[n].size);
        tok_written made;
        assert_int_equal(write_keys(&k, &made), TOK_DAMAGED);
        assert_non_null(strstr(err, "tokens must be UTF-8 without NUL"));
    }
    for (int64_t eos = -1; eos <= 6; eos += 7) { /* numbers of no token: spiece.model keeps its default */
        make_keys(&k);
        k.values[EOS] = (io_gguf_value){k.values[EOS].key, GGUF_I64, false, 1, (const void *)&eos, 8};
        tok_written made;
        assert_int_equal(write_keys(&k, &made), TOK_OK);
        free_written(&made);
    }
}

/* An added token has at most a megabyte. */
static void long_tokens_are_refused(void **state)
{
    enum { MOST = 1 << 20 };
    static keys k;
    static unsigned char texts[300 * 40 + MOST + 1];
    (void)state;
    for (int more = 0; more < 2; more++) {
        make_keys(&k);
        put_token(&k, "", 4, -1000);
        const uint64_t size = MOST + (uint64_t)more;
        memcpy(texts, k.texts, k.size - 8);
        memcpy(texts + k.size - 8, &size, 8);
        memset(texts + k.size, 'x', size);
        k.values[TOKENS].at = texts;
        k.values[TOKENS].bytes = k.size + size;
        tok_written made;
        const tok_status status = write_keys(&k, &made);
        assert_int_equal(status, more ? TOK_DAMAGED : TOK_OK);
        if (more)
            assert_non_null(strstr(err, "tokens must be UTF-8 without NUL"));
        else
            assert_int_equal(strlen(made.added_tokens), strlen("{\"new\":4,\"newer\":5,\"\":6}") + MOST);
        free_written(&made);
    }
}

/* Without placeholders and added tokens, all tokens are pieces of spiece.model. */
static void all_tokens_may_be_pieces(void **state)
{
    static keys k;
    tok_written made;
    (void)state;
    make_keys(&k);
    k.types[4] = k.types[5] = 1;
    assert_int_equal(write_keys(&k, &made), TOK_OK);
    assert_null(made.added_tokens);
    assert_string_equal(made.tokenizer_config, "{\"extra_ids\":0}");
    tokenizer *t = open_written(&made);
    assert_int_equal(tok_size(t), 6);
    assert_string_equal(tok_piece(t, 5, NULL), "newer");
    tok_close(t);
    free_written(&made);
}

static void every_allocation_may_fail(void **state)
{
    static keys k;
    (void)state;
    if (!STARVES)
        skip();
    make_keys(&k);
    for (int ever = 0; ever < 2; ever++) {
        long n = 0, count;
        do {
            n++;
            tok_written made;
            const long before = starve_blocks;
            starve(n, ever);
            const tok_status status = write_keys(&k, &made);
            count = starve_end();
            if (status == TOK_OK ? count >= n && ever : status != TOK_FAILED || strstr(err, "out of memory") == NULL)
                fail_msg("allocation %ld: status %d: %s", n, (int)status, err);
            free_written(&made);
            if (starve_blocks != before)
                fail_msg("allocation %ld: %ld blocks were not freed", n, starve_blocks - before);
        } while (count >= n);
        assert_true(n > 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_have_the_tokens),     cmocka_unit_test(wrong_keys_are_named),
        cmocka_unit_test(long_tokens_are_refused),   cmocka_unit_test(all_tokens_may_be_pieces),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
