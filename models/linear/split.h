/* split.h -- unpacks blocks into integers, scales and offsets: the first half of dequantizing them. io/block_types.c
 * does the second half and computes the numbers. kernels/blocks.h never computes them: it multiplies the integers, and
 * applies scales and offsets to the sums. A template: the words of one block, or of several blocks side by side in the
 * lanes of vectors. The formulas and the order of roundings are those of the Python package gguf. In the comments, q
 * are the integers and d is the block's scale.
 *
 * Parameters: vu, vi, vf: 32-bit lanes, or numbers; SPLIT_LOAD(p) reads a vu, SPLIT_STORE(p, x) writes a vu or vf;
 * SPLIT_FLOAT(x) and SPLIT_BITS(x) take the bits of a vu as vf and back; vf_of_vi(x) converts a vi; SPLIT_STEP is the
 * number of bytes from word to word; SPLIT_UNROLL comes before short loops.
 * SPDX-License-Identifier: Apache-2.0 */

/* Words of blocks; where to store lines (4 integers in a word), scales and offsets, `step` bytes from each to the
 * next. */
typedef struct split {
    const char *words;
    char *lines, *scales, *offsets;
    int64_t step;
} split;

static inline vu split_word(const split *s, int k)
{
    return SPLIT_LOAD(s->words + k * SPLIT_STEP);
}

static inline void split_line(const split *s, int k, vu x)
{
    SPLIT_STORE(s->lines + k * s->step, x);
}

/* Return some bits of each byte: byte >> from & mask. */
static inline vu split_bits(vu x, int from, uint32_t mask)
{
    return x >> from & mask * 0x01010101u;
}

/* Return byte k of the words from word `first` on. */
static inline vu split_byte(const split *s, int first, int k)
{
    return split_word(s, first + k / 4) >> k % 4 * 8 & 255;
}

/* Convert f16 numbers. */
static inline vf split_half(vu x)
{
    const vu exponent = x >> 10 & 31, normal = (exponent + 31) >> 5, infinite = (exponent + 1) >> 5;
    const vu size = (x & 0x3ff) | normal << 10, sign = (x & 0x8000) << 16;
    const vf number = vf_of_vi((vi)size) * SPLIT_FLOAT((exponent + (103 - normal)) << 23);
    return SPLIT_FLOAT(SPLIT_BITS(number) | sign | ((0 - infinite) & 0x7f800000));
}

static inline vf split_low(vu x)
{
    return split_half(x & 0xffff);
}

static inline void split_scale(const split *s, int g, vf scale)
{
    SPLIT_STORE(s->scales + g * s->step, scale);
}

static inline void split_offset(const split *s, int g, vf offset)
{
    SPLIT_STORE(s->offsets + g * s->step, offset);
}

/* ------------------------------------------------------------------------------------------------ blocks of 32 */

/* 16 bytes: the low halves are the first 16 integers. The bits of `fifths` are added to them. */
static inline void split_halves(const split *s, int first, vu fifths)
{
    SPLIT_UNROLL
    for (int k = 0; k < 8; k++) {
        const vu four = fifths >> 4 * k & 15; /* the product moves bit n to bit 8 n */
        split_line(s, k,
                   split_bits(split_word(s, first + k % 4), k / 4 * 4, 15) | (four * 0x00204081u & 0x01010101u) << 4);
    }
}

static inline void split_q8_0(const split *s) /* d q, q is signed */
{
    split_scale(s, 0, split_half(split_word(s, 0) >> 16));
    SPLIT_UNROLL
    for (int k = 0; k < 8; k++)
        split_line(s, k, split_word(s, 1 + k) ^ 0x80808080u);
}

static inline void split_q4_0(const split *s) /* d (q - 8) */
{
    split_scale(s, 0, split_half(split_word(s, 0) >> 16));
    split_halves(s, 1, split_word(s, 0) & 0);
}

static inline void split_q4_1(const split *s) /* d q + m */
{
    split_scale(s, 0, split_low(split_word(s, 0)));
    split_offset(s, 0, split_half(split_word(s, 0) >> 16));
    split_halves(s, 1, split_word(s, 0) & 0);
}

static inline void split_q5_0(const split *s) /* d (q - 16) */
{
    split_scale(s, 0, split_half(split_word(s, 0) >> 16));
    split_halves(s, 2, split_word(s, 1));
}

static inline void split_q5_1(const split *s) /* d q + m */
{
    split_scale(s, 0, split_low(split_word(s, 0)));
    split_offset(s, 0, split_half(split_word(s, 0) >> 16));
    split_halves(s, 2, split_word(s, 1));
}

/* ------------------------------------------------------------------------------------------------ blocks of 256 */

/* Bits of the integers of part n, 32 integers: the word where they begin, and their place in each byte. */
typedef struct split_plane {
    int word, from;
    uint32_t mask;
} split_plane;

static inline vu split_of(const split *s, split_plane p, int k)
{
    return split_bits(split_word(s, p.word + k), p.from, p.mask);
}

static inline void split_part(const split *s, int n, split_plane low)
{
    SPLIT_UNROLL
    for (int k = 0; k < 8; k++)
        split_line(s, 8 * n + k, split_of(s, low, k));
}

/* The bits of `high` follow those of `low`, `up` bits higher. */
static inline void split_part_of_two(const split *s, int n, split_plane low, split_plane high, int up)
{
    SPLIT_UNROLL
    for (int k = 0; k < 8; k++)
        split_line(s, 8 * n + k, split_of(s, low, k) | split_of(s, high, k) << up);
}

enum { SPLIT_PARTS = 8, SPLIT_GROUPS = 16 };

static inline void split_q2_k(const split *s) /* d s q - m t, with 4-bit s and t for 16 numbers */
{
    const vf d = split_low(split_word(s, 20)), m = split_half(split_word(s, 20) >> 16);
    for (int g = 0; g < SPLIT_GROUPS; g++) {
        const vu x = split_byte(s, 0, g);
        split_scale(s, g, d * vf_of_vi((vi)(x & 15)));
        split_offset(s, g, -(m * vf_of_vi((vi)(x >> 4))));
    }
    for (int n = 0; n < SPLIT_PARTS; n++)
        split_part(s, n, (split_plane){4 + n / 4 * 8, n % 4 * 2, 3});
}

static inline void split_q3_k(const split *s) /* d (s - 32) (q - 4), with 6-bit s for 16 numbers */
{
    const vf d = split_low(split_word(s, 27));
    for (int g = 0; g < SPLIT_GROUPS; g++) {
        const vu low = split_byte(s, 24, g % 8) >> g / 8 * 4 & 15, high = split_byte(s, 26, g % 4) >> g / 4 * 2 & 3;
        split_scale(s, g, d * vf_of_vi((vi)(low | high << 4) - 32));
    }
    for (int n = 0; n < SPLIT_PARTS; n++)
        split_part_of_two(s, n, (split_plane){8 + n / 4 * 8, n % 4 * 2, 3}, (split_plane){0, n, 1}, 2);
}

/* The 6-bit scales s and minima t of Q4_K and Q5_K. */
static inline void split_scales_k(const split *s)
{
    const vf d = split_low(split_word(s, 0)), m = split_half(split_word(s, 0) >> 16);
    const vu a = split_word(s, 1), b = split_word(s, 2), c = split_word(s, 3);
    for (int g = 0; g < SPLIT_PARTS / 2; g++) {
        const vu high_s = a >> 8 * g >> 2 & 48, high_t = b >> 8 * g >> 2 & 48;
        split_scale(s, g, d * vf_of_vi((vi)(a >> 8 * g & 63)));
        split_offset(s, g, -(m * vf_of_vi((vi)(b >> 8 * g & 63))));
        split_scale(s, g + 4, d * vf_of_vi((vi)((c >> 8 * g & 15) | high_s)));
        split_offset(s, g + 4, -(m * vf_of_vi((vi)((c >> 8 * g >> 4 & 15) | high_t))));
    }
}

static inline void split_q4_k(const split *s) /* d s q - m t */
{
    split_scales_k(s);
    for (int n = 0; n < SPLIT_PARTS; n++)
        split_part(s, n, (split_plane){4 + n / 2 * 8, n % 2 * 4, 15});
}

static inline void split_q5_k(const split *s) /* d s q - m t, the fifth bits apart */
{
    split_scales_k(s);
    for (int n = 0; n < SPLIT_PARTS; n++)
        split_part_of_two(s, n, (split_plane){12 + n / 2 * 8, n % 2 * 4, 15}, (split_plane){4, n, 1}, 4);
}

static inline void split_q6_k(const split *s) /* d s (q - 32), with 8-bit s for 16 numbers */
{
    const vf d = split_low(split_word(s, 52));
    for (int g = 0; g < SPLIT_GROUPS; g++) /* s is signed */
        split_scale(s, g, d * vf_of_vi((vi)(split_byte(s, 48, g) ^ 128) - 128));
    for (int n = 0; n < SPLIT_PARTS; n++)
        split_part_of_two(s, n, (split_plane){n / 4 * 16 + n % 2 * 8, n % 4 / 2 * 4, 15},
                          (split_plane){32 + n / 4 * 8, n % 4 * 2, 3}, 4);
}

static void split_blocks(const split *s, linear_kind kind)
{
    switch (kind) {
    case LINEAR_Q8_0: split_q8_0(s); break;
    case LINEAR_Q4_0: split_q4_0(s); break;
    case LINEAR_Q4_1: split_q4_1(s); break;
    case LINEAR_Q5_0: split_q5_0(s); break;
    case LINEAR_Q5_1: split_q5_1(s); break;
    case LINEAR_Q2_K: split_q2_k(s); break;
    case LINEAR_Q3_K: split_q3_k(s); break;
    case LINEAR_Q4_K: split_q4_k(s); break;
    case LINEAR_Q5_K: split_q5_k(s); break;
    case LINEAR_Q6_K: split_q6_k(s); break;
    case LINEAR_KINDS: break;
    }
}
