/* encode.c -- relpos t5 encode: write hidden states, or one vector for each line, to a file of arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/cli/t5.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OUT = 'o', POOL = T5_OWN, NORMALIZE, PAD_TO, ATTEND, PREFIX };
typedef enum pooling { ALL, MEAN, FIRST, LAST } pooling;

static const cli_option options[] = {
    {"output", OUT, "FILE", "write arrays to FILE, .npz or .safetensors"},
    {"pool", POOL, "HOW", "write one vector per line, array vectors: mean, first or last; default: all hidden states"},
    {"normalize", NORMALIZE, NULL, "scale the vectors of --pool to length 1"},
    {"pad-to", PAD_TO, "N", "cut or pad every line to N tokens"},
    {"attend-padding", ATTEND, NULL,
     "attend to padding tokens, as image models expect of their text encoders; needs --pad-to"},
    {"prefix", PREFIX, "TEXT", "put TEXT before every line"},
    {"text", T5_TEXT, "TEXT", "read one line from the command line instead of a file"},
    T5_TOKENS_OPTION,
    T5_COMMON_OPTIONS,
    {0},
};

typedef struct request {
    cli_t5_common common;
    const char *output, *text, *prefix;
    pooling pool;
    bool normalize, attend;
    int64_t pad_to;
    /* The lines that were read. */
    rp_t5_tokens *sources;
    int64_t n, capacity, longest, rows;
} request;

static int on_option(void *context, int key, const char *value)
{
    static const char *const names[] = {[MEAN] = "mean", [FIRST] = "first", [LAST] = "last"};
    request *r = context;
    char safe[64];
    switch (key) {
    case OUT: r->output = value; return CLI_OK;
    case NORMALIZE: r->normalize = true; return CLI_OK;
    case ATTEND: r->attend = true; return CLI_OK;
    case PAD_TO: return cli_integer("--pad-to", value, 1, 1 << 24, &r->pad_to);
    case PREFIX: r->prefix = value; return CLI_OK;
    case T5_TEXT: r->text = value; return CLI_OK;
    case POOL:
        for (int k = MEAN; k <= LAST; k++)
            if (strcmp(value, names[k]) == 0) {
                r->pool = (pooling)k;
                return CLI_OK;
            }
        return cli_error(CLI_USAGE, "--pool: the value \"%s\" is unknown (use mean, first or last)",
                         io_safe(safe, sizeof safe, value));
    default: return cli_t5_common_option(&r->common, key, value);
    }
}

/* Cut a line to --pad-to tokens, but keep its end token as the last one. With --attend-padding, pad it. Return false if
 * out of memory. */
static bool fit(const request *r, int32_t **tokens, int64_t *n)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    if (r->pad_to == 0)
        return true;
    if (*n > r->pad_to) {
        if ((*tokens)[*n - 1] == i->eos)
            (*tokens)[r->pad_to - 1] = i->eos;
        *n = r->pad_to;
    }
    if (!r->attend)
        return true;
    int32_t *longer = malloc((size_t)r->pad_to * sizeof *longer);
    if (longer == NULL)
        return false;
    if (*n > 0)
        memcpy(longer, *tokens, (size_t)*n * sizeof *longer);
    rp_t5_free(*tokens);
    *tokens = longer;
    while (*n < r->pad_to)
        longer[(*n)++] = i->pad;
    return true;
}

static int add_source(request *r, int32_t *tokens, int64_t n)
{
    if (r->n == r->capacity) {
        const int64_t capacity = r->capacity > 0 ? 2 * r->capacity : 64;
        rp_t5_tokens *more = realloc(r->sources, (size_t)capacity * sizeof *more);
        if (more == NULL) {
            rp_t5_free(tokens);
            return cli_error(CLI_FAILED, "t5 encode: out of memory while reading the lines (give fewer at a time)");
        }
        r->sources = more;
        r->capacity = capacity;
    }
    r->sources[r->n++] = (rp_t5_tokens){tokens, n};
    r->longest = n > r->longest ? n : r->longest;
    r->rows += n;
    return CLI_OK;
}

static int read_lines(request *r, cli_t5_lines *l)
{
    const char *line;
    int64_t length, n;
    int32_t *tokens;
    for (;;) {
        int code = cli_t5_lines_next(l, &line, &length);
        if (code != CLI_OK || length < 0)
            return code;
        code = cli_t5_read_tokens(&r->common, l, r->prefix, line, length, &tokens, &n);
        if (code != CLI_OK)
            return code;
        if (!fit(r, &tokens, &n)) {
            rp_t5_free(tokens);
            return cli_error(CLI_FAILED, "t5 encode: out of memory while reading the lines (give fewer at a time)");
        }
        if ((code = add_source(r, tokens, n)) != CLI_OK)
            return code;
    }
}

/* ------------------------------------------------------------------------------------------------ arrays */

static void normalize(float *x, int64_t d)
{
    double sum = 0;
    for (int64_t k = 0; k < d; k++)
        sum += (double)x[k] * (double)x[k];
    for (int64_t k = 0; k < d && sum > 0; k++)
        x[k] = (float)((double)x[k] / sqrt(sum));
}

/* Pool n hidden states into one vector. */
static void pool_rows(const request *r, const float *rows, int64_t n, int64_t d, float *to)
{
    memset(to, 0, (size_t)d * sizeof *to);
    if (n == 0)
        return;
    for (int64_t k = 0; k < d; k++) {
        double sum = 0;
        for (int64_t i = 0; r->pool == MEAN && i < n; i++)
            sum += (double)rows[i * d + k];
        to[k] = r->pool == MEAN ? (float)(sum / (double)n) : r->pool == FIRST ? rows[k] : rows[(n - 1) * d + k];
    }
    if (r->normalize)
        normalize(to, d);
}

/* Return vectors [n, d], or hidden states [n, length, d] with zeros after each line, or NULL if out of memory. */
static float *arrange(const request *r, const float *hidden, int64_t d, int64_t length)
{
    int64_t count;
    if (__builtin_mul_overflow(r->n, (r->pool ? 1 : length) * d, &count) || count > INT64_MAX / 8)
        return NULL;
    float *made = calloc((size_t)count + 1, sizeof *made);
    for (int64_t s = 0; made != NULL && s < r->n; hidden += r->sources[s++].n * d)
        if (r->pool)
            pool_rows(r, hidden, r->sources[s].n, d, made + s * d);
        else if (r->sources[s].n > 0)
            memcpy(made + s * length * d, hidden, (size_t)(r->sources[s].n * d) * sizeof *made);
    return made;
}

static int write_arrays(const request *r, const float *hidden)
{
    const int64_t d = rp_t5_about(r->common.model)->d_model, length = r->pad_to > 0 ? r->pad_to : r->longest;
    const int64_t shape[3] = {r->n, length, d}, vectors[2] = {r->n, d};
    io_set set = {0};
    char err[IO_ERR_MAX];
    float *made = arrange(r, hidden, d, length);
    int64_t *lengths = malloc(((size_t)r->n + 1) * sizeof *lengths);
    int code = CLI_OK;
    for (int64_t s = 0; lengths != NULL && s < r->n; s++)
        lengths[s] = r->sources[s].n;
    if (made == NULL || lengths == NULL ||
        io_add(&set, r->pool ? "vectors" : "hidden", RP_F32, r->pool ? 2 : 3, r->pool ? vectors : shape, made, true) !=
            0 ||
        io_add(&set, "lengths", RP_I64, 1, &r->n, lengths, true) != 0)
        code = cli_error(CLI_FAILED,
                         "t5 encode: out of memory while creating the hidden states (use --pool, which needs less)");
    else if (io_write(r->output, io_format_of(r->output), &set, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    io_free(&set);
    free(made);
    free(lengths);
    return code;
}

static int encode(request *r)
{
    const int64_t d = rp_t5_about(r->common.model)->d_model;
    int64_t bytes;
    float *hidden = __builtin_mul_overflow(r->rows, d * 4, &bytes) ? NULL : malloc((size_t)bytes + 1);
    if (hidden == NULL)
        return cli_error(CLI_FAILED, "t5 encode: out of memory while reading the lines (give fewer at a time)");
    cli_progress progress = {.what = "t5 encode"};
    const rp_status status = rp_t5_encode(r->common.model, r->n, r->sources, hidden, cli_t5_progress, &progress);
    cli_progress_end(&progress);
    const int code = status == RP_OK ? write_arrays(r, hidden) : cli_t5_refused("t5 encode");
    free(hidden);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.prefix = ""};
    cli_t5_lines l = {0};
    char safe[160];
    const char *args[2] = {NULL, NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "t5 encode: no model was given (write relpos t5 encode DIR -o vectors.npz)");
    if (r.output == NULL)
        return cli_error(CLI_USAGE, "t5 encode: no output file was given (give one with -o vectors.npz)");
    if (io_format_of(r.output) == IO_UNKNOWN)
        return cli_error(CLI_USAGE, "-o: %s: the suffix is unknown (use .npz or .safetensors)",
                         io_safe(safe, sizeof safe, r.output));
    if (r.attend && r.pad_to == 0)
        return cli_error(CLI_USAGE, "--attend-padding: without --pad-to there is no padding (add --pad-to N)");
    if (r.normalize && r.pool == ALL)
        return cli_error(CLI_USAGE, "--normalize: it needs one vector for each line (add --pool mean)");
    code = cli_t5_begin(&r.common, &l, args[0], args[1], r.text, r.output);
    if (code == CLI_OK)
        code = read_lines(&r, &l);
    if (code == CLI_OK)
        code = encode(&r);
    for (int64_t s = 0; s < r.n; s++)
        rp_t5_free((void *)(uintptr_t)r.sources[s].tokens);
    free(r.sources);
    cli_t5_lines_close(&l);
    cli_t5_close(&r.common);
    return code;
}

const cli_command cli_t5_encode = {
    .name = "t5 encode",
    .summary = "write hidden states, or one vector for each line",
    .usage = "DIR|FILE [LINES] -o OUT.npz [options]      without LINES: standard input",
    .example = "  relpos t5 encode flan-t5-small lines.txt -o vectors.npz --pool mean --normalize\n"
               "  relpos t5 encode t5-xxl -o prompt.safetensors --text 'a cat' --pad-to 512 --attend-padding\n",
    .options = options,
    .run = run,
};
