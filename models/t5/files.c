/* files.c -- read the files of a model, and record them, so that packing a model never overwrites the files
 * it was read from.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/keys.h"
#include "tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *t5_join(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path != NULL)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

bool t5_has_file(const char *folder, const char *name)
{
    char *path = t5_join(folder, name);
    const bool found = path != NULL && access(path, F_OK) == 0;
    free(path);
    return found;
}

static bool find_id(const char *path, t5_file_id *id)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *id = (t5_file_id){(uint64_t)st.st_dev, (uint64_t)st.st_ino};
    return true;
}

rp_status t5_note_file(rp_t5 *m, const char *path)
{
    t5_file_id id;
    if (!find_id(path, &id))
        return RP_OK;
    t5_file_id *more = realloc(m->files, (size_t)(m->n_files + 1) * sizeof *more);
    if (more == NULL)
        return t5_no_memory();
    m->files = more;
    m->files[m->n_files++] = id;
    return RP_OK;
}

rp_status t5_note_checkpoint(rp_t5 *m, const io_checkpoint *file, const char *folder)
{
    rp_status status = RP_OK;
    const char *last = NULL;
    for (int n = 0; n < IO_CHECKPOINT_NAMES && status == RP_OK; n++) { /* an index too */
        char *path = t5_join(folder, io_checkpoint_names[n]);
        status = path != NULL ? t5_note_file(m, path) : t5_no_memory();
        free(path);
    }
    for (size_t n = 0; n < io_checkpoint_size(file) && status == RP_OK; n++) {
        const char *name = io_checkpoint_at(file, n)->file;
        if (name == last)
            continue;
        last = name;
        char *path = t5_join(folder, name);
        status = path != NULL ? t5_note_file(m, path) : t5_no_memory();
        free(path);
    }
    return status;
}

int rp_t5_reads(const rp_t5 *m, const char *path)
{
    t5_file_id id;
    if (m == NULL || path == NULL || !find_id(path, &id))
        return 0;
    for (int64_t n = 0; n < m->n_files; n++)
        if (m->files[n].device == id.device && m->files[n].number == id.number)
            return 1;
    return 0;
}

rp_status t5_finish(const rp_t5 *m, rp_status status)
{
    char err[IO_ERR_MAX];
    const bool concerns = m->file != NULL && status != RP_E_NOMEM && status != RP_E_CANCELLED;
    return concerns && io_checkpoint_unchanged(m->file, err) != IO_OK ? t5_fail(RP_E_ARG, "%s", err) : status;
}

/* Read a file of at most `max` bytes. */
static rp_status read_text(rp_t5 *m, const char *path, int64_t max, char **text, size_t *size)
{
    const unsigned char *data;
    char err[IO_ERR_MAX], safe[160];
    const io_status status = io_map(path, &data, size, err);
    *text = NULL;
    if (status == IO_ABSENT)
        return RP_OK;
    if (status != IO_OK)
        return t5_fail(RP_E_ARG, "%s", err);
    if (*size > (size_t)max) {
        io_unmap(data, *size);
        return t5_fail(RP_E_ARG, "%s: it has %zu bytes, and at most %lld are read (download the file again)",
                       io_safe(safe, sizeof safe, path), *size, (long long)max);
    }
    *text = malloc(*size + 1);
    if (*text != NULL) {
        memcpy(*text, data, *size);
        (*text)[*size] = 0;
    }
    io_unmap(data, *size);
    return *text != NULL ? t5_note_file(m, path) : t5_no_memory();
}

rp_status t5_read_text(rp_t5 *m, const char *path, char **text, size_t *size)
{
    rp_status status = read_text(m, path, T5_MAX_JSON, text, size);
    if (status != RP_OK || *text == NULL || strlen(*text) == *size)
        return status;
    json_t *root; /* the byte 0 would end the text; JSON never has it, so this reports what is wrong */
    status = t5_parse_json(&root, path, *text, *size, 0);
    json_decref(root);
    return status;
}

rp_status t5_read_tokenizer(rp_t5 *m, const char *path, char **text, size_t *size)
{
    return read_text(m, path, TOK_MAX_FILE, text, size);
}
