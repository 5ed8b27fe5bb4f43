/* integer_vector_ops.h -- vector operations for integer products, written with compiler vectors, for instruction sets
 * that do not define them. Each 32-bit lane sums the products of four weights and four inputs. Included after
 * processor/vector_ops.h.
 *
 *   w8, x8   four weights of each output; four inputs, equal in all lanes. W8_DOT(sum, w, x) adds their products. A
 *            stored input takes X8_BYTES bytes; with X8_UNSIGNED it is a byte with 128 added
 *   w4, x4   the same for weights from 0 to 15. Sums have the type s4, which can hold the sum of a group (8 products of
 *            four)
 *   wq       four weights of each output in q8, for inputs x4. WQ_DOT(sum, w, x) adds to 32-bit sums. With Q8_UNSIGNED,
 *            the weights are used as they are stored, with 128 added */
#ifndef LINEAR_ISA
#include "linear/kernels/editor.h" /* lets an editor parse this file on its own */
#endif

typedef int16_t vh __attribute__((vector_size(4 * VL), may_alias)); /* two 16-bit integers in each 32-bit lane */
typedef uint16_t vuh __attribute__((vector_size(4 * VL), may_alias));

#ifndef vi_set1
static inline vi vi_set1(const void *four_bytes)
{
    int32_t x;
    memcpy(&x, four_bytes, sizeof x);
    return (vi){0} + x;
}
#endif

#ifndef vi_load
#define vi_load(p) vf_bits(p)
#endif
#ifndef vi_store
#define vi_store(p, v) vf_store((float *)(p), (vf)(v))
#endif
#ifndef vf_of_vi
#define vf_of_vi(x) __builtin_convertvector(x, vf)
#endif
#ifndef vi_store_bytes
static inline void vi_store_bytes(void *to, vi x) /* store the low byte of each lane */
{
    for (int c = 0; c < VL; c++)
        ((int8_t *)to)[c] = (int8_t)x[c];
}
#endif
#ifndef vi_rounded /* the nearest integers, ties to even, in the low byte of each lane */
#define vi_rounded(x) ((vi)((x) + vf_set1(0x1.8p23f)))
#endif
#ifndef vi_store_four /* store the bytes of four vectors of vi_rounded, xor the bytes of `flip` */
static inline void vi_store_four(void *to, const vi *x, int32_t flip)
{
    for (int c = 0; c < 4; c++)
        vi_store_bytes((char *)to + c * VL, x[c] ^ flip);
}
#endif
#ifndef vi_largest
static inline int32_t vi_largest(vi x)
{
    int32_t most = x[0];
    for (int c = 1; c < VL; c++)
        most = x[c] > most ? x[c] : most;
    return most;
}
#endif
#ifndef vi_total
static inline int32_t vi_total(vi x)
{
    int32_t sum = 0;
    for (int c = 0; c < VL; c++)
        sum += x[c];
    return sum;
}
#endif
#ifndef vi_madd /* add the two 16-bit products of each lane */
static inline vi vi_madd(vi a, vi b)
{
    const vh p = (vh)a * (vh)b; /* no overflow: here each product is below 2^15 */
    return (((vi)p << 16) >> 16) + ((vi)p >> 16);
}
#endif

#ifndef X8_BYTES
#define X8_BYTES    2 /* inputs 0, 2, 1, 3 as 16-bit integers, in this order */
#define X8_UNSIGNED 0
typedef struct w8 {
    vi even, odd;
} w8;
typedef w8 x8;

static inline w8 w8_of(vi four)
{
    const vh w = (vh)four;
    return (w8){(vi)((vh)((vuh)w << 8) >> 8), (vi)(w >> 8)};
}
#define w8_load(p) w8_of(vi_load(p))

static inline x8 x8_load(const char *p)
{
    return (x8){vi_set1(p), vi_set1(p + 4)};
}
#define W8_DOT(sum, w, x) ((sum) + vi_madd((w).even, (x).even) + vi_madd((w).odd, (x).odd))
#endif

#ifndef W4_DOT
typedef vh s4; /* holds 8 * 2 products of at most 15 * 127 */
typedef vi w4;
typedef struct x4 {
    vi even, odd;
} x4;

static inline x4 x4_load(const char *p)
{
    const vh x = (vh)vi_set1(p);
    return (x4){(vi)((vh)((vuh)x << 8) >> 8), (vi)(x >> 8)};
}
#define W4_DOT(sum, w, x) ((sum) + ((vh)(w)&0xff) * (vh)(x).even + (vh)((vuh)(w) >> 8) * (vh)(x).odd)
static inline vi s4_sum(s4 sum)
{
    return (((vi)sum << 16) >> 16) + ((vi)sum >> 16);
}
#endif
#ifndef W4_ADD
#define W4_ADD(sum, w, x) W4_DOT(sum, w, x)
#endif
#define W4_LOW(w)  ((w)&0x0f0f0f0f)
#define W4_HIGH(w) ((vi)((vu)(w) >> 4) & 0x0f0f0f0f)

#ifndef Q8_UNSIGNED
#define Q8_UNSIGNED 0
#endif
#define Q8_SIGN (int32_t)0x80808080 /* w ^ Q8_SIGN are signed weights of q8 */
#if !defined(WQ_DOT) && !defined(LINEAR_AMX) && X8_BYTES == 2
typedef w8 wq;
#define wq_load(p)        w8_of(vi_load(p) ^ Q8_SIGN)
#define WQ_DOT(sum, w, x) W8_DOT(sum, w, x)
#endif
