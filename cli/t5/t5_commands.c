/* t5_commands.c -- relpos t5: select and run a subcommand.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/t5/t5.h"
#include <string.h>

static const cli_command *const commands[] = {
    &cli_t5_generate, &cli_t5_encode, &cli_t5_proteins, &cli_t5_score, &cli_t5_tokenize, &cli_t5_info, &cli_t5_pack,
    &cli_t5_explain,  &cli_t5_verify, &cli_t5_bench,    NULL};

static void usage(FILE *to)
{
    fputs("relpos t5 -- run models of the T5 family: T5, FLAN-T5, mT5, UMT5, ByT5, MADLAD, LongT5, Switch\n\n"
          "Example:\n"
          "  relpos t5 info flan-t5-small                                     # a folder that save_pretrained wrote\n"
          "  echo 'translate English to German: Good morning.' | relpos t5 generate flan-t5-small\n"
          "  relpos t5 pack flan-t5-small --type int8 -o flan.relpos          # a quarter of the size, opens faster\n"
          "  relpos t5 encode flan.relpos lines.txt -o vectors.npz --pool mean --normalize\n"
          "  relpos t5 proteins prot_t5_xl_half_uniref50-enc proteome.fasta -o proteome.h5\n\n"
          "Commands:\n",
          to);
    for (int n = 0; commands[n]; n++)
        fprintf(to, "  %-10s%s\n", commands[n]->name + strlen("t5 "), commands[n]->summary);
    fputs("\nRun relpos t5 COMMAND --help for an example and the options.\n", to);
}

static int run(const cli_command *self, int argc, char **argv)
{
    return cli_run_group(self, usage, argc, argv);
}

const cli_command cmd_t5 = {
    .name = "t5",
    .summary = "run models of the T5 family: text in, text or vectors out",
    .members = commands,
    .run = run,
};
