/* tokenize.c -- finds the tokenizer of a model, or records why there is none; converts text to token numbers and back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include "tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYT5_EXTRA_IDS = 125, BYT5_VOCAB = 384 };

static rp_status tokenizer_failed(tok_status status, const char *err)
{
    return t5_fail(status == TOK_FAILED ? RP_E_NOMEM : RP_E_ARG, "%s", err);
}

/* Record why the model has no tokenizer. This is no error: functions that need it report the reason. */
static rp_status no_tokenizer(rp_t5 *m, const char *why)
{
    free(m->why_no_tokenizer);
    m->why_no_tokenizer = strdup(why);
    return m->why_no_tokenizer != NULL ? RP_OK : t5_no_memory();
}

/* Convert the result of opening a tokenizer. A damaged tokenizer is treated as missing, except by rp_t5_pack; running
 * out of memory is an error. */
static rp_status opened(rp_t5 *m, tok_status status, const char *err)
{
    m->tokenizer_refused = status != TOK_OK;
    return status == TOK_OK ? RP_OK : status == TOK_FAILED ? tokenizer_failed(status, err) : no_tokenizer(m, err);
}

/* Return true if a model can lack a row for the last of n tokens: it is special, such as <extra_id_N> or a <pad> that
 * transformers adds. A text that uses such a token is an error. */
static bool may_lack_row(const tokenizer *t, int32_t n)
{
    const char *piece = tok_piece(t, n - 1, NULL);
    return piece == NULL || tok_is_special(t, n - 1) || strncmp(piece, "<extra_id_", 10) == 0;
}

/* Reject a tokenizer that has more pieces than the embedding has rows: it belongs to another model. */
static rp_status check_rows(rp_t5 *m, const char *name)
{
    int32_t n = tok_size(m->tokenizer);
    char why[TOK_ERR_MAX], safe[200];
    while (n > 0 && may_lack_row(m->tokenizer, n))
        n--;
    if (n <= m->config.vocab)
        return RP_OK;
    tok_close(m->tokenizer);
    m->tokenizer = NULL;
    snprintf(why, sizeof why, "%s: it has %d pieces, but the embedding has %lld rows (use the tokenizer of this model)",
             io_safe(safe, sizeof safe, name), n, (long long)m->config.vocab);
    return opened(m, TOK_DAMAGED, why);
}

/* Set *beside to the files beside the tokenizer. Only a file that names a class replaces the rules of a
 * tokenizer.json. */
static rp_status files_beside(const rp_t5 *m, tok_beside *beside)
{
    tok_file files[T5_BESIDE];
    t5_maker maker;
    bool named;
    for (int k = 0; k < T5_BESIDE; k++)
        files[k] = (tok_file){m->beside_text[k], m->beside_text[k] != NULL ? (int64_t)strlen(m->beside_text[k]) : 0,
                              t5_beside_names[k]};
    const rp_status status = t5_find_maker(m, &maker, &named);
    *beside = (tok_beside){files[0], files[1], files[2], named && maker == T5_MAKER_T5 ? TOK_RULES_T5 : TOK_RULES_FILE};
    return status;
}

static rp_status use_tokenizer(rp_t5 *m, const char *name)
{
    char err[TOK_ERR_MAX] = "";
    const int32_t extra = m->config.kind == T5_MT5 || m->config.kind == T5_UMT5 ? 0 : TOK_T5_EXTRA_IDS;
    tok_beside beside;
    const rp_status status = files_beside(m, &beside);
    if (status != RP_OK)
        return status;
    const tok_status made =
        tok_open_beside(&m->tokenizer, m->tokenizer_text, (int64_t)m->tokenizer_size, name, extra, &beside, err);
    return made == TOK_OK ? check_rows(m, name) : opened(m, made, err);
}

static rp_status use_bytes(rp_t5 *m)
{
    char err[TOK_ERR_MAX] = "";
    tok_beside beside;
    const rp_status status = files_beside(m, &beside);
    if (status != RP_OK)
        return status;
    const tok_status made = tok_open_bytes(&m->tokenizer, BYT5_EXTRA_IDS, &beside, err);
    return made == TOK_OK ? check_rows(m, "the tokenizer of bytes") : opened(m, made, err);
}

/* Handle a model without a tokenizer file. A model with 384 tokens is a ByT5: no other model has so few, and not every
 * config.json of ByT5 names its tokenizer. */
static rp_status use_none(rp_t5 *m, const char *why)
{
    return m->config.vocab == BYT5_VOCAB ? use_bytes(m) : no_tokenizer(m, why);
}

/* Handle a folder without a tokenizer that can be read. vocab.json and merges.txt are those of CodeT5 or FRED-T5. */
static rp_status use_none_of(rp_t5 *m, const char *folder)
{
    char why[TOK_ERR_MAX], safe[200];
    if (!model_has_file(folder, "vocab.json") || !model_has_file(folder, "merges.txt"))
        return use_none(m, "its folder has no tokenizer.json or spiece.model");
    snprintf(
        why, sizeof why,
        "%s: vocab.json and merges.txt are not read; save the tokenizer with transformers, which writes tokenizer.json",
        io_safe(safe, sizeof safe, folder));
    return opened(m, TOK_DAMAGED, why);
}

/* Use a tokenizer only if the keys of the files beside it allow it. `folder` has these files, or is a packed file. */
static rp_status check_beside(rp_t5 *m, const char *folder)
{
    char why[TOK_ERR_MAX];
    const rp_status status = t5_check_beside(m, folder);
    if (status == RP_OK || status == RP_E_NOMEM || m->tokenizer == NULL)
        return status == RP_E_NOMEM ? status : RP_OK;
    tok_close(m->tokenizer);
    m->tokenizer = NULL;
    snprintf(why, sizeof why, "%s", rp_t5_last_error());
    return opened(m, TOK_DAMAGED, why);
}

/* Point out the spiece.model beside a tokenizer.json that cannot be used. transformers reads only the tokenizer.json of
 * such a folder, so relpos does not choose the other file by itself. */
static rp_status mention_spiece(rp_t5 *m, const char *folder)
{
    char why[TOK_ERR_MAX + 80];
    if (!model_has_file(folder, "spiece.model"))
        return RP_OK;
    snprintf(why, sizeof why, "%s; or remove the file, to use spiece.model of the same folder", m->why_no_tokenizer);
    return no_tokenizer(m, why);
}

/* Add a note if AutoTokenizer of transformers 5 gives other tokens for a tokenizer.json. */
static rp_status compare(rp_t5 *m, const char *path)
{
    t5_maker maker;
    bool named;
    const rp_status status = t5_find_maker(m, &maker, &named);
    if (status != RP_OK || maker != T5_MAKER_T5 || m->tokenizer == NULL || tok_has_t5_rules(m->tokenizer))
        return status;
    return named ? t5_model_failed(model_add_note(
                       &m->notes,
                       "%s: its rules are used, because no piece begins with U+2581; with T5Tokenizer of "
                       "transformers 5, every word would begin with <unk>",
                       path))
                 : t5_model_failed(model_add_note(
                       &m->notes,
                       "%s: its rules are used, because no file names a tokenizer_class; AutoTokenizer of "
                       "transformers 5 uses those of T5Tokenizer (name the class in tokenizer_config.json)",
                       path));
}

/* Use the bytes of a text. transformers adds the added_tokens of a tokenizer.json to them; relpos does not read it. */
static rp_status use_bytes_of(rp_t5 *m, const char *folder)
{
    const rp_status status = use_bytes(m);
    if (status != RP_OK || !model_has_file(folder, "tokenizer.json"))
        return status;
    return t5_model_failed(
        model_add_note(&m->notes, "%s/tokenizer.json: not read, because tokenizer_class is ByT5Tokenizer", folder));
}

/* Use the tokenizer file of a folder, or none. */
static rp_status use_folder(rp_t5 *m, const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "spiece.model"};
    t5_maker maker;
    bool named;
    const rp_status found = t5_find_maker(m, &maker, &named);
    if (found != RP_OK || maker == T5_MAKER_BYTES)
        return found != RP_OK ? found : use_bytes_of(m, folder);
    for (int n = 0; n < 2 && m->tokenizer_text == NULL; n++) {
        char *path = model_join(folder, names[n]);
        if (path == NULL)
            return t5_no_memory();
        rp_status status = t5_model_failed(
            model_read_file(&m->files, path, TOK_MAX_FILE, (char **)&m->tokenizer_text, &m->tokenizer_size));
        if (status == RP_OK && m->tokenizer_text != NULL)
            status = use_tokenizer(m, path);
        if (status == RP_OK && n == 0)
            status = m->tokenizer_refused ? mention_spiece(m, folder) : compare(m, path);
        free(path);
        if (status != RP_OK)
            return status;
    }
    return m->tokenizer_text != NULL ? RP_OK : use_none_of(m, folder);
}

rp_status t5_find_tokenizer(rp_t5 *m, const char *folder)
{
    rp_status status = t5_read_beside(m, folder);
    if (status == RP_OK)
        status = use_folder(m, folder);
    return status == RP_OK ? check_beside(m, folder) : status;
}

rp_status t5_gguf_tokenizer(rp_t5 *m, const char *path)
{
    enum { ADDED_TOKENS = 0, TOKENIZER_CONFIG = 1 };
    tok_written files;
    char err[TOK_ERR_MAX] = "";
    const tok_status made = tok_write_gguf(io_checkpoint_keys(m->file), path, &files, err);
    if (made == TOK_ABSENT)
        return use_none(m, err);
    if (made != TOK_OK)
        return opened(m, made, err);
    m->tokenizer_text = (unsigned char *)files.spiece;
    m->tokenizer_size = (size_t)files.spiece_size;
    m->beside_text[ADDED_TOKENS] = files.added_tokens;
    m->beside_text[TOKENIZER_CONFIG] = files.tokenizer_config;
    return use_tokenizer(m, path);
}

rp_status t5_given_tokenizer(rp_t5 *m, const char *path)
{
    char err[IO_ERR_MAX];
    bool folder;
    if (io_is_folder(path, &folder, err) != IO_OK)
        return t5_fail(RP_E_ARG, "%s", err);
    rp_status status;
    if (folder) {
        status = t5_find_tokenizer(m, path);
    } else {
        status = t5_model_failed(
            model_read_file(&m->files, path, TOK_MAX_FILE, (char **)&m->tokenizer_text, &m->tokenizer_size));
        if (status == RP_OK && m->tokenizer_text == NULL)
            return t5_fail(RP_E_ARG, "%s: the tokenizer does not exist (check the path)", path);
        if (status == RP_OK)
            status = t5_name_maker(m);
        if (status == RP_OK)
            status = use_tokenizer(m, path);
    }
    if (status == RP_OK && m->tokenizer == NULL)
        return t5_fail(RP_E_ARG, "%s: the tokenizer cannot be used: %s", path, m->why_no_tokenizer);
    return status;
}

rp_status t5_embedded_tokenizer(rp_t5 *m, const char *path)
{
    return m->tokenizer_text != NULL
               ? use_tokenizer(m, path)
               : use_none(m, "its file contains no tokenizer; --tokenizer takes a folder or a file with one");
}

rp_status t5_copy_tokenizer(rp_t5 *m, const io_tensor *array, const char *path)
{
    char *text;
    const rp_status status = t5_model_failed(model_copy_bytes(array, path, &text, &m->tokenizer_size));
    m->tokenizer_text = (unsigned char *)text;
    return status;
}

static rp_status use_packed(rp_t5 *m, const char *path)
{
    const io_tensor *t = io_checkpoint_find(m->file, T5_TOKENIZER_ARRAY);
    t5_maker maker;
    bool named;
    const rp_status found = t5_find_maker(m, &maker, &named);
    if (found != RP_OK || maker == T5_MAKER_BYTES)
        return found != RP_OK ? found : use_bytes(m);
    if (t == NULL)
        return use_none(m, "it was packed without a tokenizer");
    const rp_status status = t5_copy_tokenizer(m, t, path);
    return status == RP_OK ? use_tokenizer(m, path) : status;
}

rp_status t5_packed_tokenizer(rp_t5 *m, const char *path)
{
    rp_status status = t5_copy_beside(m);
    if (status == RP_OK)
        status = use_packed(m, path);
    return status == RP_OK ? check_beside(m, path) : status;
}

rp_status t5_drop_tokenizer(rp_t5 *m)
{
    return no_tokenizer(m, "it was opened without its tokenizer");
}

static rp_status need_tokenizer(const rp_t5 *m)
{
    if (m == NULL)
        return t5_fail(RP_E_ARG, "model is NULL; open one with rp_t5_open");
    if (m->tokenizer == NULL)
        return t5_fail(RP_E_UNSUPPORTED, "the model accepts only token numbers: %s",
                       m->why_no_tokenizer ? m->why_no_tokenizer : "it has no tokenizer");
    return RP_OK;
}

rp_status t5_compact_tokenizer(const rp_t5 *m, char **made, int64_t *size)
{
    char err[TOK_ERR_MAX] = "";
    tok_beside beside;
    const rp_status found = files_beside(m, &beside);
    if (found != RP_OK)
        return found;
    const tok_status status =
        tok_compact((const char *)m->tokenizer_text, (int64_t)m->tokenizer_size, &beside, made, size, err);
    return status == TOK_OK ? RP_OK : tokenizer_failed(status, err);
}

rp_status rp_t5_tokenize(const rp_t5 *m, const char *text, int64_t bytes, int32_t **tokens, int64_t *n)
{
    return rp_t5_tokenize_watched(m, text, bytes, NULL, NULL, tokens, n);
}

rp_status rp_t5_tokenize_watched(const rp_t5 *m, const char *text, int64_t bytes, rp_t5_cancelled *cancelled,
                                 void *context, int32_t **tokens, int64_t *n)
{
    char err[TOK_ERR_MAX] = "";
    if (text == NULL || tokens == NULL || n == NULL)
        return t5_fail(RP_E_ARG, "text, tokens or n is NULL; pass all of them");
    *tokens = NULL;
    *n = 0;
    const rp_status status = need_tokenizer(m);
    if (status != RP_OK)
        return status;
    const tok_status made = tok_encode_watched(m->tokenizer, text, bytes < 0 ? (int64_t)strlen(text) : bytes, true,
                                               cancelled, context, tokens, n, err);
    return made == TOK_OK ? RP_OK : made == TOK_CANCELLED ? t5_cancelled() : tokenizer_failed(made, err);
}

const char *rp_t5_piece(const rp_t5 *m, int32_t token)
{
    return m != NULL && m->tokenizer != NULL ? tok_piece(m->tokenizer, token, NULL) : NULL;
}

static rp_status detokenize(const rp_t5 *m, const int32_t *tokens, int64_t n, bool skip_special, char **text,
                            int64_t *bytes)
{
    char err[TOK_ERR_MAX] = "";
    int64_t size;
    if ((tokens == NULL && n > 0) || text == NULL)
        return t5_fail(RP_E_ARG, "tokens or text is NULL; pass both");
    *text = NULL;
    if (bytes != NULL)
        *bytes = 0;
    rp_status status = need_tokenizer(m);
    if (status != RP_OK)
        return status;
    const rp_t5_tokens given = {tokens, n};
    if ((status = t5_in_vocabulary(m, "tokens", 1, &given)) != RP_OK)
        return status;
    const tok_status made = tok_decode(m->tokenizer, tokens, n, skip_special, text, &size, err);
    if (made != TOK_OK)
        return tokenizer_failed(made, err);
    if (m->info.cleans_up)
        size = t5_clean_up(*text, size);
    if (bytes != NULL)
        *bytes = size;
    return RP_OK;
}

rp_status rp_t5_detokenize(const rp_t5 *m, const int32_t *tokens, int64_t n, char **text, int64_t *bytes)
{
    return detokenize(m, tokens, n, true, text, bytes);
}

rp_status rp_t5_detokenize_special(const rp_t5 *m, const int32_t *tokens, int64_t n, char **text, int64_t *bytes)
{
    return detokenize(m, tokens, n, false, text, bytes);
}

void rp_t5_free(void *memory)
{
    free(memory);
}
