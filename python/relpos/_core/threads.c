/* threads.c -- the threads of a call. NumPy calls use the library's own threads. torch calls use torch's OpenMP
 * threads, because these keep spinning on the cores for a while after each torch operation and would compete with ours.
 * The OpenMP team is started by GOMP_parallel of the runtime that torch links (libgomp; LLVM's and Intel's runtimes
 * export it too).
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

/* The signature of GOMP_parallel(function, data, threads, flags). */
typedef void gomp_parallel(rp_work *, void *, unsigned, unsigned);

/* Run a task on an OpenMP team of `count` threads. A callback for rp_pool_from. */
static void run_by_team(void *context, int32_t count, rp_work *work, void *data)
{
    gomp_parallel *parallel = (gomp_parallel *)(uintptr_t)context;
    parallel(work, data, (unsigned)count, 0);
}

#ifdef __linux__
/* Copy the path of libtorch_cpu, which links the OpenMP runtime. A callback for dl_iterate_phdr. */
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

/* Find GOMP_parallel in the order in which the loader binds torch's calls: first the global symbols of the process,
 * such as a preloaded library, then (on Linux) the libraries that libtorch_cpu links. Returns NULL if there is none. */
static void *find_team(void)
{
    void *team = dlsym(RTLD_DEFAULT, "GOMP_parallel");
#ifdef __linux__
    char *path = NULL;
    if (team)
        return team;
    dl_iterate_phdr(find_torch, &path);
    void *torch = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL; /* already loaded, and never unloaded */
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

/* Return a pool of n threads, torch's if `team` is true, as a capsule. The module caches the last MAX_POOLS pools.
 * Returns a new reference. */
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

/* Look up torch.get_num_threads and GOMP_parallel. */
static void load_team(state *st)
{
    PyObject *torch = PyImport_ImportModule("torch");
    st->num_threads = torch ? PyObject_GetAttrString(torch, "get_num_threads") : NULL;
    st->team = find_team();
    PyErr_Clear();
    Py_XDECREF(torch);
    st->team_loaded = true;
}

/* Return torch.get_num_threads(), or 0 if it is not available. */
static int64_t torch_threads(const state *st)
{
    PyObject *answer = st->num_threads ? PyObject_CallNoArgs(st->num_threads) : NULL;
    const long n = answer ? PyLong_AsLong(answer) : 0;
    PyErr_Clear();
    Py_XDECREF(answer);
    return n < 0 ? 0 : n < RP_MAX_THREADS ? n : RP_MAX_THREADS;
}

/* Choose the pool of a call, which the call keeps, after its arrays are read; `threads` is 0 if not given. A forked
 * child does not use torch's threads: its parent's team does not exist there, and OpenMP would wait for it forever. */
int take_pool(call *c, int64_t threads)
{
    state *st = c->st;
    int64_t n = threads;
    bool team = false;
    if (c->torch) {
        if (!st->team_loaded)
            load_team(st);
        const char *set = getenv("RELPOS_THREADS");
        if (n == 0)
            n = set && *set ? rp_pool_threads(NULL) : torch_threads(st);
        team = n > 1 && st->team && getpid() == (pid_t)st->process;
    }
    if (n == 0)
        return 0; /* the default pool */
    if (keep(c, pool_of(st, n, team)) != 0)
        return -1;
    c->t.pool = PyCapsule_GetPointer(c->object[c->n_objects - 1], POOL);
    return 0;
}
