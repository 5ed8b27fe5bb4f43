/* protein_output.c -- the file of arrays of `relpos proteins`. All arrays go to OUT.part, an .npz that other
 * programs can open while it grows. At the end it becomes OUT, or is converted to OUT.h5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/formats.h"
#include "cli/t5/proteins.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Record an array of an existing file. */
static int on_found(void *context, const io_array *array, uint64_t tag, off_t at, char err[IO_ERR_MAX])
{
    protein_output *o = context;
    if (at == IO_APPEND_DAMAGED) {
        o->damaged++;
        return 0;
    }
    const size_t index = protein_names_add(o->names, array->name);
    if (index == SIZE_MAX)
        return io_fail(err, o->path, "out of memory");
    o->names->names[index].stored = true;
    o->names->names[index].tag = tag;
    return 0;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

/* List the arrays of the output. Its note must be ours. */
static int list_output(protein_output *o)
{
    char note[sizeof o->note] = "", err[IO_ERR_MAX], safe[160];
    const int result = o->hdf5 ? protein_hdf5_list(o->path, note, sizeof note, on_found, o, err)
                               : io_append_list(o->path, note, sizeof note, on_found, o, &o->end, err);
    if (result != 0)
        return cli_error(CLI_FAILED, "-o: %s", err);
    if (note[0] == 0)
        return cli_error(CLI_FAILED,
                         "-o: %s: it exists, and this command did not write it (remove it, or write to another file)",
                         io_safe(safe, sizeof safe, o->path));
    if (strcmp(note, o->note) != 0)
        return cli_error(
            CLI_FAILED,
            "-o: %s: it was written with %.200s, but this run has %.200s (use the same options, or write to another "
            "file)",
            io_safe(safe, sizeof safe, o->path), note, o->note);
    return CLI_OK;
}

int protein_output_begin(protein_output *o, const char *path)
{
    struct stat st;
    char safe[160];
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return cli_error(CLI_USAGE, "-o: %s: it is not a regular file (give the name of a file)",
                         io_safe(safe, sizeof safe, path));
    o->path = io_follow_links(path);
    if (o->path != NULL && (o->part = malloc(strlen(o->path) + sizeof ".part")) != NULL)
        sprintf(o->part, "%s.part", o->path);
    if (o->part == NULL)
        return cli_error(CLI_FAILED, "%s: out of memory", o->command);
    return exists(o->path) ? list_output(o) : CLI_OK;
}

int protein_output_open(protein_output *o)
{
    char err[IO_ERR_MAX];
    for (size_t k = 0; !o->hdf5 && k < o->names->n; k++) { /* OUT.part will replace OUT.npz, but is added to OUT.h5 */
        protein_name *name = &o->names->names[k];
        name->replaced = name->stored;
        name->stored = false;
    }
    o->damaged = 0;
    o->archive = io_append_open(o->part, o->hdf5 ? NULL : o->path, o->note, on_found, o, err);
    return o->archive != NULL ? CLI_OK : cli_error(CLI_FAILED, "-o: %s", err);
}

/* Check that OUT.part has every array of the file that it will replace. */
static int check_part(const protein_output *o)
{
    char safe[300];
    for (size_t k = 0; k < o->names->n; k++)
        if (o->names->names[k].replaced && !o->names->names[k].stored)
            return cli_error(
                CLI_FAILED,
                "-o: %s: it lacks %s, which %s has and the FASTA file does not (remove one of the two files)",
                io_safe(safe, 100, o->part), io_safe(safe + 100, 100, protein_key(o->names, k)),
                io_safe(safe + 200, 100, o->path));
    return CLI_OK;
}

/* Convert numbers to the type of the file. */
static int convert(protein_output *o, const char *key, const float *x, size_t n, const void **data)
{
    char safe[160];
    *data = x;
    if (o->type == RP_F32)
        return CLI_OK;
    for (size_t k = 0; k < n; k++)
        if (fabsf(x[k]) > 65504)
            return cli_error(CLI_FAILED, "%s: the number %g does not fit f16 (use --dtype f32)",
                             io_safe(safe, sizeof safe, key), (double)x[k]);
    if (2 * n > o->converted_size) {
        free(o->converted);
        o->converted = malloc(2 * n);
        o->converted_size = o->converted != NULL ? 2 * n : 0;
    }
    if (o->converted == NULL || rp_convert(o->converted, RP_F16, x, RP_F32, (int64_t)n) != RP_OK)
        return cli_error(CLI_FAILED, "%s: out of memory", o->command);
    *data = o->converted;
    return CLI_OK;
}

int protein_output_put(protein_output *o, size_t name, uint64_t tag, const float *rows, int64_t n, int64_t d)
{
    char err[IO_ERR_MAX];
    const char *key = protein_key(o->names, name);
    const int64_t shape[2] = {n, d};
    const void *data;
    const size_t size = (size_t)((o->pool ? 1 : n) * d);
    int code = convert(o, key, rows, size, &data);
    if (code != CLI_OK)
        return code;
    const io_array array = {.name = (char *)(uintptr_t)key,
                            .dtype = o->type,
                            .ndim = o->pool ? 1 : 2,
                            .shape = (int64_t *)(uintptr_t)(o->pool ? &shape[1] : shape),
                            .bytes = size * (o->type == RP_F16 ? 2 : 4),
                            .data = (void *)(uintptr_t)data};
    if (io_append_array(o->archive, &array, tag, err) != 0)
        return cli_error(CLI_FAILED, "-o: %s", err);
    o->names->names[name].stored = true;
    return CLI_OK;
}

int protein_output_flush(protein_output *o)
{
    enum { TIMES = 20 }; /* spend at most 1/20 of the time here */
    char err[IO_ERR_MAX];
    const double now = cli_seconds();
    if (now - o->flushed < TIMES * o->took)
        return CLI_OK;
    if (io_append_flush(o->archive, err) != 0)
        return cli_error(CLI_FAILED, "-o: %s", err);
    o->flushed = cli_seconds();
    o->took = o->flushed - now;
    return CLI_OK;
}

int protein_output_close(protein_output *o, int code)
{
    char err[IO_ERR_MAX];
    if (o->archive != NULL) {
        if (code == CLI_OK)
            code = check_part(o);
        const char *to = code == CLI_OK && !o->hdf5 ? o->path : NULL;
        const uint64_t n = io_append_count(o->archive);
        if (io_append_close(o->archive, to, err) != 0 && code == CLI_OK)
            code = cli_error(CLI_FAILED, "-o: %s", err);
        else if (code == CLI_OK && o->hdf5 && protein_hdf5_write(o->path, o->part, n, o->note, err) != 0)
            code = cli_error(CLI_FAILED, "-o: %s", err);
        else if (code == CLI_OK && o->hdf5)
            unlink(o->part);
    }
    return code;
}

void protein_output_free(protein_output *o)
{
    free(o->path);
    free(o->part);
    free(o->converted);
}
