/* command.c -- relpos explain: its options, and its output as a picture or JSON. print.c prints the text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain/explain.h"
#include "cli/picture/picture.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    OUT = 'o',
    QUERY = CLI_FIRST_KEY,
    HEAD,
    BATCH,
    INPUT,
    ALL,
    BRIEF,
    NO_BIAS,
    JSON,
    OUTPUTS,
    MODEL,
    TEXT,
    LAYER,
    WORD
};
enum {
    NAMED = 40,            /* max rows or columns of a picture that are labelled by name */
    CAP_SAMPLES = 1 << 20, /* number of values from which the limit of the colour scale is computed */
    MAX_PAIRS = 1 << 24    /* max weights in a picture */
};

static const cli_option options[] = {
    {"query", QUERY, "N", "follow query N, counted from 0; default 0"},
    {"no-bias", NO_BIAS, NULL, "use no position term; default without any term: --bias log,lambda=0.3"},
    CLI_TERM_OPTIONS,
    CLI_MASK_OPTIONS,
    CLI_SETTING_OPTIONS,
    {"input", INPUT, "FILE",
     "read q, k, v and named arrays from .npz or .safetensors; metadata \"tokens\" has the names of the tokens"},
    {"model", MODEL, "FILE", "show the attention of a model of relpos lab on --text, word by word"},
    {"text", TEXT, "TEXT", "let the model read TEXT"},
    {"layer", LAYER, "N", "show layer N of the model, counted from 0; default 0, or all layers without --head"},
    {"word", WORD, "N", "show the attention of word N of the text, counted from 0; default: the last"},
    {"head", HEAD, "N",
     "show head N, counted from 0; default 0, or a table of all heads with --model. Without a file there is one head, "
     "or 8 with alibi"},
    {"batch", BATCH, "N", "show batch entry N of the file, counted from 0; default 0"},
    {"brief", BRIEF, NULL, "show only the heaviest keys without and with the terms, and the weight by distance"},
    {"output", OUT, "FILE", "also draw the weights of the head without and with position terms: .png or .svg"},
    {"all", ALL, NULL, "show every key in order, not only the 12 heaviest"},
    {"outputs", OUTPUTS, NULL, "also show the outputs of all queries of the head"},
    {"json", JSON, NULL, "print one JSON object; NaN and infinity are null"},
    {0},
};

static int on_option(void *context, int key, const char *value)
{
    explain_request *r = context;
    switch (key) {
    case MODEL: r->model = value; return CLI_OK;
    case TEXT: r->text = value; return CLI_OK;
    case LAYER: return cli_integer("--layer", value, 0, INT64_MAX, &r->layer);
    case WORD: return cli_integer("--word", value, 0, INT64_MAX, &r->word);
    case QUERY: r->numbers = true; return cli_integer("--query", value, 0, INT64_MAX, &r->query);
    case HEAD: return cli_integer("--head", value, 0, INT64_MAX, &r->head);
    case BATCH: r->numbers = true; return cli_integer("--batch", value, 0, INT64_MAX, &r->batch);
    case INPUT: r->input = value; return CLI_OK;
    case OUT: r->out = value; return CLI_OK;
    case BRIEF: r->brief = true; return CLI_OK;
    case ALL: r->all = true; return CLI_OK;
    case NO_BIAS: r->no_bias = r->settings = true; return CLI_OK;
    case JSON: r->json = true; return CLI_OK;
    case OUTPUTS: r->outputs = true; return CLI_OK;
    default: r->settings = true; return cli_problem_option(&r->problem, key, value);
    }
}

/* ------------------------------------------------------------------------------------------------- the picture */

static int write_picture(const explain_request *r, const pic_map *map)
{
    unsigned char *data = NULL;
    size_t size = 0;
    char err[IO_ERR_MAX];
    if ((strcasecmp(strrchr(r->out, '.'), ".png") == 0 ? pic_png : pic_svg)(map, &data, &size, err) != 0)
        return cli_error(CLI_FAILED, "picture: %s (use fewer queries or keys)", err);
    const int code = io_write_bytes(r->out, data, size, err) == 0 ? CLI_OK : cli_error(CLI_FAILED, "%s", err);
    free(data);
    return code;
}

/* Return the 99th percentile of |x|, or 0 if out of memory. The colours of a large picture end at this value: with a
 * scale up to the maximum, a few heavy keys would leave everything else in one colour. */
static double cap_of(const double *x, int64_t n)
{
    const int64_t step = n / CAP_SAMPLES + 1;
    double *size = malloc((size_t)(n / step + 1) * sizeof *size);
    int64_t count = 0;
    for (int64_t k = 0; size && k < n; k += step)
        if (isfinite(x[k]))
            size[count++] = fabs(x[k]);
    if (count)
        qsort(size, (size_t)count, sizeof *size, cli_by_size);
    const double cap = count ? size[count - 1 - count / 100] : 0;
    free(size);
    return cap;
}

static int draw(const explain_request *r, const explain_source *s, explain_bands *bands)
{
    const rp_desc *d = &r->problem.desc;
    if (d->len_q > MAX_PAIRS / d->len_k)
        return cli_error(CLI_FAILED, "--output: a picture of %lld x %lld weights is too large (use at most %d in all)",
                         (long long)d->len_q, (long long)d->len_k, MAX_PAIRS);
    const int64_t n = d->len_q * d->len_k;
    double *plain = malloc((size_t)n * 3 * sizeof *plain);
    if (!plain)
        return explain_no_memory();
    int code = explain_all(r, s, bands, plain, plain + n);
    for (int64_t x = 0; code == CLI_OK && x < n; x++)
        plain[2 * n + x] = plain[x] == -INFINITY ? -INFINITY : plain[n + x] - plain[x];
    char terms[128], names[128], title[256], with[160], number[NAMED][EXPLAIN_TOKEN];
    const char *row_name[NAMED], *col_name[NAMED];
    for (int64_t i = 0; i < d->len_q && d->len_q <= NAMED; i++)
        row_name[i] = explain_query_name(r, s, i, number[i]);
    for (int64_t j = 0; j < d->len_k && d->len_k <= NAMED; j++)
        col_name[j] = s->token[j];
    snprintf(title, sizeof title, "Attention weights of %shead %lld: %s", s->place, (long long)r->head,
             explain_terms(r, false, terms, sizeof terms));
    snprintf(with, sizeof with, "with %s", explain_terms(r, true, names, sizeof names));
    const pic_panel panel[3] = {
        {.value = plain, .rows = d->len_q, .cols = d->len_k, .title = s->unordered ? "" : "without position terms"},
        {.value = plain + n, .rows = d->len_q, .cols = d->len_k, .title = with},
        {.value = plain + 2 * n, .rows = d->len_q, .cols = d->len_k, .title = "difference"}};
    const pic_map map = {.panels = panel,
                         .n_panels = s->unordered ? 1 : 3,
                         .title = title,
                         .row_label = "query",
                         .col_label = "key",
                         .value_label = "weight",
                         .row_names = d->len_q <= NAMED ? row_name : NULL,
                         .col_names = d->len_k <= NAMED ? col_name : NULL,
                         .difference = !s->unordered,
                         .cap = n > NAMED * NAMED ? cap_of(plain, 2 * n) : 0,
                         .difference_cap = n > NAMED * NAMED ? cap_of(plain + 2 * n, n) : 0};
    if (code == CLI_OK)
        code = write_picture(r, &map);
    free(plain);
    return code;
}

/* ------------------------------------------------------------------------------------------------- the command */

static void json_row(const char *key, const double *x, int64_t n)
{
    printf(", \"%s\": [", key);
    for (int64_t j = 0; j < n; j++) {
        fputs(j ? ", " : "", stdout);
        explain_json_number(x[j]);
    }
    putchar(']');
}

/* Print a JSON list of the parts whose kind is in `from` ... `to`. */
static void json_parts(const explain_trace *t, const char *key, rp_part_kind from, rp_part_kind to)
{
    static const char *const kinds[] = {"content",       "rotation", "query", "key",    "softcap", "bias",
                                        "softcap_after", "mask",     "sink",  "values", "vectors"};
    const char *before = "";
    printf(", \"%s\": [", key);
    for (int32_t n = 0; n < t->n_parts; n++) {
        const rp_part *p = &t->part[n];
        if (p->kind < from || p->kind > to)
            continue;
        printf("%s{\"name\": \"%s\", \"kind\": \"%s\", \"formula\": ", before, p->name, kinds[p->kind]);
        cli_json_string(stdout, p->formula);
        json_row("values", p->value, p->length);
        putchar('}');
        before = ", ";
    }
    putchar(']');
}

static void json_words(const explain_request *r, const explain_source *s, const explain_content *split)
{
    printf("\"layer\": %lld, \"head\": %lld, \"word\": %lld, \"words\": [", (long long)r->layer, (long long)r->head,
           (long long)r->word);
    for (int64_t w = 0; w <= r->word; w++) {
        fputs(w ? ", {\"text\": " : "{\"text\": ", stdout);
        cli_json_string(stdout, s->word[w].name);
        printf(", \"from\": %lld, \"to\": %lld, \"content\": ", (long long)s->word[w].from, (long long)s->word[w].to);
        explain_json_number(split->content[w]);
        fputs(", \"position\": ", stdout);
        explain_json_number(split->position[w]);
        fputs(", \"weight\": ", stdout);
        explain_json_number(split->both[w]);
        putchar('}');
    }
    fputs("], \"spread\": {\"content\": ", stdout);
    explain_json_number(split->spread.content);
    fputs(", \"position\": ", stdout);
    explain_json_number(split->spread.position);
    fputs(", \"both\": ", stdout);
    explain_json_number(split->spread.both);
    fputs("}, ", stdout);
}

static int print_json(const explain_request *r, const explain_source *s, const explain_trace *t,
                      const explain_bands *bands, const double *outputs)
{
    const int64_t n = r->problem.desc.len_k;
    explain_content split = {0};
    if (s->word && explain_by_words(r, s, t, &split) != CLI_OK)
        return CLI_FAILED;
    putchar('{');
    if (s->word)
        json_words(r, s, &split);
    free(split.content);
    fputs("\"tokens\": [", stdout);
    for (int64_t j = 0; j < n; j++) {
        fputs(j ? ", " : "", stdout);
        cli_json_string(stdout, s->token[j]);
    }
    for (int64_t i = 0; s->query_token && i < r->problem.desc.len_q; i++) {
        fputs(i ? ", " : "], \"queries\": [", stdout);
        cli_json_string(stdout, s->query_token[i]);
    }
    printf("], \"query\": %lld", (long long)r->query);
    json_row("raw", t->row.raw, n);
    json_row("scaled", t->row.scaled, n);
    if (s->bucket)
        json_row("bucket", s->bucket, n);
    json_row("bias", t->row.bias, n);
    json_parts(t, "parts", RP_PART_CONTENT, RP_PART_MASK);
    json_row("score", t->row.score, n);
    json_row("weights", t->row.weights, n);
    json_row("weights_plain", t->plain, n);
    json_row("difference", t->difference, n);
    if (explain_part(t, RP_PART_SINK)) {
        fputs(", \"sink\": ", stdout);
        explain_json_number(*explain_part(t, RP_PART_SINK)->value);
    }
    json_parts(t, "out_parts", RP_PART_VALUES, RP_PART_VECTORS);
    json_row("out", t->row.out, r->problem.desc.dim_v);
    fputs(", \"lse\": ", stdout);
    explain_json_number(t->row.lse);
    for (int band = 0; bands->known && band < EXPLAIN_BANDS; band++) {
        printf(band ? ", {\"from\": %lld, \"to\": " : ", \"share_by_distance\": [{\"from\": %lld, \"to\": ",
               (long long)explain_band_from(band));
        explain_json_number(band + 1 < EXPLAIN_BANDS ? (double)explain_band_from(band + 1) - 1 : INFINITY);
        fputs(", \"plain\": ", stdout);
        explain_json_number(bands->plain[band]);
        fputs(", \"weights\": ", stdout);
        explain_json_number(bands->with[band]);
        fputs(band + 1 < EXPLAIN_BANDS ? "}" : "}]", stdout);
    }
    if (bands->known)
        printf(", \"pairs\": {\"allowed\": %lld, \"computed\": %lld}", (long long)bands->pairs[0],
               (long long)bands->pairs[1]);
    if (outputs)
        explain_json_outputs(r, outputs);
    puts("}");
    return CLI_OK;
}

int explain_show(explain_request *r, explain_source *s)
{
    const rp_desc *d = &r->problem.desc;
    if (explain_range("--query", r->query, d->len_q) != CLI_OK ||
        explain_range("--head", r->head, d->heads) != CLI_OK || explain_range("--batch", r->batch, d->batch) != CLI_OK)
        return CLI_USAGE;
    explain_trace t = {0};
    explain_bands bands = {0};
    double *outputs = NULL;
    int code = explain_plans(r, s);
    if (code == CLI_OK && r->head < 0)
        return explain_heads(r, s);
    if (code == CLI_OK)
        code = explain_look(r, s, r->query, &t);
    if (code == CLI_OK && (r->json || !r->brief))
        code = explain_split(r, s, &t);
    if (code == CLI_OK && r->out)
        code = draw(r, s, &bands);
    if (code == CLI_OK && r->json && s->show_bands && !bands.known)
        code = explain_all(r, s, &bands, NULL, NULL);
    if (code == CLI_OK && r->outputs)
        code = explain_outputs(r, s, &outputs);
    if (code == CLI_OK && r->json)
        code = print_json(r, s, &t, &bands, outputs);
    else if (code == CLI_OK)
        code = explain_print(r, s, &t, &bands);
    if (code == CLI_OK && outputs && !r->json)
        explain_print_outputs(r, s, outputs);
    free(outputs);
    free(t.part);
    free(t.row.raw);
    return code;
}

int explain_check_output(const char *path)
{
    const char *suffix = strrchr(path, '.');
    char safe[256];
    if (suffix && (strcasecmp(suffix, ".png") == 0 || strcasecmp(suffix, ".svg") == 0))
        return CLI_OK;
    return cli_error(CLI_USAGE, "--output: %s: the suffix is unknown (use .png or .svg)",
                     io_safe(safe, sizeof safe, path));
}

/* Reject options that conflict with --model or that need it, and set defaults. Return CLI_OK, or CLI_USAGE after
 * printing. */
static int check_model(explain_request *r, int n_args)
{
    if (!r->model && (r->text || r->layer >= 0 || r->word >= 0))
        return cli_error(CLI_USAGE, "explain: --text, --layer and --word need a model (give --model FILE)");
    if (!r->model) {
        r->head = r->head < 0 ? 0 : r->head;
        return CLI_OK;
    }
    if (r->input || n_args)
        return cli_error(CLI_USAGE, "explain: --model reads the text of --text (omit %s)",
                         r->input ? "--input" : "the sentence");
    if (r->settings)
        return cli_error(CLI_USAGE,
                         "explain: a model defines the terms, masks and scale (omit options such as --bias)");
    if (r->numbers)
        return cli_error(CLI_USAGE, "explain: with --model, --word selects the query (omit --query and --batch)");
    if (!r->text || !*r->text)
        return cli_error(CLI_USAGE, "explain: --model needs a text (give --text 'a sentence')");
    if (r->head < 0 && (r->out || r->brief || r->outputs))
        return cli_error(CLI_USAGE, "explain: %s needs one head (give --head N)",
                         r->out     ? "--output"
                         : r->brief ? "--brief"
                                    : "--outputs");
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    explain_request *r = calloc(1, sizeof *r);
    explain_source s = {.t = rp_tensors_init(), .note = ""};
    const char **args = malloc((size_t)argc * sizeof *args);
    int n_args = 0, code = -1;
    if (!r || !args) {
        free(r);
        free(args);
        return explain_no_memory();
    }
    r->head = r->layer = r->word = -1;
    cli_problem_init(&r->problem);
    r->problem.desc.dtype = RP_F64;
    code = cli_options(self, argc, argv, on_option, r, args, argc, &n_args);
    if (code < 0 && check_model(r, n_args) != CLI_OK)
        code = CLI_USAGE;
    if (code < 0 && r->no_bias && r->problem.desc.n_terms)
        code = cli_error(CLI_USAGE, "--no-bias: a position term was given too (give only one of them)");
    if (code < 0 && r->input && n_args)
        code = cli_error(CLI_USAGE, "explain: a sentence and --input were both given (give only one of them)");
    if (code < 0 && !r->model && !r->no_bias && r->problem.desc.n_terms == 0)
        code = cli_problem_option(&r->problem, CLI_BIAS, "log") == CLI_OK ? -1 : CLI_USAGE;
    if (code < 0 && r->out && explain_check_output(r->out) != CLI_OK)
        code = CLI_USAGE;
    if (code < 0 && !r->input && !r->model && cli_problem_no_file(&r->problem, true) != CLI_OK)
        code = CLI_USAGE;
    if (code < 0) {
        code = r->model   ? explain_from_model(r, &s)
               : r->input ? explain_from_file(r, &s)
               : n_args   ? explain_from_sentence(r, &s, args, n_args)
                          : explain_from_example(r, &s);
        if (code == CLI_OK)
            code = explain_show(r, &s);
    }
    rp_plan_destroy(s.plan);
    rp_plan_destroy(s.plain);
    io_free(&s.in);
    io_free(&s.made);
    explain_model_end(&s);
    free(s.token);
    free(s.memory);
    free(args);
    free(r);
    return code;
}

const cli_command cmd_explain = {
    .name = "explain",
    .summary = "follow one query step by step: scores, bias, weights as bars, output",
    .usage = "[\"a sentence\"] [options]      without a sentence: the worked example; - = standard input",
    .example =
        "  relpos explain\n"
        "  relpos explain \"the cat sat on the mat\" --query 2 --bias linear,left=0.5,right=1\n"
        "  relpos explain --input gettysburg.safetensors --head 2 --query 17 --bias alibi --brief -o alibi.png\n"
        "  relpos explain --model lab/model/vim.safetensors --text 'the cursor is moved to the next line' --layer 1\n",
    .options = options,
    .run = run,
};
