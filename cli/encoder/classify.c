/* classify.c -- relpos classify and relpos rerank: print labels or scores of texts and of pairs of texts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/encoder/encoder.h"
#include "cli/team.h"
#include <stdlib.h>
#include <string.h>

enum { JSON = ENCODER_OWN, ALL, PAIRS, QUERY, TOP };

typedef struct scored {
    float score;
    int64_t number; /* of the text, from 1 */
    char *text;
} scored;

typedef struct request {
    cli_encoder encoder;
    bool json, all;
    char **labels;     /* [encoder.width]: different names for all labels */
    const char *query; /* NULL: the records are pairs */
    int64_t top;       /* 0: all */
    scored *kept;      /* [capacity]: with a query, all texts */
    int64_t n, capacity;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case JSON: r->json = true; return CLI_OK;
    case ALL: r->all = true; return CLI_OK;
    case PAIRS: r->encoder.in.pairs = true; return CLI_OK;
    case QUERY: r->query = value; return CLI_OK;
    case TOP: return cli_integer("--top", value, 1, INT32_MAX, &r->top);
    default: return cli_encoder_option(&r->encoder, key, value);
    }
}

/* Run a command whose options were read. */
static int run_request(request *r, const char *const *args, int n_args, int (*prepare)(request *r),
                       int (*finish)(request *r))
{
    cli_encoder *e = &r->encoder;
    e->context = r;
    e->in.pairs = e->in.pairs || e->in.pair != NULL;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "%s: no model was given (write relpos %s DIR texts.txt)", e->command, e->command);
    int code = cli_encoder_begin(e, args[0], args[1], NULL);
    if (code == CLI_OK)
        code = prepare(r);
    if (code == CLI_OK)
        code = cli_encoder_run(e);
    if (code == CLI_OK && cli_team_rank() == 0)
        code = finish(r);
    return cli_encoder_end(e, code);
}

/* Report that the reader has closed the output. */
static int flushed(void)
{
    return cli_flush(stdout) ? CLI_OK : CLI_FAILED;
}

/* ------------------------------------------------------------------------------------------------ classify */

static const cli_option classify_options[] = {
    {"all", ALL, NULL, "print all labels, not only the one with the highest score"},
    {"json", JSON, NULL, "print one JSON object for each text"},
    {"pairs", PAIRS, NULL, "each record has two texts, such as premise and hypothesis; lines have a tab between them"},
    ENCODER_PAIR_OPTION,
    ENCODER_OPTIONS,
    {0},
};

static rp_status compute_labels(const cli_encoder *e, int64_t n, const rp_encoder_text *texts, float *out,
                                rp_progress *progress, void *context)
{
    return rp_encoder_classify(e->model, n, texts, out, progress, context);
}

static int take_labels(cli_encoder *e, const rp_encoder_text *text, const float *scores)
{
    const request *r = e->context;
    int64_t best = 0;
    (void)text;
    for (int64_t k = 1; k < e->width; k++)
        best = scores[k] > scores[best] ? k : best;
    for (int64_t k = r->all ? 0 : best; k < (r->all ? e->width : best + 1); k++) {
        const char *between = k == 0 || !r->all ? "" : r->json ? ", " : "\t";
        fputs(r->json && between[0] == 0 ? "{" : between, stdout);
        if (r->json) {
            cli_json_string(stdout, r->labels[k]);
            fputs(": ", stdout);
        } else {
            cli_put_text(stdout, r->labels[k], (int64_t)strlen(r->labels[k]));
            putchar('\t');
        }
        cli_json_number(stdout, "%.6f", (double)scores[k]);
    }
    puts(r->json ? "}" : "");
    return flushed();
}

/* A label, for sorting. */
typedef struct named {
    const char *name;
    int64_t k;
} named;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* Return the first of two labels with equal names, from `from` on, in sorted order; NULL: there is none. */
static const named *find_equal(named *all, int64_t n, int64_t from)
{
    for (int64_t k = from; k + 1 < n; k++)
        if (strcmp(all[k].name, all[k + 1].name) == 0)
            return &all[k];
    return NULL;
}

/* Name label k of the output: if several labels have the name, its number follows. */
static bool name_label(request *r, int64_t k, bool numbered)
{
    const char *name = rp_encoder_label(r->encoder.model, k);
    const size_t size = strlen(name) + 24;
    char *made = malloc(size);
    if (made != NULL)
        snprintf(made, size, numbered ? "%s#%lld" : "%s", name, (long long)k);
    free(r->labels[k]);
    r->labels[k] = made;
    return made != NULL;
}

static int name_labels(request *r, named *all)
{
    const int64_t n = r->encoder.width;
    char safe[160];
    bool named_all = r->labels != NULL && all != NULL;
    for (int64_t k = 0; k < n && named_all; k++) {
        named_all = name_label(r, k, false);
        all[k] = (named){rp_encoder_label(r->encoder.model, k), k};
    }
    if (named_all)
        qsort(all, (size_t)n, sizeof *all, by_name);
    for (const named *at = all; named_all && (at = find_equal(all, n, at - all)) != NULL; at++)
        named_all = name_label(r, at[0].k, true) && name_label(r, at[1].k, true);
    if (!named_all)
        return cli_error(CLI_FAILED, "classify: out of memory for the names of %lld labels (close other programs)",
                         (long long)n);
    for (int64_t k = 0; k < n; k++)
        all[k] = (named){r->labels[k], k};
    qsort(all, (size_t)n, sizeof *all, by_name);
    const named *equal = find_equal(all, n, 0);
    return equal == NULL ? CLI_OK
                         : cli_error(CLI_FAILED,
                                     "classify: two labels of id2label would have the name \"%s\" (rename one in "
                                     "config.json)",
                                     io_safe(safe, sizeof safe, equal->name));
}

static int prepare_labels(request *r)
{
    if (rp_encoder_classify(r->encoder.model, 0, NULL, NULL, NULL, NULL) != RP_OK)
        return cli_encoder_refused(&r->encoder);
    r->encoder.width = rp_encoder_about(r->encoder.model)->labels;
    r->labels = calloc((size_t)r->encoder.width, sizeof *r->labels);
    named *all = calloc((size_t)r->encoder.width, sizeof *all);
    const int code = name_labels(r, all);
    free(all);
    return code;
}

static int finish_labels(request *r)
{
    (void)r;
    return CLI_OK;
}

static int classify_in_team(const cli_command *self, int argc, char **argv)
{
    request r = {
        .encoder = {
            .command = self->name, .compute = compute_labels, .take = take_labels, .progress = {.what = self->name}}};
    const char *args[2] = {NULL, NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code < 0)
        code = run_request(&r, args, n_args, prepare_labels, finish_labels);
    for (int64_t k = 0; r.labels != NULL && k < r.encoder.width; k++)
        free(r.labels[k]);
    free(r.labels);
    return code;
}

static int run_classify(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, classify_in_team);
}

const cli_command cmd_classify = {
    .name = "classify",
    .summary = "print the label of each text, with an encoder for classification",
    .usage = "DIR|FILE [TEXTS] [options]      without TEXTS: lines of standard input",
    .example = "  echo 'I liked it.' | relpos classify twitter-roberta-base-sentiment\n"
               "  relpos classify nli-deberta-v3 pairs.tsv --column premise --pair hypothesis --all\n",
    .options = classify_options,
    .shared = true,
    .run = run_classify,
};

/* ------------------------------------------------------------------------------------------------ rerank */

static const cli_option rerank_options[] = {
    {"query", QUERY, "TEXT",
     "score each text with this query, and print the texts, best first; default: each record is a query and a "
     "document"},
    {"top", TOP, "N", "with --query: print only the best N texts"},
    {"json", JSON, NULL, "print one JSON object for each text"},
    ENCODER_PAIR_OPTION,
    ENCODER_OPTIONS,
    {0},
};

static rp_status compute_scores(const cli_encoder *e, int64_t n, const rp_encoder_text *texts, float *out,
                                rp_progress *progress, void *context)
{
    const request *r = e->context;
    if (r->query == NULL)
        return rp_encoder_rerank(e->model, n, texts, out, progress, context);
    rp_encoder_text *pairs = malloc((size_t)(n + 1) * sizeof *pairs);
    rp_status status = pairs != NULL ? RP_OK : RP_E_NOMEM;
    for (int64_t k = 0; k < n && status == RP_OK; k++)
        pairs[k] = (rp_encoder_text){r->query, -1, texts[k].text, texts[k].bytes};
    if (status == RP_OK)
        status = rp_encoder_rerank(e->model, n, pairs, out, progress, context);
    free(pairs);
    return status;
}

/* Keep a text until all are scored. */
static int keep_score(request *r, const rp_encoder_text *text, float score)
{
    if (r->n == r->capacity) {
        const int64_t capacity = r->capacity > 0 ? 2 * r->capacity : 64;
        scored *more = realloc(r->kept, (size_t)capacity * sizeof *more);
        if (more == NULL)
            return cli_error(CLI_FAILED, "rerank: out of memory for the texts (give fewer)");
        r->kept = more;
        r->capacity = capacity;
    }
    char *copy = malloc((size_t)text->bytes + 1);
    if (copy == NULL)
        return cli_error(CLI_FAILED, "rerank: out of memory for the texts (give fewer)");
    memcpy(copy, text->text, (size_t)text->bytes);
    copy[text->bytes] = 0;
    r->kept[r->n] = (scored){score, r->n + 1, copy};
    r->n++;
    return CLI_OK;
}

static int take_score(cli_encoder *e, const rp_encoder_text *text, const float *score)
{
    request *r = e->context;
    if (r->query != NULL)
        return keep_score(r, text, *score);
    fputs(r->json ? "{\"score\": " : "", stdout);
    cli_json_number(stdout, "%.9g", (double)*score);
    puts(r->json ? "}" : "");
    return flushed();
}

/* Order by score, the highest first; equal scores as in the file. */
static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->number > y->number ? 1 : -1;
}

/* Print the texts in the order of their scores. */
static int finish_scores(request *r)
{
    if (r->n > 1)
        qsort(r->kept, (size_t)r->n, sizeof *r->kept, by_score);
    for (int64_t k = 0; k < r->n && (r->top == 0 || k < r->top); k++) {
        fputs(r->json ? "{\"score\": " : "", stdout);
        cli_json_number(stdout, "%.9g", (double)r->kept[k].score);
        printf(r->json ? ", \"number\": %lld, \"text\": " : "\t%lld\t", (long long)r->kept[k].number);
        if (r->json)
            cli_json_string(stdout, r->kept[k].text);
        else
            cli_put_text(stdout, r->kept[k].text, (int64_t)strlen(r->kept[k].text));
        puts(r->json ? "}" : "");
    }
    return flushed();
}

static int prepare_scores(request *r)
{
    const int64_t labels = rp_encoder_about(r->encoder.model)->labels;
    r->encoder.width = 1;
    if (labels > 1)
        return cli_error(CLI_FAILED, "rerank: the model has %lld labels, but a reranker has one (use relpos classify)",
                         (long long)labels);
    return rp_encoder_rerank(r->encoder.model, 0, NULL, NULL, NULL, NULL) == RP_OK ? CLI_OK
                                                                                   : cli_encoder_refused(&r->encoder);
}

static int rerank_in_team(const cli_command *self, int argc, char **argv)
{
    request r = {
        .encoder = {
            .command = self->name, .compute = compute_scores, .take = take_score, .progress = {.what = self->name}}};
    const char *args[2] = {NULL, NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    if (r.query != NULL && r.encoder.in.pair != NULL)
        return cli_error(CLI_USAGE, "--pair: with --query, each record is one text (remove one of the options)");
    if (r.query == NULL && r.top > 0)
        return cli_error(CLI_USAGE, "--top: it needs --query (scores of pairs are printed in the order of the pairs)");
    r.encoder.in.pairs = r.query == NULL;
    code = r.query != NULL ? cli_check_utf8("--query", 0, r.query, -1) : CLI_OK;
    if (code == CLI_OK)
        code = run_request(&r, args, n_args, prepare_scores, finish_scores);
    for (int64_t k = 0; k < r.n; k++)
        free(r.kept[k].text);
    free(r.kept);
    return code;
}

static int run_rerank(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, rerank_in_team);
}

const cli_command cmd_rerank = {
    .name = "rerank",
    .summary = "score texts for a query, with a cross-encoder",
    .usage = "DIR|FILE [TEXTS] --query TEXT [options]      without TEXTS: lines of standard input",
    .example = "  relpos rerank ms-marco-MiniLM-L6-v2 notes.txt --query 'how do I pay?' --top 5\n"
               "  relpos rerank ms-marco-MiniLM-L6-v2 pairs.jsonl --column query --pair document\n",
    .options = rerank_options,
    .shared = true,
    .run = run_rerank,
};
