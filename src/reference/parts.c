/* reference/parts.c -- the parts of a row: list and compute each summand of rpi_row_scores and rpi_row_mix separately.
 * Independent of the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#include "row.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Append a part. If its name is in use, append a number to it: "log 2". */
static rp_part *append(rp_part *part, int32_t *n, rp_part_kind kind, int32_t term, int64_t length, const char *name,
                       const char *formula)
{
    rp_part *p = &part[*n];
    int same = 1;
    snprintf(p->name, sizeof p->name, "%s", name);
    for (int32_t m = 0; m < *n; m++)
        if (strcmp(part[m].name, p->name) == 0) {
            snprintf(p->name, sizeof p->name, "%s %d", name, ++same);
            m = -1;
        }
    p->kind = kind;
    p->term = term;
    p->array = -1;
    p->length = length;
    p->formula = formula;
    ++*n;
    return p;
}

/* Append the products of a term of form VEC: "relkey", or "deberta.k_pos" if the term has two. */
static void append_products(const rpi_row *r, rp_part *part, int32_t *n, int32_t term)
{
    const rpi_scheme *s = r->plan->scheme[term];
    char name[sizeof part->name];
    for (int x = 0; x < 2; x++) {
        const rpi_product *p = &s->product[x];
        if (!p->count || (p->present && !p->present(r->args->term[term])))
            continue;
        snprintf(name, sizeof name, "%s%s%s", rp_term_name(r->plan->terms[term].kind), s->product[1].count ? "." : "",
                 s->product[1].count ? s->array[p->array].name : "");
        append(part, n, p->key_side ? RP_PART_KEY : RP_PART_QUERY, term, r->args->desc.len_k, name, p->shown)->array =
            p->array;
    }
}

int32_t rpi_row_parts(const rpi_row *r, rp_part *part)
{
    const rp_plan *plan = r->plan;
    const rp_desc *d = &r->args->desc;
    const int64_t Lk = d->len_k, Dv = d->dim_v;
    int32_t n = 0;
    append(part, &n, RP_PART_CONTENT, -1, Lk, "content", "scale * q . k");
    if (plan->rotate >= 0)
        append(part, &n, RP_PART_ROTATION, plan->rotate, Lk, rp_term_name(plan->terms[plan->rotate].kind),
               "scale * (R(q) . R(k) - q . k)");
    if (plan->vec >= 0)
        append_products(r, part, &n, plan->vec);
    if (d->softcap > 0)
        append(part, &n, RP_PART_SOFTCAP, -1, Lk, "softcap", "cap(x) - x, x = the sum of the parts before");
    for (int32_t t = 0; t < d->n_terms; t++) {
        const rpi_scheme *s = plan->scheme[t];
        if (s->form == RPI_VEC && s->bias)
            append_products(r, part, &n, t);
        else if (s->form == RPI_OFFSET || s->form == RPI_INDEX || s->form == RPI_TILE)
            append(part, &n, RP_PART_BIAS, t, Lk, rp_term_name(plan->terms[t].kind), s->facts.formula);
    }
    if (d->softcap_after > 0)
        append(part, &n, RP_PART_SOFTCAP_AFTER, -1, Lk, "softcap_after",
               "cap_after(x) - x, x = the sum of the parts before");
    if (d->n_masks)
        append(part, &n, RP_PART_MASK, -1, Lk, "mask", "0, or -inf where masked");
    if (plan->sink >= 0)
        append(part, &n, RP_PART_SINK, plan->sink, 1, rp_term_name(plan->terms[plan->sink].kind),
               plan->scheme[plan->sink]->facts.formula);
    if (r->args->v.data)
        append(part, &n, RP_PART_VALUES, -1, Dv, "values", "sum of w v");
    if (r->args->v.data && plan->valvec >= 0)
        append(part, &n, RP_PART_VECTORS, plan->valvec, Dv, rp_term_name(plan->terms[plan->valvec].kind),
               plan->scheme[plan->valvec]->product[0].shown)
            ->array = plan->scheme[plan->valvec]->product[0].array;
    return n;
}

/* Compute a part of the score of key j, given the sum x of the parts before it. */
static double number(rpi_row *r, const rp_part *part, double x, int64_t j)
{
    const rp_desc *d = &r->args->desc;
    const double *k = r->plain_keys + j * d->dim_k, *rotated = r->keys + j * d->dim_k;
    rpi_pair pair = {0};
    if (part->term >= 0)
        pair = rpi_row_pair(r, part->term, j);
    switch (part->kind) {
    case RP_PART_CONTENT: return d->scale * rpi_row_dot(r, r->plain_q, k);
    case RP_PART_ROTATION: return d->scale * (rpi_row_dot(r, r->q, rotated) - rpi_row_dot(r, r->plain_q, k));
    case RP_PART_QUERY:
    case RP_PART_KEY:
        return rpi_vec_factor(pair.scheme, d) *
               rpi_row_product(r, &pair, pair.scheme->product[0].array == part->array ? 0 : 1);
    case RP_PART_BIAS: return rpi_row_bias(r, &pair, j);
    case RP_PART_SOFTCAP: return rpi_row_cap(d->softcap, x, NULL, NULL) - x;
    case RP_PART_SOFTCAP_AFTER: /* -infinity: masked */
        return x == -INFINITY ? 0 : rpi_row_cap(d->softcap_after, x, NULL, NULL) - x;
    case RP_PART_MASK: return r->keep[j] ? 0 : -INFINITY;
    default: return 0;
    }
}

void rpi_row_split(rpi_row *r, const rp_part *part, int32_t n_parts)
{
    for (int64_t j = 0; j < r->args->desc.len_k; j++) {
        double sum = 0;
        for (int32_t n = 0; n < n_parts && part[n].kind <= RP_PART_MASK; n++) {
            const double x = number(r, &part[n], sum, j) + 0.0; /* adding 0.0 turns -0 into 0 */
            sum += x;
            if (part[n].value)
                part[n].value[j] = x;
        }
    }
    for (int32_t n = 0; n < n_parts; n++) {
        if (!part[n].value)
            continue;
        if (part[n].kind == RP_PART_SINK)
            *part[n].value = rpi_sink(r->args, r->b, r->h, r->i);
        else if (part[n].kind == RP_PART_VALUES || part[n].kind == RP_PART_VECTORS)
            rpi_row_sums(r, part[n].kind == RP_PART_VALUES, part[n].kind == RP_PART_VECTORS, part[n].value);
    }
}
