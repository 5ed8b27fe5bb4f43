/* store.h -- converts the sums of a block to outputs: applies the scales of quantized types, the bias and the operation
 * of the call, and stores the result. For the last outputs of a row, a whole vector is computed and only part of it is
 * stored. Parameters: VL, the vector operations. */
#ifndef LINEAR_ISA
#include "linear/kernels/prepare.h" /* lets an editor parse this file on its own */
#endif

/* gelu_new(p) = p/2 (1 + tanh(u)) with u = √(2/π) (p + 0.044715 p³). This equals p / (1 + exp(-2u)) and also p exp(2u)
 * / (1 + exp(2u)). Using the second form for p < 0 avoids cancellation and overflow; both forms need only exp(-2|u|).
 * The error of -2|u| is 4 roundings (a constant, p², the fma, the product), which exp turns into 8|u|. exp adds 6, and
 * sum, quotient and product add 3. The total is (9 + 8|u|) 2⁻²⁴ of the result. */
#define GELU_U1 -1.5957691216057308f  /* -2 √(2/π) */
#define GELU_U3 -0.07135481627159992f /* GELU_U1 * 0.044715 */

INLINE vf gelu(vf p)
{
    const vf e = vf_exp(vf_abs(p) * vf_fma(p * p, vf_set1(GELU_U3), vf_set1(GELU_U1)));
    return p * (vf_below(p, vf_set1(0), e, vf_set1(1)) / (e + vf_set1(1)));
}

/* p/2 (1 + erf(p/√2)). Beyond the ends of erf.h, erf is -1 or 1, so 0 or p remains. */
INLINE vf gelu_erf(vf p)
{
    const vf x = p * vf_set1(0.70710678f), t = x * x, end = vf_set1(LINEAR_ERF_END);
    vf above = vf_set1(0), under = vf_set1(0);
#define STEP(c) above = vf_fma(above, t, vf_set1(c));
    LINEAR_ERF_ABOVE(STEP)
#undef STEP
#define STEP(c) under = vf_fma(under, t, vf_set1(c));
    LINEAR_ERF_UNDER(STEP)
#undef STEP
    const vf y = vf_set1(0.5f) * p * (vf_set1(1) + x * above / under);
    return vf_below(x, -end, vf_set1(0), vf_below(end, x, p, y));
}

INLINE vf finish(linear_then then, vf p, vf y)
{
    switch (then) {
    case LINEAR_ADD: return y + p;
    case LINEAR_RELU: return vf_max(vf_set1(0), p); /* NaN if p is NaN */
    case LINEAR_GELU: return gelu(p);
    case LINEAR_TIMES: return y * p;
    case LINEAR_GELU_ERF: return gelu_erf(p);
    default: return p;
    }
}

/* Convert VL sums of a row to products: convert integers to floats (int8) and apply the scales. For int4 only the scale
 * of x remains to be applied, and for q8 it is 1. */
INLINE vf scaled(linear_type type, const float *sums, const float *scale, vf x)
{
    const vf p = vf_load(sums);
    if (type == LINEAR_INT8)
        return vf_of_vi((vi)p) * vf_load(scale) * x;
    if (type == LINEAR_INT4)
        return p * x;
    return p;
}

/* Copy the biases of a panel to 64 aligned floats. Where there is none, -0 changes no bit of a sum. */
INLINE const float *panel_bias(const linear_job *j, int64_t panel, float *to)
{
    const int64_t first = panel * LINEAR_PANEL;
    for (int c = 0; c < LINEAR_PANEL; c += VL)
        vf_store(to + c, vf_set1(-0.0f));
    if (j->bias)
        memcpy(to, j->bias + first, (size_t)linear_min(j->out - first, LINEAR_PANEL) * sizeof *to);
    return to;
}

/* Store n outputs of a row. `scale` points to the scales of the outputs (int8); x is the scale of the row. */
INLINE void store_row(linear_type type, linear_then then, const float *sums, const float *scale, vf x,
                      const float *bias, float *y, int64_t n)
{
    for (int64_t c = 0; c < n; c += VL) {
        const vf p = scaled(type, sums + c, scale + c, x) + vf_load(bias + c);
        if (c + VL <= n) {
            vf_store(y + c, finish(then, p, vf_load(y + c)));
        } else {
            float lane[VL] = {0};
            memcpy(lane, y + c, (size_t)(n - c) * sizeof *y);
            vf_store(lane, finish(then, p, vf_load(lane)));
            memcpy(y + c, lane, (size_t)(n - c) * sizeof *y);
        }
    }
}

INLINE void store_rows(linear_type type, linear_then then, const tile *t, int rows, float *y, int64_t n)
{
    const linear_job *j = t->j;
    const float *scale = (const float *)(const void *)t->panel + t->first * LINEAR_COLUMN,
                *bias = t->bias + t->first * LINEAR_COLUMN;
    for (int r = 0; r < rows; r++) {
        float x = 1;
        if (type >= LINEAR_INT8)
            memcpy(&x, j->prepared + (t->row + r) * j->row_bytes, sizeof x);
        store_row(type, then, t->sums + r * LINEAR_PANEL, scale, vf_set1(x), bias, y + r * j->ldy, n);
    }
}

INLINE void store_type(linear_type type, const tile *t, int rows, float *y, int64_t n)
{
    switch (t->j->then) {
    case LINEAR_STORE: store_rows(type, LINEAR_STORE, t, rows, y, n); break;
    case LINEAR_ADD: store_rows(type, LINEAR_ADD, t, rows, y, n); break;
    case LINEAR_RELU: store_rows(type, LINEAR_RELU, t, rows, y, n); break;
    case LINEAR_GELU: store_rows(type, LINEAR_GELU, t, rows, y, n); break;
    case LINEAR_TIMES: store_rows(type, LINEAR_TIMES, t, rows, y, n); break;
    case LINEAR_GELU_ERF: store_rows(type, LINEAR_GELU_ERF, t, rows, y, n); break;
    }
}

/* Store n outputs of each row of a tile, beginning at y. */
static void store(const tile *t, int rows, float *y, int64_t n)
{
    switch (t->j->type) {
    case LINEAR_INT8:
        if (OWNS(LINEAR_INT8))
            store_type(LINEAR_INT8, t, rows, y, n);
        break;
    case LINEAR_INT4:
    case LINEAR_Q8:
    case LINEAR_BLOCKS:
        if (OWNS(LINEAR_INT4))
            store_type(LINEAR_INT4, t, rows, y, n);
        break;
    default:
        if (OWNS(LINEAR_F32) || OWNS(LINEAR_BF16))
            store_type(LINEAR_F32, t, rows, y, n);
        break;
    }
}
