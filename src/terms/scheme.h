/* terms/scheme.h -- what the author of a position term writes: one file, src/terms/NAME.h, which ends in
 *
 *     RPI_SCHEME(NAME, .form = RPI_OFFSET, .facts = {…}, .array = {…}, .params = …, .pair = …, .grad = …)
 *
 * The line RP_X(NAME, name, "name,…", "source") at the end of include/relpos/terms.def and the text docs/terms/name.md
 * make it known; `python3 tools/terms.py --write` then makes again what is made from terms. Write `pair` first and
 * alone: the term runs with it everywhere, on every instruction set. alibi.h is a short one to begin with. What several
 * schemes share is in common.h, clip.h and grid.h. A scheme may know these, base/arena.h, base/array.h and the
 * public headers, and nothing of sources or kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SCHEME_H
#define RELPOS_SCHEME_H
#include "base/arena.h"
#include "base/array.h"
#include <relpos/facts.h>

/* How a term enters, and what its scheme gives. forms.c has this table once more, and rp_term_fault holds schemes to
 * it.
 *
 *   form     what it is                                   required                                optional
 *   OFFSET   a bias that depends on (h, delta) alone      pair                                    shared reach
 *   INDEX    a bias out of a list for each head           entries index entry                     reach
 *   TILE     a bias that depends on (b, h, i, j)          pair                            row largest, fold or row_grad
 *   VEC      products of queries or keys with vectors     product[0] (count vec, first or index)  product[1]
 *   VALVEC   a vector added to v_j                        product[0] (count vec width, first or index)
 *   ROTATE   rotates q and k: rope, by code in sources    -
 *   SINK     a logit beside each row: array 0             -
 *
 * index(i, j) = a(i) - b(j), except for class tokens; kernels store a and b. Where a and b are given positions, the
 * difference is then clamped and truncated.
 *
 * What is not named for a form is forbidden there; check, check_arrays, sizes, usual_sizes, worked, prepare and
 * prepare_size are optional everywhere. A term with a learned array also gives its derivative: grad beside pair,
 * entry_grad beside entry, vec_grad beside vec. row_grad comes with sums_size, fold_sums and row; prepare with
 * prepare_size.
 *
 * Values. pair, entry, row, vec and query return a finite number wherever the arrays, positions and parameters that
 * they read are finite; a TILE may return -infinity, which masks the pair (and says so with `causal` where all keys
 * after the query are masked). +infinity and NaN come out only where such a number was read, and so reach only the rows
 * that attend to the pair.
 * Derivatives are finite under the same condition; grad is not called for a pair that is masked. */
typedef enum rpi_form { RPI_OFFSET, RPI_INDEX, RPI_TILE, RPI_VEC, RPI_VALVEC, RPI_ROTATE, RPI_SINK } rpi_form;

/* One pair, as a definition sees it. */
typedef struct rpi_pair {
    const rp_desc *desc;
    const rp_term *term;
    const struct rpi_scheme *scheme; /* the term's */
    const rpi_view *array; /* the term's arrays; read them by rpi_at(&p->array[x], …), where an axis of 1 broadcasts */
    const double *prepared; /* what the scheme's `prepare` made for this call */
    int64_t b, h, i, j;
    int64_t position;     /* index of the query among positions: i + q_offset */
    double delta;         /* p_j - p_i: j - position, or the difference of given positions */
    bool absent;          /* one of the two has no position: the term adds nothing, and its functions are not called */
    double at;            /* p_i: given, or counted within the segment */
    const double *q, *k;  /* rows i and j, not rotated; for VEC only */
    const double *shared; /* what the scheme's `shared` made of delta; NULL: not made */
} rpi_pair;

/* Where a definition adds its derivatives: one double for each element of an array, in the array's own shape, so that
 * axes that broadcast are summed. NULL data: not wanted. With `absolute` set the sizes of the summands are added. */
typedef struct rpi_sums {
    rpi_view array[RP_MAX_ARRAYS];
    double *q, *k; /* [Dk] rows of the pair; NULL: not wanted */
    bool absolute;
} rpi_sums;

static inline void rpi_add(const rpi_sums *to, int array, int64_t a, int64_t b, int64_t c, int64_t d, double x)
{
    const rpi_view *v = &to->array[array];
    if (v->data)
        ((double *)v->data)[rpi_index(v, a, b, c, d)] += to->absolute ? fabs(x) : x;
}

/* A parameter: {"left", RP_PARAM_INT, RPI_FIELD(left), .required = true, .max = 0x1p40, .meaning = "…"}. Its field is
 * one of rp_term that means the same, else the next of real[4], integer[4] (INT; GRID takes two) or choice[4] (FLAG,
 * SIGN, CHOICE). Its bounds are checked before `check` runs, but for a 0 that is left open (unset), and once more when
 * `check` has resolved that. A list ends with {0}. */
#define RPI_FIELD(name) offsetof(rp_term, name), #name

/* Facts, for .facts: formula and about are needed. `shown` is how `relpos explain` prints a bias: {key} is the value of
 * a parameter, {slope} that of ALiBi's head; of a product it is the name of its vectors, X of Q X^T. A sample is what
 * follows the name in a problem, parameters and arrays that are to be made though the term works without them:
 * "left=5,slopes=given". */

/* Arrays, for .array: {"slopes", .shape = "[H]"} is learned and has to be there. facts.h says what else there is:
 * presence, and the ranges `draw`, to try the term with, and `start`, to train from. Terms that take given positions
 * have these two last: */
#define RPI_TWO_POSITIONS                                                                                              \
    {"q_positions", RP_USE_POSITIONS, RP_REPLACES, .shape = "[B?, Lq]"},                                               \
    {                                                                                                                  \
        "k_positions", RP_USE_POSITIONS, RP_REPLACES, .shape = "[B?, Lk]"                                              \
    }

/* and those that leave out pairs of tokens without a position, after them: */
#define RPI_POSITION_MASKS                                                                                             \
    {"q_position_mask", RP_USE_TRUTH, RP_REPLACES, .shape = "[B?, Lq]"},                                               \
    {                                                                                                                  \
        "k_position_mask", RP_USE_TRUTH, RP_REPLACES, .shape = "[B?, Lk]"                                              \
    }

/* One sum of products of a term of form VEC: factor * sum over c of query(c) * vec(h, e, c), e = index(i, j) between 0
 * and count-1. With key_side the row is k_j instead of q_i. Where index is NULL, e = clamp(delta - first, 0, count-1);
 * with `zero_outside` pairs whose e would be clamped get 0. */
typedef struct rpi_product {
    int array;         /* index of the array of vectors */
    const char *shown; /* the product in ASCII, as `relpos explain` prints it: "scale * q . table" */
    bool key_side, zero_outside;
    bool (*present)(const rpi_view *array); /* NULL: always; the arrays of an absent product are absent */
    int64_t (*count)(const rp_desc *desc, const rp_term *term);
    int64_t (*first)(const rp_desc *desc, const rp_term *term); /* the delta of vector 0 */
    bool without_q_offset;                                      /* delta is j - i here, not j - (i + q_offset) */
    int64_t (*index)(const rpi_pair *p);
    int64_t (*width)(const rp_desc *desc, const rp_term *term); /* channels; NULL: Dk */
    /* element c of vector e of head p->h, and g times its derivative */
    double (*vec)(const rpi_pair *p, int64_t e, int64_t c);
    void (*vec_grad)(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to);
    /* channel c of the row (b, h, i); NULL: q_i, or k_j on the key side */
    double (*query)(const rpi_pair *p, int64_t c);
    void (*query_grad)(const rpi_pair *p, int64_t c, double g, const rpi_sums *to);
} rpi_product;

typedef struct rpi_scheme {
    rpi_form form;
    bool in_place;                       /* of TILE: array 0 is the bias itself */
    bool same_heads;                     /* of OFFSET: the value does not depend on the head */
    bool bias;                           /* of VEC: a bias outside the softcap, factor 1; else inside it */
    bool unscaled;                       /* of VEC: factor 1; else scale */
    bool causal;                         /* of TILE: keys after the query are masked */
    bool grid;                           /* tokens lie on a grid: no q_offset */
    bool class_token;                    /* of INDEX: the first term->extra tokens lie outside the grid */
    rp_term_facts facts;                 /* formula, samples, names */
    rp_array_facts array[RP_MAX_ARRAYS]; /* name NULL past the last */
    int32_t positions;      /* index of q_positions among the arrays, k_positions next; see rpi_takes_positions */
    const rp_param *params; /* key NULL last; NULL for none */
    /* sizes left open (0) from the arrays; the index of an array that does not tell them, else -1; NULL: none is left
     * open */
    int (*sizes)(rp_term *term, const rp_array *array);
    /* sizes that are still open, set to what problems and models use where nobody says; NULL: none is left open */
    void (*usual_sizes)(rp_term *term, int64_t len_k);
    /* check the parameters of terms[n] beyond their bounds, and resolve what was left open; NULL: nothing to check */
    rp_status (*check)(const rp_desc *desc, rp_term *term, int32_t n);
    /* check arrays that were given, whose shapes are right already; NULL: nothing to check */
    rp_status (*check_arrays)(const rp_desc *desc, const rp_term *term, const rpi_view *array, int32_t n);
    /* OFFSET and TILE: the bias of one pair, and g times its derivatives */
    double (*pair)(const rpi_pair *p);
    void (*grad)(const rpi_pair *p, double g, const rpi_sums *to);
    /* how the bias of one pair comes about, with its numbers: "-0.3 * log(1 + 4)", as printf writes it; what it says is
     * what pair or entry computes. NULL: the formula and the value have to do */
    int (*worked)(const rpi_pair *p, char *to, size_t size);
    /* OFFSET, optional: the part of the bias that the heads share, made once for each delta */
    double (*shared)(const rpi_pair *p);
    /* TILE with `row`, optional: add to `sums_size` sums of head p->h what g of row (b, h, i) gives; all gradients from
     * them */
    int64_t (*sums_size)(const rp_desc *desc, const rp_term *term);
    void (*row_grad)(const rpi_pair *p, int64_t j0, int64_t n, const double *g, double *sums);
    void (*fold_sums)(const rpi_pair *p, const double *sums, const rpi_sums *to);
    /* TILE that is causal, optional: all gradients of head (b, h) from the sums of g over the pairs with j < t <= p_i,
     * for each t of the keys */
    void (*fold)(const rpi_pair *p, const double *between, const rpi_sums *to);
    /* TILE, optional: the biases of row (b, h, i) for keys j0 … j0+n-1 of no given positions; p->j and p->delta are
     * not set */
    void (*row)(const rpi_pair *p, int64_t j0, int64_t n, double *to);
    /* TILE, optional: a number that no bias of rows (b, h, i) … (b, h, i+rows-1) and keys j0 … j1-1 exceeds; +infinity:
     * none is known. It lets tiles be left out whose weights are all 0. */
    double (*largest)(const rpi_pair *p, int64_t rows, int64_t j0, int64_t j1);
    /* OFFSET and INDEX that go by given positions: offsets below -left have the value of -left, those above right that
     * of right; NULL: no such limits */
    void (*reach)(const rp_term *term, int64_t *left, int64_t *right);
    /* INDEX: entry `index(p)` of `entries`, its value for head p->h, and g times its derivatives */
    int64_t (*entries)(const rp_desc *desc, const rp_term *term);
    int64_t (*index)(const rpi_pair *p);
    double (*entry)(const rpi_pair *p, int64_t e);
    void (*entry_grad)(const rpi_pair *p, int64_t e, double g, const rpi_sums *to);
    /* VEC: one or two products; VALVEC: one. A product without `count` is none. */
    rpi_product product[2];
    /* doubles that `prepare` fills once for a call from the arrays, or RPI_TOO_LARGE: p->prepared; NULL: none */
    int64_t (*prepare_size)(const rp_desc *desc, const rp_term *term);
    void (*prepare)(const rp_desc *desc, const rp_term *term, const rpi_view *array, double *to);
} rpi_scheme;

#endif
