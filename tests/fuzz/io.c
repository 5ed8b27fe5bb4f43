/* io.c -- reads the input as .npz, .safetensors and .npy. The result must keep the promises of io.h, and it must be
 * possible to write it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"
#include "tests/io/archives.h"
#include <sys/mman.h>
#include <unistd.h>

static volatile unsigned char seen;

static void check(const io_set *set, size_t size, bool inflates)
{
    size_t all = 0;
    for (size_t n = 0; n < set->n_arrays; n++) {
        const io_array *a = &set->arrays[n];
        PROMISE(a->name && io_utf8_all(a->name, strlen(a->name)), "a name that is not UTF-8");
        PROMISE(io_find(set, a->name) == a, "two arrays have one name");
        if (a->unsupported) {
            PROMISE(!a->data && a->bytes == 0 && a->dtype == IO_NO_DTYPE, "an array that cannot be used looks usable");
            continue;
        }
        size_t size_of_data = io_dtype_size(a->dtype);
        PROMISE(a->ndim >= 0 && a->ndim <= IO_MAX_AXES, "%d axes", a->ndim);
        for (int x = 0; x < a->ndim; x++) {
            PROMISE(a->shape[x] >= 0, "an axis of %lld", (long long)a->shape[x]);
            size_of_data *= (size_t)a->shape[x];
        }
        PROMISE(size_of_data == a->bytes && (size_of_data == 0 || a->data), "%zu bytes of %zu", a->bytes, size_of_data);
        for (size_t x = 0; x < size_of_data; x++)
            seen ^= ((unsigned char *)a->data)[x];
        all += size_of_data;
    }
    PROMISE(all <= (inflates ? 1032 * size + 1032 : size), "%zu bytes of data from %zu", all, size);
}

/* Check that reading an archive from a file gives the same result as reading it from memory. */
static void compare_with_file(const uint8_t *data, size_t size, io_status status)
{
    static int fd = -1;
    char err_file[IO_ERR_MAX] = "";
    io_set set = {0};
    if (fd < 0)
        fd = memfd_create("io", 0);
    PROMISE(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size, "no file in memory");
    PROMISE(io_npz_file("x", fd, 0, size, &set, err_file) == status, "in a file: %s; in memory: %s", err_file, err);
    io_free(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    static const io_format formats[] = {IO_NPZ, IO_SAFETENSORS, IO_UNKNOWN, IO_NPZ};
    const int mode = data[0] & 3;
    const member npy = {.name = "q.npy", .data = data + 1, .size = size - 1};
    bytes archive = mode == 3 ? make_zip(&npy, 1, 1) : (bytes){0};
    const uint8_t *file = mode == 3 ? archive.p : data + 1;
    const size_t length = mode == 3 ? archive.n : size - 1;
    io_set set = {0};
    memset(err, 1, sizeof err);
    const io_status status = io_parse("x", formats[mode], file, length, &set, err);
    if (formats[mode] == IO_NPZ && length > 0 && (status == IO_OK || strstr(err, "single .npy") == NULL))
        compare_with_file(file, length, status);
    if (status == IO_OK) {
        fuzz_valid++;
        check(&set, length, formats[mode] != IO_SAFETENSORS);
        io_write("/dev/null", IO_SAFETENSORS, &set, err);
        io_write("/dev/null", IO_NPZ, &set, err);
    } else {
        refusal_is_a_line(err, sizeof err);
        PROMISE(err[0] == 'x', "the file is not named: %s", err);
    }
    io_free(&set);
    free(archive.p);
    return 0;
}
