/* test_derivative_arguments.c -- wrong arguments of rp_jvp and rp_hvp: each mistake returns its status and an error
 * that names it, nothing is written, and every allocation may fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"
#include "tests/laws/tangents.h"
#include "tests/starve.h"

static const char *const slip_text =
    "bwd:f32:b2h4g2q5k7d8v6:t5,buckets=8,q_positions=x+dense+relkey,left=2,right=1+alibi:mask";
static double room[4096];

static rp_status call_jvp(const rp_plan *plan, const slip *s)
{
    return rp_jvp(plan, &s->p.t, &s->x);
}

static rp_status call_hvp(const rp_plan *plan, const slip *s)
{
    return rp_hvp(plan, &s->p.t, &s->x, &s->g);
}

/* A mistake in a call of `function`, which is call_jvp or call_hvp. */
#define SLIP_IN(function, change, status, field, value)                                                                \
    do {                                                                                                               \
        slip s;                                                                                                        \
        slip_begin(&s, slip_text);                                                                                     \
        s.call = function;                                                                                             \
        s.x = tangents_of(&s.p, 3, RP_F32, RP_F32);                                                                    \
        slip_output(&s, &s.x.out);                                                                                     \
        slip_output(&s, &s.x.lse);                                                                                     \
        rp_tensors *t = &s.p.t;                                                                                        \
        rp_tangents *x = &s.x;                                                                                         \
        rp_grads *g = &s.g;                                                                                            \
        (void)t, (void)x, (void)g;                                                                                     \
        change;                                                                                                        \
        slip_end(&s, status, field, value);                                                                            \
    } while (0)

#define JVP_SLIP(change, status, field, value) SLIP_IN(call_jvp, change, status, field, value)
#define HVP_SLIP(change, status, field, value) SLIP_IN(call_hvp, change, status, field, value)

static void absent_arrays_are_named(void **state)
{
    const int64_t pairs[4] = {2, 4, 5, 7}, slopes[1] = {4}, positions[1] = {5};
    const void *pages[2] = {room, room};
    (void)state;
    JVP_SLIP(x->size--, RP_E_ARG, "tangents", NULL);
    JVP_SLIP(t->size--, RP_E_ARG, "tensors", NULL);
    JVP_SLIP(t->q.data = NULL, RP_E_ARG, "q", NULL);
    JVP_SLIP(t->v.data = NULL, RP_E_ARG, "of v was given without its array", NULL);
    JVP_SLIP(t->v.data = x->v.data = NULL, RP_E_ARG, "v is missing", NULL);
    JVP_SLIP(x->out.data = x->lse.data = NULL, RP_E_ARG, "tangents has no output", NULL);
    JVP_SLIP(t->term[0][0].data = NULL, RP_E_ARG, "term[0].table", NULL);
    JVP_SLIP(t->weights = rp_array_of(room, RP_F32, 4, pairs), RP_E_ARG, "output other than out and lse", "rp_jvp");
    JVP_SLIP(t->entropy = rp_array_of(room, RP_F32, 3, pairs), RP_E_ARG, "output other than out and lse", "rp_jvp");
    JVP_SLIP(x->term[0][1] = rp_array_of(room, RP_F32, 1, positions), RP_E_ARG, "the tangent of term[0].q_positions",
             "not learned");
    JVP_SLIP(x->term[3][0] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "the tangent of term[3].slopes",
             "without its array");
    JVP_SLIP(x->term[2][7] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "the tangent term[2][7]",
             "relkey has no array 7");
    JVP_SLIP(x->term[4][0] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "the tangent term[4][0]", "n_terms is 4");
    HVP_SLIP(x->term[4][0] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "the tangent term[4][0]", "n_terms is 4");
    HVP_SLIP(g->term[4][0] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "the gradient term[4][0]", "n_terms is 4");
    JVP_SLIP((t->k.data = t->v.data = x->k.data = x->v.data = NULL, t->pages.k = t->pages.v = pages, t->pages.page = 7,
              t->pages.per_batch = 1, t->pages.len_k = 7, t->pages.k_key = t->pages.v_key = 8),
             RP_E_UNSUPPORTED, "pages were given", "rp_jvp");
}

/* Gradients and tangents of each batch entry with a wrong shape. The table has shape (8, 4), the bias (2, 4, 5, 7). */
static void arrays_of_entries_with_wrong_shapes_are_named(void **state)
{
    const int64_t batch[] = {3, 8, 4}, heads[] = {2, 8, 5}, axes[] = {1, 2, 8, 4}, rows[] = {2, 5, 5, 7};
    (void)state;
    for (int n = 0; n < 4; n++) {
        const rp_array a = rp_array_of(room, RP_F32, n < 2 ? 3 : 4,
                                       n == 0   ? batch
                                       : n == 1 ? heads
                                       : n == 2 ? axes
                                                : rows);
        const int32_t term = n == 3;
        const char *shape = n == 0   ? "(3, 8, 4); it must be (2, 8, 4)"
                            : n == 1 ? "(2, 8, 5); it must be (2, 8, 4)"
                            : n == 2 ? "(1, 2, 8, 4); it must be (8, 4)"
                                     : "(2, 5, 5, 7); it must be (2, 4, 5, 7)";
        const char *of = term ? "term[1].bias" : "term[0].table";
        JVP_SLIP(x->term[term][0] = a, RP_E_SHAPE, of, shape);
        HVP_SLIP(x->term[term][0] = a, RP_E_SHAPE, of, shape);
        HVP_SLIP(g->term[term][0] = a, RP_E_SHAPE, of, shape);
        SLIP_IN(NULL, g->term[term][0] = a, RP_E_SHAPE, of, shape);
    }
    SLIP_IN(
        NULL,
        (g->term[0][0] = rp_array_of(room, RP_F32, 3, heads), g->term[0][0].shape[2] = 4, g->term[0][0].stride[0] = 1),
        RP_E_STRIDE, "term[0].table", "share memory");
    SLIP_IN(NULL, (g->term[0][0].ndim = 3, g->term[0][0].shape[0] = INT64_MAX), RP_E_SHAPE, "term[0].table", NULL);
    SLIP_IN(NULL, g->term[0][0].ndim = 5, RP_E_SHAPE, "term[0].table", "axes is 5");
}

static void far_offsets_are_refused(void **state)
{
    static int64_t far[2] = {INT64_C(1) << 62, INT64_C(1) << 62};
    const int64_t batch[1] = {2};
    (void)state;
    JVP_SLIP(t->q_offset = rp_array_of(far, RP_I64, 1, batch), RP_E_RANGE, "tensors.q_offset", NULL);
    HVP_SLIP(t->q_offset = rp_array_of(far, RP_I64, 1, batch), RP_E_RANGE, "tensors.q_offset", NULL);
}

static void ranges_are_refused(void **state)
{
    problem p;
    rp_plan *plan;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 1, "bwd:f32:b1h2q5k600d4");
        rp_tangents x = tangents_of(&p, 3, RP_F32, RP_F32);
        p.desc.isa = isa;
        good(rp_plan_create(&plan, &p.desc));
        p.t.out.data = p.t.lse.data = NULL;
        p.t.key_to = 512;
        p.t.k.shape[2] = p.t.v.shape[2] = 512;
        said(rp_jvp(plan, &p.t, &x), RP_E_UNSUPPORTED, "a range of keys or rows", NULL);
        said(rp_hvp(plan, &p.t, &x, &p.g), RP_E_UNSUPPORTED, "a range of keys or rows", NULL);
        p.t.key_to = 0;
        p.t.k.shape[2] = p.t.v.shape[2] = 600;
        for (int n = 0; n < 4; n++) {
            static const char *const names[] = {"dq_in", "dq_out", "dkv_in", "dkv_out"};
            rp_grads g = p.g;
            rp_array *const to[] = {&g.dq_in, &g.dq_out, &g.dkv_in, &g.dkv_out};
            const int64_t rows[4] = {1, 2, 5, rp_plan_dq_width(plan)}, keys[4] = {1, 2, 600, rp_plan_dkv_width(plan)};
            *to[n] = array_in(&p, RP_F32, 4, n < 2 ? rows : keys);
            if (n == 1)
                g.dq.data = NULL;
            if (n == 3)
                g.dk.data = g.dv.data = NULL;
            said(rp_hvp(plan, &p.t, &x, &g), RP_E_UNSUPPORTED, names[n], "rp_hvp computes all rows and keys");
        }
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

static const struct {
    const char *name;
    size_t offset;
} all[] = {
    {"the tangent of out", offsetof(rp_tangents, out)},
    {"the tangent of lse", offsetof(rp_tangents, lse)},
    {"the tangent of q", offsetof(rp_tangents, q)},
    {"the tangent of k", offsetof(rp_tangents, k)},
    {"the tangent of v", offsetof(rp_tangents, v)},
    {"the tangent of term[0].table", offsetof(rp_tangents, term)},
    {"the tangent of term[1].bias", offsetof(rp_tangents, term) + sizeof(rp_array) * RP_MAX_ARRAYS},
    {"the tangent of term[2].table", offsetof(rp_tangents, term) + 2 * sizeof(rp_array) * RP_MAX_ARRAYS},
};
enum { INPUTS = 2, ALL = sizeof all / sizeof *all }; /* outputs come first */

#define ARRAY ((rp_array *)(void *)((char *)x + all[n].offset))

static void each_tangent_is_checked(void **state)
{
    (void)state;
    for (int n = 0; n < ALL; n++) {
        const char *name = all[n].name;
        JVP_SLIP(ARRAY->shape[0]++, RP_E_SHAPE, name, NULL);
        JVP_SLIP(ARRAY->shape[1]--, RP_E_SHAPE, name, NULL);
        JVP_SLIP(ARRAY->ndim--, RP_E_SHAPE, name, NULL);
        JVP_SLIP(ARRAY->dtype = RP_I32, RP_E_ARG, name, NULL);
        JVP_SLIP(ARRAY->dtype = (rp_dtype)13, RP_E_ARG, name, NULL);
        JVP_SLIP(ARRAY->data = (char *)ARRAY->data + 2, RP_E_ARG, name, NULL);
        JVP_SLIP(ARRAY->stride[0] = INT64_MAX, RP_E_OVERFLOW, name, NULL);
        if (n == 0 || (n >= INPUTS && n < INPUTS + 3))
            JVP_SLIP(ARRAY->stride[3] = 2, RP_E_STRIDE, name, NULL);
    }
}

static void outputs_overlap_nothing(void **state)
{
    (void)state;
    for (int n = 0; n < INPUTS; n++) {
        const char *name = all[n].name;
        JVP_SLIP(ARRAY->stride[0] = 0, RP_E_STRIDE, name, NULL);
        JVP_SLIP(ARRAY->data = t->q.data, RP_E_OVERLAP, name, "overlaps q");
        JVP_SLIP(ARRAY->data = t->term[1][0].data, RP_E_OVERLAP, name, "overlaps");
        JVP_SLIP(ARRAY->data = t->mask[0].data, RP_E_OVERLAP, name, "overlaps");
        JVP_SLIP(ARRAY->data = t->out.data, RP_E_OVERLAP, name, "overlaps");
        JVP_SLIP(ARRAY->data = x->q.data, RP_E_OVERLAP, name, "overlaps the tangent of q");
        JVP_SLIP(ARRAY->data = x->term[0][0].data, RP_E_OVERLAP, name, "overlaps");
        JVP_SLIP(x->out.data = x->lse.data = room, RP_E_OVERLAP, "the tangent of out overlaps", "the tangent of lse");
    }
}

#undef ARRAY

static void second_derivatives_need_their_arrays(void **state)
{
    const int64_t pairs[4] = {2, 4, 5, 7}, keys[4] = {2, 4, 7, 6};
    (void)state;
    HVP_SLIP(x->size--, RP_E_ARG, "tangents", NULL);
    HVP_SLIP(g->size--, RP_E_ARG, "grads", NULL);
    HVP_SLIP(t->size--, RP_E_ARG, "tensors", NULL);
    HVP_SLIP(t->v.data = x->v.data = g->dv.data = NULL, RP_E_ARG, "v is missing", NULL);
    HVP_SLIP(g->dout.shape[2]--, RP_E_SHAPE, "dout", NULL);
    HVP_SLIP(g->dq.shape[2]--, RP_E_SHAPE, "dq", NULL);
    HVP_SLIP(g->term[2][0].dtype = RP_I32, RP_E_ARG, "the gradient of term[2].table", NULL);
    HVP_SLIP(x->q.shape[2]--, RP_E_SHAPE, "the tangent of q", NULL);
    HVP_SLIP(x->term[2][0].dtype = RP_I32, RP_E_ARG, "the tangent of term[2].table", NULL);
    HVP_SLIP(x->out.stride[3] = 2, RP_E_STRIDE, "the tangent of out", NULL);
    HVP_SLIP(t->weights = rp_array_of(room, RP_F32, 4, pairs), RP_E_ARG, "output other than out and lse", "rp_hvp");
    HVP_SLIP(g->dweights = rp_array_of(room, RP_F32, 4, pairs), RP_E_UNSUPPORTED, "dweights was given", "rp_hvp");
    HVP_SLIP(g->dentropy = rp_array_of(room, RP_F32, 3, pairs), RP_E_UNSUPPORTED, "dentropy was given", "rp_hvp");
    HVP_SLIP(g->dkey_mass = rp_array_of(room, RP_F32, 3, keys), RP_E_UNSUPPORTED, "dkey_mass was given", "rp_hvp");
    HVP_SLIP(g->dq.data = x->k.data, RP_E_OVERLAP, "dq overlaps", "the tangent of k");
    HVP_SLIP(g->dq.data = g->dout.data, RP_E_OVERLAP, "dq overlaps dout", NULL);
    HVP_SLIP(x->out.data = g->dq.data, RP_E_OVERLAP, "dq overlaps", "the tangent of out");
    HVP_SLIP(x->out.data = g->dout.data, RP_E_OVERLAP, "the tangent of out", "overlaps dout");
}

/* The gradients and tangents of the two softcaps: numbers, or one for each of two batch entries. */
static void those_of_softcaps_are_checked(void **state)
{
    static const char *const names[] = {"softcap", "softcap_after"};
    const int64_t three[1] = {3}, two[2] = {2, 1};
    (void)state;
    for (int n = 0; n < 2; n++) { /* the problem has no softcap */
        char gradient_of[64], tangent_of[64], zero[64];
        snprintf(gradient_of, sizeof gradient_of, "the gradient of %s", names[n]);
        snprintf(tangent_of, sizeof tangent_of, "the tangent of %s", names[n]);
        snprintf(zero, sizeof zero, "desc.%s is 0", names[n]);
        SLIP_IN(NULL, *gradient(g, SOFTCAPS + n) = rp_array_of(room, RP_F32, 0, NULL), RP_E_ARG, gradient_of, zero);
        HVP_SLIP(*gradient(g, SOFTCAPS + n) = rp_array_of(room, RP_F32, 0, NULL), RP_E_ARG, gradient_of, zero);
        HVP_SLIP(*tangent(x, SOFTCAPS + n) = rp_array_of(room, RP_F32, 0, NULL), RP_E_ARG, tangent_of, zero);
        JVP_SLIP(*tangent(x, SOFTCAPS + n) = rp_array_of(room, RP_F32, 0, NULL), RP_E_ARG, tangent_of, zero);
#define WITH (s.p.desc.softcap = 2, s.p.desc.softcap_after = 3)
        HVP_SLIP((WITH, *gradient(g, SOFTCAPS + n) = rp_array_of(room, RP_F32, 1, three)), RP_E_SHAPE, gradient_of,
                 "(3); it must be (2)");
        SLIP_IN(NULL, (WITH, *gradient(g, SOFTCAPS + n) = rp_array_of(room, RP_F32, 2, two)), RP_E_SHAPE, gradient_of,
                NULL);
        SLIP_IN(NULL, (WITH, *gradient(g, SOFTCAPS + n) = rp_array_of(room, RP_I32, 0, NULL)), RP_E_ARG, gradient_of,
                NULL);
        SLIP_IN(NULL,
                (WITH, *gradient(g, SOFTCAPS + n) = rp_array_of(room, RP_F32, 1, two),
                 gradient(g, SOFTCAPS + n)->stride[0] = 0),
                RP_E_STRIDE, names[n], "share memory");
        SLIP_IN(NULL, (WITH, *gradient(g, SOFTCAPS + n) = rp_array_of(t->q.data, RP_F32, 0, NULL)), RP_E_OVERLAP,
                gradient_of, "overlaps q");
        JVP_SLIP((WITH, *tangent(x, SOFTCAPS + n) = rp_array_of(room, RP_F32, 1, three)), RP_E_SHAPE, tangent_of, NULL);
        JVP_SLIP((WITH, *tangent(x, SOFTCAPS + n) = rp_array_of(x->out.data, RP_F32, 0, NULL)), RP_E_OVERLAP,
                 "the tangent of out", tangent_of);
    }
}

/* A struct of an earlier version ends before the softcaps, and the library reads no further. */
static void shorter_structs_have_no_softcaps(void **state)
{
    const size_t bytes = offsetof(rp_grads, dsoftcap), tangent_bytes = offsetof(rp_tangents, softcap);
    problem p;
    (void)state;
    EACH_PATH(path)
    {
        pose(&p, 1, "bwd:f32:b2h2q5k7d8:t5:dlse+softcap=2+softcap_after=3");
        rp_tangents x = tangents_of(&p, 3, RP_F32, RP_F32);
        rp_grads one = gradients_like(&p, RP_F32), other = gradients_like(&p, RP_F32);
        fence f = fence_of(bytes, true), of_x = fence_of(tangent_bytes, true);
        memcpy(f.data, &one, bytes);
        memcpy(of_x.data, &x, tangent_bytes);
        rp_grads *shorter = (rp_grads *)(void *)f.data;
        rp_tangents *tangents = (rp_tangents *)(void *)of_x.data;
        shorter->size = bytes;
        tangents->size = tangent_bytes;
        hvp(&p, path, tangents, shorter);
        hvp(&p, path, &x, &other);
        for (int n = 0; n < SOFTCAPS; n++)
            if (gradient(&one, n)->data)
                same_numbers(&p, path, gradient_name(&p, n), gradient(&one, n), gradient(&other, n));
        backward(&p, path, shorter, true);
        backward(&p, path, &other, true);
        same_numbers(&p, path, "dlse", &one.dq, &other.dq);
        fence_free(&f);
        fence_free(&of_x);
        problem_free(&p);
    }
}

/* An absent dout is 0: the results and their bounds have the bits of a call with zeros. */
static void without_dout_it_is_0(void **state)
{
    (void)state;
    EACH_PATH(path)
    {
        for (int by_lse = 0; by_lse < 2; by_lse++) {
            slip with, without;
            slip *const both[] = {&with, &without};
            for (int n = 0; n < 2; n++) {
                slip *s = both[n];
                rp_plan *plan;
                slip_begin(s, slip_text);
                s->x = tangents_of(&s->p, 3, RP_F32, RP_F32);
                slip_output(s, &s->x.out);
                slip_output(s, &s->x.lse);
                s->p.desc.isa = path;
                if (n)
                    s->g.dout.data = NULL;
                else
                    memset(s->g.dout.data, 0, (size_t)problem_size(&s->g.dout) * sizeof(float));
                if (!by_lse)
                    s->g.dlse.data = NULL;
                good(rp_plan_create(&plan, &s->p.desc));
                good(rp_hvp(plan, &s->p.t, &s->x, &s->g));
                rp_plan_destroy(plan);
            }
            for (int m = 0; m < with.n; m++)
                assert_memory_equal(with.memory[m], without.memory[m], with.bytes[m]);
            problem_free(&with.p);
            problem_free(&without.p);
        }
    }
}

static void null_pointers_are_refused(void **state)
{
    problem p;
    rp_plan *plan;
    (void)state;
    pose(&p, 1, "%s", slip_text);
    rp_tangents x = tangents_of(&p, 3, RP_F32, RP_F32);
    good(rp_plan_create(&plan, &p.desc));
    said(rp_jvp(NULL, &p.t, &x), RP_E_ARG, "plan is NULL", NULL);
    said(rp_jvp(plan, NULL, &x), RP_E_ARG, "tensors is NULL", NULL);
    said(rp_jvp(plan, &p.t, NULL), RP_E_ARG, "tangents is NULL", NULL);
    said(rp_hvp(NULL, &p.t, &x, &p.g), RP_E_ARG, "plan is NULL", NULL);
    said(rp_hvp(plan, NULL, &x, &p.g), RP_E_ARG, "tensors is NULL", NULL);
    said(rp_hvp(plan, &p.t, NULL, &p.g), RP_E_ARG, "tangents is NULL", NULL);
    said(rp_hvp(plan, &p.t, &x, NULL), RP_E_ARG, "grads is NULL", NULL);
    rp_plan_destroy(plan);
    problem_free(&p);
}

/* Make each allocation of a call fail: it must return RP_E_NOMEM, write nothing and leave no block behind. */
static void a_call_without_memory_writes_nothing(void **state)
{
    rp_status (*const calls[])(const rp_plan *, const slip *) = {call_jvp, call_hvp};
    (void)state;
    for (int call = 0; call < 2; call++) {
        slip s;
        rp_plan *plan;
        slip_begin(&s, "bwd:f32:b2h4g2q7k7d8v6:t5,buckets=8+forget+rope+fire,c=1,L=4,width=5:segments");
        s.x = tangents_of(&s.p, 3, RP_F32, RP_F32);
        good(rp_plan_create(&plan, &s.p.desc));
        good(rp_pool_create(&s.p.t.pool, 2));
        good(calls[call](plan, &s)); /* starts the threads */
        for (int m = 0; m < s.n; m++)
            memset(s.memory[m], 0xa5, s.bytes[m]);
        slip_output(&s, &s.x.out);
        slip_output(&s, &s.x.lse);
        int refused = 0;
        for (long n = 1, last = 1; STARVES && last >= n - 1; n++) {
            const long blocks = starve_blocks;
            starve(n, false);
            const rp_status status = calls[call](plan, &s);
            last = starve_end();
            if (last < n) {
                good(status);
                continue;
            }
            said(status, RP_E_NOMEM, "memory", NULL);
            assert_int_equal(starve_blocks, blocks);
            for (int m = 0; m < s.n; m++)
                for (size_t c = 0; c < s.bytes[m]; c++)
                    assert_int_equal(s.memory[m][c], 0xa5);
            refused++;
        }
        print_message("%d allocations failed\n", refused);
        assert_true(!STARVES || refused >= 6);
        rp_pool_destroy(s.p.t.pool);
        rp_plan_destroy(plan);
        problem_free(&s.p);
    }
}

static int cancel(void *context, double fraction)
{
    (void)fraction;
    return ++*(int *)context;
}

static void a_call_can_be_cancelled(void **state)
{
    problem p;
    rp_plan *plan;
    int calls = 0;
    (void)state;
    pose(&p, 1, "bwd:f32:b2h4q40k40d4");
    rp_tangents x = tangents_of(&p, 3, RP_F32, RP_F32);
    p.t.progress = cancel;
    p.t.progress_context = &calls;
    good(rp_pool_create(&p.t.pool, 1));
    good(rp_plan_create(&plan, &p.desc));
    assert_int_equal(rp_jvp(plan, &p.t, &x), RP_E_CANCELLED);
    assert_int_equal(rp_hvp(plan, &p.t, &x, &p.g), RP_E_CANCELLED);
    assert_int_equal(calls, 2);
    rp_pool_destroy(p.t.pool);
    rp_plan_destroy(plan);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_arrays_are_named),
        cmocka_unit_test(arrays_of_entries_with_wrong_shapes_are_named),
        cmocka_unit_test(far_offsets_are_refused),
        cmocka_unit_test(ranges_are_refused),
        cmocka_unit_test(each_tangent_is_checked),
        cmocka_unit_test(outputs_overlap_nothing),
        cmocka_unit_test(those_of_softcaps_are_checked),
        cmocka_unit_test(shorter_structs_have_no_softcaps),
        cmocka_unit_test(null_pointers_are_refused),
        cmocka_unit_test(second_derivatives_need_their_arrays),
        cmocka_unit_test(without_dout_it_is_0),
        cmocka_unit_test(a_call_without_memory_writes_nothing),
        cmocka_unit_test(a_call_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
