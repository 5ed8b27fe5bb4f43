/* sample_arrays.h -- default numbers: the worked example, words as vectors, arrays of terms. The program and the
 * explorer use the same, so both show the same results.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SAMPLES_H
#define RELPOS_SAMPLES_H

#include <relpos/facts.h>
#include <stdbool.h>

enum { SAMPLE_WORDS = 5, SAMPLE_WIDTH = 4, WORD_WIDTH = 8 };

/* The five words of the course chapter on relative position bias, with their q, k and v. */
extern const char *const sample_words[SAMPLE_WORDS];
extern const double sample_vectors[3][SAMPLE_WORDS][SAMPLE_WIDTH];

/* Compute q, k and v of a word of `length` bytes. The FNV-1a hash of its letters seeds WORD_WIDTH numbers, which
 * three fixed matrices map to q, k and v. */
void sample_word(const char *word, size_t length, double *q, double *k, double *v);

/* Return true if array `index` of desc->terms[term] is required. */
bool sample_needed(const rp_desc *desc, int32_t term, int index);
/* Return the meaning of the sample array. "bucket" or "entry": a table whose entry c has the value c for every head,
 * so that a picture shows the entry that each pair reads. NULL: random numbers, always the same. */
const char *sample_meaning(const rp_term *t, int index);
/* Make the sample of array `index` of desc->terms[term], contiguous and in double; the caller frees a->data. Returns
 * RP_OK; RP_E_NOMEM if out of memory or the array has more than `max_elements` elements; errors of rp_term_shape. */
rp_status sample_array(const rp_desc *desc, int32_t term, int index, int64_t max_elements, rp_array *a);

#endif
