/* use.c -- relpos lab eval and sample: measure a trained model on text, and let it write. Also reads models and
 * converts tokens for the other commands.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = CLI_OWN,
    PIECES,
    STRIDE,
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
    int64_t threads, bytes, pieces, stride, ngrams, top_k, seed;
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
    path = cli_shipped(path, place);
    if (lab_blas(threads, err) != 0 || nn_checkpoint_read(m, path, false, step, warning, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    if (warning[0])
        cli_error(CLI_OK, "%s", warning);
    const int32_t tokens = (m->tokenizer ? m->tokenizer->n : 256) + m->c.bos;
    const bool fits = m->c.task == NN_ENCODER_DECODER /* nn_config_check has checked its vocab */
                      || (m->tokenizer ? tokens <= m->c.vocab : tokens == m->c.vocab);
    if (!fits) {
        const int code = cli_error(CLI_FAILED, "%s: damaged: vocab is %lld, but there are %d %s%s (train it again)",
                                   path, (long long)m->c.vocab, (int)tokens, m->tokenizer ? "word pieces" : "bytes",
                                   m->c.bos ? " with the first token" : "");
        nn_model_destroy(m);
        return code;
    }
    if (rp_pool_create(pool, (int32_t)threads) != RP_OK) {
        nn_model_destroy(m);
        return cli_refused(CLI_FAILED, "lab", NULL, "use fewer --threads");
    }
    return CLI_OK;
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
        "%s: it is not a decoder of bytes: it is a classifier, an encoder-decoder or a decoder of word pieces (name "
        "another model)",
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
        nn_fail(err, "lab: out of memory for %lld tokens (use a shorter text)", (long long)*n);
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
    {"pieces", PIECES, "N", "divide these bytes into N pieces, spread over the text; default 1"},
    {"stride", STRIDE, "N",
     "move each window by N tokens and predict its last N, the same tokens for all lengths; default 0: windows do not "
     "overlap"},
    {"ngrams", NGRAMS, "N", "also measure Kneser-Ney n-grams of 1 to N bytes, counted on the training text"},
    {"position", POSITION, "TERMS",
     "measure with these terms and the same weights, such as a rope with scaling; default: the trained terms"},
    {"threads", THREADS, "N", "use N threads; default: all available"},
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
            code = nn_fail(err, "text: the experiment has no held-out text (name one with --text)");
    }
    return code == 0 && classifier ? lab_check_classes(c, held_out, files, 0, err) : code;
}

/* Print for each file the fraction of right predictions, and how often each file was predicted for its windows. */
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

static int eval_run(const cli_command *self, int argc, char **argv)
{
    request q = {.bytes = 65536, .pieces = 1};
    const char *path;
    char err[NN_ERR_MAX], own[32], buf[32];
    int n, code = cli_options(self, argc, argv, on_option, &q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "lab eval: no run is named (such as relpos lab eval out/run)");
    nn_model m;
    rp_pool *pool = NULL;
    int64_t step, lengths[LAB_MAX_LENGTHS];
    nn_text held = {0};
    if (q.lengths && lab_lengths(q.lengths, lengths, err) < 0)
        return cli_error(CLI_USAGE, "--%s", err);
    if ((code = lab_open_any(&m, path, &step, q.threads, &pool)) != CLI_OK)
        return code;
    if (m.c.task == NN_ENCODER_DECODER) {
        code = q.lengths || q.position
                   ? cli_error(CLI_USAGE, "--%s: an encoder-decoder is measured on whole pairs (remove the option)",
                               q.lengths ? "lengths" : "position")
                   : lab_eval_pairs(&m, pool, q.text, q.bytes, step, q.json);
        nn_model_destroy(&m);
        rp_pool_destroy(pool);
        return code;
    }
    const bool generated = m.c.generate != NN_GENERATE_NONE && !q.text;
    snprintf(own, sizeof own, "%lld", (long long)(generated ? m.c.generate_size : m.c.length));
    const int count = lab_lengths(q.lengths ? q.lengths : own, lengths, err);
    nn_model other = {0};
    const lab_how how = {q.bytes, q.pieces, q.stride};
    nn_model *with = q.position ? &other : &m;
    json_t *all = NULL;
    if (!q.position || nn_model_with_position(&other, &m, q.position, err) == 0) {
        if (generated)
            all = lab_measure_generated(with, pool, q.bytes, lengths, count, err);
        else if (lab_held_out(&m, q.text, &held, err) == 0)
            all = lab_measure_lengths(with, pool, &held, &how, lengths, count, err);
    }
    json_t *ngrams =
        all && q.ngrams ? lab_measure_ngrams(&m, &held, &how, lengths, count, (int32_t)q.ngrams, err) : NULL;
    if (!all || (q.ngrams && !ngrams)) {
        code = cli_error(CLI_FAILED, "%s", err);
    } else if (q.json) {
        json_t *line = json_pack("{s:s, s:I, s:O, s:O*}", "position", q.position ? q.position : m.c.position, "step",
                                 (json_int_t)step, "lengths", all, "ngrams", ngrams);
        code = lab_write_line(stdout, "standard output", line, err) == 0 ? CLI_OK : cli_error(CLI_FAILED, "%s", err);
    } else {
        size_t x, y;
        json_t *at, *range;
        printf("position %s, trained at length %lld for %lld steps", m.c.position, (long long)m.c.length,
               (long long)step);
        printf(q.position ? "; measured with %s\n" : "\n", q.position);
        json_array_foreach(all, x, at)
        {
            const double loss = number(at, "loss", NAN);
            if (json_object_get(at, "tokens") ? !json_integer_value(json_object_get(at, "tokens"))
                                              : !json_integer_value(json_object_get(at, "windows"))) {
                printf("length %6lld   beyond the last position\n",
                       (long long)json_integer_value(json_object_get(at, "length")));
                continue;
            }
            if (generated) {
                const double lines = number(at, "lines", NAN);
                printf("size %6lld   right %6.2f %% of %.0f lines   loss %.4f per byte of the answer\n",
                       (long long)json_integer_value(json_object_get(at, "length")),
                       100 * number(at, "exact", NAN) / lines, lines, loss);
                continue;
            }
            if (m.c.task == NN_CLASSIFIER) {
                printf("length %6lld   accuracy %6.2f %%   loss %.4f   %lld windows, as many of each file\n",
                       (long long)json_integer_value(json_object_get(at, "length")),
                       100 * json_real_value(json_object_get(at, "accuracy")), loss,
                       (long long)json_integer_value(json_object_get(at, "windows")));
                print_classes(q.text ? q.text : m.c.valid[0] ? m.c.valid : m.c.text, at);
                continue;
            }
            printf("length %6lld   perplexity %7s%s   %.3f bits/byte   ",
                   (long long)json_integer_value(json_object_get(at, "length")), perplexity(buf, exp(loss)),
                   m.tokenizer ? " per word piece" : "", number(at, "bits_per_byte", NAN));
            if (m.tokenizer)
                printf("%lld word pieces, ", (long long)json_integer_value(json_object_get(at, "tokens")));
            printf("%lld bytes\n", (long long)json_integer_value(json_object_get(at, "bytes")));
            json_array_foreach(json_object_get(at, "positions"), y, range)
                printf("    from %6lld to %6lld   %7s\n", (long long)json_integer_value(json_object_get(range, "from")),
                       (long long)json_integer_value(json_object_get(range, "to")),
                       perplexity(buf, number(range, "perplexity", isnan(loss) ? NAN : INFINITY)));
        }
        json_array_foreach(ngrams, x, at)
            printf("%lld-gram         perplexity %7s   %.3f bits/byte\n",
                   (long long)json_integer_value(json_object_get(at, "order")),
                   perplexity(buf, number(at, "perplexity", NAN)), number(at, "loss", NAN) / log(2));
    }
    json_decref(all);
    json_decref(ngrams);
    nn_text_free(&held);
    nn_model_destroy(&other);
    nn_model_destroy(&m);
    rp_pool_destroy(pool);
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
    {"prompt", PROMPT, "TEXT", "begin with this text; default: a line feed; for an encoder-decoder, the source"},
    {"bytes", BYTES, "N", "write N bytes; default 400"},
    {"temperature", TEMPERATURE, "T",
     "divide the logits by T; 0: always choose the likeliest token; default 0.8, for an encoder-decoder 0"},
    {"top-k", TOP_K, "K", "choose among the K likeliest tokens; default 0: all"},
    {"seed", SEED, "N", "draw with this seed: the same seed writes the same text; default 1"},
    {"threads", THREADS, "N", "use N threads; default: all available"},
    {0},
};

/* Draw one of the first n tokens with the probabilities of their logits. weight: scratch for n numbers. */
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
    for (int64_t k = 0; k < q->top_k && k < n; k++) { /* set weight[x] = 1 for the K likeliest tokens */
        int32_t next = -1;
        for (int32_t x = 0; x < n; x++)
            if (weight[x] == 0 && (next < 0 || logits[x] > logits[next]))
                next = x;
        weight[next] = 1;
    }
    for (int32_t x = 0; x < n; x++)
        sum += weight[x] *= exp(((double)logits[x] - max) / q->temperature);
    double left = sum * nn_uniform((uint64_t)q->seed, 3, (uint64_t)count);
    for (int32_t x = 0; x < n; x++)
        if ((left -= weight[x]) < 0)
            return x;
    return best;
}

/* Append a byte to `held`, which buffers the bytes of an incomplete character, and print complete characters. Print
 * U+FFFD for invalid bytes and for control characters. */
static void put(unsigned char held[4], size_t *n, unsigned char byte)
{
    held[(*n)++] = byte;
    while (*n > 0) {
        const size_t size = io_utf8(held, *n), needed = held[0] < 0xc2   ? 1
                                                        : held[0] < 0xe0 ? 2
                                                        : held[0] < 0xf0 ? 3
                                                        : held[0] < 0xf5 ? 4
                                                                         : 1;
        const bool control = size == 1 && (held[0] < 0x20 || held[0] == 0x7f) && held[0] != '\n' && held[0] != '\t';
        bool may_follow = *n < needed;
        for (size_t x = 1; x < *n; x++)
            may_follow &= (held[x] & 0xc0) == 0x80;
        if (size == 0 && may_follow)
            return;
        if (size > 0 && !control)
            fwrite(held, 1, size, stdout);
        else
            fputs("\xef\xbf\xbd", stdout);
        const size_t used = size > 0 ? size : 1;
        memmove(held, held + used, *n - used);
        *n -= used;
    }
}

/* Print the text of a token. Return its size in bytes. */
static int64_t put_token(const nn_model *m, int32_t token, unsigned char held[4], size_t *n)
{
    size_t size;
    unsigned char byte;
    const unsigned char *text = lab_token_text(m, token, &byte, &size);
    for (size_t x = 0; x < size; x++)
        put(held, n, text[x]);
    return (int64_t)size;
}

static int sample_run(const cli_command *self, int argc, char **argv)
{
    enum { CHUNK = 256 }; /* tokens of the prompt per call */
    request q = {.bytes = 400, .temperature = -1, .seed = 1};
    const char *path;
    char err[NN_ERR_MAX];
    int n, code = cli_options(self, argc, argv, on_option, &q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "lab sample: no run is named (such as relpos lab sample out/run)");
    if (q.prompt && !*q.prompt)
        return cli_error(CLI_USAGE, "--prompt: it is empty (give at least one byte)");
    nn_model m;
    nn_net *net = NULL;
    rp_pool *pool = NULL;
    int64_t step, given, written = 0;
    if ((code = lab_open_any(&m, path, &step, q.threads, &pool)) != CLI_OK)
        return code;
    if (m.c.task == NN_CLASSIFIER) {
        nn_model_destroy(&m);
        rp_pool_destroy(pool);
        return cli_error(CLI_FAILED, "lab sample: %s is a classifier, which cannot write (use relpos lab eval)", path);
    }
    const bool pairs = m.c.task == NN_ENCODER_DECODER;
    if (pairs && !q.prompt) {
        nn_model_destroy(&m);
        rp_pool_destroy(pool);
        return cli_error(CLI_USAGE, "--prompt: an encoder-decoder needs a source (give it with --prompt TEXT)");
    }
    if (q.temperature < 0)
        q.temperature = pairs ? 0 : 0.8;
    unsigned char held[4];
    size_t n_held = 0;
    int32_t *tokens = lab_tokens(&m, q.prompt ? q.prompt : "\n", &given, err), pad = NN_PAD;
    const int32_t source = (int32_t)given, *first = pairs ? &pad : tokens;
    given = pairs ? 1 : given;
    real *logits = malloc((size_t)m.c.vocab * sizeof *logits);
    double *weight = malloc((size_t)m.c.vocab * sizeof *weight);
    int state = !tokens ? -1
                : logits && weight
                    ? 0
                    : nn_fail(err, "lab: out of memory for %lld logits (close other programs)", (long long)m.c.vocab);
    int64_t max = q.bytes; /* most tokens to write */
    const int64_t end = nn_positions_end(&m, m.n_stacks - 1);
    if (state == 0 && given > end - max)
        max = end > given ? end - given : 0; /* learned or random positions end here */
    const int64_t chunk = given < CHUNK ? given : CHUNK;
    if (state == 0)
        state = lab_net(&net, &m, pool, 1, chunk, false, given + max, err);
    if (state == 0 && pairs)
        state = nn_net_source(net, source, tokens, &source, err);
    for (int64_t at = 0; state == 0 && at < given; at += chunk) {
        const int64_t count = given - at < chunk ? given - at : chunk;
        for (int64_t x = 0; x < count; x++)
            put_token(&m, first[at + x], held, &n_held);
        state = nn_net_logits(net, count, first + at, logits, err);
    }
    for (int64_t x = 0; state == 0 && x < max && written < q.bytes; x++) {
        const int32_t next = draw(logits, m.tokenizer ? m.tokenizer->n : (int32_t)m.c.vocab - m.c.bos, weight, &q, x);
        if (pairs && next == NN_END)
            break;
        written += put_token(&m, next, held, &n_held);
        fflush(stdout);
        state = x + 1 < max && written < q.bytes ? nn_net_logits(net, 1, &next, logits, err) : 0;
    }
    for (; state == 0 && n_held > 0; n_held--) /* bytes of an incomplete character */
        fputs("\xef\xbf\xbd", stdout);
    if (state == 0)
        putchar('\n');
    else
        code = cli_error(CLI_FAILED, "%s", err);
    free(tokens);
    free(logits);
    free(weight);
    nn_net_destroy(net);
    nn_model_destroy(&m);
    rp_pool_destroy(pool);
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
