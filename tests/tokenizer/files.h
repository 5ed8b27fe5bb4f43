/* files.h -- helpers of the tokenizer tests, which load or open the tokenizers in tests/tokenizer/data.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_TOKENIZER_FILES_H
#define RELPOS_TESTS_TOKENIZER_FILES_H

#include "tests/helpers.h"
#include "tokenizer/tokenizer.h"

#define DATA "tests/tokenizer/data/"

static char err[TOK_ERR_MAX];

typedef struct file {
    char *bytes;
    int64_t size;
} file;

/* Return the bytes of a file, followed by NUL. */
HELPER file load(const char *path)
{
    file f = {0};
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    f.size = ftell(stream);
    rewind(stream);
    f.bytes = malloc((size_t)f.size + 1);
    assert_non_null(f.bytes);
    assert_int_equal(fread(f.bytes, 1, (size_t)f.size, stream), f.size);
    f.bytes[f.size] = 0;
    fclose(stream);
    return f;
}

/* Replace a tokenizer.json by the output of tok_compact, followed by NUL. beside: as for tok_compact. */
HELPER void make_compact(file *f, const tok_beside *beside)
{
    file made;
    if (tok_compact(f->bytes, f->size, beside, &made.bytes, &made.size, err) != TOK_OK)
        fail_msg("%s", err);
    assert_true(made.size > 0);
    free(f->bytes);
    f->bytes = malloc((size_t)made.size + 1);
    assert_non_null(f->bytes);
    memcpy(f->bytes, made.bytes, (size_t)made.size);
    f->bytes[f->size = made.size] = 0;
    free(made.bytes);
}

HELPER tokenizer *opened(const char *name)
{
    char path[200];
    tokenizer *t = NULL;
    snprintf(path, sizeof(path), DATA "%s", name);
    const tok_status status =
        strcmp(name, "bytes") == 0 ? tok_open_bytes(&t, 125, NULL, err) : tok_open(&t, path, 0, err);
    if (status != TOK_OK)
        fail_msg("%s", err);
    return t;
}

/* Check that an error is one printable line. */
HELPER void assert_one_line(const char *line)
{
    assert_true(strlen(line) > 10 && strlen(line) < TOK_ERR_MAX);
    for (const char *p = line; *p; p++)
        assert_true((unsigned char)*p >= ' ' && *p != 0x7f);
}

#endif
