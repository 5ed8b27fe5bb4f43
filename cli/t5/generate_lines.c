/* generate_lines.c -- relpos t5 generate: write a target for each line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"
#include "cli/t5/t5.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OUT = 'o',
    BEAMS = T5_OWN,
    NEW,
    MIN_NEW,
    RETURN,
    PENALTY,
    EARLY,
    SAMPLE,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    SEED,
    REPETITION,
    NGRAM,
    PREFIX,
    BEGIN,
    FORCED,
    SUPPRESS,
    BEGIN_SUPPRESS,
    STOP,
    BATCH,
    SCORES,
    STATS
};
enum { MAX_STOPS = 16, TASKS = 64 }; /* TASKS: max batches in memory for each process of a team */

static const cli_option options[] = {
    {"output", OUT, "FILE",
     "write the lines to FILE, which is replaced only after the last line; default: standard output"},
    {"text", T5_TEXT, "TEXT", "read one line from the command line instead of a file"},
    {"prefix", PREFIX, "TEXT", "put TEXT before every line, such as \"summarize: \""},
    {"max-new-tokens", NEW, "N", "end after N new tokens; default: set by the model, else 256"},
    {"min-new-tokens", MIN_NEW, "N", "do not end before N new tokens; default: set by the model, else 0"},
    {"beams", BEAMS, "N", "search with N beams; 1: greedy; default: set by the model, else 1"},
    {"return", RETURN, "N", "print the best N beams, or N samples, one per line; default: set by the model, else 1"},
    {"length-penalty", PENALTY, "X", "with beams: divide log-probabilities by length to the power X"},
    {"early-stopping", EARLY, "WHEN", "with beams: when to stop, as in transformers: true, false or never"},
    {"sample", SAMPLE, NULL, "sample each token"},
    {"temperature", TEMPERATURE, "X", "with --sample: divide logits by X; below 1, likely tokens become likelier"},
    {"top-k", TOP_K, "N",
     "with --sample: sample from the N likeliest tokens; 0: from all; default: set by the model, else 50"},
    {"top-p", TOP_P, "X", "with --sample: sample from the likeliest tokens with total probability X"},
    {"seed", SEED, "N", "with --sample: use seed N; the same seed gives the same lines; default 0"},
    {"repetition-penalty", REPETITION, "X", "make tokens that were already written less likely (X above 1)"},
    {"no-repeat-ngram", NGRAM, "N", "do not repeat any N consecutive tokens"},
    {"begin", BEGIN, "TEXT", "begin every output with TEXT"},
    {"forced-bos-token", FORCED, "N", "begin every output with token N"},
    {"suppress-tokens", SUPPRESS, "LIST", "never write these token numbers"},
    {"begin-suppress-tokens", BEGIN_SUPPRESS, "LIST", "never write these token numbers as the first token"},
    {"stop", STOP, "TEXT", "end when the output contains TEXT; may be given several times"},
    {"batch", BATCH, "N", "compute N lines together: faster, with the same text; default 1"},
    {"scores", SCORES, NULL, "print the score and a tab before each line"},
    {"stats", STATS, NULL, "report the speed, and the fraction of the memory's bandwidth, on standard error"},
    T5_DRAFT_OPTIONS,
    T5_KEEP_SPECIAL_OPTION,
    T5_TOKENS_OPTION,
    T5_COMMON_OPTIONS,
    {0},
};

/* The options that were given. All others keep the model's defaults. */
typedef struct request {
    cli_t5_common common;
    bool given[STATS + 1];
    int64_t integer[STATS + 1];
    double real[STATS + 1];
    const char *output, *text, *prefix, *begin, *early, *stop[MAX_STOPS];
    const char *suppress, *begin_suppress;
    int32_t n_stop;
    int64_t batch;
    bool scores, stats;
} request;

static int take_integer(request *r, int key, const char *option, const char *value, int64_t min, int64_t max)
{
    r->given[key] = true;
    return cli_integer(option, value, min, max, &r->integer[key]);
}

static int take_real(request *r, int key, const char *option, const char *value)
{
    r->given[key] = true;
    return cli_real(option, value, &r->real[key]);
}

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case OUT: r->output = value; return CLI_OK;
    case T5_TEXT: r->text = value; return CLI_OK;
    case PREFIX: r->prefix = value; return CLI_OK;
    case BEGIN: r->begin = value; return CLI_OK;
    case SUPPRESS: r->suppress = value; return CLI_OK;
    case BEGIN_SUPPRESS: r->begin_suppress = value; return CLI_OK;
    case FORCED: return take_integer(r, key, "--forced-bos-token", value, 0, INT32_MAX);
    case NEW: return take_integer(r, key, "--max-new-tokens", value, 1, 1 << 24);
    case MIN_NEW: return take_integer(r, key, "--min-new-tokens", value, 0, 1 << 24);
    case BEAMS: return take_integer(r, key, "--beams", value, 1, 4096);
    case RETURN: return take_integer(r, key, "--return", value, 1, 4096);
    case TOP_K: return take_integer(r, key, "--top-k", value, 0, INT32_MAX);
    case SEED: return take_integer(r, key, "--seed", value, 0, INT64_MAX);
    case NGRAM: return take_integer(r, key, "--no-repeat-ngram", value, 0, 1 << 24);
    case BATCH: return cli_integer("--batch", value, 1, 65536, &r->batch);
    case PENALTY: return take_real(r, key, "--length-penalty", value);
    case TEMPERATURE: return take_real(r, key, "--temperature", value);
    case TOP_P: return take_real(r, key, "--top-p", value);
    case REPETITION: return take_real(r, key, "--repetition-penalty", value);
    case EARLY: r->early = value; return CLI_OK;
    case SAMPLE: r->given[SAMPLE] = true; return CLI_OK;
    case SCORES: r->scores = true; return CLI_OK;
    case STATS: r->stats = true; return CLI_OK;
    case STOP:
        if (r->n_stop == MAX_STOPS)
            return cli_error(CLI_USAGE, "--stop: it was given more than %d times (remove some)", MAX_STOPS);
        r->stop[r->n_stop++] = value;
        return CLI_OK;
    default: return cli_t5_common_option(&r->common, key, value);
    }
}

/* Combine the model's defaults with the given options. */
static int settings(const request *r, rp_t5_generation *g)
{
    char safe[64];
    *g = rp_t5_generation_of(r->common.model);
    if (r->given[SAMPLE])
        g->sample = 1, g->beams = 1;
    if (r->given[BEAMS])
        g->beams = (int32_t)r->integer[BEAMS], g->sample = r->given[SAMPLE];
    if (r->given[RETURN])
        g->returned = (int32_t)r->integer[RETURN];
    else if (r->given[BEAMS] && !g->sample && g->returned > g->beams)
        g->returned = g->beams;
    if (r->given[NEW])
        g->max_new_tokens = r->integer[NEW];
    if (r->given[MIN_NEW])
        g->min_new_tokens = r->integer[MIN_NEW];
    else if (g->min_new_tokens > g->max_new_tokens)
        g->min_new_tokens = g->max_new_tokens;
    if (r->given[PENALTY])
        g->length_penalty = r->real[PENALTY];
    if (r->given[TEMPERATURE])
        g->temperature = r->real[TEMPERATURE];
    if (r->given[TOP_K])
        g->top_k = r->integer[TOP_K];
    if (r->given[TOP_P])
        g->top_p = r->real[TOP_P];
    if (r->given[SEED])
        g->seed = (uint64_t)r->integer[SEED];
    if (r->given[REPETITION])
        g->repetition_penalty = r->real[REPETITION];
    if (r->given[NGRAM])
        g->no_repeat_ngram = r->integer[NGRAM];
    if (r->given[FORCED])
        g->forced_first = (int32_t)r->integer[FORCED];
    g->scores = r->scores;
    if (r->n_stop > 0) {
        g->stop = r->stop;
        g->n_stop = r->n_stop;
    }
    if (r->early == NULL)
        return CLI_OK;
    if (strcmp(r->early, "true") == 0)
        g->early_stopping = RP_T5_STOP_FIRST;
    else if (strcmp(r->early, "false") == 0)
        g->early_stopping = RP_T5_STOP_LIKELY;
    else if (strcmp(r->early, "never") == 0)
        g->early_stopping = RP_T5_STOP_NEVER_EARLY;
    else
        return cli_error(CLI_USAGE, "--early-stopping: the value \"%s\" is unknown (use true, false or never)",
                         io_safe(safe, sizeof safe, r->early));
    return CLI_OK;
}

static bool within(double x, double min, double max)
{
    return x >= min && x <= max;
}

/* Reject options that would have no effect. */
static int check_effect(const request *r, const rp_t5_generation *g)
{
    static const struct {
        int key;
        const char *name;
    } sampling[] = {{TEMPERATURE, "--temperature"}, {TOP_K, "--top-k"}, {TOP_P, "--top-p"}, {SEED, "--seed"}};
    for (size_t k = 0; k < sizeof sampling / sizeof *sampling; k++)
        if (r->given[sampling[k].key] && !g->sample)
            return cli_error(CLI_USAGE, "%s: only sampling uses it (add --sample)", sampling[k].name);
    if ((r->given[PENALTY] || r->early != NULL) && g->beams == 1)
        return cli_error(CLI_USAGE, "%s: only a search with several beams uses it (add --beams 4)",
                         r->given[PENALTY] ? "--length-penalty" : "--early-stopping");
    if (r->common.keep_special && r->common.tokens)
        return cli_error(CLI_USAGE, "--keep-special-tokens: --tokens prints the numbers of all tokens (remove one of "
                                    "them)");
    if (r->common.draft != NULL && g->beams > 1)
        return cli_error(CLI_USAGE,
                         "--exact: it needs one beam, but the search has %d (use --beams 1, or remove --exact)",
                         (int)g->beams);
    return CLI_OK;
}

/* Check the options here, so messages name options, not fields of rp_t5_generation. */
static int check_options(const request *r, const rp_t5_generation *g)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    const long long beams = g->beams, max = i->vocab / 2;
    if (r->given[BEAMS] && beams > max)
        return cli_error(CLI_USAGE, "--beams: %lld is above %lld, half of the vocabulary (use fewer)", beams, max);
    if (r->given[SAMPLE] && beams > 1)
        return cli_error(CLI_USAGE, "--sample: it needs one beam, but --beams is %lld (remove one of them)", beams);
    if (r->given[RETURN] && !g->sample && g->returned > g->beams)
        return cli_error(CLI_USAGE, "--return: %d is above the number of beams, %lld (use more --beams, or --sample)",
                         (int)g->returned, beams);
    if (r->given[MIN_NEW] && g->min_new_tokens > g->max_new_tokens)
        return cli_error(CLI_USAGE, "--min-new-tokens: %lld is above --max-new-tokens, which is %lld (use fewer)",
                         (long long)g->min_new_tokens, (long long)g->max_new_tokens);
    if (r->given[PENALTY] && !within(g->length_penalty, -100, 100))
        return cli_error(CLI_USAGE, "--length-penalty: %g is out of range (-100 to 100)", g->length_penalty);
    if (r->given[TEMPERATURE] && !(g->temperature > 0 && g->temperature <= 1e6))
        return cli_error(CLI_USAGE, "--temperature: %g is out of range (above 0, up to 1e6)", g->temperature);
    if (r->given[TOP_P] && !(g->top_p > 0 && g->top_p <= 1))
        return cli_error(CLI_USAGE, "--top-p: %g is out of range (above 0, up to 1)", g->top_p);
    if (r->given[REPETITION] && !within(g->repetition_penalty, 1e-6, 1e6))
        return cli_error(CLI_USAGE, "--repetition-penalty: %g is out of range (1e-6 to 1e6)", g->repetition_penalty);
    if (r->given[FORCED] && g->forced_first >= i->vocab)
        return cli_error(CLI_USAGE, "--forced-bos-token: %d is not in the vocabulary (0 to %lld)", (int)g->forced_first,
                         (long long)i->vocab - 1);
    for (int32_t k = 0; k < r->n_stop; k++)
        if (*r->stop[k] == 0)
            return cli_error(CLI_USAGE, "--stop: the text is empty (give the text that ends an output)");
    if (r->n_stop > 0 && !i->has_tokenizer)
        return cli_error(CLI_USAGE, "--stop: the model has no tokenizer (remove --stop)");
    return check_effect(r, g);
}

/* Convert the text of --begin to tokens, without the end token. */
static int begin_tokens(const request *r, rp_t5_generation *g, int32_t **tokens)
{
    char why[128];
    int64_t n;
    *tokens = NULL;
    if (r->begin == NULL)
        return CLI_OK;
    if (r->common.tokens) {
        if (!cli_t5_numbers(r->begin, (int64_t)strlen(r->begin), tokens, &n, why))
            return cli_error(CLI_USAGE, "--begin: %s (with --tokens, write numbers with spaces between them)", why);
    } else {
        if (rp_t5_tokenize(r->common.model, r->begin, -1, tokens, &n) != RP_OK)
            return cli_t5_refused("--begin");
        if (n > 0 && (*tokens)[n - 1] == rp_t5_about(r->common.model)->eos)
            n--;
    }
    g->prefix = (rp_t5_tokens){*tokens, n};
    return CLI_OK;
}

/* Parse the token list of an option; list = NULL if the option was not given. */
static int list_tokens(const request *r, const char *option, const char *list, rp_t5_tokens *to, int32_t **tokens)
{
    const int64_t vocab = rp_t5_about(r->common.model)->vocab;
    char why[128];
    int64_t n;
    *tokens = NULL;
    if (list == NULL)
        return CLI_OK;
    if (!cli_t5_numbers(list, (int64_t)strlen(list), tokens, &n, why))
        return cli_error(CLI_USAGE, "%s: %s (give token numbers between spaces or commas)", option, why);
    for (int64_t k = 0; k < n; k++)
        if ((*tokens)[k] >= vocab)
            return cli_error(CLI_USAGE, "%s: %d is not in the vocabulary (0 to %lld)", option, (int)(*tokens)[k],
                             (long long)vocab - 1);
    *to = (rp_t5_tokens){*tokens, n};
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ streaming a line */

/* Statistics of lines. */
typedef struct counts {
    int64_t written; /* tokens */
    rp_t5_drafted drafted;
} counts;

/* The lines of a command. */
typedef struct work {
    const request *r;
    const rp_t5_generation *g;
    FILE *to;
    cli_lines *lines;
    cli_progress progress;
    double from;    /* start time, in seconds */
    char note[64];  /* note of the progress bar */
    int64_t n_read; /* lines */
    bool end;       /* of the lines */
    counts all;     /* of the results that were written */
} work;

/* The line that is being generated, and how much of it has been printed. */
typedef struct stream {
    work *w;
    const cli_t5_common *common;
    FILE *to;
    int64_t number; /* of the line, from 1 */
    int32_t *tokens;
    int64_t n, printed; /* printed: tokens or bytes of this line */
    size_t capacity;
    bool on;   /* print the line while it is being generated */
    bool lost; /* out of memory for the tokens of the line */
    counts counts;
} stream;

/* Return the length of the text that further tokens cannot change: everything except an incomplete last character, or
 * what the clean-up of spaces may change (see rp_t5_detokenize). */
static int64_t settled(const rp_t5 *m, const char *text, int64_t size)
{
    if (rp_t5_about(m)->cleans_up) {
        const int64_t from = size > 22 ? size - 22 : 0;
        const char *space = memchr(text + from, ' ', (size_t)(size - from));
        size = space != NULL ? space - text : size;
    }
    return size >= 3 && memcmp(text + size - 3, "\xef\xbf\xbd", 3) == 0 ? size - 3 : size;
}

static void show(stream *s, bool end)
{
    char *text;
    int64_t size;
    if (s->common->tokens) {
        for (; s->printed < s->n; s->printed++)
            fprintf(s->to, s->printed ? " %d" : "%d", (int)s->tokens[s->printed]);
    } else if (cli_t5_text(s->common, s->tokens, s->n, &text, &size) == RP_OK) {
        const int64_t to = end ? size : settled(s->common->model, text, size);
        if (to > s->printed) {
            cli_put_text(s->to, text + s->printed, to - s->printed);
            s->printed = to;
        }
        rp_t5_free(text);
    } else {
        s->lost = true;
    }
}

/* Show the speed, with `more` tokens besides those that were written. With a single line, the output itself shows
 * progress. */
static void show_speed(work *w, int64_t more)
{
    if (w->lines->number <= 1)
        return;
    snprintf(w->note, sizeof w->note, "%.0f tokens per second",
             (double)(w->all.written + more) / (cli_seconds() - w->from));
    cli_show_lines(&w->progress, w->lines, w->to);
}

static int on_token(void *context, int64_t source, int32_t index, int32_t token)
{
    stream *s = context;
    (void)source;
    (void)index;
    s->counts.written++;
    if (cli_team_ranks() == 1)
        show_speed(s->w, s->counts.written);
    if (!s->on)
        return 0;
    int32_t *tokens = io_grow(s->tokens, &s->capacity, (size_t)s->n, sizeof *tokens);
    if (tokens == NULL) {
        s->lost = true;
        return 1;
    }
    s->tokens = tokens;
    s->tokens[s->n++] = token;
    show(s, false);
    return s->lost || !cli_flush(s->to); /* stop if the reader has closed the output */
}

/* ------------------------------------------------------------------------------------------------ lines */

static int no_memory(void)
{
    return cli_error(CLI_FAILED, "t5 generate: out of memory while preparing a batch (use a smaller --batch)");
}

static int lost_line(const stream *s)
{
    return cli_error(CLI_FAILED, "line %lld: out of memory while reading its tokens (close other programs)",
                     (long long)s->number);
}

static int print_results(const request *r, stream *s, const rp_t5_results *results)
{
    for (int64_t k = 0; k < rp_t5_results_size(results); k++) {
        const rp_t5_sequence *q = rp_t5_result(results, k);
        int code = CLI_OK;
        if (s->on) {
            show(s, true);
            code = s->lost ? lost_line(s) : CLI_OK;
        } else {
            if (r->scores)
                fprintf(s->to, "%.6f\t", q->score);
            code = cli_t5_print(s->to, &r->common, q->tokens, q->n);
        }
        putc('\n', s->to);
        if (code != CLI_OK)
            return code;
    }
    return cli_flush(s->to) ? CLI_OK : CLI_FAILED;
}

/* Report why no results were generated. */
static int refused(stream *s, rp_status status, int64_t n, int64_t tokens)
{
    if (status == RP_E_CANCELLED && !cli_stop_requested())
        return s->lost ? lost_line(s) : CLI_FAILED; /* the reader has closed the output */
    if (s->on && s->n > 0 && s->w->r->output == NULL)
        putc('\n', s->to); /* end the line that was being printed */
    fflush(s->to);
    if (cli_team_ranks() == 1)
        cli_progress_end(&s->w->progress);
    if (n > 1 || status == RP_E_CANCELLED)
        return cli_t5_refused("t5 generate");
    return cli_error(CLI_FAILED, "line %lld, of %lld tokens: %s", (long long)s->number, (long long)tokens,
                     rp_t5_last_error());
}

/* Generate the targets of n sources, and print them to s->to. */
static int write_batch(stream *s, int64_t first, int64_t n, const rp_t5_tokens *sources)
{
    const request *r = s->w->r;
    rp_t5_generation g = *s->w->g;
    rp_t5_results *results;
    g.first = first;
    g.on_token = on_token;
    g.cancelled = cli_t5_stop_asked;
    g.context = s;
    s->on = cli_team_ranks() == 1 && n == 1 && g.beams == 1 && g.returned == 1 && !r->scores;
    for (int64_t k = 0; s->on && k < g.prefix.n; k++)
        on_token(s, 0, 0, g.prefix.tokens[k]);
    const rp_status status = rp_t5_generate(r->common.model, n, sources, &g, &results);
    if (status != RP_OK)
        return refused(s, status, n, sources[0].n);
    const int code = print_results(r, s, results);
    s->counts.drafted = *rp_t5_results_drafted(results);
    rp_t5_results_free(results);
    return code;
}

/* Compute a task. The result is the counts; in a team, followed by the text. Otherwise the text has been printed. */
static int compute_batch(void *context, const void *data, size_t data_size, void **result, size_t *size)
{
    work *w = context;
    const cli_t5_task *t = data;
    const bool team = cli_team_ranks() > 1;
    char *text = NULL;
    size_t length = 0;
    rp_t5_tokens *sources = cli_t5_sources(t);
    stream s = {.w = w, .common = &w->r->common, .number = t->number};
    (void)data_size;
    s.to = team ? open_memstream(&text, &length) : w->to;
    int code = CLI_OK;
    if (sources == NULL || s.to == NULL)
        code = no_memory();
    if (code == CLI_OK && team) /* make room for the counts */
        fwrite(&s.counts, sizeof s.counts, 1, s.to);
    if (code == CLI_OK)
        code = write_batch(&s, t->first, t->n, sources);
    if (team && s.to != NULL && !cli_close_text(s.to, &text) && code == CLI_OK)
        code = lost_line(&s);
    if (!team && code == CLI_OK) {
        text = malloc(sizeof s.counts);
        code = text != NULL ? CLI_OK : lost_line(&s);
        length = sizeof s.counts;
    }
    if (code == CLI_OK)
        memcpy(text, &s.counts, sizeof s.counts);
    free(s.tokens);
    free(sources);
    *result = text;
    *size = length;
    return code;
}

/* Write the text of a task, if it was computed in a team. */
static int take_batch(void *context, const cli_task *task, void *result, size_t size)
{
    work *w = context;
    counts c;
    (void)task;
    memcpy(&c, result, sizeof c);
    w->all.written += c.written;
    w->all.drafted.proposed += c.drafted.proposed;
    w->all.drafted.accepted += c.drafted.accepted;
    w->all.drafted.passes += c.drafted.passes;
    if (cli_team_ranks() == 1)
        return CLI_OK;
    fwrite((char *)result + sizeof c, 1, size - sizeof c, w->to);
    show_speed(w, 0);
    return cli_flush(w->to) ? CLI_OK : CLI_FAILED;
}

/* Append a line to the task. */
static int append_line(cli_t5_task **t, size_t *size, const int32_t *tokens, int64_t n)
{
    const size_t more = (size_t)n * sizeof *tokens;
    cli_t5_task *made = realloc(*t, *size + more);
    if (made == NULL)
        return no_memory();
    if (n > 0)
        memcpy((char *)made + *size, tokens, more);
    made->lengths[made->n++] = n;
    *size += more;
    *t = made;
    return CLI_OK;
}

/* Read the lines of the next task. */
static int next_batch(void *context, cli_task *task)
{
    work *w = context;
    const int64_t batch = w->r->batch;
    size_t size = sizeof(cli_t5_task) + (size_t)batch * sizeof(int64_t); /* of a full batch */
    cli_t5_task *t = calloc(1, size);
    int code = t != NULL ? CLI_OK : no_memory();
    while (code == CLI_OK && !w->end && !ferror(w->to) && t->n < batch) {
        const char *line;
        int32_t *tokens = NULL;
        int64_t length = 0, n = 0;
        code = cli_lines_next(w->lines, &line, &length);
        w->end = length < 0;
        if (code == CLI_OK && !w->end)
            code = cli_t5_read_tokens(&w->r->common, w->lines, w->r->prefix, line, length, &tokens, &n);
        if (code == CLI_OK && !w->end)
            code = append_line(&t, &size, tokens, n);
        rp_t5_free(tokens);
    }
    if (code != CLI_OK || t->n == 0 || ferror(w->to)) {
        free(t);
        return code;
    }
    if (t->n < batch) { /* the tokens follow the lengths of the lines that there are */
        memmove(t->lengths + t->n, t->lengths + batch, size - sizeof *t - (size_t)batch * sizeof(int64_t));
        size -= (size_t)(batch - t->n) * sizeof(int64_t);
    }
    t->first = w->n_read;
    t->number = w->lines->number - w->end;
    w->n_read += t->n;
    *task = (cli_task){.data = t, .size = size, .cost = (double)size};
    return CLI_OK;
}

static void print_stats(const work *w)
{
    const request *r = w->r;
    const rp_t5_generation *g = w->g;
    const rp_t5_info *i = rp_t5_about(r->common.model);
    const int64_t tokens = w->all.written, lines = w->n_read;
    const double seconds = cli_seconds() - w->from;
    double bandwidth;
    fprintf(stderr, "%lld line%s, %lld token%s in %.2f s: %.1f tokens per second", (long long)lines, cli_s(lines),
            (long long)tokens, cli_s(tokens), seconds, (double)tokens / seconds);
    if (r->common.draft != NULL) {
        fputs("; ", stderr);
        cli_t5_print_drafted(stderr, &w->all.drafted);
    } else if (r->batch == 1 && g->beams == 1 && g->returned == 1 && cli_team_ranks() == 1 &&
               rp_measure_bandwidth(r->common.pool, &bandwidth) == RP_OK) {
        const double rate = (double)tokens / seconds * (double)i->step_bytes;
        fprintf(stderr, ", weights %.2f GB/s: ", rate / 1e9);
        if (rate > bandwidth)
            fprintf(stderr, "more than the memory's bandwidth, so they are in a cache, or not all are read");
        else
            fprintf(stderr, "%.0f %% of the memory's bandwidth", 100 * rate / bandwidth);
    }
    fputc('\n', stderr);
}

static int run_lines(work *w)
{
    const cli_farm farm = {w, next_batch, compute_batch, take_batch, TASKS};
    w->progress = (cli_progress){.what = "t5 generate", .note = w->note};
    w->from = cli_seconds();
    const int code = cli_farm_run(&farm);
    cli_progress_end(&w->progress);
    if (code == CLI_OK && w->r->stats && cli_team_rank() == 0)
        print_stats(w);
    return code;
}

/* Generate all lines, and write them to standard output, or to a file that is created after the last line. */
static int write_lines(work *w)
{
    const char *output = w->r->output;
    char err[IO_ERR_MAX];
    w->to = stdout;
    if (output == NULL || cli_team_rank() != 0)
        return run_lines(w);
    io_text *text = io_text_open(output, &w->to, err);
    if (text == NULL)
        return cli_error(CLI_FAILED, "%s", err);
    int code = run_lines(w);
    const bool lost = ferror(w->to) != 0; /* then run_lines ended without a message */
    if (io_text_close(text, code == CLI_OK ? 0 : -1, err) != 0 && (code == CLI_OK || lost))
        code = cli_error(CLI_FAILED, "%s", err);
    return code;
}

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    request r = {.prefix = "", .batch = 1};
    rp_t5_generation g;
    cli_lines l = {0};
    work w = {.r = &r, .g = &g, .lines = &l};
    const char *args[2] = {NULL, NULL};
    int32_t *begin = NULL, *suppress = NULL, *begin_suppress = NULL;
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "t5 generate: no model was given (write relpos t5 generate DIR)");
    code = cli_t5_begin(&r.common, &l, args[0], args[1], r.text, r.output);
    if (code == CLI_OK)
        code = settings(&r, &g);
    if (code == CLI_OK)
        code = check_options(&r, &g);
    if (code == CLI_OK)
        code = begin_tokens(&r, &g, &begin);
    if (code == CLI_OK)
        code = list_tokens(&r, "--suppress-tokens", r.suppress, &g.suppress, &suppress);
    if (code == CLI_OK)
        code = list_tokens(&r, "--begin-suppress-tokens", r.begin_suppress, &g.begin_suppress, &begin_suppress);
    if (code == CLI_OK)
        code = write_lines(&w);
    cli_team_settle(code);
    rp_t5_free(begin);
    rp_t5_free(suppress);
    rp_t5_free(begin_suppress);
    cli_lines_close(&l);
    cli_t5_close(&r.common);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command cli_t5_generate = {
    .name = "t5 generate",
    .summary = "write a target for each line",
    .usage = "DIR|FILE [LINES] [options]      without LINES: standard input",
    .example = "  echo 'translate English to German: Good morning.' | relpos t5 generate flan-t5-small\n"
               "  relpos t5 generate flan.relpos lines.txt -o out.txt --prefix 'summarize: ' --beams 4 --batch 8\n",
    .options = options,
    .shared = true,
    .run = run,
};
