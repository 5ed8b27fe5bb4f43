#!/usr/bin/env python3
"""Write the tokenizers with WordPiece in tests/tokenizer/data, and the tokens, types and spans of difficult texts and
pairs in the library `tokenizers`: .cases as make_data.py, and .pairs, also for some tokenizers of make_data.py.

    tests/tokenizer/make_wordpiece.py TEXT...      training texts in several languages, such as man pages

SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hard_texts import hard_texts, wordpiece_texts  # noqa: E402
from make_data import DATA, cases  # noqa: E402

BERT, MPNET = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"]
ADDED = [AddedToken("<e>", rstrip=True, normalized=False), AddedToken("Ab c", normalized=True),
         AddedToken("the", single_word=True, normalized=True), AddedToken("Ｅ x ", lstrip=True, normalized=True)]


def kinds(size):
    """Return {name: (tokenizer without pieces, special tokens)} with vocabularies of `size` pieces."""
    def make(special, normalizer, split, decoder):
        t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
        t.normalizer, t.pre_tokenizer, t.decoder = normalizer, split, decoder
        return t, trainers.WordPieceTrainer(vocab_size=size, limit_alphabet=size * 2 // 3, special_tokens=special)
    bert, split = normalizers.BertNormalizer, pre_tokenizers.BertPreTokenizer()
    mask = AddedToken("<mask>", lstrip=True, normalized=False)
    return {
        "mpnet": make([*MPNET[:-1], mask], bert(), split, decoders.WordPiece()),
        "bert": make(BERT, bert(), split, decoders.WordPiece()),
        "cased": make(BERT, bert(lowercase=False), split, decoders.WordPiece()),
        "accents": make(BERT, bert(lowercase=True, strip_accents=False), split, decoders.WordPiece(cleanup=False)),
        "words": make(BERT, normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(),
                                                  normalizers.StripAccents()]), pre_tokenizers.Whitespace(),
                      decoders.WordPiece())}


def train(lines, name, size):
    """Return a trained tokenizer."""
    t, trainer = kinds(size)[name]
    t.train_from_iterator(lines, trainer)
    number = {piece: t.token_to_id(piece) for piece in BERT + MPNET}
    cls, sep = ("[CLS]", number["[CLS]"]), ("[SEP]", number["[SEP]"])
    if name == "mpnet":
        t.post_processor = processors.RobertaProcessing(("</s>", number["</s>"]), ("<s>", number["<s>"]))
        t.add_tokens(ADDED)
    elif name == "cased":
        t.post_processor = processors.BertProcessing(sep, cls)
    elif name != "words":
        t.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[cls, sep])
    t.enable_truncation(128)  # relpos ignores both
    t.enable_padding(length=128)
    return t


def encoded(t, a, b, most):
    """Return [ids, types, texts, begins, ends] of a pair in `tokenizers`; spans are in bytes."""
    t.no_padding()
    t.enable_truncation(most) if most else t.no_truncation()
    texts = [x.decode("utf-8", "replace") for x in (a, b) if x is not None]
    e = t.encode(*texts)
    places = []  # of characters in bytes
    for text in texts:
        places.append([0])
        for c in text:
            places[-1].append(places[-1][-1] + len(c.encode()))
    of = [-1 if s is None else s for s in e.sequence_ids]
    spans = [(0, 0) if s < 0 else (places[s][x], places[s][y]) for s, (x, y) in zip(of, e.offsets)]
    return [e.ids, e.type_ids, of, [x for x, _ in spans], [y for _, y in spans]]


def pairs(t, texts, n, seed):
    """Return n pairs of texts, some without a second text, and a limit of tokens, or 0."""
    draw = random.Random(seed)
    special = t.num_special_tokens_to_add(True)
    for k in range(n):
        yield (texts[k] if k < len(texts) else draw.choice(texts), draw.choice(texts) if draw.random() < 0.7 else None,
               draw.choice([0, 0, special, special + 1, special + 2, special + 7, 16]))


def write_list(name, found):
    listed = ",\n".join(json.dumps(case, separators=(",", ":")) for case in found)
    (DATA / name).write_text(f"[\n{listed}\n]\n")


def write_pairs(name, t, texts, n):
    write_list(f"{name}.json.pairs", [[a.hex(), None if b is None else b.hex(), most, *encoded(t, a, b, most)]
                                      for a, b, most in pairs(t, texts, n, len(name))])


def write(name, t, texts, n, whole=None):
    """Write a tokenizer, n pairs of the texts, and the cases of the texts in `whole`."""
    (DATA / f"{name}.json").write_text(t.to_str(pretty=False))
    write_pairs(name, t, texts, n)
    t.no_padding()
    t.no_truncation()
    if whole is not None:
        write_list(f"{name}.json.cases", cases(f"{name}.json", t.to_str().encode(), whole))


def main():
    lines = [line for path in sys.argv[1:] for line in open(path, encoding="utf-8", errors="replace")]
    texts = [x for x in wordpiece_texts() if len(x) < 120]
    for name in kinds(0):
        t = train(lines + 3 * [x.decode().replace("\0", "") for x in texts], name, 800)
        write(name, t, texts, 250 if name == "mpnet" else 100, hard_texts() if name == "mpnet" else None)
    for name in ["t5", "fallback", "first"]:
        t = Tokenizer.from_file(str(DATA / f"{name}.json"))
        write_pairs(name, t, [x for x in hard_texts()[::2] if x.decode("utf-8", "ignore").encode() == x], 100)


if __name__ == "__main__":
    main()
