/* sources/fill_tasks.h -- what the files of this folder share: which terms are tabulated, and the tasks
 * that fill tables.
 * It may not know kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_FILL_TASKS_H
#define RELPOS_FILL_TASKS_H
#include "sources.h"

/* Entries of a table that one task makes. */
#define RPI_ENTRIES_PER_TASK 1024

/* Offsets beside the lengths that a strip or a list may span: batch entries whose offsets differ by more get strips of
 * their own, and given positions that span more are left to the definition. */
#define RPI_WIDEST ((int64_t)1 << 16)

typedef struct rpi_fill_job {
    rpi_source *s;
    const rpi_args *args;
} rpi_fill_job;

/* Positions first … first+n-1 of a term as doubles; NaN where a mask of positions says no. */
void rpi_positions_of(const rpi_args *args, int32_t term, bool key, int64_t b, int64_t first, int64_t n, double *to);

/* The largest entries of the segments of a strip, of entries [from, to) of every head; largest.c. */
void rpi_strip_bound(const rpi_strip *s, const rpi_args *args, int64_t b, int64_t from, int64_t to);

/* Tasks: block n of the entries of a GATHER; row n = h * Lq + i of the table of a GATHER or of an array; the vectors of
 * head n, packed, and channel by channel. */
void rpi_entries_task(void *job, int64_t n, int32_t worker);
void rpi_gather_table_task(void *job, int64_t n, int32_t worker);
void rpi_array_table_task(void *job, int64_t n, int32_t worker);
void rpi_vectors_task(void *job, int64_t head, int32_t worker);
void rpi_channels_task(void *job, int64_t head, int32_t worker);

#endif
