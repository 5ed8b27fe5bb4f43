/* byte_level.c -- the characters that stand for bytes in the pieces of byte-level BPE: a printable character of Latin-1
 * stands for its own byte; the other bytes have characters from U+0100 on. Radford et al. 2019, "Language Models are
 * Unsupervised Multitask Learners", section 2.2.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

enum {
    CONTROLS = 0x21,
    DELETE = 0x7f,
    SPACE = 0xa0,
    HYPHEN = 0xad,
    OTHERS = 0x100
}; /* not printable: below CONTROLS,
                                                                                  from DELETE to SPACE, and HYPHEN */
uint32_t tok_byte_character(int byte)
{
    const uint32_t c = (uint32_t)byte;
    return c < CONTROLS                ? OTHERS + c
           : c >= DELETE && c <= SPACE ? OTHERS + CONTROLS + c - DELETE
           : c == HYPHEN               ? OTHERS + CONTROLS + SPACE + 1 - DELETE
                                       : c;
}

int tok_character_byte(uint32_t c)
{
    if (c < OTHERS)
        return tok_byte_character((int)c) == c ? (int)c : -1;
    c -= OTHERS;
    if (c < CONTROLS)
        return (int)c;
    c += DELETE - CONTROLS;
    return c <= SPACE ? (int)c : c == SPACE + 1 ? HYPHEN : -1;
}
