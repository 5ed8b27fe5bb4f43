#!/usr/bin/env python3
"""Generate word_table.h, the characters that belong to words for added tokens with "single_word": true, by asking the
library `tokenizers`.

    models/tokenizer/make_words.py > models/tokenizer/word_table.h

SPDX-License-Identifier: Apache-2.0"""
import tokenizers
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import Unigram


def main():
    t = Tokenizer(Unigram([("<unk>", 0.0)], unk_id=0))
    t.add_tokens([AddedToken("q", single_word=True, normalized=False)])
    q = t.token_to_id("q")
    characters = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and chr(c) != "q"]
    words = [c for c, e in zip(characters, t.encode_batch(["q" + chr(c) for c in characters])) if q not in e.ids]
    assert words == [
        c for c, e in zip(characters, t.encode_batch([chr(c) + "q" for c in characters])) if q not in e.ids
    ]
    ranges = []
    for c in sorted({*words, ord("q")}):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    print(
        f"""/* word_table.h -- ranges of the characters that belong to words (\\w in regular expressions of Unicode), as
 * in the library tokenizers {tokenizers.__version__}. Made by make_words.py. Data of Unicode, Inc.
 * (https://www.unicode.org/license.txt).
 * SPDX-License-Identifier: Apache-2.0 AND Unicode-3.0 */
#ifndef RELPOS_WORD_TABLE_H
#define RELPOS_WORD_TABLE_H

#include <stdint.h>

/* clang-format off */
static const tok_range word_ranges[] = {{""")
    line = "   "
    for low, high in ranges:
        entry = f" {{{low:#x}, {high:#x}}},"
        if len(line) + len(entry) > 120:
            print(line)
            line = "   "
        line += entry
    print(line + "\n};\n/* clang-format on */\n\n#endif")


if __name__ == "__main__":
    main()
