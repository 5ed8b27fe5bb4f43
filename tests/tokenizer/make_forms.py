#!/usr/bin/env python3
"""Write tests/tokenizer/data/forms.cases: tokenizers as they are published, in several forms, and the tokens of texts with special tokens in
transformers (tested with 5.24.0). Also write umt5.model, a model with bytes for unknown characters, and saved.json, the tokenizer.json
that transformers saves for t5.model. Needs sentencepiece, transformers and protobuf.

    tests/tokenizer/make_forms.py TEXT...      training texts, such as man pages

SPDX-License-Identifier: Apache-2.0"""
import json
import pathlib
import random
import re
import sys
import tempfile

import sentencepiece
import transformers
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast, T5Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hard_texts import hard_texts, special_texts
from make_data import train

DATA = pathlib.Path(__file__).parent / "data"
NAMES = ["added_tokens", "tokenizer_config", "special_tokens_map"]
BASE = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
VALID = [t for t in hard_texts() if t.decode("utf-8", "ignore").encode() == t and len(t) < 400]
SPECIAL = [t.encode() for t in special_texts()]


def flags(content, *names, special=False):
    return {"content": content, "special": special, **{name: name in names for name in ("lstrip", "rstrip", "single_word", "normalized")}}


def decoder(first, model, *tokens):
    """Return added_tokens_decoder. Tokens that are pieces of the model keep their numbers; others are numbered from `first`."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(DATA / model)) if model else []
    found = {pieces.id_to_piece(k): k for k in range(len(pieces))}
    new = [t["content"] for t in tokens if t["content"] not in found]
    usual = [flags(c, special=True) for c in ("<pad>", "</s>", "<unk>")]
    return {**{str(k): t for k, t in enumerate(usual)},
            **{str(found[c] if (c := t["content"]) in found else first + new.index(c)): t for t in tokens}}


MANY = [flags("<x>", "lstrip"), flags("<e>", "rstrip"), flags("<sep>", "lstrip", "rstrip", special=True), flags("Ab c", "normalized"),
        flags("①x", "normalized", special=True), flags("is", "single_word", "lstrip", "normalized"), flags("<mask>", "single_word", "rstrip")]


def folder(model, files):
    """Write a folder with a model and files beside it."""
    made = pathlib.Path(tempfile.mkdtemp())
    if model:
        (made / ("tokenizer.json" if model.endswith(".json") else "spiece.model")).write_bytes((DATA / model).read_bytes())
    for name, content in files.items():
        (made / f"{name}.json").write_text(json.dumps(content))
    return made


def with_bytes(t):
    """Return a tokenizer of transformers with bytes for unknown characters."""
    content = json.loads(t.backend_tokenizer.to_str())
    content["model"]["byte_fallback"] = True
    content["decoder"] = {"type": "Sequence", "decoders": [content["decoder"], {"type": "ByteFallback"}, {"type": "Fuse"}]}
    path = pathlib.Path(tempfile.mkdtemp()) / "tokenizer.json"
    path.write_text(json.dumps(content))
    return PreTrainedTokenizerFast(tokenizer_file=str(path))


class Pieces:
    """SentencePiece between special tokens, as transformers' slow tokenizers of T5 were until release 4."""

    def __init__(self, path, special):
        self.pieces, self.special = sentencepiece.SentencePieceProcessor(model_file=str(path)), special
        self.number = {s: self.pieces.piece_to_id(s) for s in special}

    def __len__(self):
        return len(self.pieces)

    def __call__(self, text):
        parts = re.split("(" + "|".join(map(re.escape, self.special)) + ")", text)
        return [k for part in parts if part for k in ([self.number[part]] if part in self.number else self.pieces.encode(part))] + [self.pieces.eos_id()]


def cases(name, forms, files, t, texts):
    draw = random.Random(7)
    known = [*range(259), *sorted(k for k in t.added_tokens_decoder if k >= 259)] if isinstance(t, ByT5Tokenizer) else [*range(len(t))]
    encoded = [t(text.decode()) for text in texts]
    encoded = [getattr(ids, "input_ids", ids) for ids in encoded]
    lists = encoded[::4] + [[draw.choice([draw.choice(known), draw.randrange(3), draw.choice(known[-12:])]) for _ in range(draw.randrange(1, 7))]
                            for _ in range(80)]
    decoded = []
    for k, ids in enumerate(lists if not isinstance(t, Pieces) else []):
        skip = k % 2 == 1
        decoded.append([ids, skip, t.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False).encode().hex()])
    return {"name": name, "forms": forms, "files": files, "texts": [[x.hex(), ids] for x, ids in zip(texts, encoded)], "decoded": decoded}


def main():
    transformers.logging.set_verbosity_error()
    lines = [line for path in sys.argv[1:] for line in open(path, encoding="utf-8", errors="replace").read().split("\n") if line.strip()]
    if lines:
        (DATA / "umt5.model").write_bytes(train(lines, vocab_size=420, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, byte_fallback=True,
                                                normalization_rule_name="identity", character_coverage=0.98))
    found = []

    def t5(name, forms, files, texts):
        t = T5Tokenizer.from_pretrained(folder("t5.model", files))
        found.append(cases(name, forms, files, t, texts))
        return t

    t = t5("as published", ["t5.model", "t5.gguf", "saved.json"], {"tokenizer_config": BASE, "special_tokens_map": {"eos_token": flags("</s>")}},
           VALID[:160] + SPECIAL[::2])
    (DATA / "saved.json").write_text(json.dumps(json.loads(t.backend_tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
    t5("properties", ["t5.model"], {"tokenizer_config": {**BASE, "extra_ids": 10, "added_tokens_decoder": decoder(910, "t5.model", *MANY)},
                                    "added_tokens": {"<y>": 999}}, SPECIAL[::3])
    t5("another end", ["t5.model"], {"tokenizer_config": {**BASE, "extra_ids": 7, "eos_token": "<end>", "audio_token": "<e>"},
                                     "added_tokens": {"<x>": 907, "Ab c": 908}, "special_tokens_map": {"additional_special_tokens": ["<x>"]}},
       SPECIAL[1::4])
    files = {"tokenizer_config": {**BASE, "extra_ids": 10, "additional_special_tokens": ["<sep>", *(f"<extra_id_{k}>" for k in range(10))]}}
    t = with_bytes(T5Tokenizer.from_pretrained(folder("umt5.model", files)))
    found.append(cases("bytes for unknown characters", ["umt5.model"], files, t, VALID[:60] + SPECIAL[2::5]))
    for file, config in (("white.json", {"eos_token": "<pad>"}), ("first.json", {"extra_ids": 10, "add_eos_token": False}),
                         ("never.json", {"additional_special_tokens": ["<sep>"]}), ("fallback.json", {"eos_token": "<end>", "extra_ids": 0})):
        files = {"tokenizer_config": {"tokenizer_class": "T5Tokenizer", **config}}
        t = AutoTokenizer.from_pretrained(folder(file, files))
        assert type(t) is T5Tokenizer
        found.append(cases(f"T5Tokenizer for {file}", [file], files, t, VALID[:60:2] + SPECIAL[4::9]) | {"t5_rules": True})
    files = {"tokenizer_config": {"extra_ids": 0}}
    found.append(cases("other rules for spaces", ["fallback.model"], files, Pieces(DATA / "fallback.model", ["</s>", "<unk>", "<ctl>"]),
                       SPECIAL[3::5]))
    for name, files in {
            "ByT5": {}, "ByT5 with added tokens": {"tokenizer_config": {**BASE, "extra_ids": 5, "added_tokens_decoder": decoder(
                259, None, *(flags(f"<extra_id_{k}>", special=True) for k in range(5)), *MANY)}},
            "ByT5 with a gap": {"tokenizer_config": {"extra_ids": 5, "additional_special_tokens": ["<x>"]}, "added_tokens": {"<x>": 270, "<e>": 300}},
            "ByT5 with names": {"tokenizer_config": {"extra_ids": 10, "eos_token": "<end>", "bos_token": "<x>"}, "added_tokens": {"<e>": 259},
                                "special_tokens_map": {"pad_token": "<pad>", "unk_token": flags("<unk>"), "sep_token": flags("<sep>", "rstrip")}}}.items():
        t = ByT5Tokenizer.from_pretrained(folder(None, files))
        texts = SPECIAL[::3] + VALID[:40]
        one = cases(name, ["bytes"], files, t, texts)
        found.append(one)
    listed = ",\n".join(json.dumps(one, separators=(",", ":")) for one in found)
    (DATA / "forms.cases").write_text(f"[\n{listed}\n]\n")
    print((DATA / "forms.cases").stat().st_size)


main()
