/* source.c -- gets the arrays that relpos explain shows: from a file, from a sentence, or from the worked example.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain/explain.h"
#include "io/json.h"
#include "cli/support/sample_arrays.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Describe n words, each with one query, key and value of width D. The axis of heads has stride 0: all heads share q, k
 * and v. There are eight heads if a term treats heads differently, like ALiBi, and otherwise one. */
static void describe(explain_request *r, explain_source *s, const double *q, const double *k, const double *v,
                     int64_t n, int64_t D)
{
    rp_desc *d = &r->problem.desc;
    d->batch = 1;
    d->heads = cli_many_heads(&r->problem) ? 8 : 1;
    d->len_q = d->len_k = n;
    d->dim_k = d->dim_v = D;
    const int64_t shape[4] = {1, d->heads, n, D};
    s->t.q = rp_array_of(q, RP_F64, 4, shape);
    s->t.k = rp_array_of(k, RP_F64, 4, shape);
    s->t.v = rp_array_of(v, RP_F64, 4, shape);
    s->t.q.stride[1] = s->t.k.stride[1] = s->t.v.stride[1] = 0;
}

int explain_from_example(explain_request *r, explain_source *s)
{
    s->token = calloc(SAMPLE_WORDS, sizeof *s->token);
    if (!s->token)
        return explain_no_memory();
    for (int n = 0; n < SAMPLE_WORDS; n++)
        snprintf(s->token[n], EXPLAIN_TOKEN, "%s", sample_words[n]);
    describe(r, s, sample_vectors[0][0], sample_vectors[1][0], sample_vectors[2][0], SAMPLE_WORDS, SAMPLE_WIDTH);
    return CLI_OK;
}

/* Return `at` plus the number of words in a text. If s->memory has been allocated, also store the names and vectors of
 * the words. */
static int64_t words_of(const char *text, int64_t at, int64_t total, explain_source *s)
{
    for (;;) {
        while (isspace((unsigned char)*text))
            text++;
        if (!*text)
            return at;
        const char *end = text;
        while (*end && !isspace((unsigned char)*end))
            end++;
        if (s->memory) {
            double *q = s->memory + at * WORD_WIDTH;
            char word[EXPLAIN_TOKEN + 1];
            snprintf(word, sizeof word, "%.*s", (int)(end - text < EXPLAIN_TOKEN ? end - text : EXPLAIN_TOKEN), text);
            io_safe(s->token[at], EXPLAIN_TOKEN, word);
            sample_word(text, (size_t)(end - text), q, q + total * WORD_WIDTH, q + 2 * total * WORD_WIDTH);
        }
        at++;
        text = end;
    }
}

int explain_from_sentence(explain_request *r, explain_source *s, const char **args, int n_args)
{
    char *piped = NULL;
    size_t size = 0;
    int64_t n = 0;
    if (n_args == 1 && strcmp(args[0], "-") == 0) {
        args[0] =
            getdelim(&piped, &size, 0, stdin) < 0 ? "" : piped; /* at the end of the file getdelim stores nothing */
        if (ferror(stdin)) {
            free(piped);
            return cli_error(CLI_FAILED, "standard input: cannot be read (give the sentence as an argument)");
        }
    }
    for (int a = 0; a < n_args; a++)
        n = words_of(args[a], n, 0, s);
    int code =
        n ? CLI_OK : cli_error(CLI_USAGE, "explain: the sentence has no words (try relpos explain \"the cat sat\")");
    s->token = calloc((size_t)n + 1, sizeof *s->token);
    s->memory = malloc(((size_t)n + 1) * 3 * WORD_WIDTH * sizeof *s->memory);
    if (code == CLI_OK && (!s->token || !s->memory))
        code = explain_no_memory();
    if (code == CLI_OK) {
        int64_t at = 0;
        for (int a = 0; a < n_args; a++)
            at = words_of(args[a], at, n, s);
        s->note = "q, k and v are computed from the letters of each word: the numbers have no meaning, the arithmetic "
                  "is real.\n";
        describe(r, s, s->memory, s->memory + n * WORD_WIDTH, s->memory + 2 * n * WORD_WIDTH, n, WORD_WIDTH);
    }
    free(piped);
    return code;
}

/* Name the n tokens. Use the names in the metadata if there are exactly n, otherwise numbers. Return an exit code. */
static int file_tokens(explain_source *s, int64_t n)
{
    const char *text = io_meta(&s->in, "tokens");
    bool no_memory = false;
    json_t *list = text ? io_json(text, strlen(text), 0, NULL, &no_memory) : NULL;
    if (no_memory)
        return explain_no_memory();
    const bool fits = json_is_array(list) && (int64_t)json_array_size(list) == n;
    s->token = calloc((size_t)n + 1, sizeof *s->token);
    for (int64_t j = 0; s->token && j < n; j++) {
        const char *name = fits ? json_string_value(json_array_get(list, (size_t)j)) : NULL;
        if (name)
            io_safe(s->token[j], EXPLAIN_TOKEN, name);
        else
            snprintf(s->token[j], EXPLAIN_TOKEN, "%lld", (long long)j);
    }
    json_decref(list);
    return s->token ? CLI_OK : explain_no_memory();
}

int explain_from_file(explain_request *r, explain_source *s)
{
    rp_desc *d = &r->problem.desc;
    rp_array *const arrays[3] = {&s->t.q, &s->t.k, &s->t.v};
    char err[IO_ERR_MAX], place[PATH_MAX];
    s->show_bands = true;
    if (io_read_wanted(cli_find_shipped(r->input, place), cli_problem_wants, &r->problem, &s->in, NULL, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    for (int n = 0; n < 3; n++) {
        const char name[2] = {"qkv"[n], 0};
        const int code = cli_array(&s->in, name, RP_F64, &s->made, arrays[n]);
        if (code != CLI_OK)
            return code;
        if (arrays[n]->ndim != 4)
            return cli_error(CLI_FAILED, "%s: has %d axes (reshape it to 4: batch, heads, length, width)", name,
                             (int)arrays[n]->ndim);
        for (int x = 0; x < 4; x++)
            if (arrays[n]->shape[x] == 0)
                return cli_error(CLI_FAILED,
                                 "%s: has an axis of length 0, so there is nothing to show (use another file)", name);
    }
    d->batch = s->t.q.shape[0], d->heads = s->t.q.shape[1], d->kv_heads = s->t.k.shape[1];
    d->len_q = s->t.q.shape[2], d->len_k = s->t.k.shape[2];
    d->dim_k = s->t.q.shape[3], d->dim_v = s->t.v.shape[3];
    int code = cli_problem_arrays(&r->problem, &s->in, true, &s->t);
    if (code == CLI_OK)
        code = cli_take_offset(&r->problem, &s->t, r->batch);
    return code == CLI_OK ? file_tokens(s, d->len_k) : code;
}
