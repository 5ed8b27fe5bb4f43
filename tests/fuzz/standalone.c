/* standalone.c -- runs a fuzz target without libFuzzer, on its inputs and on mutated copies of them.
 *     fuzz_io [-runs=N] [-seed=N] FILE|FOLDER...
 * SPDX-License-Identifier: Apache-2.0 */
#include "src/base/random.h"
#include "tests/fuzz/fuzz.h"
#include <dirent.h>
#include <sys/stat.h>

/* The function of a target that includes mend.h. */
__attribute__((weak)) size_t fuzz_mend(uint8_t *data, size_t size, size_t max);

enum { MAX_FILES = 4096, MAX_SIZE = 1 << 16 };

static struct {
    uint8_t *data;
    size_t size;
} inputs[MAX_FILES];
static int n_inputs;
static uint64_t state = 1;

static uint64_t below(uint64_t n)
{
    return n ? rpi_mix64(state += 0x9e3779b97f4a7c15u) % n : 0;
}

static void read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(MAX_SIZE);
    PROMISE(f && data, "%s cannot be read", path);
    inputs[n_inputs].size = fread(data, 1, MAX_SIZE, f);
    inputs[n_inputs++].data = data;
    fclose(f);
}

static void read_path(const char *path)
{
    struct stat st;
    PROMISE(stat(path, &st) == 0, "%s is not there", path);
    if (!S_ISDIR(st.st_mode)) {
        PROMISE(n_inputs < MAX_FILES, "more than %d inputs", MAX_FILES);
        read_file(path);
        return;
    }
    struct dirent **names;
    const int n = scandir(path, &names, NULL, alphasort);
    for (int x = 0; x < n; x++) {
        char below_it[4096];
        snprintf(below_it, sizeof below_it, "%s/%s", path, names[x]->d_name);
        if (names[x]->d_name[0] != '.')
            read_path(below_it);
        free(names[x]);
    }
    free(names);
}

/* Apply one to eight mutations: change a bit, a byte or a number; or remove, repeat or insert a part. */
static size_t change(uint8_t *to, size_t size)
{
    static const uint8_t edges[] = {0, 1, 9, 10, 32, 34, 44, 45, 48, 57, 61, 91, 93, 123, 125, 127, 128, 255};
    for (uint64_t n = 1 + below(8); n > 0; n--) {
        const size_t at = below(size + 1), length = below(size - at + 1) % 64;
        const int which = (int)below((uint64_t)n_inputs);
        switch (below(6)) {
        case 0:
            if (at < size)
                to[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            if (at < size)
                to[at] = (uint8_t)below(256);
            break;
        case 2:
            if (at < size)
                to[at] = edges[below(sizeof edges)];
            break;
        case 3: /* remove */
            memmove(to + at, to + at + length, size - at - length);
            size -= length;
            break;
        case 4: /* repeat */
            if (size + length <= MAX_SIZE) {
                memmove(to + at + length, to + at, size - at);
                size += length;
            }
            break;
        default: { /* insert from another input */
            const size_t from = below(inputs[which].size + 1), left = inputs[which].size - from;
            const size_t some = left < length ? left : length;
            if (at + some <= MAX_SIZE && some > 0) {
                memcpy(to + at, inputs[which].data + from, some);
                size = at + some > size ? at + some : size;
            }
        }
        }
    }
    return size;
}

int main(int argc, char **argv)
{
    long runs = 0;
    for (int n = 1; n < argc; n++)
        if (sscanf(argv[n], "-runs=%ld", &runs) != 1 && sscanf(argv[n], "-seed=%lu", &state) != 1)
            read_path(argv[n]);
    PROMISE(n_inputs > 0, "name a file or a folder with inputs");
    for (int n = 0; n < n_inputs; n++)
        LLVMFuzzerTestOneInput(inputs[n].data, inputs[n].size);
    uint8_t *to = malloc(MAX_SIZE);
    PROMISE(to, "out of memory");
    for (long n = 0; n < runs; n++) {
        const int from = (int)below((uint64_t)n_inputs);
        memcpy(to, inputs[from].data, inputs[from].size);
        size_t size = change(to, inputs[from].size);
        if (fuzz_mend != NULL && below(4) != 0)
            size = fuzz_mend(to, size, MAX_SIZE);
        uint8_t *exact = malloc(size ? size : 1); /* exact size: a sanitizer detects reads past the end */
        PROMISE(exact, "out of memory");
        memcpy(exact, to, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    PROMISE(fuzz_valid > 0, "none of the inputs is valid");
    fprintf(stderr, "%d inputs, %ld changed ones: nothing found\n", n_inputs, runs);
    for (int n = 0; n < n_inputs; n++)
        free(inputs[n].data);
    free(to);
    return 0;
}
