/* text.c -- texts to tokens and back, and the texts of prompts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

/* tokenize(model, text): return a bytearray of int32. */
PyObject *core_tokenize(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    const char *text;
    Py_ssize_t bytes;
    int32_t *tokens;
    int64_t n;
    rp_status status;
    if (!PyArg_ParseTuple(args, "O&s#", to_open, &m, &text, &bytes))
        return NULL;
    use(m);
    Py_BEGIN_ALLOW_THREADS
    status = rp_t5_tokenize(m->model, text, bytes, &tokens, &n);
    Py_END_ALLOW_THREADS
    PyObject *answer = status == RP_OK ? bytes_of(tokens, n, sizeof *tokens) : raise_error(status, PyExc_ValueError);
    if (status == RP_OK)
        rp_t5_free(tokens);
    end_use(m);
    return answer;
}

/* detokenize(model, tokens, skip_special): return a str. */
PyObject *core_detokenize(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    PyObject *object;
    int skip_special;
    Py_buffer view;
    rp_t5_tokens row;
    char *text;
    int64_t bytes;
    rp_status status;
    if (!PyArg_ParseTuple(args, "O&Op", to_open, &m, &object, &skip_special) || take_row(object, &view, &row) != 0)
        return NULL;
    use(m);
    Py_BEGIN_ALLOW_THREADS
    status = (skip_special ? rp_t5_detokenize : rp_t5_detokenize_special)(m->model, row.tokens, row.n, &text, &bytes);
    Py_END_ALLOW_THREADS
    PyObject *answer = status == RP_OK ? text_of(text, bytes) : raise_error(status, PyExc_ValueError);
    if (status == RP_OK)
        rp_t5_free(text);
    PyBuffer_Release(&view);
    end_use(m);
    return answer;
}

/* prompt(model, name): return the text of a prompt; name = None: of the default prompt. */
PyObject *core_prompt(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    const char *name, *text;
    if (!PyArg_ParseTuple(args, "O&z", to_open, &m, &name))
        return NULL;
    const rp_status status = rp_t5_prompt(m->model, name, &text);
    return status == RP_OK ? PyUnicode_FromString(text) : raise_error(status, PyExc_ValueError);
}
