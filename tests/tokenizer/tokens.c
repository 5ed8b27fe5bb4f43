/* tokens.c -- prints the tokens of texts read from standard input, for scripts that compare them with other tokenizers.
 *
 *     tokens PATH EXTRA_IDS encode|decode|time [SPECIAL]
 *
 * PATH is a file, a directory or "bytes". A text is written as a u32 with its size, then its bytes; a list of tokens as
 * a u32 with their number, then an i32 per token. `decode` reads lists of tokens and writes texts. `time` encodes each
 * text and writes the seconds that this took.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/tokenizer.h"

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
    char *text;
    const tok_status status = tok_decode(t, data, n, flag, &text, &made_n, err);
    if (status == TOK_OK)
        put(text, (uint32_t)made_n, 1);
    free(text);
    return status;
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
        return fail("PATH EXTRA_IDS encode|decode|time [1]");
    char err[TOK_ERR_MAX];
    tokenizer *t;
    const int32_t extra = atoi(argv[2]);
    const double start = now();
    if ((strcmp(argv[1], "bytes") == 0 ? tok_open_bytes(&t, extra, NULL, err) : tok_open(&t, argv[1], extra, err)) !=
        TOK_OK)
        return fail(err);
    const double opened = now() - start;
    const bool flag = argc > 4 && argv[4][0] == '1', numbers = argv[3][0] == 'd';
    double seconds = 0;
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
