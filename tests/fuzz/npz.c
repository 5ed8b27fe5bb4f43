/* npz.c -- reads the input as .npz, from memory and from a file. The result must keep the promises of io.h, and it must
 * be possible to write it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/arrays.h"
#include "tests/fuzz/mend.h"

size_t fuzz_mend(uint8_t *data, size_t size, size_t max)
{
    return mend_zip(data, size, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char err[IO_ERR_MAX] = "";
    io_set set = {0};
    const io_status status = arrays_read(IO_NPZ, data, size);
    if (size == 0 || memcmp(data, "\x93NUMPY", size < 6 ? size : 6) == 0 || left_out(data, size, 0, 4))
        return 0; /* io_npz_file does not read .npy */
    if (fd < 0)
        fd = memfd_create("npz", 0);
    PROMISE(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size, "no file in memory");
    PROMISE(io_npz_file("x", fd, 0, size, &set, err) == status, "in a file: %d, %s; in memory: %d", status, err,
            status);
    io_free(&set);
    return 0;
}
