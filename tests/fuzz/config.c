/* config.c -- reads the input as the JSON files of a T5 folder, or, if it begins with "b", of a BERT folder:
 * config.json, generation_config.json, and the files beside a tokenizer. The weights are those of tests. If it
 * opens, a few tokens are encoded.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/folder.h"
#include <relpos/encoder.h>
#include <relpos/t5.h>

#define WRITTEN                                                                                                        \
    {                                                                                                                  \
        "config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",                   \
            "added_tokens.json"                                                                                        \
    }

static model_folder t5 = {.from = "tests/t5/sentence/new",
                          .written = WRITTEN,
                          .linked = {"model.safetensors", "tokenizer.json"}},
                    bert = {.from = "tests/encoder/data/bert", .written = WRITTEN, .linked = {"model.safetensors"}};
enum { WIDEST = 4096 };
static const int32_t tokens[3] = {0, 1, 2};

static void remove_folders(void)
{
    folder_remove(&t5);
    folder_remove(&bert);
}

static void read_t5(bool computes)
{
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    o.load = computes ? RP_T5_LOAD_ALL : RP_T5_LOAD_SIZES;
    if (rp_t5_open(&m, t5.path, &o) == RP_OK) {
        const int64_t width = rp_t5_about(m)->d_model;
        const rp_t5_tokens source = {tokens, 3};
        float *out = computes && width <= WIDEST ? calloc((size_t)(3 * width), sizeof *out) : NULL;
        fuzz_valid++;
        if (out != NULL && rp_t5_encode(m, 1, &source, out, NULL, NULL) != RP_OK)
            refusal_is_a_line(rp_t5_last_error(), 1024);
        free(out);
    } else {
        refusal_is_a_line(rp_t5_last_error(), 1024);
    }
    rp_t5_close(m);
}

static void read_bert(bool computes)
{
    rp_encoder *m;
    if (rp_encoder_open(&m, bert.path, NULL) == RP_OK) {
        const int64_t width = rp_encoder_about(m)->width;
        const rp_encoder_tokens sequence = {tokens, NULL, 3};
        float *out = computes && width <= WIDEST ? calloc((size_t)(3 * width), sizeof *out) : NULL;
        fuzz_valid++;
        if (out != NULL && rp_encoder_hidden(m, 1, &sequence, out, NULL, NULL) != RP_OK)
            refusal_is_a_line(rp_encoder_last_error(), 1024);
        free(out);
    } else {
        refusal_is_a_line(rp_encoder_last_error(), 1024);
    }
    rp_encoder_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool begun;
    if (!begun)
        atexit(remove_folders);
    begun = true;
    const bool computes = !left_out(data, size, 0, 16);
    if (size > 0 && data[0] == 'b') {
        folder_fill(&bert, data + 1, size - 1);
        read_bert(computes);
    } else {
        folder_fill(&t5, data, size);
        read_t5(computes);
    }
    return 0;
}
