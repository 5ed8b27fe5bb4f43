/* test_memory.c -- memory grows with N, not with N*N. For each size, measures the peak memory of a child process minus
 * the size of the tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include <sys/wait.h>

#define MEGA (1024.0 * 1024.0)

/* Return the number in a line of /proc/self/status, such as "VmHWM:   1234 kB", in bytes. */
static double status_line(const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    double kilobytes = -1;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kilobytes = strtod(line + strlen(key) + 1, NULL);
    if (f)
        fclose(f);
    return kilobytes * 1024;
}

static rp_array pattern(problem *p, int32_t ndim, const int64_t *shape)
{
    static float period[101 * 64];
    rp_array a = array_in(p, RP_F32, ndim, shape);
    for (int x = 0; x < 101 * 64; x++)
        period[x] = (float)(x * 37 % 101) / 64 - 0.75f;
    for (size_t x = 0, n = (size_t)problem_size(&a) * sizeof(float); x < n; x += sizeof period)
        memcpy((char *)a.data + x, period, n - x < sizeof period ? n - x : sizeof period);
    return a;
}

/* Fill a problem like problem_fill, but with numbers that are quick to compute. For a backward pass, also allocate the
 * gradients. */
static void fill(problem *p)
{
    const rp_desc *d = &p->desc;
    const int64_t q[4] = {d->batch, d->heads, d->len_q, d->dim_k}, k[4] = {d->batch, d->heads, d->len_k, d->dim_k};
    p->t = rp_tensors_init();
    p->g = rp_grads_init();
    p->t.q = pattern(p, 4, q);
    p->t.k = pattern(p, 4, k);
    p->t.v = pattern(p, 4, k);
    p->t.out = pattern(p, 4, q);
    for (int32_t n = 0; n < d->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            int32_t ndim;
            int64_t shape[RP_MAX_AXES];
            if (!rp_term_array_learned(d->terms[n].kind, x) || rp_term_array_optional(d->terms[n].kind, x))
                continue;
            good(rp_term_shape(d, n, x, &ndim, shape));
            p->t.term[n][x] = pattern(p, ndim, shape);
            if (p->pass & PROBLEM_BACKWARD)
                p->g.term[n][x] = pattern(p, ndim, shape);
        }
    if (p->pass & PROBLEM_BACKWARD) {
        p->t.lse = pattern(p, 3, q);
        p->g.dout = pattern(p, 4, q);
        p->g.dq = pattern(p, 4, q);
        p->g.dk = pattern(p, 4, k);
        p->g.dv = pattern(p, 4, k);
    }
    for (int32_t n = 0; n < d->n_masks; n++) {
        int32_t ndim;
        int64_t shape[RP_MAX_AXES];
        good(rp_mask_shape(d, n, &ndim, shape));
        if (ndim == 0)
            continue;
        p->t.mask[n] = array_in(p, RP_I32, ndim, shape);
        for (int64_t x = 0; x < problem_size(&p->t.mask[n]); x++)
            ((int32_t *)p->t.mask[n].data)[x] = (int32_t)d->len_k - 5;
    }
}

/* Run rp_jvp and rp_hvp with tangents of q, k and v. */
static rp_status run_derivatives(problem *p, const rp_plan *plan)
{
    rp_tangents x = rp_tangents_init();
    x.q = p->t.q, x.k = p->t.k, x.v = p->t.v;
    x.out = pattern(p, 4, p->t.out.shape);
    p->t.out.data = p->t.lse.data = NULL;
    const rp_status status = rp_jvp(plan, &p->t, &x);
    x.out.data = NULL;
    return status == RP_OK ? rp_hvp(plan, &p->t, &x, &p->g) : status;
}

/* Run the call in a child process, and return how much it adds to the peak memory. The child first touches the pages of
 * the tensors; it writes the result to a pipe. */
static double measured(const char *text, int outputs, const char *isa, bool derivatives)
{
    int ends[2];
    double bytes = -1;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        problem p;
        char err[512];
        if (problem_parse(&p, text, err) != 0)
            _exit(1);
        fill(&p);
        also(&p, outputs, RP_F32);
        if (outputs)
            p.t.out.data = NULL;
        p.desc.isa = isa;
        rp_plan *plan;
        rp_pool *pool;
        if (rp_plan_create(&plan, &p.desc) != RP_OK || rp_pool_create(&pool, 2) != RP_OK)
            _exit(2);
        p.t.pool = pool;
        const double before = status_line("VmRSS");
        FILE *f = fopen("/proc/self/clear_refs", "w"); /* reset the peak, where this is permitted */
        if (f) {
            fputs("5", f);
            fclose(f);
        }
        if ((derivatives ? run_derivatives(&p, plan) : problem_run(&p, plan)) != RP_OK) {
            fprintf(stderr, "%s\n", rp_last_error());
            _exit(3);
        }
        bytes = status_line("VmHWM") - before;
        _exit(write(ends[1], &bytes, sizeof bytes) == sizeof bytes ? 0 : 4);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], &bytes, sizeof bytes);
    close(ends[0]);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0 || got != sizeof bytes)
        fail_msg("%s: the child ended with %s %d", text, WIFEXITED(how) ? "status" : "signal",
                 WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
    return bytes;
}

/* Return the number of bytes that the plan reports for a call. */
static double said(const char *text, const char *isa)
{
    problem p;
    char err[512];
    rp_plan *plan;
    rp_pool *pool;
    if (problem_parse(&p, text, err) != 0)
        fail_msg("%s", err);
    p.desc.isa = isa;
    good(rp_plan_create(&plan, &p.desc));
    good(rp_pool_create(&pool, 2));
    const size_t forward = rp_plan_work_size(plan, pool),
                 backward = p.pass & PROBLEM_BACKWARD ? rp_plan_backward_size(plan, pool) : 1,
                 bytes = forward > backward ? forward : backward;
    assert_true(forward > 0 && backward > 0);
    rp_plan_destroy(plan);
    rp_pool_destroy(pool);
    return (double)bytes;
}

static const struct {
    /* the problem text is: before N between N after; without `between`: before N after */
    const char *before, *between, *after;
    int outputs;
    int longest; /* largest N to measure; 0: 32768 */
} cases[] = {
    {"fwd:f32:b1h8q128k", "", "d64:t5+alibi:", 0, 0},
    {"fwd:f32:b1h8q96k", "", "d64:rope+relkey,left=128,right=128+relval,left=128,right=128:", 0, 0},
    {"fwd:f32:b1h8q", "k", "d64:t5:window=64,0", 0, 0},
    {"fwd:f32:b1h8q", "k", "d64:alibi:window=64,0+key_mask+lengths", WITH_LSE, 0},
    {"fwd:f32:b1h8q", "k", "d64:table,left=64,right=64:window=64,0", WITH_SUMMARY, 0},
    {"fwdbwd:f32:b1h8q", "k", "d64:t5:window=64,0", 0, 16384},
    {"bwd:f32:b1h1q", "k", "d64:rope+relkey,left=64,right=0+relval,left=64,right=0+sink:window=64,0", 0, 16384},
    {"bwd:f32:b1h1q", "k", "d64:forget+band,width=8,extent=64:window=64,0", 0, 16384},
};

static void text_of(char *text, size_t size, size_t n, int length)
{
    if (*cases[n].between)
        snprintf(text, size, "%s%d%s%d%s", cases[n].before, length, cases[n].between, length, cases[n].after);
    else
        snprintf(text, size, "%s%d%s", cases[n].before, length, cases[n].after);
}

static void work_grows_with_the_length(void **state)
{
    char text[200];
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        EACH_ISA(isa)
        {
            double before = 0;
            for (int length = 4096; length <= 65536; length *= 2) {
                text_of(text, sizeof text, n, length);
                const double bytes = said(text, isa);
                if (before > 0 && bytes > 2.001 * before)
                    fail_msg("%s on %s: %.1f MB of work, and %.1f MB for half of it", text, isa, bytes / MEGA,
                             before / MEGA);
                before = bytes;
            }
            /* products of three bf16 components pack keys and values in 6 bytes per number instead of 4 */
            if (before > (strncmp(isa, "amx", 3) == 0 ? 117e6 : 100e6))
                fail_msg("%s on %s: %.1f MB of work", text, isa, before / 1e6);
            print_message("%-90s %-8s work %6.1f MB\n", text, isa, before / 1e6);
        }
}

static void the_peak_matches_the_reported_size(void **state)
{
    char text[200];
    (void)state;
    if (SANITIZED) {
        print_message("peak: not measured, because sanitizers use more memory; rp_plan_work_size was checked, by "
                      "work_grows_with_the_length()\n");
        return;
    }
    const char *isa = rp_isa_default();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        double before = 0;
        const int longest = cases[n].longest ? cases[n].longest : 32768;
        for (int length = longest / 16; length <= longest; length *= 4) {
            text_of(text, sizeof text, n, length);
            const double bytes = measured(text, cases[n].outputs, isa, false);
            /* two megabytes cover everything that does not grow: stacks, libc, scratch memory of two threads */
            if (before > 0 && bytes > 4 * before + 2 * MEGA)
                fail_msg("%s: the peak grows by %.1f MB, and by %.1f MB for a quarter of it", text, bytes / MEGA,
                         before / MEGA);
            before = bytes;
        }
        print_message("%-90s peak without the tensors %6.1f MB\n", text, before / 1e6);
        if (!(before >= 0 && before < 100e6))
            fail_msg("%s: the peak is %.1f MB in addition to the tensors", text, before / 1e6);
        /* at most what the plan reports, plus a margin */
        if (before > said(text, isa) + 4 * MEGA)
            fail_msg("%s: the peak is %.1f MB in addition to the tensors, but rp_plan_work_size is %.1f", text,
                     before / 1e6, said(text, isa) / 1e6);
    }
}

/* Tangents and second derivatives have no reported size. */
static void derivatives_need_memory_in_proportion(void **state)
{
    double before = 0;
    char text[100];
    (void)state;
    for (int length = 2048; length <= 8192 && !SANITIZED; length *= 4) {
        snprintf(text, sizeof text, "bwd:f32:b1h4q%dk%dd64:t5+rope:window=64,0", length, length);
        const double bytes = measured(text, 0, rp_isa_default(), true);
        if (before > 0 && bytes > 4 * before + 2 * MEGA)
            fail_msg("%s: the peak of rp_hvp grows by %.1f MB, and by %.1f MB for a quarter of it", text, bytes / MEGA,
                     before / MEGA);
        before = bytes;
        print_message("%-90s peak of rp_jvp and rp_hvp %6.1f MB\n", text, before / 1e6);
    }
}

/* rp_plan_work_size must stay small even if no machine could store the square of the length. */
static void work_of_two_million_keys_fits(void **state)
{
    (void)state;
    EACH_ISA(isa)
    {
        const double a = said("fwd:f32:b1h8q1048576k1048576d64:t5+relkey,left=9,right=9:causal", isa),
                     b = said("fwd:f32:b1h8q2097152k2097152d64:t5+relkey,left=9,right=9:causal", isa);
        if (b > 2.001 * a || b > 2.5e9)
            fail_msg("%s: %.0f MB for 2^20, %.0f MB for 2^21", isa, a / 1e6, b / 1e6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_grows_with_the_length), cmocka_unit_test(the_peak_matches_the_reported_size),
        cmocka_unit_test(derivatives_need_memory_in_proportion), cmocka_unit_test(work_of_two_million_keys_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
