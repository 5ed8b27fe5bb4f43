/* linear/sets/linear_registry.c -- finds instruction sets of linear layers by name, and detects those of this machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/processor.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define X(name, found) extern const linear_ops linear_ops_##name;
#include "linear/sets/isa.def"
#undef X

static const linear_ops *const list[] = {
#define X(name, has) &linear_ops_##name,
#include "linear/sets/isa.def"
#undef X
};
enum { SETS = sizeof list / sizeof list[0] };

/* Sets that this machine supports. They are detected once per process, because CPUID in a virtual machine takes longer
 * than a small layer. */
static bool has[SETS];
static const linear_ops *by_default; /* the set named by RELPOS_ISA, or the fastest one */

static int named(const char *name)
{
    int n = 0;
    while (n < SETS && strcmp(list[n]->name, name) != 0)
        n++;
    return n;
}

static const linear_ops *fastest(void)
{
    int n = SETS - 1;
    while (!has[n] || strcmp(list[n]->name, "amx_emulated") == 0)
        n--;
    return list[n]; /* generic is first and always available */
}

/* Find an instruction set by name. For a set of the core that this list does not contain, use generic; for amx on a
 * machine without AMX-INT8, use the fastest set. */
static rp_status choose(const char *name, const linear_ops **ops)
{
    const int n = named(name);
    const bool here = n < SETS && has[n];
    const int found = here ? 1 : rp_isa_found(name);
    *ops = here ? list[n] : strcmp(name, "amx") == 0 ? fastest() : list[0];
    return found == 1 ? RP_OK : found == 0 || n < SETS ? RP_E_UNSUPPORTED : RP_E_ARG;
}

/* Detect the instruction sets and choose the default. */
static void ask(void)
{
    const char *wanted = getenv("RELPOS_ISA");
    int n = 0;
    const rpi_processor p = rpi_processor_ask();
    (void)p; /* unused on some architectures */
#define X(name, found) has[n++] = found;
#include "linear/sets/isa.def"
#undef X
    if (!wanted || !*wanted ||
        choose(wanted, &by_default) != RP_OK) /* an unknown RELPOS_ISA is ignored, as in the core */
        by_default = fastest();
}

static void ask_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask);
}

const linear_ops *linear_entry(int n, bool *found)
{
    ask_once();
    if (n >= SETS)
        return NULL;
    *found = has[n];
    return list[n];
}

rp_status linear_choose(const char *isa, const linear_ops **ops)
{
    ask_once();
    *ops = by_default;
    return isa ? choose(isa, ops) : RP_OK;
}

const char *linear_default_isa(void)
{
    ask_once();
    return by_default->name;
}
