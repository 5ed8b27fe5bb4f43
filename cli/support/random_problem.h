/* random_problem.h -- random problem strings that cover every term, mask, setting and type of the library.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_RANDOM_PROBLEM_H
#define RELPOS_RANDOM_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

/* Source of random choices: the bytes of a fuzzer first, then numbers from a seed. */
typedef struct problem_dice {
    uint64_t seed;
    const unsigned char *bytes;
    size_t size;
} problem_dice;

/* Write a random problem string. Its parameters may contradict each other: if problem_fill refuses it, draw another.
 * `work` is the max number of multiply-adds of one product over all pairs, which limits the time of the reference. */
void problem_draw(problem_dice *dice, int64_t work, char text[512]);

#endif
