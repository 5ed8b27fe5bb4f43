/* sources/fill_tasks.h -- declarations shared by the files of this folder, mainly the tasks that fill tables.
 * Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_FILL_TASKS_H
#define RELPOS_FILL_TASKS_H
#include "sources.h"

/* Number of entries of a table that one task fills. */
#define RPI_ENTRIES_PER_TASK 1024

/* How many offsets a strip or list may have in addition to those that the lengths require. If q_offset varies more than
 * this over the batch, each batch entry gets a separate strip. If given positions have a wider range, the definition is
 * evaluated for each pair. */
#define RPI_WIDEST ((int64_t)1 << 16)

typedef struct rpi_fill_job {
    rpi_source *s;
    const rpi_args *args;
} rpi_fill_job;

/* Write positions first … first+n-1 of a term as doubles; NaN for a token without a position (position mask). */
void rpi_positions_of(const rpi_args *args, int32_t term, bool key, int64_t b, int64_t first, int64_t n, double *to);

/* Find the largest and the smallest entry of each segment in entries [from, to) of a strip, for every head
 * (largest.c). */
void rpi_strip_bound(const rpi_strip *s, const rpi_args *args, int64_t b, int64_t from, int64_t to);

/* Tasks. Fill block n of the entries of a GATHER (entries), row n = h * Lq + i of the table of a GATHER or of an array
 * (gather_table, array_table), or the packed vectors of a head (vectors). */
void rpi_entries_task(void *job, int64_t n, int32_t worker);
void rpi_gather_table_task(void *job, int64_t n, int32_t worker);
void rpi_array_table_task(void *job, int64_t n, int32_t worker);
void rpi_vectors_task(void *job, int64_t head, int32_t worker);

/* Find the vectors that are packed once: rpi_vectors.place, first_of and packed (vectors.c). */
void rpi_vectors_share(const rpi_source *s, rpi_vectors *v, const rpi_args *args);

#endif
