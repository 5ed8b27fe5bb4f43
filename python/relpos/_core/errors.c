/* errors.c -- Python exceptions: a status and message of the library, with C field names replaced by Python arguments,
 * and wrong types.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

static PyObject *exception_of(rp_status status)
{
    return status == RP_E_NOMEM ? PyExc_MemoryError : status == RP_E_ARG ? PyExc_TypeError : PyExc_ValueError;
}

/* Write an array or parameter of a term as "T5(table)", or just "T5" if `array` is empty. Returns `text`. */
const char *name_array(PyTypeObject *type, const char *array, char text[WORD_MAX])
{
    PyObject *name = PyType_GetName(type);
    const char *utf8 = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const bool strength = utf8 && strcmp(utf8, "LogDecay") == 0 && strcmp(array, "p") == 0; /* see _terms._Strengths */
    array = strength ? "lambda" : array;
    const char *more = strcmp(array, "lambda") == 0 ? "_" : ""; /* `lambda` is a keyword of Python */
    snprintf(text, WORD_MAX, *array ? "%s(%s%s)" : "%s", utf8 ? utf8 : "term", array, more);
    Py_XDECREF(name);
    return text;
}

/* The sizes of a description: the C field, the argument of relpos.Plan, and the words for sizes taken from arrays. */
static const char *const sizes[][3] = {{"batch", "batch", "the number of batch entries"},
                                       {"heads", "heads", "the number of heads"},
                                       {"kv_heads", "kv_heads", "the number of heads of k"},
                                       {"len_q", "len_q", "the number of queries"},
                                       {"len_k", "len_k", "the number of keys"},
                                       {"dim_k", "dim", "the width of q and k"},
                                       {"dim_v", "dim_v", "the width of v"}};

/* An rp_last_error_in callback: write the Python name of a C field. Returns 0 to keep the C name. */
static int python_name(void *context, const rp_field *f, char *text, size_t size)
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
    case RP_FIELD_PAGES: return strcmp(f->name, "norms") == 0 ? snprintf(text, size, "key_norms") > 0 : 0;
    default: return 0;
    }
}

/* Raise the library's last error. `p` supplies the names of arguments and may be NULL. Returns NULL. */
void *raise_status(const problem *p, rp_status status)
{
    char text[1024];
    rp_last_error_in(p ? &p->desc : NULL, p ? python_name : NULL, (void *)(uintptr_t)p, text, sizeof text);
    const bool of_heads = strstr(text, "shape is") || strstr(text, "number of heads");
    if (p && of_heads && !p->desc.flexible && p->desc.heads > p->desc.len_q && p->desc.len_q > 1) {
        char more[128];
        snprintf(more, sizeof more,
                 "; q is read as (B, H, L, D) with H = %lld and L = %lld; if it is (B, L, H, D), add layout=\"blhd\"",
                 (long long)p->desc.heads, (long long)p->desc.len_q);
        strncat(text, more, sizeof text - strlen(text) - 1);
    }
    PyErr_SetString(exception_of(status), text);
    return NULL;
}

/* Raise the library's last error about one term, with its command-line name replaced by its class name.
 * Returns NULL. */
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

/* Raise TypeError "<name> is of type <type>: <needed>", where `needed` states what to pass. Returns -1. */
int wrong_type(const char *name, PyObject *object, const char *needed)
{
    PyErr_Clear(); /* the error of the failed attempt */
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    if (type)
        PyErr_Format(PyExc_TypeError, "%s is of type %U: %s", name, type, needed);
    Py_XDECREF(type);
    return -1;
}
