/* errors.c -- what a refusal becomes in Python: the library's status and text in the words of the caller, and arguments of a wrong
 * type. It knows no array and no call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

static PyObject *exception_of(rp_status status)
{
    return status == RP_E_NOMEM ? PyExc_MemoryError : status == RP_E_ARG ? PyExc_TypeError : PyExc_ValueError;
}

/* "T5(table)": an array or a parameter as the argument of its class; "T5" without. */
const char *name_array(PyTypeObject *type, const char *array, char text[WORD_MAX])
{
    PyObject *name = PyType_GetName(type);
    const char *utf8 = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const char *more = strcmp(array, "lambda") == 0 ? "_" : ""; /* a word of Python's own */
    snprintf(text, WORD_MAX, *array ? "%s(%s%s)" : "%s", utf8 ? utf8 : "term", array, more);
    Py_XDECREF(name);
    return text;
}

/* The sizes of a description: arguments of relpos.Plan, and elsewhere told by the arrays. */
static const char *const sizes[][3] = {{"batch", "batch", "the number of batch entries"},
                                       {"heads", "heads", "the number of heads"},
                                       {"kv_heads", "kv_heads", "the number of heads of k"},
                                       {"len_q", "len_q", "the number of queries"},
                                       {"len_k", "len_k", "the number of keys"},
                                       {"dim_k", "dim", "the width of q and k"},
                                       {"dim_v", "dim_v", "the width of v"}};

static int word(void *context, const rp_field *f, char *text, size_t size)
{
    const problem *p = context;
    char name[WORD_MAX];
    switch (f->of) {
    case RP_FIELD_TERM:
    case RP_FIELD_TERM_ARRAY:
        snprintf(text, size, "%s", name_array(Py_TYPE((PyObject *)p->term[f->index]), f->name, name));
        return 1;
    case RP_FIELD_MASK: snprintf(text, size, "%s%s%s", f->kind, *f->name ? ": " : "", f->name); return 1;
    case RP_FIELD_DESC:
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            if (strcmp(f->name, sizes[n][0]) == 0)
                return snprintf(text, size, "%s", sizes[n][p->desc.flexible ? 1 : 2]) > 0;
        return 0;
    default: return 0; /* by its name */
    }
}

/* The library's last error as an exception; p may be NULL. */
void *raise_status(const problem *p, rp_status status)
{
    char text[1024];
    rp_last_error_in(p ? &p->desc : NULL, p ? word : NULL, (void *)(uintptr_t)p, text, sizeof text);
    const bool of_heads = strstr(text, "shape is") || strstr(text, "number of heads");
    if (p && of_heads && !p->desc.flexible && p->desc.heads > p->desc.len_q && p->desc.len_q > 1) {
        char more[128];
        snprintf(more, sizeof more,
                 "; q is taken as (B, H, L, D) with H = %lld and L = %lld: is it (B, L, H, D), layout=\"blhd\"?",
                 (long long)p->desc.heads, (long long)p->desc.len_q);
        strncat(text, more, sizeof text - strlen(text) - 1);
    }
    PyErr_SetString(exception_of(status), text);
    return NULL;
}

/* The same where a term alone was refused: what begins with its name on the command line begins with its class. */
void *raise_of_term(PyTypeObject *type, rp_term_kind kind)
{
    char text[1024], name[WORD_MAX];
    const char *known = rp_term_name(kind);
    const size_t n = known ? strlen(known) : 0;
    rp_last_error_in(NULL, NULL, NULL, text, sizeof text);
    if (n > 0 && strncmp(text, known, n) == 0 && text[n] == ':')
        PyErr_Format(PyExc_ValueError, "%s%s", name_array(type, "", name), text + n);
    else
        PyErr_SetString(PyExc_ValueError, text);
    return NULL;
}

/* TypeError: "<name> is of type <type>: <what is needed>". */
int wrong_type(const char *name, PyObject *object, const char *needed)
{
    PyErr_Clear(); /* of the attempt that failed */
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    if (type)
        PyErr_Format(PyExc_TypeError, "%s is of type %U: %s", name, type, needed);
    Py_XDECREF(type);
    return -1;
}
