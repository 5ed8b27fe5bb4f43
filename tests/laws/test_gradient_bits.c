/* test_gradient_bits.c -- changes that must not change a bit of a gradient: threads, strides, the batch, which other
 * gradients are computed, maximum lengths in the plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/gradients.h"

/* Reduce the axis of heads to length 1 in each array that has one. Its gradient is then a sum over all heads. */
static void share_heads(problem *p)
{
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            rp_array *a = &p->t.term[n][x], *g = &p->g.term[n][x];
            const rp_term_kind kind = p->terms[n].kind;
            if (!g->data || kind == RP_TERM_RELKEY || kind == RP_TERM_RELVAL || kind == RP_TERM_DENSE ||
                kind == RP_TERM_BAND || kind == RP_TERM_FORGET || kind == RP_TERM_FIRE || kind == RP_TERM_AXIALKEY)
                continue;
            for (int axis = 0; axis < a->ndim; axis++)
                if (a->shape[axis] == p->desc.heads)
                    a->shape[axis] = g->shape[axis] = 1;
            *a = rp_array_of(a->data, a->dtype, a->ndim, a->shape);
            *g = rp_array_of(g->data, g->dtype, g->ndim, g->shape);
        }
}

/* Two, three and seven threads give bit-identical results to one thread. */
static void threads_change_no_bit(void **state)
{
    static const int32_t counts[] = {2, 3, 7};
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_ISA(isa)
        {
            /* sums of f64 in a different order would change bits */
            pose(&p, 5, "bwd:%s:%s", n % 2 ? "f32" : "f64", sums[n]);
            if (n % 3 == 0)
                share_heads(&p);
            rp_grads again = gradients_like(&p, p.desc.dtype);
            for (int t = -1; t < 3; t++) {
                rp_pool *pool;
                good(rp_pool_create(&pool, t < 0 ? 1 : counts[t]));
                p.t.pool = pool;
                backward(&p, isa, t < 0 ? &p.g : &again, n % 2);
                if (t >= 0)
                    same_gradients(&p, isa, "more threads than one", &p.g, &again);
                p.t.pool = NULL;
                rp_pool_destroy(pool);
            }
            problem_free(&p);
        }
}

/* Copy the elements to a layout with gaps between rows and with batch entries from last to first. Arrays of terms also
 * get gaps between elements. */
static rp_array scattered(problem *p, const rp_array *a, bool last_contiguous)
{
    const int64_t size = (int64_t)rp_dtype_size(a->dtype);
    rp_array to = *a;
    int64_t step = last_contiguous ? 1 : 2;
    if (!a->data || a->ndim == 0)
        return *a;
    for (int32_t x = a->ndim - 1; x >= 0; x--) {
        to.stride[x] = step;
        step = step * a->shape[x] + 3;
    }
    char *base = problem_alloc(p, (size_t)(step * size));
    assert_non_null(base);
    memset(base, 0x7f, (size_t)(step * size)); /* NaN in the gaps */
    to.stride[0] = -to.stride[0];
    to.data = base + (a->shape[0] - 1) * -to.stride[0] * size;
    int64_t at_axis[RP_MAX_AXES] = {0};
    for (int64_t x = 0; x < problem_size(a); x++) {
        int64_t rest = x, from = 0, where = 0;
        for (int32_t axis = a->ndim - 1; axis >= 0; axis--) {
            at_axis[axis] = rest % a->shape[axis];
            rest /= a->shape[axis];
            from += at_axis[axis] * a->stride[axis];
            where += at_axis[axis] * to.stride[axis];
        }
        memcpy((char *)to.data + where * size, (char *)a->data + from * size, (size_t)size);
    }
    return to;
}

/* Collect the elements of a view in row-major order. */
static void gathered(const rp_array *a, char *to)
{
    const int64_t size = (int64_t)rp_dtype_size(a->dtype);
    for (int64_t x = 0; x < problem_size(a); x++) {
        int64_t rest = x, from = 0;
        for (int32_t axis = a->ndim - 1; axis >= 0; axis--) {
            from += rest % a->shape[axis] * a->stride[axis];
            rest /= a->shape[axis];
        }
        memcpy(to + x * size, (char *)a->data + from * size, (size_t)size);
    }
}

/* Every array has gaps between rows, and batch entries from last to first; keys are also tested as [channels][keys]. */
static void strides_change_no_bit(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_PATH(path)
        {
            if (path_n < 0 && n % 3)
                continue;
            pose(&p, 6, "bwd:%s:%s", n % 2 ? "bf16" : "f32", sums[n]);
            backward(&p, path, &p.g, true);
            rp_grads apart = p.g, kept = p.g, packed = gradients_like(&p, p.desc.dtype);
            rp_tensors t = p.t;
            apart.dout = scattered(&p, &p.g.dout, true);
            for (int m = 0; m < OUTPUT_GRADIENTS; m++)
                if (output_gradient(&p.g, m)->data)
                    *output_gradient(&apart, m) = scattered(&p, output_gradient(&p.g, m), false);
            p.t.q = scattered(&p, &t.q, true);
            p.t.k = n % 2 ? transposed(&p, &t.k) : scattered(&p, &t.k, true);
            p.t.v = scattered(&p, &t.v, true);
            p.t.out = scattered(&p, &t.out, true);
            p.t.lse = scattered(&p, &t.lse, false);
            for (int m = 0; m < GRADIENTS; m++) {
                if (gradient(&kept, m)->data)
                    *gradient(&apart, m) = scattered(&p, gradient(&kept, m), m < 3);
                if (m >= 3)
                    *source_of(&p, m) = scattered(&p, source_of(&p, m), false);
            }
            for (int32_t m = 0; m < p.desc.n_masks; m++)
                p.t.mask[m] = scattered(&p, &t.mask[m], false);
            good(attempt_backward(&p, path, &apart, true));
            for (int m = 0; m < GRADIENTS; m++)
                if (gradient(&packed, m)->data)
                    gathered(gradient(&apart, m), gradient(&packed, m)->data);
            same_gradients(&p, path, "other strides", &kept, &packed);
            problem_free(&p);
        }
}

/* Run one batch entry in a call of its own: every axis that is as long as the batch is cut to that entry. */
static void a_single_entry_has_the_same_gradients(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_ISA(isa)
        {
            if (strstr(sums[n], "dropout")) /* dropout depends on the index of the batch entry */
                continue;
            pose(&p, 7, "bwd:f32:%s", sums[n]);
            backward(&p, isa, &p.g, true);
            rp_grads alone = gradients_like(&p, RP_F32);
            const rp_desc whole = p.desc;
            const rp_tensors t = p.t;
            for (int64_t b = 0; b < whole.batch; b++) {
                take_entry(&p, &whole, &t, &p.g, b, &alone);
                good(attempt_backward(&p, isa, &alone, true));
                for (int m = 0; m < 3; m++) {
                    const rp_array *g = gradient(&p.g, m);
                    same_bits(&p, isa, gradient_name(&p, m), (float *)g->data + b * g->stride[0],
                              gradient(&alone, m)->data, (size_t)g->stride[0] * 4);
                }
                p.desc = whole;
                p.t = t;
            }
            problem_free(&p);
        }
}

/* Compute a single gradient, then all gradients except this one. */
static void unwanted_gradients_change_no_bit(void **state)
{
    problem p;
    const rp_array none = {0};
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_PATH(path)
        {
            if ((path_n + n) % 2 == 0 || path_n < 0)
                continue;
            pose(&p, 8, "bwd:f32:%s", sums[n]);
            backward(&p, path, &p.g, true);
            for (int m = 0; m < GRADIENTS; m++) {
                if (!gradient(&p.g, m)->data)
                    continue;
                rp_grads one = gradients_like(&p, RP_F32), others = one;
                for (int x = 0; x < GRADIENTS; x++)
                    *gradient(x == m ? &others : &one, x) = none;
                good(attempt_backward(&p, path, &one, true));
                same_gradients(&p, path, "alone", &one, &p.g);
                good(attempt_backward(&p, path, &others, true));
                same_gradients(&p, path, "all but one", &others, &p.g);
            }
            rp_grads nothing = rp_grads_init();
            nothing.dout = p.g.dout;
            good(attempt_backward(&p, path, &nothing, true));
            problem_free(&p);
        }
}

/* A plan for flexible lengths gives bit-identical results to a plan for exactly these lengths. */
static void a_flexible_plan_changes_no_bit(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_PATH(path)
        {
            if (strstr(sums[n], "grid") || (path_n < 0 && n % 3))
                continue;
            pose(&p, 9, "bwd:f32:%s", sums[n]);
            backward(&p, path, &p.g, true);
            rp_grads again = gradients_like(&p, RP_F32);
            p.desc.flexible = 1;
            p.desc.len_q += 70;
            p.desc.len_k += 400;
            backward(&p, path, &again, true);
            same_gradients(&p, path, "a flexible plan", &p.g, &again);
            problem_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(strides_change_no_bit),
        cmocka_unit_test(a_single_entry_has_the_same_gradients),
        cmocka_unit_test(unwanted_gradients_change_no_bit),
        cmocka_unit_test(a_flexible_plan_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
