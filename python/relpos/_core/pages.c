/* pages.c -- keys and values in pages: convert two caches and a table of page numbers to an rp_pages. Only calls of a
 * Plan have pages. Independent of terms and masks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* For each entry of the table [B, columns], write the address of its page in `cache` to `to`. Returns 0, or -1 with an
 * error set. */
static int point_to_pages(const rp_array *cache, const rp_array *table, int64_t columns, const void **to)
{
    const size_t size = rp_dtype_size(cache->dtype);
    for (int64_t b = 0; b < table->shape[0]; b++)
        for (int64_t n = 0; n < columns; n++) {
            const int64_t at = b * table->stride[0] + n * table->stride[1];
            const int64_t page =
                table->dtype == RP_I32 ? ((const int32_t *)table->data)[at] : ((const int64_t *)table->data)[at];
            if (page < 0 || page >= cache->shape[0]) {
                PyErr_Format(
                    PyExc_ValueError,
                    "pages[%lld, %lld] is %lld; use a page number of k and v, 0 to %lld (any of them if a mask hides "
                    "the whole page)",
                    (long long)b, (long long)n, (long long)page, (long long)cache->shape[0] - 1);
                return -1;
            }
            *to++ = (const char *)cache->data + page * cache->stride[0] * (int64_t)size;
        }
    return 0;
}

/* Read the norms of all pages of a cache, (pages, Hk, blocks of 64 keys). */
static int take_page_norms(call *c, PyObject *object, const rp_array *cache, rp_array *norms)
{
    const int64_t shape[3] = {cache->shape[0], cache->shape[1], (cache->shape[2] - 1) / RP_NORM_KEYS + 1};
    if (take_array(c, object, false, "key_norms", norms, NULL) != 0)
        return -1;
    if (norms->dtype == RP_F32 && norms->ndim == 3 && memcmp(norms->shape, shape, sizeof shape) == 0 &&
        (shape[2] == 1 || norms->stride[2] == 1) && (shape[1] == 1 || norms->stride[1] == shape[2]))
        return 0;
    PyObject *found = shape_tuple(norms->ndim, norms->shape), *wanted = shape_tuple(3, shape);
    if (found && wanted)
        PyErr_Format(
            PyExc_ValueError,
            "key_norms has shape %S and elements of %s; with pages=, expected a contiguous array of f32, %S, as "
            "from relpos.key_norms(k, v)",
            found, rp_dtype_name(norms->dtype), wanted);
    Py_XDECREF(found);
    Py_XDECREF(wanted);
    return -1;
}

/* Read cache n: of keys (0) or of values (1). */
static int take_cache(call *c, const rp_desc *d, PyObject *object, int n, rp_array cache[2], origin *from)
{
    const char *name = n == 0 ? "k" : "v";
    const int64_t dim = n == 0 ? d->dim_k : d->dim_v;
    const rp_array *a = &cache[n];
    if (take_array(c, object, false, name, &cache[n], from) != 0)
        return -1;
    if (a->ndim != 4 || a->shape[1] != d->kv_heads || a->shape[3] != dim || a->shape[2] < 1 ||
        a->shape[0] != cache[0].shape[0] || a->shape[2] != cache[0].shape[2]) {
        PyObject *shape = shape_tuple(a->ndim, a->shape);
        if (shape)
            PyErr_Format(PyExc_ValueError,
                         "%s has shape %S; with pages=, expected (pages, %lld, keys per page, %lld), with the same "
                         "pages and keys per page in k and v",
                         name, shape, (long long)d->kv_heads, (long long)dim);
        Py_XDECREF(shape);
        return -1;
    }
    if (a->shape[3] > 1 && a->stride[3] != 1) {
        PyErr_Format(PyExc_ValueError, "%s: the stride of the last axis is %lld, expected 1; pass a contiguous copy",
                     name, (long long)a->stride[3]);
        return -1;
    }
    if (a->dtype != d->dtype) {
        PyErr_Format(PyExc_TypeError, "%s has elements of %s, expected %s as in relpos.Plan(dtype=...)", name,
                     rp_dtype_name(a->dtype), rp_dtype_name(d->dtype));
        return -1;
    }
    return 0;
}

static int check_table(const rp_array *table, const rp_array *q)
{
    if (q->ndim != 4) {
        PyErr_Format(PyExc_ValueError, "q has %d axes; with pages=, expected 4: (B, H, L, D)", (int)q->ndim);
        return -1;
    }
    if (table->dtype != RP_I32 && table->dtype != RP_I64) {
        PyErr_Format(PyExc_TypeError, "pages has elements of %s, expected int32 or int64", rp_dtype_name(table->dtype));
        return -1;
    }
    if (table->ndim != 2 || table->shape[0] != q->shape[0]) {
        PyObject *shape = shape_tuple(table->ndim, table->shape);
        if (shape)
            PyErr_Format(PyExc_ValueError, "pages has shape %S, expected (%lld, pages per batch entry)", shape,
                         (long long)q->shape[0]);
        Py_XDECREF(shape);
        return -1;
    }
    return 0;
}

/* Compute the number of keys: `requested` if not NULL, else all keys of the plan that the table's pages contain. */
static int count_keys(int64_t *keys, const int64_t *requested, const rp_desc *d, const rp_array *table, int64_t page)
{
    const int64_t listed = table->shape[1];
    *keys = requested ? *requested : d->len_k / page < listed ? d->len_k : listed * page;
    if (*keys >= 0 && *keys <= d->len_k && (*keys + page - 1) / page <= listed)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "len_k is %lld, expected at most the %lld keys of the plan and the %lld pages of %lld keys that "
                 "`pages` lists per batch entry",
                 (long long)*keys, (long long)d->len_k, (long long)listed, (long long)page);
    return -1;
}

/* Point c->t.pages to the first `keys` keys of each batch entry in the caches. `norms` is NULL if there are none. */
static int set_pages(call *c, const rp_array cache[2], const rp_array *norms, const rp_array *table, int64_t keys)
{
    const int64_t page = cache[0].shape[2], columns = (keys + page - 1) / page, all = table->shape[0] * columns;
    if (!(c->pages = PyMem_Malloc((size_t)(3 * all + 1) * sizeof *c->pages))) {
        PyErr_NoMemory();
        return -1;
    }
    if (point_to_pages(&cache[0], table, columns, c->pages) != 0 ||
        point_to_pages(&cache[1], table, columns, c->pages + all) != 0 ||
        (norms && point_to_pages(norms, table, columns, c->pages + 2 * all) != 0))
        return -1;
    c->t.pages = (rp_pages){.k = c->pages,
                            .v = c->pages + all,
                            .page = page,
                            .per_batch = columns,
                            .len_k = keys,
                            .k_head = cache[0].stride[1],
                            .k_key = cache[0].stride[2],
                            .v_head = cache[1].stride[1],
                            .v_key = cache[1].stride[2],
                            .norms = norms ? (void *const *)(uintptr_t)(c->pages + 2 * all) : NULL};
    return 0;
}

/* Read q, and keys, values and norms in pages. k and v are caches (pages, Hk, keys per page, D); row b of the table
 * `pages` lists the pages of batch entry b. */
int take_paged(problem *p, call *c, PyObject *const *args, PyObject *pages, PyObject *len_k, PyObject *norms,
               origin from[3])
{
    rp_array cache[2], table, of_pages;
    rp_desc *d = &p->desc;
    int64_t requested = 0, keys;
    if (given(len_k) && read_int(len_k, "len_k", &requested) != 0)
        return -1;
    if (take_array(c, args[0], false, "q", &c->t.q, &from[0]) != 0)
        return -1;
    for (int n = 0; n < 2; n++)
        if (take_cache(c, d, args[1 + n], n, cache, &from[1 + n]) != 0)
            return -1;
    if (take_array(c, pages, false, "pages", &table, NULL) != 0)
        return -1;
    if (given(norms) && take_page_norms(c, norms, &cache[0], &of_pages) != 0)
        return -1;
    if (check_table(&table, &c->t.q) != 0 ||
        count_keys(&keys, given(len_k) ? &requested : NULL, d, &table, cache[0].shape[2]) != 0 ||
        set_pages(c, cache, given(norms) ? &of_pages : NULL, &table, keys) != 0)
        return -1;
    d->batch = c->t.q.shape[0];
    d->len_q = c->t.q.shape[2];
    d->len_k = keys;
    return 0;
}
