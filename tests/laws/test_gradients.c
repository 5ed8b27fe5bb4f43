/* test_gradients.c -- compares gradients in f64 with central differences of the loss: the sum of the products of out,
 * lse, weights and their summaries with given gradients, computed by the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/gradients.h"

/* A direction in the space of one array: a single element, or random steps in all elements. */
typedef struct probe {
    int n;           /* index of the gradient */
    int64_t element; /* -1: all elements */
    uint64_t seed;
    double slope; /* derivative of the loss along the direction, from differences */
} probe;

static double along(const probe *r, int64_t x, int64_t size)
{
    uint64_t state = r->seed + (uint64_t)x * 0x2545f4914f6cdd1du;
    if (r->element >= 0)
        return x == r->element;
    return ((double)(draw(&state) >> 11) * 0x1p-52 - 1) * sqrt(3 / (double)size);
}

/* Return the sum of the products of an output with its gradient. Add the sum of their absolute values to *size. */
static double part_of_loss(const rp_array *output, const rp_array *of, double *size)
{
    double sum = 0;
    for (int64_t x = 0; of->data && x < problem_size(output); x++) {
        const double value = at(output, x), part = value == -HUGE_VAL ? 0 : at(of, x) * value;
        sum += part;
        *size += fabs(part);
    }
    return sum;
}

/* Return the loss. Set *size to the sum of the absolute values of its summands. */
static double loss(problem *p, double *size)
{
    attend(p, "reference");
    *size = 0;
    return part_of_loss(&p->t.out, &p->g.dout, size) + part_of_loss(&p->t.lse, &p->g.dlse, size) +
           part_of_loss(&p->t.weights, &p->g.dweights, size) + part_of_loss(&p->t.profile, &p->g.dprofile, size) +
           part_of_loss(&p->t.key_mass, &p->g.dkey_mass, size) + part_of_loss(&p->t.entropy, &p->g.dentropy, size);
}

/* Return the derivative of the loss along r, extrapolated from differences over h and h/2. Set *size as `loss` does. */
static double slope_along(problem *p, const probe *r, double h, double *size)
{
    rp_array *a = source_of(p, r->n);
    double *kept = copy_of(a), *data = a->data, slope[2];
    for (int half = 0; half < 2; half++, h /= 2) {
        double side[2];
        for (int s = 0; s < 2; s++) {
            for (int64_t x = 0; x < problem_size(a); x++)
                data[x] = kept[x] + (s ? -h : h) * along(r, x, problem_size(a));
            side[s] = loss(p, size);
        }
        slope[half] = (side[0] - side[1]) / (2 * h);
    }
    memcpy(data, kept, (size_t)problem_size(a) * sizeof *data);
    free(kept);
    return (4 * slope[1] - slope[0]) / 3;
}

enum { PROBES = 3 }; /* directions per array: all elements, and two single elements */

static double worst_slope; /* largest ratio of error to tolerance */

/* Compare the gradients of one f64 problem with differences, on every path, with and without out and lse. */
static void differences_of(problem *p)
{
    probe all[PROBES * 32];
    int n_all = 0;
    double size = 0, h = 0x1p-10;
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        if (p->terms[n].kind == RP_TERM_FIRE) /* fire is smooth only between the kinks of its ReLU */
            h = 0x1p-15;
    also(p, (p->dweights ? WITH_WEIGHTS : 0) | (p->dsummary ? WITH_SUMMARY : 0), RP_F64);
    for (int n = 0; n < GRADIENTS; n++) {
        const int64_t elements = problem_size(gradient(&p->g, n));
        if (!gradient(&p->g, n)->data || elements == 0)
            continue;
        for (int k = 0; k < PROBES; k++, n_all++) {
            assert_true(n_all < PROBES * 32);
            all[n_all] = (probe){n, k ? (k * 7919 + 3) % elements : -1, (uint64_t)n + 1, 0};
            all[n_all].slope = slope_along(p, &all[n_all], h, &size);
        }
    }
    p->t.weights.data = p->t.profile.data = p->t.key_mass.data = p->t.entropy.data = NULL;
    EACH_PATH(path)
    for (int given = 0; given < 2; given++) {
        for (int n = 0; n < GRADIENTS; n++)
            if (gradient(&p->g, n)->data)
                memset(gradient(&p->g, n)->data, 0x7f, (size_t)problem_size(gradient(&p->g, n)) * 8);
        backward(p, path, &p->g, given);
        for (int k = 0; k < n_all; k++) {
            const rp_array *g = gradient(&p->g, all[k].n);
            double sum = 0, squares = 0;
            for (int64_t x = 0; x < problem_size(g); x++) {
                sum += at(g, x) * along(&all[k], x, problem_size(g));
                squares += at(g, x) * at(g, x);
            }
            /* error of the differences: one rounding of each summand of the loss, divided by h */
            const double scale = fabs(all[k].slope) + sqrt(squares / (double)problem_size(g)),
                         error = fabs(sum - all[k].slope), lost = 8 * 0x1p-53 * size / h;
            if (!(error <= 1e-7 * scale + lost))
                wrong(p, path, "%s%s, probe %lld: %.12g, by differences %.12g (scale %.3g, lost %.3g)",
                      gradient_name(p, all[k].n), given ? ", out and lse given" : "", (long long)all[k].element, sum,
                      all[k].slope, scale, lost);
            worst_slope = fmax(worst_slope, error / (1e-7 * scale + lost));
        }
    }
}

/* Every term with several settings, on every path. */
static void gradients_equal_differences(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < TERMS; n++)
        for (int k = 0; k < 3; k++) {
            const char *set = settings[(n * 3 + k * 5) % SETTINGS];
            if (terms[n].sizes && (strstr(set, "q_offsets") || strstr(set, "positions"))) /* grids need offset 0 */
                set = "mask+softcap=1.2+dsoftcap";
            pose(&p, (uint64_t)(n * 3 + k) + 1, "bwd:f64:%s:%s:%s",
                 terms[n].sizes ? terms[n].sizes : small[(n + k) % SMALL], terms[n].text, set);
            differences_of(&p);
            problem_free(&p);
        }
    static const char *const packed[] = {"t5,buckets=8,max_distance=9+rope:segments+causal",
                                         "fire,c=1,L=2,width=3+real,max_distance=3,q_positions=x:segments",
                                         "relkey,left=2,right=1,k_positions=x+sink:segments+softcap=2+dsoftcap"};
    for (int n = 0; n < 3; n++) {
        pose(&p, 7, "bwd:f64:b2h2q9k9d4v3:%s", packed[n]);
        differences_of(&p);
        problem_free(&p);
    }
    /* every mask of the registry, at a size that all of them accept */
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++) {
        pose(&p, 8, "bwd:f64:b2h2q9k9d4v3:t5,buckets=8,max_distance=9:%s", problem_mask((rp_mask_kind)k).text);
        differences_of(&p);
        problem_free(&p);
    }
    print_message("against differences: largest error / tolerance %.3g; it is 1e-7 of the slope\n", worst_slope);
}

/* Every term with every sample text of its scheme. */
static void gradients_of_samples_equal_differences(void **state)
{
    problem p;
    (void)state;
    for (int k = RP_TERM_NONE + 1, n = 0; k < RP_TERM_COUNT; k++) {
        const char *name = rp_term_name((rp_term_kind)k);
        const rp_term_facts *f = rp_term_about((rp_term_kind)k);
        for (int x = 0; x < RP_MAX_SAMPLES && (f->samples[x] || x == 0); x++, n++) {
            const char *sample = f->samples[x] ? f->samples[x] : "";
            const long long tokens = problem_tokens(sample);
            char sizes[64];
            if (tokens)
                snprintf(sizes, sizeof sizes, "b1h2q%lldk%lldd4v3", tokens, tokens);
            else
                snprintf(sizes, sizeof sizes, "%s", small[n % SMALL]);
            pose(&p, (uint64_t)n + 1, "bwd:f64:%s:%s%s%s:%s", sizes, name, *sample ? "," : "", sample,
                 n % 3 == 0   ? ""
                 : n % 3 == 1 ? "causal"
                              : "mask+softcap=1.2+dsoftcap");
            differences_of(&p);
            problem_free(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(gradients_of_samples_equal_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
