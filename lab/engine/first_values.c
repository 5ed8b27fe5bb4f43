/* first_values.c -- the initial values of weights. Arrays of a position term are initialized as the term's facts say
 * (facts.h); other parameters are initialized by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include "src/base/random.h"
#include <relpos/facts.h>
#include <math.h>
#include <string.h>

/* Return the random stream for a parameter. It depends only on the name, so models with different position terms start
 * with the same values in all other parameters. */
static uint64_t stream_of(const char *name)
{
    uint64_t z = 0;
    for (; *name; name++)
        z = rpi_mix64(z ^ (uint64_t)(unsigned char)*name) + 0x9e3779b97f4a7c15u;
    return z;
}

static void fill(const nn_model *m, const nn_param *p, const rp_values *how)
{
    const uint64_t stream = stream_of(p->name), seed = (uint64_t)m->c.seed;
    const int64_t last = p->ndim ? p->shape[p->ndim - 1] : 1, before = p->ndim > 1 ? p->shape[p->ndim - 2] : 1;
    const double fan = how->rule == RP_RULE_XAVIER ? sqrt(6.0 / (double)(last + before))
                                                   : 1 / sqrt(how->a > 0 ? how->a : (double)last);
    for (int64_t x = 0; x < p->size; x++) {
        double y = 0;
        switch (how->rule) {
        case RP_RULE_UNIFORM: y = how->a + (how->b - how->a) * layers_uniform(seed, stream, (uint64_t)x); break;
        case RP_RULE_NEGATIVE: y = -how->a * fabs(layers_normal(seed, stream, (uint64_t)x)); break;
        case RP_RULE_XAVIER:
        case RP_RULE_UNIFORM_FAN: y = fan * (2 * layers_uniform(seed, stream, (uint64_t)x) - 1); break;
        case RP_RULE_ZERO: break;
        case RP_RULE_SLOPES: y = rp_alibi_slope(x, p->size); break;
        case RP_RULE_NORMAL_FAN: y = layers_normal(seed, stream, (uint64_t)x) / sqrt((double)last); break;
        default: y = (how->a > 0 ? how->a : 0.02) * layers_normal(seed, stream, (uint64_t)x); break;
        }
        m->w[p->offset + x] = (real)fmax(p->min, y);
    }
}

static void fill_with(const nn_model *m, const nn_param *p, real x)
{
    for (int64_t n = 0; n < p->size; n++)
        m->w[p->offset + n] = x;
}

void nn_first_values(const nn_model *m, const nn_param *p)
{
    const size_t n = strlen(p->name);
    const char *array = strrchr(p->name, '.') + 1;
    for (int32_t k = 0; k < m->n_stacks; k++)
        for (int32_t t = 0; t < m->stack[k].n_terms; t++) { /* "….t5.table" */
            const nn_term *term = &m->stack[k].terms[t];
            const size_t name = strlen(term->name), tail = name + 1 + strlen(array);
            if (n <= tail || p->name[n - tail - 1] != '.' || strncmp(p->name + n - tail, term->name, name) != 0)
                continue;
            if (strcmp(array, "c") == 0 || strcmp(array, "L_factor") == 0) { /* learned scales of fire */
                fill_with(m, p, *array == 'c' ? (real)term->term.c : 1);
                return;
            }
            const rp_array_facts *about = NULL;
            for (int x = 0; (about = rp_term_array_about(term->term.kind, x)) && strcmp(about->name, array) != 0; x++)
                ;
            if (about) {
                fill(m, p, &about->start);
                return;
            }
        }
    const bool into_residual = strstr(p->name, ".out.weight") || strstr(p->name, ".down.weight");
    if (strcmp(array, "log_scale") == 0)
        fill_with(m, p, (real)(1 / log((double)m->c.length)));
    else if (strstr(p->name, "norm.weight"))
        fill_with(m, p, 1);
    else if (strcmp(array, "bias") == 0) /* biases of norms and gates */
        fill_with(m, p, 0);
    else if (strcmp(p->name, "embedding.weight") == 0)
        fill(m, p, &(rp_values){.rule = RP_RULE_NORMAL, .a = nn_embedding_init(&m->c)});
    else if (strstr(p->name, "positions.weight")) /* as large as the embedding to which they are added */
        fill(m, p, &(rp_values){.rule = RP_RULE_NORMAL, .a = nn_sinusoidal_scale(&m->c)});
    else /* 2 x layers matrices write to the residual stream: they start smaller (Radford 2019) */
        fill(m, p,
             &(rp_values){.rule = RP_RULE_NORMAL,
                          .a = into_residual ? m->c.init / sqrt(2.0 * (double)m->c.layers) : m->c.init});
}
