/* notes.c -- see notes.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/notes.h"
#include "checkpoint/error.h"
#include "io/io.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

rp_status model_add_note(model_notes *notes, const char *format, ...)
{
    char safe[2048];
    va_list list;
    va_start(list, format);
    io_safe_message(safe, sizeof safe, format, list);
    va_end(list);
    char **more = realloc(notes->text, (size_t)(notes->n + 1) * sizeof *more);
    if (more == NULL)
        return model_no_memory();
    notes->text = more;
    notes->text[notes->n] = strdup(safe);
    return notes->text[notes->n] != NULL ? (notes->n++, RP_OK) : model_no_memory();
}

const char *model_note(const model_notes *notes, int64_t n)
{
    return n >= 0 && n < notes->n ? notes->text[n] : NULL;
}

void model_notes_free(model_notes *notes)
{
    for (int64_t n = 0; n < notes->n; n++)
        free(notes->text[n]);
    free(notes->text);
    *notes = (model_notes){0};
}
