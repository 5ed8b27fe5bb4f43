/* trie.c -- builds a double-array trie from sorted keys, and searches it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, OPEN_BLOCKS = 16 }; /* free units are searched for only in the last OPEN_BLOCKS blocks */

/* A node whose children have no place yet. Keys first … end-1 share their first `depth` bytes. */
typedef struct node {
    int64_t first, end;
    int64_t depth;
    int64_t unit; /* unit of the node; -1: the root */
} node;

typedef struct builder {
    tok_trie_unit *units;
    bool *base_taken;     /* indexed by base */
    int32_t *next, *last; /* circular list of the free units in the open blocks */
    int64_t n_units, capacity;
    int32_t free_one; /* some element of that list; -1: the list is empty */
    node *nodes;      /* stack */
    int64_t n_nodes, nodes_capacity;
} builder;

int tok_key_order(const tok_key *a, const tok_key *b)
{
    const int order = memcmp(a->bytes, b->bytes, (size_t)(a->size < b->size ? a->size : b->size));
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

static bool grow(void **array, int64_t n, size_t element)
{
    void *more = realloc(*array, (size_t)n * element);
    if (more != NULL)
        *array = more;
    return more != NULL;
}

static void unlink_unit(builder *b, int64_t unit)
{
    if (b->next[unit] == unit)
        b->free_one = -1;
    else if (b->free_one == unit)
        b->free_one = b->next[unit];
    b->next[b->last[unit]] = b->next[unit];
    b->last[b->next[unit]] = b->last[unit];
}

static bool is_free(const builder *b, int64_t unit)
{
    return (b->units[unit].entry & TOK_TRIE_USED) == 0;
}

/* Append a block, and close the oldest open block; its remaining free units stay unused. */
static bool add_block(builder *b)
{
    const int64_t old = b->n_units, n = old + BLOCK;
    if (n > INT32_MAX / 2)
        return false;
    if (n > b->capacity) {
        const int64_t capacity = 2 * n;
        if (!grow((void **)&b->units, capacity, sizeof(*b->units)) || !grow((void **)&b->base_taken, capacity, 1) ||
            !grow((void **)&b->next, capacity, sizeof(int32_t)) || !grow((void **)&b->last, capacity, sizeof(int32_t)))
            return false;
        b->capacity = capacity;
    }
    for (int64_t unit = old - OPEN_BLOCKS * BLOCK; unit >= 0 && unit < old - (OPEN_BLOCKS - 1) * BLOCK; unit++)
        if (is_free(b, unit))
            unlink_unit(b, unit);
    for (int64_t unit = old; unit < n; unit++) {
        b->units[unit] = (tok_trie_unit){0, (uint32_t)TOK_TRIE_NONE << 9};
        b->base_taken[unit] = unit == 0; /* base 0 means no children */
        if (b->free_one < 0) {
            b->free_one = b->next[unit] = b->last[unit] = (int32_t)unit;
            continue;
        }
        const int32_t first = b->free_one, end = b->last[first];
        b->next[unit] = first, b->last[unit] = end;
        b->next[end] = b->last[first] = (int32_t)unit;
    }
    b->n_units = n;
    return true;
}

static bool fits(const builder *b, int64_t base, const unsigned char *labels, int n)
{
    if (b->base_taken[base])
        return false;
    for (int k = 0; k < n; k++)
        if (!is_free(b, base ^ labels[k]))
            return false;
    return true;
}

/* Find a base for which the units of all these labels are free. Return -1 if out of memory. */
static int64_t find_base(builder *b, const unsigned char *labels, int n)
{
    if (b->free_one >= 0) {
        int32_t unit = b->free_one;
        do {
            if (fits(b, unit ^ labels[0], labels, n))
                return unit ^ labels[0];
            unit = b->next[unit];
        } while (unit != b->free_one);
    }
    const int64_t start = b->n_units;
    if (!add_block(b))
        return -1;
    return start > 0 ? start : 1; /* the block is empty; base 0 is reserved */
}

static bool push(builder *b, node of)
{
    if (b->n_nodes == b->nodes_capacity) {
        const int64_t capacity = 2 * b->nodes_capacity + 256;
        if (!grow((void **)&b->nodes, capacity, sizeof(node)))
            return false;
        b->nodes_capacity = capacity;
    }
    b->nodes[b->n_nodes++] = of;
    return true;
}

/* Place the children of a node, and push those that have children themselves. */
static bool place(builder *b, tok_trie *trie, const tok_key *keys, node parent)
{
    unsigned char labels[256];
    int64_t starts[257];
    int n = 0;
    for (int64_t k = parent.first; k < parent.end; k++) {
        const unsigned char label = (unsigned char)keys[k].bytes[parent.depth];
        if (n == 0 || labels[n - 1] != label)
            labels[n] = label, starts[n++] = k;
    }
    starts[n] = parent.end;
    const int64_t base = find_base(b, labels, n);
    if (base < 0)
        return false;
    b->base_taken[base] = true;
    if (parent.unit < 0)
        trie->root = (uint32_t)base;
    else
        b->units[parent.unit].base = (uint32_t)base;
    for (int k = n - 1; k >= 0; k--) { /* all children are placed before any of their children */
        const int64_t unit = base ^ labels[k];
        unlink_unit(b, unit);
        node child = {starts[k], starts[k + 1], parent.depth + 1, unit};
        uint32_t value = TOK_TRIE_NONE;
        if (keys[child.first].size == child.depth)
            value = (uint32_t)keys[child.first].value;
        while (child.first < child.end && keys[child.first].size == child.depth)
            child.first++;
        b->units[unit].entry = value << 9 | TOK_TRIE_USED | labels[k];
        if (child.first < child.end && !push(b, child))
            return false;
    }
    return true;
}

bool tok_trie_build(tok_trie *trie, const tok_key *keys, int64_t n)
{
    builder b = {.free_one = -1};
    *trie = (tok_trie){0};
    if (n == 0)
        return true;
    bool good = push(&b, (node){0, n, 0, -1});
    while (good && b.n_nodes > 0)
        good = place(&b, trie, keys, b.nodes[--b.n_nodes]);
    free(b.nodes);
    free(b.base_taken);
    free(b.next);
    free(b.last);
    if (good)
        trie->units = b.units;
    else
        free(b.units);
    return good;
}

void tok_trie_free(tok_trie *trie)
{
    free(trie->units);
    trie->units = NULL;
}

int64_t tok_trie_longest(const tok_trie *trie, const char *text, int64_t size, int32_t *value)
{
    if (trie->units == NULL)
        return 0;
    uint32_t base = trie->root;
    int64_t longest = 0;
    int32_t found;
    for (int64_t at = 0; at < size && tok_trie_step(trie, &base, (unsigned char)text[at], &found); at++)
        if (found != TOK_TRIE_NONE)
            longest = at + 1, *value = found;
    return longest;
}

int32_t tok_trie_exact(const tok_trie *trie, const char *key, int64_t size)
{
    int32_t value = -1;
    return size > 0 && tok_trie_longest(trie, key, size, &value) == size ? value : -1;
}
