/* safetensors.c -- reads the input as .safetensors, copied and in place. The result must keep the promises of io.h,
 * and it must be possible to write it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"
#include "tests/fuzz/arrays.h"
#include "tests/fuzz/mend.h"

size_t fuzz_mend(uint8_t *data, size_t size, size_t max)
{
    return size < 8 ? size : mend_safetensors(data, size, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    io_checkpoint *file;
    char err[IO_ERR_MAX] = "";
    arrays_read(IO_SAFETENSORS, data, size);
    if (size == 0 || left_out(data, size, 0, 4))
        return 0;
    if (io_checkpoint_open(&file, file_of(data, size, size), err) == IO_OK)
        for (size_t n = 0; n < io_checkpoint_size(file); n++) {
            const io_tensor *t = io_checkpoint_at(file, n);
            PROMISE(io_checkpoint_find(file, t->name) == t, "two tensors have one name");
            PROMISE(io_tensor_not_finite(t) >= 0, "a negative count");
        }
    else
        refusal_is_a_line(err, sizeof err);
    io_checkpoint_close(file);
    return 0;
}
