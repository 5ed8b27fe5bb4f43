/* write_set.c -- checks a set of arrays and writes it to a file. npz.c and safetensors.c write the formats.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"

#include <string.h>

/* Check the set before changing any file. */
static int check_set(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX])
{
    char safe[100];
    const char *twice = NULL;
    if (format != IO_NPZ && format != IO_SAFETENSORS)
        return io_fail(err, path, "its suffix is unknown (use .npz or .safetensors)");
    if (set->n_arrays > IO_MAX_ARRAYS)
        return io_fail(err, path, "there are %zu arrays; a file can have at most %d (write fewer)", set->n_arrays,
                       IO_MAX_ARRAYS);
    for (size_t n = 0; n < set->n_arrays; n++) {
        const io_array *array = &set->arrays[n];
        const size_t length = strlen(array->name);
        const char *why = NULL;
        if (array->unsupported != NULL)
            why = array->unsupported;
        else if (io_dtype_size(array->dtype) == 0)
            why = "it has no dtype";
        else if (array->data == NULL && array->bytes > 0)
            why = "it has no data";
        else if (!io_utf8_all(array->name, length))
            why = "its name is not UTF-8 (rename it)";
        else if (format == IO_NPZ && array->dtype == RP_BF16)
            why = "NumPy has no bfloat16 (convert it to f32, or write .safetensors)";
        else if (format == IO_NPZ && length > 65535 - strlen(".npy"))
            why = "its name is too long for a zip archive (use a shorter name)";
        else if (format == IO_SAFETENSORS && strcmp(array->name, "__metadata__") == 0)
            why = "this name is reserved in .safetensors (use another name)";
        if (why != NULL)
            return io_fail(err, path, "array '%s' cannot be written: %s", io_safe(safe, sizeof safe, array->name), why);
    }
    if (!io_duplicate(set, false, &twice))
        return io_fail(err, path, "out of memory");
    if (twice != NULL)
        return io_fail(err, path, "two arrays are named '%s' (rename one of them)", io_safe(safe, sizeof safe, twice));
    for (size_t n = 0; n < set->n_meta; n++)
        if (!io_utf8_all(set->meta_keys[n], strlen(set->meta_keys[n])) ||
            !io_utf8_all(set->meta_values[n], strlen(set->meta_values[n])))
            return io_fail(err, path, "metadata '%s' is not UTF-8", io_safe(safe, sizeof safe, set->meta_keys[n]));
    return 0;
}

static int write_set(const char *path, bool own, io_format format, const io_set *set, char err[IO_ERR_MAX])
{
    io_out out;
    if (check_set(path, format, set, err) != 0 || io_open_out(&out, path, own, err) != 0)
        return -1;
    return io_close_out(&out, format == IO_NPZ ? io_npz_write(&out, set, err) : io_safetensors_write(&out, set, err),
                        err);
}

int io_write(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX])
{
    return write_set(path, false, format, set, err);
}

int io_replace(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX])
{
    return write_set(path, true, format, set, err);
}
