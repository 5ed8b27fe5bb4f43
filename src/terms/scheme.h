/* terms/scheme.h -- the interface of a position term. You define a term in one file, src/terms/NAME.h, which ends in
 *
 *     RPI_SCHEME(NAME, .form = RPI_OFFSET, .facts = {…}, .array = {…}, .params = …, .pair = …, .grad = …)
 *
 * Register it with the line RP_X(RP_TERM_NAME, name, "name,…", "source") at the end of include/relpos/terms.def,
 * describe it in docs/terms/name.md, build, and run `python3 tools/terms.py --write`, which updates the files generated
 * from terms. Write `pair` first: with `pair` alone the term runs on every instruction set. alibi.h is a short example.
 * common.h, clip.h and grid.h contain code shared by several schemes. A scheme may use only these headers,
 * base/arena.h, base/array.h and the public headers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SCHEME_H
#define RELPOS_SCHEME_H
#include "base/arena.h"
#include "base/array.h"
#include <relpos/facts.h>

/* The form of a term: how it changes the scores, and which functions its scheme defines. forms.c has the same table as
 * data; rp_term_fault checks each scheme against it.
 *
 *   form     meaning                                      required                                optional
 *   OFFSET   a bias that depends only on (h, delta)       pair                 shared reach offsets tangent_grad
 *   INDEX    a bias from a list of entries per head       entries index entry                     reach
 *   TILE     a bias that depends on (b, h, i, j)          pair                 row largest, reduce, row_grad,
 *                                                                              tangent_grad, batch_entry
 *   VEC      products of queries or keys with vectors     product[0] (count vec, first or index)  product[1]
 *   VALVEC   a vector added to v_j                        product[0] (count vec width, first or index)
 *   ROTATE   rotates q and k: rope; code in sources       -
 *   SINK     an extra logit for each row (b, h, i)        pair
 *
 * index(i, j) must be a(i) - b(j), except for class tokens, because kernels store a and b. If a and b are given
 * positions, the difference is clamped and truncated. An INDEX with index_array reads the index from an array instead.
 *
 * A scheme must not define functions that the table does not list for its form. Every scheme may also define check,
 * check_arrays, sizes, usual_sizes, example, prepare and prepare_size. A scheme with a learned array also defines the
 * derivative: grad with pair, entry_grad with entry, vec_grad with vec. row_grad requires sums_size, reduce_sums and
 * row; prepare requires prepare_size. entry and vec must be linear in the learned arrays, and query in these and q. If
 * pair is not, the scheme also defines tangent_grad, for second derivatives.
 *
 * Values: pair, entry, row, vec and query return a finite number if every array element, position and parameter that
 * they read is finite, unless a result exceeds the range of double. Only a TILE may return -infinity otherwise, which
 * masks the pair; it sets `causal` if it masks all keys after the query. Any other +infinity, -infinity or NaN affects
 * only rows that attend to the pair.
 * Derivatives are finite under the same condition. grad is not called for masked pairs. */
typedef enum rpi_form { RPI_OFFSET, RPI_INDEX, RPI_TILE, RPI_VEC, RPI_VALVEC, RPI_ROTATE, RPI_SINK } rpi_form;

/* One query and key: the input of a definition. */
typedef struct rpi_pair {
    const rp_desc *desc;
    const rp_term *term;
    const struct rpi_scheme *scheme; /* scheme of the term */
    const rpi_view *array; /* arrays of the term; read them with rpi_at(&p->array[x], …), which broadcasts axes of 1 */
    const double *prepared; /* output of the scheme's `prepare` for this call */
    int64_t b, h, i, j;
    int64_t position;     /* i + q_offset */
    double delta;         /* p_j - p_i: j - position, or computed from given positions */
    bool absent;          /* i or j has no position: the term adds 0, and its functions are not called */
    double at;            /* p_i: the given position, or the position within the segment */
    const double *q, *k;  /* rows i and j before rotation; for VEC only */
    const double *shared; /* result of the scheme's `shared` for this delta; NULL if not computed */
} rpi_pair;

/* Sums to which a definition adds its derivatives: one double for each element of an array, in the shape of the array,
 * so broadcast axes are summed. Arrays with data NULL are skipped. If `absolute` is set, absolute values are added, for
 * bounds on errors; `rounding` is then what a rounding in double adds to such a bound, relative to a summand's size.
 *
 * If `along` is set, `array`, `q` and `k` are tangents instead, and the product of each derivative with its tangent is
 * added to *along: the sum is the directional derivative, or that of absolute values if `absolute` is set. */
typedef struct rpi_sums {
    rpi_view array[RP_MAX_ARRAYS];
    double *q, *k; /* [Dk] gradients of q_i and k_j; NULL if not needed */
    bool absolute;
    double rounding;
    double *along;
} rpi_sums;

/* Add x to the sum for element (a, b, c, d) of an array: |x| if `absolute` is set, nothing if the array has no sums. */
static inline void rpi_add(const rpi_sums *to, int array, int64_t a, int64_t b, int64_t c, int64_t d, double x)
{
    const rpi_view *v = &to->array[array];
    if (v->data && to->along)
        *to->along += to->absolute ? fabs(x * rpi_at(v, a, b, c, d)) : x * rpi_at(v, a, b, c, d);
    else if (v->data)
        ((double *)v->data)[rpi_index(v, a, b, c, d)] += to->absolute ? fabs(x) : x;
}

/* Add x, which was computed as a sum in double. `size` is the sum of the absolute values of its summands times the
 * number of roundings. */
static inline void rpi_add_sum(const rpi_sums *to, int array, int64_t a, int64_t b, int64_t c, double x, double size)
{
    rpi_add(to, array, a, b, c, 0, to->absolute ? fabs(x) + to->rounding * size : x);
}

/* A parameter: {"left", RP_PARAM_INT, RPI_FIELD(left), .required = true, .max = 0x1p40, .meaning = "…"}. Use the field
 * of rp_term that has the same meaning. If there is none, use the next free slot of real[4] (REAL), integer[4] (INT;
 * GRID takes two) or choice[4] (FLAG, SIGN, CHOICE).
 *
 * .min and .max are the bounds of the value, both included. With .above_min = 1 the value must be above .min. Bounds
 * are checked before and after `check` runs; before it, a parameter with `unset` may still be 0, because `check` can
 * set it. A list of parameters ends with {0}. */
#define RPI_FIELD(name) offsetof(rp_term, name), #name

/* Facts, for .facts: formula and about are required. `relpos explain` prints `shown`. For a bias, it is a formula in
 * which {key} stands for the value of a parameter and {slope} for the head's ALiBi slope. For a product, it is the name
 * of its vectors (X of Q X^T). A sample is the text after the term's name in a problem: parameters, and optional arrays
 * to generate, as in "left=5,slopes=given". */

/* Arrays, for .array: by default, an array such as {"slopes", .shape = "[H]"} is learned and required. facts.h
 * documents the other fields: presence, `draw` (random values for tests) and `start` (initial values for training). A
 * term that accepts given positions lists these two arrays last: */
#define RPI_TWO_POSITIONS                                                                                              \
    {"q_positions", RP_USE_POSITIONS, RP_REPLACES, .shape = "[B?, Lq]"},                                               \
    {                                                                                                                  \
        "k_positions", RP_USE_POSITIONS, RP_REPLACES, .shape = "[B?, Lk]"                                              \
    }

/* A term that skips tokens without a position lists these two after RPI_TWO_POSITIONS: */
#define RPI_POSITION_MASKS                                                                                             \
    {"q_position_mask", RP_USE_TRUTH, RP_REPLACES, .shape = "[B?, Lq]"},                                               \
    {                                                                                                                  \
        "k_position_mask", RP_USE_TRUTH, RP_REPLACES, .shape = "[B?, Lk]"                                              \
    }

/* A product of a term of form VEC: factor * sum over c of query(c) * vec(h, e, c), where e = index(i, j) is between 0
 * and count-1. With key_side, the row is k_j instead of q_i. If index is NULL, e = clamp(delta - first, 0, count-1).
 * With `zero_outside`, the product is 0 for pairs whose e would be clamped. */
typedef struct rpi_product {
    int array;         /* index of the array of vectors */
    const char *shown; /* the product as `relpos explain` prints it, in ASCII: "scale * q . table" */
    bool key_side, zero_outside;
    bool (*present)(const rpi_view *array); /* NULL: always true */
    int64_t (*count)(const rp_desc *desc, const rp_term *term);
    int64_t (*first)(const rp_desc *desc, const rp_term *term); /* the delta of vector 0 */
    bool without_q_offset;                                      /* use delta = j - i instead of j - (i + q_offset) */
    int64_t (*index)(const rpi_pair *p);
    int64_t (*width)(const rp_desc *desc, const rp_term *term); /* channels; NULL: Dk */
    /* Return element c of vector e of head p->h (vec), or add g times its derivative (vec_grad). */
    double (*vec)(const rpi_pair *p, int64_t e, int64_t c);
    /* Return r such that vec(p, e, c) is element [p->h, r, c] of `array`, so a whole vector can be loaded. NULL if the
     * vectors are not such rows. */
    int64_t (*row)(const rpi_pair *p, int64_t e);
    void (*vec_grad)(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to);
    /* Return channel c of the row (query), or add g times its derivative (query_grad). NULL: the row is q_i or k_j. */
    double (*query)(const rpi_pair *p, int64_t c);
    void (*query_grad)(const rpi_pair *p, int64_t c, double g, const rpi_sums *to);
} rpi_product;

typedef struct rpi_scheme {
    rpi_form form;
    bool in_place;       /* TILE: the biases are the elements of array 0 */
    bool same_heads;     /* OFFSET: the value does not depend on the head */
    bool bias;           /* VEC: added outside the softcap with factor 1, like a bias; otherwise inside it */
    bool unscaled;       /* VEC: factor 1; otherwise scale */
    bool causal;         /* TILE: keys after the query are masked */
    bool grid;           /* tokens form a grid: q_offset must be 0 */
    int32_t index_array; /* INDEX: the array whose element [b, h, i, j] is the index of a pair; 0: none */
    bool class_token;    /* INDEX: the first term->extra tokens are outside the grid */
    rp_term_facts facts; /* formula, samples, names */
    rp_array_facts array[RP_MAX_ARRAYS]; /* unused entries have name NULL */
    int32_t positions;      /* index of the array q_positions; k_positions is the next; see rpi_takes_positions */
    const rp_param *params; /* list that ends with a NULL key; NULL without parameters */
    /* Set unset sizes (0) from the shapes of the arrays. Return -1, or the index of an array whose shape does not
     * determine a size. NULL if every size is required. */
    int (*sizes)(rp_term *term, const rp_array *array);
    /* Set sizes that are still unset to the defaults of problems and models. NULL if every size is required. */
    void (*usual_sizes)(rp_term *term, int64_t len_k);
    /* Check the parameters of terms[n] beyond their bounds, and set those that are unset. NULL if there is nothing to
     * check. */
    rp_status (*check)(const rp_desc *desc, rp_term *term, int32_t n);
    /* Check the elements of the given arrays, whose shapes are already checked. NULL if there is nothing to check. */
    rp_status (*check_arrays)(const rp_desc *desc, const rp_term *term, const rpi_view *array, int32_t n);
    /* OFFSET, TILE: return the bias of one pair (pair), or add g times its derivatives (grad). SINK: of one row. A sink
     * whose array 0 has no axis of Lq, axis 2, is the same for all rows. */
    double (*pair)(const rpi_pair *p);
    void (*grad)(const rpi_pair *p, double g, const rpi_sums *to);
    /* OFFSET, TILE: return a bound on the error of `pair` in double, in units of 2^-53. NULL: a few units in the last
     * place of its result. */
    double (*roundings)(const rpi_pair *p);
    /* OFFSET, TILE, for terms that are not linear in their learned arrays: let t be the directional derivative of the
     * bias along tangents of the arrays (data NULL: 0); add g times the derivatives of t. NULL: they are 0. */
    void (*tangent_grad)(const rpi_pair *p, double g, const rpi_view *tangent, const rpi_sums *to);
    /* Print the calculation of one bias with its numbers, such as "-0.3 * log(1 + 4)"; return what snprintf returns.
     * Evaluating the text gives the result of pair or entry. NULL: only formula and value are shown. */
    int (*example)(const rpi_pair *p, char *to, size_t size);
    /* OFFSET, optional: compute the part of the bias that is the same for all heads. It is called once for each
     * delta. */
    double (*shared)(const rpi_pair *p);
    /* OFFSET, optional: write the biases of head p->h for the offsets delta0 … delta0+n-1, which are those of pair. */
    void (*offsets)(const rpi_pair *p, int64_t delta0, int64_t n, double *to);
    /* TILE with `row`, optional: row_grad adds the contribution of row (b, h, i), whose gradients are g, to `sums_size`
     * sums of head p->h; reduce_sums computes all gradients from these sums. */
    int64_t (*sums_size)(const rp_desc *desc, const rp_term *term);
    void (*row_grad)(const rpi_pair *p, int64_t j0, int64_t n, const double *g, double *sums);
    void (*reduce_sums)(const rpi_pair *p, const double *sums, const rpi_sums *to);
    /* Causal TILE, optional: compute all gradients of head (b, h). between[t] is the sum of g over the pairs with
     * j < t <= p_i, for each key t. */
    void (*reduce)(const rpi_pair *p, const double *between, const rpi_sums *to);
    /* TILE, optional: write the biases of row (b, h, i) for keys j0 … j0+n-1. It is called only without given
     * positions; p->j and p->delta are not set. */
    void (*row)(const rpi_pair *p, int64_t j0, int64_t n, double *to);
    /* TILE in_place, optional: return the entry of the first axis of array 0 that batch entry b reads. NULL: b. */
    int64_t (*batch_entry)(const rp_desc *desc, const rp_term *term, int64_t b);
    const char *sharing; /* with batch_entry: the parameters by which batch entries share the array's, for errors */
    /* TILE, optional: return an upper bound of the biases of rows (b, h, i) … (b, h, i+rows-1) and keys j0 … j1-1;
     * +infinity if unknown. Kernels skip a tile if all its weights must be 0 according to this bound. */
    double (*largest)(const rpi_pair *p, int64_t rows, int64_t j0, int64_t j1);
    /* OFFSET, INDEX with given positions, optional: set left and right so that every offset below -left has the same
     * value as -left, and every offset above right the same value as right. NULL: no such limits. */
    void (*reach)(const rp_term *term, int64_t *left, int64_t *right);
    /* INDEX: return the number of entries (entries), the entry of a pair (index), or the value of entry e for head p->h
     * (entry); add g times the derivatives of that value (entry_grad). */
    int64_t (*entries)(const rp_desc *desc, const rp_term *term);
    int64_t (*index)(const rpi_pair *p);
    double (*entry)(const rpi_pair *p, int64_t e);
    void (*entry_grad)(const rpi_pair *p, int64_t e, double g, const rpi_sums *to);
    /* VEC: one or two products; VALVEC: one product. A product whose `count` is NULL is absent. */
    rpi_product product[2];
    /* `prepare` computes p->prepared from the arrays, once for each call. prepare_size returns its number of doubles,
     * or RPI_TOO_LARGE. NULL if there is nothing to prepare. */
    int64_t (*prepare_size)(const rp_desc *desc, const rp_term *term);
    void (*prepare)(const rp_desc *desc, const rp_term *term, const rpi_view *array, double *to);
} rpi_scheme;

#endif
