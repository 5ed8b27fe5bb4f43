/* cmd_attend.c -- relpos attend: attention over arrays in a file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "progress.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { OUT = 'o', WEIGHTS = CLI_OWN, LSE, SUMMARY, DTYPE, THREADS, ISA, LATER };

static const cli_option options[] = {
    {"output", OUT, "FILE", "where the result goes, .npz or .safetensors; - = standard output"},
    CLI_TERM_OPTIONS,
    CLI_MASK_OPTIONS,
    CLI_SETTING_OPTIONS,
    {"weights", WEIGHTS, NULL, "also write weights (B,H,Lq,Lk), computed in double"},
    {"lse", LSE, NULL, "also write lse (B,H,Lq), the log of each row's sum"},
    {"summary", SUMMARY, NULL, "also write profile (B,H,Lq+Lk-1), key_mass (B,H,Lk), entropy (B,H,Lq)"},
    {"dtype", DTYPE, "TYPE", "f32, f64, bf16 or f16: computed in and written; default: that of q"},
    {"threads", THREADS, "N", "default: all this process may use"},
    {"isa", ISA, "NAME", "instruction set; relpos info lists those found"},
    {"grad", LATER, NULL, "not there yet"},
    {"sink", LATER + 1, "NAME", "not there yet"},
    {"dropout", LATER + 2, "P", "not there yet"},
    {"seed", LATER + 3, "S", "not there yet"},
    {"xl", LATER + 4, "key=value...", "not there yet"},
    {"axialkey", LATER + 5, "key=value...", "not there yet"},
    {"deberta", LATER + 6, "key=value...", "not there yet"},
    {0},
};

typedef struct request {
    cli_problem problem;
    const char *out, *isa;
    bool weights, lse, summary, dtype_given;
    rp_dtype dtype;
    int64_t threads;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    static const struct {
        const char *name;
        rp_dtype type;
    } types[] = {{"f32", RP_F32}, {"f64", RP_F64}, {"bf16", RP_BF16}, {"f16", RP_F16}};
    switch (key) {
    case OUT: r->out = value; return CLI_OK;
    case WEIGHTS: r->weights = true; return CLI_OK;
    case LSE: r->lse = true; return CLI_OK;
    case SUMMARY: r->summary = true; return CLI_OK;
    case THREADS: return cli_integer("--threads", value, 1, 4096, &r->threads);
    case ISA: return cli_isa(value, &r->isa);
    case DTYPE:
        for (size_t n = 0; n < sizeof types / sizeof *types; n++)
            if (strcmp(value, types[n].name) == 0) {
                r->dtype = types[n].type;
                r->dtype_given = true;
                return CLI_OK;
            }
        return cli_error(CLI_USAGE, "--dtype: \"%.40s\" is no type (f32, f64, bf16 or f16)", value);
    default:
        for (const cli_option *o = options; o->name && key >= LATER; o++)
            if (o->key == key)
                return cli_error(CLI_FAILED, "--%s: not there yet (a later version will have it)", o->name);
        return cli_problem_option(&r->problem, key, value);
    }
}

/* The sizes of the problem, from the shapes of q, k and v. */
static int read_sizes(cli_problem *p, const rp_tensors *t)
{
    const rp_array *a[3] = {&t->q, &t->k, &t->v};
    rp_desc *d = &p->desc;
    for (int n = 0; n < 3; n++)
        if (a[n]->ndim != 4)
            return cli_error(CLI_FAILED, "%c: %d axes (4 are needed: batch, heads, length, width)", "qkv"[n],
                             (int)a[n] -> ndim);
    d->batch = t->q.shape[0];
    d->heads = t->q.shape[1];
    d->kv_heads = t->k.shape[1];
    d->len_q = t->q.shape[2];
    d->len_k = t->k.shape[2];
    d->dim_k = t->q.shape[3];
    d->dim_v = t->v.shape[3];
    if (d->batch == 0 || d->heads == 0 || d->dim_k == 0)
        return cli_error(CLI_FAILED, "q: an axis of length 0 (batch, heads and width must be at least 1)");
    if (d->kv_heads == 0 || d->dim_v == 0)
        return cli_error(CLI_FAILED, "%s: an axis of length 0 (heads and width must be at least 1)",
                         d->kv_heads ? "v" : "k");
    return CLI_OK;
}

/* Make an output array of the file. */
static int add_output(io_set *out, const char *name, rp_dtype type, int32_t ndim, const int64_t *shape, rp_array *a)
{
    int64_t n = 1;
    for (int32_t x = 0; x < ndim; x++)
        if (__builtin_mul_overflow(n, shape[x] ? shape[x] : 1, &n) || n > INT64_MAX / 16)
            return cli_error(CLI_FAILED, "%s: its size does not fit in 63 bits (shorter sequences)", name);
    void *data = calloc((size_t)n, rp_dtype_size(type));
    if (!data || io_add(out, name, type, ndim, shape, data, false) != 0) {
        free(data);
        return cli_error(CLI_FAILED, "%s: no memory for %lld elements (shorter sequences, or without it)", name,
                         (long long)n);
    }
    *a = rp_array_of(data, type, ndim, shape);
    return CLI_OK;
}

/* Arrays computed in f32 leave as bf16 or f16 where that is wanted: one rounding. */
static int narrow(io_set *out, rp_dtype type)
{
    for (size_t n = 0; n < out->n_arrays; n++) {
        io_array *a = &out->arrays[n];
        const size_t count = a->bytes / rp_dtype_size(a->dtype);
        void *data = malloc(count * rp_dtype_size(type) + 1);
        if (!data)
            return cli_error(CLI_FAILED, "%s: no memory to convert it", a->name);
        io_convert(data, type, a->data, a->dtype, count);
        free(a->data);
        a->data = data;
        a->dtype = type;
        a->bytes = count * rp_dtype_size(type);
    }
    return CLI_OK;
}

static int attend(request *r, const io_set *in, io_format format, io_set *made, io_set *out)
{
    rp_desc *d = &r->problem.desc;
    rp_tensors t = rp_tensors_init();
    const io_array *q = io_find(in, "q");
    if (!r->dtype_given)
        r->dtype = q && q->dtype <= RP_BF16 ? q->dtype : RP_F32;
    if (r->dtype == RP_BF16 && format == IO_NPZ)
        return cli_error(r->dtype_given ? CLI_USAGE : CLI_FAILED,
                         "bf16: .npz has no such type (write .safetensors, or give --dtype f32)");
    d->dtype = r->dtype == RP_F64 ? RP_F64 : RP_F32; /* the type computed in */
    d->isa = r->isa;
    int code = cli_array(in, "q", d->dtype, made, &t.q);
    if (code == CLI_OK)
        code = cli_array(in, "k", d->dtype, made, &t.k);
    if (code == CLI_OK)
        code = cli_array(in, "v", d->dtype, made, &t.v);
    if (code == CLI_OK)
        code = read_sizes(&r->problem, &t);
    if (code == CLI_OK)
        code = cli_problem_arrays(&r->problem, in, d->dtype, made, &t);
    if (code != CLI_OK)
        return code;
    rp_plan *plan;
    if (rp_plan_create(&plan, d) != RP_OK)
        return cli_error(CLI_FAILED, "attend: %s (relpos attend --help)", rp_last_error());
    const int64_t B = d->batch, H = d->heads, Lq = d->len_q, Lk = d->len_k;
    const struct {
        bool wanted;
        const char *name;
        int32_t ndim;
        int64_t shape[4];
        rp_array *a;
    } outputs[] = {
        {true, "out", 4, {B, H, Lq, d->dim_v}, &t.out},
        {r->weights, "weights", 4, {B, H, Lq, Lk}, &t.weights},
        {r->lse, "lse", 3, {B, H, Lq}, &t.lse},
        {r->summary, "profile", 3, {B, H, Lq + Lk > 0 ? Lq + Lk - 1 : 0}, &t.profile},
        {r->summary, "key_mass", 3, {B, H, Lk}, &t.key_mass},
        {r->summary, "entropy", 3, {B, H, Lq}, &t.entropy},
    };
    for (size_t n = 0; code == CLI_OK && n < sizeof outputs / sizeof *outputs; n++)
        if (outputs[n].wanted)
            code = add_output(out, outputs[n].name, d->dtype, outputs[n].ndim, outputs[n].shape, outputs[n].a);
    rp_pool *pool = NULL;
    if (code == CLI_OK && r->threads && rp_pool_create(&pool, (int32_t)r->threads) != RP_OK)
        code = cli_error(CLI_FAILED, "--threads: %s", rp_last_error());
    cli_progress progress = {.what = "attend"};
    cli_progress_show(&progress, 0); /* the time starts here */
    t.pool = pool;
    t.progress = cli_progress_show;
    t.progress_context = &progress;
    const rp_status status = code == CLI_OK ? rp_attend(plan, &t, NULL) : RP_OK;
    if (status != RP_OK)
        code = cli_error(CLI_FAILED, "attend: %s (%s)", rp_last_error(),
                         status == RP_E_NOMEM ? "fewer threads, or shorter sequences" : "relpos attend --help");
    cli_progress_end(&progress);
    rp_pool_destroy(pool);
    rp_plan_destroy(plan);
    if (code == CLI_OK && r->dtype != d->dtype)
        code = narrow(out, r->dtype);
    return code;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int run(const cli_command *self, int argc, char **argv)
{
    request *r = calloc(1, sizeof *r);
    io_set in = {0}, made = {0}, out = {0};
    io_format format;
    const char *args[1];
    int n_args;
    char err[IO_ERR_MAX];
    if (!r)
        return cli_error(CLI_FAILED, "attend: no memory (close other programs)");
    cli_problem_init(&r->problem);
    int code = cli_options(self, argc, argv, on_option, r, args, 1, &n_args);
    if (code < 0 && cli_problem_check(&r->problem, "attend") != CLI_OK)
        code = CLI_USAGE;
    if (code < 0 && n_args == 0)
        code = cli_error(CLI_USAGE, "attend: no input file (relpos attend IN -o OUT)");
    if (code < 0 && !r->out)
        code = cli_error(CLI_USAGE, "attend: no output file (relpos attend IN -o OUT)");
    if (code < 0 && strcmp(r->out, "-") != 0 && io_format_of(r->out) == IO_UNKNOWN)
        code = cli_error(CLI_USAGE, "output \"%.200s\": the suffix tells no format (.npz or .safetensors)", r->out);
    if (code < 0 && strcmp(args[0], "-") != 0 && same_file(args[0], r->out))
        code = cli_error(CLI_USAGE, "output \"%.200s\": it is the input file (write elsewhere)", r->out);
    if (code < 0 && io_read(args[0], &in, &format, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    if (code < 0 && strcmp(r->out, "-") != 0)
        format = io_format_of(r->out);
    if (code < 0) {
        code = attend(r, &in, format, &made, &out);
        if (code == CLI_OK && io_write(r->out, format, &out, err) != 0)
            code = cli_error(CLI_FAILED, "%s", err);
    }
    io_free(&in);
    io_free(&made);
    io_free(&out);
    free(r);
    return code;
}

const cli_command cmd_attend = {
    .name = "attend",
    .summary = "compute attention over the arrays q, k, v of a file",
    .usage = "IN -o OUT [options]      IN and OUT: .npz or .safetensors; - = standard input, output",
    .example = "  relpos attend in.npz -o out.npz --bias t5,table=rel_bias,buckets=32 --scale 1 --weights\n"
               "  relpos attend in.npz -o out.npz --rope dim=64,base=500000 --bias alibi --causal --q-offset 512\n",
    .options = options,
    .run = run,
};
