/* protein_t5.c -- relpos t5 proteins: the models ProtT5, ProstT5 and Ankh.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/proteins.h"

static void set_facts(protein_job *j, int64_t bytes)
{
    const rp_t5_info *i = rp_t5_about(j->common.model);
    const double d = (double)i->d_model, inner = (double)i->heads * (double)i->d_kv;
    j->facts = (protein_facts){.width = i->d_model,
                               .bytes = bytes,
                               .type = i->type,
                               .token_cost = 4 * d * inner + (i->gated ? 3 : 2) * d * (double)i->d_ff,
                               .pair_cost = 2 * inner};
}

static int look(protein_job *j, const char *path)
{
    char place[PATH_MAX];
    rp_t5_opening o = rp_t5_opening_init();
    o.load = RP_T5_LOAD_TEXT;
    if (rp_t5_open(&j->common.model, cli_find_shipped(path, place), &o) != RP_OK)
        return cli_error(CLI_FAILED, "%s", rp_t5_last_error());
    set_facts(j, 0); /* the weights may be mapped from a file */
    return CLI_OK;
}

static int open_model(protein_job *j, const char *path)
{
    rp_t5_close(j->common.model);
    j->common.model = NULL;
    const int code = cli_t5_open(&j->common, path);
    if (code == CLI_OK)
        set_facts(j, rp_t5_about(j->common.model)->bytes);
    return code;
}

/* Find the family, and check that the model has its tokens. */
static int find_family(protein_job *j, const char *given)
{
    rp_t5_protein p;
    j->family = given != NULL ? given : rp_t5_family(j->common.model);
    if (j->family == NULL || rp_t5_residues(j->common.model, j->family, "M", 1, &p) != RP_OK)
        return cli_error(CLI_FAILED, "%s: %s", given != NULL ? "--family" : j->kind->command, rp_t5_last_error());
    rp_t5_free(p.tokens);
    return CLI_OK;
}

static int keep(const protein_job *j, const char *output)
{
    return cli_t5_keep_model(&j->common, output);
}

static int agree(const protein_job *j)
{
    return cli_t5_agree(&j->common);
}

static int64_t call_bytes(const protein_job *j, int64_t rows)
{
    return rp_t5_encode_bytes(j->common.model, rows, rows);
}

static int checksum(const protein_job *j, char text[17])
{
    return rp_t5_checksum(j->common.model, text) == RP_OK ? CLI_OK : cli_error(CLI_FAILED, "%s", rp_t5_last_error());
}

static rp_status residues(const protein_job *j, const char *text, int64_t n, rp_t5_protein *p)
{
    return rp_t5_residues(j->common.model, j->family, text, n, p);
}

static rp_status encode(const protein_job *j, int64_t n, const rp_t5_protein *proteins, float *out,
                        rp_progress *progress, void *context)
{
    return rp_t5_encode_residues(j->common.model, n, proteins, out, progress, context);
}

static int refused(const protein_job *j)
{
    return cli_t5_refused(j->kind->command);
}

static void close_model(protein_job *j)
{
    cli_t5_close(&j->common);
}

static const protein_kind t5 = {.command = "t5 proteins",
                                .has_letters = true,
                                .look = look,
                                .open = open_model,
                                .find_family = find_family,
                                .keep = keep,
                                .agree = agree,
                                .call_bytes = call_bytes,
                                .checksum = checksum,
                                .residues = residues,
                                .encode = encode,
                                .free_tokens = rp_t5_free,
                                .refused = refused,
                                .close = close_model};

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    return protein_run(&t5, NULL, self, argc, argv);
}

static int run(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command cli_t5_proteins = {
    .name = "t5 proteins",
    .summary = "embed the proteins of a FASTA file, of any length",
    .usage = "DIR|FILE FASTA -o OUT.npz [options]      FASTA may be compressed with gzip, or - for standard input",
    .example = "  relpos t5 proteins prot_t5_xl_half_uniref50-enc proteome.fasta.gz -o proteome.npz\n"
               "  relpos t5 proteins ProstT5 proteome.fasta -o structures.fasta --3di\n",
    .options = protein_options,
    .shared = true,
    .run = run,
};
