/* processor/vector_ops.h -- default definitions, in compiler vectors, of the vector operations that the instruction set
 * does not define. Include it once per instruction set, after VL (elements of a vector), MR x NR (rows and columns of a
 * register tile) and vf are defined.
 *
 * vf is a vector type; + - * / work lane by lane. To add a product, write vf_fma, so that the bits of a row do not
 * depend on which operations the compiler fuses.
 * SPDX-License-Identifier: Apache-2.0 */

#if RPI_F64
typedef double real;
typedef int64_t real_bits;
typedef int64_t vi __attribute__((vector_size(8 * VL), may_alias));
typedef uint64_t vu __attribute__((vector_size(8 * VL), may_alias));
typedef double vf_loose __attribute__((vector_size(8 * VL), aligned(8), may_alias)); /* may be unaligned */
#define REAL_MAX    DBL_MAX
#define REAL_TINY   DBL_MIN
#define rotate_pair rpi_rotate
#define turn_pair   rpi_turn
#else
typedef float real;
typedef int32_t real_bits;
typedef int32_t vi __attribute__((vector_size(4 * VL), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * VL), may_alias));
typedef float vf_loose __attribute__((vector_size(4 * VL), aligned(4), may_alias));
#define REAL_MAX    FLT_MAX
#define REAL_TINY   FLT_MIN
#define rotate_pair rpi_rotate_f32
#define turn_pair   rpi_turn_f32
#endif

#ifndef RPI_AMX
#define RPI_AMX 0 /* 1: products use AMX tiles (kernels/amx) */
#endif

#define vf_bits(p) (*(const vi *)__builtin_memcpy(&(vi){0}, p, sizeof(vi)))
#ifndef vf_load
#define vf_load(p) ((vf) * (const vf_loose *)(p))
#endif
#ifndef vf_load_some
/* Load n elements (1 to VL) and read nothing past them. Set the other lanes to 0. */
static inline vf vf_load_some(const real *p, int64_t n)
{
    real lane[VL] = {0};
    if (n == VL)
        return vf_load(p);
    __builtin_memcpy(lane, p, (size_t)n * sizeof *p);
    return vf_load(lane);
}
#endif
#ifndef vf_store
#define vf_store(p, v) ((void)(*(vf_loose *)(p) = (vf_loose)(v)))
#endif
#ifndef vf_set1
static inline vf vf_set1(real x)
{
    return (vf){0} + x;
}
#endif
#ifndef vf_fma
#define vf_fma(a, b, c) ((a) * (b) + (c)) /* rounds twice */
#endif
#ifndef vf_max
static inline vf vf_max(vf a, vf b) /* b if either is NaN */
{
    vi m = (vi)(a > b);
    return (vf)((m & (vi)a) | (~m & (vi)b));
}
#endif
#ifndef vf_larger
static inline vf vf_larger(vf a, vf b) /* the larger of two values >= 0; NaN is larger than any value */
{
    vi m = (vi)((vi)a > (vi)b);
    return (vf)((m & (vi)a) | (~m & (vi)b));
}
#endif
#ifndef vf_below
static inline vf vf_below(vf x, vf limit, vf yes, vf no) /* x < limit ? yes : no; NaN is not below */
{
    vi m = (vi)(x < limit);
    return (vf)((m & (vi)yes) | (~m & (vi)no));
}
#endif
#ifndef vf_product
static inline vf vf_product(vf x, vf limit, vf a, vf b) /* x < limit ? 0 : a b; NaN is not below */
{
    return vf_below(x, limit, vf_set1(0), a * b);
}
#endif
#ifndef vf_keep
static inline vf vf_keep(vf x, const uint8_t *keep) /* x where keep is not 0, else -infinity */
{
    real lane[VL];
    vf_store(lane, x);
    for (int c = 0; c < VL; c++)
        lane[c] = keep[c] ? lane[c] : -INFINITY;
    return vf_load(lane);
}
#endif
#ifndef vf_gather
static inline vf vf_gather(const real *from, const int32_t *index)
{
    real lane[VL];
    for (int c = 0; c < VL; c++)
        lane[c] = from[index[c]];
    return vf_load(lane);
}
#endif
#ifndef vf_lookup
#define vf_lookup(from, index) vf_gather(from, index) /* like vf_gather, with indices below VL; from has VL elements */
#endif
/* 1: the instruction set can transpose registers, which is faster than reading element by element. */
#if defined(vf_transpose) || defined(vf_pick)
#define RPI_TRANSPOSES 1
#else
#define RPI_TRANSPOSES 0
#endif
#ifndef vf_transpose
static inline void vf_transpose(vf *x) /* swap lane c of x[r] with lane r of x[c] */
{
#ifdef vf_pick
    vi lane;
    RPI_UNROLL
    for (int c = 0; c < VL; c++)
        lane[c] = c;
    RPI_UNROLL
    for (int step = VL / 2; step > 0; step /= 2) {
        const vi low = lane + ((vi)((lane & step) != 0) & (VL - step)), high = low + step;
        RPI_UNROLL
        for (int r = 0; r < VL; r++)
            if (!(r & step)) {
                const vf a = x[r], b = x[r + step];
                x[r] = vf_pick(a, low, b);
                x[r + step] = vf_pick(a, high, b);
            }
    }
#else
    real lane[VL][VL];
    for (int r = 0; r < VL; r++)
        for (int c = 0; c < VL; c++)
            lane[c][r] = x[r][c];
    for (int c = 0; c < VL; c++)
        x[c] = vf_load(lane[c]);
#endif
}
#endif
#ifndef vf_sum
static inline real vf_sum(vf x) /* sum of the lanes in a fixed order: add the halves until one lane is left */
{
    real lane[VL];
    vf_store(lane, x);
    for (int half = VL / 2; half > 0; half /= 2)
        for (int c = 0; c < half; c++)
            lane[c] += lane[c + half];
    return lane[0];
}
#endif
#ifndef vf_max_lane
static inline real vf_max_lane(vf x) /* the largest lane; NaN may be ignored */
{
    real lane[VL];
    vf_store(lane, x);
    for (int half = VL / 2; half > 0; half /= 2)
        for (int c = 0; c < half; c++)
            lane[c] = lane[c + half] > lane[c] ? lane[c + half] : lane[c];
    return lane[0];
}
#endif

#ifndef vf_pairs
#define vf_pairs(x, y, sum) vf_fma(x, y, sum) /* placeholder: without the instruction, kernels do not use pairs */
#endif

#if RPI_F64
static inline vf vf_abs(vf x)
{
    return (vf)((vi)x & INT64_MAX);
}

/* Compute exp(x) for x <= 700 like the f32 version below, but with a Taylor series up to r^13. Its remainder is below
 * 2e-17 for |r| <= ln 2 / 2. */
static inline vf vf_exp(vf x)
{
    static const double over[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                                  1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                                  1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5};
    const vf magic = vf_set1(0x1.8p52);
    const vf t = vf_fma(x, vf_set1(0x1.71547652b82fep0), magic);
    const vf n = t - magic;
    const vf r = vf_fma(n, vf_set1(-1.90821492927058770002e-10), vf_fma(n, vf_set1(-6.93147180369123816490e-01), x));
    vf p = vf_set1(over[0]);
    RPI_UNROLL
    for (int c = 1; c < 12; c++)
        p = vf_fma(p, r, vf_set1(over[c]));
    p = vf_fma(p, r * r, r) + vf_set1(1);
    const vf power = (vf)(((vu)t << 52) + ((uint64_t)1023 << 52));
    return vf_product(x, vf_set1(-0x1.6232bdd7abcd2p9), p, power); /* ln 2^-1022 */
}

/* Replace `count` vectors by their exp. */
static inline void vf_exps(int count, vf *x)
{
    for (int c = 0; c < count; c++)
        x[c] = vf_exp(x[c]);
}

static inline vf vf_tanh(vf x)
{
    double lane[VL];
    vf_store(lane, x);
    for (int c = 0; c < VL; c++)
        lane[c] = tanh(lane[c]);
    return vf_load(lane);
}
#else
/* Coefficients of minimax polynomials. Each was rounded to f32 before the next was computed. */
#define EXP_P0  0.4999999403953552f
#define EXP_P1  0.1666652113199234f
#define EXP_P2  0.04166838899254799f
#define EXP_P3  0.00836874544620514f
#define EXP_P4  0.0013814539415761828f
#define TANH_P0 -0.3333328068256378f
#define TANH_P1 0.13331441581249237f
#define TANH_P2 -0.05373971536755562f
#define TANH_P3 0.0206390880048275f
#define TANH_P4 -0.005704987328499556f

static inline vf vf_abs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}

#ifndef vf_power
/* x < limit ? 0 : p * 2^n for an integer n. The low bits of t are n + 127. NaN is not below. */
#define vf_power(p, t, n, x, limit) ((void)(n), vf_product(x, limit, p, (vf)((vu)(t) << 23)))
#endif
#ifndef vu_wide
static inline vu vu_wide(const uint16_t *from)
{
    int32_t lane[VL];
    for (int c = 0; c < VL; c++)
        lane[c] = from[c];
    return (vu)vf_bits(lane);
}
#endif
#ifndef vu_wide_some
/* Load and widen n elements (1 to VL) and read nothing past them. Set the other lanes to 0. */
static inline vu vu_wide_some(const uint16_t *from, int64_t n)
{
    uint16_t lane[VL] = {0};
    if (n == VL)
        return vu_wide(from);
    __builtin_memcpy(lane, from, (size_t)n * sizeof *from);
    return vu_wide(lane);
}
#endif
#ifndef vf_f16
/* Convert the f16 in the lower halves of x exactly; the upper halves must be 0. Subnormal f16 are converted as
 * integers, because kernels flush magnitudes below 2^-126 to zero. */
static inline vf vf_f16(vu x)
{
    const vu none = {0}, exponent = x & 0x7c00, size = ((x & 0x7fff) << 13) + (none + (112u << 23));
    const vf small = ((vf)((x & 0x3ff) | (none + 0x4b000000u)) - vf_set1(0x1p23f)) * vf_set1(0x1p-24f);
    const vu normal = size + ((vu)(exponent == 0x7c00) & (112u << 23)); /* correct for infinity and NaN too */
    const vu zero = (vu)(exponent == 0);
    return (vf)((x & 0x8000) << 16 | (zero & (vu)small) | (~zero & normal));
}
#endif
#ifndef vf_load_f16
#define vf_load_f16(p) vf_f16(vu_wide(p)) /* loads VL elements */
#endif
#ifndef vu_highs
/* In each element, combine the upper halves of x and y: that of x moves to the lower half, that of y stays. */
#define vu_highs(x, y) ((vu)(x) >> 16 | ((vu)(y) & ((vu){0} + 0xffff0000u)))
#endif

/* Compute exp(x) for x <= 88. x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) is approximated by the polynomial
 * 1 + r (1 + r p(r)) of degree 6, whose relative error is 4e-9 before rounding. ln 2 is the sum of two constants, and n
 * times the first is exact. The result is 0 for x below ln 2^-126; such a weight is far below the rounding error of a
 * row sum of at least 1. -infinity gives 0, NaN gives NaN.
 *
 * vf_exps replaces one or two vectors by their exp, step by step for both, so that one does not wait for the other. */
static inline __attribute__((always_inline)) void vf_exps(int count, vf *x)
{
    const vf magic = vf_set1(0x1.8p23f + 127); /* low bits of x / ln 2 + magic: n + 127, the exponent of 2^n */
    vf t[2], n[2], r[2], p[2];
#define EACH                                                                                                           \
    RPI_UNROLL                                                                                                         \
    for (int c = 0; c < count; c++)
    EACH t[c] = vf_fma(x[c], vf_set1(0x1.715476p0f), magic);
    EACH n[c] = t[c] - magic;
    EACH r[c] = vf_fma(n[c], vf_set1(-0.693359375f), x[c]);
    EACH r[c] = vf_fma(n[c], vf_set1(2.12194440e-4f), r[c]);
    EACH p[c] = vf_fma(vf_set1(EXP_P4), r[c], vf_set1(EXP_P3));
    EACH p[c] = vf_fma(p[c], r[c], vf_set1(EXP_P2));
    EACH p[c] = vf_fma(p[c], r[c], vf_set1(EXP_P1));
    EACH p[c] = vf_fma(p[c], r[c], vf_set1(EXP_P0));
    EACH p[c] = vf_fma(p[c], r[c], vf_set1(1));
    EACH p[c] = vf_fma(p[c], r[c], vf_set1(1));
    EACH x[c] = vf_power(p[c], t[c], n[c], x[c], vf_set1(-0x1.5d589ep6f));
#undef EACH
}

static inline vf vf_exp(vf x)
{
    vf_exps(1, &x);
    return x;
}

/* Compute tanh(x): x + x^3 p(x^2) below 0.625, else 1 - 2 / (exp(2|x|) + 1) with the sign of x. NaN gives NaN. */
static inline vf vf_tanh(vf x)
{
    const vf a = vf_abs(x), ten = vf_set1(10.0f), z = x * x; /* tanh(10) rounds to 1 */
    const vf e = vf_exp(vf_below(ten, a, ten, a) * vf_set1(2.0f));
    const vf big = vf_set1(1.0f) - vf_set1(2.0f) / (e + vf_set1(1.0f));
    vf p = vf_set1(TANH_P4);
    p = vf_fma(p, z, vf_set1(TANH_P3));
    p = vf_fma(p, z, vf_set1(TANH_P2));
    p = vf_fma(p, z, vf_set1(TANH_P1));
    p = vf_fma(p, z, vf_set1(TANH_P0));
    p = vf_fma(p * z, x, x);
    return vf_below(a, vf_set1(0.625f), p, (vf)(((vu)x & 0x80000000u) | (vu)big));
}
#endif
