/* explain.h -- types and functions shared by the files of `relpos explain`.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_EXPLAIN_H
#define RELPOS_EXPLAIN_H

#include "cli/lab/lab.h"

enum { EXPLAIN_TOKEN = 64, EXPLAIN_BANDS = 9 }; /* max bytes of a token's name; number of distance bands */

/* The command-line options. */
typedef struct explain_request {
    cli_problem problem;
    const char *input, *out, *model, *text;
    int64_t query, head, batch, layer, word; /* head, layer, word: -1 if not given */
    bool all, brief, no_bias, json, outputs;
    bool settings, numbers; /* settings: terms, masks or scale were given; numbers: --query or --batch was given */
} explain_request;

/* A word in a model's text: the bytes [from, to). They include the blanks before the word. */
typedef struct explain_word {
    int64_t from, to;
    char name[EXPLAIN_TOKEN];
} explain_word;

/* The attention to explain, and the memory that it uses. */
typedef struct explain_source {
    rp_tensors t;
    rp_plan *plan, *plain;              /* plan with all terms; plan without position terms */
    char (*token)[EXPLAIN_TOKEN];       /* [Lk] names of the keys, safe to print */
    char (*query_token)[EXPLAIN_TOKEN]; /* [Lq] names of the queries; NULL if queries and keys are the same tokens */
    const char *note;                   /* printed first; "": none */
    char place[64];                     /* printed before "head" in titles, such as "layer 1, " */
    const double *bucket;               /* [Lk] bucket of each key for the query; NULL: not shown */
    bool show_bands;                    /* show the weights by distance even without --brief */
    bool unordered;                     /* queries and keys are different sequences, so distances do not exist */
    io_set in, made;
    double *memory;
    lab_inspection *look; /* with --model: the model, which owns the arrays of t */
    explain_word *word;   /* [n_words] with --model: words of its text */
    int64_t n_words;
} explain_source;

/* The numbers of one query, with position terms (row) and without them (plain: weights, plain_score: scores). To free
 * it, free row.raw, which contains all arrays, and part. */
typedef struct explain_trace {
    rp_row row;
    double *plain, *difference, *plain_score; /* difference: weights with terms minus weights without */
    rp_part *part;                            /* [n_parts] summands of scores and output; NULL before explain_split */
    int32_t n_parts;
} explain_trace;

/* The weights of a query on each word: from content only, from position only, and from both. The position weights are
 * NaN with rope, which rotates q and k and adds nothing to scores. To free it, free content, which contains all three
 * arrays. */
typedef struct explain_content {
    double *content, *position, *both; /* [n_words] */
    lab_spread spread;                 /* variances of the scores */
} explain_content;

/* The weight of one head at each distance d = |key - query|, without the terms (plain) and with them, as fractions that
 * sum to 1. Band 0 is d = 0, band n is 2^(n-1) <= d < 2^n; the last band has no upper limit. */
typedef struct explain_bands {
    double plain[EXPLAIN_BANDS], with[EXPLAIN_BANDS];
    bool has_pairs[EXPLAIN_BANDS]; /* some pair has a distance in this band */
    int64_t pairs[2]; /* over all heads: pairs that masks allow; pairs whose scores a call computes. 0: not counted */
    bool known;       /* true once the fractions have been computed */
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

/* ---- The functions, by file. Each file calls only functions of files above it. */

/* ---- numbers.c */

/* Print that the program is out of memory, and return CLI_FAILED. */
int explain_no_memory(void);
/* Check that the value `at` of an option is below n. Return CLI_OK, or CLI_USAGE after printing. */
int explain_range(const char *option, int64_t at, int64_t n);
/* Return the scale of the scores; if it is the default, compute its value. */
double explain_scale(const rp_desc *d);
/* Create the plans for the request; they replace the current plans of the source. Return an exit code. */
int explain_plans(const explain_request *r, explain_source *s);
/* Compute the numbers of one query. Return an exit code. */
int explain_look(const explain_request *r, const explain_source *s, int64_t query, explain_trace *t);
/* Compute the parts of query r->query and store them in *t. Return an exit code. */
int explain_split(const explain_request *r, const explain_source *s, explain_trace *t);
/* Return the first part of a kind; NULL if there is none. */
const rp_part *explain_part(const explain_trace *t, rp_part_kind kind);
/* Sum the weights of all queries of a head by distance. If `plain` is not NULL, also store the weights without and with
 * terms, [Lq, Lk], -INFINITY where masked. Return an exit code. */
int explain_all(const explain_request *r, const explain_source *s, explain_bands *bands, double *plain, double *with);

/* ---- labels.c */

/* Copy a name to `buf`, cut to max_columns terminal columns. Return `buf`. */
const char *explain_cut(char buf[EXPLAIN_TOKEN], const char *name, int max_columns);
/* Write x with four decimals to `buf`; with `sign`, positive numbers get a "+". Return the text. */
const char *explain_number(char buf[40], double x, bool sign);
/* Print a number as JSON, or null if it is not finite. */
void explain_json_number(double x);
/* Print a heading, bold if the terminal has colours. */
void explain_heading(const char *text);
/* Return the name of query i. If queries have no names, return the name of the key at the same position; if there is
 * none, write the position to `buf`. */
const char *explain_query_name(const explain_request *r, const explain_source *s, int64_t i, char buf[EXPLAIN_TOKEN]);
/* Write the terms to `buf` as the user wrote them; with `names`, write only their names, such as "t5 + rope". Return
 * `buf`. */
const char *explain_terms(const explain_request *r, bool names, char *buf, size_t size);

/* ---- source.c: get the description and the arrays from a file, from a sentence or from the worked example. Return an
 * exit code. */
int explain_from_file(explain_request *r, explain_source *s);
int explain_from_sentence(explain_request *r, explain_source *s, const char **args, int n_args);
int explain_from_example(explain_request *r, explain_source *s);

/* ---- trained_model.c: the attention of a model on a text. */

/* Run a model on a text, and use its attention as description and arrays. Return an exit code. */
int explain_from_model(explain_request *r, explain_source *s);
/* Free the model and its words. */
void explain_model_end(explain_source *s);
/* Compute the weights of a query on each word. Return an exit code. */
int explain_by_words(const explain_request *r, const explain_source *s, const explain_trace *t, explain_content *split);
/* Print a table of all heads, setting r->head to each in turn. Return an exit code. */
int explain_heads(explain_request *r, explain_source *s);

/* ---- outputs.c */

/* Compute the outputs of all queries of the head, [Lq, Dv]. Return an exit code. The caller frees *out even after a
 * failure. */
int explain_outputs(const explain_request *r, const explain_source *s, double **out);
void explain_print_output(const explain_request *r, const char *label, const char *query, const double *out);
void explain_print_outputs(const explain_request *r, const explain_source *s, const double *out);
void explain_json_outputs(const explain_request *r, const double *out);

/* ---- print.c */

/* Print the output of relpos explain as text. Compute *bands first if not yet known. Return an exit code. */
int explain_print(const explain_request *r, const explain_source *s, const explain_trace *t, explain_bands *bands);

/* ---- command.c */

/* Show a source; its description and tensors must be set. Return an exit code. */
int explain_show(explain_request *r, explain_source *s);
/* Check that a path ends in the suffix of a picture format. Return an exit code. */
int explain_check_output(const char *path);

#endif
