/* net_fire.c -- the gradients of c and of the factor of L in FIRE. For the operator these are plain numbers without
 * gradients. A dense bias of zeros has the gradients of the scores as its gradient. This file computes them for one
 * block of rows after another, and multiplies them by the derivatives of FIRE's bias.
 *
 * The bias of a pair is f(x) with x = psi(d) / (psi(max(L, p)) + eps), psi(d) = log(1 + |c| d), where d is the distance
 * and p the position of the query. f is a network of ReLUs with one input, so its slope is constant between the inputs
 * at which units switch on or off. In a row, x grows with d, so keys with the same slope are neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include <math.h>
#include <stdlib.h>

int64_t nn_fire_rows(const nn_net *n, int32_t stack)
{
    enum { ROW_STEP = 96 }; /* rp_plan_row_step */
    return n->of[stack].capacity < ROW_STEP ? n->of[stack].capacity : ROW_STEP;
}

int nn_add_pairs(rp_desc *desc, rp_term terms[RP_MAX_TERMS], char err[NN_ERR_MAX])
{
    if (desc->n_terms == RP_MAX_TERMS)
        return nn_fail(err, "fire_scales = learned: position has more than %d terms (remove one of them)",
                       RP_MAX_TERMS - 1);
    terms[desc->n_terms++] = rp_term_init(RP_TERM_DENSE);
    return 0;
}

/* ------------------------------------------------------------------------------------------------ the network */

/* The arrays of the network as in terms/fire.h, without the last bias. The last layer has one row per head, or one row
 * for all heads. */
typedef struct network {
    const real *w1, *b1, *w2, *b2, *w3; /* w3 is NULL if the network has two layers */
    int64_t width, width2, heads;       /* heads: rows of the last layer */
} network;

/* Near input x, row v of w2 times the first layer, plus `bias`, is a linear function of the input. Return its value at
 * x, and set *slope. */
static double line_of(const network *f, int64_t v, double bias, double x, double *slope)
{
    double value = bias;
    *slope = 0;
    for (int64_t u = 0; u < f->width; u++) {
        const double first = (double)f->w1[u] * x + (double)f->b1[u], w = (double)f->w2[v * f->width + u];
        value += first > 0 ? w * first : 0;
        *slope += first > 0 ? w * (double)f->w1[u] : 0;
    }
    return value;
}

/* Return the derivative of the bias of head h at input x. */
static double slope_of(const network *f, int64_t h, double x)
{
    double sum = 0, slope;
    if (!f->w3) {
        line_of(f, h, 0, x, &sum);
        return sum;
    }
    for (int64_t v = 0; v < f->width2; v++)
        sum += line_of(f, v, (double)f->b2[v], x, &slope) > 0 ? (double)f->w3[h * f->width2 + v] * slope : 0;
    return sum;
}

static int64_t max_pieces(const network *f)
{
    return f->width + 2 + (f->width + 1) * f->width2;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Return an input between the begin of piece k of n and its end. */
static double middle_of(const double *start, int64_t k, int64_t n)
{
    return k + 1 < n ? 0.5 * (start[k] + start[k + 1]) : 2 * start[k] + 1;
}

/* List the pieces between inputs at which a unit switches: the first input of each, in ascending order, and the slope
 * of each head [max_pieces, heads]. Return their number. */
static int64_t list_pieces(const network *f, double *start, double *slopes)
{
    int64_t n = 1;
    start[0] = 0; /* inputs are not negative */
    for (int64_t u = 0; u < f->width; u++) {
        const double x = -(double)f->b1[u] / (double)f->w1[u];
        if (x > 0 && x < HUGE_VAL)
            start[n++] = x;
    }
    qsort(start, (size_t)n, sizeof *start, ascending);
    const int64_t first = n;
    for (int64_t v = 0; v < f->width2; v++)
        for (int64_t k = 0; k < first; k++) {
            double slope;
            const double middle = middle_of(start, k, first), value = line_of(f, v, (double)f->b2[v], middle, &slope);
            const double x = middle - value / slope;
            if (x > start[k] && x < (k + 1 < first ? start[k + 1] : HUGE_VAL))
                start[n++] = x;
        }
    qsort(start, (size_t)n, sizeof *start, ascending);
    for (int64_t k = 0; k < n; k++)
        for (int64_t h = 0; h < f->heads; h++)
            slopes[k * f->heads + h] = slope_of(f, h, middle_of(start, k, n));
    return n;
}

/* ------------------------------------------------------------------------------------------------ rows of pairs */

typedef struct fire_job {
    const nn_net *n;
    const node *e;
    network f;
    double c, L, eps;   /* c is not negative */
    int64_t n_pieces;   /* pieces of f */
    double *start;      /* their first inputs [max_pieces] */
    double *slopes;     /* their slopes [max_pieces, heads of f] */
    double *psi, *dpsi; /* psi of a distance and its derivative by c. Without given positions, those of the distances
                         * length-1, ..., 1, 0, 1, ..., length-1; otherwise of the keys of a row [worker, length] */
    double *sums;       /* gradients of c and of L for each row of the block [rows, 2] */
    int64_t from, rows; /* the block */
} fire_job;

/* Add the sums of g times x and of g times y to sum[0] and sum[1]. */
static void add_products(const real *g, const double *x, const double *y, int64_t n, double sum[2])
{
    enum { LANES = 8 };
    double a[LANES] = {0}, b[LANES] = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int64_t lane = 0; lane < LANES; lane++) {
            a[lane] += (double)g[k + lane] * x[k + lane];
            b[lane] += (double)g[k + lane] * y[k + lane];
        }
    for (; k < n; k++) {
        a[0] += (double)g[k] * x[k];
        b[0] += (double)g[k] * y[k];
    }
    for (int lane = 0; lane < LANES; lane++) {
        sum[0] += a[lane];
        sum[1] += b[lane];
    }
}

/* Add the part of keys [from, to) of row r of the block, which are in one piece: the sums over all heads of slope g psi
 * and slope g dpsi. */
static void add_piece(const fire_job *j, int64_t r, int64_t piece, int64_t from, int64_t to, const double *psi,
                      const double *dpsi, double sum[2])
{
    const int64_t heads = j->n->m->c.heads, length = j->n->of[j->e->stack].length;
    const double *slopes = &j->slopes[piece * j->f.heads];
    for (int64_t x = 0; x < j->n->batch * heads; x++) {
        const real *g = j->n->pairs + (x * j->rows + r) * length;
        double products[2] = {0};
        add_products(g + from, psi + from, dpsi + from, to - from, products);
        const double slope = slopes[j->f.heads > 1 ? x % heads : 0];
        sum[0] += slope * products[0];
        sum[1] += slope * products[1];
    }
}

/* Compute the gradients of row r of the block. */
static void sum_row(void *context, int64_t r, int32_t worker)
{
    const fire_job *j = context;
    const sequence *q = &j->n->of[j->e->stack];
    const int64_t length = q->length, i = j->from + r;
    double *psi = j->psi + length - 1 - i, *dpsi = j->dpsi + length - 1 - i, sum[2] = {0};
    const double at = q->positions ? (double)q->positions[i] : (double)i, most = fmax(j->L, at);
    if (q->positions) {
        psi = j->psi + worker * length;
        dpsi = j->dpsi + worker * length;
        for (int64_t k = 0; k < length; k++) {
            const double d = fabs((double)q->positions[k] - at);
            psi[k] = log1p(j->c * d);
            dpsi[k] = d / (1 + j->c * d);
        }
    }
    const double below = log1p(j->c * most) + j->eps;
    const bool causal = nn_stack_of(j->n, j->e)->causal;
    for (int side = 0; side < 2 - causal; side++) { /* keys up to the query, from near to far, then the keys after it */
        int64_t near = side ? i + 1 : i, left = side ? length - near : near + 1;
        for (int64_t piece = 0; left > 0; piece++) {
            const bool last = piece + 1 == j->n_pieces;
            const double end = last ? 0 : j->start[piece + 1] * below;
            int64_t low = last ? left : 0, high = left; /* the number of keys of the piece: psi is below `end` */
            while (low < high) {
                const int64_t middle = (low + high) / 2;
                if (psi[side ? near + middle : near - middle] < end)
                    low = middle + 1;
                else
                    high = middle;
            }
            if (low > 0)
                add_piece(j, r, piece, side ? near : near - low + 1, side ? near + low : near + 1, psi, dpsi, sum);
            near += side ? low : -low;
            left -= low;
        }
    }
    const double of_most = sum[0] / below / below;
    j->sums[2 * r] = sum[1] / below - of_most * most / (1 + j->c * most);
    j->sums[2 * r + 1] = j->L > at ? -of_most * j->c / (1 + j->c * j->L) : 0;
}

/* ------------------------------------------------------------------------------------------------ a layer */

bool nn_has_fire_scales(const nn_net *n, const node *e)
{
    int32_t param[2];
    bool found = false;
    for (int32_t t = 0; t < e->n_terms; t++)
        found |= nn_fire_scales(n->m, e->stack, e->layer, t, param);
    return found;
}

/* Add up the gradients of c and L of one term over the block of rows in n->pairs. */
static int add_block(nn_net *n, const node *e, int32_t t, const rp_term *term, int64_t from, int64_t rows,
                     double sum[2])
{
    const int64_t length = n->of[e->stack].length;
    const bool given = n->of[e->stack].positions != NULL, three = e->array[t][4] >= 0;
    const nn_param *last = &n->m->params[e->array[t][three ? 4 : 2]];
    fire_job j = {.n = n,
                  .e = e,
                  .f = {.w1 = nn_weight(n, e->array[t][0]),
                        .b1 = nn_weight(n, e->array[t][1]),
                        .w2 = nn_weight(n, e->array[t][2]),
                        .b2 = nn_weight(n, e->array[t][3]),
                        .w3 = nn_weight(n, e->array[t][4]),
                        .width = n->m->params[e->array[t][0]].shape[0],
                        .width2 = three ? last->shape[1] : 0,
                        .heads = last->shape[0]},
                  .c = fabs(term->c),
                  .L = term->L,
                  .eps = term->eps,
                  .from = from,
                  .rows = rows};
    const int64_t pieces = max_pieces(&j.f), distances = given ? rp_pool_threads(n->pool) * length : 2 * length - 1;
    double *memory = malloc((size_t)(pieces * (1 + j.f.heads) + 2 * distances + 2 * rows) * sizeof(double));
    if (!memory)
        return nn_fail(n->err, "lab: out of memory while computing the gradients of fire (close other programs)");
    j.start = memory;
    j.slopes = j.start + pieces;
    j.psi = j.slopes + pieces * j.f.heads;
    j.dpsi = j.psi + distances;
    j.sums = j.dpsi + distances;
    j.n_pieces = list_pieces(&j.f, j.start, j.slopes);
    for (int64_t x = 0; x < distances && !given; x++) {
        const double d = fabs((double)(x - (length - 1)));
        j.psi[x] = log1p(j.c * d);
        j.dpsi[x] = d / (1 + j.c * d);
    }
    rp_pool_run(n->pool, rows, sum_row, &j);
    for (int64_t r = 0; r < rows; r++) {
        sum[0] += term->c < 0 ? -j.sums[2 * r] : j.sums[2 * r];
        sum[1] += j.sums[2 * r + 1];
    }
    free(memory);
    return 0;
}

/* Return rows [from, from + rows) of an array [batch, heads, length, ...]. */
static rp_array rows_of(rp_array a, int64_t from, int64_t rows)
{
    a.data = (real *)a.data + from * a.stride[2];
    a.shape[2] = rows;
    return a;
}

/* Compute the gradients of the scores of a block of rows. `zeros` has `length` zeros. */
static rp_status compute_pairs(nn_net *n, const node *e, const rp_plan *plan, const rp_tensors *t, const rp_grads *g,
                               real *zeros, int64_t from, int64_t rows)
{
    const int64_t length = n->of[e->stack].length, all[4] = {n->batch, n->m->c.heads, length, length},
                  block[4] = {n->batch, n->m->c.heads, rows, length};
    rp_tensors of_rows = *t;
    rp_grads to = rp_grads_init();
    rp_array *bias = &of_rows.term[e->n_terms][0];
    *bias = rp_array_of(zeros, LAYERS_REAL, 4, all);
    bias->stride[0] = bias->stride[1] = bias->stride[2] = 0;
    of_rows.q = rows_of(t->q, from, rows);
    of_rows.out = rows_of(t->out, from, rows);
    of_rows.lse = rows_of(t->lse, from, rows);
    of_rows.row_from = from;
    of_rows.row_to = from + rows;
    to.dout = rows_of(g->dout, from, rows);
    to.term[e->n_terms][0] = rp_array_of(n->pairs, LAYERS_REAL, 4, block);
    return rp_backward(plan, &of_rows, &to, n->work);
}

int nn_fire_backward(nn_net *n, const node *e, const rp_plan *plan, const rp_tensors *t, const rp_grads *g)
{
    const int64_t length = n->of[e->stack].length, rows = nn_fire_rows(n, e->stack);
    rp_term terms[RP_MAX_TERMS];
    double sum[RP_MAX_TERMS][2] = {{0}};
    int32_t param[2];
    int code = 0;
    real *zeros = calloc((size_t)length, sizeof *zeros);
    if (!zeros)
        return nn_fail(n->err, "lab: out of memory while computing the gradients of fire (close other programs)");
    nn_layer_terms(n->m, e->stack, e->layer, terms);
    for (int64_t from = 0; from < length && code == 0; from += rows) {
        const int64_t block = length - from < rows ? length - from : rows;
        if (compute_pairs(n, e, plan, t, g, zeros, from, block) != RP_OK)
            code = nn_fail(n->err, "attention of layer %d, scales of fire: %s", (int)e->layer, NN_WORDS(NULL));
        for (int32_t x = 0; x < e->n_terms && code == 0; x++)
            if (nn_fire_scales(n->m, e->stack, e->layer, x, param))
                code = add_block(n, e, x, &terms[x], from, block, sum[x]);
    }
    free(zeros);
    for (int32_t x = 0; x < e->n_terms && code == 0; x++)
        if (nn_fire_scales(n->m, e->stack, e->layer, x, param)) {
            nn_gradient(n, param[0])[0] += (real)sum[x][0];
            nn_gradient(n, param[1])[0] += (real)(sum[x][1] * n->m->stack[e->stack].terms[x].term.L);
        }
    return code;
}
