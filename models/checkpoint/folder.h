/* folder.h -- the weights of a folder that save_pretrained wrote, and adapters of PEFT, which are refused.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_FOLDER_H
#define RELPOS_CHECKPOINT_FOLDER_H

#include "checkpoint/notes.h"
#include "io/checkpoint.h"
#include <stdbool.h>

bool model_has_adapter(const char *folder);
rp_status model_refuse_adapter(const char *path); /* report that a file or folder is an adapter of PEFT */
/* Open the weights of a folder, and add notes about files that are not read, although their names say that they may
 * change results. The caller also closes *file after a failure. */
rp_status model_open_weights(io_checkpoint **file, model_notes *notes, const char *folder);

#endif
