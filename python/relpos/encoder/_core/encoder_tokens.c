/* encoder_tokens.c -- tokens to hidden states and logits, and hidden states to a vector.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder_core.h"

/* Sequences of tokens, which refer to buffers of Python. */
typedef struct batch {
    Py_buffer tokens, types, lengths; /* int32 of all sequences, int32 or none, int64 */
    rp_encoder_tokens *sequence;
    int64_t n, total;
} batch;

/* Get the tokens of sequences; types may be None. Call release_batch after the call, also after an error. */
static int take_batch(PyObject *tokens, PyObject *types, PyObject *lengths, batch *b)
{
    *b = (batch){0};
    if (take_numbers(tokens, false, sizeof(int32_t), -1, &b->tokens) != 0 ||
        take_numbers(lengths, false, sizeof(int64_t), -1, &b->lengths) != 0)
        return -1;
    b->total = b->tokens.len / (Py_ssize_t)sizeof(int32_t);
    b->n = b->lengths.len / (Py_ssize_t)sizeof(int64_t);
    if (types != Py_None && take_numbers(types, false, sizeof(int32_t), b->total, &b->types) != 0)
        return -1;
    b->sequence = PyMem_Calloc((size_t)b->n + 1, sizeof *b->sequence);
    if (!b->sequence)
        return PyErr_NoMemory(), -1;
    int64_t first = 0;
    for (int64_t k = 0; k < b->n && first >= 0; k++) {
        const int64_t n = ((const int64_t *)b->lengths.buf)[k];
        b->sequence[k] = (rp_encoder_tokens){(const int32_t *)b->tokens.buf + first,
                                             b->types.obj ? (const int32_t *)b->types.buf + first : NULL, n};
        first = n < 0 || n > b->total - first ? -1 : first + n;
    }
    if (first != b->total)
        return PyErr_SetString(PyExc_TypeError, "the lengths are not those of the tokens"), -1;
    return 0;
}

static void release_batch(batch *b)
{
    PyMem_Free(b->sequence);
    PyBuffer_Release(&b->lengths);
    PyBuffer_Release(&b->types);
    PyBuffer_Release(&b->tokens);
}

typedef rp_status compute(const rp_encoder *model, int64_t n, const rp_encoder_tokens *sequences, float *out,
                          rp_progress *progress, void *context);

/* Write the results of sequences to out, float32: a row for each token, or logits for each sequence. */
static PyObject *run(PyObject *args, compute *function, bool hidden)
{
    opened *m;
    PyObject *tokens, *types, *lengths, *out, *progress;
    batch b;
    watch w = {0};
    Py_buffer view = {0};
    if (!PyArg_ParseTuple(args, "O&OOOOO", to_open, &m, &tokens, &types, &lengths, &out, &progress))
        return NULL;
    use(m);
    const rp_encoder_info *i = rp_encoder_about(m->model);
    bool ok = take_batch(tokens, types, lengths, &b) == 0 &&
              take_numbers(out, true, sizeof(float), hidden ? b.total * i->width : b.n * i->labels, &view) == 0;
    if (ok) {
        watch_begin(&w, progress);
        ok = watch_end(&w, function(m->model, b.n, b.sequence, view.buf, on_progress, &w)) == 0;
    }
    PyBuffer_Release(&view);
    release_batch(&b);
    end_use(m);
    return ok ? Py_NewRef(Py_None) : NULL;
}

/* hidden(model, tokens, types, lengths, out, progress): write the hidden states of sequences. */
PyObject *core_hidden(PyObject *module, PyObject *args)
{
    (void)module;
    return run(args, rp_encoder_hidden, true);
}

/* logits(model, tokens, types, lengths, out, progress): write the outputs of the classification head. */
PyObject *core_logits(PyObject *module, PyObject *args)
{
    (void)module;
    return run(args, rp_encoder_logits, false);
}

/* vector(model, prompt, hidden, out): write the vector of one text to out, float32. */
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
    const rp_encoder_info *i = rp_encoder_about(m->model);
    bool ok = take_numbers(hidden, false, sizeof(float), -1, &from) == 0 &&
              take_numbers(out, true, sizeof(float), i->vector_width, &to) == 0;
    if (ok) {
        const int64_t n = from.len / (Py_ssize_t)sizeof(float) / i->width;
        watch w = {0};
        watch_begin(&w, Py_None);
        ok = watch_end(&w, rp_encoder_vector(m->model, prompt, n, from.buf, to.buf)) == 0;
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    end_use(m);
    return ok ? Py_NewRef(Py_None) : NULL;
}
