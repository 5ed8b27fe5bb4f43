/* isa/amx_emulated.c -- AMX tiles emulated in plain C with the same bits, so that tests of kernels/amx run on every
 * machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#define RPI_ISA     amx_emulated
#define RPI_F64     0
#define RPI_AMX     1
#define RPI_SINGLES generic
enum { VL = 16, MR = 6, NR = 64 };
typedef float vf __attribute__((vector_size(64), may_alias));
#pragma GCC diagnostic ignored "-Wpsabi"  /* vectors are not passed to other files */
#pragma GCC diagnostic ignored "-Wshadow" /* vf_fma within vf_fma */
/* Compute c = a b + c with one rounding, as processors with AMX do. clang must not inline it: otherwise each
 * unrolled product gets its own stack slots for its operands, 30 KB in one function. */
#ifdef __clang__
#define FMA_CALL static __attribute__((noinline))
#else
#define FMA_CALL static inline __attribute__((always_inline))
#endif
FMA_CALL void fma_lanes(const vf *a, const vf *b, vf *c)
{
    for (int n = 0; n < VL; n++)
        (*c)[n] = fmaf((*a)[n], (*b)[n], (*c)[n]);
}

#define vf_fma(a, b, c)                                                                                                \
    __extension__({                                                                                                    \
        const vf fma_a = (a), fma_b = (b);                                                                             \
        vf fma_c = (c);                                                                                                \
        fma_lanes(&fma_a, &fma_b, &fma_c);                                                                             \
        fma_c;                                                                                                         \
    })

typedef struct amx_tiles {
    uint32_t at[8][16][16];
} amx_tiles;

#define amx_begin()    ((void)0)
#define amx_fence()    ((void)0)
#define amx_end()      ((void)0)
#define amx_zero(R, t) memset((R)->at[t], 0, sizeof(R)->at[t])

static inline void amx_load(amx_tiles *R, int t, const void *from, int64_t step)
{
    for (int m = 0; m < 16; m++)
        memcpy(R->at[t][m], (const char *)from + m * step, 64);
}

static inline void amx_store(const amx_tiles *R, int t, void *to, int64_t step)
{
    for (int m = 0; m < 16; m++)
        memcpy((char *)to + m * step, R->at[t][m], 64);
}

/* Compute c += a b. Each of the 256 sums uses the order of the hardware: sum the products of the first elements of the
 * pairs from zero, sum the products of the second elements from zero, add both, and add the result to c. A product of
 * two bf16 is exact in f32. AddressSanitizer is disabled here: the indices are constant, and its checks took most of
 * the time of the tests. */
__attribute__((no_sanitize("address"))) static void amx_dot(amx_tiles *R, int c, int a, int b)
{
    typedef uint32_t bits __attribute__((vector_size(64)));
    for (int m = 0; m < 16; m++) {
        vf even = {0}, odd = {0}, sum;
        for (int p = 0; p < 16; p++) {
            const uint32_t x = R->at[a][m][p], low = x << 16, high = x & 0xffff0000u;
            float first, second;
            bits y;
            memcpy(&first, &low, 4);
            memcpy(&second, &high, 4);
            memcpy(&y, R->at[b][p], 64);
            even += first * (vf)(y << 16);
            odd += second * (vf)(y & 0xffff0000u);
        }
        memcpy(&sum, R->at[c][m], 64);
        sum += even + odd;
        memcpy(R->at[c][m], &sum, 64);
    }
}
#define vf_columns(from, gap, to) four_columns(from, gap, to)
static inline void four_columns(const float *from, int64_t gap, vf *to)
{
    for (int r = 0; r < VL; r++) {
        float words[4];
        memcpy(words, from + r * gap, sizeof words);
        for (int c = 0; c < 4; c++)
            to[c][r] = words[c];
    }
}

#undef RPI_UNROLL
#define RPI_UNROLL /* without registers of this size, each copy of an unrolled loop would take stack of its own */
#include "processor/vector_ops.h"
#include "kernels/template.h"
