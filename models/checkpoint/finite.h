/* finite.h -- checks the numbers that a model computed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_FINITE_H
#define RELPOS_CHECKPOINT_FINITE_H

#include <stdbool.h>
#include <stdint.h>

bool model_finite(const float *x, int64_t n); /* no number is NaN or infinite */

#endif
