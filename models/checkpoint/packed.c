/* packed.c -- see packed.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/packed.h"
#include "checkpoint/error.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------ checksums */

static uint64_t checksum_of(const char *name, const void *data, size_t size)
{
    return io_checksum(io_checksum(1, name, strlen(name)), data, size);
}

void model_checksum_text(uint64_t sum, char text[MODEL_CHECKSUM])
{
    snprintf(text, MODEL_CHECKSUM, "%016llx", (unsigned long long)sum);
}

/* Sum the checksums of all tensors; the order of tensors does not matter. The progress callback may cancel this.
 * With `drop`, release the memory of each tensor after reading it, for a file that is opened only for its checksum. */
static rp_status tensors_checksum(const io_checkpoint *file, bool drop, rp_progress *progress, void *context,
                                  uint64_t *sum)
{
    double all = 0, done = 0;
    for (size_t n = 0; n < io_checkpoint_size(file); n++)
        all += (double)io_checkpoint_at(file, n)->bytes;
    for (size_t n = 0; n < io_checkpoint_size(file); n++) {
        const io_tensor *t = io_checkpoint_at(file, n);
        *sum += io_tensor_checksum(t, io_checksum(1, t->name, strlen(t->name)));
        if (drop)
            io_tensor_drop(t);
        done += (double)t->bytes;
        if (progress != NULL && progress(context, all > 0 ? done / all : 1) != 0)
            return model_cancelled();
    }
    return RP_OK;
}

/* Returns the metadata of a key, or NULL if there is none. */
typedef const char *meta_getter(const void *from, const char *key);

static const char *meta_of_set(const void *from, const char *key)
{
    return io_meta(from, key);
}

static const char *meta_of_file(const void *from, const char *key)
{
    return io_checkpoint_meta(from, key);
}

static uint64_t keys_checksum(const char *const *keys, int n, const void *from, meta_getter *get)
{
    uint64_t sum = 0;
    for (int k = 0; k < n; k++) {
        const char *value = get(from, keys[k]);
        if (value != NULL)
            sum += checksum_of(keys[k], value, strlen(value));
    }
    return sum;
}

static uint64_t meta_checksum(const model_packed *kind, const void *from, meta_getter *get)
{
    static const char *const every[] = {"format",     "layout", "type",           "config",
                                        "not_finite", "source", "source_checksum"};
    return keys_checksum(every, sizeof every / sizeof *every, from, get) +
           keys_checksum(kind->keys, kind->n_keys, from, get);
}

rp_status model_check_checksum(const io_checkpoint *file, const model_packed *kind, rp_progress *progress,
                               void *context)
{
    char found[MODEL_CHECKSUM];
    uint64_t sum = 0;
    const rp_status status = tensors_checksum(file, false, progress, context, &sum);
    if (status != RP_OK)
        return status;
    model_checksum_text(sum + meta_checksum(kind, file, meta_of_file), found);
    const char *kept = io_checkpoint_meta(file, "checksum");
    if (kept != NULL && strcmp(kept, found) == 0)
        return RP_OK;
    return model_fail(RP_E_ARG,
                      "the file has the checksum %s, but had %.16s when it was packed (copy it or pack it again)",
                      found, kept != NULL ? kept : "none");
}

/* ------------------------------------------------------------------------------------------------ metadata */

rp_status model_describe_packed(io_set *set, const model_packed *kind, linear_type type, const char *config,
                                int64_t not_finite)
{
    char count[24];
    snprintf(count, sizeof count, "%lld", (long long)not_finite);
    return io_add_meta(set, "format", kind->format) == 0 && io_add_meta(set, "layout", LINEAR_LAYOUT) == 0 &&
                   io_add_meta(set, "type", linear_type_name(type)) == 0 && io_add_meta(set, "config", config) == 0 &&
                   (not_finite <= 0 || io_add_meta(set, "not_finite", count) == 0)
               ? RP_OK
               : model_no_memory();
}

rp_status model_write_packed(io_set *set, const model_packed *kind, const char *path)
{
    char err[IO_ERR_MAX] = "", checksum[MODEL_CHECKSUM];
    uint64_t sum = meta_checksum(kind, set, meta_of_set);
    for (size_t n = 0; n < set->n_arrays; n++)
        sum += checksum_of(set->arrays[n].name, set->arrays[n].data, set->arrays[n].bytes);
    model_checksum_text(sum, checksum);
    if (io_add_meta(set, "checksum", checksum) != 0)
        return model_no_memory();
    return io_write(path, IO_SAFETENSORS, set, err) == 0 ? RP_OK : model_fail(RP_E_ARG, "%s", err);
}

rp_status model_check_kind(const io_checkpoint *file, const char *path, const char *own)
{
    static const struct {
        const char *kind, *what;
    } kinds[] = {
        {"relpos-t5 ", "a packed model of the T5 family (use the commands of relpos t5)"},
        {"relpos-encoder ", "a packed encoder (use relpos embed, classify, rerank or proteins)"},
    };
    const char *format = io_checkpoint_meta(file, "format");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && format != NULL; k++)
        if (strncmp(format, kinds[k].kind, strlen(kinds[k].kind)) == 0 && strncmp(format, own, strlen(own)) != 0)
            return model_fail(RP_E_ARG, "%s: it is %s", path, kinds[k].what);
    return RP_OK;
}

rp_status model_check_packed(const io_checkpoint *file, const char *path, int type, bool has_checksum)
{
    const char *layout = io_checkpoint_meta(file, "layout"), *packed = io_checkpoint_meta(file, "type");
    if (layout == NULL || strcmp(layout, LINEAR_LAYOUT) != 0)
        return model_fail(RP_E_ARG,
                          "%s: its weights have layout %.16s, but this version reads layout " LINEAR_LAYOUT
                          " (pack the folder again)",
                          path, layout != NULL ? layout : "unknown");
    if (has_checksum && io_checkpoint_meta(file, "checksum") == NULL)
        return model_fail(RP_E_ARG, "%s: it has no checksum (copy it or pack the folder again)", path);
    if (type >= 0 && packed != NULL && strcmp(packed, linear_type_name((linear_type)type)) != 0)
        return model_fail(RP_E_ARG, "%s: its weights are %.16s and not %s (pack the folder again)", path, packed,
                          linear_type_name((linear_type)type));
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ origin */

rp_status model_note_origin(model_origin *o, const char *path)
{
    char full[PATH_MAX];
    const char *known = realpath(path, full);
    if (known == NULL && access(path, F_OK) == 0) /* a file without a name, such as one of memfd_create */
        known = path;
    if (known == NULL)
        return model_fail(RP_E_ARG, "%s: cannot be read: %s (check the path)", path, strerror(errno));
    o->folder = strdup(known);
    const char *slash = strrchr(known, '/');
    o->name = strdup(slash != NULL ? slash + 1 : known);
    return o->folder != NULL && o->name != NULL ? RP_OK : model_no_memory();
}

rp_status model_origin_inner(model_origin *o, const char *folder)
{
    char *full = folder != NULL ? realpath(folder, NULL) : NULL;
    if (folder == NULL)
        return RP_OK;
    if (full == NULL)
        return model_fail(RP_E_ARG, "%s: cannot be read: %s (check the paths in modules.json)", folder,
                          strerror(errno));
    free(o->folder);
    o->folder = full;
    return RP_OK;
}

rp_status model_copy_origin(model_origin *o, const io_checkpoint *file)
{
    const char *name = io_checkpoint_meta(file, "source"), *checksum = io_checkpoint_meta(file, "source_checksum");
    snprintf(o->checksum, sizeof o->checksum, "%.16s", checksum != NULL ? checksum : "");
    return name == NULL || (o->name = strdup(name)) != NULL ? RP_OK : model_no_memory();
}

rp_status model_origin_checksum(const model_origin *o, const io_checkpoint *file, char text[MODEL_CHECKSUM])
{
    char err[IO_ERR_MAX] = "";
    io_checkpoint *opened;
    uint64_t sum = 0;
    if (o->folder == NULL && o->name != NULL) {
        memcpy(text, o->checksum, MODEL_CHECKSUM);
        return RP_OK;
    }
    if (o->folder == NULL) /* a file of relpos 0.1 */
        tensors_checksum(file, false, NULL, NULL, &sum);
    else if (io_checkpoint_open(&opened, o->folder, err) != IO_OK)
        return model_fail(RP_E_ARG, "%s", err);
    else {
        tensors_checksum(opened, true, NULL, NULL, &sum);
        const bool unchanged = io_checkpoint_unchanged(opened, err) == IO_OK;
        io_checkpoint_close(opened);
        if (!unchanged)
            return model_fail(RP_E_ARG, "%s", err);
    }
    model_checksum_text(sum, text);
    return RP_OK;
}

rp_status model_describe_origin(const model_origin *o, const io_checkpoint *file, io_set *set)
{
    char checksum[MODEL_CHECKSUM];
    if (o->name == NULL)
        return RP_OK;
    const rp_status status = model_origin_checksum(o, file, checksum);
    if (status != RP_OK)
        return status;
    return io_add_meta(set, "source", o->name) == 0 && io_add_meta(set, "source_checksum", checksum) == 0
               ? RP_OK
               : model_no_memory();
}

void model_origin_free(model_origin *o)
{
    free(o->folder);
    free(o->name);
    *o = (model_origin){0};
}
