/* masks.c -- options of masks, generated from the library's registry: --causal, --key-mask NAME, --window LEFT,RIGHT.
 *
 * To follow a mask through the code, start at cli_add_mask below and continue with
 *     cli_problem_arrays in problem.c             looks up its array in the file
 *     rp_attend in src/api/attend.c
 *     check_mask in src/api/arguments.c           checks the array and makes a view of it
 *     attend in src/engine/forward.c
 *     open_tile in src/kernels/key_tile.h
 *     rpi_mask_keep in src/problem/positions.c
 *     keys_keep in src/masks/pairs.h
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <string.h>

const char *cli_mask_option(rp_mask_kind kind, char text[CLI_MASK_MAX])
{
    snprintf(text, CLI_MASK_MAX, "%s", rp_mask_name(kind));
    for (char *c = text; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return text;
}

/* Write the names of a mask's parameters, such as "LEFT,RIGHT", to `text`. Return `text`. */
static const char *param_names(rp_mask_kind kind, char text[64])
{
    const rp_mask_param *p;
    *text = 0;
    for (int x = 0; (p = rp_mask_param_of(kind, x)); x++) {
        strncat(text, x ? "," : "", 63 - strlen(text));
        strncat(text, p->key, 63 - strlen(text));
    }
    for (char *c = text; *c; c++)
        *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
    return text;
}

const char *cli_mask_usage(rp_mask_kind kind, char text[CLI_MASK_MAX])
{
    const rp_mask_info *info = rp_mask_info_of(kind);
    char option[CLI_MASK_MAX], names[64];
    const char *value = info->axes ? "NAME" : param_names(kind, names);
    snprintf(text, CLI_MASK_MAX, "--%.30s%s%.30s", cli_mask_option(kind, option), *value ? " " : "", value);
    return text;
}

cli_option cli_mask_row(rp_mask_kind kind, cli_mask_text *text)
{
    const rp_mask_info *info = rp_mask_info_of(kind);
    param_names(kind, text->arg);
    if (info->axes)
        snprintf(text->help, sizeof text->help, "array, broadcast to (%s): %s", info->axes, info->text);
    else
        snprintf(text->help, sizeof text->help, "%s", info->text);
    return (cli_option){cli_mask_option(kind, text->name), CLI_MASK + (int)kind,
                        info->axes     ? "NAME"
                        : info->sample ? text->arg
                                       : NULL,
                        text->help};
}

/* Parse the parameters of a mask, which are integers separated by commas. Return CLI_OK, or CLI_USAGE after
 * printing. */
static int read_params(const rp_mask_info *info, rp_mask *m, const char *option, const char *value)
{
    char word[32], what[96], names[64], safe[64];
    int64_t n;
    const char *at = value;
    const rp_mask_param *p;
    param_names(m->kind, names);
    for (int x = 0; (p = rp_mask_param_of(m->kind, x)); x++) {
        const size_t length = strcspn(at, ",");
        if (length >= sizeof word || (at[length] == ',') != (rp_mask_param_of(m->kind, x + 1) != NULL))
            return cli_error(CLI_USAGE, "--%s: \"%s\" is not %s (write whole numbers, such as --%s %s)", option,
                             io_safe(safe, sizeof safe, value), names, option, info->sample);
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        snprintf(what, sizeof what, "--%s %s", option, p->key);
        const int code = cli_integer(what, word, p->min, p->max, &n);
        if (code != CLI_OK)
            return code;
        rp_mask_set(m, p, n);
        at += length + 1;
    }
    return CLI_OK;
}

int cli_add_mask(cli_problem *p, rp_mask_kind kind, const char *value)
{
    const rp_mask_info *info = rp_mask_info_of(kind);
    const int32_t n = p->desc.n_masks;
    char option[CLI_MASK_MAX];
    cli_mask_option(kind, option);
    if (n == RP_MAX_MASKS)
        return cli_error(CLI_USAGE, "there are too many masks (give at most %d)", RP_MAX_MASKS);
    if (info->axes && (!*value || strlen(value) >= RP_NAME_MAX))
        return cli_error(CLI_USAGE, "--%s: it needs the name of an array in the file (give one of at most %d bytes)",
                         option, RP_NAME_MAX - 1);
    p->masks[n] = rp_mask_init(kind);
    snprintf(p->mask_array[n], RP_NAME_MAX, "%s", info->axes ? value : "");
    const int code = info->sample ? read_params(info, &p->masks[n], option, value) : CLI_OK;
    p->desc.n_masks += code == CLI_OK;
    return code;
}
