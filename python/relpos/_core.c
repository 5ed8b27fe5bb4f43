/* _core.c -- relpos for Python: arrays in, arrays out, over the public header alone.
 *
 * The limited API of Python 3.11, so that one file serves every later version. The module has no static state: what it keeps
 * lies in `state`, one for each interpreter. A call reads its arrays where they lie (buffer protocol, DLPack), makes a plan,
 * which costs less than looking one up would, and computes without the interpreter's lock.
 *
 *     problem   what is computed: a description with its terms and masks, and the Python objects that hold their arrays
 *     call      one call: its rp_tensors, and what must be given back after it
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <relpos/relpos.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "_dlpack.h"

#if defined(__clang__)
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* Keywords that say what is computed, in the order in which the Python functions pass them. */
enum {
    BIAS,
    ROPE,
    RELKEY,
    RELVAL,
    SINK,
    CAUSAL,
    WINDOW,
    KEY_MASK,
    MASK,
    LENGTHS,
    SEGMENTS,
    SCALE,
    SOFTCAP,
    SOFTCAP_AFTER,
    Q_OFFSET,
    DROPOUT,
    SEED,
    THREADS,
    PRECISION,
    N_OPTIONS
};
/* Then those of a forward call alone, and those of a backward call alone. */
enum { OUT = N_OPTIONS, RETURN_WEIGHTS, RETURN_LSE, SUMMARY, END_FORWARD };
enum { FORWARD_OUT = END_FORWARD, FORWARD_LSE, WANTED, N_NAMES };

static const char *const option_names[N_NAMES] = {
    [BIAS] = "bias",
    [ROPE] = "rope",
    [RELKEY] = "relkey",
    [RELVAL] = "relval",
    [SINK] = "sink",
    [CAUSAL] = "causal",
    [WINDOW] = "window",
    [KEY_MASK] = "key_mask",
    [MASK] = "mask",
    [LENGTHS] = "lengths",
    [SEGMENTS] = "segments",
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
    [FORWARD_OUT] = "out",
    [FORWARD_LSE] = "lse",
    [WANTED] = "wanted",
};

#define POOL "relpos.pool"
enum { MAX_POOLS = 4, MAX_TYPES = 4, MAX_HELD = RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS + 32 };

/* What torch is asked at the first tensor of a call, by functions without arguments whose answers are true or false. */
enum { MODES, TRANSFORMS, TRACING, AUTOCAST, N_QUESTIONS };

typedef struct state {
    PyTypeObject *term, *plan;
    PyObject *name[N_NAMES];  /* interned */
    PyObject *empty;          /* numpy.empty */
    PyObject *dtype[RP_BF16]; /* NumPy's f32, f64, f16 */
    PyObject *pools;          /* {threads: capsule} */
    struct {
        PyObject *type; /* a type that has an exchange API, and that API */
        const dl_exchange *exchange;
        bool own;        /* a type that torch has not made: reading its attributes may run any code */
    } tensor[MAX_TYPES]; /* the last ones met */
    int next_tensor;
    PyObject *requires_grad, *is_neg, *grad_enabled, *current_level;
    bool looked;                  /* for the following, at the first tensor */
    PyObject *asked[N_QUESTIONS]; /* functions of torch; NULL where it has none */
    PyObject *forward_ad;
} state;

/* Python keeps functions as void *; by way of an integer no compiler minds. */
#define SLOT(f) ((void *)(uintptr_t)(f))

static state *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

/* The library's last error as an exception. What it calls desc are the arguments here. */
static void *raise_status(rp_status status)
{
    const char *text = rp_last_error();
    PyErr_SetString(status == RP_E_NOMEM ? PyExc_MemoryError
                    : status == RP_E_ARG ? PyExc_TypeError
                                         : PyExc_ValueError,
                    strncmp(text, "desc.", 5) == 0 ? text + 5 : text);
    return NULL;
}

static bool given(PyObject *value)
{
    return value && value != Py_None;
}

/* TypeError: "<name> is of type <type>: <what is needed>". */
static int wrong_type(const char *name, PyObject *object, const char *needed)
{
    PyErr_Clear(); /* of the attempt that failed */
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    if (type)
        PyErr_Format(PyExc_TypeError, "%s is of type %U: %s", name, type, needed);
    Py_XDECREF(type);
    return -1;
}

/* ---------------------------------------------------------------------------------------------- a term */

/* One position term: its parameters, and the objects that hold its arrays. relpos._terms makes a class of each kind. */
typedef struct term {
    PyObject_HEAD rp_term term;
    PyObject *text;   /* as rp_term_parse reads it: "t5,buckets=16" */
    PyObject *arrays; /* tuple of RP_MAX_ARRAYS; None where absent */
} term;

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
        return PyErr_Format(PyExc_ValueError, "arrays: a tuple of %d is needed", RP_MAX_ARRAYS);
    if (!(utf8 = PyUnicode_AsUTF8AndSize(text, NULL)))
        return NULL;
    if (rp_term_parse(utf8, &parsed, array) != RP_OK) {
        PyErr_SetString(PyExc_ValueError, rp_last_error());
        return NULL;
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
    {"_text", term_text, NULL, "the term as the command line writes it, without arrays", NULL},
    {"_arrays", term_arrays, NULL, "its arrays, None where absent", NULL},
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

static PyType_Spec term_spec = {
    .name = "relpos._core.Term",
    .basicsize = sizeof(term),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = term_slots,
};

/* The keyword that takes a kind of term. */
static int option_of(rp_term_kind kind)
{
    if (rp_term_is_bias(kind))
        return BIAS;
    switch (kind) {
    case RP_TERM_ROPE: return ROPE;
    case RP_TERM_RELVAL: return RELVAL;
    case RP_TERM_SINK: return SINK;
    default: return RELKEY;
    }
}

/* ---------------------------------------------------------------------------------------------- arrays */

typedef enum way { BUFFER, EXCHANGE, CAPSULE } way;

/* Where an array came from, for those made in its likeness. */
typedef struct origin {
    PyObject *object;
    way way;
    const dl_exchange *exchange;
} origin;

/* Functions of Python to which a call is handed. */
typedef struct function {
    const char *module, *name;
} function;
static const function watched = {"relpos._operator", "watched"}, by_operator = {"relpos._operator", "attention"},
                      cast = {"relpos._torch", "cast"}, recorded = {"relpos._torch", "attention"};

/* What a call holds until it ends. */
typedef struct call {
    state *st;
    int n_buffers, n_objects;
    bool grad;    /* an input wants a gradient from torch */
    bool asks;    /* whether torch has something that reads or transforms calls, once, at the first tensor */
    bool casts;   /* whether torch.autocast is asked about as well: in relpos.attention */
    bool foreign; /* code that is not known has run, or may have, since the first view */
    const function *elsewhere; /* what takes the call instead */
    rp_tensors t;
    Py_buffer buffer[MAX_HELD];
    PyObject *object[MAX_HELD]; /* owned */
    int n_views;
    struct {
        PyObject *object;            /* borrowed: a tensor whose memory is not held */
        const dl_exchange *exchange; /* NULL: none */
        const void *data;
    } view[MAX_HELD];
    const void **pages; /* pointers to pages of keys, then of values */
    double next;        /* seconds: when signals are looked at; 0: not yet known */
    bool raised;        /* a signal's handler raised an exception */
    PyThreadState *thread;
} call;

/* How often a long call looks whether Ctrl-C was pressed, in seconds. */
#define SIGNALS_EVERY 0.05

/* An rp_progress: between blocks of work, without the interpreter's lock but for the moments in which signals are looked at. */
static int look_at_signals(void *context, double share)
{
    call *c = context;
    struct timespec now;
    (void)share;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double at = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (c->next == 0)
        c->next = at + SIGNALS_EVERY;
    if (at < c->next)
        return 0;
    c->next = at + SIGNALS_EVERY;
    PyEval_RestoreThread(c->thread);
    c->raised = PyErr_CheckSignals() != 0;
    c->thread = PyEval_SaveThread();
    return c->raised;
}

/* rp_attend, or rp_backward where g is given, without the interpreter's lock. 0, or -1 with an error set. */
static int compute(call *c, const rp_plan *plan, const rp_grads *g)
{
    c->t.progress = look_at_signals;
    c->t.progress_context = c;
    c->thread = PyEval_SaveThread();
    const rp_status status = g ? rp_backward(plan, &c->t, g, NULL) : rp_attend(plan, &c->t, NULL);
    PyEval_RestoreThread(c->thread);
    if (status != RP_OK && !c->raised)
        raise_status(status);
    return status == RP_OK && !c->raised ? 0 : -1;
}

static void call_start(call *c, state *st, bool asks)
{
    c->st = st;
    c->n_buffers = c->n_objects = c->n_views = 0;
    c->grad = c->casts = c->foreign = c->raised = false;
    c->asks = asks;
    c->elsewhere = NULL;
    c->pages = NULL;
    c->next = 0;
    c->t = rp_tensors_init();
}

static void call_end(call *c)
{
    while (c->n_buffers > 0)
        PyBuffer_Release(&c->buffer[--c->n_buffers]);
    while (c->n_objects > 0)
        Py_DECREF(c->object[--c->n_objects]);
    PyMem_Free(c->pages);
}

/* Keep an object, of which the call takes the reference, until the call ends. */
static int hold(call *c, PyObject *object)
{
    if (!object)
        return -1;
    if (c->n_objects == MAX_HELD) {
        Py_DECREF(object);
        PyErr_SetString(PyExc_ValueError, "too many arrays in one call");
        return -1;
    }
    c->object[c->n_objects++] = object;
    return 0;
}

static const char empty_place[8]; /* an array without elements has an address too */

/* The type that a format of the buffer protocol says; -1 for one that is none of the library's. */
static int dtype_of_format(const char *format, Py_ssize_t size)
{
    const rp_dtype whole[2][4] = {{RP_U8, RP_U16, RP_U32, RP_U64}, {RP_I8, RP_I16, RP_I32, RP_I64}};
    if (!format)
        return RP_U8;
    if (*format == '@' || *format == '=' || *format == '<') /* every machine that has a kernel is little-endian */
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

static int too_many_axes(const char *name, int ndim)
{
    PyErr_Format(PyExc_ValueError, "%s: %d axes: 0 to %d are allowed", name, ndim, RP_MAX_AXES);
    return -1;
}

static int view_buffer(rp_array *a, const Py_buffer *b, int dtype, const char *name)
{
    if (dtype < 0) {
        PyErr_Format(PyExc_TypeError,
                     "%s: elements of format \"%s\" are none that relpos reads: f32, f64, f16, bf16, bool or integers",
                     name, b->format);
        return -1;
    }
    if (b->ndim > RP_MAX_AXES)
        return too_many_axes(name, b->ndim);
    int64_t shape[RP_MAX_AXES];
    for (int x = 0; x < b->ndim; x++)
        shape[x] = b->shape[x];
    *a = rp_array_of(b->buf ? b->buf : empty_place, (rp_dtype)dtype, b->ndim, shape);
    for (int x = 0; b->strides && x < b->ndim; x++) { /* ctypes gives none */
        if (b->shape[x] > 1 && b->strides[x] % b->itemsize != 0) {
            PyErr_Format(PyExc_ValueError,
                         "%s: the stride of axis %d is %zd bytes: a multiple of the %zd of an element is needed", name,
                         x, b->strides[x], b->itemsize);
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
                     "%s is on a device that is not the CPU (DLPack type %d): relpos computes on the CPU, use %s.cpu()",
                     name, (int)d->device.type, name);
        return -1;
    }
    if (dtype < 0) {
        PyErr_Format(PyExc_TypeError,
                     "%s: elements of DLPack type %d with %d bits are none that relpos reads: f32, f64, f16, bf16, "
                     "bool or integers",
                     name, (int)d->dtype.code, (int)d->dtype.bits);
        return -1;
    }
    if (d->ndim > RP_MAX_AXES)
        return too_many_axes(name, d->ndim);
    bool empty = false;
    for (int32_t x = 0; x < d->ndim; x++)
        empty |= d->shape[x] == 0;
    if (!d->data && !empty) {
        PyErr_Format(PyExc_ValueError, "%s has no memory: its storage was freed, or it stands for a tensor only", name);
        return -1;
    }
    *a = rp_array_of(d->data ? (char *)d->data + d->byte_offset : empty_place, (rp_dtype)dtype, d->ndim, d->shape);
    for (int32_t x = 0; d->strides && x < d->ndim; x++)
        a->stride[x] = d->strides[x];
    return 0;
}

/* An object with a buffer that it does not give: says why. */
static int no_buffer(PyObject *object, bool writable, const char *name)
{
    Py_buffer b;
    PyErr_Clear();
    if (writable && PyObject_GetBuffer(object, &b, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
        PyBuffer_Release(&b);
        PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
        if (type)
            PyErr_Format(PyExc_ValueError, "%s is read-only (%U): an array that may be written is needed", name, type);
        Py_XDECREF(type);
        return -1;
    }
    PyErr_Clear();
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    if (!dtype)
        return wrong_type(name, object, "a NumPy array or a torch tensor is needed");
    PyErr_Format(PyExc_TypeError,
                 "%s: elements of dtype %S are none that relpos reads: f32, f64, f16, bf16, bool or integers", name,
                 dtype);
    Py_DECREF(dtype);
    return -1;
}

/* 0, -1 with an error set, or 1: the object gives no buffer, and *its* error is set. */
static int take_buffer(call *c, PyObject *object, bool writable, int dtype, rp_array *a, const char *name)
{
    if (c->n_buffers == MAX_HELD) {
        PyErr_SetString(PyExc_ValueError, "too many arrays in one call");
        return -1;
    }
    Py_buffer *b = &c->buffer[c->n_buffers];
    if (PyObject_GetBuffer(object, b, PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) != 0)
        return 1;
    c->n_buffers++;
    return view_buffer(a, b, dtype >= 0 ? dtype : dtype_of_format(b->format, b->itemsize), name);
}

/* Whether an array's type is bfloat16, in the machine's order of bytes; another error than of a missing attribute stays set. */
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

/* NumPy does not show bfloat16 by its buffer: the same memory as uint16 is asked for. */
static int take_bfloat16(call *c, PyObject *object, bool writable, rp_array *a, const char *name)
{
    PyErr_Clear();
    if (!is_bfloat16(object))
        return PyErr_Occurred() ? -1 : no_buffer(object, writable, name);
    PyObject *view = PyObject_CallMethod(object, "view", "s", "uint16");
    if (hold(c, view) != 0)
        return -1;
    const int failed = take_buffer(c, view, writable, RP_BF16, a, name);
    return failed > 0 ? no_buffer(view, writable, name) : failed;
}

/* Whether a type of tensors sends calls elsewhere, as those without numbers do that are used for tracing. */
static bool dispatches(PyObject *type)
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
static bool is_of_torch(PyObject *type)
{
    PyObject *module = PyObject_GetAttrString(type, "__module__");
    const bool is = module && PyUnicode_Check(module) &&
                    (PyUnicode_CompareWithASCIIString(module, "torch") == 0 ||
                     PyUnicode_CompareWithASCIIString(module, "torch.nn.parameter") == 0);
    PyErr_Clear();
    Py_XDECREF(module);
    return is;
}

/* The exchange API of a type, kept for the next call; NULL without an error where there is none. */
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

/* Whether the object is a tensor of torch, by what torch alone has: 1, 0, or -1 with an error set. Notes whether it wants a
 * gradient, and refuses one whose numbers are the negatives of those in its memory. */
static int note_torch(call *c, PyObject *object, const char *name)
{
    PyObject *wants = PyObject_GetAttr(object, c->st->requires_grad), *neg;
    if (!wants) {
        PyErr_Clear();
        return 0;
    }
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
    if (c->casts && answers_yes(c->st, AUTOCAST)) {
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

/* torch gives no view of a tensor: its reason has many lines, of which the first tells. */
static int no_view(const char *name)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL, *lines = text ? PyUnicode_Splitlines(text, 0) : NULL;
    PyObject *first = lines ? PyList_GetItem(lines, 0) : NULL;
    PyErr_Clear();
    if (first)
        PyErr_Format(PyExc_ValueError, "%s has no memory that relpos reads: a dense tensor on the CPU is needed (%U)",
                     name, first);
    else
        PyErr_Format(PyExc_ValueError, "%s has no memory that relpos reads: a dense tensor on the CPU is needed", name);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(text);
    Py_XDECREF(lines);
    return -1;
}

static int take_capsule(call *c, PyObject *object, rp_array *a, const char *name)
{
    PyObject *source =
        PyObject_HasAttrString(object, "detach") ? PyObject_CallMethod(object, "detach", NULL) : Py_NewRef(object);
    PyObject *capsule = source ? PyObject_CallMethod(source, "__dlpack__", NULL) : NULL;
    Py_XDECREF(source);
    if (!capsule && PyObject_HasAttr(object, c->st->requires_grad)) /* a tensor of torch */
        return no_view(name);
    if (hold(c, capsule) != 0)
        return -1;
    const dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor"); /* the capsule, never renamed, frees it */
    return m ? view_dl(a, &m->tensor, name) : -1;
}

static int remember(call *c, PyObject *object, const dl_exchange *e, const void *data)
{
    if (c->n_views == MAX_HELD) {
        PyErr_SetString(PyExc_ValueError, "too many arrays in one call");
        return -1;
    }
    c->view[c->n_views].object = object;
    c->view[c->n_views].exchange = e;
    c->view[c->n_views++].data = data;
    return 0;
}

/* After the last code that is not known: every tensor lies where it lay. */
static int still_there(const call *c)
{
    for (int n = 0; c->foreign && n < c->n_views; n++) {
        const void *now = NULL;
        if (c->view[n].exchange) {
            dl_tensor d;
            if (c->view[n].exchange->view(c->view[n].object, &d) != 0)
                return no_view("a tensor of the call");
            now = d.data ? (const char *)d.data + d.byte_offset : NULL;
        } else { /* torch before its exchange API */
            PyObject *at = PyObject_CallMethod(c->view[n].object, "data_ptr", NULL);
            now = at ? PyLong_AsVoidPtr(at) : NULL;
            Py_XDECREF(at);
            if (PyErr_Occurred())
                return -1;
        }
        if ((now ? now : empty_place) != c->view[n].data) {
            PyErr_SetString(PyExc_RuntimeError, "a tensor of the call lost its memory while another argument was read");
            return -1;
        }
    }
    return 0;
}

/* Read an array where it lies. `o`, if not NULL, learns where it came from. */
static int take(call *c, PyObject *object, bool writable, const char *name, rp_array *a, origin *o)
{
    const dl_exchange *e = NULL;
    way from = BUFFER;
    int failed;
    if (PyObject_CheckBuffer(object)) {
        c->foreign = c->foreign || (PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_HEAPTYPE) != 0;
        failed = take_buffer(c, object, writable, -1, a, name);
        if (failed > 0)
            failed = take_bfloat16(c, object, writable, a, name);
    } else if ((e = exchange_of(c, (PyObject *)Py_TYPE(object)))) {
        dl_tensor d;
        from = EXCHANGE;
        failed = note_torch(c, object, name) < 0 || (e->view(object, &d) != 0 && no_view(name)) ||
                 view_dl(a, &d, name) != 0 || remember(c, object, e, a->data) != 0;
    } else if (dispatches((PyObject *)Py_TYPE(object))) {
        c->elsewhere = &by_operator;
        return wrong_type(name, object, "tensors without memory of their own go to relpos.attention alone");
    } else if (PyObject_HasAttrString(object, "__dlpack__")) {
        c->foreign = true;
        const int torch = note_torch(c, object, name);
        from = torch ? CAPSULE : BUFFER; /* results for libraries that are not torch are NumPy's */
        failed =
            torch < 0 || take_capsule(c, object, a, name) != 0 || (torch && remember(c, object, NULL, a->data) != 0);
    } else {
        return wrong_type(name, object, "a NumPy array or a torch tensor is needed");
    }
    if (o)
        *o = (origin){object, from, e};
    return failed ? -1 : 0;
}

static void dl_failed(void *context, const char *type, const char *message)
{
    (void)context;
    PyErr_Format(PyExc_RuntimeError, "DLPack: %s: %s", type, message);
}

static PyObject *shape_tuple(int32_t ndim, const int64_t *shape)
{
    PyObject *tuple = PyTuple_New(ndim);
    for (int32_t x = 0; tuple && x < ndim; x++) {
        PyObject *n = PyLong_FromLongLong(shape[x]);
        if (!n || PyTuple_SetItem(tuple, x, n) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* A new array of the kind of `like`, on the heap of its own library, and its view. A new reference. */
static PyObject *make(call *c, const origin *like, rp_dtype dtype, int32_t ndim, const int64_t *shape, rp_array *a)
{
    static const char *const torch_names[] = {"float32", "float64", "float16", "bfloat16"};
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
    if (like->way == CAPSULE) { /* torch before its exchange API */
        PyObject *torch = PyImport_ImportModule("torch");
        type = torch ? PyObject_GetAttrString(torch, torch_names[dtype]) : NULL;
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

/* ---------------------------------------------------------------------------------------------- what is computed */

typedef struct problem {
    rp_desc desc;
    rp_term terms[RP_MAX_TERMS];
    rp_mask masks[RP_MAX_MASKS];
    term *term[RP_MAX_TERMS];     /* borrowed */
    PyObject *mask[RP_MAX_MASKS]; /* borrowed; NULL: without an array */
    PyObject *q_offset;           /* borrowed; NULL: desc.q_offset */
    PyObject *pool;               /* borrowed capsule of st->pools; NULL: the default pool */
} problem;

/* Keyword arguments into slots: the options, and the names from `first` up to `end`. */
static int read_keywords(const state *st, PyObject *const *values, PyObject *names, int first, int end, PyObject **slot)
{
    const Py_ssize_t n = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        int at = 0;
        while (at < end && name != st->name[at] && PyUnicode_Compare(name, st->name[at]) != 0)
            at = at + 1 == N_OPTIONS ? first : at + 1;
        if (at >= end) {
            PyErr_Format(PyExc_TypeError, "no argument is called \"%U\"", name);
            return -1;
        }
        slot[at] = values[k];
    }
    return 0;
}

static int add_term(problem *p, const state *st, PyObject *object, int option)
{
    if (!PyObject_TypeCheck(object, st->term))
        return wrong_type(option_names[option], object,
                          "a term is needed, such as relpos.T5(table), or a sum of terms");
    term *t = (term *)object;
    if (option_of(t->term.kind) != option) {
        PyErr_Format(PyExc_TypeError, "%s: the term %s is given as %s=", option_names[option],
                     rp_term_name(t->term.kind), option_names[option_of(t->term.kind)]);
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

static void add_mask(problem *p, rp_mask_kind kind, PyObject *array)
{
    p->mask[p->desc.n_masks] = array;
    p->masks[p->desc.n_masks++] = (rp_mask){.kind = kind};
}

/* Whether torch should find the derivative with respect to a number: there is none, and to go on would drop it. */
static bool wants_gradient(PyObject *number)
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

static int read_real(PyObject *object, const char *name, double *x)
{
    if (wants_gradient(object))
        return wrong_type(
            name, object,
            "it requires a gradient, and relpos.attention has none of it: use .detach(), or multiply q by it");
    *x = PyFloat_AsDouble(object);
    return *x == -1 && PyErr_Occurred() ? wrong_type(name, object, "a number is needed") : 0;
}

static int read_int(PyObject *object, const char *name, int64_t *n)
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

static int read_flag(PyObject *object, const char *name, int32_t *flag)
{
    const int truth = PyObject_IsTrue(object);
    *flag = truth > 0;
    return truth < 0 ? wrong_type(name, object, "True or False is needed") : 0;
}

static int read_window(PyObject *object, rp_mask *m)
{
    int64_t side[2];
    if (!PySequence_Check(object) || PySequence_Size(object) != 2) {
        PyErr_Clear();
        return wrong_type("window", object, "a pair (left, right) is needed; -1 or None = no limit");
    }
    for (int n = 0; n < 2; n++) {
        PyObject *item = PySequence_GetItem(object, n);
        const int failed = !item || (item == Py_None ? (side[n] = -1, 0) : read_int(item, "window", &side[n]));
        Py_XDECREF(item);
        if (failed)
            return -1;
    }
    m->left = side[0];
    m->right = side[1];
    return 0;
}

static void destroy_pool(PyObject *capsule)
{
    rp_pool *pool = PyCapsule_GetPointer(capsule, POOL);
    Py_BEGIN_ALLOW_THREADS
    rp_pool_destroy(pool);
    Py_END_ALLOW_THREADS
}

/* The pool of a number of threads, as a capsule: a new reference. The last few are kept. */
static PyObject *pool_of(const state *st, PyObject *threads)
{
    int64_t n;
    rp_pool *pool;
    if (read_int(threads, "threads", &n) != 0)
        return NULL;
    if (n < 1 || n > 4096)
        return PyErr_Format(PyExc_ValueError, "threads is %lld: 1 to 4096, or None for all", (long long)n);
    PyObject *key = PyLong_FromLongLong(n), *oldest = NULL, *value;
    PyObject *capsule = key ? PyDict_GetItemWithError(st->pools, key) : NULL;
    if (capsule || PyErr_Occurred()) {
        Py_XDECREF(key);
        return Py_XNewRef(capsule);
    }
    const rp_status status = rp_pool_create(&pool, (int32_t)n);
    if (status != RP_OK)
        raise_status(status);
    else if (!(capsule = PyCapsule_New(pool, POOL, destroy_pool)))
        rp_pool_destroy(pool);
    Py_ssize_t at = 0;
    bool failed = !capsule || PyDict_SetItem(st->pools, key, capsule) != 0;
    if (!failed && PyDict_Size(st->pools) > MAX_POOLS && PyDict_Next(st->pools, &at, &oldest, &value)) {
        Py_INCREF(oldest);
        failed = PyDict_DelItem(st->pools, oldest) != 0;
        Py_DECREF(oldest);
    }
    Py_XDECREF(key);
    if (failed)
        Py_CLEAR(capsule);
    return capsule;
}

/* The options that are arrays of masks. */
static const struct {
    int option;
    rp_mask_kind kind;
} mask_options[] = {
    {KEY_MASK, RP_MASK_KEYS}, {MASK, RP_MASK_PAIRS}, {LENGTHS, RP_MASK_LENGTHS}, {SEGMENTS, RP_MASK_SEGMENTS}};

/* All but the sizes, which come from the arrays. */
static int read_options(problem *p, call *c, PyObject *const *option)
{
    const state *st = c->st;
    rp_desc *d = &p->desc;
    int32_t flag = 0;
    *d = rp_desc_init(0, 1, 0, 0, 1);
    d->terms = p->terms;
    d->masks = p->masks;
    p->q_offset = p->pool = NULL;
    for (int n = BIAS; n <= SINK; n++)
        if (given(option[n]) && add_terms(p, st, option[n], n) != 0)
            return -1;
    if (given(option[CAUSAL]) && read_flag(option[CAUSAL], "causal", &flag) != 0)
        return -1;
    if (flag)
        add_mask(p, RP_MASK_CAUSAL, NULL);
    if (given(option[WINDOW])) {
        add_mask(p, RP_MASK_WINDOW, NULL);
        if (read_window(option[WINDOW], &p->masks[d->n_masks - 1]) != 0)
            return -1;
    }
    for (size_t n = 0; n < sizeof mask_options / sizeof *mask_options; n++)
        if (given(option[mask_options[n].option]))
            add_mask(p, mask_options[n].kind, option[mask_options[n].option]);
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
    if (given(option[SOFTCAP_AFTER]) && read_flag(option[SOFTCAP_AFTER], "softcap_after", &d->cap_after) != 0)
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
        if (hold(c, pool_of(st, option[THREADS])) != 0)
            return -1;
        p->pool = c->object[c->n_objects - 1];
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
static int take_terms(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS])
{
    char name[96];
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        rp_array *a = c->t.term[n];
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            PyObject *object = PyTuple_GetItem(p->term[n]->arrays, x);
            if (!object)
                return -1;
            if (object == Py_None)
                continue;
            snprintf(name, sizeof name, "%s of %s", rp_term_array(p->terms[n].kind, x), rp_term_name(p->terms[n].kind));
            if (take(c, object, false, name, &a[x], from ? &from[n][x] : NULL) != 0)
                return -1;
        }
        const rp_status status = rp_term_sizes(&p->terms[n], a);
        if (status != RP_OK)
            return raise_status(status), -1;
    }
    return 0;
}

/* Those of terms and masks, and the pool. */
static int take_arrays(problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS])
{
    if (take_terms(p, c, from) != 0)
        return -1;
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        if (p->mask[n] && take(c, p->mask[n], false, rp_mask_name(p->masks[n].kind), &c->t.mask[n], NULL) != 0)
            return -1;
    if (p->q_offset && take(c, p->q_offset, false, "q_offset", &c->t.q_offset, NULL) != 0)
        return -1;
    c->t.pool = p->pool ? PyCapsule_GetPointer(p->pool, POOL) : NULL;
    return 0;
}

/* [H, L, D] is [1, H, L, D]. */
static void lead(rp_array *a)
{
    for (int x = a->ndim; x > 0; x--) {
        a->shape[x] = a->shape[x - 1];
        a->stride[x] = a->stride[x - 1];
    }
    a->shape[0] = 1;
    a->stride[0] = 0;
    a->ndim++;
}

/* q, k and v, and the sizes that they tell. *single: they have no batch axis. */
static int take_qkv(problem *p, call *c, PyObject *const *args, origin from[3], bool *single)
{
    rp_array *a[3] = {&c->t.q, &c->t.k, &c->t.v};
    rp_desc *d = &p->desc;
    for (int n = 0; n < 3; n++) {
        const char name[2] = {"qkv"[n], 0};
        if (take(c, args[n], false, name, a[n], &from[n]) != 0)
            return -1;
        if (a[n]->ndim != a[0]->ndim || a[n]->ndim < 3) {
            if (n == 0 || a[0]->ndim == a[n]->ndim)
                PyErr_Format(PyExc_ValueError, "%s: %d axes: 4 are needed, (B, H, L, D), or 3, (H, L, D)", name,
                             (int)a[n]->ndim);
            else
                PyErr_Format(PyExc_ValueError,
                             "%s: %d axes, and q has %d: all of q, k and v are (B, H, L, D), or all (H, L, D)", name,
                             (int)a[n]->ndim, *single ? 3 : 4);
            return -1;
        }
        if (a[n]->dtype != a[0]->dtype) {
            PyErr_Format(PyExc_TypeError, "%s: its elements are %s, and those of q %s: they must be the same", name,
                         rp_dtype_name(a[n]->dtype), rp_dtype_name(a[0]->dtype));
            return -1;
        }
        *single = a[0]->ndim == 3;
    }
    if (a[0]->dtype > RP_BF16) {
        PyErr_Format(PyExc_TypeError, "q: its elements are %s: f32, f64, f16 or bf16 are needed",
                     rp_dtype_name(a[0]->dtype));
        return -1;
    }
    for (int n = 0; n < 3 && *single; n++)
        lead(a[n]);
    d->batch = c->t.q.shape[0];
    d->heads = c->t.q.shape[1];
    d->kv_heads = c->t.k.shape[1];
    d->len_q = c->t.q.shape[2];
    d->len_k = c->t.k.shape[2];
    d->dim_k = c->t.q.shape[3];
    d->dim_v = c->t.v.shape[3];
    d->dtype = c->t.q.dtype;
    if (d->heads < 1 || d->kv_heads < 1 || d->dim_v < 1) { /* where 0 would stand for a default */
        PyErr_Format(PyExc_ValueError, "%s has an axis of length 0: at least one head and one channel are needed",
                     d->heads < 1      ? "q"
                     : d->kv_heads < 1 ? "k"
                                       : "v");
        return -1;
    }
    return 0;
}

/* Pointers to the pages that a table names: [B, columns] of `side`. */
static int point_to_pages(const rp_array *cache, const rp_array *table, int64_t columns, const void **to)
{
    const size_t size = rp_dtype_size(cache->dtype);
    for (int64_t b = 0; b < table->shape[0]; b++)
        for (int64_t n = 0; n < columns; n++) {
            const int64_t at = b * table->stride[0] + n * table->stride[1];
            const int64_t page =
                table->dtype == RP_I32 ? ((const int32_t *)table->data)[at] : ((const int64_t *)table->data)[at];
            if (page < 0 || page >= cache->shape[0]) {
                PyErr_Format(
                    PyExc_ValueError,
                    "pages[%lld, %lld] is %lld: k and v have the pages 0 to %lld; where a mask leaves out a whole "
                    "page, any of them will do",
                    (long long)b, (long long)n, (long long)page, (long long)cache->shape[0] - 1);
                return -1;
            }
            *to++ = (const char *)cache->data + page * cache->stride[0] * (int64_t)size;
        }
    return 0;
}

/* q, and keys and values in pages: k and v are caches (pages, Hk, keys of a page, D), of which a row of the table names those of a
 * batch entry. */
static int take_paged(problem *p, call *c, PyObject *const *args, PyObject *pages, PyObject *len_k, origin from[3])
{
    static const char *const names[] = {"q", "k", "v"};
    rp_array cache[2], table;
    rp_desc *d = &p->desc;
    int64_t asked = 0;
    if (given(len_k) && read_int(len_k, "len_k", &asked) != 0)
        return -1;
    if (take(c, args[0], false, "q", &c->t.q, &from[0]) != 0)
        return -1;
    const int64_t dim[2] = {d->dim_k, d->dim_v};
    for (int n = 0; n < 2; n++) {
        if (take(c, args[1 + n], false, names[1 + n], &cache[n], &from[1 + n]) != 0)
            return -1;
        if (cache[n].ndim != 4 || cache[n].shape[1] != d->kv_heads || cache[n].shape[3] != dim[n] ||
            cache[n].shape[2] < 1 || cache[n].shape[0] != cache[0].shape[0] || cache[n].shape[2] != cache[0].shape[2]) {
            PyObject *shape = shape_tuple(cache[n].ndim, cache[n].shape);
            if (shape)
                PyErr_Format(
                    PyExc_ValueError,
                    "%s: shape is %S: with pages, (pages, %lld, keys of a page, %lld) is needed, pages and keys of a "
                    "page the same for k and v",
                    names[1 + n], shape, (long long)d->kv_heads, (long long)dim[n]);
            Py_XDECREF(shape);
            return -1;
        }
        if (cache[n].shape[3] > 1 && cache[n].stride[3] != 1) {
            PyErr_Format(PyExc_ValueError, "%s: the stride of the last axis is %lld: it must be 1", names[1 + n],
                         (long long)cache[n].stride[3]);
            return -1;
        }
        if (cache[n].dtype != d->dtype) {
            PyErr_Format(PyExc_TypeError, "%s: its elements are %s, and the plan was made for %s", names[1 + n],
                         rp_dtype_name(cache[n].dtype), rp_dtype_name(d->dtype));
            return -1;
        }
    }
    if (take(c, pages, false, "pages", &table, NULL) != 0)
        return -1;
    if (c->t.q.ndim != 4) {
        PyErr_Format(PyExc_ValueError, "q: %d axes: with pages, 4 are needed, (B, H, L, D)", (int)c->t.q.ndim);
        return -1;
    }
    if (table.dtype != RP_I32 && table.dtype != RP_I64) {
        PyErr_Format(PyExc_TypeError, "pages: its elements are %s: int32 or int64 are needed",
                     rp_dtype_name(table.dtype));
        return -1;
    }
    if (table.ndim != 2 || table.shape[0] != c->t.q.shape[0]) {
        PyObject *shape = shape_tuple(table.ndim, table.shape);
        if (shape)
            PyErr_Format(PyExc_ValueError, "pages: shape is %S: (%lld, pages of a batch entry) is needed", shape,
                         (long long)c->t.q.shape[0]);
        Py_XDECREF(shape);
        return -1;
    }
    const int64_t page = cache[0].shape[2],
                  all_keys = d->len_k / page < table.shape[1] ? d->len_k : table.shape[1] * page;
    const int64_t keys = given(len_k) ? asked : all_keys;
    if (keys < 0 || keys > d->len_k || (keys + page - 1) / page > table.shape[1]) {
        PyErr_Format(PyExc_ValueError,
                     "len_k is %lld: the plan was made for 0 to %lld keys, and %lld pages of %lld keys are named for a "
                     "batch entry",
                     (long long)keys, (long long)d->len_k, (long long)table.shape[1], (long long)page);
        return -1;
    }
    const int64_t columns = (keys + page - 1) / page, all = table.shape[0] * columns;
    if (!(c->pages = PyMem_Malloc((size_t)(2 * all + 1) * sizeof *c->pages))) {
        PyErr_NoMemory();
        return -1;
    }
    if (point_to_pages(&cache[0], &table, columns, c->pages) != 0 ||
        point_to_pages(&cache[1], &table, columns, c->pages + all) != 0)
        return -1;
    c->t.pages = (rp_pages){.k = c->pages,
                            .v = c->pages + all,
                            .page = page,
                            .per_batch = columns,
                            .len_k = keys,
                            .k_head = cache[0].stride[1],
                            .k_key = cache[0].stride[2],
                            .v_head = cache[1].stride[1],
                            .v_key = cache[1].stride[2]};
    d->batch = c->t.q.shape[0];
    d->len_q = c->t.q.shape[2];
    d->len_k = keys;
    return 0;
}

/* Whether torch wants a gradient through this call: 1, 0, or -1 with an error set. */
static int records(const call *c)
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

static int refuse_gradient(const call *c)
{
    const int answer = records(c);
    if (answer > 0)
        PyErr_SetString(PyExc_TypeError,
                        "an input requires a gradient, and a plan records none: call it under torch.no_grad(), "
                        "or relpos.attention");
    return answer == 0 ? 0 : -1;
}

/* ---------------------------------------------------------------------------------------------- attention */

/* The results of one call in the order of the named tuple; NULL where not asked for. */
typedef struct results {
    PyObject *out, *weights, *lse, *summary;
} results;

static PyObject *results_end(results *r, bool ok)
{
    PyObject *answer = NULL;
    if (ok && (r->weights || r->lse || r->summary))
        answer = PyTuple_Pack(4, r->out, r->weights ? r->weights : Py_None, r->lse ? r->lse : Py_None,
                              r->summary ? r->summary : Py_None);
    else if (ok)
        answer = Py_NewRef(r->out);
    Py_XDECREF(r->out);
    Py_XDECREF(r->weights);
    Py_XDECREF(r->lse);
    Py_XDECREF(r->summary);
    return answer;
}

/* An output without its batch axis where q has none. */
static PyObject *make_output(call *c, const origin *like, bool single, rp_dtype dtype, int32_t ndim,
                             const int64_t *shape, rp_array *a)
{
    PyObject *object = make(c, like, dtype, ndim - single, shape + single, a);
    if (object && single)
        lead(a);
    return object;
}

static rp_dtype wide(rp_dtype dtype)
{
    return dtype == RP_F64 ? RP_F64 : RP_F32;
}

/* What of the results is asked for beside out; read before any array, since a flag may be of a class with code of its own. */
typedef struct extras {
    int32_t weights, lse, summary;
} extras;

static int read_extras(extras *a, PyObject *const *option)
{
    int32_t *const to[] = {&a->weights, &a->lse, &a->summary};
    for (int n = 0; n < 3; n++) {
        PyObject *flag = option[RETURN_WEIGHTS + n];
        *to[n] = 0;
        if (given(flag) && read_flag(flag, option_names[RETURN_WEIGHTS + n], to[n]) != 0)
            return -1;
    }
    return 0;
}

static int make_results(results *r, const problem *p, const extras *asked, call *c, const origin *like, bool single,
                        PyObject *const *option)
{
    const rp_desc *d = &p->desc;
    const int64_t B = d->batch, H = d->heads, Lq = d->len_q, Lk = d->len_k;
    const int64_t full[4] = {B, H, Lq, d->dim_v}, pairs[4] = {B, H, Lq, Lk},
                  profile[3] = {B, H, Lq + Lk > 0 ? Lq + Lk - 1 : 0}, keys[3] = {B, H, Lk};
    const rp_dtype type = wide(d->dtype);
    if (given(option[OUT])) {
        if (take(c, option[OUT], true, "out", &c->t.out, NULL) != 0)
            return -1;
        if (c->t.out.ndim != 4 - single) {
            PyErr_Format(PyExc_ValueError, "out: %d axes, and q has %d", (int)c->t.out.ndim, 4 - single);
            return -1;
        }
        if (single)
            lead(&c->t.out);
        r->out = Py_NewRef(option[OUT]);
    } else if (!(r->out = make_output(c, like, single, d->dtype, 4, full, &c->t.out))) {
        return -1;
    }
    if (asked->weights && !(r->weights = make_output(c, like, single, type, 4, pairs, &c->t.weights)))
        return -1;
    if (asked->lse && !(r->lse = make_output(c, like, single, type, 3, full, &c->t.lse)))
        return -1;
    if (asked->summary) {
        PyObject *part[3] = {NULL, NULL, NULL};
        if ((part[0] = make_output(c, like, single, type, 3, profile, &c->t.profile)) &&
            (part[1] = make_output(c, like, single, type, 3, keys, &c->t.key_mass)) &&
            (part[2] = make_output(c, like, single, type, 3, full, &c->t.entropy)))
            r->summary = PyTuple_Pack(3, part[0], part[1], part[2]);
        for (int n = 0; n < 3; n++)
            Py_XDECREF(part[n]);
        if (!r->summary)
            return -1;
    }
    return 0;
}

/* Tell torch that a tensor of the caller's has changed, so that a backward pass that needs what it was says so. */
static int was_written(PyObject *tensor)
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

/* One forward call, once options are read: q, k and v, and for a Plan pages and len_k after them; `plan` and `prepared` are those of
 * a Plan, or NULL: made for this call. Where torch
 * wants a gradient, *record is set instead, and NULL comes back without an error; a Plan refuses. */
static PyObject *attend(problem *p, call *c, PyObject *const *args, PyObject *const *option, const rp_plan *plan,
                        const rp_prepared *prepared, bool *record)
{
    origin from[3];
    results r = {NULL, NULL, NULL, NULL};
    extras asked;
    bool single = false, ok = false;
    rp_plan *own = NULL;
    int torch_out = 0; /* out is a tensor of torch */
    if (plan && !given(args[3]) && given(args[4])) {
        PyErr_SetString(PyExc_TypeError, "len_k goes with pages: without them the length of k tells it");
        return NULL;
    }
    if (read_extras(&asked, option) == 0 &&
        (plan && given(args[3]) ? take_paged(p, c, args, args[3], args[4], from)
                                : take_qkv(p, c, args, from, &single)) == 0 &&
        take_arrays(p, c, NULL) == 0 && (!given(option[OUT]) || (torch_out = note_torch(c, option[OUT], "out")) >= 0)) {
        const int wanted = plan ? refuse_gradient(c) : records(c);
        if (wanted != 0) {
            *record = wanted > 0;
            return NULL;
        }
        const rp_status status = plan ? RP_OK : rp_plan_create(&own, &p->desc);
        if (status != RP_OK) {
            raise_status(status);
        } else if (make_results(&r, p, &asked, c, &from[0], single, option) == 0 && still_there(c) == 0) {
            c->t.prepared = prepared;
            ok = compute(c, plan ? plan : own, NULL) == 0;
            if (torch_out && (ok || c->raised))
                ok = was_written(option[OUT]) == 0 && ok;
        }
    }
    rp_plan_destroy(own);
    return results_end(&r, ok);
}

/* The same call through a function of Python. */
static PyObject *hand_over(const function *to, PyObject *const *args, Py_ssize_t n)
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

static PyObject *attend_now(PyObject *module, PyObject *const *args, Py_ssize_t n, bool asks)
{
    PyObject *answer = NULL;
    problem p;
    call c;
    bool record = false;
    if (n != 3 + END_FORWARD)
        return PyErr_Format(PyExc_TypeError, "q, k, v and %d options are needed", (int)END_FORWARD);
    call_start(&c, state_of(module), asks);
    c.casts = asks;
    if (read_options(&p, &c, args + 3) == 0)
        answer = attend(&p, &c, args, args + 3, NULL, NULL, &record);
    call_end(&c);
    if (c.elsewhere) {
        PyErr_Clear();
        return hand_over(c.elsewhere, args, n);
    }
    return record ? hand_over(&recorded, args, n) : answer;
}

/* attention(q, k, v, …): all options by position, in the order of option_names, which costs a third of what 23 names do. */
static PyObject *core_attention(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    return attend_now(module, args, n, true);
}

/* The same for those whom torch has shown the call already. */
static PyObject *core_compute(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    return attend_now(module, args, n, false);
}

/* ---------------------------------------------------------------------------------------------- gradients */

/* `wanted`, None or a collection of names, as a tuple of text that the call holds, or NULL for None. Each has to be of an array
 * of the call. */
static int read_wanted(PyObject *object, const problem *p, call *c, PyObject **wanted)
{
    *wanted = NULL;
    if (!given(object))
        return 0;
    if (PyUnicode_Check(object))
        return wrong_type("wanted", object, "a collection of names is needed, such as (\"q\", \"table\")");
    PyObject *names = PySequence_Tuple(object);
    if (!names)
        return wrong_type("wanted", object, "a collection of names is needed, such as (\"q\", \"table\")");
    if (hold(c, names) != 0)
        return -1;
    for (Py_ssize_t n = 0; n < PyTuple_Size(names); n++) {
        PyObject *name = PyTuple_GetItem(names, n);
        if (!PyUnicode_Check(name))
            return wrong_type("wanted", name, "names are needed, such as \"q\" or \"table\"");
        bool known = PyUnicode_CompareWithASCIIString(name, "q") == 0 ||
                     PyUnicode_CompareWithASCIIString(name, "k") == 0 ||
                     PyUnicode_CompareWithASCIIString(name, "v") == 0;
        for (int32_t t = 0; !known && t < p->desc.n_terms; t++)
            for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(p->terms[t].kind, x); x++)
                known = known || (rp_term_array_learned(p->terms[t].kind, x) &&
                                  PyUnicode_CompareWithASCIIString(name, rp_term_array(p->terms[t].kind, x)) == 0);
        if (!known) {
            PyErr_Format(
                PyExc_ValueError,
                "wanted has %R: \"q\", \"k\", \"v\" and the names of learned arrays of the call's terms are allowed",
                name);
            return -1;
        }
    }
    *wanted = names;
    return 0;
}

/* Whether `wanted` of read_wanted has a name. */
static bool wants(PyObject *wanted, const char *name)
{
    for (Py_ssize_t n = 0; wanted && n < PyTuple_Size(wanted); n++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(wanted, n), name) == 0)
            return true;
    return !wanted;
}

/* A gradient of the shape, type and library of the array it belongs to; None where it is not wanted. A new reference. */
static PyObject *make_gradient(call *c, const origin *like, const rp_array *of, bool single, PyObject *wanted,
                               const char *name, rp_array *g)
{
    if (!wants(wanted, name))
        return Py_NewRef(Py_None);
    if (of->dtype > RP_BF16) {
        PyErr_Format(PyExc_TypeError, "%s: its elements are %s: f32, f64, f16 or bf16 are needed", name,
                     rp_dtype_name(of->dtype));
        return NULL;
    }
    return make_output(c, like, single, of->dtype, of->ndim, of->shape, g);
}

static PyObject *make_term_gradients(const problem *p, call *c, origin from[RP_MAX_TERMS][RP_MAX_ARRAYS],
                                     PyObject *wanted, rp_grads *g)
{
    PyObject *terms = PyTuple_New(p->desc.n_terms);
    for (int32_t n = 0; terms && n < p->desc.n_terms; n++) {
        PyObject *one = PyDict_New();
        for (int x = 0; one && x < RP_MAX_ARRAYS; x++) {
            const char *name = rp_term_array(p->terms[n].kind, x);
            if (!c->t.term[n][x].data || !rp_term_array_learned(p->terms[n].kind, x))
                continue;
            PyObject *made = make_gradient(c, &from[n][x], &c->t.term[n][x], false, wanted, name, &g->term[n][x]);
            if (!made || PyDict_SetItemString(one, name, made) != 0)
                Py_CLEAR(one);
            Py_XDECREF(made);
        }
        if (!one || PyTuple_SetItem(terms, n, one) != 0)
            Py_CLEAR(terms);
    }
    return terms;
}

static PyObject *backward_now(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names, bool asks)
{
    PyObject *option[N_NAMES] = {NULL}, *part[4] = {NULL}, *answer = NULL;
    problem p;
    call c;
    origin from[3], array_from[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rp_grads g = rp_grads_init();
    rp_plan *plan = NULL;
    bool single = false;
    if (n != 4)
        return PyErr_Format(PyExc_TypeError, "dout, q, k and v are needed, and nothing else without its name");
    if (read_keywords(state_of(module), args + n, names, END_FORWARD, N_NAMES, option) != 0)
        return NULL;
    call_start(&c, state_of(module), asks);
    PyObject *wanted = NULL;
    const struct {
        int option;
        const char *name;
        rp_array *to;
        int ndim;
    } inputs[] = {{N_NAMES, "dout", &g.dout, 4}, {FORWARD_OUT, "out", &c.t.out, 4}, {FORWARD_LSE, "lse", &c.t.lse, 3}};
    bool ok = read_options(&p, &c, option) == 0 && read_wanted(option[WANTED], &p, &c, &wanted) == 0 &&
              take_qkv(&p, &c, args + 1, from, &single) == 0 && take_arrays(&p, &c, array_from) == 0;
    for (size_t x = 0; ok && x < sizeof inputs / sizeof *inputs; x++) {
        PyObject *object = inputs[x].option == N_NAMES ? args[0] : option[inputs[x].option];
        if (x > 0 && !given(object))
            continue;
        ok = take(&c, object, false, inputs[x].name, inputs[x].to, NULL) == 0;
        if (ok && inputs[x].to->ndim == inputs[x].ndim - 1 && single)
            lead(inputs[x].to);
    }
    const rp_status status = ok ? rp_plan_create(&plan, &p.desc) : RP_OK;
    if (status != RP_OK)
        ok = raise_status(status);
    ok = ok && (part[0] = make_gradient(&c, &from[0], &c.t.q, single, wanted, "q", &g.dq)) &&
         (part[1] = make_gradient(&c, &from[1], &c.t.k, single, wanted, "k", &g.dk)) &&
         (part[2] = make_gradient(&c, &from[2], &c.t.v, single, wanted, "v", &g.dv)) &&
         (part[3] = make_term_gradients(&p, &c, array_from, wanted, &g)) && still_there(&c) == 0;
    if (ok && compute(&c, plan, &g) == 0)
        answer = PyTuple_Pack(4, part[0], part[1], part[2], part[3]);
    for (int x = 0; x < 4; x++)
        Py_XDECREF(part[x]);
    rp_plan_destroy(plan);
    call_end(&c);
    return answer;
}

/* attention_backward(dout, q, k, v): (dq, dk, dv, ({array: gradient}, …)). */
static PyObject *core_backward(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return backward_now(module, args, n, names, true);
}

/* The same for those whom torch has shown the call already. */
static PyObject *core_gradients(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return backward_now(module, args, n, names, false);
}

/* ---------------------------------------------------------------------------------------------- a plan for many calls */

/* A flexible plan with what its calls share. */
typedef struct plan_object {
    PyObject_HEAD problem p;
    rp_plan *plan;
    rp_prepared *prepared;
    PyObject *options; /* tuple: what p borrows */
    PyObject *pool;
} plan_object;

static int plan_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((plan_object *)object)->options); /* a tuple: what makes a cycle with it is cleared elsewhere */
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void plan_dealloc(PyObject *object)
{
    plan_object *self = (plan_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    rp_prepared_destroy(self->prepared);
    rp_plan_destroy(self->plan);
    Py_XDECREF(self->options);
    Py_XDECREF(self->pool);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "What relpos.Plan holds."},
    {Py_tp_traverse, SLOT(plan_traverse)},
    {Py_tp_dealloc, SLOT(plan_dealloc)},
    {0, NULL},
};

static PyType_Spec plan_spec = {
    .name = "relpos._core.Plan",
    .basicsize = sizeof(plan_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = plan_slots,
};

static int read_dtype(PyObject *object, rp_dtype *dtype)
{
    static const char *const words[] = {"float32", "float64", "float16", "bfloat16"};
    PyObject *text = PyObject_Str(object); /* "float32", and of torch "torch.float32" */
    const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    int found = -1;
    for (int n = 0; utf8 && n <= RP_BF16; n++)
        if (strcmp(words[n], strncmp(utf8, "torch.", 6) == 0 ? utf8 + 6 : utf8) == 0)
            found = n;
    if (utf8 && found < 0)
        PyErr_Format(PyExc_ValueError, "dtype is %R: \"float32\", \"float64\", \"float16\" or \"bfloat16\"", object);
    Py_XDECREF(text);
    *dtype = (rp_dtype)found;
    return found < 0 ? -1 : 0;
}

/* plan(batch, heads, len_q, len_k, dim, kv_heads, dim_v, dtype): the sizes are bounds of the lengths. */
static PyObject *core_plan(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    static const char *const sizes[] = {"batch", "heads", "len_q", "len_k", "dim", "kv_heads", "dim_v"};
    PyObject *option[N_NAMES] = {NULL};
    state *st = state_of(module);
    int64_t size[7];
    call c;
    if (n != 8)
        return PyErr_Format(PyExc_TypeError, "seven sizes and a dtype are needed");
    if (read_keywords(st, args + n, names, N_OPTIONS, N_OPTIONS, option) != 0)
        return NULL;
    for (int x = 0; x < 7; x++)
        if (read_int(args[x], sizes[x], &size[x]) != 0)
            return NULL;
    const allocfunc alloc = (allocfunc)(uintptr_t)PyType_GetSlot(st->plan, Py_tp_alloc);
    plan_object *self = (plan_object *)alloc(st->plan, 0);
    if (!self)
        return NULL;
    problem *p = &self->p;
    call_start(&c, st, true);
    bool ok = (self->options = PyTuple_New(N_OPTIONS));
    for (int x = 0; ok && x < N_OPTIONS; x++)
        ok = PyTuple_SetItem(self->options, x, Py_NewRef(option[x] ? option[x] : Py_None)) == 0;
    ok = ok && read_options(p, &c, option) == 0 && read_dtype(args[7], &p->desc.dtype) == 0;
    if (ok && p->pool)
        self->pool = Py_NewRef(p->pool);
    p->desc.batch = size[0];
    p->desc.heads = size[1];
    p->desc.len_q = size[2];
    p->desc.len_k = size[3];
    p->desc.dim_k = size[4];
    p->desc.kv_heads = size[5];
    p->desc.dim_v = size[6];
    p->desc.flexible = 1;
    ok = ok && take_terms(p, &c, NULL) == 0 && refuse_gradient(&c) == 0;
    if (ok) {
        rp_status status;
        Py_BEGIN_ALLOW_THREADS
        status = rp_plan_create(&self->plan, &p->desc);
        if (status == RP_OK)
            status = rp_prepare(&self->prepared, self->plan, &c.t);
        Py_END_ALLOW_THREADS
        if (status != RP_OK)
            ok = raise_status(status);
    }
    call_end(&c);
    if (!ok)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* Arrays of masks, and q_offset, of one call in place of those of the plan. */
static int replace(problem *p, call *c, PyObject *const *option, int64_t *q_offset)
{
    for (int x = 0; x < N_OPTIONS; x++) {
        rp_mask_kind mask = RP_MASK_NONE;
        if (!given(option[x]) || x == Q_OFFSET)
            continue;
        for (size_t m = 0; m < sizeof mask_options / sizeof *mask_options; m++)
            mask = mask_options[m].option == x ? mask_options[m].kind : mask;
        int32_t at = 0;
        while (at < p->desc.n_masks && (mask == RP_MASK_NONE || p->masks[at].kind != mask))
            at++;
        if (at == p->desc.n_masks) {
            PyErr_Format(
                PyExc_TypeError,
                "%s belongs to the plan: give it to relpos.Plan; a call may replace q_offset, and key_mask, mask, "
                "lengths and segments where the plan was made with them",
                option_names[x]);
            return -1;
        }
        p->mask[at] = option[x];
    }
    if (given(option[Q_OFFSET])) {
        p->q_offset = NULL;
        if (!PyLong_Check(option[Q_OFFSET])) {
            p->q_offset = option[Q_OFFSET];
        } else {
            if (read_int(option[Q_OFFSET], "q_offset", q_offset) != 0)
                return -1;
            c->t.q_offset = rp_array_of(q_offset, RP_I64, 0, NULL);
        }
    }
    return 0;
}

static PyObject *core_plan_call(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *option[N_NAMES] = {NULL}, *answer = NULL;
    state *st = state_of(module);
    int64_t q_offset;
    problem p;
    call c;
    bool record = false;
    if (n != 6 || !PyObject_TypeCheck(args[0], st->plan))
        return PyErr_Format(PyExc_TypeError, "q, k and v are needed, and nothing else without its name");
    if (read_keywords(st, args + n, names, N_OPTIONS, END_FORWARD, option) != 0)
        return NULL;
    const plan_object *self = (plan_object *)args[0];
    p = self->p;
    p.desc.terms = p.terms;
    p.desc.masks = p.masks;
    call_start(&c, st, true);
    if (replace(&p, &c, option, &q_offset) == 0)
        answer = attend(&p, &c, args + 1, option, self->plan, self->prepared, &record);
    call_end(&c);
    return answer;
}

/* ---------------------------------------------------------------------------------------------- looking inside */

/* row(q, k, v, batch, head, query): one row step by step, as a tuple (raw, scaled, bias, score, weights, out, lse). */
static PyObject *core_row(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *option[N_NAMES] = {NULL}, *part[6] = {NULL}, *answer = NULL;
    int64_t at[3];
    problem p;
    call c;
    origin from[3];
    rp_plan *plan = NULL;
    bool single = false, ok = true;
    if (n != 6)
        return PyErr_Format(PyExc_TypeError, "q, k, v, batch, head and query are needed");
    if (read_keywords(state_of(module), args + n, names, N_OPTIONS, N_OPTIONS, option) != 0)
        return NULL;
    for (int x = 0; x < 3; x++)
        if (read_int(args[3 + x], x == 0 ? "batch" : x == 1 ? "head" : "query", &at[x]) != 0)
            return NULL;
    call_start(&c, state_of(module), true);
    ok = read_options(&p, &c, option) == 0 && take_qkv(&p, &c, args, from, &single) == 0 &&
         take_arrays(&p, &c, NULL) == 0;
    if (ok) {
        rp_array a[6];
        rp_row row;
        rp_status status = rp_plan_create(&plan, &p.desc);
        for (int x = 0; status == RP_OK && ok && x < 6; x++)
            ok = (part[x] = make(&c, &from[0], RP_F64, 1, x < 5 ? &p.desc.len_k : &p.desc.dim_v, &a[x]));
        if (status == RP_OK && ok) {
            row = (rp_row){.raw = a[0].data,
                           .scaled = a[1].data,
                           .bias = a[2].data,
                           .score = a[3].data,
                           .weights = a[4].data,
                           .out = a[5].data};
            Py_BEGIN_ALLOW_THREADS
            status = rp_attend_row(plan, &c.t, at[0], at[1], at[2], &row);
            Py_END_ALLOW_THREADS
        }
        if (status != RP_OK)
            raise_status(status);
        else if (ok)
            answer = Py_BuildValue("(OOOOOOd)", part[0], part[1], part[2], part[3], part[4], part[5], row.lse);
    }
    for (int x = 0; x < 6; x++)
        Py_XDECREF(part[x]);
    rp_plan_destroy(plan);
    call_end(&c);
    return answer;
}

/* The length of the axis that follows a size of the description, by asking for the shapes with two values of that size; 1 where no
 * array says. */
static int infer(problem *p, const call *c, int64_t *size)
{
    int64_t found = 1, shape[2][RP_MAX_AXES];
    int32_t ndim[2];
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            const rp_array *a = &c->t.term[n][x];
            for (int turn = 0; a->data && turn < 2; turn++) {
                *size = 2 + turn;
                const rp_status status = rp_term_shape(&p->desc, n, x, &ndim[turn], shape[turn]);
                if (status != RP_OK)
                    return raise_status(status), -1;
            }
            for (int32_t e = 1; a->data && e <= ndim[0] && e <= a->ndim; e++) /* axes align right */
                if (shape[0][ndim[0] - e] != shape[1][ndim[1] - e] && a->shape[a->ndim - e] > 1)
                    found = a->shape[a->ndim - e];
        }
    *size = found;
    return 0;
}

/* matrix(terms, lq, lk, heads, q_offset): the biases [H, lq, lk] of batch entry 0, in float64; heads 0 = as the arrays say. */
static PyObject *core_matrix(PyObject *module, PyObject *args)
{
    PyObject *option[N_NAMES] = {NULL}, *made = NULL, *terms;
    long long lq, lk, heads, q_offset;
    problem p;
    call c;
    rp_plan *plan = NULL;
    if (!PyArg_ParseTuple(args, "OLLLL", &terms, &lq, &lk, &heads, &q_offset))
        return NULL;
    option[BIAS] = terms;
    call_start(&c, state_of(module), true);
    bool ok = read_options(&p, &c, option) == 0 && take_terms(&p, &c, NULL) == 0;
    p.desc.len_q = lq;
    p.desc.len_k = lk;
    p.desc.q_offset = q_offset;
    p.desc.heads = 1;
    ok = ok && infer(&p, &c, &p.desc.batch) == 0 && (heads != 0 || infer(&p, &c, &p.desc.heads) == 0);
    if (heads != 0)
        p.desc.heads = heads;
    if (ok) {
        rp_array a;
        const origin numpy = {NULL, BUFFER, NULL};
        const int64_t shape[3] = {p.desc.heads, lq, lk};
        rp_status status = rp_plan_create(&plan, &p.desc);
        if (status == RP_OK && (made = make(&c, &numpy, RP_F64, 3, shape, &a))) {
            Py_BEGIN_ALLOW_THREADS
            status = rp_bias(plan, &c.t, 0, &a);
            Py_END_ALLOW_THREADS
        }
        if (status != RP_OK) {
            raise_status(status);
            Py_CLEAR(made);
        }
    }
    rp_plan_destroy(plan);
    call_end(&c);
    return made;
}

/* bucket(offsets, buckets, text): the buckets of an int64 array into another, by the parameters of a term's text. */
static PyObject *core_bucket(PyObject *module, PyObject *args)
{
    PyObject *from, *to;
    const char *text;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    rp_term t;
    call c;
    rp_array a, b;
    if (!PyArg_ParseTuple(args, "OOs", &from, &to, &text))
        return NULL;
    if (rp_term_parse(text, &t, names) != RP_OK) {
        PyErr_SetString(PyExc_ValueError, rp_last_error());
        return NULL;
    }
    call_start(&c, state_of(module), true);
    bool ok = take(&c, from, false, "offsets", &a, NULL) == 0 && take(&c, to, true, "to", &b, NULL) == 0;
    if (ok && (a.dtype != RP_I64 || b.dtype != RP_I64 || a.ndim != 1 || b.ndim != 1 || a.shape[0] != b.shape[0])) {
        PyErr_SetString(PyExc_ValueError, "offsets: two arrays of int64 with one axis are needed");
        ok = false;
    }
    for (int64_t n = 0; ok && n < a.shape[0]; n++) {
        const int64_t bucket = rp_bucket(((const int64_t *)a.data)[n * a.stride[0]], t.buckets, t.max_distance,
                                         t.bidirectional, t.strategy);
        ((int64_t *)b.data)[n * b.stride[0]] = bucket;
        if (bucket < 0) {
            raise_status(RP_E_RANGE);
            ok = false;
        }
    }
    call_end(&c);
    return ok ? Py_NewRef(Py_None) : NULL;
}

/* ---------------------------------------------------------------------------------------------- the module */

/* What the library says of a kind: (name, syntax, source, text with its defaults, ((array, optional, learned), …)); None past the
 * last. */
static PyObject *core_term_info(PyObject *module, PyObject *object)
{
    (void)module;
    char text[1024];
    const int kind = (int)PyLong_AsLong(object);
    if (PyErr_Occurred())
        return NULL;
    if (kind <= RP_TERM_NONE || kind >= RP_TERM_COUNT)
        Py_RETURN_NONE;
    const rp_term defaults = rp_term_init((rp_term_kind)kind);
    if (rp_term_print(&defaults, text, sizeof text) != RP_OK)
        return raise_status(RP_E_RANGE);
    PyObject *arrays = PyTuple_New(0);
    for (int x = 0; arrays && x < RP_MAX_ARRAYS && rp_term_array((rp_term_kind)kind, x); x++) {
        PyObject *one = Py_BuildValue("((sNN))", rp_term_array((rp_term_kind)kind, x),
                                      PyBool_FromLong(rp_term_array_optional((rp_term_kind)kind, x)),
                                      PyBool_FromLong(rp_term_array_learned((rp_term_kind)kind, x)));
        PyObject *more = one ? PySequence_Concat(arrays, one) : NULL;
        Py_XDECREF(one);
        Py_DECREF(arrays);
        arrays = more;
    }
    if (!arrays)
        return NULL;
    return Py_BuildValue("(ssssN)", rp_term_name((rp_term_kind)kind), rp_term_syntax((rp_term_kind)kind),
                         rp_term_source((rp_term_kind)kind), text, arrays);
}

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

/* METH_FASTCALL functions have another type than PyMethodDef says; by way of a function of no arguments no compiler warns. */
#define FUNCTION(f) ((PyCFunction)(void (*)(void))(f))
#define FASTCALL(f) FUNCTION(f), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"attention", FUNCTION(core_attention), METH_FASTCALL, "attention(q, k, v, *options)"},
    {"compute", FUNCTION(core_compute), METH_FASTCALL, "attention, which does not ask whether torch traces the call"},
    {"backward", FASTCALL(core_backward), "backward(dout, q, k, v, **options)"},
    {"gradients", FASTCALL(core_gradients), "backward, which does not ask whether torch traces the call"},
    {"plan", FASTCALL(core_plan), "plan(batch, heads, len_q, len_k, dim, kv_heads, dim_v, dtype, **options)"},
    {"plan_call", FASTCALL(core_plan_call), "plan_call(plan, q, k, v, pages, len_k, **options)"},
    {"row", FASTCALL(core_row), "row(q, k, v, batch, head, query, **options)"},
    {"matrix", core_matrix, METH_VARARGS, "matrix(terms, lq, lk, heads, q_offset)"},
    {"bucket", core_bucket, METH_VARARGS, "bucket(offsets, to, text)"},
    {"term_info", core_term_info, METH_O, "what the library says of a kind of term"},
    {"config", core_config, METH_NOARGS, "version, instruction sets, threads, compiler"},
    {0},
};

static int module_exec(PyObject *module)
{
    state *st = state_of(module);
    PyObject *numpy = PyImport_ImportModule("numpy");
    static const char *const types[] = {"float32", "float64", "float16"};
    bool ok = numpy && (st->empty = PyObject_GetAttrString(numpy, "empty"));
    for (int n = 0; ok && n < RP_BF16; n++)
        ok = (st->dtype[n] = PyObject_CallMethod(numpy, "dtype", "s", types[n]));
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
    ok = names && PyModule_AddObjectRef(module, "NAMES", names) == 0; /* of the options, in their order */
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
    for (int n = 0; n < N_QUESTIONS; n++)
        Py_VISIT(st->asked[n]);
    Py_VISIT(st->forward_ad);
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
    for (int n = 0; n < N_QUESTIONS; n++)
        Py_CLEAR(st->asked[n]);
    Py_CLEAR(st->forward_ad);
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
    .m_doc = "relpos over its C interface; relpos is the package to import.",
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
