/* test_returns.c -- get each error of functions in relpos.h, terms.h and facts.h that other tests do not get, for the
 * comparison with their Returns paragraphs (tests/returns.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include "tests/starve.h"
#include <relpos/facts.h>

#define HUGE_STRIDE ((int64_t)1 << 61)

static problem p;
static rp_plan *plan;

static void begin(const char *text, const char *isa)
{
    pose(&p, 6, "%s", text);
    p.desc.isa = isa;
    good(rp_plan_create(&plan, &p.desc));
}

static void end(void)
{
    rp_plan_destroy(plan);
    problem_free(&p);
}

#define GETS(want, call)                                                                                               \
    do {                                                                                                               \
        const rp_status got_ = call;                                                                                   \
        if (got_ != (want))                                                                                            \
            fail_msg("%s: %s (\"%s\"), not %s", #call, rp_status_name(got_), rp_last_error(), rp_status_name(want));   \
    } while (0)

/* Make each allocation of a call fail in turn. `undo` frees the result of a call that succeeds. */
#define GETS_NOMEM(call, undo)                                                                                         \
    do {                                                                                                               \
        int refused_ = 0;                                                                                              \
        for (long n_ = 1, last_ = 1; STARVES && last_ >= n_ - 1; n_++) {                                               \
            starve(n_, false);                                                                                         \
            const rp_status got_ = call;                                                                               \
            last_ = starve_end();                                                                                      \
            refused_ += got_ == RP_E_NOMEM;                                                                            \
            if (got_ == RP_OK) {                                                                                       \
                undo;                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        if (STARVES && !refused_)                                                                                      \
            fail_msg("%s never returns RP_E_NOMEM", #call);                                                            \
    } while (0)

static void each_reader_of_a_description(const rp_desc *d, rp_status want)
{
    static float q[64], k[64], v[64], out[64];
    rp_plan *none;
    int32_t ndim;
    int64_t shape[RP_MAX_AXES], first, last;
    GETS(want, rp_plan_create(&none, d));
    assert_null(none);
    GETS(want, rp_term_shape(d, 0, 0, &ndim, shape));
    GETS(want, rp_mask_shape(d, 0, &ndim, shape));
    GETS(want, rp_mask_row(d, 0, NULL, 0, 0, 0, &first, &last, NULL));
    GETS(want, rp_attention(d, q, k, v, out));
}

static void descriptions(void **state)
{
    (void)state;
    rp_term ropes[2] = {rp_term_init(RP_TERM_ROPE), rp_term_init(RP_TERM_ROPE)};
    rp_mask mask = rp_mask_init(RP_MASK_SEGMENTS);
    rp_desc d = rp_desc_init(1, 2, 3, 4, 8);
    d.masks = &mask, d.n_masks = 1;
    each_reader_of_a_description(NULL, RP_E_ARG);
    each_reader_of_a_description(&d, RP_E_SHAPE);
    d.len_k = 3, d.terms = ropes, d.n_terms = 2;
    each_reader_of_a_description(&d, RP_E_UNSUPPORTED);
    d.n_terms = 0, d.heads = 0;
    each_reader_of_a_description(&d, RP_E_RANGE);
    d.batch = d.heads = (int64_t)1 << 40;
    each_reader_of_a_description(&d, RP_E_OVERFLOW);
}

static void one_call(void **state)
{
    static float q[48], k[48], v[48], out[48];
    rp_plan *made;
    (void)state;
    const rp_desc d = rp_desc_init(1, 2, 3, 3, 8);
    GETS(RP_OK, rp_attention(&d, q, k, v, out));
    GETS(RP_E_OVERLAP, rp_attention(&d, q, k, v, v));
    GETS_NOMEM(rp_attention(&d, q, k, v, out), (void)0);
    GETS_NOMEM(rp_plan_create(&made, &d), rp_plan_destroy(made));
}

static void loop(void *context, int32_t count, rp_work *work, void *data)
{
    (void)context, (void)count;
    work(data);
}

static void pools(void **state)
{
    (void)state;
    rp_pool *pool;
    GETS_NOMEM(rp_pool_create(&pool, 2), rp_pool_destroy(pool));
    GETS_NOMEM(rp_pool_from(&pool, loop, NULL, 2), rp_pool_destroy(pool));
}

static void each_reader_of_tensors(const rp_tensors *t, rp_status want)
{
    static double weights[256];
    rp_row row = {.weights = weights};
    rp_part part[RP_MAX_PARTS] = {0};
    int32_t n_parts;
    const int64_t whole[4] = {p.desc.batch, p.desc.heads, p.desc.len_q, p.desc.dim_k};
    const rp_array bound = array_in(&p, RP_F64, 4, whole), dout = array_in(&p, RP_F32, 4, whole);
    rp_grads g = rp_grads_init();
    g.dout = dout, g.dq = bound;
    GETS(want, rp_attend_row(plan, t, 0, 0, 0, &row));
    GETS(want, rp_attend_parts(plan, t, 0, 0, 0, part, &n_parts));
    GETS(want, rp_error_bound(plan, t, &bound));
    GETS(want, rp_gradient_bound(plan, t, &g));
    rp_tangents x = rp_tangents_init();
    x.out = bound;
    GETS(want, rp_tangent_bound(plan, t, &x));
    x.out.data = NULL;
    GETS(want, rp_hvp_bound(plan, t, &x, &g));
}

static void calls(void **state)
{
    (void)state;
    begin("fwd:f32:b2h2q6k6d4:swin,grid=2x3", "generic");
    static int64_t far[2] = {HUGE_STRIDE, HUGE_STRIDE};
    static double weights[256];
    const int64_t batch[1] = {2}, all[3] = {2, 6, 6}, groups[3] = {2, 2, 1};
    const rp_array bias = array_in(&p, RP_F32, 3, all), norms = array_in(&p, RP_F32, 3, groups);
    rp_row row = {.weights = weights};
    rp_part part[RP_MAX_PARTS] = {0};
    int32_t n_parts;
    rp_tensors t = p.t;
    t.out.data = NULL;
    each_reader_of_tensors(&t, RP_OK);
    t.q_offset = rp_array_of(far, RP_I64, 1, batch);
    each_reader_of_tensors(&t, RP_E_RANGE);
    GETS(RP_E_RANGE, rp_bias(plan, &t, 0, &bias));
    far[0] = far[1] = 0;
    each_reader_of_tensors(&t, RP_E_UNSUPPORTED);
    GETS(RP_E_UNSUPPORTED, rp_bias(plan, &t, 0, &bias));
    t.q_offset.data = NULL, t.q.stride[3] = t.v.stride[3] = 2;
    each_reader_of_tensors(&t, RP_E_STRIDE);
    GETS(RP_E_STRIDE, rp_key_norms(plan, &t, 0, &norms));
    t.q.stride[3] = t.v.stride[3] = 1, t.q.stride[0] = t.v.stride[0] = t.term[0][0].stride[0] = HUGE_STRIDE;
    each_reader_of_tensors(&t, RP_E_OVERFLOW);
    GETS(RP_E_OVERFLOW, rp_bias(plan, &t, 0, &bias));
    GETS(RP_E_OVERFLOW, rp_key_norms(plan, &t, 0, &norms));
    t = p.t, t.out.data = NULL, t.q.shape[1]--;
    each_reader_of_tensors(&t, RP_E_SHAPE);
    t.q.shape[1]++;
    rp_grads g = rp_grads_init();
    g.dout = p.t.out, g.dq = t.q, g.dq.dtype = RP_F64;
    GETS(RP_E_OVERLAP, rp_gradient_bound(plan, &t, &g));
    rp_tangents x = rp_tangents_init();
    x.out = g.dq;
    GETS(RP_E_OVERLAP, rp_tangent_bound(plan, &t, &x));
    x.out.data = NULL;
    GETS(RP_E_OVERLAP, rp_hvp_bound(plan, &t, &x, &g));
    GETS_NOMEM(rp_attend_row(plan, &t, 0, 0, 0, &row), (void)0);
    GETS_NOMEM(rp_attend_parts(plan, &t, 0, 0, 0, part, &n_parts), (void)0);
    GETS_NOMEM(rp_bias(plan, &t, 0, &bias), (void)0);
    GETS_NOMEM(rp_key_norms(plan, &t, 0, &norms), (void)0);
    end();
    begin("fwd:f32:b2h2q6k100d4:", "reference");
    t = p.t, t.key_to = 64;
    GETS(RP_E_UNSUPPORTED, rp_key_norms(plan, &t, 0, &norms));
    end();
}

static void preparing(void **state)
{
    (void)state;
    begin("fwd:f32:b1h2q6k6d4:table,left=2,right=3", "generic");
    static const double far[6] = {1e300};
    const int64_t six[1] = {6};
    rp_prepared *prepared;
    rp_tensors t = p.t;
    t.term[0][0].shape[1]--;
    GETS(RP_E_SHAPE, rp_prepare(&prepared, plan, &t));
    assert_null(prepared);
    t.term[0][0].shape[1]++, t.term[0][0].stride[0] = HUGE_STRIDE;
    GETS(RP_E_OVERFLOW, rp_prepare(&prepared, plan, &t));
    t = p.t, t.term[0][1] = t.term[0][2] = rp_array_of(far, RP_F64, 1, six);
    GETS(RP_E_RANGE, rp_prepare(&prepared, plan, &t));
    GETS_NOMEM(rp_prepare(&prepared, plan, &p.t), rp_prepared_destroy(prepared));
    end();
}

/* The rp_term of an older program, which ends before most fields. */
enum { OLD = 16 };

static void terms(void **state)
{
    static const float data[4];
    static const double none[2] = {0, 0};
    (void)state;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX], text[1024];
    double frequency[4], factor;
    rp_term t = rp_term_init(RP_TERM_BAND), whole;
    rp_array arrays[RP_MAX_ARRAYS] = {{0}};
    const int64_t p_shape[2] = {3, 5}, empty[2] = {3, 0};
    GETS(RP_E_ARG, rp_term_parse_sized("nothing", &whole, sizeof whole, names));
    GETS(RP_E_UNSUPPORTED, rp_term_parse_sized("t5,table=x,buckets=64", &whole, OLD, names));
    GETS(RP_E_ARG, rp_term_print_sized(NULL, sizeof t, text, sizeof text));
    GETS(RP_E_RANGE, rp_term_print_sized(&t, sizeof t, text, 3));
    arrays[1] = rp_array_of(data, RP_F32, 2, empty);
    GETS(RP_E_SHAPE, rp_term_sizes_sized(&t, OLD, arrays));
    arrays[1] = rp_array_of(data, RP_F32, 2, p_shape);
    GETS(RP_E_UNSUPPORTED, rp_term_sizes_sized(&t, OLD, arrays));
    GETS(RP_E_UNSUPPORTED, rp_term_usual_sizes_sized(&t, OLD, 10));
    GETS(RP_E_ARG, rp_term_usual_sizes(NULL, 10));
    rp_term rope = rp_term_init(RP_TERM_ROPE);
    rope.dim = 4;
    GETS(RP_E_ARG, rp_rope_frequencies(&t, 10, NULL, NULL, frequency, &factor));
    GETS(RP_E_RANGE, rp_rope_frequencies(&rope, NAN, none, none, frequency, &factor));
    GETS(RP_E_ARG, rp_rope_frequencies_sized(&t, sizeof t, 10, NULL, NULL, frequency, &factor));
    GETS(RP_E_RANGE, rp_rope_frequencies_sized(&rope, sizeof rope, NAN, none, none, frequency, &factor));
}

/* main hides some instruction sets, so that this machine lacks them. */
static void measurements(void **state)
{
    (void)state;
    rp_pool *pool;
    double rate;
    good(rp_pool_create(&pool, 1));
    const char *name;
    for (int x = 0; (name = rp_isa_name(x)) != NULL; x++)
        if (!rp_isa_found(name))
            GETS(RP_E_UNSUPPORTED, rp_measure_peak(name, pool, &rate));
    GETS(RP_E_ARG, rp_measure_bandwidth(pool, NULL));
    GETS_NOMEM(rp_measure_peak("generic", pool, &rate), (void)0);
    GETS_NOMEM(rp_measure_bandwidth(pool, &rate), (void)0);
    GETS(RP_E_UNSUPPORTED, rp_measure_tile_peak(pool, &rate));
    rp_pool_destroy(pool);
}

int main(void)
{
    setenv("RELPOS_HIDE_ISA", "avx512,amx", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(descriptions), cmocka_unit_test(one_call),
                                       cmocka_unit_test(pools),        cmocka_unit_test(calls),
                                       cmocka_unit_test(preparing),    cmocka_unit_test(terms),
                                       cmocka_unit_test(measurements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
