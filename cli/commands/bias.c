/* bias.c -- relpos bias: show the biases of position terms as text, a picture, an array or a table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/picture/picture.h"
#include "cli/support/sample_problem.h"
#include "cli/support/sample_arrays.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { OUT = 'o', LEN_Q = CLI_FIRST_KEY, LEN_K, HEADS, HEAD, INPUT, JSON };
enum { PANELS = 8 };                                /* max heads in a picture */
static const int64_t MAX_VALUES = (int64_t)1 << 27; /* 1 GiB of doubles */

static const cli_option options[] = {
    {"q", LEN_Q, "N", "set the number of queries; default: from the term's array or grid, else 64"},
    {"k", LEN_K, "N", "set the number of keys; default: from the term's array or grid, else 64"},
    {"heads", HEADS, "H", "set the number of heads; default: from the term's array, 8 for alibi without one, else 1"},
    {"output", OUT, "FILE",
     "write a picture of up to 8 heads (.png, .svg), the array bias (H,q,k) (.npz, .safetensors) or .csv; - = csv"},
    {"head", HEAD, "N", "show only head N, counted from 0; default: head 0 in text, up to 8 heads in pictures"},
    {"q-offset", CLI_Q_OFFSET, "N|NAME",
     "set the position of the first query, or name an array that begins with it; default 0"},
    {"input", INPUT, "FILE", "read the arrays of the terms from FILE, .npz or .safetensors"},
    {"json", JSON, NULL, "print one JSON object instead of text; NaN and infinity are null"},
    {0},
};

typedef struct request {
    cli_problem problem;
    const char *out, *input;
    char title[256];
    const char *value; /* label of the values: "bias", or what sample values of a table mean */
    int64_t head;      /* -1: not given */
    bool json, heads_given;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    rp_desc *d = &r->problem.desc;
    switch (key) {
    case OUT: r->out = value; return CLI_OK;
    case LEN_Q: return cli_integer("--q", value, 1, MAX_VALUES, &d->len_q);
    case LEN_K: return cli_integer("--k", value, 1, MAX_VALUES, &d->len_k);
    case HEADS: r->heads_given = true; return cli_integer("--heads", value, 1, MAX_VALUES, &d->heads);
    case HEAD: return cli_integer("--head", value, 0, MAX_VALUES, &r->head);
    case INPUT: r->input = value; return CLI_OK;
    case JSON: r->json = true; return CLI_OK;
    default: return cli_problem_option(&r->problem, key, value);
    }
}

/* Parse an argument as a term and add it. Refuse terms that act on q, k or v, because they have no bias to show. */
static int add_term(request *r, const char *text)
{
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
        const char *name = rp_term_name((rp_term_kind)k);
        if (!rp_term_is_bias((rp_term_kind)k) && strcspn(text, ",") == strlen(name) &&
            strncmp(text, name, strlen(name)) == 0)
            return cli_error(CLI_USAGE, "%s is not a bias: its effect depends on q, k or v (use relpos explain --%s)",
                             name, name);
    }
    const int32_t n = r->problem.desc.n_terms;
    const int code = cli_problem_option(&r->problem, CLI_BIAS, text);
    const size_t used = strlen(r->title);
    if (code == CLI_OK)
        snprintf(r->title + used, sizeof r->title - used, "%s%s", used ? " + " : "", r->problem.term_text[n]);
    return code;
}

/* Fill a missing array with sample values, and say so on standard error. Return CLI_OK, or an exit code after
 * printing. */
static int make_sample(request *r, int32_t term, int index, io_set *made, rp_array *a)
{
    const rp_term *t = &r->problem.terms[term];
    const char *name = rp_term_name(t->kind), *array = rp_term_array(t->kind, index);
    const char *meaning = sample_meaning(t, index);
    if (rp_term_is_array(t->kind))
        return cli_error(CLI_USAGE, "%s: its array %s was not given (give --input FILE and %s=ARRAYNAME)", name, array,
                         array);
    const rp_status status = sample_array(&r->problem.desc, term, index, MAX_VALUES, a);
    if (status != RP_OK && status != RP_E_NOMEM)
        return cli_refused(CLI_USAGE, "bias", &r->problem, NULL);
    if (status != RP_OK || io_add(made, array, a->dtype, a->ndim, a->shape, a->data, false) != 0) {
        free(a->data);
        return cli_error(CLI_FAILED, "%s: out of memory while creating its array %s (use smaller sizes)", name, array);
    }
    if (meaning)
        r->value = meaning;
    fprintf(stderr, "relpos: %s: no %s was given; the biases use %s numbers\n", name, array,
            meaning ? meaning : "random");
    return CLI_OK;
}

/* Set *length, which is a size in the description, to the length of the axis of an array that grows with this size,
 * times the number of batch entries that share an element.
 * Leave it unchanged if the array has no such axis, or if the axis is shorter than min_length (an axis of length 1 may
 * be broadcast). */
static void take_length(rp_desc *d, int32_t term, int32_t index, const rp_array *a, int64_t *length, int64_t min_length)
{
    int64_t shape[2][RP_MAX_AXES] = {{0}};
    const int64_t old = *length, many = (int64_t)1 << 30;
    int32_t ndim = 0;
    for (int grown = 0; grown < 2; grown++) {
        *length = grown ? many : 1;
        if (rp_term_shape(d, term, index, &ndim, shape[grown]) != RP_OK)
            ndim = 0; /* creating the plan reports the error */
    }
    *length = old;
    for (int32_t x = 0; x < ndim; x++) {
        const int32_t axis = a->ndim - ndim + x; /* arrays with fewer axes are aligned at the last axis */
        const int64_t given = axis >= 0 ? a->shape[axis] : 1, grown = shape[1][x],
                      share = grown > 0 && grown < many ? many / grown : 1;
        if (shape[0][x] < grown && ((axis >= 0 && given >= min_length) || share > 1))
            *length = given * share;
    }
}

/* Find the arrays of the terms, and fill missing ones with samples. Derive sizes from the arrays, or use defaults. Only
 * batch entry 0 is shown. Return CLI_OK, or an exit code after printing. */
static int find_arrays(request *r, const io_set *in, io_set *made, rp_tensors *t)
{
    cli_problem *p = &r->problem;
    rp_desc *d = &p->desc;
    const bool q_given = d->len_q, k_given = d->len_k;
    const int64_t usual = cli_grid(p) ? cli_grid(p) : 64;
    int code = r->input ? cli_problem_arrays(p, in, false, t) : cli_problem_no_file(p, false);
    if (code == CLI_OK)
        code = cli_take_offset(p, t, 0);
    d->len_q = q_given ? d->len_q : usual;
    d->len_k = k_given ? d->len_k : usual;
    if (!r->heads_given && cli_many_heads(p))
        d->heads = 8;
    for (int32_t n = 0; n < d->n_terms; n++)
        rp_term_usual_sizes(&p->terms[n], d->len_k);
    for (int32_t n = 0; n < d->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            const rp_array *a = &t->term[n][x];
            if (!a->data)
                continue;
            take_length(d, n, x, a, &d->batch, 2);
            if (!r->heads_given)
                take_length(d, n, x, a, &d->heads, 2);
            if (!q_given)
                take_length(d, n, x, a, &d->len_q, 1);
            if (!k_given)
                take_length(d, n, x, a, &d->len_k, 1);
        }
    for (int32_t n = 0; n < d->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(p->terms[n].kind, x); x++) {
            if (code == CLI_OK && !t->term[n][x].data && sample_needed(d, n, x))
                code = make_sample(r, n, x, made, &t->term[n][x]);
        }
    if (code != CLI_OK)
        return code;
    if (r->head >= d->heads)
        return cli_out_of_range("--head", r->head, 0, d->heads - 1);
    int64_t size;
    if (__builtin_mul_overflow(d->heads, d->len_q, &size) || __builtin_mul_overflow(size, d->len_k, &size) ||
        size > MAX_VALUES)
        return cli_error(CLI_USAGE, "bias: %lld x %lld x %lld values are more than %lld (reduce --heads, --q or --k)",
                         (long long)d->heads, (long long)d->len_q, (long long)d->len_k, (long long)MAX_VALUES);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------- output */

static void print_json(const request *r, const double *bias)
{
    const rp_desc *d = &r->problem.desc;
    fputs("{\"bias_of\": ", stdout);
    cli_json_string(stdout, r->title);
    printf(", \"heads\": %lld, \"q\": %lld, \"k\": %lld, \"q_offset\": %lld, \"bias\": [", (long long)d->heads,
           (long long)d->len_q, (long long)d->len_k, (long long)d->q_offset);
    for (int64_t h = 0; h < d->heads; h++)
        for (int64_t i = 0; i < d->len_q; i++)
            for (int64_t j = 0; j < d->len_k; j++) {
                fputs(j ? ", " : i ? "], [" : h ? "]], [[" : "[[", stdout);
                cli_json_number(stdout, "%.17g", *bias++);
            }
    puts("]]]}");
}

static int write_csv(const request *r, const double *bias)
{
    const rp_desc *d = &r->problem.desc;
    char *text = NULL, err[IO_ERR_MAX];
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to)
        fputs("head,query,key,bias\n", to);
    for (int64_t h = 0; to && h < d->heads; h++)
        for (int64_t i = 0; i < d->len_q; i++)
            for (int64_t j = 0; j < d->len_k; j++)
                fprintf(to, "%lld,%lld,%lld,%.17g\n", (long long)h, (long long)i, (long long)j, *bias++);
    int code = to && cli_close_text(to, &text)
                   ? CLI_OK
                   : cli_error(CLI_FAILED, "csv: out of memory while writing (reduce --heads, --q or --k)");
    if (code == CLI_OK && io_write_bytes(r->out, text, size, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    free(text);
    return code;
}

/* Write the biases as f32, which they are unless JSON needs them in double. */
static int write_array(const request *r, const rp_array *bias)
{
    const size_t n = (size_t)(bias->shape[0] * bias->shape[1] * bias->shape[2]);
    char err[IO_ERR_MAX];
    io_set set = {0};
    float *narrow = bias->dtype == RP_F32 ? bias->data : malloc(n * sizeof *narrow);
    int code = CLI_OK;
    if (narrow && narrow != bias->data)
        rp_convert(narrow, RP_F32, bias->data, RP_F64, n);
    if (!narrow || io_add(&set, "bias", RP_F32, 3, bias->shape, narrow, true) != 0)
        code = cli_error(CLI_FAILED, "bias: out of memory while writing the biases (reduce --heads, --q or --k)");
    else if (io_write(r->out, io_format_of(r->out), &set, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    io_free(&set);
    if (narrow != bias->data)
        free(narrow);
    return code;
}

/* Draw one head, or the first eight: in the terminal if `suffix` is NULL, otherwise to the picture file r->out. */
static int draw(const request *r, const double *bias, const char *suffix)
{
    const rp_desc *d = &r->problem.desc;
    const int64_t one = d->len_q * d->len_k, first = r->head >= 0 ? r->head : 0;
    const int64_t n = r->head >= 0 || !suffix ? 1 : d->heads < PANELS ? d->heads : PANELS;
    pic_panel panel[PANELS];
    char name[PANELS][48], title[320], err[IO_ERR_MAX];
    bool below = false, above = false;
    for (int64_t x = 0; x < n * one; x++) {
        below |= isfinite(bias[first * one + x]) && bias[first * one + x] < 0;
        above |= isfinite(bias[first * one + x]) && bias[first * one + x] > 0;
    }
    for (int64_t x = 0; x < n; x++) {
        snprintf(name[x], sizeof *name, "head %lld of %lld", (long long)(first + x), (long long)d->heads);
        panel[x] = (pic_panel){.value = bias + (first + x) * one,
                               .rows = d->len_q,
                               .cols = d->len_k,
                               .title = d->heads > 1 ? name[x] : NULL};
    }
    snprintf(title, sizeof title, "%s of %s%s", r->value, r->title,
             n < d->heads && n == PANELS ? " (the first 8 heads)" : "");
    const pic_map map = {.panels = panel,
                         .n_panels = (int)n,
                         .title = title,
                         .col_label = "key",
                         .row_label = d->q_offset ? "query position" : "query",
                         .value_label = r->value,
                         .row0 = d->q_offset,
                         .diverging = below && above};
    if (!suffix) {
        pic_text(stdout, &map, cli_width(), cli_colour(stdout));
        return CLI_OK;
    }
    if (n < d->heads && r->head < 0)
        fprintf(stderr, "relpos: %s: shows the first %d of %lld heads (--head N draws another)\n", suffix, PANELS,
                (long long)d->heads);
    unsigned char *data = NULL;
    size_t size = 0;
    int code = CLI_OK;
    if ((strcasecmp(suffix, ".png") == 0 ? pic_png : pic_svg)(&map, &data, &size, err) != 0)
        return cli_error(CLI_FAILED, "picture: %s (reduce --q or --k, or give --head N)", err);
    if (io_write_bytes(r->out, data, size, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    free(data);
    return code;
}

static int show(request *r, const io_set *in, io_set *made, const char *suffix)
{
    rp_desc *d = &r->problem.desc;
    rp_tensors t = rp_tensors_init();
    rp_plan *plan = NULL;
    rp_status status;
    int code = find_arrays(r, in, made, &t);
    if (code != CLI_OK)
        return code;
    const int64_t shape[3] = {d->heads, d->len_q, d->len_k};
    const bool array = r->out && io_format_of(r->out) != IO_UNKNOWN;
    const rp_dtype dtype = array && !r->json ? RP_F32 : RP_F64;
    void *bias = malloc((size_t)(d->heads * d->len_q * d->len_k) * rp_dtype_size(dtype));
    const rp_array to = rp_array_of(bias, dtype, 3, shape);
    if (!bias)
        code = cli_error(CLI_FAILED, "bias: out of memory while computing the biases (reduce --heads, --q or --k)");
    else if ((status = rp_plan_create(&plan, d)) != RP_OK)
        code = cli_refused(cli_code(status), "bias", &r->problem, status == RP_E_NOMEM ? "use smaller sizes" : NULL);
    else if ((status = rp_bias(plan, &t, 0, &to)) != RP_OK)
        code = cli_refused(CLI_FAILED, "bias", &r->problem, status == RP_E_NOMEM ? "use smaller sizes" : NULL);
    else if (!r->out)
        code = r->json ? CLI_OK : draw(r, bias, NULL);
    else if (strcasecmp(suffix, ".csv") == 0)
        code = write_csv(r, bias);
    else if (array)
        code = write_array(r, &to);
    else
        code = draw(r, bias, suffix);
    if (code == CLI_OK && r->json)
        print_json(r, bias);
    rp_plan_destroy(plan);
    free(bias);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    request *r = calloc(1, sizeof *r);
    const char *args[RP_MAX_TERMS], *suffix = NULL;
    io_set in = {0}, made = {0};
    char err[IO_ERR_MAX], safe[256], place[PATH_MAX];
    int n_args;
    if (!r)
        return cli_error(CLI_FAILED, "bias: out of memory while reading the terms (close other programs)");
    cli_problem_init(&r->problem);
    r->problem.bare = true;
    r->problem.desc.dtype = RP_F64;
    r->problem.desc.batch = 1;
    r->head = -1;
    r->value = "bias";
    int code = cli_options(self, argc, argv, on_option, r, args, RP_MAX_TERMS, &n_args);
    if (code < 0 && n_args == 0)
        code = cli_error(CLI_USAGE, "bias: no term was given (write relpos bias alibi; relpos info lists the terms)");
    for (int n = 0; code < 0 && n < n_args; n++) {
        const int added = add_term(r, args[n]);
        code = added == CLI_OK ? -1 : added;
    }
    if (code < 0 && r->out) {
        suffix = strcmp(r->out, "-") == 0 ? ".csv" : strrchr(r->out, '.') ? strrchr(r->out, '.') : "";
        if (io_format_of(r->out) == IO_UNKNOWN && strcasecmp(suffix, ".png") != 0 && strcasecmp(suffix, ".svg") != 0 &&
            strcasecmp(suffix, ".csv") != 0)
            code = cli_error(CLI_USAGE,
                             "output \"%s\": the suffix is unknown (use .png, .svg, .npz, .safetensors or .csv)",
                             io_safe(safe, sizeof safe, r->out));
    }
    if (code < 0 && r->json && r->out && strcmp(r->out, "-") == 0)
        code = cli_error(CLI_USAGE, "--json: -o - also writes to standard output (give only one of them)");
    if (code < 0 && r->input &&
        io_read_wanted(cli_find_shipped(r->input, place), cli_problem_wants, &r->problem, &in, NULL, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    if (code < 0)
        code = show(r, &in, &made, suffix);
    io_free(&in);
    io_free(&made);
    free(r);
    return code;
}

const cli_command cmd_bias = {
    .name = "bias",
    .summary = "draw the biases that position terms add to the scores",
    .usage = "TERM[,key=value...]... [options]      several terms are summed; relpos info lists the terms",
    .example = "  relpos bias log,lambda=0.3 --q 8 --k 8\n"
               "  relpos bias t5,buckets=32,max_distance=128 --q 128 --k 128\n"
               "  relpos bias alibi --q 64 --k 64 -o alibi.png\n",
    .options = options,
    .run = run,
};
