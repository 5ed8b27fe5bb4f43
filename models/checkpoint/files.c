/* files.c -- see files.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/files.h"
#include "checkpoint/error.h"
#include "checkpoint/keys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *model_join(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path != NULL)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

bool model_has_file(const char *folder, const char *name)
{
    char *path = model_join(folder, name);
    const bool found = path != NULL && access(path, F_OK) == 0;
    free(path);
    return found;
}

static bool find_id(const char *path, model_file_id *id)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *id = (model_file_id){(uint64_t)st.st_dev, (uint64_t)st.st_ino};
    return true;
}

rp_status model_note_file(model_files *f, const char *path)
{
    model_file_id id;
    if (!find_id(path, &id))
        return RP_OK;
    model_file_id *more = realloc(f->ids, (size_t)(f->n + 1) * sizeof *more);
    if (more == NULL)
        return model_no_memory();
    f->ids = more;
    f->ids[f->n++] = id;
    return RP_OK;
}

rp_status model_note_checkpoint(model_files *f, const io_checkpoint *file, const char *folder)
{
    rp_status status = RP_OK;
    const char *last = NULL;
    for (int n = 0; n < IO_CHECKPOINT_NAMES && status == RP_OK; n++) { /* an index too */
        char *path = model_join(folder, io_checkpoint_names[n]);
        status = path != NULL ? model_note_file(f, path) : model_no_memory();
        free(path);
    }
    for (size_t n = 0; n < io_checkpoint_size(file) && status == RP_OK; n++) {
        const char *name = io_checkpoint_at(file, n)->file;
        if (name == last)
            continue;
        last = name;
        char *path = model_join(folder, name);
        status = path != NULL ? model_note_file(f, path) : model_no_memory();
        free(path);
    }
    return status;
}

bool model_reads(const model_files *f, const char *path)
{
    model_file_id id;
    if (!find_id(path, &id))
        return false;
    for (int64_t n = 0; n < f->n; n++)
        if (f->ids[n].device == id.device && f->ids[n].number == id.number)
            return true;
    return false;
}

void model_files_free(model_files *f)
{
    free(f->ids);
    for (int64_t n = 0; n < f->n_texts; n++) {
        free(f->texts[n].name);
        free(f->texts[n].text);
    }
    free(f->texts);
    *f = (model_files){0};
}

rp_status model_read_file(model_files *f, const char *path, int64_t max, char **text, size_t *size)
{
    const unsigned char *data;
    char err[IO_ERR_MAX], safe[160];
    const io_status status = io_map(path, &data, size, err);
    *text = NULL;
    if (status == IO_ABSENT)
        return RP_OK;
    if (status != IO_OK)
        return model_fail(RP_E_ARG, "%s", err);
    if (*size > (size_t)max) {
        io_unmap(data, *size);
        return model_fail(RP_E_ARG, "%s: it has %zu bytes, and at most %lld are read (download the file again)",
                          io_safe(safe, sizeof safe, path), *size, (long long)max);
    }
    *text = malloc(*size + 1);
    if (*text != NULL) {
        memcpy(*text, data, *size);
        (*text)[*size] = 0;
    }
    io_unmap(data, *size);
    return *text != NULL ? model_note_file(f, path) : model_no_memory();
}

/* ------------------------------------------------------------------------------------------------ kept texts */

/* Return the part of a path after the root and a slash, or NULL if it is not in the root. */
static const char *within_root(const model_files *f, const char *path)
{
    const size_t n = f->root != NULL ? strlen(f->root) : 0;
    return n > 0 && strncmp(path, f->root, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static char *key_of(const char *name)
{
    const size_t n = strlen(name) + 6;
    char *key = malloc(n);
    if (key != NULL)
        snprintf(key, n, "file:%s", name);
    return key;
}

/* Keep a copy of a text, unless one with this name is kept. */
static rp_status keep_text(model_files *f, const char *name, const char *text)
{
    for (int64_t n = 0; n < f->n_texts; n++)
        if (strcmp(f->texts[n].name, name) == 0)
            return RP_OK;
    model_text *more = realloc(f->texts, (size_t)(f->n_texts + 1) * sizeof *more);
    if (more == NULL)
        return model_no_memory();
    f->texts = more;
    f->texts[f->n_texts++] = (model_text){strdup(name), strdup(text)};
    return more[f->n_texts - 1].name != NULL && more[f->n_texts - 1].text != NULL ? RP_OK : model_no_memory();
}

/* Read a text from the metadata of a packed file. */
static rp_status read_packed(const model_files *f, const char *path, char **text, size_t *size)
{
    const char *name = within_root(f, path);
    char *key = name != NULL ? key_of(name) : NULL;
    *text = NULL;
    if (name == NULL)
        return RP_OK;
    if (key == NULL)
        return model_no_memory();
    const char *found = io_checkpoint_meta(f->packed, key);
    free(key);
    if (found == NULL)
        return RP_OK;
    *text = strdup(found);
    *size = strlen(found);
    return *text != NULL ? RP_OK : model_no_memory();
}

rp_status model_list_texts(const model_files *f, io_set *set)
{
    bool added = true;
    for (int64_t n = 0; n < f->n_texts && added; n++) {
        char *key = key_of(f->texts[n].name);
        added = key != NULL && io_add_meta(set, key, f->texts[n].text) == 0;
        free(key);
    }
    return added ? RP_OK : model_no_memory();
}

rp_status model_text_keys(const model_files *f, const char ***keys)
{
    *keys = calloc((size_t)f->n_texts + 1, sizeof **keys);
    bool made = *keys != NULL;
    for (int64_t n = 0; n < f->n_texts && made; n++)
        made = ((*keys)[n] = key_of(f->texts[n].name)) != NULL;
    return made ? RP_OK : model_no_memory();
}

void model_free_keys(const model_files *f, const char **keys)
{
    for (int64_t n = 0; keys != NULL && n < f->n_texts; n++)
        free((void *)(uintptr_t)keys[n]);
    free((void *)(uintptr_t)keys);
}

rp_status model_read_text(model_files *f, const char *path, char **text, size_t *size)
{
    const char *name = within_root(f, path);
    rp_status status =
        f->packed != NULL ? read_packed(f, path, text, size) : model_read_file(f, path, MODEL_MAX_JSON, text, size);
    if (status == RP_OK && *text != NULL && name != NULL)
        status = keep_text(f, name, *text);
    if (status != RP_OK || *text == NULL || strlen(*text) == *size)
        return status;
    json_t *root; /* the byte 0 would end the text; JSON never has it, so this reports what is wrong */
    status = model_parse_json(&root, path, *text, *size, 0);
    json_decref(root);
    return status;
}
