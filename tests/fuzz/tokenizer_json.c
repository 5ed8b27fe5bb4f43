/* tokenizer_json.c -- reads the input as a tokenizer.json and as the compact form that is made of it, and uses both
 * for short texts. They must give the same tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/tokens.h"

static const char text[] = "a b  c\n<pad> the caf\xc3\xa9 \xe2\x84\xab 12";

static void compare(const tokenizer *a, const tokenizer *b)
{
    char err[TOK_ERR_MAX];
    int32_t *x = NULL, *y = NULL;
    int64_t n = 0, m = 0;
    const tok_status one = tok_encode(a, text, sizeof text - 1, true, &x, &n, err);
    PROMISE(tok_encode(b, text, sizeof text - 1, true, &y, &m, err) == one && n == m &&
                (one != TOK_OK || memcmp(x, y, (size_t)n * sizeof *x) == 0),
            "the compact form gives other tokens");
    free(x);
    free(y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[TOK_ERR_MAX], *made = NULL;
    int64_t made_size = 0;
    tokenizer *t, *again;
    if (tok_open_memory(&t, data, (int64_t)size, "x", 0, err) != TOK_OK) {
        refusal_is_a_line(err, sizeof err);
        return 0;
    }
    fuzz_valid++;
    tokens_use(t, text, sizeof text - 1);
    if (!left_out(data, size, 0, 4) &&
        tok_compact((const char *)data, (int64_t)size, NULL, &made, &made_size, err) == TOK_OK && made != NULL) {
        PROMISE(tok_open_memory(&again, made, made_size, "x", 0, err) == TOK_OK, "compact, but refused: %s", err);
        compare(t, again);
        tok_close(again);
    }
    free(made);
    tok_close(t);
    return 0;
}
