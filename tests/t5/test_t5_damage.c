/* test_t5_damage.c -- errors: checkpoints that are truncated or incomplete, that have wrong shapes or types, or that
 * name invalid files; arguments out of range. Also lets every allocation fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/folders.h"
#include "io/checkpoint.h"
#include "tests/starve.h"

#include <fcntl.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------------------------------ config.json */

static void test_config(void **state)
{
    static const struct {
        const char *from, *to, *words;
    } edits[] = {
        {"\"d_model\": 16", "\"d_model\": NaN", "config.json: line"},
        {"\"d_model\": 16", "\"d_model\": 1e999", "config.json: line"},
        {"\"d_model\": 16", "\"d_model\": -16", "\"d_model\" is not a whole number from 1"},
        {"\"d_model\": 16", "\"d_model\": 16.5", "\"d_model\" is not a whole number"},
        {"\"d_model\": 16", "\"d_model\": \"16\"", "\"d_model\" is not a whole number"},
        {"\"d_model\": 16", "\"d_model\": 99999999999", "\"d_model\" is not a whole number"},
        {"\"d_model\": 16", "\"d_modell\": 16", "\"d_model\" is missing"},
        {"\"d_model\": 16", "\"d_model\": 8", "has the shape [64,16]; expected [64,8]"},
        {"\"d_model\": 16", "\"d_model\": 8", " more (check that config.json and the weights belong to one model)"},
        {"\"vocab_size\": 64", "\"vocab_size\": 65", "'shared.weight' has the shape [64,16]; expected [65,16]"},
        {"\"vocab_size\": 64", "\"vocab_size\": 0", "\"vocab_size\" is not"},
        {"\"num_layers\": 2", "\"num_layers\": 3", "'encoder.block.2.layer.0.layer_norm.weight' is missing"},
        {"\"num_layers\": 2", "\"num_layers\": 1", "'encoder.block.1.layer.0.SelfAttention.k.weight' is not in"},
        {"\"num_layers\": 2", "\"num_layers\": 4097", "\"num_layers\" is not"},
        {"\"num_heads\": 3", "\"num_heads\": 2", "has the shape [24,16]; expected [16,16]"},
        {"\"num_heads\": 3", "\"num_heads\": 16777216", "times d_kv is too large"},
        {"\"num_heads\": 3", "\"num_heads\": 0", "\"num_heads\" is not a whole number from 1 to 16777216 (it is 0)"},
        {"\"num_heads\": 3", "\"num_heads\": 3.0", "(it is 3.0: write 3)"},
        {"\"d_kv\": 8", "\"d_kv\": 9", "has the shape [24,16]; expected [27,16]"},
        {"\"num_layers\": 2", "\"num_layers\": 1000000000", "\"num_layers\" is not a whole number from 1 to 4096"},
        {"\"num_decoder_layers\": 1", "\"num_decoder_layers\": 1000000000", "\"num_decoder_layers\" is not"},
        {"\"relative_attention_num_buckets\": 8", "\"relative_attention_num_buckets\": 0",
         "from 4 to 16777216 (it is 0)"},
        {"\"relative_attention_num_buckets\": 8", "\"relative_attention_num_buckets\": 1",
         "from 4 to 16777216 (it is 1)"},
        {"\"relative_attention_num_buckets\": 8", "\"relative_attention_num_buckets\": 2147483648",
         "(it is 2147483648)"},
        {"\"relative_attention_num_buckets\": 8", "\"relative_attention_num_buckets\": 10", "expected [10,3]"},
        {"\"relative_attention_max_distance\": 12", "\"relative_attention_max_distance\": 0", "(it is 0)"},
        {"\"relative_attention_max_distance\": 12", "\"relative_attention_max_distance\": 3",
         "max_distance, 3, must be above half"},
        {"\"relative_attention_num_buckets\": 8", "\"relative_attention_num_buckets\": 7", "must be even"},
        {"\"relative_attention_max_distance\": 12", "\"relative_attention_max_distance\": 4", "above half of it"},
        {"\"layer_norm_epsilon\": 1e-06", "\"layer_norm_epsilon\": -1",
         "\"layer_norm_epsilon\" is not a number from 0 to 1 (it is -1)"},
        {"[\n    1,", "[\n    64,", "\"eos_token_id\" is not a token"},
        {"[\n    1,", "[1, 2, 3, 4,", "\"eos_token_id\" has more than 8 numbers"},
        {"[\n    1,", "[\n    \"x\",", "\"eos_token_id\" is not a token"},
        {"\"dense_act_fn\": \"gelu_new\"", "\"dense_act_fn\": \"tanh\"", "the activation \"tanh\" is not supported"},
        {"\"model_type\": \"t5\"", "\"model_type\": \"bert\"", "model_type \"bert\" is not in the T5 family"},
        {"\"model_type\": \"t5\"", "\"model_type\": 5", "\"model_type\" is not a text"},
        {"{", "[{", "config.json: line"},
        {"\"d_kv\": 8", "\"d_kv\": 8, \"d_kv\": 8", "config.json: line"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof edits / sizeof *edits; n++) {
        copy_model("v11");
        edit("config.json", edits[n].from, edits[n].to);
        refuses(folder, edits[n].words);
    }
    copy_model("v11");
    write_text("config.json", "[]");
    refuses(folder, "it is not a JSON object");
    write_text("config.json", "");
    refuses(folder, "the file is empty");
    clear();
    refuses(folder, "there is no config.json in it");
    refuses("/nonexistent", "cannot be opened");
    static const struct {
        const char *text, *words;
    } settings[] = {{"\"num_beams\": 0", "\"num_beams\" is not a whole number"},
                    {"\"forced_bos_token_id\": 64", "\"forced_bos_token_id\" is not a whole number from 0 to 63"},
                    {"\"forced_eos_token_id\": 64", "\"forced_eos_token_id\" is not a token of the vocabulary"},
                    {"\"forced_eos_token_id\": [-1]", "\"forced_eos_token_id\" is not a token of the vocabulary"},
                    {"\"stop_strings\": [\"x\", \"\"]", "\"stop_strings\" is not a non-empty text or a list"},
                    {"\"stop_strings\": 3", "\"stop_strings\" is not a non-empty text or a list"},
                    {"\"bad_words_ids\": [[3], [64]]",
                     "\"bad_words_ids\" is not a token of the vocabulary, from 0 to 63 (it is 64)"},
                    {"\"bad_words_ids\": [[3], []]", "\"bad_words_ids\" contains a sequence without tokens"},
                    {"\"bad_words_ids\": [3]", "\"bad_words_ids\" is not a list of tokens"},
                    {"\"bad_words_ids\": 3", "\"bad_words_ids\" is not a list of lists"},
                    {"\"suppress_tokens\": [3, -1]", "\"suppress_tokens\" is not a token of the vocabulary"},
                    {"\"suppress_tokens\": {}", "\"suppress_tokens\" is not a list of tokens"},
                    {"\"begin_suppress_tokens\": [1.5]",
                     "\"begin_suppress_tokens\" is not a token of the vocabulary, from 0 to 63 (it is 1.5)"}};
    for (size_t n = 0; n < sizeof settings / sizeof *settings; n++) {
        char text[200];
        snprintf(text, sizeof text, "\"pad_token_id\": 0, %s", settings[n].text);
        copy_model("v11");
        edit("generation_config.json", "\"pad_token_id\": 0", text);
        refuses(folder, settings[n].words);
    }
}

/* Without model_type, the classes in `architectures` say it, if they are of one type. */
static void test_classes(void **state)
{
    static const struct {
        const char *classes, *words; /* words = NULL: it opens */
    } cases[] = {{"\"T5ForConditionalGeneration\", \"T5Model\", \"T5EncoderModel\"", NULL},
                 {"\"T5Model\", \"MT5Model\"", "\"architectures\" names no class of the T5 family"},
                 {"\"T5Model\", 7", "\"architectures\" names no class of the T5 family"},
                 {"7, \"T5Model\"", "\"architectures\" names no class of the T5 family"},
                 {"\"BertModel\"", "\"architectures\" names no class of the T5 family"},
                 {"", "\"model_type\" is missing (add it: t5, byt5"}};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        rp_t5 *m;
        copy_model("v11");
        edit("config.json", "\"model_type\": \"t5\"", "\"x\": 0");
        edit("config.json", "\"T5ForConditionalGeneration\"", cases[n].classes);
        if (cases[n].words != NULL) {
            refuses(folder, cases[n].words);
            continue;
        }
        fine(rp_t5_open(&m, folder, NULL));
        rp_t5_close(m);
    }
    copy_model("longt5_local");
    edit("config.json", "\"encoder_attention_type\": \"local\"", "\"encoder_attention_type\": \"global\"");
    refuses(folder, "\"encoder_attention_type\" is not local or transient-global");
}

/* Settings of generation_config.json that replace defaults. */
static void test_generation(void **state)
{
    static const struct {
        const char *text, *words; /* words = NULL: it opens, and gives the other settings */
        rp_t5_stopping stops;
        int64_t longest, shortest;
        bool unsupported;
    } cases[] = {
        {"\"early_stopping\": \"never\"", NULL, RP_T5_STOP_NEVER_EARLY, 256, 0, false},
        {"\"early_stopping\": true", NULL, RP_T5_STOP_FIRST, 256, 0, false},
        {"\"early_stopping\": false", NULL, RP_T5_STOP_LIKELY, 256, 0, false},
        {"\"early_stopping\": \"soon\"", "\"early_stopping\" is not true, false or \"never\"", 0, 0, 0, false},
        {"\"early_stopping\": 1", "\"early_stopping\" is not true, false or \"never\"", 0, 0, 0, false},
        {"\"max_length\": 40, \"min_length\": 5", NULL, RP_T5_STOP_LIKELY, 39, 4, false},
        {"\"max_length\": 1, \"min_length\": 1", NULL, RP_T5_STOP_LIKELY, 256, 0, true},
        {"\"max_length\": 1, \"max_new_tokens\": 7", NULL, RP_T5_STOP_LIKELY, 7, 0, false},
        {"\"max_new_tokens\": 0", "\"max_new_tokens\" is not a whole number from 1", 0, 0, 0, false},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char text[200];
        rp_t5 *m;
        snprintf(text, sizeof text, "\"pad_token_id\": 0, %s", cases[n].text);
        copy_model("v11");
        edit("generation_config.json", "\"pad_token_id\": 0", text);
        if (cases[n].words != NULL) {
            refuses(folder, cases[n].words);
            continue;
        }
        fine(rp_t5_open(&m, folder, NULL));
        const rp_t5_generation g = rp_t5_generation_of(m);
        assert_int_equal(g.early_stopping, cases[n].stops);
        assert_int_equal(g.max_new_tokens, cases[n].longest);
        assert_int_equal(g.min_new_tokens, cases[n].shortest);
        assert_int_equal(g.unsupported != NULL, cases[n].unsupported);
        rp_t5_close(m);
    }
    rp_t5 *m;
    copy_model("v11");
    edit("generation_config.json", "\"decoder_start_token_id\": 0", "\"decoder_start_token_id\": 3");
    fine(rp_t5_open(&m, folder, NULL));
    assert_int_equal(rp_t5_about(m)->start, 3);
    bool noted = false;
    for (int64_t n = 0; rp_t5_note(m, n) != NULL; n++)
        noted = noted || strstr(rp_t5_note(m, n), "targets begin with token 3, although config.json says 0");
    assert_true(noted);
    rp_t5_close(m);
}

/* Before allocating anything, opening a model compares config.json with the tensors in the files. Otherwise 268 million
 * experts would take minutes and gigabytes. */
static void test_sizes(void **state)
{
    static const char *const experts[] = {"100", "65536"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        copy_model("switch");
        edit("config.json", "\"num_experts\": 3", k == 0 ? "\"num_experts\": 100" : "\"num_experts\": 65536");
        edit("config.json", "\"num_layers\": 2", k == 0 ? "\"num_layers\": 100" : "\"num_layers\": 4096");
        edit("config.json", "\"num_sparse_encoder_layers\": 1",
             k == 0 ? "\"num_sparse_encoder_layers\": 100" : "\"num_sparse_encoder_layers\": 4096");
        char words[100];
        snprintf(words, sizeof words, "layers, %s experts have at least", experts[k]);
        refuses(folder, words);
        refuses(folder, " tensors, but there are ");
    }
}

/* Without decoder_start_token_id, targets begin with bos_token_id from either file; if both lack it, they begin with
 * padding. */
static void test_start(void **state)
{
    char path[300];
    rp_t5 *m;
    (void)state;
    for (int n = 0; n < 3; n++) {
        copy_model("v11");
        edit("config.json", "\"decoder_start_token_id\": 0", n == 0 ? "\"bos_token_id\": 7" : "\"x\": 0");
        edit("generation_config.json", "\"decoder_start_token_id\": 0", n == 1 ? "\"bos_token_id\": 7" : "\"x\": 0");
        path_to(path, "generation_config.json");
        if (n != 1)
            unlink(path);
        fine(rp_t5_open(&m, folder, NULL));
        assert_int_equal(rp_t5_about(m)->start, n < 2 ? 7 : 0);
        rp_t5_close(m);
    }
}

/* If generation_config.json has an unsupported setting, generating text is an error. */
static void test_unsupported(void **state)
{
    rp_t5 *m;
    rp_t5_results *r;
    const int32_t token = 5;
    const rp_t5_tokens source = {&token, 1};
    (void)state;
    static const char *const keys[] = {"\"sequence_bias\": [[[3], 1.5]]",
                                       "\"forced_eos_token_id\": [1, 2]",
                                       "\"max_time\": 2.5",
                                       "\"renormalize_logits\": true",
                                       "\"watermarking_config\": {}",
                                       "\"exponential_decay_length_penalty\": [5, 1.1]",
                                       "\"guidance_scale\": 1.5",
                                       "\"encoder_no_repeat_ngram_size\": 3",
                                       "\"typical_p\": 0.9",
                                       "\"num_beam_groups\": 2",
                                       "\"constraints\": [1]"};
    static const char *const neutral =
        "\"renormalize_logits\": false, \"max_time\": null, \"stop_strings\": [], \"num_beam_groups\": 1, "
        "\"diversity_penalty\": 0.0, \"typical_p\": 1.0, \"bad_words_ids\": null, \"suppress_tokens\": [], "
        "\"forced_eos_token_id\": [1]";
    rp_t5_generation g;
    for (size_t k = 0; k < sizeof keys / sizeof *keys + 1; k++)
        /* without generation_config.json the settings are read from config.json */
        for (int config = 0; config < 2; config++) {
            const bool refused = k < sizeof keys / sizeof *keys;
            char path[300], text[400];
            snprintf(text, sizeof text, "\"pad_token_id\": 0, %s", refused ? keys[k] : neutral);
            copy_model("v11");
            edit(config ? "config.json" : "generation_config.json", "\"pad_token_id\": 0", text);
            path_to(path, "generation_config.json");
            if (config)
                unlink(path);
            fine(rp_t5_open(&m, folder, NULL));
            g = rp_t5_generation_of(m);
            const rp_status status = rp_t5_generate(m, 1, &source, &g, &r);
            assert_int_equal(status, refused ? RP_E_UNSUPPORTED : RP_OK);
            if (refused) {
                snprintf(text, sizeof text, "%.*s\"", (int)strcspn(keys[k] + 1, "\"") + 1, keys[k]);
                if (strstr(rp_t5_last_error(), text) == NULL || strstr(rp_t5_last_error(), "packed again") == NULL)
                    fail_msg("'%s' does not contain '%s'", rp_t5_last_error(), text);
                g.unsupported = NULL; /* the caller accepts that the setting is ignored */
                fine(rp_t5_generate(m, 1, &source, &g, &r));
            }
            rp_t5_results_free(r);
            rp_t5_close(m);
        }
    fine(rp_t5_open(&m, DATA "/v11", NULL));
    g = rp_t5_generation_of(NULL);
    assert_int_equal(g.beams, 1);
    fine(rp_t5_generate(m, 1, &source, &g, &r));
    rp_t5_results_free(r);
    rp_t5_close(m);
}

/* A value of generation_config.json that is out of range is an error that names the file and the key, if the value has
 * an effect. */
static void test_settings(void **state)
{
    static const struct {
        const char *text, *words;
        int32_t sample, beams;
        rp_status status;
    } cases[] = {
        {"\"num_return_sequences\": 3", "\"num_return_sequences\" is 3; it must be 1 to 4096, and", 0, 1, RP_E_RANGE},
        {"\"num_return_sequences\": 3", "\"num_return_sequences\" is 3; it must be 1 to 4096, and", 0, 2, RP_E_RANGE},
        {"\"num_return_sequences\": 3", NULL, 0, 3, RP_OK},
        {"\"num_return_sequences\": 3", NULL, 1, 1, RP_OK},
        {"\"num_beams\": 33", "\"num_beams\" is 33; it must be 1 to 4096, and", 0, 33, RP_E_RANGE},
        {"\"temperature\": 0", "\"temperature\" is 0; it must be above 0", 1, 1, RP_E_RANGE},
        {"\"temperature\": 0.0", NULL, 0, 1, RP_OK},
        {"\"temperature\": 0.0", NULL, 0, 2, RP_OK},
        {"\"top_p\": 0", "\"top_p\" is 0; it must be above 0", 1, 1, RP_E_RANGE},
        {"\"top_p\": 0", NULL, 0, 1, RP_OK},
    };
    const int32_t token = 5;
    const rp_t5_tokens source = {&token, 1};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char text[200], words[200] = "";
        rp_t5_results *r;
        rp_t5 *m;
        snprintf(text, sizeof text, "\"pad_token_id\": 0, %s", cases[n].text);
        copy_model("v11");
        edit("generation_config.json", "\"pad_token_id\": 0", text);
        fine(rp_t5_open(&m, folder, NULL));
        rp_t5_generation g = settings_of(m);
        g.sample = cases[n].sample;
        g.beams = cases[n].beams;
        const rp_status status = rp_t5_generate(m, 1, &source, &g, &r);
        if (cases[n].words != NULL)
            snprintf(words, sizeof words, "generation_config.json: %s", cases[n].words);
        if (status != cases[n].status || (status != RP_OK && strstr(rp_t5_last_error(), words) == NULL))
            fail_msg("%s: %s: '%s' does not contain '%s'", cases[n].text, rp_status_name(status), rp_t5_last_error(),
                     words);
        rp_t5_results_free(r);
        rp_t5_close(m);
    }
}

/* ------------------------------------------------------------------------------------------------ tensors */

static void test_tensors(void **state)
{
    const int64_t one = 1;
    static const float zero = 0;
    io_set set;
    (void)state;
    copy_model("v11"); /* rename each tensor in turn */
    read_weights(&set);
    const size_t n_arrays = set.n_arrays;
    io_free(&set);
    for (size_t n = 0; n < n_arrays; n++) {
        char words[300];
        copy_model("v11");
        read_weights(&set);
        io_array *a = &set.arrays[n];
        const bool head = strcmp(a->name, "lm_head.weight") == 0; /* without lm_head, the embedding is used as head */
        if (head)
            snprintf(words, sizeof words, ": tensor 'zm_head.weight' is not in the model (");
        else
            snprintf(words, sizeof words, ": tensor '%s' is missing; tensor 'z%s' is not in the model (check", a->name,
                     a->name + 1);
        a->name[0] = 'z';
        write_weights(&set);
        io_free(&set);
        refuses(folder, words);
    }
    copy_model("v11"); /* change the shape, but not the number of elements */
    read_weights(&set);
    array_named(&set, "encoder.block.0.layer.0.SelfAttention.q.weight")->shape[0] = 16;
    array_named(&set, "encoder.block.0.layer.0.SelfAttention.q.weight")->shape[1] = 24;
    write_weights(&set);
    io_free(&set);
    refuses(folder, "'encoder.block.0.layer.0.SelfAttention.q.weight' has the shape [16,24]; expected [24,16]");
    copy_model("v11"); /* change the type */
    read_weights(&set);
    array_named(&set, "decoder.final_layer_norm.weight")->dtype = RP_I32;
    write_weights(&set);
    io_free(&set);
    refuses(folder, "'decoder.final_layer_norm.weight' has the type i32");
    copy_model("v11"); /* add a tensor that the model does not have */
    read_weights(&set);
    assert_int_equal(io_add(&set, "encoder.block.0.adapter.weight", RP_F32, 1, &one, (void *)(uintptr_t)&zero, true),
                     0);
    write_weights(&set);
    io_free(&set);
    refuses(folder, "'encoder.block.0.adapter.weight' is not in the model (check");
}

/* The embedding may be stored again under a second name. Equal numbers are ignored and different ones are an error, for
 * every member of the T5 family. */
static void test_second_embeddings(void **state)
{
    static const char *const models[] = {"t5", "v11", "mt5", "umt5", "byt5", "longt5_local", "switch"};
    static const char *const names[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        for (int n = 0; n < 4; n++) {
            io_set set;
            char words[200];
            const bool differs = n / 2;
            copy_model(models[k]);
            read_weights(&set);
            const io_array *a = array_named(&set, "shared.weight");
            unsigned char *numbers = malloc(a->bytes);
            assert_non_null(numbers);
            memcpy(numbers, a->data, a->bytes);
            numbers[a->bytes - 2] ^= differs; /* change a bit of the last number */
            const io_array *there = array_named(&set, names[n % 2]);
            if (there != NULL)
                memcpy(there->data, numbers, there->bytes);
            else
                assert_int_equal(io_add(&set, names[n % 2], a->dtype, 2, a->shape, numbers, true), 0);
            write_weights(&set);
            io_free(&set);
            free(numbers);
            snprintf(words, sizeof words, "'%s' differs from 'shared.weight'", names[n % 2]);
            if (differs) {
                refuses(folder, words);
                continue;
            }
            rp_t5 *m;
            fine(rp_t5_open(&m, folder, NULL));
            rp_t5_close(m);
        }
}

static void test_truncated(void **state)
{
    size_t size;
    char path[300];
    (void)state;
    copy_model("t5");
    path_to(path, "model.safetensors");
    char *bytes = read_bytes(path, &size);
    for (size_t n = 0; n < size; n += n < 64 ? 1 : 499) {
        write_bytes("model.safetensors", bytes, n);
        refuses(folder, "model.safetensors: ");
    }
    bytes[size] = 0;
    write_bytes("model.safetensors", bytes, size + 1);
    refuses(folder, "model.safetensors: the tensors end at byte");
    free(bytes);
    path_to(path, "model.safetensors");
    unlink(path);
    refuses(folder, "neither model.safetensors nor pytorch_model.bin");
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody ever writes to this pipe */
    refuses(folder, "not a regular file");
}

static void test_shards(void **state)
{
    char path[300];
    rp_t5 *m;
    (void)state;
    copy_model("encoder");
    fine(rp_t5_open(&m, folder, NULL));
    rp_t5_close(m);
    path_to(path, "model-00002-of-00002.safetensors");
    unlink(path);
    refuses(folder, "weight_map names model-00002-of-00002.safetensors, but there is no such file");
    copy_model("encoder");
    edit("model.safetensors.index.json", "model-00001-of-00002", "../model-00001-of-00002");
    refuses(folder,
            "weight_map names '../model-00001-of-00002.safetensors' (shards must be in the folder of the index)");
    copy_model("encoder");
    edit("model.safetensors.index.json", "\"model-00001-of-00002.safetensors\"", "\"/etc/passwd\"");
    refuses(folder, "weight_map names '/etc/passwd'");
    copy_model("encoder");
    edit("model.safetensors.index.json", "\"model-00001-of-00002.safetensors\"", "7");
    refuses(folder, "names no file for tensor");
    copy_model("encoder");
    edit("model.safetensors.index.json", "\"model-00001-of-00002.safetensors\"",
         "\"model-00002-of-00002.safetensors\"");
    refuses(folder, "but it is in model-00001-of-00002.safetensors (correct the index)");
    copy_model("encoder");
    edit("model.safetensors.index.json", "\"weight_map\"", "\"map\"");
    refuses(folder, "it has no weight_map");
    copy_model("encoder");
    write_text("model.safetensors.index.json", "{\"weight_map\": ");
    refuses(folder, "model.safetensors.index.json: line 1");
}

/* The text encoder of an image model has 8-bit floats, which are read correctly. */
static void test_f8(void **state)
{
    char path[300], *at;
    size_t size;
    rp_t5 *m;
    (void)state;
    clear();
    write_text("config.json", "{\"model_type\": \"t5\", \"vocab_size\": 2, \"d_model\": 1, \"d_kv\": 1, \"num_heads\": "
                              "1, \"d_ff\": 1, \"num_layers\": 1, "
                              "\"relative_attention_num_buckets\": 4}");
    static const struct {
        const char *name, *shape;
        int bytes;
    } tensors[] = {{"shared.weight", "2,1", 2},
                   {"encoder.block.0.layer.0.SelfAttention.q.weight", "1,1", 1},
                   {"encoder.block.0.layer.0.SelfAttention.k.weight", "1,1", 1},
                   {"encoder.block.0.layer.0.SelfAttention.v.weight", "1,1", 1},
                   {"encoder.block.0.layer.0.SelfAttention.o.weight", "1,1", 1},
                   {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "4,1", 4},
                   {"encoder.block.0.layer.0.layer_norm.weight", "1", 1},
                   {"encoder.block.0.layer.1.DenseReluDense.wi.weight", "1,1", 1},
                   {"encoder.block.0.layer.1.DenseReluDense.wo.weight", "1,1", 1},
                   {"encoder.block.0.layer.1.layer_norm.weight", "1", 1},
                   {"encoder.final_layer_norm.weight", "1", 1}};
    char *file = calloc(1, 1 << 16);
    at = file + 8;
    int begin = 0;
    for (size_t n = 0; n < sizeof tensors / sizeof *tensors; n++) {
        at += sprintf(at, "%c\"%s\":{\"dtype\":\"F8_E4M3\",\"shape\":[%s],\"data_offsets\":[%d,%d]}", n ? ',' : '{',
                      tensors[n].name, tensors[n].shape, begin, begin + tensors[n].bytes);
        begin += tensors[n].bytes;
    }
    *at++ = '}';
    const uint64_t header = (uint64_t)(at - file - 8);
    memcpy(file, &header, 8);
    memset(at, 0, (size_t)begin);
    at[begin - 1] = 0x44; /* the last norm: 2^(8-7) * 1.5 = 3 */
    at[0] = 0x01;         /* the smallest number, 2^-9 */
    at[1] = (char)0xfe;   /* the largest in size, -448 */
    size = (size_t)(at - file) + (size_t)begin;
    write_bytes("model.safetensors", file, size);
    free(file);
    path_to(path, "model.safetensors");
    fine(rp_t5_open(&m, folder, NULL));
    assert_string_equal(rp_t5_about(m)->type, "bf16");
    const int32_t both[2] = {0, 1};
    const rp_t5_tokens source = {both, 2};
    float out[2];
    fine(rp_t5_encode(m, 1, &source, out, NULL, NULL)); /* expected: x / sqrt(x^2 + 1e-6) times 3 */
    const double small = 3 * ldexp(1, -9) / sqrt(ldexp(1, -18) + 1e-6);
    if (!(fabs((double)out[0] - small) <= 1e-6 * small && fabs((double)out[1] + 3) <= 1e-6))
        fail_msg("%.9g and %.9g, not %.9g and -3", (double)out[0], (double)out[1], small);
    rp_t5_close(m);
}

/* An f16 file stays f16 in memory, and gives bit-identical results to the same file widened to f32. */
static void test_f16(void **state)
{
    const int32_t tokens[] = {5, 9, 33, 2}, target[] = {7, 8, 1};
    const rp_t5_tokens source = {tokens, 4}, to = {target, 3};
    rp_t5_opening full = rp_t5_opening_init();
    rp_t5 *m, *wide;
    double x, y;
    io_set set;
    (void)state;
    copy_model("v11");
    read_weights(&set);
    for (size_t n = 0; n < set.n_arrays; n++) { /* in place, because f16 is not wider than the type in the file */
        io_array *a = &set.arrays[n];
        const int64_t numbers = (int64_t)(a->bytes / rp_dtype_size(a->dtype));
        uint16_t *halves = malloc((size_t)numbers * sizeof *halves);
        fine(rp_convert(halves, RP_F16, a->data, a->dtype, numbers));
        memcpy(a->data, halves, (size_t)numbers * sizeof *halves);
        free(halves);
        a->dtype = RP_F16;
        a->bytes = (size_t)numbers * sizeof *halves;
    }
    write_weights(&set);
    io_free(&set);
    full.type = "f32";
    fine(rp_t5_open(&m, folder, NULL));
    fine(rp_t5_open(&wide, folder, &full));
    assert_string_equal(rp_t5_about(m)->type, "f16");
    assert_true(rp_t5_about(m)->step_bytes * 2 == rp_t5_about(wide)->step_bytes);
    fine(rp_t5_score(m, source, to, &x, NULL, NULL, NULL));
    fine(rp_t5_score(wide, source, to, &y, NULL, NULL, NULL));
    assert_memory_equal(&x, &y, sizeof x);
    rp_t5_close(m);
    rp_t5_close(wide);
}

/* Non-finite numbers are detected in every type. */
static void test_not_finite(void **state)
{
    static const uint8_t f8[] = {0x7e, 0x7f, 0xff, 0x78};
    static const uint16_t f16[] = {0x7bff, 0x7c00, 0xfc01, 0x7800}, bf16[] = {0x7f7f, 0x7f80, 0xff81, 0x7f00};
    static const float f32[] = {3e38F, INFINITY, -NAN, 1e-44F};
    static const double f64[] = {1e308, -(double)INFINITY, (double)NAN, 1e-310};
    const struct {
        rp_dtype type;
        const void *data;
        size_t bytes;
    } cases[] = {{IO_F8_E4M3, f8, sizeof f8},
                 {RP_F16, f16, sizeof f16},
                 {RP_BF16, bf16, sizeof bf16},
                 {RP_F32, f32, sizeof f32},
                 {RP_F64, f64, sizeof f64}};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const io_tensor t = {.dtype = cases[k].type, .data = cases[k].data, .bytes = cases[k].bytes};
        assert_int_equal(io_tensor_not_finite(&t), 2);
    }
    static uint32_t words[1300]; /* longer than one block */
    static uint16_t halves[1300];
    words[511] = words[1299] = 0x7f800000;
    halves[512] = halves[1298] = 0x7f80;
    const io_tensor long_words = {.dtype = RP_F32, .data = (unsigned char *)words, .bytes = sizeof words},
                    long_halves = {.dtype = RP_BF16, .data = (unsigned char *)halves, .bytes = sizeof halves};
    assert_int_equal(io_tensor_not_finite(&long_words), 2);
    assert_int_equal(io_tensor_not_finite(&long_halves), 2);
}

/* The array with the bytes of the tokenizer's file may have no unknown type. */
static void test_packed_tokenizer(void **state)
{
    char path[300];
    size_t size;
    rp_t5 *m = open_model("proteins/prott5", "f32", NULL);
    (void)state;
    clear();
    path_to(path, "packed");
    fine(rp_t5_pack(m, path));
    rp_t5_close(m);
    char *bytes = read_bytes(path, &size), *type = memmem(bytes, size, "\"tokenizer\":{\"dtype\":\"U8\"", 25);
    assert_non_null(type);
    memcpy(strstr(type, "dtype") + 8, "U9", 2);
    write_bytes("packed", bytes, size);
    refuses(path, "its array 'tokenizer' must have bytes, of the dtype U8 (pack the folder again)");
    free(bytes);
}

static void test_packed(void **state)
{
    char path[300], other[300];
    size_t size;
    rp_t5 *m = open_model("v11", "int8", NULL);
    rp_t5_opening o = rp_t5_opening_init();
    (void)state;
    clear();
    path_to(path, "packed");
    fine(rp_t5_pack(m, path));
    o.type = "f32";
    rp_t5 *opened;
    assert_int_equal(rp_t5_open(&opened, path, &o), RP_E_ARG);
    assert_non_null(strstr(rp_t5_last_error(), "its weights are int8 and not f32"));
    char *bytes = read_bytes(path, &size);
    for (size_t n = 0; n < size; n += 97) {
        write_bytes("cut", bytes, n);
        path_to(other, "cut");
        refuses(other, "");
    }
    char *layout = memmem(bytes, size, "\"layout\":\"1\"", 12);
    assert_non_null(layout);
    path_to(other, "cut");
    layout[10] = '2';
    write_bytes("cut", bytes, size);
    refuses(other, "its weights have layout 2, but this version reads layout 1 (pack the folder again)");
    memcpy(layout, "\"lay-ut\"", 8);
    write_bytes("cut", bytes, size);
    refuses(other, "its weights have layout unknown");
    free(bytes);
    path_to(other, "none/there");
    assert_int_equal(rp_t5_pack(m, other), RP_E_ARG);
    assert_int_not_equal(access(other, F_OK), 0);
    copy_model("v11");
    path_to(other, "expected.safetensors");
    refuses(other, "not a file of `relpos t5 pack`, and it has no T5 encoder");
    path_to(other, "model.safetensors");
    rp_t5_close(m);
    fine(rp_t5_open(&m, folder, NULL)); /* a model is never written over a file that it was read from */
    assert_int_equal(rp_t5_reads(m, other), 1);
    assert_int_equal(rp_t5_pack(m, other), RP_E_ARG);
    assert_non_null(strstr(rp_t5_last_error(), "the model was read from this file"));
    path_to(other, "generation_config.json");
    assert_int_equal(rp_t5_reads(m, other), 1);
    path_to(other, "expected.safetensors");
    assert_int_equal(rp_t5_reads(m, other), 0);
    path_to(path, "packed");
    assert_int_equal(rp_t5_reads(m, path), 0);
    fine(rp_t5_pack(m, path));
    rp_t5_close(m);
    fine(rp_t5_open(&m, path, NULL));
    assert_int_equal(rp_t5_pack(m, path), RP_E_ARG);
    rp_t5_close(m);
}

/* A single file of weights is refused if its shapes do not belong together. */
static void test_single(void **state)
{
    (void)state;
    static const struct {
        const char *words, *scale;
        int64_t q_rows, heads, ff_columns;
    } cases[] = {
        {"has 0 heads, which do not divide the 24 rows of q", NULL, 24, 0, 16},
        {"has 5 heads, which do not divide the 24 rows of q", NULL, 24, 5, 16},
        {"SelfAttention.q.weight' is not a matrix with rows (convert", NULL, 0, 3, 16},
        {"wi.weight' has the shape [8,15]; expected [8,16]", NULL, 24, 3, 15},
        {"q.weight': its scale_weight is for 8-bit floats, but its numbers have the type f32 (remove the scale",
         "encoder.block.0.layer.0.SelfAttention.q.scale_weight", 24, 3, 16},
        {"tensor 'encoder.block.0.layer.0.SelfAttention.k.weight' is missing", NULL, 24, 3, 16},
    };
    static const float zeros[512];
    char path[300], err[IO_ERR_MAX];
    clear();
    path_to(path, "single.safetensors");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const struct {
            const char *name;
            int64_t rows, columns;
        } tensors[] = {{"shared.weight", 9, 16},
                       {"encoder.block.0.layer.0.SelfAttention.q.weight", cases[k].q_rows, 16},
                       {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 8, cases[k].heads},
                       {"encoder.block.0.layer.1.DenseReluDense.wi.weight", 8, cases[k].ff_columns},
                       {"a", 1, 1},
                       {"b", 1, 1},
                       {"c", 1, 1},
                       {"scaled_fp8", 1, 1},
                       {cases[k].scale, 2, 1}};
        io_set set = {0};
        for (size_t n = 0; n < 8 + (cases[k].scale != NULL); n++)
            assert_int_equal(io_add(&set, tensors[n].name, RP_F32, 2, (int64_t[]){tensors[n].rows, tensors[n].columns},
                                    (void *)(uintptr_t)zeros, true),
                             0);
        assert_int_equal(io_write(path, IO_SAFETENSORS, &set, err), 0);
        io_free(&set);
        refuses(path, cases[k].words);
        assert_null(strstr(rp_t5_last_error(), "config.json")); /* there is none */
        assert_null(strstr(rp_t5_last_error(), "download"));    /* the file is whole */
    }
}

/* Without any one of its tensors, a single file is refused by the name of this tensor. */
static void test_single_without(void **state)
{
    char path[300], words[300];
    io_set set;
    (void)state;
    path_to(path, "model.safetensors");
    copy_model("v11");
    read_weights(&set);
    const size_t n_arrays = set.n_arrays;
    io_free(&set);
    for (size_t n = 0; n < n_arrays; n++) {
        copy_model("v11");
        read_weights(&set);
        const bool head = strcmp(set.arrays[n].name, "lm_head.weight") == 0,
                   q = strcmp(set.arrays[n].name, "encoder.block.0.layer.0.SelfAttention.q.weight") == 0,
                   wi = strcmp(set.arrays[n].name, "encoder.block.0.layer.1.DenseReluDense.wi_0.weight") == 0;
        snprintf(words, sizeof words, "tensor '%s' is missing",
                 strcmp(set.arrays[n].name, "shared.weight") == 0 ? "encoder.embed_tokens.weight" : set.arrays[n].name);
        set.arrays[n].name[0] = 'z';
        write_weights(&set);
        io_free(&set);
        refuses(path, head ? "tensor 'zm_head.weight' is not in the model"
                      : q  ? "it has no T5 encoder"
                      : wi ? "DenseReluDense.wi.weight' is missing"
                           : words);
        assert_null(strstr(rp_t5_last_error(), "config.json"));
        assert_null(strstr(rp_t5_last_error(), "download"));
    }
}

#define REFUSED(status, words, call)                                                                                   \
    do {                                                                                                               \
        assert_int_equal(call, status);                                                                                \
        if (strstr(rp_t5_last_error(), words) == NULL)                                                                 \
            fail_msg("'%s' does not contain '%s'", rp_t5_last_error(), words);                                         \
    } while (0)

static int cancel_later(void *context, double share)
{
    (void)share;
    return --*(int *)context < 0;
}

/* A packed file records the folder it was made from. Every changed byte is detected, when the file is opened or by its
 * checksum. */
static void test_checksum(void **state)
{
    char path[300], other[300];
    size_t size;
    (void)state;
    copy_model("v11");
    path_to(path, "packed");
    path_to(other, "changed");
    rp_t5 *m, *again;
    fine(rp_t5_open(&m, folder, NULL));
    assert_int_equal(rp_t5_about(m)->packed, 0);
    REFUSED(RP_E_UNSUPPORTED, "read from a folder, which has no checksum", rp_t5_check_file(m, NULL, NULL));
    fine(rp_t5_pack(m, path));
    rp_t5_close(m);
    fine(rp_t5_open(&m, path, NULL));
    fine(rp_t5_check_file(m, NULL, NULL));
    int left = 2;
    REFUSED(RP_E_CANCELLED, "cancelled", rp_t5_check_file(m, cancel_later, &left));
    assert_int_equal(rp_t5_about(m)->packed, 2);
    assert_string_equal(rp_t5_about(m)->source, strrchr(folder, '/') + 1);
    assert_int_equal(strlen(rp_t5_about(m)->source_checksum), 16);
    fine(rp_t5_pack(m, other)); /* packing it again records the same source */
    fine(rp_t5_open(&again, other, NULL));
    fine(rp_t5_check_file(again, NULL, NULL));
    assert_string_equal(rp_t5_about(again)->source, rp_t5_about(m)->source);
    assert_string_equal(rp_t5_about(again)->source_checksum, rp_t5_about(m)->source_checksum);
    rp_t5_close(again);
    rp_t5_close(m);

    char *bytes = read_bytes(path, &size);
    int opened = 0, changed = 0;
    for (size_t n = 0; n < size; n += n < 2000 ? 7 : 43, changed++) {
        bytes[n] ^= 1;
        write_bytes("changed", bytes, size);
        if (rp_t5_open(&m, other, NULL) == RP_OK) {
            opened++;
            if (rp_t5_check_file(m, NULL, NULL) != RP_E_ARG)
                fail_msg("byte %zu of %zu was changed: %s", n, size, rp_t5_last_error());
            assert_non_null(strstr(rp_t5_last_error(), "when it was packed (copy it or pack it again)"));
            rp_t5_close(m);
        }
        bytes[n] ^= 1;
    }
    printf("%d of %d changed files open\n", opened, changed);
    assert_true(opened > changed / 2);

    char *key = memmem(bytes, size, "\"checksum\"", 10);
    assert_non_null(key);
    key[1] = 'C';
    write_bytes("changed", bytes, size);
    refuses(other, "it has no checksum (copy it or pack the folder again)");
    char *format = memmem(bytes, size, "relpos-t5 2", 11); /* files of relpos 0.1 can be opened */
    assert_non_null(format);
    format[10] = '1';
    write_bytes("changed", bytes, size);
    fine(rp_t5_open(&m, other, NULL));
    assert_int_equal(rp_t5_about(m)->packed, 1);
    REFUSED(RP_E_UNSUPPORTED, "packed by relpos 0.1 and has no checksum", rp_t5_check_file(m, NULL, NULL));
    rp_t5_close(m);
    format[10] = '3';
    write_bytes("changed", bytes, size);
    refuses(other, "not a file of `relpos t5 pack` of this version");
    free(bytes);
}

/* ------------------------------------------------------------------------------------------------ arguments */

static void test_arguments(void **state)
{
    rp_t5 *m = open_model("v11", NULL, NULL), *encoder = open_model("encoder", NULL, NULL), *none;
    const int32_t outside = 64, below = -1, inside = 3;
    const rp_t5_tokens good_source = {&inside, 1}, high = {&outside, 1}, low = {&below, 1}, minus = {&inside, -1};
    rp_t5_results *r;
    rp_t5_session *s;
    rp_t5_opening o = rp_t5_opening_init();
    float out[64];
    char *text;
    (void)state;
    o.type = "f64";
    REFUSED(RP_E_ARG, "\"f64\"", rp_t5_open(&none, DATA "/v11", &o));
    REFUSED(RP_E_RANGE, "token 0 is 64, and the vocabulary has 64", rp_t5_encode(m, 1, &high, out, NULL, NULL));
    REFUSED(RP_E_RANGE, "token 0 is -1", rp_t5_encode(m, 1, &low, out, NULL, NULL));
    REFUSED(RP_E_RANGE, "has -1 tokens", rp_t5_encode(m, 1, &minus, out, NULL, NULL));
    REFUSED(RP_E_UNSUPPORTED, "the checkpoint has no decoder", rp_t5_begin(&s, encoder, 1, &good_source, 1));
    REFUSED(RP_E_UNSUPPORTED, "the model accepts only token numbers", rp_t5_detokenize(m, &inside, 1, &text, NULL));
    rp_t5_generation g = settings_of(m);
#define FIELD(field, value, words)                                                                                     \
    do {                                                                                                               \
        g = settings_of(m);                                                                                            \
        g.field = value;                                                                                               \
        REFUSED(RP_E_RANGE, words, rp_t5_generate(m, 1, &good_source, &g, &r));                                        \
    } while (0)
    FIELD(max_new_tokens, 0, "max_new_tokens is 0");
    FIELD(min_new_tokens, STEPS + 1, "min_new_tokens is 11");
    FIELD(beams, 0, "beams is 0");
    FIELD(beams, 33, "beams is 33");
    FIELD(returned, 2, "returned is 2");
    FIELD(temperature, 0, "temperature is 0");
    FIELD(temperature, (double)NAN, "temperature is nan");
    FIELD(top_p, 0, "top_p is 0");
    FIELD(top_k, -1, "top_k is -1");
    FIELD(repetition_penalty, (double)NAN, "repetition_penalty is nan");
    FIELD(repetition_penalty, 1e-50, "repetition_penalty is 1e-50; it must be 1e-6 to 1e6");
    FIELD(length_penalty, (double)NAN, "length_penalty is nan");
    FIELD(prefix, high, "prefix[0]: token 0 is 64");
    FIELD(suppress, high, "suppress[0]: token 0 is 64");
    FIELD(begin_suppress, low, "begin_suppress[0]: token 0 is -1");
    g = settings_of(m);
    rp_t5_tokens words[2] = {good_source, high};
    g.bad_words = words;
    g.n_bad_words = 2;
    REFUSED(RP_E_RANGE, "bad_words[1]: token 0 is 64", rp_t5_generate(m, 1, &good_source, &g, &r));
    words[1].n = 0;
    REFUSED(RP_E_ARG, "bad_words[1] has no tokens", rp_t5_generate(m, 1, &good_source, &g, &r));
    g.n_bad_words = -1;
    REFUSED(RP_E_ARG, "bad_words is NULL, or n_bad_words is negative", rp_t5_generate(m, 1, &good_source, &g, &r));
    g = settings_of(m);
    g.size = 8;
    REFUSED(RP_E_ARG, "rp_t5_generation_of", rp_t5_generate(m, 1, &good_source, &g, &r));
    static const char *const stops[2][3] = {{"a", ""}, {"a", "b", NULL}};
    const int32_t past = 384;
    rp_t5 *bytes = open_model("byt5", NULL, NULL);
    for (int n = 0; n < 2; n++) {
        g = settings_of(bytes);
        g.n_stop = n + 2;
        g.stop = stops[n];
        REFUSED(RP_E_ARG, n == 0 ? "stop[1] is empty" : "stop[2] is NULL",
                rp_t5_generate(bytes, 1, &good_source, &g, &r));
    }
    REFUSED(RP_E_RANGE, "token 0 is 384, and the vocabulary has 384", rp_t5_detokenize(bytes, &past, 1, &text, NULL));
    int64_t size = 7, n_made = 7;
    int32_t *made = (int32_t *)(uintptr_t)&below;
    text = (char *)(uintptr_t)&below;
    REFUSED(RP_E_RANGE, "token 0 is -1", rp_t5_detokenize(bytes, &below, 1, &text, &size));
    assert_null(text); /* after an error, result pointers are NULL */
    assert_int_equal(size, 0);
    REFUSED(RP_E_UNSUPPORTED, "the model accepts only token numbers", rp_t5_tokenize(m, "x", 1, &made, &n_made));
    assert_null(made);
    assert_int_equal(n_made, 0);
    REFUSED(RP_E_RANGE, "has -1 tokens", rp_t5_detokenize(bytes, &inside, -1, &text, NULL));
    rp_t5_close(bytes);
    fine(rp_t5_begin(&s, m, 1, &good_source, 4));
    const int32_t zero = 0, one = 1;
    REFUSED(RP_E_RANGE, "parents[0] is 1, but there are 1 sources", rp_t5_step(s, 1, &one, &zero, out));
    rp_t5_end(s);
    rp_t5_close(m);
    rp_t5_close(encoder);
}

/* A model that was opened without its weights reports the sizes of the full model and tokenizes text; everything else
 * is an error. */
static void test_loading(void **state)
{
    static const char *const names[] = {"v11", "t5", "umt5", "switch", "longt5_global", "encoder"};
    const int32_t inside = 3;
    const rp_t5_tokens source = {&inside, 1};
    rp_t5_opening o = rp_t5_opening_init();
    rp_t5 *m, *all;
    float out[64];
    char path[300], *text;
    int32_t *tokens;
    int64_t n;
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (int packed = 0; packed < 2; packed++) {
            copy_model(names[k]);
            path_to(path, "packed");
            all = open_model(names[k], "int4", NULL);
            if (packed)
                fine(rp_t5_pack(all, path));
            o.load = RP_T5_LOAD_SIZES;
            o.type = "int4";
            fine(rp_t5_open(&m, packed ? path : folder, &o));
            const rp_t5_info *a = rp_t5_about(all), *b = rp_t5_about(m);
            /* strings are static, so equal strings have equal pointers */
            assert_memory_equal(a, b, offsetof(rp_t5_info, packed));
            assert_true(a->parameters > 0 && a->bytes > 0 && (a->decoder_layers == 0) == (a->step_bytes == 0));
            rp_t5_close(all);
            rp_t5_close(m);
        }
    copy_model("v11");
    write_text("model.safetensors", "nothing");
    o.type = NULL;
    o.load = RP_T5_LOAD_SIZES;
    REFUSED(RP_E_ARG, "model.safetensors: ", rp_t5_open(&m, folder, &o));
    path_to(path, "model.safetensors");
    unlink(path);
    path_to(path, "tokenizer.json");
    char command[600];
    snprintf(command, sizeof command, "cp tests/tokenizer/data/t5.json '%s'", path);
    assert_int_equal(system(command), 0);
    REFUSED(RP_E_ARG, "neither model.safetensors nor", rp_t5_open(&m, folder, &o));
    o.load = RP_T5_LOAD_TEXT;
    o.draft = "int8";
    REFUSED(RP_E_ARG, "a draft needs the weights", rp_t5_open(&m, folder, &o));
    o.draft = NULL;
    fine(rp_t5_open(&m, folder, &o));
    REFUSED(RP_E_UNSUPPORTED, "tokenizer.json: it has 900 pieces, but the embedding has 64 rows",
            rp_t5_tokenize(m, "the", -1, &tokens, &n));
    rp_t5_close(m);
    edit("config.json", "\"vocab_size\": 64", "\"vocab_size\": 900");
    fine(rp_t5_open(&m, folder, &o));
    assert_string_equal(rp_t5_about(m)->type, "");
    fine(rp_t5_tokenize(m, "the", -1, &tokens, &n));
    assert_true(n > 1 && tokens[n - 1] == 1);
    fine(rp_t5_detokenize(m, &inside, 1, &text, NULL));
    rp_t5_free(text);
    rp_t5_free(tokens);
    rp_t5_generation g = settings_of(m);
    rp_t5_results *r;
    rp_t5_session *s;
    double total;
    REFUSED(RP_E_UNSUPPORTED, "opened without its weights", rp_t5_encode(m, 1, &source, out, NULL, NULL));
    REFUSED(RP_E_UNSUPPORTED, "opened without its weights", rp_t5_generate(m, 1, &source, &g, &r));
    REFUSED(RP_E_UNSUPPORTED, "opened without its weights", rp_t5_begin(&s, m, 1, &source, 1));
    REFUSED(RP_E_UNSUPPORTED, "opened without its weights", rp_t5_score(m, source, source, &total, NULL, NULL, NULL));
    REFUSED(RP_E_UNSUPPORTED, "opened without its weights",
            rp_t5_reference(m, source, source, NULL, NULL, NULL, NULL, NULL));
    REFUSED(RP_E_UNSUPPORTED, "opened without its weights", rp_t5_pack(m, path));
    rp_t5_close(m);
    o.load = (rp_t5_loading)3;
    REFUSED(RP_E_ARG, "opening.load is 3", rp_t5_open(&m, folder, &o));
}

/* Let each allocation fail while opening, encoding and searching, alone or with all later ones. */
static void test_out_of_memory(void **state)
{
#if STARVES
    (void)state;
    for (int ever = 0; ever < 2; ever++) {
        long failed = 0;
        bool enough = false; /* true if no allocation had to fail */
        for (long n = 1; !enough; n += 1 + n / 40) {
            static const char *const names[] = {"longt5_global", "switch"};
            rp_pool *pool;
            good(rp_pool_create(&pool, 1));
            rp_t5 *m = NULL;
            rp_t5_results *r = NULL;
            const int32_t tokens[] = {5, 9, 2, 4, 4, 7, 1};
            const rp_t5_tokens source = {tokens, 7};
            char path[300];
            snprintf(path, sizeof path, DATA "/%s", names[ever]);
            rp_t5_opening o = rp_t5_opening_init();
            o.pool = pool;
            starve(n, ever);
            rp_status status = rp_t5_open(&m, path, &o);
            if (status == RP_OK) {
                rp_t5_generation g = settings_of(m);
                g.beams = 2;
                status = rp_t5_generate(m, 1, &source, &g, &r);
            }
            enough = starve_end() < n;
            failed += status != RP_OK;
            if (status != RP_OK && status != RP_E_NOMEM && strstr(rp_t5_last_error(), "out of memory") == NULL)
                fail_msg("allocation %ld: %s: %s", n, rp_status_name(status), rp_t5_last_error());
            assert_true(!enough || status == RP_OK);
            rp_t5_results_free(r);
            rp_t5_close(m);
            rp_pool_destroy(pool);
        }
        printf("%s: %ld calls failed\n", ever ? "one allocation and all after it" : "one allocation", failed);
        assert_true(failed > 100);
    }
#else
    (void)state;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_generation),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_second_embeddings),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_f8),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_packed_tokenizer),
        cmocka_unit_test(test_single),
        cmocka_unit_test(test_single_without),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_loading),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
