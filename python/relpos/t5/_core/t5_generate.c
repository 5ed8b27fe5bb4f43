/* t5_generate.c -- the settings of a model's generation, and a call of rp_t5_generate.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

/* The settings that the package sets. */
#define SETTING(name) FIELD(rp_t5_generation, name)
static const field settings[] = {
    SETTING(max_new_tokens),  SETTING(min_new_tokens), SETTING(beams),  SETTING(returned),
    SETTING(length_penalty),  SETTING(early_stopping), SETTING(sample), SETTING(temperature),
    SETTING(top_k),           SETTING(top_p),          SETTING(seed),   SETTING(repetition_penalty),
    SETTING(no_repeat_ngram), SETTING(forced_first),   SETTING(scores), SETTING(suppress),
    SETTING(begin_suppress),  SETTING(prefix),
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

/* settings(model): return those of generation_config.json. Tokens are None, for those of the model. */
PyObject *core_settings(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    if (!PyArg_ParseTuple(args, "O&", to_open, &m))
        return NULL;
    const rp_t5_generation g = rp_t5_generation_of(m->model);
    return get_fields(settings, N_SETTINGS, &g);
}

/* The settings of one call, and the buffers and memory to which their pointers refer. */
typedef struct chosen {
    rp_t5_generation g;
    Py_buffer view[N_SETTINGS]; /* of a setting that is tokens; obj is NULL: none */
    rows bad_words;
    const char **stop;
} chosen;

static int take_settings(chosen *c, PyObject *given)
{
    for (int n = 0; n < N_SETTINGS; n++) {
        PyObject *value = PyDict_GetItemString(given, settings[n].name);
        if (!value || value == Py_None)
            continue;
        const int status = settings[n].kind == OTHER
                               ? take_row(value, &c->view[n], (rp_t5_tokens *)((char *)&c->g + settings[n].at))
                               : set_field(&settings[n], &c->g, value);
        if (status != 0)
            return -1;
    }
    return 0;
}

static int take_bad_words(chosen *c, PyObject *given)
{
    PyObject *words = PyDict_GetItemString(given, "bad_words");
    if (!words || words == Py_None)
        return 0;
    if (take_rows(words, &c->bad_words) != 0)
        return -1;
    c->g.bad_words = c->bad_words.tokens;
    c->g.n_bad_words = c->bad_words.n;
    return 0;
}

/* Set the texts that end a target, a tuple of bytes. */
static int take_stop(chosen *c, PyObject *given)
{
    PyObject *texts = PyDict_GetItemString(given, "stop");
    if (!texts || texts == Py_None)
        return 0;
    if (!PyTuple_Check(texts))
        return PyErr_SetString(PyExc_TypeError, "stop must be a tuple of bytes"), -1;
    const Py_ssize_t n = PyTuple_Size(texts);
    if (!(c->stop = PyMem_Calloc((size_t)n + 1, sizeof *c->stop)))
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t x = 0; x < n; x++)
        if (!(c->stop[x] = PyBytes_AsString(PyTuple_GetItem(texts, x))))
            return -1;
    c->g.stop = c->stop;
    c->g.n_stop = (int32_t)n;
    return 0;
}

static void release_settings(chosen *c)
{
    for (int n = 0; n < N_SETTINGS; n++)
        PyBuffer_Release(&c->view[n]);
    release_rows(&c->bad_words);
    PyMem_Free(c->stop);
}

/* Return a list of (tokens, score), where tokens is a bytearray of int32, and free the results. */
static PyObject *take_results(opened *m, rp_t5_results *results)
{
    const int64_t n = rp_t5_results_size(results);
    const rp_t5_drafted *drafted = rp_t5_results_drafted(results);
    PyObject *answer = PyList_New((Py_ssize_t)n);
    for (int64_t x = 0; answer && x < n; x++) {
        const rp_t5_sequence *one = rp_t5_result(results, x);
        PyObject *item = Py_BuildValue("(Nd)", bytes_of(one->tokens, one->n, sizeof *one->tokens), one->score);
        if (!item || PyList_SetItem(answer, (Py_ssize_t)x, item) != 0)
            Py_CLEAR(answer);
    }
    rp_t5_drafted *sums = drafted_of(m);
    sums->proposed += drafted->proposed;
    sums->accepted += drafted->accepted;
    sums->passes += drafted->passes;
    rp_t5_results_free(results);
    return answer;
}

/* A call, with what ends it or receives its tokens. */
typedef struct generating {
    watch w;
    PyObject *on_token; /* borrowed function of source, index and token; it returns True to end the call. NULL: none */
    Py_buffer flag;     /* an int32 that another thread sets to end the call; obj is NULL: none */
} generating;

/* Return 1 to end a call: the flag is set, or a signal's handler raised an exception. */
static int is_cancelled(void *context)
{
    generating *c = context;
    return (c->flag.obj && rp_t5_is_set(c->flag.buf)) || on_progress(&c->w, 0);
}

/* Pass a token to the caller's function. Return 1 to end the call. */
static int on_token(void *context, int64_t source, int32_t index, int32_t token)
{
    generating *c = context;
    if (c->w.raised)
        return 1;
    PyEval_RestoreThread(c->w.thread);
    PyObject *answer = PyObject_CallFunction(c->on_token, "Lii", (long long)source, (int)index, (int)token);
    const int end = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    c->w.raised = end < 0;
    c->w.thread = PyEval_SaveThread();
    return end != 0;
}

/* generate(model, sources, settings, on_token, flag): `settings` is a dict as core_settings returns, with tokens in
 * place of None, and also bad_words and stop. on_token and flag (see generating) may be None. */
PyObject *core_generate(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    PyObject *sources, *given, *each, *flag, *answer = NULL;
    rows r;
    generating call = {0};
    chosen c = {0};
    if (!PyArg_ParseTuple(args, "O&OO!OO", to_open, &m, &sources, &PyDict_Type, &given, &each, &flag))
        return NULL;
    use(m);
    c.g = rp_t5_generation_of(m->model);
    if (take_rows(sources, &r) == 0 && take_settings(&c, given) == 0 && take_bad_words(&c, given) == 0 &&
        take_stop(&c, given) == 0 &&
        (flag == Py_None || take_numbers(flag, true, sizeof(int32_t), 1, &call.flag) == 0)) {
        rp_t5_results *results;
        if (each != Py_None) {
            call.on_token = each;
            c.g.on_token = on_token;
        }
        c.g.cancelled = is_cancelled;
        c.g.context = &call;
        watch_begin(&call.w, Py_None);
        const rp_status status = rp_t5_generate(m->model, r.n, r.tokens, &c.g, &results);
        if (watch_end(&call.w, status) == 0)
            answer = take_results(m, results);
        else if (status == RP_OK)
            rp_t5_results_free(results);
    }
    PyBuffer_Release(&call.flag);
    release_settings(&c);
    release_rows(&r);
    end_use(m);
    return answer;
}
