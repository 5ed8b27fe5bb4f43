#!/usr/bin/env python3
"""Generate grapheme_table.h, the properties of characters for grapheme clusters, from src/tables.rs of the crate
unicode-segmentation. The library `tokenizers` uses this crate, so its version of Unicode gives the same tokens.
Standard library only.

    models/tokenizer/make_graphemes.py path/to/unicode-segmentation/src/tables.rs > models/tokenizer/grapheme_table.h

SPDX-License-Identifier: Apache-2.0"""
import re
import sys

CATEGORIES = ["Any", "CR", "LF", "Control", "Extend", "ZWJ", "SpacingMark", "Prepend", "Regional_Indicator", "L", "V",
              "T", "LV", "LVT", "Extended_Pictographic", "InCB_Consonant"]
INCB_EXTEND, INCB_LINKER = 0x20, 0x40
CHARACTER = r"'((?:\\.|[^'\\])[^']*)'"


def character(text):
    return int(text[3:-1], 16) if text.startswith("\\u{") else ord(text)


def main():
    source = open(sys.argv[1], encoding="utf-8").read()
    version = ".".join(re.search(r"UNICODE_VERSION: .*= \((\d+), (\d+), (\d+)\)", source).groups())
    grapheme = source[source.index("pub mod grapheme"):source.index("pub mod word")]
    extend = source[source.index("const InCB_Extend_table"):source.index("pub fn InCB_Extend")]
    linker = source[source.index("pub fn is_incb_linker"):source.index("pub mod grapheme")]
    of = {}
    for low, high, name in re.findall(rf"\({CHARACTER},\s*{CHARACTER},\s*GC_(\w+)\s*\)", grapheme):
        for c in range(character(low), character(high) + 1):
            of[c] = CATEGORIES.index(name)
    for low, high in re.findall(rf"\({CHARACTER},\s*{CHARACTER}\s*\)", extend):
        for c in range(character(low), character(high) + 1):
            of[c] = of.get(c, 0) | INCB_EXTEND
    for c in re.findall(CHARACTER, linker):
        of[character(c)] = of.get(character(c), 0) | INCB_LINKER
    hangul = range(0xAC00, 0xAC00 + 11172)
    for c in hangul:  # the crate does not list these: LV if the syllable has no final consonant, otherwise LVT
        assert of.pop(c) == CATEGORIES.index("LVT" if (c - 0xAC00) % 28 else "LV")
    ranges = []
    for c in sorted(of):
        if c < 0x80:
            continue
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == of[c]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, of[c]])
    print(f"""/* grapheme_table.h -- ranges of characters from U+0080 with their grapheme break property in Unicode
 * {version}; Hangul syllables are computed. Made by make_graphemes.py from data of Unicode, Inc.
 * (https://www.unicode.org/license.txt).
 * SPDX-License-Identifier: Apache-2.0 AND Unicode-3.0 */
#ifndef RELPOS_GRAPHEME_TABLE_H
#define RELPOS_GRAPHEME_TABLE_H

#include <stdint.h>

/* clang-format off */
enum {{""")
    for i, name in enumerate(CATEGORIES):
        print(f"    GRAPHEME_{name.upper()} = {i},")
    print(f"""    GRAPHEME_CATEGORY = 0x1f, /* mask of the category */
    GRAPHEME_INCB_EXTEND = {INCB_EXTEND:#x}, /* the character extends an Indic conjunct */
    GRAPHEME_INCB_LINKER = {INCB_LINKER:#x},
}};

static const struct {{
    uint32_t first, last;
    uint8_t property;
}} grapheme_ranges[] = {{""")
    line = "   "
    for low, high, value in ranges:
        entry = f" {{{low:#x}, {high:#x}, {value:#x}}},"
        if len(line) + len(entry) > 120:
            print(line)
            line = "   "
        line += entry
    print(line + "\n};\n/* clang-format on */\n\n#endif")


if __name__ == "__main__":
    main()
