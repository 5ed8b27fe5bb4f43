/* explain.h -- types and functions shared by the files of `relpos explain`.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_EXPLAIN_H
#define RELPOS_EXPLAIN_H

#include "lab/cli/lab.h"

enum { EXPLAIN_TOKEN = 64, EXPLAIN_BANDS = 9 }; /* bytes of a token's name; number of distance bands */

/* The options of the command line. */
typedef struct explain_request {
    cli_problem problem;
    const char *input, *out, *model, *text;
    int64_t query, head, batch, layer, word; /* head, layer, word: -1 if not given */
    bool all, brief, no_bias, json, outputs;
    bool settings, numbers; /* terms, masks or scale were given; --query or --batch was given */
} explain_request;

/* A word of a model's text: the bytes [from, to), which include the blanks before the word. */
typedef struct explain_word {
    int64_t from, to;
    char name[EXPLAIN_TOKEN];
} explain_word;

/* The attention to explain, and its memory. */
typedef struct explain_source {
    rp_tensors t;
    rp_plan *plan, *plain;              /* as requested; without position terms */
    char (*token)[EXPLAIN_TOKEN];       /* [Lk] names of the keys, safe to print */
    char (*query_token)[EXPLAIN_TOKEN]; /* [Lq] names of the queries; NULL: queries and keys are the same tokens */
    const char *note;                   /* printed first; "": none */
    char place[64];                     /* printed before "head" in titles, such as "layer 1, " */
    const double *bucket;               /* [Lk] bucket of each key for the query; NULL: not shown */
    bool show_bands;                    /* show the weight by distance even without --brief */
    bool unordered;                     /* queries and keys are different sequences: there is no distance */
    io_set in, made;
    double *memory;
    lab_inspection *look; /* with --model: the model, which owns the arrays of t */
    explain_word *word;   /* [n_words] with --model: words of its text */
    int64_t n_words;
} explain_source;

/* The numbers of one query, with position terms (row) and without them (plain: weights, plain_score: scores). Free
 * row.raw, which owns the memory of all arrays, and part. */
typedef struct explain_trace {
    rp_row row;
    double *plain, *difference, *plain_score; /* difference: weights with terms minus weights without */
    rp_part *part; /* [n_parts] summands of the scores and the output; NULL before explain_split */
    int32_t n_parts;
} explain_trace;

/* Weights of a query by words: of content only, of position only, and of both. Position is NaN with rope, which
 * rotates q and k and adds no scores. Free content, which owns the memory of all three. */
typedef struct explain_content {
    double *content, *position, *both; /* [n_words] */
    lab_spread spread;                 /* of the scores */
} explain_content;

/* Weight of one head by distance d = |key - query|, as fractions that sum to 1, without the terms (plain) and with
 * them. Band 0 is d = 0, band n is 2^(n-1) <= d < 2^n, and the last band has no upper end. */
typedef struct explain_bands {
    double plain[EXPLAIN_BANDS], with[EXPLAIN_BANDS];
    bool has_pairs[EXPLAIN_BANDS]; /* at least one pair has such a distance */
    int64_t pairs[2]; /* of all heads: pairs that masks allow; pairs whose scores a call computes; 0: not counted */
    bool known;       /* the fractions have been computed */
} explain_bands;

/* Return the smallest distance of a band. */
static inline int64_t explain_band_from(int band)
{
    return band ? (int64_t)1 << (band - 1) : 0;
}

/* Return true if a term rotates q and k, as rope does. */
static inline bool explain_rotates(const rp_desc *d)
{
    bool rotates = false;
    for (int32_t n = 0; n < d->n_terms; n++)
        rotates |= rp_term_role(d->terms[n].kind) == RP_ROLE_ROTATION;
    return rotates;
}

/* ---- The functions by file. Each file calls only files above it. */

/* ---- numbers.c */

/* Print that memory ran out, and return CLI_FAILED. */
int explain_no_memory(void);
/* Check that the value of an option is below n. Return CLI_OK, or CLI_USAGE after printing. */
int explain_range(const char *option, int64_t at, int64_t n);
/* Return the scale of the scores, with the default resolved. */
double explain_scale(const rp_desc *d);
/* Create the plans of the request, in place of the current plans of the source. Return an exit code. */
int explain_plans(const explain_request *r, explain_source *s);
/* Compute the numbers of one query. Return an exit code. */
int explain_look(const explain_request *r, const explain_source *s, int64_t query, explain_trace *t);
/* Set the parts of query r->query in *t. Return an exit code. */
int explain_split(const explain_request *r, const explain_source *s, explain_trace *t);
/* Return the first part of a kind; NULL if there is none. */
const rp_part *explain_part(const explain_trace *t, rp_part_kind kind);
/* Sum the weights of all queries of the head by distance. If `plain` is not NULL, also set the weights without and
 * with terms [Lq, Lk], -INFINITY where masked. Return an exit code. */
int explain_all(const explain_request *r, const explain_source *s, explain_bands *bands, double *plain, double *with);

/* ---- labels.c */

/* Copy a name to `buf`, cut to max_columns columns of the terminal. Return `buf`. */
const char *explain_cut(char buf[EXPLAIN_TOKEN], const char *name, int max_columns);
/* Write x with four decimals to `buf`, with "+" for positive numbers if `sign`. Return the text. */
const char *explain_number(char buf[40], double x, bool sign);
/* Print a number as JSON: null if it is not finite. */
void explain_json_number(double x);
/* Print a heading, bold if the terminal has colours. */
void explain_heading(const char *text);
/* Return the name of query i: the query's name, else the name of the key at the same position, else this position as
 * a number in `buf`. */
const char *explain_query_name(const explain_request *r, const explain_source *s, int64_t i, char buf[EXPLAIN_TOKEN]);
/* Write the terms as the user wrote them, or with `names` only their names, such as "t5 + rope", to `buf`. Return
 * `buf`. */
const char *explain_terms(const explain_request *r, bool names, char *buf, size_t size);

/* ---- source.c: set the description and the arrays from a file, a sentence or the worked example. Return an exit
 * code. */
int explain_from_file(explain_request *r, explain_source *s);
int explain_from_sentence(explain_request *r, explain_source *s, const char **args, int n_args);
int explain_from_example(explain_request *r, explain_source *s);

/* ---- trained_model.c: the attention of a model on a text. */

/* Run a model on a text, and set the description and the arrays to its attention. Return an exit code. */
int explain_from_model(explain_request *r, explain_source *s);
/* Free the model and its words. */
void explain_model_end(explain_source *s);
/* Compute the weights of a query by words. Return an exit code. */
int explain_by_words(const explain_request *r, const explain_source *s, const explain_trace *t, explain_content *split);
/* Print a table of all heads. r->head is set to each head in turn. Return an exit code. */
int explain_heads(explain_request *r, explain_source *s);

/* ---- outputs.c */

/* Compute the outputs of all queries of the head, [Lq, Dv]. Return an exit code; the caller frees *out in any case. */
int explain_outputs(const explain_request *r, const explain_source *s, double **out);
void explain_print_output(const explain_request *r, const char *label, const char *query, const double *out);
void explain_print_outputs(const explain_request *r, const explain_source *s, const double *out);
void explain_json_outputs(const explain_request *r, const double *out);

/* ---- print.c */

/* Print the text of relpos explain. Compute *bands first if they are not known. Return an exit code. */
int explain_print(const explain_request *r, const explain_source *s, const explain_trace *t, explain_bands *bands);

/* ---- explain.c */

/* Show a source whose description and tensors are set. Return an exit code. */
int explain_show(explain_request *r, explain_source *s);
/* Check that a path has the suffix of a picture. Return an exit code. */
int explain_check_output(const char *path);

#endif
