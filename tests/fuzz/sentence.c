/* sentence.c -- reads the input as the JSON files of a sentence-transformers folder, between bytes 0x1e. The weights
 * are those of tests/t5/sentence/new. If it opens, vectors are computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/folder.h"
#include <relpos/t5.h>

static model_folder folder = {
    .from = "tests/t5/sentence/new",
    .inner = {"1_Pooling", "2_Dense"},
    .written = {"modules.json", "1_Pooling/config.json", "2_Dense/config.json", "config_sentence_transformers.json",
                "sentence_bert_config.json", "tokenizer_config.json"},
    .linked = {"config.json", "model.safetensors", "tokenizer.json", "2_Dense/model.safetensors"}};

static void remove_folder(void)
{
    folder_remove(&folder);
}

static void use(const rp_t5 *m)
{
    const rp_t5_info *about = rp_t5_about(m);
    const char *prompt;
    float *vector = malloc((size_t)about->vector_width * sizeof *vector),
          *hidden = calloc(3, sizeof *hidden * (size_t)about->d_model);
    PROMISE(vector != NULL && hidden != NULL && about->vector_tokens >= 0, "a vector of %lld numbers",
            (long long)about->vector_width);
    if (rp_t5_prompt(m, "query", &prompt) != RP_OK)
        refusal_is_a_line(rp_t5_last_error(), 1024);
    PROMISE(rp_t5_prompt(m, NULL, &prompt) == RP_OK && prompt != NULL, "no default prompt");
    for (int64_t n = 0; n <= 3; n++)
        if (rp_t5_vector(m, prompt, n, hidden, vector) != RP_OK)
            refusal_is_a_line(rp_t5_last_error(), 1024);
    free(vector);
    free(hidden);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (folder.path == NULL)
        atexit(remove_folder);
    folder_fill(&folder, data, size);
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    const bool computes = !left_out(data, size, 0, 16);
    o.load = computes ? RP_T5_LOAD_ALL : RP_T5_LOAD_SIZES;
    if (rp_t5_open(&m, folder.path, &o) != RP_OK)
        refusal_is_a_line(rp_t5_last_error(), 1024);
    else if (rp_t5_about(m)->vector_width > 0) {
        fuzz_valid++;
        if (computes)
            use(m);
    }
    rp_t5_close(m);
    return 0;
}
