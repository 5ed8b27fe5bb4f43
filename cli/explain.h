/* explain.h -- what the files of `relpos explain` share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_EXPLAIN_H
#define RELPOS_EXPLAIN_H

#include "lab.h"

enum { EXPLAIN_TOKEN = 64, EXPLAIN_BANDS = 9 }; /* bytes of a name; bands of distance */

/* What the command line asks for. */
typedef struct explain_request {
    cli_problem problem;
    const char *input, *out, *model, *text;
    int64_t query, head, batch, layer, word; /* head, layer, word: -1 where not given */
    bool all, brief, no_bias, json;
    bool settings, numbers; /* terms, masks or scale were given; --query or --batch were */
} explain_request;

/* A word of the text that a model reads: the bytes [from, to), the blanks before it among them. */
typedef struct explain_word {
    int64_t from, to;
    char name[EXPLAIN_TOKEN];
} explain_word;

/* The numbers that are explained, and who owns them. */
typedef struct explain_source {
    rp_tensors t;
    rp_plan *plan, *plain;        /* as asked for, and without any position term */
    char (*token)[EXPLAIN_TOKEN]; /* [Lk], safe to print */
    const char *note;             /* said first; "" for none */
    io_set in, made;
    double *memory;
    lab_look *look; /* a model, which owns what t points to; and its text by words */
    explain_word *word;
    int64_t n_words;
} explain_source;

/* One row; plain and plain_score are those of attention without position terms. Freed as row.raw. */
typedef struct explain_trace {
    rp_row row;
    double *plain, *difference, *plain_score;
} explain_trace;

/* A row by words: the weights of content alone, of position alone (NaN where rope turns the products themselves) and of both;
 * and their spread. Freed as content. */
typedef struct explain_split {
    double *content, *position, *both;
    lab_spread spread;
} explain_split;

/* Where the weight of one head goes, by distance d = |key - query|: band 0 is d = 0, band n is 2^(n-1) <= d < 2^n, and the
 * last has no end. Both rows sum to 1. */
typedef struct explain_share {
    double plain[EXPLAIN_BANDS], with[EXPLAIN_BANDS];
    bool there[EXPLAIN_BANDS]; /* some pair is as far apart */
    bool known;
} explain_share;

static inline int64_t explain_band_from(int band)
{
    return band ? (int64_t)1 << (band - 1) : 0;
}

static inline bool explain_turned(const rp_desc *d)
{
    bool turned = false;
    for (int32_t n = 0; n < d->n_terms; n++)
        turned |= d->terms[n].kind == RP_TERM_ROPE;
    return turned;
}

/* explain_source.c: numbers from a file, a sentence or the worked example. Each sets desc too. An exit code. */
int explain_from_file(explain_request *r, explain_source *s);
int explain_from_sentence(explain_request *r, explain_source *s, const char **args, int n_args);
int explain_from_example(explain_request *r, explain_source *s);

/* explain_model.c: the attention of a model on a text. Exit codes. */
int explain_from_model(explain_request *r, explain_source *s);
void explain_model_end(explain_source *s);
int explain_by_words(const explain_request *r, const explain_source *s, const explain_trace *t, explain_split *split);
int explain_heads(explain_request *r, explain_source *s); /* a table of all heads, which r->head goes through */

/* cmd_explain.c: the numbers. Exit codes. */
int explain_no_memory(void);
int explain_range(const char *option, int64_t at, int64_t n);
void explain_json_number(double x);
double explain_scale(const rp_desc *d);
int explain_look(const explain_request *r, const explain_source *s, int64_t query, explain_trace *t);
/* All queries of the head: the shares and, if not NULL, their weights [Lq, Lk], -INFINITY where masked. */
int explain_all(const explain_request *r, const explain_source *s, explain_share *share, double *plain, double *with);

/* explain_text.c: the text; share is computed where it is not yet known. */
int explain_print(const explain_request *r, const explain_source *s, const explain_trace *t, explain_share *share);
void explain_heading(const char *text);
const char *explain_cut(char buf[EXPLAIN_TOKEN], const char *name, int most);
/* Queries share the names of the keys where both count the same words; buf is for a number. */
const char *explain_query_name(const explain_request *r, const explain_source *s, int64_t i, char buf[EXPLAIN_TOKEN]);
/* The terms as they were written, or by name alone: "t5 + rope". */
const char *explain_terms(const explain_request *r, bool names, char *buf, size_t size);

#endif
