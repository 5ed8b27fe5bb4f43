/* test_encoder.c -- compares hidden states and logits of every architecture with the results of transformers in
 * tests/encoder/data, and the plain loops in double with both; and tests laws and refusals. Numbers may be at most
 * eight times as far from the f64 results as those of transformers in f32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/values.h"
#include "encoder/encoder.h"
#include "io/io.h"
#include "tests/encoder/checks.h"
#include <limits.h>

#define DATA "tests/encoder/data"
enum { MARGIN = 8, MOST = 16 };

static const char *const names[] = {"bert",        "bert_head",  "roberta",           "xlm_roberta",
                                    "mpnet",       "mpnet_head", "deberta",           "deberta_c2p",
                                    "deberta_own", "modernbert", "modernbert_biases", "esm",
                                    "esm_head",    "esm1b",      "deberta_conv",      "deberta_conv5"};
enum { NAMES = sizeof names / sizeof *names };

/* The sequences and results of a folder. */
typedef struct expected {
    io_set set;
    int64_t n, rows;
    rp_encoder_tokens sequence[MOST];
} expected;

static rp_encoder *open_model(const char *name, const char *type, rp_pool *pool)
{
    char path[300];
    rp_encoder *m;
    rp_encoder_opening o = rp_encoder_opening_init();
    o.type = type;
    o.pool = pool;
    snprintf(path, sizeof path, DATA "/%s", name);
    fine(rp_encoder_open(&m, path, &o));
    return m;
}

static const void *data_of(const expected *e, const char *name)
{
    const io_array *a = io_find(&e->set, name);
    return a != NULL ? a->data : NULL;
}

static void read_expected(expected *e, const char *name)
{
    char path[300], err[IO_ERR_MAX];
    snprintf(path, sizeof path, DATA "/%s/expected.safetensors", name);
    *e = (expected){0};
    if (io_read(path, &e->set, NULL, err) != IO_OK)
        fail_msg("%s", err);
    const int32_t *lengths = data_of(e, "lengths"), *tokens = data_of(e, "tokens"), *types = data_of(e, "types");
    e->n = io_find(&e->set, "lengths")->shape[0];
    assert_true(e->n <= MOST);
    for (int64_t s = 0; s < e->n; s++) {
        e->sequence[s] = (rp_encoder_tokens){tokens + e->rows, types != NULL ? types + e->rows : NULL, lengths[s]};
        e->rows += lengths[s];
    }
}

static float *hidden_of(const rp_encoder *m, int64_t n, const rp_encoder_tokens *sequences)
{
    int64_t rows = 0;
    for (int64_t s = 0; s < n; s++)
        rows += sequences[s].n;
    float *out = malloc((size_t)(rows * rp_encoder_about(m)->width + 1) * sizeof *out);
    fine(rp_encoder_hidden(m, n, sequences, out, NULL, NULL));
    return out;
}

static void check(const char *model, const char *what, double error, double bound)
{
    print_message("    %-18s %-10s error %.2e of %.2e\n", model, what, error, bound);
    if (!(error <= bound))
        fail_msg("%s: %s is off by %g, above %g", model, what, error, bound);
}

/* Return the largest difference of rows 0, n / 2 and n - 1 from the three expected ones. */
static double farthest(const double *rows, int64_t n, int64_t width, const float *three)
{
    const int64_t at[3] = {0, n / 2, n - 1};
    double most = 0;
    for (int k = 0; k < 3; k++)
        for (int64_t x = 0; x < width; x++)
            most = fmax(most, fabs(rows[at[k] * width + x] - (double)three[k * width + x]));
    return most;
}

/* ------------------------------------------------------------------------------------------------ golden */

static void hidden_states(void **state)
{
    (void)state;
    for (int k = 0; k < NAMES; k++) {
        expected e;
        rp_encoder *m = open_model(names[k], "f32", NULL);
        const int64_t width = rp_encoder_about(m)->width;
        read_expected(&e, names[k]);
        float *hidden = hidden_of(m, e.n, e.sequence), *at = hidden;
        const float *three = data_of(&e, "hidden");
        double *rows = malloc((size_t)(e.rows * width) * sizeof *rows), fast = 0, plain = 0;
        for (int64_t s = 0; s < e.n; s++, three += 3 * width) {
            const int64_t n = e.sequence[s].n;
            for (int64_t x = 0; x < n * width; x++)
                rows[x] = (double)at[x];
            fast = fmax(fast, farthest(rows, n, width, three));
            fine(encoder_reference(m, &e.sequence[s], rows));
            plain = fmax(plain, farthest(rows, n, width, three));
            for (int64_t x = 0; x < n * width; x++) /* all rows, not only three */
                fast = fmax(fast, fabs((double)at[x] - rows[x]));
            at += n * width;
        }
        const double bound = MARGIN * (double)*(const float *)data_of(&e, "hidden_error");
        check(names[k], "fast", fast, bound);
        check(names[k], "reference", plain, bound / MARGIN + 1e-6); /* expected is rounded to f32 */
        free(hidden);
        free(rows);
        io_free(&e.set);
        rp_encoder_close(m);
    }
}

static void logits(void **state)
{
    int heads = 0;
    (void)state;
    for (int k = 0; k < NAMES; k++) {
        expected e;
        rp_encoder *m = open_model(names[k], "f32", NULL);
        const int64_t labels = rp_encoder_about(m)->labels;
        float *made = malloc((size_t)(MOST * (labels + 1)) * sizeof *made);
        double error = 0;
        read_expected(&e, names[k]);
        const float *right = data_of(&e, "logits");
        if (labels == 0) {
            assert_int_equal(rp_encoder_logits(m, e.n, e.sequence, made, NULL, NULL), RP_E_UNSUPPORTED);
            assert_null(right);
        } else {
            heads++;
            fine(rp_encoder_logits(m, e.n, e.sequence, made, NULL, NULL));
            for (int64_t x = 0; x < e.n * labels; x++)
                error = fmax(error, fabs((double)made[x] - (double)right[x]));
            check(names[k], "logits", error, MARGIN * (double)*(const float *)data_of(&e, "logits_error"));
            assert_string_equal(rp_encoder_label(m, labels - 1), labels == 1   ? "LABEL_0"
                                                                 : labels == 2 ? "LABEL_1"
                                                                               : "LABEL_2");
        }
        assert_null(rp_encoder_label(m, labels));
        free(made);
        io_free(&e.set);
        rp_encoder_close(m);
    }
    assert_int_equal(heads, 8);
}

/* Activations are those of transformers; each is at most three roundings. */
static void activations(void **state)
{
    enum { MOST_NUMBERS = 64 };
    json_error_t error;
    json_t *root = json_load_file(DATA "/activations.json", 0, &error), *row;
    const json_t *x = json_object_get(root, "x");
    const size_t n = json_array_size(x);
    const char *name;
    (void)state;
    assert_true(n >= 10 && n <= MOST_NUMBERS);
    assert_int_equal(json_object_size(root), 20);
    json_object_foreach(root, name, row)
    {
        json_t *config = json_pack("{s:s}", "conv_act", name);
        model_reader r = {config, "config.json", "an encoder", NULL, RP_OK};
        const encoder_activation a = encoder_read_activation(&r, "conv_act");
        float found[MOST_NUMBERS];
        for (size_t k = 0; k < n; k++)
            found[k] = (float)json_number_value(json_array_get(x, k));
        if (row == x)
            assert_int_equal(r.status, RP_E_UNSUPPORTED);
        else
            fine(r.status);
        encoder_activate_rows(NULL, 1, &(encoder_activated){found, (int64_t)n, a, false});
        for (size_t k = 0; k < n && row != x; k++) {
            const double right = json_number_value(json_array_get(row, k)),
                         plain = encoder_activate_double(a, json_number_value(json_array_get(x, k)));
            if (!(fabs(plain - right) <= 1e-12 * (1 + fabs(right))) ||
                !(fabs((double)found[k] - right) <= MARGIN * (double)FLT_EPSILON * (1 + fabs(right))))
                fail_msg("%s: number %d is %.9g and %.17g, not %.17g", name, (int)k, (double)found[k], plain, right);
        }
        json_decref(config);
    }
    json_decref(root);
}

/* ------------------------------------------------------------------------------------------------ laws */

static const char *const types[] = {"f32", "f16", "bf16", "q8", "int8"};
enum { TYPES = 5 };

/* The bits of a sequence depend neither on the others nor on the number of threads. */
static void batch_and_threads(void **state)
{
    static const int32_t threads[] = {1, 2, 5};
    (void)state;
    for (int k = 0; k < NAMES * TYPES; k++) {
        expected e;
        float *first = NULL;
        read_expected(&e, names[k / TYPES]);
        for (int t = 0; t < 3; t++) {
            rp_pool *pool;
            fine(rp_pool_create(&pool, threads[t]));
            rp_encoder *m = open_model(names[k / TYPES], types[k % TYPES], pool);
            const int64_t width = rp_encoder_about(m)->width;
            const size_t bytes = (size_t)(e.rows * width) * sizeof(float);
            float *hidden = hidden_of(m, e.n, e.sequence), *at = hidden;
            if (first != NULL)
                assert_memory_equal(hidden, first, bytes);
            for (int64_t s = 0; s < e.n; at += e.sequence[s++].n * width) {
                float *alone = hidden_of(m, 1, &e.sequence[s]);
                assert_memory_equal(alone, at, (size_t)(e.sequence[s].n * width) * sizeof *at);
                free(alone);
            }
            if (first == NULL)
                first = hidden;
            else
                free(hidden);
            rp_encoder_close(m);
            rp_pool_destroy(pool);
        }
        free(first);
        io_free(&e.set);
    }
}

static double norm_of(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += ((double)x[k] - (y != NULL ? (double)y[k] : 0)) * ((double)x[k] - (y != NULL ? (double)y[k] : 0));
    return sqrt(sum);
}

/* The files are f16, so f16 weights give the bits of f32. Narrower types stay near: bf16 rounds inputs and weights to
 * 8 bits, q8 and int8 to steps of 1/254 of the largest number of a group or row; the weights pass through at most 17
 * linear layers. */
static void narrow_types(void **state)
{
    static const double bound[TYPES] = {0, 0, 0.1, 0.1, 0.3};
    (void)state;
    for (int k = 0; k < NAMES; k++) {
        expected e;
        rp_encoder *m = open_model(names[k], "f32", NULL);
        read_expected(&e, names[k]);
        const int64_t n = e.rows * rp_encoder_about(m)->width;
        float *exact = hidden_of(m, e.n, e.sequence);
        rp_encoder_close(m);
        for (int t = 1; t < TYPES; t++) {
            m = open_model(names[k], types[t], NULL);
            assert_string_equal(rp_encoder_about(m)->type, types[t]);
            float *hidden = hidden_of(m, e.n, e.sequence);
            check(names[k], types[t], norm_of(hidden, exact, n) / norm_of(exact, NULL, n), bound[t]);
            free(hidden);
            rp_encoder_close(m);
        }
        m = open_model(names[k], NULL, NULL);
        assert_string_equal(rp_encoder_about(m)->type, "f16");
        rp_encoder_close(m);
        free(exact);
        io_free(&e.set);
    }
}

static int stop_later(void *context, double fraction)
{
    double *last = context;
    assert_true(fraction >= *last && fraction <= 1);
    *last = fraction;
    return fraction >= 0.4; /* after the first of two layers */
}

static void progress_and_cancelling(void **state)
{
    (void)state;
    for (int k = 0; k < NAMES; k++) {
        expected e;
        rp_encoder *m = open_model(names[k], "f32", NULL);
        double last = 0;
        read_expected(&e, names[k]);
        float *out = malloc((size_t)(e.rows * rp_encoder_about(m)->width) * sizeof *out);
        assert_int_equal(rp_encoder_hidden(m, e.n, e.sequence, out, stop_later, &last), RP_E_CANCELLED);
        assert_true(last >= 0.4);
        free(out);
        io_free(&e.set);
        rp_encoder_close(m);
    }
}

/* ------------------------------------------------------------------------------------------------ refusals */

/* The most tokens of a model. Where positions begin after that of the padding, 1, two positions are never used. */
static void longest_sequences(void **state)
{
    static const struct {
        const char *model;
        int64_t most;
    } models[] = {{"bert", 515},  {"roberta", 513}, {"xlm_roberta", 68}, {"mpnet", 513},
                  {"esm1b", 513}, {"deberta", 0},   {"modernbert", 0},   {"esm", 0}};
    static float out[24 * 515];
    int32_t tokens[516];
    (void)state;
    for (int k = 0; k < 516; k++)
        tokens[k] = 3 + k % 30;
    for (size_t n = 0; n < sizeof models / sizeof *models; n++) {
        rp_encoder *m = open_model(models[n].model, NULL, NULL);
        rp_encoder_tokens s = {tokens, NULL, models[n].most};
        assert_int_equal(rp_encoder_about(m)->max_tokens, models[n].most);
        if (models[n].most > 0) {
            assert_true(rp_encoder_about(m)->width <= 24);
            fine(rp_encoder_hidden(m, 1, &s, out, NULL, NULL));
            s.n++;
            refused(rp_encoder_hidden(m, 1, &s, out, NULL, NULL), RP_E_RANGE, "the model takes at most");
        }
        rp_encoder_close(m);
    }
}

static void arguments(void **state)
{
    const int32_t tokens[3] = {3, 4, 40}, kinds[3] = {0, 1, 2};
    rp_encoder_tokens s = {tokens, NULL, 3};
    rp_encoder *m = open_model("bert", NULL, NULL), *none = m;
    rp_encoder_opening o = rp_encoder_opening_init();
    float out[24 * 3], *const no_out = NULL;
    (void)state;
    refused(rp_encoder_hidden(m, 1, &s, out, NULL, NULL), RP_E_RANGE, "token 2 is 40; it must be from 0 to 39");
    s.n = 2;
    s.types = kinds + 1;
    refused(rp_encoder_hidden(m, 1, &s, out, NULL, NULL), RP_E_RANGE,
            "the type of token 1 is 2; it must be from 0 to 1");
    s = (rp_encoder_tokens){tokens, NULL, -1};
    refused(rp_encoder_hidden(m, 1, &s, out, NULL, NULL), RP_E_ARG, "n is -1");
    s = (rp_encoder_tokens){NULL, NULL, 1};
    refused(rp_encoder_hidden(m, 1, &s, out, NULL, NULL), RP_E_ARG, "tokens is NULL");
    s = (rp_encoder_tokens){tokens, NULL, 516};
    refused(rp_encoder_hidden(m, 1, &s, out, NULL, NULL), RP_E_RANGE, "has 516 tokens; the model takes at most 515");
    s.n = 1;
    refused(rp_encoder_hidden(m, 1, &s, no_out, NULL, NULL), RP_E_ARG, "out is NULL");
    refused(rp_encoder_hidden(NULL, 1, &s, out, NULL, NULL), RP_E_ARG, "model is NULL");
    refused(rp_encoder_hidden(m, -1, &s, out, NULL, NULL), RP_E_ARG, "n is -1");
    refused(rp_encoder_hidden(m, 1, NULL, out, NULL, NULL), RP_E_ARG, "sequences is NULL");
    fine(rp_encoder_hidden(m, 0, NULL, NULL, NULL, NULL));
    s.n = 0;
    fine(rp_encoder_hidden(m, 1, &s, NULL, NULL, NULL));
    assert_int_equal(rp_encoder_reads(m, DATA "/bert/model.safetensors"), 1);
    assert_int_equal(rp_encoder_reads(m, DATA "/bert/config.json"), 1);
    assert_int_equal(rp_encoder_reads(m, DATA "/mpnet/config.json"), 0);
    rp_encoder_close(m);
    m = open_model("bert_head", NULL, NULL);
    refused(rp_encoder_logits(m, 1, &s, out, NULL, NULL), RP_E_ARG, "sequences[0] has no tokens");
    s.n = 1;
    refused(rp_encoder_logits(m, 1, &s, NULL, NULL, NULL), RP_E_ARG, "logits is NULL");
    rp_encoder_close(m);
    refused(rp_encoder_open(NULL, DATA, NULL), RP_E_ARG, "model or path is NULL");
    refused(rp_encoder_open(&none, NULL, NULL), RP_E_ARG, "model or path is NULL");
    refused(rp_encoder_open(&none, DATA "/nothing", NULL), RP_E_ARG, "nothing");
    assert_null(none);
    o.size = 4;
    refused(rp_encoder_open(&none, DATA "/bert", &o), RP_E_ARG, "opening.size is 4");
    o = rp_encoder_opening_init();
    o.type = "int4";
    refused(rp_encoder_open(&none, DATA "/bert", &o), RP_E_ARG,
            "\"int4\", which is not supported (use f32, f16, bf16, q8 or int8)");
}

/* A change of a config.json, and what its refusal says. */
typedef struct change {
    const char *model, *from, *to, *says;
} change;

static const change changes[] = {
    {"bert", "\"model_type\": \"bert\"", "\"model_type\": \"gpt2\"", "model_type \"gpt2\" is not an encoder"},
    {"bert", "\"num_attention_heads\": 3", "\"num_attention_heads\": 5",
     "is 5, which is no divisor of hidden_size, 24"},
    {"bert", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"laplace\"", "\"hidden_act\" is \"laplace\""},
    {"deberta_conv", "\"conv_kernel_size\": 3", "\"conv_kernel_size\": 4", "\"conv_kernel_size\" is even"},
    {"deberta_conv", "\"conv_kernel_size\": 3", "\"conv_kernel_size\": 5",
     "'encoder.conv.conv.weight' has the shape [24,24,3]; expected [24,24,5]"},
    {"deberta_conv", "\"conv_kernel_size\": 3", "\"conv_kernel_size\": 0", "encoder.conv.LayerNorm"},
    {"deberta_conv", "\"conv_kernel_size\": 3", "\"conv_kernel_size\": -1", "\"conv_kernel_size\" is not a whole"},
    {"deberta_conv", "\"conv_act\": \"gelu\"", "\"conv_act\": \"prelu\"", "\"conv_act\" is \"prelu\""},
    {"deberta_conv5", "\"conv_groups\": 3", "\"conv_groups\": 5", "\"conv_groups\" is no divisor of hidden_size"},
    {"deberta_conv5", "\"conv_groups\": 3", "\"conv_groups\": 2", "has the shape [24,8,5]; expected [24,12,5]"},
    {"deberta", "\"position_buckets\": 16", "\"conv_kernel_size\": 3, \"position_buckets\": 16",
     "tensor 'deberta.encoder.conv.conv.weight' is missing"},
    {"bert", "\"hidden_size\": 24", "\"hidden_size\": 48", "has the shape [40,24]; expected [40,48]"},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "encoder.layer.2"},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "is not in the model"},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4000", "4000 layers have at least 20000 tensors"},
    {"bert", "\"is_decoder\": false", "\"is_decoder\": true", "\"is_decoder\" is true"},
    {"bert", "\"vocab_size\": 40", "\"vocab_size\": -1", "\"vocab_size\" is not a whole number"},
    {"bert_head", "\"LABEL_0\"\n", "7\n", "\"id2label\""},
    {"mpnet", "\"relative_attention_num_buckets\": 32", "\"relative_attention_num_buckets\": 16",
     "\"relative_attention_num_buckets\" is not a whole number from 32 to 32"},
    {"deberta", "\"relative_attention\": true", "\"relative_attention\": false", "\"relative_attention\" is not true"},
    {"deberta", "\"c2p\"", "\"x2y\"", "\"pos_att_type\""},
    {"deberta", "\"layer_norm\"", "\"batch_norm\"", "\"norm_rel_ebd\""},
    {"deberta", "\"position_buckets\": 16", "\"position_buckets\": 18", "encoder.rel_embeddings.weight"},
    {"esm", "\"position_embedding_type\": \"rotary\"", "\"position_embedding_type\": \"relative_key\"",
     "\"position_embedding_type\" is neither \"rotary\" nor \"absolute\""},
    {"esm", "\"position_embedding_type\": \"rotary\"", "\"position_embedding_type\": \"absolute\"",
     "tensor 'embeddings.position_embeddings.weight' is missing"},
    {"esm1b", "\"position_embedding_type\": \"absolute\"", "\"position_embedding_type\": null",
     "is neither \"rotary\" nor \"absolute\""},
    {"esm", "\"mask_token_id\": 32", "\"mask_token_id\": null", "\"mask_token_id\" is missing"},
    {"esm", "\"mask_token_id\": 32", "\"mask_token_id\": 40", "\"mask_token_id\" is not a whole number from 0 to 39"},
    {"esm", "\"is_folding_model\": false", "\"is_folding_model\": true", "\"is_folding_model\" is true"},
    {"esm", "\"emb_layer_norm_before\": false", "\"emb_layer_norm_before\": true", "embeddings.layer_norm.weight"},
    {"esm", "\"num_attention_heads\": 3", "\"num_attention_heads\": 8", "heads of an odd width"},
    {"modernbert", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"", "\"rope_type\" is not \"default\""},
    {"modernbert", "\"rope_type\": \"default\"", "\"type\": \"linear\"", "\"type\" is not \"default\""},
    {"modernbert", "\"rope_type\": \"default\"", "\"type\": \"default\", \"factor\": 4",
     "\"full_attention\" has the key \"factor\", which is not supported"},
    {"modernbert", "\"rope_type\": \"default\"", "\"partial_rotary_factor\": 0.5", "the key \"partial_rotary_factor\""},
    {"modernbert", "\"full_attention\": {", "\"other_attention\": {",
     "\"rope_parameters\" has the key \"other_attention\", which is not supported"},
    {"modernbert", "\"full_attention\": {", "\"rope_theta\": 5000, \"full_attention\": {", "the key \"rope_theta\""},
    {"modernbert", "\"rope_parameters\": {", "\"rope_parameters\": {\"full_attention\": 7}, \"global_rope_theta\": {",
     "\"full_attention\" is not an object"},
    {"modernbert", "\"rope_parameters\": {", "\"rope_parameters\": [], \"global_rope_theta\": {",
     "\"rope_parameters\" is not an object"},
    {"modernbert", "\"full_attention\",\n", "\"other\",\n", "\"layer_types\""},
    {"modernbert", "\"layer_types\": [", "\"layer_types\": [\"full_attention\",",
     "\"layer_types\" does not have an entry for each layer"},
    {"modernbert", "\"sliding_attention\",\n", "7,\n", "\"layer_types\" has an entry that is neither full_attention"},
    {"modernbert", "\"rope_parameters\": {", "\"rope_parameters\": 7, \"global_rope_theta\": {", "is not an object"},
    {"roberta", "\"max_position_embeddings\": 515", "\"max_position_embeddings\": 2",
     "\"max_position_embeddings\" leaves no position after pad_token_id"},
    {"bert_head", "\"id2label\": {", "\"id2label\": {}, \"x\": {", "\"id2label\" does not have 1 to 65536 labels"},
    {"bert_head", "\"id2label\": {", "\"id2label\": {\"1\": \"x\"}, \"x\": {",
     "\"id2label\" does not name every number from 0 on with a text"},
    {"bert_head", "\"id2label\": {", "\"id2label\": null, \"num_labels\": 70000, \"x\": {",
     "\"num_labels\" is not a whole number from 1 to 65536"},
    {"bert_head", "\"id2label\": {", "\"id2label\": null, \"num_labels\": 5, \"x\": {", "classifier.weight"},
    {"bert", "\"model_type\": \"bert\"", "\"tokenizer_class\": 7, \"model_type\": \"bert\"",
     "\"tokenizer_class\" is not a text"},
    {"deberta", "\"c2p\"", "7", "\"pos_att_type\" is not a list or text of c2p and p2c"},
    {"deberta", "\"pos_att_type\": [", "\"pos_att_type\": \"c2p|c2c\", \"x\": [",
     "\"pos_att_type\" is not a list or text"},
    {"deberta", "\"layer_norm\"", "\"layer_norm|embedding\"", "\"norm_rel_ebd\" is neither"},
    {"deberta", "\"layer_norm\"", "\"none\"", "encoder.LayerNorm"},
    {"deberta", "\"position_buckets\": 16", "\"position_buckets\": 0", "encoder.rel_embeddings.weight"},
    {"deberta", "\"position_buckets\": 16", "\"embedding_size\": 7, \"position_buckets\": 16",
     "\"embedding_size\" is 7, which is not supported; it must be 24, as hidden_size"},
    {"deberta", "\"position_buckets\": 16", "\"attention_head_size\": 7, \"position_buckets\": 16",
     "\"attention_head_size\" is 7, which is not supported; it must be 8, the width of a head"},
};

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static char *read_text(const char *path)
{
    char *text = calloc(1, 1 << 16);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Open a model with a change. */
static rp_status open_changed(rp_encoder **m, const change *c)
{
    char folder[] = "/tmp/relpos-encoder-XXXXXX", path[400], weights[400], target[PATH_MAX];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, DATA "/%s/config.json", c->model);
    char *text = read_text(path), *at = strstr(text, c->from), *new = calloc(1, 1 << 17);
    if (at == NULL)
        fail_msg("%s: no %s", path, c->from);
    snprintf(new, 1 << 17, "%.*s%s%s", (int)(at - text), text, c->to, at + strlen(c->from));
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_text(path, new);
    snprintf(weights, sizeof weights, DATA "/%s/model.safetensors", c->model);
    assert_non_null(realpath(weights, target));
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    assert_int_equal(symlink(target, weights), 0);
    const rp_status status = rp_encoder_open(m, folder, NULL);
    unlink(path);
    unlink(weights);
    rmdir(folder);
    free(text);
    free(new);
    return status;
}

static void configurations(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
        rp_encoder *m;
        const rp_status status = open_changed(&m, &changes[k]);
        if (status == RP_OK || strstr(rp_encoder_last_error(), changes[k].says) == NULL)
            fail_msg("%s: %s gives: %s (expected ...%s...)", changes[k].model, changes[k].to,
                     status != RP_OK ? rp_encoder_last_error() : "no error", changes[k].says);
        assert_null(m);
    }
}

/* A change that makes only a part of the model impossible. */
typedef struct partial {
    change change;
    enum {
        HEAD,   /* logits, labels and scores */
        SCORES, /* scores of pairs */
        NOTHING
    } scope;
} partial;

static const partial partials[] = {
    {{"modernbert", "\"classifier_pooling\": \"cls\"", "\"classifier_pooling\": \"max\"", "\"classifier_pooling\""},
     HEAD},
    {{"modernbert", "\"classifier_activation\": \"gelu\"", "\"classifier_activation\": \"laplace\"",
      "\"classifier_activation\" is \"laplace\""},
     HEAD},
    {{"deberta", "\"pooler_hidden_act\": \"gelu\"", "\"pooler_hidden_act\": \"laplace\"",
      "\"pooler_hidden_act\" is \"laplace\""},
     HEAD},
    {{"deberta", "\"pooler_hidden_size\": 24", "\"pooler_hidden_size\": 7", "\"pooler_hidden_size\" is 7"}, HEAD},
    {{"deberta_c2p", "\"pooler_hidden_act\": \"gelu\"", "\"pooler_hidden_act\": \"laplace\"", ""}, NOTHING},
    {{"deberta_c2p", "\"pooler_hidden_size\": 24", "\"pooler_hidden_size\": 7", ""}, NOTHING},
    {{"deberta_c2p", "\"legacy\": true", "\"legacy\": false", ""}, NOTHING},
    {{"bert_head", "\"hidden_act\"", "\"sbert_ce_default_activation_function\": \"torch.nn.Softmax\", \"hidden_act\"",
      "the activation of scores is \"torch.nn.Softmax\""},
     SCORES},
    {{"bert_head", "\"hidden_act\"",
      "\"sentence_transformers\": {\"activation_fn\": \"torch.nn.Tanh\"}, \"hidden_act\"",
      "the activation of scores is \"torch.nn.Tanh\""},
     SCORES},
    {{"bert", "\"hidden_act\"", "\"sbert_ce_default_activation_function\": \"x.y\", \"hidden_act\"", ""}, NOTHING},
    {{"bert_head", "\"hidden_act\"", "\"sbert_ce_default_activation_function\": \"Softmax\", \"hidden_act\"",
      "the activation of scores is \"Softmax\""},
     SCORES},
    {{"bert_head", "\"hidden_act\"",
      "\"sentence_transformers\": {\"activation_fn\": \"torch.nn.Sigmoid\"}, \"hidden_act\"", ""},
     NOTHING},
    {{"bert_head", "\"hidden_act\"",
      "\"sentence_transformers\": {\"activation_fn\": \"torch.nn.Identity\"}, \"hidden_act\"", ""},
     NOTHING},
    {{"bert_head", "\"problem_type\": null", "\"problem_type\": \"regression\"", ""}, NOTHING},
    {{"bert_head", "\"problem_type\": null", "\"problem_type\": \"multi_label_classification\"", ""}, NOTHING},
    {{"modernbert", "\"layer_types\": [", "\"layer_types\": null, \"x\": [", ""}, NOTHING},
    {{"deberta", "\"pos_att_type\": [", "\"pos_att_type\": \"p2c||c2p\", \"x\": [", ""}, NOTHING},
    {{"deberta", "\"max_relative_positions\": -1", "\"max_relative_positions\": 128", ""}, NOTHING},
    {{"bert", "\"model_type\": \"bert\"", "\"tokenizer_class\": \"BertTokenizer\", \"model_type\": \"bert\"", ""},
     NOTHING},
};

/* Check what an opened model refuses. */
static void check_partial(const rp_encoder *m, const partial *p)
{
    const int32_t tokens[3] = {3, 4, 5};
    const rp_encoder_tokens sequence = {tokens, NULL, 3};
    const rp_encoder_text text = {"a", -1, "b", -1};
    float out[3 * 24];
    fine(rp_encoder_hidden(m, 1, &sequence, out, NULL, NULL));
    if (p->scope == HEAD) {
        refused(rp_encoder_logits(m, 1, &sequence, out, NULL, NULL), RP_E_UNSUPPORTED, p->change.says);
        refused(rp_encoder_classify(m, 1, &text, out, NULL, NULL), RP_E_UNSUPPORTED, p->change.says);
    } else if (rp_encoder_about(m)->labels > 0)
        fine(rp_encoder_logits(m, 1, &sequence, out, NULL, NULL));
    if (p->scope == SCORES || p->scope == HEAD)
        refused(rp_encoder_rerank(m, 0, NULL, NULL, NULL, NULL), RP_E_UNSUPPORTED, p->change.says);
    assert_int_equal(rp_encoder_about(m)->plain_scores == -1, p->scope == SCORES);
    assert_int_equal(rp_encoder_about(m)->why_no_scores != NULL, p->scope == SCORES || p->scope == HEAD);
}

static void partial_configurations(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof partials / sizeof *partials; k++) {
        rp_encoder *m;
        print_message("    %s: %s\n", partials[k].change.model, partials[k].change.to);
        fine(open_changed(&m, &partials[k].change));
        check_partial(m, &partials[k]);
        rp_encoder_close(m);
    }
}

/* ------------------------------------------------------------------------------------------------ names of tensors */

/* Write a model with other names of tensors to a folder. `rename` writes the new name, or returns false to leave the
 * tensor out. */
static void write_renamed(const char *model, const char *folder, bool (*rename)(const char *name, char to[200]))
{
    char path[400], err[IO_ERR_MAX], to[200];
    io_set from = {0}, set = {0};
    snprintf(path, sizeof path, DATA "/%s/model.safetensors", model);
    assert_int_equal(io_read(path, &from, NULL, err), IO_OK);
    for (size_t k = 0; k < from.n_arrays; k++) {
        const io_array *a = &from.arrays[k];
        if (rename(a->name, to))
            assert_int_equal(io_add(&set, to, a->dtype, a->ndim, a->shape, a->data, true), 0);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(io_write(path, IO_SAFETENSORS, &set, err), 0);
    io_free(&set);
    io_free(&from);
    snprintf(path, sizeof path, DATA "/%s/config.json", model);
    char *text = read_text(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_text(path, text);
    free(text);
}

static bool with_module(const char *name, char to[200])
{
    snprintf(to, 200, "module.%s", name);
    return true;
}

static bool as_in_2018(const char *name, char to[200])
{
    const char *norm = strstr(name, "LayerNorm.");
    snprintf(to, 200, "%s", name);
    if (norm != NULL)
        snprintf(to, 200, "%.*sLayerNorm.%s", (int)(norm - name), name, strstr(norm, "weight") ? "gamma" : "beta");
    return true;
}

static bool some_with_module(const char *name, char to[200])
{
    snprintf(to, 200, "%s%s", strstr(name, "layer.0") != NULL ? "module." : "", name);
    return true;
}

static bool as_adapter(const char *name, char to[200])
{
    snprintf(to, 200, "base_model.model.%.100s.lora_A.weight", name);
    return true;
}

static bool in_container(const char *name, char to[200])
{
    snprintf(to, 200, "encoder_q.%s", name);
    return true;
}

static bool without_head(const char *name, char to[200])
{
    snprintf(to, 200, "%s", name);
    return strstr(name, "classifier") == NULL;
}

static bool with_more(const char *name, char to[200])
{
    snprintf(to, 200, "%s%s", strstr(name, "classifier.bias") != NULL ? "cls.predictions." : "", name);
    return strstr(name, "classifier.weight") == NULL;
}

/* The first versions had the frequencies in each layer. */
static bool in_layers(const char *name, char to[200])
{
    const char *at = strstr(name, "rotary_embeddings.inv_freq");
    snprintf(to, 200, "%s%s", at != NULL ? "encoder.layer.0.attention.self." : "", name);
    return true;
}

/* transformers 5.24 writes this name. */
static bool in_all_layers(const char *name, char to[200])
{
    const char *at = strstr(name, "rotary_embeddings.inv_freq");
    snprintf(to, 200, "%s%s", at != NULL ? "encoder.layer.*.attention.self." : "", name);
    return true;
}

/* Give the frequencies to layer 1, and half of the 8 numbers of a bias to layer 0. */
static bool different_in_layers(const char *name, char to[200])
{
    const bool one = strstr(name, "rotary_embeddings.inv_freq") != NULL, other = strcmp(name, "pooler.dense.bias") == 0;
    snprintf(to, 200, "%s%s",
             one     ? "encoder.layer.1.attention.self."
             : other ? "encoder.layer.0.attention.self."
                     : "",
             other ? "rotary_embeddings.inv_freq" : name);
    return true;
}

/* Names that wrappers and older versions leave in files are understood or refused, as transformers does. */
static void tensor_names(void **state)
{
    static const struct {
        const char *model;
        bool (*rename)(const char *name, char to[200]);
        const char *says; /* NULL: the results do not change */
    } cases[] = {{"bert_head", with_module, NULL},
                 {"bert_head", as_in_2018, NULL},
                 {"bert_head", some_with_module, "the names of its tensors do not begin with module., except"},
                 {"bert_head", as_adapter, "it is an adapter of PEFT"},
                 {"bert_head", in_container, "the names of its tensors begin with encoder_q."},
                 {"bert_head", without_head, "tensor 'classifier.weight' is missing"},
                 {"bert_head", with_more, "tensor 'classifier.weight' is missing"},
                 {"esm", in_layers, NULL},
                 {"esm", in_all_layers, NULL},
                 {"esm", different_in_layers, "inv_freq' (all layers must have the same)"}};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char folder[] = "/tmp/relpos-encoder-XXXXXX", path[400];
        expected e;
        rp_encoder *m = open_model(cases[k].model, NULL, NULL);
        read_expected(&e, cases[k].model);
        float *right = hidden_of(m, e.n, e.sequence);
        const size_t bytes = (size_t)(e.rows * rp_encoder_about(m)->width) * sizeof *right;
        rp_encoder_close(m);
        assert_non_null(mkdtemp(folder));
        write_renamed(cases[k].model, folder, cases[k].rename);
        const rp_status status = rp_encoder_open(&m, folder, NULL);
        if (cases[k].says == NULL) {
            fine(status);
            float *found = hidden_of(m, e.n, e.sequence);
            assert_memory_equal(found, right, bytes);
            free(found);
            rp_encoder_close(m);
        } else if (status == RP_OK || strstr(rp_encoder_last_error(), cases[k].says) == NULL)
            fail_msg("case %d: %s (expected ...%s...)", (int)k, status != RP_OK ? rp_encoder_last_error() : "opened",
                     cases[k].says);
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        unlink(path);
        snprintf(path, sizeof path, "%s/config.json", folder);
        unlink(path);
        rmdir(folder);
        free(right);
        io_free(&e.set);
    }
}

static bool without_frequencies(const char *name, char to[200])
{
    snprintf(to, 200, "%s", name);
    return strstr(name, "rotary_embeddings") == NULL;
}

/* ESM rotates by the frequencies of the file, which may be rounded; without them, by those of rope_theta. */
static void frequencies(void **state)
{
    char folder[] = "/tmp/relpos-encoder-XXXXXX", path[400];
    expected e;
    rp_encoder *m = open_model("esm", NULL, NULL);
    const int64_t width = rp_encoder_about(m)->width;
    (void)state;
    read_expected(&e, "esm");
    float *right = hidden_of(m, e.n, e.sequence);
    rp_encoder_close(m);
    assert_non_null(mkdtemp(folder));
    write_renamed("esm", folder, without_frequencies);
    fine(rp_encoder_open(&m, folder, NULL));
    float *found = hidden_of(m, e.n, e.sequence);
    const double error = norm_of(found, right, e.rows * width) / norm_of(right, NULL, e.rows * width);
    assert_true(error > 1e-4 && error < 0.1);                         /* f16 rounds them by up to 1/2048 */
    assert_memory_equal(found, right, (size_t)width * sizeof *right); /* a sequence of one token */
    rp_encoder_close(m);
    free(found);
    free(right);
    io_free(&e.set);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_states),
        cmocka_unit_test(logits),
        cmocka_unit_test(activations),
        cmocka_unit_test(batch_and_threads),
        cmocka_unit_test(narrow_types),
        cmocka_unit_test(longest_sequences),
        cmocka_unit_test(arguments),
        cmocka_unit_test(configurations),
        cmocka_unit_test(partial_configurations),
        cmocka_unit_test(progress_and_cancelling),
        cmocka_unit_test(tensor_names),
        cmocka_unit_test(frequencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
