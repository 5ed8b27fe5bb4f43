/* agree.c -- before a call, all processes compare what they were given; after it, whether it worked. So an error of one
 * process is an error of all, with the same line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[RP_MPI_ERROR_MAX];

const char *rp_mpi_last_error(void)
{
    return last_error;
}

rp_status rpi_mpi_fail(rp_status status, const char *format, ...)
{
    char text[RP_MPI_ERROR_MAX]; /* an argument may be last_error */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(last_error, text, sizeof last_error);
    return status;
}

/* ------------------------------------------------------------------------------------------------ facts */

/* How a fact is printed. */
typedef enum kind { NUMBER, VERSION, ISA, TYPE, WANTED, REAL, CHECKSUM } kind;

enum { FACTS_MAX = 24 + 2 * RP_MAX_TERMS + 2 * RP_MAX_MASKS };
/* What must be equal in all processes. The names are the same everywhere once the numbers of terms and masks are. */
typedef struct facts {
    int32_t status; /* rp_status of the process so far */
    int32_t n;
    uint64_t value[FACTS_MAX];
    char error[RP_MPI_ERROR_MAX];
} facts;

/* Names of the facts of this process. */
typedef struct names {
    kind kind[FACTS_MAX];
    char text[FACTS_MAX][64];
} names;

static uint64_t mix(uint64_t sum, const void *data, size_t size)
{
    const unsigned char *at = data;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t x;
        memcpy(&x, at, 8);
        sum = (sum ^ x) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    for (; size > 0; size--, at++)
        sum = (sum ^ *at) * 0x100000001b3u;
    return sum;
}

/* Return a checksum of the type, the shape and the elements of an array. */
static uint64_t sum_of(uint64_t sum, const rp_array *a)
{
    const size_t size = rp_dtype_size(a->dtype);
    int64_t n = a->data != NULL && a->ndim >= 0 && a->ndim <= RP_MAX_AXES, at[RP_MAX_AXES] = {0};
    sum = mix(sum, &n, sizeof n);
    if (n == 0)
        return sum;
    sum = mix(mix(sum, &a->dtype, sizeof a->dtype), a->shape, (size_t)a->ndim * sizeof *a->shape);
    for (int32_t x = 0; x < a->ndim; x++)
        n *= a->shape[x] > 0 ? a->shape[x] : 0;
    const bool rows = a->ndim > 0 && a->stride[a->ndim - 1] == 1; /* take whole rows */
    const int64_t step = rows ? a->shape[a->ndim - 1] : 1;
    for (; n > 0; n -= step) {
        const char *from = a->data;
        for (int32_t x = 0; x < a->ndim; x++)
            from += at[x] * a->stride[x] * (int64_t)size;
        sum = mix(sum, from, (size_t)step * size);
        for (int32_t x = a->ndim - 1 - rows; x >= 0 && ++at[x] == a->shape[x]; x--)
            at[x] = 0;
    }
    return sum;
}

static void add(facts *f, names *n, kind k, uint64_t value, const char *name, const char *of)
{
    n->kind[f->n] = k;
    snprintf(n->text[f->n], sizeof n->text[0], "%s%s", name, of);
    f->value[f->n++] = value;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Return a checksum of a term or a mask of the description. */
static uint64_t sum_of_term(const rp_mpi_plan *m, int32_t n)
{
    char text[1024] = "";
    rp_term_print(&m->terms[n], text, sizeof text);
    return mix(1, text, strlen(text));
}

static uint64_t sum_of_mask(const rp_mask *mask)
{
    const rp_mask_param *p;
    uint64_t sum = (uint64_t)mask->kind;
    for (int x = 0; (p = rp_mask_param_of(mask->kind, x)) != NULL; x++)
        sum = mix(sum, (const char *)mask + p->offset, sizeof(int64_t));
    return sum;
}

static int isa_number(const char *isa)
{
    int n = 0;
    while (rp_isa_name(n) != NULL && strcmp(rp_isa_name(n), isa) != 0)
        n++;
    return n;
}

static void list_desc(const rp_mpi_plan *m, facts *f, names *n)
{
    const rp_desc *d = &m->desc;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"desc.batch", d->batch},        {"desc.heads", d->heads},        {"desc.kv_heads", d->kv_heads},
                   {"desc.len_q", d->len_q},        {"desc.len_k", d->len_k},        {"desc.dim_k", d->dim_k},
                   {"desc.dim_v", d->dim_v},        {"desc.q_offset", d->q_offset},  {"desc.n_terms", d->n_terms},
                   {"desc.n_masks", d->n_masks},    {"desc.seed", (int64_t)d->seed}, {"desc.flexible", d->flexible},
                   {"desc.precision", d->precision}};
    add(f, n, VERSION, RP_VERSION_MAJOR << 20 | RP_VERSION_MINOR << 10 | RP_VERSION_PATCH, "version of relpos", "");
    add(f, n, TYPE, d->dtype, "desc.dtype", "");
    for (size_t x = 0; x < sizeof numbers / sizeof *numbers; x++)
        add(f, n, NUMBER, (uint64_t)numbers[x].value, numbers[x].name, "");
    /* after what it depends on: with AMX, f32 and f64 have different ones */
    add(f, n, ISA, (uint64_t)isa_number(rp_plan_isa(m->plan)), "instruction set", "");
    add(f, n, REAL, bits_of(d->scale), "desc.scale", "");
    add(f, n, REAL, bits_of(d->softcap), "desc.softcap", "");
    add(f, n, REAL, bits_of(d->softcap_after), "desc.softcap_after", "");
    add(f, n, REAL, bits_of(d->dropout), "desc.dropout", "");
    for (int32_t x = 0; x < d->n_terms; x++)
        add(f, n, CHECKSUM, sum_of_term(m, x), "checksum of ", rp_term_name(m->terms[x].kind));
    for (int32_t x = 0; x < d->n_masks; x++)
        add(f, n, CHECKSUM, sum_of_mask(&m->masks[x]), "checksum of ", rp_mask_name(m->masks[x].kind));
}

static void list_arrays(const rp_mpi_plan *m, const rp_tensors *t, facts *f, names *n)
{
    add(f, n, CHECKSUM, sum_of(1, &t->q_offset), "checksum of ", "q_offset");
    for (int32_t x = 0; x < m->desc.n_terms; x++) {
        uint64_t sum = 1;
        for (int a = 0; rp_term_array(m->terms[x].kind, a) != NULL; a++)
            sum = sum_of(sum, &t->term[x][a]);
        add(f, n, CHECKSUM, sum, "checksum of the arrays of ", rp_term_name(m->terms[x].kind));
    }
    for (int32_t x = 0; x < m->desc.n_masks; x++)
        add(f, n, CHECKSUM, sum_of(1, &t->mask[x]), "checksum of the array of ", rp_mask_name(m->masks[x].kind));
}

/* ------------------------------------------------------------------------------------------------ comparing */

static const char *print(kind k, uint64_t value, char text[32])
{
    double x;
    memcpy(&x, &value, sizeof x);
    switch (k) {
    case NUMBER: snprintf(text, 32, "%lld", (long long)value); break;
    case VERSION:
        snprintf(text, 32, "%d.%d.%d", (int)(value >> 20), (int)(value >> 10 & 1023), (int)(value & 1023));
        break;
    case ISA: snprintf(text, 32, "%s", rp_isa_name((int)value) != NULL ? rp_isa_name((int)value) : "reference"); break;
    case TYPE: snprintf(text, 32, "%s", rp_dtype_name((rp_dtype)value)); break;
    case WANTED: snprintf(text, 32, "%s", value > 0 ? rp_dtype_name((rp_dtype)(value - 1)) : "absent"); break;
    case REAL: snprintf(text, 32, "%.17g", x); break;
    case CHECKSUM: snprintf(text, 32, "%016llx", (unsigned long long)value); break;
    }
    return text;
}

/* Find the first process that differs from rank 0. */
static rp_status compare(const facts *all, int32_t ranks, const names *n)
{
    char theirs[32], ours[32];
    for (int32_t k = 1; k < ranks; k++)
        for (int32_t x = 0; x < all[0].n && x < all[k].n; x++)
            if (all[k].value[x] != all[0].value[x])
                return rpi_mpi_fail(
                    RP_E_ARG, "rank %d: its %s differs from rank 0: %s, not %s; give all processes the same", (int)k,
                    n->text[x], print(n->kind[x], all[k].value[x], theirs), print(n->kind[x], all[0].value[x], ours));
    return RP_OK;
}

/* Gather the facts of all processes. Return the status of the first process that failed, or RP_OK and *all, which the
 * caller frees. *failed receives the number of other processes that failed. */
static rp_status gather(rp_mpi_plan *m, facts *own, facts **all, int *failed)
{
    rpi_exchange *x = &m->exchange;
    rp_status status = RP_OK;
    snprintf(own->error, sizeof own->error, "%s", own->status != RP_OK ? last_error : "");
    *all = m->gathered;
    *failed = 0;
    if (!rpi_exchange_gather(x, own, *all, sizeof *own))
        return rpi_mpi_fail(RP_E_MPI, "%s", x->failure);
    for (int32_t k = 0; k < x->ranks; k++) {
        const facts *f = &(*all)[k];
        *failed += f->status != RP_OK && k != x->rank;
        if (f->status != RP_OK && status == RP_OK)
            status = rpi_mpi_fail((rp_status)f->status, "rank %d: %s", (int)k, f->error);
    }
    return status;
}

/* Make sure that all processes succeeded so far and list the same facts. */
static rp_status agree(rp_mpi_plan *m, facts *own, const names *n)
{
    facts *all;
    int failed;
    const rp_status status = gather(m, own, &all, &failed);
    return status == RP_OK ? compare(all, m->exchange.ranks, n) : status;
}

rp_status rpi_agree_on_desc(rp_mpi_plan *m, rp_status own)
{
    facts f = {.status = own};
    names n;
    if (own == RP_OK)
        list_desc(m, &f, &n);
    return agree(m, &f, &n);
}

rp_status rpi_agree_on_arrays(rp_mpi_plan *m, const rp_tensors *t, rp_status own)
{
    facts f = {.status = own};
    names n;
    if (own == RP_OK)
        list_arrays(m, t, &f, &n);
    return agree(m, &f, &n);
}

/* List the types of the arrays that travel, and which gradients are wanted. */
static void list_gradients(const rp_mpi_plan *m, const rp_tensors *t, const rp_grads *g, facts *f, names *n)
{
    const struct {
        const rp_array *a;
        const char *name;
    } arrays[] = {{&t->lse, "lse"}, {&g->dout, "dout"}, {&g->dlse, "dlse"},
                  {&g->dq, "dq"},   {&g->dk, "dk"},     {&g->dv, "dv"}};
    for (size_t x = 0; x < sizeof arrays / sizeof *arrays; x++)
        add(f, n, WANTED, arrays[x].a->data != NULL ? (uint64_t)arrays[x].a->dtype + 1 : 0, "type of ", arrays[x].name);
    for (int32_t x = 0; x < m->desc.n_terms; x++) {
        const char *name = rp_term_name(m->terms[x].kind);
        uint64_t wanted = 0;
        for (int a = 0; rp_term_array(m->terms[x].kind, a) != NULL; a++)
            wanted = mix(wanted + (g->term[x][a].data != NULL), g->term[x][a].shape, sizeof g->term[x][a].shape);
        add(f, n, CHECKSUM, wanted, "choice of gradients of ", name);
    }
}

rp_status rpi_agree_on_gradients(rp_mpi_plan *m, const rp_tensors *t, const rp_grads *g, rp_status own)
{
    facts f = {.status = own};
    names n;
    if (own == RP_OK) {
        list_arrays(m, t, &f, &n);
        list_gradients(m, t, g, &f, &n);
    }
    return agree(m, &f, &n);
}

rp_status rpi_agree_on_status(rp_mpi_plan *m, rp_status own, int *failed)
{
    facts f = {.status = own}, *all;
    return gather(m, &f, &all, failed);
}

size_t rpi_gathered_size(int32_t ranks)
{
    return (size_t)ranks * sizeof(facts);
}
