/* cmd_explain.c -- relpos explain: one query, step by step: raw, scaled and biased scores, weights, output.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY = CLI_OWN, HEAD, BATCH, INPUT, ALL, NO_BIAS, JSON };
enum { FEW = 8, TOP = 12, WIDTH = 8, TOKEN_MAX = 64 }; /* keys in a table across; keys listed; channels of a made-up word */

static const cli_option options[] = {
    {"query", QUERY, "N", "the query to follow, from 0; default 0"},
    {"no-bias", NO_BIAS, NULL, "no position term at all; without this and without any term: --bias log,lambda=0.3"},
    CLI_TERM_OPTIONS,
    CLI_MASK_OPTIONS,
    CLI_SETTING_OPTIONS,
    {"input", INPUT, "FILE", "q, k, v and named arrays from .npz or .safetensors (metadata \"tokens\": their names)"},
    {"head", HEAD, "N", "head of the file, from 0; default 0"},
    {"batch", BATCH, "N", "batch entry of the file, from 0; default 0"},
    {"all", ALL, NULL, "every key, in its place, not only the 12 heaviest"},
    {"json", JSON, NULL, "one JSON object; -infinity is null"},
    {0},
};

typedef struct request {
    cli_problem problem;
    const char *input;
    int64_t query, head, batch;
    bool all, no_bias, json;
} request;

/* The numbers that are explained, and who owns them. */
typedef struct source {
    rp_tensors t;
    char (*token)[TOKEN_MAX]; /* [Lk], safe to print */
    const char *note; /* said first; "" for none */
    io_set in, made;
    double *memory;
} source;

/* One row; plain is that of attention without position terms. Freed as raw. */
typedef struct trace {
    rp_row row;
    double *plain, *difference;
} trace;

static int no_memory(void)
{
    return cli_error(CLI_FAILED, "explain: no memory (fewer keys)");
}

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case QUERY: return cli_integer("--query", value, 0, INT64_MAX, &r->query);
    case HEAD: return cli_integer("--head", value, 0, INT64_MAX, &r->head);
    case BATCH: return cli_integer("--batch", value, 0, INT64_MAX, &r->batch);
    case INPUT: r->input = value; return CLI_OK;
    case ALL: r->all = true; return CLI_OK;
    case NO_BIAS: r->no_bias = true; return CLI_OK;
    case JSON: r->json = true; return CLI_OK;
    default: return cli_problem_option(&r->problem, key, value);
    }
}

/* ------------------------------------------------------------------------------------------------- where numbers come from */

/* One query, key and value width D for each of n words. A head axis of stride 0: every head sees the same numbers, so that
 * ALiBi has its usual eight slopes. */
static void describe(request *r, source *s, const double *q, const double *k, const double *v, int64_t n, int64_t D)
{
    rp_desc *d = &r->problem.desc;
    d->batch = d->heads = 1;
    for (int32_t x = 0; x < d->n_terms; x++)
        if (d->terms[x].kind == RP_TERM_ALIBI)
            d->heads = 8;
    d->len_q = d->len_k = n;
    d->dim_k = d->dim_v = D;
    const int64_t shape[4] = {1, d->heads, n, D};
    s->t.q = rp_array_of(q, RP_F64, 4, shape);
    s->t.k = rp_array_of(k, RP_F64, 4, shape);
    s->t.v = rp_array_of(v, RP_F64, 4, shape);
    s->t.q.stride[1] = s->t.k.stride[1] = s->t.v.stride[1] = 0;
}

/* The five words of the course chapter on relative position bias. */
static int from_example(request *r, source *s)
{
    static const double q[5][4] = {{1, 0, 1, 0}, {0, 2, 0, 1}, {1, 1, 1, 0}, {0, 0, 1, 1}, {1, 0, 0, 1}};
    static const double k[5][4] = {{0, 1, 0, 1}, {1, 0, 1, 0}, {1, 1, 0, 0}, {0, 0, 1, 1}, {1, 0, 0.5, 0.5}};
    static const double v[5][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {0.5, 0.5, 0.5, 0.5}};
    static const char *const words[5] = {"The", "cat", "sat", "on", "mat"};
    s->token = calloc(5, sizeof *s->token);
    if (!s->token)
        return no_memory();
    for (int n = 0; n < 5; n++)
        snprintf(s->token[n], TOKEN_MAX, "%s", words[n]);
    describe(r, s, q[0], k[0], v[0], 5, 4);
    return CLI_OK;
}

/* A number in (-1, 1) that depends on seed and place alone. splitmix64: Steele, Lea, Flood 2014. */
static double random_at(uint64_t seed, uint64_t place)
{
    uint64_t z = seed + (place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ldexp((double)((z ^ z >> 31) >> 12) + 0.5, -51) - 1.0;
}

/* A word of `length` bytes: its letters give WIDTH numbers (FNV-1a seeds them), and three fixed matrices turn those into
 * its q, k and v. */
static void embed(const char *word, size_t length, double *q, double *k, double *v)
{
    uint64_t hash = 0xcbf29ce484222325u;
    double *const to[3] = {q, k, v};
    for (size_t c = 0; c < length; c++)
        hash = (hash ^ (unsigned char)word[c]) * 0x100000001b3u;
    for (uint64_t m = 0; m < 3; m++)
        for (uint64_t row = 0; row < WIDTH; row++) {
            to[m][row] = 0;
            for (uint64_t c = 0; c < WIDTH; c++)
                to[m][row] += random_at(m + 1, row * WIDTH + c) * random_at(hash, c);
        }
}

/* The words of a text; with s->token and s->memory there, their names and numbers too. */
static int64_t words_of(const char *text, int64_t at, int64_t total, source *s)
{
    for (;;) {
        while (isspace((unsigned char)*text))
            text++;
        if (!*text)
            return at;
        const char *end = text;
        while (*end && !isspace((unsigned char)*end))
            end++;
        if (s->memory) {
            double *q = s->memory + at * WIDTH;
            char word[TOKEN_MAX + 1];
            snprintf(word, sizeof word, "%.*s", (int)(end - text < TOKEN_MAX ? end - text : TOKEN_MAX), text);
            io_safe(s->token[at], TOKEN_MAX, word);
            embed(text, (size_t)(end - text), q, q + total * WIDTH, q + 2 * total * WIDTH);
        }
        at++;
        text = end;
    }
}

static int from_sentence(request *r, source *s, const char **args, int n_args)
{
    char *piped = NULL;
    size_t room = 0;
    int64_t n = 0;
    if (n_args == 1 && strcmp(args[0], "-") == 0) {
        if (getdelim(&piped, &room, 0, stdin) < 0 && ferror(stdin)) {
            free(piped);
            return cli_error(CLI_FAILED, "standard input: cannot be read (give the sentence as an argument)");
        }
        if (piped)
            args[0] = piped;
    }
    for (int a = 0; a < n_args; a++)
        n = words_of(args[a], n, 0, s);
    int code = n ? CLI_OK : cli_error(CLI_USAGE, "explain: the sentence has no words (relpos explain \"the cat sat\")");
    s->token = calloc((size_t)n + 1, sizeof *s->token);
    s->memory = malloc(((size_t)n + 1) * 3 * WIDTH * sizeof *s->memory);
    if (code == CLI_OK && (!s->token || !s->memory))
        code = no_memory();
    if (code == CLI_OK) {
        int64_t at = 0;
        for (int a = 0; a < n_args; a++)
            at = words_of(args[a], at, n, s);
        s->note = "q, k and v are made from the letters of each word; they carry no meaning, only the arithmetic is real.\n";
        describe(r, s, s->memory, s->memory + n * WIDTH, s->memory + 2 * n * WIDTH, n, WIDTH);
    }
    free(piped);
    return code;
}

/* Names from the metadata where they fit, else numbers. */
static int file_tokens(source *s, int64_t n)
{
    const char *text = io_meta(&s->in, "tokens");
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    const bool fits = json_is_array(list) && (int64_t)json_array_size(list) == n;
    s->token = calloc((size_t)n + 1, sizeof *s->token);
    for (int64_t j = 0; s->token && j < n; j++) {
        const char *name = fits ? json_string_value(json_array_get(list, (size_t)j)) : NULL;
        if (name)
            io_safe(s->token[j], TOKEN_MAX, name);
        else
            snprintf(s->token[j], TOKEN_MAX, "%lld", (long long)j);
    }
    json_decref(list);
    return s->token ? CLI_OK : no_memory();
}

static int from_file(request *r, source *s)
{
    rp_desc *d = &r->problem.desc;
    rp_array *const arrays[3] = {&s->t.q, &s->t.k, &s->t.v};
    char err[IO_ERR_MAX];
    if (io_read(r->input, &s->in, NULL, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    for (int n = 0; n < 3; n++) {
        const char name[2] = {"qkv"[n], 0};
        const int code = cli_array(&s->in, name, RP_F64, &s->made, arrays[n]);
        if (code != CLI_OK)
            return code;
        if (arrays[n]->ndim != 4)
            return cli_error(CLI_FAILED, "%s: %d axes (4 are needed: batch, heads, length, width)", name, (int)arrays[n]->ndim);
        for (int x = 0; x < 4; x++)
            if (arrays[n]->shape[x] == 0)
                return cli_error(CLI_FAILED, "%s: an axis of length 0 (there is nothing to explain)", name);
    }
    d->batch = s->t.q.shape[0], d->heads = s->t.q.shape[1], d->kv_heads = s->t.k.shape[1];
    d->len_q = s->t.q.shape[2], d->len_k = s->t.k.shape[2];
    d->dim_k = s->t.q.shape[3], d->dim_v = s->t.v.shape[3];
    const int code = cli_problem_arrays(&r->problem, &s->in, RP_F64, &s->made, &s->t);
    return code == CLI_OK ? file_tokens(s, d->len_k) : code;
}

/* Without a file no term or mask may need an array. */
static int check_no_arrays(const cli_problem *p)
{
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_term_kind kind = p->terms[n].kind;
        if (*p->term_array[n][0] || (rp_term_array(kind, 0) && kind != RP_TERM_ALIBI)) /* ALiBi has slopes of its own */
            return cli_error(CLI_USAGE, "%s: its array %s comes from a file (needs --input FILE, and %s=ARRAYNAME)",
                             rp_term_name(kind), rp_term_array(kind, 0), rp_term_array(kind, 0));
    }
    for (int32_t n = 0; n < p->desc.n_masks; n++)
        if (*p->mask_array[n])
            return cli_error(CLI_USAGE, "--%s: its array comes from a file (needs --input FILE)",
                             p->masks[n].kind == RP_MASK_KEYS ? "key-mask" : rp_mask_name(p->masks[n].kind));
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------- the numbers */

static int attend_row(const rp_desc *d, const rp_tensors *t, int64_t b, int64_t h, int64_t i, rp_row *row)
{
    rp_plan *plan = NULL;
    const rp_status status = rp_plan_create(&plan, d) == RP_OK ? rp_attend_row(plan, t, b, h, i, row) : RP_E_ARG;
    rp_plan_destroy(plan);
    return status == RP_OK ? CLI_OK : cli_error(CLI_FAILED, "explain: %s (relpos explain --help)", rp_last_error());
}

/* Scores, masks and settings stay; every position term goes. */
static rp_desc without_terms(const rp_desc *d)
{
    rp_desc plain = *d;
    plain.n_terms = 0;
    return plain;
}

static int look(const request *r, const source *s, int64_t query, trace *t)
{
    const rp_desc *d = &r->problem.desc, plain = without_terms(d);
    const int64_t n = d->len_k;
    double *at = calloc((size_t)(7 * n + d->dim_v), sizeof *at);
    if (!at)
        return no_memory();
    *t = (trace){.row = {.raw = at, .scaled = at + n, .bias = at + 2 * n, .score = at + 3 * n, .weights = at + 4 * n,
                         .out = at + 7 * n},
                 .plain = at + 5 * n, .difference = at + 6 * n};
    rp_row standard = {.weights = t->plain};
    int code = attend_row(d, &s->t, r->batch, r->head, query, &t->row);
    if (code == CLI_OK)
        code = attend_row(&plain, &s->t, r->batch, r->head, query, &standard);
    for (int64_t j = 0; j < n; j++)
        t->difference[j] = t->row.weights[j] - t->plain[j];
    return code;
}

static void json_number(double x)
{
    if (isfinite(x))
        printf("%.17g", x);
    else
        fputs("null", stdout);
}

static void json_row(const char *key, const double *x, int64_t n)
{
    printf(", \"%s\": [", key);
    for (int64_t j = 0; j < n; j++) {
        fputs(j ? ", " : "", stdout);
        json_number(x[j]);
    }
    putchar(']');
}

static void print_json(const request *r, const source *s, const trace *t)
{
    const int64_t n = r->problem.desc.len_k;
    fputs("{\"tokens\": [", stdout);
    for (int64_t j = 0; j < n; j++) {
        fputs(j ? ", " : "", stdout);
        cli_json_string(stdout, s->token[j]);
    }
    printf("], \"query\": %lld", (long long)r->query);
    json_row("raw", t->row.raw, n);
    json_row("scaled", t->row.scaled, n);
    json_row("bias", t->row.bias, n);
    json_row("score", t->row.score, n);
    json_row("weights", t->row.weights, n);
    json_row("weights_plain", t->plain, n);
    json_row("difference", t->difference, n);
    json_row("out", t->row.out, r->problem.desc.dim_v);
    fputs(", \"lse\": ", stdout);
    json_number(t->row.lse);
    puts("}");
}

/* ------------------------------------------------------------------------------------------------- the text */

typedef struct view {
    const request *r;
    const source *s;
    const trace *t;
    int64_t key[TOP], *keys, n_keys; /* those shown; keys is key, or all of them */
    bool bold;
} view;

/* A line of a table: one number for each key. */
typedef struct series {
    const char *label, *note;
    const double *x;
    bool sign;
} series;

/* Terminal columns of UTF-8 text, near enough: a mark adds none; kana, Han, Hangul and pictures take two. */
static int columns(const char *text)
{
    int n = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        n += (*c & 0xc0) == 0x80 || *c == 0xcc ? 0 : 1 + ((*c >= 0xe3 && *c <= 0xed) || *c >= 0xf0);
    return n;
}

static const char *cut(char buf[TOKEN_MAX], const char *name, int most)
{
    size_t length = strlen(name);
    snprintf(buf, TOKEN_MAX, "%s", name);
    while (columns(buf) > most) {
        do
            length--;
        while (length > 2 && (name[length] & 0xc0) == 0x80);
        snprintf(buf, TOKEN_MAX, "%.*s..", (int)length, name);
    }
    return buf;
}

static void cell(const char *text, int width)
{
    const int used = columns(text);
    printf("%*s%s", width > used ? width - used : 0, "", text);
}

/* Four decimals, and no negative zero. */
static const char *number(char buf[40], double x, bool sign)
{
    snprintf(buf, 40, fabs(x) >= 1e6 && isfinite(x) ? "%+.4e" : "%+.4f", x);
    if (strcmp(buf + 1, "0.0000") == 0)
        return buf + 1;
    return sign || *buf == '-' ? buf : buf + 1;
}

static void heading(const view *v, const char *text)
{
    printf(v->bold ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
}

/* Queries share the names of the keys where both count the same words. */
static const char *query_name(const view *v, int64_t i, char buf[TOKEN_MAX])
{
    const rp_desc *d = &v->r->problem.desc;
    const int64_t at = d->len_q == d->len_k ? i : i + d->q_offset;
    if (at >= 0 && at < d->len_k)
        return v->s->token[at];
    snprintf(buf, TOKEN_MAX, "%lld", (long long)at);
    return buf;
}

/* Few keys stand side by side, many below each other. */
static void table(const view *v, const series *line, int n_lines)
{
    char buf[TOKEN_MAX];
    if (v->r->problem.desc.len_k > FEW) {
        int name = 4;
        for (int64_t x = 0; x < v->n_keys; x++)
            if (columns(cut(buf, v->s->token[v->keys[x]], 14)) > name)
                name = columns(buf);
        cell("key", 8);
        cell("word", name + 2);
        for (int l = 0; l < n_lines; l++)
            cell(line[l].label, (int)strlen(line[l].label) > 9 ? 14 : 11);
        for (int64_t x = 0; x < v->n_keys; x++) {
            printf("\n%8lld", (long long)v->keys[x]);
            cell(cut(buf, v->s->token[v->keys[x]], 14), name + 2);
            for (int l = 0; l < n_lines; l++)
                cell(number((char[40]){0}, line[l].x[v->keys[x]], line[l].sign), (int)strlen(line[l].label) > 9 ? 14 : 11);
        }
        putchar('\n');
        return;
    }
    const int n = (int)v->n_keys, room = cli_width(), most = (room - 15) / n - 1 > 7 ? (room - 15) / n - 1 : 7;
    int width = 7;
    for (int j = 0; j < n; j++)
        if (columns(cut(buf, v->s->token[j], most < 12 ? most : 12)) > width)
            width = columns(buf);
    width += width < most ? 2 : 1;
    printf("%15s", "");
    for (int j = 0; j < n; j++)
        cell(cut(buf, v->s->token[j], width - 1), width);
    putchar('\n');
    for (int l = 0; l < n_lines; l++) {
        const char *label = cut(buf, line[l].label, 15);
        printf("%s%*s", label, 15 - columns(label), "");
        for (int j = 0; j < n; j++)
            cell(number((char[40]){0}, line[l].x[j], line[l].sign), width);
        if (line[l].note && 15 + n * width + 3 + (int)strlen(line[l].note) <= room)
            printf("   %s", line[l].note);
        putchar('\n');
    }
}

/* What a term adds to B, for one head. */
static void print_term(const rp_term *t, int64_t h, int64_t heads, bool slopes_given)
{
    switch (t->kind) {
    case RP_TERM_LOG: printf(" - %g log(1 + d)", t->lambda); break;
    case RP_TERM_LINEAR: printf(" - %g d (before the query) - %g d (after it)", t->rate_left, t->rate_right); break;
    case RP_TERM_ALIBI:
        if (slopes_given)
            printf(" - slope d");
        else
            printf(" - %g d", rp_alibi_slope(h, heads));
        break;
    case RP_TERM_TABLE: printf(" + table[clamp(r, %lld, %lld)]", (long long)-t->left, (long long)t->right); break;
    case RP_TERM_T5:
    case RP_TERM_BUCKET: printf(" + table[bucket(r)]"); break;
    default: printf(" + %s", rp_term_name(t->kind));
    }
}

static bool is_bias(rp_term_kind kind)
{
    return kind != RP_TERM_ROPE && kind != RP_TERM_RELKEY && kind != RP_TERM_RELVAL;
}

static void formula(const view *v)
{
    const cli_problem *p = &v->r->problem;
    const rp_desc *d = &p->desc;
    bool has[RP_TERM_COUNT] = {false}, bias = false;
    for (int32_t n = 0; n < d->n_terms; n++)
        has[d->terms[n].kind] = true, bias |= is_bias(d->terms[n].kind);
    const char *product = has[RP_TERM_ROPE] ? "R(Q) R(K)^T" : "Q K^T", *cap = d->softcap > 0 ? "cap(" : "";
    printf("  A = softmax(%s", cap);
    if (p->scale_given)
        printf("%g ", d->scale);
    printf("%s%s%s%s%s%s) %s\n", product, p->scale_given ? "" : " / sqrt(d_k)", has[RP_TERM_RELKEY] ? " + rel_K" : "",
           *cap && !d->cap_after ? ")" : "", bias ? " + B" : "", *cap && d->cap_after ? ")" : "",
           has[RP_TERM_RELVAL] ? "(V + rel_V)" : "V");
    printf("  d_k = %lld, scale = %g\n", (long long)d->dim_k, p->scale_given ? d->scale : 1 / sqrt((double)d->dim_k));
    if (bias) {
        printf("  B =");
        for (int32_t n = 0; n < d->n_terms; n++)
            if (is_bias(d->terms[n].kind))
                print_term(&d->terms[n], v->r->head, d->heads, *p->term_array[n][0]);
        printf("     r = key - query, d = |r|\n");
    }
    for (int32_t n = 0; n < d->n_terms; n++)
        if (d->terms[n].kind == RP_TERM_ROPE)
            printf("  R turns pairs of channels by position (base %g)\n", d->terms[n].base);
    if (d->softcap > 0)
        printf("  cap(x) = %g tanh(x / %g)\n", d->softcap, d->softcap);
    if (d->n_masks)
        printf("  a masked key scores -inf: its weight is 0\n");
    if (d->heads * d->batch > 1)
        printf("  head %lld of 0 to %lld, batch entry %lld of 0 to %lld\n", (long long)v->r->head, (long long)d->heads - 1,
               (long long)v->r->batch, (long long)d->batch - 1);
}

/* The TOP keys of the largest x, largest first. */
static void heaviest(const double *x, int64_t n, int64_t key[TOP])
{
    for (int rank = 0; rank < TOP; rank++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++) {
            bool taken = false;
            for (int m = 0; m < rank; m++)
                taken |= key[m] == j;
            if (!taken && (best < 0 || x[j] > x[best]))
                best = j;
        }
        key[rank] = best;
    }
}

static void print_weights(const view *v, const char *query)
{
    const rp_desc *d = &v->r->problem.desc;
    char a[TOKEN_MAX], b[TOKEN_MAX], name[2 * TOKEN_MAX + 8];
    int width = 0, digits = 1;
    for (int pass = 0; pass < 2; pass++) /* measure, then print */
        for (int64_t x = 0; x < v->n_keys; x++) {
            const int64_t j = v->keys[x], distance = llabs(j - v->r->query - d->q_offset);
            const double w = v->t->row.weights[j];
            const int used = snprintf(name, sizeof name, "%lld", (long long)distance);
            digits = used > digits ? used : digits;
            snprintf(name, sizeof name, "A[%s,%s]", cut(a, query, 20), cut(b, v->s->token[j], 20));
            width = columns(name) > width ? columns(name) : width;
            if (pass == 0)
                continue;
            if (d->len_k > FEW)
                printf("%8lld", (long long)j);
            cell(name, width + 2);
            printf(" = %s (d=%*lld) |", number((char[40]){0}, w, false), digits, (long long)distance);
            for (int bar = w >= 0 && w <= 1 ? (int)(w * 50) : 0; bar > 0; bar--)
                putchar('#');
            puts(v->t->row.score[j] == -INFINITY ? "| masked" : "|");
        }
}

static void print_output(const view *v, const char *query)
{
    const int64_t n = v->r->problem.desc.dim_v, shown = n <= 32 || v->r->all ? n : 16;
    printf("\nOutput[%s] = [", query);
    for (int64_t c = 0; c < shown; c++)
        printf("%s%s", c == 0 ? "" : c % 8 ? " " : "\n    ", number((char[40]){0}, v->t->row.out[c], false));
    if (shown < n)
        printf("\n    ... %lld numbers in all (--all prints them)", (long long)n);
    puts("]");
}

/* All queries of a small case: weights without terms, with them, and what changed. */
static int print_matrices(const view *v)
{
    const rp_desc *d = &v->r->problem.desc;
    trace t[FEW] = {0};
    char name[FEW][TOKEN_MAX];
    series line[FEW] = {0};
    int code = CLI_OK;
    for (int64_t i = 0; i < d->len_q && code == CLI_OK; i++) {
        code = look(v->r, v->s, i, &t[i]);
        line[i].label = query_name(v, i, name[i]);
    }
    for (int m = 0; m < 3 && code == CLI_OK; m++) {
        heading(v, m == 0 ? "All weights, standard" : m == 1 ? "All weights, biased" : "Difference (biased - standard)");
        for (int64_t i = 0; i < d->len_q; i++) {
            line[i].x = m == 0 ? t[i].plain : m == 1 ? t[i].row.weights : t[i].difference;
            line[i].sign = m == 2;
        }
        table(v, line, (int)d->len_q);
    }
    for (int64_t i = 0; i < d->len_q; i++)
        free(t[i].row.raw);
    return code;
}

static int print_text(view *v)
{
    const rp_desc *d = &v->r->problem.desc;
    const rp_row *row = &v->t->row;
    char buf[TOKEN_MAX], line[3 * TOKEN_MAX];
    const bool few = d->len_k <= FEW, part = v->keys == v->key && d->len_k > TOP;
    const char *query = query_name(v, v->r->query, buf);
    printf("%s", v->s->note);
    snprintf(line, sizeof line, "=== Relative position bias, step by step, for '%s' (query %lld of 0 to %lld) ===", query,
             (long long)v->r->query, (long long)d->len_q - 1);
    heading(v, line);
    formula(v);
    if (part) {
        snprintf(line, sizeof line, "The %d heaviest of %lld keys (--all prints every key)", TOP, (long long)d->len_k);
        heading(v, line);
    } else {
        putchar('\n');
    }
    char scale[40];
    snprintf(scale, sizeof scale, "raw * %g", v->r->problem.scale_given ? d->scale : 1 / sqrt((double)d->dim_k));
    table(v,
          (series[]){{few ? "Raw scores" : "raw", "q . k", row->raw, false},
                     {few ? "Scaled scores" : "scaled", scale, row->scaled, false},
                     {few ? "Bias values" : "bias", "B", row->bias, false},
                     {few ? "Biased scores" : "biased", "scaled + B", row->score, false}},
          4);
    heading(v, "Attention weights: exp(biased score), divided by the sum over all keys");
    print_weights(v, query);
    if (row->lse == -INFINITY)
        puts("  every key is masked: no weight, and an output of 0");
    print_output(v, query);
    snprintf(line, sizeof line, "Standard and biased weights for '%s'", query);
    heading(v, line);
    table(v,
          (series[]){{few ? "Standard" : "standard", "no position term", v->t->plain, false},
                     {few ? "Biased" : "biased", NULL, row->weights, false},
                     {few ? "Difference" : "difference", NULL, v->t->difference, true}},
          3);
    if (part) {
        int64_t key[TOP];
        heaviest(v->t->plain, d->len_k, key);
        printf("\nHeaviest without a position term:");
        for (int n = 0; n < TOP; n++)
            printf("%s%s [%lld] %s", n % 4 ? ", " : "\n  ", cut(line, v->s->token[key[n]], 14), (long long)key[n],
                   number((char[40]){0}, v->t->plain[key[n]], false));
        putchar('\n');
    }
    return few && d->len_q <= FEW ? print_matrices(v) : CLI_OK;
}

static int explain(const request *r, const source *s)
{
    const rp_desc *d = &r->problem.desc;
    const struct {
        const char *option;
        int64_t at, n;
    } range[] = {{"--query", r->query, d->len_q}, {"--head", r->head, d->heads}, {"--batch", r->batch, d->batch}};
    for (size_t n = 0; n < sizeof range / sizeof *range; n++)
        if (range[n].at >= range[n].n)
            return cli_error(CLI_USAGE, "%s: %lld is out of range (0 to %lld)", range[n].option, (long long)range[n].at,
                             (long long)range[n].n - 1);
    trace t = {0};
    view v = {.r = r, .s = s, .t = &t, .bold = cli_colour(stdout)};
    int code = look(r, s, r->query, &t);
    if (code == CLI_OK && r->json) {
        print_json(r, s, &t);
    } else if (code == CLI_OK) {
        const bool top = !r->all && d->len_k > TOP;
        v.n_keys = top ? TOP : d->len_k;
        v.keys = top ? v.key : malloc((size_t)d->len_k * sizeof *v.keys);
        for (int64_t j = 0; v.keys && j < v.n_keys; j++)
            v.keys[j] = j;
        if (top)
            heaviest(t.row.weights, d->len_k, v.key);
        code = v.keys ? print_text(&v) : no_memory();
        if (v.keys != v.key)
            free(v.keys);
    }
    free(t.row.raw);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    request *r = calloc(1, sizeof *r);
    source s = {.t = rp_tensors_init(), .note = ""};
    const char **args = malloc((size_t)argc * sizeof *args);
    int n_args = 0, code = -1;
    if (!r || !args) {
        free(r);
        free(args);
        return no_memory();
    }
    cli_problem_init(&r->problem);
    r->problem.desc.dtype = RP_F64;
    code = cli_options(self, argc, argv, on_option, r, args, argc, &n_args);
    if (code < 0 && r->no_bias && r->problem.desc.n_terms)
        code = cli_error(CLI_USAGE, "--no-bias: a position term is given too (leave one of them out)");
    if (code < 0 && r->input && n_args)
        code = cli_error(CLI_USAGE, "explain: a sentence and --input (leave one of them out)");
    if (code < 0 && !r->no_bias && r->problem.desc.n_terms == 0)
        code = cli_problem_option(&r->problem, CLI_BIAS, "log") == CLI_OK ? -1 : CLI_USAGE;
    if (code < 0 && !r->input && check_no_arrays(&r->problem) != CLI_OK)
        code = CLI_USAGE;
    if (code < 0) {
        code = r->input ? from_file(r, &s) : n_args ? from_sentence(r, &s, args, n_args) : from_example(r, &s);
        if (code == CLI_OK)
            code = explain(r, &s);
    }
    io_free(&s.in);
    io_free(&s.made);
    free(s.token);
    free(s.memory);
    free(args);
    free(r);
    return code;
}

const cli_command cmd_explain = {
    .name = "explain",
    .summary = "one query step by step: scores, bias, weights as bars, output",
    .usage = "[\"a sentence\"] [options]      without a sentence: the worked example; - = standard input",
    .example = "  relpos explain\n"
               "  relpos explain \"the cat sat on the mat\" --query 2 --bias linear,left=0.5,right=1\n"
               "  relpos explain --input gettysburg.safetensors --head 2 --query 17 --bias alibi\n",
    .options = options,
    .run = run,
};
