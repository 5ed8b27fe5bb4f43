/* calls.c -- one call from its arguments to its results: attention forward (core_attention, attend_now, attend) and
 * backward (backward_now). attend calls read_extras, take_qkv, take_option_arrays, rp_plan_create, make_results and
 * compute in this order; compute runs the library without the GIL. If torch needs a gradient or traces the call, a
 * Python function takes it over (torch.c). plan.c calls attend with the plan and prepared arrays of a Plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "core.h"
#include "signals.h"

/* Handle signals and report progress, at most every SIGNALS_EVERY seconds. An rp_progress callback: the library calls
 * it between blocks of work. It takes the GIL only for these two actions. */
static int check_signals(void *context, double fraction)
{
    call *c = context;
    if (!signals_due(&c->next))
        return 0;
    PyEval_RestoreThread(c->thread);
    c->raised = PyErr_CheckSignals() != 0 || (c->progress && report_progress(c->progress, fraction) != 0);
    c->thread = PyEval_SaveThread();
    return c->raised;
}

/* Run without the GIL rp_attend, or with g rp_backward, with x rp_jvp, with both rp_hvp. Returns 0, or -1 with an error
 * set. Only the main thread installs check_signals, for two reasons: Python handles signals only there, and any other
 * thread that requests the GIL of an interpreter that is shutting down is killed, with stack frames that pool threads
 * still use. Other threads take the GIL after the work is done. */
int compute(const problem *p, call *c, const rp_plan *plan, const rp_grads *g, const rp_tangents *x)
{
    if (on_main_thread()) {
        c->t.progress = check_signals;
        c->t.progress_context = c;
    }
    c->thread = PyEval_SaveThread();
    const rp_status status = g && x ? rp_hvp(plan, &c->t, x, g)
                             : x    ? rp_jvp(plan, &c->t, x)
                             : g    ? rp_backward(plan, &c->t, g, NULL)
                                    : rp_attend(plan, &c->t, NULL);
    PyEval_RestoreThread(c->thread);
    if (status != RP_OK && !c->raised)
        raise_status(p, status);
    return status == RP_OK && !c->raised ? 0 : -1;
}

/* Set c->progress to the optional argument args[at] if it is callable, else to NULL. */
void take_progress(call *c, PyObject *const *args, Py_ssize_t n, Py_ssize_t at)
{
    c->progress = n > at && given(args[at]) && PyCallable_Check(args[at]) ? args[at] : NULL;
}

/* Read q, k and v and set the sizes of the description. *absent is the number of missing leading axes: 0, 1 (no batch)
 * or 2 (no batch and no heads). */
int take_qkv(problem *p, call *c, PyObject *const *args, origin from[3], int *absent)
{
    rp_array *a[3] = {&c->t.q, &c->t.k, &c->t.v};
    rp_desc *d = &p->desc;
    for (int n = 0; n < 3; n++) {
        const char name[2] = {"qkv"[n], 0};
        if (take_rows(c, args[n], name, a[n], &from[n]) != 0)
            return -1;
        if (a[n]->ndim != a[0]->ndim || a[n]->ndim < 2) {
            if (n == 0 || a[0]->ndim == a[n]->ndim)
                PyErr_Format(PyExc_ValueError, "%s has %d axes, expected (B, H, L, D), (H, L, D) or (L, D)", name,
                             (int)a[n]->ndim);
            else
                PyErr_Format(PyExc_ValueError, "%s has %d axes and q has %d; give q, k and v the same number of axes",
                             name, (int)a[n]->ndim, (int)a[0]->ndim);
            return -1;
        }
        if (a[n]->dtype != a[0]->dtype) {
            PyErr_Format(PyExc_TypeError, "%s has elements of %s and q of %s; convert both to the same type", name,
                         rp_dtype_name(a[n]->dtype), rp_dtype_name(a[0]->dtype));
            return -1;
        }
        *absent = 4 - a[0]->ndim;
    }
    if (a[0]->dtype > RP_BF16) {
        PyErr_Format(PyExc_TypeError, "q has elements of %s, expected f32, f64, f16 or bf16",
                     rp_dtype_name(a[0]->dtype));
        return -1;
    }
    for (int n = 0; n < 3; n++)
        add_axes(a[n], *absent);
    d->batch = c->t.q.shape[0];
    d->heads = c->t.q.shape[1];
    d->kv_heads = c->t.k.shape[1];
    d->len_q = c->t.q.shape[2];
    d->len_k = c->t.k.shape[2];
    d->dim_k = c->t.q.shape[3];
    d->dim_v = c->t.v.shape[3];
    d->dtype = c->t.q.dtype;
    if (d->heads < 1 || d->kv_heads < 1 || d->dim_v < 1) { /* 0 would select the default of rp_desc */
        PyErr_Format(PyExc_ValueError, "%s has an axis of length 0, expected at least one head and one channel",
                     d->heads < 1      ? "q"
                     : d->kv_heads < 1 ? "k"
                                       : "v");
        return -1;
    }
    return 0;
}

/* The results of one call, in the order of relpos.Result. NULL: not requested. */
typedef struct results {
    PyObject *out, *weights, *lse, *summary;
} results;

/* Release the results. Returns `out`, or a tuple of all four if others were requested, or NULL if `ok` is false. */
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

/* Allocate `out`. If q stores the heads of a token next to each other, as torch projections do, so does `out`, like
 * torch's scaled_dot_product_attention; a model then joins the heads without a copy. Compiled graphs expect a
 * contiguous `out`. */
static PyObject *make_out(call *c, const origin *like, int absent, rp_dtype dtype, const int64_t *shape)
{
    const rp_array *q = &c->t.q;
    rp_array *out = &c->t.out;
    if (!c->eager || like->way != EXCHANGE || absent > 0 || shape[1] < 2 || shape[2] < 2 ||
        q->stride[1] >= q->stride[2])
        return make_output(c, like, absent, dtype, 4, shape, out);
    const int64_t rows[4] = {shape[0], shape[2], shape[1], shape[3]};
    PyObject *made = make_output(c, like, 0, dtype, 4, rows, out);
    PyObject *transposed = made ? PyObject_CallMethod(made, "transpose", "ii", 1, 2) : NULL;
    Py_XDECREF(made);
    const int64_t step = out->stride[1];
    memcpy(out->shape, shape, 4 * sizeof *shape);
    out->stride[1] = out->stride[2];
    out->stride[2] = step;
    return transposed;
}

/* Flags of the results requested in addition to `out`. They are read before any array, because the truth value of an
 * object may run foreign code. */
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

static int make_results(results *r, const problem *p, const extras *extra, call *c, const origin *like, int absent,
                        PyObject *const *option)
{
    const rp_desc *d = &p->desc;
    const int64_t B = d->batch, H = d->heads, Lq = c->t.q.shape[2], Lk = d->len_k;
    const int64_t full[4] = {B, H, Lq, d->dim_v}, pairs[4] = {B, H, Lq, Lk},
                  profile[3] = {B, H, Lq + Lk > 0 ? Lq + Lk - 1 : 0}, keys[3] = {B, H, Lk};
    const rp_dtype type = result_type(d->dtype);
    if (given(option[OUT])) {
        if (r->out)
            return PyErr_SetString(PyExc_TypeError, "out is given with state_out; leave it out"), -1;
        if (take_array(c, option[OUT], true, "out", &c->t.out, NULL) != 0)
            return -1;
        if (c->t.out.ndim != 4 - absent) {
            PyErr_Format(PyExc_ValueError, "out has %d axes, expected %d as in q", (int)c->t.out.ndim, 4 - absent);
            return -1;
        }
        add_axes(&c->t.out, absent);
        r->out = Py_NewRef(option[OUT]);
    } else if (!r->out && !(r->out = make_out(c, like, absent, d->dtype, full))) {
        return -1;
    }
    if (extra->weights && !(r->weights = make_output(c, like, absent, type, 4, pairs, &c->t.weights)))
        return -1;
    if (extra->lse && !(r->lse = make_output(c, like, absent, type, 3, full, &c->t.lse)))
        return -1;
    if (extra->summary) {
        PyObject *part[3] = {NULL, NULL, NULL};
        if ((part[0] = make_output(c, like, absent, type, 3, profile, &c->t.profile)) &&
            (part[1] = make_output(c, like, absent, type, 3, keys, &c->t.key_mass)) &&
            (part[2] = make_output(c, like, absent, type, 3, full, &c->t.entropy)))
            r->summary = PyTuple_Pack(3, part[0], part[1], part[2]);
        for (int n = 0; n < 3; n++)
            Py_XDECREF(part[n]);
        if (!r->summary)
            return -1;
    }
    return 0;
}

/* Read key_norms, if given. */
static int take_norms(call *c, PyObject *object, int absent)
{
    rp_array *a = &c->t.key_norms;
    if (!given(object))
        return 0;
    if (wants_gradient(object))
        return wrong_type("key_norms", object, NO_GRADIENT);
    if (take_array(c, object, false, "key_norms", a, NULL) != 0)
        return -1;
    if (a->ndim == 3 - absent)
        add_axes(a, absent);
    return 0;
}

/* Read the range of a Plan's call. If the call leaves states, *made receives their array. */
static int take_states(const planned *of, problem *p, call *c, const origin *like, int absent, PyObject **made)
{
    range *r = of ? of->range : NULL;
    if (!r)
        return 0;
    const int64_t width = rp_plan_state_width(of->plan);
    return take_range(r, p, c, absent) == 0
               ? take_sums(&r->rows, p, c, like, absent, c->t.q.shape[2], width, &c->t.state_in, &c->t.state_out, made)
               : -1;
}

/* Run one forward call after its options are read. `args` are q, k and v, followed by pages and len_k for a Plan. `of`
 * belongs to the Plan, or is NULL. If torch needs a gradient, a Plan raises; other calls set *record and return NULL
 * without an error. */
PyObject *attend_call(problem *p, call *c, PyObject *const *args, PyObject *const *option, const planned *of,
                      bool *record)
{
    const rp_plan *plan = of ? of->plan : NULL;
    origin from[3];
    results r = {NULL, NULL, NULL, NULL};
    extras extra;
    bool ok = false;
    int absent = 0;
    rp_plan *own = NULL;
    int torch_out = 0; /* 1: out is a torch tensor */
    if (plan && !given(args[3]) && given(args[4])) {
        PyErr_SetString(PyExc_TypeError, "len_k is given without pages; leave it out, since k has its own length");
        return NULL;
    }
    if (read_extras(&extra, option) == 0 &&
        (plan && given(args[3]) ? take_paged(p, c, args, args[3], args[4], option[KEY_NORMS], from)
                                : take_qkv(p, c, args, from, &absent)) == 0 &&
        take_states(of, p, c, &from[0], absent, &r.out) == 0 && take_option_arrays(p, c, NULL) == 0 &&
        (c->t.pages.norms || take_norms(c, option[KEY_NORMS], absent) == 0) &&
        (!given(option[OUT]) || (torch_out = note_torch(c, option[OUT], "out")) >= 0)) {
        const int wanted = plan ? refuse_gradient(c, PLAN) : needs_record(c);
        if (wanted != 0 || warn_about_q_offset(p) != 0) {
            *record = wanted > 0;
            return results_end(&r, false);
        }
        const rp_status status = plan ? RP_OK : rp_plan_create(&own, &p->desc);
        if (status != RP_OK) {
            raise_status(p, status);
        } else if (make_results(&r, p, &extra, c, &from[0], absent, option) == 0 && check_addresses(c) == 0) {
            c->t.prepared = of ? of->prepared : NULL;
            ok = compute(p, c, plan ? plan : own, NULL, NULL) == 0;
            if (torch_out && (ok || c->raised))
                ok = bump_version(option[OUT]) == 0 && ok;
            if (of && of->range && (ok || c->raised))
                ok = end_sums(of->range) == 0 && ok;
        }
    }
    rp_plan_destroy(own);
    return results_end(&r, ok);
}

static PyObject *attend_now(PyObject *module, PyObject *const *args, Py_ssize_t n, bool check_torch)
{
    PyObject *answer = NULL;
    problem p;
    call c;
    bool record = false;
    if (n != 3 + END_FORWARD && n != 4 + END_FORWARD)
        return PyErr_Format(PyExc_TypeError, "attention() takes q, k, v and %d options", (int)END_FORWARD);
    call_start(&c, state_of(module), check_torch);
    take_progress(&c, args, n, 3 + END_FORWARD);
    c.check_autocast = c.eager = check_torch;
    if (read_options(&p, &c, args + 3) == 0)
        answer = attend_call(&p, &c, args, args + 3, NULL, &record);
    call_end(&c);
    if (c.redirect) {
        PyErr_Clear();
        return call_instead(c.redirect, args, n);
    }
    return record ? call_instead(&recorded, args, n) : answer;
}

/* attention(q, k, v, …): all options by position, in the order of option_names, which costs a third of passing 23
 * names. `progress` follows them; it does not affect results and so is not part of a traced graph. */
PyObject *core_attention(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    return attend_now(module, args, n, true);
}

/* core_attention without checks for tracing and autocast, for callers that have handled both. */
PyObject *core_compute(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    return attend_now(module, args, n, false);
}

/* Read `wanted`, None or a collection of names, into a tuple of str that the call keeps (NULL for None). Each name must
 * belong to an array of the call. */
int read_wanted(PyObject *object, const problem *p, call *c, PyObject **wanted)
{
    *wanted = NULL;
    if (!given(object))
        return 0;
    if (PyUnicode_Check(object))
        return wrong_type("wanted", object, "expected a collection of names, such as (\"q\", \"table\")");
    PyObject *names = PySequence_Tuple(object);
    if (!names)
        return wrong_type("wanted", object, "expected a collection of names, such as (\"q\", \"table\")");
    if (keep(c, names) != 0)
        return -1;
    for (Py_ssize_t n = 0; n < PyTuple_Size(names); n++) {
        PyObject *name = PyTuple_GetItem(names, n);
        if (!PyUnicode_Check(name))
            return wrong_type("wanted", name, "expected names, such as \"q\" or \"table\"");
        bool known = PyUnicode_CompareWithASCIIString(name, "q") == 0 ||
                     PyUnicode_CompareWithASCIIString(name, "k") == 0 ||
                     PyUnicode_CompareWithASCIIString(name, "v") == 0;
        for (int x = 0; !known && x < N_SOFTCAPS; x++)
            known = p->softcap[x] >= 0 && PyUnicode_CompareWithASCIIString(name, softcap_names[x]) == 0;
        for (int32_t t = 0; !known && t < p->desc.n_terms; t++)
            for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(p->terms[t].kind, x); x++)
                known = known || (rp_term_array_learned(p->terms[t].kind, x) &&
                                  PyUnicode_CompareWithASCIIString(name, rp_term_array(p->terms[t].kind, x)) == 0);
        if (!known) {
            PyErr_Format(
                PyExc_ValueError,
                "wanted contains %R; use \"q\", \"k\", \"v\" or the name of a learned array or a softcap of the call",
                name);
            return -1;
        }
    }
    *wanted = names;
    return 0;
}

/* Return true if `wanted` contains a name or is NULL, which means all. */
static bool is_wanted(PyObject *wanted, const char *name)
{
    for (Py_ssize_t n = 0; wanted && n < PyTuple_Size(wanted); n++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(wanted, n), name) == 0)
            return true;
    return !wanted;
}

/* Allocate a gradient with the shape and library of its array. Its type is `sums`, or that of the array if `sums` is
 * RP_BOOL. Returns a new reference, None if the gradient is not wanted. */
static PyObject *make_gradient(call *c, const origin *like, const rp_array *of, int absent, rp_dtype sums,
                               PyObject *wanted, const char *name, rp_array *g)
{
    if (!is_wanted(wanted, name))
        return Py_NewRef(Py_None);
    if (of->dtype > RP_BF16) {
        PyErr_Format(PyExc_TypeError, "%s has elements of %s, expected f32, f64, f16 or bf16", name,
                     rp_dtype_name(of->dtype));
        return NULL;
    }
    return make_output(c, like, absent, sums == RP_BOOL ? of->dtype : sums, of->ndim, of->shape, g);
}

/* Return the array of which the gradient of array x of term n has the shape: the array itself, or with per_sample an
 * array with one more axis, unless the array already has an axis for the batch. */
static rp_array array_of_gradient(const problem *p, const call *c, int32_t n, int x, bool per_sample)
{
    const rp_array *of = &c->t.term[n][x];
    rp_array like = *of;
    rp_desc other = p->desc;
    int64_t shape[RP_MAX_AXES], other_shape[RP_MAX_AXES];
    int32_t ndim;
    other.batch = other.batch ? 2 * other.batch : 1; /* the axis of the batch is the one that changes */
    if (!per_sample || of->ndim < 0 || of->ndim > RP_MAX_AXES || rp_term_shape(&p->desc, n, x, &ndim, shape) != RP_OK ||
        rp_term_shape(&other, n, x, &ndim, other_shape) != RP_OK)
        return like;
    const bool has_batch = ndim > 0 && of->ndim == ndim && shape[0] != other_shape[0];
    if (!has_batch && of->ndim < RP_MAX_AXES) {
        memcpy(like.shape + 1, of->shape, (size_t)of->ndim * sizeof *of->shape);
        like.ndim++;
    }
    if (like.ndim > of->ndim || has_batch)
        like.shape[0] = p->desc.batch;
    return like;
}

/* Read the option per_sample. */
int read_per_sample(PyObject *const *option, bool *per_sample)
{
    int32_t flag = 0;
    if (given(option[PER_SAMPLE]) && read_flag(option[PER_SAMPLE], option_names[PER_SAMPLE], &flag) != 0)
        return -1;
    *per_sample = flag;
    return 0;
}

/* Allocate the gradients of the softcaps that `wanted` names, in f64. Return a dictionary of them. */
static PyObject *make_softcap_gradients(const problem *p, call *c, const origin *like, PyObject *wanted,
                                        bool per_sample, rp_grads *g)
{
    rp_array *const to[N_SOFTCAPS] = {&g->dsoftcap, &g->dsoftcap_after};
    PyObject *one = PyDict_New();
    for (int x = 0; one && x < N_SOFTCAPS; x++) {
        if (p->softcap[x] < 0 || !is_wanted(wanted, softcap_names[x]))
            continue;
        PyObject *made = make_output(c, like, 0, RP_F64, per_sample, &p->desc.batch, to[p->softcap[x]]);
        if (!made || PyDict_SetItemString(one, softcap_names[x], made) != 0)
            Py_CLEAR(one);
        Py_XDECREF(made);
    }
    return one;
}

/* Allocate the gradients of the terms' arrays: a dictionary for each term, and one for the softcaps if `wanted` names
 * one. */
static PyObject *make_term_gradients(const problem *p, call *c, const origin *like_q,
                                     origin from[RP_MAX_TERMS][RP_MAX_ARRAYS], rp_dtype sums, PyObject *wanted,
                                     bool per_sample, rp_grads *g)
{
    bool softcaps = false;
    for (int x = 0; x < N_SOFTCAPS; x++)
        softcaps |= wanted && is_wanted(wanted, softcap_names[x]);
    PyObject *terms = PyTuple_New(p->desc.n_terms + softcaps);
    for (int32_t n = 0; terms && n < p->desc.n_terms; n++) {
        PyObject *one = PyDict_New();
        for (int x = 0; one && x < RP_MAX_ARRAYS; x++) {
            const char *name = rp_term_array(p->terms[n].kind, x);
            if (!c->t.term[n][x].data || !rp_term_array_learned(p->terms[n].kind, x))
                continue;
            const rp_array like = array_of_gradient(p, c, n, x, per_sample);
            PyObject *made = make_gradient(c, &from[n][x], &like, 0, sums, wanted, name, &g->term[n][x]);
            if (!made || PyDict_SetItemString(one, name, made) != 0)
                Py_CLEAR(one);
            Py_XDECREF(made);
        }
        if (!one || PyTuple_SetItem(terms, n, one) != 0)
            Py_CLEAR(terms);
    }
    PyObject *one = terms && softcaps ? make_softcap_gradients(p, c, like_q, wanted, per_sample, g) : NULL;
    if (terms && softcaps && (!one || PyTuple_SetItem(terms, p->desc.n_terms, one) != 0))
        Py_CLEAR(terms);
    return terms;
}

/* Read dout and the results of the forward call. */
int take_results(call *c, PyObject *dout, PyObject *const *option, int absent, rp_grads *g)
{
    const struct {
        PyObject *object;
        const char *name;
        rp_array *to;
        int ndim;
    } inputs[] = {{dout, "dout", &g->dout, 4},
                  {option[FORWARD_OUT], "out", &c->t.out, 4},
                  {option[FORWARD_LSE], "lse", &c->t.lse, 3},
                  {option[LSE_GRADIENT], "dlse", &g->dlse, 3}};
    for (size_t x = 0; x < sizeof inputs / sizeof *inputs; x++) {
        if (x > 0 && !given(inputs[x].object))
            continue;
        if (take_rows(c, inputs[x].object, inputs[x].name, inputs[x].to, NULL) != 0)
            return -1;
        if (inputs[x].to->ndim == inputs[x].ndim - absent)
            add_axes(inputs[x].to, absent);
    }
    return 0;
}

/* Read the gradients of weights and summary, which may have any strides: those of torch often broadcast. */
static int take_weight_gradients(call *c, PyObject *const *option, int absent, rp_grads *g)
{
    PyObject *summary = option[SUMMARY_GRADIENT];
    if (given(summary) && (!PyTuple_Check(summary) || PyTuple_Size(summary) != 3))
        return wrong_type("dsummary", summary,
                          "expected a relpos.Summary of gradients, with None for those that are zero");
    const bool any = given(summary);
    const struct {
        PyObject *object;
        const char *name;
        rp_array *to;
        int ndim;
    } inputs[] = {{option[WEIGHTS_GRADIENT], "dweights", &g->dweights, 4},
                  {any ? PyTuple_GetItem(summary, 0) : NULL, "dsummary.profile", &g->dprofile, 3},
                  {any ? PyTuple_GetItem(summary, 1) : NULL, "dsummary.key_mass", &g->dkey_mass, 3},
                  {any ? PyTuple_GetItem(summary, 2) : NULL, "dsummary.entropy", &g->dentropy, 3}};
    for (size_t x = 0; x < sizeof inputs / sizeof *inputs; x++) {
        if (!given(inputs[x].object))
            continue;
        if (take_array(c, inputs[x].object, false, inputs[x].name, inputs[x].to, NULL) != 0)
            return -1;
        if (inputs[x].to->ndim == inputs[x].ndim - absent)
            add_axes(inputs[x].to, absent);
    }
    return 0;
}

/* Read the range of a Plan's backward call. If the call leaves sums, made[0] receives those of dq, and made[1] those of
 * dk and dv. */
static int take_gradient_sums(const planned *of, problem *p, call *c, const origin *like, int absent, rp_grads *g,
                              PyObject *made[2])
{
    range *r = of ? of->range : NULL;
    if (!r)
        return 0;
    if (take_range(r, p, c, absent) != 0)
        return -1;
    const int64_t rows = c->t.q.shape[2], keys = c->t.k.shape[2], width = rp_plan_dq_width(of->plan),
                  both = rp_plan_dkv_width(of->plan);
    return take_sums(&r->rows, p, c, like, absent, rows, width, &g->dq_in, &g->dq_out, &made[0]) == 0
               ? take_sums(&r->keys, p, c, like, absent, keys, both, &g->dkv_in, &g->dkv_out, &made[1])
               : -1;
}

/* Allocate the gradients of q, k, v and the terms. Those of a range are parts of sums: the gradients of k and v have
 * the type of the arithmetic, and those of terms are f64. part[0] and part[1] may have sums that replace gradients. */
int make_gradients(const problem *p, call *c, const origin from[3], origin array_from[RP_MAX_TERMS][RP_MAX_ARRAYS],
                   int absent, PyObject *wanted, bool per_sample, bool ranged, PyObject *part[4], rp_grads *g)
{
    const rp_array *const of[3] = {&c->t.q, &c->t.k, &c->t.v};
    rp_array *const to[3] = {&g->dq, &g->dk, &g->dv};
    if (part[1])
        part[2] = Py_NewRef(Py_None);
    for (int n = 0; n < 3; n++) {
        const char name[2] = {"qkv"[n], 0};
        const rp_dtype dtype = ranged && n > 0 ? result_type(p->desc.dtype) : RP_BOOL;
        if (!part[n] && !(part[n] = make_gradient(c, &from[n], of[n], absent, dtype, wanted, name, to[n])))
            return -1;
    }
    part[3] = make_term_gradients(p, c, &from[0], array_from, ranged ? RP_F64 : RP_BOOL, wanted, per_sample, g);
    return part[3] ? 0 : -1;
}

/* Run one backward call on dout, q, k and v after its options are read. `of` is as in attend. */
PyObject *differentiate(problem *p, call *c, PyObject *const args[4], PyObject *const *option, const planned *of)
{
    PyObject *part[4] = {NULL}, *answer = NULL, *wanted = NULL;
    origin from[3], array_from[RP_MAX_TERMS][RP_MAX_ARRAYS];
    range *r = of ? of->range : NULL;
    rp_grads g = rp_grads_init();
    rp_plan *own = NULL;
    int absent = 0;
    bool per_sample;
    bool ok = read_per_sample(option, &per_sample) == 0 && read_wanted(option[WANTED], p, c, &wanted) == 0 &&
              take_qkv(p, c, args + 1, from, &absent) == 0 &&
              take_gradient_sums(of, p, c, &from[0], absent, &g, part) == 0 &&
              take_option_arrays(p, c, array_from) == 0 && warn_about_q_offset(p) == 0 &&
              take_results(c, args[0], option, absent, &g) == 0 && take_weight_gradients(c, option, absent, &g) == 0 &&
              (!of || refuse_gradient(c, PLAN) == 0);
    const rp_status status = ok && !of ? rp_plan_create(&own, &p->desc) : RP_OK;
    if (status != RP_OK)
        ok = raise_status(p, status);
    ok = ok && make_gradients(p, c, from, array_from, absent, wanted, per_sample, r, part, &g) == 0 &&
         check_addresses(c) == 0;
    c->t.prepared = of ? of->prepared : NULL;
    ok = ok && compute(p, c, of ? of->plan : own, &g, NULL) == 0;
    if (r && (ok || c->raised))
        ok = end_sums(r) == 0 && ok;
    if (ok)
        answer = PyTuple_Pack(4, part[0], part[1], part[2], part[3]);
    for (int x = 0; x < 4; x++)
        Py_XDECREF(part[x]);
    rp_plan_destroy(own);
    return answer;
}

static PyObject *backward_now(PyObject *module, PyObject *const args[4], PyObject *const *option, PyObject *progress,
                              bool check_torch)
{
    PyObject *answer = NULL;
    problem p;
    call c;
    call_start(&c, state_of(module), check_torch);
    take_progress(&c, &progress, 1, 0);
    if (read_options(&p, &c, option) == 0)
        answer = differentiate(&p, &c, args, option, NULL);
    call_end(&c);
    return answer;
}

/* backward(dout, q, k, v[, progress], **options): return (dq, dk, dv, ({array: gradient}, …)). */
PyObject *core_backward(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *option[N_NAMES] = {NULL};
    if (n != 4 && n != 5)
        return PyErr_Format(PyExc_TypeError, "attention_backward() takes dout, q, k and v by position; name the rest");
    if (read_keywords(state_of(module), args + n, names, END_FORWARD, N_NAMES, option) != 0)
        return NULL;
    return backward_now(module, args, option, n > 4 ? args[4] : NULL, true);
}

/* Set the options of the computation from a tuple that begins with them, in the order of option_names. */
bool take_options(PyObject *from, PyObject **option)
{
    const bool all = PyTuple_Check(from) && PyTuple_Size(from) >= N_OPTIONS;
    for (int x = 0; all && x < N_OPTIONS; x++)
        option[x] = PyTuple_GetItem(from, x);
    return all;
}

/* gradients(dout, q, k, v, options, dlse, dweights, dsummary, out, lse, wanted[, per_sample]): core_backward without
 * the check for tracing, for callers that have handled it. `options` is a tuple that begins with the options of the
 * computation, in the order of option_names; passing 23 names would take a third of a short call. */
PyObject *core_gradients(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    PyObject *option[N_NAMES] = {NULL};
    if (n < 11 || n > 12 || !take_options(args[4], option))
        return PyErr_Format(PyExc_TypeError, "gradients() takes dout, q, k, v, options, dlse, dweights, dsummary, out, "
                                             "lse, wanted and per_sample");
    static const int order[] = {LSE_GRADIENT, WEIGHTS_GRADIENT, SUMMARY_GRADIENT, FORWARD_OUT,
                                FORWARD_LSE,  WANTED,           PER_SAMPLE};
    for (int x = 0; x < n - 5; x++)
        option[order[x]] = args[5 + x];
    return backward_now(module, args, option, NULL, false);
}
