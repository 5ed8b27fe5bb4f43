/* tokenizer.c -- reads the input as a tokenizer followed by a text; the first byte is the length of the text. Tokens of
 * the text must be within the vocabulary and must decode. The size of the normalized text must be bounded by the size
 * of the text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

/* Return the max number of bytes that a tokenizer's rules may produce from a text or piece (tokenizer/text.h). */
static int64_t grown(int64_t size)
{
    return 64 * size + 1024;
}

static void use(const tokenizer *t, const char *text, int64_t size)
{
    char err[TOK_ERR_MAX], *back = NULL;
    int32_t *ids = NULL;
    int64_t n = 0, n_back = 0, pieces = 0, piece;
    if (tok_encode(t, text, size, true, &ids, &n, err) != TOK_OK) {
        refusal_is_a_line(err, sizeof err);
        return;
    }
    PROMISE(n <= 4 * grown(3 * size) + 32, "%lld tokens of %lld bytes", (long long)n, (long long)size);
    for (int64_t x = 0; x < n; x++) {
        PROMISE(ids[x] >= 0 && ids[x] < tok_size(t), "token %d of %d", ids[x], tok_size(t));
        tok_piece(t, ids[x], &piece);
        pieces += grown(grown(piece));
    }
    if (tok_decode(t, ids, n, false, &back, &n_back, err) == TOK_OK)
        PROMISE(back[n_back] == 0 && n_back <= pieces, "%lld bytes of text, or no terminating NUL", (long long)n_back);
    else
        refusal_is_a_line(err, sizeof err);
    free(ids);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[TOK_ERR_MAX];
    tokenizer *t = NULL;
    if (size < 1 || size - 1 < data[0])
        return 0;
    const size_t text = data[0], file = size - 1 - text;
    const char *at = (const char *)data + 1;
    if (tok_open_memory(&t, at, (int64_t)file, "x", data[0] & 1 ? 100 : 0, err) == TOK_OK) {
        fuzz_valid++;
        use(t, at + file, (int64_t)text);
        use(t, "a b  c", 6);
        tok_close(t);
    } else {
        refusal_is_a_line(err, sizeof err);
    }
    const tok_file beside = {at + file, (int64_t)text, "beside"}; /* also use the text as a JSON file */
    if (tok_open_beside(&t, at, (int64_t)file, "x", 4, &(tok_beside){beside, beside, beside, data[0] & 2}, err) ==
        TOK_OK) {
        use(t, "a b  c", 6);
        tok_close(t);
    } else {
        refusal_is_a_line(err, sizeof err);
    }
    char *made = NULL;
    int64_t made_size = 0;
    if (tok_compact(at, (int64_t)file, NULL, &made, &made_size, err) != TOK_OK)
        refusal_is_a_line(err, sizeof err);
    free(made);
    return 0;
}
