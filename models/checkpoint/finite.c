/* finite.c -- see finite.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/finite.h"
#include "src/processor/clones.h"

enum { LANES = 16 };

RPI_CLONES bool model_finite(const float *x, int64_t n)
{
    float zero[LANES] = {0}, sum = 0; /* of 0 * x: NaN if some x is NaN or infinite */
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            zero[l] += x[k + l] * 0;
    for (int l = 0; l < LANES; l++)
        sum += zero[l];
    for (; k < n; k++)
        sum += x[k] * 0;
    return sum == 0;
}
