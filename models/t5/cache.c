/* cache.c -- the paged cache of a session. Rows that continue the same parent share its pages until one of them writes
 * to a page.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/session.h"
#include <stdlib.h>
#include <string.h>

enum {
    LONG_PAGE = 128, /* tokens per page: one block of keys of the attention kernel, which then needs no copy */
    SHORT_PAGE = 16  /* tokens per page if a long page would be too large */
};
#define LONG_PAGE_BYTES (16 << 20) /* max size of a long page */

rp_dtype t5_cached_type(const rp_t5 *m)
{
    return m->weights.type <= LINEAR_F16 ? RP_F32 : RP_BF16;
}

static size_t page_bytes(const rp_t5 *m, int64_t tokens)
{
    const size_t data = (size_t)(m->weights.decoder.layers * 2 * tokens * m->config.inner);
    return (sizeof(page) + data * rp_dtype_size(t5_cached_type(m)) + 63) / 64 * 64;
}

void *t5_page_layer(const rp_t5_session *s, page *p, int64_t layer, int value)
{
    return t5_number(s, p->data, (layer * 2 + value) * s->page * s->m->config.inner);
}

static page *take_page(rp_t5_session *s)
{
    page *p = s->unused;
    if (p != NULL)
        s->unused = p->next;
    else
        p = aligned_alloc(64, page_bytes(s->m, s->page));
    if (p != NULL)
        p->owners = 1;
    return p;
}

static void release_page(rp_t5_session *s, page *p)
{
    if (p == NULL || --p->owners > 0)
        return;
    p->next = s->unused;
    s->unused = p;
}

static void free_rows(rp_t5_session *s, row *rows, int64_t n)
{
    for (int64_t r = 0; rows != NULL && r < n; r++) {
        for (int64_t k = 0; rows[r].pages != NULL && k < s->capacity; k++)
            release_page(s, rows[r].pages[k]);
        free(rows[r].pages);
    }
    free(rows);
}

int64_t t5_pages_of(const rp_t5_session *s, int64_t length)
{
    return (length + s->page - 1) / s->page;
}

/* Copy the first `used` tokens of a shared page, for a row that will append to it. */
static page *copy_page(rp_t5_session *s, page *from, int64_t used)
{
    page *to = take_page(s);
    const int64_t inner = s->m->config.inner, d = s->m->config.d_kv;
    for (int64_t l = 0; to != NULL && l < s->m->weights.decoder.layers; l++) {
        const void *keys = t5_page_layer(s, from, l, 0), *values = t5_page_layer(s, from, l, 1);
        for (int64_t x = 0; x < inner; x++)
            memcpy(t5_number(s, t5_page_layer(s, to, l, 0), x * s->page), t5_number(s, keys, x * s->page),
                   (size_t)(used * s->size));
        for (int64_t h = 0; h < s->m->config.heads; h++)
            memcpy(t5_number(s, t5_page_layer(s, to, l, 1), h * s->page * d), t5_number(s, values, h * s->page * d),
                   (size_t)(used * d * s->size));
    }
    return to;
}

/* Return true if every row continues itself, as in greedy decoding; the page arrays then stay unchanged. */
static bool same_rows(const rp_t5_session *s, int64_t n, const int32_t *parents)
{
    for (int64_t r = 0; r < n; r++)
        if (parents[r] != r)
            return false;
    return n == s->n_rows && s->length > 0;
}

rp_status t5_continue_rows(rp_t5_session *s, int64_t n, const int32_t *parents)
{
    const int64_t old_pages = t5_pages_of(s, s->length), bound = s->length > 0 ? s->n_rows : s->n_sources;
    for (int64_t r = 0; r < n; r++)
        if (parents[r] < 0 || parents[r] >= bound)
            return t5_fail(RP_E_RANGE, "parents[%lld] is %d, but there are %lld %s (use 0 to %lld)", (long long)r,
                           (int)parents[r], (long long)bound, s->length > 0 ? "rows" : "sources", (long long)bound - 1);
    if (same_rows(s, n, parents))
        return RP_OK;
    row *rows = n > 0 ? calloc((size_t)n, sizeof *rows) : NULL;
    if (rows == NULL)
        return t5_no_memory();
    for (int64_t r = 0; r < n; r++) {
        rows[r].source = s->length > 0 ? s->rows[parents[r]].source : parents[r];
        rows[r].pages = calloc((size_t)s->capacity, sizeof(page *));
        if (rows[r].pages == NULL) {
            free_rows(s, rows, n);
            return t5_no_memory();
        }
        for (int64_t k = 0; k < old_pages; k++) {
            rows[r].pages[k] = s->rows[parents[r]].pages[k];
            rows[r].pages[k]->owners++;
        }
    }
    free_rows(s, s->rows, s->n_rows);
    s->rows = rows;
    s->n_rows = n;
    return RP_OK;
}

rp_status t5_grow_capacity(rp_t5_session *s, int64_t length)
{
    const int64_t needed = t5_pages_of(s, length), capacity = needed > 2 * s->capacity ? needed : 2 * s->capacity;
    if (needed <= s->capacity)
        return RP_OK;
    const void **page_at = calloc((size_t)(model_workers(s->m->pool) * 2 * capacity), sizeof *page_at);
    if (page_at == NULL)
        return t5_no_memory();
    free(s->page_at);
    s->page_at = page_at;
    for (int64_t r = 0; r < s->n_rows; r++) {
        page **pages = realloc(s->rows[r].pages, (size_t)capacity * sizeof(page *));
        if (pages == NULL)
            return t5_no_memory();
        memset(pages + s->capacity, 0, (size_t)(capacity - s->capacity) * sizeof(page *));
        s->rows[r].pages = pages;
    }
    s->capacity = capacity;
    return RP_OK;
}

rp_status t5_open_pages(rp_t5_session *s, int64_t n)
{
    const int64_t used = s->length % s->page, first = s->length / s->page;
    for (int64_t r = 0; r < s->n_rows; r++) {
        page **pages = s->rows[r].pages;
        if (used > 0 && pages[first]->owners > 1) {
            page *own = copy_page(s, pages[first], used);
            if (own == NULL)
                return t5_no_memory();
            release_page(s, pages[first]);
            pages[first] = own;
        }
        for (int64_t k = t5_pages_of(s, s->length); k < t5_pages_of(s, s->length + n); k++)
            if ((pages[k] = take_page(s)) == NULL)
                return t5_no_memory();
    }
    return RP_OK;
}

void t5_rewind(rp_t5_session *s, int64_t length)
{
    for (int64_t r = 0; r < s->n_rows; r++)
        for (int64_t k = t5_pages_of(s, length); k < t5_pages_of(s, s->length); k++) {
            release_page(s, s->rows[r].pages[k]);
            s->rows[r].pages[k] = NULL;
        }
    s->length = length;
}

int64_t t5_page_tokens(const rp_t5 *m)
{
    return page_bytes(m, LONG_PAGE) <= LONG_PAGE_BYTES ? LONG_PAGE : SHORT_PAGE;
}

void t5_free_cache(rp_t5_session *s)
{
    free_rows(s, s->rows, s->n_rows);
    for (page *p = s->unused, *next; p != NULL; p = next) {
        next = p->next;
        free(p);
    }
    free(s->page_at);
}
