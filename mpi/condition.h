/* condition.h -- waiting for a condition for a limited time, by the monotonic clock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MPI_CONDITION_H
#define RELPOS_MPI_CONDITION_H

#include <pthread.h>
#include <time.h>

/* Initialize a condition whose times are those of the monotonic clock. */
static inline void rpi_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Wait until the condition is signalled, but at most `seconds`, up to 1. The mutex is locked. */
static inline void rpi_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(1e9 * seconds);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(condition, mutex, &until);
}

#endif
