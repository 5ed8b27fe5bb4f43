/* bert_rules.c -- the rules of BertTokenizer and MPNetTokenizer in transformers 5 for characters, words, special tokens
 * and decoding.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

void tok_set_around(tokenizer *t, int32_t cls, int32_t sep, bool roberta)
{
    t->single = (tok_template){{{cls, 0}, {TOK_FIRST_TEXT, 0}, {sep, 0}}, 3};
    if (roberta)
        t->pair =
            (tok_template){{{cls, 0}, {TOK_FIRST_TEXT, 0}, {sep, 0}, {sep, 0}, {TOK_SECOND_TEXT, 0}, {sep, 0}}, 6};
    else
        t->pair = (tok_template){{{cls, 0}, {TOK_FIRST_TEXT, 0}, {sep, 0}, {TOK_SECOND_TEXT, 1}, {sep, 1}}, 5};
}

bool tok_add_bert_steps(tokenizer *t, const tok_bert *bert)
{
    const struct {
        bool used;
        tok_norm_kind kind;
    } steps[] = {{bert->clean, TOK_NORM_CLEAN},
                 {bert->ideographs, TOK_NORM_IDEOGRAPHS},
                 {bert->strip, TOK_NORM_NFD},
                 {bert->strip, TOK_NORM_NONSPACING},
                 {bert->lower, TOK_NORM_LOWER}};
    for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); k++) {
        if (steps[k].used && t->n_norms == TOK_MAX_STEPS)
            return false;
        if (steps[k].used)
            t->norms[t->n_norms++].kind = steps[k].kind;
    }
    return true;
}

bool tok_set_bert_rules(tokenizer *t, const tok_bert *bert)
{
    tok_set_words(t, TOK_INNER_PREFIX, sizeof(TOK_INNER_PREFIX) - 1, TOK_BERT_MAX_WORD);
    t->n_norms = 0;
    tok_add_bert_steps(t, bert);
    t->split = TOK_SPLIT_BERT;
    t->steps[t->n_steps++] = (tok_decode_step){.kind = TOK_DECODE_WORDPIECE,
                                               .cleanup = true,
                                               .pattern = strdup(TOK_INNER_PREFIX),
                                               .pattern_size = sizeof(TOK_INNER_PREFIX) - 1};
    return t->steps[0].pattern != NULL;
}
