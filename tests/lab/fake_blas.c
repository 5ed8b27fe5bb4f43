/* fake_blas.c -- a fake OpenBLAS that has the functions which the laboratory calls before its first product. When
 * loaded, it chooses the core named in OPENBLAS_CORETYPE; if that is unset or FAKE_DEAF is set, it chooses FAKE_CORE.
 * If FAKE_KNOWS is set and another core is requested, it chooses Prescott. Compiled with PLAIN, it is a CBLAS that is
 * not OpenBLAS.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
void cblas_sgemm(void);
void cblas_sgemm(void)
{
    abort();
}

#ifndef PLAIN
void openblas_set_num_threads(int n);
char *openblas_get_config(void);
char *openblas_get_corename(void);

static char core[64];

__attribute__((constructor)) static void loaded(void)
{
    const char *own = getenv("FAKE_CORE"), *asked = getenv("OPENBLAS_CORETYPE");
    const char *knows = getenv("FAKE_KNOWS");
    if (knows && asked && *asked && strcmp(asked, knows) != 0)
        asked = "Prescott";
    snprintf(core, sizeof core, "%s", asked && *asked && !getenv("FAKE_DEAF") ? asked : own ? own : "");
}

void openblas_set_num_threads(int n)
{
    (void)n;
}

char *openblas_get_config(void)
{
    static char config[] = "OpenBLAS 0.0.1 DYNAMIC_ARCH";
    return config;
}

char *openblas_get_corename(void)
{
    return core;
}
#endif
#pragma GCC visibility pop
