#!/bin/sh
# split.sh -- test lab/split.py: which documents are held out, and the pieces of the held-out texts
#
#     tests/lab/split.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"

python3 - "$T" <<'END'
import pathlib, random, sys
T = pathlib.Path(sys.argv[1])
draw = random.Random(1)
words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(3000)]

def text(size):
    lines = ""
    while len(lines) < size:
        lines += " ".join(draw.choices(words, k=10)) + "\n"
    return lines[:size - 1] + "\n"

for source, count, size in (("vim", 400, 20000), ("manual", 300, 9000), ("topics", 60, 5000)):
    (T / "documents" / source).mkdir(parents=True)
    for n in range(count):
        (T / "documents" / source / f"{n:03}").write_text(text(size))
half = (T / "documents/vim/000").read_text()
for n in range(1, 400, 5):  # half of every fifth document of vim is a passage that they share
    name = T / f"documents/vim/{n:03}"
    name.write_text(half[:10000] + name.read_text()[10000:])
(T / "documents/vim/002").write_text((T / "documents/vim/004").read_text())  # the same document twice
END
command='lab/split.py'
python3 lab/split.py "$T/documents" "$T/split" >"$T/out" 2>"$T/err"
check 'exit code' "0 " "$? $(cat "$T/err")"
mv "$T/split" "$T/before"
python3 lab/split.py "$T/documents" "$T/split" >"$T/again"
check 'the same again' '' "$(diff -r "$T/before" "$T/split")$(diff "$T/out" "$T/again")"
check 'pieces' '32 32' "$(grep -c '^select' "$T/split/pieces.tsv") $(grep -c '^report' "$T/split/pieces.tsv")"
check 'pieces and contexts' '165888 110592 18432' "$(for source in vim manual topics; do wc -c <"$T/split/report-$source.txt"; done | xargs)"
command='check the split'
python3 - "$T" >"$T/out" <<'END'
import pathlib, sys
T = pathlib.Path(sys.argv[1])
train = (T / "split/train.txt").read_text()
documents = {str(path.relative_to(T / "documents")): path.read_text() for path in (T / "documents").glob("*/*")}
in_train = {name for name, text in documents.items() if text in train}
sizes = {source: len([n for n in documents if n.startswith(source)]) for source in ("vim", "manual", "topics")}
held = {source: len([n for n in documents if n.startswith(source) and n not in in_train]) for source in sizes}
print("held out", {source: round(held[source] / sizes[source], 1) for source in sizes})
names = [line.split("\t") for line in (T / "split/pieces.tsv").read_text().splitlines()]
print("of training", sum(name in in_train for _, name, _, _ in names), "with the shared passage", sum(name in documents and int(name[4:]) % 5 == 1 for _, name, _, _ in names))
for which in ("select", "report"):
    held_out = "".join((T / f"split/{which}-{source}.txt").read_text() for source in sizes)
    blocks = [held_out[n:n + 9216] for n in range(0, len(held_out), 9216)]
    print(which, "distinct", len(set(blocks)), "of one document", sum(any(b in text for text in documents.values()) for b in blocks[:18]),
          "common", sum(block[8192 + n:8192 + n + 64] in train for block in blocks for n in range(0, 961, 64)))
    print(which, "at their places", sum(blocks[n][8192:] == documents[name][int(at):int(at) + 1024]
                                        for n, (name, at) in enumerate((name, at) for w, name, at, _ in names if w == which) if n < 18))
END
check 'its properties' "held out {'vim': 0.1, 'manual': 0.1, 'topics': 0.2}
of training 0 with the shared passage 0
select distinct 32 of one document 18 common 0
select at their places 18
report distinct 32 of one document 18 common 0
report at their places 18" "$(cat "$T/out")"

finish
