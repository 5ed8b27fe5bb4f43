/* adamw.c -- the learning rate of a step, gradient clipping, and AdamW (Loshchilov, Hutter 2019, algorithm 2).
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <math.h>
#include <stdlib.h>

double nn_rate(const nn_config *c, int64_t step)
{
    if (step < c->warmup)
        return c->lr * (double)(step + 1) / (double)c->warmup;
    const double left = (double)(c->steps - c->warmup), done = left > 0 ? (double)(step - c->warmup) / left : 1;
    return c->lr_min + (c->lr - c->lr_min) * 0.5 * (1 + cos(3.141592653589793 * fmin(done, 1)));
}

#ifdef LAYERS_F64
#define root sqrt
#else
#define root sqrtf
#endif

enum { CHUNK = 1 << 14 }; /* weights that one task updates */

typedef struct adamw_job {
    nn_model *m;
    const nn_param *p;
    double *squares;   /* sum of squared gradients in each chunk */
    real rate, shrink; /* learning rate of p; learning rate times weight decay */
    real clip, b1, b2, eps;
    real correct1, correct2; /* factors for the bias correction of the two averages */
} adamw_job;

static void squares_task(void *context, int64_t t, int32_t worker)
{
    const adamw_job *j = context;
    const int64_t from = t * CHUNK, to = from + CHUNK < j->m->n_weights ? from + CHUNK : j->m->n_weights;
    double lane[8] = {0};
    (void)worker;
    for (int64_t x = from; x < to; x++) /* includes the gaps between parameters, where gradients are zero */
        lane[x % 8] += (double)j->m->g[x] * (double)j->m->g[x];
    j->squares[t] = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static void step_task(void *context, int64_t t, int32_t worker)
{
    const adamw_job *j = context;
    const int64_t from = t * CHUNK, to = from + CHUNK < j->p->size ? from + CHUNK : j->p->size;
    real *w = j->m->w + j->p->offset, *m = j->m->m + j->p->offset, *v = j->m->v + j->p->offset;
    const real *g = j->m->g + j->p->offset, min = (real)j->p->min;
    (void)worker;
    for (int64_t x = from; x < to; x++) {
        const real y = g[x] * j->clip;
        m[x] = j->b1 * m[x] + (1 - j->b1) * y;
        v[x] = j->b2 * v[x] + (1 - j->b2) * y * y;
        w[x] -= j->shrink * w[x];
        w[x] -= j->rate * (m[x] * j->correct1) / (root(v[x] * j->correct2) + j->eps);
        w[x] = w[x] < min ? min : w[x];
    }
}

double nn_adamw(nn_model *m, rp_pool *pool, int64_t step)
{
    const nn_config *c = &m->c;
    const int64_t chunks = (m->n_weights + CHUNK - 1) / CHUNK;
    adamw_job j = {.m = m, .squares = malloc((size_t)chunks * sizeof(double))};
    double sum = 0;
    if (!j.squares)
        return -1;
    rp_pool_run(pool, chunks, squares_task, &j);
    for (int64_t t = 0; t < chunks; t++)
        sum += j.squares[t];
    free(j.squares);
    const double norm = sqrt(sum), rate = nn_rate(c, step), t = (double)(step + 1);
    if (!isfinite(norm)) /* return without changing weights; the caller stops the run */
        return norm;
    j.clip = (real)(c->clip > 0 && norm > c->clip ? c->clip / norm : 1);
    j.b1 = (real)c->beta1;
    j.b2 = (real)c->beta2;
    j.eps = (real)c->eps;
    j.correct1 = (real)(1 / (1 - pow(c->beta1, t)));
    j.correct2 = (real)(1 / (1 - pow(c->beta2, t)));
    for (int32_t n = 0; n < m->n_params; n++) {
        const nn_param *p = j.p = &m->params[n];
        const double own = p->of_term ? rate * c->lr_terms : rate;
        j.rate = (real)own;
        j.shrink = (real)(own * (p->of_term ? c->weight_decay_terms : p->decay ? c->weight_decay : 0));
        rp_pool_run(pool, (j.p->size + CHUNK - 1) / CHUNK, step_task, &j);
    }
    return norm;
}
