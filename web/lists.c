/* lists.c -- functions that the page can call without a problem: the lists of terms and masks, the vectors of words and
 * of the worked example, and memory. SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/sample_arrays.h"
#include "web/export.h"
#include <stdlib.h>

EXPORT(version) const char *x_version(void)
{
    return rp_version();
}

/* Return the text of a kind of term with every parameter at its default; "" past the last kind. */
EXPORT(kind_text) const char *x_kind_text(int kind)
{
    static char text[1024];
    const rp_term t = rp_term_init((rp_term_kind)kind);
    return kind > RP_TERM_NONE && kind < RP_TERM_COUNT && rp_term_print(&t, text, sizeof text) == RP_OK ? text : "";
}

EXPORT(kind_is_bias) int x_kind_is_bias(int kind)
{
    return rp_term_is_bias((rp_term_kind)kind);
}

/* Return the name of array `index` of a term; NULL past the last. */
EXPORT(kind_array) const char *x_kind_array(int kind, int index)
{
    return rp_term_array((rp_term_kind)kind, index);
}

EXPORT(kind_array_optional) int x_kind_array_optional(int kind, int index)
{
    return rp_term_array_optional((rp_term_kind)kind, index);
}

EXPORT(kind_array_learned) int x_kind_array_learned(int kind, int index)
{
    return rp_term_array_learned((rp_term_kind)kind, index);
}

/* Return the name of a mask; NULL past the last kind. */
EXPORT(mask_name) const char *x_mask_name(int kind)
{
    return rp_mask_name((rp_mask_kind)kind);
}

EXPORT(mask_text) const char *x_mask_text(int kind)
{
    return rp_mask_info_of((rp_mask_kind)kind)->text;
}

/* Return the C constant of a mask, such as "RP_MASK_CAUSAL". */
EXPORT(mask_constant) const char *x_mask_constant(int kind)
{
    static const char *const constant[] = {
#define RP_X(ENUM, name, meaning) [ENUM] = #ENUM,
#include <relpos/masks.def>
#undef RP_X
    };
    return constant[kind];
}

/* Return the axes of a mask's array; NULL if it has no array. */
EXPORT(mask_axes) const char *x_mask_axes(int kind)
{
    return rp_mask_info_of((rp_mask_kind)kind)->axes;
}

/* Return the name of parameter `index` of a mask, and write its default, minimum and maximum to `to` [3]. Return NULL
 * past the last. */
EXPORT(mask_param) const char *x_mask_param(int kind, int index, double *to)
{
    const rp_mask_param *p = rp_mask_param_of((rp_mask_kind)kind, index);
    if (p)
        to[0] = (double)p->value, to[1] = (double)p->min, to[2] = (double)p->max;
    return p ? p->key : NULL;
}

EXPORT(max_axes) int x_max_axes(void)
{
    return RP_MAX_AXES;
}

/* Write q, k and v of a word, WORD_WIDTH numbers each. */
EXPORT(word) void x_word(const char *text, int length, double *to)
{
    sample_word(text, (size_t)length, to, to + WORD_WIDTH, to + 2 * WORD_WIDTH);
}

/* Return q, k and v of the worked example [3, 5, 4]. */
EXPORT(example) const double *x_example(void)
{
    return &sample_vectors[0][0][0];
}

EXPORT(example_word) const char *x_example_word(int n)
{
    return n >= 0 && n < SAMPLE_WORDS ? sample_words[n] : "";
}

EXPORT(allocate) void *x_allocate(size_t bytes)
{
    void *at = NULL;
    return posix_memalign(&at, 64, bytes ? bytes : 1) == 0 ? at : NULL;
}

EXPORT(release) void x_release(void *at)
{
    free(at);
}
