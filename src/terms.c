/* terms.c -- the position terms: each scheme's definition, and the registry made from terms.def.
 * SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <stdio.h>

/* A scheme fills the entry of its kind; name, syntax and source come from terms.def. */
#define RPI_SCHEME(ENUM, ...) static const rpi_scheme scheme_##ENUM = {__VA_ARGS__};

#include "schemes/clip.h" /* shared by some of those below */

#include "schemes/alibi.h"
#include "schemes/bucket.h"
#include "schemes/decay.h"
#include "schemes/dense.h"
#include "schemes/rope.h"
#include "schemes/shaw.h"
#include "schemes/table.h"

static const struct {
    const char *name, *syntax, *source;
    const rpi_scheme *scheme;
} registry[] = {
#define RP_X(ENUM, name, syntax, source) [RP_TERM_##ENUM] = {#name, syntax, source, &scheme_##ENUM},
#include <relpos/terms.def>
#undef RP_X
};

static bool is_kind(rp_term_kind kind)
{
    return kind > RP_TERM_NONE && kind < RP_TERM_COUNT;
}

const rpi_scheme *rpi_scheme_of(rp_term_kind kind)
{
    return is_kind(kind) ? registry[kind].scheme : NULL;
}

const char *rp_term_name(rp_term_kind kind)
{
    return is_kind(kind) ? registry[kind].name : NULL;
}

const char *rp_term_syntax(rp_term_kind kind)
{
    return is_kind(kind) ? registry[kind].syntax : NULL;
}

const char *rp_term_source(rp_term_kind kind)
{
    return is_kind(kind) ? registry[kind].source : NULL;
}

int rp_term_is_bias(rp_term_kind kind)
{
    return is_kind(kind) && (registry[kind].scheme->form == RPI_OFFSET || registry[kind].scheme->form == RPI_TILE);
}

int rp_term_array_optional(rp_term_kind kind, int index)
{
    return rp_term_array(kind, index) && registry[kind].scheme->array_optional;
}

const char *rp_term_array(rp_term_kind kind, int index)
{
    return is_kind(kind) && index >= 0 && index < RP_MAX_ARRAYS ? registry[kind].scheme->array[index] : NULL;
}
