/* attend.c -- relpos attend: compute attention from arrays in a file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"
#include "cli/team.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { OUT = 'o', WEIGHTS = CLI_FIRST_KEY, LSE, SUMMARY, GRAD, TANGENT, DROPOUT, SEED, DTYPE, THREADS, ISA, MEMORY };

static const cli_option options[] = {
    {"output", OUT, "FILE", "write the result to FILE, .npz or .safetensors; - = standard output"},
    CLI_TERM_OPTIONS,
    CLI_MASK_OPTIONS,
    CLI_SETTING_OPTIONS,
    {"dropout", DROPOUT, "P", "drop each weight with probability P < 1 and multiply the others by 1/(1-P); default 0"},
    {"seed", SEED, "N", "set the seed that selects the dropped weights; default 0"},
    {"weights", WEIGHTS, NULL, "also write weights (B,H,Lq,Lk), computed in double"},
    {"lse", LSE, NULL, "also write lse (B,H,Lq), the logarithm of each row's sum of exponentials"},
    {"summary", SUMMARY, NULL,
     "also write summaries of the weights: profile (B,H,Lq+Lk-1), key_mass (B,H,Lk), entropy (B,H,Lq)"},
    {"grad", GRAD, NULL,
     "also write the gradients dq, dk, dv, and dNAME of each learned array; the file must have dout (B,H,Lq,Dv) and "
     "may have dlse"},
    {"tangent", TANGENT, "FILE",
     "also write out_t (B,H,Lq,Dv) and lse_t (B,H,Lq), the derivatives of out and lse along the tangents in FILE: tq, "
     "tk, tv, and tNAME of each learned array (those that FILE lacks are 0; another name that begins with t is an "
     "error)"},
    {"dtype", DTYPE, "TYPE", "compute and write in f32, f64, bf16 or f16; default: the type of q"},
    {"threads", THREADS, "N", "use N threads; " CLI_ALL_THREADS},
    {"memory", MEMORY, "SIZE",
     "use at most SIZE bytes, such as 512M or 2G: read keys and values range by range from a .safetensors file"},
    {"isa", ISA, "NAME", "use this instruction set (relpos info lists them); default: RELPOS_ISA, else the best found"},
    {0},
};

typedef struct request {
    cli_problem problem;
    const char *out, *isa;
    const char *tangent; /* file with tangents; NULL: not given */
    bool weights, lse, summary, grad, dtype_given;
    rp_dtype dtype;          /* type of the output */
    int64_t threads, memory; /* 0: not given */
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    rp_desc *d = &r->problem.desc;
    int64_t seed;
    int code;
    switch (key) {
    case OUT: r->out = value; return CLI_OK;
    case WEIGHTS: r->weights = true; return CLI_OK;
    case LSE: r->lse = true; return CLI_OK;
    case SUMMARY: r->summary = true; return CLI_OK;
    case GRAD: r->grad = true; return CLI_OK;
    case TANGENT: r->tangent = value; return CLI_OK;
    case DROPOUT:
        code = cli_real("--dropout", value, &d->dropout);
        if (code == CLI_OK && !(d->dropout >= 0 && d->dropout < 1))
            return cli_error(CLI_USAGE, "--dropout: %g is out of range (0 to below 1)", d->dropout);
        return code;
    case SEED:
        code = cli_integer("--seed", value, 0, INT64_MAX, &seed);
        if (code == CLI_OK)
            d->seed = (uint64_t)seed;
        return code;
    case THREADS: return cli_integer("--threads", value, 1, RP_MAX_THREADS, &r->threads);
    case MEMORY: return cli_bytes("--memory", value, &r->memory);
    case ISA: return cli_isa(value, &r->isa);
    case DTYPE: r->dtype_given = true; return cli_dtype("--dtype", value, &r->dtype);
    default: return cli_problem_option(&r->problem, key, value);
    }
}

/* Derive the sizes of the problem from the shapes of q, k and v. Return CLI_OK, or CLI_FAILED after printing. */
static int read_sizes(cli_problem *p, const rp_tensors *t)
{
    const rp_array *a[3] = {&t->q, &t->k, &t->v};
    rp_desc *d = &p->desc;
    for (int n = 0; n < 3; n++)
        if (a[n]->ndim != 4)
            return cli_error(CLI_FAILED, "%c: has %d axes (reshape it to 4: batch, heads, length, width)", "qkv"[n],
                             (int)a[n] -> ndim);
    d->batch = t->q.shape[0];
    d->heads = t->q.shape[1];
    d->kv_heads = t->k.shape[1];
    d->len_q = t->q.shape[2];
    d->len_k = t->k.shape[2];
    d->dim_k = t->q.shape[3];
    d->dim_v = t->v.shape[3];
    if (d->batch == 0 || d->heads == 0 || d->dim_k == 0)
        return cli_error(CLI_FAILED, "q: has an axis of length 0 (batch, heads and width must be at least 1)");
    if (d->kv_heads == 0 || d->dim_v == 0)
        return cli_error(CLI_FAILED, "%s: has an axis of length 0 (heads and width must be at least 1)",
                         d->kv_heads ? "v" : "k");
    return CLI_OK;
}

/* Add an array of zeros to *out, and view it as *a. Return CLI_OK, or CLI_FAILED after printing. */
static int add_output(io_set *out, const char *name, rp_dtype type, int32_t ndim, const int64_t *shape, rp_array *a)
{
    int64_t n = 1;
    for (int32_t x = 0; x < ndim; x++)
        if (__builtin_mul_overflow(n, shape[x] ? shape[x] : 1, &n) || n > INT64_MAX / 16)
            return cli_error(CLI_FAILED, "%s: its size does not fit in 63 bits (use shorter sequences)", name);
    void *data = calloc((size_t)n, rp_dtype_size(type));
    if (!data || io_add(out, name, type, ndim, shape, data, false) != 0) {
        free(data);
        return cli_error(CLI_FAILED,
                         "%s: out of memory while creating %lld elements (use shorter sequences or fewer outputs)",
                         name, (long long)n);
    }
    *a = rp_array_of(data, type, ndim, shape);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------- gradients */

/* One place where the problem uses an array of the file, with the gradient there. */
typedef struct use {
    const char *name;
    const rp_array *of; /* the array */
    rp_array *to, sum;  /* to: gradient of this use; sum: gradient of all uses, only set in the first of several */
} use;

typedef struct gradients {
    rp_grads g;
    use use[3 + RP_MAX_TERMS * RP_MAX_ARRAYS];
    int n;
} gradients;

/* What one run of the command has: its options, the arrays that it reads, needs and writes, and the call. */
typedef struct job {
    request request;
    const char *input;
    io_format format;              /* of the output */
    io_set in, made, out, tangent; /* tangent: arrays of --tangent */
    rp_tensors tensors;
    gradients gradients;
    rp_tangents tangents;
    rp_plan *plan;
    rp_pool *pool;
} job;

static int64_t elements(const rp_array *a)
{
    int64_t n = 1;
    for (int32_t x = 0; x < a->ndim; x++)
        n *= a->shape[x];
    return n;
}

/* Return the index of the first use of the array that use n refers to. */
static int first_use(const gradients *s, int n)
{
    for (int m = 0; m < n; m++)
        if (strcmp(s->use[m].name, s->use[n].name) == 0)
            return m;
    return n;
}

/* List every use of q, k, v and the learned arrays. Return their number. */
static int list_uses(const cli_problem *p, const rp_tensors *t, rp_array *const first[3],
                     rp_array term[][RP_MAX_ARRAYS], use to[3 + RP_MAX_TERMS * RP_MAX_ARRAYS])
{
    const rp_array *const of[3] = {&t->q, &t->k, &t->v};
    static const char *const names[3] = {"q", "k", "v"};
    int n = 0;
    for (; n < 3; n++)
        to[n] = (use){.name = names[n], .of = of[n], .to = first[n]};
    for (int32_t m = 0; m < p->desc.n_terms; m++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (t->term[m][x].data && rp_term_array_learned(p->terms[m].kind, x))
                to[n++] = (use){.name = p->term_array[m][x], .of = &t->term[m][x], .to = &term[m][x]};
    return n;
}

/* Add a gradient for q, k, v and each learned array. If an array is used more than once, each use has a gradient in
 * double in *made, and their sum goes to *out. */
static int add_gradients(const request *r, const rp_tensors *t, io_set *made, io_set *out, gradients *s)
{
    int code = CLI_OK, uses[sizeof s->use / sizeof *s->use] = {0};
    s->n = list_uses(&r->problem, t, (rp_array *[]){&s->g.dq, &s->g.dk, &s->g.dv}, s->g.term, s->use);
    for (int n = 0; n < s->n; n++)
        uses[first_use(s, n)]++;
    for (int n = 0; n < s->n && code == CLI_OK; n++) {
        use *u = &s->use[n];
        const int first = first_use(s, n);
        char name[RP_NAME_MAX + 1];
        snprintf(name, sizeof name, "d%s", u->name);
        if (first == n)
            code = add_output(out, name, r->dtype, u->of->ndim, u->of->shape, uses[n] > 1 ? &u->sum : u->to);
        if (code == CLI_OK && uses[first] > 1)
            code = add_output(made, name, RP_F64, u->of->ndim, u->of->shape, u->to);
    }
    return code;
}

/* Sum the gradients of arrays that are used several times. */
static void sum_gradients(gradients *s)
{
    for (int n = s->n - 1; n >= 0; n--) {
        const use *u = &s->use[n], *first = &s->use[first_use(s, n)];
        double *sum = first->to->data;
        const double *x = u->to->data;
        const int64_t size = elements(u->of);
        for (int64_t k = 0; u != first && k < size; k++)
            sum[k] += x[k];
        if (u->sum.data)
            rp_convert(u->sum.data, u->sum.dtype, sum, RP_F64, size);
    }
}

/* -------------------------------------------------------------------------------------------------- tangents */

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Return true for the name of a tangent of this call: t and the name of q, k, v or a learned array. A callback of type
 * io_wanted. */
static bool is_tangent(const void *context, const char *name)
{
    const job *j = context;
    const cli_problem *p = &j->request.problem;
    bool wanted = strcmp(name, "tq") == 0 || strcmp(name, "tk") == 0 || strcmp(name, "tv") == 0;
    for (int32_t m = 0; m < p->desc.n_terms; m++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            wanted |= *p->term_array[m][x] && rp_term_array_learned(p->terms[m].kind, x) && *name == 't' &&
                      strcmp(name + 1, p->term_array[m][x]) == 0;
    return wanted;
}

/* Return true for a name that begins like that of a tangent and is not an array of a term. A callback of type
 * io_wanted. */
static bool may_be_tangent(const void *context, const char *name)
{
    const job *j = context;
    const cli_problem *p = &j->request.problem;
    bool is_array = false;
    for (int32_t m = 0; m < p->desc.n_terms; m++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            is_array |= strcmp(name, p->term_array[m][x]) == 0;
    return is_tangent(j, name) || (*name == 't' && !is_array);
}

/* Read the file of --tangent. If it is not the input, which may have arrays of any name, refuse misspelled tangents. */
static int read_tangents(job *j)
{
    char err[IO_ERR_MAX];
    io_format format;
    const char *path = j->request.tangent;
    if (!path)
        return CLI_OK;
    const bool input = strcmp(j->input, "-") != 0 && same_file(path, j->input);
    if (io_read_wanted(path, input ? is_tangent : may_be_tangent, j, &j->tangent, &format, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    bool any = false;
    const char *other = NULL;
    for (size_t n = 0; n < j->tangent.n_arrays && !input; n++) {
        const char *name = j->tangent.arrays[n].name;
        if (is_tangent(j, name))
            any = true;
        else if (may_be_tangent(j, name))
            other = name;
    }
    if (any && other)
        return cli_error(CLI_FAILED,
                         "--tangent %.200s: %.200s is not a tangent of this call (tangents are tq, tk, tv and t + the "
                         "name of a learned array; rename the array, or remove it)",
                         path, other);
    return CLI_OK;
}

/* View the tangents of the file, and add the tangents of out and lse to the output. An array that the problem uses
 * twice has one tangent. */
static int add_tangents(job *j)
{
    const request *r = &j->request;
    const rp_desc *d = &r->problem.desc;
    rp_tangents *x = &j->tangents;
    use uses[3 + RP_MAX_TERMS * RP_MAX_ARRAYS];
    const int n = list_uses(&r->problem, &j->tensors, (rp_array *[]){&x->q, &x->k, &x->v}, x->term, uses);
    const int64_t shape[4] = {d->batch, d->heads, d->len_q, d->dim_v};
    int found = 0, code = CLI_OK;
    for (int m = 0; m < n && code == CLI_OK; m++) {
        char name[RP_NAME_MAX + 1];
        snprintf(name, sizeof name, "t%s", uses[m].name);
        if (!io_find(&j->tangent, name))
            continue;
        code = cli_array(&j->tangent, name, CLI_KEEP_TYPE, &j->made, uses[m].to);
        found++;
    }
    if (code == CLI_OK && found == 0)
        return cli_error(CLI_FAILED,
                         "--tangent %.200s: it has none of tq, tk, tv and t + the name of a learned array "
                         "(add a tangent with the shape of its array)",
                         r->tangent);
    if (code == CLI_OK)
        code = add_output(&j->out, "out_t", d->dtype, 4, shape, &x->out);
    return code == CLI_OK ? add_output(&j->out, "lse_t", d->dtype, 3, shape, &x->lse) : code;
}

/* ------------------------------------------------------------------------------------------------- the calls */

static int call_failed(const cli_problem *p, rp_status status)
{
    return cli_refused(CLI_FAILED, "attend", p, status == RP_E_NOMEM ? "use fewer threads or shorter sequences" : NULL);
}

static int forward(const cli_problem *p, const rp_plan *plan, rp_tensors *t)
{
    cli_progress progress = {.what = "attend"};
    cli_progress_show(&progress, 0); /* start measuring the time */
    t->progress = cli_progress_show;
    t->progress_context = &progress;
    const rp_status status = rp_attend(plan, t, NULL);
    cli_progress_end(&progress);
    return status == RP_OK ? CLI_OK : call_failed(p, status);
}

static int backward(const cli_problem *p, const rp_plan *plan, const rp_tensors *t, gradients *s)
{
    const rp_array none = {0};
    rp_tensors with = *t;
    cli_progress progress = {.what = "gradients"};
    cli_progress_show(&progress, 0);
    with.weights = with.profile = with.key_mass = with.entropy = none;
    if (p->desc.dtype > RP_F64) /* out and lse were rounded to 16 bits, so compute them again */
        with.out = with.lse = none;
    with.progress_context = &progress;
    const rp_status status = rp_backward(plan, &with, &s->g, NULL);
    cli_progress_end(&progress);
    if (status != RP_OK)
        return call_failed(p, status);
    sum_gradients(s);
    return CLI_OK;
}

static int tangents(const cli_problem *p, const rp_plan *plan, const rp_tensors *t, const rp_tangents *x)
{
    const rp_array none = {0};
    rp_tensors with = *t;
    cli_progress progress = {.what = "tangents"};
    cli_progress_show(&progress, 0);
    with.out = with.lse = with.weights = with.profile = with.key_mass = with.entropy = none;
    with.progress_context = &progress;
    const rp_status status = rp_jvp(plan, &with, x);
    cli_progress_end(&progress);
    return status == RP_OK ? CLI_OK : call_failed(p, status);
}

/* Choose the type of the output and the type of the computation. If inputs of another type are to be written as bf16 or
 * f16, compute in f32, which avoids rounding the inputs first. */
static int choose_types(request *r, const io_set *in, io_format format)
{
    bool stored = true;
    for (int n = 0; n < 3; n++) {
        const io_array *a = io_find(in, (const char[2]){"qkv"[n], 0});
        if (n == 0 && !r->dtype_given)
            r->dtype = a && a->dtype <= RP_BF16 ? a->dtype : RP_F32;
        stored = stored && a && a->dtype == r->dtype;
    }
    if (r->dtype == RP_BF16 && format == IO_NPZ)
        return cli_error(r->dtype_given ? CLI_USAGE : CLI_FAILED,
                         "bf16: .npz does not support this type (write .safetensors, or give --dtype f32)");
    r->problem.desc.dtype = stored || r->dtype <= RP_F64 ? r->dtype : RP_F32;
    return CLI_OK;
}

/* View an array of the file that is read in parts: its type and shape, with the address of nothing. */
static int array_in_parts(const io_set *in, const char *name, rp_array *a)
{
    static const double nothing = 0;
    char err[IO_ERR_MAX];
    const io_array *from = io_take(in, name, err);
    if (!from)
        return cli_error(CLI_FAILED, "%s", err);
    if (from->dtype > RP_BF16)
        return cli_error(CLI_FAILED, "%s: its type is %s (store it as f32, f64, f16 or bf16)", name,
                         rp_dtype_name(from->dtype));
    if (from->ndim > RP_MAX_AXES)
        return cli_error(CLI_FAILED, "%s: has %d axes (reshape it to 4: batch, heads, length, width)", name,
                         (int)from->ndim);
    *a = rp_array_of(&nothing, from->dtype, from->ndim, from->shape);
    return CLI_OK;
}

/* Return the bytes of the arrays of a set that are in memory. */
static int64_t bytes_in_memory(const io_set *set)
{
    int64_t n = 0;
    for (size_t x = 0; x < set->n_arrays; x++)
        n += set->arrays[x].data ? (int64_t)set->arrays[x].bytes : 0;
    return n;
}

/* Return true if the process reads only parts of the file. */
static bool reads_parts(const request *r)
{
    return r->memory || cli_team_ranks() > 1;
}

/* Return true for arrays that are read in parts: keys and values with --memory, and with several processes also
 * queries. A callback of type io_wanted. */
static bool is_in_parts(const void *problem, const char *name)
{
    (void)problem;
    return strcmp(name, "k") == 0 || strcmp(name, "v") == 0 || (cli_team_ranks() > 1 && strcmp(name, "q") == 0);
}

/* Return the first given option whose result needs all keys in one process and in memory, or NULL. */
static const char *needs_all_keys(const request *r)
{
    return r->weights ? "--weights" : r->summary ? "--summary" : r->grad ? "--grad" : r->tangent ? "--tangent" : NULL;
}

/* Check that several processes can compute what the options ask for. */
static int check_team(const request *r, const char *input)
{
    const char *whole = needs_all_keys(r);
    if (cli_team_ranks() == 1)
        return CLI_OK;
    if (whole)
        return cli_error(CLI_USAGE, "%s: several processes cannot compute it (omit it, or omit mpirun)", whole);
    if (r->memory)
        return cli_error(CLI_USAGE, "--memory: each process has a part of the keys in memory (use more processes)");
    if (r->isa && strcmp(r->isa, "reference") == 0)
        return cli_error(CLI_USAGE, "--isa reference: it computes all rows in one process (choose another)");
    if (strcmp(input, "-") == 0)
        return cli_error(CLI_USAGE, "attend: several processes cannot read standard input (give a .safetensors file)");
    return CLI_OK;
}

/* View q, k, v and the gradients of the outputs. */
static int view_inputs(job *j)
{
    const request *r = &j->request;
    gradients *s = &j->gradients;
    const rp_dtype type = r->problem.desc.dtype;
    const struct {
        const char *name;
        rp_dtype type;
        rp_array *a;
        bool wanted;
    } inputs[] = {{"q", type, &j->tensors.q, true},
                  {"k", type, &j->tensors.k, true},
                  {"v", type, &j->tensors.v, true},
                  {"dout", CLI_KEEP_TYPE, &s->g.dout, r->grad},
                  {"dlse", CLI_KEEP_TYPE, &s->g.dlse, r->grad && io_find(&j->in, "dlse")}};
    if (r->grad && !io_find(&j->in, "dout"))
        return cli_error(CLI_FAILED,
                         "--grad: array \"dout\" is not in the file (add the gradient of out, with its shape)");
    for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++) {
        int code = CLI_OK;
        if (inputs[n].wanted && is_in_parts(NULL, inputs[n].name) && reads_parts(r))
            code = array_in_parts(&j->in, inputs[n].name, inputs[n].a);
        else if (inputs[n].wanted)
            code = cli_array(&j->in, inputs[n].name, inputs[n].type, &j->made, inputs[n].a);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

/* Add the arrays that this process computes to `out`, and those that only the gradients need to `made`. */
static int add_outputs(job *j)
{
    const request *r = &j->request;
    const rp_desc *d = &r->problem.desc;
    const int64_t B = d->batch, H = d->heads, Lq = d->len_q, Lk = d->len_k;
    rp_tensors *t = &j->tensors;
    const struct {
        io_set *to;
        bool wanted;
        const char *name;
        int32_t ndim;
        int64_t shape[4];
        rp_array *a;
    } outputs[] = {
        {&j->out, true, "out", 4, {B, H, Lq, d->dim_v}, &t->out},
        {&j->out, r->weights, "weights", 4, {B, H, Lq, Lk}, &t->weights},
        {r->lse ? &j->out : &j->made, r->lse || r->grad, "lse", 3, {B, H, Lq}, &t->lse},
        {&j->out, r->summary, "profile", 3, {B, H, Lq + Lk > 0 ? Lq + Lk - 1 : 0}, &t->profile},
        {&j->out, r->summary, "key_mass", 3, {B, H, Lk}, &t->key_mass},
        {&j->out, r->summary, "entropy", 3, {B, H, Lq}, &t->entropy},
    };
    for (size_t n = 0; n < sizeof outputs / sizeof *outputs && cli_team_ranks() == 1; n++) {
        int code = CLI_OK;
        if (outputs[n].wanted)
            code =
                add_output(outputs[n].to, outputs[n].name, d->dtype, outputs[n].ndim, outputs[n].shape, outputs[n].a);
        if (code != CLI_OK)
            return code;
    }
    const int code = r->tangent ? add_tangents(j) : CLI_OK;
    return r->grad && code == CLI_OK ? add_gradients(r, t, &j->made, &j->out, &j->gradients) : code;
}

static int make_plan(job *j)
{
    request *r = &j->request;
    r->problem.desc.isa = r->isa;
    return rp_plan_create(&j->plan, &r->problem.desc) == RP_OK ? CLI_OK
                                                               : cli_refused(CLI_FAILED, "attend", &r->problem, NULL);
}

static int make_pool(job *j)
{
    request *r = &j->request;
    if (!r->threads)
        r->threads = cli_team_threads();
    if (r->threads && rp_pool_create(&j->pool, (int32_t)r->threads) != RP_OK)
        return cli_refused(CLI_FAILED, "attend", &r->problem, "use fewer --threads");
    j->tensors.pool = j->pool;
    return CLI_OK;
}

/* Compute out and lse, with all keys in memory or not, in one process or several. */
static int compute(job *j)
{
    const request *r = &j->request;
    if (cli_team_ranks() > 1)
        return cli_attend_ranks(&r->problem, &j->in, r->out, j->format, r->dtype, r->lse, &j->tensors);
    if (r->memory) {
        const int64_t used = bytes_in_memory(&j->in) + bytes_in_memory(&j->made) + bytes_in_memory(&j->out);
        return cli_attend_ranges(&r->problem, j->plan, &j->in, r->memory, used, &j->tensors);
    }
    return forward(&r->problem, j->plan, &j->tensors);
}

static int compute_with_derivatives(job *j)
{
    request *r = &j->request;
    int code;
    j->tensors = rp_tensors_init();
    j->gradients.g = rp_grads_init();
    j->tangents = rp_tangents_init();
    if ((code = choose_types(r, &j->in, j->format)) != CLI_OK || (code = view_inputs(j)) != CLI_OK ||
        (code = read_sizes(&r->problem, &j->tensors)) != CLI_OK ||
        (code = cli_problem_arrays(&r->problem, &j->in, true, &j->tensors)) != CLI_OK ||
        (code = make_plan(j)) != CLI_OK || (code = add_outputs(j)) != CLI_OK || (code = make_pool(j)) != CLI_OK ||
        (code = compute(j)) != CLI_OK)
        return code;
    if (r->tangent && (code = tangents(&r->problem, j->plan, &j->tensors, &j->tangents)) != CLI_OK)
        return code;
    if (r->grad && (code = backward(&r->problem, j->plan, &j->tensors, &j->gradients)) != CLI_OK)
        return code;
    return cli_narrow(&j->out, r->dtype);
}

/* Check what the options say about files, memory and processes, before anything is read. */
static int check_request(const job *j, int n_args)
{
    const request *r = &j->request;
    const int code = cli_problem_check(&r->problem, "attend");
    if (code != CLI_OK)
        return code;
    if (n_args == 0)
        return cli_error(CLI_USAGE, "attend: no input file was given (write relpos attend IN -o OUT)");
    if (!r->out)
        return cli_error(CLI_USAGE, "attend: no output file was given (write relpos attend IN -o OUT)");
    if (strcmp(r->out, "-") != 0 && io_format_of(r->out) == IO_UNKNOWN)
        return cli_error(CLI_USAGE, "output \"%.200s\": the suffix is unknown (use .npz or .safetensors)", r->out);
    if (strcmp(j->input, "-") != 0 && same_file(j->input, r->out))
        return cli_error(CLI_USAGE, "output \"%.200s\": it is the input file (choose another)", r->out);
    if (r->memory && needs_all_keys(r))
        return cli_error(CLI_USAGE, "--memory: %s needs all keys in memory (omit one of them)", needs_all_keys(r));
    if (r->tangent && strcmp(r->tangent, "-") == 0)
        return cli_error(CLI_USAGE, "--tangent: tangents cannot be read from standard input (give a file)");
    if (r->tangent && same_file(r->tangent, r->out))
        return cli_error(CLI_USAGE, "output \"%.200s\": it is the file of --tangent (choose another)", r->out);
    if (r->memory && strcmp(j->input, "-") == 0)
        return cli_error(CLI_USAGE, "--memory: standard input cannot be read in parts (give a .safetensors file)");
    return check_team(r, j->input);
}

static int read_input(job *j)
{
    request *r = &j->request;
    char err[IO_ERR_MAX], place[PATH_MAX];
    const char *path = cli_find_shipped(j->input, place);
    const int failed = reads_parts(r) ? io_read_parts(path, cli_problem_wants, is_in_parts, &r->problem, &j->in, err)
                                      : io_read_wanted(path, cli_problem_wants, &r->problem, &j->in, &j->format, err);
    if (failed)
        return cli_error(CLI_FAILED, "%s", err);
    if (reads_parts(r))
        j->format = IO_SAFETENSORS;
    if (strcmp(r->out, "-") != 0)
        j->format = io_format_of(r->out);
    return CLI_OK;
}

static int write_output(const job *j)
{
    char err[IO_ERR_MAX];
    if (cli_team_ranks() == 1 && io_write(j->request.out, j->format, &j->out, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    return CLI_OK;
}

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    job *j = calloc(1, sizeof *j);
    int n_args;
    if (!j)
        return cli_error(CLI_FAILED, "attend: out of memory while preparing the arrays (close other programs)");
    cli_problem_init(&j->request.problem);
    int code = cli_options(self, argc, argv, on_option, &j->request, &j->input, 1, &n_args);
    if (code < 0 && (code = check_request(j, n_args)) == CLI_OK && (code = read_input(j)) == CLI_OK &&
        (code = read_tangents(j)) == CLI_OK && (code = compute_with_derivatives(j)) == CLI_OK)
        code = write_output(j);
    rp_pool_destroy(j->pool);
    rp_plan_destroy(j->plan);
    io_free(&j->in);
    io_free(&j->made);
    io_free(&j->out);
    io_free(&j->tangent);
    free(j);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command cmd_attend = {
    .name = "attend",
    .summary = "compute attention over the arrays q, k, v of a file",
    .usage = "IN -o OUT [options]      IN and OUT: .npz or .safetensors; - = standard input, output",
    .example = "  relpos attend in.npz -o out.npz --bias t5,table=rel_bias,buckets=32 --scale 1 --weights\n"
               "  relpos attend in.npz -o out.npz --rope dim=64,base=500000 --bias alibi --causal --q-offset 512\n"
               "  relpos attend in.npz -o out.npz --bias fire,w1=w1,b1=b1,w2=w2,b2=b2,c=1,L=64 --sink sink --grad\n",
    .options = options,
    .shared = true,
    .run = run,
};
