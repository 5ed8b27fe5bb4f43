/* torch.c -- what torch is asked, and where a call goes that it wants for itself: whether a tensor requires a gradient, whether a mode,
 * a transform or autocast is active, and the functions of Python that then take the call. Nothing is asked before the first tensor of
 * a call, and torch is never imported for a call without one. It knows neither terms nor plans, and reads no element of an array.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

const function by_operator = {"relpos._operator", "attention"}, recorded = {"relpos._torch", "attention"};
static const function watched = {"relpos._operator", "watched"}, cast = {"relpos._torch", "cast"};

/* Whether a type of tensors sends calls elsewhere, as those without numbers do that are used for tracing. */
bool dispatches(PyObject *type)
{
    PyObject *its = PyObject_GetAttrString(type, "__torch_dispatch__"); /* so torch has been imported */
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

/* torch.Tensor and torch.nn.Parameter */
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

/* Learn how torch answers. An older one may lack a function, or have it by the second name. */
static void look_for_questions(state *st)
{
    static const char *const names[N_QUESTIONS][2] = {
        [MODES] = {"_len_torch_dispatch_stack"},
        [TRANSFORMS] = {"peek_interpreter_stack"}, /* of torch._C._functorch */
        [TRACING] = {"_is_tracing"},
        [AUTOCAST] = {"_is_any_autocast_enabled", "is_autocast_cpu_enabled"},
    };
    PyObject *torch = PyImport_ImportModule("torch._C");
    PyObject *func = torch ? PyObject_GetAttrString(torch, "_functorch") : NULL;
    for (int n = 0; n < N_QUESTIONS; n++)
        for (int x = 0; x < 2 && !st->asked[n] && names[n][x]; x++) {
            PyObject *module = n == TRANSFORMS ? func : torch;
            PyErr_Clear();
            st->asked[n] = module ? PyObject_GetAttrString(module, names[n][x]) : NULL;
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
    st->looked = true;
}

static bool answers_yes(const state *st, int question)
{
    PyObject *answer = st->asked[question] ? PyObject_CallNoArgs(st->asked[question]) : NULL;
    const bool yes = answer && PyObject_IsTrue(answer) > 0;
    PyErr_Clear();
    Py_XDECREF(answer);
    return yes;
}

/* Whether something in torch reads or transforms calls at present: a dispatch mode, as make_fx and fake tensors are, a transform of
 * torch.func, torch.jit.trace, or forward-mode differentiation. */
static bool is_watched(state *st)
{
    if (answers_yes(st, MODES) || answers_yes(st, TRANSFORMS) || answers_yes(st, TRACING))
        return true;
    PyObject *level = st->forward_ad ? PyObject_GetAttr(st->forward_ad, st->current_level) : NULL;
    const bool is = level && PyLong_AsLong(level) >= 0;
    PyErr_Clear();
    Py_XDECREF(level);
    return is;
}

/* Whether something has put another function in the place of scaled_dot_product_attention, as torch's context_parallel does: `cast` looks
 * who it was. */
static bool is_replaced(const state *st)
{
    PyObject *now = st->sdpa ? PyObject_GetAttr(st->functional, st->sdpa_name) : NULL;
    const bool is = now && now != st->sdpa;
    PyErr_Clear();
    Py_XDECREF(now);
    return is;
}

/* Whether the object is a tensor of torch, by what torch alone has: 1, 0, or -1 with an error set. Notes whether it wants a
 * gradient, and refuses one whose numbers are the negatives of those in its memory. */
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
    if (c->asks && !c->st->looked)
        look_for_questions(c->st);
    if (c->asks && is_watched(c->st)) {
        c->elsewhere = &watched;
        PyErr_Format(PyExc_TypeError,
                     "%s: torch traces or transforms this call (make_fx, fake tensors, torch.jit.trace, torch.func, "
                     "forward-mode derivatives): only relpos.attention allows it",
                     name);
        return -1;
    }
    if (c->casts && (answers_yes(c->st, AUTOCAST) || is_replaced(c->st))) {
        c->elsewhere = &cast;
        PyErr_Format(PyExc_TypeError, "%s: under torch.autocast", name);
        return -1;
    }
    c->asks = c->casts = false;
    if (!(neg = PyObject_CallMethodObjArgs(object, c->st->is_neg, NULL)))
        return -1;
    Py_DECREF(neg);
    if (neg != Py_True)
        return 1;
    c->elsewhere = &by_operator;
    PyErr_Format(PyExc_TypeError, "%s: its negative bit is set: use %s.resolve_neg()", name, name);
    return -1;
}

/* Whether torch should find the derivative with respect to a number: there is none, and to go on would drop it. */
bool wants_gradient(PyObject *number)
{
    if (PyFloat_Check(number) || PyLong_Check(number))
        return false;
    PyObject *wants = PyObject_GetAttrString(number, "requires_grad");
    PyObject *torch = wants == Py_True ? PyImport_ImportModule("torch") : NULL;
    PyObject *enabled = torch ? PyObject_CallMethod(torch, "is_grad_enabled", NULL) : NULL;
    const bool is = enabled == Py_True;
    PyErr_Clear();
    Py_XDECREF(wants);
    Py_XDECREF(torch);
    Py_XDECREF(enabled);
    return is;
}

/* Whether torch wants a gradient through this call: 1, 0, or -1 with an error set. */
int records(const call *c)
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

int refuse_gradient(const call *c)
{
    const int answer = records(c);
    if (answer > 0)
        PyErr_SetString(PyExc_TypeError,
                        "an input requires a gradient, and a plan records none: call it under torch.no_grad(), "
                        "or relpos.attention");
    return answer == 0 ? 0 : -1;
}

/* Tell torch that a tensor of the caller's has changed, so that a backward pass that needs what it was says so. */
int was_written(PyObject *tensor)
{
    PyObject *graph = PyImport_ImportModule("torch.autograd.graph");
    PyObject *done = graph ? PyObject_CallMethod(graph, "increment_version", "O", tensor) : NULL;
    Py_XDECREF(graph);
    Py_XDECREF(done);
    if (!done && PyErr_ExceptionMatches(PyExc_RuntimeError)) { /* a tensor of inference mode has no version */
        PyErr_Clear();
        return 0;
    }
    return done ? 0 : -1;
}

/* The same call through a function of Python. */
PyObject *hand_over(const function *to, PyObject *const *args, Py_ssize_t n)
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
