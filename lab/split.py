#!/usr/bin/env python3
"""Split documents into training, selection and report, for the experiments of lab/ranking.

    split.py DOCUMENTS OUT

DOCUMENTS has a folder for each source (vim, manual, topics) with one file per document. The documents of a source are
sorted by the SHA-256 of their text. The first ones go to the report set until it has its share of the bytes (SHARE),
the next ones to the selection set, and the others to training. A document that is larger than half of the share, or
would exceed it by more than a fifth, goes to training. Most manual pages and topics are shorter than a context, so
those in a set are joined.

OUT/train.txt has the training documents. A model is measured on pieces of EACH bytes; each has a context of CONTEXT
bytes before it. OUT/select-SOURCE.txt and OUT/report-SOURCE.txt have the pieces with their contexts, and OUT/pieces.tsv
lists them. The selection set chooses learning rates; the report set only measures the final models.

A document is excluded if a third of it or more occurs in training, in common passages of 64 bytes or more, and so is a
piece. So are tables: pieces with fewer than half letters. The script prints how much was excluded.
SPDX-License-Identifier: Apache-2.0"""
import hashlib
import pathlib
import sys

EACH, CONTEXT = 1024, 8192
PIECES = {"vim": 18, "manual": 12, "topics": 2}  # about proportional to the bytes of each source
SHARE = {"vim": 0.05, "manual": 0.05, "topics": 0.1}
STEP, GRAM = 16, 49  # a common passage of 64 bytes contains 49 bytes that begin at a multiple of 16 in training
JOINED = ("manual", "topics")
MOST = 1 / 3  # largest fraction of a document or piece that may occur in training


def seen(text, known):
    """Return a list of bytes: 1 for each byte of text that is in a common passage."""
    marks, end = bytearray(len(text)), 0
    for at in range(len(text) - GRAM + 1):
        if text[at:at + GRAM] in known:
            begin = max(at, end)
            end = at + GRAM
            marks[begin:end] = b"\1" * (end - begin)
    return marks


def blocks(text, marks, k):
    """Choose up to k blocks of CONTEXT + EACH bytes, spread over a document, that begin and end at a character. Skip
    those whose pieces are tables or occur in training. Return the offsets of the blocks."""
    size, found, free = CONTEXT + EACH, [], 0
    gap = (len(text) - k * size) / k
    for n in range(k):
        at = max(free, int((n + 0.5) * gap) + n * size)
        while (at := text.find(b"\n", at) + 1) and at + size <= len(text):
            piece = text[at + CONTEXT:at + size]
            whole = all(at + x == len(text) or text[at + x] & 0xC0 != 0x80 for x in (CONTEXT, size))
            if whole and sum(marks[at + CONTEXT:at + size]) < MOST * EACH and sum(c in LETTERS
                                                                                  for c in piece) >= EACH / 2:
                found.append(at)
                free = at + size
                break
    return found


def choose(kept, marks, source, pieces):
    """Choose pieces of a source, from as many documents as possible. Return [(document, offset of the block)]."""
    usable = [name for name, text in kept.items() if name.startswith(source + "/")]
    limit = {name: len(kept[name]) // (CONTEXT + EACH) for name in usable}
    usable.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    while sum(limit.values()) >= pieces:
        share = dict.fromkeys(usable, 0)
        while sum(share.values()) < pieces:
            for name in usable:
                share[name] += sum(share.values()) < pieces and share[name] < limit[name]
        chosen = {name: blocks(kept[name], marks[name], k) for name, k in share.items() if k}
        if sum(map(len, chosen.values())) == pieces:
            return [(name, at) for name, some in chosen.items() for at in some]
        limit.update({name: len(some) for name, some in chosen.items() if len(some) < share[name]})
    sys.exit(f"split.py: the documents of {source} have fewer than {pieces} pieces")


LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def main():
    documents, out = map(pathlib.Path, sys.argv[1:])
    texts = {"train": {}, "select": {}, "report": {}}
    for source in PIECES:
        found = {}
        for path in sorted((documents / source).iterdir()):
            text = path.read_bytes().decode("utf-8", "ignore").replace("\0", "").encode()
            found.setdefault(text, f"{source}/{path.name}")  # keep one of equal documents
        share = SHARE[source] * sum(map(len, found))
        free = {"report": share, "select": share}
        for text in sorted(found, key=lambda text: hashlib.sha256(text).digest()):
            which = next((which for which in free if free[which] > 0), "train")
            if which != "train" and (len(text) > share / 2 or len(text) > free[which] + share / 5):
                which = "train"
            if which != "train":
                free[which] -= len(text)
            texts[which][found[text]] = text
    out.mkdir(parents=True, exist_ok=True)
    train = b"\n".join(texts["train"].values())
    (out / "train.txt").write_bytes(train)
    print(f"train: {len(texts['train'])} documents, {len(train):,} bytes")
    known = {train[at:at + GRAM] for at in range(0, len(train) - GRAM + 1, STEP)}
    with open(out / "pieces.tsv", "w") as table:
        for which in ("select", "report"):
            every = sum(map(len, texts[which].values()))
            marks = {name: seen(text, known) for name, text in texts[which].items()}
            common = sum(map(sum, marks.values()))
            kept = {name: text for name, text in texts[which].items() if sum(marks[name]) < MOST * len(text)}
            gone = every - sum(map(len, kept.values()))
            n_gone = len(texts[which]) - len(kept)
            for source in JOINED:
                names = [name for name in kept if name.startswith(source + "/")]
                kept[source + "/*"] = b"\n".join(kept.pop(name) for name in names)
                marks[source + "/*"] = b"\0".join(marks[name] for name in names)
            print(f"{which}: {len(texts[which])} documents, {every:,} bytes; {100 * common / every:.1f} % of them "
                  "occur in training; "
                  f"excluded {n_gone} documents with {gone:,} bytes ({100 * gone / every:.1f} %)")
            for source, pieces in PIECES.items():
                chosen = choose(kept, marks, source, pieces)
                text = b"".join(kept[name][at:at + CONTEXT + EACH] for name, at in chosen)
                (out / f"{which}-{source}.txt").write_bytes(text)
                print(f"  {source}: {len(chosen)} pieces")
                for name, at in chosen:
                    table.write(
                        f"{which}\t{name}\t{at + CONTEXT}\t{sum(marks[name][at + CONTEXT:at + CONTEXT + EACH])}\n")


if __name__ == "__main__":
    main()
