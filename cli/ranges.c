/* ranges.c -- attention over keys and values that do not fit in memory: read a range of them from the file, compute it,
 * and go on from the states of the rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/progress.h"
#include <stdlib.h>

enum {
    BASE = 24 << 20,       /* bytes for the program itself, its libraries and small allocations */
    PER_THREAD = 4 << 20,  /* bytes of scratch and stack of a thread */
    GROUP_BYTES = 32 << 20 /* packed keys and values of several heads: see set_groups in engine/tasks.c */
};

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int cli_read_rows(const cli_reader *r, int64_t first, int64_t n, void *to, int64_t step)
{
    const int64_t *shape = r->from->shape, heads = shape[0] * shape[1], width = shape[3];
    char err[IO_ERR_MAX];
    for (int64_t h = 0; h < heads; h++) {
        char *at = (char *)to + (size_t)(h * step * width) * rp_dtype_size(r->type);
        if (io_read_part(r->in, r->from, (h * shape[2] + first) * width, n * width, r->raw ? r->raw : at, err) != IO_OK)
            return cli_error(CLI_FAILED, "%s", err);
        if (r->raw)
            rp_convert(at, r->type, r->raw, r->from->dtype, n * width);
    }
    return CLI_OK;
}

/* Shows the progress of one of several calls. */
typedef struct share {
    cli_progress bar;
    double done, part;
} share;

static int show(void *context, double fraction)
{
    share *s = context;
    return cli_progress_show(&s->bar, s->done + s->part * fraction);
}

int cli_check_keys(const rp_desc *d, const io_array *k, const io_array *v)
{
    const int64_t want[3] = {d->batch, d->kv_heads, d->len_k};
    for (int n = 0; n < 2; n++)
        for (int x = 0; x < 3; x++)
            if ((n ? v : k)->shape[x] != want[x])
                return cli_error(CLI_FAILED, "%s: axis %d has length %lld (it must be %lld, as in %s)", n ? "v" : "k",
                                 x, (long long)(n ? v : k)->shape[x], (long long)want[x], x ? "k" : "q");
    if (k->shape[3] != d->dim_k)
        return cli_error(CLI_FAILED, "k: axis 3 has length %lld (it must be %lld, as in q)", (long long)k->shape[3],
                         (long long)d->dim_k);
    return CLI_OK;
}

/* Return true if rows may start from the scores of their own keys, because there is a bias. */
static bool needs_own_keys(const cli_problem *p)
{
    for (int32_t n = 0; n < p->desc.n_terms; n++)
        if (rp_term_is_bias(p->terms[n].kind))
            return true;
    return false;
}

/* The arrays of the calls. */
typedef struct ranges {
    void *state, *own, *k, *v;
    cli_reader keys, values;
} ranges;

static void free_ranges(ranges *r)
{
    free(r->state);
    free(r->own);
    free(r->k);
    free(r->v);
    free(r->keys.raw);
    free(r->values.raw);
}

/* Read the keys at the positions of the queries. Positions without a key are not read, and keep any value. */
static int read_own_keys(const cli_problem *p, ranges *r, rp_tensors *t)
{
    const rp_desc *d = &p->desc;
    const int64_t shape[4] = {d->batch, d->kv_heads, d->len_q, d->dim_k}, batch = r->keys.from->shape[0];
    const size_t size = rp_dtype_size(d->dtype);
    int code = CLI_OK;
    for (int64_t b = 0; b < batch && code == CLI_OK; b++) {
        double offset = (double)d->q_offset;
        if (t->q_offset.data) {
            const int64_t at = t->q_offset.ndim == 1 && t->q_offset.shape[0] > 1 ? b : 0;
            rp_convert(&offset, RP_F64, (const char *)t->q_offset.data + (size_t)at * rp_dtype_size(t->q_offset.dtype),
                       t->q_offset.dtype, 1);
        }
        const int64_t far = d->len_q + d->len_k,
                      o = offset > (double)far    ? far
                          : offset < -(double)far ? -far
                                                  : (int64_t)offset,
                      from = o > 0 ? o : 0, to = min64(o + d->len_q, d->len_k);
        io_array one = *r->keys.from; /* the keys of this batch entry */
        int64_t axes[4] = {1, d->kv_heads, d->len_k, d->dim_k};
        one.shape = axes;
        one.bytes = one.bytes / (size_t)batch;
        one.at += (off_t)((size_t)b * one.bytes);
        cli_reader of_entry = r->keys;
        of_entry.from = &one;
        if (from < to)
            code = cli_read_rows(&of_entry, from, to - from,
                                 (char *)r->own + (size_t)((b * d->kv_heads * d->len_q + from - o) * d->dim_k) * size,
                                 d->len_q);
    }
    t->own_keys = rp_array_of(r->own, d->dtype, 4, shape);
    return code;
}

/* Return the bytes that the calls need besides keys and values: `used`, the program, states of rows, own keys, strips
 * of biases, RoPE's tables, masks, and sums of terms. */
static int64_t fixed_bytes(const cli_problem *p, const rp_plan *plan, int32_t threads, int64_t used)
{
    const rp_desc *d = &p->desc;
    const int64_t size = (int64_t)rp_dtype_size(d->dtype), real = d->dtype == RP_F64 ? 8 : 4,
                  long_side = d->len_q > d->len_k ? d->len_q : d->len_k;
    int64_t fixed = used + BASE + PER_THREAD * (int64_t)threads + GROUP_BYTES +
                    d->batch * d->heads * d->len_q * rp_plan_state_width(plan) * real +
                    (needs_own_keys(p) ? d->batch * d->kv_heads * d->len_q * d->dim_k * size : 0);
    for (int32_t n = 0; n < d->n_terms; n++)
        fixed += rp_term_is_bias(p->terms[n].kind)  ? (2 * long_side + d->len_k * d->batch * 4) * d->heads * real
                 : p->terms[n].kind == RP_TERM_ROPE ? 2 * long_side * d->dim_k * real
                                                    : d->len_k * real;
    return fixed + d->n_masks * d->batch * d->len_k * 8;
}

/* Choose the number of keys of a range, so that the calls need at most `memory` bytes. */
static int choose_range(const cli_problem *p, const rp_plan *plan, const ranges *r, int64_t memory, int64_t fixed,
                        int64_t *range)
{
    const rp_desc *d = &p->desc;
    const int64_t size = (int64_t)rp_dtype_size(d->dtype), real = d->dtype == RP_F64 ? 8 : 4,
                  width = d->dim_k + d->dim_v, step = rp_plan_key_step(plan);
    /* what a key needs: itself, one head of the file's type, and packed in one head */
    const int64_t raw = (r->keys.from->dtype != d->dtype || r->values.from->dtype != d->dtype) ? width * 8 : 0,
                  key = d->batch * d->kv_heads * width * size + raw + 2 * width * real,
                  fits = (memory - fixed) / key / step * step;
    if (fits < step)
        return cli_error(
            CLI_FAILED,
            "--memory: %lld bytes are too few (give at least %lldM; q, out and the states of the rows must "
            "fit, with %lld keys)",
            (long long)memory, (long long)((fixed + key * step) >> 20) + 1, (long long)step);
    *range = min64(fits, d->len_k);
    return CLI_OK;
}

/* Allocate the arrays of the calls. */
static int allocate(const cli_problem *p, const rp_plan *plan, int64_t range, ranges *r)
{
    const rp_desc *d = &p->desc;
    const int64_t size = (int64_t)rp_dtype_size(d->dtype), real = d->dtype == RP_F64 ? 8 : 4,
                  heads = d->batch * d->kv_heads;
    const bool own = needs_own_keys(p), raw_k = r->keys.from->dtype != d->dtype,
               raw_v = r->values.from->dtype != d->dtype;
    const int64_t most = own && d->len_q > range ? d->len_q : range;
    r->state = malloc((size_t)(d->batch * d->heads * d->len_q * rp_plan_state_width(plan) * real) + 1);
    r->own = own ? calloc((size_t)(heads * d->len_q * d->dim_k) + 1, (size_t)size) : NULL;
    r->k = malloc((size_t)(heads * range * d->dim_k * size) + 1);
    r->v = malloc((size_t)(heads * range * d->dim_v * size) + 1);
    r->keys.raw = raw_k ? malloc((size_t)(most * d->dim_k * 8) + 1) : NULL;
    r->values.raw = raw_v ? malloc((size_t)(range * d->dim_v * 8) + 1) : NULL;
    if (!r->state || (own && !r->own) || !r->k || !r->v || (raw_k && !r->keys.raw) || (raw_v && !r->values.raw))
        return cli_error(CLI_FAILED, "attend: out of memory while allocating ranges of keys (give less --memory)");
    return CLI_OK;
}

/* Run the calls, range by range. Only the last one writes out and lse. */
static int run_ranges(const cli_problem *p, const rp_plan *plan, int64_t range, ranges *r, rp_tensors *t)
{
    const rp_desc *d = &p->desc;
    const rp_array out = t->out, lse = t->lse, none = {0};
    const int64_t shape[4] = {d->batch, d->heads, d->len_q, rp_plan_state_width(plan)};
    const rp_array state = rp_array_of(r->state, d->dtype == RP_F64 ? RP_F64 : RP_F32, 4, shape);
    share bar = {.bar = {.what = "attend"}};
    int code = CLI_OK;
    show(&bar, 0); /* start measuring the time */
    t->progress = show;
    t->progress_context = &bar;
    for (int64_t from = 0, to = -1; to < d->len_k && code == CLI_OK; from = to) {
        to = min64(from + range, d->len_k);
        const int64_t k_shape[4] = {d->batch, d->kv_heads, to - from, d->dim_k},
                      v_shape[4] = {d->batch, d->kv_heads, to - from, d->dim_v};
        bar.done = (double)from / (double)d->len_k;
        bar.part = (double)(to - from) / (double)d->len_k;
        if ((code = cli_read_rows(&r->keys, from, to - from, r->k, to - from)) != CLI_OK ||
            (code = cli_read_rows(&r->values, from, to - from, r->v, to - from)) != CLI_OK)
            break;
        t->k = rp_array_of(r->k, d->dtype, 4, k_shape);
        t->v = rp_array_of(r->v, d->dtype, 4, v_shape);
        t->key_from = from;
        t->key_to = to;
        t->state_in = from > 0 ? state : none;
        t->state_out = to < d->len_k ? state : none;
        t->out = to < d->len_k ? none : out;
        t->lse = to < d->len_k ? none : lse;
        if (rp_attend(plan, t, NULL) != RP_OK)
            code = cli_refused(CLI_FAILED, "attend", p, "use fewer threads or shorter sequences");
        free(r->own); /* only the first call needs it */
        r->own = NULL;
        t->own_keys = none;
    }
    cli_progress_end(&bar.bar);
    return code;
}

int cli_attend_ranges(const cli_problem *p, const rp_plan *plan, const io_set *in, int64_t memory, int64_t used,
                      rp_tensors *t)
{
    const io_array *k = io_find(in, "k"), *v = io_find(in, "v");
    ranges r = {.keys = {in, k, p->desc.dtype, NULL}, .values = {in, v, p->desc.dtype, NULL}};
    rp_prepared *prepared = NULL;
    int64_t range = 0;
    int code = cli_check_keys(&p->desc, k, v);
    if (code != CLI_OK)
        return code;
    if (rp_plan_key_step(plan) == 0)
        return cli_error(CLI_USAGE, "--memory: --isa reference computes all keys in one call (choose another --isa)");
    code = choose_range(p, plan, &r, memory, fixed_bytes(p, plan, rp_pool_threads(t->pool), used), &range);
    if (code == CLI_OK)
        code = allocate(p, plan, range, &r);
    if (code == CLI_OK && needs_own_keys(p))
        code = read_own_keys(p, &r, t);
    if (code == CLI_OK && rp_prepare(&prepared, plan, t) != RP_OK)
        code = cli_refused(CLI_FAILED, "attend", p, NULL);
    t->prepared = prepared;
    if (code == CLI_OK)
        code = run_ranges(p, plan, range, &r, t);
    rp_prepared_destroy(prepared);
    free_ranges(&r);
    return code;
}
