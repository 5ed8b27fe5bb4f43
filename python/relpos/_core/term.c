/* term.c -- relpos._core.Term, the base class of the classes that relpos._terms creates for each kind of term. It
 * stores the parameters and the Python objects of the arrays. Each call views these arrays anew (options.c).
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

static rp_term_kind kind_of(const char *name)
{
    int kind = RP_TERM_NONE + 1;
    while (kind < RP_TERM_COUNT && strcmp(rp_term_name((rp_term_kind)kind), name) != 0)
        kind++;
    return (rp_term_kind)kind;
}

static PyObject *term_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"text", "arrays", NULL};
    char array[RP_MAX_ARRAYS][RP_NAME_MAX];
    const char *utf8;
    PyObject *text, *arrays;
    rp_term parsed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO!", (char **)(uintptr_t)names, &text, &PyTuple_Type, &arrays))
        return NULL;
    if (PyTuple_Size(arrays) != RP_MAX_ARRAYS)
        return PyErr_Format(PyExc_ValueError, "arrays: expected a tuple of %d", RP_MAX_ARRAYS);
    if (!(utf8 = PyUnicode_AsUTF8AndSize(text, NULL)))
        return NULL;
    if (rp_term_parse(utf8, &parsed, array) != RP_OK) {
        char name[RP_NAME_MAX];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(utf8, ","), utf8);
        return raise_of_term(type, kind_of(name));
    }
    const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    term *self = (term *)alloc(type, 0);
    if (!self)
        return NULL;
    self->term = parsed;
    self->text = Py_NewRef(text);
    self->arrays = Py_NewRef(arrays);
    return (PyObject *)self;
}

static int term_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((term *)object)->arrays);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static int term_clear(PyObject *object)
{
    Py_CLEAR(((term *)object)->arrays);
    return 0;
}

static void term_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    term_clear(object);
    Py_CLEAR(((term *)object)->text);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *term_text(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef(((term *)object)->text);
}

static PyObject *term_arrays(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef(((term *)object)->arrays);
}

static PyGetSetDef term_getset[] = {
    {"_text", term_text, NULL, "the term in command-line syntax, without arrays", NULL},
    {"_arrays", term_arrays, NULL, "a tuple of its arrays; None: absent", NULL},
    {0},
};

static PyType_Slot term_slots[] = {
    {Py_tp_doc, "A position term: Term(text, arrays)."},
    {Py_tp_new, SLOT(term_new)},
    {Py_tp_traverse, SLOT(term_traverse)},
    {Py_tp_clear, SLOT(term_clear)},
    {Py_tp_dealloc, SLOT(term_dealloc)},
    {Py_tp_getset, term_getset},
    {0, NULL},
};

PyType_Spec term_spec = {
    .name = "relpos._core.Term",
    .basicsize = sizeof(term),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = term_slots,
};

/* Return the facts about a kind of term as JSON (relpos/facts.h), or None after the last kind. */
PyObject *core_term_info(PyObject *module, PyObject *object)
{
    (void)module;
    const long kind = PyLong_AsLong(object);
    if (PyErr_Occurred())
        return NULL;
    if (kind <= RP_TERM_NONE || kind >= RP_TERM_COUNT)
        Py_RETURN_NONE;
    const size_t size = rp_term_json((rp_term_kind)kind, NULL, 0) + 1;
    char *text = PyMem_Malloc(size);
    if (!text)
        return PyErr_NoMemory();
    rp_term_json((rp_term_kind)kind, text, size);
    PyObject *answer = PyUnicode_FromString(text);
    PyMem_Free(text);
    return answer;
}
