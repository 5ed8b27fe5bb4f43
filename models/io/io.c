/* io.c -- sets of arrays, printable names and error messages, which the other files of io use.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"
#include "src/base/random.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------ sizes and text */

size_t io_dtype_size(rp_dtype dtype)
{
    static const unsigned char sizes[] = {
        [RP_F32] = 4, [RP_F64] = 8, [RP_F16] = 2, [RP_BF16] = 2, [RP_BOOL] = 1, [RP_U8] = 1, [RP_I8] = 1,
        [RP_U16] = 2, [RP_I16] = 2, [RP_U32] = 4, [RP_I32] = 4,  [RP_U64] = 8,  [RP_I64] = 8};
    return (size_t)dtype < sizeof sizes ? sizes[dtype] : 0;
}

bool io_bytes(size_t element, int32_t ndim, const int64_t *shape, size_t *bytes)
{
    size_t product = element;
    bool empty = false;
    for (int32_t x = 0; x < ndim; x++) {
        if (shape[x] < 0)
            return false;
        if (shape[x] == 0)
            empty = true;
        else if (!io_mul(product, (size_t)shape[x], &product))
            return false;
    }
    *bytes = empty ? 0 : product;
    return true;
}

void *io_grow(void *list, size_t *capacity, size_t n, size_t element)
{
    if (n < *capacity)
        return list;
    const size_t wider = 2 * n + 16;
    void *more = realloc(list, wider * element); /* no overflow: n elements are in memory, and a list of 16 fits */
    *capacity = more != NULL ? wider : *capacity;
    return more;
}

/* Hash eight bytes at a time. Each step is invertible, so changing one bit always changes the result. */
uint64_t io_checksum(uint64_t z, const void *data, size_t size)
{
    const unsigned char *p = data;
    uint64_t word;
    for (; size >= 8; p += 8, size -= 8) {
        memcpy(&word, p, 8);
        z = (z ^ word) * 0x9e3779b97f4a7c15u;
        z ^= z >> 29;
    }
    word = 0;
    if (size > 0) /* p may be NULL if there is no data */
        memcpy(&word, p, size);
    return rpi_mix64(z ^ word ^ (uint64_t)size << 56);
}

size_t io_utf8(const unsigned char *text, size_t size)
{
    if (size == 0)
        return 0;
    const unsigned char first = text[0];
    const size_t n = first < 0x80                    ? 1
                     : first >= 0xc2 && first < 0xe0 ? 2
                     : (first & 0xf0) == 0xe0        ? 3
                     : first >= 0xf0 && first < 0xf5 ? 4
                                                     : 0;
    if (n == 0 || n > size)
        return 0;
    for (size_t k = 1; k < n; k++)
        if ((text[k] & 0xc0) != 0x80)
            return 0;
    /* refuse overlong sequences, surrogates, and values above U+10FFFF */
    if ((first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] > 0x9f) || (first == 0xf0 && text[1] < 0x90) ||
        (first == 0xf4 && text[1] > 0x8f))
        return 0;
    return n;
}

bool io_utf8_all(const void *text, size_t size)
{
    for (size_t at = 0, n; at < size; at += n) {
        n = io_utf8((const unsigned char *)text + at, size - at);
        if (n == 0)
            return false;
    }
    return true;
}

const char *io_safe(char *buf, size_t size, const char *name)
{
    const unsigned char *p = (const unsigned char *)name;
    size_t left = strlen(name), at = 0, cut = 0; /* cut: last position that leaves space for three dots */
    if (size == 0)
        return "";
    while (left > 0) {
        char character[8];
        size_t n = io_utf8(p, left);
        const size_t taken = n > 0 ? n : 1;
        /* C2 80 ... C2 9F are also control characters, which some terminals execute. */
        if (n == 0 || p[0] < ' ' || p[0] == 0x7f || (p[0] == 0xc2 && p[1] < 0xa0))
            n = (size_t)sprintf(character, "\\x%02x", p[taken - 1]);
        else
            memcpy(character, p, n);
        if (at + n >= size) {
            for (at = cut; at < cut + 3 && at + 1 < size; at++)
                buf[at] = '.';
            break;
        }
        memcpy(buf + at, character, n);
        at += n;
        if (at + 3 < size)
            cut = at;
        p += taken;
        left -= taken;
    }
    buf[at] = 0;
    return buf;
}

const char *io_safe_message(char *buf, size_t size, const char *format, va_list list)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, list);
    return io_safe(buf, size, text);
}

/* Write advice for a file with other contents than expected, chosen by the suffix of its name. Only a file that is
 * damaged or not whole is worth another download. */
static void contents_hint(char hint[160], const char *path, const char *message)
{
    static const struct {
        const char *ending, *hint;
    } hints[] = {
        {".json", NULL},
        {".model", NULL},
        {".safetensors", "write it again with safetensors"},
        {".bin", "write it again with torch.save"},
        {".pt", "write it again with torch.save"},
        {".npz", "write it again with numpy.savez"},
        {"", "write it again with the program that made it"},
    };
    static const char *const damage[] = {"cut short",  "cut off",   "empty",       "damaged", "malformed",
                                         "not within", "too short", "not inflate", "ends at", "line "};
    const char *dot = strrchr(path, '.');
    size_t n = 0;
    bool damaged = false;
    for (size_t k = 0; k < sizeof damage / sizeof *damage; k++)
        damaged = damaged || strstr(message, damage[k]) != NULL;
    while (hints[n].ending[0] != 0 && (dot == NULL || strcmp(dot, hints[n].ending) != 0))
        n++;
    const char *other = hints[n].hint != NULL ? hints[n].hint : damaged ? "" : "use another copy, or correct it";
    snprintf(hint, 160, "%s%s%s", damaged ? "download the file again" : "", damaged && other[0] != 0 ? ", or " : "",
             other);
}

/* Append advice in parentheses, chosen by the beginning of the message. Do nothing if the message already ends with
 * ")". */
static void add_hint(char err[IO_ERR_MAX], const char *path, const char *message)
{
    static const struct {
        const char *begin, *hint;
    } hints[] = {
        {"cannot be opened", "check the path and its permissions"},
        {"cannot be read", "check the path and the file"},
        {"it is a directory", "name a file"},
        {"cannot be written", "check the folder and the free space"},
        {"cannot be replaced", "check the permissions of the folder"},
        {"has been written", "check the disk"},
        {"out of memory", "use smaller arrays"},
        {"not a regular file", "name a file"},
        {"", NULL}, /* the contents of the file */
    };
    char contents[160];
    const size_t length = strlen(err);
    size_t n = 0;
    if (length > 0 && err[length - 1] == ')')
        return;
    while (strncmp(message, hints[n].begin, strlen(hints[n].begin)) != 0)
        n++;
    contents_hint(contents, path, message);
    snprintf(err + length, IO_ERR_MAX - length, " (%s)", hints[n].hint != NULL ? hints[n].hint : contents);
}

static void say(char err[IO_ERR_MAX], const char *path, const char *format, va_list list)
{
    char safe[IO_ERR_MAX / 2];
    snprintf(err, IO_ERR_MAX, "%s: ", io_safe(safe, sizeof safe, path));
    const size_t n = strlen(err);
    vsnprintf(err + n, IO_ERR_MAX - n, format, list);
    add_hint(err, path, err + n);
}

io_status io_fail(char err[IO_ERR_MAX], const char *path, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(err, path, format, list);
    va_end(list);
    return IO_FAILED;
}

io_status io_damaged(char err[IO_ERR_MAX], const char *path, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(err, path, format, list);
    va_end(list);
    return IO_DAMAGED;
}

io_status io_why(char why[IO_WHY_MAX], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, IO_WHY_MAX, format, list);
    va_end(list);
    return IO_DAMAGED;
}

io_status io_no_memory(char why[IO_WHY_MAX])
{
    snprintf(why, IO_WHY_MAX, "out of memory");
    return IO_FAILED;
}

/* ------------------------------------------------------------------------------------------------ sets */

/* Make room for one more element in a list. The capacity of a list is its length rounded up to a power of two, so only
 * this function may grow it. */
static void *grown(void *list, size_t n, size_t element)
{
    size_t bytes;
    if (n > 0 && (n & (n - 1)) != 0)
        return list;
    return io_mul(n == 0 ? 1 : 2 * n, element, &bytes) ? realloc(list, bytes) : NULL;
}

io_array *io_push(io_set *set, const char *name)
{
    io_array *arrays = grown(set->arrays, set->n_arrays, sizeof *arrays);
    char *copy = strdup(name);
    if (arrays != NULL)
        set->arrays = arrays;
    if (arrays == NULL || copy == NULL) {
        free(copy);
        return NULL;
    }
    io_array *array = &arrays[set->n_arrays++];
    memset(array, 0, sizeof *array);
    array->name = copy;
    array->dtype = IO_NO_DTYPE;
    return array;
}

bool io_set_shape(io_array *array, int32_t ndim, const int64_t *shape)
{
    array->shape = malloc((size_t)(ndim > 0 ? ndim : 1) * sizeof *array->shape);
    if (array->shape == NULL)
        return false;
    array->ndim = ndim;
    for (int32_t x = 0; x < ndim; x++)
        array->shape[x] = shape != NULL ? shape[x] : 0;
    return true;
}

bool io_unsupported(io_array *array, const char *why)
{
    array->unsupported = strdup(why);
    array->dtype = IO_NO_DTYPE;
    return array->unsupported != NULL;
}

int io_add(io_set *set, const char *name, rp_dtype dtype, int32_t ndim, const int64_t *shape, void *data, bool borrowed)
{
    size_t bytes;
    if (ndim < 0 || ndim > IO_MAX_AXES || !io_bytes(io_dtype_size(dtype), ndim, shape, &bytes))
        return -1;
    io_array *array = io_push(set, name);
    if (array == NULL)
        return -1;
    if (!io_set_shape(array, ndim, shape)) {
        free(array->name);
        set->n_arrays--;
        return -1;
    }
    array->dtype = dtype;
    array->bytes = bytes;
    array->data = data;
    array->borrowed = borrowed;
    return 0;
}

int io_add_meta(io_set *set, const char *key, const char *value)
{
    char **keys = grown(set->meta_keys, set->n_meta, sizeof *keys);
    if (keys != NULL)
        set->meta_keys = keys;
    char **values = grown(set->meta_values, set->n_meta, sizeof *values);
    if (values != NULL)
        set->meta_values = values;
    char *key_copy = strdup(key), *value_copy = strdup(value);
    if (keys == NULL || values == NULL || key_copy == NULL || value_copy == NULL) {
        free(key_copy);
        free(value_copy);
        return -1;
    }
    keys[set->n_meta] = key_copy;
    values[set->n_meta++] = value_copy;
    return 0;
}

const io_array *io_find(const io_set *set, const char *name)
{
    for (size_t n = 0; n < set->n_arrays; n++)
        if (strcmp(set->arrays[n].name, name) == 0)
            return &set->arrays[n];
    return NULL;
}

const io_array *io_take(const io_set *set, const char *name, char err[IO_ERR_MAX])
{
    char safe[128], names[256] = "";
    const io_array *array = io_find(set, name);
    io_safe(safe, sizeof safe, name);
    if (array != NULL && array->unsupported == NULL)
        return array;
    if (array != NULL) {
        const size_t n = strlen(array->unsupported);
        snprintf(err, IO_ERR_MAX, "array \"%s\": %s%s", safe, array->unsupported,
                 n > 0 && array->unsupported[n - 1] == ')' ? "" : " (save it as f32)");
        return NULL;
    }
    for (size_t n = 0; n < set->n_arrays && strlen(names) < sizeof names - 40; n++) {
        char other[32];
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", n > 0 ? ", " : "",
                 io_safe(other, sizeof other, set->arrays[n].name));
    }
    snprintf(err, IO_ERR_MAX, "array \"%s\" is not in the file (it has %s)", safe, names[0] != 0 ? names : "no arrays");
    return NULL;
}

const char *io_meta(const io_set *set, const char *key)
{
    for (size_t n = 0; n < set->n_meta; n++)
        if (strcmp(set->meta_keys[n], key) == 0)
            return set->meta_values[n];
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sort the names. Return a name that occurs twice, or NULL. */
static const char *duplicate(const char **names, size_t n)
{
    if (n > 0)
        qsort(names, n, sizeof *names, by_text);
    for (size_t k = 1; k < n; k++)
        if (strcmp(names[k - 1], names[k]) == 0)
            return names[k];
    return NULL;
}

bool io_duplicate(const io_set *set, bool metadata, const char **twice)
{
    const size_t count = metadata ? set->n_meta : set->n_arrays;
    const char **names = malloc((count + 1) * sizeof *names);
    if (names == NULL)
        return false;
    for (size_t n = 0; n < count; n++)
        names[n] = metadata ? set->meta_keys[n] : set->arrays[n].name;
    *twice = duplicate(names, count);
    free(names);
    return true;
}

void io_free(io_set *set)
{
    for (size_t n = 0; n < set->n_arrays; n++) {
        free(set->arrays[n].name);
        free(set->arrays[n].unsupported);
        free(set->arrays[n].shape);
        if (!set->arrays[n].borrowed)
            free(set->arrays[n].data);
    }
    for (size_t n = 0; n < set->n_meta; n++) {
        free(set->meta_keys[n]);
        free(set->meta_values[n]);
    }
    free(set->arrays);
    free(set->meta_keys);
    free(set->meta_values);
    free(set->note);
    if (set->parts_file > 0)
        close(set->parts_file - 1);
    memset(set, 0, sizeof *set);
}

/* ------------------------------------------------------------------------------------------------ files */

io_status io_pread(int fd, off_t at, void *to, size_t n, char why[IO_WHY_MAX])
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (char *)to + done, n - done, at + (off_t)done);
        if (got == 0)
            io_why(why, "it became shorter while it was being read");
        else if (got < 0 && errno != EINTR)
            io_why(why, "cannot be read at byte %lld: %s", (long long)at + (long long)done, strerror(errno));
        else
            done += got > 0 ? (size_t)got : 0;
        if (got == 0 || (got < 0 && errno != EINTR))
            return IO_FAILED;
    }
    return IO_OK;
}

io_status io_is_folder(const char *path, bool *folder, char err[IO_ERR_MAX])
{
    struct stat st;
    const bool there = stat(path, &st) == 0;
    *folder = there && S_ISDIR(st.st_mode);
    return there || errno == ENOENT || errno == ENOTDIR ? IO_OK
                                                        : io_fail(err, path, "cannot be read: %s", strerror(errno));
}

bool io_is_standard(const char *path, const char *device)
{
    return strcmp(path, "-") == 0 || strcmp(path, device) == 0;
}

bool io_leave_out(const io_set *set, const char *name)
{
    return set->wanted != NULL && !set->wanted(set->wanted_context, name);
}
