/* folder.h -- a folder of a model, whose JSON files are the input, separated by bytes 0x1e. Its other files are links.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_FUZZ_FOLDER_H
#define RELPOS_TESTS_FUZZ_FOLDER_H
#include "tests/fuzz/fuzz.h"
#include <limits.h>
#include <sys/stat.h>

enum { FOLDER_MOST = 8 };

typedef struct model_folder {
    const char *from;                 /* where linked files are, seen from the project */
    const char *inner[FOLDER_MOST];   /* folders in it, outer ones first */
    const char *written[FOLDER_MOST]; /* files that the input has */
    const char *linked[FOLDER_MOST];  /* other files */
    char *path;                       /* NULL until it is made */
    struct {
        uint8_t *data;
        size_t size;
    } now[FOLDER_MOST]; /* what the files have: mutations change few of them */
} model_folder;

FUZZED const char *folder_file(const model_folder *f, const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    return path;
}

FUZZED void folder_make(model_folder *f)
{
    char here[PATH_MAX / 2], from[PATH_MAX];
    PROMISE(getcwd(here, sizeof here) != NULL, "no working folder");
    f->path = make_folder_in_memory();
    for (int k = 0; k < FOLDER_MOST && f->inner[k] != NULL; k++)
        PROMISE(mkdir(folder_file(f, f->inner[k]), 0700) == 0, "no folder %s", f->inner[k]);
    for (int k = 0; k < FOLDER_MOST && f->linked[k] != NULL; k++) {
        snprintf(from, sizeof from, "%s/%s/%s", here, f->from, f->linked[k]);
        PROMISE(access(from, R_OK) == 0 && symlink(from, folder_file(f, f->linked[k])) == 0, "no file %s", from);
    }
}

/* Remove the folder. */
FUZZED void folder_remove(model_folder *f)
{
    for (int k = 0; k < FOLDER_MOST && f->path != NULL && f->linked[k] != NULL; k++)
        unlink(folder_file(f, f->linked[k]));
    for (int k = 0; k < FOLDER_MOST && f->path != NULL && f->written[k] != NULL; k++) {
        unlink(folder_file(f, f->written[k]));
        free(f->now[k].data);
    }
    for (int k = FOLDER_MOST - 1; k >= 0 && f->path != NULL; k--)
        if (f->inner[k] != NULL)
            rmdir(folder_file(f, f->inner[k]));
    if (f->path != NULL)
        rmdir(f->path);
    free(f->path);
    f->path = NULL;
}

/* Make a file have `size` bytes; remove it if that is 0. */
FUZZED void folder_write(model_folder *f, int k, const uint8_t *data, size_t size)
{
    const char *path = folder_file(f, f->written[k]);
    if (size == f->now[k].size && (size == 0 || memcmp(data, f->now[k].data, size) == 0))
        return;
    free(f->now[k].data);
    f->now[k].data = size > 0 ? (uint8_t *)text_of(data, size) : NULL;
    f->now[k].size = size;
    if (size == 0) {
        unlink(path);
        return;
    }
    FILE *to = fopen(path, "w");
    PROMISE(to != NULL && fwrite(data, 1, size, to) == size && fclose(to) == 0, "cannot write %s", path);
}

/* Write the files of an input. */
FUZZED void folder_fill(model_folder *f, const uint8_t *data, size_t size)
{
    if (f->path == NULL)
        folder_make(f);
    for (int k = 0; k < FOLDER_MOST && f->written[k] != NULL; k++) {
        const uint8_t *end = size > 0 ? memchr(data, 0x1e, size) : NULL;
        const size_t n = end != NULL ? (size_t)(end - data) : size;
        folder_write(f, k, data, n);
        data += end != NULL ? n + 1 : n;
        size -= end != NULL ? n + 1 : n;
    }
}

#endif
