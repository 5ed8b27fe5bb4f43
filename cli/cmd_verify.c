/* cmd_verify.c -- relpos verify: the fast paths against the oracle, and the laws, on each instruction set found.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "problem.h"
#include "progress.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ISA = CLI_OWN, SEED, JSON, LOUD };

static const cli_option options[] = {
    {"isa", ISA, "NAME", "only this instruction set"},
    {"seed", SEED, "N", "seed of the random inputs, default 7"},
    {"verbose", LOUD, NULL, "a line for each problem, not only for failures"},
    {"json", JSON, NULL, "one object a problem and instruction set"},
    {0},
};

typedef struct request {
    const char *isa;
    int64_t seed;
    bool loud, json;
    int checked, failed, total;
    cli_progress progress;
    double worst; /* largest error / bound */
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case ISA: return cli_isa(value, &r->isa);
    case SEED: return cli_integer("--seed", value, 0, INT64_MAX, &r->seed);
    case LOUD: r->loud = true; return CLI_OK;
    case JSON: r->json = true; return CLI_OK;
    default: return -1;
    }
}

/* One problem on one instruction set: a copy of the arrays that a law can bend. */
typedef struct trial {
    problem p;
    const char *isa;
    int64_t n;  /* elements of out */
    float *out; /* what the fast path made */
} trial;

static const char *attend(trial *t, int32_t threads, float *out)
{
    rp_plan *plan;
    rp_pool *pool;
    rp_status status = rp_plan_create(&plan, &t->p.desc);
    if (status != RP_OK)
        return rp_last_error();
    rp_tensors with = t->p.t;
    with.out.data = out;
    status = rp_pool_create(&pool, threads);
    if (status == RP_OK) {
        with.pool = pool;
        status = rp_attend(plan, &with, NULL);
        rp_pool_destroy(pool);
    }
    rp_plan_destroy(plan);
    return status == RP_OK ? NULL : rp_last_error();
}

/* ------------------------------------------------------------------------------------------------- what is checked */

/* A check returns NULL where it holds, or a line that says what was found. It may write to `line`. */
typedef const char *(*check)(trial *t, request *r, char line[256]);

/* |fast - oracle| <= bound, element by element; NaN where the oracle has NaN and nowhere else. */
static const char *check_oracle(trial *t, request *r, char line[256])
{
    const char *isa = t->p.desc.isa;
    const int64_t n = t->n > 0 ? t->n : 1;
    double *bound = malloc((size_t)n * sizeof *bound);
    float *rounded = malloc((size_t)n * sizeof *rounded);
    const char *wrong = bound && rounded ? NULL : "no memory";
    rp_plan *plan = NULL;
    rp_array to = t->p.t.out;
    to.data = bound;
    to.dtype = RP_F64;
    if (!wrong && (rp_plan_create(&plan, &t->p.desc) != RP_OK || rp_error_bound(plan, &t->p.t, &to) != RP_OK))
        wrong = rp_last_error();
    rp_plan_destroy(plan);
    t->p.desc.isa = "reference";
    if (!wrong)
        wrong = attend(t, 1, rounded); /* rounded once: at most u |out| away from exact, which the bound covers */
    t->p.desc.isa = isa;
    double worst = 0, worst_error = 0, worst_bound = 0;
    for (int64_t x = 0; !wrong && x < t->n; x++) {
        const double error = fabs((double)t->out[x] - (double)rounded[x]);
        const bool both_nan = isnan(t->out[x]) && isnan(rounded[x]);
        const double share = both_nan || t->out[x] == rounded[x] ? 0 : error / bound[x];
        if (!(share <= worst)) {
            worst = isnan(share) ? INFINITY : share;
            worst_error = error;
            worst_bound = bound[x];
        }
    }
    free(bound);
    free(rounded);
    if (!wrong) {
        r->worst = fmax(r->worst, worst);
        snprintf(line, 256, "error %.3g, bound %.3g, ratio %.3g", worst_error, worst_bound, worst);
        if (!(worst <= 1))
            wrong = line;
    }
    return wrong;
}

static const char *same_bits(const trial *t, const float *other, const char *what, char line[256])
{
    for (int64_t x = 0; x < t->n; x++)
        if (memcmp(&t->out[x], &other[x], sizeof(float)) != 0) {
            snprintf(line, 256, "%s: element %lld is %.9g, not %.9g", what, (long long)x, (double)other[x],
                     (double)t->out[x]);
            return line;
        }
    return NULL;
}

static const char *check_threads(trial *t, request *r, char line[256])
{
    float *again = malloc((size_t)t->n * sizeof *again + 4);
    const char *wrong = again ? attend(t, 3, again) : "no memory";
    (void)r;
    if (!wrong)
        wrong = same_bits(t, again, "3 threads against 1", line);
    free(again);
    return wrong;
}

/* The last queries alone, at their own offset, have the bits of the whole: decoding equals prefill. */
static const char *check_decode(trial *t, request *r, char line[256])
{
    rp_desc *d = &t->p.desc;
    const rp_desc whole = *d;
    const rp_tensors arrays = t->p.t;
    const int64_t tail = d->len_q < 2 ? 0 : 1 + d->len_q / 3, first = d->len_q - tail,
                  Dv = d->dim_v ? d->dim_v : d->dim_k;
    (void)r;
    for (int32_t n = 0; n < d->n_masks; n++)
        if (d->masks[n].kind == RP_MASK_SEGMENTS)
            return NULL; /* segments need as many queries as keys */
    if (tail == 0)
        return NULL;
    float *part = malloc((size_t)(d->batch * d->heads * tail * Dv) * sizeof *part + 4);
    if (!part)
        return "no memory";
    d->len_q = tail;
    d->q_offset += first;
    t->p.t.q.shape[2] = tail;
    t->p.t.q.data = (float *)arrays.q.data + first * d->dim_k;
    const int64_t shape[4] = {d->batch, d->heads, tail, Dv};
    t->p.t.out = rp_array_of(part, RP_F32, 4, shape);
    for (int32_t n = 0; n < d->n_terms; n++) /* dense biases and masks: their last rows */
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (d->terms[n].kind == RP_TERM_DENSE && t->p.t.term[n][x].data) {
                t->p.t.term[n][x].shape[2] = tail;
                t->p.t.term[n][x].data = (float *)arrays.term[n][x].data + first * d->len_k;
            }
    for (int32_t n = 0; n < d->n_masks; n++)
        if (d->masks[n].kind == RP_MASK_PAIRS) {
            t->p.t.mask[n].shape[2] = tail;
            t->p.t.mask[n].data = (uint8_t *)arrays.mask[n].data + first * d->len_k;
        }
    const char *wrong = attend(t, 1, part);
    for (int64_t bh = 0; !wrong && bh < d->batch * d->heads; bh++)
        for (int64_t x = 0; !wrong && x < tail * Dv; x++)
            if (memcmp(&part[bh * tail * Dv + x], &t->out[(bh * whole.len_q + first) * Dv + x], sizeof(float)) != 0) {
                snprintf(line, 256, "decode against prefill: query %lld of batch and head %lld differs",
                         (long long)(first + x / Dv), (long long)bh);
                wrong = line;
            }
    *d = whole;
    t->p.t = arrays;
    free(part);
    return wrong;
}

/* Values of one give rows that sum to one, or to zero where every key is masked. */
static const char *check_rows(trial *t, request *r, char line[256])
{
    const rp_desc *d = &t->p.desc;
    float *v = t->p.t.v.data;
    const int64_t n_v = problem_size(&t->p.t.v);
    (void)r;
    for (int32_t n = 0; n < d->n_terms; n++)
        if (d->terms[n].kind == RP_TERM_RELVAL)
            return NULL; /* its vectors are added to the ones */
    float *keep = malloc((size_t)n_v * sizeof *keep + 4), *out = malloc((size_t)t->n * sizeof *out + 4);
    const char *wrong = keep && out ? NULL : "no memory";
    if (!wrong) {
        memcpy(keep, v, (size_t)n_v * sizeof *v);
        for (int64_t x = 0; x < n_v; x++)
            v[x] = 1;
        wrong = attend(t, 1, out);
        memcpy(v, keep, (size_t)n_v * sizeof *v);
    }
    /* the same products are summed in another order: n roundings each way */
    const double tolerance = 0x1p-23 * (300 + (double)d->len_k / 64);
    for (int64_t x = 0; !wrong && x < t->n; x++)
        if (out[x] != 0 && !(fabs((double)out[x] - 1) <= tolerance)) {
            snprintf(line, 256, "rows sum to one: %.9g, tolerance %.3g", (double)out[x], tolerance);
            wrong = line;
        }
    free(keep);
    free(out);
    return wrong;
}

static const struct {
    const char *name;
    check run;
} checks[] = {{"oracle", check_oracle}, {"threads", check_threads}, {"decode", check_decode}, {"rows", check_rows}};

static int verify(request *r, const char *text, const char *isa)
{
    trial t = {0};
    char err[512], line[256] = "", found[256] = "";
    const int code = problem_parse(&t.p, text, err);
    if (code != 0)
        return cli_error(code, "%s", err);
    t.p.desc.isa = isa;
    if (t.p.desc.dtype != RP_F32)
        return cli_error(CLI_FAILED, "problem %.80s: f64 is the oracle itself (verify f32)", text);
    if (problem_fill(&t.p, (uint64_t)r->seed, err) != 0) {
        problem_free(&t.p);
        return cli_error(CLI_FAILED, "%s", err);
    }
    t.n = problem_size(&t.p.t.out);
    t.out = t.p.t.out.data;
    const char *wrong = attend(&t, 1, t.out), *where = "attend";
    for (size_t n = 0; !wrong && n < sizeof checks / sizeof *checks; n++) {
        line[0] = 0;
        wrong = checks[n].run(&t, r, line);
        where = checks[n].name;
        if (n == 0)
            snprintf(found, sizeof found, "%s", line);
    }
    r->checked++;
    cli_progress_show(&r->progress, (double)r->checked / (double)r->total);
    r->failed += wrong != NULL;
    if (r->json) {
        printf("{\"problem\": ");
        cli_json_string(stdout, text);
        printf(", \"isa\": \"%s\", \"seed\": %lld, \"passed\": %s, \"found\": ", isa, (long long)r->seed,
               wrong ? "false" : "true");
        cli_json_string(stdout, wrong ? wrong : found);
        printf("}\n");
    } else if (wrong) {
        printf("FAILED %s: %s\n       relpos verify %s --isa %s --seed %lld\n", where, wrong, text, isa,
               (long long)r->seed);
    } else if (r->loud) {
        printf("ok     %-8s %s: %s\n", isa, text, found);
    }
    problem_free(&t.p);
    return CLI_OK;
}

/* Sizes on the edges of tiles, each term, each mask, and mixtures. */
static const char *const sizes[] = {"b1h1q1k1d1",         "b1h2q5k7d3v2",       "b2h2q7k63d8",
                                    "b1h4g2q33k65d16v24", "b1h1q95k513d64",     "b1h2g1q97k130d40v72",
                                    "b1h3q192k600d17v33", "b2h1q3k1100d65o900", "b1h1q260k1300d32o-7"};
static const char *const terms[] = {"",
                                    "table,left=5,right=9",
                                    "t5",
                                    "t5,buckets=16,max_distance=64,bidirectional=0",
                                    "bucket,strategy=uniform",
                                    "bucket,strategy=linear",
                                    "bucket,strategy=quadratic",
                                    "log",
                                    "linear,left=0.1,right=0.2",
                                    "alibi",
                                    "dense",
                                    "rope+t5",
                                    "rope,layout=interleaved",
                                    "relkey,left=6,right=3",
                                    "relkey,left=1500,right=900",
                                    "relval,left=4,right=8",
                                    "relval,left=1500,right=900",
                                    "rope+t5+alibi+dense+dense+relkey,left=9,right=9+relval,left=2,right=2"};
static const char *const masks[] = {"",
                                    "causal",
                                    "window=10,3",
                                    "window=0,0",
                                    "key_mask",
                                    "mask",
                                    "lengths",
                                    "causal+window=40,-1+key_mask",
                                    "softcap=3",
                                    "softcap_after=3",
                                    "mask+softcap=2",
                                    "scale=0.7"};

enum {
    N_TERMS = sizeof terms / sizeof *terms,
    N_MASKS = sizeof masks / sizeof *masks,
    N_SIZES = sizeof sizes / sizeof *sizes
};

/* The default list: every term and every mask at sizes that take turns, and some terms with some masks. */
static int verify_all(request *r, const char *isa)
{
    char text[512];
    for (int term = 0; term < N_TERMS; term++)
        for (int mask = 0; mask < N_MASKS; mask++) {
            const int size = (term * 5 + mask * 7) % N_SIZES;
            const bool rotates = strncmp(terms[term], "rope", 4) == 0;
            /* RoPE turns pairs of channels: an even width, or part of an odd one */
            const char *shape =
                rotates && (size == 0 || size == 1 || size == 6 || size == 7) ? "b1h2q50k140d18" : sizes[size];
            snprintf(text, sizeof text, "fwd:f32:%s:%s:%s", shape, terms[term], masks[mask]);
            const int code = verify(r, text, isa);
            if (code != CLI_OK)
                return code;
        }
    return verify(r, "fwd:f32:b1h2q130k130d16:t5:segments+causal", isa);
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.seed = 7, .progress = {.what = "verify"}};
    const char *texts[64], *isa;
    int n, code = cli_options(self, argc, argv, on_option, &r, texts, 64, &n);
    if (code >= 0)
        return code;
    code = CLI_OK;
    for (int x = 0; (isa = rp_isa_name(x)); x++)
        if (rp_isa_found(isa) == 1 && (!r.isa || strcmp(r.isa, isa) == 0))
            r.total += n ? n : N_TERMS * N_MASKS + 1;
    cli_progress_show(&r.progress, 0); /* the time starts here */
    for (int x = 0; code == CLI_OK && (isa = rp_isa_name(x)); x++) {
        if (rp_isa_found(isa) != 1 || (r.isa && strcmp(r.isa, isa) != 0))
            continue;
        for (int k = 0; code == CLI_OK && k < n; k++)
            code = verify(&r, texts[k], isa);
        if (code == CLI_OK && n == 0)
            code = verify_all(&r, isa);
    }
    cli_progress_end(&r.progress);
    if (code == CLI_OK && r.checked == 0)
        code = cli_error(CLI_USAGE, "--isa: %s judges the others and is not checked (name another)", r.isa);
    if (code == CLI_OK && !r.json)
        printf("%d problems checked, %d failed; largest error / bound %.3f\n", r.checked, r.failed, r.worst);
    return code != CLI_OK ? code : r.failed ? CLI_FAILED : CLI_OK;
}

const cli_command cmd_verify = {
    .name = "verify",
    .summary = "check the fast paths against the reference and the laws, on this machine",
    .usage = "[PROBLEM...] [options]      without a problem: a list that covers every term and mask",
    .example = "  relpos verify\n  relpos verify fwd:f32:b1h8q33k65d64:t5,buckets=32:causal --verbose\n",
    .options = options,
    .run = run,
};
