/* arrays.c -- arrays in and out. take_array views an array of NumPy, torch or another library as an rp_array without a
 * copy; make_array allocates an output with the library that q came from; a call keeps the references and buffers it
 * needs until it ends. Independent of options, terms and plans. An array arrives in one of three ways:
 *
 *     BUFFER    the buffer protocol: NumPy and others. NumPy exports no buffer of bfloat16; it is read as uint16.
 *     EXCHANGE  the table of functions of a torch tensor type (dlpack.h). Such a view keeps no reference to the memory,
 *               so check_addresses checks the address again before the library computes.
 *     CAPSULE   __dlpack__(), for torch versions without that table. Other libraries are read by __dlpack__() too, but
 *               count as BUFFER: their results are NumPy arrays.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

void call_start(call *c, state *st, bool check_torch)
{
    c->st = st;
    c->n_buffers = c->n_objects = c->n_views = 0;
    c->torch = c->grad = c->check_autocast = c->eager = c->foreign = c->raised = false;
    c->check_torch = check_torch;
    c->redirect = NULL;
    c->pages = NULL;
    c->progress = NULL;
    c->next = 0;
    c->t = rp_tensors_init();
}

void call_end(call *c)
{
    while (c->n_buffers > 0)
        PyBuffer_Release(&c->buffer[--c->n_buffers]);
    while (c->n_objects > 0)
        Py_DECREF(c->object[--c->n_objects]);
    PyMem_Free(c->pages);
}

static int too_many_arrays(void)
{
    PyErr_SetString(PyExc_ValueError, "too many arrays in one call; use fewer terms");
    return -1;
}

/* Keep an object until the call ends. Steals the reference to it. */
int keep(call *c, PyObject *object)
{
    if (!object)
        return -1;
    if (c->n_objects == MAX_KEPT) {
        Py_DECREF(object);
        return too_many_arrays();
    }
    c->object[c->n_objects++] = object;
    return 0;
}

static PyObject *call_numpy(const char *name, PyObject *object)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *made = numpy ? PyObject_CallMethod(numpy, name, "(O)", object) : NULL;
    Py_XDECREF(numpy);
    return made;
}

const char *const dtype_words[] = {"float32", "float64", "float16", "bfloat16"};

static const char empty_place[8]; /* the address of arrays without elements */

/* Return the rp_dtype of a format of the buffer protocol, or -1 if the library does not read it. */
static int dtype_of_format(const char *format, Py_ssize_t size)
{
    const rp_dtype whole[2][4] = {{RP_U8, RP_U16, RP_U32, RP_U64}, {RP_I8, RP_I16, RP_I32, RP_I64}};
    if (!format)
        return RP_U8;
    if (*format == '@' || *format == '=' || *format == '<') /* all supported machines are little-endian */
        format++;
    if (!format[0] || format[1])
        return -1;
    switch (*format) {
    case 'f': return RP_F32;
    case 'd': return RP_F64;
    case 'e': return RP_F16;
    case '?': return RP_BOOL;
    default: break;
    }
    const bool is_signed = strchr("bhilqn", *format) != NULL;
    if (!is_signed && !strchr("BHILQN", *format))
        return -1;
    for (int n = 0; n < 4; n++)
        if (size == (Py_ssize_t)1 << n)
            return (int)whole[is_signed][n];
    return -1;
}

static int dtype_of_dl(dl_type type)
{
    static const struct {
        uint8_t code, bits;
        rp_dtype dtype;
    } types[] = {{DL_FLOAT, 32, RP_F32}, {DL_FLOAT, 64, RP_F64}, {DL_FLOAT, 16, RP_F16}, {DL_BFLOAT, 16, RP_BF16},
                 {DL_BOOL, 8, RP_BOOL},  {DL_UINT, 8, RP_U8},    {DL_INT, 8, RP_I8},     {DL_UINT, 16, RP_U16},
                 {DL_INT, 16, RP_I16},   {DL_UINT, 32, RP_U32},  {DL_INT, 32, RP_I32},   {DL_UINT, 64, RP_U64},
                 {DL_INT, 64, RP_I64}};
    for (size_t n = 0; n < sizeof types / sizeof *types && type.lanes == 1; n++)
        if (types[n].code == type.code && types[n].bits == type.bits)
            return (int)types[n].dtype;
    return -1;
}

static dl_type dl_of_dtype(rp_dtype dtype)
{
    return (dl_type){
        .code = dtype == RP_BF16 ? DL_BFLOAT : DL_FLOAT, .bits = (uint8_t)(8 * rp_dtype_size(dtype)), .lanes = 1};
}

/* Raise for elements that relpos does not read, of the given type: a name, or a format of the buffer protocol. */
static int raise_elements(const char *name, const char *type)
{
    const bool is_complex = strncmp(type, "complex", 7) == 0, is_small = strncmp(type, "float8", 6) == 0;
    PyErr_Format(PyExc_TypeError,
                 "%s has elements of %s; convert them to float32, float64, float16, bfloat16, bool or integers%s", name,
                 type,
                 is_complex ? " (relpos computes with real numbers: pass the real part, or both parts as channels)"
                 : is_small ? ", as in x.to(torch.float32), and multiply them by their scale if there is one"
                            : "");
    return -1;
}

static int raise_dl_elements(const char *name, dl_type type)
{
    static const char *const small[] = {"float8_e3m4",     "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
                                        "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",    "float8_e8m0fnu"};
    enum { COMPLEX = 5, FIRST_SMALL = 7, LAST_SMALL = 14 }; /* codes of DLPack */
    char text[48];
    if (type.code >= FIRST_SMALL && type.code <= LAST_SMALL)
        snprintf(text, sizeof text, "%s", small[type.code - FIRST_SMALL]);
    else if (type.code == COMPLEX)
        snprintf(text, sizeof text, "complex%d", (int)type.bits);
    else
        snprintf(text, sizeof text, "DLPack type %d with %d bits", (int)type.code, (int)type.bits);
    return raise_elements(name, text);
}

static int too_many_axes(const char *name, int ndim)
{
    PyErr_Format(PyExc_ValueError, "%s has %d axes, expected 0 to %d", name, ndim, RP_MAX_AXES);
    return -1;
}

static int view_buffer(rp_array *a, const Py_buffer *b, int dtype, const char *name)
{
    if (dtype < 0) {
        char format[48];
        snprintf(format, sizeof format, "format \"%.30s\"", b->format);
        return raise_elements(name, strcmp(b->format, "Zd") == 0   ? "complex128"
                                    : strcmp(b->format, "Zf") == 0 ? "complex64"
                                                                   : format);
    }
    if (b->ndim > RP_MAX_AXES)
        return too_many_axes(name, b->ndim);
    int64_t shape[RP_MAX_AXES];
    for (int x = 0; x < b->ndim; x++)
        shape[x] = b->shape[x];
    *a = rp_array_of(b->buf ? b->buf : empty_place, (rp_dtype)dtype, b->ndim, shape);
    for (int x = 0; b->strides && x < b->ndim; x++) { /* ctypes passes no strides */
        if (b->shape[x] > 1 && b->strides[x] % b->itemsize != 0) {
            PyErr_Format(PyExc_ValueError,
                         "%s: the stride of axis %d is %zd bytes, not a multiple of the element size, %zd; pass a copy",
                         name, x, b->strides[x], b->itemsize);
            return -1;
        }
        a->stride[x] = b->strides[x] / b->itemsize;
    }
    return 0;
}

static int view_dl(rp_array *a, const dl_tensor *d, const char *name)
{
    const int dtype = dtype_of_dl(d->dtype);
    if (d->device.type != DL_CPU && d->device.type != DL_CUDA_HOST) {
        PyErr_Format(PyExc_ValueError,
                     "%s is not on the CPU (DLPack device type %d); relpos computes on the CPU, so pass %s.cpu()", name,
                     (int)d->device.type, name);
        return -1;
    }
    if (dtype < 0)
        return raise_dl_elements(name, d->dtype);
    if (d->ndim > RP_MAX_AXES)
        return too_many_axes(name, d->ndim);
    bool empty = false;
    for (int32_t x = 0; x < d->ndim; x++)
        empty |= d->shape[x] == 0;
    if (!d->data && !empty) {
        PyErr_Format(PyExc_ValueError,
                     "%s has no memory: its storage was freed, or it is a placeholder; pass a tensor with data", name);
        return -1;
    }
    *a = rp_array_of(d->data ? (char *)d->data + d->byte_offset : empty_place, (rp_dtype)dtype, d->ndim, d->shape);
    for (int32_t x = 0; d->strides && x < d->ndim; x++)
        a->stride[x] = d->strides[x];
    return 0;
}

/* Set the error for an object that supports buffers but refused this one. Returns -1. */
static int raise_no_buffer(PyObject *object, bool writable, const char *name)
{
    Py_buffer b;
    PyErr_Clear();
    if (writable && PyObject_GetBuffer(object, &b, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
        PyBuffer_Release(&b);
        PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
        if (type)
            PyErr_Format(PyExc_ValueError, "%s is read-only (%U); pass a writable array", name, type);
        Py_XDECREF(type);
        return -1;
    }
    PyErr_Clear();
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    if (!dtype)
        return wrong_type(name, object, "expected a NumPy array or a torch tensor");
    PyErr_Format(PyExc_TypeError,
                 "%s has elements of dtype %S; convert them to float32, float64, float16, bfloat16, bool or integers",
                 name, dtype);
    Py_DECREF(dtype);
    return -1;
}

/* View an object through the buffer protocol. Returns 0, -1 with our error set, or 1 with the object's error set if it
 * refuses. */
static int take_buffer(call *c, PyObject *object, bool writable, int dtype, rp_array *a, const char *name)
{
    if (c->n_buffers == MAX_KEPT)
        return too_many_arrays();
    Py_buffer *b = &c->buffer[c->n_buffers];
    if (PyObject_GetBuffer(object, b, PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) != 0)
        return 1;
    c->n_buffers++;
    return view_buffer(a, b, dtype >= 0 ? dtype : dtype_of_format(b->format, b->itemsize), name);
}

/* Return true if an array's dtype is bfloat16 in native byte order. Clears an AttributeError; any other error stays
 * set. */
static bool is_bfloat16(PyObject *object)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *word = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
    PyObject *native = word ? PyObject_GetAttrString(dtype, "isnative") : NULL;
    const bool is =
        native == Py_True && PyUnicode_Check(word) && PyUnicode_CompareWithASCIIString(word, "bfloat16") == 0;
    Py_XDECREF(dtype);
    Py_XDECREF(word);
    Py_XDECREF(native);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return is;
}

/* View a bfloat16 array as uint16, because NumPy exports no buffer of bfloat16. */
static int take_bfloat16(call *c, PyObject *object, bool writable, rp_array *a, const char *name)
{
    PyErr_Clear();
    if (!is_bfloat16(object))
        return PyErr_Occurred() ? -1 : raise_no_buffer(object, writable, name);
    PyObject *view = PyObject_CallMethod(object, "view", "s", "uint16");
    if (keep(c, view) != 0)
        return -1;
    const int failed = take_buffer(c, view, writable, RP_BF16, a, name);
    return failed > 0 ? raise_no_buffer(view, writable, name) : failed;
}

/* Return the exchange API of a type and cache it for later calls. Returns NULL, without an error, if there is none. */
static const dl_exchange *exchange_of(call *c, PyObject *type)
{
    state *st = c->st;
    for (int n = 0; n < MAX_TYPES; n++)
        if (st->tensor[n].type == type) {
            c->foreign = c->foreign || st->tensor[n].own;
            return st->tensor[n].exchange;
        }
    c->foreign = true;
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    const dl_exchange *e = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        e = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule);
    while (e && e->header.version.major != 1)
        e = (const dl_exchange *)e->header.previous;
    if (!e || !e->view || dispatches(type))
        return NULL;
    const int n = st->next_tensor;
    PyObject *before = st->tensor[n].type;
    st->tensor[n].type = Py_NewRef(type);
    st->tensor[n].exchange = e;
    st->tensor[n].own = !is_of_torch(type);
    st->next_tensor = (n + 1) % MAX_TYPES;
    Py_XDECREF(before);
    return e;
}

/* Replace torch's error about a tensor without a view by ours, which quotes its first line. Returns -1. */
static int raise_no_view(const char *name)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL, *lines = text ? PyUnicode_Splitlines(text, 0) : NULL;
    PyObject *first = lines ? PyList_GetItem(lines, 0) : NULL;
    PyErr_Clear();
    if (first)
        PyErr_Format(PyExc_ValueError, "%s has no memory that relpos can read; pass a dense tensor on the CPU (%U)",
                     name, first);
    else
        PyErr_Format(PyExc_ValueError, "%s has no memory that relpos can read; pass a dense tensor on the CPU", name);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(text);
    Py_XDECREF(lines);
    return -1;
}

/* Redirect a call with a tensor on the meta device, which has only a shape, to the torch operator, which computes
 * shapes. */
static void redirect_meta(call *c, PyObject *object)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *meta = PyObject_GetAttrString(object, "is_meta");
    if (meta == Py_True)
        c->redirect = &by_operator;
    PyErr_Clear();
    Py_XDECREF(meta);
    PyErr_Restore(type, value, trace);
}

/* PyObject_HasAttr that preserves a pending exception. */
static bool has_attr(PyObject *object, PyObject *attribute)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    const bool has = PyObject_HasAttr(object, attribute);
    PyErr_Restore(type, value, trace);
    return has;
}

static int take_capsule(call *c, PyObject *object, rp_array *a, const char *name)
{
    PyObject *source =
        PyObject_HasAttrString(object, "detach") ? PyObject_CallMethod(object, "detach", NULL) : Py_NewRef(object);
    PyObject *capsule = source ? PyObject_CallMethod(source, "__dlpack__", NULL) : NULL;
    Py_XDECREF(source);
    if (!capsule && has_attr(object, c->st->requires_grad)) /* a torch tensor */
        return raise_no_view(name);
    if (keep(c, capsule) != 0)
        return -1;
    const dl_managed *m = PyCapsule_GetPointer(
        capsule, "dltensor"); /* freed by the capsule, since it is never renamed to "used_dltensor" */
    return m ? view_dl(a, &m->tensor, name) : -1;
}

static int add_view(call *c, PyObject *object, const dl_exchange *e, const void *data)
{
    if (c->n_views == MAX_KEPT)
        return too_many_arrays();
    c->view[c->n_views].object = object;
    c->view[c->n_views].exchange = e;
    c->view[c->n_views++].data = data;
    return 0;
}

/* Check that every viewed tensor still has the same address. Call this after the last foreign code and before
 * computing. */
int check_addresses(const call *c)
{
    for (int n = 0; c->foreign && n < c->n_views; n++) {
        const void *now = NULL;
        if (c->view[n].exchange) {
            dl_tensor d;
            if (c->view[n].exchange->view(c->view[n].object, &d) != 0)
                return raise_no_view("a tensor of the call");
            now = d.data ? (const char *)d.data + d.byte_offset : NULL;
        } else { /* a torch without the exchange API */
            PyObject *at = PyObject_CallMethod(c->view[n].object, "data_ptr", NULL);
            now = at ? PyLong_AsVoidPtr(at) : NULL;
            Py_XDECREF(at);
            if (PyErr_Occurred())
                return -1;
        }
        if ((now ? now : empty_place) != c->view[n].data) {
            PyErr_SetString(PyExc_RuntimeError,
                            "the memory of a tensor changed while another argument was read; do not resize a tensor "
                            "during the call");
            return -1;
        }
    }
    return 0;
}

/* Refuse types whose memory is not the whole value: numpy.ma arrays carry a separate mask, and some torch types
 * represent a bias without storing it. Returns 0, or -1 with an error set. */
static int refuse_partial(PyObject *object, const char *name)
{
    PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
    const bool text = module && PyUnicode_Check(module);
    const bool stands = text && (PyUnicode_CompareWithASCIIString(module, "torch.nn.attention.bias") == 0 ||
                                 PyUnicode_CompareWithASCIIString(module, "relpos.hf") == 0);
    PyErr_Clear();
    Py_XDECREF(module);
    if (stands)
        return wrong_type(name, object,
                          "it represents a mask without storing it; use the options of relpos.attention, such as "
                          "causal=True, with q_offset=Lk - Lq for causal_lower_right");
    if (PyObject_CheckBuffer(object) && PyObject_HasAttrString(object, "filled") &&
        PyObject_HasAttrString(object, "mask"))
        return wrong_type(name, object,
                          "relpos does not read its mask; pass .filled() for the values, and key_mask= or mask= for "
                          "the mask");
    return 0;
}

/* View an array as *a without a copy. Stores its origin in *o unless o is NULL. */
int take_array(call *c, PyObject *object, bool writable, const char *name, rp_array *a, origin *o)
{
    const dl_exchange *e = NULL;
    way from = BUFFER;
    int failed;
    if (PyObject_CheckBuffer(object)) {
        c->foreign = c->foreign || (PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_HEAPTYPE) != 0;
        if (c->foreign && refuse_partial(object, name) != 0)
            return -1;
        failed = take_buffer(c, object, writable, -1, a, name);
        if (failed > 0)
            failed = take_bfloat16(c, object, writable, a, name);
    } else if ((e = exchange_of(c, (PyObject *)Py_TYPE(object)))) {
        dl_tensor d;
        from = EXCHANGE;
        failed = (c->foreign && refuse_partial(object, name) != 0) || note_torch(c, object, name) < 0 ||
                 (e->view(object, &d) != 0 && (redirect_meta(c, object), raise_no_view(name))) ||
                 view_dl(a, &d, name) != 0 || add_view(c, object, e, a->data) != 0;
    } else if (dispatches((PyObject *)Py_TYPE(object))) {
        c->redirect = &by_operator;
        return wrong_type(name, object, "only relpos.attention accepts tensors without memory; pass plain tensors");
    } else if (PyObject_HasAttrString(object, "__dlpack__")) {
        c->foreign = true;
        const int torch = note_torch(c, object, name);
        from = torch ? CAPSULE : BUFFER; /* libraries other than torch get NumPy results */
        failed =
            torch < 0 || take_capsule(c, object, a, name) != 0 || (torch && add_view(c, object, NULL, a->data) != 0);
    } else {
        return wrong_type(name, object, "expected a NumPy array or a torch tensor");
    }
    if (o)
        *o = (origin){object, from, e};
    return failed ? -1 : 0;
}

/* Take an array as take_array does, for q, k, v and gradients, whose last axis the library expects to be contiguous. If
 * it is not, use a contiguous copy, which the call keeps. For k, a contiguous axis of keys also works. */
int take_rows(call *c, PyObject *object, const char *name, rp_array *a, origin *o)
{
    origin from;
    if (take_array(c, object, false, name, a, &from) != 0)
        return -1;
    if (o)
        *o = from;
    if (a->ndim < 1 || a->shape[a->ndim - 1] < 2 || a->stride[a->ndim - 1] == 1)
        return 0;
    if (strcmp(name, "k") == 0 && a->ndim >= 2 && a->stride[a->ndim - 2] == 1)
        return 0;
    PyObject *copy =
        from.way == BUFFER ? call_numpy("ascontiguousarray", object) : PyObject_CallMethod(object, "contiguous", NULL);
    c->foreign = true;
    return keep(c, copy) != 0 ? -1 : take_array(c, copy, false, name, a, NULL);
}

/* Convert a list or tuple of integers or flags (and a single int if `number` is set) to a NumPy array, which the call
 * keeps. Returns other objects as they are, or NULL with an error set. */
PyObject *as_array(call *c, PyObject *object, const char *name, bool number)
{
    if (!PyList_Check(object) && !PyTuple_Check(object) && !(number && PyLong_Check(object)))
        return object;
    PyObject *made = call_numpy("asarray", object);
    if (!made && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        wrong_type(name, object, "expected an array, or lists of equal lengths");
        return NULL;
    }
    c->foreign = true;
    return keep(c, made) != 0 ? NULL : made;
}

static void dl_failed(void *context, const char *type, const char *message)
{
    (void)context;
    PyErr_Format(PyExc_RuntimeError, "DLPack: %s: %s", type, message);
}

PyObject *shape_tuple(int32_t ndim, const int64_t *shape)
{
    PyObject *tuple = PyTuple_New(ndim);
    for (int32_t x = 0; tuple && x < ndim; x++) {
        PyObject *n = PyLong_FromLongLong(shape[x]);
        if (!n || PyTuple_SetItem(tuple, x, n) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Allocate an array with the library that `like` came from, and view it as *a. Returns a new reference, or NULL with an
 * error set. */
PyObject *make_array(call *c, const origin *like, rp_dtype dtype, int32_t ndim, const int64_t *shape, rp_array *a)
{
    const state *st = c->st;
    PyObject *object = NULL, *tuple = NULL, *type = NULL;
    if (like->way == EXCHANGE) {
        dl_managed_versioned *m = NULL;
        int64_t sizes[RP_MAX_AXES] = {0};
        memcpy(sizes, shape, (size_t)ndim * sizeof *shape);
        dl_tensor prototype = {.device = {.type = DL_CPU}, .ndim = ndim, .dtype = dl_of_dtype(dtype), .shape = sizes};
        void *made = NULL;
        if (like->exchange->allocate(&prototype, &m, NULL, dl_failed) != 0)
            return NULL;
        if (view_dl(a, &m->tensor, "out") == 0 && like->exchange->to_object(m, &made) == 0)
            return made;
        if (m->deleter)
            m->deleter(m);
        return NULL;
    }
    tuple = shape_tuple(ndim, shape);
    if (like->way == CAPSULE) { /* a torch without the exchange API */
        PyObject *torch = PyImport_ImportModule("torch");
        type = torch ? PyObject_GetAttrString(torch, dtype_words[dtype]) : NULL;
        PyObject *maker = torch ? PyObject_GetAttrString(torch, "empty") : NULL;
        PyObject *args = tuple && type && maker ? Py_BuildValue("(O)", tuple) : NULL;
        PyObject *kwargs = args ? Py_BuildValue("{s:O}", "dtype", type) : NULL;
        object = kwargs ? PyObject_Call(maker, args, kwargs) : NULL;
        Py_XDECREF(torch);
        Py_XDECREF(maker);
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
        if (object && take_capsule(c, object, a, "out") != 0)
            Py_CLEAR(object);
    } else if (tuple) {
        type = dtype == RP_BF16 ? PyObject_GetAttrString(like->object, "dtype") : Py_NewRef(st->dtype[dtype]);
        object = type ? PyObject_CallFunctionObjArgs(st->empty, tuple, type, NULL) : NULL;
        if (object && (dtype == RP_BF16 ? take_bfloat16(c, object, true, a, "out")
                                        : take_buffer(c, object, true, -1, a, "out")) != 0)
            Py_CLEAR(object);
    }
    Py_XDECREF(tuple);
    Py_XDECREF(type);
    return object;
}

/* Prepend `more` axes of length 1: with more = 2, [L, D] becomes [1, 1, L, D]. */
void add_axes(rp_array *a, int more)
{
    for (int x = a->ndim - 1; x >= 0; x--) {
        a->shape[x + more] = a->shape[x];
        a->stride[x + more] = a->stride[x];
    }
    for (int x = 0; x < more; x++) {
        a->shape[x] = 1;
        a->stride[x] = 0;
    }
    a->ndim += more;
}

/* Return the type of lse, weights and summary for inputs of `dtype`. */
rp_dtype result_type(rp_dtype dtype)
{
    return dtype == RP_F64 ? RP_F64 : RP_F32;
}

/* Allocate an output without the leading axes that q lacks. */
PyObject *make_output(call *c, const origin *like, int absent, rp_dtype dtype, int32_t ndim, const int64_t *shape,
                      rp_array *a)
{
    PyObject *object = make_array(c, like, dtype, ndim - absent, shape + absent, a);
    if (object)
        add_axes(a, absent);
    return object;
}
