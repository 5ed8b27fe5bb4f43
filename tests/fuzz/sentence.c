/* sentence.c -- reads the input as the JSON files of a sentence-transformers folder, between bytes 0x1e. The weights
 * are those of tests/t5/sentence/new. If it opens, vectors are computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"
#include <limits.h>
#include <relpos/t5.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const folders[] = {"", "1_Pooling", "2_Dense"};
static const char *const written[] = {"modules.json",
                                      "1_Pooling/config.json",
                                      "2_Dense/config.json",
                                      "config_sentence_transformers.json",
                                      "sentence_bert_config.json",
                                      "tokenizer_config.json"};
static const char *const linked[] = {"config.json", "model.safetensors", "tokenizer.json", "2_Dense/model.safetensors"};
enum { FOLDERS = 3, WRITTEN = 6, LINKED = 4 };
static char folder[] = "/tmp/relpos-fuzz-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void remove_folder(void)
{
    for (int k = 0; k < WRITTEN; k++)
        unlink(path_of(written[k]));
    for (int k = 0; k < LINKED; k++)
        unlink(path_of(linked[k]));
    for (int k = FOLDERS - 1; k >= 0; k--)
        rmdir(path_of(folders[k]));
}

static void make_folder(void)
{
    char here[PATH_MAX / 2], from[PATH_MAX];
    PROMISE(mkdtemp(folder) != NULL && getcwd(here, sizeof here) != NULL, "no temporary folder");
    atexit(remove_folder);
    for (int k = 1; k < FOLDERS; k++)
        PROMISE(mkdir(path_of(folders[k]), 0700) == 0, "no folder %s", folders[k]);
    for (int k = 0; k < LINKED; k++) {
        snprintf(from, sizeof from, "%s/tests/t5/sentence/new/%s", here, linked[k]);
        PROMISE(access(from, R_OK) == 0 && symlink(from, path_of(linked[k])) == 0, "no file %s", from);
    }
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
    static bool made;
    if (!made)
        make_folder();
    made = true;
    for (int k = 0; k < WRITTEN; k++) {
        const uint8_t *end = size > 0 ? memchr(data, 0x1e, size) : NULL;
        const size_t n = end != NULL ? (size_t)(end - data) : size;
        unlink(path_of(written[k]));
        if (n > 0) {
            FILE *to = fopen(path_of(written[k]), "w");
            PROMISE(to != NULL && fwrite(data, 1, n, to) == n && fclose(to) == 0, "cannot write %s", written[k]);
        }
        data += end != NULL ? n + 1 : n;
        size -= end != NULL ? n + 1 : n;
    }
    rp_t5 *m;
    if (rp_t5_open(&m, folder, NULL) != RP_OK)
        refusal_is_a_line(rp_t5_last_error(), 1024);
    else if (rp_t5_about(m)->vector_width > 0) {
        fuzz_valid++;
        use(m);
    }
    rp_t5_close(m);
    return 0;
}
