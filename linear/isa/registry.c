/* linear/isa/registry.c -- the instruction sets of linear layers by name, and which of them this machine has.
 * It may not know what the kernels compute.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define X(name, found) extern const linear_ops linear_ops_##name;
#include "linear/isa/isa.def"
#undef X

#if defined(__x86_64__)
static bool avx_vnni_found(void) /* compilers have no name for it to ask by */
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}
#endif

const linear_ops *linear_entry(int n, bool *found)
{
    int at = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#define X(name, has)                                                                                                   \
    if (at++ == n) {                                                                                                   \
        *found = has;                                                                                                  \
        return &linear_ops_##name;                                                                                     \
    }
#include "linear/isa/isa.def"
#undef X
    return NULL;
}

/* The entry of a name; NULL: it is not in the list. */
static const linear_ops *named(const char *name, bool *found)
{
    const linear_ops *ops;
    for (int n = 0; (ops = linear_entry(n, found)) && strcmp(ops->name, name) != 0; n++)
        ;
    return ops;
}

static const linear_ops *fastest(void)
{
    const linear_ops *ops, *best = NULL;
    bool found;
    for (int n = 0; (ops = linear_entry(n, &found)); n++)
        best = found ? ops : best;
    return best;
}

/* What stands for an instruction set that the core alone has: the best, but plain code for its plain code. */
static const linear_ops *instead(const char *name)
{
    bool found;
    return strcmp(name, "amx") == 0 ? fastest() : named("generic", &found);
}

rp_status linear_choose(const char *isa, const linear_ops **ops)
{
    bool found = false;
    const char *wanted = isa ? isa : getenv("RELPOS_ISA");
    *ops = NULL;
    if (wanted && *wanted) {
        *ops = named(wanted, &found);
        if (!*ops && rp_isa_found(wanted) >= 0) {
            found = rp_isa_found(wanted) == 1;
            *ops = instead(wanted);
        }
    }
    if (!isa && !found) { /* as the core does, a name in the environment that means nothing here is passed over */
        *ops = fastest();
        return RP_OK;
    }
    return !*ops ? RP_E_ARG : found ? RP_OK : RP_E_UNSUPPORTED;
}
