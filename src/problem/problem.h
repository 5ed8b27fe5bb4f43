/* problem/problem.h -- one checked call: its plan, its arrays as views, its positions, the keys that a query may attend
 * to, and sums of gradients. Independent of sources, kernels and the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_PROBLEM_H
#define RPI_PROBLEM_H
#include "base/arena.h"
#include "base/array.h"
#include "limits.h"
#include "masks/mask.h"
#include "ops.h"
#include "terms/term_registry.h"

/* The largest magnitude of a position or length. Sums and differences of two of them fit in 63 bits. */
#define RPI_MAX_POSITION ((int64_t)1 << 60)

struct rp_plan {
    rp_desc desc;                /* with defaults resolved; its terms and masks point into this struct */
    rp_term terms[RP_MAX_TERMS]; /* with defaults resolved */
    rp_mask masks[RP_MAX_MASKS];
    const rpi_scheme *scheme[RP_MAX_TERMS]; /* scheme of each term */
    rpi_shape_code *shape; /* [n_terms][RP_MAX_ARRAYS] shapes of the terms' arrays; set by rp_plan_create */
    const rpi_mask_entry *mask_entry[RP_MAX_MASKS]; /* functions of each mask */
    rpi_limits bounds;  /* sizes and properties that bound every call; set if ops is not NULL */
    const rpi_ops *ops; /* NULL for the reference path */
    const char *isa;    /* name of the instruction set; for f64, `ops` may belong to another one */
    int32_t components; /* number of bf16 components that represent an f32 number in AMX products */
    /* index of the term of this form, or -1; vec: only the VEC term inside the softcap */
    int32_t rotate, vec, valvec, sink;
    int32_t n_tile, n_vec; /* n_tile: number of TILE terms; n_vec: number of VEC terms that are biases */
    bool intervals;        /* some mask or causal term limits rows to intervals of keys */
    bool mask_keep;        /* some mask is not an interval and needs a byte for each pair */
    bool mask_keep_rows;   /* some mask of this kind differs between rows */
    bool skips;            /* tiles whose weights are all 0 may be skipped */
    bool checks_norms;     /* for debugging: calls compare given norms with the keys */
};

/* The checked arrays of one call, and the data that is computed once from them. */
typedef struct rpi_args {
    const rp_plan *plan;
    rp_desc desc; /* description of the plan, with the lengths of this call */
    rpi_view q, k, v, out, lse, weights, profile, key_mass, entropy, q_offset;
    /* The call computes keys [key_from, key_to). The views of keys, values and their norms are shifted, so that row j
     * is key j of the sequence. */
    int64_t key_from, key_to;
    /* It computes rows [row_from, row_to). The views of q, out, lse, states and own keys are shifted likewise. */
    int64_t row_from, row_to;
    rpi_view state_in, state_out, own_keys; /* as in rp_tensors */
    rpi_view key_norms;        /* [B, Hk, segments of RP_NORM_KEYS keys], or the same of each page; absent if unknown */
    int64_t *pairs;            /* [2] numbers of allowed and computed pairs; NULL if not counted */
    rpi_view row_max, log_sum; /* lse as a sum of two numbers, for the backward pass: [B,H,Lq] f64 */
    rpi_view term[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rpi_view mask[RP_MAX_MASKS];
    /* set by rpi_args_prepare */
    double *prepared[RP_MAX_TERMS];
    /* [B][Lk] index of the first token of each token's segment; NULL if there are no segments */
    int64_t *segment_start;
    /* RoPE's frequencies, [sets][dim/2], or [axes][rope_heads][dim/2] if they are given, and the factor of its cosines
     * and sines. rope_set is the set of each batch entry [B] or, with segments, of each token [B][Lk]; NULL if there is
     * one set. */
    double *frequency, rope_factor;
    int64_t rope_heads; /* kv heads with frequencies of their own, or 1 */
    int64_t *rope_set;
    rpi_arena memory, frequencies;
    const rp_prepared *ready;         /* result of rp_prepare, or NULL */
    const struct rpi_tangents *along; /* sources have the tangents of the biases along these; NULL: the biases */
    bool prepared_only;               /* for rp_prepare: only the arrays of OFFSET and ROTATE terms are set */
} rpi_args;

/* Return the number of pairs with offset index t of rp_tensors.profile: rows i from max(0, Lq-1-t) to
 * min(Lq-1, Lq+Lk-2-t). */
static inline int64_t rpi_offset_pairs(const rp_desc *d, int64_t t)
{
    return rpi_min(d->len_q - 1, d->len_q + d->len_k - 2 - t) - rpi_max(0, d->len_q - 1 - t) + 1;
}

/* Compute the shape of array x of a term for a call with description d. */
static inline void rpi_array_shape(const rp_plan *plan, const rp_desc *d, int32_t term, int32_t x, rpi_shape *shape)
{
    if (x < 0)
        *shape = (rpi_shape){.ndim = 0};
    else
        rpi_evaluate_shape(&plan->shape[term * RP_MAX_ARRAYS + x], d, &d->terms[term], plan->scheme[term]->params,
                           shape);
}

/* Return the entry of the first axis of the array of an in_place term that batch entry b reads. */
static inline int64_t rpi_batch_entry(const rpi_args *a, int32_t term, int64_t b)
{
    const rpi_scheme *s = a->plan->scheme[term];
    return s->batch_entry ? s->batch_entry(&a->desc, &a->desc.terms[term], b) : b;
}

/* Return true if the call computes a range of rows. */
static inline bool rpi_is_row_range(const rpi_args *a)
{
    return a->row_from > 0 || a->row_to < a->desc.len_q;
}

/* Return true if the call computes a range of keys or rows, or starts from or ends with the states of its rows. */
static inline bool rpi_is_range(const rpi_args *a)
{
    return a->key_from > 0 || a->key_to < a->desc.len_k || rpi_is_row_range(a) || a->state_in.data || a->state_out.data;
}

/* Return the number of vectors for which a state has sums of weights: the vectors of the term that adds vectors to the
 * values, or 0 if there is none, or if it has so many that each tile adds its sums to out (window_vectors). */
static inline int64_t rpi_state_vectors(const rp_plan *plan)
{
    if (plan->valvec < 0)
        return 0;
    const int64_t n = plan->scheme[plan->valvec]->product[0].count(&plan->desc, &plan->terms[plan->valvec]);
    return n <= plan->ops->window_vectors ? n : 0;
}

/* ---- prepare.c */

/* Compute the data of a call that depends on its arrays: prepared data of schemes, frequencies, segments. rpi_args_free
 * frees it. */
rp_status rpi_args_prepare(rpi_args *args);
void rpi_args_free(rpi_args *args);

/* Find the element *n of a row of key_norms that covers key j. Return the first later key that has another element. */
static inline int64_t rpi_norm_of_key(const rpi_args *a, int64_t j, int64_t *n)
{
    const int64_t page = a->key_norms.page ? a->k.page_keys : INT64_MAX, in_page = j % page;
    *n = j / page * a->key_norms.page_keys + in_page / RP_NORM_KEYS;
    return j - in_page + rpi_min(in_page / RP_NORM_KEYS * RP_NORM_KEYS + RP_NORM_KEYS, page);
}

/* Return the position of query i of batch entry b: i + q_offset. */
static inline int64_t rpi_position(const rpi_args *a, int64_t b, int64_t i)
{
    return i + (a->q_offset.data ? rpi_integer(a->q_offset.data, a->q_offset.dtype, rpi_index(&a->q_offset, b, 0, 0, 0))
                                 : a->desc.q_offset);
}

/* Return the largest |lse| that the backward pass accepts as a single number. Below it, rounding lse changes a weight
 * by at most a factor of 1 ± 2^-8. */
static inline double rpi_lse_limit(const rp_desc *d)
{
    return d->dtype == RP_F64 ? 0x1p44 : 0x1p16;
}

/* Return the set of RoPE's frequencies of token n of batch entry b. */
static inline int64_t rpi_rope_set(const rpi_args *a, int64_t b, int64_t n)
{
    return a->rope_set ? a->rope_set[a->segment_start ? b * a->desc.len_k + n : b] : 0;
}

/* Return the array of RoPE's frequencies, absent if they follow from the base. */
static inline const rpi_view *rpi_rope_frequencies_given(const rpi_args *a)
{
    return &a->term[a->plan->rotate][RPI_ROPE_FREQUENCIES];
}

/* Return the index of the array with RoPE's angles of the queries or keys, or -1 if they follow from positions. */
static inline int rpi_rope_angles_given(const rpi_args *a, bool key)
{
    const rpi_view *array = a->term[a->plan->rotate];
    const int own = key ? RPI_ROPE_K_ANGLES : RPI_ROPE_Q_ANGLES;
    return array[RPI_ROPE_ANGLES].data ? RPI_ROPE_ANGLES : array[own].data ? own : -1;
}

/* Return true if RoPE has arrays with gradients: frequencies or angles. */
static inline bool rpi_rope_is_learned(const rpi_args *a)
{
    return rpi_rope_frequencies_given(a)->data || rpi_rope_angles_given(a, false) >= 0;
}

/* Return RoPE's frequencies of token n of batch entry b and of kv head g, along an axis of the positions. */
static inline const double *rpi_rope_frequency(const rpi_args *a, int64_t b, int64_t n, int64_t g, int64_t axis)
{
    const int64_t row = axis * a->rope_heads + (a->rope_heads > 1 ? g : 0);
    return a->frequency + (rpi_rope_set(a, b, n) + row) * (a->plan->terms[a->plan->rotate].dim / 2);
}

/* Return the number of axes of RoPE's positions. */
static inline int64_t rpi_rope_axes(const rpi_args *a)
{
    return rpi_rotation_axes(&a->plan->terms[a->plan->rotate]);
}

/* Return the position, along an axis, by which RoPE rotates query or key n. */
double rpi_rope_position(const rpi_args *args, bool key, int64_t b, int64_t axis, int64_t n);
/* Return true if the positions by which RoPE rotates the keys (or the queries) are given. */
static inline bool rpi_rope_positions_given(const rpi_args *a, bool key)
{
    const rpi_view *array = a->term[a->plan->rotate];
    return array[RPI_ROPE_POSITIONS].data || array[key ? RPI_ROPE_K_POSITIONS : RPI_ROPE_Q_POSITIONS].data;
}

/* Return true if the angles of the keys (or the queries) follow from a given array and not from consecutive
 * positions. */
static inline bool rpi_rope_tokens_given(const rpi_args *a, bool key)
{
    return rpi_rope_positions_given(a, key) || rpi_rope_angles_given(a, key) >= 0;
}

/* ---- rope.c */

/* Return the angle by which RoPE rotates pair c of query or key n, of kv head g or of its query heads. */
double rpi_rope_angle(const rpi_args *args, bool key, int64_t b, int64_t g, int64_t n, int64_t c);
/* Add x times the derivatives of this angle by the frequencies of pair c to sums[axis * step]. Angles are not given. */
static inline void rpi_rope_angle_sums(const rpi_args *args, bool key, int64_t b, int64_t n, double x, double *sums,
                                       int64_t step)
{
    for (int64_t axis = 0; axis < rpi_rope_axes(args); axis++)
        sums[axis * step] += x * rpi_rope_position(args, key, b, axis, n);
}
/* Add x to the sum for the frequency of pair c of kv head g along an axis. */
void rpi_rope_add(const rpi_args *args, const rpi_sums *to, int64_t axis, int64_t g, int64_t c, double x);
/* Add x times the derivatives of the angle of rpi_rope_angle to the sums for RoPE's arrays. */
void rpi_rope_angle_grad(const rpi_args *args, bool key, int64_t b, int64_t g, int64_t n, int64_t c, double x,
                         const rpi_sums *to);
/* Compute the frequencies of a call, after its segments. */
rp_status rpi_rope_prepare(rpi_args *args, const rpi_view *segments);

/* ---- positions.c */

/* Return a pair for terms[term] and a query; rpi_pair_key then sets its key. */
rpi_pair rpi_pair_of(const rpi_args *args, int32_t term, int64_t b, int64_t h, int64_t i);
void rpi_pair_key(const rpi_args *args, rpi_pair *p, int64_t j);
/* Return the logit of the sink of row (b, h, i), or -infinity without a sink; add g times its derivatives. */
double rpi_sink(const rpi_args *args, int64_t b, int64_t h, int64_t i);
void rpi_sink_grad(const rpi_args *args, int64_t b, int64_t h, int64_t i, double g, const rpi_sums *to);
/* Return the tangent of the sink of row (b, h, i), given those of the arrays of its batch entry; 0 without a sink. */
double rpi_sink_tangent(const rpi_args *args, int64_t b, int64_t h, int64_t i, const rpi_view *tangents);

/* Get the interval of keys [*lo, *hi) that query i may attend to: 0 <= *lo <= *hi <= Lk. Masks that are not intervals
 * are ignored. */
void rpi_interval(const rpi_args *args, int64_t b, int64_t i, int64_t *lo, int64_t *hi);
/* Clear keep[n], for 0 <= n < count, if a mask that is not an interval excludes key j0 + n for query i. */
void rpi_mask_keep(const rpi_args *args, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, uint8_t *keep);

/* ---- sums.c */

/* The softcaps before and after the biases. */
enum { RPI_BEFORE = 0, RPI_AFTER = 1, RPI_SOFTCAPS = 2 };

/* The checked gradients of one backward call. */
typedef struct rpi_grads {
    rpi_view dout, dlse, dq, dk, dv, dq_in, dq_out, dkv_in, dkv_out;
    rpi_view dweights, dprofile, dkey_mass, dentropy;
    bool of_weights; /* one of the last four is present: the loss depends on the weights not only through out */
    rpi_view term[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rpi_view softcap[RPI_SOFTCAPS]; /* a number, or with per_sample one for each batch entry */
} rpi_grads;

/* The checked tangents of one call: of q, k, v, the learned arrays and the softcaps, which are inputs, and of out and
 * lse. */
typedef struct rpi_tangents {
    rpi_view q, k, v, out, lse;
    rpi_view term[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rpi_view softcap[RPI_SOFTCAPS]; /* [B], with stride 0 if the entries share it */
} rpi_tangents;

/* Return softcap number n. */
static inline double rpi_softcap(const rp_desc *d, int n)
{
    return n == RPI_BEFORE ? d->softcap : d->softcap_after;
}

/* Sums for the gradients of the terms' arrays and of softcaps. rpi_sums_alloc sets them to zero; it allocates sums for
 * each requested gradient whose bit is set in arrays[term]. With `samples`, a gradient for each batch entry has sums
 * for each of them; `term` then has the views of batch entry `sample`, which rpi_sums_at chooses. Free the sums with
 * rpi_arena_free(&sums->memory). */
typedef struct rpi_term_sums {
    rpi_sums term[RP_MAX_TERMS];
    int64_t elements[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* of one batch entry */
    int64_t sample;
    double *softcap; /* [B][RPI_SOFTCAPS]; NULL without `samples` and if no gradient of a softcap is requested */
    rpi_arena memory;
} rpi_term_sums;
#define RPI_ALL_ARRAYS UINT32_MAX
rp_status rpi_sums_alloc(rpi_term_sums *sums, const rpi_args *args, const rpi_grads *grads, const uint32_t *arrays,
                         bool samples);
void rpi_sums_at(rpi_term_sums *sums, const rpi_args *args, int64_t b);
void rpi_sums_store(rpi_term_sums *sums, const rpi_args *args, const rpi_grads *grads);

#endif
