/* masks/registry.c -- the masks, and the registry made from masks.def.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mask.h"

#define RPI_MASK(ENUM, ...) static const rpi_masker mask_##ENUM = {__VA_ARGS__};

#include "pairs.h"
#include "intervals.h"

static const struct {
    const char *name;
    const rpi_masker *masker;
} registry[] = {
#define RP_X(ENUM, name, option, meaning) [RP_MASK_##ENUM] = {#name, &mask_##ENUM},
#include <relpos/masks.def>
#undef RP_X
};

const rpi_masker *rpi_masker_of(rp_mask_kind kind)
{
    return kind > RP_MASK_NONE && kind < RP_MASK_COUNT ? registry[kind].masker : NULL;
}

const char *rp_mask_name(rp_mask_kind kind)
{
    return kind > RP_MASK_NONE && kind < RP_MASK_COUNT ? registry[kind].name : NULL;
}
