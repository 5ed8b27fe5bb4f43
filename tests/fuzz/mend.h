/* mend.h -- for targets whose inputs have lengths or checksums. The target defines fuzz_mend, which makes them right
 * after most mutations. Here are such functions for .safetensors and zip files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_FUZZ_MEND_H
#define RELPOS_TESTS_FUZZ_MEND_H
#include "tests/fuzz/fuzz.h"
#include <zlib.h>

/* Mend the input, which may grow up to `max` bytes. Return its size. */
size_t fuzz_mend(uint8_t *data, size_t size, size_t max);

#ifdef LIBFUZZER
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max);
    return seed % 4 != 0 ? fuzz_mend(data, size, max) : size;
}
#endif

FUZZED uint64_t mend_get(const uint8_t *at, int bytes)
{
    uint64_t x = 0;
    for (int k = 0; k < bytes; k++)
        x |= (uint64_t)at[k] << 8 * k;
    return x;
}

FUZZED void mend_put(uint8_t *at, uint64_t x, int bytes)
{
    for (int k = 0; k < bytes; k++)
        at[k] = (uint8_t)(x >> 8 * k);
}

/* Make the length of the header that of its JSON object, and the size of the data that of the largest offset. */
FUZZED size_t mend_safetensors(uint8_t *data, size_t size, size_t max)
{
    size_t at = 8, most = 0;
    bool quoted = false;
    for (int depth = 0; at < size; at++) {
        const uint8_t c = data[at];
        if (quoted)
            at += c == '\\', quoted = c != '"';
        else if (c == '"')
            quoted = true;
        else if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            break;
    }
    if (at >= size)
        return size;
    const size_t end = at + 1;
    for (size_t x = 8; x + 16 < end; x++)
        if (memcmp(data + x, "_offsets\":[", 11) == 0) {
            size_t number = 0;
            for (x += 11; x < end && data[x] != ']'; x++)
                number = data[x] == ',' ? 0 : data[x] >= '0' && data[x] <= '9' ? number * 10 + data[x] - '0' : number;
            most = number > most ? number : most;
        }
    const size_t header = (end + 7) / 8 * 8;
    if (most > max || header + most > max)
        return size;
    uint64_t old = mend_get(data, 8); /* where the data began */
    old = old < size - 8 ? old + 8 : end;
    old = old > end ? old : end;
    const size_t kept = size - (size_t)old < most ? size - (size_t)old : most;
    memmove(data + header, data + old, kept);
    memset(data + end, ' ', header - end);
    memset(data + header + kept, 0, most - kept);
    mend_put(data, header - 8, 8);
    return header + most;
}

/* Return where the next header of a zip file is. */
FUZZED size_t mend_next(const uint8_t *data, size_t at, size_t size)
{
    for (; at + 4 <= size; at++)
        if (data[at] == 'P' && data[at + 1] == 'K' &&
            ((data[at + 2] == 3 && data[at + 3] == 4) || (data[at + 2] == 1 && data[at + 3] == 2) ||
             (data[at + 2] == 5 && data[at + 3] == 6)))
            return at;
    return size;
}

/* Set sizes and CRC of a member, which begins at `at`, of a zip file. Inflated data may have `most` bytes. */
FUZZED void mend_member(uint8_t *at, const uint8_t *body, size_t n)
{
    enum { MOST = 1 << 16 };
    static uint8_t plain[MOST];
    size_t full = n;
    const uint8_t *text = body;
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)body, .avail_in = (uInt)n, .next_out = plain, .avail_out = MOST};
    if (mend_get(at + 8, 2) == 8 && inflateInit2(&z, -15) == Z_OK) {
        inflate(&z, Z_FINISH);
        full = z.total_out;
        text = plain;
        inflateEnd(&z);
    }
    mend_put(at + 14, crc32(0, text, (uInt)full), 4);
    mend_put(at + 18, n, 4);
    mend_put(at + 22, full, 4);
}

/* Make sizes and CRC of all members right, and write the directory of the members anew. */
FUZZED size_t mend_zip(uint8_t *data, size_t size, size_t max)
{
    enum { LOCAL = 30, CENTRAL = 46, END = 22, MEMBERS = 64 };
    size_t begin[MEMBERS], at = mend_next(data, 0, size), end = 0;
    int n = 0;
    while (n < MEMBERS && at + LOCAL < size && data[at + 2] == 3) {
        const size_t name = mend_get(data + at + 26, 2), extra = mend_get(data + at + 28, 2);
        const size_t next = mend_next(data, at + 4, size), body = at + LOCAL + name + extra;
        if (body > next)
            break;
        mend_put(data + at + 6, mend_get(data + at + 6, 2) & ~8u, 2); /* no sizes after the data */
        mend_member(data + at, data + body, next - body);
        begin[n++] = at;
        end = at = next;
    }
    uint8_t *made = malloc(max + CENTRAL + END + 1), *to = made;
    PROMISE(made != NULL, "out of memory");
    for (int k = 0; k < n; k++) {
        const uint8_t *from = data + begin[k];
        const size_t name = mend_get(from + 26, 2);
        if (end + (size_t)(to - made) + CENTRAL + name + END > max)
            break;
        memset(to, 0, CENTRAL);
        memcpy(to, "PK\1\2\24\0", 6);
        memcpy(to + 6, from + 4, 24);
        mend_put(to + 42, begin[k], 4);
        memcpy(to + CENTRAL, from + LOCAL, name);
        to += CENTRAL + name;
    }
    const size_t central = (size_t)(to - made);
    int entries = 0;
    for (const uint8_t *x = made; x < to; x += CENTRAL + mend_get(x + 28, 2))
        entries++;
    if (n > 0 && entries == n && end + central + END <= max) {
        memset(to, 0, END);
        memcpy(to, "PK\5\6", 4);
        mend_put(to + 8, (uint64_t)n, 2);
        mend_put(to + 10, (uint64_t)n, 2);
        mend_put(to + 12, central, 4);
        mend_put(to + 16, end, 4);
        memcpy(data + end, made, central + END);
        size = end + central + END;
    }
    free(made);
    return size;
}

#endif
