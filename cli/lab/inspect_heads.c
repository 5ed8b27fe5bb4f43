/* inspect_heads.c -- relpos lab inspect: how the attention heads of a trained model depend on the distance between
 * query and key. rp_attend_row, the reference path, computes the scores; this file computes statistics of them.
 *
 * A score is s = c + p, where c is the score without the position terms of the model and p is the sum of the terms. The
 * position fraction is sum var(p) / sum (var(p) + var(c)), with variances over the keys of a query and sums over
 * queries.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include "cli/progress.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = CLI_FIRST_KEY, TEXT, BYTES, JSON };
/* One bin for each distance from 0 to 31, then eight bins per octave. */
enum { SINGLE = 32, MAX_BINS = SINGLE + 8 * 20, OCTAVES = 10 };

typedef struct request {
    const char *text;
    int64_t length, bytes;
    bool json;
} request;

static const cli_option options[] = {
    {"length", LENGTH, "N", "read windows of N bytes; default: the trained length"},
    {"text", TEXT, "FILES", "read these files; default: the held-out text of the experiment"},
    {"bytes", BYTES, "N", "read at most N bytes of the text, but at least one window; default 4096"},
    {"json", JSON, NULL, "print one JSON object with the curves of each head"},
    {0},
};

static int on_option(void *context, int key, const char *value)
{
    request *q = context;
    switch (key) {
    case LENGTH: return cli_integer("--length", value, 2, 1 << 20, &q->length);
    case BYTES: return cli_integer("--bytes", value, 1, (int64_t)1 << 40, &q->bytes);
    case TEXT: q->text = value; return CLI_OK;
    case JSON: q->json = true; return CLI_OK;
    default: return -1;
    }
}

/* Sums over the query-key pairs in one bin of distances. */
typedef struct bin {
    double n, p, p2, weight; /* number of pairs; sums of p, of p^2, of attention weights */
} bin;
/* Sums over the queries of one head. */
typedef struct head_sums {
    bin bins[MAX_BINS];
    double var_p, var_c;    /* variances of p and c */
    double distance;        /* sum of distances, weighted by attention */
    double rows;            /* number of queries */
    double octave[OCTAVES]; /* attention weight at the distances 0, 1, 2 to 3, 4 to 7, ... */
} head_sums;

/* Return the smallest distance in a bin. */
static int64_t bin_from(int x)
{
    return x <= SINGLE ? x : (int64_t)ceil(SINGLE * exp2((x - SINGLE) / 8.0) - 1e-9);
}

static int bin_of(int64_t distance)
{
    int x = distance < SINGLE ? (int)distance : SINGLE + (int)(8 * log2((double)distance / SINGLE));
    while (bin_from(x + 1) <= distance)
        x++;
    return x;
}

static int octave_of(int64_t distance)
{
    const int x = distance ? 64 - __builtin_clzll((uint64_t)distance) : 0;
    return x < OCTAVES ? x : OCTAVES - 1;
}

static double variance_of(const double *with, const double *without, int64_t n, double both, double content)
{
    double mean = 0, variance = 0;
    for (int pass = 0; pass < 2; pass++) { /* mean, then variance: two passes avoid cancellation */
        int64_t keys = 0;
        double sum = 0;
        for (int64_t j = 0; j < n; j++) {
            if (with[j] == -INFINITY)
                continue;
            const double x = both * with[j] + content * without[j];
            sum += pass ? (x - mean) * (x - mean) : x;
            keys++;
        }
        *(pass ? &variance : &mean) = sum / (double)(keys ? keys : 1);
    }
    return variance;
}

lab_spread lab_spread_of(const double *with, const double *without, int64_t n)
{
    return (lab_spread){.content = variance_of(with, without, n, 0, 1),
                        .position = variance_of(with, without, n, 1, -1),
                        .both = variance_of(with, without, n, 1, 0)};
}

double lab_position_fraction(double position, double content)
{
    return position + content > 0 ? position / (position + content) : 0;
}

/* Add a query with n keys to the sums of a head. `with` and `without` are its scores with and without the terms, and w
 * its attention weights. */
static void add_row(head_sums *s, int64_t n, const double *with, const double *without, const double *w,
                    const int *bin_at)
{
    const lab_spread spread = lab_spread_of(with, without, n);
    for (int64_t j = 0; j < n; j++) {
        const int64_t distance = n - 1 - j;
        const double p = with[j] - without[j];
        bin *b = &s->bins[bin_at[distance]];
        b->n++;
        b->p += p;
        b->p2 += p * p;
        b->weight += w[j];
        s->distance += w[j] * (double)distance;
        s->octave[octave_of(distance)] += w[j];
    }
    s->var_c += spread.content;
    s->var_p += spread.position;
    s->rows++;
}

int lab_visit_layers(nn_net *net, const nn_model *m, const int32_t *tokens, int64_t length, lab_visit *visit,
                     void *context, char err[NN_ERR_MAX])
{
    real *logits = malloc((size_t)m->c.vocab * sizeof *logits);
    int code = logits ? nn_net_logits(net, length, tokens, logits, err)
                      : nn_fail(err, "lab: out of memory while computing %lld logits (close other programs)",
                                (long long)m->c.vocab);
    free(logits);
    for (int64_t layer = 0; layer < m->c.layers && code == 0; layer++) {
        rp_tensors t;
        rp_plan *plans[2];
        if (nn_net_attention(net, layer, &t, plans, err) != 0)
            return -1;
        if (visit(context, layer, &t, plans) != RP_OK)
            code = nn_fail(err, "attention of layer %lld: %s", (long long)layer, NN_WORDS(NULL));
        rp_plan_destroy(plans[0]);
        rp_plan_destroy(plans[1]);
    }
    return code;
}

/* Sums of all heads, and scratch for one row. */
typedef struct summing {
    head_sums *sums;
    double *row;
    const int *bin_at;
    int64_t heads, length;
} summing;

/* Add every row of every head of a layer to the sums. */
static rp_status add_layer(void *context, int64_t layer, const rp_tensors *t, rp_plan *plans[2])
{
    const summing *s = context;
    double *plain = s->row, *score = s->row + s->length, *w = s->row + 2 * s->length;
    rp_row with = {.score = score, .weights = w}, without = {.score = plain};
    rp_status status = RP_OK;
    for (int64_t h = 0; h < s->heads; h++)
        for (int64_t i = 0; i < s->length && status == RP_OK; i++) {
            status = rp_attend_row(plans[0], t, 0, h, i, &with);
            status = status == RP_OK ? rp_attend_row(plans[1], t, 0, h, i, &without) : status;
            if (status == RP_OK)
                add_row(&s->sums[layer * s->heads + h], i + 1, score, plain, w, s->bin_at);
        }
    return status;
}

static json_t *json_of(const nn_model *m, const head_sums *sums, int64_t length, int64_t windows, int64_t step)
{
    json_t *offsets = json_array(), *layers = json_array();
    const int bins = bin_of(length - 1) + 1;
    for (int x = 0; x < bins; x++) {
        const int64_t last = bin_from(x + 1) < length ? bin_from(x + 1) - 1 : length - 1;
        json_array_append_new(offsets, json_pack("[I, I]", (json_int_t)bin_from(x), (json_int_t)last));
    }
    for (int64_t l = 0; l < m->c.layers; l++) {
        json_t *heads = json_array();
        for (int64_t h = 0; h < m->c.heads; h++) {
            const head_sums *s = &sums[l * m->c.heads + h];
            json_t *bias = json_array(), *spread = json_array(), *weight = json_array();
            for (int x = 0; x < bins; x++) {
                const bin *b = &s->bins[x];
                const double mean = b->p / b->n, var = b->p2 / b->n - mean * mean;
                json_array_append_new(bias, lab_number(mean));
                json_array_append_new(spread, lab_number(var > 1e-12 * b->p2 / b->n ? sqrt(var) : 0));
                json_array_append_new(weight, lab_number(b->weight / b->n));
            }
            json_array_append_new(heads, json_pack("{s:o, s:o, s:o, s:o, s:o}", "share",
                                                   lab_number(lab_position_fraction(s->var_p, s->var_c)), "distance",
                                                   lab_number(s->distance / s->rows), "position", bias, "spread",
                                                   spread, "weight", weight));
        }
        json_array_append_new(layers, heads);
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "inspect", m->c.position, "seed",
                     (json_int_t)m->c.seed, "step", (json_int_t)step, "trained", (json_int_t)m->c.length, "length",
                     (json_int_t)length, "windows", (json_int_t)windows, "distances", offsets, "layers", layers);
}

static void print(const nn_model *m, const head_sums *sums, int64_t length, int64_t windows)
{
    const int octaves = octave_of(length - 1) + 1;
    printf("position %s, trained at length %lld; %lld windows of %lld bytes\n", m->c.position, (long long)m->c.length,
           (long long)windows, (long long)length);
    printf("                           mean  %% of the weight by distance\n"
           "layer head  position %% distance");
    for (int x = 0; x < octaves; x++) {
        char name[16];
        snprintf(name, sizeof name, "%d%s", x ? 1 << (x - 1) : 0, x + 1 == octaves ? "-" : "");
        printf(" %4s", name);
    }
    putchar('\n');
    for (int64_t x = 0; x < m->c.layers * m->c.heads; x++) {
        const head_sums *s = &sums[x];
        printf("%5lld %4lld %11.1f %8.1f", (long long)(x / m->c.heads), (long long)(x % m->c.heads),
               100 * lab_position_fraction(s->var_p, s->var_c), s->distance / s->rows);
        for (int o = 0; o < octaves; o++)
            printf(" %4.1f", 100 * s->octave[o] / s->rows);
        putchar('\n');
    }
}

static int run(const cli_command *self, int argc, char **argv)
{
    request q = {.bytes = 4096};
    const char *path;
    char err[NN_ERR_MAX] = "out of memory while reading the heads (use a shorter --length)";
    int n, code = cli_options(self, argc, argv, on_option, &q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "lab inspect: no run was given (write relpos lab inspect out/run)");
    nn_model m;
    nn_net *net = NULL;
    rp_pool *pool = NULL;
    nn_text held_out = {0};
    int64_t step;
    if ((code = lab_open(&m, path, &step, 1, &pool)) != CLI_OK)
        return code;
    const int64_t length = q.length ? q.length : m.c.length, heads = m.c.layers * m.c.heads;
    int32_t *tokens = malloc((size_t)length * sizeof *tokens);
    double *row = malloc((size_t)length * 3 * sizeof *row);
    int *bin_at = malloc((size_t)length * sizeof *bin_at);
    head_sums *sums = calloc((size_t)heads, sizeof *sums);
    int64_t windows = 0;
    int state = tokens && row && bin_at && sums && lab_held_out(&m, q.text, &held_out, err) == 0 ? 0 : -1;
    if (state == 0 && held_out.n < length)
        state =
            nn_fail(err, "text: it has %lld bytes, but the length is %lld (use a longer --text or a shorter --length)",
                    (long long)held_out.n, (long long)length);
    if (state == 0)
        state = lab_net(&net, &m, pool, 1, length, false, 0, err);
    if (state == 0) {
        const int64_t bytes = q.bytes < held_out.n ? q.bytes : held_out.n;
        windows = bytes < length ? 1 : bytes / length;
    }
    cli_progress bar = {.what = "inspect"};
    for (int64_t d = 0; d < length && state == 0; d++)
        bin_at[d] = bin_of(d);
    for (int64_t w = 0; w < windows && state == 0; w++) {
        for (int64_t x = 0; x < length; x++)
            tokens[x] = held_out.tokens[w * length + x];
        nn_begin_windows(&m.c, 1, length, tokens);
        state =
            lab_visit_layers(net, &m, tokens, length, add_layer, &(summing){sums, row, bin_at, m.c.heads, length}, err);
        cli_progress_show(&bar, (double)(w + 1) / (double)windows);
    }
    cli_progress_end(&bar);
    if (state != 0)
        code = cli_error(CLI_FAILED, "lab inspect: %s", err);
    else if (q.json)
        code = lab_write_line(stdout, "standard output", json_of(&m, sums, length, windows, step), err) == 0
                   ? CLI_OK
                   : cli_error(CLI_FAILED, "%s", err);
    else
        print(&m, sums, length, windows);
    free(sums);
    free(bin_at);
    free(row);
    free(tokens);
    nn_text_free(&held_out);
    nn_net_destroy(net);
    nn_model_destroy(&m);
    rp_pool_destroy(pool);
    return code;
}

const cli_command lab_inspect = {
    .name = "lab inspect",
    .summary = "show how each head uses positions, by distance, over a text",
    .usage = "DIR|FILE [options]",
    .example = "  relpos lab inspect out/run\n"
               "  relpos lab inspect out/run --length 512 --json\n",
    .options = options,
    .run = run,
};
