/* npy.c -- reads the input as the member of an .npz file, a .npy file. The result must keep the promises of io.h,
 * and it must be possible to write it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/arrays.h"
#include "tests/io/archives.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const member npy = {.name = "q.npy", .data = data, .size = size};
    if (size == 0)
        return 0;
    bytes archive = make_zip(&npy, 1, 1);
    arrays_read(IO_NPZ, archive.p, archive.n);
    free(archive.p);
    return 0;
}
