/* test_masks.c -- every mask in the registry, including newly added ones: every instruction set matches the definition
 * of the mask, and its entry in the registry is complete.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/definition.h"

/* Sizes that cross the edges of tiles of queries and keys. The last one also suits masks that need as many queries as
 * keys. */
static const char *const sizes[] = {"b2h2q97k530d8o3", "b1h2g1q130k70d8o-9", "b2h2q131k131d8"};
enum { SIZES = sizeof sizes / sizeof *sizes };

static bool fits(rp_mask_kind kind, int size)
{
    return !rp_mask_info_of(kind)->same_lengths || size == SIZES - 1;
}

static void every_mask_matches_the_definition(void **state)
{
    problem p;
    (void)state;
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++)
        for (int n = 0; n < SIZES; n++) {
            if (!fits((rp_mask_kind)k, n))
                continue;
            pose(&p, (uint64_t)k, "fwd:f32:%s:alibi:%s", sizes[n], problem_mask((rp_mask_kind)k).text);
            judged(&p);
            problem_free(&p);
        }
    show("every mask");
}

/* Return an array of booleans that marks the pairs that the mask of p allows. */
static rp_array spelt_out(problem *p)
{
    const rp_desc *d = &p->desc;
    const int64_t shape[4] = {d->batch, d->heads, d->len_q, d->len_k};
    const rp_array all = array_in(p, RP_BOOL, 4, shape);
    int64_t first, end;
    for (int64_t row = 0; row < d->batch * d->heads * d->len_q; row++) {
        uint8_t *keep = (uint8_t *)all.data + row * d->len_k;
        good(rp_mask_row(d, 0, &p->t.mask[0], row / d->len_q / d->heads, row / d->len_q % d->heads, row % d->len_q,
                         &first, &end, keep));
        for (int64_t j = 0; j < d->len_k; j++) /* the interval must contain every allowed key */
            if (keep[j] && (j < first || j >= end))
                wrong(p, "definition", "key %lld is outside %lld to %lld", (long long)j, (long long)first,
                      (long long)end);
    }
    return all;
}

/* A mask gives the same bits as a boolean array of its pairs, forward and backward. So intervals, and rows copied from
 * other rows, do not change a result. */
static void a_mask_equals_the_array_of_its_pairs(void **state)
{
    problem p;
    (void)state;
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++)
        for (int n = 0; n < SIZES; n++)
            EACH_ISA(isa)
            {
                if (!fits((rp_mask_kind)k, n))
                    continue;
                pose(&p, (uint64_t)k, "bwd:f32:%s:alibi:%s", sizes[n], problem_mask((rp_mask_kind)k).text);
                attend(&p, isa);
                backward(&p, isa, &p.g, false);
                void *out = copy_of(&p.t.out);
                rp_grads want = p.g;
                want.dq.data = copy_of(&p.g.dq);
                want.dk.data = copy_of(&p.g.dk);
                want.dv.data = copy_of(&p.g.dv);
                p.t.mask[0] = spelt_out(&p);
                p.masks[0] = rp_mask_init(RP_MASK_PAIRS);
                same_out(&p, isa, rp_mask_name((rp_mask_kind)k), out);
                backward(&p, isa, &p.g, false);
                same_bits(&p, isa, "dq", p.g.dq.data, want.dq.data, (size_t)problem_size(&want.dq) * 4);
                same_bits(&p, isa, "dk", p.g.dk.data, want.dk.data, (size_t)problem_size(&want.dk) * 4);
                same_bits(&p, isa, "dv", p.g.dv.data, want.dv.data, (size_t)problem_size(&want.dv) * 4);
                free(out);
                free(want.dq.data);
                free(want.dk.data);
                free(want.dv.data);
                problem_free(&p);
            }
}

/* With two masks, a pair is attended if both masks allow it. */
static void masks_only_remove_pairs(void **state)
{
    problem p;
    (void)state;
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++) {
        const int n = SIZES - 1;
        pose(&p, 5, "fwd:f32:%s::%s", sizes[n], problem_mask((rp_mask_kind)k).text);
        const rp_array one = spelt_out(&p), kept = p.t.mask[0];
        const rp_mask own = p.masks[0];
        p.masks[0] = rp_mask_init(RP_MASK_PAIRS);
        p.t.mask[0] = one;
        for (int64_t x = 0; x < problem_size(&one); x++)
            ((uint8_t *)one.data)[x] &= x % 3 != 0;
        EACH_ISA(isa)
        {
            attend(&p, isa);
            void *want = copy_of(&p.t.out);
            p.masks[1] = own;
            p.t.mask[1] = kept;
            p.desc.n_masks = 2;
            same_out(&p, isa, "beside a dense mask within it", want);
            p.desc.n_masks = 1;
            free(want);
        }
        problem_free(&p);
    }
}

static void the_registry_is_complete(void **state)
{
    int64_t first, end;
    (void)state;
    assert_null(rp_mask_info_of(RP_MASK_NONE));
    assert_null(rp_mask_info_of(RP_MASK_COUNT));
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++) {
        const rp_mask_info *info = rp_mask_info_of((rp_mask_kind)k);
        rp_mask m = rp_mask_init((rp_mask_kind)k);
        rp_desc d = rp_desc_init(2, 3, 7, 7, 8);
        int32_t ndim;
        int64_t shape[RP_MAX_AXES];
        d.masks = &m;
        d.n_masks = 1;
        assert_string_equal(info->name, rp_mask_name((rp_mask_kind)k));
        assert_true(*info->meaning && *info->text && info->text[strlen(info->text) - 1] != '.');
        assert_false(info->axes && info->sample); /* the option of a mask takes only one value */
        assert_true(!rp_mask_param_of((rp_mask_kind)k, 0) == !info->sample);
        good(rp_mask_shape(&d, 0, &ndim, shape));
        assert_true(info->axes ? ndim > 0 : ndim == 0);
        const rp_mask_param *p;
        for (int x = 0; (p = rp_mask_param_of((rp_mask_kind)k, x)); x++) {
            assert_true(p->min <= p->value && p->value <= p->max);
            assert_true(p->offset >= sizeof m.kind && p->offset + sizeof(int64_t) <= sizeof m);
            if (p->min > INT64_MIN) {
                rp_mask_set(&m, p, p->min - 1);
                assert_int_equal(rp_mask_shape(&d, 0, &ndim, shape), RP_E_RANGE);
                assert_non_null(strstr(rp_last_error(), p->key));
                rp_mask_set(&m, p, p->value);
            }
        }
        d.len_k = info->same_lengths ? 8 : 7;
        assert_int_equal(rp_mask_shape(&d, 0, &ndim, shape), info->same_lengths ? RP_E_SHAPE : RP_OK);
        d.len_k = 7;
        assert_int_equal(rp_mask_row(&d, 0, NULL, 0, 0, 0, &first, &end, NULL), info->axes ? RP_E_ARG : RP_OK);
        assert_int_equal(rp_mask_row(&d, 1, NULL, 0, 0, 0, &first, &end, NULL), RP_E_ARG);
        assert_int_equal(rp_mask_row(&d, 0, NULL, 0, 3, 0, &first, &end, NULL), RP_E_RANGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mask_matches_the_definition),
        cmocka_unit_test(a_mask_equals_the_array_of_its_pairs),
        cmocka_unit_test(masks_only_remove_pairs),
        cmocka_unit_test(the_registry_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
