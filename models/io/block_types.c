/* block_types.c -- the types of blocks, and their conversion to f32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/block_types.h"
#include <string.h>

/* Parameters of linear/split.h for single words. */
typedef uint32_t vu;
typedef int32_t vi;
typedef float vf;

static inline vu load_word(const char *p)
{
    vu x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline vf float_of(vu x)
{
    vf y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline vu bits_of(vf x)
{
    vu y;
    memcpy(&y, &x, sizeof y);
    return y;
}

#define vf_of_vi(x) ((vf)(x))
#define SPLIT_STEP  4
#define SPLIT_UNROLL
#define SPLIT_LOAD(p)     load_word(p)
#define SPLIT_STORE(p, x) memcpy(p, &x, 4)
#define SPLIT_FLOAT(x)    float_of(x)
#define SPLIT_BITS(x)     bits_of(x)
#include "linear/split.h"

static void read_block(const linear_blocks *b, const unsigned char *block, float *to)
{
    char words[LINEAR_BLOCK_BYTES] = {0};
    uint8_t q[LINEAR_BLOCK];
    float scale[LINEAR_BLOCK / LINEAR_SHARED], offset[LINEAR_BLOCK / LINEAR_SHARED] = {0};
    memcpy(words + b->lead, block, (size_t)b->bytes);
    split_blocks(&(split){words, (char *)q, (char *)scale, (char *)offset, 4}, b->kind);
    for (int64_t i = 0; i < b->numbers; i++)
        to[i] = b->zero > 0 ? scale[i / b->group] * (float)(q[i] - b->zero)
                            : scale[i / b->group] * (float)q[i] + offset[i / b->group];
}

void io_blocks_read(const linear_blocks *b, const unsigned char *blocks, int64_t first, int64_t n, float *to)
{
    float numbers[LINEAR_BLOCK];
    for (int64_t k = 0; k < n;) {
        const int64_t at = (first + k) % b->numbers, many = n - k < b->numbers - at ? n - k : b->numbers - at;
        read_block(b, blocks + (first + k) / b->numbers * b->bytes, numbers);
        memcpy(to + k, numbers + at, (size_t)many * sizeof *to);
        k += many;
    }
}

const linear_blocks *io_block_of(rp_dtype dtype)
{
    static const linear_blocks types[LINEAR_KINDS] = {
        {"Q8_0", LINEAR_Q8_0, 32, 34, 0, -1, 128, 255, 32, 2, read_block},
        {"Q4_0", LINEAR_Q4_0, 32, 18, 0, -1, 8, 15, 32, 2, read_block},
        {"Q4_1", LINEAR_Q4_1, 32, 20, 0, 2, 0, 15, 32, 0, read_block},
        {"Q5_0", LINEAR_Q5_0, 32, 22, 0, -1, 16, 31, 32, 2, read_block},
        {"Q5_1", LINEAR_Q5_1, 32, 24, 0, 2, 0, 31, 32, 0, read_block},
        {"Q2_K", LINEAR_Q2_K, 256, 84, 80, 82, 0, 3, 16, 0, read_block},
        {"Q3_K", LINEAR_Q3_K, 256, 110, 108, -1, 4, 7, 16, 0, read_block},
        {"Q4_K", LINEAR_Q4_K, 256, 144, 0, 2, 0, 15, 32, 0, read_block},
        {"Q5_K", LINEAR_Q5_K, 256, 176, 0, 2, 0, 31, 32, 0, read_block},
        {"Q6_K", LINEAR_Q6_K, 256, 210, 208, -1, 32, 63, 16, 0, read_block}};
    const int n = (int)dtype - IO_Q8_0;
    return n >= 0 && n < LINEAR_KINDS ? &types[n] : NULL;
}
