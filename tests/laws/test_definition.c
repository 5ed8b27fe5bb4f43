/* test_definition.c -- out and lse of every instruction set match the definition within the bound on rounding
 * errors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/definition.h"

/* Lengths and widths near every edge of the tiles, with different terms and masks. */
static void every_size_matches_the_definition(void **state)
{
    /* edges of MR = 6, NR = 8, 16, 64, BLOCK_ROWS = 96, SUM_KEYS = 128, TILE_KEYS = 512 */
    static const int lengths[] = {1,  2,  3,  5,  6,  7,  8,  9,  11, 12, 13, 15, 16, 17,  23,  24,  25,  31,
                                  33, 47, 49, 63, 64, 65, 71, 73, 79, 81, 95, 96, 97, 127, 128, 129, 191, 193};
    static const int widths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65};
    problem p;
    int n = 0;
    (void)state;
    judged_parts = 2;
    for (size_t x = 0; x < sizeof lengths / sizeof *lengths; x++)
        for (int form = 0; form < 3; form++, n++) {
            const int other = lengths[(x * 7 + 5 + (size_t)form * 11) % (sizeof lengths / sizeof *lengths)];
            const int q = form == 0 ? lengths[x] : form == 1 ? other : lengths[x], k = form == 1 ? lengths[x] : other;
            const int offset = n % 4 == 1 ? k - q : n % 4 == 2 ? -3 : n % 4 == 3 ? 5 : 0;
            pose(&p, (uint64_t)n + 1, "fwd:f32:b%dh%dg%dq%dk%dd%dv%do%d:%s:%s", 1 + n % 2, 2 + 2 * (n % 2),
                 n % 3 ? 2 : 1, q, k, widths[n % 13], widths[(n * 5 + 3) % 13], offset, term_sets[n % TERM_SETS],
                 mask_sets[(n / 3 + n) % MASK_SETS]);
            judged(&p);
            problem_free(&p);
        }
    judged_parts = 1;
    show("sizes");
}

/* Batch entries that share those of a bias. With 6 entries, the two orders differ. */
static void shared_biases_match_the_definition(void **state)
{
    static const char *const texts[] = {"b6h2q7k40d8:dense,interleave=3:causal", "b6h2q101k600d8:dense,tile=3:",
                                        "b6h2q7k40d8:dense,interleave=2+dense,tile=2:softcap=2",
                                        "b6h2q1k40d8:dense,interleave=2,tile=3:mask"};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        pose(&p, 13, "fwd:f32:%s", texts[n]);
        judged(&p);
        problem_free(&p);
    }
    show("shared entries");
}

/* Heads of about 128 and 256 channels. */
static void wide_heads_match_the_definition(void **state)
{
    static const int widths[] = {127, 128, 129, 255, 256, 257};
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++) {
        pose(&p, 9, "fwd:f32:b1h2q7k19d%dv%d:%s:%s", widths[n], widths[5 - n], term_sets[n * 2 % TERM_SETS],
             mask_sets[n]);
        judged(&p);
        problem_free(&p);
        pose(&p, 9, "fwd:f32:b1h1q7k19d%dv%d:rope+relkey,left=1,right=1:", widths[n] & ~1, 1 + n);
        judged(&p);
        problem_free(&p);
    }
    show("wide");
}

/* Numbers of keys near one tile of 512, and above two tiles. */
static void keys_around_a_tile_match_the_definition(void **state)
{
    static const int keys[] = {511, 512, 513, 575, 576, 577, 1023, 1024, 1025, 1151};
    static const char *const terms[] = {"alibi",
                                        "",
                                        "relval,left=600,right=600",
                                        "relkey,left=700,right=500",
                                        "dense",
                                        "relval,left=5,right=5+relkey,left=5,right=5",
                                        "t5"};
    static const char *const masks[] = {"",        "causal",        "window=70,3", "mask", "key_mask+softcap=3",
                                        "lengths", "window=-1,-500"};
    problem p;
    (void)state;
    for (int n = 0; n < 10; n++) {
        pose(&p, 10, "fwd:f32:b1h2g1q%dk%dd5v9o%d:%s:%s", n % 3 ? 7 : 101, keys[n], n % 2 ? keys[n] - 60 : 0,
             terms[n % 7], n == 6 ? "" : masks[n % 7]);
        judged(&p);
        problem_free(&p);
    }
    /* more vectors than fit in the window of 1024; rows end in the clipped part on both sides */
    pose(&p, 11, "fwd:f32:b1h1q210k1300d6v5o400:relkey,left=900,right=800+relval,left=800,right=900:causal");
    judged(&p);
    problem_free(&p);
    pose(&p, 11, "fwd:f32:b1h1q97k1100d4v3o-700:relkey,left=1500,right=1500+relval,left=1500,right=1500:");
    judged(&p);
    problem_free(&p);
    show("tiles");
}

/* RoPE in both layouts, applied to some of the channels, at large and at negative offsets. */
static void rotations_match_the_definition(void **state)
{
    static const char *const ropes[] = {"rope",
                                        "rope,layout=interleaved",
                                        "rope,dim=4",
                                        "rope,dim=6,layout=interleaved,base=3",
                                        "rope,base=500000",
                                        "rope+alibi+relkey,left=2,right=2"};
    static const int64_t offsets[] = {0, 3, -200, 100000, -17, 77};
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++) {
        pose(&p, 12, "fwd:f32:b2h2g1q%dk%dd8v3o%lld:%s:%s", n % 2 ? 70 : 9, n % 3 ? 20 : 131, (long long)offsets[n],
             ropes[n], n % 2 ? "causal" : "");
        judged(&p);
        problem_free(&p);
    }
    show("rotations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_matches_the_definition),  cmocka_unit_test(wide_heads_match_the_definition),
        cmocka_unit_test(shared_biases_match_the_definition), cmocka_unit_test(keys_around_a_tile_match_the_definition),
        cmocka_unit_test(rotations_match_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
