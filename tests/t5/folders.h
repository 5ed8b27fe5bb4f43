/* folders.h -- helpers of the T5 tests that change copies of the tiny checkpoints: a temporary folder and its files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_FOLDERS_H
#define RELPOS_TESTS_FOLDERS_H

#include "tests/t5/models.h"

HELPER char folder[200];

HELPER void path_to(char path[300], const char *name)
{
    snprintf(path, 300, "%s/%s", folder, name);
}

HELPER char *read_bytes(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *bytes = calloc(1, 1 << 20);
    *size = fread(bytes, 1, (1 << 20) - 1, f);
    fclose(f);
    return bytes;
}

HELPER void write_bytes(const char *name, const void *bytes, size_t size)
{
    char path[300];
    path_to(path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

HELPER void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

HELPER void clear(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'/*", folder);
    assert_int_equal(system(command), 0);
}

/* Copy a checkpoint, which the test will then damage. */
HELPER void copy_model(const char *name)
{
    char command[600];
    clear();
    snprintf(command, sizeof command, "cp " DATA "/%s/* '%s'", name, folder);
    assert_int_equal(system(command), 0);
}

HELPER void refuses(const char *path, const char *words)
{
    rp_t5 *m = (rp_t5 *)1;
    const rp_status status = rp_t5_open(&m, path, NULL);
    assert_null(m);
    if (status == RP_OK)
        fail_msg("opened; expected: %s", words);
    if (strstr(rp_t5_last_error(), words) == NULL || strchr(rp_t5_last_error(), '\n') != NULL)
        fail_msg("'%s' does not contain '%s'", rp_t5_last_error(), words);
}

/* Replace a text in a JSON file. */
HELPER void edit(const char *file, const char *from, const char *to)
{
    char path[300];
    size_t size;
    path_to(path, file);
    char *text = read_bytes(path, &size), *at = strstr(text, from);
    if (at == NULL)
        fail_msg("%s has no %s", file, from);
    char *made = calloc(1, size + strlen(to) + 1);
    memcpy(made, text, (size_t)(at - text));
    strcat(made, to);
    strcat(made, at + strlen(from));
    write_text(file, made);
    free(made);
    free(text);
}

HELPER void read_weights(io_set *set)
{
    char path[300], err[IO_ERR_MAX];
    path_to(path, "model.safetensors");
    if (io_read(path, set, NULL, err) != IO_OK)
        fail_msg("%s", err);
}

HELPER void write_weights(const io_set *set)
{
    char path[300], err[IO_ERR_MAX];
    path_to(path, "model.safetensors");
    if (io_write(path, IO_SAFETENSORS, set, err) != 0)
        fail_msg("%s", err);
}

HELPER io_array *array_named(io_set *set, const char *name)
{
    return (io_array *)(uintptr_t)io_find(set, name);
}

HELPER int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/relpos-t5-XXXXXX");
    return mkdtemp(folder) == NULL;
}

HELPER int tear_down(void **state)
{
    (void)state;
    clear();
    return rmdir(folder);
}

#endif
