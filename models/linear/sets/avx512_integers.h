/* linear/sets/avx512_integers.h -- loads, stores and conversions of 32-bit integers, for all instruction sets that
 * include AVX-512.
 * SPDX-License-Identifier: Apache-2.0 */
#define vi_load(p)           ((vi)_mm512_loadu_si512(p))
#define vi_store(p, v)       _mm512_storeu_si512(p, (__m512i)(v))
#define vf_of_vi(x)          _mm512_cvtepi32_ps((__m512i)(x))
#define vi_store_bytes(p, v) _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8((__m512i)(v)))
