/* options.c -- convert the keywords of a call to an rp_desc (terms, masks, numbers, precision, threads), then read the
 * arrays of terms and masks. To add an option, name it here, in core.h and in relpos/__init__.py. Sizes that come from
 * q, k and v are set in calls.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"
#include <math.h>

const char *const option_names[N_NAMES] = {
    [BIAS] = "bias",
    [ROPE] = "rope",
    [RELKEY] = "relkey",
    [RELVAL] = "relval",
    [SINK] = "sink",
#define RP_X(ENUM, name, meaning) [MASKS + ENUM - 1] = #name,
#include <relpos/masks.def>
#undef RP_X
    [SCALE] = "scale",
    [SOFTCAP] = "softcap",
    [SOFTCAP_AFTER] = "softcap_after",
    [Q_OFFSET] = "q_offset",
    [DROPOUT] = "dropout",
    [SEED] = "seed",
    [THREADS] = "threads",
    [PRECISION] = "precision",
    [OUT] = "out",
    [RETURN_WEIGHTS] = "return_weights",
    [RETURN_LSE] = "return_lse",
    [SUMMARY] = "summary",
    [KEY_NORMS] = "key_norms",
    [FORWARD_OUT] = "out",
    [FORWARD_LSE] = "lse",
    [LSE_GRADIENT] = "dlse",
    [WEIGHTS_GRADIENT] = "dweights",
    [SUMMARY_GRADIENT] = "dsummary",
    [WANTED] = "wanted",
    [PER_SAMPLE] = "per_sample",
};

/* Raise TypeError for an unknown keyword, with a suggestion from relpos._hints. Returns -1. */
static int unknown_keyword(PyObject *name)
{
    PyObject *hints = PyImport_ImportModule("relpos._hints");
    PyObject *hint = hints ? PyObject_CallMethod(hints, "meant", "(O)", name) : NULL;
    if (hint)
        PyErr_Format(PyExc_TypeError, "unknown argument \"%U\"%U", name, hint);
    Py_XDECREF(hints);
    Py_XDECREF(hint);
    return -1;
}

/* Sort keyword arguments into slots. Accepts the options and the names from `first` up to `end`. Returns 0, or -1 with
 * an error set. */
int read_keywords(const state *st, PyObject *const *values, PyObject *names, int first, int end, PyObject **slot)
{
    const Py_ssize_t n = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        int at = 0;
        while (at < end && name != st->name[at] && PyUnicode_Compare(name, st->name[at]) != 0)
            at = at + 1 == N_OPTIONS ? first : at + 1;
        if (at >= end) {
            return unknown_keyword(name);
        }
        slot[at] = values[k];
    }
    return 0;
}

/* Return the keyword that accepts a kind of term. */
static int option_of(rp_term_kind kind)
{
    switch (rp_term_role(kind)) {
    case RP_ROLE_PRODUCT: return RELKEY;
    case RP_ROLE_VALUE: return RELVAL;
    case RP_ROLE_ROTATION: return ROPE;
    case RP_ROLE_SINK: return SINK;
    default: return BIAS;
    }
}

/* Raise TypeError for an object that is not a term, with a suggestion from relpos._hints. Returns -1. */
static int refuse_term(const char *name, PyObject *object)
{
    PyObject *hints = PyImport_ImportModule("relpos._hints");
    PyObject *text = hints ? PyObject_CallMethod(hints, "term_needed", "(sO)", name, object) : NULL;
    if (text)
        PyErr_SetObject(PyExc_TypeError, text);
    Py_XDECREF(hints);
    Py_XDECREF(text);
    return -1;
}

static int add_term(problem *p, const state *st, PyObject *object, int option)
{
    if (!PyObject_TypeCheck(object, st->term))
        return refuse_term(option_names[option], object);
    term *t = (term *)object;
    if (option_of(t->term.kind) != option) {
        char name[WORD_MAX];
        PyErr_Format(PyExc_TypeError, "%s: %s is not allowed here; pass it as %s=", option_names[option],
                     name_array(Py_TYPE(object), "", name), option_names[option_of(t->term.kind)]);
        return -1;
    }
    const int n = p->desc.n_terms;
    if (n == RP_MAX_TERMS) {
        PyErr_Format(PyExc_ValueError, "%s: the call has more than %d terms; use at most %d", option_names[option],
                     RP_MAX_TERMS, RP_MAX_TERMS);
        return -1;
    }
    p->terms[n] = t->term;
    p->term[n] = t;
    p->desc.n_terms++;
    return 0;
}

static int add_terms(problem *p, const state *st, PyObject *object, int option)
{
    if (!PyTuple_Check(object))
        return add_term(p, st, object, option);
    for (Py_ssize_t n = 0; n < PyTuple_Size(object); n++) /* a sum */
        if (add_term(p, st, PyTuple_GetItem(object, n), option) != 0)
            return -1;
    return 0;
}

static int read_real(PyObject *object, const char *name, double *x)
{
    if (wants_gradient(object)) {
        const bool is_scale = strcmp(name, "scale") == 0;
        return wrong_type(name, object, is_scale ? NO_GRADIENT ", or pass scale=1 and multiply q by it" : NO_GRADIENT);
    }
    *x = PyFloat_AsDouble(object);
    return *x == -1 && PyErr_Occurred() ? wrong_type(name, object, "expected a number") : 0;
}

const char *const softcap_names[N_SOFTCAPS] = {"softcap", "softcap_after"};

/* Read a softcap. A tensor has a gradient, which a call that records gradients then computes. */
static int read_softcap(call *c, PyObject *object, const char *name, double *x)
{
    PyObject *wants = PyFloat_Check(object) ? NULL : PyObject_GetAttr(object, c->st->requires_grad), *number = NULL;
    const bool learned = wants == Py_True;
    PyErr_Clear();
    Py_XDECREF(wants);
    number = learned ? PyObject_CallMethod(object, "detach", NULL) : Py_NewRef(object); /* without torch's warning */
    *x = number ? PyFloat_AsDouble(number) : -1;
    Py_XDECREF(number);
    if (*x == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        const bool array = PyObject_HasAttrString(object, "ndim");
        return wrong_type(name, object, array ? "expected one number, which all heads share" : "expected a number");
    }
    if (learned && *x == 0 && wants_gradient(object))
        return wrong_type(name, object,
                          "it requires a gradient, but 0 means no softcap, which has none; use .detach()");
    c->grad = c->grad || learned;
    return 0;
}

int read_int(PyObject *object, const char *name, int64_t *n)
{
    PyObject *index = PyNumber_Index(object);
    if (!index)
        return wrong_type(name, object, "expected an integer");
    *n = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (*n == -1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%s does not fit in 64 bits; use an integer from -2^63 to 2^63-1", name);
        return -1;
    }
    return 0;
}

int read_flag(PyObject *object, const char *name, int32_t *flag)
{
    const bool other = PyUnicode_Check(object) || PyBytes_Check(object) || PyList_Check(object) ||
                       PyTuple_Check(object) ||
                       PyDict_Check(object); /* these would be true unless empty, even "False" */
    const int truth = other ? -1 : PyObject_IsTrue(object);
    *flag = truth > 0;
    return truth < 0 ? wrong_type(name, object, "expected True or False") : 0;
}

/* Return true for a number that is not a bool (Python, NumPy or torch). */
static bool is_number(PyObject *object)
{
    if (PyBool_Check(object) || !PyObject_HasAttrString(object, "__float__"))
        return false;
    PyObject *type = PyObject_GetAttrString(object, "dtype"), *text = type ? PyObject_Str(type) : NULL;
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const bool truth = name && strstr(name, "bool");
    PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(text);
    return !truth;
}

/* Read softcap_after: either the cap after the biases, or True, which moves `softcap` after the biases. */
static int read_softcap_after(problem *p, call *c, PyObject *object)
{
    rp_desc *d = &p->desc;
    int32_t after = 0;
    if (is_number(object)) {
        p->softcap[1] = 1;
        return read_softcap(c, object, "softcap_after", &d->softcap_after);
    }
    if (read_flag(object, "softcap_after", &after) != 0)
        return -1;
    if (after) {
        d->softcap_after = d->softcap;
        d->softcap = 0;
        p->softcap[0] = p->softcap[0] < 0 ? -1 : 1;
    }
    return 0;
}

/* Append a suggestion of a pair to the message about a mask with two parameters that got a single integer n: (n, n),
 * and only for n >= 0. Integers of NumPy and torch count, bools do not. */
static void suggest_pair(PyObject *object, const char *name, int count, char *text, size_t size)
{
    const size_t used = strlen(text);
    int64_t n = -1;
    if (count == 2 && !PyBool_Check(object) && PyIndex_Check(object) && read_int(object, name, &n) == 0 && n >= 0)
        snprintf(text + used, size - used, "; for %lld on both sides use %s=(%lld, %lld)", (long long)n, name,
                 (long long)n, (long long)n);
    PyErr_Clear();
}

/* Read the parameters of a mask: an integer, or a sequence of integers if the mask has several parameters. None selects
 * a default. */
static int read_params(PyObject *object, const rp_mask_info *info, rp_mask *m)
{
    char expected[256] = "expected (";
    int count = 0;
    for (const rp_mask_param *q; (q = rp_mask_param_of(m->kind, count)) != NULL; count++) {
        strncat(expected, count ? ", " : "", sizeof expected - strlen(expected) - 1);
        strncat(expected, q->key, sizeof expected - strlen(expected) - 1);
    }
    strncat(expected, "), integers or None", sizeof expected - strlen(expected) - 1);
    if (count > 1 && (!PySequence_Check(object) || PySequence_Size(object) != count)) {
        PyErr_Clear();
        suggest_pair(object, info->name, count, expected, sizeof expected);
        return wrong_type(info->name, object, expected);
    }
    for (int n = 0; n < count; n++) {
        const rp_mask_param *q = rp_mask_param_of(m->kind, n);
        int64_t value = q->value;
        PyObject *item = count > 1 ? PySequence_GetItem(object, n) : Py_NewRef(object);
        const int failed = !item || (item != Py_None && read_int(item, info->name, &value) != 0);
        Py_XDECREF(item);
        if (failed)
            return -1;
        rp_mask_set(m, q, value);
    }
    return 0;
}

/* Return the kind of mask that an option selects, or RP_MASK_NONE for other options. */
rp_mask_kind mask_of(int option)
{
    return option >= MASKS && option < SCALE ? (rp_mask_kind)(RP_MASK_NONE + 1 + option - MASKS) : RP_MASK_NONE;
}

/* Add the mask of an option: an array, integer parameters, or a flag. Returns 0, or -1 with an error set. */
static int add_mask(problem *p, int option, PyObject *object)
{
    const rp_mask_kind kind = mask_of(option);
    const rp_mask_info *info = rp_mask_info_of(kind);
    const int32_t n = p->desc.n_masks;
    int32_t flag = 1;
    if (!info->axes && !info->sample && read_flag(object, info->name, &flag) != 0)
        return -1;
    if (!flag)
        return 0;
    if (n == RP_MAX_MASKS) {
        PyErr_Format(PyExc_ValueError, "%s: the call has more than %d masks; combine some in mask=", info->name,
                     RP_MAX_MASKS);
        return -1;
    }
    p->masks[n] = rp_mask_init(kind);
    p->mask[n] = info->axes ? object : NULL;
    p->desc.n_masks++;
    return info->sample ? read_params(object, info, &p->masks[n]) : 0;
}

/* Return (name, number of parameters, has an array) of a kind of mask for _operator.py, or None after the last kind. */
PyObject *core_mask_info(PyObject *module, PyObject *object)
{
    (void)module;
    const int kind = (int)PyLong_AsLong(object);
    if (PyErr_Occurred())
        return NULL;
    const rp_mask_info *info = rp_mask_info_of((rp_mask_kind)kind);
    int count = 0;
    if (!info)
        Py_RETURN_NONE;
    while (rp_mask_param_of((rp_mask_kind)kind, count))
        count++;
    return Py_BuildValue("(siN)", info->name, count, PyBool_FromLong(info->axes != NULL));
}

static int read_scale(PyObject *object, double *scale)
{
    if (read_real(object, "scale", scale) != 0)
        return -1;
    if (isfinite(*scale))
        return 0;
    /* -inf would select RP_SCALE_AUTO */
    PyErr_Format(PyExc_ValueError, "scale is %R, expected -1e20 to 1e20, or None for 1/sqrt(D)", object);
    return -1;
}

static int read_seed(PyObject *object, uint64_t *seed)
{
    PyObject *index = PyNumber_Index(object);
    if (!index)
        return wrong_type("seed", object, "expected an integer");
    *seed = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (*seed != (uint64_t)-1 || !PyErr_Occurred())
        return 0;
    PyErr_Format(PyExc_ValueError, "seed is %R, expected 0 to 2^64-1", object);
    return -1;
}

static int read_threads(PyObject *object, int64_t *threads)
{
    if (read_int(object, "threads", threads) != 0)
        return -1;
    if (*threads >= 1 && *threads <= RP_MAX_THREADS)
        return 0;
    PyErr_Format(PyExc_ValueError, "threads is %lld, expected 1 to %d, or None for all", (long long)*threads,
                 RP_MAX_THREADS);
    return -1;
}

static int read_precision(PyObject *object, rp_precision *precision)
{
    if (!PyUnicode_Check(object))
        return wrong_type("precision", object, "expected \"highest\" or \"high\"");
    const bool high = PyUnicode_CompareWithASCIIString(object, "high") == 0;
    if (!high && PyUnicode_CompareWithASCIIString(object, "highest") != 0) {
        PyErr_Format(PyExc_ValueError, "precision is %R, expected \"highest\" or \"high\"", object);
        return -1;
    }
    *precision = high ? RP_PRECISION_HIGH : RP_PRECISION_HIGHEST;
    return 0;
}

/* Read all options into the description, except the sizes, which come from the arrays. Returns 0, or -1 with an error
 * set. */
int read_options(problem *p, call *c, PyObject *const *option)
{
    const state *st = c->st;
    rp_desc *d = &p->desc;
    *d = rp_desc_init(0, 1, 0, 0, 1);
    d->terms = p->terms;
    d->masks = p->masks;
    p->q_offset = NULL;
    p->offset_given = given(option[Q_OFFSET]);
    p->threads = 0;
    for (int n = SCALE; n < OUT; n++)
        if (given(option[n]) && note_number(c, option[n], option_names[n]) != 0)
            return -1;
    for (int n = BIAS; n <= SINK; n++)
        if (given(option[n]) && add_terms(p, st, option[n], n) != 0)
            return -1;
    for (int n = MASKS; n < SCALE; n++)
        if (given(option[n]) && add_mask(p, n, option[n]) != 0)
            return -1;
    if (given(option[SCALE]) && read_scale(option[SCALE], &d->scale) != 0)
        return -1;
    p->softcap[0] = given(option[SOFTCAP]) ? 0 : -1;
    p->softcap[1] = -1;
    if (given(option[SOFTCAP]) && read_softcap(c, option[SOFTCAP], "softcap", &d->softcap) != 0)
        return -1;
    if (given(option[SOFTCAP_AFTER]) && read_softcap_after(p, c, option[SOFTCAP_AFTER]) != 0)
        return -1;
    if (given(option[Q_OFFSET]) && PyLong_Check(option[Q_OFFSET])) {
        if (read_int(option[Q_OFFSET], "q_offset", &d->q_offset) != 0)
            return -1;
    } else if (given(option[Q_OFFSET])) {
        p->q_offset = option[Q_OFFSET];
    }
    if (given(option[DROPOUT]) && read_real(option[DROPOUT], "dropout", &d->dropout) != 0)
        return -1;
    if (given(option[SEED]) && read_seed(option[SEED], &d->seed) != 0)
        return -1;
    if (given(option[THREADS]) && read_threads(option[THREADS], &p->threads) != 0)
        return -1;
    if (given(option[PRECISION]) && read_precision(option[PRECISION], &d->precision) != 0)
        return -1;
    return 0;
}

/* Read the arrays of the terms, and set the parameters that are sizes of arrays. `from` receives their origins unless
 * NULL. */
int take_terms(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS])
{
    char name[WORD_MAX];
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        rp_array *a = c->t.term[n];
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            PyObject *object = PyTuple_GetItem(p->term[n]->arrays, x);
            if (!object)
                return -1;
            if (object == Py_None)
                continue;
            name_array(Py_TYPE((PyObject *)p->term[n]), rp_term_array(p->terms[n].kind, x), name);
            if (take_array(c, object, false, name, &a[x], from ? &from[n][x] : NULL) != 0)
                return -1;
        }
        const rp_status status = rp_term_sizes(&p->terms[n], a);
        if (status != RP_OK)
            return raise_of_term(Py_TYPE((PyObject *)p->term[n]), p->terms[n].kind), -1;
    }
    return 0;
}

/* Return an element of an integer array, clamped to INT64_MAX. */
static int64_t read_integer(const rp_array *a, int64_t at)
{
    switch (a->dtype) {
    case RP_I8: return ((const int8_t *)a->data)[at];
    case RP_I16: return ((const int16_t *)a->data)[at];
    case RP_I32: return ((const int32_t *)a->data)[at];
    case RP_I64: return ((const int64_t *)a->data)[at];
    case RP_U8:
    case RP_BOOL: return ((const uint8_t *)a->data)[at];
    case RP_U16: return ((const uint16_t *)a->data)[at];
    case RP_U32: return ((const uint32_t *)a->data)[at];
    default: return ((const uint64_t *)a->data)[at] > INT64_MAX ? INT64_MAX : (int64_t)((const uint64_t *)a->data)[at];
    }
}

/* Find the first integer of the array below `low` or above `high`. Returns true and sets *found if there is one. */
static bool is_outside(const rp_array *a, int64_t low, int64_t high, int64_t *found)
{
    int64_t n[RP_MAX_AXES] = {1, 1, 1, 1}, step[RP_MAX_AXES] = {0};
    for (int32_t x = 0; x < a->ndim; x++) {
        n[x] = a->shape[x] > 0 && a->stride[x] == 0 ? 1 : a->shape[x];
        step[x] = a->stride[x];
    }
    for (int64_t w = 0; w < n[0]; w++)
        for (int64_t x = 0; x < n[1]; x++)
            for (int64_t y = 0; y < n[2]; y++)
                for (int64_t z = 0; z < n[3]; z++) {
                    *found = read_integer(a, w * step[0] + x * step[1] + y * step[2] + z * step[3]);
                    if (*found < low || *found > high)
                        return true;
                }
    return false;
}

/* Read the array of mask n. Refuse numbers meant to be added to the scores, and lengths outside 0 to the number of
 * keys. */
static int take_mask(const problem *p, call *c, int32_t n)
{
    const rp_mask_kind kind = p->masks[n].kind;
    const char *name = rp_mask_name(kind);
    rp_array *a = &c->t.mask[n];
    int64_t found;
    PyObject *object = as_array(c, p->mask[n], name, kind == RP_MASK_LENGTHS);
    if (!object || take_array(c, object, false, name, a, NULL) != 0)
        return -1;
    const bool flags = kind == RP_MASK_KEYS || kind == RP_MASK_PAIRS;
    const char *bias = kind == RP_MASK_KEYS ? "key_mask[:, None, None]" : name;
    if (flags && a->dtype <= RP_BF16) {
        PyErr_Format(
            PyExc_TypeError,
            "%s has elements of %s, expected bool or integers that are nonzero for pairs that attend; to add numbers "
            "to the scores use bias=relpos.Dense(%s)",
            name, rp_dtype_name(a->dtype), bias);
        return -1;
    }
    const bool is_signed = a->dtype == RP_I8 || a->dtype == RP_I16 || a->dtype == RP_I32 || a->dtype == RP_I64;
    if (flags && is_signed && is_outside(a, 0, INT64_MAX, &found)) {
        PyErr_Format(PyExc_ValueError,
                     "%s contains %lld, expected 0 for hidden pairs and a positive integer for pairs that attend; to "
                     "add numbers to the scores use floating point and bias=relpos.Dense(%s)",
                     name, (long long)found, bias);
        return -1;
    }
    if (kind == RP_MASK_LENGTHS && a->dtype > RP_BF16 && is_outside(a, 0, p->desc.len_k, &found)) {
        PyErr_Format(PyExc_ValueError, "lengths contains %lld, expected 0 to %lld, the number of keys",
                     (long long)found, (long long)p->desc.len_k);
        return -1;
    }
    return 0;
}

/* Return true if the call is causal, has fewer queries than keys, and no q_offset. torch then aligns the queries with
 * the first keys, flash-attn with the last. */
static bool lacks_q_offset(const problem *p)
{
    bool causal = false;
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        causal = causal || p->masks[n].kind == RP_MASK_CAUSAL;
    return causal && !p->offset_given && p->desc.len_q < p->desc.len_k;
}

/* Refuse a causal call of one query without q_offset: a decoding step would attend only to the first key. */
static int check_q_offset(const problem *p)
{
    if (p->desc.len_q != 1 || !lacks_q_offset(p))
        return 0;
    PyErr_Format(
        PyExc_ValueError,
        "causal=True with one query and %lld keys; pass q_offset=%lld if the query is the last token, as in a decoding "
        "step, or q_offset=0 if it is the first",
        (long long)p->desc.len_k, (long long)p->desc.len_k - 1);
    return -1;
}

/* Warn if several causal queries without q_offset are aligned with the first keys. Returns 0, or -1 with an error
 * set. */
int warn_about_q_offset(const problem *p)
{
    const long long lq = p->desc.len_q, lk = p->desc.len_k;
    if (lq == 1 || !lacks_q_offset(p))
        return 0;
    return PyErr_WarnFormat(PyExc_UserWarning, 2,
                            "causal=True with %lld queries and %lld keys aligns the queries with the first keys; pass "
                            "q_offset=%lld if they are the last tokens, as in a decoding step, or q_offset=0 if they "
                            "are the first",
                            lq, lk, lk - lq);
}

/* Read the arrays of terms and masks, and q_offset, and choose the threads. Returns 0, or -1 with an error set. */
int take_option_arrays(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS])
{
    if (take_terms(p, c, from) != 0)
        return -1;
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        if (p->mask[n] && take_mask(p, c, n) != 0)
            return -1;
    if (p->q_offset && (!(p->q_offset = as_array(c, p->q_offset, "q_offset", false)) ||
                        take_array(c, p->q_offset, false, "q_offset", &c->t.q_offset, NULL) != 0))
        return -1;
    if (check_q_offset(p) != 0)
        return -1;
    return take_pool(c, p->threads);
}
