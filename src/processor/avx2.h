/* processor/avx2.h -- vector operations of AVX2 (with FMA and F16C) in f32, for instruction sets built on it.
 * SPDX-License-Identifier: Apache-2.0 */

enum { VL = 8, MR = 6, NR = 16 }; /* 6 x 16 sums take 12 of the 16 registers; operands take the rest */
typedef __m256 vf;
#define vf_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vf_set1(x)      _mm256_set1_ps(x)
#define vf_load(p)      _mm256_loadu_ps(p)
#define vf_store(p, v)  _mm256_storeu_ps(p, v)
#define vu_wide(p)      ((vu)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define vf_f16(x)                                                                                                      \
    _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128((__m256i)(x)), _mm256_extracti128_si256((__m256i)(x), 1)))
#define vf_load_f16(p)              _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vf_max(a, b)                _mm256_max_ps(a, b)
#define vf_larger(a, b)             ((vf)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#define vf_below(x, limit, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, limit, _CMP_LT_OQ))
#define vf_product(x, limit, a, b)  _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_NLT_UQ), (a) * (b))
#define vf_lookup(p, index)                                                                                            \
    _mm256_permutevar8x32_ps(_mm256_loadu_ps(p), _mm256_loadu_si256((const __m256i *)(const void *)(index)))
#define vf_sum(x)      sum_lanes(x)
#define vf_max_lane(x) max_lane(x)

static inline float sum_lanes(__m256 x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

static inline float max_lane(__m256 x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
#define vf_keep(x, keep)                                                                                               \
    _mm256_blendv_ps(                                                                                                  \
        _mm256_set1_ps(-INFINITY), x,                                                                                  \
        _mm256_castsi256_ps(_mm256_cmpgt_epi32(                                                                        \
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(keep))), _mm256_setzero_si256())))
#define vf_transpose(x) transpose(x)
static inline void transpose(__m256 *x) /* pairs of rows, then groups of four, then halves */
{
    __m256 y[8];
    RPI_UNROLL
    for (int r = 0; r < 8; r += 2) {
        y[r] = _mm256_unpacklo_ps(x[r], x[r + 1]);
        y[r + 1] = _mm256_unpackhi_ps(x[r], x[r + 1]);
    }
    RPI_UNROLL
    for (int r = 0; r < 8; r++) {
        const __m256 a = y[r / 4 * 4 + r % 4 / 2], b = y[r / 4 * 4 + r % 4 / 2 + 2];
        x[r] = r % 2 ? _mm256_shuffle_ps(a, b, 0xee) : _mm256_shuffle_ps(a, b, 0x44);
    }
    RPI_UNROLL
    for (int r = 0; r < 4; r++) {
        const __m256 a = x[r], b = x[r + 4];
        x[r] = _mm256_permute2f128_ps(a, b, 0x20);
        x[r + 4] = _mm256_permute2f128_ps(a, b, 0x31);
    }
}
#define vf_columns(from, gap, to) four_columns(from, gap, to)
/* Load 128 bits of each row, then interleave pairs, then groups of four. */
static inline void four_columns(const float *from, int64_t gap, __m256 *to)
{
    __m256 x[4], y[4];
    RPI_UNROLL
    for (int r = 0; r < 4; r++)
        x[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + r * gap)),
                                    _mm_loadu_ps(from + (r + 4) * gap), 1);
    RPI_UNROLL
    for (int r = 0; r < 4; r += 2) {
        y[r] = _mm256_unpacklo_ps(x[r], x[r + 1]);
        y[r + 1] = _mm256_unpackhi_ps(x[r], x[r + 1]);
    }
    RPI_UNROLL
    for (int r = 0; r < 2; r++) {
        to[2 * r] = _mm256_shuffle_ps(y[r], y[r + 2], 0x44);
        to[2 * r + 1] = _mm256_shuffle_ps(y[r], y[r + 2], 0xee);
    }
}
