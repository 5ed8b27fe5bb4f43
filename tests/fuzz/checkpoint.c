/* checkpoint.c -- reads the input as a checkpoint, with and without training state, and as the tensors of a T5 file.
 * If only the checksum is wrong, the input is read again with the right one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"
#include "lab/engine/nn.h"
#include "tests/fuzz/mend.h"

static volatile unsigned char seen;

static bool read_model(const char *path, bool train, char err[NN_ERR_MAX])
{
    char warning[NN_ERR_MAX];
    nn_model m = {0};
    int64_t step;
    err[0] = 0;
    const bool valid = nn_checkpoint_read(&m, path, train, &step, warning, err) == 0;
    if (valid)
        nn_model_destroy(&m);
    else
        refusal_is_a_line(err, NN_ERR_MAX);
    fuzz_valid += valid;
    return valid;
}

/* Write the file with the checksum that an error demands. Return false if it demands none. */
static bool mend(const uint8_t *data, size_t size, const char *err)
{
    enum { DIGITS = 16 };
    char now[DIGITS + 1], then[DIGITS + 1];
    const char *at = strstr(err, "its checksum is ");
    if (at == NULL || sscanf(at, "its checksum is %16[0-9a-f] and should be %16[0-9a-f]", now, then) != 2 ||
        strlen(then) != DIGITS)
        return false;
    uint8_t *copy = (uint8_t *)text_of(data, size), *sum = memmem(copy, size, then, DIGITS);
    if (sum != NULL) {
        memcpy(sum, now, DIGITS);
        file_of(copy, size, size);
    }
    free(copy);
    return sum != NULL;
}

static void read_tensors(const char *path)
{
    char err[IO_ERR_MAX];
    io_checkpoint *file;
    if (io_checkpoint_open(&file, path, err) != IO_OK) {
        refusal_is_a_line(err, sizeof err);
        return;
    }
    for (size_t n = 0; n < io_checkpoint_size(file); n++) {
        const io_tensor *t = io_checkpoint_at(file, n);
        PROMISE(io_checkpoint_find(file, t->name) == t, "two tensors have one name");
        for (size_t x = 0; x < t->bytes; x++)
            seen ^= t->data[x];
    }
    io_checkpoint_close(file);
}

size_t fuzz_mend(uint8_t *data, size_t size, size_t max)
{
    return size < 8 ? size : mend_safetensors(data, size, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[NN_ERR_MAX];
    for (int train = 0; train < 2; train++) {
        if (left_out(data, size, (unsigned)train, 3))
            continue;
        const char *path = file_of(data, size, size);
        if (!read_model(path, train, err) && mend(data, size, err))
            PROMISE(read_model(path, train, err) || strstr(err, "checksum") == NULL, "mended, but refused: %s", err);
    }
    if (!left_out(data, size, 2, 3))
        read_tensors(file_of(data, size, size));
    return 0;
}
