/* pack.c -- relpos pack: write an encoder to one file, which is mapped and used without copying.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/encoder/encoder.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { OUT = 'o', CHECK = ENCODER_OWN };

static const cli_option options[] = {
    {"output", OUT, "FILE", "write the packed model to FILE"},
    {"type", ENCODER_TYPE, "T",
     "keep weights as q8 (8 bits), f32, f16, bf16 or int8 (8 bits, faster and less exact); default: q8"},
    {"check", CHECK, NULL, "instead compare a packed file with the checksum in it"},
    {0},
};

typedef struct request {
    cli_encoder encoder;
    const char *output;
    bool check;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case OUT: r->output = value; return CLI_OK;
    case CHECK: r->check = true; return CLI_OK;
    default: return cli_encoder_option(&r->encoder, key, value);
    }
}

/* Print the size of the file, if it is one, and what the weights take. Return CLI_OK, or an exit code after printing an
 * error. */
static int print_sizes(const request *r)
{
    const rp_encoder_info *i = rp_encoder_about(r->encoder.model);
    char safe[160];
    struct stat st;
    if (strcmp(r->output, "-") == 0)
        return CLI_OK;
    if (stat(r->output, &st) != 0)
        return cli_error(CLI_FAILED, "%s: %s: it was written, but cannot be found now: %s (check the folder)",
                         r->encoder.command, io_safe(safe, sizeof safe, r->output), strerror(errno));
    if (!S_ISREG(st.st_mode))
        return CLI_OK;
    printf("%s: %.4g MB, of which %.4g MB are weights as %s", io_safe(safe, sizeof safe, r->output),
           (double)st.st_size / 1e6, (double)i->bytes / 1e6, i->type);
    if (strcmp(i->type, "f32") == 0) /* larger than the numbers themselves, because rows are padded */
        putchar('\n');
    else
        printf(" (as f32 they take %.4g MB)\n", 4 * (double)i->parameters / 1e6);
    return CLI_OK;
}

static int show(void *context, double fraction)
{
    cli_progress_show(context, fraction);
    return cli_stop_requested();
}

/* Compare a packed file with its checksum. */
static int check(request *r, const char *path)
{
    char safe[160];
    cli_encoder *e = &r->encoder;
    if (r->output != NULL || e->type != NULL)
        return cli_error(CLI_USAGE, "--check: %s",
                         r->output != NULL ? "it writes no file (remove -o)" : "the file has its type (remove --type)");
    int code = cli_encoder_open(e, path, NULL);
    if (code == CLI_OK && rp_encoder_check_file(e->model, show, &e->progress) != RP_OK)
        code = cli_encoder_refused(e);
    if (code == CLI_OK)
        printf("%s: the checksum is correct\n", io_safe(safe, sizeof safe, path));
    return cli_encoder_end(e, code);
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.encoder = {.command = self->name, .progress = {.what = self->name}}};
    const char *args[1] = {NULL};
    int n_args = 0, code = cli_options(self, argc, argv, on_option, &r, args, 1, &n_args);
    if (code >= 0)
        return code;
    if (n_args < 1)
        return cli_error(CLI_USAGE, "pack: no model was given (write relpos pack DIR -o FILE)");
    if (r.check)
        return check(&r, args[0]);
    if (r.output == NULL)
        return cli_error(CLI_USAGE, "pack: no output file was given (give one with -o FILE)");
    if (r.encoder.type == NULL)
        r.encoder.type = "q8";
    code = cli_encoder_open(&r.encoder, args[0], r.output);
    if (code == CLI_OK && strcmp(r.encoder.type, "int8") == 0)
        fputs(
            "pack: int8 has one scale for each row, which changes the results of some models noticeably (compare with "
            "q8)\n",
            stderr);
    if (code == CLI_OK && rp_encoder_pack(r.encoder.model, r.output) != RP_OK)
        code = cli_encoder_refused(&r.encoder);
    if (code == CLI_OK)
        code = print_sizes(&r);
    return cli_encoder_end(&r.encoder, code);
}

const cli_command cmd_pack = {
    .name = "pack",
    .summary = "write an encoder to one file that opens faster, in 8 bits",
    .usage = "DIR -o FILE [options]      or: FILE --check",
    .example = "  relpos pack all-mpnet-base-v2 -o mpnet.relpos\n"
               "  relpos embed mpnet.relpos notes.txt -o notes.npz\n",
    .options = options,
    .run = run,
};
