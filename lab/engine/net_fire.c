/* net_fire.c -- the gradients of c and of the factor of L in FIRE. For the operator these are plain numbers without
 * gradients. This file computes the gradients from the gradients of the biases of all pairs, through the small network
 * of the term.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include <math.h>
#include <stdlib.h>

/* The arrays of the network as in terms/fire.h, without the last bias. The last layer has one row per head, or one row
 * for all heads. */
typedef struct network {
    const real *w1, *b1, *w2, *b2, *w3; /* w3 is NULL if the network has two layers */
    int64_t width, width2;
} network;

/* Return the derivative of the bias of head h with respect to the input x of the network. */
static double slope_of(const network *f, int64_t h, double x)
{
    double sum = 0;
    if (!f->w3) {
        for (int64_t u = 0; u < f->width; u++)
            sum += f->w1[u] * x + f->b1[u] > 0 ? (double)f->w2[h * f->width + u] * f->w1[u] : 0;
        return sum;
    }
    for (int64_t v = 0; v < f->width2; v++) {
        double value = f->b2[v], slope = 0;
        for (int64_t u = 0; u < f->width; u++) {
            const double first = f->w1[u] * x + f->b1[u], w = f->w2[v * f->width + u];
            value += first > 0 ? w * first : 0;
            slope += first > 0 ? w * f->w1[u] : 0;
        }
        sum += value > 0 ? (double)f->w3[h * f->width2 + v] * slope : 0;
    }
    return sum;
}

typedef struct fire_job {
    const nn_net *n;
    const node *e;
    const rp_term *term; /* the term, with the c and L of this layer */
    network f;
    bool shared;  /* all heads share the last layer of the network */
    double *sums; /* gradients of c and of L for each head [heads, 2] */
} fire_job;

static void sum_head(void *context, int64_t h, int32_t worker)
{
    const fire_job *j = context;
    const sequence *q = &j->n->of[j->e->stack];
    const int64_t length = q->length;
    const double c = j->term->c, L = j->term->L;
    double *to = &j->sums[2 * h];
    (void)worker;
    to[0] = to[1] = 0;
    for (int64_t i = 0; i < length; i++)
        for (int64_t k = 0; k < length; k++) {
            const double g = j->n->pairs[(h * length + i) * length + k];
            if (g == 0)
                continue;
            const double at = q->positions ? (double)q->positions[i] : (double)i;
            const double d = fabs((q->positions ? (double)q->positions[k] : (double)k) - at), most = fmax(L, at);
            const double above = log1p(c * d), below = log1p(c * most) + j->term->eps;
            const double slope = g * slope_of(&j->f, j->shared ? 0 : h, above / below);
            to[0] += slope * (d / (1 + c * d) - above / below * most / (1 + c * most)) / below;
            to[1] -= L > at ? slope * above / (below * below) * c / (1 + c * L) : 0;
        }
}

bool nn_has_fire_scales(const nn_net *n, const node *e)
{
    int32_t param[2];
    bool found = false;
    for (int32_t t = 0; t < e->n_terms; t++)
        found |= nn_fire_scales(n->m, e->stack, e->layer, t, param);
    return found;
}

int nn_fire_backward(nn_net *n, const node *e)
{
    const int64_t heads = n->m->c.heads;
    rp_term terms[RP_MAX_TERMS];
    nn_layer_terms(n->m, e->stack, e->layer, terms);
    for (int32_t t = 0; t < e->n_terms; t++) {
        int32_t param[2];
        if (!nn_fire_scales(n->m, e->stack, e->layer, t, param))
            continue;
        const real *array[5];
        for (int x = 0; x < 5; x++)
            array[x] = nn_weight(n, e->array[t][x]);
        const bool three = array[4] != NULL;
        const nn_param *last = &n->m->params[e->array[t][three ? 4 : 2]];
        fire_job j = {.n = n,
                      .e = e,
                      .term = &terms[t],
                      .f = {.w1 = array[0],
                            .b1 = array[1],
                            .w2 = array[2],
                            .b2 = array[3],
                            .w3 = array[4],
                            .width = n->m->params[e->array[t][0]].shape[0],
                            .width2 = three ? last->shape[1] : 0},
                      .shared = last->shape[0] != heads,
                      .sums = malloc((size_t)heads * 2 * sizeof(double))};
        if (!j.sums)
            return nn_fail(n->err, "lab: out of memory while computing the gradients of fire (close other programs)");
        rp_pool_run(n->pool, heads, sum_head, &j);
        double c = 0, L = 0;
        for (int64_t h = 0; h < heads; h++) {
            c += j.sums[2 * h];
            L += j.sums[2 * h + 1];
        }
        free(j.sums);
        nn_gradient(n, param[0])[0] += (real)c;
        nn_gradient(n, param[1])[0] += (real)(L * n->m->stack[e->stack].terms[t].term.L);
    }
    return 0;
}
