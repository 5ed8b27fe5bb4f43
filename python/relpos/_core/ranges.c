/* ranges.c -- the ranges of rows and keys of a Plan's call, and the arrays that go from one range to the next: states
 * (forward), sums of dq, and sums of dk and dv (backward).
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* Read None, (key_from, key_to, row_from, row_to, state_in, state_out, own_keys) or, for a backward call, (key_from,
 * key_to, row_from, row_to, dq_in, dq_out, dkv_in, dkv_out). r->key_from is NULL for None. */
int read_range(range *r, PyObject *object, bool backward)
{
    *r = (range){.rows.names = {backward ? "dq_in" : "state_in", backward ? "dq_out" : "state_out"},
                 .keys.names = {"dkv_in", "dkv_out"}};
    if (object == Py_None)
        return 0;
    PyObject *last[2] = {NULL, NULL};
    if (!PyArg_ParseTuple(object, "OOOOOOO|O", &r->key_from, &r->key_to, &r->row_from, &r->row_to, &r->rows.in,
                          &r->rows.out, &last[0], &last[1]))
        return -1;
    if (backward)
        r->keys.in = last[0], r->keys.out = last[1];
    else
        r->own_keys = last[0];
    return 0;
}

/* Read the range along one axis, which has `length` rows or keys. It is all of them unless the caller gave it. */
static int read_bounds(PyObject *const given_bounds[2], const char *const names[2], int64_t length,
                       int64_t *const to[2])
{
    if (!given(given_bounds[0]) && !given(given_bounds[1]))
        return 0;
    *to[1] = length;
    for (int n = 0; n < 2; n++)
        if (given(given_bounds[n]) && read_int(given_bounds[n], names[n], to[n]) != 0)
            return -1;
    return 0;
}

/* View an array with the axes of q, some of which may be absent. */
static int take_part(call *c, PyObject *object, bool writable, const char *name, int absent, rp_array *a)
{
    if (take_array(c, object, writable, name, a, NULL) != 0)
        return -1;
    if (a->ndim == 4 - absent)
        add_axes(a, absent);
    return 0;
}

/* Set the ranges of the call, and the lengths of the sequence, which q and k have only without a range. */
int take_range(const range *r, problem *p, call *c, int absent)
{
    PyObject *const keys[2] = {r->key_from, r->key_to}, *const rows[2] = {r->row_from, r->row_to};
    static const char *const key_names[2] = {"key_from", "key_to"}, *const row_names[2] = {"row_from", "row_to"};
    int64_t *const key_range[2] = {&c->t.key_from, &c->t.key_to}, *const row_range[2] = {&c->t.row_from, &c->t.row_to};
    if (read_bounds(keys, key_names, r->len_k, key_range) != 0 ||
        read_bounds(rows, row_names, r->len_q, row_range) != 0)
        return -1;
    if (c->t.key_from || c->t.key_to)
        p->desc.len_k = r->len_k;
    if (c->t.row_from || c->t.row_to)
        p->desc.len_q = r->len_q;
    if (!given(r->own_keys))
        return 0;
    if (take_rows(c, r->own_keys, "own_keys", &c->t.own_keys, NULL) != 0)
        return -1;
    if (c->t.own_keys.ndim == 4 - absent)
        add_axes(&c->t.own_keys, absent);
    return 0;
}

/* Read the sums before the range, and read or allocate those after it, [B, H, length, width], which *made receives if
 * the caller wants them. */
int take_sums(carried *s, const problem *p, call *c, const origin *like, int absent, int64_t length, int64_t width,
              rp_array *in, rp_array *out, PyObject **made)
{
    const int64_t shape[4] = {p->desc.batch, p->desc.heads, length, width};
    if (given(s->in) && take_part(c, s->in, false, s->names[0], absent, in) != 0)
        return -1;
    if (!given(s->out) || s->out == Py_False)
        return 0;
    if (s->out == Py_True)
        return (*made = make_output(c, like, absent, result_type(p->desc.dtype), 4, shape, out)) ? 0 : -1;
    const int torch = note_torch(c, s->out, s->names[1]);
    if (torch < 0 || take_part(c, s->out, true, s->names[1], absent, out) != 0)
        return -1;
    s->torch = torch > 0;
    *made = Py_NewRef(s->out);
    return 0;
}

/* Tell torch which of the caller's tensors the call wrote. */
int end_sums(const range *r)
{
    if (r->rows.torch && bump_version(r->rows.out) != 0)
        return -1;
    return r->keys.torch ? bump_version(r->keys.out) : 0;
}
