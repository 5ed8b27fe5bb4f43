/* blocks.c -- decodes numbers that are stored in blocks of 32 or 256 with f16 scales. The formulas and the order of
 * roundings are those of the Python package gguf. In the comments, q are small integers and d is the block's scale.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/blocks.h"

#include <string.h>

/* Convert an f16 number. */
static float half(const unsigned char *p)
{
    const uint32_t bits = (uint32_t)p[0] | (uint32_t)p[1] << 8, exponent = bits >> 10 & 31, rest = bits & 0x3ff;
    uint32_t wide = (bits & 0x8000) << 16 | rest << 13;
    float x;
    if (exponent == 0) /* zero or subnormal */
        return (bits & 0x8000 ? -0x1p-24f : 0x1p-24f) * (float)rest;
    wide |= exponent == 31 ? 0x7f800000 : (exponent + 112) << 23;
    memcpy(&x, &wide, sizeof x);
    return x;
}

/* Return number i of a part of 32 whose low halves of bytes come first. */
static int nibble(const unsigned char *q, int i)
{
    return q[i % 16] >> (i / 16 * 4) & 15;
}

static int bit(const unsigned char *bits, int i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

/* ------------------------------------------------------------------------------------------------ blocks of 32 */

static void q8_0(const unsigned char *b, int n, float *to) /* d q */
{
    const float d = half(b);
    (void)n;
    for (int i = 0; i < IO_PART; i++)
        to[i] = d * (float)(int8_t)b[2 + i];
}

static void q4_0(const unsigned char *b, int n, float *to) /* d (q - 8) */
{
    const float d = half(b);
    (void)n;
    for (int i = 0; i < IO_PART; i++)
        to[i] = d * (float)(nibble(b + 2, i) - 8);
}

static void q4_1(const unsigned char *b, int n, float *to) /* d q + m */
{
    const float d = half(b), m = half(b + 2);
    (void)n;
    for (int i = 0; i < IO_PART; i++)
        to[i] = d * (float)nibble(b + 4, i) + m;
}

static void q5_0(const unsigned char *b, int n, float *to) /* d (q - 16), the fifth bits apart */
{
    const float d = half(b);
    (void)n;
    for (int i = 0; i < IO_PART; i++)
        to[i] = d * (float)((nibble(b + 6, i) | bit(b + 2, i) << 4) - 16);
}

static void q5_1(const unsigned char *b, int n, float *to) /* d q + m */
{
    const float d = half(b), m = half(b + 2);
    (void)n;
    for (int i = 0; i < IO_PART; i++)
        to[i] = d * (float)(nibble(b + 8, i) | bit(b + 4, i) << 4) + m;
}

/* ------------------------------------------------------------------------------------------------ blocks of 256 */

/* Return two bits of number i of part n. A chunk of 32 bytes has these bits of four parts. */
static int pair(const unsigned char *q, int n, int i)
{
    return q[n / 4 * 32 + i] >> (n % 4 * 2) & 3;
}

static void q2_k(const unsigned char *b, int n, float *to) /* d s q - m t, with 4-bit s and t for 16 numbers */
{
    const float d = half(b + 80), m = half(b + 82);
    for (int i = 0; i < IO_PART; i++) {
        const int s = b[2 * n + i / 16];
        to[i] = d * (float)(s & 15) * (float)pair(b + 16, n, i) - m * (float)(s >> 4);
    }
}

static void q3_k(const unsigned char *b, int n, float *to) /* d (s - 32) q, with 6-bit s for 16 numbers */
{
    const unsigned char *scales = b + 96;
    const float d = half(b + 108);
    for (int i = 0; i < IO_PART; i++) {
        const int g = 2 * n + i / 16, low = scales[g % 8] >> (g / 8 * 4) & 15,
                  high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
        const int q = pair(b + 32, n, i) - (b[i] >> n & 1 ? 0 : 4);
        to[i] = d * (float)((low | high << 4) - 32) * (float)q;
    }
}

/* Read the 6-bit scale s and minimum t of part n. */
static void scale_min(const unsigned char *scales, int n, int *s, int *t)
{
    *s = n < 4 ? scales[n] & 63 : (scales[n + 4] & 15) | (scales[n - 4] >> 2 & 48);
    *t = n < 4 ? scales[n + 4] & 63 : scales[n + 4] >> 4 | (scales[n] >> 2 & 48);
}

static void q4_k(const unsigned char *b, int n, float *to) /* d s q - m t */
{
    const unsigned char *q = b + 16 + n / 2 * 32;
    int s, t;
    scale_min(b + 4, n, &s, &t);
    const float d = half(b) * (float)s, m = half(b + 2) * (float)t;
    for (int i = 0; i < IO_PART; i++)
        to[i] = d * (float)(q[i] >> (n % 2 * 4) & 15) - m;
}

static void q5_k(const unsigned char *b, int n, float *to) /* d s q - m t, the fifth bits apart */
{
    const unsigned char *q = b + 48 + n / 2 * 32;
    int s, t;
    scale_min(b + 4, n, &s, &t);
    const float d = half(b) * (float)s, m = half(b + 2) * (float)t;
    for (int i = 0; i < IO_PART; i++)
        to[i] = d * (float)((q[i] >> (n % 2 * 4) & 15) | (b[16 + i] >> n & 1) << 4) - m;
}

static void q6_k(const unsigned char *b, int n, float *to) /* d s (q - 32), with 8-bit s for 16 numbers */
{
    const unsigned char *low = b + n / 4 * 64 + n % 2 * 32;
    const float d = half(b + 208);
    for (int i = 0; i < IO_PART; i++) {
        const int q = (low[i] >> (n % 4 / 2 * 4) & 15) | pair(b + 128, n, i) << 4;
        to[i] = d * (float)(int8_t)b[192 + 2 * n + i / 16] * (float)(q - 32);
    }
}

const io_block_type *io_block_of(rp_dtype dtype)
{
    static const io_block_type types[] = {[IO_Q8_0 - IO_Q8_0] = {"Q8_0", 32, 34, 0, -1, q8_0},
                                          [IO_Q4_0 - IO_Q8_0] = {"Q4_0", 32, 18, 0, -1, q4_0},
                                          [IO_Q4_1 - IO_Q8_0] = {"Q4_1", 32, 20, 0, 2, q4_1},
                                          [IO_Q5_0 - IO_Q8_0] = {"Q5_0", 32, 22, 0, -1, q5_0},
                                          [IO_Q5_1 - IO_Q8_0] = {"Q5_1", 32, 24, 0, 2, q5_1},
                                          [IO_Q2_K - IO_Q8_0] = {"Q2_K", 256, 84, 80, 82, q2_k},
                                          [IO_Q3_K - IO_Q8_0] = {"Q3_K", 256, 110, 108, -1, q3_k},
                                          [IO_Q4_K - IO_Q8_0] = {"Q4_K", 256, 144, 0, 2, q4_k},
                                          [IO_Q5_K - IO_Q8_0] = {"Q5_K", 256, 176, 0, 2, q5_k},
                                          [IO_Q6_K - IO_Q8_0] = {"Q6_K", 256, 210, 208, -1, q6_k}};
    const int n = (int)dtype - IO_Q8_0;
    return n >= 0 && n < IO_BLOCKS_END - IO_Q8_0 ? &types[n] : NULL;
}
