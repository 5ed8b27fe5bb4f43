/* print.c -- prints the text of relpos explain: every step for one query, or only its heaviest keys, or the words of a
 * model's text; then the weights by distance.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain/explain.h"
#include "cli/picture/picture.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 8, TOP = 12 }; /* up to FEW keys are columns of the table; with more, the TOP heaviest keys are rows */

typedef struct view {
    const explain_request *r;
    const explain_source *s;
    const explain_trace *t;
    int64_t key[TOP], *keys, n_keys; /* keys: the keys to show; it points to `key` or to a list of all keys */
    bool sink;
    explain_bands *bands;
} view;

/* One row of a table, with a number for each key. */
typedef struct series {
    const char *label, *note;
    const double *x;
    bool sign, whole;
} series;

/* Print a text right-aligned in `width` columns. */
static void cell(const char *text, int width)
{
    const int used = pic_columns(text);
    printf("%*s%s", width > used ? width - used : 1, "", text);
}

static const char *number_of(char buf[40], const series *line, int64_t key)
{
    if (!line->whole)
        return explain_number(buf, line->x[key], line->sign);
    snprintf(buf, 40, "%.0f", line->x[key]);
    return buf;
}

/* Print a table. Keys are columns if there are at most FEW, otherwise rows. */
static void table(const view *v, const series *line, int n_lines)
{
    const bool few = v->r->problem.desc.len_k <= FEW;
    const int n = (int)v->n_keys, columns_max = cli_width(), fit = few ? (columns_max - 15) / n : 0;
    const int width = !few ? 14 : fit < 8 ? 8 : fit > 10 ? 10 : fit;
    char buf[EXPLAIN_TOKEN];
    if (few)
        printf("%15s", "");
    else
        printf("%8s%16s", "key", "word");
    for (int64_t x = 0; x < (few ? n : n_lines); x++)
        cell(explain_cut(buf, few ? v->s->token[x] : line[x].label, width - 1), width);
    putchar('\n');
    for (int64_t x = 0; !few && x < v->n_keys; x++) {
        printf("%8lld", (long long)v->keys[x]);
        cell(explain_cut(buf, v->s->token[v->keys[x]], 14), 16);
        for (int l = 0; l < n_lines; l++)
            cell(number_of((char[40]){0}, &line[l], v->keys[x]), width);
        putchar('\n');
    }
    for (int l = 0; few && l < n_lines; l++) {
        explain_cut(buf, line[l].label, 14);
        printf("%s%*s", buf, 15 - pic_columns(buf), "");
        for (int j = 0; j < n; j++)
            cell(number_of((char[40]){0}, &line[l], j), width);
        if (line[l].note && 15 + n * width + 3 + (int)strlen(line[l].note) <= columns_max)
            printf("   %s", line[l].note);
        putchar('\n');
    }
}

/* Print the value of the parameter that has this key. */
static void print_parameter(const rp_term *t, const char *key, size_t length)
{
    const rp_param *p;
    for (int x = 0; (p = rp_term_param(t->kind, x)); x++)
        if (strncmp(p->key, key, length) == 0 && !p->key[length])
            printf("%.*g", p->type == RP_PARAM_REAL ? 6 : 17, rp_param_number(t, p, 0));
}

/* Print the formula of a term's bias, as a summand of B, for the head that is shown. */
static void print_term(const view *v, int32_t n)
{
    const rp_term *t = &v->r->problem.terms[n];
    if (!rp_term_is_bias(t->kind))
        return;
    const char *shown = rp_term_about(t->kind)->shown;
    if (!shown)
        printf(" + %s", v->r->problem.term_text[n]);
    else
        putchar(' ');
    for (const char *c = shown; c && *c; c++) {
        const size_t length = *c == '{' ? strcspn(c + 1, "}") : 0;
        if (!length) {
            putchar(*c);
        } else if (length == 5 && strncmp(c + 1, "slope", 5) == 0) {
            if (*v->r->problem.term_array[n][0] || *v->r->problem.term_array[n][5])
                printf("slope *");
            else
                printf("%g", pow(rp_alibi_slope(v->r->head, v->r->problem.desc.heads), t->real[0] / 8)); /* max_bias */
        } else {
            print_parameter(t, c + 1, length);
        }
        c += length ? length + 1 : 0;
    }
}

/* Print the formula of the attention. */
static void formula(view *v)
{
    const rp_desc *d = &v->r->problem.desc;
    bool has[RP_ROLE_SINK + 1] = {false};
    int32_t inside = -1; /* the term whose scores are added before the softcap */
    const char *vectors = NULL;
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rp_role role = rp_term_role(d->terms[n].kind);
        has[role] = true;
        if (role == RP_ROLE_PRODUCT) {
            inside = n;
            vectors = rp_term_about(d->terms[n].kind)->shown;
        }
    }
    const bool bias = has[RP_ROLE_BIAS];
    v->sink = has[RP_ROLE_SINK];
    /* Products with named vectors are scaled like q k. P already includes the scale. */
    char product[64];
    const char *q_k = has[RP_ROLE_ROTATION] ? "R(Q) R(K)^T" : "Q K^T", *added = inside < 0 || vectors ? "" : " + P";
    if (vectors)
        snprintf(product, sizeof product, "(%s + Q %s^T)", q_k, vectors);
    else
        snprintf(product, sizeof product, "%s", q_k);
    const bool before = d->softcap > 0, after = d->softcap_after > 0;
    printf("  A = softmax(%s%s%s%s%s%s%s%s) %s\n", after ? "cap_after(" : "", before ? "cap(" : "", product,
           d->scale == RP_SCALE_AUTO ? " / sqrt(d_k)" : " * scale", added, before ? ")" : "", bias ? " + B" : "",
           after ? ")" : "", has[RP_ROLE_VALUE] ? "(V + rel_V)" : "V");
    printf("  d_k = %lld, scale = %g\n", (long long)d->dim_k, explain_scale(d));
    if (bias)
        printf("  B =");
    for (int32_t n = 0; n < d->n_terms; n++)
        print_term(v, n);
    if (bias)
        printf("     r = key - query, d = |r|\n");
    if (has[RP_ROLE_ROTATION])
        printf("  R rotates pairs of channels of q and k by their position\n");
    if (inside >= 0 && !vectors)
        printf("  P = position scores of %s\n", v->r->problem.term_text[inside]);
    if (v->sink)
        printf("  a sink adds to the sum of each row: the weights sum to less than 1\n");
    if (before)
        printf("  cap(x) = %g tanh(x / %g)\n", d->softcap, d->softcap);
    if (after)
        printf("  cap_after(x) = %g tanh(x / %g)\n", d->softcap_after, d->softcap_after);
    if (d->n_masks)
        printf("  a masked key scores -inf: its weight is 0\n");
    if (d->heads * d->batch > 1)
        printf("  head %lld of 0 to %lld, batch entry %lld of 0 to %lld\n", (long long)v->r->head,
               (long long)d->heads - 1, (long long)v->r->batch, (long long)d->batch - 1);
}

/* Find the TOP keys with the largest x, in descending order. */
static void heaviest(const double *x, int64_t n, int64_t key[TOP])
{
    for (int rank = 0; rank < TOP; rank++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++) {
            bool taken = false;
            for (int m = 0; m < rank; m++)
                taken |= key[m] == j;
            if (!taken && (best < 0 || x[j] > x[best]))
                best = j;
        }
        key[rank] = best;
    }
}

/* Print how the softmax computes the weights: the largest score is subtracted before exp, as in most programs. */
static void print_softmax(const view *v)
{
    const rp_desc *d = &v->r->problem.desc;
    const rp_part *sink = explain_part(v->t, RP_PART_SINK);
    char line[3 * EXPLAIN_TOKEN], note[64];
    double max = sink ? *sink->value : -INFINITY, x[2][FEW];
    for (int64_t j = 0; j < d->len_k; j++)
        max = fmax(max, v->t->row.score[j]);
    if (v->t->row.lse == -INFINITY) {
        explain_heading("Attention weights: every key is masked, so there are none");
        return;
    }
    const char *shift = explain_number((char[40]){0}, fabs(max), false),
               *sum = explain_number((char[40]){0}, exp(v->t->row.lse - max), false);
    const char sign = max < 0 ? '+' : '-';
    snprintf(line, sizeof line, "Attention weights: exp(biased score %c %s) / %s, the sum of exp over all keys%s", sign,
             shift, sum, sink ? " and the sink" : "");
    explain_heading(line);
    if (d->len_k > FEW)
        return;
    for (int64_t j = 0; j < d->len_k; j++) {
        x[0][j] = v->t->row.score[j] - max;
        x[1][j] = exp(x[0][j]);
    }
    snprintf(note, sizeof note, "sum %s", sum);
    table(
        v,
        (series[]){{"Shifted scores", "biased - max", x[0], false, false}, {"Exponentials", note, x[1], false, false}},
        2);
    putchar('\n');
}

static void print_weights(const view *v, const char *query)
{
    const rp_desc *d = &v->r->problem.desc;
    char a[EXPLAIN_TOKEN], b[EXPLAIN_TOKEN], name[2 * EXPLAIN_TOKEN + 8];
    int width = 0, digits = 1;
    for (int pass = 0; pass < 2; pass++) /* pass 0 measures widths, pass 1 prints */
        for (int64_t x = 0; x < v->n_keys; x++) {
            const int64_t j = v->keys[x], distance = llabs(j - v->r->query - d->q_offset);
            const double w = v->t->row.weights[j];
            const int used = snprintf(name, sizeof name, "%lld", (long long)distance);
            digits = used > digits ? used : digits;
            snprintf(name, sizeof name, "A[%s,%s]", explain_cut(a, query, 20), explain_cut(b, v->s->token[j], 20));
            width = pic_columns(name) > width ? pic_columns(name) : width;
            if (pass == 0)
                continue;
            if (d->len_k > FEW)
                printf("%8lld", (long long)j);
            cell(name, width + 2);
            printf(" = %s", explain_number((char[40]){0}, w, false));
            if (v->s->unordered)
                fputs(" |", stdout);
            else
                printf(" (d=%*lld) |", digits, (long long)distance);
            for (int bar = w >= 0 && w <= 1 ? (int)(w * 50) : 0; bar > 0; bar--)
                putchar('#');
            puts(v->t->row.score[j] == -INFINITY ? "| masked" : "|");
        }
    const rp_part *sink = explain_part(v->t, RP_PART_SINK);
    if (sink) {
        const double w = exp(*sink->value - v->t->row.lse);
        snprintf(name, sizeof name, "A[%s,sink]", explain_cut(a, query, 20));
        if (d->len_k > FEW)
            printf("%8s", "");
        cell(name, width + 2);
        printf(" = %s", explain_number((char[40]){0}, w, false));
        printf(" (logit %s)\n", explain_number((char[40]){0}, *sink->value, false));
    }
}

/* Fill the rows of the table of scores: raw scores, each part, and the sum. `note` provides the memory for their notes.
 * Return the number of rows. */
static int score_lines(const view *v, series line[RP_MAX_PARTS + 3], char note[3][64])
{
    const rp_desc *d = &v->r->problem.desc;
    const explain_trace *t = v->t;
    const bool rotates = explain_part(t, RP_PART_ROTATION) != NULL;
    int n_lines = 0, biases = 0, others = 0;
    for (int32_t n = 0; n < t->n_parts && t->part[n].kind <= RP_PART_MASK; n++) {
        biases += t->part[n].kind == RP_PART_BIAS;
        others += t->part[n].kind != RP_PART_BIAS && t->part[n].kind != RP_PART_CONTENT;
    }
    line[n_lines++] = (series){"Raw scores", rotates ? "R(q) . R(k)" : "q . k", t->row.raw, false, false};
    for (int32_t n = 0; n < t->n_parts && t->part[n].kind <= RP_PART_MASK; n++) {
        const rp_part *p = &t->part[n];
        series *to = &line[n_lines++];
        *to = (series){p->name, p->formula, p->value, false, false};
        switch (p->kind) {
        case RP_PART_CONTENT:
            snprintf(note[0], sizeof note[0], rotates ? "q . k * %g" : "raw * %g", explain_scale(d));
            to->label = rotates ? "Content" : "Scaled scores";
            to->note = note[0];
            break;
        case RP_PART_ROTATION:
            snprintf(note[1], sizeof note[1], "raw * %g - content", explain_scale(d));
            to->label = "Rotation";
            to->note = note[1];
            break;
        case RP_PART_BIAS:
            if (v->s->bucket) {
                line[n_lines++] = *to;
                *to++ = (series){"Buckets", "row of the table", v->s->bucket, false, true};
            }
            to->label = biases == 1 ? "Bias values" : p->name;
            to->note = biases == 1 ? "B" : v->r->problem.term_text[p->term];
            break;
        case RP_PART_SOFTCAP:
        case RP_PART_SOFTCAP_AFTER:
            to->label = p->kind == RP_PART_SOFTCAP ? "Softcap" : "Softcap after";
            to->note = p->kind == RP_PART_SOFTCAP ? "cap(x) - x" : "cap_after(x) - x";
            break;
        case RP_PART_MASK: to->label = "Mask"; break;
        default: break;
        }
    }
    snprintf(note[2], sizeof note[2], biases == 1 && !others ? "scaled + B" : "sum from %s on",
             rotates ? "content" : "scaled");
    line[n_lines++] = (series){"Biased scores", note[2], t->row.score, false, false};
    return n_lines;
}

/* Print the weights of all queries of a small problem: without terms, with terms, and the differences. Return an exit
 * code. */
static int print_matrices(const view *v)
{
    const rp_desc *d = &v->r->problem.desc;
    explain_trace t[FEW] = {0};
    char name[FEW][EXPLAIN_TOKEN];
    series line[FEW] = {0};
    int code = CLI_OK;
    for (int64_t i = 0; i < d->len_q && code == CLI_OK; i++) {
        code = explain_look(v->r, v->s, i, &t[i]);
        line[i].label = explain_query_name(v->r, v->s, i, name[i]);
    }
    for (int m = 0; m < 3 && code == CLI_OK; m++) {
        explain_heading(m == 0   ? "All weights, standard"
                        : m == 1 ? "All weights, biased"
                                 : "Difference (biased - standard)");
        for (int64_t i = 0; i < d->len_q; i++) {
            line[i].x = m == 0 ? t[i].plain : m == 1 ? t[i].row.weights : t[i].difference;
            line[i].sign = m == 2;
        }
        table(v, line, (int)d->len_q);
    }
    for (int64_t i = 0; i < d->len_q; i++)
        free(t[i].row.raw);
    return code;
}

/* Print `gap` blanks and a bar of '#' characters for x, padded to `width` columns. A value of `full` gives max_hashes
 * characters. */
static void bar(int gap, double x, double full, int max_hashes, int width)
{
    static const char hashes[] = "  ########################";
    const double length = x >= 0 && full > 0 ? fmin(x / full, 1) * max_hashes : 0;
    printf("%-*.*s", width, length >= 0.5 ? (int)(length + 0.5) + gap : 0, hashes + 2 - gap);
}

/* Print the head's weights by distance. Return an exit code. */
static int print_bands(const view *v)
{
    explain_bands *bands = v->bands;
    char line[EXPLAIN_TOKEN], names[24];
    double full = 0;
    fflush(stdout); /* show the text so far, because computing the sums may take long */
    const int code = bands->known ? CLI_OK : explain_all(v->r, v->s, bands, NULL, NULL);
    if (code != CLI_OK)
        return code;
    snprintf(line, sizeof line, "Share of weight by distance, head %lld, all queries", (long long)v->r->head);
    explain_heading(line);
    printf("%12s   %-34swith %s\n", "distance", "standard", explain_terms(v->r, true, names, sizeof names));
    for (int band = 0; band < EXPLAIN_BANDS; band++)
        full = fmax(full, fmax(bands->plain[band], bands->with[band]));
    for (int band = 0; band < EXPLAIN_BANDS; band++) {
        const long long from = explain_band_from(band), to = explain_band_from(band + 1) - 1;
        if (!bands->has_pairs[band])
            continue;
        if (band + 1 == EXPLAIN_BANDS)
            snprintf(line, sizeof line, "%lld and more", from);
        else
            snprintf(line, sizeof line, from < to ? "%lld-%lld" : "%lld", from, to);
        printf("%12s  %5.1f %%", line, 100 * bands->plain[band]);
        bar(2, bands->plain[band], full, 22, 27);
        printf("%6.1f %%", 100 * bands->with[band]);
        bar(2, bands->with[band], full, 22, 0);
        putchar('\n');
    }
    if (bands->pairs[1] < bands->pairs[0])
        printf("Pairs computed, of all heads: %.1f %% (tiles whose weights are all exactly 0 are skipped; by "
               "mpirun, too, but their keys are sent)\n",
               100 * (double)bands->pairs[1] / (double)bands->pairs[0]);
    return CLI_OK;
}

/* Print the heaviest keys without the terms beside the heaviest keys with them, then the weights by distance. Return an
 * exit code. */
static int print_brief(view *v, const char *query)
{
    enum { SHOWN = 5 };
    const rp_desc *d = &v->r->problem.desc;
    const double *const x[2] = {v->t->plain, v->t->row.weights};
    int64_t key[2][TOP];
    double full = 0;
    char line[3 * EXPLAIN_TOKEN], terms[EXPLAIN_TOKEN], name[EXPLAIN_TOKEN];
    snprintf(line, sizeof line,
             "=== %s: query %lld '%s', head %lld of 0 to %lld ===", explain_terms(v->r, false, terms, sizeof terms),
             (long long)v->r->query, query, (long long)v->r->head, (long long)d->heads - 1);
    explain_heading(line);
    for (int k = 0; k < 2; k++) {
        heaviest(x[k], d->len_k, key[k]);
        full = fmax(full, x[k][key[k][0]]);
    }
    printf("Heaviest of %lld keys, r = key - query\n", (long long)d->len_k);
    const bool fits = pic_columns(explain_terms(v->r, true, terms, sizeof terms)) <= 9;
    printf("  %-14s%6s  weight%12swith %-9s%6s  weight\n", "standard", "r", "", fits ? terms : "terms", "r");
    for (int n = 0; n < SHOWN && n < d->len_k; n++) {
        if (x[0][key[0][n]] == 0 && x[1][key[1][n]] == 0) { /* all remaining keys are masked */
            if (n == 0)
                puts("  every key is masked");
            break;
        }
        for (int k = 0; k < 2; k++) {
            const int64_t j = key[k][n];
            explain_cut(name, v->s->token[j], 13);
            const long long delta = j - v->r->query - d->q_offset;
            printf("  %s%*s", name, 14 - pic_columns(name), "");
            printf(delta ? "%+6lld  %.4f" : "%6lld  %.4f", delta, x[k][j]);
            bar(1, x[k][j], full, 8, k ? 0 : 10);
            fputs(k ? "\n" : "", stdout);
        }
    }
    return print_bands(v);
}

/* Print all steps of one query. Return an exit code. */
static int print_steps(view *v, const char *query)
{
    const rp_desc *d = &v->r->problem.desc;
    const rp_row *row = &v->t->row;
    const bool listed = v->n_keys < d->len_k; /* show only the heaviest keys */
    char line[3 * EXPLAIN_TOKEN], note[3][64];
    series scores[RP_MAX_PARTS + 3];
    snprintf(line, sizeof line,
             "=== Relative position bias, step by step, for '%s' (query %lld of 0 to %lld) ===", query,
             (long long)v->r->query, (long long)d->len_q - 1);
    explain_heading(line);
    formula(v);
    snprintf(line, sizeof line, "The %d heaviest of %lld keys (--all prints every key)", TOP, (long long)d->len_k);
    explain_heading(listed ? line : "Scores");
    table(v, scores, score_lines(v, scores, note));
    print_softmax(v);
    print_weights(v, query);
    putchar('\n');
    for (int32_t n = 0; n < v->t->n_parts && explain_part(v->t, RP_PART_VECTORS); n++)
        if (v->t->part[n].kind >= RP_PART_VALUES)
            explain_print_output(v->r, v->t->part[n].name, query, v->t->part[n].value);
    explain_print_output(v->r, "Output", query, row->out);
    if (v->s->unordered) /* no position term applies, so there is no difference */
        return CLI_OK;
    snprintf(line, sizeof line, "Standard and biased weights for '%s'", query);
    explain_heading(line);
    table(v,
          (series[]){{"Standard", "no position", v->t->plain, false, false},
                     {"Biased", NULL, row->weights, false, false},
                     {"Difference", NULL, v->t->difference, true, false}},
          3);
    if (listed) {
        int64_t key[TOP];
        heaviest(v->t->plain, d->len_k, key);
        printf("\nHeaviest keys without any position term:");
        for (int n = 0; n < TOP; n++)
            printf("%s%s [%lld] %s", n % 4 ? ", " : "\n  ", explain_cut(line, v->s->token[key[n]], 14),
                   (long long)key[n], explain_number((char[40]){0}, v->t->plain[key[n]], false));
        putchar('\n');
    }
    const int code = d->len_k <= FEW && d->len_q <= FEW ? print_matrices(v) : CLI_OK;
    return code == CLI_OK && v->s->show_bands ? print_bands(v) : code;
}

/* Print the words of a model's text with their weights from content, from position and from both. Return an exit
 * code. */
static int print_words(view *v, const char *query)
{
    const explain_request *r = v->r;
    const explain_source *s = v->s;
    const bool rotates = explain_rotates(&r->problem.desc);
    const int64_t n = r->word + 1;
    const char *name = s->word[r->word].name;
    char line[3 * EXPLAIN_TOKEN], buf[EXPLAIN_TOKEN];
    double full = 0;
    int64_t key[TOP];
    explain_content split;
    int code = explain_by_words(r, s, v->t, &split);
    if (code != CLI_OK)
        return code;
    snprintf(line, sizeof line, "=== Layer %lld, head %lld: attention of '%s' ===", (long long)r->layer,
             (long long)r->head, explain_cut(buf, name, 30));
    explain_heading(line);
    if (!r->brief) {
        formula(v);
        printf("  query: byte %lld, '%s', the last of word %lld; %lld keys: the bytes up to it\n", (long long)r->query,
               query, (long long)r->word, (long long)r->query + 1);
    }
    if (n > TOP && !r->all) {
        heaviest(split.both, n, key);
        snprintf(line, sizeof line, "The %d heaviest of %lld words (--all shows every word)", TOP, (long long)n);
    } else {
        snprintf(line, sizeof line, "Weight of each word, the sum of its bytes");
    }
    explain_heading(line);
    printf("%6s  %-16s%6s%10s%10s%10s\n", "word", "", "back", rotates ? "unrotated" : "content",
           rotates ? "" : "position", rotates ? "true" : "both");
    for (int64_t w = 0; w < n; w++)
        full = fmax(full, split.both[w]);
    for (int64_t x = 0; x < n && (x < TOP || r->all); x++) {
        const int64_t w = n > TOP && !r->all ? key[x] : x;
        explain_cut(buf, s->word[w].name, 15);
        printf("%6lld  %s%*s%6lld%10.4f", (long long)w, buf, 16 - pic_columns(buf), "",
               (long long)(r->query + 1 - s->word[w].to), split.content[w]);
        if (rotates)
            printf("%10s", "");
        else
            printf("%10.4f", split.position[w]);
        printf("%10.4f", split.both[w]);
        bar(2, split.both[w], full, 14, 0);
        putchar('\n');
    }
    if (rotates)
        puts("\nRope rotates q and k before their product, so content and position cannot be\n"
             "separated. The column unrotated shows the weights without rope.");
    else
        printf("\nSpread of the scores, their variance over the keys: content %.3f,\n"
               "position %.3f, both %.3f. Of content + position, position is %.0f %%.\n",
               split.spread.content, split.spread.position, split.spread.both,
               100 * lab_position_fraction(split.spread.position, split.spread.content));
    free(split.content);
    return r->brief ? CLI_OK : print_bands(v);
}

int explain_print(const explain_request *r, const explain_source *s, const explain_trace *t, explain_bands *bands)
{
    const int64_t len_k = r->problem.desc.len_k;
    const bool top = !r->all && len_k > TOP;
    view v = {.r = r, .s = s, .t = t, .bands = bands, .n_keys = top ? TOP : len_k};
    char buf[EXPLAIN_TOKEN];
    v.keys = top ? v.key : malloc((size_t)len_k * sizeof *v.keys);
    if (!v.keys)
        return explain_no_memory();
    for (int64_t j = 0; j < v.n_keys; j++)
        v.keys[j] = j;
    if (top)
        heaviest(t->row.weights, len_k, v.key);
    printf("%s", s->note);
    const int code = (s->word    ? print_words
                      : r->brief ? print_brief
                                 : print_steps)(&v, explain_query_name(r, s, r->query, buf));
    if (v.keys != v.key)
        free(v.keys);
    return code;
}
