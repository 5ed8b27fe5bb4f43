/* prefixes.c -- prefixes of the names of tensors, which wrappers of a model leave in its files: torch.compile, data
 * parallelism, and modules that contain the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdio.h>
#include <string.h>

/* Prefixes that are removed if all tensors have them. Wrappers nest, so a name may have several. */
static const char *const shared[] = {"_orig_mod.", "module.", "model."};
enum { SHARED = sizeof shared / sizeof *shared, PREFIX = 128 };

#define LAYER "encoder.block.0.layer.0.layer_norm.weight" /* a tensor of every T5 */

/* Return true if a name begins with the prefix. A tokenizer beside the tensors needs none. */
static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0 || strcmp(name, T5_EMBEDDED_TOKENIZER) == 0;
}

static size_t count_with(const io_checkpoint *file, const char *prefix)
{
    size_t count = 0;
    for (size_t n = 0; n < io_checkpoint_size(file); n++)
        count += has_prefix(io_checkpoint_at(file, n)->name, prefix);
    return count;
}

/* Append the next prefix that all tensors share. Return false if there is none. */
static bool extend(const io_checkpoint *file, char prefix[PREFIX])
{
    const size_t n = strlen(prefix);
    for (int k = 0; k < SHARED; k++) {
        if (n + strlen(shared[k]) >= PREFIX)
            continue;
        strcpy(prefix + n, shared[k]);
        if (io_checkpoint_size(file) > 0 && count_with(file, prefix) == io_checkpoint_size(file))
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

rp_status t5_strip_prefixes(rp_t5 *m, const char *path)
{
    char prefix[PREFIX] = "", err[IO_ERR_MAX] = "";
    const char *left_out = io_checkpoint_note(m->file);
    if (left_out != NULL && t5_model_failed(model_add_note(&m->notes, "%s: %s", path, left_out)) != RP_OK)
        return RP_E_NOMEM;
    while (extend(m->file, prefix))
        ;
    if (prefix[0] == 0)
        return RP_OK;
    if (io_checkpoint_rename(m->file, remove_prefix, prefix, path, err) != IO_OK)
        return t5_fail(RP_E_ARG, "%s", err);
    return t5_model_failed(
        model_add_note(&m->notes, "%s: the prefix %s was removed from the names of the tensors", path, prefix));
}

/* Refuse names of which some have a prefix of `shared` and others do not. Name the first of the fewer. */
static rp_status check_odd_names(const io_checkpoint *file, const char *path, const char *prefix)
{
    const size_t all = io_checkpoint_size(file), tokenizer = io_checkpoint_find(file, T5_EMBEDDED_TOKENIZER) != NULL,
                 with = count_with(file, prefix) - tokenizer, without = all - tokenizer - with;
    const bool most = with > without;
    const size_t odd = most ? without : with;
    char more[48] = "";
    size_t n = 0;
    if (odd == 0)
        return RP_OK;
    while (has_prefix(io_checkpoint_at(file, n)->name, prefix) == most ||
           strcmp(io_checkpoint_at(file, n)->name, T5_EMBEDDED_TOKENIZER) == 0)
        n++;
    if (odd > 1)
        snprintf(more, sizeof more, " and %zu more", odd - 1);
    return t5_fail(RP_E_UNSUPPORTED,
                   "%s: the names of its tensors %s with %s, except '%s'%s (rename %s, or remove %s from the file)",
                   path, most ? "begin" : "do not begin", prefix, io_checkpoint_at(file, n)->name, more,
                   odd > 1 ? "these" : "it", odd > 1 ? "them" : "it");
}

rp_status t5_check_names(const io_checkpoint *file, const char *path)
{
    const bool plain = io_checkpoint_find(file, LAYER) != NULL;
    rp_status status = RP_OK;
    for (size_t n = 0; n < io_checkpoint_size(file) && !plain; n++)
        if (strstr(io_checkpoint_at(file, n)->name, ".lora_") != NULL)
            return t5_refuse_adapter(path);
    for (int k = 0; k < SHARED && status == RP_OK; k++)
        status = check_odd_names(file, path, shared[k]);
    for (size_t n = 0; n < io_checkpoint_size(file) && status == RP_OK && !plain; n++) {
        const char *name = io_checkpoint_at(file, n)->name, *layer = strstr(name, "." LAYER);
        if (layer != NULL && strcmp(layer, "." LAYER) == 0)
            status = t5_fail(RP_E_UNSUPPORTED,
                             "%s: the names of its tensors begin with %.*s (save the T5 in this model with "
                             "save_pretrained, or remove the prefix from all names)",
                             path, (int)(layer + 1 - name), name);
    }
    return status;
}

rp_status t5_refuse_adapter(const char *path)
{
    return t5_fail(RP_E_UNSUPPORTED,
                   "%s: it is an adapter of PEFT, not a whole model (load it with peft, call merge_and_unload and then "
                   "save_pretrained, and give that folder)",
                   path);
}
