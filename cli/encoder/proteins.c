/* proteins.c -- relpos proteins: embed the proteins of a FASTA file with ESM-2, or with a model of relpos t5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/encoder/encoder.h"
#include "cli/t5/proteins.h"
#include <stdlib.h>
#include <string.h>

static cli_encoder *encoder_of(const protein_job *j)
{
    return j->encoder;
}

/* ------------------------------------------------------------------------------------------------ the model */

static void set_facts(protein_job *j, bool loaded)
{
    const rp_encoder_info *i = rp_encoder_about(encoder_of(j)->model);
    const double d = (double)i->width;
    j->facts = (protein_facts){.width = i->width,
                               .bytes = loaded ? i->bytes : 0,
                               .max_residues = i->max_tokens > 0 ? i->max_tokens - 2 : 0,
                               .type = i->type,
                               .token_cost = 4 * d * d + 2 * d * (double)i->inner,
                               .pair_cost = 2 * d};
}

static rp_status residues(const protein_job *j, const char *text, int64_t n, rp_t5_protein *p)
{
    *p = (rp_t5_protein){.before = 1};
    const rp_status status = rp_encoder_residues(encoder_of(j)->model, text, n, &p->tokens, &p->n, &p->replaced);
    p->residues = p->n - 2;
    return status;
}

/* Check that it is a model of proteins. */
static int check_model(const protein_job *j)
{
    rp_t5_protein p;
    if (residues(j, "M", 1, &p) != RP_OK)
        return cli_error(CLI_FAILED, "%s: %s", j->kind->command, rp_encoder_last_error());
    rp_encoder_free(p.tokens);
    return CLI_OK;
}

static int look(protein_job *j, const char *path)
{
    cli_encoder *e = encoder_of(j);
    e->type = j->common.type;
    e->threads = j->common.threads;
    int code = cli_encoder_open(e, path, NULL);
    if (code == CLI_OK)
        code = check_model(j);
    if (code == CLI_OK)
        set_facts(j, false);
    return code;
}

static int open_model(protein_job *j, const char *path)
{
    const int code = encoder_of(j)->model == NULL ? look(j, path) : CLI_OK; /* look runs in rank 0 only */
    if (code == CLI_OK)
        set_facts(j, true);
    return code;
}

static int find_family(protein_job *j, const char *given)
{
    if (given != NULL)
        return cli_error(CLI_USAGE, "--family: only models of `relpos t5 proteins` have several (remove it)");
    if (j->common.tokenizer != NULL)
        return cli_error(CLI_USAGE, "--tokenizer: only models of `relpos t5 proteins` take one (remove it)");
    j->family = "esm";
    return CLI_OK;
}

static int keep(const protein_job *j, const char *output)
{
    return cli_encoder_keep(encoder_of(j), output);
}

static int agree(const protein_job *j)
{
    return cli_encoder_agree(encoder_of(j));
}

static int64_t call_bytes(const protein_job *j, int64_t rows)
{
    const int64_t call = rp_encoder_hidden_bytes(encoder_of(j)->model, rows, rows);
    int64_t bytes; /* with all rows, of which `encode` drops two for each protein */
    return call < 0 || __builtin_mul_overflow(rows, 4 * j->facts.width, &bytes) ||
                   __builtin_add_overflow(bytes, call, &bytes)
               ? -1
               : bytes;
}

static int checksum(const protein_job *j, char text[17])
{
    return rp_encoder_checksum(encoder_of(j)->model, text) == RP_OK
               ? CLI_OK
               : cli_error(CLI_FAILED, "%s", rp_encoder_last_error());
}

/* Copy the rows of the residues, without those of <cls> and <eos>. */
static void copy_rows(const float *hidden, int64_t width, int64_t n, const rp_t5_protein *proteins, float *out)
{
    for (int64_t k = 0; k < n; k++) {
        const int64_t size = proteins[k].residues * width;
        memcpy(out, hidden + width, (size_t)size * sizeof *out);
        hidden += size + 2 * width;
        out += size;
    }
}

static rp_status encode(const protein_job *j, int64_t n, const rp_t5_protein *proteins, float *out,
                        rp_progress *progress, void *context)
{
    rp_encoder_tokens *sequences = malloc(((size_t)n + 1) * sizeof *sequences);
    int64_t rows = 0;
    for (int64_t k = 0; sequences != NULL && k < n; rows += proteins[k++].n)
        sequences[k] = (rp_encoder_tokens){proteins[k].tokens, NULL, proteins[k].n};
    float *hidden = sequences != NULL ? malloc((size_t)(rows * j->facts.width + 1) * sizeof *hidden) : NULL;
    rp_status status = RP_E_NOMEM;
    if (hidden != NULL)
        status = rp_encoder_hidden(encoder_of(j)->model, n, sequences, hidden, progress, context);
    if (status == RP_OK)
        copy_rows(hidden, j->facts.width, n, proteins, out);
    free(hidden);
    free(sequences);
    return status;
}

static int refused(const protein_job *j)
{
    return cli_encoder_refused(encoder_of(j));
}

static void close_model(protein_job *j)
{
    cli_encoder_close(encoder_of(j));
}

static const protein_kind kind = {.command = "proteins",
                                  .look = look,
                                  .open = open_model,
                                  .find_family = find_family,
                                  .keep = keep,
                                  .agree = agree,
                                  .call_bytes = call_bytes,
                                  .checksum = checksum,
                                  .residues = residues,
                                  .encode = encode,
                                  .free_tokens = rp_encoder_free,
                                  .refused = refused,
                                  .close = close_model};

/* ------------------------------------------------------------------------------------------------ the command */

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    cli_encoder encoder = {.command = self->name};
    return protein_run(&kind, &encoder, self, argc, argv);
}

static int run(const cli_command *self, int argc, char **argv)
{
    const char *model;
    const int code = protein_find_model(self, argc, argv, &model);
    if (code >= 0)
        return code;
    if (model != NULL && cli_is_t5(model))
        return cli_t5_proteins.run(&cli_t5_proteins, argc, argv);
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command cmd_proteins = {
    .name = "proteins",
    .summary = "embed the proteins of a FASTA file, with ESM-2, ProtT5, ProstT5 or Ankh",
    .usage = "DIR|FILE FASTA -o OUT.npz [options]      FASTA may be compressed with gzip, or - for standard input",
    .example = "  relpos proteins esm2_t33_650M_UR50D proteome.fasta.gz -o proteome.npz --pool\n",
    .options = protein_options,
    .shared = true,
    .run = run,
};
