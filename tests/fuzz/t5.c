/* t5.c -- reads the input as a packed T5 file: its configuration, sizes, weights and tokenizer. If it opens, its
 * information must be valid; then its checksum is verified and text is tokenized.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/mend.h"
#include <relpos/t5.h>

static void use(const rp_t5 *m)
{
    const rp_t5_info *about = rp_t5_about(m);
    int32_t *tokens = NULL;
    int64_t n = 0;
    fuzz_valid++;
    PROMISE(about->packed > 0 && about->vocab > 0 && about->source != NULL, "a model with invalid information");
    if (rp_t5_check_file(m, NULL, NULL) != RP_OK)
        refusal_is_a_line(rp_t5_last_error(), 1024);
    if (rp_t5_tokenize(m, "a b  c", -1, &tokens, &n) != RP_OK)
        refusal_is_a_line(rp_t5_last_error(), 1024);
    for (int64_t k = 0; k < n; k++)
        PROMISE(tokens[k] >= 0, "token %d", (int)tokens[k]);
    rp_t5_free(tokens);
}

size_t fuzz_mend(uint8_t *data, size_t size, size_t max)
{
    return size < 8 ? size : mend_safetensors(data, size, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = file_of(data, size, size);
    for (int load = RP_T5_LOAD_ALL; load <= RP_T5_LOAD_TEXT; load++) {
        if (left_out(data, size, (unsigned)(load - RP_T5_LOAD_ALL), RP_T5_LOAD_TEXT - RP_T5_LOAD_ALL + 1))
            continue;
        rp_t5_opening o = rp_t5_opening_init();
        rp_t5 *m;
        o.load = (rp_t5_loading)load;
        if (rp_t5_open(&m, path, &o) == RP_OK)
            use(m);
        else
            refusal_is_a_line(rp_t5_last_error(), 1024);
        rp_t5_close(m);
    }
    return 0;
}
