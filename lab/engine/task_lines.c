/* task_lines.c -- generates random lines of tasks that have one correct answer. "=" ends the question; a line feed ends
 * the answer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <stdlib.h>
#include <string.h>

enum {
    STREAM_SIZES = 9, /* random streams; text, pairs and positions use smaller numbers */
    STREAM_LINES = 10,
    PASSKEY = 5, /* number of digits of a passkey */
    NAMES = 26 * 26
};

/* The random numbers of a line. */
typedef struct draw {
    uint64_t seed, n;
} draw;

static int64_t below(draw *d, int64_t end)
{
    return (int64_t)(layers_random(d->seed, STREAM_LINES, d->n++) % (uint64_t)end);
}

static char letter(draw *d)
{
    return (char)('a' + below(d, 26));
}

static char digit(draw *d)
{
    return (char)('0' + below(d, 10));
}

/* The following functions write a question and its answer for a line of size `size`. They return the index where the
 * answer begins. */
static int64_t copy(draw *d, int64_t size, char *line)
{
    for (int64_t x = 0; x < size; x++)
        line[x] = line[size + 1 + x] = letter(d);
    return size + 1;
}

static int64_t reverse(draw *d, int64_t size, char *line)
{
    for (int64_t x = 0; x < size; x++)
        line[x] = line[2 * size - x] = letter(d);
    return size + 1;
}

/* The question lists `size` different names of two letters, each followed by a digit, and then repeats one of the
 * names. The digit of that name is the answer. */
static int64_t recall(draw *d, int64_t size, char *line)
{
    int16_t name[NAMES];
    for (int16_t x = 0; x < NAMES; x++)
        name[x] = x;
    for (int64_t x = 0; x < size; x++) { /* the first `size` steps of a Fisher-Yates shuffle */
        const int64_t y = x + below(d, NAMES - x);
        const int16_t drawn = name[y];
        name[y] = name[x];
        name[x] = drawn;
        line[3 * x] = (char)('a' + drawn / 26);
        line[3 * x + 1] = (char)('a' + drawn % 26);
        line[3 * x + 2] = digit(d);
    }
    memcpy(line + 3 * size, line + 3 * below(d, size), 2);
    for (int64_t x = 0; x < size; x++)
        if (memcmp(line + 3 * x, line + 3 * size, 2) == 0)
            line[3 * size + 3] = line[3 * x + 2];
    return 3 * size + 3;
}

/* The question hides PASSKEY digits among `size` letters of a repeated sentence. The digits are the answer. */
static int64_t passkey(draw *d, int64_t size, char *line)
{
    static const char sentence[] = "the grass is green and the sky is blue and here we go there and back again ";
    const int64_t at = below(d, size + 1), start = below(d, (int64_t)sizeof sentence - 1);
    for (int64_t x = 0; x < size; x++)
        line[x < at ? x : x + PASSKEY] = sentence[(start + x) % ((int64_t)sizeof sentence - 1)];
    for (int64_t x = 0; x < PASSKEY; x++)
        line[at + x] = line[size + PASSKEY + 1 + x] = digit(d);
    return size + PASSKEY + 1;
}

/* The question consists of two numbers of `size` digits. The answer is their sum. All numbers are written with the
 * lowest digit first. */
static int64_t addition(draw *d, int64_t size, char *line)
{
    int carry = 0;
    char *sum = line + 2 * size + 2;
    for (int64_t x = 0; x < size; x++) {
        line[x] = digit(d);
        line[size + 1 + x] = digit(d);
        carry += line[x] - '0' + line[size + 1 + x] - '0';
        sum[x] = (char)('0' + carry % 10);
        carry /= 10;
    }
    line[size] = '+';
    sum[size] = (char)('0' + carry);
    return 2 * size + 2;
}

static const struct task {
    int64_t (*write)(draw *d, int64_t size, char *line);
    int64_t per, more; /* a line has per * size + more bytes */
    int64_t end;       /* largest size; 0: no limit */
} tasks[] = {[NN_GENERATE_COPY] = {copy, 2, 2, 0},
             [NN_GENERATE_REVERSE] = {reverse, 2, 2, 0},
             [NN_GENERATE_RECALL] = {recall, 3, 5, NAMES},
             [NN_GENERATE_PASSKEY] = {passkey, 1, 2 * PASSKEY + 2, 0},
             [NN_GENERATE_ADDITION] = {addition, 3, 4, 0}};

int64_t nn_generated_bytes(int32_t task, int64_t size)
{
    return tasks[task].per * size + tasks[task].more;
}

int64_t nn_generated_window(const nn_config *c, int64_t size)
{
    return nn_generated_bytes(c->generate, size) - 1 + c->bos;
}

int64_t nn_generated_end(int32_t task)
{
    return tasks[task].end ? tasks[task].end : INT32_MAX;
}

int64_t nn_generate_line(int32_t task, int64_t size, uint64_t seed, uint64_t number, char *line)
{
    draw d = {layers_random(seed, STREAM_LINES, number), 0};
    const int64_t answer = tasks[task].write(&d, size, line);
    line[answer - 1] = '=';
    line[nn_generated_bytes(task, size) - 1] = '\n';
    return answer;
}

int nn_generate_batch(const nn_config *c, int64_t size, uint64_t seed, int64_t first, int64_t batch, int64_t length,
                      int32_t *tokens, int32_t *target, char err[NN_ERR_MAX])
{
    char *line = malloc((size_t)nn_generated_bytes(c->generate, size > 0 ? size : c->generate_size));
    if (!line)
        return nn_fail(err, "lab: out of memory while generating a line (use a smaller generate_size)");
    for (int64_t b = 0; b < batch; b++) {
        const uint64_t number = (uint64_t)(first + b);
        const int64_t n =
            size > 0 ? size : 1 + (int64_t)(layers_random(seed, STREAM_SIZES, number) % (uint64_t)c->generate_size);
        const int64_t answer = nn_generate_line(c->generate, n, seed, number, line);
        const int64_t bytes = nn_generated_bytes(c->generate, n);
        int32_t *t = tokens + b * length, *next = target + b * length;
        t[0] = c->bos ? nn_first_token(c) : (unsigned char)line[0];
        for (int64_t x = 0; x < length; x++) {
            const int64_t at = x + 1 - c->bos; /* index of the byte to predict */
            const int32_t byte = at < bytes ? (unsigned char)line[at] : '\n';
            next[x] = at >= answer && at < bytes ? byte : -1;
            if (x + 1 < length)
                t[x + 1] = byte;
        }
    }
    free(line);
    return 0;
}
