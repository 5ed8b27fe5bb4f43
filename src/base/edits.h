/* base/edits.h -- the edit distance of two names, for "did you mean". Independent of terms, masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_EDITS_H
#define RELPOS_EDITS_H

#include <stddef.h>
#include <string.h>

/* Return the smallest number of changed, added and removed characters that turns a into b, or 99 if a name has 64
 * characters or more. */
static inline size_t rpi_edits(const char *a, const char *b)
{
    size_t row[64];
    const size_t n = strlen(a), m = strlen(b);
    if (n >= 64 || m >= 64)
        return 99;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[m];
}

#endif
