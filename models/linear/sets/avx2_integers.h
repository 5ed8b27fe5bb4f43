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
