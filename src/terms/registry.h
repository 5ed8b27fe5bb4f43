/* terms/registry.h -- what the rest of the library asks of the terms.
 * It may not know calls or kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_REGISTRY_H
#define RELPOS_REGISTRY_H
#include "rotation.h"
#include "scheme.h"

const rpi_scheme *rpi_scheme_of(rp_term_kind kind); /* NULL for no such kind */
/* What is wrong with a scheme by the table of scheme.h, as one line; NULL: nothing. */
const char *rpi_scheme_fault(const rpi_scheme *s);
/* "OFFSET" for RPI_OFFSET. */
const char *rpi_form_name(rpi_form form);
/* Check the parameters of desc->terms[n], and resolve what was left open. */
rp_status rpi_term_check(const rp_desc *desc, rp_term *term, int32_t n);
/* Refuse the size of a caller's struct that is larger than the library's own, or no whole number of fields. */
rp_status rpi_check_struct_size(const char *name, size_t size, size_t own);
/* A caller's term of `size` bytes, which may lack fields at the end: those have their defaults. */
rp_status rpi_term_take(rp_term *to, const void *from, size_t size);
/* The other way; RP_E_UNSUPPORTED where a field that the caller lacks has another value than its default. */
rp_status rpi_term_give(void *to, size_t size, const rp_term *from);
/* The value of a parameter as texts have it; false where it has none. */
bool rpi_print_param(char *to, size_t size, const rp_term *term, const rp_param *p);
/* The fewest digits that read back as x, with a point under every locale. */
void rpi_print_real(char *to, size_t size, double x);
/* The shape that a text of rp_array_facts says; false where the text is none. */
bool rpi_read_shape(const char *text, const rp_desc *desc, const rp_term *term, const rp_param *params, rpi_shape *to);
/* The shape of array x of a term. */
void rpi_term_shape(const rpi_scheme *s, const rp_desc *desc, const rp_term *term, int32_t x, rpi_shape *shape);
/* Refuse positions that are not finite, or beyond 2^53 in size; `what` names the array. */
rp_status rpi_check_positions(const rpi_view *v, const rpi_shape *shape, const char *what);

/* How many distances from 0 on have a bucket of their own. */
int64_t rpi_bucket_exact(int64_t buckets, int32_t bidirectional, rp_strategy strategy);

/* The factor of a term of form VEC, the vector that a product or VALVEC uses (-1: none), and a channel of its row. */
double rpi_vec_factor(const rpi_scheme *s, const rp_desc *d);
int64_t rpi_product_index(const rpi_product *product, const rpi_pair *p);
int64_t rpi_product_width(const rpi_product *product, const rpi_pair *p);

/* The bias of a pair of OFFSET, INDEX or TILE, and g times its derivatives. */
static inline double rpi_definition(const rpi_pair *p)
{
    const rpi_scheme *s = p->scheme;
    return p->absent ? 0 : s->pair ? s->pair(p) : s->entry(p, s->index(p));
}

static inline void rpi_definition_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    const rpi_scheme *s = p->scheme;
    if (p->absent)
        return;
    if (s->grad)
        s->grad(p, g, to);
    else if (s->entry_grad)
        s->entry_grad(p, s->index(p), g, to);
}

static inline int32_t rpi_count_arrays(const rpi_scheme *s)
{
    int32_t n = 0;
    while (n < RP_MAX_ARRAYS && s->array[n].name)
        n++;
    return n;
}

/* Whether a term takes q_positions and k_positions; where nothing comes before them, they begin at 0. */
static inline bool rpi_takes_positions(const rpi_scheme *s)
{
    return s->array[s->positions].use == RP_USE_POSITIONS;
}

/* The index of q_position_mask, which k_position_mask follows; -1: the term has none. */
static inline int32_t rpi_position_masks(const rpi_scheme *s)
{
    const int32_t at = s->positions + 2;
    return rpi_takes_positions(s) && at < RP_MAX_ARRAYS && s->array[at].use == RP_USE_TRUTH ? at : -1;
}

/* Whether one of these four is there, so that the term does not go by the index. */
static inline bool rpi_positions_given(const rpi_scheme *s, const rpi_view *array)
{
    const int32_t mask = rpi_position_masks(s);
    return rpi_takes_positions(s) && (array[s->positions].data || array[s->positions + 1].data ||
                                      (mask >= 0 && (array[mask].data || array[mask + 1].data)));
}

/* Whether token n has no position: term_mask is q_position_mask or k_position_mask. */
static inline bool rpi_no_position(const rpi_view *term_mask, int64_t b, int64_t n)
{
    return term_mask->data && !rpi_truth(term_mask->data, term_mask->dtype, rpi_index(term_mask, b, n, 0, 0));
}

#endif
