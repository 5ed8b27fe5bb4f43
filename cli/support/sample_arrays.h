/* sample_arrays.h -- default values for arrays: the worked example, words as vectors, arrays of terms. The program and
 * the explorer share them, so both show the same results.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SAMPLES_H
#define RELPOS_SAMPLES_H

#include <relpos/facts.h>
#include <stdbool.h>

enum { SAMPLE_WORDS = 5, SAMPLE_WIDTH = 4, WORD_WIDTH = 8 };

/* The five words of the course chapter on relative position bias, with their q, k and v. */
extern const char *const sample_words[SAMPLE_WORDS];
extern const double sample_vectors[3][SAMPLE_WORDS][SAMPLE_WIDTH];

/* Return a number in (-1, 1) that depends only on `seed` and `place`. */
double sample_number(uint64_t seed, uint64_t place);

/* Compute q, k and v of a word of `length` bytes. The FNV-1a hash of the word seeds WORD_WIDTH random numbers; three
 * fixed matrices map these to q, k and v. */
void sample_word(const char *word, size_t length, double *q, double *k, double *v);

/* Return true if array `index` of desc->terms[term] is required. */
bool sample_needed(const rp_desc *desc, int32_t term, int index);
/* Return what the values of the sample array mean. "bucket" or "entry": entry c of the table has the value c for every
 * head, so a picture shows which entry each pair reads. NULL: random numbers, the same in every run. */
const char *sample_meaning(const rp_term *t, int index);
/* Make the sample for array `index` of desc->terms[term], contiguous, in double or, if it has indices, in int32_t; the
 * caller frees a->data. Return
 * RP_OK; RP_E_NOMEM if out of memory or if the array has more than `max_elements` elements; or an error of
 * rp_term_shape. */
rp_status sample_array(const rp_desc *desc, int32_t term, int index, int64_t max_elements, rp_array *a);

#endif
