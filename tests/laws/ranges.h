/* ranges.h -- what test_ranges.c and test_rows.c share: calls over ranges of rows or keys compared with one call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_RANGES_H
#define RELPOS_TESTS_RANGES_H

#include "cli/support/random_problem.h"
#include "tests/helpers.h"

enum { KEY_STEP = 512 };

/* Return the number of random problems: most in ./check full. */
HELPER int random_problems(void)
{
    return EMULATED || SANITIZED ? 40 : all_cases() ? 200 : 60;
}

/* Return true for a problem with a network of FIRE that is large for its number of pairs. The network is computed in
 * double for each pair, the same way on every instruction set, and would take nine tenths of the time of a test. */
HELPER bool large_network(const problem *p)
{
    const rp_desc *d = &p->desc;
    for (int32_t n = 0; n < d->n_terms && !all_cases(); n++) {
        const rp_term *t = &p->terms[n];
        const int64_t width = t->width ? t->width : 32, weights = width * (t->width2 ? t->width2 : 1);
        if (t->kind == RP_TERM_FIRE && d->batch * d->heads * d->len_q * d->len_k * weights > 1 << 23)
            return true;
    }
    return false;
}

/* Replace the problem's pool by one with a random number of threads; with state = NULL, by none. */
HELPER void change_pool(problem *p, uint64_t *state)
{
    static const int32_t threads[] = {1, 2, 3, 7};
    rp_pool_destroy(p->t.pool);
    p->t.pool = NULL;
    if (state)
        good(rp_pool_create(&p->t.pool, threads[draw(state) % 4]));
}

/* Let a call write the gradients of terms to memory of its own. */
HELPER void separate_terms(rp_grads *g)
{
    for (int n = 3; n < GRADIENTS; n++)
        if (gradient(g, n)->data) {
            const size_t bytes = (size_t)problem_size(gradient(g, n)) * sizeof(double);
            gradient(g, n)->data = malloc(bytes + 1);
            assert_non_null(gradient(g, n)->data);
            memset(gradient(g, n)->data, 0xff, bytes);
        }
}

/* Add the gradients of terms of a call, if it succeeded, and free them. */
HELPER void add_terms(rp_grads *sum, rp_grads *g, rp_status status)
{
    for (int n = 3; n < GRADIENTS; n++) {
        const rp_array *a = gradient(g, n);
        for (int64_t x = 0; a->data && status == RP_OK && x < problem_size(a); x++)
            ((double *)gradient(sum, n)->data)[x] += ((double *)a->data)[x];
        free(a->data);
    }
}

/* Check that dq, dk and dv have the bits of one call, and that gradients of terms agree up to rounding of f64 if
 * `terms` is set. */
HELPER void check_gradients(const problem *p, const char *isa, rp_grads *one, rp_grads *sum, bool terms)
{
    for (int n = 0; n < GRADIENTS; n++) {
        const rp_array *a = gradient(one, n), *b = gradient(sum, n);
        if (a->data && n < 3)
            same_numbers(p, isa, gradient_name(p, n), a, b);
        else if (a->data && terms)
            near(p, isa, gradient_name(p, n), b->data, a->data, problem_size(a), 1);
    }
}

/* Compare the gradients of a problem that is cut into ranges with those of one call. Return false if a range cannot be
 * computed because of its lse. */
typedef bool range_cut(problem *p, const char *isa, uint64_t *state, bool terms);

/* Cut problems, each `rounds` times; on slow instruction sets, once, and only one of `slow` problems, or half
 * of these outside ./check full. */
HELPER void cut_named(const char *const *texts, size_t n, int rounds, size_t slow, range_cut *cut)
{
    uint64_t state = 17;
    for (size_t x = 0; x < n; x++) {
        problem p;
        pose(&p, x, "fwdbwd:%s", texts[x]);
        also(&p, WITH_LSE, RP_F64);
        const int kept = p.n_memory;
        for (int round = 0; round < rounds; round++)
            EACH_ISA(isa)
            {
                if (SLOW(isa) ? x % (all_cases() ? slow : 2 * slow) == 0 && round == 0
                              : PART(isa, x + (size_t)round, 2))
                    assert_true(cut(&p, isa, &state, true));
                release(&p, kept);
            }
        problem_free(&p);
    }
}

/* Cut random problems with gradients, of more than `rows` rows. Every second one has more than `other_keys` keys, the
 * rest more than `keys`. */
HELPER void cut_random(uint64_t seed, int64_t rows, int64_t keys, int64_t other_keys, range_cut *cut)
{
    uint64_t state = 2;
    problem_dice dice = {.seed = seed};
    const int problems = random_problems();
    int compared = 0;
    for (int n = 0, cases = 0; cases < problems; n++) {
        problem p;
        char text[512], err[512];
        problem_draw(&dice, 1 << 21, text);
        if (problem_parse(&p, text, err) != 0 || p.desc.len_q <= rows ||
            p.desc.len_k <= (cases % 2 ? other_keys : keys) || !(p.pass & PROBLEM_BACKWARD) || large_network(&p) ||
            problem_fill(&p, (uint64_t)n, err) != 0)
            continue;
        cases++;
        also(&p, WITH_LSE, RP_F64);
        EACH_ISA(isa)
        {
            /* such an emulator keeps small halves when keys are packed, and loses them in kernels that load keys
             * without packing; which one happens depends on the threads */
            const bool lost = p.wild && p.desc.dtype == RP_F16 && loses_small_halves();
            if (!lost && (!SLOW(isa) || cases % 20 == 0))
                compared += cut(&p, isa, &state, false);
        }
        problem_free(&p);
    }
    assert_true(compared > problems / 2); /* on a machine with only one instruction set, too */
}

#endif
