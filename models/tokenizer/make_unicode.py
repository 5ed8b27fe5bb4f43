#!/usr/bin/env python3
"""Generate unicode_table.h, the properties of characters that the steps of BERT's tokenizers and of byte-level
BPE need, by asking the library `tokenizers` about every character. Its parts use different versions of Unicode, so its
answers are the definition.

    models/tokenizer/make_unicode.py > models/tokenizer/unicode_table.h

SPDX-License-Identifier: Apache-2.0"""
import functools

import tokenizers
from tokenizers import Regex
from tokenizers.normalizers import NFC, NFD, BertNormalizer, Lowercase, StripAccents
from tokenizers.pre_tokenizers import BertPreTokenizer, Split, WhitespaceSplit

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)
nfd, nfc = NFD().normalize_str, NFC().normalize_str


def bert(**steps):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return BertNormalizer(**{**off, **steps}).normalize_str


def ranges(characters):
    """Return [first, last] for each run of characters."""
    found = []
    for c in map(ord, characters):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def words(pre_tokenizer):
    """Return the words of "a", a character and "b" for each character."""
    return [[word for word, _ in pre_tokenizer.pre_tokenize_str(f"a{c}b")] for c in CHARACTERS]


def matches(regex):
    """Return the characters that a regular expression matches."""
    split = Split(Regex(regex), "removed")
    return [c for c in CHARACTERS if not split.pre_tokenize_str(c)]


def follows(a, b):
    """Return true if NFD puts mark b before mark a when a is first."""
    return a != b and nfd(f"x{a}{b}") == f"x{b}{a}"


def combining(decomposed):
    """Return the characters that NFD reorders, as {character: rank of its combining class}, with ranks from 1."""
    low, high = "\u0334", "\u0345"  # marks with the lowest and the highest class
    marks = [c for c in CHARACTERS if c not in decomposed and ord(c) not in HANGUL
             and (c in (low, high) or follows(c, low) or follows(high, c))]
    marks.sort(key=functools.cmp_to_key(lambda a, b: follows(a, b) - follows(b, a)))
    rank, ranked = 0, {}
    for before, c in zip([None, *marks], marks):
        rank += before is None or follows(c, before)
        ranked[c] = rank
    first = {}
    for c, rank in ranked.items():
        first.setdefault(rank, c)
    for c, rank in ranked.items():  # the order is total
        assert all(follows(c, f) == (rank > r) and follows(f, c) == (rank < r) for r, f in first.items()), hex(ord(c))
    return dict(sorted(ranked.items()))


def compositions(decomposed):
    """Return (first, second, character) for the characters that NFC composes."""
    found = []
    for c, to in decomposed.items():
        if nfc(c) == c:
            first = nfc(to[:-1])
            assert len(first) == 1 and nfc(first + to[-1]) == c
            found.append((ord(first), ord(to[-1]), ord(c)))
    return sorted(found)


def lower_ranges(lower):
    """Return [first, last, step, difference]: runs of every or every second character with the same difference."""
    found = []
    for c, to in sorted(lower.items()):
        c, difference = ord(c), ord(to) - ord(c)
        if found and found[-1][3] == difference and c - found[-1][1] in (1, 2) and (
                found[-1][0] == found[-1][1] or found[-1][2] == c - found[-1][1]):
            found[-1][2] = c - found[-1][1]
            found[-1][1] = c
        else:
            found.append([c, c, 1, difference])
    return found


def table(comment, declaration, entries):
    print(f"\n/* {comment} */\nstatic const {declaration} = {{")
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 120:
            print(line)
            line = "   "
        line += f" {entry},"
    print(line + "\n};")


def entry(numbers):
    return "{" + ", ".join(f"{n:#x}" for n in numbers) + "}"


def main():
    clean, strip = bert(clean_text=True), bert(strip_accents=True)
    decomposed = {c: nfd(c) for c in CHARACTERS if nfd(c) != c and ord(c) not in HANGUL}
    for c in HANGUL:
        n = c - 0xAC00
        last = chr(0x11A7 + n % 28) if n % 28 else ""
        assert nfd(chr(c)) == chr(0x1100 + n // 588) + chr(0x1161 + n // 28 % 21) + last
    lower = {c: Lowercase().normalize_str(c) for c in CHARACTERS if Lowercase().normalize_str(c) != c}
    assert lower.pop("\u0130") == "i\u0307"  # the only one with two characters
    white = [c for c, found in zip(CHARACTERS, words(WhitespaceSplit())) if found == ["a", "b"]]
    bert_words = words(BertPreTokenizer())
    assert white == [c for c, found in zip(CHARACTERS, bert_words) if found == ["a", "b"]]
    punctuation = [c for c, found in zip(CHARACTERS, bert_words) if found == ["a", c, "b"]]
    print(f"""/* unicode_table.h -- properties of characters in the library tokenizers {tokenizers.__version__}.
 * Hangul syllables are computed. Made by make_unicode.py. Data of Unicode, Inc. (https://www.unicode.org/license.txt).
 * SPDX-License-Identifier: Apache-2.0 AND Unicode-3.0 */
#ifndef RELPOS_UNICODE_TABLE_H
#define RELPOS_UNICODE_TABLE_H

#include <stdint.h>

/* clang-format off */""")
    table("Characters that clean_text removes", "tok_range removed_ranges[]",
          map(entry, ranges(c for c in CHARACTERS if clean(c) == "")))
    table("Category Mn; characters that NFD decomposes have no entry", "tok_range nonspacing_ranges[]",
          map(entry, ranges(c for c in CHARACTERS if c not in decomposed and strip(c) == "")))
    table("Category M, which StripAccents removes", "tok_range mark_ranges[]",
          map(entry, ranges(c for c in CHARACTERS if StripAccents().normalize_str(c) == "")))
    table("Punctuation", "tok_range punctuation_ranges[]", map(entry, ranges(punctuation)))
    found = []  # first, last, rank
    for c, rank in combining(decomposed).items():
        if found and found[-1][1] == ord(c) - 1 and found[-1][2] == rank:
            found[-1][1] = ord(c)
        else:
            found.append([ord(c), ord(c), rank])
    table("Category L", "tok_range letter_ranges[]", map(entry, ranges(matches(r"\p{L}"))))
    table("Category N", "tok_range number_ranges[]", map(entry, ranges(matches(r"\p{N}"))))
    chinese = bert(handle_chinese_chars=True)
    table("Characters that handle_chinese_chars puts spaces around", "tok_range ideograph_ranges[]",
          map(entry, ranges(c for c in CHARACTERS if chinese(c) != c)))
    table("Canonical combining classes other than 0, numbered in their order", "tok_class class_ranges[]",
          map(entry, found))
    table("Canonical decompositions, ended by 0 if they have less than four characters",
          "tok_decomposition decompositions[]",
          ("{%#x, %s}" % (ord(c), entry(map(ord, to))) for c, to in decomposed.items()))
    table("Pairs of characters that NFC composes", "tok_composition compositions[]",
          map(entry, compositions(decomposed)))
    table("Lower case: of the characters first, first + step, ... last, add `difference`",
          "tok_lower_range lower_ranges[]",
          ("{%#x, %#x, %d, %d}" % tuple(run) for run in lower_ranges(lower)))
    print("/* clang-format on */\n\n#endif")


if __name__ == "__main__":
    main()
