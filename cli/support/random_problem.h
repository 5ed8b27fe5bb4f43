/* random_problem.h -- random problem strings, which cover every term, mask, setting and type of the library.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_RANDOM_PROBLEM_H
#define RELPOS_RANDOM_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

/* A source of random choices: first the bytes from a fuzzer, then numbers from a seed. */
typedef struct problem_dice {
    uint64_t seed;
    const unsigned char *bytes;
    size_t size;
} problem_dice;

/* Write a random problem string. Its parameters may contradict each other; if problem_fill refuses it, draw another.
 * `work` limits the multiply-adds of one product over all pairs, and so the time that the reference takes. */
void problem_draw(problem_dice *dice, int64_t work, char text[512]);

#endif
