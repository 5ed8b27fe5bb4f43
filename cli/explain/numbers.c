/* numbers.c -- the numbers that relpos explain shows: scores and weights of one query with and without position terms,
 * the parts of both, and the weights of a head by distance. The library computes all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain/explain.h"
#include "cli/progress.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_PAIRS = 1 << 18 }; /* with more pairs, sum weights with the fast path instead of row by row in double */

int explain_no_memory(void)
{
    return cli_error(CLI_FAILED, "explain: out of memory while computing the rows (use fewer keys)");
}

int explain_range(const char *option, int64_t at, int64_t n)
{
    if (at < n)
        return CLI_OK;
    return cli_out_of_range(option, at, 0, n - 1);
}

static int refuse(const explain_request *r)
{
    return cli_refused(CLI_FAILED, "explain", &r->problem, NULL);
}

double explain_scale(const rp_desc *d)
{
    return d->scale == RP_SCALE_AUTO ? 1 / sqrt((double)d->dim_k) : d->scale;
}

/* Return the description without its position terms, but with its scale, softcap and masks. */
static rp_desc plain_of(const rp_desc *d)
{
    rp_desc plain = *d;
    plain.n_terms = 0;
    return plain;
}

int explain_plans(const explain_request *r, explain_source *s)
{
    const rp_desc *d = &r->problem.desc, plain = plain_of(d);
    rp_plan_destroy(s->plan);
    rp_plan_destroy(s->plain);
    s->plan = s->plain = NULL;
    rp_status status = rp_plan_create(&s->plan, d);
    if (status == RP_OK)
        status = rp_plan_create(&s->plain, &plain);
    if (status == RP_OK)
        return CLI_OK;
    refuse(r);
    return r->input || r->model ? CLI_FAILED : cli_code(status); /* without a file, only the options can be wrong */
}

int explain_look(const explain_request *r, const explain_source *s, int64_t query, explain_trace *t)
{
    const rp_desc *d = &r->problem.desc;
    const int64_t n = d->len_k;
    double *at = calloc((size_t)(8 * n + d->dim_v), sizeof *at);
    if (!at)
        return explain_no_memory();
    *t = (explain_trace){.row = {.raw = at,
                                 .scaled = at + n,
                                 .bias = at + 2 * n,
                                 .score = at + 3 * n,
                                 .weights = at + 4 * n,
                                 .out = at + 8 * n},
                         .plain = at + 5 * n,
                         .difference = at + 6 * n,
                         .plain_score = at + 7 * n};
    rp_row standard = {.weights = t->plain, .score = t->plain_score};
    if (rp_attend_row(s->plan, &s->t, r->batch, r->head, query, &t->row) != RP_OK ||
        rp_attend_row(s->plain, &s->t, r->batch, r->head, query, &standard) != RP_OK)
        return refuse(r);
    for (int64_t j = 0; j < n; j++)
        t->difference[j] = t->row.weights[j] - t->plain[j];
    return CLI_OK;
}

int explain_split(const explain_request *r, const explain_source *s, explain_trace *t)
{
    rp_part list[RP_MAX_PARTS] = {0};
    size_t numbers = 0;
    if (rp_attend_parts(s->plan, &s->t, r->batch, r->head, r->query, list, &t->n_parts) != RP_OK)
        return refuse(r);
    for (int32_t n = 0; n < t->n_parts; n++)
        numbers += (size_t)list[n].length;
    if (!(t->part = calloc(1, sizeof list + numbers * sizeof(double))))
        return explain_no_memory();
    memcpy(t->part, list, sizeof list);
    double *value = (double *)(void *)(t->part + RP_MAX_PARTS);
    for (int32_t n = 0; n < t->n_parts; value += t->part[n++].length)
        t->part[n].value = value;
    if (rp_attend_parts(s->plan, &s->t, r->batch, r->head, r->query, t->part, &t->n_parts) != RP_OK)
        return refuse(r);
    return CLI_OK;
}

const rp_part *explain_part(const explain_trace *t, rp_part_kind kind)
{
    for (int32_t n = 0; n < t->n_parts; n++)
        if (t->part[n].kind == kind)
            return &t->part[n];
    return NULL;
}

/* Return the distance band of an offset. */
static int band_of(int64_t delta)
{
    const uint64_t distance = delta < 0 ? -(uint64_t)delta : (uint64_t)delta;
    const int band = distance ? 64 - __builtin_clzll(distance) : 0;
    return band < EXPLAIN_BANDS ? band : EXPLAIN_BANDS - 1;
}

/* Divide the sums of all bands by their total. The total is 0 if every pair is masked. */
static void finish(explain_bands *bands)
{
    double *const both[2] = {bands->plain, bands->with};
    for (int k = 0; k < 2; k++) {
        double sum = 0;
        for (int band = 0; band < EXPLAIN_BANDS; band++)
            sum += both[k][band];
        for (int band = 0; band < EXPLAIN_BANDS && sum != 0; band++)
            both[k][band] /= sum;
    }
    bands->known = true;
}

/* Sum the weights of a head by distance, with one call of the fast path. It returns the mean weight at each offset,
 * which is multiplied by the number of pairs with that offset. If `pairs` is not NULL, also count the computed
 * pairs. */
static int sums_of_profile(const explain_request *r, const explain_source *s, bool plain, double *sum, int64_t *pairs,
                           cli_progress *progress)
{
    const rp_dtype type = r->input || r->model ? RP_F32 : RP_F64;
    rp_desc d = plain ? plain_of(&r->problem.desc) : r->problem.desc;
    rp_tensors t = s->t;
    rp_plan *plan = NULL;
    io_set made = {0};
    const int64_t n = d.len_q + d.len_k - 1, shape[3] = {d.batch, d.heads, n};
    double *profile = calloc((size_t)(d.batch * d.heads * n), sizeof *profile);
    int code = profile ? CLI_OK : explain_no_memory();
    if (code == CLI_OK && r->input) /* f32 is faster */
        code = cli_array(&s->in, "q", type, &made, &t.q);
    if (code == CLI_OK && r->input)
        code = cli_array(&s->in, "k", type, &made, &t.k);
    if (code == CLI_OK && r->input)
        code = cli_array(&s->in, "v", type, &made, &t.v);
    d.dtype = type;
    t.profile = rp_array_of(profile, RP_F64, 3, shape);
    t.progress = progress ? cli_progress_show : NULL;
    t.progress_context = progress;
    t.pairs = pairs;
    if (code == CLI_OK && (rp_plan_create(&plan, &d) != RP_OK || rp_attend(plan, &t, NULL) != RP_OK))
        code = refuse(r);
    const double *mean = code == CLI_OK ? profile + (r->batch * d.heads + r->head) * n : NULL;
    for (int64_t x = 0; mean && x < n; x++) {
        const int64_t delta = x - (d.len_q - 1), last = d.len_k - delta;
        const int64_t of_delta = (last < d.len_q ? last : d.len_q) - (delta < 0 ? -delta : 0);
        sum[band_of(delta - d.q_offset)] += mean[x] * (double)of_delta;
    }
    rp_plan_destroy(plan);
    io_free(&made);
    free(profile);
    return code;
}

/* Sum the weights of a head by distance, one query after another, in double. If `plain` is not NULL, also store the
 * weights. */
static int sums_of_rows(const explain_request *r, const explain_source *s, explain_bands *bands, double *plain,
                        double *with, cli_progress *progress)
{
    const rp_desc *d = &r->problem.desc;
    const int64_t n = d->len_k;
    double *row = malloc((size_t)n * 3 * sizeof *row);
    int code = row ? CLI_OK : explain_no_memory();
    for (int64_t i = 0; code == CLI_OK && i < d->len_q; i++) {
        rp_row standard = {.weights = row}, biased = {.weights = row + n, .score = row + 2 * n};
        if (rp_attend_row(s->plain, &s->t, r->batch, r->head, i, &standard) != RP_OK ||
            rp_attend_row(s->plan, &s->t, r->batch, r->head, i, &biased) != RP_OK)
            code = refuse(r);
        for (int64_t j = 0; code == CLI_OK && j < n; j++) {
            const int band = band_of(j - i - d->q_offset);
            const bool masked = biased.score[j] == -INFINITY;
            bands->plain[band] += standard.weights[j];
            bands->with[band] += biased.weights[j];
            if (plain) {
                plain[i * n + j] = masked ? -INFINITY : standard.weights[j];
                with[i * n + j] = masked ? -INFINITY : biased.weights[j];
            }
        }
        cli_progress_show(progress, (double)(i + 1) / (double)d->len_q);
    }
    free(row);
    return code;
}

int explain_all(const explain_request *r, const explain_source *s, explain_bands *bands, double *plain, double *with)
{
    const rp_desc *d = &r->problem.desc;
    cli_progress progress = {.what = "explain"};
    double unused[EXPLAIN_BANDS] = {0};
    int code;
    cli_progress_show(&progress, 0);
    if (plain || d->len_q <= ROW_PAIRS / d->len_k) {
        code = sums_of_rows(r, s, bands, plain, with, &progress);
        if (code == CLI_OK)
            code = sums_of_profile(r, s, false, unused, bands->pairs, NULL);
    } else {
        code = sums_of_profile(r, s, true, bands->plain, NULL, &progress);
        if (code == CLI_OK)
            code = sums_of_profile(r, s, false, bands->with, bands->pairs, &progress);
    }
    cli_progress_end(&progress);
    for (int64_t x = 0; x < d->len_q + d->len_k - 1; x++)
        bands->has_pairs[band_of(x - (d->len_q - 1) - d->q_offset)] = true;
    finish(bands);
    return code;
}
