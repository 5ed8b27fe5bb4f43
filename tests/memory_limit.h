/* memory_limit.h -- limits a process to the memory that it already has, plus a given amount.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_MEMORY_LIMIT_H
#define RELPOS_TESTS_MEMORY_LIMIT_H

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Allow this process to map at most mb megabytes more than now. Exit with code 9 if the limit cannot be set. */
static inline void limit_memory(int mb)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (!f || fscanf(f, "%lu", &pages) != 1)
        _exit(9);
    fclose(f);
    const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (rlim_t)mb * (1u << 20);
    const struct rlimit limit = {most, most};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        _exit(9);
}

#endif
