/* terms.h -- the position terms of relpos.h, which includes this file: kinds, parameters, names, and the table of what
 * each adds. facts.h says more of each, for programs that make something for every one.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TERMS_H
#define RELPOS_TERMS_H
#ifndef RELPOS_H
#error "include <relpos/relpos.h>, which includes terms.h"
#endif

/* -------------------------------------------------------------------------------- terms: what is added by position */

/* The kinds of position term; terms.def says what each takes. */
typedef enum rp_term_kind {
    RP_TERM_NONE = 0,
#define RP_X(ENUM, name, syntax, source) RP_TERM_##ENUM,
#include "terms.def"
#undef RP_X
    RP_TERM_COUNT /* one more than the last kind */
} rp_term_kind;

/* How distances are shared out among buckets. n = buckets of one direction, E = n/2, d = |delta|, M = max_distance;
 * every result is capped at n-1. */
typedef enum rp_strategy {
    RP_STRATEGY_LOG = 0,      /* T5: d below E, then E + floor(log(d/E)/log(M/E) * (n-E)), the logarithm in f32 */
    RP_STRATEGY_UNIFORM = 1,  /* floor(d*n/M) */
    RP_STRATEGY_LINEAR = 2,   /* d below E, then E + floor((d-E)*(n-E)/(M-E)) */
    RP_STRATEGY_QUADRATIC = 3 /* d below E, then E + floor((n-E)*sqrt((d-E)/(M-E))) */
} rp_strategy;

/* Which channels RoPE rotates together: (c, c + dim/2) as in Llama and GPT-NeoX, or (2c, 2c+1) as in RoFormer and
 * GPT-J. */
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
    /* NTK: a larger base, by how far the longest position goes beyond max_position_embeddings */
    RP_SCALING_DYNAMIC = 2,
    RP_SCALING_YARN = 3,   /* slow pairs divided by factor, fast ones kept, a ramp between; Peng 2023 */
    RP_SCALING_LLAMA3 = 4, /* the same by wavelength, as in Llama 3.1 */
    /* a factor for each pair: short_factor, or long_factor beyond the original length; Ding 2024 */
    RP_SCALING_LONGROPE = 5
} rp_scaling;

/* One position term: its kind and the parameters that the kind reads; the others are ignored. Start from rp_term_init,
 * which sets every default; fields then mean what they say (a lambda of 0 is 0). The arrays of the term go into
 * rp_tensors.term, in the order given here; those in parentheses may be absent. H stands for H or 1 (one for all
 * heads). delta = p_j - p_i = j - (i + q_offset).
 *
 *   table    made by tools/terms.py: what is added; arrays, as rp_tensors.term has them; fields with defaults
 *   TABLE    table[h, clamp(delta, -left, right) + left]
 *            arrays  table [H?, left+right+1] (*)
 *            reads   left, right
 *   T5       table[bucket(delta), h], the buckets of T5
 *            arrays  table [buckets, H] (*)
 *            reads   buckets = 32, max_distance = 128, bidirectional = 1
 *   BUCKET   table[bucket(delta), h], buckets of the given spacing
 *            arrays  table [buckets, H] (*)
 *            reads   strategy = log, buckets = 32, max_distance = 128, bidirectional = 1
 *   LOG      -lambda log(1 + |delta|)
 *            arrays  (*)
 *            reads   lambda = 0.3
 *   LINEAR   -left |delta| before the query, -right delta after it
 *            arrays  (*)
 *            reads   rate_left = 1, rate_right = 1
 *   ALIBI    -slope_h |delta|; by default the slopes of the paper
 *            arrays  (slopes [H]) (**)
 *            reads   real[0] = 8 (max_bias)
 *   DENSE    bias[b,h,i,j]; -infinity masks the pair
 *            arrays  bias [B?, H?, Lq?, Lk?]
 *   ROPE     rotates the first dim channels of q and k by position
 *            arrays  (positions [B?, L]), (q_positions [B?, Lq]), (k_positions [B?, Lk]), short_factor scaling=longrope
 *                    ? [dim/2] : none, long_factor scaling=longrope ? [dim/2] : none
 *            reads   dim, base = 10000, layout = half, scaling = none, factor = 1, original_max_position_embeddings,
 *                    max_position_embeddings, beta_fast = 32, beta_slow = 1, attention_factor, mscale, mscale_all_dim,
 *                    truncate = 1, low_freq_factor = 1, high_freq_factor = 4
 *   RELKEY   scale <q_i, table[clamp(delta, -left, right) + left]>
 *            arrays  table [H?, left+right+1, Dk] (**)
 *            reads   left, right
 *   RELVAL   adds table[clamp(delta, -left, right) + left] to v_j
 *            arrays  table [H?, left+right+1, Dv] (**)
 *            reads   left, right
 *   KERPLE   -p_h log(1 + a_h |delta|), or with kind=power -a_h |delta|^p_h
 *            arrays  p [H], a [H] (*)
 *            reads   kerple = log
 *   SANDWICH sum over k < dim/2 of cos(delta / base^(2k/dim)), divided by 8 (h+1)/H
 *            arrays  (*)
 *            reads   dim, base = 10000
 *   FIRE     MLP(psi(|delta|) / (psi(max(L, p_i)) + eps))[h], psi(x) = log(|c x| + 1), ReLU between layers
 *            arrays  w1 [width, 1], b1 [width], w2 width2 ? [width2, width] : [H, width], b2 width2 ? [width2] : [H],
 *                    w3 width2 ? [H, width2] : none, b3 width2 ? [H] : none (*)
 *            reads   c, L, eps = 1e-06, width, width2
 *   SWIN     table[index(i,j), h], index as in Swin; with extra = 1 as in BEiT, where token 0 is the class token
 *            arrays  table [(2*grid_h-1)*(2*grid_w-1)+3*extra, H]
 *            reads   extra = 0, grid_h grid_w
 *   AXIAL    bh[h, dy + grid_h-1] + bw[h, dx + grid_w-1]; dy, dx: row and column of the key minus the query
 *            arrays  bh [H?, 2*grid_h-1], bw [H?, 2*grid_w-1]
 *            reads   grid_h grid_w
 *   REAL     sign table[h, trunc(clamp(-delta, -max_distance, max_distance)) + max_distance]
 *            arrays  table [H?, 2*max_distance+1] (**)
 *            reads   max_distance, sign = -1
 *   BAND     sum over c of r[b,h,i,c] p[h,c,-delta] for 0 <= -delta < extent, else 0
 *            arrays  r [B, H, Lq, width], p [H?, width, extent]
 *            reads   width, extent
 *   FORGET   sum of logf[b,h,t] over j < t <= p_i; keys after the query are masked
 *            arrays  logf [B, H, Lk]
 *   XL       scale (<q_i + u_h, k_j> + <q_i + v_h, r[h, j - i + Lq-1]>) in place of scale <q_i, k_j>
 *            arrays  r [H?, Lq+Lk-1, Dk], (u [H?, Dk]), (v [H?, Dk])
 *   AXIALKEY <q_i, rh[dy + grid_h-1] + rw[dx + grid_w-1]>; dy, dx: row and column of the query minus the key
 *            arrays  rh [2*grid_h-1, Dk], rw [2*grid_w-1, Dk]
 *            reads   grid_h grid_w
 *   DEBERTA  scale (<q_i, k_pos[h,c]> + <k_j, q_pos[h,c]>), c = clamp(bucket(-delta) + span, 0, 2 span-1)
 *            arrays  (k_pos [H?, 2*span, Dk]), (q_pos [H?, 2*span, Dk])
 *            reads   span, buckets = -1, max_position
 *   SINK     adds exp(sink_h) to the row sum, so the weights sum to less than one
 *            arrays  sink [H]
 *   end of table
 *
 * (*) also takes (q_positions [Lq] or [B,Lq]) and (k_positions [Lk] or [B,Lk]), integer or real, last in the order:
 * they stand in place of p_i and p_j, differences are taken in f64, and truncated toward zero where an index is needed.
 * (**) takes those, and after them (q_position_mask [Lq] or [B,Lq]) and (k_position_mask [Lk] or [B,Lk]), 0 where a
 * token has no position: a pair that lacks one gets 0 from the term, and attends all the same.
 * What is no bias (rp_term_role) may be given once in each role. Products add inside the softcap and use q and k before
 * RoPE rotates them. Any number of biases add up. */
typedef struct rp_term {
    rp_term_kind kind;     /* which term */
    int32_t bidirectional; /* 1: half of the buckets for keys after the query; 0: those share bucket 0 */
    int64_t left;          /* offsets below -left share the first entry of a clipped table; >= 0 */
    int64_t right;         /* offsets above right share the last; >= 0 */
    int64_t buckets;       /* >= 2; even, and >= 4, when bidirectional; of DEBERTA -1 = none */
    int64_t max_distance;  /* distances from here on share the last bucket; > half of one direction's buckets */
    rp_strategy strategy;  /* spacing of the buckets */
    rp_layout layout;      /* pairs of channels that RoPE rotates */
    int64_t dim;           /* channels that RoPE rotates: even, 2 … Dk; 0 = Dk. Of SANDWICH: even, 2 or more */
    double base;           /* RoPE: pair c rotates by position * base^(-2c/dim); > 0 */
    double lambda;         /* strength of LOG */
    double rate_left;      /* LINEAR: loss per step before the query */
    double rate_right;     /* LINEAR: loss per step after the query */
    rp_kerple kerple;      /* log or power */
    int32_t sign;          /* REAL: 1 or -1 */
    double c;              /* FIRE: scale of distances inside the logarithm */
    double L;              /* FIRE: queries before this position are normalised by it; >= 0 */
    double eps;            /* FIRE: >= 0 */
    int64_t width;         /* FIRE: units of the first layer; BAND: channels of r; >= 1 */
    int64_t width2;        /* FIRE: units of the second layer; 0 = two layers only */
    int64_t extent;        /* BAND: keys seen, the query's own among them; >= 1 */
    int64_t grid_h;        /* rows of the grid; >= 1 */
    int64_t grid_w;        /* columns of the grid; >= 1 */
    int64_t extra;         /* SWIN: 1 = token 0 is a class token, 0 = none */
    int64_t span;          /* DEBERTA: 2 span vectors; 0 = buckets, or max_position where there are none */
    int64_t max_position;  /* DEBERTA: longest distance with a bucket of its own; 0 = span */
    rp_scaling scaling;    /* RoPE beyond the trained length */
    int32_t truncate;      /* YARN: 1 = ends of the ramp are whole pairs */
    double factor;         /* how many times longer; >= 1 */
    /* trained length of YARN, LLAMA3, LONGROPE; 0 = max_position_embeddings */
    int64_t original_max_position_embeddings;
    int64_t max_position_embeddings; /* trained length of DYNAMIC; otherwise the stretched length, where it is needed */
    double beta_fast;                /* YARN: pairs that rotate more often than this keep their speed */
    double beta_slow;                /* YARN: pairs that rotate less often are divided by factor */
    double attention_factor;         /* multiplies cosine and sine; 0 = by the scaling's own rule */
    double mscale;                   /* YARN: 0 = not given */
    double mscale_all_dim;           /* YARN: 0 = not given */
    double low_freq_factor;          /* LLAMA3 */
    double high_freq_factor;         /* LLAMA3 */
    double real[4];     /* parameters of terms that have no field of their own: the table above says which */
    int64_t integer[4]; /* likewise, whole numbers */
    int32_t choice[4];  /* likewise, flags, signs and enumerations */
} rp_term;

/* A term of the given kind: the parameters that it reads have their defaults, which the table above and rp_term_print
 * tell, and all other fields are 0. What has no default is 0 too: set it. term_size: see rp_term_parse_sized; a size
 * that is refused leaves *term as it is. */
RP_API void rp_term_init_sized(rp_term *term, size_t term_size, rp_term_kind kind);
/* See rp_term_init_sized. */
static inline rp_term rp_term_init(rp_term_kind kind)
{
    rp_term t;
    rp_term_init_sized(&t, sizeof t, kind);
    return t;
}

/* Names as the command line and Python spell them ("t5", "key_mask"), syntax and source; NULL for no such kind. */
RP_API const char *rp_term_name(rp_term_kind kind);
RP_API const char *rp_term_syntax(rp_term_kind kind);      /* what the user types, such as "alibi[,slopes=NAME]" */
RP_API const char *rp_term_source(rp_term_kind kind);      /* the paper */
RP_API const char *rp_term_array(rp_term_kind, int index); /* name of an array of the term, such as "table" */

/* 1 for a bias (--bias), 0 for a term with an option of its own name, such as --rope. */
RP_API int rp_term_is_bias(rp_term_kind kind);

/* 1 where the term works without that array, such as the slopes of ALIBI. */
RP_API int rp_term_array_optional(rp_term_kind kind, int index);

/* 1 for a learned array, which has a gradient; 0 for positions, masks and factors. */
RP_API int rp_term_array_learned(rp_term_kind kind, int index);

#define RP_NAME_MAX 256 /* bytes of an array's name in a term's text, the final 0 included */

/* What rp_term_parse, rp_term_print, rp_term_sizes and rp_rope_frequencies call: term_size is sizeof(rp_term) as the
 * caller was compiled, at most the library's own and a multiple of 8. Fields beyond it have their defaults and are
 * never written.
 * Returns  what each of them returns; RP_E_ARG for another size; RP_E_UNSUPPORTED where a text sets a field that the
 *          caller's rp_term lacks. */
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

/* Write a term as rp_term_parse reads it, every parameter with its value and no array:
 * "t5,buckets=32,max_distance=128,…".
 *
 * Shapes   text has room for `size` bytes; 1024 are enough for any term.
 * Edges    decimal numbers have a point or an exponent, and the fewest digits that read back as the same double.
 * Returns  RP_OK; RP_E_ARG; RP_E_RANGE where text is too small, or a parameter has no such value. */
static inline rp_status rp_term_print(const rp_term *term, char *text, size_t size)
{
    return rp_term_print_sized(term, sizeof *term, text, size);
}

/* Sizes that a term leaves open (0: width and width2 of FIRE, width and extent of BAND, span of DEBERTA) from the
 * shapes of its arrays, of which there are RP_MAX_ARRAYS; data == NULL where absent. What no array tells stays open.
 * Returns  RP_OK; RP_E_ARG; RP_E_SHAPE where the array that tells a size has too few axes, or none of that length. */
static inline rp_status rp_term_sizes(rp_term *term, const rp_array *arrays)
{
    return rp_term_sizes_sized(term, sizeof *term, arrays);
}

/* The bucket of an offset delta = key - query, the buckets of T5 bit for bit with RP_STRATEGY_LOG.
 * Edges    bidirectional = 0: every key after the query falls in bucket 0. Any int64 offset is allowed.
 * Returns  the bucket; -1, with rp_last_error set, for parameters out of range (see rp_term).
 * Source   Raffel 2020, section 2.1; the logarithm in f32 as in its public implementations. */
RP_API int64_t rp_bucket(int64_t delta, int64_t buckets, int64_t max_distance, int32_t bidirectional,
                         rp_strategy strategy);

/* RoPE's frequencies: pair c rotates by position * frequency[c], and cosine and sine are multiplied by *factor.
 *
 * Shapes   frequency [dim/2]; short_factor and long_factor [dim/2], read by LONGROPE only
 * term     a ROPE term with dim resolved; longest is the largest position + 1 of queries and keys, which DYNAMIC and
 *          LONGROPE ask
 * Returns  RP_OK, RP_E_ARG, RP_E_RANGE.
 * Source   Su 2021; Peng 2023 (YaRN); Llama 3.1; Ding 2024 (LongRoPE), each as in Hugging Face's modeling_rope_utils.
 *          */
static inline rp_status rp_rope_frequencies(const rp_term *term, double longest, const double *short_factor,
                                            const double *long_factor, double *frequency, double *factor)
{
    return rp_rope_frequencies_sized(term, sizeof *term, longest, short_factor, long_factor, frequency, factor);
}

/* The slope of head h (0 … heads-1) of ALiBi: 2^(-8(h+1)/n) for n = heads a power of two; otherwise those of the next
 * lower power of two, then every other one of the next higher. NaN for a head out of range.
 * Source   Press 2022, section 3, and its published code for other numbers of heads. */
RP_API double rp_alibi_slope(int64_t h, int64_t heads);

#endif
