/* export.c -- relpos lab export: run a model on a text and write the q, k, v and learned arrays of a layer to a file
 * for relpos attend and explain; or write only the model. Also contains lab_inspection_at, which runs a model on a
 * text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <relpos/facts.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = CLI_FIRST_KEY, LAYER, MODEL, TRANSFORMERS, DTYPE };

static const cli_option options[] = {
    {"output", 'o', "FILE|DIR", "write this file, .safetensors or .npz; with --transformers, write this directory"},
    {"model", MODEL, NULL,
     "write only the weights, for eval and sample; the file has a third of the size of a checkpoint"},
    {"transformers", TRANSFORMERS, NULL,
     "write a directory for Hugging Face's transformers: an encoder-decoder as T5, a decoder as GPT-2, GPT-NeoX or "
     "Llama"},
    {"dtype", DTYPE, "TYPE",
     "store the weights of --model or --transformers as f32, or in half the space as f16 or bf16; default f32"},
    {"prompt", PROMPT, "TEXT", "run the model on this text"},
    {"layer", LAYER, "N", "write the attention of layer N, counted from 0; default 0"},
    {0},
};

typedef struct request {
    const char *output, *prompt;
    int64_t layer;
    rp_dtype type;
    bool model, transformers;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *q = context;
    switch (key) {
    case 'o': q->output = value; return CLI_OK;
    case MODEL: q->model = true; return CLI_OK;
    case TRANSFORMERS: q->transformers = true; return CLI_OK;
    case DTYPE: return cli_dtype("--dtype", value, &q->type);
    case PROMPT: q->prompt = value; return CLI_OK;
    case LAYER: return cli_integer("--layer", value, 0, 1 << 20, &q->layer);
    default: return -1;
    }
}

/* Add a row-major copy of a view. Return -1 if out of memory. */
static int add_view(io_set *set, const char *name, const rp_array *a)
{
    int64_t n = 1, at[RP_MAX_AXES] = {0};
    for (int32_t x = 0; x < a->ndim; x++)
        n *= a->shape[x];
    const size_t size = rp_dtype_size(a->dtype);
    char *to = malloc((size_t)n * size + 1);
    if (!to || io_add(set, name, a->dtype, a->ndim, a->shape, to, false) != 0) {
        free(to);
        return -1;
    }
    for (int64_t x = 0; x < n; x++) {
        int64_t from = 0;
        for (int32_t y = 0; y < a->ndim; y++)
            from += at[y] * a->stride[y];
        memcpy(to + (size_t)x * size, (const char *)a->data + from * (int64_t)size, size);
        for (int32_t y = a->ndim - 1; y >= 0 && ++at[y] == a->shape[y]; y--)
            at[y] = 0;
    }
    return 0;
}

void lab_token(char name[8], unsigned char byte)
{
    snprintf(name, 8, byte > ' ' && byte < 0x7f ? "%c" : byte == ' ' ? "_" : "\\x%02x", byte);
}

/* Add the printable names of the tokens to the metadata, as a JSON list. */
static int add_tokens(io_set *set, const nn_model *m, const int32_t *tokens, int64_t n)
{
    json_t *all = json_array();
    bool good = true;
    for (int64_t t = 0; t < n; t++) {
        size_t size, used = 0, character;
        unsigned char byte;
        const unsigned char *text = lab_token_text(m, tokens[t], &byte, &size);
        char *name = malloc(4 * size + 8); /* lab_token needs 8 bytes for the last character, of which it uses 5 */
        for (size_t x = 0; name && x<size; x += character> 1 ? character : 1) {
            character = io_utf8(text + x, size - x);
            if (character > 1)
                memcpy(name + used, text + x, character);
            else
                lab_token(name + used, text[x]);
            used += character > 1 ? character : strlen(name + used);
        }
        json_array_append_new(all, name ? json_stringn(name, used) : NULL);
        good &= name != NULL;
        free(name);
    }
    char *list = json_dumps(all, 0);
    const int code = list && good && !io_json_lost() ? io_add_meta(set, "tokens", list) : -1;
    free(list);
    json_decref(all);
    return code;
}

/* Add the arrays of the terms, and print the options of relpos attend that refer to them. */
static int add_terms(io_set *set, const nn_model *m, int64_t layer, const rp_tensors *t, FILE *to)
{
    const nn_stack *s = &m->stack[0];
    int code = 0;
    rp_term terms[RP_MAX_TERMS];
    const int32_t n_terms = nn_layer_terms(m, 0, layer, terms);
    for (int32_t n = 0; n < n_terms; n++) {
        const rp_term_kind kind = s->terms[n].term.kind;
        char text[1024];
        if (rp_term_print(&terms[n], text, sizeof text) != RP_OK)
            return -1;
        const char *parameters = strchr(text, ',');
        const bool bias = rp_term_is_bias(kind), name = rp_term_takes_name(kind);
        fprintf(to,
                bias   ? " --bias %s%s"
                : name ? " --%s%s"
                       : " --%s %s",
                rp_term_name(kind),
                bias && parameters ? parameters
                : parameters       ? parameters + 1
                                   : "");
        bool first = !bias && !parameters;
        for (int x = 0; x < RP_MAX_ARRAYS && code == 0; x++)
            if (s->terms[n].source[x] != NN_ABSENT) {
                char array[64];
                snprintf(array, sizeof array, "%s.%s", s->terms[n].name, rp_term_array(kind, x));
                code = add_view(set, array, &t->term[n][x]);
                if (name)
                    fprintf(to, " %s", array);
                else
                    fprintf(to, "%s%s=%s", first ? "" : ",", rp_term_array(kind, x), array);
                first = false;
            }
    }
    return code;
}

/* Add the arrays of the terms, and the options that give relpos attend the attention of this layer. Return these
 * options, for the command to print; NULL if out of memory. */
static char *add_options(io_set *set, const nn_model *m, int64_t layer, const rp_tensors *t)
{
    char *shown = NULL;
    size_t size;
    FILE *to = open_memstream(&shown, &size);
    int code = to ? add_terms(set, m, layer, t, to) : -1;
    if (to && m->c.scale > 0) {
        char text[NN_REAL_MAX];
        nn_print_real(text, m->c.scale);
        fprintf(to, " --scale %s", text);
    }
    if (to && m->stack[0].causal)
        fputs(" --causal", to);
    if (to && !cli_close_text(to, &shown))
        code = -1;
    if (code == 0)
        code = io_add_meta(set, "options", *shown ? shown + 1 : shown);
    if (code != 0) {
        free(shown);
        shown = NULL;
    }
    return shown;
}

static int export_model(const char *path, const request *q)
{
    char err[NN_ERR_MAX];
    nn_model m;
    rp_pool *pool = NULL;
    int64_t step;
    int code = lab_open_any(&m, path, &step, 1, &pool);
    if (code != CLI_OK)
        return code;
    if (q->transformers ? nn_transformers_write(&m, q->output, q->type, err) != 0
                        : nn_checkpoint_save(&m, q->output, step, q->type, err) != 0)
        code = cli_error(CLI_FAILED, "%s", err);
    nn_model_destroy(&m);
    rp_pool_destroy(pool);
    return code;
}

int lab_inspection_at(lab_inspection *look, const char *path, const char *text, bool bytes, char err[NN_ERR_MAX])
{
    int64_t step;
    nn_model *m = &look->m;
    const int code = (bytes ? lab_open : lab_open_any)(m, path, &step, 1, &look->pool);
    if (code != CLI_OK)
        return code;
    look->open = true;
    if (bytes && m->c.bos)
        return nn_fail(err,
                       "%.300s: windows of this model begin with a token that is not a byte (use a model with bos = 0)",
                       path);
    if (m->n_stacks > 1)
        return nn_fail(err, "%.300s: layers of an encoder-decoder cannot be written (use --model or --transformers)",
                       path);
    look->tokens = lab_tokens(m, text, &look->n, err);
    real *logits = malloc((size_t)(m->c.vocab > m->c.classes ? m->c.vocab : m->c.classes) * sizeof *logits);
    if (look->tokens && !logits)
        nn_fail(err, "lab: out of memory while computing %lld logits (close other programs)", (long long)m->c.vocab);
    const bool done = look->tokens && logits && lab_net(&look->net, m, look->pool, 1, look->n, false, 0, err) == 0 &&
                      nn_net_logits(look->net, look->n, look->tokens, logits, err) == 0;
    free(logits);
    return done ? CLI_OK : -1;
}

void lab_inspection_end(lab_inspection *look)
{
    if (!look->open)
        return;
    free(look->tokens);
    nn_net_destroy(look->net);
    nn_model_destroy(&look->m);
    rp_pool_destroy(look->pool);
}

static int run(const cli_command *self, int argc, char **argv)
{
    request q = {.type = RP_F32, .layer = -1};
    const char *path;
    char err[NN_ERR_MAX], why[IO_ERR_MAX];
    int n, code = cli_options(self, argc, argv, on_option, &q, &path, 1, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(
            CLI_USAGE,
            "lab export: no run was given (write relpos lab export out/run --model -o out/model.safetensors)");
    if (!q.output)
        return cli_error(CLI_USAGE, "lab export: no file to write was given (give one with -o FILE)");
    const bool weights = q.model || q.transformers;
    const char *option = q.model ? "--model" : "--transformers";
    if (q.model && q.transformers)
        return cli_error(CLI_USAGE, "--transformers: --model writes another format (remove one of them)");
    if (weights && q.prompt && *q.prompt)
        return cli_error(CLI_USAGE, "lab export: %s takes no text (remove --prompt)", option);
    if (!weights && !(q.prompt && *q.prompt))
        return cli_error(CLI_USAGE, "lab export: no text was given (use --prompt TEXT or --model)");
    if (weights && q.layer >= 0)
        return cli_error(CLI_USAGE, "--layer: %s writes all layers (remove one of them)", option);
    if (!weights && q.type != RP_F32)
        return cli_error(CLI_USAGE,
                         "--dtype: the arrays of a layer are f32 (remove it, or use --model or --transformers)");
    if (q.type == RP_F64)
        return cli_error(CLI_USAGE,
                         "--dtype: f64 is not supported, because the weights are f32 (use f32, f16 or bf16)");
    if (q.transformers)
        return export_model(path, &q);
    const io_format format = io_format_of(q.output);
    if (format == IO_UNKNOWN || (q.model && format != IO_SAFETENSORS))
        return cli_error(CLI_USAGE, "--output: %s: the suffix is not .safetensors%s (rename the file)", q.output,
                         q.model ? "" : " or .npz");
    if (q.model)
        return export_model(path, &q);
    q.layer = q.layer < 0 ? 0 : q.layer;
    lab_inspection look = {0};
    rp_tensors t;
    io_set set = {0};
    int state = lab_inspection_at(&look, path, q.prompt, false, err);
    if (state > 0)
        return state;
    if (state == 0)
        state = nn_net_attention(look.net, q.layer, &t, NULL, err);
    char *shown = NULL;
    if (state == 0) {
        snprintf(err, sizeof err, "out of memory while copying the arrays (use a shorter prompt)");
        state = add_view(&set, "q", &t.q) != 0 || add_view(&set, "k", &t.k) != 0 || add_view(&set, "v", &t.v) != 0 ||
                        !(shown = add_options(&set, &look.m, q.layer, &t)) || add_view(&set, "out", &t.out) != 0 ||
                        add_tokens(&set, &look.m, look.tokens, look.n) != 0
                    ? -1
                    : 0;
    }
    if (state == 0 && io_write(q.output, format, &set, why) != 0)
        state = nn_fail(err, "%.400s", why);
    if (state == 0)
        printf("relpos attend %s -o OUT%s\n", q.output, shown);
    code = state == 0 ? CLI_OK : cli_error(CLI_FAILED, "lab export: %s", err);
    free(shown);
    io_free(&set);
    lab_inspection_end(&look);
    return code;
}

const cli_command lab_export = {
    .name = "lab export",
    .summary = "write a layer's attention on a text, for attend, explain and bias; or write only the model",
    .usage = "DIR|FILE --prompt TEXT|--model|--transformers -o FILE|DIR [options]",
    .example =
        "  relpos lab export out/run --prompt 'The end of the line' --layer 1 -o out/x.safetensors\n"
        "  The command prints the relpos attend command that repeats the layer's attention; the file also has the "
        "result, out.\n"
        "  relpos lab export out/run --model --dtype f16 -o out/model.safetensors\n"
        "  relpos lab export out/rope --transformers --dtype bf16 -o out/hf\n",
    .options = options,
    .run = run,
};
