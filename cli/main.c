/* main.c -- entry point of the program. All other code is in a library that the tests also link; in a wheel this is
 * librelpos_t5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return rp_cli_main(argc, argv);
}
