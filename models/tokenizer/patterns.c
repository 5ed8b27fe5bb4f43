/* patterns.c -- splits a text into words as known regular expressions do.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

/* What follows the contractions is the same in all expressions of one kind. */
#define GPT2 "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CL100K(numbers)                                                                                                \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

tok_split tok_known_pattern(const char *regex)
{
    static const struct {
        const char *regex;
        tok_split split;
    } known[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d" GPT2, TOK_SPLIT_GPT2},
        {"'(?:[sdmt]|ll|ve|re)" GPT2, TOK_SPLIT_GPT2},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)" CL100K("\\p{N}{1,3}"), TOK_SPLIT_CL100K},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)" CL100K("\\p{N}"), TOK_SPLIT_QWEN2},
        {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
         "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
         TOK_SPLIT_CL100K},
    };
    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++)
        if (strcmp(regex, known[k].regex) == 0)
            return known[k].split;
    return TOK_SPLIT_NONE;
}

/* Kinds of characters. */
typedef enum kind { NOTHING, LETTER, NUMBER, SPACE, OTHER } kind;

/* Return the kind of the first character of a text, and set its size. */
static kind kind_at(const char *text, int64_t size, int64_t *n)
{
    uint32_t c;
    *n = tok_utf8(text, size, &c);
    return *n == 0 ? NOTHING : tok_is_letter(c) ? LETTER : tok_is_number(c) ? NUMBER : tok_is_space(c) ? SPACE : OTHER;
}

/* Return the end of at most `most` characters of one kind, from `at` on. */
static int64_t run_end(const char *text, int64_t size, int64_t at, kind of, int64_t most)
{
    int64_t n;
    while (most-- > 0 && kind_at(text + at, size - at, &n) == of)
        at += n;
    return at;
}

/* Return the size of a contraction such as "'ll"; 0: the text does not begin with one. With `any_case`, upper and lower
 * case are equal, and U+017F is an "s". */
static int64_t contraction(const char *text, int64_t size, bool any_case)
{
    static const char *const after[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (size < 2 || text[0] != '\'')
        return 0;
    if (any_case && size >= 3 && memcmp(text + 1, "\xc5\xbf", 2) == 0)
        return 3;
    for (size_t k = 0; k < sizeof(after) / sizeof(*after); k++) {
        int64_t n = 0;
        while (after[k][n] != 0 && n + 1 < size &&
               (text[n + 1] == after[k][n] || (any_case && text[n + 1] == after[k][n] - 'a' + 'A')))
            n++;
        if (after[k][n] == 0)
            return n + 1;
    }
    return 0;
}

/* Return the size of white space at the start: all but its last character, if another character follows. With `lines`,
 * it ends after the last line end, if there is one. */
static int64_t space(const char *text, int64_t size, bool lines)
{
    int64_t end = 0, last = 0, line = 0, n;
    while (kind_at(text + end, size - end, &n) == SPACE) {
        last = end;
        end += n;
        if (text[last] == '\n' || text[last] == '\r')
            line = end;
    }
    return lines && line > 0 ? line : end < size && last > 0 ? last : end;
}

static int64_t gpt2_word(const char *text, int64_t size)
{
    int64_t n = contraction(text, size, false), lead = text[0] == ' ';
    if (n > 0)
        return n;
    const kind of = kind_at(text + lead, size - lead, &n);
    if (of != NOTHING && of != SPACE)
        return run_end(text, size, lead, of, size);
    return space(text, size, false);
}

static int64_t cl100k_word(const char *text, int64_t size, int64_t numbers)
{
    int64_t n = contraction(text, size, true), next, more;
    if (n > 0)
        return n;
    const kind of = kind_at(text, size, &next);
    if (of == LETTER)
        return run_end(text, size, 0, LETTER, size);
    if (of == NUMBER)
        return run_end(text, size, 0, NUMBER, numbers);
    const kind second = kind_at(text + next, size - next, &more);
    if (second == LETTER && text[0] != '\r' && text[0] != '\n')
        return run_end(text, size, next, LETTER, size);
    if (of == OTHER || (text[0] == ' ' && second == OTHER)) {
        n = run_end(text, size, of == OTHER ? 0 : 1, OTHER, size);
        while (n < size && (text[n] == '\r' || text[n] == '\n'))
            n++;
        return n;
    }
    return space(text, size, true);
}

int64_t tok_pattern_word(tok_split split, const char *text, int64_t size)
{
    const int64_t n =
        split == TOK_SPLIT_GPT2 ? gpt2_word(text, size) : cl100k_word(text, size, split == TOK_SPLIT_CL100K ? 3 : 1);
    return n > 0 ? n : size;
}
