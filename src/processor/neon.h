/* processor/neon.h -- vector operations of AdvSIMD (NEON) in f32, for instruction sets built on it.
 * SPDX-License-Identifier: Apache-2.0 */

enum { VL = 4, MR = 6, NR = 16 }; /* 6 x 16 sums take 24 of the 32 registers; operands take 5 */
typedef float32x4_t vf;
/* If a comes from vf_set1, the compiler multiplies by a single element and needs no register for its copies. */
#define vf_fma(a, b, c)             vfmaq_f32(c, a, b)
#define vf_set1(x)                  vdupq_n_f32(x)
#define vu_wide(p)                  ((vu)vmovl_u16(vld1_u16(p)))
#define vf_max(a, b)                max_lanes(a, b)
#define vf_larger(a, b)             vreinterpretq_f32_s32(vmaxq_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b)))
#define vf_below(x, limit, yes, no) vbslq_f32(vcltq_f32(x, limit), yes, no)
#define vf_product(x, limit, a, b)                                                                                     \
    vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(vmulq_f32(a, b)), vcltq_f32(x, limit)))
#define vf_sum(x)              vaddvq_f32(x)
#define vf_max_lane(x)         vmaxnmvq_f32(x)
#define vf_keep(x, keep)       keep_lanes(x, keep)
#define vf_gather(from, index) gather_lanes(from, index)

/* Return the larger lanes, or b where either is NaN. FMAX and FMAXNM handle NaN differently. */
static inline float32x4_t max_lanes(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline float32x4_t keep_lanes(float32x4_t x, const uint8_t *keep)
{
    uint32_t four;
    memcpy(&four, keep, sizeof four);
    const uint32x4_t wide = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
    return vbslq_f32(vtstq_u32(wide, wide), x, vdupq_n_f32(-INFINITY));
}

static inline float32x4_t gather_lanes(const float *from, const int32_t *index)
{
    float32x4_t x = vld1q_dup_f32(from + index[0]);
    x = vld1q_lane_f32(from + index[1], x, 1);
    x = vld1q_lane_f32(from + index[2], x, 2);
    return vld1q_lane_f32(from + index[3], x, 3);
}
