/* checkpoint.c -- reads the input as a checkpoint, with and without training state, and as the tensors of a T5 file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"
#include "lab/engine/nn.h"
#include "tests/fuzz/fuzz.h"

static volatile unsigned char seen;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[NN_ERR_MAX], warning[NN_ERR_MAX];
    io_checkpoint *file;
    const char *path = file_of(data, size, size);
    for (int train = 0; train < 2; train++) {
        nn_model m = {0};
        int64_t step;
        err[0] = 0;
        if (nn_checkpoint_read(&m, path, train, &step, warning, err) == 0) {
            fuzz_valid++;
            nn_model_destroy(&m);
        } else {
            refusal_is_a_line(err, sizeof err);
        }
    }
    if (io_checkpoint_open(&file, path, err) == IO_OK) {
        for (size_t n = 0; n < io_checkpoint_size(file); n++) {
            const io_tensor *t = io_checkpoint_at(file, n);
            PROMISE(io_checkpoint_find(file, t->name) == t, "two tensors have one name");
            for (size_t x = 0; x < t->bytes; x++)
                seen ^= t->data[x];
        }
        io_checkpoint_close(file);
    } else {
        refusal_is_a_line(err, sizeof err);
    }
    return 0;
}
