/* torch.c -- reads the input as a file of torch.save: byte 0 decides whether it is a whole archive, or the pickle in a
 * valid archive, where mutations reach more of the reader.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"
#include "tests/fuzz/mend.h"
#include "tests/io/archives.h"

static volatile unsigned char seen;

/* Check that every tensor lies within the file and that its elements fit its shape. */
static void check(const io_set *set, const unsigned char *file, size_t size)
{
    for (size_t n = 0; n < set->n_arrays; n++) {
        const io_array *a = &set->arrays[n];
        size_t needed;
        PROMISE(io_utf8_all(a->name, strlen(a->name)), "a name that is not UTF-8");
        PROMISE(io_find(set, a->name) == a, "two tensors have one name");
        if (a->unsupported != NULL)
            continue;
        const unsigned char *data = a->data;
        const size_t element = a->dtype == IO_F8_E4M3 ? 1 : io_dtype_size(a->dtype);
        PROMISE(io_bytes(element, a->ndim, a->shape, &needed) && needed == a->bytes, "%zu bytes", a->bytes);
        PROMISE(a->bytes == 0 || (data >= file && data + a->bytes <= file + size), "a tensor outside of the file");
        for (size_t x = 0; x < a->bytes; x++)
            seen ^= data[x];
    }
}

size_t fuzz_mend(uint8_t *data, size_t size, size_t max)
{
    return size > 1 && data[0] % 2 == 0 ? 1 + mend_zip(data + 1, size - 1, max - 1) : size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    static const float storage[24];
    const member members[] = {{.name = "a/data.pkl", .data = data + 1, .size = size - 1},
                              {.name = "a/data/0", .data = storage, .size = sizeof storage},
                              {.name = "a/data/1", .data = storage, .size = 48}};
    bytes file = {0};
    if (data[0] % 2 == 0)
        put(&file, data + 1, size - 1);
    else
        file = make_zip(members, 3, 3);
    io_set set = {0};
    memset(err, 1, sizeof err);
    if (io_torch_in_place("x", file.p, file.n, &set, err) == IO_OK) {
        fuzz_valid++;
        check(&set, file.p, file.n);
    } else {
        refusal_is_a_line(err, sizeof err);
    }
    io_free(&set);
    free(file.p);
    return 0;
}
