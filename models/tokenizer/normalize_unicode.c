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

/* ---- NFD and NFC */

/* A character of the result. change > 0: it is inserted, as all but the first character of a decomposition are.
 * Otherwise it replaces 1 - change characters of the text. */
struct tok_mark {
    uint32_t c;
    int change;
    uint8_t rank; /* from tok_mark_class; 0: it keeps its place */
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
static tok_mark *sort_marks(tok_mark *marks, int64_t n, tok_mark *spare)
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
    if (mark->change > 0) {
        insert(e, mark->c);
        return;
    }
    tok_edit_replace(e, tok_utf8(e->text + e->at, e->size - e->at, &c), mark->c);
    for (int k = mark->change; k < 0; k++)
        tok_edit_drop(e, tok_utf8(e->text + e->at, e->size - e->at, &c));
}

/* A text from a character that keeps its place to before the next such character. */
typedef struct sequence {
    bool composes;
    bool begun;     /* there is a first character */
    tok_mark first; /* with `composes`; NFD passes it on at once */
    int64_t n;      /* number of marks after it, in w->marks */
} sequence;

/* Compose two characters into the first, if NFC does so. */
static bool compose(const sequence *s, tok_mark *first, const tok_mark *second)
{
    const uint32_t c = s->composes && s->begun ? tok_compose(first->c, second->c) : 0;
    if (c != 0)
        *first = (tok_mark){c, first->change + second->change - 1, 0};
    return c != 0;
}

/* End a sequence, and begin the next with a character that keeps its place; next = NULL: at the end of the text. */
static void end_sequence(tok_work *w, tok_edit *e, sequence *s, const tok_mark *next)
{
    tok_mark *marks = s->n > 0 ? sort_marks(w->marks, s->n, w->marks + s->n) : NULL;
    int64_t kept = 0;
    for (int64_t k = 0; k < s->n; k++) /* a mark of the same rank before it keeps a mark from composing */
        if ((kept > 0 && marks[kept - 1].rank >= marks[k].rank) || !compose(s, &s->first, &marks[k]))
            marks[kept++] = marks[k];
    s->n = 0;
    if (kept == 0 && next != NULL && compose(s, &s->first, next))
        return;
    if (s->composes && s->begun)
        give(e, &s->first);
    for (int64_t k = 0; k < kept; k++)
        give(e, &marks[k]);
    s->begun = next != NULL;
    if (next != NULL && s->composes)
        s->first = *next;
    else if (next != NULL)
        give(e, next);
}

static void decompose(tok_work *w, tok_edit *e, bool composes)
{
    static const ascii_set all = ALL;
    sequence s = {.composes = composes};
    uint32_t c, to[4];
    for (int64_t at = 0; at < e->size && tok_goes_on(w, 1);) {
        if ((unsigned char)e->text[at] < 0x80) { /* no ASCII character composes with the one before it */
            end_sequence(w, e, &s, NULL);
            const int64_t run = run_of(e, &all);
            tok_goes_on(w, run);
            tok_edit_keep(e, composes ? run - 1 : run);
            s.begun = true;
            s.first = (tok_mark){(unsigned char)e->text[at + run - 1], 0, 0};
            at += run;
            continue;
        }
        at += tok_utf8(e->text + at, e->size - at, &c);
        const int parts = tok_decompose(c, to);
        for (int k = 0; k < parts; k++) {
            const tok_mark mark = {to[k], k > 0, (uint8_t)(to[k] < 0x300 ? 0 : tok_mark_class(to[k]))};
            if (mark.rank == 0) {
                end_sequence(w, e, &s, &mark);
            } else if (make_marks(w, s.n + 1)) {
                w->marks[s.n++] = mark;
            } else {
                e->to->failed = true;
                return;
            }
        }
    }
    end_sequence(w, e, &s, NULL);
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
    if (kind == TOK_NORM_NFD || kind == TOK_NORM_NFC) {
        decompose(w, e, kind == TOK_NORM_NFC);
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
