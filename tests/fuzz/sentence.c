/* sentence.c -- reads the input as the JSON files of a sentence-transformers folder, between bytes 0x1e. The weights
 * are those of tests/t5/sentence/new. Some of the models that open compute vectors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/error.h"
#include "checkpoint/modules.h"
#include "tests/fuzz/folder.h"
#include <relpos/t5.h>

enum { WIDTH = 12 }; /* d_model of the linked config.json */

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

/* Read the modules as rp_t5_open does, whose other work takes ten times as long. */
static void read_modules(const char *path)
{
    model_modules *modules = NULL;
    model_files files = {0};
    model_notes notes = {0};
    const model_reading reading = {
        .files = &files, .notes = &notes, .width = WIDTH, .max_positions = -1, .weights = true};
    char *inner = NULL;
    const char *prompt;
    rp_status status = model_modules_find(&modules, &files, path, &inner);
    if (status == RP_OK && inner != NULL)
        status = model_modules_read(modules, &reading, path, inner);
    if (status != RP_OK)
        refusal_is_a_line(model_error(), 1024);
    else if (modules != NULL && model_modules_prompt(modules, NULL, &prompt) == RP_OK &&
             model_modules_width(modules) > 0)
        fuzz_valid++;
    free(inner);
    model_modules_free(modules);
    model_files_free(&files);
    model_notes_free(&notes);
}

/* Open the model and make vectors. */
static void read_model(const char *path)
{
    rp_t5 *m;
    if (rp_t5_open(&m, path, NULL) != RP_OK)
        refusal_is_a_line(rp_t5_last_error(), 1024);
    else if (rp_t5_about(m)->vector_width > 0)
        use(m);
    rp_t5_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (folder.path == NULL)
        atexit(remove_folder);
    folder_fill(&folder, data, size);
    read_modules(folder.path);
    if (!left_out(data, size, 0, 16))
        read_model(folder.path);
    return 0;
}
