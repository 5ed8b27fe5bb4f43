#!/usr/bin/env python3
"""Compare the Returns paragraph of each public function that returns rp_status with the statuses that tests got from
it. tests/returns.h notes these in the file that the environment variable RELPOS_TEST_RETURNS names. Standard library
only.

    tools/returns.py NOTES             exit with 1 if a paragraph lacks an error, or names one that no test got
    tools/returns.py --missing NOTES   only look for missing errors, for notes of some of the tests

A paragraph may refer to others: "as rp_attend", or "See rp_term_parse_sized." in place of a comment.
SPDX-License-Identifier: Apache-2.0"""
import re
import sys

from made import fail, root

HEADERS = ("relpos", "terms", "facts", "layers", "t5", "mpi")
FUNCTION = re.compile(r"/\*((?:(?!\*/).)*)\*/\n(?:RP_API|static inline) rp_status (rp_\w+)\(", re.S)
# errors that a test cannot get: without AMX no measurement begins; with T5, only sizes beyond every memory overflow
UNTESTED = {("rp_measure_tile_peak", "RP_E_NOMEM"), *((f"rp_t5_{name}", "RP_E_OVERFLOW") for name in (
    "open", "encode", "encode_residues", "generate", "score", "begin", "attention_of", "reference"))}
LABEL = r"(?:Shapes|Sign|Edges|Law|Ranges|Memory|Threads|Accuracy|Source|Progress|Draft)\b"


def paragraphs():
    """Return the Returns paragraph of each function, or its whole comment if that refers to another function."""
    found = {}
    for header in HEADERS:
        text = (root / f"include/relpos/{header}.h").read_text()
        declared = set(re.findall(r"^(?:RP_API|static inline) rp_status (rp_\w+)\(", text, re.M))
        for comment, name in FUNCTION.findall(text):
            words = re.sub(r"\n \* {9,}", "\n   ", comment)
            said = re.search(rf"(?:^ \* )Returns  ?(.*?)(?=^ \* {LABEL}|\Z)", words, re.S | re.M)
            if said or comment.strip().startswith("See "):
                found[name] = " ".join((said.group(1) if said else comment).replace("\n *", " ").split())
        for name in sorted(declared - set(found)):
            fail(f"include/relpos/{header}.h: {name} has no Returns paragraph")
    return found


def errors_of(name, said, seen=()):
    """Return the errors that a function's paragraph names, itself or through other functions."""
    if name in seen or name not in said:
        fail(f"the paragraph of {(*seen, name)[-2]} refers to {name}, which has none" if name not in said else
             f"the paragraph of {name} refers to itself")
    text = said[name]
    errors = set(re.findall(r"\bRP_E_[A-Z]+\b", text))
    for others in re.findall(r"\b(?:as|See) (rp_\w+(?:(?:, | and )rp_\w+)*)", text):
        for other in re.findall(r"rp_\w+", others):
            errors |= errors_of(other, said, (*seen, name))
    return errors


def main():
    some = sys.argv[1:2] == ["--missing"]
    notes = {}
    for line in open(sys.argv[1 + some], encoding="utf-8", errors="replace"):
        function, status, message = (line.rstrip("\n").split(" ", 2) + [""])[:3]
        notes.setdefault((function, status), message)
    if not notes:
        fail(f"{sys.argv[1 + some]} has no notes")
    said = paragraphs()
    wrong = []
    for name in said:
        named, got = errors_of(name, said), {status for function, status in notes if function == name}
        wrong += [f"{name} returned {status}, which its Returns paragraph lacks ({notes[name, status]!r})"
                  for status in sorted(got - named)]
        if not some and not name.startswith("rp_mpi_"):  # few tests start processes
            wrong += [f"{name}: no test gets {status} from it, which its Returns paragraph names"
                      for status in sorted(named - got) if (name, status) not in UNTESTED]
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
