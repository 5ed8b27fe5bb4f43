/* internal.h -- what the files of the library share. Nothing here is installed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_INTERNAL_H
#define RELPOS_INTERNAL_H

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
} rpi_view;

/* The shape an array should have. Axes whose bit is set in `ones` may be 1; an array may leave out leading axes down to
 * min_ndim, as NumPy broadcasts. */
typedef struct rpi_shape {
    int32_t ndim, min_ndim;
    uint32_t ones;
    int64_t n[RP_MAX_AXES];
} rpi_shape;

typedef enum rpi_class { RPI_FLOATS, RPI_INTEGERS } rpi_class;

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

/* The element at byte level: any floating or integer type, as double or as truth. */
double rpi_value(const void *data, rp_dtype dtype, int64_t at);
bool rpi_truth(const void *data, rp_dtype dtype, int64_t at);
int64_t rpi_integer(const void *data, rp_dtype dtype, int64_t at);
void rpi_put(void *data, rp_dtype dtype, int64_t at, double value); /* f32 or f64 */

static inline int64_t rpi_index(const rpi_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * v->stride[0] + b * v->stride[1] + c * v->stride[2] + d * v->stride[3];
}

/* ---------------------------------------------------------------------------------------------- position terms */

/* One pair, as a definition sees it. */
typedef struct rpi_pair {
    const rp_desc *desc;
    const rp_term *term;
    const rpi_view *array; /* the term's arrays */
    int64_t b, h, i, j;
    int64_t delta; /* j - (i + q_offset) */
} rpi_pair;

/* How a term enters the score. The kernels know these five forms and no scheme by name.
 *   OFFSET  a bias that depends on (h, delta) alone: one strip of Lq+Lk-1 floats per head, read at row stride -1
 *   TILE    a bias that depends on (b, h, i, j): read in place where it is a contiguous f32 array, else filled tile by tile
 *   ROTATE  turns q and k as they are packed
 *   KEYVEC  scale <q_i, vec(h, delta)> inside the softcap, vec one of `left+1+right` vectors
 *   VALVEC  adds vec(h, delta), one of `left+1+right` vectors, to v_j */
typedef enum rpi_form { RPI_OFFSET, RPI_TILE, RPI_ROTATE, RPI_KEYVEC, RPI_VALVEC } rpi_form;

/* A parameter of a term: what the user types, where it goes, and its bounds. */
typedef enum rpi_param_type { RPI_INT, RPI_REAL, RPI_FLAG, RPI_CHOICE } rpi_param_type;
typedef struct rpi_param {
    const char *key;
    rpi_param_type type;
    size_t offset;              /* in rp_term */
    bool required;              /* the text must give it */
    const char *const *choices; /* RPI_CHOICE: names in enumerator order, NULL last */
} rpi_param;

typedef struct rpi_scheme {
    rpi_form form;
    bool in_place;                    /* of TILE: array 0 is the bias itself */
    bool same_heads;                  /* of OFFSET: the value does not depend on the head */
    const char *array[RP_MAX_ARRAYS]; /* names; NULL past the last */
    bool array_optional;
    const rpi_param *params; /* key NULL last; NULL for none */
    /* check the parameters of terms[n]; NULL: nothing to check */
    rp_status (*check)(const rp_desc *desc, const rp_term *term, int32_t n);
    /* the shape of array `index`; NULL for a term without arrays */
    void (*shape)(const rp_desc *desc, const rp_term *term, int32_t index, rpi_shape *shape);
    /* the definition, in double: of OFFSET and TILE the bias of one pair; of KEYVEC and VALVEC component d of the vector */
    double (*pair)(const rpi_pair *p);
    double (*vec)(const rpi_pair *p, int64_t d);
    /* of ROTATE: the angle by which pair c of channels turns per unit of position */
    double (*frequency)(const rp_desc *desc, const rp_term *term, int64_t c);
} rpi_scheme;

const rpi_scheme *rpi_scheme_of(rp_term_kind kind); /* NULL for no such kind */

/* The two channels of pair c of a rotation. */
static inline void rpi_rotate_channels(const rp_term *t, int64_t c, int64_t *x, int64_t *y)
{
    *x = t->layout == RP_LAYOUT_HALF ? c : 2 * c;
    *y = t->layout == RP_LAYOUT_HALF ? c + t->dim / 2 : 2 * c + 1;
}

/* ---------------------------------------------------------------------------------------------- masks */

/* One mask. `interval` narrows the keys [*lo, *hi) that query i may see; `keep` clears bytes of keys that pair by pair
 * may not be seen. A mask has either or both; together they are its meaning. */
typedef struct rpi_masker {
    rp_status (*check)(const rp_desc *desc, const rp_mask *mask, int32_t n);
    void (*shape)(const rp_desc *desc, rpi_shape *shape); /* NULL: no array */
    void (*interval)(const rp_desc *desc, const rp_mask *mask, const rpi_view *a, int64_t b, int64_t i, int64_t *lo,
                     int64_t *hi);
    void (*keep)(const rpi_view *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, uint8_t *keep);
    bool keep_same_rows; /* keep does not depend on h and i */
} rpi_masker;

const rpi_masker *rpi_masker_of(rp_mask_kind kind);

/* ---------------------------------------------------------------------------------------------- plan and call */

typedef struct rpi_ops rpi_ops;

struct rp_plan {
    rp_desc desc;                /* defaults resolved; terms and masks point into this struct */
    rp_term terms[RP_MAX_TERMS]; /* dim resolved */
    rp_mask masks[RP_MAX_MASKS];
    const rpi_ops *ops;             /* NULL: the reference path */
    int32_t rotate, keyvec, valvec; /* index of the term of that form; -1: none */
    int32_t n_offset, n_tile;       /* terms of those forms */
    bool mask_keep;                 /* some mask needs bytes, not intervals alone */
    bool mask_keep_rows;            /* and they differ between rows */
    int64_t rows_k, rows_v;         /* vectors of KEYVEC and VALVEC */
};

/* The arrays of one call, checked. */
typedef struct rpi_args {
    rpi_view q, k, v, out, lse, weights, profile, key_mass, entropy;
    rpi_view term[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rpi_view mask[RP_MAX_MASKS];
} rpi_args;

rp_status rpi_args_check(rpi_args *args, const rp_plan *plan, const rp_tensors *t);
rp_status rpi_check_output(const rp_array *a, const char *name); /* refuses elements that share memory */
rp_status rpi_args_overlap(const rp_plan *plan, const rp_tensors *t);
rp_status rpi_output_overlap(const rp_plan *plan, const rp_tensors *t, const rp_array *out); /* out beside the inputs */

/* How far a call is: workers count tasks, the caller's own thread (worker 0) reports. */
typedef struct rpi_progress {
    rp_progress *report;
    void *context;
    int64_t total;
    atomic_llong done;
} rpi_progress;

void rpi_progress_step(rpi_progress *p, int32_t worker);

/* The reference path: the outputs that args has. */
rp_status rpi_ref_attend(const rp_plan *plan, const rpi_args *args, rp_pool *pool, rpi_progress *progress);

/* Bytes of work of the fast path. */
size_t rpi_fast_work_size(const rp_plan *plan, int32_t threads); /* of any call; 0 after rpi_fail */

/* ---------------------------------------------------------------------------------------------- threads */

/* Run task(context, n, worker) for n = 0 … n_tasks-1; worker < rp_pool_threads(pool). Tasks are taken in order. */
#define RPI_MOST_THREADS 4096
typedef void (*rpi_task)(void *context, int64_t n, int32_t worker);
void rpi_pool_run(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context);
rp_pool *rpi_pool_or_default(rp_pool *pool);

/* ---------------------------------------------------------------------------------------------- instruction sets */

/* All that a query block reads and writes: one for the whole call, the packed part renewed for each group of kv heads. */
typedef struct rpi_call {
    const rp_plan *plan;
    const rpi_args *args;
    rpi_progress *progress;
    /* packed keys and values of kv heads g0 … g0+groups-1, counted over batch * kv_heads:
     *   keys   [kv head][panel of NR keys][Dk][NR]          values [kv head][columns in steps of NR][Lk padded][up to NR]
     *   wild_k [kv head][panel] 1: a key that is not tame   wild_v [kv head][Lk padded] 1: a value that is not finite */
    int64_t g0, groups;
    float *keys, *values;
    uint8_t *wild_k, *wild_v;
    int64_t pad_k, pad_v; /* Lk rounded up to NR, Dv rounded up to VL */
    /* strips: [H or 1][strip_len]; entry e is the sum of the OFFSET terms at delta = e + strip_low */
    float *strips;
    int64_t strip_len, strip_low;
    int64_t strip_step; /* strip_len, or 0 where the heads share one */
    /* rotation: [Lq or Lk][dim/2][2] cosine, sine */
    float *turn_q, *turn_k;
    /* vectors of KEYVEC packed as keys, of VALVEC as values, for each head (or one for all) */
    float *vec_k, *vec_v;
    int64_t vec_k_step, vec_v_step; /* between heads; 0 where the heads share one */
    int64_t pad_rows_k, pad_rows_v;
    uint8_t *wild_vec; /* [H or 1][pad_rows_v] 1: a vector of VALVEC that is not finite */
    int64_t wild_vec_step;
    /* scratch of one worker each */
    char *scratch;
    size_t scratch_step;
    /* summaries of one (b, h): `chunks` partial sums, added in order at the end of each group */
    double *partial; /* [head of the group][chunk][Lq+Lk-1 profile, Lk key mass] */
    int64_t chunks, chunk_rows;
} rpi_call;

struct rpi_ops {
    const char *name;
    int32_t vl, nr;     /* floats of a vector; columns of a register tile */
    int32_t qb, kb, vb; /* rows of a query block; keys of a tile; keys between two additions to out */
    size_t (*scratch_size)(const rp_plan *plan);
    void (*pack)(const rpi_call *c, int64_t kv, int64_t panel0, int64_t panel1);
    void (*attend)(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, double *partial,
                   int32_t worker);
    double (*peak)(int64_t rounds); /* multiply-adds done, on one thread */
};

const rpi_ops *rpi_ops_named(const char *name); /* NULL: no such set, or not on this machine */

/* Keys of which all |x| <= RPI_TAME, with queries that are too, cannot overflow or make NaN from finite numbers:
 * Dk * 1e30 stays far below FLT_MAX for any Dk a machine can hold. */
#define RPI_TAME 1e15f

#endif
