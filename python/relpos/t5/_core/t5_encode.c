/* t5_encode.c -- hidden states and vectors of sources, log-probabilities of targets, and the inputs of an attention
 * layer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

/* encode(model, sources, out, progress): write the hidden states to out, float32. */
PyObject *core_encode(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    PyObject *sources, *out, *progress;
    rows r;
    watch w = {0};
    Py_buffer view = {0};
    if (!PyArg_ParseTuple(args, "O&OOO", to_open, &m, &sources, &out, &progress))
        return NULL;
    use(m);
    bool ok = take_rows(sources, &r) == 0 &&
              take_numbers(out, true, sizeof(float), r.total * rp_t5_about(m->model)->d_model, &view) == 0;
    if (ok) {
        watch_begin(&w, progress);
        ok = watch_end(&w, rp_t5_encode(m->model, r.n, r.tokens, view.buf, on_progress, &w)) == 0;
    }
    PyBuffer_Release(&view);
    release_rows(&r);
    end_use(m);
    return ok ? Py_NewRef(Py_None) : NULL;
}

/* vector(model, prompt, hidden, out): write the vector of one source to out, float32. */
PyObject *core_vector(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    const char *prompt;
    PyObject *hidden, *out;
    Py_buffer from = {0}, to = {0};
    if (!PyArg_ParseTuple(args, "O&sOO", to_open, &m, &prompt, &hidden, &out))
        return NULL;
    use(m);
    const rp_t5_info *i = rp_t5_about(m->model);
    rp_status status = RP_OK;
    const bool ok = take_numbers(hidden, false, sizeof(float), -1, &from) == 0 &&
                    take_numbers(out, true, sizeof(float), i->vector_width, &to) == 0;
    if (ok) {
        const int64_t n = from.len / (Py_ssize_t)sizeof(float) / i->d_model;
        Py_BEGIN_ALLOW_THREADS
        status = rp_t5_vector(m->model, prompt, n, from.buf, to.buf);
        Py_END_ALLOW_THREADS
        if (status != RP_OK)
            raise_error(status, PyExc_ValueError);
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    end_use(m);
    return ok && status == RP_OK ? Py_NewRef(Py_None) : NULL;
}

/* Get the tokens of a source and a target. */
static int take_pair(PyObject *pair, rows *r)
{
    if (take_rows(pair, r) != 0)
        return -1;
    return r->n == 2 ? 0 : (PyErr_SetString(PyExc_TypeError, "give a source and a target"), -1);
}

/* Add a new reference to a dict, or replace the dict by NULL. */
static void add(PyObject **dict, const char *name, PyObject *value)
{
    if (*dict && (!value || PyDict_SetItemString(*dict, name, value) != 0))
        Py_CLEAR(*dict);
    Py_XDECREF(value);
}

/* score(model, (source, target), each, progress): write the log-probability of each token of the target to `each`,
 * float64, and return their sum. */
PyObject *core_score(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    PyObject *pair, *each, *progress, *answer = NULL;
    rows r;
    watch w = {0};
    Py_buffer view = {0};
    double total;
    if (!PyArg_ParseTuple(args, "O&OOO", to_open, &m, &pair, &each, &progress))
        return NULL;
    use(m);
    if (take_pair(pair, &r) == 0 && take_numbers(each, true, sizeof(double), r.tokens[1].n, &view) == 0) {
        watch_begin(&w, progress);
        if (watch_end(&w, rp_t5_score(m->model, r.tokens[0], r.tokens[1], &total, view.buf, on_progress, &w)) == 0)
            answer = PyFloat_FromDouble(total);
    }
    PyBuffer_Release(&view);
    release_rows(&r);
    end_use(m);
    return answer;
}

/* Copy the inputs of one head to a dict: the numbers of rp_t5_attention, q, k and v as bytearrays of float64, and table
 * as a bytearray of float32, or None. */
static PyObject *inputs_of(const rp_t5_attention *a, int64_t head)
{
#define INPUT(name) FIELD(rp_t5_attention, name)
    static const field fields[] = {INPUT(d_kv),          INPUT(buckets), INPUT(max_distance),
                                   INPUT(bidirectional), INPUT(causal),  INPUT(window)};
    const struct {
        const char *name;
        const double *from;
        int64_t n;
    } arrays[] = {{"q", a->q, a->len_q * a->d_kv}, {"k", a->k, a->len_k * a->d_kv}, {"v", a->v, a->len_k * a->d_kv}};
    PyObject *answer = get_fields(fields, sizeof fields / sizeof *fields, a);
    for (size_t x = 0; answer && x < sizeof arrays / sizeof *arrays; x++)
        add(&answer, arrays[x].name, bytes_of(arrays[x].from + head * arrays[x].n, arrays[x].n, sizeof(double)));
    PyObject *table = a->table ? bytes_of(NULL, a->buckets, sizeof(float)) : Py_NewRef(Py_None);
    for (int64_t n = 0; table && a->table && n < a->buckets; n++)
        memcpy(PyByteArray_AsString(table) + n * (int64_t)sizeof(float), a->table + n * a->heads + head, sizeof(float));
    add(&answer, "table", table);
    return answer;
}

/* attention(model, part, layer, head, (source, target), progress): return the inputs of one head of a layer. */
PyObject *core_attention(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    int part;
    long long layer, head;
    PyObject *pair, *progress, *answer = NULL;
    rows r;
    watch w = {0};
    if (!PyArg_ParseTuple(args, "O&iLLOO", to_open, &m, &part, &layer, &head, &pair, &progress))
        return NULL;
    use(m);
    if (take_pair(pair, &r) == 0) {
        rp_t5_attention *made = NULL;
        watch_begin(&w, progress);
        const rp_status status =
            rp_t5_attention_of(m->model, (rp_t5_part)part, layer, r.tokens[0], r.tokens[1], &made, on_progress, &w);
        if (watch_end(&w, status) == 0)
            answer = head >= 0 && head < made->heads ? inputs_of(made, head)
                                                     : PyErr_Format(PyExc_ValueError, "head is %lld", head);
        rp_t5_attention_free(made);
    }
    release_rows(&r);
    end_use(m);
    return answer;
}
