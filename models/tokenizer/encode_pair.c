/* encode_pair.c -- encodes a text or a pair of texts with the special tokens around them, token types and spans.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

#include <stdlib.h>

static bool make(tok_encoding *out, int64_t n, bool spans)
{
    const size_t space = (size_t)n + 1;
    out->ids = malloc(space * sizeof(*out->ids));
    out->types = malloc(space * sizeof(*out->types));
    out->texts = malloc(space * sizeof(*out->texts));
    out->spans = spans ? malloc(space * sizeof(*out->spans)) : NULL;
    return out->ids != NULL && out->types != NULL && out->texts != NULL && (out->spans != NULL || !spans);
}

static void add(tok_encoding *out, int32_t id, int32_t type, int32_t text, tok_span span)
{
    out->ids[out->n] = id;
    out->types[out->n] = type;
    out->texts[out->n] = text;
    if (out->spans != NULL)
        out->spans[out->n] = span;
    out->n++;
}

/* Reduce the numbers of tokens of two texts to `most` in all, by the strategy longest_first. */
static void truncate(int64_t n[2], int64_t most)
{
    if (n[0] + n[1] <= most)
        return;
    const int shorter = n[0] > n[1];
    int64_t low = n[shorter], high = low > most - low ? low : most - low;
    if (low + high > most) {
        low = most / 2;
        high = low + most % 2;
    }
    n[shorter] = low;
    n[!shorter] = high;
}

/* Write the tokens of the texts into the template. */
static tok_status put_together(tok_work w[2], const tok_template *template, const int64_t n[2], int64_t special,
                               tok_encoding *out, char err[TOK_ERR_MAX])
{
    const int64_t total = n[0] + n[1] + special;
    if (!make(out, total, w->mapped))
        return tok_fail(err, TOK_FAILED, "out of memory for %lld tokens (encode the text in parts)", (long long)total);
    for (int k = 0; k < template->n; k++) {
        const int32_t id = template->items[k].id, type = template->items[k].type;
        const int text = id == TOK_SECOND_TEXT;
        if (id >= 0)
            add(out, id, type, -1, (tok_span){0, 0});
        for (int64_t x = 0; id < 0 && x < n[text]; x++)
            add(out, w[text].ids.ids[x], type, text, w->mapped ? w[text].spans.spans[x] : (tok_span){0, 0});
    }
    return TOK_OK;
}

static tok_status encode_texts(tok_work w[2], const tokenizer *t, tok_string a, const tok_string *b, int64_t max_tokens,
                               tok_encoding *out, char err[TOK_ERR_MAX])
{
    const tok_template *template = b != NULL ? &t->pair : &t->single;
    const tok_string texts[2] = {a, b != NULL ? *b : (tok_string){NULL, 0}};
    int64_t special = 0, n[2] = {0, 0};
    for (int k = 0; k < template->n; k++)
        special += template->items[k].id >= 0;
    if (max_tokens < 0 || (max_tokens > 0 && max_tokens < special))
        return tok_fail(
            err, TOK_ARGUMENT,
            "max_tokens is %lld; it must be 0, for no limit, or at least %lld, the number of special tokens",
            (long long)max_tokens, (long long)special);
    for (int k = 0; k < (b != NULL ? 2 : 1); k++) {
        const int64_t size = texts[k].size;
        if (size < 0 || size > TOK_MAX_TEXT)
            return tok_fail(err, TOK_ARGUMENT, "the text has %lld bytes; it must have 0 to %lld (encode it in parts)",
                            (long long)size, (long long)TOK_MAX_TEXT);
        tok_work_encode(&w[k], texts[k].text, size);
        const tok_status status = tok_work_status(&w[k], size, err);
        if (status != TOK_OK)
            return status;
        n[k] = w[k].ids.n;
    }
    if (max_tokens > 0)
        truncate(n, max_tokens - special);
    return put_together(w, template, n, special, out, err);
}

tok_status tok_encode_pair(const tokenizer *t, tok_string a, const tok_string *b, int64_t max_tokens, tok_encoding *out,
                           char err[TOK_ERR_MAX])
{
    const bool mapped = t->kind == TOK_JSON;
    tok_work w[2] = {{.t = t, .mapped = mapped}, {.t = t, .mapped = mapped}};
    *out = (tok_encoding){0};
    const tok_status status = encode_texts(w, t, a, b, max_tokens, out, err);
    for (int k = 0; k < 2; k++) {
        tok_work_free(&w[k]);
        free(w[k].ids.ids);
        free(w[k].spans.spans);
    }
    if (status != TOK_OK)
        tok_encoding_free(out);
    return status;
}

void tok_encoding_free(tok_encoding *encoding)
{
    free(encoding->ids);
    free(encoding->types);
    free(encoding->texts);
    free(encoding->spans);
    *encoding = (tok_encoding){0};
}
