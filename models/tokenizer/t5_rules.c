/* t5_rules.c -- the rules of T5Tokenizer in transformers 5 for spaces, unknown characters and decoding.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

#include <stdlib.h>

bool tok_set_t5_rules(tokenizer *t)
{
    t->n_norms = 0;
    if (t->charsmap.n_units > 0)
        t->norms[t->n_norms++].kind = TOK_NORM_CHARSMAP;
    t->byte_fallback = false;
    t->split = TOK_SPLIT_WHITE;
    t->meta = t->meta_split = true;
    t->prepend = TOK_PREPEND_ALWAYS;
    t->meta_size = TOK_META_SIZE;
    memcpy(t->meta_text, TOK_META, TOK_META_SIZE);
    t->steps[t->n_steps++] = (tok_decode_step){.kind = TOK_DECODE_META,
                                               .drop = true,
                                               .pattern = strdup(TOK_META),
                                               .content = strdup(" "),
                                               .pattern_size = TOK_META_SIZE,
                                               .content_size = 1};
    return t->steps[0].pattern != NULL && t->steps[0].content != NULL;
}

bool tok_has_t5_rules(const tokenizer *t)
{
    const tok_decode_step *step = &t->steps[0];
    const bool norms =
                   t->charsmap.n_units > 0 ? t->n_norms == 1 && t->norms[0].kind == TOK_NORM_CHARSMAP : t->n_norms == 0,
               words = t->split == TOK_SPLIT_WHITE && t->meta && t->meta_split && t->prepend == TOK_PREPEND_ALWAYS &&
                       t->meta_size == TOK_META_SIZE && memcmp(t->meta_text, TOK_META, TOK_META_SIZE) == 0,
               decodes = t->n_steps == 1 && step->kind == TOK_DECODE_META && step->drop &&
                         step->pattern_size == TOK_META_SIZE && memcmp(step->pattern, TOK_META, TOK_META_SIZE) == 0,
               ends = t->single.n == 2 && t->single.items[0].id == TOK_FIRST_TEXT && t->single.items[1].id == t->eos &&
                      t->eos >= 0;
    return t->kind == TOK_JSON && norms && words && decodes && ends && t->unk == 2 && !t->byte_fallback &&
           t->model == TOK_UNIGRAM;
}
