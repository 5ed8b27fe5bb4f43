/* relpos.h -- exact attention with relative positions: the public interface, and its manual.
 *
 * For batch entry b, query head h, query i, key j, and kv head g = h / (H / Hk):
 *
 *     s[i,j] = softcap(scale * <R(p_i) q_i, R(j) k_j> + relkey(i,j)) + bias_h(i,j)     -infinity where a mask says no
 *     w[i,.] = softmax(s[i,.])     out_i = sum_j w[i,j] (v_j + relval(i,j))     lse_i = log sum_j exp(s[i,j])
 *
 * Sign      the offset of a pair is delta = key - query = j - (i + q_offset), everywhere.
 * Letters   B batch, H query heads, Hk key/value heads, Lq queries, Lk keys, Dk width of q and k, Dv width of v and out.
 * Three nouns: rp_desc says what is computed (plain data), rp_plan how (immutable, shared by threads), and rp_tensors
 * where one call finds and leaves its arrays.
 *
 *     rp_term   term = rp_term_init(RP_TERM_ALIBI);
 *     rp_desc   desc = rp_desc_init(1, 8, 1024, 1024, 64);
 *     desc.terms = &term, desc.n_terms = 1;
 *     rp_plan  *plan;
 *     if (rp_plan_create(&plan, &desc) != RP_OK) { puts(rp_last_error()); exit(1); }
 *     int64_t    shape[4] = {1, 8, 1024, 64};
 *     rp_tensors t = rp_tensors_init();
 *     t.q = rp_array_of(q, RP_F32, 4, shape);  t.k = ...;  t.v = ...;  t.out = ...;
 *     rp_attend(plan, &t, NULL);
 *     rp_plan_destroy(plan);
 *
 * The library never prints, aborts or exits, changes no global state of the process, and makes no thread before the
 * first call that wants one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_H
#define RELPOS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define RP_VERSION_MAJOR  0
#define RP_VERSION_MINOR  1
#define RP_VERSION_PATCH  0
#define RP_VERSION_STRING "0.1.0"

#if defined(_WIN32)
#define RP_API
#else
/* Marks what the shared library exports; everything else is hidden. */
#define RP_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------ status */

/* What a call returns. On any status but RP_OK nothing has been written to the caller's arrays. */
typedef enum rp_status {
    RP_OK = 0,            /* done */
    RP_E_ARG = 1,         /* a NULL, an unknown name, an enumerator out of range, a struct of another version */
    RP_E_SHAPE = 2,       /* an array whose shape is not the one the description asks for */
    RP_E_STRIDE = 3,      /* a last axis that is not contiguous, an output whose elements share memory */
    RP_E_RANGE = 4,       /* a number outside its bounds, NaN where a number is needed */
    RP_E_OVERLAP = 5,     /* an output that lies over an input or over another output */
    RP_E_UNSUPPORTED = 6, /* valid, but not there yet, or not on this machine */
    RP_E_NOMEM = 7,       /* memory could not be had */
    RP_E_OVERFLOW = 8     /* a product of sizes that does not fit in 63 bits */
} rp_status;

/* The name of a status, such as "RP_E_SHAPE"; "unknown status" for a number that is none. */
RP_API const char *rp_status_name(rp_status status);

/* One line about the last failure on this thread: the field, its value, the bound, how to mend it; "" before any. */
RP_API const char *rp_last_error(void);

/* The version of the library that is linked, such as "0.1.0"; RP_VERSION_STRING is that of this header. */
RP_API const char *rp_version(void);

/* ------------------------------------------------------------------------------------------------ arrays */

/* The type of an array's elements. Floating types hold q, k, v, outputs and learned arrays; the others hold masks. */
typedef enum rp_dtype {
    RP_F32 = 0,
    RP_F64 = 1,
    RP_F16 = 2,  /* IEEE half; so far for files, not for rp_attend */
    RP_BF16 = 3, /* the upper half of an f32; so far for files, not for rp_attend */
    RP_BOOL = 4, /* one byte; any non-zero value is true */
    RP_U8 = 5,
    RP_I8 = 6,
    RP_U16 = 7,
    RP_I16 = 8,
    RP_U32 = 9,
    RP_I32 = 10,
    RP_U64 = 11,
    RP_I64 = 12
} rp_dtype;

/* Bytes of one element; 0 for a number that is no type. */
RP_API size_t rp_dtype_size(rp_dtype dtype);

/* The name of a type, such as "f32"; "?" for a number that is no type. */
RP_API const char *rp_dtype_name(rp_dtype dtype);

#define RP_MAX_AXES   4  /* axes of an array */
#define RP_MAX_ARRAYS 2  /* arrays of one term */
#define RP_MAX_TERMS  16 /* terms of one description */
#define RP_MAX_MASKS  8  /* masks of one description */

/* A view of the caller's memory: axis 0 is the slowest, strides are in elements and may be zero or negative in inputs.
 * data == NULL means absent. */
typedef struct rp_array {
    void *data;                  /* element [0,…,0], aligned to one element */
    rp_dtype dtype;              /* type of the elements */
    int32_t ndim;                /* axes, 0 … RP_MAX_AXES */
    int64_t shape[RP_MAX_AXES];  /* elements along each axis */
    int64_t stride[RP_MAX_AXES]; /* elements between neighbours along each axis */
} rp_array;

/* A contiguous (row-major) view.
 * Shapes   ndim axes of shape[0], …, shape[ndim-1]; a shape whose product does not fit gives strides that the call refuses. */
static inline rp_array rp_array_of(const void *data, rp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    rp_array a;
    uint64_t step = 1;
    a.data = (void *)(uintptr_t)data;
    a.dtype = dtype;
    a.ndim = ndim;
    for (int32_t x = 0; x < RP_MAX_AXES; x++)
        a.shape[x] = a.stride[x] = 0;
    for (int32_t x = ndim - 1; x >= 0; x--) {
        if (x >= RP_MAX_AXES)
            continue;
        a.shape[x] = shape[x];
        a.stride[x] = (int64_t)step;
        step *= (uint64_t)shape[x];
    }
    return a;
}

/* ------------------------------------------------------------------------------------------------ what: the description */

/* The kinds of position term; terms.def says what each takes. */
typedef enum rp_term_kind {
    RP_TERM_NONE = 0,
#define RP_X(ENUM, name, syntax, source) RP_TERM_##ENUM,
#include "terms.def"
#undef RP_X
    RP_TERM_COUNT /* one more than the last kind */
} rp_term_kind;

/* The kinds of mask; masks.def says which pairs each lets attend. */
typedef enum rp_mask_kind {
    RP_MASK_NONE = 0,
#define RP_X(ENUM, name, option, meaning) RP_MASK_##ENUM,
#include "masks.def"
#undef RP_X
    RP_MASK_COUNT /* one more than the last kind */
} rp_mask_kind;

/* How distances are shared out among buckets. n = buckets of one direction, E = n/2, d = |delta|, M = max_distance;
 * every result is capped at n-1. */
typedef enum rp_strategy {
    RP_STRATEGY_LOG = 0,      /* T5: d below E, then E + floor(log(d/E)/log(M/E) * (n-E)), the logarithm in f32 */
    RP_STRATEGY_UNIFORM = 1,  /* floor(d*n/M) */
    RP_STRATEGY_LINEAR = 2,   /* d below E, then E + floor((d-E)*(n-E)/(M-E)) */
    RP_STRATEGY_QUADRATIC = 3 /* d below E, then E + floor((n-E)*sqrt((d-E)/(M-E))) */
} rp_strategy;

/* Which channels RoPE turns together: (c, c + dim/2) as in Llama and GPT-NeoX, or (2c, 2c+1) as in RoFormer and GPT-J. */
typedef enum rp_layout { RP_LAYOUT_HALF = 0, RP_LAYOUT_INTERLEAVED = 1 } rp_layout;

/* One position term: its kind and the parameters that the kind reads; the others are ignored. Start from rp_term_init,
 * which sets every default; fields then mean what they say (a lambda of 0 is 0). The learned arrays of the term go into
 * rp_tensors.term, in the order given here. delta = j - (i + q_offset).
 *
 *   kind     value added to the score                              arrays            reads
 *   TABLE    table[h, clamp(delta, -left, right) + left]           [H or 1, left+right+1]   left right
 *   T5       table[bucket(delta), h]                               [buckets, H or 1] buckets max_distance bidirectional
 *   BUCKET   as T5, any strategy                                   [buckets, H or 1] and strategy
 *   LOG      -lambda log(1 + |delta|)                              none              lambda
 *   LINEAR   -rate_left |delta| before the query, -rate_right delta after it         rate_left rate_right
 *   ALIBI    -slope_h |delta|                                      [H or 1] or none: the paper's slopes
 *   DENSE    bias[b,h,i,j]; -infinity masks the pair               broadcast to [B, H, Lq, Lk]
 *   ROPE     turns the first dim channels of q and k by position   none              dim base layout
 *   RELKEY   scale <q_i, table[clamp(delta) + left]>, inside the softcap   [left+right+1, Dk] or [H or 1, …]   left right
 *   RELVAL   adds table[clamp(delta) + left] to v_j                [left+right+1, Dv] or [H or 1, …]   left right
 *
 * Any number of biases add up, with at most one ROPE, one RELKEY and one RELVAL. */
typedef struct rp_term {
    rp_term_kind kind;     /* which term */
    int32_t bidirectional; /* 1: half of the buckets for keys after the query; 0: those share bucket 0 */
    int64_t left;          /* offsets below -left share the first entry of a clipped table; >= 0 */
    int64_t right;         /* offsets above right share the last; >= 0 */
    int64_t buckets;       /* >= 2; even, and >= 4, when bidirectional */
    int64_t max_distance;  /* distances from here on share the last bucket; > half of one direction's buckets */
    rp_strategy strategy;  /* spacing of the buckets */
    rp_layout layout;      /* pairs of channels that RoPE turns */
    int64_t dim;           /* channels that RoPE turns: even, 2 … Dk; 0 = Dk */
    double base;           /* RoPE: pair c turns by position * base^(-2c/dim); > 0 */
    double lambda;         /* strength of LOG */
    double rate_left;      /* LINEAR: loss per step before the query */
    double rate_right;     /* LINEAR: loss per step after the query */
} rp_term;

/* A term of the given kind with every default set: buckets 32, max_distance 128, bidirectional 1, lambda 0.3, rates 1,
 * base 10000, dim = Dk, layout half, strategy log. left and right have none: set them where the kind reads them. */
static inline rp_term rp_term_init(rp_term_kind kind)
{
    rp_term t;
    t.kind = kind;
    t.bidirectional = 1;
    t.left = t.right = 0;
    t.buckets = 32;
    t.max_distance = 128;
    t.strategy = RP_STRATEGY_LOG;
    t.layout = RP_LAYOUT_HALF;
    t.dim = 0;
    t.base = 10000.0;
    t.lambda = 0.3;
    t.rate_left = t.rate_right = 1.0;
    return t;
}

/* One mask. A pair attends where every mask says yes. Masks go by index: query i + q_offset, key j. */
typedef struct rp_mask {
    rp_mask_kind kind; /* which mask; those with an array find it in rp_tensors.mask */
    int64_t left;      /* WINDOW: keys allowed before the query; -1 = no limit */
    int64_t right;     /* WINDOW: keys allowed after the query; -1 = no limit */
} rp_mask;

#define RP_SCALE_AUTO (-HUGE_VAL) /* rp_desc.scale: 1/sqrt(Dk) */

/* What is computed. Start from rp_desc_init. Plain data: the plan copies it, terms and masks included. */
typedef struct rp_desc {
    size_t size;          /* sizeof(rp_desc): a struct of another version is refused */
    int64_t batch;        /* B >= 0 */
    int64_t heads;        /* H >= 1 */
    int64_t kv_heads;     /* Hk >= 1, divides H; 0 = H */
    int64_t len_q;        /* Lq >= 0 */
    int64_t len_k;        /* Lk >= 0 */
    int64_t dim_k;        /* Dk >= 1 */
    int64_t dim_v;        /* Dv >= 1; 0 = Dk */
    rp_dtype dtype;       /* of q, k, v and out: RP_F32, or RP_F64 for the reference path */
    int32_t cap_after;    /* 0: softcap caps the score before the biases; 1: after them */
    double scale;         /* of the product, at most 1e20 in size; RP_SCALE_AUTO = 1/sqrt(Dk) */
    double softcap;       /* c of c tanh(x/c), 1e-20 to 1e20; 0 = none */
    int64_t q_offset;     /* position of query 0; may be negative */
    const rp_term *terms; /* n_terms position terms */
    int32_t n_terms;      /* 0 … RP_MAX_TERMS */
    int32_t n_masks;      /* 0 … RP_MAX_MASKS */
    const rp_mask *masks; /* n_masks masks */
    const char *isa; /* instruction set by name, "reference" for the oracle; NULL = RELPOS_ISA, else the best found */
} rp_desc;

/* A description of plain attention: Hk = H, Dv = Dk, f32, scale 1/sqrt(Dk), no terms, no masks. */
static inline rp_desc rp_desc_init(int64_t batch, int64_t heads, int64_t len_q, int64_t len_k, int64_t dim_k)
{
    rp_desc d;
    d.size = sizeof d;
    d.batch = batch;
    d.heads = heads;
    d.kv_heads = 0;
    d.len_q = len_q;
    d.len_k = len_k;
    d.dim_k = dim_k;
    d.dim_v = 0;
    d.dtype = RP_F32;
    d.cap_after = 0;
    d.scale = RP_SCALE_AUTO;
    d.softcap = 0.0;
    d.q_offset = 0;
    d.terms = NULL;
    d.n_terms = 0;
    d.n_masks = 0;
    d.masks = NULL;
    d.isa = NULL;
    return d;
}

/* The shape of array number `index` of desc->terms[term], for a caller that allocates or fills it.
 * Shapes   shape receives the axes, *ndim their number; *ndim = 0 when the term has no such array.
 * Returns  RP_OK, RP_E_ARG, or what makes the description invalid. */
RP_API rp_status rp_term_shape(const rp_desc *desc, int32_t term, int32_t index, int32_t *ndim, int64_t *shape);

/* The shape of the array of desc->masks[mask]; *ndim = 0 for a mask without one. Otherwise as rp_term_shape. */
RP_API rp_status rp_mask_shape(const rp_desc *desc, int32_t mask, int32_t *ndim, int64_t *shape);

/* Names as the command line and Python spell them ("t5", "key_mask"), syntax and source; NULL for no such kind. */
RP_API const char *rp_term_name(rp_term_kind kind);
RP_API const char *rp_term_syntax(rp_term_kind kind);      /* what the user types, such as "alibi[,slopes=NAME]" */
RP_API const char *rp_term_source(rp_term_kind kind);      /* the paper */
RP_API const char *rp_term_array(rp_term_kind, int index); /* name of an array of the term, such as "table" */
RP_API const char *rp_mask_name(rp_mask_kind kind);        /* such as "key_mask" */

/* 1 for a term that adds to the score (--bias), 0 for one with an option of its own name (--rope, --relkey, --relval). */
RP_API int rp_term_is_bias(rp_term_kind kind);

/* 1 where the term works without that array, such as the slopes of ALIBI. */
RP_API int rp_term_array_optional(rp_term_kind kind, int index);

#define RP_NAME_MAX 256 /* bytes of an array's name in a term's text, the final 0 included */

/* Read a term from text: "t5,table=rel_bias,buckets=16" fills *term and names[0] = "rel_bias".
 *
 * Shapes   names has RP_MAX_ARRAYS entries of RP_NAME_MAX bytes; "" where the text names no array.
 * Edges    keys that the term does not read, or given twice, are errors; numbers are read without regard to locale.
 * Returns  RP_OK, RP_E_ARG, RP_E_UNSUPPORTED for what is planned but not there yet. */
RP_API rp_status rp_term_parse(const char *text, rp_term *term, char names[][RP_NAME_MAX]);

/* ------------------------------------------------------------------------------------------------ how: the plan */

/* A checked description and the choices that follow from it. Immutable: any number of threads may use one at once. */
typedef struct rp_plan rp_plan;

/* Check a description and choose how to compute it.
 * Returns  RP_OK and *plan, or an error and *plan = NULL: RP_E_ARG, RP_E_SHAPE, RP_E_RANGE, RP_E_UNSUPPORTED,
 *          RP_E_OVERFLOW, RP_E_NOMEM. */
RP_API rp_status rp_plan_create(rp_plan **plan, const rp_desc *desc);

/* Free a plan; NULL is allowed. */
RP_API void rp_plan_destroy(rp_plan *plan);

/* The instruction set a plan uses, such as "avx512"; "" for NULL. */
RP_API const char *rp_plan_isa(const rp_plan *plan);

/* Threads to work on. The pool's own threads start at the first call that needs them and survive a fork: the child
 * starts its own. One pool serves many callers; one who finds it busy computes alone. */
typedef struct rp_pool rp_pool;

/* A pool of `threads` threads, the caller's own among them; 0 = as many as this process may use (affinity, cgroup).
 * Returns  RP_OK and *pool; RP_E_RANGE below 0 or above 4096; RP_E_NOMEM. */
RP_API rp_status rp_pool_create(rp_pool **pool, int32_t threads);

/* Stop and free a pool that no call is using; NULL is allowed. */
RP_API void rp_pool_destroy(rp_pool *pool);

/* Threads of a pool; of the default pool for NULL. */
RP_API int32_t rp_pool_threads(const rp_pool *pool);

/* ------------------------------------------------------------------------------------------------ where: one call */

/* Called now and then by the thread that called rp_attend, with the share of the work that is done, 0 … 1. */
typedef void rp_progress(void *context, double share);

/* The arrays of one call. Start from rp_tensors_init; absent outputs are not computed.
 *
 * Shapes   q [B,H,Lq,Dk]  k [B,Hk,Lk,Dk]  v [B,Hk,Lk,Dv]  out [B,H,Lq,Dv], all of desc.dtype, last axis contiguous
 *          lse [B,H,Lq]  weights [B,H,Lq,Lk]  profile [B,H,Lq+Lk-1]  key_mass [B,H,Lk]  entropy [B,H,Lq], f32 or f64
 * profile[t] is the mean weight over all pairs of delta = t - (Lq-1+q_offset), masked pairs counting 0; key_mass[j] is
 * the sum of the weights that key j received; entropy is of each row, in nats, 0 for a masked row.
 * weights takes memory and time of Lq*Lk; profile and key_mass a multiple of their own memory. */
typedef struct rp_tensors {
    size_t size;                                /* sizeof(rp_tensors) */
    rp_array q;                                 /* queries */
    rp_array k;                                 /* keys */
    rp_array v;                                 /* values; may be absent where out is */
    rp_array out;                               /* may be absent if another output is present */
    rp_array lse;                               /* log of the row sums */
    rp_array weights;                           /* by the reference path */
    rp_array profile;                           /* mean weight of each offset */
    rp_array key_mass;                          /* weight received by each key */
    rp_array entropy;                           /* of each row */
    rp_array term[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* arrays of the terms, f32 or f64 */
    rp_array mask[RP_MAX_MASKS];                /* arrays of the masks, of any integer type */
    rp_pool *pool;          /* NULL = the default pool: RELPOS_THREADS, else all this process may use */
    rp_progress *progress;  /* NULL: nobody wants to know */
    void *progress_context; /* handed to progress */
} rp_tensors;

/* A call with every array absent, on the default pool. */
static inline rp_tensors rp_tensors_init(void)
{
    rp_tensors t;
    unsigned char *p = (unsigned char *)&t;
    for (size_t n = 0; n < sizeof t; n++)
        p[n] = 0;
    t.size = sizeof t;
    return t;
}

/* Bytes of work that a call needs on a pool (NULL = the default pool): grows with Lq and Lk, never with their product.
 * Returns 0, with rp_last_error set, if that does not fit. */
RP_API size_t rp_plan_work_size(const rp_plan *plan, const rp_pool *pool);

/* Attend: out = softmax(softcap(scale q k^T + relkey) + bias) (v + relval), in one pass; the score matrix is never stored.
 *
 * Shapes   see rp_tensors. Any strides; the last axis of q, k, v and out is contiguous.
 * Sign     delta = key - query = j - (i + q_offset).
 * Edges    a row with no key left gives out = 0, weights 0 and lse = -INFINITY. NaN or infinity in a masked key, value or
 *          bias reaches nothing; NaN in an attended one reaches exactly the rows that attend to it. Lk = 0 masks every row.
 * Memory   reads the inputs, writes the outputs, keeps no pointer. work has rp_plan_work_size bytes, aligned to 64; NULL
 *          lets the call allocate; weights and the reference path allocate anyway. Outputs may overlap nothing; inputs may overlap each other.
 * Threads  one plan serves many threads at once, each with its own work. The bits depend on the instruction set, but
 *          not on the pool, nor on strides, nor on the other queries of the call.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERLAP, RP_E_OVERFLOW, RP_E_NOMEM.
 * Accuracy docs/numerics.md; rp_error_bound evaluates the bound.
 * Source   Dao 2022, algorithm 1; running maximum: Milakov and Gimelshein 2018. */
RP_API rp_status rp_attend(const rp_plan *plan, const rp_tensors *t, void *work);

/* ------------------------------------------------------------------------------------------------ looking inside */

/* One query row, by the reference path in double. Arrays that are NULL are not wanted. */
typedef struct rp_row {
    double *raw;     /* [Lk] <R q, R k> */
    double *scaled;  /* [Lk] scale * raw + relkey, before any softcap */
    double *bias;    /* [Lk] sum of the biases */
    double *score;   /* [Lk] what the softmax sees; -INFINITY where masked */
    double *weights; /* [Lk] */
    double *out;     /* [Dv] */
    double lse;      /* log of the row sum */
} rp_row;

/* Trace query i of head h of batch entry b. Needs q, k, v (v only for out) and the arrays of terms and masks.
 * Returns  as rp_attend; RP_E_RANGE for an index outside its axis. */
RP_API rp_status rp_attend_row(const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i, rp_row *row);

/* The biases themselves: bias[h,i,j] of batch entry b, by the definitions, in double; rotations and the RELKEY and
 * RELVAL terms, which depend on q and v, are left out.
 * Shapes   bias [H, Lq, Lk] of f32 or f64. */
RP_API rp_status rp_bias(const rp_plan *plan, const rp_tensors *t, int64_t b, const rp_array *bias);

/* A bound on |out - exact| for each element of out, for the fast f32 path, evaluated for these inputs in double:
 * docs/numerics.md derives it. Costs as much as the reference path.
 * Shapes   bound [B, H, Lq, Dv] of f64. */
RP_API rp_status rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound);

/* The bucket of an offset delta = key - query, the buckets of T5 bit for bit with RP_STRATEGY_LOG.
 * Edges    bidirectional = 0: every key after the query falls in bucket 0. Any int64 offset is allowed.
 * Returns  the bucket; -1, with rp_last_error set, for parameters out of range (see rp_term).
 * Source   Raffel 2020, section 2.1; the logarithm in f32 as in its public implementations. */
RP_API int64_t rp_bucket(int64_t delta, int64_t buckets, int64_t max_distance, int32_t bidirectional,
                         rp_strategy strategy);

/* The slope of head h (0 … heads-1) of ALiBi: 2^(-8(h+1)/n) for n = heads a power of two; otherwise those of the next
 * lower power of two, then every other one of the next higher. NaN for a head out of range.
 * Source   Press 2022, section 3, and its published code for other numbers of heads. */
RP_API double rp_alibi_slope(int64_t h, int64_t heads);

/* ------------------------------------------------------------------------------------------------ this machine */

/* The names of the instruction sets this library was built with, best last: index 0, 1, …; NULL past the end.
 * "generic" comes first and runs everywhere. */
RP_API const char *rp_isa_name(int index);

/* 1 if this machine has the named instruction set ("reference" always), 0 if not, -1 for no such name. */
RP_API int rp_isa_found(const char *name);

/* The instruction set a plan gets when none is asked for: RELPOS_ISA if that is valid, else the best found. */
RP_API const char *rp_isa_default(void);

/* Measure the peak of fused multiply-adds in f32: the best of several runs of independent multiply-adds on every
 * thread of the pool; it takes some hundredths of a second.
 * Returns  RP_OK and *gflops (two operations each); RP_E_ARG, RP_E_UNSUPPORTED as for rp_desc.isa. */
RP_API rp_status rp_measure_peak(const char *isa, rp_pool *pool, double *gflops);

#ifdef __cplusplus
}
#endif
#endif
