/* pthread.h -- the POSIX thread functions that the library uses, for WebAssembly modules, which have only one thread.
 * Starting a thread fails; the pool then uses fewer threads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_WASI_PTHREAD_H
#define RELPOS_WASI_PTHREAD_H

typedef int pthread_t, pthread_mutex_t, pthread_cond_t, pthread_once_t, pthread_attr_t;
enum { PTHREAD_ONCE_INIT = 0 };

static inline int pthread_once(pthread_once_t *once, void (*call)(void))
{
    if (!*once) {
        *once = 1;
        call();
    }
    return 0;
}

static inline int pthread_create(pthread_t *thread, const void *how, void *(*call)(void *), void *argument)
{
    (void)thread, (void)how, (void)call, (void)argument;
    return -1;
}

static inline int pthread_join(pthread_t thread, void **result)
{
    (void)thread, (void)result;
    return 0;
}

/* Succeed without registering anything: a module cannot fork, and its only thread has no accessible stack. */
static inline int pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    (void)before, (void)parent, (void)child;
    return 0;
}

static inline int pthread_attr_getstacksize(const pthread_attr_t *attributes, __SIZE_TYPE__ *size)
{
    (void)attributes, (void)size;
    return -1;
}

/* With one thread there is nothing to lock or wait for. */
static inline int rpi_alone(const int *lock)
{
    (void)lock;
    return 0;
}
#define pthread_mutex_init(mutex, how)              rpi_alone(mutex)
#define pthread_mutex_lock(mutex)                   rpi_alone(mutex)
#define pthread_mutex_unlock(mutex)                 rpi_alone(mutex)
#define pthread_mutex_destroy(mutex)                rpi_alone(mutex)
#define pthread_attr_init(attributes)               rpi_alone(attributes)
#define pthread_attr_destroy(attributes)            rpi_alone(attributes)
#define pthread_attr_setstacksize(attributes, size) rpi_alone(attributes)
#define pthread_cond_init(cond, how)                rpi_alone(cond)
#define pthread_cond_wait(cond, mutex)              rpi_alone(cond)
#define pthread_cond_signal(cond)                   rpi_alone(cond)
#define pthread_cond_broadcast(cond)                rpi_alone(cond)
#define pthread_cond_destroy(cond)                  rpi_alone(cond)

#endif
