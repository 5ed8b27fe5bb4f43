/* verify_model.c -- relpos t5 verify: for each type of weights, compare the model with plain loops in double, and check
 * that its bits do not depend on batches, steps or threads. Uses only public functions of the library.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/t5.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JSON = T5_OWN };
enum { NEW = 12, NOISY = 3, MARGIN = 8, ROUNDING_MARGIN = 2, THREADS = 3, MAX_LINES = 64 };

static const cli_option options[] = {
    {"text", T5_TEXT, "TEXT", "read one line from the command line instead of a file; default: three short lines"},
    {"json", JSON, NULL, "print one JSON object for each check"},
    T5_TOKENS_OPTION,
    T5_COMMON_OPTIONS_WITH("default: one after the other, or that of a file", "default 3"),
    {0},
};

typedef struct request {
    cli_t5_common common;
    const char *path, *lines, *text;
    bool json, all_types;
    int checked, failed;
    double worst; /* largest ratio of an error to its bound */
    cli_progress progress;
    double done, all; /* passes of the reference that are done, and all of them */
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case T5_TEXT: r->text = value; return CLI_OK;
    case JSON: r->json = true; return CLI_OK;
    default: return cli_t5_common_option(&r->common, key, value);
    }
}

/* What the model computed for the lines. */
typedef struct outcome {
    int64_t n, rows, longest;
    rp_t5_tokens source[MAX_LINES];
    bool finite;   /* false: results are NaN or infinite, so nothing is compared */
    float *hidden; /* [rows, d] */
    rp_t5_results *results;
} outcome;

static int no_memory(void)
{
    return cli_error(CLI_FAILED, "t5 verify: out of memory while reading the lines (give fewer or shorter lines)");
}

static int on_progress(void *context, double fraction)
{
    request *r = context;
    return cli_t5_progress(&r->progress, (r->done + fraction) / r->all);
}

/* ------------------------------------------------------------------------------------------------ output */

/* The error that comes closest to its bound, of all lines. `unrounded` is the error of a model that does not round the
 * inputs of linear layers. */
typedef struct compared {
    double error, bound, unrounded;
} compared;

static double ratio_of(double error, double bound)
{
    if (isnan(error) || isnan(bound))
        return INFINITY;
    return bound > 0 ? error / bound : error > 0 ? INFINITY : 0;
}

static bool rounds_inputs(const char *type)
{
    return strcmp(type, "f32") != 0 && strcmp(type, "f16") != 0;
}

static void begin_check(request *r, const char *what, bool good)
{
    const char *type = rp_t5_about(r->common.model)->type;
    r->checked++;
    r->failed += !good;
    cli_progress_end(&r->progress);
    r->progress.shown = 0;
    if (r->json)
        printf("{\"type\": \"%s\", \"check\": \"%s\", \"passed\": %s", type, what, good ? "true" : "false");
    else
        printf("%-6s%-28s", type, what);
}

static void print_law(request *r, const char *what, const char *holds, const char *fails, bool good)
{
    begin_check(r, what, good);
    puts(r->json ? "}" : good ? holds : fails);
    fflush(stdout);
}

static void print_error(request *r, const char *what, const compared *c)
{
    const bool good = c->error <= c->bound; /* false if either is NaN */
    const bool rounds = rounds_inputs(rp_t5_about(r->common.model)->type);
    begin_check(r, what, good);
    r->worst = fmax(r->worst, ratio_of(c->error, c->bound));
    if (r->json) {
        cli_json_numbers(stdout, (cli_json_member[]){{"error", "%.9g", c->error},
                                                     {"bound", "%.9g", c->bound},
                                                     {"unrounded", "%.9g", c->unrounded},
                                                     {0}});
        puts("}");
    } else {
        printf("error %.2e, bound %.2e", c->error, c->bound);
        if (rounds)
            printf(", without rounding %.2e", c->unrounded);
        puts(good ? "" : "   FAILED");
    }
    fflush(stdout);
}

/* ------------------------------------------------------------------------------------------------ lines */

static const char *const default_lines[] = {"relpos", "The cat sat on the mat, and it slept.",
                                            "translate English to German: 42 houses, one garden; where is the key?"};
enum { DEFAULT_LINES = sizeof default_lines / sizeof *default_lines };

/* Make up tokens for a default line if the model has no tokenizer. */
static int default_tokens(const request *r, int line, int32_t **tokens, int64_t *n)
{
    *n = 1 + 9 * line;
    *tokens = malloc((size_t)*n * sizeof **tokens);
    for (int64_t k = 0; *tokens != NULL && k < *n; k++)
        (*tokens)[k] = (int32_t)((k * 7919 + 13 * line + 2) % rp_t5_about(r->common.model)->vocab);
    return *tokens != NULL ? CLI_OK : no_memory();
}

static int add_line(const request *r, outcome *o, const cli_lines *l, const char *line, int64_t length)
{
    int32_t *tokens;
    int64_t n;
    if (o->n == MAX_LINES)
        return cli_error(CLI_USAGE, "t5 verify: there are more than %d lines (give fewer)", MAX_LINES);
    const int code = cli_t5_read_tokens(&r->common, l, "", line, length, &tokens, &n);
    if (code != CLI_OK)
        return code;
    o->source[o->n++] = (rp_t5_tokens){tokens, n};
    for (int64_t k = 0; k < n; k++)
        if (tokens[k] >= rp_t5_about(r->common.model)->vocab)
            return cli_error(CLI_FAILED, "line %lld: token %lld is %d, and the vocabulary has %lld (use 0 to %lld)",
                             (long long)l->number, (long long)k, (int)tokens[k],
                             (long long)rp_t5_about(r->common.model)->vocab,
                             (long long)rp_t5_about(r->common.model)->vocab - 1);
    return CLI_OK;
}

static int read_lines(const request *r, outcome *o)
{
    cli_lines l = {0};
    const char *line;
    int64_t length = 0;
    int code = CLI_OK;
    if (r->lines == NULL && r->text == NULL) {
        for (int k = 0; k < DEFAULT_LINES && code == CLI_OK; k++) {
            int32_t *tokens;
            int64_t n;
            if (rp_t5_about(r->common.model)->has_tokenizer && !r->common.tokens) {
                code = add_line(r, o, &l, default_lines[k], (int64_t)strlen(default_lines[k]));
                continue;
            }
            if ((code = default_tokens(r, k, &tokens, &n)) == CLI_OK)
                o->source[o->n++] = (rp_t5_tokens){tokens, n};
        }
        return code;
    }
    code = cli_lines_open(&l, r->lines, r->text, r->common.tokens);
    while (code == CLI_OK) {
        code = cli_lines_next(&l, &line, &length);
        if (code != CLI_OK || length < 0)
            break;
        code = add_line(r, o, &l, line, length);
    }
    cli_lines_close(&l);
    return code;
}

/* ------------------------------------------------------------------------------------------------ the fast code */

/* Handle the status of a call. RP_E_RANGE can only mean NaN or infinite results, because all tokens are in the
 * vocabulary. */
static int computed(outcome *o, rp_status status)
{
    o->finite = status != RP_E_RANGE;
    return status == RP_OK || status == RP_E_RANGE ? CLI_OK : cli_t5_refused("t5 verify");
}

/* Read the lines, and compute hidden states and greedy targets. */
static int compute(request *r, outcome *o)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    int code = read_lines(r, o);
    for (int64_t s = 0; s < o->n; s++) {
        o->rows += o->source[s].n;
        o->longest = o->source[s].n > o->longest ? o->source[s].n : o->longest;
    }
    o->hidden = malloc((size_t)(o->rows * i->d_model + 1) * sizeof *o->hidden);
    if (code == CLI_OK && o->hidden == NULL)
        code = no_memory();
    if (code == CLI_OK)
        code = computed(o, rp_t5_encode(r->common.model, o->n, o->source, o->hidden, cli_t5_progress, &r->progress));
    if (code != CLI_OK || !o->finite || i->decoder_layers == 0)
        return code;
    rp_t5_generation g = cli_t5_greedy(r->common.model);
    g.max_new_tokens = NEW;
    g.scores = 1;
    return computed(o, rp_t5_generate(r->common.model, o->n, o->source, &g, &o->results));
}

/* Check that weights and results are finite. If not, nothing can be compared. */
static void check_finite(request *r, const outcome *o)
{
    const bool good = o->finite && rp_t5_about(r->common.model)->not_finite == 0;
    print_law(r, "weights and results", "finite", "NaN or infinite   FAILED", good);
}

/* Check the checksum of a packed file. */
static int check_file(request *r)
{
    if (rp_t5_about(r->common.model)->packed == 0)
        return CLI_OK;
    const rp_status status = rp_t5_check_file(r->common.model, cli_t5_progress, NULL);
    if (status == RP_E_CANCELLED)
        return cli_t5_refused("t5 verify");
    if (status == RP_E_UNSUPPORTED && r->json)
        return CLI_OK; /* the file has no checksum */
    print_law(r, "checksum of the file",
              status == RP_OK ? "correct" : "none: packed by relpos 0.1 (pack the folder again)", "wrong   FAILED",
              status != RP_E_ARG);
    return CLI_OK;
}

static void free_outcome(outcome *o)
{
    for (int64_t s = 0; s < o->n; s++)
        rp_t5_free((void *)(uintptr_t)o->source[s].tokens);
    free(o->hidden);
    rp_t5_results_free(o->results);
    *o = (outcome){0};
}

/* Check that each line gives the same bits when computed alone as in the batch. */
static int check_alone(request *r, const outcome *o)
{
    const int64_t d = rp_t5_about(r->common.model)->d_model;
    float *alone = malloc((size_t)(o->longest * d + 1) * sizeof *alone);
    const float *at = o->hidden;
    bool good = true;
    int code = alone != NULL ? CLI_OK : no_memory();
    for (int64_t s = 0; s < o->n && code == CLI_OK; at += o->source[s++].n * d) {
        if (rp_t5_encode(r->common.model, 1, &o->source[s], alone, NULL, NULL) != RP_OK)
            code = cli_t5_refused("t5 verify");
        else
            good = good && memcmp(alone, at, (size_t)(o->source[s].n * d) * sizeof *at) == 0;
    }
    if (code == CLI_OK)
        print_law(r, "one line, or a batch", "same bits", "different bits   FAILED", good);
    free(alone);
    return code;
}

/* Compute the logits of a target one token at a time. */
static int step_logits(const request *r, rp_t5_tokens source, rp_t5_tokens target, float *logits)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    const int32_t parent = 0;
    rp_t5_session *session = NULL;
    rp_status status = rp_t5_begin(&session, r->common.model, 1, &source, target.n);
    for (int64_t k = 0; k < target.n && status == RP_OK; k++) {
        const int32_t token = k > 0 ? target.tokens[k - 1] : i->start;
        status = rp_t5_step(session, 1, &parent, &token, logits + k * i->vocab);
    }
    rp_t5_end(session);
    return status == RP_OK ? CLI_OK : cli_t5_refused("t5 verify");
}

/* Check that a target has the same score whether computed in one step or token by token, and that each of its tokens
 * has the largest logit. */
static int check_steps(request *r, const outcome *o)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    float *logits = malloc((size_t)(NEW * i->vocab) * sizeof *logits);
    bool same = true, likeliest = true;
    int code = logits != NULL ? CLI_OK : no_memory();
    for (int64_t s = 0; s < o->n && code == CLI_OK; s++) {
        const rp_t5_sequence *q = rp_t5_result(o->results, s);
        const rp_t5_tokens target = {q->tokens, q->n};
        double total;
        if (rp_t5_score(r->common.model, o->source[s], target, &total, NULL, NULL, NULL) != RP_OK)
            code = cli_t5_refused("t5 verify");
        else
            code = step_logits(r, o->source[s], target, logits);
        same = same && code == CLI_OK && memcmp(&total, &q->score, sizeof total) == 0;
        for (int64_t k = 0; k < q->n && code == CLI_OK; k++)
            for (int64_t t = 0; t < i->vocab; t++)
                likeliest = likeliest && !(logits[k * i->vocab + t] > logits[k * i->vocab + q->tokens[k]]);
    }
    if (code == CLI_OK) {
        print_law(r, "token by token, or one step", "same bits", "different bits   FAILED", same);
        print_law(r, "greedy tokens", "the likeliest", "not the likeliest   FAILED", likeliest);
    }
    free(logits);
    return code;
}

static int check_threads(request *r, const outcome *a, const outcome *b)
{
    const size_t bytes = (size_t)(a->rows * rp_t5_about(r->common.model)->d_model) * sizeof *a->hidden;
    bool good = memcmp(a->hidden, b->hidden, bytes) == 0;
    for (int64_t s = 0; s < rp_t5_results_size(a->results); s++)
        good = good && memcmp(&rp_t5_result(a->results, s)->score, &rp_t5_result(b->results, s)->score, 8) == 0;
    print_law(r, "one thread, or several", "same bits", "different bits   FAILED", good);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ the reference */

/* Hidden states and logits of one line, computed by the reference. */
typedef struct exact {
    int64_t n_hidden, n_logits;
    double *hidden, *logits;
} exact;

/* Return the number of passes of the reference for one line. */
static int passes_of(const char *type)
{
    return 1 + NOISY + (rounds_inputs(type) ? NOISY + 1 : 0);
}

static int run_reference(request *r, rp_t5_tokens source, rp_t5_tokens target, const rp_t5_rounding *how, exact *x)
{
    const rp_status status = rp_t5_reference(r->common.model, source, target, how, x->hidden,
                                             x->n_logits ? x->logits : NULL, on_progress, r);
    r->done++;
    return status == RP_OK ? CLI_OK : cli_t5_refused("t5 verify");
}

static double largest_difference(const double *x, const double *y, int64_t n)
{
    double max = 0;
    for (int64_t k = 0; k < n; k++)
        max = fabs(x[k] - y[k]) > max || isnan(x[k] - y[k]) ? fabs(x[k] - y[k]) : max;
    return max;
}

static double largest_difference_float(const float *x, const double *y, int64_t n)
{
    double max = 0;
    for (int64_t k = 0; k < n; k++) {
        const double error = fabs((double)x[k] - y[k]);
        max = error > max || isnan(error) ? error : max;
    }
    return max;
}

/* Compute the largest difference in hidden states and in logits. */
static void find_differences(const exact *x, const exact *y, double changed[2])
{
    changed[0] = largest_difference(x->hidden, y->hidden, x->n_hidden);
    changed[1] = largest_difference(x->logits, y->logits, x->n_logits);
}

/* Measure bounds for the errors of a line. x[0] holds its reference values; x[1] and x[2] are scratch. Add noise of the
 * size of f32 rounding errors to all inputs of linear layers; the bound is MARGIN times the change of the results. If
 * inputs are rounded, noise may also move an input across the midpoint between two rounded values. So also round inputs
 * near a midpoint the other way (all of them, or a random half), and add ROUNDING_MARGIN times that change of the
 * results. */
static int find_bounds(request *r, rp_t5_tokens source, rp_t5_tokens target, exact x[3], compared c[2])
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    const int64_t inner = i->heads * i->d_kv, wide = i->d_ff > i->d_model ? i->d_ff : i->d_model;
    const double noise = 0x1p-24 * sqrt((double)(inner > wide ? inner : wide));
    const bool rounds = rounds_inputs(i->type);
    const rp_t5_rounding unrounded = {.exact_inputs = 1};
    double changed[2] = {0, 0}, noisy[2] = {0, 0}, other[2] = {0, 0};
    int code = CLI_OK;
    for (int k = 0; k < NOISY && rounds && code == CLI_OK; k++) {
        const rp_t5_rounding how = {.other_way = MARGIN * noise, .seed = (uint64_t)k};
        code = run_reference(r, source, target, &how, &x[2]);
        find_differences(&x[0], &x[2], changed);
        for (int m = 0; m < 2; m++)
            other[m] = fmax(other[m], changed[m]);
    }
    if (rounds && code == CLI_OK) {
        code = run_reference(r, source, target, &unrounded, &x[1]);
        find_differences(&x[0], &x[1], changed);
        for (int m = 0; m < 2; m++)
            c[m].unrounded = changed[m];
    }
    for (int k = 1; k <= NOISY && code == CLI_OK; k++) {
        const rp_t5_rounding how = {.noise = noise, .seed = (uint64_t)k, .exact_inputs = 1};
        code = run_reference(r, source, target, &how, &x[2]);
        find_differences(&x[rounds ? 1 : 0], &x[2], changed);
        for (int m = 0; m < 2; m++)
            noisy[m] = fmax(noisy[m], changed[m]);
    }
    for (int m = 0; m < 2; m++)
        c[m].bound = MARGIN * noisy[m] + ROUNDING_MARGIN * other[m];
    return code;
}

static int compare_line(request *r, rp_t5_tokens source, rp_t5_tokens target, const float *hidden, compared worst[2])
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    exact x[3] = {{source.n * i->d_model, target.n * i->vocab, NULL, NULL}};
    float *logits = malloc((size_t)(target.n * i->vocab + 1) * sizeof *logits);
    compared own[2] = {0};
    int code = logits != NULL ? CLI_OK : no_memory();
    x[2] = x[1] = x[0];
    for (int k = 0; k < 3; k++) {
        x[k].hidden = calloc((size_t)(x[k].n_hidden + 1), sizeof(double));
        x[k].logits = calloc((size_t)(x[k].n_logits + 1), sizeof(double));
        if (code == CLI_OK && (x[k].hidden == NULL || x[k].logits == NULL))
            code = no_memory();
    }
    if (code == CLI_OK && target.n > 0)
        code = step_logits(r, source, target, logits);
    if (code == CLI_OK)
        code = run_reference(r, source, target, NULL, &x[0]);
    if (code == CLI_OK)
        code = find_bounds(r, source, target, x, own);
    if (code == CLI_OK) {
        own[0].error = largest_difference_float(hidden, x[0].hidden, x[0].n_hidden);
        own[1].error = largest_difference_float(logits, x[0].logits, x[0].n_logits);
    }
    for (int m = 0; code == CLI_OK && m < 2; m++)
        if ((worst[m].bound == 0 && worst[m].error == 0) ||
            ratio_of(own[m].error, own[m].bound) > ratio_of(worst[m].error, worst[m].bound))
            worst[m] = own[m];
    for (int k = 0; k < 3; k++) {
        free(x[k].hidden);
        free(x[k].logits);
    }
    free(logits);
    return code;
}

static int check_reference(request *r, const outcome *o)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    compared worst[2] = {0};
    const float *at = o->hidden;
    int code = CLI_OK;
    r->all = (double)o->n * (r->all_types ? 4 * passes_of("int8") + 2 * passes_of("f32") : passes_of(i->type));
    for (int64_t s = 0; s < o->n && code == CLI_OK; at += o->source[s++].n * i->d_model) {
        const rp_t5_sequence *q = o->results != NULL ? rp_t5_result(o->results, s) : NULL;
        code = compare_line(r, o->source[s], (rp_t5_tokens){q ? q->tokens : NULL, q ? q->n : 0}, at, worst);
    }
    if (code == CLI_OK)
        print_error(r, "hidden states", &worst[0]);
    if (code == CLI_OK && o->results != NULL)
        print_error(r, "logits", &worst[1]);
    return code;
}

/* ------------------------------------------------------------------------------------------------ a type */

static int open_with(request *r, const char *type, int64_t threads)
{
    r->common.type = type;
    r->common.threads = threads;
    return cli_t5_open(&r->common, r->path);
}

static int verify_type(request *r, const char *type, int64_t threads)
{
    outcome several = {0}, one = {0};
    int code = open_with(r, type, threads);
    if (code == CLI_OK)
        code = check_file(r);
    if (code == CLI_OK)
        code = compute(r, &several);
    if (code == CLI_OK)
        check_finite(r, &several);
    if (code == CLI_OK && several.finite)
        code = check_reference(r, &several);
    if (code == CLI_OK && several.finite)
        code = check_alone(r, &several);
    if (code == CLI_OK && several.finite && several.results != NULL)
        code = check_steps(r, &several);
    cli_t5_close(&r->common);
    if (code != CLI_OK || !several.finite || (code = open_with(r, type, 1)) != CLI_OK) {
        cli_t5_close(&r->common);
        free_outcome(&several);
        return code;
    }
    code = compute(r, &one);
    if (code == CLI_OK)
        code = check_threads(r, &several, &one);
    cli_t5_close(&r->common);
    free_outcome(&several);
    free_outcome(&one);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const char *const types[] = {"f32", "f16", "bf16", "int8", "int4", "q8"};
    request r = {.progress = {.what = "t5 verify"}};
    const char *args[2] = {NULL, NULL}, *only;
    char err[IO_ERR_MAX];
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "t5 verify: no model was given (write relpos t5 verify DIR)");
    const int64_t threads = r.common.threads > 0 ? r.common.threads : THREADS;
    r.path = args[0];
    r.lines = args[1];
    only = r.common.type;
    bool folder;
    if (io_is_folder(r.path, &folder, err) != IO_OK)
        return cli_error(CLI_FAILED, "%s", err);
    const int n_types = folder && only == NULL ? (int)(sizeof types / sizeof *types) : 1;
    r.all_types = n_types > 1;
    cli_progress_show(&r.progress, 0);
    code = CLI_OK;
    for (int t = 0; t < n_types && code == CLI_OK; t++)
        code = verify_type(&r, n_types > 1 ? types[t] : only, threads);
    cli_progress_end(&r.progress);
    if (code == CLI_OK && !r.json)
        printf("%d checks, %d failed; largest error / bound %.3f\n", r.checked, r.failed, r.worst);
    return code != CLI_OK ? code : r.failed ? CLI_FAILED : CLI_OK;
}

const cli_command cli_t5_verify = {
    .name = "t5 verify",
    .summary = "check that a model computes correctly on this machine",
    .usage = "DIR|FILE [LINES] [options]",
    .example = "  relpos t5 verify flan-t5-small\n  relpos t5 verify flan.relpos --text 'translate English to German: "
               "Good morning.'\n",
    .options = options,
    .run = run,
};
