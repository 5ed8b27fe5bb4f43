/* unigram.c -- splits a text into the pieces with the largest sum of scores, by the Viterbi algorithm. Kudo 2018,
 * "Subword Regularization", section 3.2.
 *
 * The text is processed in windows. If no piece extends across a position, every segmentation splits the text there, so
 * the tokens before it are final. Memory is therefore proportional to the longest stretch of overlapping pieces, which
 * is rarely longer than a word.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

#include <stdlib.h>

/* One byte of a window. While the window grows: the best path that ends here. Afterwards: the piece that begins
 * here. */
struct tok_node {
    double score;
    int32_t id, length; /* last piece of the path; length 0: no path ends here */
};

static bool make_nodes(tok_work *w, int64_t n)
{
    if (n <= w->n_nodes)
        return true;
    const int64_t space = n + n / 2 + 256;
    tok_node *nodes = w->nodes_failed ? NULL : realloc(w->nodes, (size_t)space * sizeof(*nodes));
    w->nodes_failed = nodes == NULL;
    if (nodes != NULL)
        w->nodes = nodes, w->n_nodes = space;
    return nodes != NULL;
}

/* Append the tokens of the bytes text[begin .. end). */
static void add_bytes(tok_work *w, const char *text, int64_t begin, int64_t end)
{
    for (int64_t k = begin; k < end; k++)
        tok_add_piece(w, w->t->byte_ids[(unsigned char)text[k]], begin, end);
}

static bool has_bytes(const tokenizer *t, const char *text, int64_t size)
{
    for (int64_t k = 0; k < size; k++)
        if (t->byte_ids[(unsigned char)text[k]] < 0)
            return false;
    return true;
}

/* Append the token for a run of unknown characters, text[unknown_from .. end). Like `tokenizers`, join the run and look
 * up the result. */
static void end_unknown(tok_work *w, const char *text, int64_t end)
{
    const tokenizer *t = w->t;
    const char *from = text + w->unknown_from;
    const int64_t size = end - w->unknown_from;
    const int32_t id = tok_trie_exact(&t->pieces, from, size);
    if (id < 0 && t->byte_fallback && has_bytes(t, from, size))
        add_bytes(w, text, w->unknown_from, end);
    else
        tok_add_piece(w, id >= 0 ? id : t->unk, w->unknown_from, end);
    w->unknown_from = -1;
}

static void add_token(tok_work *w, const char *text, int64_t at, int32_t id, int32_t length)
{
    const tokenizer *t = w->t;
    const bool unknown = id == t->unk;
    if (t->kind == TOK_JSON) {
        if (unknown && w->unknown_from < 0)
            w->unknown_from = at;
        if (!unknown && w->unknown_from >= 0)
            end_unknown(w, text, at);
        if (!unknown)
            tok_add_piece(w, id, at, at + length);
        return;
    }
    if (unknown && t->byte_fallback)
        add_bytes(w, text, at, at + length);
    else if (!unknown || !w->after_unknown) /* consecutive unknown characters are one token */
        tok_ids_add(&w->ids, id);
    w->after_unknown = unknown;
}

/* Append the tokens of the window text[from .. end). To do so, trace the best path back from its end, and record each
 * piece at the node where it begins. */
static void add_window(tok_work *w, const char *text, int64_t from, int64_t end)
{
    tok_node *nodes = w->nodes, last = nodes[end - from];
    for (int64_t at = end - from; at > 0;) {
        at -= last.length;
        const tok_node before = nodes[at];
        nodes[at].id = last.id;
        nodes[at].length = last.length;
        last = before;
    }
    for (int64_t at = from; at < end;) {
        const tok_node node = nodes[at - from];
        add_token(w, text, at, node.id, node.length);
        at += node.length;
    }
}

/* Update a node if the new path has a larger score. SentencePiece sums scores in float (`single`), `tokenizers` in
 * double; the rounding decides between nearly equal sums. */
static inline void offer(tok_node *node, double score, int32_t id, int64_t length, bool single)
{
    if (single)
        score = (double)(float)score;
    if (node->length != 0 && !(score > node->score))
        return;
    node->score = score;
    node->id = id;
    node->length = (int32_t)length;
}

static inline double score_of(const tokenizer *t, int32_t id, int64_t length, bool single)
{
    const tok_entry *token = &t->tokens[id];
    if (single && token->type == TOK_USER_DEFINED) /* user-defined pieces get a larger score than all others */
        return (double)(float)((double)length * 0.1 - 0.1);
    return token->score;
}

/* Return the number of bytes of a character with this first byte. */
static inline int character_size(unsigned char first)
{
    return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 1;
}

/* Update the nodes at which a piece that begins at text[at] ends. Update *reach, the furthest such end. */
static inline bool offer_pieces(tok_work *w, const char *text, int64_t size, int64_t from, int64_t at, int64_t *reach,
                                bool single)
{
    const tokenizer *t = w->t;
    const double best = w->nodes[at - from].score;
    int64_t character = character_size((unsigned char)text[at]);
    if (character > size - at)
        character = size - at;
    bool known = false;
    uint32_t base = t->pieces.root;
    int32_t id;
    int64_t end = at;
    while (end < size && tok_trie_step(&t->pieces, &base, (unsigned char)text[end], &id)) {
        end++;
        if (id == TOK_TRIE_NONE || (single && t->tokens[id].type == TOK_UNUSED))
            continue;
        if (!make_nodes(w, end - from + 1))
            return false;
        while (*reach < end)
            w->nodes[++*reach - from].length = 0;
        offer(&w->nodes[end - from], score_of(t, id, end - at, single) + best, id, end - at, single);
        known = known || end - at == character;
    }
    w->until_asked -= end - at;
    if (known)
        return true;
    end = at + character;
    if (!make_nodes(w, end - from + 1))
        return false;
    while (*reach < end)
        w->nodes[++*reach - from].length = 0;
    const double unknown = t->min_score - 10;
    offer(&w->nodes[end - from], single ? (double)((float)unknown + (float)best) : unknown + best, t->unk, character,
          single);
    return true;
}

/* In long texts the sums become so large that float cannot distinguish pieces. SentencePiece 0.2.3 subtracts the sum
 * when it falls below this score. */
#define REBASE (-100000.0)
static void rebase(tok_work *w, int64_t at, int64_t reach)
{
    const float base = (float)w->nodes[at].score;
    for (int64_t k = at; k <= reach; k++)
        if (k == at || w->nodes[k].length != 0)
            w->nodes[k].score = (double)((float)w->nodes[k].score - base);
}

static inline void search(tok_work *w, const char *text, int64_t size, bool single)
{
    if (!make_nodes(w, 1))
        return;
    int64_t from = 0, reach = 0;
    w->nodes[0].score = 0;
    for (int64_t at = 0; at < size;) {
        if (!tok_goes_on(w, 1))
            return;
        if (at == reach && at > from) { /* no piece extends across this position */
            add_window(w, text, from, at);
            w->nodes[0].score = w->nodes[at - from].score;
            from = at;
        }
        if (single && w->nodes[at - from].score < REBASE)
            rebase(w, at - from, reach - from);
        if (!offer_pieces(w, text, size, from, at, &reach, single))
            return;
        const int64_t n = character_size((unsigned char)text[at]);
        at += n < size - at ? n : size - at;
    }
    add_window(w, text, from, size);
}

void tok_unigram(tok_work *w, const char *text, int64_t size)
{
    w->after_unknown = false;
    w->unknown_from = -1;
    if (w->t->kind == TOK_JSON) {
        search(w, text, size, false);
        if (w->unknown_from >= 0 && !w->nodes_failed && !w->stopped)
            end_unknown(w, text, size);
    } else {
        search(w, text, size, true);
    }
}
