/* t5_generate.c -- generate text, and print it while it is generated. Ctrl-C stops it.
 *
 *     cc t5_generate.c $(pkg-config --cflags --libs relpos_t5) -o t5_generate
 *     ./t5_generate flan-t5-small "translate English to German: Good morning."
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/t5.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 128 };

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

/* The output so far. A new token may change the text of earlier tokens, so all tokens are decoded each time. */
typedef struct output {
    const rp_t5 *model;
    int32_t tokens[MOST];
    int64_t n, shown; /* number of tokens; number of bytes printed so far */
} output;

static int on_token(void *context, int64_t source, int32_t index, int32_t token)
{
    output *o = context;
    char *text;
    int64_t size;
    (void)source, (void)index;
    o->tokens[o->n++] = token;
    if (rp_t5_detokenize(o->model, o->tokens, o->n, &text, &size) != RP_OK)
        return 1; /* any value other than 0 ends the call */
    if (size >= 3 && memcmp(text + size - 3, "\xef\xbf\xbd", 3) == 0)
        size -= 3; /* cut a character whose last bytes are still missing */
    if (size > o->shown) {
        fwrite(text + o->shown, 1, (size_t)(size - o->shown), stdout);
        fflush(stdout);
        o->shown = size;
    }
    rp_t5_free(text);
    return 0;
}

static int cancelled(void *context)
{
    (void)context;
    return stop;
}

int main(int argc, char **argv)
{
    rp_t5 *model = NULL;
    int32_t *tokens = NULL;
    int64_t n;
    if (argc != 3) {
        fprintf(stderr, "usage: t5_generate MODEL TEXT\n");
        return 2;
    }
    rp_t5_opening opening = rp_t5_opening_init();
    opening.type = "int8"; /* int8 weights take a quarter of the memory of f32 */
    rp_status status = rp_t5_open(&model, argv[1], &opening);
    if (status == RP_OK)
        status = rp_t5_tokenize(model, argv[2], -1, &tokens, &n);
    if (status == RP_OK) {
        output o = {.model = model};
        rp_t5_tokens source = {tokens, n};
        rp_t5_generation g = rp_t5_generation_of(model); /* the model's default settings */
        rp_t5_results *results = NULL;
        signal(SIGINT, on_signal);
        g.beams = g.returned = 1; /* beam search would report all text at the end */
        g.max_new_tokens = MOST;
        g.min_new_tokens = g.min_new_tokens < MOST ? g.min_new_tokens : MOST;
        g.scores = 1;
        g.on_token = on_token;
        g.cancelled = cancelled;
        g.context = &o;
        status = rp_t5_generate(model, 1, &source, &g, &results);
        putchar('\n');
        if (status == RP_OK)
            printf("%lld tokens, log-probability %.4f\n", (long long)o.n, rp_t5_result(results, 0)->score);
        rp_t5_results_free(results);
    }
    if (status != RP_OK)
        fprintf(stderr, "t5_generate: %s\n", rp_t5_last_error());
    rp_t5_free(tokens);
    rp_t5_close(model);
    return status != RP_OK;
}
