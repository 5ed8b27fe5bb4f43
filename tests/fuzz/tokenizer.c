/* tokenizer.c -- reads the input as a tokenizer followed by a text; the first byte is the length of the text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[TOK_ERR_MAX];
    tokenizer *t = NULL;
    if (size < 1 || size - 1 < data[0])
        return 0;
    const size_t text = data[0], file = size - 1 - text;
    const char *at = (const char *)data + 1;
    if (left_out(data, size, 0, 3)) {
        /* another way */
    } else if (tok_open_memory(&t, at, (int64_t)file, "x", data[0] & 1 ? 100 : 0, err) == TOK_OK) {
        fuzz_valid++;
        tokens_use(t, at + file, (int64_t)text);
        tokens_use(t, "a b  c", 6);
        tok_close(t);
    } else {
        refusal_is_a_line(err, sizeof err);
    }
    const tok_file beside = {at + file, (int64_t)text, "beside"}; /* also use the text as a JSON file */
    if (left_out(data, size, 1, 3)) {
        /* another way */
    } else if (tok_open_beside(&t, at, (int64_t)file, "x", 4,
                               &(tok_beside){beside, beside, beside, data[0] % TOK_RULES}, err) == TOK_OK) {
        tokens_use(t, "a b  c", 6);
        tok_close(t);
    } else {
        refusal_is_a_line(err, sizeof err);
    }
    char *made = NULL;
    int64_t made_size = 0;
    if (!left_out(data, size, 2, 3) && tok_compact(at, (int64_t)file, NULL, &made, &made_size, err) != TOK_OK)
        refusal_is_a_line(err, sizeof err);
    free(made);
    return 0;
}
