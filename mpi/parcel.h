/* parcel.h -- messages of team.c on their way, and lists of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MPI_PARCEL_H
#define RELPOS_MPI_PARCEL_H

#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

#define CHUNK ((size_t)1 << 28) /* max bytes of a message of MPI, whose counts are of type int */

/* A message on its way in or out. */
typedef struct parcel {
    struct parcel *next;
    int32_t rank;
    uint64_t size;
    char *data;
    int n_requests;
    MPI_Request *requests; /* of the chunks, and of the size if it is sent */
} parcel;

typedef struct list {
    parcel *first, **last;
} list;

static void append(list *l, parcel *p)
{
    p->next = NULL;
    *(l->first != NULL ? l->last : &l->first) = p;
    l->last = &p->next;
}

static parcel *pop(list *l)
{
    parcel *p = l->first;
    if (p != NULL)
        l->first = p->next;
    return p;
}

static void free_parcel(parcel *p)
{
    free(p->requests);
    free(p->data);
    free(p);
}

/* Return a parcel with memory for its data and the requests of its chunks and its size; NULL if out of memory. */
static parcel *make_parcel(int32_t rank, uint64_t size)
{
    parcel *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->rank = rank;
    p->size = size;
    p->data = size > 0 ? malloc(size) : NULL;
    p->requests = calloc(size / CHUNK + 2, sizeof(MPI_Request));
    if ((size > 0 && p->data == NULL) || p->requests == NULL) {
        free_parcel(p);
        return NULL;
    }
    return p;
}

#endif
