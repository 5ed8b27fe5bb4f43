/* test_equal_terms.c -- pairs of different terms that give equal scores.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

static double *array(problem *p, int term, int index)
{
    return p->t.term[term][index].data;
}

static void fill_with(problem *p, int term, int index, double x)
{
    for (int64_t n = 0; n < problem_size(&p->t.term[term][index]); n++)
        array(p, term, index)[n] = x;
}

/* The following functions compute the arrays of problem a from those of problem b, so that both have the same scores.
 * The problems have two heads; their texts contain the lengths. */
static void nothing_more(problem *a, problem *b)
{
    (void)a, (void)b;
}

static void swin_of_axial(problem *a, problem *b) /* 3 x 4 grid; swin uses query - key, axial uses key - query */
{
    for (int64_t y = 0; y < 5; y++)
        for (int64_t x = 0; x < 7; x++)
            for (int64_t h = 0; h < 2; h++)
                array(a, 0, 0)[((4 - y) * 7 + 6 - x) * 2 + h] = array(b, 0, 0)[h * 5 + y] + array(b, 0, 1)[h * 7 + x];
}

static void swin_of_dense(problem *a, problem *b) /* a 2 x 3 grid and a class token, with BEiT's indices */
{
    for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < 7; i++)
            for (int64_t j = 0; j < 7; j++) {
                const int64_t dy = (i - 1) / 3 - (j - 1) / 3 + 1, dx = (i - 1) % 3 - (j - 1) % 3 + 2;
                const int64_t e = i && j ? dy * 5 + dx
                                  : i    ? 16
                                  : j    ? 15
                                         : 17; /* 15: class to token; 16: token to class; 17: class to class */
                array(b, 0, 0)[(h * 7 + i) * 7 + j] = array(a, 0, 0)[e * 2 + h];
            }
}

static void real_of_table(problem *a, problem *b) /* the table, reversed and negated */
{
    for (int64_t h = 0; h < 2; h++)
        for (int64_t e = 0; e < 11; e++)
            array(b, 0, 0)[h * 11 + 10 - e] = -array(a, 0, 0)[h * 11 + e];
}

static void all_masked(problem *a, problem *b)
{
    (void)b;
    memset(a->t.term[0][3].data, 0, (size_t)problem_size(&a->t.term[0][3]));
}

static void forget_of_alibi(problem *a, problem *b)
{
    for (int64_t x = 0; x < problem_size(&a->t.term[0][0]); x++)
        array(a, 0, 0)[x] = -array(b, 0, 0)[x / 30 % 2];
}

static void band_of_table(problem *a, problem *b)
{
    fill_with(a, 0, 0, 1);
    for (int64_t h = 0; h < 2; h++)
        for (int64_t e = 0; e < 40; e++)
            array(b, 0, 0)[h * 40 + 39 - e] = array(a, 0, 1)[e];
}

static void xl_of_nothing(problem *a, problem *b)
{
    (void)b;
    for (int x = 0; x < 3; x++)
        fill_with(a, 0, x, 0);
}

static void xl_of_queries(problem *a, problem *b) /* u is added to every query */
{
    fill_with(a, 0, 0, 0);
    for (int64_t x = 0; x < problem_size(&b->t.q); x++)
        ((double *)b->t.q.data)[x] += array(a, 0, 1)[x / (20 * 6) % 2 * 6 + x % 6];
}

static void xl_of_relkey(problem *a, problem *b) /* no offset is clipped: 20 queries, 30 keys */
{
    fill_with(a, 0, 1, 0);
    fill_with(a, 0, 2, 0);
    memcpy(array(b, 0, 0), array(a, 0, 0), 49 * 6 * sizeof(double));
}

static void axialkey_of_relkey(problem *a, problem *b) /* one row of 12 */
{
    fill_with(a, 0, 0, 0);
    for (int64_t e = 0; e < 23; e++)
        for (int64_t c = 0; c < 6; c++)
            array(b, 0, 0)[(22 - e) * 6 + c] = array(a, 0, 1)[e * 6 + c];
}

static void deberta_of_relkey(problem *a, problem *b) /* content to position; all offsets are within the span */
{
    a->t.term[0][1].data = NULL;
    for (int64_t e = 1; e < 80; e++) /* c = i - j + 40 */
        for (int64_t c = 0; c < 6; c++)
            array(b, 0, 0)[(79 - e) * 6 + c] = array(a, 0, 0)[e * 6 + c];
}

static void kerple_of_alibi(problem *a, problem *b)
{
    fill_with(a, 0, 0, 1);
    memcpy(array(b, 0, 0), array(a, 0, 1), 2 * sizeof(double));
}

/* FIRE with one unit, and with L beyond every position: psi(|delta|) times w2 / psi(L). */
static void fire_of_log(problem *a, problem *b)
{
    (void)b;
    fill_with(a, 0, 0, 1);
    fill_with(a, 0, 1, 0);
    fill_with(a, 0, 2, -0.7 * log1p(1000));
    fill_with(a, 0, 3, 0.25); /* equal for every pair */
}

static void sandwich_of_dense(problem *a, problem *b)
{
    (void)a;
    for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < 20; i++)
            for (int64_t j = 0; j < 30; j++)
                array(b, 0, 0)[(h * 20 + i) * 30 + j] =
                    (cos((double)(j - i)) + cos((double)(j - i) / 10)) * 2 / (8 * (double)(h + 1));
}

static void same_table(problem *a, problem *b)
{
    memcpy(array(b, 0, 0), array(a, 0, 0), (size_t)problem_size(&a->t.term[0][0]) * sizeof(double));
}

static void rope_positions(problem *a, problem *b, double step, double start)
{
    (void)b;
    double *q = array(a, 0, 1), *k = array(a, 0, 2);
    for (int64_t x = 0; x < problem_size(&a->t.term[0][1]); x++)
        q[x] = start + step * (double)(x % 20 + 3);
    for (int64_t x = 0; x < problem_size(&a->t.term[0][2]); x++)
        k[x] = start + step * (double)(x % 30);
}

static void rope_shifted(problem *a, problem *b)
{
    rope_positions(a, b, 1, 7.5);
}

static void rope_slower(problem *a, problem *b)
{
    rope_positions(a, b, 0.25, 0);
}

static void same_positions(problem *a, problem *b) /* q_positions and k_positions are the last arrays of term 0 */
{
    int x = 0;
    while (!strstr(rp_term_array(a->terms[0].kind, x), "q_positions"))
        x++;
    for (int m = 0; m < x; m++)
        if (rp_term_array_learned(a->terms[0].kind, m) && a->t.term[0][m].data)
            memcpy(array(b, 0, m), array(a, 0, m), (size_t)problem_size(&a->t.term[0][m]) * sizeof(double));
    for (int64_t n = 0; n < problem_size(&a->t.term[0][x]); n++)
        /* these positions already include the q_offset of 3, which is not added to given positions */
        array(a, 0, x)[n] = (double)(n % 20 + 3);
    for (int64_t n = 0; n < problem_size(&a->t.term[0][x + 1]); n++)
        array(a, 0, x + 1)[n] = (double)(n % 30);
}

static const struct {
    const char *sizes, *a, *b; /* the sizes, and the ends of the two texts */
    void (*make)(problem *a, problem *b);
} equal[] = {
    {"b1h2q12k12d6", "swin,grid=3x4:", "axial,grid=3x4:", swin_of_axial},
    {"b1h2q7k7d6", "swin,grid=2x3,extra=1:", "dense:", swin_of_dense},
    {"b2h2q20k30d6o5", "table,left=5,right=5:", "real,max_distance=5:", real_of_table},
    {"b2h2q20k30d6o5", "real,max_distance=5,q_position_mask=x:", ":", all_masked},
    {"b2h2q20k30d6o5", "alibi,slopes=x,q_position_mask=y:", ":", all_masked},
    {"b2h2q20k30d6o5", "relkey,left=2,right=3,q_position_mask=x:softcap=2", ":softcap=2", all_masked},
    {"b2h2q20k30d6o5", "relval,left=2,right=3,q_position_mask=x:", ":", all_masked},
    {"b2h2q20k30d6o10", "forget:", "alibi,slopes=x:causal", forget_of_alibi},
    {"b1h2q20k30d6o10", "band,width=1,extent=40:causal", "table,left=39,right=0:causal", band_of_table},
    {"b2h2q20k30d6", "xl:causal", ":causal", xl_of_nothing},
    {"b2h2q20k30d6", "xl:", ":", xl_of_queries},
    {"b1h2q20k30d6", "xl:softcap=2", "relkey,left=19,right=29:softcap=2", xl_of_relkey},
    {"b2h2q12k12d6", "axialkey,grid=1x12:scale=1", "relkey,left=11,right=11:scale=1", axialkey_of_relkey},
    {"b2h2q20k30d6o9", "deberta,span=40:", "relkey,left=39,right=39:", deberta_of_relkey},
    {"b2h2q20k30d6o9", "kerple,kind=power:", "alibi,slopes=x:", kerple_of_alibi},
    {"b2h2q20k30d6o9", "fire,c=1,L=1000,eps=0,width=1:", "log,lambda=0.7:", fire_of_log},
    {"b1h2q20k30d6", "sandwich,dim=4,base=100:", "dense:", sandwich_of_dense},
    {"b2h2q20k30d6o9", "t5,buckets=8,max_distance=12:", "bucket,buckets=8,max_distance=12:", same_table},
    {"b2h2q20k30d6o3", "rope,q_positions=x,k_positions=x:positions", "rope:", rope_shifted},
    {"b2h2q20k30d6o3", "rope,q_positions=x,k_positions=x:positions", "rope,scaling=linear,factor=4:", rope_slower},
    {"b2h2q20k30d4o3", "rope,attention_factor=1.5:scale=0.2", "rope:scale=0.45", nothing_more},
    {"b2h2q20k30d4o3", "rope,scaling=dynamic,factor=8,max_position_embeddings=30:", "rope:", nothing_more},
    /* given positions that equal the default positions */
    {"b2h2q20k30d6o3", "table,left=5,right=4:positions", "table,left=5,right=4:", same_positions},
    {"b2h2q20k30d6o3", "t5,buckets=8,max_distance=12:positions", "t5,buckets=8,max_distance=12:", same_positions},
    {"b2h2q20k30d6o3", "log:positions", "log:", same_positions},
    {"b2h2q20k30d6o3", "linear,left=0.3,right=0.2:positions", "linear,left=0.3,right=0.2:", same_positions},
    {"b2h2q20k30d6o3", "alibi:positions", "alibi:", same_positions},
    {"b2h2q20k30d6o3", "kerple:positions", "kerple:", same_positions},
    {"b2h2q20k30d6o3", "sandwich,dim=6:positions", "sandwich,dim=6:", same_positions},
    {"b2h2q20k30d6o3", "fire,c=1,L=9:positions", "fire,c=1,L=9:", same_positions},
    {"b2h2q20k30d6o3", "real,max_distance=6:positions", "real,max_distance=6:", same_positions},
    {"b2h2q20k30d6o3", "rope:positions", "rope:", same_positions},
    {"b2h2q20k30d6o3", "relkey,left=4,right=2:positions", "relkey,left=4,right=2:", same_positions},
    {"b2h2q20k30d6o3", "relval,left=4,right=2:positions", "relval,left=4,right=2:", same_positions},
};

/* For each row of the table, fill two problems with arrays that correspond, and compare their outputs. */
static void terms_equal_other_terms(void **state)
{
    problem a, b;
    double worst = 0;
    (void)state;
    for (size_t n = 0; n < sizeof equal / sizeof *equal; n++) {
        pose(&a, 1, "fwd:f64:%s:%s", equal[n].sizes, equal[n].a);
        pose(&b, 1, "fwd:f64:%s:%s", equal[n].sizes, equal[n].b);
        equal[n].make(&a, &b);
        EACH_PATH(path)
        {
            attend(&a, path);
            attend(&b, path);
            worst = fmax(worst, near(&a, path, b.text, a.t.out.data, b.t.out.data, problem_size(&a.t.out), 0));
        }
        problem_free(&a);
        problem_free(&b);
    }
    print_message("equal terms: error %.3g, tolerance 1e-12\n", worst);
}

/* If no distance is clamped, position to content equals content to position with queries and keys exchanged. */
static void position_to_content_is_the_transpose(void **state)
{
    enum { L = 12, D = 6, SPAN = 14 };
    problem a, b;
    rp_plan *plan_a, *plan_b;
    (void)state;
    pose(&a, 2, "fwd:f64:b1h2q%dk%dd%d:deberta,span=%d", L, L, D, SPAN);
    pose(&b, 2, "%s", a.text);
    memcpy(b.t.q.data, a.t.k.data, 2 * L * D * 8);
    memcpy(b.t.k.data, a.t.q.data, 2 * L * D * 8);
    for (int64_t e = 1; e < 2 * SPAN; e++)
        memcpy(array(&b, 0, 0) + e * D, array(&a, 0, 1) + (2 * SPAN - e) * D, D * 8);
    a.t.term[0][0].data = b.t.term[0][1].data = NULL;
    good(rp_plan_create(&plan_a, &a.desc));
    good(rp_plan_create(&plan_b, &b.desc));
    for (int64_t h = 0; h < 2; h++) {
        double score[L][L], turned[L][L];
        for (int64_t i = 0; i < L; i++) {
            rp_row row = {.score = score[i]};
            good(rp_attend_row(plan_a, &a.t, 0, h, i, &row));
            row.score = turned[i];
            good(rp_attend_row(plan_b, &b.t, 0, h, i, &row));
        }
        for (int64_t i = 0; i < L; i++)
            for (int64_t j = 0; j < L; j++)
                if (!(fabs(score[i][j] - turned[j][i]) <= 1e-12))
                    wrong(&a, "reference", "score %lld, %lld is %g, and %g transposed", (long long)i, (long long)j,
                          score[i][j], turned[j][i]);
    }
    rp_plan_destroy(plan_a);
    rp_plan_destroy(plan_b);
    problem_free(&a);
    problem_free(&b);
}

/* A sink is equivalent to one more key, with value 0 and with the sink's number as score. */
static void a_sink_is_one_more_key(void **state)
{
    static const char *const settings[] = {"", "softcap=2", "scale=3"};
    problem a, b;
    double worst = 0;
    (void)state;
    for (int n = 0; n < 6; n++) {
        const bool rows = n >= 3;
        pose(&a, 3, "fwd:f64:b2h2q20k30d6v5:sink,rows=%d:%s", rows, settings[n % 3]);
        array(&a, 0, 0)[rows ? 21 : 1] = -INFINITY; /* no sink */
        pose(&b, 3, "fwd:f64:b2h2q20k31d6v5:dense:%s", settings[n % 3]);
        also(&a, WITH_LSE, RP_F64);
        also(&b, WITH_LSE, RP_F64);
        memset(b.t.k.data, 0, (size_t)problem_size(&b.t.k) * 8);
        memset(b.t.v.data, 0, (size_t)problem_size(&b.t.v) * 8);
        memcpy(b.t.q.data, a.t.q.data, (size_t)problem_size(&a.t.q) * 8);
        for (int64_t x = 0; x < 4; x++) {
            memcpy((double *)b.t.k.data + x * 31 * 6, (double *)a.t.k.data + x * 30 * 6, 30 * 6 * 8);
            memcpy((double *)b.t.v.data + x * 31 * 5, (double *)a.t.v.data + x * 30 * 5, 30 * 5 * 8);
        }
        for (int64_t x = 0; x < problem_size(&b.t.term[0][0]); x++)
            array(&b, 0, 0)[x] =
                x % 31 == 30 ? array(&a, 0, 0)[rows ? x / 31 % problem_size(&a.t.term[0][0]) : x / 31 / 20 % 2] : 0;
        EACH_PATH(path)
        {
            attend(&a, path);
            attend(&b, path);
            worst = fmax(worst, near(&a, path, "out", a.t.out.data, b.t.out.data, problem_size(&a.t.out), 0));
            worst = fmax(worst, near(&a, path, "lse", a.t.lse.data, b.t.lse.data, problem_size(&a.t.lse), 0));
        }
        problem_free(&a);
        problem_free(&b);
    }
    print_message("a sink is a key: error %.3g, tolerance 1e-12\n", worst);
}

/* If every key is masked, out is 0 and lse is the sink. */
static void the_sink_of_a_masked_row_is_its_lse(void **state)
{
    problem a;
    (void)state;
    for (int rows = 0; rows < 2; rows++)
        EACH_PATH(path)
        {
            pose(&a, 3, "fwd:f32:b1h2q3k4d4:sink,rows=%d:window=0,0", rows);
            also(&a, WITH_LSE, RP_F64);
            a.desc.q_offset = 100;
            attend(&a, path);
            for (int64_t x = 0; x < 6; x++)
                if (at(&a.t.out, x) != 0 || fabs(at(&a.t.lse, x) - at(&a.t.term[0][0], rows ? x : x / 3)) > 1e-6)
                    wrong(&a, path, "a sink alone: out %g, lse %g, and the sink is %g", at(&a.t.out, x),
                          at(&a.t.lse, x), at(&a.t.term[0][0], rows ? x : x / 3));
            problem_free(&a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_equal_other_terms),
        cmocka_unit_test(position_to_content_is_the_transpose),
        cmocka_unit_test(a_sink_is_one_more_key),
        cmocka_unit_test(the_sink_of_a_masked_row_is_its_lse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
