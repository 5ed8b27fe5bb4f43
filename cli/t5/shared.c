/* shared.c -- opening a model, and reading and printing lines, for all commands of `relpos t5`.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/t5.h"
#include "cli/team.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cli_t5_common_option(cli_t5_common *c, int key, const char *value)
{
    char safe[64];
    switch (key) {
    case T5_TYPE:
        if (strcmp(value, "f32") != 0 && strcmp(value, "f16") != 0 && strcmp(value, "bf16") != 0 &&
            strcmp(value, "int8") != 0 && strcmp(value, "int4") != 0 && strcmp(value, "q8") != 0)
            return cli_error(CLI_USAGE, "--type: the type \"%s\" is unknown (use f32, f16, bf16, int8, int4 or q8)",
                             io_safe(safe, sizeof safe, value));
        c->type = value;
        return CLI_OK;
    case T5_TOKENIZER: c->tokenizer = value; return CLI_OK;
    case T5_EXACT: c->draft = c->draft != NULL ? c->draft : "int4"; return CLI_OK;
    case T5_DRAFT:
        if (strcmp(value, "int8") != 0 && strcmp(value, "int4") != 0)
            return cli_error(CLI_USAGE, "--draft: the type \"%s\" is unknown (use int8 or int4)",
                             io_safe(safe, sizeof safe, value));
        c->draft = value;
        return CLI_OK;
    case T5_THREADS: return cli_integer("--threads", value, 1, 4096, &c->threads);
    case T5_TOKENS: c->tokens = true; return CLI_OK;
    case T5_KEEP_SPECIAL: c->keep_special = true; return CLI_OK;
    default: return -1;
    }
}

rp_t5_tokens *cli_t5_sources(const cli_t5_task *t)
{
    const int32_t *tokens = (const int32_t *)(const void *)(t->lengths + t->n);
    rp_t5_tokens *sources = malloc(((size_t)t->n + 1) * sizeof *sources);
    for (int64_t k = 0; sources != NULL && k < t->n; tokens += t->lengths[k++])
        sources[k] = (rp_t5_tokens){tokens, t->lengths[k]};
    return sources;
}

void cli_t5_mean(float *rows, int64_t n, int64_t d)
{
    for (int64_t k = 0; k < d; k++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)rows[i * d + k];
        rows[k] = (float)(sum / (double)n);
    }
}

int cli_t5_stopped(const char *command)
{
    return cli_error(CLI_FAILED, "%s: stopped by a signal (start it again; no file was changed)", command);
}

int cli_t5_refused(const char *command)
{
    return cli_stop_requested() ? cli_t5_stopped(command)
                                : cli_error(CLI_FAILED, "%s: %s", command, rp_t5_last_error());
}

int cli_t5_progress(void *context, double fraction)
{
    if (context != NULL)
        cli_progress_show(context, fraction);
    return cli_stop_requested();
}

int cli_t5_stop_asked(void *context)
{
    (void)context;
    return cli_stop_requested();
}

rp_t5_generation cli_t5_greedy(const rp_t5 *model)
{
    rp_t5_generation g = rp_t5_generation_of(model);
    g.unsupported = NULL; /* ignore unsupported keys of generation_config.json: greedy search needs none of them */
    g.beams = g.returned = 1;
    g.sample = 0;
    g.min_new_tokens = g.no_repeat_ngram = 0;
    g.repetition_penalty = 1;
    g.forced_first = g.forced_last = -1;
    g.suppress.n = g.begin_suppress.n = g.n_bad_words = g.n_stop = 0;
    g.cancelled = cli_t5_stop_asked;
    return g;
}

int cli_t5_open(cli_t5_common *c, const char *path)
{
    rp_t5_opening o = rp_t5_opening_init();
    char place[PATH_MAX];
    c->threads = c->threads > 0 ? c->threads : cli_team_threads();
    if (c->threads > 0 && rp_pool_create(&c->pool, (int32_t)c->threads) != RP_OK)
        return cli_refused(CLI_FAILED, "t5", NULL, "fewer --threads");
    o.type = c->type;
    o.pool = c->pool;
    o.draft = c->draft;
    o.load = c->load;
    o.tokenizer = c->tokenizer;
    o.no_tokenizer = c->no_tokenizer;
    if (rp_t5_open(&c->model, cli_find_shipped(path, place), &o) != RP_OK)
        return cli_error(CLI_FAILED, "%s", rp_t5_last_error());
    for (int64_t n = 0; cli_team_rank() == 0 && rp_t5_note(c->model, n) != NULL; n++)
        fprintf(stderr, "relpos: note: %s\n", rp_t5_note(c->model, n));
    cli_catch_signals(true);
    c->catches = true;
    return CLI_OK;
}

int cli_t5_agree(const cli_t5_common *c)
{
    char checksum[17], text[256];
    if (cli_team_ranks() == 1)
        return CLI_OK;
    if (rp_t5_checksum(c->model, checksum) != RP_OK)
        return cli_t5_refused("t5");
    const rp_t5_info *i = rp_t5_about(c->model);
    snprintf(text, sizeof text, "checksum %s, %lld bytes as %s", checksum, (long long)i->bytes, i->type);
    return cli_team_agree(&(cli_team_fact){"model", "use the same file on all machines", text}, 1);
}

int64_t cli_t5_part(int64_t left, int64_t most)
{
    const int32_t ranks = cli_team_ranks();
    if (ranks == 1)
        return most;
    const int64_t share = left < 0 ? T5_TEAM_PART : left / (4 * ranks), part = share > 64 ? share : 64;
    const int64_t bound = most < T5_TEAM_PART ? most : T5_TEAM_PART;
    return part < bound ? part : bound;
}

void cli_t5_let_signals(cli_t5_common *c)
{
    if (c->catches)
        cli_catch_signals(false);
    c->catches = false;
}

void cli_t5_close(cli_t5_common *c)
{
    rp_t5_close(c->model);
    rp_pool_destroy(c->pool);
    c->model = NULL;
    c->pool = NULL;
    cli_t5_let_signals(c);
}

void cli_t5_print_drafted(FILE *to, const rp_t5_drafted *d)
{
    fprintf(to, "%lld token%s proposed, %lld accepted (%.0f %%), %lld pass%s", (long long)d->proposed,
            cli_s(d->proposed), (long long)d->accepted,
            d->proposed > 0 ? 100 * (double)d->accepted / (double)d->proposed : 0, (long long)d->passes,
            d->passes == 1 ? "" : "es");
}

int cli_t5_keep_model(const cli_t5_common *c, const char *output)
{
    char safe[160];
    if (output == NULL || strcmp(output, "-") == 0 || !rp_t5_reads(c->model, output))
        return CLI_OK;
    return cli_error(CLI_FAILED, "%s: the model was read from this file (give another name for the output)",
                     io_safe(safe, sizeof safe, output));
}

int cli_t5_begin(cli_t5_common *c, cli_lines *l, const char *model, const char *lines, const char *text,
                 const char *output)
{
    int code = output != NULL ? cli_check_output("-o", output) : CLI_OK;
    if (code == CLI_OK && cli_team_rank() == 0)
        code = cli_lines_open(l, lines, text, c->tokens);
    if (code == CLI_OK)
        code = cli_t5_open(c, model);
    if (code == CLI_OK)
        code = cli_t5_keep_model(c, output);
    return code == CLI_OK ? cli_t5_agree(c) : code;
}

/* ------------------------------------------------------------------------------------------------ tokens */

/* Return the length of the word at `at`, at most 20 bytes, for use in a message. */
static int number_width(const char *at)
{
    const size_t n = strcspn(at, " \t,\r");
    return n < 20 ? (int)n : 20;
}

bool cli_t5_numbers(const char *line, int64_t length, int32_t **tokens, int64_t *n, char why[128])
{
    char *text = malloc((size_t)length + 1), *end;
    int32_t *made = malloc(((size_t)length / 2 + 1) * sizeof *made);
    *n = 0;
    why[0] = 0;
    if (text == NULL || made == NULL)
        snprintf(why, 128, "out of memory");
    else
        memcpy(text, line, (size_t)length), text[length] = 0;
    for (const char *at = text; why[0] == 0;) {
        at += strspn(at, " \t,\r");
        if (*at == 0)
            break;
        errno = 0;
        const long long number = strtoll(at, &end, 10);
        if (end == at || (*end != 0 && strchr(" \t,\r", *end) == NULL))
            snprintf(why, 128, "\"%.*s\" is not a token number", number_width(at), at);
        else if (errno != 0 || number < 0 || number > INT32_MAX)
            snprintf(why, 128, "%.20s is not in the vocabulary", at);
        else
            made[(*n)++] = (int32_t)number;
        at = end;
    }
    if (why[0] == 0 && text != NULL && (int64_t)strlen(text) < length)
        snprintf(why, 128, "it contains a null byte");
    free(text);
    if (why[0] != 0) {
        free(made);
        made = NULL;
    }
    *tokens = made;
    return made != NULL;
}

int cli_t5_read_tokens(const cli_t5_common *c, const cli_lines *l, const char *prefix, const char *line, int64_t length,
                       int32_t **tokens, int64_t *n)
{
    char why[128];
    const size_t before = strlen(prefix);
    char *text = malloc(before + (size_t)length + 2);
    if (text == NULL)
        return cli_error(CLI_FAILED, "line %lld: out of memory while reading it (use a shorter line)",
                         (long long)l->number);
    memcpy(text, prefix, before);
    text[before] = ' '; /* separate token numbers by a space; text overwrites it */
    memcpy(text + before + c->tokens, line, (size_t)length);
    if (c->tokens) {
        const bool read = cli_t5_numbers(text, (int64_t)before + 1 + length, tokens, n, why);
        free(text);
        if (!read)
            return cli_error(CLI_FAILED, "line %lld: %s (with --tokens, write numbers with spaces between them)",
                             (long long)l->number, why);
        return CLI_OK;
    }
    const rp_status status =
        rp_t5_tokenize_watched(c->model, text, (int64_t)before + length, cli_t5_stop_asked, NULL, tokens, n);
    free(text);
    if (status == RP_E_CANCELLED)
        return cli_t5_stopped("t5");
    if (status != RP_OK)
        return cli_error(CLI_FAILED, "line %lld: %s (use --tokens to give token numbers)", (long long)l->number,
                         rp_t5_last_error());
    return CLI_OK;
}

rp_status cli_t5_text(const cli_t5_common *c, const int32_t *tokens, int64_t n, char **text, int64_t *size)
{
    return c->keep_special ? rp_t5_detokenize_special(c->model, tokens, n, text, size)
                           : rp_t5_detokenize(c->model, tokens, n, text, size);
}

int cli_t5_print(FILE *to, const cli_t5_common *c, const int32_t *tokens, int64_t n)
{
    char *text;
    int64_t size;
    if (c->tokens) {
        for (int64_t k = 0; k < n; k++)
            fprintf(to, k ? " %d" : "%d", (int)tokens[k]);
        return CLI_OK;
    }
    if (cli_t5_text(c, tokens, n, &text, &size) != RP_OK)
        return cli_t5_refused("t5");
    for (int64_t k = 0; k < size; k++)
        if (text[k] == '\n')
            fputs("\\n", to);
        else
            putc(text[k], to);
    rp_t5_free(text);
    return CLI_OK;
}
