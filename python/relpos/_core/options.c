/* options.c -- how the keywords of a call become an rp_desc: terms, masks, numbers, precision and threads; and then the arrays of terms
 * and masks, whose sizes the terms need. A new option is a name here and in core.h, and a place in relpos/__init__.py. It knows
 * nothing of q, k and v, from which the other sizes come (calls.c).
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"
#include <math.h>

const char *const option_names[N_NAMES] = {
    [BIAS] = "bias",
    [ROPE] = "rope",
    [RELKEY] = "relkey",
    [RELVAL] = "relval",
    [SINK] = "sink",
#define RP_X(ENUM, name, meaning) [MASKS + RP_MASK_##ENUM - 1] = #name,
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
    [WANTED] = "wanted",
};

/* TypeError, with the name that is meant where relpos._hints knows it. */
static int unknown_keyword(PyObject *name)
{
    PyObject *hints = PyImport_ImportModule("relpos._hints");
    PyObject *hint = hints ? PyObject_CallMethod(hints, "meant", "(O)", name) : NULL;
    if (hint)
        PyErr_Format(PyExc_TypeError, "no argument is called \"%U\"%U", name, hint);
    Py_XDECREF(hints);
    Py_XDECREF(hint);
    return -1;
}

/* Keyword arguments into slots: the options, and the names from `first` up to `end`. */
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

/* The keyword that takes a kind of term. */
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

/* TypeError: relpos._hints says which term the object was meant for. */
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
        PyErr_Format(PyExc_TypeError, "%s: %s is given as %s=", option_names[option],
                     name_array(Py_TYPE(object), "", name), option_names[option_of(t->term.kind)]);
        return -1;
    }
    const int n = p->desc.n_terms;
    if (n == RP_MAX_TERMS) {
        PyErr_Format(PyExc_ValueError, "%s: more than %d terms", option_names[option], RP_MAX_TERMS);
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
    if (wants_gradient(object))
        return wrong_type(
            name, object,
            "it requires a gradient, and relpos.attention has none of it: use .detach(), or multiply q by it");
    *x = PyFloat_AsDouble(object);
    return *x == -1 && PyErr_Occurred() ? wrong_type(name, object, "a number is needed") : 0;
}

int read_int(PyObject *object, const char *name, int64_t *n)
{
    PyObject *index = PyNumber_Index(object);
    if (!index)
        return wrong_type(name, object, "an integer is needed");
    *n = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (*n == -1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%s does not fit in 63 bits", name);
        return -1;
    }
    return 0;
}

int read_flag(PyObject *object, const char *name, int32_t *flag)
{
    const bool other = PyUnicode_Check(object) || PyBytes_Check(object) || PyList_Check(object) ||
                       PyTuple_Check(object) ||
                       PyDict_Check(object); /* which are true but where they are empty: "False" too */
    const int truth = other ? -1 : PyObject_IsTrue(object);
    *flag = truth > 0;
    return truth < 0 ? wrong_type(name, object, "True or False is needed") : 0;
}

/* Whether a number is meant: not a bool, nor a scalar or tensor of NumPy's or torch's type bool. */
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

/* softcap_after is the cap after the biases, or True: then softcap is that cap. */
static int read_softcap_after(PyObject *object, rp_desc *d)
{
    int32_t after = 0;
    if (is_number(object))
        return read_real(object, "softcap_after", &d->softcap_after);
    if (read_flag(object, "softcap_after", &after) != 0)
        return -1;
    if (after) {
        d->softcap_after = d->softcap;
        d->softcap = 0;
    }
    return 0;
}

/* What stands for the parameters of a mask: a whole number, or a tuple of so many; None is a default. */
static int read_params(PyObject *object, const rp_mask_info *info, rp_mask *m)
{
    char needed[256] = "(";
    int count = 0;
    int64_t same;
    for (const rp_mask_param *q; (q = rp_mask_param_of(m->kind, count)) != NULL; count++) {
        strncat(needed, count ? ", " : "", sizeof needed - strlen(needed) - 1);
        strncat(needed, q->key, sizeof needed - strlen(needed) - 1);
    }
    strncat(needed, ") is needed, whole numbers; None = the default", sizeof needed - strlen(needed) - 1);
    if (count == 2 && PyLong_Check(object) && !PyBool_Check(object) && read_int(object, info->name, &same) == 0) {
        const size_t used = strlen(needed);
        snprintf(needed + used, sizeof needed - used, ". For %lld to both sides write %s=(%lld, %lld)", (long long)same,
                 info->name, (long long)same, (long long)same);
    }
    if (count > 1 && (!PySequence_Check(object) || PySequence_Size(object) != count)) {
        PyErr_Clear();
        return wrong_type(info->name, object, needed);
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

/* The mask whose option this is; RP_MASK_NONE: it is another. */
rp_mask_kind mask_of(int option)
{
    return option >= MASKS && option < SCALE ? (rp_mask_kind)(RP_MASK_NONE + 1 + option - MASKS) : RP_MASK_NONE;
}

/* An array, numbers, or True. */
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
        PyErr_Format(PyExc_ValueError, "%s: more than %d masks", info->name, RP_MAX_MASKS);
        return -1;
    }
    p->masks[n] = rp_mask_init(kind);
    p->mask[n] = info->axes ? object : NULL;
    p->desc.n_masks++;
    return info->sample ? read_params(object, info, &p->masks[n]) : 0;
}

/* What _operator.py asks of a kind of mask: (name, number of parameters, whether it has an array); None past the last. */
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

/* All but the sizes, which come from the arrays. */
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
    for (int n = BIAS; n <= SINK; n++)
        if (given(option[n]) && add_terms(p, st, option[n], n) != 0)
            return -1;
    for (int n = MASKS; n < SCALE; n++)
        if (given(option[n]) && add_mask(p, n, option[n]) != 0)
            return -1;
    if (given(option[SCALE])) {
        if (read_real(option[SCALE], "scale", &d->scale) != 0)
            return -1;
        if (!isfinite(d->scale)) { /* -inf would be RP_SCALE_AUTO */
            PyErr_Format(PyExc_ValueError, "scale is %R: -1e20 to 1e20, or None for 1/sqrt(D)", option[SCALE]);
            return -1;
        }
    }
    if (given(option[SOFTCAP]) && read_real(option[SOFTCAP], "softcap", &d->softcap) != 0)
        return -1;
    if (given(option[SOFTCAP_AFTER]) && read_softcap_after(option[SOFTCAP_AFTER], d) != 0)
        return -1;
    if (given(option[Q_OFFSET]) && PyLong_Check(option[Q_OFFSET])) {
        if (read_int(option[Q_OFFSET], "q_offset", &d->q_offset) != 0)
            return -1;
    } else if (given(option[Q_OFFSET])) {
        p->q_offset = option[Q_OFFSET];
    }
    if (given(option[DROPOUT]) && read_real(option[DROPOUT], "dropout", &d->dropout) != 0)
        return -1;
    if (given(option[SEED])) {
        PyObject *index = PyNumber_Index(option[SEED]);
        if (!index)
            return wrong_type("seed", option[SEED], "an integer is needed");
        d->seed = PyLong_AsUnsignedLongLong(index);
        Py_DECREF(index);
        if (d->seed == (uint64_t)-1 && PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "seed: 0 to 2^64-1 is needed");
            return -1;
        }
    }
    if (given(option[THREADS])) {
        if (read_int(option[THREADS], "threads", &p->threads) != 0)
            return -1;
        if (p->threads < 1 || p->threads > RP_MAX_THREADS) {
            PyErr_Format(PyExc_ValueError, "threads is %lld: 1 to %d, or None for all", (long long)p->threads,
                         RP_MAX_THREADS);
            return -1;
        }
    }
    if (given(option[PRECISION])) {
        PyObject *word = option[PRECISION];
        const bool high = PyUnicode_Check(word) && PyUnicode_CompareWithASCIIString(word, "high") == 0;
        if (!high && !(PyUnicode_Check(word) && PyUnicode_CompareWithASCIIString(word, "highest") == 0)) {
            PyErr_Format(PyExc_ValueError, "precision is %R: \"highest\" or \"high\"", word);
            return -1;
        }
        d->precision = high ? RP_PRECISION_HIGH : RP_PRECISION_HIGHEST;
    }
    return 0;
}

/* The arrays of the terms into the call, and the sizes that they tell. */
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

static int64_t whole(const rp_array *a, int64_t at)
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

/* The first of the array's whole numbers that is below `low` or above `high`, if there is one. */
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
                    *found = whole(a, w * step[0] + x * step[1] + y * step[2] + z * step[3]);
                    if (*found < low || *found > high)
                        return true;
                }
    return false;
}

/* The array of a mask, whose numbers mean what they are taken for: none is added to the scores, and no length is beyond the keys. */
static int take_mask(const problem *p, call *c, int32_t n)
{
    const rp_mask_kind kind = p->masks[n].kind;
    const char *name = rp_mask_name(kind);
    rp_array *a = &c->t.mask[n];
    int64_t found;
    PyObject *object = listed(c, p->mask[n], kind == RP_MASK_LENGTHS);
    if (!object || take_array(c, object, false, name, a, NULL) != 0)
        return -1;
    const bool flags = kind == RP_MASK_KEYS || kind == RP_MASK_PAIRS;
    const char *bias = kind == RP_MASK_KEYS ? "key_mask[:, None, None]" : name;
    if (flags && a->dtype <= RP_BF16) {
        PyErr_Format(
            PyExc_TypeError,
            "%s: dtype is %s: bool or an integer type is needed, true where a pair attends; numbers to add to the "
            "scores are a bias: bias=relpos.Dense(%s)",
            name, rp_dtype_name(a->dtype), bias);
        return -1;
    }
    const bool is_signed = a->dtype == RP_I8 || a->dtype == RP_I16 || a->dtype == RP_I32 || a->dtype == RP_I64;
    if (flags && is_signed && is_outside(a, 0, INT64_MAX, &found)) {
        PyErr_Format(PyExc_ValueError,
                     "%s has %lld: it is 0 where a pair does not attend, and another number, such as 1, where it does; "
                     "numbers to add to the scores are a bias, of floating point: bias=relpos.Dense(%s)",
                     name, (long long)found, bias);
        return -1;
    }
    if (kind == RP_MASK_LENGTHS && a->dtype > RP_BF16 && is_outside(a, 0, p->desc.len_k, &found)) {
        PyErr_Format(PyExc_ValueError, "lengths has %lld: 0 to %lld, the number of keys, are allowed", (long long)found,
                     (long long)p->desc.len_k);
        return -1;
    }
    return 0;
}

/* Return true if the queries are causal, fewer than the keys, and without a q_offset: torch takes them as the first, flash-attn as the
 * last. */
static bool lacks_place(const problem *p)
{
    bool causal = false;
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        causal = causal || p->masks[n].kind == RP_MASK_CAUSAL;
    return causal && !p->offset_given && p->desc.len_q < p->desc.len_k;
}

/* A step of decoding without its place would attend to the first key alone. */
static int check_place(const problem *p)
{
    if (p->desc.len_q != 1 || !lacks_place(p))
        return 0;
    PyErr_Format(
        PyExc_ValueError,
        "causal with one query and %lld keys: q_offset is needed, %lld where the query is the last, as in a step of "
        "decoding, 0 where it is the first",
        (long long)p->desc.len_k, (long long)p->desc.len_k - 1);
    return -1;
}

/* Warn that several queries without their place are taken as the first. 0, or -1 with an error set. */
int warn_of_place(const problem *p)
{
    const long long lq = p->desc.len_q, lk = p->desc.len_k;
    if (lq == 1 || !lacks_place(p))
        return 0;
    return PyErr_WarnFormat(PyExc_UserWarning, 2,
                            "causal with %lld queries and %lld keys: the queries are taken as the first; write "
                            "q_offset=%lld where they are the last, as in a step of decoding, q_offset=0 where they "
                            "are the first",
                            lq, lk, lk - lq);
}

/* Those of terms and masks, and the threads. */
int take_option_arrays(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS])
{
    if (take_terms(p, c, from) != 0)
        return -1;
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        if (p->mask[n] && take_mask(p, c, n) != 0)
            return -1;
    if (p->q_offset && (!(p->q_offset = listed(c, p->q_offset, false)) ||
                        take_array(c, p->q_offset, false, "q_offset", &c->t.q_offset, NULL) != 0))
        return -1;
    if (check_place(p) != 0)
        return -1;
    return take_pool(c, p->threads);
}
