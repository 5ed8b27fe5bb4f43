/* explain_source.c -- where the numbers of relpos explain come from: a file, a sentence, or the worked example.
 * SPDX-License-Identifier: Apache-2.0 */
#include "explain.h"
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 8 }; /* channels of a made-up word */

/* One query, key and value width D for each of n words. A head axis of stride 0: every head sees the same numbers, so that
 * a term with numbers of its own for each head, such as ALiBi, shows eight of them. */
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

/* The five words of the course chapter on relative position bias. */
int explain_from_example(explain_request *r, explain_source *s)
{
    static const double q[5][4] = {{1, 0, 1, 0}, {0, 2, 0, 1}, {1, 1, 1, 0}, {0, 0, 1, 1}, {1, 0, 0, 1}};
    static const double k[5][4] = {{0, 1, 0, 1}, {1, 0, 1, 0}, {1, 1, 0, 0}, {0, 0, 1, 1}, {1, 0, 0.5, 0.5}};
    static const double v[5][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {0.5, 0.5, 0.5, 0.5}};
    static const char *const words[5] = {"The", "cat", "sat", "on", "mat"};
    s->token = calloc(5, sizeof *s->token);
    if (!s->token)
        return explain_no_memory();
    for (int n = 0; n < 5; n++)
        snprintf(s->token[n], EXPLAIN_TOKEN, "%s", words[n]);
    describe(r, s, q[0], k[0], v[0], 5, 4);
    return CLI_OK;
}

/* A number in (-1, 1) that depends on seed and place alone. splitmix64: Steele, Lea, Flood 2014. */
static double random_at(uint64_t seed, uint64_t place)
{
    uint64_t z = seed + (place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ldexp((double)((z ^ z >> 31) >> 12) + 0.5, -51) - 1.0;
}

/* A word of `length` bytes: its letters give WIDTH numbers (FNV-1a seeds them), and three fixed matrices turn those into
 * its q, k and v. */
static void embed(const char *word, size_t length, double *q, double *k, double *v)
{
    uint64_t hash = 0xcbf29ce484222325u;
    double *const to[3] = {q, k, v};
    for (size_t c = 0; c < length; c++)
        hash = (hash ^ (unsigned char)word[c]) * 0x100000001b3u;
    for (uint64_t m = 0; m < 3; m++)
        for (uint64_t row = 0; row < WIDTH; row++) {
            to[m][row] = 0;
            for (uint64_t c = 0; c < WIDTH; c++)
                to[m][row] += random_at(m + 1, row * WIDTH + c) * random_at(hash, c);
        }
}

/* The words of a text; with s->token and s->memory there, their names and numbers too. */
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
            double *q = s->memory + at * WIDTH;
            char word[EXPLAIN_TOKEN + 1];
            snprintf(word, sizeof word, "%.*s", (int)(end - text < EXPLAIN_TOKEN ? end - text : EXPLAIN_TOKEN), text);
            io_safe(s->token[at], EXPLAIN_TOKEN, word);
            embed(text, (size_t)(end - text), q, q + total * WIDTH, q + 2 * total * WIDTH);
        }
        at++;
        text = end;
    }
}

int explain_from_sentence(explain_request *r, explain_source *s, const char **args, int n_args)
{
    char *piped = NULL;
    size_t room = 0;
    int64_t n = 0;
    if (n_args == 1 && strcmp(args[0], "-") == 0) {
        args[0] = getdelim(&piped, &room, 0, stdin) < 0 ? "" : piped; /* at the end of file nothing has been written */
        if (ferror(stdin)) {
            free(piped);
            return cli_error(CLI_FAILED, "standard input: cannot be read (give the sentence as an argument)");
        }
    }
    for (int a = 0; a < n_args; a++)
        n = words_of(args[a], n, 0, s);
    int code = n ? CLI_OK : cli_error(CLI_USAGE, "explain: the sentence has no words (relpos explain \"the cat sat\")");
    s->token = calloc((size_t)n + 1, sizeof *s->token);
    s->memory = malloc(((size_t)n + 1) * 3 * WIDTH * sizeof *s->memory);
    if (code == CLI_OK && (!s->token || !s->memory))
        code = explain_no_memory();
    if (code == CLI_OK) {
        int64_t at = 0;
        for (int a = 0; a < n_args; a++)
            at = words_of(args[a], at, n, s);
        s->note =
            "q, k and v are made from the letters of each word; they carry no meaning, only the arithmetic is real.\n";
        describe(r, s, s->memory, s->memory + n * WIDTH, s->memory + 2 * n * WIDTH, n, WIDTH);
    }
    free(piped);
    return code;
}

/* Names from the metadata where they fit, else numbers. */
static int file_tokens(explain_source *s, int64_t n)
{
    const char *text = io_meta(&s->in, "tokens");
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
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
    char err[IO_ERR_MAX];
    if (io_read(r->input, &s->in, NULL, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    for (int n = 0; n < 3; n++) {
        const char name[2] = {"qkv"[n], 0};
        const int code = cli_array(&s->in, name, RP_F64, &s->made, arrays[n]);
        if (code != CLI_OK)
            return code;
        if (arrays[n]->ndim != 4)
            return cli_error(CLI_FAILED, "%s: %d axes (4 are needed: batch, heads, length, width)", name,
                             (int)arrays[n]->ndim);
        for (int x = 0; x < 4; x++)
            if (arrays[n]->shape[x] == 0)
                return cli_error(CLI_FAILED, "%s: an axis of length 0 (there is nothing to explain)", name);
    }
    d->batch = s->t.q.shape[0], d->heads = s->t.q.shape[1], d->kv_heads = s->t.k.shape[1];
    d->len_q = s->t.q.shape[2], d->len_k = s->t.k.shape[2];
    d->dim_k = s->t.q.shape[3], d->dim_v = s->t.v.shape[3];
    int code = cli_problem_arrays(&r->problem, &s->in, true, &s->t);
    if (code == CLI_OK)
        code = cli_take_offset(&r->problem, &s->t, r->batch);
    return code == CLI_OK ? file_tokens(s, d->len_k) : code;
}
