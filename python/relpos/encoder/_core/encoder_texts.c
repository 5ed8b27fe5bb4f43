/* encoder_texts.c -- texts and pairs of texts to tokens, vectors and scores.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder_core.h"

/* Texts that refer to str objects of Python. */
typedef struct texts {
    PyObject *held; /* a tuple, which keeps the objects */
    Py_ssize_t n;
    rp_encoder_text *text;
} texts;

static int take_utf8(PyObject *str, const char **text, int64_t *bytes)
{
    Py_ssize_t size = 0;
    *text = PyUnicode_AsUTF8AndSize(str, &size);
    *bytes = size;
    return *text ? 0 : -1;
}

/* Get one text: a str, or a tuple of one or two. */
static int take_text(PyObject *object, rp_encoder_text *text)
{
    const Py_ssize_t n = PyTuple_Check(object) ? PyTuple_Size(object) : 0;
    if (n == 0)
        return take_utf8(object, &text->text, &text->bytes);
    if (n > 2)
        return PyErr_Format(PyExc_TypeError, "a pair has %zd texts", n), -1;
    if (take_utf8(PyTuple_GetItem(object, 0), &text->text, &text->bytes) != 0)
        return -1;
    return n == 2 ? take_utf8(PyTuple_GetItem(object, 1), &text->pair, &text->pair_bytes) : 0;
}

/* Get the texts of a sequence. Call release_texts after the call, also after an error. */
static int take_texts(PyObject *sequence, texts *t)
{
    *t = (texts){0};
    t->held = PySequence_Tuple(sequence);
    t->n = t->held ? PyTuple_Size(t->held) : 0;
    if (!t->held)
        return -1;
    t->text = PyMem_Calloc((size_t)t->n + 1, sizeof *t->text);
    if (!t->text)
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t k = 0; k < t->n; k++)
        if (take_text(PyTuple_GetItem(t->held, k), &t->text[k]) != 0)
            return -1;
    return 0;
}

static void release_texts(texts *t)
{
    PyMem_Free(t->text);
    Py_XDECREF(t->held);
}

/* tokenize(model, text, max_tokens): return tokens and types of a text or pair as bytearrays of int32. */
PyObject *core_tokenize(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    PyObject *object;
    long long max_tokens;
    rp_encoder_text text = {0};
    int32_t *tokens, *types;
    int64_t n;
    rp_status status;
    if (!PyArg_ParseTuple(args, "O&OL", to_open, &m, &object, &max_tokens) || take_text(object, &text) != 0)
        return NULL;
    use(m);
    Py_BEGIN_ALLOW_THREADS
    status = rp_encoder_tokenize(m->model, &text, max_tokens, &tokens, &types, &n);
    Py_END_ALLOW_THREADS
    PyObject *answer =
        status == RP_OK ? Py_BuildValue("(NN)", bytes_of(tokens, n, sizeof *tokens), bytes_of(types, n, sizeof *types))
                        : raise_error(status, PyExc_ValueError);
    if (status == RP_OK) {
        rp_encoder_free(tokens);
        rp_encoder_free(types);
    }
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
    const rp_status status = rp_encoder_prompt(m->model, name, &text);
    return status == RP_OK ? PyUnicode_FromString(text) : raise_error(status, PyExc_ValueError);
}

/* A function of the library that computes `width` numbers for each text. */
typedef rp_status compute(const rp_encoder *model, const char *prompt, int64_t n, const rp_encoder_text *text,
                          float *out, rp_progress *progress, void *context);

/* Write the results of texts to out, float32. */
static PyObject *run(opened *m, compute *function, const char *prompt, PyObject *sequence, int64_t width, PyObject *out,
                     PyObject *progress)
{
    texts t;
    watch w = {0};
    Py_buffer view = {0};
    use(m);
    bool ok = take_texts(sequence, &t) == 0 && take_numbers(out, true, sizeof(float), t.n * width, &view) == 0;
    if (ok) {
        watch_begin(&w, progress);
        ok = watch_end(&w, function(m->model, prompt, t.n, t.text, view.buf, on_progress, &w)) == 0;
    }
    PyBuffer_Release(&view);
    release_texts(&t);
    end_use(m);
    return ok ? Py_NewRef(Py_None) : NULL;
}

/* embed(model, prompt, texts, out, progress): write a vector for each text. prompt = None: the default prompt. */
PyObject *core_embed(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    const char *prompt;
    PyObject *sequence, *out, *progress;
    if (!PyArg_ParseTuple(args, "O&zOOO", to_open, &m, &prompt, &sequence, &out, &progress))
        return NULL;
    return run(m, rp_encoder_embed, prompt, sequence, rp_encoder_about(m->model)->vector_width, out, progress);
}

static rp_status classify(const rp_encoder *model, const char *prompt, int64_t n, const rp_encoder_text *text,
                          float *out, rp_progress *progress, void *context)
{
    (void)prompt;
    return rp_encoder_classify(model, n, text, out, progress, context);
}

/* classify(model, texts, out, progress): write the scores of all labels for each text or pair. */
PyObject *core_classify(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    PyObject *sequence, *out, *progress;
    if (!PyArg_ParseTuple(args, "O&OOO", to_open, &m, &sequence, &out, &progress))
        return NULL;
    return run(m, classify, NULL, sequence, rp_encoder_about(m->model)->labels, out, progress);
}

static rp_status rerank(const rp_encoder *model, const char *prompt, int64_t n, const rp_encoder_text *text, float *out,
                        rp_progress *progress, void *context)
{
    (void)prompt;
    return rp_encoder_rerank(model, n, text, out, progress, context);
}

/* rerank(model, pairs, out, progress): write the score of each pair. */
PyObject *core_rerank(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    PyObject *sequence, *out, *progress;
    if (!PyArg_ParseTuple(args, "O&OOO", to_open, &m, &sequence, &out, &progress))
        return NULL;
    return run(m, rerank, NULL, sequence, 1, out, progress);
}
