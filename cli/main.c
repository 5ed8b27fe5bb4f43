/* main.c -- the program relpos starts here. All else is in a library, which tests link too; in a wheel it is librelpos_t5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
