/* test_random_bits.c -- random problems give the same bits in other ways to compute them: by 2 to 16 threads, without
 * skipping, an entry of the batch alone, padding after the keys, ranges of rows (decoding and prefilling in parts),
 * ranges of keys, and gradients and tangents by other numbers of threads. The default instruction set computes them.
 *
 *     test_random_bits [PROBLEMS [SEED]]
 *     test_random_bits TEXT SEED         one problem, with the numbers of this seed
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/random_problem.h"
#include "cli/support/sample_problem.h"
#include "tests/helpers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 16, RESULTS = 9 + RP_MAX_TERMS * RP_MAX_ARRAYS };
typedef enum way { THREADS, SKIPPING, ALONE, PADDED, ROWS, KEYS, WAYS } way;
static const char *const names[WAYS] = {"threads", "without skipping", "an entry alone",
                                        "padding", "ranges of rows",   "ranges of keys"};
static long compared[WAYS];
static rp_pool *pools[MOST_THREADS + 1];

/* A problem, and its results with one thread. */
typedef struct trial {
    problem *p;
    const rp_plan *plan;
    uint64_t seed, dice;
    int code;
} trial;

static int64_t roll(trial *t, int64_t n)
{
    return (int64_t)(problem_next(&t->dice) % (uint64_t)n);
}

static void finding(trial *t, const char *what, const char *more)
{
    printf("FINDING test_random_bits '%s' %llu: %s: %s\n", t->p->text, (unsigned long long)t->seed, what, more);
    fflush(stdout);
    t->code = 1;
}

/* List the results of a problem: out first. */
static void results(rp_tensors *t, rp_grads *g, rp_tangents *x, rp_array *to[RESULTS])
{
    rp_array *const first[] = {&t->out, &t->lse, &x->out,      &x->lse,           &g->dq,
                               &g->dk,  &g->dv,  &g->dsoftcap, &g->dsoftcap_after};
    int n = 0;
    for (size_t k = 0; k < sizeof first / sizeof *first; k++)
        to[n++] = first[k];
    for (int32_t term = 0; term < RP_MAX_TERMS; term++)
        for (int k = 0; k < RP_MAX_ARRAYS; k++)
            to[n++] = &g->term[term][k];
}

/* Give every result of a call memory of its own, filled with NaN. */
static void separate(problem *p, rp_array *a)
{
    const size_t bytes = (size_t)problem_size(a) * rp_dtype_size(a->dtype);
    if (!a->data)
        return;
    a->data = problem_alloc(p, bytes);
    if (!a->data)
        abort();
    memset(a->data, 0xff, bytes);
}

static rp_status run(const trial *t, const rp_plan *plan, rp_tensors *with, rp_grads *g, rp_tangents *x)
{
    rp_status status = RP_OK;
    if (t->p->pass & (PROBLEM_FORWARD | PROBLEM_BACKWARD))
        status = rp_attend(plan, with, NULL);
    if (status == RP_OK && t->p->pass & PROBLEM_BACKWARD)
        status = rp_backward(plan, with, g, NULL);
    rp_tensors without = *with;
    without.out = without.lse = (rp_array){0};
    if (status == RP_OK && t->p->pass & PROBLEM_TANGENTS)
        status = rp_jvp(plan, &without, x);
    if (status == RP_OK && t->p->pass & PROBLEM_SECOND)
        status = rp_hvp(plan, &without, x, g);
    return status;
}

/* Compute all results again, and compare them. */
static void again(trial *t, way how, const rp_plan *plan, rp_pool *pool)
{
    rp_tensors with = t->p->t;
    rp_grads g = t->p->g;
    rp_tangents x = t->p->x;
    rp_array *first[RESULTS], *second[RESULTS];
    results(&t->p->t, &t->p->g, &t->p->x, first);
    results(&with, &g, &x, second);
    for (int n = 0; n < RESULTS; n++)
        separate(t->p, second[n]);
    with.pool = pool;
    if (run(t, plan, &with, &g, &x) != RP_OK) {
        finding(t, names[how], rp_last_error());
        return;
    }
    compared[how]++;
    for (int n = 0; n < RESULTS; n++)
        if (first[n]->data && memcmp(first[n]->data, second[n]->data,
                                     (size_t)problem_size(first[n]) * rp_dtype_size(first[n]->dtype)) != 0) {
            char text[64];
            snprintf(text, sizeof text, "result %d differs", n);
            finding(t, names[how], text);
        }
}

static void other_threads(trial *t)
{
    const int64_t n = 2 + roll(t, MOST_THREADS - 1);
    if (!pools[n] && rp_pool_create(&pools[n], (int32_t)n) != RP_OK)
        abort();
    again(t, THREADS, t->plan, pools[n]);
}

static void without_skipping(trial *t)
{
    rp_plan *plan;
    setenv("RELPOS_SKIP", "0", 1);
    const rp_status status = rp_plan_create(&plan, &t->p->desc);
    unsetenv("RELPOS_SKIP");
    if (status != RP_OK)
        finding(t, names[SKIPPING], rp_last_error());
    else
        again(t, SKIPPING, plan, NULL);
    rp_plan_destroy(plan);
}

/* Return n elements of an axis, from `first` on. */
static void cut(rp_array *a, int32_t axis, int64_t first, int64_t n)
{
    a->data = (char *)a->data + first * a->stride[axis] * (int64_t)rp_dtype_size(a->dtype);
    a->shape[axis] = n;
}

/* Cut the first axis of an array to entry b if it has one element for each entry. */
static bool cut_entry(rp_array *a, int32_t ndim, const int64_t *before, const int64_t *after, int64_t b)
{
    for (int32_t x = 0; a->data && x < ndim; x++) {
        if (before[x] != after[x] && (x > 0 || after[x] != 1))
            return false;
        if (before[x] != after[x])
            cut(a, x, b, 1);
    }
    return true;
}

static void compare_rows(trial *t, way how, const rp_array *all, int64_t b, int64_t row, const rp_array *part)
{
    const int64_t width = part->shape[3] * (int64_t)rp_dtype_size(part->dtype);
    for (int64_t h = 0; h < part->shape[1]; h++)
        for (int64_t e = 0; e < part->shape[0]; e++)
            if (memcmp((char *)all->data + (((b + e) * all->shape[1] + h) * all->shape[2] + row) * width,
                       (char *)part->data + (e * part->shape[1] + h) * part->shape[2] * width,
                       (size_t)(part->shape[2] * width)) != 0) {
                char text[96];
                snprintf(text, sizeof text, "rows from %lld on of head %lld, entry %lld differ", (long long)row,
                         (long long)h, (long long)(b + e));
                finding(t, names[how], text);
                return;
            }
}

/* Scalings of RoPE choose frequencies by the keys of the whole call; dropout depends on the number of the entry. */
static bool depends_on_call(const problem *p)
{
    return strstr(p->text, "scaling=dynamic") || strstr(p->text, "scaling=longrope") || p->desc.dropout > 0;
}

static void entry_alone(trial *t)
{
    const rp_desc *d = &t->p->desc;
    rp_desc one = *d;
    rp_tensors with = t->p->t;
    const int64_t b = roll(t, d->batch);
    rp_array *const rows[3] = {&with.q, &with.k, &with.v};
    int32_t ndim;
    int64_t before[RP_MAX_AXES], after[RP_MAX_AXES];
    if (d->batch == 1 || depends_on_call(t->p) || strstr(t->p->text, "interleave=") || strstr(t->p->text, "tile="))
        return;
    one.batch = 1;
    for (int n = 0; n < 3; n++)
        cut(rows[n], 0, b, 1);
    if (with.q_offset.data)
        cut(&with.q_offset, 0, b, 1);
    for (int32_t n = 0; n < d->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (with.term[n][x].data &&
                (rp_term_shape(d, n, x, &ndim, before) != RP_OK || rp_term_shape(&one, n, x, &ndim, after) != RP_OK ||
                 !cut_entry(&with.term[n][x], ndim, before, after, b)))
                return;
    for (int32_t n = 0; n < d->n_masks; n++)
        if (with.mask[n].data &&
            (rp_mask_shape(d, n, &ndim, before) != RP_OK || rp_mask_shape(&one, n, &ndim, after) != RP_OK ||
             !cut_entry(&with.mask[n], ndim, before, after, b)))
            return;
    rp_plan *plan;
    with.lse = (rp_array){0};
    cut(&with.out, 0, b, 1);
    with.out = rp_array_of(with.out.data, with.out.dtype, 4, with.out.shape);
    separate(t->p, &with.out);
    rp_status status = rp_plan_create(&plan, &one);
    if (status == RP_OK)
        status = rp_attend(plan, &with, NULL);
    if (status != RP_OK)
        finding(t, names[ALONE], rp_last_error());
    else
        compare_rows(t, ALONE, &t->p->t.out, b, 0, &with.out);
    compared[ALONE] += status == RP_OK;
    rp_plan_destroy(plan);
}

/* Return true if every array of terms and masks has the same shape in two descriptions. */
static bool same_shapes(const rp_desc *one, const rp_desc *two, const rp_tensors *with)
{
    int32_t n1, n2;
    int64_t shape[2][RP_MAX_AXES];
    for (int32_t n = 0; n < one->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (with->term[n][x].data &&
                (rp_term_shape(one, n, x, &n1, shape[0]) != RP_OK || rp_term_shape(two, n, x, &n2, shape[1]) != RP_OK ||
                 n1 != n2 || memcmp(shape[0], shape[1], (size_t)n1 * sizeof(int64_t)) != 0))
                return false;
    for (int32_t n = 0; n < one->n_masks; n++)
        if (with->mask[n].data &&
            (rp_mask_shape(one, n, &n1, shape[0]) != RP_OK || rp_mask_shape(two, n, &n2, shape[1]) != RP_OK ||
             n1 != n2 || memcmp(shape[0], shape[1], (size_t)n1 * sizeof(int64_t)) != 0))
            return false;
    return true;
}

/* Return keys or values with padding after those of each head. */
static rp_array padded(trial *t, const rp_array *a, int64_t length)
{
    const int64_t shape[4] = {a->shape[0], a->shape[1], length, a->shape[3]};
    const size_t element = rp_dtype_size(a->dtype), row = (size_t)a->shape[3] * element;
    rp_array to = rp_array_of(NULL, a->dtype, 4, shape);
    char *at = to.data = problem_alloc(t->p, (size_t)problem_size(&to) * element);
    if (!at)
        abort();
    for (int64_t x = 0; x < shape[0] * shape[1] * length; x++) {
        const int64_t head = x / length, j = x % length;
        memcpy(at + (size_t)x * row, (char *)a->data + (size_t)(head * a->shape[2] + j % a->shape[2]) * row, row);
    }
    return to;
}

/* Append copies of the first keys and values, which a mask of lengths hides. Problems with an array whose shape depends
 * on the number of keys are left out, and those that give positions or angles of both q and k, which need as many
 * queries as keys. */
static void padded_keys(trial *t)
{
    const rp_desc *d = &t->p->desc;
    rp_desc two = *d;
    rp_tensors with = t->p->t;
    rp_mask masks[RP_MAX_MASKS] = {0};
    two.len_k += 1 + roll(t, roll(t, 2) == 0 ? 8 : 600);
    if (d->n_masks == RP_MAX_MASKS || depends_on_call(t->p) || strstr(t->p->text, "positions=") ||
        strstr(t->p->text, "angles=") || !same_shapes(d, &two, &with))
        return;
    for (int32_t n = 0; n < d->n_masks; n++)
        masks[n] = d->masks[n];
    masks[two.n_masks] = rp_mask_init(RP_MASK_LENGTHS);
    int64_t *lengths = problem_alloc(t->p, (size_t)d->batch * sizeof *lengths);
    if (!lengths)
        abort();
    for (int64_t b = 0; b < d->batch; b++)
        lengths[b] = d->len_k;
    with.mask[two.n_masks++] = rp_array_of(lengths, RP_I64, 1, &d->batch);
    two.masks = masks;
    with.k = padded(t, &with.k, two.len_k);
    with.v = padded(t, &with.v, two.len_k);
    with.lse = (rp_array){0};
    separate(t->p, &with.out);
    rp_plan *plan = NULL;
    rp_status status = rp_plan_create(&plan, &two);
    if (status == RP_OK)
        status = rp_attend(plan, &with, NULL);
    if (status != RP_OK)
        finding(t, names[PADDED], rp_last_error());
    else
        compare_rows(t, PADDED, &t->p->t.out, 0, 0, &with.out);
    compared[PADDED] += status == RP_OK;
    rp_plan_destroy(plan);
}

/* Compute some rows in a call; every third range has only one, as a step of decoding has. */
static void some_rows(trial *t)
{
    const rp_desc *d = &t->p->desc;
    rp_tensors with = t->p->t;
    if (d->len_q < 2)
        return;
    with.row_from = roll(t, d->len_q);
    with.row_to = roll(t, 3) == 0 ? with.row_from + 1 : with.row_from + 1 + roll(t, d->len_q - with.row_from);
    const int64_t n = with.row_to - with.row_from;
    cut(&with.q, 2, with.row_from, n);
    with.lse = (rp_array){0};
    with.out = rp_array_of(with.out.data, with.out.dtype, 4, (int64_t[4]){d->batch, d->heads, n, with.out.shape[3]});
    separate(t->p, &with.out);
    const rp_status status = rp_attend(t->plan, &with, NULL);
    if (status == RP_E_UNSUPPORTED)
        return;
    if (status != RP_OK)
        finding(t, names[ROWS], rp_last_error());
    else
        compare_rows(t, ROWS, &t->p->t.out, 0, with.row_from, &with.out);
    compared[ROWS] += status == RP_OK;
}

/* Return the keys at the positions of the queries; those outside of the sequence are not read. */
static rp_array own_keys(trial *t)
{
    const rp_desc *d = &t->p->desc;
    const rp_array *k = &t->p->t.k;
    const int64_t shape[4] = {k->shape[0], k->shape[1], d->len_q, k->shape[3]},
                  row = k->shape[3] * (int64_t)rp_dtype_size(k->dtype);
    rp_array own = rp_array_of(NULL, k->dtype, 4, shape);
    char *at = own.data = problem_alloc(t->p, (size_t)problem_size(&own) * rp_dtype_size(k->dtype));
    if (!at)
        abort();
    for (int64_t x = 0; x < shape[0] * shape[1] * shape[2]; x++) {
        const int64_t b = x / (shape[1] * shape[2]), i = x % shape[2];
        const int64_t *offsets = t->p->t.q_offset.data;
        const int64_t j = i + (offsets ? offsets[b] : d->q_offset);
        if (j >= 0 && j < d->len_k)
            memcpy(at + x * row, (char *)k->data + (x / shape[2] * d->len_k + j) * row, (size_t)row);
    }
    return own;
}

/* Compute the keys in ranges, one after the other. */
static void key_ranges(trial *t)
{
    const rp_desc *d = &t->p->desc;
    const int64_t step = rp_plan_key_step(t->plan), width = rp_plan_state_width(t->plan);
    rp_tensors with = t->p->t;
    if (step == 0 || d->len_k <= step || strstr(t->p->text, "relval"))
        return;
    rp_array state =
        rp_array_of(NULL, d->dtype == RP_F64 ? RP_F64 : RP_F32, 4, (int64_t[4]){d->batch, d->heads, d->len_q, width});
    state.data = problem_alloc(t->p, (size_t)problem_size(&state) * rp_dtype_size(state.dtype));
    rp_array out = with.out;
    separate(t->p, &out);
    with.own_keys = own_keys(t);
    with.lse = (rp_array){0};
    for (with.key_from = 0; with.key_from < d->len_k; with.key_from = with.key_to) {
        with.key_to = with.key_from + step * (1 + roll(t, 3));
        with.key_to = with.key_to < d->len_k ? with.key_to : d->len_k;
        with.k = t->p->t.k;
        with.v = t->p->t.v;
        cut(&with.k, 2, with.key_from, with.key_to - with.key_from);
        cut(&with.v, 2, with.key_from, with.key_to - with.key_from);
        with.state_in = with.key_from > 0 ? state : (rp_array){0};
        with.state_out = with.key_to < d->len_k ? state : (rp_array){0};
        with.out = with.key_to < d->len_k ? (rp_array){0} : out;
        if (with.key_from > 0)
            with.own_keys = (rp_array){0};
        const rp_status status = rp_attend(t->plan, &with, NULL);
        if (status == RP_E_UNSUPPORTED)
            return;
        if (status != RP_OK) {
            finding(t, names[KEYS], rp_last_error());
            return;
        }
    }
    compared[KEYS]++;
    compare_rows(t, KEYS, &t->p->t.out, 0, 0, &out);
}

/* Return 1 after a finding, 0 if all is well, and -1 if the problem is refused. */
static int check(const char *text, uint64_t seed)
{
    problem *p = malloc(sizeof *p);
    rp_plan *plan = NULL;
    char err[512] = "";
    trial t = {.p = p, .seed = seed, .dice = seed, .code = -1};
    if (!p)
        abort();
    rp_pool *one = pools[1];
    const bool parsed = problem_parse(p, text, err) == 0,
               lost =
                   p->wild && p->desc.dtype == RP_F16 && loses_small_halves(); /* as the threads pack keys or do not */
    if (parsed && !lost && problem_fill(p, seed, err) == 0) {
        t.code = 0;
        p->t.pool = one;
        if (!(p->pass & (PROBLEM_FORWARD | PROBLEM_BACKWARD)))
            p->t.out = p->t.lse = (rp_array){0}; /* not computed */
        if (rp_plan_create(&plan, &p->desc) != RP_OK) {
            finding(&t, "plan", rp_last_error());
        } else {
            t.plan = plan;
            if (run(&t, plan, &p->t, &p->g, &p->x) != RP_OK) {
                finding(&t, "one thread", rp_last_error());
            } else {
                other_threads(&t);
                without_skipping(&t);
                if (p->pass & PROBLEM_FORWARD) {
                    entry_alone(&t);
                    padded_keys(&t);
                    some_rows(&t);
                    key_ranges(&t);
                }
            }
        }
    }
    rp_plan_destroy(plan);
    problem_free(p);
    free(p);
    return t.code;
}

/* Write a random problem to `text`: every fourth one of tangents or second derivatives, and every fourth one with more
 * than 512 keys, so that it has ranges of keys. */
static void draw_problem(problem_dice *dice, char text[512])
{
    char drawn[512];
    long long b, h, g, q, k, d, v;
    int used = 0;
    problem_draw(dice, 1 << 16, drawn);
    const uint64_t r = problem_next(&dice->seed);
    const char *colon = strchr(drawn, ':'), *sizes = strchr(colon + 1, ':'), *own = r & 16 ? "jvp" : "hvp";
    if (sscanf(sizes, ":b%lldh%lldg%lldq%lldk%lldd%lldv%lld%n", &b, &h, &g, &q, &k, &d, &v, &used) != 7)
        abort();
    const bool along = r % 4 == 0 && !strstr(drawn, "dweights") && !strstr(drawn, "dsummary"),
               many = r % 4 == 1 && !strstr(drawn, "grid=") && q != k;
    if (many) {
        q = 1 + (long long)(r >> 8) % 6;
        k = 513 + (long long)(r >> 16) % 900;
        d = 1 + (d - 1) % 20;
        v = 1 + (v - 1) % 20;
    }
    snprintf(text, 512, "%s%.*s:b%lldh%lldg%lldq%lldk%lldd%lldv%lld%s", along ? own : "",
             (int)(sizes - (along ? colon : drawn)), along ? colon : drawn, b, h, g, q, k, d, v, sizes + used);
}

int main(int argc, char **argv)
{
    setenv("RELPOS_SHORT", "0", 0); /* use all threads even for small problems */
    if (rp_pool_create(&pools[1], 1) != RP_OK)
        abort();
    if (argc == 3 && strchr(argv[1], ':'))
        return check(argv[1], strtoull(argv[2], NULL, 10)) != 0;
    const long wanted = argc > 1 ? atol(argv[1]) : EMULATED || SANITIZED ? 40 : 150;
    problem_dice dice = {.seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1};
    long done = 0, refused = 0, findings = 0;
    while (done < wanted && refused < 10 * wanted + 100) {
        char text[512];
        const uint64_t seed = dice.seed >> 1;
        draw_problem(&dice, text);
        const int code = check(text, seed);
        done += code >= 0;
        refused += code < 0;
        findings += code > 0;
    }
    printf("%ld problems checked, %ld failed, %ld refused;", done, findings, refused);
    bool all = true;
    for (int n = 0; n < WAYS; n++) {
        printf(" %s %ld%s", names[n], compared[n], n < WAYS - 1 ? "," : "\n");
        all = all && compared[n] > 0;
    }
    for (int n = 0; n <= MOST_THREADS; n++)
        rp_pool_destroy(pools[n]);
    return findings > 0 || done < wanted || !all;
}
