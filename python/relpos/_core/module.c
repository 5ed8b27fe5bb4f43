/* module.c -- the extension module relpos._core: its function table, its state, and config(). The functions are defined
 * in calls.c, plan.c, norms.c, explanation.c, options.c and term.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"
#include <unistd.h>

#if defined(__clang__)
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

static PyObject *core_config(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *found = PyList_New(0);
    for (int n = 0; found && rp_isa_name(n); n++) {
        PyObject *name = rp_isa_found(rp_isa_name(n)) == 1 ? PyUnicode_FromString(rp_isa_name(n)) : NULL;
        if (name ? PyList_Append(found, name) != 0 : PyErr_Occurred() != NULL)
            Py_CLEAR(found);
        Py_XDECREF(name);
    }
    if (!found)
        return NULL;
    return Py_BuildValue("{s:s,s:s,s:N,s:i,s:s}", "version", rp_version(), "isa", rp_isa_default(), "isas", found,
                         "threads", (int)rp_pool_threads(NULL), "compiler", COMPILER);
}

/* METH_FASTCALL functions differ from the type in PyMethodDef. The cast through void (*)(void) avoids a compiler
 * warning. */
#define FUNCTION(f) ((PyCFunction)(void (*)(void))(f))
#define FASTCALL(f) FUNCTION(f), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"attention", FUNCTION(core_attention), METH_FASTCALL, "attention(q, k, v, *options)"},
    {"compute", FUNCTION(core_compute), METH_FASTCALL, "attention without the checks for tracing and autocast"},
    {"backward", FASTCALL(core_backward), "backward(dout, q, k, v, **options)"},
    {"jvp", FASTCALL(core_jvp), "jvp(q, k, v, tangents, progress, **options)"},
    {"hvp", FASTCALL(core_hvp), "hvp(dout, q, k, v, tangents, dlse, wanted, progress, **options)"},
    {"derive", FUNCTION(core_derive), METH_FASTCALL, "jvp or hvp without the check for tracing"},
    {"gradients", FUNCTION(core_gradients), METH_FASTCALL, "backward without the check for tracing"},
    {"plan", FASTCALL(core_plan), "plan(batch, heads, len_q, len_k, dim, kv_heads, dim_v, dtype, **options)"},
    {"plan_call", FASTCALL(core_plan_call), "plan_call(plan, q, k, v, pages, len_k, range, progress, **options)"},
    {"plan_backward", FASTCALL(core_plan_backward), "plan_backward(plan, dout, q, k, v, range, progress, **options)"},
    {"plan_sizes", core_plan_sizes, METH_O, "plan_sizes(plan)"},
    {"key_norms", FUNCTION(core_key_norms), METH_FASTCALL, "key_norms(k, v, norms, start)"},
    {"row", FASTCALL(core_row), "row(q, k, v, batch, head, query, **options)"},
    {"matrix", core_matrix, METH_VARARGS, "matrix(terms, lq, lk, heads, q_offset)"},
    {"bucket", core_bucket, METH_VARARGS, "bucket(offsets, to, text)"},
    {"term_info", core_term_info, METH_O, "facts about a kind of term, as JSON"},
    {"mask_info", core_mask_info, METH_O, "(name, number of parameters, has an array) of a kind of mask"},
    {"config", core_config, METH_NOARGS, "version, instruction sets, threads, compiler"},
    {0},
};

static int module_exec(PyObject *module)
{
    state *st = state_of(module);
    st->process = (long)getpid();
    PyObject *numpy = PyImport_ImportModule("numpy");
    bool ok = numpy && (st->empty = PyObject_GetAttrString(numpy, "empty"));
    for (int n = 0; ok && n < RP_BF16; n++)
        ok = (st->dtype[n] = PyObject_CallMethod(numpy, "dtype", "s", dtype_words[n]));
    Py_XDECREF(numpy);
    for (int n = 0; ok && n < N_NAMES; n++)
        ok = (st->name[n] = PyUnicode_InternFromString(option_names[n]));
    ok = ok && (st->requires_grad = PyUnicode_InternFromString("requires_grad")) &&
         (st->is_neg = PyUnicode_InternFromString("is_neg")) &&
         (st->grad_enabled = PyUnicode_InternFromString("is_grad_enabled")) &&
         (st->current_level = PyUnicode_InternFromString("_current_level")) && (st->pools = PyDict_New());
    ok = ok && (st->term = (PyTypeObject *)PyType_FromModuleAndSpec(module, &term_spec, NULL)) &&
         PyModule_AddType(module, st->term) == 0 &&
         (st->plan = (PyTypeObject *)PyType_FromModuleAndSpec(module, &plan_spec, NULL));
    PyObject *names = ok ? PyTuple_New(END_FORWARD) : NULL;
    for (int n = 0; names && n < END_FORWARD; n++)
        if (PyTuple_SetItem(names, n, Py_NewRef(st->name[n])) != 0)
            Py_CLEAR(names);
    ok = names && PyModule_AddObjectRef(module, "NAMES", names) == 0; /* option names in order */
    Py_XDECREF(names);
    return ok ? PyModule_AddIntConstant(module, "MAX_ARRAYS", RP_MAX_ARRAYS) : -1;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    state *st = state_of(module);
    Py_VISIT(st->term);
    Py_VISIT(st->plan);
    Py_VISIT(st->empty);
    Py_VISIT(st->pools);
    Py_VISIT(st->num_threads);
    for (int n = 0; n < N_QUERIES; n++)
        Py_VISIT(st->query[n]);
    Py_VISIT(st->forward_ad);
    Py_VISIT(st->functional);
    Py_VISIT(st->sdpa);
    for (int n = 0; n < MAX_TYPES; n++)
        Py_VISIT(st->tensor[n].type);
    return 0;
}

static int module_clear(PyObject *module)
{
    state *st = state_of(module);
    Py_CLEAR(st->term);
    Py_CLEAR(st->plan);
    for (int n = 0; n < N_NAMES; n++)
        Py_CLEAR(st->name[n]);
    for (int n = 0; n < RP_BF16; n++)
        Py_CLEAR(st->dtype[n]);
    Py_CLEAR(st->empty);
    Py_CLEAR(st->pools);
    Py_CLEAR(st->num_threads);
    for (int n = 0; n < N_QUERIES; n++)
        Py_CLEAR(st->query[n]);
    Py_CLEAR(st->forward_ad);
    Py_CLEAR(st->functional);
    Py_CLEAR(st->sdpa);
    Py_CLEAR(st->sdpa_name);
    Py_CLEAR(st->current_level);
    for (int n = 0; n < MAX_TYPES; n++)
        Py_CLEAR(st->tensor[n].type);
    Py_CLEAR(st->requires_grad);
    Py_CLEAR(st->is_neg);
    Py_CLEAR(st->grad_enabled);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, SLOT(module_exec)}, {0, NULL}};

static struct PyModuleDef module_def = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "relpos._core",
    .m_doc = "The C functions behind the package relpos. Import relpos instead.",
    .m_size = sizeof(state),
    .m_methods = methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&module_def);
}
