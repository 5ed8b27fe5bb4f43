/* npz.c -- reads .npz: a zip archive of .npy files. libzip reads the archive from a file or from memory; npy.c parses
 * the header of each member; zip_write.c writes archives. read_all and read_member check that the sizes in the archive
 * fit the file; read_npy checks that the shape of an array fits its member.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

/* The highest compression ratio of deflate is 1032 : 1 (a match of 258 bytes in 2 bits). Members that claim a higher
 * one are refused, so allocations stay proportional to the size of the file. */
#define INFLATE_MAX 1032
#define FIELDS      (ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD)
#define ENTRY_MIN   (30 + 46) /* size of a member's two headers, without names */

/* Convert an error of libzip. The result means out of memory if libzip or zlib says so, or if libzip failed without an
 * error code. */
static io_status zip_why(char why[IO_WHY_MAX], zip_error_t *error)
{
    enum { ZLIB_MEMORY = -4 }; /* Z_MEM_ERROR */
    const int code = zip_error_code_zip(error);
    if (code == ZIP_ER_MEMORY || code == ZIP_ER_OK ||
        (code == ZIP_ER_ZLIB && zip_error_code_system(error) == ZLIB_MEMORY))
        return io_no_memory(why);
    return io_why(why, "%s", zip_error_strerror(error));
}

/* Read exactly `size` bytes of a member. */
static io_status read_exactly(zip_file_t *file, void *data, size_t size, char why[IO_WHY_MAX])
{
    size_t at = 0;
    while (at < size) {
        const zip_int64_t n = zip_fread(file, (char *)data + at, size - at);
        if (n < 0) {
            char reason[IO_WHY_MAX];
            const io_status status = zip_why(reason, zip_file_get_error(file));
            io_why(why, "its data is damaged at byte %zu: %.160s", at, reason);
            return status;
        }
        if (n == 0)
            return io_why(why, "its data is too short");
        at += (size_t)n;
    }
    return IO_OK;
}

/* Read and discard the elements of an unsupported array. If the checksum is then wrong, the type may only look
 * unsupported because the file is damaged. */
static io_status skip_elements(zip_file_t *file, zip_uint64_t size, char why[IO_WHY_MAX])
{
    char block[4096];
    zip_int64_t n = 1;
    while (n > 0) {
        n = zip_fread(file, block, sizeof block);
        if (n < 0)
            return zip_why(why, zip_file_get_error(file));
        if ((zip_uint64_t)n > size)
            return io_why(why, "its data is too long");
        size -= (zip_uint64_t)n;
    }
    return IO_OK;
}

/* Read the elements after the header. Read to the end of the member, where libzip verifies the checksum. */
static io_status read_elements(zip_file_t *file, const io_npy *npy, io_array *array, char why[IO_WHY_MAX])
{
    char more;
    void *data = npy->bytes > 0 ? malloc(npy->bytes) : NULL;
    if (npy->bytes > 0 && data == NULL)
        return io_no_memory(why);
    io_status status = read_exactly(file, data, npy->bytes, why);
    const zip_int64_t rest = status == IO_OK ? zip_fread(file, &more, 1) : 0;
    if (rest > 0)
        status = io_why(why, "there is data after the last element");
    if (rest < 0)
        status = zip_why(why, zip_file_get_error(file));
    if (status == IO_OK && !io_npy_to_native(npy, &data))
        status = io_no_memory(why);
    if (status != IO_OK) {
        free(data);
        return status;
    }
    array->data = data;
    array->bytes = npy->bytes;
    return IO_OK;
}

/* Read an array of strings as a JSON list. Read to the end of the member, where libzip verifies the checksum. *list is
 * NULL if the array does not have exactly one axis, or if a string is not Unicode. */
static io_status read_strings(zip_file_t *file, const io_npy *npy, zip_uint64_t size, char **list, char why[IO_WHY_MAX])
{
    const zip_uint64_t each = 4 * npy->text_width;
    bool no_memory = false;
    *list = NULL;
    if (npy->ndim != 1 || size % each != 0 || (zip_uint64_t)npy->shape[0] != size / each)
        return skip_elements(file, size, why);
    unsigned char *data = malloc((size_t)size + 1);
    if (data == NULL)
        return io_no_memory(why);
    io_status status = read_exactly(file, data, (size_t)size, why);
    if (status == IO_OK)
        status = skip_elements(file, 0, why);
    if (status == IO_OK)
        *list = io_npy_strings(npy, data, &no_memory);
    free(data);
    return no_memory ? io_no_memory(why) : status;
}

/* Read one .npy file. An array of strings is marked as unsupported, and its strings are returned in *list as JSON. */
static io_status read_npy(zip_file_t *file, zip_uint64_t size, bool wanted, io_array *array, char **list,
                          char why[IO_WHY_MAX])
{
    unsigned char *header = malloc(IO_NPY_START + IO_NPY_HEADER_MAX);
    size_t begin, end;
    io_npy npy;
    if (header == NULL)
        return io_no_memory(why);
    io_status status = read_exactly(file, header, IO_NPY_START, why);
    if (status == IO_OK && !io_npy_extent(header, &begin, &end, why))
        status = IO_DAMAGED;
    if (status == IO_OK)
        status = read_exactly(file, header + IO_NPY_START, end - IO_NPY_START, why);
    if (status == IO_OK && !io_npy_header(header, begin, end, &npy, why))
        status = IO_DAMAGED;
    free(header);
    if (status != IO_OK)
        return status;
    if (!io_set_shape(array, npy.ndim, npy.shape))
        return io_no_memory(why);
    if (npy.unsupported[0]) {
        if (npy.text_width > 0 && size >= end)
            status = read_strings(file, &npy, size - end, list, why);
        else if (wanted)
            status = skip_elements(file, size, why);
        return status == IO_OK && !io_unsupported(array, npy.unsupported) ? io_no_memory(why) : status;
    }
    if (!wanted)
        return io_unsupported(array, IO_LEFT_OUT) ? IO_OK : io_no_memory(why);
    array->dtype = npy.dtype;
    if (size - end != npy.bytes || size < end)
        return io_why(why, "its shape needs %zu bytes after the header, but the archive stores %lld", npy.bytes,
                      (long long)(size - end));
    return read_elements(file, &npy, array, why);
}

/* Read one member into array. */
static io_status read_member(zip_t *zip, zip_uint64_t index, const zip_stat_t *st, bool wanted, io_array *array,
                             char **list, char why[IO_WHY_MAX])
{
    if (st->encryption_method != ZIP_EM_NONE)
        return io_why(why, "it is encrypted (save it with numpy.savez)");
    if (st->comp_method != ZIP_CM_STORE && st->comp_method != ZIP_CM_DEFLATE)
        return io_why(why, "it has compression method %u, not store or deflate (save it with numpy.savez)",
                      st->comp_method);
    if (st->comp_method == ZIP_CM_STORE && st->comp_size != st->size)
        return io_why(why, "it is stored, but its two sizes differ");
    if (st->size / INFLATE_MAX > st->comp_size)
        return io_why(why, "its %llu bytes cannot inflate to %llu", (unsigned long long)st->comp_size,
                      (unsigned long long)st->size);
    zip_file_t *file = zip_fopen_index(zip, index, 0);
    if (file == NULL)
        return zip_why(why, zip_get_error(zip));
    const io_status status = read_npy(file, st->size, wanted, array, list, why);
    zip_fclose(file);
    return status;
}

/* A name is UTF-8, or else in code page 437, unless its header says that it is UTF-8. libzip takes overlong forms and
 * surrogates for UTF-8. */
static io_status member_name(zip_t *zip, zip_uint64_t index, const char **name, char why[IO_WHY_MAX])
{
    *name = zip_get_name(zip, index, ZIP_FL_ENC_RAW);
    if (*name != NULL && !io_utf8_all(*name, strlen(*name)))
        *name = zip_get_name(zip, index, ZIP_FL_ENC_STRICT);
    if (*name == NULL)
        return zip_why(why, zip_get_error(zip));
    return io_utf8_all(*name, strlen(*name)) ? IO_OK
                                             : io_why(why, "its name is not UTF-8, which its header says it is");
}

static io_status read_all(const char *path, zip_t *zip, size_t size, io_set *set, char err[IO_ERR_MAX])
{
    char why[IO_WHY_MAX] = "", reason[IO_WHY_MAX], safe[100];
    io_status status = IO_OK;
    const zip_int64_t n = zip_get_num_entries(zip, 0);
    zip_uint64_t left = size;

    if (n > IO_MAX_ARRAYS)
        return io_damaged(err, path, "it has %lld arrays (at most %d are supported)", (long long)n, IO_MAX_ARRAYS);
    for (zip_uint64_t index = 0; index < (zip_uint64_t)n; index++) {
        zip_stat_t st;
        if (zip_stat_index(zip, index, 0, &st) != 0 || (st.valid & FIELDS) != FIELDS) {
            status = zip_why(reason, zip_get_error(zip));
            io_fail(err, path, "member %llu: %s", (unsigned long long)index, reason);
            return status;
        }
        /* Overlapping members, as in zip bombs, add up to more bytes than the file has. */
        if (left < ENTRY_MIN || left - ENTRY_MIN < st.comp_size)
            return io_damaged(err, path, "its members overlap (write it again with numpy.savez)");
        left -= ENTRY_MIN + st.comp_size;

        const char *name;
        if ((status = member_name(zip, index, &name, reason)) != IO_OK) {
            io_fail(err, path, "member %llu: %s", (unsigned long long)index, reason);
            return status;
        }
        const size_t length = strlen(name);
        const bool npy = length >= 4 && memcmp(name + length - 4, ".npy", 4) == 0;
        io_array *array = io_push(set, name);
        if (array == NULL)
            return io_fail(err, path, "out of memory");
        if (npy)
            array->name[length - 4] = 0;
        char *list = NULL;
        const bool wanted = !io_leave_out(set, array->name);
        if (npy && (status = read_member(zip, index, &st, wanted, array, &list, why)) != IO_OK) {
            free(list);
            io_fail(err, path, "array '%s': %s", io_safe(safe, sizeof safe, array->name), why);
            return status;
        }
        const bool added = list == NULL || io_add_meta(set, array->name, list) == 0;
        free(list);
        if (!added)
            return io_fail(err, path, "out of memory");
        if (!npy && !io_unsupported(array, "it is not an .npy file"))
            return io_fail(err, path, "out of memory");
    }
    const char *twice;
    if (!io_duplicate(set, false, &twice))
        return io_fail(err, path, "out of memory");
    if (twice != NULL)
        return io_damaged(err, path, "two arrays are named '%s'", io_safe(safe, sizeof safe, twice));
    return IO_OK;
}

static const char empty_archive[22] = "PK\5\6";

/* Open an archive; takes ownership of the source. A NULL source means that creating it failed. */
static zip_t *open_source(zip_source_t *source, zip_error_t *error)
{
    zip_t *zip = source == NULL ? NULL : zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, error);
    if (zip == NULL)
        zip_source_free(source);
    return zip;
}

/* A file in memory. */
typedef struct memory {
    const void *data;
    size_t size;
} memory;

typedef zip_t *opener(void *from, zip_error_t *error);

static zip_t *open_memory(void *from, zip_error_t *error)
{
    const memory *m = from;
    return open_source(zip_source_buffer_create(m->data, m->size, 0, error), error);
}

static io_status read_archive(const char *path, opener *open, void *from, size_t size, io_set *set,
                              char err[IO_ERR_MAX])
{
    memory empty = {empty_archive, sizeof empty_archive};
    zip_error_t error;
    zip_error_init(&error);
    zip_t *zip = open(from, &error);
    /* When an allocation fails, libzip may claim that the file is not an archive. To detect this, open an empty
     * archive: if that fails too, memory is the reason. */
    if (zip == NULL && zip_error_code_zip(&error) == ZIP_ER_NOZIP) {
        zip_t *other = open_memory(&empty, &error);
        zip_discard(other);
        if (other != NULL)
            zip = open(from, &error);
        else
            zip_error_set(&error, ZIP_ER_MEMORY, 0);
    }
    io_status status;
    if (zip == NULL) {
        char why[IO_WHY_MAX];
        status = zip_why(why, &error);
        io_fail(err, path, "cannot be read as .npz: %s", why);
    } else {
        status = read_all(path, zip, size, set, err);
        zip_discard(zip);
    }
    zip_error_fini(&error);
    return status;
}

io_status io_npz_read(const char *path, const unsigned char *data, size_t size, io_set *set, char err[IO_ERR_MAX])
{
    memory m = {data, size};
    return read_archive(path, open_memory, &m, size, set, err);
}

/* A source for libzip that reads a regular file: first the directory at its end, then the members in turn. Gaps between
 * members, such as holes of a sparse file, are never read. */
typedef struct file_source {
    int fd;
    off_t start;
    size_t size, at;
    zip_error_t error;
    char why[IO_WHY_MAX]; /* why reading failed, or "" */
} file_source;

static zip_int64_t read_source(file_source *f, void *to, zip_uint64_t length)
{
    const size_t n = length < f->size - f->at ? (size_t)length : f->size - f->at;
    if (io_pread(f->fd, f->start + (off_t)f->at, to, n, f->why) != IO_OK) {
        zip_error_set(&f->error, ZIP_ER_READ, 0);
        return -1;
    }
    f->at += n;
    return (zip_int64_t)n;
}

static zip_int64_t serve_source(void *context, void *data, zip_uint64_t length, zip_source_cmd_t command)
{
    file_source *f = context;
    zip_int64_t to;
    switch (command) {
    case ZIP_SOURCE_OPEN: f->at = 0; return 0;
    case ZIP_SOURCE_READ: return read_source(f, data, length);
    case ZIP_SOURCE_TELL: return (zip_int64_t)f->at;
    case ZIP_SOURCE_SEEK:
        to = zip_source_seek_compute_offset(f->at, f->size, data, length, &f->error);
        if (to < 0)
            return -1;
        f->at = (size_t)to;
        return 0;
    case ZIP_SOURCE_STAT:
        zip_stat_init(data);
        ((zip_stat_t *)data)->size = f->size;
        ((zip_stat_t *)data)->valid = ZIP_STAT_SIZE;
        return sizeof(zip_stat_t);
    case ZIP_SOURCE_ERROR: return zip_error_to_data(&f->error, data, length);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE: return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_TELL, ZIP_SOURCE_SEEK,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_CLOSE, ZIP_SOURCE_FREE, -1);
    default: zip_error_set(&f->error, ZIP_ER_OPNOTSUPP, 0); return -1;
    }
}

static zip_t *open_file(void *from, zip_error_t *error)
{
    return open_source(zip_source_function_create(serve_source, from, error), error);
}

io_status io_npz_file(const char *path, int fd, off_t start, size_t size, io_set *set, char err[IO_ERR_MAX])
{
    file_source f = {.fd = fd, .start = start, .size = size};
    zip_error_init(&f.error);
    io_status status = read_archive(path, open_file, &f, size, set, err);
    if (f.why[0] != 0)
        status = io_fail(err, path, "%s", f.why);
    zip_error_fini(&f.error);
    return status;
}
