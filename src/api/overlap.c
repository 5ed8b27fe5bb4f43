/* api/overlap.c -- check that outputs do not share memory with inputs or with each other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include <stdio.h>
#include <string.h>

/* Find the range of addresses [*from, *to) that an array occupies. Return false if it has no elements. */
static bool byte_range(const rp_array *a, uintptr_t *from, uintptr_t *to)
{
    uintptr_t low = (uintptr_t)a->data, high = low;
    const int64_t size = (int64_t)rp_dtype_size(a->dtype);
    if (!a->data)
        return false;
    for (int32_t x = 0; x < a->ndim; x++) {
        if (a->shape[x] == 0)
            return false;
        if (a->shape[x] == 1)
            continue; /* the stride is never used and may have any value */
        if (a->stride[x] < 0)
            low -= (uintptr_t)((a->shape[x] - 1) * -a->stride[x] * size);
        else
            high += (uintptr_t)((a->shape[x] - 1) * a->stride[x] * size);
    }
    *from = low;
    *to = high + (uintptr_t)size;
    return true;
}

/* The arrays of a call with their names, outputs first. */
typedef struct listed {
    const char *name;      /* the array's name; for arrays of terms and masks, only the prefix */
    int32_t term, x, mask; /* indices of the term, of its array, of the mask; -1 if not one */
    const rp_array *a;
} listed;
#define MAX_LISTED (29 + 3 * RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS)

static void list(listed *all, int *n, const char *name, const rp_array *a)
{
    if (a->data)
        all[(*n)++] = (listed){name, -1, -1, -1, a};
}

static void list_terms(listed *all, int *n, const rp_plan *plan, const char *prefix,
                       const rp_array arrays[][RP_MAX_ARRAYS])
{
    for (int32_t m = 0; m < plan->desc.n_terms; m++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (rp_term_array(plan->terms[m].kind, x) && arrays[m][x].data)
                all[(*n)++] = (listed){prefix, m, x, -1, &arrays[m][x]};
}

static const char *name_of(const rp_plan *plan, const listed *l, char *text, size_t size)
{
    if (l->term >= 0)
        snprintf(text, size, "%sterm[%d].%s", l->name, (int)l->term, rp_term_array(plan->terms[l->term].kind, l->x));
    else
        snprintf(text, size, "mask[%d]", (int)l->mask);
    return l->term < 0 && l->mask < 0 ? l->name : text;
}

static void list_inputs(listed *all, int *n, const rp_plan *plan, const rp_tensors *t)
{
    list(all, n, "q", &t->q);
    list(all, n, "k", &t->k);
    list(all, n, "v", &t->v);
    list(all, n, "tensors.q_offset", &t->q_offset);
    list(all, n, "tensors.key_norms", &t->key_norms);
    list(all, n, "own_keys", &t->own_keys);
    list(all, n, "state_in", &t->state_in);
    list_terms(all, n, plan, "", t->term);
    for (int32_t m = 0; m < plan->desc.n_masks; m++)
        if (plan->mask_entry[m]->info.axes && t->mask[m].data)
            all[(*n)++] = (listed){"", -1, -1, m, &t->mask[m]};
}

/* Return true if an output is the array that it continues (state_out is state_in, dq_out is dq_in, or dkv_out is
 * dkv_in): the same elements in the same memory. */
static bool in_place(const listed *output, const listed *other)
{
    const rp_array *a = output->a, *b = other->a;
    const bool continued = (strcmp(output->name, "state_out") == 0 && strcmp(other->name, "state_in") == 0) ||
                           (strcmp(output->name, "dq_out") == 0 && strcmp(other->name, "dq_in") == 0) ||
                           (strcmp(output->name, "dkv_out") == 0 && strcmp(other->name, "dkv_in") == 0);
    return continued && a->data == b->data && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

static rp_status overlap(const rp_plan *plan, const listed *all, int outputs, int n)
{
    char name[96], other[96];
    for (int pass = 0; pass < 2; pass++) /* report overlaps with inputs first, because they are the worse mistake */
        for (int o = 0; o < outputs; o++) {
            uintptr_t from, to, from2, to2;
            if (!byte_range(all[o].a, &from, &to))
                continue;
            for (int x = pass ? o + 1 : outputs; x < (pass ? outputs : n); x++)
                if (byte_range(all[x].a, &from2, &to2) && from < to2 && from2 < to && !in_place(&all[o], &all[x]))
                    return rpi_fail(RP_E_OVERLAP, "%s overlaps %s; outputs must not share memory",
                                    name_of(plan, &all[o], name, sizeof name),
                                    name_of(plan, &all[x], other, sizeof other));
        }
    return RP_OK;
}

/* Check that outputs do not share memory with the pages of keys and values. */
static rp_status overlap_pages(const rp_plan *plan, const rp_tensors *t, const listed *all, int outputs)
{
    const rp_pages *p = &t->pages;
    const int64_t used = p->k && p->page > 0 ? (p->len_k + p->page - 1) / p->page : 0;
    const struct {
        const void *const *page;
        int64_t n[3], stride[3];
    } sides[] = {{p->k,
                  {plan->desc.kv_heads, p->page, plan->desc.dim_k},
                  {p->k_head, p->k_key, p->k_channel ? p->k_channel : 1}},
                 {p->v, {plan->desc.kv_heads, p->page, plan->desc.dim_v}, {p->v_head, p->v_key, 1}}};
    for (int o = 0; o < outputs; o++)
        for (int64_t m = 0; m < plan->desc.batch * used * 2; m++) {
            uintptr_t from, to, from2, to2;
            const int64_t at = m / 2 / used * p->per_batch + m / 2 % used;
            if (!sides[m % 2].page)
                continue;
            rp_array a = rp_array_of(sides[m % 2].page[at], plan->desc.dtype, 3, sides[m % 2].n);
            memcpy(a.stride, sides[m % 2].stride, sizeof sides->stride);
            if (byte_range(all[o].a, &from, &to) && byte_range(&a, &from2, &to2) && from < to2 && from2 < to)
                return rpi_fail(RP_E_OVERLAP, "%s overlaps page %lld of %s; outputs must not share memory", all[o].name,
                                (long long)at, m % 2 ? "v" : "k");
        }
    return RP_OK;
}

/* Check that the listed outputs do not overlap inputs or pages. */
static rp_status against_inputs(const rp_plan *plan, const rp_tensors *t, listed *all, int outputs)
{
    int n = outputs;
    list_inputs(all, &n, plan, t);
    const rp_status status = overlap(plan, all, outputs, n);
    return status == RP_OK ? overlap_pages(plan, t, all, outputs) : status;
}

rp_status rpi_args_overlap(const rp_plan *plan, const rp_tensors *t)
{
    listed all[MAX_LISTED];
    int n = 0;
    list(all, &n, "the output", &t->out);
    list(all, &n, "lse", &t->lse);
    list(all, &n, "state_out", &t->state_out);
    list(all, &n, "weights", &t->weights);
    list(all, &n, "profile", &t->profile);
    list(all, &n, "key_mass", &t->key_mass);
    list(all, &n, "entropy", &t->entropy);
    return against_inputs(plan, t, all, n);
}

static void list_gradients(listed *all, int *n, const rp_plan *plan, const rp_grads *g)
{
    list(all, n, "dq", &g->dq);
    list(all, n, "dk", &g->dk);
    list(all, n, "dv", &g->dv);
    list(all, n, "dq_out", &g->dq_out);
    list(all, n, "dkv_out", &g->dkv_out);
    list_terms(all, n, plan, "the gradient of ", g->term);
    list(all, n, "the gradient of softcap", rpi_softcap_gradient(g, RPI_BEFORE));
    list(all, n, "the gradient of softcap_after", rpi_softcap_gradient(g, RPI_AFTER));
}

static void list_output_gradients(listed *all, int *n, const rp_grads *g)
{
    list(all, n, "dout", &g->dout);
    list(all, n, "dlse", &g->dlse);
    list(all, n, "dq_in", &g->dq_in);
    list(all, n, "dkv_in", &g->dkv_in);
    for (int x = 0; x < RPI_WEIGHT_GRADIENTS; x++) {
        const char *name;
        const rp_array *a = rpi_weight_gradient(g, x, &name);
        list(all, n, name, a);
    }
}

rp_status rpi_derivatives_overlap(const rp_plan *plan, const rp_tensors *t, const rp_grads *g, const rp_tangents *given)
{
    static const rp_grads no_gradients = {.size = sizeof no_gradients};
    static const rp_tangents no_tangents = {.size = sizeof no_tangents};
    listed all[MAX_LISTED];
    int n = 0;
    g = g ? g : &no_gradients;
    given = given ? given : &no_tangents;
    list_gradients(all, &n, plan, g);
    list(all, &n, "the tangent of out", &given->out);
    list(all, &n, "the tangent of lse", &given->lse);
    const int outputs = n;
    list_output_gradients(all, &n, g);
    list(all, &n, "the tangent of q", &given->q);
    list(all, &n, "the tangent of k", &given->k);
    list(all, &n, "the tangent of v", &given->v);
    list_terms(all, &n, plan, "the tangent of ", given->term);
    list(all, &n, "the tangent of softcap", rpi_softcap_tangent(given, RPI_BEFORE));
    list(all, &n, "the tangent of softcap_after", rpi_softcap_tangent(given, RPI_AFTER));
    list(all, &n, "out", &t->out);
    list(all, &n, "lse", &t->lse);
    list_inputs(all, &n, plan, t);
    return overlap(plan, all, outputs, n);
}

rp_status rpi_output_overlap(const rp_plan *plan, const rp_tensors *t, const rp_array *out, const char *name)
{
    listed all[MAX_LISTED];
    int n = 0;
    list(all, &n, name, out);
    return against_inputs(plan, t, all, n);
}
