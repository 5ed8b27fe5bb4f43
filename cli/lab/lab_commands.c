/* lab_commands.c -- relpos lab: run the chosen subcommand, and print the help, which lists every key of an experiment.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <string.h>

static const cli_command *const commands[] = {&lab_train, &lab_eval,  &lab_sample, &lab_export, &lab_inspect,
                                              &lab_log,   &lab_sweep, &lab_report, NULL};

static void usage(FILE *to)
{
    const char *key, *value, *help;
    fputs("relpos lab -- train small transformers on text, measure and compare every position scheme\n\n"
          "Example:\n"
          "  relpos lab train lab/first.lab -o out/run     # train, with checkpoints in out/run\n"
          "  relpos lab eval out/run --lengths 128,256     # measure perplexity, also beyond the trained length\n"
          "  relpos lab sample out/run --prompt 'The '     # write text\n"
          "  relpos lab export out/run --prompt 'The end' -o out/x.safetensors     # write a layer's attention for "
          "attend "
          "and explain\n\n"
          "Commands:\n",
          to);
    for (int n = 0; commands[n]; n++)
        fprintf(to, "  %-10s%s\n", commands[n]->name + strlen("lab "), commands[n]->summary);
    fputs("\nAn experiment is a text file with a line key = value for each key that differs from its default:\n", to);
    for (int n = 0; nn_config_key(n, &key, &value, &help); n++)
        fprintf(to, "  %s = %s\n      %s\n", key, value, help);
    fputs(
        "  preset = log|shaw|t5|real\n      set position, encoder_position, position_layers, position_heads and scale "
        "as in a well-known source\n",
        to);
}

static int run(const cli_command *self, int argc, char **argv)
{
    return cli_run_group(self, usage, argc, argv);
}

const cli_command cmd_lab = {
    .name = "lab",
    .summary = "train small transformers on text and compare positions",
    .members = commands,
    .run = run,
};
