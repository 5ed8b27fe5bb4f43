/* internal.h -- what the files of the library share. Nothing here is installed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_INTERNAL_H
#define RELPOS_INTERNAL_H

#include "arena.h"
#include "random.h"
#include <float.h>
#include <relpos/relpos.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---------------------------------------------------------------------------------------------- errors, sizes */

/* Keep one line for rp_last_error and return the status. */
__attribute__((format(printf, 2, 3))) rp_status rpi_fail(rp_status status, const char *format, ...);

/* *product = a * b * c for sizes >= 0; false if it does not fit in 63 bits. A zero does not hide an overflow. */
bool rpi_mul(int64_t a, int64_t b, int64_t c, int64_t *product);

static inline int64_t rpi_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t rpi_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t rpi_clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static inline int64_t rpi_round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* ---------------------------------------------------------------------------------------------- arrays */

/* An array whose shape was checked: one stride for each axis of the shape that was asked for, 0 where it broadcasts. */
typedef struct rpi_view {
    void *data; /* NULL: absent */
    rp_dtype dtype;
    int64_t stride[RP_MAX_AXES];
    int64_t len[RP_MAX_AXES]; /* 1 where it broadcasts, and past the last axis */
    const void *const *page;  /* of k and v in pages: [B][per_batch], of page_keys keys each; NULL: none */
    int64_t page_keys, per_batch;
} rpi_view;

/* The shape an array should have. Axes whose bit is set in `ones` may be 1; an array may leave out leading axes down to
 * min_ndim, as NumPy broadcasts. */
typedef struct rpi_shape {
    int32_t ndim, min_ndim;
    uint32_t ones;
    int64_t n[RP_MAX_AXES];
} rpi_shape;

typedef enum rpi_class { RPI_FLOATS, RPI_INTEGERS, RPI_NUMBERS } rpi_class;

/* Check an array against a shape and describe it; `what` names it in errors, such as "term[0].table". */
rp_status rpi_view_of(rpi_view *view, const rp_array *a, const rpi_shape *shape, rpi_class cls, const char *what);

/* Rounded to f32; a finite number beyond its range stays finite, because only -infinity masks. */
static inline float rpi_to_float(double x)
{
    return x < -FLT_MAX && x > -HUGE_VAL ? -FLT_MAX : x > FLT_MAX && x < HUGE_VAL ? FLT_MAX : (float)x;
}

/* A sum of biases: -infinity masks, whatever it is added to, and finite biases never make one. */
static inline double rpi_bias_sum(double a, double b)
{
    const double sum = a + b;
    if (a == -HUGE_VAL || b == -HUGE_VAL)
        return -HUGE_VAL;
    return isinf(sum) && isfinite(a) && isfinite(b) ? copysign(DBL_MAX, sum) : sum;
}

/* The element at byte level: any type, as double, as truth, as an integer. */
double rpi_value(const void *data, rp_dtype dtype, int64_t at);
bool rpi_truth(const void *data, rp_dtype dtype, int64_t at);
int64_t rpi_integer(const void *data, rp_dtype dtype, int64_t at);
void rpi_put(void *data, rp_dtype dtype, int64_t at, double value); /* a floating type, rounded once */
bool rpi_is_floating(rp_dtype dtype);
void rpi_load_f32(float *to, const void *from, rp_dtype dtype, int64_t n); /* rows of a floating type */
void rpi_load_f64(double *to, const void *from, rp_dtype dtype, int64_t n);
void rpi_store_f64(void *to, rp_dtype dtype, const double *from, int64_t n);

static inline int64_t rpi_index(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * v->stride[0] + b * v->stride[1] + c * v->stride[2] + d * v->stride[3];
}

/* Bytes of an element of q, k, v and out. */
static inline int64_t rpi_floating_size(rp_dtype dtype)
{
    return dtype == RP_F64 ? 8 : dtype == RP_F32 ? 4 : 2;
}

/* Where row j of head h of k or v begins. */
static inline const void *rpi_row_of(const rpi_view *v, int64_t b, int64_t h, int64_t j)
{
    const char *base = v->data;
    int64_t at;
    if (v->page) {
        base = v->page[b * v->per_batch + j / v->page_keys];
        at = h * v->stride[1] + j % v->page_keys * v->stride[2];
    } else {
        at = rpi_index(v, b, h, j, 0);
    }
    return base + at * rpi_floating_size(v->dtype);
}

/* The element [a, b, c, d] of a view, as double. */
static inline double rpi_at(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t at = rpi_index(v, a, b, c, d);
    return v->dtype == RP_F64 ? ((const double *)v->data)[at] : rpi_value(v->data, v->dtype, at);
}

/* ---------------------------------------------------------------------------------------------- position terms */

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
    const double *q, *k;  /* rows i and j as they came, not turned; for VEC only */
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
 *   ROTATE  turns q and k
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
    bool whole;                     /* of OFFSET: delta counts only truncated toward zero */
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

/* ---------------------------------------------------------------------------------------------- masks */

/* One mask. `interval` narrows the keys [*lo, *hi) that the query at a position may see; `keep` clears bytes of keys that
 * pair by pair may not be seen. A mask has either or both; together they are its meaning. */
typedef struct rpi_masker {
    rp_status (*check)(const rp_desc *desc, const rp_mask *mask, int32_t n);
    void (*shape)(const rp_desc *desc, rpi_shape *shape); /* NULL: no array */
    void (*interval)(const rp_mask *mask, const rpi_view *a, int64_t b, int64_t position, int64_t *lo, int64_t *hi);
    void (*keep)(const rpi_view *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, uint8_t *keep);
    bool keep_same_rows; /* keep does not depend on h and i */
} rpi_masker;

const rpi_masker *rpi_masker_of(rp_mask_kind kind);

/* ---------------------------------------------------------------------------------------------- plan and call */

typedef struct rpi_ops rpi_ops;

struct rp_plan {
    rp_desc desc;                /* defaults resolved; terms and masks point into this struct */
    rp_term terms[RP_MAX_TERMS]; /* defaults resolved */
    rp_mask masks[RP_MAX_MASKS];
    const rpi_ops *ops;                /* NULL: the reference path */
    const char *isa;                   /* by name; f64 may have the kernels of another */
    int32_t parts;                     /* bf16 that a number is the sum of, where products are made of bf16 */
    int32_t rotate, vec, valvec, sink; /* index of the term of that form, vec of one inside the softcap; -1: none */
    int32_t n_offset, n_index, n_tile, n_vec; /* terms of those forms; n_vec: of VEC that are biases */
    bool intervals;                           /* rows may see a part of the keys: some mask or term is an interval */
    bool mask_keep;                           /* some mask needs bytes, not intervals alone */
    bool mask_keep_rows;                      /* and they differ between rows */
};

/* The arrays of one call, checked, and what follows from them once for the call. */
typedef struct rpi_args {
    rp_desc desc; /* the plan's, with the lengths of this call */
    rpi_view q, k, v, out, lse, weights, profile, key_mass, entropy, q_offset;
    rpi_view top, log_sum; /* lse in two parts, for the backward pass: [B,H,Lq] f64 */
    rpi_view term[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rpi_view mask[RP_MAX_MASKS];
    /* made by rpi_args_prepare */
    double *prepared[RP_MAX_TERMS];
    int64_t *segment_start;         /* [B][Lk] index of the first token of the segment; NULL: no segments */
    double *frequency, turn_factor; /* [dim/2] of ROTATE */
    rpi_arena memory;
    const rp_prepared *ready; /* NULL: none */
    bool offsets_only;        /* arrays of OFFSET and ROTATE terms alone are there */
} rpi_args;

/* What a call needs beside its arrays: prefix sums, frequencies, segments. rpi_args_free undoes it. */
rp_status rpi_args_prepare(rpi_args *args, const rp_plan *plan);
void rpi_args_free(rpi_args *args);

/* The position of query i of batch entry b among indices: i + q_offset. */
static inline int64_t rpi_position(const rpi_args *a, int64_t b, int64_t i)
{
    return i + (a->q_offset.data ? rpi_integer(a->q_offset.data, a->q_offset.dtype, rpi_index(&a->q_offset, b, 0, 0, 0))
                                 : a->desc.q_offset);
}

/* The position by which RoPE turns query or key n; args.c. */
double rpi_turn_position(const rpi_args *args, int32_t term, bool key, int64_t b, int64_t n);

/* A pair of terms[term] for a query; rpi_pair_key adds the key. */
rpi_pair rpi_pair_of(const rpi_args *args, int32_t term, int64_t b, int64_t h, int64_t i);
void rpi_pair_key(const rpi_args *args, rpi_pair *p, int64_t j);

typedef struct rpi_grads rpi_grads;
const rp_plan *rpi_prepared_plan(const rp_prepared *p);
rp_status rpi_args_check(rpi_args *args, const rp_plan *plan, const rp_tensors *t);
rp_status rpi_args_check_offsets(rpi_args *args, const rp_plan *plan, const rp_tensors *t); /* of rp_prepare */
/* all that a backward call is given */
rp_status rpi_backward_check(rpi_args *args, rpi_grads *grads, const rp_plan *plan, const rp_tensors *t,
                             const rp_grads *g);
rp_status rpi_check_output(const rp_array *a, const char *name); /* refuses elements that share memory */
rp_status rpi_args_overlap(const rp_plan *plan, const rp_tensors *t);
rp_status rpi_output_overlap(const rp_plan *plan, const rp_tensors *t, const rp_array *out); /* out beside the inputs */

/* How far a call is: workers count tasks, the caller's own thread (worker 0) reports. */
typedef struct rpi_progress {
    rp_progress *report;
    void *context;
    int64_t total;
    atomic_llong done;
    atomic_bool stop; /* report said so: what has not begun is left */
} rpi_progress;

void rpi_progress_step(rpi_progress *p, int32_t worker);
rp_status rpi_progress_status(const rpi_progress *p);

/* The keys [*lo, *hi) that query i may see, as far as intervals go: 0 <= *lo <= *hi <= Lk. */
void rpi_interval(const rp_plan *plan, const rpi_args *args, int64_t b, int64_t i, int64_t *lo, int64_t *hi);

/* The gradients of one backward call, checked. */
struct rpi_grads {
    rpi_view dout, dq, dk, dv;
    rpi_view term[RP_MAX_TERMS][RP_MAX_ARRAYS];
};

/* The reference path: the outputs that args has; the gradients that are wanted. */
typedef struct rpi_ref rpi_ref;
rp_status rpi_ref_begin(rpi_ref **ref, const rp_plan *plan, const rpi_args *args,
                        rp_pool *pool); /* all that may fail */
rp_status rpi_ref_run(rpi_ref *ref, rp_pool *pool, rpi_progress *progress);
void rpi_ref_end(rpi_ref *ref);
rp_status rpi_ref_backward(const rp_plan *plan, const rpi_args *args, const rpi_grads *grads, rpi_progress *progress);

/* Sums for the gradient of each wanted array of the terms, zero at first, in one block of memory: rpi_arena_free(&sums->memory). */
typedef struct rpi_term_sums {
    rpi_sums term[RP_MAX_TERMS];
    int64_t elements[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rpi_arena memory;
} rpi_term_sums;
rp_status rpi_sums_alloc(rpi_term_sums *sums, const rp_plan *plan, const rpi_args *args, const rpi_grads *grads);
void rpi_sums_store(const rpi_term_sums *sums, const rp_plan *plan, const rpi_args *args, const rpi_grads *grads);

/* Bytes of work of the fast path. */
size_t rpi_fast_work_size(const rp_plan *plan, int32_t threads); /* of any call; 0 after rpi_fail */
size_t rpi_backward_work_size(const rp_plan *plan, int32_t threads);

/* ---------------------------------------------------------------------------------------------- threads */

/* Run task(context, n, worker) for n = 0 … n_tasks-1; worker < rp_pool_threads(pool). Tasks are taken in order. */
#define RPI_MOST_THREADS 4096
typedef void (*rpi_task)(void *context, int64_t n, int32_t worker);
void rpi_pool_run(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context);
/* Until *stop, which a task may set; NULL: to the end. */
void rpi_pool_run_until(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context, const atomic_bool *stop);
rp_pool *rpi_pool_or_default(rp_pool *pool);
rp_pool *rpi_pool_for(rp_pool *pool, const rp_desc *d); /* one thread alone for a short call */

/* ---------------------------------------------------------------------------------------------- instruction sets */

/* Where biases come from: a pointer for each row of a tile.
 *   STRIP   the sum of the OFFSET terms: entry delta - low of the head's strip
 *   GATHER  the head's entries by an index: trunc(clamp(k_at - q_at)) - first
 *   TILE    the definition, row by row, or the array itself
 *   RUN     products of the queries with vectors, by delta - first, clamped; with `gather` by index as above
 *   COLUMN  one product of each key: the same for every row
 *   KEYS    products of the keys with vectors, pair by pair */
typedef enum rpi_source_kind {
    RPI_STRIP,
    RPI_GATHER,
    RPI_ROWS,
    RPI_RUN,
    RPI_COLUMN,
    RPI_KEYS,
} rpi_source_kind;

typedef struct rpi_source {
    rpi_source_kind kind;
    int32_t term;         /* of STRIP: none */
    const rpi_part *part; /* of RUN, COLUMN, KEYS */
    bool inside;          /* the softcap */
    bool by_row;          /* of ROWS: by the scheme's `row` */
    bool gather;          /* the index comes from q_at and k_at, and NaN there asks the definition */
    int64_t count, first, width,
        pad_count;                /* entries or vectors; delta of the first; channels; count in whole panels */
    const double *q_at, *k_at;    /* [B or 1][Lq], [B or 1][Lk] */
    const int32_t *q_int, *k_int; /* the same as whole numbers, first taken off k; NULL: they are not whole */
    bool special;                 /* some of q_at or k_at is NaN */
    bool unclamped;               /* k_int less q_int is an index as it is, for every query and key */
    int64_t q_step, k_step;       /* between batch entries */
    void *strip;                  /* of STRIP and GATHER: [B or 1][H or 1][strip_len] */
    void *
        table; /* of GATHER and arrays: [H][Lq][pad_k] the biases of all pairs, where batch entries share few; NULL: none */
    int64_t strip_len, strip_step;  /* between heads */
    int64_t strip_batch, strip_low; /* between batch entries; delta of entry 0 where they share one */
    void *panels, *rows;            /* vectors packed as keys; as values, columns of NR channels */
    int64_t panels_step, rows_step; /* between heads */
    uint8_t *wild;                  /* of VALVEC: [H or 1][pad_count] 1: a vector that is not finite; NULL: all are */
    int64_t wild_step;
    void *column; /* [head of the group][pad_k] */
    void *turned; /* of KEYS: [H or 1][width][turned_step]: channel by channel, KB more on both sides */
    int64_t turned_step;
    bool turned_heads; /* each head has its own */
} rpi_source;
#define RPI_MAX_SOURCES (2 * RP_MAX_TERMS + 1)

/* Entry or vector of a pair, by the definition: what GATHER and RUN tabulate. */
int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p);
/* g[h * step] times the derivative of entry e of every head h, of STRIP (every OFFSET term, entry 0 at delta = low) and GATHER. */
void rpi_source_entry_grads(const rpi_source *s, const rpi_args *args, int64_t low, int64_t e, const double *g,
                            int64_t step, rpi_term_sums *sums);

/* All that a query block reads and writes: one for the whole call, the packed part renewed for each group of kv heads. */
typedef struct rpi_call {
    const rp_plan *plan;
    const rpi_args *args;
    const rpi_grads *grads; /* NULL: forward */
    rpi_progress *progress;
    rpi_source source[RPI_MAX_SOURCES], valvec;
    int32_t n_sources;
    /* packed keys and values of kv heads g0 … g0+groups-1, counted over batch * kv_heads:
     *   keys   [kv head][panel of NR keys][Dk][NR]          values [kv head][columns in steps of NR][Lk padded][up to NR]
     *   wild_k [kv head][panel] 1: a key that is not tame   wild_v [kv head][Lk padded] 1: a value that is not finite */
    int64_t g0, groups;
    int64_t whole; /* or instead: of the kv head that each worker is at; kv heads of a task */
    void *keys, *values;
    uint8_t *wild_k, *wild_v;
    int64_t pad_k, pad_v; /* Lk rounded up to NR, Dv rounded up to VL */
    /* rotation: [B or 1][Lq or Lk][dim/2][2] cosine, sine */
    void *turn_q, *turn_k;
    int64_t turn_q_step, turn_k_step;
    /* scratch of one worker each */
    char *scratch;
    int64_t scratch_step;
    /* summaries of one (b, h): `chunks` partial sums, added in order at the end of each group */
    double *partial; /* [head of the group][chunk][Lq+Lk-1 profile, Lk key mass] */
    int64_t chunks, chunk_rows;
    struct rpi_backward *backward; /* of a backward call */
    struct rpi_decode *decode;     /* of few queries and many keys */
} rpi_call;

/* What the tasks of few queries and many keys share; kernels/decode_tmpl.h. */
typedef struct rpi_decode {
    int64_t n_tiles;
    void *scores, *tiles, *sums; /* of the query heads of a group */
    atomic_int wild;             /* a value is not finite: the call starts again, block by block */
} rpi_decode;

/* What a backward call shares: backward.c. Heads are counted within the group where it says so, else over batch * heads. */
typedef struct rpi_backward {
    int64_t blocks, pad_rows, key_blocks; /* blocks of QB rows and rows padded to them; blocks of keys */
    void *dq;                     /* [head of the group][pad_rows][Dk padded] of turned queries, without scale */
    void *own[RPI_MAX_SOURCES];   /* [head of the group][pad_rows][width padded] of each RUN's own queries */
    double *row_stats;            /* [B * H][Lq][3] the parts of lse, largest score and log of the sum; <dout, out> */
    rpi_term_sums sums;           /* of the arrays of the terms */
    rpi_term_sums *private_sums;  /* for each worker: of terms that go pair by pair; NULL: none */
    bool direct[RPI_MAX_SOURCES]; /* gradients that tasks write themselves */
    bool pairs[RPI_MAX_SOURCES], any_pairs; /* gradients of arrays of pairs that heads or batch entries share */
    double *strips;                         /* [1 or B][H][strip_len] gradients of the entries of the STRIP */
    double *entries[RPI_MAX_SOURCES];       /* [H][count] of GATHER, [H][sums_size] of ROWS with row_grad */
    double *vectors[RPI_MAX_SOURCES + 1];   /* [H][count][width] of RUN and KEYS; the last is VALVEC's */
    double *columns;                        /* [B * H][key_blocks][width] of COLUMN */
    double *sums_row, *sums_column;         /* [B * H][Lq], [B * H][Lk] sums of ds for `fold` */
    /* how many key blocks, or tasks, have added their part */
    atomic_llong *turn_rows, *turn_own[RPI_MAX_SOURCES]; /* [head of the group][blocks] */
    atomic_llong *turn_head;                             /* [H] */
    atomic_llong *turn_pairs;                            /* [blocks][key_blocks] heads that have added theirs */
    atomic_llong turn_task;
    bool any_head; /* something is summed for each head */
} rpi_backward;

/* Wait until `turn` tasks have passed; let the next one pass. */
void rpi_turn_wait(atomic_llong *at, int64_t turn);
void rpi_turn_pass(atomic_llong *at);

struct rpi_ops {
    const char *name;
    int32_t vl, nr;     /* elements of a vector; columns of a register tile */
    int32_t qb, kb, vb; /* rows of a query block; keys of a tile; keys between two additions to out */
    int32_t bkb;        /* keys of a task of the backward pass */
    int32_t real;       /* bytes of an element of the arithmetic */
    bool squares;       /* products are made of bf16: kernels/split_tmpl.h */
    int64_t (*scratch_size)(const rpi_call *c); /* bytes, or RPI_TOO_LARGE; decode_size and backward_size likewise */
    int64_t (*key_bytes)(const rp_plan *plan), (*value_bytes)(const rp_plan *plan); /* of a packed key or value */
    void (*pack)(const rpi_call *c, int64_t kv, int64_t panel0, int64_t panel1, int32_t worker);
    void (*attend)(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, double *partial,
                   int32_t worker);
    void (*attend_whole)(const rpi_call *c, int64_t kv0, int64_t kv1, int32_t worker);
    int32_t decode_rows, decode_tile; /* most queries that go tile by tile; bytes of what a tile leaves */
    int64_t (*decode_size)(const rpi_call *c);
    void (*decode_scores)(const rpi_call *c, int64_t kv, int64_t tile, int32_t worker);
    void (*decode_values)(const rpi_call *c, int64_t kv, int64_t tile, int32_t worker);
    void (*decode_merge)(const rpi_call *c, int64_t head, int32_t worker);
    int64_t (*backward_size)(const rpi_call *c);
    void (*backward)(const rpi_call *c, int64_t kv, int64_t key_block, int32_t worker);
    double (*peak)(int64_t rounds);        /* multiply-adds done, on one thread */
    double (*square_peak)(int64_t rounds); /* of bf16 on squares; NULL: there are none */
};

const rpi_ops *rpi_ops_named(const char *name, bool f64); /* NULL: no such set, or not on this machine */

/* Keys of which all |x| <= RPI_TAME, with queries that are too, cannot overflow or make NaN from finite numbers:
 * Dk * 1e30 stays far below FLT_MAX for any Dk a machine can hold. */
#define RPI_TAME 1e15f

#endif
