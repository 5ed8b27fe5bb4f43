/* convolution.c -- the convolution of DeBERTa-v2-xlarge, after the first layer:
 *
 *     x = norm(x + act(conv(e) + b))       e: the embedding, which is also the input of the first layer
 *
 * conv runs over the tokens of each sequence, with zeros beyond its ends. It is computed as a linear layer whose input
 * is `kernel` neighbouring tokens; one for each group of channels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include <stdlib.h>
#include <string.h>

enum { ROWS = 512 }; /* max rows that are computed together */

/* Write the matrix of group g: output o, token j of the kernel, input i. */
static void fill_matrix(const encoder_config *c, const float *weight, int64_t g, float *to)
{
    const int64_t each = c->width / c->groups;
    for (int64_t o = 0; o < each; o++)
        for (int64_t i = 0; i < each; i++)
            for (int64_t j = 0; j < c->kernel; j++)
                to[(o * c->kernel + j) * each + i] = weight[((g * each + o) * each + i) * c->kernel + j];
}

rp_status encoder_make_convolution(rp_encoder *m)
{
    const encoder_config *c = &m->config;
    encoder_convolution *v = &m->weights.convolution;
    if (c->kernel == 0)
        return RP_OK;
    const int64_t each = c->width / c->groups, in = c->kernel * each, bytes = linear_packed_bytes(LINEAR_F32, in, each);
    int64_t all;
    if (bytes < 0 || __builtin_mul_overflow(bytes, c->groups, &all))
        return encoder_fail(RP_E_OVERFLOW, "the convolution is too large (use a smaller model)");
    float *matrix = malloc((size_t)(each * in) * sizeof *matrix);
    v->memory = aligned_alloc(LINEAR_ALIGN, (size_t)all);
    v->bytes = all;
    v->group = calloc((size_t)c->groups, sizeof *v->group);
    rp_status status = matrix != NULL && v->memory != NULL && v->group != NULL ? RP_OK : encoder_no_memory();
    for (int64_t g = 0; g < c->groups && status == RP_OK; g++) {
        void *to = (char *)v->memory + g * bytes;
        fill_matrix(c, v->weight, g, matrix);
        v->group[g] = (linear_weights){LINEAR_F32, in, each, to};
        status = encoder_linear_failed(linear_pack(m->pool, LINEAR_F32, in, each, matrix, RP_F32, in, to));
    }
    free(matrix);
    return status;
}

void encoder_convolution_free(encoder_convolution *v)
{
    free(v->group);
    free(v->memory);
}

/* Some rows that are computed together. */
typedef struct block {
    const rp_encoder *m;
    const int64_t *starts; /* of the sequences */
    int64_t sequence;      /* that of the first row */
    int64_t first, rows;
    const float *embedded;
    float *gathered; /* [rows, kernel * width / groups] */
    float *made;     /* [rows, width] */
} block;

/* Gather the inputs of group g. */
static void gather(const block *b, int64_t g)
{
    const encoder_config *c = &b->m->config;
    const int64_t each = c->width / c->groups;
    float *to = b->gathered;
    for (int64_t r = b->first, s = b->sequence; r < b->first + b->rows; r++) {
        while (r >= b->starts[s + 1])
            s++;
        for (int64_t j = 0; j < c->kernel; j++, to += each) {
            const int64_t token = r + j - c->kernel / 2;
            if (token >= b->starts[s] && token < b->starts[s + 1])
                memcpy(to, b->embedded + token * c->width + g * each, (size_t)each * sizeof *to);
            else
                memset(to, 0, (size_t)each * sizeof *to);
        }
    }
}

static rp_status run_block(const block *b, float *x)
{
    const encoder_config *c = &b->m->config;
    const encoder_convolution *v = &b->m->weights.convolution;
    rp_status status = RP_OK;
    for (int64_t g = 0; g < c->groups && status == RP_OK; g++) {
        const linear_weights *w = &v->group[g];
        const linear_call call = {.rows = b->rows,
                                  .x = b->gathered,
                                  .ldx = w->in,
                                  .y = b->made + g * w->out,
                                  .ldy = c->width,
                                  .then = LINEAR_STORE,
                                  .bias = v->bias + g * w->out};
        gather(b, g);
        status = encoder_linear_failed(linear_apply(b->m->pool, w, &call));
    }
    if (status != RP_OK)
        return status;
    encoder_activate_rows(b->m->pool, b->rows,
                          &(encoder_activated){b->made, c->width, c->convolution_activation, false});
    for (int64_t k = 0; k < b->rows * c->width; k++)
        x[k] += b->made[k];
    encoder_norm_rows(b->m->pool, b->rows, &(encoder_normed){x, &v->norm, x, c->width, c->eps});
    return RP_OK;
}

rp_status encoder_convolve(const rp_encoder *m, int64_t n, const int64_t *starts, const float *embedded, float *x)
{
    const encoder_config *c = &m->config;
    const int64_t all = starts[n], most = all < ROWS ? all : ROWS;
    block b = {.m = m, .starts = starts, .embedded = embedded};
    b.gathered = encoder_take(most, c->kernel * c->width / c->groups);
    b.made = encoder_take(most, c->width);
    rp_status status = b.gathered != NULL && b.made != NULL ? RP_OK : encoder_no_memory();
    for (; b.first < all && status == RP_OK; b.first += b.rows) {
        b.rows = all - b.first < most ? all - b.first : most;
        while (b.first >= starts[b.sequence + 1])
            b.sequence++;
        status = run_block(&b, x + b.first * c->width);
    }
    free(b.gathered);
    free(b.made);
    return status;
}

int64_t encoder_convolution_bytes(const rp_encoder *m, int64_t rows)
{
    const encoder_config *c = &m->config;
    const int64_t most = rows < ROWS ? rows : ROWS;
    return c->kernel > 0 ? most * (c->kernel * c->width / c->groups + c->width) * 4 : 0;
}
