/* bench.c -- relpos t5 bench: time encoding and decoding. Compare the bytes that decoding reads per second with the
 * memory bandwidth.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/t5.h"
#include <stdlib.h>
#include <time.h>

enum { SOURCE = T5_OWN, NEW, BATCH, BEAMS, REPEAT, JSON };

static const cli_option options[] = {
    {"source", SOURCE, "N", "read N tokens per source; default 128"},
    {"new", NEW, "N", "write N tokens per target; 0: only encode the sources; default 128"},
    {"batch", BATCH, "N", "compute N sources together; default 1"},
    {"beams", BEAMS, "N", "search with N beams; default 1"},
    {"repeat", REPEAT, "N", "run N times and report the median; default 5"},
    {"json", JSON, NULL, "print one JSON object"},
    T5_DRAFT_OPTIONS,
    T5_COMMON_OPTIONS,
    {0},
};

typedef struct request {
    cli_t5_common common;
    int64_t source, new_tokens, batch, beams, repeat;
    bool json;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case SOURCE: return cli_integer("--source", value, 1, 1 << 20, &r->source);
    case NEW: return cli_integer("--new", value, 0, 1 << 20, &r->new_tokens);
    case BATCH: return cli_integer("--batch", value, 1, 4096, &r->batch);
    case BEAMS: return cli_integer("--beams", value, 1, 4096, &r->beams);
    case REPEAT: return cli_integer("--repeat", value, 1, 1000, &r->repeat);
    case JSON: r->json = true; return CLI_OK;
    default: return cli_t5_common_option(&r->common, key, value);
    }
}

static double median(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, cli_by_size);
    return x[n / 2];
}

typedef struct measured {
    double load, encode, generate;   /* seconds */
    double encode_cpu, generate_cpu; /* processor seconds of all threads */
    double bandwidth;                /* memory bandwidth in bytes per second */
    rp_t5_drafted drafted;           /* statistics of one repetition */
} measured;

/* Kinds of times. */
enum { ENCODE, GENERATE, ENCODE_CPU, GENERATE_CPU, N_TIMES };

/* Run and time one repetition. */
static int run_once(const request *r, const rp_t5_tokens *sources, const rp_t5_generation *g, float *hidden,
                    double times[N_TIMES], rp_t5_drafted *drafted)
{
    rp_t5_results *results = NULL;
    double from = cli_seconds(), from_cpu = cli_processor_seconds();
    if (rp_t5_encode(r->common.model, r->batch, sources, hidden, NULL, NULL) != RP_OK)
        return cli_t5_refused("t5 bench");
    times[ENCODE] = cli_seconds() - from;
    times[ENCODE_CPU] = cli_processor_seconds() - from_cpu;
    from = cli_seconds();
    from_cpu = cli_processor_seconds();
    if (r->new_tokens > 0 && rp_t5_generate(r->common.model, r->batch, sources, g, &results) != RP_OK)
        return cli_t5_refused("t5 bench");
    times[GENERATE] = cli_seconds() - from;
    times[GENERATE_CPU] = cli_processor_seconds() - from_cpu;
    if (results != NULL)
        *drafted = *rp_t5_results_drafted(results);
    rp_t5_results_free(results);
    return CLI_OK;
}

static int measure(const request *r, const rp_t5_tokens *sources, measured *m)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    double *times = malloc((size_t)(N_TIMES * r->repeat) * sizeof *times), one[N_TIMES];
    float *hidden = malloc((size_t)(r->batch * r->source * i->d_model) * sizeof *hidden);
    rp_t5_generation g = cli_t5_greedy(r->common.model);
    int code =
        times && hidden
            ? CLI_OK
            : cli_error(CLI_FAILED,
                        "t5 bench: out of memory while preparing the tokens (use a smaller --source or --batch)");
    g.beams = (int32_t)r->beams;
    g.max_new_tokens = g.min_new_tokens = r->new_tokens > 0 ? r->new_tokens : 1;
    g.cancelled = NULL;
    for (int64_t k = 0; code == CLI_OK && k < r->repeat; k++) {
        code = run_once(r, sources, &g, hidden, one, &m->drafted);
        for (int t = 0; code == CLI_OK && t < N_TIMES; t++)
            times[t * r->repeat + k] = one[t];
    }
    if (code == CLI_OK && rp_measure_bandwidth(r->common.pool, &m->bandwidth) != RP_OK)
        m->bandwidth = 0;
    double *const to[N_TIMES] = {&m->encode, &m->generate, &m->encode_cpu, &m->generate_cpu};
    for (int t = 0; code == CLI_OK && t < N_TIMES; t++)
        *to[t] = median(times + t * r->repeat, r->repeat);
    free(times);
    free(hidden);
    return code;
}

static const char *number(char text[32], const char *format, double x)
{
    snprintf(text, 32, format, x);
    return text;
}

static void print(const request *r, const measured *m)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    const double decode = m->generate - m->encode, tokens = (double)(r->new_tokens * r->batch);
    const bool timed = r->new_tokens > 0 && decode > 0; /* encoding alone can happen to take longer than both */
    const double rate = (double)r->new_tokens * (double)i->step_bytes / decode;
    char without[32];
    if (r->json) {
        printf("{\"type\": \"%s\", \"source\": %lld, \"new\": %lld, \"batch\": %lld, \"beams\": %lld", i->type,
               (long long)r->source, (long long)r->new_tokens, (long long)r->batch, (long long)r->beams);
        cli_json_numbers(
            stdout, (cli_json_member[]){{"load", "%.6f", m->load},
                                        {"encode", "%.6f", m->encode},
                                        {"generate", "%.6f", m->generate},
                                        {"encode_cpu", "%.6f", m->encode_cpu},
                                        {"generate_cpu", "%.6f", m->generate_cpu},
                                        {"tokens_per_second", "%.3f", r->new_tokens > 0 ? tokens / m->generate : NAN},
                                        {"bytes_per_second", "%.0f", timed ? rate : NAN},
                                        {"bandwidth", "%.0f", m->bandwidth},
                                        {0}});
        printf(", \"proposed\": %lld, \"accepted\": %lld, \"passes\": %lld}\n", (long long)m->drafted.proposed,
               (long long)m->drafted.accepted, (long long)m->drafted.passes);
        return;
    }
    printf("load      %9.1f ms\n", m->load * 1e3);
    printf("encode    %9.1f ms    %lld x %lld tokens, %.0f tokens per second\n", m->encode * 1e3, (long long)r->batch,
           (long long)r->source, (double)(r->batch * r->source) / m->encode);
    if (r->new_tokens == 0)
        return;
    printf("generate  %9.1f ms    %lld x %lld tokens, %.1f tokens per second with encoding, %s without\n",
           m->generate * 1e3, (long long)r->batch, (long long)r->new_tokens, tokens / m->generate,
           timed ? number(without, "%.1f", tokens / decode) : "-");
    if (r->common.draft != NULL) {
        printf("draft     ");
        cli_t5_print_drafted(stdout, &m->drafted);
        putchar('\n');
        return;
    }
    if (!timed) {
        puts("weights           -       not measured: decoding was too fast (use a larger --new or --repeat)");
        return;
    }
    if (rate > m->bandwidth)
        printf("weights   %9.2f GB/s  more than the memory's %.2f GB/s: they are in a cache, or not all are read\n",
               rate / 1e9, m->bandwidth / 1e9);
    else
        printf("weights   %9.2f GB/s  %.0f %% of the memory's %.2f GB/s\n", rate / 1e9, 100 * rate / m->bandwidth,
               m->bandwidth / 1e9);
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.source = 128, .new_tokens = 128, .batch = 1, .beams = 1, .repeat = 5};
    measured m = {0};
    const char *args[1] = {NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 1, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "t5 bench: no model was given (write relpos t5 bench DIR)");
    if (r.common.draft != NULL && r.beams > 1)
        return cli_error(CLI_USAGE,
                         "--exact: it needs one beam, but the search has %d (use --beams 1, or remove --exact)",
                         (int)r.beams);
    const double from = cli_seconds();
    code = cli_t5_open(&r.common, args[0]);
    cli_t5_let_signals(&r.common);
    m.load = cli_seconds() - from;
    if (code == CLI_OK && rp_t5_about(r.common.model)->decoder_layers == 0)
        r.new_tokens = 0;
    rp_t5_tokens *sources = calloc((size_t)r.batch, sizeof *sources);
    int32_t *tokens = malloc((size_t)r.source * sizeof *tokens);
    if (code == CLI_OK && (sources == NULL || tokens == NULL))
        code = cli_error(CLI_FAILED,
                         "t5 bench: out of memory while preparing the tokens (use a smaller --source or --batch)");
    for (int64_t k = 0; code == CLI_OK && k < r.source; k++) /* arbitrary tokens: the time does not depend on them */
        tokens[k] = (int32_t)((k * 7919 + 13) % rp_t5_about(r.common.model)->vocab);
    for (int64_t s = 0; code == CLI_OK && s < r.batch; s++)
        sources[s] = (rp_t5_tokens){tokens, r.source};
    if (code == CLI_OK)
        code = measure(&r, sources, &m);
    if (code == CLI_OK)
        print(&r, &m);
    free(sources);
    free(tokens);
    cli_t5_close(&r.common);
    return code;
}

const cli_command cli_t5_bench = {
    .name = "t5 bench",
    .summary = "time a model on this machine",
    .usage = "DIR|FILE [options]",
    .example = "  relpos t5 bench flan.relpos --threads 1\n",
    .options = options,
    .run = run,
};
