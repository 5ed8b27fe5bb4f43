/* isa/neon_f64.c -- AdvSIMD (NEON) in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__aarch64__)
RPI_SOURCE_ORDER
#include <arm_neon.h>
#define RPI_ISA neon
#define RPI_F64 1
enum { VL = 2, MR = 6, NR = 8 };
typedef float64x2_t vf;
#define vf_fma(a, b, c)             vfmaq_f64(c, a, b)
#define vf_set1(x)                  vdupq_n_f64(x)
#define vf_max(a, b)                max_lanes(a, b)
#define vf_below(x, limit, yes, no) vbslq_f64(vcltq_f64(x, limit), yes, no)
#define vf_product(x, limit, a, b)                                                                                     \
    vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(vmulq_f64(a, b)), vcltq_f64(x, limit)))
#define vf_sum(x)              vaddvq_f64(x)
#define vf_max_lane(x)         vmaxnmvq_f64(x)
#define vf_gather(from, index) gather_lanes(from, index)

static inline float64x2_t max_lanes(float64x2_t a, float64x2_t b)
{
    return vbslq_f64(vcgtq_f64(a, b), a, b);
}

static inline float64x2_t gather_lanes(const double *from, const int32_t *index)
{
    const float64x2_t x = vld1q_dup_f64(from + index[0]);
    return vld1q_lane_f64(from + index[1], x, 1);
}
#include "processor/vector_ops.h"
#include "kernels/template.h"
#endif
