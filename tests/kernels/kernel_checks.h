/* kernel_checks.h -- the checks of kernels.h for one instruction set and one precision. The file of the instruction set
 * includes it after defining vf, VL, MR, NR, the vector operations and the kernels: see CMakeLists.txt.
 *
 * Sizes are near the edges of vectors and tiles. Outputs are surrounded by guard elements, and memory that a kernel
 * must not read is filled with NaN. Tolerances are error bounds: for n roundings, n EPS times the sum of the absolute
 * summands.
 *
 * Each file checks_….h contains the checks of one subject; the table of all checks is at the end of this file. Not
 * checked here, but only in tests of whole calls: biases by index and by definition (find_index), products with
 * vectors, tile_summary, the steps in decode.h, and in the backward pass tile_backward and the gradients of the terms.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/kernels.h"

#define EPS       (RPI_F64 ? 0x1p-53 : 0x1p-24)
#define PRECISION (RPI_F64 ? "f64" : "f32")
#define CHECK(name)                                                                                                    \
    static void name##_body(void);                                                                                     \
    static void check_##name(void)                                                                                     \
    {                                                                                                                  \
        kernel_begin(RPI_NAME(RPI_ISA), PRECISION, #name);                                                             \
        amx_begin(); /* kernels that multiply AMX tiles expect them to be configured */                                \
        name##_body();                                                                                                 \
        amx_end();                                                                                                     \
        kernel_borders();                                                                                              \
    }                                                                                                                  \
    static void name##_body(void)
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static real *numbers(int64_t n)
{
    return kernel_memory((size_t)n * sizeof(real));
}

static real *random_numbers(int64_t n, uint64_t seed)
{
    real *x = numbers(n);
    for (int64_t c = 0; c < n; c++)
        x[c] = (real)kernel_normal(seed * 1000003 + (uint64_t)c);
    return x;
}

#include "tests/kernels/checks_vector_ops.h"

#include "tests/kernels/checks_pack.h"

#include "tests/kernels/checks_products.h"

#include "tests/kernels/checks_softmax.h"

#include "tests/kernels/checks_tiles.h"

#if RPI_AMX
#include "tests/kernels/checks_amx.h"

#define check_values_are_packed_in_columns NULL
#else
#define check_numbers_are_sums_of_bf16       NULL
#define check_tiles_multiply_packed_rows     NULL
#define check_tiles_multiply_across_rows     NULL
#define check_tiles_multiply_transposed_rows NULL
#define check_tiles_meet_keys_in_place       NULL
#endif

#include "tests/kernels/checks_backward.h"

#if RPI_F64
#define KERNELS(x) RPI_JOIN3(kernels_, x, _f64)
#else
#define KERNELS(x) RPI_JOIN3(kernels_, x, )
#endif
#define KERNELS_OF(x) KERNELS(x)
extern const kernel_checks KERNELS_OF(RPI_ISA);
const kernel_checks KERNELS_OF(RPI_ISA) = {
#define X(name) .name = check_##name,
    KERNEL_CHECKS(X)
#undef X
};
#ifdef RPI_PAIRS_ISA
extern const kernel_checks KERNELS_OF(RPI_PAIRS_ISA);
const kernel_checks KERNELS_OF(RPI_PAIRS_ISA) = {0}; /* test_equal_bits compares whole calls with RPI_ISA */
#endif
