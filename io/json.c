/* json.c -- read JSON, and tell text that is not JSON from memory that ran out: jansson 2.14 calls both malformed, and may omit letters of
 * a string whose buffer could not grow. It knows nothing of what the JSON means.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/json.h"

#include <pthread.h>
#include <stdlib.h>

static _Thread_local bool allocation_failed; /* of jansson, in this thread */

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL && size > 0)
        allocation_failed = true;
    return memory;
}

static void set_allocator(void)
{
    json_set_alloc_funcs(allocate, free);
}

json_t *io_json(const char *text, size_t size, size_t flags, json_error_t *error, bool *no_memory)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    allocation_failed = false;
    json_t *json = json_loadb(text, size, flags, error);
    *no_memory = allocation_failed;
    if (allocation_failed) {
        json_decref(json);
        json = NULL;
    }
    return json;
}
