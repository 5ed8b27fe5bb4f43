/* processor/avx512.h -- vector operations of AVX-512 (F, BW, DQ, VL) in f32, for instruction sets built on it.
 * SPDX-License-Identifier: Apache-2.0 */

enum { VL = 16, MR = 6, NR = 64 }; /* 6 x 64 sums take 24 of the 32 registers; operands take 5 */
typedef __m512 vf;
#define vf_fma(a, b, c)             _mm512_fmadd_ps(a, b, c)
#define vf_set1(x)                  _mm512_set1_ps(x)
#define vf_load(p)                  _mm512_loadu_ps(p)
#define vf_load_some(p, n)          _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p)
#define vf_store(p, v)              _mm512_storeu_ps(p, v)
#define vu_wide(p)                  ((vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))))
#define vf_max(a, b)                _mm512_max_ps(a, b)
#define vf_larger(a, b)             ((vf)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#define vf_below(x, limit, yes, no) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), no, yes)
#define vf_product(x, limit, a, b)  _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), a, b)
#define vf_power(p, t, n, x, limit) _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), p, n)
#define vu_highs(x, y)                                                                                                 \
    ((vu)_mm512_mask_shuffle_epi8((__m512i)(y), 0x3333333333333333u, (__m512i)(x),                                     \
                                  _mm512_set4_epi32(0x80800f0e, 0x80800b0a, 0x80800706, 0x80800302)))
#define vu_wide_some(p, n) ((vu)_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)((1u << (n)) - 1), p)))
/* Subnormal f16 are converted correctly in any floating-point state. */
#define vf_f16(x)      _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)(x)))
#define vf_load_f16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define vf_sum(x)      _mm512_reduce_add_ps(x)
#define vf_max_lane(x) _mm512_reduce_max_ps(x)
#define vf_keep(x, keep)                                                                                               \
    _mm512_mask_blend_ps(_mm_test_epi8_mask(_mm_loadu_si128((const __m128i *)(const void *)(keep)), _mm_set1_epi8(1)), \
                         _mm512_set1_ps(-INFINITY), x)
#define vf_gather(p, index) _mm512_i32gather_ps(_mm512_loadu_si512(index), p, 4)
#define vf_lookup(p, index) _mm512_permutexvar_ps(_mm512_loadu_si512(index), _mm512_loadu_ps(p))
/* Pick lanes by index: index n < VL is lane n of a, VL + n is lane n of b. */
#define vf_pick(a, index, b)      _mm512_permutex2var_ps(a, (__m512i)(index), b)
#define vf_columns(from, gap, to) four_columns(from, gap, to)
/* Load 128 bits of each row, then interleave pairs, then groups of four. */
static inline void four_columns(const float *from, int64_t gap, __m512 *to)
{
    __m512 x[4], y[4];
    RPI_UNROLL
    for (int r = 0; r < 4; r++) {
        x[r] = _mm512_castps128_ps512(_mm_loadu_ps(from + r * gap));
        x[r] = _mm512_mask_broadcast_f32x4(x[r], 0x00f0, _mm_loadu_ps(from + (r + 4) * gap));
        x[r] = _mm512_mask_broadcast_f32x4(x[r], 0x0f00, _mm_loadu_ps(from + (r + 8) * gap));
        x[r] = _mm512_mask_broadcast_f32x4(x[r], 0xf000, _mm_loadu_ps(from + (r + 12) * gap));
    }
    RPI_UNROLL
    for (int r = 0; r < 4; r += 2) {
        y[r] = _mm512_unpacklo_ps(x[r], x[r + 1]);
        y[r + 1] = _mm512_unpackhi_ps(x[r], x[r + 1]);
    }
    RPI_UNROLL
    for (int r = 0; r < 2; r++) {
        to[2 * r] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(y[r]), _mm512_castps_pd(y[r + 2])));
        to[2 * r + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(y[r]), _mm512_castps_pd(y[r + 2])));
    }
}
