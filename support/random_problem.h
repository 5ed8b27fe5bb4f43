/* random_problem.h -- problem strings drawn at random, over every term, mask, setting and type that the library has.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_RANDOM_PROBLEM_H
#define RELPOS_RANDOM_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

/* What decides: bytes first, while there are any, as a fuzzer gives them; then numbers from a seed. */
typedef struct problem_dice {
    uint64_t seed;
    const unsigned char *bytes;
    size_t size;
} problem_dice;

/* Write a problem string. Some parameters do not go together: what problem_fill then refuses, another draw replaces. `work` bounds the
 * multiply-adds of one product of all pairs, and by it the time of the reference. */
void problem_draw(problem_dice *dice, int64_t work, char text[512]);

#endif
