/* kernels.h -- compares each kernel of one instruction set and precision with plain loops in double. kernel_checks.h
 * contains the checks and is compiled once per instruction set and precision; test_kernels.c runs them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_KERNELS_H
#define RELPOS_TESTS_KERNELS_H
#include <stddef.h>
#include <stdint.h>

#define KERNEL_CHECKS(X)                                                                                               \
    X(vector_operations_match_plain_loops)                                                                             \
    X(halves_are_widened_exactly)                                                                                      \
    X(exp_and_tanh_keep_their_bounds)                                                                                  \
    X(numbers_of_any_type_are_loaded_and_stored)                                                                       \
    X(keys_are_packed_in_panels)                                                                                       \
    X(values_are_packed_in_columns)                                                                                    \
    X(non_finite_rows_are_found_and_cleared)                                                                           \
    X(rows_are_rotated_and_back)                                                                                       \
    X(scores_are_products_that_start_at_a_bias)                                                                        \
    X(values_are_summed_by_weights)                                                                                    \
    X(transposed_products_are_added)                                                                                   \
    X(values_in_place_are_summed_by_weights)                                                                           \
    X(biases_are_added_and_infinity_masks)                                                                             \
    X(columns_outside_an_interval_are_masked)                                                                          \
    X(softcap_and_masks_finish_the_scores)                                                                             \
    X(the_running_maximum_rescales_the_sum)                                                                            \
    X(dropout_depends_on_the_pair)                                                                                     \
    X(weights_of_a_run_are_collected)                                                                                  \
    X(tiles_have_the_columns_that_rows_see)                                                                            \
    X(biases_match_their_sources)                                                                                      \
    X(non_finite_values_reach_their_rows)                                                                              \
    X(scores_of_a_tile)                                                                                                \
    X(products_of_a_backward_tile)                                                                                     \
    X(numbers_are_sums_of_bf16)                                                                                        \
    X(tiles_multiply_packed_rows)                                                                                      \
    X(tiles_multiply_across_rows)                                                                                      \
    X(tiles_multiply_transposed_rows)                                                                                  \
    X(tiles_meet_keys_in_place)

/* Functions that check the kernels of an instruction set; NULL if it has no such kernel. */
typedef struct kernel_checks {
#define X(name) void (*name)(void);
    KERNEL_CHECKS(X)
#undef X
} kernel_checks;

/* Set the names for the next check. They are printed with its largest error, and if it fails. */
void kernel_begin(const char *isa, const char *precision, const char *kernel);
/* Fail unless |got - want| <= bound. Two NaN pass, and so do two equal infinities. */
void kernel_close(double got, double want, double bound, const char *what, int64_t row, int64_t column);
/* Fail unless the bits are the same. */
void kernel_same(const void *got, const void *want, size_t bytes, const char *what, int64_t row, int64_t column);
/* Return 1 if f16 numbers below 2^-14 become 0 here (tests/helpers.h). */
int kernel_loses_small_halves(void);
void kernel_true(int yes, const char *what, int64_t row, int64_t column);

/* Allocate memory with a border on both sides, aligned to 64 bytes and filled with NaN. kernel_borders checks all
 * borders and frees the memory. */
void *kernel_memory(size_t bytes);
void kernel_borders(void);

/* Return an approximately normal random number that depends only on n. */
double kernel_normal(uint64_t n);

#endif
