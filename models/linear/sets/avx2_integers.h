/* linear/sets/avx2_integers.h -- loads, stores and conversions of 32-bit integers in AVX2, for avx2.c and avx2_vnni.c.
 * SPDX-License-Identifier: Apache-2.0 */
#define vi_load(p)           ((vi)_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define vi_store(p, v)       _mm256_storeu_si256((__m256i *)(void *)(p), (__m256i)(v))
#define vf_of_vi(x)          _mm256_cvtepi32_ps((__m256i)(x))
#define vi_store_bytes(p, v) low_bytes(p, (__m256i)(v))
static inline void low_bytes(void *to, __m256i x)
{
    const __m256i four = _mm256_shuffle_epi8(x, _mm256_set1_epi32(0x0c080400)); /* low bytes of each half */
    _mm_storel_epi64(to, _mm_unpacklo_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1)));
}
#define vi_largest(x) largest((__m256i)(x))
#define vi_total(x)   total((__m256i)(x))
static inline int32_t largest(__m256i x)
{
    __m128i y = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}
static inline int32_t total(__m256i x)
{
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}
#define vi_rounded(x)             ((vi)_mm256_cvtps_epi32(x))
#define vi_store_four(p, x, flip) four_vectors(p, x, flip)
/* Packing leaves four bytes of each vector in each half. */
static inline void four_vectors(void *to, const vi *x, int32_t flip)
{
    const __m256i order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    const __m256i low = _mm256_packs_epi32((__m256i)x[0], (__m256i)x[1]),
                  high = _mm256_packs_epi32((__m256i)x[2], (__m256i)x[3]);
    vi_store(to, (vi)_mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order) ^ flip);
}
