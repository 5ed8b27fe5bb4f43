/* refusals.h -- checks that a call fails with the right status and with a line that names the field and its value.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_REFUSALS_H
#define RELPOS_TESTS_REFUSALS_H
#include "tests/helpers.h"

/* Loop with x set to each value in turn, for a table row that applies to all of them. */
#define EACH(type, x, ...)                                                                                             \
    for (size_t x##_n = 0; x##_n < sizeof((type[]){__VA_ARGS__}) / sizeof(type); x##_n++)                              \
        for (type x = ((type[]){__VA_ARGS__})[x##_n], *x##_on = &x; x##_on; x##_on = NULL)

/* Check the status, and that the error is one line that contains `field` and, unless NULL, `value`. */
HELPER void said(rp_status got, rp_status want, const char *field, const char *value)
{
    if (got != want)
        fail_msg("%s \"%s\", not %s (%s %s)", rp_status_name(got), got == RP_OK ? "" : rp_last_error(),
                 rp_status_name(want), field, value ? value : "");
    if (!strstr(rp_last_error(), field) || (value && !strstr(rp_last_error(), value)))
        fail_msg("\"%s\" does not name %s and %s", rp_last_error(), field, value ? value : "-");
    assert_null(strchr(rp_last_error(), '\n'));
}

HELPER void refuse_plan(rp_desc d, rp_status want, const char *field, const char *value)
{
    rp_plan *plan = (rp_plan *)&d;
    said(rp_plan_create(&plan, &d), want, field, value);
    assert_null(plan);
}

/* A problem that has every form of array. */
#define EVERY_FORM                                                                                                     \
    "fwd:f32:b2h4g2q5k7d8v6:t5,buckets=8+dense+relkey,left=2,right=1+relval,left=1,right=2+alibi+"                     \
    "table,left=3,right=3:key_mask+mask+lengths"

/* ------------------------------------------------------------------------------------------------ slips in a call */

/* A correct call into which one mistake is put, and its outputs, which must not be written. */
typedef struct slip {
    problem p;
    rp_grads g;                                                   /* gradients of a backward call */
    rp_tangents x;                                                /* tangents, if `call` needs them */
    rp_status (*call)(const rp_plan *plan, const struct slip *s); /* NULL: rp_backward or rp_attend, by the pass */
    void *work;
    int n;
    unsigned char *memory[GRADIENTS];
    size_t bytes[GRADIENTS];
} slip;

HELPER void slip_output(slip *s, const rp_array *a)
{
    if (!a->data)
        return;
    s->memory[s->n] = a->data;
    s->bytes[s->n] = (size_t)problem_size(a) * rp_dtype_size(a->dtype);
    memset(a->data, 0xa5, s->bytes[s->n]);
    s->n++;
}

HELPER void slip_begin(slip *s, const char *text)
{
    memset(s, 0, sizeof *s);
    pose(&s->p, 1, "%s", text);
    s->g = s->p.g;
    if (s->p.pass & PROBLEM_BACKWARD) {
        for (int n = 0; n < GRADIENTS; n++)
            slip_output(s, gradient(&s->g, n));
        return;
    }
    also(&s->p, WITH_ALL, RP_F32);
    const rp_array *const outputs[] = {&s->p.t.out,     &s->p.t.lse,      &s->p.t.weights,
                                       &s->p.t.profile, &s->p.t.key_mass, &s->p.t.entropy};
    for (int n = 0; n < 6; n++)
        slip_output(s, outputs[n]);
}

HELPER void slip_end(slip *s, rp_status want, const char *field, const char *value)
{
    EACH_PATH(path)
    {
        rp_plan *plan;
        s->p.desc.isa = path;
        good(rp_plan_create(&plan, &s->p.desc));
        said(s->call                        ? s->call(plan, s)
             : s->p.pass & PROBLEM_BACKWARD ? rp_backward(plan, &s->p.t, &s->g, s->work)
                                            : rp_attend(plan, &s->p.t, s->work),
             want, field, value);
        rp_plan_destroy(plan);
        for (int n = 0; n < s->n; n++)
            for (size_t c = 0; c < s->bytes[n]; c++)
                if (s->memory[n][c] != 0xa5)
                    fail_msg("%s (%s): output %d was written", rp_last_error(), path, n);
    }
    problem_free(&s->p);
}

/* One table row: a change to the arrays t and g of the call that slip_text describes, and the expected error. */
#define SLIP(change, status, field, value)                                                                             \
    do {                                                                                                               \
        slip s;                                                                                                        \
        slip_begin(&s, slip_text);                                                                                     \
        rp_tensors *t = &s.p.t;                                                                                        \
        rp_grads *g = &s.g;                                                                                            \
        (void)t, (void)g;                                                                                              \
        change;                                                                                                        \
        slip_end(&s, status, field, value);                                                                            \
    } while (0)

#endif
