/* eval_sample.c -- relpos lab eval and sample: measure a trained model on text, and let it generate text. Also contains
 * functions of other commands that read a model or convert text to tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = CLI_FIRST_KEY,
    PIECES,
    STRIDE,
    CONTEXT,
    NGRAMS,
    LENGTHS,
    TEXT,
    BYTES,
    JSON,
    PROMPT,
    TEMPERATURE,
    TOP_K,
    SEED,
    POSITION
};

typedef struct request {
    const char *lengths, *text, *prompt, *position;
    int64_t threads, bytes, pieces, stride, context, ngrams, top_k, seed;
    double temperature;
    bool json;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *q = context;
    int code;
    switch (key) {
    case THREADS: return cli_integer("--threads", value, 1, RP_MAX_THREADS, &q->threads);
    case LENGTHS: q->lengths = value; return CLI_OK;
    case TEXT: q->text = value; return CLI_OK;
    case POSITION: q->position = value; return CLI_OK;
    case BYTES: return cli_integer("--bytes", value, 1, (int64_t)1 << 40, &q->bytes);
    case JSON: q->json = true; return CLI_OK;
    case PIECES: return cli_integer("--pieces", value, 1, 1000000, &q->pieces);
    case STRIDE: return cli_integer("--stride", value, 0, 1 << 24, &q->stride);
    case CONTEXT: return cli_integer("--context", value, 0, 1 << 24, &q->context);
    case NGRAMS: return cli_integer("--ngrams", value, 1, NN_MAX_ORDER, &q->ngrams);
    case PROMPT: q->prompt = value; return CLI_OK;
    case TOP_K: return cli_integer("--top-k", value, 0, 256, &q->top_k);
    case SEED: return cli_integer("--seed", value, 0, (int64_t)1 << 52, &q->seed);
    case TEMPERATURE:
        code = cli_real("--temperature", value, &q->temperature);
        if (code == CLI_OK && !(q->temperature >= 0 && q->temperature <= 100))
            return cli_error(CLI_USAGE, "--temperature: %s is out of range (0 to 100)", value);
        return code;
    default: return -1;
    }
}

int lab_open_any(nn_model *m, const char *path, int64_t *step, int64_t threads, rp_pool **pool)
{
    char err[NN_ERR_MAX], warning[NN_ERR_MAX], place[PATH_MAX];
    path = cli_find_shipped(path, place);
    if (lab_blas(threads, err) != 0 || nn_checkpoint_read(m, path, false, step, warning, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    if (warning[0])
        cli_error(CLI_OK, "%s", warning);
    const int32_t tokens = (m->tokenizer ? m->tokenizer->n : 256) + m->c.bos;
    const bool fits = m->c.task == NN_ENCODER_DECODER /* nn_config_check has already checked vocab */
                      || (m->tokenizer ? tokens <= m->c.vocab : tokens == m->c.vocab);
    if (!fits) {
        const int code =
            cli_error(CLI_FAILED, "%s: its vocab is %lld, but there are %d %s%s (the file is damaged: train it again)",
                      path, (long long)m->c.vocab, (int)tokens, m->tokenizer ? "word pieces" : "bytes",
                      m->c.bos ? " with the first token" : "");
        nn_model_destroy(m);
        return code;
    }
    const int code = lab_pool(pool, threads);
    if (code != CLI_OK)
        nn_model_destroy(m);
    return code;
}

int lab_open(nn_model *m, const char *path, int64_t *step, int64_t threads, rp_pool **pool)
{
    const int code = lab_open_any(m, path, step, threads, pool);
    if (code != CLI_OK || (m->c.task == NN_DECODER && !m->tokenizer))
        return code;
    nn_model_destroy(m);
    rp_pool_destroy(*pool);
    return cli_error(
        CLI_FAILED,
        "%s: the model is a classifier, an encoder-decoder or a decoder of word pieces (name a decoder of bytes)",
        path);
}

int32_t *lab_tokens(const nn_model *m, const char *text, int64_t *n, char err[NN_ERR_MAX])
{
    const int64_t size = (int64_t)strlen(text);
    const bool pairs = m->c.task == NN_ENCODER_DECODER;
    int32_t *pieces = NULL;
    *n = size;
    if (m->tokenizer && !(pieces = nn_tokenizer_encode(m->tokenizer, (const unsigned char *)text, size, n, err)))
        return NULL;
    int32_t *tokens = malloc(((size_t)*n + 1) * sizeof *tokens);
    if (tokens && m->c.bos)
        tokens[0] = nn_first_token(&m->c);
    for (int64_t x = 0; tokens && x < *n; x++)
        tokens[m->c.bos + x] = pieces ? pieces[x] : (unsigned char)text[x] + (pairs ? NN_BYTE : 0);
    if (tokens && pairs)
        tokens[*n] = NN_END;
    *n += pairs || m->c.bos;
    free(pieces);
    if (!tokens)
        nn_fail(err, "lab: out of memory while reading %lld tokens (use a shorter text)", (long long)*n);
    return tokens;
}

const unsigned char *lab_token_text(const nn_model *m, int32_t token, unsigned char *byte, size_t *size)
{
    const nn_tokenizer *t = m->tokenizer;
    const bool pairs = m->c.task == NN_ENCODER_DECODER;
    *byte = (unsigned char)(token - (pairs ? NN_BYTE : 0));
    *size = 0;
    if (token == nn_first_token(&m->c))
        return byte;
    *size = pairs ? token >= NN_BYTE && token < NN_TOKENS : t ? t->offset[token + 1] - t->offset[token] : 1;
    return t ? (const unsigned char *)t->text + t->offset[token] : byte;
}

/* ------------------------------------------------------------------------------------------------ eval */

static const cli_option eval_options[] = {
    {"lengths", LENGTHS, "N,N,...", "measure at these lengths; default: the trained length"},
    {"text", TEXT, "FILES", "measure on these files; default: the held-out text of the experiment"},
    {"bytes", BYTES, "N", "measure on at most N bytes of the text; default 65536"},
    {"pieces", PIECES, "N", "divide the measured bytes into N pieces, spread over the text; default 1"},
    {"stride", STRIDE, "N",
     "move each window by N tokens and predict its last N, the same tokens for all lengths; default 0: windows do not "
     "overlap"},
    {"context", CONTEXT, "N",
     "the text consists of pieces, each with a context of N tokens before it; default 0: the pieces are spread over "
     "the text"},
    {"ngrams", NGRAMS, "N", "also measure Kneser-Ney n-grams of 1 to N bytes, counted on the training text"},
    {"position", POSITION, "TERMS",
     "measure with these terms and the same weights, such as a rope with scaling, or none; default: the trained terms"},
    {"threads", THREADS, "N", "use N threads; " CLI_ALL_THREADS},
    {"json", JSON, NULL, "print one JSON object"},
    {0},
};

int lab_held_out(const nn_model *m, const char *files, nn_text *held_out, char err[NN_ERR_MAX])
{
    const nn_config *c = &m->c;
    const bool classifier = c->task == NN_CLASSIFIER;
    files = files ? files : c->valid[0] ? c->valid : c->text;
    int code = nn_text_read(held_out, files, m->tokenizer, 2, err);
    if (code == 0 && files == c->text) {
        nn_text all = *held_out;
        code = nn_text_split(&all, classifier, c->valid_share, held_out, err);
        nn_text_free(&all);
        if (code == 0 && held_out->n < 2)
            code = nn_fail(err, "text: the experiment has no held-out text (give one with --text)");
    }
    return code == 0 && classifier ? lab_check_classes(c, held_out, files, 0, err) : code;
}

/* For each file, print the fraction of its windows that were classified correctly, and how often each class was
 * predicted for them. */
static void print_classes(const char *files, json_t *at)
{
    size_t file, other;
    json_t *row, *count;
    json_array_foreach(json_object_get(at, "taken"), file, row)
    {
        char name[NN_TEXT_MAX];
        double all = 0;
        nn_text_name(files, (int32_t)file, name);
        json_array_foreach(row, other, count) all += json_number_value(count);
        printf("    %6.2f %%  predicted", 100 * json_number_value(json_array_get(row, file)) / all);
        json_array_foreach(row, other, count) printf(" %6lld", (long long)json_integer_value(count));
        printf("   %s\n", name);
    }
}

static double number(json_t *object, const char *key, double of_null)
{
    json_t *x = json_object_get(object, key);
    return json_is_number(x) ? json_number_value(x) : of_null;
}

static const char *perplexity(char buf[32], double x)
{
    snprintf(buf, 32, x < 1e7 ? "%.3f" : "%.2e", x);
    return buf;
}

/* A measurement: the request, the model, and the results as JSON. */
typedef struct evaluation {
    request q;
    nn_model m;
    rp_pool *pool;
    int64_t step;
    bool generated; /* measure on generated lines instead of a text */
    json_t *lengths, *ngrams;
} evaluation;

/* Measure at each length; measure the n-gram baseline too if requested. On failure return -1 with err. */
static int measure(evaluation *e, char err[NN_ERR_MAX])
{
    const request *q = &e->q;
    nn_model *m = &e->m, other = {0}, *with = q->position ? &other : m;
    const lab_measure_options how = {q->bytes, q->pieces, q->stride, q->context};
    nn_text held_out = {0};
    char trained[32];
    int64_t lengths[LAB_MAX_LENGTHS];
    snprintf(trained, sizeof trained, "%lld", (long long)(e->generated ? m->c.generate_size : m->c.length));
    const int n = lab_lengths(q->lengths ? q->lengths : trained, lengths, err);
    if (!q->position || nn_model_with_position(&other, m, q->position, err) == 0) {
        if (e->generated)
            e->lengths = lab_measure_generated(with, e->pool, q->bytes, lengths, n, err);
        else if (lab_held_out(m, q->text, &held_out, err) == 0)
            e->lengths = lab_measure_lengths(with, e->pool, &held_out, &how, lengths, n, err);
    }
    if (e->lengths && q->ngrams)
        e->ngrams = lab_measure_ngrams(m, &held_out, &how, lengths, n, (int32_t)q->ngrams, err);
    nn_text_free(&held_out);
    nn_model_destroy(&other);
    return e->lengths && (e->ngrams || !q->ngrams) ? 0 : -1;
}

static int print_json(const evaluation *e)
{
    char err[NN_ERR_MAX];
    json_t *line = json_pack("{s:s, s:I, s:O, s:O*}", "position", e->q.position ? e->q.position : e->m.c.position,
                             "step", (json_int_t)e->step, "lengths", e->lengths, "ngrams", e->ngrams);
    return lab_write_line(stdout, "standard output", line, err) == 0 ? CLI_OK : cli_error(CLI_FAILED, "%s", err);
}

static int64_t integer(json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* Print the result of a decoder at one length, including the perplexity by position. */
static void print_decoder(const nn_model *m, json_t *at)
{
    const double loss = number(at, "loss", NAN);
    char buf[32];
    size_t x;
    json_t *range;
    printf("length %6lld   perplexity %7s%s   %.3f bits/byte   ", (long long)integer(at, "length"),
           perplexity(buf, exp(loss)), m->tokenizer ? " per word piece" : "", number(at, "bits_per_byte", NAN));
    if (m->tokenizer)
        printf("%lld word pieces, ", (long long)integer(at, "tokens"));
    printf("%lld bytes\n", (long long)integer(at, "bytes"));
    json_array_foreach(json_object_get(at, "positions"), x, range)
        printf("    from %6lld to %6lld   %7s\n", (long long)integer(range, "from"), (long long)integer(range, "to"),
               perplexity(buf, number(range, "perplexity", isnan(loss) ? NAN : INFINITY)));
}

/* Print the result for one length, or for one size of generated lines. */
static void print_length(const evaluation *e, json_t *at)
{
    const nn_config *c = &e->m.c;
    const double loss = number(at, "loss", NAN), lines = number(at, "lines", NAN);
    const long long length = integer(at, "length"), windows = integer(at, "windows");
    if (integer(at, json_object_get(at, "tokens") ? "tokens" : "windows") == 0) {
        printf("length %6lld   beyond the last position\n", length);
    } else if (e->generated) {
        printf("size %6lld   right %6.2f %% of %.0f lines   loss %.4f per byte of the answer\n", length,
               100 * number(at, "exact", NAN) / lines, lines, loss);
    } else if (c->task == NN_CLASSIFIER) {
        printf("length %6lld   accuracy %6.2f %%   loss %.4f   %lld windows, the same number from each file\n", length,
               100 * json_real_value(json_object_get(at, "accuracy")), loss, windows);
        print_classes(e->q.text ? e->q.text : c->valid[0] ? c->valid : c->text, at);
    } else {
        print_decoder(&e->m, at);
    }
}

static void print_results(const evaluation *e)
{
    char buf[32];
    size_t x;
    json_t *at;
    printf("position %s, trained at length %lld for %lld steps", e->m.c.position, (long long)e->m.c.length,
           (long long)e->step);
    printf(e->q.position ? "; measured with %s\n" : "\n", e->q.position);
    json_array_foreach(e->lengths, x, at) print_length(e, at);
    json_array_foreach(e->ngrams, x, at)
        printf("%lld-gram         perplexity %7s   %.3f bits/byte\n", (long long)integer(at, "order"),
               perplexity(buf, number(at, "perplexity", NAN)), number(at, "loss", NAN) / log(2));
}

/* Measure a decoder or a classifier and print the results. Return the exit code. */
static int eval_text(evaluation *e)
{
    char err[NN_ERR_MAX];
    int code = CLI_OK;
    e->generated = e->m.c.generate != NN_GENERATE_NONE && !e->q.text;
    if (measure(e, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    else if (e->q.json)
        code = print_json(e);
    else
        print_results(e);
    json_decref(e->lengths);
    json_decref(e->ngrams);
    return code;
}

static int eval_pairs(evaluation *e)
{
    const request *q = &e->q;
    if (q->lengths || q->position)
        return cli_error(CLI_USAGE, "--%s: an encoder-decoder is measured on whole pairs (remove the option)",
                         q->lengths ? "lengths" : "position");
    return lab_eval_pairs(&e->m, e->pool, q->text, q->bytes, e->step, q->json);
}

static int eval_run(const cli_command *self, int argc, char **argv)
{
    evaluation e = {.q = {.bytes = 65536, .pieces = 1}};
    const char *path;
    char err[NN_ERR_MAX];
    int64_t lengths[LAB_MAX_LENGTHS];
    int n, code = cli_options(self, argc, argv, on_option, &e.q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "lab eval: no run was given (write relpos lab eval out/run)");
    if (e.q.lengths && lab_lengths(e.q.lengths, lengths, err) < 0)
        return cli_error(CLI_USAGE, "--%s", err);
    if ((code = lab_open_any(&e.m, path, &e.step, e.q.threads, &e.pool)) != CLI_OK)
        return code;
    code = e.m.c.task == NN_ENCODER_DECODER ? eval_pairs(&e) : eval_text(&e);
    nn_model_destroy(&e.m);
    rp_pool_destroy(e.pool);
    return code;
}

const cli_command lab_eval = {
    .name = "lab eval",
    .summary = "measure the perplexity of a run, overall and by position, at any length",
    .usage = "DIR|FILE [options]",
    .example = "  relpos lab eval out/run --lengths 128,256,512\n"
               "  relpos lab eval out/run --text another.txt --json\n",
    .options = eval_options,
    .run = eval_run,
};

/* ------------------------------------------------------------------------------------------------ sample */

static const cli_option sample_options[] = {
    {"prompt", PROMPT, "TEXT",
     "begin with this text; default: a line feed. For an encoder-decoder it is the source and has no default"},
    {"bytes", BYTES, "N", "write N bytes; default 400"},
    {"temperature", TEMPERATURE, "T",
     "divide the logits by T; 0: always choose the likeliest token; default 0.8, or 0 for an encoder-decoder"},
    {"top-k", TOP_K, "K", "choose among the K likeliest tokens; default 0: all"},
    {"seed", SEED, "N", "draw tokens with this seed; the same seed writes the same text; default 1"},
    {"threads", THREADS, "N", "use N threads; " CLI_ALL_THREADS},
    {0},
};

/* Draw one of the first n tokens, with the probabilities that their logits give. `weight` is scratch for n numbers. */
static int32_t draw(const real *logits, int32_t n, double *weight, const request *q, int64_t count)
{
    double sum = 0, max = -INFINITY;
    int32_t best = 0;
    for (int32_t x = 0; x < n; x++) {
        weight[x] = q->top_k == 0;
        if ((double)logits[x] > max)
            max = (double)logits[x], best = x;
    }
    if (q->temperature == 0)
        return best;
    for (int64_t k = 0; k < q->top_k && k < n; k++) { /* mark the K likeliest tokens: weight[x] = 1 */
        int32_t next = -1;
        for (int32_t x = 0; x < n; x++)
            if (weight[x] == 0 && (next < 0 || logits[x] > logits[next]))
                next = x;
        weight[next] = 1;
    }
    for (int32_t x = 0; x < n; x++)
        sum += weight[x] *= exp(((double)logits[x] - max) / q->temperature);
    double left = sum * layers_uniform((uint64_t)q->seed, 3, (uint64_t)count);
    for (int32_t x = 0; x < n; x++)
        if ((left -= weight[x]) < 0)
            return x;
    return best;
}

/* State while a text is generated. */
typedef struct writer {
    request q;
    nn_model m;
    nn_net *net;
    rp_pool *pool;
    int32_t *tokens;          /* tokens of the prompt [n_tokens] */
    int64_t n_tokens, max;    /* max: max number of tokens to generate */
    real *logits;             /* [vocab] */
    double *weight;           /* scratch of draw [vocab] */
    unsigned char pending[4]; /* bytes of an incomplete character [n_pending] */
    size_t n_pending;
} writer;

/* Append a byte to the incomplete character, and print complete characters. Print U+FFFD for invalid bytes and for
 * control characters. */
static void put(writer *w, unsigned char byte)
{
    unsigned char *pending = w->pending;
    pending[w->n_pending++] = byte;
    while (w->n_pending > 0) {
        const size_t size = io_utf8(pending, w->n_pending), needed = pending[0] < 0xc2   ? 1
                                                                     : pending[0] < 0xe0 ? 2
                                                                     : pending[0] < 0xf0 ? 3
                                                                     : pending[0] < 0xf5 ? 4
                                                                                         : 1;
        const bool control =
            size == 1 && (pending[0] < 0x20 || pending[0] == 0x7f) && pending[0] != '\n' && pending[0] != '\t';
        bool may_follow = w->n_pending < needed;
        for (size_t x = 1; x < w->n_pending; x++)
            may_follow &= (pending[x] & 0xc0) == 0x80;
        if (size == 0 && may_follow)
            return;
        if (size > 0 && !control)
            fwrite(pending, 1, size, stdout);
        else
            fputs("\xef\xbf\xbd", stdout);
        const size_t used = size > 0 ? size : 1;
        memmove(pending, pending + used, w->n_pending - used);
        w->n_pending -= used;
    }
}

/* Print the text of a token. Return its size in bytes. */
static int64_t put_token(writer *w, int32_t token)
{
    size_t size;
    unsigned char byte;
    const unsigned char *text = lab_token_text(&w->m, token, &byte, &size);
    for (size_t x = 0; x < size; x++)
        put(w, text[x]);
    return (int64_t)size;
}

/* Check that the model can generate text, and choose the default temperature. Return an exit code. */
static int check_writer(writer *w, const char *path)
{
    const bool pairs = w->m.c.task == NN_ENCODER_DECODER;
    if (w->m.c.task == NN_CLASSIFIER)
        return cli_error(CLI_FAILED, "lab sample: %s is a classifier, which cannot write (use relpos lab eval)", path);
    if (pairs && !w->q.prompt)
        return cli_error(CLI_USAGE, "--prompt: an encoder-decoder needs a source (give it with --prompt TEXT)");
    if (w->q.temperature < 0)
        w->q.temperature = pairs ? 0 : 0.8;
    return CLI_OK;
}

enum { CHUNK = 256 }; /* tokens of the prompt that are processed per call */

/* Run the model on the prompt. With a decoder, also print the prompt; with an encoder-decoder, the prompt is the
 * source. */
static int read_prompt(writer *w, char err[NN_ERR_MAX])
{
    const bool pairs = w->m.c.task == NN_ENCODER_DECODER;
    const int32_t pad = NN_PAD;
    w->tokens = lab_tokens(&w->m, w->q.prompt ? w->q.prompt : "\n", &w->n_tokens, err);
    w->logits = malloc((size_t)w->m.c.vocab * sizeof *w->logits);
    w->weight = malloc((size_t)w->m.c.vocab * sizeof *w->weight);
    if (!w->tokens)
        return -1;
    if (!w->logits || !w->weight)
        return nn_fail(err, "lab: out of memory while computing %lld logits (close other programs)",
                       (long long)w->m.c.vocab);
    const int32_t source = (int32_t)w->n_tokens, *first = pairs ? &pad : w->tokens;
    const int64_t given = pairs ? 1 : w->n_tokens, chunk = given < CHUNK ? given : CHUNK;
    const int64_t end = nn_positions_end(&w->m, w->m.n_stacks - 1);
    w->max = w->q.bytes;
    if (given > end - w->max)
        w->max = end > given ? end - given : 0; /* learned and random positions end here */
    if (lab_net(&w->net, &w->m, w->pool, 1, chunk, false, given + w->max, err) != 0 ||
        (pairs && nn_net_source(w->net, source, w->tokens, &source, err) != 0))
        return -1;
    for (int64_t at = 0; at < given; at += chunk) {
        const int64_t count = given - at < chunk ? given - at : chunk;
        for (int64_t x = 0; x < count; x++)
            put_token(w, first[at + x]);
        if (nn_net_logits(w->net, count, first + at, w->logits, err) != 0)
            return -1;
    }
    return 0;
}

/* Draw and print tokens until the requested number of bytes is reached or the target of an encoder-decoder ends. */
static int write_text(writer *w, char err[NN_ERR_MAX])
{
    const int32_t n = w->m.tokenizer ? w->m.tokenizer->n : (int32_t)w->m.c.vocab - w->m.c.bos;
    int64_t written = 0;
    for (int64_t x = 0; x < w->max && written < w->q.bytes; x++) {
        const int32_t next = draw(w->logits, n, w->weight, &w->q, x);
        if (w->m.c.task == NN_ENCODER_DECODER && next == NN_END)
            break;
        written += put_token(w, next);
        fflush(stdout);
        if (x + 1 < w->max && written < w->q.bytes && nn_net_logits(w->net, 1, &next, w->logits, err) != 0)
            return -1;
    }
    for (; w->n_pending > 0; w->n_pending--)
        fputs("\xef\xbf\xbd", stdout);
    putchar('\n');
    return 0;
}

static void destroy_writer(writer *w)
{
    free(w->tokens);
    free(w->logits);
    free(w->weight);
    nn_net_destroy(w->net);
    nn_model_destroy(&w->m);
    rp_pool_destroy(w->pool);
}

static int sample_run(const cli_command *self, int argc, char **argv)
{
    writer w = {.q = {.bytes = 400, .temperature = -1, .seed = 1}};
    const char *path;
    char err[NN_ERR_MAX];
    int64_t step;
    int n, code = cli_options(self, argc, argv, on_option, &w.q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "lab sample: no run was given (write relpos lab sample out/run)");
    if (w.q.prompt && !*w.q.prompt)
        return cli_error(CLI_USAGE, "--prompt: it is empty (give at least one byte)");
    if ((code = lab_open_any(&w.m, path, &step, w.q.threads, &w.pool)) != CLI_OK)
        return code;
    code = check_writer(&w, path);
    if (code == CLI_OK && (read_prompt(&w, err) != 0 || write_text(&w, err) != 0))
        code = cli_error(CLI_FAILED, "%s", err);
    destroy_writer(&w);
    return code;
}

const cli_command lab_sample = {
    .name = "lab sample",
    .summary = "write text with a trained model",
    .usage = "DIR|FILE [options]",
    .example = "  relpos lab sample out/run --prompt 'Four score' --bytes 200\n"
               "  relpos lab sample out/run --temperature 0\n",
    .options = sample_options,
    .run = sample_run,
};
