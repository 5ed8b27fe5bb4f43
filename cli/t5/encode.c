/* encode.c -- relpos t5 encode: write hidden states, or one vector for each line, to a file of arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"
#include "cli/t5/t5.h"
#include <stdlib.h>
#include <string.h>

enum { OUT = 'o', POOL = T5_OWN, NORMALIZE, PAD_TO, ATTEND, FOR, PREFIX, PROMPT };
enum { WINDOW = 8192, TASKS = 3 }; /* max tokens of the lines that are encoded together, as in the encoder */
/* MODEL: MODULES if the model has a modules.json, otherwise ALL. */
typedef enum pooling { ALL, MEAN, FIRST, LAST, MODEL, MODULES } pooling;

static const cli_option options[] = {
    {"output", OUT, "FILE", "write arrays to FILE (.npz or .safetensors), or JSON lines (.jsonl)"},
    {"pool", POOL, "HOW",
     "write one vector per line, array vectors: mean, first or last; none: all hidden states; default: as modules.json "
     "of sentence-transformers says, or none"},
    {"normalize", NORMALIZE, NULL, "scale the vectors of --pool to length 1"},
    {"pad-to", PAD_TO, "N", "cut or pad every line to N tokens"},
    {"attend-padding", ATTEND, NULL,
     "attend to padding tokens, as image models expect of their text encoders; needs --pad-to"},
    {"for", FOR, "MODEL",
     "pad as this image or video model does, and write prompt_embeds: flux, sd3, wan, pixart, cogvideox, ltx, mochi, "
     "..."},
    {"prefix", PREFIX, "TEXT", "put TEXT before every line"},
    {"prompt", PROMPT, "NAME",
     "put the prompt NAME of config_sentence_transformers.json before every line; default: default_prompt_name"},
    {"text", T5_TEXT, "TEXT", "read one line from the command line instead of a file"},
    T5_TOKENS_OPTION,
    T5_COMMON_OPTIONS,
    {0},
};

typedef struct request {
    cli_t5_common common;
    const char *output, *text, *prefix, *prompt; /* prefix: also the text of the prompt */
    pooling pool;
    bool normalize, attend;
    int64_t pad_to, cut_to;          /* cut_to: --pad-to, or the longest source of modules.json; 0: unlimited */
    const cli_t5_pipeline *pipeline; /* of --for; NULL: none */
    bool json;                       /* write JSON lines */
    /* The lines that were read. */
    int32_t *tokens;  /* of all lines, one after the other */
    int64_t *lengths; /* [n] tokens of each line, with padding that is attended to */
    int64_t *texts;   /* [n] the same without padding */
    int64_t n, n_tokens, capacity, token_capacity;
    /* The output. */
    io_stream *stream;
    io_text *text_stream;
    FILE *lines;
    float *zeros;  /* [d] */
    float *vector; /* of one line; MODULES only */
    cli_lines input;
    bool end;                      /* all lines were read */
    int64_t n_given, tokens_given; /* lines and tokens of tasks that were made */
    double tokens_taken;           /* tokens whose results were written */
    cli_progress progress;
} request;

static int on_option(void *context, int key, const char *value)
{
    static const char *const names[] = {[ALL] = "none", [MEAN] = "mean", [FIRST] = "first", [LAST] = "last"};
    request *r = context;
    char safe[64];
    switch (key) {
    case OUT: r->output = value; return CLI_OK;
    case NORMALIZE: r->normalize = true; return CLI_OK;
    case ATTEND: r->attend = true; return CLI_OK;
    case FOR: return cli_t5_find_pipeline(value, &r->pipeline);
    case PAD_TO: return cli_integer("--pad-to", value, 1, 1 << 24, &r->pad_to);
    case PREFIX: r->prefix = value; return CLI_OK;
    case PROMPT: r->prompt = value; return CLI_OK;
    case T5_TEXT: r->text = value; return CLI_OK;
    case POOL:
        for (int k = ALL; k <= LAST; k++)
            if (strcmp(value, names[k]) == 0) {
                r->pool = (pooling)k;
                return CLI_OK;
            }
        return cli_error(CLI_USAGE, "--pool: the value \"%s\" is unknown (use mean, first, last or none)",
                         io_safe(safe, sizeof safe, value));
    default: return cli_t5_common_option(&r->common, key, value);
    }
}

/* ------------------------------------------------------------------------------------------------ reading */

static int no_memory(void)
{
    return cli_error(CLI_FAILED, "t5 encode: out of memory while reading the lines (give fewer at a time)");
}

/* Make room for n more tokens and one more line. */
static bool grow(request *r, int64_t n)
{
    if (r->n == r->capacity) {
        const int64_t capacity = r->capacity > 0 ? 2 * r->capacity : 64;
        int64_t *more = realloc(r->lengths, (size_t)capacity * sizeof *more);
        if (more == NULL)
            return false;
        r->lengths = more;
        more = realloc(r->texts, (size_t)capacity * sizeof *more);
        if (more == NULL)
            return false;
        r->texts = more;
        r->capacity = capacity;
    }
    if (r->n_tokens + n > r->token_capacity) {
        const int64_t capacity = 2 * (r->n_tokens + n);
        int32_t *more = realloc(r->tokens, (size_t)capacity * sizeof *more);
        if (more == NULL)
            return false;
        r->tokens = more;
        r->token_capacity = capacity;
    }
    return true;
}

/* Append a line. Cut it to cut_to tokens, but keep its end token as the last one; with --attend-padding, pad it. */
static bool add_line(request *r, const int32_t *tokens, int64_t n)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    const bool cut = r->cut_to > 0 && n > r->cut_to;
    const int64_t length = cut ? r->cut_to : r->attend ? r->pad_to : n;
    if (!grow(r, length))
        return false;
    int32_t *to = r->tokens + r->n_tokens;
    if (n > 0)
        memcpy(to, tokens, (size_t)(cut ? length : n) * sizeof *to);
    if (cut && tokens[n - 1] == i->eos)
        to[length - 1] = i->eos;
    for (int64_t k = n; k < length; k++)
        to[k] = i->pad;
    r->texts[r->n] = cut ? length : n;
    r->lengths[r->n++] = length;
    r->n_tokens += length;
    return true;
}

/* Read lines until they have `tokens` tokens. */
static int read_lines(request *r, int64_t tokens)
{
    cli_lines *l = &r->input;
    const char *line;
    int64_t length, n;
    int32_t *read;
    r->n = r->n_tokens = r->n_given = r->tokens_given = 0;
    while (r->n_tokens < tokens) {
        int code = cli_lines_next(l, &line, &length);
        if (code == CLI_OK && length >= 0)
            code = cli_t5_read_tokens(&r->common, l, r->prefix, line, length, &read, &n);
        if (code != CLI_OK || length < 0) {
            r->end = true;
            return code;
        }
        const bool added = add_line(r, read, n);
        rp_t5_free(read);
        if (!added)
            return no_memory();
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ writing */

/* Pool n hidden states into one vector, in place: the vector replaces the first. */
static void pool_in_place(const request *r, float *rows, int64_t n, int64_t d)
{
    if (r->pool == MEAN)
        cli_t5_mean(rows, n, d);
    else if (r->pool == LAST)
        memmove(rows, rows + (n - 1) * d, (size_t)d * sizeof *rows);
}

/* Return the width of a row of the output. */
static int64_t width_of(const request *r)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    return r->pool == MODULES ? i->vector_width : i->d_model;
}

/* Write the vector of a line with n hidden states to `to`, which may be the first of them. */
static int pool_rows(const request *r, float *rows, int64_t n, float *to)
{
    const size_t bytes = (size_t)width_of(r) * sizeof *to;
    if (r->pool == MODULES) {
        if (rp_t5_vector(r->common.model, r->common.tokens ? NULL : r->prefix, n, rows, r->vector) != RP_OK)
            return cli_t5_refused("t5 encode");
        memcpy(to, r->vector, bytes);
    } else if (n == 0) {
        memset(to, 0, bytes);
    } else {
        pool_in_place(r, rows, n, width_of(r));
        memmove(to, rows, bytes);
    }
    if (r->normalize)
        cli_normalize(to, width_of(r));
    return CLI_OK;
}

static void print_numbers(FILE *to, const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        fputs(k == 0 ? "[" : ", ", to);
        cli_json_number(to, "%.9g", (double)x[k]);
    }
    fputs(n == 0 ? "[]" : "]", to);
}

/* Print a line as JSON: its number of tokens, and its vector or hidden states. */
static void print_line(FILE *to, const request *r, const float *rows, int64_t n, int64_t d)
{
    fprintf(to, "{\"tokens\": %lld, \"%s\": ", (long long)n, r->pool ? "vector" : "hidden");
    if (r->pool) {
        print_numbers(to, rows, d);
    } else {
        fputc('[', to);
        for (int64_t i = 0; i < n; i++) {
            fputs(i == 0 ? "" : ", ", to);
            print_numbers(to, rows + i * d, d);
        }
        fputc(']', to);
    }
    fputs("}\n", to);
}

/* Write the n hidden states or the vector of one line. */
static int write_line(request *r, const float *rows, int64_t n)
{
    const int64_t d = width_of(r);
    char err[IO_ERR_MAX];
    if (r->json) {
        print_line(r->lines, r, rows, n, d);
        return CLI_OK;
    }
    int result = io_stream_put(r->stream, rows, (size_t)((r->pool ? 1 : n) * d) * sizeof *rows, err);
    for (int64_t k = n; k < r->pad_to && !r->pool && result == 0; k++)
        result = io_stream_put(r->stream, r->zeros, (size_t)d * sizeof *r->zeros, err);
    return result == 0 ? CLI_OK : cli_error(CLI_FAILED, "%s", err);
}

/* Make the array prompt_attention_mask [n, pad_to] of --for: 1 for tokens of the text, 0 for padding. */
static bool add_mask(const request *r, io_set *set)
{
    const int64_t shape[2] = {r->n, r->pad_to};
    const size_t element = r->pipeline->mask == RP_BOOL ? 1 : 8;
    int64_t n;
    if (r->pipeline->mask == RP_F32)
        return true;
    if (__builtin_mul_overflow(r->n, r->pad_to, &n))
        return false;
    unsigned char *mask = calloc((size_t)n + 1, element);
    for (int64_t s = 0; mask != NULL && s < r->n; s++)
        for (int64_t k = 0; k < r->texts[s]; k++)
            mask[(size_t)(s * r->pad_to + k) * element] = 1; /* the lowest byte of an i64 is the first */
    if (mask != NULL && io_add(set, "prompt_attention_mask", r->pipeline->mask, 2, shape, mask, false) == 0)
        return true;
    free(mask);
    return false;
}

/* Begin the file of arrays: vectors [n, d]; or hidden [n, pad_to, d] with zeros after each line; or hidden [tokens of
 * all lines, d]. With --for the file has only what the pipeline takes: prompt_embeds [n, pad_to, d] and its mask. */
static int open_arrays(request *r, io_set *set)
{
    const int64_t d = width_of(r);
    const int64_t padded[3] = {r->n, r->pad_to, d}, flat[2] = {r->pool ? r->n : r->n_tokens, d};
    const bool pads = !r->pool && r->pad_to > 0;
    const char *name = r->pool ? "vectors" : r->pipeline != NULL ? "prompt_embeds" : "hidden";
    char err[IO_ERR_MAX];
    if ((r->pipeline != NULL ? !add_mask(r, set) : io_add(set, "lengths", RP_I64, 1, &r->n, r->lengths, true) != 0) ||
        io_add(set, name, RP_F32, pads ? 3 : 2, pads ? padded : flat, NULL, true) != 0)
        return no_memory();
    r->stream = io_stream_open(r->output, io_format_of(r->output), set, err);
    return r->stream != NULL ? CLI_OK : cli_error(CLI_FAILED, "%s", err);
}

/* ------------------------------------------------------------------------------------------------ encoding */

/* Return the fraction of the work that is done, with `more` tokens besides those whose results were written. The number
 * of JSON lines is not known before the end. */
static double done(const request *r, double more)
{
    if (r->json)
        return r->input.all > 0 ? r->input.read / r->input.all : 0;
    return (r->tokens_taken + more) / (double)(r->n_tokens + 1);
}

/* Make a task of the next lines that were read. */
static int next_lines(void *context, cli_task *task)
{
    request *r = context;
    int code = CLI_OK;
    if (r->json && r->n_given == r->n && !r->end && !ferror(r->lines))
        code = read_lines(r, WINDOW);
    if (code != CLI_OK || r->n_given == r->n || (r->json && ferror(r->lines)))
        return code;
    const int64_t most = cli_t5_part(r->json ? -1 : r->n_tokens - r->tokens_given, WINDOW);
    int64_t n = 0, tokens = 0;
    for (int64_t s = r->n_given; s < r->n && (n == 0 || tokens + r->lengths[s] <= most); s++, n++)
        tokens += r->lengths[s];
    cli_t5_task *t = malloc(sizeof *t + (size_t)n * sizeof *t->lengths + (size_t)tokens * sizeof(int32_t));
    if (t == NULL)
        return no_memory();
    *t = (cli_t5_task){.n = n, .n_tokens = tokens};
    memcpy(t->lengths, r->lengths + r->n_given, (size_t)n * sizeof *t->lengths);
    if (tokens > 0)
        memcpy(t->lengths + n, r->tokens + r->tokens_given, (size_t)tokens * sizeof(int32_t));
    r->n_given += n;
    r->tokens_given += tokens;
    task->data = t;
    task->size = sizeof *t + (size_t)n * sizeof *t->lengths + (size_t)tokens * sizeof(int32_t);
    task->cost = (double)tokens;
    return CLI_OK;
}

/* The work of a process that is shown: in a team, only what is written. */
typedef struct shown {
    request *r;
    double tokens;
} shown;

static int show(void *context, double fraction)
{
    const shown *s = context;
    return cli_team_ranks() > 1 ? cli_stop_requested()
                                : cli_t5_progress(&s->r->progress, done(s->r, fraction * s->tokens));
}

/* Compute the hidden states of a task, or its vectors. */
static int encode_lines(void *context, const void *data, size_t data_size, void **result, size_t *size)
{
    request *r = context;
    const cli_t5_task *t = data;
    const int64_t d = rp_t5_about(r->common.model)->d_model, width = width_of(r);
    int64_t bytes;
    /* vectors may be wider than hidden states, so they get memory of their own */
    const bool fits = !__builtin_mul_overflow(t->n_tokens * d + (r->pool ? t->n * width : 0) + 1, 4, &bytes);
    rp_t5_tokens *sources = cli_t5_sources(t);
    float *hidden = fits ? malloc((size_t)bytes) : NULL;
    shown s = {r, (double)t->n_tokens};
    (void)data_size;
    int code = sources != NULL && hidden != NULL
                   ? CLI_OK
                   : cli_error(CLI_FAILED,
                               "t5 encode: out of memory for the hidden states of lines of %lld tokens "
                               "(cut long lines with --pad-to)",
                               (long long)t->n_tokens);
    if (code == CLI_OK && rp_t5_encode(r->common.model, t->n, sources, hidden, show, &s) != RP_OK)
        code = cli_t5_refused("t5 encode");
    *size = (size_t)(t->n_tokens * d) * sizeof *hidden;
    float *rows = hidden, *vectors = code == CLI_OK ? hidden + t->n_tokens * d : NULL;
    for (int64_t k = 0; code == CLI_OK && r->pool && k < t->n; rows += t->lengths[k++] * d)
        code = pool_rows(r, rows, t->lengths[k], vectors + k * width);
    if (code == CLI_OK && r->pool) {
        *size = (size_t)(t->n * width) * sizeof *hidden;
        memmove(hidden, vectors, *size);
    }
    free(sources);
    *result = hidden;
    return code;
}

/* Write the result of a task. */
static int take_lines(void *context, const cli_task *task, void *result, size_t size)
{
    request *r = context;
    const cli_t5_task *t = task->data;
    const float *rows = result;
    int code = CLI_OK;
    (void)size;
    for (int64_t k = 0; k < t->n && code == CLI_OK; k++) {
        code = write_line(r, rows, t->lengths[k]);
        rows += (r->pool ? 1 : t->lengths[k]) * width_of(r);
    }
    r->tokens_taken += (double)t->n_tokens;
    cli_t5_progress(&r->progress, done(r, 0));
    return code;
}

/* Encode all lines. */
static int encode_all(request *r)
{
    const cli_farm farm = {r, next_lines, encode_lines, take_lines, TASKS};
    return cli_farm_run(&farm);
}

/* Write arrays, whose sizes are known once all lines have been read. */
static int write_arrays(request *r)
{
    char err[IO_ERR_MAX];
    io_set set = {0};
    int code = read_lines(r, INT64_MAX);
    if (code == CLI_OK)
        code = open_arrays(r, &set);
    if (code == CLI_OK)
        code = encode_all(r);
    if (r->stream != NULL && io_stream_close(r->stream, code == CLI_OK ? 0 : -1, err) != 0 && code == CLI_OK)
        code = cli_error(CLI_FAILED, "%s", err);
    io_free(&set);
    return code;
}

/* Write JSON lines while lines are read. */
static int write_json(request *r)
{
    char err[IO_ERR_MAX];
    r->text_stream = io_text_open(r->output, &r->lines, err);
    if (r->text_stream == NULL)
        return cli_error(CLI_FAILED, "%s", err);
    int code = encode_all(r);
    if (io_text_close(r->text_stream, code == CLI_OK ? 0 : -1, err) != 0 && code == CLI_OK)
        code = cli_error(CLI_FAILED, "%s", err);
    return code;
}

/* Decide what the model's modules.json decides: pooling, the prompt and the longest line. */
static int ask_model(request *r)
{
    const rp_t5_info *i = rp_t5_about(r->common.model);
    if (r->pool == MODEL)
        r->pool = i->vector_width > 0 && r->pipeline == NULL ? MODULES : ALL;
    if (r->normalize && r->pool == ALL)
        return cli_error(CLI_USAGE, "--normalize: it needs one vector for each line (add --pool mean)");
    if (r->prefix == NULL && !r->common.tokens && (r->prompt != NULL || r->pool == MODULES) &&
        rp_t5_prompt(r->common.model, r->prompt, &r->prefix) != RP_OK)
        return cli_error(CLI_FAILED, "--prompt: %s",
                         i->vector_width > 0 ? rp_t5_last_error()
                                             : "the model has no modules.json (use a model folder saved by "
                                               "sentence-transformers, or pass the text of the prompt with --prefix)");
    r->prefix = r->prefix != NULL ? r->prefix : "";
    r->cut_to = r->pad_to > 0 || r->pool != MODULES ? r->pad_to : i->vector_tokens;
    if (r->pool == MODULES)
        r->vector = malloc((size_t)i->vector_width * sizeof *r->vector);
    r->zeros = calloc((size_t)i->d_model + 1, sizeof *r->zeros);
    return r->zeros != NULL && (r->pool != MODULES || r->vector != NULL) ? CLI_OK : no_memory();
}

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    request r = {.pool = MODEL, .progress = {.what = "t5 encode"}};
    char safe[160];
    const char *args[2] = {NULL, NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "t5 encode: no model was given (write relpos t5 encode DIR -o vectors.npz)");
    if (r.output == NULL)
        return cli_error(CLI_USAGE, "t5 encode: no output file was given (give one with -o vectors.npz)");
    const size_t length = strlen(r.output);
    r.json = length >= 6 && strcmp(r.output + length - 6, ".jsonl") == 0;
    if (!r.json && io_format_of(r.output) == IO_UNKNOWN)
        return cli_error(CLI_USAGE, "-o: %s: the suffix is unknown (use .npz, .safetensors or .jsonl)",
                         io_safe(safe, sizeof safe, r.output));
    if (r.pipeline != NULL && (r.json || (r.pool != MODEL && r.pool != ALL)))
        return cli_error(CLI_USAGE, "--for: it writes hidden states as arrays (omit --pool, and use -o x.safetensors)");
    if (r.pipeline != NULL) {
        r.pad_to = r.pad_to > 0 ? r.pad_to : r.pipeline->length;
        r.attend |= r.pipeline->attend;
    }
    if (r.attend && r.pad_to == 0)
        return cli_error(CLI_USAGE, "--attend-padding: without --pad-to there is no padding (add --pad-to N)");
    if (r.prompt != NULL && (r.prefix != NULL || r.common.tokens))
        return cli_error(CLI_USAGE, "--prompt: %s (remove one of the options)",
                         r.prefix != NULL ? "--prefix replaces the prompt" : "with --tokens, lines have no text");
    code = cli_t5_begin(&r.common, &r.input, args[0], args[1], r.text, r.output);
    if (code == CLI_OK)
        code = ask_model(&r);
    if (code == CLI_OK)
        code = cli_team_rank() != 0 ? encode_all(&r) : r.json ? write_json(&r) : write_arrays(&r);
    cli_progress_end(&r.progress);
    cli_team_settle(code);
    free(r.tokens);
    free(r.lengths);
    free(r.texts);
    free(r.zeros);
    free(r.vector);
    cli_lines_close(&r.input);
    cli_t5_close(&r.common);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command cli_t5_encode = {
    .name = "t5 encode",
    .summary = "write hidden states, or one vector for each line",
    .usage = "DIR|FILE [LINES] -o OUT.npz [options]      without LINES: standard input",
    .example = "  relpos t5 encode flan-t5-small lines.txt -o vectors.npz --pool mean --normalize\n"
               "  relpos t5 encode t5-xxl -o prompt.safetensors --text 'a cat' --for flux\n",
    .options = options,
    .shared = true,
    .run = run,
};
