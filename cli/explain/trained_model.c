/* trained_model.c -- relpos explain --model: a trained model's attention on a text, by words, split into content and
 * position; and a table of all heads. cli/lab runs the model.
 *
 * Let S be the scores of a query without the terms, and P what the terms add. The weights of the query are softmax(S +
 * P), its content weights softmax(S), and its position weights softmax(P).
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain/explain.h"
#include "cli/progress.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1024 }; /* max size of the text, because the table of all heads computes every pair in double */

/* Split the text into words. A word is a run of blanks, which may be empty, followed by a run of other bytes. Blanks
 * at the end are also a word. Return an exit code. */
static int split_text(explain_source *s, const char *text)
{
    const int64_t n = (int64_t)strlen(text);
    s->word = calloc((size_t)n, sizeof *s->word);
    s->token = calloc((size_t)n, sizeof *s->token);
    if (!s->word || !s->token)
        return explain_no_memory();
    for (int64_t at = 0; at < n; s->n_words++) {
        explain_word *word = &s->word[s->n_words];
        char text_of_word[EXPLAIN_TOKEN];
        word->from = at;
        while (at < n && isspace((unsigned char)text[at]))
            at++;
        const int64_t first = at;
        while (at < n && !isspace((unsigned char)text[at]))
            at++;
        word->to = at;
        snprintf(text_of_word, sizeof text_of_word, "%.*s",
                 (int)(at - first < EXPLAIN_TOKEN ? at - first : EXPLAIN_TOKEN), text + first);
        io_safe(word->name, sizeof word->name, at > first ? text_of_word : "(blanks)");
    }
    for (int64_t j = 0; j < n; j++)
        lab_token(s->token[j], (unsigned char)text[j]);
    return CLI_OK;
}

/* Describe the attention of those layers of the model that have terms. */
static void describe(explain_request *r, const nn_model *m, int64_t n)
{
    const nn_stack *s = &m->stack[0];
    cli_problem *p = &r->problem;
    p->desc = nn_model_attention(m, 0, 1, n, n, p->terms, p->masks);
    p->desc.dim_v = p->desc.dim_k; /* set explicitly, because explain does not resolve the default 0 */
    for (int32_t t = 0; t < s->n_terms; t++) {
        if (rp_term_print(&p->terms[t], p->term_text[t], sizeof p->term_text[t]) != RP_OK)
            snprintf(p->term_text[t], sizeof p->term_text[t], "%s", rp_term_name(p->terms[t].kind));
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (s->terms[t].source[x] != NN_ABSENT)
                snprintf(p->term_array[t][x], RP_NAME_MAX, "%s", rp_term_array(p->terms[t].kind, x));
    }
}

/* Use the tensors and the terms of a layer as source. Return an exit code. */
static int take_layer(explain_request *r, explain_source *s, int64_t layer)
{
    char err[NN_ERR_MAX];
    r->problem.desc.n_terms = nn_layer_terms(&s->look->m, 0, layer, r->problem.terms);
    if (nn_net_attention(s->look->net, layer, &s->t, NULL, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    s->t.out = rp_tensors_init().out; /* keep the model's output */
    return CLI_OK;
}

int explain_from_model(explain_request *r, explain_source *s)
{
    char err[NN_ERR_MAX];
    const int64_t n = (int64_t)strlen(r->text);
    if (n > MAX_BYTES)
        return cli_error(CLI_USAGE, "--text: it has %lld bytes (give at most %d)", (long long)n, MAX_BYTES);
    int code = split_text(s, r->text);
    if (code == CLI_OK && r->word < 0)
        r->word = s->n_words - 1;
    if (code != CLI_OK || (code = explain_range("--word", r->word, s->n_words)) != CLI_OK)
        return code;
    r->query = s->word[r->word].to - 1;
    if (!(s->look = calloc(1, sizeof *s->look)))
        return explain_no_memory();
    if ((code = lab_inspection_at(s->look, r->model, r->text, true, err)) != CLI_OK)
        return code < 0 ? cli_error(CLI_FAILED, "%s", err) : code;
    const nn_model *m = &s->look->m;
    if (explain_range("--layer", r->layer, m->c.layers) != CLI_OK)
        return CLI_USAGE;
    if (r->head >= 0 && r->layer < 0)
        r->layer = 0;
    if (m->stack[0].sinusoidal || m->stack[0].learned)
        s->note = "The model adds positions to its embedding, so content also depends on position.\n";
    s->show_bands = true;
    snprintf(s->place, sizeof s->place, "layer %lld, ", (long long)(r->layer < 0 ? 0 : r->layer));
    describe(r, m, n);
    return take_layer(r, s, r->layer < 0 ? 0 : r->layer);
}

void explain_model_end(explain_source *s)
{
    if (s->look)
        lab_inspection_end(s->look);
    free(s->look);
    free(s->word);
}

/* ------------------------------------------------------------------------------------------------ content and
 * position */

int explain_by_words(const explain_request *r, const explain_source *s, const explain_trace *t, explain_content *split)
{
    const int64_t n = r->problem.desc.len_k, words = s->n_words;
    double max = -INFINITY, sum = 0;
    double *at = calloc((size_t)(3 * words), sizeof *at);
    if (!at)
        return explain_no_memory();
    *split = (explain_content){.content = at, .position = at + words, .both = at + 2 * words};
    split->spread = lab_spread_of(t->row.score, t->plain_score, n);
    const bool rotates = explain_rotates(&r->problem.desc);
    for (int64_t j = 0; j < n; j++)
        if (t->row.score[j] != -INFINITY)
            max = fmax(max, t->row.score[j] - t->plain_score[j]);
    for (int64_t w = 0; w < words; w++)
        for (int64_t j = s->word[w].from; j < s->word[w].to; j++) {
            const bool masked = t->row.score[j] == -INFINITY;
            split->content[w] += t->plain[j];
            split->position[w] += masked ? 0 : exp(t->row.score[j] - t->plain_score[j] - max);
            split->both[w] += t->row.weights[j];
        }
    for (int64_t w = 0; w < words; w++)
        sum += split->position[w];
    for (int64_t w = 0; w < words; w++)
        split->position[w] = rotates ? NAN : split->position[w] / sum;
    if (rotates)
        split->spread.content = split->spread.position = NAN;
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ all heads */

/* Sums of a head over all queries of the text. */
typedef struct head_sum {
    double weight, distance;  /* total weight: 1 per query, less with a sink; sum of weight times distance */
    double own, before;       /* weight on the query's own word; weight on the word before it */
    double content, position; /* variances of the scores */
    int64_t word;             /* the heaviest word for the query of --word */
    double heaviest;          /* weight of that word */
} head_sum;

/* Compute the sums of head r->head. Return an exit code. */
static int sum_head(const explain_request *r, const explain_source *s, head_sum *h)
{
    const int64_t n = r->problem.desc.len_k;
    *h = (head_sum){.heaviest = -1};
    for (int64_t w = 0, i = 0; i < n; i++) {
        const int64_t own = s->word[w].from, before = w > 0 ? s->word[w - 1].from : own;
        explain_trace t;
        const int code = explain_look(r, s, i, &t);
        for (int64_t j = 0; j <= i && code == CLI_OK; j++) {
            const double x = t.row.weights[j];
            h->weight += x;
            h->distance += x * (double)(i - j);
            h->own += j >= own ? x : 0;
            h->before += j < own && j >= before ? x : 0;
        }
        if (code == CLI_OK) {
            const lab_spread spread = lab_spread_of(t.row.score, t.plain_score, n);
            h->content += spread.content;
            h->position += spread.position;
        }
        for (int64_t k = 0; k <= w && i == r->query && code == CLI_OK; k++) {
            double x = 0;
            for (int64_t j = s->word[k].from; j < s->word[k].to; j++)
                x += t.row.weights[j];
            if (x > h->heaviest)
                h->heaviest = x, h->word = k;
        }
        free(t.row.raw);
        if (code != CLI_OK)
            return code;
        w += i + 1 == s->word[w].to;
    }
    return CLI_OK;
}

/* Print a head as a row of the table, or as a JSON object. */
static void print_head(const explain_request *r, const explain_source *s, int64_t layer, const head_sum *h, bool first)
{
    const bool rotates = explain_rotates(&r->problem.desc);
    const double all = h->weight, fraction = rotates ? NAN : lab_position_fraction(h->position, h->content);
    char buf[EXPLAIN_TOKEN], percent[16];
    if (r->json) {
        printf("%s{\"layer\": %lld, \"head\": %lld, \"distance\": ", first ? "" : ", ", (long long)layer,
               (long long)r->head);
        explain_json_number(h->distance / all);
        fputs(", \"position\": ", stdout);
        explain_json_number(fraction);
        fputs(", \"own_word\": ", stdout);
        explain_json_number(h->own / all);
        fputs(", \"word_before\": ", stdout);
        explain_json_number(h->before / all);
        printf(", \"heaviest\": %lld, \"weight\": ", (long long)h->word);
        explain_json_number(h->heaviest);
        putchar('}');
        return;
    }
    snprintf(percent, sizeof percent, rotates ? "-  " : "%.0f %%", 100 * fraction);
    printf("%5lld%6lld%11.1f%11s%8.0f %%%8.0f %%%8.0f %%   %.2f %s\n", (long long)layer, (long long)r->head,
           h->distance / all, percent, 100 * h->own / all, 100 * h->before / all,
           fmax(0, 100 * (all - h->own - h->before) / all), h->heaviest, explain_cut(buf, s->word[h->word].name, 12));
}

int explain_heads(explain_request *r, explain_source *s)
{
    const nn_model *m = &s->look->m;
    const int64_t from = r->layer < 0 ? 0 : r->layer, to = r->layer < 0 ? m->c.layers : r->layer + 1;
    char buf[2 * EXPLAIN_TOKEN], name[EXPLAIN_TOKEN], terms[EXPLAIN_TOKEN];
    cli_progress progress = {.what = "explain"};
    int code = CLI_OK;
    if (r->json) {
        fputs("{\"words\": [", stdout);
        for (int64_t w = 0; w < s->n_words; w++) {
            fputs(w ? ", " : "", stdout);
            cli_json_string(stdout, s->word[w].name);
        }
        printf("], \"word\": %lld, \"heads\": [", (long long)r->word);
    } else {
        printf("%s", s->note);
        snprintf(buf, sizeof buf,
                 "=== %lld layers of %lld heads, %s, on %lld bytes in %lld words ===", (long long)m->c.layers,
                 (long long)m->c.heads, explain_terms(r, true, terms, sizeof terms), (long long)r->problem.desc.len_k,
                 (long long)s->n_words);
        explain_heading(buf);
        printf("%5s%6s%11s%11s%10s%10s%10s   '%s'\n", "layer", "head", "distance", "position", "own word", "before",
               "further", explain_cut(name, s->word[r->word].name, 10));
    }
    cli_progress_show(&progress, 0);
    for (int64_t layer = from; layer < to && code == CLI_OK; layer++) {
        code = take_layer(r, s, layer);
        if (code == CLI_OK && layer > from) /* create the plans again: layers may differ (no terms, another c of
                                             * fire) */
            code = explain_plans(r, s);
        for (r->head = 0; r->head < m->c.heads && code == CLI_OK; r->head++) {
            head_sum h;
            if ((code = sum_head(r, s, &h)) == CLI_OK)
                print_head(r, s, layer, &h, layer == from && r->head == 0);
            cli_progress_show(&progress,
                              (double)((layer - from) * m->c.heads + r->head + 1) / (double)((to - from) * m->c.heads));
        }
    }
    cli_progress_end(&progress);
    if (r->json)
        puts("]}");
    else if (code == CLI_OK)
        printf("\nOver all queries: the mean distance of the weight, in bytes; position's part of\n"
               "the spread of the scores; the weight on the query's own word, on the one before\n"
               "and further back. Last, the heaviest word of '%s'. --head shows one head.\n",
               name);
    return code;
}
