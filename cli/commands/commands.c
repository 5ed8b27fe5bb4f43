/* commands.c -- the commands of the program, in the order of its help.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

extern const cli_command cmd_attend, cmd_explain, cmd_bias, cmd_bucket, cmd_shift, cmd_verify, cmd_bench, cmd_info,
    cmd_lab, cmd_explore, cmd_t5, cmd_embed, cmd_proteins, cmd_classify, cmd_rerank, cmd_pack, cmd_tutorial;

const cli_command *const cli_commands[] = {&cmd_attend, &cmd_explain,  &cmd_bias,     &cmd_bucket,   &cmd_shift,
                                           &cmd_verify, &cmd_bench,    &cmd_info,     &cmd_lab,      &cmd_explore,
                                           &cmd_t5,     &cmd_embed,    &cmd_proteins, &cmd_classify, &cmd_rerank,
                                           &cmd_pack,   &cmd_tutorial, NULL};
