/* fake_blas.c -- what the laboratory asks an OpenBLAS before it multiplies: it takes FAKE_CORE, or OPENBLAS_CORETYPE unless FAKE_DEAF is
 * set, as it is loaded; where FAKE_KNOWS is set and another core is asked for, Prescott. With PLAIN, a CBLAS that is no OpenBLAS.
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
