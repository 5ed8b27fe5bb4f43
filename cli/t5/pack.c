/* pack.c -- relpos t5 pack: write a model to one file, which can be mapped and used without copying.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/t5.h"
#include <stdio.h>
#include <string.h>

enum { OUT = 'o', NO_TOKENIZER = T5_OWN };

static const cli_option options[] = {
    {"output", OUT, "FILE", "write the packed model to FILE"},
    {"no-tokenizer", NO_TOKENIZER, NULL, "do not read the tokenizer, and write none"},
    T5_COMMON_OPTIONS,
    {0},
};

typedef struct request {
    cli_t5_common common;
    const char *output;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case OUT: r->output = value; return CLI_OK;
    case NO_TOKENIZER: r->common.no_tokenizer = true; return CLI_OK;
    default: return cli_t5_common_option(&r->common, key, value);
    }
}

/* Open the model. A packed file cannot have blocks of a .gguf file: unless another type is given, they become q8. */
static int open_model(cli_t5_common *c, const char *path)
{
    int code = cli_t5_open(c, path);
    if (code != CLI_OK || c->type != NULL || strcmp(rp_t5_about(c->model)->type, "gguf") != 0)
        return code;
    fprintf(stderr,
            "t5 pack: blocks of the .gguf file become q8, 9 bits a weight; without packing they stay as they are "
            "(--type gives another type)\n");
    cli_t5_close(c);
    c->type = "q8";
    return cli_t5_open(c, path);
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {0};
    const char *args[1] = {NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 1, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "t5 pack: no model was given (write relpos t5 pack DIR -o FILE)");
    if (r.output == NULL)
        return cli_error(CLI_USAGE, "t5 pack: no output file was given (give one with -o FILE)");
    if (r.common.no_tokenizer && r.common.tokenizer != NULL)
        return cli_error(CLI_USAGE, "--no-tokenizer: --tokenizer was given too (remove one of them)");
    code = cli_check_output("-o", r.output);
    if (code == CLI_OK)
        code = open_model(&r.common, args[0]);
    if (code == CLI_OK)
        code = cli_t5_keep_model(&r.common, r.output);
    cli_t5_let_signals(&r.common);
    if (code == CLI_OK && rp_t5_pack(r.common.model, r.output) != RP_OK)
        code = cli_t5_refused("t5 pack");
    cli_t5_close(&r.common);
    return code;
}

const cli_command cli_t5_pack = {
    .name = "t5 pack",
    .summary = "write a model to one file that opens faster",
    .usage = "DIR|FILE -o FILE [options]",
    .example = "  relpos t5 pack flan-t5-small --type int8 -o flan.relpos\n",
    .options = options,
    .run = run,
};
