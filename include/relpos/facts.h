/* facts.h -- facts about each position term, for programs that generate something for every term: command-line options,
 * classes of a binding, pages, tests. relpos.h does not include this file.
 *
 * The structs below belong to the library and stay valid while it is loaded. Later versions may add fields at their
 * ends: read them through the returned pointers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_FACTS_H
#define RELPOS_FACTS_H

#include "relpos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------- facts: position terms described */

/* Where a term enters the computation. The role determines its command-line option and its keyword in Python. */
typedef enum rp_role {
    RP_ROLE_BIAS = 0,     /* added to the score after the softcap: --bias, any number of them */
    RP_ROLE_PRODUCT = 1,  /* products of q or k with vectors, added before the softcap: at most one */
    RP_ROLE_VALUE = 2,    /* vectors added to the values: at most one */
    RP_ROLE_ROTATION = 3, /* rotates q and k: at most one */
    RP_ROLE_SINK = 4      /* a logit added to the denominator of each row: at most one */
} rp_role;

/* The type of a parameter, and its syntax. */
typedef enum rp_param_type {
    RP_PARAM_INT = 0,    /* int64_t: "32" */
    RP_PARAM_REAL = 1,   /* double: "0.3" */
    RP_PARAM_FLAG = 2,   /* int32_t: "0" or "1" */
    RP_PARAM_SIGN = 3,   /* int32_t: "1" or "-1" */
    RP_PARAM_CHOICE = 4, /* an enumeration, written by name */
    RP_PARAM_GRID = 5    /* two int64_t, rows and columns: "7x7" */
} rp_param_type;

/* A parameter of a term. */
typedef struct rp_param {
    const char *key;            /* name before "=" in the syntax */
    rp_param_type type;         /* type and syntax of the value */
    size_t offset;              /* offset of its field in rp_term */
    const char *field;          /* name of its field in rp_term; for a grid "grid_h grid_w" */
    int32_t required;           /* 1: the text of a term must give it */
    const char *const *choices; /* CHOICE: names in the order of the enumeration, then NULL */
    double value;               /* default; CHOICE: number of the choice */
    double min;                 /* smallest value; min = max = 0: only the limits of the type */
    double max;                 /* largest value */
    const char *unset;          /* what the default 0 stands for, such as "Dk"; NULL: 0 is an ordinary value */
    const char *meaning;        /* description in a few words */
    int32_t above_min;          /* 1: the value must exceed min, even if min and max are both 0 */
} rp_param;

/* The contents of an array. */
typedef enum rp_array_use {
    RP_USE_LEARNED = 0,   /* learned values, which have gradients */
    RP_USE_CONSTANT = 1,  /* values without gradients */
    RP_USE_POSITIONS = 2, /* positions of queries or keys, integer or real */
    RP_USE_TRUTH = 3,     /* a mask of positions: 0 = no position */
    RP_USE_INDEX = 4      /* indices of entries, integers of at least 0 and below parameter draw.over */
} rp_array_use;

/* When an array must be present. */
typedef enum rp_presence {
    RP_NEEDED = 0,      /* always */
    RP_CONDITIONAL = 1, /* if its shape is not "none" */
    RP_OPTIONAL = 2,    /* optional; without it, its part of the term is omitted */
    RP_REPLACES = 3     /* optional; it replaces default values, such as the positions i and j */
} rp_presence;

/* A rule for the values of an array. n is the length of its last axis, m of the axis before it. */
typedef enum rp_rule {
    RP_RULE_NORMAL = 0,      /* normal with standard deviation a; a = 0: 1 for a sample, 0.02 for training */
    RP_RULE_UNIFORM = 1,     /* uniform from a to b */
    RP_RULE_NEGATIVE = 2,    /* -a times the absolute value of a normal variable */
    RP_RULE_NORMAL_FAN = 3,  /* normal with standard deviation 1/sqrt(n) */
    RP_RULE_FACTOR = 4,      /* normal / n^(1/4), n = parameter `over`: a sum of n products of two has variance 1 */
    RP_RULE_UNIFORM_FAN = 5, /* uniform from -1/sqrt(a) to 1/sqrt(a); a = 0 means n */
    RP_RULE_XAVIER = 6,      /* uniform from -x to x, x = sqrt(6 / (n + m)); Glorot, Bengio 2010 */
    RP_RULE_ZERO = 7,        /* zeros */
    RP_RULE_SLOPES = 8,      /* the rp_alibi_slope of each head */
    RP_RULE_SINUSOIDS = 9,   /* training: a learned matrix times the sinusoids of each offset; [H?, Lq+Lk-1, Dk] */
    RP_RULE_PROJECTED = 10   /* training: a learned projection of the token of each query; [B, H, Lq, n] */
} rp_rule;

/* A rule and its parameters. */
typedef struct rp_values {
    rp_rule rule;     /* the rule */
    double a;         /* parameter a of the rule */
    double b;         /* parameter b of the rule */
    const char *over; /* parameter of RP_RULE_FACTOR and RP_USE_INDEX */
} rp_values;

/* An array of a term.
 *
 * Shapes   `shape` has the form "[H, left+right+1]": sums, differences and products of integers, the letters B H Lq Lk
 *          Dk Dv, Hk for the heads of k, L for Lq = Lk, and parameters. The axes H and Hk may have length 1. An axis
 *          with a question mark may have length 1, or be omitted together with the axes before it. "width2 ? [width2,
 *          width] : [H, width]" is the first shape if the parameter is not 0, else the second; "none" means no
 *          array. */
typedef struct rp_array_facts {
    const char *name;     /* name, such as "table" */
    rp_array_use use;     /* contents */
    rp_presence presence; /* when it must be present */
    const char *shape;    /* shape, such as "[buckets, H]" */
    const char *shows;    /* what a row of a table represents, as a label in pictures: "bucket"; NULL: not a table */
    rp_values draw;       /* random values for tests, which give biases of order one */
    rp_values start;      /* initial values for training */
    double min;           /* smallest value that training allows; 0: no bound */
} rp_array_facts;

#define RP_MAX_SAMPLES 8 /* largest number of samples of a term */

/* Facts about a term, in addition to its name, syntax, source, parameters and arrays. */
typedef struct rp_term_facts {
    const char *formula;    /* one line: what it adds to the score, or what it does in its role */
    const char *about;      /* help of its option, in a few words */
    const char *class_name; /* name of its class in Python; NULL: the term's name, capitalized */
    const char *shown;      /* format in `relpos explain` (src/terms/scheme.h); NULL: as the user wrote it */
    const char *samples[RP_MAX_SAMPLES]; /* problems for tests: "left=5,right=9"; the most usual first */
    const char *bench[2];                /* problems for benchmarks */
} rp_term_facts;

/* Return the facts about a kind, or NULL for an unknown kind. */
RP_API const rp_term_facts *rp_term_about(rp_term_kind kind);

/* Return parameter number `index`, 0 or more, of a kind, in the order of rp_term_print, or NULL past the last. */
RP_API const rp_param *rp_term_param(rp_term_kind kind, int index);

/* Return the value of a parameter that is not REAL. For CHOICE it is the number of the choice. For GRID, column 0 is
 * the number of rows and column 1 the number of columns. */
static inline int64_t rp_param_integer(const rp_term *term, const rp_param *p, int column)
{
    const void *field = (const char *)term + p->offset + (column ? sizeof(int64_t) : 0);
    return p->type == RP_PARAM_INT || p->type == RP_PARAM_GRID ? *(const int64_t *)field : *(const int32_t *)field;
}

/* Return the value of a parameter of any type; column as in rp_param_integer. */
static inline double rp_param_number(const rp_term *term, const rp_param *p, int column)
{
    if (p->type == RP_PARAM_REAL)
        return *(const double *)(const void *)((const char *)term + p->offset);
    return (double)rp_param_integer(term, p, column);
}

/* Return array number `index`, 0 or more, of a kind, in the order of rp_tensors.term, or NULL past the last. */
RP_API const rp_array_facts *rp_term_array_about(rp_term_kind kind, int index);

/* Return the role of a kind; RP_ROLE_BIAS for an unknown kind. */
RP_API rp_role rp_term_role(rp_term_kind kind);

/* Return 1 if the term masks the keys after the query. */
RP_API int rp_term_is_causal(rp_term_kind kind);

/* Return 1 if the elements of array 0 are the biases, as in DENSE. Random values are then not a meaningful example. */
RP_API int rp_term_is_array(rp_term_kind kind);

/* Return 1 if the term has one array, whose shape determines all parameters. Its option then accepts only the name of
 * the array, as in --sink NAME. */
RP_API int rp_term_takes_name(rp_term_kind kind);

/* Write the option of a term, such as "--bias alibi[,slopes=NAME]" or "--sink NAME". text may be NULL if size is 0.
 * Returns  the length without the final 0, of which at most size - 1 bytes are written; 0 for an unknown kind. */
RP_API size_t rp_term_option(rp_term_kind kind, char *text, size_t size);

/* Set sizes that are still 0 after rp_term_sizes to usual values for len_k keys, 1 or more. term_size is as in
 * rp_term_parse_sized.
 * Returns  as rp_term_usual_sizes; also RP_E_UNSUPPORTED if the caller's rp_term does not have the field of a size. */
RP_API rp_status rp_term_usual_sizes_sized(rp_term *term, size_t term_size, int64_t len_k);

/* Set sizes as rp_term_usual_sizes_sized does.
 * Returns  RP_OK; RP_E_ARG for a NULL pointer or an unknown kind. */
static inline rp_status rp_term_usual_sizes(rp_term *term, int64_t len_k)
{
    return rp_term_usual_sizes_sized(term, sizeof *term, len_k);
}

/* Write all facts about a kind as one JSON object without line breaks. text may be NULL if size is 0.
 * Returns  the length without the final 0, of which at most size - 1 bytes are written; 0 for an unknown kind. */
RP_API size_t rp_term_json(rp_term_kind kind, char *text, size_t size);

/* Return one line that describes an error in a term's definition (src/terms/scheme.h), or NULL if there is none. */
RP_API const char *rp_term_fault(rp_term_kind kind);

#ifdef __cplusplus
}
#endif
#endif
