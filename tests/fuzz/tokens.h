/* tokens.h -- what a tokenizer must keep. Tokens of the text must be within the vocabulary and must decode. The size of
 * the normalized text must be bounded by the size of the text, and spans of tokens must be in it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_FUZZ_TOKENS_H
#define RELPOS_TESTS_FUZZ_TOKENS_H
#include "tests/fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"

/* Return the max number of bytes that a tokenizer's rules may produce from a text or piece (tokenizer/text.h). */
FUZZED int64_t tokens_grown(int64_t size)
{
    return 64 * size + 1024;
}

FUZZED void tokens_use(const tokenizer *t, const char *text, int64_t size)
{
    char err[TOK_ERR_MAX], *back = NULL;
    int32_t *ids = NULL;
    int64_t n = 0, n_back = 0, pieces = 0, piece;
    if (tok_encode(t, text, size, true, &ids, &n, err) != TOK_OK) {
        refusal_is_a_line(err, sizeof err);
        return;
    }
    PROMISE(n <= 4 * tokens_grown(3 * size) + 32, "%lld tokens of %lld bytes", (long long)n, (long long)size);
    for (int64_t x = 0; x < n; x++) {
        PROMISE(ids[x] >= 0 && ids[x] < tok_size(t), "token %d of %d", ids[x], tok_size(t));
        tok_piece(t, ids[x], &piece);
        pieces += tokens_grown(tokens_grown(piece));
    }
    if (tok_decode(t, ids, n, false, &back, &n_back, err) == TOK_OK)
        PROMISE(back[n_back] == 0 && n_back <= pieces, "%lld bytes of text, or no terminating NUL", (long long)n_back);
    else
        refusal_is_a_line(err, sizeof err);
    free(ids);
    free(back);
    const tok_string half = {text, size / 2}, rest = {text + size / 2, size - size / 2};
    tok_encoding e;
    const int64_t most = size % 3 == 0 ? 0 : 5 + size % 30;
    if (tok_encode_pair(t, half, &rest, most, &e, err) != TOK_OK)
        refusal_is_a_line(err, sizeof err);
    PROMISE(most == 0 || e.n <= most, "%lld tokens; the limit is %lld", (long long)e.n, (long long)most);
    for (int64_t x = 0; x < e.n && e.spans != NULL; x++) {
        const int64_t end = e.texts[x] == 0 ? half.size : e.texts[x] == 1 ? rest.size : 0;
        PROMISE(e.ids[x] >= 0 && e.ids[x] < tok_size(t) && e.spans[x].begin >= 0 &&
                    e.spans[x].begin <= e.spans[x].end && e.spans[x].end <= end,
                "token %d at %lld to %lld of %lld", e.ids[x], (long long)e.spans[x].begin, (long long)e.spans[x].end,
                (long long)end);
    }
    tok_encoding_free(&e);
}

#endif
