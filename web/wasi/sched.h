/* sched.h -- the processors of a WebAssembly module: always one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_WASI_SCHED_H
#define RELPOS_WASI_SCHED_H

#include <unistd.h>

typedef int cpu_set_t;
#define CPU_COUNT(set)                    1
#define sched_getaffinity(pid, size, set) ((void)(set), 0)
#define sched_yield()                     ((void)0)
#define getpid()                          1 /* a module is one process and does not fork */

#endif
