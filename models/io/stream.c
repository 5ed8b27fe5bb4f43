/* stream.c -- writes a set of arrays to a file, all from memory or one of them in parts. zip_write.c, npy.c and
 * safetensors.c write the formats.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"
#include "io/zip_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct io_stream {
    io_out out;
    io_format format;
    const io_set *set;
    size_t *order; /* indices of the arrays in the order of the file */
    size_t next;   /* the next array, as an index of `order` */
    size_t left;   /* bytes of the array in parts that have not been written */
    io_zip zip;
};

/* Check the set before changing any file. `in_parts`: one array may lack its data. */
static int check_set(const char *path, io_format format, const io_set *set, bool in_parts, char err[IO_ERR_MAX])
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
        const bool missing = array->data == NULL && array->bytes > 0;
        const char *why = NULL;
        if (array->unsupported != NULL)
            why = array->unsupported;
        else if (io_dtype_size(array->dtype) == 0)
            why = "it has no dtype";
        else if (missing && !in_parts)
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
        in_parts &= !missing;
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

static int put(io_stream *s, const void *data, size_t size, char err[IO_ERR_MAX])
{
    return s->format == IO_NPZ ? io_zip_put(&s->zip, data, size, err) : io_put(&s->out, data, size, err);
}

static int end_array(io_stream *s, char err[IO_ERR_MAX])
{
    s->next++;
    return s->format == IO_NPZ ? io_zip_end(&s->zip, err) : 0;
}

/* Write the arrays up to the one in parts, or up to the last. */
static int write_arrays(io_stream *s, char err[IO_ERR_MAX])
{
    int result = 0;
    while (result == 0 && s->next < s->set->n_arrays) {
        const io_array *array = &s->set->arrays[s->order != NULL ? s->order[s->next] : s->next];
        if (s->format == IO_NPZ)
            result = io_zip_begin_array(&s->zip, array, err);
        if (result == 0 && array->data == NULL && array->bytes > 0) {
            s->left = array->bytes;
            return 0;
        }
        if (result == 0)
            result = put(s, array->data, array->bytes, err);
        if (result == 0)
            result = end_array(s, err);
    }
    return result;
}

static io_stream *open_stream(const char *path, bool own, bool in_parts, io_format format, const io_set *set,
                              char err[IO_ERR_MAX])
{
    if (check_set(path, format, set, in_parts, err) != 0)
        return NULL;
    io_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        io_fail(err, path, "out of memory");
        return NULL;
    }
    if (io_open_out(&s->out, path, own, err) != 0) {
        free(s);
        return NULL;
    }
    s->format = format;
    s->set = set;
    s->zip.out = &s->out;
    int result = format == IO_SAFETENSORS ? io_safetensors_begin(&s->out, set, &s->order, err) : 0;
    if (result == 0)
        result = write_arrays(s, err);
    if (result == 0)
        return s;
    io_stream_close(s, result, err);
    return NULL;
}

io_stream *io_stream_open(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX])
{
    return open_stream(path, false, true, format, set, err);
}

int io_stream_put(io_stream *s, const void *data, size_t size, char err[IO_ERR_MAX])
{
    if (size > s->left)
        return io_fail(err, s->out.path, "cannot be written: the array has more elements than its shape");
    int result = put(s, data, size, err);
    s->left -= size;
    if (result == 0 && size > 0 && s->left == 0 && (result = end_array(s, err)) == 0)
        result = write_arrays(s, err);
    return result;
}

int io_stream_close(io_stream *s, int result, char err[IO_ERR_MAX])
{
    if (result == 0 && s->left > 0)
        result = io_fail(err, s->out.path, "cannot be written: the array has fewer elements than its shape");
    if (result == 0 && s->format == IO_NPZ)
        result = io_zip_finish(&s->zip, err);
    result = io_close_out(&s->out, result, err);
    io_zip_free(&s->zip);
    free(s->order);
    free(s);
    return result;
}

static int write_set(const char *path, bool own, io_format format, const io_set *set, char err[IO_ERR_MAX])
{
    io_stream *s = open_stream(path, own, false, format, set, err);
    return s != NULL ? io_stream_close(s, 0, err) : -1;
}

int io_write(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX])
{
    return write_set(path, false, format, set, err);
}

int io_replace(const char *path, io_format format, const io_set *set, char err[IO_ERR_MAX])
{
    return write_set(path, true, format, set, err);
}
