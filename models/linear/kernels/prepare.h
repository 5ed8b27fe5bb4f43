/* prepare.h -- prepares rows of x for weights from bf16 on, in the form that layout.h describes: rounded to bf16, or
 * quantized to integers from -127 to 127 with one scale per row, or per group for q8.
 * Parameters: VL, OWNS, the vector operations, X8_BYTES, X8_UNSIGNED, Q8_UNSIGNED. */
#ifndef LINEAR_ISA
#include "linear/kernels/tile.h" /* lets an editor parse this file on its own */
#endif

/* Load the last numbers of a row, starting at i, padded with zeros. noinline: rarely used. */
static __attribute__((noinline)) void row_tail(const float *x, int64_t i, int64_t n, float *lane)
{
    for (int64_t c = 0; c < VL; c++)
        lane[c] = i + c < n ? x[i + c] : 0;
}

/* Load VL numbers of a row, starting at i, with zeros past the end of the row. */
INLINE vf row_load(const float *x, int64_t i, int64_t n)
{
    float lane[VL];
    if (i + VL <= n)
        return vf_load(x + i);
    row_tail(x, i, n, lane);
    return vf_load(lane);
}

/* Return the largest of VL numbers that are not negative; infinity or NaN if one is not finite. As integers, infinity
 * and NaN are larger than all other numbers. */
INLINE float lanes_max(vf x)
{
    const int32_t bits = vi_largest((vi)x);
    float most;
    memcpy(&most, &bits, sizeof most);
    return most;
}

/* Load four vectors of a row, starting at i, with zeros past the end of the row. */
INLINE void row_load_four(vf *to, const float *x, int64_t i, int64_t n)
{
    if (i + 4 * VL <= n) {
        FOR (c, 4)
            to[c] = vf_load(x + i + c * VL);
    } else {
        FOR (c, 4)
            to[c] = row_load(x, i + c * VL, n);
    }
}

/* Return the largest |x|; infinity or NaN if the row is not finite. */
static float row_max(const float *x, int64_t n)
{
    vf max[4] = {vf_set1(0), vf_set1(0), vf_set1(0), vf_set1(0)}, in[4];
    for (int64_t i = 0; i < n; i += 4 * VL) {
        row_load_four(in, x, i, n);
        FOR (c, 4)
            max[c] = vf_larger(max[c], vf_abs(in[c]));
    }
    return lanes_max(vf_larger(vf_larger(max[0], max[1]), vf_larger(max[2], max[3])));
}

/* Store four vectors of integers in the form that the tiles read. Integers are in the low bytes. */
INLINE void store_inputs(linear_type type, char *to, const vi *q)
{
    if (type == LINEAR_INT4 || X8_BYTES == 1) {
        vi_store_four(to, q, type == LINEAR_INT8 && X8_UNSIGNED ? (int32_t)0x80808080 : 0);
        return;
    }
    int8_t lane[4 * VL];
    vi_store_four(lane, q, 0);
    for (int c = 0; c < 4 * VL; c += 4) {
        const int16_t pairs[4] = {lane[c], lane[c + 2], lane[c + 1], lane[c + 3]};
        memcpy(to + 2 * c, pairs, sizeof pairs);
    }
}

/* Store -8 Σ q for each group. It compensates for weights being stored as q + 8. */
static void group_biases(char *row, int64_t in)
{
    const int8_t *q = (const int8_t *)row + LINEAR_ROW_HEAD;
    for (int64_t g = 0; g < linear_ceil(in, LINEAR_GROUP); g++) {
        int32_t sum = 0;
        for (int c = 0; c < LINEAR_GROUP; c++)
            sum -= 8 * q[g * LINEAR_GROUP + c];
        memcpy(row + linear_row_groups(in) + 4 * g, &sum, sizeof sum);
    }
}

/* A row whose largest |x| is below this is replaced by zeros, because its scale would be subnormal. */
#define QUANTIZED_TINY 0x1p-119f

/* Store the integers of a row of a type. They are zeros if `over`, 127 / the largest |x|, is 0. */
INLINE void quantize_inputs(linear_type type, const linear_job *j, const float *x, float over, char *to)
{
    const int64_t width = type == LINEAR_INT8 ? X8_BYTES : 1, inputs = linear_row_inputs(type, j->in);
    if (over == 0) {
        memset(to, type == LINEAR_INT8 && X8_UNSIGNED ? 128 : 0, (size_t)(inputs * width));
        return;
    }
    for (int64_t i = 0; i < inputs; i += 4 * VL) {
        vf in[4];
        vi q[4];
        row_load_four(in, x, i, j->in);
        FOR (c, 4)
            q[c] = vi_rounded(in[c] * vf_set1(over));
        store_inputs(type, to + i * width, q);
    }
}

static void quantize_row(const linear_job *j, const float *x, char *row)
{
    const float max = row_max(x, j->in);
    const bool finite = isfinite(max), zeros = !finite || max < QUANTIZED_TINY;
    const float scale = !finite ? NAN : zeros ? 0 : max / 127, over = zeros ? 0 : 127 / max;
    memcpy(row, &scale, sizeof scale);
    if (j->type == LINEAR_INT4) {
        quantize_inputs(LINEAR_INT4, j, x, over, row + LINEAR_ROW_HEAD);
        group_biases(row, j->in);
    } else {
        quantize_inputs(LINEAR_INT8, j, x, over, row + LINEAR_ROW_HEAD);
    }
}

/* Quantize a group of 32 inputs that begins at input `from`, for q8. Store its integers, and -128 Σ q if the weights
 * are used as q + 128. Return its scale. */
static float quantize_group(const linear_job *j, const float *x, int64_t from, int8_t *to, char *bias)
{
    vf in[LINEAR_GROUP / VL], most = vf_set1(0);
    vi q[LINEAR_GROUP / VL], sums = {0};
    FOR (c, LINEAR_GROUP / VL) {
        in[c] = row_load(x, from + c * VL, j->in);
        most = vf_larger(most, vf_abs(in[c]));
    }
    const float max = lanes_max(most);
    const bool finite = isfinite(max), zeros = !finite || max < QUANTIZED_TINY;
    const vf over = vf_set1(zeros ? 0 : 127 / max);
    FOR (c, LINEAR_GROUP / VL) {
        q[c] = vi_rounded((zeros ? vf_set1(0) : in[c]) * over);
        sums += q[c] << 24 >> 24;
        if (LINEAR_GROUP / VL < 4)
            vi_store_bytes(to + c * VL, q[c]);
        else if (c % 4 == 3)
            vi_store_four(to + (c - 3) * VL, q + c - 3, 0);
    }
    const int32_t sum = Q8_UNSIGNED ? -128 * vi_total(sums) : 0;
    memcpy(bias, &sum, sizeof sum);
    return !finite ? NAN : zeros ? 0 : max / 127;
}

static void quantize_groups(const linear_job *j, const float *x, char *row)
{
    const int64_t groups = linear_ceil(j->in, LINEAR_GROUP);
    char *biases = row + linear_row_groups(j->in), *scales = biases + 4 * groups;
    const float one = 1;
    memcpy(row, &one, sizeof one);
    for (int64_t g = 0; g < groups; g++) {
        const float scale =
            quantize_group(j, x, g * LINEAR_GROUP, (int8_t *)row + LINEAR_ROW_HEAD + g * LINEAR_GROUP, biases + 4 * g);
        memcpy(scales + 4 * g, &scale, sizeof scale);
    }
}

/* Quantize a row in groups of 32. Store their scales, and the sum of the inputs of each group of blocks. */
static void quantize_for_blocks(const linear_job *j, const float *x, char *row)
{
    const int64_t groups = linear_ceil(j->in, LINEAR_GROUP), each = j->blocks->group;
    char *scales = row + linear_row_groups(j->in), *sums = scales + 4 * groups;
    const float one = 1;
    memcpy(row, &one, sizeof one);
    for (int64_t g = 0; g < groups; g++) {
        int8_t *q = (int8_t *)row + LINEAR_ROW_HEAD + g * LINEAR_GROUP;
        const float scale = quantize_group(j, x, g * LINEAR_GROUP, q, scales + 4 * g);
        memcpy(scales + 4 * g, &scale, sizeof scale);
        for (int64_t i = 0; i < LINEAR_GROUP; i += each, sums += 4) {
            int32_t sum = 0;
            for (int64_t c = i; c < i + each; c++)
                sum += q[c];
            const float total = scale * (float)sum;
            memcpy(sums, &total, sizeof total);
        }
    }
}

/* Vector form of linear_bf16. */
INLINE vf rounded(vf x)
{
    const vu bits = (vu)x, size = bits & 0x7fffffff;
    const vu up = bits + 0x7fff + (bits >> 16 & 1), nan = (vu)(size > 0x7f800000), zero = (vu)(size < 0x800000);
    return (vf)(((nan & (bits | 0x400000)) | (zero & bits & 0x80000000u) | (~nan & ~zero & up)) & 0xffff0000u);
}

/* Round a row to bf16 and store it as bf16 pairs, or as f32 if the instruction set has no bf16 products. */
static void round_row(const linear_job *j, const float *x, char *row)
{
    char *to = row + LINEAR_ROW_HEAD;
    for (int64_t i = 0; i < linear_row_inputs(j->type, j->in); i += VL) {
        const vf a = rounded(row_load(x, i, j->in));
#ifdef W16_DOT
        x16_store(to + 2 * i, a);
#else
        vf_store((float *)(void *)to + i, a);
#endif
    }
}

static void prepare_row(const linear_job *j, int64_t r)
{
    const float *x = j->x + r * j->ldx;
    char *to = j->prepared + r * j->row_bytes;
    if (OWNS(LINEAR_BF16) && j->type == LINEAR_BF16)
        round_row(j, x, to);
    else if (OWNS(LINEAR_Q8) && j->type == LINEAR_Q8)
        quantize_groups(j, x, to);
    else if (OWNS(LINEAR_BLOCKS) && j->type == LINEAR_BLOCKS)
        quantize_for_blocks(j, x, to);
    else if (OWNS(LINEAR_INT8))
        quantize_row(j, x, to);
}

static bool groups(linear_type type)
{
#ifdef LINEAR_BASE
    if (!OWNS(type))
        return LINEAR_BASE.groups(type);
#endif
#ifdef GROUPED
    return GROUPED(type);
#else
    (void)type;
    return false;
#endif
}

#ifdef GROUPED
/* Interleave n rows of words (layout.h), `step` bytes from row to row. */
INLINE void interleave(const char *from, int64_t step, int64_t n, int64_t words, float *to)
{
    int64_t k = 0;
    for (; (k + VL - 1) * n + VL <= words * n; k += VL) { /* a store also fills VL - n words that the next overwrites */
        vf x[VL];
        FOR (r, VL)
            x[r] = vf_load((const float *)(const void *)(from + linear_min(r, n - 1) * step) + k);
        vf_transpose(x);
        FOR (c, VL)
            vf_store(to + (k + c) * n, x[c]);
    }
    for (; k < words; k++)
        for (int64_t r = 0; r < n; r++)
            memcpy(to + k * n + r, from + r * step + 4 * k, 4);
}

/* Prepare the rows of all groups of a block that begin in rows from … end-1, and interleave them. */
static void prepare_groups(const linear_job *j, int64_t block, int64_t from, int64_t end)
{
    const int64_t rows = linear_min(LINEAR_MAX_ROWS, j->rows - block), many = groups_of(j->type, rows),
                  bytes = linear_grouped_bytes(j->type, j->in);
    for (int64_t g = 0; g < many; g++) {
        const int64_t begin = block + group_begin(rows, many, g), next = block + group_begin(rows, many, g + 1);
        if (begin < from || begin >= end)
            continue;
        for (int64_t r = begin; j->prepared && r < next; r++)
            prepare_row(j, r);
        float *to = (float *)(void *)(j->grouped + begin * bytes);
        if (many > 1 && j->type == LINEAR_F32)
            interleave((const char *)(j->x + begin * j->ldx), 4 * j->ldx, next - begin, bytes / 4, to);
        else if (many > 1)
            interleave(prepared_row(j, begin), j->row_bytes, next - begin, bytes / 4, to);
    }
}
#endif

static void prepare(const linear_job *j, int64_t row, int64_t rows)
{
#ifdef LINEAR_BASE
    if (!OWNS(j->type)) {
        LINEAR_BASE.prepare(j, row, rows);
        return;
    }
#endif
#ifdef GROUPED
    if (j->grouped) {
        for (int64_t block = row / LINEAR_MAX_ROWS * LINEAR_MAX_ROWS; block < row + rows; block += LINEAR_MAX_ROWS)
            prepare_groups(j, block, row, row + rows);
        return;
    }
#endif
    for (int64_t r = row; r < row + rows; r++)
        prepare_row(j, r);
}
