/* names.c -- see names.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/names.h"
#include "checkpoint/error.h"
#include "checkpoint/folder.h"
#include <stdio.h>
#include <string.h>

enum { PREFIX = 128 };

static bool is_other(const model_naming *names, const char *name)
{
    return names->other != NULL && strcmp(name, names->other) == 0;
}

static bool has_prefix(const model_naming *names, const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0 || is_other(names, name);
}

static size_t count_with(const model_naming *names, const io_checkpoint *file, const char *prefix)
{
    size_t count = 0;
    for (size_t n = 0; n < io_checkpoint_size(file); n++)
        count += has_prefix(names, io_checkpoint_at(file, n)->name, prefix);
    return count;
}

/* Append the next prefix that all tensors share. Return false if there is none. */
static bool extend(const model_naming *names, const io_checkpoint *file, char prefix[PREFIX])
{
    const size_t n = strlen(prefix);
    for (int k = 0; k < names->n_prefixes; k++) {
        if (n + strlen(names->prefixes[k]) >= PREFIX)
            continue;
        strcpy(prefix + n, names->prefixes[k]);
        if (io_checkpoint_size(file) > 0 && count_with(names, file, prefix) == io_checkpoint_size(file))
            return true;
    }
    prefix[n] = 0;
    return false;
}

/* An io_renamer that removes the prefix. */
static bool remove_prefix(const void *context, const char *name, char *to, size_t size)
{
    const size_t n = strlen(context);
    snprintf(to, size, "%s", strncmp(name, context, n) == 0 ? name + n : name);
    return true;
}

rp_status model_strip_prefixes(io_checkpoint *file, const model_naming *names, model_notes *notes, const char *path)
{
    char prefix[PREFIX] = "", err[IO_ERR_MAX] = "";
    const char *left_out = io_checkpoint_note(file);
    if (left_out != NULL && model_add_note(notes, "%s: %s", path, left_out) != RP_OK)
        return RP_E_NOMEM;
    while (extend(names, file, prefix))
        ;
    if (prefix[0] == 0)
        return RP_OK;
    if (io_checkpoint_rename(file, remove_prefix, prefix, path, err) != IO_OK)
        return model_fail(RP_E_ARG, "%s", err);
    return model_add_note(notes, "%s: the prefix %s was removed from the names of the tensors", path, prefix);
}

/* Refuse names of which some have the prefix and others do not. Name the first of the fewer. */
static rp_status check_odd_names(const io_checkpoint *file, const model_naming *names, const char *path,
                                 const char *prefix)
{
    const size_t all = io_checkpoint_size(file),
                 others = names->other != NULL && io_checkpoint_find(file, names->other) != NULL,
                 with = count_with(names, file, prefix) - others, without = all - others - with;
    const bool most = with > without;
    const size_t odd = most ? without : with;
    char more[48] = "";
    size_t n = 0;
    if (odd == 0)
        return RP_OK;
    while (has_prefix(names, io_checkpoint_at(file, n)->name, prefix) == most ||
           is_other(names, io_checkpoint_at(file, n)->name))
        n++;
    if (odd > 1)
        snprintf(more, sizeof more, " and %zu more", odd - 1);
    return model_fail(RP_E_UNSUPPORTED,
                      "%s: the names of its tensors %s with %s, except '%s'%s (rename %s, or remove %s from the file)",
                      path, most ? "begin" : "do not begin", prefix, io_checkpoint_at(file, n)->name, more,
                      odd > 1 ? "these" : "it", odd > 1 ? "them" : "it");
}

rp_status model_check_names(const io_checkpoint *file, const model_naming *names, const char *path)
{
    const bool plain = io_checkpoint_find(file, names->tensor) != NULL;
    rp_status status = RP_OK;
    for (size_t n = 0; n < io_checkpoint_size(file) && !plain; n++)
        if (strstr(io_checkpoint_at(file, n)->name, ".lora_") != NULL)
            return model_refuse_adapter(path);
    for (int k = 0; k < names->n_prefixes && status == RP_OK; k++)
        status = check_odd_names(file, names, path, names->prefixes[k]);
    for (size_t n = 0; n < io_checkpoint_size(file) && status == RP_OK && !plain; n++) {
        const char *name = io_checkpoint_at(file, n)->name;
        const size_t size = strlen(name), end = strlen(names->tensor);
        if (size > end && name[size - end - 1] == '.' && strcmp(name + size - end, names->tensor) == 0)
            status = model_fail(RP_E_UNSUPPORTED,
                                "%s: the names of its tensors begin with %.*s (save the %s in this model with "
                                "save_pretrained, or remove the prefix from all names)",
                                path, (int)(size - end), name, names->kind);
    }
    return status;
}
