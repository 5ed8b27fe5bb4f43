/* pairs.h -- terms and pairs of terms in the registry, written as in a problem string, for tests that loop over all of
 * them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_PAIRS_H
#define RELPOS_TESTS_PAIRS_H

#include <relpos/facts.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PAIR_TOKENS = 6, TERM_TEXT = 300 }; /* number of tokens in every grid */

/* Write a term with a sample of its parameters; a grid has PAIR_TOKENS tokens. Return false if this sample does not
 * exist. */
__attribute__((unused)) static bool term_text(rp_term_kind kind, int sample, char to[TERM_TEXT])
{
    const char *given = sample < RP_MAX_SAMPLES ? rp_term_about(kind)->samples[sample] : NULL;
    if (!given && sample > 0)
        return false;
    snprintf(to, TERM_TEXT, "%s%s%s", rp_term_name(kind), given && *given ? "," : "", given ? given : "");
    char *grid = strstr(to, "grid="), rest[TERM_TEXT];
    if (grid) {
        snprintf(rest, sizeof rest, "%s", grid + strcspn(grid, ","));
        snprintf(grid, (size_t)(to + TERM_TEXT - grid), "grid=%s%s", strstr(rest, "extra=1") ? "1x5" : "2x3", rest);
    }
    return true;
}

/* Write two terms joined by +, or one term if b is RP_TERM_NONE. Return false if they cannot be combined: for roles
 * other than bias, only one term is allowed. */
__attribute__((unused)) static bool pair_text(rp_term_kind a, rp_term_kind b, char to[2 * TERM_TEXT + 1])
{
    char other[TERM_TEXT];
    if (b != RP_TERM_NONE && rp_term_role(a) == rp_term_role(b) && rp_term_role(a) != RP_ROLE_BIAS)
        return false;
    term_text(a, 0, to);
    if (b != RP_TERM_NONE) {
        term_text(b, 0, other);
        strcat(strcat(to, "+"), other);
    }
    return true;
}
#endif
