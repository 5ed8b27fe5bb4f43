/* test_pairs.c -- training data for an encoder-decoder: batches of pairs, and windows from which spans are cut out.
 * Also tests export as a Hugging Face directory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "lab/engine/nn.h"
#include "tests/helpers.h"
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/relpos-pairs-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static const char *in_folder(const char *name)
{
    static char path[2][128];
    static int which;
    which = !which;
    snprintf(path[which], sizeof path[which], "%s/%s", folder, name);
    return path[which];
}

static void write_file(const char *path, const char *text)
{
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    fputs(text, to);
    assert_int_equal(fclose(to), 0);
}

static nn_config pairs_config(int64_t length, int64_t target_length)
{
    char err[NN_ERR_MAX];
    nn_config c;
    nn_config_init(&c);
    assert_int_equal(nn_config_set(&c, "task", "encoder-decoder", err), 0);
    c.vocab = 384;
    c.length = length;
    c.target_length = target_length;
    return c;
}

/* A batch contains the tokens of its pairs; the decoder input is the target shifted by one token. An epoch contains
 * each pair once and little padding. */
static void batches_have_every_pair_once(void **state)
{
    enum { N = 1000, BATCH = 8 };
    static char text[N * 40];
    char err[NN_ERR_MAX];
    const char *path = in_folder("pairs.txt");
    const nn_config c = pairs_config(32, 40);
    size_t used = 0;
    nn_pairs p;
    nn_batch b;
    (void)state;
    for (int n = 0; n < N; n++) /* pair n: its source is the number n, its target has up to 30 letters */
        used += (size_t)sprintf(text + used, "%d\t%.*s\n", n, 1 + n * 7 % 30, "abcdefghijklmnopqrstuvwxyzabcdefghij");
    write_file(path, text);
    assert_int_equal(nn_pairs_read(&p, &c, path, err), 0);
    assert_int_equal(p.n, N);
    assert_int_equal(nn_batch_create(&b, BATCH, 32, 40, err), 0);
    int32_t first[2] = {-1, -1};
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[N] = {false};
        int64_t tokens = 0, places = 0;
        for (int step = 0; step < N / BATCH; step++) {
            assert_int_equal(nn_pairs_step(&p, 1, epoch * (N / BATCH) + step, BATCH, &b, err), 0);
            for (int e = 0; e < BATCH; e++) {
                const int32_t *s = b.source + e * b.length[0], *t = b.target + e * b.length[1];
                int n = 0;
                for (int x = 0; x < b.lengths[e] - 1; x++)
                    n = 10 * n + s[x] - NN_BYTE - '0';
                assert_int_equal(s[b.lengths[e] - 1], NN_END);
                assert_false(seen[n]);
                seen[n] = true;
                first[epoch] = first[epoch] < 0 ? n : first[epoch];
                const int size = 1 + n * 7 % 30;
                for (int x = 0; x < b.length[1]; x++) {
                    assert_int_equal(t[x], x < size ? 'a' + x % 26 + NN_BYTE : x == size ? NN_END : -1);
                    assert_int_equal(b.input[e * b.length[1] + x], x == 0 || x > size ? NN_PAD : t[x - 1]);
                }
                tokens += size + 1;
            }
            places += BATCH * b.length[1];
        }
        for (int n = 0; n < N; n++)
            assert_true(seen[n]);
        assert_true((double)tokens > 0.95 * (double)places);
    }
    assert_int_not_equal(first[0], first[1]);
    nn_pairs held;
    assert_int_equal(nn_pairs_split(&p, 0.25, &held, err), 0);
    assert_true(p.n == N - N / 4 && held.n == N / 4);
    nn_pairs_at(&held, held.n - 3, BATCH, &b); /* three pairs; the other entries have no target */
    assert_int_equal(b.tokens, 3 + 3 + (997 * 7 % 30) + (998 * 7 % 30) + (999 * 7 % 30));
    for (int x = 0; x < (BATCH - 3) * b.length[1]; x++)
        assert_int_equal(b.target[3 * b.length[1] + x], -1);
    nn_pairs_free(&held);
    nn_pairs_free(&p);
    nn_batch_destroy(&b);
}

/* Putting the spans in the target back in place of the sentinels in the source gives the window. Sizes follow T5. */
static void spans_put_back_give_the_text(void **state)
{
    char err[NN_ERR_MAX];
    nn_config c = pairs_config(100, 0);
    nn_pairs p;
    nn_batch b;
    (void)state;
    c.noise = 0.15;
    assert_int_equal(nn_pairs_read(&p, &c, "examples/data/gettysburg.txt", err), 0);
    /* windows of 110: 16 or 17 bytes in 5 or 6 spans; 110 - 17 + 6 + 1 = 100 */
    assert_true(p.window == 110 && p.cut == 17 && p.spans == 6);
    assert_int_equal(nn_batch_create(&b, 4, 100, 100, err), 0);
    bool differ = false;
    for (int64_t step = 0; step < 50; step++) {
        int32_t window[4][110];
        assert_int_equal(nn_pairs_step(&p, 1, step, 4, &b, err), 0);
        assert_true(b.length[0] == 100 && b.length[1] == 24);
        for (int e = 0; e < 4; e++) {
            const int32_t *s = b.source + e * 100, *t = b.target + e * 24;
            int n = 0, spans = 0;
            assert_true(s[99] == NN_END && t[23] == NN_END);
            for (int x = 0; x < 99; x++) {
                if (s[x] != NN_SENTINEL - spans || spans == p.spans) {
                    window[e][n++] = s[x] - NN_BYTE;
                    continue;
                }
                assert_int_equal(*t++, NN_SENTINEL - spans++);
                for (int before = n; *t != NN_SENTINEL - spans && *t != NN_END; assert_true(n > before))
                    window[e][n++] = *t++ - NN_BYTE;
            }
            assert_true(n == 110 && spans == 6);
            bool found = false;
            for (int64_t at = 0; at + 110 <= p.text.n && !found; at++)
                found = memcmp(p.text.tokens + at, window[e], sizeof window[e]) == 0;
            assert_true(found);
        }
        differ |= memcmp(window[0], window[1], sizeof window[0]) != 0;
    }
    assert_true(differ);
    nn_pairs_free(&p);
    nn_batch_destroy(&b);
}

/* ------------------------------------------------------------------------------------------------ the directory */

/* Compare part number `part` of `parts` of our parameter with an array in the file, rounded to the file's type. */
static void compare(const nn_model *m, const io_set *set, const char *ours, const char *theirs, int part, int parts)
{
    const nn_param *p = &m->params[nn_model_find(m, ours)];
    const io_array *a = io_find(set, theirs);
    assert_non_null(a);
    assert_true(a->ndim == p->ndim && a->shape[0] == p->shape[0] / parts);
    const int64_t size = p->size / parts;
    uint16_t *want = malloc((size_t)size * 2);
    assert_non_null(want);
    assert_int_equal(rp_convert(want, RP_BF16, m->w + p->offset + part * size, RP_F32, size), RP_OK);
    assert_true(a->dtype == RP_BF16 && a->bytes == (size_t)size * 2 && memcmp(a->data, want, a->bytes) == 0);
    free(want);
}

static void a_directory_has_every_weight(void **state)
{
    char err[NN_ERR_MAX], why[IO_ERR_MAX], path[200];
    nn_config c = pairs_config(16, 0);
    (void)state;
    assert_int_equal(nn_config_set(&c, "preset", "t5", err), 0);
    c.norm = LAYERS_RMSNORM;
    c.act = LAYERS_GEGLU;
    c.layers = 2;
    c.decoder_layers = 1;
    c.tied = 0;
    nn_model m;
    io_set set;
    assert_int_equal(nn_model_create(&m, &c, false, err), 0);
    assert_int_equal(nn_transformers_write(&m, in_folder("t5"), RP_BF16, err), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", in_folder("t5"));
    assert_int_equal(io_read(path, &set, NULL, why), IO_OK);
    int64_t all = 0;
    for (size_t n = 0; n < set.n_arrays; n++)
        all += (int64_t)set.arrays[n].bytes / 2;
    for (int32_t n = 0; n < m.n_params; n++)
        all -= m.params[n].size;
    assert_int_equal(all, 0);
    compare(&m, &set, "embedding.weight", "shared.weight", 0, 1);
    compare(&m, &set, "head.weight", "lm_head.weight", 0, 1);
    compare(&m, &set, "encoder.layers.1.attn.qkv.weight", "encoder.block.1.layer.0.SelfAttention.k.weight", 1, 3);
    compare(&m, &set, "encoder.attn.t5.table", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            0, 1);
    compare(&m, &set, "decoder.layers.0.cross.kv.weight", "decoder.block.0.layer.1.EncDecAttention.v.weight", 1, 2);
    compare(&m, &set, "decoder.layers.0.mlp.up.weight", "decoder.block.0.layer.2.DenseReluDense.wi_0.weight", 0, 2);
    compare(&m, &set, "encoder.layers.1.mlp.down.weight", "encoder.block.1.layer.1.DenseReluDense.wo.weight", 0, 1);
    io_free(&set);
    assert_int_equal(nn_transformers_write(&m, in_folder("t5"), RP_BF16, err), -1);
    assert_non_null(strstr(err, "it already exists"));
    nn_model_destroy(&m);
}

/* If T5's configuration cannot describe a model, export fails and writes nothing. */
static void other_shapes_are_refused(void **state)
{
    static const struct {
        const char *key, *value, *said;
    } cases[] = {
        {"norm", "layernorm", "norm = layernorm: "},
        {"activation", "swiglu", "activation = swiglu: "},
        {"scale", "0", "scale = 0: "},
        {"embedding_scale", "0", "embedding_scale = 0: T5"},
        {"position", "t5", "position = t5: in T5 the table of the decoder has bidirectional=0"},
        {"encoder_position", "t5,bidirectional=0",
         "encoder_position = t5,bidirectional=0: in T5 the table of the encoder has bidirectional=1"},
        {"encoder_position", "alibi", "encoder_position = alibi: T5 supports only one t5 table"},
        {"encoder_position", "t5+rope", "encoder_position = t5+rope: T5 supports only one t5 table"},
        {"encoder_position", "t5+learned", "encoder_position = t5+learned: T5 supports only one t5 table"},
        {"encoder_position", "t5,buckets=16", "its buckets and max_distance equal those of position"},
        {"position_layers", "own", "position_layers = own: "},
        {"position_heads", "shared", "position_heads = shared: "},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char err[NN_ERR_MAX] = "";
        nn_config c = pairs_config(16, 0);
        nn_model m;
        c.norm = LAYERS_RMSNORM;
        c.act = LAYERS_RELU;
        assert_int_equal(nn_config_set(&c, "preset", "t5", err), 0);
        assert_int_equal(nn_config_set(&c, cases[n].key, cases[n].value, err), 0);
        assert_int_equal(nn_model_create(&m, &c, false, err), 0);
        assert_int_equal(nn_transformers_write(&m, in_folder("no"), RP_F32, err), -1);
        if (!strstr(err, cases[n].said))
            fail_msg("%s = %s: \"%s\" has no \"%s\"", cases[n].key, cases[n].value, err, cases[n].said);
        nn_model_destroy(&m);
    }
    assert_int_not_equal(access(in_folder("no"), F_OK), 0);
}

static int remove_folder(void **state)
{
    static const char *const files[] = {"pairs.txt", "t5/config.json", "t5/generation_config.json",
                                        "t5/tokenizer_config.json", "t5/model.safetensors"};
    (void)state;
    for (size_t n = 0; n < sizeof files / sizeof *files; n++)
        unlink(in_folder(files[n]));
    rmdir(in_folder("t5"));
    return rmdir(folder); /* fails if the folder still contains a file */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_have_every_pair_once),
        cmocka_unit_test(spans_put_back_give_the_text),
        cmocka_unit_test(a_directory_has_every_weight),
        cmocka_unit_test(other_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
