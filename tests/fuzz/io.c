/* io.c -- reads the input as .npz, .safetensors and .npy. The result must keep the promises of io.h, and it must be
 * possible to write it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/arrays.h"
#include "tests/io/archives.h"

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
    arrays_read(formats[mode], file, length);
    free(archive.p);
    return 0;
}
