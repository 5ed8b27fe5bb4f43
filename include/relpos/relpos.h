/* relpos.h -- exact attention with relative positions: the public interface and its manual.
 *
 * For batch entry b, query head h, query i, key j, and kv head g = h / (H / Hk):
 *
 *     s[i,j] = softcap_after(softcap(scale * <R(p_i) q_i, R(p_j) k_j> + relkey(i,j)) + bias_h(i,j)),
 *                                                                                        -infinity where masked
 *     w[i,.] = softmax(s[i,.])     out_i = sum_j w[i,j] (v_j + relval(i,j))     lse_i = log sum_j exp(s[i,j])
 *
 * The backward pass takes dout and computes the gradients of q, k, v and of every learned array.
 *
 * Sign      the offset of a pair is delta = key - query = j - (i + q_offset), everywhere.
 * Letters   B batch, H query heads, Hk key/value heads, Lq queries, Lk keys, Dk width of q and k, Dv width of v and
 *           out.
 *
 * rp_desc describes what to compute; it is plain data. If the arrays are contiguous and terms and masks need no arrays,
 * one call does the rest:
 *
 *     rp_term term = rp_term_init(RP_TERM_ALIBI);
 *     rp_desc desc = rp_desc_init(1, 8, 1024, 1024, 64);                         B, H, Lq, Lk, Dk
 *     desc.terms = &term, desc.n_terms = 1;
 *     if (rp_attention(&desc, q, k, v, out) != RP_OK) { puts(rp_last_error()); exit(1); }
 *
 * For other layouts, arrays of terms and masks, other outputs, decoding and gradients there are two more structs.
 * rp_plan is a checked description, ready to run (immutable; threads may share it). rp_tensors lists the arrays that
 * one call reads and writes.
 *
 *     rp_plan *plan;
 *     if (rp_plan_create(&plan, &desc) != RP_OK) { puts(rp_last_error()); exit(1); }
 *     int64_t shape[4] = {1, 8, 1024, 64};
 *     rp_tensors t = rp_tensors_init();
 *     t.q = rp_array_of(q, RP_F32, 4, shape);  t.k = ...;  t.v = ...;  t.out = ...;
 *     rp_attend(plan, &t, NULL);
 *     rp_plan_destroy(plan);
 *
 * The library never prints, aborts, exits or changes global state of the process. It starts threads in the first call
 * that needs them.
 *
 * Order of this file: status, arrays, terms (terms.h), masks, the description, one call, plans, threads, the arrays of
 * a call, decoding, ranges of keys and rows, gradients, tangents, looking inside, this machine, names in error
 * messages.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_H
#define RELPOS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define RP_VERSION_MAJOR  0
#define RP_VERSION_MINOR  3
#define RP_VERSION_PATCH  0
#define RP_VERSION_STRING "0.3.0"

#if defined(_WIN32)
#define RP_API
#else
/* Marks a function that the shared library exports; all others are hidden. */
#define RP_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------ status */

/* The result of a call. Unless it is RP_OK or RP_E_CANCELLED, the call has not written to the caller's arrays. The
 * paragraph "Returns" of a function names every error that it returns. */
typedef enum rp_status {
    RP_OK = 0,            /* success */
    RP_E_ARG = 1,         /* a NULL pointer, an unknown name or enumerator, a struct of another version */
    RP_E_SHAPE = 2,       /* an array whose shape differs from the one that the description requires */
    RP_E_STRIDE = 3,      /* a last axis that is not contiguous, or an output whose elements share memory */
    RP_E_RANGE = 4,       /* a number outside its bounds, or NaN */
    RP_E_OVERLAP = 5,     /* an output that overlaps an input or another output */
    RP_E_UNSUPPORTED = 6, /* valid but not supported, such as an instruction set that this machine lacks */
    RP_E_NOMEM = 7,       /* out of memory */
    RP_E_OVERFLOW = 8,    /* a product of sizes that does not fit in 63 bits */
    RP_E_CANCELLED = 9    /* the progress callback cancelled the call; the contents of the outputs are undefined */
} rp_status;

/* Return the name of a status, such as "RP_E_SHAPE", or "unknown status" for any other number. */
RP_API const char *rp_status_name(rp_status status);

/* Return one line about the last failure on this thread (the field, its value, the bound, what to do), or "" before any
 * failure. rp_last_error_in replaces names of C fields in it. */
RP_API const char *rp_last_error(void);

/* Return the version of the linked library, such as "0.3.0". RP_VERSION_STRING is the version of this header. */
RP_API const char *rp_version(void);

/* ------------------------------------------------------------------------------------------------ arrays */

/* The type of an array's elements. q, k, v, outputs and learned arrays have floating types; arrays of masks have
 * integer types or bool. */
typedef enum rp_dtype {
    RP_F32 = 0,  /* IEEE single */
    RP_F64 = 1,  /* IEEE double; arithmetic is f64 */
    RP_F16 = 2,  /* IEEE half, for storage; arithmetic is f32 */
    RP_BF16 = 3, /* the upper half of an f32, for storage; arithmetic is f32 */
    RP_BOOL = 4, /* one byte; any non-zero value is true */
    RP_U8 = 5,   /* uint8_t */
    RP_I8 = 6,   /* int8_t */
    RP_U16 = 7,  /* uint16_t */
    RP_I16 = 8,  /* int16_t */
    RP_U32 = 9,  /* uint32_t */
    RP_I32 = 10, /* int32_t */
    RP_U64 = 11, /* uint64_t */
    RP_I64 = 12  /* int64_t */
} rp_dtype;

/* Return the size of one element in bytes, or 0 for an unknown type. */
RP_API size_t rp_dtype_size(rp_dtype dtype);

/* Return the name of a type, such as "f32", or "?" for an unknown type. */
RP_API const char *rp_dtype_name(rp_dtype dtype);

/* Convert n elements of any type to a floating type, each rounded once to nearest even. `to` and `from` must not
 * overlap. n <= 0 converts nothing.
 * Returns  RP_OK; RP_E_ARG if to_type is not a floating type, or from_type is unknown. */
RP_API rp_status rp_convert(void *to, rp_dtype to_type, const void *from, rp_dtype from_type, int64_t n);

#define RP_MAX_AXES   4  /* largest number of axes of an array */
#define RP_MAX_ARRAYS 10 /* largest number of arrays of a term */
#define RP_MAX_TERMS  16 /* largest number of terms in a description */
#define RP_MAX_MASKS  8  /* largest number of masks in a description */

/* A view of the caller's memory. Axes are in the order of the documented shape, such as [B, H, L, D]; the strides
 * determine the layout in memory. Strides count elements; those of inputs may be zero or negative. data == NULL means
 * absent. */
typedef struct rp_array {
    void *data;                  /* element [0,…,0], aligned to one element */
    rp_dtype dtype;              /* type of the elements */
    int32_t ndim;                /* number of axes, 0 … RP_MAX_AXES */
    int64_t shape[RP_MAX_AXES];  /* elements along each axis */
    int64_t stride[RP_MAX_AXES]; /* elements between neighbours along each axis */
} rp_array;

/* Return a contiguous (row-major) view.
 * Shapes   ndim axes, 0 … RP_MAX_AXES, of shape[0], …, shape[ndim-1]; other numbers are errors of the call. If their
 *          product overflows, the strides are such that calls refuse the view. */
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

/* ------------------------------------------------------------------------------------------------ masks */

/* The kinds of mask. masks.def lists each with its name and the condition under which query i attends to key j. */
typedef enum rp_mask_kind {
    RP_MASK_NONE = 0, /* no kind; an error in a description */
#define RP_X(ENUM, name, meaning) ENUM,
#include "masks.def"
#undef RP_X
    RP_MASK_COUNT /* one more than the last kind */
} rp_mask_kind;

/* One mask. Query i attends to key j only if every mask allows it. Masks use the positions i + q_offset and j, never
 * the q_positions and k_positions of a term. Start from rp_mask_init. */
typedef struct rp_mask {
    rp_mask_kind kind; /* which mask; its array, if any, is in rp_tensors.mask */
    int64_t left;      /* WINDOW: number of keys allowed before the query, >= 0; -1 = no limit (the default) */
    int64_t right;     /* WINDOW: number of keys allowed after the query, >= 0; -1 = no limit (the default) */
} rp_mask;

/* Return the name of a mask in the command line and Python, such as "key_mask", or NULL for an unknown kind. */
RP_API const char *rp_mask_name(rp_mask_kind kind);

/* The contents of a mask's array, which has any integer type. */
typedef enum rp_mask_holds {
    RP_HOLDS_TRUTH = 0,  /* nonzero = attend */
    RP_HOLDS_COUNTS = 1, /* numbers of keys */
    RP_HOLDS_LABELS = 2, /* labels of tokens; tokens with equal labels attend to each other */
} rp_mask_holds;

/* A parameter of a mask: an integer field of rp_mask. */
typedef struct rp_mask_param {
    const char *key; /* name, such as "left" */
    size_t offset;   /* offset of its int64_t field in rp_mask */
    int64_t value;   /* default */
    int64_t min;     /* smallest value */
    int64_t max;     /* largest value */
} rp_mask_param;

/* Facts about a mask, from which client programs generate options, help texts and tests. Later versions may add fields
 * at the end. */
typedef struct rp_mask_info {
    const char *name;    /* keyword in Python, such as "key_mask"; the command-line option has - in place of _ */
    const char *meaning; /* condition for a pair to attend: "key_mask[b,j] != 0" */
    const char *text;    /* help text: the condition in words, or the contents of the array if the mask has one */
    /* parameter values for a test, such as "40,3"; NULL if it has no parameters (rp_mask_param_of) */
    const char *sample;
    const char *axes;     /* shape to which its array is broadcast, such as "B, Lk"; NULL if it has no array */
    rp_mask_holds holds;  /* contents of its array */
    int32_t by_pair;      /* 0: an interval of keys for each query; 1: arbitrary pairs */
    int32_t same_lengths; /* 1: requires Lq = Lk */
} rp_mask_info;

/* Return the facts about a kind of mask, or NULL for an unknown kind. */
RP_API const rp_mask_info *rp_mask_info_of(rp_mask_kind kind);

/* Return parameter number `index` of a kind of mask, or NULL past the last. */
RP_API const rp_mask_param *rp_mask_param_of(rp_mask_kind kind, int index);

/* Return a mask of the given kind with its parameters at their defaults. An unknown kind is an error of the call that
 * uses the mask. */
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

/* Set a parameter of a mask to a value from param->min to param->max; others are errors of the call that uses the
 * mask. */
static inline void rp_mask_set(rp_mask *mask, const rp_mask_param *param, int64_t value)
{
    if (param->offset + sizeof value <= sizeof *mask)
        *(int64_t *)(void *)((unsigned char *)mask + param->offset) = value;
}

/* -------------------------------------------------------------------------------------------- what: the description */

/* The precision of f32 products on AMX, whose tiles multiply bf16. It has no effect on other instruction sets and
 * types. The names are those of PyTorch's float32_matmul_precision. docs/maintainers/numerics.md has bounds of the
 * errors; rp_error_bound and rp_gradient_bound take the precision into account. */
typedef enum rp_precision {
    /* each number is a sum of three bf16, with six products: errors no larger than those of f32 multiply-adds */
    RP_PRECISION_HIGHEST = 0,
    /* each number is a sum of two bf16, with three products: each product is off by up to 2^-16 of its size, so errors
     * of results are about ten times those of f32 */
    RP_PRECISION_HIGH = 1,
} rp_precision;

#define RP_SCALE_AUTO (-HUGE_VAL) /* rp_desc.scale: 1/sqrt(Dk) */

/* A description of what to compute. Start from rp_desc_init. It is plain data: a plan copies it with its terms and
 * masks. The number of bytes of each array must fit in 63 bits. */
typedef struct rp_desc {
    size_t size;          /* sizeof(rp_desc); rp_plan_create fails for another version of the struct */
    int64_t batch;        /* B, 0 … 2^60 */
    int64_t heads;        /* H, 1 … 2^60 */
    int64_t kv_heads;     /* Hk, divides H; 0 = H */
    int64_t len_q;        /* Lq, 0 … 2^60 */
    int64_t len_k;        /* Lk, 0 … 2^60 */
    int64_t dim_k;        /* Dk, 1 … 2^30 */
    int64_t dim_v;        /* Dv, 1 … 2^30; 0 = Dk */
    rp_dtype dtype;       /* type of q, k, v and out: f32, f64, f16 or bf16; arithmetic is f64 for f64, else f32 */
    double scale;         /* factor of <q, k>, -1e20 to 1e20; RP_SCALE_AUTO = 1/sqrt(Dk) */
    double softcap;       /* c of c tanh(x/c), applied before the biases; 1e-20 to 1e20; 0 = none */
    double softcap_after; /* c of a softcap after the biases; 1e-20 to 1e20; 0 = none; both may be set */
    int64_t q_offset;     /* position of query 0, -2^60 … 2^60 */
    const rp_term *terms; /* n_terms position terms */
    int32_t n_terms;      /* 0 … RP_MAX_TERMS */
    int32_t n_masks;      /* 0 … RP_MAX_MASKS */
    const rp_mask *masks; /* n_masks masks */
    double dropout;       /* probability p that a weight is dropped, 0 <= p < 1; the others are divided by 1 - p */
    uint64_t seed;        /* seed of dropout; with b, h, i and j it decides which weights are dropped, on any machine */
    int32_t flexible;     /* 1: len_q and len_k are maxima; q and k determine the lengths of each call */
    rp_precision precision; /* precision of f32 products; rp_desc_init sets HIGHEST */
    const char *isa;  /* name of the instruction set; "reference" = the reference path; NULL: see rp_isa_default */
    size_t term_size; /* sizeof(rp_term) of the caller; fields that an older struct lacks have their defaults */
    size_t mask_size; /* sizeof(rp_mask) of the caller, like term_size */
} rp_desc;

/* Return a description of plain attention: Hk = H, Dv = Dk, f32, scale 1/sqrt(Dk), no terms, no masks. The function
 * that takes the description checks the sizes. */
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

/* Compute the shape of array number `index`, 0 or more, of desc->terms[term], so that you can allocate and fill it.
 * Shapes   shape has RP_MAX_AXES numbers. It receives the axes and *ndim their number; *ndim = 0 if the term has no
 *          such array.
 * Returns  RP_OK; RP_E_ARG; for an invalid description RP_E_SHAPE, RP_E_RANGE, RP_E_UNSUPPORTED or RP_E_OVERFLOW. */
RP_API rp_status rp_term_shape(const rp_desc *desc, int32_t term, int32_t index, int32_t *ndim, int64_t *shape);

/* Compute the shape of the array of desc->masks[mask]; *ndim = 0 if it has no array.
 * Shapes   as rp_term_shape.
 * Returns  as rp_term_shape. */
RP_API rp_status rp_mask_shape(const rp_desc *desc, int32_t mask, int32_t *ndim, int64_t *shape);

/* Compute the keys to which a mask lets query i attend: keys j with *first <= j < *end and keep[j] = 1. Pass keep =
 * NULL to get only the interval. The query's position is i + desc->q_offset. b, h and i are indices: 0 <= b < B,
 * 0 <= h < H, 0 <= i < Lq.
 * Shapes   array is the array of the mask as in rp_tensors.mask, or NULL; keep has Lk bytes.
 * Returns  RP_OK; RP_E_ARG; RP_E_RANGE for an index outside its axis; RP_E_SHAPE or RP_E_OVERFLOW for an invalid array;
 *          RP_E_UNSUPPORTED for an invalid description, which may also give the others. */
RP_API rp_status rp_mask_row(const rp_desc *desc, int32_t mask, const rp_array *array, int64_t b, int64_t h, int64_t i,
                             int64_t *first, int64_t *end, uint8_t *keep);

/* --------------------------------------------------------------------------- simple: one call for contiguous arrays */

/* Compute attention of contiguous arrays, out = softmax(scale q k^T + bias + mask) v with the terms and masks of desc:
 * create a plan, call rp_attend and destroy the plan. For calls that repeat, create the plan once.
 *
 * Shapes   q [B,H,Lq,Dk], k [B,Hk,Lk,Dk], v [B,Hk,Lk,Dv] and out [B,H,Lq,Dv] of desc->dtype, without gaps. Terms and
 *          masks that need arrays are errors: rp_attend takes their arrays.
 * Edges    a row that may attend to no key has out = 0.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_RANGE, RP_E_OVERLAP, RP_E_UNSUPPORTED, RP_E_OVERFLOW, RP_E_NOMEM. */
RP_API rp_status rp_attention(const rp_desc *desc, const void *q, const void *k, const void *v, void *out);

/* ------------------------------------------------------------------------------------------------ how: the plan */

/* A checked description, and the choices made from it. It is immutable: any number of threads may use it
 * concurrently. */
typedef struct rp_plan rp_plan;

/* Check a description and choose how to compute it.
 * Returns  RP_OK and *plan; on an error *plan = NULL and RP_E_ARG, RP_E_SHAPE, RP_E_RANGE, RP_E_UNSUPPORTED,
 *          RP_E_OVERFLOW or RP_E_NOMEM. */
RP_API rp_status rp_plan_create(rp_plan **plan, const rp_desc *desc);

/* Free a plan; NULL is allowed. */
RP_API void rp_plan_destroy(rp_plan *plan);

/* Return the instruction set of a plan, such as "avx512", or "" for NULL. */
RP_API const char *rp_plan_isa(const rp_plan *plan);

/* -------------------------------------------------------------------------------------- threads: pools and progress */

/* A pool of worker threads. Its threads start at the first call that needs them. After a fork, the child starts its own
 * threads. Several callers may share one pool; if it is busy, a call runs on the calling thread only. Each thread has a
 * stack of at least 512 KB. */
typedef struct rp_pool rp_pool;

/* The largest number of threads of a pool. */
#define RP_MAX_THREADS 4096

/* Create a pool of `threads` threads, 1 … RP_MAX_THREADS, including the caller's. 0 = the number of processors that
 * this process may use (affinity, cgroup).
 * Returns  RP_OK and *pool; on an error *pool = NULL and RP_E_ARG if pool is NULL, RP_E_RANGE or RP_E_NOMEM. */
RP_API rp_status rp_pool_create(rp_pool **pool, int32_t threads);

/* Stop and free a pool that no call is using; NULL is allowed. */
RP_API void rp_pool_destroy(rp_pool *pool);

/* Return the number of threads of a pool, or of the default pool for NULL. */
RP_API int32_t rp_pool_threads(const rp_pool *pool);

/* A task of rp_pool_run. worker is less than rp_pool_threads(pool), and differs between tasks that run at the same
 * time. */
typedef void rp_task(void *context, int64_t n, int32_t worker);

/* Run task(context, n, worker) for n = 0 … n_tasks-1 on a pool (NULL = the default one), for parallel code around
 * attention. Tasks start in order; the call returns when all have ended. n_tasks <= 0 runs none.
 * Returns  RP_OK; RP_E_ARG if task is NULL. */
RP_API rp_status rp_pool_run(rp_pool *pool, int64_t n_tasks, rp_task *task, void *context);

/* The function that a parallel loop calls. It runs tasks of a call until none is left. */
typedef void rp_work(void *data);

/* A parallel loop provided by the caller. It calls work(data) `count` times, concurrently on its threads,
 * and returns when all these calls have returned.
 *
 *  - Fewer or more calls than `count` are also correct. Each call of work takes the next task until none is left, so a
 *    missing call only costs time, and a late call finds nothing to do.
 *  - The calls may run in any order, sequentially or concurrently, on any threads, including the caller's.
 *  - A running call may wait for another running call to finish its part of a sum. Therefore each concurrent call needs
 *    its own operating-system thread; cooperative fibres can deadlock.
 *  - Writes made inside work must be visible to the thread to which the loop returns, as after any join or barrier.
 *  - Every thread that calls the library with this pool calls the loop, so several loops may run concurrently. The loop
 *    is never called from within work, unless a task of rp_pool_run itself calls the library with this pool.
 *  - It must not throw, or jump out of work. */
typedef void rp_parallel(void *context, int32_t count, rp_work *work, void *data);

/* Create a pool without threads of its own. It runs calls through your parallel loop, for example OpenMP or your own
 * pool, on at most `threads` threads at a time (0: as in rp_pool_create). Results have the same bits as with any other
 * pool. A progress callback is called only if the loop runs work on the calling thread.
 * Returns  as rp_pool_create; also RP_E_ARG if parallel is NULL. */
RP_API rp_status rp_pool_from(rp_pool **pool, rp_parallel *parallel, void *context, int32_t threads);

/* A progress callback. The thread that called rp_attend or rp_backward (below) calls it between blocks of work, with
 * the fraction done, 0 … 1. Return 0 to continue. Any other value cancels the call: running blocks finish, no further
 * block starts, and the call returns RP_E_CANCELLED. */
typedef int rp_progress(void *context, double fraction);

/* -------------------------------------------------------------------------------------- where: the arrays of a call */

/* Keys and values in separate pages, as in a paged or ring-buffer cache. Key j of batch entry b is row j % page of page
 * [b * per_batch + j / page]. Every page has [Hk, page, Dk] (values: [Hk, page, Dv]) elements of desc.dtype, with the
 * strides below. For a ring buffer of whole pages, list the pages in order, the oldest first. */
typedef struct rp_pages {
    const void *const *k; /* [B, per_batch] pointers; NULL if k and v are arrays */
    const void *const *v; /* [B, per_batch] pointers; may be NULL if out is absent */
    int64_t page;         /* number of keys in a page, 1 … 2^60 */
    int64_t per_batch;    /* number of pages of each batch entry, >= ceil(len_k / page) */
    int64_t len_k;        /* number of keys: desc.len_k, or fewer if desc.flexible is set */
    int64_t k_head;       /* elements between heads in a page of keys; >= 0, like all strides of pages */
    int64_t k_key;        /* elements between keys in a page of keys */
    int64_t v_head;       /* elements between heads in a page of values */
    int64_t v_key;        /* elements between values in a page of values */
    int64_t k_channel;    /* elements between channels of a key; 0 means 1; other values require k_key = 1 */
    void *const *norms;   /* [B, per_batch] pointers to f32 norms from rp_key_norms, [Hk, ceil(page/64)]; may be NULL */
} rp_pages;

/* Data that rp_prepare computes once for many calls of a plan: strips of biases, and cosines and sines of RoPE, for
 * positions 0 … max(len_q, len_k)-1 of queries and keys. */
typedef struct rp_prepared rp_prepared;

/* The arrays of one call. Start from rp_tensors_init. Absent outputs are not computed.
 *
 * Shapes   q [B,H,Lq,Dk], k [B,Hk,Lk,Dk], v [B,Hk,Lk,Dv] and out [B,H,Lq,Dv], all of desc.dtype with a contiguous last
 *          axis. In k the axis of keys may be contiguous instead: keys stored as [Dk, Lk] are the fastest layout for
 *          few queries. lse [B,H,Lq], weights [B,H,Lq,Lk], profile [B,H,Lq+Lk-1], key_mass [B,H,Lk] and entropy
 *          [B,H,Lq] have any floating type.
 *
 * profile[t] is the mean weight of all pairs of delta = t - (Lq-1+q_offset), where a masked pair has weight 0.
 * key_mass[j] is the sum of the weights that key j receives. entropy is the entropy of each row in nats, 0 for a masked
 * row. weights takes memory and time proportional to Lq*Lk; profile and key_mass need scratch memory of several times
 * their size. */
typedef struct rp_tensors {
    size_t size;       /* sizeof(rp_tensors) */
    rp_array q;        /* queries */
    rp_array k;        /* keys */
    rp_array v;        /* values; may be absent if out is absent */
    rp_array out;      /* the output of attention; may be absent if another output is present */
    rp_array lse;      /* logarithm of the row sums */
    rp_array weights;  /* attention weights, computed by the reference path */
    rp_array profile;  /* mean weight of each offset */
    rp_array key_mass; /* weight received by each key */
    rp_array entropy;  /* entropy of each row */
    rp_array term[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* arrays of the terms, of any floating type; positions have any type */
    rp_array mask[RP_MAX_MASKS];                /* arrays of the masks, of any integer type */
    rp_array q_offset; /* [B] of an integer type, each -2^60 … 2^60; replaces desc.q_offset; may be absent */
    rp_pages pages;    /* keys and values, replace k and v */
    const rp_prepared *prepared; /* result of rp_prepare for the same plan and arrays, or NULL */
    /* NULL = the default pool: RELPOS_THREADS threads, else one per usable processor; one for short calls */
    rp_pool *pool;
    rp_progress *progress;  /* NULL: no callback */
    void *progress_context; /* passed to progress */
    rp_array key_norms; /* [B,Hk,ceil(Lk/64) or more] from rp_key_norms, or pages.norms; if absent, reads all keys */
    /* [2] receives the number of pairs inside the intervals of the masks, and the number of pairs whose scores the
     * forward call computed (it skips tiles whose weights are all 0); NULL if not needed */
    int64_t *pairs;
    /* A range of keys: see "ranges" below. 0 <= key_from <= key_to <= Lk, multiples of rp_plan_key_step or Lk. */
    int64_t key_from;   /* first key of the range; k and v have only the keys of the range */
    int64_t key_to;     /* one past its last key; key_from = key_to = 0: all keys */
    rp_array state_in;  /* states of the rows after the keys before the range; absent: the rows have seen no key */
    rp_array state_out; /* output: states of the rows after the range; absent: write out and lse */
    rp_array own_keys;  /* [B,Hk,Lq,Dk] the key at the position of each query, if it is not in the first range */
    /* A range of rows: see "ranges" below. 0 <= row_from <= row_to <= Lq. */
    int64_t row_from; /* first row of the range; q, out, lse, states and own_keys have only the rows of the range */
    int64_t row_to;   /* one past its last row; row_from = row_to = 0: all rows */
} rp_tensors;

/* Return tensors with every array absent and the default pool. */
static inline rp_tensors rp_tensors_init(void)
{
    rp_tensors t;
    unsigned char *p = (unsigned char *)&t;
    for (size_t n = 0; n < sizeof t; n++)
        p[n] = 0;
    t.size = sizeof t;
    return t;
}

/* Return the bytes of work memory that rp_attend needs with a pool (NULL = the default pool). The size grows with Lq
 * and Lk, never with their product. Returns 0 and sets rp_last_error if the size overflows. */
RP_API size_t rp_plan_work_size(const rp_plan *plan, const rp_pool *pool);

/* Attend: out = softmax(softcap_after(softcap(scale q k^T + relkey) + bias)) (v + relval), in one pass. The score
 * matrix is never stored.
 *
 * Shapes   see rp_tensors. Any strides; the last axis of q, v and out is contiguous, and in k the last axis or the axis
 *          of keys.
 * Sign     delta = key - query = j - (i + q_offset).
 * Edges    a row that may attend to no key has out = 0, weights 0 and lse = -INFINITY; Lk = 0 masks every row. NaN or
 *          infinity in a masked key, value or bias has no effect; NaN in an attended one affects only the rows that
 *          attend to it.
 * Memory   reads the inputs, writes the outputs and keeps no pointer. work has rp_plan_work_size bytes, aligned to 64.
 *          If work is NULL, the call allocates; weights and the reference path always allocate. Outputs must not
 *          overlap any other array; inputs may overlap each other. No function of this header needs more than 32 KB of
 *          stack (40 KB with amx_emulated, which is for tests).
 * Threads  threads may share a plan, each with its own work. The bits of the results depend on the instruction set, but
 *          not on the pool, the strides, other batch entries, keys that are masked for every query, or the other
 *          queries of the call. The exception: scalings DYNAMIC and LONGROPE of RoPE choose frequencies by the keys
 *          that any query of a batch entry or segment attends to, unless rp_term.length is set.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERLAP, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED;
 *          RP_E_RANGE for an offset, position, range or norm out of its bounds; RP_E_UNSUPPORTED for arrays that
 *          exclude each other, such as weights with a range of keys or rows.
 * Accuracy docs/maintainers/numerics.md; rp_error_bound evaluates the bound.
 * Source   Dao 2022, algorithm 1; running maximum: Milakov and Gimelshein 2018. */
RP_API rp_status rp_attend(const rp_plan *plan, const rp_tensors *t, void *work);

/* ---------------------------------------------------------------------------------- decoding: what many calls share */

/* Compute once what many calls use, such as the steps of decoding with a flexible plan. Results have the same bits with
 * and without it. t needs only the arrays of the terms; call again if one of them changes. Nothing is prepared for
 * given positions, the scalings DYNAMIC and LONGROPE, and positions out of range, because these depend on the call.
 * Returns  RP_OK and *prepared; on an error *prepared = NULL and RP_E_ARG, RP_E_SHAPE, RP_E_RANGE, RP_E_OVERFLOW or
 *          RP_E_NOMEM. */
RP_API rp_status rp_prepare(rp_prepared **prepared, const rp_plan *plan, const rp_tensors *t);

/* Free the result of rp_prepare; no call may be using it. NULL is allowed. */
RP_API void rp_prepared_destroy(rp_prepared *prepared);

#define RP_NORM_KEYS 64 /* number of keys that share one element of key_norms */

/* Compute the largest norm in each group of RP_NORM_KEYS keys of a cache. It is infinity if a key or value has a NaN or
 * infinite element, or the norm of a key exceeds 1e15.
 *
 * Pass the norms in rp_tensors.key_norms or rp_pages.norms. A call with few queries then does not read keys and values
 * so far away that their weights are all 0 (as with ALiBi or forget gates). The results have the same bits. The norms
 * must belong to the keys and values of that call. NaN or negative norms are an error. To find norms that do not belong
 * to the keys, set RELPOS_SKIP=check before rp_plan_create: calls then compare them, and a norm that is too small is an
 * error.
 * Shapes   t has k and v, or pages; norms [B, Hk, n] of f32 or f64, n >= ceil(Lk / RP_NORM_KEYS). If norms is NULL, the
 *          call writes to t->pages.norms, where each element covers RP_NORM_KEYS keys of one page. `from`, 0 … Lk, is
 *          the number of keys that the norms already cover: after appending keys, only the new ones are read. If a key
 *          or value changes in place, start again from it.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_RANGE, RP_E_OVERLAP, RP_E_UNSUPPORTED, RP_E_OVERFLOW,
 *          RP_E_NOMEM. */
RP_API rp_status rp_key_norms(const rp_plan *plan, const rp_tensors *t, int64_t from, const rp_array *norms);

/* --------------------------------------------------------------------------------- ranges: some of the keys or rows */

/* Ranges of keys. A call may compute attention over keys key_from … key_to-1 of a sequence of desc.len_k keys: k and v
 * have the keys of the range, and all other arrays (of terms, masks and queries) are those of the whole sequence. The
 * state of a row,
 *
 *     m = largest score     l = sum_j exp(s[i,j] - m)     o = sum_j exp(s[i,j] - m) (v_j + relval(i,j)),
 *
 * goes from one call to the next. The call without state_in starts the rows, from the sink if there is one. The call
 * without state_out ends them: it writes out = o / l and lse = m + log l. Keys may thus come from a file or from other
 * processes, and a call never needs all of them.
 *
 *     for (t.key_from = 0; t.key_from < len_k; t.key_from = t.key_to) {
 *         t.key_to = min(t.key_from + n * rp_plan_key_step(plan), len_k);
 *         t.k = ...;  t.v = ...;                                        the keys and values of the range
 *         t.state_in = t.key_from > 0 ? state : none;
 *         if (t.key_to < len_k) t.state_out = state;  else t.state_out = none, t.out = out;
 *         rp_attend(plan, &t, work);
 *     }
 *
 * Law      if the ranges follow each other from key 0 to desc.len_k, the bits are those of one call, for any ranges and
 *          on any pool. Ranges may be left out if the masks hide all their keys from all rows, also at the beginning
 *          and the end. In another order, the result differs from one call only by rounding. Ranges that overlap or are
 *          missing cannot be detected.
 * Shapes   state_in, state_out [B, H, Lq, rp_plan_state_width] of f32 (f64 if desc.dtype is f64), with a contiguous
 *          last axis: m, l, the Dv numbers of o, then numbers that only the library reads. Both may be the same array.
 *          key_norms has the norms of the range.
 * Edges    the state of a row that has seen no key and has no sink is m = -INFINITY, l = 0, o = 0. A range may be
 *          empty. If a RELVAL term has given positions and more than 1024 vectors, the bits depend on the ranges.
 * Errors   key_from and key_to must be multiples of rp_plan_key_step, or desc.len_k. If biases fall by more than 88
 *          (709 for f64), as those of ALiBi or forget gates, a row starts from the score of its own key, j = i +
 *          q_offset. The call without state_in then needs own_keys unless these keys are in its range. weights,
 *          profile, key_mass, entropy, pages and the reference path need all keys in one call. A flexible plan has
 *          desc.len_k keys if a range is given.
 *
 * Ranges of rows. A call may also compute only rows row_from … row_to-1, any of desc.len_q, with or without a
 * range of keys. q, out, lse, state_in, state_out and own_keys then have the rows of the range, and arrays of terms and
 * masks those of the whole sequence. The bits are those of a call over all rows. The same outputs and paths are
 * excluded as for ranges of keys. A flexible plan has desc.len_q rows if a range is given. rp_backward has its own
 * rules. */

/* Return the number of keys at whose multiples ranges begin and end: 512 on all instruction sets, 0 if the plan uses
 * the reference path or is NULL. */
RP_API int64_t rp_plan_key_step(const rp_plan *plan);

/* Return the number of elements of the state of a row, or 0 if the plan uses the reference path or is NULL. */
RP_API int64_t rp_plan_state_width(const rp_plan *plan);

/* ------------------------------------------------------------------------------------- gradients: the backward pass */

/* The gradients of one backward call. Start from rp_grads_init. Gradients whose arrays are absent are not computed. The
 * struct may also end before dweights or dsoftcap, as in earlier versions.
 *
 * Shapes   dout [B,H,Lq,Dv], dlse [B,H,Lq], dq [B,H,Lq,Dk], dk [B,Hk,Lk,Dk], dv [B,Hk,Lk,Dv]. term[n][x] has the same
 *          shape as rp_tensors.term[n][x]; gradients are summed over axes that broadcast. With one more, leading axis
 *          of B elements, term[n][x] has the gradient of each batch entry instead of their sum. An array that has an
 *          axis for the batch gets no other axis: if batch entries share its elements, B elements in the gradient have
 *          this meaning. dsoftcap and dsoftcap_after have no axis, or one of B elements with the same meaning.
 *          dweights, dprofile, dkey_mass and dentropy have the shapes of these outputs. All may have any floating type:
 *          they are summed in f32 or f64 and rounded once, so f32 gradients of bf16 arrays lose no precision. */
typedef struct rp_grads {
    size_t size;                                /* sizeof(rp_grads) */
    rp_array dout;                              /* gradient of the loss with respect to out */
    rp_array dlse;                              /* gradient of the loss with respect to lse; absent = 0 */
    rp_array dq;                                /* output */
    rp_array dk;                                /* output */
    rp_array dv;                                /* output */
    rp_array term[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* outputs: gradients of learned arrays */
    rp_array dq_in;                             /* ranges of keys: sums of dq over the keys before the range */
    rp_array dq_out;                            /* output, instead of dq: the sums including the range */
    rp_array dkv_in;                            /* ranges of rows: sums of dk and dv over the rows before the range */
    rp_array dkv_out;                           /* output, instead of dk and dv: the sums including the range */
    /* gradients of the loss with respect to the other outputs, of any strides; absent = 0 */
    rp_array dweights;       /* only the rows of the range, if there is one */
    rp_array dprofile;       /* of all rows */
    rp_array dkey_mass;      /* of all rows */
    rp_array dentropy;       /* only the rows of the range, if there is one */
    rp_array dsoftcap;       /* output: gradient of desc.softcap, a number [] or [B] */
    rp_array dsoftcap_after; /* output: gradient of desc.softcap_after, a number [] or [B] */
} rp_grads;

/* Return gradients with every array absent. */
static inline rp_grads rp_grads_init(void)
{
    rp_grads g;
    unsigned char *p = (unsigned char *)&g;
    for (size_t n = 0; n < sizeof g; n++)
        p[n] = 0;
    g.size = sizeof g;
    return g;
}

/* Return the number of elements of a row of rp_grads.dq_in and dq_out, or 0 if the plan uses the reference path or is
 * NULL. */
RP_API int64_t rp_plan_dq_width(const rp_plan *plan);

/* Return the number of rows at whose multiples ranges of rows begin and end in rp_backward: 96 on all instruction sets,
 * 0 if the plan uses the reference path or is NULL. */
RP_API int64_t rp_plan_row_step(const rp_plan *plan);

/* Return the number of elements of a key of rp_grads.dkv_in and dkv_out, or 0 if the plan uses the reference path or is
 * NULL. */
RP_API int64_t rp_plan_dkv_width(const rp_plan *plan);

/* Return the bytes of work memory that rp_backward needs with a pool (NULL = the default pool). The size grows with Lq
 * and Lk, never with their product. Returns 0 and sets rp_last_error if the size overflows. */
RP_API size_t rp_plan_backward_size(const rp_plan *plan, const rp_pool *pool);

/* Compute the gradients of sum(dout * out) + sum(dlse * lse) with respect to q, k, v, the learned arrays and the
 * softcaps. The weights are recomputed. If dweights, dprofile, dkey_mass or dentropy is given, its product with that
 * output of rp_attend is added to the sum.
 *
 *     dp[i,j] = <dout_i, v_j + relval(i,j)> + dweights[i,j] + dprofile[t] / (number of pairs with the offset of t)
 *               + dkey_mass[j] - dentropy_i (1 + log w[i,j])
 *     ds = w (dp - sum_j w dp + dlse_i), with dropout applied to the first two summands of dp
 *     dq_i = scale sum_j ds k_j     dk_j = scale sum_i ds q_i
 *     dv_j = sum_i w dout_i     array of a bias: the sum of ds times the derivative of the bias
 *     softcap c with argument x: the sum of ds, by the softcap's result, times tanh(x/c) - x/c (1 - tanh^2(x/c))
 *
 * Shapes   see rp_tensors and rp_grads. t has q, k, v and the arrays of the forward call. If t has out and lse, the
 *          call reads them and runs no forward pass, unless lse is too imprecise: its type is narrower than f32 (f64
 *          for an f64 plan), or its magnitude exceeds 2^16 (2^44) in some row. The other outputs of t must be absent.
 * Sign     delta = key - query, as in the forward pass.
 * Edges    a row that may attend to no key has zero gradients, whatever its dout and dlse are; only the gradient of a
 *          sink depends on its dlse. A key that is masked for all queries gets exact zeros. The gradient of a batch
 *          entry has the bits of a call with this entry alone; only that of alibi, kerple or another bias with a value
 *          for every offset may differ by rounding, if given positions are integers in some entries and not in others.
 * Ranges   with key_from and key_to (see "ranges" above), k, v, dk and dv have the keys of the range, and t needs out
 *          and lse of all keys, from the last forward call. dk and dv have the bits of one call. dq needs all keys:
 *          each call but the first passes the sums so far in dq_in, and each call but the last gets dq_out instead of
 *          dq; both are [B, H, Lq, rp_plan_dq_width] of f32 (f64 if desc.dtype is f64), and may be the same array. Then
 *          dq has the bits of one call if the ranges follow each other from key 0 to desc.len_k. Without them, dq is
 *          the part of the range. Gradients of the arrays of terms and of softcaps are those of the pairs of the
 *          range: add them up, in f64 and in the order of the ranges. The sum differs from one call by rounding,
 *          because one call adds up ds of all pairs before it applies derivatives. The range with key 0 has the
 *          gradient of a sink. With row_from and row_to, q, out, lse, dout, dlse, dq, dq_in and dq_out have the rows of
 *          the range, which begins and ends at multiples of rp_plan_row_step, or at desc.len_q. dk and dv need all
 *          rows: each call but the first passes the sums so far in dkv_in, and each call but the last gets dkv_out
 *          instead of dk and dv; both are [B, H, keys of the range, rp_plan_dkv_width] of the arithmetic type (H, not
 *          Hk), and may be one array. Then dk and dv have the bits of one call if the rows follow each other from row
 *          0. Both kinds of range combine: a call comes after that of the same rows and the keys before, and after that
 *          of the same keys and the rows before. The gradient of a vector that multiplies all keys (u of xl) is
 *          complete in the calls that have dkv_in and compute dk. The gradient of a dense bias [B, H, Lq, Lk] may have
 *          only the rows of the range.
 *          dweights, dprofile, dkey_mass and dentropy need all keys in one call; ranges of rows may be combined with
 *          them, so that no call needs dweights of all rows.
 * Memory   as rp_attend: work has rp_plan_backward_size bytes, or is NULL. Gradients of offsets are summed along
 *          diagonals. With a gradient of each batch entry, these sums are B times as large, and do not fit into work.
 *          With dweights, dprofile, dkey_mass or dentropy, the call computes all scores twice, first for sum_j w dp,
 *          and skips no tiles.
 * Threads  the bits do not depend on the pool.
 * Returns  as rp_attend; also RP_E_ARG for the gradient of an array that is absent, not learned or of no term, or of a
 *          softcap of 0.
 * Accuracy docs/maintainers/numerics.md.
 * Source   Dao 2022, algorithm 4. */
RP_API rp_status rp_backward(const rp_plan *plan, const rp_tensors *t, const rp_grads *g, void *work);

/* ------------------------------------------------------------------------ tangents: forward and second derivatives */

/* The tangents of one call. Start from rp_tangents_init. Tangents of inputs that are absent are 0; those of outputs
 * that are absent are not computed. The struct may also end before softcap, as in earlier versions.
 *
 * Shapes   q, k, v, out, lse and term[n][x] have the shapes of these arrays in rp_tensors, and any floating type. As in
 *          rp_tensors, the last axis of q, v and out is contiguous, and in k the last axis or the axis of keys. As in
 *          rp_grads, term[n][x], softcap and softcap_after may have a tangent for each batch entry. */
typedef struct rp_tangents {
    size_t size;                                /* sizeof(rp_tangents) */
    rp_array q;                                 /* tangent of q */
    rp_array k;                                 /* tangent of k */
    rp_array v;                                 /* tangent of v */
    rp_array term[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* tangents of learned arrays */
    rp_array out;                               /* output: tangent of out */
    rp_array lse;                               /* output: tangent of lse */
    rp_array softcap;                           /* tangent of desc.softcap, a number [] or [B] */
    rp_array softcap_after;                     /* tangent of desc.softcap_after, a number [] or [B] */
} rp_tangents;

/* Return tangents with every array absent. */
static inline rp_tangents rp_tangents_init(void)
{
    rp_tangents x;
    unsigned char *p = (unsigned char *)&x;
    for (size_t n = 0; n < sizeof x; n++)
        p[n] = 0;
    x.size = sizeof x;
    return x;
}

/* Compute the tangents of out and lse (a Jacobian-vector product, forward mode): their derivatives by e at e = 0, if
 * e times its tangent is added to q, k, v, each learned array and the softcaps. With primes for tangents, and for
 * each softcap c its derivatives c1 by its argument x and c2 = tanh(x/c) - x/c c1 by c:
 *
 *     x'[i,j] = scale (<R q'_i, R k_j> + <R q_i, R k'_j>) + relkey'(i,j)
 *     y'[i,j] = c1 x'[i,j] + c2 softcap' + bias'_h(i,j)      the same for softcap_after gives s' of y'
 *     lse'_i = sum_j w[i,j] s'[i,j]                          a sink is one more key of this sum
 *     out'_i = sum_j w[i,j] ((s'[i,j] - lse'_i) (v_j + relval(i,j)) + v'_j + relval'(i,j))
 *
 * The weights of the second sum include dropout.
 * Shapes   see rp_tensors and rp_tangents. t has q, k, v and the arrays of the forward call, and may have its out and
 *          lse, as in rp_backward; v is needed only for the tangent of out. The other outputs of t must be absent.
 * Edges    a row that may attend to no key has tangents of 0; with a sink, lse' is the sink's tangent. Tangents of
 *          masked keys and biases have no effect, even if they are NaN.
 * Memory   allocates, for each thread, scores of a block of queries and two copies of the keys of a head; packed keys
 *          and values as rp_attend, and their tangents. Never a matrix of scores. Outputs must not overlap any other
 *          array.
 * Threads  the bits do not depend on the pool.
 * Paths    computed as in rp_attend, in one pass; with AMX, by the set that rp_attend would use without it. Rows that
 *          attend to numbers that are not finite, or whose sums overflow, are computed in plain loops in double and
 *          rounded once, as every row is with isa = "reference".
 * Accuracy rp_tangent_bound.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERLAP, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED;
 *          RP_E_RANGE as rp_attend; RP_E_UNSUPPORTED for pages and for a range of keys or rows.
 * Source   Pearlmutter 1994 (the R-operator). */
RP_API rp_status rp_jvp(const rp_plan *plan, const rp_tensors *t, const rp_tangents *tangents);

/* Compute second derivatives: the gradients of Phi = sum(dout * out') + sum(dlse * lse') with respect to q, k, v, the
 * learned arrays and the softcaps, where out' and lse' are the tangents of rp_jvp and the given tangents are constants.
 * These are the Hessian of sum(dout * out) + sum(dlse * lse) times the tangents (a Hessian-vector product). The
 * gradients of Phi with respect to dout and dlse are out' and lse'. With the score's tangent s', its mean m_i = lse'_i,
 * and y_mean the mean of y under the weights of the row:
 *
 *     p = <dout_i, v_j + relval(i,j)>     r = <dout_i, v'_j + relval'(i,j)>, both times dropout's factor
 *     y = (s' - m_i) g + r                g = p - sum_j w p + dlse_i
 *     dPhi/ds' = w g                      dPhi/ds = w (y - y_mean)          dv_j = sum_i w (s' - m_i) dout_i
 *
 * and the chain rule through both softcaps, whose second derivatives enter, the products and the biases. A sink is one
 * more key with p = r = 0.
 * Shapes   see rp_tensors, rp_tangents and rp_grads. t is as in rp_backward. grads has dout and dlse (absent: 0), and
 *          the outputs dq, dk, dv, term, dsoftcap and dsoftcap_after; its other arrays must be absent. tangents.out and
 *          lse are outputs, as in rp_jvp; all outputs may be absent.
 * Sign     delta = key - query, as in the forward pass.
 * Edges    a row that may attend to no key contributes 0, and a key that is masked for all queries gets exact zeros, as
 *          in rp_backward. Where FIRE's network has a kink, the second derivatives are those of one side.
 * Memory   allocates as rp_backward and rp_jvp, with the scratch of a task twice; never a matrix of scores. Outputs
 *          must not overlap any other array.
 * Threads  the bits do not depend on the pool.
 * Paths    computed as in rp_jvp: a pass for the tangents of out, then one with ten products instead of the five of
 *          rp_backward. With isa = "reference", or if a row attends to numbers that are not finite or overflow, the
 *          call is computed in plain loops in double on the calling thread and rounded once.
 * Accuracy rp_hvp_bound.
 * Returns  as rp_jvp; also RP_E_UNSUPPORTED for dq_in, dq_out, dkv_in, dkv_out, dweights, dprofile, dkey_mass and
 *          dentropy.
 * Source   Pearlmutter 1994. */
RP_API rp_status rp_hvp(const rp_plan *plan, const rp_tensors *t, const rp_tangents *tangents, const rp_grads *g);

/* ------------------------------------------------------------------------------------------------ looking inside */

/* One query row, computed by the reference path in double. An array that is NULL is not computed. */
typedef struct rp_row {
    double *raw;     /* [Lk] <R q, R k> */
    double *scaled;  /* [Lk] scale * raw */
    double *bias;    /* [Lk] sum of the biases */
    double *score;   /* [Lk] input of the softmax; -INFINITY where masked */
    double *weights; /* [Lk] output of the softmax */
    double *out;     /* [Dv] output row */
    double lse;      /* logarithm of the row sum */
} rp_row;

/* Trace query i of head h of batch entry b. Needs q, k, v (v only for out) and the arrays of terms and masks.
 * 0 <= b < B, 0 <= h < H, 0 <= i < Lq.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_RANGE, RP_E_UNSUPPORTED, RP_E_OVERFLOW, RP_E_NOMEM. */
RP_API rp_status rp_attend_row(const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i, rp_row *row);

/* The parts of a row: summands of the scores, of the sum of their exponentials, or of out. */
typedef enum rp_part_kind {
    RP_PART_CONTENT = 0,       /* scale <q, k> */
    RP_PART_ROTATION = 1,      /* scale (<R q, R k> - <q, k>) */
    RP_PART_QUERY = 2,         /* product of the query, or of an array indexed by query, with vectors of a term */
    RP_PART_KEY = 3,           /* product of the key with vectors of a term */
    RP_PART_SOFTCAP = 4,       /* capped minus uncapped sum of the parts before it */
    RP_PART_BIAS = 5,          /* value of a bias */
    RP_PART_SOFTCAP_AFTER = 6, /* capped minus uncapped, for the softcap after the biases */
    RP_PART_MASK = 7,          /* 0, or -INFINITY where masked */
    RP_PART_SINK = 8,          /* logit of the sink, whose exponential is added to the row sum */
    RP_PART_VALUES = 9,        /* part of out: sum_j w v_j */
    RP_PART_VECTORS = 10       /* part of out: sum_j w times the vectors of a term */
} rp_part_kind;

#define RP_MAX_PARTS (2 * RP_MAX_TERMS + 8) /* largest number of parts of a row */

/* One part of a row. */
typedef struct rp_part {
    rp_part_kind kind;   /* which summand */
    int32_t term;        /* index of its term in desc.terms, or -1 */
    int32_t array;       /* QUERY, KEY and VECTORS: index of the term's array of vectors; else -1 */
    int64_t length;      /* number of elements of value: Lk up to RP_PART_MASK, 1 for a sink, Dv for a part of out */
    char name[48];       /* unique in its row: "content", "log", "deberta.q_pos", "log 2" for the second log */
    const char *formula; /* one line, such as "scale * q . table" */
    double *value;       /* [length]; NULL: not computed */
} rp_part;

/* Split query i of head h of batch entry b (indices as in rp_attend_row) into its parts, by the reference path in
 * double. There is one part for each product, bias and other summand, in the order of addition. Up to rounding, the
 * parts up to RP_PART_MASK sum to rp_row.score, and the parts of out (listed if v is present) to rp_row.out. This holds
 * unless a part other than a mask is infinite.
 * Shapes   part has RP_MAX_PARTS entries. The call sets *n_parts and every field except value, and fills each value
 *          that is not NULL. Call it first with every value NULL to get the lengths.
 * Returns  as rp_attend_row. */
RP_API rp_status rp_attend_parts(const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i,
                                 rp_part *part, int32_t *n_parts);

/* Compute the biases bias[h,i,j] of batch entry b from their definitions, in double. Only terms of RP_ROLE_BIAS are
 * included (rp_term_role).
 * Shapes   bias [H, Lq, Lk] of any floating type.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERLAP, RP_E_OVERFLOW, RP_E_NOMEM; RP_E_RANGE unless
 *          0 <= b < B; RP_E_UNSUPPORTED. */
RP_API rp_status rp_bias(const rp_plan *plan, const rp_tensors *t, int64_t b, const rp_array *bias);

/* Compute, in double, a bound on |out - exact| for each element of out that the fast path computes from these inputs.
 * docs/maintainers/numerics.md derives it. It takes as long as the reference path.
 * Shapes   bound [B, H, Lq, Dv] of f64.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_RANGE, RP_E_OVERLAP, RP_E_UNSUPPORTED, RP_E_OVERFLOW,
 *          RP_E_NOMEM. */
RP_API rp_status rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound);

/* Compute, in double, bounds on the errors of the gradients that rp_backward computes from these inputs.
 * docs/maintainers/numerics.md derives them. It takes several times as long as the reference path.
 * Shapes   bounds has f64 arrays for the bounds, in the fields of the gradients; its dout is an input.
 * Returns  as rp_error_bound. */
RP_API rp_status rp_gradient_bound(const rp_plan *plan, const rp_tensors *t, const rp_grads *bounds);

/* Compute, in double, bounds on the errors of the tangents that rp_jvp computes from these inputs.
 * docs/maintainers/numerics.md derives them. It takes several times as long as the reference path.
 * Shapes   bounds has f64 arrays for the bounds, out and lse; its other arrays are inputs. t has v.
 * Returns  as rp_error_bound. */
RP_API rp_status rp_tangent_bound(const rp_plan *plan, const rp_tensors *t, const rp_tangents *bounds);

/* Compute, in double, bounds on the errors of the second derivatives that rp_hvp computes from these inputs.
 * docs/maintainers/numerics.md derives them. It takes several times as long as the reference path.
 * Shapes   bounds has f64 arrays for the bounds: dq, dk, dv, term, dsoftcap and dsoftcap_after; dout and dlse are
 *          inputs, as in rp_hvp. The bounds of out' and lse' are those of rp_tangent_bound.
 * Returns  as rp_error_bound. */
RP_API rp_status rp_hvp_bound(const rp_plan *plan, const rp_tensors *t, const rp_tangents *tangents,
                              const rp_grads *bounds);

/* ------------------------------------------------------------------------ machine: instruction sets and their speed */

/* Return the name of instruction set number `index` in this library, 0 or more, slowest first; NULL past the end.
 * "generic" runs on every machine. So does "amx_emulated", which computes the results of "amx" slowly in plain C, for
 * tests. */
RP_API const char *rp_isa_name(int index);

/* Return 1 if this machine supports the named instruction set ("reference" always), 0 if not, -1 for an unknown
 * name. */
RP_API int rp_isa_found(const char *name);

/* Return the default instruction set of a plan: RELPOS_ISA if valid, else the best that this machine supports. If it is
 * "amx" and RELPOS_ISA is not set, plans of f16 numbers, and of f32 numbers with RP_PRECISION_HIGHEST, use
 * "avx512_bf16", which is faster for short calls and for decoding; rp_plan_isa returns the set of a plan. */
RP_API const char *rp_isa_default(void);

/* Measure the peak rate of f32 fused multiply-adds: the best of several runs of independent multiply-adds on every
 * thread of the pool. It takes some hundredths of a second.
 * isa is a name of rp_isa_name, or NULL for rp_isa_default.
 * Returns  RP_OK and *gflops (a multiply-add is two operations); RP_E_ARG for an unknown set; RP_E_UNSUPPORTED if this
 *          machine lacks it; RP_E_NOMEM. */
RP_API rp_status rp_measure_peak(const char *isa, rp_pool *pool, double *gflops);

/* Measure the peak rate of bf16 multiply-adds on AMX tiles, otherwise like rp_measure_peak.
 * Returns  RP_OK and *gflops; RP_E_ARG if gflops is NULL; RP_E_UNSUPPORTED if there is no AMX; RP_E_NOMEM. */
RP_API rp_status rp_measure_tile_peak(rp_pool *pool, double *gflops);

/* Measure the bandwidth of memory reads: the best of several runs in which every thread of the pool reads 256 MiB of
 * its own in several streams. It allocates that memory and takes some tenths of a second.
 * Returns  RP_OK and *bytes_per_second of all threads together; RP_E_ARG if the pointer is NULL; RP_E_NOMEM. */
RP_API rp_status rp_measure_bandwidth(rp_pool *pool, double *bytes_per_second);

/* ---------------------------------------------------------------------------------- names: fields in error messages */

/* The parts of a call that an error message can name. */
typedef enum rp_field_of {
    RP_FIELD_DESC = 0,       /* a field of rp_desc: "desc.q_offset" */
    RP_FIELD_TENSORS = 1,    /* a field of rp_tensors: "tensors.q_offset" */
    RP_FIELD_PAGES = 2,      /* a field of rp_pages: "pages.len_k" */
    RP_FIELD_TERM = 3,       /* a term, "terms[0]", or a parameter of one, "terms[0].left" */
    RP_FIELD_TERM_ARRAY = 4, /* an array of a term: "term[0].table" */
    RP_FIELD_MASK = 5,       /* a mask, "masks[0]", or a parameter of one, "masks[0].left" */
    RP_FIELD_MASK_ARRAY = 6, /* the array of a mask: "mask[0]" */
} rp_field_of;

/* A field named in an error message. */
typedef struct rp_field {
    rp_field_of of;   /* part of the call that has the field */
    int32_t index;    /* index of the term or mask; otherwise 0 */
    const char *name; /* name of the field, parameter or array, such as "left"; "" for a term or mask itself */
    const char *kind; /* kind of the term or mask, such as "t5"; otherwise "" */
} rp_field;

/* A callback of rp_last_error_in. Write your name for a field to text, which has size >= 1 bytes, and return 1; or
 * return 0 for the default name. */
typedef int rp_word(void *context, const rp_field *field, char *text, size_t size);

/* Write rp_last_error to text, with names of C fields replaced by names for the users of your program. `word` chooses
 * the name of each field. If word is NULL or returns 0, the name has the form "left of window", "table of t5",
 * "key_mask" or "q_offset". desc is the description of the failed call, which gives the kinds of terms and masks; it
 * may be NULL. text has `size` bytes; a longer line is cut. Returns text. */
RP_API const char *rp_last_error_in(const rp_desc *desc, rp_word *word, void *context, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
