/* tokens.c -- prints the tokens of texts read from standard input, for scripts that compare them with other tokenizers.
 *
 *     tokens PATH EXTRA_IDS encode|decode|normalize|time [SPECIAL]
 *     tokens PATH EXTRA_IDS pairs [MAX_TOKENS]
 *
 * PATH is a file, a directory or "bytes"; or "bert:" or "mpnet:" and the path of a tokenizer.json or vocab.txt, which
 * is then read with the rules of that class and the files beside it.
 *
 * A text is written as a u32 with its size, then its bytes; a list of tokens as a u32 with their number, then an i32
 * for each. `decode` reads lists of tokens and writes texts. `normalize` applies the normalizer of a tokenizer.json.
 * `time` encodes each text and writes the seconds that this took.
 *
 * `pairs` reads pairs of texts; the size 0xffffffff stands for no second text. It writes a u32 with the number of
 * tokens, and then an i32 each of the tokens, their types, texts, and begins and ends of spans; without spans, these
 * are -1.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int fail(const char *err)
{
    fprintf(stderr, "tokens: %s\n", err);
    return 1;
}

static void put(const void *data, uint32_t n, size_t element)
{
    fwrite(&n, sizeof(n), 1, stdout);
    fwrite(data, element, n, stdout);
}

static tok_status one(const tokenizer *t, const char *mode, bool flag, const void *data, uint32_t n, char *err)
{
    int64_t made_n = 0;
    if (mode[0] == 'e' || mode[0] == 't') {
        int32_t *ids;
        const tok_status status = tok_encode(t, data, n, flag, &ids, &made_n, err);
        if (status == TOK_OK && mode[0] == 'e')
            put(ids, (uint32_t)made_n, sizeof(*ids));
        free(ids);
        return status;
    }
    if (mode[0] == 'n') {
        tok_work w = {.t = t};
        int64_t front = 1;
        tok_normalize_json(&w, data, n, 0, &front);
        put(w.normalized.bytes, (uint32_t)w.normalized.size, 1);
        const tok_status status = tok_work_status(&w, n, err);
        tok_work_free(&w);
        return status;
    }
    char *text;
    const tok_status status = tok_decode(t, data, n, flag, &text, &made_n, err);
    if (status == TOK_OK)
        put(text, (uint32_t)made_n, 1);
    free(text);
    return status;
}

/* Read a text. Return false at the end of the input. */
static bool read_text(tok_string *to, char **bytes)
{
    uint32_t n;
    *bytes = NULL;
    if (fread(&n, sizeof(n), 1, stdin) != 1)
        return false;
    *to = (tok_string){NULL, n};
    *bytes = n != UINT32_MAX ? malloc((size_t)n + 1) : NULL;
    to->text = *bytes;
    return n == UINT32_MAX || (*bytes != NULL && fread(*bytes, 1, n, stdin) == n);
}

static int pairs(const tokenizer *t, int64_t max_tokens, char *err)
{
    tok_string a, b;
    char *first, *second;
    tok_status status = TOK_OK;
    while (status == TOK_OK && read_text(&a, &first) && read_text(&b, &second)) {
        tok_encoding e;
        status = tok_encode_pair(t, a, second != NULL ? &b : NULL, max_tokens, &e, err);
        put(e.ids, (uint32_t)e.n, sizeof(*e.ids));
        fwrite(e.types, sizeof(*e.types), (size_t)e.n, stdout);
        fwrite(e.texts, sizeof(*e.texts), (size_t)e.n, stdout);
        for (int end = 0; end < 2; end++)
            for (int64_t k = 0; k < e.n; k++) {
                const int32_t place = e.spans == NULL ? -1 : (int32_t)(end ? e.spans[k].end : e.spans[k].begin);
                fwrite(&place, sizeof(place), 1, stdout);
            }
        tok_encoding_free(&e);
        free(first);
        free(second);
    }
    return status == TOK_OK ? 0 : fail(err);
}

/* Return the contents of the file that is beside `path`; name = NULL: that of `path`. Text is NULL if there is none. */
static tok_file load(const char *path, const char *name)
{
    static const int64_t most = 64 << 20;
    const char *slash = strrchr(path, '/');
    char *whole;
    if (asprintf(&whole, "%.*s%s", name != NULL ? (int)(slash - path + 1) : (int)strlen(path), path,
                 name != NULL ? name : "") < 0)
        exit(fail("out of memory"));
    FILE *f = fopen(whole, "rb");
    char *text = f != NULL ? malloc((size_t)most) : NULL;
    const int64_t size = text != NULL ? (int64_t)fread(text, 1, (size_t)most, f) : 0;
    if (f != NULL)
        fclose(f);
    return (tok_file){text, size, whole};
}

/* Open a tokenizer with the rules of a class. */
static tok_status open_class(tokenizer **t, tok_rules rules, const char *path, char *err)
{
    const tok_file file = load(path, NULL);
    const tok_beside beside = {load(path, "added_tokens.json"), load(path, "tokenizer_config.json"),
                               load(path, "special_tokens_map.json"), rules};
    return tok_open_beside(t, file.text, file.size, path, 0, &beside, err);
}

static tok_status open_path(tokenizer **t, const char *path, int32_t extra, char *err)
{
    if (strncmp(path, "bert:", 5) == 0)
        return open_class(t, TOK_RULES_BERT, path + 5, err);
    if (strncmp(path, "mpnet:", 6) == 0)
        return open_class(t, TOK_RULES_MPNET, path + 6, err);
    return strcmp(path, "bytes") == 0 ? tok_open_bytes(t, extra, NULL, err) : tok_open(t, path, extra, err);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return fail("PATH EXTRA_IDS encode|decode|normalize|time [1]");
    char err[TOK_ERR_MAX];
    tokenizer *t;
    const int32_t extra = atoi(argv[2]);
    const double start = now();
    if (open_path(&t, argv[1], extra, err) != TOK_OK)
        return fail(err);
    const double opened = now() - start;
    const bool flag = argc > 4 && argv[4][0] == '1', numbers = argv[3][0] == 'd';
    double seconds = 0;
    if (argv[3][0] == 'p') {
        const int result = pairs(t, argc > 4 ? atoll(argv[4]) : 0, err);
        tok_close(t);
        return result;
    }
    for (uint32_t n; fread(&n, sizeof(n), 1, stdin) == 1;) {
        const size_t size = (size_t)n * (numbers ? 4 : 1);
        char *data = malloc(size + 1);
        if (data == NULL || fread(data, 1, size, stdin) != size)
            return fail("the input is cut off");
        const double before = now();
        const tok_status status = one(t, argv[3], flag, data, n, err);
        seconds += now() - before;
        free(data);
        if (status != TOK_OK)
            return fail(err);
    }
    tok_close(t);
    if (argv[3][0] == 't')
        printf("%.6f %.6f\n", seconds, opened);
    return fflush(stdout) != 0;
}
