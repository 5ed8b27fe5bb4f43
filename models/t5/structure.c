/* structure.c -- the predictor of 3Di letters that comes with ProstT5: two convolutions along the protein.
 *
 *     h = relu(W0 * x + b0)       x [n, d] -> h [n, mid], taps on both sides, zeros outside of the protein
 *     y = W3 * h + b3             h [n, mid] -> y [n, 20]; the letter is the largest y
 *
 * Source: class CNN of predict_3Di_encoderOnly.py, which masks the rows of the prefix and the end token too.
 * SPDX-License-Identifier: Apache-2.0 */
#include "src/processor/clones.h"
#include "t5/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16, LETTERS = 20, MAX_MID = 4096, MAX_TAPS = 99 };
static const char letters_3di[] = "ACDEFGHIKLMNPQRSTVWY";

/* A convolution: out[i][o] = bias[o] + sum of weight[o][t] . in[i + t - taps / 2] over the taps t. */
typedef struct convolution {
    int64_t in, out, taps;
    float *weight; /* [out, taps, in] */
    float *bias;   /* [out] */
} convolution;

struct rp_t5_structure {
    const rp_t5 *model;
    convolution first, second;
};

/* Return the sum of a[k] * b[k], always in the same order. */
RPI_CLONES static float dot(const float *a, const float *b, int64_t n)
{
    float sum[LANES] = {0}, total = 0;
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += a[k + l] * b[k + l];
    for (int l = 0; l < LANES; l++)
        total += sum[l];
    for (; k < n; k++)
        total += a[k] * b[k];
    return total;
}

/* Compute one row of a convolution over the n rows of x. */
static void convolve(const convolution *c, const float *x, int64_t n, int64_t row, float *to)
{
    for (int64_t o = 0; o < c->out; o++) {
        to[o] = c->bias[o];
        for (int64_t t = 0; t < c->taps; t++) {
            const int64_t i = row + t - c->taps / 2;
            if (i >= 0 && i < n)
                to[o] += dot(c->weight + (o * c->taps + t) * c->in, x + i * c->in, c->in);
        }
    }
}

typedef struct task {
    const rp_t5_structure *s;
    const float *x; /* [n, d] */
    float *middle;  /* [n, mid] */
    char *letters;
    int64_t n;
} task;

enum { ROWS = 64 }; /* rows of a task */

static void first_rows(void *context, int64_t block, int32_t worker)
{
    const task *t = context;
    const convolution *c = &t->s->first;
    (void)worker;
    for (int64_t i = block * ROWS; i < t->n && i < (block + 1) * ROWS; i++) {
        float *to = t->middle + i * c->out;
        convolve(c, t->x, t->n, i, to);
        for (int64_t o = 0; o < c->out; o++)
            to[o] = to[o] > 0 ? to[o] : 0;
    }
}

static void second_rows(void *context, int64_t block, int32_t worker)
{
    const task *t = context;
    float scores[LETTERS];
    (void)worker;
    for (int64_t i = block * ROWS; i < t->n && i < (block + 1) * ROWS; i++) {
        convolve(&t->s->second, t->middle, t->n, i, scores);
        t->letters[i] = letters_3di[t5_argmax(scores, LETTERS)];
    }
}

rp_status rp_t5_structure_of(const rp_t5_structure *s, const float *hidden, int64_t n, char *letters)
{
    if (s == NULL || n < 0 || (n > 0 && (hidden == NULL || letters == NULL)))
        return t5_fail(RP_E_ARG, "structure, hidden or letters is NULL, or n is negative; pass all of them");
    task t = {.s = s, .x = hidden, .letters = letters, .n = n};
    int64_t bytes;
    if (!t5_mul(n + 1, s->first.out * 4, &bytes) || (t.middle = malloc((size_t)bytes)) == NULL)
        return t5_no_memory();
    rp_pool_run(s->model->pool, (n + ROWS - 1) / ROWS, first_rows, &t);
    rp_pool_run(s->model->pool, (n + ROWS - 1) / ROWS, second_rows, &t);
    free(t.middle);
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ reading */

/* Find a tensor of the predictor. */
static const io_tensor *find(const io_checkpoint *file, const char *layer, const char *what)
{
    static const char *const before[] = {"classifier.", "state_dict.classifier."};
    char name[64];
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "%s%s.%s", before[k], layer, what);
        const io_tensor *t = io_checkpoint_find(file, name);
        if (t != NULL)
            return t;
    }
    return NULL;
}

/* Read a convolution, weight [out, in, taps] or [out, in, taps, 1] and bias [out], and move the taps before the
 * inputs. */
static rp_status read_convolution(convolution *c, const io_checkpoint *file, const char *path, const char *layer,
                                  int64_t in, int64_t out)
{
    const io_tensor *w = find(file, layer, "weight"), *b = find(file, layer, "bias");
    if (w == NULL || b == NULL)
        return t5_fail(RP_E_ARG,
                       "%s: the tensor classifier.%s.%s is missing (give the file of ProstT5's 3Di predictor)", path,
                       layer, w == NULL ? "weight" : "bias");
    const bool axes = w->ndim == 3 || (w->ndim == 4 && w->shape[3] == 1);
    if (!axes || w->shape[1] != in || w->shape[2] < 1 || w->shape[2] > MAX_TAPS || w->shape[2] % 2 == 0 ||
        (out > 0 && w->shape[0] != out) || w->shape[0] < 1 || w->shape[0] > MAX_MID || b->ndim != 1 ||
        b->shape[0] != w->shape[0])
        return t5_fail(RP_E_ARG,
                       "%s: classifier.%s.weight must have the shape (%s, %lld, odd width up to %d), with a bias for "
                       "each output (give the predictor of this model)",
                       path, layer, out > 0 ? "20" : "outputs", (long long)in, (int)MAX_TAPS);
    const int64_t n_out = w->shape[0], taps = w->shape[2], n = n_out * taps * in;
    float *plain = malloc((size_t)n * 4);
    *c = (convolution){in, n_out, taps, malloc((size_t)n * 4), malloc((size_t)n_out * 4)};
    rp_status status = plain != NULL && c->weight != NULL && c->bias != NULL ? RP_OK : t5_no_memory();
    if (status == RP_OK && (!io_tensor_read(w, 0, n, plain) || !io_tensor_read(b, 0, n_out, c->bias)))
        status = t5_fail(RP_E_ARG, "%s: classifier.%s has no floating-point numbers (give f32 or f16)", path, layer);
    const int64_t damaged = io_tensor_not_finite(w) + io_tensor_not_finite(b);
    if (status == RP_OK && damaged > 0)
        status = t5_fail(RP_E_ARG, "%s: %lld numbers of classifier.%s are NaN or infinite (download the file again)",
                         path, (long long)damaged, layer);
    for (int64_t k = 0; k < n && status == RP_OK; k++) {
        const int64_t o = k / (taps * in), t = k / in % taps, i = k % in;
        c->weight[k] = plain[(o * in + i) * taps + t];
    }
    free(plain);
    return status;
}

rp_status rp_t5_structure_open(rp_t5_structure **structure, const rp_t5 *m, const char *path)
{
    char err[IO_ERR_MAX];
    io_checkpoint *file;
    if (structure == NULL || m == NULL || path == NULL)
        return t5_fail(RP_E_ARG, "structure, model or path is NULL; pass all of them");
    *structure = NULL;
    if (io_checkpoint_open(&file, path, err) != IO_OK)
        return t5_fail(RP_E_ARG, "%s", err);
    rp_t5_structure *s = calloc(1, sizeof *s);
    rp_status status = s != NULL ? RP_OK : t5_no_memory();
    if (status == RP_OK) {
        s->model = m;
        status = read_convolution(&s->first, file, path, "0", m->config.d_model, 0);
    }
    if (status == RP_OK)
        status = read_convolution(&s->second, file, path, "3", s->first.out, LETTERS);
    if (status == RP_OK && io_checkpoint_unchanged(file, err) != IO_OK)
        status = t5_fail(RP_E_ARG, "%s", err);
    io_checkpoint_close(file);
    if (status == RP_OK)
        *structure = s;
    else
        rp_t5_structure_close(s);
    return status;
}

void rp_t5_structure_close(rp_t5_structure *s)
{
    if (s == NULL)
        return;
    free(s->first.weight);
    free(s->first.bias);
    free(s->second.weight);
    free(s->second.bias);
    free(s);
}
