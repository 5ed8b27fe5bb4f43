/* session.h -- a decoding session: encoded sources, and a paged cache of keys and values. Private to cache.c and
 * decoder.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_SESSION_H
#define RELPOS_T5_SESSION_H

#include "t5/model.h"

/* Keys and values of `session.page` tokens in every layer. For each layer: keys [inner][tokens] (transposed, as
 * attention reads them), then values [heads][tokens][d_kv]. */
typedef struct page {
    int64_t owners;    /* number of rows that share the page */
    struct page *next; /* next free page */
    _Alignas(64) unsigned char data[];
} page;

typedef struct row {
    int64_t source;
    page **pages;
} row;

struct rp_t5_session {
    const rp_t5 *m;
    rp_dtype type;              /* type of queries, keys and values: f32 for f32 and f16 weights, else bf16 */
    int64_t size;               /* bytes per number of this type */
    int64_t n_sources, *starts; /* starts [n_sources + 1]: first token of each source */
    /* Keys and values of the sources. For each decoder layer: keys [inner][padded keys] of each source, then values
     * [heads][tokens][d_kv] of each source. */
    unsigned char *cross;
    int64_t *key_starts;      /* [n_sources + 1]: first padded key of each source */
    int64_t length;           /* tokens in every row */
    int64_t page;             /* tokens per page */
    int64_t n_rows, capacity; /* capacity: max pages of a row in its page array */
    row *rows;
    page *unused; /* list of free pages */
    t5_attention step, prefill, cross_attention;
    const void **page_at; /* [workers][2][capacity]: addresses of keys and of values */
    t5_work work;
    t5_buffer rounded; /* if type is bf16: queries, keys and values of a step, and results of attention */
    t5_buffer logits;
    int64_t taken; /* tokens per row in the last call; work.normed holds their hidden states */
    bool broken;   /* a call failed, so the session cannot be used any more */
};

/* Return the number of tokens of a page for this model. */
int64_t t5_page_tokens(const rp_t5 *m);
/* Return the number of pages that `length` tokens need. */
int64_t t5_pages_of(const rp_t5_session *s, int64_t length);
/* Return the type of cached keys and values. */
rp_dtype t5_cached_type(const rp_t5 *m);
/* Return the address of number k in an array of keys or values. */
static inline void *t5_number(const rp_t5_session *s, const void *array, int64_t k)
{
    return (unsigned char *)(uintptr_t)array + k * s->size;
}
/* Return the address of a layer's keys (value = 0) or values (value = 1) in a page. */
void *t5_page_layer(const rp_t5_session *s, page *p, int64_t layer, int value);

/* Replace the rows by n rows; row r continues parents[r]. Pages are shared, not copied. */
rp_status t5_continue_rows(rp_t5_session *s, int64_t n, const int32_t *parents);
/* Make the page arrays of all rows large enough for `length` tokens. */
rp_status t5_grow_capacity(rp_t5_session *s, int64_t length);
/* Allocate pages for n more tokens of each row. Copy a shared page before it is written to. */
rp_status t5_open_pages(rp_t5_session *s, int64_t n);
void t5_free_cache(rp_t5_session *s);

#endif
