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
        free(f->texts[n].key);
        free(f->texts[n].text);
    }
    free(f->texts);
    free(f->root);
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

rp_status model_copy_bytes(const io_tensor *array, const char *path, char **text, size_t *size)
{
    *text = NULL;
    if (array->unsupported != NULL || (array->dtype != RP_U8 && array->dtype != RP_I8))
        return model_fail(RP_E_ARG, "%s: its array '%s' must have bytes, of the dtype U8 (pack the folder again)", path,
                          array->name);
    *text = malloc(array->bytes + 1);
    if (*text == NULL)
        return model_no_memory();
    if (array->bytes > 0)
        memcpy(*text, array->data, array->bytes);
    (*text)[array->bytes] = 0;
    *size = array->bytes;
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ kept texts */

/* Set *key to the key of a text, which the caller frees, or to NULL if the path is not in the root. */
static rp_status key_of(const model_files *f, const char *path, char **key)
{
    const size_t n = f->root != NULL ? strlen(f->root) : 0, size = strlen(path) + sizeof "file:";
    *key = NULL;
    if (n == 0 || strncmp(path, f->root, n) != 0 || path[n] != '/')
        return RP_OK;
    *key = malloc(size);
    if (*key == NULL)
        return model_no_memory();
    snprintf(*key, size, "file:%s", path + n + 1);
    return RP_OK;
}

/* Return the kept text with this key, or NULL. */
static const char *find_text(const model_files *f, const char *key)
{
    for (int64_t n = 0; n < f->n_texts && key != NULL; n++)
        if (strcmp(f->texts[n].key, key) == 0)
            return f->texts[n].text;
    return NULL;
}

/* Keep a copy of a text. */
static rp_status keep_text(model_files *f, const char *key, const char *text)
{
    model_text *more = realloc(f->texts, (size_t)(f->n_texts + 1) * sizeof *more);
    if (more == NULL)
        return model_no_memory();
    f->texts = more;
    f->texts[f->n_texts++] = (model_text){strdup(key), strdup(text)};
    return more[f->n_texts - 1].key != NULL && more[f->n_texts - 1].text != NULL ? RP_OK : model_no_memory();
}

/* Copy a text; NULL: there is none. */
static rp_status copy_text(const char *from, char **text, size_t *size)
{
    *text = NULL;
    if (from == NULL)
        return RP_OK;
    *text = strdup(from);
    *size = strlen(from);
    return *text != NULL ? RP_OK : model_no_memory();
}

/* Read a text from the metadata of a packed file, or from the folder, and keep it. */
static rp_status read_text(model_files *f, const char *path, const char *key, char **text, size_t *size)
{
    const rp_status status = f->packed != NULL
                                 ? copy_text(key != NULL ? io_checkpoint_meta(f->packed, key) : NULL, text, size)
                                 : model_read_file(f, path, MODEL_MAX_JSON, text, size);
    return status == RP_OK && *text != NULL && key != NULL ? keep_text(f, key, *text) : status;
}

rp_status model_list_texts(const model_files *f, io_set *set)
{
    for (int64_t n = 0; n < f->n_texts; n++)
        if (io_add_meta(set, f->texts[n].key, f->texts[n].text) != 0)
            return model_no_memory();
    return RP_OK;
}

const char **model_text_keys(const model_files *f)
{
    const char **keys = calloc((size_t)f->n_texts + 1, sizeof *keys);
    for (int64_t n = 0; n < f->n_texts && keys != NULL; n++)
        keys[n] = f->texts[n].key;
    return keys;
}

rp_status model_read_text(model_files *f, const char *path, char **text, size_t *size)
{
    char *key;
    *text = NULL;
    rp_status status = key_of(f, path, &key);
    const char *kept = find_text(f, key);
    if (status == RP_OK)
        status = kept != NULL ? copy_text(kept, text, size) : read_text(f, path, key, text, size);
    free(key);
    if (status != RP_OK || *text == NULL || strlen(*text) == *size)
        return status;
    json_t *root; /* the byte 0 would end the text; JSON never has it, so this reports what is wrong */
    status = model_parse_json(&root, path, *text, *size, 0);
    json_decref(root);
    return status;
}
