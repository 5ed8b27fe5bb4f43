/* gguf.c -- reads the input as a .gguf file: its keys, the numbers of its tensors, its tokenizer, and as a T5 model.
 * Few changed files have the offsets that the reader demands, so most inputs are read with offsets and size mended.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/block_types.h"
#include "io/checkpoint.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/tokenizer.h"
#include <relpos/t5.h>

enum { MAX_MENDED = 1 << 16, ALIGNMENT = 32 };

/* ------------------------------------------------------------------------------------------------ mending */

typedef struct cursor {
    uint8_t *at, *end;
    bool cut;
} cursor;

static uint64_t take(cursor *c, size_t n)
{
    uint64_t x = 0;
    if ((size_t)(c->end - c->at) < n) {
        c->cut = true;
        return 0;
    }
    memcpy(&x, c->at, n);
    c->at += n;
    return x;
}

static void skip(cursor *c, uint64_t n)
{
    if (n > (uint64_t)(c->end - c->at))
        c->cut = true;
    else
        c->at += n;
}

static void skip_value(cursor *c, uint64_t type)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t n = 1;
    if (type == GGUF_ARRAY) {
        type = take(c, 4);
        n = take(c, 8);
    }
    c->cut =
        c->cut || (type != GGUF_STRING && (type >= sizeof sizes || sizes[type] == 0)) || n > (uint64_t)(c->end - c->at);
    if (type != GGUF_STRING && !c->cut)
        skip(c, n * sizes[type]);
    for (uint64_t k = 0; type == GGUF_STRING && k < n && !c->cut; k++)
        skip(c, take(c, 8));
}

/* Write the offset of a tensor. Return where the next one begins, or a huge number. */
static uint64_t mend_tensor(cursor *c, uint64_t offset)
{
    static const struct {
        unsigned numbers, bytes;
    } blocks[] = {{1, 4},   {1, 2},   {32, 18},  {32, 20},   {1, 1},     {1, 1},     {32, 22},  {32, 24},
                  {32, 34}, {32, 40}, {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210}};
    skip(c, take(c, 8));
    const uint64_t axes = take(c, 4);
    double numbers = 1;
    for (uint64_t x = 0; x < axes && !c->cut; x++)
        numbers *= (double)take(c, 8);
    const uint64_t type = take(c, 4);
    const unsigned n = type < 15 ? blocks[type].numbers : 1, bytes = type < 15 ? blocks[type].bytes : 2;
    if (c->end - c->at < 8 || c->cut || !(numbers <= MAX_MENDED)) {
        c->cut = true;
        return MAX_MENDED;
    }
    memcpy(c->at, &offset, sizeof offset);
    c->at += 8;
    return offset + ((uint64_t)numbers / n * bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Mend the offsets of all tensors. Return the size that the file needs, or 0 if it cannot be mended. */
static size_t mend(uint8_t *data, size_t size)
{
    cursor c = {data, data + size, false};
    uint64_t offset = 0;
    skip(&c, 8);
    const uint64_t tensors = take(&c, 8), keys = take(&c, 8);
    for (uint64_t k = 0; k < keys && !c.cut; k++) {
        skip(&c, take(&c, 8));
        skip_value(&c, take(&c, 4));
    }
    for (uint64_t k = 0; k < tensors && !c.cut && offset < MAX_MENDED; k++)
        offset = mend_tensor(&c, offset);
    const size_t all = (size_t)(c.at - data) + ALIGNMENT + (size_t)offset;
    return c.cut || all > MAX_MENDED ? 0 : all;
}

/* ------------------------------------------------------------------------------------------------ reading */

static void read_numbers(const io_checkpoint *c)
{
    enum { PIECE = 50 };
    for (size_t n = 0; n < io_checkpoint_size(c); n++) {
        const io_tensor *t = io_checkpoint_at(c, n);
        const linear_blocks *b = io_block_of(t->dtype);
        float x[PIECE];
        int64_t all = b != NULL ? (int64_t)t->bytes / b->bytes * b->numbers : 0;
        PROMISE(io_checkpoint_find(c, t->name) == t, "two tensors have one name");
        PROMISE(io_tensor_not_finite(t) >= 0, "a negative count");
        for (int64_t k = 0; k < all; k += PIECE)
            PROMISE(io_tensor_read(t, k, all - k < PIECE ? all - k : PIECE, x), "blocks cannot be read");
    }
}

static void read_tokenizer(const io_checkpoint *c)
{
    char err[TOK_ERR_MAX] = "";
    tok_written files;
    tokenizer *t;
    if (tok_write_gguf(io_checkpoint_keys(c), "file", &files, err) != TOK_OK) {
        refusal_is_a_line(err, sizeof err);
        return;
    }
    const tok_file added = {files.added_tokens, files.added_tokens ? (int64_t)strlen(files.added_tokens) : 0, "a"};
    const tok_beside beside = {
        added, {files.tokenizer_config, (int64_t)strlen(files.tokenizer_config), "c"}, {0}, false};
    if (tok_open_beside(&t, files.spiece, files.spiece_size, "file", 100, &beside, err) != TOK_OK)
        refusal_is_a_line(err, sizeof err);
    tok_close(t);
    free(files.spiece);
    free(files.added_tokens);
    free(files.tokenizer_config);
}

/* Encode a few tokens. */
static void encode(const rp_t5 *m)
{
    const rp_t5_info *about = rp_t5_about(m);
    const int32_t tokens[3] = {0};
    const rp_t5_tokens source = {tokens, 3};
    float *out = calloc((size_t)(3 * about->d_model), sizeof *out);
    fuzz_valid++;
    PROMISE(out != NULL, "out of memory");
    if (rp_t5_encode(m, 1, &source, out, NULL, NULL) != RP_OK)
        refusal_is_a_line(rp_t5_last_error(), 1024);
    free(out);
}

static void read_checkpoint(const char *path, bool numbers)
{
    char err[IO_ERR_MAX] = "";
    io_checkpoint *c;
    if (io_checkpoint_open(&c, path, err) != IO_OK)
        refusal_is_a_line(err, sizeof err);
    else if (numbers)
        read_numbers(c);
    else if (io_checkpoint_keys(c) != NULL)
        read_tokenizer(c);
    io_checkpoint_close(c);
}

static void read_model(const char *path, bool computes)
{
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    o.load = computes ? RP_T5_LOAD_ALL : RP_T5_LOAD_SIZES;
    if (rp_t5_open(&m, path, &o) != RP_OK)
        refusal_is_a_line(rp_t5_last_error(), 1024);
    else if (computes)
        encode(m);
    else
        fuzz_valid++;
    rp_t5_close(m);
}

/* Read a file in one way; without libFuzzer, in all of them (left_out). */
enum { PLAIN, NUMBERS, TOKENIZER, SIZES, MODEL, WAYS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool reads[WAYS];
    for (unsigned way = 0; way < WAYS; way++)
        reads[way] = !left_out(data, size, way, WAYS);
    if (reads[PLAIN]) {
        const char *path = file_of(data, size, size);
        read_checkpoint(path, true);
        read_checkpoint(path, false);
        read_model(path, true);
    }
    uint8_t *copy = malloc(size + 1);
    PROMISE(copy != NULL, "out of memory");
    if (size > 0)
        memcpy(copy, data, size);
    const size_t all = mend(copy, size);
    const char *path = all > 0 ? file_of(copy, size, all > size ? all : size) : NULL;
    for (unsigned way = NUMBERS; way < WAYS && path != NULL; way++)
        if (reads[way] && way <= TOKENIZER)
            read_checkpoint(path, way == NUMBERS);
        else if (reads[way])
            read_model(path, way == MODEL);
    free(copy);
    return 0;
}
