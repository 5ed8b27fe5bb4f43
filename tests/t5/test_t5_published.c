/* test_t5_published.c -- files as people publish them: names with the prefixes of wrappers, an index that lists too
 * much, adapters. Where relpos reads a file, the results equal those of the plain file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/folders.h"
#include "io/checkpoint.h"

#include <sys/stat.h>

static const int32_t tokens[] = {5, 9, 33, 2}, target[] = {7, 8, 1};

/* Return the hidden states of a source and the log-probability of a target, as [4 d + 1]. */
static float *results_of(const rp_t5 *m)
{
    const rp_t5_tokens source = {tokens, 4}, to = {target, 3};
    const int64_t d = rp_t5_about(m)->d_model;
    double score = 0;
    float *out = encode_all(m, 1, &source);
    if (decodes(m))
        fine(rp_t5_score(m, source, to, &score, NULL, NULL, NULL));
    out = realloc(out, (size_t)(4 * d + 1) * sizeof *out);
    assert_non_null(out);
    out[4 * d] = (float)score;
    return out;
}

/* Open a file or folder as f32, and compare its results with those of another. Return the model. */
static rp_t5 *same_as(const char *path, const char *other)
{
    rp_t5 *a, *b;
    rp_t5_opening f32 = rp_t5_opening_init();
    f32.type = "f32";
    fine(rp_t5_open(&a, path, &f32));
    fine(rp_t5_open(&b, other, &f32));
    float *x = results_of(a), *y = results_of(b);
    assert_memory_equal(x, y, (size_t)(4 * rp_t5_about(b)->d_model + 1) * sizeof *x);
    free(x);
    free(y);
    rp_t5_close(b);
    return a;
}

/* Open the folder, whose results must equal those of v11, with a note. */
static void same_with_note(const char *words)
{
    char text[400];
    rp_t5 *m = same_as(folder, DATA "/v11");
    snprintf(text, sizeof text, "%s: %s", folder, words);
    assert_non_null(rp_t5_note(m, 0));
    assert_string_equal(rp_t5_note(m, 0), text);
    assert_null(rp_t5_note(m, 1));
    rp_t5_close(m);
}

/* ------------------------------------------------------------------------------------------------ prefixes */

/* Put a prefix before the names of the arrays first … end - 1. */
static void add_prefix(io_set *set, const char *prefix, size_t first, size_t end)
{
    for (size_t n = first; n < end; n++) {
        char *name = malloc(strlen(prefix) + strlen(set->arrays[n].name) + 1);
        assert_non_null(name);
        sprintf(name, "%s%s", prefix, set->arrays[n].name);
        free(set->arrays[n].name);
        set->arrays[n].name = name;
    }
}

static void test_prefixes(void **state)
{
    static const char *const prefixes[] = {
        "_orig_mod.",        "module.",          "model.",       "_orig_mod.module.",
        "module._orig_mod.", "model._orig_mod.", "model.model.", "module.model._orig_mod."};
    char words[400], file[300], plain[300];
    (void)state;
    path_to(file, "model.safetensors");
    path_to(plain, "plain.safetensors");
    for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++)
        for (int single = 0; single < 2; single++) {
            const char *path = single ? file : folder;
            io_set set;
            copy_model("v11");
            assert_int_equal(link(file, plain), 0);
            read_weights(&set);
            add_prefix(&set, prefixes[k], 0, set.n_arrays);
            write_weights(&set);
            io_free(&set);
            rp_t5 *m = same_as(path, single ? plain : DATA "/v11");
            snprintf(words, sizeof words, "%s: the prefix %s was removed from the names of the tensors", path,
                     prefixes[k]);
            assert_non_null(rp_t5_note(m, 0));
            assert_string_equal(rp_t5_note(m, 0), words);
            assert_null(rp_t5_note(m, 1));
            assert_null(rp_t5_note(m, -1));
            rp_t5_close(m);
        }
    rp_t5 *m = open_model("v11", NULL, NULL);
    assert_null(rp_t5_note(m, 0));
    assert_null(rp_t5_note(NULL, 0));
    rp_t5_close(m);
}

/* A prefix that is unknown is an error that names it. */
static void test_other_prefixes(void **state)
{
    static const struct {
        const char *prefix, *words;
    } cases[] = {
        {"transformer.", ": the names of its tensors begin with transformer. ("},
        {"model.t5.", ": the names of its tensors begin with t5. ("},
        {"0.auto_model.", ": the names of its tensors begin with 0.auto_model. ("},
    };
    char path[300];
    (void)state;
    path_to(path, "model.safetensors");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        io_set set;
        copy_model("v11");
        read_weights(&set);
        add_prefix(&set, cases[k].prefix, 0, set.n_arrays);
        write_weights(&set);
        io_free(&set);
        refuses(folder, cases[k].words);
        refuses(path, cases[k].words);
    }
}

/* If all names but one or a few have a prefix, or only these have it, the error names the odd one. */
static void test_odd_names(void **state)
{
    static const char *const prefixes[] = {"module.", "_orig_mod.", "model.", "module.model."};
    char path[300], words[400];
    io_set set;
    (void)state;
    path_to(path, "model.safetensors");
    copy_model("v11");
    read_weights(&set);
    const size_t n_arrays = set.n_arrays;
    io_free(&set);
    for (size_t n = 0; n < n_arrays; n++)
        for (int most = 0; most < 2; most++) {
            const char *prefix = prefixes[n % 4], *last = strchr(prefix, '.') + 1;
            copy_model("v11");
            read_weights(&set);
            const char *odd = set.arrays[n].name;
            snprintf(words, sizeof words, "begin with %.*s, except '%s%s' (", (int)(last - prefix), prefix,
                     most ? "" : prefix, odd);
            for (size_t k = 0; k < n_arrays; k++)
                if ((k == n) != most)
                    add_prefix(&set, prefix, k, k + 1);
            write_weights(&set);
            io_free(&set);
            refuses(folder, words);
            refuses(path, words);
        }
    copy_model("v11"); /* nested prefixes, of which all tensors have the first */
    read_weights(&set);
    add_prefix(&set, "module.", 3, set.n_arrays);
    add_prefix(&set, "model.", 0, set.n_arrays);
    snprintf(words, sizeof words, "begin with module., except '%s' and 2 more (",
             set.arrays[0].name + strlen("model."));
    write_weights(&set);
    io_free(&set);
    refuses(folder, words);
    refuses(path, words);
}

/* ------------------------------------------------------------------------------------------------ an index */

/* The index of published shards also names copies of the embedding, or tensors of other versions of the model. */
static void test_index(void **state)
{
    char path[300];
    size_t size;
    (void)state;
    copy_model("encoder");
    edit("model.safetensors.index.json", "\"weight_map\": {",
         "\"weight_map\": {\"encoder.embed_tokens.weight\": \"model-00001-of-00002.safetensors\", "
         "\"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight\": "
         "\"model-00002-of-00002.safetensors\",");
    rp_t5_close(same_as(folder, DATA "/encoder"));
    copy_model("encoder"); /* a tensor that the index does not name */
    edit("model.safetensors.index.json", "\"encoder.block.0.layer.0.SelfAttention.k.weight\"", "\"x\"");
    rp_t5_close(same_as(folder, DATA "/encoder"));
    path_to(path, "model-00002-of-00002.safetensors"); /* a tensor that the model needs */
    char *bytes = read_bytes(path, &size), *at = memmem(bytes, size, "\"encoder.block.1", 16);
    assert_non_null(at);
    at[1] = 'x';
    write_bytes("model-00002-of-00002.safetensors", bytes, size);
    free(bytes);
    refuses(folder, "tensor 'encoder.block.1");
}

/* ------------------------------------------------------------------------------------------------ adapters */

static void test_adapters(void **state)
{
    static const char *const lora[] = {"base_model.model.encoder.block.0.layer.0.SelfAttention.q.lora_A.weight",
                                       "base_model.model.encoder.block.0.layer.0.SelfAttention.q.lora_B.weight"};
    static const float zeros[64];
    char path[300], err[IO_ERR_MAX];
    const char *words =
        ": it is an adapter of PEFT, not a whole model (load it with peft, call merge_and_unload and then "
        "save_pretrained, and give that folder)";
    io_set set = {0};
    (void)state;
    for (int n = 0; n < 2; n++)
        assert_int_equal(io_add(&set, lora[n], RP_F32, 2, (int64_t[]){8, 8}, (void *)(uintptr_t)zeros, true), 0);
    clear();
    write_text("adapter_config.json", "{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"t5\"}");
    refuses(folder, words);
    path_to(path, "adapter_model.safetensors");
    assert_int_equal(io_write(path, IO_SAFETENSORS, &set, err), 0);
    refuses(folder, words);
    refuses(path, words);
    path_to(path, "adapter_config.json");
    unlink(path);
    refuses(folder, words);
    copy_model("v11"); /* with the config.json of the model, but without its weights */
    path_to(path, "model.safetensors");
    unlink(path);
    refuses(folder, "it has neither model.safetensors nor");
    path_to(path, "adapter_model.bin");
    write_text("adapter_model.bin", "PK");
    refuses(folder, words);
    path_to(path, "model.safetensors"); /* an adapter that was renamed */
    assert_int_equal(io_write(path, IO_SAFETENSORS, &set, err), 0);
    refuses(folder, words);
    io_free(&set);
    copy_model("v11"); /* whole models with an adapter beside them, which transformers would apply */
    write_text("adapter_config.json", "{}");
    refuses(folder, ": it has an adapter of PEFT beside the model (load it with peft, call merge_and_unload and then");
    write_text("adapter_model.safetensors", "");
    refuses(folder, "or remove adapter_config.json to use the model without the adapter)");
    path_to(path, "adapter_config.json");
    unlink(path);
    same_with_note("adapter_model.safetensors is not read, because there is no adapter_config.json");
}

/* Other files that are beside the weights and not read are named once. */
static void test_unread_files(void **state)
{
    char path[300], other[300];
    (void)state;
    copy_model("v11"); /* transformers also takes the whole file, not the shards */
    write_text("model.safetensors.index.json", "{\"weight_map\": {\"x\": \"absent.safetensors\"}}");
    same_with_note("model.safetensors is read, so model.safetensors.index.json is not");
    copy_model("v11"); /* the contents decide the format */
    path_to(path, "model.safetensors");
    path_to(other, "pytorch_model.bin");
    assert_int_equal(rename(path, other), 0);
    write_text("pytorch_model.bin.index.json", "{\"weight_map\": {\"x\": \"absent.bin\"}}");
    same_with_note("pytorch_model.bin is read, so pytorch_model.bin.index.json is not");
    copy_model("v11");
    path_to(path, "custom_generate");
    assert_int_equal(mkdir(path, 0700), 0);
    write_text("custom_generate/generate.py", "");
    same_with_note("custom_generate/generate.py is not run");
    copy_model("v11"); /* the same weights in an older format are usual */
    path_to(path, "model.safetensors");
    assert_int_equal(link(path, other), 0);
    rp_t5 *m = same_as(folder, DATA "/v11");
    assert_null(rp_t5_note(m, 0));
    rp_t5_close(m);
}

/* ------------------------------------------------------------------------------------------------ tokenizers */

/* A model with a BPE that cannot be read accepts token numbers; an error names the tokenizer if there is text. */
static void test_byte_level(void **state)
{
    static const struct {
        const char *file, *text, *words;
    } cases[] = {
        {"vocab.json", "{\"a\": 0}",
         ": vocab.json and merges.txt are not read; save the tokenizer with transformers, which writes tokenizer.json"},
        {"tokenizer.json",
         "{\"decoder\": {\"type\": \"BPEDecoder\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": "
         "[]}}",
         "model \"BPE\" without the pre_tokenizer ByteLevel is not supported"},
        {"tokenizer.json", "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}", /* an old file */
         "model \"BPE\" without the pre_tokenizer ByteLevel is not supported"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int32_t *made;
        int64_t n;
        copy_model("v11");
        write_text(cases[k].file, cases[k].text);
        write_text("merges.txt", "#version: 0.2\n");
        rp_t5 *m = same_as(folder, DATA "/v11");
        assert_int_equal(rp_t5_tokenize(m, "a", -1, &made, &n), RP_E_UNSUPPORTED);
        if (strstr(rp_t5_last_error(), cases[k].words) == NULL)
            fail_msg("%s: %s", cases[k].words, rp_t5_last_error());
        assert_null(strstr(rp_t5_last_error(), "download"));
        rp_t5_close(m);
    }
}

/* ------------------------------------------------------------------------------------------------ advice */

/* A file that is whole is not worth another download; a file that is cut is. */
static void test_advice(void **state)
{
    char path[300];
    size_t size;
    (void)state;
    path_to(path, "model.safetensors");
    copy_model("v11");
    char *bytes = read_bytes(path, &size);
    for (size_t left = 0; left < 100; left += 7) {
        write_bytes("model.safetensors", bytes, left);
        refuses(folder, "(download the file again");
    }
    write_bytes("model.safetensors", bytes, size - 1);
    refuses(folder, "(download the file again");
    free(bytes);
    static const struct {
        const char *file, *text;
    } whole[] = {{"model.safetensors", "\2\0\0\0\0\0\0\0{}"},
                 {"model.safetensors", "a text of some length, not weights"},
                 {"model.safetensors.index.json", "{\"metadata\": {}}"},
                 {"config.json", "[1, 2]"},
                 {"config.json", "{\"model_type\": \"t5\"}"}};
    for (size_t k = 0; k < sizeof whole / sizeof *whole; k++) {
        copy_model("v11");
        if (strstr(whole[k].file, "index") != NULL)
            unlink(path);
        write_bytes(whole[k].file, whole[k].text, k == 0 ? 10 : strlen(whole[k].text));
        refuses(folder, "(");
        if (strstr(rp_t5_last_error(), "download") != NULL)
            fail_msg("%s", rp_t5_last_error());
    }
}

/* Refuse the folder when it is opened or when text is given. */
static void refuses_text(const char *words, bool download)
{
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    int32_t *made;
    int64_t n;
    char path[300];
    path_to(path, "model.safetensors.index.json");
    o.load = access(path, F_OK) == 0 ? RP_T5_LOAD_ALL : RP_T5_LOAD_TEXT;
    if (rp_t5_open(&m, folder, &o) == RP_OK) {
        if (rp_t5_tokenize(m, "a", -1, &made, &n) == RP_OK)
            fail_msg("opened; expected: %s", words);
        rp_t5_close(m);
    }
    if (strstr(rp_t5_last_error(), words) == NULL || strchr(rp_t5_last_error(), '\n') != NULL ||
        (strstr(rp_t5_last_error(), "download") != NULL) != download)
        fail_msg("'%s' does not contain '%s'", rp_t5_last_error(), words);
}

/* Copy a model without weights and with a tokenizer. */
static void copy_text_model(void)
{
    char path[300], command[600];
    copy_model("v11");
    path_to(path, "model.safetensors");
    unlink(path);
    snprintf(command, sizeof command, "cp tests/tokenizer/data/t5.json '%s/tokenizer.json'", folder);
    assert_int_equal(system(command), 0);
    edit("config.json", "\"vocab_size\": 64", "\"vocab_size\": 900");
}

/* Each JSON file of a folder: an error says what was edited, where, and how to mend it. */
static void test_edited_json(void **state)
{
    static const char *const files[] = {"config.json",       "generation_config.json",  "tokenizer_config.json",
                                        "added_tokens.json", "special_tokens_map.json", "model.safetensors.index.json",
                                        "modules.json",      "tokenizer.json"};
    static const struct {
        const char *text, *words;
        size_t size; /* 0: that of the text */
        bool download;
    } faults[] = {
        {"{\n  \"x\": 1,\n  \"x\": 2\n}", ": line 3, column 5: duplicate object key near '\"x\"' (the key occurs twice",
         0, 0},
        {"{\n\"x\": NaN}", ": line 2, column 8: invalid token near 'NaN' (JSON has no NaN or infinity: write a number)",
         0, 0},
        {"{\"x\": Infinity}", "(JSON has no NaN or infinity: write a number)", 0, 0},
        {"{\"x\": -Infinity}", "(JSON has no NaN or infinity: write a number)", 0, 0},
        {"{\"x\": 1e999}", "(write a smaller number)", 0, 0},
        {"\xef\xbb\xbf{\"x\": 1}", ": it begins with a byte order mark (save it as UTF-8 without one)", 0, 0},
        {"\xff\xfe{\0\"\0", ": it is text in UTF-16 (save it as UTF-8)", 6, 0},
        {"{\0\"\0", ": it is text in UTF-16 (save it as UTF-8)", 4, 0},
        {"\0{\0\"", ": it is text in UTF-16 (save it as UTF-8)", 4, 0},
        {"{\"x\": \"\xe9\"}", "(save it as UTF-8)", 0, 0},
        {"{\"x\": 1,}", ": line 1, column 9: string or '}' expected near '}' (correct the file there)", 0, 0},
        {"{\"x\": True}", "(correct the file there)", 0, 0},
        {"{\"x\": 1} // x", "(remove what follows the end)", 0, 0},
        {"{\"x\": 1", "(it is cut off: download the file again)", 0, 1},
        {"{\"x\": \"1", "(it is cut off: download the file again)", 0, 1},
        {"{\"x", "(it is cut off: download the file again)", 0, 1},
        {"\n", "(it is cut off: download the file again)", 0, 1},
        {"{\"x\": 1}\0{", "(remove what follows the end)", 10, 0},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
         ": it is a pointer of Git LFS, not the file (run git lfs pull)", 0, 0},
        {"<!DOCTYPE html>\n<html>", ": it is a web page, not the file (download the file again", 0, 1},
        {"<?xml version=\"1.0\"?><Error>", ": it is a web page, not the file (download the file again", 0, 1},
    };
    char path[300], words[300];
    (void)state;
    for (size_t k = 0; k < sizeof files / sizeof *files; k++)
        for (size_t n = 0; n < sizeof faults / sizeof *faults; n++) {
            copy_text_model();
            write_bytes(files[k], faults[n].text, faults[n].size > 0 ? faults[n].size : strlen(faults[n].text));
            snprintf(words, sizeof words, "%s%s", faults[n].words[0] == ':' ? files[k] : "", faults[n].words);
            refuses_text(words, faults[n].download);
        }
    static const char *const weights[] = {"model.safetensors", "pytorch_model.bin", "model.gguf", "spiece.model"};
    for (size_t k = 0; k < sizeof weights / sizeof *weights; k++)
        for (size_t n = 0; n < sizeof faults / sizeof *faults; n++)
            if (strstr(faults[n].words, ", not the file") != NULL) {
                copy_text_model();
                path_to(path, "tokenizer.json");
                unlink(path);
                write_text(weights[k], faults[n].text);
                path_to(path, weights[k]);
                snprintf(words, sizeof words, "%s%s", weights[k], faults[n].words);
                if (k == 3)
                    refuses_text(words, faults[n].download);
                else
                    refuses(k == 2 ? path : folder, words);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes), cmocka_unit_test(test_other_prefixes), cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_index),    cmocka_unit_test(test_adapters),       cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_advice),   cmocka_unit_test(test_edited_json),    cmocka_unit_test(test_unread_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
