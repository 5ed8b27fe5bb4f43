/* fuzz.h -- helpers of the fuzz targets. A target is a file that defines LLVMFuzzerTestOneInput, which libFuzzer calls.
 * Without libFuzzer, standalone.c replays and mutates inputs. A target aborts with a message if the code breaks a
 * promise. If a checksum or a length stops most changed inputs, the target defines fuzz_mend and includes mend.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_FUZZ_H
#define RELPOS_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZED __attribute__((unused)) static inline

/* The number of valid inputs. Targets count them. standalone.c and tools/soak.py fail if there are none: the target
 * would then test little more than the refusal of its inputs. */
__attribute__((weak)) long fuzz_valid;

/* Print that number for tools/soak.py. */
__attribute__((weak, destructor)) void fuzz_say_valid(void)
{
    fprintf(stderr, "valid inputs: %ld\n", fuzz_valid);
}

/* Abort if `holds` is false. */
#define PROMISE(holds, ...)                                                                                            \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "FINDING %s:%d: ", __FILE__, __LINE__);                                                    \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Check that an error is a single non-empty line and is terminated within a buffer of `size` bytes. */
FUZZED void refusal_is_a_line(const char *err, size_t size)
{
    PROMISE(memchr(err, 0, size) != NULL, "an error without a terminating NUL");
    PROMISE(*err && !strchr(err, '\n'), "an error that is not one line: \"%s\"", err);
}

/* Write data to a file in memory, in place of what it had, and zeros up to `total` bytes. Return its path. */
FUZZED const char *file_of(const uint8_t *data, size_t size, size_t total)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        PROMISE(fd >= 0, "no file in memory");
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    PROMISE(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size && ftruncate(fd, (off_t)total) == 0,
            "the file in memory cannot be written");
    return path;
}

/* Make a folder, in memory if possible. Return its path, which the caller frees. */
FUZZED char *make_folder_in_memory(void)
{
    static const char *const where[] = {"/dev/shm/relpos-fuzz-XXXXXX", "/tmp/relpos-fuzz-XXXXXX"};
    for (int k = 0; k < 2; k++) {
        char *path = strdup(where[k]);
        PROMISE(path != NULL, "out of memory");
        if (mkdtemp(path) != NULL)
            return path;
        free(path);
    }
    PROMISE(false, "no temporary folder");
    return NULL;
}

/* Return false if the input is to be used in this way, out of `ways`. libFuzzer uses each input in one way, which a
 * hash of the input chooses; without libFuzzer, each input is used in every way. */
FUZZED bool left_out(const uint8_t *data, size_t size, unsigned way, unsigned ways)
{
#ifdef LIBFUZZER
    uint64_t hash = size;
    for (size_t x = 0; x < size; x += 8) {
        uint64_t word = 0;
        memcpy(&word, data + x, size - x < 8 ? size - x : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash % ways != way;
#else
    (void)data, (void)size, (void)way, (void)ways;
    return false;
#endif
}

/* Return the input as a string. The caller frees it. */
FUZZED char *text_of(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    PROMISE(text, "out of memory");
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;
    return text;
}

#endif
