/* protein_records.c -- reads the records of the FASTA file of `relpos proteins`, and lists those that are left out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/proteins.h"
#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

int protein_skips_open(protein_skips *s)
{
    char err[IO_ERR_MAX];
    if (s->path == NULL || cli_team_rank() != 0)
        return CLI_OK;
    s->text = io_text_open(s->path, &s->to, err);
    return s->text != NULL ? CLI_OK : cli_error(CLI_FAILED, "--skip-bad: %s", err);
}

void protein_skip(protein_skips *s, int64_t line, const char *name, const char *why)
{
    char safe_name[1024], safe_why[1024];
    s->n++;
    fprintf(s->to, "%lld\t%s\t%s\n", (long long)line, io_safe(safe_name, sizeof safe_name, name),
            io_safe(safe_why, sizeof safe_why, why));
}

int protein_skips_close(protein_skips *s, bool whole, int code)
{
    char err[IO_ERR_MAX];
    if (s->text != NULL && io_text_close(s->text, whole ? 0 : -1, err) != 0 && code == CLI_OK)
        return cli_error(CLI_FAILED, "--skip-bad: %s", err);
    return code;
}

int protein_next(protein_job *j, rp_t5_fasta *file, bool keep, rp_t5_record *r)
{
    rp_status status;
    while ((status = rp_t5_fasta_next(file, keep, j->longest, r)) != RP_OK) {
        char why[1400], memory[100] = "", path[IO_ERR_MAX / 2];
        if (status == RP_E_RANGE && j->longest == j->facts.max_residues)
            snprintf(memory, sizeof memory, "; the model takes no more (leave it out with --skip-bad)");
        else if (status == RP_E_RANGE && j->memory > 0)
            snprintf(memory, sizeof memory, "; %.3g GiB of memory allow no more (see --memory)",
                     (double)j->memory / GIB);
        snprintf(why, sizeof why, "%s%s", rp_t5_last_error(), memory);
        if (cli_stop_requested())
            return CLI_FAILED;
        if (j->skips.to == NULL)
            return cli_error(CLI_FAILED, "%s", why);
        if (rp_t5_fasta_skip(file, r) != RP_OK)
            return cli_error(CLI_FAILED, "%s", rp_t5_last_error());
        const size_t n = strlen(io_safe(path, sizeof path, j->fasta));
        const bool named = strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0;
        if (!j->counted)
            protein_skip(&j->skips, r->line, r->header, named ? why + n + 2 : why);
    }
    return CLI_OK;
}

int protein_twice(protein_job *j, const rp_t5_record *r, size_t name)
{
    char safe[160], why[300];
    io_safe(safe, 80, protein_key(&j->names, name));
    snprintf(why, sizeof why, "line %lld: the name %s occurs twice, first in line %lld (rename one)",
             (long long)r->line, safe, (long long)j->names.names[name].line);
    if (j->skips.to == NULL)
        return cli_error(CLI_FAILED, "%s: %s", io_safe(safe, 80, j->fasta), why);
    if (!j->counted)
        protein_skip(&j->skips, r->line, r->header, why);
    return CLI_OK;
}
