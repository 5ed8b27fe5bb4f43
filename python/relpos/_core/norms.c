/* norms.c -- relpos.key_norms: norms of the keys of a cache, which let a call with few queries skip distant keys.
 * attend in calls.c reads the norms. Independent of options and terms.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* Read k and v and set the sizes of the description. *absent is the number of missing leading axes. */
static int take_cache(call *c, PyObject *const *args, rp_desc *d, origin *like, int *absent)
{
    rp_array *const a[2] = {&c->t.k, &c->t.v};
    static const char *const name[2] = {"k", "v"};
    for (int n = 0; n < 2; n++) {
        if (take_array(c, args[n], false, name[n], a[n], n ? NULL : like) != 0)
            return -1;
        if (a[n]->ndim < 2 || a[n]->ndim != a[0]->ndim) {
            PyErr_Format(PyExc_ValueError,
                         "%s has %d axes, expected (B, Hk, L, D), (Hk, L, D) or (L, D), the same for k and v", name[n],
                         (int)a[n]->ndim);
            return -1;
        }
    }
    if (a[0]->dtype > RP_BF16 || a[1]->dtype != a[0]->dtype) {
        PyErr_Format(PyExc_TypeError, "%s has elements of %s, expected f32, f64, f16 or bf16, the same for k and v",
                     a[0]->dtype > RP_BF16 ? "k" : "v", rp_dtype_name(a[a[0]->dtype <= RP_BF16]->dtype));
        return -1;
    }
    *absent = 4 - a[0]->ndim;
    add_axes(a[0], *absent);
    add_axes(a[1], *absent);
    const int64_t *k = a[0]->shape, *v = a[1]->shape;
    if (k[1] < 1 || k[3] < 1 || v[3] < 1) { /* 0 would select the default of rp_desc */
        PyErr_Format(PyExc_ValueError, "%s has an axis of length 0, expected at least one head and one channel",
                     k[1] < 1 || k[3] < 1 ? "k" : "v");
        return -1;
    }
    *d = rp_desc_init(k[0], k[1], 1, k[2], k[3]);
    d->kv_heads = k[1];
    d->dim_v = v[3];
    d->dtype = a[0]->dtype;
    return 0;
}

/* Return true if given norms have an element for each block of 64 keys; otherwise set an error. */
static bool fits(const rp_array *norms, const rp_desc *d, int absent)
{
    const int64_t needed = (d->len_k + RP_NORM_KEYS - 1) / RP_NORM_KEYS;
    if (norms->dtype != RP_F32 && norms->dtype != RP_F64) {
        PyErr_Format(PyExc_TypeError, "norms has elements of %s, expected f32 or f64", rp_dtype_name(norms->dtype));
        return false;
    }
    const int64_t want[3] = {d->batch, d->kv_heads, needed};
    bool fit = norms->ndim == 3 - absent;
    for (int32_t x = 0; fit && x < norms->ndim; x++)
        fit = x + absent == 2 ? norms->shape[x] >= needed : norms->shape[x] == want[x + absent];
    if (fit)
        return true;
    PyObject *shape = shape_tuple(norms->ndim, norms->shape), *wanted = shape_tuple(3 - absent, want + absent);
    if (shape && wanted)
        PyErr_Format(PyExc_ValueError, "norms has shape %S, expected %S or a longer last axis", shape, wanted);
    Py_XDECREF(shape);
    Py_XDECREF(wanted);
    return false;
}

/* key_norms(k, v, norms, start): fill and return `norms`, or a new array if it is None. */
PyObject *core_key_norms(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    problem p = {.threads = 0};
    call c;
    origin like;
    rp_plan *plan = NULL;
    rp_array norms;
    PyObject *made = NULL;
    int64_t start;
    int absent = 0, torch = 0;
    if (n != 4)
        return PyErr_Format(PyExc_TypeError, "key_norms() takes k, v, norms and start");
    if (read_int(args[3], "start", &start) != 0)
        return NULL;
    call_start(&c, state_of(module), true);
    bool ok = take_cache(&c, args, &p.desc, &like, &absent) == 0;
    if (ok && (start < 0 || start > p.desc.len_k)) {
        PyErr_Format(PyExc_ValueError, "start is %lld, expected 0 to %lld, the number of keys", (long long)start,
                     (long long)p.desc.len_k);
        ok = false;
    }
    if (ok && given(args[2])) {
        ok = take_array(&c, args[2], true, "norms", &norms, NULL) == 0 &&
             (torch = note_torch(&c, args[2], "norms")) >= 0 && fits(&norms, &p.desc, absent);
        made = Py_NewRef(args[2]);
    } else if (ok) {
        const int64_t shape[3] = {p.desc.batch, p.desc.heads, (p.desc.len_k + RP_NORM_KEYS - 1) / RP_NORM_KEYS};
        if (start != 0) {
            PyErr_Format(PyExc_ValueError,
                         "start is %lld without norms of the earlier keys; pass norms=, or leave out start",
                         (long long)start);
            ok = false;
        }
        ok = ok && (made = make_array(&c, &like, RP_F32, 3 - absent, shape + absent, &norms));
    }
    if (ok) {
        add_axes(&norms, absent);
        rp_status status = rp_plan_create(&plan, &p.desc);
        ok = status != RP_OK || check_addresses(&c) == 0;
        if (ok && status == RP_OK) {
            Py_BEGIN_ALLOW_THREADS
            status = rp_key_norms(plan, &c.t, start, &norms);
            Py_END_ALLOW_THREADS
        }
        if (status != RP_OK) {
            raise_status(&p, status);
            ok = false;
        }
        if (ok && torch)
            ok = bump_version(args[2]) == 0;
    }
    rp_plan_destroy(plan);
    call_end(&c);
    if (!ok)
        Py_CLEAR(made);
    return made;
}
