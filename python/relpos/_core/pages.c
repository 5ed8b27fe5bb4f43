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

/* Read q, and keys, values and norms in pages. k and v are caches (pages, Hk, keys per page, D); row b of the table
 * `pages` lists the pages of batch entry b. */
int take_paged(problem *p, call *c, PyObject *const *args, PyObject *pages, PyObject *len_k, PyObject *norms,
               origin from[3])
{
    static const char *const names[] = {"q", "k", "v"};
    rp_array cache[2], table, of_pages;
    rp_desc *d = &p->desc;
    int64_t requested = 0;
    if (given(len_k) && read_int(len_k, "len_k", &requested) != 0)
        return -1;
    if (take_array(c, args[0], false, "q", &c->t.q, &from[0]) != 0)
        return -1;
    const int64_t dim[2] = {d->dim_k, d->dim_v};
    for (int n = 0; n < 2; n++) {
        if (take_array(c, args[1 + n], false, names[1 + n], &cache[n], &from[1 + n]) != 0)
            return -1;
        if (cache[n].ndim != 4 || cache[n].shape[1] != d->kv_heads || cache[n].shape[3] != dim[n] ||
            cache[n].shape[2] < 1 || cache[n].shape[0] != cache[0].shape[0] || cache[n].shape[2] != cache[0].shape[2]) {
            PyObject *shape = shape_tuple(cache[n].ndim, cache[n].shape);
            if (shape)
                PyErr_Format(PyExc_ValueError,
                             "%s has shape %S; with pages=, expected (pages, %lld, keys per page, %lld), with the same "
                             "pages and "
                             "keys per page in k and v",
                             names[1 + n], shape, (long long)d->kv_heads, (long long)dim[n]);
            Py_XDECREF(shape);
            return -1;
        }
        if (cache[n].shape[3] > 1 && cache[n].stride[3] != 1) {
            PyErr_Format(PyExc_ValueError,
                         "%s: the stride of the last axis is %lld, expected 1; pass a contiguous copy", names[1 + n],
                         (long long)cache[n].stride[3]);
            return -1;
        }
        if (cache[n].dtype != d->dtype) {
            PyErr_Format(PyExc_TypeError, "%s has elements of %s, expected %s as in relpos.Plan(dtype=...)",
                         names[1 + n], rp_dtype_name(cache[n].dtype), rp_dtype_name(d->dtype));
            return -1;
        }
    }
    if (take_array(c, pages, false, "pages", &table, NULL) != 0)
        return -1;
    if (given(norms) && take_page_norms(c, norms, &cache[0], &of_pages) != 0)
        return -1;
    if (c->t.q.ndim != 4) {
        PyErr_Format(PyExc_ValueError, "q has %d axes; with pages=, expected 4: (B, H, L, D)", (int)c->t.q.ndim);
        return -1;
    }
    if (table.dtype != RP_I32 && table.dtype != RP_I64) {
        PyErr_Format(PyExc_TypeError, "pages has elements of %s, expected int32 or int64", rp_dtype_name(table.dtype));
        return -1;
    }
    if (table.ndim != 2 || table.shape[0] != c->t.q.shape[0]) {
        PyObject *shape = shape_tuple(table.ndim, table.shape);
        if (shape)
            PyErr_Format(PyExc_ValueError, "pages has shape %S, expected (%lld, pages per batch entry)", shape,
                         (long long)c->t.q.shape[0]);
        Py_XDECREF(shape);
        return -1;
    }
    const int64_t page = cache[0].shape[2],
                  all_keys = d->len_k / page < table.shape[1] ? d->len_k : table.shape[1] * page;
    const int64_t keys = given(len_k) ? requested : all_keys;
    if (keys < 0 || keys > d->len_k || (keys + page - 1) / page > table.shape[1]) {
        PyErr_Format(PyExc_ValueError,
                     "len_k is %lld, expected at most the %lld keys of the plan and the %lld pages of %lld keys that "
                     "`pages` lists per batch entry",
                     (long long)keys, (long long)d->len_k, (long long)table.shape[1], (long long)page);
        return -1;
    }
    const int64_t columns = (keys + page - 1) / page, all = table.shape[0] * columns;
    if (!(c->pages = PyMem_Malloc((size_t)(3 * all + 1) * sizeof *c->pages))) {
        PyErr_NoMemory();
        return -1;
    }
    if (point_to_pages(&cache[0], &table, columns, c->pages) != 0 ||
        point_to_pages(&cache[1], &table, columns, c->pages + all) != 0 ||
        (given(norms) && point_to_pages(&of_pages, &table, columns, c->pages + 2 * all) != 0))
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
                            .norms = given(norms) ? (void *const *)(uintptr_t)(c->pages + 2 * all) : NULL};
    d->batch = c->t.q.shape[0];
    d->len_q = c->t.q.shape[2];
    d->len_k = keys;
    return 0;
}
