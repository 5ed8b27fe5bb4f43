/* sample_arrays.h -- numbers where nobody gave any: the worked example, words as vectors, arrays of terms. The program and the explorer
 * share them, so that both show the same.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SAMPLES_H
#define RELPOS_SAMPLES_H

#include <relpos/facts.h>
#include <stdbool.h>

enum { SAMPLE_WORDS = 5, SAMPLE_WIDTH = 4, WORD_WIDTH = 8 };

/* The five words of the course chapter on relative position bias, with their q, k and v. */
extern const char *const sample_words[SAMPLE_WORDS];
extern const double sample_vectors[3][SAMPLE_WORDS][SAMPLE_WIDTH];

/* A word of `length` bytes: its letters give WORD_WIDTH numbers (FNV-1a seeds them), and three fixed matrices turn those into
 * its q, k and v. */
void sample_word(const char *word, size_t length, double *q, double *k, double *v);

/* Whether desc->terms[term] cannot do without array number `index`. */
bool sample_needed(const rp_desc *desc, int32_t term, int index);
/* What such an array shows: "bucket" or "entry" for a table, whose entry c is c, for every head, so that a picture shows which
 * entry a pair reads; NULL for random numbers, the same every time. */
const char *sample_meaning(const rp_term *t, int index);
/* Make array number `index` of desc->terms[term], in double and contiguous; the caller frees a->data.
 * Returns  RP_OK; RP_E_NOMEM where there is no memory, or it has more than `max_elements` elements; what rp_term_shape returns. */
rp_status sample_array(const rp_desc *desc, int32_t term, int index, int64_t max_elements, rp_array *a);

#endif
