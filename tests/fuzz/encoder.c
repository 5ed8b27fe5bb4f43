/* encoder.c -- reads the input as a packed encoder: its configuration, modules, weights and tokenizer. If it opens, its
 * information must be valid; then its checksum is verified, text is tokenized, and hidden states, vectors and logits
 * are computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/mend.h"
#include <relpos/encoder.h>

enum { MOST_WIDTH = 4096 };

static void may_fail(rp_status status)
{
    if (status != RP_OK)
        refusal_is_a_line(rp_encoder_last_error(), 1024);
}

static void compute(const rp_encoder *m, const rp_encoder_info *about)
{
    const int32_t tokens[3] = {0, 1, 2};
    const rp_encoder_tokens sequence = {tokens, NULL, 3};
    const rp_encoder_text text = {"a b  c", -1, "the cat", -1};
    float *out = malloc((size_t)(3 * about->width + about->vector_width + about->labels) * sizeof *out);
    PROMISE(out != NULL, "no memory for %lld numbers", (long long)about->width);
    may_fail(rp_encoder_hidden(m, 1, &sequence, out, NULL, NULL));
    may_fail(rp_encoder_logits(m, 1, &sequence, out, NULL, NULL));
    may_fail(rp_encoder_embed(m, NULL, 1, &text, out, NULL, NULL));
    may_fail(rp_encoder_classify(m, 1, &text, out, NULL, NULL));
    free(out);
}

static void use(const rp_encoder *m)
{
    const rp_encoder_info *about = rp_encoder_about(m);
    const rp_encoder_text text = {"a b  c", -1, NULL, 0};
    const char *prompt;
    int32_t *tokens = NULL;
    int64_t n = 0;
    fuzz_valid++;
    PROMISE(about->packed == 1 && about->vocab > 0 && about->vector_width > 0 && about->labels >= 0,
            "a model with invalid information");
    may_fail(rp_encoder_check_file(m, NULL, NULL));
    may_fail(rp_encoder_prompt(m, NULL, &prompt));
    for (int64_t k = 0; k < about->labels; k++)
        PROMISE(rp_encoder_label(m, k) != NULL, "label %lld has no name", (long long)k);
    may_fail(rp_encoder_tokenize(m, &text, 8, &tokens, NULL, &n));
    for (int64_t k = 0; k < n; k++)
        PROMISE(tokens[k] >= 0, "token %d", (int)tokens[k]);
    rp_encoder_free(tokens);
    if (about->width <= MOST_WIDTH && about->vector_width <= MOST_WIDTH)
        compute(m, about);
}

size_t fuzz_mend(uint8_t *data, size_t size, size_t max)
{
    return size < 8 ? size : mend_safetensors(data, size, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rp_encoder *m;
    if (rp_encoder_open(&m, file_of(data, size, size), NULL) == RP_OK)
        use(m);
    else
        refusal_is_a_line(rp_encoder_last_error(), 1024);
    rp_encoder_close(m);
    return 0;
}
