/* fuzz.h -- helpers of the fuzz targets. A target is a file that defines LLVMFuzzerTestOneInput, which libFuzzer calls.
 * Without libFuzzer, standalone.c replays and mutates inputs. A target aborts with a message if the code breaks a
 * promise.
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

/* The number of valid inputs. Targets count them, and standalone.c fails if there are none: the target would then test
 * little more than the refusal of its inputs. */
__attribute__((weak)) long fuzz_valid;

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
