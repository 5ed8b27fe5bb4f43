/* find.c -- finds the files that are shipped with the program (the explorer's page, the laboratory, the textbook
 * examples), in the installation or in the build folder.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef RELPOS_DOC_FROM_PROGRAM /* defined by the build system */
#define RELPOS_DOC_FROM_PROGRAM "../share/doc/relpos"
#endif

/* Write the absolute path of <folder of the program>/place/name to `found`. Return false if there is no such file or it
 * is not readable. */
static bool beside(const char *place, const char *name, char found[PATH_MAX])
{
    char program[PATH_MAX], path[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0)
        return false;
    program[n] = 0;
    *strrchr(program, '/') = 0;
    return snprintf(path, sizeof path, "%s/%s/%s", program, place, name) < (int)sizeof path && realpath(path, found) &&
           access(found, R_OK) == 0;
}

bool cli_find(const char *name, char found[PATH_MAX])
{
    static const char *const places[] = {RELPOS_DOC_FROM_PROGRAM, RELPOS_DOC_FROM_PROGRAM "/lab", "web", "lab"};
    for (size_t x = 0; x < sizeof places / sizeof *places; x++)
        if (beside(places[x], name, found))
            return true;
    return false;
}

const char *cli_find_shipped(const char *path, char found[PATH_MAX])
{
    const bool named = strncmp(path, "lab/", 4) == 0 || strncmp(path, "examples/data/", 14) == 0;
    return named && !strstr(path, "..") && access(path, F_OK) != 0 && beside(RELPOS_DOC_FROM_PROGRAM, path, found)
               ? found
               : path;
}

bool cli_installed(char folder[PATH_MAX])
{
    return beside(RELPOS_DOC_FROM_PROGRAM, ".", folder);
}

bool cli_built(char folder[PATH_MAX])
{
    char cache[PATH_MAX];
    return beside(".", "CMakeCache.txt", cache) && beside(".", ".", folder);
}
