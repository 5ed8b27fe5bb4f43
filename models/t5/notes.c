/* notes.c -- notes about how a model was opened: what was changed or ignored in its files. The library never prints, so
 * its clients show them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rp_status t5_add_note(rp_t5 *m, const char *format, ...)
{
    char safe[2048];
    va_list list;
    va_start(list, format);
    io_safe_message(safe, sizeof safe, format, list);
    va_end(list);
    char **more = realloc(m->notes, (size_t)(m->n_notes + 1) * sizeof *more);
    if (more == NULL)
        return t5_no_memory();
    m->notes = more;
    m->notes[m->n_notes] = strdup(safe);
    return m->notes[m->n_notes] != NULL ? (m->n_notes++, RP_OK) : t5_no_memory();
}

void t5_notes_free(rp_t5 *m)
{
    for (int64_t n = 0; n < m->n_notes; n++)
        free(m->notes[n]);
    free(m->notes);
}

const char *rp_t5_note(const rp_t5 *m, int64_t n)
{
    return m != NULL && n >= 0 && n < m->n_notes ? m->notes[n] : NULL;
}
