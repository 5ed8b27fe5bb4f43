/* facts.h -- what the library knows of each position term, for programs that make something for every one of them:
 * options of a command line, classes of a binding, pages, tests. relpos.h does not include it.
 *
 * The structs below belong to the library, live as long as it is loaded and grow at their ends: read them through the
 * pointers that the functions return.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_FACTS_H
#define RELPOS_FACTS_H

#include "relpos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------- facts: what is known of terms */

/* Where a term enters the scores, and so which option of the command line and which keyword of Python takes it. */
typedef enum rp_role {
    RP_ROLE_BIAS = 0,     /* added to the score, outside the softcap: --bias; any number of them */
    RP_ROLE_PRODUCT = 1,  /* products of q or k with vectors, inside the softcap: at most one */
    RP_ROLE_VALUE = 2,    /* vectors added to the values: at most one */
    RP_ROLE_ROTATION = 3, /* rotates q and k: at most one */
    RP_ROLE_SINK = 4      /* a logit beside each row: at most one */
} rp_role;

/* How a parameter is written. */
typedef enum rp_param_type {
    RP_PARAM_INT = 0,    /* int64_t: "32" */
    RP_PARAM_REAL = 1,   /* double: "0.3" */
    RP_PARAM_FLAG = 2,   /* int32_t: "0" or "1" */
    RP_PARAM_SIGN = 3,   /* int32_t: "1" or "-1" */
    RP_PARAM_CHOICE = 4, /* an enumeration, by its names */
    RP_PARAM_GRID = 5    /* two int64_t, rows and columns: "7x7" */
} rp_param_type;

/* One parameter. */
typedef struct rp_param {
    const char *key;            /* what the user types before "=" */
    rp_param_type type;         /* how its value is written */
    size_t offset;              /* of its field in rp_term */
    const char *field;          /* the name of that field; a grid has grid_h and grid_w */
    int32_t required;           /* 1: a text must give it */
    const char *const *choices; /* of CHOICE: names in the order of the enumeration, NULL last */
    double value;               /* its default; of CHOICE the number of the choice */
    double min;                 /* bounds of the value in use; both 0: none beside those that its type has */
    double max;                 /* see min */
    const char *unset;          /* what a default of 0 stands for, such as "Dk"; NULL: it means what it says */
    const char *meaning;        /* a few words */
    int32_t above_min;          /* 1: the value must be above min, even if min and max are both 0 */
} rp_param;

/* What an array holds. */
typedef enum rp_array_use {
    RP_USE_LEARNED = 0,   /* learned numbers, which have gradients */
    RP_USE_CONSTANT = 1,  /* numbers without gradients */
    RP_USE_POSITIONS = 2, /* positions of queries or keys, whole or real */
    RP_USE_TRUTH = 3      /* a mask of positions: 0 or not */
} rp_array_use;

/* When an array has to be there. */
typedef enum rp_presence {
    RP_NEEDED = 0,      /* always */
    RP_CONDITIONAL = 1, /* where its shape is not "none" */
    RP_OPTIONAL = 2,    /* without it that part of the term is missing */
    RP_REPLACES = 3     /* it stands in for numbers that the term has without it, such as the positions i and j */
} rp_presence;

/* A rule that makes numbers for an array. n: length of its last axis, m: of the axis before. */
typedef enum rp_rule {
    RP_RULE_NORMAL = 0,      /* normal, of standard deviation a; a = 0: 1 for a sample, 0.02 before training */
    RP_RULE_UNIFORM = 1,     /* uniform from a to b */
    RP_RULE_NEGATIVE = 2,    /* -a times the size of a normal number */
    RP_RULE_NORMAL_FAN = 3,  /* normal, of standard deviation 1/sqrt(n) */
    RP_RULE_FACTOR = 4,      /* normal, so that sums of products of two have variance 1: over parameter `over` */
    RP_RULE_UNIFORM_FAN = 5, /* uniform from -1/sqrt(a) to 1/sqrt(a); a = 0: n */
    RP_RULE_XAVIER = 6,      /* uniform from -x to x, x = sqrt(6 / (n + m)): Glorot, Bengio 2010 */
    RP_RULE_ZERO = 7,        /* zeros */
    RP_RULE_SLOPES = 8,      /* rp_alibi_slope of each head */
    RP_RULE_SINUSOIDS = 9, /* before training: a learned matrix times the sinusoids of each offset; [H?, Lq+Lk-1, Dk] */
    RP_RULE_PROJECTED = 10 /* before training: of each query, a learned projection of its token; [B, H, Lq, n] */
} rp_rule;

/* A rule and its numbers. */
typedef struct rp_values {
    rp_rule rule;     /* how */
    double a;         /* see rp_rule */
    double b;         /* see rp_rule */
    const char *over; /* see RP_RULE_FACTOR */
} rp_values;

/* One array.
 *
 * Shapes   `shape` is written "[H, left+right+1]": sums, differences and products of whole numbers, of the letters B H
 *          Lq Lk Dk Dv, of L for Lq = Lk, and of the parameters. The axis H may be 1; an axis with a question mark may
 *          be 1, or be missing with those before it. "width2 ? [width2, width] : [H, width]" is one shape where the
 *          parameter is not 0 and the other where it is; "none" is no array. */
typedef struct rp_array_facts {
    const char *name;     /* such as "table" */
    rp_array_use use;     /* what it holds */
    rp_presence presence; /* when it has to be there */
    const char *shape;    /* such as "[buckets, H]" */
    const char *shows;    /* of a table whose rows a picture may number: what they are, such as "bucket"; else NULL */
    rp_values draw;       /* random numbers to try the term with: biases of order one */
    rp_values start;      /* first numbers for training */
    double min;           /* training keeps its numbers at this or above; 0: no bound */
} rp_array_facts;

#define RP_MAX_SAMPLES 8 /* texts to try one term with */

/* What is known of a term beside its name, its syntax, its source, its parameters and its arrays. */
typedef struct rp_term_facts {
    const char *formula;    /* one line: what it adds to the score, or to what else its role says */
    const char *about;      /* a few words: the help of its option */
    const char *class_name; /* in Python; NULL: the name with a capital */
    const char *shown;      /* how `relpos explain` prints it, as src/terms/scheme.h says; NULL: as the user wrote it */
    const char *samples[RP_MAX_SAMPLES]; /* "left=5,right=9": what tries it; the first is the usual one; none: "" */
    const char *bench[2];                /* likewise: what benchmarks measure */
} rp_term_facts;

/* What is known of a kind; NULL for no such kind. */
RP_API const rp_term_facts *rp_term_about(rp_term_kind kind);

/* A parameter of a kind, in the order in which texts are printed; NULL past the last. */
RP_API const rp_param *rp_term_param(rp_term_kind kind, int index);

/* The value that a term has for a parameter of its kind, where that is no REAL. Of CHOICE it is the number of the
 * choice; a GRID has its rows in column 0 and its columns in column 1. */
static inline int64_t rp_param_integer(const rp_term *term, const rp_param *p, int column)
{
    const void *field = (const char *)term + p->offset + (column ? sizeof(int64_t) : 0);
    return p->type == RP_PARAM_INT || p->type == RP_PARAM_GRID ? *(const int64_t *)field : *(const int32_t *)field;
}

/* Likewise, of any type. */
static inline double rp_param_number(const rp_term *term, const rp_param *p, int column)
{
    if (p->type == RP_PARAM_REAL)
        return *(const double *)(const void *)((const char *)term + p->offset);
    return (double)rp_param_integer(term, p, column);
}

/* An array of a kind, in the order of rp_tensors.term; NULL past the last. */
RP_API const rp_array_facts *rp_term_array_about(rp_term_kind kind, int index);

/* The role of a kind; RP_ROLE_BIAS for no such kind. */
RP_API rp_role rp_term_role(rp_term_kind kind);

/* 1 where the term makes keys after the query as if masked. */
RP_API int rp_term_is_causal(rp_term_kind kind);

/* 1 where array 0 is the bias itself, so that made-up numbers would show nothing. */
RP_API int rp_term_is_array(rp_term_kind kind);

/* 1 where the term has one array and no parameter: its option takes the name of that array alone, --sink NAME. */
RP_API int rp_term_takes_name(rp_term_kind kind);

/* How a term is written as an option of the program, such as "--bias alibi[,slopes=NAME]" or "--sink NAME". text may be
 * NULL where size is 0.
 * Returns  the bytes that it takes without the final 0, of which at most size - 1 are written; 0 for no such kind. */
RP_API size_t rp_term_option(rp_term_kind kind, char *text, size_t size);

/* Set the sizes that a term leaves open, and that no array told (see rp_term_sizes), to usual ones, for len_k keys.
 * Returns  RP_OK, RP_E_ARG. */
RP_API rp_status rp_term_usual_sizes_sized(rp_term *term, size_t term_size, int64_t len_k);

/* See rp_term_usual_sizes_sized. */
static inline rp_status rp_term_usual_sizes(rp_term *term, int64_t len_k)
{
    return rp_term_usual_sizes_sized(term, sizeof *term, len_k);
}

/* All of this about a kind as one JSON object, without a line break. text may be NULL where size is 0.
 * Returns  the bytes that it takes without the final 0, of which at most size - 1 are written; 0 for no such kind. */
RP_API size_t rp_term_json(rp_term_kind kind, char *text, size_t size);

/* What is wrong with the way a term is described to the library (src/terms/scheme.h), as one line for its author; NULL:
 * nothing. */
RP_API const char *rp_term_fault(rp_term_kind kind);

#ifdef __cplusplus
}
#endif
#endif
