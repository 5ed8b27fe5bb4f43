/* test_t5_gguf.c -- models whose weights are blocks of a .gguf file: their results, and the memory that they take. The
 * files are made here.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/block_types.h"
#include "tests/io/files.h"
#include "tests/t5/models.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { WIDTH = 512, FEED = 1024, LAYERS = 4, VOCAB = 1000, HEADS = 8, TOKENS = 12, GGUF_F32 = 0, GGUF_F16 = 1 };

/* Numbers of the types in .gguf files, in the order of linear_kind. */
static const int type_numbers[LINEAR_KINDS] = {8, 2, 3, 6, 7, 10, 11, 12, 13, 14};
/* High bytes of f16 scales for which random integers give numbers of a deviation of about 1 / sqrt(WIDTH). */
static const int scales[LINEAR_KINDS] = {0x10, 0x20, 0x20, 0x1c, 0x1c, 0x1c, 0x14, 0x08, 0x04, 0x00};

/* A file in the making: descriptions of tensors, then their data. */
typedef struct gguf {
    bytes head, data;
    int tensors, keys;
    uint64_t seed;
} gguf;

static void put_string(bytes *b, const char *text)
{
    put_int(b, strlen(text), 8);
    put_text(b, text);
}

static void put_number(gguf *g, const char *key, uint64_t value)
{
    put_string(&g->head, key);
    put_int(&g->head, 4, 4);
    put_int(&g->head, value, 4);
    g->keys++;
}

/* Add a tensor of random numbers; `type`: a linear_kind, or -1 for f16. Queries are small, so that scores are. */
static void put_matrix(gguf *g, const char *name, int64_t rows, int64_t columns, int type)
{
    const linear_blocks *b = type >= 0 ? io_block_of((rp_dtype)(IO_Q8_0 + type)) : NULL;
    const int usual = type >= 0 ? scales[type] : 0, scale = strstr(name, "attn_q") == NULL ? usual
                                                            : usual < 12                   ? 0
                                                                                           : usual - 12;
    put_string(&g->head, name);
    put_int(&g->head, 2, 4);
    put_int(&g->head, (uint64_t)columns, 8);
    put_int(&g->head, (uint64_t)rows, 8);
    put_int(&g->head, (uint64_t)(b != NULL ? type_numbers[type] : GGUF_F16), 4);
    put_int(&g->head, g->data.n, 8);
    g->tensors++;
    if (b == NULL) { /* 2^-6 to 2^-5 */
        for (int64_t i = 0; i < rows * columns; i++)
            put_int(&g->data, (draw(&g->seed) >> 40 & 0x83ff) | 0x2400, 2);
    }
    for (int64_t n = 0; b != NULL && n < rows * columns / b->numbers; n++) {
        unsigned char block[LINEAR_BLOCK_BYTES];
        for (int64_t i = 0; i < b->bytes; i++)
            block[i] = (unsigned char)(draw(&g->seed) >> 40);
        block[b->scale + 1] = (unsigned char)(scale | (block[b->scale + 1] & 3));
        if (b->min >= 0) /* about the mean of the integers times the scale */
            block[b->min + 1] = (unsigned char)((scale + (b->most > 15  ? 16
                                                          : b->most > 3 ? 12
                                                                        : 4)) |
                                                (block[b->min + 1] & 3) | (b->numbers == 32 ? 0x80 : 0));
        put(&g->data, block, (size_t)b->bytes);
    }
    while (g->data.n % 32 != 0)
        put_int(&g->data, 0, 1);
}

static void put_floats(gguf *g, const char *name, int64_t rows, int64_t columns)
{
    put_string(&g->head, name);
    put_int(&g->head, columns > 0 ? 2 : 1, 4);
    if (columns > 0)
        put_int(&g->head, (uint64_t)columns, 8);
    put_int(&g->head, (uint64_t)rows, 8);
    put_int(&g->head, GGUF_F32, 4);
    put_int(&g->head, g->data.n, 8);
    g->tensors++;
    for (int64_t i = 0; i < rows * (columns > 0 ? columns : 1); i++)
        put_int(&g->data, columns > 0 ? 0x3e800000 | (draw(&g->seed) >> 40 & 0x807fffff) : 0x3f800000, 4);
}

/* Write an encoder. `types` are those of the embedding, q, k, v, o, gate, up and down. Return the size of the file. */
static double write_model(const char *path, const int types[8])
{
    static const char *const names[] = {"attn_q", "attn_k", "attn_v", "attn_o", "ffn_gate", "ffn_up", "ffn_down"};
    gguf g = {.seed = 1};
    bytes file = {0};
    char name[64];
    put_string(&g.head, "general.architecture");
    put_int(&g.head, 8, 4);
    put_string(&g.head, "t5encoder");
    g.keys = 1;
    put_number(&g, "t5encoder.embedding_length", WIDTH);
    put_number(&g, "t5encoder.feed_forward_length", FEED);
    put_number(&g, "t5encoder.block_count", LAYERS);
    put_number(&g, "t5encoder.attention.head_count", HEADS);
    put_matrix(&g, "token_embd.weight", VOCAB, WIDTH, types[0]);
    put_floats(&g, "enc.output_norm.weight", WIDTH, 0);
    put_floats(&g, "enc.blk.0.attn_rel_b.weight", 32, HEADS);
    for (int layer = 0; layer < LAYERS; layer++) {
        snprintf(name, sizeof name, "enc.blk.%d.attn_norm.weight", layer);
        put_floats(&g, name, WIDTH, 0);
        snprintf(name, sizeof name, "enc.blk.%d.ffn_norm.weight", layer);
        put_floats(&g, name, WIDTH, 0);
        for (int n = 0; n < 7; n++) {
            snprintf(name, sizeof name, "enc.blk.%d.%s.weight", layer, names[n]);
            put_matrix(&g, name, n == 4 || n == 5 ? FEED : WIDTH, n == 6 ? FEED : WIDTH, types[1 + n]);
        }
    }
    put_text(&file, "GGUF");
    put_int(&file, 3, 4);
    put_int(&file, (uint64_t)g.tensors, 8);
    put_int(&file, (uint64_t)g.keys, 8);
    put(&file, g.head.p, g.head.n);
    while (file.n % 32 != 0)
        put_int(&file, 0, 1);
    put(&file, g.data.p, g.data.n);
    save(path, file.p, file.n);
    free(g.head.p);
    free(g.data.p);
    free(file.p);
    return (double)file.n;
}

/* Return a size in bytes from /proc/self/status. */
static double status_line(const char *key)
{
    char line[256];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
            kb = strtod(line + strlen(key) + 1, NULL);
    fclose(f);
    return 1024 * kb;
}

static float *hidden(const char *path, const char *type, rp_pool *pool, int64_t lines)
{
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    rp_t5_tokens source[3];
    int32_t tokens[TOKENS];
    o.type = type;
    o.pool = pool;
    for (int n = 0; n < TOKENS; n++)
        tokens[n] = 7 + 83 * n;
    for (int64_t n = 0; n < lines; n++)
        source[n] = (rp_t5_tokens){tokens, TOKENS};
    fine(rp_t5_open(&m, path, &o));
    if (type == NULL)
        assert_string_equal(rp_t5_about(m)->type, "gguf");
    float *all = encode_all(m, lines, source);
    rp_t5_close(m);
    return all;
}

/* Return |a - b| / |b|. */
static double distance(const float *a, const float *b)
{
    double off = 0, all = 0;
    for (int n = 0; n < TOKENS * WIDTH; n++) {
        off += pow((double)a[n] - (double)b[n], 2);
        all += pow((double)b[n], 2);
    }
    return sqrt(off / all);
}

static const struct {
    const char *name;
    int types[8];
} mixtures[] = {
    {"Q4_0", {1, 1, 1, 1, 1, 1, 1, 1}},
    {"Q5_1", {4, 4, 4, 4, 4, 4, 4, 4}},
    {"Q4_K_M", {9, 7, 7, 9, 7, 7, 7, 9}},
    {"each of K", {6, 5, 6, 7, 8, 9, 7, 5}},
    {"packed and not", {-1, 0, 7, -1, 3, 2, 0, 8}},
};

/* Inputs of each layer are rounded to 8 bits, as for q8. */
static void test_results_are_near_those_of_the_dequantized_weights(void **state)
{
    rp_pool *pool;
    (void)state;
    good(rp_pool_create(&pool, 3));
    for (size_t k = 0; k < sizeof mixtures / sizeof *mixtures; k++) {
        const char *path = in_dir("x.gguf");
        write_model(path, mixtures[k].types);
        float *exact = hidden(path, "f32", NULL, 1), *mine = hidden(path, NULL, NULL, 1),
              *q8 = hidden(path, "q8", NULL, 1), *three = hidden(path, NULL, pool, 3);
        const double off = distance(mine, exact), of_q8 = distance(q8, exact);
        printf("%-14s is off by %.2e; q8 by %.2e\n", mixtures[k].name, off, of_q8);
        assert_true(off < 0.1 && off < 1.2 * of_q8);
        for (int n = 0; n < 3; n++)
            assert_memory_equal(three + n * TOKENS * WIDTH, mine, sizeof(float) * TOKENS * WIDTH);
        free(exact);
        free(mine);
        free(q8);
        free(three);
    }
    rp_pool_destroy(pool);
}

/* Return the resident memory of this process, without freed memory that malloc keeps. */
static double resident(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return status_line("VmRSS");
}

/* Weights that are all blocks take at most the size of the file and a fifth. A tensor that is packed takes memory of
 * its own, and some pages of the file that it was read from stay in memory until the system needs them. */
static void test_memory_is_near_the_size_of_the_file(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    for (size_t k = 0; k < sizeof mixtures / sizeof *mixtures; k++) {
        rp_t5 *m;
        const char *path = in_dir("x.gguf");
        const double file = write_model(path, mixtures[k].types);
        free(hidden(path, NULL, NULL, 1)); /* all code is in memory */
        const double before = resident();
        fine(rp_t5_open(&m, path, NULL));
        const double taken = resident() - before;
        printf("%-14s takes %.2f of the file\n", mixtures[k].name, taken / file);
        const bool packs = mixtures[k].types[0] < 0;
        assert_true(taken < (packs ? 2 : 1.2) * file);
        assert_true((double)rp_t5_about(m)->bytes > 0.9 * file && (double)rp_t5_about(m)->bytes < 1.2 * file);
        rp_t5_close(m);
    }
}

static void test_packing_is_refused(void **state)
{
    rp_t5 *m;
    (void)state;
    write_model(in_dir("x.gguf"), mixtures[0].types);
    fine(rp_t5_open(&m, in_dir("x.gguf"), NULL));
    assert_int_equal(rp_t5_pack(m, in_dir("x.relpos")), RP_E_UNSUPPORTED);
    assert_non_null(strstr(rp_t5_last_error(), "blocks of a .gguf file cannot be packed"));
    assert_int_not_equal(access(in_dir("x.relpos"), F_OK), 0);
    rp_t5_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_are_near_those_of_the_dequantized_weights),
        cmocka_unit_test(test_memory_is_near_the_size_of_the_file),
        cmocka_unit_test(test_packing_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
