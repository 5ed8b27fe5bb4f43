/* s3.c -- "Relative Positional Bias (T5-style)", a page of a library's documentation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/tutorial/tutorial.h"
#include <stddef.h>

static void print(char *text, size_t size, const int *offset, int n, int bidirectional)
{
    text[0] = 0;
    for (int x = 0; x < n; x++)
        tutorial_add(text, size, "%s%d", x ? " " : "",
                     (int)rp_bucket(offset[x], 32, 128, bidirectional, RP_STRATEGY_LOG));
}

static const int distances[] = {-100, -50, -10, -5, -1, 0, 1, 5, 10, 50, 100};

static void bidirectional(char *text, size_t size)
{
    print(text, size, distances, 11, 1);
}

static void causal(char *text, size_t size)
{
    print(text, size, distances, 11, 0);
}

static void first_table(char *text, size_t size)
{
    print(text, size, (const int[]){-1, 0, 1, 10}, 4, 1);
}

static void drawing(char *text, size_t size)
{
    print(text, size, (const int[]){-5, 0, 5, 15, 20}, 5, 1);
}

static void patterns(char *text, size_t size)
{
    print(text, size, (const int[]){-1, 1, -50}, 3, 1);
}

static void exact(char *text, size_t size)
{
    int n = 0; /* the first distance that shares its bucket with the next one */
    while (rp_bucket(-n, 32, 128, 1, RP_STRATEGY_LOG) != rp_bucket(-n - 1, 32, 128, 1, RP_STRATEGY_LOG))
        n++;
    text[0] = 0;
    tutorial_add(text, size, "0 to %d", n - 1);
}

static void parameters(char *text, size_t size)
{
    const rp_term term = rp_term_init(RP_TERM_T5);
    text[0] = 0;
    tutorial_add(text, size, "%lld", (long long)tutorial_elements(&term, 12, 1));
}

static void refused(char *text, size_t size)
{
    text[0] = 0;
    if (rp_bucket(257, 1024, 128, 1, RP_STRATEGY_LOG) < 0)
        tutorial_add(text, size, "refused: %s", rp_last_error_in(NULL, NULL, NULL, (char[512]){0}, 512));
}

static const tutorial_step steps[] = {
    {"parameters of 32 buckets for 12 heads", "384", parameters, NULL, NULL},
    {"buckets of -1, 0, 1 and 10, 32 buckets to 128", "15 16 17 24", first_table,
     "offset 0 is in bucket 0 and -1 in bucket 1; keys before the query are in buckets 1 to 15, counted by distance",
     "relpos bucket -- -1 0 1 10"},
    {"buckets of -100 -50 -10 -5 -1 0 1 5 10 50 100", "8 13 14 11 15 16 17 21 24 29 31", bidirectional,
     "T5 counts key - query; keys before the query are in buckets 0 to 15",
     "relpos bucket -- -100 -50 -10 -5 -1 0 1 5 10 "
     "50 100"},
    {"the same for a causal decoder", NULL, causal, NULL,
     "relpos bucket --causal -- -100 -50 -10 -5 -1 0 1 5 10 50 100"},
    {"drawing of a query at position 10: offsets -5 0 5 15 20", "12 16 20 27 29", drawing,
     "as above: 5 before the query is exact, and 0 is in bucket 0", "relpos bucket -- -5 0 5 15 20"},
    {"drawing of learned patterns: buckets of the previous token, the next token, and 50 tokens before", "1 1 10",
     patterns, "the next token has a bucket of its own, 17, and distance 50 is in bucket 13",
     "relpos bucket -- -1 1 -50"},
    {"exact distances in each direction", "0 to 15", exact,
     "32 buckets are 16 for each direction, and half of them are exact", NULL},
    {"pitfall 5: 1024 buckets with maximum distance 128", "used, but wasteful", refused,
     "256 distances are exact, more than 128, so the logarithm is negative and buckets count backwards from 257 on",
     "relpos bucket --buckets 1024 --max-distance 128 257"},
    {0},
};

const tutorial tutorial_s3 = {"s3", "Relative Positional Bias (T5-style)",
                              "documentation of a library's RelativePositionalBias and T5Attention", steps};
