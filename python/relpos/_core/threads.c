/* threads.c -- the threads of a call: the library's own for NumPy, and for torch those of torch, whose OpenMP threads go on spinning on
 * the cores for a while after each of its operations. The team is reached by GOMP_parallel of the libgomp that torch uses (LLVM's and
 * Intel's libraries have it too). It knows no arrays and no options but `threads`.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT, dl_iterate_phdr */
#endif
#include "core.h"
#include <dlfcn.h>
#ifdef __linux__
#include <link.h>
#endif
#include <stdlib.h>
#include <unistd.h>

#define POOL "relpos.pool"
enum { MAX_POOLS = 4 };

/* The OpenMP of torch: GOMP_parallel(function, data, threads, flags). */
typedef void gomp_parallel(rp_work *, void *, unsigned, unsigned);

static void run_by_team(void *context, int32_t count, rp_work *work, void *data)
{
    gomp_parallel *parallel = (gomp_parallel *)(uintptr_t)context;
    parallel(work, data, (unsigned)count, 0);
}

#ifdef __linux__
/* dl_iterate_phdr: the path of torch's library, which links OpenMP's. */
static int find_torch(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!name || strncmp(name, "/libtorch_cpu.so", 16) != 0)
        return 0;
    *(char **)found = strdup(info->dlpi_name);
    return 1;
}

#endif

/* As the loader binds torch's calls: what the whole process shows, such as a preloaded library, and then, on Linux, what libtorch_cpu
 * links. */
static void *find_team(void)
{
    void *team = dlsym(RTLD_DEFAULT, "GOMP_parallel");
#ifdef __linux__
    char *path = NULL;
    if (team)
        return team;
    dl_iterate_phdr(find_torch, &path);
    void *torch = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL; /* loaded already, and for ever */
    free(path);
    team = torch ? dlsym(torch, "GOMP_parallel") : NULL;
#endif
    return team;
}

static void destroy_pool(PyObject *capsule)
{
    rp_pool *pool = PyCapsule_GetPointer(capsule, POOL);
    Py_BEGIN_ALLOW_THREADS
    rp_pool_destroy(pool);
    Py_END_ALLOW_THREADS
}

/* The pool of a number of threads, torch's or our own, as a capsule: a new reference. The last few are kept. */
static PyObject *pool_of(const state *st, int64_t n, bool team)
{
    rp_pool *pool;
    PyObject *key = PyLong_FromLongLong(team ? -n : n), *oldest = NULL, *value;
    PyObject *capsule = key ? PyDict_GetItemWithError(st->pools, key) : NULL;
    if (capsule || PyErr_Occurred()) {
        Py_XDECREF(key);
        return Py_XNewRef(capsule);
    }
    const rp_status status =
        team ? rp_pool_from(&pool, run_by_team, st->team, (int32_t)n) : rp_pool_create(&pool, (int32_t)n);
    if (status != RP_OK)
        raise_status(NULL, status);
    else if (!(capsule = PyCapsule_New(pool, POOL, destroy_pool)))
        rp_pool_destroy(pool);
    Py_ssize_t at = 0;
    bool failed = !capsule || PyDict_SetItem(st->pools, key, capsule) != 0;
    if (!failed && PyDict_Size(st->pools) > MAX_POOLS && PyDict_Next(st->pools, &at, &oldest, &value)) {
        Py_INCREF(oldest);
        failed = PyDict_DelItem(st->pools, oldest) != 0;
        Py_DECREF(oldest);
    }
    Py_XDECREF(key);
    if (failed)
        Py_CLEAR(capsule);
    return capsule;
}

/* Learn torch's threads. In a forked child the team of its parent is not there, and OpenMP would wait for it. */
static void look_for_team(state *st)
{
    PyObject *torch = PyImport_ImportModule("torch");
    st->num_threads = torch ? PyObject_GetAttrString(torch, "get_num_threads") : NULL;
    st->team = find_team();
    PyErr_Clear();
    Py_XDECREF(torch);
    st->looked_for_team = true;
}

/* As many as torch has for this thread at present; 0: it does not say. */
static int64_t torch_threads(const state *st)
{
    PyObject *answer = st->num_threads ? PyObject_CallNoArgs(st->num_threads) : NULL;
    const long n = answer ? PyLong_AsLong(answer) : 0;
    PyErr_Clear();
    Py_XDECREF(answer);
    return n < 0 ? 0 : n < RP_MAX_THREADS ? n : RP_MAX_THREADS;
}

/* The pool of a call, by `threads`, 0 where it was not given, once the arrays are known. The call holds it. */
int take_pool(call *c, int64_t threads)
{
    state *st = c->st;
    int64_t n = threads;
    bool team = false;
    if (c->torch) {
        if (!st->looked_for_team)
            look_for_team(st);
        const char *set = getenv("RELPOS_THREADS");
        if (n == 0)
            n = set && *set ? rp_pool_threads(NULL) : torch_threads(st);
        team = n > 1 && st->team && getpid() == (pid_t)st->process;
    }
    if (n == 0)
        return 0; /* the default pool */
    if (hold(c, pool_of(st, n, team)) != 0)
        return -1;
    c->t.pool = PyCapsule_GetPointer(c->object[c->n_objects - 1], POOL);
    return 0;
}
