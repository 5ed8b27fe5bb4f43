/* model_tensors.c -- maps the tensors of a model: opens one file, or the shards of an index, and converts tensors to
 * f32. The formats are in safetensors.c, torch.c and gguf.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/block_types.h"
#include "io/checkpoint.h"
#include "io/formats.h"
#include "io/json.h"
#include "io/scaled.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SHARDS 10000
#define MAX_INDEX  (64 << 20) /* bytes; the largest that is known, of DeepSeek-V3, has 9 MB */

/* One mapped file. */
typedef struct shard {
    char *path, *name;   /* name: without folder */
    struct stat version; /* when it was mapped */
    const unsigned char *data;
    size_t size;
    io_set set;
    bool gguf;
    io_gguf keys; /* only for .gguf */
} shard;

struct io_checkpoint {
    shard *shards;
    size_t n_shards, n;
    io_tensor *tensors; /* sorted by name */
    io_scales *scales;
    char *names; /* the names that io_checkpoint_rename gave */
};

/* The formats of files. The first that recognizes the contents reads the file. */
static const struct {
    bool (*is)(const unsigned char *data, size_t size);
    io_status (*read)(const char *path, const unsigned char *data, size_t size, io_set *set, char err[IO_ERR_MAX]);
} formats[] = {
    {io_torch_is, io_torch_in_place},
    {io_torch_is_old, io_torch_refuse_old},
    {NULL, io_safetensors_in_place},
};

/* ------------------------------------------------------------------------------------------------ files */

/* Refuse what people get in place of a file. */
static io_status check_contents(const char *path, const unsigned char *data, size_t size, char err[IO_ERR_MAX])
{
    static const struct {
        const char *begin, *what;
    } others[] = {
        {"version https://git-lfs.", "it is a pointer of Git LFS, not the file (run git lfs pull)"},
        {"<!DOCTYPE html", "it is a web page, not the file (download the file again, from its own address)"},
        {"<html", "it is a web page, not the file (download the file again, from its own address)"},
        {"<?xml", "it is a web page, not the file (download the file again, from its own address)"},
    };
    for (size_t n = 0; n < sizeof others / sizeof *others; n++)
        if (size >= strlen(others[n].begin) &&
            strncasecmp((const char *)data, others[n].begin, strlen(others[n].begin)) == 0)
            return io_fail(err, path, "%s", others[n].what);
    return IO_OK;
}

io_status io_map(const char *path, const unsigned char **data, size_t *size, char err[IO_ERR_MAX])
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: do not wait for the writer of a pipe */
    if (fd < 0) {
        const int error = errno;
        io_fail(err, path, "cannot be opened: %s", strerror(error));
        return error == ENOENT || error == ENOTDIR ? IO_ABSENT : IO_FAILED;
    }
    io_status status = IO_OK;
    void *at = MAP_FAILED;
    if (fstat(fd, &st) != 0)
        status = io_fail(err, path, "cannot be read: %s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = io_fail(err, path, "not a regular file");
    else if (st.st_size == 0)
        status = io_damaged(err, path, "the file is empty");
    else if ((uintmax_t)st.st_size > PTRDIFF_MAX)
        status = io_fail(err, path, "too large to be mapped");
    else if ((at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        status = io_fail(err, path, "cannot be mapped: %s", strerror(errno));
    close(fd);
    if (status == IO_OK && (status = check_contents(path, at, (size_t)st.st_size, err)) != IO_OK)
        munmap(at, (size_t)st.st_size);
    if (status == IO_OK) {
        *data = at;
        *size = (size_t)st.st_size;
    }
    return status;
}

void io_unmap(const unsigned char *data, size_t size)
{
    if (data != NULL)
        munmap((void *)(uintptr_t)data, size);
}

/* Return "folder/name"; the caller frees it. */
static char *join(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path != NULL)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

/* Map one file and read its header. */
static io_status add_shard(io_checkpoint *c, const char *path, const char *name, char err[IO_ERR_MAX])
{
    shard *s = &c->shards[c->n_shards];
    s->name = strdup(name);
    s->path = strdup(path);
    c->n_shards++;
    if (s->name == NULL || s->path == NULL)
        return io_fail(err, path, "out of memory");
    if (stat(path, &s->version) != 0)
        s->version.st_ino = 0; /* the next call reports it */
    const io_status status = io_map(path, &s->data, &s->size, err);
    if (status != IO_OK)
        return status;
    s->gguf = io_is_gguf(s->data, s->size);
    if (s->gguf)
        return io_gguf_in_place(path, s->data, s->size, &s->keys, &s->set, err);
    size_t f = 0;
    while (formats[f].is != NULL && !formats[f].is(s->data, s->size))
        f++;
    return formats[f].read(path, s->data, s->size, &s->set, err);
}

/* ------------------------------------------------------------------------------------------------ tensors by name */

static int by_name(const void *a, const void *b)
{
    const io_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Sort the tensors by name. Fail if two tensors have the same name. */
static io_status sort_tensors(io_checkpoint *c, const char *path, char err[IO_ERR_MAX])
{
    if (c->n > 0)
        qsort(c->tensors, c->n, sizeof *c->tensors, by_name);
    for (size_t n = 1; n < c->n; n++)
        if (strcmp(c->tensors[n - 1].name, c->tensors[n].name) == 0) {
            char safe[96];
            return io_damaged(err, path, "tensor '%s' is in two files: %s and %s (remove it from one of them)",
                              io_safe(safe, sizeof safe, c->tensors[n].name), c->tensors[n - 1].file,
                              c->tensors[n].file);
        }
    return IO_OK;
}

/* List the tensors of all files. */
static io_status gather(io_checkpoint *c, const char *path, char err[IO_ERR_MAX])
{
    static const unsigned char nothing[1]; /* memcmp and memcpy accept no NULL, not even for 0 bytes */
    size_t total = 0;
    for (size_t s = 0; s < c->n_shards; s++)
        total += c->shards[s].set.n_arrays;
    if (total == 0)
        return io_damaged(err, path, "it has no tensors (give a file of weights)");
    free(c->tensors);
    c->n = 0;
    c->tensors = calloc(total, sizeof *c->tensors);
    if (c->tensors == NULL)
        return io_fail(err, path, "out of memory");
    for (size_t s = 0; s < c->n_shards; s++)
        for (size_t n = 0; n < c->shards[s].set.n_arrays; n++) {
            const io_array *a = &c->shards[s].set.arrays[n];
            c->tensors[c->n++] = (io_tensor){.name = a->name,
                                             .file = c->shards[s].name,
                                             .dtype = a->dtype,
                                             .ndim = a->ndim,
                                             .shape = a->shape,
                                             .data = a->data != NULL ? a->data : nothing,
                                             .bytes = a->bytes,
                                             .unsupported = a->unsupported};
        }
    return sort_tensors(c, path, err);
}

io_status io_checkpoint_rename(io_checkpoint *c, io_renamer *rename, const void *context, const char *path,
                               char err[IO_ERR_MAX])
{
    enum { NAME = 192 };
    size_t kept = 0;
    char *names = malloc((c->n + 1) * NAME); /* each tensor takes more than this in memory, as an io_array */
    if (names == NULL)
        return io_fail(err, path, "out of memory");
    for (size_t n = 0; n < c->n; n++) {
        char *name = names + kept * NAME;
        if (rename(context, c->tensors[n].name, name, NAME)) {
            c->tensors[kept] = c->tensors[n];
            c->tensors[kept++].name = name;
        }
    }
    c->n = kept;
    free(c->names); /* of an earlier call; they were read above */
    c->names = names;
    return sort_tensors(c, path, err);
}

const io_tensor *io_checkpoint_find(const io_checkpoint *c, const char *name)
{
    const io_tensor key = {.name = name};
    return bsearch(&key, c->tensors, c->n, sizeof *c->tensors, by_name);
}

size_t io_checkpoint_size(const io_checkpoint *c)
{
    return c->n;
}

const io_tensor *io_checkpoint_at(const io_checkpoint *c, size_t n)
{
    return &c->tensors[n];
}

const char *io_checkpoint_meta(const io_checkpoint *c, const char *key)
{
    return c->n_shards == 1 ? io_meta(&c->shards[0].set, key) : NULL;
}

const char *io_checkpoint_note(const io_checkpoint *c)
{
    return c->n_shards == 1 ? c->shards[0].set.note : NULL;
}

const io_gguf *io_checkpoint_keys(const io_checkpoint *c)
{
    return c->n_shards == 1 && c->shards[0].gguf ? &c->shards[0].keys : NULL;
}

/* ---------------------------------------------------------------------------------------------- the index of shards */

static size_t find_shard(const io_checkpoint *c, const char *name)
{
    size_t s = 0;
    while (s < c->n_shards && strcmp(c->shards[s].name, name) != 0)
        s++;
    return s;
}

/* Open every file that the index lists. File names must not contain a slash, because all files are in one folder. */
static io_status open_shards(io_checkpoint *c, const char *folder, const char *index, const json_t *map,
                             char err[IO_ERR_MAX])
{
    const char *key, *last = "";
    json_t *value;
    char safe[96];
    c->shards = calloc(MAX_SHARDS, sizeof *c->shards);
    if (c->shards == NULL)
        return io_fail(err, index, "out of memory");
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const char *name = json_string_value(value);
        if (name == NULL || *name == 0)
            return io_damaged(err, index, "weight_map names no file for tensor '%s' (correct the index)",
                              io_safe(safe, sizeof safe, key));
        if (strchr(name, '/') || strchr(name, '\\') || name[0] == '.')
            return io_damaged(err, index, "weight_map names '%s' (shards must be in the folder of the index)",
                              io_safe(safe, sizeof safe, name));
        if (strcmp(name, last) == 0 || find_shard(c, name) < c->n_shards)
            continue;
        if (c->n_shards == MAX_SHARDS)
            return io_damaged(err, index, "weight_map names more than %d files (use fewer shards)", MAX_SHARDS);
        last = name;
        char *path = join(folder, name);
        if (path == NULL)
            return io_fail(err, index, "out of memory");
        const io_status status = add_shard(c, path, name, err);
        free(path);
        if (status == IO_ABSENT) {
            io_fail(err, index, "weight_map names %s, but there is no such file (download all shards)",
                    io_safe(safe, sizeof safe, name));
            return IO_DAMAGED;
        }
        if (status != IO_OK)
            return status;
    }
    return IO_OK;
}

/* Check that no tensor is in another file than the index says. A tensor that is in no file may be one that the model
 * does not need, such as a copy of the embedding. */
static io_status check_index(const io_checkpoint *c, const char *index, const json_t *map, char err[IO_ERR_MAX])
{
    const char *key;
    json_t *value;
    char safe[96], safe_file[96];
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const io_tensor *t = io_checkpoint_find(c, key);
        if (t != NULL && strcmp(t->file, json_string_value(value)) != 0)
            return io_damaged(err, index,
                              "weight_map says that %s has tensor '%s', but it is in %s (correct the index)",
                              io_safe(safe_file, sizeof safe_file, json_string_value(value)),
                              io_safe(safe, sizeof safe, key), t->file);
    }
    return IO_OK;
}

static io_status read_index(io_checkpoint *c, const char *folder, const char *index, char err[IO_ERR_MAX])
{
    const unsigned char *data;
    size_t size;
    json_error_t error;
    bool no_memory;
    io_status status = io_map(index, &data, &size, err);
    if (status != IO_OK)
        return status;
    if (size > MAX_INDEX) {
        io_unmap(data, size);
        return io_damaged(err, index, "it has %zu bytes, and at most %d are read (download the index again)", size,
                          MAX_INDEX);
    }
    json_t *root = io_json((const char *)data, size, JSON_REJECT_DUPLICATES, &error, &no_memory);
    const json_t *map = json_object_get(root, "weight_map");
    char fault[IO_JSON_FAULT];
    if (root == NULL && !no_memory)
        io_json_fault((const char *)data, size, &error, fault);
    io_unmap(data, size);
    if (no_memory)
        status = io_fail(err, index, "out of memory");
    else if (root == NULL)
        status = io_damaged(err, index, "%s", fault);
    else if (!json_is_object(map) || json_object_size(map) == 0)
        status = io_damaged(err, index, "it has no weight_map (give an index that save_pretrained wrote)");
    else
        status = open_shards(c, folder, index, map, err);
    if (status == IO_OK)
        status = gather(c, index, err);
    if (status == IO_OK)
        status = check_index(c, index, map, err);
    json_decref(root);
    return status;
}

/* ------------------------------------------------------------------------------------------------ opening */

static io_status open_file(io_checkpoint *c, const char *path, char err[IO_ERR_MAX])
{
    const char *slash = strrchr(path, '/');
    c->shards = calloc(1, sizeof *c->shards);
    if (c->shards == NULL)
        return io_fail(err, path, "out of memory");
    const io_status status = add_shard(c, path, slash != NULL ? slash + 1 : path, err);
    return status != IO_OK ? status : gather(c, path, err);
}

const char *const io_checkpoint_names[IO_CHECKPOINT_NAMES] = {"model.safetensors", "model.safetensors.index.json",
                                                              "pytorch_model.bin", "pytorch_model.bin.index.json"};

static io_status open_folder(io_checkpoint *c, const char *folder, char err[IO_ERR_MAX])
{
    for (int n = 0; n < IO_CHECKPOINT_NAMES; n++) {
        char *path = join(folder, io_checkpoint_names[n]);
        if (path == NULL)
            return io_fail(err, folder, "out of memory");
        const bool absent = access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
        io_status status = IO_ABSENT; /* other errors are reported when the file is opened */
        if (!absent)
            status = strstr(io_checkpoint_names[n], ".index.json") != NULL ? read_index(c, folder, path, err)
                                                                           : open_file(c, path, err);
        free(path);
        if (!absent)
            return status;
    }
    io_fail(
        err, folder,
        "it has neither model.safetensors nor pytorch_model.bin, nor an index of one (for weights in another format, "
        "load them with transformers and call save_pretrained)");
    return IO_ABSENT;
}

io_status io_checkpoint_open(io_checkpoint **made, const char *path, char err[IO_ERR_MAX])
{
    io_checkpoint *c = calloc(1, sizeof *c);
    *made = NULL;
    if (c == NULL)
        return io_fail(err, path, "out of memory");
    bool folder;
    io_status status = io_is_folder(path, &folder, err);
    if (status == IO_OK)
        status = folder ? open_folder(c, path, err) : open_file(c, path, err);
    if (status == IO_OK)
        status =
            io_scales_find(c->tensors, &c->n, io_checkpoint_meta(c, "_quantization_metadata"), &c->scales, path, err);
    if (status != IO_OK) {
        io_checkpoint_close(c);
        return status;
    }
    *made = c;
    return IO_OK;
}

void io_checkpoint_close(io_checkpoint *c)
{
    if (c == NULL)
        return;
    for (size_t s = 0; s < c->n_shards; s++) {
        io_free(&c->shards[s].set);
        io_gguf_free(&c->shards[s].keys);
        io_unmap(c->shards[s].data, c->shards[s].size);
        free(c->shards[s].name);
        free(c->shards[s].path);
    }
    free(c->shards);
    io_scales_free(c->scales);
    free(c->tensors);
    free(c->names);
    free(c);
}

io_status io_checkpoint_unchanged(const io_checkpoint *c, char err[IO_ERR_MAX])
{
    for (size_t n = 0; n < c->n_shards; n++) {
        const struct stat *was = &c->shards[n].version;
        struct stat st;
        if (stat(c->shards[n].path, &st) != 0 || st.st_ino != was->st_ino || st.st_dev != was->st_dev)
            continue; /* replaced by another file: the mapped one still exists */
        if (st.st_size != was->st_size || st.st_mtim.tv_sec != was->st_mtim.tv_sec ||
            st.st_mtim.tv_nsec != was->st_mtim.tv_nsec)
            return io_fail(err, c->shards[n].path,
                           "it was changed while it was in use (start again, and replace files "
                           "with mv instead of writing to them)");
    }
    return IO_OK;
}

/* ------------------------------------------------------------------------------------------------ numbers */

/* Convert a number with 1 sign bit, 4 exponent bits (bias 7) and 3 mantissa bits. The format has no infinity; 0x7f is
 * NaN. */
static float from_e4m3(unsigned char x)
{
    const int exponent = x >> 3 & 15, mantissa = x & 7;
    const float size = (x & 0x7f) == 0x7f ? NAN
                       : exponent == 0    ? ldexpf((float)mantissa, -9)
                                          : ldexpf((float)(8 + mantissa), exponent - 10);
    return x & 0x80 ? -size : size;
}

/* Convert a number with 1 sign bit, 5 exponent bits and 2 mantissa bits: the upper half of an f16. */
static float from_e5m2(unsigned char x)
{
    const int exponent = x >> 2 & 31, mantissa = x & 3;
    const float size = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                       : exponent == 0 ? ldexpf((float)mantissa, -16)
                                       : ldexpf((float)(4 + mantissa), exponent - 17);
    return x & 0x80 ? -size : size;
}

bool io_tensor_same(const io_tensor *a, const io_tensor *b)
{
    const io_scales *x = a->scales, *y = b->scales;
    if (a->ndim != b->ndim || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) != 0 ||
        a->dtype != b->dtype || a->bytes != b->bytes || (x == NULL) != (y == NULL) ||
        memcmp(a->data, b->data, a->bytes) != 0)
        return false;
    return x == NULL || (x->rows == y->rows && x->columns == y->columns && x->n == y->n &&
                         memcmp(x->values, y->values, (size_t)x->n * sizeof *x->values) == 0);
}

uint64_t io_tensor_checksum(const io_tensor *t, uint64_t z)
{
    z = io_checksum(z, t->data, t->bytes);
    return t->scales == NULL ? z : io_checksum(z, t->scales->values, (size_t)t->scales->n * sizeof *t->scales->values);
}

bool io_tensor_has_numbers(const io_tensor *t)
{
    return io_is_floating(t->dtype) || io_tensor_is_f8(t) || io_block_of(t->dtype) != NULL;
}

const char *io_tensor_type_name(const io_tensor *t)
{
    const linear_blocks *blocks = io_block_of(t->dtype);
    return blocks != NULL            ? blocks->name
           : t->dtype == IO_F8_E4M3  ? "F8_E4M3"
           : t->dtype == IO_F8_E5M2  ? "F8_E5M2"
           : t->dtype == IO_NO_DTYPE ? "unknown"
                                     : rp_dtype_name(t->dtype);
}

static bool read_unscaled(const io_tensor *t, int64_t first, int64_t n, float *to)
{
    enum { PIECE = 1024 };
    const linear_blocks *blocks = io_block_of(t->dtype);
    if (blocks != NULL) {
        io_blocks_read(blocks, t->data, first, n, to);
        return true;
    }
    if (io_tensor_is_f8(t)) {
        for (int64_t k = 0; k < n; k++)
            to[k] = t->dtype == IO_F8_E4M3 ? from_e4m3(t->data[first + k]) : from_e5m2(t->data[first + k]);
        return true;
    }
    if (t->dtype != RP_F32 && t->dtype != RP_F64 && t->dtype != RP_F16 && t->dtype != RP_BF16)
        return false;
    const size_t element = io_dtype_size(t->dtype);
    double aligned[PIECE]; /* rp_convert needs aligned elements, but elements in the file may be unaligned */
    for (int64_t k = 0; k < n; k += PIECE) {
        const int64_t m = n - k < PIECE ? n - k : PIECE;
        memcpy(aligned, t->data + (size_t)(first + k) * element, (size_t)m * element);
        if (rp_convert(to + k, RP_F32, aligned, t->dtype, m) != RP_OK)
            return false;
    }
    return true;
}

bool io_tensor_read(const io_tensor *t, int64_t first, int64_t n, float *to)
{
    const bool done = read_unscaled(t, first, n, to);
    if (done)
        io_scales_apply(t, first, n, to);
    return done;
}

void io_tensor_drop(const io_tensor *t)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)t->data,
                    first = (begin + page - 1) / page * page, end = (begin + t->bytes) / page * page;
    if (end > first)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

/* Count the elements in which every bit of `all` is set. With the exponent bits as `all`, these are NaN and infinity.
 * Compilers vectorize blocks of a fixed size; the count of one block fits into an element. */
#define COUNT(NAME, TYPE)                                                                                              \
    static int64_t NAME(const unsigned char *data, size_t bytes, TYPE all)                                             \
    {                                                                                                                  \
        enum { BLOCK = 128 };                                                                                          \
        int64_t found = 0;                                                                                             \
        for (size_t k = 0; k < bytes; k += sizeof(TYPE[BLOCK])) {                                                      \
            TYPE block[BLOCK] = {0}, some = 0;                                                                         \
            memcpy(block, data + k, bytes - k < sizeof block ? bytes - k : sizeof block);                              \
            for (int x = 0; x < BLOCK; x++)                                                                            \
                some = (TYPE)(some + ((block[x] & all) == all));                                                       \
            found += (int64_t)some;                                                                                    \
        }                                                                                                              \
        return found;                                                                                                  \
    }
COUNT(count_8, uint8_t)
COUNT(count_16, uint16_t)
COUNT(count_32, uint32_t)
COUNT(count_64, uint64_t)

/* Count the numbers of blocks with a scale that is NaN or infinite. */
static int64_t count_blocks(const io_tensor *t, const linear_blocks *type)
{
    int64_t found = 0;
    for (const unsigned char *b = t->data; b < t->data + t->bytes; b += type->bytes) {
        const bool scale = (b[type->scale + 1] & 0x7c) == 0x7c,
                   min = type->min >= 0 && (b[type->min + 1] & 0x7c) == 0x7c;
        found += scale || min ? type->numbers : 0;
    }
    return found;
}

int64_t io_tensor_not_finite(const io_tensor *t)
{
    const linear_blocks *blocks = io_block_of(t->dtype);
    if (blocks != NULL)
        return t->bytes > 0 ? count_blocks(t, blocks) : 0;
    switch ((int)t->dtype) {
    case RP_BF16: return count_16(t->data, t->bytes, 0x7f80);
    case RP_F16: return count_16(t->data, t->bytes, 0x7c00);
    case RP_F32: return count_32(t->data, t->bytes, 0x7f800000);
    case RP_F64: return count_64(t->data, t->bytes, 0x7ff0000000000000);
    case IO_F8_E4M3: return count_8(t->data, t->bytes, 0x7f);
    case IO_F8_E5M2: return count_8(t->data, t->bytes, 0x7c);
    default: return 0;
    }
}
