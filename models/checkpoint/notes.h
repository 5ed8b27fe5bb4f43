/* notes.h -- notes about how a model was opened: what was changed or ignored in its files. The library never prints, so
 * its clients show them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_NOTES_H
#define RELPOS_CHECKPOINT_NOTES_H

#include <relpos/relpos.h>

typedef struct model_notes {
    char **text; /* [n] */
    int64_t n;
} model_notes;

/* Add a note. Text longer than a line is cut. */
rp_status model_add_note(model_notes *notes, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *model_note(const model_notes *notes, int64_t n); /* note n, counting from 0; NULL if there is none */
void model_notes_free(model_notes *notes);

#endif
