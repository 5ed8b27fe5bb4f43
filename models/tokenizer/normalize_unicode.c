/* normalize_unicode.c -- the steps of BertNormalizer and those like them, with the results of the library `tokenizers`.
 * Each replaces, inserts or removes single characters.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/edit.h"
#include "tokenizer/parts.h"

#include <stdlib.h>

/* Insert a character. */
static void insert(tok_edit *e, uint32_t c)
{
    char bytes[4];
    tok_edit_insert(e, bytes, tok_utf8_write(c, bytes));
}

/* A set of ASCII characters: bit c % 64 of bits[c / 64]. */
typedef struct ascii_set {
    uint64_t bits[2];
} ascii_set;

#define ALL                                                                                                            \
    {                                                                                                                  \
        {                                                                                                              \
            UINT64_MAX, UINT64_MAX                                                                                     \
        }                                                                                                              \
    }

/* Return the number of characters from e->at on that are in the set. */
static int64_t run_of(const tok_edit *e, const ascii_set *set)
{
    int64_t end = e->at;
    for (unsigned char c;
         end < e->size && (c = (unsigned char)e->text[end]) < 0x80 && set->bits[c >> 6] >> (c & 63) & 1;)
        end++;
    return end - e->at;
}

/* Replace white space by " ", and remove control characters. */
static void clean(tok_edit *e, int n, uint32_t c)
{
    if (tok_is_space(c) && (c == '\t' || c == '\n' || c == '\r' || !tok_is_removed(c)))
        tok_edit_replace(e, n, ' ');
    else if (tok_is_removed(c))
        tok_edit_drop(e, n);
    else
        tok_edit_keep(e, n);
}

/* Put spaces around CJK characters. */
static void separate(tok_edit *e, int n, uint32_t c)
{
    if (!tok_is_ideograph(c)) {
        tok_edit_keep(e, n);
        return;
    }
    tok_edit_replace(e, n, ' ');
    insert(e, c);
    insert(e, ' ');
}

static void remove_nonspacing(tok_edit *e, int n, uint32_t c)
{
    if (tok_is_nonspacing(c))
        tok_edit_drop(e, n);
    else
        tok_edit_keep(e, n);
}

static void remove_marks(tok_edit *e, int n, uint32_t c)
{
    if (tok_is_mark(c))
        tok_edit_drop(e, n);
    else
        tok_edit_keep(e, n);
}

static void lower(tok_edit *e, int n, uint32_t c)
{
    if (c == 0x130) { /* LATIN CAPITAL LETTER I WITH DOT ABOVE */
        tok_edit_replace(e, n, 'i');
        insert(e, 0x307);
        return;
    }
    const uint32_t to = c < 0x80 ? c | 0x20 : tok_lower(c);
    if (to == c)
        tok_edit_keep(e, n);
    else
        tok_edit_replace(e, n, to);
}

/* ---- NFD */

/* A character of a decomposition. */
struct tok_mark {
    uint32_t c;
    uint8_t rank;  /* from tok_mark_class */
    bool inserted; /* it is not the first of its decomposition */
};

static bool make_marks(tok_work *w, int64_t n)
{
    if (2 * n <= w->n_marks)
        return true;
    const int64_t space = 3 * n + 64;
    tok_mark *marks = realloc(w->marks, (size_t)space * sizeof(*marks));
    if (marks != NULL)
        w->marks = marks, w->n_marks = space;
    return marks != NULL;
}

/* Sort n marks by rank; marks of the same rank keep their order. `spare` has room for n marks. Return whichever
 * contains the result. */
static const tok_mark *sort_marks(const tok_mark *marks, int64_t n, tok_mark *spare)
{
    int64_t starts[TOK_MARK_CLASSES + 1] = {0};
    bool sorted = true;
    for (int64_t k = 1; k < n; k++)
        sorted = sorted && marks[k - 1].rank <= marks[k].rank;
    if (sorted)
        return marks;
    for (int64_t k = 0; k < n; k++)
        starts[marks[k].rank + 1]++;
    for (int rank = 1; rank <= TOK_MARK_CLASSES; rank++)
        starts[rank] += starts[rank - 1];
    for (int64_t k = 0; k < n; k++)
        spare[starts[marks[k].rank]++] = marks[k];
    return spare;
}

static void give(tok_edit *e, const tok_mark *mark)
{
    uint32_t c;
    if (mark->inserted)
        insert(e, mark->c);
    else
        tok_edit_replace(e, tok_utf8(e->text + e->at, e->size - e->at, &c), mark->c);
}

/* Replace the characters from e->at on by the first n of w->marks, sorted. */
static void give_marks(tok_work *w, tok_edit *e, int64_t n)
{
    const tok_mark *marks = n > 0 ? sort_marks(w->marks, n, w->marks + n) : NULL;
    for (int64_t k = 0; k < n; k++)
        give(e, &marks[k]);
}

static void decompose(tok_work *w, tok_edit *e)
{
    int64_t n = 0, at = 0; /* number of characters in w->marks; end of the characters from which they come */
    while (at < e->size && tok_goes_on(w, 1)) {
        uint32_t c, to[4];
        if ((unsigned char)e->text[at] < 0x80) {
            static const ascii_set all = ALL;
            give_marks(w, e, n);
            n = 0;
            const int64_t run = run_of(e, &all);
            tok_goes_on(w, run);
            tok_edit_keep(e, run);
            at = e->at;
            continue;
        }
        const int size = tok_utf8(e->text + at, e->size - at, &c), parts = tok_decompose(c, to);
        at += size;
        for (int k = 0; k < parts; k++) {
            const tok_mark mark = {to[k], (uint8_t)(to[k] < 0x300 ? 0 : tok_mark_class(to[k])), k > 0};
            if (mark.rank == 0) {
                give_marks(w, e, n);
                give(e, &mark);
                n = 0;
            } else if (make_marks(w, n + 1)) {
                w->marks[n++] = mark;
            } else {
                e->to->failed = true;
                return;
            }
        }
    }
    give_marks(w, e, n);
}

/* ---- all steps */

void tok_normalize_unicode(tok_work *w, tok_norm_kind kind, tok_edit *e)
{
    static const struct {
        void (*change)(tok_edit *e, int n, uint32_t c);
        ascii_set kept; /* ASCII characters that the step does not change */
    } steps[] = {[TOK_NORM_CLEAN] = {clean, {{0xffffffff00000000, 0x7fffffffffffffff}}},
                 [TOK_NORM_IDEOGRAPHS] = {separate, ALL},
                 [TOK_NORM_NONSPACING] = {remove_nonspacing, ALL},
                 [TOK_NORM_MARKS] = {remove_marks, ALL},
                 [TOK_NORM_LOWER] = {lower, {{UINT64_MAX, 0xfffffffff8000001}}}};
    if (kind == TOK_NORM_NFD) {
        decompose(w, e);
        return;
    }
    while (e->at < e->size && tok_goes_on(w, 1)) {
        uint32_t c;
        const int64_t run = run_of(e, &steps[kind].kept);
        tok_goes_on(w, run);
        tok_edit_keep(e, run);
        const int n = tok_utf8(e->text + e->at, e->size - e->at, &c);
        if (n > 0)
            steps[kind].change(e, n, c);
    }
}
