/* derivatives.c -- forward and second derivatives: attention_jvp and attention_hvp. Both take tangents in the form of
 * relpos.Gradients. calls.c has the code that they share with backward calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* Read the tangent of one array, None for 0. `absent` is the number of leading axes that the array lacks. */
static int take_tangent(call *c, PyObject *object, const char *name, int absent, rp_array *to)
{
    if (!given(object))
        return 0;
    if (take_rows(c, object, name, to, NULL) != 0)
        return -1;
    if (to->ndim == 4 - absent)
        add_axes(to, absent);
    return 0;
}

/* Read the tangents of the arrays of term n from a dictionary {name: array}. */
static int take_term_tangents(const problem *p, call *c, PyObject *object, int32_t n, rp_tangents *x)
{
    const rp_term_kind kind = p->terms[n].kind;
    Py_ssize_t at = 0;
    PyObject *key, *value;
    char name[WORD_MAX], text[WORD_MAX + 32];
    if (!given(object))
        return 0;
    if (!PyDict_Check(object))
        return wrong_type("tangents.terms", object, "expected a tuple of dictionaries, one for each term");
    PyObject *copy = PyDict_Copy(object); /* reading arrays may run code that changes the dictionary */
    if (!copy || keep(c, copy) != 0)
        return -1;
    while (PyDict_Next(copy, &at, &key, &value)) {
        int m = 0;
        while (m < RP_MAX_ARRAYS && rp_term_array(kind, m) &&
               !(PyUnicode_Check(key) && rp_term_array_learned(kind, m) &&
                 PyUnicode_CompareWithASCIIString(key, rp_term_array(kind, m)) == 0))
            m++;
        if (m == RP_MAX_ARRAYS || !rp_term_array(kind, m)) {
            PyErr_Format(PyExc_ValueError, "tangents.terms[%d] contains %R, expected names of learned arrays of %s",
                         (int)n, key, name_array(Py_TYPE((PyObject *)p->term[n]), "", name));
            return -1;
        }
        snprintf(text, sizeof text, "tangent of %s",
                 name_array(Py_TYPE((PyObject *)p->term[n]), rp_term_array(kind, m), name));
        if (given(value) && take_array(c, value, false, text, &x->term[n][m], NULL) != 0)
            return -1;
    }
    return 0;
}

/* Read the tangents of softcaps from a dictionary {name: number or array}. */
static int take_softcap_tangents(const problem *p, call *c, PyObject *object, rp_tangents *x)
{
    rp_array *const to[N_SOFTCAPS] = {&x->softcap, &x->softcap_after};
    Py_ssize_t at = 0;
    PyObject *key, *value;
    if (!given(object))
        return 0;
    if (!PyDict_Check(object))
        return wrong_type("tangents.terms", object, "expected a tuple of dictionaries, one for each term");
    PyObject *copy = PyDict_Copy(object); /* as in take_term_tangents */
    if (!copy || keep(c, copy) != 0)
        return -1;
    while (PyDict_Next(copy, &at, &key, &value)) {
        char text[32];
        int m = 0;
        while (m < N_SOFTCAPS && !(p->softcap[m] >= 0 && PyUnicode_Check(key) &&
                                   PyUnicode_CompareWithASCIIString(key, softcap_names[m]) == 0))
            m++;
        if (m == N_SOFTCAPS) {
            PyErr_Format(PyExc_ValueError,
                         "tangents.terms[%d] contains %R, expected names of softcaps of the call: \"softcap\" or "
                         "\"softcap_after\"",
                         (int)p->desc.n_terms, key);
            return -1;
        }
        snprintf(text, sizeof text, "tangent of %s", softcap_names[m]);
        if (given(value) && take_array(c, value, false, text, to[p->softcap[m]], NULL) != 0)
            return -1;
    }
    return 0;
}

/* Read tangents: (q, k, v) or (q, k, v, terms), each None for 0. terms may have one more dictionary, for softcaps. */
static int take_tangents(const problem *p, call *c, PyObject *object, int absent, rp_tangents *x)
{
    rp_array *const to[3] = {&x->q, &x->k, &x->v};
    const Py_ssize_t n = PyTuple_Check(object) ? PyTuple_Size(object) : 0;
    if (n != 3 && n != 4)
        return wrong_type("tangents", object, "expected relpos.Gradients, or a tuple (q, k, v) or (q, k, v, terms)");
    for (int m = 0; m < 3; m++) {
        char name[16];
        snprintf(name, sizeof name, "tangents.%c", "qkv"[m]);
        if (take_tangent(c, PyTuple_GetItem(object, m), name, absent, to[m]) != 0)
            return -1;
    }
    PyObject *terms = n == 4 ? PyTuple_GetItem(object, 3) : NULL;
    if (!given(terms))
        return 0;
    if (!PyTuple_Check(terms))
        return wrong_type("tangents.terms", terms, "expected a tuple of dictionaries, one for each term");
    const bool softcaps = p->softcap[0] >= 0 || p->softcap[1] >= 0;
    const Py_ssize_t more = PyTuple_Size(terms) - p->desc.n_terms;
    if (more != 0 && !(more == 1 && softcaps)) {
        PyErr_Format(PyExc_ValueError, "tangents.terms has %zd dictionaries, expected one for each of %d terms%s",
                     PyTuple_Size(terms), (int)p->desc.n_terms, softcaps ? ", and perhaps one for softcaps" : "");
        return -1;
    }
    for (int32_t m = 0; m < p->desc.n_terms; m++)
        if (take_term_tangents(p, c, PyTuple_GetItem(terms, m), m, x) != 0)
            return -1;
    return more ? take_softcap_tangents(p, c, PyTuple_GetItem(terms, p->desc.n_terms), x) : 0;
}

/* Allocate the tangents of out and lse. */
static int make_tangents(const problem *p, call *c, const origin *like, int absent, PyObject *part[2], rp_tangents *x)
{
    const rp_desc *d = &p->desc;
    const int64_t shape[4] = {d->batch, d->heads, d->len_q, d->dim_v};
    part[0] = make_output(c, like, absent, d->dtype, 4, shape, &x->out);
    part[1] = part[0] ? make_output(c, like, absent, result_type(d->dtype), 3, shape, &x->lse) : NULL;
    return part[1] ? 0 : -1;
}

/* Run one call on q, k, v and tangents. With dout, compute second derivatives. Return the gradients of q, k, v and the
 * terms, if any, and the tangents of out and lse. */
static PyObject *derive(problem *p, call *c, PyObject *dout, PyObject *const *qkv, PyObject *tangents,
                        PyObject *const *option)
{
    PyObject *part[6] = {NULL}, *answer = NULL, *wanted = NULL;
    origin from[3], array_from[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rp_grads g = rp_grads_init();
    rp_tangents x = rp_tangents_init();
    rp_plan *plan = NULL;
    int absent = 0;
    bool per_sample = false;
    const bool records = c->check_torch; /* reading a tensor ends the check for tracing */
    bool ok =
        (!dout || (read_per_sample(option, &per_sample) == 0 && read_wanted(option[WANTED], p, c, &wanted) == 0)) &&
        take_qkv(p, c, qkv, from, &absent) == 0 && take_option_arrays(p, c, array_from) == 0 &&
        warn_about_q_offset(p) == 0 && (!dout || take_results(c, dout, option, absent, &g) == 0) &&
        take_tangents(p, c, tangents, absent, &x) == 0 &&
        (!records || refuse_gradient(c, dout ? "attention_hvp" : "attention_jvp", "torch.func.jvp") == 0);
    const rp_status status = ok ? rp_plan_create(&plan, &p->desc) : RP_OK;
    if (status != RP_OK)
        ok = raise_status(p, status);
    ok = ok && (!dout || make_gradients(p, c, from, array_from, absent, wanted, per_sample, false, part, &g) == 0) &&
         make_tangents(p, c, &from[0], absent, part + 4, &x) == 0 && check_addresses(c) == 0 &&
         compute(p, c, plan, dout ? &g : NULL, &x) == 0;
    if (ok && dout)
        answer = PyTuple_Pack(6, part[0], part[1], part[2], part[3], part[4], part[5]);
    else if (ok)
        answer = PyTuple_Pack(2, part[4], part[5]);
    for (int n = 0; n < 6; n++)
        Py_XDECREF(part[n]);
    rp_plan_destroy(plan);
    return answer;
}

static PyObject *derive_now(PyObject *module, PyObject *dout, PyObject *const *qkv, PyObject *tangents,
                            PyObject *progress, PyObject *const *option, bool check_torch)
{
    PyObject *answer = NULL;
    problem p;
    call c;
    call_start(&c, state_of(module), check_torch);
    take_progress(&c, &progress, 1, 0);
    if (read_options(&p, &c, option) == 0)
        answer = derive(&p, &c, dout, qkv, tangents, option);
    call_end(&c);
    return answer;
}

/* jvp(q, k, v, tangents, progress, **options): return the tangents (out, lse). */
PyObject *core_jvp(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *option[N_NAMES] = {NULL};
    if (n != 5)
        return PyErr_Format(PyExc_TypeError, "attention_jvp() takes q, k, v and tangents by position; name the rest");
    if (read_keywords(state_of(module), args + n, names, N_NAMES, N_NAMES, option) != 0)
        return NULL;
    return derive_now(module, NULL, args, args[3], args[4], option, true);
}

/* hvp(dout, q, k, v, tangents, dlse, wanted, per_sample, progress, **options): return (dq, dk, dv, ({array: gradient},
 * …), tangent of out, tangent of lse). */
PyObject *core_hvp(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *option[N_NAMES] = {NULL};
    if (n != 9)
        return PyErr_Format(PyExc_TypeError,
                            "attention_hvp() takes dout, q, k, v and tangents by position; name the rest");
    if (read_keywords(state_of(module), args + n, names, N_NAMES, N_NAMES, option) != 0)
        return NULL;
    option[LSE_GRADIENT] = args[5];
    option[WANTED] = args[6];
    option[PER_SAMPLE] = args[7];
    return derive_now(module, args[0], args + 1, args[4], args[8], option, true);
}

/* derive(q, k, v, tangents, options, dout, dlse, wanted[, per_sample]): core_jvp, or with dout core_hvp, without the
 * check for tracing, for callers that have handled it. `options` is as in core_gradients. */
PyObject *core_derive(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    PyObject *option[N_NAMES] = {NULL};
    if (n < 8 || n > 9 || !take_options(args[4], option))
        return PyErr_Format(PyExc_TypeError, "derive() takes q, k, v, tangents, options, dout, dlse, wanted and "
                                             "per_sample");
    option[LSE_GRADIENT] = args[6];
    option[WANTED] = args[7];
    option[PER_SAMPLE] = n > 8 ? args[8] : NULL;
    return derive_now(module, given(args[5]) ? args[5] : NULL, args, args[3], NULL, option, false);
}
