/* terms/term_registry.h -- the interface of position terms for the rest of the library. Independent of calls and
 * kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_REGISTRY_H
#define RELPOS_REGISTRY_H
#include "rotation.h"
#include "scheme.h"

/* Return the scheme of a kind, or NULL for an unknown kind. */
const rpi_scheme *rpi_scheme_of(rp_term_kind kind);
/* Check a scheme against the table in scheme.h. Return the first fault as one line, or NULL. */
const char *rpi_scheme_fault(const rpi_scheme *s);
/* Return one line if the scheme lacks a function that calls cannot do without, or with `gradient` one that gradients of
 * its arrays need; else NULL. Fast enough for every plan. */
const char *rpi_scheme_lacks(const rpi_scheme *s, bool gradient);
/* Return the name of a form: "OFFSET" for RPI_OFFSET. */
const char *rpi_form_name(rpi_form form);
/* Check the parameters of term n, and set those that are unset (0) but can be computed. */
rp_status rpi_term_check(const rp_desc *desc, rp_term *term, int32_t n);
/* Check the size of a caller's struct: at most the library's size, and a multiple of 8. */
rp_status rpi_check_struct_size(const char *name, size_t size, size_t own);
/* Copy a caller's term of `size` bytes. Fields beyond `size` get their defaults. */
rp_status rpi_term_take(rp_term *to, const void *from, size_t size);
/* Copy a term to a caller's struct of `size` bytes. Return RP_E_UNSUPPORTED if a field beyond `size` is not at its
 * default. */
rp_status rpi_term_give(void *to, size_t size, const rp_term *from);
/* Print the value of a parameter in the syntax of terms. Return false if the value cannot be printed. */
bool rpi_print_param(char *to, size_t size, const rp_term *term, const rp_param *p);
/* Print x with the fewest digits that read back as x, and a decimal point in every locale. */
void rpi_print_real(char *to, size_t size, double x);
/* A parsed shape text of rp_array_facts. An invalid one has no steps, and no axes (shape.c). */
enum { RPI_SHAPE_STEPS = 40 };
typedef struct rpi_shape_step {
    int32_t kind, n;
} rpi_shape_step;
typedef struct rpi_shape_code {
    int32_t n;
    rpi_shape_step step[RPI_SHAPE_STEPS];
} rpi_shape_code;

/* Parse a shape text. Return false if it is not valid. */
bool rpi_parse_shape(rpi_shape_code *to, const char *text, const rp_param *params);
/* Compute a parsed shape. Return false, without axes, if it divides by 0 or a number does not fit in 64 bits. */
bool rpi_evaluate_shape(const rpi_shape_code *code, const rp_desc *desc, const rp_term *term, const rp_param *params,
                        rpi_shape *to);
/* Parse a shape text and compute the shape. Return false if either fails. */
bool rpi_read_shape(const char *text, const rp_desc *desc, const rp_term *term, const rp_param *params, rpi_shape *to);
/* Compute the shape of array x of a term. */
void rpi_term_shape(const rpi_scheme *s, const rp_desc *desc, const rp_term *term, int32_t x, rpi_shape *shape);
/* Check that positions are finite and at most 2^53 in absolute value. `what` names the array in messages. */
rp_status rpi_check_positions(const rpi_view *v, const rpi_shape *shape, const char *what);

/* Return a length for which a ROPE term has the same frequencies as for the length `longest`, and which is equal for
 * all such lengths. term->length replaces `longest`. */
double rpi_rope_length(const rp_term *term, double longest);
/* Return true if the frequencies of a ROPE term do not depend on the arrays of a call. */
static inline bool rpi_rope_is_fixed(const rp_term *term)
{
    return rpi_rope_length(term, 0) == rpi_rope_length(term, HUGE_VAL);
}

/* Return the number of distances, starting from 0, that do not share their bucket with another distance. */
int64_t rpi_bucket_exact(int64_t buckets, int32_t bidirectional, rp_strategy strategy);

/* Return the factor of a term of form VEC. */
double rpi_vec_factor(const rpi_scheme *s, const rp_desc *d);
/* Return the index of the vector that a product of VEC or VALVEC uses for a pair, or -1 for none. */
int64_t rpi_product_index(const rpi_product *product, const rpi_pair *p);
/* Return the number of channels of the vectors of a product. */
int64_t rpi_product_width(const rpi_product *product, const rpi_pair *p);

/* Return the bias of a pair of form OFFSET, INDEX or TILE. */
static inline double rpi_definition(const rpi_pair *p)
{
    const rpi_scheme *s = p->scheme;
    return p->absent ? 0 : s->pair ? s->pair(p) : s->entry(p, s->index(p));
}

/* Add g times the derivatives of rpi_definition. */
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

/* Return true if a term accepts q_positions and k_positions. (s->positions is 0 if they are its first arrays.) */
static inline bool rpi_takes_positions(const rpi_scheme *s)
{
    return s->array[s->positions].use == RP_USE_POSITIONS;
}

/* Return the index of q_position_mask, or -1 if the term has none. k_position_mask is the next array. */
static inline int32_t rpi_position_masks(const rpi_scheme *s)
{
    const int32_t at = s->positions + 2;
    return rpi_takes_positions(s) && at < RP_MAX_ARRAYS && s->array[at].use == RP_USE_TRUTH ? at : -1;
}

/* Return true if positions or position masks are given. delta is then not simply j - position. */
static inline bool rpi_positions_given(const rpi_scheme *s, const rpi_view *array)
{
    const int32_t mask = rpi_position_masks(s);
    return rpi_takes_positions(s) && (array[s->positions].data || array[s->positions + 1].data ||
                                      (mask >= 0 && (array[mask].data || array[mask + 1].data)));
}

/* Return true if token n has no position. term_mask is q_position_mask or k_position_mask. */
static inline bool rpi_no_position(const rpi_view *term_mask, int64_t b, int64_t n)
{
    return term_mask->data && !rpi_truth(term_mask->data, term_mask->dtype, rpi_index(term_mask, b, n, 0, 0));
}

#endif
