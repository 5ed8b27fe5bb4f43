/* pages.c -- keys and values in pages: two caches and a table of page numbers become an rp_pages. Calls of a Plan alone have them.
 * It knows no option but len_k, and neither terms nor masks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* Pointers to the pages that a table names: [B, columns] of `side`. */
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
                    "pages[%lld, %lld] is %lld: k and v have the pages 0 to %lld; where a mask leaves out a whole "
                    "page, any of them will do",
                    (long long)b, (long long)n, (long long)page, (long long)cache->shape[0] - 1);
                return -1;
            }
            *to++ = (const char *)cache->data + page * cache->stride[0] * (int64_t)size;
        }
    return 0;
}

/* q, and keys and values in pages: k and v are caches (pages, Hk, keys of a page, D), of which a row of the table names those of a
 * batch entry. */
int take_paged(problem *p, call *c, PyObject *const *args, PyObject *pages, PyObject *len_k, origin from[3])
{
    static const char *const names[] = {"q", "k", "v"};
    rp_array cache[2], table;
    rp_desc *d = &p->desc;
    int64_t asked = 0;
    if (given(len_k) && read_int(len_k, "len_k", &asked) != 0)
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
                PyErr_Format(
                    PyExc_ValueError,
                    "%s: shape is %S: with pages, (pages, %lld, keys of a page, %lld) is needed, pages and keys of a "
                    "page the same for k and v",
                    names[1 + n], shape, (long long)d->kv_heads, (long long)dim[n]);
            Py_XDECREF(shape);
            return -1;
        }
        if (cache[n].shape[3] > 1 && cache[n].stride[3] != 1) {
            PyErr_Format(PyExc_ValueError, "%s: the stride of the last axis is %lld: it must be 1", names[1 + n],
                         (long long)cache[n].stride[3]);
            return -1;
        }
        if (cache[n].dtype != d->dtype) {
            PyErr_Format(PyExc_TypeError, "%s: its elements are %s, and the plan was made for %s", names[1 + n],
                         rp_dtype_name(cache[n].dtype), rp_dtype_name(d->dtype));
            return -1;
        }
    }
    if (take_array(c, pages, false, "pages", &table, NULL) != 0)
        return -1;
    if (c->t.q.ndim != 4) {
        PyErr_Format(PyExc_ValueError, "q: %d axes: with pages, 4 are needed, (B, H, L, D)", (int)c->t.q.ndim);
        return -1;
    }
    if (table.dtype != RP_I32 && table.dtype != RP_I64) {
        PyErr_Format(PyExc_TypeError, "pages: its elements are %s: int32 or int64 are needed",
                     rp_dtype_name(table.dtype));
        return -1;
    }
    if (table.ndim != 2 || table.shape[0] != c->t.q.shape[0]) {
        PyObject *shape = shape_tuple(table.ndim, table.shape);
        if (shape)
            PyErr_Format(PyExc_ValueError, "pages: shape is %S: (%lld, pages of a batch entry) is needed", shape,
                         (long long)c->t.q.shape[0]);
        Py_XDECREF(shape);
        return -1;
    }
    const int64_t page = cache[0].shape[2],
                  all_keys = d->len_k / page < table.shape[1] ? d->len_k : table.shape[1] * page;
    const int64_t keys = given(len_k) ? asked : all_keys;
    if (keys < 0 || keys > d->len_k || (keys + page - 1) / page > table.shape[1]) {
        PyErr_Format(PyExc_ValueError,
                     "len_k is %lld: the plan was made for 0 to %lld keys, and %lld pages of %lld keys are named for a "
                     "batch entry",
                     (long long)keys, (long long)d->len_k, (long long)table.shape[1], (long long)page);
        return -1;
    }
    const int64_t columns = (keys + page - 1) / page, all = table.shape[0] * columns;
    if (!(c->pages = PyMem_Malloc((size_t)(2 * all + 1) * sizeof *c->pages))) {
        PyErr_NoMemory();
        return -1;
    }
    if (point_to_pages(&cache[0], &table, columns, c->pages) != 0 ||
        point_to_pages(&cache[1], &table, columns, c->pages + all) != 0)
        return -1;
    c->t.pages = (rp_pages){.k = c->pages,
                            .v = c->pages + all,
                            .page = page,
                            .per_batch = columns,
                            .len_k = keys,
                            .k_head = cache[0].stride[1],
                            .k_key = cache[0].stride[2],
                            .v_head = cache[1].stride[1],
                            .v_key = cache[1].stride[2]};
    d->batch = c->t.q.shape[0];
    d->len_q = c->t.q.shape[2];
    d->len_k = keys;
    return 0;
}
