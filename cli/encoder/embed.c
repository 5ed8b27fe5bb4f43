/* embed.c -- relpos embed: write one vector for each text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/encoder/encoder.h"
#include "cli/encoder/vectors.h"
#include "cli/t5/t5.h"
#include "cli/team.h"
#include <string.h>

enum { OUT = 'o', PREFIX = ENCODER_OWN, PROMPT, NORMALIZE };

static const cli_option options[] = {
    {"output", OUT, "FILE",
     "write the array vectors [texts, width] to FILE (.npz or .safetensors), or JSON lines (.jsonl)"},
    {"normalize", NORMALIZE, NULL, "scale vectors to length 1; many models do so themselves"},
    {"prefix", PREFIX, "TEXT", "put TEXT before every text"},
    {"prompt", PROMPT, "NAME",
     "put the prompt NAME of config_sentence_transformers.json before every text; default: default_prompt_name"},
    ENCODER_OPTIONS,
    {0},
};

typedef struct request {
    cli_encoder encoder;
    const char *output, *prefix, *prompt; /* prefix: also the text of the prompt */
    bool normalize, json;
    vectors_file file;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case OUT: r->output = value; return CLI_OK;
    case PREFIX: r->prefix = value; return CLI_OK;
    case PROMPT: r->prompt = value; return CLI_OK;
    case NORMALIZE: r->normalize = true; return CLI_OK;
    default: return cli_encoder_option(&r->encoder, key, value);
    }
}

/* ------------------------------------------------------------------------------------------------ vectors */

static rp_status compute(const cli_encoder *e, int64_t n, const rp_encoder_text *texts, float *out,
                         rp_progress *progress, void *context)
{
    const request *r = e->context;
    const rp_status status = rp_encoder_embed(e->model, r->prefix, n, texts, out, progress, context);
    for (int64_t k = 0; k < n && status == RP_OK && r->normalize; k++)
        cli_normalize(out + k * e->width, e->width);
    return status;
}

static int take(cli_encoder *e, const rp_encoder_text *text, const float *vector)
{
    request *r = e->context;
    return vector != NULL ? vectors_put(&r->file, text, vector) : vectors_known(&r->file, text);
}

/* ------------------------------------------------------------------------------------------------ the file */

/* Compute the vectors, and write them. */
static int write_vectors(request *r)
{
    char settings[700], safe[640];
    cli_encoder *e = &r->encoder;
    const char *prefix = r->prefix, *norm = r->normalize ? "--normalize" : "no --normalize";
    if (prefix != NULL)
        snprintf(settings, sizeof settings, "%s, and \"%.500s\" before each text (checksum %016llx)", norm,
                 io_safe(safe, sizeof safe, prefix), (unsigned long long)io_checksum(1, prefix, strlen(prefix)));
    else
        snprintf(settings, sizeof settings, "%s, and no --prefix", norm);
    r->file =
        (vectors_file){.path = r->output, .settings = settings, .model = e->model, .width = e->width, .json = r->json};
    int code = vectors_begin(&r->file, &e->known);
    if (code == CLI_OK && e->known > 0)
        fprintf(stderr, "embed: %lld vectors are in %s, and are not computed again\n", (long long)e->known,
                io_safe(safe, sizeof safe, r->file.part));
    if (code == CLI_OK)
        code = cli_encoder_run(e);
    return vectors_end(&r->file, code);
}

static int find_prompt(request *r)
{
    if (r->prompt == NULL)
        return CLI_OK;
    return rp_encoder_prompt(r->encoder.model, r->prompt, &r->prefix) == RP_OK
               ? CLI_OK
               : cli_error(CLI_FAILED, "--prompt: %s", rp_encoder_last_error());
}

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    request r = {
        .encoder = {.command = self->name, .compute = compute, .take = take, .progress = {.what = self->name}}};
    char safe[160];
    const char *args[2] = {NULL, NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    r.encoder.context = &r;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "embed: no model was given (write relpos embed DIR texts.txt -o vectors.npz)");
    if (r.output == NULL)
        return cli_error(CLI_USAGE, "embed: no output file was given (give one with -o vectors.npz)");
    const size_t length = strlen(r.output);
    r.json = length >= 6 && strcmp(r.output + length - 6, ".jsonl") == 0;
    if (!r.json && io_format_of(r.output) == IO_UNKNOWN)
        return cli_error(CLI_USAGE, "-o: %s: the suffix is unknown (use .npz, .safetensors or .jsonl)",
                         io_safe(safe, sizeof safe, r.output));
    if (r.prompt != NULL && r.prefix != NULL)
        return cli_error(CLI_USAGE, "--prompt: --prefix replaces the prompt (remove one of the options)");
    code = r.prefix != NULL ? cli_check_utf8("--prefix", 0, r.prefix, -1) : CLI_OK;
    if (code == CLI_OK)
        code = cli_encoder_begin(&r.encoder, args[0], args[1], r.output);
    if (code == CLI_OK)
        code = find_prompt(&r);
    if (code == CLI_OK) {
        r.encoder.width = rp_encoder_about(r.encoder.model)->vector_width;
        code = cli_team_rank() != 0 ? cli_encoder_run(&r.encoder) : write_vectors(&r);
    }
    return cli_encoder_end(&r.encoder, code);
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.encoder = {.command = self->name}};
    const char *args[2] = {NULL, NULL};
    int n_args = 0;
    const int code = cli_options(self, argc, argv, on_option, &r, args, 2, &n_args);
    if (code >= 0)
        return code;
    if (n_args > 0 && cli_is_t5(args[0]))
        return cli_t5_encode.run(&cli_t5_encode, argc, argv);
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command cmd_embed = {
    .name = "embed",
    .summary = "write one vector for each text, with an encoder such as all-mpnet-base-v2",
    .usage = "DIR|FILE [TEXTS] -o OUT.npz [options]      without TEXTS: lines of standard input",
    .example = "  relpos embed all-mpnet-base-v2 notes.txt -o notes.npz\n"
               "  relpos embed all-mpnet-base-v2 table.csv --column title -o titles.npz --type q8\n",
    .options = options,
    .shared = true,
    .run = run,
};
