/* sources/rope_tables.c -- RoPE's cosines and sines of queries and keys, computed once for a call: by table_task for
 * consecutive positions, by given_table_task for given positions or angles. terms/rope.h has the frequencies,
 * terms/rotation.h the rotation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "sources.h"
#include <math.h>

/* A table of positions first … first+n-1 of batch entry b and kv head g, those of tokens token … token+n-1. Consecutive
 * positions are computed in double in blocks of 64, which begin at multiples of 64: cos and sin give the first position
 * of a block, and repeated rotation by one step gives the others. A position therefore has the same cosine and sine
 * wherever a call starts. Given positions and angles are computed one by one. */
typedef struct table_job {
    const rpi_args *args;
    char *to;
    bool key;
    int64_t b, g, first, n, token;
} table_job;

static int64_t floor_64(int64_t position)
{
    return position - (position % 64 + 64) % 64;
}

/* Store a cosine and sine of token n. With an angle for each channel, each pair has two of them. */
static void put_pair(const table_job *j, int64_t n, int64_t pair, double cosine, double sine)
{
    const rp_plan *plan = j->args->plan;
    const int64_t at = n * rpi_rotation_width(&plan->terms[plan->rotate]) + 2 * pair;
    const double factor = j->args->rope_factor;
    rpi_put_real(plan, j->to, at, cosine * factor);
    rpi_put_real(plan, j->to, at + 1, sine * factor);
}

/* Compute positions first … past-1 of the block that begins at position `from`. They have the same frequencies. */
static void table_run(const table_job *j, const double *frequencies, int64_t from, int64_t first, int64_t past)
{
    const rp_term *t = &j->args->plan->terms[j->args->plan->rotate];
    for (int64_t c = 0; c < t->dim / 2; c++) {
        const double frequency = frequencies[c], angle = (double)from * frequency;
        const double cosine = cos(angle), sine = sin(angle), step_cosine = cos(frequency), step_sine = sin(frequency);
        /* cosine and sine of (p - from) * frequency: the error of 63 products is below 63 * 2^-52 */
        double x = 1, y = 0;
        for (int64_t p = from; p < past; p++) {
            const double z = x * step_cosine - y * step_sine;
            if (p >= first)
                put_pair(j, p - j->first, c, cosine * x - sine * y, sine * x + cosine * y);
            y = x * step_sine + y * step_cosine;
            x = z;
        }
    }
}

static void table_task(void *context, int64_t block, int32_t worker)
{
    const table_job *j = context;
    const int64_t from = floor_64(j->first) + 64 * block, past = rpi_min(from + 64, j->first + j->n);
    (void)worker;
    for (int64_t p = rpi_max(from, j->first), end; p < past; p = end) {
        const int64_t token = j->token + p - j->first, set = rpi_rope_set(j->args, j->b, token);
        for (end = p + 1; end < past && rpi_rope_set(j->args, j->b, token + end - p) == set; end++) {
        }
        table_run(j, rpi_rope_frequency(j->args, j->b, token, j->g, 0), from, p, end);
    }
}

static void given_table_task(void *context, int64_t block, int32_t worker)
{
    const table_job *j = context;
    const rp_plan *plan = j->args->plan;
    (void)worker;
    for (int64_t n = 64 * block; n < rpi_min(64 * block + 64, j->n); n++) {
        const rp_term *t = &plan->terms[plan->rotate];
        for (int64_t c = 0; c < rpi_rotation_angles(t); c++) {
            int64_t at = c, u[2];
            if (rpi_rotates_channels(t)) {
                rpi_rotate_channels(t, c / 2, &u[0], &u[1]);
                at = u[c % 2] - rpi_rotation_first(t);
            }
            const double angle = rpi_rope_angle(j->args, j->key, j->b, j->g, j->token + n, at);
            put_pair(j, n, c, cos(angle), sin(angle));
        }
    }
}

bool rpi_rope_table_is_fixed(const rpi_args *args, bool key)
{
    return !rpi_rope_tokens_given(args, key) && !rpi_rope_frequencies_given(args)->data &&
           rpi_rope_is_fixed(&args->plan->terms[args->plan->rotate]);
}

void rpi_rope_table_of_keys(const rpi_args *args, rp_pool *pool, void *to, int64_t n)
{
    table_job j = {.args = args, .to = to, .key = true, .n = n};
    rpi_pool_run(pool, (n + 63) / 64, table_task, &j);
}

void rpi_rope_tables_place(rpi_rope_tables *t, rpi_arena *a, const rp_plan *plan, const rpi_limits *e)
{
    *t = (rpi_rope_tables){0};
    if (plan->rotate < 0)
        return;
    const int64_t batch = plan->desc.batch, dim = rpi_rotation_width(&plan->terms[plan->rotate]),
                  real = plan->ops->real;
    t->q_head = e->rope_heads > 1 ? e->len_q * dim : 0;
    t->k_head = e->rope_heads > 1 ? e->len_k * dim : 0;
    t->q_step = e->rope_per_batch[0] ? e->rope_heads * e->len_q * dim : 0;
    t->k_step = e->rope_per_batch[1] ? e->rope_heads * e->len_k * dim : 0;
    if (!e->rope_same)
        t->q = rpi_arena_take3(a, (t->q_step ? batch : 1) * e->rope_heads, e->len_q, dim, real);
    t->k = e->rope ? e->rope->rope_k : rpi_arena_take3(a, (t->k_step ? batch : 1) * e->rope_heads, e->len_k, dim, real);
    if (e->rope_same)
        t->q = t->k;
}

/* Fill the table of the queries or keys of kv head g of batch entry b. */
static void fill(const rpi_rope_tables *t, const rpi_args *args, int64_t b, int64_t g, bool key, rp_pool *pool)
{
    const rp_plan *plan = args->plan;
    const rp_desc *d = &args->desc;
    table_job j = {.args = args, .key = key, .b = b, .g = g, .token = key ? 0 : args->row_from};
    j.n = key ? d->len_k : args->row_to - args->row_from;
    const int64_t at = key ? b * t->k_step + g * t->k_head : b * t->q_step + g * t->q_head;
    j.to =
        (char *)(key ? t->k : t->q) + (at + j.token * rpi_rotation_width(&plan->terms[plan->rotate])) * plan->ops->real;
    if (rpi_rope_tokens_given(args, key)) {
        rpi_pool_run(pool, (j.n + 63) / 64, given_table_task, &j);
        return;
    }
    j.first = key || d->batch == 0 ? 0 : rpi_position(args, b, args->row_from);
    rpi_pool_run(pool, j.n > 0 ? (j.first + j.n - 1 - floor_64(j.first)) / 64 + 1 : 0, table_task, &j);
}

void rpi_rope_tables_fill(const rpi_rope_tables *t, const rpi_args *args, const rpi_limits *e, rp_pool *pool)
{
    if (args->plan->rotate < 0)
        return;
    for (int key = e->rope_same ? 1 : 0; key < (e->rope ? 1 : 2); key++)
        for (int64_t b = 0; b < ((key ? t->k_step : t->q_step) ? args->desc.batch : 1); b++)
            for (int64_t g = 0; g < e->rope_heads; g++)
                fill(t, args, b, g, key, pool);
}
