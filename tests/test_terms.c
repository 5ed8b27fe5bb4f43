/* test_terms.c -- what ties terms to each other: equal scores by other means, positions, offsets of batch entries, decoding
 * with one plan, dropout.
 * SPDX-License-Identifier: Apache-2.0 */
#include "helpers.h"
#include "golden/rope_scaling.h"
#include <sys/resource.h>
#include <sys/wait.h>

/* ------------------------------------------------------------------------------------------------ frequencies */

/* The frequencies that transformers computes, in f32. */
static void frequencies(void **state)
{
    static const char *const names[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};
    double worst = 0;
    (void)state;
    for (size_t n = 0; n < sizeof ROPE_GOLDEN / sizeof *ROPE_GOLDEN; n++) {
        const struct rope_golden *g = &ROPE_GOLDEN[n];
        double frequency[16], factor;
        rp_term t = rp_term_init(RP_TERM_ROPE);
        for (int s = 0; s < 6; s++)
            if (strcmp(names[s], g->type) == 0)
                t.scaling = (rp_scaling)s;
        const struct {
            double given, *to;
        } reals[] = {{g->factor, &t.factor},
                     {g->beta_fast, &t.beta_fast},
                     {g->beta_slow, &t.beta_slow},
                     {g->attention_factor, &t.attention_factor},
                     {g->mscale, &t.mscale},
                     {g->mscale_all_dim, &t.mscale_all_dim},
                     {g->low_freq_factor, &t.low_freq_factor},
                     {g->high_freq_factor, &t.high_freq_factor}};
        for (size_t x = 0; x < sizeof reals / sizeof *reals; x++)
            if (reals[x].given != 0) /* else the default */
                *reals[x].to = reals[x].given;
        t.dim = g->dim;
        t.base = g->base;
        t.truncate = g->truncate;
        t.original_max_position_embeddings = (int64_t)g->original_max_position_embeddings;
        t.max_position_embeddings = (int64_t)g->max_position_embeddings;
        good(rp_rope_frequencies(&t, g->seq_len, g->short_factor, g->long_factor, frequency, &factor));
        for (int c = 0; c < g->n; c++) {
            const double error = fabs(frequency[c] / g->inv_freq[c] - 1);
            worst = fmax(worst, error);
            if (!(error <= 1e-6))
                fail_msg("%s: frequency %d is %.9g, and %.9g by transformers", g->name, c, frequency[c],
                         g->inv_freq[c]);
        }
        if (!(fabs(factor / g->attention_scaling - 1) <= 1e-12))
            fail_msg("%s: the factor is %.17g, and %.17g by transformers", g->name, factor, g->attention_scaling);
    }
    print_message("frequencies: error %.3g, tolerance 1e-6\n", worst);
}

/* ------------------------------------------------------------------------------------------------ the same by other means */

static double *array(problem *p, int term, int index)
{
    return p->t.term[term][index].data;
}

static void fill_with(problem *p, int term, int index, double x)
{
    for (int64_t n = 0; n < problem_size(&p->t.term[term][index]); n++)
        array(p, term, index)[n] = x;
}

/* Each makes the arrays of b from those of a, so that both have the same scores. Two heads, lengths as in the texts. */
static void nothing_more(problem *a, problem *b)
{
    (void)a, (void)b;
}

static void swin_of_axial(problem *a, problem *b) /* 3 x 4; query - key against key - query */
{
    for (int64_t y = 0; y < 5; y++)
        for (int64_t x = 0; x < 7; x++)
            for (int64_t h = 0; h < 2; h++)
                array(a, 0, 0)[((4 - y) * 7 + 6 - x) * 2 + h] = array(b, 0, 0)[h * 5 + y] + array(b, 0, 1)[h * 7 + x];
}

static void swin_of_dense(problem *a, problem *b) /* 2 x 3 and a class token: BEiT's index */
{
    for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < 7; i++)
            for (int64_t j = 0; j < 7; j++) {
                const int64_t dy = (i - 1) / 3 - (j - 1) / 3 + 1, dx = (i - 1) % 3 - (j - 1) % 3 + 2;
                const int64_t e = i && j ? dy * 5 + dx
                                  : i    ? 16
                                  : j    ? 15
                                         : 17; /* class to token, token to class, both */
                array(b, 0, 0)[(h * 7 + i) * 7 + j] = array(a, 0, 0)[e * 2 + h];
            }
}

static void real_of_table(problem *a, problem *b) /* a table turned round, and negated */
{
    for (int64_t h = 0; h < 2; h++)
        for (int64_t e = 0; e < 11; e++)
            array(b, 0, 0)[h * 11 + 10 - e] = -array(a, 0, 0)[h * 11 + e];
}

static void real_all_masked(problem *a, problem *b)
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

static void xl_of_relkey(problem *a, problem *b) /* r where no offset is clipped: 20 queries, 30 keys */
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

static void deberta_of_relkey(problem *a, problem *b) /* content to position, all within the span */
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

/* One unit, L beyond every position: psi(|delta|) times w2 / psi(L). */
static void fire_of_log(problem *a, problem *b)
{
    (void)b;
    fill_with(a, 0, 0, 1);
    fill_with(a, 0, 1, 0);
    fill_with(a, 0, 2, -0.7 * log1p(1000));
    fill_with(a, 0, 3, 0.25); /* the same for every pair */
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

static void same_positions(problem *a, problem *b) /* of term 0; both arrays are the last */
{
    int x = 0;
    while (!strstr(rp_term_array(a->terms[0].kind, x), "q_positions"))
        x++;
    for (int m = 0; m < x; m++)
        if (rp_term_array_learned(a->terms[0].kind, m) && a->t.term[0][m].data)
            memcpy(array(b, 0, m), array(a, 0, m), (size_t)problem_size(&a->t.term[0][m]) * sizeof(double));
    for (int64_t n = 0; n < problem_size(&a->t.term[0][x]); n++)
        array(a, 0, x)[n] = (double)(n % 20 + 3); /* q_offset is 3, and is not added to these */
    for (int64_t n = 0; n < problem_size(&a->t.term[0][x + 1]); n++)
        array(a, 0, x + 1)[n] = (double)(n % 30);
}

static const struct {
    const char *sizes, *a, *b; /* the rest of the two texts */
    void (*make)(problem *a, problem *b);
} equal[] = {
    {"b1h2q12k12d6", "swin,grid=3x4:", "axial,grid=3x4:", swin_of_axial},
    {"b1h2q7k7d6", "swin,grid=2x3,extra=1:", "dense:", swin_of_dense},
    {"b2h2q20k30d6o5", "table,left=5,right=5:", "real,max_distance=5:", real_of_table},
    {"b2h2q20k30d6o5", "real,max_distance=5,q_position_mask=x:", ":", real_all_masked},
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
    /* positions that say what holds without them */
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

static void same_by_other_means(void **state)
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
    print_message("the same by other means: error %.3g, tolerance 1e-12\n", worst);
}

/* Position to content is content to position with queries and keys exchanged, where no distance is clamped. */
static void deberta_transposed(void **state)
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
            rp_row row = {.scaled = score[i]};
            good(rp_attend_row(plan_a, &a.t, 0, h, i, &row));
            row.scaled = turned[i];
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

/* A sink is one more key, of value 0, whose score a bias says. */
static void sink_is_a_key(void **state)
{
    static const char *const settings[] = {"", "softcap=2", "scale=3"};
    problem a, b;
    double worst = 0;
    (void)state;
    for (int n = 0; n < 3; n++) {
        pose(&a, 3, "fwd:f64:b2h2q20k30d6v5:sink:%s", settings[n]);
        pose(&b, 3, "fwd:f64:b2h2q20k31d6v5:dense:%s", settings[n]);
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
            array(&b, 0, 0)[x] = x % 31 == 30 ? array(&a, 0, 0)[x / 31 / 20 % 2] : 0;
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
    /* alone, where every key is masked */
    EACH_PATH(path)
    {
        pose(&a, 3, "fwd:f32:b1h2q3k4d4:sink:window=0,0");
        also(&a, WITH_LSE, RP_F64);
        a.desc.q_offset = 100;
        attend(&a, path);
        for (int64_t x = 0; x < 6; x++)
            if (at(&a.t.out, x) != 0 || fabs(at(&a.t.lse, x) - at(&a.t.term[0][0], x / 3)) > 1e-6)
                wrong(&a, path, "a sink alone: out %g, lse %g, and the sink is %g", at(&a.t.out, x), at(&a.t.lse, x),
                      at(&a.t.term[0][0], x / 3));
        problem_free(&a);
    }
    print_message("a sink is a key: error %.3g, tolerance 1e-12\n", worst);
}

/* ------------------------------------------------------------------------------------------------ offsets of batch entries */

static const char *const by_offset[] = {
    "t5,buckets=8,max_distance=20+rope:causal",
    "alibi+table,left=9,right=9+dense:window=60,5",
    "relkey,left=9,right=4+relval,left=4,right=9:",
    "band,width=2,extent=30+real,max_distance=9+fire,c=1,L=9,width=3:",
    "deberta,span=9+sink+sandwich,dim=4:causal+softcap=2",
    "forget+kerple:",
};
enum { BY_OFFSET = sizeof by_offset / sizeof *by_offset };

/* The array of a shape, cut to batch entry b where it has a batch. */
static void cut(const problem *p, rp_tensors *t, int64_t b)
{
    rp_desc one = p->desc;
    int32_t ndim;
    int64_t before[RP_MAX_AXES], after[RP_MAX_AXES];
    rp_array *const fixed[] = {&t->q, &t->k, &t->v, &t->out};
    one.batch = 1;
    for (int n = 0; n < 4; n++) {
        fixed[n]->shape[0] = 1;
        fixed[n]->data = (char *)fixed[n]->data + b * fixed[n]->stride[0] * (int64_t)rp_dtype_size(fixed[n]->dtype);
    }
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            rp_array *a = &t->term[n][x];
            if (!a->data)
                continue;
            good(rp_term_shape(&p->desc, n, x, &ndim, before));
            good(rp_term_shape(&one, n, x, &ndim, after));
            for (int32_t axis = 0; axis < ndim; axis++)
                if (before[axis] != after[axis]) {
                    a->shape[axis] = 1;
                    a->data = (char *)a->data + b * a->stride[axis] * (int64_t)rp_dtype_size(a->dtype);
                }
        }
    t->q_offset.data = NULL;
}

static void offsets(void **state)
{
    static const int64_t entries[][3] = {{7, 7, 7}, {0, 25, -3}, {0, 1000000000, -1000000000}};
    problem p;
    (void)state;
    for (int n = 0; n < BY_OFFSET; n++)
        for (int set = 0; set < 3; set++)
            EACH_PATH(path)
            {
                int64_t offset[3];
                const int64_t three[1] = {3};
                pose(&p, 4, "fwd:f32:b3h2q20k70d6v5:%s", by_offset[n]);
                memcpy(offset, entries[set], sizeof offset);
                p.t.q_offset = rp_array_of(offset, RP_I64, 1, three);
                attend(&p, path);
                float *want = copy_of(&p.t.out);
                const rp_tensors t = p.t;
                if (set == 0) { /* the same for all: the scalar */
                    p.t.q_offset.data = NULL;
                    p.desc.q_offset = 7;
                    attend(&p, path);
                    same_bits(&p, path, "an offset for each entry", want, p.t.out.data, 3 * 2 * 20 * 5 * 4);
                    p.desc.q_offset = -77; /* is not read beside an array */
                    p.t = t;
                    attend(&p, path);
                    same_bits(&p, path, "an offset beside those of the entries", want, p.t.out.data,
                              3 * 2 * 20 * 5 * 4);
                }
                const rp_desc whole = p.desc;
                for (int64_t b = 0; b < 3; b++) {
                    p.t = t;
                    cut(&p, &p.t, b);
                    p.desc.batch = 1;
                    p.desc.q_offset = entries[set][b];
                    attend(&p, path);
                    same_bits(&p, path, "an entry alone, at its offset", want + b * 200, p.t.out.data, 200 * 4);
                    p.desc = whole;
                }
                free(want);
                problem_free(&p);
            }
}

/* Offsets far apart need no memory for what lies between: a child with little of it. */
static void far_apart(void **state)
{
    problem p;
    (void)state;
    if (SANITIZED) {
        print_message("far_apart: a sanitizer needs its own memory: not run\n");
        return;
    }
    EACH_ISA(isa)
    for (int n = 0; n < BY_OFFSET; n++) {
        int64_t offset[2] = {0, 1000000000};
        const int64_t two[1] = {2};
        pose(&p, 4, "fwdbwd:f32:b2h2q20k70d6v5:%s", by_offset[n]);
        p.t.q_offset = rp_array_of(offset, RP_I64, 1, two);
        good(rp_pool_create(&p.t.pool, 1));
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            FILE *f = fopen("/proc/self/statm", "r");
            unsigned long pages = 0;
            if (!f || fscanf(f, "%lu", &pages) != 1)
                _exit(9);
            fclose(f);
            const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)64 << 20);
            const struct rlimit limit = {most, most};
            setrlimit(RLIMIT_AS, &limit);
            const rp_status status = attempt(&p, isa, NULL);
            _exit(status != RP_OK ? (int)status : (int)attempt_backward(&p, isa, &p.g, true));
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            wrong(&p, isa, "offsets far apart: the child ended with %s %s", WIFEXITED(how) ? "status" : "a signal and",
                  rp_status_name((rp_status)WEXITSTATUS(how)));
        rp_pool_destroy(p.t.pool);
        problem_free(&p);
    }
}

/* ------------------------------------------------------------------------------------------------ one plan, many lengths */

/* A prefill, then every step of decoding by the same plan: keys up to the query, at the offset of the step. */
static void steps(void **state)
{
    static const char *const texts[] = {
        "t5+rope:causal",    "alibi:causal",
        ":causal+softcap=3", "relkey,left=5,right=0+relval,left=3,right=0:causal",
        "forget+sink:",      "table,left=20,right=3+rope,layout=interleaved:window=40,0"};
    enum { L = 133, D = 6, V = 5 };
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++)
        for (int type = 0; type < 2; type++)
            EACH_ISA(isa)
            {
                const int64_t size = type ? 2 : 4;
                rp_plan *plan;
                pose(&p, 5, "fwd:%s:b2h4g2q%dk%dd%dv%d:%s", type ? "bf16" : "f32", L, L, D, V, texts[n]);
                p.desc.isa = isa;
                p.desc.flexible = 1;
                good(rp_plan_create(&plan, &p.desc));
                good(rp_attend(plan, &p.t, NULL));
                for (int64_t i = 0; i < L; i += i < 5 || i > 120 ? 1 : 7) {
                    uint8_t out[2 * 4 * V * 4];
                    int64_t offset[2] = {i, i};
                    const int64_t two[1] = {2}, shape[4] = {2, 4, 1, V};
                    rp_tensors t = p.t;
                    t.q.shape[2] = 1;
                    t.q.data = (char *)t.q.data + i * D * size;
                    t.k.shape[2] = t.v.shape[2] = i + 1; /* a cache: strides stay */
                    t.q_offset = rp_array_of(offset, RP_I64, 1, two);
                    t.out = rp_array_of(out, p.desc.dtype, 4, shape);
                    for (int32_t m = 0; m < p.desc.n_terms; m++)
                        if (p.terms[m].kind == RP_TERM_FORGET)
                            t.term[m][0].shape[2] = i + 1;
                    good(rp_attend(plan, &t, NULL));
                    for (int64_t h = 0; h < 8; h++)
                        same_bits(&p, isa, "one step of decoding", (char *)p.t.out.data + (h * L + i) * V * size,
                                  out + h * V * size, (size_t)(V * size));
                }
                rp_plan_destroy(plan);
                p.desc.len_k = L - 1; /* lengths beyond the plan's are refused */
                good(rp_plan_create(&plan, &p.desc));
                assert_int_equal(rp_attend(plan, &p.t, NULL), RP_E_SHAPE);
                assert_non_null(strstr(rp_last_error(), "k: its length is 133"));
                rp_plan_destroy(plan);
                problem_free(&p);
            }
}

/* ------------------------------------------------------------------------------------------------ dropout */

/* With equal scores and values that name their key, out says which weights were kept. */
static void dropout(void **state)
{
    enum { B = 2, H = 2, Q = 64, K = 128 };
    static const double shares[] = {0.1, 0.5, 0.9};
    static uint8_t first[B * H * Q * K];
    problem p;
    (void)state;
    for (int n = 0; n < 3; n++)
        for (int seed = 1; seed < 3; seed++) {
            bool begun = false;
            EACH_PATH(path)
            for (int type = 0; type < 3; type++) {
                static const char *const types[] = {"f32", "f64", "bf16"};
                int64_t kept = 0, pairs = 0, below = 0;
                pose(&p, 6, "fwd:%s:b%dh%dq%dk%dd2v%d::dropout=%g+seed=%d", types[type], B, H, Q, K, K, shares[n],
                     seed);
                for (int64_t x = 0; x < problem_size(&p.t.q); x++)
                    set(&p.t.q, x, 0);
                for (int64_t x = 0; x < problem_size(&p.t.v); x++)
                    set(&p.t.v, x, x % K == x / K % K);
                attend(&p, path);
                for (int64_t x = 0; x < B * H * Q * K; x++) {
                    const double w = at(&p.t.out, x), want = 1.0 / (K * (1 - shares[n]));
                    if (w != 0 && !(fabs(w - want) <= want * (type == 1 ? 1e-14 : type ? 0x1p-8 : 1e-6)))
                        wrong(&p, path, "a kept weight is %.9g, not %.9g", w, want);
                    if (begun && first[x] != (w != 0))
                        wrong(&p, path, "pair %lld is %s, elsewhere it is not", (long long)x,
                              w != 0 ? "kept" : "dropped");
                    first[x] = w != 0;
                    kept += w != 0;
                    pairs += x % K && first[x] == first[x - 1];     /* neighbours along keys, */
                    below += x / K % Q && first[x] == first[x - K]; /* and along queries */
                }
                begun = true;
                /* counts within five standard deviations of what independent draws give */
                const double N = B * H * Q * K, share = 1 - shares[n],
                             alike = share * share + (1 - share) * (1 - share);
                if (fabs((double)kept - N * share) > 5 * sqrt(N * share * (1 - share)))
                    wrong(&p, path, "%lld of %g weights were kept", (long long)kept, N);
                const double along = N * (K - 1) / K, across = N * (Q - 1) / Q;
                if (fabs((double)pairs - along * alike) > 5 * sqrt(along) ||
                    fabs((double)below - across * alike) > 5 * sqrt(across))
                    wrong(&p, path, "neighbours are alike %lld and %lld times, of %g", (long long)pairs,
                          (long long)below, N);
                problem_free(&p);
            }
            /* rows of b, h and i differ from each other */
            for (int64_t r = 1; r < B * H * Q; r++)
                if (memcmp(first, first + r * K, K) == 0)
                    fail_msg("dropout %g, seed %d: rows 0 and %lld drop the same keys", shares[n], seed, (long long)r);
        }
    /* a row is that of its number i, however many there are, and however many keys */
    EACH_ISA(isa)
    {
        pose(&p, 7, "fwd:f32:b1h2q40k300d6v5:alibi:causal+dropout=0.3+seed=8");
        also(&p, WITH_LSE, RP_F32);
        attend(&p, isa);
        float *want = copy_of(&p.t.out), *lse = copy_of(&p.t.lse);
        p.desc.len_q = p.t.q.shape[2] = p.t.out.shape[2] = p.t.lse.shape[2] = 17;
        p.desc.len_k = p.t.k.shape[2] = p.t.v.shape[2] = 17;
        attend(&p, isa);
        for (int64_t h = 0; h < 2; h++) {
            same_bits(&p, isa, "dropout with fewer rows and keys", want + h * 40 * 5,
                      (float *)p.t.out.data + h * 40 * 5, 17 * 5 * 4);
            same_bits(&p, isa, "lse", lse + h * 40, (float *)p.t.lse.data + h * 40, 17 * 4);
        }
        free(want);
        free(lse);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies),
        cmocka_unit_test(same_by_other_means),
        cmocka_unit_test(deberta_transposed),
        cmocka_unit_test(sink_is_a_key),
        cmocka_unit_test(offsets),
        cmocka_unit_test(far_apart),
        cmocka_unit_test(steps),
        cmocka_unit_test(dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
