/* plan.c -- a description that all processes share, with the communicator on which they exchange keys and values.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"
#include <stdlib.h>
#include <string.h>

/* Copy the terms and masks of a description. Return false if out of memory. */
static bool copy_desc(rp_mpi_plan *m, const rp_desc *d)
{
    const size_t terms = (size_t)d->n_terms * sizeof *m->terms, masks = (size_t)d->n_masks * sizeof *m->masks;
    m->desc = *d;
    m->terms = calloc(1, terms + 1);
    m->masks = calloc(1, masks + 1);
    if (m->terms == NULL || m->masks == NULL)
        return false;
    for (int32_t n = 0; n < d->n_terms; n++) {
        const char *from = (const char *)d->terms + (size_t)n * d->term_size;
        memcpy(&m->terms[n], from, sizeof(rp_term_kind));
        m->terms[n] = rp_term_init(m->terms[n].kind);
        memcpy(&m->terms[n], from, d->term_size);
    }
    for (int32_t n = 0; n < d->n_masks; n++) {
        const char *from = (const char *)d->masks + (size_t)n * d->mask_size;
        memcpy(&m->masks[n], from, sizeof(rp_mask_kind));
        m->masks[n] = rp_mask_init(m->masks[n].kind);
        memcpy(&m->masks[n], from, d->mask_size);
    }
    m->desc.terms = m->terms;
    m->desc.masks = m->masks;
    m->desc.term_size = sizeof *m->terms;
    m->desc.mask_size = sizeof *m->masks;
    m->desc.kv_heads = d->kv_heads > 0 ? d->kv_heads : d->heads;
    m->desc.dim_v = d->dim_v > 0 ? d->dim_v : d->dim_k;
    return true;
}

/* Check the description and copy it. */
static rp_status make(rp_mpi_plan *m, const rp_desc *desc)
{
    const rp_status status = rp_plan_create(&m->plan, desc);
    if (status != RP_OK)
        return rpi_mpi_fail(status, "%s", rp_last_error());
    if (rp_plan_key_step(m->plan) == 0)
        return rpi_mpi_fail(
            RP_E_UNSUPPORTED,
            "the reference path computes all rows and keys in one call; choose another instruction set");
    if (desc->flexible)
        return rpi_mpi_fail(RP_E_UNSUPPORTED, "desc.flexible is 1; it must be 0 with several processes");
    return copy_desc(m, desc) ? RP_OK : rpi_mpi_fail(RP_E_NOMEM, "out of memory while copying the description");
}

/* Allocate what later calls need to tell each other about errors. Return false if out of memory. */
static bool begin(rp_mpi_plan *m, MPI_Comm comm, rpi_driver driver, const rpi_host *host)
{
    int ranks;
    MPI_Comm_size(comm, &ranks);
    m->gathered = malloc(rpi_gathered_size(ranks));
    m->needed = calloc(2 * (size_t)ranks, sizeof *m->needed);
    m->parts = calloc(2 * (size_t)ranks, sizeof *m->parts);
    return m->gathered != NULL && m->needed != NULL && m->parts != NULL &&
           rpi_exchange_init(&m->exchange, comm, driver, host);
}

static void free_plan(rp_mpi_plan *m)
{
    if (m == NULL)
        return;
    rp_plan_destroy(m->plan);
    free(m->terms);
    free(m->masks);
    free(m->gathered);
    free(m->needed);
    free(m->parts);
    free(m);
}

void rp_mpi_plan_destroy(rp_mpi_plan *m)
{
    if (m == NULL)
        return;
    rpi_exchange_free(&m->exchange);
    if (m->owns_comm)
        MPI_Comm_free(&m->comm);
    free_plan(m);
}

/* Compare the description with the other processes, and return the plan. */
static rp_status complete(rp_mpi_plan **plan, rp_mpi_plan *m, const rp_desc *desc)
{
    const rp_status status = rpi_agree_on_desc(m, make(m, desc));
    if (status != RP_OK)
        rp_mpi_plan_destroy(m);
    else
        *plan = m;
    return status;
}

/* Return the thread that may call MPI while the caller computes. */
static rpi_driver driver_for_level(void)
{
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    return level >= MPI_THREAD_SERIALIZED ? RPI_THREAD : RPI_CALLER;
}

rp_status rp_mpi_plan_create(rp_mpi_plan **plan, MPI_Comm comm, const rp_desc *desc)
{
    rp_mpi_plan *m = calloc(1, sizeof *m);
    MPI_Comm own = MPI_COMM_NULL;
    if (plan != NULL)
        *plan = NULL;
    int good =
        MPI_Comm_dup(comm, &own) == MPI_SUCCESS && MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN) == MPI_SUCCESS;
    if (!good) {
        free(m);
        return rpi_mpi_fail(RP_E_MPI, "MPI_Comm_dup failed; pass a valid communicator");
    }
    good = m != NULL && plan != NULL && begin(m, own, driver_for_level(), NULL);
    if (MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, own) != MPI_SUCCESS || !good) {
        free_plan(m);
        MPI_Comm_free(&own);
        return rpi_mpi_fail(plan == NULL ? RP_E_ARG : RP_E_NOMEM,
                            plan == NULL ? "plan is NULL; pass an address" : "out of memory on a process");
    }
    m->comm = own;
    m->owns_comm = true;
    return complete(plan, m, desc);
}

rp_status rpi_plan_with(rp_mpi_plan **plan, MPI_Comm comm, const rp_desc *desc, const rpi_host *host)
{
    rp_mpi_plan *m = calloc(1, sizeof *m);
    *plan = NULL;
    if (m == NULL || !begin(m, comm, RPI_HOST, host)) {
        free_plan(m);
        return rpi_mpi_fail(RP_E_NOMEM, "out of memory while preparing attention over several processes");
    }
    m->comm = comm;
    return complete(plan, m, desc);
}

uint64_t rp_mpi_sent_bytes(const rp_mpi_plan *m)
{
    return m != NULL ? m->sent_bytes : 0;
}
