/* json.c -- JSON that was not read for want of memory told from text that is not JSON: jansson 2.14 calls both malformed, and may
 * leave letters out of a string whose buffer could not grow.
 * SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <pthread.h>
#include <stdlib.h>

static _Thread_local bool starved; /* an allocation of jansson's has failed in this thread */

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL && size > 0)
        starved = true;
    return memory;
}

static void listen(void)
{
    json_set_alloc_funcs(allocate, free);
}

json_t *io_json(const char *text, size_t size, size_t flags, json_error_t *error, bool *no_memory)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, listen);
    starved = false;
    json_t *json = json_loadb(text, size, flags, error);
    *no_memory = starved;
    if (starved) {
        json_decref(json);
        json = NULL;
    }
    return json;
}
