/* score_info.c -- relpos t5 score, tokenize and info.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/t5.h"
#include <stdlib.h>
#include <string.h>

enum { EACH = T5_OWN, DECODE, JSON };

typedef struct request {
    cli_t5_common common;
    const char *text;
    bool each, decode, json;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case EACH: r->each = true; return CLI_OK;
    case DECODE: r->decode = true; return CLI_OK;
    case JSON: r->json = true; return CLI_OK;
    case T5_TEXT: r->text = value; return CLI_OK;
    default: return cli_t5_common_option(&r->common, key, value);
    }
}

typedef int on_line(const request *r, const cli_lines *l, const char *line, int64_t length);

/* Read the options, open the model, and call `each` for every line. */
static int run_lines(const cli_command *self, int argc, char **argv, rp_t5_loading load, on_line *each)
{
    request r = {.common.load = load};
    cli_lines l = {0};
    cli_progress progress = {.what = self->name};
    const char *args[2] = {NULL, NULL}, *line;
    int64_t length = 0;
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "%s: no model was given (write relpos %s DIR)", self->name, self->name);
    if (r.common.keep_special && !r.decode)
        return cli_error(CLI_USAGE, "--keep-special-tokens: only --decode prints text (add --decode)");
    code = cli_t5_begin(&r.common, &l, args[0], args[1], r.text, NULL);
    while (code == CLI_OK) {
        code = cli_lines_next(&l, &line, &length);
        if (code != CLI_OK || length < 0)
            break;
        code = each(&r, &l, line, length);
        if (!cli_flush(stdout) && code == CLI_OK)
            code = CLI_FAILED; /* the reader has closed the output */
        cli_show_lines(&progress, &l, stdout);
    }
    cli_progress_end(&progress);
    cli_lines_close(&l);
    cli_t5_close(&r.common);
    return code;
}

/* ------------------------------------------------------------------------------------------------ score */

static const cli_option score_options[] = {
    {"each", EACH, NULL, "also print the log-probability of each token"},
    {"json", JSON, NULL, "print one JSON object for each line"},
    {"text", T5_TEXT, "TEXT", "read one line from the command line instead of a file"},
    T5_TOKENS_OPTION,
    T5_COMMON_OPTIONS,
    {0},
};

static int print_score(const request *r, rp_t5_tokens source, rp_t5_tokens target)
{
    double total, *each = malloc(((size_t)target.n + 1) * sizeof *each);
    if (each == NULL)
        return cli_error(CLI_FAILED, "t5 score: out of memory while scoring (use a shorter target)");
    int code = CLI_OK;
    if (rp_t5_score(r->common.model, source, target, &total, each, cli_t5_progress, NULL) != RP_OK)
        code = cli_t5_refused("t5 score");
    if (code == CLI_OK) {
        fputs(r->json ? "{\"score\": " : "", stdout);
        cli_json_number(stdout, "%.6f", total); /* finite: rp_t5_score fails otherwise */
        printf(r->json ? ", \"tokens\": %lld" : "\t%lld", (long long)target.n);
    }
    if (code == CLI_OK && r->each)
        fputs(r->json ? ", \"each\": [" : "\t", stdout);
    for (int64_t k = 0; code == CLI_OK && r->each && k < target.n; k++) {
        fputs(k == 0 ? "" : r->json ? ", " : " ", stdout);
        cli_json_number(stdout, "%.6f", each[k]);
    }
    if (code == CLI_OK)
        puts(!r->json ? "" : r->each ? "]}" : "}");
    free(each);
    return code;
}

static int score_line(const request *r, const cli_lines *l, const char *line, int64_t length)
{
    const char *tab = memchr(line, '\t', (size_t)length);
    int32_t *source = NULL, *target = NULL;
    int64_t n_source, n_target;
    if (tab == NULL)
        return cli_error(CLI_FAILED,
                         "line %lld: there is no tab between source and target (write a source, a tab and a target)",
                         (long long)l->number);
    int code = cli_t5_read_tokens(&r->common, l, "", line, tab - line, &source, &n_source);
    if (code == CLI_OK)
        code = cli_t5_read_tokens(&r->common, l, "", tab + 1, length - (tab + 1 - line), &target, &n_target);
    if (code == CLI_OK)
        code = print_score(r, (rp_t5_tokens){source, n_source}, (rp_t5_tokens){target, n_target});
    rp_t5_free(source);
    rp_t5_free(target);
    return code;
}

static int run_score(const cli_command *self, int argc, char **argv)
{
    return run_lines(self, argc, argv, RP_T5_LOAD_ALL, score_line);
}

const cli_command cli_t5_score = {
    .name = "t5 score",
    .summary = "print the log-probability of each target given its source",
    .usage = "DIR|FILE [LINES] [options]      lines: source, a tab, target",
    .example =
        "  printf 'translate English to German: Good morning.\\tGuten Morgen.\\n' | relpos t5 score flan-t5-small\n",
    .options = score_options,
    .run = run_score,
};

/* ------------------------------------------------------------------------------------------------ tokenize */

static const cli_option tokenize_options[] = {
    {"decode", DECODE, NULL, "read token numbers and print their text"},
    {"text", T5_TEXT, "TEXT", "read one line from the command line instead of a file"},
    T5_KEEP_SPECIAL_OPTION,
    T5_COMMON_OPTIONS,
    {0},
};

static int tokenize_line(const request *r, const cli_lines *l, const char *line, int64_t length)
{
    cli_t5_common in = r->common, out = r->common;
    int32_t *tokens;
    int64_t n;
    in.tokens = r->decode;
    out.tokens = !r->decode;
    int code = cli_t5_read_tokens(&in, l, "", line, length, &tokens, &n);
    if (code != CLI_OK)
        return code;
    code = cli_t5_print(stdout, &out, tokens, n);
    putchar('\n');
    rp_t5_free(tokens);
    return code;
}

static int run_tokenize(const cli_command *self, int argc, char **argv)
{
    return run_lines(self, argc, argv, RP_T5_LOAD_TEXT, tokenize_line);
}

const cli_command cli_t5_tokenize = {
    .name = "t5 tokenize",
    .summary = "print the token numbers of each line",
    .usage = "DIR|FILE [LINES] [options]",
    .example = "  relpos t5 tokenize flan-t5-small --text 'Good morning.'\n",
    .options = tokenize_options,
    .run = run_tokenize,
};

/* ------------------------------------------------------------------------------------------------ info */

static const cli_option info_options[] = {
    {"json", JSON, NULL, "print one JSON object"},
    T5_COMMON_OPTIONS,
    {0},
};

static void print_json(const rp_t5_info *i)
{
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"vocab", i->vocab},
                   {"d_model", i->d_model},
                   {"d_kv", i->d_kv},
                   {"d_ff", i->d_ff},
                   {"heads", i->heads},
                   {"layers", i->layers},
                   {"decoder_layers", i->decoder_layers},
                   {"experts", i->experts},
                   {"parameters", i->parameters},
                   {"bytes", i->bytes},
                   {"step_bytes", i->step_bytes},
                   {"start", i->start},
                   {"eos", i->eos},
                   {"pad", i->pad},
                   {"not_finite", i->not_finite},
                   {"packed", i->packed}};
    printf(
        "{\"kind\": \"%s\", \"type\": \"%s\", \"activation\": \"%s\", \"attention\": \"%s\", \"gated\": %s, \"tied\": "
        "%s, \"scaled\": %s, \"tokenizer\": %s",
        i->kind, i->type, i->activation, i->attention, i->gated ? "true" : "false", i->tied ? "true" : "false",
        i->scaled ? "true" : "false", i->has_tokenizer ? "true" : "false");
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        printf(", \"%s\": %lld", numbers[n].key, (long long)numbers[n].value);
    printf(", \"source\": ");
    cli_json_string(stdout, i->source);
    printf(", \"source_checksum\": ");
    cli_json_string(stdout, i->source_checksum);
    puts("}");
}

static void print_info(const rp_t5_info *i)
{
    char safe[160], checksum[40];
    const int digits = i->parameters < 1000000 ? 3 : 1; /* more digits, or a tiny model would print as 0.0 million */
    printf("model        %s, %.*f million parameters, %s: %.*f MB\n", i->kind, digits, (double)i->parameters / 1e6,
           i->type, digits, (double)i->bytes / 1e6);
    printf("layers       %lld + %lld, width %lld, %lld heads of %lld\n", (long long)i->layers,
           (long long)i->decoder_layers, (long long)i->d_model, (long long)i->heads, (long long)i->d_kv);
    printf("feed-forward %lld, %s%s", (long long)i->d_ff, i->gated ? "gated " : "", i->activation);
    if (i->experts > 0)
        printf(", %lld experts", (long long)i->experts);
    printf("\nattention    %s\n", i->attention);
    printf("vocabulary   %lld, %s; start %d, end %d, padding %d\n", (long long)i->vocab,
           i->has_tokenizer ? "with a tokenizer" : "no tokenizer", (int)i->start, (int)i->eos, (int)i->pad);
    if (i->decoder_layers > 0)
        printf("head         %s%s; a step reads %.*f MB\n", i->tied ? "the embedding" : "separate",
               i->scaled ? ", scaled" : "", digits, (double)i->step_bytes / 1e6);
    else
        printf("head         none: the model only encodes\n");
    if (i->packed > 1)
        printf("packed       from %s, whose tensors have the checksum %s\n", io_safe(safe, sizeof safe, i->source),
               io_safe(checksum, sizeof checksum, i->source_checksum));
    if (i->packed == 1)
        printf("packed       by relpos 0.1, without a checksum or the name of its folder (pack the folder again)\n");
    if (i->not_finite > 0)
        printf("damaged      %lld of the weights are NaN or infinite\n", (long long)i->not_finite);
}

static int run_info(const cli_command *self, int argc, char **argv)
{
    request r = {.common.load = RP_T5_LOAD_SIZES};
    const char *args[1] = {NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 1, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "t5 info: no model was given (write relpos t5 info DIR)");
    code = cli_t5_open(&r.common, args[0]);
    if (code == CLI_OK)
        (r.json ? print_json : print_info)(rp_t5_about(r.common.model));
    cli_t5_close(&r.common);
    return code;
}

const cli_command cli_t5_info = {
    .name = "t5 info",
    .summary = "print the sizes and properties of a model",
    .usage = "DIR|FILE [options]",
    .example = "  relpos t5 info flan-t5-small\n",
    .options = info_options,
    .run = run_info,
};
