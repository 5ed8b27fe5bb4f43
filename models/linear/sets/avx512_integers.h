/* linear/sets/avx512_integers.h -- loads, stores and conversions of 32-bit integers, for all instruction sets that
 * include AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#define vi_load(p)                ((vi)_mm512_loadu_si512(p))
#define vi_store(p, v)            _mm512_storeu_si512(p, (__m512i)(v))
#define vf_of_vi(x)               _mm512_cvtepi32_ps((__m512i)(x))
#define vi_store_bytes(p, v)      _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8((__m512i)(v)))
#define vi_largest(x)             _mm512_reduce_max_epi32((__m512i)(x))
#define vi_total(x)               _mm512_reduce_add_epi32((__m512i)(x))
#define vi_rounded(x)             ((vi)_mm512_cvtps_epi32(x))
#define vi_store_four(p, x, flip) four_vectors(p, x, flip)
/* Packing leaves four bytes of each vector in each 128 bits. */
static inline void four_vectors(void *to, const vi *x, int32_t flip)
{
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i low = _mm512_packs_epi32((__m512i)x[0], (__m512i)x[1]),
                  high = _mm512_packs_epi32((__m512i)x[2], (__m512i)x[3]);
    vi_store(to, (vi)_mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high)) ^ flip);
}
