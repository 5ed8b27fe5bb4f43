/* s2.c -- "Relative Positional Embedding vs Absolute Positional Embeddings in self-attention", notes on vision
 * transformers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/tutorial/tutorial.h"
#include <stddef.h>

enum { PATCHES = 4, TOKENS = 3, D = 2 };
static const double patches[PATCHES * D] = {1, 0, 0, 1, 1, 1, 0, 0};
static const double with_positions[PATCHES * D] = {1, 0, 0, 1.5, 1.5, 1, 0.5, 0.5};
static const double tokens[TOKENS * D] = {1, 0, 0, 1, 1, 1};

static void print(char *text, size_t size, const double *x, int64_t len, const tutorial_problem *of)
{
    double score[PATCHES * PATCHES];
    tutorial_problem p = *of;
    p.len = len;
    p.dim = D;
    p.q = p.k = x;
    tutorial_compute(&p, TUTORIAL_SCORE, score);
    tutorial_print(text, size, score, len, len, 3);
}

static void content(char *text, size_t size)
{
    print(text, size, patches, PATCHES, &(tutorial_problem){0});
}

static void absolute(char *text, size_t size)
{
    print(text, size, with_positions, PATCHES, &(tutorial_problem){0});
}

/* Biases of row and column of the query minus those of the key, from (-1, -1) to (1, 1). */
static void relative(char *text, size_t size)
{
    static const double table[9] = {0.3, 0.1, 0, 0.2, 0, -0.2, 0, -0.1, -0.3};
    tutorial_problem p = {.term = {rp_term_init(RP_TERM_SWIN)}, .array = {table}, .n_terms = 1};
    p.term[0].grid_h = p.term[0].grid_w = 2;
    print(text, size, patches, PATCHES, &p);
}

static void three_content(char *text, size_t size)
{
    print(text, size, tokens, TOKENS, &(tutorial_problem){0});
}

/* The notes count query - key, so their tables are reversed here. */
static void additive(char *text, size_t size)
{
    static const double table[5] = {0.3, 0.2, 0, -0.2, -0.3};
    tutorial_problem p = {.term = {rp_term_init(RP_TERM_TABLE)}, .array = {table}, .n_terms = 1};
    p.term[0].left = p.term[0].right = 2;
    print(text, size, tokens, TOKENS, &p);
}

static void shaw(char *text, size_t size)
{
    static const double table[10] = {1, 0, 0.5, 0, 0, 0, -0.5, 0, -1, 0};
    tutorial_problem p = {.term = {rp_term_init(RP_TERM_RELKEY)}, .array = {table}, .n_terms = 1};
    p.term[0].left = p.term[0].right = 2;
    print(text, size, tokens, TOKENS, &p);
}

static void rope(char *text, size_t size)
{
    static const double angles[TOKENS] = {0, 0.52359877559829887, 2 * 0.52359877559829887};
    tutorial_problem p = {.term = {rp_term_init(RP_TERM_ROPE)}, .positions = angles, .n_terms = 1};
    print(text, size, tokens, TOKENS, &p);
}

static void alibi(char *text, size_t size)
{
    tutorial_problem p = {.term = {rp_term_init(RP_TERM_LINEAR)}, .n_terms = 1};
    p.term[0].rate_left = 0.1;
    p.term[0].rate_right = -0.1;
    print(text, size, tokens, TOKENS, &p);
}

static void entries(char *text, size_t size)
{
    rp_term term = rp_term_init(RP_TERM_TABLE);
    term.left = term.right = 6;
    text[0] = 0;
    tutorial_add(text, size, "%lld", (long long)tutorial_elements(&term, 1, 1));
}

static const tutorial_step steps[] = {
    {"four patches, content only (6.2)",
     "0.707 0.000 0.707 0.000\n0.000 0.707 0.707 0.000\n0.707 0.707 1.414 0.707\n0.000 0.000 0.707 0.000", content,
     "patch 3 is the zero vector, so its row and column are 0",
     "relpos explain --input examples/data/patches.npz --query 0"},
    {"four patches, absolute positions (6.3)",
     "0.707 0.000 1.061 0.354\n0.000 0.707 0.707 0.177\n1.061 0.707 1.414 0.884\n0.354 0.177 0.884 0.707", absolute,
     "with p = half of (row, column), x + p is [1, 0], [0, 1.5], [1.5, 1] and [0.5, 0.5]; only row 0 uses these",
     "examples/s2.c"},
    {"four patches, biases of offsets (6.4)",
     "0.707 0.200 0.807 0.000\n0.000 0.707 0.507 0.200\n0.607 0.707 1.414 0.607\n-0.300 0.000 0.507 0.000", relative,
     "the offset is query - key, as in the calculations of the text; (-1, +1) and (+1, -1) are not in its table",
     "relpos explain --input examples/data/patches.npz --query 0 --bias dense,bias=b"},
    {"three tokens, content (14.1)", "0.707 0.000 0.707\n0.000 0.707 0.707\n0.707 0.707 1.414", three_content, NULL,
     "relpos explain --input examples/data/three.npz --query 0"},
    {"three tokens, additive bias", "0.707 -0.200 0.407\n0.200 0.707 0.507\n1.007 0.907 1.414", additive, NULL,
     "relpos explain --input examples/data/three.npz --query 0 --bias table,table=table,left=2,right=2"},
    {"three tokens, Shaw's vectors", "0.707 -0.354 0.000\n0.000 0.707 0.707\n1.414 1.061 1.414", shaw, NULL,
     "relpos explain --input examples/data/three.npz --query 0 --relkey table=a_k,left=2,right=2"},
    {"three tokens, RoPE by 30 degrees a token", "0.707 -0.354 0.259\n-0.354 0.707 0.707\n0.259 0.707 1.414", rope,
     "token 2 rotated by 60 degrees is [-0.366, 1.366]; the text has the formula, but calculates with +0.366",
     "relpos explain --input examples/data/three.npz --query 0 --rope dim=2,positions=angles"},
    {"three tokens, signed linear bias -0.1 (i - j)", "0.707 0.100 0.907\n-0.100 0.707 0.807\n0.507 0.607 1.414", alibi,
     NULL, "relpos explain --input examples/data/three.npz --query 0 --bias linear,left=0.1,right=-0.1"},
    {"entries of a clipped table with R = 6 (12.2)", "26", entries,
     "the text has 2 R + 14; the offsets are -R to R, which are 2 R + 1, as in its code", NULL},
    {0},
};

const tutorial tutorial_s2 = {"s2", "Relative Positional Embedding vs Absolute Positional Embeddings in self-attention",
                              "notes on vision transformers; four patches and three tokens", steps};
