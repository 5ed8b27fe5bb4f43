/* sets.c -- prints, on one line, the instruction sets that the registries of the core and of linear layers report.
 * ./check compares this line for different values of RELPOS_HIDE_ISA.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include <stdio.h>

int main(void)
{
    const linear_ops *ops;
    bool found;
    for (int n = 0; rp_isa_name(n); n++)
        if (rp_isa_found(rp_isa_name(n)) == 1)
            printf("%s ", rp_isa_name(n));
    printf("/");
    for (int n = 0; (ops = linear_entry(n, &found)) != NULL; n++)
        if (found)
            printf(" %s", ops->name);
    printf("\n");
    return 0;
}
