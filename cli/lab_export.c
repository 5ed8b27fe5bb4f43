/* lab_export.c -- relpos lab export: q, k, v and learned arrays of a trained layer on a text, as relpos attend and explain read them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab.h"
#include <stdlib.h>
#include <string.h>

enum { PROMPT = CLI_OWN, LAYER, MODEL };

static const cli_option options[] = {
    {"output", 'o', "FILE", "the arrays, .safetensors or .npz"},
    {"model", MODEL, NULL, "the weights alone, a third of a checkpoint, for eval and sample"},
    {"prompt", PROMPT, "TEXT", "the text that the model reads"},
    {"layer", LAYER, "N", "whose attention, from 0 on; default 0"},
    {0},
};

typedef struct request {
    const char *output, *prompt;
    int64_t layer;
    bool model;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *q = context;
    switch (key) {
    case 'o': q->output = value; return CLI_OK;
    case MODEL: q->model = true; return CLI_OK;
    case PROMPT: q->prompt = value; return CLI_OK;
    case LAYER: return cli_integer("--layer", value, 0, 1 << 20, &q->layer);
    default: return -1;
    }
}

/* A copy of a view, row-major; 0, or -1 for want of memory. */
static int add_view(io_set *set, const char *name, const rp_array *a)
{
    int64_t n = 1, at[RP_MAX_AXES] = {0};
    for (int32_t x = 0; x < a->ndim; x++)
        n *= a->shape[x];
    real *to = malloc((size_t)n * sizeof *to + 1);
    if (!to || io_add(set, name, a->dtype, a->ndim, a->shape, to, false) != 0) {
        free(to);
        return -1;
    }
    for (int64_t x = 0; x < n; x++) {
        int64_t from = 0;
        for (int32_t y = 0; y < a->ndim; y++)
            from += at[y] * a->stride[y];
        to[x] = ((const real *)a->data)[from];
        for (int32_t y = a->ndim - 1; y >= 0 && ++at[y] == a->shape[y]; y--)
            at[y] = 0;
    }
    return 0;
}

/* The names of the tokens, a JSON list: what cannot be printed as \xNN. */
static int add_tokens(io_set *set, const char *text)
{
    json_t *all = json_array();
    for (const char *c = text; *c; c++) {
        char name[8];
        snprintf(name, sizeof name, *c > ' ' && *c < 0x7f ? "%c" : *c == ' ' ? "_" : "\\x%02x", (unsigned char)*c);
        json_array_append_new(all, json_string(name));
    }
    char *list = json_dumps(all, 0);
    const int code = list ? io_add_meta(set, "tokens", list) : -1;
    free(list);
    json_decref(all);
    return code;
}

/* The arrays of the terms, and the options that name them. */
static int add_terms(io_set *set, const nn_model *m, const rp_tensors *t, FILE *to)
{
    int code = 0;
    for (int32_t n = 0; n < m->n_terms; n++) {
        const rp_term_kind kind = m->terms[n].term.kind;
        char text[1024];
        if (rp_term_print(&m->terms[n].term, text, sizeof text) != RP_OK)
            return -1;
        const char *parameters = strchr(text, ',');
        const bool bias = rp_term_is_bias(kind);
        fprintf(to,
                bias                   ? " --bias %s%s"
                : kind == RP_TERM_SINK ? " --%s%s"
                                       : " --%s %s",
                rp_term_name(kind),
                bias && parameters ? parameters
                : parameters       ? parameters + 1
                                   : "");
        bool first = !bias && !parameters;
        for (int x = 0; x < RP_MAX_ARRAYS && code == 0; x++)
            if (m->terms[n].source[x] != NN_ABSENT) {
                char name[64];
                snprintf(name, sizeof name, "%s.%s", m->terms[n].name, rp_term_array(kind, x));
                code = add_view(set, name, &t->term[n][x]);
                if (kind == RP_TERM_SINK)
                    fprintf(to, " %s", name);
                else
                    fprintf(to, "%s%s=%s", first ? "" : ",", rp_term_array(kind, x), name);
                first = false;
            }
    }
    return code;
}

/* All options of the layer's attention: they go into the metadata and into the command that is shown. NULL for want of memory. */
static char *add_options(io_set *set, const nn_model *m, const rp_tensors *t)
{
    char *shown = NULL;
    size_t size;
    FILE *to = open_memstream(&shown, &size);
    int code = to ? add_terms(set, m, t, to) : -1;
    if (to && m->c.scale > 0) {
        char text[32];
        for (int digits = 1; digits <= 17; digits++) { /* the fewest that read as the same */
            snprintf(text, sizeof text, "%.*g", digits, m->c.scale);
            if (strtod(text, NULL) == m->c.scale)
                break;
        }
        fprintf(to, " --scale %s", text);
    }
    if (to && (fputs(" --causal", to) < 0 || fclose(to) != 0))
        code = -1;
    if (code == 0)
        code = io_add_meta(set, "options", shown + 1);
    if (code != 0) {
        free(shown);
        shown = NULL;
    }
    return shown;
}

static int export_model(const char *path, const char *output)
{
    char err[NN_ERR_MAX];
    nn_model m;
    rp_pool *pool = NULL;
    int64_t step;
    int code = lab_open(&m, path, &step, 1, &pool);
    if (code != CLI_OK)
        return code;
    if (nn_checkpoint_save(&m, output, step, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    nn_model_destroy(&m);
    rp_pool_destroy(pool);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    request q = {0};
    const char *path;
    char err[NN_ERR_MAX] = "no memory for the arrays (a shorter prompt)", why[IO_ERR_MAX];
    int n, code = cli_options(self, argc, argv, on_option, &q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE,
                         "lab export: no run (such as relpos lab export out/run --model -o out/model.safetensors)");
    if (!q.output)
        return cli_error(CLI_USAGE, "lab export: no file to write (-o FILE)");
    if (q.model == (q.prompt && *q.prompt))
        return cli_error(CLI_USAGE, "lab export: %s",
                         q.model ? "--model takes no text" : "no text (--prompt TEXT, or --model)");
    const io_format format = io_format_of(q.output);
    if (format == IO_UNKNOWN || (q.model && format != IO_SAFETENSORS))
        return cli_error(CLI_USAGE, "--output: %s: not .safetensors%s", q.output, q.model ? "" : " or .npz");
    if (q.model)
        return export_model(path, q.output);
    nn_model m;
    nn_net *net = NULL;
    rp_pool *pool = NULL;
    rp_tensors t;
    io_set set = {0};
    char *shown = NULL;
    int64_t step;
    const int64_t length = (int64_t)strlen(q.prompt);
    if ((code = lab_open(&m, path, &step, 1, &pool)) != CLI_OK)
        return code;
    int32_t *tokens = malloc((size_t)length * sizeof *tokens);
    real logits[256];
    for (int64_t x = 0; tokens && x < length; x++)
        tokens[x] = (unsigned char)q.prompt[x];
    int state = !tokens || lab_net(&net, &m, pool, 1, length, false, 0, err) != 0 ||
                        nn_net_logits(net, length, tokens, logits, err) != 0 ||
                        nn_net_attention(net, q.layer, &t, err) != 0
                    ? -1
                    : 0;
    if (state == 0) {
        state = add_view(&set, "q", &t.q) != 0 || add_view(&set, "k", &t.k) != 0 || add_view(&set, "v", &t.v) != 0 ||
                        !(shown = add_options(&set, &m, &t)) || add_view(&set, "out", &t.out) != 0 ||
                        add_tokens(&set, q.prompt) != 0
                    ? -1
                    : 0;
    }
    if (state == 0 && io_write(q.output, format, &set, why) != 0)
        state = nn_fail(err, "%.400s", why);
    if (state == 0)
        printf("relpos attend %s -o OUT%s\n", q.output, shown);
    if (state != 0)
        code = cli_error(CLI_FAILED, "lab export: %s", err);
    io_free(&set);
    free(shown);
    free(tokens);
    nn_net_destroy(net);
    nn_model_destroy(&m);
    rp_pool_destroy(pool);
    return code;
}

const cli_command lab_export = {
    .name = "lab export",
    .summary = "a layer's attention on a text, for attend, explain and bias; or the model alone",
    .usage = "DIR|FILE --prompt TEXT|--model -o FILE [options]",
    .example = "  relpos lab export out/run --prompt 'The end of the line' --layer 1 -o out/x.safetensors\n"
               "  It prints the command that repeats the layer's attention; out is in the file too.\n"
               "  relpos lab export out/run --model -o out/model.safetensors\n",
    .options = options,
    .run = run,
};
