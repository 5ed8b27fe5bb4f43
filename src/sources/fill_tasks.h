/* sources/fill_tasks.h -- declarations that the files of this folder share: which terms are tabulated, and the tasks
 * that fill tables. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_FILL_TASKS_H
#define RELPOS_FILL_TASKS_H
#include "sources.h"

/* Number of entries of a table that one task fills. */
#define RPI_ENTRIES_PER_TASK 1024

/* How far the offsets of a strip or list may span beyond the lengths. If the offsets of batch entries differ by more,
 * each batch entry gets a separate strip. If given positions span more, the definition is evaluated for each pair. */
#define RPI_WIDEST ((int64_t)1 << 16)

typedef struct rpi_fill_job {
    rpi_source *s;
    const rpi_args *args;
} rpi_fill_job;

/* Write positions first … first+n-1 of a term as doubles; NaN if a position mask says that the token has no
 * position. */
void rpi_positions_of(const rpi_args *args, int32_t term, bool key, int64_t b, int64_t first, int64_t n, double *to);

/* Find the largest and the smallest entry of each segment of a strip, for entries [from, to) of every head;
 * largest.c. */
void rpi_strip_bound(const rpi_strip *s, const rpi_args *args, int64_t b, int64_t from, int64_t to);

/* Tasks that fill block n of the entries of a GATHER; row n = h * Lq + i of the table of a GATHER or of an array; the
 * packed vectors of head n; the vectors of head n channel by channel. */
void rpi_entries_task(void *job, int64_t n, int32_t worker);
void rpi_gather_table_task(void *job, int64_t n, int32_t worker);
void rpi_array_table_task(void *job, int64_t n, int32_t worker);
void rpi_vectors_task(void *job, int64_t head, int32_t worker);
void rpi_channels_task(void *job, int64_t head, int32_t worker);

#endif
