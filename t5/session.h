/* session.h -- a session: encoded sources, and a cache of keys and values in pages. For cache.c and decoder.c alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_SESSION_H
#define RELPOS_T5_SESSION_H

#include "t5/model.h"

/* Keys and values of some tokens in every layer: [layers] of keys [inner][tokens], which a step reads without transposing them,
 * and values [tokens][inner]. */
typedef struct page {
    int64_t owners;
    struct page *next; /* of free ones */
    _Alignas(64) unsigned char data[];
} page;

typedef struct row {
    int64_t source;
    page **pages;
} row;

struct rp_t5_session {
    const rp_t5 *m;
    rp_dtype type; /* of keys and values, and of what attends to them: f32 where the weights are, else bf16 */
    int64_t size;  /* bytes of such a number */
    int64_t n_sources, *starts; /* [n_sources + 1] tokens of the sources before each */
    /* keys and values of the sources: [decoder layers] of keys, [inner][keys, padded] of each source, and values [tokens][inner] */
    unsigned char *cross;
    int64_t *key_starts;  /* [n_sources + 1] padded keys of the sources before each */
    int64_t length;       /* tokens of every row */
    int64_t page;         /* tokens of a page */
    int64_t n_rows, room; /* room: pages of a row */
    row *rows;
    page *unused;
    t5_attention step, prefill, cross_attention;
    const void **page_at; /* of each worker: [2][room] */
    t5_work work;
    t5_buffer rounded; /* of bf16: queries, keys and values of a step, and what attention makes of them */
    t5_buffer logits;
    int64_t taken; /* tokens of each row in the last call, whose hidden states are in work.normed */
    bool broken;
};

/* Tokens of a page for this model. */
int64_t t5_page_tokens(const rp_t5 *m);
int64_t t5_pages_of(const rp_t5_session *s, int64_t length);
/* What keys and values are kept as. */
rp_dtype t5_cached_type(const rp_t5 *m);
/* Number k of an array of keys or values. */
static inline void *t5_number(const rp_t5_session *s, const void *array, int64_t k)
{
    return (unsigned char *)(uintptr_t)array + k * s->size;
}
/* The first number of a layer's keys (0) or values (1) in a page. */
void *t5_page_layer(const rp_t5_session *s, page *p, int64_t layer, int value);

/* The rows of a step from those of the step before: page pointers are copied, pages are shared. */
rp_status t5_continue_rows(rp_t5_session *s, int64_t n, const int32_t *parents);
/* Room for pages of so many tokens in every row. */
rp_status t5_grow_room(rp_t5_session *s, int64_t length);
/* Pages for n more tokens of each row, of its own where they are to be written. */
rp_status t5_open_pages(rp_t5_session *s, int64_t n);
void t5_free_cache(rp_t5_session *s);

#endif
