/* plan.c -- relpos._core.Plan: a flexible plan that many calls share, with the terms' arrays prepared by rp_prepare.
 * plan_call and plan_backward pass both to attend and differentiate in calls.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* A flexible plan and its prepared arrays. */
typedef struct plan_object {
    PyObject_HEAD problem p;
    rp_plan *plan;
    rp_prepared *prepared;
    PyObject *options; /* tuple of the objects that p borrows */
} plan_object;

static int plan_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((plan_object *)object)
                 ->options); /* no tp_clear: like a tuple, a plan is in no cycle without a mutable object */
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
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "The C object of a relpos.Plan."},
    {Py_tp_traverse, SLOT(plan_traverse)},
    {Py_tp_dealloc, SLOT(plan_dealloc)},
    {0, NULL},
};

PyType_Spec plan_spec = {
    .name = "relpos._core.Plan",
    .basicsize = sizeof(plan_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = plan_slots,
};

static int read_dtype(PyObject *object, rp_dtype *dtype)
{
    PyObject *text = PyObject_Str(object); /* "float32", or "torch.float32" for torch */
    const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    int found = -1;
    for (int n = 0; utf8 && n <= RP_BF16; n++)
        if (strcmp(dtype_words[n], strncmp(utf8, "torch.", 6) == 0 ? utf8 + 6 : utf8) == 0)
            found = n;
    if (utf8 && found < 0)
        PyErr_Format(PyExc_ValueError, "dtype is %R, expected \"float32\", \"float64\", \"float16\" or \"bfloat16\"",
                     object);
    Py_XDECREF(text);
    *dtype = (rp_dtype)found;
    return found < 0 ? -1 : 0;
}

/* plan(batch, heads, len_q, len_k, dim, kv_heads, dim_v, dtype): create a plan. len_q and len_k are upper bounds for
 * its calls; the other sizes must match. */
PyObject *core_plan(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    static const char *const sizes[] = {"batch", "heads", "len_q", "len_k", "dim", "kv_heads", "dim_v"};
    PyObject *option[N_NAMES] = {NULL};
    state *st = state_of(module);
    int64_t size[7];
    call c;
    if (n != 8)
        return PyErr_Format(PyExc_TypeError, "plan() takes seven sizes and a dtype");
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
    p->desc.batch = size[0];
    p->desc.heads = size[1];
    p->desc.len_q = size[2];
    p->desc.len_k = size[3];
    p->desc.dim_k = size[4];
    p->desc.kv_heads = size[5];
    p->desc.dim_v = size[6];
    p->desc.flexible = 1;
    ok = ok && take_terms(p, &c, NULL) == 0 && refuse_gradient(&c, PLAN) == 0 && take_pool(&c, p->threads) == 0;
    if (ok) {
        rp_status status;
        Py_BEGIN_ALLOW_THREADS
        status = rp_plan_create(&self->plan, &p->desc);
        if (status == RP_OK)
            status = rp_prepare(&self->prepared, self->plan, &c.t);
        Py_END_ALLOW_THREADS
        if (status != RP_OK)
            ok = raise_status(p, status);
    }
    call_end(&c);
    if (!ok)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* Replace mask arrays and q_offset of the plan by those of one call. Returns 0, or -1 with an error set for other
 * options. */
static int replace(problem *p, call *c, PyObject *const *option, int64_t *q_offset)
{
    for (int x = 0; x < N_OPTIONS; x++) {
        if (!given(option[x]) || x == Q_OFFSET)
            continue;
        const rp_mask_kind mask = mask_of(x);
        int32_t at = 0;
        while (at < p->desc.n_masks && (p->masks[at].kind != mask || !p->mask[at]))
            at++;
        if (at == p->desc.n_masks) {
            PyErr_Format(PyExc_TypeError,
                         "%s belongs to the plan; pass it to relpos.Plan (a call can replace only q_offset and mask "
                         "arrays that the plan has)",
                         option_names[x]);
            return -1;
        }
        p->mask[at] = option[x];
    }
    if (given(option[Q_OFFSET])) {
        p->q_offset = NULL;
        p->offset_given = true;
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

/* Read a call of a Plan from its keywords. Returns 0, or -1 with an error set. */
static int begin_call(const plan_object *self, problem *p, call *c, PyObject *const *option, int64_t *q_offset,
                      range *r, planned *of)
{
    *p = self->p;
    p->desc.terms = p->terms;
    p->desc.masks = p->masks;
    r->len_q = self->p.desc.len_q;
    r->len_k = self->p.desc.len_k;
    *of = (planned){self->plan, self->prepared, r->key_from ? r : NULL};
    return replace(p, c, option, q_offset);
}

/* plan_call(plan, q, k, v, pages, len_k, range, progress, **options); ranges.c reads range. */
PyObject *core_plan_call(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *option[N_NAMES] = {NULL}, *answer = NULL;
    state *st = state_of(module);
    int64_t q_offset;
    problem p;
    range r;
    planned of;
    call c;
    bool record = false;
    if (n != 8 || !PyObject_TypeCheck(args[0], st->plan))
        return PyErr_Format(PyExc_TypeError, "a Plan takes q, k and v by position; name the rest");
    if (read_keywords(st, args + n, names, N_OPTIONS, END_FORWARD, option) != 0 || read_range(&r, args[6], false) != 0)
        return NULL;
    call_start(&c, st, true);
    take_progress(&c, args, n, 7);
    if (begin_call((const plan_object *)args[0], &p, &c, option, &q_offset, &r, &of) == 0)
        answer = attend_call(&p, &c, args + 1, option, &of, &record);
    call_end(&c);
    return answer;
}

/* plan_backward(plan, dout, q, k, v, range, progress, **options) */
PyObject *core_plan_backward(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *option[N_NAMES] = {NULL}, *answer = NULL;
    state *st = state_of(module);
    int64_t q_offset;
    problem p;
    range r;
    planned of;
    call c;
    if (n != 7 || !PyObject_TypeCheck(args[0], st->plan))
        return PyErr_Format(PyExc_TypeError, "Plan.backward takes dout, q, k and v by position; name the rest");
    if (read_keywords(st, args + n, names, END_FORWARD, N_NAMES, option) != 0 || read_range(&r, args[5], true) != 0)
        return NULL;
    call_start(&c, st, true);
    take_progress(&c, args, n, 6);
    if (begin_call((const plan_object *)args[0], &p, &c, option, &q_offset, &r, &of) == 0)
        answer = differentiate(&p, &c, args + 1, option, &of);
    call_end(&c);
    return answer;
}

/* Return the numbers of keys and of rows at whose multiples ranges begin and end, and the numbers of a key in
 * dkv_out. */
PyObject *core_plan_sizes(PyObject *module, PyObject *object)
{
    if (!PyObject_TypeCheck(object, state_of(module)->plan))
        return PyErr_Format(PyExc_TypeError, "expected a Plan");
    const rp_plan *plan = ((const plan_object *)object)->plan;
    return Py_BuildValue("LLL", (long long)rp_plan_key_step(plan), (long long)rp_plan_row_step(plan),
                         (long long)rp_plan_dkv_width(plan));
}
