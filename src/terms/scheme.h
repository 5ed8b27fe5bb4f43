/* terms/scheme.h -- what a scheme gives for its term: definition, derivatives, parameters, arrays; and how a term enters.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SCHEME_H
#define RELPOS_SCHEME_H
#include "base/arena.h"
#include "base/array.h"

/* One pair, as a definition sees it. */
typedef struct rpi_pair {
    const rp_desc *desc;
    const rp_term *term;
    const rpi_view *array;  /* the term's arrays */
    const double *prepared; /* what the scheme's `prepare` made for this call */
    int64_t b, h, i, j;
    int64_t position;     /* index of the query among positions: i + q_offset */
    double delta;         /* p_j - p_i: j - position, or the difference of given positions */
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

/* How a term enters. The kernels know these forms and no scheme by name.
 *   OFFSET  a bias that depends on (h, delta) alone: one strip per head, summed with the other terms of this form
 *   INDEX   a bias out of a list of entries per head: entry(h, index(i, j))
 *   TILE    a bias that depends on (b, h, i, j): read in place where it is the array itself, else filled row by row
 *   VEC     products of queries or keys with vectors: see rpi_part
 *   VALVEC  adds vec(h, index(i, j)) to v_j: one part, whose products are with dout
 *   ROTATE  rotates q and k
 *   SINK    a logit beside each row */
typedef enum rpi_form { RPI_OFFSET, RPI_INDEX, RPI_TILE, RPI_VEC, RPI_VALVEC, RPI_ROTATE, RPI_SINK } rpi_form;

/* A parameter of a term: what the user types, where it goes, and its bounds. A grid is two int64 written "7x7". */
typedef enum rpi_param_type { RPI_INT, RPI_REAL, RPI_FLAG, RPI_CHOICE, RPI_GRID, RPI_SIGN } rpi_param_type;
typedef struct rpi_param {
    const char *key;
    rpi_param_type type;
    size_t offset;              /* in rp_term */
    bool required;              /* the text must give it */
    const char *const *choices; /* RPI_CHOICE: names in enumerator order, NULL last */
} rpi_param;

/* An array of a term. LEARNED ones have gradients. */
typedef enum rpi_role { RPI_LEARNED, RPI_CONSTANT, RPI_POSITIONS, RPI_TRUTH } rpi_role;
typedef struct rpi_array {
    const char *name;
    rpi_role role;
    bool optional;
} rpi_array;
#define RPI_LEARN(name)                                                                                                \
    {                                                                                                                  \
        name, RPI_LEARNED, false                                                                                       \
    }
#define RPI_MAY_LEARN(name)                                                                                            \
    {                                                                                                                  \
        name, RPI_LEARNED, true                                                                                        \
    }
/* What the terms of the offset take last; `positions` of the scheme is where they begin. */
#define RPI_TWO_POSITIONS                                                                                              \
    {"q_positions", RPI_POSITIONS, true},                                                                              \
    {                                                                                                                  \
        "k_positions", RPI_POSITIONS, true                                                                             \
    }

/* One sum of products of a term of form VEC: factor * sum over c of query(c) * vec(h, e, c), e = index(i, j) in [0, count).
 * With key_side the row is k_j instead of q_i. Where index is NULL, e = clamp(delta - first, 0, count-1); with `zero_outside`
 * pairs whose e would be clamped get 0. */
typedef struct rpi_part {
    int array; /* index of the array of vectors */
    bool key_side, zero_outside;
    bool (*present)(const rpi_view *array); /* NULL: always; the arrays of an absent part are absent */
    int64_t (*count)(const rp_desc *desc, const rp_term *term);
    int64_t (*first)(const rp_desc *desc, const rp_term *term); /* the delta of vector 0 */
    bool by_index;                                              /* delta is j - i here, without q_offset */
    int64_t (*index)(const rpi_pair *p);
    int64_t (*width)(const rp_desc *desc, const rp_term *term); /* channels; NULL: Dk */
    /* element c of vector e of head p->h, and g times its derivative */
    double (*vec)(const rpi_pair *p, int64_t e, int64_t c);
    void (*vec_grad)(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to);
    /* channel c of the row (b, h, i); NULL: q_i, or k_j on the key side */
    double (*query)(const rpi_pair *p, int64_t c);
    void (*query_grad)(const rpi_pair *p, int64_t c, double g, const rpi_sums *to);
} rpi_part;

typedef struct rpi_scheme {
    rpi_form form;
    bool in_place;                  /* of TILE: array 0 is the bias itself */
    bool same_heads;                /* of OFFSET: the value does not depend on the head */
    bool bias;                      /* of VEC: a bias outside the softcap, factor 1; else inside it */
    bool unscaled;                  /* of VEC: factor 1; else scale */
    bool causal;                    /* of TILE: keys after the query are masked */
    bool grid;                      /* tokens lie on a grid: no q_offset */
    bool class_token;               /* of INDEX: the first term->extra tokens lie outside the grid */
    rpi_array array[RP_MAX_ARRAYS]; /* name NULL past the last */
    int32_t positions;       /* index of q_positions among the arrays, k_positions next; see rpi_takes_positions */
    const rpi_param *params; /* key NULL last; NULL for none */
    /* sizes left open (0) from the arrays; the index of an array that does not tell them, else -1; NULL: none is left open */
    int (*sizes)(rp_term *term, const rp_array *array);
    /* check the parameters of terms[n] and resolve their defaults; NULL: nothing to check */
    rp_status (*check)(const rp_desc *desc, rp_term *term, int32_t n);
    /* check arrays that were given, whose shapes are right already; NULL: nothing to check */
    rp_status (*check_arrays)(const rp_desc *desc, const rp_term *term, const rpi_view *array, int32_t n);
    /* the shape of array `index`, other than q_positions and k_positions; NULL for a term without arrays */
    void (*shape)(const rp_desc *desc, const rp_term *term, int32_t index, rpi_shape *shape);
    /* OFFSET and TILE: the bias of one pair, and g times its derivatives */
    double (*pair)(const rpi_pair *p);
    void (*grad)(const rpi_pair *p, double g, const rpi_sums *to);
    /* OFFSET, optional: the part of the bias that the heads share, made once for each delta */
    double (*shared)(const rpi_pair *p);
    /* TILE with `row`, optional: add to `sums_size` sums of head p->h what g of row (b, h, i) gives; all gradients from them */
    int64_t (*sums_size)(const rp_desc *desc, const rp_term *term);
    void (*row_grad)(const rpi_pair *p, int64_t j0, int64_t n, const double *g, double *sums);
    void (*fold_sums)(const rpi_pair *p, const double *sums, const rpi_sums *to);
    /* TILE, optional: all gradients of head (b, h) from sums of g over the keys of each query and over the queries of each key */
    void (*fold)(const rpi_pair *p, const double *row_sum, const double *column_sum, const rpi_sums *to);
    /* TILE, optional: the biases of row (b, h, i) for keys j0 … j0+n-1 of no given positions; p->j and p->delta are not set */
    void (*row)(const rpi_pair *p, int64_t j0, int64_t n, double *to);
    /* OFFSET and INDEX that go by given positions: offsets below -left have the value of -left, those above right that of
     * right; NULL: no such limits */
    void (*reach)(const rp_term *term, int64_t *left, int64_t *right);
    /* INDEX: entry `index(p)` of `entries`, its value for head p->h, and g times its derivatives */
    int64_t (*entries)(const rp_desc *desc, const rp_term *term);
    int64_t (*index)(const rpi_pair *p);
    double (*entry)(const rpi_pair *p, int64_t e);
    void (*entry_grad)(const rpi_pair *p, int64_t e, double g, const rpi_sums *to);
    /* VEC: one or two parts; VALVEC: one. A part without `count` is none. */
    rpi_part part[2];
    /* doubles that `prepare` fills once for a call from the arrays, or RPI_TOO_LARGE: p->prepared; NULL: none */
    int64_t (*prepare_size)(const rp_desc *desc, const rp_term *term);
    void (*prepare)(const rp_desc *desc, const rp_term *term, const rpi_view *array, double *to);
} rpi_scheme;

/* The factor of a term of form VEC, the vector that a part uses (-1: none), and a channel of its row. */
double rpi_vec_factor(const rp_desc *d, const rp_term *t);
int64_t rpi_part_index(const rpi_part *part, const rpi_pair *p);
int64_t rpi_part_width(const rpi_part *part, const rpi_pair *p);

/* The bias of a pair of OFFSET, INDEX or TILE, and g times its derivatives. */
static inline double rpi_definition(const rpi_scheme *s, const rpi_pair *p)
{
    return s->pair ? s->pair(p) : s->entry(p, s->index(p));
}

static inline void rpi_definition_grad(const rpi_scheme *s, const rpi_pair *p, double g, const rpi_sums *to)
{
    if (s->grad)
        s->grad(p, g, to);
    else if (s->entry_grad)
        s->entry_grad(p, s->index(p), g, to);
}

const rpi_scheme *rpi_scheme_of(rp_term_kind kind); /* NULL for no such kind */
/* Refuse the size of a caller's struct that is larger than the library's own, or no whole number of fields. */
rp_status rpi_check_struct_size(const char *name, size_t size, size_t own);
/* A caller's term of `size` bytes, which may lack fields at the end: those have their defaults. */
rp_status rpi_term_take(rp_term *to, const void *from, size_t size);
/* The other way; RP_E_UNSUPPORTED where a field that the caller lacks has another value than its default. */
rp_status rpi_term_give(void *to, size_t size, const rp_term *from);
int32_t rpi_count_arrays(const rpi_scheme *s);
/* Whether a term takes q_positions and k_positions; where nothing comes before them, they begin at 0. */
static inline bool rpi_takes_positions(const rpi_scheme *s)
{
    return s->array[s->positions].role == RPI_POSITIONS;
}
/* Whether one of them is there, so that the term does not go by the index. */
static inline bool rpi_positions_given(const rpi_scheme *s, const rpi_view *array)
{
    return rpi_takes_positions(s) && (array[s->positions].data || array[s->positions + 1].data);
}
/* The shape of array x of a term, q_positions and k_positions among them. */
void rpi_term_shape(const rp_desc *desc, const rp_term *term, int32_t x, rpi_shape *shape);
/* Refuse positions that are not finite, or beyond 2^53 in size; `what` names the array. */
rp_status rpi_check_positions(const rpi_view *v, const rpi_shape *shape, const char *what);

/* The two channels of pair c of a rotation. */
static inline void rpi_rotate_channels(const rp_term *t, int64_t c, int64_t *x, int64_t *y)
{
    *x = t->layout == RP_LAYOUT_HALF ? c : 2 * c;
    *y = t->layout == RP_LAYOUT_HALF ? c + t->dim / 2 : 2 * c + 1;
}

#endif
