/* folder.c -- see folder.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/folder.h"
#include "checkpoint/error.h"
#include "checkpoint/files.h"
#include <stdio.h>

/* The files of an adapter of PEFT. transformers recognizes it by the first. */
static const char *const adapter_names[] = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"};
enum { ADAPTER_NAMES = 3 };

bool model_has_adapter(const char *folder)
{
    bool found = false;
    for (int n = 0; n < ADAPTER_NAMES; n++)
        found = found || model_has_file(folder, adapter_names[n]);
    return found;
}

/* Add notes about files that are not read, although their names say that they may change results. */
static rp_status note_unread(const io_checkpoint *file, model_notes *notes, const char *folder)
{
    const char *weights = io_checkpoint_at(file, 0)->file;
    char index[64];
    rp_status status = RP_OK;
    snprintf(index, sizeof index, "%.40s.index.json", weights);
    if (model_has_file(folder, index))
        status = model_add_note(notes, "%s: %s is read, so %s is not", folder, weights, index);
    for (int n = 1; n < ADAPTER_NAMES && status == RP_OK; n++)
        if (model_has_file(folder, adapter_names[n]))
            status = model_add_note(notes, "%s: %s is not read, because there is no %s", folder, adapter_names[n],
                                    adapter_names[0]);
    return status;
}

rp_status model_refuse_adapter(const char *path)
{
    return model_fail(RP_E_UNSUPPORTED,
                      "%s: it is an adapter of PEFT, not a whole model (load it with peft, call merge_and_unload and "
                      "then save_pretrained, and give that folder)",
                      path);
}

/* A folder of PEFT may have the config.json of its model, with or without the weights; transformers would apply the
 * adapter to them. */
rp_status model_open_weights(io_checkpoint **file, model_notes *notes, const char *folder)
{
    char err[IO_ERR_MAX] = "";
    const io_status status = io_checkpoint_open(file, folder, err);
    if (status == IO_ABSENT && model_has_adapter(folder))
        return model_refuse_adapter(folder);
    if (status != IO_OK)
        return model_fail(RP_E_ARG, "%s", err);
    if (model_has_file(folder, adapter_names[0]))
        return model_fail(
            RP_E_UNSUPPORTED,
            "%s: it has an adapter of PEFT beside the model (load it with peft, call merge_and_unload and "
            "then save_pretrained, and give that folder; or remove adapter_config.json to use the model "
            "without the adapter)",
            folder);
    return note_unread(*file, notes, folder);
}
