/* explain.h -- the types and functions that the files of `relpos explain` share. They see public headers, io, and the laboratory's
 * functions for trained models.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_EXPLAIN_H
#define RELPOS_EXPLAIN_H

#include "cli/lab/lab.h"

enum { EXPLAIN_TOKEN = 64, EXPLAIN_BANDS = 9 }; /* bytes of a name; bands of distance */

/* The options of the command line. */
typedef struct explain_request {
    cli_problem problem;
    const char *input, *out, *model, *text;
    int64_t query, head, batch, layer, word; /* head, layer, word: -1 where not given */
    bool all, brief, no_bias, json, outputs;
    bool settings, numbers; /* terms, masks or scale were given; --query or --batch were */
} explain_request;

/* A word of the text that a model reads: the bytes [from, to), with the blanks before the word. */
typedef struct explain_word {
    int64_t from, to;
    char name[EXPLAIN_TOKEN];
} explain_word;

/* The arrays that are explained, and the memory that holds them. */
typedef struct explain_source {
    rp_tensors t;
    rp_plan *plan, *plain;              /* as asked for, and without any position term */
    char (*token)[EXPLAIN_TOKEN];       /* [Lk], safe to print */
    char (*query_token)[EXPLAIN_TOKEN]; /* [Lq]; NULL: queries are keys */
    const char *note;                   /* printed first; "": none */
    char place[64];                     /* before "head" in titles, such as "layer 1, " */
    const double *bucket;               /* [Lk] of the query, in a table of buckets; NULL: not shown */
    bool shares;                        /* the share of weight by distance is shown without being asked for */
    bool unordered;                     /* keys are another sequence than queries: there is no distance */
    io_set in, made;
    double *memory;
    lab_look *look; /* with --model: the model, which owns the arrays of t, and its text by words */
    explain_word *word;
    int64_t n_words;
} explain_source;

/* One row; plain and plain_score are those of attention without position terms. Freed as row.raw, and parts as part. */
typedef struct explain_trace {
    rp_row row;
    double *plain, *difference, *plain_score;
    rp_part *part; /* [n_parts] what the score and the output are sums of; NULL: explain_split has not been called */
    int32_t n_parts;
} explain_trace;

/* A row by words: the weights of content alone, of position alone (NaN with rope, which rotates q and k and so has no scores of its own) and
 * of both; and the spread of the scores. Freed as content. */
typedef struct explain_content {
    double *content, *position, *both;
    lab_spread spread;
} explain_content;

/* The shares of one head's weight by distance d = |key - query|: band 0 is d = 0, band n is 2^(n-1) <= d < 2^n, and the last band has no
 * upper end. The shares sum to 1, without the terms and with them. */
typedef struct explain_share {
    double plain[EXPLAIN_BANDS], with[EXPLAIN_BANDS];
    bool has_pairs[EXPLAIN_BANDS]; /* some pair has such a distance */
    int64_t pairs[2]; /* of all heads: that masks allow, and whose scores a call computes; 0: not counted */
    bool known;
} explain_share;

static inline int64_t explain_band_from(int band)
{
    return band ? (int64_t)1 << (band - 1) : 0;
}

static inline bool explain_rotates(const rp_desc *d)
{
    bool rotates = false;
    for (int32_t n = 0; n < d->n_terms; n++)
        rotates |= rp_term_role(d->terms[n].kind) == RP_ROLE_ROTATION;
    return rotates;
}

/* source.c: arrays from a file, a sentence or the worked example. Each sets desc too, and returns an exit code. */
int explain_from_file(explain_request *r, explain_source *s);
int explain_from_sentence(explain_request *r, explain_source *s, const char **args, int n_args);
int explain_from_example(explain_request *r, explain_source *s);

/* model.c: the attention of a model on a text. They return exit codes. */
int explain_from_model(explain_request *r, explain_source *s);
void explain_model_end(explain_source *s);
int explain_by_words(const explain_request *r, const explain_source *s, const explain_trace *t, explain_content *split);
int explain_heads(explain_request *r,
                  explain_source *s); /* prints a table of all heads; r->head takes each value in turn */

/* command.c: all that is shown of a source whose desc and tensors are set. */
int explain_show(explain_request *r, explain_source *s);
int explain_check_output(const char *path); /* a name of a picture */
/* Make the plans of the request's attention, in place of those that the source has. */
int explain_plans(const explain_request *r, explain_source *s);
/* The numbers. They return exit codes. */
int explain_no_memory(void);
int explain_range(const char *option, int64_t at, int64_t n);
void explain_json_number(double x);
double explain_scale(const rp_desc *d);
int explain_look(const explain_request *r, const explain_source *s, int64_t query, explain_trace *t);
/* Set the parts of the row of query r->query. */
int explain_split(const explain_request *r, const explain_source *s, explain_trace *t);
/* The first part of a kind; NULL: the row has none. */
const rp_part *explain_part(const explain_trace *t, rp_part_kind kind);
/* For all queries of the head: the shares and, if not NULL, the weights without and with terms [Lq, Lk], -INFINITY where masked. */
int explain_all(const explain_request *r, const explain_source *s, explain_share *share, double *plain, double *with);

/* outputs.c: [Lq, Dv] of the head, which the caller frees on errors too, and how they are printed. Returns an exit code. */
int explain_outputs(const explain_request *r, const explain_source *s, double **out);
void explain_print_output(const explain_request *r, const char *label, const char *query, const double *out);
void explain_print_outputs(const explain_request *r, const explain_source *s, const double *out);
void explain_json_outputs(const explain_request *r, const double *out);

/* text.c: the text; share is computed where it is not yet known. */
int explain_print(const explain_request *r, const explain_source *s, const explain_trace *t, explain_share *share);
void explain_heading(const char *text);
const char *explain_number(char buf[40], double x, bool sign);
const char *explain_cut(char buf[EXPLAIN_TOKEN], const char *name, int max_columns);
/* The name of query i: that of the key at the same position, if there is one, else a number in buf. */
const char *explain_query_name(const explain_request *r, const explain_source *s, int64_t i, char buf[EXPLAIN_TOKEN]);
/* The terms as the user wrote them, or their names alone, such as "t5 + rope". */
const char *explain_terms(const explain_request *r, bool names, char *buf, size_t size);

#endif
