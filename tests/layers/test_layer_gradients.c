/* test_layer_gradients.c -- compares the gradients of layers with finite differences: every input and weight of the
 * published classes and of a layer with each term.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/trial.h"

#define FEW (SANITIZED || EMULATED ? 3 : INT64_MAX) /* number of elements of each array to compare */

/* Compare gradients, multiplied by `factor`, with differences D(h). The error of a difference comes from the third
 * derivative, estimated by D(h) - D(h/2) (three quarters of it remain), and from the rounding of two losses. */
static void compare(const trial *t, const char *what, const rp_array *x, const rp_array *dx, double factor,
                    int64_t most)
{
    const double h = 1e-4, loss = fabs(loss_of(t));
    const int64_t n = problem_size(x), step = n > most ? n / most : 1;
    for (int64_t e = 0; e < n; e += step) {
        const double before = at(x, e);
        double d[2];
        for (int half = 0; half < 2; half++) {
            const double s = half ? h / 2 : h;
            set(x, e, before + s);
            const double up = loss_of(t);
            set(x, e, before - s);
            d[half] = (up - loss_of(t)) / (2 * s);
        }
        set(x, e, before);
        const double bound = fabs(d[0] - d[1]) + 1000 * DBL_EPSILON * fmax(1, loss) / h;
        const double got = factor * at(dx, e);
        if (!(fabs(d[1] - got) <= bound))
            fail_msg("%s: %s, element %lld: the gradient is %.12g, the difference %.12g, bound %.3g", t->name, what,
                     (long long)e, got, d[1], bound);
    }
}

/* Compare every gradient. Two backward passes add twice the gradients of the weights. */
static void check(trial *t, int64_t most)
{
    rp_pool *pool;
    char what[40];
    good(rp_pool_create(&pool, 1));
    t->call.pool = pool;
    run_trial(t);
    run_trial(t);
    compare(t, "query", &t->call.query, &t->g.dquery, 1, most);
    if (t->call.key.ndim)
        compare(t, "key", &t->call.key, &t->g.dkey, 1, most);
    if (t->call.value.ndim)
        compare(t, "value", &t->call.value, &t->g.dvalue, 1, most);
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        if (t->g.term[0][x].data) {
            snprintf(what, sizeof what, "array %d of the term", x);
            compare(t, what, &t->call.term[0][x], &t->g.term[0][x], 1, most);
        }
    rp_layer *const layers[] = {t->layer, t->shared};
    for (int l = 0; l < 2; l++)
        EACH_PARAM(layers[l], w)
        {
            const rp_array x = data_of(&t->d, w), dx = grad_of(&t->d, w);
            compare(t, w->name, &x, &dx, 0.5, most);
        }
    end_trial(t);
    rp_pool_destroy(pool);
}

static void of_published_classes(void **state)
{
    (void)state;
    for (int n = 0; n < TRIALS; n++) {
        trial t;
        published(&t, n, RP_F64);
        check(&t, FEW);
    }
}

/* A loss that also depends on the attention weights of each head, or on their mean. */
static void of_attention_weights(void **state)
{
    (void)state;
    for (int n = 0; n < TRIALS; n++)
        for (int mean = 0; mean < 2; mean++) {
            trial t;
            published(&t, n, RP_F64);
            with_weights(&t, mean);
            check(&t, FEW);
        }
}

static void of_each_term(void **state)
{
    (void)state;
    for (rp_term_kind kind = 1; kind < RP_TERM_COUNT; kind++) {
        trial t;
        for (int sample = 0; one_term(&t, kind, sample, RP_F64); sample++)
            check(&t, SANITIZED ? 2 : 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_published_classes), cmocka_unit_test(of_attention_weights),
                                       cmocka_unit_test(of_each_term)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
