/* models.h -- helpers of the T5 tests: the tiny checkpoints in tests/t5/data, and the results of transformers for them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_MODELS_H
#define RELPOS_TESTS_MODELS_H

#include "tests/helpers.h"

#include "io/io.h"
#include <relpos/t5.h>

#define DATA "tests/t5/data"
enum { SOURCES = 4, MAX_TOKENS = 64, STEPS = 10 };

HELPER const char *const model_names[] = {"t5",     "v11",     "mt5", "umt5", "byt5", "longt5_local", "longt5_global",
                                          "switch", "encoder", "f16", "silu"};
enum { N_MODELS = sizeof model_names / sizeof *model_names };

HELPER void fine(rp_status status)
{
    if (status != RP_OK)
        fail_msg("%s: %s", rp_status_name(status), rp_t5_last_error());
}

HELPER rp_t5 *open_model(const char *name, const char *type, rp_pool *pool)
{
    char path[300];
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    o.type = type;
    o.pool = pool;
    snprintf(path, sizeof path, DATA "/%s", name);
    fine(rp_t5_open(&m, path, &o));
    return m;
}

/* Results of transformers. */
typedef struct expected {
    io_set set;
    int32_t tokens[SOURCES][MAX_TOKENS];
    rp_t5_tokens source[SOURCES];
    int64_t rows; /* total length of all sources */
} expected;

HELPER const io_array *array_of(const expected *e, const char *name)
{
    return io_find(&e->set, name);
}

/* Read row n of an array of tokens; rows are padded with -1. */
HELPER int64_t read_row(const io_array *a, int64_t n, int32_t *tokens)
{
    const int64_t width = a->shape[a->ndim - 1];
    const int32_t *row = (const int32_t *)a->data + n * width;
    int64_t size = 0;
    while (size < width && row[size] >= 0) {
        tokens[size] = row[size];
        size++;
    }
    return size;
}

HELPER void read_expected(expected *e, const char *name)
{
    char path[300], text[IO_ERR_MAX];
    snprintf(path, sizeof path, DATA "/%s/expected.safetensors", name);
    e->rows = 0;
    if (io_read(path, &e->set, NULL, text) != IO_OK)
        fail_msg("%s", text);
    for (int64_t s = 0; s < SOURCES; s++) {
        e->source[s] = (rp_t5_tokens){e->tokens[s], read_row(array_of(e, "sources"), s, e->tokens[s])};
        e->rows += e->source[s].n;
    }
}

HELPER void free_expected(expected *e)
{
    io_free(&e->set);
}

HELPER float *encode_all(const rp_t5 *m, int64_t n, const rp_t5_tokens *sources)
{
    int64_t rows = 0;
    for (int64_t s = 0; s < n; s++)
        rows += sources[s].n;
    float *out = malloc((size_t)(rows * rp_t5_about(m)->d_model + 1) * sizeof *out);
    assert_non_null(out);
    fine(rp_t5_encode(m, n, sources, out, NULL, NULL));
    return out;
}

HELPER bool decodes(const rp_t5 *m)
{
    return rp_t5_about(m)->decoder_layers > 0;
}

/* Return the usual settings of these tests: greedy decoding of STEPS tokens. */
HELPER rp_t5_generation settings_of(const rp_t5 *m)
{
    rp_t5_generation g = rp_t5_generation_of(m);
    g.max_new_tokens = STEPS;
    return g;
}

/* Forbid some tokens everywhere, some at the start, and some sequences. */
HELPER void forbid_many(rp_t5_generation *g)
{
    static const int32_t tokens[] = {3, 5, 8, 13, 21, 34, 55, 2, 4, 7, 11, 18, 29, 47};
    static const rp_t5_tokens words[] = {{tokens + 7, 1}, {tokens + 8, 1}, {tokens + 9, 2}, {tokens + 11, 3}};
    g->suppress = (rp_t5_tokens){tokens, 7};
    g->begin_suppress = (rp_t5_tokens){tokens + 10, 4};
    g->bad_words = words;
    g->n_bad_words = 4;
}

HELPER bool same_tokens(const rp_t5_sequence *a, const int32_t *tokens, int64_t n)
{
    return a->n == n && memcmp(a->tokens, tokens, (size_t)n * sizeof *tokens) == 0;
}

#endif
