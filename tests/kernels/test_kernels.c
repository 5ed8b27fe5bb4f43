/* test_kernels.c -- compares each kernel of each instruction set of this machine with plain loops in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/kernels.h"
#include "tests/helpers.h"

#define RPI_X(name, wide, found) extern const kernel_checks kernels_##name, kernels_##wide##_f64;
#include "src/isa/isa.def"
#undef RPI_X

static struct {
    const char *isa, *precision, *kernel;
    double worst;
} now;

static void wrong_at(const char *what, int64_t row, int64_t column, const char *how)
{
    fail_msg("%s of %s in %s, %s [%lld][%lld]: %s", now.kernel, now.isa, now.precision, what, (long long)row,
             (long long)column, how);
}

int kernel_loses_small_halves(void)
{
    return loses_small_halves();
}

void kernel_true(int yes, const char *what, int64_t row, int64_t column)
{
    if (!yes)
        wrong_at(what, row, column, "no");
}

void kernel_close(double got, double want, double bound, const char *what, int64_t row, int64_t column)
{
    char how[160];
    if (got == want || (isnan(got) && isnan(want)))
        return;
    if (!isfinite(want) || !(fabs(got - want) <= bound)) {
        snprintf(how, sizeof how, "%.17g, and %.17g is right: error %.3g, bound %.3g", got, want, fabs(got - want),
                 bound);
        wrong_at(what, row, column, how);
    }
    now.worst = fmax(now.worst, fabs(got - want) / bound);
}

void kernel_same(const void *got, const void *want, size_t bytes, const char *what, int64_t row, int64_t column)
{
    if (memcmp(got, want, bytes) != 0)
        wrong_at(what, row, column, "other bits");
}

/* ---------------------------------------------------------------------------------------------- memory with borders */

enum { BORDER = 512, MOST = 4096 };
static struct {
    unsigned char *map;
    size_t bytes;
} blocks[MOST];
static int n_blocks;

void kernel_begin(const char *isa, const char *precision, const char *kernel)
{
    while (n_blocks > 0) /* free blocks that a failed check left allocated */
        free(blocks[--n_blocks].map);
    now.isa = isa;
    now.precision = precision;
    now.kernel = kernel;
}

void *kernel_memory(size_t bytes)
{
    const size_t all = (bytes + 2 * BORDER + 63) / 64 * 64;
    assert_true(n_blocks < MOST);
    unsigned char *map = aligned_alloc(64, all);
    assert_non_null(map);
    memset(map, 0x7f, all);            /* f32 numbers of about 3e38 */
    memset(map + BORDER, 0xff, bytes); /* NaN in every type */
    blocks[n_blocks].map = map;
    blocks[n_blocks++].bytes = bytes;
    return map + BORDER;
}

void kernel_borders(void)
{
    for (int n = 0; n < n_blocks; n++) {
        const unsigned char *map = blocks[n].map;
        for (size_t c = 0; c < BORDER; c++)
            if (map[c] != 0x7f || (c < 64 && map[BORDER + blocks[n].bytes + c] != 0x7f))
                wrong_at("a border", n, (int64_t)c, "was written");
        free(blocks[n].map);
    }
    n_blocks = 0;
}

double kernel_normal(uint64_t n)
{
    uint64_t state = n;
    double sum = 0;
    for (int k = 0; k < 4; k++) /* the sum of four uniform numbers */
        sum += (double)(draw(&state) >> 11) * 0x1p-53 - 0.5;
    return sum * 1.7320508075688772;
}

/* -------------------------------------------------------------------------------------------- every instruction set */

static bool run(const kernel_checks *of, size_t at)
{
    void (*check)(void);
    memcpy(&check, (const char *)of + at, sizeof check);
    if (check)
        check();
    return check != NULL;
}

static void run_all(size_t at)
{
    bool any = EMULATED; /* under qemu, the emulation of AMX is not run */
#define RPI_X(name, wide, found)                                                                                       \
    if (TRIED(#name)) {                                                                                                \
        any |= run(&kernels_##name, at);                                                                               \
        if (strcmp(#name, #wide) == 0)                                                                                 \
            any |= run(&kernels_##wide##_f64, at);                                                                     \
    }
#include "src/isa/isa.def"
#undef RPI_X
    assert_true(any);
}

#define X(kernel)                                                                                                      \
    static void kernel(void **state)                                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        now.worst = 0;                                                                                                 \
        run_all(offsetof(kernel_checks, kernel));                                                                      \
        print_message("%-50s largest error / bound %.3f\n", #kernel, now.worst);                                       \
    }
KERNEL_CHECKS(X)
#undef X

int main(void)
{
#define X(kernel) cmocka_unit_test(kernel),
    const struct CMUnitTest tests[] = {KERNEL_CHECKS(X)};
#undef X
    return cmocka_run_group_tests(tests, NULL, NULL);
}
