/* read_compact.c -- reads the compact form of a tokenizer.json.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/compact.h"

#include <string.h>

bool tok_is_compact(const char *data, int64_t size)
{
    return size >= TOK_COMPACT_MAGIC_BYTES && memcmp(data, TOK_COMPACT_MAGIC, TOK_COMPACT_MAGIC_BYTES) == 0;
}

tok_status tok_read_compact(tokenizer *t, const char *data, int64_t size, const char *name, const tok_beside *beside,
                            char err[TOK_ERR_MAX])
{
    int64_t head[3] = {-1, -1, -1}, sum = 0;
    const int64_t left = size - TOK_COMPACT_HEAD;
    if (left >= 0)
        memcpy(head, data + TOK_COMPACT_MAGIC_BYTES, sizeof(head));
    bool good = head[0] >= 0 && head[0] <= TOK_MAX_TOKENS && head[1] >= 0 && head[1] <= left && head[2] >= 0 &&
                head[2] <= left && 12 * head[0] + head[1] + head[2] == left;
    const char *scores = data + TOK_COMPACT_HEAD, *sizes = scores + 8 * (good ? head[0] : 0);
    for (int64_t k = 0; good && k < head[0]; k++) {
        int32_t n;
        memcpy(&n, sizes + 4 * k, sizeof(n));
        good = n >= 0 && n <= TOK_MAX_PIECE;
        sum += n;
    }
    if (!good || sum != head[1])
        return tok_fail(err, TOK_DAMAGED,
                        "%s: the sizes of the packed tokenizer contradict each other (pack the model again)", name);
    const char *pieces = sizes + 4 * head[0];
    const tok_vocab vocab = {(int32_t)head[0], scores, sizes, pieces};
    return tok_read_json_with(t, pieces + head[1], head[2], &vocab, name, beside, err);
}
