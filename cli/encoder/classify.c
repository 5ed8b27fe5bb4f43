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
            cli_json_string(stdout, rp_encoder_label(e->model, k));
            fputs(": ", stdout);
        } else
            printf("%s\t", rp_encoder_label(e->model, k));
        cli_json_number(stdout, "%.6f", (double)scores[k]);
    }
    puts(r->json ? "}" : "");
    return flushed();
}

static int prepare_labels(request *r)
{
    r->encoder.width = rp_encoder_about(r->encoder.model)->labels;
    return r->encoder.width > 0 ? CLI_OK
                                : cli_error(CLI_FAILED, "classify: the model has no classification head (its "
                                                        "config.json names no class …ForSequenceClassification)");
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
    return code >= 0 ? code : run_request(&r, args, n_args, prepare_labels, finish_labels);
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
    enum { SOME = 64 };
    rp_encoder_text pairs[SOME];
    rp_status status = RP_OK;
    for (int64_t k = 0; k < n && status == RP_OK; k += SOME) {
        const int64_t some = n - k < SOME ? n - k : SOME;
        for (int64_t x = 0; x < some; x++)
            pairs[x] = (rp_encoder_text){r->query, -1, texts[k + x].text, texts[k + x].bytes};
        status = rp_encoder_rerank(e->model, some, pairs, out + k, progress, context);
    }
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
            fputs(r->kept[k].text, stdout);
        puts(r->json ? "}" : "");
    }
    return flushed();
}

static int prepare_scores(request *r)
{
    r->encoder.width = 1;
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
    .run = run_rerank,
};
