/* residues.c -- protein models: residues to tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include "io/fasta.h"
#include "tokenizer/tokenizer.h"
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 26, STOP = LETTERS, TABLE = LETTERS + 1 };

/* The token of each letter and of '*', and whether the tokenizer has it; and the tokens around a protein. */
typedef struct alphabet {
    int32_t tokens[TABLE], first, last;
    bool known[TABLE];
} alphabet;

static rp_status check_model(const rp_encoder *m)
{
    const rp_encoder_text text = {"", 0, NULL, 0};
    const rp_status status = encoder_check_text(m, 1, &text);
    if (status == RP_OK && !m->config.row->residues)
        return encoder_fail(RP_E_UNSUPPORTED, "it is not a model of proteins: its model_type is %s (use ESM-2)",
                            m->config.row->type);
    return status;
}

/* Tokenize a letter; or, with size 0, find the tokens around a protein. */
static rp_status tokenize_letter(const rp_encoder *m, char letter, int size, int32_t found[3])
{
    tok_encoding made;
    const rp_encoder_text text = {&letter, size, NULL, 0};
    const rp_status status = encoder_tokenize(m, NULL, &text, 0, &made);
    if (status != RP_OK)
        return status;
    const bool good = made.n == 2 + size;
    if (good)
        memcpy(found, made.ids, (size_t)made.n * sizeof *found);
    tok_encoding_free(&made);
    return good ? RP_OK
                : encoder_fail(RP_E_UNSUPPORTED, "it is not a model of proteins: its tokenizer does not give one token "
                                                 "for each residue, between <cls> and <eos> (use ESM-2)");
}

static rp_status make_alphabet(const rp_encoder *m, alphabet *a)
{
    int32_t found[3];
    rp_status status = tokenize_letter(m, 0, 0, found);
    a->first = found[0];
    a->last = found[1];
    for (int k = 0; k < TABLE && status == RP_OK; k++) {
        const char letter = k == STOP ? '*' : (char)('A' + k);
        status = tokenize_letter(m, letter, 1, found);
        a->tokens[k] = found[1];
        a->known[k] = tok_id(m->tokenizer, &letter, 1) >= 0;
    }
    return status;
}

rp_status rp_encoder_residues(const rp_encoder *m, const char *text, int64_t bytes, int32_t **tokens, int64_t *n,
                              int64_t *unknown)
{
    alphabet a = {0};
    if (text == NULL || tokens == NULL || n == NULL || unknown == NULL)
        return encoder_fail(RP_E_ARG, "text, tokens, n or unknown is NULL; pass all of them");
    *tokens = NULL;
    *n = *unknown = 0;
    const int64_t size = bytes < 0 ? (int64_t)strlen(text) : bytes;
    if (size > INT32_MAX - 2)
        return encoder_fail(RP_E_RANGE, "the protein has %lld residues; it must have at most %d", (long long)size,
                            INT32_MAX - 2);
    rp_status status = check_model(m);
    if (status == RP_OK)
        status = make_alphabet(m, &a);
    if (status != RP_OK)
        return status;
    int32_t *made = malloc(((size_t)size + 2) * sizeof *made);
    int64_t at = 0, missing = 0;
    if (made == NULL)
        return encoder_no_memory();
    made[at++] = a.first;
    for (int64_t k = 0; k < size; k++) {
        const int c = io_residue((unsigned char)text[k]), index = c == '*' ? STOP : c - 'A';
        if (c < 0) {
            free(made);
            return encoder_fail(RP_E_ARG,
                                "byte %lld is 0x%02x, which is not a residue (use A to Z, * or . for a stop, - for a "
                                "gap)",
                                (long long)k, (unsigned char)text[k]);
        }
        if (c == 0)
            continue;
        made[at++] = a.tokens[index];
        missing += !a.known[index];
    }
    made[at++] = a.last;
    *tokens = made;
    *n = at;
    *unknown = missing;
    return RP_OK;
}
