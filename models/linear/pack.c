/* pack.c -- linear_pack packs a matrix into the panels of layout.h, linear_row unpacks a row, and linear_repack
 * converts panels to another type. Each task packs a panel in chunks of 32 inputs, which are loaded as f32 and
 * stored as its type.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/layout.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = LINEAR_GROUP };

typedef struct pack_job {
    linear_type type;
    rp_dtype dtype;
    int64_t in, out, stride;
    const char *w;
    char *packed;
} pack_job;

const char *linear_type_name(linear_type type)
{
    static const char *const name[] = {"f32", "f16", "bf16", "int8", "int4", "q8", "gguf"};
    return (unsigned)type <= LINEAR_BLOCKS ? name[type] : "unknown type";
}

int linear_find_type(const char *name)
{
    for (int n = 0; name != NULL && n < LINEAR_TYPES; n++)
        if (strcmp(name, linear_type_name((linear_type)n)) == 0)
            return n;
    return -1;
}

int64_t linear_packed_bytes(linear_type type, int64_t in, int64_t out)
{
    int64_t bytes;
    if ((unsigned)type >= LINEAR_TYPES || in < 1 || out < 1 || in > INT64_MAX / 1024 ||
        (type == LINEAR_INT8 && in > LINEAR_INT8_MAX_IN))
        return -1;
    const int64_t last = linear_ceil(out, LINEAR_PANEL) - 1;
    if (__builtin_mul_overflow(linear_panel_bytes(type, in, LINEAR_COLUMNS), last, &bytes) ||
        __builtin_add_overflow(linear_panel_bytes(type, in, linear_columns(out, last)), bytes, &bytes))
        return -1;
    return bytes;
}

static float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float f32_of_bf16(uint16_t x)
{
    return f32_of_bits((uint32_t)x << 16);
}

static float f32_of_f16(const uint16_t *x)
{
    float y;
    rp_convert(&y, RP_F32, x, RP_F16, 1);
    return y;
}

static uint16_t bf16_of_f32(float x)
{
    uint32_t bits;
    x = linear_bf16(x);
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Load n numbers of a row of W, starting at input `from`. */
static void load(const pack_job *j, int64_t row, int64_t from, int64_t n, float *to)
{
    const char *at = j->w + (row * j->stride + from) * (int64_t)rp_dtype_size(j->dtype);
    if (j->dtype == RP_F32) {
        memcpy(to, at, (size_t)n * sizeof *to);
    } else {
        rp_convert(to, RP_F32, at, j->dtype, n);
    }
}

/* Load 32 inputs of 16 rows of W, starting at input `from` and row `row`. Inputs and rows past the end are zeros. */
static void load_chunk(const pack_job *j, int64_t row, int64_t from, float chunk[LINEAR_COLUMN][CHUNK])
{
    const int64_t n = linear_min(j->in - from, CHUNK);
    memset(chunk, 0, sizeof(float[LINEAR_COLUMN][CHUNK]));
    for (int64_t c = 0; c < LINEAR_COLUMN && row + c < j->out; c++)
        load(j, row + c, from, n, chunk[c]);
}

/* Return max(a, |x|), or NaN if either is NaN. */
static float larger(float a, float x)
{
    return isnan(a) || fabsf(x) <= a ? a : fabsf(x);
}

/* Compute the int8 scales of the 16 outputs of a column. */
static void int8_scales(const pack_job *j, int64_t row, float *scale)
{
    float chunk[LINEAR_COLUMN][CHUNK], most[LINEAR_COLUMN] = {0};
    for (int64_t from = 0; from < j->in; from += CHUNK) {
        load_chunk(j, row, from, chunk);
        for (int c = 0; c < LINEAR_COLUMN; c++)
            for (int i = 0; i < CHUNK; i++)
                most[c] = larger(most[c], chunk[c][i]);
    }
    for (int c = 0; c < LINEAR_COLUMN; c++)
        scale[c] = linear_int8_scale(most[c]);
}

/* Return x / scale, rounded to the nearest integer and clamped to [low, high]; 0 if the scale is 0 or NaN. */
static int quotient(float x, float scale, float low, float high)
{
    if (!(fabsf(scale) > 0))
        return 0;
    const float q = rintf(x / scale);
    return (int)(q < low ? low : q > high ? high : q);
}

/* Return the sum of squared errors if a group is quantized with this scale. */
static double group_loss(const float *w, float scale)
{
    double sum = 0;
    for (int i = 0; i < LINEAR_GROUP; i++) {
        const double rest = (double)w[i] - (double)scale * quotient(w[i], scale, -8, 7);
        sum += rest * rest;
    }
    return sum;
}

/* Return the scale of a group as bf16. It maps the number with the largest absolute value either to -8 (the scale may
 * then be negative) or to ±7, whichever gives the smaller error. Return NaN if a number is not finite. */
static uint16_t group_scale(const float *w)
{
    float most = 0;
    for (int i = 0; i < LINEAR_GROUP; i++) {
        if (!isfinite(w[i]))
            return bf16_of_f32(NAN);
        most = fabsf(w[i]) > fabsf(most) ? w[i] : most;
    }
    if (fabsf(most) < 0x1p-120f)
        return 0;
    const uint16_t eighth = bf16_of_f32(most / -8), seventh = bf16_of_f32(fabsf(most) / 7);
    return group_loss(w, f32_of_bf16(eighth)) <= group_loss(w, f32_of_bf16(seventh)) ? eighth : seventh;
}

/* A column of a packed panel. */
typedef struct column {
    char *panel;
    int64_t columns, n; /* number of columns of the panel; index of this column */
} column;

static void *line_of(const pack_job *j, const column *c, int64_t k)
{
    return c->panel + linear_line_at(j->type, c->columns, k) + c->n * LINEAR_COLUMN_BYTES;
}

/* Return the scales of int8. In memory, the scales of all columns come before the sums (biases_of). */
static float *scales_of(const column *c)
{
    return (float *)(void *)c->panel + c->n * LINEAR_COLUMN;
}

static int32_t *biases_of(const column *c)
{
    return (int32_t *)(void *)c->panel + (c->columns + c->n) * LINEAR_COLUMN;
}

static uint16_t *group_scales_of(const column *c, int64_t group)
{
    return (uint16_t *)(void *)(c->panel + group * linear_group_bytes(LINEAR_INT4, c->columns)) + c->n * LINEAR_COLUMN;
}

static float *q8_scales_of(const column *c, int64_t group)
{
    return (float *)(void *)(c->panel + group * linear_group_bytes(LINEAR_Q8, c->columns)) + c->n * LINEAR_COLUMN;
}

static void store_int8(const pack_job *j, const column *c, int64_t from, int64_t end, float chunk[LINEAR_COLUMN][CHUNK])
{
    for (int64_t i = from; i < end; i++) {
        int8_t *line = line_of(j, c, i / 4);
        for (int o = 0; o < LINEAR_COLUMN; o++) {
            const int q = quotient(chunk[o][i - from], scales_of(c)[o], -127, 127);
            line[4 * o + i % 4] = (int8_t)q;
            biases_of(c)[o] -= 128 * q;
        }
    }
}

static void store_int4(const pack_job *j, const column *c, int64_t from, float chunk[LINEAR_COLUMN][CHUNK])
{
    uint16_t *scales = group_scales_of(c, from / LINEAR_GROUP);
    for (int o = 0; o < LINEAR_COLUMN; o++) {
        scales[o] = group_scale(chunk[o]);
        const float scale = f32_of_bf16(scales[o]);
        for (int i = 0; i < LINEAR_GROUP; i++) {
            uint8_t *byte = (uint8_t *)line_of(j, c, (from + i) / 8) + 4 * o + i % 4;
            const int q = quotient(chunk[o][i], scale, -8, 7) + 8;
            *byte = i / 4 % 2 ? (uint8_t)(*byte | q << 4) : (uint8_t)q;
        }
    }
}

/* Return the scale of a group of q8. If the numbers are integers times max |w| / 8 or / 16, as in blocks of Q4_0 and
 * Q5_0, use that scale, with which they are kept exactly; otherwise map max |w| to 127. */
static float q8_scale(const float *w)
{
    static const float levels[] = {8, 16};
    float most = 0;
    for (int i = 0; i < LINEAR_GROUP; i++)
        most = larger(most, w[i]);
    const float usual = linear_int8_scale(most);
    for (int n = 0; n < 2 && usual > 0; n++) {
        const float scale = most / levels[n];
        int i = 0;
        while (i < LINEAR_GROUP && scale * rintf(w[i] / scale) == w[i])
            i++;
        if (i == LINEAR_GROUP)
            return scale;
    }
    return usual;
}

static void store_q8(const pack_job *j, const column *c, int64_t from, float chunk[LINEAR_COLUMN][CHUNK])
{
    float *scales = q8_scales_of(c, from / LINEAR_GROUP);
    for (int o = 0; o < LINEAR_COLUMN; o++) {
        scales[o] = q8_scale(chunk[o]);
        for (int i = 0; i < LINEAR_GROUP; i++) {
            uint8_t *line = line_of(j, c, (from + i) / 4);
            line[4 * o + i % 4] = (uint8_t)(quotient(chunk[o][i], scales[o], -127, 127) + 128);
        }
    }
}

static void store_floats(const pack_job *j, const column *c, int64_t from, int64_t end,
                         float chunk[LINEAR_COLUMN][CHUNK])
{
    for (int64_t i = from; i < end; i++) {
        if (j->type == LINEAR_F16) {
            float input[LINEAR_COLUMN];
            for (int o = 0; o < LINEAR_COLUMN; o++)
                input[o] = chunk[o][i - from];
            rp_convert((uint16_t *)line_of(j, c, i / 2) + i % 2 * LINEAR_COLUMN, RP_F16, input, RP_F32, LINEAR_COLUMN);
            continue;
        }
        for (int o = 0; o < LINEAR_COLUMN; o++) {
            if (j->type == LINEAR_F32)
                ((float *)line_of(j, c, i))[o] = chunk[o][i - from];
            else
                ((uint16_t *)line_of(j, c, i / 2))[2 * o + i % 2] = bf16_of_f32(chunk[o][i - from]);
        }
    }
}

static void pack_column(const pack_job *j, const column *c, int64_t row)
{
    float chunk[LINEAR_COLUMN][CHUNK];
    if (j->type == LINEAR_INT8)
        int8_scales(j, row, scales_of(c));
    for (int64_t from = 0; from < j->in; from += CHUNK) {
        const int64_t end = linear_min(from + CHUNK, j->in);
        load_chunk(j, row, from, chunk);
        if (j->type == LINEAR_INT8)
            store_int8(j, c, from, end, chunk);
        else if (j->type == LINEAR_INT4)
            store_int4(j, c, from, chunk);
        else if (j->type == LINEAR_Q8)
            store_q8(j, c, from, chunk);
        else
            store_floats(j, c, from, end, chunk);
    }
}

static void pack_panel(void *context, int64_t panel, int32_t worker)
{
    const pack_job *j = context;
    const int64_t columns = linear_columns(j->out, panel);
    char *at = j->packed + panel * linear_panel_bytes(j->type, j->in, LINEAR_COLUMNS);
    (void)worker;
    memset(at, 0, (size_t)linear_panel_bytes(j->type, j->in, columns));
    for (int64_t n = 0; n < columns; n++)
        pack_column(j, &(column){at, columns, n}, panel * LINEAR_PANEL + n * LINEAR_COLUMN);
}

rp_status linear_pack(rp_pool *pool, linear_type type, int64_t in, int64_t out, const void *w, rp_dtype dtype,
                      int64_t stride, void *packed)
{
    int64_t last;
    if (linear_packed_bytes(type, in, out) < 0 || !w || !packed || (uintptr_t)packed % LINEAR_ALIGN != 0 ||
        (dtype != RP_F32 && dtype != RP_F16 && dtype != RP_BF16) || stride < in ||
        __builtin_mul_overflow(stride, 4 * out, &last))
        return RP_E_ARG;
    pack_job j = {type, dtype, in, out, stride, w, packed};
    return rp_pool_run(pool, linear_ceil(out, LINEAR_PANEL), pack_panel, &j);
}

static void row_of_tensors(const linear_tensors *tensors, int64_t o, float *row)
{
    const linear_tensor *t = tensors->each;
    for (; o >= t->w.out; t++)
        o -= t->w.out;
    const linear_blocks *b = t->blocks;
    if (b == NULL) {
        linear_row(&t->w, o, row);
        return;
    }
    const unsigned char *block = (const unsigned char *)t->w.packed + o * (t->w.in / b->numbers * b->bytes);
    for (int64_t i = 0; i < t->w.in; i += b->numbers, block += b->bytes)
        b->read(b, block, row + i);
}

void linear_row(const linear_weights *w, int64_t o, float *row)
{
    if (w->type == LINEAR_BLOCKS) {
        row_of_tensors(w->packed, o, row);
        return;
    }
    const int64_t panel = o / LINEAR_PANEL, lane = o % LINEAR_COLUMN,
                  at = panel * linear_panel_bytes(w->type, w->in, LINEAR_COLUMNS);
    const column c = {(char *)(uintptr_t)w->packed + at, linear_columns(w->out, panel),
                      o % LINEAR_PANEL / LINEAR_COLUMN};
    const pack_job j = {.type = w->type};
    for (int64_t i = 0; i < w->in; i++) {
        const void *line = line_of(&j, &c, i / linear_line_inputs(w->type));
        switch (w->type) {
        case LINEAR_F32: row[i] = ((const float *)line)[lane]; break;
        case LINEAR_F16: row[i] = f32_of_f16((const uint16_t *)line + i % 2 * LINEAR_COLUMN + lane); break;
        case LINEAR_BF16: row[i] = f32_of_bf16(((const uint16_t *)line)[2 * lane + i % 2]); break;
        case LINEAR_INT8: row[i] = scales_of(&c)[lane] * (float)((const int8_t *)line)[4 * lane + i % 4]; break;
        case LINEAR_INT4:
            row[i] = f32_of_bf16(group_scales_of(&c, i / LINEAR_GROUP)[lane]) *
                     (float)((((const uint8_t *)line)[4 * lane + i % 4] >> (i / 4 % 2 * 4) & 15) - 8);
            break;
        case LINEAR_Q8:
            row[i] =
                q8_scales_of(&c, i / LINEAR_GROUP)[lane] * (float)(((const uint8_t *)line)[4 * lane + i % 4] - 128);
            break;
        case LINEAR_BLOCKS: break;
        }
    }
}

/* ------------------------------------------------------------------------------------------------ converting types */

enum { REPACKED = 8 * LINEAR_PANEL }; /* rows per step */

typedef struct repacking {
    const linear_weights *from;
    int64_t row;
    float *rows;
} repacking;

static void read_row(void *context, int64_t n, int32_t worker)
{
    const repacking *k = context;
    (void)worker;
    linear_row(k->from, k->row + n, k->rows + n * k->from->in);
}

rp_status linear_repack(rp_pool *pool, linear_type type, const linear_weights *from, void *packed)
{
    const int64_t in = from->in, most = linear_min(from->out, REPACKED);
    repacking k = {.from = from, .rows = malloc((size_t)(most * in) * sizeof(float))};
    rp_status status = k.rows != NULL ? RP_OK : RP_E_NOMEM;
    for (; status == RP_OK && k.row < from->out; k.row += most) {
        const int64_t n = linear_min(from->out - k.row, most);
        char *to = (char *)packed + k.row / LINEAR_PANEL * linear_panel_bytes(type, in, LINEAR_COLUMNS);
        status = rp_pool_run(pool, n, read_row, &k);
        if (status == RP_OK)
            status = linear_pack(pool, type, in, n, k.rows, RP_F32, in, to);
    }
    free(k.rows);
    return status;
}
