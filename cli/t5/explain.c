/* explain.c -- relpos t5 explain: show the attention of one query in one head: content scores, biases from the table,
 * and weights. The library computes q, k, v and the table; cli/explain prints them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain/explain.h"
#include "cli/t5/t5.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { OUT = 'o', LAYER = T5_OWN, HEAD, PART, QUERY, TARGET, ALL, OUTPUTS, JSON };
enum { WRITTEN = 32 }; /* max tokens of a target that the model writes */

static const cli_option options[] = {
    {"part", PART, "PART",
     "show self-attention of the encoder or decoder, or cross-attention (cross); default encoder"},
    {"layer", LAYER, "N", "show layer N, counted from 0; default 0"},
    {"head", HEAD, "N", "show head N, counted from 0; default 0"},
    {"query", QUERY, "N|TOKEN", "show query N, counted from 0, or the first query that is this token; default 0"},
    {"target", TARGET, "TEXT", "let the decoder read TEXT; default: the model's output, at most 32 tokens"},
    {"all", ALL, NULL, "print every key in order, not only the 12 with the largest weights"},
    {"output", OUT, "FILE", "also draw the head's weights without and with the table: .png or .svg"},
    {"outputs", OUTPUTS, NULL, "also print the head's outputs for all queries"},
    {"json", JSON, NULL, "print one JSON object; NaN and infinity are null"},
    T5_TOKENS_OPTION,
    T5_COMMON_OPTIONS,
    {0},
};

static const char *const parts[] = {"encoder", "decoder", "cross"};

typedef struct request {
    explain_request *e;
    cli_t5_common common;
    const char *query, *target;
    rp_t5_part part;
    int64_t layer;
    /* tokens that were read or generated, and results */
    int32_t *source_tokens, *target_tokens;
    rp_t5_tokens source, to;
    rp_t5_attention *a;
    char *note;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    char safe[64];
    switch (key) {
    case LAYER: return cli_integer("--layer", value, 0, INT64_MAX, &r->layer);
    case HEAD: return cli_integer("--head", value, 0, INT64_MAX, &r->e->head);
    case QUERY: r->query = value; return CLI_OK;
    case TARGET: r->target = value; return CLI_OK;
    case ALL: r->e->all = true; return CLI_OK;
    case OUT: r->e->out = value; return explain_check_output(value);
    case OUTPUTS: r->e->outputs = true; return CLI_OK;
    case JSON: r->e->json = true; return CLI_OK;
    case PART:
        for (int k = 0; k < 3; k++)
            if (strcmp(value, parts[k]) == 0) {
                r->part = (rp_t5_part)k;
                return CLI_OK;
            }
        return cli_error(CLI_USAGE, "--part: the value \"%s\" is unknown (use encoder, decoder or cross)",
                         io_safe(safe, sizeof safe, value));
    default: return cli_t5_common_option(&r->common, key, value);
    }
}

/* ------------------------------------------------------------------------------------------------ tokens */

static int read_text(const request *r, const char *what, const char *text, int32_t **tokens, rp_t5_tokens *to)
{
    char why[128];
    int64_t n;
    if (r->common.tokens) {
        if (!cli_t5_numbers(text, (int64_t)strlen(text), tokens, &n, why))
            return cli_error(CLI_USAGE, "%s: %s (with --tokens, write numbers with spaces between them)", what, why);
    } else if (rp_t5_tokenize(r->common.model, text, -1, tokens, &n) != RP_OK) {
        return cli_error(CLI_FAILED, "%s: %s (use --tokens to give token numbers)", what, rp_t5_last_error());
    }
    *to = (rp_t5_tokens){*tokens, n};
    return n > 0 ? CLI_OK : cli_error(CLI_USAGE, "%s: it has no tokens (give some text)", what);
}

/* Let the model write a target by greedy search. */
static int write_target(request *r)
{
    rp_t5_results *results;
    rp_t5_generation g = cli_t5_greedy(r->common.model);
    g.max_new_tokens = g.max_new_tokens < WRITTEN ? g.max_new_tokens : WRITTEN;
    if (rp_t5_generate(r->common.model, 1, &r->source, &g, &results) != RP_OK)
        return cli_t5_refused("t5 explain");
    const rp_t5_sequence *q = rp_t5_result(results, 0);
    r->target_tokens = malloc((size_t)q->n * sizeof *r->target_tokens);
    if (r->target_tokens != NULL)
        memcpy(r->target_tokens, q->tokens, (size_t)q->n * sizeof *r->target_tokens);
    r->to = (rp_t5_tokens){r->target_tokens, q->n};
    rp_t5_results_free(results);
    return r->target_tokens != NULL ? CLI_OK : explain_no_memory();
}

/* Write the name of a token: the character of a byte token such as <0x64>, otherwise its piece, otherwise its
 * number. */
static void name_token(const request *r, int32_t token, char name[EXPLAIN_TOKEN])
{
    const char *piece = rp_t5_piece(r->common.model, token);
    unsigned byte;
    char end;
    if (piece != NULL && sscanf(piece, "<0x%2x%c", &byte, &end) == 2 && end == '>' && byte > ' ' && byte < 0x7f)
        snprintf(name, EXPLAIN_TOKEN, "%c", (char)byte);
    else if (piece != NULL && *piece != 0)
        io_safe(name, EXPLAIN_TOKEN, piece);
    else
        snprintf(name, EXPLAIN_TOKEN, "%d", (int)token);
}

/* Return token i of the decoder's or encoder's input. */
static int32_t read_token(const request *r, bool decoder, int64_t i)
{
    if (!decoder)
        return r->source.tokens[i];
    return i > 0 ? r->to.tokens[i - 1] : rp_t5_about(r->common.model)->start;
}

static char (*names_of(const request *r, bool decoder, int64_t n))[EXPLAIN_TOKEN]
{
    char(*names)[EXPLAIN_TOKEN] = calloc((size_t)n, sizeof *names);
    for (int64_t i = 0; names != NULL && i < n; i++)
        name_token(r, read_token(r, decoder, i), names[i]);
    return names;
}

/* Find the query that --query names: a number or a token. The "▁" at the beginning of a word may be omitted. */
static int find_query(request *r, const explain_source *s)
{
    static const char mark[] = "\xe2\x96\x81";
    const int64_t n = r->a->len_q;
    char *end, safe[64];
    if (r->query == NULL)
        return CLI_OK;
    errno = 0;
    const long long number = strtoll(r->query, &end, 10);
    if (*r->query != 0 && *end == 0) {
        r->e->query = number;
        return errno == 0 && number >= 0 && number < n
                   ? CLI_OK
                   : cli_error(CLI_USAGE, "--query: %.40s is out of range (0 to %lld, or a token of the text)",
                               r->query, (long long)n - 1);
    }
    char(*names)[EXPLAIN_TOKEN] = s->query_token != NULL ? s->query_token : s->token;
    for (int64_t i = 0; i < n; i++) {
        const char *name = names[i], *piece = rp_t5_piece(r->common.model, read_token(r, r->part != RP_T5_ENCODER, i));
        if (strcmp(name, r->query) == 0 || (piece != NULL && strcmp(piece, r->query) == 0) ||
            (strncmp(name, mark, sizeof mark - 1) == 0 && strcmp(name + sizeof mark - 1, r->query) == 0)) {
            r->e->query = i;
            return CLI_OK;
        }
    }
    return cli_error(
        CLI_USAGE, "--query: no query is the token \"%s\" (give 0 to %lld, or a token; relpos t5 tokenize lists them)",
        io_safe(safe, sizeof safe, r->query), (long long)n - 1);
}

/* ------------------------------------------------------------------------------------------- description of a layer */

static void describe(request *r, explain_source *s)
{
    const rp_t5_attention *a = r->a;
    cli_problem *p = &r->e->problem;
    rp_desc *d = &p->desc;
    const int64_t q[4] = {1, a->heads, a->len_q, a->d_kv}, k[4] = {1, a->heads, a->len_k, a->d_kv};
    const int64_t table[2] = {a->buckets, a->heads};
    const rp_term *terms = d->terms;
    const rp_mask *masks = d->masks;
    *d = rp_desc_init(1, a->heads, a->len_q, a->len_k, a->d_kv);
    d->dim_v = a->d_kv;
    d->dtype = RP_F64;
    d->scale = 1;
    d->terms = terms;
    d->masks = masks;
    s->t.q = rp_array_of(a->q, RP_F64, 4, q);
    s->t.k = rp_array_of(a->k, RP_F64, 4, k);
    s->t.v = rp_array_of(a->v, RP_F64, 4, k);
    if (a->table != NULL) {
        p->terms[0] = rp_term_init(RP_TERM_T5);
        p->terms[0].buckets = a->buckets;
        p->terms[0].max_distance = a->max_distance;
        p->terms[0].bidirectional = a->bidirectional;
        d->n_terms = 1;
        s->t.term[0][0] = rp_array_of(a->table, RP_F32, 2, table);
        snprintf(p->term_text[0], sizeof p->term_text[0], "t5,buckets=%lld,max_distance=%lld,bidirectional=%d",
                 (long long)a->buckets, (long long)a->max_distance, (int)a->bidirectional);
    }
    if (a->causal)
        p->masks[d->n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
    if (a->window >= 0) {
        p->masks[d->n_masks] = rp_mask_init(RP_MASK_WINDOW);
        p->masks[d->n_masks].left = p->masks[d->n_masks].right = a->window;
        d->n_masks++;
    }
    s->show_bands = r->part != RP_T5_CROSS;
    s->unordered = r->part == RP_T5_CROSS;
    snprintf(s->place, sizeof s->place, "%s layer %lld, ", parts[r->part], (long long)r->layer);
}

static int find_buckets(request *r, explain_source *s)
{
    const rp_t5_attention *a = r->a;
    if (a->table == NULL)
        return CLI_OK;
    double *bucket = calloc((size_t)a->len_k, sizeof *bucket);
    if (bucket == NULL)
        return explain_no_memory();
    for (int64_t j = 0; j < a->len_k; j++)
        bucket[j] = (double)rp_bucket(j - r->e->query, a->buckets, a->max_distance, a->bidirectional, RP_STRATEGY_LOG);
    s->memory = bucket;
    s->bucket = bucket;
    return CLI_OK;
}

/* Write the first line of the output: part, layer, head and the query's token. */
static int make_note(request *r, explain_source *s)
{
    char reads[EXPLAIN_TOKEN], writes[EXPLAIN_TOKEN] = "";
    const rp_t5_info *i = rp_t5_about(r->common.model);
    const bool decoder = r->part != RP_T5_ENCODER;
    name_token(r, read_token(r, decoder, r->e->query), reads);
    if (decoder)
        name_token(r, r->to.tokens[r->e->query], writes);
    r->note = malloc(512);
    if (r->note == NULL)
        return explain_no_memory();
    snprintf(r->note, 512, "%s, layer %lld of 0 to %lld, head %lld of 0 to %lld: the query reads '%s'%s%s%s\n",
             decoder ? r->part == RP_T5_CROSS ? "Cross-attention of the decoder to the encoder" : "Decoder" : "Encoder",
             (long long)r->layer, (long long)(decoder ? i->decoder_layers : i->layers) - 1, (long long)r->e->head,
             (long long)i->heads - 1, reads, decoder ? " and writes '" : "", writes, decoder ? "'" : "");
    s->note = r->note;
    return CLI_OK;
}

/* Check part, layer and head before computing anything. */
static int check_place(const request *r)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    const int64_t layers = r->part == RP_T5_ENCODER ? i->layers : i->decoder_layers;
    if (layers == 0)
        return cli_error(CLI_FAILED, "--part: the model has no decoder (use --part encoder)");
    if (explain_range("--layer", r->layer, layers) != CLI_OK || explain_range("--head", r->e->head, i->heads) != CLI_OK)
        return CLI_USAGE;
    return CLI_OK;
}

static int explain(request *r, explain_source *s, const char *text)
{
    cli_progress progress = {.what = "t5 explain"};
    int code = check_place(r);
    if (code == CLI_OK)
        code = read_text(r, "the text", text, &r->source_tokens, &r->source);
    if (code == CLI_OK && r->part != RP_T5_ENCODER)
        code = r->target != NULL ? read_text(r, "--target", r->target, &r->target_tokens, &r->to) : write_target(r);
    if (code == CLI_OK && rp_t5_attention_of(r->common.model, r->part, r->layer, r->source, r->to, &r->a,
                                             cli_t5_progress, &progress) != RP_OK)
        code = cli_t5_refused("t5 explain");
    cli_progress_end(&progress);
    if (code != CLI_OK)
        return code;
    s->token = names_of(r, r->part == RP_T5_DECODER, r->a->len_k);
    if (r->part == RP_T5_CROSS)
        s->query_token = names_of(r, true, r->a->len_q);
    if (s->token == NULL || (r->part == RP_T5_CROSS && s->query_token == NULL))
        return explain_no_memory();
    describe(r, s);
    code = find_query(r, s);
    if (code == CLI_OK)
        code = find_buckets(r, s);
    if (code == CLI_OK)
        code = make_note(r, s);
    cli_t5_let_signals(&r->common);
    return code == CLI_OK ? explain_show(r->e, s) : code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.e = calloc(1, sizeof *r.e)};
    explain_source s = {.t = rp_tensors_init(), .note = ""};
    const char *args[2] = {NULL, NULL};
    if (r.e == NULL)
        return explain_no_memory();
    cli_problem_init(&r.e->problem);
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code < 0 && n_args < 2)
        code = cli_error(CLI_USAGE, "t5 explain: %s (write relpos t5 explain DIR 'a sentence')",
                         n_args < 1 ? "no model was given" : "no text was given");
    if (code < 0) {
        code = cli_t5_open(&r.common, args[0]);
        if (code == CLI_OK)
            code = cli_t5_keep_model(&r.common, r.e->out);
        if (code == CLI_OK)
            code = explain(&r, &s, args[1]);
        rp_t5_attention_free(r.a);
        cli_t5_close(&r.common);
    }
    rp_plan_destroy(s.plan);
    rp_plan_destroy(s.plain);
    free(s.token);
    free(s.query_token);
    free(s.memory);
    rp_t5_free(r.source_tokens);
    rp_t5_free(r.target_tokens);
    free(r.note);
    free(r.e);
    return code;
}

const cli_command cli_t5_explain = {
    .name = "t5 explain",
    .summary = "show the attention of one head step by step",
    .usage = "DIR|FILE TEXT [options]",
    .example =
        "  relpos t5 explain flan-t5-small 'The house is wonderful.' --layer 2 --head 3 --query house\n"
        "  relpos t5 explain flan-t5-small 'translate English to German: Good morning.' --part cross -o head.png\n",
    .options = options,
    .run = run,
};
