/* sources/fill.h -- what the files of this folder share: which terms are tabulated, and the tasks that fill tables.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_FILL_H
#define RELPOS_FILL_H
#include "sources.h"

/* Entries of a table that one task makes. */
#define RPI_ENTRIES_PER_TASK 1024

typedef struct rpi_fill_job {
    rpi_source *s;
    const rp_plan *plan;
    const rpi_args *args;
} rpi_fill_job;

/* Whether a term is one of those that the strip sums. */
static inline bool rpi_in_strip(const rpi_scheme *s, const rpi_view *array)
{
    return s->form == RPI_OFFSET && !rpi_positions_given(s, array);
}

/* Given positions as doubles; NaN where a mask says no. */
void rpi_positions_of(const rpi_args *args, int32_t term, bool key, int64_t b, double *to);
/* Whether a term's vectors are the same for every head. */
bool rpi_vectors_are_shared(const rpi_source *s, const rpi_args *args);
/* Whether the biases of all pairs are made once: batch entries have the same, and they are few. args NULL: an array of them may be so. */
bool rpi_wants_table(const rpi_source *s, const rp_plan *plan, const rpi_args *args);

/* Tasks: piece n of the entries of a GATHER; row n = h * Lq + i of a table; the vectors of head n, packed, and transposed. */
void rpi_entries_task(void *job, int64_t n, int32_t worker);
void rpi_table_task(void *job, int64_t n, int32_t worker);
void rpi_vectors_task(void *job, int64_t head, int32_t worker);
void rpi_transposed_task(void *job, int64_t head, int32_t worker);

#endif
