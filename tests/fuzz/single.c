/* single.c -- opens T5 weights without config.json (models/t5/single.c). The input lists tensors, one in a line:
 *
 *     NAME DTYPE [SIZE [SIZE]]
 *
 * The target makes a .safetensors file of them, all numbers 0. Changed names and shapes so reach the code that finds
 * the prefix, the names and the configuration. If the model opens, it encodes a text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"
#include <relpos/t5.h>

enum { MAX_BYTES = 1 << 22, MAX_TENSORS = 200, MAX_TEXT = 1 << 16 };

static const struct {
    const char *name;
    int64_t size;
} dtypes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1}, {"I8", 1}, {"F64", 8}};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static int64_t size_of(const char *dtype)
{
    for (int n = 0; n < DTYPES; n++)
        if (strcmp(dtypes[n].name, dtype) == 0)
            return dtypes[n].size;
    return 0;
}

/* Append the entry of a tensor to the header. Return the offset after its data; `offset` if the line has no tensor. */
static int64_t add_tensor(char *header, size_t *used, const char *line, int64_t offset)
{
    char name[128], dtype[12], shape[64] = "";
    long long axis[2] = {1, 1};
    const int n = sscanf(line, "%127[a-zA-Z0-9_.] %11s %4lld %4lld", name, dtype, &axis[0], &axis[1]);
    const int64_t size = n >= 2 ? size_of(dtype) : 0;
    if (size == 0 || axis[0] < 0 || axis[1] < 0 || offset + axis[0] * axis[1] * size > MAX_BYTES)
        return offset;
    if (n > 2)
        snprintf(shape, sizeof shape, n > 3 ? "%lld,%lld" : "%lld", axis[0], axis[1]);
    const int64_t end = offset + axis[0] * axis[1] * size;
    *used += (size_t)snprintf(header + *used, MAX_TEXT - *used,
                              "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}",
                              *used > 1 ? "," : "", name, dtype, shape, (long long)offset, (long long)end);
    return end;
}

/* Write the file of the tensors that the text lists, and return its path. */
static const char *make_file(char *text)
{
    char *file = malloc(8 + MAX_TEXT), *header = file + 8, *rest = NULL;
    size_t used = 1;
    int64_t offset = 0;
    int n = 0;
    PROMISE(file, "out of memory");
    header[0] = '{';
    for (char *line = strtok_r(text, "\n", &rest); line && n < MAX_TENSORS; line = strtok_r(NULL, "\n", &rest), n++)
        offset = add_tensor(header, &used, line, offset);
    header[used++] = '}';
    const uint64_t length = used;
    memcpy(file, &length, 8);
    const char *path = file_of((const uint8_t *)file, 8 + used, 8 + used + (size_t)offset);
    free(file);
    return path;
}

/* Encode a text. */
static void use(rp_t5 *m)
{
    const rp_t5_info *about = rp_t5_about(m);
    int32_t *tokens = NULL;
    int64_t n = 0;
    fuzz_valid++;
    PROMISE(about->d_model > 0 && about->vocab > 0 && about->layers > 0, "a model with invalid information");
    if (rp_t5_tokenize(m, "a b  c", -1, &tokens, &n) == RP_OK) {
        float *out = calloc((size_t)(n * about->d_model), sizeof *out);
        PROMISE(out, "out of memory");
        const rp_t5_tokens source = {tokens, n};
        if (rp_t5_encode(m, 1, &source, out, NULL, NULL) != RP_OK)
            refusal_is_a_line(rp_t5_last_error(), 1024);
        free(out);
    } else {
        refusal_is_a_line(rp_t5_last_error(), 1024);
    }
    rp_t5_free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size);
    const char *path = make_file(text);
    for (int own = 0; own < 2; own++) {
        if (left_out(data, size, (unsigned)own, 2))
            continue;
        rp_t5_opening o = rp_t5_opening_init();
        rp_t5 *m;
        o.tokenizer = own ? NULL : "tests/t5/data/proteins/prott5";
        if (rp_t5_open(&m, path, &o) == RP_OK)
            use(m);
        else
            refusal_is_a_line(rp_t5_last_error(), 1024);
        rp_t5_close(m);
    }
    free(text);
    return 0;
}
