/* bucket.c -- relpos bucket: print the bucket of an offset.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = CLI_FIRST_KEY, MAX_DISTANCE, CAUSAL, STRATEGY, JSON };

static const cli_option options[] = {
    {"buckets", BUCKETS, "N", "set the number of buckets; default 32, half of them for keys after the query"},
    {"max-distance", MAX_DISTANCE, "N", "let distances of N and more share the last bucket; default 128"},
    {"causal", CAUSAL, NULL, "use all buckets for keys before the query; keys after it get bucket 0"},
    {"strategy", STRATEGY, "S", "choose the spacing: log (as T5), uniform, linear or quadratic; default log"},
    {"json", JSON, NULL, "print one JSON object"},
    {0},
};

typedef struct request {
    rp_term term;
    const char *strategy;
    bool json;
} request;

/* Write the names of the library's bucket strategies, "log, uniform, linear, quadratic", to `text`. Return `text`. */
static const char *strategies(char text[96])
{
    const rp_param *p;
    size_t used = 0;
    for (int n = 0; (p = rp_term_param(RP_TERM_BUCKET, n)) != NULL && strcmp(p->key, "strategy") != 0; n++) {
    }
    for (int n = 0; p && p->choices[n] && used < 96; n++)
        used += (size_t)snprintf(text + used, 96 - used, "%s%s", n ? ", " : "", p->choices[n]);
    return text;
}

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    char text[96], names[RP_MAX_ARRAYS][RP_NAME_MAX], safe[64];
    rp_term t;
    switch (key) {
    case BUCKETS: return cli_integer("--buckets", value, INT64_MIN, INT64_MAX, &r->term.buckets);
    case MAX_DISTANCE: return cli_integer("--max-distance", value, INT64_MIN, INT64_MAX, &r->term.max_distance);
    case CAUSAL: r->term.bidirectional = 0; return CLI_OK;
    case STRATEGY: /* the library parses the name */
        snprintf(text, sizeof text, "bucket,strategy=%s", value);
        if (strlen(value) > 16 || strchr(value, ',') || rp_term_parse(text, &t, names) != RP_OK)
            return cli_error(CLI_USAGE, "--strategy: no strategy is called \"%s\" (%s)",
                             io_safe(safe, sizeof safe, value), strategies(text));
        r->term.strategy = t.strategy;
        r->strategy = value;
        return CLI_OK;
    default: r->json = true; return CLI_OK;
    }
}

static int64_t bucket(const request *r, int64_t offset)
{
    return rp_bucket(offset, r->term.buckets, r->term.max_distance, r->term.bidirectional, r->term.strategy);
}

/* Return the last offset, at most `max`, that is in the same run as `first`: all offsets between them share one bucket.
 * On each side of the query the bucket is monotonic in the distance, so bisection finds the end of the run. */
static int64_t run_end(const request *r, int64_t first, int64_t max)
{
    int64_t low = first, high = first <= 0 ? 0 : max;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (bucket(r, middle) == bucket(r, first))
            low = middle;
        else
            high = middle - 1;
    }
    return low == 0 && bucket(r, 1) == bucket(r, 0) ? run_end(r, 1, max) : low;
}

/* Print every run of offsets that share a bucket. */
static void print_runs(const request *r)
{
    const int64_t max = r->term.max_distance;
    for (int64_t first = -max, last; first <= max; first = last + 1) {
        last = run_end(r, first, max);
        printf(!r->json        ? "%lld..%lld %lld\n"
               : first == -max ? "{\"first\": %lld, \"last\": %lld, \"bucket\": %lld}"
                               : ", {\"first\": %lld, \"last\": %lld, \"bucket\": %lld}",
               (long long)first, (long long)last, (long long)bucket(r, first));
    }
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.term = rp_term_init(RP_TERM_BUCKET), .strategy = "log"};
    const char **args = malloc((size_t)argc * sizeof *args);
    int64_t *offset = malloc((size_t)argc * sizeof *offset);
    int n_args = 0, code = -1;
    if (!args || !offset)
        code = cli_error(CLI_FAILED, "bucket: out of memory while printing (close other programs)");
    if (code < 0)
        code = cli_options(self, argc, argv, on_option, &r, args, argc, &n_args);
    for (int n = 0; code < 0 && n < n_args; n++) /* check all offsets before printing anything */
        if (cli_integer("offset", args[n], INT64_MIN, INT64_MAX, &offset[n]) != CLI_OK)
            code = CLI_USAGE;
    if (code < 0 && bucket(&r, 0) < 0)
        code = cli_refused(CLI_USAGE, "bucket", NULL, "change --buckets, --max-distance or --causal");
    if (code < 0) {
        if (r.json)
            printf("{\"buckets\": %lld, \"max_distance\": %lld, \"bidirectional\": %s, \"strategy\": \"%s\", \"%s\": [",
                   (long long)r.term.buckets, (long long)r.term.max_distance, r.term.bidirectional ? "true" : "false",
                   r.strategy, n_args ? "offsets" : "runs");
        for (int n = 0; n < n_args; n++)
            printf(!r.json ? "%lld %lld\n"
                   : n     ? ", {\"offset\": %lld, \"bucket\": %lld}"
                           : "{\"offset\": %lld, \"bucket\": %lld}",
                   (long long)offset[n], (long long)bucket(&r, offset[n]));
        if (n_args == 0)
            print_runs(&r);
        if (r.json)
            puts("]}");
        code = CLI_OK;
    }
    free(args);
    free(offset);
    return code;
}

const cli_command cmd_bucket = {
    .name = "bucket",
    .summary = "print the bucket of an offset (key minus query), as in T5",
    .usage = "[N...] [options]      without N: print each run of offsets with the same bucket as first..last bucket",
    .example = "  relpos bucket -5 0 5 100\n  relpos bucket --buckets 16 --max-distance 64 --causal\n",
    .options = options,
    .negative_numbers = true,
    .run = run,
};
