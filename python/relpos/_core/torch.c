/* torch.c -- queries of torch's state: does a tensor require a gradient, is a dispatch mode, a transform or autocast
 * active? If so, a Python function takes over the call. The queries run at the first tensor of a call; torch is never
 * imported for a call without one. Independent of terms and plans.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

const function by_operator = {"relpos._operator", "attention"}, recorded = {"relpos._torch", "attention"};
static const function dispatch = {"relpos._operator", "dispatch"}, cast = {"relpos._torch", "cast"};

/* Return true if a tensor type overrides __torch_dispatch__, as the fake tensors used for tracing do. */
bool dispatches(PyObject *type)
{
    PyObject *its = PyObject_GetAttrString(type, "__torch_dispatch__"); /* if it exists, torch is imported */
    PyObject *torch = its ? PyImport_ImportModule("torch") : NULL;
    PyObject *plain = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;
    PyObject *of_plain = plain ? PyObject_GetAttrString(plain, "__torch_dispatch__") : NULL;
    const bool differ = its != of_plain;
    PyErr_Clear();
    Py_XDECREF(its);
    Py_XDECREF(torch);
    Py_XDECREF(plain);
    Py_XDECREF(of_plain);
    return differ;
}

/* Return true for torch.Tensor, torch.nn.Parameter and other types of their modules. */
bool is_of_torch(PyObject *type)
{
    PyObject *module = PyObject_GetAttrString(type, "__module__");
    const bool is = module && PyUnicode_Check(module) &&
                    (PyUnicode_CompareWithASCIIString(module, "torch") == 0 ||
                     PyUnicode_CompareWithASCIIString(module, "torch.nn.parameter") == 0);
    PyErr_Clear();
    Py_XDECREF(module);
    return is;
}

/* Look up the queried functions. An older torch may not have one, or only under its second name. */
static void load_queries(state *st)
{
    static const char *const names[N_QUERIES][2] = {
        [MODES] = {"_len_torch_dispatch_stack"},
        [TRANSFORMS] = {"peek_interpreter_stack"}, /* in torch._C._functorch */
        [TRACING] = {"_is_tracing"},
        [AUTOCAST] = {"_is_any_autocast_enabled", "is_autocast_cpu_enabled"},
    };
    PyObject *torch = PyImport_ImportModule("torch._C");
    PyObject *func = torch ? PyObject_GetAttrString(torch, "_functorch") : NULL;
    for (int n = 0; n < N_QUERIES; n++)
        for (int x = 0; x < 2 && !st->query[n] && names[n][x]; x++) {
            PyObject *module = n == TRANSFORMS ? func : torch;
            PyErr_Clear();
            st->query[n] = module ? PyObject_GetAttrString(module, names[n][x]) : NULL;
        }
    PyErr_Clear();
    st->forward_ad = PyImport_ImportModule("torch.autograd.forward_ad");
    PyErr_Clear();
    PyObject *nn = PyImport_ImportModule("torch._C._nn");
    PyErr_Clear();
    if (!nn && torch)
        nn = PyObject_GetAttrString(torch, "_nn");
    st->functional = PyImport_ImportModule("torch.nn.functional");
    st->sdpa_name = PyUnicode_InternFromString("scaled_dot_product_attention");
    st->sdpa = nn && st->functional && st->sdpa_name ? PyObject_GetAttr(nn, st->sdpa_name) : NULL;
    PyErr_Clear();
    Py_XDECREF(nn);
    Py_XDECREF(torch);
    Py_XDECREF(func);
    st->queries_loaded = true;
}

static bool query_is_true(const state *st, int question)
{
    PyObject *answer = st->query[question] ? PyObject_CallNoArgs(st->query[question]) : NULL;
    const bool yes = answer && PyObject_IsTrue(answer) > 0;
    PyErr_Clear();
    Py_XDECREF(answer);
    return yes;
}

/* Return true if torch traces or transforms calls: by a dispatch mode such as make_fx or fake tensors, torch.func,
 * torch.jit.trace, or forward-mode differentiation. */
static bool is_traced(state *st)
{
    if (query_is_true(st, MODES) || query_is_true(st, TRANSFORMS) || query_is_true(st, TRACING))
        return true;
    PyObject *level = st->forward_ad ? PyObject_GetAttr(st->forward_ad, st->current_level) : NULL;
    const bool is = level && PyLong_AsLong(level) >= 0;
    PyErr_Clear();
    Py_XDECREF(level);
    return is;
}

/* Return true if another function has replaced scaled_dot_product_attention, as torch's context_parallel does. `cast`
 * then finds out which one. */
static bool is_replaced(const state *st)
{
    PyObject *now = st->sdpa ? PyObject_GetAttr(st->functional, st->sdpa_name) : NULL;
    const bool is = now && now != st->sdpa;
    PyErr_Clear();
    Py_XDECREF(now);
    return is;
}

/* If torch traces or transforms this call, set c->redirect and an error that names an argument, and return -1. */
static int check_traced(call *c, const char *name)
{
    if (c->check_torch && !c->st->queries_loaded)
        load_queries(c->st);
    if (!c->check_torch || !is_traced(c->st))
        return 0;
    c->redirect = &dispatch;
    PyErr_Format(PyExc_TypeError,
                 "%s: torch traces or transforms this call (make_fx, fake tensors, torch.jit.trace, torch.func, "
                 "forward-mode derivatives); use relpos.attention, which allows it",
                 name);
    return -1;
}

/* Like check_traced, for an option that is a number: only a tensor can be traced. */
int note_number(call *c, PyObject *number, const char *name)
{
    if (PyFloat_Check(number) || PyLong_Check(number))
        return 0;
    PyObject *wants = PyObject_GetAttr(number, c->st->requires_grad);
    PyErr_Clear();
    Py_XDECREF(wants);
    return wants ? check_traced(c, name) : 0;
}

/* Return 1 if the object is a torch tensor (recognized by requires_grad), 0 if not, or -1 with an error set. Records if
 * it requires a gradient. Sets c->redirect and an error if a Python function must take over: for tracing, autocast, or
 * a set negative bit, which means that the values are the negatives of those in memory. */
int note_torch(call *c, PyObject *object, const char *name)
{
    PyObject *wants = PyObject_GetAttr(object, c->st->requires_grad), *neg;
    if (!wants) {
        PyErr_Clear();
        return 0;
    }
    c->torch = true;
    c->grad = c->grad || wants == Py_True;
    Py_DECREF(wants);
    if (check_traced(c, name) != 0)
        return -1;
    if (c->check_autocast && (query_is_true(c->st, AUTOCAST) || is_replaced(c->st))) {
        c->redirect = &cast;
        PyErr_Format(PyExc_TypeError, "%s: under torch.autocast", name);
        return -1;
    }
    c->check_torch = c->check_autocast = false;
    if (!(neg = PyObject_CallMethodObjArgs(object, c->st->is_neg, NULL)))
        return -1;
    Py_DECREF(neg);
    if (neg != Py_True)
        return 1;
    c->redirect = &by_operator;
    PyErr_Format(PyExc_TypeError, "%s has its negative bit set; use %s.resolve_neg()", name, name);
    return -1;
}

/* Return true if a derivative with respect to a number is wanted (see wants_gradient in _terms.py). No call computes
 * it, so the caller raises rather than drop it silently. */
bool wants_gradient(PyObject *number)
{
    if (PyFloat_Check(number) || PyLong_Check(number))
        return false;
    PyObject *terms = PyImport_ImportModule("relpos._terms");
    PyObject *wants = terms ? PyObject_CallMethod(terms, "wants_gradient", "(O)", number) : NULL;
    const bool is = wants == Py_True;
    PyErr_Clear();
    Py_XDECREF(terms);
    Py_XDECREF(wants);
    return is;
}

/* Return 1 if torch must record this call for a gradient, 0 if not, or -1 with an error set. */
int needs_record(const call *c)
{
    if (!c->grad)
        return 0;
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *enabled = torch ? PyObject_CallMethodObjArgs(torch, c->st->grad_enabled, NULL) : NULL;
    const int answer = enabled ? enabled == Py_True : -1;
    Py_XDECREF(torch);
    Py_XDECREF(enabled);
    return answer;
}

/* Raise TypeError if an input of `who`, which records no gradient, requires one. `instead` names a function that does.
 * Returns 0, or -1 with an error set. */
int refuse_gradient(const call *c, const char *who, const char *instead)
{
    const int answer = needs_record(c);
    if (answer > 0)
        PyErr_Format(PyExc_TypeError,
                     "an input requires a gradient, which %s does not record; call it under torch.no_grad(), or use %s",
                     who, instead);
    return answer == 0 ? 0 : -1;
}

/* Bump the version of a tensor we wrote to, so that a backward pass that needs its old value raises. */
int bump_version(PyObject *tensor)
{
    PyObject *graph = PyImport_ImportModule("torch.autograd.graph");
    PyObject *done = graph ? PyObject_CallMethod(graph, "increment_version", "O", tensor) : NULL;
    Py_XDECREF(graph);
    Py_XDECREF(done);
    if (!done && PyErr_ExceptionMatches(PyExc_RuntimeError)) { /* inference tensors have no version */
        PyErr_Clear();
        return 0;
    }
    return done ? 0 : -1;
}

/* Call a Python function with the same positional arguments. */
PyObject *call_instead(const function *to, PyObject *const *args, Py_ssize_t n)
{
    PyObject *module = PyImport_ImportModule(to->module), *answer = NULL;
    PyObject *called = module ? PyObject_GetAttrString(module, to->name) : NULL;
    PyObject *tuple = called ? PyTuple_New(n) : NULL;
    for (Py_ssize_t x = 0; tuple && x < n; x++)
        if (PyTuple_SetItem(tuple, x, Py_NewRef(args[x])) != 0)
            Py_CLEAR(tuple);
    if (tuple)
        answer = PyObject_Call(called, tuple, NULL);
    Py_XDECREF(module);
    Py_XDECREF(called);
    Py_XDECREF(tuple);
    return answer;
}
