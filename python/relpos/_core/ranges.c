/* ranges.c -- the range of keys of a Plan's call, and the arrays that go from one range to the next: the states of rows
 * (forward) and the sums of dq (backward).
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* Read None or the tuple (from, to, in, out, own_keys). r->from is NULL for None. */
int read_range(range *r, PyObject *object, const char *in, const char *out)
{
    *r = (range){.names = {in, out}};
    return object == Py_None || PyArg_ParseTuple(object, "OOOOO", &r->from, &r->to, &r->in, &r->out, &r->own_keys) ? 0
                                                                                                                   : -1;
}

/* Set the range of the call, and the number of keys of the sequence, which is not that of k. */
int take_range(const range *r, problem *p, call *c, int absent)
{
    p->desc.len_k = c->t.key_to = r->len_k;
    if ((given(r->from) && read_int(r->from, "key_from", &c->t.key_from) != 0) ||
        (given(r->to) && read_int(r->to, "key_to", &c->t.key_to) != 0))
        return -1;
    if (!given(r->own_keys))
        return 0;
    if (take_rows(c, r->own_keys, "own_keys", &c->t.own_keys, NULL) != 0)
        return -1;
    if (c->t.own_keys.ndim == 4 - absent)
        add_axes(&c->t.own_keys, absent);
    return 0;
}

/* View an array of rows of numbers between two ranges. */
static int take_rows_of_numbers(call *c, PyObject *object, bool writable, const char *name, int absent, rp_array *a)
{
    if (take_array(c, object, writable, name, a, NULL) != 0)
        return -1;
    if (a->ndim == 4 - absent)
        add_axes(a, absent);
    return 0;
}

/* Read the array before the range, and read or allocate the one after it, which *made receives if there is one. */
int take_sums(range *r, const problem *p, call *c, const origin *like, int absent, int64_t width, rp_array *in,
              rp_array *out, PyObject **made)
{
    const int64_t shape[4] = {p->desc.batch, p->desc.heads, p->desc.len_q, width};
    if (given(r->in) && take_rows_of_numbers(c, r->in, false, r->names[0], absent, in) != 0)
        return -1;
    if (!given(r->out) || r->out == Py_False)
        return 0;
    if (r->out == Py_True)
        return (*made = make_output(c, like, absent, result_type(p->desc.dtype), 4, shape, out)) ? 0 : -1;
    const int torch = note_torch(c, r->out, r->names[1]);
    if (torch < 0 || take_rows_of_numbers(c, r->out, true, r->names[1], absent, out) != 0)
        return -1;
    r->torch = torch > 0;
    *made = Py_NewRef(r->out);
    return 0;
}

/* Tell torch that the call wrote to the caller's array. */
int end_sums(const range *r)
{
    return r->torch ? bump_version(r->out) : 0;
}
