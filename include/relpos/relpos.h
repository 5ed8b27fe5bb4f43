/* relpos.h -- exact attention with relative positions: the public interface, and its manual.
 *
 * For batch entry b, query head h, query i, key j, and kv head g = h / (H / Hk):
 *
 *     s[i,j] = softcap(scale * <R(p_i) q_i, R(p_j) k_j> + relkey(i,j)) + bias_h(i,j)     -infinity where a mask says no
 *     w[i,.] = softmax(s[i,.])     out_i = sum_j w[i,j] (v_j + relval(i,j))     lse_i = log sum_j exp(s[i,j])
 *
 * and backward: from dout the gradients of q, k, v and of every learned array.
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

/* What a call returns. On any status but RP_OK and RP_E_CANCELLED nothing has been written to the caller's arrays. */
typedef enum rp_status {
    RP_OK = 0,            /* done */
    RP_E_ARG = 1,         /* a NULL, an unknown name, an enumerator out of range, a struct of another version */
    RP_E_SHAPE = 2,       /* an array whose shape is not the one the description asks for */
    RP_E_STRIDE = 3,      /* a last axis that is not contiguous, an output whose elements share memory */
    RP_E_RANGE = 4,       /* a number outside its bounds, NaN where a number is needed */
    RP_E_OVERLAP = 5,     /* an output that lies over an input or over another output */
    RP_E_UNSUPPORTED = 6, /* valid, but not supported: two terms of one family, a set this machine lacks */
    RP_E_NOMEM = 7,       /* out of memory */
    RP_E_OVERFLOW = 8,    /* a product of sizes that does not fit in 63 bits */
    RP_E_CANCELLED = 9    /* the progress callback cancelled the call: what the outputs hold is undefined */
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

/* Convert n elements of any type to a floating type, rounding once, to nearest even.
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

/* How products of f32 are made where the instruction set is AMX, whose tiles multiply bf16; elsewhere, and for other types,
 * it changes nothing. The names are those of PyTorch's float32_matmul_precision.
 *   HIGHEST  each number as the sum of three bf16, six products: errors no larger than those of f32 multiply-adds
 *   HIGH     of two, three products: each product off by up to 2^-16 of its size, about ten times f32's errors in a result
 * Bounds: docs/numerics.md; rp_error_bound and rp_gradient_bound know them. */
typedef enum rp_precision {
    RP_PRECISION_HIGHEST = 0,
    RP_PRECISION_HIGH = 1,
} rp_precision;

/* How distances are shared out among buckets. n = buckets of one direction, E = n/2, d = |delta|, M = max_distance;
 * every result is capped at n-1. */
typedef enum rp_strategy {
    RP_STRATEGY_LOG = 0,      /* T5: d below E, then E + floor(log(d/E)/log(M/E) * (n-E)), the logarithm in f32 */
    RP_STRATEGY_UNIFORM = 1,  /* floor(d*n/M) */
    RP_STRATEGY_LINEAR = 2,   /* d below E, then E + floor((d-E)*(n-E)/(M-E)) */
    RP_STRATEGY_QUADRATIC = 3 /* d below E, then E + floor((n-E)*sqrt((d-E)/(M-E))) */
} rp_strategy;

/* Which channels RoPE rotates together: (c, c + dim/2) as in Llama and GPT-NeoX, or (2c, 2c+1) as in RoFormer and GPT-J. */
typedef enum rp_layout { RP_LAYOUT_HALF = 0, RP_LAYOUT_INTERLEAVED = 1 } rp_layout;

/* How KERPLE falls with distance. */
typedef enum rp_kerple {
    RP_KERPLE_LOG = 0,  /* -p log(1 + a |delta|) */
    RP_KERPLE_POWER = 1 /* -a |delta|^p */
} rp_kerple;

/* How RoPE's frequencies are stretched beyond the trained length; names and parameters as in Hugging Face configs. */
typedef enum rp_scaling {
    RP_SCALING_NONE = 0,
    RP_SCALING_LINEAR = 1, /* every frequency divided by factor */
    RP_SCALING_DYNAMIC =
        2,                 /* NTK: a larger base, by how far the longest position goes beyond max_position_embeddings */
    RP_SCALING_YARN = 3,   /* slow pairs divided by factor, fast ones kept, a ramp between; Peng 2023 */
    RP_SCALING_LLAMA3 = 4, /* the same by wavelength, as in Llama 3.1 */
    RP_SCALING_LONGROPE =
        5 /* a factor for each pair: short_factor, or long_factor beyond the original length; Ding 2024 */
} rp_scaling;

/* One position term: its kind and the parameters that the kind reads; the others are ignored. Start from rp_term_init,
 * which sets every default; fields then mean what they say (a lambda of 0 is 0). The arrays of the term go into
 * rp_tensors.term, in the order given here; those in parentheses may be absent. H stands for H or 1 (one for all heads).
 * delta = p_j - p_i = j - (i + q_offset).
 *
 *   kind     value added to the score                              arrays                  reads
 *   TABLE    table[h, clamp(delta, -left, right) + left]           table [H, left+right+1] (*) left right
 *   T5       table[bucket(delta), h]                               table [buckets, H] (*)  buckets max_distance bidirectional
 *   BUCKET   as T5, any strategy                                   table [buckets, H] (*)  and strategy
 *   LOG      -lambda log(1 + |delta|)                              (*)                     lambda
 *   LINEAR   -rate_left |delta| before the query, -rate_right delta after it  (*)          rate_left rate_right
 *   ALIBI    -slope_h |delta|                                      (slopes [H]: else the paper's) (*)
 *   DENSE    bias[b,h,i,j]; -infinity masks the pair               bias, broadcast to [B, H, Lq, Lk]
 *   ROPE     rotates the first dim channels of q and k by position   (positions) (q_positions) (k_positions) (short_factor)
 *            (long_factor)                                         dim base layout scaling and its parameters
 *   RELKEY   scale <q_i, table[clamp(delta) + left]>               table [left+right+1, Dk] or [H, …] (*)  left right
 *   RELVAL   adds table[clamp(delta) + left] to v_j                table [left+right+1, Dv] or [H, …] (*)  left right
 *   KERPLE   -p_h log(1 + a_h |delta|), or -a_h |delta|^p_h        p [H] a [H] (*)         kerple
 *   SANDWICH sum over k < dim/2 of cos(delta / base^(2k/dim)), divided by 8 (h+1)/H    (*)  dim base
 *   FIRE     MLP(psi(|delta|) / (psi(max(L, p_i)) + eps))[h], psi(x) = log(|c x| + 1), ReLU between the layers
 *            w1 [width,1] b1 [width] w2 [H,width] b2 [H]; with width2: w2 [width2,width] b2 [width2] w3 [H,width2] b3 [H] (*)
 *                                                                                          c L eps width width2
 *   SWIN     table[index(i,j), h], the window index of Swin; with extra = 1 that of BEiT, token 0 being the class token
 *                                                                  table [(2 grid_h-1)(2 grid_w-1) + 3 extra, H]   grid_h grid_w extra
 *   AXIAL    bh[h, dy + grid_h-1] + bw[h, dx + grid_w-1]           bh [H,2 grid_h-1] bw [H,2 grid_w-1]   grid_h grid_w
 *            dy, dx = row, column of the key minus those of the query
 *   REAL     sign table[h, trunc(clamp(p_i - p_j, -max_distance, max_distance)) + max_distance]; 0 where a mask says 0
 *            table [H, 2 max_distance+1] (q_positions) (k_positions) (q_position_mask) (k_position_mask)   max_distance sign
 *   BAND     sum over c of r[b,h,i,c] p[c,-delta] for 0 <= -delta < extent, else 0
 *                                                                  r [B,H,Lq,width] p [width,extent] or [H,…]   width extent
 *   FORGET   sum of logf[b,h,t] over j < t <= p_i; keys after the query are masked     logf [B,H,Lk]
 *   XL       scale (<q_i + u_h, k_j> + <q_i + v_h, r[h, j - i + Lq-1]>) in place of scale <q_i, k_j>
 *                                                                  r [H,Lq+Lk-1,Dk] (u [H,Dk]) (v [H,Dk])
 *   AXIALKEY <q_i, rh[dy + grid_h-1] + rw[dx + grid_w-1]>          rh [2 grid_h-1,Dk] rw [2 grid_w-1,Dk]   grid_h grid_w
 *            dy, dx = row, column of the query minus those of the key
 *   DEBERTA  scale (<q_i, k_pos[h,c]> + <k_j, q_pos[h,c]>), c = clamp(bucket(-delta) + span, 0, 2 span-1)
 *                                                                  (k_pos [H,2 span,Dk]) (q_pos [H,2 span,Dk])   span buckets max_position
 *   SINK     adds exp(sink_h) to the row sum: the weights then sum to less than one    sink [H]
 *
 * (*) also takes (q_positions [Lq] or [B,Lq]) and (k_positions [Lk] or [B,Lk]), integer or real, last in the order: they
 * stand in place of p_i and p_j, differences are taken in f64, and truncated toward zero where an index is needed.
 * RELKEY, XL, AXIALKEY and DEBERTA add inside the softcap and use q and k before RoPE rotates them; at most one of these, one
 * ROPE, one RELVAL and one SINK; any number of the others add up. */
typedef struct rp_term {
    rp_term_kind kind;     /* which term */
    int32_t bidirectional; /* 1: half of the buckets for keys after the query; 0: those share bucket 0 */
    int64_t left;          /* offsets below -left share the first entry of a clipped table; >= 0 */
    int64_t right;         /* offsets above right share the last; >= 0 */
    int64_t buckets;       /* >= 2; even, and >= 4, when bidirectional; of DEBERTA -1 = none */
    int64_t
        max_distance; /* distances from here on share the last bucket; > half of one direction's buckets; of REAL >= 0 */
    rp_strategy strategy; /* spacing of the buckets */
    rp_layout layout;     /* pairs of channels that RoPE rotates */
    int64_t dim;          /* channels that RoPE rotates: even, 2 … Dk; 0 = Dk. Of SANDWICH: even, 2 or more */
    double base;          /* RoPE: pair c rotates by position * base^(-2c/dim); > 0 */
    double lambda;        /* strength of LOG */
    double rate_left;     /* LINEAR: loss per step before the query */
    double rate_right;    /* LINEAR: loss per step after the query */
    rp_kerple kerple;     /* log or power */
    int32_t sign;         /* REAL: 1 or -1 */
    double c;             /* FIRE: scale of distances inside the logarithm */
    double L;             /* FIRE: queries before this position are normalised by it; >= 0 */
    double eps;           /* FIRE: >= 0 */
    int64_t width;        /* FIRE: units of the first layer; BAND: channels of r; >= 1 */
    int64_t width2;       /* FIRE: units of the second layer; 0 = two layers only */
    int64_t extent;       /* BAND: keys seen, the query's own among them; >= 1 */
    int64_t grid_h;       /* rows of the grid; >= 1 */
    int64_t grid_w;       /* columns of the grid; >= 1 */
    int64_t extra;        /* SWIN: 1 = token 0 is a class token, 0 = none */
    int64_t span;         /* DEBERTA: 2 span vectors; 0 = buckets, or max_position where there are none */
    int64_t max_position; /* DEBERTA: longest distance with a bucket of its own; 0 = span */
    rp_scaling scaling;   /* RoPE beyond the trained length */
    int32_t truncate;     /* YARN: 1 = ends of the ramp are whole pairs */
    double factor;        /* how many times longer; >= 1 */
    int64_t
        original_max_position_embeddings; /* trained length of YARN, LLAMA3, LONGROPE; 0 = max_position_embeddings */
    int64_t max_position_embeddings; /* trained length of DYNAMIC; otherwise the stretched length, where it is needed */
    double beta_fast;                /* YARN: pairs that rotate more often than this keep their speed */
    double beta_slow;                /* YARN: pairs that rotate less often are divided by factor */
    double attention_factor;         /* multiplies cosine and sine; 0 = by the scaling's own rule */
    double mscale;                   /* YARN: 0 = not given */
    double mscale_all_dim;           /* YARN: 0 = not given */
    double low_freq_factor;          /* LLAMA3 */
    double high_freq_factor;         /* LLAMA3 */
} rp_term;

/* A term of the given kind with every default set: buckets 32 (of DEBERTA -1), max_distance 128, bidirectional 1, lambda 0.3,
 * rates 1, base 10000, dim = Dk, layout half, strategy log, kerple log, sign -1, eps 1e-6, scaling none, factor 1,
 * beta_fast 32, beta_slow 1, truncate 1, low_freq_factor 1, high_freq_factor 4. What has no default is 0: set it where the
 * kind reads it. */
static inline rp_term rp_term_init(rp_term_kind kind)
{
    rp_term t;
    unsigned char *p = (unsigned char *)&t;
    for (size_t n = 0; n < sizeof t; n++)
        p[n] = 0;
    t.kind = kind;
    t.bidirectional = 1;
    t.buckets = kind == RP_TERM_DEBERTA ? -1 : 32;
    t.max_distance = kind == RP_TERM_REAL ? -1 : 128;
    t.strategy = RP_STRATEGY_LOG;
    t.layout = RP_LAYOUT_HALF;
    t.base = 10000.0;
    t.lambda = 0.3;
    t.rate_left = t.rate_right = 1.0;
    t.kerple = RP_KERPLE_LOG;
    t.sign = -1;
    t.eps = 1e-6;
    t.scaling = RP_SCALING_NONE;
    t.truncate = 1;
    t.factor = 1.0;
    t.beta_fast = 32.0;
    t.beta_slow = 1.0;
    t.low_freq_factor = 1.0;
    t.high_freq_factor = 4.0;
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
    rp_dtype dtype;       /* of q, k, v and out: f32, f64, f16 or bf16; arithmetic in f64 for f64, else in f32 */
    int32_t cap_after;    /* 0: softcap caps the score before the biases; 1: after them */
    double scale;         /* of the product, at most 1e20 in size; RP_SCALE_AUTO = 1/sqrt(Dk) */
    double softcap;       /* c of c tanh(x/c), 1e-20 to 1e20; 0 = none */
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
    d.cap_after = 0;
    d.scale = RP_SCALE_AUTO;
    d.softcap = 0.0;
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

/* The shape of the array of desc->masks[mask]; *ndim = 0 for a mask without one. Otherwise as rp_term_shape. */
RP_API rp_status rp_mask_shape(const rp_desc *desc, int32_t mask, int32_t *ndim, int64_t *shape);

/* Names as the command line and Python spell them ("t5", "key_mask"), syntax and source; NULL for no such kind. */
RP_API const char *rp_term_name(rp_term_kind kind);
RP_API const char *rp_term_syntax(rp_term_kind kind);      /* what the user types, such as "alibi[,slopes=NAME]" */
RP_API const char *rp_term_source(rp_term_kind kind);      /* the paper */
RP_API const char *rp_term_array(rp_term_kind, int index); /* name of an array of the term, such as "table" */
RP_API const char *rp_mask_name(rp_mask_kind kind);        /* such as "key_mask" */

/* 1 for a bias (--bias), 0 for a term with an option of its own name (--rope, --relkey, --relval, --xl, --axialkey, --deberta,
 * --sink). */
RP_API int rp_term_is_bias(rp_term_kind kind);

/* 1 where the term works without that array, such as the slopes of ALIBI. */
RP_API int rp_term_array_optional(rp_term_kind kind, int index);

/* 1 for a learned array, which has a gradient; 0 for positions, masks and factors. */
RP_API int rp_term_array_learned(rp_term_kind kind, int index);

#define RP_NAME_MAX 256 /* bytes of an array's name in a term's text, the final 0 included */

/* What rp_term_parse, rp_term_print, rp_term_sizes and rp_rope_frequencies call: term_size is sizeof(rp_term) as the caller was
 * compiled, at most the library's own and a multiple of 8. Fields beyond it have their defaults and are never written.
 * Returns  what each of them returns; RP_E_ARG for another size; RP_E_UNSUPPORTED where a text sets a field that the caller's rp_term lacks. */
RP_API rp_status rp_term_parse_sized(const char *text, rp_term *term, size_t term_size, char names[][RP_NAME_MAX]);
/* See rp_term_parse_sized. */
RP_API rp_status rp_term_print_sized(const rp_term *term, size_t term_size, char *text, size_t size);
/* See rp_term_parse_sized. */
RP_API rp_status rp_term_sizes_sized(rp_term *term, size_t term_size, const rp_array *arrays);
/* See rp_term_parse_sized. */
RP_API rp_status rp_rope_frequencies_sized(const rp_term *term, size_t term_size, double longest,
                                           const double *short_factor, const double *long_factor, double *frequency,
                                           double *factor);

/* Read a term from text: "t5,table=rel_bias,buckets=16" fills *term and names[0] = "rel_bias".
 *
 * Shapes   names has RP_MAX_ARRAYS entries of RP_NAME_MAX bytes; "" where the text names no array.
 * Edges    keys that the term does not read, or given twice, are errors; numbers are read without regard to locale.
 * Returns  RP_OK, RP_E_ARG. */
static inline rp_status rp_term_parse(const char *text, rp_term *term, char names[][RP_NAME_MAX])
{
    return rp_term_parse_sized(text, term, sizeof *term, names);
}

/* Write a term as rp_term_parse reads it, every parameter with its value and no array: "t5,buckets=32,max_distance=128,…".
 *
 * Shapes   text has room for `size` bytes; 1024 are enough for any term.
 * Edges    decimal numbers have a point or an exponent, and the fewest digits that read back as the same double.
 * Returns  RP_OK; RP_E_ARG; RP_E_RANGE where the room does not do, or a parameter has no such value. */
static inline rp_status rp_term_print(const rp_term *term, char *text, size_t size)
{
    return rp_term_print_sized(term, sizeof *term, text, size);
}

/* Sizes that a term leaves open (0: width and width2 of FIRE, width and extent of BAND, span of DEBERTA) from the shapes of
 * its arrays, of which there are RP_MAX_ARRAYS; data == NULL where absent. What no array tells stays open.
 * Returns  RP_OK; RP_E_ARG; RP_E_SHAPE where the array that tells a size has too few axes, or none of that length. */
static inline rp_status rp_term_sizes(rp_term *term, const rp_array *arrays)
{
    return rp_term_sizes_sized(term, sizeof *term, arrays);
}

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

/* One of the tasks of rp_pool_run; worker is below rp_pool_threads(pool), and no two tasks have the same one at once. */
typedef void rp_task(void *context, int64_t n, int32_t worker);

/* Run task(context, n, worker) for n = 0 … n_tasks-1 on a pool (NULL = the default one), so that what surrounds attention need
 * have no threads of its own. Tasks are begun in order; the call returns when all have ended.
 * Returns  RP_OK; RP_E_ARG where task is NULL. */
RP_API rp_status rp_pool_run(rp_pool *pool, int64_t n_tasks, rp_task *task, void *context);

/* ------------------------------------------------------------------------------------------------ where: one call */

/* Called now and then, between blocks of work, by the thread that called rp_attend or rp_backward, with the share of the work
 * that is done, 0 … 1. Any other value than 0 ends the call: blocks that have begun are finished, no other begins, and the call
 * returns RP_E_CANCELLED. */
typedef int rp_progress(void *context, double share);

/* Keys and values in pages that lie anywhere, as in a paged or a ring-buffer cache: key j of batch entry b is row j % page of
 * the page at [b * per_batch + j / page]. Every page has [Hk, page, Dk] (or Dv) elements of desc.dtype, with these strides.
 * A ring buffer of whole pages names its pages from the oldest on. */
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
} rp_pages;

/* What a plan makes once from the learned arrays and positions, for many calls: strips of biases and the cosines and sines
 * of RoPE, for every position 0 … max(len_q, len_k)-1 of queries and keys. */
typedef struct rp_prepared rp_prepared;

/* The arrays of one call. Start from rp_tensors_init; absent outputs are not computed.
 *
 * Shapes   q [B,H,Lq,Dk]  k [B,Hk,Lk,Dk]  v [B,Hk,Lk,Dv]  out [B,H,Lq,Dv], all of desc.dtype, last axis contiguous
 *          lse [B,H,Lq]  weights [B,H,Lq,Lk]  profile [B,H,Lq+Lk-1]  key_mass [B,H,Lk]  entropy [B,H,Lq], of any floating type
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

/* Make what many calls share, such as the steps of decoding with a flexible plan: nothing is then made anew for a step. The
 * results have the same bits with and without. t needs the arrays of the terms only; make it again when one changes. Given
 * positions and DYNAMIC and LONGROPE scalings, which depend on the call, are left to the call; so are positions out of range.
 * Returns  RP_OK and *prepared, or an error and NULL. */
RP_API rp_status rp_prepare(rp_prepared **prepared, const rp_plan *plan, const rp_tensors *t);

/* Free what rp_prepare made, once no call uses it; NULL is allowed. */
RP_API void rp_prepared_destroy(rp_prepared *prepared);

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
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERLAP, RP_E_OVERFLOW, RP_E_NOMEM, RP_E_CANCELLED.
 * Accuracy docs/numerics.md; rp_error_bound evaluates the bound.
 * Source   Dao 2022, algorithm 1; running maximum: Milakov and Gimelshein 2018. */
RP_API rp_status rp_attend(const rp_plan *plan, const rp_tensors *t, void *work);

/* The gradients of one backward call. Start from rp_grads_init. An absent array is a gradient that is not wanted, and its
 * work is not done.
 *
 * Shapes   dout [B,H,Lq,Dv]  dq [B,H,Lq,Dk]  dk [B,Hk,Lk,Dk]  dv [B,Hk,Lk,Dv]; term[n][x] has the very shape of the array
 *          rp_tensors.term[n][x], axes along which it broadcasts summed; all of any floating type
 * An array may be of f32 while q is bf16: gradients are summed in f32 or f64 and rounded once. */
typedef struct rp_grads {
    size_t size;                                /* sizeof(rp_grads) */
    rp_array dout;                              /* gradient of the loss with respect to out */
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

/* Bytes of work that rp_backward needs on a pool (NULL = the default pool): grows with Lq and Lk, never with their product.
 * Returns 0, with rp_last_error set, if that does not fit. */
RP_API size_t rp_plan_backward_size(const rp_plan *plan, const rp_pool *pool);

/* The gradients of sum(dout * out) with respect to q, k, v and the learned arrays, from weights that are computed again.
 *
 *     dp[i,j] = <dout_i, v_j + relval(i,j)>     ds = w (dp - sum_j w dp)     dq_i = scale sum_j ds k_j     dk_j = scale sum_i ds q_i
 *     dv_j = sum_i w dout_i     a bias's array: the sum of ds times the bias's derivative
 *
 * Shapes   see rp_tensors and rp_grads. t holds q, k, v and the arrays of the call before; its out and lse, where present,
 *          are inputs and spare a forward pass. An lse of a narrower type than the arithmetic (f64 for f64, else f32) is not
 *          used, and the forward pass is made again. Its other outputs must be absent.
 * Sign     delta = key - query, as forward.
 * Edges    a row with no key left has zero gradients. A key that is masked everywhere gets exact zeros.
 * Memory   as rp_attend: work has rp_plan_backward_size bytes, or is NULL. Gradients of offsets are summed along diagonals.
 * Threads  the bits do not depend on the pool.
 * Returns  as rp_attend; RP_E_ARG where a gradient is asked for an array that is absent or not learned.
 * Accuracy docs/numerics.md.
 * Source   Dao 2022, algorithm 4. */
RP_API rp_status rp_backward(const rp_plan *plan, const rp_tensors *t, const rp_grads *g, void *work);

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

/* The biases themselves: bias[h,i,j] of batch entry b, by the definitions, in double; rotations, products
 * with q and k inside the softcap (RELKEY, XL, AXIALKEY, DEBERTA), RELVAL and SINK are left out.
 * Shapes   bias [H, Lq, Lk] of f32 or f64. */
RP_API rp_status rp_bias(const rp_plan *plan, const rp_tensors *t, int64_t b, const rp_array *bias);

/* A bound on |out - exact| for each element of out, for the fast f32 path, evaluated for these inputs in double:
 * docs/numerics.md derives it. Costs as much as the reference path.
 * Shapes   bound [B, H, Lq, Dv] of f64. */
RP_API rp_status rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound);

/* Bounds on the errors of the gradients that rp_backward computes, evaluated for these inputs in double: docs/numerics.md. Costs a
 * multiple of the reference path.
 * Shapes   bounds is as the gradients of rp_backward, of f64; its dout is an input. */
RP_API rp_status rp_gradient_bound(const rp_plan *plan, const rp_tensors *t, const rp_grads *bounds);

/* The bucket of an offset delta = key - query, the buckets of T5 bit for bit with RP_STRATEGY_LOG.
 * Edges    bidirectional = 0: every key after the query falls in bucket 0. Any int64 offset is allowed.
 * Returns  the bucket; -1, with rp_last_error set, for parameters out of range (see rp_term).
 * Source   Raffel 2020, section 2.1; the logarithm in f32 as in its public implementations. */
RP_API int64_t rp_bucket(int64_t delta, int64_t buckets, int64_t max_distance, int32_t bidirectional,
                         rp_strategy strategy);

/* RoPE's frequencies: pair c rotates by position * frequency[c], and cosine and sine are multiplied by *factor.
 *
 * Shapes   frequency [dim/2]; short_factor and long_factor [dim/2], read by LONGROPE only
 * term     a ROPE term with dim resolved; longest is the largest position + 1 of queries and keys, which DYNAMIC and LONGROPE ask
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE.
 * Source   Su 2021; Peng 2023 (YaRN); Llama 3.1; Ding 2024 (LongRoPE), each as in Hugging Face's modeling_rope_utils. */
static inline rp_status rp_rope_frequencies(const rp_term *term, double longest, const double *short_factor,
                                            const double *long_factor, double *frequency, double *factor)
{
    return rp_rope_frequencies_sized(term, sizeof *term, longest, short_factor, long_factor, frequency, factor);
}

/* The slope of head h (0 … heads-1) of ALiBi: 2^(-8(h+1)/n) for n = heads a power of two; otherwise those of the next
 * lower power of two, then every other one of the next higher. NaN for a head out of range.
 * Source   Press 2022, section 3, and its published code for other numbers of heads. */
RP_API double rp_alibi_slope(int64_t h, int64_t heads);

/* ------------------------------------------------------------------------------------------------ this machine */

/* The names of the instruction sets this library was built with, best last: index 0, 1, …; NULL past the end.
 * "generic" runs everywhere, and so does "amx_emulated", which makes the numbers of "amx" in plain C, slowly, for tests. */
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

/* Measure how fast memory is read: the best of several runs in which every thread of the pool reads 256 MiB of its own, in
 * several streams. It takes that memory, and some tenths of a second.
 * Returns  RP_OK and *bytes_per_second, of all threads together; RP_E_ARG; RP_E_NOMEM. */
RP_API rp_status rp_measure_bandwidth(rp_pool *pool, double *bytes_per_second);

#ifdef __cplusplus
}
#endif
#endif
