/* bpe.c -- splits a word into pieces by merging its bytes: of all merges of neighbours, the one with the lowest rank is
 * done first, and of several the leftmost. Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword
 * Units", algorithm 1. A priority queue of merges makes the time O(n log n) for n bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

#include <stdlib.h>

enum { GONE = -1 };

/* An element of a linked list. Its token covers the bytes from `begin` to that of the next. */
struct tok_symbol {
    int32_t id; /* GONE: it was merged with the one before it */
    uint32_t begin;
    uint32_t before, next; /* before = UINT32_MAX: it is the first; next = number of symbols: it is the last */
};

static const tok_merge *find(const tok_merges *m, int32_t left, int32_t right)
{
    for (uint32_t at = tok_merge_place(left, right);; at++) {
        const tok_merge *merge = &m->table[at & m->mask];
        if (merge->left == left && merge->right == right)
            return merge;
        if (merge->left < 0)
            return NULL;
    }
}

/* ---- the queue: a binary heap of rank << 32 | symbol */

static void push(uint64_t *queue, int64_t *n, uint64_t key)
{
    int64_t at = (*n)++;
    for (; at > 0 && queue[(at - 1) / 2] > key; at = (at - 1) / 2)
        queue[at] = queue[(at - 1) / 2];
    queue[at] = key;
}

static uint64_t pop(uint64_t *queue, int64_t *n)
{
    const uint64_t first = queue[0], key = queue[--*n];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < *n; at = child) {
        child += child + 1 < *n && queue[child + 1] < queue[child];
        if (queue[child] >= key)
            break;
        queue[at] = queue[child];
    }
    queue[at] = key;
    return first;
}

/* Queue the merge of a symbol with the next, if there is one. */
static void offer(tok_work *w, int64_t *queued, uint32_t left)
{
    const tok_symbol *symbols = w->symbols;
    const tok_merge *merge = find(&w->t->merges, symbols[left].id, symbols[symbols[left].next].id);
    if (merge != NULL)
        push(w->queue, queued, (uint64_t)merge->rank << 32 | left);
}

/* Do all merges of n symbols. */
static void merge_all(tok_work *w, uint32_t n)
{
    const tok_merges *m = &w->t->merges;
    tok_symbol *symbols = w->symbols;
    int64_t queued = 0;
    for (uint32_t k = 0; k + 1 < n; k++)
        offer(w, &queued, k);
    while (queued > 0 && tok_goes_on(w, 1)) {
        const uint64_t key = pop(w->queue, &queued);
        const uint32_t left = (uint32_t)key, right = symbols[left].next;
        if (symbols[left].id == GONE || right == n)
            continue;
        const tok_merge *merge = find(m, symbols[left].id, symbols[right].id);
        if (merge == NULL || merge->made != m->made[key >> 32]) /* another merge changed one of them */
            continue;
        symbols[left].id = merge->made;
        symbols[right].id = GONE;
        const uint32_t next = symbols[left].next = symbols[right].next;
        if (next < n) {
            symbols[next].before = left;
            offer(w, &queued, left);
        }
        if (symbols[left].before != UINT32_MAX)
            offer(w, &queued, symbols[left].before);
    }
}

/* ---- words */

static bool make_symbols(tok_work *w, int64_t n)
{
    if (n <= w->n_symbols)
        return true;
    const int64_t space = n + 64;
    tok_symbol *symbols = realloc(w->symbols, (size_t)space * sizeof(*symbols));
    if (symbols != NULL)
        w->symbols = symbols;
    uint64_t *queue = realloc(w->queue, 2 * (size_t)space * sizeof(*queue));
    if (queue != NULL)
        w->queue = queue;
    w->symbols_failed = symbols == NULL || queue == NULL;
    if (!w->symbols_failed)
        w->n_symbols = space;
    return !w->symbols_failed;
}

/* Make a symbol of each byte, and return their number. Bytes without a piece are unknown; with
 * t->merges.skips they have no symbol. */
static uint32_t make_word(tok_work *w, const char *text, int64_t size)
{
    const tokenizer *t = w->t;
    uint32_t n = 0;
    bool unknown = false;
    for (int64_t k = 0; k < size && tok_goes_on(w, 1); k++) {
        const int32_t id = t->byte_ids[(unsigned char)text[k]];
        const bool joined = id < 0 && (t->merges.skips || (unknown && t->merges.fuse_unk));
        unknown = id < 0;
        if (!joined) {
            w->symbols[n] = (tok_symbol){id >= 0 ? id : t->unk, (uint32_t)k, n - 1, n + 1};
            n++;
        }
    }
    return n;
}

/* Return the number of the piece that is a word, or -1. */
static int32_t whole(const tokenizer *t, const char *text, int64_t size)
{
    uint32_t base = t->pieces.root;
    int32_t id = -1;
    for (int64_t k = 0; k < size; k++) {
        char bytes[4];
        const int n = tok_utf8_write(tok_byte_character((unsigned char)text[k]), bytes);
        for (int x = 0; x < n; x++)
            if (!tok_trie_step(&t->pieces, &base, (unsigned char)bytes[x], &id))
                return -1;
    }
    return id != TOK_TRIE_NONE ? id : -1;
}

/* A place in the word, in bytes, and in bytes of the characters that stand for them. */
typedef struct place {
    int64_t byte, shown;
} place;

static int shown_size(unsigned char byte)
{
    return tok_byte_character(byte) < 0x80 ? 1 : 2;
}

/* Go on to the byte whose characters include the byte at `shown`. */
static void go_to(place *p, const char *text, int64_t shown)
{
    for (int n; p->shown + (n = shown_size((unsigned char)text[p->byte])) <= shown; p->byte++)
        p->shown += n;
}

/* Append a token. `tokenizers` takes the sum of the sizes of the tokens before it as its place, in bytes of the
 * characters that stand for bytes; so each byte without a token moves the spans of the tokens after it. */
static void add_moved(tok_work *w, int32_t id, const char *text, int64_t begin, int64_t end, place *at, int64_t *shown)
{
    go_to(at, text, *shown);
    const int64_t first = at->byte;
    for (int64_t k = begin; k < end; k++)
        *shown += w->t->byte_ids[(unsigned char)text[k]] >= 0 ? shown_size((unsigned char)text[k]) : 0;
    go_to(at, text, *shown - 1);
    tok_add_piece(w, id, first, at->byte + 1);
}

void tok_bpe(tok_work *w, const char *text, int64_t size)
{
    const tokenizer *t = w->t;
    const int32_t id = t->merges.ignore_merges ? whole(t, text, size) : -1;
    w->word_too_long = w->word_too_long || size > TOK_MAX_WORD;
    if (id >= 0 && tok_goes_on(w, size))
        tok_add_piece(w, id, 0, size);
    if (id >= 0 || w->word_too_long || !make_symbols(w, size))
        return;
    const uint32_t n = make_word(w, text, size);
    merge_all(w, n);
    place at = {0, 0};
    int64_t shown = 0;
    for (uint32_t k = 0; k < n && !w->stopped; k = w->symbols[k].next) {
        const tok_symbol *s = &w->symbols[k];
        const int64_t begin = s->begin, end = s->next < n ? w->symbols[s->next].begin : size;
        if (t->merges.skips && w->mapped)
            add_moved(w, s->id, text, begin, end, &at, &shown);
        else
            tok_add_piece(w, s->id, begin, end);
    }
}
