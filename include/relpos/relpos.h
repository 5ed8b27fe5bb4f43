/* relpos.h -- exact attention with relative positions: the public interface, and its manual.
 *
 * For batch entry b, query head h, query i, key j, and kv head g = h / (H / Hk):
 *
 *     s[i,j] = softcap_after(softcap(scale * <R(p_i) q_i, R(p_j) k_j> + relkey(i,j)) + bias_h(i,j)),
 *                                                                                        -infinity where a mask says no
 *     w[i,.] = softmax(s[i,.])     out_i = sum_j w[i,j] (v_j + relval(i,j))     lse_i = log sum_j exp(s[i,j])
 *
 * and backward: from dout the gradients of q, k, v and of every learned array.
 *
 * Sign      the offset of a pair is delta = key - query = j - (i + q_offset), everywhere.
 * Letters   B batch, H query heads, Hk key/value heads, Lq queries, Lk keys, Dk width of q and k, Dv width of v and
 *           out.
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
#define RP_VERSION_MINOR  2
#define RP_VERSION_PATCH  0
#define RP_VERSION_STRING "0.2.0"

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

/* What a call returns. On any status but RP_OK and RP_E_CANCELLED nothing has been written to the caller's arrays. */
typedef enum rp_status {
    RP_OK = 0,            /* done */
    RP_E_ARG = 1,         /* a NULL, an unknown name, an enumerator out of range, a struct of another version */
    RP_E_SHAPE = 2,       /* an array whose shape is not the one the description asks for */
    RP_E_STRIDE = 3,      /* a last axis that is not contiguous, an output whose elements share memory */
    RP_E_RANGE = 4,       /* a number outside its bounds, NaN where a number is needed */
    RP_E_OVERLAP = 5,     /* an output that overlaps an input or another output */
    RP_E_UNSUPPORTED = 6, /* valid, but not supported: two terms in one role, a set this machine lacks */
    RP_E_NOMEM = 7,       /* out of memory */
    RP_E_OVERFLOW = 8,    /* a product of sizes that does not fit in 63 bits */
    RP_E_CANCELLED = 9    /* the progress callback cancelled the call: what the outputs hold is undefined */
} rp_status;

/* The name of a status, such as "RP_E_SHAPE"; "unknown status" for a number that is none. */
RP_API const char *rp_status_name(rp_status status);

/* One line about the last failure on this thread: the field, its value, the bound, how to mend it; "" before any. */
RP_API const char *rp_last_error(void);

/* The parts of a call that texts of errors name. */
typedef enum rp_field_of {
    RP_FIELD_DESC = 0,       /* a field of rp_desc: "desc.q_offset" */
    RP_FIELD_TENSORS = 1,    /* of rp_tensors: "tensors.q_offset" */
    RP_FIELD_PAGES = 2,      /* of rp_pages: "pages.len_k" */
    RP_FIELD_TERM = 3,       /* a term, "terms[0]", or its parameter, "terms[0].left" */
    RP_FIELD_TERM_ARRAY = 4, /* "term[0].table" */
    RP_FIELD_MASK = 5,       /* a mask, "masks[0]", or its parameter, "masks[0].left" */
    RP_FIELD_MASK_ARRAY = 6, /* "mask[0]" */
} rp_field_of;

/* A field that the text of an error names. */
typedef struct rp_field {
    rp_field_of of;   /* where the field is */
    int32_t index;    /* of the term or mask; 0 otherwise */
    const char *name; /* of the field, parameter or array: "left"; "" where the term or mask itself is meant */
    const char *kind; /* of the term or mask: "t5"; "" otherwise */
} rp_field;

/* Write what a client's user calls a field; 0 to leave it to rp_last_error_in. text has room for size bytes, at least
 * one. */
typedef int (*rp_word)(void *context, const rp_field *field, char *text, size_t size);
struct rp_desc;

/* rp_last_error for a client's user: in place of each field stands what `word` writes, or else "left of window", "table
 * of t5", "key_mask", "q_offset". desc, which may be NULL, is that of the call that failed, and tells the kinds of
 * terms and masks. Returns text, which has room for size bytes. */
RP_API const char *rp_last_error_in(const struct rp_desc *desc, rp_word word, void *context, char *text, size_t size);

/* The version of the library that is linked, such as "0.2.0"; RP_VERSION_STRING is that of this header. */
RP_API const char *rp_version(void);

/* ------------------------------------------------------------------------------------------------ arrays */

/* The type of an array's elements. Floating types hold q, k, v, outputs and learned arrays; the others hold masks. */
typedef enum rp_dtype {
    RP_F32 = 0,
    RP_F64 = 1,
    RP_F16 = 2,  /* IEEE half: storage; arithmetic is f32 */
    RP_BF16 = 3, /* the upper half of an f32: storage; arithmetic is f32 */
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

/* Convert n elements of any type to a floating type, rounding once, to nearest even. `to` and `from` may not overlap.
 * Returns  RP_OK; RP_E_ARG where to_type is no floating type. */
RP_API rp_status rp_convert(void *to, rp_dtype to_type, const void *from, rp_dtype from_type, int64_t n);

#define RP_MAX_AXES   4  /* axes of an array */
#define RP_MAX_ARRAYS 8  /* arrays of one term */
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
 * Shapes   ndim axes of shape[0], …, shape[ndim-1]; a shape whose product does not fit gives strides that the call
 *          refuses. */
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

#include "terms.h"

/* ------------------------------------------------------------------------------------------- what: the description */

/* The kinds of mask; masks.def says which pairs each lets attend. */
typedef enum rp_mask_kind {
    RP_MASK_NONE = 0,
#define RP_X(ENUM, name, meaning) RP_MASK_##ENUM,
#include "masks.def"
#undef RP_X
    RP_MASK_COUNT /* one more than the last kind */
} rp_mask_kind;

/* How products of f32 are made where the instruction set is AMX, whose tiles multiply bf16; elsewhere, and for other
 * types, it changes nothing. The names are those of PyTorch's float32_matmul_precision.
 *   HIGHEST  each number as the sum of three bf16, six products: errors no larger than those of f32 multiply-adds
 *   HIGH     of two, three products: each product off by up to 2^-16 of its size, about ten times f32's errors in a
 *            result
 * Bounds: docs/numerics.md; rp_error_bound and rp_gradient_bound know them. */
typedef enum rp_precision {
    RP_PRECISION_HIGHEST = 0,
    RP_PRECISION_HIGH = 1,
} rp_precision;

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
    rp_dtype dtype;       /* of q, k, v and out: f32, f64, f16 or bf16; arithmetic in f64 for f64, else in f32 */
    double scale;         /* of the product, at most 1e20 in size; RP_SCALE_AUTO = 1/sqrt(Dk) */
    double softcap;       /* c of c tanh(x/c) before the biases, 1e-20 to 1e20; 0 = none */
    double softcap_after; /* c of a softcap after the biases, likewise; both may be set */
    int64_t q_offset;     /* position of query 0; may be negative */
    const rp_term *terms; /* n_terms position terms */
    int32_t n_terms;      /* 0 … RP_MAX_TERMS */
    int32_t n_masks;      /* 0 … RP_MAX_MASKS */
    const rp_mask *masks; /* n_masks masks */
    double dropout;   /* share of the weights that are dropped, 0 … below 1; the others are divided by 1 - dropout */
    uint64_t seed;    /* of dropout: with b, h, i and j it says which weights are dropped, on any machine */
    int32_t flexible; /* 1: len_q and len_k are bounds; q and k of a call say how many there are */
    rp_precision precision; /* of products of f32; rp_desc_init: HIGHEST */
    const char *isa;  /* instruction set by name, "reference" for the oracle; NULL = RELPOS_ISA, else the best found */
    size_t term_size; /* sizeof(rp_term); fields that an older, shorter one lacks have their defaults */
    size_t mask_size; /* sizeof(rp_mask), likewise */
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
    d.scale = RP_SCALE_AUTO;
    d.softcap = 0.0;
    d.softcap_after = 0.0;
    d.q_offset = 0;
    d.terms = NULL;
    d.n_terms = 0;
    d.n_masks = 0;
    d.masks = NULL;
    d.dropout = 0.0;
    d.seed = 0;
    d.flexible = 0;
    d.precision = RP_PRECISION_HIGHEST;
    d.isa = NULL;
    d.term_size = sizeof(rp_term);
    d.mask_size = sizeof(rp_mask);
    return d;
}

/* The shape of array number `index` of desc->terms[term], for a caller that allocates or fills it.
 * Shapes   shape receives the axes, *ndim their number; *ndim = 0 when the term has no such array.
 * Returns  RP_OK, RP_E_ARG, or what makes the description invalid. */
RP_API rp_status rp_term_shape(const rp_desc *desc, int32_t term, int32_t index, int32_t *ndim, int64_t *shape);

/* The name of a mask as the command line and Python spell it, such as "key_mask"; NULL for no such kind. */
RP_API const char *rp_mask_name(rp_mask_kind kind);

/* The shape of the array of desc->masks[mask]; *ndim = 0 for a mask without one. Otherwise as rp_term_shape. */
RP_API rp_status rp_mask_shape(const rp_desc *desc, int32_t mask, int32_t *ndim, int64_t *shape);

/* What the array of a mask holds, of any integer type. */
typedef enum rp_mask_holds {
    RP_MASK_TRUTH = 0,  /* not zero = attend */
    RP_MASK_COUNTS = 1, /* numbers of keys */
    RP_MASK_LABELS = 2, /* labels of tokens, which are compared */
} rp_mask_holds;

/* A parameter of a mask: a whole number, in a field of rp_mask. */
typedef struct rp_mask_param {
    const char *key; /* "left" */
    size_t offset;   /* of the field in rp_mask, an int64_t */
    int64_t value;   /* the default */
    int64_t min;     /* bounds */
    int64_t max;     /* see min */
} rp_mask_param;

/* What a client needs to know of a mask: its options, help and samples come from it. A later version may have more
 * fields at the end. */
typedef struct rp_mask_info {
    const char *name;     /* "key_mask": Python's keyword; the command line's option has - for _ */
    const char *meaning;  /* which pairs attend: "key_mask[b,j] != 0" */
    const char *text;     /* the same in words, for help; of a mask with an array, what that holds */
    const char *sample;   /* values of the parameters for a test: "40,3"; NULL: it has none (rp_mask_param_of) */
    const char *axes;     /* those to which its array is broadcast: "B, Lk"; NULL: no array */
    rp_mask_holds holds;  /* what that array holds */
    int32_t by_pair;      /* 0: an interval of keys for each query; 1: any pairs */
    int32_t same_lengths; /* 1: there have to be as many queries as keys */
} rp_mask_info;

/* What is known of a kind of mask; NULL for no such kind. */
RP_API const rp_mask_info *rp_mask_info_of(rp_mask_kind kind);

/* A parameter of a kind, in the order in which they are given; NULL past the last. */
RP_API const rp_mask_param *rp_mask_param_of(rp_mask_kind kind, int index);

/* A mask of a kind, its parameters at their defaults. */
static inline rp_mask rp_mask_init(rp_mask_kind kind)
{
    rp_mask m;
    unsigned char *at = (unsigned char *)&m;
    const rp_mask_param *p;
    for (size_t n = 0; n < sizeof m; n++)
        at[n] = 0;
    m.kind = kind;
    for (int x = 0; (p = rp_mask_param_of(kind, x)) != NULL; x++)
        if (p->offset + sizeof(int64_t) <= sizeof m)
            *(int64_t *)(void *)(at + p->offset) = p->value;
    return m;
}

/* Set a parameter of a mask. */
static inline void rp_mask_set(rp_mask *mask, const rp_mask_param *param, int64_t value)
{
    if (param->offset + sizeof value <= sizeof *mask)
        *(int64_t *)(void *)((unsigned char *)mask + param->offset) = value;
}

/* The keys that a mask lets one query attend to, by its definition alone: key j attends where *first <= j < *end and,
 * unless keep is NULL, keep[j] is 1. The query's position is i + desc->q_offset.
 * Shapes   array is the mask's, as in rp_tensors.mask, or NULL; keep has Lk bytes.
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE for an index outside its axis, or what makes description or array invalid. */
RP_API rp_status rp_mask_row(const rp_desc *desc, int32_t mask, const rp_array *array, int64_t b, int64_t h, int64_t i,
                             int64_t *first, int64_t *end, uint8_t *keep);

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
 * starts its own. One pool serves many callers; one who finds it busy computes alone. They have a stack of 512 KB, or
 * what the system gives where that is more. */
typedef struct rp_pool rp_pool;

/* The most threads that a pool may have. */
#define RP_MAX_THREADS 4096

/* A pool of `threads` threads, the caller's own among them; 0 = as many as this process may use (affinity, cgroup).
 * Returns  RP_OK and *pool; RP_E_RANGE below 0 or above RP_MAX_THREADS; RP_E_NOMEM. */
RP_API rp_status rp_pool_create(rp_pool **pool, int32_t threads);

/* What a parallel loop of the caller's runs: it takes tasks of a call until none is left. */
typedef void rp_work(void *data);

/* A parallel loop: calls work(data) `count` times, at once on as many threads as it has, and returns when all of these
 * have returned.
 *
 *  - Any number of calls is right: tasks are taken in order, one after another, so one call of work does what the
 *    others leave, and one that comes late finds nothing to do. Threads that do not come cost time alone.
 *  - Calls may be made in any order, one after another or at once, on any thread, the caller's among them.
 *  - A call that has begun may wait for another that has begun, for a part of a sum: each runs on while others do. So
 *    calls that are made at once need a thread of the operating system each; fibres that take turns by themselves do
 *    not serve.
 *  - What a call of work has written is seen by the thread to which the loop returns, as every join or barrier has it.
 *  - The loop is called by each thread that calls the library with the pool, at once if these do; and never from
 *    within work, unless a task of rp_pool_run does so.
 *  - It may not throw or jump past work. */
typedef void rp_parallel(void *context, int32_t count, rp_work *work, void *data);

/* A pool without threads: its calls run on those of a parallel loop, such as OpenMP's or the caller's own pool, with at
 * most `threads` at once (0: as rp_pool_create). The bits are those of any pool. A progress function is called when
 * the loop runs work on the calling thread.
 * Returns  as rp_pool_create; RP_E_ARG where parallel is NULL. */
RP_API rp_status rp_pool_from(rp_pool **pool, rp_parallel *parallel, void *context, int32_t threads);

/* Stop and free a pool that no call is using; NULL is allowed. */
RP_API void rp_pool_destroy(rp_pool *pool);

/* Threads of a pool; of the default pool for NULL. */
RP_API int32_t rp_pool_threads(const rp_pool *pool);

/* One of the tasks of rp_pool_run; worker is below rp_pool_threads(pool), of its own while it runs. */
typedef void rp_task(void *context, int64_t n, int32_t worker);

/* Run task(context, n, worker) for n = 0 … n_tasks-1 on a pool (NULL = the default one), so that what surrounds
 * attention need have no threads of its own. Tasks are begun in order; the call returns when all have ended.
 * Returns  RP_OK; RP_E_ARG where task is NULL. */
RP_API rp_status rp_pool_run(rp_pool *pool, int64_t n_tasks, rp_task *task, void *context);

/* ------------------------------------------------------------------------------------------------ where: one call */

/* Called now and then, between blocks of work, by the thread that called rp_attend or rp_backward, with the share of
 * the work that is done, 0 … 1. Any other value than 0 ends the call: blocks that have begun are finished, no other
 * begins, and the call returns RP_E_CANCELLED. */
typedef int rp_progress(void *context, double share);

/* Keys and values in pages that lie anywhere, as in a paged or a ring-buffer cache: key j of batch entry b is row j %
 * page of the page at [b * per_batch + j / page]. Every page has [Hk, page, Dk] (or Dv) elements of desc.dtype, with
 * these strides. A ring buffer of whole pages names its pages from the oldest on. */
typedef struct rp_pages {
    const void *const *k; /* [B, per_batch] pointers; NULL: no pages, k and v are arrays */
    const void *const *v; /* [B, per_batch] pointers; may be NULL where out is absent */
    int64_t page;         /* keys of a page, >= 1 */
    int64_t per_batch;    /* pages of each batch entry, at least len_k / page rounded up */
    int64_t len_k;        /* keys there are: desc.len_k, or fewer where desc.flexible is set */
    int64_t k_head;       /* elements between heads of a page of keys */
    int64_t k_key;        /* elements between keys */
    int64_t v_head;       /* elements between heads of a page of values */
    int64_t v_key;        /* elements between values */
    int64_t k_channel;    /* elements between channels of a key, where k_key is 1; 0: channels lie side by side */
} rp_pages;

/* What a plan makes once from the learned arrays and positions, for many calls: strips of biases and the cosines and
 * sines of RoPE, for every position 0 … max(len_q, len_k)-1 of queries and keys. */
typedef struct rp_prepared rp_prepared;

/* The arrays of one call. Start from rp_tensors_init; absent outputs are not computed.
 *
 * Shapes   q [B,H,Lq,Dk]  k [B,Hk,Lk,Dk]  v [B,Hk,Lk,Dv]  out [B,H,Lq,Dv], all of desc.dtype, last axis contiguous; of
 *          k the axis of keys may be it instead: keys stored as [Dk, Lk], which few queries read fastest
 *          lse [B,H,Lq]  weights [B,H,Lq,Lk]  profile [B,H,Lq+Lk-1]  key_mass [B,H,Lk]  entropy [B,H,Lq], of any
 *          floating type
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
    rp_array term[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* arrays of the terms, of any floating type; positions of any type */
    rp_array mask[RP_MAX_MASKS];                /* arrays of the masks, of any integer type */
    rp_array q_offset;                          /* [B] of an integer type, in place of desc.q_offset; may be absent */
    rp_pages pages;                             /* keys and values in place of k and v */
    const rp_prepared *prepared; /* made by rp_prepare from the same plan and arrays; NULL: made anew in the call */
    rp_pool *pool; /* NULL = the default pool: RELPOS_THREADS, else all this process may use; short calls wake none */
    rp_progress *progress;  /* NULL: not reported */
    void *progress_context; /* handed to progress */
    rp_array key_norms;     /* [B,Hk,ceil(Lk/64) or more] made by rp_key_norms; absent: every key is read */
    /* [2] receives how many pairs the intervals of the masks allow, and how many scores of these a forward call
     * computed: tiles whose weights are all 0 are left out; NULL: not counted */
    int64_t *pairs;
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

/* Make what many calls share, such as the steps of decoding with a flexible plan: nothing is then made anew for a step.
 * The results have the same bits with and without. t needs the arrays of the terms only; make it again when one
 * changes. Given positions and DYNAMIC and LONGROPE scalings, which depend on the call, are left to the call; so are
 * positions out of range.
 * Returns  RP_OK and *prepared, or an error and NULL. */
RP_API rp_status rp_prepare(rp_prepared **prepared, const rp_plan *plan, const rp_tensors *t);

/* Free what rp_prepare made, once no call uses it; NULL is allowed. */
RP_API void rp_prepared_destroy(rp_prepared *prepared);

#define RP_NORM_KEYS 64 /* keys that share a number of key_norms */

/* The largest norm of each RP_NORM_KEYS keys of a cache, or infinity where a key or value is NaN, infinite or (of keys)
 * beyond 1e15 in size. A call of few queries that has them in rp_tensors.key_norms does not read the keys and values
 * whose weights are all 0 by their distance, as far keys of ALiBi or of forget gates; the bits stay. They have to be
 * those of the keys and values of that call; a call refuses norms that are NaN or negative.
 * Shapes   t holds k and v, or pages; norms [B, Hk, n] of f32 or f64, n at least ceil(Lk / RP_NORM_KEYS).
 * Appended keys: `from` is the number of keys that norms already covers, and only those from there on are read. Where a
 *          key or value changes in place, start again from 0.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_RANGE, RP_E_STRIDE, RP_E_OVERLAP. */
RP_API rp_status rp_key_norms(const rp_plan *plan, const rp_tensors *t, int64_t from, const rp_array *norms);

/* Bytes of work that a call needs on a pool (NULL = the default pool): grows with Lq and Lk, never with their product.
 * Returns 0, with rp_last_error set, if that does not fit. */
RP_API size_t rp_plan_work_size(const rp_plan *plan, const rp_pool *pool);

/* Attend: out = softmax(softcap_after(softcap(scale q k^T + relkey) + bias)) (v + relval), in one pass; the score
 * matrix is never stored.
 *
 * Shapes   see rp_tensors. Any strides; the last axis of q, v and out is contiguous, and that of k or its axis of keys.
 * Sign     delta = key - query = j - (i + q_offset).
 * Edges    a row with no key left gives out = 0, weights 0 and lse = -INFINITY. NaN or infinity in a masked key, value
 *          or bias reaches nothing; NaN in an attended one reaches exactly the rows that attend to it. Lk = 0 masks
 *          every row.
 * Memory   reads the inputs, writes the outputs, keeps no pointer. work has rp_plan_work_size bytes, aligned to 64;
 *          NULL lets the call allocate; weights and the reference path allocate anyway. Outputs may overlap nothing;
 *          inputs may overlap each other. No call of this header needs more than 32 KB of stack (40 KB on amx_emulated,
 *          which is for tests).
 * Threads  one plan serves many threads at once, each with its own work. The bits depend on the instruction set, but
 *          not on the pool, nor on strides, nor on the other queries of the call.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERLAP, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED.
 * Accuracy docs/numerics.md; rp_error_bound evaluates the bound.
 * Source   Dao 2022, algorithm 1; running maximum: Milakov and Gimelshein 2018. */
RP_API rp_status rp_attend(const rp_plan *plan, const rp_tensors *t, void *work);

/* The gradients of one backward call. Start from rp_grads_init. An absent array is a gradient that is not wanted, and
 * its work is not done.
 *
 * Shapes   dout [B,H,Lq,Dv]  dlse [B,H,Lq]  dq [B,H,Lq,Dk]  dk [B,Hk,Lk,Dk]  dv [B,Hk,Lk,Dv]; term[n][x] has the very
 *          shape of the array rp_tensors.term[n][x], axes along which it broadcasts summed; all of any floating type
 * An array may be of f32 while q is bf16: gradients are summed in f32 or f64 and rounded once. */
typedef struct rp_grads {
    size_t size;                                /* sizeof(rp_grads) */
    rp_array dout;                              /* gradient of the loss with respect to out */
    rp_array dlse;                              /* gradient of the loss with respect to lse; absent: 0 */
    rp_array dq;                                /* to be written */
    rp_array dk;                                /* to be written */
    rp_array dv;                                /* to be written */
    rp_array term[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* to be written: of learned arrays */
} rp_grads;

/* Gradients with every array absent. */
static inline rp_grads rp_grads_init(void)
{
    rp_grads g;
    unsigned char *p = (unsigned char *)&g;
    for (size_t n = 0; n < sizeof g; n++)
        p[n] = 0;
    g.size = sizeof g;
    return g;
}

/* Bytes of work that rp_backward needs on a pool (NULL = the default pool): grows with Lq and Lk, never with their
 * product. Returns 0, with rp_last_error set, if that does not fit. */
RP_API size_t rp_plan_backward_size(const rp_plan *plan, const rp_pool *pool);

/* The gradients of sum(dout * out) + sum(dlse * lse) with respect to q, k, v and the learned arrays, from weights that
 * are computed again.
 *
 *     dp[i,j] = <dout_i, v_j + relval(i,j)>     ds = w (dp - sum_j w dp + dlse_i)
 *     dq_i = scale sum_j ds k_j     dk_j = scale sum_i ds q_i
 *     dv_j = sum_i w dout_i     a bias's array: the sum of ds times the bias's derivative
 *
 * Shapes   see rp_tensors and rp_grads. t holds q, k, v and the arrays of the call before; its out and lse, where
 *          present, are inputs and spare a forward pass. An lse of a narrower type than the arithmetic (f64 for f64,
 *          else f32) is not used, and the forward pass is made again. Its other outputs must be absent.
 * Sign     delta = key - query, as forward.
 * Edges    a row with no key left has zero gradients, whatever its dout and dlse are, but a sink's gets dlse. A key
 *          that is masked everywhere gets exact zeros.
 * Memory   as rp_attend: work has rp_plan_backward_size bytes, or is NULL. Gradients of offsets are summed along
 *          diagonals.
 * Threads  the bits do not depend on the pool.
 * Returns  as rp_attend; RP_E_ARG where a gradient is asked for an array that is absent or not learned.
 * Accuracy docs/numerics.md.
 * Source   Dao 2022, algorithm 4. */
RP_API rp_status rp_backward(const rp_plan *plan, const rp_tensors *t, const rp_grads *g, void *work);

/* ------------------------------------------------------------------------------------------------ looking inside */

/* One query row, by the reference path in double. Arrays that are NULL are not wanted. */
typedef struct rp_row {
    double *raw;     /* [Lk] <R q, R k> */
    double *scaled;  /* [Lk] scale * raw */
    double *bias;    /* [Lk] sum of the biases */
    double *score;   /* [Lk] what the softmax sees; -INFINITY where masked */
    double *weights; /* [Lk] */
    double *out;     /* [Dv] */
    double lse;      /* log of the row sum */
} rp_row;

/* Trace query i of head h of batch entry b. Needs q, k, v (v only for out) and the arrays of terms and masks.
 * Returns  as rp_attend; RP_E_RANGE for an index outside its axis. */
RP_API rp_status rp_attend_row(const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i, rp_row *row);

/* What a part of a row is: what it adds to the scores, to the sum of their exponentials, or to out. */
typedef enum rp_part_kind {
    RP_PART_CONTENT = 0,       /* scale <q, k> */
    RP_PART_ROTATION = 1,      /* scale (<R q, R k> - <q, k>) */
    RP_PART_QUERY = 2,         /* a product of a term's vectors with the query, or with an array by query */
    RP_PART_KEY = 3,           /* a product of a term's vectors with the key */
    RP_PART_SOFTCAP = 4,       /* capped minus uncapped: how far a softcap moves the sum of the parts before it */
    RP_PART_BIAS = 5,          /* the value of a bias */
    RP_PART_SOFTCAP_AFTER = 6, /* as SOFTCAP, of the one after the biases */
    RP_PART_MASK = 7,          /* 0, or -INFINITY where a mask says no */
    RP_PART_SINK = 8,          /* the logit beside the row, whose exponential joins the sum */
    RP_PART_VALUES = 9,        /* of out: sum_j w v_j */
    RP_PART_VECTORS = 10       /* of out: sum_j w times the vectors of a term */
} rp_part_kind;

#define RP_MAX_PARTS (2 * RP_MAX_TERMS + 8) /* parts of one row */

/* One part of a row. */
typedef struct rp_part {
    rp_part_kind kind;   /* which sum it belongs to */
    int32_t term;        /* the term it belongs to, an index into desc.terms; -1: none */
    int32_t array;       /* of a product or of VECTORS: which array of the term holds the vectors; else -1 */
    int64_t length;      /* elements of value: Lk up to RP_PART_MASK, 1 of a sink, Dv of a part of out */
    char name[48];       /* unique in its row: "content", "log", "deberta.q_pos", "log 2" for the second log */
    const char *formula; /* one line, such as "scale * q . table" */
    double *value;       /* [length]; NULL: not wanted */
} rp_part;

/* Split query i of head h of batch entry b into its parts, by the reference path in double: one for each product, bias
 * and setting, in the order in which they are added. The parts up to RP_PART_MASK sum to rp_row.score, and those of out
 * (present where v is) to rp_row.out, up to rounding and where no part is infinite but for masks.
 * Shapes   part has RP_MAX_PARTS entries. The call sets all of their fields but value, and the number of parts in
 *          *n_parts; it fills each value that is not NULL. Call it with every value NULL to learn the lengths.
 * Returns  as rp_attend_row. */
RP_API rp_status rp_attend_parts(const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i,
                                 rp_part *part, int32_t *n_parts);

/* The biases themselves: bias[h,i,j] of batch entry b, by the definitions, in double; rotations, products
 * with q and k inside the softcap, vectors added to values and sinks are left out (rp_term_role).
 * Shapes   bias [H, Lq, Lk] of f32 or f64. */
RP_API rp_status rp_bias(const rp_plan *plan, const rp_tensors *t, int64_t b, const rp_array *bias);

/* A bound on |out - exact| for each element of out, for the fast f32 path, evaluated for these inputs in double:
 * docs/numerics.md derives it. Costs as much as the reference path.
 * Shapes   bound [B, H, Lq, Dv] of f64. */
RP_API rp_status rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound);

/* Bounds on the errors of the gradients that rp_backward computes, evaluated for these inputs in double:
 * docs/numerics.md. Costs a multiple of the reference path.
 * Shapes   bounds is as the gradients of rp_backward, of f64; its dout is an input. */
RP_API rp_status rp_gradient_bound(const rp_plan *plan, const rp_tensors *t, const rp_grads *bounds);

/* ------------------------------------------------------------------------------------------------ this machine */

/* The names of the instruction sets this library was built with, best last: index 0, 1, …; NULL past the end.
 * "generic" runs everywhere, and so does "amx_emulated", which makes the numbers of "amx" in plain C, slowly, for
 * tests. */
RP_API const char *rp_isa_name(int index);

/* 1 if this machine has the named instruction set ("reference" always), 0 if not, -1 for no such name. */
RP_API int rp_isa_found(const char *name);

/* The instruction set a plan gets when none is asked for: RELPOS_ISA if that is valid, else the best found. */
RP_API const char *rp_isa_default(void);

/* Measure the peak of fused multiply-adds in f32: the best of several runs of independent multiply-adds on every
 * thread of the pool; it takes some hundredths of a second.
 * Returns  RP_OK and *gflops (two operations each); RP_E_ARG, RP_E_UNSUPPORTED as for rp_desc.isa. */
RP_API rp_status rp_measure_peak(const char *isa, rp_pool *pool, double *gflops);

/* Measure the peak of AMX: multiply-adds of bf16 on tiles, otherwise as rp_measure_peak.
 * Returns  RP_OK and *gflops; RP_E_ARG; RP_E_UNSUPPORTED where there is no AMX. */
RP_API rp_status rp_measure_tile_peak(rp_pool *pool, double *gflops);

/* Measure how fast memory is read: the best of several runs in which every thread of the pool reads 256 MiB of its own,
 * in several streams. It takes that memory, and some tenths of a second.
 * Returns  RP_OK and *bytes_per_second, of all threads together; RP_E_ARG; RP_E_NOMEM. */
RP_API rp_status rp_measure_bandwidth(rp_pool *pool, double *bytes_per_second);

#ifdef __cplusplus
}
#endif
#endif
