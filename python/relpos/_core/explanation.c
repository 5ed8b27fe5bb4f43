/* explanation.c -- relpos.explain (one row step by step), the biases of terms as a matrix, and the buckets of offsets.
 * Attention calls use none of this.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* Return a list of (name, values) of the parts whose kind is in from..to, or NULL with an error set. */
static PyObject *list_parts(const rp_part *part, PyObject *const *value, int32_t n_parts, rp_part_kind from,
                            rp_part_kind to)
{
    PyObject *list = PyList_New(0);
    for (int32_t n = 0; list && n < n_parts; n++) {
        if (part[n].kind < from || part[n].kind > to)
            continue;
        PyObject *pair = Py_BuildValue("(sO)", part[n].name, value[n]);
        if (!pair || PyList_Append(list, pair) != 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

/* row(q, k, v, batch, head, query): return one row step by step as (raw, scaled, bias, score, weights, out, lse,
 * score_parts, sinks, out_parts). The last three are lists of (name, values). */
PyObject *core_row(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *option[N_NAMES] = {NULL}, *step[6] = {NULL}, *value[RP_MAX_PARTS] = {NULL}, *answer = NULL;
    rp_part part[RP_MAX_PARTS] = {0};
    int32_t n_parts = 0;
    int64_t at[3];
    problem p;
    call c;
    origin from[3];
    rp_plan *plan = NULL;
    bool ok = true;
    int absent = 0;
    if (n != 6)
        return PyErr_Format(PyExc_TypeError, "row() takes q, k, v, batch, head and query");
    if (read_keywords(state_of(module), args + n, names, N_OPTIONS, N_OPTIONS, option) != 0)
        return NULL;
    for (int x = 0; x < 3; x++)
        if (read_int(args[3 + x], x == 0 ? "batch" : x == 1 ? "head" : "query", &at[x]) != 0)
            return NULL;
    call_start(&c, state_of(module), true);
    ok = read_options(&p, &c, option) == 0 && take_qkv(&p, &c, args, from, &absent) == 0 &&
         take_option_arrays(&p, &c, NULL) == 0 && warn_about_q_offset(&p) == 0;
    if (ok) {
        rp_array a[6];
        rp_row row;
        rp_status status = rp_plan_create(&plan, &p.desc);
        for (int x = 0; status == RP_OK && ok && x < 6; x++)
            ok = (step[x] = make_array(&c, &from[0], RP_F64, 1, x < 5 ? &p.desc.len_k : &p.desc.dim_v, &a[x]));
        if (status == RP_OK && ok) /* without buffers for values, this only lists the parts */
            status = rp_attend_parts(plan, &c.t, at[0], at[1], at[2], part, &n_parts);
        for (int32_t x = 0; status == RP_OK && ok && x < n_parts; x++) {
            rp_array numbers;
            ok = (value[x] = make_array(&c, &from[0], RP_F64, 1, &part[x].length, &numbers));
            part[x].value = ok ? numbers.data : NULL;
        }
        if (status == RP_OK && ok) {
            row = (rp_row){.raw = a[0].data,
                           .scaled = a[1].data,
                           .bias = a[2].data,
                           .score = a[3].data,
                           .weights = a[4].data,
                           .out = a[5].data};
            Py_BEGIN_ALLOW_THREADS
            status = rp_attend_row(plan, &c.t, at[0], at[1], at[2], &row);
            if (status == RP_OK)
                status = rp_attend_parts(plan, &c.t, at[0], at[1], at[2], part, &n_parts);
            Py_END_ALLOW_THREADS
        }
        if (status != RP_OK)
            raise_status(&p, status);
        else if (ok)
            answer = Py_BuildValue("(OOOOOOdNNN)", step[0], step[1], step[2], step[3], step[4], step[5], row.lse,
                                   list_parts(part, value, n_parts, RP_PART_CONTENT, RP_PART_MASK),
                                   list_parts(part, value, n_parts, RP_PART_SINK, RP_PART_SINK),
                                   list_parts(part, value, n_parts, RP_PART_VALUES, RP_PART_VECTORS));
    }
    for (int x = 0; x < 6; x++)
        Py_XDECREF(step[x]);
    for (int x = 0; x < RP_MAX_PARTS; x++)
        Py_XDECREF(value[x]);
    rp_plan_destroy(plan);
    call_end(&c);
    return answer;
}

/* Infer a size of the description from the arrays of its terms. An axis follows the size if its expected length changes
 * when the size changes from 2 to 2^30; the length may be a fraction of the size. The size becomes 1 if no array has
 * such an axis. Returns 0, or -1 with an error set. */
static int infer(problem *p, const call *c, int64_t *size)
{
    const int64_t many = (int64_t)1 << 30;
    int64_t found = 1, shape[2][RP_MAX_AXES];
    int32_t ndim[2];
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            const rp_array *a = &c->t.term[n][x];
            for (int trial = 0; a->data && trial < 2; trial++) {
                *size = trial ? many : 2;
                const rp_status status = rp_term_shape(&p->desc, n, x, &ndim[trial], shape[trial]);
                if (status != RP_OK)
                    return raise_status(p, status), -1;
            }
            for (int32_t e = 1; a->data && e <= ndim[0]; e++) { /* axes align right */
                const int64_t length = e <= a->ndim ? a->shape[a->ndim - e] : 1, grown = shape[1][ndim[1] - e],
                              share = grown > 0 && grown < many ? many / grown : 1;
                if (shape[0][ndim[0] - e] < grown && (length > 1 || share > 1))
                    found = length * share;
            }
        }
    *size = found;
    return 0;
}

/* matrix(terms, lq, lk, heads, q_offset): return the biases [H, lq, lk] of batch entry 0 in float64; heads = 0 infers
 * H. */
PyObject *core_matrix(PyObject *module, PyObject *args)
{
    PyObject *option[N_NAMES] = {NULL}, *made = NULL, *terms;
    long long lq, lk, heads, q_offset;
    problem p;
    call c;
    rp_plan *plan = NULL;
    if (!PyArg_ParseTuple(args, "OLLLL", &terms, &lq, &lk, &heads, &q_offset))
        return NULL;
    option[BIAS] = terms;
    call_start(&c, state_of(module), true);
    bool ok = read_options(&p, &c, option) == 0 && take_terms(&p, &c, NULL) == 0;
    p.desc.len_q = lq;
    p.desc.len_k = lk;
    p.desc.q_offset = q_offset;
    p.desc.heads = 1;
    ok = ok && infer(&p, &c, &p.desc.batch) == 0 && (heads != 0 || infer(&p, &c, &p.desc.heads) == 0);
    if (heads != 0)
        p.desc.heads = heads;
    if (ok) {
        rp_array a;
        const origin numpy = {NULL, BUFFER, NULL};
        const int64_t batch = p.desc.batch, shape[4] = {batch, p.desc.heads, lq, lk};
        const int absent = batch == 1;
        rp_status status = rp_plan_create(&plan, &p.desc);
        if (status == RP_OK && (made = make_array(&c, &numpy, RP_F64, 4 - absent, shape + absent, &a))) {
            rp_array one = rp_array_of(a.data, RP_F64, 3, shape + 1);
            Py_BEGIN_ALLOW_THREADS
            for (int64_t b = 0; status == RP_OK && b < batch; b++) {
                status = rp_bias(plan, &c.t, b, &one);
                one.data = (double *)one.data + p.desc.heads * lq * lk;
            }
            Py_END_ALLOW_THREADS
        }
        if (status != RP_OK) {
            raise_status(&p, status);
            Py_CLEAR(made);
        }
    }
    rp_plan_destroy(plan);
    call_end(&c);
    return made;
}

/* bucket(offsets, to, text): write the buckets of int64 offsets to another int64 array, with the parameters in a term's
 * text. */
PyObject *core_bucket(PyObject *module, PyObject *args)
{
    PyObject *from, *to;
    const char *text;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    rp_term t;
    call c;
    rp_array a, b;
    if (!PyArg_ParseTuple(args, "OOs", &from, &to, &text))
        return NULL;
    if (rp_term_parse(text, &t, names) != RP_OK) {
        return raise_of_term(NULL, RP_TERM_NONE);
    }
    call_start(&c, state_of(module), true);
    bool ok = take_array(&c, from, false, "offsets", &a, NULL) == 0 && take_array(&c, to, true, "to", &b, NULL) == 0;
    if (ok && (a.dtype != RP_I64 || b.dtype != RP_I64 || a.ndim != 1 || b.ndim != 1 || a.shape[0] != b.shape[0])) {
        PyErr_SetString(PyExc_ValueError, "offsets: bucket() takes two int64 arrays of one axis and equal length");
        ok = false;
    }
    for (int64_t n = 0; ok && n < a.shape[0]; n++) {
        const int64_t bucket = rp_bucket(((const int64_t *)a.data)[n * a.stride[0]], t.buckets, t.max_distance,
                                         t.bidirectional, t.strategy);
        ((int64_t *)b.data)[n * b.stride[0]] = bucket;
        if (bucket < 0) {
            raise_status(NULL, RP_E_RANGE);
            ok = false;
        }
    }
    call_end(&c);
    return ok ? Py_NewRef(Py_None) : NULL;
}
