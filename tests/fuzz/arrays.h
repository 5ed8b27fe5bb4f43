/* arrays.h -- what a file of arrays that can be read must keep: the promises of io.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_FUZZ_ARRAYS_H
#define RELPOS_TESTS_FUZZ_ARRAYS_H
#include "io/formats.h"
#include "io/io.h"
#include "tests/fuzz/fuzz.h"

FUZZED void arrays_check(const io_set *set, size_t size, bool inflates)
{
    static volatile unsigned char seen;
    (void)seen;
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

/* Read a file in memory, and return the status. If it can be read, check it; some are written again. */
FUZZED io_status arrays_read(io_format format, const uint8_t *data, size_t size)
{
    char err[IO_ERR_MAX];
    io_set set = {0};
    memset(err, 1, sizeof err);
    const io_status status = io_parse("x", format, data, size, &set, err);
    if (status == IO_OK) {
        fuzz_valid++;
        arrays_check(&set, size, format != IO_SAFETENSORS);
        if (!left_out(data, size, 0, 8)) {
            io_write("/dev/null", IO_SAFETENSORS, &set, err);
            io_write("/dev/null", IO_NPZ, &set, err);
        }
    } else {
        refusal_is_a_line(err, sizeof err);
        PROMISE(err[0] == 'x', "the file is not named: %s", err);
    }
    io_free(&set);
    return status;
}

#endif
