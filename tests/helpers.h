/* helpers.h -- helpers of the library's tests: problems, the instruction sets of this machine, fenced memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_HELPERS_H
#define RELPOS_TESTS_HELPERS_H

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <relpos/relpos.h>

#include "cli/support/sample_problem.h"
#include "tests/returns.h"

#define HELPER __attribute__((unused)) static

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#endif
#ifndef THREAD_SANITIZED
#define THREAD_SANITIZED 0
#endif
/* The build sets EMULATED if qemu runs the tests. Under qemu memory limits have no effect, the child of a process with
 * threads cannot start threads, and vector instructions are a hundred times slower. */
#ifndef EMULATED
#define EMULATED 0
#endif

/* Return true if f16 numbers below 2^-14 become 0 where kernels load them. Processors ignore the flag "denormals are
 * zero" there, but qemu 7.2 does not (VCVTPH2PS). Tests then skip these numbers. */
#if EMULATED && defined(__x86_64__)
#include <immintrin.h>
__attribute__((target("f16c"))) HELPER float load_small_half(void)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    const volatile unsigned short smallest = 1;
    const float x = _cvtsh_ss(smallest);
    _mm_setcsr(before);
    return x;
}

HELPER bool loses_small_halves(void)
{
    return __builtin_cpu_supports("f16c") && load_small_half() == 0;
}
#else
HELPER bool loses_small_halves(void)
{
    return false;
}
#endif

/* ------------------------------------------------------------------------------------------------ problems */

/* True if the tests run this instruction set: the machine has it, and it is not an emulation that would run under
 * another emulation. */
#define TRIED(isa) (rp_isa_found(isa) == 1 && !(EMULATED && strcmp(isa, "amx_emulated") == 0))

/* True for an emulated instruction set, which is a hundred times slower than a real one. Tests with many cases run only
 * some of them on it. */
#define SLOW(isa) (strcmp(isa, "amx_emulated") == 0)

/* Loop with isa = each instruction set of the library that this machine has. */
#define EACH_ISA(isa)                                                                                                  \
    for (int isa##_n = 0; isa##_n >= 0; isa##_n = -1)                                                                  \
        for (const char *isa; ((isa) = rp_isa_name(isa##_n)) != NULL; isa##_n++)                                       \
            if (TRIED(isa))

/* Loop with path = the reference, then each instruction set. */
#define EACH_PATH(path)                                                                                                \
    for (int path##_n = -1; path##_n > -2; path##_n = -2)                                                              \
        for (const char *path; ((path) = path##_n < 0 ? "reference" : rp_isa_name(path##_n)) != NULL; path##_n++)      \
            if (TRIED(path))

/* True in ./check full, which runs all cases of the tests. Elsewhere, tests that would take long run some of them. */
HELPER bool all_cases(void)
{
    const char *tests = getenv("RELPOS_TESTS");
    return tests && strcmp(tests, "all") == 0;
}

/* True if a long test runs case n on the instruction set of EACH_ISA(isa): all cases in ./check full, elsewhere one of
 * `parts`, and not the same one on all sets. */
#define PART(isa, n, parts) (all_cases() || ((size_t)(n) + (size_t)isa##_n / 2) % (parts) == 0)

/* Fail, and print the case in a form that `relpos verify` can repeat. */
__attribute__((format(printf, 3, 4), unused)) static void wrong(const problem *p, const char *isa, const char *format,
                                                                ...)
{
    char line[400];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fail_msg("%s on %s: %s", p->text, isa, line);
}

HELPER void good(rp_status status)
{
    if (status != RP_OK)
        fail_msg("%s: %s", rp_status_name(status), rp_last_error());
}

/* Parse a problem, and fill its inputs from a seed. The text is a printf format. */
__attribute__((format(printf, 3, 4), unused)) static void pose(problem *p, uint64_t seed, const char *format, ...)
{
    char text[400], err[512] = "";
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (problem_parse(p, text, err) != 0 || problem_fill(p, seed, err) != 0)
        fail_msg("%s: %s", text, err);
}

/* Return an array of zeros; it is freed with the problem. */
HELPER rp_array array_in(problem *p, rp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    rp_array a = rp_array_of(NULL, dtype, ndim, shape);
    a.data = problem_alloc(p, (size_t)problem_size(&a) * rp_dtype_size(dtype));
    assert_non_null(a.data);
    return a;
}

/* Return a contiguous copy of the keys [B, Hk, Dk, Lk]: the axis of channels comes before the axis of keys. */
HELPER rp_array transposed(problem *p, const rp_array *k)
{
    const int64_t heads = k->shape[1], n = k->shape[2], d = k->shape[3], size = (int64_t)rp_dtype_size(k->dtype);
    rp_array to = array_in(p, k->dtype, 4, k->shape);
    for (int64_t x = 0; x < problem_size(k); x++) {
        const int64_t b = x / (heads * n * d), h = x / (n * d) % heads, j = x / d % n, c = x % d;
        memcpy((char *)to.data + (((b * heads + h) * d + c) * n + j) * size,
               (char *)k->data + (b * k->stride[0] + h * k->stride[1] + j * k->stride[2] + c) * size, (size_t)size);
    }
    to.stride[0] = heads * n * d, to.stride[1] = n * d, to.stride[2] = 1, to.stride[3] = n;
    return to;
}

/* Free the arrays that were added to a problem after it had `kept` of them. */
HELPER void release(problem *p, int kept)
{
    while (p->n_memory > kept)
        free(p->memory[--p->n_memory]);
}

enum { WITH_LSE = 1, WITH_WEIGHTS = 2, WITH_SUMMARY = 4, WITH_ALL = 7 };

/* Request outputs in addition to out. */
HELPER void also(problem *p, int which, rp_dtype dtype)
{
    const rp_desc *d = &p->desc;
    const int64_t offsets = d->len_q + d->len_k > 0 ? d->len_q + d->len_k - 1 : 0;
    const int64_t rows[3] = {d->batch, d->heads, d->len_q}, keys[3] = {d->batch, d->heads, d->len_k},
                  profile[3] = {d->batch, d->heads, offsets}, pairs[4] = {d->batch, d->heads, d->len_q, d->len_k};
    if (which & WITH_LSE)
        p->t.lse = array_in(p, dtype, 3, rows);
    if (which & WITH_WEIGHTS)
        p->t.weights = array_in(p, dtype, 4, pairs);
    if (which & WITH_SUMMARY) {
        p->t.profile = array_in(p, dtype, 3, profile);
        p->t.key_mass = array_in(p, dtype, 3, keys);
        p->t.entropy = array_in(p, dtype, 3, rows);
    }
}

HELPER rp_status attempt(problem *p, const char *isa, void *work)
{
    rp_plan *plan;
    p->desc.isa = isa;
    rp_status status = rp_plan_create(&plan, &p->desc);
    if (status != RP_OK)
        return status;
    assert_string_equal(rp_plan_isa(plan), isa);
    status = rp_attend(plan, &p->t, work);
    rp_plan_destroy(plan);
    return status;
}

HELPER void attend(problem *p, const char *isa)
{
    const rp_status status = attempt(p, isa, NULL);
    if (status != RP_OK)
        wrong(p, isa, "%s: %s", rp_status_name(status), rp_last_error());
}

/* Max number of gradients of a call. Their order: dq, dk, dv, the gradients of the terms' arrays, those of the
 * softcaps. */
enum { SOFTCAPS = 3 + RP_MAX_TERMS * RP_MAX_ARRAYS, GRADIENTS = SOFTCAPS + 2 };

HELPER rp_array *gradient(rp_grads *g, int n)
{
    rp_array *const first[3] = {&g->dq, &g->dk, &g->dv};
    if (n >= SOFTCAPS)
        return n == SOFTCAPS ? &g->dsoftcap : &g->dsoftcap_after;
    return n < 3 ? first[n] : &g->term[(n - 3) / RP_MAX_ARRAYS][(n - 3) % RP_MAX_ARRAYS];
}

/* Return the array to which gradient n belongs. */
HELPER rp_array *source_of(problem *p, int n)
{
    rp_array *const first[3] = {&p->t.q, &p->t.k, &p->t.v};
    if (n >= SOFTCAPS)
        return &p->softcap[n - SOFTCAPS];
    return n < 3 ? first[n] : &p->t.term[(n - 3) / RP_MAX_ARRAYS][(n - 3) % RP_MAX_ARRAYS];
}

HELPER const char *gradient_name(const problem *p, int n)
{
    static char name[64];
    static const char *const first[3] = {"dq", "dk", "dv"};
    if (n >= SOFTCAPS)
        return n == SOFTCAPS ? "the gradient of softcap" : "the gradient of softcap_after";
    if (n < 3)
        return first[n];
    const rp_term_kind kind = p->terms[(n - 3) / RP_MAX_ARRAYS].kind;
    snprintf(name, sizeof name, "the gradient of %s.%s", rp_term_name(kind),
             rp_term_array(kind, (n - 3) % RP_MAX_ARRAYS));
    return name;
}

/* The gradients of the outputs other than out, which are inputs of a backward call. */
enum { OUTPUT_GRADIENTS = 5 };

HELPER rp_array *output_gradient(rp_grads *g, int n)
{
    return (rp_array *const[]){&g->dlse, &g->dweights, &g->dprofile, &g->dkey_mass, &g->dentropy}[n];
}

/* Leave out the gradients that need all keys in one call. */
HELPER void drop_weight_gradients(problem *p)
{
    for (int n = 1; n < OUTPUT_GRADIENTS; n++)
        output_gradient(&p->g, n)->data = NULL;
}

/* Allocate gradients with the same shapes in the given type. */
HELPER rp_grads gradients_like(problem *p, rp_dtype type)
{
    rp_grads g = p->g;
    for (int n = 0; n < GRADIENTS; n++)
        if (gradient(&g, n)->data)
            *gradient(&g, n) = array_in(p, type, gradient(&g, n)->ndim, gradient(&g, n)->shape);
    return g;
}

/* Call rp_backward; if `given`, pass out and lse of the previous call. */
HELPER rp_status attempt_backward(problem *p, const char *isa, const rp_grads *g, bool given)
{
    rp_plan *plan;
    rp_tensors t = p->t;
    p->desc.isa = isa;
    if (!given)
        t.out.data = t.lse.data = NULL;
    rp_status status = rp_plan_create(&plan, &p->desc);
    if (status != RP_OK)
        return status;
    status = rp_backward(plan, &t, g, NULL);
    rp_plan_destroy(plan);
    return status;
}

HELPER void backward(problem *p, const char *isa, const rp_grads *g, bool given)
{
    if (given)
        attend(p, isa);
    const rp_status status = attempt_backward(p, isa, g, given);
    if (status != RP_OK)
        wrong(p, isa, "backward: %s: %s", rp_status_name(status), rp_last_error());
}

/* Copy the elements of a contiguous array. The caller frees the copy. */
HELPER void *copy_of(const rp_array *a)
{
    const size_t bytes = (size_t)problem_size(a) * rp_dtype_size(a->dtype);
    void *to = malloc(bytes + 1);
    assert_non_null(to);
    memcpy(to, a->data, bytes);
    return to;
}

/* Return element x of a contiguous array of a floating-point type. */
HELPER double at(const rp_array *a, int64_t x)
{
    double y;
    if (a->dtype == RP_F32)
        return (double)((const float *)a->data)[x];
    if (a->dtype == RP_F64)
        return ((const double *)a->data)[x];
    good(rp_convert(&y, RP_F64, (const char *)a->data + x * (int64_t)rp_dtype_size(a->dtype), a->dtype, 1));
    return y;
}

HELPER void set(const rp_array *a, int64_t x, double y)
{
    good(rp_convert((char *)a->data + x * (int64_t)rp_dtype_size(a->dtype), a->dtype, &y, RP_F64, 1));
}

HELPER void same_bits(const problem *p, const char *isa, const char *what, const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    if (n == 0 || memcmp(a, b, n) == 0)
        return;
    for (size_t c = 0; c < n; c++)
        if (x[c] != y[c])
            wrong(p, isa, "%s: the bits differ from byte %zu of %zu on", what, c, n);
}

/* Check that two arrays of the same shape have the same bits; any NaN equals any other. */
HELPER void same_numbers(const problem *p, const char *isa, const char *what, const rp_array *a, const rp_array *b)
{
    const size_t bytes = (size_t)problem_size(a) * rp_dtype_size(a->dtype);
    if (bytes == 0 || memcmp(a->data, b->data, bytes) == 0)
        return;
    for (int64_t x = 0; x < problem_size(a); x++)
        if (isnan(at(a, x)) && isnan(at(b, x))) {
            set(a, x, NAN);
            set(b, x, NAN);
        }
    same_bits(p, isa, what, a->data, b->data, bytes);
}

/* Run a problem, and check that out equals `want` bit for bit. `want` is the result of another problem, or of the same
 * problem before a change. */
HELPER void same_out(problem *p, const char *isa, const char *what, const float *want)
{
    attend(p, isa);
    same_bits(p, isa, what, want, p->t.out.data, (size_t)problem_size(&p->t.out) * 4);
}

/* Check that numbers in double agree. Errors are relative to the largest number in the array or to `most`, whichever is
 * larger. */
HELPER double near(const problem *p, const char *isa, const char *what, const double *got, const double *want,
                   int64_t n, double most)
{
    double error = 0;
    for (int64_t x = 0; x < n; x++) {
        most = fmax(most, fabs(want[x]));
        error = fmax(error, isnan(got[x]) ? INFINITY : fabs(got[x] - want[x]));
    }
    if (!(error <= 1e-12 * most))
        wrong(p, isa, "%s: error %.3g, largest element %.3g", what, error, most);
    return most > 0 ? error / most : 0;
}

/* Return a random number that does not depend on the seed of the problem (splitmix64). */
HELPER uint64_t draw(uint64_t *state)
{
    return problem_next(state);
}

/* ------------------------------------------------------------------------------------------------ fenced memory */

/* n bytes of memory next to an inaccessible page. They either end at this page or begin right after it. */
typedef struct fence {
    char *map;
    size_t size;
    char *data;
} fence;

HELPER fence fence_of(size_t n, bool after)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (n + page - 1) / page * page + page;
    fence f = {.size = inner + 2 * page};
    f.map = mmap(NULL, f.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f.map == MAP_FAILED)
        fail_msg("mmap of %zu bytes failed", f.size);
    assert_int_equal(mprotect(f.map + page, inner, PROT_READ | PROT_WRITE), 0);
    f.data = after ? f.map + page + inner - n : f.map + page;
    memset(f.map + page, 0xc3, inner); /* also fill the bytes on the other side of the data */
    return f;
}

/* Return true if the bytes around the data have not changed since fence_of. */
HELPER bool fence_intact(const fence *f, size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (const char *c = f->map + page; c < f->map + f->size - page; c++)
        if ((c < f->data || c >= f->data + n) && *c != (char)0xc3)
            return false;
    return true;
}

HELPER void fence_free(fence *f)
{
    if (f->map)
        munmap(f->map, f->size);
    f->map = NULL;
}

#endif
