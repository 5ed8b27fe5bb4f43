/* screen.c -- compares greedy decoding with the whole head and with an 8-bit screen of it (t5/greedy_screen.c),
 * alternating in one process. Reports tokens per second of processor time, without encoding, and the number of logits
 * that were computed exactly. With DRAFT (int8 or int4), compares the 8-bit screen with and without such a draft
 * (t5/draft.c).
 *
 *     bench_screen MODEL [LINES] [PREFIX] [TOKENS] [BATCH] [ROUNDS] [DRAFT]
 *
 * Uses one thread. If LINES is absent or "", it decodes 8 sources of 128 random tokens to targets of TOKENS (default
 * 64) tokens. With LINES, the model decides where the targets end.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_LINES = 512, MAX_TOKENS = 65536, RANDOM_SOURCES = 8, RANDOM_LENGTH = 128, MAX_ROUNDS = 99 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(rp_status status)
{
    if (status == RP_OK)
        return;
    fprintf(stderr, "%s\n", rp_t5_last_error());
    exit(1);
}

/* Number of candidates for each token, recorded with a batch of one. */
typedef struct counting {
    const t5_screen *screen;
    int64_t before, n;
    int32_t of[MAX_TOKENS];
} counting;

static int count(void *context, int64_t source, int32_t index, int32_t token)
{
    counting *k = context;
    (void)source, (void)index, (void)token;
    if (k->screen->candidates > k->before && k->n < MAX_TOKENS)
        k->of[k->n++] = (int32_t)(k->screen->candidates - k->before);
    k->before = k->screen->candidates;
    return 0;
}

static int by_size(const void *a, const void *b)
{
    return (*(const int32_t *)a > *(const int32_t *)b) - (*(const int32_t *)a < *(const int32_t *)b);
}

static int by_number(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static int64_t read_sources(const rp_t5 *m, const char *lines, const char *prefix, rp_t5_tokens *sources)
{
    char line[4096], text[8192];
    int64_t n = 0;
    FILE *in = lines != NULL ? fopen(lines, "r") : NULL;
    uint32_t random = 1;
    for (; in != NULL && n < MAX_LINES && fgets(line, sizeof line, in) != NULL; n++) {
        int32_t *tokens;
        line[strcspn(line, "\n")] = 0;
        snprintf(text, sizeof text, "%s%s", prefix, line);
        check(rp_t5_tokenize(m, text, -1, &tokens, &sources[n].n));
        sources[n].tokens = tokens;
    }
    for (; in == NULL && n < RANDOM_SOURCES; n++) {
        int32_t *tokens = malloc(RANDOM_LENGTH * sizeof *tokens);
        for (int k = 0; tokens != NULL && k < RANDOM_LENGTH; k++)
            tokens[k] = (int32_t)((random = random * 1664525 + 1013904223) >> 8) % (int32_t)m->config.vocab;
        sources[n] = (rp_t5_tokens){tokens, RANDOM_LENGTH};
    }
    if (in != NULL)
        fclose(in);
    return n;
}

/* Generate targets for all sources, `batch` at a time. Return the seconds without encoding; set the number of tokens
 * and a checksum of the tokens. */
static double generate(const rp_t5 *m, const rp_t5_generation *g, int64_t n, const rp_t5_tokens *sources, int64_t batch,
                       int64_t *tokens, uint64_t *sum, rp_t5_drafted *drafted)
{
    double spent = 0;
    *tokens = 0;
    *sum = 0;
    *drafted = (rp_t5_drafted){0};
    for (int64_t s = 0; s < n; s += batch) {
        rp_t5_results *r;
        rp_t5_session *session;
        const int64_t some = n - s < batch ? n - s : batch;
        const double start = seconds();
        check(rp_t5_begin(&session, m, some, sources + s, 1));
        rp_t5_end(session);
        const double encoded = seconds();
        check(rp_t5_generate(m, some, sources + s, g, &r));
        spent += seconds() - encoded - (encoded - start);
        for (int64_t k = 0; k < some; k++)
            for (int64_t t = 0; t < rp_t5_result(r, k)->n; t++, ++*tokens)
                *sum = *sum * 31 + (uint64_t)rp_t5_result(r, k)->tokens[t];
        const rp_t5_drafted *d = rp_t5_results_drafted(r);
        drafted->proposed += d->proposed;
        drafted->accepted += d->accepted;
        drafted->passes += d->passes;
        rp_t5_results_free(r);
    }
    return spent;
}

static void time_making(const linear_weights *head, rp_pool *pool)
{
    linear_screen s;
    void *memory = aligned_alloc(LINEAR_ALIGN, (size_t)linear_screen_bytes(head->in, head->out));
    const double before = seconds();
    if (memory != NULL)
        check(linear_screen_make(&s, pool, head, memory));
    printf("building a screen of %lld x %lld takes %.0f ms\n", (long long)head->out, (long long)head->in,
           1e3 * (seconds() - before));
    free(memory);
}

/* The two ways that are compared: 0 with the whole head or by steps, 1 with the screen or the draft. */
typedef struct comparison {
    rp_t5 *m[2];
    rp_pool *pool;
    const char *draft; /* NULL: compare the screen */
    int64_t tokens[2];
    rp_t5_drafted drafted;
    double ratio[MAX_ROUNDS], rate[2][MAX_ROUNDS];
    counting k;
} comparison;

static void open_models(comparison *c, const char *path)
{
    rp_t5_opening o = rp_t5_opening_init();
    o.pool = c->pool;
    for (int way = 0; way < 2; way++) {
        if (c->draft == NULL)
            setenv("RELPOS_SCREEN", way == 0 ? "1000000000" : "0", 1);
        o.draft = way == 1 ? c->draft : NULL;
        const double before = seconds();
        check(rp_t5_open(&c->m[way], path, &o));
        if (way == 1 && c->draft != NULL)
            printf("opened with a draft in %.0f ms\n", 1e3 * (seconds() - before));
    }
}

/* Time both ways, alternating. Return false if their tokens differ. */
static bool run_rounds(comparison *c, rp_t5_generation *g, int64_t n, const rp_t5_tokens *sources, int64_t batch,
                       int rounds)
{
    uint64_t sum[2];
    const t5_screen *screen = c->m[1]->screen;
    for (int way = c->draft != NULL ? 0 : 1; way < 2; way++) /* this also builds the screen */
        generate(c->m[way], g, n < 40 ? n : 40, sources, 1, &c->tokens[way], &sum[way], &c->drafted);
    for (int round = 0; round < rounds; round++) {
        for (int way = 0; way < 2; way++) {
            c->k = (counting){.screen = screen, .before = screen != NULL ? screen->candidates : 0};
            g->on_token = way == 1 && batch == 1 && c->draft == NULL ? count : NULL;
            g->context = &c->k;
            c->rate[way][round] = generate(c->m[way], g, n, sources, batch, &c->tokens[way], &sum[way], &c->drafted);
            c->rate[way][round] = (double)c->tokens[way] / c->rate[way][round];
        }
        if (sum[0] != sum[1])
            return false;
        c->ratio[round] = c->rate[1][round] / c->rate[0][round];
    }
    return true;
}

static void report(comparison *c, int rounds)
{
    static const char *const names[2][2] = {{"with the whole head", "with an 8-bit screen"},
                                            {"by steps", "with a draft"}};
    const char *const *name = names[c->draft != NULL];
    qsort(c->rate[0], (size_t)rounds, sizeof(double), by_number);
    qsort(c->rate[1], (size_t)rounds, sizeof(double), by_number);
    qsort(c->ratio, (size_t)rounds, sizeof(double), by_number);
    printf("%lld equal tokens; tokens per second of decoding: %.0f %s, %.0f %s: %.2f times (%.2f to %.2f)\n",
           (long long)c->tokens[1], c->rate[0][rounds / 2], name[0], c->rate[1][rounds / 2], name[1],
           c->ratio[rounds / 2], c->ratio[0], c->ratio[rounds - 1]);
    if (c->draft != NULL)
        printf("%lld proposed, %lld accepted, %lld passes\n", (long long)c->drafted.proposed,
               (long long)c->drafted.accepted, (long long)c->drafted.passes);
    else
        printf("%lld rows, %lld of them read the whole head\n", (long long)c->m[1]->screen->rows,
               (long long)c->m[1]->screen->whole);
    if (c->k.n > 0) {
        qsort(c->k.of, (size_t)c->k.n, sizeof *c->k.of, by_size);
        printf("candidates: median %d, 90th percentile %d, largest %d\n", (int)c->k.of[c->k.n / 2],
               (int)c->k.of[c->k.n * 9 / 10], (int)c->k.of[c->k.n - 1]);
    }
}

int main(int argc, char **argv)
{
    const char *const lines = argc > 2 && argv[2][0] ? argv[2] : NULL, *const prefix = argc > 3 ? argv[3] : "";
    const int64_t length = argc > 4 ? atoll(argv[4]) : 64, batch = argc > 5 ? atoll(argv[5]) : 1;
    const int rounds = argc > 6 && atoi(argv[6]) < MAX_ROUNDS ? atoi(argv[6]) : 5;
    static rp_t5_tokens sources[MAX_LINES];
    static comparison c;
    c.draft = argc > 7 ? argv[7] : NULL;
    if (argc < 2 || rounds < 1 || batch < 1 || length < 1 || rp_pool_create(&c.pool, 1) != RP_OK)
        return fprintf(stderr, "usage: bench_screen MODEL [LINES] [PREFIX] [TOKENS] [BATCH] [ROUNDS] [DRAFT]\n"), 2;
    open_models(&c, argv[1]);
    if (c.draft == NULL && c.m[1]->screen == NULL)
        return fprintf(stderr, "%s: its head already has 8 bits (use a model in f32, f16 or bf16)\n", argv[1]), 1;
    const int64_t n = read_sources(c.m[0], lines, prefix, sources);
    rp_t5_generation g = rp_t5_generation_of(c.m[0]);
    g.max_new_tokens = length;
    g.min_new_tokens = lines != NULL ? 0 : length;
    if (c.draft == NULL)
        time_making(&c.m[0]->weights.head, c.pool);
    if (!run_rounds(&c, &g, n, sources, batch, rounds))
        return fprintf(stderr, "the tokens differ\n"), 1;
    report(&c, rounds);
    for (int64_t s = 0; s < n; s++)
        free((void *)(uintptr_t)sources[s].tokens);
    rp_t5_close(c.m[0]);
    rp_t5_close(c.m[1]);
    rp_pool_destroy(c.pool);
    return 0;
}
