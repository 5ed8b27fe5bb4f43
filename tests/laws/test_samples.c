/* test_samples.c -- gradients and tangents of learned arrays with an array for each batch entry: they have the bits of
 * calls with one entry, and the gradients of all entries add up to the gradient of the shared array.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/tangents.h"
#include "tests/memory_limit.h"
#include <sys/wait.h>

/* Kinds whose arrays all have an axis for the batch. */
static bool of_entries(rp_term_kind kind)
{
    return kind == RP_TERM_FORGET;
}

/* Cut the axis of the batch of an array of biases or sinks of rows, so that the batch shares it, and some axes of
 * biases after that. */
static void share_biases(problem *p, int how)
{
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        rp_array *a = &p->t.term[n][0];
        const bool dense = p->terms[n].kind == RP_TERM_DENSE;
        if (!dense && !(p->terms[n].kind == RP_TERM_SINK && a->ndim == 3))
            continue;
        a->shape[0] = 1;
        if (dense && how % 3 == 2)
            a->shape[1] = 1;
        if (dense && how % 4 == 3)
            a->shape[2] = 1;
        if (how % 2) {
            a->ndim--;
            memmove(a->shape, a->shape + 1, (size_t)a->ndim * sizeof *a->shape);
        }
        *a = rp_array_of(a->data, a->dtype, a->ndim, a->shape);
        p->g.term[n][0] = array_in(p, p->g.term[n][0].dtype, a->ndim, a->shape);
    }
}

/* Return gradients of which those of shared arrays have an array for each batch entry. Mark the kinds of their
 * terms. */
static rp_grads sampled(problem *p, rp_dtype dtype, bool *seen)
{
    rp_grads g = gradients_like(p, dtype);
    for (int m = 3; m < GRADIENTS; m++) {
        rp_array *to = gradient(&g, m);
        const rp_array *of = source_of(p, m);
        if (to->data && m >= SOFTCAPS)
            *to = array_in(p, dtype, 1, &p->desc.batch);
        if (m >= SOFTCAPS)
            continue;
        const rp_term_kind kind = p->terms[(m - 3) / RP_MAX_ARRAYS].kind;
        int64_t shape[RP_MAX_AXES] = {p->desc.batch};
        int32_t ndim;
        if (!to->data)
            continue;
        good(rp_term_shape(&p->desc, (m - 3) / RP_MAX_ARRAYS, (m - 3) % RP_MAX_ARRAYS, &ndim, shape));
        const bool first = (m - 3) % RP_MAX_ARRAYS == 0;
        /* an axis of the batch, of a dense bias, of angles, or of sinks of rows: (1, H, …) becomes (B, H, …) */
        const bool replaced = of->ndim == RP_MAX_AXES || (kind == RP_TERM_SINK && of->ndim == 3);
        if (of_entries(kind) || (replaced && of->shape[0] > 1) || (kind == RP_TERM_BAND && first) ||
            (kind == RP_TERM_ALIBI && !first))
            continue;
        ndim = of->ndim + !replaced;
        shape[0] = p->desc.batch;
        memcpy(shape + 1, of->shape + replaced, (size_t)(ndim - 1) * sizeof *shape);
        *to = array_in(p, dtype, ndim, shape);
        if (seen)
            seen[kind] = true;
    }
    return g;
}

/* Compare batch entry b of gradients with those of a call of its own. */
static void same_entry(const problem *p, const char *path, int64_t batch, int64_t b, rp_grads *all, rp_grads *alone)
{
    for (int m = 0; m < GRADIENTS; m++) {
        const rp_array *x = gradient(all, m), *y = gradient(alone, m);
        if (!x->data)
            continue;
        const size_t size = (size_t)problem_size(y) * rp_dtype_size(y->dtype);
        if (problem_size(x) != batch * problem_size(y))
            wrong(p, path, "%s has %lld elements, not %lld", gradient_name(p, m), (long long)problem_size(x),
                  (long long)(batch * problem_size(y)));
        same_bits(p, path, gradient_name(p, m), (const char *)x->data + (size_t)b * size, y->data, size);
    }
}

/* Compare the gradients of a problem with those of each entry alone, with 1 to 5 threads in turn. */
static void entries_have_their_own_bits(problem *p, const char *path, int turn, bool *seen)
{
    share_biases(p, turn);
    const rp_dtype dtype = turn % 2 ? RP_F32 : RP_F64;
    rp_grads all = sampled(p, dtype, seen), alone = gradients_like(p, dtype);
    rp_pool *pool;
    good(rp_pool_create(&pool, 1 + turn % 5));
    attend(p, path);
    p->t.pool = pool;
    backward(p, path, &all, turn % 3);
    const rp_desc whole = p->desc;
    const rp_tensors t = p->t;
    const int64_t entries = whole.dropout > 0 ? 1 : whole.batch; /* dropout depends on the index of the entry */
    for (int64_t b = 0; b < entries; b++) {
        take_entry(p, &whole, &t, &all, b, &alone);
        p->t.pool = NULL;
        backward(p, path, &alone, turn % 3);
        same_entry(p, path, whole.batch, b, &all, &alone);
    }
    p->desc = whole;
    p->t = t;
    p->t.pool = NULL;
    rp_pool_destroy(pool);
}

/* Pose problem n: every term with a setting, then each way in which a gradient is summed; with three batch entries. */
static void pose_entries(problem *p, int n, int turn, const char *type)
{
    char text[400];
    if (n >= TERMS) {
        snprintf(text, sizeof text, "%s", sums[n - TERMS]);
    } else {
        const char *how = settings[turn % SETTINGS];
        if (terms[n].sizes && (strstr(how, "q_offsets") || strstr(how, "positions")))
            how = "causal";
        snprintf(text, sizeof text, "%s:%s:%s", terms[n].sizes ? terms[n].sizes : small[turn % SMALL], terms[n].text,
                 how);
    }
    text[1] = '3';
    pose(p, 7 + (uint64_t)turn, "bwd:%s:%s", type, text);
}

static void every_entry_has_the_bits_of_its_own_call(void **state)
{
    bool seen[RP_TERM_COUNT] = {false};
    problem p;
    (void)state;
    for (int n = 0; n < TERMS + SUMS; n++)
        EACH_PATH(path)
        {
            for (int turn = n; turn < n + (n < TERMS ? 3 : 1); turn++) {
                if (n >= TERMS && path_n < 0 && n % 4)
                    continue; /* the reference is slow */
                if (SLOW(path) ? turn % 3 != 0 && !all_cases() : path_n >= 0 && !PART(path, turn, 2))
                    continue;
                pose_entries(&p, n, 5 * turn + path_n + 1, turn % 4 ? "f32" : "bf16");
                entries_have_their_own_bits(&p, path, turn + path_n + 1, seen);
                problem_free(&p);
            }
        }
    for (int kind = 0; kind < RP_TERM_COUNT; kind++)
        for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array((rp_term_kind)kind, x); x++)
            if (rp_term_array_learned((rp_term_kind)kind, x) && !of_entries((rp_term_kind)kind) && !seen[kind])
                fail_msg("no problem has a gradient of %s for each batch entry", rp_term_name((rp_term_kind)kind));
}

/* The gradients of all entries, added in double, and the gradient of the shared array are both within their bounds of
 * the exact gradient. */
static void entries_add_up_to_the_shared_gradient(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < TERMS + SUMS; n++)
        EACH_PATH(path)
        {
            if ((n >= TERMS && path_n < 0) || SLOW(path) || !PART(path, n, n < TERMS ? 2 : 3))
                continue;
            pose_entries(&p, n, n, "f32");
            share_biases(&p, n);
            rp_grads each = sampled(&p, RP_F64, NULL), bounds = sampled(&p, RP_F64, NULL),
                     shared = gradients_like(&p, RP_F64), bound = gradients_like(&p, RP_F64);
            rp_plan *plan;
            attend(&p, path);
            backward(&p, path, &each, true);
            backward(&p, path, &shared, true);
            good(rp_plan_create(&plan, &p.desc));
            good(rp_gradient_bound(plan, &p.t, &bound));
            good(rp_gradient_bound(plan, &p.t, &bounds));
            rp_plan_destroy(plan);
            for (int m = 3; m < GRADIENTS; m++) {
                const rp_array *g = gradient(&shared, m), *e = gradient(&each, m);
                const int64_t size = g->data ? problem_size(g) : 0;
                for (int64_t x = 0; x < size && problem_size(e) > size; x++) {
                    double sum = 0, most = at(gradient(&bound, m), x);
                    for (int64_t b = 0; b < p.desc.batch; b++) {
                        sum += at(e, b * size + x);
                        most += at(gradient(&bounds, m), b * size + x) + 0x1p-50 * fabs(at(e, b * size + x));
                    }
                    if (!(fabs(sum - at(g, x)) <= most) && isfinite(most))
                        wrong(&p, path, "%s[%lld] is %.9g, and the sum of the entries %.9g; bounds %.3g",
                              gradient_name(&p, m), (long long)x, at(g, x), sum, most);
                }
            }
            problem_free(&p);
        }
}

/* Return tangents of which those of shared arrays have an array for each batch entry. */
static rp_tangents sampled_tangents(problem *p, uint64_t seed)
{
    const rp_grads kept = p->g;
    p->g = sampled(p, RP_F32, NULL);
    const rp_tangents x = tangents_of(p, seed, RP_F32, RP_F64);
    p->g = kept;
    return x;
}

/* Let tangents have only batch entry b of those of all entries. */
static void take_tangents(problem *p, const rp_tangents *all, int64_t b, rp_tangents *x)
{
    for (int m = 0; m < GRADIENTS; m++) {
        rp_tangents from = *all;
        const rp_array *a = tangent(&from, m), *of = source_of(p, m);
        if (a->data)
            *tangent(x, m) = rp_array_of((char *)a->data + b * problem_size(of) * (int64_t)rp_dtype_size(a->dtype),
                                         a->dtype, of->ndim, of->shape);
    }
}

/* Return the instruction sets of this machine in turn, without those that are emulated. */
static const char *isa_in_turn(int n)
{
    int found = 0;
    EACH_ISA(isa)
    found += !SLOW(isa);
    n %= found;
    EACH_ISA(isa)
    {
        if (!SLOW(isa) && n-- == 0)
            return isa;
    }
    return NULL;
}

/* Tangents and second derivatives of every entry have the bits of a call of its own. Each problem runs on another
 * instruction set. */
static void entries_have_their_own_derivatives(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < TERMS; n++) {
        pose_entries(&p, n, n, n % 2 ? "f32" : "f64");
        if (p.g.dweights.data || p.g.dprofile.data || p.desc.dropout > 0) {
            drop_weight_gradients(&p);
            p.desc.dropout = 0;
        }
        share_biases(&p, n);
        const rp_tangents x = sampled_tangents(&p, 9);
        rp_grads all = sampled(&p, RP_F64, NULL), alone = gradients_like(&p, RP_F64);
        rp_tangents own = x, first = x; /* `first` is computed by rp_jvp, x by rp_hvp */
        first.out = array_in(&p, RP_F64, 4, p.t.out.shape);
        first.lse = array_in(&p, RP_F64, 3, p.t.out.shape);
        const char *isa = isa_in_turn(n);
        hvp(&p, isa, &x, &all);
        hvp(&p, isa, &first, NULL);
        const rp_desc whole = p.desc;
        const rp_tensors t = p.t;
        own.out = array_in(&p, RP_F64, 4, t.out.shape);
        own.lse = array_in(&p, RP_F64, 3, t.out.shape);
        for (int64_t b = 0; b < whole.batch; b++) {
            take_entry(&p, &whole, &t, &all, b, &alone);
            take_tangents(&p, &x, b, &own);
            own.out.shape[0] = own.lse.shape[0] = 1;
            const size_t out = (size_t)problem_size(&own.out) * 8, lse = (size_t)problem_size(&own.lse) * 8;
            for (int second = 0; second < 2; second++) {
                memset(own.out.data, 0, out);
                memset(own.lse.data, 0, lse);
                hvp(&p, isa, &own, second ? &alone : NULL);
                const rp_tangents *want = second ? &x : &first;
                same_bits(&p, "hvp", "tangent of out", (char *)want->out.data + (size_t)b * out, own.out.data, out);
                same_bits(&p, "hvp", "tangent of lse", (char *)want->lse.data + (size_t)b * lse, own.lse.data, lse);
            }
            same_entry(&p, "hvp", whole.batch, b, &all, &alone);
        }
        p.desc = whole;
        p.t = t;
        problem_free(&p);
    }
}

/* A batch of 0 entries has gradients without elements, and other strides and gaps are respected. */
static void strides_and_empty_batches(void **state)
{
    problem p;
    (void)state;
    EACH_PATH(path)
    {
        for (int layout = 0; layout < 2; layout++) {
            pose(&p, 3, "bwd:f32:b%dh2q9k9d4:t5,buckets=8,max_distance=9+sink:", layout ? 3 : 0);
            rp_grads g = sampled(&p, RP_F32, NULL), packed = sampled(&p, RP_F32, NULL);
            attend(&p, path);
            backward(&p, path, &packed, true);
            rp_array *a = &g.term[0][0]; /* (B, 8, 2), with the entries last in memory */
            const int64_t wide[1] = {1 + 3 * 16 * 5};
            const rp_array memory = array_in(&p, RP_F32, 1, wide);
            a->data = memory.data;
            a->stride[0] = 5;
            a->stride[1] = 30;
            a->stride[2] = 15;
            memset(a->data, 0x7f, (size_t)wide[0] * 4);
            backward(&p, path, &g, true);
            for (int64_t x = 0; x < 3 * 16 * layout; x++) {
                const float *at = (const float *)a->data + x / 16 * 5 + x / 2 % 8 * 30 + x % 2 * 15;
                same_bits(&p, path, "strides", at, (const float *)packed.term[0][0].data + x, 4);
            }
            same_bits(&p, path, "a gap", (const char *)a->data + 4, "\x7f\x7f\x7f\x7f", 4);
            problem_free(&p);
        }
    }
}

/* Ranges of rows and keys: the gradients of the ranges of each entry have the bits of the entry's own ranges. */
static void ranges_of_entries_have_their_own_bits(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 3, "bwd:f32:b3h2q200k300d8:t5,buckets=8,max_distance=9+relkey,left=4,right=3+dense+sink:causal");
        share_biases(&p, 1);
        rp_grads all = sampled(&p, RP_F32, NULL), alone = gradients_like(&p, RP_F32);
        attend(&p, isa);
        all.dq = all.dk = all.dv = alone.dq = alone.dk = alone.dv = (rp_array){0};
        const rp_desc whole = p.desc;
        for (int rows = 0; rows < 2; rows++) {
            const rp_array dout = all.dout;
            rp_tensors t = p.t;
            rp_array *const by_row[] = {&t.q, &t.out, &t.lse, &all.dout};
            t.row_from = rows ? 96 : 0;
            t.row_to = rows ? 200 : 96;
            for (int x = 0; x < 4; x++) {
                by_row[x]->shape[2] = t.row_to - t.row_from;
                by_row[x]->data = (float *)by_row[x]->data + t.row_from * by_row[x]->stride[2];
            }
            const rp_tensors kept = p.t;
            p.t = t;
            backward(&p, isa, &all, true);
            for (int64_t b = 0; b < whole.batch; b++) {
                take_entry(&p, &whole, &t, &all, b, &alone);
                backward(&p, isa, &alone, true);
                same_entry(&p, isa, whole.batch, b, &all, &alone);
            }
            p.desc = whole;
            p.t = kept;
            all.dout = dout;
        }
        problem_free(&p);
    }
}

/* Positions that are fractional, absent or far in one batch entry change no bit of the gradients of another one. */
static void positions_of_other_entries_change_no_bit(void **state)
{
    static const char *const texts[] = {
        "relkey,left=9,right=4,k_position_mask=x+t5,buckets=8,max_distance=9",
        "relval,left=9,right=4,k_position_mask=x+table,left=4,right=4",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_ISA(isa)
        {
            pose(&p, 3, "bwd:f32:b3h2g1q97k300d8:%s:positions", texts[n]);
            for (int m = 3; m < SOFTCAPS; m++) {
                const rp_array *a = source_of(&p, m);
                const char *name =
                    a->data ? rp_term_array(p.terms[(m - 3) / RP_MAX_ARRAYS].kind, (m - 3) % RP_MAX_ARRAYS) : "";
                for (int64_t e = 0; strstr(name, "position") && e < problem_size(a); e++) {
                    const int64_t b = e / a->shape[1], at = e % a->shape[1];
                    if (a->dtype == RP_BOOL)
                        ((uint8_t *)a->data)[e] = b != 1 || at % 5;
                    else
                        set(a, e, b == 0 ? (double)at : b == 1 ? 0.75 * (double)at : 1e9 + 2e7 * (double)at);
                }
            }
            entries_have_their_own_bits(&p, isa, 7, NULL);
            problem_free(&p);
        }
}

/* Memory grows with the length and the batch, never with the square of the length: the scores of this call would have
 * 256 MB. */
static void memory_is_linear(void **state)
{
    problem p;
    (void)state;
    if (SANITIZED || EMULATED) {
        print_message("memory_is_linear: not run, because sanitizers need more memory\n");
        return;
    }
    pose(&p, 3,
         "bwd:f32:b4h1q4096k4096d4:t5,buckets=32,max_distance=64+relkey,left=4,right=4+fire,c=1,L=9,width=3:causal");
    const rp_grads g = sampled(&p, RP_F32, NULL);
    good(rp_pool_create(&p.t.pool, 1));
    attend(&p, rp_isa_default());
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        limit_memory(16);
        _exit((int)attempt_backward(&p, rp_isa_default(), &g, true));
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        wrong(&p, rp_isa_default(), "the child ended with %s %d", WIFEXITED(how) ? "status" : "a signal and",
              WEXITSTATUS(how));
    rp_pool_destroy(p.t.pool);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_has_the_bits_of_its_own_call),
        cmocka_unit_test(entries_add_up_to_the_shared_gradient),
        cmocka_unit_test(entries_have_their_own_derivatives),
        cmocka_unit_test(strides_and_empty_batches),
        cmocka_unit_test(ranges_of_entries_have_their_own_bits),
        cmocka_unit_test(positions_of_other_entries_change_no_bit),
        cmocka_unit_test(memory_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
