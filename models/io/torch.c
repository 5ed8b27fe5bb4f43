/* torch.c -- pytorch_model.bin, .pt and .pth: what torch.save has written since PyTorch 1.6. A zip archive of stored
 * members:
 *
 *     NAME/data.pkl      a pickle of the dictionary; each tensor refers to a storage
 *     NAME/data/KEY      the bytes of storage KEY
 *     NAME/byteorder     "little" or "big"; older versions do not write it
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"
#include "io/formats.h"
#include "io/pickle.h"
#include "io/zip_members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Max bytes of all tensors for each byte of the file: several tensors may share a storage, such as tied weights. */
#define SHARED_MAX 64

typedef struct reader {
    io_zip_list list;
    const char *folder; /* name of the archive's folder with its slash; not NUL-terminated */
    size_t folder_size;
    io_set *set;
    size_t left; /* bytes that further tensors may have */
} reader;

/* Find a member of the folder; NULL if there is none. */
static io_status find_member(const reader *r, const char *kind, const char *key, size_t key_size,
                             const io_zip_member **found, char why[IO_WHY_MAX])
{
    const size_t n = strlen(kind);
    char *name = malloc(r->folder_size + n + key_size + 1), safe[96];
    if (name == NULL)
        return io_no_memory(why);
    memcpy(name, r->folder, r->folder_size);
    memcpy(name + r->folder_size, kind, n);
    memcpy(name + r->folder_size + n, key, key_size);
    name[r->folder_size + n + key_size] = 0;
    const io_zip_member *m = *found = io_zip_find(&r->list, name, r->folder_size + n + key_size);
    io_status status = IO_OK;
    if (m != NULL && (m->method != 0 || m->encrypted))
        status = io_why(why, "its member '%s' is %s; torch.save stores members (save it again with torch.save)",
                        io_safe(safe, sizeof safe, name), m->encrypted ? "encrypted" : "compressed");
    free(name);
    return status;
}

static char *copy_text(const char *text, size_t size)
{
    char *copy = malloc(size + 1);
    if (copy != NULL) {
        memcpy(copy, text, size);
        copy[size] = 0;
    }
    return copy;
}

/* Let an array borrow its elements from the file. */
static io_status place_tensor(reader *r, const io_pickle_tensor *t, io_array *array, char why[IO_WHY_MAX])
{
    const size_t element = io_pickle_element(t->dtype);
    const io_zip_member *m;
    size_t bytes, begin;
    const io_status status = find_member(r, "data/", t->storage, t->storage_size, &m, why);
    if (status != IO_OK)
        return status;
    if (m == NULL)
        return io_why(why, "its storage is not in the file (download the file again)");
    if (m->size != t->storage_bytes)
        return io_why(why, "its storage has %zu bytes; it must have %zu", m->size, t->storage_bytes);
    if (!io_bytes(element, t->ndim, t->shape, &bytes))
        return io_why(why, "the product of the shape is too large");
    if (!t->contiguous)
        return io_unsupported(array, "it is not contiguous (save x.contiguous())") ? IO_OK : io_no_memory(why);
    if (!io_mul((size_t)t->offset, element, &begin) || begin > m->size || bytes > m->size - begin)
        return io_why(why, "its %zu bytes from element %lld on are not within its storage of %zu bytes", bytes,
                      (long long)t->offset, m->size);
    if (bytes > r->left)
        return io_why(why, "the tensors share their storages more than %d times (save copies of them)", SHARED_MAX);
    r->left -= bytes;
    array->dtype = t->dtype;
    array->bytes = bytes;
    array->borrowed = true;
    array->data = bytes > 0 ? (void *)(uintptr_t)(m->data + begin) : NULL;
    return IO_OK;
}

static io_status add_tensor(void *context, const io_pickle_tensor *t, char why[IO_WHY_MAX])
{
    reader *r = context;
    char reason[IO_WHY_MAX] = "", safe[80];
    if (r->set->n_arrays == IO_MAX_ARRAYS)
        return io_why(why, "it has more than %d tensors", IO_MAX_ARRAYS);
    if (memchr(t->name, 0, t->name_size) != NULL || !io_utf8_all(t->name, t->name_size))
        return io_why(why, "the name of a tensor is not UTF-8 without NUL");
    char *name = copy_text(t->name, t->name_size);
    io_array *array = name != NULL ? io_push(r->set, name) : NULL;
    free(name);
    if (array == NULL || !io_set_shape(array, t->ndim, t->shape))
        return io_no_memory(why);
    const io_status status = place_tensor(r, t, array, reason);
    if (status != IO_OK)
        io_why(why, "tensor '%s': %.160s", io_safe(safe, sizeof safe, array->name), reason);
    return status;
}

/* Find the folder, which is that of the only member whose name ends in "/data.pkl" after one component. */
static io_status find_folder(reader *r, char why[IO_WHY_MAX])
{
    static const char pickle[] = "/data.pkl";
    enum { N = sizeof pickle - 1 };
    for (size_t k = 0; k < r->list.n; k++) {
        const io_zip_member *m = &r->list.members[k];
        const char *slash = memchr(m->name, '/', m->name_size);
        if (slash == NULL || (size_t)(m->name + m->name_size - slash) != N || memcmp(slash, pickle, N) != 0)
            continue;
        if (r->folder != NULL)
            return io_why(why, "it has two members data.pkl");
        r->folder = m->name;
        r->folder_size = (size_t)(slash - m->name) + 1;
    }
    return r->folder != NULL ? IO_OK
                             : io_why(why, "it is a zip archive without data.pkl, so torch.save did not write it "
                                           "(save the model with torch.save or safetensors)");
}

static io_status read_members(reader *r, char why[IO_WHY_MAX])
{
    const io_zip_member *order, *pickle;
    const char *twice;
    char safe[80], note[IO_WHY_MAX];
    io_status status = find_folder(r, why);
    if (status == IO_OK)
        status = find_member(r, "byteorder", "", 0, &order, why);
    if (status == IO_OK && order != NULL && (order->size != 6 || memcmp(order->data, "little", 6) != 0))
        return io_why(why, "its numbers are not little-endian (save it on a little-endian machine)");
    if (status == IO_OK)
        status = find_member(r, "data.pkl", "", 0, &pickle, why);
    if (status == IO_OK)
        status = io_pickle_read(pickle->data, pickle->size, add_tensor, r, note, why);
    if (status != IO_OK)
        return status;
    if (!io_duplicate(r->set, false, &twice) || (note[0] != 0 && (r->set->note = strdup(note)) == NULL))
        return io_no_memory(why);
    return twice == NULL ? IO_OK : io_why(why, "two tensors are named '%s'", io_safe(safe, sizeof safe, twice));
}

io_status io_torch_in_place(const char *path, const unsigned char *data, size_t size, io_set *set, char err[IO_ERR_MAX])
{
    char why[IO_WHY_MAX] = "";
    reader r = {.set = set, .left = size < SIZE_MAX / SHARED_MAX ? size * SHARED_MAX : SIZE_MAX};
    io_status status = io_zip_members(data, size, &r.list, why);
    if (status == IO_OK)
        status = read_members(&r, why);
    free(r.list.members);
    if (status != IO_OK)
        io_fail(err, path, "%s", why);
    return status;
}

bool io_torch_is(const unsigned char *data, size_t size)
{
    /* Since byte 9 of a .safetensors file belongs to a JSON text, it is not 0. In a zip archive it is the high byte of
     * the compression method. */
    return size > 9 && memcmp(data, "PK\3\4", 4) == 0 && data[9] == 0;
}

bool io_torch_is_old(const unsigned char *data, size_t size)
{
    static const unsigned char number[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                           0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    return (size >= sizeof number && memcmp(data, number, sizeof number) == 0) ||
           (size >= 512 && memcmp(data + 257, "ustar", 5) == 0 && data[8] != '{') /* '{': .safetensors */;
}

io_status io_torch_refuse_old(const char *path, const unsigned char *data, size_t size, io_set *set,
                              char err[IO_ERR_MAX])
{
    (void)data, (void)size, (void)set;
    return io_damaged(err, path,
                      "it was written by PyTorch before 1.6, or without its zip format (load it with torch.load "
                      "and save it again with torch.save)");
}
