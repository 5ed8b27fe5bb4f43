/* pair_data.c -- training data of an encoder-decoder: lines with a source and a target, or windows of a text from which
 * spans are cut out. Also forms the batches of each step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "lab/engine/nn.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    STREAM_ORDER = 4, /* random streams; windows, dropout and sampling use 1 to 3 */
    STREAM_BATCHES = 5,
    STREAM_STARTS = 6,
    STREAM_SPANS = 7,
    BLOCK = 64, /* number of batches whose pairs are sorted by length together */
};

/* ------------------------------------------------------------------------------------------------ lines */

/* Find the source and the target in a line. */
static int read_line(const nn_pairs *p, const int32_t *line, int64_t size, nn_pair *to, const char *name,
                     int64_t number, char err[NN_ERR_MAX])
{
    int64_t tab = -1, tabs = 0;
    for (int64_t x = 0; x < size; x++)
        if (line[x] == '\t') {
            tab = tab < 0 ? x : tab;
            tabs++;
        }
    if (tabs != 1)
        return nn_fail(err, "%.200s:%lld: the line has %lld tabs (write a source, one tab and a target)", name,
                       (long long)number, (long long)tabs);
    const int64_t n[2] = {tab, size - tab - 1};
    for (int side = 0; side < 2; side++) {
        const char *what = side ? "target" : "source";
        if (n[side] == 0)
            return nn_fail(err, "%.200s:%lld: the %s is empty (write a source, one tab and a target)", name,
                           (long long)number, what);
        if (n[side] >= p->length[side])
            return nn_fail(err,
                           "%.200s:%lld: the %s has %lld bytes and an end token, which is more than %lld tokens (set a "
                           "larger %s, or use a shorter %s)",
                           name, (long long)number, what, (long long)n[side], (long long)p->length[side],
                           side ? "target_length" : "length", what);
    }
    *to = (nn_pair){.n_source = (int32_t)n[0] + 1, .n_target = (int32_t)n[1] + 1};
    return 0;
}

static void add_tokens(nn_pairs *p, const int32_t *bytes, int64_t n)
{
    for (int64_t x = 0; x < n; x++)
        p->tokens[p->n_tokens++] = bytes[x] + NN_BYTE;
    p->tokens[p->n_tokens++] = NN_END;
}

static int read_lines(nn_pairs *p, const nn_text *t, const char *files, char err[NN_ERR_MAX])
{
    char name[NN_TEXT_MAX];
    int64_t lines = 0;
    for (int64_t x = 0; x < t->n; x++)
        lines += t->tokens[x] == '\n';
    lines += t->n_files;
    if (lines > INT32_MAX)
        return nn_fail(err, "text: up to %lld lines, but at most %d are supported (use a shorter text)",
                       (long long)lines, INT32_MAX);
    p->pair = malloc((size_t)lines * sizeof *p->pair);
    p->tokens = malloc((size_t)(t->n + 2 * lines) * sizeof *p->tokens);
    if (!p->pair || !p->tokens)
        return nn_fail(err, "text: out of memory while reading up to %lld pairs (use a shorter text)",
                       (long long)lines);
    for (int32_t f = 0; f < t->n_files; f++) {
        nn_text_name(files, f, name);
        for (int64_t from = nn_text_start(t, f), number = 1, end; from < t->end[f]; from = end + 1, number++) {
            nn_pair *pair = &p->pair[p->n];
            for (end = from; end < t->end[f] && t->tokens[end] != '\n'; end++)
                ;
            if (read_line(p, t->tokens + from, end - from, pair, name, number, err) != 0)
                return -1;
            pair->source = p->n_tokens;
            add_tokens(p, t->tokens + from, pair->n_source - 1);
            pair->target = p->n_tokens;
            add_tokens(p, t->tokens + from + pair->n_source, pair->n_target - 1);
            p->n++;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------ span corruption */

/* Compute how many bytes are cut out of a window, and in how many spans (Raffel 2020, section 3.1.4). */
static void plan_window(const nn_config *c, int64_t window, int64_t *cut, int64_t *spans)
{
    const int64_t most = window - 1;
    *cut = llround((double)window * c->noise);
    *cut = *cut < 1 ? 1 : *cut > most ? most : *cut;
    *spans = llround((double)*cut / c->noise_span);
    *spans = *spans > window - *cut ? window - *cut : *spans;
    *spans = *spans < 1 ? 1 : *spans > NN_SENTINELS ? NN_SENTINELS : *spans;
}

/* Find the longest window whose source and target fit into p->length. */
static int read_windows(nn_pairs *p, const nn_config *c, char err[NN_ERR_MAX])
{
    for (int64_t window = 2; window <= p->text.n; window++) {
        int64_t cut, spans;
        plan_window(c, window, &cut, &spans);
        if (window - cut + spans + 1 > p->length[0] || cut + spans + 1 > p->length[1])
            break;
        p->window = window;
        p->cut = cut;
        p->spans = spans;
    }
    if (p->window == 0)
        return nn_fail(err,
                       "noise: windows of two bytes do not fit into a length of %lld and a target_length of %lld "
                       "(use greater lengths, or a longer text)",
                       (long long)p->length[0], (long long)p->length[1]);
    p->n = p->text.n / p->window;
    return 0;
}

/* Divide n into `parts` parts of size 1 or more; every such division is equally likely. `part` receives the sizes. */
static void cut_randomly(int64_t n, int64_t parts, uint64_t seed, int64_t *part)
{
    int64_t left = parts - 1, size = 1, k = 0;
    for (int64_t x = 0; x < n - 1; x++) /* Knuth 1969, volume 2, algorithm S */
        if (layers_uniform(seed, STREAM_SPANS, (uint64_t)x) * (double)(n - 1 - x) < (double)left) {
            part[k++] = size;
            size = 1;
            left--;
        } else {
            size++;
        }
    part[k] = size;
}

/* Make the source and the target for the window at byte `at`. A window begins with text that is kept and ends with a
 * span that is cut out. */
static void corrupt(const nn_pairs *p, int64_t at, uint64_t seed, int32_t *source, int32_t *n_source, int32_t *target,
                    int32_t *n_target)
{
    int64_t kept[NN_SENTINELS], removed[NN_SENTINELS];
    int32_t *s = source, *t = target;
    cut_randomly(p->window - p->cut, p->spans, layers_random(seed, STREAM_SPANS, 0), kept);
    cut_randomly(p->cut, p->spans, layers_random(seed, STREAM_SPANS, 1), removed);
    for (int64_t k = 0; k < p->spans; k++) {
        for (int64_t x = 0; x < kept[k]; x++)
            *s++ = p->text.tokens[at++] + NN_BYTE;
        *s++ = *t++ = NN_SENTINEL - (int32_t)k;
        for (int64_t x = 0; x < removed[k]; x++)
            *t++ = p->text.tokens[at++] + NN_BYTE;
    }
    *s++ = *t++ = NN_END;
    *n_source = (int32_t)(s - source);
    *n_target = (int32_t)(t - target);
}

/* ------------------------------------------------------------------------------------------------ reading */

int nn_pairs_read(nn_pairs *p, const nn_config *c, const char *files, char err[NN_ERR_MAX])
{
    *p = (nn_pairs){.length = {c->length, c->target_length > 0 ? c->target_length : c->length}, .epoch = -1};
    nn_text text;
    if (nn_text_read(&text, files, NULL, 2, err) != 0)
        return -1;
    int code;
    if (c->noise > 0) {
        p->text = text;
        code = read_windows(p, c, err);
    } else {
        code = read_lines(p, &text, files, err);
        nn_text_free(&text);
    }
    if (code != 0)
        nn_pairs_free(p);
    return code;
}

void nn_pairs_free(nn_pairs *p)
{
    free(p->tokens);
    free(p->pair);
    free(p->order);
    nn_text_free(&p->text);
    *p = (nn_pairs){0};
}

int nn_pairs_split(nn_pairs *p, double fraction, nn_pairs *held_out, char err[NN_ERR_MAX])
{
    const int64_t kept = p->n - (int64_t)((double)p->n * fraction);
    *held_out = *p;
    held_out->tokens = NULL;
    held_out->pair = NULL;
    held_out->text = (nn_text){0};
    held_out->order = NULL;
    held_out->n = p->n - kept;
    p->n = kept;
    if (!p->pair) {
        nn_text *t = &p->text;
        if (nn_text_split(t, false, (double)(held_out->n * p->window) / (double)t->n, &held_out->text, err) != 0)
            return -1;
        held_out->n = held_out->text.n / p->window;
        p->n = t->n / p->window;
        return 0;
    }
    held_out->pair = malloc((size_t)(held_out->n + 1) * sizeof *held_out->pair);
    held_out->tokens = malloc((size_t)(p->n_tokens + 1) * sizeof *held_out->tokens);
    if (!held_out->pair || !held_out->tokens) {
        nn_pairs_free(held_out);
        return nn_fail(err, "text: out of memory while splitting off the held-out pairs (use a shorter text)");
    }
    memcpy(held_out->pair, p->pair + kept, (size_t)held_out->n * sizeof *held_out->pair);
    memcpy(held_out->tokens, p->tokens, (size_t)p->n_tokens * sizeof *held_out->tokens);
    return 0;
}

uint64_t nn_pairs_checksum(const nn_pairs *p, uint64_t z)
{
    z = io_checksum(z, p->pair ? p->tokens : p->text.tokens,
                    (size_t)(p->pair ? p->n_tokens : p->text.n) * sizeof *p->tokens);
    return io_checksum(z, &p->n, sizeof p->n);
}

/* ------------------------------------------------------------------------------------------------ batches */

int nn_batch_create(nn_batch *b, int64_t batch, int64_t source, int64_t target, char err[NN_ERR_MAX])
{
    const size_t size = sizeof(int32_t) * (size_t)batch;
    *b = (nn_batch){.source = malloc(size * (size_t)source),
                    .lengths = malloc(size),
                    .input = malloc(size * (size_t)target),
                    .target = malloc(size * (size_t)target)};
    if (b->source && b->lengths && b->input && b->target)
        return 0;
    nn_batch_destroy(b);
    return nn_fail(err, "lab: out of memory while preparing a batch (use a smaller batch)");
}

void nn_batch_destroy(nn_batch *b)
{
    free(b->source);
    free(b->lengths);
    free(b->input);
    free(b->target);
    *b = (nn_batch){0};
}

static void put_source(nn_batch *to, int64_t entry, const int32_t *source, int32_t n)
{
    int32_t *row = to->source + entry * to->length[0];
    memmove(row, source, (size_t)n * sizeof *row);
    for (int64_t x = n; x < to->length[0]; x++)
        row[x] = NN_PAD;
    to->lengths[entry] = n;
}

/* Write a target, and the input of the decoder: PAD followed by the target without its last token. */
static void put_target(nn_batch *to, int64_t entry, const int32_t *target, int32_t n)
{
    int32_t *row = to->target + entry * to->length[1], *input = to->input + entry * to->length[1];
    memmove(row, target, (size_t)n * sizeof *row);
    input[0] = NN_PAD;
    for (int64_t x = 1; x < to->length[1]; x++)
        input[x] = x < n ? row[x - 1] : NN_PAD;
    for (int64_t x = n; x < to->length[1]; x++)
        row[x] = -1;
    to->tokens += n;
}

static void put_lines(const nn_pairs *p, const int32_t *order, int64_t first, int64_t batch, nn_batch *to)
{
    to->length[0] = to->length[1] = 1;
    to->tokens = 0;
    for (int64_t b = 0; b < batch && first + b < p->n; b++) {
        const nn_pair *pair = &p->pair[order ? order[first + b] : first + b];
        to->length[0] = pair->n_source > to->length[0] ? pair->n_source : to->length[0];
        to->length[1] = pair->n_target > to->length[1] ? pair->n_target : to->length[1];
    }
    for (int64_t b = 0; b < batch; b++) {
        const bool beyond = first + b >= p->n;
        const nn_pair *pair = &p->pair[beyond ? 0 : order ? order[first + b] : first + b];
        put_source(to, b, beyond ? (const int32_t[]){NN_END} : p->tokens + pair->source, beyond ? 1 : pair->n_source);
        put_target(to, b, p->tokens + pair->target, beyond ? 0 : pair->n_target);
    }
}

/* Make windows that begin at random places or, with seed 0, follow each other. */
static void put_windows(const nn_pairs *p, uint64_t seed, int64_t first, int64_t batch, nn_batch *to)
{
    to->length[0] = p->window - p->cut + p->spans + 1;
    to->length[1] = p->cut + p->spans + 1;
    to->tokens = 0;
    for (int64_t b = 0; b < batch; b++) {
        const uint64_t starts = (uint64_t)(p->text.n - p->window + 1), w = (uint64_t)(first + b);
        const bool beyond = seed == 0 && first + b >= p->n;
        const int64_t at = seed     ? (int64_t)(layers_random(seed, STREAM_STARTS, w) % starts)
                           : beyond ? 0
                                    : (first + b) * p->window;
        int32_t *source = to->source + b * to->length[0], *target = to->target + b * to->length[1], n_source, n_target;
        corrupt(p, at, layers_random(seed, STREAM_STARTS + 1, w), source, &n_source, target, &n_target);
        put_source(to, b, source, n_source);
        put_target(to, b, target, beyond ? 0 : n_target);
    }
}

void nn_pairs_at(const nn_pairs *p, int64_t first, int64_t batch, nn_batch *to)
{
    if (p->pair)
        put_lines(p, NULL, first, batch, to);
    else
        put_windows(p, 0, first, batch, to);
}

typedef struct sorted {
    int32_t target, source, place, pair;
} sorted;

static int by_length(const void *x, const void *y)
{
    const sorted *a = x, *b = y;
    const int64_t differ[] = {a->target - b->target, a->source - b->source, a->place - b->place};
    for (int k = 0; k < 3; k++)
        if (differ[k] != 0)
            return differ[k] < 0 ? -1 : 1;
    return 0;
}

/* Compute the order of the pairs in an epoch: shuffle all pairs, sort the pairs of every BLOCK batches by length, and
 * shuffle the batches. So batches have little padding, yet the epoch is in random order. */
static int order_epoch(nn_pairs *p, uint64_t seed, int64_t epoch, int64_t batch, char err[NN_ERR_MAX])
{
    const int64_t batches = p->n / batch, used = batches * batch;
    const uint64_t each = (uint64_t)epoch * (uint64_t)p->n;
    sorted *s = malloc((size_t)p->n * sizeof *s);
    int32_t *order = malloc((size_t)p->n * sizeof *order);
    if (!s || !order) {
        free(s);
        free(order);
        return nn_fail(err, "text: out of memory while shuffling the pairs (close other programs)");
    }
    for (int64_t x = 0; x < p->n; x++)
        order[x] = (int32_t)x;
    for (int64_t x = p->n - 1; x > 0; x--) { /* Fisher, Yates */
        const int64_t y = (int64_t)(layers_random(seed, STREAM_ORDER, each + (uint64_t)x) % (uint64_t)(x + 1));
        const int32_t kept = order[x];
        order[x] = order[y];
        order[y] = kept;
    }
    for (int64_t x = 0; x < used; x++) {
        const nn_pair *pair = &p->pair[order[x]];
        s[x] = (sorted){pair->n_target, pair->n_source, (int32_t)x, order[x]};
    }
    for (int64_t from = 0; from < used; from += BLOCK * batch)
        qsort(s + from, (size_t)(used - from < BLOCK * batch ? used - from : BLOCK * batch), sizeof *s, by_length);
    for (int64_t x = 0; x < batches; x++) /* `place` at the first pair of batch x: index of the batch that moves to x */
        s[x * batch].place = (int32_t)x;
    for (int64_t x = batches - 1; x > 0; x--) {
        const int64_t y = (int64_t)(layers_random(seed, STREAM_BATCHES, each + (uint64_t)x) % (uint64_t)(x + 1));
        const int32_t kept = s[x * batch].place;
        s[x * batch].place = s[y * batch].place;
        s[y * batch].place = kept;
    }
    for (int64_t x = 0; x < used; x++)
        order[x] = s[s[x / batch * batch].place * batch + x % batch].pair;
    free(s);
    free(p->order);
    p->order = order;
    p->epoch = epoch;
    return 0;
}

int nn_pairs_step(nn_pairs *p, uint64_t seed, int64_t step, int64_t batch, nn_batch *to, char err[NN_ERR_MAX])
{
    if (!p->pair) {
        put_windows(p, seed + 1, step * batch, batch, to);
        return 0;
    }
    const int64_t batches = p->n / batch;
    if (batches < 1)
        return nn_fail(err, "text: it has %lld training pairs, but batch is %lld (use a smaller batch, or more pairs)",
                       (long long)p->n, (long long)batch);
    if (p->epoch != step / batches && order_epoch(p, seed, step / batches, batch, err) != 0)
        return -1;
    put_lines(p, p->order, step % batches * batch, batch, to);
    return 0;
}
