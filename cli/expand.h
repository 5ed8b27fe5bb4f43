/* expand.h -- the options of a command as the user sees them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_EXPAND_H
#define RELPOS_CLI_EXPAND_H

#include "cli/cli.h"

enum { CLI_MAX_OPTIONS = 63 }; /* max options of a command, including those of terms and masks */

/* A command whose option table has been extended by an entry for each term and mask. */
typedef struct cli_expanded {
    cli_command command;
    cli_option option[CLI_MAX_OPTIONS + 1];
    cli_mask_text mask[RP_MASK_COUNT];
} cli_expanded;

/* Copy a command, and add an option for each term and mask. Return false if there are too many options. */
bool cli_expand(cli_expanded *e, const cli_command *c);

/* Return true if the option's value is optional, as in "[key=value]...". The next word is then its value only if it has
 * the form key=value. */
static inline bool cli_value_is_optional(const cli_option *o)
{
    return o->arg && o->arg[0] == '[';
}

/* completion.c: print a script by which a shell completes commands and options. Return CLI_OK, or CLI_USAGE after
 * printing. */
int cli_print_completion(const char *shell);

#endif
