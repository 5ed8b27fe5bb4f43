/* spiece.c -- reads the input as a spiece.model, and uses it for short texts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "a b  c\n<pad> the caf\xc3\xa9 \xe2\x84\xab 12";
    char err[TOK_ERR_MAX];
    tokenizer *t;
    const tok_beside none = {.rules = (tok_rules)(size % TOK_RULES)};
    const bool beside = size % 2;
    if ((beside ? tok_open_beside(&t, data, (int64_t)size, "x", 4, &none, err)
                : tok_open_memory(&t, data, (int64_t)size, "x", 0, err)) == TOK_OK) {
        fuzz_valid++;
        tokens_use(t, text, sizeof text - 1);
        tok_close(t);
    } else {
        refusal_is_a_line(err, sizeof err);
    }
    return 0;
}
